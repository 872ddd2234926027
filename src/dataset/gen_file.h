/* Writing one file of a generated set, to any store: the generator writes it, the verifier holds it against what is
 * there. Memory: one piece of 1 MiB per thread plus what the format's writer keeps, whatever the record size. */
#ifndef MR_DATASET_GEN_FILE_H
#define MR_DATASET_GEN_FILE_H

#include "base/progress.h"
#include "dataset/gen_spec.h"

#include <stdatomic.h>

#define MR_GEN_PIECE (1u << 20)

/* Per-thread state. */
struct mr_gen_scratch {
    uint8_t *piece;
    struct mr_sample_columns columns;
    struct mr_sample_columns *field; /* of each field, and */
    struct mr_field_values *own;     /* what becomes of those of their own; layouts are malloc'ed */
    unsigned n_fields;
    uint64_t synth_ns, write_ns;
    double scale; /* bytes that the progress display is told per byte of content; 1 unless set */
};

int mr_gen_scratch_init(struct mr_gen_scratch *t, struct mr_error *err);
void mr_gen_scratch_done(struct mr_gen_scratch *t);

/* Bytes as asked (want_bytes of the plan) per byte of content: below 1 for images, whose encoded size is what was
 * asked. */
double mr_gen_scale(const struct mr_gen_plan *p);

/* Writes file number `file` to `path`. On success out->layout is malloc'ed (the caller frees it) and out->column points
 * into the scratch until its next use. On failure whatever was written stays. MR_E_INTERRUPTED when *stop gets set. */
int mr_gen_write_file(const struct mr_gen_plan *p, struct mr_store *s, const char *path, uint64_t file,
                      struct mr_gen_scratch *t, const atomic_bool *stop, struct mr_progress *progress,
                      struct mr_manifest_file *out, struct mr_error *err);

/* The same for part number `part` of the file, for plans with parts > 1; out->bytes is where the part ends in the file.
 * Several threads and processes may write parts of one file at once. */
int mr_gen_write_part(const struct mr_gen_plan *p, struct mr_store *s, const char *path, uint64_t file, uint64_t part,
                      struct mr_gen_scratch *t, const atomic_bool *stop, struct mr_progress *progress,
                      struct mr_manifest_file *out, struct mr_error *err);

/* folder/name and folder/.../.name.tmp for a file of the plan. `out` holds 2 * MR_NAME_MAX. */
void mr_gen_path(const char *folder, const char *name, char *out);
void mr_gen_temporary_path(const char *folder, const char *name, char *out);

#endif
