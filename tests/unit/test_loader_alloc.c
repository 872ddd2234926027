/* The hot-path contract: once files are open and buffers have grown, a loader's samples cost no allocation, whether
 * threads or queues read them or memory holds them. Counts every allocation of the process, in all threads. test-label:
 * concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loader_fixture.h"

#include <stdatomic.h>

static atomic_uint allocations;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
                                              void (*free_hook)(const volatile void *));
static void on_malloc(const volatile void *p, size_t n)
{
    (void)p, (void)n;
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
void *__libc_memalign(size_t a, size_t n);
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
void *aligned_alloc(size_t a, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(a, n);
}
static void count_allocations(void)
{
}
#endif

static const struct {
    const char *name, *format;
    uint64_t size;
} sets[] = {{"tfrecord", "tfrecord", 3000}, {"hdf5", "hdf5", 4096}, {"indexed", "indexed_binary", 2000}};

static unsigned epoch_allocations(struct mr_loader *l, uint64_t epoch)
{
    struct mr_error err;
    struct mr_batch *b;
    unsigned n = 0, before = 0;
    assert_int_equal(mr_loader_start_epoch(l, epoch, &err), 0);
    for (int rc = 1; rc == 1; n++) {
        rc = mr_loader_next(l, &b, &err);
        if (n == 0)
            before = atomic_load(&allocations);
        assert_true(rc >= 0);
        if (rc)
            mr_loader_release(l, b);
    }
    return atomic_load(&allocations) - before;
}

static void samples_cost_no_allocation(void **state)
{
    (void)state;
    for (unsigned set = 0; set < MR_ARRAY_LEN(sets); set++)
        for (unsigned how = 0; how < 6; how++) {
            char path[512];
            struct mr_loader_params p = params(sets[set].name, path);
            p.flags = how == 2 || how == 3 ? MR_LOADER_DIRECT : how == 4 ? MR_LOADER_VERIFY : 0;
            p.flags |= how == 5 ? MR_LOADER_IN_MEMORY : 0;
            p.io = how == 1 || how == 3 ? MR_LOADER_IO_QUEUE : MR_LOADER_IO_AUTO;
            p.store = how == 3 ? "uring" : NULL;
            p.order.mode = MR_ORDER_CIPHER;
            p.threads = 2;
            struct mr_loader *l = must_open(&p);
            unsigned last = 1;
            for (uint64_t epoch = 0; epoch < 40 && last; epoch++) /* until each thread has seen each file and size */
                last = epoch_allocations(l, epoch);
            assert_int_equal(last, 0);
            mr_loader_close(l);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(samples_cost_no_allocation)};
    count_allocations();
    open_root("loader-alloc");
    for (unsigned i = 0; i < MR_ARRAY_LEN(sets); i++)
        make_set(sets[i].name, sets[i].format, 3, 40, sets[i].size, 0);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_root();
    return rc;
}
