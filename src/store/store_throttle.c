/* The throttle shim: an emulated device or parallel file system, shared by all threads and, with group=NAME, by all
 * processes of this machine that give the same name and see the same group_folder.
 *
 * Virtual scheduling: every call reserves time on the resources it uses and is held until its reservation ends; nothing
 * is slowed down by spinning or by small pieces. With start = when the call began, bytes = what it moved:
 *
 *    ready    = start + latency (+ open_latency for opens)
 *    stream   : ready + bytes / stream_bandwidth                        one thread, or one place in a queue
 *    file     : max(file's end, ready) + bytes / file_bandwidth         one file: the targets that it is striped over
 *    client   : max(client's end, ready) + bytes / client_bandwidth     one process
 *    aggregate: max(shared end, ready) + bytes / rate                   all; rate = bandwidth, or t(active) from a
 * table due      = the latest of them
 *
 * t(active) is interpolated linearly between the table's points and clamped at both ends. Active are the streams (or
 * processes) with a call in flight, or whose last one ended less than GRACE_NS ago: between two calls of a loop a
 * thread is briefly outside, and the device's rate must not jump because of that.
 *
 * Read-ahead: a read that begins where the stream's last one ended, in the same file, was under way since then. It
 * costs no latency and its time counts from the end of the last one; a window of W bytes bounds the stream to
 * W / latency. A longer read than the window gains nothing.
 *
 * Never faster than asked: an end is never earlier than the resource allows. On the average not slower either: by how
 * much a sleep overshot is credited to the same stream's next call.
 *
 * Invariants
 *  1. All shared figures are guarded by one robust mutex, held for a few hundred nanoseconds, never while sleeping.
 *  2. Ends only grow. A process that dies inside the lock leaves figures that are each valid, so its successor goes on.
 *  3. A group file lives while a process holds a shared flock on it; the only holder starts afresh or removes
 *     it. The kernel drops the lock of a killed process, so nothing stays held and nothing stale is trusted. */
#include "base/common.h"
#include "base/log.h"
#include "store/store_internal.h"
#include "store/store_shim.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_POINTS 32
#define MAX_STREAMS 512u /* power of two */
#define MAX_CLIENTS 256u
#define MAX_FILES 1024u /* power of two */
#define PROBES 16u
#define GRACE_NS (2 * MR_NS_PER_MS)
#define LEASE_NS (5 * MR_NS_PER_S)
#define CREDIT_NS (20 * MR_NS_PER_MS) /* an older overshoot is forgotten */
#define GROUP_MAGIC 0x3376746f7268746dull

struct throttle_options {
    uint64_t bandwidth, write_bandwidth, stream_bandwidth, client_bandwidth, file_bandwidth, readahead;
    uint64_t latency_ns, open_latency_ns;
    double metadata_rate;
    const char *aggregate, *group, *group_folder;
    int active;
};

static const char *const active_names[] = {"streams", "processes", NULL};

#define OPT(field) .offset = offsetof(struct throttle_options, field)
static const struct mr_option throttle_rows[] = {
    {.key = "bandwidth",
     .type = MR_OPT_BYTES,
     OPT(bandwidth),
     .def = "0",
     .doc = "Bytes per second that all clients share; 0 = no limit. Reads, and writes unless write_bandwidth is given.",
     .example = "throttle(bandwidth=163MB,latency=8ms):posix"},
    {.key = "write_bandwidth",
     .type = MR_OPT_BYTES,
     OPT(write_bandwidth),
     .def = "0",
     .doc = "Bytes per second for all writes, apart from reads; 0 = writes share the bandwidth of reads."},
    {.key = "aggregate",
     .type = MR_OPT_STRING,
     OPT(aggregate),
     .def = "",
     .doc = "Shared bandwidth as a table over the number of active clients, in place of bandwidth: "
            "clients:rate/clients:rate, "
            "interpolated and clamped.",
     .example = "aggregate=1:71MB/2:120MB/4:163MB"},
    {.key = "active",
     .type = MR_OPT_ENUM,
     OPT(active),
     .def = "streams",
     .choices = active_names,
     .doc = "What the aggregate table counts: streams (threads and queue places) or processes."},
    {.key = "stream_bandwidth",
     .type = MR_OPT_BYTES,
     OPT(stream_bandwidth),
     .def = "0",
     .doc = "Bytes per second of one stream: one thread, or one place in a queue; 0 = no limit."},
    {.key = "client_bandwidth",
     .type = MR_OPT_BYTES,
     OPT(client_bandwidth),
     .def = "0",
     .doc = "Bytes per second of one process, its link to the storage; 0 = no limit."},
    {.key = "file_bandwidth",
     .type = MR_OPT_BYTES,
     OPT(file_bandwidth),
     .def = "0",
     .doc =
         "Bytes per second that all who use one file share, as where a file is striped over few targets; 0 = no limit.",
     .example = "throttle(file_bandwidth=200MB,bandwidth=2GB):posix"},
    {.key = "latency",
     .type = MR_OPT_DURATION,
     OPT(latency_ns),
     .def = "0",
     .doc = "Time that every read, write and sync takes before its bytes move; overlaps between streams."},
    {.key = "readahead",
     .type = MR_OPT_BYTES,
     OPT(readahead),
     .def = "0",
     .doc = "Bytes that the storage reads ahead of a stream that reads a file in sequence: such reads, up to this "
            "length, cost no latency; 0 = none.",
     .example = "throttle(latency=2ms,readahead=4MiB):posix"},
    {.key = "open_latency",
     .type = MR_OPT_DURATION,
     OPT(open_latency_ns),
     .def = "0",
     .doc = "Time that every open takes."},
    {.key = "metadata_rate",
     .type = MR_OPT_DOUBLE,
     OPT(metadata_rate),
     .def = "0",
     .min = 0,
     .max = 1e9,
     .doc = "Opens, stats, listings, renames and removals per second that all clients share; 0 = no limit."},
    {.key = "group",
     .type = MR_OPT_STRING,
     OPT(group),
     .def = "",
     .doc = "Name under which processes of this machine share the emulated device; empty = this store alone. All must "
            "give "
            "the same options."},
    {.key = "group_folder",
     .type = MR_OPT_STRING,
     .flags = MR_OPTF_WRITES,
     OPT(group_folder),
     .def = "/dev/shm",
     .doc = "Folder of the group's file, on a local file system. Containers and namespaces with a /dev/shm of their "
            "own share the emulated device through a folder that all of them see.",
     .example = "throttle(bandwidth=40MB,group=pfs,group_folder=/scratch):posix"},
    MR_OPTION_END,
};

/* ---- what a group shares ---- */

struct stream {
    uint64_t owner;  /* (client + 1) << 40 ^ stream, 0 = never used */
    uint32_t client; /* index */
    uint64_t end_ns; /* of its last call; a lease while one is in flight below, so that a killed process fades out */
    uint64_t credit_ns;
    uint64_t file, next; /* read-ahead: the last read's file and where it ended, in bytes and in time */
    uint64_t last_due_ns;
};

struct file {
    uint64_t key; /* hash of its path, 0 = never used */
    uint64_t end_ns;
};

struct client {
    int64_t pid;   /* 0 = free */
    uint64_t pids; /* its PID namespace: whether a process of another one lives cannot be asked here */
    uint64_t end_ns;
};

struct shared {
    uint64_t magic;
    uint64_t options_hash;
    pthread_mutex_t lock;
    uint64_t read_end_ns, write_end_ns, meta_end_ns;
    struct client client[MAX_CLIENTS];
    struct stream stream[MAX_STREAMS];
    struct file file[MAX_FILES];
};

struct point {
    double clients, rate;
};

struct throttle_store {
    struct mr_shim shim;
    struct throttle_options o;
    struct point point[MAX_POINTS];
    unsigned points;
    struct shared *shared;
    int group_fd; /* -1 = private */
    char group_path[PATH_MAX];
    pid_t owner; /* who opened: a forked child must not take the group away from its parent */
    uint32_t client;
};

static void lock(struct shared *s)
{
    if (pthread_mutex_lock(&s->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&s->lock); /* invariant 2 */
}

static void unlock(struct shared *s)
{
    pthread_mutex_unlock(&s->lock);
}

/* The stream's place; steals one that has been quiet when it is new. NULL when all near ones are busy: it then has no
 * credit and does not count as active, which only matters beyond MAX_STREAMS streams. */
static struct stream *stream_of(struct throttle_store *t, uint64_t id, uint64_t now)
{
    uint64_t owner = ((uint64_t)(t->client + 1) << 40) ^ id;
    size_t at = (size_t)((owner * 0x9e3779b97f4a7c15ull) >> 40);
    struct stream *quiet = NULL;
    for (unsigned i = 0; i < PROBES; i++) {
        struct stream *s = &t->shared->stream[(at + i) & (MAX_STREAMS - 1)];
        if (s->owner == owner)
            return s;
        if (!quiet && (s->owner == 0 || s->end_ns + GRACE_NS < now))
            quiet = s;
    }
    if (quiet)
        *quiet = (struct stream){.owner = owner, .client = t->client};
    return quiet;
}

static unsigned count_active(const struct throttle_store *t, uint64_t now)
{
    uint64_t seen[MAX_CLIENTS / 64] = {0};
    unsigned streams = 0, clients = 0;
    for (unsigned i = 0; i < MAX_STREAMS; i++) {
        const struct stream *s = &t->shared->stream[i];
        if (s->owner == 0 || s->end_ns + GRACE_NS < now)
            continue;
        streams++;
        if (!(seen[s->client / 64] >> s->client % 64 & 1)) {
            seen[s->client / 64] |= 1ull << s->client % 64;
            clients++;
        }
    }
    return MR_MAX(1u, t->o.active ? clients : streams);
}

static double interpolate(const struct point *p, unsigned n, double x)
{
    if (x <= p[0].clients)
        return p[0].rate;
    for (unsigned i = 1; i < n; i++)
        if (x <= p[i].clients)
            return p[i - 1].rate +
                   (p[i].rate - p[i - 1].rate) * (x - p[i - 1].clients) / (p[i].clients - p[i - 1].clients);
    return p[n - 1].rate;
}

/* The file's place; takes one whose time is past when it is new. NULL when all near ones are in use: it then has no
 * limit of its own, which only matters with hundreds of files in flight. */
static struct file *file_of(struct throttle_store *t, uint64_t key, uint64_t now)
{
    struct file *past = NULL;
    for (unsigned i = 0; i < PROBES; i++) {
        struct file *f = &t->shared->file[(key + i) & (MAX_FILES - 1)];
        if (f->key == key)
            return f;
        if (!past && f->end_ns <= now)
            past = f;
    }
    if (past)
        *past = (struct file){.key = key, .end_ns = now};
    return past;
}

static uint64_t file_key(const char *path)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (; path && *path; path++)
        h = (h ^ (unsigned char)*path) * 0x100000001b3ull;
    h ^= h >> 29;
    return h ? h : 1;
}

static uint64_t time_for(uint64_t bytes, double rate)
{
    /* Rounded up: never faster than asked. */
    return rate > 0 ? (uint64_t)((double)bytes * 1e9 / rate) + 1 : 0;
}

/* Takes `need` on a resource and moves *due to where that ends, if that is later. */
static void reserve(uint64_t *end, uint64_t ready, uint64_t need, uint64_t *due)
{
    assert(*end <= UINT64_MAX - need && ready <= UINT64_MAX - need); /* invariant 2: ends only grow */
    *end = MR_MAX(*end, ready) + need;
    *due = MR_MAX(*due, *end);
}

/* ---- the two sides of a call ---- */

static bool moves_bytes(enum mr_shim_kind k)
{
    return k == MR_SHIM_READ || k == MR_SHIM_READ_PATH || k == MR_SHIM_WRITE;
}

static bool is_metadata(enum mr_shim_kind k)
{
    return k == MR_SHIM_OPEN || k == MR_SHIM_READ_PATH || k == MR_SHIM_STAT || k == MR_SHIM_LIST ||
           k == MR_SHIM_MKDIR || k == MR_SHIM_UNLINK || k == MR_SHIM_RENAME;
}

/* Announces the stream as active and takes its credit. */
static int throttle_before(struct mr_shim *shim, struct mr_shim_call *c, struct mr_error *err)
{
    (void)err;
    struct throttle_store *t = (struct throttle_store *)shim;
    if (!moves_bytes(c->kind))
        return 0;
    lock(t->shared);
    struct stream *s = stream_of(t, c->stream, c->start_ns);
    if (s) {
        if (s->credit_ns && s->end_ns + s->credit_ns <= c->start_ns && c->start_ns - s->end_ns <= CREDIT_NS)
            c->start_ns -= s->credit_ns;
        s->credit_ns = 0;
        s->end_ns = c->start_ns + LEASE_NS;
    }
    unlock(t->shared);
    return 0;
}

/* Where the read was under way since the stream's last one ended: moves *ready there and says how long its bytes take
 * at least. */
static void read_ahead(const struct throttle_store *t, const struct stream *s, const struct mr_shim_call *c,
                       uint64_t file, uint64_t bytes, uint64_t *ready, uint64_t *least_ns)
{
    if (!t->o.readahead || !s || c->kind != MR_SHIM_READ || bytes > t->o.readahead || s->file != file ||
        s->next != c->offset || !s->last_due_ns)
        return;
    *ready = MR_MIN(s->last_due_ns, *ready);
    *least_ns = (uint64_t)((double)t->o.latency_ns * (double)bytes / (double)t->o.readahead) + 1;
}

static uint64_t reserve_bytes(struct throttle_store *t, const struct mr_shim_call *c, uint64_t ready, uint64_t bytes)
{
    struct shared *sh = t->shared;
    struct stream *s = stream_of(t, c->stream, c->start_ns);
    uint64_t file = t->o.file_bandwidth || t->o.readahead ? file_key(c->path) : 0, least_ns = 0;
    read_ahead(t, s, c, file, bytes, &ready, &least_ns);
    bool apart = c->kind == MR_SHIM_WRITE && t->o.write_bandwidth;
    double rate = apart ? (double)t->o.write_bandwidth : (double)t->o.bandwidth;
    if (!apart && t->points)
        rate = interpolate(t->point, t->points, count_active(t, c->start_ns));
    uint64_t due = ready + MR_MAX(least_ns, time_for(bytes, (double)t->o.stream_bandwidth));
    if (rate > 0)
        reserve(apart ? &sh->write_end_ns : &sh->read_end_ns, ready, time_for(bytes, rate), &due);
    if (t->o.client_bandwidth)
        reserve(&sh->client[t->client].end_ns, ready, time_for(bytes, (double)t->o.client_bandwidth), &due);
    struct file *f = t->o.file_bandwidth ? file_of(t, file, ready) : NULL;
    if (f)
        reserve(&f->end_ns, ready, time_for(bytes, (double)t->o.file_bandwidth), &due);
    if (s) {
        s->end_ns = s->last_due_ns = due;
        s->file = file;
        s->next = c->offset + bytes;
    }
    return due;
}

/* Reserves the time of what was really moved and sets when the call may end. */
static void throttle_after(struct mr_shim *shim, struct mr_shim_call *c)
{
    struct throttle_store *t = (struct throttle_store *)shim;
    uint64_t ready = c->start_ns, bytes = moves_bytes(c->kind) && c->result > 0 ? (uint64_t)c->result : 0;
    if (c->kind == MR_SHIM_OPEN || c->kind == MR_SHIM_READ_PATH)
        ready += t->o.open_latency_ns;
    if (moves_bytes(c->kind) || c->kind == MR_SHIM_FSYNC)
        ready += t->o.latency_ns;
    lock(t->shared);
    if (is_metadata(c->kind) && t->o.metadata_rate > 0)
        reserve(&t->shared->meta_end_ns, c->start_ns, time_for(1, t->o.metadata_rate), &ready);
    c->due_ns = moves_bytes(c->kind) ? reserve_bytes(t, c, ready, bytes) : ready;
    unlock(t->shared);
}

/* After the sleep: by how much it overshot. */
static void throttle_woke(struct mr_shim *shim, struct mr_shim_call *c)
{
    struct throttle_store *t = (struct throttle_store *)shim;
    uint64_t now = mr_clock_now_ns(shim->clock);
    if (!moves_bytes(c->kind) || now <= c->due_ns)
        return;
    lock(t->shared);
    struct stream *s = stream_of(t, c->stream, now);
    if (s && s->end_ns == c->due_ns)
        s->credit_ns = now - c->due_ns;
    unlock(t->shared);
}

/* ---- options ---- */

static int bad_table(const char *text, const char *why, struct mr_error *err)
{
    mr_error_plain(err, MR_E_CONFIG, "bad value '%s' for 'throttle.aggregate': %s", text, why);
    mr_error_hint(err, "write clients:rate pairs in rising order, as in 1:66MB/2:86MB/4:146MB");
    return MR_E_CONFIG;
}

static int parse_table(struct throttle_store *t, const char *text, struct mr_error *err)
{
    const char *at = text;
    while (*at) {
        char one[64];
        size_t len = strcspn(at, "/");
        if (len >= sizeof(one) || t->points == MAX_POINTS)
            return bad_table(text, "too long", err);
        memcpy(one, at, len);
        one[len] = '\0';
        at += len + (at[len] == '/');
        char *colon = strchr(one, ':');
        int64_t clients;
        uint64_t rate;
        if (!colon)
            return bad_table(text, "a pair lacks its ':'", err);
        *colon = '\0';
        if (mr_parse_int(one, &clients) != 0 || clients < 1 || mr_parse_bytes(colon + 1, &rate) != 0 || rate == 0)
            return bad_table(text, "a pair needs a number of clients and a rate above 0", err);
        if (t->points && (double)clients <= t->point[t->points - 1].clients)
            return bad_table(text, "clients must rise", err);
        t->point[t->points++] = (struct point){.clients = (double)clients, .rate = (double)rate};
    }
    return 0;
}

static int check_options(const struct throttle_store *t, struct mr_error *err)
{
    const struct throttle_options *o = &t->o;
    if (t->points && o->bandwidth)
        return mr_error_plain(err, MR_E_CONFIG, "throttle takes either bandwidth or aggregate, not both");
    if (o->active && !t->points)
        return mr_error_plain(err, MR_E_CONFIG,
                              "throttle option 'active' says what the aggregate table counts, but there is none");
    if (!t->points && !o->bandwidth && !o->write_bandwidth && !o->stream_bandwidth && !o->client_bandwidth &&
        !o->file_bandwidth && !o->latency_ns && !o->open_latency_ns && o->metadata_rate == 0)
        return mr_error_plain(err, MR_E_CONFIG, "the throttle shim needs at least one limit");
    if (o->readahead && !o->latency_ns)
        return mr_error_plain(err, MR_E_CONFIG, "throttle option 'readahead' hides latency, but there is none");
    for (const char *c = o->group; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_' && *c != '.')
            return mr_error_plain(err, MR_E_CONFIG,
                                  "bad value '%s' for 'throttle.group': letters, digits, '-', '_' and '.' only",
                                  o->group);
    if (strlen(o->group) > 100)
        return mr_error_plain(err, MR_E_CONFIG, "bad value '%s' for 'throttle.group': longer than 100 characters",
                              o->group);
    return 0;
}

static uint64_t hash_options(const struct throttle_store *t)
{
    const double v[] = {(double)t->o.bandwidth,
                        (double)t->o.write_bandwidth,
                        (double)t->o.stream_bandwidth,
                        (double)t->o.client_bandwidth,
                        (double)t->o.file_bandwidth,
                        (double)t->o.readahead,
                        (double)t->o.latency_ns,
                        (double)t->o.open_latency_ns,
                        t->o.metadata_rate,
                        t->o.active,
                        t->points};
    uint64_t h = 0xcbf29ce484222325ull;
    const unsigned char *parts[] = {(const unsigned char *)v, (const unsigned char *)t->point};
    const size_t sizes[] = {sizeof(v), t->points * sizeof(t->point[0])};
    for (unsigned p = 0; p < 2; p++)
        for (size_t i = 0; i < sizes[p]; i++)
            /* The analyzer loses track of doubles seen as bytes. */
            /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
            h = (h ^ parts[p][i]) * 0x100000001b3ull;
    return h;
}

/* ---- groups ---- */

static void init_shared(struct shared *s, uint64_t hash, bool across_processes)
{
    memset(s, 0, sizeof(*s));
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    if (across_processes) {
        pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    }
    pthread_mutex_init(&s->lock, &a);
    pthread_mutexattr_destroy(&a);
    s->options_hash = hash;
    s->magic = GROUP_MAGIC;
}

/* Opens the group's file and holds it shared, making it fresh when nobody else has it. Returns -EAGAIN when the file
 * was removed meanwhile. */
static int join_file(struct throttle_store *t, uint64_t hash)
{
    int fd = open(t->group_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    struct stat here, there;
    int rc = 0;
    bool alone = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fstat(fd, &here) != 0)
        rc = -errno;
    else if (here.st_uid != geteuid())
        rc = -EPERM;
    else if (alone && ftruncate(fd, sizeof(struct shared)) != 0)
        rc = -errno;
    void *map = MAP_FAILED;
    if (rc == 0 && alone) {
        map = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            rc = -errno;
        else
            init_shared(map, hash, true);
    }
    /* Going from exclusive to shared is not atomic: another may make it fresh once more in between, which changes
     * nothing since nobody is registered yet. */
    if (rc == 0 && flock(fd, LOCK_SH) != 0)
        rc = errno == EINTR ? -EAGAIN : -errno;
    if (rc == 0 && (stat(t->group_path, &there) != 0 || there.st_ino != here.st_ino || there.st_dev != here.st_dev))
        rc = -EAGAIN;
    if (rc == 0 && map == MAP_FAILED) {
        if (fstat(fd, &here) != 0 || here.st_size != (off_t)sizeof(struct shared))
            rc = -EAGAIN; /* its maker died before it was made */
        else if ((map = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
            rc = -errno;
    }
    if (rc == 0 && ((struct shared *)map)->magic != GROUP_MAGIC)
        rc = -EAGAIN;
    if (rc < 0) {
        if (map != MAP_FAILED)
            munmap(map, sizeof(struct shared));
        close(fd);
        return rc;
    }
    t->shared = map;
    t->group_fd = fd;
    return 0;
}

static uint64_t pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

static bool is_dead(const struct client *c, uint64_t pids)
{
    return c->pids == pids && kill((pid_t)c->pid, 0) != 0 && errno == ESRCH;
}

/* A place among the clients; those of dead processes are taken over. */
static int register_client(struct throttle_store *t)
{
    int rc = -EUSERS;
    uint64_t pids = pid_namespace();
    lock(t->shared);
    for (uint32_t i = 0; rc < 0 && i < MAX_CLIENTS; i++) {
        struct client *c = &t->shared->client[i];
        if (c->pid != 0 && !is_dead(c, pids))
            continue;
        *c = (struct client){.pid = t->owner, .pids = pids};
        t->client = i;
        rc = 0;
    }
    unlock(t->shared);
    return rc;
}

static void leave_group(struct throttle_store *t)
{
    if (getpid() == t->owner) {
        lock(t->shared);
        t->shared->client[t->client].pid = 0;
        unlock(t->shared);
        /* Only the last one gets it exclusively. */
        if (flock(t->group_fd, LOCK_EX | LOCK_NB) == 0)
            unlink(t->group_path);
    }
    munmap(t->shared, sizeof(*t->shared));
    close(t->group_fd);
}

static int join_group(struct throttle_store *t, struct mr_error *err)
{
    uint64_t hash = hash_options(t);
    int len = snprintf(t->group_path, sizeof(t->group_path), "%s/millrace-%lu-%s.throttle", t->o.group_folder,
                       (unsigned long)geteuid(), t->o.group);
    if (len < 0 || (size_t)len >= sizeof(t->group_path))
        return mr_error_plain(err, MR_E_CONFIG, "bad value '%s' for 'throttle.group_folder': too long",
                              t->o.group_folder);
    int rc = -EAGAIN;
    for (unsigned tries = 0; rc == -EAGAIN && tries < 1000; tries++) {
        if (tries > 10)
            mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + MR_NS_PER_MS, NULL);
        rc = join_file(t, hash);
    }
    if (rc < 0)
        return mr_error_set(err, rc, "cannot share throttle group '%s' through '%s'", t->o.group, t->group_path);
    if (t->shared->options_hash != hash) {
        rc = mr_error_plain(err, MR_E_CONFIG, "throttle group '%s' is in use with other options", t->o.group);
        mr_error_hint(err, "give all processes the same options or another group name");
    } else if ((rc = register_client(t)) < 0) {
        mr_error_set(err, rc, "throttle group '%s' has %u processes already", t->o.group, MAX_CLIENTS);
    }
    if (rc < 0) {
        munmap(t->shared, sizeof(*t->shared));
        close(t->group_fd);
    }
    return rc;
}

void mr_throttle_identity(struct mr_store *throttle, uint64_t *a, uint64_t *b)
{
    const struct throttle_store *t = (const struct throttle_store *)throttle;
    struct stat st;
    bool group = t->group_fd >= 0 && fstat(t->group_fd, &st) == 0;
    *a = group ? st.st_dev : 0;
    *b = group ? st.st_ino : (uint64_t)(uintptr_t)t;
}

/* ---- the store ---- */

static void throttle_close(struct mr_store *base)
{
    struct throttle_store *t = (struct throttle_store *)base;
    mr_store_close(base->lower);
    if (t->group_fd >= 0) {
        leave_group(t);
    } else {
        pthread_mutex_destroy(&t->shared->lock);
        free(t->shared);
    }
    free(t);
}

static int throttle_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    struct throttle_store *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot open store 'throttle'");
    t->o = *(const struct throttle_options *)options;
    t->group_fd = -1;
    t->owner = getpid();
    mr_shim_init(&t->shim, &mr_store_throttle_ops, lower, throttle_before, throttle_after);
    t->shim.woke = throttle_woke;
    int rc = parse_table(t, t->o.aggregate, err);
    if (rc == 0)
        rc = check_options(t, err);
    if (rc == 0 && *t->o.group) {
        rc = join_group(t, err);
    } else if (rc == 0) {
        t->shared = malloc(sizeof(*t->shared));
        if (t->shared)
            init_shared(t->shared, 0, false);
        else
            rc = mr_error_set(err, -ENOMEM, "cannot open store 'throttle'");
    }
    t->o.aggregate = t->o.group = t->o.group_folder = NULL; /* they belong to the caller's arena */
    if (rc < 0) {
        free(t);
        return rc;
    }
    *out = &t->shim.base;
    return 0;
}

const struct mr_store_ops mr_store_throttle_ops = {
    MR_SHIM_OPS,
    .name = "throttle",
    .doc =
        "Emulates a device or parallel file system: latency, bandwidth per stream, client and in all, metadata rate.",
    .options = {.section = "throttle",
                .doc = "An emulated device",
                .options = throttle_rows,
                .struct_bytes = sizeof(struct throttle_options)},
    .open = throttle_open,
    .close = throttle_close,
};
