/* What a workload amounts to: the published parameter counts, bandwidth needs and step counts come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/common.h"
#include "conf/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct mr_error err;

static int preset(const char *name, uint32_t ranks, const char *override, struct mr_workload_plan *p)
{
    struct mr_arena a = {0};
    struct mr_workload *w;
    const char *folder = MR_SOURCE_DIR "/workloads";
    struct mr_workload_request req = {.workload = name, .search_path = {.n = 1, .item = &folder}};
    if (override)
        req.overrides = (struct mr_strings){.n = 1, .item = &override};
    int rc = mr_workload_resolve(&req, &a, &w, &err);
    if (!rc)
        rc = mr_plan_make(w, ranks, p, &err);
    mr_arena_done(&a);
    return rc;
}

static void transformer_checkpoints_have_the_published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t parameters;
        double model_gib, optimizer_gib;
        uint32_t ranks;
        uint64_t model_files, optimizer_files;
    } cases[] = {
        {"llama_7b", 6738415616, 12.6, 75.3, 1, 1, 1},
        {"llama_7b_zero3", 6738415616, 12.6, 75.3, 1, 1, 1},
        {"llama_8b_zero3", 8030261248, 15.0, 89.7, 8, 8, 8},
        {"llama3_8b", 8030261248, 15.0, 89.7, 8, 8, 8},
        {"llama_70b", 69882617856, 130.2, 781.0, 32, 83 * 8, 32},
        {"llama3_70b", 69882617856, 130.2, 781.0, 64, 64, 64},
        {"llama3_405b", 405853388800, 756.0, 4535.8, 512, 129 * 8, 512},
        {"llama3_1t", 1183035102480, 2203.6, 13221.4, 1024, 131 * 8, 1024},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_workload_plan p;
        assert_int_equal(preset(cases[i].name, 0, NULL, &p), 0);
        assert_true(p.checkpoint.parameters == cases[i].parameters);
        assert_true(fabs(p.checkpoint.model_bytes / 0x1p30 - cases[i].model_gib) < 0.06);
        assert_true(fabs(p.checkpoint.optimizer_bytes / 0x1p30 - cases[i].optimizer_gib) < 0.06);
        assert_int_equal(p.ranks, cases[i].ranks);
        assert_true(p.checkpoint.model_files == cases[i].model_files);
        assert_true(p.checkpoint.optimizer_files == cases[i].optimizer_files);
        assert_true(p.checkpoint.writes == 10 && p.checkpoint.reads == 10 && p.pause_s == 95);
        assert_true(p.train_files == 0 && p.train_s == 0);
    }
}

static void bandwidth_needs_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double mb_per_s;
    } cases[] = {
        {"default", 0.02},        {"unet3d_v100", 431},    {"unet3d_a100", 1614},
        {"unet3d_h100", 3177},    {"unet3d_b200", 6335},   {"resnet50_tf", 75},
        {"resnet50_v100", 38},    {"resnet50_a100", 105},  {"resnet50_h100", 205},
        {"cosmoflow_v100", 302},  {"cosmoflow_a100", 513}, {"cosmoflow_h100", 808},
        {"bert_v100", 0.12},      {"dlrm", 10437},         {"retinanet_b200", 163},
        {"retinanet_mi355", 163}, {"dlrm_b200", 6991},     {"dlrm_mi355", 4660},
        {"flux_b200", 77},        {"flux_mi355", 77},      {"megatron_deepspeed_LLNL", 0.01},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_workload_plan p;
        assert_int_equal(preset(cases[i].name, 0, NULL, &p), 0);
        double have = p.need_bytes_per_s / 1e6, want = cases[i].mb_per_s;
        if (fabs(have - want) > (want < 1 ? 0.0051 : 0.51))
            fail_msg("%s needs %g MB/s, not %g", cases[i].name, have, want);
    }
}

static void steps_bytes_and_schedules(void **state)
{
    (void)state;
    struct mr_workload_plan p;
    assert_int_equal(preset("unet3d_h100", 1, NULL, &p), 0);
    assert_true(p.train_files == 168 && p.steps_per_epoch == 24 && p.total_steps == 120);
    assert_true(p.train_bytes == 24628905504.0);
    assert_true(fabs(p.train_s - 38.76) < 1e-9);
    assert_true(p.checkpoint.writes == 1 && p.checkpoint.model_bytes == 499153191 && p.checkpoint.model_files == 1);
    assert_int_equal(preset("unet3d_h100", 5, NULL, &p), 0);
    assert_true(p.steps_per_epoch == 4 && p.samples_left_out == 28);
    assert_int_equal(preset("unet3d_h100", 5, "reader.drop_last=false", &p), 0);
    assert_true(p.steps_per_epoch == 5 && p.samples_left_out == 0); /* 34 samples each: 4 batches of 7 and one of 6 */
    assert_int_equal(preset("unet3d_h100", 25, NULL, &p), MR_E_CONFIG);
    assert_int_equal(preset("unet3d_h100", 4, "checkpoint.type=all_ranks", &p), 0);
    assert_true(p.checkpoint.model_files == 4 && p.checkpoint.model_bytes == 4 * 499153191.0);
    assert_int_equal(preset("default", 1, NULL, &p), 0);
    assert_true(p.steps_per_epoch == 16 && p.evaluations == 10 && p.eval_steps == 8 && p.eval_s == 40);
    assert_int_equal(preset("bert_v100", 1, NULL, &p), 0);
    assert_true(p.total_steps == 1000 && p.checkpoint.writes == 4 && p.checkpoint.model_bytes == 4034713312.0);
    assert_int_equal(preset("default", 1, "dataset.num_files_train=0", &p), MR_E_CONFIG);
    assert_int_equal(preset("default", 1, "dataset.record_length_bytes=9e15", &p), 0);
    assert_int_equal(preset("dlrm", 1, "dataset.record_length_bytes=9e15", &p), MR_E_CONFIG);
    assert_int_equal(preset("dlrm_b200", 1, "train.epochs=1e9", &p), 0);
    assert_int_equal(preset("default", 1, "dataset.record_dims=[0]", &p), MR_E_CONFIG);
    assert_int_equal(preset("llama3_8b", 8, "model.transformer={ffn_hidden_size: 1e8, hidden_size: 1e7}", &p),
                     MR_E_CONFIG);
    assert_int_equal(preset("llama3_405b", 100, NULL, &p), MR_E_CONFIG);
    assert_non_null(strstr(err.hint, "--ranks 256"));
    assert_int_equal(preset("llama3_405b", 8, "checkpoint.mode=subset", &p), 0);
    assert_true(fabs(p.checkpoint.model_bytes - 405853388800.0 * 2 * 8 / 256) < 1);
    assert_int_equal(preset("hepcnn-cori-local", 0, NULL, &p), 0);
    assert_true(p.ranks == 64 && p.record_bytes == 602128 && p.train_samples == 726016);
}

/* Any rank count: what is read plus what is left out is the data set, and more ranks never mean more steps. */
static void steps_account_for_every_sample(void **state)
{
    (void)state;
    uint64_t before = UINT64_MAX;
    for (uint32_t ranks = 1; ranks <= 24; ranks++) {
        struct mr_workload_plan p;
        assert_int_equal(preset("unet3d_a100", ranks, NULL, &p), 0);
        assert_true(p.steps_per_epoch * 7 * ranks + p.samples_left_out == 168);
        assert_true(p.samples_left_out < 7ull * ranks && p.steps_per_epoch <= before);
        before = p.steps_per_epoch;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transformer_checkpoints_have_the_published_sizes),
        cmocka_unit_test(bandwidth_needs_are_the_published_ones),
        cmocka_unit_test(steps_bytes_and_schedules),
        cmocka_unit_test(steps_account_for_every_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
