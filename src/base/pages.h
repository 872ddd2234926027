/* Memory in large pages: fewer page faults and misses of address translation. Only a wish; the system may have none. */
#ifndef MR_BASE_PAGES_H
#define MR_BASE_PAGES_H

#include "base/common.h"

#include <stdint.h>
#include <sys/mman.h>

/* The whole pages of n bytes at p, for madvise; false if there are none. */
static inline bool mr_whole_pages(const void *p, size_t n, void **from, size_t *bytes)
{
    uintptr_t first = MR_ALIGN_UP((uintptr_t)p, 4096), end = ((uintptr_t)p + n) / 4096 * 4096;
    *from = (void *)first;
    *bytes = end > first ? end - first : 0;
    return *bytes > 0;
}

static inline void mr_large_pages(const void *p, size_t n)
{
    void *from;
    size_t bytes;
    if (mr_whole_pages(p, n, &from, &bytes))
        madvise(from, bytes, MADV_HUGEPAGE);
}

#endif
