/* Tensors on a CUDA device, with a runtime library of the tests' own: saved and loaded without the host touching the
 * device's memory, through pinned buffers, in parts too; errors of the device are named; nothing stays pinned.
 * test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include "unit/checkpoint_test.h"

#include <dlfcn.h>
#include <millrace/state.h>

#define BYTES (20ull * 1000 * 1000) /* three chunks, the last one not full */
#define SMALL 300                   /* tensors of 1,000 bytes in one chunk */

static void *(*device_memory)(size_t, void **);
static void (*counts)(int *, int *, int *);
static void (*fail_after)(int);
static uint8_t *device, *look;

static int load_fake(void **unused)
{
    (void)unused;
    void *lib = dlopen(MR_BINARY_DIR "/tests/libcudart_fake.so", RTLD_NOW);
    if (!lib)
        return -1;
    *(void **)&device_memory = dlsym(lib, "fake_device_memory");
    *(void **)&counts = dlsym(lib, "fake_counts");
    *(void **)&fail_after = dlsym(lib, "fake_fail_after");
    device = device_memory(2 * BYTES, (void **)&look);
    for (size_t i = 0; i < BYTES; i++)
        look[i] = (uint8_t)(mr_mix64(i / 8) >> (8 * (i % 8)));
    return device ? 0 : -1;
}

static struct mr_saver *open_saver(void)
{
    struct mr_saver *s;
    struct mr_error e = {0};
    struct mr_saver_params p = {.size = sizeof p, .folder = ct_dir, .world = 1, .copy_threads = 2};
    if (mr_saver_open(&p, &s, &e))
        fail_msg("%s", e.message);
    return s;
}

/* One large tensor and many small ones, all on the device. */
static int save(struct mr_saver *s, uint64_t step, struct mr_error *e)
{
    static char name[SMALL][16];
    static const uint64_t all = BYTES - SMALL * 1000, small = 1000;
    struct mr_tensor t[SMALL + 1] = {
        {.name = "large", .dtype = "U8", .dims = 1, .shape = &all, .data = device + SMALL * 1000, .cuda = 1}};
    for (unsigned i = 0; i < SMALL; i++) {
        snprintf(name[i], sizeof name[i], "small.%u", i);
        t[1 + i] = (struct mr_tensor){
            .name = name[i], .dtype = "U8", .dims = 1, .shape = &small, .data = device + 1000ull * i, .cuda = 1};
    }
    struct mr_state state = {.size = sizeof state, .tensor = t, .tensors = SMALL + 1};
    return mr_saver_save(s, step, &state, NULL, e);
}

static struct mr_state_reader *open_state(void)
{
    struct mr_state_reader *r;
    struct mr_error e = {0};
    struct mr_state_params p = {.size = sizeof p, .folder = ct_dir, .step = MR_ALL_STEPS, .threads = 3};
    if (mr_state_open(&p, &r, &e))
        fail_msg("%s", e.message);
    return r;
}

static void cuda_tensors_come_back(void **unused)
{
    (void)unused;
    struct mr_error e = {0};
    int to, from, pins;
    struct mr_saver *s = open_saver();
    if (save(s, 1, &e) || mr_saver_wait(s, MR_ALL_STEPS, &e))
        fail_msg("%s", e.message);
    counts(&to, &from, &pins);
    assert_true(pins > 0 && from >= SMALL);
    assert_int_equal(mr_saver_close(s, &e), 0);
    struct mr_state_reader *r = open_state();
    struct mr_state_range g[SMALL + 1];
    size_t n = mr_state_tensors(r);
    assert_int_equal(n, SMALL + 1);
    for (size_t i = 0; i < n; i++) {
        const struct mr_stored_tensor *t = mr_state_tensor(r, i);
        unsigned which;
        bool small = sscanf(t->name, "small.%u", &which) == 1;
        g[i] = (struct mr_state_range){i, 0, t->bytes, device + BYTES + (small ? which * 1000ull : SMALL * 1000), 1};
    }
    memset(look + BYTES, 0, BYTES);
    if (mr_state_read(r, g, n, &e))
        fail_msg("%s", e.message);
    assert_memory_equal(look, look + BYTES, BYTES);
    /* a part, across two chunks; and one to the host beside it */
    uint8_t host[100];
    memset(look + BYTES, 0, BYTES);
    size_t large = mr_state_find(r, 0, "large");
    struct mr_state_range part[2] = {{large, 8000000, 900000, device + BYTES, 1}, {large, 8000000, 100, host, 0}};
    assert_int_equal(mr_state_read(r, part, 2, &e), 0);
    assert_memory_equal(look + BYTES, look + SMALL * 1000 + 8000000, 900000);
    assert_memory_equal(host, look + SMALL * 1000 + 8000000, 100);
    assert_int_equal(look[BYTES + 900000], 0);
    mr_state_close(r);
    counts(&to, &from, &pins);
    assert_true(to >= SMALL + 1);
    assert_int_equal(pins, 0);
}

/* A file of another program has no checksums: it goes through the buffers all the same. */
static void cuda_load_of_a_bare_file(void **unused)
{
    (void)unused;
    struct mr_error e = {0};
    struct mr_saver *s = open_saver();
    if (save(s, 1, &e) || mr_saver_close(s, &e))
        fail_msg("%s", e.message);
    char path[600];
    snprintf(path, sizeof path, "%s/step-000000000001/rank-00000.safetensors", ct_dir);
    struct mr_state_params p = {.size = sizeof p, .folder = path, .step = MR_ALL_STEPS};
    struct mr_state_reader *r;
    assert_int_equal(mr_state_open(&p, &r, &e), 0);
    memset(look + BYTES, 0, BYTES);
    size_t large = mr_state_find(r, 0, "large");
    struct mr_state_range g = {large, 0, mr_state_tensor(r, large)->bytes, device + BYTES, 1};
    assert_int_equal(mr_state_read(r, &g, 1, &e), 0);
    assert_memory_equal(look + BYTES, look + SMALL * 1000, g.bytes);
    mr_state_close(r);
}

static void cuda_errors_are_named(void **unused)
{
    (void)unused;
    struct mr_error e = {0};
    int to, from, pins;
    struct mr_saver *s = open_saver();
    assert_int_equal(save(s, 1, &e), 0);
    assert_int_equal(mr_saver_wait(s, MR_ALL_STEPS, &e), 0);
    fail_after(5);
    assert_true(save(s, 2, &e) < 0);
    assert_non_null(strstr(e.message, "illegal memory access"));
    assert_int_equal(save(s, 3, &e), 0);
    assert_int_equal(mr_saver_close(s, &e), 0);
    struct mr_state_reader *r = open_state();
    assert_int_equal(mr_state_step(r), 3);
    size_t large = mr_state_find(r, 0, "large");
    struct mr_state_range g = {large, 0, mr_state_tensor(r, large)->bytes, device + BYTES, 1};
    fail_after(1);
    assert_true(mr_state_read(r, &g, 1, &e) < 0);
    assert_non_null(strstr(e.message, "copy to CUDA device 0"));
    g.cuda = 2; /* a device that is not there */
    assert_true(mr_state_read(r, &g, 1, &e) < 0);
    assert_non_null(strstr(e.message, "device 1: invalid device"));
    fail_after(-1);
    g.cuda = 1;
    assert_int_equal(mr_state_read(r, &g, 1, &e), 0);
    mr_state_close(r);
    counts(&to, &from, &pins);
    assert_int_equal(pins, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cuda_tensors_come_back, ct_setup, ct_teardown),
        cmocka_unit_test_setup_teardown(cuda_load_of_a_bare_file, ct_setup, ct_teardown),
        cmocka_unit_test_setup_teardown(cuda_errors_are_named, ct_setup, ct_teardown),
    };
    return cmocka_run_group_tests(tests, load_fake, NULL);
}
