/* An event sink that writes a .mrt file: how the loader, the store's trace shim, the trainer and the simulator get the
 * same traces as `millrace trace`, and with them `millrace report` and `millrace export`.
 *
 * Programs of our own emit through event/emit.h, which knows the sites; this is for who has others:
 *
 *     struct mr_event_sink *s = mr_mrt_sink_get(sink);
 *     uint32_t file = s->intern(s, "/data/train-0001.npz"), site = mr_mrt_sink_site(sink, "compute", "forward");
 *     s->emit(s, &(struct mr_event){.kind = MR_EV_READ, .start_ns = t, .dur_ns = d, .path_id = file, .result = n});
 *     mr_mrt_sink_emit_args(sink, &(struct mr_event){.kind = MR_EV_REGION, .start_ns = t, .dur_ns = d, .path_id = site},
 *                           &(struct mr_mrt_arg){mr_mrt_sink_key(sink, "step"), 17}, 1);
 *
 * Rules
 *  - path_id of an event comes from intern (files) or mr_mrt_sink_site (kinds REGION and INSTANT) of the same sink; 0
 * is no name. Equal names get equal ids, valid for all ranks.
 *  - result is bytes moved, or a negative errno; reads and writes without an offset have offset UINT64_MAX.
 *  - tid tells apart what can happen at the same time within a rank (trainer, prefetch threads); any number will do.
 * Events of one tid may be emitted in any order; in the order of their ends they take the least space.
 *  - The report counts as compute: regions of the category "compute" or with "compute" in the name; as app-level I/O:
 * regions whose category contains "reader" or "loader" or is "io"; as I/O: all events of the kinds OPEN to ATTR. An
 * argument "step" serves `--steps`.
 *
 * emit, intern, site and key may be called from any thread. intern, site and key take a lock. On the real clock emit
 * takes none: each thread has a buffer of its own (`tid` of the event is not looked at), which it encodes itself when
 * it is full, every 32 k records, or its events are 2 s old. Memory: up to 1 MiB per (rank, tid); simulated: at most about 256 MiB in all. Errors
 * of writing (a full disk) are kept and returned by close; later events, and events for which there is no memory, are
 * counted as lost, in the file as well. */
#ifndef MR_EVENT_MRT_SINK_H
#define MR_EVENT_MRT_SINK_H

#include "event/event.h"

#include <millrace/error.h>
#include <stdbool.h>

struct mr_mrt_sink;

/* Events of this process; rank and world: -1 where there are none. The field `rank` of events is not looked at; times
 * are CLOCK_MONOTONIC. */
int mr_mrt_sink_open(const char *path, int32_t rank, int32_t world, struct mr_mrt_sink **out, struct mr_error *err);

struct mr_mrt_sim {
    uint32_t world;          /* events have rank 0 to world - 1; each becomes a process of its own */
    uint32_t ranks_per_node; /* 0: all on one */
    const char *program;     /* name of the processes and, with a number, of the nodes */
};
/* Events of many ranks on a virtual clock that starts at 0. An event of a rank beyond world is lost, and counted. */
int mr_mrt_sink_open_sim(const char *path, const struct mr_mrt_sim *sim, struct mr_mrt_sink **out,
                         struct mr_error *err);

/* Events of several ranks that are threads of this process, on the real clock. */
int mr_mrt_sink_open_ranks(const char *path, uint32_t world, struct mr_mrt_sink **out, struct mr_error *err);

/* Borrowed; valid until close. */
struct mr_event_sink *mr_mrt_sink_get(struct mr_mrt_sink *s);
/* The id of a region's site, for events of kind MR_EV_REGION and MR_EV_INSTANT. 0 without memory. */
uint32_t mr_mrt_sink_site(struct mr_mrt_sink *s, const char *category, const char *name);
/* The id of an argument's name. 0 without memory. */
uint32_t mr_mrt_sink_key(struct mr_mrt_sink *s, const char *name);

struct mr_mrt_arg {
    uint32_t key;  /* mr_mrt_sink_key */
    int64_t value; /* of a real number: its bits */
    bool is_real;
};
#define MR_MRT_ARGS 32 /* arguments beyond these are left out */
/* An event with arguments. */
void mr_mrt_sink_emit_args(struct mr_mrt_sink *s, const struct mr_event *e, const struct mr_mrt_arg *arg,
                           unsigned args);

/* Writes what is left, and the footer; frees. Accepts NULL. Nobody may be emitting any more. */
int mr_mrt_sink_close(struct mr_mrt_sink *s, struct mr_error *err);
/* The same where a thread was left behind that may still emit (it hangs in storage): what it says then is lost, and the
 * sink's memory stays allocated until the process ends. */
int mr_mrt_sink_abandon(struct mr_mrt_sink *s, struct mr_error *err);

#endif
