/* Units that samples share (MR_ACCESS_UNIT), in their decoded form, for all threads of a loader: each is read and decoded
 * once, by the thread that wants it first; others that want it meanwhile wait for it. The least recently used ones go
 * when there are too many bytes, unless they are in use.
 *
 * Thread safety: all functions, by any thread. */
#ifndef MR_DATASET_UNIT_CACHE_H
#define MR_DATASET_UNIT_CACHE_H

#include <millrace/error.h>
#include <millrace/plugin_format.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_unit_cache;

struct mr_cached_unit {
    void *data; /* NULL: it could not be read */
    size_t len;
    /* The cache's. */
    size_t cap;
    uint64_t file, key, used, served;
    unsigned refs;
    bool loading, dropped;
    struct mr_cached_unit *next;
};

/* `once`: each row is served once in a pass, so a unit goes when all its rows were. NULL: no memory. */
struct mr_unit_cache *mr_unit_cache_create(uint64_t bytes, bool once);
void mr_unit_cache_free(struct mr_unit_cache *c); /* accepts NULL; nobody uses a unit */
/* The unit of the file at offset `key`, to be given back with put. *mine: the caller fills it, by mr_unit_cache_fill; it
 * has no data until then. NULL: no memory. */
struct mr_cached_unit *mr_unit_cache_get(struct mr_unit_cache *c, uint64_t file, uint64_t key, bool *mine);
/* Memory of at least so many bytes, if possible of a unit that went; data NULL: there is none. To be given back by fill or
 * recycle. */
struct mr_unit_memory mr_unit_cache_memory(struct mr_unit_cache *c, size_t bytes);
void mr_unit_cache_recycle(struct mr_unit_cache *c, struct mr_unit_memory m);
/* `m` becomes the cache's; data NULL: it could not be read, and nobody else will find it. */
void mr_unit_cache_fill(struct mr_unit_cache *c, struct mr_cached_unit *u, struct mr_unit_memory m, size_t len);
/* After `served` of its `rows` were served. */
void mr_unit_cache_put(struct mr_unit_cache *c, struct mr_cached_unit *u, uint64_t served, uint64_t rows);

#endif
