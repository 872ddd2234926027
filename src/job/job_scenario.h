/* From a job to the simulator: the one place that turns a workload into a struct mr_scenario. `run --virtual`,
 * `sim workload=` and `sim --from` all come here and therefore play the same training.
 *
 *   workload, ranks, options ──> mr_job_training ──> struct mr_job_part ──┐
 *   a system's file, or what a run measured ──> struct mr_system ─────────┴──> mr_job_scenario ──> struct mr_scenario
 *
 * What comes from where:
 *   job      nodes (= ranks), batch, samples, sizes, epochs, order, seed; compute per step (a time, whatever the
 * bytes); reading threads and look-ahead (class 0's threads and capacity); preprocessing (per thread) machine  PFS,
 * network, the other classes; nothing of its source's application (compute, preprocess, staging) */
#ifndef MR_JOB_JOB_SCENARIO_H
#define MR_JOB_JOB_SCENARIO_H

#include "job/job.h"
#include "sim/sim.h"

#include <jansson.h>

/* Steps of one kind that are played in a row. */
struct mr_job_part {
    uint64_t samples, steps, epochs, batch; /* steps of an epoch; batch of one rank */
    uint64_t limit;                         /* of all steps, less than those of the epochs; 0: none */
    double compute_s;                       /* of a step */
    enum mr_order_mode order;
    bool reads; /* samples come from storage; false: from nowhere, or all before the first step */
};

/* Training, to its last step; needs the plan. */
void mr_job_training(const struct mr_job *j, struct mr_job_part *out);
/* Whether samples come from storage at all. */
bool mr_job_reads_samples(const struct mr_job *j);
/* The scenario, unchecked (mr_scenario_check). */
void mr_job_scenario(const struct mr_job *j, const struct mr_system *machine, const struct mr_job_part *part,
                     struct mr_scenario *out);
/* The machine by name: --system, else the workload's storage model. MR_E_USAGE when neither names one. */
int mr_job_load_system(const struct mr_job *j, struct mr_system *out, struct mr_error *err);

#define MR_JOB_STAGING_THREADS_MOST 48 /* of a measured machine; the model has 64 for all classes */

/* What a finished run measured, from its summary. */
struct mr_job_measured {
    double sample_bytes, compute_s; /* means; compute_s 0: none */
    double epochs, steps, samples;  /* steps of one rank; samples of all */
    double read_bytes;              /* from storage; sample_bytes: as a sample is stored, not as training gets it */
    double read_s, convert_s;       /* of all ranks and threads; converting: decode and transform */
    double threads, threads_asked;  /* reading threads of a rank; asked for: 0 reads on demand */
    double supply_bytes_per_s, memory_gib;
    /* The run beside a prediction. Of epochs beyond those that are told the last one has the sums. */
    char policy[64]; /* by which it read; "" in summaries that do not say */
    double duration_s;
    struct mr_job_measured_epoch {
        double time_s, source_bytes, peer_bytes, own_bytes; /* bytes NAN: not told by epoch */
    } epoch[MR_SIM_EPOCHS_TOLD];
    double source_bytes, peer_bytes, own_bytes;
    /* Of a run with tiers: of the job, each node having its part; tier_nodes 0: without tiers. */
    double tier_nodes, tier_threads, ram_bytes, ssd_bytes, staging_bytes, source_bytes_per_s;
    /* Of a throttled store: what it was set to; 0: it says nothing of that. */
    double throttle_bytes_per_s, throttle_stream_bytes_per_s, throttle_latency_s, throttle_metadata_per_s;
};
/* `path` is the results folder or summary.json. Nothing is left to defaults that the summary should say:
 * MR_E_INCOMPLETE when the run read nothing, MR_E_FORMAT. */
int mr_job_load_measured(const char *path, struct mr_job_measured *out, struct mr_error *err);
/* Their part of it that says where the bytes came from; see job_measured.c. */
void mr_job_read_sources(const json_t *root, struct mr_job_measured *m);
/* The machine as that run saw it: a throttled store as it was set, else as measured. */
void mr_job_measured_system(const struct mr_job_measured *m, uint32_t ranks, struct mr_system *out);

/* For `sim`: the training of a job, whole epochs, with keys of the scenario changed by "key=value" words (system= and
 * nodes= among them). `measured` NULL: as the workload says, on the machine of system= or of the workload. */
int mr_job_study_scenario(struct mr_job *j, const struct mr_job_measured *measured, const struct mr_strings *words,
                          struct mr_scenario *out, struct mr_error *err);

/* For `sim`: one of a scenario file or shipped scenario, a workload (workload=NAME among the words) and a finished run.
 */
struct mr_job_study_request {
    const char *scenario, *from;         /* "": not given */
    struct mr_strings words, more_words; /* key=value; more_words: of a sweep's point */
    struct mr_strings search_path;       /* of presets, scenarios and systems */
    char *const *envp;
    struct mr_arena *arena;
    const atomic_bool *stop;
    bool logs_notes; /* those of the workload */
};
/* The scenario, unchecked (mr_scenario_check). MR_E_USAGE unless exactly one source is given; errors of its parts. */
int mr_job_choose_scenario(const struct mr_job_study_request *q, struct mr_scenario *out, struct mr_error *err);

#endif
