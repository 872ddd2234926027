/* Open files of a data set: the one cache behind every way of fetching samples. A file lies in one of a few places that
 * its number gives (set-associative); the least recently used one that nobody holds makes room.
 *
 * A file that is held (get ... put) stays open. Belongs to one thread. Hot path (the file is open): no call, no lock.
 */
#ifndef MR_DATASET_FILE_CACHE_H
#define MR_DATASET_FILE_CACHE_H

#include "dataset/dataset_parts.h"
#include "store/store.h"

struct mr_file_cache;

struct mr_cached_file {
    struct mr_object *object;
    uint64_t file, used;
    unsigned users;
};

/* Beside MR_OBJ_*: a file that is opened must be as the manifest says, in size and, in scanned sets, time; else
 * MR_E_CHANGED with its name. For who keeps the bytes for longer than a read. */
#define MR_FILE_CACHE_CHECK (1u << 31)
/* For up to `files` open files (at least 1; no more than the set has), opened in `store` with MR_OBJ_READ and `flags`.
 */
int mr_file_cache_create(const struct mr_dataset *ds, struct mr_store *store, unsigned flags, uint64_t files,
                         struct mr_file_cache **out, struct mr_error *err);
void mr_file_cache_free(struct mr_file_cache *c); /* closes all; accepts NULL */
/* Holds the file: 0, or MR_FILE_CACHE_BUSY when all its places are held (put one first), or a negative code. */
#define MR_FILE_CACHE_BUSY 1
int mr_file_cache_get(struct mr_file_cache *c, uint64_t file, struct mr_cached_file **out, struct mr_error *err);
static inline void mr_file_cache_put(struct mr_cached_file *f)
{
    f->users--;
}
/* The file's object if it is open, NULL otherwise. Not held: good until the next call with this cache. */
struct mr_object *mr_file_cache_peek(struct mr_file_cache *c, uint64_t file);
bool mr_file_cache_has(struct mr_file_cache *c, uint64_t file);
uint64_t mr_file_cache_files(const struct mr_file_cache *c); /* how many may be open */
/* An object of the caller's own, who closes it: for files that are not worth a place. */
int mr_file_cache_open(struct mr_file_cache *c, uint64_t file, struct mr_object **out, struct mr_error *err);

#endif
