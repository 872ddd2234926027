/* The order of a trial: see trial.h; doc/internals/loop.md has the invariants. */
#include "loop/trial.h"
#include "advise/explain_open.h"
#include "advise/what_if.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/regular_file.h"
#include "base/strbuf.h"
#include "base/temp_folder.h"
#include "loop/rerun.h"
#include "loop/trial_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STORED 0.02 /* of the waits, for storage: less is no reason to drop data from the page cache */
#define STEPS 100u  /* of a window */
#define BEFORE 20u  /* steps in front of it, when workers start and caches fill */
#define EVENTS 3u   /* begins of epochs, or saves, within the window where it is about them */
#define STEPS_MOST 1000u
#define SAVED_MOST 64u
#define LIMIT_S 60.0
#define LIMIT_TIMES 4.0
#define OTHER_WAIT 0.3 /* of the recorded wait: A waits otherwise than the recorded run */
#define OTHER_BYTES 0.02

/* ---- what is tried ---- */

static const struct mr_finding *finding_of(const struct mr_explanation *x, const char *id)
{
    for (size_t i = 0; i < x->findings; i++)
        if (!strcmp(x->finding[i].id, id))
            return &x->finding[i];
    return NULL;
}

static int no_finding(const struct mr_trial *t, struct mr_error *err)
{
    const struct mr_explanation *x = t->x;
    const char *why = NULL;
    if (!t->req.id)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "'%s' has no finding that can be tried", x->source);
    for (size_t i = 0; i < x->silences; i++)
        if (!strcmp(x->silence[i].id, t->req.id))
            why = x->silence[i].why;
    int rc = mr_error_plain(err, MR_E_USAGE, "there is no finding '%s' in '%s'%s%s", t->req.id, x->source,
                            why ? ": " : "", why ? why : "");
    mr_error_hint(err, "millrace report --all %s", x->source);
    return rc;
}

static int choose_finding(struct mr_trial *t, struct mr_error *err)
{
    const struct mr_explanation *x = t->x;
    struct mr_finding *made;
    if (t->req.set) {
        int rc = mr_injection_settings(x, t->req.set, &t->arena, &made, err);
        t->finding = rc ? NULL : made;
        return rc;
    }
    if (t->req.id)
        t->finding = finding_of(x, t->req.id);
    for (size_t i = 0; i < x->findings && !t->req.id && !t->finding; i++) /* not: what would only measure otherwise */
        if (x->finding[i].saves_s > 0 && mr_injection_possible(x, &x->finding[i]))
            t->finding = &x->finding[i];
    return t->finding ? 0 : no_finding(t, err);
}

static int choose_run(struct mr_trial *t, struct mr_error *err)
{
    const char *words = t->x->facts.workload;
    if (t->x->facts.nodes > 1 || (t->x->ranks > 1 && !strstr(words, "--ranks")))
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "'%s' was started by a launcher: a trial starts runs of one node by itself",
                              t->x->source);
    t->program = mr_arena_printf(&t->arena, "millrace run %s", words);
    return t->program ? 0 : mr_error_set(err, -ENOMEM, "cannot start the run again");
}

static int choose_program(struct mr_trial *t, struct mr_error *err)
{
    const struct mr_explain_start *s = t->x->start;
    if (t->own)
        return choose_run(t, err);
    if (!s || !s->command || !s->command[0])
        return mr_error_plain(err, MR_E_UNSUPPORTED, "'%s' does not have the command line that made it", t->x->source),
               mr_error_hint(err, "trace the program again: millrace trace -o new.mrt -- PROGRAM"), MR_E_UNSUPPORTED;
    if (t->x->facts.nodes > 1)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "'%s' is of %.0f nodes; a trial runs on one", t->x->source,
                              t->x->facts.nodes);
    if (s->folder && access(s->folder, X_OK) != 0)
        return mr_error_set(err, -errno, "cannot enter '%s', where the program ran", s->folder);
    struct mr_strbuf text = {0};
    char word[4400];
    for (size_t i = 0; s->command[i]; i++)
        mr_strbuf_printf(&text, "%s%s", i ? " " : "", mr_shell_word(s->command[i], word, sizeof word));
    t->program = text.failed ? NULL : mr_arena_strdup(&t->arena, text.text);
    mr_strbuf_done(&text);
    return t->program ? 0 : mr_error_set(err, -ENOMEM, "cannot start the program again");
}

/* ---- the window ---- */

/* Where a change is to be seen at the begin of epochs, in evaluation, or in saves: the step at which enough of them are
 * over. */
static uint64_t end_of_events(const struct mr_explanation *x, uint64_t from, bool saves)
{
    unsigned events = 0;
    for (size_t i = 1; i < x->steps && x->step[i].rank == x->step[0].rank; i++) {
        const struct mr_explain_step *s = &x->step[i];
        bool begins = s->epoch != s[-1].epoch || s->phase != s[-1].phase;
        events += s->step >= from && (saves ? s->ns[MR_TIME_CHECKPOINT] > 0 : begins);
        if (events > EVENTS)
            return s->step;
    }
    return mr_window_most(x);
}

static int choose_window(struct mr_trial *t, struct mr_error *err)
{
    uint64_t most = mr_window_most(t->x), to = MR_MIN(most, (uint64_t)(BEFORE + STEPS));
    bool epochs = !strcmp(t->finding->id, "EP1") || !strcmp(t->finding->id, "EV1");
    bool saves = !strncmp(t->finding->id, "CK", 2);
    t->whole = t->own && t->req.to <= 0;
    if (t->whole) {
        t->to = most;
        return mr_window_whole(t->x, &t->recorded, err);
    }
    if (most < 8 && t->req.to <= 0)
        return mr_error_plain(err, MR_E_INCOMPLETE, "'%s' has %" PRIu64 " training steps: too few to compare",
                              t->x->source, most);
    t->from = MR_MIN((uint64_t)BEFORE, to / 6);
    if (epochs || saves)
        to = MR_MIN(MR_MAX(to, end_of_events(t->x, t->from, saves)), (uint64_t)STEPS_MOST);
    t->to = to;
    if (t->req.to > 0) {
        t->from = (uint64_t)t->req.from;
        t->to = (uint64_t)t->req.to;
    }
    if (t->to <= mr_window_most(t->x))
        return mr_window_of(t->x, t->from, t->to, &t->recorded, err);
    return 0;
}

/* ---- the prediction ---- */

static double share(double seconds, double of)
{
    return of > 0 && !isnan(seconds) ? fmin(1, seconds / of) : NAN;
}

static void predict(struct mr_trial *t, const struct mr_finding *f, double waits)
{
    t->predicted = (struct mr_prediction_share){share(f->saves_s, waits), share(f->saves_low_s, waits),
                                                share(f->saves_high_s, waits)};
}

/* All steps of the finding's phase over those in the window: what is predicted by replays is for as many. */
static double steps_per_counted(const struct mr_trial *t)
{
    const bool evaluates = !strcmp(t->finding->id, "EV1");
    double all = 0, counted = 0;
    for (size_t i = 0; i < t->x->steps; i++) {
        const struct mr_explain_step *s = &t->x->step[i];
        bool is = (s->phase == MR_EXPLAIN_EVAL) == evaluates;
        all += is;
        counted += is && s->step >= t->from && s->step < t->to;
    }
    return counted > 0 ? all / counted : NAN;
}

int mr_trial_settings_save(const struct mr_trial *t, struct mr_what_if *w, const struct mr_what_if_settings *s,
                           double *saves, struct mr_error *err)
{
    struct mr_what_if_result r;
    double blocked = (double)t->x->ns[MR_TIME_CHECKPOINT] / 1e9, here = t->recorded.sum[MR_WINDOW_CHECKPOINT];
    int rc = mr_what_if_run(w, s, &r, err);
    if (rc)
        return rc;
    *saves = r.saves_s / (t->whole ? 1 : steps_per_counted(t));
    if (s->saves != MR_WHAT_IF_SAVES_SAME && blocked > 0) /* saves of the window are like those of the run */
        *saves += here * fmax(0, 1 - r.checkpoint_s / blocked);
    return 0;
}

/* Of settings: what their replay says, without an interval. */
static int predict_settings(struct mr_trial *t, struct mr_explanation *x, struct mr_error *err)
{
    struct mr_what_if *w = NULL;
    struct mr_error ignored;
    struct mr_what_if_settings s = mr_what_if_same();
    double saves = NAN;
    if (mr_what_if_open(x, &w, &ignored) < 0)
        return 0; /* nothing is predicted */
    mr_what_if_of_changes(&s, t->finding->change, t->finding->changes);
    int rc = mr_trial_settings_save(t, w, &s, &saves, err);
    t->predicted = (struct mr_prediction_share){share(saves, t->recorded.wait_s), NAN, NAN};
    mr_what_if_close(w);
    return rc;
}

/* By a replay that counts the steps of the window; a rule without replay, by the whole run. */
static int predict_window(struct mr_trial *t, const struct mr_trace *trace, struct mr_error *err)
{
    const struct mr_explanation *x = t->x;
    const double ns = (double)x->ns[MR_TIME_STALL] + (double)x->ns[MR_TIME_CHECKPOINT] +
                      (double)x->ns[MR_TIME_LOGGING] + (double)x->ns[MR_TIME_BARRIER];
    predict(t, t->finding, t->whole ? t->recorded.wait_s : (ns - (double)x->first_ns) / 1e9);
    if (t->req.set && t->whole)
        return predict_settings(t, t->x, err);
    if (!t->recorded.steps || t->whole)
        return 0;
    struct mr_explanation *part = NULL;
    const struct mr_explain_how how = {
        .explain = {.threads = t->req.threads, .rank = -1, .step_from = -1, .source = t->req.path, .stop = t->req.stop},
        .folder = t->req.path,
        .counted_from = t->from,
        .counted_to = t->to};
    int rc = mr_explain_trace(trace, &how, &part, err);
    if (!rc && t->req.set) {
        rc = predict_settings(t, part, err);
        mr_explanation_free(part);
        return rc;
    }
    const struct mr_finding *f = rc ? NULL : finding_of(part, t->finding->id);
    double saving = (double)x->ns[MR_TIME_CHECKPOINT] / 1e9, here = t->recorded.sum[MR_WINDOW_CHECKPOINT];
    if (f && f->counted && t->recorded.wait_s > 0)
        predict(t, f, t->recorded.wait_s * steps_per_counted(t));
    else if (f && !strncmp(f->id, "CK", 2) && here > 0 && saving > 0) /* its saves are like those of the run */
        predict(t, f, t->recorded.wait_s * saving / here);
    mr_explanation_free(part);
    return rc;
}

/* Our loader's rate is measured on this machine where the finding is about it. */
static int open_trace(struct mr_trial *t, struct mr_error *err)
{
    bool ours = t->req.id && !strcmp(t->req.id, "LD1");
    struct mr_trace *trace = NULL;
    const struct mr_explain_how how = {
        .explain = {.threads = t->req.threads, .rank = -1, .step_from = -1, .source = t->req.path, .stop = t->req.stop},
        .folder = t->req.path,
        .measure = ours ? t->req.measure : NULL};
    int rc = mr_explain_read(&t->req.path, 1, t->req.threads, t->req.stop, &trace, err);
    rc = rc ? rc : mr_explain_trace(trace, &how, &t->x, err);
    t->own = !rc && t->x->facts.own_run;
    rc = rc ? rc : choose_finding(t, err);
    rc = rc ? rc : mr_injection_of(t->x, t->finding, &t->arena, &t->injection, err);
    rc = rc ? rc : choose_program(t, err);
    rc = rc ? rc : choose_window(t, err);
    rc = rc ? rc : predict_window(t, trace, err);
    mr_trace_free(trace);
    return rc;
}

int mr_trial_open(const struct mr_trial_request *req, struct mr_trial *out, struct mr_error *err)
{
    *out = (struct mr_trial){.req = *req, .scratch = {.hold = -1}};
    int rc = open_trace(out, err);
    if (rc)
        mr_trial_close(out);
    return rc;
}

void mr_trial_close(struct mr_trial *t)
{
    mr_scratch_close(&t->scratch);
    for (size_t i = 0; i < t->runs; i++)
        mr_window_done(&t->run[i].window);
    mr_window_done(&t->recorded);
    mr_injection_done(&t->injection);
    mr_data_files_done(&t->data);
    mr_explanation_free(t->x);
    free(t->run);
    mr_arena_done(&t->arena);
    *t = (struct mr_trial){.scratch = {.hold = -1}};
}

/* ---- a run ---- */

/* Names of what belongs to run k, "a1" or "b2". */
struct places {
    char name[24], plan[PATH_MAX], marks[PATH_MAX], report[PATH_MAX], log[PATH_MAX];
};

static int make_places(const struct mr_trial *t, struct mr_trial_one *run, struct places *p, struct mr_error *err)
{
    const char *kept = *t->req.out ? t->req.out : t->scratch.folder;
    size_t number = 1;
    for (const struct mr_trial_one *before = t->run; before < run; before++)
        number += before->changed == run->changed;
    snprintf(p->name, sizeof p->name, "%c%zu", run->changed ? 'b' : 'a', number);
    snprintf(p->plan, sizeof p->plan, "%.4000s/%s.plan.json", t->scratch.folder, p->name);
    snprintf(p->marks, sizeof p->marks, "%.4000s/%s.marks", t->scratch.folder, p->name);
    snprintf(p->report, sizeof p->report, "%.4000s/%s.report", t->scratch.folder, p->name);
    snprintf(p->log, sizeof p->log, "%.4000s/%s.log", kept, p->name);
    snprintf(run->trace, sizeof run->trace, "%.4000s/%s%s", kept, p->name, t->own ? "" : ".mrt");
    return mkdir(p->marks, 0700) == 0 ? 0 : mr_error_set(err, -errno, "cannot make '%s'", p->marks);
}

/* Files that the recorded run saved, by folder and ending: those that open() is to move. */
static json_t *saved_files(const struct mr_explanation *x)
{
    json_t *files = json_array();
    for (size_t i = 0; i < x->checkpoints && json_array_size(files) < SAVED_MOST; i++) {
        const struct mr_explain_checkpoint *c = &x->checkpoint[i];
        const char *slash = c->path ? strrchr(c->path, '/') : NULL, *dot = slash ? strrchr(slash, '.') : NULL;
        if (c->is_load || !dot || c->path[0] != '/')
            continue;
        json_t *file = json_pack("{s:s%, s:s}", "folder", c->path, (size_t)(slash - c->path), "suffix", dot);
        bool known = !file;
        for (size_t k = 0; k < json_array_size(files) && !known; k++)
            known = json_equal(json_array_get(files, k), file);
        if (!known)
            json_array_append(files, file);
        json_decref(file);
    }
    return files;
}

/* NULL: this run saves as the program does. */
static json_t *saves_plan(const struct mr_trial *t, const struct mr_trial_one *run)
{
    char others[PATH_MAX + 16];
    bool saver = run->changed && t->injection.saver, tier = run->changed && t->injection.tier;
    if (t->req.keep_saves && !saver && !tier)
        return NULL;
    snprintf(others, sizeof others, "%s/others", t->scratch.folder);
    return json_pack("{s:s, s:o, s:b, s:s, s:b}", "others", others, "files", saved_files(t->x), "saver", saver, "tier",
                     tier ? "/dev/shm" : "", "keep", t->req.keep_saves && !tier);
}

static json_t *stage_plan(const struct mr_trial *t)
{
    return json_pack("{s:s, s:s, s:s, s:i}", "from", t->data.root, "to", t->staged, "where",
                     t->injection.stage ? t->injection.stage : "", "buffer", t->injection.buffer ? MR_BUFFER_BYTES : 0);
}

static int write_plan(const struct mr_trial *t, const struct mr_trial_one *run, const struct places *p,
                      struct mr_error *err)
{
    json_t *loaders = run->changed ? json_incref(t->injection.loaders) : json_array();
    json_t *plan = json_pack("{s:i, s:I, s:s, s:s, s:o}", "version", 1, "end", (json_int_t)t->to, "marks", p->marks,
                             "report", p->report, "loaders", loaders);
    json_t *saves = plan ? saves_plan(t, run) : NULL;
    if (saves)
        json_object_set_new(plan, "saves", saves);
    if (plan && run->changed && (t->injection.stage || t->injection.buffer))
        json_object_set_new(plan, "stage", stage_plan(t));
    int rc = plan && json_dump_file(plan, p->plan, 0) == 0 ? 0 : mr_error_set(err, -EIO, "cannot write '%s'", p->plan);
    json_decref(plan);
    return rc;
}

static double limit_of(const struct mr_trial *t)
{
    double took = 0;
    for (size_t i = 0; i < t->x->steps && t->x->step[i].step < t->to && t->x->step[i].rank == t->x->step[0].rank; i++)
        took = (double)t->x->step[i].end_ns / 1e9;
    return LIMIT_S + LIMIT_TIMES * took;
}

/* The recorded environment, without what tracing itself put there, and the plan. */
static const char *const *environment_of(struct mr_trial *t, const struct places *p)
{
    const char *const *recorded = t->x->start->environment;
    size_t n = 0, k = 0;
    while (recorded && recorded[n])
        n++;
    const char **out = mr_arena_alloc(&t->arena, (n + 2) * sizeof(*out));
    for (size_t i = 0; out && i < n; i++)
        if (strncmp(recorded[i], "MILLRACE_", 9) != 0 && strncmp(recorded[i], "LD_PRELOAD=", 11) != 0)
            out[k++] = recorded[i];
    if (out)
        out[k] = mr_arena_printf(&t->arena, "MILLRACE_TRY=%s", p->plan);
    return out && out[k] ? out : NULL;
}

/* The last line that the program printed. */
static const char *last_line(struct mr_trial *t, const char *log)
{
    char line[512], last[512] = "";
    FILE *f = mr_fopen_regular(log);
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (*line && *line != ' ') /* not: hints, source lines of a traceback */
            snprintf(last, sizeof last, "%s", line);
    }
    if (f)
        fclose(f);
    return *last ? mr_arena_strdup(&t->arena, last) : "it printed nothing";
}

static bool has_failed(const struct mr_rerun_result *r)
{
    return !r->reached && !r->late && (r->exec_errno || !WIFEXITED(r->status) || WEXITSTATUS(r->status));
}

/* Why there is no window. */
static int not_reached(struct mr_trial *t, const struct mr_rerun_result *r, const struct places *p,
                       const struct mr_error *why, struct mr_error *err)
{
    const char *last = last_line(t, p->log);
    int rc = MR_E_INCOMPLETE;
    if (r->exec_errno)
        return mr_error_plain(err, rc, "cannot run '%s' again: %s", t->program, strerror(r->exec_errno));
    if (r->reached)
        mr_error_plain(err, rc, "'%s' came to the end of its window, but its trace does not show it: %s", t->program,
                       why->message);
    else if (r->late)
        mr_error_plain(err, rc, "'%s' did not come to step %" PRIu64 " within %.0f s", t->program, t->to,
                       (double)r->took_ns / 1e9);
    else if (WIFSIGNALED(r->status))
        mr_error_plain(err, rc, "'%s' was ended by signal %d when it was run again", t->program, WTERMSIG(r->status));
    else if (WEXITSTATUS(r->status))
        mr_error_plain(err, rc, "'%s' failed with status %d when it was run again; its last line: %s", t->program,
                       WEXITSTATUS(r->status), last);
    else
        mr_error_plain(err, rc, "'%s' ended before step %" PRIu64 " when it was run again", t->program, t->to);
    mr_error_context(err, "in run %s", p->name);
    mr_error_hint(err, has_failed(r) ? "--out FOLDER keeps all that it printed"
                                     : "--steps FROM:TO chooses an earlier window, --limit more time, --out FOLDER "
                                       "keeps what it printed");
    return rc;
}

static int measure(struct mr_trial *t, struct mr_trial_one *run, struct mr_error *err)
{
    struct mr_explanation *x = NULL;
    const char *path = run->trace;
    const struct mr_explain_how how = {
        .explain = {.threads = t->req.threads, .rank = -1, .step_from = -1, .stop = t->req.stop}};
    int rc = mr_explain_open(&path, 1, &how, &x, err);
    if (!rc)
        rc = t->whole ? mr_window_whole(x, &run->window, err) : mr_window_of(x, t->from, t->to, &run->window, err);
    mr_explanation_free(x);
    return rc;
}

/* Whether the changed program changed anything. */
static int check_injected(struct mr_trial *t, const struct places *p, struct mr_error *err)
{
    if (t->own) {
        t->injected = (struct mr_injected){.changed = 1, .change = t->injection.wanted};
        return 0;
    }
    int rc = mr_injected_read(p->report, &t->arena, &t->injected, err);
    if (rc || t->injected.changed)
        return rc;
    if (t->injected.refused)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "%s cannot be tried: %s", t->finding->id, t->injected.refused);
    return mr_error_plain(err, MR_E_INCOMPLETE, "%s was not tried: the program used no %s", t->finding->id,
                          t->injection.target);
}

static int rerun(struct mr_trial *t, struct mr_trial_one *run, const struct places *p, struct mr_rerun_result *r,
                 struct mr_error *err)
{
    char *words[5];
    uint64_t limit = t->req.limit_ns ? t->req.limit_ns : (uint64_t)(limit_of(t) * (double)MR_NS_PER_S);
    struct mr_rerun how = {.argv = words, .log = p->log, .limit_ns = limit, .stop = t->req.stop};
    int rc = 0;
    if (t->own) {
        char base[PATH_MAX + 32];
        snprintf(base, sizeof base, "%.4000s/%s", t->scratch.folder, p->name);
        rc = mr_trial_own_command(t, run, base, words, err);
    } else {
        rc = write_plan(t, run, p, err);
        how.argv = (char *const *)(uintptr_t)t->x->start->command;
        how.folder = t->x->start->folder;
        how.trace = run->trace;
        how.marks = p->marks;
        how.extra = environment_of(t, p);
        if (!rc && !how.extra)
            rc = mr_error_set(err, -ENOMEM, "cannot run the program again");
    }
    return rc ? rc : mr_rerun(&how, r, err);
}

/* What a run left, unless it is to be kept. */
static void remove_trace(const struct mr_trial *t, const struct mr_trial_one *run)
{
    if (*t->req.out)
        return;
    if (t->own)
        (void)mr_temp_folder_remove(run->trace, NULL);
    else
        unlink(run->trace);
}

static int run_once(struct mr_trial *t, struct mr_trial_one *run, struct mr_error *err)
{
    struct places p;
    struct mr_rerun_result r;
    int rc = make_places(t, run, &p, err);
    if (t->evicts)
        mr_data_files_evict(&t->data);
    rc = rc ? rc : rerun(t, run, &p, &r, err);
    if (rc)
        return rc;
    run->took_s = (double)r.took_ns / 1e9;
    if (run->changed && has_failed(&r)) {
        t->failed = last_line(t, p.log);
        return 0;
    }
    struct mr_error why;
    if (measure(t, run, &why) != 0)
        return t->req.stop && atomic_load(t->req.stop) ? mr_error_plain(err, MR_E_INTERRUPTED, "interrupted")
                                                       : not_reached(t, &r, &p, &why, err);
    if (run->changed && !t->injected.changed)
        rc = check_injected(t, &p, err);
    remove_trace(t, run);
    return rc;
}

/* ---- the data ---- */

/* Whether what the recorded run waited for came from storage, so that the page cache must not serve the trial's runs. */
static bool read_storage(const struct mr_explanation *x)
{
    uint64_t storage = x->stall[MR_STALL_STORAGE] + x->stall[MR_STALL_METADATA];
    return storage > x->stall[MR_STALL_PAGE_CACHE] && (double)storage > STORED * (double)x->ns[MR_TIME_STALL];
}

static int stage(struct mr_trial *t, struct mr_error *err)
{
    const char *usual = getenv("TMPDIR"), *disk = usual && *usual ? usual : "/tmp";
    unsigned readers = t->x->facts.workers >= 1 ? (unsigned)t->x->facts.workers : 1;
    int rc = t->data.n ? 0 : mr_data_files_of(t->x, &t->data, err);
    rc = rc ? rc : mr_scratch_beside(&t->scratch, *t->injection.stage == 'm' ? "/dev/shm" : disk, t->staged, err);
    if (rc)
        return rc;
    mr_log(MR_LOG_NOTE, "copying %zu files of the data", t->data.n);
    return mr_data_files_copy(&t->data, t->staged, readers, t->req.stop, &t->staged_s, err);
}

/* The list is needed to copy the data; that they cannot be dropped from the page cache is no error. */
static int prepare_data(struct mr_trial *t, struct mr_error *err)
{
    struct mr_error ignored;
    bool staged = t->injection.stage || t->injection.buffer;
    if (t->own || (!staged && !read_storage(t->x)))
        return 0;
    int rc = mr_data_files_of(t->x, &t->data, staged ? err : &ignored);
    t->evicts = !rc && read_storage(t->x);
    return staged ? rc : 0;
}

/* ---- all of them ---- */

static void note(struct mr_trial *t, const char *text)
{
    if (text && t->notes < MR_ARRAY_LEN(t->note))
        t->note[t->notes++] = text;
}

/* A that waits otherwise than the recorded run: the prediction was about something else. */
static void compare_with_recorded(struct mr_trial *t, const struct mr_window *a)
{
    double was = t->recorded.steps ? t->recorded.wait_s : NAN, is = a->wait_s;
    if (fabs(is - was) > fmax(OTHER_WAIT * was, 0.02 * a->wall_s))
        note(t,
             mr_arena_printf(&t->arena,
                             "A waits %.3g s in these steps, the recorded run waited %.3g s: the machine, or what its "
                             "page cache holds, is not as it was then",
                             is, was));
}

static void compare_work(struct mr_trial *t, const struct mr_window *a, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (fabs(a[i].bytes - a[0].bytes) > OTHER_BYTES * fmax(a[i].bytes, a[0].bytes)) {
            note(t, "the runs of A did not read as many bytes as each other: the program is random");
            return;
        }
}

/* Copies are made once for a run; they are no part of the window. */
static void weigh_staging(struct mr_trial *t)
{
    struct mr_judgement *j = &t->judgement;
    double steps = (double)mr_window_most(t->x), of = (double)(t->to - t->from);
    double saves = j->gain.saved * steps / of;
    if (!t->injection.stage)
        return;
    note(t, mr_arena_printf(&t->arena,
                            "copying the data took %.3g s, once for a run; over all %.0f steps of the recorded run "
                            "reading the copies saves %.3g s",
                            t->staged_s, steps, saves));
    if (saves < t->staged_s && (j->verdict == MR_TRIAL_CONFIRMED || j->verdict == MR_TRIAL_SMALLER))
        j->verdict = MR_TRIAL_NO_GAIN;
}

int mr_trial_judge(struct mr_trial *t, struct mr_error *err)
{
    struct mr_window *a = calloc(2 * t->runs + 1, sizeof(*a)), *b = a ? a + t->runs : NULL;
    size_t as = 0, bs = 0;
    if (!a)
        return mr_error_set(err, -ENOMEM, "cannot compare the runs");
    for (size_t i = 0; i < t->runs; i++)
        *(t->run[i].changed ? &b[bs++] : &a[as++]) = t->run[i].window;
    int rc = mr_judge(a, b, MR_MIN(as, bs), &t->predicted, &t->judgement, err);
    weigh_staging(t);
    compare_with_recorded(t, &a[0]);
    compare_work(t, a, as);
    free(a);
    return rc;
}

int mr_trial_start(struct mr_trial *t, size_t most, struct mr_error *err)
{
    if (*t->req.out && mkdir(t->req.out, 0777) != 0 && errno != EEXIST)
        return mr_error_set(err, -errno, "cannot make '%s'", t->req.out);
    int rc = mr_scratch_open(&t->scratch, err);
    rc = rc ? rc : prepare_data(t, err);
    t->run = rc ? NULL : calloc(most, sizeof(*t->run));
    if (!rc && !t->run)
        rc = mr_error_set(err, -ENOMEM, "cannot hold %zu runs", most);
    return rc;
}

int mr_trial_next(struct mr_trial *t, bool changed, struct mr_error *err)
{
    struct mr_trial_one *run = &t->run[t->runs++];
    run->changed = changed;
    int rc = changed && t->injection.stage && !*t->staged ? stage(t, err) : 0;
    return rc ? rc : run_once(t, run, err);
}

int mr_trial_run(struct mr_trial *t, struct mr_error *err)
{
    const size_t all = 2 * (size_t)t->req.repeat;
    int rc = mr_trial_start(t, all, err);
    for (size_t i = 0; i < all && !rc && !t->failed; i++) {
        bool changed = i % 4 == 1 || i % 4 == 2;
        mr_log(MR_LOG_NOTE, "run %zu of %zu, %s", i + 1, all, changed ? "B, changed" : "A, as it is");
        rc = mr_trial_next(t, changed, err);
    }
    if (t->failed && !rc)
        t->judgement.verdict = MR_TRIAL_HARMFUL;
    else if (!rc)
        rc = mr_trial_judge(t, err);
    return rc;
}
