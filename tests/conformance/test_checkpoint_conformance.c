/* What every checkpoint engine must do, whoever wrote it: what was saved comes back, the newest is the newest, and
 * whatever call of the storage fails, and whenever the process is killed, a complete checkpoint loads afterwards and an
 * earlier one is as it was. Engines that keep nothing (null) say so when asked to load; the rest does not concern them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include "conformance/conformance_plugins.h"
#include "unit/checkpoint_test.h"

#include <millrace/plugin_checkpoint.h>

static const struct mr_checkpoint_file files[] = {{"model.bin", 10000}, {"empty", 0}, {"optimizer.bin", 5000}};
#define FILES MR_ARRAY_LEN(files)
#define BYTES 15000

static const char *only, *engine; /* engine: the one under test */
static const char *store = "posix";

#define FOR_EACH_ENGINE                                                                                                \
    for (const struct mr_checkpoint_engine_ops *const *e_ = mr_checkpoint_engine_registry(); *e_; e_++)                \
        if ((engine = (*e_)->name) && (!only ? strcmp(engine, "null") != 0 : strcmp(engine, only) == 0))

static struct mr_checkpointer *open_one(void)
{
    struct mr_checkpointer *c = NULL;
    struct mr_error e = {0};
    const struct mr_checkpoint_params p = {.folder = ct_dir,
                                           .store = store,
                                           .world = 1,
                                           .fsync = true,
                                           .buffer_bytes = 4096,
                                           .random_content = true,
                                           .engine = engine};
    if (mr_checkpointer_open(&p, &c, &e))
        fail_msg("%s: %s", engine, e.message);
    return c;
}

static void save(struct mr_checkpointer *c, uint64_t step)
{
    struct mr_checkpoint_result r = {0};
    struct mr_error e = {0};
    if (mr_checkpoint_save(c, step, files, FILES, &r, &e))
        fail_msg("%s: step %llu: %s", engine, (unsigned long long)step, e.message);
    assert_int_equal(r.bytes, BYTES);
    assert_int_equal(r.files, FILES);
    assert_true(r.path[0] && r.duration_ns > 0);
}

static void load(struct mr_checkpointer *c, uint64_t step)
{
    struct mr_checkpoint_result r = {0};
    struct mr_error e = {0};
    if (mr_checkpoint_load(c, step, 0, &r, &e))
        fail_msg("%s: loading step %llu: %s", engine, (unsigned long long)step, e.message);
    assert_int_equal(r.bytes, BYTES);
    assert_int_equal(r.files, FILES);
}

static uint64_t newest(struct mr_checkpointer *c)
{
    uint64_t step = 0;
    struct mr_error e = {0};
    if (mr_checkpoint_newest(c, &step, &e))
        fail_msg("%s: %s", engine, e.message);
    return step;
}

static void what_was_saved_comes_back(void **state)
{
    (void)state;
    FOR_EACH_ENGINE
    {
        assert_int_equal(ct_setup_in_memory(NULL), 0);
        struct mr_checkpointer *c = open_one();
        struct mr_checkpoint_result r;
        struct mr_error e = {0};
        uint64_t step;
        assert_int_equal(mr_checkpoint_newest(c, &step, &e), MR_E_INCOMPLETE);
        assert_int_equal(mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e), MR_E_INCOMPLETE);
        save(c, 7);
        save(c, 30);
        save(c, 9);
        save(c, 30); /* again */
        assert_int_equal(newest(c), 30);
        load(c, UINT64_MAX);
        load(c, 7);
        load(c, 9);
        assert_int_equal(mr_checkpoint_load(c, 8, 0, &r, &e), MR_E_INCOMPLETE);
        assert_int_equal(mr_checkpoint_drain(c, &e), 0);
        assert_int_equal(mr_checkpoint_buffered(c), 0);
        mr_checkpointer_close(c);
        c = open_one(); /* and outlives its checkpointer */
        assert_int_equal(newest(c), 30);
        load(c, 30);
        mr_checkpointer_close(c);
        assert_int_equal(ct_teardown(NULL), 0);
    }
}

static void bad_calls_are_refused_and_change_nothing(void **state)
{
    (void)state;
    const struct mr_checkpoint_file slash = {"a/b", 1}, twice[] = {{"a", 1}, {"a", 2}}, hidden = {".a", 1};
    FOR_EACH_ENGINE
    {
        assert_int_equal(ct_setup_in_memory(NULL), 0);
        struct mr_checkpointer *c = open_one();
        struct mr_checkpoint_result r;
        struct mr_error e = {0};
        save(c, 1);
        assert_int_equal(mr_checkpoint_save(c, 2, &slash, 1, &r, &e), MR_E_USAGE);
        assert_int_equal(mr_checkpoint_save(c, 2, &hidden, 1, &r, &e), MR_E_USAGE);
        assert_int_equal(mr_checkpoint_save(c, 2, twice, 2, &r, &e), MR_E_USAGE);
        assert_int_equal(newest(c), 1);
        load(c, 1);
        assert_int_equal(mr_checkpoint_save(c, 3, NULL, 0, &r, &e), 0); /* a rank may have no files */
        assert_int_equal(newest(c), 3);
        mr_checkpointer_close(c);
        assert_int_equal(ct_teardown(NULL), 0);
    }
}

/* The newest loads and is one that may be there; an earlier one loads; a further save works. */
static void expect_sound(uint64_t at_least, const char *after)
{
    store = "posix";
    struct mr_checkpointer *c = open_one();
    uint64_t step = newest(c);
    if (step < at_least)
        fail_msg("%s: after %s the newest is %llu", engine, after, (unsigned long long)step);
    load(c, UINT64_MAX);
    load(c, at_least);
    save(c, step + 1);
    load(c, step + 1);
    mr_checkpointer_close(c);
}

/* The n-th call of a kind fails, for every n until a save meets no fault. `again`: the step exists. */
static unsigned sweep(const char *op, bool again)
{
    unsigned failed = 0, calm = 0;
    for (unsigned n = 1; calm < 3; n++) {
        char spec[128];
        struct mr_checkpoint_result r;
        struct mr_error e = {0};
        assert_int_equal(ct_setup_in_memory(NULL), 0);
        store = "posix";
        struct mr_checkpointer *c = open_one();
        save(c, 1);
        save(c, 2);
        mr_checkpointer_close(c);
        snprintf(spec, sizeof spec, "fault(op=%s,nth=%u,error=EIO):posix", op, n);
        store = spec;
        c = open_one();
        int rc = mr_checkpoint_save(c, again ? 2 : 3, files, FILES, &r, &e);
        if (!rc) /* an engine may write behind: then this tells what became of it */
            rc = mr_checkpoint_drain(c, &e);
        mr_checkpointer_close(c);
        if (rc && !e.message[0])
            fail_msg("%s: %s: no message", engine, spec);
        calm = rc ? 0 : calm + 1;
        failed += rc != 0;
        expect_sound(2, spec);
        assert_int_equal(ct_teardown(NULL), 0);
    }
    return failed;
}

static void any_failing_call_leaves_a_complete_checkpoint(void **state)
{
    (void)state;
    static const char *const ops[] = {"open", "write", "fsync", "close", "rename", "unlink", "stat", "list"};
    FOR_EACH_ENGINE
    {
        unsigned failed = 0;
        for (unsigned i = 0; i < 2 * MR_ARRAY_LEN(ops); i++)
            failed += sweep(ops[i / 2], i % 2);
        if (failed < 6) /* a sweep that meets no fault tests nothing */
            fail_msg("%s: only %u calls failed a save", engine, failed);
    }
}

static void killed_at_any_moment_a_complete_checkpoint_loads(void **state)
{
    (void)state;
    FOR_EACH_ENGINE
    {
        assert_int_equal(ct_setup_in_memory(NULL), 0);
        store = "posix";
        uint64_t known = 0;
        ct_drain_each = true;
        for (unsigned round = 0; round < 25; round++) {
            unsigned us = (unsigned)mr_rng_below(mr_rng_at(3, MR_RNG_TEST, round), 3000);
            uint64_t done = ct_save_and_kill(open_one, files, FILES, us);
            assert_true(done > known);
            known = done;
            struct mr_checkpointer *c = open_one();
            uint64_t have = newest(c);
            if (have != done && have != done + 1)
                fail_msg("%s: step %llu was saved, %llu is the newest", engine, (unsigned long long)done,
                         (unsigned long long)have);
            load(c, UINT64_MAX);
            load(c, done);
            mr_checkpointer_close(c);
        }
        assert_int_equal(ct_teardown(NULL), 0);
    }
}

/* Flips one byte at a time in every file that a save left: loading says so, or the byte did not matter; never a crash.
 * Most bytes are content, so most flips must be noticed. */
static unsigned flips, noticed;
static int flip_bytes(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)f;
    if (type != FTW_F || st->st_size == 0)
        return 0;
    for (unsigned k = 0; k < 12; k++) {
        struct mr_checkpointer *c = open_one();
        struct mr_checkpoint_result r;
        struct mr_error e = {0};
        off_t at = (off_t)mr_rng_below(mr_rng_at(8, MR_RNG_TEST, flips), (uint64_t)st->st_size);
        unsigned char b = 0;
        int fd = open(path, O_RDWR);
        assert_true(fd >= 0 && pread(fd, &b, 1, at) == 1);
        unsigned char bad = b ^ 0x10;
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        int rc = mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e);
        noticed += rc != 0;
        flips++;
        assert_true(rc == 0 || e.message[0]);
        assert_int_equal(pwrite(fd, &b, 1, at), 1);
        close(fd);
        mr_checkpointer_close(c);
    }
    return 0;
}

static void damage_is_noticed(void **state)
{
    (void)state;
    FOR_EACH_ENGINE
    {
        assert_int_equal(ct_setup_in_memory(NULL), 0);
        store = "posix";
        struct mr_checkpointer *c = open_one();
        save(c, 5);
        mr_checkpointer_close(c);
        flips = noticed = 0;
        assert_int_equal(nftw(ct_dir, flip_bytes, 16, FTW_PHYS), 0);
        if (flips == 0 || noticed * 3 < flips * 2)
            fail_msg("%s: %u of %u damaged bytes were noticed", engine, noticed, flips);
        assert_int_equal(ct_teardown(NULL), 0);
    }
}

static void null_keeps_nothing_and_says_so(void **state)
{
    (void)state;
    struct mr_checkpointer *c = NULL;
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    uint64_t step;
    struct mr_checkpoint_params p = {.folder = "/nowhere", .world = 1, .engine = "null"};
    assert_int_equal(mr_checkpointer_open(&p, &c, &e), 0);
    engine = "null";
    save(c, 1);
    assert_int_equal(mr_checkpoint_load(c, 1, 0, &r, &e), MR_E_UNSUPPORTED);
    assert_int_equal(mr_checkpoint_newest(c, &step, &e), MR_E_UNSUPPORTED);
    mr_checkpointer_close(c);
    p.engine = "snyc";
    assert_int_equal(mr_checkpointer_open(&p, &c, &e), MR_E_CONFIG);
    assert_non_null(strstr(e.hint, "did you mean 'sync'"));
}

int main(void)
{
    only = conformance_only();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_comes_back),
        cmocka_unit_test(bad_calls_are_refused_and_change_nothing),
        cmocka_unit_test(any_failing_call_leaves_a_complete_checkpoint),
        cmocka_unit_test(killed_at_any_moment_a_complete_checkpoint_loads),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(null_keeps_nothing_and_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
