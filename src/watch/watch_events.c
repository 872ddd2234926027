/* Blocks of a trace to sums. Names and processes go into a struct mr_trace and stay; events are decoded, counted and
 * forgotten. Calls are not decoded where the block says itself what each file had (mr_mrt_aggregates); spans are.
 *
 * What a name means is found once and kept as a tag: of a site its role, of a path its mount, of an argument's name
 * which argument it is. Each string has one of these uses. */
#include "analyze/region_rules.h"
#include "base/common.h"
#include "event/fd_class.h"
#include "watch/watch_internal.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NO_TAG 255u          /* of nothing that counts */
#define TAG_UTILISATION 250u /* a counter */
#define PARENTS 64u

/* Arguments that are looked at. */
#define ARGUMENTS(X)                                                                                                   \
    X(epoch)                                                                                                           \
    X(loader) X(worker) X(rank) X(steps) X(batches) X(load_ns) X(barrier_ns) X(checkpoint_ns) X(phase) X(read_bytes)
enum {
#define X(name) ARG_##name,
    ARGUMENTS(X)
#undef X
        ARGS
};
static const char *const argument_name[] = {
#define X(name) #name,
    ARGUMENTS(X)
#undef X
};

/* ---- tags ---- */

static uint8_t *tag_of(struct mr_watch *w, uint32_t process, uint32_t id)
{
    struct watch_process *p = &w->process[process];
    size_t had = p->tags;
    if (id >= w->t->process[process].strings)
        return NULL; /* its name is not there */
    if (id < p->tags)
        return &p->tag[id];
    if (mr_vec_reserve(&p->tag, &p->tags, (size_t)id + 1, 1) < 0)
        return NULL;
    memset(p->tag + had, 0, p->tags - had);
    return &p->tag[id];
}

static bool is_word(const char *text, size_t len, const char *word)
{
    return len == strlen(word) && !memcmp(text, word, len);
}

/* Role + 1 of a site. */
static unsigned site_tag(struct mr_watch *w, uint32_t process, uint32_t id)
{
    uint8_t *tag = tag_of(w, process, id);
    if (!tag || *tag)
        return tag ? *tag : NO_TAG;
    struct mr_trace_string category, name;
    mr_trace_label(&w->t->process[process], MR_CALL_region, id, &category, &name);
    struct mr_region_class c = mr_region_classify(category.text, category.len, name.text, name.len);
    static_assert(MR_ROLES + 1 < TAG_UTILISATION, "roles and other tags differ");
    *tag = c.role != MR_ROLE_NONE ? (uint8_t)(c.role + 1) : NO_TAG;
    if (is_word(category.text, category.len, "accelerator") && is_word(name.text, name.len, "utilisation"))
        *tag = TAG_UTILISATION;
    return *tag;
}

/* Index + 1 of an argument. */
static unsigned key_tag(struct mr_watch *w, uint32_t process, uint32_t id)
{
    uint8_t *tag = tag_of(w, process, id);
    if (!tag || *tag)
        return tag ? *tag : NO_TAG;
    const struct mr_trace_string *s = mr_trace_string(&w->t->process[process], id);
    *tag = NO_TAG;
    for (unsigned i = 0; i < ARGS; i++)
        if (is_word(s->text, s->len, argument_name[i]))
            *tag = (uint8_t)(i + 1);
    return *tag;
}

static unsigned mount_number(struct mr_watch *w, const struct mr_trace_mount *m)
{
    static const struct mr_trace_mount none = {.type = "", .path = ""};
    m = m ? m : &none;
    for (unsigned i = 0; i < w->mounts; i++)
        if (!strcmp(w->mount[i].path, m->path) && !strcmp(w->mount[i].type, m->type))
            return i;
    if (w->mounts == MOUNTS_MOST)
        return MOUNTS_MOST - 1;
    w->mount[w->mounts] = (struct watch_mount){.path = m->path, .type = m->type};
    return w->mounts++;
}

/* The mount of a path; NULL: it is no file of a storage. */
static struct watch_mount *mount_of(struct mr_watch *w, uint32_t process, uint32_t id)
{
    uint8_t *tag = id ? tag_of(w, process, id) : NULL;
    if (!tag || *tag == NO_TAG)
        return NULL;
    if (*tag)
        return &w->mount[MR_MIN(*tag - 1u, MOUNTS_MOST - 1)];
    const struct mr_trace_process *p = &w->t->process[process];
    const struct mr_trace_string *s = mr_trace_string(p, id);
    const struct mr_trace_mount *m = mr_trace_mount_of(w->t, p->node, s->text, s->len);
    enum mr_fd_class c = mr_fd_class_of(s->text, s->len, m ? m->type : NULL);
    bool stores = c == MR_FD_FILE || c == MR_FD_BLOCK;
    *tag = stores ? (uint8_t)(mount_number(w, m) + 1) : NO_TAG;
    return stores ? &w->mount[*tag - 1] : NULL;
}

/* ---- rows ---- */

static uint32_t add_row(struct mr_watch *w, uint32_t process, int32_t rank)
{
    if (mr_vec_reserve(&w->row, &w->row_cap, w->rows + 1, sizeof(*w->row)) < 0)
        return NO_ROW;
    w->row[w->rows] = (struct watch_row){.rank = rank, .process = process};
    return (uint32_t)w->rows++;
}

static uint32_t parent_of(const struct mr_watch *w, uint32_t process)
{
    const struct mr_trace_process *p = &w->t->process[process];
    for (uint32_t i = process; i-- > 0;) /* the last one that had the number before */
        if (w->t->process[i].known && w->t->process[i].pid == p->ppid && w->t->process[i].node == p->node)
            return i;
    return NO_ROW;
}

/* The rank that a process trains as or works for; NO_ROW: none that is known. */
static uint32_t row_of(struct mr_watch *w, uint32_t process)
{
    struct watch_process *p = &w->process[process];
    int32_t rank = w->t->process[process].rank;
    if (p->row != NO_ROW)
        return p->row;
    for (uint32_t i = 0; rank >= 0 && i < w->rows; i++)
        if (w->row[i].rank == rank)
            return p->row = i;
    uint32_t at = process;
    for (unsigned i = 0; i < PARENTS && at != NO_ROW; i++, at = parent_of(w, at))
        if (w->process[at].row != NO_ROW)
            return p->row = w->process[at].row;
    return NO_ROW;
}

/* A process trains: its rank is made where there is none yet. */
static struct watch_row *trainer(struct mr_watch *w, uint32_t process, uint32_t tid)
{
    uint32_t row = row_of(w, process);
    if (row == NO_ROW)
        row = w->process[process].row = add_row(w, process, w->t->process[process].rank);
    if (row == NO_ROW)
        return NULL;
    struct watch_row *r = &w->row[row];
    if (!r->tid) {
        r->process = process;
        r->tid = tid;
    }
    return r->process == process && r->tid == tid ? r : NULL;
}

/* A rank that learns its number only when it calls init_process_group. */
static void name_rank(struct mr_watch *w, uint32_t process, int64_t rank)
{
    uint32_t row = rank >= 0 && rank < INT32_MAX ? row_of(w, process) : NO_ROW;
    if (rank < 0 || rank >= INT32_MAX)
        return;
    if (row == NO_ROW)
        row = w->process[process].row = add_row(w, process, (int32_t)rank);
    if (row != NO_ROW && w->row[row].rank < 0)
        w->row[row].rank = (int32_t)rank;
}

/* ---- spans ---- */

struct span_args {
    uint64_t value[ARGS];
    bool has[ARGS];
    double number; /* the last real number: of a counter */
};

static uint64_t arg_or(const struct span_args *a, unsigned which, uint64_t otherwise)
{
    return a->has[which] ? a->value[which] : otherwise;
}

static void own_step(struct watch_row *r, const struct watch_at *at, const struct span_args *a)
{
    const uint64_t part[PARTS] = {[PART_STALL] = arg_or(a, ARG_load_ns, 0),
                                  [PART_BARRIER] = arg_or(a, ARG_barrier_ns, 0),
                                  [PART_SAVE] = arg_or(a, ARG_checkpoint_ns, 0)};
    r->read_bytes.now += (double)arg_or(a, ARG_read_bytes, 0);
    mr_watch_own_step(r, at, part, !arg_or(a, ARG_phase, 0));
}

/* Spans of the thread that trains. */
static void take_training(struct mr_watch *w, uint32_t process, uint32_t tid, unsigned role, const struct watch_at *at,
                          const struct span_args *a)
{
    bool marks = role == MR_ROLE_WAIT || role == MR_ROLE_OWN_STEP || role == MR_ROLE_OPTIMIZER;
    uint32_t row = marks ? NO_ROW : row_of(w, process);
    struct watch_row *r = marks || (row != NO_ROW && w->row[row].process == process) ? trainer(w, process, tid) : NULL;
    if (!r)
        return;
    switch (role) {
    case MR_ROLE_WAIT:
        if (!r->own)
            mr_watch_wait(r, at);
        break;
    case MR_ROLE_OWN_STEP: own_step(r, at, a); break;
    case MR_ROLE_END: r->over_ns = at->start; break;
    case MR_ROLE_OPTIMIZER:
    case MR_ROLE_BACKWARD:
        if (!r->own && (role == MR_ROLE_OPTIMIZER || r->waits))
            mr_watch_optimiser(r, at);
        break;
    case MR_ROLE_BARRIER: mr_watch_part(r, PART_BARRIER, at); break;
    case MR_ROLE_SAVE:
    case MR_ROLE_RESTORE: mr_watch_part(r, PART_SAVE, at); break;
    case MR_ROLE_ACCELERATOR_IDLE: mr_watch_part(r, PART_IDLE, at); break;
    default: break;
    }
}

static void take_span(struct mr_watch *w, uint32_t process, uint32_t tid, unsigned role, const struct watch_at *at,
                      const struct span_args *a)
{
    uint32_t row = NO_ROW;
    switch (role) {
    case MR_ROLE_RANK:
        if (a->has[ARG_rank])
            name_rank(w, process, (int64_t)a->value[ARG_rank]);
        return;
    case MR_ROLE_OPEN: {
        struct watch_row *r = trainer(w, process, tid);
        if (r)
            r->steps_set = arg_or(a, ARG_steps, 0);
        return;
    }
    case MR_ROLE_PLACE:
        row = a->has[ARG_loader] && a->has[ARG_batches] ? row_of(w, process) : NO_ROW;
        if (row == NO_ROW && a->has[ARG_batches]) /* told before the first wait */
            row = trainer(w, process, tid) ? row_of(w, process) : NO_ROW;
        if (row != NO_ROW && w->row[row].process == process)
            mr_watch_loader(&w->row[row], a->value[ARG_loader], a->value[ARG_batches]);
        return;
    case MR_ROLE_FETCH:
        row = row_of(w, process);
        if (row != NO_ROW && a->has[ARG_worker])
            mr_watch_fetch(&w->row[row], (int64_t)a->value[ARG_worker], at->end - MR_MIN(at->start, at->end));
        return;
    default: take_training(w, process, tid, role, at, a);
    }
}

/* ---- events ---- */

/* Arguments are in the order of their events; *at moves behind those of event `i`. */
static void read_args(struct mr_watch *w, uint32_t process, uint32_t i, uint32_t *at, struct span_args *a)
{
    const struct mr_event_batch *b = &w->batch;
    *a = (struct span_args){.number = (double)NAN};
    while (*at < b->args && b->c.arg_event[*at] < i)
        ++*at;
    for (; *at < b->args && b->c.arg_event[*at] == i; ++*at) {
        uint8_t type = b->c.arg_type[*at];
        unsigned key = type == MR_MORE_INT || type == MR_MORE_UINT ? key_tag(w, process, b->c.arg_key[*at]) : NO_TAG;
        if (type == MR_MORE_DOUBLE)
            memcpy(&a->number, &b->c.arg_value[*at], sizeof a->number);
        else if (type == MR_MORE_INT)
            a->number = (double)(int64_t)b->c.arg_value[*at];
        if (key == NO_TAG || key > ARGS)
            continue;
        a->value[key - 1] = b->c.arg_value[*at];
        a->has[key - 1] = true;
    }
}

static void take_call(struct mr_watch *w, uint32_t process, uint32_t i)
{
    const struct mr_event_batch *b = &w->batch;
    const struct mr_call_info *call = mr_call_get(b->c.call[i]);
    bool layer = call->layer == MR_LAYER_APP || call->layer == MR_LAYER_MPIIO || call->layer == MR_LAYER_HDF5;
    struct watch_mount *m = layer ? NULL : mount_of(w, process, b->c.file[i]);
    double bytes = b->c.result[i] > 0 ? (double)b->c.result[i] : 0;
    if (!m)
        return;
    m->calls.now += 1;
    m->ns.now += (double)(b->c.end_ns[i] - b->c.start_ns[i]);
    m->opens.now += call->kind == MR_EV_OPEN;
    m->read_bytes.now += call->kind == MR_EV_READ || call->kind == MR_EV_COPY ? bytes : 0;
    m->written_bytes.now += call->kind == MR_EV_WRITE ? bytes : 0;
}

static void take_events(struct mr_watch *w, uint32_t process, bool calls)
{
    const struct mr_event_batch *b = &w->batch;
    uint32_t at = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        bool span = b->c.call[i] == MR_CALL_region || b->c.call[i] == MR_CALL_counter;
        if (!span) {
            if (calls)
                take_call(w, process, i);
            continue;
        }
        unsigned tag = site_tag(w, process, b->c.file[i]);
        struct span_args a;
        if (tag == NO_TAG)
            continue;
        read_args(w, process, i, &at, &a);
        const struct watch_at when = {b->c.start_ns[i], b->c.end_ns[i], arg_or(&a, ARG_loader, UINT64_MAX),
                                      arg_or(&a, ARG_epoch, UINT64_MAX)};
        if (tag == TAG_UTILISATION)
            w->utilisation = a.number;
        else
            take_span(w, process, b->tid, tag - 1, &when, &a);
    }
}

/* What a block says of itself. */
struct block_sums {
    struct mr_watch *w;
    uint32_t process;
    bool spans;
};

static void visit_function(void *user, const struct mr_mrt_aggregate *a)
{
    ((struct block_sums *)user)->spans |= a->call == MR_CALL_region || a->call == MR_CALL_counter;
}

static void visit_file(void *user, const struct mr_tally_file *f)
{
    struct block_sums *s = user;
    struct watch_mount *m = mount_of(s->w, s->process, f->id);
    if (!m)
        return;
    m->calls.now += f->calls;
    m->ns.now += (double)f->dur_ns;
    m->opens.now += f->opens;
    m->read_bytes.now += (double)f->read_bytes;
    m->written_bytes.now += (double)f->written_bytes;
}

/* Whether the aggregates are whole is known only behind them, so they are gone through twice. */
static int take_chunk(struct mr_watch *w, const struct mr_mrt_view *v, struct mr_error *err)
{
    const struct mr_trace_chunk *c = &w->t->chunk[w->t->chunks - 1];
    uint32_t process = c->process;
    struct block_sums s = {.w = w, .process = process};
    const struct mr_mrt_visitor functions = {.function = visit_function}, files = {.file = visit_file};
    int64_t shift = w->t->process[process].real_offset;
    int covers = mr_mrt_aggregates(v, &functions, &s, err);
    bool calls = covers < 0 || !(covers & MR_COVERS_FILES);
    if (!calls)
        (void)mr_mrt_aggregates(v, &files, &s, err); /* was whole a moment ago */
    w->first_ns = MR_MIN(w->first_ns ? w->first_ns : UINT64_MAX, v->head.first_ns + (uint64_t)shift);
    w->last_ns = MR_MAX(w->last_ns, v->head.last_ns + (uint64_t)shift);
    w->events += v->head.count;
    if (!calls && !s.spans)
        return 0;
    int rc = mr_trace_read(w->t, w->t->chunks - 1,
                           MR_WANT_TIME | MR_WANT_CALL | MR_WANT_FILE | MR_WANT_ARGS | (calls ? MR_WANT_RESULT : 0),
                           &w->batch, err);
    if (!rc)
        take_events(w, process, calls);
    return rc == MR_E_CORRUPT || rc == MR_E_FORMAT ? 0 : rc; /* a damaged block costs only itself */
}

/* Names and descriptions are kept: their bytes must stay. */
static int keep(struct mr_watch *w, struct mr_mrt_view *v, struct mr_error *err)
{
    uint8_t *copy = mr_arena_alloc(&w->t->arena, v->head.payload_bytes + 1u);
    if (!copy)
        return mr_error_set(err, -ENOMEM, "cannot watch '%s'", w->path);
    memcpy(copy, v->payload, v->head.payload_bytes);
    v->payload = copy;
    return 0;
}

int mr_watch_block(void *watch, const struct mr_mrt_view *v, struct mr_error *err)
{
    struct mr_watch *w = watch;
    struct mr_mrt_view mine = *v;
    size_t had = w->process_cap;
    w->t->chunks = 0;
    int rc = v->head.type == MR_MRT_EVENTS ? 0 : keep(w, &mine, err);
    rc = rc ? rc : mr_trace_add_block(w->t, &mine, err);
    if (rc == MR_E_CORRUPT || rc == MR_E_FORMAT)
        return 0;
    if (!rc && mr_vec_reserve(&w->process, &w->process_cap, w->t->processes, sizeof(*w->process)) < 0)
        rc = mr_error_set(err, -ENOMEM, "cannot watch '%s'", w->path);
    for (size_t i = had; i < w->process_cap && !rc; i++)
        w->process[i] = (struct watch_process){.row = NO_ROW};
    if (!rc && w->t->chunks) {
        rc = take_chunk(w, v, err);
        mr_watch_turn(w);
    }
    return rc;
}
