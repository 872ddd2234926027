/* The cost of tracing by turns in one process. */
#ifndef MR_TURNS_COST_H
#define MR_TURNS_COST_H

#include <stdbool.h>

/* Prints, in ns per event, the medians of bare, floor - bare, traced - bare, bare again - bare. `folder` is that of
 * bench_trace prepare. */
int turns_cost(const char *folder, unsigned files, const char *floor_library, unsigned workers, bool forks);

#endif
