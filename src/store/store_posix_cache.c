/* Page-cache control on our own files, without root: drop what is clean, measure what is resident. cachestat(2) answers
 * for a whole file in one call (Linux 6.5); older kernels are asked through a mapping with mincore(2), which reports
 * the cache for files we own or may write. */
#include "store/store_posix.h"

#include "base/common.h"
#include "store/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int mr_posix_drop_cache(struct mr_object *base, struct mr_error *err)
{
    struct mr_posix_object *o = (struct mr_posix_object *)base;
    /* Dirty pages stay whatever the advice, so write them first. */
    if (fdatasync(o->fd) != 0)
        return mr_store_fail_path(err, -errno, "sync", base->path);
    int rc = posix_fadvise(o->fd, 0, 0, POSIX_FADV_DONTNEED);
    return rc == 0 ? 0 : mr_store_fail_path(err, -rc, "drop the page cache of", base->path);
}

#define CACHESTAT_SYSCALL 451 /* the same number on all architectures; glibc 2.36 has no wrapper */
struct cachestat_range_abi {
    uint64_t offset, length;
};
struct cachestat_abi {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

static int resident_by_cachestat(int fd, uint64_t size, uint64_t page, uint64_t *resident)
{
    const struct cachestat_range_abi range = {.offset = 0, .length = 0}; /* length 0 = to the end */
    struct cachestat_abi st = {0};
    if (syscall(CACHESTAT_SYSCALL, fd, &range, &st, 0) != 0)
        return -errno;
    *resident = MR_MIN(st.cached * page, size);
    return 0;
}

#define WINDOW_PAGES ((size_t)1 << 16)

static int resident_by_mincore(int fd, uint64_t size, uint64_t page, uint64_t *resident)
{
    unsigned char *marks = malloc(WINDOW_PAGES);
    if (!marks)
        return -ENOMEM;
    uint64_t found = 0;
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < size; at += WINDOW_PAGES * page) {
        size_t len = (size_t)MR_MIN(size - at, WINDOW_PAGES * page);
        void *map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, (off_t)at);
        if (map == MAP_FAILED) {
            rc = -errno;
            break;
        }
        if (mincore(map, len, marks) != 0)
            rc = -errno;
        for (size_t i = 0; rc == 0 && i < (len + page - 1) / page; i++)
            found += marks[i] & 1;
        munmap(map, len);
    }
    free(marks);
    if (rc == 0)
        *resident = MR_MIN(found * page, size);
    return rc;
}

int mr_posix_resident(struct mr_object *base, uint64_t *resident_bytes, uint64_t *total_bytes, struct mr_error *err)
{
    struct mr_posix_object *o = (struct mr_posix_object *)base;
    uint64_t size, resident = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    int rc = mr_posix_object_size(base, &size, err);
    if (rc < 0)
        return rc;
    if (size > 0) {
        rc = resident_by_cachestat(o->fd, size, page, &resident);
        if (rc < 0)
            rc = resident_by_mincore(o->fd, size, page, &resident);
        if (rc < 0)
            return mr_store_fail_path(err, rc, "measure the page cache of", base->path);
    }
    *resident_bytes = resident;
    *total_bytes = size;
    return 0;
}
