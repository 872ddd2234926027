/* Lanes. All spans of a thread, the outer ones first, are put on the first lane where they lie inside what is open or
 * behind what has ended. Viewers sort by time and keep the order of the file between equal times; so where two spans of
 * different chunks touch or begin together, and the file has them in the wrong order, they go on different lanes, too.
 */
#include "report/lanes.h"
#include "base/common.h"
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>

#define NONE UINT32_MAX
#define LANES_MAX 0xffffu

struct span {
    uint64_t start, end;
    uint32_t place, chunk; /* in the thread */
};

/* The open spans of each lane are a stack, linked from its top. */
struct stacks {
    uint32_t *top, *below;
    unsigned lanes;
    size_t cap;
};

static int outer_first(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return mr_outer_first(x->start, x->end, x->place, y->start, y->end, y->place);
}

static bool fits(struct stacks *s, const struct span *span, unsigned lane, const struct span *now)
{
    uint32_t top = s->top[lane];
    while (top != NONE && span[top].end <= now->start) {
        if (span[top].end == now->start && span[top].chunk > now->chunk)
            return false;
        top = s->top[lane] = s->below[top];
    }
    return top == NONE ||
           (span[top].end >= now->end && (span[top].start < now->start || span[top].chunk == now->chunk));
}

static int add_lane(struct stacks *s)
{
    if (mr_vec_reserve(&s->top, &s->cap, s->lanes + 1, sizeof(*s->top)) < 0)
        return -ENOMEM;
    s->top[s->lanes++] = NONE;
    return 0;
}

static int spread(struct mr_lanes *l, const struct span *span, uint32_t n)
{
    struct stacks s = {.below = malloc(((size_t)n + 1) * sizeof(uint32_t))};
    int rc = s.below ? add_lane(&s) : -ENOMEM;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        unsigned lane = 0;
        while (lane < s.lanes && !fits(&s, span, lane, &span[k]))
            lane++;
        if (lane == s.lanes && s.lanes < LANES_MAX)
            rc = add_lane(&s);
        lane = MR_MIN(lane, LANES_MAX - 1);
        if (rc == 0) {
            l->lane[span[k].place] = (uint16_t)lane;
            s.below[k] = s.top[lane];
            s.top[lane] = k;
        }
    }
    l->count = s.lanes;
    free(s.below);
    free(s.top);
    return rc;
}

/* The spans of the chunks [from, to). */
static int gather(struct mr_lanes *l, const struct mr_trace *t, size_t from, size_t to, struct span *span, uint32_t *n,
                  struct mr_error *err)
{
    uint32_t place = 0;
    for (size_t c = from; c < to; c++) {
        int rc = mr_trace_read(t, c, MR_WANT_TIME | MR_WANT_CALL, &l->batch, err);
        if (rc < 0)
            return rc;
        for (uint32_t i = 0; i < l->batch.count; i++, place++)
            if (mr_is_span(l->batch.c.call[i]))
                span[(*n)++] = (struct span){l->batch.c.start_ns[i], l->batch.c.end_ns[i], place, (uint32_t)(c - from)};
    }
    return 0;
}

static int enter_thread(struct mr_lanes *l, const struct mr_trace *t, size_t chunk, struct mr_error *err)
{
    uint64_t events = 0;
    uint32_t n = 0;
    size_t end = chunk;
    for (; end < t->chunks && t->chunk[end].process == t->chunk[chunk].process &&
           t->chunk[end].tid == t->chunk[chunk].tid;
         end++)
        events += t->chunk[end].count;
    free(l->lane);
    l->lane = events < NONE ? calloc(events + 1, sizeof(*l->lane)) : NULL;
    struct span *span = events < NONE ? malloc((events + 1) * sizeof(*span)) : NULL;
    int rc = l->lane && span ? gather(l, t, chunk, end, span, &n, err) : mr_error_set(err, -ENOMEM, "cannot export");
    if (rc == 0) {
        qsort(span, n, sizeof(*span), outer_first);
        if (spread(l, span, n) < 0)
            rc = mr_error_set(err, -ENOMEM, "cannot export");
    }
    free(span);
    l->next = end;
    l->base = l->ahead = 0;
    return rc;
}

int mr_lanes_enter(struct mr_lanes *l, const struct mr_trace *t, size_t chunk, bool *fresh, struct mr_error *err)
{
    *fresh = chunk >= l->next;
    int rc = *fresh ? enter_thread(l, t, chunk, err) : 0;
    l->base = l->ahead;
    l->ahead += t->chunk[chunk].count;
    return rc;
}

void mr_lanes_done(struct mr_lanes *l)
{
    mr_event_batch_done(&l->batch);
    free(l->lane);
    *l = (struct mr_lanes){0};
}
