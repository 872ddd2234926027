/* The fields of the series as lists, so that who writes them into a trace (src/bench) and who reads them back
 * (src/analyze) cannot disagree. A step's start, end, epoch and number are the event's own; the others are arguments of
 * these names. */
#ifndef MR_METRICS_SERIES_FIELDS_H
#define MR_METRICS_SERIES_FIELDS_H

/* clang-format off */
#define MR_STEP_FIELDS(X) \
    X(load_ns) X(copy_ns) X(compute_ns) X(barrier_ns) X(checkpoint_ns) X(compute_wall_ns) \
    X(sample_bytes) X(read_bytes) X(samples) X(block) X(phase)

#define MR_CHECKPOINT_FIELDS(X) \
    X(write_ns) X(fsync_ns) X(read_ns) X(bytes) X(files) X(wait_ns) X(buffered)

#define MR_DRAIN_FIELDS(X) \
    X(queued_ns) X(bytes) X(files) X(failed)
/* clang-format on */

#endif
