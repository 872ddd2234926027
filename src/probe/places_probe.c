/* See places_probe.h. Reads are buffered, as programs make them; what is dropped is clean already, or stays and is read at
 * memory speed, which ends the measurement too early to count. Files are opened, never created or written. */
#include "probe/places_probe.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_MOST (1u << 20) /* bytes of a read */
#define LEAST_S 0.05         /* less says nothing */

struct probe {
    const struct mr_place_piece *piece;
    uint8_t *buffer; /* READ_MOST bytes for each stream */
    uint64_t until_ns;
    atomic_uint_fast64_t bytes;
};

static int read_piece(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct probe *p = ctx->user;
    const struct mr_place_piece *at = &p->piece[index];
    uint8_t *buffer = p->buffer + (size_t)ctx->thread * READ_MOST;
    if (mr_now_ns() > p->until_ns)
        return MR_E_TIMEOUT; /* hands out no more */
    int fd = open(at->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return mr_error_set(err, -errno, "cannot read '%s'", at->path);
    ssize_t got = 1;
    for (uint64_t done = 0; done < at->bytes && got > 0 && mr_now_ns() < p->until_ns;
         done += (uint64_t)MR_MAX(got, 0)) {
        got = pread(fd, buffer, (size_t)MR_MIN((uint64_t)READ_MOST, at->bytes - done), (off_t)(at->offset + done));
        atomic_fetch_add(&p->bytes, got > 0 ? (uint64_t)got : 0);
    }
    int rc = got < 0 ? mr_error_set(err, -errno, "cannot read '%s'", at->path) : 0;
    close(fd);
    return rc;
}

static void drop(const struct mr_place_piece *piece, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int fd = open(piece[i].path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd < 0)
            return;
        posix_fadvise(fd, (off_t)piece[i].offset, (off_t)piece[i].bytes, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

double mr_probe_pieces(const struct mr_place_piece *piece, size_t n, unsigned streams, double most_s,
                       const atomic_bool *stop)
{
    struct mr_error err;
    struct probe p = {.piece = piece, .buffer = n >= streams ? malloc((size_t)streams * READ_MOST) : NULL};
    if (!p.buffer)
        return 0;
    drop(piece, n);
    uint64_t start = mr_now_ns();
    p.until_ns = start + (uint64_t)(most_s * 1e9);
    int rc = mr_workers_run(streams, n, 1, read_piece, &p, stop, &err);
    double took = (double)(mr_now_ns() - start) / 1e9;
    free(p.buffer);
    return (!rc || rc == MR_E_TIMEOUT) && took >= LEAST_S ? (double)atomic_load(&p.bytes) / took : 0;
}
