/* The loader's public interface as a front end uses it: parameters of older and newer programs, waiting with a timeout,
 * stopping and going on, dtype and shape of rows, statistics of the last second, and a queue that breaks. test-label:
 * concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loader/loader_internal.h"
#include "loader_fixture.h"

#include <errno.h>
#include <pthread.h>

/* ---- parameters of another version ---- */

/* The struct as the first version of the header had it. */
struct old_params {
    size_t size;
    const char *dataset, *store;
    struct mr_order_params order;
    uint32_t batch_size;
    bool drop_last_batch;
    unsigned threads, lookahead;
    uint64_t memory_bytes;
    const char *policy;
    enum mr_loader_io io;
    unsigned queue_depth, flags;
    uint64_t row_bytes, transfer_bytes;
    const struct mr_preprocess_params *preprocess;
    mr_loader_transform_fn *transform;
    void *transform_user;
    uint64_t max_samples, last_epoch;
};

/* A later one has a field that this library does not know. */
struct new_params {
    struct mr_loader_params known;
    uint64_t unknown[3];
};

static void an_older_program_keeps_working(void **state)
{
    (void)state;
    struct {
        struct old_params p;
        unsigned char behind[512];
    } old;
    struct mr_error err;
    struct mr_loader *l;
    uint64_t ids[200];
    char path[512];
    struct mr_loader_params same = params("npz", path);
    memset(&old, 0xa5, sizeof old); /* what lies behind the old struct is somebody else's */
    mr_loader_params_init_sized((struct mr_loader_params *)&old.p, sizeof old.p);
    assert_int_equal(old.p.size, sizeof old.p);
    assert_int_equal(old.p.lookahead, 2);
    for (size_t i = 0; i < sizeof old.behind; i++)
        assert_int_equal(old.behind[i], 0xa5);
    old.p.dataset = path;
    old.p.batch_size = 7;
    old.p.order = same.order;
    assert_int_equal(mr_loader_open((struct mr_loader_params *)&old.p, &l, &err), 0);
    assert_int_equal(read_epoch(l, 0, ids, UINT64_MAX), 60);
    check_against_order(&same, 60, 0, ids, 60);
    mr_loader_close(l);
}

static void a_newer_program_works_unless_it_uses_what_is_not_there(void **state)
{
    (void)state;
    struct new_params newer;
    struct mr_error err = {0};
    struct mr_loader *l;
    char path[512];
    mr_loader_params_init_sized(&newer.known, sizeof newer);
    struct mr_loader_params same = params("npz", path);
    assert_int_equal(newer.known.size, sizeof newer);
    assert_int_equal(newer.unknown[2], 0);
    newer.known.dataset = same.dataset;
    assert_int_equal(mr_loader_open(&newer.known, &l, &err), 0);
    mr_loader_close(l);
    newer.unknown[1] = 1;
    assert_int_equal(mr_loader_open(&newer.known, &l, &err), MR_E_UNSUPPORTED);
    struct mr_loader_params zero = {.dataset = path, .batch_size = 1};
    assert_int_equal(mr_loader_open(&zero, &l, &err), MR_E_USAGE);
    assert_non_null(strstr(err.hint, "mr_loader_params_init"));
}

static void statistics_fit_the_callers_struct(void **state)
{
    (void)state;
    struct {
        unsigned char front[offsetof(struct mr_loader_stats, lifetime_limiter)], behind[64];
    } old;
    char path[512];
    struct mr_loader_params p = params("npz", path);
    struct mr_loader *l = must_open(&p);
    memset(&old, 0xa5, sizeof old);
    mr_loader_get_stats_sized(l, (struct mr_loader_stats *)&old, sizeof old.front);
    for (size_t i = 0; i < sizeof old.behind; i++)
        assert_int_equal(old.behind[i], 0xa5);
    mr_loader_close(l);
}

/* ---- waiting ---- */

static void a_timeout_loses_nothing(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 3; how++) {
        char path[512];
        struct mr_error err;
        struct mr_batch *b;
        uint64_t ids[200], n = 0, timeouts = 0;
        struct mr_loader_params p = params("npz", path);
        p.store = "throttle(latency=3ms):posix";
        p.policy = how == 2 ? "naive" : "staging";
        p.io = how == 1 ? MR_LOADER_IO_QUEUE : MR_LOADER_IO_THREADS;
        p.threads = 1;
        p.queue_depth = 1;
        struct mr_loader *l = must_open(&p);
        assert_int_equal(mr_loader_start_epoch(l, 1, &err), 0);
        for (int rc = 1; rc;) {
            uint64_t start = mr_now_ns();
            rc = mr_loader_next_timed(l, timeouts % 2 ? MR_NS_PER_MS : 0, &b, &err);
            if (rc == MR_E_TIMEOUT) {
                assert_true(mr_now_ns() - start < 5 * MR_NS_PER_S);
                timeouts++;
                continue;
            }
            assert_true(rc >= 0);
            for (uint32_t i = 0; rc && i < b->n; i++)
                ids[n++] = b->ids[i];
            if (rc)
                mr_loader_release(l, b);
        }
        assert_true(timeouts >= 5);
        check_against_order(&p, 60, 1, ids, n);
        mr_loader_close(l);
    }
}

struct stopper {
    struct mr_loader *loader;
    atomic_bool stopped;
};

static void *stop_soon(void *arg)
{
    struct stopper *s = arg;
    usleep(20000);
    mr_loader_stop(s->loader);
    atomic_store(&s->stopped, true);
    return NULL;
}

/* Stopped while it waits, and once more between two batches: the batches are those of an undisturbed epoch. */
static void after_a_restart_the_next_batch_follows_the_last(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 3; how++) {
        char path[512];
        struct mr_error err;
        struct mr_batch *b;
        uint64_t ids[200], n = 0, interrupted = 0;
        struct mr_loader_params p = params("npz", path);
        p.store = "throttle(latency=2ms):posix";
        p.policy = how == 2 ? "naive" : "staging";
        p.io = how == 1 ? MR_LOADER_IO_QUEUE : MR_LOADER_IO_THREADS;
        p.queue_depth = 2;
        struct mr_loader *l = must_open(&p);
        struct stopper s = {.loader = l};
        pthread_t t;
        assert_int_equal(mr_loader_start_epoch(l, 2, &err), 0);
        pthread_create(&t, NULL, stop_soon, &s);
        for (int rc = 1; rc;) {
            rc = mr_loader_next(l, &b, &err);
            if (rc == MR_E_INTERRUPTED) {
                interrupted++;
                assert_int_equal(mr_loader_next(l, &b, &err), MR_E_INTERRUPTED); /* until it is undone */
                mr_loader_restart(l);
                continue;
            }
            assert_true(rc >= 0);
            for (uint32_t i = 0; rc && i < b->n; i++)
                ids[n++] = b->ids[i];
            if (rc)
                mr_loader_release(l, b);
            if (n == 14 && interrupted < 2)
                mr_loader_stop(l);
        }
        pthread_join(t, NULL);
        assert_true(interrupted >= 1);
        check_against_order(&p, 60, 2, ids, n);
        mr_loader_close(l);
    }
}

/* ---- dtype and shape ---- */

static void check_rows(const struct mr_batch *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t bytes = strtoull(mr_batch_shape(b, i)->dtype + 1, NULL, 10);
        for (int d = 0; d < mr_batch_shape(b, i)->n_dims; d++)
            bytes *= mr_batch_shape(b, i)->dims[d];
        assert_int_equal(bytes, b->bytes[i]);
    }
}

static void rows_say_what_they_are(void **state)
{
    (void)state;
    for (int io = MR_LOADER_IO_THREADS; io <= MR_LOADER_IO_QUEUE; io++)
        for (unsigned raw = 0; raw < 2; raw++) {
            static const char *const names[] = {"npz", "npzvar", "chunked"};
            for (unsigned set = 0; set < 3; set++) {
                char path[512];
                struct mr_error err;
                struct mr_batch *b;
                struct mr_loader_params p = params(names[set], path);
                p.io = (enum mr_loader_io)io;
                p.flags = raw ? MR_LOADER_RAW : 0;
                struct mr_loader *l = must_open(&p);
                assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
                assert_int_equal(mr_loader_next(l, &b, &err), 1);
                check_rows(b);
                assert_string_equal(b->shape.dtype, "u1");
                if (set == 1)
                    assert_int_equal(b->shape.n_dims, -1);
                else if (set == 2 && !raw) {
                    assert_int_equal(b->shape.n_dims, 2);
                    assert_int_equal(b->shape.dims[0], 35);
                    assert_int_equal(b->shape.dims[1], 311);
                } else {
                    assert_int_equal(b->shape.n_dims, 1);
                    assert_int_equal(b->shape.dims[0], b->bytes[0]);
                }
                mr_loader_release(l, b);
                mr_loader_close(l);
            }
        }
}

static void preprocessed_rows_have_the_shape_of_the_result(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 8; how++) {
        char path[512];
        struct mr_error err;
        struct mr_batch *b;
        struct mr_preprocess_params pp;
        mr_preprocess_params_init(&pp);
        pp.height = 24;
        pp.width = 20;
        pp.to_float = how & 1;
        pp.planar = how & 2;
        struct mr_loader_params p = params("jpeg", path);
        p.flags = 0;
        p.io = how & 4 ? MR_LOADER_IO_QUEUE : MR_LOADER_IO_THREADS;
        p.preprocess = &pp;
        struct mr_loader *l = must_open(&p);
        assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
        assert_int_equal(mr_loader_next(l, &b, &err), 1);
        assert_string_equal(b->shape.dtype, pp.to_float ? "f4" : "u1");
        assert_int_equal(b->shape.n_dims, 3);
        assert_int_equal(b->shape.dims[pp.planar ? 1 : 0], 24);
        assert_int_equal(b->shape.dims[pp.planar ? 2 : 1], 20);
        check_rows(b);
        mr_loader_release(l, b);
        mr_loader_close(l);
    }
}

static int64_t shorten_odd(void *user, uint64_t epoch, uint64_t id, void *row, size_t cap, size_t bytes)
{
    (void)user, (void)epoch, (void)row, (void)cap;
    return (int64_t)(id % 2 ? bytes - 1 : bytes);
}

static void a_transform_that_changes_the_size_flattens_the_row(void **state)
{
    (void)state;
    char path[512];
    struct mr_error err;
    struct mr_batch *b;
    struct mr_loader_params p = params("chunked", path);
    p.transform = shorten_odd;
    struct mr_loader *l = must_open(&p);
    assert_int_equal(mr_loader_start_epoch(l, 0, &err), 0);
    assert_int_equal(mr_loader_next(l, &b, &err), 1);
    for (uint32_t i = 0; i < b->n; i++)
        assert_int_equal(mr_batch_shape(b, i)->n_dims, b->ids[i] % 2 ? 1 : 2);
    assert_int_equal(b->shape.n_dims, -1);
    check_rows(b);
    mr_loader_release(l, b);
    mr_loader_close(l);
}

/* ---- statistics ---- */

static int64_t take_long(void *user, uint64_t epoch, uint64_t id, void *row, size_t cap, size_t bytes)
{
    (void)user, (void)epoch, (void)id, (void)row, (void)cap;
    usleep(20000);
    return (int64_t)bytes;
}

/* Two seconds' worth of slow transforms, then a consumer that sleeps: the life was limited by decoding, the last second
 * by the consumer. */
static void the_limiter_is_that_of_the_last_second(void **state)
{
    (void)state;
    char path[512];
    uint64_t ids[200];
    struct mr_loader_stats st;
    struct mr_error err;
    struct mr_batch *b;
    struct mr_loader_params p = params("npz", path);
    p.transform = take_long;
    p.threads = 2;
    p.max_samples = 56;
    p.last_epoch = 9;
    struct mr_loader *l = must_open(&p);
    for (uint64_t epoch = 0; epoch < 4; epoch++)
        assert_int_equal(read_epoch(l, epoch, ids, UINT64_MAX), 56);
    mr_loader_get_stats(l, &st);
    assert_string_equal(st.limiter, "decode");
    assert_true(st.recent_ns > MR_NS_PER_S * 99 / 100 && st.recent_ns < MR_NS_PER_S * 101 / 100);
    assert_true(st.recent_samples_per_s > 10 && st.recent_samples_per_s <= 120);
    assert_true(st.recent_wait_ratio > 0.5);
    assert_int_equal(mr_loader_start_epoch(l, 4, &err), 0);
    assert_int_equal(mr_loader_next(l, &b, &err), 1);
    usleep(1900000); /* the look-ahead takes a quarter of a second */
    mr_loader_get_stats(l, &st);
    assert_string_equal(st.limiter, "consumer");
    assert_string_equal(st.lifetime_limiter, "decode");
    assert_true(st.recent_samples_per_s == 0 && st.recent_wait_ratio < 0.01);
    assert_int_equal(st.samples, 4 * 56 + 7);
    mr_loader_close(l);
}

/* ---- a queue that breaks ---- */

static struct mr_store_ops broken;
static const struct mr_store_ops *sound;
static atomic_int reaps_left;

static int failing_reap(struct mr_ioq *q, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err)
{
    if (atomic_fetch_sub(&reaps_left, 1) == 0)
        return mr_error_set(err, -EIO, "cannot ask the queue");
    return sound->ioq_reap(q, min, max, done, err);
}

static void a_queue_that_cannot_be_reaped_fails_its_samples(void **state)
{
    (void)state;
    static const char *const stores[] = {"posix", "uring"};
    for (unsigned s = 0; s < 2; s++)
        for (int nth = 0; nth < 9; nth += 2) {
            char path[512];
            struct mr_error err = {0};
            struct mr_batch *b;
            uint64_t ids[200];
            struct mr_loader_params p = params(nth % 4 ? "npz" : "chunked", path);
            p.io = MR_LOADER_IO_QUEUE;
            p.store = stores[s];
            p.queue_depth = 6;
            p.transfer_bytes = nth == 4 ? 1000 : 0;
            struct mr_loader *l = must_open(&p);
            struct mr_store *store = mr_dataset_store(l->dataset);
            sound = store->ops;
            broken = *sound;
            broken.ioq_reap = failing_reap;
            store->ops = &broken; /* the threads are waiting for a stream */
            atomic_store(&reaps_left, nth);
            int rc = mr_loader_start_epoch(l, 0, &err);
            while (!rc && (rc = mr_loader_next(l, &b, &err)) > 0) {
                mr_loader_release(l, b);
                rc = 0;
            }
            assert_int_equal(rc, -EIO);
            assert_non_null(strstr(err.message, "cannot ask the queue"));
            assert_int_equal(read_epoch(l, 1, ids, UINT64_MAX), l->info.samples);
            mr_loader_close(l);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_program_keeps_working),
        cmocka_unit_test(a_newer_program_works_unless_it_uses_what_is_not_there),
        cmocka_unit_test(statistics_fit_the_callers_struct),
        cmocka_unit_test(a_timeout_loses_nothing),
        cmocka_unit_test(after_a_restart_the_next_batch_follows_the_last),
        cmocka_unit_test(rows_say_what_they_are),
        cmocka_unit_test(preprocessed_rows_have_the_shape_of_the_result),
        cmocka_unit_test(a_transform_that_changes_the_size_flattens_the_row),
        cmocka_unit_test(the_limiter_is_that_of_the_last_second),
        cmocka_unit_test(a_queue_that_cannot_be_reaped_fails_its_samples),
    };
    open_root("loader-interface");
    make_set("npz", "npz", 60, 1, 5000, 0);
    make_set("npzvar", "npz", 40, 1, 9000, 3000);
    make_set("jpeg", "jpeg", 30, 1, 6000, 0);
    make_chunked_set("chunked", "hdf5", 3, 10, 0, 0, (struct mr_dims){2, {5, 311}});
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_root();
    return rc;
}
