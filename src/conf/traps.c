/* DLIO's traps. Its files carry keys that it ignores, inverts or crashes on; here each means what its author meant, and
 * one note says so. doc/reference/configuration.md has the table; keep the two together. */
#include "conf/workload_apply.h"
#include "conf/sample_fields.h"

#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_false(const char *t)
{
    return !strcasecmp(t, "off") || !strcasecmp(t, "false") || !strcasecmp(t, "no");
}

static bool is_true(const char *t)
{
    return !strcasecmp(t, "on") || !strcasecmp(t, "true") || !strcasecmp(t, "yes");
}

/* YAML 1.1 turns a bare off into false; DLIO then stops with "False is not a valid Shuffle". */
static const char *shuffle_text(struct mr_applier *ap, const char *key, const char *text)
{
    if (is_false(text)) {
        if (ap->kind == MR_ORIGIN_FILE && !ap->quoted)
            mr_workload_note(ap->w, ap->arena,
                             "reader.%s: %s means off (without quotes, YAML makes it false and DLIO stops)", key, text);
        else if (ap->kind == MR_ORIGIN_FILE && !strcmp(key, "file_shuffle"))
            mr_workload_note(ap->w, ap->arena,
                             "reader.file_shuffle: off leaves the files in order (DLIO shuffles them)");
        return "off";
    }
    if (is_true(text)) {
        mr_workload_note(ap->w, ap->arena, "reader.%s: %s is taken as seed, a shuffle that repeats from run to run",
                         key, text);
        return "seed";
    }
    return text;
}

static const char *storage_text(struct mr_applier *ap, const char *text)
{
    if (!strcasecmp(text, "parallel_fs")) {
        mr_workload_note(ap->w, ap->arena,
                         "storage.storage_type parallel_fs is taken as local_fs, a mounted file system "
                         "(DLIO accepts it and then stops)");
        return "local_fs";
    }
    if (!strcasecmp(text, "direct_fs")) {
        mr_workload_note(ap->w, ap->arena, "storage.storage_type direct_fs is taken as local_fs with reader.odirect");
        ap->w->reader.odirect = true;
        struct mr_value_origin *o = mr_workload_origin(ap->w, "reader", "odirect");
        *o = (struct mr_value_origin){.kind = MR_ORIGIN_DERIVED, .where = "storage.storage_type"};
        return "local_fs";
    }
    return text;
}

const char *mr_trap_text(struct mr_applier *ap, const char *section, const char *key, const char *text)
{
    if (!strcmp(section, "reader") && (!strcmp(key, "file_shuffle") || !strcmp(key, "sample_shuffle")))
        return shuffle_text(ap, key, text);
    if (!strcmp(section, "reader") && !strcmp(key, "transfer_size") && !strcasecmp(text, "none"))
        return "0";
    if (!strcmp(section, "storage") && !strcmp(key, "storage_type"))
        return storage_text(ap, text);
    if (!strcmp(section, "checkpoint") && !strcmp(key, "type") && !strcasecmp(text, "independent"))
        return "all_ranks"; /* its name in early DLIO */
    if (!strcmp(section, "dataset") && !strcmp(key, "format") && !strcasecmp(text, "hdf5_opt")) {
        mr_workload_note(ap->w, ap->arena,
                         "dataset.format hdf5_opt is taken as hdf5 (DLIO lists it and has no code for it)");
        return "hdf5";
    }
    return text;
}

/* A row that changes nothing, set to something else than its default. The doc's sentence is the reason. */
static int note_no_effect(struct mr_workload *w, struct mr_arena *a)
{
    for (int s = 0; mr_workload_sections[s].table; s++) {
        const struct mr_option_table *t = mr_workload_sections[s].table;
        const char *obj = (const char *)w + mr_workload_sections[s].offset;
        for (const struct mr_option *o = t->options; o->key; o++) {
            char now[256];
            if (!(o->flags & MR_OPTF_NO_EFFECT) || w->origins[s][o - t->options].kind == MR_ORIGIN_DEFAULT ||
                !*t->section)
                continue;
            mr_option_print(o, obj, now, sizeof now);
            if (strcmp(now, o->def) != 0 &&
                mr_workload_note(w, a, "%s.%s changes nothing here: %s", t->section, o->key, o->doc))
                return -ENOMEM;
        }
    }
    return 0;
}

#define NOTE(...)                                                                                                      \
    do {                                                                                                               \
        if (mr_workload_note(w, a, __VA_ARGS__))                                                                       \
            return -ENOMEM;                                                                                            \
    } while (0)

static int note_reader(struct mr_workload *w, struct mr_arena *a)
{
    const struct mr_conf_reader *r = &w->reader;
    if (mr_workload_is_set(w, "reader", "read_type") && r->read_type == MR_CONF_READ_ON_DEMAND)
        NOTE("reader.read_type: on_demand reads on demand (DLIO turns its cache on when the key is written)");
    if (w->workflow.train && r->sample_shuffle != MR_SHUFFLE_OFF &&
        (r->data_loader == MR_DL_PYTORCH || r->data_loader == MR_DL_DALI))
        NOTE(
            "reader.sample_shuffle shuffles the samples (DLIO's PyTorch loader reads them in name order all the same)");
    if (r->odirect && w->dataset.format != MR_CF_NPY && w->dataset.format != MR_CF_NPZ)
        NOTE("reader.odirect holds for format %s, too (DLIO uses it for npy and npz only)",
             mr_conf_format_name((enum mr_conf_format)w->dataset.format));
    if (w->dataset.format == MR_CF_MMAP_INDEXED_BINARY && w->workflow.train)
        NOTE("dataset.format mmap_indexed_binary reads the bytes (DLIO maps the file and never touches them)");
    return 0;
}

static int note_dataset(struct mr_workload *w, struct mr_arena *a)
{
    const struct mr_conf_dataset *d = &w->dataset;
    if (d->record_length_bytes_stdev > 0)
        NOTE("dataset.record_length_bytes_stdev is met, per sample or, where a file holds samples of one size, per "
             "file (DLIO gives about 0.71 of it)");
    if (d->num_subfolders_train == 1 || d->num_subfolders_eval == 1)
        NOTE("dataset.num_subfolders_*: 1 is one subfolder (DLIO writes none and then fails to read it)");
    if (w->storage.storage_type == MR_CS_AISTORE)
        NOTE("storage.storage_type aistore is not available in this version: a run will stop");
    if (w->train.total_training_steps >= 0 && w->train.epochs > 1)
        NOTE("train.total_training_steps limits the whole run (DLIO limits each epoch)");
    return 0;
}

static int note_checkpoint(struct mr_workload *w, struct mr_arena *a)
{
    const struct mr_conf_checkpoint *c = &w->checkpoint;
    if (!*w->burst_buffer.folder &&
        (w->burst_buffer.capacity || mr_workload_is_set(w, "checkpoint.burst_buffer", "store")))
        NOTE("checkpoint.burst_buffer needs a folder: without one checkpoints are written directly");
    if (!w->workflow.checkpoint && *w->burst_buffer.folder)
        NOTE("checkpoint.burst_buffer does nothing: workflow.checkpoint is off");
    if (!w->workflow.checkpoint)
        return 0;
    bool transformer = !strcasecmp(w->model.type, "transformer");
    if (c->fsync)
        NOTE("checkpoint.fsync is done (DLIO accepts the key and never flushes)");
    if (c->recovery_rank_shift)
        NOTE("checkpoint.recovery_rank_shift is done (DLIO accepts the key and does nothing)");
    if (mr_workload_is_set(w, "checkpoint", "type") && transformer)
        NOTE("checkpoint.type has no say for a transformer: the ZeRO stage decides who writes");
    else if (mr_workload_is_set(w, "checkpoint", "type"))
        NOTE("checkpoint.type decides who writes (DLIO reads the key and never uses it)");
    if (mr_workload_is_set(w, "checkpoint", "time_between_checkpoints") && c->time_between_checkpoints < 0)
        NOTE("checkpoint.time_between_checkpoints below 0 means no pause (DLIO sleeps for the absolute value)");
    if (!w->workflow.train && c->num_checkpoints_write <= 0 && c->num_checkpoints_read <= 0)
        NOTE("checkpoint-only mode without num_checkpoints_write or num_checkpoints_read does nothing");
    return 0;
}
#undef NOTE

/* The old way to ask for chunks: bytes of a square chunk of single bytes inside the square record. */
static int derive_chunks(struct mr_workload *w, struct mr_arena *a)
{
    const struct mr_conf_dataset *d = &w->dataset;
    if (!d->enable_chunking)
        return 0;
    if (d->format != MR_CF_HDF5)
        return mr_workload_note(w, a, "dataset.enable_chunking says nothing for format %s: only hdf5 has chunks",
                                mr_conf_format_name((enum mr_conf_format)d->format));
    if (w->hdf5.chunk_dims.n)
        return 0;
    double side = floor(sqrt((double)d->chunk_size));
    if (side < 1 || d->record_dims.n)
        return mr_workload_note(
            w, a, "dataset.enable_chunking needs chunk_size (and no record_dims); use dataset.hdf5.chunk_dims");
    side = fmin(side, fmax(1, floor(sqrt(d->record_length_bytes))));
    w->hdf5.chunk_dims = (struct mr_dims){.n = 2, .dim = {(uint64_t)side, (uint64_t)side}};
    *mr_workload_origin(w, "dataset.hdf5", "chunk_dims") =
        (struct mr_value_origin){.kind = MR_ORIGIN_DERIVED, .where = "dataset.chunk_size"};
    return mr_workload_note(
        w, a,
        "dataset.enable_chunking and chunk_size give hdf5.chunk_dims [%.0f, %.0f] (DLIO reads them and "
        "never uses them)",
        side, side);
}

static void widen(struct mr_dist *d, double stdev)
{
    if (stdev > 0 && d->kind == MR_DIST_CONSTANT)
        *d = (struct mr_dist){.kind = MR_DIST_NORMAL, .a = d->a, .b = stdev};
}

/* "in file:14", from the origin of the value that is to blame. */
static void blame(const struct mr_workload *w, const char *section, const char *key, struct mr_error *err)
{
    char where[300];
    mr_workload_origin_text(mr_workload_origin(w, section, key), where, sizeof where);
    mr_error_context(err, "in '%s.%s' (%s)", section, key, where);
}

static int check_between_keys(const struct mr_workload *w, struct mr_error *err)
{
    const struct mr_conf_dataset *d = &w->dataset;
    if (w->parallelism.zero_stage == 3 && w->parallelism.pipeline > 1) {
        mr_error_plain(err, MR_E_CONFIG, "ZeRO stage 3 cannot be combined with %lld pipeline stages",
                       (long long)w->parallelism.pipeline);
        return blame(w, "model.parallelism", "zero_stage", err), MR_E_CONFIG;
    }
    if (d->record_dims.n && d->record_length_bytes_stdev > 0) {
        mr_error_plain(err, MR_E_CONFIG,
                       "record_dims fixes the size of a sample, so record_length_bytes_stdev must be 0");
        return blame(w, "dataset", "record_length_bytes_stdev", err), MR_E_CONFIG;
    }
    for (unsigned i = 0; i < d->record_dims.n; i++)
        if (d->record_dims.dim[i] == 0) {
            mr_error_plain(err, MR_E_CONFIG, "a dimension of record_dims is 0");
            return blame(w, "dataset", "record_dims", err), MR_E_CONFIG;
        }
    double all, read;
    int rc = mr_sample_fields_bytes(w, &all, &read, err);
    if (rc < 0)
        return blame(w, d->fields.n ? "dataset" : "dataset.parquet", d->fields.n ? "fields" : "columns", err), rc;
    rc = mr_sample_fields_check(w, err);
    if (rc < 0)
        return blame(w, w->reader.fields.n ? "reader" : "dataset", "fields", err), rc;
    if (strcmp(w->parquet.read_mode, "raw") != 0 && strcmp(w->parquet.read_mode, "row_group") != 0 &&
        strcmp(w->parquet.read_mode, "default") != 0) {
        mr_error_plain(err, MR_E_CONFIG, "unknown read_mode '%.100s': row_group (decoded) or raw",
                       w->parquet.read_mode);
        return blame(w, "dataset.parquet", "read_mode", err), MR_E_CONFIG;
    }
    if (rc == 1 && (d->record_length_bytes_stdev > 0 || d->record_length_bytes_resize > 0)) {
        const char *key = d->record_length_bytes_stdev > 0 ? "record_length_bytes_stdev" : "record_length_bytes_resize";
        mr_error_plain(err, MR_E_CONFIG, "fields have their own sizes, so %s must be 0", key);
        return blame(w, "dataset", key, err), MR_E_CONFIG;
    }
    if (mr_workload_record_bytes(w) < 0) {
        mr_error_plain(err, MR_E_CONFIG, "unknown element type '%.100s', or a sample beyond all bounds",
                       d->record_element_type);
        mr_error_hint(err, "use uint8, int8, uint16, int16, uint32, int32, uint64, int64, float16, float32 or float64");
        return blame(w, "dataset", "record_element_type", err), MR_E_CONFIG;
    }
    if ((double)(d->num_files_train + d->num_files_eval) * (double)d->num_samples_per_file > 9007199254740992.0) {
        mr_error_plain(err, MR_E_CONFIG, "more samples than can be counted (files x num_samples_per_file)");
        return blame(w, "dataset", "num_samples_per_file", err), MR_E_CONFIG;
    }
    if (strcasecmp(w->model.type, "transformer") != 0 && mr_edit_distance(w->model.type, "transformer") <= 3) {
        mr_error_plain(err, MR_E_CONFIG, "unknown model type '%.100s'", w->model.type);
        mr_error_hint(err, "did you mean 'transformer'?");
        return blame(w, "model", "type", err), MR_E_CONFIG;
    }
    if (w->workflow.checkpoint && !strcasecmp(w->model.type, "transformer") && w->model.num_layers <= 0 &&
        !w->model.layer_parameters.n) {
        mr_error_plain(err, MR_E_CONFIG, "a transformer's checkpoint needs model.num_layers");
        return blame(w, "model", "num_layers", err), MR_E_CONFIG;
    }
    return 0;
}

static bool is_section_set(const struct mr_workload *w, const char *section)
{
    int s = mr_workload_section_index(section);
    const struct mr_option *rows = mr_workload_sections[s].table->options;
    for (unsigned i = 0; rows[i].key; i++)
        if (w->origins[s][i].kind != MR_ORIGIN_DEFAULT)
            return true;
    return false;
}

/* DLIO's llama_1t leaves training on and describes checkpoints, but no data set: its ranks would share the 8 default
 * files. The checkpoints are the point, so there are no steps. Who asks for training himself gets it. */
static int without_data(struct mr_workload *w, struct mr_arena *a)
{
    const struct mr_conf_checkpoint *c = &w->checkpoint;
    struct mr_value_origin *train = mr_workload_origin(w, "workflow", "train");
    bool asked = train->kind != MR_ORIGIN_DEFAULT && train->kind != MR_ORIGIN_FILE;
    bool has_file = *w->file || train->kind == MR_ORIGIN_FILE;
    if (!has_file || asked || !w->workflow.train || !w->workflow.checkpoint || is_section_set(w, "dataset") ||
        (c->num_checkpoints_write <= 0 && c->num_checkpoints_read <= 0))
        return 0;
    w->workflow.train = w->workflow.generate_data = w->workflow.evaluation = false;
    *train = (struct mr_value_origin){.kind = MR_ORIGIN_DERIVED, .where = "no data set"};
    *mr_workload_origin(w, "workflow", "generate_data") = *train;
    return mr_workload_note(w, a,
                            "the workload describes checkpoints but no data set: no training steps, the checkpoints "
                            "are written and read; workflow.train=true on the command line trains on the default data");
}

/* Column chunks as they are: runs of a row group's records, read field by field. */
static int derive_raw_ranges(struct mr_workload *w, struct mr_arena *a)
{
    const struct mr_value_origin derived = {.kind = MR_ORIGIN_DERIVED, .where = "dataset.parquet.read_mode"};
    if (w->dataset.format != MR_CF_PARQUET || strcmp(w->parquet.read_mode, "raw") != 0)
        return 0;
    if (!mr_workload_is_set(w, "pattern", "unit")) {
        w->pattern.unit = MR_CONF_UNIT_RECORD;
        *mr_workload_origin(w, "pattern", "unit") = derived;
    }
    if (!mr_workload_is_set(w, "pattern", "sequential_samples")) {
        w->pattern.sequential_samples = w->parquet.row_group_size;
        *mr_workload_origin(w, "pattern", "sequential_samples") = derived;
    }
    return mr_workload_note(w, a,
                            "dataset.parquet.read_mode raw: the chunks of the columns are read row group by row group "
                            "and not decoded");
}

/* The bucket (storage_root) and a key: s3://ROOT/FOLDER. Without a bucket the folder stays, and a run refuses it. */
static int in_bucket(const char *root, struct mr_arena *a, const char **folder)
{
    const char *key = *folder;
    if (!strncmp(root, "s3://", 5))
        root += 5;
    if (!strncmp(key, "s3://", 5) || !*key || !*root || *root == '.')
        return 0;
    while (*key == '/' || (key[0] == '.' && key[1] == '/'))
        key++;
    *folder = mr_arena_printf(a, "s3://%s%s%s", root, root[strlen(root) - 1] == '/' ? "" : "/", key);
    return *folder ? 0 : -ENOMEM;
}

/* storage.storage_root is where relative folders begin. */
static int below_root(const struct mr_workload *w, struct mr_arena *a, const char **folder)
{
    const char *root = w->storage.storage_root;
    if (w->storage.storage_type == MR_CS_S3)
        return in_bucket(root, a, folder);
    if (w->storage.storage_type != MR_CS_LOCAL_FS || !*root || !strcmp(root, ".") || !strcmp(root, "./") || !**folder ||
        **folder == '/')
        return 0;
    *folder = mr_arena_printf(a, "%s%s%s", root, root[strlen(root) - 1] == '/' ? "" : "/", *folder);
    return *folder ? 0 : -ENOMEM;
}

int mr_trap_finish(struct mr_workload *w, struct mr_arena *a, struct mr_error *err)
{
    widen(&w->train.computation_time, w->train.computation_time_stdev);
    widen(&w->evaluation.eval_time, w->evaluation.eval_time_stdev);
    widen(&w->reader.preprocess_time, w->reader.preprocess_time_stdev);
    int rc = check_between_keys(w, err);
    if (rc)
        return rc;
    rc = without_data(w, a);
    rc = rc ? rc : note_reader(w, a);
    rc = rc ? rc : note_dataset(w, a);
    rc = rc ? rc : note_checkpoint(w, a);
    rc = rc ? rc : derive_chunks(w, a);
    rc = rc ? rc : derive_raw_ranges(w, a);
    rc = rc ? rc : note_no_effect(w, a);
    rc = rc ? rc : below_root(w, a, &w->dataset.data_folder);
    rc = rc ? rc : below_root(w, a, &w->checkpoint.checkpoint_folder);
    return rc ? mr_error_set(err, rc, "cannot keep the notes") : 0;
}
