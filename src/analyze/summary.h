/* The summary of a trace: who ran, what was called, how long, on which files, and how time splits between I/O and
 * compute, by exact interval unions over all threads and processes, and for every rank. Works on any trace mr_trace
 * reads, in parallel.
 *
 * Own traces tell counts, bytes, sizes and times per block; where no filter cuts through a block, only its times are
 * decoded, for the unions. Exact: counts, bytes, sums, minima and maxima, unions; sizes while a function has at most
 * 256 different ones per block and 4096 in all. Otherwise quantiles are those of log-linear histograms, within 1/32
 * (3.2 %). Quantiles between two values are interpolated, as NumPy and pandas do it. */
#ifndef MR_ANALYZE_SUMMARY_H
#define MR_ANALYZE_SUMMARY_H

#include "analyze/timeline.h"
#include "base/histogram.h"
#include "import/trace_read.h"

#include <stdatomic.h>

struct mr_summary_options {
    unsigned threads;           /* 0: all CPUs */
    uint64_t from_ns, to_ns;    /* relative to the trace's first event; to 0 = end */
    int64_t rank;               /* -1 all */
    int64_t step_from, step_to; /* inclusive; step_from -1: no filter */
    const char *path;           /* glob or "" */
    size_t top_files;           /* rows of files to keep, of those with the most bytes; 0 all */
};

/* One function: a call, or a region of the program. */
struct mr_function {
    const char *category, *name; /* NUL-terminated, arena */
    unsigned call;               /* 0 for regions */
    uint64_t count, errors, bytes, dur_ns;
    uint64_t skipped; /* calls that sampling left out: count + skipped were made; 0 where a filter of time, steps or
                         path cuts */
    uint64_t dur_min, dur_25, dur_median, dur_75, dur_99, dur_max; /* ns */
    uint64_t size_min, size_max, sizes;                            /* bytes of calls that moved data */
    double size_25, size_median, size_75;
    bool sizes_exact;
};

struct mr_file_row {
    const char *path; /* not NUL-terminated */
    uint32_t path_len;
    uint64_t calls, read_bytes, written_bytes, dur_ns, opens;
    uint64_t unused; /* a row is a cache line, where rows begin with one */
};

struct mr_rank_row {
    int32_t rank; /* -1: processes that belong to none */
    uint64_t events, total_ns;
    struct mr_time_split time;
};

struct mr_summary {
    struct mr_arena arena;
    uint64_t events, processes, threads, io_threads, compute_threads, nodes, files, lost;
    uint64_t total_ns; /* first start to last end of what was counted, within the wanted part of the run */
    uint64_t app_io_ns, app_io_only_ns, compute_only_app_ns, compute_ns, io_ns, io_only_ns, compute_only_ns;
    uint64_t read_bytes, written_bytes, read_calls, write_calls, data_ns, metadata_ns; /* summed over threads */
    struct mr_function *function;                                                      /* by time, largest first */
    size_t functions;
    struct mr_file_row *file; /* by bytes, then calls, then path */
    size_t file_rows;
    struct mr_rank_row *rank; /* by rank; those with events */
    size_t ranks;
    uint64_t size_bins[MR_TALLY_BINS]; /* of all data calls; Darshan's: up to 100, 1K, 10K, 100K, 1M, 4M, 10M, 100M, 1G,
                                          more */
    uint64_t sampled_out; /* calls that sampling left out, of the wanted ranks; other filters do not apply */
    uint64_t skipped_bytes, skipped_lines, gone; /* gone: recorded and no longer in the file, of all ranks */
};

int mr_summarise(const struct mr_trace *t, const struct mr_summary_options *opt, const atomic_bool *stop,
                 struct mr_summary **out, struct mr_error *err);
void mr_summary_free(struct mr_summary *s);

#endif
