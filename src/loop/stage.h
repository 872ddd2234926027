/* The data files of a traced program: where they lie, copies of them nearer to it, and what the page cache holds of them.
 * They are the groups of files that the report shows as read for batches: a folder and an ending each. */
#ifndef MR_LOOP_STAGE_H
#define MR_LOOP_STAGE_H

#include "explain/explain.h"

#include <limits.h>
#include <stdatomic.h>

struct mr_data_file {
    char *path;
    uint64_t bytes;
};
struct mr_data_files {
    char root[PATH_MAX]; /* the folder that has all of them */
    struct mr_data_file *file;
    size_t n, cap;
    uint64_t bytes;
};

/* Lists them; mr_data_files_done frees. MR_E_UNSUPPORTED: the trace shows none, or they are not all there any more. */
int mr_data_files_of(const struct mr_explanation *x, struct mr_data_files *out, struct mr_error *err);
void mr_data_files_done(struct mr_data_files *f);
/* Copies them below `to`, which stands for `root`, by so many threads; *seconds is how long that took. The copies' pages
 * of the originals are dropped again. MR_E_UNSUPPORTED: there is no room. */
int mr_data_files_copy(const struct mr_data_files *f, const char *to, unsigned threads, const atomic_bool *stop,
                       double *seconds, struct mr_error *err);
/* Drops what the page cache holds of them, as far as this user may. */
void mr_data_files_evict(const struct mr_data_files *f);

#endif
