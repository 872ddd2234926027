/* Good fit with books elsewhere; space.h has the contract.
 *
 *   blocks in the order of their places (taken or free, no two free ones side by side), linked both ways
 *   free blocks in lists by size: 32 steps for each power of two, a bit for each list that has one
 *   taken blocks in a table by place
 *
 * Taking: the list of the wanted size may hold blocks that fit, so up to LOOKS of them are tried; every block of any
 * higher list fits, and the lowest such list is found in its bits. What is left of a block is a block again. */
#include "tier/space.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STEP_BITS 5u
#define STEPS (1u << STEP_BITS)
#define LEVELS 52u
#define LOOKS 8u
#define NONE UINT32_MAX

/* Sizes and places count units of MR_SPACE_ALIGN bytes here. */
struct block {
    uint64_t at, size;
    uint32_t before, after; /* neighbours by place */
    uint32_t prev, next;    /* in the list of its size, if free; next alone in the list of unused blocks */
    bool is_free;
};

struct mr_space {
    struct block *block;
    uint32_t blocks, cap, unused;
    uint64_t units, used;
    uint32_t *table; /* taken blocks by place; NONE: empty */
    uint32_t table_mask, taken;
    uint64_t levels; /* bit: a list of this level has a block */
    uint32_t steps[LEVELS];
    uint32_t list[LEVELS][STEPS];
};

/* ---- lists by size ---- */

static void list_of(uint64_t size, unsigned *level, unsigned *step)
{
    unsigned top = 63u - (unsigned)__builtin_clzll(size);
    *level = top < STEP_BITS ? 0 : top - STEP_BITS + 1;
    *step = top < STEP_BITS ? (unsigned)size : (unsigned)(size >> (top - STEP_BITS)) & (STEPS - 1);
}

static void list_add(struct mr_space *s, uint32_t b)
{
    unsigned level, step;
    list_of(s->block[b].size, &level, &step);
    uint32_t first = s->list[level][step];
    s->block[b].is_free = true;
    s->block[b].prev = NONE;
    s->block[b].next = first;
    if (first != NONE)
        s->block[first].prev = b;
    s->list[level][step] = b;
    s->steps[level] |= 1u << step;
    s->levels |= 1ull << level;
}

static void list_remove(struct mr_space *s, uint32_t b)
{
    unsigned level, step;
    struct block *k = &s->block[b];
    assert(k->is_free);
    list_of(k->size, &level, &step);
    if (k->next != NONE)
        s->block[k->next].prev = k->prev;
    if (k->prev != NONE)
        s->block[k->prev].next = k->next;
    else if ((s->list[level][step] = k->next) == NONE && (s->steps[level] &= ~(1u << step)) == 0)
        s->levels &= ~(1ull << level);
    k->is_free = false;
}

/* The smallest that fits of the first LOOKS in the list. */
static uint32_t fit_in_list(const struct mr_space *s, uint32_t b, uint64_t size)
{
    uint32_t best = NONE;
    for (unsigned looks = 0; b != NONE && looks < LOOKS; looks++, b = s->block[b].next)
        if (s->block[b].size >= size && (best == NONE || s->block[b].size < s->block[best].size))
            best = b;
    return best;
}

static uint32_t find(const struct mr_space *s, uint64_t size)
{
    unsigned level, step;
    list_of(size, &level, &step);
    uint32_t b = fit_in_list(s, s->list[level][step], size);
    if (b != NONE)
        return b;
    uint32_t steps = step + 1 < STEPS ? s->steps[level] & ~0u << (step + 1) : 0;
    if (!steps) {
        uint64_t levels = s->levels & ~0ull << (level + 1);
        if (!levels)
            return NONE;
        level = (unsigned)__builtin_ctzll(levels);
        steps = s->steps[level];
    }
    return fit_in_list(s, s->list[level][__builtin_ctz(steps)], size);
}

/* ---- taken blocks by place ---- */

static uint32_t table_at(const struct mr_space *s, uint64_t at)
{
    uint32_t k = (uint32_t)mr_mix64(at) & s->table_mask;
    while (s->table[k] != NONE && s->block[s->table[k]].at != at)
        k = (k + 1) & s->table_mask;
    return k;
}

static bool table_grow(struct mr_space *s)
{
    uint32_t *old = s->table, n = s->table_mask + 1;
    uint32_t *table = n > UINT32_MAX / 4 ? NULL : malloc((uint64_t)n * 2 * sizeof(*table));
    if (!table)
        return false;
    memset(table, 0xff, (uint64_t)n * 2 * sizeof(*table));
    s->table = table;
    s->table_mask = n * 2 - 1;
    for (uint32_t k = 0; k < n; k++)
        if (old[k] != NONE)
            s->table[table_at(s, s->block[old[k]].at)] = old[k];
    free(old);
    return true;
}

/* Those behind it in a row move up, so that no mark of a removed one is needed. */
static void table_remove(struct mr_space *s, uint32_t hole)
{
    for (uint32_t k = (hole + 1) & s->table_mask; s->table[k] != NONE; k = (k + 1) & s->table_mask) {
        uint32_t home = (uint32_t)mr_mix64(s->block[s->table[k]].at) & s->table_mask;
        if (((k - home) & s->table_mask) < ((k - hole) & s->table_mask))
            continue;
        s->table[hole] = s->table[k];
        hole = k;
    }
    s->table[hole] = NONE;
    s->taken--;
}

/* ---- blocks ---- */

static uint32_t new_block(struct mr_space *s)
{
    uint32_t b = s->unused;
    if (b != NONE) {
        s->unused = s->block[b].next;
        return b;
    }
    if (s->blocks == s->cap) {
        uint32_t cap = s->cap > UINT32_MAX / 4 ? 0 : s->cap * 2;
        struct block *more = cap ? realloc(s->block, (uint64_t)cap * sizeof(*more)) : NULL;
        if (!more)
            return NONE;
        s->block = more;
        s->cap = cap;
    }
    return s->blocks++;
}

/* Block b, which is in no list, becomes `size` long; the rest is a free block behind it. Without memory for that it
 * stays as it is. */
static void split(struct mr_space *s, uint32_t b, uint64_t size)
{
    uint32_t rest = s->block[b].size == size ? NONE : new_block(s);
    if (rest == NONE)
        return;
    struct block *k = &s->block[b];
    s->block[rest] = (struct block){.at = k->at + size, .size = k->size - size, .before = b, .after = k->after};
    if (k->after != NONE)
        s->block[k->after].before = rest;
    k->after = rest;
    k->size = size;
    list_add(s, rest);
}

/* Takes the free neighbour behind b into b. */
static void merge_after(struct mr_space *s, uint32_t b)
{
    uint32_t a = s->block[b].after;
    s->block[b].size += s->block[a].size;
    s->block[b].after = s->block[a].after;
    if (s->block[b].after != NONE)
        s->block[s->block[b].after].before = b;
    s->block[a].next = s->unused;
    s->unused = a;
}

/* ---- the interface ---- */

struct mr_space *mr_space_create(uint64_t bytes)
{
    struct mr_space *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->cap = 1024;
    s->table_mask = 1023;
    s->unused = NONE;
    s->units = bytes / MR_SPACE_ALIGN;
    s->block = malloc(s->cap * sizeof(*s->block));
    s->table = malloc((s->table_mask + 1) * sizeof(*s->table));
    if (!s->block || !s->table) {
        mr_space_free(s);
        return NULL;
    }
    memset(s->table, 0xff, (s->table_mask + 1) * sizeof(*s->table));
    memset(s->list, 0xff, sizeof s->list);
    if (s->units) {
        s->block[s->blocks++] = (struct block){.size = s->units, .before = NONE, .after = NONE};
        list_add(s, 0);
    }
    return s;
}

void mr_space_free(struct mr_space *s)
{
    if (!s)
        return;
    free(s->block);
    free(s->table);
    free(s);
}

uint64_t mr_space_take(struct mr_space *s, uint64_t bytes)
{
    uint64_t size = bytes / MR_SPACE_ALIGN + (bytes % MR_SPACE_ALIGN != 0);
    size = MR_MAX(size, 1u);
    if (size > s->units || (s->taken >= s->table_mask / 4 * 3 && !table_grow(s)))
        return MR_SPACE_NONE;
    uint32_t b = find(s, size);
    if (b == NONE)
        return MR_SPACE_NONE;
    list_remove(s, b);
    assert(s->block[b].size >= size);
    split(s, b, size);
    s->table[table_at(s, s->block[b].at)] = b;
    s->taken++;
    s->used += s->block[b].size;
    assert(s->used <= s->units);
    return s->block[b].at * MR_SPACE_ALIGN;
}

void mr_space_give(struct mr_space *s, uint64_t at)
{
    uint32_t k = table_at(s, at / MR_SPACE_ALIGN), b = s->table[k];
    assert(b != NONE);
    if (b == NONE)
        return;
    table_remove(s, k);
    s->used -= s->block[b].size;
    uint32_t before = s->block[b].before, after = s->block[b].after;
    if (after != NONE && s->block[after].is_free) {
        list_remove(s, after);
        merge_after(s, b);
    }
    if (before != NONE && s->block[before].is_free) {
        list_remove(s, before);
        merge_after(s, before);
        b = before;
    }
    before = s->block[b].before, after = s->block[b].after;
    assert((before == NONE || !s->block[before].is_free) && (after == NONE || !s->block[after].is_free));
    list_add(s, b);
}

uint64_t mr_space_used(const struct mr_space *s)
{
    return s->used * MR_SPACE_ALIGN;
}

uint64_t mr_space_largest(const struct mr_space *s)
{
    if (!s->levels)
        return 0;
    unsigned level = 63u - (unsigned)__builtin_clzll(s->levels);
    unsigned step = 31u - (unsigned)__builtin_clz(s->steps[level]);
    uint64_t most = 0;
    for (uint32_t b = s->list[level][step]; b != NONE; b = s->block[b].next)
        most = MR_MAX(most, s->block[b].size);
    return most * MR_SPACE_ALIGN;
}
