/* The advisor: every rule is asked once, what fires becomes a finding, and the findings are put into the order in which
 * they are worth doing.
 *
 *     explanation ──prepare──> struct mr_advice ──each rule──> drafts ──gate, severity, order──> finding[], silence[]
 *                                                                                          └──> verdict
 * (advise_verdict.c)
 *
 * Severity is the share of the run that a finding saves beyond those before it: from 20 % critical, from 5 % major,
 * from 1 % minor, below a note. The order is greedy: the one that saves most first, then what adds most to it. */
#include "base/common.h"
#include "base/strbuf.h"
#include "advise/advise_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN_SHARE 0.01 /* of the run with I/O: hidden I/O from which a note is worth its line */

#define BOUND_WEIGHT 0.4
#define COVERED 0.3        /* of what it saves alone: less is left over by chance */
#define SECONDS_LEAST 0.02 /* less is nothing, however short the run */

#define RULE_ROW(name, function, pools, condition) {#name, function, pools, condition},
const struct mr_rule mr_rules[] = {MR_RULES(RULE_ROW)};
const unsigned mr_rule_count = MR_ARRAY_LEN(mr_rules);

/* ---- words ---- */

static const char *say_v(struct mr_advice *a, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *text = n < 0 ? NULL : mr_arena_alloc(&a->x->arena, (size_t)n + 1);
    if (!text) {
        a->failed = true;
        return "";
    }
    vsnprintf(text, (size_t)n + 1, fmt, args);
    return text;
}

const char *mr_say(struct mr_advice *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *text = say_v(a, fmt, args);
    va_end(args);
    return text;
}

void mr_set_silence(struct mr_advice *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    a->why = say_v(a, fmt, args);
    va_end(args);
}

const char *mr_say_s(struct mr_advice *a, double seconds)
{
    char text[MR_HUMAN_LEN];
    if (!mr_known(seconds))
        return "unknown";
    if (seconds >= 100)
        return mr_say(a, "%.0f s", seconds);
    return mr_say(a, "%s", mr_human_ns(seconds * 1e9, text));
}

const char *mr_say_bytes(struct mr_advice *a, double bytes)
{
    char text[MR_HUMAN_LEN];
    return mr_known(bytes) ? mr_say(a, "%s", mr_human_bytes(bytes, text)) : "unknown";
}

const char *mr_say_rate(struct mr_advice *a, double bytes_per_s)
{
    double x = bytes_per_s / 1e6;
    if (!mr_known(x))
        return "unknown";
    if (x >= 1e4)
        return mr_say(a, "%.1f GB/s", x / 1e3);
    return mr_say(a, x >= 10 ? "%.0f MB/s" : x >= 1 ? "%.1f MB/s" : "%.3f MB/s", x);
}

const char *mr_say_share(struct mr_advice *a, double share)
{
    double percent = 100 * share;
    return mr_known(share) ? mr_say(a, percent >= 9.95 ? "%.0f %%" : "%.1f %%", percent) : "unknown";
}

const char *mr_say_count(struct mr_advice *a, double n)
{
    char text[MR_HUMAN_LEN];
    return mr_known(n) ? mr_say(a, "%s", mr_human_count((unsigned long long)(n + 0.5), text)) : "unknown";
}

/* ---- what all rules need ---- */

double mr_pool_s(const struct mr_advice *a, uint32_t pools)
{
    double s = 0;
    for (unsigned i = 0; i < MR_POOLS; i++)
        s += pools & (1u << i) ? a->pool_s[i] : 0;
    return s;
}

double mr_io_share(const struct mr_advice *a)
{
    double io = 0;
    for (size_t i = 0; i < a->x->ranks; i++)
        io += (double)a->x->rank[i].io_ns / 1e9 / (double)a->x->ranks;
    return a->run_s > 0 ? io / a->run_s : 0;
}

bool mr_reads_matter(const struct mr_advice *a)
{
    return a->starved || (a->f->has_steps && mr_io_share(a) >= HIDDEN_SHARE);
}

static double workers_busy(const struct mr_explanation *x)
{
    double busy = 0, all = 0;
    for (size_t i = 0; i < x->workers; i++) {
        const struct mr_explain_worker *w = &x->worker[i];
        double span = (double)(w->end_ns - w->start_ns);
        all += span;
        busy += span - MR_MIN(span, (double)w->idle_ns + (double)w->blocked_ns);
    }
    return all > 0 ? busy / all : NAN;
}

static void prepare_counters(struct mr_advice *a)
{
    const struct mr_counters *c = a->x->counters;
    if (!c)
        return;
    double n = c->nprocs >= 1 ? c->nprocs : 1;
    const double *v = c->value;
    unsigned read = MR_STALL_CAUSE_COUNT + 4;
    a->pool_s[read] = (mr_known_or(v[MR_POSIX_F_READ_TIME], 0) + mr_known_or(v[MR_STDIO_F_READ_TIME], 0)) / n;
    a->pool_s[read + 1] = (mr_known_or(v[MR_POSIX_F_WRITE_TIME], 0) + mr_known_or(v[MR_STDIO_F_WRITE_TIME], 0)) / n;
    a->pool_s[read + 2] = (mr_known_or(v[MR_POSIX_F_META_TIME], 0) + mr_known_or(v[MR_STDIO_F_META_TIME], 0)) / n;
    if (!c->has_posix) { /* below MPI-IO are the calls of the POSIX module, where it was on */
        a->pool_s[read] += mr_known_or(v[MR_MPIIO_F_READ_TIME], 0) / n;
        a->pool_s[read + 1] += mr_known_or(v[MR_MPIIO_F_WRITE_TIME], 0) / n;
        a->pool_s[read + 2] += mr_known_or(v[MR_MPIIO_F_META_TIME], 0) / n;
    }
    if (!(a->run_s > 0))
        a->run_s = c->run_s;
}

/* Where nothing is read ahead, a wait in which a reader began late is as long as the load it began: quicker reads or a
 * quicker decode would shorten it as well as beginning earlier. */
static void share_late_waits(struct mr_advice *a)
{
    struct mr_pipeline p = mr_pipeline_now(a);
    double load = p.read_s + p.cpu_s, late = a->pool_s[MR_STALL_NOT_STARTED];
    if (!mr_pipeline_known(&p) || !(load > 0) || p.ahead >= 1)
        return;
    a->pool_s[MR_STALL_STORAGE] += late * p.read_s / load;
    a->pool_s[MR_STALL_DECODE] += late * p.cpu_s / load;
    a->pool_s[MR_STALL_NOT_STARTED] = 0;
}

/* By the host, or by the accelerator where that waits and the host goes on. */
static double waited_for_ranks_s(const struct mr_explanation *x)
{
    double host = (double)x->ns[MR_TIME_BARRIER], accelerator = 0;
    for (size_t i = 0; i < x->steps; i++)
        accelerator += (double)x->step[i].collective_ns;
    return fmax(host, accelerator / fmax(1, (double)x->ranks)) / 1e9;
}

/* What ranks waited for others because these were saving, or waiting for data; mean of all ranks. It is as much lost to
 * that as what those ranks lost themselves. */
static double held_by_s(const struct mr_explanation *x, const struct mr_explain_culprit *c, unsigned class)
{
    double ranks = (double)x->ranks;
    return (double)MR_MIN(c->cause[class], c->lost_ns) / 1e9 * (ranks - 1) / ranks;
}

static double waited_for_saves_s(const struct mr_explanation *x)
{
    double s = 0;
    for (size_t i = 0; i < x->culprits; i++)
        s += held_by_s(x, &x->culprit[i], MR_TIME_CHECKPOINT);
    return s;
}

/* Of a rank's waits for data: in evaluation. Steps lie by rank. */
static double evaluation_part(const struct mr_explanation *x, uint32_t rank)
{
    double evaluation = 0, all = 0;
    size_t from = 0, to = x->steps;
    while (from < to) { /* the first step of this rank */
        size_t middle = from + (to - from) / 2;
        if (x->step[middle].rank < rank)
            from = middle + 1;
        else
            to = middle;
    }
    for (; from < x->steps && x->step[from].rank == rank; from++) {
        double stall = (double)x->step[from].ns[MR_TIME_STALL];
        all += stall;
        evaluation += x->step[from].phase == MR_EXPLAIN_EVAL ? stall : 0;
    }
    return all > 0 ? evaluation / all : 0;
}

/* Barriers behind waits for data, into the pools of these waits. */
static void prepare_held(struct mr_advice *a, const struct mr_explanation *x)
{
    for (size_t i = 0; i < x->culprits; i++) {
        const struct mr_explain_culprit *c = &x->culprit[i];
        double all = 0, held = held_by_s(x, c, MR_TIME_STALL), part = evaluation_part(x, c->rank);
        for (unsigned k = 0; k < MR_STALL_CAUSE_COUNT; k++)
            all += (double)c->stall[k];
        if (!(held > 0) || !(all > 0))
            continue;
        for (unsigned k = 0; k < MR_STALL_CAUSE_COUNT; k++) {
            a->held_cause_s[k] += held * (double)c->stall[k] / all;
            a->pool_s[k] += (1 - part) * held * (double)c->stall[k] / all;
        }
        a->pool_s[MR_STALL_CAUSE_COUNT + 7] += part * held;
        a->held_s += held;
        a->held_training_s += (1 - part) * held;
    }
}

/* Waits for data by cause, those of evaluation apart. */
static void prepare_waits(struct mr_advice *a, const struct mr_explanation *x)
{
    double ranks = fmax(1, (double)x->ranks), evaluation[MR_STALL_CAUSE_COUNT] = {0}, steps = 0, first = 0;
    for (size_t i = 0; i < x->ranks; i++)
        steps += (double)x->rank[i].steps;
    for (size_t i = 0; i < x->steps; i++) {
        const struct mr_explain_step *s = &x->step[i];
        if (s->phase != MR_EXPLAIN_EVAL)
            continue;
        steps--;
        first += s->step == 0 ? (double)s->ns[MR_TIME_STALL] / 1e9 / ranks : 0;
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            evaluation[c] += (double)s->stall[c] / 1e9 / ranks;
    }
    a->steps = steps / ranks;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++) {
        a->cause_s[c] = a->pool_s[c] = fmax(0, (double)x->stall[c] / 1e9 - evaluation[c]);
        a->stall_s += a->cause_s[c];
        a->waited_s += (double)x->stall[c] / 1e9;
        a->evaluation_s += evaluation[c];
    }
    a->pool_s[MR_STALL_CAUSE_COUNT + 7] = a->evaluation_s;
    a->stall_share = a->run_s > 0 ? a->stall_s / a->run_s : 0;
    a->waited_share = a->run_s > 0 ? a->waited_s / a->run_s : 0;
    /* The first batch of a run is always waited for: workers start, nothing is ready. It counts, but a short run is not
     * input-bound because of it. */
    double first_s = (double)x->first_ns / 1e9, rest = a->run_s - first_s;
    prepare_held(a, x);
    a->steady_share = rest > 0 ? fmax(a->stall_s - first_s + first, 0) / rest : a->stall_share;
    a->waited_steady_share = rest > 0 ? fmax(a->waited_s - first_s, 0) / rest : a->waited_share;
    a->steady_share += rest > 0 ? a->held_training_s / rest : 0;
    a->waited_steady_share += rest > 0 ? a->held_s / rest : 0;
    bool known = x->facts.has_steps;
    a->starved = known && a->steady_share >= MR_STARVED && a->stall_s + a->held_training_s >= SECONDS_LEAST;
    a->waits = known && a->waited_steady_share >= MR_STARVED && a->waited_s + a->held_s >= SECONDS_LEAST;
}

void mr_advice_prepare(struct mr_advice *a, struct mr_explanation *x)
{
    *a = (struct mr_advice){.x = x, .f = &x->facts};
    a->run_s = (double)(x->train_ns ? x->train_ns : x->duration_ns) / 1e9;
    prepare_waits(a, x);
    a->pool_s[MR_STALL_COPY] += (double)x->ns[MR_TIME_COPY] / 1e9;
    a->checkpoint_s = (double)x->ns[MR_TIME_CHECKPOINT] / 1e9 + waited_for_saves_s(x);
    a->barrier_s = waited_for_ranks_s(x);
    a->imbalance_s = fmax(0, a->barrier_s - waited_for_saves_s(x) - a->held_s);
    a->startup_s = (double)x->ns[MR_TIME_STARTUP] / 1e9;
    a->pool_s[MR_STALL_CAUSE_COUNT] = a->checkpoint_s;
    a->pool_s[MR_STALL_CAUSE_COUNT + 1] = a->imbalance_s;
    a->pool_s[MR_STALL_CAUSE_COUNT + 2] = a->startup_s;
    a->pool_s[MR_STALL_CAUSE_COUNT + 3] = (double)x->ns[MR_TIME_COMPUTE] / 1e9;
    a->pool_s[MR_STALL_CAUSE_COUNT + 8] = (double)x->ns[MR_TIME_LOGGING] / 1e9;
    prepare_counters(a);
    a->own = x->facts.framework && strcmp(x->facts.framework, "millrace") == 0;
    share_late_waits(a);
    a->read_s = mr_pool_s(a, MR_POOL_READ);
    a->cpu_s = mr_pool_s(a, MR_POOL_CPU);
    a->late_s = mr_stall_s(a, MR_STALL_NOT_STARTED);
    a->busy = workers_busy(x);
    a->failed |= !mr_scaling_of(x, &a->scaling);
}

/* ---- from drafts to findings ---- */

/* A1 */
static void gate(const struct mr_advice *a, struct mr_draft *d)
{
    struct mr_finding *f = &d->f;
    double most = mr_pool_s(a, d->pools);
    if (mr_known(a->f->bound_spare_s) && d->pools & MR_POOL_STALL) /* not below the bound that is printed */
        most = fmin(most, a->f->bound_spare_s);
    if (!mr_known(f->saves_s))
        return;
    f->saves_s = fmin(fmax(f->saves_s, 0), most);
    f->saves_low_s = fmin(fmax(mr_known_or(f->saves_low_s, 0), 0), f->saves_s);
    f->saves_high_s = fmin(fmax(mr_known_or(f->saves_high_s, most), f->saves_s), fmax(most, f->saves_s));
    if (f->saves_s < 0.01 * a->run_s && a->x->facts.has_steps)
        f->potential = true;
}

static double worth(const struct mr_draft *d, double adds)
{
    double weight = d->weight > 0 ? d->weight : 1;
    if (mr_finding_is_bound(&d->f)) /* a number that nothing holds up: behind one that something does */
        weight *= BOUND_WEIGHT + (1 - BOUND_WEIGHT) * d->f.saves_low_s / d->f.saves_s;
    return adds * (0.25 + 0.75 * d->f.confidence) * weight;
}

static double adds_s(const struct mr_draft *d, const double left[MR_POOLS])
{
    double room = 0;
    for (unsigned i = 0; i < MR_POOLS; i++)
        room += d->pools & (1u << i) ? left[i] : 0;
    return mr_known(d->f.saves_s) ? MR_MIN(d->f.saves_s, room) : 0;
}

/* A2: takes the seconds out of the finding's pools, from each in proportion. */
static void take(const struct mr_draft *d, double seconds, double left[MR_POOLS])
{
    double room = 0;
    for (unsigned i = 0; i < MR_POOLS; i++)
        room += d->pools & (1u << i) ? left[i] : 0;
    for (unsigned i = 0; i < MR_POOLS && room > 0; i++)
        if (d->pools & (1u << i))
            left[i] -= MR_MIN(left[i], left[i] * seconds / room);
}

static uint8_t severity_of(const struct mr_advice *a, const struct mr_finding *f)
{
    /* Counters: several patterns are true at once, and nobody knows which of them cost the seconds. */
    double seconds = a->x->counters && !a->f->has_steps ? f->saves_s : f->adds_s;
    double share = a->run_s > 0 ? seconds / a->run_s : 0;
    if (f->potential || !mr_known(f->saves_s) || seconds < SECONDS_LEAST)
        return MR_SEVERITY_NOTE;
    return share >= 0.20   ? MR_SEVERITY_CRITICAL
           : share >= 0.05 ? MR_SEVERITY_MAJOR
           : share >= 0.01 ? MR_SEVERITY_MINOR
                           : MR_SEVERITY_NOTE;
}

/* Best first; among those that add nothing any more the one that would save most alone, then the table's order. */
static size_t best_of(const struct mr_draft *d, const bool *taken, size_t n, const double left[MR_POOLS], double least)
{
    size_t best = n;
    double most = -1, alone = -1;
    for (size_t i = 0; i < n; i++) {
        if (taken[i])
            continue;
        double adds = adds_s(&d[i], left), w = worth(&d[i], adds < least ? 0 : adds),
               s = worth(&d[i], mr_known_or(d[i].f.saves_s, 0));
        if (w > most + 1e-9 || (w > most - 1e-9 && s > alone + 1e-9)) {
            best = i;
            most = w;
            alone = s;
        }
    }
    return best;
}

static int put_findings(struct mr_advice *a, struct mr_draft *d, size_t n)
{
    double left[MR_POOLS];
    bool *taken = calloc(n + 1, sizeof(*taken));
    struct mr_finding *out = mr_arena_alloc(&a->x->arena, (n + 1) * sizeof(*out));
    if (!taken || !out) {
        free(taken);
        return -ENOMEM;
    }
    memcpy(left, a->pool_s, sizeof left);
    for (size_t k = 0; k < n; k++) {
        size_t i = best_of(d, taken, n, left, 0.01 * a->run_s);
        taken[i] = true;
        out[k] = d[i].f;
        out[k].adds_s = adds_s(&d[i], left);
        take(&d[i], out[k].adds_s, left);
        if (out[k].adds_s < COVERED * out[k].saves_s) /* the same seconds by another way */
            out[k].adds_s = 0;
        out[k].severity = severity_of(a, &out[k]);
    }
    free(taken);
    a->x->finding = out;
    a->x->findings = n;
    return 0;
}

static int ask_rules(struct mr_advice *a, struct mr_draft *d, size_t *n)
{
    struct mr_explanation *x = a->x;
    x->silence = mr_arena_alloc(&x->arena, mr_rule_count * sizeof(*x->silence));
    x->silences = 0;
    *n = 0;
    if (!x->silence)
        return -ENOMEM;
    for (unsigned r = 0; r < mr_rule_count; r++) {
        struct mr_draft *draft = &d[*n];
        *draft = (struct mr_draft){
            .pools = mr_rules[r].pools,
            .f = {.id = mr_rules[r].id, .saves_s = NAN, .saves_low_s = NAN, .saves_high_s = NAN, .confidence = 0.5}};
        a->why = "";
        bool fires = x->facts.counters_only && mr_rules[r].pools && !(mr_rules[r].pools & MR_POOL_CALLS)
                         ? mr_silent(a, "needs the times of calls, which counters do not have")
                         : mr_rules[r].check(a, draft);
        if (fires) {
            mr_changes_finish(a, draft);
            gate(a, draft);
            (*n)++;
        } else
            x->silence[x->silences++] = (struct mr_silence){mr_rules[r].id, a->why};
        if (a->failed)
            return -ENOMEM;
    }
    return 0;
}

int mr_advise(struct mr_explanation *x, struct mr_error *err)
{
    struct mr_advice a;
    size_t n = 0;
    struct mr_draft *d = calloc(mr_rule_count, sizeof(*d));
    int rc = d ? 0 : -ENOMEM;
    mr_advice_prepare(&a, x);
    if (!rc)
        rc = ask_rules(&a, d, &n);
    if (!rc)
        rc = put_findings(&a, d, n);
    if (!rc)
        rc = mr_advise_verdict(&a);
    free(d);
    mr_prediction_free(a.training);
    mr_prediction_free(a.evaluation);
    if (!rc && a.failed)
        rc = -ENOMEM;
    return rc ? mr_error_set(err, rc, "cannot judge '%s'", x->source ? x->source : "the run") : 0;
}
