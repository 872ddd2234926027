/* Who keeps a sample between its reads, so that one copy is always in the job and as little space as possible is spent
 * on copies that their node does not want for itself.
 *
 * The readers of a sample over the epochs are a sequence, one read per epoch. A node that keeps the sample from one of
 * its reads to its next own read has it for itself and, in between, for everybody. So
 *   1. short stays: a node whose next own read is at most `reach` away keeps it until then;
 *   2. what no short stay covers is covered by the cheapest combination of longer stays (cost: what they exceed `reach`
 *      by) and of "the last reader keeps it until the next read" (cost: that time): a shortest path over the reads of a
 *      window of epochs. Windows begin at the first epoch and every `window` epochs from there; consecutive ones share
 * the read at their border, so they join without a gap. Stays that cross a border count for 1 when they last at most
 * MR_CHAIN_MARGIN epochs, which whoever computes either window can see. So any node computes the same answer from the
 * reads of a few epochs around the time in question. */
#ifndef MR_POLICY_CHAIN_H
#define MR_POLICY_CHAIN_H

#include <stdint.h>

#define MR_CHAIN_WINDOW 8 /* epochs, when many are known */
#define MR_CHAIN_WHOLE 16 /* a run that is not longer than this is one window */
#define MR_CHAIN_MARGIN 8
#define MR_CHAIN_MAX 32 /* epochs in sight: two windows and a margin on either side */

/* Reads in their order, at most one per epoch; epochs may be missing. */
struct mr_chain {
    unsigned n;
    uint64_t epoch[MR_CHAIN_MAX], when[MR_CHAIN_MAX];
    uint32_t node[MR_CHAIN_MAX];
};

enum {
    MR_CHAIN_OWN = 1, /* the reader keeps it until its own next read */
    MR_CHAIN_NEXT = 2 /* the reader keeps it until the next read, whoever makes it */
};

/* The window of an epoch begins here: of the time after the read in that epoch. */
static inline uint64_t mr_chain_anchor(uint64_t first_epoch, uint64_t epoch, uint64_t window)
{
    return epoch - (epoch - first_epoch) % window;
}

/* Index of the reader's own next read, or c->n. */
unsigned mr_chain_next_own(const struct mr_chain *c, unsigned i);
/* What the readers of the window that begins at `anchor` keep, and of the others what is a short stay. The chain has to
 * show epochs anchor - MARGIN + 1 ... anchor + window + MARGIN - 1, as far as they exist. */
void mr_chain_cover(const struct mr_chain *c, uint64_t anchor, uint64_t window, uint64_t reach,
                    uint8_t keep[MR_CHAIN_MAX]);

#endif
