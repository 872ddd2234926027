/* Runs a scenario under several policies and seeds. */
#include "sim/study.h"
#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void accumulate(struct mr_study_row *row, const struct mr_sim_result *r, unsigned seed_index, unsigned seeds)
{
    double w = 1.0 / seeds;
    struct mr_sim_result *m = &row->mean;
    if (seed_index == 0) {
        *m = (struct mr_sim_result){.policy = r->policy, .possible = true};
        row->time_min_s = row->time_max_s = r->time_s;
    }
    if (!r->possible) {
        m->possible = false;
        memcpy(m->why, r->why, sizeof m->why);
        return;
    }
    row->time_min_s = fmin(row->time_min_s, r->time_s);
    row->time_max_s = fmax(row->time_max_s, r->time_s);
    m->time_s += w * r->time_s;
    m->stall_s += w * r->stall_s;
    m->first_epoch_s += w * r->first_epoch_s;
    m->stall_first_epoch_s += w * r->stall_first_epoch_s;
    m->preload_s += w * r->preload_s;
    m->pfs_mb += w * r->pfs_mb;
    m->peer_mb += w * r->peer_mb;
    for (unsigned j = 0; j < MR_CLASS_MAX; j++)
        m->class_mb[j] += w * r->class_mb[j];
    m->consumed_mb += w * r->consumed_mb;
    m->imbalance += w * r->imbalance;
    m->randomness += w * r->randomness;
}

static int by_time(const void *a, const void *b)
{
    const struct mr_study_row *x = a, *y = b;
    if (x->mean.possible != y->mean.possible)
        return x->mean.possible ? -1 : 1;
    return x->mean.time_s < y->mean.time_s ? -1 : x->mean.time_s > y->mean.time_s;
}

static int run_policy(struct mr_sim_workload *w, enum mr_policy_id p, const struct mr_study_options *o,
                      const struct mr_sim_bounds *b, struct mr_sim_result *r, struct mr_error *err)
{
    int rc = o->thesis ? mr_sim_thesis(w, p, o->stop, r, err) : mr_sim_shared(w, p, o->grain, o->stop, r, err);
    if (rc)
        return rc;
    r->stall_s = fmax(0, r->time_s - b->compute_only_s);
    r->stall_first_epoch_s = fmax(0, r->first_epoch_s - b->compute_only_s / w->scenario->epochs);
    return 0;
}

int mr_study_run(const struct mr_scenario *s, const struct mr_study_options *o, struct mr_study *out, struct mr_error *err)
{
    struct mr_study *st = calloc(1, sizeof(*st));
    if (!st)
        return mr_error_set(err, -ENOMEM, "simulating");
    st->scenario = *s;
    int rc = 0;
    for (unsigned k = 0; k < o->seeds && !rc; k++) {
        struct mr_scenario one = *s;
        one.seed = s->seed + k;
        struct mr_sim_workload w;
        struct mr_sim_bounds b;
        rc = mr_sim_workload_init(&w, &one, err);
        if (rc)
            break;
        rc = mr_sim_bounds(&w, &b, err);
        st->n = 0;
        st->grain = o->thesis ? 1 : o->grain ? o->grain : mr_sim_grain(&w);
        for (int p = 0; p < MR_POLICY_COUNT && !rc; p++) {
            struct mr_sim_result r;
            if (!o->policies[p])
                continue;
            rc = run_policy(&w, (enum mr_policy_id)p, o, &b, &r, err);
            if (!rc)
                accumulate(&st->rows[st->n++], &r, k, o->seeds);
        }
        st->bounds.compute_only_s += b.compute_only_s / o->seeds;
        st->bounds.io_aware_s += b.io_aware_s / o->seeds;
        st->dataset_mb += w.total_mb / o->seeds;
        mr_sim_workload_done(&w);
    }
    if (!rc) {
        qsort(st->rows, st->n, sizeof(*st->rows), by_time);
        *out = *st;
    }
    free(st);
    return rc;
}
