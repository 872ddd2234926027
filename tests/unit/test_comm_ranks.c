/* Ranks: collectives give the same answer in every backend, errors are agreed on, and a dead rank is noticed.
 *
 * As `test_comm_ranks --under-mpirun` it runs the same collectives in the job that mpirun made (see tests/mpi); that is
 * why the checks return a code instead of asserting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/common.h"
#include "comm/comm.h"

/* Shared by all processes of a job: how many checks failed. */
static _Atomic unsigned *failures;

/* Every failed check says where, counts and ends the process. */
#define CHECK(c, condition)                                                                                            \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %u of %u, line %d: %s\n", (c)->rank, (c)->world, __LINE__, #condition);              \
            if (failures)                                                                                              \
                atomic_fetch_add(failures, 1);                                                                         \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static void check_collectives(struct mr_comm *c)
{
    struct mr_error e = {0};
    uint32_t w = c->world;
    enum { N = 20000 }; /* several rounds through a slot */
    uint64_t *v = calloc(N, sizeof(*v));
    double *d = calloc(N, sizeof(*d));
    for (int round = 0; round < 3; round++) {
        CHECK(c, mr_comm_barrier(c, &e) == 0);
        for (uint64_t i = 0; i < N; i++) {
            v[i] = i * (c->rank + 1);
            d[i] = (double)i + c->rank;
        }
        CHECK(c, mr_comm_allreduce_u64(c, v, N, MR_COMM_SUM, &e) == 0);
        CHECK(c, mr_comm_allreduce_f64(c, d, N, MR_COMM_MAX, &e) == 0);
        for (uint64_t i = 0; i < N; i++) {
            CHECK(c, v[i] == i * w * (w + 1) / 2);
            CHECK(c, d[i] == (double)(i + w - 1));
        }
        uint64_t huge[2] = {c->rank ? 5 : UINT64_MAX, c->rank ? 5 : UINT64_MAX}; /* unsigned, not -1 */
        CHECK(c, mr_comm_allreduce_u64(c, &huge[0], 1, MR_COMM_MIN, &e) == 0 && huge[0] == (w > 1 ? 5 : UINT64_MAX));
        CHECK(c, mr_comm_allreduce_u64(c, &huge[1], 1, MR_COMM_MAX, &e) == 0 && huge[1] == UINT64_MAX);
        uint64_t low = 100 - c->rank;
        CHECK(c, mr_comm_allreduce_u64(c, &low, 1, MR_COMM_MIN, &e) == 0 && low == 100 - (w - 1));
    }
    for (uint32_t root = 0; root < w; root++) {
        memset(v, c->rank == root ? (int)root + 1 : 0, N * 8);
        CHECK(c, mr_comm_bcast(c, v, N * 8, root, &e) == 0);
        for (size_t i = 0; i < N * 8; i++)
            CHECK(c, ((uint8_t *)v)[i] == root + 1);
        uint8_t *all = calloc(w, 70000), *own = malloc(70000);
        memset(own, (int)c->rank + 5, 70000);
        CHECK(c, mr_comm_gather(c, own, 70000, c->rank == root ? all : NULL, root, &e) == 0);
        for (size_t i = 0; c->rank == root && i < w * 70000ul; i++)
            CHECK(c, all[i] == i / 70000 + 5);
        free(all);
        free(own);
    }
    CHECK(c, mr_comm_bcast(c, v, 8, w, &e) == MR_E_USAGE);
    CHECK(c, mr_comm_allreduce_u64(c, NULL, 0, MR_COMM_SUM, &e) == 0);
    free(v);
    free(d);
}

/* Every ordered pair exchanges messages of several lengths, also through a ring of outboxes; the content arrives whole.
 */
static void check_pairs(struct mr_comm *c)
{
    static const size_t lengths[] = {0, 1, 8, 32768, 131072, 1000003};
    struct mr_error e = {0};
    uint8_t *buf = malloc(1000003);
    CHECK(c, mr_comm_send(c, buf, 8, c->rank, &e) == MR_E_USAGE && mr_comm_recv(c, buf, 8, c->world, &e) == MR_E_USAGE);
    for (uint32_t from = 0; from < c->world; from++)
        for (uint32_t to = 0; to < c->world; to++)
            for (size_t k = 0; k < MR_ARRAY_LEN(lengths) && from != to; k++) {
                if (c->rank == from) {
                    for (size_t i = 0; i < lengths[k]; i++)
                        buf[i] = (uint8_t)(i * 7 + i / 251 + from * 31 + to + k);
                    CHECK(c, mr_comm_send(c, buf, lengths[k], to, &e) == 0);
                } else if (c->rank == to) {
                    memset(buf, 0, 1000003);
                    CHECK(c, mr_comm_recv(c, buf, lengths[k], from, &e) == 0);
                    for (size_t i = 0; i < lengths[k]; i++)
                        CHECK(c, buf[i] == (uint8_t)(i * 7 + i / 251 + from * 31 + to + k));
                }
            }
    CHECK(c, mr_comm_barrier(c, &e) == 0); /* and collectives go on working */
    free(buf);
}

/* A receiver whose sender is gone hears of it. */
static void check_lost_sender(struct mr_comm *c)
{
    struct mr_error e = {0};
    char buf[8];
    if (c->world == 1)
        return;
    if (c->rank == 1)
        _exit(0);
    CHECK(c, mr_comm_recv(c, buf, sizeof buf, 1, &e) == MR_E_PEER && strstr(e.message, "rank 1"));
    CHECK(c, mr_comm_send(c, buf, sizeof buf, 1, &e) == MR_E_PEER);
}

static void check_agreement(struct mr_comm *c)
{
    struct mr_error e = {.code = 1, .message = "untouched"};
    CHECK(c, mr_comm_agree(c, 0, &e) == 0 && !strcmp(e.message, "untouched"));
    for (uint32_t bad = 0; bad < c->world; bad++) { /* `bad` and all above fail: the lowest one speaks */
        int code = 0;
        if (c->rank >= bad)
            code = mr_error_plain(&e, c->rank == bad ? MR_E_CORRUPT : -EIO, "trouble on %u", c->rank);
        char want[64], where[64];
        snprintf(want, sizeof want, "trouble on %u", bad);
        snprintf(where, sizeof where, "rank %u", bad);
        CHECK(c, mr_comm_agree(c, code, &e) == MR_E_CORRUPT);
        CHECK(c, !strcmp(e.message, want));
        CHECK(c, c->world == 1 || !strcmp(e.context, where));
    }
    CHECK(c, mr_comm_agree(c, c->rank == 0 ? -ENOSPC : 0, NULL) == -ENOSPC);
}

/* The others must hear of it within 10 s where the machine is ours; where it may be busy, six times that still tells it
 * from a hang. */
static uint64_t limit_ns(void)
{
    const char *full = getenv("MR_TEST_FULL");
    return (full && *full ? 10 : 60) * MR_NS_PER_S;
}

/* One rank fails in the middle; the others are already waiting. */
static void check_failure(struct mr_comm *c)
{
    struct mr_error e = {0};
    if (c->world == 1)
        return;
    if (c->rank == c->world - 1) {
        usleep(100000);
        mr_error_plain(&e, -ENOSPC, "disk full");
        mr_error_hint(&e, "make room");
        mr_comm_fail(c, &e);
        return;
    }
    uint64_t before = mr_now_ns();
    CHECK(c, mr_comm_barrier(c, &e) == MR_E_PEER);
    CHECK(c, mr_now_ns() - before < limit_ns());
    CHECK(c, strstr(e.message, "disk full") && strstr(e.message, "rank ") && !strcmp(e.hint, "make room"));
    CHECK(c, mr_comm_agree(c, 0, &e) == MR_E_PEER);
}

/* Runs `body` on n forked ranks; children end in it. Returns in rank 0. Any child's failure fails the test. */
static void on_ranks(uint32_t n, void (*body)(struct mr_comm *c))
{
    struct mr_comm *c = NULL;
    struct mr_error e = {0};
    fflush(NULL);
    pid_t runner = fork(); /* rank 0 is a child, too, so that a failed check does not end the test program */
    if (runner == 0) {
        int code = n == 1 ? mr_comm_open(1, 1, &c, &e) : mr_comm_open(n, 1, &c, &e);
        if (code) {
            fprintf(stderr, "%s\n", e.message);
            _exit(3);
        }
        body(c);
        mr_comm_close(c);
        _exit(0);
    }
    int status = -1;
    waitpid(runner, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("a job of %u ended with status %d", n, status);
    assert_int_equal(atomic_load(failures), 0);
}

static const uint32_t worlds[] = {1, 2, 3, 7};

static void all_worlds(void (*body)(struct mr_comm *c))
{
    for (unsigned i = 0; i < MR_ARRAY_LEN(worlds); i++)
        on_ranks(worlds[i], body);
}

/* Rank 0 must know that the others were content, not only that they ended. */
static void check_children_too(struct mr_comm *c)
{
    check_collectives(c);
    check_pairs(c);
    check_agreement(c);
    uint64_t fine = 1;
    struct mr_error e;
    CHECK(c, mr_comm_allreduce_u64(c, &fine, 1, MR_COMM_SUM, &e) == 0 && fine == c->world);
}

static void comm_collectives_and_agreement_at_1_2_3_7_ranks(void **state)
{
    (void)state;
    all_worlds(check_children_too);
}

static void comm_receiver_hears_that_its_sender_is_gone(void **state)
{
    (void)state;
    all_worlds(check_lost_sender);
}

static void comm_failing_rank_stops_the_others(void **state)
{
    (void)state;
    all_worlds(check_failure);
}

static void kill_one(struct mr_comm *c)
{
    struct mr_error e = {0};
    CHECK(c, mr_comm_barrier(c, &e) == 0);
    if (c->rank == 1) {
        usleep(50000);
        kill(getpid(), SIGKILL);
    }
    uint64_t before = mr_now_ns();
    CHECK(c, mr_comm_barrier(c, &e) == MR_E_PEER);
    CHECK(c, mr_now_ns() - before < limit_ns());
    CHECK(c, strstr(e.message, "rank 1 failed") && strstr(e.message, "died"));
}

static void kill_first(struct mr_comm *c)
{
    struct mr_error e = {0};
    if (c->rank == 0) {
        usleep(50000);
        kill(getpid(), SIGKILL);
    }
    CHECK(c, mr_comm_allreduce_u64(c, &(uint64_t){1}, 1, MR_COMM_SUM, &e) == MR_E_PEER);
    CHECK(c, strstr(e.message, "rank 0 failed"));
}

/* The survivors of a killed rank 0 are nobody's children here, so they leave a mark through a pipe. */
static int mark_fd = -1;
static void kill_first_and_mark(struct mr_comm *c)
{
    kill_first(c);
    if (write(mark_fd, "x", 1) != 1)
        _exit(1);
}

static void comm_killed_rank_is_noticed_in_time(void **state)
{
    (void)state;
    on_ranks(2, kill_one);
    on_ranks(5, kill_one);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    mark_fd = ends[1];
    pid_t job = fork();
    if (job == 0) {
        struct mr_comm *c;
        close(ends[0]);
        if (mr_comm_open(3, 1, &c, NULL))
            _exit(3);
        kill_first_and_mark(c);
        mr_comm_close(c);
        _exit(0);
    }
    close(ends[1]);
    char marks[8];
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], marks, sizeof marks)) > 0;)
        n += (size_t)got;
    close(ends[0]);
    waitpid(job, NULL, 0);
    assert_int_equal(n, 2);
}

static void leave_early(struct mr_comm *c)
{
    struct mr_error e = {0};
    if (c->rank == 2)
        return; /* closes without the barrier the others wait in */
    CHECK(c, mr_comm_barrier(c, &e) == MR_E_PEER);
    CHECK(c, strstr(e.message, "rank 2 failed") && strstr(e.message, "left"));
}

static void disagree_on_the_call(struct mr_comm *c)
{
    struct mr_error e = {0};
    uint64_t v = 1;
    int code = c->rank == 1 ? mr_comm_allreduce_u64(c, &v, 1, MR_COMM_SUM, &e) : mr_comm_barrier(c, &e);
    CHECK(c, code == MR_E_INTERNAL || code == MR_E_PEER);
    CHECK(c, strstr(e.message, "barrier") && strstr(e.message, "allreduce"));
}

static void comm_rank_that_leaves_or_calls_something_else_is_named(void **state)
{
    (void)state;
    on_ranks(4, leave_early);
    on_ranks(3, disagree_on_the_call);
}

static void comm_impossible_jobs_are_refused(void **state)
{
    (void)state;
    struct mr_comm *c = NULL;
    struct mr_error e = {0};
    assert_int_equal(mr_comm_open(100000, 1, &c, &e), MR_E_USAGE);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    const char *launcher = NULL;
    assert_int_equal(mr_comm_detect_launcher(&launcher), 4);
    assert_non_null(strstr(launcher, "Open MPI"));
    assert_int_equal(mr_comm_open(2, 0, &c, &e), MR_E_USAGE);
    assert_non_null(strstr(e.hint, "--ranks"));
    setenv("OMPI_COMM_WORLD_SIZE", "4x", 1); /* not a number: no launcher */
    assert_int_equal(mr_comm_detect_launcher(NULL), 0);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    assert_null(c);
    mr_comm_close(NULL);
}

static int under_mpirun(const char *what)
{
    struct mr_comm *c;
    struct mr_error e = {0};
    int code = mr_comm_open(1, 0, &c, &e);
    if (code) {
        fprintf(stderr, "%s (%s)\n", e.message, e.hint);
        return code == MR_E_UNSUPPORTED ? 77 : 1;
    }
    if (strcmp(what, "fail") == 0)
        check_failure(c);
    else
        check_children_too(c);
    if (c->rank == 0)
        printf("%s: %u ranks, %u here: fine\n", c->ops->name, c->world, c->local_world);
    mr_comm_close(c);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--under-mpirun") == 0)
        return under_mpirun(argv[2]);
    failures = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (failures == MAP_FAILED)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comm_collectives_and_agreement_at_1_2_3_7_ranks),
        cmocka_unit_test(comm_receiver_hears_that_its_sender_is_gone),
        cmocka_unit_test(comm_failing_rank_stops_the_others),
        cmocka_unit_test(comm_killed_rank_is_noticed_in_time),
        cmocka_unit_test(comm_rank_that_leaves_or_calls_something_else_is_named),
        cmocka_unit_test(comm_impossible_jobs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
