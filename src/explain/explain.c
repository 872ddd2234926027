/* Explaining a trace: see explain.h for the result, explain_internal.h for the way there. */
#include "base/common.h"
#include "base/workers.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BINS_MOST 2000u
#define BIN_LEAST 1000000u
#define COLUMNS_MOST 512u
#define ROWS_MOST 256u
#define TALLY_BYTES (384u << 20) /* memory for counters of files, of all workers together */

static void worker_done(struct explain_worker *w)
{
    mr_event_batch_done(&w->batch);
    free(w->sums);
    free(w->file);
    free(w->read_time);
    free(w->storage_time);
    free(w->write_time);
    free(w->read_bins);
    free(w->write_bins);
    free(w->flight_bins);
    mr_explain_snippets_free(w->snippets);
    free(w->heat_read);
    free(w->heat_write);
    free(w->access.item);
    free(w->flight.read.item);
    free(w->answers.read.item);
    free(w->requests.read.item);
    free(w->peer.item);
    mr_map_done(&w->peer_of);
    free(w->span.item);
    free(w->make.item);
    free(w->place.item);
    free(w->cost.item);
    mr_intervals_done(&w->scratch);
}

static void lanes_done(struct explain_job *j)
{
    for (uint32_t l = 0; l < j->lanes; l++) {
        free(j->lane[l].covered);
        free(j->lane[l].stream);
        free(j->lane[l].talk);
        mr_map_done(&j->lane[l].sizes);
        free(j->lane[l].piece.item);
        for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++)
            mr_intervals_done(&j->lane[l].set[c]);
    }
    free(j->lane);
    for (uint32_t r = 0; j->rank && r < j->ranks; r++) {
        free(j->rank[r].begin.item);
        mr_intervals_done(&j->rank[r].compute);
        mr_intervals_done(&j->rank[r].save);
        mr_intervals_done(&j->rank[r].log);
        mr_intervals_done(&j->rank[r].held);
        mr_intervals_done(&j->rank[r].state);
        for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++)
            mr_intervals_done(&j->rank[r].carry[c]);
    }
    free(j->rank);
}

static void job_done(struct explain_job *j)
{
    for (unsigned w = 0; j->worker && w < j->workers; w++)
        worker_done(&j->worker[w]);
    free(j->worker);
    for (size_t p = 0; j->owns && p < j->t->processes; p++)
        if (j->owns[p]) {
            free(j->site[p]);
            free(j->key[p]);
            free(j->file_of[p]);
            free(j->snippet_of[p]);
        }
    free(j->site);
    free(j->key);
    free(j->file_of);
    free(j->snippet_of);
    mr_map_done(&j->snippets);
    free(j->owns);
    free(j->kept);
    mr_map_done(&j->paths);
    free(j->file.item);
    free(j->rank_of);
    free(j->number);
    lanes_done(j);
    free(j->lane_of);
    free(j->span.item);
    free(j->make.item);
    free(j->place.item);
    free(j->wait.item);
    free(j->ask.item);
    free(j->helper.item);
    if (j->x->step_memory != j->step.item)
        free(j->step.item);
    free(j->checkpoint.item);
    free(j->order);
    free(j->unit.item);
    free(j->unit_first.item);
    mr_run_trace_free(j->run);
}

/* ---- preparation ---- */

static int make_pictures(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    struct mr_explain_timeline *t = &x->timeline;
    if (!j->opt->pictures || !x->duration_ns)
        return 0;
    j->bin_ns = MR_MAX((x->duration_ns + BINS_MOST - 1) / BINS_MOST, (uint64_t)BIN_LEAST);
    j->bins = (uint32_t)((x->duration_ns + j->bin_ns - 1) / j->bin_ns);
    j->column_ns = MR_MAX((x->duration_ns + COLUMNS_MOST - 1) / COLUMNS_MOST, (uint64_t)1);
    j->columns = (uint32_t)((x->duration_ns + j->column_ns - 1) / j->column_ns);
    j->ranks_per_row = (MR_MAX(j->ranks, 1u) + ROWS_MOST - 1) / ROWS_MOST;
    j->rows = (MR_MAX(j->ranks, 1u) + j->ranks_per_row - 1) / j->ranks_per_row;
    *t = (struct mr_explain_timeline){.bins = j->bins, .bin_ns = j->bin_ns};
    x->heat = (struct mr_explain_heat){
        .rows = j->rows, .columns = j->columns, .ranks_per_row = j->ranks_per_row, .column_ns = j->column_ns};
    double **const bins[] = {&t->read_bytes, &t->written_bytes, &t->in_flight, &t->stall, &t->compute, &t->checkpoint};
    double **const cells[] = {&x->heat.read_bytes, &x->heat.written_bytes, &x->heat.stall};
    bool failed = false;
    for (size_t i = 0; i < MR_ARRAY_LEN(bins); i++)
        failed |= !(*bins[i] = mr_arena_alloc(&x->arena, j->bins * sizeof(double)));
    for (size_t i = 0; i < MR_ARRAY_LEN(cells); i++)
        failed |= !(*cells[i] = mr_arena_alloc(&x->arena, (size_t)j->rows * j->columns * sizeof(double)));
    return failed ? -ENOMEM : 0;
}

/* Counters of the second pass; those of a million files take memory for each worker, so that there are fewer. */
static int make_counters(struct explain_job *j)
{
    size_t each = (j->file.n + 1) * sizeof(struct explain_tally), cells = (size_t)j->rows * j->columns;
    unsigned most = (unsigned)MR_MAX((size_t)TALLY_BYTES / each, (size_t)1);
    bool failed = false;
    for (unsigned w = most; w < j->workers; w++)
        worker_done(&j->worker[w]);
    j->workers = MR_MIN(j->workers, most);
    for (unsigned i = 0; i < j->workers; i++) {
        struct explain_worker *w = &j->worker[i];
        w->access_every = 1;
        w->sums = calloc(j->ranks + 1, sizeof(*w->sums));
        w->file = calloc(j->file.n + 1, sizeof(*w->file));
        w->read_time = malloc(sizeof(*w->read_time));
        w->write_time = malloc(sizeof(*w->write_time));
        w->storage_time = malloc(sizeof(*w->storage_time));
        failed |= !w->sums || !w->file || !w->read_time || !w->write_time || !w->storage_time;
        if (j->bins) {
            w->read_bins = calloc(j->bins, sizeof(*w->read_bins));
            w->write_bins = calloc(j->bins, sizeof(*w->write_bins));
            w->flight_bins = calloc(j->bins, sizeof(*w->flight_bins));
            w->heat_read = calloc(cells, sizeof(*w->heat_read));
            w->heat_write = calloc(cells, sizeof(*w->heat_write));
            failed |= !w->read_bins || !w->write_bins || !w->flight_bins || !w->heat_read || !w->heat_write;
        }
        if (failed)
            return -ENOMEM;
        mr_histogram_init(w->read_time);
        mr_histogram_init(w->write_time);
        mr_histogram_init(w->storage_time);
    }
    return 0;
}

/* The time of a rank that is looked at: from its first event to its last, within what is wanted. */
static void find_windows(struct explain_job *j)
{
    uint64_t from = j->t->first_ns + j->opt->from_ns;
    uint64_t to = j->opt->to_ns ? j->t->first_ns + j->opt->to_ns : UINT64_MAX;
    for (uint32_t r = 0; r < j->ranks; r++) {
        j->rank[r].from = UINT64_MAX;
        j->rank[r].to = 0;
    }
    for (uint32_t l = 0; l < j->lanes; l++) {
        if (j->lane[l].rank == NO_INDEX)
            continue;
        struct explain_rank *r = &j->rank[j->lane[l].rank];
        r->from = MR_MIN(r->from, j->lane[l].first_ns);
        r->to = MR_MAX(r->to, j->lane[l].last_ns);
    }
    for (uint32_t r = 0; r < j->ranks; r++) {
        j->rank[r].from = MR_MAX(j->rank[r].from == UINT64_MAX ? j->x->start_ns : j->rank[r].from, from);
        j->rank[r].to = MR_MAX(MR_MIN(j->rank[r].to, to), j->rank[r].from);
    }
}

/* ---- the result ---- */

static void sum_workers(struct explain_job *j)
{
    for (uint32_t r = 0; r < j->ranks; r++) {
        struct mr_explain_rank *k = &j->x->rank[r];
        for (unsigned w = 0; w < j->workers; w++) {
            const struct explain_sums *s = &j->worker[w].sums[r];
            k->read_bytes += s->read_bytes;
            k->written_bytes += s->written_bytes;
            k->read_calls += s->read_calls;
            k->write_calls += s->write_calls;
            k->metadata_calls += s->metadata_calls;
            k->io_sum_ns += s->io_sum_ns;
        }
        k->io_ns = j->rank[r].union_ns;
        k->io_in_compute_ns = j->rank[r].in_compute_ns;
    }
}

/* The list goes over to the explanation, with times since its start: of millions of steps there is no copy. */
static void keep_steps(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    x->step = x->step_memory = j->step.item;
    x->steps = j->step.n;
    for (size_t i = 0; i < j->step.n; i++) {
        x->step[i].start_ns -= x->start_ns;
        x->step[i].end_ns -= x->start_ns;
    }
}

/* A run of our own trainer, if the trace has one: checkpoints alone may be anybody's. */
static int read_run(struct explain_job *j, struct mr_error *err)
{
    bool any = false;
    int rc = mr_run_trace_read(j->t, &j->run, err);
    if (rc)
        return rc == MR_E_FORMAT ? 0 : rc;
    for (uint32_t r = 0; r < j->run->world; r++)
        any |= j->run->rank[r].steps.n || j->run->rank[r].open_ns;
    if (!any) {
        mr_run_trace_free(j->run);
        j->run = NULL;
    }
    return 0;
}

/* Wait classes of which no call was seen because the source, or this trace, has none at all. */
static unsigned unseen_waits(const struct explain_job *j)
{
    static const unsigned needs[] = {[MR_WAIT_STORAGE] = MR_SEES_DATA,
                                     [MR_WAIT_PAGE_CACHE] = MR_SEES_DATA,
                                     [MR_WAIT_METADATA] = MR_SEES_METADATA,
                                     [MR_WAIT_IPC] = MR_SEES_OTHERS,
                                     [MR_WAIT_NETWORK] = MR_SEES_OTHERS};
    unsigned unseen = 0;
    uint64_t any = 0;
    for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++)
        any |= j->x->wait[c];
    for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++)
        if (!j->x->wait[c] && (!any || !(j->t->sees & needs[c])))
            unseen |= 1u << c;
    return unseen;
}

static int explain(struct explain_job *j, struct mr_error *err)
{
    int rc = mr_explain_gather_names(j);
    rc = rc ? rc : mr_explain_gather_lanes(j);
    if (rc)
        return mr_error_set(err, rc, "cannot explain the trace");
    rc = read_run(j, err);
    rc = rc ? rc : mr_explain_gather_spans(j, err);
    if (rc)
        return rc;
    rc = mr_explain_find_jits(j);
    rc = rc ? rc : mr_explain_assign_ranks(j);
    if (!rc)
        find_windows(j);
    rc = rc ? rc : make_pictures(j);
    rc = rc ? rc : mr_explain_find_waits(j);
    if (!rc && ((rc = mr_explain_find_logs(j, err)) || (rc = mr_explain_find_hand(j, err))))
        return rc;
    rc = rc ? rc : mr_explain_match(j);
    rc = rc ? rc : j->run ? mr_explain_own_steps(j) : mr_explain_find_steps(j);
    rc = rc ? rc : mr_explain_find_checkpoints(j);
    rc = rc ? rc : mr_explain_ask(j);
    free(j->span.item); /* everything they tell has been taken from them; memory is needed for the second pass */
    memset(&j->span, 0, sizeof j->span);
    if (!rc)
        mr_explain_choose_slow(j);
    rc = rc ? rc : make_counters(j);
    if (rc)
        return mr_error_set(err, rc, "cannot explain the trace");
    rc = mr_explain_scan(j, err);
    if (rc)
        return rc;
    sum_workers(j);
    rc = mr_explain_attribute_stalls(j);
    rc = rc ? rc : mr_explain_finish_sizes(j);
    rc = rc ? rc : mr_explain_finish_pictures(j);
    rc = rc ? rc : mr_explain_finish_lanes(j);
    rc = rc ? rc : mr_explain_finish_snippets(j);
    rc = rc ? rc : mr_explain_finish_files(j);
    rc = rc ? rc : mr_explain_finish_checkpoints(j);
    keep_steps(j);
    rc = rc ? rc : mr_explain_finish_ranks(j);
    rc = rc ? rc : mr_explain_facts(j);
    rc = rc ? rc : mr_explain_places(j);
    rc = rc ? rc : mr_explain_fields(j);
    rc = rc ? rc : mr_explain_batches(j);
    rc = rc ? rc : mr_explain_counters(j);
    rc = rc ? rc : mr_explain_trust(j);
    j->x->trust.unfinished = j->t->unfinished;
    j->x->unseen_waits = unseen_waits(j);
    return rc ? mr_error_set(err, rc, "cannot explain the trace") : 0;
}

int mr_explain(const struct mr_trace *t, const struct mr_explain_options *opt, struct mr_explanation **out,
               struct mr_error *err)
{
    struct mr_explanation *x = calloc(1, sizeof(*x));
    struct explain_job *j = calloc(1, sizeof(*j));
    unsigned threads = opt->threads ? opt->threads : mr_cpus_available();
    if (!x || !j || !(j->worker = calloc(threads, sizeof(*j->worker)))) {
        free(x);
        free(j);
        return mr_error_set(err, -ENOMEM, "cannot explain the trace");
    }
    j->t = t;
    j->opt = opt;
    j->x = x;
    j->workers = threads;
    mr_explain_unknown_facts(&x->facts);
    x->facts.workload = opt->workload && *opt->workload ? mr_arena_strdup(&x->arena, opt->workload) : NULL;
    x->start_ns = t->first_ns;
    x->duration_ns = explain_span_ns(t->first_ns, t->last_ns);
    x->source = mr_arena_strdup(&x->arena, opt->source ? opt->source : "");
    x->path = opt->path && *opt->path ? mr_arena_strdup(&x->arena, opt->path) : NULL;
    int rc = x->source ? explain(j, err) : mr_error_set(err, -ENOMEM, "cannot explain the trace");
    job_done(j);
    free(j);
    if (rc)
        mr_explanation_free(x);
    else
        *out = x;
    return rc;
}
