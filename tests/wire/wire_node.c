/* One node of a job that exchanges samples over the wire: for the tests and the benchmark on network namespaces, as a
 * program and as a library for Python (wire_node_main). Prints one line of JSON.
 *
 *   wire_node RANK WORLD HOST PORT [name=value ...]      addresses go over TCP
 *   wire_node 0 RANKS fork 0 [name=value ...]            ... through a job that forks here
 *   mpirun ... wire_node 0 0 mpi 0 [name=value ...]      ... through MPI
 *     ask=0|1        ask the next rank (default 1 for rank 0)      count=N     requests (0: until ms is over)
 *     size=BYTES     of a sample (131072)                          flight=N    at a time (32)
 *     ms=N           ask for so long at most (0: no limit)         deadline_ms=N  of a request (2000)
 *     stall_ms=N     see stall_ns of mr_wire_params (1000)         verify=0|1  compare every byte (1)
 *     idle_ms=N      measure the thread's CPU time doing nothing   barrier=0|1 all end together (1)
 *     slots=N        see mr_wire_params                            hash=0|1    the server keeps hashes (1) */
#include "base/clock.h"
#include "base/common.h"
#include "comm/comm.h"
#include "wire/wire.h"
#include "wire_testlib.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define POOL 16u /* different samples */

struct options {
    uint64_t ask, count, size, flight, ms, deadline_ms, stall_ms, verify, idle_ms, barrier, slots, hash;
};

struct run;
struct lane { /* one request at a time */
    struct run *run;
    uint8_t *bytes;
    uint64_t id, start_ns;
};
struct run {
    struct options o;
    struct mr_wire *wire;
    uint32_t peer;
    uint64_t end_ns, longest_ns;
    uint64_t started, ended[MR_WIRE_STATUSES], refused, wrong; /* progress thread, after the start */
    _Atomic unsigned lanes;
    sem_t over;
    uint8_t *pool;
    uint64_t pool_hash[POOL];
};

static uint64_t id_of(const struct run *r, uint64_t n)
{
    return (n % POOL) << 32 | r->o.size;
}

static enum mr_wire_answer serve(void *ctx, uint32_t peer, uint64_t id, uint64_t deadline_ns, struct mr_wire_bytes *out)
{
    struct run *r = ctx;
    (void)peer;
    (void)deadline_ns;
    uint64_t n = (id >> 32) % POOL;
    *out = (struct mr_wire_bytes){
        .data = r->pool + n * r->o.size, .len = r->o.size, .has_hash = r->o.hash, .hash = r->pool_hash[n]};
    return MR_WIRE_HAVE;
}

static void done(void *ctx, enum mr_wire_status status, size_t len);

/* Starts the lane's next request, or ends the lane. */
static void next(struct lane *l)
{
    struct run *r = l->run;
    uint64_t now = mr_now_ns();
    bool more = (!r->o.count || r->started < r->o.count) && (!r->end_ns || now < r->end_ns);
    int rc = -ECANCELED;
    if (more) {
        l->id = id_of(r, r->started++);
        l->start_ns = now;
        rc = mr_wire_request(r->wire, r->peer, l->id, l->bytes, r->o.size, now + r->o.deadline_ms * MR_NS_PER_MS, done,
                             l);
        r->refused += rc != 0;
    }
    if (rc && atomic_fetch_sub(&r->lanes, 1) == 1)
        sem_post(&r->over);
}

static void done(void *ctx, enum mr_wire_status status, size_t len)
{
    struct lane *l = ctx;
    struct run *r = l->run;
    r->longest_ns = MR_MAX(r->longest_ns, mr_now_ns() - l->start_ns);
    r->ended[status]++;
    if (status == MR_WIRE_OK && r->o.verify)
        r->wrong += !wire_right(l->bytes, len, l->id);
    next(l);
}

/* All lanes once; the progress thread goes on from there. Returns seconds. */
static double ask_all(struct run *r, struct lane *lane)
{
    atomic_store(&r->lanes, (unsigned)r->o.flight);
    /* One request first: its end starts the others, so that only the progress thread touches the counts. */
    for (uint64_t i = 0; i < r->o.flight; i++)
        lane[i] = (struct lane){.run = r, .bytes = calloc(1, r->o.size + 1)};
    struct wire_ask g = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    struct wire_one first = {.group = &g, .id = id_of(r, 0), .bytes = lane[0].bytes};
    if (wire_one_start(r->wire, r->peer, &first, r->o.size, mr_now_ns() + 10 * MR_NS_PER_S) == 0)
        wire_ask_wait(&g, 0);
    fputs("asking\n", stderr); /* the script waits for it before it makes trouble */
    uint64_t start = mr_now_ns();
    r->end_ns = r->o.ms ? start + r->o.ms * MR_NS_PER_MS : 0;
    for (uint64_t i = 0; i < r->o.flight; i++)
        next(&lane[i]);
    while (sem_wait(&r->over) != 0)
        ;
    return (double)(mr_now_ns() - start) / 1e9;
}

static double thread_cpu_s(int tid)
{
    char path[64], text[1024];
    unsigned long long ns = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", tid); /* in ns; stat has ticks of 10 ms */
    FILE *f = fopen(path, "r");
    if (f && fgets(text, sizeof(text), f))
        sscanf(text, "%llu", &ns);
    if (f)
        fclose(f);
    return (double)ns / 1e9;
}

static double idle_percent(struct run *r)
{
    int tid = mr_wire_thread_id(r->wire);
    double before = thread_cpu_s(tid);
    mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + r->o.idle_ms * MR_NS_PER_MS, NULL);
    return (thread_cpu_s(tid) - before) / ((double)r->o.idle_ms / 1e3) * 100;
}

static long rss_kib(const char *field)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, field, strlen(field)) == 0)
            kib = strtol(line + strlen(field) + 1, NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

static bool parse(int argc, char **argv, struct options *o)
{
    const struct {
        const char *name;
        uint64_t *to;
    } rows[] = {{"ask", &o->ask},           {"count", &o->count},   {"size", &o->size},
                {"flight", &o->flight},     {"ms", &o->ms},         {"deadline_ms", &o->deadline_ms},
                {"stall_ms", &o->stall_ms}, {"verify", &o->verify}, {"idle_ms", &o->idle_ms},
                {"barrier", &o->barrier},   {"slots", &o->slots},   {"hash", &o->hash}};
    for (int i = 5; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        bool known = false;
        for (unsigned k = 0; equals && k < MR_ARRAY_LEN(rows); k++)
            if (strlen(rows[k].name) == (size_t)(equals - argv[i]) &&
                strncmp(argv[i], rows[k].name, strlen(rows[k].name)) == 0) {
                *rows[k].to = strtoull(equals + 1, NULL, 10);
                known = true;
            }
        if (!known) {
            fprintf(stderr, "wire_node: unknown option '%s'\n", argv[i]);
            return false;
        }
    }
    return true;
}

static void report(struct run *r, uint32_t rank, double seconds, double idle, long rss_before)
{
    struct mr_wire_stats s;
    mr_wire_stats(r->wire, &s);
    printf("{\"rank\": %u, ", rank);
    for (unsigned i = 0; i < MR_WIRE_STATUSES; i++)
        printf("\"%s\": %llu, ", mr_wire_status_name((enum mr_wire_status)i), (unsigned long long)r->ended[i]);
    printf(
        "\"refused\": %llu, \"wrong\": %llu, \"timeouts\": %llu, \"served\": %llu, \"seconds\": %.4f, \"mb_s\": %.1f, "
        "\"longest_ms\": %.1f, \"idle_cpu_percent\": %.4f, \"rss_growth_kib\": %ld, \"wakeups\": %llu}\n",
        (unsigned long long)r->refused, (unsigned long long)r->wrong, (unsigned long long)s.timeouts,
        (unsigned long long)s.served, seconds,
        seconds > 0 ? (double)r->ended[MR_WIRE_OK] * (double)r->o.size / seconds / 1e6 : 0, (double)r->longest_ns / 1e6,
        idle, rss_kib("VmHWM:") - rss_before, (unsigned long long)s.wakeups);
    fflush(stdout);
}

static int fail(const char *what, const struct mr_error *err)
{
    fprintf(stderr, "wire_node: %s: %s\n", what, err->message);
    return err->code == MR_E_UNSUPPORTED ? 77 : 1;
}

static void make_pool(struct run *r)
{
    r->pool = malloc(POOL * r->o.size);
    for (uint64_t i = 0; i < POOL; i++) {
        wire_fill(r->pool + i * r->o.size, i << 32 | r->o.size);
        r->pool_hash[i] = XXH3_64bits(r->pool + i * r->o.size, r->o.size);
    }
}

__attribute__((visibility("default"))) int wire_node_main(int argc, char **argv);

int wire_node_main(int argc, char **argv)
{
    struct mr_error err = {0};
    struct mr_wire_tcp *tcp = NULL;
    struct mr_comm *comm = NULL;
    struct run r = {
        .o = {
            .size = 131072, .flight = 32, .deadline_ms = 2000, .stall_ms = 1000, .verify = 1, .barrier = 1, .hash = 1}};
    if (argc < 5)
        return 2;
    static const uint8_t key[MR_WIRE_SECRET_BYTES] = "of tests only";
    struct mr_wire_tcp_params tp = {.host = argv[3],
                                    .key = key,
                                    .port = (uint16_t)strtoul(argv[4], NULL, 10),
                                    .rank = (uint32_t)strtoul(argv[1], NULL, 10),
                                    .world = (uint32_t)strtoul(argv[2], NULL, 10),
                                    .timeout_ns = 30 * MR_NS_PER_S};
    bool forks = strcmp(argv[3], "fork") == 0, collective = forks || strcmp(argv[3], "mpi") == 0;
    if (collective) {
        if (mr_comm_open(forks ? tp.world : 0, forks, &comm, &err))
            return fail("ranks", &err);
        tp.rank = comm->rank;
        tp.world = comm->world;
    }
    r.o.ask = tp.rank == 0;
    if (!parse(argc, argv, &r.o) || !r.o.flight || !r.o.size)
        return 2;
    r.peer = (tp.rank + 1) % tp.world;
    make_pool(&r);
    sem_init(&r.over, 0, 0);
    if (!collective && mr_wire_tcp_open(&tp, &tcp, &err))
        return fail("exchange", &err);
    struct mr_wire_params p = {.rank = tp.rank,
                               .world = tp.world,
                               .exchange = comm ? mr_comm_exchange : mr_wire_exchange_tcp,
                               .exchange_ctx = comm ? (void *)comm : (void *)tcp,
                               .serve = serve,
                               .serve_ctx = &r,
                               .slots = (uint32_t)r.o.slots,
                               .stall_ns = r.o.stall_ms * MR_NS_PER_MS};
    if (mr_wire_open(&p, &r.wire, &err))
        return fail("open", &err);
    struct lane *lane = calloc(r.o.flight, sizeof(*lane));
    long rss = rss_kib("VmRSS:") + (long)(r.o.ask ? r.o.flight * r.o.size / 1024 : 0);
    double idle = r.o.idle_ms ? idle_percent(&r) : 0;
    double seconds = r.o.ask ? ask_all(&r, lane) : 0;
    uint8_t mine[8] = {0}, all[8 * 64];
    if (r.o.barrier && tp.world <= 64)
        (void)p.exchange(p.exchange_ctx, mine, sizeof(mine), all, NULL);
    if (r.o.idle_ms) /* again, now with connections */
        idle = MR_MAX(idle, idle_percent(&r));
    report(&r, tp.rank, seconds, idle, rss);
    mr_wire_close(r.wire);
    mr_wire_tcp_close(tcp);
    mr_comm_close(comm);
    for (uint64_t i = 0; i < r.o.flight; i++)
        free(lane[i].bytes);
    free(lane);
    free(r.pool);
    return r.wrong ? 1 : 0;
}

#ifndef WIRE_NODE_LIBRARY
int main(int argc, char **argv)
{
    return wire_node_main(argc, argv);
}
#endif
