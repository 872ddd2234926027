/* Summary of a trace: see summary.h, and summary_internal.h for the files it is made by. */
#include "analyze/summary_internal.h"
#include "base/common.h"
#include "base/workers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Zeroed memory that is looked at in no order: large pages spare most of the address translation. */
static void *table_alloc(size_t n)
{
    const size_t large = 2 * MR_MIB;
    if (n < 4 * large)
        return calloc(1, n);
    n = MR_ALIGN_UP(n, large);
    void *p = aligned_alloc(large, n);
    if (p) {
        madvise(p, n, MADV_HUGEPAGE);
        memset(p, 0, n);
    }
    return p;
}

static int make_workers(struct summary_job *j)
{
    j->worker = calloc(j->workers, sizeof(*j->worker));
    for (unsigned k = 0; j->worker && k < j->workers; k++) {
        struct summary_worker *w = &j->worker[k];
        w->tally = calloc(j->function.n + 1, sizeof(*w->tally));
        w->file = table_alloc((j->file.n + 1) * sizeof(*w->file));
        w->group = calloc(j->groups + 1, sizeof(*w->group));
        w->group_events = calloc(j->groups + 1, sizeof(*w->group_events));
        w->group_first = malloc((j->groups + 1) * sizeof(*w->group_first));
        w->group_last = calloc(j->groups + 1, sizeof(*w->group_last));
        w->did_io = calloc(j->lanes + 1, 1);
        w->did_compute = calloc(j->lanes + 1, 1);
        w->present = calloc(j->lanes + 1, 1);
        if (!w->tally || !w->file || !w->group || !w->group_events || !w->group_first || !w->group_last || !w->did_io ||
            !w->did_compute || !w->present)
            return -ENOMEM;
        for (uint32_t g = 0; g < j->groups; g++)
            w->group_first[g] = UINT64_MAX;
    }
    return j->worker ? 0 : -ENOMEM;
}

static void worker_done(struct summary_job *j, struct summary_worker *w)
{
    for (size_t i = 0; w->tally && i < j->function.n; i++) {
        free(w->tally[i].dur);
        free(w->tally[i].size);
        mr_map_done(&w->tally[i].sizes);
    }
    mr_timeline_done(&w->timeline);
    mr_event_batch_done(&w->batch);
    free(w->tally);
    free(w->file);
    free(w->group);
    free(w->group_events);
    free(w->group_first);
    free(w->group_last);
    free(w->did_io);
    free(w->did_compute);
    free(w->present);
}

static void job_done(struct summary_job *j)
{
    for (unsigned k = 0; j->worker && k < j->workers; k++)
        worker_done(j, &j->worker[k]);
    mr_summary_drop_runs(j, UINT64_MAX);
    while (j->spares)
        free(j->spare[--j->spares].item);
    for (size_t p = 0; j->owner && p < j->t->processes; p++)
        if (j->owner[p] == p) {
            free(j->site_of[p]);
            free(j->file_of[p]);
        }
    free(j->owner);
    for (uint32_t g = 0; j->steps && g <= j->groups; g++)
        if (g == j->groups || j->steps[g].item != j->steps[j->groups].item)
            mr_intervals_done(&j->steps[g]);
    free(j->steps);
    pthread_mutex_destroy(&j->lock);
    free(j->worker);
    free(j->site_of);
    free(j->file_of);
    free(j->function.item);
    free(j->function_class.item);
    free(j->file.item);
    free(j->file_apart.item);
    free(j->file_wanted);
    mr_map_done(&j->names);
    free(j->run.item);
    free(j->order);
    free(j->group_of);
    free(j->group_rank);
    free(j->lane_of);
}

int mr_summarise(const struct mr_trace *t, const struct mr_summary_options *opt, const atomic_bool *stop,
                 struct mr_summary **out, struct mr_error *err)
{
    struct mr_summary *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot summarise");
    struct summary_job j = {.t = t, .opt = opt, .arena = &s->arena};
    j.workers = opt->threads ? opt->threads : mr_cpus_available();
    j.from_ns = t->first_ns + opt->from_ns;
    j.to_ns = opt->to_ns ? MR_MIN(t->last_ns + 1, t->first_ns + opt->to_ns) : t->last_ns + 1;
    pthread_mutex_init(&j.lock, NULL);
    int rc = mr_summary_gather_names(&j);
    rc = rc ? rc : mr_summary_choose_files(&j);
    rc = rc ? rc : mr_summary_make_groups(&j);
    rc = rc ? rc : mr_summary_order_chunks(&j);
    rc = rc ? rc : make_workers(&j);
    if (rc < 0)
        rc = mr_error_set(err, rc, "cannot summarise");
    rc = rc ? rc : mr_summary_gather_steps(&j, err);
    if (rc == 0 && j.from_ns < j.to_ns)
        rc = mr_summary_work_all(&j, stop, err);
    if (rc == 0 && mr_summary_finish(&j, s) < 0)
        rc = mr_error_set(err, -ENOMEM, "cannot summarise");
    job_done(&j);
    if (rc < 0) {
        mr_summary_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void mr_summary_free(struct mr_summary *s)
{
    if (!s)
        return;
    mr_arena_done(&s->arena);
    free(s);
}
