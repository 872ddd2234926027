/* An SSD folder when things go wrong: every system call fails once in turn, the device is full or read-only, bytes and
 * records are changed, the process is killed at any moment. Nothing wrong is ever read, and the folder opens again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "cache/ssd_index.h"
#include "unit/ssd_test.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mount.h>

#define CAPACITY (3 * MR_MIB)

/* ---- faults ---- */

static enum mr_ssd_call fault_call;
static unsigned fault_nth, fault_seen;
static int fault_errno;
static bool fault_stays;

static int fault(enum mr_ssd_call call)
{
    if (call != fault_call)
        return 0;
    fault_seen++;
    return fault_seen == fault_nth || (fault_stays && fault_seen > fault_nth) ? fault_errno : 0;
}

/* What a job does: writes more than there is room for, reads, drops, comes again. Reads give the right bytes or an
 * error. */
static void use_folder(void)
{
    struct mr_ssd_params p = {.folder = st_dir, .capacity = CAPACITY, .data_set = {1}, .name = "a set", .samples = 100};
    for (unsigned run = 0; run < 2; run++) {
        struct mr_ssd *s = NULL;
        if (mr_ssd_open(&p, &s, NULL))
            continue;
        for (uint64_t i = 0; i < 60; i++) {
            uint64_t id = (i + 30 * run) % 80;
            (void)st_write(s, id);
            assert_int_not_equal(st_read(s, i / 2), -EILSEQ);
            if (i % 5 == 0)
                mr_ssd_drop(s, i / 3);
            if (i % 7 == 0)
                mr_ssd_hold(s, i / 2, false);
        }
        mr_ssd_close(s);
    }
}

static unsigned expect_whole(const char *after)
{
    struct mr_ssd *s = st_open(CAPACITY);
    unsigned here = 0;
    for (uint64_t id = 0; id < 200; id++) {
        int rc = mr_ssd_find(s, id) ? st_read(s, id) : -ENOENT;
        if (rc && rc != -ENOENT)
            fail_msg("after %s: sample %llu: %d", after, (unsigned long long)id, rc);
        here += !rc;
    }
    assert_int_equal(st_stats(s).corrupt, 0);
    assert_int_equal(st_stats(s).samples, here);
    (void)st_write(s, 5);
    assert_int_equal(st_read(s, 5), 0); /* it still takes samples */
    mr_ssd_close(s);
    if (st_du() > CAPACITY)
        fail_msg("after %s: %llu bytes", after, (unsigned long long)st_du());
    return here;
}

static void every_call_fails_once_and_for_good(void **state)
{
    (void)state;
    static const struct {
        enum mr_ssd_call call;
        int code;
    } kinds[] = {{MR_SSD_CALL_OPEN, EIO},      {MR_SSD_CALL_OPEN, EMFILE},  {MR_SSD_CALL_READ, EIO},
                 {MR_SSD_CALL_WRITE, EIO},     {MR_SSD_CALL_WRITE, ENOSPC}, {MR_SSD_CALL_ALLOCATE, ENOSPC},
                 {MR_SSD_CALL_TRUNCATE, EIO},  {MR_SSD_CALL_PUNCH, EIO},    {MR_SSD_CALL_ALLOCATE, EOPNOTSUPP},
                 {MR_SSD_CALL_SYNC, EIO},      {MR_SSD_CALL_LOCK, ENOLCK},  {MR_SSD_CALL_STAT, EIO},
                 {MR_SSD_CALL_REMOVE, EACCES}, {MR_SSD_CALL_MEMORY, ENOMEM}};
    for (unsigned k = 0; k < MR_ARRAY_LEN(kinds); k++) {
        for (unsigned mode = 0; mode < 2; mode++) {
            /* all of the first calls, then fewer and fewer */
            for (unsigned n = 1;; n += 1 + n * 2 / 3) {
                char after[64];
                fault_call = kinds[k].call;
                fault_errno = kinds[k].code;
                fault_stays = mode;
                fault_nth = n;
                fault_seen = 0;
                mr_ssd_fault = fault;
                use_folder();
                mr_ssd_fault = NULL;
                snprintf(after, sizeof after, "call %u of kind %u%s, error %d", n, kinds[k].call,
                         mode ? " and all later ones" : "", kinds[k].code);
                (void)expect_whole(after);
                if (fault_seen < n)
                    break;
                if (mode && n > 3)
                    n += 3 * n;
            }
            mr_temp_folder_remove(st_dir, NULL);
        }
    }
}

/* Where the file system cannot give blocks back or reserve room, the capacity holds all the same. */
static int cannot(enum mr_ssd_call call)
{
    return call == fault_call ? EOPNOTSUPP : 0;
}

static void file_systems_without_reservations_keep_the_capacity(void **state)
{
    (void)state;
    mr_ssd_fault = cannot;
    fault_call = MR_SSD_CALL_ALLOCATE;
    struct mr_ssd *s = st_open(CAPACITY);
    unsigned kept = 0;
    for (uint64_t id = 0; id < 200; id++) {
        kept += st_write(s, id) == 0;
        assert_true(st_du() <= CAPACITY);
    }
    mr_ssd_close(s);
    assert_true(st_du() <= CAPACITY);
    s = st_open(CAPACITY);
    assert_true(st_stats(s).samples > kept * 8 / 10);
    mr_ssd_close(s);
    mr_ssd_fault = NULL;
    expect_whole("writing without reservations");
}

static void file_systems_without_holes_lose_whole_files(void **state)
{
    (void)state;
    mr_ssd_fault = cannot;
    fault_call = MR_SSD_CALL_PUNCH;
    for (unsigned run = 0; run < 4; run++) {
        struct mr_ssd *s = st_open(CAPACITY);
        unsigned kept = 0;
        for (uint64_t id = 0; id < 50; id++) {
            kept += st_write_n(s, 1000 * run + id, 50000) == 0;
            assert_true(st_du() <= CAPACITY);
        }
        mr_ssd_close(s);
        assert_true(kept > 30);
    }
    mr_ssd_fault = NULL;
}

/* ---- damage ---- */

static void flip(const char *path, uint64_t at, uint8_t with)
{
    int fd = open(path, O_RDWR);
    uint8_t b = 0;
    assert_int_equal(pread(fd, &b, 1, (off_t)at), 1);
    b ^= with;
    assert_int_equal(pwrite(fd, &b, 1, (off_t)at), 1);
    close(fd);
}

static uint64_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

static void fill_some(uint64_t n)
{
    struct mr_ssd *s = st_open(64 * MR_MIB);
    for (uint64_t id = 0; id < n; id++)
        assert_int_equal(st_write_n(s, id, 20000), 0);
    mr_ssd_close(s);
}

static void changed_bytes_are_never_read(void **state)
{
    (void)state;
    struct mr_ssd *s;
    fill_some(50);
    for (unsigned i = 0; i < 5; i++) /* the data of samples 3, 13, ... */
        flip(st_path(1, "0001.seg"), (i * 10 + 3) * 20480 + i * 4999, (uint8_t)(1 << i));
    s = st_open(64 * MR_MIB);
    for (uint64_t id = 0; id < 50; id++)
        assert_int_equal(st_read_n(s, id, 20000, id % 2), id % 10 == 3 ? MR_E_CORRUPT : 0);
    assert_int_equal(st_stats(s).corrupt, 5);
    assert_int_equal(mr_ssd_find(s, 3), 0);
    assert_int_equal(st_write_n(s, 3, 20000), 0); /* fetched again */
    assert_int_equal(st_read_n(s, 3, 20000, true), 0);
    mr_ssd_close(s);
    s = st_open(64 * MR_MIB);
    assert_int_equal(st_stats(s).samples, 46);
    assert_int_equal(st_read_n(s, 3, 20000, true), 0);
    mr_ssd_close(s);
}

static void changed_and_torn_records_are_not_believed(void **state)
{
    (void)state;
    fill_some(50);
    for (unsigned byte = 0; byte < MR_SSD_RECORD; byte++)
        flip(st_path(1, "0001.idx"), MR_SSD_HEADER + byte * MR_SSD_RECORD + byte, 0x10);
    assert_int_equal(truncate(st_path(1, "0001.idx"), (off_t)(MR_SSD_HEADER + 45 * MR_SSD_RECORD + 9)), 0);
    struct mr_ssd *s = st_open(64 * MR_MIB);
    for (uint64_t id = 0; id < 50; id++)
        assert_int_equal(st_read_n(s, id, 20000, true), id < 32 || id >= 45 ? -ENOENT : 0);
    for (uint64_t id = 0; id < 50; id++)
        assert_int_equal(st_write_n(s, id, 20000), id < 32 || id >= 45 ? 0 : -EEXIST);
    mr_ssd_close(s);
    s = st_open(64 * MR_MIB);
    for (uint64_t id = 0; id < 50; id++)
        assert_int_equal(st_read_n(s, id, 20000, true), 0);
    mr_ssd_close(s);
}

static void leftovers_are_cleaned_up(void **state)
{
    (void)state;
    fill_some(20);
    uint64_t before = st_du();
    static const char *const orphans[] = {"0007.seg", "0008.idx", "0009.seg", "0009.idx", "about.json.tmp"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(orphans); i++) { /* without the other, or with a torn header */
        int fd = open(st_path(1, orphans[i]), O_CREAT | O_WRONLY, 0600);
        assert_int_equal(ftruncate(fd, 1000000), 0);
        assert_int_equal(pwrite(fd, "junk", 4, 500000), 4);
        close(fd);
    }
    /* room that was reserved by somebody who was killed */
    int fd = open(st_path(1, "0001.seg"), O_WRONLY);
    assert_int_equal(posix_fallocate(fd, (off_t)size_of(st_path(1, "0001.seg")), 3 << 20), 0);
    close(fd);
    assert_true(st_du() > before + (3 << 20));
    struct mr_ssd *s = st_open(64 * MR_MIB);
    for (uint64_t id = 0; id < 20; id++)
        assert_int_equal(st_read_n(s, id, 20000, true), 0);
    mr_ssd_close(s);
    for (unsigned i = 0; i < MR_ARRAY_LEN(orphans); i++)
        assert_int_not_equal(access(st_path(1, orphans[i]), F_OK), 0);
    assert_true(st_du() <= before + 8192);
}

/* ---- devices ---- */

static void a_full_device_refuses_writes_and_keeps_the_rest(void **state)
{
    (void)state;
    char options[64];
    assert_int_equal(mkdir(st_dir, 0700), 0);
    snprintf(options, sizeof options, "size=%llum,mode=0700", 4ull);
    if (geteuid() != 0 || mount("tmpfs", st_dir, "tmpfs", 0, options) != 0) {
        print_message("may not mount: the full device is the fault of every_call_fails only\n");
        skip();
    }
    struct mr_ssd *s = st_open(64 * MR_MIB); /* more than there is */
    unsigned kept = 0, refused = 0;
    for (uint64_t id = 0; id < 100; id++) {
        int rc = st_write_n(s, id, 100000);
        kept += rc == 0;
        refused += rc == -ENOSPC;
    }
    struct mr_ssd_stats x = st_stats(s);
    mr_ssd_close(s);
    s = st_open(64 * MR_MIB);
    unsigned good = 0;
    for (uint64_t id = 0; id < 100; id++)
        good += st_read_n(s, id, 100000, true) == 0;
    unsigned corrupt = (unsigned)st_stats(s).corrupt;
    mr_ssd_close(s);
    umount2(st_dir, MNT_DETACH);
    assert_int_equal(kept + refused, 100);
    assert_true(kept > 10 && kept < 42);
    assert_int_equal(good, x.samples);
    assert_true(good >= kept / 2);
    assert_int_equal(corrupt, 0);
}

static void a_read_only_folder_is_read(void **state)
{
    (void)state;
    fill_some(20);
    bool mounted = geteuid() == 0 && mount(st_dir, st_dir, NULL, MS_BIND, NULL) == 0;
    bool is_ro = geteuid() == 0 ? mounted && mount(NULL, st_dir, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0
                                : chmod(st_dir, 0500) == 0 && chmod(st_path(1, ""), 0500) == 0;
    unsigned good = 0;
    int write = 0, other_write = 0;
    if (is_ro) {
        struct mr_ssd *s = st_open(64 * MR_MIB), *other = st_open_as(9, 64 * MR_MIB);
        for (uint64_t id = 0; id < 20; id++)
            good += st_read_n(s, id, 20000, true) == 0;
        write = st_write_n(s, 100, 20000);
        other_write = st_write_n(other, 100, 20000);
        mr_ssd_close(s);
        mr_ssd_close(other);
    }
    if (mounted)
        umount2(st_dir, MNT_DETACH);
    chmod(st_dir, 0700);
    chmod(st_path(1, ""), 0700);
    if (!is_ro)
        skip();
    assert_int_equal(good, 20);
    assert_int_equal(write, -EROFS);
    assert_int_equal(other_write, -EROFS);
}

/* ---- kill -9 ---- */

static void work_until_killed(unsigned round)
{
    uint64_t x = mr_mix64(round);
    struct mr_ssd *s = st_open(CAPACITY);
    for (;;) {
        x = mr_mix64(x + 1);
        uint64_t id = x % 200;
        switch (x >> 60) {
        case 0:
        case 1: mr_ssd_drop(s, id); break;
        case 2: mr_ssd_hold(s, id, false); break;
        case 3:
            if (st_read(s, id) == -EILSEQ)
                _exit(7);
            break;
        case 4:
            if (x >> 56 & 1) {
                mr_ssd_close(s);
                s = st_open(CAPACITY);
            }
            break;
        default:
            for (uint64_t more = 0; more < 8; more++)
                (void)st_write(s, (id + more) % 200);
        }
    }
}

static void kill_at_any_moment_leaves_whole_entries(void **state)
{
    (void)state;
    unsigned here = 0;
    for (unsigned round = 0; round < 100; round++) {
        char after[64];
        pid_t pid = st_fork();
        if (!pid)
            work_until_killed(round);
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + mr_mix64(round * 3) % 40 * MR_NS_PER_MS, NULL);
        int status;
        assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status));
        snprintf(after, sizeof after, "kill %u", round);
        if (round % 3 == 0)
            here += expect_whole(after);
    }
    assert_true(here > 100); /* there was something to lose */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, st_setup, st_teardown)
#define FAST_TEST(f) cmocka_unit_test_setup_teardown(f, st_setup_in_memory, st_teardown)
    const struct CMUnitTest tests[] = {
        FAST_TEST(every_call_fails_once_and_for_good),
        FAST_TEST(file_systems_without_reservations_keep_the_capacity),
        FAST_TEST(file_systems_without_holes_lose_whole_files),
        TEST(changed_bytes_are_never_read),
        TEST(changed_and_torn_records_are_not_believed),
        TEST(leftovers_are_cleaned_up),
        TEST(a_full_device_refuses_writes_and_keeps_the_rest),
        TEST(a_read_only_folder_is_read),
        FAST_TEST(kill_at_any_moment_leaves_whole_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
