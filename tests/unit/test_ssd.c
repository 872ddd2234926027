/* test-label: concurrent
 * A folder as a storage class: what was written is read back, by this run, the next one and another process; what goes
 * and what stays when room is short; whose folder is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cache/ssd_hash.h"
#include "unit/ssd_test.h"

#include <pthread.h>
#include <utime.h>
#include <xxhash.h>

static void the_hash_is_xxh3_on_every_processor(void **state)
{
    (void)state;
    uint8_t bytes[5000];
    st_fill(9, bytes, sizeof bytes);
    for (size_t n = 0; n < sizeof bytes; n += 1 + n / 9) {
        assert_true(mr_ssd_hash(bytes + n % 7, n - n % 7) == XXH3_64bits(bytes + n % 7, n - n % 7));
#if MR_SSD_HASH_WIDE
        if (__builtin_cpu_supports("avx2"))
            assert_true(mr_ssd_hash_avx2(bytes, n) == XXH3_64bits(bytes, n));
#endif
    }
}

static void what_is_written_is_read_back_before_and_after_reopening(void **state)
{
    (void)state;
    struct mr_ssd *s = st_open(64 * MR_MIB);
    for (uint64_t id = 0; id < 300; id++) {
        assert_int_equal(mr_ssd_find(s, id * 7), 0);
        assert_int_equal(st_write(s, id * 7), 0);
        assert_int_equal(mr_ssd_find(s, id * 7), st_size(id * 7));
        assert_int_equal(st_write(s, id * 7), -EEXIST);
        assert_int_equal(st_read(s, id / 2 * 7), 0);
    }
    for (unsigned again = 0; again < 3; again++) {
        struct mr_ssd_stats x = st_stats(s);
        assert_int_equal(x.samples, 300);
        for (uint64_t id = 0; id < 300; id++)
            assert_int_equal(st_read(s, id * 7), 0);
        assert_int_equal(st_read(s, 1), -ENOENT);
        assert_int_equal(st_read_n(s, 7, st_size(7) + 1, true), -EINVAL);
        mr_ssd_close(s);
        s = st_open(64 * MR_MIB);
    }
    mr_ssd_close(s);
}

static void samples_larger_than_a_buffer_are_kept(void **state)
{
    (void)state;
    struct mr_ssd *s = st_open(256 * MR_MIB);
    const uint64_t sizes[] = {4 * MR_MIB, 4 * MR_MIB + 1, 9 * MR_MIB + 5, 3 * MR_MIB, 4 * MR_MIB - 1};
    for (uint64_t i = 0; i < MR_ARRAY_LEN(sizes); i++)
        assert_int_equal(st_write_n(s, i, sizes[i]), 0);
    for (uint64_t i = 0; i < MR_ARRAY_LEN(sizes); i++)
        assert_int_equal(st_read_n(s, i, sizes[i], i % 2), 0);
    assert_int_equal(st_write_n(s, 99, 0), -EINVAL);
    mr_ssd_close(s);
    s = st_open(256 * MR_MIB);
    for (uint64_t i = 0; i < MR_ARRAY_LEN(sizes); i++)
        assert_int_equal(st_read_n(s, i, sizes[i], i % 2), 0);
    mr_ssd_close(s);
}

static void dropped_samples_are_gone_and_their_blocks_too(void **state)
{
    (void)state;
    struct mr_ssd *s = st_open(64 * MR_MIB);
    for (uint64_t id = 0; id < 200; id++)
        assert_int_equal(st_write_n(s, id, 50000), 0);
    for (uint64_t id = 0; id < 200; id += 2) /* some of them are in a buffer still */
        mr_ssd_drop(s, id);
    for (uint64_t id = 0; id < 200; id++)
        assert_int_equal(st_read_n(s, id, 50000, true), id % 2 ? 0 : -ENOENT);
    mr_ssd_close(s);
    assert_true(st_du() < 100 * 53248 + 400 * MR_KIB);
    s = st_open(64 * MR_MIB);
    for (uint64_t id = 0; id < 200; id++)
        assert_int_equal(st_read_n(s, id, 50000, true), id % 2 ? 0 : -ENOENT);
    for (uint64_t id = 0; id < 200; id += 2)
        assert_int_equal(st_write_n(s, id, 50000), 0);
    mr_ssd_close(s);
    s = st_open(64 * MR_MIB);
    for (uint64_t id = 0; id < 200; id++)
        assert_int_equal(st_read_n(s, id, 50000, false), 0);
    mr_ssd_close(s);
}

static void count_one(void *user, uint64_t id, uint64_t bytes)
{
    (void)id, (void)bytes;
    ++*(uint64_t *)user;
}

static void the_capacity_holds_and_what_is_held_stays(void **state)
{
    (void)state;
    const uint64_t capacity = 8 * MR_MIB;
    struct mr_ssd *s = st_open(capacity);
    uint64_t kept = 0, id = 0;
    for (; id < 400; id++) {
        int rc = st_write(s, id);
        assert_true(rc == 0 || rc == -ENOSPC);
        kept += rc == 0;
        assert_true(st_du() <= capacity);
        if (id % 50 == 0)
            mr_ssd_each(s, count_one, &(uint64_t){0}); /* looks at the folder again, and at our own full files */
    }
    assert_true(kept > 100 && kept < 400);
    assert_int_equal(st_stats(s).samples, kept);
    assert_int_equal(st_stats(s).refused, 400 - kept);
    assert_int_equal(st_stats(s).evicted, 0);
    assert_true(st_stats(s).bytes > capacity * 8 / 10);
    mr_ssd_close(s);
    assert_true(st_du() <= capacity);
}

static void what_was_counted_with_fits(void **state)
{
    (void)state;
    static const uint64_t capacities[] = {MR_MIB, 3 * MR_MIB, 40 * MR_MIB};
    for (unsigned i = 0; i < MR_ARRAY_LEN(capacities); i++) {
        uint64_t capacity = capacities[i], counted = 0;
        struct mr_ssd *s = st_open_as((uint8_t)(10 + i), capacity);
        for (uint64_t id = 0;; id++) {
            counted += MR_SSD_TAKES(st_size(id));
            if (counted > capacity - MR_SSD_OVERHEAD(capacity))
                break;
            assert_int_equal(st_write(s, id), 0);
        }
        mr_ssd_close(s);
        assert_true(st_du() <= capacity);
    }
}

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    const uint64_t capacity = 8 * MR_MIB, n = 60;
    struct mr_ssd *s = st_open(capacity);
    for (uint64_t id = 0; id < n; id++)
        assert_int_equal(st_write_n(s, id, 100000), 0);
    mr_ssd_close(s);
    s = st_open(capacity);
    for (uint64_t id = 0; id < n; id++) /* nobody holds them now; 10 to 19 are used, 20 to 29 held */
        if (id >= 10 && id < 20)
            assert_int_equal(st_read_n(s, id, 100000, true), 0);
        else if (id >= 20 && id < 30)
            mr_ssd_hold(s, id, true);
    uint64_t more = 0;
    while (st_stats(s).evicted < 25) {
        assert_int_equal(st_write_n(s, 1000 + more++, 100000), 0);
        assert_true(st_du() <= capacity);
    }
    uint64_t left = 0;
    for (uint64_t id = 0; id < n; id++)
        left += mr_ssd_find(s, id) > 0;
    assert_int_equal(left + st_stats(s).evicted, n);
    for (uint64_t id = 0; id < 10; id++)
        assert_int_equal(mr_ssd_find(s, id), 0);
    for (uint64_t id = 10; id < 30; id++)
        assert_int_equal(mr_ssd_find(s, id), 100000);
    for (uint64_t id = 59; id > 45; id--)
        assert_int_equal(mr_ssd_find(s, id), 100000);
    while (more < 400 && !st_write_n(s, 1000 + more, 100000))
        more++;
    for (uint64_t id = 0; id < n; id++)
        assert_int_equal(mr_ssd_find(s, id), id >= 20 && id < 30 ? 100000 : 0);
    mr_ssd_hold(s, 20, false);
    assert_int_equal(st_write_n(s, 5000, 100000), 0);
    assert_int_equal(mr_ssd_find(s, 20), 0);
    mr_ssd_close(s);
}

static void other_data_sets_go_first_the_longest_unused_before(void **state)
{
    (void)state;
    const uint64_t capacity = 16 * MR_MIB;
    for (uint8_t set = 1; set <= 3; set++) {
        struct mr_ssd *s = st_open_as(set, capacity);
        for (uint64_t id = 0; id < 40; id++)
            assert_int_equal(st_write_n(s, id, 100000), 0);
        mr_ssd_close(s);
        const struct utimbuf used = {.actime = 1000000 - set, .modtime = 1000000 - set}; /* 3 is the oldest */
        assert_int_equal(utime(st_path(set, "about.json"), &used), 0);
    }
    struct mr_ssd *in_use = st_open_as(2, capacity), *s = st_open_as(1, capacity);
    const struct utimbuf old = {.actime = 1, .modtime = 1};
    assert_int_equal(utime(st_path(2, "about.json"), &old), 0);
    for (uint64_t id = 100; id < 160; id++) {
        assert_int_equal(st_write_n(s, id, 100000), 0);
        assert_true(st_du() <= capacity);
    }
    assert_true(access(st_path(3, "0001.seg"), F_OK) != 0); /* the other one is in use */
    assert_int_equal(st_stats(s).evicted, 0);
    for (uint64_t id = 0; id < 40; id++) {
        assert_int_equal(st_read_n(in_use, id, 100000, true), 0);
        assert_int_equal(st_read_n(s, id, 100000, true), 0);
    }
    mr_ssd_close(s);
    mr_ssd_close(in_use);
}

static void a_smaller_capacity_makes_the_folder_smaller(void **state)
{
    (void)state;
    struct mr_ssd *s = st_open(16 * MR_MIB);
    for (uint64_t id = 0; id < 120; id++)
        assert_int_equal(st_write_n(s, id, 100000), 0);
    mr_ssd_close(s);
    assert_true(st_du() > 12 * 1000000);
    s = st_open(4 * MR_MIB);
    assert_true(st_du() <= 4 * MR_MIB);
    uint64_t left = 0;
    for (uint64_t id = 0; id < 120; id++)
        left += st_read_n(s, id, 100000, true) == 0;
    assert_true(left > 20 && left < 42);
    mr_ssd_close(s);
}

/* ---- several at once ---- */

struct worker {
    struct mr_ssd *s;
    unsigned number;
    unsigned errors;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t r = mr_mix64(i * 8 + w->number), id = r % 150;
        int rc = r >> 60 < 6 ? st_write(w->s, id) : r >> 60 < 8 ? (mr_ssd_drop(w->s, id), 0) : st_read(w->s, id);
        if (r >> 60 == 15)
            mr_ssd_hold(w->s, id, r >> 32 & 1);
        w->errors += rc != 0 && rc != -EEXIST && rc != -ENOENT && rc != -ENOSPC;
    }
    return NULL;
}

static void threads_write_read_and_drop_at_once(void **state)
{
    (void)state;
    struct mr_ssd *s = st_open(4 * MR_MIB); /* of 9 */
    struct worker w[4];
    pthread_t t[4];
    for (unsigned i = 0; i < 4; i++) {
        w[i] = (struct worker){s, i, 0};
        pthread_create(&t[i], NULL, work, &w[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(w[i].errors, 0);
    }
    assert_int_equal(st_stats(s).corrupt, 0);
    assert_true(st_du() <= 4 * MR_MIB);
    mr_ssd_close(s);
}

/* A process of its own: its share of the samples written, all of the others' seen sooner or later. */
static int job(unsigned number, unsigned jobs, uint64_t capacity)
{
    struct mr_ssd *s = st_open(capacity);
    for (uint64_t id = number; id < 200; id += jobs)
        if (st_write_n(s, id, 60000))
            return 1;
    for (unsigned tries = 0; tries < 100; tries++) {
        unsigned have = 0;
        for (uint64_t id = 0; id < 200; id++) {
            int rc = mr_ssd_find(s, id) ? st_read_n(s, id, 60000, true) : -ENOENT;
            if (rc && rc != -ENOENT)
                return 2;
            have += !rc;
        }
        if (have == 200) {
            mr_ssd_close(s);
            return 0;
        }
        if (tries == 2) { /* it has what the others wrote once theirs is in files: make ours so, too */
            mr_ssd_close(s);
            s = st_open(capacity);
        }
        usleep(100000);
    }
    return 3;
}

/* A job that opens while another one writes to the last file, and goes on in it when that one has closed. */
static void a_file_is_continued_with_all_that_is_in_it(void **state)
{
    (void)state;
    struct mr_ssd *a = st_open(64 * MR_MIB), *b, *c;
    for (uint64_t id = 0; id < 10; id++)
        assert_int_equal(st_write_n(a, id, 9000), 0); /* in its buffer */
    b = st_open(64 * MR_MIB);                         /* sees nothing of that */
    c = st_open(64 * MR_MIB);
    mr_ssd_close(a);
    for (uint64_t id = 100; id < 110; id++)
        assert_int_equal(st_write_n(b, id, 9000), 0);
    mr_ssd_close(b);
    for (uint64_t id = 200; id < 210; id++)
        assert_int_equal(st_write_n(c, id, 9000), 0);
    mr_ssd_close(c);
    a = st_open(64 * MR_MIB);
    assert_int_equal(st_stats(a).samples, 30);
    for (uint64_t id = 0; id < 30; id++)
        assert_int_equal(st_read_n(a, id / 10 * 100 + id % 10, 9000, true), 0);
    assert_int_not_equal(access(st_path(1, "0002.seg"), F_OK), 0);
    mr_ssd_close(a);
}

static void two_processes_read_each_others_samples(void **state)
{
    (void)state;
    pid_t pid[2];
    for (unsigned i = 0; i < 2; i++)
        if ((pid[i] = st_fork()) == 0)
            _exit(job(i, 2, 64 * MR_MIB));
    for (unsigned i = 0; i < 2; i++) {
        int status;
        waitpid(pid[i], &status, 0);
        assert_int_equal(status, 0);
    }
    struct mr_ssd *s = st_open(64 * MR_MIB);
    assert_int_equal(st_stats(s).samples, 200);
    mr_ssd_close(s);
}

static int greedy(uint8_t set, uint64_t capacity)
{
    struct mr_ssd *s = st_open_as(set, capacity);
    for (uint64_t id = 0; id < 300; id++) {
        int rc = st_write(s, id);
        if (rc && rc != -ENOSPC && rc != -EEXIST) /* the other one may have written it */
            return 1;
        if (!rc && st_read(s, id))
            return 2;
        if (id % 3 == 0)
            mr_ssd_drop(s, id / 2);
    }
    mr_ssd_close(s);
    return 0;
}

static void two_jobs_share_one_capacity(void **state)
{
    (void)state;
    const uint64_t capacity = 8 * MR_MIB;
    pid_t pid[3];
    unsigned left = 3;
    for (unsigned i = 0; i < 3; i++)
        if ((pid[i] = st_fork()) == 0)
            _exit(greedy(i < 2 ? 1 : 2, capacity)); /* two with one data set, one with another */
    uint64_t most = 0;
    int bad = 0;
    while (left) {
        int status;
        struct mr_ssd_folder f;
        if (!mr_ssd_folder_open(st_dir, false, &f, NULL)) { /* nothing grows while it is counted */
            if (!mr_ssd_folder_lock(&f, NULL)) {
                most = MR_MAX(most, st_du());
                mr_ssd_folder_unlock(&f);
            }
            mr_ssd_folder_close(&f);
        }
        if (waitpid(-1, &status, WNOHANG) > 0) {
            left--;
            bad |= status;
        }
    }
    assert_int_equal(bad, 0);
    assert_in_range(MR_MAX(most, st_du()), 1, capacity);
}

/* ---- whose folder ---- */

static int open_error(uint64_t capacity, char *message)
{
    struct mr_ssd_params p = {.folder = st_dir, .capacity = capacity, .data_set = {1}};
    struct mr_ssd *s = NULL;
    struct mr_error e = {0};
    int rc = mr_ssd_open(&p, &s, &e);
    if (!rc)
        mr_ssd_close(s);
    snprintf(message, 200, "%.199s", e.message);
    return rc;
}

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

static void folders_that_are_not_ours_are_refused(void **state)
{
    (void)state;
    char why[200], path[400];
    put_file(st_dir, "a file");
    assert_int_equal(open_error(MR_GIB, why), MR_E_CONFIG);
    assert_non_null(strstr(why, "not a folder"));
    unlink(st_dir);

    assert_int_equal(mkdir(st_dir, 0755), 0); /* an empty one of ours becomes a cache */
    assert_int_equal(open_error(MR_GIB, why), 0);
    struct stat st;
    assert_int_equal(stat(st_dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    chmod(st_dir, 0750);
    assert_int_equal(open_error(MR_GIB, why), MR_E_CONFIG);
    assert_non_null(strstr(why, "0700"));
    chmod(st_dir, 0700);

    snprintf(path, sizeof path, "%s/cache.lock", st_dir);
    put_file(path, "millrace cache 99\n");
    assert_int_equal(open_error(MR_GIB, why), MR_E_CONFIG);
    assert_non_null(strstr(why, "version 99"));
    put_file(path, "something else");
    assert_int_equal(open_error(MR_GIB, why), MR_E_CONFIG);
    unlink(path);
    assert_int_equal(open_error(MR_GIB, why), MR_E_CONFIG); /* it has a data set's folder and no lock */
    assert_non_null(strstr(why, "not a cache's"));
    if (geteuid() == 0) {
        put_file(path, "");
        assert_int_equal(chown(st_dir, 12345, (gid_t)-1), 0);
        assert_int_equal(open_error(MR_GIB, why), MR_E_CONFIG);
        assert_non_null(strstr(why, "another user"));
        assert_int_equal(chown(st_dir, geteuid(), (gid_t)-1), 0);
    }
}

static void what_is_not_ours_stays(void **state)
{
    (void)state;
    struct mr_ssd *s = st_open(8 * MR_MIB);
    assert_int_equal(st_write(s, 1), 0);
    mr_ssd_close(s);
    char mine[600], sub[600];
    snprintf(mine, sizeof mine, "%s", st_path(1, "thesis.txt"));
    snprintf(sub, sizeof sub, "%s/letters", st_dir);
    put_file(mine, "all of it");
    put_file(st_path(1, "12.seg"), "not our way to write a number");
    assert_int_equal(mkdir(sub, 0700), 0);
    s = st_open_as(2, 2 * MR_MIB);
    for (uint64_t id = 0; id < 100; id++)
        (void)st_write(s, id);
    mr_ssd_close(s);
    assert_true(access(st_path(1, "0001.seg"), F_OK) != 0);
    assert_int_equal(access(mine, F_OK), 0);
    assert_int_equal(access(st_path(1, "12.seg"), F_OK), 0);
    assert_int_equal(access(sub, F_OK), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, st_setup, st_teardown)
#define FAST_TEST(f) cmocka_unit_test_setup_teardown(f, st_setup_in_memory, st_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_xxh3_on_every_processor),
        TEST(what_is_written_is_read_back_before_and_after_reopening),
        TEST(samples_larger_than_a_buffer_are_kept),
        TEST(dropped_samples_are_gone_and_their_blocks_too),
        FAST_TEST(the_capacity_holds_and_what_is_held_stays),
        TEST(what_was_counted_with_fits),
        FAST_TEST(the_least_recently_used_goes_first),
        FAST_TEST(other_data_sets_go_first_the_longest_unused_before),
        FAST_TEST(a_smaller_capacity_makes_the_folder_smaller),
        FAST_TEST(threads_write_read_and_drop_at_once),
        TEST(a_file_is_continued_with_all_that_is_in_it),
        FAST_TEST(two_processes_read_each_others_samples),
        FAST_TEST(two_jobs_share_one_capacity),
        FAST_TEST(folders_that_are_not_ours_are_refused),
        FAST_TEST(what_is_not_ours_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
