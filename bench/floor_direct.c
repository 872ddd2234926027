/* The floor of cold reading: direct reads of the samples' blocks with io_uring, `depth` in flight from one thread. */
#include "base/common.h"
#include "floors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if BENCH_URING
#include <liburing.h>

bool floor_can_read_direct(const char *folder)
{
    struct io_uring ring;
    char path[4096];
    snprintf(path, sizeof path, "%s/direct", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0666);
    if (fd >= 0)
        close(fd);
    unlink(path);
    if (fd < 0 || io_uring_queue_init(4, &ring, 0) < 0)
        return false;
    io_uring_queue_exit(&ring);
    return true;
}

struct flight {
    int fd;
    bool close; /* the file is this sample's own */
    uint64_t want;
};

static void submit(struct io_uring *ring, const struct floor_sample *s, struct flight *f, uint8_t *row)
{
    uint64_t from = s->offset / 4096 * 4096, len = MR_ALIGN_UP(s->offset + s->bytes, 4096) - from;
    f->close = s->fd < 0;
    f->fd = s->fd >= 0 ? s->fd : open(s->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    f->want = s->offset + s->bytes - from; /* the file may end before its last block does */
    struct io_uring_sqe *e = io_uring_get_sqe(ring);
    if (f->fd < 0 || !e)
        bench_die("cannot read '%s': %s", s->path, strerror(errno));
    io_uring_prep_read(e, f->fd, row, (unsigned)len, from);
    io_uring_sqe_set_data(e, f);
}

static struct flight *reap(struct io_uring *ring)
{
    struct io_uring_cqe *c;
    if (io_uring_wait_cqe(ring, &c) != 0)
        bench_die("io_uring does not answer");
    struct flight *f = io_uring_cqe_get_data(c);
    if (c->res < 0 || (uint64_t)c->res < f->want)
        bench_die("a direct read gave %d bytes, want %llu", c->res, (unsigned long long)f->want);
    io_uring_cqe_seen(ring, c);
    if (f->close)
        close(f->fd);
    return f;
}

struct bench_time floor_read_direct(const struct floor_sample *samples, const uint64_t *order, uint64_t n,
                                    uint8_t *slab, uint64_t rows, uint64_t row_bytes, unsigned depth)
{
    struct io_uring ring;
    struct flight *flight = calloc(depth, sizeof(*flight)), **idle = calloc(depth, sizeof(struct flight *));
    unsigned n_idle = depth;
    if (!flight || !idle || io_uring_queue_init(depth, &ring, 0) < 0)
        bench_die("cannot make a ring");
    for (unsigned i = 0; i < depth; i++)
        idle[i] = &flight[i];
    struct bench_time start = bench_clock();
    for (uint64_t k = 0; k < n || n_idle < depth;) {
        for (; k < n && n_idle; k++)
            submit(&ring, &samples[order[k]], idle[--n_idle], slab + k % rows * row_bytes);
        io_uring_submit(&ring);
        idle[n_idle++] = reap(&ring);
    }
    struct bench_time time = bench_since(start);
    io_uring_queue_exit(&ring);
    free(flight);
    free(idle);
    return time;
}
#else
bool floor_can_read_direct(const char *folder)
{
    (void)folder;
    return false;
}

struct bench_time floor_read_direct(const struct floor_sample *samples, const uint64_t *order, uint64_t n,
                                    uint8_t *slab, uint64_t rows, uint64_t row_bytes, unsigned depth)
{
    (void)samples, (void)order, (void)n, (void)slab, (void)rows, (void)row_bytes, (void)depth;
    bench_die("this build has no io_uring");
}
#endif
