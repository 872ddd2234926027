/* MPI's collective calls, and what waits for messages, as spans `barrier` MPI_...: there a rank waits for others. Only
 * those that take long: a rank that waits waits for longer than a call takes. As in wrap_mpi.c every parameter travels in
 * one register, and the profiling name is the real function; what MPI calls inside, and Fortran's own calls of that name,
 * are not seen. */
#include "tracer/wrap_libs.h"

#include <millrace/trace.h>

typedef intptr_t W;

#define WAIT_LEAST 20000u /* stamps: some 10 us */

static void put_wait(struct millrace_site *site, uint64_t t0, uint64_t t1)
{
    if (t1 - t0 >= WAIT_LEAST)
        millrace_trace_span_between(site, t0, t1, NULL, 0);
}

#define WAITS(what, params, args)                                                                                      \
    static struct millrace_site site_##what = {.category = "barrier", .name = "MPI_" #what};                           \
    MR_LIBRARY(int, MPI_##what, PMPI_##what, params, args, put_wait(&site_##what, t0, t1))

WAITS(Barrier, (W c), (c))
WAITS(Bcast, (W b, W n, W t, W k, W c), (b, n, t, k, c))
WAITS(Reduce, (W s, W b, W n, W t, W o, W k, W c), (s, b, n, t, o, k, c))
WAITS(Allreduce, (W s, W b, W n, W t, W o, W c), (s, b, n, t, o, c))
WAITS(Reduce_scatter, (W s, W b, W n, W t, W o, W c), (s, b, n, t, o, c))
WAITS(Reduce_scatter_block, (W s, W b, W n, W t, W o, W c), (s, b, n, t, o, c))
WAITS(Allgather, (W s, W n, W t, W b, W m, W u, W c), (s, n, t, b, m, u, c))
WAITS(Allgatherv, (W s, W n, W t, W b, W m, W d, W u, W c), (s, n, t, b, m, d, u, c))
WAITS(Gather, (W s, W n, W t, W b, W m, W u, W k, W c), (s, n, t, b, m, u, k, c))
WAITS(Gatherv, (W s, W n, W t, W b, W m, W d, W u, W k, W c), (s, n, t, b, m, d, u, k, c))
WAITS(Scatter, (W s, W n, W t, W b, W m, W u, W k, W c), (s, n, t, b, m, u, k, c))
WAITS(Scatterv, (W s, W n, W d, W t, W b, W m, W u, W k, W c), (s, n, d, t, b, m, u, k, c))
WAITS(Alltoall, (W s, W n, W t, W b, W m, W u, W c), (s, n, t, b, m, u, c))
WAITS(Alltoallv, (W s, W n, W d, W t, W b, W m, W e, W u, W c), (s, n, d, t, b, m, e, u, c))
WAITS(Wait, (W k, W s), (k, s))
WAITS(Waitall, (W n, W k, W s), (n, k, s))
WAITS(Recv, (W b, W n, W t, W f, W g, W c, W s), (b, n, t, f, g, c, s))
WAITS(Mprobe, (W f, W g, W c, W m, W s), (f, g, c, m, s))
WAITS(Probe, (W f, W g, W c, W s), (f, g, c, s))
