/* Judging a comparison: see compare.h. First whether the sides did the same work, then what each metric says and how
 * sure that is, then which settings differ. */
#include "compare/compare.h"
#include "base/common.h"
#include "base/strbuf.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_SHOWN 0.0005   /* of shares: less is 0.0 % */
#define BYTES_TOLERANCE 0.01 /* of traces that know no samples: bytes read, which read-ahead and retries blur */

const struct mr_compare_metric_info mr_compare_metric_info[MR_COMPARE_METRIC_COUNT] = {
#define MR_COMPARE_ROW(name, key, text, unit, good) {key, text, MR_IN_##unit, good},
    MR_COMPARE_METRICS(MR_COMPARE_ROW)
#undef MR_COMPARE_ROW
};

const char *mr_compare_verdict_name(enum mr_compare_verdict v)
{
    static const char *const name[] = {"",           "better",     "worse",    "same", "no difference detectable",
                                       "not judged", "other work", "predicted"};
    return (unsigned)v < MR_ARRAY_LEN(name) ? name[v] : "";
}

static int note(struct mr_compare *c, char *text)
{
    const char **to = text ? MR_VEC_ADD(&c->note) : NULL;
    if (!to)
        return -ENOMEM;
    *to = text;
    return 0;
}

/* ---- the same work? ---- */

static bool known(uint64_t x)
{
    return x != MR_TIME_UNKNOWN;
}

/* Work of one kind: all equal, or the line that says which two are not. */
static const char *other_work(struct mr_compare *c, const char *what, size_t member, double tolerance)
{
    const struct mr_compare_run *first = &c->side[0].run.item[0];
    uint64_t a, b;
    memcpy(&a, (const char *)&first->work + member, sizeof a);
    for (size_t s = 0; s < c->sides; s++)
        for (size_t i = 0; i < c->side[s].run.n; i++) {
            const struct mr_compare_run *r = &c->side[s].run.item[i];
            memcpy(&b, (const char *)&r->work + member, sizeof b);
            if (known(a) && known(b) && fabs((double)a - (double)b) > tolerance * (double)MR_MAX(a, b))
                return mr_arena_printf(&c->arena, "%s: %" PRIu64 " in '%s', %" PRIu64 " in '%s'", what, a, first->path,
                                       b, r->path);
        }
    return NULL;
}

static bool all_know(const struct mr_compare *c, size_t member)
{
    for (size_t s = 0; s < c->sides; s++)
        for (size_t i = 0; i < c->side[s].run.n; i++) {
            uint64_t x;
            memcpy(&x, (const char *)&c->side[s].run.item[i].work + member, sizeof x);
            if (!known(x))
                return false;
        }
    return true;
}

#define MEMBER(x) offsetof(struct mr_compare_work, x)
static int compare_work(struct mr_compare *c)
{
    bool samples = all_know(c, MEMBER(samples)), order = all_know(c, MEMBER(order));
    const struct mr_compare_work *w = &c->side[0].run.item[0].work;
    const char *why = samples ? other_work(c, "samples", MEMBER(samples), 0) : NULL;
    why = why ? why : samples ? other_work(c, "bytes for the trainer", MEMBER(sample_bytes), 0) : NULL;
    why = why ? why : other_work(c, "steps", MEMBER(steps), 0);
    why = why || samples ? why : other_work(c, "bytes read", MEMBER(read_bytes), BYTES_TOLERANCE);
    c->same_work = MR_WORK_OTHER;
    c->work = why;
    if (why)
        return 0;
    const char *another = order ? other_work(c, "order", MEMBER(order), 0) : NULL;
    char bytes[MR_HUMAN_LEN];
    c->same_work = samples || (known(w->read_bytes) && w->read_bytes) ? MR_WORK_SAME : MR_WORK_UNKNOWN;
    bool given = known(w->sample_bytes);
    if (samples)
        c->work = mr_arena_printf(&c->arena, "%" PRIu64 " steps, %" PRIu64 " samples%s%s%s%s", w->steps, w->samples,
                                  given ? ", " : "", given ? mr_human_bytes((double)w->sample_bytes, bytes) : "",
                                  given ? " for the trainer" : "",
                                  another ? "; in another order"
                                  : order ? ", in the same order"
                                          : "");
    else if (c->same_work == MR_WORK_SAME)
        c->work = mr_arena_printf(&c->arena, "%s read; samples are not in these traces",
                                  mr_human_bytes((double)w->read_bytes, bytes));
    else
        c->work = "neither samples nor bytes are in these traces";
    return c->work ? 0 : -ENOMEM;
}

/* ---- metrics ---- */

#define MOST 1e100

/* Means of a side; the floor is the root mean square of what its runs say. */
static struct mr_compare_cell cell_of(const struct mr_compare_side *s, int metric, double *floor)
{
    struct mr_compare_cell x = {.mean = 0, .sd = NAN, .low = INFINITY, .high = -INFINITY};
    double square = 0, within = 0;
    size_t with = 0;
    for (size_t i = 0; i < s->run.n; i++) {
        double v = s->run.item[i].value[metric], e = s->run.item[i].within[metric];
        if (!(fabs(v) < MOST)) /* unknown, or no figure that a mean can be made of */
            continue;
        x.n++;
        double off = v - x.mean;
        x.mean += off / (double)x.n;
        square += off * (v - x.mean);
        x.low = fmin(x.low, v);
        x.high = fmax(x.high, v);
        if (fabs(e) < MOST) {
            within += e * e;
            with++;
        }
    }
    *floor = with ? sqrt(within / (double)with) : NAN;
    if (x.n > 1)
        x.sd = sqrt(square / (double)(x.n - 1));
    if (!x.n)
        x.mean = x.low = x.high = NAN;
    return x;
}

/* Which metrics are tested. Rates and mean steps say the same as the wall time; testing them too would only make all
 * tests weaker, so they are tested where the wall time must not be (C2). */
static bool is_tested(const struct mr_compare *c, int metric)
{
    bool same = c->same_work != MR_WORK_OTHER;
    switch ((enum mr_compare_metric)metric) {
    case MR_COMPARE_WALL: return same;
    case MR_COMPARE_STEP:
    case MR_COMPARE_SAMPLES_RATE: return !same;
    case MR_COMPARE_STEP_P99:
    case MR_COMPARE_STALL:
    case MR_COMPARE_AU:
    case MR_COMPARE_CHECKPOINT:
    case MR_COMPARE_BARRIER: return true;
    case MR_COMPARE_STALL_P99:
    case MR_COMPARE_READ_BYTES:
    case MR_COMPARE_READ_RATE:
    case MR_COMPARE_RAM_BYTES:
    case MR_COMPARE_SSD_BYTES:
    case MR_COMPARE_PEER_BYTES:
    case MR_COMPARE_METRIC_COUNT: break;
    }
    return false;
}

static bool is_share(int metric)
{
    return mr_compare_metric_info[metric].unit == MR_IN_SHARE;
}

/* A difference in units of the metric as a change: relative, of shares as it is. */
static double as_change(int metric, double difference, double base)
{
    return is_share(metric) ? difference : base != 0 ? difference / fabs(base) : difference != 0 ? NAN : 0;
}

/* What a test needs, kept until all are corrected. */
#define HEADLINE 4 /* weight of the first question, "is it faster", among the others, of 1 each */
struct test {
    struct mr_difference d;
    double weight;
    struct mr_compare_change *to;
    int metric;
    double base;
};

static uint8_t why_untested(const struct mr_compare *c, size_t side, int metric, const struct mr_compare_row *row)
{
    bool totals = metric == MR_COMPARE_WALL;
    if (!is_tested(c, metric))
        return totals && c->same_work == MR_WORK_OTHER ? MR_COMPARE_OTHER_WORK : MR_COMPARE_NOT_JUDGED;
    if (c->side[0].simulated || c->side[side].simulated)
        return MR_COMPARE_PREDICTED;
    if (row->cell[0].n < 2 || row->cell[side].n < 2)
        return MR_COMPARE_ONE_RUN;
    return MR_COMPARE_UNDECIDED;
}

/* Values that are equal to the last digit need no test; nor do shares so small that no difference of them could be as
 * large as the least effect. */
static bool is_same(const struct mr_compare *c, int metric, const struct mr_compare_row *row, size_t side)
{
    bool equal = row->cell[0].low == row->cell[0].high && row->cell[side].low == row->cell[0].low &&
                 row->cell[side].high == row->cell[0].low;
    bool small = is_share(metric) && fmax(row->cell[0].high, row->cell[side].high) < c->least;
    return small || (equal && !mr_compare_metric_info[metric].good);
}

static int fill_row(struct mr_compare *c, int metric, struct test *test, size_t *tests)
{
    struct mr_compare_row *row = &c->row[metric];
    assert(c->sides);
    double *floor = calloc(c->sides, sizeof(*floor));
    row->cell = mr_arena_alloc(&c->arena, c->sides * sizeof(*row->cell));
    row->change = mr_arena_alloc(&c->arena, c->sides * sizeof(*row->change));
    if (!floor || !row->cell || !row->change) {
        free(floor);
        return -ENOMEM;
    }
    for (size_t s = 0; s < c->sides; s++) {
        row->cell[s] = cell_of(&c->side[s], metric, &floor[s]);
        row->shown |= row->cell[s].n && row->cell[s].high > (is_share(metric) ? LEAST_SHOWN : 0);
    }
    for (size_t s = 0; s < c->sides; s++) {
        struct mr_compare_change *x = &row->change[s];
        const struct mr_compare_cell *a = &row->cell[0], *b = &row->cell[s];
        *x = (struct mr_compare_change){.change = NAN, .low = NAN, .high = NAN, .p = NAN, .detectable = NAN};
        if (!s || !a->n || !b->n)
            continue;
        x->change = as_change(metric, b->mean - a->mean, a->mean);
        x->verdict = why_untested(c, s, metric, row);
        if (x->verdict <= MR_COMPARE_UNDECIDED && is_same(c, metric, row, s))
            x->verdict = MR_COMPARE_SAME;
        if (x->verdict != MR_COMPARE_UNDECIDED || !row->shown)
            continue;
        struct test *t = &test[(*tests)++];
        bool headline = metric == MR_COMPARE_WALL || metric == MR_COMPARE_SAMPLES_RATE;
        *t = (struct test){.to = x, .metric = metric, .base = a->mean, .weight = headline ? HEADLINE : 1};
        t->d = mr_difference_of(&(struct mr_runs_mean){a->mean, a->sd, floor[0], a->n},
                                &(struct mr_runs_mean){b->mean, b->sd, floor[s], b->n});
        x->p = t->d.p;
    }
    free(floor);
    return 0;
}

/* After correction. Intervals and what is detectable are those of the strictest test (Bonferroni's), which holds for
 * any of them. */
static void judge_test(const struct mr_compare *c, const struct test *t, double p, double all)
{
    struct mr_compare_change *x = t->to;
    double most = mr_student_quantile(c->level * t->weight / all, t->d.df) * t->d.error;
    double half = fabs(as_change(t->metric, most, t->base));
    bool good = x->change * mr_compare_metric_info[t->metric].good > 0;
    x->p = p;
    x->detectable = half;
    x->low = x->change - half;
    x->high = x->change + half;
    if (p < c->level && fabs(x->change) >= c->least) /* C1 */
        x->verdict = good ? MR_COMPARE_BETTER : MR_COMPARE_WORSE;
    else if (fmax(fabs(x->low), fabs(x->high)) <= c->least || half == 0)
        x->verdict = MR_COMPARE_SAME;
    else
        x->verdict = MR_COMPARE_UNDECIDED;
}

static int compare_metrics(struct mr_compare *c)
{
    size_t most = MR_COMPARE_METRIC_COUNT * c->sides, tests = 0;
    struct test *test = calloc(most, sizeof(*test));
    double *p = calloc(most, sizeof(*p)), *weight = calloc(most, sizeof(*weight)), all = 0;
    int rc = test && p && weight ? 0 : -ENOMEM;
    for (int m = 0; m < MR_COMPARE_METRIC_COUNT && !rc; m++)
        rc = fill_row(c, m, test, &tests);
    for (size_t i = 0; i < tests && !rc; i++) {
        p[i] = test[i].d.p;
        all += weight[i] = test[i].weight;
    }
    rc = rc ? rc : mr_holm(p, weight, tests);
    c->tests = tests;
    for (size_t i = 0; i < tests && !rc; i++)
        judge_test(c, &test[i], p[i], all);
    free(test);
    free(p);
    free(weight);
    return rc;
}

static int compare_causes(struct mr_compare *c)
{
    c->cause = mr_arena_alloc(&c->arena, MR_STALL_CAUSE_COUNT * c->sides * sizeof(*c->cause));
    if (!c->cause)
        return -ENOMEM;
    for (int k = 0; k < MR_STALL_CAUSE_COUNT; k++)
        for (size_t s = 0; s < c->sides; s++) {
            double sum = 0;
            for (size_t i = 0; i < c->side[s].run.n; i++)
                sum += c->side[s].run.item[i].cause[k];
            c->cause[(size_t)k * c->sides + s] = sum / (double)c->side[s].run.n;
        }
    return 0;
}

/* ---- settings ---- */

static const json_t *settings_of(const struct mr_compare *c, size_t side, bool machine)
{
    const struct mr_compare_run *r = &c->side[side].run.item[0];
    return machine ? r->machine : r->setting;
}

/* A results folder knows all settings, a trace only its program: what a side of the other kind lacks is unknown. */
static bool is_mixed(const struct mr_compare *c)
{
    bool folder = false, trace = false;
    for (size_t s = 0; s < c->sides; s++)
        *(settings_of(c, s, true) ? &folder : &trace) = true;
    return folder && trace;
}

static int compare_key(struct mr_compare *c, const char *key, bool machine)
{
    const char *first = NULL, **value = mr_arena_alloc(&c->arena, c->sides * sizeof(*value));
    bool differs = false;
    for (size_t i = 0; i < c->setting.n; i++)
        if (!strcmp(c->setting.item[i].key, key))
            return 0;
    if (!value)
        return -ENOMEM;
    for (size_t s = 0; s < c->sides; s++) {
        const json_t *all = settings_of(c, s, machine);
        const char *text = json_string_value(json_object_get(all, key));
        value[s] = text ? mr_arena_strdup(&c->arena, text) : "";
        if (!value[s])
            return -ENOMEM;
        if (!all || (!text && is_mixed(c))) /* it says nothing about it: no difference */
            continue;
        first = first ? first : value[s];
        differs |= strcmp(first, value[s]) != 0;
    }
    struct mr_compare_setting *x = differs ? MR_VEC_ADD(&c->setting) : NULL;
    if (!x)
        return differs ? -ENOMEM : 0;
    *x = (struct mr_compare_setting){.key = mr_arena_strdup(&c->arena, key), .value = value};
    return x->key ? 0 : -ENOMEM;
}

static int compare_settings(struct mr_compare *c, bool machine)
{
    int rc = 0;
    for (size_t s = 0; s < c->sides; s++) {
        json_t *all = (json_t *)(uintptr_t)settings_of(c, s, machine), *v;
        const char *key;
        json_object_foreach(all, key, v)
        {
            rc = rc ? rc : compare_key(c, key, machine);
        }
    }
    return rc;
}

/* The same but for the figures in it. */
static bool same_reason(const char *a, const char *b)
{
    static const char figures[] = "0123456789.,";
    for (;; a++, b++) {
        a += strspn(a, figures);
        b += strspn(b, figures);
        if (*a != *b || !*a)
            return *a == *b;
    }
}

/* ---- notes ---- */

/* Runs with the same doubt as `r`, and whether `r` is the first of them. */
static size_t same_doubt(const struct mr_compare *c, const struct mr_compare_run *r, bool *first)
{
    const char *why = r->why ? r->why : "";
    size_t n = 0;
    for (size_t s = 0; s < c->sides; s++)
        for (size_t i = 0; i < c->side[s].run.n; i++) {
            const struct mr_compare_run *o = &c->side[s].run.item[i];
            if (o->incomplete != r->incomplete || o->untrusted != r->untrusted ||
                !same_reason(o->why ? o->why : "", why))
                continue;
            *first = n ? *first : o == r;
            n++;
        }
    return n;
}

/* One doubt that many runs share is said once. */
static int note_doubts(struct mr_compare *c)
{
    int rc = 0;
    for (size_t s = 0; s < c->sides; s++)
        for (size_t i = 0; i < c->side[s].run.n && !rc; i++) {
            const struct mr_compare_run *r = &c->side[s].run.item[i];
            bool first = false;
            if ((!r->incomplete && !r->untrusted) || (same_doubt(c, r, &first), !first))
                continue;
            size_t n = same_doubt(c, r, &first);
            const char *who = n == 1 ? mr_arena_printf(&c->arena, "'%s' is", r->path)
                                     : mr_arena_printf(&c->arena, "'%s' and %zu other %s are", r->path, n - 1,
                                                       mr_plural(n - 1, "run", "runs"));
            rc = note(c, mr_arena_printf(&c->arena, "%s %s%s%s", who ? who : r->path,
                                         r->incomplete ? "incomplete" : "not to be trusted", r->why ? ": " : "",
                                         r->why ? r->why : ""));
        }
    return rc;
}

static int note_repeats(struct mr_compare *c)
{
    size_t least = SIZE_MAX;
    for (size_t s = 0; s < c->sides; s++)
        if (!c->side[s].simulated)
            least = MR_MIN(least, c->side[s].run.n);
    if (least != 1) /* also where all are simulated */
        return 0;
    return note(c, mr_arena_printf(&c->arena,
                                   "one run on a side is no comparison: run both several times (millrace run ... "
                                   "--repeat 5 --out FOLDER) and compare the folders"));
}

static int note_order(struct mr_compare *c)
{
    if (c->same_work == MR_WORK_OTHER)
        return note(c, mr_arena_printf(&c->arena, "the sides did other work: durations are not compared, rates and "
                                                  "shares are"));
    return 0;
}

/* A prediction against what was measured: the wall time of the last simulated side and the last measured one. */
static void judge_prediction(struct mr_compare *c)
{
    const struct mr_compare_row *wall = &c->row[MR_COMPARE_WALL];
    double real = NAN;
    c->predicted_s = c->prediction_error = NAN;
    for (size_t s = 0; s < c->sides; s++) {
        if (c->side[s].simulated)
            c->predicted_s = wall->cell[s].mean;
        else
            real = wall->cell[s].mean;
    }
    if (!isnan(c->predicted_s) && real > 0)
        c->prediction_error = (c->predicted_s - real) / real;
}

int mr_compare_judge(struct mr_compare *c, const struct mr_compare_options *opt, struct mr_error *err)
{
    assert(c->sides >= 2 && opt->level > 0 && opt->level < 1);
    c->level = opt->level;
    c->least = opt->least;
    int rc = compare_work(c);
    rc = rc ? rc : compare_metrics(c);
    rc = rc ? rc : compare_causes(c);
    rc = rc ? rc : compare_settings(c, false);
    rc = rc ? rc : compare_settings(c, true);
    rc = rc ? rc : note_order(c);
    rc = rc ? rc : note_repeats(c);
    rc = rc ? rc : note_doubts(c);
    rc = rc ? rc : mr_compare_join_spans(c);
    if (rc)
        return mr_error_set(err, rc, "cannot compare");
    judge_prediction(c);
    return 0;
}

void mr_compare_done(struct mr_compare *c)
{
    for (size_t s = 0; s < c->sides; s++) {
        for (size_t i = 0; i < c->side[s].run.n; i++)
            mr_compare_run_done(&c->side[s].run.item[i]);
        free(c->side[s].run.item);
    }
    free(c->side);
    free(c->setting.item);
    free(c->span.item);
    free(c->note.item);
    mr_arena_done(&c->arena);
    *c = (struct mr_compare){0};
}
