/* What the node has in its segment, where, and who still needs it: the leader's books. One entry per sample that has a
 * place, is on its way, or belongs to a class of the policy (then it may lie on an SSD only).
 *
 *   kinds of places   RAM: the policy keeps the sample in class 1
 *                     staging: somebody has a claim, or it is on its way, or a copy to an SSD is being made
 *                     spare: nobody needs it; left by what was read before a seek. Given up whenever room is wanted
 *
 * Invariants
 *  H1. An entry with a claim, or COMING, keeps its place.
 *  H2. Every place counts in exactly one of `bytes[kind]`; their sum is mr_space_used.
 *  H3. An entry that is COMING nowhere, has no class and no claim and is not spare does not exist: settle frees it.
 *  H4. Entries do not move: pointers to them are valid until they are freed.
 *
 * Not thread-safe: under the executor's lock. */
#ifndef MR_TIER_HOLDINGS_H
#define MR_TIER_HOLDINGS_H

#include "tier/space.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_HOLDING_NONE UINT32_MAX
#define MR_CLASS_NONE 0xff
#define MR_CLASS_RAM 1

enum mr_holding_state {
    MR_HOLDING_AWAY,   /* has no place */
    MR_HOLDING_COMING, /* has one, without the bytes */
    MR_HOLDING_READY
};
enum mr_holding_kind { MR_HOLDING_RAM, MR_HOLDING_STAGING, MR_HOLDING_SPARE, MR_HOLDING_KINDS };

struct mr_fetching;
struct mr_spilling;

struct mr_holding {
    uint64_t id;
    uint64_t at, bytes;        /* place, and stored bytes; room is `bytes` rounded up */
    struct mr_fetching *fetch; /* COMING: who brings it */
    struct mr_spilling *spill; /* a copy to an SSD that is on its way; it is one of the claims */
    uint32_t claims;           /* deliveries not reclaimed, answers to peers and copies to SSDs under way */
    uint32_t self;             /* its number */
    uint32_t before, behind;   /* in the list of spare ones */
    uint8_t state, storage_class;
    bool spare;
    bool lingers; /* stays as a spare one when it has come and nobody needs it yet */
};

struct mr_holdings {
    struct mr_holding **chunk; /* H4 */
    uint32_t chunks, n, free;  /* free: list of entries through `behind` */
    uint32_t used;             /* entries that live */
    uint32_t *slot;            /* hash table of entry numbers */
    uint32_t slots;            /* 0 or a power of two */
    struct mr_space *space;
    uint64_t bytes[MR_HOLDING_KINDS];
    uint64_t samples[MR_HOLDING_KINDS]; /* READY ones and those on their way */
    uint64_t ram_ready;                 /* READY in class 1 */
    uint32_t first_spare, last_spare;
    bool keep_spare; /* entries that nobody needs become spare instead of being freed */
};

int mr_holdings_init(struct mr_holdings *h, uint64_t bytes);
void mr_holdings_done(struct mr_holdings *h);
struct mr_holding *mr_holdings_find(const struct mr_holdings *h, uint64_t id);
/* A new entry, AWAY, without class. It must not be there. NULL: no memory. */
struct mr_holding *mr_holdings_add(struct mr_holdings *h, uint64_t id);
static inline struct mr_holding *mr_holdings_at(const struct mr_holdings *h, uint32_t i)
{
    return &h->chunk[i >> 12][i & 4095];
}
/* A place for an entry that is AWAY, at the cost of spare ones: it is COMING. False: there is no hole. */
bool mr_holdings_place(struct mr_holdings *h, struct mr_holding *e, uint64_t bytes);
/* Gives the place up (no claims): AWAY. */
void mr_holdings_unplace(struct mr_holdings *h, struct mr_holding *e);
void mr_holdings_ready(struct mr_holdings *h, struct mr_holding *e, uint64_t bytes);
void mr_holdings_set_class(struct mr_holdings *h, struct mr_holding *e, unsigned storage_class);
void mr_holdings_claim(struct mr_holdings *h, struct mr_holding *e);
void mr_holdings_unclaim(struct mr_holdings *h, struct mr_holding *e); /* and settles */
/* H3: frees it, or its place, if nobody needs them. The entry may be gone afterwards. */
void mr_holdings_settle(struct mr_holdings *h, struct mr_holding *e);
/* Nothing belongs to a class any more; what nobody needs becomes spare, if it is READY. */
void mr_holdings_forget_classes(struct mr_holdings *h);
/* Some entry of class 1 without claims, to be given up where nothing else can; NULL: there is none. */
struct mr_holding *mr_holdings_any_idle(struct mr_holdings *h);
/* Do the counts agree with the entries? For tests. */
bool mr_holdings_check(const struct mr_holdings *h);

#endif
