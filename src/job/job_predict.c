/* Predicting a job (`run --virtual`): the same workload on the virtual clock against a storage model, in seconds
 * instead of hours. The simulator (src/sim) plays the order, the batches and the compute time of the workload on every
 * rank; the model says how the storage shares its bandwidth among them. Training, to the step at which
 * total_training_steps ends it, and an evaluation are played apart and added up; checkpoints are
 * predict_checkpoint.c's. */
#include "base/common.h"
#include "job/job_predict.h"
#include "job/job_tiers.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MB 1e6

/* Without reading threads the trainer reads on demand. mr_job_check found what cannot be. */
static const char *policy_of(const struct mr_job *j)
{
    struct mr_loader_choice c;
    return mr_job_policy(j, &c, NULL) ? "staging" : c.policy;
}

static int play(const struct mr_job *j, const struct mr_system *sys, const struct mr_job_part *part,
                struct mr_job_played *sum, struct mr_error *err)
{
    struct mr_scenario s;
    struct mr_sim_workload w = {0};
    struct mr_sim_bounds bounds;
    struct mr_sim_result res = {0};
    enum mr_policy_id policy;
    if (!part->steps || !part->epochs)
        return 0;
    mr_job_scenario(j, sys, part, &s);
    int rc = mr_policy_parse(policy_of(j), &policy, err);
    if (!rc)
        rc = mr_scenario_check(&s, err);
    if (!rc)
        rc = mr_sim_workload_init(&w, &s, err);
    w.skip_first = (uint64_t)j->w->output_metric.exclude_start_steps;
    w.skip_last = (uint64_t)j->w->output_metric.exclude_end_steps;
    if (!rc)
        rc = mr_sim_bounds(&w, &bounds, err);
    if (!rc)
        rc = mr_sim_shared(&w, policy, 0, j->stop, &res, err);
    if (!rc && !res.possible)
        rc = mr_error_plain(err, MR_E_CONFIG, "the model cannot run this workload: %s", res.why);
    mr_sim_workload_done(&w);
    if (rc)
        return rc;
    sum->first_epoch_s = sum->time_s > 0 ? sum->first_epoch_s : res.first_epoch_s;
    sum->time_s += res.time_s;
    sum->compute_s += part->compute_s > 0 ? bounds.compute_only_s : 0;
    sum->counted_s += res.counted_s;
    sum->counted_compute_s += (double)res.counted_steps * part->compute_s;
    sum->read_bytes += part->reads ? res.pfs_mb * MB : 0;
    return 0;
}

static int play_training(const struct mr_job *j, const struct mr_system *sys, struct mr_job_played *sum,
                         struct mr_error *err)
{
    struct mr_job_part training;
    mr_job_training(j, &training);
    return play(j, sys, &training, sum, err);
}

static int play_evaluation(const struct mr_job *j, const struct mr_system *sys, struct mr_job_played *once,
                           struct mr_error *err)
{
    const struct mr_workload_plan *p = &j->plan;
    struct mr_job_part part = {.samples = p->eval_samples,
                               .steps = p->evaluations ? p->eval_steps : 0,
                               .epochs = 1,
                               .batch = (uint64_t)j->w->reader.batch_size_eval,
                               .compute_s = mr_dist_mean(&j->w->evaluation.eval_time),
                               .order = MR_ORDER_SEQUENTIAL,
                               .reads = j->w->dataset.format != MR_CF_SYNTHETIC};
    return play(j, sys, &part, once, err);
}

/* ---- the whole ---- */

/* Every rank reads all of it, before the first step. */
static int predict_preload(const struct mr_job *j, struct mr_job_prediction *v, struct mr_error *err)
{
    if (!mr_job_reads_samples(j) || j->w->reader.read_type != MR_CONF_READ_MEMORY)
        return 0;
    double *mb = calloc(j->plan.ranks, sizeof(*mb));
    if (!mb)
        return mr_error_set(err, -ENOMEM, "cannot predict the reading of %u ranks", j->plan.ranks);
    for (uint32_t k = 0; k < j->plan.ranks; k++)
        mb[k] = j->plan.train_bytes / MB;
    v->preload_s = mr_job_shared_s(&v->system, false, mb, j->plan.ranks);
    v->train.read_bytes += j->plan.train_bytes * j->plan.ranks;
    free(mb);
    return 0;
}

/* Over the steps that a run counts, too. */
static double au_of(const struct mr_job_played *t)
{
    return t->counted_s > 0 ? fmin(1, t->counted_compute_s / t->counted_s) : 0;
}

/* Of what is computed: utilisation and the like follow from the parts. */
static void add_up(const struct mr_job *j, struct mr_job_prediction *v)
{
    const struct mr_job_played *t = &v->train;
    double samples = (double)j->plan.total_steps * (double)j->w->reader.batch_size * j->plan.ranks;
    v->eval_s = v->eval.time_s * (double)j->plan.evaluations;
    v->duration_s = v->preload_s + t->time_s + v->eval_s + v->ckpt.total_s;
    v->au = au_of(t);
    v->stall_s = fmax(0, t->time_s - t->compute_s);
    v->samples_per_s = t->time_s > 0 ? samples / t->time_s : 0;
}

static void scale(struct mr_system *sys, double by)
{
    for (unsigned i = 0; i < sys->pfs_mbps.n; i++)
        sys->pfs_mbps.y[i] *= by;
    sys->pfs_stream_mbps *= by;
}

#define SMALL_FILE_BYTES 1e6 /* of files below, opening is a good part of reading */
#define LEAST_SPREAD 1.0     /* where the rates leave something out: half to double */

/* What is known to be left out by rates that were measured by the size of requests in one open file. */
static const char *missing_in(const struct mr_job *j, const struct mr_system *sys)
{
    double record = j->plan.read_bytes;
    if (!sys->n_requests || !mr_job_reads_samples(j))
        return NULL;
    if (j->w->dataset.num_samples_per_file == 1 && record < SMALL_FILE_BYTES)
        return "opening a small file for each sample is not in them";
    if (record > sys->requests[sys->n_requests - 1].mb * MB)
        return "samples are larger than any request that was measured";
    return NULL;
}

/* What the run would be at the ends of what was measured. */
static int predict_spread(const struct mr_job *j, struct mr_job_prediction *v, struct mr_error *err)
{
    double spread = v->system.pfs_spread, au[2];
    if (spread > 0 && (v->missing = missing_in(j, &v->system)))
        spread = fmax(spread, LEAST_SPREAD);
    const double ends[2] = {1 / (1 + spread), 1 + spread};
    v->au_low = v->au_high = NAN;
    v->other_reads = !j->w->reader.odirect && !v->system.n_requests && /* a file of before there were these */
                     strstr(v->system.source, "millrace calibrate");
    if (!(v->system.pfs_spread > 0))
        return 0;
    for (int i = 0; i < 2; i++) {
        struct mr_system sys = v->system;
        struct mr_job_played t = {0};
        scale(&sys, ends[i]);
        int rc = play_training(j, &sys, &t, err);
        if (rc)
            return rc;
        au[i] = au_of(&t);
    }
    v->au_low = fmin(au[0], v->au);
    v->au_high = fmax(au[1], v->au);
    return 0;
}

int mr_job_predict(struct mr_job *j, struct mr_job_prediction *out, struct mr_error *err)
{
    struct mr_job_prediction v = {.policy = policy_of(j)};
    int rc = mr_job_make_plan(j, err);
    if (!rc && (rc = mr_job_load_system(j, &v.system, err)) == MR_E_USAGE)
        mr_error_hint(err, "name one of workloads/systems or a file: --system lassen");
    if (!rc && j->w->workflow.train)
        rc = play_training(j, &v.system, &v.train, err);
    if (!rc && j->w->workflow.train)
        rc = play_evaluation(j, &v.system, &v.eval, err);
    if (!rc && j->w->workflow.train)
        rc = predict_preload(j, &v, err);
    if (!rc)
        rc = mr_job_predict_checkpoints(j, &v.system, v.train.time_s, &v.ckpt, err);
    if (rc)
        return rc;
    add_up(j, &v);
    if (j->w->workflow.train && (rc = predict_spread(j, &v, err)))
        return rc;
    if (!j->w->workflow.train)
        v.duration_s += j->plan.pause_s;
    *out = v;
    return 0;
}
