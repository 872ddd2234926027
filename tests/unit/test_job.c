/* A job resolves a workload once: the generator's spec, the scenario and the saved result say the same by every route.
 */
#include "base/common.h"
#include "base/temp_folder.h"
#include "job/job_generate.h"
#include "conf/job_options.h"
#include "job/job.h"
#include "job/job_predict.h"
#include "job/job_scenario.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[4096];
static struct mr_arena arena;
static atomic_bool stop;

static int make_folder(void **state)
{
    (void)state;
    return mr_temp_folder_make("", "job", folder, sizeof folder, NULL);
}

static int remove_folder(void **state)
{
    (void)state;
    mr_arena_done(&arena);
    return mr_temp_folder_remove(folder, NULL);
}

static const char *in_folder(const char *name)
{
    return mr_arena_printf(&arena, "%s/%s", folder, name);
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void check(int rc, const struct mr_error *err)
{
    if (rc)
        fail_msg("%s (%s; %s)", err->message, err->context, err->hint);
}

/* A job of the words: the workload's overrides. */
static struct mr_job *resolve(struct mr_job_options *opt, unsigned n, const char **words)
{
    struct mr_error err;
    struct mr_job *j = mr_arena_alloc(&arena, sizeof(*j));
    const struct mr_job_request req = {
        .options = opt, .overrides = {n, words}, .arena = &arena, .stop = &stop, .is_quiet = true, .is_local = true};
    check(mr_job_resolve(&req, j, &err), &err);
    return j;
}

static struct mr_job_options defaults(void)
{
    struct mr_job_options opt;
    struct mr_error err;
    check(mr_options_defaults(&mr_job_options_table, &arena, &opt, &err), &err);
    return opt;
}

static void gen_spec_has_everything_the_workload_says(void **state)
{
    (void)state;
    const char *words[] = {"dataset.format=hdf5",
                           "dataset.num_files_train=12",
                           "dataset.num_files_eval=3",
                           "dataset.num_samples_per_file=4",
                           "dataset.compression=gzip",
                           "dataset.compression_level=7",
                           "dataset.num_subfolders_train=2",
                           "dataset.num_subfolders_eval=5",
                           "dataset.compressibility=0.25",
                           "dataset.seed=77",
                           "dataset.file_prefix=part",
                           "dataset.record_dims=[16, 8]",
                           "dataset.record_element_type=float32",
                           "dataset.hdf5.chunk_dims=[4, 4]"};
    struct mr_job_options opt = defaults();
    struct mr_job *j = resolve(&opt, MR_ARRAY_LEN(words), words);
    struct mr_gen_spec train, valid;
    struct mr_error err;
    check(mr_job_gen_spec(j->w, &arena, &train, &valid, &err), &err);
    assert_string_equal(train.format, "hdf5");
    assert_int_equal(train.files, 12);
    assert_int_equal(valid.files, 3);
    assert_int_equal(train.samples_per_file, 4);
    assert_int_equal(train.compression, MR_COMP_GZIP);
    assert_int_equal(train.compression_level, 7);
    assert_int_equal(train.subfolders, 2);
    assert_int_equal(valid.subfolders, 5);
    assert_int_equal(train.compressibility, 25);
    assert_int_equal(train.seed, 77);
    assert_string_equal(train.prefix, "part");
    assert_string_equal(train.dtype, "float32");
    assert_int_equal(train.dims.n, 2);
    assert_int_equal(train.chunk.n, 2);
    assert_int_equal(train.quality, 90); /* the generator's own */
    assert_int_equal(valid.compression, train.compression);
}

static const char *const training[] = {
    "dataset.format=npz",
    "dataset.num_files_train=64",
    "dataset.record_length_bytes=10000",
    "reader.batch_size=4",
    "reader.read_threads=3",
    "reader.prefetch_size=5",
    "reader.sample_shuffle=seed",
    "train.epochs=2",
    "train.computation_time=0.001",
    "reader.preprocess_time=0.002",
    "train.seed=11",
    "dataset.record_length_bytes_stdev=0",
};

/* Compares what comes from the job; `measured` figures differ from those that were asked for. */
static void assert_same(const struct mr_scenario *a, const struct mr_scenario *b, bool measured)
{
    assert_int_equal(a->nodes, b->nodes);
    assert_int_equal(a->samples, b->samples);
    assert_int_equal(a->batch, b->batch);
    assert_int_equal(a->epochs, b->epochs);
    assert_int_equal(a->seed, b->seed);
    assert_int_equal(a->order_mode, b->order_mode);
    assert_int_equal(a->drop_last, b->drop_last);
    assert_int_equal(a->system.classes[0].threads, b->system.classes[0].threads);
    assert_float_equal(a->system.classes[0].capacity_mb, b->system.classes[0].capacity_mb, 1e-12);
    assert_int_equal(a->system.pfs_mbps.n, b->system.pfs_mbps.n);
    assert_float_equal(a->size_stdev_mb, b->size_stdev_mb, 1e-12);
    if (measured)
        return;
    assert_float_equal(a->size_mean_mb, b->size_mean_mb, 1e-12);
    assert_float_equal(a->step_s, b->step_s, 1e-12);
    assert_float_equal(a->system.compute_mbps, b->system.compute_mbps, 1e-9);
    assert_float_equal(a->system.preprocess_mbps, b->system.preprocess_mbps, 1e-9);
}

static const char machine[] = "name: slow\npreprocess: 7MB\ncompute: 3MB\npfs: {link: 100MB, bandwidth: {1: 100MB}}\n"
                              "classes: [{name: staging, capacity: 1GB, threads: 9, read: {1: 10GB}}]\n";

static void all_routes_give_the_same_scenario(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_job_options opt = defaults();
    write_text("slow.yaml", machine);
    opt.system = in_folder("slow.yaml");
    opt.data = in_folder("data");
    opt.out = in_folder("out");
    opt.generate = true;
    opt.ranks = 1;
    opt.ceiling = false;
    /* as run --virtual plays it */
    struct mr_job *j = resolve(&opt, MR_ARRAY_LEN(training), (const char **)(uintptr_t)training);
    struct mr_job_part part;
    struct mr_system sys;
    struct mr_scenario virtual, studied, from;
    check(mr_job_make_plan(j, &err), &err);
    check(mr_job_load_system(j, &sys, &err), &err);
    mr_job_training(j, &part);
    mr_job_scenario(j, &sys, &part, &virtual);
    assert_int_equal(virtual.samples, 64);
    assert_int_equal(virtual.system.classes[0].threads, 3);
    assert_float_equal(virtual.system.classes[0].capacity_mb, (5 + 1) * 4 * 0.01, 1e-9); /* and the trainer's */
    assert_float_equal(virtual.step_s, 0.001, 1e-12);
    assert_float_equal(virtual.system.preprocess_mbps, 0.01 / 0.002, 1e-9); /* of a thread */
    /* as sim workload= studies it */
    const char *words[] = {mr_arena_printf(&arena, "system=%s", opt.system)};
    const struct mr_strings changes = {1, words};
    check(mr_job_study_scenario(j, NULL, &changes, &studied, &err), &err);
    assert_same(&virtual, &studied, false);
    /* as sim --from finds it in the results of a run */
    struct mr_job *real = resolve(&opt, MR_ARRAY_LEN(training), (const char **)(uintptr_t)training);
    struct mr_job *again = mr_arena_alloc(&arena, sizeof(*again));
    struct mr_job_measured measured;
    const struct mr_strings nowhere = {0};
    check(mr_job_run(real, &err), &err);
    assert_true(real->result.is_whole);
    check(mr_job_load_measured(opt.out, &measured, &err), &err);
    check(mr_job_load(opt.out, &nowhere, &arena, again, &err), &err);
    check(mr_job_study_scenario(again, &measured, &changes, &from, &err), &err);
    assert_same(&virtual, &from, true);
    assert_float_equal(from.size_mean_mb, 0.01, 1e-9);
    assert_true(from.step_s > 0.0005 && from.step_s < 0.05);
    mr_job_done(again);
    mr_job_done(real);
}

/* Stored bytes take the storage's time, not those that training gets: pictures are decoded. */
static void a_measured_sample_is_as_large_as_it_is_stored(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_job_measured measured;
    const char *path = in_folder("out/summary.json");
    json_t *root = json_load_file(path, 0, NULL), *m = json_object_get(root, "millrace");
    assert_non_null(m);
    json_object_set_new(m, "sample_bytes", json_integer(5 * json_integer_value(json_object_get(m, "read_bytes"))));
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    check(mr_job_load_measured(in_folder("out"), &measured, &err), &err);
    assert_float_equal(measured.sample_bytes, 10000, 1e-6);
}

/* Whoever has the board and the trace again has the whole summary again. */
static void a_loaded_job_with_the_board_gives_the_same_summary(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_job_options opt = defaults();
    const struct mr_strings nowhere = {0};
    opt.data = in_folder("data");
    opt.out = in_folder("again");
    opt.generate = true;
    opt.ranks = 1;
    opt.checkpoint_folder = in_folder("saved");
    const char *words[MR_ARRAY_LEN(training) + 2];
    memcpy(words, training, sizeof training);
    words[MR_ARRAY_LEN(training)] = "workflow.checkpoint=true";
    words[MR_ARRAY_LEN(training) + 1] = "model.model_size_bytes=100KB";
    struct mr_job *live = resolve(&opt, MR_ARRAY_LEN(words), words);
    struct mr_job *again = mr_arena_alloc(&arena, sizeof(*again));
    check(mr_job_run(live, &err), &err);
    check(mr_job_load(opt.out, &nowhere, &arena, again, &err), &err);
    again->result.board = live->result.board;
    live->result.board = NULL;
    again->result.explained = live->result.explained; /* of the trace */
    live->result.explained = NULL;
    check(mr_job_compute_figures(again, &err), &err);
    json_t *one = json_load_file(in_folder("again/summary.json"), 0, NULL), *two = mr_job_summary_json(again);
    const char *key;
    json_t *value;
    assert_true(json_object_size(one) > 20 && json_object_size(one) == json_object_size(two));
    json_object_foreach(one, key, value)
    {
        if (!json_equal(value, json_object_get(two, key)))
            fail_msg("'%s' differs: %s and %s", key, json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY),
                     json_dumps(json_object_get(two, key), JSON_COMPACT | JSON_ENCODE_ANY));
    }
    json_decref(one);
    json_decref(two);
    mr_job_done(live);
    mr_job_done(again);
}

/* 64 samples of which a step takes 4: 16 steps in an epoch. */
static void a_study_ends_with_total_training_steps(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_job_options opt = defaults();
    struct mr_scenario s;
    struct mr_sim_workload w;
    const char *last = "train.total_training_steps=21", *words[MR_ARRAY_LEN(training) + 1];
    write_text("slow.yaml", machine);
    memcpy(words, training, sizeof training);
    words[MR_ARRAY_LEN(training)] = last;
    const char *system = mr_arena_printf(&arena, "system=%s", in_folder("slow.yaml"));
    const struct mr_strings changes = {1, &system};
    struct mr_job *j = resolve(&opt, MR_ARRAY_LEN(words), words);
    check(mr_job_study_scenario(j, NULL, &changes, &s, &err), &err);
    assert_int_equal(s.epochs, 2);
    check(mr_sim_workload_init(&w, &s, &err), &err);
    assert_int_equal(mr_sim_steps(&w), 21);
    mr_sim_workload_done(&w);
}

static void changing_nodes_keeps_the_batch_of_a_node(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_job_options opt = defaults();
    struct mr_scenario s;
    write_text("slow.yaml", machine);
    const char *words[] = {mr_arena_printf(&arena, "system=%s", in_folder("slow.yaml")), "nodes=4", "epochs=7"};
    const struct mr_strings changes = {MR_ARRAY_LEN(words), words};
    struct mr_job *j = resolve(&opt, MR_ARRAY_LEN(training), (const char **)(uintptr_t)training);
    check(mr_job_study_scenario(j, NULL, &changes, &s, &err), &err);
    assert_int_equal(s.nodes, 4);
    assert_int_equal(s.batch, 16);
    assert_int_equal(s.epochs, 7);
    assert_float_equal(s.step_s, 0.001, 1e-12);
}

/* Three threads that preprocess for 30 ms each deliver a batch of three every 30 ms, not every 10 ms. */
static void preprocessing_costs_every_thread_its_time(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_job_prediction p;
    struct mr_job_options opt = defaults();
    write_text("slow.yaml", machine);
    opt.system = in_folder("slow.yaml");
    const char *words[] = {"dataset.format=npz",
                           "dataset.num_files_train=300",
                           "dataset.record_length_bytes=1000",
                           "reader.batch_size=3",
                           "reader.read_threads=3",
                           "reader.prefetch_size=2",
                           "reader.preprocess_time=0.03",
                           "train.epochs=1",
                           "train.computation_time=0.001"};
    struct mr_job *j = resolve(&opt, MR_ARRAY_LEN(words), words);
    check(mr_job_predict(j, &p, &err), &err);
    assert_float_equal(p.train.time_s, 100 * 0.03, 0.1);
}

static void a_workload_survives_its_json(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_job_options opt = defaults();
    const char *words[] = {"dataset.format=hdf5",
                           "dataset.record_dims=[16, 8]",
                           "train.computation_time={type: normal, mean: 0.25, stdev: 0.125}",
                           "reader.sample_shuffle=random",
                           "checkpoint.files=[10, 20]",
                           "checkpoint.time_between_checkpoints=1.5",
                           "dataset.data_folder=a folder, with words",
                           "metric.au=0.75",
                           "workflow.checkpoint=true"};
    struct mr_job *j = resolve(&opt, MR_ARRAY_LEN(words), words);
    struct mr_workload *again;
    json_t *first = mr_workload_to_json(j->w), *second = NULL;
    const char *key;
    json_t *value;
    check(mr_workload_from_json(first, &arena, &again, &err), &err);
    second = mr_workload_to_json(again);
    json_object_foreach(first, key, value)
    {
        if (!json_equal(json_object_get(value, "value"), json_object_get(json_object_get(second, key), "value")))
            fail_msg("%s differs", key);
    }
    json_decref(first);
    json_decref(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gen_spec_has_everything_the_workload_says),
        cmocka_unit_test(all_routes_give_the_same_scenario),
        cmocka_unit_test(a_measured_sample_is_as_large_as_it_is_stored),
        cmocka_unit_test(a_loaded_job_with_the_board_gives_the_same_summary),
        cmocka_unit_test(a_study_ends_with_total_training_steps),
        cmocka_unit_test(changing_nodes_keeps_the_batch_of_a_node),
        cmocka_unit_test(preprocessing_costs_every_thread_its_time),
        cmocka_unit_test(a_workload_survives_its_json),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
