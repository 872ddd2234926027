/* Steps of a window: see window.h. */
#include "loop/window.h"
#include "base/common.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

uint64_t mr_window_most(const struct mr_explanation *x)
{
    uint64_t least = UINT64_MAX, last = 0;
    for (size_t i = 0; i < x->steps; i++) {
        last = x->step[i].step + 1;
        if (i + 1 == x->steps || x->step[i + 1].rank != x->step[i].rank)
            least = MR_MIN(least, last);
    }
    return x->steps ? least : 0;
}

static void add_step(struct mr_window *w, const struct mr_explain_step *s, double ranks)
{
    struct mr_window_step *to = &w->step[s->step - w->from];
    double all = (double)(s->end_ns - s->start_ns) / 1e9 / ranks;
    double part[MR_WINDOW_PART_COUNT] = {[MR_WINDOW_DATA] = (double)s->ns[MR_TIME_STALL] / 1e9 / ranks,
                                         [MR_WINDOW_CHECKPOINT] = (double)s->ns[MR_TIME_CHECKPOINT] / 1e9 / ranks,
                                         [MR_WINDOW_RANKS] = (double)s->ns[MR_TIME_BARRIER] / 1e9 / ranks,
                                         [MR_WINDOW_LOGGING] = (double)s->ns[MR_TIME_LOGGING] / 1e9 / ranks};
    part[MR_WINDOW_REST] = all;
    for (unsigned k = 0; k < MR_WINDOW_REST; k++)
        part[MR_WINDOW_REST] -= part[k];
    for (unsigned k = 0; k < MR_WINDOW_PART_COUNT; k++) {
        to->s[k] += part[k];
        w->sum[k] += part[k];
    }
    w->wall_s += all;
    w->wait_s += all - part[MR_WINDOW_REST];
    w->bytes += s->bytes == MR_TIME_UNKNOWN ? NAN : (double)s->bytes;
}

int mr_window_of(const struct mr_explanation *x, uint64_t from, uint64_t to, struct mr_window *out,
                 struct mr_error *err)
{
    struct mr_window w = {.from = from, .to = to, .steps = to - from};
    uint64_t most = mr_window_most(x);
    if (most < to)
        return mr_error_plain(err, MR_E_INCOMPLETE, "it made %" PRIu64 " steps; the window is %" PRIu64 ":%" PRIu64,
                              most, from, to);
    w.step = calloc(w.steps, sizeof(*w.step));
    if (!w.step)
        return mr_error_set(err, -ENOMEM, "cannot hold %zu steps", w.steps);
    double ranks = fmax(1, (double)x->ranks);
    for (size_t i = 0; i < x->steps; i++)
        if (x->step[i].step >= from && x->step[i].step < to)
            add_step(&w, &x->step[i], ranks);
    *out = w;
    return 0;
}

int mr_window_whole(const struct mr_explanation *x, struct mr_window *out, struct mr_error *err)
{
    uint64_t most = mr_window_most(x);
    int rc = most ? mr_window_of(x, 0, most, out, err) : mr_error_plain(err, MR_E_INCOMPLETE, "it made no steps");
    if (rc)
        return rc;
    const double ns[MR_WINDOW_PART_COUNT] = {
        [MR_WINDOW_DATA] = (double)x->ns[MR_TIME_STALL],
        [MR_WINDOW_CHECKPOINT] = (double)x->ns[MR_TIME_CHECKPOINT],
        [MR_WINDOW_RANKS] = (double)x->ns[MR_TIME_BARRIER],
        [MR_WINDOW_LOGGING] = (double)x->ns[MR_TIME_LOGGING],
        [MR_WINDOW_OUTSIDE] = (double)x->ns[MR_TIME_STARTUP] + (double)x->ns[MR_TIME_OTHER],
        [MR_WINDOW_REST] = (double)x->ns[MR_TIME_COMPUTE] + (double)x->ns[MR_TIME_COPY]};
    out->wall_s = 0;
    for (unsigned k = 0; k < MR_WINDOW_PART_COUNT; k++) { /* what is in no step goes to the last one */
        out->step[most - 1].s[k] += ns[k] / 1e9 - out->sum[k];
        out->sum[k] = ns[k] / 1e9;
        out->wall_s += out->sum[k];
    }
    out->wait_s = out->wall_s - out->sum[MR_WINDOW_REST];
    return 0;
}

void mr_window_done(struct mr_window *w)
{
    free(w->step);
    *w = (struct mr_window){0};
}
