/* Clocks of several hosts. Each host's events carry its own idea of real time; NTP keeps those within milliseconds, and
 * a barrier of a training job is shorter than that. All ranks leave a barrier together, so its ends tell how far the
 * clocks are apart:
 *
 *     offset of a host   = median over barriers of (end on this host - end on the first one)
 *     residual           = median of what the single barriers differ from that: how far the offset can be trusted
 *
 * Hosts that share barriers with the first one are moved onto its clock. Without barriers the recorded times stay as
 * they are, and a note says that nobody compared them. */
#ifndef MR_EXPLAIN_CLOCK_ALIGN_H
#define MR_EXPLAIN_CLOCK_ALIGN_H

#include "import/trace_read.h"

/* Of a finished trace, before anybody reads events; traces of one host are left alone. Fills clock_offset_ns and
 * clock_residual_ns of the trace. */
int mr_clock_align(struct mr_trace *t, struct mr_error *err);

#endif
