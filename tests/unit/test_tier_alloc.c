/* Memory that runs out anywhere in the tiers: every allocation from open to close fails once, in a process of its own.
 * What comes is right, or an error with a text; nothing crashes, nothing hangs. Without a sanitizer only, whose
 * allocator cannot be told to fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loader_fixture.h"
#include "tier_fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#define SAMPLES 40u
#define BYTES 3000u
#define SWEEP 250u /* at most so many of a case's allocations, evenly spread */
#define HANG_S 20u

static _Atomic uint64_t allocations, fail_at = UINT64_MAX;
static uint64_t *sum, samples, set_bytes;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CAN_FAIL true
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t a, size_t b);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t a, size_t n);

static bool fails(void)
{
    if (atomic_fetch_add(&allocations, 1) != atomic_load(&fail_at))
        return false;
    errno = ENOMEM;
    return true;
}
void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}
void *calloc(size_t a, size_t b)
{
    return fails() ? NULL : __libc_calloc(a, b);
}
void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}
void *aligned_alloc(size_t a, size_t n)
{
    return fails() ? NULL : __libc_memalign(a, n);
}
#else
#define CAN_FAIL false
#endif

enum end { END_GOOD, END_FAILED, END_WRONG = 10, END_SILENT };

struct sweep {
    const char *policy, *spec;
};

static struct tier_case case_of(const struct sweep *w)
{
    return (struct tier_case){.set = "raw",
                              .policy = w->policy,
                              .spec = w->spec,
                              .batch = 4,
                              .epochs = 3,
                              .samples = SAMPLES,
                              .threads = 1,
                              .sum = sum};
}

/* From open to close; where it failed does not matter, but it must say so. */
static enum end run_once(const struct sweep *w, uint64_t at)
{
    static struct tier_rank k;
    struct tier_case c = case_of(w);
    atomic_store(&allocations, 0);
    atomic_store(&fail_at, at);
    int rc = tier_rank_open(&k, &c, 0, 1, NULL);
    bool open = rc == 0;
    if (open)
        rc = tier_rank_read(&k, 0, 0, SAMPLES * 2);
    if (open && rc == 0)
        rc = tier_rank_read(&k, 1, SAMPLES / 2, SAMPLES);
    mr_tier_close(open ? k.tier : NULL, rc == 0);
    atomic_store(&fail_at, UINT64_MAX);
    if (k.bad)
        return END_WRONG;
    if (rc != 0 && !*k.err.message)
        return END_SILENT;
    return rc == 0 ? END_GOOD : END_FAILED;
}

static int in_a_process(const struct sweep *w, uint64_t at, uint64_t *count)
{
    int fd[2], status;
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(HANG_S);
        enum end e = run_once(w, at);
        uint64_t n = atomic_load(&allocations);
        if (write(fd[1], &n, sizeof n) != sizeof n)
            _exit(99);
        _exit((int)e);
    }
    close(fd[1]);
    if (read(fd[0], count, sizeof *count) != sizeof *count)
        *count = 0;
    close(fd[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void sweep_over(const struct sweep *w)
{
    uint64_t count = 0, ignored, failed = 0;
    assert_int_equal(in_a_process(w, UINT64_MAX, &count), END_GOOD);
    uint64_t step = count / SWEEP + 1;
    for (uint64_t at = 0; at < count; at += step) {
        int end = in_a_process(w, at, &ignored);
        failed += end == END_FAILED;
        if (end != END_GOOD && end != END_FAILED)
            fail_msg("%s with '%s': allocation %llu of %llu fails, and it ends with %d", w->policy, w->spec,
                     (unsigned long long)at, (unsigned long long)count, end);
    }
    assert_true(failed > 0);
}

static void no_allocation_that_fails_does_harm(void **state)
{
    (void)state;
    if (!CAN_FAIL)
        skip();
    char spec[600];
    snprintf(spec, sizeof spec, "ram=60000,ssd=%s/ssd:1MiB,staging=64KiB", root);
    const struct sweep sweeps[] = {{.policy = "millrace", .spec = "ram=1MiB,staging=64KiB"},
                                   {.policy = "millrace", .spec = spec},
                                   {.policy = "nopfs", .spec = "ram=60000,staging=32KiB"}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(sweeps); i++)
        sweep_over(&sweeps[i]);
}

/* The same for calls of the source: each fails once, and the sample that wanted it says so. */
static void no_call_of_the_source_that_fails_does_harm(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= SAMPLES + 3; nth += 3) {
        static struct tier_rank k;
        char store[100];
        struct sweep w = {.policy = "millrace", .spec = "ram=1MiB,staging=64KiB"};
        struct tier_case c = case_of(&w);
        struct mr_tier_stats stats;
        snprintf(store, sizeof store, "fault(op=%s,path=*img_*,nth=%u,error=EIO):posix", nth % 2 ? "read" : "open",
                 nth);
        c.store = store;
        assert_int_equal(tier_rank_open(&k, &c, 0, 1, NULL), 0);
        int rc = tier_rank_read(&k, 0, 0, SAMPLES * 2);
        assert_true(rc == 0 || rc == -EIO);
        assert_int_equal(k.bad, 0);
        assert_true(k.failed <= 2); /* who joined a fetch shares its end */
        assert_true(rc == 0 || strstr(k.err.message, "train"));
        k.failed = 0;
        assert_int_equal(tier_rank_read(&k, 2, 0, SAMPLES), 0); /* the next time it comes */
        mr_tier_get_stats(k.tier, &stats);
        assert_in_range(stats.source_reads, SAMPLES, SAMPLES + 2);
        tier_rank_close(&k, true);
    }
}

static int set_up(void **state)
{
    (void)state;
    open_root("tier-alloc");
    make_set("raw", "raw", SAMPLES, 1, BYTES, 0);
    sum = sums_of("raw", 0, &samples, &set_bytes);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(sum);
    remove_root();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_allocation_that_fails_does_harm),
        cmocka_unit_test(no_call_of_the_source_that_fails_does_harm),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
