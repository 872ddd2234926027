/* What of a trace is looked at: files that match, ranks as groups, chunks in the order of time, and training steps. */
#include "analyze/summary_internal.h"
#include "base/common.h"
#include "event/path_glob.h"

#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

int mr_summary_choose_files(struct summary_job *j)
{
    if (!j->opt->path || !*j->opt->path)
        return 0;
    const char *glob = j->opt->path;
    bool more =
        strchr(glob, '{') || glob[strlen(glob) - 1] == '/'; /* beyond fnmatch; the tracer's options accept them */
    j->file_wanted = calloc(j->file.n + 1, 1);
    char *globs = malloc(MR_GLOBS_BYTES);
    if (!j->file_wanted || !globs) {
        free(globs);
        return -ENOMEM;
    }
    if (!more || !mr_globs_read(glob, globs, MR_GLOBS_BYTES))
        globs[0] = 0;
    for (size_t i = 0; i < j->file.n; i++) {
        char path[4097];
        size_t n = MR_MIN((size_t)j->file.item[i].path_len, sizeof(path) - 1);
        memcpy(path, j->file.item[i].path, n);
        path[n] = 0;
        j->file_wanted[i + 1] = fnmatch(glob, path, 0) == 0 || mr_globs_match(globs, path);
    }
    free(globs);
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* Groups are ranks, numbered in their order. */
int mr_summary_make_groups(struct summary_job *j)
{
    const struct mr_trace *t = j->t;
    j->group_of = calloc(t->processes + 1, sizeof(*j->group_of));
    j->group_rank = calloc(t->processes + 1, sizeof(*j->group_rank));
    if (!j->group_of || !j->group_rank)
        return -ENOMEM;
    for (size_t i = 0; i < t->processes; i++)
        j->group_rank[i] = t->process[i].rank;
    qsort(j->group_rank, t->processes, sizeof(*j->group_rank), by_rank);
    for (size_t i = 0; i < t->processes; i++)
        if (!j->groups || j->group_rank[j->groups - 1] != j->group_rank[i])
            j->group_rank[j->groups++] = j->group_rank[i];
    for (size_t i = 0; i < t->processes; i++) {
        const int32_t *at = bsearch(&t->process[i].rank, j->group_rank, j->groups, sizeof(*at), by_rank);
        assert(at && j->groups <= t->processes); /* every rank is in the list it was made from */
        j->group_of[i] = (uint32_t)(at - j->group_rank);
    }
    return 0;
}

struct place {
    uint64_t first;
    uint32_t chunk;
};

static int by_first(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Numbers the threads, and lists the chunks that filters leave in the order of time. */
int mr_summary_order_chunks(struct summary_job *j)
{
    const struct mr_trace *t = j->t;
    struct place *p = malloc((t->chunks + 1) * sizeof(*p));
    j->order = malloc((t->chunks + 1) * sizeof(*j->order));
    j->lane_of = calloc(t->chunks + 1, sizeof(*j->lane_of));
    if (!p || !j->order || !j->lane_of) {
        free(p);
        return -ENOMEM;
    }
    for (size_t i = 0; i < t->chunks; i++) {
        const struct mr_trace_chunk *c = &t->chunk[i];
        if (!mr_summary_rank_wanted(j, &t->process[c->process]))
            continue;
        bool same = i && j->lanes && c->process == t->chunk[i - 1].process && c->tid == t->chunk[i - 1].tid;
        j->lane_of[i] = same ? j->lanes - 1 : j->lanes++;
        if (c->count && c->first_ns < j->to_ns && c->last_ns >= j->from_ns)
            p[j->ordered++] = (struct place){c->first_ns, (uint32_t)i};
    }
    qsort(p, j->ordered, sizeof(*p), by_first);
    for (size_t i = 0; i < j->ordered; i++)
        j->order[i] = p[i].chunk;
    free(p);
    return 0;
}

/* ---- steps ---- */

static bool is_step(const struct mr_trace_string *s)
{
    return s->len == 4 && !memcmp(s->text, "step", 4);
}

/* The step given by row `a` of the arguments; false if it is another argument, or a later row overrides it. */
static bool step_of(const struct mr_event_batch *b, uint32_t a, int64_t *step)
{
    const struct mr_columns *c = &b->c;
    if ((c->arg_type[a] != MR_MORE_INT && c->arg_type[a] != MR_MORE_UINT) ||
        !is_step(mr_trace_string(b->process, c->arg_key[a])))
        return false;
    for (uint32_t next = a + 1; next < b->args && c->arg_event[next] == c->arg_event[a]; next++)
        if (c->arg_key[next] == c->arg_key[a])
            return false;
    *step = (int64_t)c->arg_value[a];
    return true;
}

/* Steps are per rank: ranks may be in different steps at the same time. Processes without a rank, and ranks that mark
 * no steps, use the union of all. */
int mr_summary_gather_steps(struct summary_job *j, struct mr_error *err)
{
    if (j->opt->step_from < 0)
        return 0;
    struct mr_event_batch b = {0};
    bool *has = calloc(j->groups + 1, sizeof(*has));
    int rc = 0;
    j->steps = calloc(j->groups + 1, sizeof(*j->steps));
    if (!has || !j->steps)
        rc = mr_error_set(err, -ENOMEM, "cannot find the steps");
    for (size_t i = 0; i < j->t->chunks && rc == 0; i++) {
        if (!j->t->chunk[i].args)
            continue;
        uint32_t group = j->group_of[j->t->chunk[i].process];
        rc = mr_trace_read(j->t, i, MR_WANT_TIME | MR_WANT_ARGS, &b, err);
        for (uint32_t a = 0; a < b.args && rc == 0; a++) {
            uint32_t e = b.c.arg_event[a];
            int64_t step;
            if (!step_of(&b, a, &step))
                continue;
            has[group] = true;
            if (step >= j->opt->step_from && step <= j->opt->step_to &&
                (mr_intervals_add(&j->steps[group], b.c.start_ns[e], b.c.end_ns[e]) < 0 ||
                 mr_intervals_add(&j->steps[j->groups], b.c.start_ns[e], b.c.end_ns[e]) < 0))
                rc = mr_error_set(err, -ENOMEM, "cannot find the steps");
        }
    }
    mr_event_batch_done(&b);
    for (uint32_t g = 0; rc == 0 && g <= j->groups; g++)
        mr_intervals_normalise(&j->steps[g]);
    for (uint32_t g = 0; rc == 0 && g < j->groups; g++)
        if (!has[g])
            j->steps[g] = j->steps[j->groups]; /* shares its list */
    free(has);
    return rc;
}
