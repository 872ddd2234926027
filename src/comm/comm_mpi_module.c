/* Ranks over MPI: the loadable module, and the only includer of mpi.h. Standard MPI 3 only, so that it builds against
 * Open MPI, MPICH and their descendants. It stands alone (it calls nothing of the program that loads it) and exports
 * one symbol.
 *
 * Waiting: every collective is started in its non-blocking form and tested in a loop that also looks for a failure
 * notice, a message that a failing rank sends to all others. MPI itself cannot interrupt a pending collective, and
 * never MPI_Abort: the program decides how it ends. A rank that is killed is noticed by mpirun, which ends the job. The
 * loop sleeps between tests, a little longer each time: ranks that wait should not steal cores from those that read.
 *
 * Invariants: 1. All calls come from one thread (MPI_THREAD_FUNNELED). 2. After `failed` no MPI call waits without a
 * time limit. */
#include "comm/comm.h"

#include <mpi.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAIL_TAG 7001
#define PAIR_TAG 7002
#define READERS_TAG 7003
#define ELEMENTS_MAX (1 << 24) /* counts are int in MPI */
#define LEAVE_LIMIT_S 5.0

struct mpi_comm {
    struct mr_comm base;
    MPI_Comm world, control; /* collectives; failure notices and leaving */
    MPI_Comm reading;        /* of the first n_reading ranks, for MPI-IO; made when needed */
    uint32_t n_reading;
    bool failed;
    struct mr_error why;
    MPI_Request *notices;
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

/* Takes a failure notice if one has come. */
static bool look_for_notice(struct mpi_comm *m)
{
    int have = 0;
    MPI_Status status;
    struct mr_error why;
    if (MPI_Iprobe(MPI_ANY_SOURCE, FAIL_TAG, m->control, &have, &status) != MPI_SUCCESS || !have)
        return false;
    if (MPI_Recv(&why, (int)sizeof why, MPI_BYTE, status.MPI_SOURCE, FAIL_TAG, m->control, &status) != MPI_SUCCESS)
        return false;
    m->failed = true;
    m->why = why;
    m->why.code = MR_E_PEER;
    snprintf(m->why.message, sizeof m->why.message, "rank %d failed: %.700s", status.MPI_SOURCE, why.message);
    return true;
}

static void nap(unsigned *round)
{
    struct timespec t = {.tv_nsec = *round < 100 ? 0 : *round < 1000 ? 20000 : 500000};
    if (++*round > 100)
        nanosleep(&t, NULL);
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
        if (limit_s == 0 && look_for_notice(m))
            return peer_error(m, err);
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
        code = wait_for(m, &request, "send",
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

static int mpi_file_open(struct mr_comm *c, const char *path, uint32_t readers, struct mr_comm_file **out, struct mr_error *err)
{
    struct mpi_comm *m = of(c);
    MPI_Comm who = MPI_COMM_SELF;
    struct mr_comm_file *f = calloc(1, sizeof(*f));
    if (m->failed || !f) {
        free(f);
        return m->failed ? peer_error(m, err) : set_error(err, -12, "cannot open a file through MPI-IO", "out of memory");
    }
    f->together = readers > 0;
    snprintf(f->name, sizeof f->name, "%s", path);
    int code = readers ? readers_of(m, readers, &who) : MPI_SUCCESS;
    if (code == MPI_SUCCESS)
        code = MPI_File_open(who, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &f->handle); /* files return their errors by default */
    if (code != MPI_SUCCESS) {
        file_error(err, f->name, code);
        free(f);
        return -5;
    }
    *out = f;
    return 0;
}

static int mpi_file_read(struct mr_comm *c, struct mr_comm_file *f, void *buf, size_t len, uint64_t offset, struct mr_error *err)
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
    m->notices = calloc(c->world, sizeof(*m->notices));
    for (uint32_t r = 0; m->notices && r < c->world; r++) {
        m->notices[r] = MPI_REQUEST_NULL;
        if (r != c->rank)
            MPI_Isend(&m->why, (int)sizeof m->why, MPI_BYTE, (int)r, FAIL_TAG, m->control, &m->notices[r]);
    }
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
    free(m->notices);
    free(m);
}

static const struct mr_comm_ops mpi_ops = {.abi = MR_COMM_ABI,
                                           .size = sizeof(struct mr_comm_ops),
                                           .name = "mpi",
                                           .doc = "processes started by mpirun or srun",
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
                                           .file_close = mpi_file_close};

static void find_place(struct mpi_comm *m)
{
    int rank, world, local_rank, local_world;
    MPI_Comm node;
    MPI_Comm_rank(m->world, &rank);
    MPI_Comm_size(m->world, &world);
    MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local_rank);
    MPI_Comm_size(node, &local_world);
    MPI_Comm_free(&node);
    m->base = (struct mr_comm){.ops = &mpi_ops,
                               .rank = (uint32_t)rank,
                               .world = (uint32_t)world,
                               .local_rank = (uint32_t)local_rank,
                               .local_world = (uint32_t)local_world};
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
