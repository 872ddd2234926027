/* The page cache before a run: dropped, filled or left, without root, on the data set's own files; and how much of them
 * a first read would really have to fetch. Files are dealt to the ranks, so a large set is prepared in parallel. */
#include "base/common.h"
#include "base/log.h"
#include "bench/trainer.h"
#include "dataset/dataset_parts.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARM_BUFFER (1 << 20)
#define MEASURE_MAX 2048u /* files looked at per rank, spread over the set, when the cache was prepared */
#define GLANCE_MAX 256u   /* when it was not: starting must stay quick */

static int warm_file(struct mr_store *s, const char *path, void *buffer, struct mr_error *err)
{
    struct mr_object *o;
    int rc = mr_object_open(s, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    int64_t got = 1;
    for (uint64_t at = 0; got > 0; at += (uint64_t)got)
        if ((got = mr_object_read_some(o, buffer, WARM_BUFFER, at, err)) <= 0)
            break;
    mr_object_close(o, NULL);
    return got < 0 ? (int)got : 0;
}

static int cool_file(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_object *o;
    int rc = mr_object_open(s, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    struct mr_error first;
    rc = s->ops->drop_cache(o, &first);
    if (rc < 0) { /* pages not written back yet cannot be dropped */
        rc = s->ops->fsync(o, &first);
        if (rc >= 0)
            rc = s->ops->drop_cache(o, &first);
    }
    if (rc < 0 && err)
        *err = first;
    mr_object_close(o, NULL);
    return rc < 0 ? rc : 0;
}

static int measure(struct mr_store *s, const struct mr_dataset *ds, uint64_t first, uint64_t files, uint32_t world,
                   uint64_t most, struct mr_bench_cold *cold, struct mr_error *err)
{
    char path[2 * MR_NAME_MAX];
    const char *list[1] = {path};
    uint64_t mine = (files - first + world - 1) / world, stride = MR_MAX(1u, (mine + most - 1) / most);
    for (uint64_t k = 0; k < mine; k += stride) {
        struct mr_cold c;
        int rc = mr_dataset_file_path(ds, first + k * world, path, err);
        if (rc >= 0)
            rc = mr_store_cold_fraction(s, list, 1, &c, err);
        if (rc < 0)
            return rc;
        cold->cold_bytes += c.cold_bytes;
        cold->total_bytes += c.total_bytes;
        cold->unknown_files += c.unknown_files;
    }
    return 0;
}

static int set_files(struct mr_store *s, const struct mr_dataset *ds, enum mr_bench_cache mode, uint64_t first,
                     uint64_t files, uint32_t world, const _Atomic uint32_t *stop, struct mr_error *err)
{
    char path[2 * MR_NAME_MAX];
    void *buffer = mode == MR_CACHE_WARM ? malloc(WARM_BUFFER) : NULL;
    int rc = mode == MR_CACHE_WARM && !buffer ? mr_error_set(err, -ENOMEM, "cannot warm the cache") : 0;
    for (uint64_t f = first; rc >= 0 && f < files && !atomic_load(stop); f += world) {
        rc = mr_dataset_file_path(ds, f, path, err);
        if (rc >= 0)
            rc = mode == MR_CACHE_WARM ? warm_file(s, path, buffer, err) : cool_file(s, path, err);
    }
    free(buffer);
    return rc < 0 ? rc : 0;
}

int mr_bench_set_cache(const char *dataset, enum mr_bench_cache mode, uint32_t rank, uint32_t world,
                       const _Atomic uint32_t *stop, struct mr_bench_cold *cold, struct mr_error *err)
{
    struct mr_store *s;
    struct mr_dataset *ds = NULL;
    struct mr_dataset_info info;
    *cold = (struct mr_bench_cold){0};
    if (mr_store_is_url(dataset)) { /* no page cache of ours */
        cold->unknown_files = 1;
        return 0;
    }
    int rc = mr_store_open("posix", &s, err);
    if (rc < 0)
        return rc;
    rc = mr_dataset_open_in(dataset, s, &ds, err);
    if (rc >= 0) {
        mr_dataset_get_info(ds, &info);
        if (mode != MR_CACHE_ASIS)
            rc = set_files(s, ds, mode, rank, info.files, world, stop, err);
        if (rc >= 0 && rank < info.files)
            rc = measure(s, ds, rank, info.files, world, mode == MR_CACHE_ASIS ? GLANCE_MAX : MEASURE_MAX, cold, err);
    }
    mr_dataset_close(ds);
    mr_store_close(s);
    return rc < 0 ? rc : 0;
}

/* ---- checkpoints ---- */

struct checkpoint_files {
    struct mr_store *store;
    const char *folder;
    char step[2 * MR_NAME_MAX]; /* the checkpoint being looked at */
    bool cool;
    uint32_t rank, world, n;
    struct mr_bench_cold *cold;
};

static int checkpoint_file(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct checkpoint_files *c = user;
    char path[4 * MR_NAME_MAX];
    const char *list[1] = {path};
    struct mr_cold cold;
    if (is_dir || c->n++ % c->world != c->rank)
        return 0;
    snprintf(path, sizeof path, "%s/%s", c->step, name);
    int rc = c->cool ? cool_file(c->store, path, err) : 0;
    if (rc >= 0)
        rc = mr_store_cold_fraction(c->store, list, 1, &cold, err);
    if (rc < 0)
        return rc;
    c->cold->cold_bytes += cold.cold_bytes;
    c->cold->total_bytes += cold.total_bytes;
    c->cold->unknown_files += cold.unknown_files;
    return 0;
}

static int checkpoint_step(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct checkpoint_files *c = user;
    if (!is_dir || strncmp(name, "step-", 5) != 0)
        return 0;
    snprintf(c->step, sizeof c->step, "%s/%s", c->folder, name);
    return c->store->ops->list(c->store, c->step, checkpoint_file, c, err);
}

int mr_bench_checkpoint_cache(const char *folder, enum mr_bench_cache mode, uint32_t rank, uint32_t world,
                              struct mr_bench_cold *cold, struct mr_error *err)
{
    struct checkpoint_files c = {
        .folder = folder, .cool = mode == MR_CACHE_COLD, .rank = rank, .world = world, .cold = cold};
    int rc = mr_store_open("posix", &c.store, err);
    if (rc < 0)
        return rc;
    rc = c.store->ops->list(c.store, folder, checkpoint_step, &c, err);
    mr_store_close(c.store);
    if (rc == -ENOENT) { /* checkpoints on another store than files: nobody can tell */
        cold->unknown_files++;
        return 0;
    }
    return rc < 0 ? rc : 0;
}
