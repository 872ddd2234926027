/* Properties of the worker pool and the progress display. test-label: concurrent */
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

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/progress.h"
#include "base/workers.h"

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
        cmocka_unit_test(workers_run_each_index_once_at_any_thread_count),
        cmocka_unit_test(workers_return_the_failure_and_hand_out_no_more),
        cmocka_unit_test(workers_obey_the_stop_flag),
        cmocka_unit_test(cpus_available_is_within_affinity_and_quota),
        cmocka_unit_test(progress_on_a_terminal_redraws_one_line),
        cmocka_unit_test(progress_elsewhere_prints_whole_lines_and_one_at_the_end),
        cmocka_unit_test(progress_without_a_stream_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
