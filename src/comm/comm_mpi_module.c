/* Ranks over MPI: the loadable module, and the only includer of mpi.h. Standard MPI 3 only, so that it builds against
 * Open MPI, MPICH and their descendants. It stands alone (it calls nothing of the program that loads it) and exports
 * one symbol.
 *
 * Waiting: every collective is started in its non-blocking form and tested in a loop that also looks for a failure
 * notice, a message that a failing rank sends to all others. MPI itself cannot interrupt a pending collective, and
 * never MPI_Abort: the program decides how it ends. The loop sleeps between tests, a little longer each time: ranks
 * that wait should not steal cores from those that read.
 *
 * Death: most launchers end a job that has lost a process, but not all do. Every rank holds a pidfd of the others on
 * its host and looks at them while it waits; the first to see one end tells the ranks on other hosts. A rank that ends
 * in order has sent all that the others wait for, or a notice, so an end counts only when neither has come some time
 * after it.
 *
 * Invariants: 1. All calls come from one thread (MPI_THREAD_FUNNELED). 2. After `failed` no MPI call waits without a
 * time limit. 3. A pidfd is opened while its rank takes part in a collective, so it can be of no later process. */
#include "comm/comm.h"

#include <mpi.h>

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FAIL_TAG 7001
#define PAIR_TAG 7002
#define READERS_TAG 7003
#define ELEMENTS_MAX (1 << 24) /* counts are int in MPI */
#define LEAVE_LIMIT_S 5.0
#define BUSY_ROUNDS 100u  /* without sleeping */
#define LOOK_ROUNDS 64u   /* of the longest sleep: about 40 ms between looks at the peers */
#define DEATH_GRACE_S 1.0 /* for what a rank sent before it ended */

/* What a failing rank sends, or a rank that has seen another die. */
struct notice {
    struct mr_error why;
    int32_t dead; /* rank, or -1: the sender itself has failed and is there to tell */
};

struct peer {
    uint64_t pid_namespace;
    int64_t pid;
    int32_t rank;
    int32_t unused;
};

struct mpi_comm {
    struct mr_comm base;
    MPI_Comm world, control; /* collectives; failure notices and leaving */
    MPI_Comm reading;        /* of the first n_reading ranks, for MPI-IO; made when needed */
    uint32_t n_reading;
    bool failed;
    struct mr_error why;
    struct notice notice; /* being sent */
    MPI_Request *notices;
    /* The other ranks on this host. */
    struct pollfd *life; /* pidfds */
    struct peer *peer;
    unsigned n_peers;
    /* A rank that another thread has taken for lost: rank + 1, set after why. */
    _Atomic uint32_t lost;
    struct mr_error lost_why;
    _Atomic bool losing;
    int dead; /* index of the first that was seen to have ended, or -1 */
    double dead_at;
};

static int set_error(struct mr_error *err, int code, const char *what, const char *detail)
{
    if (err) {
        memset(err, 0, sizeof *err);
        err->code = code;
        snprintf(err->message, sizeof err->message, "%s%s%s", what, *detail ? ": " : "", detail);
    }
    return code;
}

static int mpi_error(struct mr_error *err, const char *what, int mpi_code)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int len = 0;
    MPI_Error_string(mpi_code, text, &len);
    text[len] = '\0';
    return set_error(err, MR_E_PEER, what, text);
}

static struct mpi_comm *of(struct mr_comm *c)
{
    return (struct mpi_comm *)(void *)c; /* base is the first member */
}

static int peer_error(const struct mpi_comm *m, struct mr_error *err)
{
    if (err)
        *err = m->why;
    return MR_E_PEER;
}

static bool is_known_dead(const struct mpi_comm *m, uint32_t rank)
{
    for (unsigned i = 0; i < m->n_peers; i++)
        if ((uint32_t)m->peer[i].rank == rank)
            return poll(&(struct pollfd){.fd = m->life[i].fd, .events = POLLIN}, 1, 0) > 0;
    return false;
}

static void find_speaker(struct mpi_comm *m, int32_t dead)
{
    uint32_t r = 0;
    while (r < m->base.rank && (r == (uint32_t)dead || is_known_dead(m, r)))
        r++;
    m->base.speaker = r;
}

/* Takes a failure notice if one has come. */
static bool look_for_notice(struct mpi_comm *m)
{
    int have = 0, bytes = 0;
    MPI_Status status;
    struct notice n = {.dead = -1};
    if (MPI_Iprobe(MPI_ANY_SOURCE, FAIL_TAG, m->control, &have, &status) != MPI_SUCCESS || !have)
        return false;
    if (MPI_Recv(&n, (int)sizeof n, MPI_BYTE, status.MPI_SOURCE, FAIL_TAG, m->control, &status) != MPI_SUCCESS)
        return false;
    if (MPI_Get_count(&status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes != (int)sizeof n || !n.why.message[0]) {
        /* The sender was gone before all of it was here. If a rank on this host has ended, that will be found, and is
         * the better story. */
        if (m->n_peers && poll(m->life, m->n_peers, 0) > 0)
            return false;
        n = (struct notice){.dead = -1};
        snprintf(n.why.message, sizeof n.why.message, "it ended before it could say why");
    }
    m->failed = true;
    m->why = n.why;
    m->why.code = MR_E_PEER;
    if (n.dead >= 0)
        find_speaker(m, n.dead);
    else
        snprintf(m->why.message, sizeof m->why.message, "rank %d failed: %.700s", status.MPI_SOURCE, n.why.message);
    return true;
}

static void nap(unsigned *round)
{
    struct timespec t = {.tv_nsec = *round < BUSY_ROUNDS ? 0 : *round < 1000 ? 20000 : 500000};
    if (++*round > BUSY_ROUNDS)
        nanosleep(&t, NULL);
}

static void send_notices(struct mpi_comm *m, int dead)
{
    m->notice = (struct notice){.why = m->why, .dead = dead};
    m->notices = calloc(m->base.world, sizeof(*m->notices));
    for (uint32_t r = 0; m->notices && r < m->base.world; r++) {
        m->notices[r] = MPI_REQUEST_NULL;
        if (r != m->base.rank && (int)r != dead)
            MPI_Isend(&m->notice, (int)sizeof m->notice, MPI_BYTE, (int)r, FAIL_TAG, m->control, &m->notices[r]);
    }
}

/* Has a rank on this host ended, long enough ago? */
static bool peer_is_dead(struct mpi_comm *m)
{
    bool ended = m->dead < 0 && m->n_peers && poll(m->life, m->n_peers, 0) > 0;
    for (unsigned i = 0; ended && m->dead < 0 && i < m->n_peers; i++) {
        if (m->life[i].revents & POLLIN) {
            m->dead = (int)i;
            m->dead_at = MPI_Wtime();
        }
    }
    return m->dead >= 0 && MPI_Wtime() - m->dead_at > DEATH_GRACE_S;
}

static void fail_for_the_dead(struct mpi_comm *m)
{
    const struct peer *p = &m->peer[m->dead];
    m->failed = true;
    m->why = (struct mr_error){.code = MR_E_PEER};
    snprintf(m->why.message, sizeof m->why.message, "rank %d failed: its process (%lld) died without a word",
             (int)p->rank, (long long)p->pid);
    find_speaker(m, p->rank);
    send_notices(m, (int)p->rank);
}

/* From any thread: MPI is not called here. The first one counts. */
static void mpi_lose(struct mr_comm *c, uint32_t rank, const struct mr_error *why)
{
    struct mpi_comm *m = of(c);
    if (atomic_exchange(&m->losing, true))
        return;
    m->lost_why = *why;
    atomic_store(&m->lost, rank + 1);
}

static bool fail_for_the_lost(struct mpi_comm *m)
{
    uint32_t lost = atomic_load(&m->lost);
    if (!lost)
        return false;
    m->failed = true;
    m->why = m->lost_why;
    m->why.code = MR_E_PEER;
    snprintf(m->why.message, sizeof m->why.message, "rank %u failed: %.700s", lost - 1, m->lost_why.message);
    find_speaker(m, (int32_t)(lost - 1));
    send_notices(m, (int)(lost - 1));
    return true;
}

/* limit_s 0: as long as it takes. */
static int wait_for(struct mpi_comm *m, MPI_Request *request, const char *what, int started, double limit_s,
                    struct mr_error *err)
{
    if (started != MPI_SUCCESS)
        return mpi_error(err, what, started);
    double begin = MPI_Wtime();
    for (unsigned round = 0;; nap(&round)) {
        int done = 0, code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            return mpi_error(err, what, code);
        if (done)
            return 0;
        if (limit_s == 0 && (look_for_notice(m) || fail_for_the_lost(m)))
            return peer_error(m, err);
        if (round > BUSY_ROUNDS && round % LOOK_ROUNDS == 0 && peer_is_dead(m)) {
            if (limit_s > 0) { /* leaving: it may have left before us, and what it sent is late */
                limit_s = limit_s < LEAVE_LIMIT_S ? limit_s : LEAVE_LIMIT_S;
            } else {
                fail_for_the_dead(m);
                return peer_error(m, err);
            }
        }
        if (limit_s > 0 && MPI_Wtime() - begin > limit_s)
            return set_error(err, MR_E_PEER, what, "timed out");
    }
}

static int mpi_barrier(struct mr_comm *c, struct mr_error *err)
{
    struct mpi_comm *m = of(c);
    MPI_Request request;
    if (m->failed)
        return peer_error(m, err);
    /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): wait_for waits for it */
    return wait_for(m, &request, "barrier", MPI_Ibarrier(m->world, &request), 0, err);
}

static int allreduce(struct mpi_comm *m, void *v, size_t n, MPI_Datatype type, enum mr_comm_op op, struct mr_error *err)
{
    MPI_Op mpi_op = op == MR_COMM_SUM ? MPI_SUM : op == MR_COMM_MIN ? MPI_MIN : MPI_MAX;
    int code = m->failed ? peer_error(m, err) : 0;
    for (size_t at = 0; at < n && !code; at += ELEMENTS_MAX) {
        MPI_Request request;
        int count = (int)(n - at < ELEMENTS_MAX ? n - at : ELEMENTS_MAX);
        char *piece = (char *)v + at * 8;
        /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): wait_for waits for it */
        code = wait_for(m, &request, "allreduce",
                        MPI_Iallreduce(MPI_IN_PLACE, piece, count, type, mpi_op, m->world, &request), 0, err);
    }
    return code;
}

/* MPICH 4.0 compares unsigned numbers as signed in MPI_MIN and MPI_MAX. With the top bit flipped the signed order is
 * the unsigned one, so that signed reductions give the right answer everywhere. */
static int mpi_allreduce_u64(struct mr_comm *c, uint64_t *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    if (op == MR_COMM_SUM)
        return allreduce(of(c), v, n, MPI_UINT64_T, op, err);
    for (size_t i = 0; i < n; i++)
        v[i] ^= 1ull << 63;
    int code = allreduce(of(c), v, n, MPI_INT64_T, op, err);
    for (size_t i = 0; i < n; i++)
        v[i] ^= 1ull << 63;
    return code;
}

static int mpi_allreduce_f64(struct mr_comm *c, double *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    return allreduce(of(c), v, n, MPI_DOUBLE, op, err);
}

static int mpi_bcast(struct mr_comm *c, void *buf, size_t len, uint32_t root, struct mr_error *err)
{
    struct mpi_comm *m = of(c);
    int code = m->failed ? peer_error(m, err) : 0;
    for (size_t at = 0; at < len && !code; at += ELEMENTS_MAX) {
        MPI_Request request;
        int count = (int)(len - at < ELEMENTS_MAX ? len - at : ELEMENTS_MAX);
        /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): wait_for waits for it */
        code = wait_for(m, &request, "bcast",
                        MPI_Ibcast((char *)buf + at, count, MPI_BYTE, (int)root, m->world, &request), 0, err);
    }
    return code;
}

static int mpi_gather(struct mr_comm *c, const void *send, size_t len, void *recv, uint32_t root, struct mr_error *err)
{
    struct mpi_comm *m = of(c);
    MPI_Request request;
    if (m->failed)
        return peer_error(m, err);
    if (len > ELEMENTS_MAX)
        return set_error(err, MR_E_LIMIT, "gather", "more than 16 MiB per rank");
    /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): wait_for waits for it */
    return wait_for(m, &request, "gather",
                    MPI_Igather(send, (int)len, MPI_BYTE, recv, (int)len, MPI_BYTE, (int)root, m->world, &request), 0,
                    err);
}

static int mpi_send(struct mr_comm *c, const void *buf, size_t len, uint32_t to, struct mr_error *err)
{
    struct mpi_comm *m = of(c);
    int code = m->failed ? peer_error(m, err) : 0;
    for (size_t at = 0; at < len && !code; at += ELEMENTS_MAX) {
        MPI_Request request;
        int count = (int)(len - at < ELEMENTS_MAX ? len - at : ELEMENTS_MAX);
        /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): wait_for waits for it */
        code =
            wait_for(m, &request, "send",
                     MPI_Isend((const char *)buf + at, count, MPI_BYTE, (int)to, PAIR_TAG, m->world, &request), 0, err);
    }
    return code;
}

static int mpi_recv(struct mr_comm *c, void *buf, size_t len, uint32_t from, struct mr_error *err)
{
    struct mpi_comm *m = of(c);
    int code = m->failed ? peer_error(m, err) : 0;
    for (size_t at = 0; at < len && !code; at += ELEMENTS_MAX) {
        MPI_Request request;
        int count = (int)(len - at < ELEMENTS_MAX ? len - at : ELEMENTS_MAX);
        /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): wait_for waits for it */
        code = wait_for(m, &request, "recv",
                        MPI_Irecv((char *)buf + at, count, MPI_BYTE, (int)from, PAIR_TAG, m->world, &request), 0, err);
    }
    return code;
}

/* ---- MPI-IO ---- */

struct mr_comm_file {
    MPI_File handle;
    bool together;
    char name[512];
};

static int file_error(struct mr_error *err, const char *name, int mpi_code)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "", what[640];
    int len = 0;
    MPI_Error_string(mpi_code, text, &len);
    text[len] = '\0';
    snprintf(what, sizeof what, "cannot read '%s' through MPI-IO", name);
    return set_error(err, -5, what, text); /* EIO */
}

/* The readers' own communicator; made once, by the readers alone. */
static int readers_of(struct mpi_comm *m, uint32_t readers, MPI_Comm *out)
{
    MPI_Group all, some;
    int range[1][3] = {{0, (int)readers - 1, 1}};
    *out = m->reading;
    if (m->n_reading == readers)
        return MPI_SUCCESS;
    int code = MPI_Comm_group(m->world, &all);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Group_range_incl(all, 1, range, &some);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_create_group(m->world, some, READERS_TAG, out);
        MPI_Group_free(&some);
    }
    MPI_Group_free(&all);
    if (code != MPI_SUCCESS)
        return code;
    MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
    m->reading = *out;
    m->n_reading = readers;
    return MPI_SUCCESS;
}

static int mpi_file_open(struct mr_comm *c, const char *path, uint32_t readers, struct mr_comm_file **out,
                         struct mr_error *err)
{
    struct mpi_comm *m = of(c);
    MPI_Comm who = MPI_COMM_SELF;
    struct mr_comm_file *f = calloc(1, sizeof(*f));
    if (m->failed || !f) {
        free(f);
        return m->failed ? peer_error(m, err)
                         : set_error(err, -12, "cannot open a file through MPI-IO", "out of memory");
    }
    f->together = readers > 0;
    snprintf(f->name, sizeof f->name, "%s", path);
    int code = readers ? readers_of(m, readers, &who) : MPI_SUCCESS;
    if (code == MPI_SUCCESS)
        code = MPI_File_open(who, path, MPI_MODE_RDONLY, MPI_INFO_NULL,
                             &f->handle); /* files return their errors by default */
    if (code != MPI_SUCCESS) {
        file_error(err, f->name, code);
        free(f);
        return -5;
    }
    *out = f;
    return 0;
}

static int mpi_file_read(struct mr_comm *c, struct mr_comm_file *f, void *buf, size_t len, uint64_t offset,
                         struct mr_error *err)
{
    MPI_Status status;
    int got = 0;
    (void)c;
    int code = f->together ? MPI_File_read_at_all(f->handle, (MPI_Offset)offset, buf, (int)len, MPI_BYTE, &status)
                           : MPI_File_read_at(f->handle, (MPI_Offset)offset, buf, (int)len, MPI_BYTE, &status);
    if (code != MPI_SUCCESS)
        return file_error(err, f->name, code);
    if (len == 0)
        return 0;
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got == (int)len)
        return 0;
    char what[700];
    snprintf(what, sizeof what, "unexpected end of file '%s' (want %zu bytes at %llu, have %d)", f->name, len,
             (unsigned long long)offset, got);
    return set_error(err, MR_E_FORMAT, what, "");
}

/* Closing waits for the other readers; after a failure they may be gone, and the process ends soon. */
static void mpi_file_close(struct mr_comm *c, struct mr_comm_file *f)
{
    if (!of(c)->failed)
        MPI_File_close(&f->handle);
    free(f);
}

static void mpi_fail(struct mr_comm *c, const struct mr_error *why)
{
    struct mpi_comm *m = of(c);
    if (m->failed)
        return;
    m->failed = true;
    m->why = *why;
    send_notices(m, -1);
}

static void forget_peers(struct mpi_comm *m)
{
    for (unsigned i = 0; i < m->n_peers; i++)
        close(m->life[i].fd);
    free(m->life);
    free(m->peer);
    m->life = NULL;
    m->peer = NULL;
    m->n_peers = 0;
}

/* Everybody leaves together; after a failure only if they all come within a few seconds. Without that MPI_Finalize may
 * wait for ever, so it is left out and the launcher cleans up. */
static void mpi_close(struct mr_comm *c)
{
    struct mpi_comm *m = of(c);
    MPI_Request request;
    int started = MPI_Ibarrier(m->control, &request);
    bool together = wait_for(m, &request, "leaving", started, m->failed ? LEAVE_LIMIT_S : 600, NULL) == 0;
    if (together && !m->failed) {
        if (m->n_reading)
            MPI_Comm_free(&m->reading);
        MPI_Comm_free(&m->world);
        MPI_Comm_free(&m->control);
    }
    if (together)
        MPI_Finalize();
    forget_peers(m);
    free(m->notices);
    free(m);
}

static const struct mr_comm_ops mpi_ops = {.abi = MR_COMM_ABI,
                                           .size = sizeof(struct mr_comm_ops),
                                           .name = "mpi",
                                           .doc = "processes started by mpirun or srun",
                                           .caps = MR_COMM_CAP_LAUNCHED | MR_COMM_CAP_MPI_IO,
                                           .barrier = mpi_barrier,
                                           .allreduce_u64 = mpi_allreduce_u64,
                                           .allreduce_f64 = mpi_allreduce_f64,
                                           .bcast = mpi_bcast,
                                           .gather = mpi_gather,
                                           .fail = mpi_fail,
                                           .close = mpi_close,
                                           .send = mpi_send,
                                           .recv = mpi_recv,
                                           .file_open = mpi_file_open,
                                           .file_read = mpi_file_read,
                                           .file_close = mpi_file_close,
                                           .lose = mpi_lose};

/* Where pidfds do not exist or may not be had, the launcher alone looks after the ranks, as it does for other hosts. */
static void watch_peers(struct mpi_comm *m, MPI_Comm node, int local_world)
{
    struct stat ns;
    struct peer me = {.pid_namespace = stat("/proc/self/ns/pid", &ns) == 0 ? (uint64_t)ns.st_ino : 0,
                      .pid = getpid(),
                      .rank = (int32_t)m->base.rank};
    m->dead = -1;
    m->peer = calloc((size_t)local_world, sizeof(*m->peer));
    m->life = calloc((size_t)local_world, sizeof(*m->life));
    int have = m->peer && m->life; /* all take part in what follows, or none */
    MPI_Allreduce(MPI_IN_PLACE, &have, 1, MPI_INT, MPI_MIN, node);
    if (have && m->peer && m->life &&
        MPI_Allgather(&me, (int)sizeof me, MPI_BYTE, m->peer, (int)sizeof me, MPI_BYTE, node) == MPI_SUCCESS) {
        for (int i = 0; i < local_world; i++) {
            struct peer p = m->peer[i];
            if (p.rank == me.rank || !p.pid_namespace || p.pid_namespace != me.pid_namespace)
                continue;
#ifdef SYS_pidfd_open
            int fd = (int)syscall(SYS_pidfd_open, (pid_t)p.pid, 0);
#else
            int fd = -1;
#endif
            if (fd < 0)
                continue;
            m->life[m->n_peers] = (struct pollfd){.fd = fd, .events = POLLIN};
            m->peer[m->n_peers++] = p;
        }
    }
    MPI_Barrier(node); /* invariant 3 */
}

static void find_place(struct mpi_comm *m)
{
    int rank, world, local_rank, local_world;
    MPI_Comm node;
    MPI_Comm_rank(m->world, &rank);
    MPI_Comm_size(m->world, &world);
    MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local_rank);
    MPI_Comm_size(node, &local_world);
    m->base = (struct mr_comm){.ops = &mpi_ops,
                               .rank = (uint32_t)rank,
                               .world = (uint32_t)world,
                               .local_rank = (uint32_t)local_rank,
                               .local_world = (uint32_t)local_world};
    watch_peers(m, node, local_world);
    MPI_Comm_free(&node);
}

__attribute__((visibility("default"))) mr_comm_module_open_fn mr_comm_module_open;

int mr_comm_module_open(uint32_t abi, struct mr_comm **out, struct mr_error *err)
{
    if (abi != MR_COMM_ABI)
        return set_error(err, MR_E_UNSUPPORTED, "the MPI module", "built for another version of millrace");
    int provided, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS)
        return mpi_error(err, "cannot initialise MPI", code);
    struct mpi_comm *m = calloc(1, sizeof(*m));
    if (!m)
        return set_error(err, -12, "cannot join the MPI job", "out of memory");
    code = MPI_Comm_dup(MPI_COMM_WORLD, &m->world);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_dup(MPI_COMM_WORLD, &m->control);
    if (code != MPI_SUCCESS) {
        free(m);
        return mpi_error(err, "cannot join the MPI job", code);
    }
    MPI_Comm_set_errhandler(m->world, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(m->control, MPI_ERRORS_RETURN);
    find_place(m);
    *out = &m->base;
    return 0;
}
