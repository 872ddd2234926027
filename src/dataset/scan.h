/* Making a manifest for files that are already there: ImageFolder trees, tar shards, TFRecord, HDF5, NPY, CSV ... Files
 * are listed in parallel, sorted by name (bytes), looked into in parallel by their format's scanner, and added in
 * order, so the manifest does not depend on threads. */
#ifndef MR_DATASET_SCAN_H
#define MR_DATASET_SCAN_H

#include "base/progress.h"
#include "dataset/manifest.h"

#include <stdatomic.h>

typedef void mr_scan_bad_fn(void *user, const char *path, const struct mr_error *why);

struct mr_scan_options {
    struct mr_store *store;
    const char *path;          /* folder or file */
    const char *format;        /* NULL: by extension, the most frequent one */
    const char *out;           /* NULL: manifest.mrm in the folder, or FILE.mrm */
    bool rows;                 /* the first axis of an array counts samples */
    const char *const *fields; /* names of the fields to keep, the first one the primary; n_fields 0: all */
    unsigned n_fields;
    const int *roles; /* of each of them: enum mr_field_role, or -1: by its name; NULL: all by their names */
    bool skip_bad;    /* leave broken files out instead of failing */
    unsigned threads;
    const atomic_bool *stop;
    struct mr_progress *progress; /* may be NULL */
    mr_scan_bad_fn *bad;          /* called for each broken file, one at a time, in order of names */
    void *user;
};

struct mr_scan_result {
    uint64_t files, samples, bytes, classes;
    uint64_t fields;      /* that a sample has; 0: one payload, and a label perhaps */
    uint64_t bad_files;   /* broken */
    uint64_t other_files; /* of other formats, ignored */
    char format[32];
    char manifest[8192];
};

/* MR_E_FORMAT when files are broken (all are reported before) or there is nothing to scan. */
int mr_scan(const struct mr_scan_options *o, struct mr_scan_result *out, struct mr_error *err);

#endif
