/* Checkpoints when things go wrong: every storage call fails once in turn; memory stays bounded (kills:
 * test_checkpoint_kills). Whatever happens, a complete checkpoint loads afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "unit/checkpoint_test.h"

static const struct mr_checkpoint_file files[] = {{"model.bin", 10000}, {"empty", 0}, {"optimizer.bin", 5000}};
#define FILES MR_ARRAY_LEN(files)

static struct mr_checkpointer *open_on(const char *store, unsigned keep)
{
    struct mr_checkpointer *c;
    struct mr_error e = {0};
    struct mr_checkpoint_params p = {.folder = ct_dir,
                                     .store = store,
                                     .world = 1,
                                     .fsync = true,
                                     .buffer_bytes = 4096,
                                     .random_content = true,
                                     .keep_last = keep};
    if (mr_checkpointer_open(&p, &c, &e))
        fail_msg("%s", e.message);
    return c;
}

/* The newest loads and is one of the steps that may be there; a further save succeeds and leaves nothing unfinished. */
static void expect_sound(uint64_t at_least, const char *after)
{
    struct mr_checkpointer *c = open_on("posix", 0);
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    uint64_t step = 0;
    if (mr_checkpoint_newest(c, &step, &e) || step < at_least || mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e))
        fail_msg("after %s: newest is %llu: %s", after, (unsigned long long)step, e.message);
    if (mr_checkpoint_save(c, step + 1, files, FILES, &r, &e))
        fail_msg("after %s: cannot save again: %s", after, e.message);
    mr_checkpointer_close(c);
    assert_int_equal(ct_count(ct_dir, ".tmp") + ct_count(ct_dir, ".old"), 0);
}

/* Fails the n-th call of this kind for n = 1, 2, ... until several saves in a row met no fault. `again`: the step
 * exists. */
static unsigned sweep(const char *op, const char *what, bool again)
{
    unsigned failed = 0, calm = 0;
    for (unsigned n = 1; calm < 6; n++) {
        char spec[128];
        struct mr_checkpoint_result r;
        struct mr_error e = {0};
        assert_int_equal(ct_setup_in_memory(NULL), 0);
        struct mr_checkpointer *c = open_on("posix", 0);
        for (uint64_t s = 1; s <= 3; s++)
            assert_int_equal(mr_checkpoint_save(c, s, files, FILES, &r, &e), 0);
        mr_checkpointer_close(c);
        snprintf(spec, sizeof spec, "fault(op=%s,nth=%u,%s):posix", op, n, what);
        c = open_on(spec, 2);
        int rc = mr_checkpoint_save(c, again ? 3 : 4, files, FILES, &r, &e);
        mr_checkpointer_close(c);
        calm = rc ? 0 : calm + 1;
        failed += rc != 0;
        if (rc && (!*e.message || !strstr(e.message, ct_dir) || !strstr(e.context, "fault shim")))
            fail_msg("%s: the error does not say where: %s / %s", spec, e.message, e.context);
        bool removing = strcmp(op, "unlink") == 0 || strcmp(op, "list") == 0; /* then the next save clears up */
        if (rc && !removing && ct_count(ct_dir, ".tmp"))
            fail_msg("%s left an unfinished checkpoint", spec);
        expect_sound(3, spec);
        assert_int_equal(ct_teardown(NULL), 0);
    }
    return failed;
}

static void checkpoint_survives_any_call_failing(void **state)
{
    (void)state;
    const struct {
        const char *op, *what;
        unsigned at_least; /* so many calls of a save can fail: a sweep that meets none tests nothing */
    } cases[] = {{"open", "error=EIO", 4},     {"write", "error=ENOSPC", 6},    {"write", "error=EIO", 6},
                 {"fsync", "error=EIO", 6},    {"close", "error=ENOSPC", 4},    {"rename", "error=EIO", 1},
                 {"mkdir", "error=ENOSPC", 1}, {"allocate", "error=ENOSPC", 2}, {"unlink", "error=EACCES", 1},
                 {"list", "error=EIO", 1}};
    for (unsigned again = 0; again < 2; again++)
        for (unsigned i = 0; i < MR_ARRAY_LEN(cases); i++) {
            unsigned failed = sweep(cases[i].op, cases[i].what, again);
            if (failed < cases[i].at_least)
                fail_msg("op=%s: only %u calls failed the save", cases[i].op, failed);
        }
    /* A write that moves only a part is continued, an interrupted call repeated: no error at all. */
    assert_int_equal(sweep("write", "short=0.3", false), 0);
    assert_int_equal(sweep("write", "error=EINTR", false), 0);
}

static void checkpoint_load_reports_failing_reads(void **state)
{
    (void)state;
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    struct mr_checkpointer *c = open_on("posix", 0);
    assert_int_equal(mr_checkpoint_save(c, 1, files, FILES, &r, &e), 0);
    mr_checkpointer_close(c);
    for (unsigned n = 1; n <= 6; n++) {
        char spec[128];
        snprintf(spec, sizeof spec, "fault(op=read,nth=%u,error=EIO):posix", n);
        c = open_on(spec, 0);
        assert_int_equal(mr_checkpoint_load(c, 1, 0, &r, &e), -EIO);
        mr_checkpointer_close(c);
    }
    c = open_on("fault(op=read,path=*.bin,every=1,corrupt=1):posix", 0);
    assert_int_equal(mr_checkpoint_load(c, 1, 0, &r, &e), MR_E_CORRUPT);
    mr_checkpointer_close(c);
}

static void checkpoint_memory_does_not_grow_with_size(void **state)
{
    (void)state;
    fflush(NULL);
    pid_t child = fork(); /* so that the high-water mark is of this save alone */
    if (child == 0) {
        struct mr_checkpointer *c;
        struct mr_checkpoint_file two[] = {{"a", MR_GIB}, {"b", MR_GIB}};
        struct mr_checkpoint_params p = {.folder = "/ckpt", .store = "null", .world = 1, .threads = 2};
        struct mr_checkpoint_result r;
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        if (mr_checkpointer_open(&p, &c, NULL) || mr_checkpoint_save(c, 1, two, 2, &r, NULL) || r.bytes != 2 * MR_GIB)
            _exit(1);
        mr_checkpointer_close(c);
        getrusage(RUSAGE_SELF, &after);
        _exit(after.ru_maxrss - before.ru_maxrss < 32 * 1024 ? 0 : 2); /* 2 buffers of 4 MiB and slack */
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, ct_setup_in_memory, ct_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoint_survives_any_call_failing),
        T(checkpoint_load_reports_failing_reads),
        cmocka_unit_test(checkpoint_memory_does_not_grow_with_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
