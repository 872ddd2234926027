/* Scaling presets for a check: all shipped ones stay small, and what is kept stays as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "preset/check.h"
#include "preset/check_storage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct mr_strings search(struct mr_arena *a)
{
    struct mr_strings s = {.n = 1, .item = mr_arena_alloc(a, sizeof(*s.item))};
    assert_non_null(s.item);
    s.item[0] = MR_SOURCE_DIR "/workloads";
    return s;
}

static struct mr_workload *load(const char *name, struct mr_arena *a)
{
    struct mr_workload_request req = {.workload = name, .search_path = search(a)};
    struct mr_workload *w = NULL;
    struct mr_error err;
    assert_int_equal(mr_workload_resolve(&req, a, &w, &err), 0);
    return w;
}

static void every_preset_is_small_and_has_expectations(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_strings path = search(&a), names;
    struct mr_error err, why;
    assert_int_equal(mr_workload_list(&path, &a, &names, &err), 0);
    assert_true(names.n >= 50);
    for (unsigned i = 0; i < names.n; i++) {
        struct mr_check_shape s;
        struct mr_workload *w = load(names.item[i], &a);
        assert_true(w->extra.n_expect > 0);
        assert_true(*w->extra.source != '\0');
        assert_int_equal(mr_check_scale(w, 0, &s, &err), 0);
        if (s.reads && !mr_workload_check_supported(w, &why))
            assert_true(s.data_bytes <= 320e6);
        assert_true(s.ranks >= 1 && s.ranks <= 8);
    }
    mr_arena_done(&a);
}

static void ranks_keep_equally_many_files(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_error err;
    struct mr_workload *w = load("frnn", &a); /* 400 files on 4 ranks */
    for (double factor = 0.03; factor < 1; factor *= 1.1) {
        struct mr_check_shape s;
        assert_int_equal(mr_check_scale(w, factor, &s, &err), 0);
        assert_int_equal(s.w.dataset.num_files_train % (int64_t)s.ranks, 0);
        assert_true(fabs((double)s.w.dataset.num_files_train - 400 * factor) < s.ranks + 1);
    }
    mr_arena_done(&a);
}

static void what_is_kept_stays(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_error err;
    struct mr_check_shape s;
    struct mr_workload *w = load("imagenet-theta", &a);
    assert_int_equal(mr_check_scale(w, 0, &s, &err), 0);
    assert_true(s.w.dataset.record_length_bytes == w->dataset.record_length_bytes);
    assert_int_equal(s.w.reader.transfer_size, w->reader.transfer_size);
    assert_int_equal(s.w.dataset.num_files_train, 16);
    assert_int_equal(s.file_passes, 24); /* 473 of 313 files */
    assert_true(fabs(s.step_s / w->train.computation_time.a - (double)s.w.reader.batch_size / 512) < 1e-12);
    mr_arena_done(&a);
}

static void full_scale_changes_nothing(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_error err;
    struct mr_check_shape s;
    struct mr_workload *w = load("tf-alexnet", &a);
    assert_int_equal(mr_check_scale(w, 1, &s, &err), 0);
    assert_int_equal(s.w.dataset.num_files_train, w->dataset.num_files_train);
    assert_int_equal(s.w.reader.batch_size, w->reader.batch_size);
    assert_true(s.bytes_ratio == 1 && s.files_ratio == 1 && s.ranks_ratio == 1);
    mr_arena_done(&a);
}

static void storage_models_become_throttle_options(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_strings path = search(&a);
    struct mr_error err;
    const char *text = NULL;
    assert_int_equal(mr_check_storage("", 1, &path, &a, &text, &err), 0);
    assert_string_equal(text, "");
    assert_int_equal(mr_check_storage("throttle(latency=200us,stream_bandwidth=1.2GB)", 2, &path, &a, &text, &err), 0);
    assert_string_equal(text, "throttle(latency=400000ns,stream_bandwidth=600000000)");
    assert_int_equal(mr_check_storage("hdd", 1, &path, &a, &text, &err), 0);
    assert_non_null(strstr(text, "bandwidth=163000000"));
    assert_non_null(strstr(text, "stream_bandwidth=70900000"));
    assert_int_equal(mr_check_storage("throttle(colour=red)", 2, &path, &a, &text, &err), MR_E_CONFIG);
    assert_int_equal(mr_check_storage("throttle(latency=1us", 1, &path, &a, &text, &err), MR_E_CONFIG);
    assert_true(mr_check_storage("no-such-system", 1, &path, &a, &text, &err) < 0);
    mr_arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_is_small_and_has_expectations),
        cmocka_unit_test(ranks_keep_equally_many_files),
        cmocka_unit_test(what_is_kept_stays),
        cmocka_unit_test(full_scale_changes_nothing),
        cmocka_unit_test(storage_models_become_throttle_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
