#ifndef PAIR_COST_H
#define PAIR_COST_H

#include <stdbool.h>

/* Prints median and mean, in ns per call, of a bare call, and of what the floor, tracing and a second bare series add to it. */
int pair_cost(const char *file, const char *floor_library, unsigned workers, bool forks);

#endif
