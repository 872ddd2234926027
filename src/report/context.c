/* Inherited arguments. Facts of all processes are gathered first, spans thread by thread; the facts that hold at a
 * moment are kept for the next event. The spans of a thread, sorted by their start, form chains: `outer` is the one
 * begun before it and not ended then. Almost always they nest, so a chain is the stack; where they overlap without
 * nesting (async functions), a chain has ended spans too, and `reach`, the latest end in the rest of it, says when to
 * stop. */
#include "report/context.h"
#include "base/common.h"
#include "base/vec.h"
#include "report/lanes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define INHERITED_MAX 64
#define ANCESTORS_MAX 16

/* Values by key, each once. */
struct arg_list {
    struct mr_inherited_arg item[INHERITED_MAX];
    size_t n;
};

struct fact {
    uint32_t process; /* index */
    uint64_t time_ns;
    struct mr_inherited_arg arg;
};

struct span {
    uint64_t start, end, reach;
    uint64_t sequence;           /* of its event in the thread: those inside are recorded before it */
    uint32_t outer, first, args; /* arg[first] ... of them */
};

struct mr_context {
    const struct mr_trace *t;
    struct fact *fact; /* by process and time */
    size_t facts, fact_cap;
    struct span *span;
    size_t spans, span_cap;
    struct mr_inherited_arg *arg;
    size_t args, arg_cap;
    size_t next;          /* the chunk behind those of this thread */
    uint64_t base, ahead; /* sequence of the chunk's first event, and of the next chunk's */
    uint32_t process;     /* of this thread; its facts are [from, to), of which [from, at) are in `now` */
    size_t from, to, at;
    struct arg_list now, above, found; /* above: of the processes that started it, when they did */
    struct mr_event_batch batch;
};

static bool is_value(uint8_t type)
{
    return type == MR_MORE_INT || type == MR_MORE_UINT || type == MR_MORE_DOUBLE || type == MR_MORE_TEXT;
}

static struct mr_inherited_arg arg_of_row(const struct mr_event_batch *b, uint32_t a)
{
    return (struct mr_inherited_arg){
        .process = b->process, .key = b->c.arg_key[a], .type = b->c.arg_type[a], .value = b->c.arg_value[a]};
}

static int by_process_time(const void *a, const void *b)
{
    const struct fact *x = a, *y = b;
    return x->process != y->process  ? (x->process < y->process ? -1 : 1)
           : x->time_ns < y->time_ns ? -1
                                     : x->time_ns > y->time_ns;
}

static int gather_facts(struct mr_context *x, struct mr_error *err)
{
    int rc = 0;
    for (size_t c = 0; c < x->t->chunks && rc == 0; c++) {
        if (!x->t->chunk[c].args)
            continue;
        rc = mr_trace_read(x->t, c, MR_WANT_TIME | MR_WANT_CALL | MR_WANT_ARGS, &x->batch, err);
        for (uint32_t a = 0; rc == 0 && a < x->batch.args; a++) {
            uint32_t e = x->batch.c.arg_event[a];
            if (x->batch.c.call[e] != MR_CALL_metadata || !is_value(x->batch.c.arg_type[a]))
                continue;
            if (mr_vec_reserve(&x->fact, &x->fact_cap, x->facts + 1, sizeof(*x->fact)) < 0)
                return mr_error_set(err, -ENOMEM, "cannot gather the facts");
            x->fact[x->facts++] =
                (struct fact){x->t->chunk[c].process, x->batch.c.start_ns[e], arg_of_row(&x->batch, a)};
        }
    }
    if (x->facts)
        qsort(x->fact, x->facts, sizeof(*x->fact), by_process_time);
    return rc;
}

int mr_context_create(const struct mr_trace *t, struct mr_context **out, struct mr_error *err)
{
    struct mr_context *x = calloc(1, sizeof(*x));
    if (!x)
        return mr_error_set(err, -ENOMEM, "cannot gather the facts");
    x->t = t;
    x->process = NONE;
    int rc = gather_facts(x, err);
    if (rc < 0) {
        mr_context_free(x);
        return rc;
    }
    *out = x;
    return 0;
}

void mr_context_free(struct mr_context *x)
{
    if (!x)
        return;
    mr_event_batch_done(&x->batch);
    free(x->fact);
    free(x->span);
    free(x->arg);
    free(x);
}

/* ---- facts of a process ---- */

static bool same_key(const struct mr_inherited_arg *a, const struct mr_inherited_arg *b)
{
    if (a->process == b->process)
        return a->key == b->key;
    const struct mr_trace_string *x = mr_trace_string(a->process, a->key), *y = mr_trace_string(b->process, b->key);
    return x->len == y->len && !memcmp(x->text, y->text, x->len);
}

static size_t list_find(const struct arg_list *l, const struct mr_inherited_arg *s)
{
    size_t k = 0;
    while (k < l->n && !same_key(&l->item[k], s))
        k++;
    return k;
}

static void list_set(struct arg_list *l, const struct mr_inherited_arg *s)
{
    size_t k = list_find(l, s);
    if (k == INHERITED_MAX)
        return;
    l->item[k] = *s;
    l->n = MR_MAX(l->n, k + 1);
}

/* Behind the facts of a process up to a moment. */
static size_t facts_until(const struct mr_context *x, uint32_t process, uint64_t until)
{
    size_t lo = 0, hi = x->facts;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct fact *f = &x->fact[mid];
        if (f->process < process || (f->process == process && f->time_ns <= until))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The process that started this one; NONE if it is not in the trace. */
static uint32_t parent_of(const struct mr_trace *t, uint32_t process)
{
    const struct mr_trace_process *p = &t->process[process];
    uint32_t best = NONE;
    for (uint32_t q = 0; p->ppid && q < t->processes; q++)
        if (q != process && t->process[q].pid == p->ppid && t->process[q].node == p->node &&
            t->process[q].start_ns <= p->start_ns &&
            (best == NONE || t->process[q].start_ns > t->process[best].start_ns))
            best = q;
    return best;
}

static void enter_process(struct mr_context *x, uint32_t process)
{
    x->process = process;
    x->to = facts_until(x, process, UINT64_MAX);
    for (x->from = x->to; x->from && x->fact[x->from - 1].process == process; x->from--) {
    }
    x->at = x->from;
    x->now.n = x->above.n = 0;
    for (unsigned depth = 0; x->facts && depth < ANCESTORS_MAX; depth++) {
        uint64_t started = x->t->process[process].start_ns;
        process = parent_of(x->t, process);
        if (process == NONE)
            break;
        for (size_t k = facts_until(x, process, started); k && x->fact[k - 1].process == process; k--)
            if (list_find(&x->above, &x->fact[k - 1].arg) == x->above.n)
                list_set(&x->above, &x->fact[k - 1].arg);
    }
}

/* ---- spans of a thread ---- */

static int add_span(struct mr_context *x, uint32_t e, uint32_t from, uint32_t to, uint64_t sequence)
{
    struct span s = {
        .start = x->batch.c.start_ns[e], .end = x->batch.c.end_ns[e], .sequence = sequence, .first = (uint32_t)x->args};
    for (uint32_t a = from; a < to; a++) {
        if (!is_value(x->batch.c.arg_type[a]))
            continue;
        if (mr_vec_reserve(&x->arg, &x->arg_cap, x->args + 1, sizeof(*x->arg)) < 0)
            return -ENOMEM;
        x->arg[x->args++] = arg_of_row(&x->batch, a);
    }
    s.args = (uint32_t)x->args - s.first;
    if (!s.args)
        return 0;
    if (mr_vec_reserve(&x->span, &x->span_cap, x->spans + 1, sizeof(*x->span)) < 0)
        return -ENOMEM;
    x->span[x->spans++] = s;
    return 0;
}

static int add_spans(struct mr_context *x, uint64_t sequence)
{
    const struct mr_event_batch *b = &x->batch;
    for (uint32_t a = 0, end; a < b->args; a = end) {
        uint32_t e = b->c.arg_event[a];
        for (end = a + 1; end < b->args && b->c.arg_event[end] == e; end++) {
        }
        if (b->c.call[e] == MR_CALL_region && add_span(x, e, a, end, sequence + e) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return mr_outer_first(x->start, x->end, x->sequence, y->start, y->end, y->sequence);
}

static void make_chains(struct mr_context *x)
{
    uint32_t top = NONE;
    for (uint32_t i = 0; i < x->spans; i++) {
        struct span *s = &x->span[i];
        while (top != NONE && x->span[top].end <= s->start)
            top = x->span[top].outer;
        s->outer = top;
        s->reach = top == NONE ? s->end : MR_MAX(s->end, x->span[top].reach);
        top = i;
    }
}

int mr_context_enter(struct mr_context *x, size_t chunk, struct mr_error *err)
{
    const struct mr_trace_chunk *c = &x->t->chunk[chunk];
    if (chunk < x->next) {
        x->base = x->ahead;
        x->ahead += c->count;
        return 0;
    }
    uint64_t sequence = 0;
    size_t i = chunk;
    x->spans = x->args = 0;
    for (; i < x->t->chunks && x->t->chunk[i].process == c->process && x->t->chunk[i].tid == c->tid; i++) {
        if (x->t->chunk[i].args) {
            int rc = mr_trace_read(x->t, i, MR_WANT_TIME | MR_WANT_CALL | MR_WANT_ARGS, &x->batch, err);
            if (rc < 0)
                return rc;
            if (add_spans(x, sequence) < 0)
                return mr_error_set(err, -ENOMEM, "cannot gather the spans");
        }
        sequence += x->t->chunk[i].count;
    }
    x->next = i;
    x->base = 0;
    x->ahead = c->count;
    if (x->spans)
        qsort(x->span, x->spans, sizeof(*x->span), by_start);
    make_chains(x);
    if (x->process != c->process)
        enter_process(x, c->process);
    return 0;
}

/* ---- one event ---- */

/* Takes a value unless something nearer to the event, in the list or in its own rows, has one. */
static void inherit(struct arg_list *to, const struct mr_inherited_arg *s, const struct mr_event_batch *b, uint32_t arg,
                    uint32_t arg_end)
{
    if (list_find(to, s) < to->n)
        return;
    for (; arg < arg_end; arg++) {
        const struct mr_inherited_arg own = arg_of_row(b, arg);
        if (is_value(own.type) && same_key(&own, s))
            return;
    }
    list_set(to, s);
}

static void from_spans(struct mr_context *x, const struct mr_event_batch *b, uint32_t i, uint32_t arg, uint32_t arg_end)
{
    uint64_t start = b->c.start_ns[i], end = b->c.end_ns[i];
    size_t lo = 0, hi = x->spans;
    while (lo < hi) { /* the first span that starts later */
        size_t mid = lo + (hi - lo) / 2;
        if (x->span[mid].start <= start)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (uint32_t at = lo ? (uint32_t)lo - 1 : NONE; at != NONE && x->span[at].reach >= end; at = x->span[at].outer) {
        const struct span *s = &x->span[at];
        bool around =
            s->end >= end && s->end > start && (s->start < start || s->end > end || s->sequence > x->base + i);
        for (uint32_t a = s->args; around && a--;) /* of a key given twice the last one counts */
            inherit(&x->found, &x->arg[s->first + a], b, arg, arg_end);
    }
}

/* Brings `now` to a moment. */
static void facts_at(struct mr_context *x, uint64_t until)
{
    size_t end = facts_until(x, x->process, until);
    if (end < x->at) {
        x->now.n = 0;
        x->at = x->from;
    }
    for (; x->at < end; x->at++)
        list_set(&x->now, &x->fact[x->at].arg);
}

size_t mr_context_of(struct mr_context *x, const struct mr_event_batch *b, uint32_t i, uint32_t arg, uint32_t arg_end,
                     const struct mr_inherited_arg **list)
{
    x->found.n = 0;
    *list = x->found.item;
    if (b->c.call[i] == MR_CALL_metadata)
        return 0;
    from_spans(x, b, i, arg, arg_end);
    if (x->from < x->to)
        facts_at(x, b->c.start_ns[i]);
    for (size_t k = 0; k < x->now.n; k++)
        inherit(&x->found, &x->now.item[k], b, arg, arg_end);
    for (size_t k = 0; k < x->above.n; k++)
        inherit(&x->found, &x->above.item[k], b, arg, arg_end);
    return x->found.n;
}
