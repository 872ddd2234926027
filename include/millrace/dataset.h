/* Data sets: reading samples by number.
 *
 * A data set is a folder of files plus a manifest (`manifest.mrm`) that says where each sample lies. `millrace gen`
 * makes both, `millrace scan` makes the manifest for files somebody else wrote. Opening reads the manifest only: no
 * folder is listed and no data file is touched, whether it has ten samples or a billion.
 *
 *     struct mr_dataset *ds;
 *     struct mr_dataset_reader *r;
 *     struct mr_sample s;
 *     mr_dataset_open("/data/imagenet", NULL, &ds, &err);
 *     mr_dataset_reader_create(ds, &r, &err);
 *     mr_dataset_read(r, 8123, 0, NULL, 0, &s, &err);   // s.data, s.bytes, s.label
 *     mr_dataset_reader_free(r);
 *     mr_dataset_close(ds);
 *
 * Thread safety: an open mr_dataset is immutable, any thread may use it; an mr_dataset_reader belongs to one thread
 * (make one per thread). Ownership: open/create allocate, close/free release and accept NULL; readers go before their
 * data set. Errors: MR_E_USAGE (no such sample), MR_E_FORMAT, MR_E_CORRUPT, MR_E_CHANGED (the files are not what the
 * manifest says), -errno. */
#ifndef MILLRACE_DATASET_H
#define MILLRACE_DATASET_H

#include <millrace/error.h>
#include <millrace/field.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define MR_SAMPLE_DIMS_MAX 8
#define MR_SAMPLE_NO_LABEL INT64_MIN

struct mr_dataset;
struct mr_dataset_reader;

struct mr_dataset_info {
    uint64_t samples, files;
    uint64_t samples_per_file; /* 0: files differ */
    uint64_t file_bytes;       /* of all files together */
    uint64_t sample_bytes;     /* of all samples, as they lie in the files */
    uint64_t sample_min_bytes, sample_max_bytes;
    uint64_t seed; /* generated sets: content is a function of (seed, sample) */
    bool generated;
    char format[32]; /* "npz" */
    char dtype[8];   /* numpy code, "u1", "f4" */
    unsigned n_dims; /* 0: samples differ in shape */
    uint64_t dims[MR_SAMPLE_DIMS_MAX];
    uint64_t manifest_bytes;
};

enum mr_dataset_read_flags {
    MR_DATASET_RAW = 2, /* the sample's bytes as they lie in the file, not decoded; no checksum is checked */
    MR_DATASET_VERIFY =
        1, /* check stored checksums (TFRecord, zip, PNG ...); costs the checksum and, in places, a longer read */
};

/* One sample. `data` lies in the caller's buffer, or in the reader until its next read. */
struct mr_sample {
    const void *data;
    size_t bytes;
    int64_t label; /* or MR_SAMPLE_NO_LABEL */
    char dtype[8];
    unsigned n_dims;
    uint64_t dims[MR_SAMPLE_DIMS_MAX];
};

/* Where a sample lies. */
struct mr_sample_place {
    uint64_t file;          /* number of the file */
    uint64_t index;         /* the sample is the index-th of it */
    uint64_t offset, bytes; /* of its raw bytes in the file (unpacked file, where the file is compressed as a whole) */
    uint64_t file_bytes;
    int64_t label;
    char path[8192];
};

/* `path` is a data set's folder (with manifest.mrm or train/manifest.mrm in it) or a manifest; "PATH@files=N" is its
 * first N files. `store` is a storage stack, NULL for "posix"; see 'millrace help store'. */
int mr_dataset_open(const char *path, const char *store, struct mr_dataset **out, struct mr_error *err);
void mr_dataset_close(struct mr_dataset *ds);
uint64_t mr_dataset_count(const struct mr_dataset *ds);
void mr_dataset_get_info(const struct mr_dataset *ds, struct mr_dataset_info *out);
/* O(1), or O(log files) where files hold different numbers of samples. */
int mr_dataset_locate(const struct mr_dataset *ds, uint64_t id, struct mr_sample_place *out, struct mr_error *err);

/* ---- fields (doc/internals/fields.md) ---- */

/* How many fields a sample has, and the i-th of them; the strings are the data set's. Sets of an older manifest have
 * "data" and, where there are labels, "label". NULL: there is no such field. */
unsigned mr_dataset_fields(const struct mr_dataset *ds);
const struct mr_field *mr_dataset_field(const struct mr_dataset *ds, unsigned i);
/* Like mr_dataset_open, for samples of these fields alone, in this order: what is planned, read, kept near and counted
 * as a sample's bytes is theirs. "*": all but those of role other. MR_E_USAGE: no such field, with the names there are.
 */
int mr_dataset_open_fields(const char *path, const char *store, const char *const *names, unsigned n,
                           struct mr_dataset **out, struct mr_error *err);
/* The fields that were selected, as numbers for mr_dataset_field; 0: none were, samples are the primary field. */
unsigned mr_dataset_selected(const struct mr_dataset *ds, const unsigned **out);

/* Files that somebody else listed, one sample each. */
struct mr_file_list {
    const char *root;         /* absolute; names are relative to it */
    const char *const *names; /* ascending by bytes, none twice */
    const int64_t *labels;    /* or NULL: MR_SAMPLE_NO_LABEL */
    uint64_t n;
    const char *format; /* "jpeg" ...: a format of one sample per file whose layout does not depend on it */
    unsigned threads;   /* that ask for the files' sizes; 0 = as many as there are CPUs */
};
/* Writes a manifest for them to `manifest`, e.g. a temporary file that is removed once a loader has it open. Looks at
 * the size of every file, not into it. Errors: MR_E_USAGE (names that do not ascend, another kind of format), -errno of
 * the first file that is not there. */
int mr_dataset_index_files(const struct mr_file_list *list, const char *manifest, struct mr_error *err);
/* Writes a manifest for the records of one plain file: record i is record_bytes long and begins at skip_bytes (a
 * header) + i * step_bytes, so that records may overlap (step below size) or leave gaps; what is left at the end is no record. Samples are of format
 * "raw". Errors: MR_E_USAGE (a size of 0, no whole record in the file), MR_E_LIMIT (a file or record too large for a
 * manifest), -errno. O(records). */
int mr_dataset_index_records(const char *path, uint64_t skip_bytes, uint64_t record_bytes, uint64_t step_bytes,
                             const char *manifest, struct mr_error *err);

int mr_dataset_reader_create(struct mr_dataset *ds, struct mr_dataset_reader **out, struct mr_error *err);
void mr_dataset_reader_free(struct mr_dataset_reader *r);
/* Reads sample `id` in the calling thread. With `dst` the payload is put there (MR_E_LIMIT and out->bytes = what is
 * needed if `cap` is too small); with dst NULL it stays in the reader's own buffer until its next read. Files that hold
 * several samples stay open (16 of them; the loader keeps more); files that can only be unpacked as a whole stay
 * unpacked (up to 1 GiB, at least one). No memory is allocated once the buffers have grown, apart from what opening a
 * file takes. */
int mr_dataset_read(struct mr_dataset_reader *r, uint64_t id, unsigned flags, void *dst, size_t cap,
                    struct mr_sample *out, struct mr_error *err);

/* Reads the selected fields of sample `id` in the calling thread, into out[0..n), where n is mr_dataset_selected. Values
 * stay in the reader's buffers until its next read. The error names sample, file and field. Without a selection n is 1.
 */
int mr_dataset_read_fields(struct mr_dataset_reader *r, uint64_t id, unsigned flags, struct mr_sample *out, unsigned n,
                           struct mr_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
