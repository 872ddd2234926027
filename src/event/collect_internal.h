/* Inside the collector: collect.c drains rings, collect_join.c takes in the files that processes wrote themselves. The
 * invariants (C1 to C3) are in collect.c. */
#ifndef MR_EVENT_COLLECT_INTERNAL_H
#define MR_EVENT_COLLECT_INTERNAL_H

#include "event/collect.h"
#include "event/mrt_file.h"

struct ring {
    struct mr_ring_header **segment;
    char *name; /* file name of segment 0 without "0.ring" */
    uint64_t key, strings_bytes, events, lost, mono0;
    uint32_t pid, strings, segments;
    uint64_t pid_space; /* that pid belongs to */
    uint64_t heads;     /* records made so far, when last looked */
    uint64_t gone_ns;
    uint64_t exec_ns; /* since when it is in an exec, as far as we saw; 0 it is not */
    bool described, counted, gone, finished;
    bool left;    /* still running at the end */
    bool foreign; /* its pid belongs to another namespace */
};

/* How much is left in the rings. */
enum hurry {
    WAIT,     /* all CPUs are busy */
    IDLE_CPU, /* a CPU has nothing else to do */
    CATCH_UP, /* whole blocks go to the file */
    EVERYTHING,
};

struct mr_collector {
    char *spool, *out;
    struct mr_session *session;
    struct mr_mrt_writer *writer;
    struct ring *ring;
    size_t rings, cap;
    void *workspace;
    uint8_t *buffer;
    char *const *argv; /* of the program that is run; NULL: none is */
    uint64_t max_bytes;
    bool live, closing, tight;       /* tight: memory is given back */
    bool has_events, mounts_written; /* of the file being written */

    unsigned turns;  /* files begun anew */
    uint64_t before; /* events that the collector had written which we go on for */
    enum hurry hurry;
    uint64_t scanned_ns, caught_up_ns, emptied_ns, weighed_ns;
    unsigned ended, ended_before; /* slots of ended threads that wait, in this pass and in the one before */
    uint64_t pid_space;
    long cpus;
    int load; /* /proc/loadavg */
    struct mr_collect_stats stats;
};

/* collect.c. A whole block to the file that is being written. */
int mr_collect_append(struct mr_collector *c, const uint8_t *block, size_t n, struct mr_error *err);
/* Size limit: whether a block of events of n bytes belongs in the next file, and beginning that one. */
bool mr_collect_is_full(const struct mr_collector *c, size_t n);
int mr_collect_turn_over(struct mr_collector *c, struct mr_error *err);
bool mr_collect_process_gone(const struct ring *r);

/* collect_join.c. Appends a .mrt file and removes it; `count`: its events are new ones. */
int mr_collect_join_file(struct mr_collector *c, const char *path, bool count, struct mr_error *err);
/* All files of the spool whose processes do not write to them any more. */
int mr_collect_join_files(struct mr_collector *c, struct mr_error *err);

#endif
