/* How quick our own loader is with the pictures of a traced program, on this machine: for the advice to use it. */
#ifndef MR_MEASURE_MEASURE_LOADER_H
#define MR_MEASURE_MEASURE_LOADER_H

#include "explain/explain.h"

#include <stdatomic.h>

/* Decodes pictures that the trace names with as many threads as a rank has CPUs, for two seconds, as RandomResizedCrop to
 * 224 pixels does it, and sets facts.our_sample_s. Too few pictures that are still there set nothing. A temporary folder
 * holds links to them and nothing else. */
int mr_measure_loader(struct mr_explanation *x, const atomic_bool *stop, struct mr_error *err);

#endif
