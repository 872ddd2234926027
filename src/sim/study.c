/* Runs a scenario under several policies and seeds. */
#include "sim/study.h"
#include "sim/sim_trace.h"
#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const mr_sim_method_names[] = {"auto", "exact", "expected", NULL};

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
    for (unsigned e = 0; e < MR_SIM_EPOCHS_TOLD; e++) {
        m->epochs[e].time_s += w * r->epochs[e].time_s;
        m->epochs[e].pfs_mb += w * r->epochs[e].pfs_mb;
        m->epochs[e].peer_mb += w * r->epochs[e].peer_mb;
        m->epochs[e].own_mb += w * r->epochs[e].own_mb;
    }
    m->consumed_mb += w * r->consumed_mb;
    m->imbalance += w * r->imbalance;
    m->randomness += w * r->randomness;
}

bool mr_study_is_comparable(const struct mr_study_row *row)
{
    return row->mean.possible && row->mean.randomness > 0.99;
}

static int by_time(const void *a, const void *b)
{
    const struct mr_study_row *x = a, *y = b;
    if (x->mean.possible != y->mean.possible)
        return x->mean.possible ? -1 : 1;
    if (mr_study_is_comparable(x) != mr_study_is_comparable(y))
        return mr_study_is_comparable(x) ? -1 : 1;
    return x->mean.time_s < y->mean.time_s ? -1 : x->mean.time_s > y->mean.time_s;
}

int mr_study_trace_path(const struct mr_study_options *o, enum mr_policy_id policy, char out[4096],
                        struct mr_error *err)
{
    unsigned chosen = 0;
    for (int p = 0; p < mr_policy_count(); p++)
        chosen += o->policies[p];
    const char *slash = strrchr(o->trace, '/'), *dot = strrchr(slash ? slash : o->trace, '.');
    size_t stem = dot && dot[1] ? (size_t)(dot - o->trace) : strlen(o->trace);
    int n = chosen > 1 ? snprintf(out, 4096, "%.*s-%s%s", (int)MR_MIN(stem, (size_t)4096), o->trace,
                                  mr_policy_name(policy), o->trace + stem)
                       : snprintf(out, 4096, "%s", o->trace);
    return n < 4096 ? 0 : mr_error_plain(err, MR_E_USAGE, "the name of the trace is longer than 4095 bytes");
}

/* The exact engine, with its events in a file. */
static int run_traced(struct mr_sim_workload *w, enum mr_policy_id p, const struct mr_study_options *o,
                      struct mr_sim_result *r, struct mr_error *err)
{
    char path[4096];
    int rc = mr_study_trace_path(o, p, path, err);
    if (!rc)
        rc = mr_sim_trace_open(path, w, p, &w->trace, err);
    if (rc)
        return rc;
    rc = mr_sim_shared(w, p, o->grain, o->stop, r, err);
    struct mr_error second;
    int closed = mr_sim_trace_close(w->trace, rc ? &second : err);
    w->trace = NULL;
    if (!rc && !r->possible)
        (void)unlink(path); /* nothing ran */
    return rc ? rc : closed;
}

static int run_policy(struct mr_sim_workload *w, enum mr_policy_id p, const struct mr_study_options *o,
                      const struct mr_sim_bounds *b, struct mr_sim_result *r, struct mr_error *err)
{
    int rc = o->thesis  ? mr_sim_thesis(w, p, o->stop, r, err)
             : o->trace ? run_traced(w, p, o, r, err)
                        : mr_sim_shared(w, p, o->grain, o->stop, r, err);
    if (rc)
        return rc;
    r->stall_s = fmax(0, r->time_s - b->compute_only_s);
    r->stall_first_epoch_s = fmax(0, r->first_epoch_s - b->compute_only_s / w->scenario->epochs);
    return 0;
}

/* ---- policies of one seed ---- */

struct crew { /* threads that take the next policy until none is left */
    struct mr_sim_workload *w;
    const struct mr_study_options *o;
    const struct mr_sim_bounds *bounds;
    atomic_int next;
    struct mr_sim_result results[MR_POLICY_MAX];
    struct mr_error errors[MR_POLICY_MAX];
    int rc[MR_POLICY_MAX];
};

static void *run_policies(void *arg)
{
    struct crew *c = arg;
    for (int p; (p = atomic_fetch_add(&c->next, 1)) < mr_policy_count();)
        if (c->o->policies[p]) {
            c->rc[p] = run_policy(c->w, (enum mr_policy_id)p, c->o, c->bounds, &c->results[p], &c->errors[p]);
            if (c->o->progress)
                mr_progress_add(c->o->progress, 1, 0);
        }
    return NULL;
}

/* The exact engine changes the workload (its stream), so only the expected method has company. */
static int run_crew(struct crew *c, struct mr_error *err)
{
    pthread_t helper[MR_POLICY_MAX];
    unsigned helpers = 0,
             want = c->w->step_mb && c->o->threads > 1 ? MR_MIN(c->o->threads - 1, (unsigned)mr_policy_count()) : 0;
    while (helpers < want && pthread_create(&helper[helpers], NULL, run_policies, c) == 0)
        helpers++;
    run_policies(c);
    for (unsigned k = 0; k < helpers; k++)
        pthread_join(helper[k], NULL);
    for (int p = 0; p < mr_policy_count(); p++)
        if (c->rc[p]) {
            if (err)
                *err = c->errors[p];
            return c->rc[p];
        }
    return 0;
}

static int run_seed(struct mr_sim_workload *w, const struct mr_study_options *o, unsigned seed_index,
                    struct mr_study *st, struct mr_error *err)
{
    struct mr_sim_bounds b;
    int rc = st->method == MR_SIM_EXPECTED ? mr_sim_load_steps(w, o->threads, o->stop, err) : 0;
    if (!rc)
        rc = mr_sim_bounds(w, &b, err);
    if (rc)
        return rc;
    struct crew *c = calloc(1, sizeof(*c));
    if (!c)
        return mr_error_set(err, -ENOMEM, "simulating");
    *c = (struct crew){.w = w, .o = o, .bounds = &b};
    rc = run_crew(c, err);
    st->n = 0;
    for (int p = 0; p < mr_policy_count() && !rc; p++)
        if (o->policies[p])
            accumulate(&st->rows[st->n++], &c->results[p], seed_index, o->seeds);
    free(c);
    st->grain = o->thesis ? 1 : st->method == MR_SIM_EXPECTED ? w->per_node : o->grain ? o->grain : mr_sim_grain(w);
    st->bounds.compute_only_s += b.compute_only_s / o->seeds;
    st->bounds.io_aware_s += b.io_aware_s / o->seeds;
    st->dataset_mb += w->total_mb / o->seeds;
    return rc;
}

static int choose_method(const struct mr_scenario *s, const struct mr_study_options *o, enum mr_sim_method *out,
                         struct mr_error *err)
{
    double limit = o->memory_bytes > 0 ? o->memory_bytes : INFINITY;
    bool fits = mr_sim_exact_bytes(s) <= limit;
    enum mr_sim_method m = o->method == MR_SIM_AUTO ? (fits || o->thesis ? MR_SIM_EXACT : MR_SIM_EXPECTED) : o->method;
    double need = m == MR_SIM_EXACT ? mr_sim_exact_bytes(s) : mr_sim_expected_bytes(s);
    if (need > limit) {
        mr_error_set(err, MR_E_CONFIG, "the simulation would take %.1f GB of memory, the limit is %.1f GB", need / 1e9,
                     limit / 1e9);
        return mr_error_hint(err, m == MR_SIM_EXACT ? "take --method expected, or a higher --memory"
                                                    : "fewer epochs, or a higher --memory"),
               MR_E_CONFIG;
    }
    *out = m;
    return 0;
}

int mr_study_run(const struct mr_scenario *s, const struct mr_study_options *o, struct mr_study *out,
                 struct mr_error *err)
{
    struct mr_study *st = calloc(1, sizeof(*st));
    if (!st)
        return mr_error_set(err, -ENOMEM, "simulating");
    st->scenario = *s;
    st->seeds = o->seeds;
    int rc = choose_method(s, o, &st->method, err);
    if (!rc && o->trace && (o->thesis || o->seeds != 1 || st->method != MR_SIM_EXACT)) {
        rc = mr_error_plain(err, MR_E_USAGE, "a trace takes the exact method and one seed");
        mr_error_hint(err, st->method != MR_SIM_EXACT ? "a smaller scenario, or a higher --memory and --method exact"
                                                      : "leave out --seeds and --compat");
    }
    for (unsigned k = 0; k < o->seeds && !rc; k++) {
        struct mr_scenario one = *s;
        one.seed = s->seed + k;
        struct mr_sim_workload w;
        rc = mr_sim_workload_init(&w, &one, err);
        if (rc)
            break;
        rc = run_seed(&w, o, k, st, err);
        mr_sim_workload_done(&w);
    }
    if (!rc) {
        qsort(st->rows, st->n, sizeof(*st->rows), by_time);
        *out = *st;
    }
    free(st);
    return rc;
}
