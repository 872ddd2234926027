/* Reading through a queue keeps the loader's promises: content, alignment, pieces of the transfer size, and what
 * happens when a request fails, is interrupted, comes up short, or the file has shrunk. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loader_fixture.h"

#include <errno.h>

/* Sizes off every power of two: payloads start anywhere in a block and end anywhere. */
static const struct {
    const char *name, *format;
    int64_t files, per_file;
    uint64_t size, stdev;
} sets[] = {{"npz", "npz", 40, 1, 70001, 0},
            {"npzvar", "npz", 30, 1, 30000, 9000},
            {"tfrecord", "tfrecord", 3, 20, 20003, 5000},
            {"hdf5", "hdf5", 3, 15, 16411, 0},
            {"indexed", "indexed_binary", 80, 2, 5003, 0}, /* more files than are kept open */
            {"chunked", "hdf5", 3, 10, 0, 0}};             /* seven ranges per sample */

static struct mr_loader_params queued(unsigned set, unsigned flags, const char *store, char path[512])
{
    struct mr_loader_params p = params(sets[set].name, path);
    p.io = MR_LOADER_IO_QUEUE;
    p.flags |= flags;
    p.store = store;
    p.queue_depth = 13;
    return p;
}

static uint64_t samples_of(unsigned set)
{
    return (uint64_t)(sets[set].files * sets[set].per_file);
}

static void every_sample_has_its_content_in_every_way_of_reading(void **state)
{
    (void)state;
    static const unsigned flags[] = {0, MR_LOADER_DIRECT, MR_LOADER_DIRECT | MR_LOADER_IN_PLACE,
                                     MR_LOADER_DIRECT | MR_LOADER_VERIFY};
    uint64_t ids[200];
    for (unsigned set = 0; set < MR_ARRAY_LEN(sets); set++)
        for (unsigned f = 0; f < MR_ARRAY_LEN(flags); f++)
            for (unsigned transfer = 0; transfer < 3; transfer++) {
                char path[512];
                struct mr_loader_params p = queued(set, flags[f], transfer == 1 ? NULL : "uring", path);
                p.transfer_bytes = transfer == 2 ? 6000 : 0;
                p.threads = 1 + set % 2;
                struct mr_loader *l = must_open(&p);
                for (uint64_t epoch = 0; epoch < 2; epoch++)
                    check_against_order(&p, samples_of(set), epoch, ids, read_epoch(l, epoch, ids, UINT64_MAX));
                mr_loader_close(l);
            }
}

/* Rows are aligned and a stride apart unless the caller gave that up. */
static void rows_lie_where_the_batch_says(void **state)
{
    (void)state;
    for (unsigned set = 0; set < MR_ARRAY_LEN(sets); set++) {
        char path[512];
        struct mr_error err;
        struct mr_batch *b;
        struct mr_loader_params p = queued(set, MR_LOADER_DIRECT, "uring", path);
        struct mr_loader *l = must_open(&p);
        assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
        assert_int_equal(mr_loader_next(l, &b, &err), 1);
        assert_int_equal(b->data == NULL, sets[set].stdev > 0);
        for (uint32_t i = 0; i < b->n; i++) {
            assert_int_equal((uintptr_t)b->rows[i] % 64, 0);
            assert_true(!b->data || b->rows[i] == (const uint8_t *)b->data + i * b->row_bytes);
        }
        mr_loader_release(l, b);
        mr_loader_close(l);
        p = queued(set, MR_LOADER_DIRECT | MR_LOADER_IN_PLACE, "uring", path);
        l = must_open(&p);
        assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
        assert_int_equal(mr_loader_next(l, &b, &err), 1);
        assert_int_equal(b->data == NULL, sets[set].size > 0); /* what is decoded is made where it belongs */
        mr_loader_release(l, b);
        mr_loader_close(l);
    }
}

static void raw_reading_gives_the_stored_bytes(void **state)
{
    (void)state;
    char path[512];
    struct mr_loader_params p = queued(2, MR_LOADER_RAW | MR_LOADER_DIRECT, "uring", path),
                            q = params(sets[2].name, path);
    struct mr_error err;
    struct mr_batch *a, *b;
    p.flags &= ~(unsigned)MR_LOADER_VERIFY_CONTENT;
    q.flags = MR_LOADER_RAW;
    struct mr_loader *x = must_open(&p), *y = must_open(&q);
    assert_int_equal(mr_loader_start_epoch(x, 0, &err), 0);
    assert_int_equal(mr_loader_start_epoch(y, 0, &err), 0);
    while (mr_loader_next(x, &a, &err) == 1) {
        assert_int_equal(mr_loader_next(y, &b, &err), 1);
        assert_int_equal(a->n, b->n);
        for (uint32_t i = 0; i < a->n; i++) {
            assert_int_equal(a->bytes[i], b->bytes[i]);
            assert_memory_equal(a->rows[i], b->rows[i], a->bytes[i]);
        }
        mr_loader_release(x, a);
        mr_loader_release(y, b);
    }
    mr_loader_close(x);
    mr_loader_close(y);
}

/* Runs an epoch to its end or first error; says how many samples came. */
static int run(struct mr_loader *l, uint64_t *samples, struct mr_error *err)
{
    struct mr_batch *b;
    int rc = mr_loader_start_epoch(l, 0, err);
    *samples = 0;
    while (!rc && (rc = mr_loader_next(l, &b, err)) > 0) {
        *samples += b->n;
        mr_loader_release(l, b);
        rc = 0;
    }
    return rc;
}

/* The n-th open fails: the same. */
static void a_file_that_cannot_be_opened_is_reported_once(void **state)
{
    (void)state;
    for (unsigned set = 0; set < MR_ARRAY_LEN(sets); set++)
        for (int nth = 1; nth < 12; nth++) {
            char path[512], store[128];
            struct mr_error err = {0};
            struct mr_loader *l = NULL;
            uint64_t n;
            snprintf(store, sizeof store, "fault(op=open,nth=%d,error=EACCES):uring", nth);
            struct mr_loader_params p = queued(set, MR_LOADER_DIRECT, store, path);
            p.threads = 1;
            int rc = mr_loader_open(&p, &l, &err);
            if (rc) {
                assert_int_equal(rc, -EACCES);
                continue;
            }
            rc = run(l, &n, &err);
            assert_true(rc == -EACCES || (rc == 0 && n == samples_of(set))); /* a set of few files has few opens */
            assert_true(rc == 0 || strstr(err.context, "sample"));
            assert_int_equal(run(l, &n, &err), 0);
            assert_int_equal(n, samples_of(set));
            mr_loader_close(l);
        }
}

/* The n-th request fails for good, for every n: one next() reports it with sample and file, and the next epoch is
 * whole. */
static void a_request_that_fails_is_reported_once(void **state)
{
    (void)state;
    for (unsigned set = 0; set < MR_ARRAY_LEN(sets); set += 2)
        for (int nth = 1; nth < 40; nth += 4) {
            char path[512], store[128];
            struct mr_error err = {0};
            struct mr_loader *l = NULL;
            uint64_t n;
            snprintf(store, sizeof store, "fault(op=read,nth=%d,error=EIO):uring", nth);
            struct mr_loader_params p = queued(set, MR_LOADER_DIRECT, store, path);
            p.transfer_bytes = nth % 3 ? 0 : 8192;
            int rc = mr_loader_open(&p, &l, &err);
            if (rc) { /* the manifest's own reads */
                assert_int_equal(rc, -EIO);
                continue;
            }
            assert_int_equal(run(l, &n, &err), -EIO);
            assert_non_null(strstr(err.context, "sample"));
            assert_int_equal(run(l, &n, &err), 0);
            assert_int_equal(n, samples_of(set));
            mr_loader_close(l);
        }
}

/* Interruptions and short transfers are nobody's error. */
static void interruptions_and_short_reads_are_made_good(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "fault(op=read,every=3,error=EINTR):uring", "fault(op=read,every=4,error=EAGAIN):uring",
        "fault(op=read,every=3,short=0.5):uring", "fault(op=read,every=3,short=1):posix"};
    for (unsigned set = 0; set < MR_ARRAY_LEN(sets); set++)
        for (unsigned f = 0; f < MR_ARRAY_LEN(faults); f++) {
            char path[512];
            uint64_t ids[200];
            struct mr_loader_params p = queued(set, f % 2 ? MR_LOADER_DIRECT : 0, faults[f], path);
            struct mr_loader *l = must_open(&p);
            check_against_order(&p, samples_of(set), 0, ids, read_epoch(l, 0, ids, UINT64_MAX));
            mr_loader_close(l);
        }
}

static void a_file_that_shrank_is_an_error_with_numbers(void **state)
{
    (void)state;
    static const unsigned flags[] = {0, MR_LOADER_DIRECT, MR_LOADER_DIRECT | MR_LOADER_IN_PLACE};
    for (unsigned f = 0; f < MR_ARRAY_LEN(flags); f++) {
        char path[512], name[16];
        struct mr_error err = {0};
        uint64_t n;
        snprintf(name, sizeof name, "shrunk%u", f);
        make_set(name, "npz", 6, 1, 50000, 0);
        struct mr_loader_params p = params(name, path);
        p.io = MR_LOADER_IO_QUEUE;
        p.flags = flags[f];
        p.store = "uring";
        struct mr_loader *l = must_open(&p);
        assert_int_equal(run(l, &n, &err), 0);
        struct mr_dataset *ds;
        struct mr_sample_place place;
        assert_int_equal(mr_dataset_open(path, NULL, &ds, &err), 0);
        assert_int_equal(mr_dataset_locate(ds, 3, &place, &err), 0);
        assert_int_equal(truncate(place.path, 30000), 0);
        mr_dataset_close(ds);
        assert_int_equal(run(l, &n, &err), MR_E_CHANGED);
        assert_non_null(strstr(err.message, "30000"));
        mr_loader_close(l);
    }
}

static void the_memory_is_the_slabs_that_were_asked_for(void **state)
{
    (void)state;
    char path[512];
    struct mr_loader_params p = queued(0, MR_LOADER_DIRECT, "uring", path);
    struct mr_loader *l = must_open(&p);
    struct mr_loader_stats st;
    mr_loader_get_stats(l, &st);
    assert_true(st.slab_bytes <= 4u * (7u * MR_ALIGN_UP(70001u + 4096u, 4096u) + 4096u));
    mr_loader_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_has_its_content_in_every_way_of_reading),
        cmocka_unit_test(rows_lie_where_the_batch_says),
        cmocka_unit_test(raw_reading_gives_the_stored_bytes),
        cmocka_unit_test(a_request_that_fails_is_reported_once),
        cmocka_unit_test(a_file_that_cannot_be_opened_is_reported_once),
        cmocka_unit_test(interruptions_and_short_reads_are_made_good),
        cmocka_unit_test(a_file_that_shrank_is_an_error_with_numbers),
        cmocka_unit_test(the_memory_is_the_slabs_that_were_asked_for),
    };
    open_root("loader-queue");
    for (unsigned i = 0; i < MR_ARRAY_LEN(sets); i++)
        make_chunked_set(sets[i].name, sets[i].format, sets[i].files, sets[i].per_file, sets[i].size, sets[i].stdev,
                         sets[i].size ? (struct mr_dims){0} : (struct mr_dims){2, {5, 311}});
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_root();
    return rc;
}
