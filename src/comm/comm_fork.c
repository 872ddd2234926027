/* Local ranks without MPI: the process forks world-1 children; all share one mapping with a slot for each rank.
 *
 *   every collective:  write own slot ─> barrier ─> read the slots needed ─> barrier (slots are free again)
 *
 * Data longer than a slot goes in rounds. A reduction is computed by every rank over all slots in rank order, so that
 * all ranks get bit-identical results.
 *
 * Death is noticed through pipes: rank r alone holds the write end of pipe r, so its read ends, which all others hold,
 * hang up when r ends for whatever reason. Waiting ranks look at them every 50 ms; nobody depends on rank 0 to watch.
 *
 * Invariants:
 *   1. `arrived` counts the ranks in the barrier of `generation`; the last one resets it and advances the generation.
 *   2. `failed` goes from NONE through CLAIMED to SET once; `why` is written between and never changes after SET.
 *   3. A rank leaves (hangs up) only after its last collective has advanced the generation. So a waiter that sees a
 *      hang-up and then still finds its generation unchanged knows that the peer will never arrive.
 *   4. Slot r is written only by rank r, between two barriers in which nobody reads it.
 *   5. Outbox r is a ring that rank r alone writes (`head`) and, while a message is on its way, rank `to` alone reads
 *      (`tail`). A send ends when tail has reached head, so a rank never leaves with something unread in its outbox.
 * No locks: a killed process could take one with it. */
#include "comm/comm.h"
#include "base/futex.h"
#include "base/clock.h"
#include "base/common.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOT_BYTES ((size_t)256 << 10) /* fits the cache: 1 MiB took more CPU time */
#define OUTBOX_BYTES ((size_t)128 << 10)
#define PIECE_BYTES ((size_t)32 << 10) /* the reader is woken after each, and copies while the writer goes on */
#define SPINS 2000
#define LOOK_NS (50 * MR_NS_PER_MS)
#define GRACE_NS (10 * MR_NS_PER_S)
#define RANKS_MAX 4096u

enum failed { FAILED_NONE, FAILED_CLAIMED, FAILED_SET };
enum call { CALL_BARRIER = 1, CALL_U64, CALL_F64, CALL_BCAST, CALL_GATHER };

struct shared {
    _Atomic uint32_t generation; /* futex word */
    _Atomic uint32_t arrived;
    _Atomic uint32_t failed;
    uint32_t failed_rank;
    bool died; /* without saying why */
    struct mr_error why;
    struct {
        _Atomic uint32_t left; /* said goodbye, as opposed to died */
        _Atomic uint32_t lost; /* does not come any more: not worth waiting for */
        uint32_t call;         /* what this rank is calling: a mismatch is a bug worth naming */
        uint64_t len;
        /* Outbox, invariant 5. */
        _Atomic uint32_t to;       /* receiver + 1; 0: no message */
        _Atomic uint32_t progress; /* futex word: changes with head and tail */
        _Atomic uint64_t head, tail, message;
    } rank[];
};

struct fork_comm {
    struct mr_comm base;
    struct shared *shared;
    uint8_t *slots, *outboxes;
    size_t map_bytes;
    struct pollfd *life; /* read end for each rank; own: -1 */
    int own_life;        /* write end */
    pid_t *child;        /* rank 0: process of each rank */
};

static struct fork_comm *of(struct mr_comm *c)
{
    return MR_CONTAINER_OF(c, struct fork_comm, base);
}

static uint8_t *slot(const struct fork_comm *f, uint32_t rank)
{
    return f->slots + rank * SLOT_BYTES;
}

/* Invariant 2: the first to claim writes the cause. */
static void set_failure(struct shared *s, uint32_t rank, const struct mr_error *why, bool died)
{
    uint32_t none = FAILED_NONE;
    if (!atomic_compare_exchange_strong(&s->failed, &none, FAILED_CLAIMED))
        return;
    s->failed_rank = rank;
    s->died = died;
    s->why = *why;
    atomic_store(&s->failed, FAILED_SET);
    mr_futex_wake(&s->generation, FUTEX_BITSET_MATCH_ANY);
}

/* How a child ended, which only its parent, rank 0, can know. It closes its pipe a moment before it can be waited for.
 */
static bool cause_of_death(const struct fork_comm *f, uint32_t rank, char text[80])
{
    siginfo_t end = {0};
    if (f->base.rank != 0 || rank == 0 || f->child[rank] <= 0)
        return false;
    for (unsigned k = 0; k < 50 && end.si_pid == 0; k++) {
        if (waitid(P_PID, (id_t)f->child[rank], &end, WEXITED | WNOHANG | WNOWAIT) != 0)
            return false;
        if (end.si_pid == 0)
            mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + 2 * MR_NS_PER_MS, NULL);
    }
    if (end.si_pid == 0)
        return false;
    if (end.si_code == CLD_EXITED)
        snprintf(text, 80, "exit status %d", end.si_status);
    else
        snprintf(text, 80, "signal %d (%.30s)%s", end.si_status, strsignal(end.si_status),
                 end.si_status == SIGKILL ? ", perhaps for want of memory" : "");
    return true;
}

static int peer_error(const struct fork_comm *f, struct mr_error *err)
{
    const struct shared *s = f->shared;
    char cause[80];
    if (s->died && cause_of_death(f, s->failed_rank, cause))
        mr_error_plain(err, MR_E_PEER, "rank %u failed: its process died: %s", s->failed_rank, cause);
    else
        mr_error_plain(err, MR_E_PEER, "rank %u failed: %s", s->failed_rank, s->why.message);
    if (s->why.context[0])
        mr_error_context(err, "%s", s->why.context);
    if (s->why.hint[0])
        mr_error_hint(err, "%s", s->why.hint);
    return MR_E_PEER;
}

/* Marks the first rank found hung up, if this generation can therefore never complete. */
static void look_for_deaths(struct fork_comm *f, uint32_t generation)
{
    struct shared *s = f->shared;
    if (poll(f->life, f->base.world, 0) <= 0)
        return;
    for (uint32_t r = 0; r < f->base.world; r++) {
        if (!(f->life[r].revents & (POLLHUP | POLLERR | POLLNVAL)))
            continue;
        if (atomic_load(&s->generation) != generation) /* invariant 3 */
            return;
        struct mr_error why = {0};
        bool left = atomic_load(&s->rank[r].left);
        mr_error_plain(&why, MR_E_PEER, left ? "it left the job before the others" : "its process died without a word");
        set_failure(s, r, &why, !left);
        return;
    }
}

static int enter_and_wait(struct fork_comm *f, struct mr_error *err)
{
    struct shared *s = f->shared;
    if (atomic_load(&s->failed) == FAILED_SET)
        return peer_error(f, err);
    uint32_t generation = atomic_load(&s->generation);
    if (atomic_fetch_add(&s->arrived, 1) + 1 == f->base.world) {
        atomic_store(&s->arrived, 0);
        atomic_fetch_add(&s->generation, 1);
        mr_futex_wake(&s->generation, FUTEX_BITSET_MATCH_ANY);
        return 0;
    }
    for (unsigned claimed = 0; atomic_load(&s->generation) == generation;) {
        uint32_t failed = atomic_load(&s->failed);
        if (failed == FAILED_SET)
            return peer_error(f, err);
        claimed = failed == FAILED_CLAIMED ? claimed + 1 : 0;
        if (claimed * LOOK_NS > MR_NS_PER_S) /* killed while it wrote why */
            return mr_error_plain(err, MR_E_PEER, "a rank died while it reported a failure");
        mr_futex_wait(&s->generation, generation, LOOK_NS, FUTEX_BITSET_MATCH_ANY);
        if (atomic_load(&s->generation) == generation)
            look_for_deaths(f, generation);
    }
    return 0;
}

static int mismatch(struct fork_comm *f, uint32_t rank, struct mr_error *err)
{
    static const char *const names[] = {"nothing", "barrier", "allreduce_u64", "allreduce_f64", "bcast", "gather"};
    struct shared *s = f->shared;
    struct mr_error why;
    uint32_t other = s->rank[rank].call, own = s->rank[f->base.rank].call;
    mr_error_plain(&why, MR_E_INTERNAL, "rank %u calls %s of %llu bytes while rank %u calls %s of %llu bytes",
                   f->base.rank, names[own], (unsigned long long)s->rank[f->base.rank].len, rank, names[other],
                   (unsigned long long)s->rank[rank].len);
    set_failure(s, f->base.rank, &why, false);
    if (err)
        *err = why;
    return MR_E_INTERNAL;
}

/* Publishes what this rank calls and its piece of data, waits for all, and checks that they call the same. */
static int publish(struct fork_comm *f, enum call call, const void *data, size_t len, struct mr_error *err)
{
    struct shared *s = f->shared;
    uint32_t me = f->base.rank;
    s->rank[me].call = call;
    s->rank[me].len = len;
    if (data && len)
        memcpy(slot(f, me), data, len);
    int code = enter_and_wait(f, err);
    for (uint32_t r = 0; !code && r < f->base.world; r++)
        if (s->rank[r].call != (uint32_t)call || s->rank[r].len != len)
            code = mismatch(f, r, err);
    return code;
}

static int fork_barrier(struct mr_comm *c, struct mr_error *err)
{
    int code = publish(of(c), CALL_BARRIER, NULL, 0, err);
    return code ? code : enter_and_wait(of(c), err);
}

#define DEFINE_REDUCE(NAME, TYPE)                                                                                      \
    static void NAME(const struct fork_comm *f, TYPE *v, size_t n, enum mr_comm_op op)                                 \
    {                                                                                                                  \
        memcpy(v, slot(f, 0), n * sizeof(*v));                                                                         \
        for (uint32_t r = 1; r < f->base.world; r++) {                                                                 \
            const TYPE *from = (const TYPE *)(const void *)slot(f, r);                                                 \
            for (size_t i = 0; i < n; i++)                                                                             \
                v[i] = op == MR_COMM_SUM   ? v[i] + from[i]                                                            \
                       : op == MR_COMM_MIN ? MR_MIN(v[i], from[i])                                                     \
                                           : MR_MAX(v[i], from[i]);                                                    \
        }                                                                                                              \
    }
DEFINE_REDUCE(reduce_u64, uint64_t)
DEFINE_REDUCE(reduce_f64, double)

/* Both kinds of number have 8 bytes. */
static int allreduce(struct mr_comm *c, enum call call, void *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    struct fork_comm *f = of(c);
    int code = 0;
    for (size_t at = 0; at < n && !code;) {
        size_t run = MR_MIN(n - at, SLOT_BYTES / 8);
        uint8_t *piece = (uint8_t *)v + at * 8;
        code = publish(f, call, piece, run * 8, err);
        if (!code && call == CALL_U64)
            reduce_u64(f, (uint64_t *)(void *)piece, run, op);
        else if (!code)
            reduce_f64(f, (double *)(void *)piece, run, op);
        if (!code)
            code = enter_and_wait(f, err);
        at += run;
    }
    return code;
}

static int fork_allreduce_u64(struct mr_comm *c, uint64_t *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    return allreduce(c, CALL_U64, v, n, op, err);
}

static int fork_allreduce_f64(struct mr_comm *c, double *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    return allreduce(c, CALL_F64, v, n, op, err);
}

static int fork_bcast(struct mr_comm *c, void *buf, size_t len, uint32_t root, struct mr_error *err)
{
    struct fork_comm *f = of(c);
    int code = 0;
    for (size_t at = 0; at < len && !code;) {
        size_t run = MR_MIN(len - at, SLOT_BYTES);
        code = publish(f, CALL_BCAST, c->rank == root ? (uint8_t *)buf + at : NULL, run, err);
        if (!code && c->rank != root)
            memcpy((uint8_t *)buf + at, slot(f, root), run);
        if (!code)
            code = enter_and_wait(f, err);
        at += run;
    }
    return code;
}

static int fork_gather(struct mr_comm *c, const void *send, size_t len, void *recv, uint32_t root, struct mr_error *err)
{
    struct fork_comm *f = of(c);
    int code = 0;
    for (size_t at = 0; at < len && !code;) {
        size_t run = MR_MIN(len - at, SLOT_BYTES);
        code = publish(f, CALL_GATHER, (const uint8_t *)send + at, run, err);
        for (uint32_t r = 0; !code && c->rank == root && r < c->world; r++)
            memcpy((uint8_t *)recv + r * len + at, slot(f, r), run);
        if (!code)
            code = enter_and_wait(f, err);
        at += run;
    }
    return code;
}

/* ---- point to point ---- */

static uint8_t *outbox(const struct fork_comm *f, uint32_t rank)
{
    return f->outboxes + rank * OUTBOX_BYTES;
}

static void report_progress(struct shared *s, uint32_t owner)
{
    atomic_fetch_add(&s->rank[owner].progress, 1);
    mr_futex_wake(&s->rank[owner].progress, FUTEX_BITSET_MATCH_ANY);
}

typedef bool ready_fn(const struct shared *s, uint32_t owner, uint32_t me);

static bool has_room(const struct shared *s, uint32_t owner, uint32_t me)
{
    (void)me;
    return atomic_load(&s->rank[owner].head) - atomic_load(&s->rank[owner].tail) < OUTBOX_BYTES;
}

static bool is_read(const struct shared *s, uint32_t owner, uint32_t me)
{
    (void)me;
    return atomic_load(&s->rank[owner].head) == atomic_load(&s->rank[owner].tail);
}

static bool has_data(const struct shared *s, uint32_t owner, uint32_t me)
{
    return atomic_load(&s->rank[owner].to) == me + 1 && !is_read(s, owner, me);
}

/* Waits until `ready` of the outbox of `owner`. The peer's end counts only if it is still not ready afterwards. */
static int wait_for_outbox(struct fork_comm *f, uint32_t owner, uint32_t peer, ready_fn *ready, struct mr_error *err)
{
    struct shared *s = f->shared;
    for (unsigned k = 0; k < SPINS; k++)
        if (ready(s, owner, f->base.rank))
            return 0;
    for (;;) {
        uint32_t seen = atomic_load(&s->rank[owner].progress);
        if (ready(s, owner, f->base.rank))
            return 0;
        if (atomic_load(&s->failed) == FAILED_SET)
            return peer_error(f, err);
        struct pollfd life = f->life[peer];
        bool gone = poll(&life, 1, 0) > 0 && (life.revents & (POLLHUP | POLLERR | POLLNVAL));
        if (gone && !ready(s, owner, f->base.rank)) {
            struct mr_error why = {0};
            bool left = atomic_load(&s->rank[peer].left);
            mr_error_plain(&why, MR_E_PEER,
                           left ? "it left the job before the others" : "its process died without a word");
            set_failure(s, peer, &why, !left);
            continue;
        }
        if (!gone)
            mr_futex_wait(&s->rank[owner].progress, seen, LOOK_NS, FUTEX_BITSET_MATCH_ANY);
    }
}

static int fork_send(struct mr_comm *c, const void *buf, size_t len, uint32_t to, struct mr_error *err)
{
    struct fork_comm *f = of(c);
    struct shared *s = f->shared;
    uint32_t me = c->rank;
    atomic_store(&s->rank[me].message, len);
    atomic_store(&s->rank[me].to, to + 1);
    int code = 0;
    for (size_t at = 0; at < len && !code;) {
        code = wait_for_outbox(f, me, to, has_room, err);
        if (code)
            break;
        uint64_t head = atomic_load(&s->rank[me].head), room = OUTBOX_BYTES - (head - atomic_load(&s->rank[me].tail));
        size_t run = MR_MIN(MR_MIN(len - at, PIECE_BYTES), MR_MIN(room, OUTBOX_BYTES - head % OUTBOX_BYTES));
        memcpy(outbox(f, me) + head % OUTBOX_BYTES, (const uint8_t *)buf + at, run);
        atomic_store(&s->rank[me].head, head + run);
        report_progress(s, me);
        at += run;
    }
    if (!code)
        code = wait_for_outbox(f, me, to, is_read, err);
    atomic_store(&s->rank[me].to, 0);
    return code;
}

static int fork_recv(struct mr_comm *c, void *buf, size_t len, uint32_t from, struct mr_error *err)
{
    struct fork_comm *f = of(c);
    struct shared *s = f->shared;
    int code = 0;
    for (size_t at = 0; at < len && !code;) {
        code = wait_for_outbox(f, from, from, has_data, err);
        if (!code && at == 0 && atomic_load(&s->rank[from].message) != len) {
            struct mr_error why;
            code = mr_error_plain(&why, MR_E_INTERNAL, "rank %u receives %zu bytes while rank %u sends %llu", c->rank,
                                  len, from, (unsigned long long)atomic_load(&s->rank[from].message));
            set_failure(s, c->rank, &why, false);
            if (err)
                *err = why;
        }
        if (code)
            break;
        uint64_t tail = atomic_load(&s->rank[from].tail), there = atomic_load(&s->rank[from].head) - tail;
        size_t run = MR_MIN(MR_MIN(len - at, there), MR_MIN(PIECE_BYTES, OUTBOX_BYTES - tail % OUTBOX_BYTES));
        memcpy((uint8_t *)buf + at, outbox(f, from) + tail % OUTBOX_BYTES, run);
        atomic_store(&s->rank[from].tail, tail + run);
        report_progress(s, from);
        at += run;
    }
    return code;
}

static void fork_fail(struct mr_comm *c, const struct mr_error *why)
{
    set_failure(of(c)->shared, c->rank, why, false);
}

static void fork_lose(struct mr_comm *c, uint32_t rank, const struct mr_error *why)
{
    struct shared *s = of(c)->shared;
    atomic_store(&s->rank[rank].lost, 1);
    set_failure(s, rank, why, false);
}

/* A healthy child may work as long as it likes; once the job has failed it gets ten seconds to end by itself, unless it
 * was lost. */
static void reap(struct fork_comm *f)
{
    uint64_t deadline = 0;
    for (uint32_t r = 1; r < f->base.world;) {
        int status;
        pid_t done = f->child[r] > 0 ? waitpid(f->child[r], &status, WNOHANG) : -1;
        if (done != 0 && !(done < 0 && errno == EINTR)) {
            r++;
            continue;
        }
        uint64_t now = mr_now_ns();
        if (!deadline && atomic_load(&f->shared->failed) == FAILED_SET)
            deadline = now + GRACE_NS;
        if ((deadline && now > deadline) || atomic_load(&f->shared->rank[r].lost))
            kill(f->child[r], SIGKILL);
        mr_clock_sleep_until(mr_clock_real(), now + 2 * MR_NS_PER_MS, NULL);
    }
}

/* Also undoes a half-made job. */
static void free_job(struct fork_comm *f)
{
    for (uint32_t r = 0; f->life && r < f->base.world; r++)
        if (f->life[r].fd >= 0)
            close(f->life[r].fd);
    if (f->own_life >= 0)
        close(f->own_life);
    if (f->shared)
        munmap(f->shared, f->map_bytes);
    free(f->life);
    free(f->child);
    free(f);
}

static void fork_close(struct mr_comm *c)
{
    struct fork_comm *f = of(c);
    atomic_store(&f->shared->rank[c->rank].left, 1);
    if (c->rank == 0) {
        close(f->own_life); /* so that children who still wait for us learn it while we reap them */
        f->own_life = -1;
        reap(f);
    }
    free_job(f);
}

static const struct mr_comm_ops fork_ops = {.abi = MR_COMM_ABI,
                                            .size = sizeof(struct mr_comm_ops),
                                            .name = "fork",
                                            .doc = "local processes, no MPI",
                                            .caps = MR_COMM_CAP_FORKED,
                                            .barrier = fork_barrier,
                                            .allreduce_u64 = fork_allreduce_u64,
                                            .allreduce_f64 = fork_allreduce_f64,
                                            .bcast = fork_bcast,
                                            .gather = fork_gather,
                                            .fail = fork_fail,
                                            .close = fork_close,
                                            .send = fork_send,
                                            .recv = fork_recv,
                                            .file_open = mr_comm_no_file_open,
                                            .file_read = mr_comm_no_file_read,
                                            .file_close = mr_comm_no_file_close,
                                            .lose = fork_lose};

static int map_shared(struct fork_comm *f)
{
    uint32_t world = f->base.world;
    size_t head = MR_ALIGN_UP(sizeof(struct shared) + world * sizeof(f->shared->rank[0]), (size_t)4096);
    f->map_bytes = head + world * (SLOT_BYTES + OUTBOX_BYTES);
    void *map = mmap(NULL, f->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return -errno;
    f->shared = map;
    f->slots = (uint8_t *)map + head;
    f->outboxes = f->slots + world * SLOT_BYTES;
    return 0;
}

/* After fork: keep the own write end and the others' read ends. */
static void become(struct fork_comm *f, uint32_t rank, int *write_end)
{
    f->base.rank = f->base.local_rank = rank;
    f->own_life = write_end[rank];
    for (uint32_t r = 0; r < f->base.world; r++)
        if (r != rank)
            close(write_end[r]);
    close(f->life[rank].fd);
    f->life[rank].fd = -1;
}

/* Returns in every process of the job; on failure only here, with the children that were made already ended. */
static int fork_all(struct fork_comm *f, int *write_end, struct mr_error *err)
{
    fflush(NULL); /* or every child would print what is still buffered */
    for (uint32_t r = 1; r < f->base.world; r++) {
        pid_t pid = fork();
        if (pid == 0) {
            become(f, r, write_end);
            return 0;
        }
        if (pid < 0) {
            int code = -errno;
            for (uint32_t k = 1; k < r; k++) {
                kill(f->child[k], SIGKILL);
                waitpid(f->child[k], NULL, 0);
            }
            return mr_error_set(err, code, "cannot start rank %u of %u", r, f->base.world);
        }
        f->child[r] = pid;
    }
    become(f, 0, write_end);
    return 0;
}

static int make_pipes(struct fork_comm *f, int *write_end)
{
    for (uint32_t r = 0; r < f->base.world; r++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC))
            return -errno;
        f->life[r] = (struct pollfd){.fd = ends[0], .events = 0};
        write_end[r] = ends[1];
    }
    return 0;
}

static struct fork_comm *alloc_job(uint32_t ranks)
{
    struct fork_comm *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->base = (struct mr_comm){.ops = &fork_ops, .world = ranks, .local_world = ranks};
    f->own_life = -1;
    f->life = malloc(ranks * sizeof(*f->life));
    f->child = calloc(ranks, sizeof(*f->child));
    for (uint32_t r = 0; f->life && r < ranks; r++)
        f->life[r].fd = -1;
    if (f->life && f->child)
        return f;
    free_job(f);
    return NULL;
}

int mr_comm_fork_open(uint32_t ranks, struct mr_comm **out, struct mr_error *err)
{
    if (ranks < 1 || ranks > RANKS_MAX)
        return mr_error_plain(err, MR_E_USAGE, "%u local ranks: want 1 to %u", ranks, RANKS_MAX);
    struct fork_comm *f = alloc_job(ranks);
    int *write_end = calloc(ranks, sizeof(*write_end));
    int code = f && write_end ? map_shared(f) : -ENOMEM;
    for (uint32_t r = 0; write_end && r < ranks; r++)
        write_end[r] = -1;
    if (!code)
        code = make_pipes(f, write_end);
    if (!code)
        code = fork_all(f, write_end, err);
    else if (mr_error_set(err, code, "cannot set up %u local ranks", ranks) == -EMFILE)
        mr_error_hint(err, "raise the limit of open files: ulimit -n %u", 2 * ranks + 256);
    if (!code) {
        *out = &f->base;
    } else {
        for (uint32_t r = 0; write_end && r < ranks; r++)
            if (write_end[r] >= 0)
                close(write_end[r]);
        if (f)
            free_job(f);
    }
    free(write_end);
    return code;
}
