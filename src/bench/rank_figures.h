/* What a rank adds up over the run, as one list: written into the trace when the rank is done and read back from it, so
 * that the summary of a trace has the same figures as the live one. X(name in the trace, member of struct
 * mr_bench_rank); R: a real number. */
#ifndef MR_BENCH_RANK_FIGURES_H
#define MR_BENCH_RANK_FIGURES_H

/* clang-format off */
#define MR_RANK_LIMITER "loader_limiter" /* up to eight characters */
#define MR_RANK_FIGURES(X, R) \
    X("loader_batches", loader.stats.batches) \
    X("loader_samples", loader.stats.samples) \
    X("loader_sample_bytes", loader.stats.sample_bytes) \
    X("loader_read_bytes", loader.stats.read_bytes) \
    X("loader_wait_ns", loader.stats.wait_ns) \
    X("loader_read_ns", loader.stats.read_ns) \
    X("loader_decode_ns", loader.stats.decode_ns) \
    X("loader_transform_ns", loader.stats.transform_ns) \
    X("loader_idle_ns", loader.stats.idle_ns) \
    X("loader_cpu_ns", loader.stats.cpu_ns) \
    R("loader_ready_mean", loader.stats.ready_mean) \
    R("loader_empty_ratio", loader.stats.empty_ratio) \
    X("loader_slab_bytes", loader.stats.slab_bytes) \
    X("loader_threads", loader.stats.threads) \
    X("peak_rss_bytes", peak_rss_bytes) \
    X("rows_crc", rows_crc) \
    R("preload_s", preload_s) \
    X("drain_wait_ns", drain_wait_ns) \
    X("drains_left", drains_left) \
    X("cold_bytes", cold.cold_bytes) \
    X("cold_total_bytes", cold.total_bytes) \
    X("cold_unknown_files", cold.unknown_files) \
    X("pid", pid)
/* clang-format on */

#endif
