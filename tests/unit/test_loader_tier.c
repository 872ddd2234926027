/* The loader over tiers gives the same batches as without, byte for byte, whatever the format, the ends of epochs, the
 * number of ranks and where it was resumed; policy perfect gives prepared ones. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loader_fixture.h"

#include "cache/ssd_io.h"
#include "comm/comm.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EPOCHS 3u

/* All that a batch says. */
static int same_batch(const struct mr_batch *a, const struct mr_batch *b)
{
    if (a->epoch != b->epoch || a->index != b->index || a->n != b->n)
        return 1;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->ids[i] != b->ids[i] || a->labels[i] != b->labels[i] || a->bytes[i] != b->bytes[i] ||
            memcmp(a->rows[i], b->rows[i], a->bytes[i]) != 0 ||
            memcmp(mr_batch_shape(a, i), mr_batch_shape(b, i), sizeof(struct mr_shape)) != 0)
            return 2;
    return 0;
}

/* Reads both to the end of the epoch, or `most` batches; 0, or which batch differs (from 1 on). */
static int same_epoch(struct mr_loader *a, struct mr_loader *b, uint64_t epoch, uint64_t most)
{
    struct mr_error err = {0};
    struct mr_batch *x, *y;
    if (mr_loader_start_epoch(a, epoch, &err) || mr_loader_start_epoch(b, epoch, &err)) {
        print_error("epoch %d: %s\n", (int)epoch, err.message);
        return -1;
    }
    for (uint64_t i = 0; i < most; i++) {
        int more = mr_loader_next(a, &x, &err), also = mr_loader_next(b, &y, &err);
        if (more != also || more < 0) {
            print_error("epoch %d, batch %d: %d and %d, %s\n", (int)epoch, (int)i, more, also, err.message);
            return (int)i + 1;
        }
        if (!more)
            return 0;
        int differs = same_batch(x, y);
        mr_loader_release(a, x);
        mr_loader_release(b, y);
        if (differs)
            return (int)i + 1;
    }
    return 0;
}

static struct mr_loader_params tiered(const struct mr_loader_params *p, const char *policy, const char *tiers)
{
    struct mr_loader_params t = *p;
    t.policy = policy;
    t.tiers = tiers;
    t.last_epoch = EPOCHS - 1;
    return t;
}

static const struct {
    const char *name, *format;
    int64_t files, per_file;
    uint64_t size, stdev;
} sets[] = {{"raw", "raw", 50, 1, 3000, 0},
            {"npz", "npz", 50, 1, 5000, 0},
            {"npzvar", "npz", 50, 1, 6000, 2000},
            {"jpeg", "jpeg", 50, 1, 6000, 0},
            {"tfrecord", "tfrecord", 2, 25, 700, 200},
            {"hdf5", "hdf5", 2, 25, 4096, 0}};

static void every_format_is_the_same_as_without(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MR_ARRAY_LEN(sets); i++)
        for (unsigned verify = 0; verify < 2; verify++) {
            char path[512];
            struct mr_loader_params p = params(sets[i].name, path), t;
            p.flags |= verify ? MR_LOADER_VERIFY : 0;
            t = tiered(&p, NULL, i % 2 ? "ram=60KiB,staging=256KiB" : "ram=1MiB,staging=256KiB");
            struct mr_loader *plain = must_open(&p), *near = must_open(&t);
            assert_non_null(strstr(mr_loader_chosen(near), "millrace"));
            for (uint64_t e = 0; e < EPOCHS; e++)
                assert_int_equal(same_epoch(plain, near, e, UINT64_MAX), 0);
            struct mr_loader_stats s;
            mr_loader_get_stats(near, &s);
            assert_true(s.tier.used);
            assert_int_equal(s.tier.ram.samples + s.tier.ssd.samples + s.tier.peer.samples + s.tier.source.samples,
                             EPOCHS * 50);
            assert_true(s.tier.source.samples >= 50 && s.tier.source_bytes >= s.tier.distinct_bytes);
            if (i % 2 == 0) /* all of it has room */
                assert_int_equal(s.tier.source.samples, 50);
            mr_loader_close(near);
            mr_loader_close(plain);
        }
}

/* Rows of the tiers and tickets of the loader are numbered alike at every kind of end. */
static void ends_of_epochs_are_the_same(void **state)
{
    (void)state;
    static const char *const policies[] = {"millrace", "nopfs", "lbann-dynamic"};
    for (unsigned v = 0; v < 24; v++) {
        char path[512];
        struct mr_loader_params p = params("raw", path), t;
        struct mr_loader_state at;
        struct mr_error err;
        p.drop_last_batch = v & 1;
        p.max_samples = v & 2 ? 17 : 0;
        p.lookahead = v & 4 ? 0 : 3;
        t = tiered(&p, policies[v / 8], "ram=1MiB,staging=64KiB");
        struct mr_loader *plain = must_open(&p), *near = must_open(&t);
        assert_int_equal(same_epoch(plain, near, 0, UINT64_MAX), 0);
        assert_int_equal(same_epoch(plain, near, 1, 1), 0); /* abandoned */
        mr_loader_get_state(near, &at);
        assert_int_equal(same_epoch(plain, near, 0, UINT64_MAX), 0); /* again */
        assert_int_equal(mr_loader_resume(plain, &at, &err), 0);
        assert_int_equal(mr_loader_resume(near, &at, &err), 0);
        for (uint64_t e = 1; e < EPOCHS; e++)
            assert_int_equal(same_epoch(plain, near, e, UINT64_MAX), 0);
        mr_loader_close(near);
        mr_loader_close(plain);
    }
}

/* Without an announced end. */
static void epochs_without_an_end(void **state)
{
    (void)state;
    char path[512];
    struct mr_loader_params p = params("raw", path), t = tiered(&p, "millrace", "ram=1MiB");
    t.last_epoch = 0;
    struct mr_loader *plain = must_open(&p), *near = must_open(&t);
    for (uint64_t e = 0; e < 70; e++) /* beyond what is looked ahead to */
        assert_int_equal(same_epoch(plain, near, e, UINT64_MAX), 0);
    assert_int_equal(same_epoch(plain, near, 7, UINT64_MAX), 0);
    mr_loader_close(near);
    mr_loader_close(plain);
}

static void stop_and_restart(void **state)
{
    (void)state;
    char path[512];
    struct mr_loader_params p = params("raw", path), t = tiered(&p, "millrace", "ram=1MiB");
    struct mr_loader *near = must_open(&t);
    struct mr_batch *b;
    struct mr_error err;
    assert_int_equal(mr_loader_start_epoch(near, 0, &err), 0);
    assert_int_equal(mr_loader_next(near, &b, &err), 1);
    mr_loader_release(near, b);
    mr_loader_stop(near);
    assert_int_equal(mr_loader_next(near, &b, &err), MR_E_INTERRUPTED);
    mr_loader_restart(near);
    uint64_t n = 1;
    while (mr_loader_next(near, &b, &err) > 0) {
        assert_int_equal(b->index, n++);
        mr_loader_release(near, b);
    }
    assert_int_equal(n, 8);
    mr_loader_stop(near);
    assert_int_equal(mr_loader_start_epoch(near, 2, &err), MR_E_INTERRUPTED);
    mr_loader_close(near);
}

/* A rank of `world`: reads what the plain loader reads, from epoch 0 to the middle of epoch 1, or on from there. */
static int read_as_rank(struct mr_comm *c, const struct mr_loader_state *from, struct mr_loader_state *to)
{
    char path[512];
    struct mr_loader_params p = params("raw", path), t;
    struct mr_error err = {0};
    struct mr_loader *plain = NULL, *near = NULL;
    p.batch_size = 2;
    p.order.drop_last = true;
    p.order.rank = c->rank;
    p.order.world = c->world;
    t = tiered(&p, "millrace", "ram=1MiB,staging=64KiB");
    t.exchange = mr_comm_exchange;
    t.exchange_ctx = c;
    t.peers = MR_LOADER_PEERS_OFF;
    int rc = mr_loader_open(&t, &near, &err);
    if (!rc)
        rc = mr_loader_open(&p, &plain, &err);
    if (rc)
        print_error("rank %u: %s\n", c->rank, err.message);
    if (!rc && !from) {
        rc = same_epoch(plain, near, 0, UINT64_MAX);
        rc = rc ? rc : same_epoch(plain, near, 1, 3);
        mr_loader_get_state(near, to);
    } else if (!rc) {
        rc = mr_loader_resume(plain, from, &err) || mr_loader_resume(near, from, &err);
        for (uint64_t e = 1; !rc && e < EPOCHS; e++)
            rc = same_epoch(plain, near, e, UINT64_MAX);
    }
    struct mr_loader_stats s = {0};
    if (!rc) {
        mr_loader_get_stats(near, &s);
        rc = mr_comm_barrier(c, &err);
    }
    if (!rc && !from && s.tier.source_bytes != s.tier.distinct_bytes) {
        print_error("rank %u: %llu bytes read, %llu distinct\n", c->rank, (unsigned long long)s.tier.source_bytes,
                    (unsigned long long)s.tier.distinct_bytes);
        rc = 1;
    }
    mr_loader_close(near);
    mr_loader_close(plain);
    return rc;
}

/* In a process of its own, which forks the others: they end here. */
static struct mr_loader_state run_ranks(uint32_t world, const struct mr_loader_state *from)
{
    struct mr_loader_state to = {0};
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct mr_comm *c = NULL;
        struct mr_error err;
        int rc = mr_comm_open(world, 1, &c, &err);
        rc = rc ? rc : read_as_rank(c, from, &to);
        rc = c ? mr_comm_agree(c, rc ? MR_E_INTERNAL : 0, &err) : rc;
        if (c && c->rank == 0 && !rc && write(pipes[1], &to, sizeof to) != sizeof to)
            rc = 1;
        if (c)
            mr_comm_close(c);
        _exit(rc ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(pipes[0], &to, sizeof to), sizeof to);
    close(pipes[0]);
    close(pipes[1]);
    return to;
}

static void resumes_with_other_numbers_of_ranks(void **state)
{
    (void)state;
    static const uint32_t worlds[][2] = {{2, 3}, {3, 1}, {1, 2}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(worlds); i++) {
        struct mr_loader_state at = run_ranks(worlds[i][0], NULL);
        assert_int_equal(at.epoch, 1);
        assert_int_equal(at.position, 6 * worlds[i][0]);
        run_ranks(worlds[i][1], &at);
    }
}

/* A rank of two that only the environment tells about each other. */
static int read_under_torchrun(uint32_t rank, const char *port, const char *key_file)
{
    char path[512], text[16];
    struct mr_loader_params p = params("raw", path), t;
    struct mr_error err = {0};
    struct mr_loader *plain = NULL, *near = NULL;
    snprintf(text, sizeof text, "%u", rank);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("RANK", text, 1);
    p.order.rank = rank;
    p.order.world = 2;
    t = tiered(&p, NULL, "ram=1MiB,staging=64KiB");
    t.peers = MR_LOADER_PEERS_OFF;
    t.key_file = key_file;
    int rc = mr_loader_open(&t, &near, &err);
    rc = rc ? rc : mr_loader_open(&p, &plain, &err);
    if (rc)
        print_error("rank %u: %s\n", rank, err.message);
    for (uint64_t e = 0; !rc && e < EPOCHS; e++)
        rc = same_epoch(plain, near, e, UINT64_MAX);
    struct mr_loader_stats s = {0};
    if (!rc)
        mr_loader_get_stats(near, &s);
    mr_loader_close(near);
    mr_loader_close(plain);
    return rc || s.tier.nodes != 1 || s.tier.ram.samples + s.tier.source.samples != 75;
}

static void write_key(char path[512], mode_t mode)
{
    uint8_t key[MR_LOADER_KEY_BYTES];
    snprintf(path, 512, "%s/key", root);
    unlink(path);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, mode);
    assert_int_equal(getrandom(key, sizeof key, 0), sizeof key);
    assert_int_equal(write(fd, key, sizeof key), sizeof key);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void ranks_find_each_other_as_torchrun_says(void **state)
{
    (void)state;
    char port[16], key_file[512];
    write_key(key_file, 0600);
    snprintf(port, sizeof port, "%d", 20000 + (int)getpid() % 20000);
    pid_t pid[2];
    for (uint32_t r = 0; r < 2; r++)
        if ((pid[r] = fork()) == 0)
            _exit(read_under_torchrun(r, port, key_file) ? 1 : 0);
    for (uint32_t r = 0; r < 2; r++) {
        int status;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        assert_int_equal(status, 0);
    }
}

/* A file that has changed fails the same batch, with tiers before it is read, and is left out where that is asked for.
 */
static void a_broken_sample_is_the_same(void **state)
{
    (void)state;
    char path[512];
    make_set("broken", "raw", 30, 1, 3000, 0);
    struct mr_loader_params p = params("broken", path), t;
    struct mr_sample_place where;
    struct mr_dataset *ds;
    struct mr_error err, other;
    assert_int_equal(mr_dataset_open(path, NULL, &ds, &err), 0);
    assert_int_equal(mr_dataset_locate(ds, 11, &where, &err), 0);
    assert_int_equal(truncate(where.path, 1000), 0);
    mr_dataset_close(ds);
    t = tiered(&p, NULL, "ram=1MiB,staging=64KiB");
    struct mr_loader *plain = must_open(&p), *near = must_open(&t);
    assert_int_equal(mr_loader_start_epoch(plain, 0, &err), 0);
    assert_int_equal(mr_loader_start_epoch(near, 0, &err), 0);
    for (int rc = 1; rc > 0;) {
        struct mr_batch *a, *b;
        rc = mr_loader_next(plain, &a, &err);
        int tiered_rc = mr_loader_next(near, &b, &other);
        assert_int_equal(tiered_rc, rc < 0 ? MR_E_CHANGED : rc);
        assert_true(rc != 0);
        if (rc > 0) {
            mr_loader_release(plain, a);
            mr_loader_release(near, b);
        } else {
            assert_non_null(strstr(other.context, where.path));
        }
    }
    mr_loader_close(near);
    mr_loader_close(plain);
    p.flags = t.flags = MR_LOADER_SKIP_BAD;
    plain = must_open(&p);
    near = must_open(&t);
    for (uint64_t e = 0; e < EPOCHS; e++)
        assert_int_equal(same_epoch(plain, near, e, UINT64_MAX), 0);
    assert_int_equal(mr_loader_skipped(near, &err), EPOCHS);
    mr_loader_close(near);
    mr_loader_close(plain);
}

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1, 2, 3};
    char path[512];
    struct mr_loader_params p = params("raw", path), t = tiered(&p, NULL, "ram=1MiB");
    struct mr_loader *l = must_open(&t);
    struct mr_error err;
    assert_int_equal(mr_loader_start_list(l, 0, ids, 3, 0, &err), MR_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "order"));
    mr_loader_close(l);
    t.flags |= MR_LOADER_IN_MEMORY;
    assert_int_equal(mr_loader_open(&t, &l, &err), MR_E_USAGE);
    t.flags = 0;
    t.tiers = "ram=1MiB,tape=3";
    assert_int_equal(mr_loader_open(&t, &l, &err), MR_E_CONFIG);
    assert_non_null(strstr(err.message, "tape"));
    unsetenv("MASTER_ADDR");
    t.tiers = "ram=1MiB";
    t.order.world = 2;
    assert_int_equal(mr_loader_open(&t, &l, &err), MR_E_USAGE);
    assert_non_null(strstr(err.hint, "key_file"));
    char key_file[512];
    write_key(key_file, 0600);
    t.key_file = key_file;
    assert_int_equal(mr_loader_open(&t, &l, &err), MR_E_USAGE);
    assert_non_null(strstr(err.hint, "torchrun"));
    t.key = (const uint8_t *)key_file;
    assert_int_equal(mr_loader_open(&t, &l, &err), MR_E_USAGE);
    assert_non_null(strstr(err.message, "one of them"));
}

/* Each refused before anybody is asked for anything. */
static void a_key_that_is_no_secret_is_refused(void **state)
{
    (void)state;
    uint8_t key[MR_WIRE_SECRET_BYTES];
    char path[512], link[530];
    struct mr_error err;
    write_key(path, 0600);
    assert_int_equal(mr_wire_key_read(path, key, &err), 0);
    write_key(path, 0400);
    assert_int_equal(mr_wire_key_read(path, key, &err), 0);
    write_key(path, 0640);
    assert_int_equal(mr_wire_key_read(path, key, &err), MR_E_USAGE);
    assert_non_null(strstr(err.message, "0640"));
    write_key(path, 0606);
    assert_int_equal(mr_wire_key_read(path, key, &err), MR_E_USAGE);
    write_key(path, 0600);
    snprintf(link, sizeof link, "%s.link", path);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(mr_wire_key_read(link, key, &err), MR_E_USAGE);
    unlink(link);
    assert_int_equal(truncate(path, 31), 0);
    assert_int_equal(mr_wire_key_read(path, key, &err), MR_E_USAGE);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mr_wire_key_read(path, key, &err), MR_E_USAGE);
    unlink(path);
    assert_int_equal(mr_wire_key_read(path, key, &err), -ENOENT);
    if (geteuid() == 0) {
        write_key(path, 0600);
        assert_int_equal(chown(path, 1, 1), 0);
        assert_int_equal(mr_wire_key_read(path, key, &err), MR_E_USAGE);
        unlink(path);
    }
}

/* What rank 0 says of its node, changed on its way: a number that no node has is refused everywhere. */
struct liar {
    struct mr_comm *comm;
    uint64_t classes, capacity;
    int rc;
};

static int lie(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err)
{
    struct liar *l = ctx;
    int rc = mr_comm_exchange(l->comm, mine, len, all, err);
    if (!rc && len == 72) { /* its storage classes: 4 bytes and 4 of padding, 8 capacities */
        memcpy(all, &l->classes, 4);
        memcpy((uint8_t *)all + 16, &l->capacity, 8);
    }
    return rc;
}

static void *open_with_liar(void *arg)
{
    struct liar *l = arg;
    char path[512];
    struct mr_loader_params p = params("raw", path), t;
    struct mr_loader *near = NULL;
    struct mr_error err;
    p.order.rank = l->comm->rank;
    p.order.world = l->comm->world;
    t = tiered(&p, NULL, "ram=1MiB,staging=64KiB");
    t.peers = MR_LOADER_PEERS_OFF;
    t.exchange = lie;
    t.exchange_ctx = l;
    l->rc = mr_loader_open(&t, &near, &err);
    mr_loader_close(near);
    return NULL;
}

static void numbers_of_a_peer_are_bounded(void **state)
{
    (void)state;
    static const uint64_t lies[][3] = {{2, 1 << 20, 0}, {0, 0, 1},          {1, 0, 1},
                                       {9, 0, 1},       {UINT32_MAX, 0, 1}, {2, UINT64_MAX, 1}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(lies); i++) {
        struct mr_comm *comm[2];
        struct liar l[2];
        pthread_t thread[2];
        assert_int_equal(mr_comm_threads_open(2, comm, NULL), 0);
        for (unsigned r = 0; r < 2; r++) {
            l[r] = (struct liar){.comm = comm[r], .classes = lies[i][0], .capacity = lies[i][1]};
            assert_int_equal(pthread_create(&thread[r], NULL, open_with_liar, &l[r]), 0);
        }
        for (unsigned r = 0; r < 2; r++)
            pthread_join(thread[r], NULL);
        for (unsigned r = 0; r < 2; r++) {
            assert_int_equal(l[r].rc, lies[i][2] ? MR_E_PEER : 0);
            mr_comm_close(comm[r]);
        }
    }
}

/* Many samples wait for few readers: time in our own queue is not the device's, and a copy that another delivery brought
 * took nothing. */
static void fetch_times_are_those_of_the_device(void **state)
{
    (void)state;
    char path[512];
    struct mr_loader_params p = params("raw", path), t = tiered(&p, NULL, "ram=1MiB,staging=1MiB,readers=2");
    t.store = "throttle(latency=4ms):posix";
    uint64_t start = mr_now_ns();
    struct mr_loader *l = must_open(&t);
    struct mr_batch *b;
    struct mr_error err;
    for (uint64_t e = 0; e < EPOCHS; e++) {
        assert_int_equal(mr_loader_start_epoch(l, e, &err), 0);
        while (mr_loader_next(l, &b, &err) > 0)
            mr_loader_release(l, b);
    }
    struct mr_loader_stats s;
    mr_loader_get_stats(l, &s);
    assert_int_equal(s.tier.source.samples, 50);
    assert_in_range(s.tier.source.fetch_ns, 50 * 4 * MR_NS_PER_MS, 2 * (mr_now_ns() - start));
    assert_int_equal(s.tier.ram.fetch_ns, 0);
    mr_loader_close(l);
}

/* An SSD that moves a sample in 10 ms, one at a time, beside a source that takes 2 ms for one and has 4 readers: neither
 * a folder that an earlier run filled nor copies to it make a run slower than the source alone. */
static pthread_mutex_t ssd_busy = PTHREAD_MUTEX_INITIALIZER;

static int slow_ssd(enum mr_ssd_call call)
{
    if (call == MR_SSD_CALL_READ || call == MR_SSD_CALL_WRITE) {
        pthread_mutex_lock(&ssd_busy);
        usleep(10000);
        pthread_mutex_unlock(&ssd_busy);
    }
    return 0;
}

static uint64_t time_of_epochs(const struct mr_loader_params *p, struct mr_loader_stats *s)
{
    uint64_t start = mr_now_ns();
    struct mr_loader *l = must_open(p);
    struct mr_batch *b;
    struct mr_error err;
    for (uint64_t e = 0; e < EPOCHS; e++) {
        assert_int_equal(mr_loader_start_epoch(l, e, &err), 0);
        while (mr_loader_next(l, &b, &err) > 0)
            mr_loader_release(l, b);
    }
    mr_loader_get_stats(l, s);
    mr_loader_close(l);
    return mr_now_ns() - start;
}

static void a_slow_ssd_costs_nothing(void **state)
{
    (void)state;
    char path[512], tiers[600], folder[500];
    struct mr_loader_stats s;
    make_set("slow", "raw", 300, 1, 3000, 0);
    struct mr_loader_params p = params("slow", path), t = tiered(&p, "millrace", tiers);
    snprintf(folder, sizeof folder, "%s/slow-ssd", root);
    snprintf(tiers, sizeof tiers, "ram=64KiB,staging=256KiB,readers=4,ssd=%s:8MiB", folder);
    p.store = t.store = "throttle(latency=2ms):posix";
    p.threads = 4;
    p.policy = "staging";
    p.last_epoch = EPOCHS - 1;
    uint64_t plain = time_of_epochs(&p, &s);
    time_of_epochs(&t, &s); /* fills the folder */
    assert_int_equal(s.tier.ssd_refused, 0);
    mr_ssd_fault = slow_ssd;
    uint64_t filled = time_of_epochs(&t, &s);
    assert_true(s.tier.source.samples > s.tier.ssd.samples);
    char remove[600];
    snprintf(remove, sizeof remove, "rm -rf '%s'", folder);
    assert_int_equal(system(remove), 0);
    uint64_t empty = time_of_epochs(&t, &s);
    mr_ssd_fault = NULL;
    print_message("source alone %.2f s, SSD full of it %.2f s, SSD empty %.2f s\n", (double)plain / 1e9,
                  (double)filled / 1e9, (double)empty / 1e9);
    assert_in_range(filled, 0, plain + 4 * MR_NS_PER_S); /* 9 s where every read waits for the SSD */
    assert_in_range(empty, 0, plain + 4 * MR_NS_PER_S);
}

static void perfect_hands_out_what_it_prepared(void **state)
{
    (void)state;
    char path[512];
    struct mr_loader_params p = params("raw", path);
    p.policy = "perfect";
    p.lookahead = 2;
    struct mr_loader *l = must_open(&p);
    uint64_t first[21];
    for (uint64_t e = 0; e < 3; e++) {
        struct mr_batch *b;
        struct mr_error err;
        uint64_t n = 0, rows = 0;
        assert_int_equal(mr_loader_start_epoch(l, e, &err), 0);
        while (mr_loader_next(l, &b, &err) > 0) {
            assert_true(b->epoch == e && b->index == n);
            assert_int_equal(b->n, n == 7 ? 1 : 7); /* 50 samples */
            uint64_t step = e * 8 + n, place = step % 3;
            for (uint32_t i = 0; i < b->n; i++) {
                if (step < 3)
                    first[place * 7 + i] = b->ids[i];
                assert_int_equal(b->ids[i], first[place * 7 + i]);
            }
            rows += b->n;
            n++;
            mr_loader_release(l, b);
        }
        assert_int_equal(n, 8);
        assert_int_equal(rows, 50);
    }
    struct mr_loader_stats s;
    mr_loader_get_stats(l, &s);
    assert_int_equal(s.read_bytes, 21 * 3000);
    mr_loader_close(l);
}

int main(void)
{
    open_root("loader-tier");
    for (unsigned i = 0; i < MR_ARRAY_LEN(sets); i++)
        make_set(sets[i].name, sets[i].format, sets[i].files, sets[i].per_file, sets[i].size, sets[i].stdev);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_is_the_same_as_without),
        cmocka_unit_test(ends_of_epochs_are_the_same),
        cmocka_unit_test(epochs_without_an_end),
        cmocka_unit_test(stop_and_restart),
        cmocka_unit_test(resumes_with_other_numbers_of_ranks),
        cmocka_unit_test(ranks_find_each_other_as_torchrun_says),
        cmocka_unit_test(a_broken_sample_is_the_same),
        cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(a_key_that_is_no_secret_is_refused),
        cmocka_unit_test(numbers_of_a_peer_are_bounded),
        cmocka_unit_test(fetch_times_are_those_of_the_device),
        cmocka_unit_test(a_slow_ssd_costs_nothing),
        cmocka_unit_test(perfect_hands_out_what_it_prepared),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_root();
    return rc;
}
