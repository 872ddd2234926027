/* Repeated runs: a sweep over the values of keys, and the search for the largest number of accelerators that stay
 * busy. Every point is a run of its own, by another process of this program with the same words, so a point is exactly
 * what the user would get by hand; its results lie in a folder of their own. */
#include "base/common.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/run_internal.h"
#include "cli/workload_args.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct point {
    char value[128], out[4096];
    double ranks, au, samples_per_s, read_bytes_per_s, stall_p99_s, data_share, duration_s;
    bool complete, measured;
    char limiter[192];
};

/* ---- words of a point ---- */

/* Options that belong to the search, not to its points: with a value or without. */
static bool is_own_word(const char *word, bool drop_ranks, bool *takes_value)
{
    static const struct {
        const char *name;
        bool value, ranks;
    } own[] = {{"--sweep", true, false},     {"--find-max-accelerators", false, false},
               {"--max-ranks", true, false}, {"--out", true, false},
               {"-o", true, false},          {"--json", false, false},
               {"-j", false, false},         {"--ranks", true, true}};
    for (size_t i = 0; i < MR_ARRAY_LEN(own); i++) {
        size_t n = strlen(own[i].name);
        if (strncmp(word, own[i].name, n) != 0 || (own[i].ranks && !drop_ranks))
            continue;
        if (word[n] == '\0' || word[n] == '=') {
            *takes_value = own[i].value && word[n] == '\0';
            return true;
        }
    }
    return false;
}

static char **point_words(const struct run *r, const struct point *p, const char *const *extra, size_t n_extra,
                          bool drop_ranks)
{
    const struct mr_command_ctx *ctx = r->ctx;
    char **words = mr_arena_alloc(ctx->arena, ((size_t)ctx->argc + n_extra + 8) * sizeof(*words));
    size_t n = 0;
    if (!words)
        return NULL;
    words[n++] = (char *)(uintptr_t) "-q";
    words[n++] = (char *)(uintptr_t) "run";
    for (int i = 0; i < ctx->argc; i++) {
        bool takes_value;
        if (is_own_word(ctx->argv[i], drop_ranks, &takes_value))
            i += takes_value;
        else
            words[n++] = ctx->argv[i];
    }
    for (size_t i = 0; i < n_extra; i++)
        words[n++] = mr_arena_strdup(ctx->arena, extra[i]);
    words[n++] = (char *)(uintptr_t) "--out";
    words[n++] = mr_arena_strdup(ctx->arena, p->out);
    words[n] = NULL;
    return words;
}

/* ---- one point ---- */

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static int read_point(struct point *p, struct mr_error *err)
{
    char path[4200];
    json_error_t why;
    snprintf(path, sizeof path, "%s/summary.json", p->out);
    json_t *root = json_load_file(path, 0, &why);
    if (!root)
        return mr_error_plain(err, MR_E_INCOMPLETE, "point '%s' left no result: %s", p->value, why.text);
    const json_t *m = json_object_get(root, "millrace");
    p->ranks = number(m, "ranks");
    p->au = number(m, "au");
    p->samples_per_s = number(m, "samples_per_s");
    p->read_bytes_per_s = number(m, "read_bytes_per_s");
    p->duration_s = number(m, "duration_s");
    p->stall_p99_s = number(json_object_get(m, "stall_per_step_s"), "p99");
    p->data_share = number(json_object_get(m, "time_split"), "data_stall");
    p->complete = json_is_true(json_object_get(root, "complete"));
    const char *limiter = json_string_value(json_object_get(m, "limiter"));
    snprintf(p->limiter, sizeof p->limiter, "%s", limiter ? limiter : "");
    p->measured = true;
    json_decref(root);
    return 0;
}

static int measure(struct run *r, struct point *p, const char *const *extra, size_t n_extra, bool drop_ranks,
                   struct mr_error *err)
{
    char **words = point_words(r, p, extra, n_extra, drop_ranks);
    if (!words)
        return mr_error_set(err, -ENOMEM, "cannot start a run");
    int status = mr_run_self(words, -1, r->ctx->stop, err);
    if (status < 0)
        return status;
    if (atomic_load(r->ctx->stop))
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    if (status) {
        int rc = mr_error_plain(err, status == 2 ? MR_E_USAGE : -EIO, "the run with %s%s ended with exit status %d",
                                extra[0], n_extra > 1 ? " ..." : "", status);
        return mr_error_context(err, "at point '%s'", p->value), rc;
    }
    return read_point(p, err);
}

/* ---- output ---- */

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *points_json(const struct point *p, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        if (p[i].measured)
            json_array_append_new(
                list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:s, s:s}", "value", p[i].value, "ranks",
                                real(p[i].ranks), "au", real(p[i].au), "samples_per_s", real(p[i].samples_per_s),
                                "read_bytes_per_s", real(p[i].read_bytes_per_s), "stall_p99_s", real(p[i].stall_p99_s),
                                "data_stall_share", real(p[i].data_share), "duration_s", real(p[i].duration_s),
                                "complete", p[i].complete, "limiter", p[i].limiter, "results_folder", p[i].out));
    return list;
}

static void print_points(const char *key, const struct point *p, size_t n, double target)
{
    char rate[MR_HUMAN_LEN], stall[MR_HUMAN_LEN];
    int width = (int)MR_MAX(strlen(key), 20u);
    for (size_t i = 0; i < n; i++)
        width = MR_MAX(width, (int)strlen(p[i].value));
    printf("%-*s %6s %8s %7s %12s %12s %10s %8s\n", width, key, "RANKS", "AU %", "TARGET", "SAMPLES/s", "READ",
           "STALL p99", "DATA %");
    for (size_t i = 0; i < n; i++)
        if (p[i].measured)
            printf("%-*s %6.0f %8.2f %7s %12.1f %12s %10s %8.2f\n", width, p[i].value, p[i].ranks, 100 * p[i].au,
                   p[i].au >= target ? "pass" : "fail", p[i].samples_per_s, mr_human_rate(p[i].read_bytes_per_s, rate),
                   mr_human_ns(p[i].stall_p99_s * 1e9, stall), 100 * p[i].data_share);
}

/* ---- sweep ---- */

#define AXES_MAX 8u
#define POINTS_MAX 10000u
#define VALUE_MAX 300u

struct axis {
    char key[128];
    bool is_flag;       /* an option of this command, not a key of the workload */
    const char **value; /* in the arena */
    size_t n;
};

/* Length of the value at the start of `text`: up to the next comma outside brackets. */
static size_t value_length(const char *text)
{
    size_t n = 0;
    for (int depth = 0; text[n] && (text[n] != ',' || depth > 0); n++)
        depth += text[n] == '[' || text[n] == '{' ? 1 : text[n] == ']' || text[n] == '}' ? -1 : 0;
    return n;
}

static int parse_axis(const struct run *r, const char *text, struct axis *out, struct mr_error *err)
{
    if (strncmp(text, "--", 2) == 0) /* as the option is given alone */
        text += 2;
    const char *equals = strchr(text, '=');
    struct axis a = {0};
    if (!equals || equals == text || !equals[1])
        return mr_error_plain(err, MR_E_USAGE, "bad sweep '%s': want KEY=VALUE,VALUE,...", text);
    snprintf(a.key, sizeof a.key, "%.*s", (int)MR_MIN((size_t)(equals - text), sizeof a.key - 1), text);
    a.is_flag = mr_option_find(&mr_cmd_run.table, a.key) != NULL;
    a.value = mr_arena_alloc(r->ctx->arena, (strlen(equals) + 1) * sizeof(*a.value));
    for (const char *at = equals + 1; a.value && *at;) {
        size_t len = value_length(at);
        if (len > VALUE_MAX)
            return mr_error_plain(err, MR_E_USAGE, "bad sweep '%s': a value is longer than %u characters", a.key,
                                  VALUE_MAX);
        if (!(a.value[a.n++] = mr_arena_printf(r->ctx->arena, "%.*s", (int)len, at)))
            return mr_error_set(err, -ENOMEM, "cannot start the sweep");
        at += len + (at[len] == ',');
    }
    *out = a;
    return a.value ? 0 : mr_error_set(err, -ENOMEM, "cannot start the sweep");
}

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

/* The words of point `i`, where the last axis moves fastest; its name and its folder follow from them. */
static void name_point(const struct axis *axes, size_t n_axes, size_t i, const char *out, struct point *p,
                       char words[][512])
{
    const char *value[AXES_MAX];
    for (size_t k = n_axes; k-- > 0; i /= axes[k].n)
        value[k] = axes[k].value[i % axes[k].n];
    char folder[1024] = "";
    for (size_t k = 0; k < n_axes; k++) {
        char part[256];
        append(p->value, sizeof p->value, " ", value[k]);
        snprintf(part, sizeof part, "%.60s=%.100s", axes[k].key, value[k]);
        append(folder, sizeof folder, ",", part);
        snprintf(words[k], 512, "%s%.127s=%.300s", axes[k].is_flag ? "--" : "", axes[k].key, value[k]);
        for (char *c = words[k]; axes[k].is_flag && *c != '='; c++)
            *c = *c == '_' ? '-' : *c;
    }
    for (char *c = folder; *c; c++)
        *c = *c == '/' ? '_' : *c;
    snprintf(p->out, sizeof p->out, "%s/%s", out, folder);
}

static int check_key(const struct run *r, const char *key, const char *value, struct mr_error *err)
{
    const struct mr_command_ctx *ctx = r->ctx;
    struct mr_workload_request req = {.workload = r->opt->workload, .envp = environ, .lenient = r->opt->lenient};
    struct mr_workload *ignored;
    int rc = mr_run_add_override(ctx, key, value, &req.overrides, err);
    rc = rc ? rc : mr_cli_search_path(r->opt->config_dir, ctx->arena, &req.search_path, err);
    return rc ? rc : mr_workload_resolve(&req, ctx->arena, &ignored, err);
}

/* A value that no run takes is told before hours are spent on the others. */
static int check_values(const struct run *r, const struct axis *axes, size_t n_axes, struct mr_error *err)
{
    const struct mr_option_table *t = &mr_cmd_run.table;
    void *scratch = mr_arena_alloc(r->ctx->arena, t->struct_bytes + 1);
    int rc = scratch ? 0 : mr_error_set(err, -ENOMEM, "cannot check the sweep");
    for (size_t k = 0; !rc && k < n_axes; k++)
        for (size_t v = 0; !rc && v < axes[k].n; v++) {
            rc = axes[k].is_flag
                     ? mr_option_parse(t, mr_option_find(t, axes[k].key), axes[k].value[v], r->ctx->arena, scratch, err)
                     : check_key(r, axes[k].key, axes[k].value[v], err);
            if (rc)
                mr_error_context(err, "in the sweep, of which nothing was run");
        }
    return rc;
}

static int run_points(struct run *r, const struct axis *axes, size_t n_axes, const char *out, struct point *p, size_t n,
                      struct mr_error *err)
{
    char words[AXES_MAX][512];
    const char *extra[AXES_MAX];
    bool drop_ranks = false;
    int rc = 0;
    for (size_t k = 0; k < n_axes; k++) {
        drop_ranks |= !strcmp(axes[k].key, "ranks");
        extra[k] = words[k];
    }
    rc = check_values(r, axes, n_axes, err);
    for (size_t i = 0; !rc && i < n; i++) {
        name_point(axes, n_axes, i, out, &p[i], words);
        rc = measure(r, &p[i], extra, n_axes, drop_ranks, err);
    }
    return rc;
}

int mr_run_sweep(struct run *r, struct mr_error *err)
{
    struct axis axes[AXES_MAX];
    char keys[512] = "", out[2048];
    size_t n_axes = r->opt->sweep.n, n = 1;
    int rc = n_axes > AXES_MAX ? mr_error_plain(err, MR_E_USAGE, "at most %u keys can be swept", AXES_MAX) : 0;
    for (size_t k = 0; !rc && k < n_axes; k++) {
        rc = parse_axis(r, r->opt->sweep.item[k], &axes[k], err);
        append(keys, sizeof keys, " ", rc ? "" : axes[k].key);
        n = rc ? n : n * axes[k].n;
        if (!rc && n > POINTS_MAX)
            rc = mr_error_plain(err, MR_E_USAGE, "a sweep of more than %u runs", POINTS_MAX);
    }
    struct point *p = rc ? NULL : calloc(n, sizeof(*p));
    if (!rc && !p)
        rc = mr_error_set(err, -ENOMEM, "cannot start the sweep");
    if (rc)
        return rc;
    mr_run_choose_out(r, out, sizeof out);
    rc = run_points(r, axes, n_axes, out, p, n, err);
    if (r->opt->json && p[0].measured) {
        int printed =
            mr_cli_print_json(stdout,
                              json_pack("{s:s, s:b, s:s, s:f, s:o}", "schema", "millrace.sweep/1", "complete", !rc,
                                        "key", keys, "au_target", r->w->metric.au, "points", points_json(p, n)),
                              rc ? NULL : err);
        rc = rc ? rc : printed;
    } else if (p[0].measured) {
        print_points(keys, p, n, r->w->metric.au);
        printf("results in %s\n", out);
    }
    free(p);
    return rc;
}

/* ---- the most accelerators ---- */

#define SEARCH_MAX 32u

struct search {
    struct run *run;
    struct point *points;
    size_t n;
    char out[2048];
};

/* 1: busy enough; 0: not; negative: the run failed. */
static int try_ranks(struct search *s, uint64_t ranks, struct mr_error *err)
{
    char extra[64];
    if (s->n == SEARCH_MAX)
        return mr_error_plain(err, MR_E_INTERNAL, "the search does not end");
    struct point *p = &s->points[s->n++];
    snprintf(p->value, sizeof p->value, "%llu", (unsigned long long)ranks);
    snprintf(p->out, sizeof p->out, "%s/ranks=%llu", s->out, (unsigned long long)ranks);
    snprintf(extra, sizeof extra, "--ranks=%llu", (unsigned long long)ranks);
    const char *word = extra;
    int rc = measure(s->run, p, &word, 1, true, err);
    return rc < 0 ? rc : p->au >= s->run->w->metric.au;
}

/* Doubles until it fails, then halves the gap. *best is the largest that passed, 0 if none. */
static int search(struct search *s, uint64_t limit, uint64_t *best, struct mr_error *err)
{
    uint64_t good = 0, bad = limit + 1;
    for (uint64_t n = 1; n < bad; n = MR_MIN(n * 2, limit)) {
        int rc = try_ranks(s, n, err);
        if (rc < 0)
            return rc;
        if (rc)
            *best = good = n;
        else
            bad = n;
        if (n == limit)
            break;
    }
    while (bad - good > 1 && good > 0) {
        uint64_t n = good + (bad - good) / 2;
        if (n > limit)
            break;
        int rc = try_ranks(s, n, err);
        if (rc < 0)
            return rc;
        *(rc ? &good : &bad) = n;
        *best = good;
    }
    return 0;
}

/* No more ranks than there are full batches for. */
static uint64_t rank_limit(const struct run *r)
{
    uint64_t samples = (uint64_t)r->w->dataset.num_files_train * (uint64_t)r->w->dataset.num_samples_per_file;
    uint64_t steps_wanted = 3; /* fewer have no utilisation to speak of */
    uint64_t most = samples / (uint64_t)r->w->reader.batch_size / steps_wanted;
    return MR_MAX(1u, MR_MIN((uint64_t)r->opt->max_ranks, most));
}

static int by_ranks(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return (x->ranks > y->ranks) - (x->ranks < y->ranks);
}

static void print_search(const struct search *s, bool whole, uint64_t best, uint64_t limit)
{
    double target = 100 * s->run->w->metric.au;
    if (!whole)
        puts("INCOMPLETE: the search was not finished");
    if (best == 0)
        printf("not even one accelerator stays busy %.0f %% of the time; limited by %s\n", target,
               s->n ? s->points[0].limiter : "");
    else
        printf("%llu accelerator%s stay%s busy %.0f %% of the time%s\n", (unsigned long long)best, best == 1 ? "" : "s",
               best == 1 ? "s" : "", target,
               best == limit ? "; this is as far as was searched (--max-ranks, or the size of the data set)"
               : !whole      ? ", at least"
                             : "");
    print_points("accelerators", s->points, s->n, s->run->w->metric.au);
    printf("results in %s\n", s->out);
}

int mr_run_find_max(struct run *r, struct mr_error *err)
{
    struct search s = {.run = r, .points = calloc(SEARCH_MAX, sizeof(struct point))};
    uint64_t best = 0, limit;
    if (!s.points)
        return mr_error_set(err, -ENOMEM, "cannot start the search");
    mr_run_choose_out(r, s.out, sizeof s.out);
    int rc = mr_run_prepare_data(r, err);
    limit = rank_limit(r);
    if (!rc)
        rc = search(&s, limit, &best, err);
    bool any = s.n > 0 && s.points[0].measured; /* what was measured before a stop is told, too */
    qsort(s.points, s.n, sizeof(*s.points), by_ranks);
    if ((!rc || any) && r->opt->json) {
        int printed =
            mr_cli_print_json(stdout,
                              json_pack("{s:s, s:b, s:I, s:b, s:f, s:o}", "schema", "millrace.find_max/1", "complete",
                                        !rc, "max_accelerators", (json_int_t)best, "at_limit", best == limit,
                                        "au_target", r->w->metric.au, "points", points_json(s.points, s.n)),
                              rc ? NULL : err);
        rc = rc ? rc : printed;
    } else if (!rc || any) {
        print_search(&s, !rc, best, limit);
    }
    free(s.points);
    return rc;
}
