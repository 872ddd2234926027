/* One job: a workload resolved once with its ranks, data set, machine and options, and everything that follows from it.
 *
 *   words, file, options ──mr_job_resolve──> struct mr_job ──┬─> generator's spec   mr_job_gen_spec, mr_job_generate
 *                                                            ├─> scenario           mr_job_scenario (job_scenario.h)
 *                                                            ├─> prediction         mr_job_predict  (job_predict.h)
 *                                                            ├─> trainer            mr_job_run
 *                                                            └─> many of them       mr_job_sweep, mr_job_find_max
 *   job + board ──mr_job_compute_figures, mr_job_measure_trust──> result ──> summary.json, series, DLIO's files
 *
 * `run`, `run --virtual`, `workloads check`, `sim workload=`, `sim --from`, `gen workload=` and `report` all start
 * here, so that what one of them says about a workload is what the others do with it.
 *
 * This is library code: it prints nothing to stdout and never ends the process. What has to be said goes through
 * base/log; a display that draws while the job runs is handed in (struct mr_job_display).
 *
 * Processes: mr_job_run forks the ranks, or joins those that mpirun or srun started. It returns in every one of them;
 * result.is_reporter says which one prints the result. A forked rank that is not the reporter has nothing left to do
 * and must end with the code that it was given. */
#ifndef MR_JOB_JOB_H
#define MR_JOB_JOB_H

#include "base/arena.h"
#include "bench/trainer.h"
#include "conf/job_options.h"
#include "conf/option.h"
#include "conf/plan.h"

#include <millrace/dataset.h>

#include <jansson.h>
#include <stdio.h>

/* How far a result can be trusted. Shares are -1 when they could not be measured. */
struct mr_job_trust {
    enum mr_bench_cache asked;
    double cold_share;            /* of the data set's bytes outside the page cache before the first step */
    bool bypasses_cache;          /* reads went around the page cache: what it held does not matter */
    double ceiling_samples_per_s; /* of this machine's harness: the same reads on the null store, one rank; 0 unknown */
    double ceiling_bytes_per_s;
    double ceiling_share;     /* samples/s of a rank / ceiling */
    unsigned cpus, threads;   /* usable; threads of the ranks that share them */
    unsigned cpus_around;     /* that whoever started this process may use; more than `cpus`: this rank is pinned */
    double cpu_share;         /* of the usable CPUs, taken by the reading threads */
    uint64_t clock_step_ns;   /* smallest step of the clock */
    uint64_t timer_late_ns;   /* median lateness of a short sleep */
    double clock_shift_s;     /* by how much the system clock moved against the monotonic one while the run went on */
    struct mr_strings doubts; /* one line each; empty: nothing found */
};

/* What the storage gave to two numbers of streams after a run that had waited for it; 0: it was not asked, or there is
 * no answer. */
struct mr_job_probe {
    unsigned streams[2]; /* of this host: as many as the run had, and as it would need */
    double bytes_per_s[2];
    uint64_t bytes; /* read for it; in none of the run's figures */
};

/* Whether the accelerators were kept as busy as the workload wants. NONE: a trust check failed. */
enum mr_job_verdict {
    MR_JOB_NOT_ASKED, /* nothing was trained, or nothing computed */
    MR_JOB_PASS,
    MR_JOB_FAIL,
    MR_JOB_NO_VERDICT,
};

/* What a job measured. Everything in summary.json is a function of the job and of this: whoever fills in the board and
 * the figures of the second group gets the same summary (mr_job_compute_figures makes the third from them). */
struct mr_explanation; /* explain/explain.h */

struct mr_job_result {
    struct mr_bench_board *board;

    uint32_t world, local_world;
    const char *ranks_by; /* "self", "fork", "mpi" */
    uint64_t start_wall_ns, end_wall_ns;
    uint64_t start_ns; /* the start by the monotonic clock of this process */
    int code;          /* 0, or what made the job incomplete */
    struct mr_error why;
    struct mr_job_trust trust;
    struct mr_job_probe probe;
    json_t *host; /* facts about the machine, see mr_job_host_json */

    struct mr_rank_series *series; /* of all ranks */
    struct mr_metrics *metrics;
    struct mr_dlio_metrics *dlio;
    struct mr_explanation *explained; /* the run's trace by the rules of `report`; NULL: it has none */

    uint32_t rank;    /* of this process */
    bool is_reporter; /* this process prints the result */
    bool is_whole;    /* there is a result to show, complete or not */
};

struct mr_job;
struct mr_strbuf;
struct mr_events_file;

/* Draws while a job runs; all functions are called on rank 0 only. `tick` comes five times a second from a thread of
 * its own, between start and end. */
struct mr_job_display {
    void *(*start)(const struct mr_job *j);
    void (*tick)(void *display);
    void (*end)(void *display);
    int (*report)(const struct mr_job *j, int code, const struct mr_error *why, struct mr_error *err);
};

struct mr_job_request {
    const struct mr_job_options *options;
    struct mr_strings overrides;   /* Hydra words for the workload */
    struct mr_strings search_path; /* of presets and systems */
    char *const *envp;
    struct mr_arena *arena; /* of everything in the job; outlives it */
    const atomic_bool *stop;
    const struct mr_job_display *display; /* or NULL */
    FILE *progress;                       /* of the generator; NULL: silent */
    bool is_quiet;                        /* notes are kept in the result, not logged */
    bool is_local;                        /* ignores mpirun and srun: ranks are forked here */
    bool traces_all;                      /* every event is traced, also without --trace */
    bool pictures;                        /* result.explained has what a page shows */
};

struct mr_job {
    struct mr_job_options opt;
    struct mr_job_request req; /* without .options */
    struct mr_workload *w;     /* its counts are those of the data set that is there */
    struct mr_workload_plan plan;
    struct mr_dataset_info info; /* of the training set; samples 0 when there is none */
    uint64_t first_files[2];     /* of the training and the evaluation set, only so many files are read; 0: all */
    char data[4096], out[4096], checkpoint_folder[4096];
    const char *data_store; /* of an address: the stack that reaches it, without shims; "" for a folder */
    uint64_t seed;
    struct mr_strings notes;
    struct mr_strings unlike; /* how the data set differs from what the workload says */
    struct mr_arena *arena;
    const atomic_bool *stop;
    bool made_data; /* the data set was generated for this job */
    bool made_out;  /* and so was the results folder */

    json_t *config; /* of a job that was loaded: where each value came from then; NULL: ask the workload */

    struct mr_comm *comm; /* NULL before and after */
    struct mr_job_series *stream;
    struct mr_events_file *events;
    void *display;

    struct mr_job_result result;
};

/* Resolves the workload. Nothing is read but its file, nothing is written. Errors: those of mr_workload_resolve. */
int mr_job_resolve(const struct mr_job_request *req, struct mr_job *out, struct mr_error *err);
/* storage.storage_options of an s3 workload become AWS_* variables of this process; mr_job_resolve does it. */
void mr_job_export_storage(const struct mr_workload *w);
/* What this version cannot run, and options that would have no effect: MR_E_UNSUPPORTED, MR_E_USAGE. */
int mr_job_check(const struct mr_job *j, struct mr_error *err);
/* The plan for the ranks asked for, those that a launcher started, or the workload's. Before the data set is known it
 * is what the workload says. */
int mr_job_make_plan(struct mr_job *j, struct mr_error *err);
/* The trainer's parameters (without loader_flags, tick): strings are borrowed from the job. The loader's follow from
 * them, mr_bench_loader_params. */
void mr_job_trainer_params(const struct mr_job *j, struct mr_bench_params *out);
/* Where the job's events go: --trace, else trace.mrt in the results folder, once that is chosen. */
void mr_job_trace_path(const struct mr_job *j, char *out, size_t cap);
/* Frees the result; the rest lives in the arena. Accepts a job that was never run. */
void mr_job_done(struct mr_job *j);
/* A run that cannot do anything is refused before anything is touched. */
int mr_job_check_work(const struct mr_job *j, struct mr_error *err);

/* Runs the job: data set, ranks, trainer, figures, trust, results folder. Returns in every rank; 0, or the job's error.
 * The result is filled in as far as the job came (result.metrics NULL: it did not start). Results that cannot be
 * written are an error, too, but the result is there. */
int mr_job_run(struct mr_job *j, struct mr_error *err);
/* Finds the data set, generates it where that is allowed, and fits the workload's counts to it. Before the ranks start.
 */
int mr_job_prepare_data(struct mr_job *j, struct mr_error *err);

/* ---- the result ---- */

/* Series, metrics and DLIO's figures of what the board holds. Allocates them on the first call. */
int mr_job_compute_figures(struct mr_job *j, struct mr_error *err);
/* The verdict; of NONE, *because says why (empty otherwise). Needs figures and trust. */
enum mr_job_verdict mr_job_judge(const struct mr_job *j, char *because, size_t cap);
/* What kept the accelerators from working, in one clause. */
const char *mr_job_limiter(const struct mr_job *j, char *text, size_t cap);
/* The verdict of the rules with its reason and the best fix, on one line; nothing for a healthy run. */
void mr_job_advise(const struct mr_job *j, struct mr_strbuf *out);
/* result.explained knows the run's steps. */
bool mr_job_is_explained(const struct mr_job *j);
/* Checkpoints that wait in the burst buffer at the end. */
uint64_t mr_job_left_in_buffer(const struct mr_job *j);
/* summary.json of the job and its result. NULL when out of memory. */
json_t *mr_job_summary_json(const struct mr_job *j);
/* "metric" and "millrace" of the summary: all that follows from the board. */
json_t *mr_job_figures_json(const struct mr_job *j);
/* The job of a finished run again, from its results folder or summary.json: workload and options as they were resolved,
 * the plan, and of the result everything but the board and what is computed from it. With the board (of a trace, of the
 * series) mr_job_compute_figures and mr_job_summary_json give the summary that the run wrote. `search` finds systems.
 * Errors: -errno, MR_E_FORMAT. Free it with mr_job_done. */
int mr_job_load(const char *path, const struct mr_strings *search, struct mr_arena *a, struct mr_job *out,
                struct mr_error *err);
/* The host as DLIO describes it ("dlio") and as we do ("environment"); of the machine this is called on. */
json_t *mr_job_host_json(void);
/* All files of the results folder. */
int mr_job_write_results(const struct mr_job *j, struct mr_error *err);
/* Loader work of all ranks, summed. */
struct mr_job_loaders {
    double read, decode, transform, idle, empty, cpu;
};
struct mr_job_loaders mr_job_sum_loaders(const struct mr_job *j);
/* What each field of the samples cost, over all ranks. */
void mr_job_sum_fields(const struct mr_job *j, struct mr_bench_fields *out);
/* What another rank said it waits for, and for how long; false: it moves. */
bool mr_job_read_state(const struct mr_job *j, uint32_t rank, enum mr_bench_state *state, double *age_s);

#endif
