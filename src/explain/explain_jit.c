/* JAX knows neither optimisers nor steps: which of the compiled functions that a thread calls is its training's is
 * decided here, before anything else looks at spans. Of a process that has no optimiser's steps otherwise:
 *
 *  J1. Functions whose names say that they train (train, update, step ...) do; without any, the one of the others that is
 *      called most. Each of their calls is an optimiser's step.
 *  J2. Calls of functions whose names say that they evaluate or predict are forward passes of an evaluation.
 *  J3. All others compute: what a loop does until the step is called belongs to its wait, as with forward passes.
 *  J4. The device computes beside the loop. It is idle while the loop loads if the loop waits for it in most steps, or
 *      hardly at all; else that is unknown. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>

#define OVERLAP 0.1    /* J4: of the waits for data */
#define CALLS_LEAST 3u /* as optimiser's steps */

struct compiled {
    uint64_t calls;
    bool trains, evaluates;
};

struct jits {
    struct mr_map number; /* by thread and function: index + 1 */
    MR_VEC(struct compiled) of;
    uint32_t *best; /* by thread: index + 1 of what is called most, of those that do not evaluate */
    bool *trains;   /* by thread: some function trains by its name */
    bool *steps;    /* by process: it has optimiser's steps */
};

static bool is_jit(const struct explain_span *s)
{
    return s->role == MR_ROLE_JIT && s->arg[KEY_OPTIMIZER] != UNKNOWN;
}

static struct compiled *compiled_of(struct jits *t, const struct explain_span *s)
{
    uint64_t key = mr_hash_bytes(&s->arg[KEY_OPTIMIZER], sizeof(uint64_t), s->lane + 1);
    uint64_t *at = mr_map_put(&t->number, key);
    if (!at)
        return NULL;
    if (!*at) {
        struct compiled *c = MR_VEC_ADD(&t->of);
        if (!c)
            return NULL;
        *c = (struct compiled){.trains = s->arg[KEY_EVALUATES] == 0, .evaluates = s->arg[KEY_EVALUATES] == 1};
        *at = t->of.n;
    }
    return &t->of.item[*at - 1];
}

static int count_calls(const struct explain_job *j, struct jits *t)
{
    for (size_t i = 0; i < j->span.n; i++) {
        const struct explain_span *s = &j->span.item[i];
        t->steps[j->lane[s->lane].process] |= s->role == MR_ROLE_OPTIMIZER || s->role == MR_ROLE_BACKWARD;
        if (!is_jit(s))
            continue;
        struct compiled *c = compiled_of(t, s);
        if (!c)
            return -ENOMEM;
        c->calls++;
        if (c->evaluates || c->calls < CALLS_LEAST)
            continue;
        uint32_t *best = &t->best[s->lane], me = (uint32_t)(c - t->of.item) + 1;
        *best = *best && t->of.item[*best - 1].calls >= c->calls ? *best : me;
        t->trains[s->lane] |= c->trains;
    }
    return 0;
}

/* J1 to J3 */
static int name_calls(struct explain_job *j, struct jits *t)
{
    for (size_t i = 0; i < j->span.n; i++) {
        struct explain_span *s = &j->span.item[i];
        if (!is_jit(s) || t->steps[j->lane[s->lane].process])
            continue;
        const struct compiled *c = compiled_of(t, s);
        if (!c)
            return -ENOMEM;
        bool steps = t->trains[s->lane] ? c->trains : t->best[s->lane] == (uint32_t)(c - t->of.item) + 1;
        if (steps) {
            s->role = MR_ROLE_OPTIMIZER;
            s->arg[KEY_FORWARD] = 0; /* all of the step is inside */
            j->compiled = true;
        } else if (c->evaluates) {
            s->role = MR_ROLE_FORWARD;
        }
    }
    return 0;
}

int mr_explain_find_jits(struct explain_job *j)
{
    struct jits t = {0};
    bool any = false;
    for (size_t i = 0; i < j->span.n && !any; i++)
        any = is_jit(&j->span.item[i]);
    if (!any)
        return 0;
    t.best = calloc(j->lanes + 1, sizeof(*t.best));
    t.trains = calloc(j->lanes + 1, sizeof(*t.trains));
    t.steps = calloc(j->t->processes + 1, sizeof(*t.steps));
    int rc = t.best && t.trains && t.steps ? count_calls(j, &t) : -ENOMEM;
    rc = rc ? rc : name_calls(j, &t);
    free(t.best);
    free(t.trains);
    free(t.steps);
    free(t.of.item);
    mr_map_done(&t.number);
    return rc;
}

/* J4 */
bool mr_explain_device_overlaps(const struct explain_job *j, uint32_t rank, uint32_t lane, uint64_t waits)
{
    const struct explain_rank *r = &j->rank[rank];
    uint64_t device = 0, steps = 0, blocked = 0, last = UINT64_MAX;
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &j->span.item[i];
        if (s->lane != lane)
            continue;
        steps += s->role == MR_ROLE_OPTIMIZER;
        if (s->role != MR_ROLE_DEVICE)
            continue;
        device += s->end - s->start;
        blocked += steps != last;
        last = steps;
    }
    return 2 * blocked < steps && (double)device > OVERLAP * (double)waits;
}
