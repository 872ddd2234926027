/* The manifest in memory: reading (mapped, validated) and building. The bytes are described in
 * doc/reference/manifest.md.
 *
 * Reading: mr_manifest_open checks magic, version, lengths, every checksum and every index that a lookup follows
 * blindly; afterwards lookups are O(1) (O(log files) when files hold different numbers of samples) and check the rest
 * (a sample must lie inside its file, a name must stay inside the root) as they go. An open manifest is immutable: any
 * thread may use it.
 *
 * Building: create, add files in order, write. Not thread-safe. */
#ifndef MR_DATASET_MANIFEST_H
#define MR_DATASET_MANIFEST_H

#include "dataset/column.h"
#include "dataset/schema.h"
#include "format/format.h"
#include "store/store.h"

#define MR_MANIFEST_NAME "manifest.mrm"
#define MR_MANIFEST_VERSION 1
#define MR_NAME_MAX 4096 /* with the terminating NUL */
#define MR_LABEL_STORED_NONE 0x80000000u

enum mr_manifest_flags { MR_MANIFEST_GENERATED = 1, MR_MANIFEST_SCANNED = 2 };

/* The four columns a sample has, in the order journals keep them. */
enum mr_sample_column { MR_SC_OFFSET, MR_SC_LENGTH, MR_SC_AUX, MR_SC_LABEL, MR_SC_COUNT };

struct mr_manifest_info {
    uint64_t samples, files, samples_per_file /* 0: differs */;
    uint64_t all_samples, all_files; /* as stored; samples and files are fewer after mr_manifest_limit */
    uint64_t file_bytes, sample_bytes, sample_min_bytes, sample_max_bytes;
    uint64_t seed;
    uint32_t content_version, rng_version, compress_percent, flags;
    enum mr_dtype dtype;
    struct mr_dims dims;
    uint64_t label_classes; /* > 0: labels are drawn, see mr_manifest_random_label */
    char format[32];
};

/* File names that follow from the file number. */
#define MR_NAME_DIGITS_MAX 20u /* of a 64-bit number */
struct mr_name_template {
    uint64_t subfolders; /* 0: none */
    uint32_t digits, folder_digits;
    char prefix[256], suffix[256];
};

struct mr_manifest;

struct mr_manifest_pos {
    uint64_t file, index; /* sample is the index-th of the file */
    struct mr_sample_ref ref;
};

/* Opens `path` through the store (mapped when it is a plain local file). Errors: MR_E_FORMAT, MR_E_CORRUPT with offset
 * and want/have, -errno. */
int mr_manifest_open(struct mr_store *s, const char *path, struct mr_manifest **out, struct mr_error *err);
/* The same from memory, which is borrowed until close; `name` is for messages. */
int mr_manifest_parse(const void *data, size_t len, const char *name, struct mr_manifest **out, struct mr_error *err);
void mr_manifest_close(struct mr_manifest *m);

/* From here on the manifest is that of its first `files` files. Least and greatest size stay those of all. */
void mr_manifest_limit(struct mr_manifest *m, uint64_t files);

const struct mr_manifest_info *mr_manifest_get_info(const struct mr_manifest *m);
const char *mr_manifest_get_spec(const struct mr_manifest *m); /* JSON text, NUL-terminated */
uint64_t mr_manifest_bytes(const struct mr_manifest *m);
/* 128 bits that tell this manifest from every other: of its header and of its sections' checksums. The same for all
 * limits, so that sample i means the same bytes wherever the hash is the same; `seed` gives unrelated ones. */
void mr_manifest_hash(const struct mr_manifest *m, uint64_t seed, uint8_t out[16]);
int mr_manifest_locate(const struct mr_manifest *m, uint64_t id, struct mr_manifest_pos *out, struct mr_error *err);
/* Samples [*first, *first + *n) lie in the file. */
void mr_manifest_file_samples(const struct mr_manifest *m, uint64_t file, uint64_t *first, uint64_t *n);
uint64_t mr_manifest_file_bytes(const struct mr_manifest *m, uint64_t file);
/* 0 when the manifest keeps no times. */
uint64_t mr_manifest_file_mtime_ns(const struct mr_manifest *m, uint64_t file);
/* Borrowed. */
void mr_manifest_file_layout(const struct mr_manifest *m, uint64_t file, struct mr_layout *out);
uint64_t mr_manifest_file_layout_id(const struct mr_manifest *m, uint64_t file);
uint64_t mr_manifest_layouts(const struct mr_manifest *m);
/* Borrowed. */
void mr_manifest_layout(const struct mr_manifest *m, uint64_t id, struct mr_layout *out);
/* The fields of its samples; the manifest's. */
const struct mr_schema *mr_manifest_schema(const struct mr_manifest *m);
/* Where a field of the sample at `pos` lies. */
struct mr_field_place {
    struct mr_sample_ref ref;
    uint64_t layout_id;
};
int mr_manifest_locate_field(const struct mr_manifest *m, unsigned field, uint64_t id,
                             const struct mr_manifest_pos *pos, struct mr_field_place *out, struct mr_error *err);
/* Relative to the root; returns the length, or a negative code. `out` holds MR_NAME_MAX. */
int mr_manifest_file_name(const struct mr_manifest *m, uint64_t file, char *out, struct mr_error *err);
/* The file with this name, or UINT64_MAX. */
uint64_t mr_manifest_find_file(const struct mr_manifest *m, const char *name);
/* Name of a label, or NULL. */
const char *mr_manifest_label_name(const struct mr_manifest *m, int64_t label);
/* The columns as stored, for `millrace show`. section is the id of doc/reference/manifest.md; encoding MR_COLUMN_NONE
 * when absent.
 */
const struct mr_column *mr_manifest_section(const struct mr_manifest *m, unsigned section);
const char *mr_manifest_section_name(unsigned section);

int64_t mr_manifest_random_label(uint64_t seed, uint64_t sample, uint64_t classes);
int mr_name_from_template(const struct mr_name_template *t, uint64_t file, char *out);
/* True if the name may be joined to a root: relative, no empty, "." or ".." component, shorter than MR_NAME_MAX. */
bool mr_name_is_safe(const char *name, size_t len);

struct mr_manifest_builder;
struct mr_manifest_file {
    const char *name; /* when there is no template; must arrive in ascending byte order */
    uint64_t bytes, mtime_ns;
    struct mr_layout layout;
    struct mr_column column[MR_SC_COUNT]; /* of its samples */
    const struct mr_field_values *own;    /* of each field with columns of its own; borrowed */
    unsigned n_own;                       /* the same in all files */
};

/* Of `info` the builder takes seed, versions, compress_percent, flags, dtype, dims, label_classes, format. `tmpl` NULL:
 * names come with the files. */
int mr_manifest_builder_create(const struct mr_manifest_info *info, const struct mr_name_template *tmpl,
                               const char *spec, struct mr_manifest_builder **out, struct mr_error *err);
void mr_manifest_builder_free(struct mr_manifest_builder *b);
int mr_manifest_builder_add(struct mr_manifest_builder *b, const struct mr_manifest_file *f, struct mr_error *err);
int mr_manifest_builder_add_class(struct mr_manifest_builder *b, const char *name, struct mr_error *err);
/* The fields of all samples, of which the own ones came with the files; copied. Before it is written, if at all. */
int mr_manifest_builder_set_fields(struct mr_manifest_builder *b, const struct mr_field *fields, unsigned n,
                                   struct mr_error *err);
/* Durable when it returns: temporary, fsync, rename, sync of the folder. */
int mr_manifest_builder_write(struct mr_manifest_builder *b, struct mr_store *s, const char *path,
                              struct mr_error *err);

/* Collects the four columns of one file's samples. Zero-initialise. Checks the widths (48, 40, 24, 32 bits). */
struct mr_sample_columns {
    struct mr_colbuild build[MR_SC_COUNT];
    uint64_t n;
};
int mr_sample_columns_add(struct mr_sample_columns *c, const struct mr_sample_ref *ref, struct mr_error *err);
void mr_sample_columns_finish(struct mr_sample_columns *c, struct mr_column out[MR_SC_COUNT]);
void mr_sample_columns_done(struct mr_sample_columns *c);

#endif
