/* Hash map from 64-bit keys to 64-bit values, and the hash that makes a key of a text.
 *
 *     struct mr_map ids = {0};
 *     uint64_t *id = mr_map_put(&ids, mr_hash_bytes(name, len, 0));
 *     if (!id)
 *         return -ENOMEM;
 *     if (!*id)
 *         *id = ++last_id;                  a new key
 *     ...
 *     mr_map_done(&ids);
 *
 * A value of 0 means "not there", so what is stored must not be 0: store an index plus one, a count, a pointer. Keys
 * may be anything; they need not be well spread, the map mixes them.
 *
 * Texts are told apart by their 64-bit hash alone: among a million of them two share one with a probability of 3e-8.
 * Where that is too much (names an attacker chooses, contents that must not be confused) compare the text that the
 * value stands for.
 *
 * Cost: open addressing, at most half full, 16 bytes per slot in one array: a look-up touches one cache line in nearly
 * all cases. Growing rehashes, so a put may take long now and then, and moves the values: a pointer from mr_map_put is
 * valid until the next put. There is no removal; nobody needed one.
 *
 * Thread safety: any number of readers (mr_map_get, mr_map_next), or one writer. */
#ifndef MR_BASE_MAP_H
#define MR_BASE_MAP_H

#include "base/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_map_slot {
    uint64_t key, value; /* value 0: free */
};

/* A zero-initialised map is empty and ready for use. */
struct mr_map {
    struct mr_map_slot *slot;
    size_t slots; /* 0 or a power of two */
    size_t used;  /* slots handed out by mr_map_put */
};

/* The value of a key, 0 if it has none. */
static inline uint64_t mr_map_get(const struct mr_map *m, uint64_t key)
{
    if (!m->slots)
        return 0;
    for (size_t i = (size_t)mr_mix64(key) & (m->slots - 1); m->slot[i].value; i = (i + 1) & (m->slots - 1))
        if (m->slot[i].key == key)
            return m->slot[i].value;
    return 0;
}

/* Where the value of a key is, 0 in it if the key is new: then store one that is not 0 before the next call, or the key
 * is not entered. NULL when memory is exhausted; the map is as it was. */
uint64_t *mr_map_put(struct mr_map *m, uint64_t key);

/* Makes room for so many entries, so that they are put without rehashing. False when memory is exhausted. */
bool mr_map_reserve(struct mr_map *m, size_t entries);

/* Walks the entries, in no order: `size_t at = 0; while ((s = mr_map_next(&m, &at))) ...`. NULL behind the last. */
const struct mr_map_slot *mr_map_next(const struct mr_map *m, size_t *at);

/* Forgets all entries and keeps the memory. */
void mr_map_clear(struct mr_map *m);
/* Frees the memory. The map is empty and ready again. */
void mr_map_done(struct mr_map *m);

/* 64-bit hash of a text; other seeds give unrelated ones, so that texts of several kinds can share a map. Reads 8 bytes
 * at a time. For tables in memory only: it may change between versions and differs between byte orders. */
uint64_t mr_hash_bytes(const void *text, size_t len, uint64_t seed);

#endif
