/* Verifying a data set against its manifest and, for generated sets, against (seed, sample). Levels:
 *
 * - quick: sizes of all files (and modification times of scanned ones), missing and extra files.
 *
 * - rate < 1: in addition that share of the samples, chosen by their number, read with checksums and compared.
 *
 * - full: generated sets: every byte of every file is computed again and compared; others: every sample is read with
 *   checksums.
 *
 * - by_sample: full, but samples instead of bytes for generated sets, too: for files written by another version of an
 *   encoder library.
 *
 * Findings are handed to a callback one at a time, from any thread; the check goes on after one. */
#ifndef MR_DATASET_VERIFY_H
#define MR_DATASET_VERIFY_H

#include "base/progress.h"
#include "dataset/dataset_parts.h"

#include <stdatomic.h>

enum mr_finding_kind {
    MR_FIND_MISSING,
    MR_FIND_SIZE,
    MR_FIND_MTIME,
    MR_FIND_CONTENT,
    MR_FIND_SAMPLE,
    MR_FIND_UNREADABLE,
    MR_FIND_EXTRA
};
const char *mr_finding_kind_name(enum mr_finding_kind kind);

#define MR_NO_SAMPLE UINT64_MAX

struct mr_damage {
    enum mr_finding_kind kind;
    const char *path;
    uint64_t sample; /* or MR_NO_SAMPLE */
    bool has_offset;
    uint64_t offset;
    uint64_t want, have; /* sizes, times or byte values, by kind */
    const char *text;    /* one sentence */
};

typedef void mr_finding_fn(void *user, const struct mr_damage *f);

struct mr_verify_options {
    unsigned threads;
    bool quick, by_sample;
    double sample_rate; /* 0 < rate <= 1 */
    const atomic_bool *stop;
    struct mr_progress *progress;
    mr_finding_fn *found;
    void *user;
};

struct mr_verify_result {
    uint64_t files, samples, bytes; /* checked */
    uint64_t bad_files, bad_samples, missing, extra;
    uint64_t unreadable; /* findings of kind MR_FIND_UNREADABLE: the storage failed, so nothing is known */
    uint64_t wrong;      /* findings of other kinds */
    bool byte_exact;     /* every byte was compared with what the seed makes */
};

/* 0 also when something is bad: the result tells. Negative: the check itself failed (interrupted, cannot list ...). */
int mr_verify(struct mr_dataset *ds, const struct mr_verify_options *o, struct mr_verify_result *out,
              struct mr_error *err);

#endif
