/* See the header. */
#include "checkpoint/checkpoint_hash.h"
#include "base/common.h"

#include <endian.h>
#include <stdlib.h>
#include <xxhash.h>

struct mr_checkpoint_hash {
    XXH3_state_t *content, *tree; /* tree: NULL without chunks */
    uint64_t chunk_bytes, in_chunk;
};

struct mr_checkpoint_hash *mr_checkpoint_hash_create(uint64_t chunk_bytes)
{
    struct mr_checkpoint_hash *h = calloc(1, sizeof(*h));
    if (!h)
        return NULL;
    h->chunk_bytes = chunk_bytes;
    h->content = XXH3_createState();
    h->tree = chunk_bytes ? XXH3_createState() : NULL;
    if (!h->content || (chunk_bytes && !h->tree)) {
        mr_checkpoint_hash_free(h);
        return NULL;
    }
    XXH3_64bits_reset(h->content);
    if (h->tree)
        XXH3_64bits_reset(h->tree);
    return h;
}

static void end_chunk(struct mr_checkpoint_hash *h)
{
    uint64_t digest = htole64(XXH3_64bits_digest(h->content));
    XXH3_64bits_update(h->tree, &digest, sizeof digest);
    XXH3_64bits_reset(h->content);
    h->in_chunk = 0;
}

void mr_checkpoint_hash_update(struct mr_checkpoint_hash *h, const void *data, size_t n)
{
    const uint8_t *at = data;
    if (!h->tree) {
        XXH3_64bits_update(h->content, data, n);
        return;
    }
    while (n) {
        size_t take = (size_t)MR_MIN((uint64_t)n, h->chunk_bytes - h->in_chunk);
        XXH3_64bits_update(h->content, at, take);
        at += take;
        n -= take;
        h->in_chunk += take;
        if (h->in_chunk == h->chunk_bytes)
            end_chunk(h);
    }
}

uint64_t mr_checkpoint_hash_digest(struct mr_checkpoint_hash *h)
{
    if (!h->tree)
        return XXH3_64bits_digest(h->content);
    if (h->in_chunk)
        end_chunk(h);
    return XXH3_64bits_digest(h->tree);
}

void mr_checkpoint_hash_free(struct mr_checkpoint_hash *h)
{
    if (!h)
        return;
    XXH3_freeState(h->content);
    XXH3_freeState(h->tree);
    free(h);
}

uint64_t mr_checkpoint_hash_of_chunks(const uint64_t *chunk, size_t n)
{
    return XXH3_64bits(chunk, n * sizeof(*chunk));
}
