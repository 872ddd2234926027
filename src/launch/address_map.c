/* A sorted array: processes have some hundred mappings, look-ups (every page fault) outnumber changes by far. */
#include "launch/address_map.h"
#include "base/vec.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Index of the first mapping that ends behind the address. */
static size_t first_behind(const struct mr_address_map *m, uint64_t address)
{
    size_t low = 0, high = m->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (m->item[mid].to <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void insert(struct mr_address_map *m, size_t at, struct mr_mapping add)
{
    assert(m->n < m->cap && at <= m->n);
    memmove(&m->item[at + 1], &m->item[at], (m->n - at) * sizeof(add));
    m->item[at] = add;
    m->n++;
}

/* The part of `old` from the address `from` on. */
static struct mr_mapping tail_of(struct mr_mapping old, uint64_t from)
{
    old.offset += from - old.from;
    old.from = from;
    return old;
}

int mr_address_map_add(struct mr_address_map *m, struct mr_mapping add)
{
    if (add.from >= add.to)
        return 0;
    if (MR_VEC_RESERVE(m, m->n + 2) < 0)
        return -ENOMEM;
    size_t i = first_behind(m, add.from);
    if (i < m->n && m->item[i].from < add.from) { /* keep its head */
        struct mr_mapping old = m->item[i];
        m->item[i++].to = add.from;
        if (old.to > add.to)
            insert(m, i, tail_of(old, add.to));
    }
    size_t end = i;
    while (end < m->n && m->item[end].to <= add.to)
        end++;
    if (end < m->n && m->item[end].from < add.to) /* keep its tail */
        m->item[end] = tail_of(m->item[end], add.to);
    memmove(&m->item[i], &m->item[end], (m->n - end) * sizeof(add));
    m->n -= end - i;
    insert(m, i, add);
    assert(i == 0 || m->item[i - 1].to <= add.from);        /* in order, */
    assert(i + 1 == m->n || add.to <= m->item[i + 1].from); /* without overlap */
    return 0;
}

int mr_address_map_move(struct mr_address_map *m, uint64_t from, uint64_t to, uint64_t len)
{
    const struct mr_mapping *old = mr_address_map_find(m, from);
    if (!old)
        return 0;
    return mr_address_map_add(m, (struct mr_mapping){to, to + len, old->offset + (from - old->from), old->file});
}

int mr_address_map_copy(struct mr_address_map *m, const struct mr_address_map *parent)
{
    m->n = 0;
    if (MR_VEC_RESERVE(m, m->n + parent->n) < 0)
        return -ENOMEM;
    if (parent->n)
        memcpy(m->item, parent->item, parent->n * sizeof(*m->item));
    m->n = parent->n;
    return 0;
}

const struct mr_mapping *mr_address_map_find(const struct mr_address_map *m, uint64_t address)
{
    size_t i = first_behind(m, address);
    return i < m->n && m->item[i].from <= address ? &m->item[i] : NULL;
}

void mr_address_map_done(struct mr_address_map *m)
{
    free(m->item);
    *m = (struct mr_address_map){0};
}
