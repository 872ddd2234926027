/* An open data set, seen from inside Millrace: the parts behind <millrace/dataset.h>, for the loader, the verifier and
 * the simulator, which plan and read with buffers and queues of their own. All borrowed, all immutable. */
#ifndef MR_DATASET_DATASET_PARTS_H
#define MR_DATASET_DATASET_PARTS_H

#include "base/content.h"
#include "dataset/manifest.h"

#include <millrace/dataset.h>

struct mr_fetch;

/* Like mr_dataset_open with a store that stays the caller's. */
int mr_dataset_open_in(const char *path, struct mr_store *store, struct mr_dataset **out, struct mr_error *err);
/* Selects fields, before the first reader is made; see mr_dataset_open_fields. */
int mr_dataset_select(struct mr_dataset *ds, const char *const *names, unsigned n, struct mr_error *err);
/* As they lie in the files, of the sample's selected fields together. */
uint64_t mr_dataset_stored_bytes(const struct mr_dataset *ds, uint64_t id);
const struct mr_manifest *mr_dataset_manifest(const struct mr_dataset *ds);
struct mr_store *mr_dataset_store(const struct mr_dataset *ds);
const struct mr_format_ops *mr_dataset_format(const struct mr_dataset *ds);
const char *mr_dataset_root(const struct mr_dataset *ds); /* folder that file names are relative to */
/* Path of a file; `out` holds 2 * MR_NAME_MAX. */
int mr_dataset_file_path(const struct mr_dataset *ds, uint64_t file, char *out, struct mr_error *err);
/* 0 when a file with these bytes and this time (0: not looked at) is the one that the manifest describes, else
 * MR_E_CHANGED. */
int mr_dataset_compare_file(const struct mr_dataset *ds, uint64_t file, const char *path, uint64_t bytes,
                            uint64_t mtime_ns, struct mr_error *err);
/* After `rc`, an error of decoding a sample of the file, in `err`: MR_E_CHANGED in its place where the file is not the
 * one that was scanned, for then that is the cause; else `rc`. */
int mr_dataset_blame_change(const struct mr_dataset *ds, uint64_t file, int rc, struct mr_error *err);
/* A name for people: the manifest's path, or the data's folder where the manifest has no name of its own. */
const char *mr_dataset_name(const struct mr_dataset *ds, const char *path);
/* Manifest of a data set: `path` itself, path/manifest.mrm or path/train/manifest.mrm. `out` holds 2 * MR_NAME_MAX. */
int mr_dataset_find_manifest(struct mr_store *s, const char *path, char *out, struct mr_error *err);
/* Sums over a reader's life: time in the store and in the format, bytes read from the store; and of the last read when
 * it began, when its bytes were there and when it was decoded (0: there was nothing to decode). */
struct mr_reader_times {
    uint64_t read_ns, decode_ns, read_bytes;
    uint64_t start_ns, fetched_ns, decoded_ns, fetched_bytes;
    uint64_t now_ns; /* set by the caller before a read that follows the last at once: its end, so that the clock need
                        not be asked again. Used once */
    _Atomic uint64_t reading_since; /* when the fetch that is running began; 0: none is. For other threads to look at */
};
struct mr_reader_times *mr_dataset_reader_times(struct mr_dataset_reader *r);
/* Reads ranges in pieces of transfer_bytes (0: at once, and neighbours together), opens files with these MR_OBJ_* flags
 * in addition, and keeps up to open_files of several samples open (at least 16). Before the first read. */
int mr_dataset_reader_tune(struct mr_dataset_reader *r, uint64_t transfer_bytes, unsigned open_flags,
                           uint64_t open_files, struct mr_error *err);
/* From now on samples come from there; NULL: from the store again. Borrowed. */
struct mr_fetch_source;
void mr_dataset_reader_use(struct mr_dataset_reader *r, struct mr_fetch_source *source);
/* From now on only this part of a picture is needed (see mr_choose_part_fn; NULL: all of it), of the next reads without
 * a destination. `user` is borrowed. */
void mr_dataset_reader_choose(struct mr_dataset_reader *r, mr_choose_part_fn *choose, void *user);
/* The part that the last read decoded; NULL: all there is. */
const struct mr_part *mr_dataset_reader_part(const struct mr_dataset_reader *r);
/* Who gets the values of a sample's fields, k-th of the selection; `first` is decoded first, the others in order. */
struct mr_field_consumer {
    void *user;
    unsigned first;
    /* Where a value of so many bytes goes; NULL: it stays where it is, until `value` returns. NULL with err set
     * (err->code) fails the sample. */
    void *(*room)(void *user, unsigned k, uint64_t bytes, struct mr_error *err);
    /* As mr_sample_out's, for pictures; NULL: all of it. */
    mr_choose_part_fn *(*choose)(void *user, unsigned k, void **choose_user);
    /* The value is there. */
    int (*value)(void *user, unsigned k, struct mr_sample *s, const struct mr_part *part, struct mr_error *err);
};
/* Reads the selected fields of a sample, or the primary one without a selection. */
int mr_dataset_read_to(struct mr_dataset_reader *r, uint64_t id, unsigned flags, const struct mr_field_consumer *to,
                       struct mr_error *err);
/* The same for bytes that somebody else has read by the plan `f`: they lie one behind the other from `raw` on. */
int mr_dataset_decode_to(struct mr_dataset_reader *r, const struct mr_fetch *f, unsigned flags, const void *raw,
                         const struct mr_field_consumer *to, struct mr_error *err);
/* Are all selected fields numbers of one shape that lie in units (or labels)? Then they can be read field by field: */
bool mr_dataset_reads_rows(const struct mr_dataset *ds);
struct mr_row_list {
    const uint64_t *ids;
    uint32_t n;
    bool rising; /* each one is the number behind the last */
};
/* Where values of field k of the selection, which is no label, go: `each` bytes to dst, dst + stride ... */
struct mr_unit_cache;
struct mr_field_rows {
    unsigned k;
    void *dst;
    uint64_t stride, each;
    struct mr_unit_cache *cache; /* of units, for all readers that share it */
};
/* *stored: bytes of units that had to be read, which is done from the store. */
int mr_dataset_read_rows(struct mr_dataset_reader *r, const struct mr_field_rows *to, const struct mr_row_list *rows,
                         uint64_t *stored, struct mr_error *err);
/* Time that decoding took, of field k of the selection. */
/* and how many stored bytes field k of the last sample has. */
uint64_t mr_dataset_reader_field_bytes(const struct mr_dataset_reader *r, unsigned k);
uint64_t mr_dataset_reader_field_ns(const struct mr_dataset_reader *r, unsigned k);
/* Generated sets: what the values of a field are made of. */
struct mr_content mr_dataset_field_content(const struct mr_dataset *ds, unsigned field);
/* What reading costs, for the layout of a file. */
int mr_dataset_file_cost(const struct mr_dataset *ds, uint64_t file, struct mr_read_cost *out, struct mr_error *err);

#endif
