/* Search by replay, measure few: see tune.h. */
#include "loop/tune.h"
#include "advise/explain_open.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "loop/rerun.h"
#include "loop/trial_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LIKE_BEST 0.02  /* of the window: nearer to the best is as good, and the simplest of these is taken */
#define GAIN_LEAST 0.02 /* of the window: less is nothing to tune */
#define RUN_TIMES 1.2   /* a run takes so much longer than the recorded steps, */
#define RUN_MORE_S 3.0  /* and this: start, explanation */

static const double workers_of[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
static const double factors_of[] = {2, 4, 8}; /* batches ahead of a worker */

/* A point of the search. */
struct point {
    double workers, factor;
    bool data, saver;
    double saves; /* seconds of the window */
};

struct search {
    struct mr_tune *u;
    struct mr_what_if *w;
    struct mr_explanation *part; /* counts the window; NULL: the trial's own */
    struct point *point;
    size_t n;
    const char *data; /* "memory", "disk" where the report has a finding for it; NULL: none */
    bool saver;       /* the same for saves */
};

static bool has_finding(const struct mr_explanation *x, const char *id)
{
    for (size_t i = 0; i < x->findings; i++)
        if (!strcmp(x->finding[i].id, id))
            return true;
    return false;
}

/* ---- words ---- */

static void add(struct mr_trial *t, struct mr_tune_setting *s, const char *text)
{
    size_t n = 0;
    while (s->set[n])
        n++;
    s->set[n] = text;
    s->text = s->text && text ? mr_arena_printf(&t->arena, "%s%s%s", s->text, n ? " " : "", text) : NULL;
}

static struct mr_tune_setting setting_of(struct mr_trial *t, const struct search *q, const struct point *p)
{
    struct mr_arena *a = &t->arena;
    struct mr_tune_setting s = {.text = "", .predicted_s = q->u->base_s - p->saves, .measured_s = NAN};
    if (t->own) {
        add(t, &s, mr_arena_printf(a, "reader.read_threads=%.0f", p->workers));
        add(t, &s, mr_arena_printf(a, "reader.prefetch_size=%.0f", p->factor * fmax(1, p->workers)));
        if (p->data)
            add(t, &s, "reader.read_type=memory");
        if (p->saver)
            add(t, &s, "checkpoint.engine=async");
        return s;
    }
    add(t, &s, mr_arena_printf(a, "num_workers=%.0f", p->workers));
    if (p->workers > 0) {
        add(t, &s, mr_arena_printf(a, "prefetch_factor=%.0f", p->factor));
        add(t, &s, "persistent_workers=true");
    }
    if (p->data)
        add(t, &s, mr_arena_printf(a, "data=%s", q->data));
    if (p->saver)
        add(t, &s, "saver=ours");
    return s;
}

/* ---- the search ---- */

static struct mr_what_if_settings replay_of(const struct search *q, const struct point *p)
{
    struct mr_what_if_settings s = mr_what_if_same();
    s.workers = p->workers;
    s.ahead = q->u->trial.own ? p->factor * fmax(1, p->workers) : p->factor * p->workers;
    s.persistent = p->workers > 0 ? 1 : NAN;
    if (p->data) {
        s.cached_share = 1;
        s.cached_bytes_per_s = q->data && *q->data == 'd' ? 1e9 : NAN;
    }
    s.saves = p->saver ? MR_WHAT_IF_SAVES_ASYNC : MR_WHAT_IF_SAVES_SAME;
    return s;
}

static int try_point(struct search *q, struct point p, struct mr_error *err)
{
    const struct mr_what_if_settings s = replay_of(q, &p);
    int rc = mr_trial_settings_save(&q->u->trial, q->w, &s, &p.saves, err);
    if (!rc)
        q->point[q->n++] = p;
    return rc;
}

static int search_all(struct search *q, struct mr_error *err)
{
    const bool own = q->u->trial.own;
    int rc = 0;
    for (size_t w = own ? 1 : 0; w < MR_ARRAY_LEN(workers_of) && !rc; w++)
        for (size_t f = 0; f < MR_ARRAY_LEN(factors_of) && !rc; f++)
            for (unsigned k = 0; k < 4 && !rc; k++) {
                struct point p = {workers_of[w], factors_of[f], k & 1, k >> 1 & 1, 0};
                if ((p.data && !q->data) || (p.saver && !q->saver) || (p.workers < 1 && f))
                    continue;
                rc = try_point(q, p, err);
            }
    return rc;
}

/* What a setting asks of the machine and of the program: fewer is simpler. */
static double effort(const struct point *p)
{
    return p->workers + 0.1 * p->factor + 20 * p->data + 5 * p->saver;
}

/* The simplest of those near the best; `plain`: of loaders alone. NULL: none. */
static const struct point *simplest(const struct search *q, bool plain)
{
    const struct point *best = NULL, *found = NULL;
    for (size_t i = 0; i < q->n; i++)
        if ((!plain || (!q->point[i].data && !q->point[i].saver)) && (!best || q->point[i].saves > best->saves))
            best = &q->point[i];
    for (size_t i = 0; i < q->n && best; i++) {
        const struct point *p = &q->point[i];
        bool near = p->saves >= best->saves - LIKE_BEST * q->u->base_s && (!plain || (!p->data && !p->saver));
        if (near && (!found || effort(p) < effort(found)))
            found = p;
    }
    return found;
}

/* The same with the next number of workers to one side. */
static const struct point *neighbour(const struct search *q, const struct point *of, bool up)
{
    const struct point *found = NULL;
    for (size_t i = 0; i < q->n; i++) {
        const struct point *p = &q->point[i];
        bool same = p->factor == of->factor && p->data == of->data && p->saver == of->saver;
        bool beyond = up ? p->workers > of->workers : p->workers < of->workers;
        if (same && beyond && (!found || fabs(p->workers - of->workers) < fabs(found->workers - of->workers)))
            found = p;
    }
    return found;
}

static void choose(struct search *q, const struct point *p)
{
    struct mr_tune *u = q->u;
    if (!p || u->settings == MR_TUNE_MOST)
        return;
    struct mr_tune_setting s = setting_of(&u->trial, q, p);
    for (size_t i = 0; i < u->settings; i++)
        if (s.text && !strcmp(u->setting[i].text, s.text))
            return;
    if (s.text)
        u->setting[u->settings++] = s;
}

static int choose_all(struct search *q, struct mr_error *err)
{
    struct mr_tune *u = q->u;
    const struct point *best = simplest(q, false), *plain = simplest(q, true);
    if (!best || best->saves < GAIN_LEAST * u->base_s)
        return mr_error_plain(
            err, MR_E_BUDGET,
            "nothing to tune: of %zu settings the best would save %.2g s of the %.3g s of these steps", q->n,
            best ? fmax(0, best->saves) : 0, u->base_s);
    choose(q, best);
    choose(q, neighbour(q, best, true));
    choose(q, plain);
    choose(q, neighbour(q, best, false));
    choose(q, plain ? neighbour(q, plain, true) : NULL);
    return u->settings ? 0 : mr_error_set(err, -ENOMEM, "cannot hold the settings");
}

static int open_part(struct search *q, struct mr_error *err)
{
    struct mr_trial *t = &q->u->trial;
    const struct mr_explain_how how = {
        .explain = {.threads = t->req.threads, .rank = -1, .step_from = -1, .source = t->req.path, .stop = t->req.stop},
        .folder = t->req.path,
        .counted_from = t->from,
        .counted_to = t->to};
    int rc = t->whole ? 0 : mr_explain_open(&t->req.path, 1, &how, &q->part, err);
    return rc ? rc : mr_what_if_open(q->part ? q->part : t->x, &q->w, err);
}

static int search(struct mr_tune *u, struct mr_error *err)
{
    const struct mr_explanation *x = u->trial.x;
    struct search q = {.u = u, .saver = has_finding(x, "CK2") || has_finding(x, "CK1")};
    uint64_t begin = mr_now_ns();
    q.data = has_finding(x, "CA2") ? "memory" : has_finding(x, "CA3") && !u->trial.own ? "disk" : NULL;
    u->base_s = u->trial.recorded.wall_s;
    if (!(u->base_s > 0))
        return mr_error_plain(err, MR_E_INCOMPLETE, "the recorded run ended before the window: --steps FROM:TO");
    q.point = calloc(4 * MR_ARRAY_LEN(workers_of) * MR_ARRAY_LEN(factors_of), sizeof(*q.point));
    int rc = q.point ? open_part(&q, err) : mr_error_set(err, -ENOMEM, "cannot search");
    rc = rc ? rc : search_all(&q, err);
    u->searched = q.n;
    u->searched_s = (double)(mr_now_ns() - begin) / 1e9;
    rc = rc ? rc : choose_all(&q, err);
    mr_what_if_close(q.w);
    mr_explanation_free(q.part);
    free(q.point);
    return rc;
}

/* Fewer settings, where their runs would take longer than allowed: each one once, the best and A twice. */
static int keep_budget(struct mr_tune *u, uint64_t budget_ns, struct mr_error *err)
{
    const struct mr_explanation *x = u->trial.x;
    double each = RUN_MORE_S, all = (double)budget_ns / 1e9;
    for (size_t i = 0; i < x->steps && x->step[i].step < u->trial.to; i++)
        each = fmax(each, RUN_MORE_S + RUN_TIMES * (double)x->step[i].end_ns / 1e9);
    while (budget_ns && u->settings && (double)(u->settings + 3) * each > all)
        u->settings--;
    if (u->settings)
        return 0;
    mr_error_plain(err, MR_E_USAGE, "one setting alone takes 4 runs of about %.0f s; the budget is %.0f s", each, all);
    return mr_error_hint(err, "--steps FROM:TO chooses a shorter window"), MR_E_USAGE;
}

/* The settings as the change of the trial's B. */
static int use(struct mr_tune *u, size_t which, struct mr_error *err)
{
    struct mr_trial *t = &u->trial;
    const struct mr_tune_setting *s = &u->setting[which];
    struct mr_finding *made;
    int rc = mr_injection_settings(t->x, s->set, &t->arena, &made, err);
    if (rc)
        return rc;
    mr_injection_done(&t->injection);
    t->finding = made;
    t->injected = (struct mr_injected){0};
    double saves = u->base_s - s->predicted_s, of = t->recorded.wait_s;
    t->predicted = (struct mr_prediction_share){of > 0 ? fmin(1, saves / of) : NAN, NAN, NAN};
    return mr_injection_of(t->x, made, &t->arena, &t->injection, err);
}

int mr_tune_open(const struct mr_trial_request *request, uint64_t budget_ns, struct mr_tune *out, struct mr_error *err)
{
    /* Any settings will do to open the trial: the search finds others. */
    static const char *const torch[] = {"num_workers=1", NULL};
    struct mr_trial_request q = *request;
    *out = (struct mr_tune){.base_measured_s = NAN};
    q.id = NULL;
    q.set = torch;
    int rc = mr_trial_open(&q, &out->trial, err);
    if (rc)
        return rc;
    rc = search(out, err);
    rc = rc ? rc : keep_budget(out, budget_ns, err);
    rc = rc ? rc : use(out, 0, err);
    if (rc)
        mr_tune_close(out);
    return rc;
}

void mr_tune_close(struct mr_tune *u)
{
    mr_trial_close(&u->trial);
}

/* ---- measuring ---- */

static int run_setting(struct mr_tune *u, size_t which, struct mr_error *err)
{
    struct mr_trial *t = &u->trial;
    struct mr_tune_setting *s = &u->setting[which];
    mr_log(MR_LOG_NOTE, "run %zu of %zu: %s", t->runs + 1, u->settings + 3, s->text);
    int rc = use(u, which, err);
    rc = rc ? rc : mr_trial_next(t, true, err);
    if (rc)
        return rc;
    double took = t->run[t->runs - 1].window.wall_s;
    s->measured_s = t->failed ? NAN : isnan(s->measured_s) ? took : (s->measured_s + took) / 2;
    s->failed = t->failed ? t->failed : s->failed;
    t->failed = NULL;
    return 0;
}

static int run_base(struct mr_tune *u, struct mr_error *err)
{
    struct mr_trial *t = &u->trial;
    mr_log(MR_LOG_NOTE, "run %zu of %zu: as it is", t->runs + 1, u->settings + 3);
    int rc = mr_trial_next(t, false, err);
    double took = rc ? NAN : t->run[t->runs - 1].window.wall_s;
    u->base_measured_s = isnan(u->base_measured_s) ? took : (u->base_measured_s + took) / 2;
    return rc;
}

/* The runs of A and of the best settings alone: those are judged. Run k + 1 is that of setting k. */
static void keep_best(struct mr_trial *t, size_t settings, size_t best)
{
    size_t n = 0;
    for (size_t i = 0; i < t->runs; i++) {
        if (i == 0 || i > settings || i == best + 1)
            t->run[n++] = t->run[i];
        else
            mr_window_done(&t->run[i].window);
    }
    t->runs = n;
}

int mr_tune_run(struct mr_tune *u, struct mr_error *err)
{
    struct mr_trial *t = &u->trial;
    int rc = mr_trial_start(t, u->settings + 3, err);
    rc = rc ? rc : run_base(u, err);
    for (size_t i = 0; i < u->settings && !rc; i++)
        rc = run_setting(u, i, err);
    if (rc)
        return rc;
    for (size_t i = 1; i < u->settings; i++)
        if (!(u->setting[u->best].measured_s <= u->setting[i].measured_s) && !isnan(u->setting[i].measured_s))
            u->best = i;
    if (isnan(u->setting[u->best].measured_s))
        return mr_error_plain(err, MR_E_INCOMPLETE, "the program fails with every setting: %s", u->setting[0].failed);
    rc = run_setting(u, u->best, err);
    rc = rc ? rc : run_base(u, err);
    if (rc)
        return rc;
    keep_best(t, u->settings, u->best);
    return mr_trial_judge(t, err);
}

/* ---- the first trace ---- */

int mr_tune_trace(char *const *argv, uint64_t steps, const struct mr_scratch *scratch, const char *trace,
                  const char *log, uint64_t limit_ns, const atomic_bool *stop, struct mr_error *err)
{
    char plan[PATH_MAX + 32], marks[PATH_MAX + 32], variable[PATH_MAX + 64], others[PATH_MAX + 32];
    struct mr_rerun_result r;
    snprintf(plan, sizeof plan, "%s/first.plan.json", scratch->folder);
    snprintf(marks, sizeof marks, "%s/first.marks", scratch->folder);
    snprintf(others, sizeof others, "%s/others", scratch->folder);
    snprintf(variable, sizeof variable, "MILLRACE_TRY=%s", plan);
    json_t *j = json_pack("{s:i, s:I, s:s, s:s, s:{s:s}}", "version", 1, "end", (json_int_t)steps, "marks", marks,
                          "report", others, "saves", "others", others);
    int rc = j && mkdir(marks, 0700) == 0 && json_dump_file(j, plan, 0) == 0
                 ? 0
                 : mr_error_set(err, -EIO, "cannot write '%s'", plan);
    json_decref(j);
    const char *const extra[] = {variable, NULL};
    const struct mr_rerun how = {
        .argv = argv, .extra = extra, .trace = trace, .log = log, .marks = marks, .limit_ns = limit_ns, .stop = stop};
    mr_log(MR_LOG_NOTE, "tracing '%s' for %llu steps", argv[0], (unsigned long long)steps);
    rc = rc ? rc : mr_rerun(&how, &r, err);
    if (!rc && r.exec_errno)
        rc = mr_error_plain(err, MR_E_USAGE, "cannot run '%s': %s", argv[0], strerror(r.exec_errno));
    return rc;
}
