/* Files that are written in parts (plans with parts > 1): how the journals number the parts, whether what they tell is
 * still there, and one record of a whole file from those of its parts. */
#ifndef MR_DATASET_GEN_PARTS_H
#define MR_DATASET_GEN_PARTS_H

#include "dataset/gen_spec.h"
#include "dataset/journal.h"

/* Record numbers of the journals: 0 .. files-1 are whole files, then come the parts, file by file. */
uint64_t mr_gen_records(const struct mr_gen_plan *p);
uint64_t mr_gen_part_record(const struct mr_gen_plan *p, uint64_t file, uint64_t part);
/* Bytes that the samples of a part take. */
uint64_t mr_gen_part_bytes(const struct mr_gen_plan *p, uint64_t part);

/* Adds the bytes of finished parts to *done_bytes. Returns 1; 0 when a part is recorded whose bytes are gone, because
 * somebody removed or cut the unfinished file; or a negative code. */
int mr_gen_parts_settle(const struct mr_gen_plan *p, struct mr_store *s, const char *folder,
                        const struct mr_journals *js, uint64_t *done_bytes, struct mr_error *err);
/* The record of the whole file. out->layout.data is malloc'ed. MR_E_INCOMPLETE when a part is missing. */
int mr_gen_parts_join(const struct mr_gen_plan *p, struct mr_journals *js, uint64_t file, struct mr_manifest_file *out,
                      struct mr_error *err);

#endif
