/* `millrace run`: emulated training, evaluation and checkpointing of a workload, on as many ranks as asked; or, with
 * --dry-run, what that would amount to.
 *
 *   workload -> plan -> data set -> board -> ranks -> trainer (src/bench) -> metrics -> trust -> results
 *
 * Rank 0 speaks. When it is gone, the lowest rank that is left writes what the board holds: finished steps are never
 * lost. */
#include "cli/command.h"
#include "cli/commands.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "cli/run_internal.h"
#include "base/temp_folder.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SERIES_WAIT_NS (300 * MR_NS_PER_MS) /* for the other ranks to write their last lines when a job broke */
#define CHECKPOINTS_BY_TIME 100000u         /* room on the board when nobody can say how many there will be */

static const char *const computes[] = {"sleep", "spin", "gemm", NULL};
static const char *const caches[] = {"asis", "cold", "warm", NULL};
static const char *const ios[] = {"auto", "threads", "queue", NULL};

#define ROW(key, field, type, def, ...) MR_OPTION(run_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option run_rows[] = {
    ROW("workload", workload, STRING, "", .flags = MR_OPTF_POSITIONAL,
        .doc = "A preset's name or a workload file; the same as workload=NAME."),
    ROW("dry_run", dry_run, BOOL, "false", .short_flag = 'n',
        .doc = "Prints the resolved configuration, files, bytes, steps and the expected duration; reads and writes no "
               "data."),
    ROW("ranks", ranks, INT, "0", .min = 0, .max = 1e6,
        .doc = "Ranks of the job (one emulated accelerator each), started on this machine; 0: what mpirun or srun "
               "started, else "
               "what the workload was described with, else 1."),
    ROW("data", data, STRING, "", .short_flag = 'd',
        .doc = "Folder of the data set; default: the workload's data_folder."),
    ROW("out", out, STRING, "", .short_flag = 'o',
        .doc = "Folder of the results; default: the workload's output.folder, else a new one in results/."),
    ROW("generate", generate, BOOL, "false", .short_flag = 'g',
        .doc = "Makes the data set if it is not there; workflow.generate_data=true does the same."),
    ROW("threads", threads, INT, "0", .min = 0, .max = 4096, .short_flag = 't',
        .doc = "Reading threads per rank; 0: the workload's read_threads."),
    ROW("lookahead", lookahead, INT, "-1", .min = -1, .max = 1e6,
        .doc = "Batches read ahead of the trainer; -1: the workload's prefetch_size."),
    ROW("store", store, STRING, "posix", .short_flag = 's',
        .doc = "Storage stack the samples are read through; {rank} in it becomes the rank's number. See 'millrace help "
               "store'.",
        .example = "throttle(bandwidth=163MB,latency=8ms):posix"),
    ROW("io", io, ENUM, "auto", .choices = ios,
        .doc = "How reads are issued: by threads, or through a queue of many; auto takes the queue for direct reads."),
    ROW("checkpoint_store", checkpoint_store, STRING, "posix", .doc = "Storage stack checkpoints are written through."),
    ROW("checkpoint_folder", checkpoint_folder, STRING, "",
        .doc = "Folder of the checkpoints; default: the workload's checkpoint_folder."),
    ROW("burst_buffer", burst_buffer, STRING, "",
        .doc = "Fast folder that checkpoints are written to first, then copied to the checkpoint folder while training "
               "goes on; "
               "default: the workload's checkpoint.burst_buffer.folder.",
        .example = "--burst-buffer /nvme/ckpt checkpoint.burst_buffer.capacity=100GiB"),
    ROW("checkpoint_every", checkpoint_every_ns, DURATION, "0",
        .doc =
            "Writes a checkpoint after the first step that ends so long after the last one, in place of the workload's "
            "schedule; needs workflow.checkpoint.",
        .example = "--checkpoint-every 30s"),
    ROW("keep_last", keep_last, INT, "0", .min = 0, .max = 1e6,
        .doc = "Checkpoints kept; older ones are removed after a successful save. 0: all."),
    ROW("compute", compute, ENUM, "sleep", .choices = computes,
        .doc =
            "How compute time is spent: asleep, as on an accelerator; spinning; or multiplying matrices on the CPU."),
    ROW("preprocess_sleep", preprocess_sleep, BOOL, "false",
        .doc =
            "Emulated preprocessing sleeps, as DLIO's does; by default it uses the CPU, as real preprocessing does."),
    ROW("copy_to_device", copy_to_device, BOOL, "false",
        .doc = "Copies every batch once more, as a transfer to the accelerator would."),
    ROW("cache", cache, ENUM, "asis", .choices = caches,
        .doc = "Page cache before the run: as it is, cold (the data set's pages dropped, no root needed), or warm (all "
               "read)."),
    ROW("cache_each_epoch", cache_each_epoch, BOOL, "false", .doc = "Does the same before every epoch."),
    ROW("strict_trust", strict_trust, BOOL, "false",
        .doc =
            "Exit status 6 when the result cannot be trusted: asked cold and was not, the harness was the limit, and "
            "so on."),
    ROW("ceiling", ceiling, BOOL, "true",
        .doc = "Measures after the run what the harness can do without any storage, for the trust block; takes up to "
               "0.2 s."),
    ROW("verify", verify, BOOL, "false",
        .doc = "Checks the checksums and, for generated sets, every byte of every sample."),
    ROW("seed", seed, INT, "-1", .min = -1, .max = 9e15,
        .doc =
            "Seed of order and compute times; -1: the workload's train.seed, or the time where it shuffles at random."),
    ROW("max_time", max_time_ns, DURATION, "0",
        .doc = "Ends the run after the first step past this time; 0: when all steps are done.",
        .example = "--max-time 60s"),
    ROW("stall_after", stall_after_ns, DURATION, "30s", .min = 0.01, .max = 1e6,
        .doc = "Says what every rank waits for when no step has ended for so long, and again after as long."),
    ROW("find_max_accelerators", find_max, BOOL, "false",
        .doc = "Searches the largest number of ranks on this machine whose AU stays at the workload's metric.au or "
               "above."),
    ROW("max_ranks", max_ranks, INT, "64", .min = 1, .max = 4096, .doc = "Where that search ends."),
    ROW("sweep", sweep, STRINGS, "[]", .flags = MR_OPTF_REPEAT,
        .doc = "Runs once for every value of a key of the workload or an option of this command, and prints one table. "
               "Given "
               "several times: once for every combination.",
        .example = "--sweep reader.read_threads=1,2,4,8 --sweep reader.batch_size=4,8"),
    ROW("virtual", is_virtual, BOOL, "false",
        .doc = "Predicts the run on the virtual clock with a storage model; reads and writes no data."),
    ROW("system", system, STRING, "",
        .doc = "Storage model of a virtual run: a name in workloads/systems or a file; default: the workload's."),
    ROW("config_dir", config_dir, STRING, "",
        .doc = "Folder with workload files, searched first; workload/NAME.yaml inside it is found, too.",
        .example = "--config-dir my/configs"),
    ROW("lenient", lenient, BOOL, "false", .doc = "Unknown keys are noted and ignored."),
    ROW("json", json, BOOL, "false", .short_flag = 'j', .doc = "Prints the result as JSON."),
    MR_OPTION_END,
};

/* As many ranks as asked for, else as a launcher started, else as the workload says. */
int mr_run_make_plan(struct run *r, struct mr_error *err)
{
    uint32_t launched = mr_comm_detect_launcher(NULL);
    return mr_plan_make(r->w, r->opt->ranks ? (uint32_t)r->opt->ranks : launched, &r->plan, err);
}

/* ---- dry run ---- */

static int print_plan_json(const struct mr_workload *w, const struct mr_plan *p, struct mr_error *err)
{
    json_t *root = json_pack("{s:s, s:o?, s:o?, s:o?, s:o?}", "schema", "millrace.dry_run/1", "workload",
                             mr_cli_workload_json(w), "plan", mr_cli_plan_json(w, p), "config", mr_workload_to_json(w),
                             "notes", mr_cli_strings_json(&w->notes));
    return mr_cli_print_json(stdout, root, err);
}

static void print_plan_text(const struct mr_workload *w, const struct mr_plan *p)
{
    printf("workload %s%s%s%s\n", *w->name ? w->name : "(defaults only)", *w->file ? " (" : "", w->file,
           *w->file ? ")" : "");
    if (*w->extra.source)
        printf("source   %s\n", w->extra.source);
    puts("\nplan");
    mr_cli_print_plan(stdout, w, p);
    puts("\nconfiguration");
    mr_cli_print_config(stdout, w, true);
    if (w->notes.n)
        puts("\nnotes");
    for (unsigned i = 0; i < w->notes.n; i++)
        printf("  %s\n", w->notes.item[i]);
}

static int dry_run(struct run *r, struct mr_error *err)
{
    int rc = mr_run_make_plan(r, err);
    if (rc)
        return rc;
    if (r->opt->json)
        return print_plan_json(r->w, &r->plan, err);
    print_plan_text(r->w, &r->plan);
    return 0;
}

/* ---- before the ranks ---- */

static void choose_seed(struct run *r)
{
    const struct mr_workload *w = r->w;
    bool at_random = w->reader.sample_shuffle == MR_SHUFFLE_RANDOM || w->reader.file_shuffle == MR_SHUFFLE_RANDOM;
    r->seed = r->opt->seed >= 0 ? (uint64_t)r->opt->seed : at_random ? mr_wall_ns() >> 10 : (uint64_t)w->train.seed;
}

static void choose_folders(struct run *r)
{
    const struct mr_workload *w = r->w;
    mr_run_choose_out(r, r->out, sizeof r->out);
    snprintf(r->checkpoint_folder, sizeof r->checkpoint_folder, "%s",
             *r->opt->checkpoint_folder ? r->opt->checkpoint_folder : w->checkpoint.checkpoint_folder);
}

static int make_board(struct run *r, struct mr_error *err)
{
    const struct mr_plan *p = &r->plan;
    uint64_t steps = p->total_steps + p->evaluations * p->eval_steps + 1;
    uint64_t saves = p->checkpoint.writes + p->checkpoint.reads + 1;
    if (r->opt->checkpoint_every_ns)
        saves = CHECKPOINTS_BY_TIME;
    int rc = mr_bench_board_create(p->ranks, steps, saves, &r->board, err);
    if (rc)
        return rc;
    r->series = calloc(p->ranks, sizeof(*r->series));
    r->metrics = malloc(sizeof(*r->metrics));
    r->dlio = malloc(sizeof(*r->dlio));
    return r->series && r->metrics && r->dlio ? 0 : mr_error_set(err, -ENOMEM, "cannot start the run");
}

/* Under a launcher the ranks are there first, and only rank 0 may make the data set; otherwise they are forked when all
 * is known, so that mistakes are found by one process. */
static int prepare_data(struct run *r, struct mr_error *err)
{
    if (!r->comm)
        return mr_run_prepare_data(r, err);
    int rc = mr_comm_agree(r->comm, r->comm->rank == 0 ? mr_run_prepare_data(r, err) : 0, err);
    return rc ? rc : mr_comm_agree(r->comm, r->comm->rank != 0 ? mr_run_prepare_data(r, err) : 0, err);
}

/* Through the loader ranks get equally many samples, so files that do not divide evenly have two readers. */
static void note_access(struct run *r)
{
    const struct mr_workload *w = r->w;
    uint64_t files = r->plan.train_files;
    if (mr_workload_is_set(w, "reader", "file_access") && w->reader.file_access == MR_FA_MULTI &&
        w->pattern.unit == MR_UNIT_SAMPLE && w->dataset.num_samples_per_file > 1 && files % r->plan.ranks)
        mr_run_note(&r->notes, r->ctx->arena,
                    "reader.file_access multi: %llu files do not divide by %u ranks, so some are read by two; "
                    "pattern.unit=file "
                    "deals whole files",
                    (unsigned long long)files, r->plan.ranks);
}

/* Phases that are switched on and will never come. */
static void note_idle_phases(struct run *r)
{
    const struct mr_workload *w = r->w;
    const struct mr_plan *p = &r->plan;
    bool evaluates = w->workflow.train && w->workflow.evaluation;
    if (evaluates && !p->eval_samples)
        mr_run_note(&r->notes, r->ctx->arena,
                    "workflow.evaluation is on, but dataset.num_files_eval is 0: nothing is evaluated");
    else if (evaluates && !p->eval_steps)
        mr_run_note(&r->notes, r->ctx->arena,
                    "nothing is evaluated: %llu samples are not one batch of %lld for each of %u ranks",
                    (unsigned long long)p->eval_samples, (long long)w->reader.batch_size_eval, p->ranks);
    else if (evaluates && !p->evaluations)
        mr_run_note(&r->notes, r->ctx->arena,
                    "nothing is evaluated: evaluation.eval_after_epoch is %lld, and there are %lld epochs",
                    (long long)w->evaluation.eval_after_epoch, (long long)w->train.epochs);
    if (w->workflow.train && w->workflow.checkpoint && !p->checkpoint.writes && !r->opt->checkpoint_every_ns)
        mr_run_note(&r->notes, r->ctx->arena,
                    "no checkpoint is written: the first would be due after the last of %llu steps",
                    (unsigned long long)p->total_steps);
}

/* Before hours are spent on results that nobody could keep. */
static int prepare_out(struct run *r, struct mr_error *err)
{
    choose_folders(r);
    if (!r->comm)
        return mr_run_make_out(r, err);
    return mr_comm_agree(r->comm, r->comm->rank == 0 ? mr_run_make_out(r, err) : 0, err);
}

static int prepare(struct run *r, struct mr_error *err)
{
    int rc = mr_run_make_plan(r, err); /* before any data is written: it finds most mistakes */
    if (rc) {
        /* The set that is there may be another than the workload says, and it counts. All ranks come here or none. */
        rc = mr_run_fit_data(r) ? mr_run_make_plan(r, err) : rc;
        if (r->comm)
            rc = mr_comm_agree(r->comm, rc, err);
    }
    if (!rc)
        rc = prepare_out(r, err);
    if (!rc)
        rc = prepare_data(r, err);
    if (!rc)
        rc = mr_run_make_plan(r, err);
    if (!rc) {
        note_access(r);
        note_idle_phases(r);
    }
    choose_seed(r);
    return rc ? rc : make_board(r, err);
}

/* ---- the ranks ---- */

static int fork_ranks(struct run *r, struct mr_error *err)
{
    r->board->ranks[0].pid = getpid();
    int rc = mr_comm_open(r->plan.ranks, 1, &r->comm, err);
    if (!rc && r->comm->rank > 0)
        prctl(PR_SET_PDEATHSIG,
              SIGTERM); /* sets the stop flag: this rank ends by itself, and may have to write the result */
    return rc;
}

static int join_ranks(struct run *r, struct mr_error *err)
{
    int rc = r->comm ? 0 : fork_ranks(r, err);
    if (rc < 0)
        return rc;
    r->board->ranks[r->comm->rank].pid = getpid();
    if (!(rc = mr_comm_bcast(r->comm, &r->seed, sizeof r->seed, 0, err)))
        rc = mr_comm_bcast(r->comm, r->out, sizeof r->out, 0, err); /* its name may hold the second of the start */
    bool over_mpi = mr_comm_is_launched(r->comm);
    return rc || !over_mpi ? rc : mr_comm_agree(r->comm, mr_run_stream_open(r, &r->stream, err), err);
}

/* Five times a second, in a thread of its own. */
static void tick(void *user)
{
    struct run *r = user;
    if (r->stream)
        mr_run_stream_tick(r->stream);
    if (r->live)
        mr_run_live_tick(r->live);
}

static int train(struct run *r, struct mr_error *err)
{
    const struct run_options *o = r->opt;
    bool null_store = strstr(o->store, "null") && !strstr(o->store, "/");
    struct mr_bench_params p = {
        .workload = r->w,
        .plan = &r->plan,
        .comm = r->comm,
        .board = r->board,
        .stop = r->ctx->stop,
        .data = r->data,
        .first_files = {r->first_files[0], r->first_files[1]},
        .store = o->store,
        .checkpoint_folder = r->checkpoint_folder,
        .checkpoint_store = o->checkpoint_store,
        .output_folder = r->out,
        .threads = (unsigned)o->threads,
        .lookahead = o->lookahead,
        .io = (enum mr_loader_io)o->io,
        .compute = (enum mr_bench_compute)o->compute,
        .preprocess_sleeps = o->preprocess_sleep,
        .device_copy = o->copy_to_device,
        .loader_flags = (o->verify ? MR_LOADER_VERIFY | (r->info.generated ? MR_LOADER_VERIFY_CONTENT : 0) : 0) |
                        (null_store ? MR_LOADER_RAW : 0),
        .seed = r->seed,
        .cache = (enum mr_bench_cache)o->cache,
        .cache_each_epoch = o->cache_each_epoch,
        .keep_last = (unsigned)o->keep_last,
        .checkpoint_every_ns = o->checkpoint_every_ns,
        .max_ns = o->max_time_ns,
    };
    if (r->comm->rank == 0)
        r->live = mr_run_live_create(r);
    if (r->live || r->stream) {
        p.tick = tick;
        p.tick_user = r;
    }
    int rc = mr_bench_run(&p, err);
    mr_run_live_free(r->live);
    r->live = NULL;
    mr_run_stream_close(r->stream);
    r->stream = NULL;
    return rc;
}

static bool over_mpi(const struct run *r)
{
    return r->comm && mr_comm_is_launched(r->comm);
}

/* Whether this process tells the story: rank 0, or the lowest rank alive when rank 0 is gone. */
static bool speaks(const struct run *r)
{
    if (!mr_comm_is_forked(r->comm))
        return r->comm->rank == r->comm->speaker;
    if (r->comm->rank == 0)
        return true;
    if (getppid() == r->board->ranks[0].pid)
        return false;
    for (uint32_t k = 1; k < r->comm->rank; k++)
        if (kill(r->board->ranks[k].pid, 0) == 0)
            return false;
    return true;
}

/* ---- after ---- */

void mr_run_compute_figures(struct run *r)
{
    const struct mr_workload *w = r->w;
    struct mr_dlio_params p = {.batch_size = (uint32_t)w->reader.batch_size,
                               .batch_size_eval = (uint32_t)w->reader.batch_size_eval,
                               .record_bytes = r->plan.record_bytes,
                               .exclude_start = (uint64_t)w->output_metric.exclude_start_steps,
                               .exclude_end = (uint64_t)w->output_metric.exclude_end_steps,
                               .steps_per_epoch = MR_MIN(r->plan.steps_per_epoch, r->plan.total_steps),
                               .eval_steps = r->plan.eval_steps,
                               .au_target = w->metric.au};
    mr_bench_board_series(r->board, r->series);
    const struct mr_metrics_params own = {
        .seed = r->seed, .exclude_start = p.exclude_start, .exclude_end = p.exclude_end};
    mr_metrics_compute(r->series, r->board->world, &own, r->metrics);
    mr_dlio_compute(r->series, r->board->world, &p, r->dlio);
}

/* A folder that was filled up or lost meanwhile: hours of measuring go to another place, and the error says where. */
static int keep_results(struct run *r, struct mr_error *err)
{
    char asked[sizeof r->out], other[4096];
    struct mr_error again;
    int rc = mr_run_write_results(r, err);
    if (rc == 0)
        return 0;
    memcpy(asked, r->out, sizeof asked);
    if (mr_temp_folder_make("", "results", other, sizeof other, &again) == 0) {
        snprintf(r->out, sizeof r->out, "%s", other);
        if (mr_run_write_results(r, &again) == 0)
            return mr_error_hint(err, "the results are in '%s' instead", other), rc;
        mr_temp_folder_remove(other, &again);
        memcpy(r->out, asked, sizeof asked);
    }
    return mr_error_hint(err, "choose another folder with --out; the summary is printed all the same"), rc;
}

/* Prints even when the files cannot be written; the run's own error comes first, then theirs, then distrust. */
static int tell(struct run *r, struct mr_error *err)
{
    mr_run_compute_figures(r);
    if (r->code && mr_error_exit_status(r->code) == 2 && r->metrics->steps == 0) {
        *err = r->why; /* a mistake in the command line that only the ranks could find, as in --store: there is no
                          result */
        return r->code;
    }
    mr_run_measure_trust(r);
    struct mr_error files;
    int rc = keep_results(r, &files);
    if (r->opt->json) {
        int printed = mr_cli_print_json(stdout, mr_run_summary_json(r), err);
        if (printed < 0)
            return printed;
    } else {
        mr_run_print_summary(stdout, r);
    }
    if (r->code) {
        if (rc)
            mr_log(MR_LOG_WARN, "%s; %s", files.message, files.hint);
        *err = r->why;
        return r->code;
    }
    if (rc) {
        *err = files;
        return rc;
    }
    if (r->opt->strict_trust && r->trust.doubts.n) {
        mr_error_plain(err, MR_E_INCOMPLETE, "the result cannot be trusted: %s", r->trust.doubts.item[0]);
        return mr_error_hint(err, "without --strict-trust this is only noted in the result"), MR_E_INCOMPLETE;
    }
    return 0;
}

/* The job is over for this process: who speaks tells the story, the others are silent. */
static int finish(struct run *r, struct mr_error *err)
{
    if (speaks(r))
        return tell(r, err);
    *err = r->why;
    return freopen("/dev/null", "w", stderr) ? r->code : MR_E_INTERNAL;
}

static int run_ranks(struct run *r, struct mr_error *err)
{
    int rc = join_ranks(r, err);
    if (rc < 0)
        return rc;
    r->code = train(r, &r->why);
    r->end_wall_ns = mr_wall_ns();
    if (over_mpi(r) && r->code == MR_E_PEER && speaks(r)) {
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + SERIES_WAIT_NS, NULL);
        mr_run_load_streams(r);
    } else if (!mr_comm_is_forked(r->comm) && r->code != MR_E_PEER) {
        rc = mr_bench_collect(r->comm, r->board, err);
        if (rc < 0 && !r->code) {
            r->code = rc;
            r->why = *err;
        }
    }
    return finish(r, err);
}

/* DLIO's first command: generate_data without train. */
static int generate_only(struct run *r, struct mr_error *err)
{
    int rc = mr_run_prepare_data(r, err);
    if (rc)
        return rc;
    if (r->opt->json)
        return mr_cli_print_json(stdout,
                                 json_pack("{s:s, s:s, s:b, s:I, s:I}", "schema", "millrace.run_generate/1", "folder",
                                           r->data, "generated", r->made_data, "train_samples",
                                           (json_int_t)r->info.samples, "train_bytes", (json_int_t)r->info.file_bytes),
                                 err);
    printf("the data set %s in '%s': %llu training samples\n", r->made_data ? "was generated" : "was there already",
           r->data, (unsigned long long)r->info.samples);
    return 0;
}

static int run_real(struct run *r, struct mr_error *err)
{
    int rc = 0;
    r->start_wall_ns = mr_wall_ns();
    if (mr_comm_detect_launcher(NULL) > 0)
        rc = mr_comm_open((uint32_t)r->opt->ranks, 0, &r->comm, err);
    if (!rc && (rc = prepare(r, err)) && r->comm && !speaks(r) && !freopen("/dev/null", "w", stderr))
        rc = MR_E_INTERNAL; /* one says what all agreed on */
    if (!rc)
        rc = run_ranks(r, err);
    bool removes = r->made_data && !r->w->dataset.keep_files && (!r->comm || r->comm->rank == 0);
    if (rc < 0 && over_mpi(r) && speaks(r))
        mr_cli_tell_error(rc, err);
    if (rc < 0 && r->made_out && (!r->comm || r->comm->rank == 0))
        rmdir(r->out); /* stays when there is a result in it */
    mr_comm_close(r->comm);
    if (removes && !rc) /* all ranks have ended */
        rc = mr_run_remove_data(r, err);
    mr_bench_board_free(r->board);
    free(r->series);
    free(r->metrics);
    free(r->dlio);
    r->ctx->whole = rc == 0;
    return rc;
}

/* An option that would change nothing is a mistake of whoever gave it. */
static int check_idle(const struct run *r, struct mr_error *err)
{
    const struct run_options *o = r->opt;
    const char *what =
        *o->system && !o->is_virtual                           ? "--system needs --virtual"
        : o->cache_each_epoch && o->cache == MR_CACHE_ASIS     ? "--cache-each-epoch needs --cache cold or warm"
        : o->checkpoint_every_ns && !r->w->workflow.checkpoint ? "--checkpoint-every needs workflow.checkpoint=true"
        : o->checkpoint_every_ns && !r->w->workflow.train      ? "--checkpoint-every needs workflow.train=true"
        : o->keep_last && !r->w->workflow.checkpoint           ? "--keep-last needs workflow.checkpoint=true"
        : *o->burst_buffer && !r->w->workflow.checkpoint       ? "--burst-buffer needs workflow.checkpoint=true"
                                                               : NULL;
    return what ? mr_error_plain(err, MR_E_USAGE, "%s, without which it has no effect", what) : 0;
}

static int refuse_virtual_burst(const struct run *r, struct mr_error *err)
{
    if (!r->opt->is_virtual || !r->w->workflow.checkpoint || !*r->w->burst_buffer.folder)
        return 0;
    mr_error_plain(err, MR_E_UNSUPPORTED, "--virtual does not simulate a burst buffer for checkpoints");
    mr_error_hint(err, "leave it out with 'checkpoint.burst_buffer.folder=', or run it for real");
    return MR_E_UNSUPPORTED;
}

/* Of the ways to run only one can be meant. */
static int check_modes(const struct run_options *o, struct mr_error *err)
{
    if (o->find_max && o->ranks)
        return mr_error_plain(err, MR_E_USAGE,
                              "--find-max-accelerators chooses the ranks: leave --ranks out, or give --max-ranks");
    const char *given[4];
    unsigned n = 0;
    if (o->dry_run)
        given[n++] = "--dry-run";
    if (o->is_virtual)
        given[n++] = "--virtual";
    if (o->sweep.n)
        given[n++] = "--sweep";
    if (o->find_max)
        given[n++] = "--find-max-accelerators";
    return n < 2 ? 0 : mr_error_plain(err, MR_E_USAGE, "%s and %s exclude each other", given[0], given[1]);
}

/* A search starts jobs of its own, on this machine; under mpirun every rank would start them. */
static int check_launcher(const struct run_options *o, struct mr_error *err)
{
    const char *launcher;
    if (!(o->sweep.n || o->find_max) || mr_comm_detect_launcher(&launcher) < 2)
        return 0;
    mr_error_plain(err, MR_E_USAGE, "%s cannot be used under %s", o->find_max ? "--find-max-accelerators" : "--sweep",
                   launcher);
    return mr_error_hint(err, "run it without, on one machine; or start one job per value"), MR_E_USAGE;
}

int mr_run_add_override(const struct mr_command_ctx *ctx, const char *key, const char *value, struct mr_strings *out,
                        struct mr_error *err)
{
    unsigned n = ctx->overrides.n;
    const char **item = mr_arena_alloc(ctx->arena, (n + 1) * sizeof *item);
    char *word = mr_arena_printf(ctx->arena, "%s=%s", key, value);
    if (!item || !word)
        return mr_error_set(err, -ENOMEM, "cannot read the options");
    for (unsigned i = 0; i < n; i++)
        item[i] = ctx->overrides.item[i];
    item[n] = word;
    *out = (struct mr_strings){.n = n + 1, .item = item};
    return 0;
}

/* Those given, and --burst-buffer as what it stands for. */
static int all_overrides(const struct mr_command_ctx *ctx, struct mr_strings *out, struct mr_error *err)
{
    const struct run_options *o = ctx->options;
    *out = ctx->overrides;
    return *o->burst_buffer ? mr_run_add_override(ctx, "checkpoint.burst_buffer.folder", o->burst_buffer, out, err) : 0;
}

static int run_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    struct run r = {.ctx = ctx, .opt = ctx->options};
    const struct run_options *o = r.opt;
    struct mr_strings overrides;
    int rc = check_modes(o, err);
    if (!rc)
        rc = all_overrides(ctx, &overrides, err);
    if (!rc)
        rc = mr_cli_workload(o->workload, o->config_dir, &overrides, o->lenient, ctx->arena, &r.w, err);
    if (!rc)
        rc = mr_workload_check_supported(r.w, err);
    if (!rc)
        rc = check_idle(&r, err);
    if (!rc)
        rc = refuse_virtual_burst(&r, err);
    if (rc)
        return rc;
    if ((rc = check_launcher(o, err)) || ((o->dry_run || o->is_virtual) && mr_comm_detect_rank() > 0))
        return rc; /* what rank 0 computes need not be told by all */
    if (o->dry_run)
        return dry_run(&r, err);
    if (o->is_virtual)
        return mr_run_virtual(&r, err);
    if (r.w->storage.storage_type != MR_CS_LOCAL_FS) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "storage.storage_type: only local_fs can be run in this version");
        return mr_error_hint(err, "to run it on files: storage.storage_type=local_fs --data FOLDER"), MR_E_UNSUPPORTED;
    }
    const struct mr_conf_workflow *flow = &r.w->workflow;
    if (!flow->train && !flow->checkpoint && (flow->generate_data || o->generate))
        return generate_only(&r, err);
    if (!flow->train && !flow->checkpoint) {
        mr_error_plain(err, MR_E_CONFIG, "the workload has nothing to do: train, checkpoint and generate_data are off");
        return mr_error_hint(err, "set 'workflow.train=true'"), MR_E_CONFIG;
    }
    if (!flow->train && r.w->checkpoint.num_checkpoints_write <= 0 && r.w->checkpoint.num_checkpoints_read <= 0) {
        mr_error_plain(err, MR_E_CONFIG,
                       "the workload has nothing to do: it neither trains nor writes nor reads checkpoints");
        return mr_error_hint(err, "set 'checkpoint.num_checkpoints_write=10 checkpoint.num_checkpoints_read=10'"),
               MR_E_CONFIG;
    }
    if (o->sweep.n)
        return mr_run_sweep(&r, err);
    return o->find_max ? mr_run_find_max(&r, err) : run_real(&r, err);
}

const struct mr_command mr_cmd_run = {
    .name = "run",
    .synopsis = "[WORKLOAD] [KEY=VALUE...] [--ranks N] [--data DIR] [--out DIR] [--generate]",
    .summary = "run a workload: emulated training, evaluation and checkpoints on real storage",
    .details =
        "WORKLOAD is a preset ('millrace workloads list') or a file in DLIO's format. Overrides use Hydra's syntax: "
        "workload=NAME, ++workload.reader.batch_size=4, +key=value, key=value, ~key; the prefix 'workload.' may be "
        "left "
        "out. Precedence: default < file < environment < override.\n\n"
        "  millrace run --dry-run unet3d_h100\n"
        "  millrace run unet3d_h100 dataset.num_files_train=28 train.epochs=2 --data /data/unet3d --generate\n"
        "  millrace run resnet50_h100 --data /data/resnet --ranks 4 --cache cold --strict-trust\n"
        "  millrace run unet3d_h100 --data /data/unet3d --find-max-accelerators\n"
        "  millrace run resnet50_h100 --data /data/resnet --sweep reader.read_threads=1,2,4,8\n"
        "  millrace run unet3d_h100 --virtual --system lassen --ranks 64\n"
        "  mpirun -n 8 millrace run cosmoflow_h100 --data /data/cosmoflow --out results/cosmoflow\n\n"
        "The results folder gets summary.json (DLIO's keys by its formulas, ours beside them), config.json and the "
        "series of every rank's steps. See 'millrace help config' for all keys.\n",
    .table = {.section = "run", .doc = "run", .options = run_rows, .struct_bytes = sizeof(struct run_options)},
    .takes_overrides = true,
    .run = run_run,
};
