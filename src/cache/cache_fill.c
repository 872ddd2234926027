/* Filling a cache folder from a data set, ahead of a run: see cache_admin.h. */
#include "base/common.h"
#include "base/progress.h"
#include "base/workers.h"
#include "cache/cache_admin.h"
#include "cache/ssd.h"
#include "dataset/fetch.h"

#include <errno.h>
#include <stdlib.h>

struct filling {
    struct mr_dataset *ds;
    struct mr_ssd *s;
    struct mr_progress *progress;
    struct mr_dataset_reader **reader; /* one per thread */
    unsigned flags;                    /* of reads */
    atomic_bool full;
    atomic_uint_fast64_t read_bytes, written;
};

static int fill_one(struct mr_worker_ctx *ctx, uint64_t id, struct mr_error *err)
{
    struct filling *f = ctx->user;
    struct mr_sample sample;
    if (atomic_load(&f->full))
        return 0;
    uint64_t bytes = mr_ssd_find(f->s, id);
    if (bytes) {
        mr_progress_add(f->progress, 1, bytes);
        return 0;
    }
    int rc = mr_dataset_read(f->reader[ctx->thread], id, MR_DATASET_RAW | f->flags, NULL, 0, &sample, err);
    if (rc < 0)
        return rc;
    rc = sample.bytes ? mr_ssd_write(f->s, id, sample.data, sample.bytes, err) : 0;
    if (rc == -ENOSPC) {
        atomic_store(&f->full, true);
        return 0;
    }
    if (rc && rc != -EEXIST)
        return rc;
    atomic_fetch_add(&f->written, rc == 0);
    atomic_fetch_add(&f->read_bytes, sample.bytes);
    mr_progress_add(f->progress, 1, sample.bytes);
    return 0;
}

static void hold_one(void *user, uint64_t id, uint64_t bytes)
{
    (void)bytes;
    mr_ssd_hold(user, id, true);
}

static int fill_all(struct filling *f, const char *folder, const struct mr_cache_work *how, struct mr_error *err)
{
    struct mr_dataset_info info;
    mr_dataset_get_info(f->ds, &info);
    mr_ssd_each(f->s, hold_one, f->s);
    const struct mr_progress_options po = {.verb = "filling",
                                           .unit = "samples",
                                           .total = info.samples,
                                           .total_bytes = info.sample_bytes,
                                           .stream = how->progress,
                                           .force_tty = -1};
    int rc = 0;
    f->reader = calloc(how->threads, sizeof(struct mr_dataset_reader *));
    if (!f->reader)
        return mr_error_set(err, -ENOMEM, "cannot fill '%s'", folder);
    for (unsigned i = 0; i < how->threads && rc >= 0; i++)
        rc = mr_dataset_reader_create(f->ds, &f->reader[i], err);
    if (rc >= 0)
        rc = mr_progress_start(&po, &f->progress, err);
    if (rc >= 0)
        rc = mr_workers_run(how->threads, info.samples, 1, fill_one, f, how->stop, err);
    mr_progress_stop(f->progress);
    for (unsigned i = 0; i < how->threads; i++)
        mr_dataset_reader_free(f->reader[i]);
    free(f->reader);
    return rc;
}

int mr_cache_fill(struct mr_dataset *ds, const struct mr_cache_filling *q, const struct mr_cache_work *how,
                  struct mr_cache_filled *out, struct mr_error *err)
{
    struct filling f = {.ds = ds, .flags = q->checksums ? MR_DATASET_VERIFY : 0};
    struct mr_ssd_stats st;
    struct mr_ssd_params p = {
        .folder = q->folder, .capacity = q->capacity, .name = q->name, .samples = mr_dataset_count(ds)};
    mr_stored_key(ds, f.flags, p.data_set);
    int rc = mr_ssd_open(&p, &f.s, err);
    if (rc)
        return rc;
    rc = fill_all(&f, q->folder, how, err);
    mr_ssd_stats(f.s, &st);
    mr_ssd_close(f.s);
    if (!rc || rc == MR_E_INTERRUPTED)
        *out = (struct mr_cache_filled){
            .samples = st.samples, .bytes = st.bytes, .written = f.written, .read_bytes = f.read_bytes, .full = f.full};
    return rc;
}
