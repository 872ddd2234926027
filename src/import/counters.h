/* Counters of a whole job, as darshan-parser prints them, summed over files and ranks: what the advisor's rules ask of
 * a source that has no events. Filled by the importer, attached to the trace, read by src/advise/rule_counters.c.
 *
 * Sums over the records of a module: every counter of MR_COUNTERS whose row says SUM is added up over all records, MAX
 * keeps the largest, MIN the smallest that is not 0. -1 in a log ("not available") counts as absent. A counter that no
 * record has stays NAN; one of a module that is in the log with no such line, too.
 *
 * Shared records (rank -1) of Darshan hold sums over all ranks that touched the file; times (_F_..._TIME) are sums over
 * ranks, too, so that time / nprocs is what a rank spent on the average. */
#ifndef MR_IMPORT_COUNTERS_H
#define MR_IMPORT_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

/* X(name in the log, how records are put together) */
#define MR_COUNTER_SIZES(X, WAY)                                                                                       \
    X(POSIX_SIZE_##WAY##_0_100, SUM)                                                                                   \
    X(POSIX_SIZE_##WAY##_100_1K, SUM)                                                                                  \
    X(POSIX_SIZE_##WAY##_1K_10K, SUM)                                                                                  \
    X(POSIX_SIZE_##WAY##_10K_100K, SUM)                                                                                \
    X(POSIX_SIZE_##WAY##_100K_1M, SUM)                                                                                 \
    X(POSIX_SIZE_##WAY##_1M_4M, SUM)                                                                                   \
    X(POSIX_SIZE_##WAY##_4M_10M, SUM)                                                                                  \
    X(POSIX_SIZE_##WAY##_10M_100M, SUM)                                                                                \
    X(POSIX_SIZE_##WAY##_100M_1G, SUM)                                                                                 \
    X(POSIX_SIZE_##WAY##_1G_PLUS, SUM)
#define MR_COUNTERS(X)                                                                                                 \
    X(POSIX_OPENS, SUM)                                                                                                \
    X(POSIX_READS, SUM)                                                                                                \
    X(POSIX_WRITES, SUM)                                                                                               \
    X(POSIX_SEEKS, SUM)                                                                                                \
    X(POSIX_STATS, SUM)                                                                                                \
    X(POSIX_MMAPS, SUM)                                                                                                \
    X(POSIX_FSYNCS, SUM)                                                                                               \
    X(POSIX_FDSYNCS, SUM)                                                                                              \
    X(POSIX_RW_SWITCHES, SUM)                                                                                          \
    X(POSIX_BYTES_READ, SUM)                                                                                           \
    X(POSIX_BYTES_WRITTEN, SUM)                                                                                        \
    X(POSIX_MAX_BYTE_READ, MAX)                                                                                        \
    X(POSIX_MAX_BYTE_WRITTEN, MAX)                                                                                     \
    X(POSIX_CONSEC_READS, SUM)                                                                                         \
    X(POSIX_CONSEC_WRITES, SUM)                                                                                        \
    X(POSIX_SEQ_READS, SUM)                                                                                            \
    X(POSIX_SEQ_WRITES, SUM)                                                                                           \
    X(POSIX_MEM_NOT_ALIGNED, SUM)                                                                                      \
    X(POSIX_FILE_NOT_ALIGNED, SUM)                                                                                     \
    X(POSIX_FILE_ALIGNMENT, MAX)                                                                                       \
    MR_COUNTER_SIZES(X, READ)                                                                                          \
    MR_COUNTER_SIZES(X, WRITE)                                                                                         \
    X(POSIX_FASTEST_RANK_BYTES, MAX)                                                                                   \
    X(POSIX_SLOWEST_RANK_BYTES, MAX)                                                                                   \
    X(POSIX_F_READ_TIME, SUM)                                                                                          \
    X(POSIX_F_WRITE_TIME, SUM)                                                                                         \
    X(POSIX_F_META_TIME, SUM)                                                                                          \
    X(POSIX_F_MAX_READ_TIME, MAX)                                                                                      \
    X(POSIX_F_MAX_WRITE_TIME, MAX)                                                                                     \
    X(POSIX_F_FASTEST_RANK_TIME, MAX)                                                                                  \
    X(POSIX_F_SLOWEST_RANK_TIME, MAX)                                                                                  \
    X(POSIX_F_VARIANCE_RANK_TIME, MAX)                                                                                 \
    X(POSIX_F_VARIANCE_RANK_BYTES, MAX)                                                                                \
    X(MPIIO_INDEP_OPENS, SUM)                                                                                          \
    X(MPIIO_COLL_OPENS, SUM)                                                                                           \
    X(MPIIO_INDEP_READS, SUM)                                                                                          \
    X(MPIIO_INDEP_WRITES, SUM)                                                                                         \
    X(MPIIO_COLL_READS, SUM)                                                                                           \
    X(MPIIO_COLL_WRITES, SUM)                                                                                          \
    X(MPIIO_NB_READS, SUM)                                                                                             \
    X(MPIIO_NB_WRITES, SUM)                                                                                            \
    X(MPIIO_BYTES_READ, SUM)                                                                                           \
    X(MPIIO_BYTES_WRITTEN, SUM)                                                                                        \
    X(MPIIO_F_READ_TIME, SUM)                                                                                          \
    X(MPIIO_F_WRITE_TIME, SUM)                                                                                         \
    X(MPIIO_F_META_TIME, SUM)                                                                                          \
    X(STDIO_OPENS, SUM)                                                                                                \
    X(STDIO_READS, SUM)                                                                                                \
    X(STDIO_WRITES, SUM)                                                                                               \
    X(STDIO_FLUSHES, SUM)                                                                                              \
    X(STDIO_BYTES_READ, SUM)                                                                                           \
    X(STDIO_BYTES_WRITTEN, SUM)                                                                                        \
    X(STDIO_F_READ_TIME, SUM)                                                                                          \
    X(STDIO_F_WRITE_TIME, SUM)                                                                                         \
    X(STDIO_F_META_TIME, SUM)

enum mr_counter {
#define MR_COUNTER_ENUM(name, how) MR_##name,
    MR_COUNTERS(MR_COUNTER_ENUM)
#undef MR_COUNTER_ENUM
        MR_COUNTER_COUNT
};
enum mr_counter_how { MR_COUNTER_SUM, MR_COUNTER_MAX, MR_COUNTER_MIN };

struct mr_counters {
    double value[MR_COUNTER_COUNT]; /* NAN: not in the log */
    double nprocs, run_s;
    bool has_posix, has_mpiio, has_stdio, has_hdf5, has_lustre;
    bool per_file; /* the log has a record for each file; false: sums only ("darshan-parser --total") */
    /* Over files (standard streams of STDIO left out); NAN where the log has sums only. */
    double files;              /* POSIX, MPI-IO and STDIO records of different files */
    double shared_files;       /* POSIX files that more than one rank touched */
    double shared_bytes;       /* read and written by POSIX in those */
    double written_once_files; /* files with fewer than 1 MiB in all: small files */
    double unique_read_bytes;  /* sum over files of min(bytes read, largest offset read): what had to be read once */
    double rank_reread_bytes;  /* sum over files of bytes read - readers * largest offset: what ranks read again */
    double stdio_data_bytes;   /* STDIO bytes of files with at least 1 MiB in all: no logs, no settings */
    /* Over ranks, from records of a rank's own and the fastest and slowest of shared ones; NAN: not in the log. */
    double rank_bytes_mean, rank_bytes_max, rank_time_mean, rank_time_max;
    /* Of Lustre files, weighted by bytes. */
    double stripe_count, stripe_size;     /* mean */
    double ost_count;                     /* OSTs of the file system */
    double ost_bytes_mean, ost_bytes_max; /* bytes per OST, over all OSTs of the file system */
};

/* One file of the log, all modules and ranks together. */
struct mr_counter_file {
    const char *path, *fs; /* NUL-terminated, of the trace's arena; fs NULL unknown */
    double read_bytes, written_bytes, reads, writes, opens, time_s;
    double max_byte_read; /* -1: none */
    double stripe_count, stripe_bytes;
    uint32_t ranks; /* that touched it */
};

/* Everything a log of counters says. Several logs are added up: processes of a job that has no MPI write one each. */
struct mr_counter_log {
    struct mr_counters total;
    const char *program;          /* command line; NULL unknown */
    uint64_t start_ns, end_ns;    /* real; of the first start and the last end */
    struct mr_counter_file *file; /* standard streams left out; until the trace is freed */
    uint64_t files, logs;
};

#endif
