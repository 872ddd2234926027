/* The checksum of a checkpoint's file. Of a file that is written front to back it is the XXH3-64 of its content. Of one
 * whose chunks are written, and later read, in any order by many threads it is the XXH3-64 of the chunks' XXH3-64,
 * eight little-endian bytes each, in the order of the chunks; the list then has the size of a chunk (`chunk_bytes`).
 * Either is computed here while a file passes by front to back. */
#ifndef MR_CHECKPOINT_CHECKPOINT_HASH_H
#define MR_CHECKPOINT_CHECKPOINT_HASH_H

#include <stddef.h>
#include <stdint.h>

struct mr_checkpoint_hash;

/* chunk_bytes 0: of the content. NULL without memory. */
struct mr_checkpoint_hash *mr_checkpoint_hash_create(uint64_t chunk_bytes);
void mr_checkpoint_hash_update(struct mr_checkpoint_hash *h, const void *data, size_t n);
/* Of what passed by; afterwards only free. */
uint64_t mr_checkpoint_hash_digest(struct mr_checkpoint_hash *h);
void mr_checkpoint_hash_free(struct mr_checkpoint_hash *h);

/* The same from the chunks' own checksums, which are kept as they are hashed and stored: little-endian. */
uint64_t mr_checkpoint_hash_of_chunks(const uint64_t *chunk, size_t n);

#endif
