/* See watch_tail.h. The position moves behind whole blocks only (W1); a writer's lock on the file says whether more
 * may come. */
#include "watch/watch_tail.h"
#include "base/common.h"
#include "base/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PIECE (4u << 20) /* a block may be longer: then the buffer grows */
#define PIECE_MOST (64u << 20)

static int open_file(struct mr_tail *t, struct mr_error *err)
{
    struct stat st;
    uint8_t head[MR_MRT_HEADER];
    t->fd = mr_open_regular(t->path, O_RDONLY, 0, &st, err);
    if (t->fd < 0)
        return t->fd;
    ssize_t n = pread(t->fd, head, sizeof head, 0);
    if (n < 0)
        return mr_error_set(err, -errno, "cannot read '%s'", t->path);
    if (!mr_mrt_is_header(head, (size_t)n))
        return mr_error_plain(err, MR_E_FORMAT, "'%s' is not a Millrace trace", t->path);
    if (mr_load_le16(head + 8) != MR_MRT_MAJOR)
        return mr_error_plain(err, MR_E_FORMAT, "'%s' has trace format version %u, this program reads %u", t->path,
                              mr_load_le16(head + 8), MR_MRT_MAJOR);
    t->inode = st.st_ino;
    t->at = MR_MRT_HEADER;
    t->ended = false;
    return 0;
}

int mr_tail_open(const char *path, struct mr_tail *t, struct mr_error *err)
{
    *t = (struct mr_tail){.fd = -1, .path = strdup(path), .cap = PIECE, .buffer = malloc(PIECE)};
    int rc = t->path && t->buffer ? open_file(t, err) : mr_error_set(err, -ENOMEM, "cannot watch '%s'", path);
    if (rc < 0)
        mr_tail_close(t);
    return rc;
}

/* Writers hold a lock. Where there are no locks nobody seems to write, and the end of the file's growth decides. */
static bool is_written(const struct mr_tail *t)
{
    if (flock(t->fd, LOCK_SH | LOCK_NB) < 0)
        return errno == EWOULDBLOCK;
    flock(t->fd, LOCK_UN);
    return false;
}

/* Another file has the name now: once this one is read to its end, that one follows. */
static int follow(struct mr_tail *t, struct mr_error *err)
{
    struct stat st;
    if (stat(t->path, &st) < 0 || st.st_ino == t->inode || !S_ISREG(st.st_mode) || st.st_size < MR_MRT_HEADER)
        return 0;
    close(t->fd);
    t->fd = -1;
    t->turns++;
    return open_file(t, err);
}

static int give(struct mr_tail *t, const struct mr_mrt_scan *s, mr_tail_block_fn *take, void *user,
                struct mr_error *err)
{
    int rc = 0;
    for (size_t i = 0; i < s->views && !rc; i++) {
        t->ended |= s->view[i].head.type == MR_MRT_FOOTER;
        if (s->view[i].head.type != MR_MRT_FOOTER)
            rc = take(user, &s->view[i], err);
    }
    return rc;
}

/* One piece of the file. *more: there may be another one. */
static int poll_piece(struct mr_tail *t, mr_tail_block_fn *take, void *user, size_t *took, bool *more,
                      struct mr_error *err)
{
    struct mr_mrt_scan scan = {0};
    size_t used = 0;
    ssize_t n = pread(t->fd, t->buffer, t->cap, (off_t)t->at);
    *more = false;
    if (n < 0)
        return mr_error_set(err, -errno, "cannot read '%s'", t->path);
    int rc = mr_mrt_scan_part(t->buffer, (size_t)n, &scan, &used, err);
    rc = rc ? rc : give(t, &scan, take, user, err);
    *took += scan.views;
    t->skipped_bytes += scan.skipped_bytes;
    t->at += used;
    *more = used > 0 && (size_t)n == t->cap;
    if (!rc && !used && (size_t)n == t->cap && t->cap < PIECE_MOST) {
        uint8_t *bigger = realloc(t->buffer, 2 * t->cap);
        if (!bigger)
            rc = mr_error_set(err, -ENOMEM, "cannot watch '%s'", t->path);
        t->buffer = bigger ? bigger : t->buffer;
        t->cap *= bigger ? 2 : 1;
        *more = bigger != NULL;
    }
    mr_mrt_scan_done(&scan);
    return rc;
}

int mr_tail_poll(struct mr_tail *t, mr_tail_block_fn *take, void *user, size_t *took, struct mr_error *err)
{
    int rc = 0;
    bool more = true;
    *took = 0;
    t->written = is_written(t); /* before reading: what a writer that is gone had written is then certainly read */
    for (unsigned i = 0; i < 8 && more && !rc; i++)
        rc = poll_piece(t, take, user, took, &more, err);
    return rc || *took ? rc : follow(t, err);
}

void mr_tail_close(struct mr_tail *t)
{
    if (t->fd >= 0 && t->path)
        close(t->fd);
    free(t->path);
    free(t->buffer);
    *t = (struct mr_tail){.fd = -1};
}
