/* The trace shim: tells what happened below it, one record per call, to the program's event sink and/or a .mrt file,
 * which `millrace report` and `millrace export` read.
 *
 * Stores of one process that name the same file (training, evaluation and checkpoints) share it: the first begins it
 * anew, the last one closed completes it.
 *
 * Hot path: no allocation and, while the thread's buffer has room, no system call and no lock.
 * Invariant: `files_lock` guards the list of files; it is a leaf. Paths are interned when an object is opened, and per
 * call only for calls that have no object. */
#include "base/common.h"
#include "base/log.h"
#include "event/event.h"
#include "event/mrt_sink.h"
#include "store/store_internal.h"
#include "store/store_shim.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct trace_options {
    const char *file;
};

#define ROW(key, field, type, def, ...) MR_OPTION(trace_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option trace_rows[] = {
    ROW("file", file, STRING, "", .flags = MR_OPTF_WRITES,
        .doc = "Write every call to this trace; empty = only to the program's own events.",
        .example = "trace(file=calls.mrt):posix"),
    MR_OPTION_END,
};

/* A trace that stores of this process write. */
struct trace_file {
    char *path;
    struct mr_mrt_sink *sink;
    unsigned users;
    struct trace_file *next;
};

struct trace_store {
    struct mr_shim shim;
    struct mr_event_sink *sink; /* the program's, or NULL */
    struct trace_file *file;    /* or NULL */
};

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct trace_file *files;

/* Event kinds by call; 0 = not an event of its own. */
static const uint16_t kinds[] = {
    [MR_SHIM_OPEN] = MR_EV_OPEN,       [MR_SHIM_CLOSE] = MR_EV_CLOSE,     [MR_SHIM_READ] = MR_EV_READ,
    [MR_SHIM_READ_PATH] = MR_EV_READ,  [MR_SHIM_WRITE] = MR_EV_WRITE,     [MR_SHIM_FSYNC] = MR_EV_FSYNC,
    [MR_SHIM_ALLOCATE] = MR_EV_RESIZE, [MR_SHIM_TRUNCATE] = MR_EV_RESIZE, [MR_SHIM_STAT] = MR_EV_STAT,
    [MR_SHIM_LIST] = MR_EV_LIST,       [MR_SHIM_MKDIR] = MR_EV_MKDIR,     [MR_SHIM_UNLINK] = MR_EV_UNLINK,
    [MR_SHIM_RENAME] = MR_EV_RENAME,   [MR_SHIM_SYNC_DIR] = MR_EV_FSYNC,
};

static int trace_before(struct mr_shim *shim, struct mr_shim_call *c, struct mr_error *err)
{
    (void)err;
    struct trace_store *t = (struct trace_store *)shim;
    struct mr_event_sink *file = t->file ? mr_mrt_sink_get(t->file->sink) : NULL, *sink = t->sink ? t->sink : file;
    if (sink && !c->tag)
        c->tag = sink->intern(sink, c->path);
    return 0;
}

static uint32_t current_tid(void)
{
    static _Thread_local uint32_t tid;
    if (!tid)
        tid = (uint32_t)gettid();
    return tid;
}

static void trace_after(struct mr_shim *shim, struct mr_shim_call *c)
{
    struct trace_store *t = (struct trace_store *)shim;
    struct mr_event_sink *file = t->file ? mr_mrt_sink_get(t->file->sink) : NULL;
    if (!kinds[c->kind] || (!t->sink && !file))
        return;
    struct mr_event e = {
        .start_ns = c->start_ns,
        .dur_ns = mr_clock_now_ns(shim->clock) - c->start_ns,
        .offset = c->offset,
        .result = c->result,
        .path_id = c->tag,
        .kind = kinds[c->kind],
        .tid = current_tid(),
    };
    if (t->sink)
        t->sink->emit(t->sink, &e);
    if (!file)
        return;
    if (t->sink) /* the tag is the other sink's */
        e.path_id = file->intern(file, c->path);
    file->emit(file, &e);
}

/* ---- files ---- */

static struct trace_file *find_file(const char *path)
{
    struct trace_file *f = files;
    while (f && strcmp(f->path, path) != 0)
        f = f->next;
    return f;
}

static int add_file(const char *path, struct trace_file **out, struct mr_error *err)
{
    struct trace_file *f = calloc(1, sizeof(*f));
    if (!f || !(f->path = strdup(path))) {
        free(f);
        return mr_error_set(err, -ENOMEM, "cannot write trace file '%s'", path);
    }
    int rc = mr_mrt_sink_open(path, -1, -1, &f->sink, err);
    if (rc) {
        free(f->path);
        free(f);
        return rc;
    }
    f->next = files;
    files = f;
    *out = f;
    return 0;
}

static int join_file(struct trace_store *t, const char *path, struct mr_error *err)
{
    if (!*path)
        return 0;
    pthread_mutex_lock(&files_lock);
    struct trace_file *f = find_file(path);
    int rc = f ? 0 : add_file(path, &f, err);
    if (!rc)
        f->users++;
    pthread_mutex_unlock(&files_lock);
    t->file = rc ? NULL : f;
    return rc;
}

static void leave_file(struct trace_file *f)
{
    struct mr_error err;
    if (!f)
        return;
    pthread_mutex_lock(&files_lock);
    bool last = --f->users == 0;
    struct trace_file **at = &files;
    while (last && *at != f)
        at = &(*at)->next;
    if (last)
        *at = f->next;
    pthread_mutex_unlock(&files_lock);
    if (!last)
        return;
    if (mr_mrt_sink_close(f->sink, &err) < 0)
        mr_log(MR_LOG_WARN, "the trace '%s' is incomplete: %s", f->path, err.message);
    free(f->path);
    free(f);
}

static void trace_close(struct mr_store *base)
{
    struct trace_store *t = (struct trace_store *)base;
    mr_store_close(base->lower);
    leave_file(t->file);
    free(t);
}

static int trace_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    const struct trace_options *o = options;
    struct trace_store *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot open store 'trace'");
    int rc = join_file(t, o->file, err);
    if (rc < 0) {
        free(t);
        return rc;
    }
    mr_shim_init(&t->shim, &mr_store_trace_ops, lower, trace_before, trace_after);
    *out = &t->shim.base;
    return 0;
}

int mr_store_trace_set_sink(struct mr_store *s, struct mr_event_sink *sink, struct mr_error *err)
{
    struct trace_store *t = (struct trace_store *)mr_shim_find(s, &mr_store_trace_ops);
    if (!t)
        return mr_error_plain(err, MR_E_USAGE, "the store has no trace shim");
    t->sink = sink;
    return 0;
}

int mr_store_open_with_events(const char *spec, struct mr_event_sink *calls, struct mr_store **out,
                              struct mr_error *err)
{
    struct mr_store *s, *top;
    const struct trace_options none = {.file = ""};
    int rc = mr_store_open(spec && *spec ? spec : "posix", &s, err);
    if (rc || !calls) {
        if (!rc)
            *out = s;
        return rc;
    }
    if (mr_shim_find(s, &mr_store_trace_ops)) {
        *out = s;
        return mr_store_trace_set_sink(s, calls, err);
    }
    rc = trace_open(&none, s, &top, err);
    if (rc) {
        mr_store_close(s);
        return rc;
    }
    ((struct trace_store *)top)->sink = calls;
    *out = top;
    return 0;
}

const struct mr_store_ops mr_store_trace_ops = {
    MR_SHIM_OPS,
    .name = "trace",
    .doc = "Records every call: kind, path, offset, length, result, start, duration, thread.",
    .options = {.section = "trace",
                .doc = "A record of every call",
                .options = trace_rows,
                .struct_bytes = sizeof(struct trace_options)},
    .open = trace_open,
    .close = trace_close,
};
