/* How the posix backend moves bytes: pread and pwrite in the calling thread, direct I/O with its alignment rules, and
 * the execution of queued requests.
 *
 * Direct reads: a range that is aligned in file and memory goes straight to the caller's buffer; an unaligned end is
 * read by the same preadv into an aligned bounce buffer and copied; anything else goes through the bounce buffer in
 * pieces. Direct writes: whole pages go directly (through the bounce buffer when the memory is not aligned), what is
 * left at both ends goes through the page cache on a second descriptor of the same file. No neighbouring byte is
 * rewritten by us, so concurrent writers of neighbouring ranges cannot lose data, and the file never needs trimming.
 * The border is the page even where the file system would take smaller blocks: a direct write throws the pages it
 * covers out of the cache, and if one of them is being dirtied by a neighbour's end at that moment the kernel fails the
 * next fsync with EIO. Functions may move less than asked; the callers repeat. */
#include "store/store_posix.h"

#include "base/common.h"
#include "store/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

void *mr_bounce_take(struct mr_bounce *b)
{
    void *buf = NULL;
    pthread_mutex_lock(&b->lock);
    if (b->count > 0)
        buf = b->kept[--b->count];
    pthread_mutex_unlock(&b->lock);
    if (!buf && posix_memalign(&buf, MR_BOUNCE_ALIGN, MR_BOUNCE_BYTES) != 0)
        buf = NULL;
    return buf;
}

void mr_bounce_give(struct mr_bounce *b, void *buf)
{
    pthread_mutex_lock(&b->lock);
    if (b->count < MR_BOUNCE_KEPT) {
        b->kept[b->count++] = buf;
        buf = NULL;
    }
    pthread_mutex_unlock(&b->lock);
    free(buf);
}

static bool is_aligned(const void *p, uint64_t align)
{
    return (uintptr_t)p % align == 0;
}

/* pread and pwrite that return -errno and repeat interruptions. */
static int64_t pread_once(int fd, void *buf, size_t len, uint64_t offset)
{
    ssize_t r;
    do
        r = pread(fd, buf, MR_MIN(len, MR_STORE_MAX_TRANSFER), (off_t)offset);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

static int64_t pwrite_once(int fd, const void *buf, size_t len, uint64_t offset)
{
    ssize_t r;
    do
        r = pwrite(fd, buf, MR_MIN(len, MR_STORE_MAX_TRANSFER), (off_t)offset);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

/* The aligned front goes to the caller, the unaligned end to the bounce buffer, in one call. */
static int64_t read_split(int fd, char *buf, size_t len, uint64_t offset, size_t align, char *bounce)
{
    size_t front = len - len % align;
    if (front > MR_STORE_MAX_TRANSFER)
        return pread_once(fd, buf, MR_STORE_MAX_TRANSFER, offset);
    const struct iovec v[2] = {{.iov_base = buf, .iov_len = front}, {.iov_base = bounce, .iov_len = align}};
    ssize_t r;
    do
        r = front ? preadv(fd, v, 2, (off_t)offset) : preadv(fd, v + 1, 1, (off_t)offset);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    if ((size_t)r <= front)
        return r;
    size_t extra = MR_MIN((size_t)r - front, len - front);
    memcpy(buf + front, bounce, extra);
    return (int64_t)(front + extra);
}

static int64_t read_bounced(int fd, char *buf, size_t len, uint64_t offset, size_t align, char *bounce)
{
    size_t skip = (size_t)(offset % align);
    size_t want = MR_MIN(MR_ALIGN_UP(skip + MR_MIN(len, MR_BOUNCE_BYTES), align), MR_BOUNCE_BYTES);
    int64_t r = pread_once(fd, bounce, want, offset - skip);
    if (r < 0)
        return r;
    if ((size_t)r <= skip)
        return 0;
    size_t n = MR_MIN((size_t)r - skip, len);
    memcpy(buf, bounce + skip, n);
    return (int64_t)n;
}

static int64_t read_direct(struct mr_posix_store *s, struct mr_posix_object *o, size_t align, char *buf, size_t len,
                           uint64_t offset)
{
    bool placed = offset % align == 0 && is_aligned(buf, o->mem_align);
    if (placed && len % align == 0)
        return pread_once(o->fd, buf, len, offset);
    char *bounce = mr_bounce_take(&s->bounce);
    if (!bounce)
        return -ENOMEM;
    int64_t r = placed ? read_split(o->fd, buf, len, offset, align, bounce)
                       : read_bounced(o->fd, buf, len, offset, align, bounce);
    mr_bounce_give(&s->bounce, bounce);
    return r;
}

static int64_t write_direct(struct mr_posix_store *s, struct mr_posix_object *o, const char *buf, size_t len,
                            uint64_t offset)
{
    const size_t align = MR_BOUNCE_ALIGN;
    size_t head = (size_t)(offset % align);
    if (head || len < align)
        return pwrite_once(o->fd_buffered, buf, MR_MIN(len, align - head), offset);
    size_t middle = len - len % align;
    if (is_aligned(buf, o->mem_align))
        return pwrite_once(o->fd, buf, middle, offset);
    char *bounce = mr_bounce_take(&s->bounce);
    if (!bounce)
        return -ENOMEM;
    size_t n = MR_MIN(middle, MR_BOUNCE_BYTES);
    memcpy(bounce, buf, n);
    int64_t r = pwrite_once(o->fd, bounce, n, offset);
    mr_bounce_give(&s->bounce, bounce);
    return r;
}

/* A file system may accept O_DIRECT at open and refuse the transfer. From then on this object uses the page cache. */
static bool leave_direct(struct mr_posix_store *s, struct mr_posix_object *o)
{
    int flags = fcntl(o->fd, F_GETFL);
    if (flags < 0 || fcntl(o->fd, F_SETFL, flags & ~O_DIRECT) != 0)
        return false;
    atomic_store(&o->off_align, 0);
    mr_posix_note_no_direct(s, o->base.path);
    return true;
}

int64_t mr_posix_read(struct mr_object *base, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct mr_posix_object *o = (struct mr_posix_object *)base;
    struct mr_posix_store *s = (struct mr_posix_store *)base->store;
    unsigned align = atomic_load_explicit(&o->off_align, memory_order_relaxed);
    int64_t r;
    if (len == 0)
        return 0;
    if (!align) {
        r = pread_once(o->fd, buf, len, offset);
    } else {
        r = read_direct(s, o, align, buf, len, offset);
        if (r == -EINVAL && leave_direct(s, o))
            r = pread_once(o->fd, buf, len, offset);
    }
    return MR_LIKELY(r >= 0) ? r : mr_store_fail_range(err, (int)r, "read", base->path, len, offset, 0);
}

int64_t mr_posix_write(struct mr_object *base, const void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct mr_posix_object *o = (struct mr_posix_object *)base;
    struct mr_posix_store *s = (struct mr_posix_store *)base->store;
    unsigned align = atomic_load_explicit(&o->off_align, memory_order_relaxed);
    int64_t r;
    if (len == 0)
        return 0;
    if (!align) {
        r = pwrite_once(o->fd, buf, len, offset);
    } else {
        r = write_direct(s, o, buf, len, offset);
        if (r == -EINVAL && leave_direct(s, o))
            r = pwrite_once(o->fd, buf, len, offset);
    }
    return MR_LIKELY(r >= 0) ? r : mr_store_fail_range(err, (int)r, "write", base->path, len, offset, 0);
}

int mr_posix_fsync(struct mr_object *base, struct mr_error *err)
{
    struct mr_posix_object *o = (struct mr_posix_object *)base;
    return fsync(o->fd) == 0 ? 0 : mr_store_fail_path(err, -errno, "sync", base->path);
}

/* ---- queued requests ---- */

static int64_t transfer(struct mr_object *o, const struct mr_io *io)
{
    size_t moved = 0;
    while (moved < io->len) {
        char *at = (char *)io->buf + moved;
        int64_t r = io->op == MR_IO_WRITE ? mr_posix_write(o, at, io->len - moved, io->offset + moved, NULL)
                                          : mr_posix_read(o, at, io->len - moved, io->offset + moved, NULL);
        if (r < 0)
            return r;
        if (r == 0)
            break;
        moved += (size_t)r;
        if (io->enough && moved >= io->enough && io->op == MR_IO_READ)
            break;
    }
    return (int64_t)moved;
}

static int open_for_read(struct mr_posix_store *s, const char *path, bool *direct)
{
    for (;;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (*direct ? O_DIRECT : 0));
        if (fd >= 0)
            return fd;
        if (errno == EINVAL && *direct) {
            *direct = false;
            mr_posix_note_no_direct(s, path);
        } else if (errno != EINTR) {
            return -errno;
        }
    }
}

/* One sample per file: open, read, close. A full first read needs no second one to look for the end. */
static int64_t read_path(struct mr_posix_store *s, const struct mr_io *io)
{
    bool direct = s->direct || (io->flags & MR_OBJ_DIRECT);
    int fd = open_for_read(s, io->path, &direct);
    if (fd < 0)
        return fd;
    struct mr_posix_object o = {
        .base = {.store = &s->base, .path = io->path}, .fd = fd, .fd_buffered = -1, .mem_align = MR_BOUNCE_ALIGN};
    atomic_init(&o.off_align, direct ? MR_BOUNCE_ALIGN : 0);
    int64_t r = transfer(&o.base, io);
    close(fd); /* read-only: nothing can be lost */
    return r;
}

int64_t mr_posix_exec(struct mr_store *base, const struct mr_io *io)
{
    switch (io->op) {
    case MR_IO_READ:
    case MR_IO_WRITE: return transfer(io->object, io);
    case MR_IO_READ_PATH: return read_path((struct mr_posix_store *)base, io);
    case MR_IO_FSYNC: return mr_posix_fsync(io->object, NULL);
    }
    return -EINVAL;
}
