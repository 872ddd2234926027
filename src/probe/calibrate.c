/* Calibration: see calibrate.h. The list of probes is made first; the time of each follows from the budget. */
#include "probe/calibrate.h"
#include "base/clock.h"
#include "base/common.h"
#include "probe/object_probe.h"
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#define REPEATS 3
#define LEAST_PROBE_S 0.02
#define LEAST_FILE (16 * MR_MIB)
/* Blocks that caches do not hold. Also, memcpy of the C library takes stores that bypass the cache from some size on,
 * which is half as fast again; with blocks around that size figures jump. */
#define MOST_COPY (128 * MR_MIB)
#define LEAST_COPY (4 * MR_MIB)

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static struct mr_rate summary(double *v, unsigned n)
{
    qsort(v, n, sizeof(*v), by_value);
    return (struct mr_rate){
        .median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2, .low = v[0], .high = v[n - 1], .n = n};
}

/* ---- one folder ---- */

static bool same_kind(const struct mr_probe_spec *a, const struct mr_probe_spec *b)
{
    return a->write == b->write && a->random == b->random && a->direct == b->direct &&
           a->request_bytes == b->request_bytes;
}

static void add_point(struct mr_path_calibration *c, struct mr_probe_spec s)
{
    for (unsigned i = 0; i < c->n; i++)
        if (same_kind(&c->points[i].spec, &s) && c->points[i].spec.threads == s.threads)
            return;
    if (c->n < MR_CALIBRATE_POINTS_MAX)
        c->points[c->n++].spec = s;
}

static void add_threads(struct mr_path_calibration *c, const struct mr_calibrate_options *o, bool write, bool random,
                        bool direct, uint64_t request)
{
    for (unsigned t = 1; t <= o->max_threads; t *= 2)
        add_point(c, (struct mr_probe_spec){write, random, direct, t, request});
}

static const uint64_t sizes[] = {4 * MR_KIB, 64 * MR_KIB, MR_MIB, 4 * MR_MIB};

/* Random reads over all sizes, direct and through the page cache, since a run reads its samples in either way; the
 * other kinds at the chosen size. Without direct I/O everything is buffered. */
static void list_points(struct mr_path_calibration *c, const struct mr_calibrate_options *o)
{
    bool all = o->only == MR_CALIBRATE_ALL;
    if (all || o->only == MR_CALIBRATE_RANDOM_READ)
        add_threads(c, o, false, true, c->direct, o->request_bytes);
    for (unsigned i = 0; i < MR_ARRAY_LEN(sizes) && all; i++)
        add_threads(c, o, false, true, c->direct, sizes[i]);
    for (unsigned i = 0; i < MR_ARRAY_LEN(sizes) && all && c->direct; i++)
        add_threads(c, o, false, true, false, sizes[i]);
    if (all || o->only == MR_CALIBRATE_SEQUENTIAL_READ)
        add_threads(c, o, false, false, c->direct, o->request_bytes);
    if (all || o->only == MR_CALIBRATE_SEQUENTIAL_WRITE)
        add_threads(c, o, true, false, c->direct, o->request_bytes);
    if (all || o->only == MR_CALIBRATE_BUFFERED_READ)
        add_threads(c, o, false, false, false, o->request_bytes);
    if (all || o->only == MR_CALIBRATE_BUFFERED_WRITE)
        add_threads(c, o, true, false, false, o->request_bytes);
}

/* 10 % of what is free, less when asked for less; rounds down, never up. */
static int choose_size(const char *folder, const struct mr_calibrate_options *o, struct mr_path_calibration *c,
                       struct mr_error *err)
{
    struct statvfs v;
    if (statvfs(folder, &v))
        return mr_error_set(err, -errno, "cannot examine '%s'", folder);
    c->free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    c->file_bytes = MR_MIN(o->file_bytes, c->free_bytes / 10);
    if (c->file_bytes < LEAST_FILE) {
        mr_error_set(err, MR_E_CONFIG,
                     "no room to measure '%s': a test file of 16 MiB must be at most 10 %% of the free space (%.1f MB)",
                     folder, (double)c->free_bytes / 1e6);
        return mr_error_hint(err, "free some space, or give --file-size of at least 16MiB"), MR_E_CONFIG;
    }
    return 0;
}

static int probe_points(const struct mr_probe_file *f, const struct mr_calibrate_options *o, double seconds,
                        struct mr_path_calibration *c, struct mr_error *err)
{
    double values[MR_CALIBRATE_POINTS_MAX][REPEATS];
    uint64_t end = mr_now_ns() + (uint64_t)(seconds * 1e9);
    int rc = 0;
    /* All points once, then all again: a disturbance of a moment hits one repetition of a few points. A probe may
     * overrun (buffered writes have to reach the device), so the time that is left is divided again before each. */
    for (unsigned k = 0; k < REPEATS && !rc; k++)
        for (unsigned i = 0; i < c->n && !rc; i++) {
            if (o->stop && atomic_load(o->stop))
                return mr_error_set(err, MR_E_INTERRUPTED, "stopped");
            double left = end > mr_now_ns() ? (double)(end - mr_now_ns()) / 1e9 : 0;
            double each = fmax(LEAST_PROBE_S, left / (REPEATS * c->n - k * c->n - i));
            rc = mr_probe_run(f, &c->points[i].spec, each, k * 1000 + i, o->stop, &values[i][k], err);
        }
    for (unsigned i = 0; i < c->n && !rc; i++)
        c->points[i].bytes_per_s = summary(values[i], REPEATS);
    return rc;
}

static int probe_opens(const char *folder, const struct mr_calibrate_options *o, double seconds,
                       struct mr_path_calibration *c, struct mr_error *err)
{
    double opens[REPEATS], stats[REPEATS];
    c->meta_threads = MR_MIN(4u, o->max_threads);
    for (unsigned k = 0; k < REPEATS; k++) {
        int rc = mr_probe_opens(folder, c->meta_threads, seconds / REPEATS, o->stop, &opens[k], &stats[k], err);
        if (rc)
            return rc;
    }
    c->opens_per_s = summary(opens, REPEATS);
    c->stats_per_s = summary(stats, REPEATS);
    return 0;
}

int mr_calibrate_path(const char *folder, const struct mr_calibrate_options *o, struct mr_path_calibration *out,
                      struct mr_error *err)
{
    if (mr_store_is_url(folder))
        return mr_calibrate_objects(folder, o, out, err);
    uint64_t begin = mr_now_ns();
    struct mr_path_calibration *c = calloc(1, sizeof(*c));
    struct mr_probe_file f = {.fd = -1, .fd_direct = -1};
    int rc = c ? choose_size(folder, o, c, err) : mr_error_set(err, -ENOMEM, "calibrating");
    if (!rc) {
        snprintf(c->path, sizeof c->path, "%s", folder);
        rc = mr_probe_file_open(folder, c->file_bytes, 0.25 * o->budget_s, o->stop, &f, err);
    }
    if (!rc) {
        c->file_bytes = f.size;
        c->direct = f.fd_direct >= 0;
        c->in_memory = f.in_memory;
        list_points(c, o);
        if (o->only == MR_CALIBRATE_ALL)
            rc = probe_opens(folder, o, 0.05 * o->budget_s, c, err);
    }
    if (!rc)
        rc = probe_points(&f, o, fmax(0, 0.97 * o->budget_s - (double)(mr_now_ns() - begin) / 1e9), c, err);
    if (!rc && o->stop && atomic_load(o->stop))
        rc = mr_error_set(err, MR_E_INTERRUPTED, "stopped");
    mr_probe_file_close(&f);
    if (!rc)
        *out = *c;
    free(c);
    return rc;
}

/* ---- memory ---- */

static int probe_copies(const struct mr_probe_copy *copy, const struct mr_calibrate_options *o, double seconds,
                        struct mr_memory_calibration *m, struct mr_error *err)
{
    unsigned counts = 0;
    for (unsigned t = 1; t <= copy->threads; t *= 2)
        counts++;
    for (unsigned t = 1; t <= copy->threads; t *= 2) {
        double v[REPEATS];
        for (unsigned k = 0; k < REPEATS; k++) {
            int rc = mr_probe_copy_run(copy, t, seconds / counts / REPEATS, o->stop, &v[k], err);
            if (rc)
                return rc;
        }
        m->points[m->n].threads = t;
        m->points[m->n].block_bytes = copy->block_bytes;
        m->points[m->n++].bytes_per_s = summary(v, REPEATS);
    }
    return 0;
}

int mr_calibrate_memory(const struct mr_calibrate_options *o, struct mr_memory_calibration *out, struct mr_error *err)
{
    uint64_t begin = mr_now_ns();
    struct mr_memory_calibration m = {0};
    struct mr_probe_copy copy;
    unsigned threads = MR_MAX(1u, MR_MIN(o->max_threads, 1u << (MR_ARRAY_LEN(m.points) - 1)));
    uint64_t block = MR_MIN(MR_MAX(LEAST_COPY, o->copy_bytes / threads / 4096 * 4096), MOST_COPY);
    int rc = mr_probe_copy_open(threads, block, &copy, err);
    if (rc)
        return rc;
    double left = o->budget_s - (double)(mr_now_ns() - begin) / 1e9;
    rc = probe_copies(&copy, o, fmax(left, 0.2 * o->budget_s), &m, err);
    mr_probe_copy_close(&copy);
    if (!rc && o->stop && atomic_load(o->stop))
        rc = mr_error_set(err, MR_E_INTERRUPTED, "stopped");
    if (!rc)
        *out = m;
    return rc;
}

/* ---- results ---- */

void mr_calibration_curve(const struct mr_path_calibration *c, const struct mr_probe_spec *like, struct mr_curve *mbps)
{
    *mbps = (struct mr_curve){0};
    for (unsigned i = 0; i < c->n; i++) {
        if (same_kind(&c->points[i].spec, like))
            mr_curve_add(mbps, c->points[i].spec.threads, fmax(c->points[i].bytes_per_s.median, 1) / 1e6, NULL);
    }
}

/* The widest of them: half the distance from the least to the most of a probe, by its median. */
static double widest_spread(const struct mr_path_calibration *c, const struct mr_probe_spec *like)
{
    double spread = 0;
    for (unsigned i = 0; i < c->n; i++) {
        const struct mr_rate *r = &c->points[i].bytes_per_s;
        if (same_kind(&c->points[i].spec, like) && r->median > 0)
            spread = fmax(spread, (r->high - r->low) / r->median / 2);
    }
    return spread;
}

unsigned mr_curve_knee(const struct mr_curve *c)
{
    double best = 0;
    for (unsigned i = 0; i < c->n; i++)
        best = fmax(best, c->y[i]);
    for (unsigned i = 0; i < c->n; i++)
        if (c->y[i] >= 0.9 * best)
            return (unsigned)c->x[i];
    return 0;
}

static void memory_class(const struct mr_memory_calibration *m, const char *name, double bytes,
                         struct mr_storage_class *k)
{
    snprintf(k->name, sizeof k->name, "%s", name);
    k->capacity_mb = bytes / 1e6;
    for (unsigned i = 0; i < m->n; i++)
        mr_curve_add(&k->read_mbps, m->points[i].threads, fmax(m->points[i].bytes_per_s.median, 1) / 1e6, NULL);
    k->threads = MR_MAX(1u, mr_curve_knee(&k->read_mbps));
}

static void path_class(const struct mr_path_calibration *c, uint64_t request, unsigned number,
                       struct mr_storage_class *k)
{
    struct mr_probe_spec read = {.random = true, .direct = c->direct, .request_bytes = request};
    struct mr_probe_spec write = {.write = true, .direct = c->direct, .request_bytes = request};
    snprintf(k->name, sizeof k->name, "path%u", number);
    k->capacity_mb = (double)c->free_bytes / 2 / 1e6;
    mr_calibration_curve(c, &read, &k->read_mbps);
    mr_calibration_curve(c, &write, &k->write_mbps);
    k->threads = MR_MAX(1u, mr_curve_knee(&k->read_mbps));
}

/* A run later lies so many times the half range of REPEATS probes from their median, four times of five: Student's t
 * for two degrees of freedom, and the half range as an estimate of the deviation. */
#define NEXT_MEASUREMENT 2.57
#define MOST_SPREAD 3.0 /* more says no more */

/* The rate of one thread and the best of any number, with the wider of their spreads. */
static void kind_rates(const struct mr_path_calibration *c, const struct mr_probe_spec *kind, struct mr_kind_rates *out)
{
    *out = (struct mr_kind_rates){0};
    double best_spread = 0, one_spread = 0;
    for (unsigned i = 0; i < c->n; i++) {
        const struct mr_rate *r = &c->points[i].bytes_per_s;
        if (!same_kind(&c->points[i].spec, kind) || !(r->median > 0))
            continue;
        double mbps = r->median / 1e6, spread = NEXT_MEASUREMENT * (r->high - r->low) / r->median / 2;
        if (c->points[i].spec.threads == 1) {
            out->stream_mbps = mbps;
            one_spread = spread;
        }
        if (mbps > out->mbps) {
            out->mbps = mbps;
            best_spread = spread;
        }
    }
    out->spread = fmin(fmax(best_spread, one_spread), MOST_SPREAD);
}

static double between(double a, double b)
{
    return a > 0 && b > 0 ? sqrt(a * b) : fmax(a, b);
}

/* A sample of this size is read from its start to its end: the kernel reads ahead inside it, but not into the next one.
 * It gets more than a jump for each request and less than a stream through one large file; the middle is taken, and
 * both are within the spread. */
static void mix_stream(const struct mr_kind_rates *stream, struct mr_kind_rates *r)
{
    if (!(stream->mbps > 0) || !(r->mbps > 0))
        return;
    double apart = sqrt(fmax(stream->stream_mbps / r->stream_mbps, stream->mbps / r->mbps));
    r->mbps = between(r->mbps, stream->mbps);
    r->stream_mbps = between(r->stream_mbps, stream->stream_mbps);
    r->spread = fmin(fmax(fmax(r->spread, stream->spread), apart - 1), MOST_SPREAD);
}

/* What reads of each size get. Without direct reads there is one kind, whatever the run asks for. */
static void set_requests(const struct mr_path_calibration *c, uint64_t request, struct mr_system *out)
{
    struct mr_kind_rates stream;
    kind_rates(c, &(struct mr_probe_spec){.request_bytes = request}, &stream);
    for (unsigned i = 0; i < MR_ARRAY_LEN(sizes); i++) {
        struct mr_probe_spec kind = {.random = true, .direct = c->direct, .request_bytes = sizes[i]};
        struct mr_request_rates r = {.mb = (double)sizes[i] / 1e6};
        kind_rates(c, &kind, &r.direct);
        kind.direct = false;
        kind_rates(c, &kind, &r.buffered);
        if (sizes[i] >= MR_MIB)
            mix_stream(&stream, &r.buffered);
        if (r.direct.mbps > 0)
            out->requests[out->n_requests++] = r;
    }
}

void mr_calibration_system(const struct mr_path_calibration *paths, unsigned n_paths,
                           const struct mr_memory_calibration *memory, uint64_t request_bytes, uint64_t memory_bytes,
                           double network_mbps, struct mr_system *out)
{
    *out = (struct mr_system){
        .preprocess_mbps = 1e6, .network_mbps = network_mbps > 0 ? network_mbps : 1e6, .pfs_link_mbps = 1e6};
    struct mr_probe_spec read = {.random = true, .direct = paths[0].direct, .request_bytes = request_bytes};
    struct mr_curve by_threads, by_write;
    mr_calibration_curve(&paths[0], &read, &by_threads);
    double best = 1e-6, best_write = 0;
    for (unsigned i = 0; i < by_threads.n; i++)
        best = fmax(best, by_threads.y[i]);
    mr_curve_add(&out->pfs_mbps, 1, best, NULL);
    struct mr_probe_spec write = {.write = true, .direct = paths[0].direct, .request_bytes = request_bytes};
    mr_calibration_curve(&paths[0], &write, &by_write);
    for (unsigned i = 0; i < by_write.n; i++)
        best_write = fmax(best_write, by_write.y[i]);
    if (best_write > 0)
        mr_curve_add(&out->pfs_write_mbps, 1, best_write, NULL);
    out->pfs_stream_mbps = mr_curve_at(&by_threads, 1);
    set_requests(&paths[0], request_bytes, out);
    out->pfs_spread = widest_spread(&paths[0], &read);
    out->pfs_metadata_per_s = paths[0].opens_per_s.median;
    memory_class(memory, "staging", (double)MR_MIN(memory_bytes / 16, 4 * MR_GIB), &out->classes[out->n_classes++]);
    memory_class(memory, "ram", (double)memory_bytes / 2, &out->classes[out->n_classes++]);
    for (unsigned i = 1; i < n_paths && out->n_classes < MR_CLASS_MAX; i++)
        path_class(&paths[i], request_bytes, i, &out->classes[out->n_classes++]);
}
