/* Small things every file needs: array size, min/max, alignment, little-endian bytes. Nothing here allocates or prints.
 */
#ifndef MR_BASE_COMMON_H
#define MR_BASE_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MR_MIN(a, b) ((a) < (b) ? (a) : (b))
#define MR_MAX(a, b) ((a) > (b) ? (a) : (b))
#define MR_ORDER(a, b) (((a) > (b)) - ((a) < (b))) /* for qsort and bsearch: -1, 0, 1 */
#define MR_ALIGN_UP(x, a) (((x) + (a)-1) / (a) * (a))
#define MR_LIKELY(x) __builtin_expect(!!(x), 1)
#define MR_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define MR_CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Compile a function for several instruction sets and choose at load time. Sanitizers cannot run before the loader's
 * choice, so they get the plain version. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define MR_SIMD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MR_SIMD_CLONES
#endif

#define MR_KIB ((uint64_t)1 << 10)
#define MR_MIB ((uint64_t)1 << 20)
#define MR_GIB ((uint64_t)1 << 30)

#define MR_NS_PER_US 1000ull
#define MR_NS_PER_MS 1000000ull
#define MR_NS_PER_S 1000000000ull

/* Little-endian loads and stores for file formats; compile to one instruction on x86. */
static inline uint16_t mr_load_le16(const void *p)
{
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}
static inline uint32_t mr_load_le32(const void *p)
{
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}
static inline uint64_t mr_load_le64(const void *p)
{
    return (uint64_t)mr_load_le32(p) | (uint64_t)mr_load_le32((const uint8_t *)p + 4) << 32;
}
static inline void mr_store_le16(void *p, uint16_t v)
{
    uint8_t *b = p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}
static inline void mr_store_le32(void *p, uint32_t v)
{
    mr_store_le16(p, (uint16_t)v);
    mr_store_le16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}
static inline void mr_store_le64(void *p, uint64_t v)
{
    mr_store_le32(p, (uint32_t)v);
    mr_store_le32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

#endif
