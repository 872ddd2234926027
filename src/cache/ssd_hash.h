/* XXH3-64 with the widest vectors that this processor has: every sample that is read or written is hashed, and the
 * plain build of the hash (15 GB/s where AVX-512 gives 48) is then a third of what a read costs. */
#ifndef MR_CACHE_SSD_HASH_H
#define MR_CACHE_SSD_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t mr_ssd_hash(const void *bytes, size_t n);

/* gcc only: its pragma compiles a whole header for another instruction set. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MR_SSD_HASH_WIDE 1
uint64_t mr_ssd_hash_avx2(const void *bytes, size_t n);
uint64_t mr_ssd_hash_avx512(const void *bytes, size_t n);
#else
#define MR_SSD_HASH_WIDE 0
#endif

#endif
