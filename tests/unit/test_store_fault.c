/* The fault shim, and with it the promise that no single failure of storage crashes, leaks, hangs or is misreported:
 * "the n-th call fails" is swept over a whole scenario, for every n. */
#include "base/common.h"
#include "store/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static struct mr_store *open_store(const char *spec)
{
    struct mr_store *s;
    struct mr_error err;
    if (mr_store_open(spec, &s, &err) != 0)
        fail_msg("'%s': %s", spec, err.message);
    return s;
}

static void expect_refused(const char *spec, const char *text)
{
    struct mr_store *s = NULL;
    struct mr_error err = {0};
    assert_int_equal(mr_store_open(spec, &s, &err), MR_E_CONFIG);
    if (!strstr(err.message, text))
        fail_msg("'%s': '%s' lacks '%s'", spec, err.message, text);
}

static void options_without_effect_are_refused(void **state)
{
    (void)state;
    expect_refused("fault(error=EIO):memory", "when");
    expect_refused("fault(nth=1):memory", "what to do");
    expect_refused("fault(nth=1,op=write,corrupt=3):memory", "reads only");
    expect_refused("fault(nth=1,op=stat,short=0.5):memory", "reads and writes only");
    expect_refused("fault(nth=1,short=1.5):memory", "short");
    expect_refused("fault(nth=1,short=x):memory", "short");
    expect_refused("fault(nth=1,error=EWHAT):memory", "EWHAT");
    expect_refused("fault(nth=1,error=EIO)", "needs a backend");
}

static void interruptions_and_short_transfers_are_invisible(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "fault(every=2,error=EINTR):memory",
        "fault(every=1,limit=3,error=EAGAIN,op=read):memory",
        "fault(every=1,short=7):memory",
        "fault(every=3,short=0.5):fault(every=2,error=EINTR):posix",
        "fault(probability=0.5,short=0.1,seed=4):mmap",
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(specs); i++) {
        struct mr_store *s = open_store(specs[i]);
        char path[256];
        snprintf(path, sizeof(path), "%s/mr-fault-%ld", P_tmpdir, (long)getpid());
        struct mr_error err;
        char data[1000], back[1000];
        for (unsigned k = 0; k < sizeof(data); k++)
            data[k] = (char)(k * 7);
        assert_int_equal(mr_store_mkdirs(s, P_tmpdir, &err), 0);
        struct mr_object *o;
        assert_int_equal(mr_object_open(s, path, MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &err), 0);
        assert_int_equal(mr_object_write(o, data, sizeof(data), 3, &err), 0);
        assert_int_equal(mr_object_read(o, back, sizeof(back), 3, &err), 0);
        assert_memory_equal(data, back, sizeof(data));
        uint64_t matched, injected;
        assert_int_equal(mr_store_fault_counts(s, &matched, &injected, &err), 0);
        assert_true(injected > 0 && matched > injected - 1);
        mr_object_close(o, NULL);
        while (s->ops->unlink(s, path, NULL) == -EINTR) {
        }
        mr_store_close(s);
    }
}

static void endless_interruption_is_reported_not_endured(void **state)
{
    (void)state;
    struct mr_store *s = open_store("fault(every=1,op=read,error=EINTR):null(size=1MiB)");
    struct mr_object *o;
    struct mr_error err;
    char buf[16];
    assert_int_equal(mr_object_open(s, "x", MR_OBJ_READ, &o, &err), 0);
    assert_int_equal(mr_object_read(o, buf, 16, 0, &err), -EINTR);
    assert_non_null(strstr(err.context, "fault"));
    mr_object_close(o, NULL);
    mr_store_close(s);
}

static void only_the_chosen_calls_fail(void **state)
{
    (void)state;
    struct mr_store *s = open_store("fault(nth=3,op=read,path=*bad*,error=EIO):null(size=1MiB)");
    struct mr_object *good, *bad;
    struct mr_error err;
    char buf[16];
    assert_int_equal(mr_object_open(s, "dir/good", MR_OBJ_READ, &good, &err), 0);
    assert_int_equal(mr_object_open(s, "dir/bad.npz", MR_OBJ_READ, &bad, &err), 0);
    for (unsigned i = 1; i <= 6; i++) {
        assert_int_equal(mr_object_read(good, buf, 16, 0, &err), 0);
        assert_int_equal(mr_object_read(bad, buf, 16, 4096, &err), i == 3 ? -EIO : 0);
        if (i == 3) {
            assert_non_null(strstr(err.message, "cannot read 'dir/bad.npz': want 16 bytes at 4096, have 0"));
            assert_non_null(strstr(err.context, "injected by the fault shim"));
            assert_non_null(strstr(err.hint, "dmesg"));
        }
    }
    uint64_t matched, injected;
    assert_int_equal(mr_store_fault_counts(s, &matched, &injected, &err), 0);
    assert_int_equal(matched, 6);
    assert_int_equal(injected, 1);
    mr_object_close(good, NULL);
    mr_object_close(bad, NULL);
    mr_store_close(s);
    s = open_store("fault(every=2,op=read,limit=2,error=EIO):null(size=1MiB)");
    assert_int_equal(mr_object_open(s, "x", MR_OBJ_READ, &good, &err), 0);
    unsigned failed = 0;
    for (unsigned i = 0; i < 20; i++)
        failed += mr_object_read(good, buf, 16, 0, &err) != 0;
    assert_int_equal(failed, 2);
    mr_object_close(good, NULL);
    mr_store_close(s);
    assert_int_equal(mr_store_fault_counts(s = open_store("null"), &matched, &injected, &err), MR_E_USAGE);
    mr_store_close(s);
}

static unsigned flipped_bits(const unsigned char *a, const unsigned char *b, size_t n)
{
    unsigned bits = 0;
    for (size_t i = 0; i < n; i++)
        bits += (unsigned)__builtin_popcount(a[i] ^ b[i]);
    return bits;
}

static void corruption_flips_the_same_bits_every_time(void **state)
{
    (void)state;
    unsigned char a[4096], b[4096], c[4096], zero[4096] = {0};
    for (unsigned pass = 0; pass < 2; pass++) {
        struct mr_store *s = open_store("fault(every=1,op=read,corrupt=5,seed=3):null(size=1MiB)");
        struct mr_object *o;
        assert_int_equal(mr_object_open(s, "x", MR_OBJ_READ, &o, NULL), 0);
        assert_int_equal(mr_object_read(o, pass ? b : a, 4096, 0, NULL), 0);
        struct mr_ioq *q;
        assert_int_equal(s->ops->ioq_create(s, 1, &q, NULL), 0);
        struct mr_io io = {.op = MR_IO_READ, .object = o, .buf = c, .len = 4096}, *l = &io, *d;
        assert_int_equal(s->ops->ioq_submit(q, &l, 1, NULL), 0);
        assert_int_equal(s->ops->ioq_reap(q, 1, 1, &d, NULL), 1);
        s->ops->ioq_free(q);
        mr_object_close(o, NULL);
        mr_store_close(s);
    }
    unsigned bits = flipped_bits(a, zero, 4096);
    assert_true(bits >= 1 && bits <= 5);
    assert_memory_equal(a, b, 4096);
    assert_memory_equal(a, c, 4096);
}

static void slow_calls_take_their_time_on_any_clock(void **state)
{
    (void)state;
    struct mr_store *s = open_store("fault(nth=2,op=read,slow=5s):null(size=1MiB)");
    struct mr_clock clock;
    struct mr_object *o;
    char buf[16];
    mr_clock_init_virtual(&clock, 1000);
    assert_int_equal(mr_store_set_clock(s, &clock, NULL), 0);
    assert_int_equal(mr_object_open(s, "x", MR_OBJ_READ, &o, NULL), 0);
    assert_int_equal(mr_object_read(o, buf, 16, 0, NULL), 0);
    assert_int_equal(mr_clock_now_ns(&clock), 1000);
    assert_int_equal(mr_object_read(o, buf, 16, 0, NULL), 0);
    assert_int_equal(mr_clock_now_ns(&clock), 1000 + 5 * MR_NS_PER_S);
    mr_object_close(o, NULL);
    mr_store_close(s);
}

/* ---- the sweep ---- */

static int ignore_name(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    (void)user;
    (void)name;
    (void)is_dir;
    (void)err;
    return 0;
}

static int queue_part(struct mr_store *s, struct mr_object *o, const char *path, struct mr_error *err)
{
    struct mr_ioq *q;
    char buf[6][512] = {{0}};
    struct mr_io io[6], *list[6], *done[6];
    int rc = s->ops->ioq_create(s, 6, &q, err);
    if (rc < 0)
        return rc;
    for (unsigned round = 0; round < 2; round++) { /* the second shows that the queue is usable after a failure */
        for (unsigned i = 0; i < 6; i++) {
            static const enum mr_io_op ops[] = {MR_IO_READ,  MR_IO_WRITE, MR_IO_READ_PATH,
                                                MR_IO_FSYNC, MR_IO_READ,  MR_IO_WRITE};
            io[i] =
                (struct mr_io){.op = ops[i], .object = o, .path = path, .buf = buf[i], .len = 512, .offset = i * 512};
            list[i] = &io[i];
        }
        assert_int_equal(s->ops->ioq_submit(q, list, 6, err), 0);
        assert_int_equal(s->ops->ioq_reap(q, 6, 6, done, err), 6);
        for (unsigned i = 0; i < 6; i++) {
            int one = mr_io_error(&io[i], err);
            if (one < 0 && rc == 0)
                rc = one;
        }
    }
    s->ops->ioq_free(q);
    return rc;
}

/* Everything a program does with storage; the first failure is returned. */
static int scenario(struct mr_store *s, const char *dir, struct mr_error *err)
{
    char a[300], b[300];
    char content[4096];
    snprintf(a, sizeof(a), "%s/a", dir);
    snprintf(b, sizeof(b), "%s/b", dir);
    memset(content, 'x', sizeof(content));
    struct mr_store_stat st;
    void *data = NULL;
    size_t len;
    int rc = mr_store_mkdirs(s, dir, err);
    if (rc == 0)
        rc = mr_store_write_file(s, a, content, sizeof(content), err);
    if (rc == 0)
        rc = mr_store_read_file(s, a, 1 << 20, &data, &len, err);
    free(data);
    if (rc == 0)
        rc = mr_store_stat(s, a, &st, err);
    if (rc == 0)
        rc = s->ops->list(s, dir, ignore_name, NULL, err);
    struct mr_object *o = NULL;
    if (rc == 0)
        rc = mr_object_open(s, a, MR_OBJ_READ | MR_OBJ_WRITE, &o, err);
    if (rc == 0)
        rc = s->ops->allocate(o, 8192, err);
    if (rc == 0)
        rc = queue_part(s, o, a, err);
    if (rc == 0)
        rc = s->ops->truncate(o, 100, err);
    int closed = mr_object_close(o, rc == 0 ? err : NULL);
    if (rc == 0)
        rc = closed;
    if (rc == 0)
        rc = s->ops->rename(s, a, b, err);
    return rc;
}

static void cleanup(const char *backend, const char *dir, struct mr_store *s)
{
    /* On disk: through a store without faults. In memory the content goes with the store. */
    struct mr_store *clean = strcmp(backend, "memory") == 0 ? NULL : open_store("posix");
    (void)s;
    if (!clean)
        return;
    char path[400];
    static const char *const names[] = {"a", "b"};
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        clean->ops->unlink(clean, path, NULL);
    }
    struct mr_error err;
    int rc = clean->ops->unlink(clean, dir, &err);
    if (rc != 0 && rc != -ENOENT)
        fail_msg("a temporary was left behind: %s", err.message);
    mr_store_close(clean);
}

static void sweep(const char *backend, const char *error, int code)
{
    unsigned n = 1, failures = 0;
    for (;; n++) {
        char spec[128], dir[256];
        snprintf(spec, sizeof(spec), "fault(nth=%u,error=%s):%s", n, error, backend);
        snprintf(dir, sizeof(dir), "%s/mr-sweep-%ld-%u", strcmp(backend, "memory") ? P_tmpdir : "", (long)getpid(), n);
        struct mr_store *s = open_store(spec);
        struct mr_error err;
        memset(&err, 0, sizeof(err));
        int rc = scenario(s, dir, &err);
        uint64_t matched, injected;
        assert_int_equal(mr_store_fault_counts(s, &matched, &injected, NULL), 0);
        if (rc != 0) {
            failures++;
            if (rc != code)
                fail_msg("%s, n = %u: code %d, want %d (%s)", backend, n, rc, code, err.message);
            assert_int_equal(err.code, code);
            assert_true(strchr(err.message, '\'') != NULL); /* names what it was about */
        }
        mr_store_close(s);
        cleanup(backend, dir, s);
        if (matched < n) {
            assert_int_equal(rc, 0); /* nothing was injected */
            break;
        }
        assert_true(n < 500);
    }
    assert_true(n > 25);
    assert_true(failures + 4 >= n - 1); /* all but a few, such as the stat before mkdirs, surface */
}

static void every_nth_call_failing_is_reported_memory(void **state)
{
    (void)state;
    sweep("memory", "EIO", -EIO);
    sweep("memory", "ENOSPC", -ENOSPC);
}
static void every_nth_call_failing_is_reported_posix(void **state)
{
    (void)state;
    sweep("posix", "EIO", -EIO);
}
static void every_nth_call_failing_is_reported_uring(void **state)
{
    (void)state;
    sweep("uring", "EIO", -EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_without_effect_are_refused),
        cmocka_unit_test(interruptions_and_short_transfers_are_invisible),
        cmocka_unit_test(endless_interruption_is_reported_not_endured),
        cmocka_unit_test(only_the_chosen_calls_fail),
        cmocka_unit_test(corruption_flips_the_same_bits_every_time),
        cmocka_unit_test(slow_calls_take_their_time_on_any_clock),
        cmocka_unit_test(every_nth_call_failing_is_reported_memory),
        cmocka_unit_test(every_nth_call_failing_is_reported_posix),
        cmocka_unit_test(every_nth_call_failing_is_reported_uring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
