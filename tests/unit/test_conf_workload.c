/* The workload model: precedence and origins, Hydra words, unknown keys with the nearest one, DLIO's traps. The files
 * of DLIO and MLPerf Storage are used where they lie beside the repository (../shared/data); ours are always used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/strbuf.h"
#include "conf/sample_fields.h"
#include "conf/workload.h"
#include "conf/yaml.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct mr_error err;

static int parse(const char *text, struct mr_arena *a, struct mr_workload **w)
{
    return mr_workload_parse(text, strlen(text), "f.yaml", false, a, w, &err);
}

/* Resolves with overrides (and environment); fails the test on an error. */
static int resolve(struct mr_arena *a, struct mr_workload **w, char *const *envp, int n, const char **words)
{
    struct mr_workload_request req = {.overrides = {.n = (unsigned)n, .item = words}, .envp = envp};
    const char *folder = MR_SOURCE_DIR "/workloads";
    req.search_path = (struct mr_strings){.n = 1, .item = &folder};
    return mr_workload_resolve(&req, a, w, &err);
}
#define RESOLVE(a, w, env, ...)                                                                                        \
    resolve(a, w, env, (int)MR_ARRAY_LEN(((const char *[]){__VA_ARGS__})), (const char *[]){__VA_ARGS__})

static bool has_note(const struct mr_workload *w, const char *part)
{
    for (unsigned i = 0; i < w->notes.n; i++)
        if (strstr(w->notes.item[i], part))
            return true;
    return false;
}

static const struct mr_value_origin *origin(const struct mr_workload *w, const char *section, const char *key)
{
    for (int s = 0; mr_workload_sections[s].table; s++)
        if (!strcmp(mr_workload_sections[s].table->section, section))
            return &w->origins[s][mr_option_find(mr_workload_sections[s].table, key) -
                                  mr_workload_sections[s].table->options];
    return NULL;
}

static void defaults_are_those_of_dlio(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w;
    assert_int_equal(parse("", &a, &w), 0);
    assert_int_equal(w->model.model_size_bytes, 10240);
    assert_int_equal(w->dataset.num_files_train, 8);
    assert_true(w->dataset.record_length_bytes == 65536);
    assert_int_equal(w->dataset.format, MR_CF_TFRECORD);
    assert_int_equal(w->reader.prefetch_size, 2);
    assert_int_equal(w->reader.shuffle_size, 1024);
    assert_int_equal(w->train.seed, 123);
    assert_true(w->train.seed_change_epoch && w->workflow.train && !w->workflow.checkpoint);
    assert_int_equal(w->transformer.ffn_hidden_size, 8192);
    assert_int_equal(w->output_metric.exclude_start_steps, 1);
    assert_true(w->metric.au == 0.9);
    assert_int_equal(w->notes.n, 0);
    mr_arena_done(&a);
}

static void precedence_is_default_file_environment_override(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w;
    char *envp[] = {"MILLRACE_READER_BATCH_SIZE=3",
                    "MILLRACE_READER_READ_THREADS=5",
                    "MILLRACE_MODEL_PARALLELISM_TENSOR=2",
                    "MILLRACE_FRAMEWORK=none",
                    "HOME=/",
                    NULL};
    assert_int_equal(RESOLVE(&a, &w, envp, "workload=unet3d_h100", "++workload.reader.batch_size=9"), 0);
    assert_int_equal(w->reader.batch_size, 9);
    assert_int_equal(origin(w, "reader", "batch_size")->kind, MR_ORIGIN_OVERRIDE);
    assert_string_equal(origin(w, "reader", "batch_size")->where, "++workload.reader.batch_size");
    assert_int_equal(w->reader.read_threads, 5);
    assert_int_equal(origin(w, "reader", "read_threads")->kind, MR_ORIGIN_ENV);
    assert_int_equal(w->parallelism.tensor, 2);
    assert_int_equal(w->top.framework, MR_FRAMEWORK_NONE);
    assert_int_equal(w->dataset.num_files_train, 168);
    assert_int_equal(origin(w, "dataset", "num_files_train")->kind, MR_ORIGIN_FILE);
    assert_true(origin(w, "dataset", "num_files_train")->line > 1);
    assert_int_equal(origin(w, "dataset", "file_prefix")->kind, MR_ORIGIN_DEFAULT);
    assert_string_equal(w->name, "unet3d_h100");
    mr_arena_done(&a);
}

static void hydra_words_set_and_remove_with_and_without_prefix(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w;
    assert_int_equal(RESOLVE(&a, &w, NULL, "workload=unet3d_h100", "+reader.batch_size=2", "train.epochs=7",
                             "~workload.metric.au", "data_reader.read_threads=3", "dataset.record_dims=[3,4]",
                             "dataset.record_length_bytes_stdev=0",
                             "train.computation_time={type: normal, mean: 1, stdev: 0.25}", "~checkpoint",
                             "dataset.data_folder=\"a, b\"", "++workload.framework=tensorflow", "hydra.run.dir=out"),
                     0);
    assert_int_equal(w->reader.batch_size, 2);
    assert_int_equal(w->reader.read_threads, 3);
    assert_int_equal(w->train.epochs, 7);
    assert_true(w->metric.au == 0.9);
    assert_int_equal(origin(w, "metric", "au")->kind, MR_ORIGIN_DEFAULT);
    assert_int_equal(w->dataset.record_dims.n, 2);
    assert_true(w->train.computation_time.kind == MR_DIST_NORMAL && w->train.computation_time.b == 0.25);
    assert_int_equal(w->checkpoint.checkpoint_after_epoch, 1);
    assert_string_equal(w->dataset.data_folder, "a, b");
    assert_int_equal(w->top.framework, MR_FRAMEWORK_TENSORFLOW);
    assert_string_equal(w->output.folder, "out");
    assert_int_equal(RESOLVE(&a, &w, NULL, "reader={batch_size: 4, read_threads: 2}", "x-millrace.ranks=8"), 0);
    assert_true(w->reader.batch_size == 4 && w->reader.read_threads == 2 && w->extra.ranks == 8);
    assert_int_equal(RESOLVE(&a, &w, NULL, "~reader.batch_size=5"), MR_E_CONFIG);
    assert_int_equal(RESOLVE(&a, &w, NULL, "reader.batch_size"), MR_E_USAGE);
    assert_int_equal(RESOLVE(&a, &w, NULL, "reader..batch_size=1"), MR_E_USAGE);
    assert_int_equal(RESOLVE(&a, &w, NULL, "hydra.verbose=1"), MR_E_CONFIG);
    assert_int_equal(RESOLVE(&a, &w, NULL, "reader.batch_size=[1"), MR_E_CONFIG);
    mr_arena_done(&a);
}

static void unknown(const char *text, const char *key, const char *suggestion)
{
    struct mr_arena a = {0};
    struct mr_workload *w;
    assert_int_equal(parse(text, &a, &w), MR_E_CONFIG);
    assert_non_null(strstr(err.message, key));
    if (!strstr(err.hint, suggestion))
        fail_msg("hint is '%s', not '%s'", err.hint, suggestion);
    assert_int_equal(mr_workload_parse(text, strlen(text), "f.yaml", true, &a, &w, &err), 0);
    assert_true(has_note(w, "is ignored"));
    mr_arena_done(&a);
}

static void unknown_keys_name_the_nearest_in_any_section(void **state)
{
    (void)state;
    unknown("reader:\n  read_thread: 4\n", "'reader.read_thread'", "'reader.read_threads'");
    unknown("dataset:\n  batch_size: 4\n", "'dataset.batch_size'", "'reader.batch_size'");
    unknown("batch_size: 4\n", "'batch_size'", "'reader.batch_size'");
    unknown("readr:\n  batch_size: 4\n", "'readr'", "'reader'");
    unknown("model:\n  paralelism: {tensor: 1}\n", "'model.paralelism'", "'model.parallelism'");
    unknown("model:\n  parallelism: {tensr: 1}\n", "'model.parallelism.tensr'", "'model.parallelism.tensor'");
    unknown("dataset:\n  qqqqqq: 1\n", "'dataset.qqqqqq'", "millrace help config");
    unknown("x-milrace:\n  source: a\n", "'x-milrace'", "'x-millrace'");
    struct mr_arena a = {0};
    struct mr_workload *w;
    assert_int_equal(parse("x-millrace:\n  sorce: a\n", &a, &w), MR_E_CONFIG);
    assert_non_null(strstr(err.hint, "'x-millrace.source'"));
    assert_string_equal(err.context, "in f.yaml:2");
    char *envp[] = {"MILLRACE_READER_BATCH_SIZ=3", NULL};
    assert_int_equal(RESOLVE(&a, &w, envp, "reader.batch_size=1"), MR_E_CONFIG);
    assert_non_null(strstr(err.hint, "'reader.batch_size'"));
    assert_int_equal(RESOLVE(&a, &w, NULL, "workload=unet3d_h10"), MR_E_CONFIG);
    assert_non_null(strstr(err.hint, "did you mean 'unet3d_"));
    mr_arena_done(&a);
}

static void dlio_traps_mean_what_their_authors_meant(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w;
    assert_int_equal(parse("model: {model_size: 499153191}\n", &a, &w), 0);
    assert_int_equal(w->model.model_size_bytes, 499153191);
    assert_true(has_note(w, "model.model_size is taken as model_size_bytes"));
    assert_int_equal(parse("reader:\n  sample_shuffle: off\n  file_shuffle: on\n", &a, &w), 0);
    assert_true(w->reader.sample_shuffle == MR_SHUFFLE_OFF && w->reader.file_shuffle == MR_SHUFFLE_SEED);
    assert_true(has_note(w, "reader.sample_shuffle: off means off") &&
                has_note(w, "reader.file_shuffle: on is taken as seed"));
    assert_int_equal(parse("reader:\n  sample_shuffle: False\n  file_shuffle: 'off'\n", &a, &w), 0);
    assert_true(has_note(w, "leaves the files in order"));
    assert_int_equal(parse("dataset: {format: hdf5_opt, enable_chunking: True, chunk_size: 4096}\n", &a, &w), 0);
    assert_int_equal(w->dataset.format, MR_CF_HDF5);
    assert_true(w->hdf5.chunk_dims.n == 2 && w->hdf5.chunk_dims.dim[0] == 64);
    assert_int_equal(origin(w, "dataset.hdf5", "chunk_dims")->kind, MR_ORIGIN_DERIVED);
    assert_true(has_note(w, "hdf5_opt") && has_note(w, "chunk_dims [64, 64]"));
    assert_int_equal(parse("storage: {storage_type: parallel_fs}\n", &a, &w), 0);
    assert_true(w->storage.storage_type == MR_CS_LOCAL_FS && has_note(w, "parallel_fs"));
    assert_int_equal(parse("storage: {storage_type: direct_fs}\n", &a, &w), 0);
    assert_true(w->reader.odirect && has_note(w, "direct_fs"));
    assert_int_equal(parse("reader: {read_type: on_demand, pin_memory: False, dont_use_mmap: True}\n", &a, &w), 0);
    assert_true(has_note(w, "read_type") && has_note(w, "reader.pin_memory changes nothing") &&
                has_note(w, "dont_use_mmap"));
    assert_int_equal(
        parse("workflow: {checkpoint: True}\ncheckpoint: {fsync: True, type: all_ranks, recovery_rank_shift: True, "
              "time_between_checkpoints: -1}\n",
              &a, &w),
        0);
    assert_true(has_note(w, "fsync") && has_note(w, "checkpoint.type") && has_note(w, "recovery_rank_shift") &&
                has_note(w, "no pause"));
    assert_int_equal(
        parse("train: {total_training_steps: 10, epochs: 2}\ndataset: {num_subfolders_train: 1}\n", &a, &w), 0);
    assert_true(has_note(w, "whole run") && has_note(w, "one subfolder"));
    assert_int_equal(
        parse("train: {computation_time: 0.5, computation_time_stdev: 0.1}\nreader: {transfer_size: none}\n", &a, &w),
        0);
    assert_true(w->train.computation_time.kind == MR_DIST_NORMAL && w->train.computation_time.b == 0.1);
    assert_int_equal(parse("dataset: {record_length_bytes: 114660.07}\nreader: {batch_size: null}\n", &a, &w), 0);
    assert_true(w->dataset.record_length_bytes == 114660.07 && w->reader.batch_size == 1);
    mr_arena_done(&a);
}

static void early_files_of_dlio_and_mlperf_load(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w;
    assert_int_equal(
        parse(
            "model: bert\nframework: tensorflow\nworkflow: {train: true, debug: false, checkpoint: true}\n"
            "dataset: {format: tfrecord, num_files_train: 500, record_length: 2500, record_length_std: 7}\n"
            "checkpoint: {steps_between_checkpoints: 250, model_size: 4034713312, type: independent, num_layers: 44,\n"
            "  optimization_groups: [1009254400, 793600], layer_parameters: [129761280, 20971520]}\n",
            &a, &w),
        0);
    assert_string_equal(w->model.name, "bert");
    assert_int_equal(w->model.model_size_bytes, 4034713312);
    assert_int_equal(w->model.num_layers, 44);
    assert_int_equal(w->model.optimization_groups.n, 2);
    assert_int_equal(w->model.layer_parameters.n, 2);
    assert_true(w->dataset.record_length_bytes == 2500 && w->dataset.record_length_bytes_stdev == 7);
    assert_int_equal(w->checkpoint.type, 1);
    assert_true(has_note(w, "checkpoint.model_size is taken as model.model_size_bytes"));
    assert_false(has_note(w, "DLIO ignores it"));
    mr_arena_done(&a);
    assert_int_not_equal(parse("reader: bert\n", &a, &w), 0); /* others have no name */
    mr_arena_done(&a);
    assert_int_not_equal(parse("model: [bert]\n", &a, &w), 0);
    mr_arena_done(&a);
}

static void impossible_combinations_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"model: {parallelism: {zero_stage: 3, pipeline: 2}}\n", "ZeRO stage 3"},
        {"dataset: {record_dims: [2], record_length_bytes_stdev: 3}\n", "record_dims"},
        {"dataset: {record_element_type: float33}\n", "unknown element type"},
        {"dataset: {num_files_train: 9e15, num_samples_per_file: 9e15}\n", "more samples"},
        {"model: {type: transfomer}\n", "unknown model type"},
        {"model: {type: transformer}\nworkflow: {checkpoint: True}\n", "num_layers"},
        {"reader: {batch_size: 0}\n", "bad value '0' for 'reader.batch_size'"},
        {"reader: {batch_size: {a: 1}}\n", "not a map"},
        {"reader: [1]\n", "must hold keys"},
        {"reader: {order: bogus}\n", "must be one of: auto"},
        {"[1]\n", "must hold sections"},
        {"x-millrace: {expect: [{metric: a}]}\n", "one of eq, ge, le"},
        {"x-millrace: {expect: [{metric: a, eq: 1, class: strict}]}\n", "class must be"},
        {"x-millrace: {scale: 0}\n", "scale must be"},
        {"x-millrace: {variants: [a]}\n", "variants are a map"},
        {"x-millrace: {variants: {a/b: {ranks: 2}}}\n", "a variant's name"},
        {"x-millrace: {variants: {a: 2}}\n", "a variant is a map"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_arena a = {0};
        struct mr_workload *w;
        int rc = parse(cases[i].text, &a, &w);
        if (rc != MR_E_CONFIG || !strstr(err.message, cases[i].message))
            fail_msg("'%s': %d %s", cases[i].text, rc, rc ? err.message : "");
        assert_true(err.context[0]);
        mr_arena_done(&a);
    }
}

static void extra_block_is_read(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w;
    assert_int_equal(parse("x-millrace:\n  source: study\n  ranks: 8\n  scale: {default: 1%, keep: [batch_size]}\n"
                           "  storage_model: theta\n  dataset: {seed: 5}\n  notes: [one, two]\n  expect:\n"
                           "    - {metric: m, eq: 60.54e9, tol: 1%, class: shaped}\n    - {metric: n, ge: 0.98}\n",
                           &a, &w),
                     0);
    assert_string_equal(w->extra.source, "study");
    assert_int_equal(w->extra.ranks, 8);
    assert_true(w->extra.scale == 0.01 && w->extra.scale_keep.n == 1 && w->extra.notes.n == 2);
    assert_int_equal(w->dataset.seed, 5);
    assert_int_equal(w->extra.n_expect, 2);
    assert_true(w->extra.expect[0].eq == 60.54e9 && w->extra.expect[0].tol == 0.01);
    assert_int_equal(w->extra.expect[0].cls, MR_EXPECT_SHAPED);
    assert_true(isnan(w->extra.expect[1].eq) && w->extra.expect[1].ge == 0.98 && w->extra.expect[1].line == 10);
    mr_arena_done(&a);
}

static void secrets_stay_secret_and_json_has_origins(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w;
    assert_int_equal(RESOLVE(&a, &w, NULL, "storage.storage_options.secret_access_key=hunter2", "reader.batch_size=4"),
                     0);
    json_t *j = mr_workload_to_json(w);
    char *text = json_dumps(j, 0);
    assert_null(strstr(text, "hunter2"));
    json_t *entry = json_object_get(j, "reader.batch_size");
    assert_int_equal(json_integer_value(json_object_get(entry, "value")), 4);
    assert_string_equal(json_string_value(json_object_get(entry, "origin")), "override");
    assert_non_null(json_object_get(j, "framework"));
    free(text);
    json_decref(j);
    mr_arena_done(&a);
}

static void columns_of_parquet_sets_are_read(void **state)
{
    (void)state;
    static struct mr_sample_fields c;
    struct mr_arena a = {0};
    struct mr_workload *w;
    struct mr_strbuf fields = {0};
    assert_int_equal(parse("dataset:\n  format: parquet\n  parquet:\n    columns:\n"
                           "      - {name: image, dtype: float32, size: 524328}\n"
                           "      - name: other\n        dtype: int8\n        count: 3\n        read: False\n",
                           &a, &w),
                     0);
    assert_int_equal(mr_sample_fields_of(w, &c, &err), 0);
    assert_int_equal(c.n, 4);
    assert_true(c.field[0].read && !c.field[3].read);
    mr_sample_fields_to_spec(&c, &fields);
    assert_string_equal(fields.text, "image:float32:524328,other0:int8:-,other1:int8:-,other2:int8:-");
    mr_strbuf_done(&fields);
    assert_int_equal(parse("dataset: {format: parquet}\n", &a, &w), 0);
    assert_int_equal(mr_sample_fields_of(w, &c, &err), 0);
    assert_int_equal(c.n, 0);
    static const char *const wrong[] = {"[{name: a}]",          "[{name: a, dtype: f4, size: 0}]", "{name: a}",
                                        "[{name: a dtype: f4]", "[{name: a, dtype: f4, kind: x}]", "[a]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        w->parquet.columns = wrong[i];
        assert_int_equal(mr_sample_fields_of(w, &c, &err), MR_E_CONFIG);
        assert_non_null(strstr(err.message, "dataset.parquet.columns"));
    }
    mr_arena_done(&a);
}

static void fields_replace_the_record(void **state)
{
    (void)state;
    static struct mr_sample_fields f;
    struct mr_arena a = {0};
    struct mr_workload *w;
    struct mr_strbuf spec = {0};
    const char **names;
    uint32_t n;
    assert_int_equal(parse("dataset:\n  format: hdf5\n  record_length_bytes: 5\n"
                           "  fields: [data:f4:4x3x2, label:i8:-:target, raw:u2:7:other]\n",
                           &a, &w),
                     0);
    assert_int_equal(mr_sample_fields_of(w, &f, &err), 0);
    assert_int_equal(f.n, 3);
    mr_sample_fields_to_spec(&f, &spec);
    assert_string_equal(spec.text, "data:f4:4x3x2,label:i8:-:target,raw:u2:7:other");
    mr_strbuf_done(&spec);
    assert_true(mr_workload_record_bytes(w) == 96 + 8 + 14);
    assert_true(mr_workload_read_bytes(w) == 96 + 8);
    assert_int_equal(mr_sample_fields_names(w, &names, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(names[1], "label");
    free(names);
    assert_int_equal(parse("dataset:\n  format: hdf5\n  fields: [data:f4:4x3x2, raw:u2:7:other]\n"
                           "reader: {fields: [raw]}\n",
                           &a, &w),
                     0);
    assert_true(mr_workload_read_bytes(w) == 14);
    assert_int_equal(parse("reader: {fields: [x, y]}\n", &a, &w), 0); /* of a set that the workload does not describe */
    assert_int_equal(mr_sample_fields_names(w, &names, &n, &err), 0);
    assert_int_equal(n, 2);
    free(names);
    static const char *const wrong[] = {"[a]",      "[a:f4]",         "[a:f4:3:target:x]", "[a:q7:3]", "[a:f4:3x]",
                                        "[a:f4:0]", "[a:f4:-:label]", "[a:f4:3, a:i8:-]",  "[':f4:3']"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[200];
        snprintf(text, sizeof text, "dataset:\n  format: hdf5\n  fields: %s\n", wrong[i]);
        assert_int_equal(parse(text, &a, &w), MR_E_CONFIG);
    }
    assert_int_equal(parse("dataset: {format: hdf5, fields: [a:f4:3]}\nreader: {fields: [b]}\n", &a, &w), MR_E_CONFIG);
    assert_non_null(strstr(err.message, "'b'"));
    assert_int_equal(parse("dataset: {format: hdf5, fields: [a:f4:3], record_length_bytes_stdev: 3}\n", &a, &w),
                     MR_E_CONFIG);
    mr_arena_done(&a);
}

static void odd_compressions_are_refused_only_when_used(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w;
    assert_int_equal(parse("dataset: {format: parquet, compression: gzip}\n", &a, &w), 0);
    assert_int_equal(mr_workload_check_supported(w, &err), 0);
    assert_int_equal(parse("dataset: {format: csv, compression: bz2}\n", &a, &w), 0);
    assert_int_equal(mr_workload_check_supported(w, &err), MR_E_UNSUPPORTED);
    assert_int_equal(parse("dataset: {format: npz, compression: zip}\n", &a, &w), 0);
    assert_int_equal(mr_workload_check_supported(w, &err), 0);
    mr_arena_done(&a);
}

/* ---- files of others: all resolve, and every misspelt key is caught with the right suggestion ---- */

static char *slurp(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = malloc(1 << 16);
    assert_non_null(text);
    *len = fread(text, 1, (1 << 16) - 1, f);
    text[*len] = '\0';
    fclose(f);
    return text;
}

/* The text with the key on that line replaced. */
static char *with_key(const char *text, unsigned line, const char *key, const char *other)
{
    const char *p = text;
    for (unsigned i = 1; i < line; i++)
        p = strchr(p, '\n') + 1;
    p = strstr(p, key);
    assert_non_null(p);
    struct mr_strbuf s = {0};
    mr_strbuf_add(&s, text, (size_t)(p - text));
    mr_strbuf_puts(&s, other);
    mr_strbuf_puts(&s, p + strlen(key));
    return mr_strbuf_take(&s);
}

static void misspell(const char *key, int how, char out[64])
{
    size_t n = strlen(key), mid = n / 2;
    switch (how) {
    case 0: snprintf(out, 64, "%sx", key); break;                                     /* one more */
    case 1: snprintf(out, 64, "%.*s%s", (int)mid, key, key + mid + (n > 2)); break;   /* one less */
    case 2: snprintf(out, 64, "%.*s%c%s", (int)mid, key, key[mid], key + mid); break; /* one doubled */
    default:                                                                          /* two swapped */
        snprintf(out, 64, "%s", key);
        out[n - 1] = key[n - 2];
        out[n - 2] = key[n - 1];
    }
}

static unsigned mutate(const struct mr_yaml_node *map, const char *prefix, const char *text, const char *file,
                       int kinds)
{
    unsigned done = 0;
    for (unsigned i = 0; i < map->n; i++) {
        const char *key = map->key[i]->text;
        char path[128], wrong[64], want[160];
        if (!strcmp(key, "x-millrace"))
            continue;
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        snprintf(want, sizeof want, "did you mean '%s", path);
        for (int how = 0; how < kinds; how++) {
            struct mr_arena a = {0};
            struct mr_workload *w;
            misspell(key, how, wrong);
            if (!strcmp(wrong, key))
                continue;
            char *bad = with_key(text, map->key[i]->line, key, wrong);
            int rc = mr_workload_parse(bad, strlen(bad), file, false, &a, &w, &err);
            if (rc != MR_E_CONFIG || !strstr(err.hint, want))
                fail_msg("%s: '%s' as '%s': %d '%s' '%s'", file, path, wrong, rc, rc ? err.message : "",
                         rc ? err.hint : "");
            char where[300];
            snprintf(where, sizeof where, "%s:%u", file, map->key[i]->line);
            assert_non_null(strstr(err.context, where));
            free(bad);
            mr_arena_done(&a);
            done++;
        }
        if (map->value[i]->kind == MR_YAML_MAP && map->value[i]->line != map->key[i]->line)
            done += mutate(map->value[i], path, text, file, kinds);
    }
    return done;
}

static unsigned check_folder(const char *folder, int kinds, unsigned *files)
{
    unsigned done = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strstr(e->d_name, ".yaml"))
            continue;
        struct mr_arena a = {0};
        struct mr_workload *w;
        struct mr_yaml_node *root;
        char path[4096];
        size_t len;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        char *text = slurp(path, &len);
        if (mr_workload_parse(text, len, e->d_name, false, &a, &w, &err))
            fail_msg("%s: %s (%s)", path, err.message, err.context);
        assert_int_equal(mr_yaml_parse(text, len, e->d_name, &a, &root, &err), 0);
        done += mutate(root, "", text, e->d_name, kinds);
        (*files)++;
        free(text);
        mr_arena_done(&a);
    }
    if (d)
        closedir(d);
    return done;
}

static void every_misspelt_key_of_our_presets_is_caught(void **state)
{
    (void)state;
    unsigned files = 0;
    assert_true(check_folder(MR_SOURCE_DIR "/workloads", 1, &files) > 1000);
    assert_true(files >= 40);
}

static void every_misspelt_key_of_dlio_and_mlperf_files_is_caught(void **state)
{
    (void)state;
    unsigned files = 0;
    unsigned done = check_folder(MR_SOURCE_DIR "/../shared/data/dlio-workloads", 4, &files);
    done += check_folder(MR_SOURCE_DIR "/../shared/data/mlperf-workloads", 4, &files);
    if (!files) {
        print_message("SKIP: ../shared/data/*-workloads is not there\n");
        skip();
    }
    print_message("%u files, %u misspellings\n", files, done);
    assert_true(done > 1000);
}

/* Stands for who loads plug-ins: keeps the paths, and brings a format. */
static char asked_for[256];
static enum mr_origin asked_from;
static int load_plugin(const char *path, enum mr_origin from, struct mr_error *e)
{
    asked_from = from;
    size_t n = strlen(asked_for);
    snprintf(asked_for + n, sizeof asked_for - n, "%s;", path);
    if (strstr(path, "broken"))
        return mr_error_plain(e, MR_E_CONFIG, "cannot use plug-in '%s'", path);
    return strstr(path, "brings") && mr_conf_format_add("brought", e) ? MR_E_INTERNAL : 0;
}

static void plugins_come_before_the_keys_that_name_what_they_bring(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_workload *w;
    const char *late = "dataset: {format: brought}\nplugin: [brings.so, /lib/x.so]\n";
    assert_int_equal(mr_workload_parse(late, strlen(late), "dir/f.yaml", false, &a, &w, &err), MR_E_UNSUPPORTED);
    mr_workload_set_plugin_loader(load_plugin);
    assert_int_equal(mr_workload_parse("dataset: {format: brought}", 26, "f.yaml", false, &a, &w, &err), MR_E_CONFIG);
    assert_int_equal(mr_workload_parse(late, strlen(late), "dir/f.yaml", false, &a, &w, &err), 0);
    assert_string_equal(asked_for, "dir/brings.so;/lib/x.so;"); /* relative to the file */
    assert_string_equal(mr_conf_format_name((enum mr_conf_format)w->dataset.format), "brought");
    assert_int_equal(w->top.plugin.n, 2);
    assert_int_equal(asked_from, MR_ORIGIN_FILE);
    asked_for[0] = '\0';
    assert_int_equal(RESOLVE(&a, &w, NULL, "dataset.format=brought", "plugin=y.so"), 0);
    assert_string_equal(w->top.plugin.item[0], "y.so"); /* relative to where the command runs */
    assert_int_equal(origin(w, "", "plugin")->kind, MR_ORIGIN_OVERRIDE);
    assert_non_null(strstr(asked_for, "y.so;"));
    assert_int_equal(asked_from, MR_ORIGIN_OVERRIDE);
    assert_int_equal(parse("reader: {batch_size: 2}\nplugin: broken.so\n", &a, &w), MR_E_CONFIG);
    assert_non_null(strstr(err.context, "f.yaml:2"));
    mr_workload_set_plugin_loader(NULL);
    mr_arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_dlio),
        cmocka_unit_test(early_files_of_dlio_and_mlperf_load),
        cmocka_unit_test(precedence_is_default_file_environment_override),
        cmocka_unit_test(hydra_words_set_and_remove_with_and_without_prefix),
        cmocka_unit_test(unknown_keys_name_the_nearest_in_any_section),
        cmocka_unit_test(dlio_traps_mean_what_their_authors_meant),
        cmocka_unit_test(impossible_combinations_are_refused),
        cmocka_unit_test(extra_block_is_read),
        cmocka_unit_test(secrets_stay_secret_and_json_has_origins),
        cmocka_unit_test(columns_of_parquet_sets_are_read),
        cmocka_unit_test(fields_replace_the_record),
        cmocka_unit_test(odd_compressions_are_refused_only_when_used),
        cmocka_unit_test(plugins_come_before_the_keys_that_name_what_they_bring),
        cmocka_unit_test(every_misspelt_key_of_our_presets_is_caught),
        cmocka_unit_test(every_misspelt_key_of_dlio_and_mlperf_files_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
