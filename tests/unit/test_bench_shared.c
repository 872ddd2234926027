/* Ranks that read for others (reader.file_access collective): every rank gets the rows it would have read itself, only
 * readers touch storage; a rank that fails or is stopped ends the batch of all, and only it has the reason. Ranks are
 * threads here. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "bench/bench_feed.h"
#include "loader_fixture.h"

#include <errno.h>
#include <pthread.h>

#define WORLD_MAX 5u
#define EPOCHS 2u

enum mode { WHOLE, FAILS, STOPS };

/* One rank; problems are counted, because only the main thread may assert. */
struct member {
    struct mr_bench_params p;
    enum mode mode;
    unsigned wrong;
    int rc; /* of the batch that ended it */
    uint64_t batches;
    struct mr_loader_stats stats;
    pthread_t id;
};

static unsigned differ(const struct feed_batch *a, const struct feed_batch *b)
{
    unsigned wrong = a->n != b->n || a->sample_bytes != b->sample_bytes;
    for (uint32_t i = 0; !wrong && i < a->n; i++)
        wrong +=
            a->bytes[i] != b->bytes[i] || memcmp(a->rows[i], b->rows[i], a->bytes[i]) || (uintptr_t)b->rows[i] % 64;
    return wrong;
}

/* An epoch side by side with a feed of this rank's own. */
static void compare_epoch(struct member *m, struct feed *own, struct feed *f, uint64_t epoch)
{
    struct mr_error err;
    struct feed_batch a, b;
    m->wrong += mr_feed_start_epoch(own, epoch, &err) || mr_feed_start_epoch(f, epoch, &err);
    m->wrong += mr_feed_batches(f) != mr_feed_batches(own);
    while (!m->wrong && mr_feed_next(own, &a, &err) == 1) {
        m->wrong += mr_feed_next(f, &b, &err) != 1 || differ(&a, &b);
        mr_feed_release(f, &b);
        mr_feed_release(own, &a);
        m->batches++;
    }
    m->wrong += mr_feed_next(f, &b, &err) != 0;
}

/* Until something ends it; the last rank stops its own feed after two batches. */
static void read_to_the_end(struct member *m, struct feed *f)
{
    struct mr_error err;
    struct feed_batch b;
    m->wrong += mr_feed_start_epoch(f, 0, &err) != 0;
    while ((m->rc = mr_feed_next(f, &b, &err)) == 1) {
        mr_feed_release(f, &b);
        if (++m->batches == 2 && m->mode == STOPS && m->p.comm->rank == m->p.comm->world - 1)
            mr_feed_stop(f);
    }
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct mr_error err;
    struct feed *own = NULL, *f = NULL;
    struct mr_bench_loader_stats st = {0};
    const struct feed_request alone = {.p = &m->p, .rank = m->p.comm->rank};
    m->wrong += mr_feed_open_for(&alone, &own, &err) != 0;
    if (m->mode == FAILS && m->p.comm->rank == 1)
        m->p.store = "fault(op=read,path=*.npz,nth=9,error=EIO):posix";
    m->wrong += mr_feed_open(&m->p, false, &f, &err) != 0;
    for (uint64_t e = 0; !m->wrong && m->mode == WHOLE && e < EPOCHS; e++)
        compare_epoch(m, own, f, e);
    if (!m->wrong && m->mode != WHOLE)
        read_to_the_end(m, f);
    if (f)
        mr_feed_stats(f, &st);
    m->stats = st.stats;
    mr_feed_close(own);
    mr_feed_close(f);
    mr_comm_close(m->p.comm);
    return NULL;
}

static void run_team(uint32_t world, uint32_t readers, const char *set, enum mode mode, struct member *m)
{
    struct mr_comm *c[WORLD_MAX];
    struct mr_error e;
    struct mr_arena arena = {0};
    struct mr_workload *w;
    struct mr_workload_plan plan = {.steps_per_epoch = 1, .total_steps = 1};
    struct mr_bench_board *board;
    char text[300], data[300];
    snprintf(text, sizeof text,
             "reader: {batch_size: 4, read_threads: 2, file_access: collective}\npattern: {collective_readers: %u}\n"
             "train: {epochs: 2}",
             readers);
    snprintf(data, sizeof data, "%s/%s", root, set);
    if (mr_workload_parse(text, strlen(text), "t", false, &arena, &w, &e))
        fail_msg("%s / %s", e.message, e.context);
    assert_int_equal(mr_bench_board_create(world, 1, 1, &board, &e), 0);
    assert_int_equal(mr_comm_threads_open(world, c, &e), 0);
    for (uint32_t r = 0; r < world; r++)
        m[r] = (struct member){
            .mode = mode,
            .p = {.workload = w, .plan = &plan, .comm = c[r], .board = board, .data = data, .lookahead = 2, .seed = 7}};
    for (uint32_t r = 0; r < world; r++)
        assert_int_equal(pthread_create(&m[r].id, NULL, member_main, &m[r]), 0);
    for (uint32_t r = 0; r < world; r++)
        pthread_join(m[r].id, NULL);
    mr_bench_board_free(board);
    mr_arena_done(&arena);
}

static void every_rank_gets_what_it_would_have_read(void **state)
{
    (void)state;
    static const char *const names[] = {"npz", "npzvar", "hdf5", "jpeg"};
    struct member m[WORLD_MAX];
    for (unsigned s = 0; s < MR_ARRAY_LEN(names); s++)
        for (uint32_t world = 1; world <= WORLD_MAX; world += 2)
            for (uint32_t readers = 1; readers <= world; readers += 2) {
                run_team(world, readers, names[s], WHOLE, m);
                for (uint32_t r = 0; r < world; r++) {
                    assert_int_equal(m[r].wrong, 0);
                    assert_true(m[r].batches > 0);
                    assert_int_equal(m[r].stats.batches, m[r].batches);
                    assert_int_equal(m[r].stats.read_bytes > 0, r < readers); /* the others touch no storage */
                    assert_int_equal(m[r].stats.threads > 0, r < readers);
                }
            }
}

/* The one that failed has the reason, the others are interrupted. */
static void a_reader_that_fails_interrupts_the_others(void **state)
{
    (void)state;
    struct member m[WORLD_MAX];
    run_team(4, 2, "npz", FAILS, m);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(m[r].wrong, 0);
        assert_int_equal(m[r].rc, r == 1 ? -EIO : MR_E_INTERRUPTED);
        assert_int_equal(m[r].batches, m[0].batches);
    }
}

/* Rank `world - 1` reads for no rank, or for itself: its stop reaches all at the same batch. */
static void a_stop_of_one_stops_all(void **state)
{
    (void)state;
    struct member m[WORLD_MAX];
    for (uint32_t readers = 1; readers <= 3; readers++) {
        run_team(3, readers, "npz", STOPS, m);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(m[r].wrong, 0);
            assert_int_equal(m[r].rc, MR_E_INTERRUPTED);
            assert_int_equal(m[r].batches, 2);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_what_it_would_have_read),
        cmocka_unit_test(a_reader_that_fails_interrupts_the_others),
        cmocka_unit_test(a_stop_of_one_stops_all),
    };
    open_root("bench-shared");
    make_set("npz", "npz", 80, 1, 5000, 0);
    make_set("npzvar", "npz", 70, 1, 6000, 2000);
    make_set("hdf5", "hdf5", 4, 20, 4096, 0);
    make_set("jpeg", "jpeg", 60, 1, 6000, 0);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_root();
    return rc;
}
