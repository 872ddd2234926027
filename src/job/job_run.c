/* Running a job:
 *
 *   plan ──> results folder ──> data set ──> board ──> ranks ──> trainer (src/bench) ──> figures ──> trust ──> files
 *
 * Mistakes are found by one process where that is possible: without a launcher the ranks are forked when all is known.
 *
 * Invariants:
 *   1. The ranks agree on every outcome before training: all go on, or none.
 *   2. Exactly one living process is the reporter: rank 0, or the lowest rank that is left when rank 0 is gone. It
 * writes what the board holds, so finished steps are never lost.
 *   3. The reporter has written and told everything before it lets the other ranks go: a launcher ends all processes as
 *      soon as the first one has failed. */
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/temp_folder.h"
#include "base/workers.h"
#include "event/emit.h"
#include "job/job_internal.h"
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SERIES_WAIT_NS (300 * MR_NS_PER_MS) /* for the other ranks to write their last lines when a job broke */
#define CHECKPOINTS_BY_TIME 100000u         /* room on the board when nobody can say how many there will be */

/* ---- before the ranks ---- */

/* A workload that shuffles at random has another order every time. */
static void choose_seed(struct mr_job *j)
{
    const struct mr_conf_reader *r = &j->w->reader;
    bool at_random = r->sample_shuffle == MR_SHUFFLE_RANDOM || r->file_shuffle == MR_SHUFFLE_RANDOM;
    if (j->opt.seed < 0 && at_random)
        j->seed = mr_wall_ns() >> 10;
}

static void choose_folders(struct mr_job *j)
{
    mr_job_choose_out(j, j->out, sizeof j->out);
    snprintf(j->checkpoint_folder, sizeof j->checkpoint_folder, "%s",
             *j->opt.checkpoint_folder ? j->opt.checkpoint_folder : j->w->checkpoint.checkpoint_folder);
}

static int make_board(struct mr_job *j, struct mr_error *err)
{
    const struct mr_workload_plan *p = &j->plan;
    uint64_t steps = p->total_steps + p->evaluations * p->eval_steps + 1;
    uint64_t saves = p->checkpoint.writes + p->checkpoint.reads + 1;
    if (j->opt.checkpoint_every_ns)
        saves = CHECKPOINTS_BY_TIME;
    j->result.world = p->ranks;
    j->result.trust.cpus = mr_cpus_available();
    j->result.host = mr_job_host_json();
    int rc = j->result.host ? mr_bench_board_create(p->ranks, steps, saves, &j->result.board, err)
                            : mr_error_set(err, -ENOMEM, "cannot start the run");
    return rc ? rc : mr_job_compute_figures(j, err); /* of nothing: what it allocates is there for sure later */
}

/* Under a launcher the ranks are there first, and only rank 0 may make the data set; otherwise they are forked when all
 * is known, so that mistakes are found by one process. */
static int prepare_data(struct mr_job *j, struct mr_error *err)
{
    if (!j->comm)
        return mr_job_prepare_data(j, err);
    int rc = mr_comm_agree(j->comm, j->comm->rank == 0 ? mr_job_prepare_data(j, err) : 0, err);
    return rc ? rc : mr_comm_agree(j->comm, j->comm->rank != 0 ? mr_job_prepare_data(j, err) : 0, err);
}

/* Through the loader ranks get equally many samples, so files that do not divide evenly have two readers. */
static void note_access(struct mr_job *j)
{
    const struct mr_workload *w = j->w;
    uint64_t files = j->plan.train_files;
    if (mr_workload_is_set(w, "reader", "file_access") && w->reader.file_access == MR_FA_MULTI &&
        w->pattern.unit == MR_CONF_UNIT_SAMPLE && w->dataset.num_samples_per_file > 1 && files % j->plan.ranks)
        mr_job_note(&j->notes, j->arena,
                    "reader.file_access multi: %llu files do not divide by %u ranks, so some are read by two; "
                    "pattern.unit=file deals whole files",
                    (unsigned long long)files, j->plan.ranks);
}

/* Phases that are switched on and will never come. */
static void note_idle_phases(struct mr_job *j)
{
    const struct mr_workload *w = j->w;
    const struct mr_workload_plan *p = &j->plan;
    bool evaluates = w->workflow.train && w->workflow.evaluation;
    if (evaluates && !p->eval_samples)
        mr_job_note(&j->notes, j->arena,
                    "workflow.evaluation is on, but dataset.num_files_eval is 0: nothing is evaluated");
    else if (evaluates && !p->eval_steps)
        mr_job_note(&j->notes, j->arena,
                    "nothing is evaluated: %llu samples are not one batch of %lld for each of %u ranks",
                    (unsigned long long)p->eval_samples, (long long)w->reader.batch_size_eval, p->ranks);
    else if (evaluates && !p->evaluations)
        mr_job_note(&j->notes, j->arena,
                    "nothing is evaluated: evaluation.eval_after_epoch is %lld, and there are %lld epochs",
                    (long long)w->evaluation.eval_after_epoch, (long long)w->train.epochs);
    if (w->workflow.train && w->workflow.checkpoint && !p->checkpoint.writes && !j->opt.checkpoint_every_ns)
        mr_job_note(&j->notes, j->arena,
                    "no checkpoint is written: the first would be due after the last of %llu steps",
                    (unsigned long long)p->total_steps);
}

/* Before hours are spent on results that nobody could keep. */
static int prepare_out(struct mr_job *j, struct mr_error *err)
{
    choose_folders(j);
    if (!j->comm)
        return mr_job_make_out(j, err);
    return mr_comm_agree(j->comm, j->comm->rank == 0 ? mr_job_make_out(j, err) : 0, err);
}

static int prepare(struct mr_job *j, struct mr_error *err)
{
    int rc = mr_job_make_plan(j, err); /* before any data is written: it finds most mistakes */
    if (rc) {
        /* The set that is there may be another than the workload says, and it counts. All ranks come here or none. */
        rc = mr_job_fit_data(j) ? mr_job_make_plan(j, err) : rc;
        if (j->comm)
            rc = mr_comm_agree(j->comm, rc, err);
    }
    if (!rc)
        rc = prepare_out(j, err);
    if (!rc)
        rc = prepare_data(j, err);
    if (!rc)
        rc = mr_job_make_plan(j, err);
    if (!rc) {
        note_access(j);
        note_idle_phases(j);
    }
    choose_seed(j);
    return rc ? rc : make_board(j, err);
}

/* ---- the ranks ---- */

static int fork_ranks(struct mr_job *j, struct mr_error *err)
{
    j->result.board->ranks[0].pid = getpid();
    int rc = mr_comm_open(j->plan.ranks, 1, &j->comm, err);
    if (!rc && j->comm->rank > 0) /* sets the stop flag: this rank ends by itself, and may have to write the result */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
    return rc;
}

/* Peak memory is that of this job, not of an earlier one in the same process. */
static void forget_peak_memory(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, "5", 1);
    (void)ignored;
    close(fd);
}

static int join_ranks(struct mr_job *j, struct mr_error *err)
{
    int rc = j->comm ? 0 : fork_ranks(j, err);
    if (rc < 0)
        return rc;
    forget_peak_memory();
    j->result.world = j->comm->world;
    j->result.local_world = j->comm->local_world;
    j->result.ranks_by = j->comm->ops->name;
    j->result.rank = j->comm->rank;
    j->result.board->ranks[j->comm->rank].pid = getpid();
    if (!(rc = mr_comm_bcast(j->comm, &j->seed, sizeof j->seed, 0, err)))
        rc = mr_comm_bcast(j->comm, j->out, sizeof j->out, 0, err); /* its name may hold the second of the start */
    if (!rc && mr_comm_is_launched(j->comm))
        rc = mr_comm_agree(j->comm, mr_job_series_open(j, &j->stream, err), err);
    return rc ? rc : mr_comm_agree(j->comm, mr_job_trace_open(j, err), err);
}

/* Five times a second, in a thread of its own. */
static void tick(void *user)
{
    struct mr_job *j = user;
    if (j->stream)
        mr_job_series_tick(j->stream);
    if (j->display)
        j->req.display->tick(j->display);
}

/* There is nothing to decode in what a store returns that keeps no content. A text that names no stack is left to the
 * trainer, whose ranks agree on errors. Nothing is opened: a shim may write, and not every rank reads. */
bool mr_job_store_has_content(const struct mr_job *j)
{
    unsigned caps;
    return mr_store_spec_caps(j->opt.store, &caps, NULL) < 0 || caps & MR_STORE_CAP_CONTENT;
}

static unsigned loader_flags(const struct mr_job *j)
{
    unsigned verify = MR_LOADER_VERIFY | (j->info.generated ? MR_LOADER_VERIFY_CONTENT : 0);
    return (j->opt.verify ? verify : 0) | (mr_job_store_has_content(j) ? 0 : MR_LOADER_RAW);
}

void mr_job_trainer_params(const struct mr_job *j, struct mr_bench_params *out)
{
    const struct mr_job_options *o = &j->opt;
    *out = (struct mr_bench_params){
        .workload = j->w,
        .plan = &j->plan,
        .comm = j->comm,
        .board = j->result.board,
        .stop = j->stop,
        .data = j->data,
        .first_files = {j->first_files[0], j->first_files[1]},
        .store = o->store,
        .checkpoint_folder = j->checkpoint_folder,
        .checkpoint_store = o->checkpoint_store,
        .output_folder = j->out,
        .threads = (unsigned)o->threads,
        .lookahead = o->lookahead,
        .io = (enum mr_loader_io)o->io,
        .compute = (enum mr_bench_compute)o->compute,
        .preprocess_sleeps = o->preprocess_sleep,
        .device_copy = o->copy_to_device,
        .seed = j->seed,
        .cache = (enum mr_bench_cache)o->cache,
        .cache_each_epoch = o->cache_each_epoch,
        .keep_last = (unsigned)o->keep_last,
        .checkpoint_every_ns = o->checkpoint_every_ns,
        .max_ns = o->max_time_ns,
        .rank_timeout_ns = o->rank_timeout_ns,
    };
}

static int train(struct mr_job *j, struct mr_error *err)
{
    const struct mr_job_display *d = j->req.display;
    struct mr_bench_params p;
    mr_job_trainer_params(j, &p);
    p.loader_flags = loader_flags(j);
    if (j->comm->rank == 0 && d)
        j->display = d->start(j);
    p.events = mr_events_of(j->events, 0);
    if (j->display || j->stream) {
        p.tick = tick;
        p.tick_user = j;
    }
    int rc = mr_bench_run(&p, err);
    if (d && j->display)
        d->end(j->display);
    j->display = NULL;
    mr_job_series_close(j->stream);
    j->stream = NULL;
    mr_job_trace_close(j);
    return rc;
}

/* Invariant 2. */
static bool is_reporter(const struct mr_job *j)
{
    if (!j->comm)
        return true;
    if (!mr_comm_is_forked(j->comm))
        return j->comm->rank == j->comm->speaker;
    if (j->comm->rank == 0)
        return true;
    const struct mr_bench_board *b = j->result.board;
    if (getppid() == b->ranks[0].pid)
        return false;
    for (uint32_t k = 1; k < j->comm->rank; k++)
        if (kill(b->ranks[k].pid, 0) == 0)
            return false;
    return true;
}

/* Everybody's steps onto the reporter's board, where ranks do not share one. */
static void collect(struct mr_job *j)
{
    struct mr_error err;
    if (mr_comm_is_launched(j->comm) && j->result.code == MR_E_PEER && is_reporter(j)) {
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + SERIES_WAIT_NS, NULL);
        mr_job_series_load(j);
    } else if (!mr_comm_is_forked(j->comm) && j->result.code != MR_E_PEER) {
        int rc = mr_bench_collect(j->comm, j->result.board, &err);
        if (rc < 0 && !j->result.code) {
            j->result.code = rc;
            j->result.why = err;
        }
    }
}

/* ---- after ---- */

/* A folder that was filled up or lost meanwhile: hours of measuring go to another place, and the error says where. */
static int keep_results(struct mr_job *j, struct mr_error *err)
{
    char asked[sizeof j->out], other[4096];
    struct mr_error again;
    int rc = mr_job_write_results(j, err);
    if (rc == 0)
        return 0;
    memcpy(asked, j->out, sizeof asked);
    if (mr_temp_folder_make("", "results", other, sizeof other, &again) == 0) {
        snprintf(j->out, sizeof j->out, "%s", other);
        if (mr_job_write_results(j, &again) == 0)
            return mr_error_hint(err, "the results are in '%s' instead", other), rc;
        mr_temp_folder_remove(other, &again);
        memcpy(j->out, asked, sizeof asked);
    }
    return mr_error_hint(err, "choose another folder with --out; the summary is printed all the same"), rc;
}

/* --strict-trust and --expect. An AU below the target is told as such whatever else is wrong with the run; one that is
 * not must deserve it. */
static int enforce(const struct mr_job *j, struct mr_error *err)
{
    const struct mr_job_result *r = &j->result;
    char because[1100];
    enum mr_job_verdict verdict = mr_job_judge(j, because, sizeof because);
    if (j->opt.strict_trust && r->trust.doubts.n) {
        mr_error_plain(err, MR_E_INCOMPLETE, "the result cannot be trusted: %s", r->trust.doubts.item[0]);
        return mr_error_hint(err, "without --strict-trust this is only noted in the result"), MR_E_INCOMPLETE;
    }
    if (!j->opt.expect)
        return 0;
    if (verdict == MR_JOB_NOT_ASKED)
        return mr_error_plain(err, MR_E_INCOMPLETE, "--expect: nothing was trained and computed, so there is no AU");
    if (r->metrics->au < j->w->metric.au)
        return mr_error_plain(err, MR_E_BUDGET, "the AU is %.1f %%, below the target of %.1f %%", 100 * r->metrics->au,
                              100 * j->w->metric.au);
    if (verdict != MR_JOB_PASS)
        return mr_error_plain(err, MR_E_INCOMPLETE, "no verdict, because %s", because);
    return 0;
}

/* Figures, trust and files. Of several errors the run's own comes first, then that of the files, then distrust. */
static int conclude(struct mr_job *j, struct mr_error *err)
{
    struct mr_job_result *r = &j->result;
    struct mr_error files;
    int rc = mr_job_compute_figures(j, err);
    if (rc)
        return rc;
    if (r->code && mr_error_exit_status(r->code) == 2 && r->metrics->steps == 0) {
        *err = r->why; /* a mistake in the command line that only the ranks could find: there is no result */
        return r->code;
    }
    bool paused = mr_tracer_pause(); /* reads of the probe are none of the run's */
    mr_job_measure_trust(j);
    mr_job_probe_storage(j);
    mr_tracer_resume(paused);
    mr_job_explain(j);
    rc = keep_results(j, &files);
    r->is_whole = true;
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
    return enforce(j, err);
}

static int run_ranks(struct mr_job *j, struct mr_error *err)
{
    struct mr_job_result *r = &j->result;
    struct mr_error broken;
    int rc = join_ranks(j, err);
    if (rc < 0)
        return rc;
    r->code = train(j, &r->why);
    r->end_wall_ns = mr_wall_ns();
    r->trust.clock_shift_s = ((double)(r->end_wall_ns - r->start_wall_ns) - (double)(mr_now_ns() - r->start_ns)) / 1e9;
    if (r->code != MR_E_PEER) /* every rank's part of the trace is complete when the reporter joins them */
        mr_comm_barrier(j->comm, &broken);
    collect(j);
    if (is_reporter(j)) {
        mr_job_trace_join(j);
        return conclude(j, err);
    }
    *err = r->why;
    return r->code;
}

/* Invariant 3. */
static int report(struct mr_job *j, int rc, struct mr_error *err)
{
    struct mr_error failed;
    j->result.is_reporter = is_reporter(j);
    if (!j->result.is_reporter || !j->req.display || !j->req.display->report)
        return rc;
    int told = j->req.display->report(j, rc, err, &failed);
    if (rc || !told)
        return rc;
    *err = failed;
    return told;
}

int mr_job_run(struct mr_job *j, struct mr_error *err)
{
    int rc = 0;
    assert(!j->comm && !j->result.board); /* a job runs once */
    j->result.start_wall_ns = mr_wall_ns();
    j->result.start_ns = mr_now_ns();
    j->result.is_reporter = true;
    if (!j->req.is_local && mr_comm_detect_launcher(NULL) > 0)
        rc = mr_comm_open((uint32_t)j->opt.ranks, 0, &j->comm, err);
    if (!rc)
        rc = prepare(j, err);
    if (!rc)
        rc = run_ranks(j, err);
    if (j->events) /* the ranks could not all begin */
        mr_job_trace_close(j);
    rc = report(j, rc, err);
    bool is_first = !j->comm || j->comm->rank == 0, removes = j->made_data && !j->w->dataset.keep_files && is_first;
    if (rc < 0 && j->made_out && is_first) {
        mr_job_trace_drop(j);
        rmdir(j->out); /* stays when there is a result in it */
    }
    mr_comm_close(j->comm);
    j->comm = NULL;
    if (removes && !rc) /* all ranks have ended */
        rc = mr_job_remove_data(j, err);
    return rc;
}
