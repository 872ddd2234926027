/* A data set in memory, as a source of samples (fetch.h): the bytes of each sample's ranges, as they were planned when
 * they were read, one sample behind the other. Decoding and all that follows happen for every use, as with any source.
 *
 * Filled by one thread, in ascending order of samples; afterwards any number of threads may fetch from it. */
#ifndef MR_DATASET_FETCH_MEMORY_H
#define MR_DATASET_FETCH_MEMORY_H

#include "dataset/fetch.h"

struct mr_memory_set;

/* For so many samples; `bytes` is a guess of what they take, memory grows beyond it. Freed as a source. */
int mr_memory_set_create(uint64_t samples, uint64_t bytes, struct mr_memory_set **out, struct mr_error *err);
/* The ranges of the next sample, one behind the other. -ENOMEM. */
int mr_memory_set_add(struct mr_memory_set *m, const void *data, uint64_t bytes, struct mr_error *err);
uint64_t mr_memory_set_bytes(const struct mr_memory_set *m); /* so far */
struct mr_fetch_source *mr_memory_set_source(struct mr_memory_set *m);

#endif
