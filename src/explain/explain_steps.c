/* Steps of any trace but our own runs'. Where the consumer's waits are known a step is what lies from one to the next;
 * else compute spans mark the steps. What each step's time went to comes from the spans of the consumer's thread. */
#include "base/common.h"
#include "explain/explain_internal.h"
#include "metrics/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOGETHER_NS 2000000u /* between the waits of one step for several loaders */

static struct mr_explain_step *add_step(struct explain_job *j, uint32_t rank, uint64_t start, uint64_t end)
{
    struct mr_explain_step *s = MR_VEC_ADD(&j->step);
    if (s)
        *s = (struct mr_explain_step){.rank = rank,
                                      .step = j->step.n - 1 - j->rank[rank].step,
                                      .batch = UNKNOWN,
                                      .start_ns = start,
                                      .end_ns = end,
                                      .accelerator_idle_ns = UNKNOWN,
                                      .bytes = UNKNOWN,
                                      .worker = NO_INDEX,
                                      .file = NO_INDEX};
    return s;
}

/* ---- from waits ---- */

/* Nothing follows the last wait: its step takes as long as the others, or until the program's last word on it. */
static uint64_t last_end(const struct explain_job *j, const struct explain_rank *r, const struct explain_wait *w,
                         double *rest, size_t n)
{
    uint64_t end = 0;
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &j->span.item[i];
        if (s->lane == r->consumer && s->start >= w->end &&
            (s->role == MR_ROLE_OPTIMIZER || s->role == MR_ROLE_COMPUTE || s->role == MR_ROLE_BARRIER))
            end = MR_MAX(end, s->end);
    }
    if (!end && n)
        end = w->end + (uint64_t)mr_quantile(rest, n, 0.5);
    return end && end < r->to ? end : r->to;
}

struct loader_use {
    uint64_t loader, batches, optimised, follows; /* follows: batches taken right behind another loader's */
};
struct loader_uses {
    MR_VEC(struct loader_use) of;
};

/* Looks at the ones used last first: a program may make its loaders anew for every epoch. NULL: no memory. */
static struct loader_use *use_of(struct loader_uses *u, uint64_t loader)
{
    for (size_t i = u->of.n; i-- > 0;)
        if (u->of.item[i].loader == loader)
            return &u->of.item[i];
    struct loader_use *new = MR_VEC_ADD(&u->of);
    if (new)
        *new = (struct loader_use){.loader = loader};
    return new;
}

static bool follows(const struct explain_job *j, const struct explain_rank *r, uint32_t i)
{
    const struct explain_wait *w = &j->wait.item[i], *before = i > r->wait ? w - 1 : NULL;
    return before && !before->last && w->loader != UNKNOWN && w->loader != before->loader &&
           w->start <= before->end + TOGETHER_NS;
}

static int count_follows(const struct explain_job *j, const struct explain_rank *r, struct loader_uses *uses)
{
    for (uint32_t i = r->wait; i < r->wait + r->waits; i++) {
        struct loader_use *u = j->wait.item[i].last ? NULL : use_of(uses, j->wait.item[i].loader);
        if (!u && !j->wait.item[i].last)
            return -ENOMEM;
        if (u) {
            u->batches++;
            u->follows += follows(j, r, i);
        }
    }
    return 0;
}

/* A loop may take a batch from each of several loaders for one step (zip): nothing but the next wait follows the one
 * before, with most batches of that loader; the first batch behind an evaluation that computes nothing is chance. *at:
 * the first span behind the wait before. */
static bool same_step(const struct explain_job *j, const struct explain_rank *r, struct loader_uses *uses, uint32_t i,
                      uint32_t *at)
{
    const struct explain_wait *w = &j->wait.item[i], *before = i > r->wait ? w - 1 : NULL;
    const struct loader_use *u =
        before && before->step != NO_INDEX && follows(j, r, i) ? use_of(uses, w->loader) : NULL;
    if (!u || 2 * u->follows < u->batches)
        return false;
    for (uint32_t k = i; k-- > r->wait && j->wait.item[k].step == before->step;)
        if (j->wait.item[k].loader == w->loader || j->wait.item[k].loader == UNKNOWN)
            return false;
    while (*at < r->span + r->spans && j->span.item[*at].start < before->end)
        (*at)++;
    for (uint32_t k = *at; k < r->span + r->spans && j->span.item[k].start < w->start; k++)
        if (j->span.item[k].role == MR_ROLE_OPTIMIZER)
            return false;
    return true;
}

static void join_idle(struct mr_explain_step *s, uint64_t idle)
{
    if (idle != UNKNOWN)
        s->accelerator_idle_ns = idle + (s->accelerator_idle_ns != UNKNOWN ? s->accelerator_idle_ns : 0);
}

static int steps_from_waits(struct explain_job *j, uint32_t rank)
{
    struct explain_rank *r = &j->rank[rank];
    double *rest = malloc((r->waits + 1) * sizeof(*rest));
    struct loader_uses uses = {0};
    uint32_t at = r->span;
    size_t n = 0;
    int rc = rest ? count_follows(j, r, &uses) : -ENOMEM;
    for (uint32_t i = r->wait; i < r->wait + r->waits && !rc; i++) {
        struct explain_wait *w = &j->wait.item[i];
        bool more = i + 1 < r->wait + r->waits, joins = !w->last && same_step(j, r, &uses, i, &at);
        if (w->last)
            continue;
        n -= joins; /* what followed the wait before is this one */
        uint64_t end = more ? j->wait.item[i + 1].start : last_end(j, r, w, rest, n);
        end = MR_MAX(end, w->end);
        struct mr_explain_step *s = joins ? &j->step.item[j->step.n - 1] : add_step(j, rank, w->start, end);
        if (!s) {
            rc = -ENOMEM;
            break;
        }
        if (!joins) {
            s->epoch = w->epoch < UINT32_MAX ? (uint32_t)w->epoch : 0;
            s->batch = w->batch;
        }
        s->end_ns = end;
        join_idle(s, w->idle);
        w->step = (uint32_t)j->step.n - 1;
        if (more)
            rest[n++] = (double)(end - w->end);
    }
    free(rest);
    free(uses.of.item);
    return rc;
}

/* The training loader is the one with optimiser steps, or backward passes, in its loop; where nobody tells of any, the
 * one with the most batches. What the others give is evaluation. */
static int count_uses(const struct explain_job *j, const struct explain_rank *r, struct loader_uses *uses)
{
    uint32_t at = r->span;
    for (uint32_t i = r->wait; i < r->wait + r->waits; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        if (w->step == NO_INDEX)
            continue;
        struct loader_use *u = use_of(uses, w->loader);
        if (!u)
            return -ENOMEM;
        u->batches++;
        while (at < r->span + r->spans && j->span.item[at].start < w->end)
            at++;
        for (uint32_t k = at; k < r->span + r->spans && j->span.item[k].start < j->step.item[w->step].end_ns; k++)
            u->optimised += j->span.item[k].role == MR_ROLE_OPTIMIZER || j->span.item[k].role == MR_ROLE_BACKWARD;
    }
    return 0;
}

static int mark_evaluation(struct explain_job *j, struct explain_rank *r)
{
    struct loader_uses uses = {0};
    size_t best = 0;
    int rc = count_uses(j, r, &uses);
    const struct loader_use *use = uses.of.item;
    for (size_t i = 1; i < uses.of.n; i++)
        if (use[i].optimised != use[best].optimised ? use[i].optimised > use[best].optimised
                                                    : use[i].batches > use[best].batches)
            best = i;
    for (uint32_t i = r->wait; i < r->wait + r->waits && uses.of.n > 1 && !rc; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        if (w->step == NO_INDEX)
            continue;
        const struct loader_use *u = use_of(&uses, w->loader);
        if (use[best].optimised ? !u->optimised : u != &use[best])
            j->step.item[w->step].phase = MR_EXPLAIN_EVAL;
    }
    free(uses.of.item);
    return rc;
}

/* A program that makes its loader anew for every epoch has many loaders of one epoch each: epochs are counted over
 * them, as long as none of them comes back. Loaders have numbers in the order of their first use. */
static void number_epochs(struct explain_job *j, const struct explain_rank *r)
{
    for (unsigned pass = 0; pass < 2; pass++) {
        uint64_t loader = UNKNOWN, epoch = UNKNOWN;
        uint32_t epochs = 0, step = NO_INDEX, loaders = 0;
        for (uint32_t i = r->wait; i < r->wait + r->waits; i++) {
            const struct explain_wait *w = &j->wait.item[i];
            if (w->step == NO_INDEX || w->step == step || j->step.item[w->step].phase == MR_EXPLAIN_EVAL)
                continue;
            step = w->step;
            if (w->loader == UNKNOWN || (loader != UNKNOWN && w->loader < loader))
                return; /* taken by turns, or nobody knows */
            epochs += w->loader != loader || w->epoch != epoch;
            loaders += w->loader != loader;
            loader = w->loader;
            epoch = w->epoch;
            if (pass)
                j->step.item[step].epoch = epochs - 1;
        }
        if (loaders < 2)
            return;
    }
}

/* ---- from compute spans ---- */

static bool is_compute(unsigned role)
{
    return role == MR_ROLE_COMPUTE || role == MR_ROLE_COMPUTE_LOOP;
}

static int add_gap_wait(struct explain_job *j, uint32_t rank, uint64_t start, uint64_t end, uint64_t number)
{
    struct explain_wait *w = MR_VEC_ADD(&j->wait);
    if (!w)
        return -ENOMEM;
    *w = (struct explain_wait){.start = start,
                               .end = end,
                               .batch = number,
                               .loader = UNKNOWN,
                               .rows = UNKNOWN,
                               .bytes = UNKNOWN,
                               .workers = UNKNOWN,
                               .prefetch = UNKNOWN,
                               .requested = UNKNOWN,
                               .ready = UNKNOWN,
                               .sums = {.readers = UNKNOWN},
                               .idle = UNKNOWN,
                               .begun = start,
                               .rank = rank,
                               .lane = j->rank[rank].consumer,
                               .step = (uint32_t)j->step.n - 1,
                               .make = NO_INDEX};
    j->rank[rank].waits++;
    return 0;
}

/* A step ends with its compute, and with what is waited for right behind it; spans of one step number are one. */
static int steps_from_compute(struct explain_job *j, uint32_t rank)
{
    struct explain_rank *r = &j->rank[rank];
    struct mr_explain_step *last = NULL;
    uint64_t number = UNKNOWN, until = 0, from = 0;
    if (!r->waits)
        r->wait = (uint32_t)j->wait.n;
    bool gaps_wait = !r->waits;
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &j->span.item[i];
        if (s->lane != r->consumer || s->start < until)
            continue;
        bool follows = last && (s->role == MR_ROLE_BARRIER || s->role == MR_ROLE_SAVE);
        if (follows)
            last->end_ns = MR_MAX(last->end_ns, s->end);
        if (s->role == MR_ROLE_WAIT && (!last || s->start >= last->end_ns) && !from)
            from = s->start;
        if (!is_compute(s->role))
            continue;
        until = s->end;
        if (last && number != UNKNOWN && s->arg[KEY_STEP] == number) {
            last->end_ns = MR_MAX(last->end_ns, s->end);
            continue;
        }
        uint64_t start = last ? last->end_ns : from ? MR_MIN(from, s->start) : s->start;
        last = add_step(j, rank, start, s->end);
        if (!last)
            return -ENOMEM;
        last->epoch = s->arg[KEY_EPOCH] < UINT32_MAX ? (uint32_t)s->arg[KEY_EPOCH] : 0;
        number = s->arg[KEY_STEP];
        if (s->role == MR_ROLE_COMPUTE_LOOP && gaps_wait && start < s->start &&
            add_gap_wait(j, rank, start, s->start, last->step))
            return -ENOMEM;
    }
    return 0;
}

static void place_waits(struct explain_job *j, const struct explain_rank *r)
{
    uint32_t at = r->step;
    for (uint32_t i = r->wait; i < r->wait + r->waits; i++) {
        struct explain_wait *w = &j->wait.item[i];
        while (at < j->step.n && j->step.item[at].end_ns <= w->start)
            at++;
        if (w->step == NO_INDEX && at < j->step.n && j->step.item[at].start_ns <= w->start)
            w->step = at;
    }
}

/* What the accelerator waited for other ranks, by the time at which the host had asked for it. */
static void place_collectives(struct explain_job *j, const struct explain_rank *r)
{
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &j->span.item[i];
        uint32_t lo = r->step, hi = r->step + r->steps;
        while (s->role == MR_ROLE_ACCELERATOR_COLLECTIVE && lo < hi) { /* the first step that ends behind it */
            uint32_t mid = (lo + hi) / 2;
            if (j->step.item[mid].end_ns < s->end)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (s->role == MR_ROLE_ACCELERATOR_COLLECTIVE && lo < r->step + r->steps && j->step.item[lo].start_ns <= s->end)
            j->step.item[lo].collective_ns += s->end - s->start;
    }
}

/* ---- without a loader ---- */

static int steps_from_begins(struct explain_job *j, uint32_t rank)
{
    const struct explain_rank *r = &j->rank[rank];
    for (size_t i = 0; i < r->begin.n; i++) {
        uint64_t end = i + 1 < r->begin.n ? r->begin.item[i + 1].at : r->trained;
        struct mr_explain_step *s = add_step(j, rank, r->begin.item[i].at, end);
        if (!s)
            return -ENOMEM;
        s->batch = s->step;
        s->phase = r->begin.item[i].evaluates ? MR_EXPLAIN_EVAL : MR_EXPLAIN_TRAIN;
    }
    return 0;
}

/* ---- one rank ---- */

static uint8_t class_of(unsigned role)
{
    switch (role) {
    case MR_ROLE_COMPUTE:
    case MR_ROLE_COMPUTE_LOOP: return MR_TIME_COMPUTE;
    case MR_ROLE_SAVE:
    case MR_ROLE_RESTORE:
    case MR_ROLE_DRAIN_WAIT: return MR_TIME_CHECKPOINT;
    case MR_ROLE_BARRIER: return MR_TIME_BARRIER;
    case MR_ROLE_COPY: return MR_TIME_COPY;
    default: return MR_TIME_CLASS_COUNT;
    }
}

static int paint_rank(struct explain_job *j, uint32_t rank)
{
    struct explain_rank *r = &j->rank[rank];
    struct explain_paint *p =
        malloc((2 * (size_t)r->spans + r->waits + r->log.n + r->held.n + r->state.n + 1) * sizeof(*p));
    const struct explain_span *saved = NULL;
    size_t n = 0;
    if (!p)
        return -ENOMEM;
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &j->span.item[i];
        uint8_t what = class_of(s->role);
        if (s->lane != r->consumer || what == MR_TIME_CLASS_COUNT)
            continue;
        p[n++] = (struct explain_paint){s->start, s->end, what};
        if (saved && s->role == MR_ROLE_SAVE && saved->end < s->start && mr_explain_same_save(j, saved, s))
            p[n++] = (struct explain_paint){saved->end, s->start, what};
        saved = s->role == MR_ROLE_SAVE && (!saved || s->end > saved->end) ? s : saved;
    }
    for (uint32_t i = r->wait; i < r->wait + r->waits; i++)
        p[n++] = (struct explain_paint){j->wait.item[i].start, j->wait.item[i].end, MR_TIME_STALL};
    for (size_t i = 0; i < r->log.n; i++)
        p[n++] = (struct explain_paint){r->log.item[i].start, r->log.item[i].end, MR_TIME_LOGGING};
    for (size_t i = 0; i < r->held.n; i++)
        p[n++] = (struct explain_paint){r->held.item[i].start, r->held.item[i].end, MR_TIME_CHECKPOINT};
    for (size_t i = 0; i < r->state.n; i++)
        p[n++] = (struct explain_paint){r->state.item[i].start, r->state.item[i].end, MR_TIME_CHECKPOINT};
    int rc = mr_explain_paint(j, rank, p, n);
    free(p);
    return rc;
}

static int find_rank_steps(struct explain_job *j, uint32_t rank)
{
    struct explain_rank *r = &j->rank[rank];
    uint32_t computes = 0, loops = 0;
    int rc = 0;
    r->step = (uint32_t)j->step.n;
    for (uint32_t i = r->span; i < r->span + r->spans; i++)
        if (j->span.item[i].lane == r->consumer && is_compute(j->span.item[i].role)) {
            computes++;
            loops += j->span.item[i].role == MR_ROLE_COMPUTE_LOOP;
        }
    r->rest = computes ? MR_TIME_OTHER : MR_TIME_COMPUTE;
    if (r->hand) {
        rc = steps_from_begins(j, rank);
        if (!rc)
            place_waits(j, r);
        for (uint32_t i = r->wait; i < r->wait + r->waits && !rc; i++)
            if (j->wait.item[i].step != NO_INDEX)
                join_idle(&j->step.item[j->wait.item[i].step], j->wait.item[i].idle);
    } else if (r->waits && r->waits >= computes / 2) {
        rc = steps_from_waits(j, rank);
        rc = rc ? rc : mark_evaluation(j, r);
        if (!rc)
            number_epochs(j, r);
    } else if (computes) {
        rc = steps_from_compute(j, rank);
        if (!rc)
            place_waits(j, r);
        if (loops == computes && loops)
            r->rest = MR_TIME_STALL;
    }
    r->steps = (uint32_t)j->step.n - r->step;
    if (!rc)
        place_collectives(j, r);
    return rc;
}

int mr_explain_find_steps(struct explain_job *j)
{
    int rc = 0;
    for (uint32_t r = 0; r < j->ranks && !rc; r++)
        rc = find_rank_steps(j, r);
    if (!rc)
        mr_explain_choose_steps(j);
    for (uint32_t r = 0; r < j->ranks && !rc; r++)
        rc = paint_rank(j, r);
    return rc;
}

/* ---- the wanted ones ---- */

static bool is_wanted(const struct explain_job *j, const struct mr_explain_step *s)
{
    const struct mr_explain_options *o = j->opt;
    const struct explain_rank *r = &j->rank[s->rank];
    if (s->start_ns < r->from || s->start_ns >= r->to)
        return false;
    return o->step_from < 0 || (s->step >= (uint64_t)o->step_from && s->step <= (uint64_t)o->step_to);
}

void mr_explain_choose_steps(struct explain_job *j)
{
    uint32_t *now = calloc(j->step.n + 1, sizeof(*now)), n = 0; /* index + 1 after choosing */
    if (!now)
        return; /* all stay: more than was asked for */
    for (uint32_t r = 0; r < j->ranks; r++) {
        struct explain_rank *k = &j->rank[r];
        uint32_t first = n;
        for (uint32_t i = k->step; i < k->step + k->steps; i++) {
            if (!is_wanted(j, &j->step.item[i]))
                continue;
            j->step.item[n] = j->step.item[i];
            j->step.item[n].end_ns = MR_MIN(j->step.item[n].end_ns, k->to);
            now[i] = ++n;
        }
        k->step = first;
        k->steps = n - first;
        if (j->opt->step_from >= 0 && k->steps) {
            k->from = j->step.item[first].start_ns;
            k->to = j->step.item[n - 1].end_ns;
        } else if (j->opt->step_from >= 0) {
            k->to = k->from;
        }
    }
    j->step.n = n;
    for (size_t i = 0; i < j->wait.n; i++)
        if (j->wait.item[i].step != NO_INDEX)
            j->wait.item[i].step = now[j->wait.item[i].step] ? now[j->wait.item[i].step] - 1 : NO_INDEX;
    free(now);
}
