/* Units that samples share (MR_ACCESS_UNIT), in their decoded form, for all threads of a loader: each is read and decoded
 * once, by the thread that wants it first; others that want it meanwhile wait for it. The least recently used ones go
 * when there are too many bytes, unless they are in use.
 *
 * Thread safety: all functions, by any thread. */
#ifndef MR_DATASET_UNIT_CACHE_H
#define MR_DATASET_UNIT_CACHE_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_unit_cache;

struct mr_cached_unit {
    void *data; /* NULL: it could not be read */
    size_t len;
    /* The cache's. */
    uint64_t file, key, used;
    unsigned refs;
    bool loading, dropped;
    struct mr_cached_unit *next;
};

/* NULL: no memory. */
struct mr_unit_cache *mr_unit_cache_create(uint64_t bytes);
void mr_unit_cache_free(struct mr_unit_cache *c); /* accepts NULL; nobody uses a unit */
/* The unit of the file at offset `key`, to be given back with put. *mine: the caller fills it, by mr_unit_cache_fill; it
 * has no data until then. NULL: no memory. */
struct mr_cached_unit *mr_unit_cache_get(struct mr_unit_cache *c, uint64_t file, uint64_t key, bool *mine);
/* `data` is malloc'ed and becomes the cache's; NULL: it could not be read, and nobody else will find it. */
void mr_unit_cache_fill(struct mr_unit_cache *c, struct mr_cached_unit *u, void *data, size_t len);
void mr_unit_cache_put(struct mr_unit_cache *c, struct mr_cached_unit *u);

#endif
