/* XXH3-64, chosen by processor: see ssd_hash.h. */
#include "cache/ssd_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t mr_ssd_hash(const void *bytes, size_t n)
{
#if MR_SSD_HASH_WIDE
    if (__builtin_cpu_supports("avx512f"))
        return mr_ssd_hash_avx512(bytes, n);
    if (__builtin_cpu_supports("avx2"))
        return mr_ssd_hash_avx2(bytes, n);
#endif
    return XXH3_64bits(bytes, n);
}
