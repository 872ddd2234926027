/* Probes: see machine_probe.h. A probe is a job that every thread repeats until the time is over; `measure` runs it. */
#include "probe/machine_probe.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BLOCK (4 * MR_MIB)
#define TMPFS 0x01021994
#define RAMFS 0x858458f6

/* ---- running a job on threads ---- */

struct worker;
/* One request; returns what it did (bytes, calls), 0 when there is nothing left, or -errno. */
typedef int64_t probe_job(struct worker *w);

struct probe {
    probe_job *job;
    const struct mr_probe_file *file;
    const struct mr_probe_spec *spec;
    int folder; /* open probe */
    bool stat_only;
    uint64_t seed, counted_ns, deadline_ns; /* requests begun before counted_ns do not count */
    uint64_t stride;                        /* shares no divisor with the number of requests in the file */
    unsigned threads;
    uint64_t buffer_bytes; /* per thread; 0: none */
    const struct mr_probe_copy *copy;
    const atomic_bool *stop;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { GATE_SHUT, GATE_OPEN, GATE_CANCELLED } gate; /* under lock */
};

struct worker {
    struct probe *p;
    unsigned index;
    char *buffer;
    uint64_t k; /* requests so far */
    int64_t done;
    uint64_t begin_ns, end_ns; /* of what is in done */
    pthread_t thread;
};

static bool wait_at_gate(struct probe *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->gate == GATE_SHUT)
        pthread_cond_wait(&p->changed, &p->lock);
    bool go = p->gate == GATE_OPEN;
    pthread_mutex_unlock(&p->lock);
    return go;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct probe *p = w->p;
    bool go = wait_at_gate(p);
    uint64_t now = mr_now_ns();
    w->begin_ns = w->end_ns = now;
    /* At least one request that counts, however late the thread came to run. */
    while (go && (w->done == 0 || now < p->deadline_ns) && !(p->stop && atomic_load(p->stop))) {
        int64_t n = p->job(w);
        if (n <= 0) {
            w->done = n < 0 ? n : w->done;
            break;
        }
        now = mr_now_ns();
        w->k++;
        if (w->begin_ns >= p->counted_ns) {
            w->done += n;
            w->end_ns = now;
        } else { /* the start, or the request that began in it */
            w->begin_ns = w->end_ns = now;
        }
    }
    return NULL;
}

#define LARGE_PAGE ((size_t)2 << 20)

/* As the loader's memory is: a device takes a large page in one piece, of small ones it takes 512. */
static char *large_buffer(size_t bytes)
{
    size_t all = MR_ALIGN_UP(bytes, LARGE_PAGE);
    void *p;
    if (posix_memalign(&p, LARGE_PAGE, all))
        return NULL;
    (void)madvise(p, all, MADV_HUGEPAGE);
    return p;
}

static int prepare(struct probe *p, struct worker *w)
{
    for (unsigned i = 0; i < p->threads; i++) {
        w[i] = (struct worker){.p = p, .index = i};
        if (p->buffer_bytes == 0)
            continue;
        if (!(w[i].buffer = large_buffer(p->buffer_bytes)))
            return -ENOMEM;
        memset(w[i].buffer, (int)(i + 1), p->buffer_bytes);
    }
    return 0;
}

#define START_SHARE 0.05

/* Buffered writes count when they have reached the device, all threads' together. */
static bool flushes(const struct probe *p)
{
    return p->file && p->spec->write && !p->spec->direct;
}

/* Starts all threads behind a gate and opens it. The threads' rates are added: each ends with a request of its own, and
 * the time in which only the last one is still busy tells nothing about all of them together. */
static int run_workers(struct probe *p, struct worker *w, double seconds, double *per_s)
{
    unsigned started = 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    while (started < p->threads && pthread_create(&w[started].thread, NULL, work, &w[started]) == 0)
        started++;
    int rc = started == p->threads ? 0 : -EAGAIN;
    uint64_t begin = mr_now_ns();
    pthread_mutex_lock(&p->lock);
    p->deadline_ns = begin + (uint64_t)(seconds * 1e9);
    p->counted_ns = p->file && !p->spec->direct ? 0 : begin + (uint64_t)(seconds * 1e9 * START_SHARE);
    p->gate = rc ? GATE_CANCELLED : GATE_OPEN;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    double sum = 0, rates = 0;
    for (unsigned i = 0; i < started; i++) {
        pthread_join(w[i].thread, NULL);
        rc = rc ? rc : w[i].done < 0 ? (int)w[i].done : 0;
        sum += (double)MR_MAX(w[i].done, (int64_t)0);
        if (w[i].end_ns > w[i].begin_ns)
            rates += (double)w[i].done / ((double)(w[i].end_ns - w[i].begin_ns) / 1e9);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    if (!rc && flushes(p)) {
        rc = fdatasync(p->file->fd) ? -errno : 0;
        rates = sum / ((double)(mr_now_ns() - begin) / 1e9);
    }
    if (!rc)
        *per_s = rates;
    return rc;
}

static int measure(struct probe *p, double seconds, double *per_s)
{
    struct worker *w = calloc(p->threads, sizeof(*w));
    int rc = w ? prepare(p, w) : -ENOMEM;
    if (!rc)
        rc = run_workers(p, w, seconds, per_s);
    for (unsigned i = 0; w && i < p->threads; i++)
        free(w[i].buffer);
    free(w);
    return rc;
}

/* ---- the test file ---- */

/* Nameless from the start where the file system can do that, else unlinked as soon as it is open twice. */
static int open_nameless(const char *folder, struct mr_probe_file *f)
{
    char path[4096], self[64];
    f->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (f->fd >= 0) {
        snprintf(self, sizeof self, "/proc/self/fd/%d", f->fd);
        f->fd_direct = open(self, O_RDWR | O_DIRECT | O_CLOEXEC);
        return 0;
    }
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
        return -errno;
    snprintf(path, sizeof path, "%s/.millrace-calibrate-%ld.tmp", folder, (long)getpid());
    f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (f->fd < 0)
        return -errno;
    f->fd_direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    unlink(path);
    return 0;
}

static int fill_file(struct mr_probe_file *f, uint64_t size, double max_seconds, const atomic_bool *stop)
{
    uint64_t *block;
    if (posix_memalign((void **)&block, 4096, BLOCK))
        return -ENOMEM;
    uint64_t begin = mr_now_ns();
    int rc = 0;
    for (uint64_t at = 0; at < size && !rc; at += BLOCK) {
        if (at >= 16 * MR_MIB && (double)(mr_now_ns() - begin) / 1e9 > max_seconds)
            break;
        if (stop && atomic_load(stop))
            rc = MR_E_INTERRUPTED;
        for (uint64_t k = 0; k < BLOCK / 8; k++)
            block[k] = mr_mix64(at + k * 8 + 1);
        for (uint64_t n = 0; n < BLOCK && !rc;) {
            ssize_t w = pwrite(f->fd, (char *)block + n, BLOCK - n, (off_t)(at + n));
            if (w < 0 && errno != EINTR)
                rc = -errno;
            n += w > 0 ? (uint64_t)w : 0;
        }
        /* Starts writing out now, so that the time limit means the device and not the page cache. */
        if (!rc && at % (64 * MR_MIB) == 0)
            rc = fdatasync(f->fd) ? -errno : 0;
        f->size = rc ? f->size : at + BLOCK;
    }
    free(block);
    return rc ? rc : fdatasync(f->fd) ? -errno : 0;
}

int mr_probe_file_open(const char *folder, uint64_t size, double max_seconds, const atomic_bool *stop,
                       struct mr_probe_file *out, struct mr_error *err)
{
    struct mr_probe_file f = {.fd = -1, .fd_direct = -1};
    struct statfs fs;
    int rc = open_nameless(folder, &f);
    if (!rc && fstatfs(f.fd, &fs) == 0)
        f.in_memory = fs.f_type == TMPFS || (unsigned long)fs.f_type == RAMFS;
    if (!rc)
        rc = fill_file(&f, MR_MAX(size / BLOCK, 4u) * BLOCK, max_seconds, stop);
    if (rc) {
        mr_probe_file_close(&f);
        return mr_error_set(err, rc,
                            rc == MR_E_INTERRUPTED ? "stopped while writing a test file in '%s'"
                                                   : "cannot write a test file in '%s'",
                            folder);
    }
    *out = f;
    return 0;
}

void mr_probe_file_close(struct mr_probe_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->fd_direct >= 0)
        close(f->fd_direct);
    f->fd = f->fd_direct = -1;
}

/* ---- jobs ---- */

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t transfer(struct worker *w)
{
    const struct probe *p = w->p;
    const struct mr_probe_spec *s = p->spec;
    uint64_t slots = p->file->size / s->request_bytes, part = slots / p->threads, slot;
    if (s->random && !s->direct && !s->write) {
        uint64_t k = w->k * p->threads + w->index; /* every slot once, all over the file: a second time would be warm */
        if (k >= slots)
            return 0;
        slot = (k * p->stride + p->seed) % slots;
    } else if (s->random) {
        slot = mr_rng_below(mr_rng_at(p->seed, w->index, w->k), slots);
    } else {
        if (part == 0 || (w->k >= part && !s->direct && !s->write))
            return 0; /* a second round would be warm */
        slot = w->index * part + w->k % part;
    }
    int fd = s->direct ? p->file->fd_direct : p->file->fd;
    off_t at = (off_t)(slot * s->request_bytes);
    for (uint64_t n = 0; n < s->request_bytes;) {
        ssize_t r = s->write ? pwrite(fd, w->buffer + n, s->request_bytes - n, at + (off_t)n)
                             : pread(fd, w->buffer + n, s->request_bytes - n, at + (off_t)n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r < 0 ? -errno : -EIO;
        n += (uint64_t)r;
    }
    return (int64_t)s->request_bytes;
}

int mr_probe_run(const struct mr_probe_file *f, const struct mr_probe_spec *s, double seconds, uint64_t seed,
                 const atomic_bool *stop, double *bytes_per_s, struct mr_error *err)
{
    if (s->direct && f->fd_direct < 0)
        return mr_error_set(err, MR_E_UNSUPPORTED, "the file system has no direct I/O");
    if (s->threads == 0 || s->threads > MR_PROBE_THREADS_MAX || s->request_bytes < 4096 || s->request_bytes > BLOCK)
        return mr_error_set(err, MR_E_USAGE, "a probe takes 1 to %d threads and requests of 4 KiB to 4 MiB",
                            MR_PROBE_THREADS_MAX);
    struct probe p = {.job = transfer,
                      .file = f,
                      .spec = s,
                      .folder = -1,
                      .seed = seed,
                      .threads = s->threads,
                      .buffer_bytes = s->request_bytes,
                      .stop = stop};
    for (p.stride = f->size / s->request_bytes * 5 / 8 | 1; gcd(p.stride, f->size / s->request_bytes) != 1;)
        p.stride += 2;
    if (!s->direct && !s->write) {
        (void)fdatasync(f->fd);
        (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
        /* Else the kernel takes pages that earlier requests left for the trace of a stream, and reads on from them. */
        (void)posix_fadvise(f->fd, 0, 0, s->random ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
    }
    int rc = measure(&p, seconds, bytes_per_s);
    return rc ? mr_error_set(err, rc, "cannot %s the test file", s->write ? "write" : "read") : 0;
}

#define SMALL_FILES 64

static int64_t open_or_stat(struct worker *w)
{
    char name[32];
    snprintf(name, sizeof name, "f%u", (unsigned)((w->index * 17 + w->k) % SMALL_FILES));
    struct stat st;
    if (w->p->stat_only)
        return fstatat(w->p->folder, name, &st, 0) ? -errno : 1;
    int fd = openat(w->p->folder, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    close(fd);
    return 1;
}

static int make_small_files(int folder)
{
    for (unsigned i = 0; i < SMALL_FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%u", i);
        int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
            return -errno;
        close(fd);
    }
    return 0;
}

int mr_probe_opens(const char *folder, unsigned threads, double seconds, const atomic_bool *stop, double *opens_per_s,
                   double *stats_per_s, struct mr_error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/.millrace-calibrate-%ld.d", folder, (long)getpid());
    if (mkdir(path, 0700))
        return mr_error_set(err, -errno, "cannot make a test folder in '%s'", folder);
    struct probe p = {.job = open_or_stat, .threads = threads, .stop = stop};
    p.folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = p.folder < 0 ? -errno : make_small_files(p.folder);
    double opens = 0, stats = 0;
    if (!rc)
        rc = measure(&p, seconds / 2, &opens);
    p.stat_only = true;
    if (!rc)
        rc = measure(&p, seconds / 2, &stats);
    for (unsigned i = 0; p.folder >= 0 && i < SMALL_FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%u", i);
        unlinkat(p.folder, name, 0);
    }
    if (p.folder >= 0)
        close(p.folder);
    rmdir(path);
    if (rc)
        return mr_error_set(err, rc, "cannot open test files in '%s'", folder);
    *opens_per_s = opens;
    *stats_per_s = stats;
    return 0;
}

static int64_t copy_block(struct worker *w)
{
    /* Through volatile pointers, so that a copy nobody looks at is not left out. */
    const struct mr_probe_copy *c = w->p->copy;
    char *volatile to = c->blocks + 2 * w->index * c->block_bytes;
    const char *volatile from = c->blocks + (2 * w->index + 1) * c->block_bytes;
    memcpy(to, from, c->block_bytes);
    return (int64_t)c->block_bytes;
}

int mr_probe_copy_open(unsigned threads, uint64_t block_bytes, struct mr_probe_copy *out, struct mr_error *err)
{
    struct mr_probe_copy c = {.threads = threads, .block_bytes = block_bytes};
    if (posix_memalign((void **)&c.blocks, 4096, 2 * threads * block_bytes))
        return mr_error_set(err, -ENOMEM, "measuring memory with %u threads", threads);
    memset(c.blocks, 1, 2 * threads * block_bytes);
    *out = c;
    return 0;
}

int mr_probe_copy_run(const struct mr_probe_copy *c, unsigned threads, double seconds, const atomic_bool *stop,
                      double *bytes_per_s, struct mr_error *err)
{
    struct probe p = {.job = copy_block, .folder = -1, .threads = MR_MIN(threads, c->threads), .copy = c, .stop = stop};
    int rc = measure(&p, seconds, bytes_per_s);
    return rc ? mr_error_set(err, rc, "measuring memory with %u threads", threads) : 0;
}

void mr_probe_copy_close(struct mr_probe_copy *c)
{
    free(c->blocks);
    c->blocks = NULL;
}
