/* The SSD class against direct I/O: reads of samples in random order by several threads, checksums included, and writes
 * until they are durable. The floors use the same number of threads, one large file and whole blocks. */
#include "base/common.h"
#include "base/content.h"
#include "base/rng.h"
#include "bench.h"
#include "floors.h"
#include "cache/ssd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READERS 8u
#define WRITERS 2u
#define PIECE (4u << 20) /* what the class writes at once */

struct ssd_case {
    const char *dir;
    uint64_t bytes, n; /* of a sample, and how many */
    uint64_t *order;
    struct mr_ssd *s;
    int fd;
    atomic_uint_fast64_t next;
    uint8_t *from, *to[16];
};

static uint64_t blocks(uint64_t bytes)
{
    return MR_ALIGN_UP(bytes, 4096);
}

static struct mr_ssd *open_class(const struct ssd_case *c, const char *name)
{
    char folder[4096];
    struct mr_error err;
    struct mr_ssd *s;
    snprintf(folder, sizeof folder, "%s/%s", c->dir, name);
    struct mr_ssd_params p = {
        .folder = folder, .capacity = 2 * c->n * blocks(c->bytes) + 64 * MR_MIB, .name = "bench", .samples = c->n};
    if (mr_ssd_open(&p, &s, &err))
        bench_die("%s", err.message);
    return s;
}

static void read_class(void *user, unsigned thread)
{
    struct ssd_case *c = user;
    struct mr_error err;
    for (uint64_t k; (k = atomic_fetch_add(&c->next, 1)) < c->n;)
        if (mr_ssd_read(c->s, c->order[k], c->to[thread] + 64 * (k % 8), c->bytes,
                        &err)) /* as places lie in a segment */
            bench_die("%s", err.message);
}

static void read_blocks(void *user, unsigned thread)
{
    struct ssd_case *c = user;
    uint64_t room = blocks(c->bytes);
    for (uint64_t k; (k = atomic_fetch_add(&c->next, 1)) < c->n;)
        if (pread(c->fd, c->to[thread], room, (off_t)(c->order[k] * room)) != (ssize_t)room)
            bench_die("cannot read: %s", strerror(errno));
}

static void run_read(void *user, unsigned threads, struct bench_run *out)
{
    struct ssd_case *c = user;
    c->next = 0;
    c->s = open_class(c, "cache");
    out->time = bench_threads(threads, read_class, c);
    mr_ssd_close(c->s);
    out->units = (double)(c->n * c->bytes);
}

static void run_read_floor(void *user, unsigned threads, struct bench_run *out)
{
    struct ssd_case *c = user;
    c->next = 0;
    out->time = bench_threads(threads, read_blocks, c);
    out->units = (double)(c->n * c->bytes);
}

static void write_class(void *user, unsigned thread)
{
    struct ssd_case *c = user;
    struct mr_error err;
    (void)thread;
    for (uint64_t k; (k = atomic_fetch_add(&c->next, 1)) < c->n;)
        if (mr_ssd_write(c->s, k, c->from + 64 * (k % 8), c->bytes, &err))
            bench_die("%s", err.message);
}

static void run_write(void *user, unsigned threads, struct bench_run *out)
{
    struct ssd_case *c = user;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/written", c->dir);
    bench_remove_tree(folder);
    c->next = 0;
    struct bench_time start = bench_clock();
    c->s = open_class(c, "written");
    (void)bench_threads(threads, write_class, c);
    mr_ssd_close(c->s);
    out->time = bench_since(start);
    out->units = (double)(c->n * c->bytes);
}

static int make_file(const struct ssd_case *c, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", c->dir, name);
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    uint64_t all = c->n * blocks(c->bytes);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)all))
        bench_die("cannot make '%s': %s", path, strerror(errno));
    for (uint64_t at = 0; at < all; at += PIECE) {
        uint64_t n = MR_MIN(all - at, (uint64_t)PIECE);
        if (pwrite(fd, c->from, n, (off_t)at) != (ssize_t)n)
            bench_die("cannot write '%s': %s", path, strerror(errno));
    }
    if (fdatasync(fd))
        bench_die("cannot sync '%s': %s", path, strerror(errno));
    return fd;
}

static void run_write_floor(void *user, unsigned threads, struct bench_run *out)
{
    struct ssd_case *c = user;
    (void)threads;
    struct bench_time start = bench_clock();
    close(make_file(c, "floor_written"));
    out->time = bench_since(start);
    out->units = (double)(c->n * c->bytes);
}

static void shuffle(struct ssd_case *c)
{
    for (uint64_t i = 0; i < c->n; i++)
        c->order[i] = i;
    for (uint64_t i = c->n; i > 1; i--) {
        uint64_t j = mr_mix64(i) % i, x = c->order[i - 1];
        c->order[i - 1] = c->order[j];
        c->order[j] = x;
    }
}

static void prepare(struct ssd_case *c)
{
    uint64_t room = MR_MAX(blocks(c->bytes), (uint64_t)PIECE) + 4096;
    c->order = calloc(c->n, sizeof *c->order);
    c->from = aligned_alloc(4096, room);
    for (unsigned i = 0; i < READERS; i++)
        c->to[i] = aligned_alloc(4096, room);
    if (!c->order || !c->from || !c->to[READERS - 1])
        bench_die("no memory");
    mr_content_fill(&(struct mr_content){.seed = 1}, 0, 0, c->from, room);
    shuffle(c);
    c->fd = make_file(c, "floor_read");
    c->s = open_class(c, "cache");
    c->next = 0;
    write_class(c, 0);
    mr_ssd_close(c->s);
}

static void clean(struct ssd_case *c)
{
    close(c->fd);
    bench_remove_tree(c->dir);
    for (unsigned i = 0; i < READERS; i++)
        free(c->to[i]);
    free(c->from);
    free(c->order);
}

static void compare(const struct bench_options *o, const char *size, uint64_t bytes, uint64_t n)
{
    char reading[80], writing[80], dir[4000];
    snprintf(reading, sizeof reading, "SSD class: read %s, checked", size);
    snprintf(writing, sizeof writing, "SSD class: write %s, durable", size);
    snprintf(dir, sizeof dir, "%s/ssd", o->dir);
    bool reads = bench_wanted(o, reading), writes = bench_wanted(o, writing);
    struct ssd_case c = {.dir = dir, .bytes = bytes, .n = o->quick ? n / 16 : n};
    if (!reads && !writes)
        return;
    bench_remove_tree(dir);
    if (mkdir(dir, 0700))
        bench_die("cannot make '%s': %s", dir, strerror(errno));
    if (!floor_can_read_direct(dir)) {
        bench_absent(reading, "direct I/O");
        return;
    }
    prepare(&c);
    if (reads)
        bench_compare(o, reading, READERS, run_read, run_read_floor, &c, 1e6, "MB/s", 0.85);
    if (writes)
        bench_compare(o, writing, WRITERS, run_write, run_write_floor, &c, 1e6, "MB/s", 0.85);
    clean(&c);
}

void bench_ssd_all(const struct bench_options *o)
{
    compare(o, "81 kB", 81000, 6000);
    compare(o, "1 MB", 1000000, 500);
}
