/* The text form of a store stack: what it accepts, and that what it refuses is refused with a useful message. */
#include "store/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static void expect_open(const char *spec, const char *top)
{
    struct mr_store *s = NULL;
    struct mr_error err = {0};
    if (mr_store_open(spec, &s, &err) != 0)
        fail_msg("'%s': %s", spec, err.message);
    assert_string_equal(s->ops->name, top);
    mr_store_close(s);
}

static void expect_refused(const char *spec, int code, const char *text, const char *hint)
{
    struct mr_store *s = (struct mr_store *)(uintptr_t)1;
    struct mr_error err = {0};
    assert_int_equal(mr_store_open(spec, &s, &err), code);
    assert_ptr_equal(s, (void *)(uintptr_t)1); /* outputs are set only on success */
    if (!strstr(err.message, text))
        fail_msg("'%s': message '%s' lacks '%s'", spec, err.message, text);
    if (hint && !strstr(err.hint, hint))
        fail_msg("'%s': hint '%s' lacks '%s'", spec, err.hint, hint);
}

static void spec_accepts_backends_and_options(void **state)
{
    (void)state;
    expect_open("posix", "posix");
    expect_open(" posix ( threads=4 , direct=false ) ", "posix");
    expect_open("posix,threads=4,timing=true", "posix");
    expect_open("memory(capacity=\"1MiB\")", "memory");
    expect_open("memory()", "memory");
    expect_open("null(size=112KiB,fill=none)", "null");
}

static void spec_refuses_with_the_nearest_name(void **state)
{
    (void)state;
    expect_refused("poisx", MR_E_CONFIG, "unknown store 'poisx'", "'posix'");
    expect_refused("posix(thread=4)", MR_E_CONFIG, "unknown option 'thread'", "'threads'");
    expect_refused("posix(threads=4,threads=5)", MR_E_CONFIG, "twice", NULL);
    expect_refused("posix(threads)", MR_E_CONFIG, "needs a value", NULL);
    expect_refused("", MR_E_CONFIG, "name is missing", NULL);
    expect_refused("posix(threads=4", MR_E_CONFIG, "do not match", NULL);
    expect_refused("posix)", MR_E_CONFIG, "do not match", NULL);
    expect_refused("posix(direct=true)x", MR_E_CONFIG, "after the closing", NULL);
    expect_refused("memory(capacity=\"1MiB)", MR_E_CONFIG, "do not match", NULL);
    expect_refused("posix:memory", MR_E_CONFIG, "must come last", NULL);
    expect_refused("posix:", MR_E_CONFIG, "name is missing", NULL);
    expect_refused("posix(threads=banana)", MR_E_CONFIG, "banana", NULL);
    expect_refused("posix(threads=1000)", MR_E_CONFIG, "1000", NULL);
}

static void caps_of_a_text_are_those_of_its_stack(void **state)
{
    (void)state;
    const char *const specs[] = {"posix", "null(size=1KiB)", "throttle(bandwidth=1MB):null(size=1KiB)", "memory",
                                 "throttle(latency=1ms):memory"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        struct mr_store *s;
        unsigned caps;
        assert_int_equal(mr_store_open(specs[i], &s, NULL), 0);
        assert_int_equal(mr_store_spec_caps(specs[i], &caps, NULL), 0);
        assert_int_equal(caps, mr_store_caps(s));
        mr_store_close(s);
    }
    unsigned caps = 7;
    assert_int_equal(mr_store_spec_caps("poisx", &caps, NULL), MR_E_CONFIG);
    assert_int_equal(mr_store_spec_caps("trace(file=/nowhere/at/all):posix", &caps, NULL), 0); /* nothing is opened */
    assert_true(caps & MR_STORE_CAP_CONTENT);
}

static void options_that_write_elsewhere_are_found(void **state)
{
    char which[128];
    (void)state;
    assert_true(mr_store_spec_writes("trace(file=/a):posix", which, sizeof which));
    assert_string_equal(which, "file of store 'trace'");
    assert_true(mr_store_spec_writes("throttle(bandwidth=1GB, group=g , group_folder = \"/x,y\"):uring(depth=4)", which,
                                     sizeof which));
    assert_string_equal(which, "group_folder of store 'throttle'");
    assert_true(mr_store_spec_writes("trace:count,file=a:posix", which, sizeof which));
    assert_false(
        mr_store_spec_writes("trace:throttle(bandwidth=1GB,group=\"file=x,file=y\"):posix", which, sizeof which));
    assert_false(mr_store_spec_writes("posix", which, sizeof which));
    assert_false(mr_store_spec_writes("nonsense((", which, sizeof which));
}

static void registry_entries_are_complete(void **state)
{
    (void)state;
    unsigned n = 0;
    for (const struct mr_store_ops *const *o = mr_store_registry(); *o; o++, n++) {
        assert_int_equal((*o)->abi, MR_STORE_ABI);
        assert_int_equal((*o)->size, sizeof(struct mr_store_ops));
        /* No operation may be NULL: the block of function pointers from open to ioq_register. */
        const unsigned char *p = (const unsigned char *)*o;
        for (size_t at = offsetof(struct mr_store_ops, open); at < sizeof(**o); at += sizeof(void *)) {
            void *fn;
            memcpy(&fn, p + at, sizeof(fn));
            if (!fn)
                fail_msg("store '%s' lacks the operation at byte %zu", (*o)->name, at);
        }
        for (const struct mr_option *row = (*o)->options.options; row->key; row++)
            assert_true(row->doc && *row->doc && row->def);
    }
    assert_true(n >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spec_accepts_backends_and_options),
        cmocka_unit_test(spec_refuses_with_the_nearest_name),
        cmocka_unit_test(caps_of_a_text_are_those_of_its_stack),
        cmocka_unit_test(options_that_write_elsewhere_are_found),
        cmocka_unit_test(registry_entries_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
