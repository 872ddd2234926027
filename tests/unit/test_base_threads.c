/* Properties of the queue, the worker pool, the buffer pool and the progress display. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/bufpool.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/progress.h"
#include "base/queue.h"
#include "base/rng.h"
#include "base/workers.h"

enum { ITEMS = 20000 };

static void *produce(void *arg)
{
    for (uintptr_t i = 1; i <= ITEMS; i++)
        assert_true(mr_queue_push(arg, (void *)i));
    return NULL;
}

static void *consume(void *arg)
{
    uint64_t *sum = calloc(1, sizeof(*sum));
    void *item;
    while (mr_queue_pop(arg, &item))
        *sum += (uintptr_t)item;
    return sum;
}

static void queue_every_item_arrives_once_and_stop_drains(void **state)
{
    (void)state;
    struct mr_queue *q;
    assert_int_equal(mr_queue_create(7, &q, NULL), 0);
    pthread_t producer[2], consumer[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&consumer[i], NULL, consume, q);
    for (int i = 0; i < 2; i++)
        pthread_create(&producer[i], NULL, produce, q);
    for (int i = 0; i < 2; i++)
        pthread_join(producer[i], NULL);
    mr_queue_stop(q);
    uint64_t total = 0;
    for (int i = 0; i < 3; i++) {
        void *sum;
        pthread_join(consumer[i], &sum);
        total += *(uint64_t *)sum;
        free(sum);
    }
    assert_int_equal(total, 2ull * ITEMS * (ITEMS + 1) / 2);
    assert_false(mr_queue_push(q, q));
    mr_queue_free(q);
}

static void queue_is_bounded_and_first_in_first_out(void **state)
{
    (void)state;
    struct mr_queue *q;
    struct mr_error e;
    assert_int_equal(mr_queue_create(0, &q, &e), MR_E_USAGE);
    assert_int_equal(mr_queue_create(3, &q, &e), 0);
    void *item;
    assert_false(mr_queue_try_pop(q, &item));
    for (uintptr_t i = 1; i <= 3; i++)
        assert_true(mr_queue_try_push(q, (void *)i));
    assert_false(mr_queue_try_push(q, q));
    assert_int_equal(mr_queue_len(q), 3);
    mr_queue_stop(q);
    for (uintptr_t i = 1; i <= 3; i++) {
        assert_true(mr_queue_pop(q, &item));
        assert_ptr_equal(item, (void *)i);
    }
    assert_false(mr_queue_pop(q, &item));
    mr_queue_free(q);
    mr_queue_free(NULL);
}

struct marks {
    _Atomic unsigned seen[1000];
    uint64_t fail_at;
};

static int mark(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct marks *m = ctx->user;
    atomic_fetch_add(&m->seen[index], 1);
    if (index == m->fail_at)
        return mr_error_plain(err, MR_E_FORMAT, "index %d failed", (int)index);
    return 0;
}

static void workers_run_each_index_once_at_any_thread_count(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads++)
        for (uint64_t grain = 1; grain <= 400; grain = grain * 7 + 3) {
            struct marks *m = calloc(1, sizeof(*m));
            m->fail_at = 1 << 20;
            assert_int_equal(mr_workers_run(threads, 1000, grain, mark, m, NULL, NULL), 0);
            for (int i = 0; i < 1000; i++)
                assert_int_equal(m->seen[i], 1);
            free(m);
        }
    assert_int_equal(mr_workers_run(4, 0, 1, mark, NULL, NULL, NULL), 0);
}

static void workers_return_the_failure_and_hand_out_no_more(void **state)
{
    (void)state;
    struct marks *m = calloc(1, sizeof(*m));
    struct mr_error e = {0};
    m->fail_at = 10;
    assert_int_equal(mr_workers_run(1, 1000, 1, mark, m, NULL, &e), MR_E_FORMAT);
    assert_string_equal(e.message, "index 10 failed");
    for (int i = 11; i < 1000; i++)
        assert_int_equal(m->seen[i], 0);
    assert_int_equal(mr_workers_run(4, 1000, 1, mark, m, NULL, &e), MR_E_FORMAT);
    free(m);
}

static void workers_obey_the_stop_flag(void **state)
{
    (void)state;
    struct marks *m = calloc(1, sizeof(*m));
    struct mr_error e = {0};
    atomic_bool stop = true;
    m->fail_at = 1 << 20;
    assert_int_equal(mr_workers_run(3, 1000, 1, mark, m, &stop, &e), MR_E_INTERRUPTED);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(m->seen[i], 0);
    free(m);
}

static void cpus_available_is_within_affinity_and_quota(void **state)
{
    (void)state;
    unsigned n = mr_cpus_available();
    double quota = mr_cgroup_cpu_quota();
    assert_in_range(n, 1, mr_cpus_affinity());
    if (quota > 0)
        assert_true(n < quota + 1);
    if (mr_cgroup_memory_limit() == 0)
        assert_int_equal(mr_cgroup_memory_used(), 0);
}

static void *use_buffers(void *arg)
{
    struct mr_bufpool *p = arg;
    for (uint64_t i = 0; i < 150; i++) {
        size_t n = 1 + mr_rng_at((uintptr_t)&i, MR_RNG_TEST, i) % 200000;
        uint8_t *b = mr_bufpool_take(p, n);
        assert_non_null(b);
        assert_int_equal((uintptr_t)b % 4096, 0);
        memset(b, (int)i, n);
        struct mr_bufpool_stats s;
        mr_bufpool_get_stats(p, &s);
        assert_true(s.in_use_bytes <= s.budget_bytes);
        for (size_t k = 0; k < n; k += 997)
            assert_int_equal(b[k], (uint8_t)i); /* nobody else has it */
        mr_bufpool_give(p, b);
    }
    return NULL;
}

static void bufpool_never_exceeds_its_budget_and_wakes_waiters(void **state)
{
    (void)state;
    struct mr_bufpool *p;
    assert_int_equal(mr_bufpool_create(300000, &p, NULL), 0);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, use_buffers, p);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    struct mr_bufpool_stats s;
    mr_bufpool_get_stats(p, &s);
    assert_int_equal(s.in_use_bytes, 0);
    assert_true(s.high_water_bytes <= 300000 && s.high_water_bytes > 0);
    mr_bufpool_free(p);
}

static void bufpool_refuses_what_cannot_fit_and_reuses_what_can(void **state)
{
    (void)state;
    struct mr_bufpool *p;
    struct mr_error e;
    assert_int_equal(mr_bufpool_create(100, &p, &e), MR_E_USAGE);
    assert_int_equal(mr_bufpool_create(1 << 20, &p, &e), 0);
    assert_null(mr_bufpool_take(p, (1 << 20) + 1));
    void *whole = mr_bufpool_take(p, 1 << 20); /* class rounding must not push the whole budget out */
    assert_non_null(whole);
    assert_null(mr_bufpool_try_take(p, 1));
    mr_bufpool_give(p, whole);
    void *again = mr_bufpool_take(p, (1 << 20) - 5000);
    assert_ptr_equal(again, whole);
    mr_bufpool_give(p, again);
    void *small = mr_bufpool_take(p, 100); /* idle memory makes room for another size */
    assert_non_null(small);
    mr_bufpool_give(p, small);
    mr_bufpool_give(p, NULL);
    mr_bufpool_free(p);
    mr_bufpool_free(NULL);
}

static void *take_whole(void *arg)
{
    return mr_bufpool_take(arg, 1 << 20);
}

static void bufpool_stop_releases_waiters_with_nothing(void **state)
{
    (void)state;
    struct mr_bufpool *p;
    assert_int_equal(mr_bufpool_create(1 << 20, &p, NULL), 0);
    void *held = mr_bufpool_take(p, 1 << 20), *got = held;
    pthread_t t;
    pthread_create(&t, NULL, take_whole, p);
    struct mr_bufpool_stats s = {0};
    while (!s.waits)
        mr_bufpool_get_stats(p, &s);
    mr_bufpool_stop(p);
    pthread_join(t, &got);
    assert_null(got);
    assert_null(mr_bufpool_try_take(p, 1));
    mr_bufpool_give(p, held);
    mr_bufpool_free(p);
}

/* All that is written to a stream by the time it is closed. A text is waited for if `until` is given, however long the
 * drawing thread takes to come by. */
static char *run_progress(int tty, const char *until)
{
    enum { ROOM = 1 << 16 };
    char *text = calloc(1, ROOM);
    size_t len = 0;
    int ends[2];
    assert_non_null(text);
    assert_int_equal(pipe(ends), 0);
    FILE *f = fdopen(ends[1], "w");
    assert_non_null(f);
    struct mr_progress_options o = {
        .verb = "generating", .unit = "files", .total = 100, .total_bytes = 400 << 20, .stream = f, .force_tty = tty};
    struct mr_progress *p;
    assert_int_equal(mr_progress_start(&o, &p, NULL), 0);
    mr_progress_set_limiter(p, "disk write");
    for (int i = 0; i < 25; i++)
        mr_progress_add(p, 1, 4 << 20);
    ssize_t n = 1;
    while (until && !strstr(text, until) && n > 0 && (n = read(ends[0], text + len, ROOM - 1 - len)) > 0)
        len += (size_t)n;
    mr_progress_stop(p);
    fclose(f);
    while ((n = read(ends[0], text + len, ROOM - 1 - len)) > 0)
        len += (size_t)n;
    close(ends[0]);
    return text;
}

static void progress_on_a_terminal_redraws_one_line(void **state)
{
    (void)state;
    char *text = run_progress(1, "25 / 100 files, 100 MiB (25 %), ");
    assert_non_null(strstr(text, "\rgenerating: 25 / 100 files, 100 MiB (25 %), "));
    assert_non_null(strstr(text, "ETA "));
    assert_non_null(strstr(text, "limited by disk write\033[K"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one newline, at the end */
    free(text);
}

static void progress_elsewhere_prints_whole_lines_and_one_at_the_end(void **state)
{
    (void)state;
    char *text = run_progress(0, NULL);
    assert_null(strchr(text, '\r'));
    assert_memory_equal(text, "generating: 25 / 100 files, 100 MiB in ", 39);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    free(text);
}

static void progress_without_a_stream_is_silent(void **state)
{
    (void)state;
    struct mr_progress_options o = {.verb = "v", .unit = "u", .force_tty = -1};
    struct mr_progress *p;
    assert_int_equal(mr_progress_start(&o, &p, NULL), 0);
    mr_progress_add(p, 1, 1);
    mr_progress_set_limiter(p, NULL);
    mr_progress_stop(p);
    mr_progress_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_every_item_arrives_once_and_stop_drains),
        cmocka_unit_test(queue_is_bounded_and_first_in_first_out),
        cmocka_unit_test(workers_run_each_index_once_at_any_thread_count),
        cmocka_unit_test(workers_return_the_failure_and_hand_out_no_more),
        cmocka_unit_test(workers_obey_the_stop_flag),
        cmocka_unit_test(cpus_available_is_within_affinity_and_quota),
        cmocka_unit_test(bufpool_never_exceeds_its_budget_and_wakes_waiters),
        cmocka_unit_test(bufpool_refuses_what_cannot_fit_and_reuses_what_can),
        cmocka_unit_test(bufpool_stop_releases_waiters_with_nothing),
        cmocka_unit_test(progress_on_a_terminal_redraws_one_line),
        cmocka_unit_test(progress_elsewhere_prints_whole_lines_and_one_at_the_end),
        cmocka_unit_test(progress_without_a_stream_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
