/* Every key of a workload, one row each: DLIO's keys with DLIO's defaults, and a few of our own (marked "Millrace:").
 * Rows with MR_OPTF_NO_EFFECT are accepted because existing files carry them; their doc says why nothing changes. */
#include "conf/workload.h"

#include "base/common.h"

#include <errno.h>
#include <string.h>

#define BIG 9007199254740992.0 /* 2^53: counts beyond it are mistakes */
#define OPT(S, k, t, d, ...)                                                                                           \
    {                                                                                                                  \
        .key = #k, .type = MR_OPT_##t, .offset = offsetof(struct S, k), .def = d, __VA_ARGS__                          \
    }
#define TABLE(var, sect, S, text)                                                                                      \
    static const struct mr_option_table var##_table = {                                                                \
        .section = sect, .doc = text, .options = var##_rows, .struct_bytes = sizeof(struct S)}

static const char *const frameworks[] = {"tensorflow", "pytorch", "none", NULL};
static const char *const datatypes[] = {"int8", "uint8", "fp16", "bf16", "fp32", "fp64", NULL};
#define PLUGIN_FORMATS_MAX 64
static const char *formats[MR_CF_COUNT + PLUGIN_FORMATS_MAX + 1] = {
    "tfrecord", "hdf5",  "csv", "npz", "npy",       "jpeg",   "png", "indexed_binary", "mmap_indexed_binary",
    "json",     "jsonl", "tar", "raw", "synthetic", "parquet"};
static const char *const compressions[] = {"none", "gzip", "zip", "lzf", "bz2", "xz", "snappy", "lz4", "zstd", NULL};
static const char *const loaders[] = {"tensorflow", "pytorch", "dali", "native_dali",
                                      "synthetic",  "custom",  "none", NULL};
static const char *const shuffles[] = {"off", "seed", "random", NULL};
static const char *const peers[] = {"auto", "on", "off", NULL};
static const char *const orders[] = {"auto", "sequential", "torch", "cipher", "shard", "buffer", "file", NULL};
static const char *const read_types[] = {"on_demand", "memory", NULL};
static const char *const accesses[] = {"multi", "shared", "collective", "mpio", "posix", NULL};
static const char *const contexts[] = {"fork", "spawn", "forkserver", NULL};
static const char *const ckpt_types[] = {"rank_zero", "all_ranks", NULL};
static const char *const ckpt_modes[] = {"default", "subset", NULL};
static const char *const storages[] = {"local_fs", "s3", "aistore", NULL};
static const char *const units[] = {"sample", "file", "record", "none", NULL};
static const char *const profilers[] = {"iostat", "none", "darshan", "tensorboard", NULL};

static const char *const crops[] = {"none", "center", "random", "random_resized", NULL};
static const char *const preprocess_dtypes[] = {"uint8", "float32", NULL};
static const char *const layouts[] = {"hwc", "chw", NULL};

static const struct mr_option top_rows[] = {
    OPT(mr_conf_top, framework, ENUM, "tensorflow", .choices = frameworks, .flags = MR_OPTF_NO_EFFECT,
        .doc = "Framework the job is written in. A label here: one reader and one checkpoint writer serve all."),
    OPT(mr_conf_top, plugin, STRINGS, "[]",
        .doc = "Millrace: shared objects, or folders of them, with stores, formats, policies or checkpoint engines of "
               "yours; relative to the file this stands in. See 'millrace help plugins'.",
        .example = "[./my_format.so]"),
    MR_OPTION_END,
};
TABLE(top, "", mr_conf_top, "Top level");

static const struct mr_option model_rows[] = {
    OPT(mr_conf_model, name, STRING, "default", .doc = "Name of the model; a label."),
    OPT(mr_conf_model, type, STRING, "none",
        .doc = "'transformer' computes the checkpoint from the model's dimensions; any other type writes one blob of "
               "model_size_bytes.",
        .example = "transformer"),
    OPT(mr_conf_model, model_size_bytes, BYTES, "10240", .max = BIG, .alias = "model_size",
        .doc = "Bytes of model state in a checkpoint when the type is not 'transformer'."),
    OPT(mr_conf_model, model_datatype, ENUM, "fp16", .choices = datatypes,
        .doc = "Element type of the model's tensors."),
    OPT(mr_conf_model, optimizer_datatype, ENUM, "fp32", .choices = datatypes,
        .doc = "Element type of the optimizer's tensors."),
    OPT(mr_conf_model, num_layers, INT, "-1", .min = -1, .max = 1e6, .doc = "Transformer layers; -1 means none."),
    OPT(mr_conf_model, optimization_groups, UINTS, "[]",
        .doc =
            "Explicit lengths (elements) of the optimizer tensors each rank writes; overrides the transformer maths."),
    OPT(mr_conf_model, layer_parameters, UINTS, "[]",
        .doc = "Explicit lengths (elements) of the tensors of one layer on one tensor-parallel rank; overrides the "
               "transformer maths."),
    MR_OPTION_END,
};
TABLE(model, "model", mr_conf_model, "The model: what a checkpoint holds");

static const struct mr_option parallelism_rows[] = {
    OPT(mr_conf_parallelism, tensor, INT, "1", .min = 1, .max = 65536, .doc = "Tensor-parallel ranks."),
    OPT(mr_conf_parallelism, pipeline, INT, "1", .min = 1, .max = 65536, .doc = "Pipeline stages."),
    OPT(mr_conf_parallelism, data, INT, "-1", .min = -1, .max = 1e6,
        .doc = "Data-parallel replicas with checkpoint.mode 'subset'; -1: ranks / (tensor x pipeline)."),
    OPT(mr_conf_parallelism, zero_stage, INT, "0", .min = 0, .max = 3,
        .doc =
            "ZeRO stage: 0 one replica writes, 1 and 2 every rank writes its optimizer shard, 3 also its model shard."),
    MR_OPTION_END,
};
TABLE(parallelism, "model.parallelism", mr_conf_parallelism, "How the model is split over ranks");

static const struct mr_option transformer_rows[] = {
    OPT(mr_conf_transformer, vocab_size, INT, "32000", .min = 1, .max = 1e9, .doc = "Vocabulary entries."),
    OPT(mr_conf_transformer, hidden_size, INT, "2048", .min = 1, .max = 1e7, .doc = "Width of the model."),
    OPT(mr_conf_transformer, ffn_hidden_size, INT, "8192", .min = 1, .max = 1e8,
        .doc = "Width of the feed-forward part."),
    OPT(mr_conf_transformer, num_attention_heads, INT, "32", .min = 1, .max = 1e6, .doc = "Attention heads."),
    OPT(mr_conf_transformer, num_kv_heads, INT, "8", .min = 1, .max = 1e6, .doc = "Key/value heads."),
    MR_OPTION_END,
};
TABLE(transformer, "model.transformer", mr_conf_transformer, "Dimensions of a transformer");

static const struct mr_option workflow_rows[] = {
    OPT(mr_conf_workflow, generate_data, BOOL, "false", .doc = "Generate the data set first."),
    OPT(mr_conf_workflow, train, BOOL, "true", .doc = "Run the training phase."),
    OPT(mr_conf_workflow, evaluation, BOOL, "false", .doc = "Run evaluations between epochs."),
    OPT(mr_conf_workflow, checkpoint, BOOL, "false",
        .doc = "Write checkpoints. With train off: checkpoint-only mode, num_checkpoints_write and _read of them."),
    OPT(mr_conf_workflow, profiling, BOOL, "false", .flags = MR_OPTF_NO_EFFECT,
        .doc = "External profilers are not started from here; the run measures itself."),
    OPT(mr_conf_workflow, debug, BOOL, "false", .flags = MR_OPTF_NO_EFFECT,
        .doc = "Of early DLIO; the command has --debug."),
    OPT(mr_conf_workflow, query, STRING, "", .flags = MR_OPTF_NO_EFFECT,
        .doc = "Only DLIO's query program reads it; 'millrace run --dry-run' prints every key."),
    MR_OPTION_END,
};
TABLE(workflow, "workflow", mr_conf_workflow, "Which phases run");

static const struct mr_option dataset_rows[] = {
    OPT(mr_conf_dataset, format, ENUM, "tfrecord", .choices = formats, .doc = "File format of the data set."),
    OPT(mr_conf_dataset, num_files_train, INT, "8", .min = 0, .max = BIG,
        .doc = "Training files: made by generation, and the first so many of a larger set."),
    OPT(mr_conf_dataset, num_files_eval, INT, "0", .min = 0, .max = BIG, .doc = "Evaluation files."),
    OPT(mr_conf_dataset, num_samples_per_file, INT, "1", .min = 1, .max = BIG, .doc = "Samples in each file."),
    OPT(mr_conf_dataset, record_length_bytes, DOUBLE, "65536", .min = 1, .max = BIG, .flags = MR_OPTF_SIZE,
        .alias = "record_length", .doc = "Mean bytes of a sample.", .example = "114660.07 or 256KiB"),
    OPT(mr_conf_dataset, record_length_bytes_stdev, DOUBLE, "0", .min = 0, .max = BIG, .flags = MR_OPTF_SIZE,
        .alias = "record_length_stdev,record_length_std",
        .doc = "Standard deviation of the sample size, met per sample."),
    OPT(mr_conf_dataset, record_length_bytes_resize, DOUBLE, "0", .min = 0, .max = BIG, .flags = MR_OPTF_SIZE,
        .alias = "record_length_resize", .doc = "Bytes of the sample that the trainer gets; 0: as read."),
    OPT(mr_conf_dataset, record_dims, DIMS, "[]", .doc = "Shape of a sample; replaces record_length_bytes.",
        .example = "[3, 224, 224]"),
    OPT(mr_conf_dataset, record_element_type, STRING, "uint8", .doc = "Element type of a sample, as numpy names it."),
    OPT(mr_conf_dataset, record_element_bytes, INT, "4", .min = 1, .max = 16, .flags = MR_OPTF_NO_EFFECT,
        .doc = "Follows from record_element_type."),
    OPT(mr_conf_dataset, data_folder, STRING, "./data/", .doc = "Folder of the data set."),
    OPT(mr_conf_dataset, file_prefix, STRING, "img", .doc = "Start of the file names."),
    OPT(mr_conf_dataset, num_subfolders_train, INT, "0", .min = 0, .max = BIG,
        .doc = "Spread the training files over so many subfolders."),
    OPT(mr_conf_dataset, num_subfolders_eval, INT, "0", .min = 0, .max = BIG,
        .doc = "Spread the evaluation files over so many subfolders."),
    OPT(mr_conf_dataset, compression, ENUM, "none", .choices = compressions,
        .doc = "Compression of the files; what the format does not know is refused."),
    OPT(mr_conf_dataset, compression_level, INT, "4", .min = 0, .max = 22, .doc = "Effort of the compression."),
    OPT(mr_conf_dataset, enable_chunking, BOOL, "false",
        .doc = "Old way to ask for chunked HDF5; sets dataset.hdf5.chunk_dims from chunk_size."),
    OPT(mr_conf_dataset, chunk_size, BYTES, "0", .max = BIG, .doc = "Bytes of an HDF5 chunk; see enable_chunking."),
    OPT(mr_conf_dataset, keep_files, BOOL, "true", .doc = "Keep the data set at the end."),
    OPT(mr_conf_dataset, generation_buffer_size, BYTES, "2147483648", .max = BIG, .flags = MR_OPTF_NO_EFFECT,
        .doc = "The generator streams samples in small pieces and needs no such buffer."),
    OPT(mr_conf_dataset, seed, INT, "10", .min = 0, .max = BIG, .doc = "Millrace: seed of sizes and content."),
    OPT(mr_conf_dataset, compressibility, DOUBLE, "0", .min = 0, .max = 1,
        .doc = "Millrace: share of the content that a compressor finds.", .example = "50%"),
    OPT(mr_conf_dataset, skip_listing, BOOL, "false", .flags = MR_OPTF_NO_EFFECT,
        .doc = "Folders are never listed: the manifest knows the files."),
    OPT(mr_conf_dataset, write_threads, INT, "1", .min = 0, .max = 4096, .flags = MR_OPTF_NO_EFFECT,
        .doc = "The number of generator threads belongs to the machine: 'millrace gen --threads'."),
    OPT(mr_conf_dataset, fields, STRINGS, "[]",
        .doc = "Millrace: what a sample is made of, in place of record_length_bytes and record_dims: "
               "name:dtype:shape[:role]; shape '-' is one number, roles are input, target, weight and other.",
        .example = "[data:f4:16x768x1152, labels:i4:768x1152:target]"),
    OPT(mr_conf_dataset, post_generation_settle_seconds, DOUBLE, "0", .min = 0, .max = 1e6, .flags = MR_OPTF_NO_EFFECT,
        .doc = "Generating and training are separate commands, so there is nothing to wait for."),
    MR_OPTION_END,
};
TABLE(dataset, "dataset", mr_conf_dataset, "The data set");

static const struct mr_option hdf5_rows[] = {
    OPT(mr_conf_hdf5, chunk_dims, DIMS, "[]", .doc = "Shape of an HDF5 chunk inside a sample; empty: contiguous."),
    OPT(mr_conf_hdf5, num_dset_per_record, INT, "1", .min = 1, .max = 65536, .flags = MR_OPTF_NO_EFFECT,
        .doc = "A sample is never split: it is one row of one HDF5 data set."),
    OPT(mr_conf_hdf5, max_shape, DIMS, "[]", .flags = MR_OPTF_NO_EFFECT,
        .doc = "HDF5 data sets are written with the shape they have and cannot grow."),
    MR_OPTION_END,
};
TABLE(hdf5, "dataset.hdf5", mr_conf_hdf5, "Layout of HDF5 files");

static const struct mr_option parquet_rows[] = {
    OPT(mr_conf_parquet, columns, STRING, "[]",
        .doc = "List of maps: name, dtype, size, read, count; empty: one column of bytes."),
    OPT(mr_conf_parquet, row_group_size, INT, "1024", .min = 1, .max = BIG, .doc = "Rows in a row group."),
    OPT(mr_conf_parquet, read_mode, STRING, "row_group",
        .doc = "Columns are read by pages and decoded. raw (Millrace): the chunks of the columns that are read, row "
               "group by "
               "row group, are read and not decoded; sets pattern.unit and pattern.sequential_samples.",
        .example = "raw"),
    MR_OPTION_END,
};
TABLE(parquet, "dataset.parquet", mr_conf_parquet, "Parquet (MLPerf Storage v3.0)");

static const struct mr_option reader_rows[] = {
    OPT(mr_conf_reader, data_loader, ENUM, "tensorflow", .choices = loaders,
        .doc = "Loader whose access order and batching is emulated."),
    OPT(mr_conf_reader, batch_size, INT, "1", .min = 1, .max = 1073741824, .doc = "Samples per step and rank."),
    OPT(mr_conf_reader, batch_size_eval, INT, "1", .min = 1, .max = 1073741824,
        .doc = "Samples per evaluation step and rank."),
    OPT(mr_conf_reader, read_threads, INT, "1", .min = 0, .max = 4096,
        .doc = "Parallel readers per rank; 0: the trainer reads itself."),
    OPT(mr_conf_reader, computation_threads, INT, "1", .min = 0, .max = 4096, .flags = MR_OPTF_NO_EFFECT,
        .doc = "Whoever reads a sample decodes and preprocesses it, too; reader.read_threads counts them."),
    OPT(mr_conf_reader, prefetch_size, INT, "2", .min = 0, .max = 1e6,
        .doc = "Batches kept ready ahead of the trainer."),
    OPT(mr_conf_reader, read_type, ENUM, "on_demand", .choices = read_types,
        .doc = "'memory' keeps what was read for the next epochs."),
    OPT(mr_conf_reader, file_access, ENUM, "multi", .choices = accesses,
        .doc = "Which rank reads what, when given. multi: files of its own. shared: a contiguous part of all samples. "
               "collective: "
               "pattern.collective_readers ranks read and broadcast. mpio: the same through MPI-IO. posix: as the "
               "order says."),
    OPT(mr_conf_reader, file_shuffle, ENUM, "off", .choices = shuffles,
        .doc = "Order of the files: off, seed (the same each run) or random (another each run)."),
    OPT(mr_conf_reader, sample_shuffle, ENUM, "off", .choices = shuffles,
        .doc = "Order of the samples: off, seed (the same each run) or random (another each run)."),
    OPT(mr_conf_reader, shuffle_size, INT, "1024", .min = 1, .max = BIG,
        .doc = "Samples in the shuffle buffer of streaming formats."),
    OPT(mr_conf_reader, transfer_size, BYTES, "0", .max = BIG, .doc = "Bytes of one read call; 0: the reader chooses."),
    OPT(mr_conf_reader, preprocess_time, DIST, "0", .max = 1e6, .doc = "Emulated preprocessing of one sample."),
    OPT(mr_conf_reader, preprocess_time_stdev, DOUBLE, "0", .min = 0, .max = 1e6,
        .doc = "Makes preprocess_time a normal distribution (seconds)."),
    OPT(mr_conf_reader, pin_memory, BOOL, "true", .flags = MR_OPTF_NO_EFFECT, .doc = "There is no GPU to copy to."),
    OPT(mr_conf_reader, dont_use_mmap, BOOL, "false", .flags = MR_OPTF_NO_EFFECT,
        .doc = "A switch of DALI's own readers; the storage backend decides about mmap here."),
    OPT(mr_conf_reader, odirect, BOOL, "false", .doc = "Read past the page cache (O_DIRECT), for every format."),
    OPT(mr_conf_reader, multiprocessing_context, ENUM, "fork", .choices = contexts, .flags = MR_OPTF_NO_EFFECT,
        .doc = "Readers are threads, not Python processes."),
    OPT(mr_conf_reader, reader_classname, STRING, "", .flags = MR_OPTF_NO_EFFECT,
        .doc = "Names a Python class of DLIO; such plug-ins are not loaded."),
    OPT(mr_conf_reader, data_loader_classname, STRING, "", .flags = MR_OPTF_NO_EFFECT,
        .doc = "Names a Python class of DLIO; such plug-ins are not loaded."),
    OPT(mr_conf_reader, data_loader_sampler, STRING, "", .flags = MR_OPTF_NO_EFFECT,
        .doc = "DLIO's iterative or index sampler; reader.order says what is read when."),
    OPT(mr_conf_reader, transformed_record_dims, DIMS, "[]", .flags = MR_OPTF_NO_EFFECT,
        .doc = "DLIO hands a constant array of this shape on; here the trainer gets what was read (see "
               "reader.preprocess)."),
    OPT(mr_conf_reader, transformed_record_element_type, STRING, "uint8", .flags = MR_OPTF_NO_EFFECT,
        .doc = "DLIO hands a constant array of this type on; here the trainer gets what was read (see "
               "reader.preprocess)."),
    OPT(mr_conf_reader, order, ENUM, "auto", .choices = orders,
        .doc = "Millrace: access order; auto follows from the shuffle keys and the loader. The window of buffer is "
               "shuffle_size."),
    OPT(mr_conf_reader, drop_last, BOOL, "true",
        .doc = "Millrace: leave out the last, incomplete batch (as DLIO does); off: it is read as a smaller step."),
    OPT(mr_conf_reader, fields, STRINGS, "[]",
        .doc = "Millrace: the fields that are read, by their names; '*': all but role other. Empty: so, too, where the "
               "workload names the set's fields, else the primary field.",
        .example = "[data, labels]"),
    OPT(mr_conf_reader, policy, STRING, "",
        .doc = "Millrace: who reads what when and what stays near: naive, staging, lbann-dynamic, nopfs, millrace, or "
               "perfect "
               "(prepared batches, not the order's). Empty: millrace with reader.tiers, else staging, or naive without "
               "reader.read_threads.",
        .example = "millrace"),
    OPT(mr_conf_reader, tiers, STRING, "",
        .doc = "Millrace: what a node may use to keep samples in, with a policy that does. Empty: auto if there is "
               "such a policy.",
        .example = "'ram=2GiB,ssd=/nvme/cache:100GiB'"),
    OPT(mr_conf_reader, peers, ENUM, "auto", .choices = peers,
        .doc = "Millrace: nodes ask each other for samples before they read the source; auto: where there are several "
               "and the transport is there."),
    MR_OPTION_END,
};
TABLE(reader, "reader", mr_conf_reader, "How samples are read (also written data_reader)");

static const struct mr_option preprocess_rows[] = {
    OPT(mr_conf_preprocess, crop, ENUM, "none", .choices = crops,
        .doc = "Part of the picture that is taken: all, crop_size from the middle or from anywhere, or a random part "
               "that is then resized "
               "to size."),
    OPT(mr_conf_preprocess, crop_size, DIMS, "[]", .doc = "Height and width of the part for center and random.",
        .example = "[224, 224]"),
    OPT(mr_conf_preprocess, scale_min, DOUBLE, "0.08", .min = 0.000001, .max = 1,
        .doc = "random_resized: smallest share of the area."),
    OPT(mr_conf_preprocess, scale_max, DOUBLE, "1", .min = 0.000001, .max = 1,
        .doc = "random_resized: largest share of the area."),
    OPT(mr_conf_preprocess, ratio_min, DOUBLE, "0.75", .min = 0.001, .max = 1000,
        .doc = "random_resized: smallest width over height."),
    OPT(mr_conf_preprocess, ratio_max, DOUBLE, "1.3333333333333333", .min = 0.001, .max = 1000,
        .doc = "random_resized: largest width over height."),
    OPT(mr_conf_preprocess, size, DIMS, "[]",
        .doc = "Height and width to which the part is resized (bilinear); empty: as it is.", .example = "[224, 224]"),
    OPT(mr_conf_preprocess, flip, DOUBLE, "0", .min = 0, .max = 1,
        .doc = "Probability that left and right change places."),
    OPT(mr_conf_preprocess, dtype, ENUM, "uint8", .choices = preprocess_dtypes,
        .doc = "Elements of the result: bytes, or (value / 255 - mean) / stdev."),
    OPT(mr_conf_preprocess, mean, STRINGS, "[]", .doc = "Mean of each channel, of values from 0 to 1; empty: 0.",
        .example = "[0.485, 0.456, 0.406]"),
    OPT(mr_conf_preprocess, stdev, STRINGS, "[]", .doc = "Standard deviation of each channel; empty: 1.",
        .example = "[0.229, 0.224, 0.225]"),
    OPT(mr_conf_preprocess, layout, ENUM, "hwc", .choices = layouts,
        .doc = "Rows of pixels (hwc) or one plane per channel (chw)."),
    MR_OPTION_END,
};
TABLE(preprocess, "reader.preprocess", mr_conf_preprocess, "Real preprocessing of pictures (Millrace)");

static const struct mr_option train_rows[] = {
    OPT(mr_conf_train, epochs, INT, "1", .min = 1, .max = 1e9, .doc = "Passes over the data set."),
    OPT(mr_conf_train, computation_time, DIST, "0", .max = 1e6, .doc = "Compute time of one step.", .example = "0.323"),
    OPT(mr_conf_train, computation_time_stdev, DOUBLE, "0", .min = 0, .max = 1e6,
        .doc = "Makes computation_time a normal distribution (seconds)."),
    OPT(mr_conf_train, total_training_steps, INT, "-1", .min = -1, .max = BIG,
        .doc = "Steps of the whole run; 0 and -1: no limit."),
    OPT(mr_conf_train, seed, INT, "123", .min = 0, .max = BIG, .doc = "Seed of the access order."),
    OPT(mr_conf_train, seed_change_epoch, BOOL, "true", .doc = "Another order in every epoch."),
    OPT(mr_conf_train, allreduce_bytes, BYTES, "0", .max = 1e12,
        .doc = "Millrace: bytes summed over all ranks after every step, as gradients are; 0: the ranks only meet.",
        .example = "102MB"),
    MR_OPTION_END,
};
TABLE(train, "train", mr_conf_train, "The training phase");

static const struct mr_option evaluation_rows[] = {
    OPT(mr_conf_evaluation, eval_time, DIST, "0", .max = 1e6, .doc = "Compute time of one evaluation step."),
    OPT(mr_conf_evaluation, eval_time_stdev, DOUBLE, "0", .min = 0, .max = 1e6,
        .doc = "Makes eval_time a normal distribution (seconds)."),
    OPT(mr_conf_evaluation, eval_after_epoch, INT, "1", .min = 1, .max = 1e9,
        .doc = "Epoch after which the first evaluation runs."),
    OPT(mr_conf_evaluation, epochs_between_evals, INT, "1", .min = 1, .max = 1e9,
        .doc = "Epochs from one evaluation to the next."),
    MR_OPTION_END,
};
TABLE(evaluation, "evaluation", mr_conf_evaluation, "Evaluations between epochs");

static const struct mr_option checkpoint_rows[] = {
    OPT(mr_conf_checkpoint, checkpoint_folder, STRING, "./checkpoints/", .doc = "Folder of the checkpoints."),
    OPT(mr_conf_checkpoint, checkpoint_after_epoch, INT, "1", .min = 1, .max = 1e9,
        .doc = "Epoch after which the first checkpoint is written."),
    OPT(mr_conf_checkpoint, epochs_between_checkpoints, INT, "1", .min = 1, .max = 1e9,
        .doc = "Epochs from one checkpoint to the next."),
    OPT(mr_conf_checkpoint, steps_between_checkpoints, INT, "-1", .min = -1, .max = BIG,
        .doc = "Steps from one checkpoint to the next; replaces the schedule by epochs; -1: by epochs."),
    OPT(mr_conf_checkpoint, type, ENUM, "rank_zero", .choices = ckpt_types,
        .doc = "Who writes a model that is not a transformer: rank 0 or every rank. For transformers the ZeRO stage "
               "decides."),
    OPT(mr_conf_checkpoint, fsync, BOOL, "false",
        .doc = "Flush every checkpoint file to the device before it counts as written."),
    OPT(mr_conf_checkpoint, recovery_rank_shift, BOOL, "false",
        .doc = "Read back another node's files, not one's own."),
    OPT(mr_conf_checkpoint, rank_sync, BOOL, "false", .doc = "Wait for all ranks inside the timed region."),
    OPT(mr_conf_checkpoint, time_between_checkpoints, DOUBLE, "-1", .min = -1, .max = 1e6,
        .doc = "Pause between checkpoints in checkpoint-only mode (seconds); negative: none."),
    OPT(mr_conf_checkpoint, num_checkpoints_write, INT, "-1", .min = -1, .max = 1e9,
        .doc = "Checkpoints written in checkpoint-only mode."),
    OPT(mr_conf_checkpoint, num_checkpoints_read, INT, "-1", .min = -1, .max = 1e9,
        .doc = "Checkpoints read back in checkpoint-only mode."),
    OPT(mr_conf_checkpoint, mode, ENUM, "default", .choices = ckpt_modes,
        .doc = "'subset': fewer ranks than the model needs write their part; see model.parallelism.data."),
    OPT(mr_conf_checkpoint, randomize_tensor, BOOL, "true", .doc = "Random tensor content instead of ones."),
    OPT(mr_conf_checkpoint, checkpoint_mechanism_classname, STRING, "", .flags = MR_OPTF_NO_EFFECT,
        .doc = "Names a Python class of DLIO; such plug-ins are not loaded."),
    OPT(mr_conf_checkpoint, engine, STRING, "sync",
        .doc = "Millrace: what writes the checkpoints: sync, async (written behind), burst (sync through "
               "checkpoint.burst_buffer), null (keeps nothing), or an engine of a plug-in.",
        .example = "null"),
    OPT(mr_conf_checkpoint, files, UINTS, "[]",
        .doc = "Millrace: bytes of each file of a checkpoint, where the application's own files are known; empty: one "
               "blob of "
               "model.model_size_bytes, as the framework writes it.",
        .example = "[7000000, 32000000, 5000]"),
    MR_OPTION_END,
};
TABLE(checkpoint, "checkpoint", mr_conf_checkpoint, "Checkpoints");

static const struct mr_option burst_buffer_rows[] = {
    OPT(mr_conf_burst_buffer, folder, STRING, "",
        .doc = "Millrace: fast folder that checkpoints are written to first; training goes on while they are copied to "
               "checkpoint_folder. All ranks must see it; empty: none.",
        .example = "/nvme/ckpt"),
    OPT(mr_conf_burst_buffer, store, STRING, "posix",
        .doc = "Millrace: storage stack of the burst buffer; that of checkpoint_folder is --checkpoint-store.",
        .example = "throttle(bandwidth=1603MB):posix"),
    OPT(mr_conf_burst_buffer, capacity, BYTES, "0", .max = BIG,
        .doc = "Millrace: bytes of checkpoints that may wait in the burst buffer; one that does not fit waits for the "
               "copying. 0: "
               "what its file system has free."),
    MR_OPTION_END,
};
TABLE(burst_buffer, "checkpoint.burst_buffer", mr_conf_burst_buffer, "Burst buffer for checkpoints (Millrace)");

#define KSM_DOC "Merging identical pages is a way to hold huge models in RAM; checkpoints are generated in pieces here."
static const struct mr_option ksm_rows[] = {
    OPT(mr_conf_ksm, madv_mergeable_id, INT, "12", .max = 1e6, .flags = MR_OPTF_NO_EFFECT, .doc = KSM_DOC),
    OPT(mr_conf_ksm, high_ram_trigger, DOUBLE, "30", .max = 1e6, .flags = MR_OPTF_NO_EFFECT, .doc = KSM_DOC),
    OPT(mr_conf_ksm, low_ram_exit, DOUBLE, "15", .max = 1e6, .flags = MR_OPTF_NO_EFFECT, .doc = KSM_DOC),
    OPT(mr_conf_ksm, await_time, DOUBLE, "200", .max = 1e6, .flags = MR_OPTF_NO_EFFECT, .doc = KSM_DOC),
    MR_OPTION_END,
};
TABLE(ksm, "checkpoint.ksm", mr_conf_ksm, "Kernel same-page merging (no effect)");

static const struct mr_option output_rows[] = {
    OPT(mr_conf_output, folder, STRING, "", .doc = "Folder of the results; empty: a new one per run."),
    OPT(mr_conf_output, log_file, STRING, "dlio.log", .flags = MR_OPTF_NO_EFFECT,
        .doc = "Messages go to standard error; redirect them."),
    MR_OPTION_END,
};
TABLE(output, "output", mr_conf_output, "Results");

static const struct mr_option output_metric_rows[] = {
    OPT(mr_conf_output_metric, exclude_start_steps, INT, "1", .min = 0, .max = 1e9,
        .doc = "Warm-up: steps at the start of the run left out of AU; in DLIO's own figures, of every block."),
    OPT(mr_conf_output_metric, exclude_end_steps, INT, "0", .min = 0, .max = 1e9,
        .doc = "Steps at the end of the run left out of AU; in DLIO's own figures, of an epoch."),
    MR_OPTION_END,
};
TABLE(output_metric, "output.metric", mr_conf_output_metric, "What counts as warm-up");

static const struct mr_option storage_rows[] = {
    OPT(mr_conf_storage_section, storage_type, ENUM, "local_fs", .choices = storages, .doc = "Kind of storage."),
    OPT(mr_conf_storage_section, storage_root, STRING, "./",
        .doc = "Folder that dataset.data_folder and checkpoint.checkpoint_folder are relative to, unless they begin "
               "with '/'; with storage_type s3 the bucket, or BUCKET/PREFIX."),
    MR_OPTION_END,
};
TABLE(storage, "storage", mr_conf_storage_section, "Where the data lies");

#define OBJECT_DOC "Belongs to the object-store libraries of MLPerf Storage v3.0, which are not used here."
static const struct mr_option storage_options_rows[] = {
    OPT(mr_conf_storage_options, access_key_id, STRING, "", .flags = MR_OPTF_SECRET,
        .doc = "Key of the object store, unless AWS_ACCESS_KEY_ID is set; never printed."),
    OPT(mr_conf_storage_options, secret_access_key, STRING, "", .flags = MR_OPTF_SECRET,
        .doc = "Secret of the object store, with the key; never printed."),
    OPT(mr_conf_storage_options, endpoint_url, STRING, "",
        .doc = "Address of the object store, unless AWS_ENDPOINT_URL is set."),
    OPT(mr_conf_storage_options, region, STRING, "us-east-1",
        .doc = "Region of the object store, unless AWS_REGION is set."),
    OPT(mr_conf_storage_options, s3_force_path_style, BOOL, "false", .flags = MR_OPTF_NO_EFFECT,
        .doc = "The bucket is in the path for every server but AWS; --store 's3(addressing=...)' chooses."),
    OPT(mr_conf_storage_options, s3_max_attempts, INT, "5", .min = 1, .max = 1000, .flags = MR_OPTF_NO_EFFECT,
        .doc = "Repeats end with a deadline, not with a number: --store 's3(deadline=60s)'."),
    OPT(mr_conf_storage_options, storage_library, STRING, "", .flags = MR_OPTF_NO_EFFECT, .doc = OBJECT_DOC),
    OPT(mr_conf_storage_options, prefetch_workers, INT, "0", .min = 0, .max = 1e6, .flags = MR_OPTF_NO_EFFECT,
        .doc = OBJECT_DOC),
    OPT(mr_conf_storage_options, prefetch_window, INT, "0", .min = 0, .max = BIG, .flags = MR_OPTF_NO_EFFECT,
        .doc = OBJECT_DOC),
    OPT(mr_conf_storage_options, simulate_io, BOOL, "false", .flags = MR_OPTF_NO_EFFECT, .doc = OBJECT_DOC),
    MR_OPTION_END,
};
TABLE(storage_options, "storage.storage_options", mr_conf_storage_options, "Object store access");

static const struct mr_option profiling_rows[] = {
    OPT(mr_conf_profiling, profiler, ENUM, "iostat", .choices = profilers, .flags = MR_OPTF_NO_EFFECT,
        .doc = "External profilers are not started from here; the run measures itself."),
    OPT(mr_conf_profiling, iostat_devices, STRINGS, "[]", .flags = MR_OPTF_NO_EFFECT,
        .doc = "External profilers are not started from here; the run measures itself."),
    MR_OPTION_END,
};
TABLE(profiling, "profiling", mr_conf_profiling, "Profilers (no effect)");

static const struct mr_option metric_rows[] = {
    OPT(mr_conf_metric, au, DOUBLE, "0.9", .min = 0, .max = 1,
        .doc = "Accelerator utilisation that the run must reach."),
    MR_OPTION_END,
};
TABLE(metric, "metric", mr_conf_metric, "Pass mark");

static const struct mr_option pattern_rows[] = {
    OPT(mr_conf_pattern, unit, ENUM, "sample", .choices = units,
        .doc = "sample: by the loader. file: each file from its start on, in pieces of transfer_size. record: each "
               "sample where "
               "it lies, in pieces. none: no data is read."),
    OPT(mr_conf_pattern, same_offsets, BOOL, "false", .doc = "Every rank reads what rank 0 reads (no sharding)."),
    OPT(mr_conf_pattern, collective_readers, INT, "1", .min = 1, .max = 1e6,
        .doc = "With reader.file_access collective or mpio: ranks that read for all others."),
    OPT(mr_conf_pattern, sequential_samples, INT, "1", .min = 1, .max = BIG,
        .doc = "record: samples read in sequence before the next jump; a shuffle moves runs of so many. Of samples of "
               "several fields a run is read field by field."),
    OPT(mr_conf_pattern, file_passes, INT, "0", .min = 0, .max = BIG,
        .doc = "Files read by all ranks together, each pass counted; 0: every file once per epoch."),
    OPT(mr_conf_pattern, header_reads, INT, "0", .min = 0, .max = 1e9,
        .doc = "Reads at the front of the file before anything else."),
    OPT(mr_conf_pattern, header_bytes, BYTES, "0", .max = BIG, .doc = "Bytes of one header read."),
    OPT(mr_conf_pattern, header_file, BYTES, "0", .max = BIG,
        .doc = "Size of a file apart that the header reads go to; 0: the first file of the data set."),
    OPT(mr_conf_pattern, header_consecutive, DOUBLE, "1", .min = 0, .max = 1,
        .doc = "Share of the header reads that start where the last one ended; the others go back to the front."),
    OPT(mr_conf_pattern, part, DOUBLE, "1", .min = 0.000001, .max = 1,
        .doc = "Share of each file that is read, or of each record (of several fields: of the first one), from its "
               "front."),
    OPT(mr_conf_pattern, pieces, UINTS, "[]",
        .doc = "Sizes of the reads inside a file or record, in turn; empty: transfer_size."),
    OPT(mr_conf_pattern, outputs, UINTS, "[]", .doc = "Files each rank writes at the end, one write each."),
    OPT(mr_conf_pattern, slowdown, DOUBLE, "1", .min = 1, .max = 1e6,
        .doc = "'millrace workloads check' runs the emulated storage and the compute time this much slower and divides "
               "the measured times by it, so that a "
               "fast device can be emulated on a busy machine."),
    MR_OPTION_END,
};
TABLE(pattern, "pattern", mr_conf_pattern, "Access pattern of the original (Millrace)");

const struct mr_workload_section mr_workload_sections[] = {
    {&top_table, offsetof(struct mr_workload, top)},
    {&model_table, offsetof(struct mr_workload, model)},
    {&parallelism_table, offsetof(struct mr_workload, parallelism)},
    {&transformer_table, offsetof(struct mr_workload, transformer)},
    {&workflow_table, offsetof(struct mr_workload, workflow)},
    {&dataset_table, offsetof(struct mr_workload, dataset)},
    {&hdf5_table, offsetof(struct mr_workload, hdf5)},
    {&parquet_table, offsetof(struct mr_workload, parquet)},
    {&reader_table, offsetof(struct mr_workload, reader)},
    {&preprocess_table, offsetof(struct mr_workload, preprocess)},
    {&train_table, offsetof(struct mr_workload, train)},
    {&evaluation_table, offsetof(struct mr_workload, evaluation)},
    {&checkpoint_table, offsetof(struct mr_workload, checkpoint)},
    {&burst_buffer_table, offsetof(struct mr_workload, burst_buffer)},
    {&ksm_table, offsetof(struct mr_workload, ksm)},
    {&output_table, offsetof(struct mr_workload, output)},
    {&output_metric_table, offsetof(struct mr_workload, output_metric)},
    {&storage_table, offsetof(struct mr_workload, storage)},
    {&storage_options_table, offsetof(struct mr_workload, storage_options)},
    {&profiling_table, offsetof(struct mr_workload, profiling)},
    {&metric_table, offsetof(struct mr_workload, metric)},
    {&pattern_table, offsetof(struct mr_workload, pattern)},
    {NULL, 0},
};
_Static_assert(MR_ARRAY_LEN(mr_workload_sections) <= MR_WORKLOAD_SECTIONS_MAX, "origins[] is too small");

const char *mr_conf_format_name(enum mr_conf_format f)
{
    return formats[f];
}

int mr_conf_format_add(const char *name, struct mr_error *err)
{
    size_t n = 0;
    while (formats[n])
        if (!strcmp(formats[n++], name))
            return mr_error_plain(err, -EEXIST, "there is a format '%s' already", name);
    if (n + 1 >= MR_ARRAY_LEN(formats))
        return mr_error_plain(err, MR_E_LIMIT, "cannot add format '%s': %d are registered", name, PLUGIN_FORMATS_MAX);
    formats[n] = name;
    return 0;
}

const char *mr_workload_order_name(const struct mr_workload *w)
{
    const struct mr_conf_reader *r = &w->reader;
    if (r->order != MR_CO_AUTO)
        return orders[r->order];
    if (r->sample_shuffle == MR_SHUFFLE_OFF)
        return r->file_shuffle == MR_SHUFFLE_OFF ? "sequential" : "file";
    if (r->data_loader == MR_DL_TENSORFLOW && w->dataset.format == MR_CF_TFRECORD)
        return "buffer";
    return "auto";
}

unsigned mr_conf_datatype_bytes(enum mr_conf_datatype t)
{
    static const unsigned bytes[] = {1, 1, 2, 2, 4, 8};
    return bytes[t];
}
