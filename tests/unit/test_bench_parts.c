/* The trainer's parts: draws have the moments their distributions promise, compute takes the time asked, the files of a
 * checkpoint add up to the plan's figures for every parallelism. */
#include "base/clock.h"
#include "base/common.h"
#include "bench/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static void moments(const struct mr_dist *d, double *mean, double *stdev)
{
    enum { N = 40000 };
    double sum = 0, square = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = mr_bench_draw(d, 7, 5, i);
        assert_true(x >= 0 && isfinite(x));
        sum += x;
        square += x * x;
    }
    *mean = sum / N;
    *stdev = sqrt(fmax(0, square / N - *mean * *mean));
}

static void draws_have_the_moments_asked_for(void **state)
{
    (void)state;
    static const struct {
        struct mr_dist d;
        double mean, stdev;
    } cases[] = {{{MR_DIST_CONSTANT, 0.3, 0}, 0.3, 0},
                 {{MR_DIST_NORMAL, 1.0, 0.2}, 1.0, 0.2},
                 {{MR_DIST_UNIFORM, 1, 3}, 2, 2 / 3.46410161514},
                 {{MR_DIST_GAMMA, 2.5, 0.4}, 1.0, 0.63245553},
                 {{MR_DIST_GAMMA, 0.5, 2}, 1.0, 1.41421356},
                 {{MR_DIST_EXPONENTIAL, 0.7, 0}, 0.7, 0.7},
                 {{MR_DIST_POISSON, 3, 0}, 3, 1.7320508},
                 {{MR_DIST_POISSON, 2000, 0}, 2000, 44.72136}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        double mean, stdev;
        moments(&cases[i].d, &mean, &stdev);
        assert_true(fabs(mean - cases[i].mean) < 0.03 * cases[i].mean);
        assert_true(fabs(stdev - cases[i].stdev) < 0.05 * cases[i].stdev + 1e-6);
    }
    struct mr_dist d = cases[1].d;
    assert_true(mr_bench_draw(&d, 7, 5, 1) == mr_bench_draw(&d, 7, 5, 1));
    assert_true(mr_bench_draw(&d, 7, 5, 1) != mr_bench_draw(&d, 8, 5, 1));
}

static void compute_takes_its_time_and_stops_when_told(void **state)
{
    (void)state;
    _Atomic uint32_t stop = 0;
    for (int kind = MR_COMPUTE_SLEEP; kind <= MR_COMPUTE_GEMM; kind++) {
        uint64_t start = mr_now_ns();
        assert_int_equal(mr_bench_compute((enum mr_bench_compute)kind, 3000000, &stop), 3000000);
        assert_true(mr_now_ns() - start >= 3000000);
    }
    stop = 1;
    uint64_t start = mr_now_ns();
    assert_true(mr_bench_compute(MR_COMPUTE_SLEEP, 60 * MR_NS_PER_S, &stop) < 30 * MR_NS_PER_S);
    assert_true(mr_now_ns() - start < 30 * MR_NS_PER_S);
}

static void check_files(const char *yaml, uint32_t ranks)
{
    struct mr_arena a = {0};
    struct mr_error err = {0};
    struct mr_workload *w;
    struct mr_workload_plan p;
    char text[1024];
    snprintf(text, sizeof text, "workflow: {train: false, checkpoint: true}\ncheckpoint: {num_checkpoints_write: 1%s",
             yaml);
    int rc = mr_workload_parse(text, strlen(text), "t", false, &a, &w, &err);
    if (rc || (rc = mr_plan_make(w, ranks, &p, &err)))
        fail_msg("%s: %s", yaml, err.message);
    double bytes = 0;
    uint64_t files = 0;
    static char seen[1024][192];
    for (uint32_t r = 0; r < p.ranks; r++) {
        struct mr_checkpoint_file *f;
        uint64_t n;
        assert_int_equal(mr_bench_checkpoint_files(w, &p, r, &f, &n, &err), 0);
        for (uint64_t i = 0; i < n; i++) {
            bytes += (double)f[i].bytes;
            for (uint64_t k = 0; k < files; k++)
                assert_string_not_equal(seen[k], f[i].name);
            assert_true(files < MR_ARRAY_LEN(seen));
            snprintf(seen[files++], sizeof seen[0], "%s", f[i].name);
        }
        free(f);
    }
    assert_float_equal(bytes, floor(p.checkpoint.model_bytes) + floor(p.checkpoint.optimizer_bytes), 1.0);
    assert_int_equal(files, p.checkpoint.model_files + p.checkpoint.optimizer_files);
    mr_arena_done(&a);
}

#define MODEL                                                                                                          \
    "}\nmodel: {type: transformer, num_layers: 7, transformer: {hidden_size: 96, vocab_size: 1000, ffn_hidden_size: "  \
    "300, "                                                                                                            \
    "num_attention_heads: 8, num_kv_heads: 2}, parallelism: "

static void checkpoint_files_add_up_to_the_plan(void **state)
{
    (void)state;
    check_files(", type: rank_zero}\nframework: pytorch\nmodel: {model_size_bytes: 12345}\n", 3);
    check_files(", type: all_ranks}\nframework: pytorch\nmodel: {model_size_bytes: 12345}\n", 3);
    check_files(", type: all_ranks}\nframework: tensorflow\nmodel: {model_size_bytes: 12345}\n", 2);
    check_files("}\nframework: tensorflow\nmodel: {model_size_bytes: 999}\n", 2);
    check_files(", files: [1000, 7000000, 32000000, 5000, 4000]}\n", 2);
    check_files(MODEL "{zero_stage: 0}}\n", 3);
    check_files(MODEL "{tensor: 2, pipeline: 3, zero_stage: 0}}\n", 12);
    check_files(MODEL "{tensor: 2, zero_stage: 1}}\n", 6);
    check_files(MODEL "{tensor: 2, pipeline: 3, zero_stage: 1}}\n", 6);
    check_files(MODEL "{tensor: 2, pipeline: 4, zero_stage: 2}}\n", 16);
    check_files(MODEL "{tensor: 4, zero_stage: 3}}\n", 8);
    check_files("}\nmodel: {num_layers: 4, layer_parameters: [1000, 77], optimization_groups: [501, 13], parallelism: "
                "{tensor: 2, "
                "pipeline: 2, zero_stage: 1}}\n",
                4);
}

static void tensorflow_writes_three_files(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_error err = {0};
    struct mr_workload *w;
    struct mr_workload_plan p;
    struct mr_checkpoint_file *f;
    uint64_t n;
    const char *text =
        "framework: tensorflow\nworkflow: {train: false, checkpoint: true}\nmodel: {model_size_bytes: 600000000}\n";
    assert_int_equal(mr_workload_parse(text, strlen(text), "t", false, &a, &w, &err), 0);
    assert_int_equal(mr_plan_make(w, 2, &p, &err), 0);
    assert_int_equal(mr_bench_checkpoint_files(w, &p, 0, &f, &n, &err), 0);
    assert_int_equal(n, 3);
    assert_int_equal(f[0].bytes + f[1].bytes + f[2].bytes, 600000000);
    free(f);
    assert_int_equal(mr_bench_checkpoint_files(w, &p, 1, &f, &n, &err), 0);
    assert_int_equal(n, 0);
    free(f);
    mr_arena_done(&a);
}

static void board_keeps_the_ranks_apart(void **state)
{
    (void)state;
    struct mr_bench_board *b;
    struct mr_error err;
    struct mr_rank_series s[3];
    assert_int_equal(mr_bench_board_create(3, 100, 10, &b, &err), 0);
    for (uint32_t r = 0; r < 3; r++) {
        for (uint64_t i = 0; i < 100; i++)
            b->steps[r * b->step_cap + i].step = r * 1000 + (uint32_t)i;
        for (uint64_t i = 0; i < 10; i++)
            b->checkpoints[r * b->checkpoint_cap + i].step = r * 1000 + i;
        atomic_store(&b->ranks[r].n_steps, 100);
        atomic_store(&b->ranks[r].n_checkpoints, 10);
    }
    mr_bench_board_series(b, s);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(s[r].steps[99].step, r * 1000 + 99);
        assert_int_equal(s[r].checkpoints[9].step, r * 1000 + 9);
    }
    mr_bench_board_free(b);
    assert_int_equal(mr_bench_board_create(1000000, UINT64_MAX / 1024, 10, &b, &err), MR_E_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_have_the_moments_asked_for),
        cmocka_unit_test(compute_takes_its_time_and_stops_when_told),
        cmocka_unit_test(checkpoint_files_add_up_to_the_plan),
        cmocka_unit_test(tensorflow_writes_three_files),
        cmocka_unit_test(board_keeps_the_ranks_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
