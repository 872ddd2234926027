/* The collector: drains the rings of traced processes into one .mrt file. `millrace trace` runs it beside the program;
 * `millrace recover` runs it once over what was left. One thread; the traced processes never wait for it. */
#ifndef MR_EVENT_COLLECT_H
#define MR_EVENT_COLLECT_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>

struct mr_collector;

struct mr_collect_stats {
    uint64_t events, lost, processes, bytes, unnamed; /* unnamed: names that did not fit the table */
    uint32_t running, killed;                         /* processes that still run; that ended without exit */
    bool dropped;                                     /* older events went, for the limit on the size */
};

/* `spool` must exist. With `live`, writes the session page so that programs leave draining to us. `max_bytes` (0: none)
 * keeps about that much of the newest events. */
int mr_collector_open(const char *spool, const char *out, bool live, bool resume, uint64_t max_bytes,
                      struct mr_collector **c, struct mr_error *err);
/* The command line of the program that is being run, NULL at its end, for the start block. Before the first pass. */
void mr_collector_program(struct mr_collector *c, char *const *argv);
/* One pass over new processes, rings that are full enough, ended threads and processes. *busy is set if there was
 * anything to drain. A program fills a ring in some 100 ms at the fastest; passes should be less than 50 ms apart. */
int mr_collector_poll(struct mr_collector *c, bool *busy, struct mr_error *err);
/* How many processes that were seen are still alive. */
unsigned mr_collector_running(struct mr_collector *c);
/* Says that processes without a ring so far may still make one: the spool then stays. */
void mr_collector_expect(struct mr_collector *c, unsigned processes);
/* Drains all that is left, joins what processes wrote themselves, writes the footer, removes the spool if nobody uses
 * it any more, frees. */
int mr_collector_close(struct mr_collector *c, struct mr_collect_stats *stats, struct mr_error *err);

#endif
