/* Joining a job, the job of one, and what all backends share: agreeing on errors. */
#include "comm/comm.h"
#include "base/common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int self_barrier(struct mr_comm *c, struct mr_error *err)
{
    (void)c, (void)err;
    return 0;
}

static int self_allreduce_u64(struct mr_comm *c, uint64_t *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    (void)c, (void)v, (void)n, (void)op, (void)err;
    return 0;
}

static int self_allreduce_f64(struct mr_comm *c, double *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    (void)c, (void)v, (void)n, (void)op, (void)err;
    return 0;
}

static int self_bcast(struct mr_comm *c, void *buf, size_t len, uint32_t root, struct mr_error *err)
{
    (void)c, (void)buf, (void)len, (void)root, (void)err;
    return 0;
}

static int self_gather(struct mr_comm *c, const void *send, size_t len, void *recv, uint32_t root, struct mr_error *err)
{
    (void)c, (void)root, (void)err;
    if (len)
        memmove(recv, send, len);
    return 0;
}

/* There is no other rank; mr_comm_send and mr_comm_recv have refused before. */
static int self_send(struct mr_comm *c, const void *buf, size_t len, uint32_t to, struct mr_error *err)
{
    (void)c, (void)buf, (void)len, (void)to;
    return mr_error_plain(err, MR_E_USAGE, "a job of one rank has nobody to send to");
}

static int self_recv(struct mr_comm *c, void *buf, size_t len, uint32_t from, struct mr_error *err)
{
    (void)c, (void)buf, (void)len, (void)from;
    return mr_error_plain(err, MR_E_USAGE, "a job of one rank has nobody to receive from");
}

static void self_fail(struct mr_comm *c, const struct mr_error *why)
{
    (void)c, (void)why; /* nobody to tell */
}

static void self_lose(struct mr_comm *c, uint32_t rank, const struct mr_error *why)
{
    (void)c, (void)rank, (void)why;
}

static void self_close(struct mr_comm *c)
{
    free(c);
}

static const struct mr_comm_ops self_ops = {.abi = MR_COMM_ABI,
                                            .size = sizeof(struct mr_comm_ops),
                                            .name = "self",
                                            .doc = "a job of one process",
                                            .caps = MR_COMM_CAP_ONE_PROCESS,
                                            .barrier = self_barrier,
                                            .allreduce_u64 = self_allreduce_u64,
                                            .allreduce_f64 = self_allreduce_f64,
                                            .bcast = self_bcast,
                                            .gather = self_gather,
                                            .fail = self_fail,
                                            .close = self_close,
                                            .send = self_send,
                                            .recv = self_recv,
                                            .file_open = mr_comm_no_file_open,
                                            .file_read = mr_comm_no_file_read,
                                            .file_close = mr_comm_no_file_close,
                                            .lose = self_lose};

int mr_comm_no_file_open(struct mr_comm *c, const char *path, uint32_t readers, struct mr_comm_file **out,
                         struct mr_error *err)
{
    (void)readers, (void)out;
    mr_error_plain(err, MR_E_UNSUPPORTED, "cannot read '%s' through MPI-IO in a job without MPI (%s)", path,
                   c->ops->doc);
    return mr_error_hint(err, "start it with mpirun"), MR_E_UNSUPPORTED;
}

int mr_comm_no_file_read(struct mr_comm *c, struct mr_comm_file *f, void *buf, size_t len, uint64_t offset,
                         struct mr_error *err)
{
    (void)c, (void)f, (void)buf, (void)len, (void)offset;
    return mr_error_plain(err, MR_E_UNSUPPORTED, "there is no MPI-IO without MPI");
}

void mr_comm_no_file_close(struct mr_comm *c, struct mr_comm_file *f)
{
    (void)c, (void)f; /* never opened */
}

static int self_open(struct mr_comm **out, struct mr_error *err)
{
    struct mr_comm *c = calloc(1, sizeof(*c));
    if (!c)
        return mr_error_set(err, -ENOMEM, "cannot join a job");
    *c = (struct mr_comm){.ops = &self_ops, .world = 1, .local_world = 1};
    *out = c;
    return 0;
}

static int module_open(uint32_t expected, const char *launcher, struct mr_comm **out, struct mr_error *err)
{
    struct mr_comm *c;
    int code = mr_comm_module_load(&c, err);
    if (code == MR_E_UNSUPPORTED && expected == 1)
        return self_open(out, err); /* one process needs nobody's help */
    if (code)
        return code;
    if (c->world != expected) {
        uint32_t world = c->world;
        mr_comm_close(c);
        mr_error_plain(err, MR_E_UNSUPPORTED, "%s started %u processes, but MPI sees a job of %u", launcher, expected,
                       world);
        mr_error_hint(
            err,
            "start with the mpirun of an MPI that millrace was built with ('millrace doctor' names the module), or "
            "try 'srun --mpi=pmix' or 'srun --mpi=pmi2'");
        return MR_E_UNSUPPORTED;
    }
    *out = c;
    return 0;
}

int mr_comm_open(uint32_t ranks, int no_mpi, struct mr_comm **out, struct mr_error *err)
{
    const char *launcher = NULL;
    uint32_t started = no_mpi ? 0 : mr_comm_detect_launcher(&launcher);
    if (ranks > 1 && started > 1) {
        mr_error_plain(err, MR_E_USAGE, "%s has started %u processes already; each would fork %u ranks", launcher,
                       started, ranks);
        mr_error_hint(err, "leave out --ranks under %s", launcher);
        return MR_E_USAGE;
    }
    if (ranks > 1)
        return mr_comm_fork_open(ranks, out, err);
    return started ? module_open(started, launcher, out, err) : self_open(out, err);
}

bool mr_comm_is_launched(const struct mr_comm *c)
{
    return c->ops->caps & MR_COMM_CAP_LAUNCHED;
}

bool mr_comm_is_forked(const struct mr_comm *c)
{
    return c->ops->caps & MR_COMM_CAP_FORKED;
}

bool mr_comm_has_mpi_io(const struct mr_comm *c)
{
    return c->ops->caps & MR_COMM_CAP_MPI_IO;
}

void mr_comm_close(struct mr_comm *c)
{
    if (c)
        c->ops->close(c);
}

int mr_comm_barrier(struct mr_comm *c, struct mr_error *err)
{
    return c->ops->barrier(c, err);
}

int mr_comm_allreduce_u64(struct mr_comm *c, uint64_t *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    return c->ops->allreduce_u64(c, v, n, op, err);
}

int mr_comm_allreduce_f64(struct mr_comm *c, double *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    return c->ops->allreduce_f64(c, v, n, op, err);
}

static int check_root(const struct mr_comm *c, uint32_t root, struct mr_error *err)
{
    return root < c->world
               ? 0
               : mr_error_plain(err, MR_E_USAGE, "root %u does not exist in a job of %u ranks", root, c->world);
}

int mr_comm_bcast(struct mr_comm *c, void *buf, size_t len, uint32_t root, struct mr_error *err)
{
    int code = check_root(c, root, err);
    return code ? code : c->ops->bcast(c, buf, len, root, err);
}

int mr_comm_gather(struct mr_comm *c, const void *send, size_t len, void *recv, uint32_t root, struct mr_error *err)
{
    int code = check_root(c, root, err);
    return code ? code : c->ops->gather(c, send, len, recv, root, err);
}

int mr_comm_exchange(void *comm, const void *mine, size_t len, void *all, struct mr_error *err)
{
    struct mr_comm *c = comm;
    int rc = mr_comm_gather(c, mine, len, all, 0, err);
    return rc ? rc : mr_comm_bcast(c, all, len * c->world, 0, err);
}

static int check_peer(const struct mr_comm *c, uint32_t peer, struct mr_error *err)
{
    if (peer < c->world && peer != c->rank)
        return 0;
    return mr_error_plain(err, MR_E_USAGE, "rank %u cannot exchange with rank %u in a job of %u", c->rank, peer,
                          c->world);
}

int mr_comm_send(struct mr_comm *c, const void *buf, size_t len, uint32_t to, struct mr_error *err)
{
    int code = check_peer(c, to, err);
    return code ? code : c->ops->send(c, buf, len, to, err);
}

int mr_comm_recv(struct mr_comm *c, void *buf, size_t len, uint32_t from, struct mr_error *err)
{
    int code = check_peer(c, from, err);
    return code ? code : c->ops->recv(c, buf, len, from, err);
}

int mr_comm_file_open(struct mr_comm *c, const char *path, uint32_t readers, struct mr_comm_file **out,
                      struct mr_error *err)
{
    if (readers && (readers > c->world || c->rank >= readers))
        return mr_error_plain(err, MR_E_USAGE, "rank %u is none of %u readers", c->rank, readers);
    return c->ops->file_open(c, path, readers, out, err);
}

int mr_comm_file_read(struct mr_comm *c, struct mr_comm_file *f, void *buf, size_t len, uint64_t offset,
                      struct mr_error *err)
{
    if (len > MR_COMM_FILE_READ_MAX) {
        mr_error_plain(err, MR_E_LIMIT, "%zu bytes are too many for one read through MPI-IO", len);
        return mr_error_hint(err, "set reader.transfer_size to 1GiB or less"), MR_E_LIMIT;
    }
    return c->ops->file_read(c, f, buf, len, offset, err);
}

void mr_comm_file_close(struct mr_comm *c, struct mr_comm_file *f)
{
    if (f)
        c->ops->file_close(c, f);
}

void mr_comm_fail(struct mr_comm *c, const struct mr_error *why)
{
    c->ops->fail(c, why);
}

void mr_comm_lose(struct mr_comm *c, uint32_t rank, const struct mr_error *why)
{
    if (rank < c->world && rank != c->rank)
        c->ops->lose(c, rank, why);
}

int mr_comm_agree(struct mr_comm *c, int my_code, struct mr_error *err)
{
    struct mr_error mine = {0};
    if (my_code < 0 && err && err->code == my_code)
        mine = *err;
    else if (my_code < 0)
        mr_error_plain(&mine, my_code, "%s", mr_error_name(my_code));
    uint64_t lowest = my_code < 0 ? c->rank : c->world;
    int code = c->ops->allreduce_u64(c, &lowest, 1, MR_COMM_MIN, err);
    if (code)
        return code;
    if (lowest == c->world)
        return 0;
    code = c->ops->bcast(c, &mine, sizeof mine, (uint32_t)lowest, err);
    if (code)
        return code;
    if (c->world > 1)
        mr_error_context(&mine, "rank %u", (unsigned)lowest);
    if (err)
        *err = mine;
    return mine.code;
}
