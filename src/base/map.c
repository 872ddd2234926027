/* Hash map: see map.h. Linear probing.
 *
 * Invariants
 *  1. slots is 0 or a power of two, and used * 2 <= slots: there is a free slot, so every probe ends.
 *  2. From the slot its key hashes to on, every slot before an entry's is taken: a probe that meets a free slot has
 * seen all candidates. Nothing is ever removed, so this cannot break. */
#include "base/map.h"

#include "base/common.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_SLOTS 64

/* The slot of a key, or the free one where it belongs. */
static struct mr_map_slot *find(const struct mr_map *m, uint64_t key)
{
    size_t i = (size_t)mr_mix64(key) & (m->slots - 1);
    while (m->slot[i].value && m->slot[i].key != key)
        i = (i + 1) & (m->slots - 1);
    return &m->slot[i];
}

/* Zeroed. Slots are looked at in no order: large pages spare most of the address translation of a large table. */
static struct mr_map_slot *alloc_slots(size_t slots)
{
    const size_t large = 2 * MR_MIB, bytes = slots * sizeof(struct mr_map_slot);
    if (slots > PTRDIFF_MAX / sizeof(struct mr_map_slot))
        return NULL;
    if (bytes < 2 * large)
        return calloc(slots, sizeof(struct mr_map_slot));
    void *p = aligned_alloc(large, bytes); /* a power of two, so a multiple of `large` */
    if (p) {
        madvise(p, bytes, MADV_HUGEPAGE); /* advice: it works without */
        memset(p, 0, bytes);
    }
    return p;
}

static bool grow(struct mr_map *m, size_t slots)
{
    struct mr_map bigger = {.slots = slots, .slot = alloc_slots(slots)};
    assert((slots & (slots - 1)) == 0 && slots > m->slots); /* invariant 1 */
    if (!bigger.slot)
        return false;
    for (size_t i = 0; i < m->slots; i++)
        if (m->slot[i].value) {
            *find(&bigger, m->slot[i].key) = m->slot[i];
            bigger.used++;
        }
    free(m->slot);
    *m = bigger;
    return true;
}

bool mr_map_reserve(struct mr_map *m, size_t entries)
{
    size_t slots = m->slots ? m->slots : FIRST_SLOTS;
    while (slots / 2 < entries && slots <= SIZE_MAX / 2)
        slots *= 2;
    return slots == m->slots || grow(m, slots);
}

uint64_t *mr_map_put(struct mr_map *m, uint64_t key)
{
    if ((m->used + 1) * 2 > m->slots && !grow(m, m->slots ? m->slots * 2 : FIRST_SLOTS))
        return NULL;
    struct mr_map_slot *s = find(m, key);
    if (!s->value) {
        s->key = key;
        m->used++;
    }
    assert(m->used * 2 <= m->slots); /* invariant 1 */
    return &s->value;
}

const struct mr_map_slot *mr_map_next(const struct mr_map *m, size_t *at)
{
    while (*at < m->slots) {
        const struct mr_map_slot *s = &m->slot[(*at)++];
        if (s->value)
            return s;
    }
    return NULL;
}

void mr_map_clear(struct mr_map *m)
{
    if (m->slots)
        memset(m->slot, 0, m->slots * sizeof(*m->slot));
    m->used = 0;
}

void mr_map_done(struct mr_map *m)
{
    free(m->slot);
    *m = (struct mr_map){0};
}

uint64_t mr_hash_bytes(const void *text, size_t len, uint64_t seed)
{
    const unsigned char *p = text;
    uint64_t v, h = mr_mix64(seed + ((uint64_t)len << 32)); /* mixed, or a short text could undo what the seed did */
    for (; len >= 8; p += 8, len -= 8) {
        memcpy(&v, p, 8);
        h = mr_mix64(h ^ v);
    }
    v = 0;
    if (len)
        memcpy(&v, p, len);
    return mr_mix64(h ^ v ^ 0x1234567);
}
