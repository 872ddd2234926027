/* Calibration: what this machine's storage and memory deliver, as tables of rates by threads and request size, within a
 * given time. Every figure is the median of repeated probes, with their spread. The result becomes a system file for
 * the simulator (mr_calibration_system). */
#ifndef MR_PROBE_CALIBRATE_H
#define MR_PROBE_CALIBRATE_H

#include "model/model.h"
#include "probe/machine_probe.h"

#define MR_CALIBRATE_POINTS_MAX 128
#define MR_CALIBRATE_PATHS_MAX (MR_CLASS_MAX - 1)

/* What is measured: everything, or one kind at request_bytes, for which the whole time is then there. */
enum mr_calibrate_only {
    MR_CALIBRATE_ALL,
    MR_CALIBRATE_RANDOM_READ,
    MR_CALIBRATE_SEQUENTIAL_READ,
    MR_CALIBRATE_SEQUENTIAL_WRITE,
    MR_CALIBRATE_BUFFERED_READ,
    MR_CALIBRATE_BUFFERED_WRITE,
    MR_CALIBRATE_MEMORY,
};
#define MR_CALIBRATE_ONLY_NAMES                                                                                        \
    {                                                                                                                  \
        "all", "random-read", "sequential-read", "sequential-write", "buffered-read", "buffered-write", "memory", NULL \
    }

struct mr_calibrate_options {
    enum mr_calibrate_only only;
    double budget_s;        /* for everything */
    uint64_t file_bytes;    /* of the test file, at most; 10 % of the free space is the other limit */
    uint64_t request_bytes; /* the one that the system's tables are made of */
    uint64_t copy_bytes;    /* memory: the most a thread copies at a time; twice as much is allocated */
    unsigned max_threads;
    const atomic_bool *stop;
};

/* A measured rate: median, least and most of n probes. */
struct mr_rate {
    double median, low, high;
    unsigned n;
};

struct mr_calibrate_point {
    struct mr_probe_spec spec;
    struct mr_rate bytes_per_s;
};

struct mr_path_calibration {
    char path[256];
    bool direct; /* the file system has direct I/O; else reads are buffered, after dropping the cache */
    bool in_memory;
    uint64_t file_bytes, free_bytes;
    unsigned n;
    struct mr_calibrate_point points[MR_CALIBRATE_POINTS_MAX];
    unsigned meta_threads;
    struct mr_rate opens_per_s, stats_per_s;
};

struct mr_memory_calibration {
    unsigned n;
    struct {
        unsigned threads;
        uint64_t block_bytes; /* copied at a time by each */
        struct mr_rate bytes_per_s;
    } points[8];
};

/* Measures one folder in budget_s seconds (not for MR_CALIBRATE_MEMORY). MR_E_CONFIG when there is no room for a test
 * file. */
int mr_calibrate_path(const char *folder, const struct mr_calibrate_options *o, struct mr_path_calibration *out,
                      struct mr_error *err);
int mr_calibrate_memory(const struct mr_calibrate_options *o, struct mr_memory_calibration *out, struct mr_error *err);

/* Rates by threads of one kind of request, for tables and curves; empty if it was not measured. */
void mr_calibration_curve(const struct mr_path_calibration *c, const struct mr_probe_spec *like, struct mr_curve *mbps);
/* The least number of threads that reaches 90 % of the best rate; 0 for an empty curve. */
unsigned mr_curve_knee(const struct mr_curve *c);

/* A system: the first path stands for the PFS, the others for storage classes behind memory; memory_bytes is what a job
 * may use here. network_mbps 0: not measured. */
void mr_calibration_system(const struct mr_path_calibration *paths, unsigned n_paths,
                           const struct mr_memory_calibration *memory, uint64_t request_bytes, uint64_t memory_bytes,
                           double network_mbps, struct mr_system *out);

#endif
