/* Replaying a run: see job_replay.h. */
#include "job/job_replay.h"
#include "analyze/run_trace.h"
#include "base/common.h"
#include "bench/rank_figures.h"
#include "event/emit.h"
#include "job/job_internal.h"
#include "job/job_scenario.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the board ---- */

static double real_of(int64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void fill_figures(const struct mr_run_rank *from, struct mr_bench_rank *to)
{
    const struct mr_run_figure *f;
#define WHOLE(text, member)                                                                                            \
    if ((f = mr_run_rank_figure(from, text)))                                                                          \
        to->member = (__typeof__(to->member))f->value;
#define REAL(text, member)                                                                                             \
    if ((f = mr_run_rank_figure(from, text)))                                                                          \
        to->member = real_of(f->value);
    MR_RANK_FIGURES(WHOLE, REAL)
    MR_TIER_RANK_FIGURES(WHOLE)
    MR_TIER_NODE_FIGURES(WHOLE)
#undef WHOLE
#undef REAL
    if ((f = mr_run_rank_figure(from, MR_RANK_LIMITER)))
        memcpy(to->loader.limiter, &f->value, sizeof f->value);
}

/* field:NAME:MEASURE */
static void fill_fields(const struct mr_run_rank *from, struct mr_bench_fields *to)
{
    const size_t prefix = strlen(MR_RANK_FIELD);
    for (size_t i = 0; i < from->figures.n; i++) {
        const struct mr_run_figure *f = &from->figures.item[i];
        const char *measure = strrchr(f->name, ':');
        char name[sizeof to->field[0].name];
        if (strncmp(f->name, MR_RANK_FIELD, prefix) != 0 || !measure || measure < f->name + prefix)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(measure - f->name - (ptrdiff_t)prefix), f->name + prefix);
        struct mr_bench_field *field = mr_bench_field(to, name);
#define FILL(member)                                                                                                   \
    if (strcmp(measure + 1, #member) == 0)                                                                             \
        field->member = (uint64_t)f->value;
        MR_FIELD_COSTS(FILL)
#undef FILL
    }
}

static void fill_rank(const struct mr_run_rank *from, struct mr_bench_board *b, uint32_t k)
{
    struct mr_bench_rank *to = &b->ranks[k];
    if (from->steps.n)
        memcpy(b->steps + k * b->step_cap, from->steps.item, from->steps.n * sizeof(*b->steps));
    if (from->checkpoints.n)
        memcpy(b->checkpoints + k * b->checkpoint_cap, from->checkpoints.item,
               from->checkpoints.n * sizeof(*b->checkpoints));
    if (from->drains.n)
        memcpy(b->drains + k * b->drain_cap, from->drains.item, from->drains.n * sizeof(*b->drains));
    to->n_steps = from->steps.n;
    to->n_checkpoints = from->checkpoints.n;
    to->n_drains = from->drains.n;
    fill_figures(from, to);
    fill_fields(from, &to->loader.fields);
}

int mr_job_board_from_trace(const struct mr_trace *t, struct mr_bench_board **out, struct mr_error *err)
{
    struct mr_run_trace *run;
    uint64_t steps = 1, saves = 1;
    int rc = mr_run_trace_read(t, &run, err);
    if (rc)
        return rc;
    for (uint32_t k = 0; k < run->world; k++) {
        steps = MR_MAX(steps, run->rank[k].steps.n);
        saves = MR_MAX(saves, MR_MAX(run->rank[k].checkpoints.n, run->rank[k].drains.n));
    }
    rc = mr_bench_board_create(run->world, steps, saves, out, err);
    for (uint32_t k = 0; k < run->world && !rc; k++)
        fill_rank(&run->rank[k], *out, k);
    mr_run_trace_free(run);
    return rc;
}

/* ---- live against offline ---- */

static char *tell_difference(const char *where, const json_t *live, const json_t *again)
{
    char *a = live ? json_dumps(live, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    char *b = again ? json_dumps(again, JSON_ENCODE_ANY | JSON_COMPACT) : NULL, *out = NULL;
    if (asprintf(&out, "%s: %.60s in the summary, %.60s in the trace", where, a ? a : "nothing", b ? b : "nothing") < 0)
        out = NULL;
    free(a);
    free(b);
    return out;
}

static char *compare(const char *where, const json_t *live, const json_t *again);

static char *compare_objects(const char *where, const json_t *live, const json_t *again)
{
    char inner[512], *out = NULL;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)live, key, value)
    {
        snprintf(inner, sizeof inner, "%s.%s", where, key);
        if (!out)
            out = compare(inner, value, json_object_get(again, key));
    }
    return out;
}

static char *compare_arrays(const char *where, const json_t *live, const json_t *again)
{
    char inner[512], *out = NULL;
    size_t n = MR_MAX(json_array_size(live), json_array_size(again));
    for (size_t i = 0; i < n && !out; i++) {
        snprintf(inner, sizeof inner, "%s[%zu]", where, i);
        out = compare(inner, json_array_get(live, i), json_array_get(again, i));
    }
    return out;
}

/* The first difference, or NULL. The summary's numbers have gone through text: 17 digits, so equal means equal. */
static char *compare(const char *where, const json_t *live, const json_t *again)
{
    if (!live || !again ||
        (json_typeof(live) != json_typeof(again) && !(json_is_number(live) && json_is_number(again))))
        return tell_difference(where, live, again);
    if (json_is_object(live))
        return compare_objects(where, live, again);
    if (json_is_array(live))
        return compare_arrays(where, live, again);
    bool same = json_is_number(live) ? json_number_value(live) == json_number_value(again) : json_equal(live, again);
    return same ? NULL : tell_difference(where, live, again);
}

static char *first_difference(const json_t *live, const json_t *again)
{
    static const char *const parts[] = {"metric", "millrace"};
    char *out = NULL;
    for (size_t i = 0; i < MR_ARRAY_LEN(parts) && !out; i++)
        out = compare(parts[i], json_object_get(live, parts[i]), json_object_get(again, parts[i]));
    return out;
}

/* ---- the job ---- */

int mr_job_replay(const char *folder, const struct mr_trace *t, struct mr_arena *a, struct mr_job *out, char **differs,
                  struct mr_error *err)
{
    const struct mr_strings nowhere = {0};
    json_t *summary = NULL, *again = NULL;
    int rc = mr_job_load_summary(folder, &nowhere, a, out, &summary, err);
    if (!rc)
        rc = mr_job_board_from_trace(t, &out->result.board, err);
    if (!rc) {
        out->result.world = out->result.board->world;
        snprintf(out->out, sizeof out->out, "%s", folder);
        out->info.samples = out->plan.train_samples;
        rc = mr_job_compute_figures(out, err);
    }
    if (!rc && !(again = mr_job_figures_json(out)))
        rc = mr_error_set(err, -ENOMEM, "cannot compute the figures of the run");
    if (!rc)
        *differs = first_difference(summary, again);
    json_decref(summary);
    json_decref(again);
    return rc;
}
