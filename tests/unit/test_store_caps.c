/* What callers do on stores that cannot rename, write at any offset or extend a file: they take another way, or refuse
 * before anything is there, with a message that names the store and what it lacks. The stores are shims over memory and
 * posix that take one capability away and refuse the calls that need it, counting them. */
#include "base/common.h"
#include "dataset/generate.h"
#include "store/store_internal.h"
#include "store/store_shim.h"

#include <errno.h>
#include <millrace/checkpoint.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static unsigned calls; /* what reached the shims */

static int count_call(struct mr_shim *s, struct mr_shim_call *c, struct mr_error *err)
{
    (void)s;
    (void)c;
    (void)err;
    calls++;
    return 0;
}

static void ignore_call(struct mr_shim *s, struct mr_shim_call *c)
{
    (void)s;
    (void)c;
}

/* Front to back only. */
static int64_t write_at_end(struct mr_object *o, const void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    uint64_t size = 0;
    int rc = o->store->ops->object_size(o, &size, err);
    if (rc == 0 && size != offset)
        rc = mr_error_plain(err, MR_E_UNSUPPORTED, "only at the end");
    return rc < 0 ? rc : mr_shim_write(o, buf, len, offset, err);
}

static const struct mr_option no_options[] = {MR_OPTION_END};

static int limited_open(const struct mr_store_ops *ops, struct mr_store *lower, struct mr_store **out,
                        struct mr_error *err)
{
    struct mr_shim *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open");
    mr_shim_init(s, ops, lower, count_call, ignore_call);
    *out = &s->base;
    return 0;
}

static void limited_close(struct mr_store *s)
{
    mr_store_close(s->lower);
    free(s);
}

#define LIMITED(id, text, removed, ...)                                                                                \
    static const struct mr_store_ops id##_ops;                                                                         \
    static int id##_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)     \
    {                                                                                                                  \
        (void)options;                                                                                                 \
        return limited_open(&id##_ops, lower, out, err);                                                               \
    }                                                                                                                  \
    static const struct mr_store_ops id##_ops = {MR_SHIM_OPS,                                                          \
                                                 .name = text,                                                         \
                                                 .doc = "Takes a capability away.",                                    \
                                                 .caps_removed = removed,                                              \
                                                 .options = {.section = text, .doc = "", .options = no_options},       \
                                                 .open = id##_open,                                                    \
                                                 .close = limited_close,                                               \
                                                 __VA_ARGS__}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
LIMITED(no_rename, "no-rename", MR_STORE_CAP_RENAME, .rename = mr_store_no_rename);
LIMITED(no_offset, "no-offset", MR_STORE_CAP_OFFSET_WRITE, .write = write_at_end);
LIMITED(no_append, "no-append", MR_STORE_CAP_APPEND, .doc = "Takes appending away.");
LIMITED(no_write, "no-write", MR_STORE_CAP_WRITE, .doc = "Takes writing away.");
#pragma GCC diagnostic pop

static int register_all(void **state)
{
    (void)state;
    const struct mr_store_ops *all[] = {&no_rename_ops, &no_offset_ops, &no_append_ops, &no_write_ops};
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++)
        assert_int_equal(mr_store_register(all[i], NULL), 0);
    return 0;
}

static void expect(const struct mr_error *err, const char *text)
{
    if (!strstr(err->message, text))
        fail_msg("message '%s' lacks '%s'", err->message, text);
}

static void a_stack_has_what_no_layer_takes_away(void **state)
{
    (void)state;
    struct mr_store *s;
    struct mr_error err;
    assert_int_equal(mr_store_open("trace:no-rename:no-offset:memory", &s, &err), 0);
    unsigned caps = mr_store_caps(s);
    assert_int_equal(caps, MR_STORE_CAP_WRITE | MR_STORE_CAP_CONTENT | MR_STORE_CAP_APPEND);
    assert_int_equal(mr_store_require(s, MR_STORE_CAP_APPEND, "do it", &err), 0);
    assert_int_equal(mr_store_require(s, MR_STORE_CAP_APPEND | MR_STORE_CAP_OFFSET_WRITE, "do it", &err),
                     MR_E_UNSUPPORTED);
    expect(&err, "cannot do it: store 'no-offset' cannot write at any offset");
    assert_int_equal(mr_store_require(s, MR_STORE_CAP_PERSISTENT, "do it", &err), MR_E_UNSUPPORTED);
    expect(&err, "store 'memory' cannot keep anything longer than the process");
    assert_int_equal(mr_store_require(s, MR_STORE_CAP_RENAME, "do it", NULL), MR_E_UNSUPPORTED);
    mr_store_close(s);
    for (const struct mr_store_ops *const *o = mr_store_registry(); *o; o++) /* every backend says what it can do */
        if (!(*o)->is_shim && (*o)->caps & MR_STORE_CAP_WRITE)
            assert_true((*o)->caps & (MR_STORE_CAP_RENAME | MR_STORE_CAP_WHOLE_PUT));
}

static void a_whole_file_needs_a_rename_or_a_whole_put(void **state)
{
    (void)state;
    struct mr_store *s;
    struct mr_error err;
    assert_int_equal(mr_store_open("no-rename:memory", &s, &err), 0);
    calls = 0;
    assert_int_equal(mr_store_write_file(s, "file", "x", 1, &err), MR_E_UNSUPPORTED);
    expect(&err, "cannot replace 'file' in one step: store 'no-rename' cannot rename");
    assert_int_equal(calls, 0); /* refused before anything was written */
    mr_store_close(s);
    assert_int_equal(mr_store_open("no-offset:no-append:memory", &s, &err), 0);
    assert_int_equal(mr_store_write_file(s, "file", "abc", 3, &err), 0);
    void *data;
    size_t len;
    assert_int_equal(mr_store_read_file(s, "file", 100, &data, &len, &err), 0);
    assert_int_equal(len, 3);
    free(data);
    mr_store_close(s);
    /* A store like object storage: no rename, but a new object appears with all its bytes. */
    assert_int_equal(mr_store_open("memory", &s, &err), 0);
    struct mr_store_ops bottom = *s->ops;
    bottom.caps = (bottom.caps & ~(unsigned)MR_STORE_CAP_RENAME) | MR_STORE_CAP_WHOLE_PUT;
    bottom.rename = mr_store_no_rename;
    const struct mr_store_ops *real = s->ops;
    s->ops = &bottom;
    assert_int_equal(mr_store_write_file(s, "file", "abcd", 4, &err), 0);
    assert_int_equal(mr_store_write_file(s, "file", "xyz", 3, &err), 0);
    assert_int_equal(mr_store_read_file(s, "file", 100, &data, &len, &err), 0);
    assert_int_equal(len, 3);
    assert_memory_equal(data, "xyz", 3);
    free(data);
    s->ops = real;
    mr_store_close(s);
}

static void checkpoints_refuse_a_store_without_rename(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_checkpointer *c = NULL;
    struct mr_checkpoint_params p = {.folder = "ckpt", .store = "no-rename:memory", .world = 1};
    calls = 0;
    assert_int_equal(mr_checkpointer_open(&p, &c, &err), MR_E_UNSUPPORTED);
    expect(&err, "cannot keep checkpoints in 'ckpt': store 'no-rename' cannot rename");
    assert_int_equal(calls, 0);
    /* Files are written front to back, once: nothing else is needed. */
    p.store = "no-offset:no-append:memory";
    assert_int_equal(mr_checkpointer_open(&p, &c, &err), 0);
    struct mr_checkpoint_file f = {.name = "a.bin", .bytes = 100000};
    struct mr_checkpoint_result r;
    assert_int_equal(mr_checkpoint_save(c, 1, &f, 1, &r, &err), 0);
    assert_int_equal(mr_checkpoint_load(c, UINT64_MAX, 0, &r, &err), 0);
    assert_int_equal(r.bytes, 100000);
    mr_checkpointer_close(c);
}

static void the_generator_refuses_before_anything_is_there(void **state)
{
    (void)state;
    static const struct {
        const char *store, *text;
    } cases[] = {{"no-rename:memory", "store 'no-rename' cannot rename"},
                 {"no-offset:memory", "store 'no-offset' cannot write at any offset"},
                 {"no-write:memory", "store 'no-write' cannot write"},
                 {"no-append:memory", NULL}};
    struct mr_arena arena = {0};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_gen_spec spec;
        struct mr_gen_plan plan;
        struct mr_gen *g = NULL;
        struct mr_store *s;
        struct mr_error err;
        assert_int_equal(mr_options_defaults(&mr_gen_spec_table, &arena, &spec, &err), 0);
        spec.format = "npy";
        spec.files = 2;
        spec.size_bytes = 1000;
        assert_int_equal(mr_gen_plan_resolve(&spec, "train", &plan, &err), 0);
        assert_int_equal(mr_store_open(cases[i].store, &s, &err), 0);
        calls = 0;
        struct mr_gen_options o = {.store = s, .folder = "set", .plan = &plan, .world = 1, .threads = 1};
        assert_int_equal(mr_gen_open(&o, &g, &err), 0);
        int rc = mr_gen_prepare(g, &err);
        if (cases[i].text) {
            assert_int_equal(rc, MR_E_UNSUPPORTED);
            expect(&err, "cannot generate 'set'");
            expect(&err, cases[i].text);
            assert_int_equal(calls, 0);
        } else {
            assert_int_equal(rc, 0);
            assert_int_equal(mr_gen_run(g, &err), 0);
            assert_int_equal(mr_gen_finish(g, &err), 0);
        }
        mr_gen_close(g);
        mr_store_close(s);
    }
    mr_arena_done(&arena);
}

static void registering_checks_a_store(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_store_ops bad = no_rename_ops;
    assert_int_equal(mr_store_register(&bad, &err), -EEXIST);
    expect(&err, "there is a store 'no-rename' already");
    bad.name = "new";
    bad.abi = MR_STORE_ABI + 1;
    assert_int_equal(mr_store_register(&bad, &err), MR_E_UNSUPPORTED);
    bad.abi = MR_STORE_ABI;
    bad.size--;
    assert_int_equal(mr_store_register(&bad, &err), MR_E_UNSUPPORTED);
    bad.size++;
    bad.ioq_reap = NULL;
    assert_int_equal(mr_store_register(&bad, &err), MR_E_USAGE);
    expect(&err, "store 'new' lacks the operation 'ioq_reap'");
    bad.ioq_reap = no_rename_ops.ioq_reap;
    bad.name = "a:b";
    assert_int_equal(mr_store_register(&bad, &err), MR_E_USAGE);
}

/* A fixed buffer is pinned: the kernel reaches it where a plain read would get EFAULT. */
static void rings_read_into_registered_memory_without_looking_it_up(void **state)
{
    (void)state;
    enum { BYTES = 1 << 16 };
    struct mr_error err;
    struct mr_store *s;
    struct mr_ioq *q;
    char path[128];
    unsigned char data[4096];
    memset(data, 7, sizeof(data));
    snprintf(path, sizeof(path), "%s/mr-caps-%ld", getenv("TMPDIR") ? getenv("TMPDIR") : P_tmpdir, (long)getpid());
    assert_int_equal(mr_store_open("trace:uring", &s, &err), 0);
    assert_int_equal(mr_store_write_file(s, path, data, sizeof(data), &err), 0);
    assert_int_equal(s->ops->ioq_create(s, 2, &q, &err), 0);
    void *mem = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mem != MAP_FAILED);
    struct iovec iov = {.iov_base = mem, .iov_len = BYTES};
    int used = s->ops->ioq_register(q, &iov, 1, &err);
    assert_in_range(used, 0, 1);
    if (used) {
        struct mr_io io = {.op = MR_IO_READ_PATH, .path = path, .buf = (char *)mem + 8192, .len = 4096}, *list = &io;
        assert_int_equal(mprotect(mem, BYTES, PROT_NONE), 0);
        assert_int_equal(s->ops->ioq_submit(q, &list, 1, &err), 0);
        assert_int_equal(s->ops->ioq_reap(q, 1, 1, &list, &err), 1);
        assert_int_equal(io.result, 4096);
        assert_int_equal(mprotect(mem, BYTES, PROT_READ | PROT_WRITE), 0);
        assert_memory_equal((char *)mem + 8192, data, 4096);
    } else {
        print_message("no io_uring, or too little memory may be pinned: not tried\n");
    }
    s->ops->ioq_free(q);
    assert_int_equal(s->ops->unlink(s, path, &err), 0);
    munmap(mem, BYTES);
    mr_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stack_has_what_no_layer_takes_away),
        cmocka_unit_test(a_whole_file_needs_a_rename_or_a_whole_put),
        cmocka_unit_test(checkpoints_refuse_a_store_without_rename),
        cmocka_unit_test(the_generator_refuses_before_anything_is_there),
        cmocka_unit_test(registering_checks_a_store),
        cmocka_unit_test(rings_read_into_registered_memory_without_looking_it_up),
    };
    return cmocka_run_group_tests(tests, register_all, NULL);
}
