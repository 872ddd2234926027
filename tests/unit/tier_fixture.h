/* What tests of the tiers share: ranks that read a generated set through mr_tier as the loader does (threads that take
 * tickets in order, stored bytes borrowed), and check every byte against what a plain reader gave before.
 * Included after cmocka.h and loader_fixture.h. Code that runs in forked ranks reports by return value, not by assert.
 */
#ifndef MR_TESTS_UNIT_TIER_FIXTURE_H
#define MR_TESTS_UNIT_TIER_FIXTURE_H

#include "comm/comm.h"
#include "dataset/fetch.h"
#include "event/emit.h"
#include "store/store.h"
#include "tier/tier.h"
#include "wire/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* XXH-free: a plain sum that changes with any byte and its place. */
static inline uint64_t bytes_sum(const void *data, size_t n)
{
    const uint8_t *b = data;
    uint64_t h = 1469598103934665603ull ^ n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 1099511628211ull;
    return h;
}

struct tier_case {
    const char *set, *store, *policy, *spec;
    unsigned read_flags;
    uint64_t batch, epochs, samples;
    unsigned threads; /* of the rank */
    const uint64_t *sum;
    bool peers;
    uint32_t ranks_per_node; /* 0: all are one node */
    unsigned pause_us;       /* of a thread after each sample, so that reading gets ahead */
    const char *trace;       /* events go to TRACE.RANK; NULL: nowhere */
};

/* One rank's view of a running case. */
struct tier_rank {
    struct mr_store *store;
    struct mr_dataset *ds;
    struct mr_tier *tier;
    struct mr_order *order;
    struct mr_tier_params p;
    const struct tier_case *c;
    _Atomic uint64_t next, bad, failed;
    uint64_t first_epoch, until; /* tickets [0, until) */
    uint64_t head;               /* samples of the first epoch */
    struct mr_error err;
    int code;
    _Atomic uint64_t from[MR_TIER_FROMS];
    struct mr_events_file *events;
};

static inline void tier_failed(struct tier_rank *k, const struct mr_error *err)
{
    if (atomic_fetch_add(&k->failed, 1) == 0) {
        k->code = err->code;
        k->err = *err;
    }
}

static inline void *tier_thread(void *arg)
{
    struct tier_rank *k = arg;
    struct mr_dataset_reader *reader = NULL;
    struct mr_error err;
    struct mr_sample s;
    struct mr_fetch_source *source = mr_tier_source(k->tier, &err);
    struct mr_order *order = NULL;
    struct mr_order_params op = k->p.order;
    op.epoch = k->first_epoch;
    if (!source || mr_dataset_reader_create(k->ds, &reader, &err) || mr_order_create(&op, &order, &err)) {
        tier_failed(k, &err);
        goto out;
    }
    mr_dataset_reader_use(reader, source);
    uint64_t len = mr_order_rank_len(order), epoch = k->first_epoch;
    for (uint64_t n; (n = atomic_fetch_add(&k->next, 1)) < k->until;) {
        if (k->c->pause_us)
            usleep(k->c->pause_us);
        uint64_t at = n < k->head ? len - k->head + n : (n - k->head) % len, id;
        uint64_t e = k->first_epoch + (n < k->head ? 0 : 1 + (n - k->head) / len);
        if (e != epoch && mr_order_set_epoch(order, e, &err)) {
            tier_failed(k, &err);
            break;
        }
        epoch = e;
        mr_order_get(order, at, &id, 1);
        struct mr_delivery d;
        mr_tier_source_at(source, n, id);
        int rc = mr_dataset_read(reader, id, MR_DATASET_RAW | k->p.read_flags, NULL, 0, &s, &err);
        if (rc) {
            tier_failed(k, &err);
        } else if (bytes_sum(s.data, s.bytes) != k->c->sum[id]) {
            atomic_fetch_add(&k->bad, 1);
        }
        mr_tier_source_done(source, &d);
        if (!rc && d.from < MR_TIER_FROMS)
            atomic_fetch_add(&k->from[d.from], 1);
    }
out:
    mr_dataset_reader_free(reader);
    mr_fetch_source_free(source);
    mr_order_free(order);
    return NULL;
}

static inline int tier_rank_open(struct tier_rank *k, const struct tier_case *c, uint32_t rank, uint32_t world,
                                 struct mr_comm *comm)
{
    char path[512];
    *k = (struct tier_rank){.c = c};
    snprintf(path, sizeof path, "%s/%s", root, c->set);
    int rc = mr_store_open(c->store ? c->store : "posix", &k->store, &k->err);
    if (!rc)
        rc = mr_dataset_open_in(path, k->store, &k->ds, &k->err);
    if (rc)
        return rc;
    k->p = (struct mr_tier_params){.dataset = k->ds,
                                   .store = k->store,
                                   .name = c->set,
                                   .read_flags = c->read_flags,
                                   .order = {.mode = MR_ORDER_TORCH,
                                             .seed = 5,
                                             .rank = rank,
                                             .world = world,
                                             .shuffle_each_epoch = true,
                                             .samples = c->samples},
                                   .batch_size = c->batch,
                                   .last_epoch = c->epochs - 1,
                                   .policy = c->policy,
                                   .spec = c->spec,
                                   .peers = c->peers,
                                   .peers_optional = true,
                                   .ranks_per_node = c->ranks_per_node,
                                   .exchange = comm ? mr_comm_exchange : NULL,
                                   .exchange_ctx = comm};
    if (c->trace) {
        snprintf(path, sizeof path, "%s.%u", c->trace, rank);
        if ((rc = mr_events_open(path, MR_LEVEL_SAMPLE, rank, world, &k->events, &k->err)))
            return rc;
        k->p.events = mr_events_of(k->events, 0);
    }
    return mr_tier_open(&k->p, &k->tier, &k->err);
}

/* Reads `count` samples of this rank from (epoch, position) on; 0, or what went wrong. */
static inline int tier_rank_read(struct tier_rank *k, uint64_t epoch, uint64_t position, uint64_t count)
{
    pthread_t t[8];
    struct mr_order *o;
    struct mr_order_params op = k->p.order;
    op.epoch = epoch;
    int rc = mr_order_create(&op, &o, &k->err);
    if (rc)
        return rc;
    uint64_t len = mr_order_rank_len(o);
    mr_order_free(o);
    k->head = len - position / k->p.order.world;
    k->first_epoch = epoch;
    k->until = count;
    k->next = 0;
    if ((rc = mr_tier_seek(k->tier, epoch, position, &k->err)))
        return rc;
    for (unsigned i = 0; i < k->c->threads; i++)
        if (pthread_create(&t[i], NULL, tier_thread, k))
            return -1;
    for (unsigned i = 0; i < k->c->threads; i++)
        pthread_join(t[i], NULL);
    return k->bad ? MR_E_CORRUPT : k->failed ? k->code : 0;
}

static inline void tier_rank_close(struct tier_rank *k, bool clean)
{
    mr_tier_close(k->tier, clean);
    mr_events_close(k->events, false, NULL);
    mr_dataset_close(k->ds);
    mr_store_close(k->store);
}

/* What every sample of a set holds, by a plain reader. */
static inline uint64_t *sums_of(const char *set, unsigned flags, uint64_t *samples, uint64_t *bytes)
{
    struct mr_dataset *ds;
    struct mr_dataset_reader *r;
    struct mr_error err;
    struct mr_sample s;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, set);
    assert_int_equal(mr_dataset_open(path, NULL, &ds, &err), 0);
    assert_int_equal(mr_dataset_reader_create(ds, &r, &err), 0);
    *samples = mr_dataset_count(ds);
    *bytes = 0;
    uint64_t *sum = calloc(*samples, sizeof(*sum));
    for (uint64_t i = 0; i < *samples; i++) {
        assert_int_equal(mr_dataset_read(r, i, MR_DATASET_RAW | flags, NULL, 0, &s, &err), 0);
        sum[i] = bytes_sum(s.data, s.bytes);
        *bytes += s.bytes;
    }
    mr_dataset_reader_free(r);
    mr_dataset_close(ds);
    return sum;
}

/* Runs `world` forked ranks; every one of them fills in its figures. */
struct shared_figures {
    int code;
    struct mr_error err;
    struct mr_tier_stats stats;
    uint64_t delivered;
};

static inline struct shared_figures *run_ranks(const struct tier_case *c, uint32_t world, uint64_t epoch,
                                               uint64_t position, uint64_t each)
{
    struct shared_figures *f =
        mmap(NULL, world * sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(f != MAP_FAILED);
    pid_t runner = fork(); /* ranks leave by _exit: cmocka's process takes no part */
    if (runner == 0) {
        struct mr_comm *comm;
        struct mr_error err;
        static struct tier_rank k;
        if (mr_comm_open(world, 1, &comm, &err))
            _exit(9);
        struct shared_figures *me = &f[comm->rank];
        me->code = tier_rank_open(&k, c, comm->rank, world, comm);
        if (!me->code)
            me->code = tier_rank_read(&k, epoch, position, each);
        if (!me->code)
            me->code = mr_comm_barrier(comm, &k.err);
        me->err = k.err;
        for (unsigned i = 0; i < MR_TIER_FROMS; i++)
            me->delivered += k.from[i];
        if (k.tier)
            mr_tier_get_stats(k.tier, &me->stats);
        tier_rank_close(&k, !me->code);
        bool parent = comm->rank == 0;
        mr_comm_close(comm);
        _exit(parent && me->code ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(runner, &status, 0), runner);
    assert_true(WIFEXITED(status));
    for (uint32_t r = 0; r < world; r++)
        if (f[r].code)
            fail_msg("rank %u of %u: %d %s / %s", r, world, f[r].code, f[r].err.message, f[r].err.context);
    return f;
}

static inline void done_figures(struct shared_figures *f, uint32_t world)
{
    munmap(f, world * sizeof(*f));
}

#endif
