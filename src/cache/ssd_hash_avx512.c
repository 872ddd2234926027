/* XXH3-64 compiled for avx512f: see ssd_hash.h. */
#include "cache/ssd_hash.h"

#if MR_SSD_HASH_WIDE
#pragma GCC target("avx512f")
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t mr_ssd_hash_avx512(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}
#endif
