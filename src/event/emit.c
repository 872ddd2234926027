/* Emitting: see emit.h. A struct mr_events is one rank's view of a sink: the ids of the sites and keys are looked up
 * once, so that a span costs one record and one for each thing known about its place. */
#include "event/emit.h"
#include "base/common.h"
#include "event/emit_tracer.h"
#include "event/mrt_sink.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static_assert(MR_EMIT_ARGS <= MR_MRT_ARGS, "the sink takes fewer arguments");

enum { KEY_EPOCH, KEY_STEP, KEY_BATCH, KEY_SAMPLE, KEYS };

struct mr_events {
    struct mr_event_sink calls; /* first: the functions of the calls' sink get this */
    struct mr_mrt_sink *sink;
    struct mr_events_file *file;
    struct mr_emit_tracer *tracer; /* instead of file and sink */
    enum mr_event_level level, lowest;
    bool is_view; /* the tracer is another's */
    uint32_t rank;
    uint32_t lane; /* mr_events_set_lane */
};

struct mr_events_file {
    struct mr_mrt_sink *sink;
    uint32_t site[MR_SPAN_COUNT], key[KEYS], ranks;
    struct mr_events rank[]; /* one for each rank of this process */
};

static const struct {
    uint8_t level;
    const char *category, *name;
} spans[] = {
#define SPAN_ROW(id, lev, cat, text) [MR_SPAN_##id] = {MR_LEVEL_##lev, cat, text},
    MR_SPANS(SPAN_ROW)
#undef SPAN_ROW
};

const char *mr_span_name(enum mr_span what, const char **category)
{
    *category = spans[what].category;
    return spans[what].name;
}

bool mr_events_want(const struct mr_events *e, enum mr_event_level level)
{
    return e && level <= e->level && level >= e->lowest;
}

/* Written out: this is on the path of every sample. */
static inline unsigned put_where(const struct mr_events_file *f, const struct mr_where *at, struct mr_mrt_arg out[KEYS])
{
    unsigned n = 0;
#define PLACE(k, v)                                                                                                    \
    out[n] = (struct mr_mrt_arg){.key = f->key[k], .value = (int64_t)(v)};                                             \
    n += (v) != MR_UNKNOWN;
    PLACE(KEY_EPOCH, at->epoch)
    PLACE(KEY_STEP, at->step)
    PLACE(KEY_BATCH, at->batch)
    PLACE(KEY_SAMPLE, at->sample)
#undef PLACE
    return n;
}

static void put(struct mr_events *e, enum mr_span what, uint64_t start_ns, uint64_t end_ns, int64_t value,
                const struct mr_mrt_arg *arg, unsigned args)
{
    const struct mr_event ev = {.start_ns = start_ns,
                                .dur_ns = end_ns > start_ns ? end_ns - start_ns : 0,
                                .kind = end_ns > start_ns ? MR_EV_REGION : MR_EV_INSTANT,
                                .path_id = e->file->site[what],
                                .result = value,
                                .rank = e->rank,
                                .tid = e->lane};
    mr_mrt_sink_emit_args(e->sink, &ev, arg, args);
}

void mr_emit(struct mr_events *e, enum mr_span what, uint64_t start_ns, uint64_t end_ns, const struct mr_where *at,
             int64_t value)
{
    struct mr_mrt_arg arg[KEYS];
    if (!mr_events_want(e, spans[what].level))
        return;
    if (e->tracer)
        mr_emit_tracer_put(e->tracer, what, start_ns, end_ns, at, value, NULL, 0);
    else
        put(e, what, start_ns, end_ns, value, arg, put_where(e->file, at, arg));
}

void mr_emit_args(struct mr_events *e, enum mr_span what, uint64_t start_ns, uint64_t end_ns, const struct mr_where *at,
                  int64_t value, const struct mr_emit_arg *more, unsigned n_more)
{
    struct mr_mrt_arg arg[MR_MRT_ARGS];
    if (!mr_events_want(e, spans[what].level))
        return;
    if (e->tracer) {
        mr_emit_tracer_put(e->tracer, what, start_ns, end_ns, at, value, more, n_more);
        return;
    }
    unsigned n = put_where(e->file, at, arg);
    for (unsigned i = 0; i < n_more && n < MR_MRT_ARGS; i++)
        arg[n++] = (struct mr_mrt_arg){
            .key = mr_mrt_sink_key(e->sink, more[i].name), .value = more[i].value, .is_real = more[i].is_real};
    put(e, what, start_ns, end_ns, value, arg, n);
}

/* ---- the storage stack's calls ---- */

static uint32_t calls_intern(struct mr_event_sink *s, const char *path)
{
    struct mr_event_sink *all = mr_mrt_sink_get(((struct mr_events *)s)->sink);
    return all->intern(all, path);
}

/* The storage stack does not know whose it is. */
static void calls_emit(struct mr_event_sink *s, const struct mr_event *call)
{
    const struct mr_events *e = (const struct mr_events *)s;
    struct mr_event ours = *call;
    ours.rank = e->rank;
    ours.tid = e->lane;
    mr_mrt_sink_emit_args(e->sink, &ours, NULL, 0);
}

struct mr_event_sink *mr_events_calls(struct mr_events *e)
{
    return mr_events_want(e, MR_LEVEL_CALL) && !e->tracer ? &e->calls : NULL;
}

/* ---- to the tracer ---- */

struct mr_events *mr_events_of_tracer(enum mr_event_level level)
{
    struct mr_emit_tracer *t = mr_emit_tracer_create();
    struct mr_events *e = t ? calloc(1, sizeof(*e)) : NULL;
    if (e)
        *e = (struct mr_events){.tracer = t, .level = level};
    else
        mr_emit_tracer_free(t);
    return e;
}

struct mr_events *mr_events_without_steps(const struct mr_events *e)
{
    struct mr_events *view = malloc(sizeof(*view));
    if (!view)
        return NULL;
    *view = *e;
    view->lowest = MR_LEVEL_SAMPLE;
    view->is_view = true;
    return view;
}

void mr_events_release(struct mr_events *e)
{
    if (e && !e->is_view)
        mr_emit_tracer_free(e->tracer);
    free(e);
}

/* ---- opening and closing ---- */

static int make_file(struct mr_mrt_sink *sink, enum mr_event_level level, uint32_t first, uint32_t ranks,
                     struct mr_events_file **out, struct mr_error *err)
{
    static const char *const keys[KEYS] = {"epoch", "step", "batch", "sample"};
    struct mr_events_file *f = calloc(1, sizeof(*f) + ranks * sizeof(f->rank[0]));
    if (!f) {
        mr_mrt_sink_close(sink, NULL);
        return mr_error_set(err, -ENOMEM, "cannot record events");
    }
    f->sink = sink;
    f->ranks = ranks;
    for (unsigned i = 0; i < MR_SPAN_COUNT; i++)
        f->site[i] = mr_mrt_sink_site(sink, spans[i].category, spans[i].name);
    for (unsigned i = 0; i < KEYS; i++)
        f->key[i] = mr_mrt_sink_key(sink, keys[i]);
    for (uint32_t r = 0; r < ranks; r++)
        f->rank[r] = (struct mr_events){.calls = {.intern = calls_intern, .emit = calls_emit},
                                        .sink = sink,
                                        .file = f,
                                        .level = level,
                                        .rank = first + r};
    *out = f;
    return 0;
}

int mr_events_open(const char *path, enum mr_event_level level, uint32_t rank, uint32_t world,
                   struct mr_events_file **out, struct mr_error *err)
{
    struct mr_mrt_sink *sink;
    int rc = mr_mrt_sink_open(path, (int32_t)rank, (int32_t)world, &sink, err);
    return rc ? rc : make_file(sink, level, rank, 1, out, err);
}

int mr_events_open_threads(const char *path, enum mr_event_level level, uint32_t world, struct mr_events_file **out,
                           struct mr_error *err)
{
    struct mr_mrt_sink *sink;
    int rc = mr_mrt_sink_open_ranks(path, world, &sink, err);
    return rc ? rc : make_file(sink, level, 0, world, out, err);
}

int mr_events_open_virtual(const char *path, enum mr_event_level level, uint32_t world, struct mr_events_file **out,
                           struct mr_error *err)
{
    struct mr_mrt_sink *sink;
    const struct mr_mrt_sim ranks = {.world = world, .ranks_per_node = 1, .program = "sim"};
    int rc = mr_mrt_sink_open_sim(path, &ranks, &sink, err);
    return rc ? rc : make_file(sink, level, 0, world, out, err);
}

void mr_events_set_lane(struct mr_events *e, uint32_t lane)
{
    if (e)
        e->lane = lane;
}

struct mr_events *mr_events_of(struct mr_events_file *f, uint32_t index)
{
    return f && index < f->ranks ? &f->rank[index] : NULL;
}

int mr_events_close(struct mr_events_file *f, bool left_behind, struct mr_error *err)
{
    if (!f)
        return 0;
    if (left_behind)
        return mr_mrt_sink_abandon(f->sink, err);
    int rc = mr_mrt_sink_close(f->sink, err);
    free(f);
    return rc;
}
