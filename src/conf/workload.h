/* A workload: what a training (or checkpoint-only) job reads, computes and writes. The keys are those of the DLIO
 * benchmark, so its files and those of MLPerf Storage load unchanged; what is ours lives under `x-millrace:` in the
 * same file, which DLIO ignores.
 *
 *   default  <  preset or file  <  environment  <  override (key=value)  <  flag
 *
 * Every value keeps its origin. Unknown keys are errors with the nearest valid key. Keys that DLIO accepts but ignores,
 * inverts or misspells are honoured as their author meant, each with one note (mr_workload.notes).
 *
 * To add a key: one field in a struct below and one row in workload_tables.c. */
#ifndef MR_CONF_WORKLOAD_H
#define MR_CONF_WORKLOAD_H

#include "conf/option.h"

#include <jansson.h>

enum mr_conf_framework { MR_FRAMEWORK_TENSORFLOW, MR_FRAMEWORK_PYTORCH, MR_FRAMEWORK_NONE };
enum mr_conf_datatype { MR_DT_INT8, MR_DT_UINT8, MR_DT_FP16, MR_DT_BF16, MR_DT_FP32, MR_DT_FP64 };
enum mr_conf_format {
    MR_CF_TFRECORD,
    MR_CF_HDF5,
    MR_CF_CSV,
    MR_CF_NPZ,
    MR_CF_NPY,
    MR_CF_JPEG,
    MR_CF_PNG,
    MR_CF_INDEXED_BINARY,
    MR_CF_MMAP_INDEXED_BINARY,
    MR_CF_JSON,
    MR_CF_JSONL,
    MR_CF_TAR,
    MR_CF_RAW,
    MR_CF_SYNTHETIC,
    MR_CF_PARQUET,
    MR_CF_COUNT /* and up: formats of plug-ins */
};
enum mr_conf_compression {
    MR_CC_NONE,
    MR_CC_GZIP,
    MR_CC_ZIP,
    MR_CC_LZF,
    MR_CC_BZ2,
    MR_CC_XZ,
    MR_CC_SNAPPY,
    MR_CC_LZ4,
    MR_CC_ZSTD,
};
enum mr_conf_loader {
    MR_DL_TENSORFLOW,
    MR_DL_PYTORCH,
    MR_DL_DALI,
    MR_DL_NATIVE_DALI,
    MR_DL_SYNTHETIC,
    MR_DL_CUSTOM,
    MR_DL_NONE,
};
enum mr_conf_shuffle { MR_SHUFFLE_OFF, MR_SHUFFLE_SEED, MR_SHUFFLE_RANDOM };
enum mr_conf_order {
    MR_CO_AUTO,
    MR_CO_SEQUENTIAL,
    MR_CO_TORCH,
    MR_CO_CIPHER,
    MR_CO_SHARD,
    MR_CO_BUFFER,
    MR_CO_FILE,
};
enum mr_conf_read_type { MR_CONF_READ_ON_DEMAND, MR_CONF_READ_MEMORY };
enum mr_conf_ckpt_type { MR_CKPT_RANK_ZERO, MR_CKPT_ALL_RANKS };
enum mr_conf_ckpt_mode { MR_CKPT_DEFAULT, MR_CKPT_SUBSET };
enum mr_conf_storage { MR_CS_LOCAL_FS, MR_CS_S3, MR_CS_AISTORE };

struct mr_conf_top {
    int framework; /* enum mr_conf_framework */
    struct mr_strings plugin;
};
struct mr_conf_model {
    const char *name, *type;
    uint64_t model_size_bytes;
    int model_datatype, optimizer_datatype; /* enum mr_conf_datatype */
    int64_t num_layers;
    struct mr_uints optimization_groups, layer_parameters;
};
struct mr_conf_parallelism {
    int64_t tensor, pipeline, data, zero_stage;
};
struct mr_conf_transformer {
    int64_t vocab_size, hidden_size, ffn_hidden_size, num_attention_heads, num_kv_heads;
};
struct mr_conf_workflow {
    bool generate_data, train, evaluation, checkpoint, profiling, debug;
    const char *query;
};
struct mr_conf_dataset {
    int format; /* enum mr_conf_format */
    int64_t num_files_train, num_files_eval, num_samples_per_file;
    double record_length_bytes, record_length_bytes_stdev, record_length_bytes_resize;
    struct mr_dims record_dims;
    const char *record_element_type;
    int64_t record_element_bytes;
    const char *data_folder, *file_prefix;
    int64_t num_subfolders_train, num_subfolders_eval;
    int compression; /* enum mr_conf_compression */
    int64_t compression_level;
    bool enable_chunking;
    uint64_t chunk_size;
    bool keep_files;
    uint64_t generation_buffer_size;
    int64_t seed;
    double compressibility;
    bool skip_listing;
    int64_t write_threads;
    struct mr_strings fields;
    double post_generation_settle_seconds;
};
struct mr_conf_hdf5 {
    struct mr_dims chunk_dims;
    int64_t num_dset_per_record;
    struct mr_dims max_shape;
};
struct mr_conf_parquet {
    const char *columns;
    int64_t row_group_size;
    const char *read_mode;
};
struct mr_conf_reader {
    int data_loader; /* enum mr_conf_loader */
    int64_t batch_size, batch_size_eval, read_threads, computation_threads, prefetch_size;
    int read_type;                    /* enum mr_conf_read_type */
    int file_access;                  /* enum mr_conf_access */
    int file_shuffle, sample_shuffle; /* enum mr_conf_shuffle */
    int64_t shuffle_size;
    uint64_t transfer_size; /* 0: the reader chooses */
    struct mr_dist preprocess_time;
    double preprocess_time_stdev;
    bool pin_memory, dont_use_mmap, odirect;
    int multiprocessing_context;
    const char *reader_classname, *data_loader_classname, *data_loader_sampler;
    struct mr_dims transformed_record_dims;
    const char *transformed_record_element_type;
    int order; /* enum mr_conf_order */
    bool drop_last;
    struct mr_strings fields;
    const char *policy, *tiers; /* "": not given */
    int peers;                  /* auto on off, as enum mr_loader_peers */
};
enum mr_conf_crop { MR_CONF_CROP_NONE, MR_CONF_CROP_CENTER, MR_CONF_CROP_RANDOM, MR_CONF_CROP_RANDOM_RESIZED };
struct mr_conf_preprocess {
    int crop;                       /* enum mr_conf_crop */
    struct mr_dims crop_size, size; /* height, width */
    double scale_min, scale_max, ratio_min, ratio_max, flip;
    int dtype, layout;             /* uint8 float32; hwc chw */
    struct mr_strings mean, stdev; /* one number per channel */
};
struct mr_conf_train {
    int64_t epochs;
    struct mr_dist computation_time;
    double computation_time_stdev;
    int64_t total_training_steps; /* of the whole run; -1: no limit */
    int64_t seed;
    bool seed_change_epoch;
    uint64_t allreduce_bytes; /* summed over the ranks after every step */
};
struct mr_conf_evaluation {
    struct mr_dist eval_time;
    double eval_time_stdev;
    int64_t eval_after_epoch, epochs_between_evals;
};
struct mr_conf_checkpoint {
    const char *checkpoint_folder;
    int64_t checkpoint_after_epoch, epochs_between_checkpoints, steps_between_checkpoints;
    int type; /* enum mr_conf_ckpt_type */
    bool fsync, recovery_rank_shift, rank_sync;
    double time_between_checkpoints; /* seconds; negative: none */
    int64_t num_checkpoints_write, num_checkpoints_read;
    int mode; /* enum mr_conf_ckpt_mode */
    bool randomize_tensor;
    const char *checkpoint_mechanism_classname;
    const char *engine;
    struct mr_uints
        files; /* bytes of each file of a checkpoint that is not a transformer's; empty: as the framework does */
};
struct mr_conf_burst_buffer {
    const char *folder, *store; /* folder "": none */
    uint64_t capacity;          /* 0: what the file system has free */
};
struct mr_conf_ksm {
    int64_t madv_mergeable_id;
    double high_ram_trigger, low_ram_exit, await_time;
};
struct mr_conf_output {
    const char *folder, *log_file;
};
struct mr_conf_output_metric {
    int64_t exclude_start_steps, exclude_end_steps;
};
struct mr_conf_storage_section {
    int storage_type; /* enum mr_conf_storage */
    const char *storage_root;
};
struct mr_conf_storage_options {
    const char *access_key_id, *secret_access_key, *endpoint_url, *region;
    bool s3_force_path_style;
    int64_t s3_max_attempts;
    const char *storage_library;
    int64_t prefetch_workers, prefetch_window;
    bool simulate_io;
};
struct mr_conf_profiling {
    int profiler;
    struct mr_strings iostat_devices;
};
struct mr_conf_metric {
    double au;
};

enum mr_conf_access { MR_FA_MULTI, MR_FA_SHARED, MR_FA_COLLECTIVE, MR_FA_MPIO, MR_FA_POSIX };
enum mr_conf_unit { MR_CONF_UNIT_SAMPLE, MR_CONF_UNIT_FILE, MR_CONF_UNIT_RECORD, MR_CONF_UNIT_NONE };
/* What an application did to its files that no key of DLIO says; done by 'millrace run' and 'millrace workloads check'.
 */
struct mr_conf_pattern {
    int unit; /* enum mr_conf_unit */
    bool same_offsets;
    int64_t collective_readers, file_passes, header_reads, sequential_samples;
    uint64_t header_bytes, header_file;
    double header_consecutive, part;
    struct mr_uints pieces, outputs;
    double slowdown;
};

enum mr_expect_class { MR_EXPECT_EXACT, MR_EXPECT_SHAPED, MR_EXPECT_NATIVE };
/* One check of a preset: metric eq/ge/le target, relative tolerance. Bounds not given are NAN. */
struct mr_expectation {
    const char *metric;
    double eq, ge, le, tol;
    enum mr_expect_class cls;
    unsigned line;
};
/* The x-millrace block. */
struct mr_workload_extra {
    const char *source, *storage_model; /* "" if absent */
    uint32_t ranks;                     /* ranks the figures were taken with; 0: not stated */
    double scale;                       /* default down-scaling of the data set; 1: none */
    struct mr_strings scale_keep, notes;
    struct mr_expectation *expect;
    unsigned n_expect;
    const struct mr_yaml_node *variants; /* NAME: what differs, as in the x-millrace block itself; NULL: none */
};

/* Where a value came from. `where`: the file, the variable, or the override's key; line 0 when it has none. */
struct mr_value_origin {
    enum mr_origin kind;
    const char *where;
    unsigned line;
};

#define MR_WORKLOAD_SECTIONS_MAX 24

struct mr_workload {
    struct mr_conf_top top;
    struct mr_conf_model model;
    struct mr_conf_parallelism parallelism;
    struct mr_conf_transformer transformer;
    struct mr_conf_workflow workflow;
    struct mr_conf_dataset dataset;
    struct mr_conf_hdf5 hdf5;
    struct mr_conf_parquet parquet;
    struct mr_conf_reader reader;
    struct mr_conf_preprocess preprocess;
    struct mr_conf_train train;
    struct mr_conf_evaluation evaluation;
    struct mr_conf_checkpoint checkpoint;
    struct mr_conf_burst_buffer burst_buffer;
    struct mr_conf_ksm ksm;
    struct mr_conf_output output;
    struct mr_conf_output_metric output_metric;
    struct mr_conf_storage_section storage;
    struct mr_conf_storage_options storage_options;
    struct mr_conf_profiling profiling;
    struct mr_conf_metric metric;
    struct mr_conf_pattern pattern;

    struct mr_workload_extra extra;
    const char *name;        /* of the preset, or of the file without folder and ending; "" for none */
    const char *file;        /* path it was read from, or "" */
    struct mr_strings notes; /* one line each; printed as notes, and part of every result */
    struct mr_value_origin *origins[MR_WORKLOAD_SECTIONS_MAX]; /* by section index, then row index */
};

/* Whether a file, the environment or an override gave this key. */
bool mr_workload_is_set(const struct mr_workload *w, const char *section, const char *key);

/* The sections in file order. `table->section` is the dotted path ("model.parallelism"; "" is the top level). */
struct mr_workload_section {
    const struct mr_option_table *table;
    size_t offset; /* of the section's struct in struct mr_workload */
};
extern const struct mr_workload_section mr_workload_sections[]; /* ends with table NULL */

struct mr_workload_request {
    const char *workload;          /* preset name or file path; NULL or "" means defaults only, unless an override
                                      workload=NAME says otherwise */
    struct mr_strings search_path; /* folders with NAME.yaml or workload/NAME.yaml, first match wins */
    char *const *envp;             /* environ-like, or NULL */
    struct mr_strings overrides;   /* Hydra words */
    bool lenient;                  /* unknown keys become notes */
};

/* Its name: workload=NAME of the overrides, the last one wins, and an empty NAME is an error of mr_workload_resolve;
 * else `workload`; NULL for none. */
const char *mr_workload_chosen(const struct mr_workload_request *req);
/* Loads and resolves a workload. Strings live in the arena. Errors: MR_E_CONFIG with file:line as context, MR_E_LIMIT
 * for absurd files, -errno when the file cannot be read. */
int mr_workload_resolve(const struct mr_workload_request *req, struct mr_arena *a, struct mr_workload **out,
                        struct mr_error *err);
/* The same from memory, without search path; `name` stands for the file in messages. For tests and fuzzing. */
int mr_workload_parse(const char *text, size_t len, const char *name, bool lenient, struct mr_arena *a,
                      struct mr_workload **out, struct mr_error *err);
/* The workload with what its x-millrace.variants says of `name`; only sections, ranks and storage_model may differ.
 * -ENOENT (err untouched) when it has no such variant. */
int mr_workload_variant(const struct mr_workload *w, const char *name, struct mr_arena *a, struct mr_workload **out,
                        struct mr_error *err);
/* What this version cannot do with the workload (a format, a compression for that format): MR_E_UNSUPPORTED. */
int mr_workload_check_supported(const struct mr_workload *w, struct mr_error *err);

/* The file of a preset in the search path, or MR_E_CONFIG with the nearest name. A text with '/' or ending in .yaml or
 * .yml is a path. */
int mr_workload_find(const char *name, const struct mr_strings *search_path, struct mr_arena *a, const char **path,
                     struct mr_error *err);
/* Names of all presets in the search path, sorted, without duplicates. */
int mr_workload_list(const struct mr_strings *search_path, struct mr_arena *a, struct mr_strings *names,
                     struct mr_error *err);

/* {"dataset.format": {"value": "npz", "origin": "file", "where": "unet3d.yaml:17"}, ...}; NULL when out of memory. */
json_t *mr_workload_to_json(const struct mr_workload *w);
/* The workload that mr_workload_to_json wrote, as it was resolved then: no file, environment or trap is looked at
 * again. Secrets and the x-millrace block are not in it. Keys that are missing have their defaults, and
 * so have words that only a plug-in knows. */
int mr_workload_from_json(const json_t *config, struct mr_arena *a, struct mr_workload **out, struct mr_error *err);
/* The value of a row in what mr_workload_to_json wrote, as the text that the row takes; false when it has none, or one
 * longer than `cap`. */
bool mr_workload_json_text(const struct mr_option *o, const json_t *value, char *out, size_t cap);
/* The list as an array of texts. */
json_t *mr_strings_to_json(const struct mr_strings *list);
/* One value as text (secrets hidden) and its origin, e.g. "file unet3d.yaml:17"; for listings. */
void mr_workload_value_text(const struct mr_option *o, const void *obj, char *out, size_t cap);
void mr_workload_origin_text(const struct mr_value_origin *v, char *out, size_t cap);
const char *mr_origin_name(enum mr_origin o);

/* Seconds a distribution yields on average. */
double mr_dist_mean(const struct mr_dist *d);
unsigned mr_conf_datatype_bytes(enum mr_conf_datatype t);
const char *mr_conf_format_name(enum mr_conf_format f);
/* A format of a plug-in becomes a choice of dataset.format, numbered behind the built-in ones. `name` is kept. */
int mr_conf_format_add(const char *name, struct mr_error *err);

/* Who loads what the key `plugin` names, called for each path as soon as the key is seen, so that the other keys may
 * name what the plug-ins bring. This folder may not know stores and formats, hence the hook; without one the key is
 * refused. `from`: a file's author is not the user, an override's is. Whether it is loaded is the hook's decision; 0
 * without loading leaves the names unknown that it would bring. Set at the start. */
typedef int mr_workload_plugin_fn(const char *path, enum mr_origin from, struct mr_error *err);
void mr_workload_set_plugin_loader(mr_workload_plugin_fn *fn);
/* The access order by name, as <millrace/order.h> knows it. reader.order if set; else from the shuffle keys: both off
 * is sequential, only files is file, samples of a streaming loader (tensorflow with tfrecord) is buffer, else auto. */
const char *mr_workload_order_name(const struct mr_workload *w);
/* Bytes of one sample: of its fields if they are named, else record_dims x element if given, else record_length_bytes (a
 * mean, so not always whole). -1: the element type is unknown, or a sample beyond all bounds. */
double mr_workload_record_bytes(const struct mr_workload *w);
/* What is read of it: the fields that are. */
double mr_workload_read_bytes(const struct mr_workload *w);
/* Of an element, by the name that numpy or a framework has for it; 0: there is no such type. */
unsigned mr_conf_element_bytes(const char *name);

#endif
