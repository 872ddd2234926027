/* What a list of storage calls amounts to: sizes, order inside files, reuse, sharing between ranks, rates. Every figure
 * has a name, by which presets ask for it ("posix.read.size_share.262144"). Pure arithmetic over events; definitions
 * and names:
 *
 *   posix.SELECT.FIGURE     SELECT: read, write, read.headN, read.tailN, write.headN, write.tailN
 *                           (the first N calls of each rank, or those after them), open
 *
 * Figures over the selected calls that moved bytes:
 *   count bytes count_per_rank bytes_per_rank
 *   mean_size modal_size max_size size_share.A[+B...]      share of the calls with exactly these sizes
 *   sequential_share consecutive_share                     per stream (rank, thread, open file): starts behind the end
 * of the last call; exactly there. A stream's first call is neutral. sequential_share_darshan consecutive_share_darshan
 * per rank and file, first calls counted, as Darshan does request_bytes_per_s    bytes / sum of durations
 * busy_bytes_per_s   bytes / time with any call in flight concurrency_in_rank    most calls in flight at once in one
 * rank per_dataset_byte       bytes / bytes of the data set per_open               calls / opens of the files they went
 * to before_training_share  share of the bytes of calls that began before the first step's compute
 *   during_training_count  calls that began after it
 *   sharing_degree         distinct bytes per rank, summed over ranks / distinct bytes of all ranks
 *   rank_overlap_share     share of the distinct bytes that every rank touched
 *   files_touched  file_passes (bytes / file size, summed)  passes_per_file  files_per_rank
 *   once_share             share of the touched files that were read once
 *   pass_bytes_cv          coefficient of variation over files of bytes per pass
 *   disjoint_files_share   share of the touched files that exactly one rank read
 *   io.share_darshan       durations of all calls, summed / ranks / duration of the training
 *   io.share_union         time with any call in flight, mean over ranks / duration of the training
 *
 * A figure without a base (a share of no calls) is NAN. */
#ifndef MR_METRICS_IO_PATTERN_H
#define MR_METRICS_IO_PATTERN_H

#include "event/event.h"

#include <stddef.h>
#include <stdint.h>

struct mr_io_calls {
    struct mr_event *events; /* any order; sorted in place by the functions here */
    size_t n;
    const uint64_t *file_bytes; /* by path_id, n_paths + 1 entries; 0: not a file of the data set */
    uint32_t n_paths;
    uint32_t ranks;
    uint64_t dataset_bytes;
    uint64_t train_start_ns;   /* the first step's compute begins */
    uint64_t start_ns, end_ns; /* of the whole run */
};

/* 0; -ENOENT for a name that is none of the above; -ENOMEM. */
int mr_io_pattern_get(struct mr_io_calls *c, const char *name, double *out);

#endif
