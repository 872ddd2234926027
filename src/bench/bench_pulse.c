/* See bench_pulse.h. */
#include "bench/bench_pulse.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/process.h"
#include "base/strbuf.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BEAT_NS (MR_NS_PER_S / 4)
#define WARN_NS (10 * MR_NS_PER_S)
#define LEFT UINT64_MAX /* of beats: it is through */

/* Where a rank runs, of a job whose ranks do not share the board. */
struct where {
    struct mr_process_id process;
    uint64_t pid_namespace;
    char boot[40];
};
struct watched {
    bool is_here; /* can be seen from this rank */
    bool warned, lost;
    uint64_t beats, silent_ns;
    struct mr_process_id process;
};
struct mr_pulse {
    struct mr_comm *comm;
    struct mr_bench_board *board;
    uint64_t timeout_ns;
    struct watched *rank;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool quit; /* lock */
};

static struct where where_this_is(void)
{
    struct where w;
    struct stat st;
    memset(&w, 0, sizeof w); /* compared as bytes */
    w.process = mr_process_self();
    w.pid_namespace = stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f && !fgets(w.boot, sizeof w.boot, f))
        w.boot[0] = '\0';
    if (f)
        fclose(f);
    return w;
}

static int find_ranks(struct mr_pulse *p, struct mr_error *err)
{
    uint32_t world = p->comm->world;
    struct where mine = where_this_is(), *all = calloc(world, sizeof(*all));
    int rc = all ? 0 : mr_error_set(err, -ENOMEM, "no memory to look after %u ranks", world);
    rc = mr_comm_agree(p->comm, rc, err);
    if (!rc)
        rc = mr_comm_exchange(p->comm, &mine, sizeof mine, all, err);
    for (uint32_t r = 0; !rc && all && r < world; r++)
        p->rank[r] = (struct watched){.process = all[r].process,
                                      .is_here = r != p->comm->rank && mine.pid_namespace &&
                                                 all[r].pid_namespace == mine.pid_namespace &&
                                                 memcmp(all[r].boot, mine.boot, sizeof mine.boot) == 0};
    free(all);
    return rc;
}

/* Has it done anything since the last look? */
static bool is_beating(struct mr_pulse *p, uint32_t rank)
{
    struct watched *w = &p->rank[rank];
    if (!mr_comm_is_forked(p->comm))
        return !mr_process_is_stopped(&w->process);
    uint64_t beats = atomic_load_explicit(&p->board->ranks[rank].beats, memory_order_relaxed);
    bool beating = beats != w->beats || beats == LEFT;
    w->beats = beats;
    return beating || !mr_process_lives(&w->process); /* one that has ended is the communicator's business */
}

static void lose(struct mr_pulse *p, uint32_t rank)
{
    char text[MR_HUMAN_LEN];
    struct mr_error why;
    mr_error_plain(&why, MR_E_PEER, "its process (%ld) was silent for %s", (long)p->rank[rank].process.pid,
                   mr_human_ns((double)p->rank[rank].silent_ns, text));
    mr_error_hint(&why, "a stopped process, or a machine that hangs; --rank-timeout says how long to wait for one");
    p->rank[rank].lost = true;
    mr_comm_lose(p->comm, rank, &why);
    atomic_store(&p->board->stop, 1); /* waits for storage end, too */
}

static void warn(struct mr_pulse *p, uint32_t rank)
{
    char silent[MR_HUMAN_LEN], left[MR_HUMAN_LEN];
    struct watched *w = &p->rank[rank];
    w->warned = true;
    mr_log(MR_LOG_WARN,
           "rank %u (process %ld) has been silent for %s: it is stopped or hangs; the job ends in %s (--rank-timeout)",
           rank, (long)w->process.pid, mr_human_ns((double)w->silent_ns, silent),
           mr_human_ns((double)(p->timeout_ns - MR_MIN(w->silent_ns, p->timeout_ns)), left));
}

static void look(struct mr_pulse *p, uint64_t passed_ns)
{
    uint64_t after = MR_MIN(WARN_NS, p->timeout_ns / 2);
    bool speaks = true; /* no rank before this one does */
    for (uint32_t r = 0; r < p->comm->world; r++) {
        struct watched *w = &p->rank[r];
        if (!w->is_here || w->lost)
            continue;
        bool was_warned = w->warned;
        w->silent_ns = is_beating(p, r) ? 0 : w->silent_ns + passed_ns;
        w->warned = was_warned && w->silent_ns;
        if (was_warned && !w->silent_ns)
            mr_log(MR_LOG_WARN, "rank %u (process %ld) goes on", r, (long)w->process.pid);
        if (r < p->comm->rank && w->silent_ns < after)
            speaks = false;
        if (w->silent_ns >= p->timeout_ns)
            lose(p, r);
    }
    for (uint32_t r = 0; speaks && r < p->comm->world; r++)
        if (p->rank[r].silent_ns >= after && !p->rank[r].warned && !p->rank[r].lost)
            warn(p, r);
}

static void *beat(void *arg)
{
    struct mr_pulse *p = arg;
    _Atomic uint64_t *mine = &p->board->ranks[p->comm->rank].beats;
    uint64_t last = mr_now_ns();
    pthread_setname_np(pthread_self(), "mr-pulse");
    pthread_mutex_lock(&p->lock);
    while (!p->quit) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        uint64_t at = (uint64_t)until.tv_nsec + BEAT_NS;
        until.tv_sec += (time_t)(at / MR_NS_PER_S);
        until.tv_nsec = (long)(at % MR_NS_PER_S);
        pthread_cond_timedwait(&p->wake, &p->lock, &until);
        pthread_mutex_unlock(&p->lock);
        atomic_fetch_add_explicit(mine, 1, memory_order_relaxed);
        uint64_t now = mr_now_ns();
        look(p, MR_MIN(now - last, 2 * BEAT_NS)); /* longer: this rank itself did not run */
        last = now;
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    atomic_store_explicit(mine, LEFT, memory_order_relaxed);
    return NULL;
}

static void free_pulse(struct mr_pulse *p)
{
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->rank);
    free(p);
}

int mr_pulse_start(struct mr_comm *comm, struct mr_bench_board *board, uint64_t timeout_ns, struct mr_pulse **out,
                   struct mr_error *err)
{
    *out = NULL;
    if (comm->world == 1 || !timeout_ns || comm->ops->caps & MR_COMM_CAP_ONE_PROCESS)
        return 0;
    struct mr_pulse *p = calloc(1, sizeof(*p));
    struct watched *ranks = calloc(comm->world, sizeof(*ranks));
    int rc = p && ranks ? 0 : mr_error_set(err, -ENOMEM, "no memory to look after %u ranks", comm->world);
    if ((rc = mr_comm_agree(comm, rc, err)) || !p) {
        free(p);
        free(ranks);
        return rc;
    }
    *p = (struct mr_pulse){.comm = comm, .board = board, .timeout_ns = timeout_ns, .rank = ranks};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    rc = find_ranks(p, err);
    int thread = rc ? 0 : pthread_create(&p->thread, NULL, beat, p);
    if (thread)
        rc = mr_error_set(err, -thread, "cannot start the thread that looks after the other ranks");
    if (rc)
        free_pulse(p);
    else
        *out = p;
    return rc;
}

void mr_pulse_stop(struct mr_pulse *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    free_pulse(p);
}
