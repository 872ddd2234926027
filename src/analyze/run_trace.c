/* Reading a run back from its trace: see run_trace.h. One pass over all chunks; the trainer's spans are recognised by
 * their site, their arguments by name. Times become relative to the rank's origin at the end, when that is known. */
#include "analyze/run_trace.h"
#include "base/common.h"
#include "event/emit.h"
#include "metrics/series_fields.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NO_SPAN MR_SPAN_COUNT

/* The event being looked at. */
struct look {
    const struct mr_event_batch *b;
    uint32_t event;
    uint32_t first_arg, end_arg;
};

static bool same(const struct mr_trace_string *s, const char *text)
{
    return s->len == strlen(text) && !memcmp(s->text, text, s->len);
}

static enum mr_span span_of(const struct mr_trace_process *p, unsigned call, uint32_t site)
{
    struct mr_trace_string category, name;
    mr_trace_label(p, call, site, &category, &name);
    for (unsigned k = 0; k < MR_SPAN_COUNT; k++) {
        const char *want_category, *want = mr_span_name((enum mr_span)k, &want_category);
        if (same(&name, want) && same(&category, want_category))
            return (enum mr_span)k;
    }
    return NO_SPAN;
}

/* An argument by name; `missing` where there is none. */
static int64_t arg(const struct look *l, const char *name, int64_t missing)
{
    for (uint32_t a = l->first_arg; a < l->end_arg; a++)
        if (same(mr_trace_string(l->b->process, l->b->c.arg_key[a]), name))
            return (int64_t)l->b->c.arg_value[a];
    return missing;
}

static uint64_t start_of(const struct look *l)
{
    return l->b->c.start_ns[l->event];
}

static uint64_t end_of(const struct look *l)
{
    return l->b->c.end_ns[l->event];
}

/* ---- one kind of event each; times stay absolute for now ---- */

static int add_step(struct mr_run_rank *r, const struct look *l)
{
    if (arg(l, "compute_ns", INT64_MIN) == INT64_MIN)
        return MR_E_FORMAT; /* from a format that has no arguments: zeros would be taken for figures */
    struct mr_step *s = MR_VEC_ADD(&r->steps);
    if (!s)
        return -ENOMEM;
    *s = (struct mr_step){.start_ns = start_of(l),
                          .end_ns = end_of(l),
                          .epoch = (uint32_t)arg(l, "epoch", 0),
                          .step = (uint32_t)arg(l, "batch", 0)};
#define FILL(field) s->field = (__typeof__(s->field))arg(l, #field, 0);
    MR_STEP_FIELDS(FILL)
    return 0;
}

static int add_checkpoint(struct mr_run_rank *r, const struct look *l, bool load)
{
    struct mr_checkpoint_event *s = MR_VEC_ADD(&r->checkpoints);
    if (!s)
        return -ENOMEM;
    *s = (struct mr_checkpoint_event){.start_ns = start_of(l),
                                      .duration_ns = end_of(l) - start_of(l),
                                      .step = (uint64_t)arg(l, "step", 0),
                                      .is_load = load};
    MR_CHECKPOINT_FIELDS(FILL)
    return 0;
}

static int add_drain(struct mr_run_rank *r, const struct look *l)
{
    struct mr_drain_event *s = MR_VEC_ADD(&r->drains);
    if (!s)
        return -ENOMEM;
    *s = (struct mr_drain_event){
        .start_ns = start_of(l), .duration_ns = end_of(l) - start_of(l), .step = (uint64_t)arg(l, "step", 0)};
    MR_DRAIN_FIELDS(FILL)
#undef FILL
    return 0;
}

static int add_figures(struct mr_run_trace *out, struct mr_run_figures *list, const struct look *l)
{
    for (uint32_t a = l->first_arg; a < l->end_arg; a++) {
        const struct mr_trace_string *name = mr_trace_string(l->b->process, l->b->c.arg_key[a]);
        struct mr_run_figure *f = MR_VEC_ADD(list);
        char *text = mr_arena_printf(&out->names, "%.*s", (int)name->len, name->text);
        if (!f || !text)
            return -ENOMEM;
        *f = (struct mr_run_figure){
            .name = text, .value = (int64_t)l->b->c.arg_value[a], .is_real = l->b->c.arg_type[a] == MR_MORE_DOUBLE};
    }
    return 0;
}

static int add_row(struct mr_run_rank *r, const struct look *l)
{
    struct mr_run_row *row = MR_VEC_ADD(&r->rows);
    if (!row)
        return -ENOMEM;
    *row = (struct mr_run_row){.epoch = (uint64_t)arg(l, "epoch", 0),
                               .batch = (uint64_t)arg(l, "batch", 0),
                               .sample = (uint64_t)arg(l, "sample", -1)};
    return 0;
}

static bool is_trainers(enum mr_span what)
{
    return what == MR_SPAN_RUN || what == MR_SPAN_OPEN || what == MR_SPAN_STEP || what == MR_SPAN_SAVE ||
           what == MR_SPAN_RESTORE || what == MR_SPAN_RANK_FIGURES;
}

static int take(struct mr_run_trace *out, struct mr_run_rank *r, enum mr_span what, const struct look *l)
{
    r->known = r->known || is_trainers(what);
    switch (what) {
    case MR_SPAN_STEP: return add_step(r, l);
    case MR_SPAN_SAVE: return add_checkpoint(r, l, false);
    case MR_SPAN_RESTORE: return add_checkpoint(r, l, true);
    case MR_SPAN_DRAIN: return add_drain(r, l);
    case MR_SPAN_ROW_READY: return add_row(r, l);
    case MR_SPAN_OBJECTS: return add_figures(out, &r->figures, l);
    case MR_SPAN_RANK_FIGURES: r->ended = true; return add_figures(out, &r->figures, l);
    case MR_SPAN_OPEN:
        r->open_ns = start_of(l);
        r->origin_ns = r->origin_ns ? r->origin_ns : end_of(l);
        return add_figures(out, &r->settings, l);
    case MR_SPAN_RUN:
        r->origin_ns = start_of(l);
        r->end_ns = end_of(l);
        return 0;
    case MR_SPAN_COMPUTE: r->first_compute_ns = MR_MIN(r->first_compute_ns, start_of(l)); return 0;
    default: return 0;
    }
}

/* ---- all of them ---- */

/* Sites of a process that were looked up already; regions repeat a handful of them. */
struct sites {
    const struct mr_trace_process *process;
    uint32_t n;
    uint8_t *span; /* by site, + 1; 0: not looked up */
};

static enum mr_span look_up(struct sites *s, const struct mr_trace_process *p, unsigned call, uint32_t site)
{
    if (!s->span || s->process != p || site >= s->n) {
        uint32_t n = MR_MAX(p->strings, site) + 1;
        uint8_t *span = realloc(s->span, n);
        if (!span)
            return span_of(p, call, site);
        memset(span, 0, n);
        *s = (struct sites){.process = p, .n = n, .span = span};
    }
    if (!s->span[site])
        s->span[site] = (uint8_t)(span_of(p, call, site) + 1);
    return (enum mr_span)(s->span[site] - 1);
}

static int read_chunk(struct mr_run_trace *out, struct mr_run_rank *r, const struct mr_event_batch *b,
                      struct sites *sites)
{
    struct look l = {.b = b};
    int rc = 0;
    for (uint32_t i = 0, a = 0; i < b->count && !rc; i++) {
        l.event = i;
        while (a < b->args && b->c.arg_event[a] < i)
            a++;
        l.first_arg = a;
        while (a < b->args && b->c.arg_event[a] == i)
            a++;
        l.end_arg = a;
        if (b->c.call[i] == MR_CALL_region || b->c.call[i] == MR_CALL_instant)
            rc = take(out, r, look_up(sites, b->process, b->c.call[i], b->c.file[i]), &l);
    }
    return rc;
}

static int by_start(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int drain_by_start(const void *a, const void *b)
{
    const struct mr_drain_event *x = a, *y = b;
    return by_start(&x->start_ns, &y->start_ns);
}

/* Steps and checkpoints begin with their start. */
static void settle(struct mr_run_rank *r)
{
    _Static_assert(offsetof(struct mr_step, start_ns) == 0 && offsetof(struct mr_checkpoint_event, start_ns) == 0,
                   "by_start looks at the first member");
    if (r->steps.n) /* qsort takes no NULL */
        qsort(r->steps.item, r->steps.n, sizeof(*r->steps.item), by_start);
    if (r->checkpoints.n)
        qsort(r->checkpoints.item, r->checkpoints.n, sizeof(*r->checkpoints.item), by_start);
    if (r->drains.n)
        qsort(r->drains.item, r->drains.n, sizeof(*r->drains.item), drain_by_start);
    for (size_t i = 0; i < r->steps.n; i++) {
        r->steps.item[i].start_ns -= r->origin_ns;
        r->steps.item[i].end_ns -= r->origin_ns;
    }
    for (size_t i = 0; i < r->checkpoints.n; i++)
        r->checkpoints.item[i].start_ns -= r->origin_ns;
    for (size_t i = 0; i < r->drains.n; i++)
        r->drains.item[i].start_ns -= r->origin_ns;
}

static uint32_t count_ranks(const struct mr_trace *t)
{
    int32_t most = 0;
    for (size_t i = 0; i < t->processes; i++)
        most = MR_MAX(most, t->process[i].rank);
    return (uint32_t)most + 1;
}

/* Whether a process can have spans of a run, by the names it uses: events of other programs need not be decoded. */
static bool has_spans(const struct mr_trace_process *p)
{
    for (uint32_t id = 1; p->rank >= 0 && id < p->strings; id++)
        if (p->string[id].kind == MR_STR_SITE && p->string[id].text && span_of(p, MR_CALL_region, id) != NO_SPAN)
            return true;
    return false;
}

int mr_run_trace_read(const struct mr_trace *t, struct mr_run_trace **out, struct mr_error *err)
{
    struct mr_run_trace *r = calloc(1, sizeof(*r));
    struct mr_event_batch b = {0};
    struct sites sites = {0};
    bool any = false;
    int rc = 0;
    if (r) {
        r->world = count_ranks(t);
        r->rank = calloc(r->world, sizeof(*r->rank));
    }
    if (!r || !r->rank) {
        free(r);
        return mr_error_set(err, -ENOMEM, "cannot read the run");
    }
    for (uint32_t k = 0; k < r->world; k++)
        r->rank[k].first_compute_ns = UINT64_MAX;
    bool wanted = false;
    for (size_t c = 0; c < t->chunks && !rc; c++) { /* by process, so that each is looked at once */
        const struct mr_trace_process *p = &t->process[t->chunk[c].process];
        if (c == 0 || t->chunk[c].process != t->chunk[c - 1].process)
            wanted = has_spans(p);
        if (!wanted)
            continue;
        rc = mr_trace_read(t, c, MR_WANT_ALL, &b, err);
        if (!rc && (rc = read_chunk(r, &r->rank[p->rank], &b, &sites)))
            mr_error_set(err, rc, "cannot read the run");
    }
    for (uint32_t k = 0; k < r->world && !rc; k++) {
        settle(&r->rank[k]);
        any |= r->rank[k].known;
    }
    mr_event_batch_done(&b);
    free(sites.span);
    if (!rc && !any)
        rc = mr_error_plain(err, MR_E_FORMAT, "there is no run of 'millrace run' in the trace");
    if (rc)
        mr_run_trace_free(r);
    else
        *out = r;
    return rc;
}

void mr_run_trace_free(struct mr_run_trace *r)
{
    if (!r)
        return;
    for (uint32_t k = 0; k < r->world; k++) {
        free(r->rank[k].steps.item);
        free(r->rank[k].checkpoints.item);
        free(r->rank[k].drains.item);
        free(r->rank[k].rows.item);
        free(r->rank[k].figures.item);
        free(r->rank[k].settings.item);
    }
    mr_arena_done(&r->names);
    free(r->rank);
    free(r);
}

const struct mr_run_figure *mr_run_rank_figure(const struct mr_run_rank *r, const char *name)
{
    for (size_t i = 0; i < r->figures.n; i++)
        if (!strcmp(r->figures.item[i].name, name))
            return &r->figures.item[i];
    return NULL;
}

double mr_run_rank_setting(const struct mr_run_rank *r, const char *name)
{
    for (size_t i = 0; i < r->settings.n; i++)
        if (!strcmp(r->settings.item[i].name, name))
            return (double)r->settings.item[i].value;
    return NAN;
}

void mr_run_trace_series(const struct mr_run_trace *r, struct mr_rank_series *out)
{
    for (uint32_t k = 0; k < r->world; k++) {
        const struct mr_run_rank *s = &r->rank[k];
        const struct mr_run_figure *wait = mr_run_rank_figure(s, "drain_wait_ns");
        out[k] = (struct mr_rank_series){.rank = k,
                                         .steps = s->steps.item,
                                         .n = s->steps.n,
                                         .checkpoints = s->checkpoints.item,
                                         .n_checkpoints = s->checkpoints.n,
                                         .drains = s->drains.item,
                                         .n_drains = s->drains.n,
                                         .drain_wait_ns = wait ? (uint64_t)wait->value : 0};
    }
}

/* ---- calls ---- */

struct calls {
    struct mr_event *item;
    size_t n, cap;
};

static int add_calls(const struct mr_event_batch *b, mr_path_number_fn *number, void *user, struct calls *out)
{
    for (uint32_t i = 0; i < b->count; i++) {
        const struct mr_call_info *call = mr_call_get(b->c.call[i]);
        const struct mr_trace_string *path = mr_trace_string(b->process, b->c.file[i]);
        uint32_t id = call->layer == MR_LAYER_POSIX ? number(user, path->text, path->len) : 0;
        if (!id)
            continue;
        struct mr_event *e = MR_VEC_ADD(out);
        if (!e)
            return -ENOMEM;
        *e = (struct mr_event){.start_ns = b->c.start_ns[i],
                               .dur_ns = b->c.end_ns[i] - b->c.start_ns[i],
                               .offset = b->c.offset[i],
                               .result = b->c.result[i],
                               .path_id = id,
                               .kind = call->kind,
                               .tid = b->tid,
                               .rank = (uint32_t)MR_MAX(b->process->rank, 0),
                               .call = b->c.call[i]};
    }
    return 0;
}

int mr_run_trace_calls(const struct mr_trace *t, mr_path_number_fn *number, void *user, struct mr_event **events,
                       size_t *n, struct mr_error *err)
{
    struct calls list = {0};
    struct mr_event_batch b = {0};
    int rc = 0;
    for (size_t c = 0; c < t->chunks && !rc; c++) {
        rc = mr_trace_read(t, c, MR_WANT_ALL, &b, err);
        if (!rc && (rc = add_calls(&b, number, user, &list)))
            mr_error_set(err, rc, "cannot keep the calls of the run");
    }
    mr_event_batch_done(&b);
    if (rc) {
        free(list.item);
        return rc;
    }
    *events = list.item;
    *n = list.n;
    return 0;
}
