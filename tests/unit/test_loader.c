/* The loader's promises: every sample once, in the order's sequence, with its content, whatever threads and I/O;
 * resuming equals continuing; errors arrive with the batch they belong to; nothing hangs. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loader_fixture.h"

#include <pthread.h>

static const struct {
    const char *name, *format;
    int64_t files, per_file;
    uint64_t size, stdev;
} sets[] = {{"npz", "npz", 60, 1, 5000, 0},
            {"npzvar", "npz", 40, 1, 9000, 3000},
            {"tfrecord", "tfrecord", 4, 25, 3000, 800},
            {"hdf5", "hdf5", 3, 20, 4096, 0},
            {"indexed", "indexed_binary", 2, 50, 2000, 0},
            {"jpeg", "jpeg", 30, 1, 6000, 0},
            {"csv", "csv", 3, 10, 200, 0}};

static void every_sample_arrives_in_order_with_its_content(void **state)
{
    (void)state;
    uint64_t ids[1000];
    for (unsigned i = 0; i < MR_ARRAY_LEN(sets); i++)
        for (int io = MR_LOADER_IO_THREADS; io <= MR_LOADER_IO_QUEUE; io++)
            for (int store = 0; store < 2; store++) {
                char path[512];
                struct mr_loader_params p = params(sets[i].name, path);
                p.io = (enum mr_loader_io)io;
                p.store = store ? "uring" : NULL;
                struct mr_loader *l = must_open(&p);
                uint64_t samples = (uint64_t)(sets[i].files * sets[i].per_file);
                for (uint64_t epoch = 0; epoch < 2; epoch++)
                    check_against_order(&p, samples, epoch, ids, read_epoch(l, epoch, ids, UINT64_MAX));
                struct mr_loader_stats st;
                mr_loader_get_stats(l, &st);
                assert_int_equal(st.samples, 2 * samples);
                assert_true(st.read_bytes > 0);
                mr_loader_close(l);
            }
}

static void naive_policy_gives_the_same_batches(void **state)
{
    (void)state;
    uint64_t ids[1000];
    char path[512];
    struct mr_loader_params p = params("npz", path);
    p.policy = "naive";
    struct mr_loader *l = must_open(&p);
    check_against_order(&p, 60, 1, ids, read_epoch(l, 1, ids, UINT64_MAX));
    mr_loader_close(l);
}

static void policies_that_cannot_run_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *policy, *tiers;
        int code;
    } bad[] = {{"no-such", NULL, MR_E_USAGE},
               {"deepio-opportunistic", NULL, MR_E_UNSUPPORTED},
               {"staging", "ram=1MiB", MR_E_USAGE},
               {"naive", "auto", MR_E_USAGE},
               {"perfect", "ram=1MiB", MR_E_USAGE}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(bad); i++) {
        char path[512];
        struct mr_loader_params p = params("npz", path);
        struct mr_loader *l;
        struct mr_error err;
        p.policy = bad[i].policy;
        p.tiers = bad[i].tiers;
        assert_int_equal(mr_loader_open(&p, &l, &err), bad[i].code);
        assert_non_null(strstr(err.message, bad[i].policy));
    }
}

static void union_over_ranks_is_the_data_set(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 7};
    for (unsigned i = 0; i < MR_ARRAY_LEN(worlds); i++) {
        unsigned char seen[100] = {0};
        uint64_t ids[200];
        for (uint32_t r = 0; r < worlds[i]; r++) {
            char path[512];
            struct mr_loader_params p = params("tfrecord", path);
            p.order.world = worlds[i];
            p.order.rank = r;
            p.order.drop_last = false;
            struct mr_loader *l = must_open(&p);
            uint64_t n = read_epoch(l, 3, ids, UINT64_MAX);
            for (uint64_t k = 0; k < n; k++)
                seen[ids[k]]++;
            mr_loader_close(l);
        }
        for (unsigned k = 0; k < 100; k++)
            assert_true(seen[k] >= 1);
    }
}

static void resuming_equals_continuing(void **state)
{
    (void)state;
    uint64_t whole[200], parts[200];
    char path[512];
    struct mr_loader_params p = params("tfrecord", path);
    struct mr_loader *l = must_open(&p);
    uint64_t n = read_epoch(l, 2, whole, UINT64_MAX);
    mr_loader_close(l);
    for (uint64_t cut = 1; cut < 14; cut += 3) {
        struct mr_error err;
        struct mr_loader_state st;
        l = must_open(&p);
        uint64_t first = read_epoch(l, 2, parts, cut);
        mr_loader_get_state(l, &st);
        mr_loader_close(l);
        assert_int_equal(st.position, first);
        l = must_open(&p);
        assert_int_equal(mr_loader_resume(l, &st, &err), 0);
        uint64_t rest = read_epoch(l, 2, parts + first, UINT64_MAX);
        assert_int_equal(first + rest, n);
        assert_memory_equal(whole, parts, n * sizeof(*whole));
        st.seed++;
        assert_int_equal(mr_loader_resume(l, &st, &err), MR_E_USAGE);
        mr_loader_close(l);
    }
}

static void an_epoch_can_be_abandoned_at_any_batch(void **state)
{
    (void)state;
    uint64_t ids[200];
    char path[512];
    struct mr_loader_params p = params("tfrecord", path);
    struct mr_loader *l = must_open(&p);
    for (uint64_t stop = 0; stop < 12; stop++)
        read_epoch(l, stop, ids, stop);
    check_against_order(&p, 100, 4, ids, read_epoch(l, 4, ids, UINT64_MAX));
    mr_loader_close(l);
}

/* The n-th read fails, for every n: exactly one next() reports it, and the loader can be closed or used again. */
static void a_failing_read_is_reported_once(void **state)
{
    (void)state;
    for (int nth = 1; nth < 60; nth += 7) {
        char path[512], store[128];
        struct mr_loader_params p = params("npz", path);
        snprintf(store, sizeof store, "fault(op=read,nth=%d,error=EIO):posix", nth + 1);
        p.store = store;
        struct mr_loader *l = NULL;
        struct mr_error err = {0};
        struct mr_batch *b;
        int rc = mr_loader_open(&p, &l, &err);
        if (rc) { /* the manifest's own read */
            assert_int_equal(rc, -5);
            continue;
        }
        rc = mr_loader_start_epoch(l, 0, &err);
        while (!rc && (rc = mr_loader_next(l, &b, &err)) > 0) {
            mr_loader_release(l, b);
            rc = 0;
        }
        assert_int_equal(rc, -5);
        assert_non_null(strstr(err.context, "sample"));
        uint64_t ids[200];
        assert_int_equal(read_epoch(l, 0, ids, UINT64_MAX), 60);
        mr_loader_close(l);
    }
}

static void limits_are_errors_with_numbers(void **state)
{
    (void)state;
    char path[512];
    struct mr_loader *l;
    struct mr_error err;
    struct mr_loader_params p = params("npz", path);
    p.memory_bytes = 1000;
    assert_int_equal(mr_loader_open(&p, &l, &err), MR_E_CONFIG);
    assert_non_null(strstr(err.message, "1000"));
    p = params("npz", path);
    p.row_bytes = 100;
    l = must_open(&p);
    struct mr_batch *b;
    assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
    assert_int_equal(mr_loader_next(l, &b, &err), MR_E_LIMIT);
    mr_loader_close(l);
    p = params("nowhere", path);
    assert_true(mr_loader_open(&p, &l, &err) < 0);
}

static void *stop_soon(void *l)
{
    usleep(30000);
    mr_loader_stop(l);
    return NULL;
}

static void stop_wakes_a_waiting_consumer(void **state)
{
    (void)state;
    char path[512];
    for (int io = MR_LOADER_IO_THREADS; io <= MR_LOADER_IO_QUEUE; io++) {
        struct mr_loader_params p = params("npz", path);
        p.store = "throttle(latency=1s):posix";
        p.flags = 0;
        p.io = (enum mr_loader_io)io;
        p.queue_depth = 3;
        struct mr_loader *l = must_open(&p);
        struct mr_error err;
        struct mr_batch *b;
        pthread_t t;
        assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
        pthread_create(&t, NULL, stop_soon, l);
        int rc;
        while ((rc = mr_loader_next(l, &b, &err)) == 1) /* a machine that slept over the stop: the epoch takes 20 s */
            mr_loader_release(l, b);
        assert_int_equal(rc, MR_E_INTERRUPTED);
        pthread_join(t, NULL);
        mr_loader_close(l);
    }
}

static int64_t halve(void *user, uint64_t epoch, uint64_t id, void *row, size_t cap, size_t bytes)
{
    (void)user;
    (void)epoch;
    memset(row, (int)(id & 0xff), MR_MIN(cap, bytes / 2));
    return (int64_t)(bytes / 2);
}

static void transform_changes_the_row(void **state)
{
    (void)state;
    char path[512];
    struct mr_loader_params p = params("indexed", path);
    p.transform = halve;
    struct mr_loader *l = must_open(&p);
    struct mr_error err;
    struct mr_batch *b;
    assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
    assert_int_equal(mr_loader_next(l, &b, &err), 1);
    for (uint32_t i = 0; i < b->n; i++) {
        assert_int_equal(b->bytes[i], 1000);
        assert_int_equal(((const uint8_t *)b->rows[i])[999], b->ids[i] & 0xff);
    }
    mr_loader_release(l, b);
    mr_loader_close(l);
}

/* Rows of preprocessed pictures are what preprocessing makes of each sample, whoever reads it and in whatever epoch. */
static void preprocessing_is_done_by_the_engine(void **state)
{
    (void)state;
    char path[512];
    struct mr_error err;
    struct mr_preprocess_params pp;
    struct mr_preprocess *x;
    struct mr_dataset *ds;
    struct mr_dataset_reader *r;
    static uint8_t want[3 * 24 * 20 * 4];
    mr_preprocess_params_init(&pp);
    pp.crop = MR_CROP_RANDOM_RESIZED;
    pp.height = 24;
    pp.width = 20;
    pp.flip = 0.5;
    pp.to_float = pp.planar = true;
    assert_int_equal(mr_preprocess_create(&pp, &x, &err), 0);
    for (unsigned variant = 0; variant < 4; variant++) {
        struct mr_loader_params p = params("jpeg", path);
        struct mr_batch *b;
        uint64_t samples = 0;
        p.flags = variant & 1 ? MR_LOADER_DIRECT : 0;
        p.policy = variant == 2 ? "naive" : "staging";
        p.io = variant == 3 ? MR_LOADER_IO_QUEUE : MR_LOADER_IO_AUTO;
        p.preprocess = &pp;
        p.last_epoch = 2;
        struct mr_loader *l = must_open(&p);
        assert_int_equal(mr_dataset_open(path, NULL, &ds, &err), 0);
        assert_int_equal(mr_dataset_reader_create(ds, &r, &err), 0);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            assert_int_equal(mr_loader_start_epoch(l, epoch, &err), 0);
            while (mr_loader_next(l, &b, &err) == 1) {
                for (uint32_t i = 0; i < b->n; i++, samples++) {
                    struct mr_sample s;
                    size_t bytes;
                    assert_int_equal(mr_dataset_read(r, b->ids[i], 0, NULL, 0, &s, &err), 0);
                    assert_int_equal(mr_preprocess_run(x, epoch, b->ids[i], &s, want, sizeof want, &bytes, &err), 0);
                    assert_int_equal(bytes, b->bytes[i]);
                    assert_memory_equal(want, b->rows[i], bytes);
                    assert_int_equal(b->labels[i], s.label);
                }
                mr_loader_release(l, b);
            }
        }
        struct mr_loader_stats st;
        mr_loader_get_stats(l, &st);
        assert_int_equal(samples, 3 * 30);
        assert_true(st.transform_ns > 0);
        assert_true(st.ready_mean >= 0 && st.ready_mean <= p.lookahead + 1 + 32); /* a queue adds batches */
        assert_true(st.empty_ratio >= 0 && st.empty_ratio <= 1);
        mr_dataset_reader_free(r);
        mr_dataset_close(ds);
        mr_loader_close(l);
    }
    mr_preprocess_free(x);
}

/* The last rows of each batch hold their files' bytes, the others what preprocessing makes of them; shape, size, labels
 * and order are those of a batch without such rows. */
static void rows_are_left_as_stored(void **state)
{
    (void)state;
    char path[512];
    struct mr_error err;
    struct mr_preprocess_params pp;
    struct mr_dataset *ds;
    struct mr_dataset_reader *r;
    mr_preprocess_params_init(&pp);
    pp.crop = MR_CROP_RANDOM_RESIZED;
    pp.height = pp.width = 48; /* 48 x 48 x 3 bytes are more than a file has */
    pp.rgb = true;
    struct mr_loader_params p = params("jpeg", path);
    p.flags = 0;
    p.preprocess = &pp;
    p.batch_size = 7;
    struct mr_loader *l = must_open(&p), *whole = must_open(&p);
    assert_int_equal(mr_dataset_open(path, NULL, &ds, &err), 0);
    assert_int_equal(mr_dataset_reader_create(ds, &r, &err), 0);
    for (uint32_t rows = 0; rows <= 8; rows += 4) {
        struct mr_batch *b, *w;
        assert_int_equal(mr_loader_leave_stored(l, rows, &err), 0);
        assert_int_equal(mr_loader_start_epoch(l, rows, &err), 0);
        assert_int_equal(mr_loader_start_epoch(whole, rows, &err), 0);
        while (mr_loader_next(whole, &w, &err) == 1) {
            assert_int_equal(mr_loader_next(l, &b, &err), 1);
            assert_int_equal(b->n, w->n);
            assert_memory_equal(&b->shape, &w->shape, sizeof b->shape);
            for (uint32_t i = 0; i < b->n; i++) {
                struct mr_sample raw;
                assert_int_equal(b->ids[i], w->ids[i]);
                assert_int_equal(b->labels[i], w->labels[i]);
                assert_int_equal(b->bytes[i], w->bytes[i]);
                assert_int_equal(b->stored[i] != 0, i + rows >= b->n);
                assert_int_equal(w->stored[i], 0);
                assert_int_equal(mr_dataset_read(r, b->ids[i], MR_DATASET_RAW, NULL, 0, &raw, &err), 0);
                if (b->stored[i])
                    assert_int_equal(b->stored[i], raw.bytes);
                assert_memory_equal(b->rows[i], b->stored[i] ? raw.data : w->rows[i],
                                    b->stored[i] ? raw.bytes : w->bytes[i]);
            }
            mr_loader_release(l, b);
            mr_loader_release(whole, w);
        }
    }
    mr_dataset_reader_free(r);
    mr_dataset_close(ds);
    mr_loader_close(l);
    mr_loader_close(whole);
    pp.height = pp.width = 0;
    pp.crop = MR_CROP_NONE;
    l = must_open(&p);
    assert_int_equal(mr_loader_leave_stored(l, 1, &err), MR_E_UNSUPPORTED);
    mr_loader_close(l);
}

static void samples_that_are_no_pictures_fail_with_a_reason(void **state)
{
    (void)state;
    char path[512];
    struct mr_error err;
    struct mr_batch *b;
    struct mr_preprocess_params pp;
    mr_preprocess_params_init(&pp);
    pp.height = pp.width = 10;
    struct mr_loader *l;
    struct mr_loader_params p = params("npz", path);
    p.preprocess = &pp;
    p.flags = MR_LOADER_RAW;
    assert_int_equal(mr_loader_open(&p, &l, &err), MR_E_USAGE);
    p.flags = 0;
    l = must_open(&p);
    assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
    assert_int_equal(mr_loader_next(l, &b, &err), MR_E_USAGE);
    assert_non_null(strstr(err.message, "no picture"));
    mr_loader_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_arrives_in_order_with_its_content),
        cmocka_unit_test(naive_policy_gives_the_same_batches),
        cmocka_unit_test(policies_that_cannot_run_are_refused),
        cmocka_unit_test(union_over_ranks_is_the_data_set),
        cmocka_unit_test(resuming_equals_continuing),
        cmocka_unit_test(an_epoch_can_be_abandoned_at_any_batch),
        cmocka_unit_test(a_failing_read_is_reported_once),
        cmocka_unit_test(limits_are_errors_with_numbers),
        cmocka_unit_test(stop_wakes_a_waiting_consumer),
        cmocka_unit_test(transform_changes_the_row),
        cmocka_unit_test(preprocessing_is_done_by_the_engine),
        cmocka_unit_test(rows_are_left_as_stored),
        cmocka_unit_test(samples_that_are_no_pictures_fail_with_a_reason),
    };
    open_root("loader");
    for (unsigned i = 0; i < MR_ARRAY_LEN(sets); i++)
        make_set(sets[i].name, sets[i].format, sets[i].files, sets[i].per_file, sets[i].size, sets[i].stdev);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_root();
    return rc;
}
