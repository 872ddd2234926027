/* What one node holds, as its policy decided: every sample in a class, until when it has to stay, and when the node
 * uses it next. A copy that does not have to stay is spare: it is given up, the farthest next use first, when something
 * with a nearer use or something that has to stay wants the room (Belady with bypass). Decisions only: bytes are the
 * engine's.
 *
 * Invariants
 *  H1. room[c] = capacity of class c less the bytes of what the table has in c; never negative.
 *  H2. Every spare copy is in the heap `spare` at least once with its current worth; stale entries are skipped.
 *  H3. Every copy that has to stay until some access is in the heap `due` at least once with that access,
 *      and so is the end of its grace.
 *
 * Cost: 16 bytes per slot (24 when `timed`), at most 80 % full; 16 per heap entry. Never more entries than fit
 * `max_bytes`; then things are refused as if there were no room. Not thread-safe. */
#ifndef MR_POLICY_SHELF_H
#define MR_POLICY_SHELF_H

#include "base/heap.h"
#include "base/vec.h"

#include <millrace/plugin_policy.h>

/* As `until`: has to stay; as `next`: is never used again. Accesses stay below it, and are exact as keys of a heap. */
#define MR_SHELF_FOREVER ((uint64_t)1 << 52)

struct mr_shelf {
    const struct mr_policy_world *w;
    uint32_t node;
    bool timed; /* `until` may be any access; else it is 0 or MR_SHELF_FOREVER */
    uint64_t room[MR_POLICY_CLASS_MAX];
    size_t slots, used, most; /* slots: 0 or a power of two */
    uint64_t *key;            /* id + 1, 0: free */
    uint64_t *next;           /* next use << 3 | class */
    uint64_t *until;          /* timed only */
    struct mr_heap spare, due;
    MR_VEC(uint64_t) evicted; /* by the calls since mr_shelf_begin */
    uint64_t refused;         /* what had to stay and found no room */
};

void mr_shelf_init(struct mr_shelf *s, const struct mr_policy_world *w, uint32_t node, bool timed, uint64_t max_bytes);
void mr_shelf_done(struct mr_shelf *s);
/* Entries that `max_bytes` allow. */
uint64_t mr_shelf_most(bool timed, uint64_t max_bytes);

/* The access that is being planned: forgets the list of what was evicted, and what had to stay until before `now` is
 * spare from here on. */
void mr_shelf_begin(struct mr_shelf *s, uint64_t now);
/* Asks the processor for what mr_shelf_class will look at: the table is larger than caches. */
void mr_shelf_prefetch(const struct mr_shelf *s, uint64_t id);
/* The class that has the sample, or MR_NOT_HELD. */
unsigned mr_shelf_class(const struct mr_shelf *s, uint64_t id);
/* The node has used a sample that it holds: its next use, and until when it has to stay (0: it is spare; what was
 * promised before stays promised). */
void mr_shelf_touch(struct mr_shelf *s, uint64_t id, uint64_t next, uint64_t until);
/* Takes a sample that is not held: the class, or MR_NOT_HELD when there is no room. With until != 0 any spare copies
 * are given up for it, else only those with a later next use. */
unsigned mr_shelf_keep(struct mr_shelf *s, uint64_t id, uint64_t next, uint64_t until);
/* The class into which mr_shelf_keep would put something that has to stay, without giving anything up. */
unsigned mr_shelf_room(const struct mr_shelf *s, uint64_t bytes);
/* The bytes never came. */
void mr_shelf_forget(struct mr_shelf *s, uint64_t id);

#endif
