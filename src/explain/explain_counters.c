/* A log of counters (Darshan) as far as an explanation can hold it: sums, files, what a process spent in calls on the
 * average. There are no times: no steps, no stall, no pictures; what cannot be known stays unknown. */
#include "base/common.h"
#include "import/counters.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILES_MOST 200u

static double known(double x)
{
    return isnan(x) ? 0 : x;
}

static uint64_t count(double x)
{
    return x > 0 && x < 1.8e19 ? (uint64_t)x : 0;
}

/* Seconds of all processes together as those of a mean one. */
static uint64_t mean_ns(const struct mr_counters *c, double s)
{
    return count(s / fmax(known(c->nprocs), 1) * 1e9);
}

static int by_bytes(const void *a, const void *b)
{
    const struct mr_counter_file *x = *(struct mr_counter_file *const *)a, *y = *(struct mr_counter_file *const *)b;
    double l = x->read_bytes + x->written_bytes, r = y->read_bytes + y->written_bytes;
    return l != r ? (l < r) - (l > r) : strcmp(x->path, y->path);
}

static int take_files(struct mr_explanation *x, const struct mr_counter_log *l)
{
    const struct mr_counter_file **order = malloc((l->files + 1) * sizeof(*order));
    size_t n = MR_MIN(l->files, (uint64_t)FILES_MOST);
    x->file = mr_arena_alloc(&x->arena, (n + 1) * sizeof(*x->file));
    if (!order || !x->file) {
        free(order);
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < l->files; i++)
        order[i] = &l->file[i];
    qsort(order, l->files, sizeof(*order), by_bytes);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const struct mr_counter_file *f = order[i];
        x->file[i] =
            (struct mr_explain_file){.path = mr_explain_clean_name(&x->arena, f->path, strlen(f->path)),
                                     .fs = f->fs ? mr_explain_clean_name(&x->arena, f->fs, strlen(f->fs)) : NULL,
                                     .read_bytes = count(f->read_bytes),
                                     .written_bytes = count(f->written_bytes),
                                     .reads = count(f->reads),
                                     .writes = count(f->writes),
                                     .opens = count(f->opens),
                                     .calls = count(f->reads + f->writes + f->opens),
                                     .dur_ns = count(f->time_s * 1e9),
                                     .size = count(f->max_byte_read + 1),
                                     .unique_bytes = MR_TIME_UNKNOWN,
                                     .ranks = f->ranks};
        rc = x->file[i].path ? 0 : -ENOMEM;
    }
    free(order);
    x->files = n;
    x->all_files = l->files;
    return rc;
}

/* All processes as one rank without a number: the log does not tell them apart. */
static int take_rank(struct mr_explanation *x, const struct mr_counters *c)
{
    const double *v = c->value;
    double data = known(v[MR_POSIX_F_READ_TIME]) + known(v[MR_POSIX_F_WRITE_TIME]) + known(v[MR_STDIO_F_READ_TIME]) +
                  known(v[MR_STDIO_F_WRITE_TIME]);
    double meta = known(v[MR_POSIX_F_META_TIME]) + known(v[MR_STDIO_F_META_TIME]);
    struct mr_explain_rank *r = x->rank = mr_arena_alloc(&x->arena, sizeof(*r));
    if (!r)
        return -ENOMEM;
    x->ranks = 1;
    *r = (struct mr_explain_rank){.rank = -1, .host = "", .end_ns = x->duration_ns, .ended = true};
    r->ns[MR_TIME_OTHER] = x->duration_ns;
    r->read_bytes = count(known(v[MR_POSIX_BYTES_READ]) + known(v[MR_STDIO_BYTES_READ]));
    r->written_bytes = count(known(v[MR_POSIX_BYTES_WRITTEN]) + known(v[MR_STDIO_BYTES_WRITTEN]));
    r->read_calls = count(known(v[MR_POSIX_READS]) + known(v[MR_STDIO_READS]));
    r->write_calls = count(known(v[MR_POSIX_WRITES]) + known(v[MR_STDIO_WRITES]));
    r->metadata_calls = count(known(v[MR_POSIX_OPENS]) + known(v[MR_POSIX_STATS]) + known(v[MR_STDIO_OPENS]));
    r->io_sum_ns = count((data + meta) * 1e9);
    r->io_ns = r->io_in_compute_ns = MR_TIME_UNKNOWN;
    r->accelerator_idle_ns = MR_TIME_UNKNOWN;
    for (unsigned w = 0; w < MR_WAIT_CLASS_COUNT; w++)
        r->wait[w] = MR_TIME_UNKNOWN;
    r->wait[MR_WAIT_STORAGE] = mean_ns(c, data);
    r->wait[MR_WAIT_METADATA] = mean_ns(c, meta);
    memcpy(x->wait, r->wait, sizeof(x->wait));
    memcpy(x->ns, r->ns, sizeof(x->ns));
    return 0;
}

int mr_explain_counters(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    const struct mr_counter_log *l = j->t->counters;
    if (!l)
        return 0;
    struct mr_counters *c = mr_arena_alloc(&x->arena, sizeof(*c));
    if (!c)
        return -ENOMEM;
    *c = l->total;
    x->counters = c;
    if (j->t->events) /* DXT has the calls themselves */
        return 0;
    struct mr_explain_facts *f = &x->facts;
    f->counters_only = true;
    f->ranks = c->nprocs;
    f->nodes = NAN;
    f->files = c->files;
    f->read_bytes = known(c->value[MR_POSIX_BYTES_READ]) + known(c->value[MR_STDIO_BYTES_READ]);
    f->written_bytes = known(c->value[MR_POSIX_BYTES_WRITTEN]) + known(c->value[MR_STDIO_BYTES_WRITTEN]);
    f->reread_ratio = c->unique_read_bytes > 0 ? f->read_bytes / c->unique_read_bytes : NAN;
    f->wall_bytes_per_s = c->run_s > 0 ? f->read_bytes / c->run_s : NAN;
    f->stripe_count = c->stripe_count;
    f->stripe_bytes = c->stripe_size;
    f->program = l->program ? mr_explain_clean_name(&x->arena, l->program, strlen(l->program)) : NULL;
    x->duration_ns = MR_MAX(x->duration_ns, count(known(c->run_s) * 1e9));
    int rc = take_rank(x, c);
    rc = rc || !c->per_file ? rc : take_files(x, l);
    f->device = !rc && x->files ? x->file[0].fs : NULL;
    return rc;
}
