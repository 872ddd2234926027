/* The agreed holders of samples: a function of the world that every node computes alike, without a directory and
 * without memory per sample.
 *
 *   hash(id)  0 ........ T ................ held ........ 1
 *             by readers   dealt to nodes          nobody: the job has no room
 *
 * By readers: the first reader since the start keeps the sample from that read on (rule MR_HOME_FIRST), or the reads
 * of a few epochs decide (MR_HOME_CHAIN, chain.h). Dealt: each node with room left has a range of hashes and fetches
 * those samples ahead of their first use. T is the largest share of the samples for which every node has room for what
 * falls to it as a reader; it is below 1 where nodes are unequal or the job cannot hold the set.
 *
 * Thread safety: immutable once made; questions ask the schedule, which belongs to one thread. */
#ifndef MR_POLICY_HOMES_H
#define MR_POLICY_HOMES_H

#include "policy/chain.h"

#include <millrace/plugin_policy.h>

/* Where a sample that the first epochs leave out is looked for. */
#define MR_HOME_EPOCHS 4u

enum mr_home_rule { MR_HOME_FIRST, MR_HOME_CHAIN };

struct mr_homes {
    const struct mr_policy_world *w;
    unsigned classes; /* 1 ... classes - 1 are used */
    enum mr_home_rule rule;
    uint64_t readers_end; /* T, as a hash */
    uint64_t *reader_end; /* without dealing: every node's own T */
    uint64_t *dealt_end;  /* per node: where its range of hashes ends; begins where that of the node before ends */
    uint64_t reach;       /* MR_HOME_CHAIN: short stays, in accesses */
    uint64_t window;      /* MR_HOME_CHAIN: epochs */
    bool scarce;          /* some node cannot keep all that it will ever read */
};

struct mr_homes_options {
    unsigned classes;     /* use classes 1 ... classes - 1 */
    bool deal;            /* deal what readers have no room for; else each reader keeps what it can */
    bool may_chain;       /* else always the first reader */
    uint64_t entries_max; /* copies that a node can remember, without and with a chain */
    uint64_t entries_max_chain;
};

int mr_homes_create(const struct mr_policy_world *w, const struct mr_homes_options *o, struct mr_homes **out,
                    struct mr_error *err);
void mr_homes_free(struct mr_homes *h);

uint64_t mr_homes_hash(uint64_t id);
/* The node to which the sample is dealt, or UINT32_MAX: readers keep it (is_reader_kept) or nobody does. */
uint32_t mr_homes_dealt(const struct mr_homes *h, uint64_t hash);
static inline bool mr_homes_by_readers(const struct mr_homes *h, uint64_t hash)
{
    return hash < h->readers_end;
}
/* The first reader keeps it. */
static inline bool mr_homes_kept_by(const struct mr_homes *h, uint64_t hash, uint32_t reader)
{
    return reader != UINT32_MAX && hash < (h->reader_end ? h->reader_end[reader] : h->readers_end);
}
/* The first access of each id since the start; MR_NO_ACCESS where none is in sight. Where memory for the order is
 * exhausted nothing is known. */
void mr_homes_first(const struct mr_homes *h, const uint64_t *ids, uint64_t *first, uint32_t *readers, size_t n);
/* Does the node hold the sample by the rule, just before the access? */
bool mr_homes_holds(const struct mr_homes *h, uint32_t node, uint64_t id, uint64_t access);

/* MR_HOME_CHAIN: the epochs whose reads have to be seen for an access in `epoch`. */
void mr_homes_sight(const struct mr_homes *h, uint64_t epoch, uint64_t *low, uint64_t *high);
/* The holders just before an access, whoever makes it, of a sample with these reads in sight; where the last read was
 * only just now, behind them those who held it before, since the newest may not have it yet. Returns how many, at most
 * `most`; *at is the first read of the chain that is not before the access, c->n if none is. */
unsigned mr_homes_before(const struct mr_homes *h, const struct mr_chain *c, uint64_t access, uint32_t *nodes,
                         unsigned most, unsigned *at);
/* Until when the reader of `at` has to keep it; 0: it does not. */
uint64_t mr_homes_until(const struct mr_homes *h, const struct mr_chain *c, unsigned at);

#endif
