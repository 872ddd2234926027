/* An event sink that writes a .mrt file: how the loader, the store's trace shim, the trainer and the simulator get the same traces as
 * `millrace trace`. emit and intern may be called from any thread; they take a lock, and every 32 k events of a thread one of them encodes
 * a block. Errors (a full disk) are kept and returned by close; until then later events are counted as lost. */
#ifndef MR_EVENT_MRT_SINK_H
#define MR_EVENT_MRT_SINK_H

#include "event/event.h"

#include <millrace/error.h>

struct mr_mrt_sink;

/* rank and world: -1 where there are none. */
int mr_mrt_sink_open(const char *path, int32_t rank, int32_t world, struct mr_mrt_sink **out, struct mr_error *err);
/* Borrowed; valid until close. */
struct mr_event_sink *mr_mrt_sink_get(struct mr_mrt_sink *s);
/* The id of a region's site, for events of kind MR_EV_REGION. */
uint32_t mr_mrt_sink_site(struct mr_mrt_sink *s, const char *category, const char *name);
/* Writes what is left, and the footer; frees. Accepts NULL. */
int mr_mrt_sink_close(struct mr_mrt_sink *s, struct mr_error *err);

#endif
