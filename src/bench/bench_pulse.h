/* The pulse of the ranks: says which one is silent, and ends a job that would wait for it for ever. Local ranks and
 * those that a launcher started on the same host; on other hosts the ranks there do the same.
 *
 * Every rank has a thread that counts up its part of the board four times a second, whatever the training does: a long
 * step, a checkpoint or storage that hangs is no silence, a process that was stopped, or a machine that froze it, is.
 * Ranks that do not share the board are looked up in /proc, where a stopped process can be seen. Time counts only while
 * the observer itself runs, so that a job that was stopped and continued as a whole has no silent rank.
 *
 * The lowest rank that is not silent itself warns after 10 s (or half of the time-out). When the time-out is over, each
 * rank takes the silent one for lost (mr_comm_lose). */
#ifndef MR_BENCH_PULSE_H
#define MR_BENCH_PULSE_H

#include "bench/trainer.h"

struct mr_pulse;

/* Collective. *out is NULL where there is nobody else to look at, or `timeout_ns` is 0. */
int mr_pulse_start(struct mr_comm *comm, struct mr_bench_board *board, uint64_t timeout_ns, struct mr_pulse **out,
                   struct mr_error *err);
/* This rank is through: the others do not miss it. Accepts NULL. */
void mr_pulse_stop(struct mr_pulse *p);

#endif
