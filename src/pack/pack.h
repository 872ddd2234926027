/* Packing: the samples of one data set, such as a folder of small files, into the larger files of another one, in the same
 * order and with the same labels, class names and fields. Each file of the result is written under a temporary name,
 * recorded in the journal of `gen`, and renamed, so that a run that was killed is continued by the same call; README.md
 * has the invariants. Nothing of the source is changed. */
#ifndef MR_PACK_PACK_H
#define MR_PACK_PACK_H

#include "base/progress.h"
#include "store/store.h"

#include <stdatomic.h>

struct mr_pack_options {
    struct mr_store *store, *source_store;
    const char *source;        /* a data set, or a folder or file that is scanned first */
    const char *const *fields; /* of its samples, by name; n_fields 0: all */
    unsigned n_fields;
    const char *source_format; /* of the scan; NULL: by the names */
    const char *folder;        /* the result */
    const char *format;
    uint64_t samples_per_file; /* 0: files of about 256 MiB */
    double share;              /* of the samples, the first ones; 1: all */
    bool compress;             /* gzip inside the files */
    bool verify;               /* compare both sets, sample by sample, at the end */
    unsigned threads;
    const atomic_bool *stop;
    struct mr_progress *progress; /* may be NULL */
};

struct mr_pack_result {
    uint64_t samples, source_samples, source_files, files, files_kept, bytes, fields, labelled;
    double pack_s, verify_s;
    /* With share < 1: samples per second of one thread in order, of the same samples before and after. */
    double source_rate, packed_rate;
};

/* MR_E_UNSUPPORTED (the format cannot hold such samples), MR_E_USAGE (the folder holds something else), MR_E_CORRUPT (the
 * comparison failed), and what reading and writing give. */
int mr_pack(const struct mr_pack_options *o, struct mr_pack_result *out, struct mr_error *err);

#endif
