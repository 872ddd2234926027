/* test-label: concurrent
 * Managing a cache folder: data sets by key and name, damage found by several threads and dropped, data sets that a job
 * uses are kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cache/cache_admin.h"
#include "unit/ssd_test.h"

#define SAMPLES 60u

static void fill_set(uint8_t set)
{
    struct mr_ssd *s = st_open_as(set, 64 * MR_MIB);
    for (uint64_t id = 0; id < SAMPLES; id++)
        assert_int_equal(st_write(s, id), 0);
    mr_ssd_close(s);
}

static void list_and_count(const char *which, struct mr_cache_list *l, uint64_t *bytes)
{
    struct mr_error err = {0};
    if (mr_cache_list(st_dir, which, l, &err) || mr_cache_count(st_dir, l, bytes, &err))
        fail_msg("%s", err.message);
}

static void data_sets_are_found_by_key_and_name(void **state)
{
    (void)state;
    struct mr_cache_list l;
    struct mr_error err = {0};
    uint64_t bytes, sum = 0;
    fill_set(1);
    fill_set(2);
    for (uint64_t id = 0; id < SAMPLES; id++)
        sum += st_size(id);
    list_and_count("a set", &l, &bytes);
    assert_int_equal(l.n, 2);
    assert_int_equal(bytes, st_du());
    for (size_t i = 0; i < l.n; i++) {
        assert_int_equal(l.set[i].samples, SAMPLES);
        assert_int_equal(l.set[i].bytes, sum);
        assert_int_equal(l.set[i].about.samples, 1000);
        assert_false(l.set[i].in_use);
    }
    mr_cache_list_done(&l);
    list_and_count("0200", &l, &bytes);
    assert_int_equal(l.n, 1);
    assert_memory_equal(l.set[0].key, "0200", 4);
    mr_cache_list_done(&l);
    assert_int_equal(mr_cache_list(st_dir, "020", &l, &err), MR_E_USAGE); /* too short to mean one */
    assert_non_null(strstr(err.message, "no data set '020'"));
    mr_cache_list_done(&l);
}

static void count_bad(void *user, const char *message)
{
    assert_non_null(strstr(message, "checksum"));
    atomic_fetch_add((atomic_uint *)user, 1);
}

static void damage_is_found_by_all_threads_and_dropped(void **state)
{
    (void)state;
    struct mr_cache_list l;
    struct mr_cache_verified v;
    struct mr_error err = {0};
    atomic_uint bad = 0;
    atomic_bool stop = false;
    const struct mr_cache_work how = {.threads = 4, .stop = &stop};
    fill_set(1);
    int fd = open(st_path(1, "0001.seg"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "damage!", 7, 4096 + 3), 7);
    close(fd);
    assert_int_equal(mr_cache_list(st_dir, "", &l, &err), 0);
    assert_int_equal(mr_cache_verify(st_dir, &l, &how, count_bad, &bad, &v, &err), 0);
    assert_int_equal(bad, 1);
    assert_int_equal(v.corrupt, 1);
    assert_int_equal(v.samples, SAMPLES - 1);
    assert_int_equal(v.unreadable, 0);
    assert_int_equal(mr_cache_verify(st_dir, &l, &how, count_bad, &bad, &v, &err), 0);
    assert_int_equal(v.corrupt, 0);
    assert_int_equal(v.samples, SAMPLES - 1);
    stop = true;
    assert_int_equal(mr_cache_verify(st_dir, &l, &how, count_bad, &bad, &v, &err), MR_E_INTERRUPTED);
    mr_cache_list_done(&l);
}

static void a_data_set_in_use_is_kept(void **state)
{
    (void)state;
    struct mr_cache_list l;
    struct mr_error err = {0};
    uint64_t freed = 0, bytes;
    unsigned kept = 0;
    fill_set(1);
    fill_set(2);
    struct mr_ssd *s = st_open_as(2, 64 * MR_MIB);
    list_and_count("", &l, &bytes);
    assert_int_equal(l.n, 2);
    assert_true(l.set[0].in_use != l.set[1].in_use);
    assert_int_equal(mr_cache_drop(st_dir, &l, &freed, &kept, &err), 0);
    assert_true(freed > 0 && kept > 0);
    assert_int_equal(st_read(s, 5), 0);
    mr_ssd_close(s);
    mr_cache_list_done(&l);
    list_and_count("", &l, &bytes);
    assert_int_equal(l.n, 1);
    assert_memory_equal(l.set[0].key, "02", 2);
    mr_cache_list_done(&l);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, st_setup, st_teardown)
    const struct CMUnitTest tests[] = {
        T(data_sets_are_found_by_key_and_name),
        T(damage_is_found_by_all_threads_and_dropped),
        T(a_data_set_in_use_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
