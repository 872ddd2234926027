/* The fields that a scan finds: those of one file, and what the files of a set have in common. */
#ifndef MR_DATASET_SCAN_FIELDS_H
#define MR_DATASET_SCAN_FIELDS_H

#include "dataset/manifest.h"

/* Fields of one file, or of all of them. Zero-initialise. */
struct mr_scan_fields {
    unsigned n;
    struct mr_field *field; /* their names lie in `names` */
    char *names;
    struct mr_layout *layout;         /* of one file; of all: NULL */
    struct mr_sample_columns *column; /* the same; the first field's has the labels */
    unsigned n_columns;
};
void mr_scan_fields_done(struct mr_scan_fields *f);

/* What the user named: of `wanted` fields only these are kept; 0: all. */
struct mr_scan_wanted {
    const char *const *name;
    unsigned n;
};
int mr_scan_file_fields(const struct mr_field_ops *ops, struct mr_store *s, const char *path, unsigned flags,
                        const struct mr_scan_wanted *wanted, struct mr_scan_fields *out, struct mr_error *err);
/* Joins a file's fields to those of all files before (F1): same names, types and storage; `all` then has the shapes that
 * fit both. `first` names the file that `all` came from. *at (malloc'ed): which of the file's fields is each of `all`.
 * MR_E_FORMAT names the field and both sides. */
int mr_scan_fields_join(struct mr_scan_fields *all, const struct mr_scan_fields *file, const char *first, unsigned **at,
                        struct mr_error *err);
/* Appends a field of labels that come from folders. */
int mr_scan_fields_add_label(struct mr_scan_fields *all, struct mr_error *err);

#endif
