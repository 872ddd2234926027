/* Places in a range of bytes: an allocator whose book-keeping lies elsewhere, because the bytes belong to several
 * processes and the books to one. Good fit by size class, neighbours merged when freed. Not thread-safe.
 * Sizes are rounded up to MR_SPACE_ALIGN. Room for a class of `capacity` bytes: capacity + 5 % + 32 of the largest
 * samples; then there is a hole whatever comes and goes by chance (tests/unit/test_tier_space.c, samples from 1 KiB
 * up).
 */
#ifndef MR_TIER_SPACE_H
#define MR_TIER_SPACE_H

#include <stdint.h>

#define MR_SPACE_ALIGN 64u
#define MR_SPACE_NONE UINT64_MAX

struct mr_space;
struct mr_space *mr_space_create(uint64_t bytes); /* NULL: no memory */
void mr_space_free(struct mr_space *s);
/* A place of at least `bytes` bytes, aligned; MR_SPACE_NONE: no hole is large enough. */
uint64_t mr_space_take(struct mr_space *s, uint64_t bytes);
void mr_space_give(struct mr_space *s, uint64_t at);
uint64_t mr_space_used(const struct mr_space *s); /* rounded sizes */
uint64_t mr_space_largest(const struct mr_space *s);

#endif
