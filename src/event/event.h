/* The one event record. Loader, trainer, checkpoint, store shims, simulator and the preload tracer all emit it, so one
 * analysis serves a real run, a traced program and a simulated one. `kind` says what an event does, `call`
 * (event/calls.h) which function did it; a producer that has no function of its own leaves call 0. */
#ifndef MR_EVENT_EVENT_H
#define MR_EVENT_EVENT_H

#include <stdint.h>

enum mr_event_kind {
    MR_EV_OPEN = 1,
    MR_EV_CLOSE,
    MR_EV_READ,
    MR_EV_WRITE,
    MR_EV_FSYNC,
    MR_EV_STAT,
    MR_EV_UNLINK,
    MR_EV_RENAME,
    MR_EV_LIST,
    MR_EV_MKDIR,
    MR_EV_SEEK,
    MR_EV_COPY,    /* both a read and a write: sendfile, splice, copy_file_range */
    MR_EV_MAP,     /* mmap, munmap, msync */
    MR_EV_ADVISE,  /* fadvise, madvise, readahead */
    MR_EV_RESIZE,  /* truncate, fallocate */
    MR_EV_HANDLE,  /* dup, fcntl, flock, pipe, fileno */
    MR_EV_LINK,    /* link, symlink, readlink */
    MR_EV_ATTR,    /* chmod, chown, utimes, xattr */
    MR_EV_SUBMIT,  /* asynchronous calls that only hand over work */
    MR_EV_PROCESS, /* fork, exec, exit */
    MR_EV_REGION,  /* an annotated span of the program */
    MR_EV_INSTANT,
    MR_EV_COUNTER,
    MR_EV_METADATA,
    MR_EV_WAIT, /* poll, select, epoll, accept, connect, waitpid: for somebody else, never for storage */
    MR_EV_KINDS
};

struct mr_event {
    uint64_t start_ns; /* monotonic */
    uint64_t dur_ns;
    uint64_t offset;  /* reads and writes */
    int64_t result;   /* bytes moved, or negative errno */
    uint32_t path_id; /* from the sink's intern(), 0 = none; regions: the site */
    uint16_t kind;    /* enum mr_event_kind */
    uint16_t flags;
    uint32_t tid;
    uint32_t rank;
    uint16_t call; /* enum mr_call, 0 = unknown: the kind says enough */
    uint16_t fd;   /* descriptor + 1, 0 = none */
};

/* Where events go. emit must be callable from any thread. */
struct mr_event_sink {
    uint32_t (*intern)(struct mr_event_sink *s, const char *path);
    void (*emit)(struct mr_event_sink *s, const struct mr_event *e);
};

#endif
