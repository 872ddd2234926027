/* The system calls of an SSD folder: see ssd_io.h. */
#include "cache/ssd_io.h"

#include "base/common.h"
#include "base/regular_file.h"
#include "cache/ssd_index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

int (*mr_ssd_fault)(enum mr_ssd_call call);

#define FAIL_IF_TOLD(call)                                                                                             \
    do {                                                                                                               \
        int told = mr_ssd_fault ? mr_ssd_fault(call) : 0;                                                              \
        if (MR_UNLIKELY(told))                                                                                         \
            return -told;                                                                                              \
    } while (0)

int mr_ssd_openat(int dir, const char *name, int flags, unsigned mode)
{
    FAIL_IF_TOLD(MR_SSD_CALL_OPEN);
    if (!(flags & O_DIRECTORY))
        return mr_openat_regular(dir, name, flags | O_NOFOLLOW, mode, NULL);
    int fd = openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW, mode);
    return fd < 0 ? -errno : fd;
}

int mr_ssd_pread(int fd, void *to, size_t n, uint64_t at, size_t *got)
{
    FAIL_IF_TOLD(MR_SSD_CALL_READ);
    *got = 0;
    while (*got < n) {
        ssize_t r = pread(fd, (uint8_t *)to + *got, n - *got, (off_t)(at + *got));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        if (r == 0)
            break;
        *got += (size_t)r;
    }
    return 0;
}

int mr_ssd_pwrite(int fd, const void *from, size_t n, uint64_t at)
{
    FAIL_IF_TOLD(MR_SSD_CALL_WRITE);
    for (size_t done = 0; done < n;) {
        ssize_t w = pwrite(fd, (const uint8_t *)from + done, n - done, (off_t)(at + done));
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return w < 0 ? -errno : -EIO;
        done += (size_t)w;
    }
    return 0;
}

int mr_ssd_append(int fd, const void *from, size_t n)
{
    FAIL_IF_TOLD(MR_SSD_CALL_WRITE);
    ssize_t w;
    do
        w = write(fd, from, n);
    while (w < 0 && errno == EINTR);
    return w < 0 ? -errno : (size_t)w == n ? 0 : -ENOSPC;
}

int mr_ssd_pread_blocks(int fd, uint8_t *to, size_t n, uint64_t at, size_t *got)
{
    _Alignas(MR_SSD_BLOCK) uint8_t last[MR_SSD_BLOCK];
    size_t whole = n / MR_SSD_BLOCK * MR_SSD_BLOCK, rest = n - whole;
    struct iovec v[2] = {{.iov_base = to, .iov_len = whole}, {.iov_base = last, .iov_len = rest ? sizeof last : 0}};
    unsigned first = whole ? 0 : 1, count = (whole ? 1 : 0) + (rest ? 1 : 0);
    ssize_t r;
    FAIL_IF_TOLD(MR_SSD_CALL_READ);
    do
        r = preadv(fd, v + first, (int)count, (off_t)at);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    *got = MR_MIN((size_t)r, n);
    if ((size_t)r > whole)
        memcpy(to + whole, last, *got - whole);
    if (*got == n || r == 0 || r % MR_SSD_BLOCK)
        return 0;
    /* A signal or a large transfer may cut it between blocks: the rest in the plain way. */
    size_t more = 0;
    int rc = mr_ssd_pread_blocks(fd, to + *got, n - *got, at + *got, &more);
    *got += more;
    return rc;
}

int mr_ssd_allocate(int fd, uint64_t at, uint64_t n)
{
    FAIL_IF_TOLD(MR_SSD_CALL_ALLOCATE);
    int rc;
    do
        rc = fallocate(fd, 0, (off_t)at, (off_t)n);
    while (rc != 0 && errno == EINTR);
    return rc ? -errno : 0;
}

int mr_ssd_punch(int fd, uint64_t at, uint64_t n)
{
    FAIL_IF_TOLD(MR_SSD_CALL_PUNCH);
    int rc;
    do
        rc = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n);
    while (rc != 0 && errno == EINTR);
    return rc ? -errno : 0;
}

int mr_ssd_truncate(int fd, uint64_t n)
{
    FAIL_IF_TOLD(MR_SSD_CALL_TRUNCATE);
    return ftruncate(fd, (off_t)n) ? -errno : 0;
}

int mr_ssd_sync(int fd)
{
    FAIL_IF_TOLD(MR_SSD_CALL_SYNC);
    return fdatasync(fd) ? -errno : 0;
}

int mr_ssd_lock(int fd, int how)
{
    FAIL_IF_TOLD(MR_SSD_CALL_LOCK);
    return flock(fd, how | LOCK_NB) ? -errno : 0;
}

int mr_ssd_stat(int fd, struct stat *st)
{
    FAIL_IF_TOLD(MR_SSD_CALL_STAT);
    return fstat(fd, st) ? -errno : 0;
}

int mr_ssd_statat(int dir, const char *name, struct stat *st)
{
    FAIL_IF_TOLD(MR_SSD_CALL_STAT);
    return fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

int mr_ssd_unlinkat(int dir, const char *name, bool folder)
{
    FAIL_IF_TOLD(MR_SSD_CALL_REMOVE);
    return unlinkat(dir, name, folder ? AT_REMOVEDIR : 0) ? -errno : 0;
}

int mr_ssd_renameat(int dir, const char *from, const char *to)
{
    FAIL_IF_TOLD(MR_SSD_CALL_REMOVE);
    return renameat(dir, from, dir, to) ? -errno : 0;
}

int mr_ssd_mkdirat(int dir, const char *name, unsigned mode)
{
    FAIL_IF_TOLD(MR_SSD_CALL_OPEN);
    return mkdirat(dir, name, mode) ? -errno : 0;
}

void *mr_ssd_aligned(size_t bytes)
{
    void *p = NULL;
    if (mr_ssd_fault && mr_ssd_fault(MR_SSD_CALL_MEMORY))
        return NULL;
    return posix_memalign(&p, MR_SSD_BLOCK, MR_ALIGN_UP(bytes, (size_t)MR_SSD_BLOCK)) ? NULL : p;
}
