/* Ranks that read for others: every rank gets the batches it would have read itself, only readers touch storage; a rank
 * that fails or is stopped takes nobody down with it; going on after a stop and resuming lose nothing. Ranks are
 * threads here. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/comm.h"
#include "loader_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define WORLD_MAX 5u

enum mode { WHOLE, FAILS, STOPS, RESUMES };

/* One rank; problems are counted, because only the main thread may assert. */
struct member {
    struct mr_comm *c;
    const char *set;
    uint32_t readers;
    enum mode mode;
    unsigned wrong;
    int rc;
    uint64_t read_bytes, batches, stops;
    pthread_t id;
};

static int group_max(void *user, uint64_t *v, size_t n, struct mr_error *err)
{
    return mr_comm_allreduce_u64(user, v, n, MR_COMM_MAX, err);
}

static int group_bcast(void *user, void *buf, size_t len, uint32_t from, struct mr_error *err)
{
    return mr_comm_bcast(user, buf, len, from, err);
}

static int group_agree(void *user, int code, struct mr_error *err)
{
    return mr_comm_agree(user, code, err);
}

static void group_fail(void *user, const struct mr_error *why)
{
    mr_comm_fail(user, why);
}

static struct mr_loader_group group_of(const struct member *m)
{
    return (struct mr_loader_group){.rank = m->c->rank,
                                    .world = m->c->world,
                                    .readers = m->readers,
                                    .user = m->c,
                                    .max_u64 = group_max,
                                    .bcast = group_bcast,
                                    .agree = group_agree,
                                    .fail = group_fail};
}

static unsigned differ(const struct mr_batch *a, const struct mr_batch *b)
{
    unsigned wrong = a->n != b->n || a->epoch != b->epoch || a->index != b->index;
    wrong += a->shape.n_dims != b->shape.n_dims || memcmp(a->shape.dtype, b->shape.dtype, sizeof a->shape.dtype);
    for (uint32_t i = 0; !wrong && i < a->n; i++)
        wrong += a->ids[i] != b->ids[i] || a->labels[i] != b->labels[i] || a->bytes[i] != b->bytes[i] ||
                 memcmp(a->rows[i], b->rows[i], a->bytes[i]) ||
                 mr_batch_shape(a, i)->n_dims != mr_batch_shape(b, i)->n_dims || (uintptr_t)b->rows[i] % 64;
    return wrong;
}

/* An epoch side by side with a loader of this rank's own, from `skip` batches on. */
static void compare_epoch(struct member *m, struct mr_loader *own, struct mr_loader *l, uint64_t epoch, uint64_t skip)
{
    struct mr_error err;
    struct mr_batch *a, *b;
    m->wrong += mr_loader_start_epoch(own, epoch, &err) != 0;
    m->wrong += mr_loader_start_epoch(l, epoch, &err) != 0;
    m->wrong += mr_loader_batches_per_epoch(l) != mr_loader_batches_per_epoch(own);
    for (uint64_t k = 0; !m->wrong && mr_loader_next(own, &a, &err) == 1; k++) {
        if (k >= skip) {
            int rc = mr_loader_next(l, &b, &err);
            if (rc == MR_E_INTERRUPTED) {
                m->stops++;
                mr_loader_restart(l);
                m->wrong += m->mode != STOPS || mr_comm_barrier(m->c, &err);
                rc = mr_loader_next(l, &b, &err);
            }
            m->wrong += rc != 1 || differ(a, b);
            if (rc == 1)
                mr_loader_release(l, b);
            m->batches++;
            if (m->mode == STOPS && k == 1 && m->c->rank == m->c->world - 1)
                mr_loader_stop(l);
        }
        mr_loader_release(own, a);
    }
    m->wrong += mr_loader_next(l, &b, &err) != 0;
}

static void resume_in_the_middle(struct member *m, struct mr_loader_params *p, struct mr_loader *own,
                                 struct mr_loader **l)
{
    struct mr_error err;
    struct mr_loader_state st;
    struct mr_batch *b;
    m->wrong += mr_loader_start_epoch(*l, 2, &err) != 0;
    for (unsigned k = 0; k < 2; k++) {
        m->wrong += mr_loader_next(*l, &b, &err) != 1;
        mr_loader_release(*l, b);
    }
    mr_loader_get_state(*l, &st);
    mr_loader_close(*l);
    *l = NULL;
    m->wrong += mr_loader_open(p, l, &err) != 0 || mr_loader_resume(*l, &st, &err) != 0;
    compare_epoch(m, own, *l, 2, 2);
}

static void fail_in_the_middle(struct member *m, struct mr_loader *l)
{
    struct mr_error err;
    struct mr_batch *b;
    m->wrong += mr_loader_start_epoch(l, 0, &err) != 0;
    while ((m->rc = mr_loader_next(l, &b, &err)) == 1)
        mr_loader_release(l, b);
    m->wrong += mr_loader_start_epoch(l, 0, &err) != 0; /* once more, and all is well */
    while (mr_loader_next(l, &b, &err) == 1) {
        mr_loader_release(l, b);
        m->batches++;
    }
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct mr_error err;
    struct mr_loader *own = NULL, *l = NULL;
    struct mr_loader_stats st;
    char path[512];
    struct mr_loader_params p = params(m->set, path);
    struct mr_loader_group g = group_of(m);
    p.order.rank = m->c->rank;
    p.order.world = m->c->world;
    m->wrong += mr_loader_open(&p, &own, &err) != 0;
    p.group = &g;
    if (m->mode == FAILS && m->c->rank == 1)
        p.store = "fault(op=read,path=*.npz,nth=9,error=EIO):posix";
    m->wrong += mr_loader_open(&p, &l, &err) != 0;
    if (m->mode == FAILS)
        fail_in_the_middle(m, l);
    else if (m->mode == RESUMES)
        resume_in_the_middle(m, &p, own, &l);
    else
        for (uint64_t e = 0; e < 2; e++)
            compare_epoch(m, own, l, e, 0);
    mr_loader_get_stats(l, &st);
    m->read_bytes = st.read_bytes;
    mr_loader_close(own);
    mr_loader_close(l);
    mr_comm_close(m->c);
    return NULL;
}

static void run_team(uint32_t world, uint32_t readers, const char *set, enum mode mode, struct member *m)
{
    struct mr_comm *c[WORLD_MAX];
    struct mr_error e;
    assert_int_equal(mr_comm_threads_open(world, c, &e), 0);
    for (uint32_t r = 0; r < world; r++)
        m[r] = (struct member){.c = c[r], .set = set, .readers = readers, .mode = mode};
    for (uint32_t r = 0; r < world; r++)
        assert_int_equal(pthread_create(&m[r].id, NULL, member_main, &m[r]), 0);
    for (uint32_t r = 0; r < world; r++)
        pthread_join(m[r].id, NULL);
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
                    assert_int_equal(m[r].read_bytes > 0, r < readers); /* the others touch nothing */
                }
            }
}

/* The one that failed says why, the others that somebody did. */
static void a_reader_that_fails_is_told_apart(void **state)
{
    (void)state;
    struct member m[WORLD_MAX];
    run_team(4, 2, "npz", FAILS, m);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(m[r].wrong, 0);
        assert_int_equal(m[r].rc, r == 1 ? -EIO : MR_E_INTERRUPTED);
        assert_int_equal(m[r].batches, 3);
    }
}

/* Rank `world - 1` reads for nobody, or for itself: its stop reaches all, and nothing is lost when it is undone. */
static void a_stop_of_one_stops_all_and_can_be_undone(void **state)
{
    (void)state;
    struct member m[WORLD_MAX];
    for (uint32_t readers = 1; readers <= 3; readers++) {
        run_team(3, readers, "npz", STOPS, m);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(m[r].wrong, 0);
            assert_int_equal(m[r].stops, 2); /* once in each epoch */
        }
    }
}

static void a_state_of_a_group_is_a_state(void **state)
{
    (void)state;
    struct member m[WORLD_MAX];
    run_team(3, 2, "npz", RESUMES, m);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(m[r].wrong, 0);
        assert_true(m[r].batches > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_what_it_would_have_read),
        cmocka_unit_test(a_reader_that_fails_is_told_apart),
        cmocka_unit_test(a_stop_of_one_stops_all_and_can_be_undone),
        cmocka_unit_test(a_state_of_a_group_is_a_state),
    };
    open_root("loader-group");
    make_set("npz", "npz", 80, 1, 5000, 0);
    make_set("npzvar", "npz", 70, 1, 6000, 2000);
    make_set("hdf5", "hdf5", 4, 20, 4096, 0);
    make_set("jpeg", "jpeg", 60, 1, 6000, 0);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_root();
    return rc;
}
