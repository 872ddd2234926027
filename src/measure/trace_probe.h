/* At the end of `millrace trace`: a program that waited for storage with one reader has not shown what more readers get.
 * Its own data files are asked for a second, and the answer goes into the trace. */
#ifndef MR_MEASURE_TRACE_PROBE_H
#define MR_MEASURE_TRACE_PROBE_H

#include <stdatomic.h>

/* Nothing is said where there is nothing to ask, or no answer; `events` of the trace: of very many none are looked at. */
void mr_trace_probe(const char *trace, unsigned long long events, const atomic_bool *stop);

#endif
