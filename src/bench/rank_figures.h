/* What a rank adds up over the run, as one list: written into the trace when the rank is done and read back from it, so
 * that the summary of a trace has the same figures as the live one. X(name in the trace, member of struct
 * mr_bench_rank); R: a real number. */
#ifndef MR_BENCH_RANK_FIGURES_H
#define MR_BENCH_RANK_FIGURES_H

/* Of each field of the samples: field:NAME:MEASURE, measures of MR_FIELD_COSTS. An event for each. */
#define MR_RANK_FIELD "field:"

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
/* Of tiers, where there are any: this rank's samples by where they came from, and its node. Two events of their own:
 * an event has room for MR_EMIT_ARGS. */
#define MR_TIER_RANK_FIGURES(X) \
    X("tier_used", loader.stats.tier.used) \
    X("tier_node", loader.stats.tier.node) \
    X("tier_ram_samples", loader.stats.tier.ram.samples) \
    X("tier_ram_bytes", loader.stats.tier.ram.bytes) \
    X("tier_ram_fetch_ns", loader.stats.tier.ram.fetch_ns) \
    X("tier_ssd_samples", loader.stats.tier.ssd.samples) \
    X("tier_ssd_bytes", loader.stats.tier.ssd.bytes) \
    X("tier_ssd_fetch_ns", loader.stats.tier.ssd.fetch_ns) \
    X("tier_peer_samples", loader.stats.tier.peer.samples) \
    X("tier_peer_bytes", loader.stats.tier.peer.bytes) \
    X("tier_peer_fetch_ns", loader.stats.tier.peer.fetch_ns) \
    X("tier_source_samples", loader.stats.tier.source.samples) \
    X("tier_source_bytes", loader.stats.tier.source.bytes) \
    X("tier_source_fetch_ns", loader.stats.tier.source.fetch_ns)
#define MR_TIER_NODE_FIGURES(X) \
    X("node_source_bytes", loader.stats.tier.source_bytes) \
    X("node_source_reads", loader.stats.tier.source_reads) \
    X("node_source_busy_ns", loader.stats.tier.source_busy_ns) \
    X("node_source_threads", loader.stats.tier.threads) \
    X("node_distinct_bytes", loader.stats.tier.distinct_bytes) \
    X("node_set_bytes", loader.stats.tier.set_bytes) \
    X("node_filled_bytes", loader.stats.tier.filled_bytes) \
    X("node_served", loader.stats.tier.served) \
    X("node_served_bytes", loader.stats.tier.served_bytes) \
    X("node_refetched", loader.stats.tier.refetched) \
    X("node_corrupt", loader.stats.tier.corrupt) \
    X("node_ssd_refused", loader.stats.tier.ssd_refused) \
    X("node_ram_bytes", loader.stats.tier.ram_bytes) \
    X("node_ram_capacity", loader.stats.tier.ram_capacity) \
    X("node_ssd_bytes", loader.stats.tier.ssd_bytes) \
    X("node_ssd_capacity", loader.stats.tier.ssd_capacity) \
    X("node_staging_capacity", loader.stats.tier.staging_capacity) \
    X("node_peers_lost", loader.stats.tier.peers_lost) \
    X("nodes", loader.stats.tier.nodes)
/* clang-format on */

#endif
