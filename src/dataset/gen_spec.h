/* What a generated data set is: the options of `millrace gen` that decide its bytes, and everything that follows from
 * them as a pure function: shape, size and label of any sample, names of files, the content seed. Two sets with equal
 * specs are byte-identical. The rows below are the options; the command line, the JSON text kept in the manifest and
 * the comparison "what differs" all come from them. To add one: a field, a row, and its use in mr_gen_spec_resolve. */
#ifndef MR_DATASET_GEN_SPEC_H
#define MR_DATASET_GEN_SPEC_H

#include "base/content.h"
#include "base/strbuf.h"
#include "conf/option.h"
#include "dataset/gen_fields.h"
#include "dataset/manifest.h"
#include "base/sizes.h"
#include "format/format.h"

#include <millrace/dataset.h>

struct mr_gen_spec {
    const char *format, *dtype, *prefix, *fields;
    int64_t files, samples_per_file, seed, compressibility, subfolders, labels, compression_level, quality;
    uint64_t size_bytes, size_stdev_bytes;
    struct mr_dims dims, chunk;
    int compression; /* enum mr_compression */
};

extern const char *const mr_gen_compressions[]; /* names, in the order of enum mr_compression */

/* `at` is the offset of the struct mr_gen_spec inside the table's struct. */
#define MR_GEN_SPEC_ROWS(at)                                                                                           \
    {.key = "format",                                                                                                  \
     .type = MR_OPT_STRING,                                                                                            \
     .offset = (at) + offsetof(struct mr_gen_spec, format),                                                            \
     .def = "npz",                                                                                                     \
     .short_flag = 'f',                                                                                                \
     .doc = "File format; 'millrace help formats' lists them.",                                                        \
     .example = "tfrecord"},                                                                                           \
        {.key = "files",                                                                                               \
         .type = MR_OPT_INT,                                                                                           \
         .offset = (at) + offsetof(struct mr_gen_spec, files),                                                         \
         .def = "8",                                                                                                   \
         .min = 1,                                                                                                     \
         .max = 1e12,                                                                                                  \
         .short_flag = 'n',                                                                                            \
         .doc = "Number of files.",                                                                                    \
         .example = "168"},                                                                                            \
        {.key = "samples_per_file",                                                                                    \
         .type = MR_OPT_INT,                                                                                           \
         .offset = (at) + offsetof(struct mr_gen_spec, samples_per_file),                                              \
         .def = "1",                                                                                                   \
         .min = 1,                                                                                                     \
         .max = 1e12,                                                                                                  \
         .doc = "Samples in each file.",                                                                               \
         .example = "1251"},                                                                                           \
        {.key = "size",                                                                                                \
         .type = MR_OPT_BYTES,                                                                                         \
         .offset = (at) + offsetof(struct mr_gen_spec, size_bytes),                                                    \
         .def = "64KiB",                                                                                               \
         .min = 1,                                                                                                     \
         .max = 68719476736.0,                                                                                         \
         .short_flag = 's',                                                                                            \
         .doc = "Mean size of a sample; for jpeg and png of its encoded form. Ignored when --dims is given.",          \
         .example = "1MiB"},                                                                                           \
        {.key = "size_stdev",                                                                                          \
         .type = MR_OPT_BYTES,                                                                                         \
         .offset = (at) + offsetof(struct mr_gen_spec, size_stdev_bytes),                                              \
         .def = "0",                                                                                                   \
         .doc = "Standard deviation of the sample sizes over the set.",                                                \
         .example = "100KiB"},                                                                                         \
        {.key = "dims",                                                                                                \
         .type = MR_OPT_DIMS,                                                                                          \
         .offset = (at) + offsetof(struct mr_gen_spec, dims),                                                          \
         .def = "[]",                                                                                                  \
         .doc = "Shape of every sample; without it samples are one row of the asked size.",                            \
         .example = "224x224x3"},                                                                                      \
        {.key = "dtype",                                                                                               \
         .type = MR_OPT_STRING,                                                                                        \
         .offset = (at) + offsetof(struct mr_gen_spec, dtype),                                                         \
         .def = "uint8",                                                                                               \
         .doc = "Element type.",                                                                                       \
         .example = "float32"},                                                                                        \
        {.key = "fields",                                                                                              \
         .type = MR_OPT_STRING,                                                                                        \
         .offset = (at) + offsetof(struct mr_gen_spec, fields),                                                        \
         .def = "",                                                                                                    \
         .doc =                                                                                                        \
             "Several fields per sample: name:dtype:shape[:role], joined by commas; shape '-' is one number, roles "   \
             "are input, target, weight, other. In place of --size, --dims and --dtype.",                              \
         .example = "data:f4:16x768x1152,labels:i4:768x1152:target"},                                                  \
        {.key = "seed",                                                                                                \
         .type = MR_OPT_INT,                                                                                           \
         .offset = (at) + offsetof(struct mr_gen_spec, seed),                                                          \
         .def = "1",                                                                                                   \
         .min = 0,                                                                                                     \
         .max = 9e18,                                                                                                  \
         .doc = "Content, sizes and labels are functions of it.",                                                      \
         .example = "42"},                                                                                             \
        {.key = "compressibility",                                                                                     \
         .type = MR_OPT_INT,                                                                                           \
         .offset = (at) + offsetof(struct mr_gen_spec, compressibility),                                               \
         .def = "0",                                                                                                   \
         .min = 0,                                                                                                     \
         .max = 100,                                                                                                   \
         .doc = "Percent of the content that a compressor removes.",                                                   \
         .example = "30"},                                                                                             \
        {.key = "subfolders",                                                                                          \
         .type = MR_OPT_INT,                                                                                           \
         .offset = (at) + offsetof(struct mr_gen_spec, subfolders),                                                    \
         .def = "0",                                                                                                   \
         .min = 0,                                                                                                     \
         .max = 1e9,                                                                                                   \
         .doc = "Deal the files round-robin to this many subfolders; 0 means none."},                                  \
        {.key = "prefix",                                                                                              \
         .type = MR_OPT_STRING,                                                                                        \
         .offset = (at) + offsetof(struct mr_gen_spec, prefix),                                                        \
         .def = "img",                                                                                                 \
         .doc = "How file names begin.",                                                                               \
         .example = "part"},                                                                                           \
        {.key = "labels",                                                                                              \
         .type = MR_OPT_INT,                                                                                           \
         .offset = (at) + offsetof(struct mr_gen_spec, labels),                                                        \
         .def = "0",                                                                                                   \
         .min = 0,                                                                                                     \
         .max = 2147483647,                                                                                            \
         .doc = "Number of classes labels are drawn from; 0 = no labels.",                                             \
         .example = "1000"},                                                                                           \
        {.key = "compression",                                                                                         \
         .type = MR_OPT_ENUM,                                                                                          \
         .offset = (at) + offsetof(struct mr_gen_spec, compression),                                                   \
         .def = "none",                                                                                                \
         .choices = mr_gen_compressions,                                                                               \
         .doc = "Compression inside the files, where the format has one."},                                            \
        {.key = "compression_level",                                                                                   \
         .type = MR_OPT_INT,                                                                                           \
         .offset = (at) + offsetof(struct mr_gen_spec, compression_level),                                             \
         .def = "4",                                                                                                   \
         .min = 1,                                                                                                     \
         .max = 9,                                                                                                     \
         .doc = "Effort of the compression."},                                                                         \
        {.key = "chunk",                                                                                               \
         .type = MR_OPT_DIMS,                                                                                          \
         .offset = (at) + offsetof(struct mr_gen_spec, chunk),                                                         \
         .def = "[]",                                                                                                  \
         .doc = "HDF5: shape of a chunk; empty = contiguous. Parquet: rows of a row group.",                           \
         .example = "64x64"},                                                                                          \
    {                                                                                                                  \
        .key = "quality", .type = MR_OPT_INT, .offset = (at) + offsetof(struct mr_gen_spec, quality), .def = "90",     \
        .min = 1, .max = 100, .doc = "JPEG quality."                                                                   \
    }

extern const struct mr_option_table mr_gen_spec_table;

/* One split of a resolved set. */
struct mr_gen_plan {
    struct mr_gen_spec spec; /* `files` is the split's; strings are borrowed */
    const char *split;       /* "train", "valid" */
    const struct mr_format_ops *format;
    struct mr_writer_spec writer;
    struct mr_content content;
    struct mr_sizes sizes;
    bool size_per_file;          /* sizes are drawn for files: in this format the samples of one cannot differ */
    struct mr_sample_info fixed; /* shape of every sample when writer.fixed_size */
    struct mr_name_template names;
    uint64_t samples;
    double want_bytes; /* of all samples together, as asked */
    /* Few large files of equal records are written in parts, by all threads and ranks. A function of the spec alone, so
     * that an interrupted set can be continued by any number of them. */
    uint64_t parts, part_samples;                 /* of each file; parts = 1: files are written as a whole */
    struct mr_gen_field field[MR_GEN_FIELDS_MAX]; /* n_fields 0: samples are one payload, and a label perhaps */
    unsigned n_fields;
    uint64_t record_bytes; /* what a sample takes in the file, when parts > 1 */
};

/* Checks the spec as a whole against what the format can do. MR_E_USAGE or MR_E_UNSUPPORTED with what to change. */
int mr_gen_plan_resolve(const struct mr_gen_spec *spec, const char *split, struct mr_gen_plan *out,
                        struct mr_error *err);
/* Sets parts and part_samples, for parts of about so many bytes; mr_gen_plan_resolve has done it for 64 MiB. */
void mr_gen_plan_split(struct mr_gen_plan *p, uint64_t part_bytes);
/* Shape, size and label of a sample. */
int mr_gen_plan_sample(const struct mr_gen_plan *p, uint64_t id, struct mr_sample_info *out, struct mr_error *err);
/* Is this what sample `id` of the plan must be: its content by the format's own rule (lossy ones: near enough), and its
 * label? MR_E_CORRUPT with what differs. */
int mr_gen_plan_compare(const struct mr_gen_plan *p, uint64_t id, const struct mr_sample *have, struct mr_error *err);
/* JSON text for the manifest. */
void mr_gen_plan_to_json(const struct mr_gen_plan *p, struct mr_strbuf *out);
/* The spec and split back from a manifest's JSON text; strings live in the arena. MR_E_FORMAT if it is not ours.
 * *version may be NULL. */
int mr_gen_spec_from_json(const char *json, struct mr_arena *a, struct mr_gen_spec *spec, const char **split,
                          const char **version, struct mr_error *err);
/* The plan by which gen made the set of this manifest, or false: made otherwise, or by a version whose content was
 * another. Strings live in the arena; *version may be NULL. */
bool mr_gen_plan_of_manifest(const struct mr_manifest *m, struct mr_arena *a, struct mr_gen_plan *out,
                             const char **version);
/* Appends "files: 8 there, 16 asked" for each differing option; returns how many differ. */
unsigned mr_gen_spec_diff(const struct mr_gen_spec *there, const struct mr_gen_spec *asked, struct mr_strbuf *out);

#endif
