/* Ranks that are threads of one process: for checks and tests, where forking would cost more than it proves. Each rank
 * has a struct mr_comm of its own; all point to one struct team.
 *
 *   deposit pointer in slot[rank] ── meet ── everybody reads the others' slots ── meet ── slots may be reused
 *
 * Invariants
 *  C1 a slot is written by its rank before the first meeting of a collective and read by others only between the two.
 *  C2 a rank that failed or left makes every wait end with MR_E_PEER and the first cause.
 *  C3 the team is freed by whoever closes last. */
#include "base/common.h"
#include "comm/comm.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct slot {
    const void *data;
    size_t len;
    uint32_t to; /* send: for whom; world: nobody */
};

struct team {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint32_t world, waiting, left; /* lock */
    uint64_t round;                /* lock */
    bool failed;                   /* lock */
    struct mr_error why;           /* lock */
    struct slot slot[];
};

struct thread_comm {
    struct mr_comm base; /* first */
    struct team *team;
};

static struct team *team_of(struct mr_comm *c)
{
    return ((struct thread_comm *)c)->team;
}

static int broken(struct team *t, struct mr_error *err)
{
    return mr_error_plain(err, MR_E_PEER, "%s", t->why.message);
}

/* Everybody is here, or somebody will never come. */
static int gather_team(struct team *t, struct mr_error *err)
{
    pthread_mutex_lock(&t->lock);
    uint64_t round = t->round;
    if (!t->failed && ++t->waiting == t->world) {
        t->waiting = 0;
        t->round++;
        pthread_cond_broadcast(&t->moved);
    }
    while (t->round == round && !t->failed)
        pthread_cond_wait(&t->moved, &t->lock);
    int rc = t->round == round ? broken(t, err) : 0;
    pthread_mutex_unlock(&t->lock);
    return rc;
}

static int threads_barrier(struct mr_comm *c, struct mr_error *err)
{
    return gather_team(team_of(c), err);
}

/* One collective: `take` sees all slots and puts this rank's result into `result`, which is copied to `out` when nobody
 * reads the slots any more (they may be the same memory). */
static int exchange(struct mr_comm *c, const void *data, void *out, size_t len,
                    void (*take)(const struct team *t, void *result, size_t len, unsigned how), unsigned how,
                    struct mr_error *err)
{
    struct team *t = team_of(c);
    void *result = malloc(MR_MAX(len, 1u));
    if (!result) {
        struct mr_error why;
        int rc = mr_error_set(err, -ENOMEM, "no memory for a collective of %zu bytes", len);
        mr_error_plain(&why, rc, "rank %u has no memory for a collective", c->rank);
        mr_comm_fail(c, &why);
        return rc;
    }
    t->slot[c->rank].data = data; /* C1 */
    int rc = gather_team(t, err);
    if (!rc) {
        take(t, result, len, how);
        rc = gather_team(t, err);
    }
    if (!rc && out)
        memcpy(out, result, len);
    free(result);
    return rc;
}

#define REDUCE(type, name)                                                                                             \
    static void name(const struct team *t, void *result, size_t len, unsigned how)                                     \
    {                                                                                                                  \
        type *r = result;                                                                                              \
        memcpy(r, t->slot[0].data, len);                                                                               \
        for (uint32_t k = 1; k < t->world; k++)                                                                        \
            for (size_t i = 0; i < len / sizeof(type); i++) {                                                          \
                type v = ((const type *)t->slot[k].data)[i];                                                           \
                r[i] = how == MR_COMM_SUM ? r[i] + v : how == MR_COMM_MIN ? MR_MIN(r[i], v) : MR_MAX(r[i], v);         \
            }                                                                                                          \
    }
REDUCE(uint64_t, reduce_u64)
REDUCE(double, reduce_f64)

static int threads_allreduce_u64(struct mr_comm *c, uint64_t *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    return exchange(c, v, v, n * sizeof(*v), reduce_u64, op, err);
}

static int threads_allreduce_f64(struct mr_comm *c, double *v, size_t n, enum mr_comm_op op, struct mr_error *err)
{
    return exchange(c, v, v, n * sizeof(*v), reduce_f64, op, err);
}

static void copy_root(const struct team *t, void *result, size_t len, unsigned root)
{
    if (len)
        memcpy(result, t->slot[root].data, len);
}

static int threads_bcast(struct mr_comm *c, void *buf, size_t len, uint32_t root, struct mr_error *err)
{
    return exchange(c, buf, buf, len, copy_root, root, err);
}

static void copy_all(const struct team *t, void *result, size_t len, unsigned how)
{
    size_t each = len / t->world;
    (void)how;
    for (uint32_t k = 0; k < t->world && each; k++)
        memcpy((uint8_t *)result + k * each, t->slot[k].data, each);
}

static int threads_gather(struct mr_comm *c, const void *send, size_t len, void *recv, uint32_t root,
                          struct mr_error *err)
{
    return exchange(c, send, c->rank == root ? recv : NULL, len * c->world, copy_all, 0, err);
}

static int threads_send(struct mr_comm *c, const void *buf, size_t len, uint32_t to, struct mr_error *err)
{
    struct team *t = team_of(c);
    struct slot *s = &t->slot[c->rank];
    pthread_mutex_lock(&t->lock);
    *s = (struct slot){.data = buf, .len = len, .to = to};
    pthread_cond_broadcast(&t->moved);
    while (s->to != t->world && !t->failed)
        pthread_cond_wait(&t->moved, &t->lock);
    int rc = s->to != t->world ? broken(t, err) : 0;
    s->to = t->world;
    pthread_mutex_unlock(&t->lock);
    return rc;
}

static int threads_recv(struct mr_comm *c, void *buf, size_t len, uint32_t from, struct mr_error *err)
{
    struct team *t = team_of(c);
    struct slot *s = &t->slot[from];
    pthread_mutex_lock(&t->lock);
    while (s->to != c->rank && !t->failed)
        pthread_cond_wait(&t->moved, &t->lock);
    int rc = s->to != c->rank ? broken(t, err) : 0;
    if (!rc && s->len != len)
        rc =
            mr_error_plain(err, MR_E_USAGE, "rank %u sends %zu bytes, rank %u expects %zu", from, s->len, c->rank, len);
    else if (!rc && len)
        memcpy(buf, s->data, len);
    if (s->to == c->rank)
        s->to = t->world;
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

static void set_failed(struct team *t, const struct mr_error *why)
{
    if (!t->failed)
        t->why = *why;
    t->failed = true;
    pthread_cond_broadcast(&t->moved);
}

static void threads_fail(struct mr_comm *c, const struct mr_error *why)
{
    struct team *t = team_of(c);
    pthread_mutex_lock(&t->lock);
    set_failed(t, why);
    pthread_mutex_unlock(&t->lock);
}

static void threads_lose(struct mr_comm *c, uint32_t rank, const struct mr_error *why)
{
    struct mr_error named;
    mr_error_plain(&named, MR_E_PEER, "rank %u failed: %s", rank, why->message);
    threads_fail(c, &named);
}

static void threads_close(struct mr_comm *c)
{
    struct team *t = team_of(c);
    struct mr_error why;
    mr_error_plain(&why, MR_E_PEER, "rank %u has left the job", c->rank);
    pthread_mutex_lock(&t->lock);
    set_failed(t, &why); /* C2: who still waits waits in vain */
    bool last = ++t->left == t->world;
    assert(t->left <= t->world); /* C3 */
    pthread_mutex_unlock(&t->lock);
    free(c);
    if (!last)
        return;
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->moved);
    free(t);
}

static const struct mr_comm_ops threads_ops = {.abi = MR_COMM_ABI,
                                               .size = sizeof(struct mr_comm_ops),
                                               .name = "threads",
                                               .doc = "threads of one process",
                                               .caps = MR_COMM_CAP_ONE_PROCESS,
                                               .barrier = threads_barrier,
                                               .allreduce_u64 = threads_allreduce_u64,
                                               .allreduce_f64 = threads_allreduce_f64,
                                               .bcast = threads_bcast,
                                               .gather = threads_gather,
                                               .fail = threads_fail,
                                               .close = threads_close,
                                               .send = threads_send,
                                               .recv = threads_recv,
                                               .file_open = mr_comm_no_file_open,
                                               .file_read = mr_comm_no_file_read,
                                               .file_close = mr_comm_no_file_close,
                                               .lose = threads_lose};

int mr_comm_threads_open(uint32_t world, struct mr_comm **out, struct mr_error *err)
{
    struct team *t = calloc(1, sizeof(*t) + world * sizeof(t->slot[0]));
    uint32_t made = 0;
    for (; t && made < world; made++) {
        struct thread_comm *c = calloc(1, sizeof(*c));
        if (!c)
            break;
        c->base = (struct mr_comm){
            .ops = &threads_ops, .rank = made, .world = world, .local_rank = made, .local_world = world};
        c->team = t;
        t->slot[made].to = world;
        out[made] = &c->base;
    }
    if (!t || made < world) {
        while (made)
            free(out[--made]);
        free(t);
        return mr_error_set(err, -ENOMEM, "cannot make %u ranks", world);
    }
    t->world = world;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->moved, NULL);
    return 0;
}
