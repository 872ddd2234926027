/* The trace shim: tells what happened below it, one record per call, to an event sink and/or a text file.
 *
 * The file is tab-separated with a header line: kind, path, offset, length, result, start_ns, dur_ns, tid. Tabs, line
 * ends and backslashes in a path are written \t \n \\. Lines are collected in one buffer and written when it is full
 * and at close; a line is never cut by a full buffer. Stores of one process that name the same file (training,
 * evaluation and checkpoints) share it: the first begins it anew, and all append.
 *
 * Hot path: no allocation and, while the buffer has room, no system call; one short lock.
 * Invariant: `lock` guards the buffer and the file; it is a leaf, as is `files_lock`, which guards the list of stores
 * with a file. Paths are interned when an object is opened, and per call only for calls that have no object. */
#include "base/common.h"
#include "base/log.h"
#include "event/event.h"
#include "store/store_internal.h"
#include "store/store_shim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)256 << 10)
#define LINE_MAX_BYTES ((size_t)2 * PATH_MAX + 256)

struct trace_options {
    const char *file;
};

#define ROW(key, field, type, def, ...) MR_OPTION(trace_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option trace_rows[] = {
    ROW("file", file, STRING, "",
        .doc = "Write one tab-separated line per call to this file; empty = only to the program's event sink.",
        .example = "trace(file=calls.tsv):posix"),
    MR_OPTION_END,
};

struct trace_store {
    struct mr_shim shim;
    struct mr_event_sink *sink;
    uint32_t rank; /* of the events */
    int fd;        /* -1 = no file */
    pthread_mutex_t lock;
    size_t used;
    int failed; /* the first write error; reported at close through the log */
    char *buffer;
    dev_t device; /* of the file */
    ino_t inode;
    struct trace_store *next_file;
};

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct trace_store *files;

static const struct {
    uint16_t event; /* 0 = not an event of its own */
    const char *name;
} kinds[] = {
    [MR_CALL_OPEN] = {MR_EV_OPEN, "open"},       [MR_CALL_CLOSE] = {MR_EV_CLOSE, "close"},
    [MR_CALL_READ] = {MR_EV_READ, "read"},       [MR_CALL_READ_PATH] = {MR_EV_READ, "read_path"},
    [MR_CALL_WRITE] = {MR_EV_WRITE, "write"},    [MR_CALL_FSYNC] = {MR_EV_FSYNC, "fsync"},
    [MR_CALL_ALLOCATE] = {0, "allocate"},        [MR_CALL_TRUNCATE] = {0, "truncate"},
    [MR_CALL_STAT] = {MR_EV_STAT, "stat"},       [MR_CALL_LIST] = {MR_EV_LIST, "list"},
    [MR_CALL_MKDIR] = {MR_EV_MKDIR, "mkdir"},    [MR_CALL_UNLINK] = {MR_EV_UNLINK, "unlink"},
    [MR_CALL_RENAME] = {MR_EV_RENAME, "rename"}, [MR_CALL_SYNC_DIR] = {MR_EV_FSYNC, "sync_dir"},
};

static void flush(struct trace_store *t)
{
    size_t done = 0;
    while (done < t->used && !t->failed) {
        ssize_t r = write(t->fd, t->buffer + done, t->used - done);
        if (r < 0 && errno != EINTR)
            t->failed = errno;
        else if (r > 0)
            done += (size_t)r;
    }
    t->used = 0;
}

static size_t put_path(char *out, const char *path)
{
    size_t n = 0;
    for (size_t i = 0; path[i] && i < PATH_MAX; i++) {
        const char *special = strchr("\tt\nn\\\\", path[i]);
        bool escape = path[i] == '\t' || path[i] == '\n' || path[i] == '\\';
        if (escape)
            out[n++] = '\\';
        out[n++] = escape ? special[1] : path[i];
    }
    return n;
}

static void write_line(struct trace_store *t, const struct mr_shim_call *c, uint64_t now, uint32_t tid)
{
    pthread_mutex_lock(&t->lock);
    if (BUFFER_BYTES - t->used < LINE_MAX_BYTES)
        flush(t);
    char *line = t->buffer + t->used;
    size_t n = (size_t)snprintf(line, 32, "%s\t", kinds[c->kind].name);
    n += put_path(line + n, c->path);
    n += (size_t)snprintf(line + n, 200, "\t%llu\t%zu\t%lld\t%llu\t%llu\t%u\n", (unsigned long long)c->offset, c->len,
                          (long long)c->result, (unsigned long long)c->start_ns,
                          (unsigned long long)(now - c->start_ns), tid);
    t->used += n;
    pthread_mutex_unlock(&t->lock);
}

static int trace_before(struct mr_shim *shim, struct mr_shim_call *c, struct mr_error *err)
{
    (void)err;
    struct trace_store *t = (struct trace_store *)shim;
    if (t->sink && !c->tag)
        c->tag = t->sink->intern(t->sink, c->path);
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
    uint64_t now = mr_clock_now_ns(shim->clock);
    uint32_t tid = current_tid();
    if (t->fd >= 0)
        write_line(t, c, now, tid);
    if (!t->sink || !kinds[c->kind].event)
        return;
    const struct mr_event e = {
        .start_ns = c->start_ns,
        .dur_ns = now - c->start_ns,
        .offset = c->offset,
        .result = c->result,
        .path_id = c->tag,
        .kind = kinds[c->kind].event,
        .tid = tid,
        .rank = t->rank,
    };
    t->sink->emit(t->sink, &e);
}

/* The first store of this process with the file begins it anew. */
static int join_file(struct trace_store *t)
{
    struct stat st;
    if (fstat(t->fd, &st) != 0)
        return -errno;
    int rc = 0;
    t->device = st.st_dev;
    t->inode = st.st_ino;
    pthread_mutex_lock(&files_lock);
    const struct trace_store *other = files;
    while (other && (other->device != t->device || other->inode != t->inode))
        other = other->next_file;
    if (!other) {
        if (S_ISREG(st.st_mode) && ftruncate(t->fd, 0) != 0)
            rc = -errno;
        t->used =
            (size_t)snprintf(t->buffer, BUFFER_BYTES, "kind\tpath\toffset\tlength\tresult\tstart_ns\tdur_ns\ttid\n");
        flush(t); /* before the lines of others */
    }
    t->next_file = files;
    files = t;
    pthread_mutex_unlock(&files_lock);
    return rc;
}

static void leave_file(struct trace_store *t)
{
    pthread_mutex_lock(&files_lock);
    for (struct trace_store **at = &files; *at; at = &(*at)->next_file)
        if (*at == t) {
            *at = t->next_file;
            break;
        }
    pthread_mutex_unlock(&files_lock);
}

static void trace_close(struct mr_store *base)
{
    struct trace_store *t = (struct trace_store *)base;
    mr_store_close(base->lower);
    if (t->fd >= 0) {
        flush(t);
        leave_file(t);
        if (close(t->fd) != 0 && !t->failed)
            t->failed = errno;
        if (t->failed)
            mr_log(MR_LOG_WARN, "the trace file is incomplete: %s", strerror(t->failed));
    }
    pthread_mutex_destroy(&t->lock);
    free(t->buffer);
    free(t);
}

static int open_file(struct trace_store *t, const char *path, struct mr_error *err)
{
    if (!*path)
        return 0;
    t->buffer = malloc(BUFFER_BYTES);
    if (!t->buffer)
        return mr_error_set(err, -ENOMEM, "cannot write trace file '%s'", path);
    t->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (t->fd < 0)
        return mr_store_fail_path(err, -errno, "write trace file", path);
    int rc = join_file(t);
    if (!rc)
        return 0;
    leave_file(t);
    close(t->fd);
    return mr_store_fail_path(err, rc, "write trace file", path);
}

static int trace_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    const struct trace_options *o = options;
    struct trace_store *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot open store 'trace'");
    t->fd = -1;
    int rc = open_file(t, o->file, err);
    if (rc < 0) {
        free(t->buffer);
        free(t);
        return rc;
    }
    pthread_mutex_init(&t->lock, NULL);
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

int mr_store_trace_calls(struct mr_store **s, struct mr_event_sink *sink, uint32_t rank, struct mr_error *err)
{
    static const struct trace_options no_file = {.file = ""};
    struct mr_store *top = *s;
    int rc = mr_shim_find(top, &mr_store_trace_ops) ? 0 : trace_open(&no_file, *s, &top, err);
    if (rc)
        return rc;
    struct trace_store *t = (struct trace_store *)mr_shim_find(top, &mr_store_trace_ops);
    t->sink = sink;
    t->rank = rank;
    *s = top;
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
