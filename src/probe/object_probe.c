/* Calibration of object storage: see object_probe.h. Every figure is the median of up to REPEATS probes. A probe keeps its
 * requests in flight through a queue of the store; a first round is not counted, so that connections are there. */
#include "probe/object_probe.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/rng.h"
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPEATS 3
#define LEAST_PROBE_S 0.02
#define MOST_AT_ONCE 64u
#define TEST_BYTES (64 * MR_MIB)
#define LEAST_BYTES (4 * MR_MIB)
#define LOOK_AT 32u /* existing objects */

struct object_probe {
    struct mr_store *store;
    struct mr_object *object;
    char path[1280];
    uint64_t bytes; /* of the object */
    char *slab;
    const struct mr_calibrate_options *o;
    bool writes; /* the object is ours */
};

static bool is_stopped(const struct object_probe *p)
{
    return p->o->stop && atomic_load(p->o->stop);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static struct mr_rate summary(double v[REPEATS], unsigned n)
{
    qsort(v, n, sizeof(*v), by_value);
    return (struct mr_rate){.median = (v[(n - 1) / 2] + v[n / 2]) / 2, .low = v[0], .high = v[n - 1], .n = n};
}

/* ---- the object ---- */

struct largest {
    struct object_probe *p;
    const char *folder;
    unsigned seen;
};

static int look_at(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct largest *l = user;
    struct mr_store_stat st;
    char path[sizeof l->p->path];
    (void)err;
    int n = snprintf(path, sizeof path, "%s/%s", l->folder, name);
    if (is_dir || n < 0 || (size_t)n >= sizeof path || mr_store_stat(l->p->store, path, &st, NULL))
        return 0;
    if (st.bytes > l->p->bytes) {
        l->p->bytes = st.bytes;
        memcpy(l->p->path, path, sizeof path);
    }
    return ++l->seen == LOOK_AT;
}

/* Writes one; else takes one that is there. */
static int get_object(struct object_probe *p, const char *folder, struct mr_error *err)
{
    struct mr_error why;
    uint64_t bytes = MR_MIN(p->o->file_bytes, TEST_BYTES);
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) { /* nothing to compress */
        uint64_t word = mr_mix64(i);
        memcpy(p->slab + i, &word, 8);
    }
    snprintf(p->path, sizeof p->path, "%s/.millrace-calibrate-%ld", folder, (long)getpid());
    int rc = mr_store_write_file(p->store, p->path, p->slab, bytes, &why);
    p->writes = !rc;
    p->bytes = rc ? 0 : bytes;
    if (rc == -EACCES || rc == -EROFS) {
        struct largest l = {.p = p, .folder = folder};
        mr_log(MR_LOG_NOTE, "may not write below '%s': reads an object that is there", folder);
        p->store->ops->list(p->store, folder, look_at, &l, NULL);
        if (p->bytes < LEAST_BYTES)
            return mr_error_plain(err, rc, "no object may be written below '%s', and none of 4 MiB or more is there",
                                  folder);
        rc = 0;
    }
    if (rc && err)
        *err = why;
    return rc ? rc : mr_object_open(p->store, p->path, MR_OBJ_READ, &p->object, err);
}

/* ---- probes ---- */

struct flights {
    struct mr_io io[MOST_AT_ONCE];
    struct mr_ioq *queue;
    uint64_t bytes, done;
};

static int send_one(struct object_probe *p, struct flights *f, struct mr_io *io, uint64_t *seed, struct mr_error *err)
{
    uint64_t places = MR_MAX(p->bytes / f->bytes, 1u);
    size_t slot = (size_t)(io - f->io);
    *io = (struct mr_io){.op = MR_IO_READ,
                         .object = p->object,
                         .buf = p->slab + slot * (4 * MR_MIB),
                         .len = (size_t)MR_MIN(f->bytes, p->bytes),
                         .offset = mr_mix64(++*seed) % places * f->bytes};
    return p->store->ops->ioq_submit(f->queue, &io, 1, err);
}

/* Requests per second with `at_once` of them in flight. */
static int read_rate(struct object_probe *p, unsigned at_once, uint64_t bytes, double seconds, uint64_t seed,
                     double *out, struct mr_error *err)
{
    struct flights *f = calloc(1, sizeof(*f));
    struct mr_io *done[MOST_AT_ONCE];
    uint64_t from = 0, last = 0, end = UINT64_MAX, finished = 0;
    unsigned flying = 0;
    int rc = f ? p->store->ops->ioq_create(p->store, at_once, &f->queue, err) : mr_error_set(err, -ENOMEM, "probing");
    if (!rc)
        f->bytes = bytes;
    for (; !rc && flying < at_once; flying++)
        rc = send_one(p, f, &f->io[flying], &seed, err);
    while (!rc && flying) {
        int n = p->store->ops->ioq_reap(f->queue, 1, at_once, done, err);
        last = mr_now_ns();
        rc = n < 0 ? n : 0;
        for (int i = 0; i < n && !rc; i++) {
            flying--;
            rc = mr_io_error(done[i], err);
            finished += from != 0;
            if (!rc && last < end && !is_stopped(p) && !(rc = send_one(p, f, done[i], &seed, err)))
                flying++;
            if (!from && ++f->done == at_once) { /* all connections are there */
                from = last;
                end = from + (uint64_t)(seconds * 1e9);
            }
        }
    }
    if (f && f->queue)
        p->store->ops->ioq_free(f->queue);
    free(f);
    if (!rc)
        *out = last > from && finished ? (double)finished / ((double)(last - from) / 1e9) : 1;
    return rc;
}

/* Objects of so many bytes, one after the other. */
static int write_rate(struct object_probe *p, uint64_t bytes, double seconds, double *out, struct mr_error *err)
{
    char path[sizeof p->path + 8];
    uint64_t from = mr_now_ns(), n = 0;
    int rc = 0;
    snprintf(path, sizeof path, "%s.write", p->path);
    do {
        rc = mr_store_write_file(p->store, path, p->slab, bytes, err);
        n++;
    } while (!rc && !is_stopped(p) && (double)(mr_now_ns() - from) / 1e9 < seconds);
    *out = (double)n / ((double)(mr_now_ns() - from) / 1e9);
    p->store->ops->unlink(p->store, path, NULL);
    return rc;
}

static int head_rate(struct object_probe *p, double seconds, double *out, struct mr_error *err)
{
    uint64_t from = mr_now_ns(), n = 0;
    struct mr_store_stat st;
    int rc = 0;
    do {
        rc = mr_store_stat(p->store, p->path, &st, err);
        n++;
    } while (!rc && !is_stopped(p) && (double)(mr_now_ns() - from) / 1e9 < seconds);
    *out = (double)n / ((double)(mr_now_ns() - from) / 1e9);
    return rc;
}

/* ---- all of them ---- */

static void add_points(struct mr_path_calibration *c, bool write, unsigned most, uint64_t bytes)
{
    for (unsigned i = 0; i < c->n; i++)
        if (c->points[i].spec.write == write && c->points[i].spec.request_bytes == bytes)
            return;
    for (unsigned t = 1; t <= most && c->n < MR_CALIBRATE_POINTS_MAX; t *= 2)
        c->points[c->n++].spec = (struct mr_probe_spec){
            .write = write, .random = !write, .direct = true, .threads = t, .request_bytes = bytes};
}

/* All points once, then all again while there is time: far away, connections alone take longer than a probe. */
static int probe_points(struct object_probe *p, struct mr_path_calibration *c, double seconds, struct mr_error *err)
{
    double v[MR_CALIBRATE_POINTS_MAX + 2][REPEATS] = {0};
    double each = fmax(LEAST_PROBE_S, seconds / (REPEATS * (c->n + 2)));
    uint64_t end = mr_now_ns() + (uint64_t)(seconds * 1e9);
    unsigned rounds = 0;
    int rc = 0;
    for (unsigned k = 0; k < REPEATS && !rc && (!k || mr_now_ns() < end); k++, rounds++) {
        for (unsigned i = 0; i < c->n && !rc; i++) {
            const struct mr_probe_spec *s = &c->points[i].spec;
            if (is_stopped(p))
                return mr_error_set(err, MR_E_INTERRUPTED, "stopped");
            rc = s->write ? write_rate(p, s->request_bytes, each, &v[i][k], err)
                          : read_rate(p, s->threads, s->request_bytes, each, k * 1000 + i, &v[i][k], err);
            v[i][k] *= (double)s->request_bytes;
        }
        if (!rc && c->meta_threads)
            rc = read_rate(p, c->meta_threads, 1, each, k, &v[c->n][k], err);
        if (!rc && c->meta_threads)
            rc = head_rate(p, each, &v[c->n + 1][k], err);
    }
    for (unsigned i = 0; i < c->n && !rc; i++)
        c->points[i].bytes_per_s = summary(v[i], rounds);
    if (!rc && c->meta_threads) {
        c->opens_per_s = summary(v[c->n], rounds);
        c->stats_per_s = summary(v[c->n + 1], rounds);
    }
    return rc;
}

static void list_points(struct mr_path_calibration *c, const struct mr_calibrate_options *o, bool writes)
{
    static const uint64_t sizes[] = {64 * MR_KIB, MR_MIB, 4 * MR_MIB};
    bool all = o->only == MR_CALIBRATE_ALL;
    unsigned most = MR_MIN(8 * o->max_threads, MOST_AT_ONCE);
    if (all || o->only == MR_CALIBRATE_RANDOM_READ)
        add_points(c, false, most, o->request_bytes);
    for (unsigned i = 0; i < MR_ARRAY_LEN(sizes) && all; i++)
        add_points(c, false, most, sizes[i]);
    if (writes && (all || o->only == MR_CALIBRATE_SEQUENTIAL_WRITE))
        add_points(c, true, 1, o->request_bytes);
    c->meta_threads = all ? most : 0;
}

static int measure(struct object_probe *p, const char *folder, struct mr_path_calibration *c, struct mr_error *err)
{
    char spec[64];
    uint64_t begin = mr_now_ns();
    snprintf(spec, sizeof spec, "s3(connections=%u)", MOST_AT_ONCE);
    if (!(p->slab = malloc(MOST_AT_ONCE * (4 * MR_MIB))))
        return mr_error_set(err, -ENOMEM, "calibrating");
    int rc = mr_store_open(spec, &p->store, err);
    rc = rc ? rc : get_object(p, folder, err);
    if (rc)
        return rc;
    snprintf(c->path, sizeof c->path, "%.250s", folder);
    c->direct = true;
    c->file_bytes = p->bytes;
    list_points(c, p->o, p->writes);
    if (!c->n) {
        mr_error_plain(err, MR_E_USAGE, "object storage has no page cache, and no order of reads");
        return mr_error_hint(err, "--only random-read or sequential-write, or everything"), MR_E_USAGE;
    }
    double left = 0.9 * p->o->budget_s - (double)(mr_now_ns() - begin) / 1e9;
    return probe_points(p, c, fmax(left, 0), err);
}

int mr_calibrate_objects(const char *url, const struct mr_calibrate_options *o, struct mr_path_calibration *out,
                         struct mr_error *err)
{
    struct object_probe p = {.o = o};
    struct mr_path_calibration *c = calloc(1, sizeof(*c));
    char folder[1024];
    int n = snprintf(folder, sizeof folder, "%s", url);
    while (n > 5 && (size_t)n < sizeof folder && folder[n - 1] == '/')
        folder[--n] = '\0';
    int rc = c ? measure(&p, folder, c, err) : mr_error_set(err, -ENOMEM, "calibrating");
    mr_object_close(p.object, NULL);
    if (p.writes)
        p.store->ops->unlink(p.store, p.path, NULL);
    if (p.store)
        mr_store_close(p.store);
    free(p.slab);
    if (!rc)
        *out = *c;
    free(c);
    return rc;
}
