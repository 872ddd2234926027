/* The burst buffer: saves go there, the drain brings them to the final folder and frees it; a full or failing buffer is
 * gone around; a failing drain is told and loses nothing. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <cmocka.h>

#include "unit/checkpoint_burst_test.h"

/* ---- when all is well ---- */

static void burst_saves_are_drained_in_order_and_the_buffer_is_freed(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_checkpoint_drained d[8];
    struct mr_checkpointer *c = OPEN(.final = "fault(op=write,every=1,slow=5ms):posix");
    for (uint64_t step = 1; step <= 5; step++) {
        save(c, step, &r);
        assert_true(r.buffered);
        assert_int_equal(r.bytes, BYTES);
    }
    drain(c);
    assert_int_equal(mr_checkpoint_drains(c, 0, d, 8), 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(d[i].step, i + 1);
        assert_int_equal(d[i].bytes, BYTES);
        assert_int_equal(d[i].files, FILES);
        assert_int_equal(d[i].code, 0);
        assert_true(d[i].queued_ns <= d[i].start_ns && d[i].start_ns < d[i].end_ns);
        assert_true(i == 0 || d[i].start_ns >= d[i - 1].end_ns);
    }
    assert_int_equal(mr_checkpoint_drains(c, 4, d, 8), 1);
    assert_int_equal(in_final(""), 5);
    for (uint64_t step = 1; step <= 5; step++)
        expect_final(step);
    struct mr_error e = {0};
    assert_int_equal(mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e), 0);
    assert_false(r.buffered);
    mr_checkpointer_close(c);
}

static void burst_keep_last_holds_on_both_sides(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_checkpointer *c = OPEN(.keep = 2);
    for (uint64_t step = 1; step <= 6; step++)
        save(c, step, &r);
    drain(c);
    mr_checkpointer_close(c);
    assert_int_equal(in_final(""), 2);
    expect_final(5);
    expect_final(6);
}

/* The same step again: the buffer's copy is drained before it is written anew. */
static void burst_saves_a_step_again(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_checkpointer *c = OPEN(.final = "fault(op=write,every=1,slow=5ms):posix");
    for (int i = 0; i < 4; i++)
        save(c, 7, &r);
    drain(c);
    mr_checkpointer_close(c);
    assert_int_equal(in_final(""), 1);
    expect_final(7);
}

static void burst_without_room_waits_for_the_drain(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_checkpointer *c = OPEN(.final = "fault(op=write,every=1,slow=20ms):posix", .capacity = BYTES + BYTES / 2);
    for (uint64_t step = 1; step <= 3; step++) {
        save(c, step, &r);
        assert_true(r.buffered);
        assert_true(step == 1 || final_has(step - 1)); /* there was room only after that */
    }
    assert_true(r.wait_ns > 0 && r.wait_ns <= r.duration_ns);
    drain(c);
    mr_checkpointer_close(c);
}

static void burst_that_is_too_small_is_gone_around(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_checkpointer *c = OPEN(.capacity = BYTES - 1);
    save(c, 1, &r);
    assert_false(r.buffered);
    assert_true(final_has(1));
    drain(c);
    mr_checkpointer_close(c);
}

static void burst_keeps_other_folders_apart(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    uint64_t step;
    struct mr_checkpointer *c = OPEN(.final = "fault(op=mkdir,every=1,error=EROFS):posix");
    save(c, 1, &r);
    assert_int_equal(mr_checkpoint_drain(c, &e), -EROFS);
    assert_int_equal(mr_checkpoint_buffered(c), 1);
    mr_checkpointer_close(c);
    c = open_with((struct setup){0}, "elsewhere");
    assert_int_equal(mr_checkpoint_recover(c), 0);
    assert_int_equal(mr_checkpoint_newest(c, &step, &e), MR_E_INCOMPLETE);
    save(c, 2, &r);
    assert_int_equal(mr_checkpoint_drain(c, &e), 0);
    mr_checkpointer_close(c);
    assert_int_equal(in_buffer(), 1);
    c = open_with((struct setup){0}, "./final//"); /* the same folder in other words */
    assert_int_equal(mr_checkpoint_recover(c), 1);
    drain(c);
    mr_checkpointer_close(c);
    expect_final(1);
}

static void burst_refuses_what_cannot_work(void **state)
{
    (void)state;
    struct mr_checkpointer *c;
    struct mr_error e = {0};
    struct mr_checkpoint_params p = {.folder = ct_dir, .world = 1, .burst_folder = "/x", .burst_store = "null"};
    assert_int_equal(mr_checkpointer_open(&p, &c, &e), MR_E_CONFIG);
    p.burst_store = "nosuch";
    assert_int_not_equal(mr_checkpointer_open(&p, &c, &e), 0);
    p.burst_store = NULL;
    p.world = 2;
    assert_int_equal(mr_checkpointer_open(&p, &c, &e), MR_E_USAGE);
}

/* ---- failures ---- */

/* Damage in the buffer is not carried on. */
static void burst_damage_is_found_by_the_drain(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    struct mr_checkpointer *c = OPEN(.burst = "fault(op=read,path=*.bin,every=1,corrupt=1):posix");
    save(c, 1, &r);
    assert_int_equal(mr_checkpoint_drain(c, &e), MR_E_CORRUPT);
    assert_non_null(strstr(e.message, "checksum"));
    mr_checkpointer_close(c);
    assert_int_equal(in_final(""), 0);
}

static void burst_is_read_where_the_drain_failed(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    uint64_t step;
    struct mr_checkpointer *c = OPEN(.final = "fault(op=write,every=1,error=EIO):posix");
    save(c, 1, &r);
    assert_int_equal(mr_checkpoint_newest(c, &step, &e), 0);
    assert_int_equal(step, 1);
    assert_int_equal(mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e), 0);
    assert_true(r.buffered);
    assert_int_equal(r.bytes, BYTES);
    mr_checkpointer_close(c);
}

/* Killed between naming the copy and freeing the buffer: nothing is copied again. The buffer's second rename frees. */
static void burst_copy_that_has_its_name_is_not_made_again(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    struct mr_checkpointer *c = OPEN(.burst = "fault(op=rename,nth=2,error=EIO):posix");
    save(c, 1, &r);
    assert_int_equal(mr_checkpoint_drain(c, &e), -EIO);
    mr_checkpointer_close(c);
    assert_true(final_has(1));
    c = OPEN(.final = "fault(op=write,every=1,error=EIO):posix");
    assert_int_equal(mr_checkpoint_recover(c), 1);
    drain(c);
    mr_checkpointer_close(c);
    expect_final(1);
}

/* Saves step 1 with other content and one file less, straight to the final folder, and dates its list. */
static void save_beside(time_t when)
{
    char folder[320], list[400];
    struct mr_checkpointer *c;
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    snprintf(folder, sizeof folder, "%s/final", ct_dir);
    struct mr_checkpoint_params p = {.folder = folder, .world = 1, .fsync = true, .random_content = true, .seed = 5};
    assert_int_equal(mr_checkpointer_open(&p, &c, &e), 0);
    assert_int_equal(mr_checkpoint_save(c, 1, files, FILES - 1, &r, &e), 0);
    mr_checkpointer_close(c);
    snprintf(list, sizeof list, "%s/step-000000000001/checkpoint.json", folder);
    assert_int_equal(utimensat(AT_FDCWD, list, (const struct timespec[]){{.tv_sec = when}, {.tv_sec = when}}, 0), 0);
}

/* What an earlier run left in the buffer gives way to a newer checkpoint of its step, and replaces an older one. */
static void burst_leftover_never_replaces_a_newer_checkpoint(void **state)
{
    (void)state;
    for (int newer = 0; newer < 2; newer++) {
        struct mr_checkpoint_result r;
        struct mr_error e = {0};
        assert_int_equal(ct_setup_in_memory(NULL), 0);
        struct mr_checkpointer *c = OPEN(.final = "fault(op=write,every=1,error=EIO):posix");
        save(c, 1, &r);
        assert_int_equal(mr_checkpoint_drain(c, &e), -EIO);
        mr_checkpointer_close(c);
        save_beside(time(NULL) + (newer ? 1000 : -1000));
        c = OPEN(.keep = 0);
        assert_int_equal(mr_checkpoint_recover(c), 1);
        drain(c);
        assert_int_equal(mr_checkpoint_load(c, 1, 0, &r, &e), 0);
        assert_int_equal(r.files, newer ? FILES - 1 : FILES);
        mr_checkpointer_close(c);
        assert_int_equal(in_final(""), 1);
        assert_int_equal(ct_teardown(NULL), 0);
    }
}

/* What an older version left in the buffer, all ranks in one folder, is drained as it is. */
static void burst_of_an_older_version_is_drained(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    char burst[320], folder[700];
    struct mr_checkpointer *c = OPEN(.keep = 0);
    save(c, 1, &r);
    drain(c);
    mr_checkpointer_close(c);
    snprintf(burst, sizeof burst, "%s/burst", ct_dir);
    DIR *d = opendir(burst);
    assert_non_null(d);
    for (const struct dirent *x; (x = readdir(d));)
        if (x->d_name[0] != '.')
            snprintf(folder, sizeof folder, "%s/%s", burst, x->d_name);
    closedir(d);
    ct_write_old(folder, 2);
    c = OPEN(.keep = 0);
    assert_int_equal(mr_checkpoint_recover(c), 1);
    drain(c);
    assert_int_equal(mr_checkpoint_load(c, 2, 0, &r, &e), 0);
    assert_int_equal(r.bytes, CT_OLD_BYTES);
    assert_false(r.buffered);
    mr_checkpointer_close(c);
}

/* The drain's thread is held at its first piece until the stop comes, however slow the machine is. */
struct held {
    pthread_t main;
    atomic_bool stop;
};

static bool held_until_stop(void *user)
{
    struct held *h = user;
    while (!pthread_equal(pthread_self(), h->main) && !atomic_load(&h->stop))
        usleep(1000);
    return atomic_load(&h->stop);
}

/* A stop ends waits and drains; what was saved is drained by the next run. */
static void burst_stop_loses_nothing(void **state)
{
    (void)state;
    struct held h = {.main = pthread_self()};
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    struct mr_checkpointer *c =
        open_with((struct setup){.capacity = BYTES, .threads = 1, .stopped = held_until_stop, .user = &h}, "final");
    save(c, 1, &r);
    atomic_store(&h.stop, true);
    assert_int_equal(mr_checkpoint_save(c, 2, files, FILES, &r, &e), MR_E_INTERRUPTED);
    assert_int_equal(mr_checkpoint_drain(c, &e), MR_E_INTERRUPTED);
    assert_int_equal(mr_checkpoint_buffered(c), 1);
    mr_checkpointer_close(c);
    assert_int_equal(in_final(""), in_final(".tmp"));
    expect_recovery(1, "a stop");
}

static void burst_close_cuts_a_drain_short(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_checkpointer *c = OPEN(.final = "fault(op=write,every=1,slow=50ms):posix");
    for (uint64_t step = 1; step <= 20; step++)
        save(c, step, &r); /* some 5 s of drains, which nobody waits for */
    mr_checkpointer_close(c);
    expect_recovery(20, "an early close");
    assert_int_equal(in_final(""), 21);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ct_setup_in_memory, ct_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(burst_saves_are_drained_in_order_and_the_buffer_is_freed),
        T(burst_keep_last_holds_on_both_sides),
        T(burst_saves_a_step_again),
        T(burst_without_room_waits_for_the_drain),
        T(burst_that_is_too_small_is_gone_around),
        T(burst_keeps_other_folders_apart),
        T(burst_refuses_what_cannot_work),
        T(burst_damage_is_found_by_the_drain),
        T(burst_is_read_where_the_drain_failed),
        T(burst_copy_that_has_its_name_is_not_made_again),
        cmocka_unit_test(burst_leftover_never_replaces_a_newer_checkpoint),
        T(burst_of_an_older_version_is_drained),
        T(burst_stop_loses_nothing),
        T(burst_close_cuts_a_drain_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
