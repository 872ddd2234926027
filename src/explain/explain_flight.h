/* What more reads at a time bring, from the trace itself: bytes per second of the job while k reads of storage were in
 * flight, for every k that occurred. Storage that has one rate for all gives the same with two as with one; storage
 * that has a rate for each gives twice as much. */
#ifndef MR_EXPLAIN_EXPLAIN_FLIGHT_H
#define MR_EXPLAIN_EXPLAIN_FLIGHT_H

#include "base/vec.h"

#include <stdint.h>

struct explain_read {
    uint64_t start, end, bytes;
};

/* Reads of one worker thread of the analysis, in no order: at least its first ones, as many as are looked at together.
 * So the first ones of all do not depend on which worker saw which. */
struct explain_flight {
    MR_VEC(struct explain_read) read;
};
/* Keeps a read; when there are too many, those that began last are left out. */
void mr_explain_flight_add(struct explain_flight *f, uint64_t start, uint64_t end, uint64_t bytes);

struct mr_explain_facts;
/* Joins what `n` workers kept, and sets streams and stream_bytes_per_s, unless they are known already. -ENOMEM. */
int mr_explain_flight_facts(struct explain_flight *const *flight, unsigned n, double ranks, struct mr_explain_facts *f);
/* Mean number in flight while there is one; unchanged where there are none. -ENOMEM. */
int mr_explain_flight_mean(struct explain_flight *const *flight, unsigned n, double *mean);
/* How the time of one grows with the number in flight: the slope of logarithms, and its standard error. Unchanged where
 * there are too few, or always as many at a time. -ENOMEM. */
int mr_explain_flight_slope(struct explain_flight *const *flight, unsigned n, double *slope, double *error);

#endif
