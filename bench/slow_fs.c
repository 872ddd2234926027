/* A folder seen through slow storage: a FUSE file system over another folder that holds every answer back.
 *
 *   slow_fs FOLDER MOUNT [latency=MS] [open=MS] [rate=MB] [stream=MB] [serial=MS] [write=MB]
 *
 *     latency  of each read; readers do not disturb each other
 *     open     of each look-up of a file
 *     rate     MB/s that all readers together get; write: all writers
 *     stream   MB/s that one reader gets
 *     serial   of each read, one after the other: a server with one connection
 *
 * It uses the kernel's protocol directly, without a library, for what data loaders do: look up, open,
 * read, list, write whole files. Reads go past the page cache. Ends, and takes the mount away, on SIGTERM and SIGINT. Needs root and /dev/fuse;
 * exit 77 where they are missing.
 *
 *     kernel ──/dev/fuse──> 32 threads, each: take a request, do it on FOLDER, sleep until its time, answer */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define THREADS 32
#define NODES 65536u
#define WRITE_MOST (1u << 20)
#define ROOM (WRITE_MOST + 65536u)

static struct {
    const char *folder, *mount;
    double latency_s, open_s, rate, stream, serial_s, write_rate;
    int device;
    pthread_mutex_t lock;
    char *node[NODES]; /* path below the folder, by id; 1: the folder */
    uint64_t nodes;
    double read_free_at, write_free_at, serial_free_at;
} fs = {.lock = PTHREAD_MUTEX_INITIALIZER, .nodes = 2};

/* ---- time ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void sleep_until(double at)
{
    struct timespec t = {.tv_sec = (time_t)at};
    t.tv_nsec = (long)((at - (double)t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue;
}

/* Takes `seconds` of a resource that serves one after the other, not before `ready`. */
static double reserve(double *free_at, double ready, double seconds)
{
    pthread_mutex_lock(&fs.lock);
    double end = (*free_at > ready ? *free_at : ready) + seconds;
    *free_at = end;
    pthread_mutex_unlock(&fs.lock);
    return end;
}

static void hold_read(double start, double bytes)
{
    double due = start + fs.latency_s + (fs.stream > 0 ? bytes / fs.stream : 0);
    if (fs.rate > 0)
        due = fmax(due, reserve(&fs.read_free_at, start + fs.latency_s, bytes / fs.rate));
    if (fs.serial_s > 0)
        due = fmax(due, reserve(&fs.serial_free_at, start, fs.serial_s));
    sleep_until(due);
}

/* ---- names ---- */

static const char *path_of(uint64_t id, char *out)
{
    pthread_mutex_lock(&fs.lock);
    const char *name = id == FUSE_ROOT_ID ? "" : id < fs.nodes ? fs.node[id] : NULL;
    if (name)
        snprintf(out, PATH_MAX, "%s%s", fs.folder, name);
    pthread_mutex_unlock(&fs.lock);
    return name ? out : NULL;
}

static bool path_in(uint64_t id, const char *name, char *out)
{
    char folder[PATH_MAX];
    return path_of(id, folder) && snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

/* The same name has the same number: a look-up of what was seen before adds nothing. 0: the table is full. */
static uint64_t id_of(const char *path)
{
    const char *name = path + strlen(fs.folder);
    uint64_t id = 0;
    pthread_mutex_lock(&fs.lock);
    for (uint64_t i = 2; i < fs.nodes && !id; i++)
        id = strcmp(fs.node[i], name) ? 0 : i;
    if (!id && fs.nodes < NODES && (fs.node[fs.nodes] = strdup(name)))
        id = fs.nodes++;
    pthread_mutex_unlock(&fs.lock);
    return id;
}

/* ---- answers ---- */

static void answer(const struct fuse_in_header *in, int error, const void *data, size_t n)
{
    struct fuse_out_header out = {
        .len = (uint32_t)(sizeof(out) + (error ? 0 : n)), .error = -error, .unique = in->unique};
    struct iovec v[2] = {{&out, sizeof out}, {(void *)(uintptr_t)data, n}};
    ssize_t written = writev(fs.device, v, error || !n ? 1 : 2);
    (void)written; /* the reader was interrupted and has left */
}

static void set_attr(struct fuse_attr *a, const struct stat *s, uint64_t id)
{
    *a = (struct fuse_attr){.ino = id,
                            .size = (uint64_t)s->st_size,
                            .blocks = (uint64_t)s->st_blocks,
                            .mtime = (uint64_t)s->st_mtime,
                            .mode = s->st_mode,
                            .nlink = 1,
                            .blksize = 4096};
}

static bool entry_of(const char *path, struct fuse_entry_out *e)
{
    struct stat s;
    uint64_t id = lstat(path, &s) ? 0 : id_of(path);
    *e = (struct fuse_entry_out){.nodeid = id};
    if (id)
        set_attr(&e->attr, &s, id);
    return id != 0;
}

static void do_lookup(const struct fuse_in_header *in, const char *name)
{
    char path[PATH_MAX];
    struct fuse_entry_out e;
    double start = now_s();
    bool found = path_in(in->nodeid, name, path) && entry_of(path, &e);
    sleep_until(start + fs.open_s);
    answer(in, found ? 0 : ENOENT, &e, sizeof e);
}

static void do_getattr(const struct fuse_in_header *in)
{
    char path[PATH_MAX];
    struct stat s;
    struct fuse_attr_out out = {.attr_valid = 1};
    bool found = path_of(in->nodeid, path) && !lstat(path, &s);
    if (found)
        set_attr(&out.attr, &s, in->nodeid);
    answer(in, found ? 0 : ENOENT, &out, sizeof out);
}

static void do_setattr(const struct fuse_in_header *in, const struct fuse_setattr_in *set)
{
    char path[PATH_MAX];
    if (set->valid & FATTR_SIZE && path_of(in->nodeid, path) && truncate(path, (off_t)set->size)) {
        answer(in, errno, NULL, 0);
        return;
    }
    do_getattr(in);
}

static void do_open(const struct fuse_in_header *in, uint32_t flags)
{
    char path[PATH_MAX];
    int fd = path_of(in->nodeid, path) ? open(path, (int)(flags & ~(uint32_t)(O_CREAT | O_EXCL | O_NOCTTY))) : -1;
    struct fuse_open_out out = {.fh = (uint64_t)fd, .open_flags = FOPEN_DIRECT_IO};
    answer(in, fd < 0 ? errno : 0, &out, sizeof out);
}

static void do_create(const struct fuse_in_header *in, const struct fuse_create_in *c)
{
    char path[PATH_MAX];
    struct {
        struct fuse_entry_out e;
        struct fuse_open_out o;
    } out = {0};
    int fd = path_in(in->nodeid, (const char *)(c + 1), path) ? open(path, (int)c->flags | O_CREAT, 0644) : -1;
    bool made = fd >= 0 && entry_of(path, &out.e);
    out.o = (struct fuse_open_out){.fh = (uint64_t)fd, .open_flags = FOPEN_DIRECT_IO};
    answer(in, made ? 0 : EIO, &out, sizeof out);
}

static void do_read(const struct fuse_in_header *in, const struct fuse_read_in *r, char *room)
{
    double start = now_s();
    ssize_t n = pread((int)r->fh, room, r->size < ROOM ? r->size : ROOM, (off_t)r->offset);
    if (n > 0)
        hold_read(start, (double)n);
    answer(in, n < 0 ? errno : 0, room, n < 0 ? 0 : (size_t)n);
}

static void do_write(const struct fuse_in_header *in, const struct fuse_write_in *w)
{
    double start = now_s();
    ssize_t n = pwrite((int)w->fh, w + 1, w->size, (off_t)w->offset);
    struct fuse_write_out out = {.size = n < 0 ? 0 : (uint32_t)n};
    if (n > 0 && fs.write_rate > 0)
        sleep_until(reserve(&fs.write_free_at, start, (double)n / fs.write_rate));
    answer(in, n < 0 ? errno : 0, &out, sizeof out);
}

static void do_readdir(const struct fuse_in_header *in, const struct fuse_read_in *r, char *room)
{
    char path[PATH_MAX];
    DIR *d = path_of(in->nodeid, path) ? opendir(path) : NULL;
    size_t used = 0;
    uint64_t at = 0;
    for (struct dirent *e; d && (e = readdir(d)); at++) {
        size_t len = strlen(e->d_name), size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + len);
        if (at < r->offset)
            continue;
        if (used + size > r->size)
            break;
        struct fuse_dirent head = {
            .ino = e->d_ino, .off = at + 1, .namelen = (uint32_t)len, .type = (uint32_t)e->d_type};
        memset(room + used, 0, size);
        memcpy(room + used, &head, FUSE_NAME_OFFSET);
        memcpy(room + used + FUSE_NAME_OFFSET, e->d_name, len);
        used += size;
    }
    answer(in, d ? 0 : ENOENT, room, used);
    if (d)
        closedir(d);
}

static void do_change(const struct fuse_in_header *in, const void *arg)
{
    char path[PATH_MAX], to[PATH_MAX];
    const struct fuse_rename2_in *r2 = arg;
    const struct fuse_rename_in *r1 = arg;
    const struct fuse_mkdir_in *m = arg;
    struct fuse_entry_out e;
    int rc = -1;
    errno = EINVAL;
    if (in->opcode == FUSE_UNLINK || in->opcode == FUSE_RMDIR) {
        rc = path_in(in->nodeid, arg, path) ? remove(path) : -1;
    } else if (in->opcode == FUSE_MKDIR) {
        rc = path_in(in->nodeid, (const char *)(m + 1), path) ? mkdir(path, 0755) : -1;
        if (!rc && entry_of(path, &e)) {
            answer(in, 0, &e, sizeof e);
            return;
        }
    } else {
        bool two = in->opcode == FUSE_RENAME2;
        const char *old = two ? (const char *)(r2 + 1) : (const char *)(r1 + 1);
        rc = path_in(in->nodeid, old, path) && path_in(two ? r2->newdir : r1->newdir, old + strlen(old) + 1, to)
                 ? rename(path, to)
                 : -1;
    }
    answer(in, rc ? errno : 0, NULL, 0);
}

static void do_init(const struct fuse_in_header *in, const struct fuse_init_in *i)
{
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                .minor = FUSE_KERNEL_MINOR_VERSION,
                                .max_readahead = i->max_readahead,
                                .flags = (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_PARALLEL_DIROPS) &
                                         i->flags,
                                .max_background = 64,
                                .congestion_threshold = 48,
                                .max_write = WRITE_MOST,
                                .time_gran = 1,
                                .max_pages = WRITE_MOST / 4096};
    answer(in, 0, &out, sizeof out);
}

static void serve(const struct fuse_in_header *in, char *room)
{
    const void *arg = in + 1;
    const struct fuse_release_in *release = arg;
    const struct fuse_fsync_in *sync = arg;
    struct fuse_statfs_out space = {.st = {.bsize = 4096, .blocks = 1u << 24, .bfree = 1u << 23, .bavail = 1u << 23}};
    struct fuse_open_out none = {0};
    switch (in->opcode) {
    case FUSE_INIT: do_init(in, arg); break;
    case FUSE_LOOKUP: do_lookup(in, arg); break;
    case FUSE_GETATTR: do_getattr(in); break;
    case FUSE_SETATTR: do_setattr(in, arg); break;
    case FUSE_OPEN: do_open(in, ((const struct fuse_open_in *)arg)->flags); break;
    case FUSE_CREATE: do_create(in, arg); break;
    case FUSE_READ: do_read(in, arg, room); break;
    case FUSE_WRITE: do_write(in, arg); break;
    case FUSE_OPENDIR: answer(in, 0, &none, sizeof none); break;
    case FUSE_READDIR: do_readdir(in, arg, room); break;
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_MKDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2: do_change(in, arg); break;
    case FUSE_STATFS: answer(in, 0, &space, sizeof space); break;
    case FUSE_FSYNC: answer(in, fsync((int)sync->fh) ? errno : 0, NULL, 0); break;
    case FUSE_RELEASE: answer(in, close((int)release->fh) ? errno : 0, NULL, 0); break;
    case FUSE_FLUSH:
    case FUSE_RELEASEDIR: answer(in, 0, NULL, 0); break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: break;
    default: answer(in, ENOSYS, NULL, 0); break;
    }
}

static void *work(void *arg)
{
    (void)arg;
    char *request = malloc(ROOM), *room = malloc(ROOM);
    while (request && room) {
        ssize_t n = read(fs.device, request, ROOM - 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
            continue;
        if (n < (ssize_t)sizeof(struct fuse_in_header))
            break;
        request[n] = 0;
        serve((const struct fuse_in_header *)(void *)request, room);
    }
    free(request);
    free(room);
    return NULL;
}

/* ---- start ---- */

static bool option(const char *text)
{
    static const struct {
        const char *name;
        double *value, unit;
    } options[] = {{"latency=", &fs.latency_s, 1e-3}, {"open=", &fs.open_s, 1e-3},     {"rate=", &fs.rate, 1e6},
                   {"stream=", &fs.stream, 1e6},      {"serial=", &fs.serial_s, 1e-3}, {"write=", &fs.write_rate, 1e6}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t n = strlen(options[i].name);
        if (!strncmp(text, options[i].name, n)) {
            *options[i].value = strtod(text + n, NULL) * options[i].unit;
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    bool good = argc >= 3;
    for (int i = 3; i < argc; i++)
        good &= option(argv[i]);
    if (!good) {
        fprintf(stderr, "slow_fs FOLDER MOUNT [latency=MS] [open=MS] [rate=MB] [stream=MB] [serial=MS] [write=MB]\n");
        return 2;
    }
    fs.folder = argv[1];
    fs.mount = argv[2];
    fs.device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char how[128];
    snprintf(how, sizeof how, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fs.device);
    if (fs.device < 0 || mount("slow_fs", fs.mount, "fuse.slow", MS_NOSUID | MS_NODEV, how)) {
        fprintf(stderr, "slow_fs: no FUSE here: %s\n", strerror(errno));
        return 77;
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (!pthread_create(&thread, NULL, work, NULL))
            pthread_detach(thread);
    }
    printf("ready\n");
    fflush(stdout);
    int which;
    sigwait(&set, &which);
    return umount2(fs.mount, MNT_DETACH) ? 1 : 0;
}
