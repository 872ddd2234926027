/* See holdings.h. */
#include "tier/holdings.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 4096u

int mr_holdings_init(struct mr_holdings *h, uint64_t bytes)
{
    *h = (struct mr_holdings){.free = MR_HOLDING_NONE, .first_spare = MR_HOLDING_NONE, .last_spare = MR_HOLDING_NONE};
    h->space = mr_space_create(bytes);
    return h->space ? 0 : -ENOMEM;
}

void mr_holdings_done(struct mr_holdings *h)
{
    for (uint32_t i = 0; i < h->chunks; i++)
        free(h->chunk[i]);
    free(h->chunk);
    free(h->slot);
    mr_space_free(h->space);
    *h = (struct mr_holdings){0};
}

/* ---- counts (H2) ---- */

static enum mr_holding_kind kind_of(const struct mr_holding *e)
{
    return e->spare ? MR_HOLDING_SPARE : e->storage_class == MR_CLASS_RAM ? MR_HOLDING_RAM : MR_HOLDING_STAGING;
}

static uint64_t room_of(const struct mr_holding *e)
{
    return MR_ALIGN_UP(MR_MAX(e->bytes, 1u), (uint64_t)MR_SPACE_ALIGN);
}

static void count_in(struct mr_holdings *h, const struct mr_holding *e)
{
    if (e->state == MR_HOLDING_AWAY)
        return;
    h->bytes[kind_of(e)] += room_of(e);
    h->samples[kind_of(e)]++;
    h->ram_ready += e->state == MR_HOLDING_READY && e->storage_class == MR_CLASS_RAM;
}

static void count_out(struct mr_holdings *h, const struct mr_holding *e)
{
    if (e->state == MR_HOLDING_AWAY)
        return;
    assert(h->bytes[kind_of(e)] >= room_of(e) && h->samples[kind_of(e)]); /* H2 */
    h->bytes[kind_of(e)] -= room_of(e);
    h->samples[kind_of(e)]--;
    h->ram_ready -= e->state == MR_HOLDING_READY && e->storage_class == MR_CLASS_RAM;
}

/* ---- the table ---- */

static uint32_t home(const struct mr_holdings *h, uint64_t id)
{
    return (uint32_t)mr_mix64(id) & (h->slots - 1);
}

struct mr_holding *mr_holdings_find(const struct mr_holdings *h, uint64_t id)
{
    if (!h->slots)
        return NULL;
    for (uint32_t i = home(h, id); h->slot[i] != MR_HOLDING_NONE; i = (i + 1) & (h->slots - 1)) {
        struct mr_holding *e = mr_holdings_at(h, h->slot[i]);
        if (e->id == id)
            return e;
    }
    return NULL;
}

static void enter(struct mr_holdings *h, uint32_t number)
{
    uint32_t i = home(h, mr_holdings_at(h, number)->id);
    while (h->slot[i] != MR_HOLDING_NONE)
        i = (i + 1) & (h->slots - 1);
    h->slot[i] = number;
}

static bool grow_table(struct mr_holdings *h)
{
    uint32_t slots = h->slots ? h->slots * 2 : 1024;
    uint32_t *grown = slots ? malloc(slots * sizeof(*grown)) : NULL, *old = h->slot, n = h->slots;
    if (!grown)
        return false;
    memset(grown, 0xff, slots * sizeof(*grown));
    h->slot = grown;
    h->slots = slots;
    for (uint32_t i = 0; i < n; i++)
        if (old[i] != MR_HOLDING_NONE)
            enter(h, old[i]);
    free(old);
    return true;
}

/* Takes the entry out and closes the gap, so that every other one is still found from its home. */
static void leave(struct mr_holdings *h, const struct mr_holding *e)
{
    uint32_t mask = h->slots - 1, gap = home(h, e->id);
    while (h->slot[gap] != e->self)
        gap = (gap + 1) & mask;
    for (uint32_t i = (gap + 1) & mask; h->slot[i] != MR_HOLDING_NONE; i = (i + 1) & mask) {
        uint32_t from = home(h, mr_holdings_at(h, h->slot[i])->id);
        if (((i - from) & mask) < ((i - gap) & mask))
            continue;
        h->slot[gap] = h->slot[i];
        gap = i;
    }
    h->slot[gap] = MR_HOLDING_NONE;
}

static bool more_entries(struct mr_holdings *h)
{
    struct mr_holding **grown = realloc(h->chunk, (h->chunks + 1) * sizeof(*grown));
    if (!grown)
        return false;
    h->chunk = grown;
    h->chunk[h->chunks] = malloc(CHUNK * sizeof(**h->chunk));
    if (!h->chunk[h->chunks])
        return false;
    h->chunks++;
    return true;
}

struct mr_holding *mr_holdings_add(struct mr_holdings *h, uint64_t id)
{
    if ((h->used + 1) * 2ull > h->slots && !grow_table(h))
        return NULL;
    uint32_t number = h->free;
    if (number != MR_HOLDING_NONE)
        h->free = mr_holdings_at(h, number)->behind;
    else if (h->n < h->chunks * CHUNK || more_entries(h))
        number = h->n++;
    else
        return NULL;
    struct mr_holding *e = mr_holdings_at(h, number);
    assert(!mr_holdings_find(h, id)); /* one entry per sample */
    *e = (struct mr_holding){
        .id = id, .self = number, .before = MR_HOLDING_NONE, .behind = MR_HOLDING_NONE, .storage_class = MR_CLASS_NONE};
    h->used++;
    enter(h, number);
    return e;
}

/* ---- spare ones, the longest unused first ---- */

static void spare_add(struct mr_holdings *h, struct mr_holding *e)
{
    count_out(h, e);
    e->spare = true;
    e->before = h->last_spare;
    e->behind = MR_HOLDING_NONE;
    if (h->last_spare != MR_HOLDING_NONE)
        mr_holdings_at(h, h->last_spare)->behind = e->self;
    else
        h->first_spare = e->self;
    h->last_spare = e->self;
    count_in(h, e);
}

static void spare_remove(struct mr_holdings *h, struct mr_holding *e)
{
    count_out(h, e);
    e->spare = false;
    if (e->before != MR_HOLDING_NONE)
        mr_holdings_at(h, e->before)->behind = e->behind;
    else
        h->first_spare = e->behind;
    if (e->behind != MR_HOLDING_NONE)
        mr_holdings_at(h, e->behind)->before = e->before;
    else
        h->last_spare = e->before;
    e->before = e->behind = MR_HOLDING_NONE;
    count_in(h, e);
}

/* ---- places ---- */

static void free_entry(struct mr_holdings *h, struct mr_holding *e)
{
    assert(!e->claims && e->state != MR_HOLDING_COMING && e->storage_class == MR_CLASS_NONE); /* H1, H3 */
    assert(!e->fetch && !e->spill);
    if (e->spare)
        spare_remove(h, e);
    if (e->state != MR_HOLDING_AWAY)
        mr_holdings_unplace(h, e);
    leave(h, e);
    e->behind = h->free;
    h->free = e->self;
    h->used--;
}

bool mr_holdings_place(struct mr_holdings *h, struct mr_holding *e, uint64_t bytes)
{
    assert(e->state == MR_HOLDING_AWAY);
    uint64_t at;
    while ((at = mr_space_take(h->space, MR_MAX(bytes, 1u))) == MR_SPACE_NONE) {
        if (h->first_spare == MR_HOLDING_NONE)
            return false;
        free_entry(h, mr_holdings_at(h, h->first_spare));
    }
    e->at = at;
    e->bytes = bytes;
    e->state = MR_HOLDING_COMING;
    count_in(h, e);
    return true;
}

void mr_holdings_unplace(struct mr_holdings *h, struct mr_holding *e)
{
    assert(e->state != MR_HOLDING_AWAY && !e->claims); /* H1 */
    count_out(h, e);
    mr_space_give(h->space, e->at);
    e->state = MR_HOLDING_AWAY;
}

/* The place is not made smaller where fewer bytes came; it counts as what it has. */
void mr_holdings_ready(struct mr_holdings *h, struct mr_holding *e, uint64_t bytes)
{
    assert(e->state == MR_HOLDING_COMING && bytes <= e->bytes);
    count_out(h, e);
    e->state = MR_HOLDING_READY;
    e->bytes = bytes;
    e->fetch = NULL;
    count_in(h, e);
}

void mr_holdings_set_class(struct mr_holdings *h, struct mr_holding *e, unsigned storage_class)
{
    if (e->storage_class == storage_class)
        return;
    if (e->spare)
        spare_remove(h, e);
    count_out(h, e);
    e->storage_class = (uint8_t)storage_class;
    count_in(h, e);
}

void mr_holdings_claim(struct mr_holdings *h, struct mr_holding *e)
{
    if (e->spare)
        spare_remove(h, e);
    e->lingers = false;
    e->claims++;
}

void mr_holdings_unclaim(struct mr_holdings *h, struct mr_holding *e)
{
    assert(e->claims);
    e->claims--;
    mr_holdings_settle(h, e);
}

void mr_holdings_settle(struct mr_holdings *h, struct mr_holding *e)
{
    if (e->claims || e->state == MR_HOLDING_COMING || e->storage_class == MR_CLASS_RAM || e->spare)
        return;
    if (e->storage_class == MR_CLASS_NONE) {
        if ((h->keep_spare || e->lingers) && e->state == MR_HOLDING_READY)
            spare_add(h, e);
        else
            free_entry(h, e);
    } else if (e->state == MR_HOLDING_READY) {
        mr_holdings_unplace(h, e); /* it is on its SSD */
    }
}

/* Calls for every entry that lives; the table changes under it only by entries that go. */
static void each(struct mr_holdings *h, void (*fn)(struct mr_holdings *h, struct mr_holding *e))
{
    bool *alive = calloc(h->n ? h->n : 1, sizeof(*alive));
    for (uint32_t i = 0; alive && i < h->slots; i++)
        if (h->slot[i] != MR_HOLDING_NONE)
            alive[h->slot[i]] = true;
    for (uint32_t i = 0; alive && i < h->n; i++)
        if (alive[i])
            fn(h, mr_holdings_at(h, i));
    free(alive);
}

static void forget_class(struct mr_holdings *h, struct mr_holding *e)
{
    mr_holdings_set_class(h, e, MR_CLASS_NONE);
    mr_holdings_settle(h, e);
}

void mr_holdings_forget_classes(struct mr_holdings *h)
{
    bool keep = h->keep_spare;
    h->keep_spare = true;
    each(h, forget_class);
    h->keep_spare = keep;
}

struct mr_holding *mr_holdings_any_idle(struct mr_holdings *h)
{
    for (uint32_t i = 0; i < h->slots; i++)
        if (h->slot[i] != MR_HOLDING_NONE) {
            struct mr_holding *e = mr_holdings_at(h, h->slot[i]);
            if (e->state == MR_HOLDING_READY && e->storage_class == MR_CLASS_RAM && !e->claims)
                return e;
        }
    return NULL;
}

bool mr_holdings_check(const struct mr_holdings *h)
{
    struct mr_holdings sum = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->slots; i++)
        if (h->slot[i] != MR_HOLDING_NONE) {
            const struct mr_holding *e = mr_holdings_at(h, h->slot[i]);
            if (mr_holdings_find(h, e->id) != e || (e->spare && (e->claims || e->storage_class != MR_CLASS_NONE)))
                return false;
            count_in(&sum, e);
            n++;
        }
    return n == h->used && memcmp(sum.bytes, h->bytes, sizeof sum.bytes) == 0 && sum.ram_ready == h->ram_ready &&
           memcmp(sum.samples, h->samples, sizeof sum.samples) == 0;
}
