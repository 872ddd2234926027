/* Perfetto's trace protobuf, written by hand: a dozen fields of a stable schema do not justify a protobuf library.
 *
 * One packet sequence per process, so that string ids can serve as interning ids. Spans of a thread that nest go on the
 * thread's track as begin and end; a span that overlaps another without nesting goes on an extra track, because a track
 * is a stack. Field numbers are those of perfetto/protos/perfetto/trace. */
#include "report/export_perfetto.h"
#include "base/common.h"
#include "base/map.h"
#include "base/vec.h"
#include "base/rng.h"
#include "report/lanes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEQ_CLEARED 1
#define SEQ_NEEDED 2
#define NO_TIME UINT64_MAX

struct buf {
    uint8_t *p;
    size_t n, cap;
    bool failed;
};

static void buf_bytes(struct buf *b, const void *p, size_t n)
{
    if (!n)
        return;
    if (mr_vec_reserve(&b->p, &b->cap, b->n + n, 1) < 0) {
        b->failed = true;
        return;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void buf_varint(struct buf *b, uint64_t v)
{
    uint8_t text[10];
    size_t n = 0;
    do
        text[n++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
    while (v >>= 7);
    buf_bytes(b, text, n);
}

static void put_uint(struct buf *b, unsigned field, uint64_t v)
{
    buf_varint(b, (uint64_t)field << 3);
    buf_varint(b, v);
}

static void put_double(struct buf *b, unsigned field, uint64_t bits)
{
    uint8_t le[8];
    mr_store_le64(le, bits);
    buf_varint(b, (uint64_t)field << 3 | 1);
    buf_bytes(b, le, 8);
}

static void put_data(struct buf *b, unsigned field, const void *p, size_t n)
{
    buf_varint(b, (uint64_t)field << 3 | 2);
    buf_varint(b, n);
    buf_bytes(b, p, n);
}

/* Strings must be UTF-8; other bytes appear as \xXX. */
static void put_string(struct buf *b, unsigned field, const char *text, size_t n)
{
    struct buf s = {0};
    for (size_t i = 0; i < n;) {
        size_t len = mr_utf8_length((const uint8_t *)text + i, n - i);
        if (len) {
            buf_bytes(&s, text + i, len);
            i += len;
        } else {
            static const char digits[] = "0123456789abcdef";
            const char hex[4] = {'\\', 'x', digits[(uint8_t)text[i] >> 4], digits[text[i] & 15]};
            buf_bytes(&s, hex, 4);
            i++;
        }
    }
    put_data(b, field, s.p ? s.p : (const void *)"", s.n);
    b->failed |= s.failed;
    free(s.p);
}

struct writer {
    struct mr_out *o;
    const struct mr_trace *t;
    const struct mr_trace_process *process;
    uint32_t sequence;
    bool fresh;                                                    /* the next packet starts the sequence's state */
    uint8_t *name_known, *text_known, *category_known, *key_known; /* bitmaps by string id + calls */
    struct mr_map counters;                                        /* tracks of counters that the viewer knows */
    struct buf packet, event, interned, sub;
    struct mr_lanes lanes; /* of the thread at hand */
};

static uint64_t track_of(const struct mr_trace_process *p, uint32_t tid, unsigned lane)
{
    uint64_t id = mr_mix64(p->key ^ mr_mix64(((uint64_t)tid << 16 | lane) + 17));
    return id ? id : 1;
}

static void send(struct writer *w)
{
    struct buf head = {0};
    put_data(&head, 1, w->packet.p, w->packet.n);
    mr_out_bytes(w->o, head.p, head.n);
    if (head.failed || w->packet.failed)
        w->o->failed = -ENOMEM;
    free(head.p);
    w->packet.n = 0;
}

static void begin_packet(struct writer *w, uint64_t ts)
{
    w->packet.n = 0;
    if (ts != NO_TIME)
        put_uint(&w->packet, 8, ts);
    put_uint(&w->packet, 10, w->sequence);
    put_uint(&w->packet, 13, w->fresh ? SEQ_CLEARED | SEQ_NEEDED : SEQ_NEEDED);
    w->fresh = false;
}

static void describe_process(struct writer *w)
{
    const struct mr_trace_process *p = w->process;
    const char *slash = p->exe.len ? memrchr(p->exe.text, '/', p->exe.len) : NULL;
    struct buf inner = {0}, d = {0};
    put_uint(&inner, 1, p->pid);
    for (size_t i = 0; i < p->cmdline.len;) {
        size_t n = strnlen(p->cmdline.text + i, p->cmdline.len - i);
        put_string(&inner, 2, p->cmdline.text + i, n);
        i += n + 1;
    }
    if (slash)
        put_string(&inner, 6, slash + 1, (size_t)(p->exe.text + p->exe.len - slash - 1));
    put_uint(&d, 1, mr_mix64(p->key) | 1);
    put_data(&d, 3, inner.p, inner.n);
    begin_packet(w, NO_TIME);
    put_data(&w->packet, 60, d.p, d.n);
    send(w);
    free(inner.p);
    free(d.p);
}

static void describe_thread(struct writer *w, uint32_t tid, unsigned lane)
{
    struct buf inner = {0}, d = {0};
    put_uint(&d, 1, track_of(w->process, tid, lane));
    if (lane) {
        put_string(&d, 2, "overlapping", 11);
        put_uint(&d, 5, track_of(w->process, tid, 0));
    } else {
        put_uint(&inner, 1, w->process->pid);
        put_uint(&inner, 2, tid);
        put_data(&d, 4, inner.p, inner.n);
        put_uint(&d, 5, mr_mix64(w->process->key) | 1);
    }
    begin_packet(w, NO_TIME);
    put_data(&w->packet, 60, d.p, d.n);
    send(w);
    free(inner.p);
    free(d.p);
}

/* Interned texts: field 1 categories, 2 names, 3 argument names, 29 argument values. */
static uint64_t intern(struct writer *w, uint8_t *known, unsigned field, uint64_t id, const char *text, size_t n)
{
    if (!(known[id >> 3] & 1u << (id & 7))) {
        known[id >> 3] |= (uint8_t)(1u << (id & 7));
        w->sub.n = 0;
        put_uint(&w->sub, 1, id + 1);
        if (field == 29)
            put_data(&w->sub, 2, text, n);
        else
            put_string(&w->sub, 2, text, n);
        put_data(&w->interned, field, w->sub.p, w->sub.n);
    }
    return id + 1;
}

/* Argument names of our own take the ids below MR_FIXED_KEYS. */
enum { KEY_FILE, KEY_FILE2, KEY_OFFSET, KEY_RESULT, KEY_COUNT, KEY_FD, FIXED_KEYS };
static const char *const fixed_keys[FIXED_KEYS] = {"file", "file2", "offset", "result", "requested_bytes", "fd"};

static void annotate(struct writer *w, uint64_t key, unsigned field, uint64_t value)
{
    struct buf a = {0};
    put_uint(&a, 1, key);
    if (field == 5)
        put_double(&a, 5, value);
    else
        put_uint(&a, field, value);
    put_data(&w->event, 4, a.p, a.n);
    w->event.failed |= a.failed;
    free(a.p);
}

static void annotate_fixed(struct writer *w, unsigned key, unsigned field, uint64_t value)
{
    annotate(w, intern(w, w->key_known, 3, key, fixed_keys[key], strlen(fixed_keys[key])), field, value);
}

static void annotate_text(struct writer *w, unsigned fixed, uint32_t key, uint32_t id)
{
    const struct mr_trace_string *s = mr_trace_string(w->process, id), *k = mr_trace_string(w->process, key);
    uint64_t name = key ? intern(w, w->key_known, 3, FIXED_KEYS + (uint64_t)key, k->text, k->len)
                        : intern(w, w->key_known, 3, fixed, fixed_keys[fixed], strlen(fixed_keys[fixed]));
    uint64_t value = intern(w, w->text_known, 29, id < w->process->strings ? id : 0, s->text, s->len);
    annotate(w, name, 17, value);
}

static void put_arguments(struct writer *w, const struct mr_event_batch *b, uint32_t i, uint32_t arg, uint32_t arg_end)
{
    const struct mr_columns *c = &b->c;
    if (mr_call_get(c->call[i])->layer != MR_LAYER_APP) {
        if (c->file[i])
            annotate_text(w, KEY_FILE, 0, c->file[i]);
        if (c->offset[i] != MR_NO_OFFSET)
            annotate_fixed(w, KEY_OFFSET, 4, c->offset[i]);
        if (c->result[i] != MR_NO_RESULT)
            annotate_fixed(w, KEY_RESULT, 4, (uint64_t)c->result[i]);
        if (c->fd[i])
            annotate_fixed(w, KEY_FD, 4, c->fd[i] - 1u);
    }
    for (uint32_t a = arg; a < arg_end; a++) {
        const struct mr_trace_string *k = mr_trace_string(w->process, c->arg_key[a]);
        uint32_t key = c->arg_key[a] < w->process->strings ? c->arg_key[a] : 0;
        uint8_t type = c->arg_type[a];
        if (type == MR_MORE_COUNT)
            annotate_fixed(w, KEY_COUNT, 3, c->arg_value[a]);
        else if (type == MR_MORE_FILE2)
            annotate_text(w, KEY_FILE2, 0, (uint32_t)c->arg_value[a]);
        else if (type == MR_MORE_TEXT && key)
            annotate_text(w, 0, key, (uint32_t)c->arg_value[a]);
        else if (key)
            annotate(w, intern(w, w->key_known, 3, FIXED_KEYS + (uint64_t)key, k->text, k->len),
                     type == MR_MORE_INT    ? 4
                     : type == MR_MORE_UINT ? 3
                                            : 5,
                     c->arg_value[a]);
    }
}

/* A packet with one track event: type 1 begin, 2 end, 3 instant, 4 counter. */
static void put_event(struct writer *w, const struct mr_event_batch *b, uint32_t i, uint32_t arg, uint32_t arg_end,
                      unsigned type, uint64_t ts, unsigned lane)
{
    const struct mr_columns *c = &b->c;
    unsigned call = c->call[i];
    bool site = mr_call_get(call)->layer == MR_LAYER_APP && c->file[i] && c->file[i] < w->process->strings;
    uint64_t id = site ? MR_CALL_COUNT + (uint64_t)c->file[i] : call;
    w->event.n = w->interned.n = 0;
    put_uint(&w->event, 9, type);
    put_uint(&w->event, 11, track_of(w->process, b->tid, lane));
    if (type != 2) {
        struct mr_trace_string category, name;
        mr_trace_label(w->process, call, c->file[i], &category, &name);
        put_uint(&w->event, 3, intern(w, w->category_known, 1, id, category.text, category.len));
        put_uint(&w->event, 10, intern(w, w->name_known, 2, id, name.text, name.len));
        put_arguments(w, b, i, arg, arg_end);
    }
    begin_packet(w, ts);
    if (w->interned.n)
        put_data(&w->packet, 12, w->interned.p, w->interned.n);
    put_data(&w->packet, 11, w->event.p, w->event.n);
    send(w);
}

/* Notes a counter's track. True if it is new. */
static bool counter_is_new(struct writer *w, uint64_t track)
{
    uint64_t *known = mr_map_put(&w->counters, track);
    if (!known)
        w->o->failed = -ENOMEM;
    return known && !(*known)++;
}

static void describe_counter(struct writer *w, uint64_t track, const struct mr_trace_string *name,
                             const struct mr_trace_string *key)
{
    struct buf d = {0}, text = {0};
    buf_bytes(&text, name->text, name->len);
    if (key->len != 5 || memcmp(key->text, "value", 5) != 0) { /* one of several values, which have names */
        buf_bytes(&text, " ", 1);
        buf_bytes(&text, key->text, key->len);
    }
    put_uint(&d, 1, track);
    put_string(&d, 2, (const char *)text.p, text.n);
    put_uint(&d, 5, mr_mix64(w->process->key) | 1);
    put_data(&d, 8, "", 0);
    begin_packet(w, NO_TIME);
    put_data(&w->packet, 60, d.p, d.n);
    w->packet.failed |= d.failed || text.failed;
    send(w);
    free(d.p);
    free(text.p);
}

/* Each value of a counter has a track of its own, under the process. False if there is none that is a number. */
static bool put_counter(struct writer *w, const struct mr_event_batch *b, uint32_t i, uint32_t arg, uint32_t arg_end)
{
    const struct mr_columns *c = &b->c;
    uint32_t id = c->file[i] < w->process->strings ? c->file[i] : 0;
    struct mr_trace_string category, name;
    bool any = false;
    mr_trace_label(w->process, c->call[i], id, &category, &name);
    for (uint32_t a = arg; a < arg_end; a++) {
        double value = c->arg_type[a] == MR_MORE_UINT ? (double)c->arg_value[a] : (double)(int64_t)c->arg_value[a];
        uint64_t bits = c->arg_value[a],
                 track = mr_mix64(w->process->key ^ mr_mix64(((uint64_t)id << 32 | c->arg_key[a]) + 0xc0)) | 1;
        if (c->arg_type[a] > MR_MORE_DOUBLE)
            continue;
        if (c->arg_type[a] != MR_MORE_DOUBLE)
            memcpy(&bits, &value, 8);
        if (counter_is_new(w, track))
            describe_counter(w, track, &name, mr_trace_string(w->process, c->arg_key[a]));
        w->event.n = 0;
        put_uint(&w->event, 9, 4);
        put_uint(&w->event, 11, track);
        put_double(&w->event, 44, bits);
        begin_packet(w, c->start_ns[i]);
        put_data(&w->packet, 11, w->event.p, w->event.n);
        send(w);
        any = true;
    }
    return any;
}

struct order {
    uint64_t start, end;
    uint32_t i;
};

static int outer_first(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    return mr_outer_first(x->start, x->end, x->i, y->start, y->end, y->i);
}

/* The open spans of a lane, linked from its top; `described` once the viewer knows it. */
struct lane {
    uint32_t top;
    bool described;
};

#define NOTHING UINT32_MAX

static void close_until(struct writer *w, const struct mr_event_batch *b, struct lane *l, const uint32_t *below,
                        unsigned lane, uint64_t ts)
{
    while (l->top != NOTHING && b->c.end_ns[l->top] <= ts) {
        put_event(w, b, l->top, 0, 0, 2, b->c.end_ns[l->top], lane);
        l->top = below[l->top];
    }
}

static void put_span(struct writer *w, const struct mr_event_batch *b, uint32_t i, const uint32_t *first_arg,
                     struct lane *lane, uint32_t *below)
{
    unsigned at = mr_lane_of(&w->lanes, i);
    struct lane *l = &lane[at];
    close_until(w, b, l, below, at, b->c.start_ns[i]);
    if (at && !l->described)
        describe_thread(w, b->tid, at);
    l->described = true;
    put_event(w, b, i, first_arg[i], first_arg[i + 1], 1, b->c.start_ns[i], at);
    below[i] = l->top;
    l->top = i;
}

static int export_chunk(struct writer *w, const struct mr_event_batch *b)
{
    uint32_t n = b->count;
    struct order *o = malloc((n + 1) * sizeof(*o));
    uint32_t *first_arg = malloc((n + 2) * sizeof(*first_arg)), *below = calloc(n + (size_t)1, sizeof(*below));
    struct lane *lane = calloc(w->lanes.count + 1, sizeof(*lane));
    int rc = o && first_arg && below && lane ? 0 : -ENOMEM;
    for (uint32_t i = 0, a = 0; i < n && rc == 0; i++) {
        o[i] = (struct order){b->c.start_ns[i], b->c.end_ns[i], i};
        while (a < b->args && b->c.arg_event[a] < i)
            a++;
        first_arg[i] = a;
    }
    if (rc == 0) {
        first_arg[n] = b->args;
        qsort(o, n, sizeof(*o), outer_first);
    }
    for (unsigned k = 0; k < w->lanes.count && rc == 0; k++)
        lane[k].top = NOTHING;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = o[k].i;
        if (mr_is_span(b->c.call[i]))
            put_span(w, b, i, first_arg, lane, below);
        else if (b->c.call[i] != MR_CALL_counter || !put_counter(w, b, i, first_arg[i], first_arg[i + 1]))
            put_event(w, b, i, first_arg[i], first_arg[i + 1], 3, o[k].start, 0);
    }
    for (unsigned k = 0; k < w->lanes.count && rc == 0; k++)
        close_until(w, b, &lane[k], below, k, UINT64_MAX);
    free(lane);
    free(below);
    free(o);
    free(first_arg);
    return rc;
}

static int start_process(struct writer *w, uint32_t index)
{
    size_t bytes = ((size_t)w->t->process[index].strings + MR_CALL_COUNT + FIXED_KEYS + 64) / 8 + 1;
    free(w->name_known);
    w->process = &w->t->process[index];
    w->sequence = index + 1;
    w->fresh = true;
    w->name_known = calloc(4, bytes);
    if (!w->name_known)
        return -ENOMEM;
    w->text_known = w->name_known + bytes;
    w->category_known = w->text_known + bytes;
    w->key_known = w->category_known + bytes;
    mr_map_clear(&w->counters);
    describe_process(w);
    return 0;
}

int mr_export_perfetto(const struct mr_trace *t, struct mr_out *o, struct mr_error *err)
{
    struct writer w = {.o = o, .t = t};
    struct mr_event_batch b = {0};
    int rc = 0;
    for (size_t c = 0; c < t->chunks && rc == 0; c++) {
        bool new_process = !c || t->chunk[c].process != t->chunk[c - 1].process;
        if (new_process)
            rc = start_process(&w, t->chunk[c].process);
        if (rc == 0 && (new_process || t->chunk[c].tid != t->chunk[c - 1].tid))
            describe_thread(&w, t->chunk[c].tid, 0);
        if (rc < 0) {
            rc = mr_error_set(err, rc, "cannot export");
            break;
        }
        bool fresh;
        rc = mr_lanes_enter(&w.lanes, t, c, &fresh, err);
        rc = rc ? rc : mr_trace_read(t, c, MR_WANT_ALL, &b, err);
        if (rc == 0 && export_chunk(&w, &b) < 0)
            rc = mr_error_set(err, -ENOMEM, "cannot export");
    }
    mr_event_batch_done(&b);
    mr_lanes_done(&w.lanes);
    free(w.name_known);
    mr_map_done(&w.counters);
    free(w.packet.p);
    free(w.event.p);
    free(w.interned.p);
    free(w.sub.p);
    return rc;
}
