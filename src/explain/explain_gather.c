/* The first pass: spans that come a few times for each batch, with their arguments, and the work of our own loader put
 * together by thread and batch. Blocks that say of themselves that they have none of these are not decoded. */
#include "base/common.h"
#include "base/workers.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- is there anything in a block? ---- */

struct glance {
    const struct explain_job *j;
    uint32_t process;
    bool found;
};

static void glance_function(void *user, const struct mr_mrt_aggregate *a)
{
    struct glance *g = user;
    if (a->call <= MR_CALL_metadata && a->site && a->site < g->j->t->process[g->process].strings)
        g->found |= mr_role_places(g->j->site[g->process][a->site].role);
}
static void glance_pair(void *user, unsigned bucket, uint64_t count)
{
    (void)user, (void)bucket, (void)count;
}
static void glance_size(void *user, uint64_t size, uint64_t count)
{
    (void)user, (void)size, (void)count;
}
static void glance_sizes(void *user, const struct mr_mrt_sizes *s)
{
    (void)user, (void)s;
}
static void glance_file(void *user, const struct mr_tally_file *row)
{
    (void)user, (void)row;
}

static bool has_spans(const struct explain_job *j, const struct mr_trace_chunk *c)
{
    static const struct mr_mrt_visitor visitor = {.function = glance_function,
                                                  .duration = glance_pair,
                                                  .size = glance_size,
                                                  .sizes = glance_sizes,
                                                  .size_bucket = glance_pair,
                                                  .file = glance_file};
    struct glance g = {.j = j, .process = c->process};
    if (c->imported || mr_mrt_aggregates(&c->view, &visitor, &g, NULL) <= 0)
        return true;
    return g.found;
}

/* ---- spans ---- */

/* The event being looked at. */
struct look {
    const struct mr_event_batch *b;
    const uint8_t *key;
    uint32_t event, first_arg, end_arg, strings;
    uint32_t chunk;
    size_t first_make; /* of the worker's: those before are of other chunks */
};

static uint64_t place_of(const struct look *l)
{
    return (uint64_t)l->chunk << 32 | l->event;
}

static uint64_t value_of(const struct mr_columns *c, uint32_t a)
{
    double real;
    if (c->arg_type[a] != MR_MORE_DOUBLE)
        return c->arg_value[a];
    memcpy(&real, &c->arg_value[a], sizeof real);
    return real >= 0 && real < 1e19 ? (uint64_t)real : UNKNOWN;
}

static void read_args(const struct look *l, uint64_t arg[KEYS])
{
    const struct mr_columns *c = &l->b->c;
    for (unsigned k = 0; k < KEYS; k++)
        arg[k] = UNKNOWN;
    for (uint32_t a = l->first_arg; a < l->end_arg; a++) {
        unsigned key = c->arg_key[a] < l->strings ? l->key[c->arg_key[a]] : 0;
        if (key && key <= KEYS && (c->arg_type[a] <= MR_MORE_DOUBLE))
            arg[key - 1] = value_of(c, a);
    }
}

static int add_place(struct explain_worker *w, const struct look *l, uint32_t lane)
{
    const struct mr_columns *c = &l->b->c;
    struct explain_place *p = MR_VEC_ADD(&w->place);
    if (!p)
        return -ENOMEM;
    *p = (struct explain_place){.place = place_of(l), .lane = lane, .site = c->file[l->event]};
    for (unsigned k = 0; k < KEYS_ALL; k++)
        p->arg[k] = UNKNOWN;
    for (uint32_t a = l->first_arg; a < l->end_arg; a++) {
        unsigned key = c->arg_key[a] < l->strings ? l->key[c->arg_key[a]] : 0;
        if (key && c->arg_type[a] <= MR_MORE_TEXT)
            p->arg[key - 1] = value_of(c, a);
    }
    return 0;
}

/* Arguments that are none of ours are measures: "NAME:decode_ns". */
static int add_field(struct explain_worker *w, const struct look *l, uint32_t lane)
{
    const struct mr_columns *c = &l->b->c;
    uint64_t arg[KEYS];
    read_args(l, arg);
    for (uint32_t a = l->first_arg; a < l->end_arg; a++) {
        if (c->arg_key[a] >= l->strings || l->key[c->arg_key[a]] || c->arg_type[a] > MR_MORE_DOUBLE)
            continue;
        struct explain_cost *x = MR_VEC_ADD(&w->cost);
        if (!x)
            return -ENOMEM;
        *x = (struct explain_cost){
            .process = lane, .key = c->arg_key[a], .loader = arg[KEY_LOADER], .value = value_of(c, a)};
    }
    return 0;
}

static int add_span(struct explain_worker *w, const struct look *l, uint32_t lane, unsigned role)
{
    struct explain_span *s = MR_VEC_ADD(&w->span);
    if (!s)
        return -ENOMEM;
    *s = (struct explain_span){
        .start = l->b->c.start_ns[l->event], .end = l->b->c.end_ns[l->event], .lane = lane, .role = (uint8_t)role};
    s->place = place_of(l);
    read_args(l, s->arg);
    return 0;
}

static int add_make(struct explain_worker *w, const struct look *l, uint32_t lane, unsigned role)
{
    uint64_t arg[KEYS];
    struct explain_make *m = MR_VEC_ADD(&w->make);
    if (!m)
        return -ENOMEM;
    read_args(l, arg);
    *m = (struct explain_make){
        .start = l->b->c.start_ns[l->event],
        .end = l->b->c.end_ns[l->event],
        .place = place_of(l),
        .epoch = arg[KEY_EPOCH],
        .batch = arg[KEY_BATCH],
        .loader = arg[KEY_LOADER],
        .cpu_ns = arg[KEY_CPU] != UNKNOWN && arg[KEY_DELAY] != UNKNOWN ? arg[KEY_CPU] + arg[KEY_DELAY] : arg[KEY_CPU],
        .delay_ns = arg[KEY_CPU] != UNKNOWN && arg[KEY_DELAY] != UNKNOWN ? arg[KEY_DELAY] : 0,
        .threads_ns = arg[KEY_THREADS] != UNKNOWN ? arg[KEY_THREADS] : 0,
        .threads_delay = arg[KEY_THREADS_DELAY] != UNKNOWN ? arg[KEY_THREADS_DELAY] : 0,
        .faults = arg[KEY_FAULTS] != UNKNOWN ? arg[KEY_FAULTS] : 0,
        .worker = arg[KEY_WORKER] < NO_INDEX ? (uint32_t)arg[KEY_WORKER] : NO_INDEX,
        .lane = lane,
        .item = role != MR_ROLE_FETCH,
        .far = role == MR_ROLE_FAR_TASK,
        .task = role == MR_ROLE_TASK || role == MR_ROLE_FAR_TASK};
    return 0;
}

/* A thread of our own loader works on the rows of a batch one after the other: they are one make. */
static int add_row(struct explain_worker *w, const struct look *l, uint32_t lane)
{
    uint64_t arg[KEYS], start = l->b->c.start_ns[l->event], end = l->b->c.end_ns[l->event];
    struct explain_make *m = w->make.n > l->first_make ? &w->make.item[w->make.n - 1] : NULL;
    read_args(l, arg);
    if (arg[KEY_BATCH] == UNKNOWN) /* fills the memory before the first epoch */
        return 0;
    if (m && m->own && m->lane == lane && m->epoch == arg[KEY_EPOCH] && m->batch == arg[KEY_BATCH] &&
        m->loader == arg[KEY_LOADER]) {
        m->start = MR_MIN(m->start, start);
        m->end = MR_MAX(m->end, end);
        return 0;
    }
    m = MR_VEC_ADD(&w->make);
    if (!m)
        return -ENOMEM;
    *m = (struct explain_make){.start = start,
                               .end = end,
                               .place = place_of(l),
                               .epoch = arg[KEY_EPOCH],
                               .batch = arg[KEY_BATCH],
                               .loader = arg[KEY_LOADER],
                               .cpu_ns = UNKNOWN,
                               .worker = NO_INDEX,
                               .lane = lane,
                               .own = true};
    return 0;
}

static int take(struct explain_worker *w, const struct look *l, uint32_t lane, unsigned role)
{
    switch (role) {
    case MR_ROLE_NONE:
    case MR_ROLE_INSIDE:
    case MR_ROLE_PART: return 0;
    case MR_ROLE_PLACE: return add_place(w, l, lane);
    case MR_ROLE_FIELD: return add_field(w, l, lane);
    case MR_ROLE_FETCH:
    case MR_ROLE_ITEM:
    case MR_ROLE_FAR_TASK:
    case MR_ROLE_TASK: return add_make(w, l, lane, role);
    case MR_ROLE_ROW:
    case MR_ROLE_ROW_READY: return add_row(w, l, lane);
    default: return add_span(w, l, lane, role);
    }
}

static int gather_chunk(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct explain_job *j = ctx->user;
    struct explain_worker *w = &j->worker[ctx->thread];
    const struct mr_trace_chunk *c = &j->t->chunk[index];
    if (!j->kept[c->process] || !c->count || !has_spans(j, c))
        return 0;
    int rc = mr_trace_read(j->t, index, MR_WANT_TIME | MR_WANT_CALL | MR_WANT_FILE | MR_WANT_ARGS, &w->batch, err);
    if (rc < 0)
        return rc;
    const struct mr_event_batch *b = &w->batch;
    struct look l = {.b = b,
                     .key = j->key[c->process],
                     .strings = j->t->process[c->process].strings,
                     .chunk = (uint32_t)index,
                     .first_make = w->make.n};
    for (uint32_t i = 0, a = 0; i < b->count && !rc; i++) {
        l.event = i;
        while (a < b->args && b->c.arg_event[a] < i)
            a++;
        l.first_arg = a;
        while (a < b->args && b->c.arg_event[a] == i)
            a++;
        l.end_arg = a;
        if (b->c.call[i] <= MR_CALL_metadata && b->c.file[i] < l.strings)
            rc = take(w, &l, j->lane_of[index], j->site[c->process][b->c.file[i]].role);
    }
    return rc ? mr_error_set(err, rc, "cannot explain the trace") : 0;
}

/* ---- all of them ---- */

static int make_order(const void *a, const void *b)
{
    const struct explain_make *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static int span_place(const void *a, const void *b)
{
    const struct explain_span *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* A worker process whose threads make the items (Grain) only passes them on: what held them up its threads know. */
static void drop_passers(struct explain_job *j)
{
    size_t n = 0, processes = j->t->processes;
    uint32_t *items = calloc(processes + 1, sizeof(*items)); /* lane + 1 of some item of the process */
    for (size_t i = 0; items && i < j->make.n; i++)
        if (j->make.item[i].item)
            items[j->lane[j->make.item[i].lane].process] = j->make.item[i].lane + 1;
    for (size_t i = 0; items && i < j->make.n; i++) {
        const struct explain_make *m = &j->make.item[i];
        uint32_t lane = items[j->lane[m->lane].process];
        if (m->item || m->own || !lane || lane == m->lane + 1)
            j->make.item[n++] = *m;
    }
    j->make.n = items ? n : j->make.n;
    free(items);
}

/* Programs use pools for anything. What they do is for batches where nobody else makes any, and no loader is waited
 * for. What threads hand over that a cluster made is the cluster's. */
static void drop_tasks(struct explain_job *j)
{
    bool others = false, far = false;
    size_t n = 0;
    for (size_t i = 0; i < j->make.n; i++) {
        others |= !j->make.item[i].task;
        far |= j->make.item[i].far;
    }
    for (size_t i = 0; i < j->span.n && !others; i++)
        others = j->span.item[i].role == MR_ROLE_WAIT || j->span.item[i].role == MR_ROLE_COMPUTE ||
                 j->span.item[i].role == MR_ROLE_COMPUTE_LOOP;
    for (size_t i = 0; i < j->make.n; i++)
        if (!j->make.item[i].task || (!others && (!far || j->make.item[i].far)))
            j->make.item[n++] = j->make.item[i];
    j->make.n = n;
}

/* Parts of one make that chunks cut apart become one again. */
static void join_makes(struct explain_job *j)
{
    size_t n = 0;
    bool fetches = false; /* then single items lie inside them */
    drop_tasks(j);
    drop_passers(j);
    for (size_t i = 0; i < j->make.n; i++)
        fetches |= !j->make.item[i].item;
    for (size_t i = 0; i < j->make.n; i++) {
        struct explain_make *m = &j->make.item[i], *last = n ? &j->make.item[n - 1] : NULL;
        if (m->item && fetches)
            continue;
        if (last && m->own && last->own && last->lane == m->lane && last->epoch == m->epoch &&
            last->batch == m->batch && last->loader == m->loader)
            last->end = MR_MAX(last->end, m->end);
        else
            j->make.item[n++] = *m;
    }
    j->make.n = n;
}

void mr_explain_sort_makes(struct explain_job *j)
{
    if (j->make.n)
        qsort(j->make.item, j->make.n, sizeof(*j->make.item), make_order);
    for (uint32_t i = 0; i < j->lanes; i++)
        j->lane[i].makes = 0;
    for (uint32_t i = 0; i < j->make.n; i++) {
        struct explain_lane *l = &j->lane[j->make.item[i].lane];
        l->make = l->makes ? l->make : i;
        l->makes++;
    }
}

static int collect_places(struct explain_job *j)
{
    for (unsigned i = 0; i < j->workers; i++) {
        struct explain_worker *w = &j->worker[i];
        for (size_t k = 0; k < w->place.n; k++) {
            struct explain_place *p = MR_VEC_ADD(&j->place);
            if (!p)
                return -ENOMEM;
            *p = w->place.item[k];
        }
        free(w->place.item);
        memset(&w->place, 0, sizeof w->place);
    }
    return 0;
}

static int collect(struct explain_job *j)
{
    size_t spans = 0, makes = 0;
    for (unsigned i = 0; i < j->workers; i++) {
        spans += j->worker[i].span.n;
        makes += j->worker[i].make.n;
    }
    if (MR_VEC_RESERVE(&j->span, spans + 1) < 0 || MR_VEC_RESERVE(&j->make, makes + 1) < 0)
        return -ENOMEM;
    if (collect_places(j) < 0)
        return -ENOMEM;
    for (unsigned i = 0; i < j->workers; i++) {
        struct explain_worker *w = &j->worker[i];
        if (w->span.n)
            memcpy(j->span.item + j->span.n, w->span.item, w->span.n * sizeof(*w->span.item));
        if (w->make.n)
            memcpy(j->make.item + j->make.n, w->make.item, w->make.n * sizeof(*w->make.item));
        j->span.n += w->span.n;
        j->make.n += w->make.n;
        free(w->span.item);
        free(w->make.item);
        memset(&w->span, 0, sizeof w->span);
        memset(&w->make, 0, sizeof w->make);
    }
    if (j->span.n)
        qsort(j->span.item, j->span.n, sizeof(*j->span.item), span_place);
    if (j->make.n)
        qsort(j->make.item, j->make.n, sizeof(*j->make.item), make_order);
    join_makes(j);
    mr_explain_sort_makes(j);
    return 0;
}

int mr_explain_gather_spans(struct explain_job *j, struct mr_error *err)
{
    int rc = mr_workers_run(j->workers, j->t->chunks, 1, gather_chunk, j, j->opt->stop, err);
    if (rc < 0)
        return rc;
    return collect(j) < 0 ? mr_error_set(err, -ENOMEM, "cannot explain the trace") : 0;
}
