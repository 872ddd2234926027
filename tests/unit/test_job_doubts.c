/* A verdict is given only to a run that deserves it: every doubt withdraws it, and nothing else does. The figures of
 * the machine and of the run are put in here, so that troubles can be tested that this machine does not have. */
#include "base/common.h"
#include "job/job_internal.h"
#include "conf/job_options.h"
#include "job/job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct mr_arena arena;
static atomic_bool stop;

/* A run of 100 steps of one rank, 10 ms each, of which 9.5 ms compute; nothing is wrong with it. */
static struct mr_job *good_run(void)
{
    static const char *words[] = {"dataset.format=npz", "dataset.num_files_train=100", "train.computation_time=0.0095",
                                  "metric.au=0.9"};
    struct mr_job_options opt;
    struct mr_error err;
    struct mr_job *j = mr_arena_alloc(&arena, sizeof(*j));
    assert_int_equal(mr_options_defaults(&mr_job_options_table, &arena, &opt, &err), 0);
    const struct mr_job_request req = {.options = &opt,
                                       .overrides = {MR_ARRAY_LEN(words), words},
                                       .arena = &arena,
                                       .stop = &stop,
                                       .is_quiet = true,
                                       .is_local = true};
    assert_int_equal(mr_job_resolve(&req, j, &err), 0);
    assert_int_equal(mr_bench_board_create(1, 100, 1, &j->result.board, &err), 0);
    j->result.series = calloc(1, sizeof(*j->result.series));
    j->result.metrics = calloc(1, sizeof(*j->result.metrics));
    assert_true(j->result.series && j->result.metrics);
    j->result.world = j->result.local_world = 1;
    j->result.ranks_by = "self";
    j->info.samples = 100;
    *j->result.metrics = (struct mr_metrics){.steps = 100,
                                             .au_steps = 99,
                                             .au = 0.95,
                                             .au_low = 0.94,
                                             .au_high = 0.96,
                                             .compute_mean_s = 0.0095,
                                             .duration_s = 1,
                                             .read_bytes = 6400000};
    j->result.metrics->step_s.p50 = 0.01;
    j->result.trust = (struct mr_job_trust){.cold_share = 1,
                                            .ceiling_share = 0.01,
                                            .cpus = 4,
                                            .cpus_around = 4,
                                            .threads = 4,
                                            .clock_step_ns = 20,
                                            .timer_late_ns = 50000};
    return j;
}

/* Judges the run and frees it. `says` NULL: no doubt is expected. */
static void expect(struct mr_job *j, enum mr_job_verdict verdict, const char *says)
{
    char because[1100];
    mr_job_find_doubts(j);
    assert_int_equal(mr_job_judge(j, because, sizeof because), verdict);
    if (says ? !strstr(because, says) : because[0] != '\0')
        fail_msg("'%s', not '%s'", because, says ? says : "");
    json_t *trust = mr_job_trust_json(j);
    assert_int_equal(json_is_true(json_object_get(trust, "trusted")), says == NULL);
    json_decref(trust);
    mr_job_done(j);
}

static void a_good_run_has_a_verdict(void **state)
{
    (void)state;
    expect(good_run(), MR_JOB_PASS, NULL);
    struct mr_job *j = good_run();
    j->result.metrics->au = 0.85;
    j->result.metrics->au_low = 0.84;
    j->result.metrics->au_high = 0.86;
    expect(j, MR_JOB_FAIL, NULL);
    j = good_run();
    j->result.metrics->compute_mean_s = 0; /* no accelerator to keep busy */
    expect(j, MR_JOB_NOT_ASKED, NULL);
}

static void other_data_is_another_workload(void **state)
{
    (void)state;
    struct mr_job *j = good_run();
    mr_job_note(&j->unlike, &arena, "the samples have 2 bytes");
    expect(j, MR_JOB_NO_VERDICT, "the samples have 2 bytes");
    j = good_run();
    j->opt.store = "null(size=1MB)";
    expect(j, MR_JOB_NO_VERDICT, "no storage was read");
}

static void data_in_memory_must_be_meant(void **state)
{
    (void)state;
    struct mr_job *j = good_run();
    j->result.trust.cold_share = 0.5;
    expect(j, MR_JOB_NO_VERDICT, "50 % of the data was in the page cache");
    j = good_run();
    j->result.trust.cold_share = 0;
    j->result.trust.asked = MR_CACHE_WARM;
    expect(j, MR_JOB_PASS, NULL);
    j = good_run();
    j->result.trust.cold_share = 0.9;
    j->result.trust.asked = MR_CACHE_COLD;
    expect(j, MR_JOB_NO_VERDICT, "asked for a cold cache, but 10 %");
    j = good_run();
    j->result.trust.cold_share = 0;
    j->result.trust.bypasses_cache = true;
    expect(j, MR_JOB_PASS, NULL);
    j = good_run();
    j->result.trust.cold_share = 0;
    j->opt.store = "throttle(bandwidth=40MB):posix"; /* as slow with its data in memory */
    expect(j, MR_JOB_PASS, NULL);
    j = good_run();
    j->result.trust.cold_share = 0;
    j->opt.store = "trace(file=x):uring";
    expect(j, MR_JOB_NO_VERDICT, "page cache");
}

static void the_machine_must_not_stand_in_the_way(void **state)
{
    (void)state;
    struct mr_job *j = good_run();
    j->result.trust.cpus = 1;
    expect(j, MR_JOB_NO_VERDICT, "4 threads are pinned to 1 of 4 CPUs");
    j = good_run();
    j->result.trust.cpus = 1;
    j->result.ranks_by = "mpi";
    expect(j, MR_JOB_NO_VERDICT, "--bind-to none");
    j = good_run();
    j->result.trust.threads = 16; /* that wait for storage, on a machine with four */
    expect(j, MR_JOB_PASS, NULL);
    j = good_run();
    j->result.trust.threads = 16;
    j->result.trust.cpu_share = 0.8;
    expect(j, MR_JOB_NO_VERDICT, "80 % busy");
    j = good_run();
    j->result.trust.ceiling_share = 0.6;
    expect(j, MR_JOB_NO_VERDICT, "60 % of what it can without any storage");
}

static void it_takes_enough_steps(void **state)
{
    (void)state;
    struct mr_job *j = good_run();
    j->result.metrics->au_steps = 9;
    expect(j, MR_JOB_NO_VERDICT, "too few steps: the AU is that of 9 steps per rank");
    j = good_run();
    j->result.world = j->result.local_world = 8; /* counted steps are one rank's, however many ranks there are */
    j->result.metrics->au_steps = 29;
    expect(j, MR_JOB_PASS, NULL);
    j = good_run();
    j->result.metrics->au_low = 0.89;
    expect(j, MR_JOB_NO_VERDICT, "between 89.0 and 96.0 %");
}

static void the_clock_must_be_believed(void **state)
{
    (void)state;
    struct mr_step late = {.compute_ns = 10000000, .compute_wall_ns = 11500000};
    struct mr_job *j = good_run();
    j->result.trust.timer_late_ns = 2000000;
    expect(j, MR_JOB_NO_VERDICT, "timers fire 2.0 ms late");
    j = good_run();
    j->result.trust.timer_late_ns = 2000000;
    j->result.metrics->compute_mean_s = 0.5; /* nothing beside half a second */
    expect(j, MR_JOB_PASS, NULL);
    j = good_run();
    j->result.trust.clock_step_ns = 4000000;
    expect(j, MR_JOB_NO_VERDICT, "the clock moves in steps of 4.000 ms");
    j = good_run();
    j->result.trust.clock_shift_s = -3600;
    expect(j, MR_JOB_NO_VERDICT, "the system clock moved by -3600.0 s");
    j = good_run();
    j->result.series[0] = (struct mr_rank_series){.steps = &late, .n = 1};
    expect(j, MR_JOB_NO_VERDICT, "15 % more passed than was asked for");
}

static void what_is_incomplete_has_no_verdict(void **state)
{
    (void)state;
    char because[1100];
    struct mr_job *j = good_run();
    j->result.code = mr_error_plain(&j->result.why, MR_E_INTERRUPTED, "interrupted");
    assert_int_equal(mr_job_judge(j, because, sizeof because), MR_JOB_NO_VERDICT);
    assert_non_null(strstr(because, "incomplete: interrupted"));
    mr_job_done(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_run_has_a_verdict),
        cmocka_unit_test(other_data_is_another_workload),
        cmocka_unit_test(data_in_memory_must_be_meant),
        cmocka_unit_test(the_machine_must_not_stand_in_the_way),
        cmocka_unit_test(it_takes_enough_steps),
        cmocka_unit_test(the_clock_must_be_believed),
        cmocka_unit_test(what_is_incomplete_has_no_verdict),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mr_arena_done(&arena);
    return failed;
}
