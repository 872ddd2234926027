/* Inside `millrace run`: what its files share. cmd_run.c decides, run_data.c provides the data set, run_live.c talks
 * while it runs, run_stream.c saves what is measured under MPI, run_trust.c says how far the result can be trusted,
 * run_result.c writes and run_text.c prints it, run_search.c repeats runs, run_virtual.c predicts one. */
#ifndef MR_CLI_RUN_INTERNAL_H
#define MR_CLI_RUN_INTERNAL_H

#include "bench/trainer.h"
#include "cli/command.h"
#include "cli/workload_args.h"

#include <millrace/dataset.h>

struct run_options {
    const char *workload, *config_dir, *data, *out, *store, *checkpoint_store, *checkpoint_folder, *burst_buffer,
        *system;
    struct mr_strings sweep;
    bool dry_run, json, lenient, verify, generate, strict_trust, copy_to_device, preprocess_sleep, cache_each_epoch;
    bool find_max, is_virtual, ceiling;
    int compute, cache, io; /* enums of bench.h and loader.h */
    int64_t ranks, threads, lookahead, seed, keep_last, max_ranks;
    uint64_t checkpoint_every_ns, max_time_ns, stall_after_ns;
};

/* How far a result can be trusted. Shares are -1 when they could not be measured. */
struct run_trust {
    enum mr_bench_cache asked;
    double cold_share;            /* of the data set's bytes outside the page cache before the first step */
    double ceiling_samples_per_s; /* of this machine's harness: the same reads on the null store, one rank; 0 unknown */
    double ceiling_bytes_per_s;
    double ceiling_share;     /* samples/s of a rank / ceiling */
    unsigned cpus, threads;   /* usable; threads of all local ranks */
    double cpu_share;         /* of the usable CPUs, taken by the reading threads */
    uint64_t clock_step_ns;   /* smallest step of the clock */
    uint64_t timer_late_ns;   /* median lateness of a short sleep */
    struct mr_strings doubts; /* one line each; empty: nothing found */
};

struct run {
    struct mr_command_ctx *ctx;
    const struct run_options *opt;
    struct mr_workload *w;
    struct mr_plan plan;
    struct mr_comm *comm;
    struct mr_bench_board *board;
    struct mr_rank_series *series; /* of all ranks, filled at the end */
    struct mr_dataset_info info;   /* of the training set; samples 0 when there is none */
    uint64_t first_files[2];       /* of the training and the evaluation set, only so many files are read; 0: all */
    char data[4096], out[4096], checkpoint_folder[4096];
    uint64_t seed, start_wall_ns, end_wall_ns;
    struct mr_metrics *metrics;
    struct mr_dlio_metrics *dlio;
    struct run_trust trust;
    struct mr_strings notes;
    int code; /* of the run; 0 or what made it incomplete */
    struct mr_error why;
    struct run_live *live;
    struct run_stream *stream; /* MPI */
    bool made_data;            /* the data set was generated for this run */
    bool made_out;             /* and so was the results folder */
};

/* Checkpoints that wait in the burst buffer at the end. */
uint64_t mr_run_left_in_buffer(const struct run *r);
/* The overrides given and one more. */
int mr_run_add_override(const struct mr_command_ctx *ctx, const char *key, const char *value, struct mr_strings *out,
                        struct mr_error *err);
void mr_run_note(struct mr_strings *list, struct mr_arena *a, const char *fmt, ...) MR_PRINTF(3, 4);

/* run_data.c: finds the data set, makes it when allowed, fits the plan to it. Before the ranks start. */
int mr_run_prepare_data(struct run *r, struct mr_error *err);
/* Fits the workload's counts to the training set if it is there already. */
bool mr_run_fit_data(struct run *r);
/* dataset.keep_files=false: removes what this run generated. */
int mr_run_remove_data(const struct run *r, struct mr_error *err);
/* Starts this program again with other words (NULL-terminated, without the program's name) and waits. stdout goes to
 * `stdout_fd` (-1: nowhere). Returns the exit status, or a negative code. */
int mr_run_self(char *const *words, int stdout_fd, const atomic_bool *stop, struct mr_error *err);

/* run_live.c */
struct run_live *mr_run_live_create(struct run *r);
void mr_run_live_tick(void *live);
void mr_run_live_free(struct run_live *l);

/* run_stream.c: the series of MPI ranks, written while they run. */
struct run_stream;
int mr_run_stream_open(struct run *r, struct run_stream **out, struct mr_error *err);
void mr_run_stream_tick(struct run_stream *st);
void mr_run_stream_close(struct run_stream *st);
void mr_run_load_streams(struct run *r);
/* What another rank said it waits for, and for how long; false: it moves. */
bool mr_run_read_state(const struct run *r, uint32_t rank, enum mr_bench_state *state, double *age_s);
void mr_run_put_steps(FILE *f, const struct mr_step *s, uint64_t first, uint64_t n); /* with a header before number 0 */

/* cmd_run.c: r->plan; metrics of what the board holds. */
int mr_run_make_plan(struct run *r, struct mr_error *err);
void mr_run_compute_figures(struct run *r);

/* run_trust.c */
void mr_run_measure_trust(struct run *r);
json_t *mr_run_trust_json(const struct run *r);
json_t *mr_run_environment_json(const struct run *r);

/* run_result.c */
/* --out, the workload's output.folder, or a name of its own that no folder has yet. */
void mr_run_choose_out(const struct run *r, char *out, size_t cap);
int mr_run_make_out(struct run *r, struct mr_error *err);
json_t *mr_run_summary_json(const struct run *r);
int mr_run_write_results(const struct run *r, struct mr_error *err);
int mr_run_write_summary(const struct run *r, struct mr_error *err);

/* run_text.c */
void mr_run_print_summary(FILE *out, const struct run *r);
/* What kept the accelerators from working, in one clause. */
const char *mr_run_limiter(const struct run *r, char *text, size_t cap);

/* run_search.c, run_virtual.c */
int mr_run_sweep(struct run *r, struct mr_error *err);
int mr_run_find_max(struct run *r, struct mr_error *err);
int mr_run_virtual(struct run *r, struct mr_error *err);

#endif
