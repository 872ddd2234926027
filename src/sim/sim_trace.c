/* Events of a simulated run: see sim_trace.h. */
#include "sim/sim_trace.h"
#include "event/mrt_sink.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct mr_sim_trace {
    struct mr_mrt_sink *file;
    struct mr_event_sink *sink;      /* borrowed from file */
    uint32_t path[MR_CLASS_MAX + 1]; /* PFS, classes, peer */
    uint32_t site[MR_SPANS];
    uint32_t step, stall, epoch, preload; /* sites of the job */
    uint32_t step_key, epoch_key;
};

static uint64_t ns(double seconds)
{
    return seconds > 0 ? (uint64_t)llround(seconds * 1e9) : 0;
}

static void name_everything(struct mr_sim_trace *t, const struct mr_system *m)
{
    static const char *const spans[MR_SPANS][2] = {
        [MR_SPAN_STAGE] = {"loader", "stage"},    [MR_SPAN_FILL] = {"loader", "fill"},
        [MR_SPAN_WAIT] = {"loader", "wait"},      [MR_SPAN_COMPUTE] = {"compute", "train"},
        [MR_SPAN_BARRIER] = {"train", "barrier"},
    };
    for (unsigned k = 0; k < MR_SPANS; k++)
        t->site[k] = mr_mrt_sink_site(t->file, spans[k][0], spans[k][1]);
    t->path[MR_SIM_TRACE_PFS] = t->sink->intern(t->sink, "/pfs");
    t->path[MR_SIM_TRACE_PEER] = t->sink->intern(t->sink, "/peer");
    for (unsigned j = 1; j < m->n_classes; j++) {
        char path[64];
        snprintf(path, sizeof path, "/class%u%s%s", j, *m->classes[j].name ? "-" : "", m->classes[j].name);
        t->path[j] = t->sink->intern(t->sink, path);
    }
    t->step = mr_mrt_sink_site(t->file, "job", "step");
    t->stall = mr_mrt_sink_site(t->file, "job", "stall");
    t->epoch = mr_mrt_sink_site(t->file, "job", "epoch");
    t->preload = mr_mrt_sink_site(t->file, "job", "preload");
    t->step_key = mr_mrt_sink_key(t->file, "step");
    t->epoch_key = mr_mrt_sink_key(t->file, "epoch");
}

int mr_sim_trace_open(const char *path, const struct mr_scenario *s, struct mr_sim_trace **out, struct mr_error *err)
{
    struct mr_sim_trace *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    struct mr_mrt_sim sim = {.world = s->nodes, .ranks_per_node = 1, .program = "sim"};
    int rc = mr_mrt_sink_open_sim(path, &sim, &t->file, err);
    if (rc) {
        free(t);
        return rc;
    }
    t->sink = mr_mrt_sink_get(t->file);
    name_everything(t, &s->system);
    *out = t;
    return 0;
}

int mr_sim_trace_close(struct mr_sim_trace *t, struct mr_error *err)
{
    int rc = t ? mr_mrt_sink_close(t->file, err) : 0;
    free(t);
    return rc;
}

static void move(struct mr_sim_trace *t, enum mr_event_kind kind, uint32_t node, uint32_t lane, uint32_t path,
                 double start_s, double end_s, double mb)
{
    uint64_t start = ns(start_s);
    t->sink->emit(t->sink, &(struct mr_event){.kind = (uint16_t)kind,
                                              .rank = node,
                                              .tid = lane,
                                              .start_ns = start,
                                              .dur_ns = ns(end_s) - start,
                                              .path_id = path,
                                              .offset = UINT64_MAX,
                                              .result = llround(mb * 1e6)});
}

void mr_sim_trace_read(struct mr_sim_trace *t, uint32_t node, uint32_t lane, unsigned source, double start_s,
                       double end_s, double mb)
{
    if (t)
        move(t, MR_EV_READ, node, lane, t->path[source], start_s, end_s, mb);
}

void mr_sim_trace_write(struct mr_sim_trace *t, uint32_t node, uint32_t lane, unsigned class, double start_s,
                        double end_s, double mb)
{
    if (t)
        move(t, MR_EV_WRITE, node, lane, t->path[class], start_s, end_s, mb);
}

static struct mr_event region(uint32_t site, uint32_t node, uint32_t lane, double start_s, double end_s)
{
    uint64_t start = ns(start_s);
    return (struct mr_event){.kind = MR_EV_REGION,
                             .rank = node,
                             .tid = lane,
                             .start_ns = start,
                             .dur_ns = ns(end_s) - start,
                             .path_id = site};
}

void mr_sim_trace_span(struct mr_sim_trace *t, enum mr_sim_span span, uint32_t node, uint32_t lane, double start_s,
                       double end_s)
{
    if (!t)
        return;
    struct mr_event e = region(t->site[span], node, lane, start_s, end_s);
    t->sink->emit(t->sink, &e);
}

void mr_sim_trace_preload(struct mr_sim_trace *t, double end_s)
{
    if (!t || !(end_s > 0))
        return;
    struct mr_event e = region(t->preload, 0, 0, 0, end_s);
    t->sink->emit(t->sink, &e);
}

void mr_sim_trace_step(struct mr_sim_trace *t, uint64_t step, uint32_t epoch, double start_s, double end_s,
                       double stall_s)
{
    if (!t)
        return;
    struct mr_event e = region(t->step, 0, 0, start_s, end_s),
                    stall = region(t->stall, 0, 0, start_s, start_s + stall_s);
    if (stall.dur_ns)
        t->sink->emit(t->sink, &stall);
    mr_mrt_sink_emit_args(
        t->file, &e,
        (struct mr_mrt_arg[]){{.key = t->step_key, .value = (int64_t)step}, {.key = t->epoch_key, .value = epoch}}, 2);
}

void mr_sim_trace_epoch(struct mr_sim_trace *t, uint32_t epoch, double start_s, double end_s)
{
    if (!t)
        return;
    struct mr_event e = region(t->epoch, 0, 0, start_s, end_s);
    mr_mrt_sink_emit_args(t->file, &e, &(struct mr_mrt_arg){.key = t->epoch_key, .value = epoch}, 1);
}
