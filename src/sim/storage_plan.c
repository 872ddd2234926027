/* The least storage per node that keeps a policy from stalling: bisection over the capacity of one class at a time. Run
 * time falls with capacity (up to a few percent of noise, see the monotony test), so bisection ends within 1 % of the
 * answer. */
#include "sim/study.h"
#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct planner {
    struct mr_scenario s; /* capacities change */
    struct mr_study_options o;
    enum mr_policy_id policy;
    struct mr_study *study;
    double limit_s; /* run time to stay within, once known; else 0 and the stall decides */
    double max_stall;
};

struct outcome {
    double time_s, stall;
};

static int try_capacity(struct planner *p, unsigned class, double mb, struct outcome *out, struct mr_error *err)
{
    p->s.system.classes[class].capacity_mb = mb;
    int rc = mr_study_run(&p->s, &p->o, p->study, err);
    if (rc)
        return rc;
    const struct mr_sim_result *r = &p->study->rows[0].mean;
    if (!r->possible)
        *out = (struct outcome){INFINITY, 1};
    else
        *out = (struct outcome){r->time_s, r->time_s > 0 ? r->stall_s / r->time_s : 0};
    return 0;
}

static bool good_enough(const struct planner *p, const struct outcome *x)
{
    return p->limit_s > 0 ? x->time_s <= p->limit_s : x->stall <= p->max_stall;
}

static void note(struct mr_storage_answer *a, double mb, const struct outcome *x)
{
    unsigned i = a->n;
    if (a->n == MR_STORAGE_CURVE_MAX || !isfinite(x->time_s))
        return;
    for (; i > 0 && a->curve[i - 1].capacity_mb > mb; i--)
        a->curve[i] = a->curve[i - 1];
    a->curve[i].capacity_mb = mb;
    a->curve[i].time_s = x->time_s;
    a->curve[i].stall = x->stall;
    a->n++;
}

/* Known: `high` is enough. Ends at 1 % of the data set or of the answer, whichever is finer, after 16 runs at most. */
static int bisect(struct planner *p, struct mr_storage_answer *a, double high, struct mr_error *err)
{
    struct outcome x;
    double low = 0, whole = high;
    int rc = try_capacity(p, a->class, 0, &x, err);
    if (rc)
        return rc;
    note(a, 0, &x);
    if (good_enough(p, &x))
        high = 0;
    for (int k = 0; k < 16 && !rc && high - low > fmin(0.01 * whole, 0.01 * high); k++) {
        double mid = (low + high) / 2;
        rc = try_capacity(p, a->class, mid, &x, err);
        if (!rc)
            note(a, mid, &x);
        if (good_enough(p, &x))
            high = mid;
        else
            low = mid;
    }
    a->capacity_mb = high;
    return rc;
}

static int plan_class(struct planner *p, const struct mr_scenario *s, unsigned class, struct mr_storage_plan *plan,
                      struct mr_error *err)
{
    struct mr_storage_answer *a = &plan->answers[plan->n_answers];
    struct outcome x;
    p->s = *s;
    for (unsigned j = class + 1; j < s->system.n_classes; j++)
        p->s.system.classes[j].capacity_mb = 0;
    *a = (struct mr_storage_answer){.class = class};
    snprintf(a->class_name, sizeof a->class_name, "%s", s->system.classes[class].name);
    /* Room for everything: the whole set with a margin for its random size. */
    double all = 1.05 * p->study->dataset_mb;
    int rc = try_capacity(p, class, all, &x, err);
    if (rc)
        return rc;
    note(a, all, &x);
    if (plan->n_answers == 0) {
        plan->best_stall = x.stall;
        plan->reachable = x.stall <= p->max_stall;
        p->limit_s = plan->reachable ? 0 : x.time_s * (1 + p->max_stall);
    }
    if (!good_enough(p, &x))
        return 0; /* this class is too slow whatever its size: no answer */
    plan->n_answers++;
    return bisect(p, a, all, err);
}

int mr_study_plan(const struct mr_scenario *s, enum mr_policy_id policy, double max_stall,
                  const struct mr_study_options *o, struct mr_storage_plan *out, struct mr_error *err)
{
    if (s->system.n_classes < 2)
        return mr_error_set(err, MR_E_UNSUPPORTED, "system '%s' has no storage class beside the staging buffer",
                            s->system.name);
    struct planner p = {
        .s = *s, .o = *o, .policy = policy, .max_stall = max_stall, .study = calloc(1, sizeof(*p.study))};
    struct mr_storage_plan *plan = calloc(1, sizeof(*plan));
    struct outcome x;
    int rc = p.study && plan ? 0 : mr_error_set(err, -ENOMEM, "planning storage");
    for (int k = 0; k < mr_policy_count(); k++)
        p.o.policies[k] = k == (int)policy;
    if (!rc) /* for the size of the data set */
        rc = try_capacity(&p, 1, s->system.classes[1].capacity_mb, &x, err);
    if (!rc) {
        plan->policy = policy;
        plan->max_stall = max_stall;
    }
    for (unsigned j = 1; j < s->system.n_classes && !rc; j++)
        rc = plan_class(&p, s, j, plan, err);
    if (!rc)
        *out = *plan;
    free(p.study);
    free(plan);
    return rc;
}
