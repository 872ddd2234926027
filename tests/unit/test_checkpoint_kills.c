/* The campaign of kills: over all engines and tiers, processes that save are killed at random moments. Each time the
 * newest complete checkpoint loads, verified, and is not older than what had been told to be saved; ranks that outlive
 * another one end by themselves. A few kills each in make test, 1,000 in all with MR_TEST_FULL=1:
 *
 *   MR_TEST_FULL=1 build/tests/test_checkpoint_kills
 *
 * prints how many over which. MR_TEST_KILLS=N: so many in all; MR_TEST_SEED: other moments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "amount.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "unit/checkpoint_test.h"

#include <millrace/state.h>
#include <poll.h>
#include <pthread.h>

#define RANKS_MAX 3
#define VALUES 150000ull /* of a state: a bit more than a MiB */
#define LARGE 9          /* every so many-th kill has one of more than a chunk */

/* One way to save. Engines of the emulated training have a name; the others are savers of states. */
struct way {
    const char *says, *engine;
    bool burst;
    uint32_t world;
    size_t tiers;
    bool kill_all;   /* ranks; else one of them */
    bool overlapped; /* copies behind the caller's back */
};

static const struct way ways[] = {
    {.says = "engine sync", .engine = "sync"},
    {.says = "engine sync, burst buffer", .engine = "sync", .burst = true},
    {.says = "engine async", .engine = "async"},
    {.says = "saver", .world = 1},
    {.says = "saver, overlapped copies", .world = 1, .overlapped = true},
    {.says = "saver, 2 tiers", .world = 1, .tiers = 2},
    {.says = "saver, one of 2 ranks", .world = 2},
    {.says = "saver, one of 3 ranks, 1 tier", .world = 3, .tiers = 1},
    {.says = "saver, both of 2 ranks, 2 tiers", .world = 2, .tiers = 2, .kill_all = true},
};

static const struct way *way;
static char final_dir[300], buffer_dir[300], tier_dir[2][300];
static unsigned round_no;

static uint64_t random_at(uint64_t stream, uint64_t below)
{
    static uint64_t seed;
    if (!seed)
        seed = getenv("MR_TEST_SEED") ? strtoull(getenv("MR_TEST_SEED"), NULL, 10) : 1;
    return mr_mix64(mr_mix64(seed * 1000 + (uint64_t)(way - ways)) + 16 * round_no + stream) % below;
}

/* Ranks that outlive another one wait for it: seconds for each kill, so there are fewer of them. */
static unsigned kills_of(const struct way *w)
{
    const char *n = getenv("MR_TEST_KILLS");
    unsigned all = n ? (unsigned)strtoul(n, NULL, 10) : getenv("MR_TEST_FULL") ? 1000 : mr_test_few(45);
    unsigned slow = 0, few = all / 24 + 1;
    for (size_t i = 0; i < MR_ARRAY_LEN(ways); i++)
        slow += ways[i].world > 1 && !ways[i].kill_all;
    unsigned quick = (unsigned)MR_ARRAY_LEN(ways) - slow;
    return w->world > 1 && !w->kill_all ? few : (all - MR_MIN(all, slow * few) + quick - 1) / quick;
}

static int setup(void)
{
    int rc = way->tiers ? ct_setup_in_memory(NULL) : ct_setup(NULL);
    snprintf(final_dir, sizeof final_dir, "%s/final", ct_dir);
    snprintf(buffer_dir, sizeof buffer_dir, "%s/buffer", ct_dir);
    snprintf(tier_dir[0], sizeof tier_dir[0], "%s/memory", ct_dir);
    snprintf(tier_dir[1], sizeof tier_dir[1], "%s/disk", ct_dir);
    return rc;
}

/* ---- children ---- */

static pid_t start(void (*child)(uint32_t rank, uint64_t first, int fd), uint32_t rank, uint64_t first, int *from)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child(rank, first, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    *from = ends[0];
    return pid;
}

/* The last step that it told; what there is now, or with `all` everything until its end. */
static uint64_t told(int fd, bool all)
{
    uint64_t step, last = 0;
    struct pollfd p = {fd, POLLIN, 0};
    while ((all || poll(&p, 1, 0) > 0) && read(fd, &step, sizeof step) == sizeof step)
        last = step;
    return last;
}

static void wait_for_word(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    if (poll(&p, 1, 60000) != 1)
        fail_msg("%s, kill %u: nothing was saved in a minute", way->says, round_no);
}

static int wait_for_end(pid_t pid)
{
    int status = 0;
    for (int ms = 0; ms < 60000; ms += 2) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
        usleep(2000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    fail_msg("%s, kill %u: a rank that lived on did not end in a minute", way->says, round_no);
    return status;
}

/* ---- engines of the emulated training ---- */

static const struct mr_checkpoint_file files[] = {{"model.bin", 900000}, {"empty", 0}, {"optimizer.bin", 5000}};

static struct mr_checkpointer *open_with(const char *buffer)
{
    struct mr_checkpointer *c;
    struct mr_error e = {0};
    struct mr_checkpoint_params p = {.folder = final_dir,
                                     .world = 1,
                                     .fsync = true,
                                     .buffer_bytes = 4096,
                                     .random_content = true,
                                     .keep_last = 2,
                                     .engine = way->engine,
                                     .burst_folder = buffer,
                                     .burst_bytes = 4u << 20};
    if (mr_checkpointer_open(&p, &c, &e))
        fail_msg("%s: %s", way->says, e.message);
    return c;
}

static struct mr_checkpointer *open_engine(void)
{
    return open_with(way->burst ? buffer_dir : NULL);
}

/* Every folder of the final place with a checkpoint's name holds all that its list says. */
static void expect_nothing_torn(void)
{
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    struct mr_checkpointer *c = open_with(NULL); /* a load would wait for the buffer's drain */
    DIR *d = opendir(final_dir);
    for (const struct dirent *x; d && (x = readdir(d));) {
        unsigned long long step;
        char rest;
        if (sscanf(x->d_name, "step-%llu%c", &step, &rest) == 1 &&
            (mr_checkpoint_load(c, step, 0, &r, &e) || r.files != MR_ARRAY_LEN(files)))
            fail_msg("%s, kill %u: step %llu is torn: %s", way->says, round_no, step, e.message);
    }
    if (d)
        closedir(d);
    mr_checkpointer_close(c);
}

static uint64_t kill_engine(uint64_t known)
{
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    uint64_t step = 0;
    ct_drain_each = strcmp(way->engine, "async") == 0;
    uint64_t done = ct_save_and_kill(open_engine, files, MR_ARRAY_LEN(files), (unsigned)random_at(0, 30000));
    expect_nothing_torn();
    struct mr_checkpointer *c = open_engine();
    if (done < known || mr_checkpoint_newest(c, &step, &e) || step < done)
        fail_msg("%s, kill %u: step %llu was saved, the newest is %llu: %s", way->says, round_no,
                 (unsigned long long)MR_MAX(done, known), (unsigned long long)step, e.message);
    /* In every second round the next job finds the buffer as the kill left it. */
    if ((!way->burst || round_no % 2) &&
        (mr_checkpoint_drain(c, &e) || mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e) || r.files != MR_ARRAY_LEN(files)))
        fail_msg("%s, kill %u: %s", way->says, round_no, e.message);
    mr_checkpointer_close(c);
    return step;
}

/* ---- savers of states ---- */

static struct mr_saver_tier tiers[2];
static char job[64];

static struct mr_saver_params saver_params(uint32_t rank)
{
    for (int i = 0; i < 2; i++)
        tiers[i] = (struct mr_saver_tier){.folder = tier_dir[i], .capacity = i ? 0 : 8 * VALUES * 8};
    return (struct mr_saver_params){.size = sizeof(struct mr_saver_params),
                                    .folder = final_dir,
                                    .world = way->world,
                                    .rank = rank,
                                    .job = way->world > 1 ? job : NULL,
                                    .fsync = true,
                                    .copy_threads = 2,
                                    .keep_last = 2,
                                    .commit_timeout_s = 3,
                                    .ring_bytes = 32u << 20,
                                    .tier = tiers,
                                    .tiers = way->tiers};
}

static uint64_t values_of(uint64_t step)
{
    return step % LARGE || way->world > 1 ? VALUES : 8 * VALUES;
}

static int save_state(struct mr_saver *s, uint32_t rank, uint64_t step, struct mr_error *e)
{
    uint64_t n = values_of(step), *v = malloc(n * sizeof(*v));
    for (uint64_t i = 0; v && i < n; i++)
        v[i] = step * 1000003 + i * (rank + 1);
    struct mr_tensor t = {.name = "v", .dtype = "U64", .dims = 1, .shape = &n, .data = v};
    struct mr_state state = {.size = sizeof state, .tensor = &t, .tensors = 1, .json = "{}", .loader = "[1]"};
    int rc = way->overlapped ? mr_saver_begin(s, step, &state, e) : mr_saver_save(s, step, &state, NULL, e);
    if (!rc && way->overlapped)
        rc = mr_saver_fence(s, NULL, e);
    free(v);
    return rc;
}

/* Saves until it is killed, or another rank was. Tells each step that is over, and with MR_TEST_VERBOSE why it ended.
 */
static void save_until_the_end(uint32_t rank, uint64_t first, int fd)
{
    struct mr_saver_params p = saver_params(rank);
    struct mr_error e = {0};
    struct mr_saver *s;
    if (mr_saver_open(&p, &s, &e)) {
        fprintf(stderr, "rank %u cannot open a saver: %s\n", rank, e.message);
        _exit(2);
    }
    int rc = 0;
    struct mr_saved d;
    for (uint64_t step = first, n = 0; !rc; step++) {
        rc = save_state(s, rank, step, &e);
        if (!rc && step % 4 == 0)
            rc = mr_saver_wait(s, MR_ALL_STEPS, &e);
        for (; mr_saver_saved(s, n, &d); n++)
            if (!d.code && write(fd, &d.step, sizeof d.step) != sizeof d.step)
                _exit(2);
    }
    mr_saver_close(s, NULL);
    if (getenv("MR_TEST_VERBOSE"))
        fprintf(stderr, "kill %u: rank %u ends: %s (%s)\n", round_no, rank, e.message, e.context);
    _exit(3); /* of 1 rank: nothing may fail */
}

struct looking {
    pthread_t thread;
    uint32_t rank;
    uint64_t step;
    size_t place;
    int code;
    struct mr_error err;
};

static void *look(void *user)
{
    struct looking *l = user;
    struct mr_saver_params p = saver_params(l->rank);
    p.commit_timeout_s = 60;
    l->code = mr_state_nearest(&p, &l->step, &l->place, &l->err);
    return NULL;
}

/* What that rank would load is whole, and its own. */
static void expect_state(const struct looking *l)
{
    char folder[400];
    struct mr_state_reader *r;
    struct mr_error e = {0};
    uint64_t n = values_of(l->step), *v = malloc(n * sizeof(*v));
    if (l->place < way->tiers)
        snprintf(folder, sizeof folder, "%s/rank-%05u", tier_dir[l->place], l->rank);
    else
        snprintf(folder, sizeof folder, "%s", final_dir);
    struct mr_state_params p = {.size = sizeof p, .folder = folder, .step = l->step};
    if (mr_state_open(&p, &r, &e))
        fail_msg("%s, kill %u, rank %u: %s", way->says, round_no, l->rank, e.message);
    size_t at = mr_state_find(r, l->rank, "v");
    assert_int_not_equal(at, SIZE_MAX);
    if (mr_state_read(r, &(struct mr_state_range){at, 0, n * sizeof(*v), v, 0}, 1, &e))
        fail_msg("%s, kill %u, rank %u: %s", way->says, round_no, l->rank, e.message);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(v[i], l->step * 1000003 + i * (l->rank + 1));
    mr_state_close(r);
    free(v);
}

/* As a restart would: all ranks find the same step. */
static uint64_t load_nearest(void)
{
    struct looking l[RANKS_MAX] = {0};
    snprintf(job, sizeof job, "%s load %u", way->says, round_no);
    for (uint32_t r = 0; r < way->world; r++) {
        l[r].rank = r;
        assert_int_equal(pthread_create(&l[r].thread, NULL, look, &l[r]), 0);
    }
    for (uint32_t r = 0; r < way->world; r++)
        pthread_join(l[r].thread, NULL);
    for (uint32_t r = 0; r < way->world; r++) {
        if (l[r].code)
            fail_msg("%s, kill %u, rank %u: %s", way->says, round_no, r, l[r].err.message);
        assert_int_equal(l[r].step, l[0].step);
        expect_state(&l[r]);
    }
    return l[0].step;
}

static uint64_t kill_saver(uint64_t known)
{
    pid_t pid[RANKS_MAX];
    int from[RANKS_MAX];
    uint64_t least = UINT64_MAX, step;
    uint32_t victim = round_no % way->world;
    snprintf(job, sizeof job, "%s save %u", way->says, round_no);
    for (uint32_t r = 0; r < way->world; r++)
        pid[r] = start(save_until_the_end, r, known + 1, &from[r]);
    if (round_no == 0 || random_at(1, 4)) /* else also while they begin */
        wait_for_word(from[victim]);
    usleep((useconds_t)random_at(0, 40000));
    for (uint32_t r = 0; r < way->world; r++)
        if (way->kill_all || r == victim)
            kill(pid[r], SIGKILL);
    for (uint32_t r = 0; r < way->world; r++) {
        int status = wait_for_end(pid[r]);
        if (WIFEXITED(status) && (WEXITSTATUS(status) == 2 || r == victim))
            fail_msg("%s, kill %u: rank %u ended with %d before it was killed", way->says, round_no, r,
                     WEXITSTATUS(status));
    }
    for (uint32_t r = 0; r < way->world; r++) {
        step = told(from[r], true);
        least = MR_MIN(least, step);
        close(from[r]);
    }
    step = load_nearest();
    if (step < MR_MAX(known, least))
        fail_msg("%s, kill %u: step %llu was saved, the newest is %llu", way->says, round_no,
                 (unsigned long long)MR_MAX(known, least), (unsigned long long)step);
    return step;
}

/* ---- all of them ---- */

static void any_way_survives_kills(void **unused)
{
    (void)unused;
    unsigned all = 0;
    for (way = ways; way < ways + MR_ARRAY_LEN(ways); way++) {
        uint64_t known = 0, start_ns = mr_now_ns();
        assert_int_equal(setup(), 0);
        for (round_no = 0; round_no < kills_of(way); round_no++)
            known = way->engine ? kill_engine(known) : kill_saver(known);
        ct_teardown(NULL);
        all += round_no;
        print_message("%-34s %4u kills, %6llu checkpoints, the newest loaded each time (%.0f s)\n", way->says, round_no,
                      (unsigned long long)known, (double)(mr_now_ns() - start_ns) / 1e9);
    }
    print_message("%u kills over %zu ways to save\n", all, MR_ARRAY_LEN(ways));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_way_survives_kills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
