/* MPI-IO as the source of a pattern's bytes. The readers open a single shared file together and read with collective
 * calls, of which every reader makes equally many (the largest number that one needs; the others read nothing); several
 * files are opened by each reader alone. MPI-IO bypasses the storage stack, so only a bare "posix" is replaced by it. */
#ifndef MR_BENCH_FEED_MPI_H
#define MR_BENCH_FEED_MPI_H

#include "bench/bench_feed.h"

struct feed_mpi;

/* True where the files of a shared pattern are read through it. */
bool mr_feed_mpi_wanted(const struct mr_bench_params *p);
/* Collective. */
int mr_feed_mpi_open(const struct mr_bench_params *p, uint32_t readers, struct feed_mpi **out, struct mr_error *err);
struct mr_pattern_source *mr_feed_mpi_source(struct feed_mpi *m);
/* Before a batch, collective: agrees on the calls that it takes; the feeds are those of the ranks this one reads for. */
int mr_feed_mpi_agree(struct feed_mpi *m, struct feed *const *feed, uint32_t n, struct mr_error *err);
/* After it: makes the calls that are left. */
int mr_feed_mpi_make_up(struct feed_mpi *m, struct mr_error *err);
void mr_feed_mpi_detach(struct feed_mpi *m); /* closes the file, in the thread of the collectives; accepts NULL */
void mr_feed_mpi_close(struct feed_mpi *m);  /* after detach; accepts NULL */

#endif
