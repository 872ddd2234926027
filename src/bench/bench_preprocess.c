/* How a workload's reader.preprocess keys become the loader's preprocessing, and preprocessing that is emulated:
 * reader.preprocess_time. */
#include "bench/bench_feed.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"

#include <millrace/preprocess.h>
#include <stdlib.h>
#include <time.h>

static int two_sides(const char *key, const struct mr_dims *d, uint32_t *height, uint32_t *width, struct mr_error *err)
{
    if (d->n == 0)
        return 0;
    if (d->n != 2 || d->dim[0] > MR_PREPROCESS_SIDE_MAX || d->dim[1] > MR_PREPROCESS_SIDE_MAX)
        return mr_error_plain(err, MR_E_CONFIG, "reader.preprocess.%s wants a height and a width, at most %u each", key,
                              MR_PREPROCESS_SIDE_MAX);
    *height = (uint32_t)d->dim[0];
    *width = (uint32_t)d->dim[1];
    return 0;
}

static int channels(const char *key, const struct mr_strings *list, float *out, struct mr_error *err)
{
    if (list->n > MR_PREPROCESS_CHANNELS)
        return mr_error_plain(err, MR_E_CONFIG, "reader.preprocess.%s has %zu numbers, a picture at most %u channels",
                              key, (size_t)list->n, MR_PREPROCESS_CHANNELS);
    for (size_t i = 0; i < list->n; i++) {
        char *end;
        double v = strtod(list->item[i], &end);
        if (end == list->item[i] || *end)
            return mr_error_plain(err, MR_E_CONFIG, "reader.preprocess.%s: '%s' is no number", key, list->item[i]);
        out[i] = (float)v;
    }
    return 0;
}

int mr_bench_preprocess_params(const struct mr_workload *w, bool eval, uint64_t seed, struct mr_preprocess_params *out,
                               struct mr_error *err)
{
    static const enum mr_crop crops[] = {[MR_CONF_CROP_NONE] = MR_CROP_NONE,
                                         [MR_CONF_CROP_CENTER] = MR_CROP_CENTER,
                                         [MR_CONF_CROP_RANDOM] = MR_CROP_RANDOM,
                                         [MR_CONF_CROP_RANDOM_RESIZED] = MR_CROP_RANDOM_RESIZED};
    const struct mr_conf_preprocess *c = &w->preprocess;
    struct mr_preprocess_params p;
    mr_preprocess_params_init(&p);
    p.crop = crops[c->crop];
    p.scale_min = c->scale_min, p.scale_max = c->scale_max;
    p.ratio_min = c->ratio_min, p.ratio_max = c->ratio_max;
    p.flip = c->flip;
    p.to_float = c->dtype == 1;
    p.planar = c->layout == 1;
    p.seed = seed;
    int rc = two_sides("crop_size", &c->crop_size, &p.crop_height, &p.crop_width, err);
    if (!rc)
        rc = two_sides("size", &c->size, &p.height, &p.width, err);
    if (!rc)
        rc = channels("mean", &c->mean, p.mean, err);
    if (!rc)
        rc = channels("stdev", &c->stdev, p.stdev, err);
    if (!rc && !p.to_float && (c->mean.n || c->stdev.n))
        rc = mr_error_plain(err, MR_E_CONFIG, "reader.preprocess.mean and stdev need dtype float32");
    if (!rc && (c->crop_size.n > 0) != (p.crop == MR_CROP_CENTER || p.crop == MR_CROP_RANDOM))
        rc = mr_error_plain(err, MR_E_CONFIG,
                            "reader.preprocess.crop_size goes with crop center or random, and only with them");
    struct mr_preprocess *probe = NULL;
    if (!rc && (rc = mr_preprocess_create(&p, &probe, err)) < 0)
        mr_error_context(err, "in reader.preprocess");
    mr_preprocess_free(probe);
    if (rc)
        return rc;
    if (p.crop == MR_CROP_NONE && !p.height && p.flip <= 0 && !p.to_float && !p.planar)
        return 0;
    if (eval) {
        p.flip = 0;
        p.crop = p.crop == MR_CROP_RANDOM ? MR_CROP_CENTER : p.crop == MR_CROP_RANDOM_RESIZED ? MR_CROP_NONE : p.crop;
    }
    *out = p;
    return 1;
}

/* ---- emulated ---- */

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * MR_NS_PER_S + (uint64_t)t.tv_nsec;
}

struct mr_feed_work mr_feed_work_of(const struct mr_bench_params *p)
{
    return (struct mr_feed_work){.time = p->workload->reader.preprocess_time,
                                 .seed = p->seed,
                                 .sleeps = p->preprocess_sleeps,
                                 .resize_bytes = (uint64_t)p->workload->dataset.record_length_bytes_resize,
                                 .stop = &p->board->stop};
}

bool mr_feed_work_takes_time(const struct mr_feed_work *w)
{
    return w->time.kind != MR_DIST_CONSTANT || w->time.a > 0;
}

int64_t mr_feed_work_do(void *work, uint64_t epoch, uint64_t id, void *row, size_t row_bytes, size_t bytes)
{
    const struct mr_feed_work *w = work;
    (void)row, (void)row_bytes;
    if (mr_feed_work_takes_time(w)) {
        double s = mr_bench_draw(&w->time, w->seed, MR_RNG_PREPROCESS, mr_mix64(epoch) + id);
        uint64_t ns = (uint64_t)(s * 1e9);
        if (w->sleeps) {
            mr_bench_compute(MR_COMPUTE_SLEEP, ns, w->stop);
        } else { /* by this thread's CPU time: a crowded machine takes longer, as it would for real work */
            uint64_t end = cpu_ns() + ns;
            while (cpu_ns() < end && !atomic_load_explicit(w->stop, memory_order_relaxed))
                ;
        }
    }
    return (int64_t)(w->resize_bytes ? MR_MIN(bytes, w->resize_bytes) : bytes);
}
