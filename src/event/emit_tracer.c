/* See emit_tracer.h. The tracer has a clock of its own, which may be the CPU's counter of cycles: times are converted
 * by two looks at both clocks, one when this was made and one when a span is told. Between them lies all that is told,
 * so that the error is that of a look, some ten nanoseconds; a look during which the thread lost its CPU is made again.
 */
#include "event/emit_tracer.h"
#include "base/clock.h"
#include "base/common.h"

#include <millrace/trace.h>
#include <stdatomic.h>
#include <stdlib.h>

#define FIRST_NUMBER 1000000u /* the Python package numbers frameworks' loaders from 0 */
#define LOOKS 5               /* at the clocks, until one is quick */
#define QUICK_NS 1000         /* such a look was not interrupted */
#define ROWS_OF(what) ((what) == MR_SPAN_WAIT || (what) == MR_SPAN_BATCH_READY)

struct moment {
    uint64_t ns, ticks;
};

struct mr_emit_tracer {
    struct moment zero;
    uint64_t number;
};

static struct millrace_site site[MR_SPAN_COUNT] = {
#define SITE(id, level, category_, text) [MR_SPAN_##id] = {.category = category_, .name = text},
    MR_SPANS(SITE)
#undef SITE
};

static struct moment look(void)
{
    struct moment m = {0};
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < LOOKS && least > QUICK_NS; i++) {
        uint64_t before = mr_now_ns(), ticks = millrace_trace_now(), after = mr_now_ns();
        if (after - before < least) {
            least = after - before;
            m = (struct moment){before + (after - before) / 2, ticks};
        }
    }
    return m;
}

bool mr_tracer_pause(void)
{
    bool active = millrace_trace_active();
    if (active)
        millrace_trace_stop();
    return active;
}

void mr_tracer_resume(bool paused)
{
    if (paused)
        millrace_trace_start();
}

struct mr_emit_tracer *mr_emit_tracer_create(void)
{
    static atomic_uint_fast64_t made;
    struct mr_emit_tracer *t = millrace_trace_active() ? malloc(sizeof(*t)) : NULL;
    if (t)
        *t = (struct mr_emit_tracer){.zero = look(), .number = FIRST_NUMBER + atomic_fetch_add(&made, 1)};
    return t;
}

void mr_emit_tracer_free(struct mr_emit_tracer *t)
{
    free(t);
}

static unsigned put_where(const struct mr_emit_tracer *t, const struct mr_where *at, struct millrace_arg *out)
{
    const struct {
        const char *name;
        uint64_t value;
    } known[] = {{"loader", t->number}, {"epoch", at->epoch}, {"step", at->step}, {"batch", at->batch}};
    unsigned n = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++)
        if (known[i].value != MR_UNKNOWN)
            out[n++] = (struct millrace_arg){.key = known[i].name, .type = MILLRACE_UINT, .value.u = known[i].value};
    return n;
}

void mr_emit_tracer_put(const struct mr_emit_tracer *t, enum mr_span what, uint64_t start_ns, uint64_t end_ns,
                        const struct mr_where *at, int64_t value, const struct mr_emit_arg *more, unsigned n_more)
{
    struct millrace_arg arg[MILLRACE_ARGS_MAX];
    struct moment now = look();
    if (!now.ticks || now.ns <= t->zero.ns || start_ns < t->zero.ns)
        return; /* recording is switched off */
    double rate = (double)(now.ticks - t->zero.ticks) / (double)(now.ns - t->zero.ns);
    uint64_t start = t->zero.ticks + (uint64_t)((double)(start_ns - t->zero.ns) * rate);
    uint64_t end = t->zero.ticks + (uint64_t)((double)(MR_MIN(end_ns, now.ns) - t->zero.ns) * rate);
    unsigned n = put_where(t, at, arg);
    if (ROWS_OF(what))
        arg[n++] = (struct millrace_arg){.key = "rows", .type = MILLRACE_INT, .value.i = value};
    for (unsigned i = 0; i < n_more && n < MILLRACE_ARGS_MAX; i++)
        arg[n++] = (struct millrace_arg){.key = more[i].name, .type = MILLRACE_INT, .value.i = more[i].value};
    millrace_trace_span_between(&site[what], start, MR_MAX(start, end), arg, n);
}
