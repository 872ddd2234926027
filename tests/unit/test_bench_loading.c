/* What a workload asks of the loader: the keys of reader.preprocess, and how far reading ahead may go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/common.h"
#include "bench/trainer.h"

#include <stdio.h>
#include <string.h>

struct setup {
    struct mr_arena arena;
    struct mr_workload *w;
    struct mr_workload_plan plan;
};

static void load(struct setup *s, const char *text)
{
    struct mr_error err = {0};
    *s = (struct setup){0};
    if (mr_workload_parse(text, strlen(text), "t", false, &s->arena, &s->w, &err) ||
        mr_plan_make(s->w, 2, &s->plan, &err))
        fail_msg("%s / %s", err.message, err.context);
}

/* 1: preprocessing is on. */
static int ask(const char *keys, bool eval, struct mr_preprocess_params *out, struct mr_error *err)
{
    char text[600];
    struct setup s;
    snprintf(text, sizeof text, "reader: {preprocess: {%s}}", keys);
    load(&s, text);
    int rc = mr_bench_preprocess_params(s.w, eval, 77, out, err);
    mr_arena_done(&s.arena);
    return rc;
}

static void keys_become_preprocessing(void **state)
{
    (void)state;
    struct mr_preprocess_params p;
    struct mr_error err;
    assert_int_equal(ask("", false, &p, &err), 0);
    assert_int_equal(
        ask("crop: random_resized, size: [200, 224], scale_min: 0.2, flip: 0.5, dtype: float32, layout: chw, "
            "mean: [0.485, 0.456, 0.406], stdev: [0.229, 0.224, 0.225]",
            false, &p, &err),
        1);
    assert_true(p.crop == MR_CROP_RANDOM_RESIZED && p.height == 200 && p.width == 224 && p.to_float && p.planar &&
                p.seed == 77);
    assert_true(p.scale_min > 0.19 && p.scale_min < 0.21 && p.scale_max > 0.99 && p.flip > 0.49 && p.flip < 0.51);
    assert_true(p.mean[1] > 0.455f && p.mean[1] < 0.457f && p.stdev[2] > 0.224f && p.stdev[2] < 0.226f &&
                p.stdev[3] > 0.99f);
    assert_int_equal(ask("crop: random, crop_size: [10, 20]", false, &p, &err), 1);
    assert_true(p.crop == MR_CROP_RANDOM && p.crop_height == 10 && p.crop_width == 20 && p.height == 0 && !p.to_float &&
                !p.planar);
    assert_int_equal(ask("layout: chw", false, &p, &err), 1);
}

static void an_evaluation_draws_nothing(void **state)
{
    (void)state;
    struct mr_preprocess_params p;
    struct mr_error err;
    assert_int_equal(ask("crop: random, crop_size: [10, 20], flip: 1", true, &p, &err), 1);
    assert_true(p.crop == MR_CROP_CENTER && p.flip <= 0);
    assert_int_equal(ask("crop: random_resized, size: [10, 20]", true, &p, &err), 1);
    assert_true(p.crop == MR_CROP_NONE && p.height == 10);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"crop: center",
                                      "crop_size: [5, 5]",
                                      "crop: random_resized",
                                      "size: [5]",
                                      "size: [5, 5, 3]",
                                      "mean: [0.5]",
                                      "dtype: float32, stdev: [0]",
                                      "dtype: float32, mean: [a]",
                                      "dtype: float32, mean: [1, 2, 3, 4, 5]",
                                      "crop: random_resized, size: [5, 5], scale_min: 0.9, scale_max: 0.1"};
    struct mr_preprocess_params p;
    struct mr_error err;
    for (unsigned i = 0; i < MR_ARRAY_LEN(bad); i++) {
        int rc = ask(bad[i], false, &p, &err);
        if (rc != MR_E_CONFIG && rc != MR_E_USAGE)
            fail_msg("'%s' gives %d", bad[i], rc);
    }
}

/* 20 steps per epoch (80 samples, 2 ranks, batch 2). */
static uint64_t last_epoch(const char *train, enum mr_bench_cache cache, bool each, bool eval)
{
    char text[400];
    struct setup s;
    struct mr_loader_params lp;
    struct mr_comm comm = {.rank = 1, .world = 2};
    snprintf(text, sizeof text,
             "dataset: {num_files_train: 80, num_files_eval: 8}\nreader: {batch_size: 2}\ntrain: {%s}", train);
    load(&s, text);
    assert_int_equal(s.plan.steps_per_epoch, 20);
    const struct mr_bench_params p = {
        .workload = s.w, .plan = &s.plan, .comm = &comm, .cache = cache, .cache_each_epoch = each, .lookahead = -1};
    mr_bench_loader_params(&p, eval, &lp);
    mr_arena_done(&s.arena);
    return lp.last_epoch;
}

static void reading_ahead_ends_with_the_run_and_where_the_cache_changes(void **state)
{
    (void)state;
    assert_int_equal(last_epoch("epochs: 5", MR_CACHE_ASIS, false, false), 4);
    assert_int_equal(last_epoch("epochs: 5", MR_CACHE_COLD, false, false), 4);
    assert_int_equal(last_epoch("epochs: 5", MR_CACHE_COLD, true, false), 0);
    assert_int_equal(last_epoch("epochs: 5", MR_CACHE_WARM, true, false), 0);
    assert_int_equal(last_epoch("epochs: 5", MR_CACHE_ASIS, true, false), 4);
    assert_int_equal(last_epoch("epochs: 5", MR_CACHE_ASIS, false, true), 0);
    assert_int_equal(last_epoch("epochs: 1", MR_CACHE_ASIS, false, false), 0);
    assert_int_equal(last_epoch("epochs: 5, total_training_steps: 20", MR_CACHE_ASIS, false, false), 0);
    assert_int_equal(last_epoch("epochs: 5, total_training_steps: 21", MR_CACHE_ASIS, false, false), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_become_preprocessing),
        cmocka_unit_test(an_evaluation_draws_nothing),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(reading_ahead_ends_with_the_run_and_where_the_cache_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
