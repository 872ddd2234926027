/* Sweeps and the search for the most accelerators; see job_search.h. A rank that was forked for a point returns from
 * mr_job_run as well: it sets is_left and unwinds without touching another point. */
#include "job/job_search.h"
#include "base/common.h"
#include "conf/sweep.h"
#include "job/job_internal.h"
#include "conf/job_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- one point ---- */

static void take_figures(const struct mr_job *j, struct mr_job_point *p)
{
    const struct mr_metrics *m = j->result.metrics;
    p->ranks = j->result.world;
    p->au = m->au;
    p->samples_per_s = m->samples_per_s;
    p->read_bytes_per_s = m->read_bytes_per_s;
    p->duration_s = m->duration_s;
    p->stall_p99_s = m->stall_s.p99;
    p->data_share = m->split.data;
    mr_job_limiter(j, p->limiter, sizeof p->limiter);
    p->verdict = mr_job_judge(j, p->because, sizeof p->because);
    p->steps = m->steps;
    p->samples = m->samples;
    p->sample_bytes = m->sample_bytes;
    p->read_bytes = m->read_bytes;
    p->measured = true;
}

/* Runs one job and keeps its figures; everything else of it is freed. */
static int measure(const struct mr_job_request *req, struct mr_job_search *s, struct mr_job_point *p,
                   struct mr_error *err)
{
    struct mr_arena arena = {0};
    struct mr_job *j = calloc(1, sizeof(*j));
    struct mr_job_request own = *req;
    own.arena = &arena;
    own.is_quiet = own.is_local = true;
    own.progress = NULL;
    int rc = 0;
    if (!j)
        rc = mr_error_set(err, -ENOMEM, "cannot start a run");
    else if (atomic_load(req->stop))
        rc = mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    if (!rc)
        rc = mr_job_resolve(&own, j, err);
    if (!rc)
        rc = mr_job_check(j, err);
    if (!rc)
        rc = mr_job_check_work(j, err);
    if (!rc)
        rc = mr_job_run(j, err);
    s->is_left = j && j->result.rank > 0;
    if (!rc && !s->is_left)
        take_figures(j, p);
    else if (rc && rc != MR_E_INTERRUPTED)
        mr_error_context(err, *p->value ? "at point '%s'" : "in one of the repeats", p->value);
    if (j)
        mr_job_done(j);
    free(j);
    mr_arena_done(&arena);
    return rc;
}

/* ---- sweep ---- */

/* The grid, and of each key the option of the job; NULL: a key of the workload. */
struct axes {
    struct mr_sweep grid;
    const struct mr_option *option[MR_SWEEP_AXES];
};

/* Appends to a name that cannot grow beyond its room. */
static void append(char *text, size_t cap, const char *between, const char *more)
{
    size_t n = strlen(text);
    for (const char *p = n ? between : ""; *p && n + 1 < cap; p++)
        text[n++] = *p;
    for (const char *p = more; *p && n + 1 < cap; p++)
        text[n++] = *p;
    text[n] = '\0';
}

/* One value on top of what the options and overrides say already. */
static int set_value(const struct axes *a, unsigned axis, const char *value, struct mr_arena *arena,
                     struct mr_job_options *opt, struct mr_strings *overrides, struct mr_error *err)
{
    if (a->option[axis])
        return mr_option_parse(&mr_job_options_table, a->option[axis], value, arena, opt, err);
    const char **item = mr_arena_alloc(arena, (overrides->n + 1) * sizeof(*item));
    char *word = mr_arena_printf(arena, "%s=%s", a->grid.axis[axis].key, value);
    if (!item || !word)
        return mr_error_set(err, -ENOMEM, "cannot start the sweep");
    for (unsigned i = 0; i < overrides->n; i++)
        item[i] = overrides->item[i];
    item[overrides->n] = word;
    *overrides = (struct mr_strings){.n = overrides->n + 1, .item = item};
    return 0;
}

/* The name and the folder of point `i` follow from its values. */
static void name_point(const struct mr_sweep *grid, size_t i, const char *out, struct mr_job_point *p)
{
    char folder[1024] = "";
    for (unsigned k = 0; k < grid->n_axes; k++) {
        const char *value = mr_sweep_value(grid, (unsigned)i, k);
        char part[256];
        append(p->value, sizeof p->value, " ", value);
        snprintf(part, sizeof part, "%.60s=%.100s", grid->axis[k].key, value);
        append(folder, sizeof folder, ",", part);
    }
    for (char *c = folder; *c; c++)
        *c = *c == '/' ? '_' : *c;
    snprintf(p->out, sizeof p->out, "%s%s%s", out, grid->n_axes ? "/" : "", folder);
}

/* Finds a value that no run takes before hours are spent on the other points. */
static int check_values(const struct mr_job *base, const struct axes *axes, struct mr_error *err)
{
    struct mr_arena scratch = {0};
    struct mr_job *ignored = calloc(1, sizeof(*ignored));
    int rc = ignored ? 0 : mr_error_set(err, -ENOMEM, "cannot check the sweep");
    for (unsigned k = 0; !rc && k < axes->grid.n_axes; k++)
        for (unsigned v = 0; !rc && v < axes->grid.axis[k].n; v++) {
            struct mr_job_options opt = base->opt;
            struct mr_job_request req = base->req;
            req.options = &opt;
            req.arena = &scratch;
            rc = set_value(axes, k, axes->grid.axis[k].value[v], &scratch, &opt, &req.overrides, err);
            if (!rc && !axes->option[k]) /* options are checked by their rows, and together with the other axes later */
                rc = mr_job_resolve(&req, ignored, err);
            if (rc)
                mr_error_context(err, "in the sweep, of which nothing was run");
        }
    free(ignored);
    mr_arena_done(&scratch);
    return rc;
}

/* Run `i` of all: rounds over all points, so that the repeats of one are spread over the whole time. */
static int run_point(const struct mr_job *base, const struct axes *axes, size_t i, struct mr_job_search *s,
                     struct mr_error *err)
{
    struct mr_job_point *p = s->runs ? &s->runs[i] : &s->points[i];
    struct mr_job_options opt = base->opt;
    struct mr_job_request req = base->req;
    int rc = 0;
    req.options = &opt;
    name_point(&axes->grid, i % s->n, s->out, p);
    for (unsigned k = 0; !rc && k < axes->grid.n_axes; k++)
        rc = set_value(axes, k, mr_sweep_value(&axes->grid, (unsigned)(i % s->n), k), base->arena, &opt, &req.overrides,
                       err);
    if (s->runs)
        append(p->out, sizeof p->out, "/", mr_arena_printf(base->arena, "repeat-%zu", i / s->n + 1));
    opt.out = p->out;
    opt.probe = opt.expect = false; /* the table shows what more threads bring; the whole is judged */
    return rc ? rc : measure(&req, s, p, err);
}

static int parse_axes(const struct mr_job *base, const struct mr_strings *texts, struct axes *axes,
                      struct mr_job_search *out, struct mr_error *err)
{
    struct mr_sweep *grid = &axes->grid;
    int rc = mr_sweep_parse(texts, base->arena, grid, err);
    if (!rc && (size_t)grid->n * out->repeat > MR_SWEEP_POINTS)
        rc = mr_error_plain(err, MR_E_USAGE, "a sweep of more than %u runs", MR_SWEEP_POINTS);
    for (unsigned k = 0; !rc && k < grid->n_axes; k++) {
        axes->option[k] = mr_option_find(&mr_job_options_table, grid->axis[k].key);
        append(out->keys, sizeof out->keys, " ", grid->axis[k].key);
    }
    if (!rc)
        rc = check_values(base, axes, err);
    out->n = rc ? 0 : grid->n;
    return rc;
}

/* Results that would be overwritten are found before the first run, too. */
static int check_folders(const struct mr_job *base, const struct mr_sweep *grid, const struct mr_job_search *s,
                         struct mr_error *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < s->n * s->repeat; i++) {
        struct mr_job_point p = {0};
        name_point(grid, i % s->n, s->out, &p);
        if (s->repeat > 1)
            append(p.out, sizeof p.out, "/", mr_arena_printf(base->arena, "repeat-%zu", i / s->n + 1));
        rc = mr_job_check_out(&base->opt, p.out, err);
    }
    return rc;
}

int mr_job_sweep(const struct mr_job *base, const struct mr_strings *texts, unsigned repeat, struct mr_job_search *out,
                 struct mr_error *err)
{
    struct axes axes;
    memset(out, 0, sizeof(*out));
    out->repeat = MR_MAX(repeat, 1u);
    int rc = parse_axes(base, texts, &axes, out, err);
    if (rc)
        return rc;
    size_t n = out->n, all = n * out->repeat;
    out->points = calloc(n, sizeof(*out->points));
    out->runs = repeat > 1 ? calloc(all, sizeof(*out->runs)) : NULL;
    out->repeats = repeat > 1 ? calloc(n, sizeof(*out->repeats)) : NULL;
    if (!out->points || (repeat > 1 && !(out->runs && out->repeats))) {
        out->n = 0;
        return mr_error_set(err, -ENOMEM, "cannot start the sweep");
    }
    mr_job_choose_out(base, out->out, sizeof out->out);
    rc = check_folders(base, &axes.grid, out, err);
    for (size_t i = 0; !rc && !out->is_left && i < all; i++)
        rc = run_point(base, &axes, i, out, err);
    for (size_t i = 0; out->runs && i < n; i++) {
        name_point(&axes.grid, i, out->out, &out->points[i]);
        mr_job_sum_repeats(&out->runs[i], out->repeat, n, &out->points[i], &out->repeats[i]);
    }
    return rc;
}

/* ---- the most accelerators ---- */

#define SEARCH_MAX 32u

/* 1: busy enough; 0: not; negative: the run failed, or this process has only been a rank of it. */
static int try_ranks(const struct mr_job *base, struct mr_job_search *s, uint64_t ranks, struct mr_error *err)
{
    if (s->n == SEARCH_MAX)
        return mr_error_plain(err, MR_E_INTERNAL, "the search does not end");
    struct mr_job_point *p = &s->points[s->n++];
    struct mr_job_options opt = base->opt;
    struct mr_job_request req = base->req;
    snprintf(p->value, sizeof p->value, "%llu", (unsigned long long)ranks);
    snprintf(p->out, sizeof p->out, "%s/ranks=%llu", s->out, (unsigned long long)ranks);
    opt.ranks = (int64_t)ranks;
    opt.probe = false;
    opt.out = p->out;
    req.options = &opt;
    int rc = measure(&req, s, p, err);
    return rc < 0 ? rc : p->au >= base->w->metric.au;
}

static int search(const struct mr_job *base, struct mr_job_search *s, struct mr_error *err)
{
    uint64_t good = 0, bad = s->limit + 1;
    for (uint64_t n = 1; n < bad; n = MR_MIN(n * 2, s->limit)) {
        int rc = try_ranks(base, s, n, err);
        if (rc < 0 || s->is_left)
            return MR_MIN(rc, 0);
        if (rc)
            s->best = good = n;
        else
            bad = n;
        if (n == s->limit)
            break;
    }
    while (bad - good > 1 && good > 0) {
        uint64_t n = good + (bad - good) / 2;
        if (n > s->limit)
            break;
        int rc = try_ranks(base, s, n, err);
        if (rc < 0 || s->is_left)
            return MR_MIN(rc, 0);
        *(rc ? &good : &bad) = n;
        s->best = good;
    }
    return 0;
}

/* No more ranks than there are full batches for. */
static uint64_t rank_limit(const struct mr_job *base, uint64_t max_ranks)
{
    const struct mr_conf_dataset *d = &base->w->dataset;
    uint64_t samples = (uint64_t)d->num_files_train * (uint64_t)d->num_samples_per_file;
    uint64_t steps_wanted = 3; /* fewer have no utilisation to speak of */
    uint64_t most = samples / (uint64_t)base->w->reader.batch_size / steps_wanted;
    return MR_MAX(1u, MR_MIN(max_ranks, most));
}

static int by_ranks(const void *a, const void *b)
{
    const struct mr_job_point *x = a, *y = b;
    return (x->ranks > y->ranks) - (x->ranks < y->ranks);
}

int mr_job_find_max(struct mr_job *base, uint64_t max_ranks, struct mr_job_search *out, struct mr_error *err)
{
    memset(out, 0, sizeof(*out));
    snprintf(out->keys, sizeof out->keys, "accelerators");
    out->points = calloc(SEARCH_MAX, sizeof(*out->points));
    if (!out->points)
        return mr_error_set(err, -ENOMEM, "cannot start the search");
    mr_job_choose_out(base, out->out, sizeof out->out);
    int rc = mr_job_prepare_data(base, err);
    out->limit = rank_limit(base, max_ranks);
    if (!rc)
        rc = search(base, out, err);
    qsort(out->points, out->n, sizeof(*out->points), by_ranks);
    return rc;
}

void mr_job_search_done(struct mr_job_search *s)
{
    free(s->points);
    free(s->runs);
    free(s->repeats);
    memset(s, 0, sizeof(*s));
}
