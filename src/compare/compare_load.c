/* The runs of a comparison: which a word names, and what is known about each. See compare.h.
 *
 * A results folder has summary.json (settings, machine, trust) and trace.mrt; a trace alone has neither settings nor a
 * machine. Figures come from the trace, by the same formulas as the summary's. */
#include "analyze/run_trace.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/regular_file.h"
#include "advise/explain_open.h"
#include "compare/compare.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_CAP 4300

/* ---- summary.json ---- */

/* "a" for "a", 3 for 3: as one would write it. */
static json_t *as_text(const json_t *v)
{
    if (json_is_string(v))
        return json_string(json_string_value(v));
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));
    json_t *out = text ? json_string(text) : NULL;
    free(text);
    return out;
}

/* Where results go and how much is printed are no settings of the run. */
static bool is_setting(const char *key)
{
    static const char *const not [] = {"out",        "overwrite",   "trace",         "workload",
                                       "config_dir", "expect",      "output.folder", "strict_trust",
                                       "lenient",    "stall_after", "rank_timeout"};
    for (size_t i = 0; i < MR_ARRAY_LEN(not ); i++)
        if (!strcmp(key, not [i]))
            return false;
    return true;
}

static void put_settings(json_t *into, const json_t *from)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)from, key, v)
    {
        const json_t *inner = json_is_object(v) ? json_object_get(v, "value") : v;
        if (is_setting(key))
            json_object_set_new(into, key, as_text(inner ? inner : v));
    }
}

static double number(const json_t *v)
{
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static int read_summary(const char *folder, struct mr_arena *a, struct mr_compare_run *r, struct mr_error *err)
{
    char path[PATH_CAP];
    json_error_t where;
    snprintf(path, sizeof path, "%s/summary.json", folder);
    if (access(path, F_OK) != 0)
        return 0;
    FILE *f = mr_fopen_regular(path);
    if (!f)
        return mr_error_set(err, -errno, "cannot read '%s'", path);
    json_t *root = json_loadf(f, 0, &where);
    fclose(f);
    if (!root)
        return mr_error_plain(err, MR_E_FORMAT, "cannot read '%s': %s, line %d", path, where.text, where.line);
    r->setting = json_object();
    r->machine = json_object();
    put_settings(r->setting, json_object_get(root, "config"));
    put_settings(r->setting, json_object_get(root, "options"));
    put_settings(r->machine, json_object_get(root, "environment"));
    r->incomplete = json_is_false(json_object_get(root, "complete"));
    const json_t *ours = json_object_get(root, "millrace"), *trust = json_object_get(root, "trust");
    r->au_target = number(json_object_get(ours, "au_target"));
    r->untrusted = json_is_false(json_object_get(trust, "trusted"));
    const char *name = json_string_value(json_object_get(ours, "workload"));
    r->name = name ? mr_arena_strdup(a, name) : NULL;
    const char *why = json_string_value(json_object_get(ours, "incomplete_reason"));
    const char *doubt = json_string_value(json_array_get(json_object_get(trust, "doubts"), 0));
    why = r->incomplete ? why : doubt;
    r->why = why ? mr_arena_strdup(a, why) : NULL;
    json_decref(root);
    return r->setting && r->machine ? 0 : mr_error_set(err, -ENOMEM, "cannot read '%s'", path);
}

/* ---- the explanation ---- */

static double share_of(double x, double all)
{
    return all > 0 ? x / all : NAN;
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* Mean over the ranks of the k-th training step of each. Steps are sorted by rank. */
static int take_steps(const struct mr_explanation *x, struct mr_compare_run *r)
{
    size_t most = 0, at = 0;
    for (size_t i = 0; i < x->steps; i++) {
        at = i && x->step[i].rank == x->step[i - 1].rank ? at + 1 : 1;
        most = MR_MAX(most, at);
    }
    uint32_t *count = calloc(most + 1, sizeof(*count));
    r->step = calloc(most + 1, sizeof(*r->step));
    if (!r->step || !count) {
        free(count);
        return -ENOMEM;
    }
    at = 0;
    for (size_t i = 0; i < x->steps; i++) {
        const struct mr_explain_step *s = &x->step[i];
        at = i && s->rank == x->step[i - 1].rank ? at : 0;
        if (s->phase != MR_EXPLAIN_TRAIN)
            continue;
        float *to = r->step[at].s;
        to[MR_PART_STEP] += (float)seconds(s->end_ns - s->start_ns);
        to[MR_PART_COMPUTE] += (float)seconds(s->ns[MR_TIME_COMPUTE]);
        to[MR_PART_STALL] += (float)seconds(s->ns[MR_TIME_STALL]);
        to[MR_PART_CHECKPOINT] += (float)seconds(s->ns[MR_TIME_CHECKPOINT]);
        to[MR_PART_BARRIER] += (float)seconds(s->ns[MR_TIME_BARRIER]);
        count[at++]++;
    }
    for (r->steps = 0; count[r->steps]; r->steps++)
        for (int p = 0; p < MR_PART_COUNT; p++)
            r->step[r->steps].s[p] /= (float)count[r->steps];
    free(count);
    return 0;
}

/* Work that the trace knows: steps and samples of our own runs; of others steps and bytes. */
static void take_work(const struct mr_explanation *x, struct mr_compare_run *r)
{
    struct mr_compare_work *w = &r->work;
    uint64_t steps = 0, samples = 0, read = 0;
    for (size_t i = 0; i < x->ranks; i++) {
        steps += x->rank[i].steps;
        samples += x->rank[i].samples;
        read += x->rank[i].read_bytes;
    }
    w->ranks = x->ranks;
    w->steps = x->facts.has_steps ? steps : MR_TIME_UNKNOWN;
    w->samples = samples ? samples : MR_TIME_UNKNOWN;
    w->sample_bytes = w->order = MR_TIME_UNKNOWN;
    w->read_bytes = read || !isfinite(x->facts.read_bytes) ? read : (uint64_t)x->facts.read_bytes;
}

static void take_figures(const struct mr_explanation *x, struct mr_compare_run *r)
{
    double train = (double)x->train_ns;
    const struct mr_explain_facts *f = &x->facts;
    r->simulated = f->simulated;
    r->value[MR_COMPARE_WALL] = seconds(x->duration_ns);
    r->value[MR_COMPARE_READ_BYTES] = (double)r->work.read_bytes;
    r->value[MR_COMPARE_READ_RATE] = share_of((double)r->work.read_bytes, r->value[MR_COMPARE_WALL]);
    if (!f->has_steps)
        return;
    r->value[MR_COMPARE_STALL] = share_of((double)x->ns[MR_TIME_STALL], train);
    r->value[MR_COMPARE_AU] = f->au;
    r->value[MR_COMPARE_CHECKPOINT] = share_of((double)x->ns[MR_TIME_CHECKPOINT], train);
    r->value[MR_COMPARE_BARRIER] = share_of((double)x->ns[MR_TIME_BARRIER], train);
    r->value[MR_COMPARE_SAMPLES_RATE] = f->samples_per_s;
    for (int c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        r->cause[c] = share_of((double)x->stall[c], train);
}

static uint64_t order_of(const struct mr_run_trace *t)
{
    uint64_t hash = 0, rows = 0;
    for (uint32_t k = 0; k < t->world; k++)
        for (size_t i = 0; i < t->rank[k].rows.n; i++, rows++) {
            const struct mr_run_row *x = &t->rank[k].rows.item[i]; /* a sum: rows of a batch come in any order */
            hash += mr_mix64(mr_mix64(mr_mix64(k + 1) ^ x->epoch * 0x9e3779b97f4a7c15ull ^ x->batch) + x->sample);
        }
    return rows ? hash : MR_TIME_UNKNOWN;
}

/* A figure of the ranks, or of the nodes, whose ranks follow each other and have all the same. */
static uint64_t sum_figure(const struct mr_run_trace *t, const char *name, bool of_node)
{
    uint64_t sum = 0;
    int64_t node = -1;
    for (uint32_t k = 0; k < t->world; k++) {
        const struct mr_run_figure *x = mr_run_rank_figure(&t->rank[k], name);
        const struct mr_run_figure *at = mr_run_rank_figure(&t->rank[k], "tier_node");
        if (!x || (of_node && at && at->value == node))
            continue;
        node = at ? at->value : -1;
        sum += (uint64_t)x->value;
    }
    return sum;
}

/* Bytes by source. Without tiers nothing comes from them; with tiers the nodes read the source, not the ranks' steps.
 */
static void take_sources(const struct mr_run_trace *t, struct mr_compare_run *r)
{
    bool ended = true;
    for (uint32_t k = 0; k < t->world; k++)
        ended &= t->rank[k].ended;
    if (!ended) /* a rank has no figures (C3) */
        return;
    r->value[MR_COMPARE_RAM_BYTES] = (double)sum_figure(t, "tier_ram_bytes", false);
    r->value[MR_COMPARE_SSD_BYTES] = (double)sum_figure(t, "tier_ssd_bytes", false);
    r->value[MR_COMPARE_PEER_BYTES] = (double)sum_figure(t, "tier_peer_bytes", false);
    if (!sum_figure(t, "tier_used", false))
        return;
    r->work.read_bytes = sum_figure(t, "node_source_bytes", true);
    r->value[MR_COMPARE_READ_BYTES] = (double)r->work.read_bytes;
    r->value[MR_COMPARE_READ_RATE] = share_of((double)r->work.read_bytes, r->value[MR_COMPARE_WALL]);
}

/* What only our own trainer tells: bytes for it, the order of the samples; and the duration without what comes before
 * and after training, as the summary has it. */
static int take_own(const struct mr_trace *t, struct mr_compare_run *r, struct mr_error *err)
{
    struct mr_run_trace *run;
    struct mr_error ignored;
    int rc = mr_run_trace_read(t, &run, &ignored);
    if (rc)
        return rc == MR_E_FORMAT ? 0 : mr_error_set(err, rc, "cannot read the run of '%s'", r->path);
    struct mr_rank_series *series = calloc(run->world + 1, sizeof(*series));
    struct mr_metrics *m = calloc(1, sizeof(*m));
    rc = series && m ? 0 : mr_error_set(err, -ENOMEM, "cannot hold the steps of '%s'", r->path);
    if (!rc) {
        mr_run_trace_series(run, series);
        mr_metrics_compute(series, run->world, &(struct mr_metrics_params){.seed = 1, .exclude_start = 1}, m);
        r->work.order = order_of(run);
        if (m->steps) {
            r->work =
                (struct mr_compare_work){run->world,      m->steps,      m->samples ? m->samples : MR_TIME_UNKNOWN,
                                         m->sample_bytes, m->read_bytes, r->work.order};
            r->value[MR_COMPARE_WALL] = m->duration_s;
            r->value[MR_COMPARE_READ_BYTES] = (double)m->read_bytes;
            r->value[MR_COMPARE_READ_RATE] = m->read_bytes_per_s;
            take_sources(run, r);
        }
    }
    free(m);
    free(series);
    mr_run_trace_free(run);
    return rc;
}

static void take_verdict(const struct mr_explanation *x, struct mr_arena *a, struct mr_compare_run *r)
{
    const char *name = x->facts.workload ? x->facts.workload : x->facts.program;
    r->name = name && !r->name ? mr_arena_strdup(a, name) : r->name;
    r->start_ns = x->start_ns;
    r->verdict = x->verdict.verdict;
    r->headline = x->verdict.line[0] ? mr_arena_strdup(a, x->verdict.line[0]) : NULL;
    r->best = x->findings ? mr_arena_strdup(a, x->finding[0].id) : NULL;
}

static int take_explanation(const struct mr_trace *t, const struct mr_compare_options *opt, struct mr_arena *a,
                            struct mr_compare_run *r, struct mr_error *err)
{
    struct mr_explanation *x = NULL;
    const struct mr_explain_how how = {
        .explain = {.threads = opt->threads,
                    .rank = -1,
                    .step_from = -1,
                    .source = r->path,
                    .snippets = true,
                    .stop = opt->stop},
        .folder = r->path,
    };
    int rc = mr_explain_trace(t, &how, &x, err);
    if (rc)
        return rc;
    take_work(x, r);
    take_figures(x, r);
    take_verdict(x, a, r);
    if (take_steps(x, r) < 0 || mr_compare_keep_spans(x, a, r) < 0)
        rc = mr_error_set(err, -ENOMEM, "cannot hold the steps of '%s'", r->path);
    for (size_t i = 0; i < x->trust.notes && !r->incomplete; i++)
        if (x->trust.note[i].serious) {
            r->incomplete = true;
            r->why = mr_arena_strdup(a, x->trust.note[i].text);
        }
    if (!r->setting && x->facts.program) { /* a traced program has no settings but its command */
        r->setting = json_object();
        json_object_set_new(r->setting, "program", json_string(x->facts.program));
    }
    mr_explanation_free(x);
    if (rc)
        return rc;
    return take_own(t, r, err);
}

/* ---- what all have ---- */

/* Figures that are those of the steps, and how sure each is by them. */
static int use_steps(struct mr_compare_run *r, struct mr_error *err)
{
    struct mr_step_figures f;
    struct mr_step_errors e;
    if (!r->steps)
        return 0;
    mr_step_figures_of(r->step, r->steps, &f);
    if (mr_step_errors_of(r->step, r->steps, 1, &e) < 0)
        return mr_error_set(err, -ENOMEM, "cannot compare the steps of '%s'", r->path);
    r->value[MR_COMPARE_STEP] = f.sum[MR_PART_STEP] / (double)r->steps;
    r->value[MR_COMPARE_STEP_P99] = f.p99_step;
    r->value[MR_COMPARE_STALL_P99] = f.p99_stall;
    double wall = share_of(e.sum[MR_PART_STEP], f.sum[MR_PART_STEP]);
    r->within[MR_COMPARE_WALL] = e.sum[MR_PART_STEP];
    r->within[MR_COMPARE_STEP] = e.sum[MR_PART_STEP] / (double)r->steps;
    r->within[MR_COMPARE_STEP_P99] = e.p99_step;
    r->within[MR_COMPARE_STALL_P99] = e.p99_stall;
    r->within[MR_COMPARE_STALL] = e.share[MR_PART_STALL];
    r->within[MR_COMPARE_AU] = e.share[MR_PART_COMPUTE];
    r->within[MR_COMPARE_CHECKPOINT] = e.share[MR_PART_CHECKPOINT];
    r->within[MR_COMPARE_BARRIER] = e.share[MR_PART_BARRIER];
    r->within[MR_COMPARE_SAMPLES_RATE] = wall * r->value[MR_COMPARE_SAMPLES_RATE];
    r->within[MR_COMPARE_READ_RATE] = wall * r->value[MR_COMPARE_READ_RATE];
    return 0;
}

static int load_trace(const char *path, const struct mr_compare_options *opt, struct mr_trace **out,
                      struct mr_error *err)
{
    struct mr_trace *t = NULL;
    int rc = mr_explain_read(&path, 1, opt->threads, opt->stop, &t, err);
    if (!rc && !t->events && !t->counters)
        rc = mr_error_plain(err, MR_E_INCOMPLETE, "the trace '%s' has no events", path);
    if (rc)
        mr_trace_free(t);
    else
        *out = t;
    return rc;
}

int mr_compare_run_load(const char *path, const struct mr_compare_options *opt, struct mr_arena *a,
                        struct mr_compare_run *out, struct mr_error *err)
{
    struct mr_compare_run r = {.path = mr_arena_strdup(a, path), .au_target = NAN};
    struct mr_trace *t = NULL;
    for (int m = 0; m < MR_COMPARE_METRIC_COUNT; m++)
        r.value[m] = r.within[m] = NAN;
    for (int c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        r.cause[c] = NAN;
    int rc = r.path ? 0 : mr_error_set(err, -ENOMEM, "cannot read '%s'", path);
    rc = rc ? rc : read_summary(path, a, &r, err);
    rc = rc ? rc : load_trace(path, opt, &t, err);
    rc = rc ? rc : take_explanation(t, opt, a, &r, err);
    rc = rc ? rc : use_steps(&r, err);
    mr_trace_free(t);
    if (rc)
        mr_compare_run_done(&r);
    else
        *out = r;
    return rc;
}

void mr_compare_run_done(struct mr_compare_run *r)
{
    free(r->step);
    json_decref(r->setting);
    json_decref(r->machine);
    *r = (struct mr_compare_run){0};
}

/* ---- which runs a word names ---- */

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_trace_name(const char *name)
{
    static const char *const ends[] = {".mrt", ".pfw", ".gz", ".dxt", ".txt", ".json", ".csv", ".darshan"};
    size_t n = strlen(name);
    for (size_t i = 0; i < MR_ARRAY_LEN(ends); i++)
        if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

/* A results folder, or one that holds traces: one run. */
static bool is_run(const char *path)
{
    bool found = false;
    DIR *d = opendir(path);
    for (const struct dirent *e; d && !found && (e = readdir(d));)
        found = !strcmp(e->d_name, "summary.json") || is_trace_name(e->d_name);
    if (d)
        closedir(d);
    return found;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

/* Every run inside of a folder, one level down: what `run --repeat` makes. */
static int each_of_folder(const char *path, mr_compare_path_fn *fn, void *user, struct mr_error *err)
{
    struct dirent **entry;
    int rc = 0, found = 0, n = scandir(path, &entry, NULL, by_name);
    if (n < 0)
        return mr_error_set(err, -errno, "cannot read the folder '%s'", path);
    for (int i = 0; i < n; i++) {
        char inner[PATH_CAP];
        snprintf(inner, sizeof inner, "%s/%s", path, entry[i]->d_name);
        if (!rc && entry[i]->d_name[0] != '.' && is_folder(inner) && is_run(inner)) {
            rc = fn(inner, user, err);
            found++;
        }
        free(entry[i]);
    }
    free(entry);
    if (rc || found)
        return rc;
    mr_error_plain(err, MR_E_FORMAT, "the folder '%s' holds no runs and no traces", path);
    return mr_error_hint(err, "name the results folder of a 'millrace run', a trace, or a folder of them"), MR_E_FORMAT;
}

static int each_of_path(const char *path, mr_compare_path_fn *fn, void *user, struct mr_error *err)
{
    return is_folder(path) && !is_run(path) ? each_of_folder(path, fn, user, err) : fn(path, user, err);
}

int mr_compare_each_run(const char *word, mr_compare_path_fn *fn, void *user, struct mr_error *err)
{
    char *copy, *save = NULL;
    int rc = 0, found = 0;
    if (access(word, F_OK) == 0 || !strchr(word, ','))
        return each_of_path(word, fn, user, err);
    if (!(copy = strdup(word)))
        return mr_error_set(err, -ENOMEM, "cannot read '%s'", word);
    for (char *one = strtok_r(copy, ",", &save); one && !rc; one = strtok_r(NULL, ",", &save), found++)
        rc = each_of_path(one, fn, user, err);
    free(copy);
    return rc || found ? rc : mr_error_plain(err, MR_E_USAGE, "'%s' names no run", word);
}

struct adding {
    struct mr_compare *c;
    struct mr_compare_side *side;
    const struct mr_compare_options *opt;
};

static int add_run(const char *path, void *user, struct mr_error *err)
{
    const struct adding *to = user;
    struct mr_compare_run r;
    int rc = mr_compare_run_load(path, to->opt, &to->c->arena, &r, err);
    if (rc)
        return rc;
    struct mr_compare_run *place = MR_VEC_ADD(&to->side->run);
    if (!place) {
        mr_compare_run_done(&r);
        return mr_error_set(err, -ENOMEM, "cannot compare '%s'", path);
    }
    *place = r;
    return 0;
}

/* What is there is meant as it is; only then '=' names the side. */
static const char *split_name(char *word, struct mr_compare_side *s)
{
    char *equals = access(word, F_OK) == 0 ? NULL : strchr(word, '=');
    if (!equals || equals == word || memchr(word, '/', (size_t)(equals - word)) ||
        memchr(word, ',', (size_t)(equals - word)))
        return word;
    *equals = '\0';
    s->name = word;
    return equals + 1;
}

/* Runs of one side are repeats of each other. */
static int same_settings(const struct mr_compare_side *s, struct mr_error *err)
{
    assert(s->run.n); /* a side has at least one run */
    const json_t *first = s->run.item[0].setting;
    for (size_t i = 1; i < s->run.n; i++) {
        const char *key;
        json_t *v;
        if (!first || !s->run.item[i].setting)
            continue;
        json_object_foreach(s->run.item[i].setting, key, v)
        {
            const json_t *other = json_object_get(first, key);
            if (!other || json_equal(other, v))
                continue;
            mr_error_plain(err, MR_E_USAGE, "the runs of '%s' have different settings: %s is %s in '%s' and %s in '%s'",
                           s->name, key, json_string_value(other), s->run.item[0].path, json_string_value(v),
                           s->run.item[i].path);
            return mr_error_hint(err, "each setting is a side of its own: millrace compare %s %s", s->run.item[0].path,
                                 s->run.item[i].path),
                   MR_E_USAGE;
        }
    }
    return 0;
}

int mr_compare_add(struct mr_compare *c, const char *word, const struct mr_compare_options *opt, struct mr_error *err)
{
    char *copy = mr_arena_strdup(&c->arena, word), *name = mr_arena_strdup(&c->arena, word);
    if (!copy || !name || mr_vec_reserve(&c->side, &c->side_cap, c->sides + 1, sizeof(*c->side)) < 0)
        return mr_error_set(err, -ENOMEM, "cannot compare '%s'", word);
    struct mr_compare_side *s = &c->side[c->sides++];
    *s = (struct mr_compare_side){.name = name};
    struct adding to = {.c = c, .side = s, .opt = opt};
    int rc = mr_compare_each_run(split_name(copy, s), add_run, &to, err);
    rc = rc ? rc : same_settings(s, err);
    for (size_t i = 0; i < s->run.n; i++)
        s->simulated |= s->run.item[i].simulated;
    return rc;
}
