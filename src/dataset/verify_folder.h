/* Verifying what lies in a folder: the data set, or both splits of a generated one. */
#ifndef MR_DATASET_VERIFY_FOLDER_H
#define MR_DATASET_VERIFY_FOLDER_H

#include "dataset/verify.h"

#include <stdio.h>

/* As mr_verify, for a folder or a manifest; o->progress is ignored, progress goes to `progress_to` (NULL: none). */
int mr_verify_folder(const char *folder, struct mr_store *store, const struct mr_verify_options *o, FILE *progress_to,
                     struct mr_verify_result *out, struct mr_error *err);

#endif
