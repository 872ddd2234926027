/* The hot-path contract: submitting, completing and reading allocate nothing, on any backend that does real I/O and
 * through the shims. Counts every allocation of the process, in all threads.
 *
 * test-label: concurrent */
#include "base/common.h"
#include "event/event.h"
#include "store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static atomic_uint allocations;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
                                              void (*free_hook)(const volatile void *));
static void on_malloc(const volatile void *p, size_t n)
{
    (void)p;
    (void)n;
    atomic_fetch_add(&allocations, 1);
}
static void on_free(const volatile void *p)
{
    (void)p;
}
static void count_allocations(void)
{
    __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}
#else
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t a, size_t b);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(n);
}
void *calloc(size_t a, size_t b)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(a, b);
}
void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(p, n);
}
static void count_allocations(void)
{
}
#endif

enum { DEPTH = 16, PIECE = 5000 };

static uint32_t sink_intern(struct mr_event_sink *s, const char *path)
{
    (void)s;
    (void)path;
    return 1;
}
static void sink_emit(struct mr_event_sink *s, const struct mr_event *e)
{
    (void)s;
    (void)e;
}

static void round_trip(struct mr_store *s, struct mr_ioq *q, struct mr_object *o, const char *path, char *buf)
{
    static const enum mr_io_op ops[] = {MR_IO_READ, MR_IO_WRITE, MR_IO_READ_PATH, MR_IO_READ};
    struct mr_io io[DEPTH], *list[DEPTH], *done[DEPTH];
    for (unsigned i = 0; i < DEPTH; i++) {
        io[i] = (struct mr_io){
            .op = ops[i % 4], .object = o, .path = path, .buf = buf + i * PIECE, .len = PIECE, .offset = i * PIECE};
        list[i] = &io[i];
    }
    assert_int_equal(s->ops->ioq_submit(q, list, DEPTH, NULL), 0);
    unsigned got = 0;
    while (got < DEPTH) {
        int n = s->ops->ioq_reap(q, 1, DEPTH, done, NULL);
        assert_true(n > 0);
        got += (unsigned)n;
    }
    for (unsigned i = 0; i < DEPTH; i++)
        assert_int_equal(io[i].result, PIECE);
    assert_int_equal(mr_object_read(o, buf, PIECE, 100, NULL), 0);
    assert_int_equal(mr_object_write(o, buf, PIECE, 100, NULL), 0);
}

static void steady_state_allocates_nothing(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "posix",
        "posix(direct=true,threads=4)",
        "uring",
        "uring(direct=true)",
        "trace:throttle(bandwidth=100GB):fault(nth=1000000000,error=EIO):uring",
    };
    static struct mr_event_sink sink = {.intern = sink_intern, .emit = sink_emit};
    char path[200];
    snprintf(path, sizeof(path), "%s/mr-alloc-%ld", P_tmpdir, (long)getpid());
    char *buf = calloc(DEPTH, PIECE);
    assert_non_null(buf);
    for (size_t i = 0; i < MR_ARRAY_LEN(specs); i++) {
        struct mr_store *s;
        struct mr_ioq *q;
        struct mr_object *o;
        assert_int_equal(mr_store_open(specs[i], &s, NULL), 0);
        if (strncmp(specs[i], "trace", 5) == 0)
            assert_int_equal(mr_store_trace_set_sink(s, &sink, NULL), 0);
        assert_int_equal(mr_object_open(s, path, MR_OBJ_READ | MR_OBJ_WRITE | MR_OBJ_CREATE, &o, NULL), 0);
        assert_int_equal(s->ops->truncate(o, DEPTH * PIECE, NULL), 0);
        assert_int_equal(s->ops->ioq_create(s, DEPTH, &q, NULL), 0);
        /* Threads that begin late and bounce buffers allocate when they are first needed, on a busy machine after many
         * rounds; what allocates with every operation never comes to nothing. */
        unsigned last = 1;
        for (unsigned tries = 0; tries < 100 && last; tries++) {
            unsigned before = atomic_load(&allocations);
            for (unsigned k = 0; k < 30; k++)
                round_trip(s, q, o, path, buf);
            last = atomic_load(&allocations) - before;
        }
        if (last)
            fail_msg("'%s' allocated %u times", specs[i], last);
        s->ops->ioq_free(q);
        mr_object_close(o, NULL);
        mr_store_close(s);
    }
    unlink(path);
    free(buf);
    assert_true(atomic_load(&allocations) > 0); /* the counter works */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steady_state_allocates_nothing)};
    count_allocations();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
