/* Events of a simulated run: see sim_trace.h. */
#include "sim/sim_trace.h"
#include "base/common.h"
#include "event/emit.h"
#include "metrics/series_emit.h"
#include "policy/policy.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANE_TRAINING 1u
#define LANE_THREADS 2u

/* Where a sample of a batch came from, by the names that the figures of tiers have. */
enum from { FROM_RAM, FROM_SSD, FROM_PEER, FROM_SOURCE, FROMS };

struct sums {
    uint64_t samples, bytes, ns;
};

/* What a rank adds up (bench/rank_figures.h). */
struct rank {
    struct sums from[FROMS];
    uint64_t batches, samples, bytes, wait_ns, transform_ns;
    struct sums source, fills; /* of the node: all that it read from the PFS; what it put into classes ahead of use */
    uint64_t served, served_bytes, distinct_bytes;
};

struct mr_sim_trace {
    struct mr_events_file *file;
    const struct mr_sim_workload *w;
    const struct mr_scenario *s;
    enum mr_policy_id policy;
    bool has_tiers; /* V3 */
    uint64_t origin_ns;
    uint32_t pfs; /* the path */
    struct rank *rank;
    uint64_t *place; /* per sample: where it lies in "/pfs", one behind the other */
    uint8_t *seen;   /* [node][sample], a bit each: it was read from the PFS */
    size_t seen_bytes;
};

static uint64_t ns(double seconds)
{
    return seconds > 0 ? (uint64_t)llround(seconds * 1e9) : 0;
}

static struct mr_events *events(const struct mr_sim_trace *t, uint32_t node, uint32_t lane)
{
    struct mr_events *e = mr_events_of(t->file, node);
    mr_events_set_lane(e, lane);
    return e;
}

int mr_sim_trace_open(const char *path, const struct mr_sim_workload *w, enum mr_policy_id policy,
                      struct mr_sim_trace **out, struct mr_error *err)
{
    const struct mr_scenario *s = w->scenario;
    struct mr_sim_trace *t = calloc(1, sizeof(*t));
    size_t seen_bytes = (s->samples + 7) / 8;
    struct rank *rank = calloc(s->nodes, sizeof(*rank));
    uint8_t *seen = calloc(s->nodes, seen_bytes);
    uint64_t *place = calloc(s->samples + 1, sizeof(*place));
    int rc = t && rank && seen && place ? 0 : mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    struct mr_events_file *file = NULL;
    rc = rc ? rc : mr_events_open_virtual(path, MR_LEVEL_CALL, s->nodes, &file, err);
    if (rc) {
        free(t);
        free(rank);
        free(seen);
        free(place);
        return rc;
    }
    for (uint64_t id = 0; id < s->samples; id++)
        place[id + 1] = place[id] + mr_sim_sample_bytes(w, id);
    *t = (struct mr_sim_trace){.file = file,
                               .w = w,
                               .s = s,
                               .policy = policy,
                               .has_tiers = mr_policy_get_ops(policy)->keeps && s->system.n_classes > 1,
                               .rank = rank,
                               .place = place,
                               .seen = seen,
                               .seen_bytes = seen_bytes};
    struct mr_event_sink *calls = mr_events_calls(mr_events_of(file, 0));
    t->pfs = calls->intern(calls, "/pfs");
    *out = t;
    return 0;
}

int mr_sim_trace_close(struct mr_sim_trace *t, struct mr_error *err)
{
    if (!t)
        return 0;
    int rc = mr_events_close(t->file, false, err);
    free(t->rank);
    free(t->place);
    free(t->seen);
    free(t);
    return rc;
}

/* ---- the run ---- */

/* Up to eight characters of a name, as an argument. */
static int64_t packed(const char *name)
{
    char text[sizeof(int64_t)] = {0};
    int64_t value;
    memcpy(text, name, strnlen(name, sizeof text));
    memcpy(&value, text, sizeof value);
    return value;
}

void mr_sim_trace_begin(struct mr_sim_trace *t, double ready_s)
{
    if (!t)
        return;
    const struct mr_scenario *s = t->s;
    const char *policy = mr_policy_name(t->policy);
    double step_mb = s->size_mean_mb * (double)t->w->per_node;
    double batches = step_mb > 0 ? fmin(s->system.classes[0].capacity_mb / step_mb, 1e6) : 1;
    bool ahead = mr_policy_get_ops(t->policy)->prefetches;
    const struct mr_emit_arg args[] = {
        {.name = "simulated", .value = 1},
        {.name = "threads", .value = ahead ? s->system.classes[0].threads : 0},
        {.name = "lookahead", .value = ahead ? (int64_t)fmax(batches - 1, 0) : 0},
        {.name = "batch_size", .value = (int64_t)t->w->per_node},
        {.name = "samples", .value = (int64_t)s->samples},
        {.name = "epochs", .value = s->epochs},
        {.name = "seed", .value = (int64_t)s->seed},
        {.name = "sharded", .value = 1},
        {.name = "global_shuffle", .value = s->order_mode != MR_ORDER_SEQUENTIAL},
        {.name = "policy", .value = packed(policy)}, /* and the rest of a longer name */
        {.name = "policy_more", .value = packed(policy + strnlen(policy, sizeof(int64_t)))},
    };
    t->origin_ns = ns(ready_s);
    for (uint32_t i = 0; i < s->nodes; i++)
        mr_emit_args(events(t, i, LANE_TRAINING), MR_SPAN_OPEN, 0, t->origin_ns, &MR_NOWHERE, 0, args,
                     MR_ARRAY_LEN(args));
}

void mr_sim_trace_epoch(struct mr_sim_trace *t, uint32_t epoch, double start_s, double end_s)
{
    struct mr_where at = MR_NOWHERE;
    at.epoch = epoch;
    for (uint32_t i = 0; t && i < t->s->nodes; i++)
        mr_emit(events(t, i, LANE_TRAINING), MR_SPAN_EPOCH, ns(start_s), ns(end_s), &at, 0);
}

void mr_sim_trace_step(struct mr_sim_trace *t, const struct mr_sim_step *s)
{
    if (!t)
        return;
    struct rank *r = &t->rank[s->node];
    uint64_t start = ns(s->start_s), took = ns(s->end_s) - start;
    uint64_t load = MR_MIN(ns(s->wait_s), took), compute = MR_MIN(ns(s->compute_s), took - load);
    const struct mr_step row = {.start_ns = start - t->origin_ns,
                                .end_ns = start - t->origin_ns + took,
                                .load_ns = load,
                                .compute_ns = compute,
                                .compute_wall_ns = compute,
                                .barrier_ns = took - load - compute, /* V1 */
                                .sample_bytes = s->bytes,
                                .read_bytes = t->has_tiers || t->policy == MR_POLICY_PERFECT ? 0 : s->bytes, /* V3 */
                                .samples = (uint32_t)t->w->per_node,
                                .epoch = s->epoch,
                                .block = 1,
                                .step = (uint32_t)s->step,
                                .phase = MR_PHASE_TRAIN};
    const struct mr_where at = {.epoch = s->epoch, .step = MR_UNKNOWN, .batch = s->step, .sample = MR_UNKNOWN};
    struct mr_events *e = events(t, s->node, LANE_TRAINING);
    assert(start >= t->origin_ns && s->step < t->w->steps_per_epoch);
    uint64_t ready = MR_MIN(ns(s->ready_s), start + took), waited = MR_MAX(ready, start + load);
    mr_emit(e, MR_SPAN_BATCH_READY, ready, ready, &at, (int64_t)t->w->per_node);
    mr_emit(e, MR_SPAN_WAIT, waited - load, waited, &at, (int64_t)t->w->per_node);
    mr_series_emit_step(e, t->origin_ns, &row, s->epoch * t->w->steps_per_epoch + s->step);
    r->batches++;
    r->samples += t->w->per_node;
    r->bytes += s->bytes;
    r->wait_ns += load;
}

/* ---- samples ---- */

static bool is_ssd(const struct mr_sim_trace *t, unsigned class)
{
    const char *name = t->s->system.classes[class].name;
    return strcmp(name, "ssd") == 0 || (class > 1 && strcmp(name, "ram") != 0);
}

static enum from from_of(const struct mr_sim_trace *t, unsigned source)
{
    return source == MR_SIM_FROM_PFS    ? FROM_SOURCE
           : source == MR_SIM_FROM_PEER ? FROM_PEER
           : is_ssd(t, source)          ? FROM_SSD
                                        : FROM_RAM;
}

static void add(struct sums *to, const struct mr_sim_part *p)
{
    to->samples += p->samples;
    to->bytes += p->bytes;
    to->ns += ns(p->end_s) - ns(p->start_s);
}

/* A read of the PFS, as the storage stack of a real run records it; what a peer gave counts at the peer, too. */
static void use_source(struct mr_sim_trace *t, struct mr_events *e, const struct mr_sim_part *p)
{
    struct mr_event_sink *calls = mr_events_calls(e);
    if (p->source == MR_SIM_FROM_PEER) {
        assert(p->peer < t->s->nodes && p->peer != p->node);
        t->rank[p->peer].served += p->samples;
        t->rank[p->peer].served_bytes += p->bytes;
    }
    if (p->source != MR_SIM_FROM_PFS)
        return;
    add(&t->rank[p->node].source, p);
    uint64_t start = ns(p->start_s);
    calls->emit(calls, &(struct mr_event){.kind = MR_EV_READ,
                                          .start_ns = start,
                                          .dur_ns = ns(p->end_s) - start,
                                          .path_id = t->pfs,
                                          .offset = p->sample != MR_UNKNOWN ? t->place[p->sample] : UINT64_MAX,
                                          .result = (int64_t)p->bytes});
}

static struct mr_where place_of(const struct mr_sim_part *p)
{
    return (struct mr_where){.epoch = p->epoch, .step = MR_UNKNOWN, .batch = p->batch, .sample = p->sample};
}

void mr_sim_trace_fetch(struct mr_sim_trace *t, const struct mr_sim_part *p)
{
    static const enum mr_span span[FROMS] = {[FROM_RAM] = MR_SPAN_FETCH_RAM,
                                             [FROM_SSD] = MR_SPAN_FETCH_SSD,
                                             [FROM_PEER] = MR_SPAN_FETCH_PEER,
                                             [FROM_SOURCE] = MR_SPAN_FETCH_STORE};
    if (!t)
        return;
    assert(t->has_tiers || p->source == MR_SIM_FROM_PFS); /* V3: without classes there is one source */
    enum from from = from_of(t, p->source);
    const struct mr_where at = place_of(p);
    struct mr_events *e = events(t, p->node, LANE_THREADS + p->thread);
    mr_emit(e, span[from], ns(p->start_s), ns(p->end_s), &at, (int64_t)p->bytes);
    use_source(t, e, p);
    add(&t->rank[p->node].from[from], p);
}

void mr_sim_trace_fill(struct mr_sim_trace *t, const struct mr_sim_part *p, unsigned to)
{
    if (!t)
        return;
    struct mr_where at = MR_NOWHERE;
    at.sample = p->sample;
    const struct mr_emit_arg arg[] = {{.name = "bytes", .value = (int64_t)p->bytes},
                                      {.name = "source", .value = (int64_t)from_of(t, p->source)},
                                      {.name = "class", .value = (int64_t)to}};
    struct mr_events *e = events(t, p->node, LANE_THREADS + p->thread);
    mr_emit_args(e, MR_SPAN_FILL, ns(p->start_s), ns(p->end_s), &at, (int64_t)p->bytes, arg, MR_ARRAY_LEN(arg));
    use_source(t, e, p);
    add(&t->rank[p->node].fills, p);
}

void mr_sim_trace_write(struct mr_sim_trace *t, const struct mr_sim_part *p, unsigned to)
{
    if (!t || ns(p->end_s) <= ns(p->start_s))
        return;
    struct mr_events *e = events(t, p->node, LANE_THREADS + p->thread);
    struct mr_where at = place_of(p);
    if (to == 0) {
        mr_emit(e, MR_SPAN_TRANSFORM, ns(p->start_s), ns(p->end_s), &at, (int64_t)p->bytes);
        t->rank[p->node].transform_ns += ns(p->end_s) - ns(p->start_s);
    } else if (is_ssd(t, to)) {
        const struct mr_emit_arg arg[] = {{.name = "bytes", .value = (int64_t)p->bytes},
                                          {.name = "class", .value = (int64_t)to}};
        mr_emit_args(e, MR_SPAN_COPY_SSD, ns(p->start_s), ns(p->end_s), &at, (int64_t)p->bytes, arg, MR_ARRAY_LEN(arg));
    }
}

void mr_sim_trace_row(struct mr_sim_trace *t, const struct mr_sim_part *p)
{
    if (!t)
        return;
    const struct mr_where at = place_of(p);
    mr_emit(events(t, p->node, LANE_THREADS + p->thread), MR_SPAN_ROW_READY, ns(p->end_s), ns(p->end_s), &at,
            (int64_t)p->bytes);
}

void mr_sim_trace_source(struct mr_sim_trace *t, uint32_t node, uint32_t id)
{
    if (!t)
        return;
    uint8_t *seen = &t->seen[node * t->seen_bytes + id / 8], bit = (uint8_t)(1u << id % 8);
    if (!(*seen & bit))
        t->rank[node].distinct_bytes += mr_sim_sample_bytes(t->w, id);
    *seen |= bit;
}

/* ---- the end ---- */

#define FIGURE(text, figure)                                                                                           \
    {                                                                                                                  \
        .name = text, .value = (int64_t)(figure)                                                                       \
    }

static void emit_loader(struct mr_sim_trace *t, struct mr_events *e, const struct rank *r, uint64_t end)
{
    unsigned threads = t->s->system.classes[0].threads;
    uint64_t read = 0, all = threads * (end - t->origin_ns);
    for (unsigned k = 0; k < FROMS; k++)
        read += r->from[k].ns;
    const struct mr_emit_arg args[] = {
        FIGURE("loader_batches", r->batches),
        FIGURE("loader_samples", r->samples),
        FIGURE("loader_sample_bytes", r->bytes),
        FIGURE("loader_read_bytes", t->has_tiers ? 0 : r->source.bytes),
        FIGURE("loader_wait_ns", r->wait_ns),
        FIGURE("loader_read_ns", read),
        FIGURE("loader_transform_ns", r->transform_ns),
        FIGURE("loader_idle_ns", all > read + r->transform_ns ? all - read - r->transform_ns : 0),
        FIGURE("loader_threads", threads),
    };
    mr_emit_args(e, MR_SPAN_RANK_FIGURES, end, end, &MR_NOWHERE, 0, args, MR_ARRAY_LEN(args));
}

#define FROM(name, k)                                                                                                  \
    FIGURE("tier_" name "_samples", r->from[k].samples), FIGURE("tier_" name "_bytes", r->from[k].bytes),              \
        FIGURE("tier_" name "_fetch_ns", r->from[k].ns)

static double capacity_mb(const struct mr_sim_trace *t, bool ssd)
{
    double mb = 0;
    for (unsigned j = 1; j < t->s->system.n_classes; j++)
        mb += is_ssd(t, j) == ssd ? t->s->system.classes[j].capacity_mb : 0;
    return fmin(mb, 1e12);
}

static void emit_tiers(struct mr_sim_trace *t, struct mr_events *e, uint32_t node, uint64_t end)
{
    const struct rank *r = &t->rank[node];
    const struct mr_emit_arg mine[] = {FIGURE("tier_used", 1), FIGURE("tier_node", node), FROM("ram", FROM_RAM),
                                       FROM("ssd", FROM_SSD),  FROM("peer", FROM_PEER),   FROM("source", FROM_SOURCE)};
    const struct mr_emit_arg all[] = {
        FIGURE("node_source_bytes", r->source.bytes),
        FIGURE("node_source_reads", r->source.samples),
        FIGURE("node_source_busy_ns", r->source.ns),
        FIGURE("node_source_threads", t->s->system.classes[0].threads),
        FIGURE("node_distinct_bytes", r->distinct_bytes),
        FIGURE("node_set_bytes", t->place[t->s->samples]),
        FIGURE("node_filled_bytes", r->fills.bytes),
        FIGURE("node_served", r->served),
        FIGURE("node_served_bytes", r->served_bytes),
        FIGURE("node_ram_capacity", llround(capacity_mb(t, false) * 1e6)),
        FIGURE("node_ssd_capacity", llround(capacity_mb(t, true) * 1e6)),
        FIGURE("node_staging_capacity", llround(fmin(t->s->system.classes[0].capacity_mb, 1e12) * 1e6)),
        FIGURE("nodes", t->s->nodes),
    };
    mr_emit_args(e, MR_SPAN_RANK_FIGURES, end, end, &MR_NOWHERE, 0, mine, MR_ARRAY_LEN(mine));
    mr_emit_args(e, MR_SPAN_RANK_FIGURES, end, end, &MR_NOWHERE, 0, all, MR_ARRAY_LEN(all));
}

void mr_sim_trace_end(struct mr_sim_trace *t, double end_s)
{
    uint64_t end = ns(end_s);
    for (uint32_t i = 0; t && i < t->s->nodes; i++) {
        struct mr_events *e = events(t, i, LANE_TRAINING);
        assert(end >= t->origin_ns);
        mr_emit(e, MR_SPAN_RUN, t->origin_ns, end, &MR_NOWHERE, 0);
        emit_loader(t, e, &t->rank[i], end);
        if (t->has_tiers)
            emit_tiers(t, e, i, end);
    }
}
