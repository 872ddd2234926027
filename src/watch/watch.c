/* Opening, polling and the figures of a screen; see watch.h. */
#include "watch/watch.h"
#include "base/clock.h"
#include "base/common.h"
#include "watch/watch_find.h"
#include "watch/watch_internal.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REQUEST_S 5u                  /* how long the collector keeps the trace fresh after a poll */
#define LATE_SHARE 0.03               /* of a step: below it ranks are alike */
#define SLOW_FACTOR 1.3               /* of a worker */
#define SUMMARY_NS (10 * MR_NS_PER_S) /* how long a run that has ended may take to write its summary */

/* ---- opening ---- */

static bool has_tail(const struct mr_watch *w, const char *path)
{
    for (size_t i = 0; i < w->tails; i++)
        if (!strcmp(w->tail[i].path, path))
            return true;
    return false;
}

static int add_tail(struct mr_watch *w, const char *path, struct mr_error *err)
{
    struct mr_tail *bigger = realloc(w->tail, (w->tails + 1) * sizeof(*bigger));
    if (!bigger)
        return mr_error_set(err, -ENOMEM, "cannot watch '%s'", path);
    w->tail = bigger;
    int rc = mr_tail_open(path, &w->tail[w->tails], err);
    w->tails += rc == 0;
    return rc;
}

/* Traces of the folder that are new. Once parts are followed, the whole that they are joined to has nothing new. */
static int look_for_parts(struct mr_watch *w, struct mr_error *err)
{
    char **name;
    size_t n;
    int rc = mr_watch_parts(w->path, &name, &n, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        bool part = strstr(name[i], ".mrt.rank-") != NULL, parts = w->tails && strstr(w->tail[0].path, ".mrt.rank-");
        struct mr_error later; /* a file without its header yet, or one that is gone already: the next look will do */
        if ((part || !parts) && !has_tail(w, name[i]) && add_tail(w, name[i], &later) == -ENOMEM)
            rc = mr_error_set(err, -ENOMEM, "cannot watch '%s'", w->path);
        free(name[i]);
    }
    free(name);
    return rc;
}

static int open_files(struct mr_watch *w, struct mr_error *err)
{
    struct stat st;
    if (stat(w->path, &st) < 0)
        return mr_error_set(err, -errno, "cannot find '%s'", w->path);
    w->is_folder = S_ISDIR(st.st_mode);
    int rc = w->is_folder ? look_for_parts(w, err) : add_tail(w, w->path, err);
    if (rc || w->tails)
        return rc;
    mr_error_plain(err, MR_E_FORMAT, "'%s' holds no trace", w->path);
    return mr_error_hint(err, "watch the results folder of a 'millrace run', or the trace of 'millrace trace'"),
           MR_E_FORMAT;
}

int mr_watch_open(const char *word, uint64_t epochs, uint64_t steps, struct mr_watch **out, struct mr_error *err)
{
    char path[PATH_MAX];
    struct mr_watch *w = calloc(1, sizeof(*w));
    int rc = w ? mr_watch_find(word, path, err) : mr_error_set(err, -ENOMEM, "cannot watch '%s'", word);
    if (rc < 0) {
        free(w);
        return rc;
    }
    w->epochs = epochs;
    w->epochs_by = epochs ? "--epochs" : NULL;
    w->steps = steps;
    w->utilisation = (double)NAN;
    w->path = strdup(path);
    rc = w->path ? mr_trace_create(&w->t, err) : mr_error_set(err, -ENOMEM, "cannot watch '%s'", word);
    rc = rc ? rc : open_files(w, err);
    if (rc < 0)
        mr_watch_close(w);
    else
        *out = w;
    return rc;
}

const char *mr_watch_path(const struct mr_watch *w)
{
    return w->path;
}

void mr_watch_close(struct mr_watch *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->tails; i++)
        mr_tail_close(&w->tail[i]);
    for (size_t i = 0; i < w->process_cap; i++)
        free(w->process[i].tag);
    mr_event_batch_done(&w->batch);
    mr_trace_free(w->t);
    free(w->tail);
    free(w->process);
    free(w->row);
    free(w->shown);
    free(w->path);
    free(w);
}

/* ---- the command line ---- */

/* "--epochs=10", "--num_epochs 10": the number behind a word that says epochs; 0: none. */
static uint64_t epochs_of(const char *word, const char *next, const char **by)
{
    static const struct {
        const char *option, *shown;
    } all[] = {{"epochs", "--epochs"},
               {"num-epochs", "--num-epochs"},
               {"n-epochs", "--n-epochs"},
               {"max-epochs", "--max-epochs"},
               {"num-train-epochs", "--num-train-epochs"}};
    const char *name = word + strspn(word, "-");
    if (name == word)
        return 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++) {
        size_t n = strlen(all[i].option), k = 0;
        while (k < n && (name[k] == all[i].option[k] || (name[k] == '_' && all[i].option[k] == '-')))
            k++;
        const char *value = k < n ? NULL : name[k] == '=' ? name + k + 1 : !name[k] ? next : NULL;
        char *end = NULL;
        unsigned long long v = value && isdigit((unsigned char)*value) ? strtoull(value, &end, 10) : 0;
        if (v && !*end && v < 10000000) {
            *by = all[i].shown;
            return v;
        }
    }
    return 0;
}

/* Of the process that trains: its words, and how many epochs they ask for. */
static void read_command(struct mr_watch *w)
{
    const struct mr_trace_process *p = w->rows ? &w->t->process[w->row[0].process] : NULL;
    char line[sizeof w->program];
    if (w->read_words || !p || !p->known)
        return;
    w->read_words = true;
    size_t n = MR_MIN(sizeof line - 1, (size_t)p->cmdline.len);
    if (n)
        memcpy(line, p->cmdline.text, n);
    line[n] = '\0';
    for (size_t at = 0, next; at < n; at = next) {
        next = at + strlen(line + at) + 1;
        if (!w->epochs)
            w->epochs = epochs_of(line + at, next < n ? line + next : NULL, &w->epochs_by);
    }
    for (size_t i = 0; i + 1 < n; i++)
        line[i] = line[i] ? line[i] : ' ';
    snprintf(w->program, sizeof w->program, "%s", line);
}

/* ---- polling ---- */

/* A run is over when its parts are joined and its summary is there. */
static bool is_settled(const struct mr_watch *w)
{
    char file[PATH_MAX + 32];
    snprintf(file, sizeof file, "%s/summary.json", w->path);
    return !w->is_folder || access(file, F_OK) == 0 || mr_now_ns() - w->quiet_since_ns > SUMMARY_NS;
}

static void judge_end(struct mr_watch *w, size_t took)
{
    bool ended = true, whole = true;
    for (size_t i = 0; i < w->tails; i++) {
        ended &= w->tail[i].ended || (!took && !w->tail[i].written);
        whole &= w->tail[i].ended;
    }
    if (!ended)
        w->quiet_since_ns = 0;
    else if (!w->quiet_since_ns)
        w->quiet_since_ns = mr_now_ns();
    w->ended = ended && is_settled(w);
    w->whole = whole;
    for (size_t i = 0; i < w->rows && w->ended; i++)
        mr_watch_last(&w->row[i], w->last_ns);
}

/* A trace of limited size begins anew now and then; several times between two looks, and a part was never read. */
static void note_gaps(struct mr_watch *w)
{
    unsigned turns = 0;
    for (size_t i = 0; i < w->tails; i++)
        turns += w->tail[i].turns;
    for (size_t i = 0; i < w->rows && turns != w->turns; i++)
        mr_watch_gap(&w->row[i]);
    w->turns = turns;
}

int mr_watch_poll(struct mr_watch *w, const atomic_bool *stop, struct mr_error *err)
{
    size_t took = 0, n = 0;
    int rc = w->is_folder ? look_for_parts(w, err) : 0;
    for (size_t i = 0; i < w->tails && !rc; i++)
        do {
            mr_watch_request(w->tail[i].path, REQUEST_S);
            rc = mr_tail_poll(&w->tail[i], mr_watch_block, w, &n, err);
            took += n;
            if (!rc && stop && atomic_load_explicit(stop, memory_order_relaxed))
                rc = mr_error_set(err, MR_E_INTERRUPTED, "watching was stopped");
        } while (n && !rc);
    if (rc)
        return rc;
    note_gaps(w);
    read_command(w);
    judge_end(w, took);
    return 0;
}

/* ---- figures ---- */

static double total(const struct watch_sum *s)
{
    return s->now + s->before;
}

static double share(const struct watch_row *r, enum watch_part p)
{
    double all = total(&r->sum[PART_STEP]);
    return all > 0 ? fmin(1, total(&r->sum[p]) / all) : (double)NAN;
}

/* Behind the last event a job that runs is still going on: its silence is part of the time. */
static uint64_t horizon(const struct mr_watch *w)
{
    return w->ended ? w->last_ns : MR_MAX(w->last_ns, mr_wall_ns());
}

static void show_rank(const struct mr_watch *w, const struct watch_row *r, struct mr_watch_rank *out)
{
    double n = total(&r->n);
    bool trains = r->steps > 0;
    *out = (struct mr_watch_rank){.rank = r->rank,
                                  .pid = w->t->process[r->process].pid,
                                  .steps = r->own   ? r->steps + r->evaluated
                                           : trains ? r->steps
                                                    : r->evaluated,
                                  .evaluated = trains ? r->evaluated : 0,
                                  .epoch = r->in_any_epoch ? r->epochs_done + 1 : 0,
                                  .step_s = n > 0 ? total(&r->sum[PART_STEP]) / n / 1e9 : (double)NAN,
                                  .stall = r->waits ? share(r, PART_STALL) : (double)NAN,
                                  .barrier = share(r, PART_BARRIER),
                                  .checkpoint = share(r, PART_SAVE),
                                  .idle = r->idles ? share(r, PART_IDLE) : (double)NAN,
                                  .own_s = (double)NAN};
    if (n > 0)
        out->own_s = (total(&r->sum[PART_STEP]) - total(&r->sum[PART_BARRIER])) / n / 1e9;
    uint64_t last = r->last_ns ? r->last_ns : w->first_ns, now = horizon(w);
    out->quiet_s = (double)(now - MR_MIN(last, now)) / 1e9;
}

static int by_rank(const void *a, const void *b)
{
    const struct mr_watch_rank *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The mean over the ranks that know it. */
static double mean_of(const struct mr_watch_figures *f, size_t offset)
{
    double sum = 0, n = 0;
    for (size_t i = 0; i < f->ranks; i++) {
        double v;
        memcpy(&v, (const char *)&f->rank[i] + offset, sizeof v);
        if (!isnan(v)) {
            sum += v;
            n++;
        }
    }
    return n > 0 ? sum / n : (double)NAN;
}

/* The rank whose steps take longest without its waits for others, if it is clearly longer. */
static void find_late(struct mr_watch_figures *f)
{
    double sum = 0, most = 0;
    size_t n = 0;
    f->late = SIZE_MAX;
    for (size_t i = 0; i < f->ranks; i++)
        if (!isnan(f->rank[i].own_s)) {
            sum += f->rank[i].own_s;
            n++;
            if (f->rank[i].own_s > most) {
                most = f->rank[i].own_s;
                f->late = i;
            }
        }
    if (f->late == SIZE_MAX)
        return;
    double others = n > 1 ? (sum - most) / (double)(n - 1) : most;
    f->late_s = most - others;
    if (!(f->late_s > LATE_SHARE * f->rank[f->late].step_s))
        f->late = SIZE_MAX;
}

static void find_slow(const struct mr_watch *w, struct mr_watch_figures *f)
{
    double worst = SLOW_FACTOR;
    for (size_t i = 0; i < w->rows; i++) {
        const struct watch_row *r = &w->row[i];
        double n = 0, ns = 0;
        for (unsigned k = 0; k < r->workers; k++) {
            n += total(&r->worker[k].batches);
            ns += total(&r->worker[k].ns);
        }
        for (unsigned k = 0; k < r->workers; k++) {
            double mine = total(&r->worker[k].batches), took = total(&r->worker[k].ns);
            if (mine < 3 || n - mine < 3 || !(took / mine > worst * (ns - took) / (n - mine)))
                continue;
            worst = (took / mine) / ((ns - took) / (n - mine));
            f->slow = (struct mr_watch_worker){(uint32_t)i, r->worker[k].number, took / mine / 1e9,
                                               (ns - took) / (n - mine) / 1e9};
            f->has_slow = true;
        }
    }
    for (size_t i = 0; f->has_slow && i < f->ranks; i++) /* rows are in the order of their begin, ranks are sorted */
        if (f->rank[i].pid == w->t->process[w->row[f->slow.rank].process].pid) {
            f->slow.rank = (uint32_t)i;
            break;
        }
}

static void find_mounts(const struct mr_watch *w, struct mr_watch_figures *f)
{
    double s = (double)(horizon(w) - MR_MIN(w->before_ns, horizon(w))) / 1e9;
    bool used[MOUNTS_MOST] = {false};
    for (f->mounts = 0; f->mounts < MR_WATCH_MOUNTS && s > 0; f->mounts++) {
        const struct watch_mount *best = NULL;
        for (unsigned i = 0; i < w->mounts; i++)
            if (!used[i] && total(&w->mount[i].calls) > 0 && (!best || total(&w->mount[i].ns) > total(&best->ns)))
                best = &w->mount[i];
        if (!best)
            return;
        used[best - w->mount] = true;
        f->mount[f->mounts] = (struct mr_watch_mount){.path = best->path,
                                                      .type = best->type,
                                                      .read_bytes_per_s = total(&best->read_bytes) / s,
                                                      .written_bytes_per_s = total(&best->written_bytes) / s,
                                                      .opens_per_s = total(&best->opens) / s,
                                                      .in_flight = total(&best->ns) / s / 1e9,
                                                      .call_s = total(&best->ns) / total(&best->calls) / 1e9};
    }
}

/* How many steps there will be, and when the last one ends: at the mean rate of the whole run, evaluation and
 * checkpoints counted in. */
static void predict(const struct mr_watch *w, struct mr_watch_figures *f)
{
    const struct watch_row *r = NULL;
    for (size_t i = 0; i < w->rows; i++)
        if (!r || w->row[i].steps > r->steps)
            r = &w->row[i];
    f->left_s = (double)NAN;
    if (!r || !r->steps)
        return;
    uint64_t per_epoch = r->epochs_done ? r->epoch_steps : r->batches;
    f->epochs = w->epochs;
    f->all_steps = w->steps ? w->steps : r->steps_set ? r->steps_set : w->epochs * per_epoch;
    f->all_by = w->steps ? "--steps" : r->steps_set ? "the workload" : w->epochs_by;
    if (!f->all_steps && per_epoch) { /* at least to the end of the epoch */
        f->all_steps = r->steps - r->in_epoch + MR_MAX(per_epoch, r->in_epoch);
        f->all_by = "this epoch";
    }
    uint64_t done = r->own ? r->steps + r->evaluated : r->steps;
    if (f->all_steps >= done && done > 1)
        f->left_s = (double)(r->last_ns - r->first_ns) / 1e9 / (double)done * (double)(f->all_steps - done);
}

void mr_watch_figures(struct mr_watch *w, struct mr_watch_figures *f)
{
    *f = (struct mr_watch_figures){.path = w->path,
                                   .program = w->program,
                                   .events = w->events,
                                   .processes = w->t->processes,
                                   .ended = w->ended,
                                   .whole = w->whole,
                                   .gaps = w->turns > 0,
                                   .utilisation = w->utilisation,
                                   .late = SIZE_MAX};
    uint64_t now = horizon(w);
    if (w->first_ns)
        f->elapsed_ns = now - MR_MIN(w->first_ns, now);
    f->behind_s = w->last_ns ? (double)(now - MR_MIN(w->last_ns, now)) / 1e9 : 0;
    if (mr_vec_reserve(&w->shown, &w->shown_cap, w->rows + 1, sizeof(*w->shown)) < 0)
        return; /* without ranks */
    for (size_t i = 0; i < w->rows; i++) {
        show_rank(w, &w->row[i], &w->shown[i]);
        f->steps = MR_MAX(f->steps, w->shown[i].steps);
        f->epoch = MR_MAX(f->epoch, w->shown[i].epoch);
    }
    qsort(w->shown, w->rows, sizeof(*w->shown), by_rank);
    f->rank = w->shown;
    f->ranks = w->rows;
    double step_s = mean_of(f, offsetof(struct mr_watch_rank, step_s));
    f->steps_per_s = step_s > 0 ? 1 / step_s : (double)NAN;
    f->stall = mean_of(f, offsetof(struct mr_watch_rank, stall));
    f->barrier = mean_of(f, offsetof(struct mr_watch_rank, barrier));
    f->checkpoint = mean_of(f, offsetof(struct mr_watch_rank, checkpoint));
    f->idle = mean_of(f, offsetof(struct mr_watch_rank, idle));
    find_late(f);
    find_slow(w, f);
    find_mounts(w, f);
    predict(w, f);
}
