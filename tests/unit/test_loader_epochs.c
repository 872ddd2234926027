/* Reading ahead across the border of epochs changes when samples are read and nothing else: the same batches, states
 * and resumed runs as without it, and nothing is read beyond the last epoch. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loader_fixture.h"

#define SAMPLES 30u
#define LAST 5u

static struct mr_loader_params announced(uint64_t last_epoch, char path[512])
{
    struct mr_loader_params p = params("tfrecord", path);
    p.last_epoch = last_epoch;
    return p;
}

/* All ways to read, batches that divide the epoch and such that do not, look-aheads beyond a whole epoch. */
static void batches_are_the_same_with_and_without(void **state)
{
    (void)state;
    static const uint32_t batch[] = {1, 4, 7, 10, 30, 50};
    for (unsigned i = 0; i < MR_ARRAY_LEN(batch); i++)
        for (unsigned variant = 0; variant < 12; variant++) {
            char path[512];
            uint64_t ids[100];
            struct mr_loader_params p = announced(LAST, path);
            p.batch_size = batch[i];
            p.lookahead = variant / 2 * 7;
            p.drop_last_batch = variant % 3 == 0 && batch[i] < SAMPLES;
            p.io = variant % 2 ? MR_LOADER_IO_QUEUE : MR_LOADER_IO_THREADS;
            p.store = variant % 2 ? "uring" : NULL;
            uint64_t want = p.drop_last_batch ? SAMPLES / batch[i] * batch[i] : SAMPLES;
            struct mr_order *o;
            struct mr_error err;
            struct mr_order_params op = p.order;
            op.samples = SAMPLES;
            assert_int_equal(mr_order_create(&op, &o, &err), 0);
            struct mr_loader *l = must_open(&p);
            for (uint64_t epoch = 0; epoch <= LAST + 1; epoch++) {
                uint64_t right[SAMPLES];
                assert_int_equal(read_epoch(l, epoch, ids, UINT64_MAX), want);
                assert_int_equal(mr_order_set_epoch(o, epoch, &err), 0);
                mr_order_get(o, 0, right, want);
                assert_memory_equal(ids, right, want * sizeof(*ids));
            }
            mr_order_free(o);
            mr_loader_close(l);
        }
}

/* Leaving an epoch early, going back, skipping one: the announcement binds nobody. */
static void any_epoch_may_be_started_all_the_same(void **state)
{
    (void)state;
    static const uint64_t epochs[] = {0, 1, 4, 2, 2, 3, 0, 9};
    char path[512];
    uint64_t ids[100];
    struct mr_loader_params p = announced(LAST, path);
    struct mr_loader *l = must_open(&p);
    for (unsigned i = 0; i < MR_ARRAY_LEN(epochs); i++) {
        read_epoch(l, epochs[i], ids, i % 3);
        check_against_order(&p, SAMPLES, epochs[i], ids, read_epoch(l, epochs[i], ids, UINT64_MAX));
    }
    mr_loader_close(l);
}

static void states_and_resumed_runs_are_the_same(void **state)
{
    (void)state;
    char path[512];
    uint64_t whole[100], rest[100];
    struct mr_loader_params p = announced(LAST, path);
    for (uint64_t cut = 1; cut < 5; cut++) {
        struct mr_loader *l = must_open(&p);
        struct mr_loader_state st;
        struct mr_error err;
        read_epoch(l, 0, whole, UINT64_MAX);
        read_epoch(l, 1, whole, UINT64_MAX);
        mr_loader_get_state(l, &st);
        assert_int_equal(st.epoch, 1);
        assert_int_equal(st.position, SAMPLES);
        uint64_t n = read_epoch(l, 2, whole, cut);
        mr_loader_get_state(l, &st);
        assert_int_equal(st.epoch, 2);
        assert_int_equal(st.position, n);
        mr_loader_close(l);
        l = must_open(&p);
        assert_int_equal(mr_loader_resume(l, &st, &err), 0);
        n += read_epoch(l, 2, whole + n, UINT64_MAX);
        check_against_order(&p, SAMPLES, 2, whole, n);
        check_against_order(&p, SAMPLES, 3, rest,
                            read_epoch(l, 3, rest, UINT64_MAX)); /* a whole one after the rest of one */
        assert_int_equal(mr_loader_resume(l, &st, &err), 0);     /* asked for with the next epoch in the making */
        check_against_order(&p, SAMPLES, 4, rest, read_epoch(l, 4, rest, UINT64_MAX));
        mr_loader_close(l);
    }
}

struct touched {
    _Atomic uint64_t of_epoch[LAST + 3];
};

static int64_t note_epoch(void *user, uint64_t epoch, uint64_t id, void *row, size_t cap, size_t bytes)
{
    struct touched *t = user;
    (void)id, (void)row, (void)cap;
    t->of_epoch[epoch]++;
    return (int64_t)bytes;
}

/* What has been read when an epoch has been delivered: the start of the next one if it was announced, and nothing
 * otherwise. The look-ahead is longer than the epoch, so that waiting for the first batch of the next one means waiting
 * for a read that was started before. */
static void the_next_epoch_is_read_before_it_is_started(void **state)
{
    (void)state;
    for (unsigned announce = 0; announce < 2; announce++) {
        char path[512];
        uint64_t ids[100];
        struct touched t = {0};
        struct mr_loader_params p = announced(announce ? LAST : 0, path);
        p.transform = note_epoch;
        p.transform_user = &t;
        struct mr_loader *l = must_open(&p);
        read_epoch(l, 0, ids, UINT64_MAX);
        for (int i = 0; announce && t.of_epoch[1] == 0 && i < 100000; i++)
            usleep(1000);
        assert_int_equal(t.of_epoch[0], SAMPLES);
        assert_int_equal(t.of_epoch[1] > 0, announce);
        for (uint64_t epoch = 1; epoch <= LAST; epoch++)
            read_epoch(l, epoch, ids, UINT64_MAX);
        mr_loader_close(l);
        for (uint64_t epoch = 0; epoch <= LAST; epoch++)
            assert_int_equal(t.of_epoch[epoch], SAMPLES); /* each once, none in vain */
        assert_int_equal(t.of_epoch[LAST + 1], 0);
    }
}

/* A read that fails in the next epoch is told when its batch is asked for, not before. */
static void a_failure_belongs_to_its_own_epoch(void **state)
{
    (void)state;
    char path[512];
    uint64_t ids[100];
    struct mr_error err;
    struct mr_batch *b;
    struct mr_loader_params p = announced(LAST, path);
    p.store = "fault(op=read,path=*.tfrecord,nth=35,error=EIO):posix";
    struct mr_loader *l = must_open(&p);
    check_against_order(&p, SAMPLES, 0, ids, read_epoch(l, 0, ids, UINT64_MAX));
    int rc = mr_loader_start_epoch(l, 1, &err);
    while (!rc && (rc = mr_loader_next(l, &b, &err)) > 0) {
        mr_loader_release(l, b);
        rc = 0;
    }
    assert_int_equal(rc, -5);
    check_against_order(&p, SAMPLES, 1, ids, read_epoch(l, 1, ids, UINT64_MAX));
    mr_loader_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_the_same_with_and_without),
        cmocka_unit_test(any_epoch_may_be_started_all_the_same),
        cmocka_unit_test(states_and_resumed_runs_are_the_same),
        cmocka_unit_test(the_next_epoch_is_read_before_it_is_started),
        cmocka_unit_test(a_failure_belongs_to_its_own_epoch),
    };
    open_root("loader-epochs");
    make_set("tfrecord", "tfrecord", 3, SAMPLES / 3, 700, 200);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_root();
    return rc;
}
