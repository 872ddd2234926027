/* The one event record. Loader, trainer, checkpoint, store shims, simulator and the preload tracer all emit it, so one
 * analysis serves a real run, a traced program and a simulated one. */
#ifndef MR_EVENT_EVENT_H
#define MR_EVENT_EVENT_H

#include <stdint.h>

enum mr_event_kind { MR_EV_OPEN = 1, MR_EV_CLOSE, MR_EV_READ, MR_EV_WRITE, MR_EV_FSYNC, MR_EV_STAT, MR_EV_UNLINK, MR_EV_RENAME, MR_EV_LIST, MR_EV_MKDIR };

struct mr_event {
    uint64_t start_ns;  /* monotonic */
    uint64_t dur_ns;
    uint64_t offset;    /* reads and writes */
    int64_t result;     /* bytes moved, or negative errno */
    uint32_t path_id;   /* from the sink's intern(), 0 = none */
    uint16_t kind;      /* enum mr_event_kind */
    uint16_t flags;
    uint32_t tid;
    uint32_t rank;
};

/* Where events go. emit must be callable from any thread. */
struct mr_event_sink {
    uint32_t (*intern)(struct mr_event_sink *s, const char *path);
    void (*emit)(struct mr_event_sink *s, const struct mr_event *e);
};

#endif
