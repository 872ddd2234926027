/* Properties of the memory that the ranks of a node share: deliveries in and out by threads and by processes, seeks,
 * and what a killed rank or leader does to the others. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/common.h"
#include "base/process.h"
#include "base/rng.h"
#include "tier/segment.h"

#define RANKS 2u
#define DEPTH 64u
#define BYTES 256u
#define THREADS 2u

static struct mr_segment *made(uint32_t ranks, uint32_t depth)
{
    struct mr_segment_params p = {.ranks = ranks, .depth = depth, .data_bytes = (uint64_t)ranks * depth * BYTES};
    struct mr_segment *s = NULL;
    struct mr_error err;
    assert_int_equal(mr_segment_create(&p, &s, &err), 0);
    return s;
}

static struct mr_segment *mapped(const struct mr_segment *leader)
{
    struct mr_segment *s = NULL;
    struct mr_error err;
    assert_int_equal(mr_segment_map(mr_segment_fd(leader), &s, &err), 0);
    return s;
}

static uint64_t id_of(uint32_t rank, uint64_t n, uint64_t round)
{
    return mr_mix64(rank * 1000003ull + n * 17 + round * 7777777ull) >> 8;
}

static struct mr_delivery delivery(uint32_t rank, uint64_t n, uint64_t round)
{
    return (struct mr_delivery){.id = id_of(rank, n, round),
                                .at = ((uint64_t)rank * DEPTH + n % DEPTH) * BYTES,
                                .bytes = BYTES,
                                .from = MR_TIER_RAM};
}

/* ---- a leader that plans, delivers out of order and checks what comes back ---- */

struct lead {
    struct mr_segment *s;
    uint64_t count, seed;
    uint32_t ranks;
    uint64_t planned[RANKS], came[RANKS], back[RANKS], round;
};

static void fill(struct lead *l, uint32_t rank, uint64_t n)
{
    struct mr_delivery d = delivery(rank, n, l->round);
    memset(mr_segment_data(l->s, d.at), (int)(d.id & 0xff), BYTES);
}

static void deliver_some(struct lead *l, uint32_t r)
{
    while (l->came[r] < l->planned[r]) {
        struct mr_delivery d = delivery(r, l->came[r], l->round);
        if (d.id % 3 == 0) { /* the others were ready when they were planned */
            fill(l, r, l->came[r]);
            mr_segment_deliver(l->s, r, l->came[r], &d, NULL);
        }
        l->came[r]++;
        if (mr_rng_at(l->seed, MR_RNG_TEST, l->came[r]) % 5 == 0)
            break;
    }
    mr_segment_wake(l->s, r);
}

static void plan_some(struct lead *l, uint32_t r)
{
    struct mr_delivery d;
    while (mr_segment_reclaim(l->s, r, &d)) {
        assert_int_equal(d.id, id_of(r, l->back[r], l->round));
        l->back[r]++;
    }
    for (unsigned k = 0; k < 9 && l->planned[r] < l->count && l->planned[r] < l->back[r] + DEPTH; k++) {
        d = delivery(r, l->planned[r], l->round);
        bool ready = d.id % 3 != 0;
        if (ready)
            fill(l, r, l->planned[r]);
        mr_segment_plan(l->s, r, l->planned[r]++, &d, ready ? MR_DELIVERY_READY : MR_DELIVERY_PLANNED);
    }
}

/* Until all is back, or the job has failed. */
static int lead(struct lead *l, struct mr_error *err)
{
    for (;;) {
        uint64_t open = 0;
        for (uint32_t r = 0; r < l->ranks; r++) {
            plan_some(l, r);
            deliver_some(l, r);
            open += l->count - l->back[r];
        }
        int rc = mr_segment_failed(l->s, err);
        if (open == 0 || rc != 0)
            return rc;
        bool idle = true;
        for (uint32_t r = 0; r < l->ranks; r++)
            idle = idle && l->came[r] == l->planned[r];
        if (idle)
            mr_segment_wait_ranks(l->s, 50 * MR_NS_PER_MS);
    }
}

/* ---- a rank with threads that take tickets ---- */

struct rank {
    struct mr_segment *s;
    uint32_t rank;
    uint64_t count, round;
    _Atomic uint64_t ticket, used, wrong;
    _Atomic int code;
};

static void *take_tickets(void *arg)
{
    struct rank *k = arg;
    struct mr_error err;
    for (uint64_t n; (n = atomic_fetch_add(&k->ticket, 1)) < k->count;) {
        struct mr_delivery d;
        const uint8_t *at = mr_segment_take(k->s, k->rank, n, &d, NULL, NULL, &err);
        if (!at) {
            atomic_store(&k->code, err.code);
            break;
        }
        bool right = d.id == id_of(k->rank, n, k->round) && d.bytes == BYTES;
        for (unsigned b = 0; right && b < BYTES; b += 51)
            right = at[b] == (uint8_t)(d.id & 0xff);
        atomic_fetch_add(right ? &k->used : &k->wrong, 1);
        mr_segment_done(k->s, k->rank, n);
    }
    return NULL;
}

static void run_rank(struct rank *k)
{
    pthread_t t[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, take_tickets, k), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
}

static void *rank_thread(void *arg)
{
    run_rank(arg);
    return NULL;
}

static void threads_get_every_delivery_once_with_its_bytes(void **state)
{
    (void)state;
    struct lead l = {.s = made(RANKS, DEPTH), .count = 20000, .ranks = RANKS};
    struct rank k[RANKS] = {{.s = NULL}};
    pthread_t t[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        k[r] = (struct rank){.s = r ? mapped(l.s) : l.s, .rank = r, .count = l.count};
        mr_segment_join(k[r].s, r);
        assert_int_equal(pthread_create(&t[r], NULL, rank_thread, &k[r]), 0);
    }
    struct mr_error err;
    assert_int_equal(lead(&l, &err), 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        pthread_join(t[r], NULL);
        assert_int_equal(k[r].used, l.count);
        assert_int_equal(k[r].wrong, 0);
        assert_int_equal(mr_segment_reclaimed(l.s, r), l.count);
        mr_segment_leave(k[r].s, r);
    }
    mr_segment_close(k[1].s);
    mr_segment_close(l.s);
}

/* The exit status of a rank's process: 0, or 100 + a number for the code it ended with. */
static int status_of(int code)
{
    return code == 0 ? 0 : code == MR_E_PEER ? 101 : code == MR_E_INTERRUPTED ? 102 : 103;
}

static int tell_fd = -1; /* where a rank also writes its status */

static pid_t fork_rank(struct mr_segment *leader, uint32_t rank, uint64_t count)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct mr_error err;
    struct rank k = {.rank = rank, .count = count};
    if (mr_segment_map(mr_segment_fd(leader), &k.s, &err) != 0)
        _exit(9);
    mr_segment_join(k.s, rank);
    run_rank(&k);
    if (k.code == 0)
        mr_segment_leave(k.s, rank);
    uint8_t status = (uint8_t)(k.wrong ? 8 : status_of(k.code));
    if (tell_fd >= 0 && write(tell_fd, &status, 1) != 1)
        status = 7;
    _exit(status);
}

static int end_of(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void forked_ranks_get_every_delivery_once_with_its_bytes(void **state)
{
    (void)state;
    struct lead l = {.s = made(RANKS, DEPTH), .count = 20000, .ranks = RANKS};
    pid_t pid[RANKS];
    struct mr_error err;
    for (uint32_t r = 0; r < RANKS; r++)
        pid[r] = fork_rank(l.s, r, l.count);
    assert_int_equal(lead(&l, &err), 0);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(end_of(pid[r]), 0);
    mr_segment_close(l.s);
}

static void a_killed_rank_is_named_to_the_leader_and_the_others(void **state)
{
    (void)state;
    struct lead l = {.s = made(RANKS, DEPTH), .count = UINT64_MAX / 16, .ranks = RANKS};
    pid_t pid[RANKS];
    struct mr_error err;
    for (uint32_t r = 0; r < RANKS; r++)
        pid[r] = fork_rank(l.s, r, l.count);
    while (l.back[1] < 1000) {
        plan_some(&l, 0), deliver_some(&l, 0);
        plan_some(&l, 1), deliver_some(&l, 1);
    }
    kill(pid[1], SIGKILL); /* stays a zombie until the end of this test */
    assert_int_equal(lead(&l, &err), MR_E_PEER);
    assert_non_null(strstr(err.message, "rank 1 (process "));
    assert_int_equal(end_of(pid[0]), 101);
    assert_int_equal(end_of(pid[1]), -SIGKILL);
    mr_segment_close(l.s);
}

static void a_killed_leader_is_named_to_its_ranks(void **state)
{
    (void)state;
    int pipe_fd[2];
    assert_int_equal(pipe(pipe_fd), 0);
    tell_fd = pipe_fd[1];
    pid_t leader = fork();
    if (leader == 0) {
        struct lead l = {.s = made(RANKS, DEPTH), .count = UINT64_MAX / 16, .ranks = RANKS};
        for (uint32_t r = 0; r < RANKS; r++)
            if (fork_rank(l.s, r, l.count) < 0)
                _exit(1);
        while (l.back[0] < 1000 || l.back[1] < 1000) {
            plan_some(&l, 0), deliver_some(&l, 0);
            plan_some(&l, 1), deliver_some(&l, 1);
        }
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(end_of(leader), -SIGKILL);
    close(pipe_fd[1]);
    tell_fd = -1;
    uint8_t status[RANKS + 1];
    size_t n = 0;
    for (ssize_t got; (got = read(pipe_fd[0], status + n, sizeof status - n)) > 0;) /* until all ranks have ended */
        n += (size_t)got;
    assert_int_equal(n, RANKS);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(status[r], 101);
    close(pipe_fd[0]);
}

struct waiting {
    struct mr_segment *s;
    _Atomic bool over;
    struct mr_error err;
    bool null;
};

static bool is_over(void *user)
{
    return atomic_load(&((struct waiting *)user)->over);
}

static void *wait_for_nothing(void *arg)
{
    struct waiting *w = arg;
    w->null = mr_segment_take(w->s, 0, 5, NULL, is_over, w, &w->err) == NULL;
    return NULL;
}

static void until_wanted(struct mr_segment *s, uint64_t n)
{
    while (mr_segment_wanted(s, 0) != n)
        usleep(1000);
}

static void a_wait_is_seen_by_the_leader_and_ends_when_it_is_over(void **state)
{
    (void)state;
    struct waiting w = {.s = made(1, DEPTH)};
    pthread_t t;
    mr_segment_join(w.s, 0);
    assert_int_equal(mr_segment_wanted(w.s, 0), UINT64_MAX);
    pthread_create(&t, NULL, wait_for_nothing, &w);
    until_wanted(w.s, 5);
    atomic_store(&w.over, true);
    mr_segment_interrupt(w.s, 0);
    pthread_join(t, NULL);
    assert_true(w.null);
    assert_int_equal(w.err.code, MR_E_INTERRUPTED);
    assert_int_equal(mr_segment_wanted(w.s, 0), UINT64_MAX);
    mr_segment_close(w.s);
}

static void a_directory_is_found_also_by_who_waits_and_goes_again(void **state)
{
    (void)state;
    struct mr_segment_params p = {.ranks = 1, .depth = 64, .data_bytes = 65536};
    struct mr_segment *s;
    struct mr_delivery d;
    assert_int_equal(mr_segment_create(&p, &s, NULL), 0);
    mr_segment_join(s, 0);
    assert_null(mr_segment_find(s, 0, &d));
    struct waiting w = {.s = s};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, wait_for_nothing, &w), 0);
    until_wanted(s, 5);
    struct mr_segment_entry *list = (struct mr_segment_entry *)(void *)mr_segment_data(s, 4096);
    list[0] = (struct mr_segment_entry){128, 7};
    list[1] = (struct mr_segment_entry){256, 9};
    mr_segment_list(s, 4096, 2);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_true(w.null);
    assert_int_equal(w.err.code, -EAGAIN);
    assert_ptr_equal(mr_segment_find(s, 1, &d), mr_segment_data(s, 256));
    assert_int_equal(d.bytes, 9);
    assert_int_equal(d.from, MR_TIER_RAM);
    assert_null(mr_segment_find(s, 2, &d)); /* not in it */
    mr_segment_list(s, MR_SEGMENT_NO_DIRECTORY, 0);
    assert_null(mr_segment_find(s, 1, &d));
    mr_segment_leave(s, 0);
    mr_segment_close(s);
}

static void a_failure_ends_waits_with_its_cause_and_the_first_counts(void **state)
{
    (void)state;
    struct mr_segment *s = made(1, DEPTH);
    struct waiting w = {.s = mapped(s)};
    struct mr_error why, got;
    pthread_t t;
    assert_int_equal(mr_segment_failed(s, &got), 0);
    pthread_create(&t, NULL, wait_for_nothing, &w);
    until_wanted(s, 5);
    mr_error_plain(&why, -EIO, "the source is gone");
    mr_segment_fail(s, &why);
    mr_error_plain(&why, -EIO, "a later one");
    mr_segment_fail(s, &why);
    pthread_join(t, NULL);
    assert_true(w.null);
    assert_int_equal(w.err.code, -EIO);
    assert_string_equal(w.err.message, "the source is gone");
    assert_int_equal(mr_segment_failed(w.s, &got), -EIO);
    mr_segment_close(w.s);
    mr_segment_close(s);
}

static void closing_the_leaders_segment_ends_the_others_waits(void **state)
{
    (void)state;
    struct mr_segment *s = made(1, DEPTH);
    struct waiting w = {.s = mapped(s)};
    pthread_t t;
    pthread_create(&t, NULL, wait_for_nothing, &w);
    until_wanted(s, 5);
    mr_segment_close(s);
    pthread_join(t, NULL);
    assert_true(w.null);
    assert_int_equal(w.err.code, MR_E_PEER);
    mr_segment_close(w.s);
}

static void a_failed_delivery_says_why_also_when_there_are_many(void **state)
{
    (void)state;
    struct mr_segment *s = made(1, DEPTH);
    struct mr_error err;
    struct mr_delivery d;
    for (unsigned lap = 0; lap < 3; lap++) {
        for (unsigned k = 0; k < 20; k++) {
            uint64_t n = lap * 20 + k;
            d = (struct mr_delivery){.id = n + 100};
            mr_segment_plan(s, 0, n, &d, MR_DELIVERY_PLANNED);
            d.code = -EIO;
            mr_error_plain(&err, -EIO, "cannot read 'file-%llu'", (unsigned long long)n);
            mr_segment_deliver(s, 0, n, &d, &err);
        }
        for (unsigned k = 0; k < 20; k++) {
            uint64_t n = lap * 20 + k;
            char text[64];
            assert_null(mr_segment_take(s, 0, n, NULL, NULL, NULL, &err));
            assert_int_equal(err.code, -EIO);
            snprintf(text, sizeof text, k < 8 ? "'file-%d'" : "sample %d could not", (int)(k < 8 ? n : n + 100));
            assert_non_null(strstr(err.message, text));
            mr_segment_done(s, 0, n);
            assert_true(mr_segment_reclaim(s, 0, &d));
            assert_int_equal(d.code, -EIO);
        }
    }
    mr_segment_close(s);
}

static void what_a_rank_left_behind_comes_back(void **state)
{
    (void)state;
    struct mr_segment *s = made(1, DEPTH);
    struct mr_delivery d = delivery(0, 0, 0);
    enum mr_delivery_state was;
    mr_segment_join(s, 0);
    mr_segment_plan(s, 0, 0, &d, MR_DELIVERY_READY);
    d = delivery(0, 1, 0);
    mr_segment_plan(s, 0, 1, &d, MR_DELIVERY_PLANNED);
    assert_false(mr_segment_reclaim(s, 0, &d));
    mr_segment_leave(s, 0);
    assert_true(mr_segment_reclaim(s, 0, &d));
    assert_int_equal(d.id, id_of(0, 0, 0));
    assert_false(mr_segment_reclaim(s, 0, &d)); /* still on its way, so still the leader's */
    assert_true(mr_segment_take_back(s, 0, &d, &was));
    assert_int_equal(was, MR_DELIVERY_PLANNED);
    assert_int_equal(d.id, id_of(0, 1, 0));
    assert_false(mr_segment_take_back(s, 0, &d, &was));
    mr_segment_close(s);
}

/* ---- seeks ---- */

#define ROUNDS 40u

struct seeker {
    struct rank k;
    uint64_t use[ROUNDS]; /* deliveries that are taken before the next seek */
    _Atomic int failed;
};

static void *seek_and_read(void *arg)
{
    struct seeker *q = arg;
    struct mr_error err;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        if (mr_segment_seek(q->k.s, q->k.rank, round, round * 3, NULL, NULL, &err) != 0) {
            atomic_store(&q->failed, err.code);
            break;
        }
        q->k.round = round;
        q->k.count = q->use[round];
        atomic_store(&q->k.ticket, 0);
        run_rank(&q->k);
    }
    mr_segment_leave(q->k.s, q->k.rank);
    return NULL;
}

static void take_all_back(struct lead *l)
{
    enum mr_delivery_state was;
    for (uint32_t r = 0; r < l->ranks; r++) {
        while (mr_segment_take_back(l->s, r, NULL, &was))
            l->back[r]++;
        assert_int_equal(l->back[r], l->planned[r]);
        l->back[r] = l->planned[r] = l->came[r] = 0;
    }
}

static void ranks_that_seek_begin_anew_together(void **state)
{
    (void)state;
    struct lead l = {.s = made(RANKS, DEPTH), .count = 1000, .ranks = RANKS};
    struct seeker q[RANKS] = {{.failed = 0}};
    pthread_t t[RANKS];
    uint64_t epoch = 0, position = 0, seeks = 0, want = 0;
    bool gone = false;
    for (uint32_t r = 0; r < RANKS; r++) {
        q[r].k = (struct rank){.s = r ? mapped(l.s) : l.s, .rank = r};
        for (unsigned k = 0; k < ROUNDS; k++)
            want += q[r].use[k] = mr_rng_at(r, MR_RNG_TEST, k) % 500;
        mr_segment_join(q[r].k.s, r);
        pthread_create(&t[r], NULL, seek_and_read, &q[r]);
    }
    while (seeks < ROUNDS || mr_segment_reclaimed(l.s, 0) < q[0].use[ROUNDS - 1] ||
           mr_segment_reclaimed(l.s, 1) < q[1].use[ROUNDS - 1]) {
        if (mr_segment_seek_asked(l.s, &epoch, &position, &gone)) {
            assert_int_equal(epoch, seeks);
            assert_int_equal(position, epoch * 3);
            take_all_back(&l);
            l.round = epoch;
            seeks++;
            mr_segment_seek_done(l.s);
        }
        assert_false(gone);
        for (uint32_t r = 0; seeks && r < RANKS; r++)
            plan_some(&l, r), deliver_some(&l, r);
        mr_segment_wait_ranks(l.s, MR_NS_PER_MS);
    }
    uint64_t used = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        pthread_join(t[r], NULL);
        assert_int_equal(q[r].failed, 0);
        assert_int_equal(q[r].k.wrong, 0);
        used += q[r].k.used;
    }
    assert_int_equal(used, want);
    mr_segment_close(q[1].k.s);
    mr_segment_close(l.s);
}

static void *seek_elsewhere(void *arg)
{
    struct seeker *q = arg;
    struct mr_error err;
    q->failed = mr_segment_seek(q->k.s, q->k.rank, 1, q->k.rank, NULL, NULL, &err);
    return NULL;
}

static void ranks_that_seek_different_places_are_told(void **state)
{
    (void)state;
    struct mr_segment *s = made(RANKS, DEPTH);
    struct seeker q[RANKS] = {{.failed = 0}};
    pthread_t t[RANKS];
    uint64_t epoch, position;
    bool gone = false;
    for (uint32_t r = 0; r < RANKS; r++) {
        q[r].k = (struct rank){.s = s, .rank = r};
        mr_segment_join(s, r);
        pthread_create(&t[r], NULL, seek_elsewhere, &q[r]);
    }
    while (!gone) {
        assert_false(mr_segment_seek_asked(s, &epoch, &position, &gone));
        mr_segment_wait_ranks(s, 50 * MR_NS_PER_MS);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        pthread_join(t[r], NULL);
        assert_int_equal(q[r].failed, MR_E_USAGE);
    }
    mr_segment_close(s);
}

/* ---- what cannot be ---- */

static void more_than_the_machine_has_is_refused_with_what_there_is(void **state)
{
    (void)state;
    struct mr_segment_params p = {.ranks = 1, .depth = 64, .data_bytes = (uint64_t)1 << 50};
    struct mr_segment *s = NULL;
    struct mr_error err;
    assert_int_equal(mr_segment_create(&p, &s, &err), -ENOMEM);
    assert_non_null(strstr(err.message, "PiB"));
    assert_true(*err.hint);
    assert_null(s);
    p.depth = 63;
    assert_int_equal(mr_segment_create(&p, &s, &err), MR_E_INTERNAL);
}

static void other_memory_is_not_taken_for_a_segment(void **state)
{
    (void)state;
    struct mr_segment *s = NULL, *good = made(1, DEPTH);
    struct mr_error err;
    int fd = memfd_create("other", MFD_CLOEXEC);
    assert_int_equal(mr_segment_map(fd, &s, &err), MR_E_CONFIG);
    assert_int_equal(ftruncate(fd, 1 << 16), 0);
    assert_int_equal(mr_segment_map(fd, &s, &err), MR_E_CONFIG);
    assert_int_equal(mr_segment_map(-1, &s, &err), -EBADF);
    uint8_t *head = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mr_segment_fd(good), 0);
    assert_true(head != MAP_FAILED);
    head[8]++; /* the version */
    assert_int_equal(mr_segment_map(mr_segment_fd(good), &s, &err), MR_E_CONFIG);
    assert_non_null(strstr(err.message, "version 2"));
    head[8]--;
    munmap(head, 4096);
    assert_int_equal(ftruncate(mr_segment_fd(good), 4096), -1); /* nobody can take its pages away */
    close(fd);
    mr_segment_close(good);
}

static void processes_are_known_by_their_start(void **state)
{
    (void)state;
    struct mr_process_id self = mr_process_self(), other = self;
    assert_true(mr_process_lives(&self));
    assert_true(self.started > 0);
    other.started++;
    assert_false(mr_process_lives(&other));
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t end;
    assert_int_equal(waitid(P_PID, (id_t)pid, &end, WEXITED | WNOWAIT), 0);
    struct mr_process_id child = {.pid = pid, .started = 0}, parent = {.pid = getppid()};
    assert_true(mr_process_lives(&parent));
    assert_true(mr_process_lives(&child)); /* the number alone cannot tell a zombie */
    assert_int_equal(end_of(pid), 0);
    assert_false(mr_process_lives(&child));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_get_every_delivery_once_with_its_bytes),
        cmocka_unit_test(forked_ranks_get_every_delivery_once_with_its_bytes),
        cmocka_unit_test(a_killed_rank_is_named_to_the_leader_and_the_others),
        cmocka_unit_test(a_killed_leader_is_named_to_its_ranks),
        cmocka_unit_test(a_wait_is_seen_by_the_leader_and_ends_when_it_is_over),
        cmocka_unit_test(a_directory_is_found_also_by_who_waits_and_goes_again),
        cmocka_unit_test(a_failure_ends_waits_with_its_cause_and_the_first_counts),
        cmocka_unit_test(closing_the_leaders_segment_ends_the_others_waits),
        cmocka_unit_test(a_failed_delivery_says_why_also_when_there_are_many),
        cmocka_unit_test(what_a_rank_left_behind_comes_back),
        cmocka_unit_test(ranks_that_seek_begin_anew_together),
        cmocka_unit_test(ranks_that_seek_different_places_are_told),
        cmocka_unit_test(more_than_the_machine_has_is_refused_with_what_there_is),
        cmocka_unit_test(other_memory_is_not_taken_for_a_segment),
        cmocka_unit_test(processes_are_known_by_their_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
