/* The whole of the tiers under random conditions: ranks as forked processes, one to three nodes, any policy, memory
 * from none to more than enough, an SSD folder or none, a source that is slow or fails, seeks to anywhere, stops in the
 * middle, ranks that are killed. What is delivered has the right bytes; whatever fails is said; nothing hangs.
 *
 *     test_tier_stress              some cases
 *     test_tier_stress FIRST COUNT  the cases with these seeds, e.g. to repeat one or to run many
 *
 * test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loader_fixture.h"
#include "tier_fixture.h"

#include "base/rng.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#define WORLD_MAX 4u
#define LEGS 4u
#define HANG_MS 60000
#define CASES 24u

/* ---- what is drawn from a seed ---- */

static const struct set {
    const char *name, *format;
    int64_t files, per_file;
    uint64_t size, stdev;
} sets[] = {{"raw", "raw", 150, 1, 5000, 0},
            {"npz", "npz", 120, 1, 6000, 2500},
            {"indexed", "indexed_binary", 5, 40, 3000, 0},
            {"tfrecord", "tfrecord", 6, 30, 4000, 1500}};
static uint64_t *sums[MR_ARRAY_LEN(sets)], counts[MR_ARRAY_LEN(sets)], all_bytes[MR_ARRAY_LEN(sets)];

struct leg {
    uint64_t epoch, position, count;
    bool stops;
};

struct scene {
    uint64_t seed, draws;
    struct tier_case c;
    uint32_t world;
    bool faults;  /* of the source */
    bool threads; /* ranks are threads of one process */
    bool kills;   /* a rank, in the last leg or while the tiers are opened: */
    bool early;
    uint32_t killed;
    bool whole; /* each node has room for the set in memory, and nothing else */
    struct leg leg[LEGS];
    unsigned legs;
    char spec[600], store[200];
};

static uint64_t draw(struct scene *s, uint64_t below)
{
    return mr_rng_below(mr_rng_at(s->seed, MR_RNG_TEST, s->draws++), below);
}

static void draw_spec(struct scene *s, uint64_t set_bytes, uint64_t largest)
{
    static const unsigned share[] = {0, 5, 30, 60, 100, 150};
    uint64_t ram = set_bytes * share[draw(s, MR_ARRAY_LEN(share))] / 100;
    int at = snprintf(s->spec, sizeof s->spec, "staging=%llu",
                      (unsigned long long)(largest * 2 * s->world + draw(s, set_bytes / 2)));
    if (ram)
        at += snprintf(s->spec + at, sizeof s->spec - (size_t)at, ",ram=%llu", (unsigned long long)ram);
    bool ssd = draw(s, 3) == 0;
    s->whole = ram >= set_bytes * 3 / 2 && !ssd; /* with what rounding and checksums add */
    if (ssd)                                     /* nodes on one machine share a folder as jobs do */
        snprintf(s->spec + at, sizeof s->spec - (size_t)at, ",ssd=%s/ssd%u:%llu", root, (unsigned)draw(s, 2),
                 (unsigned long long)(MR_MIB + draw(s, 2 * set_bytes)));
    s->c.spec = s->spec;
}

static void draw_store(struct scene *s)
{
    s->c.store = s->store;
    switch (draw(s, 6)) {
    case 0:
        snprintf(s->store, sizeof s->store, "throttle(bandwidth=%uMB,latency=%uus):posix", 5 + (unsigned)draw(s, 20),
                 (unsigned)draw(s, 500));
        break;
    case 1:
        snprintf(s->store, sizeof s->store, "fault(op=read,path=*train*,every=%u,error=EIO):posix",
                 3 + (unsigned)draw(s, 50));
        s->faults = true;
        break;
    case 2: snprintf(s->store, sizeof s->store, "fault(op=read,path=*train*,every=2,short=0.3):posix"); break;
    case 3:
        snprintf(s->store, sizeof s->store, "fault(op=read,path=*train*,every=7,slow=%ums):posix",
                 1 + (unsigned)draw(s, 8));
        break;
    default: snprintf(s->store, sizeof s->store, "posix");
    }
}

static void draw_legs(struct scene *s, uint64_t samples)
{
    uint64_t each = (samples + s->world - 1) / s->world;
    s->legs = 1 + (unsigned)draw(s, LEGS);
    for (unsigned k = 0; k < s->legs; k++) {
        struct leg *l = &s->leg[k];
        l->epoch = draw(s, s->c.epochs);
        uint64_t row = draw(s, 2) ? draw(s, each) : 0;
        uint64_t left = (s->c.epochs - l->epoch) * each - row;
        l->position = row * s->world;
        l->count = 1 + draw(s, left);
        l->stops = draw(s, 4) == 0;
    }
}

static void draw_scene(struct scene *s, uint64_t seed)
{
    static const char *const policies[] = {"naive", "staging", "lbann-dynamic", "nopfs", "millrace", "millrace"};
    *s = (struct scene){.seed = seed};
    unsigned set = (unsigned)draw(s, MR_ARRAY_LEN(sets));
    s->world = 1 + (uint32_t)draw(s, WORLD_MAX);
    s->c = (struct tier_case){.set = sets[set].name,
                              .policy = policies[draw(s, MR_ARRAY_LEN(policies))],
                              .batch = 1 + draw(s, 16),
                              .epochs = 1 + draw(s, 5),
                              .samples = counts[set],
                              .threads = 1 + (unsigned)draw(s, 3),
                              .sum = sums[set]};
    if (draw(s, 3) == 0 && s->world > 1) {
        s->c.ranks_per_node = 1 + (uint32_t)draw(s, s->world - 1);
        s->c.peers = draw(s, 3) > 0;
    }
    draw_spec(s, all_bytes[set], sets[set].size + 5 * sets[set].stdev + 64);
    draw_store(s);
    draw_legs(s, counts[set]);
    s->threads = draw(s, 4) == 0;
    if (s->world > 1 && !s->threads && draw(s, 6) == 0) {
        s->kills = true;
        s->killed = (uint32_t)draw(s, s->world);
        s->early = draw(s, 3) == 0;
    }
}

/* ---- one rank ---- */

struct told {
    int code; /* 1: nothing was said */
    unsigned legs;
    struct mr_error err;
};

/* Sanitizers speak in the ranks' processes, whose ends nobody sees; so they are asked here. */
static _Atomic bool raced;
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
static int leaks(void)
{
    return __lsan_do_recoverable_leak_check ? __lsan_do_recoverable_leak_check() : 0;
}
__attribute__((visibility("default"))) void __tsan_on_report(void *report); /* the sanitizer's library calls it */
void __tsan_on_report(void *report)
{
    (void)report;
    atomic_store(&raced, true);
}

struct timer {
    struct mr_tier *tier;
    uint64_t after_us;
    bool kills;
    _Atomic bool end;
};

static void *after_a_while(void *arg)
{
    struct timer *t = arg;
    usleep((useconds_t)t->after_us);
    if (t->kills)
        raise(SIGKILL);
    for (; !atomic_load(&t->end); usleep(2000))
        mr_tier_stop(t->tier); /* again and again: a seek that begins undoes it */
    return NULL;
}

/* A leg that is stopped ends early, or not: both are fine. Faults of the source show in single reads. */
static int read_leg(struct scene *s, struct tier_rank *k, const struct leg *l, uint32_t rank, bool last)
{
    bool dies = last && s->kills && !s->early && s->killed == rank;
    struct timer t = {.tier = k->tier, .after_us = mr_rng_at(s->seed + rank, MR_RNG_TEST, 999) % 20000, .kills = dies};
    pthread_t thread;
    bool timed = l->stops || dies;
    k->failed = 0;
    k->code = 0;
    if (timed && pthread_create(&thread, NULL, after_a_while, &t))
        return -EAGAIN;
    int rc = tier_rank_read(k, l->epoch, l->position, l->count);
    atomic_store(&t.end, true);
    if (timed)
        pthread_join(thread, NULL);
    bool excused = (rc == MR_E_INTERRUPTED && l->stops) || (rc == -EIO && s->faults);
    return excused && k->bad == 0 ? 0 : rc;
}

/* What the node says of itself must be possible. */
static int check_figures(const struct scene *s, struct tier_rank *k)
{
    struct mr_tier_stats t;
    mr_tier_get_stats(k->tier, &t);
    uint64_t nodes = s->c.ranks_per_node ? (s->world + s->c.ranks_per_node - 1) / s->c.ranks_per_node : 1;
    bool keeps = strcmp(s->c.policy, "naive") && strcmp(s->c.policy, "staging");
    if (t.nodes != nodes || t.ram_bytes > t.ram_capacity || t.distinct_bytes > t.source_bytes)
        return mr_error_plain(&k->err, MR_E_INTERNAL, "%u nodes, %llu of %llu bytes in RAM, %llu distinct of %llu",
                              t.nodes, (unsigned long long)t.ram_bytes, (unsigned long long)t.ram_capacity,
                              (unsigned long long)t.distinct_bytes, (unsigned long long)t.source_bytes);
    if (s->whole && keeps && !s->faults && t.source_reads > s->c.samples)
        return mr_error_plain(&k->err, MR_E_INTERNAL, "%llu reads of %llu samples", (unsigned long long)t.source_reads,
                              (unsigned long long)s->c.samples);
    return 0;
}

static void be_rank(struct scene *s, struct mr_comm *comm, struct told *me)
{
    static struct tier_rank ranks[WORLD_MAX];
    struct tier_rank *k = &ranks[comm->rank];
    static struct timer early;
    pthread_t thread;
    if (s->early && s->killed == comm->rank) {
        early = (struct timer){.after_us = mr_rng_at(s->seed, MR_RNG_TEST, 998) % 8000, .kills = true};
        pthread_create(&thread, NULL, after_a_while, &early);
    }
    int rc = tier_rank_open(k, &s->c, comm->rank, s->world, comm);
    for (unsigned l = 0; rc == 0 && l < s->legs; l++) {
        rc = read_leg(s, k, &s->leg[l], comm->rank, l + 1 == s->legs);
        if (rc == 0)
            rc = mr_comm_barrier(comm, &k->err);
        me->legs = l + 1;
    }
    if (rc == 0)
        rc = check_figures(s, k);
    me->err = k->err;
    tier_rank_close(k, rc == 0);
    me->code = atomic_load(&raced) ? MR_E_INTERNAL : rc;
}

struct rank_thread {
    struct scene *s;
    struct mr_comm *comm;
    struct told *me;
};

static void *rank_thread(void *arg)
{
    struct rank_thread *t = arg;
    be_rank(t->s, t->comm, t->me);
    mr_comm_close(t->comm);
    return NULL;
}

static void run_threads(struct scene *s, struct told *told)
{
    struct mr_comm *comm[WORLD_MAX];
    struct rank_thread t[WORLD_MAX];
    pthread_t id[WORLD_MAX];
    if (mr_comm_threads_open(s->world, comm, NULL))
        _exit(9);
    for (uint32_t r = 0; r < s->world; r++) {
        t[r] = (struct rank_thread){s, comm[r], &told[r]};
        if (pthread_create(&id[r], NULL, rank_thread, &t[r]))
            _exit(9);
    }
    for (uint32_t r = 0; r < s->world; r++)
        pthread_join(id[r], NULL);
    if (leaks())
        told[0].code = MR_E_INTERNAL;
    _exit(0);
}

static void run_all_ranks(struct scene *s, struct told *told)
{
    struct mr_comm *comm;
    struct mr_error err;
    setpgid(0, 0);
    if (s->threads)
        run_threads(s, told);
    if (mr_comm_open(s->world, 1, &comm, &err))
        _exit(9);
    struct told *me = &told[comm->rank];
    be_rank(s, comm, me);
    mr_comm_close(comm);
    if (leaks())
        me->code = MR_E_INTERNAL;
    _exit(0);
}

/* ---- the scene ---- */

static void describe(const struct scene *s, char *out, size_t cap)
{
    snprintf(out, cap, "seed %llu: %u %s (%u per node, peers %d), %s, %s, policy %s, %u threads, %s, %s",
             (unsigned long long)s->seed, s->world, s->threads ? "threads" : "processes", s->c.ranks_per_node,
             s->c.peers, s->c.set, s->spec, s->c.policy, s->c.threads, s->store,
             s->kills ? "one is killed" : "nobody is killed");
}

/* All ranks hold the pipe: it ends when the last one has ended. */
static bool all_end(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int rc;
    do
        rc = poll(&p, 1, HANG_MS);
    while (rc < 0 && errno == EINTR);
    return rc == 1;
}

static void play(uint64_t seed)
{
    static struct scene s;
    char what[1200];
    int fd[2];
    draw_scene(&s, seed);
    describe(&s, what, sizeof what);
    struct told *told =
        mmap(NULL, WORLD_MAX * sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(told != MAP_FAILED);
    for (uint32_t r = 0; r < s.world; r++)
        told[r].code = 1;
    assert_int_equal(pipe(fd), 0);
    pid_t runner = fork();
    if (runner == 0) {
        close(fd[0]);
        run_all_ranks(&s, told);
    }
    close(fd[1]);
    if (!all_end(fd[0])) {
        kill(-runner, SIGABRT);
        fail_msg("%s: hangs (codes %d %d %d, legs %u %u %u)", what, told[0].code, told[1].code, told[2].code,
                 told[0].legs, told[1].legs, told[2].legs);
    }
    close(fd[0]);
    int status;
    assert_int_equal(waitpid(runner, &status, 0), runner);
    for (uint32_t r = 0; r < s.world; r++) {
        const struct told *t = &told[r];
        bool dead = s.kills && s.killed == r;
        bool unfit = t->code == MR_E_UNSUPPORTED && t->legs == 0 && told[0].code == t->code; /* needs more memory */
        bool good = t->code == 0 || unfit || (s.kills && (dead || t->code == MR_E_PEER));
        if (!good)
            fail_msg("%s: rank %u, leg %u of %u: %d %s / %s", what, r, t->legs, s.legs, t->code, t->err.message,
                     t->err.context);
    }
    munmap(told, WORLD_MAX * sizeof(*told));
}

static uint64_t first_seed = 1, how_many = CASES;

static void whatever_happens_bytes_are_right_and_nothing_hangs(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < how_many; k++)
        play(first_seed + k);
}

static int set_up(void **state)
{
    (void)state;
    open_root("tier-stress");
    for (unsigned k = 0; k < MR_ARRAY_LEN(sets); k++) {
        make_set(sets[k].name, sets[k].format, sets[k].files, sets[k].per_file, sets[k].size, sets[k].stdev);
        sums[k] = sums_of(sets[k].name, 0, &counts[k], &all_bytes[k]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned k = 0; k < MR_ARRAY_LEN(sets); k++)
        free(sums[k]);
    remove_root();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        first_seed = strtoull(argv[1], NULL, 10);
        how_many = strtoull(argv[2], NULL, 10);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_happens_bytes_are_right_and_nothing_hangs),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
