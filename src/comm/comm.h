/* Ranks: how the processes of one job find each other. "self" is a job of one; "fork" makes N local processes without
 * MPI (shared memory and pipes); "threads" are ranks of one process; "mpi" is a module (lib/millrace_mpi_*.so) loaded
 * only under mpirun or srun, and the only code that includes mpi.h. Collectives here serve coordination, not bulk data.
 *
 * Failure: a rank that dies or reports an error makes every pending collective on the others return MR_E_PEER within
 * 10 s, with the rank and the cause in err. */
#ifndef MR_COMM_COMM_H
#define MR_COMM_COMM_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_comm;
struct mr_comm_file; /* a file read through MPI-IO; the backend's */

enum mr_comm_caps {
    MR_COMM_CAP_LAUNCHED = 1,    /* mpirun or srun started the processes; each has memory of its own */
    MR_COMM_CAP_FORKED = 2,      /* this program forked them */
    MR_COMM_CAP_MPI_IO = 4,      /* file_open and its kin work */
    MR_COMM_CAP_ONE_PROCESS = 8, /* all ranks are in this process */
};

enum mr_comm_op { MR_COMM_SUM, MR_COMM_MIN, MR_COMM_MAX };

struct mr_comm_ops {
    uint32_t abi, size;
    const char *name, *doc;
    unsigned caps; /* enum mr_comm_caps */
    int (*barrier)(struct mr_comm *c, struct mr_error *err);
    int (*allreduce_u64)(struct mr_comm *c, uint64_t *v, size_t n, enum mr_comm_op op, struct mr_error *err);
    int (*allreduce_f64)(struct mr_comm *c, double *v, size_t n, enum mr_comm_op op, struct mr_error *err);
    int (*bcast)(struct mr_comm *c, void *buf, size_t len, uint32_t root, struct mr_error *err);
    /* recv has room for world * len bytes on root (may be NULL elsewhere). */
    int (*gather)(struct mr_comm *c, const void *send, size_t len, void *recv, uint32_t root, struct mr_error *err);
    void (*fail)(struct mr_comm *c, const struct mr_error *why); /* tell the others this rank is out */
    void (*close)(struct mr_comm *c);
    int (*send)(struct mr_comm *c, const void *buf, size_t len, uint32_t to, struct mr_error *err);
    int (*recv)(struct mr_comm *c, void *buf, size_t len, uint32_t from, struct mr_error *err);
    int (*file_open)(struct mr_comm *c, const char *path, uint32_t readers, struct mr_comm_file **out,
                     struct mr_error *err);
    int (*file_read)(struct mr_comm *c, struct mr_comm_file *f, void *buf, size_t len, uint64_t offset,
                     struct mr_error *err);
    void (*file_close)(struct mr_comm *c, struct mr_comm_file *f);
    void (*lose)(struct mr_comm *c, uint32_t rank, const struct mr_error *why);
};

struct mr_comm {
    const struct mr_comm_ops *ops;
    uint32_t rank, world, local_rank, local_world;
    uint32_t speaker; /* after a failure over MPI: the lowest rank that is not known to be dead; 0 otherwise */
};

/* Joins the job this process is in: `ranks` > 1 forks here (call before creating threads; the parent becomes rank 0 and
 * reaps the others at close); otherwise mpirun/srun is detected from the environment and the MPI module loaded; else
 * self. `no_mpi` skips detection. `ranks` > 1 under mpirun is refused: two launchers cannot both decide.
 * Errors: MR_E_USAGE, MR_E_UNSUPPORTED (mpirun without the module), -errno. */
int mr_comm_open(uint32_t ranks, int no_mpi, struct mr_comm **out, struct mr_error *err);
/* `world` ranks for as many threads of this process; out has room for them. Each is used, and closed, by its own
 * thread. */
int mr_comm_threads_open(uint32_t world, struct mr_comm **out, struct mr_error *err);
/* Who started the ranks? A launcher (mpirun, srun), or mr_comm_open by forking; neither for a job of one and for
 * threads. */
bool mr_comm_is_launched(const struct mr_comm *c);
bool mr_comm_is_forked(const struct mr_comm *c);
bool mr_comm_has_mpi_io(const struct mr_comm *c);
/* Leaves the job. Accepts NULL. The parent of a fork job waits for the others here; a process that is not rank 0 goes
 * on after it and must end by itself. */
void mr_comm_close(struct mr_comm *c);

/* Collectives: every rank calls the same one with the same lengths, from one thread. After an error the job is broken
 * and every further call fails. */
int mr_comm_barrier(struct mr_comm *c, struct mr_error *err);
/* Element-wise over the ranks, in place. */
int mr_comm_allreduce_u64(struct mr_comm *c, uint64_t *v, size_t n, enum mr_comm_op op, struct mr_error *err);
int mr_comm_allreduce_f64(struct mr_comm *c, double *v, size_t n, enum mr_comm_op op, struct mr_error *err);
int mr_comm_bcast(struct mr_comm *c, void *buf, size_t len, uint32_t root, struct mr_error *err);
int mr_comm_gather(struct mr_comm *c, const void *send, size_t len, void *recv, uint32_t root, struct mr_error *err);
/* All-gather: `len` bytes of every rank, in the order of the ranks. `comm` is a struct mr_comm; the signature is that of
 * the loader's and the wire's exchange. */
int mr_comm_exchange(void *comm, const void *mine, size_t len, void *all, struct mr_error *err);
/* Point to point: one rank sends to another that receives from it with the same length; from the thread of the
 * collectives. A send may wait for its receive, so two ranks that want to exchange must not both send first. To
 * oneself: MR_E_USAGE. */
int mr_comm_send(struct mr_comm *c, const void *buf, size_t len, uint32_t to, struct mr_error *err);
int mr_comm_recv(struct mr_comm *c, void *buf, size_t len, uint32_t from, struct mr_error *err);
/* MPI-IO, over MPI only (MR_E_UNSUPPORTED elsewhere). With readers > 0 ranks 0 ... readers-1 open a file together and
 * every read is a collective call of all of them (len 0: nothing to read, but taking part); with 0 this rank opens it
 * alone. From the thread of the collectives. Exactly len bytes, at most 1 GiB, or an error. Closing is collective as
 * opening was; accepts NULL. */
#define MR_COMM_FILE_READ_MAX ((size_t)1 << 30)
int mr_comm_file_open(struct mr_comm *c, const char *path, uint32_t readers, struct mr_comm_file **out,
                      struct mr_error *err);
int mr_comm_file_read(struct mr_comm *c, struct mr_comm_file *f, void *buf, size_t len, uint64_t offset,
                      struct mr_error *err);
void mr_comm_file_close(struct mr_comm *c, struct mr_comm_file *f);
/* Phase border: every rank passes its own result; all return 0 only if all passed 0. Otherwise all return the lowest
 * failing rank's code, with its message in err and "rank R" in the context. */
int mr_comm_agree(struct mr_comm *c, int my_code, struct mr_error *err);
/* This rank gives up in the middle of a phase: the others' pending and later collectives return MR_E_PEER with `why`.
 */
void mr_comm_fail(struct mr_comm *c, const struct mr_error *why);

/* Another rank will not come any more, although its process lives: as if it had died, with `why`. From any thread, also
 * while a collective waits in another one. A forked rank is killed when rank 0 leaves the job. */
void mr_comm_lose(struct mr_comm *c, uint32_t rank, const struct mr_error *why);

/* How many processes mpirun or srun started as this job, and its name; 0 if none did. The only place in the libraries
 * that reads the environment: a launcher tells its processes who they are in no other way. */
uint32_t mr_comm_detect_launcher(const char **name);
/* The rank the launcher gave this process, before it has joined the others; 0 without a launcher, or if it does not
 * tell. */
uint32_t mr_comm_detect_rank(void);

/* For backends: the one symbol the MPI module exports, and what fork needs. */
#define MR_COMM_ABI 6
#define MR_COMM_MODULE_SYMBOL "mr_comm_module_open"
typedef int mr_comm_module_open_fn(uint32_t abi, struct mr_comm **out, struct mr_error *err);
int mr_comm_fork_open(uint32_t ranks, struct mr_comm **out, struct mr_error *err);
int mr_comm_module_load(struct mr_comm **out, struct mr_error *err);
/* The MPI module for this launcher: its path; false if this installation has none that fits. There is one module per
 * MPI implementation, because their binary interfaces differ. */
bool mr_comm_module_find(char *path, size_t cap);
/* For backends without MPI-IO. */
int mr_comm_no_file_open(struct mr_comm *c, const char *path, uint32_t readers, struct mr_comm_file **out,
                         struct mr_error *err);
int mr_comm_no_file_read(struct mr_comm *c, struct mr_comm_file *f, void *buf, size_t len, uint64_t offset,
                         struct mr_error *err);
void mr_comm_no_file_close(struct mr_comm *c, struct mr_comm_file *f);

#endif
