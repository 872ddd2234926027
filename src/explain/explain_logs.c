/* What the thread that trains reads and writes for itself: logs, histories of metrics, settings. None of it is data, and
 * it belongs to no wait: it has a time class of its own ("logging"). One pass over the calls of that thread, outside of
 * its waits for a loader and its checkpoints, from its first step on.
 *
 *  L1. A file that the thread writes is a log, unless it reads it back more often than it writes it.
 *  L2. A small file with the ending of a settings file that is opened in every second step or more holds settings.
 *  L3. Calls on such files, one after the other with nothing of the loop between them, are one span of logging: what
 *      lies between them formats or parses. So does what lies right before a write or behind a read, at 10 MB/s.
 *  L4. What is written within half a second behind a save into memory (torch.save to a BytesIO, as Lightning does) is
 *      that checkpoint: its span is lengthened.
 *  L5. A sleep of the thread (a handover, a semaphore, a child) that ends when a save of another thread or process of
 *      the rank does, and had it beside it for half of its time or more, waited for that save: checkpoint, no data.
 *  L6. A file into which the thread writes 4 MiB or more each time it opens it, seldom, and that is no text, is a
 *      checkpoint by hand (struct.pack, tofile): from the first of its calls to the last one before the loop goes on. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_MOST (4u << 20) /* of a rank: memory is bounded */
#define JOIN_NS 100000000u    /* L3 */
#define FORMAT_NS 100u        /* L3: per byte */
#define SETTINGS_MOST 65536u  /* L2: bytes per open */
#define WRITTEN_NS 500000000u /* L4 */
#define OPENS_LEAST 3u        /* L2 */
#define SLEPT_LEAST 1000000u  /* L5: ns */
#define ENDED_NS 20000000u    /* L5: from the end of the save to that of the sleep */
#define STATE_LEAST 4194304u  /* L6: bytes per open */

struct log_call {
    uint64_t start, end;
    uint64_t written, read; /* bytes */
    uint32_t file;          /* NO_INDEX: a span of the loop */
};

struct log_use {
    uint64_t opens, reads, read_bytes, writes, written_bytes;
};

struct logs {
    struct explain_job *j;
    const struct explain_rank *r;
    uint32_t lane, span; /* span: cursor of skip_span() */
    uint64_t from, to, skip_from, skip_to, steps;
    struct explain_span *saved; /* L4: the last save into memory, with no span of the loop behind it; NULL: none */
    MR_VEC(struct log_call) call;
    struct log_use *use;        /* by file */
    struct mr_intervals asleep; /* L5: in calls that wait for another thread or a child */
};

/* Spans of the thread in which calls are somebody else's business. */
static bool is_apart(unsigned role)
{
    return role == MR_ROLE_WAIT || role == MR_ROLE_ITER || role == MR_ROLE_END || role == MR_ROLE_SAVE ||
           role == MR_ROLE_RESTORE || role == MR_ROLE_STARTUP || role == MR_ROLE_COMPUTE ||
           role == MR_ROLE_COMPUTE_LOOP || role == MR_ROLE_HANDOVER;
}

static bool is_loop(unsigned role)
{
    return role == MR_ROLE_WAIT || role == MR_ROLE_OPTIMIZER || role == MR_ROLE_BACKWARD || role == MR_ROLE_FORWARD ||
           role == MR_ROLE_COMPUTE || role == MR_ROLE_COMPUTE_LOOP;
}

/* From the first span of the loop to the last, and its steps. False: none. */
static bool find_window(struct logs *l)
{
    l->from = UINT64_MAX;
    for (uint32_t i = l->r->span; i < l->r->span + l->r->spans; i++) {
        const struct explain_span *s = &l->j->span.item[i];
        if (s->lane != l->lane || !is_loop(s->role))
            continue;
        l->from = MR_MIN(l->from, s->start);
        l->to = MR_MAX(l->to, s->end);
        l->steps += s->role == MR_ROLE_OPTIMIZER || s->role == MR_ROLE_WAIT;
    }
    l->steps = MR_MAX(l->steps, (uint64_t)1);
    return l->from < l->to;
}

/* Calls come in the order of their ends, spans in that of their starts: a call inside a span ends before it does. */
static bool lies_apart(struct logs *l, uint64_t start)
{
    uint32_t end = l->r->span + l->r->spans;
    while (l->span < end && l->j->span.item[l->span].start <= start) {
        struct explain_span *s = &l->j->span.item[l->span++];
        if (s->lane != l->lane)
            continue;
        if (s->role == MR_ROLE_SAVE && s->arg[KEY_MEMORY_COPY] == 1)
            l->saved = s;
        else if (is_loop(s->role))
            l->saved = NULL;
        if (is_apart(s->role) && s->end > l->skip_to) {
            l->skip_from = s->start;
            l->skip_to = s->end;
        }
    }
    return start >= l->skip_from && start < l->skip_to;
}

/* L4 */
static bool writes_saved(struct logs *l, unsigned kind, uint64_t start, uint64_t end)
{
    if (!l->saved || (kind != MR_EV_WRITE && kind != MR_EV_FSYNC) || start < l->saved->end ||
        start > l->saved->end + WRITTEN_NS)
        return false;
    l->saved->end = l->skip_to = end;
    l->skip_from = l->saved->start;
    return true;
}

static int note_call(struct logs *l, const struct mr_event_batch *b, uint32_t i, uint32_t file)
{
    const struct explain_job *j = l->j;
    const struct explain_file *f = &j->file.item[file];
    uint64_t start = b->c.start_ns[i], end = b->c.end_ns[i];
    unsigned kind = j->call_kind[b->c.call[i]];
    if (f->code || !mr_fd_class_stores((enum mr_fd_class)f->kind) || start < l->from || lies_apart(l, start) ||
        start > l->to + WRITTEN_NS)
        return 0;
    if (writes_saved(l, kind, start, end)) {
        l->j->file.item[file].saved = true;
        return 0;
    }
    if (start > l->to)
        return 0;
    uint64_t bytes = b->c.result[i] > 0 ? (uint64_t)b->c.result[i] : 0;
    uint64_t written = kind == MR_EV_WRITE ? bytes : 0, read = kind == MR_EV_READ ? bytes : 0;
    struct log_use *u = &l->use[file];
    u->opens += kind == MR_EV_OPEN && b->c.result[i] >= 0 && b->c.call[i] != MR_CALL_fdopen;
    u->reads += read > 0;
    u->read_bytes += read;
    u->writes += written > 0;
    u->written_bytes += written;
    struct log_call *last = l->call.n ? &l->call.item[l->call.n - 1] : NULL;
    if (last && last->file == file && start <= last->end + JOIN_NS / 1000) {
        last->end = MR_MAX(last->end, end);
        last->written += written;
        last->read += read;
        return 0;
    }
    struct log_call *c = l->call.n < CALLS_MOST ? MR_VEC_ADD(&l->call) : NULL;
    if (c)
        *c = (struct log_call){start, end, written, read, file};
    return c || l->call.n == CALLS_MOST ? 0 : -ENOMEM;
}

static int note_sleep(struct logs *l, const struct mr_event_batch *b, uint32_t i)
{
    uint64_t start = b->c.start_ns[i], end = b->c.end_ns[i];
    if (l->j->call_kind[b->c.call[i]] != MR_EV_WAIT || end - start < SLEPT_LEAST || start < l->from ||
        start > l->to + WRITTEN_NS || lies_apart(l, start))
        return 0;
    return mr_intervals_add(&l->asleep, start, end);
}

/* One call of the system. */
static int read_call(struct logs *l, const struct mr_event_batch *b, uint32_t i)
{
    size_t process = l->j->lane[l->lane].process;
    const uint32_t *file_of = l->j->file_of[process];
    uint32_t id = b->c.file[i];
    if (b->c.call[i] <= MR_CALL_metadata || id >= l->j->t->process[process].strings)
        return 0;
    return file_of[id] ? note_call(l, b, i, file_of[id] - 1) : note_sleep(l, b, i);
}

static int read_calls(struct logs *l, struct mr_error *err)
{
    struct explain_job *j = l->j;
    const struct explain_lane *lane = &j->lane[l->lane];
    for (size_t c = lane->chunk; c < lane->chunk + lane->chunks; c++) {
        struct mr_event_batch *b = &j->worker[0].batch;
        if (!j->t->chunk[c].count || j->t->chunk[c].first_ns > l->to + WRITTEN_NS || j->t->chunk[c].last_ns < l->from)
            continue;
        int rc = mr_trace_read(j->t, c, MR_WANT_TIME | MR_WANT_CALL | MR_WANT_FILE | MR_WANT_RESULT, b, err);
        for (uint32_t i = 0; i < b->count && !rc; i++)
            if (read_call(l, b, i))
                rc = mr_error_set(err, -ENOMEM, "cannot explain the trace");
        if (rc)
            return rc;
    }
    return 0;
}

/* Of the endings of texts the first eight are those of settings. */
static bool ends_as(const struct explain_file *f, bool settings)
{
    static const char *const ending[] = {".json", ".yaml", ".yml",   ".toml", ".ini", ".cfg",
                                         ".conf", ".txt",  ".jsonl", ".csv",  ".tsv", ".log"};
    for (unsigned i = 0; i < (settings ? 8 : MR_ARRAY_LEN(ending)); i++) {
        size_t len = strlen(ending[i]);
        if (f->len > len && !memcmp(f->path + f->len - len, ending[i], len))
            return true;
    }
    return false;
}

/* L6 */
static bool is_state(const struct logs *l, uint32_t file)
{
    const struct log_use *u = &l->use[file];
    return u->opens && !u->reads && u->written_bytes / u->opens >= STATE_LEAST && 2 * u->opens < l->steps &&
           !ends_as(&l->j->file.item[file], false);
}

/* L1, L2 */
static bool is_log(const struct logs *l, uint32_t file)
{
    const struct log_use *u = &l->use[file];
    if (u->writes)
        return !l->j->file.item[file].state && (!u->reads || u->opens >= OPENS_LEAST);
    return u->reads && u->opens >= OPENS_LEAST && 2 * u->opens >= l->steps &&
           u->read_bytes / u->opens <= SETTINGS_MOST && ends_as(&l->j->file.item[file], true);
}

static int call_order(const void *a, const void *b)
{
    const struct log_call *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int order_calls(struct logs *l)
{
    for (uint32_t i = l->r->span; i < l->r->span + l->r->spans; i++) {
        const struct explain_span *s = &l->j->span.item[i];
        if (s->lane != l->lane || !is_loop(s->role))
            continue;
        struct log_call *c = MR_VEC_ADD(&l->call);
        if (!c)
            return -ENOMEM;
        *c = (struct log_call){.start = s->start, .end = s->end, .file = NO_INDEX};
    }
    if (l->call.n)
        qsort(l->call.item, l->call.n, sizeof(*l->call.item), call_order);
    return 0;
}

/* L3: the text of a log is made before it is written, that of settings parsed behind the read, in no call. `before`: when
 * what is known of the thread before the call ended. */
static struct mr_interval with_text(const struct logs *l, size_t i, uint64_t before)
{
    const struct log_call *c = &l->call.item[i];
    uint64_t next = i + 1 < l->call.n ? c[1].start : c->end;
    return (struct mr_interval){MR_MAX(MR_MIN(before, c->start), explain_span_ns(c->written * FORMAT_NS, c->start)),
                                MR_MAX(MR_MIN(next, c->end + c->read * FORMAT_NS), c->end)};
}

/* L3, L6. Spans of the loop end what is one piece of logging, or one checkpoint; so do other calls, and pauses, of
 * logging only. */
static int paint_calls(const struct logs *l, bool states, struct mr_intervals *out)
{
    uint64_t before = l->from;
    bool joins = false;
    for (size_t i = 0; i < l->call.n; i++) {
        const struct log_call *c = &l->call.item[i];
        const struct explain_file *f = c->file != NO_INDEX ? &l->j->file.item[c->file] : NULL;
        bool is = f && (states ? f->state : f->log);
        struct mr_interval *last = out->n ? &out->item[out->n - 1] : NULL;
        struct mr_interval whole = is && !states ? with_text(l, i, before) : (struct mr_interval){c->start, c->end};
        before = MR_MAX(before, c->end);
        if (is && joins && last && (states || c->start <= last->end + JOIN_NS)) {
            last->end = MR_MAX(last->end, whole.end);
        } else if (is) {
            if (out->n == out->cap && mr_intervals_grow(out) < 0)
                return -ENOMEM;
            if (out->n)
                whole.start = MR_MAX(whole.start, out->item[out->n - 1].end);
            out->item[out->n++] = whole;
        }
        joins = is || (states && joins && f);
    }
    return 0;
}

/* ---- L5 ---- */

/* Saves of the rank's other threads; parts of one are joined. */
static int list_saves(const struct logs *l, struct mr_intervals *out)
{
    const struct explain_span *before = NULL;
    int rc = 0;
    for (uint32_t i = l->r->span; i < l->r->span + l->r->spans && !rc; i++) {
        const struct explain_span *s = &l->j->span.item[i];
        if (s->lane == l->lane || s->role != MR_ROLE_SAVE)
            continue;
        bool joins = before && before->lane == s->lane && mr_explain_same_save(l->j, before, s);
        rc = mr_intervals_add(out, joins ? before->start : s->start, s->end);
        before = s;
    }
    mr_intervals_normalise(out);
    return rc;
}

static int add_handovers(struct logs *l)
{
    int rc = 0;
    for (uint32_t i = l->r->span; i < l->r->span + l->r->spans && !rc; i++) {
        const struct explain_span *s = &l->j->span.item[i];
        if (s->lane == l->lane && s->role == MR_ROLE_HANDOVER && s->end - s->start >= SLEPT_LEAST &&
            s->start >= l->from)
            rc = mr_intervals_add(&l->asleep, s->start, s->end);
    }
    mr_intervals_normalise(&l->asleep);
    return rc;
}

static bool waits_for_save(const struct mr_interval *sleep, const struct mr_intervals *saves)
{
    uint64_t beside = 0;
    bool ends = false;
    for (size_t i = 0; i < saves->n && saves->item[i].start < sleep->end; i++) {
        const struct mr_interval *s = &saves->item[i];
        beside += explain_span_ns(MR_MAX(s->start, sleep->start), MR_MIN(s->end, sleep->end));
        ends |= s->end > sleep->start && s->end <= sleep->end && sleep->end - s->end <= ENDED_NS;
    }
    return ends && 2 * beside >= sleep->end - sleep->start;
}

static int find_held(struct logs *l, struct mr_intervals *out)
{
    struct mr_intervals saves = {0};
    int rc = list_saves(l, &saves);
    rc = rc || !saves.n ? rc : add_handovers(l);
    for (size_t i = 0; i < l->asleep.n && saves.n && !rc; i++)
        if (waits_for_save(&l->asleep.item[i], &saves))
            rc = mr_intervals_add(out, l->asleep.item[i].start, l->asleep.item[i].end);
    mr_intervals_done(&saves);
    return rc;
}

static int rank_logs(struct explain_job *j, uint32_t rank, struct mr_error *err)
{
    struct explain_rank *r = &j->rank[rank];
    struct logs l = {.j = j, .r = r, .lane = r->consumer != NO_INDEX ? r->consumer : mr_explain_trainer_of(j, r)};
    l.span = r->span;
    if (l.lane == NO_INDEX || !find_window(&l))
        return 0;
    l.use = calloc(j->file.n + 1, sizeof(*l.use));
    int rc = l.use ? read_calls(&l, err) : mr_error_set(err, -ENOMEM, "cannot explain the trace");
    for (uint32_t f = 0; f < j->file.n && !rc; f++) {
        j->file.item[f].state |= is_state(&l, f);
        j->file.item[f].log |= is_log(&l, f);
    }
    if (!rc && (order_calls(&l) || paint_calls(&l, false, &r->log) || paint_calls(&l, true, &r->state) ||
                find_held(&l, &r->held)))
        rc = mr_error_set(err, -ENOMEM, "cannot explain the trace");
    mr_intervals_done(&l.asleep);
    free(l.call.item);
    free(l.use);
    return rc;
}

int mr_explain_find_logs(struct explain_job *j, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t r = 0; r < j->ranks && !rc && !j->run; r++)
        rc = rank_logs(j, r, err);
    return rc;
}
