/* What a node holds: see shelf.h. */
#include "policy/shelf.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FREE SIZE_MAX

static size_t most_slots(bool timed, uint64_t max_bytes)
{
    size_t slots = 64; /* half of the memory for the table, half for the heaps */
    while (slots < (size_t)1 << 40 && 2 * slots * (timed ? 24 : 16) <= max_bytes / 2)
        slots *= 2;
    return slots;
}

uint64_t mr_shelf_most(bool timed, uint64_t max_bytes)
{
    return most_slots(timed, max_bytes) * 4 / 5;
}

void mr_shelf_init(struct mr_shelf *s, const struct mr_policy_world *w, uint32_t node, bool timed, uint64_t max_bytes)
{
    *s = (struct mr_shelf){.w = w, .node = node, .timed = timed, .most = mr_shelf_most(timed, max_bytes)};
    for (unsigned j = 1; j < w->classes; j++)
        s->room[j] = mr_policy_capacity(w, node, j);
}

void mr_shelf_done(struct mr_shelf *s)
{
    free(s->key);
    free(s->next);
    free(s->until);
    mr_heap_done(&s->spare);
    mr_heap_done(&s->due);
    free(s->evicted.item);
    *s = (struct mr_shelf){0};
}

/* ---- the table ---- */

static size_t home_slot(const struct mr_shelf *s, uint64_t id)
{
    return (size_t)mr_mix64(id) & (s->slots - 1);
}

static size_t find(const struct mr_shelf *s, uint64_t id)
{
    if (!s->slots)
        return FREE;
    for (size_t i = home_slot(s, id); s->key[i]; i = (i + 1) & (s->slots - 1))
        if (s->key[i] == id + 1)
            return i;
    return FREE;
}

static size_t put_slot(struct mr_shelf *s, uint64_t id, uint64_t next, uint64_t until)
{
    size_t i = home_slot(s, id);
    while (s->key[i])
        i = (i + 1) & (s->slots - 1);
    s->key[i] = id + 1;
    s->next[i] = next;
    if (s->timed)
        s->until[i] = until;
    return i;
}

#define HUGE_PAGE ((size_t)2 << 20)

/* Large tables ask for large pages: a look-up touches one place of them, mostly where no translation is at hand. */
static uint64_t *alloc_table(size_t slots)
{
    size_t bytes = slots * sizeof(uint64_t);
    if (bytes < 2 * HUGE_PAGE)
        return calloc(slots, sizeof(uint64_t));
    uint64_t *t = aligned_alloc(HUGE_PAGE, bytes);
    if (t) {
        madvise(t, bytes, MADV_HUGEPAGE); /* only a wish */
        memset(t, 0, bytes);
    }
    return t;
}

static int grow(struct mr_shelf *s)
{
    struct mr_shelf old = *s;
    size_t slots = old.slots ? 2 * old.slots : 64;
    uint64_t *key = alloc_table(slots), *next = alloc_table(slots), *until = s->timed ? alloc_table(slots) : NULL;
    if (!key || !next || (s->timed && !until)) {
        free(key);
        free(next);
        free(until);
        return -ENOMEM;
    }
    s->key = key;
    s->next = next;
    s->until = until;
    s->slots = slots;
    for (size_t i = 0; i < old.slots; i++)
        if (old.key[i])
            put_slot(s, old.key[i] - 1, old.next[i], old.until ? old.until[i] : 0);
    free(old.key);
    free(old.next);
    free(old.until);
    return 0;
}

/* Closes the gap: what follows moves up unless it stands where it wants to be. */
static void remove_slot(struct mr_shelf *s, size_t gap)
{
    for (size_t i = (gap + 1) & (s->slots - 1); s->key[i]; i = (i + 1) & (s->slots - 1)) {
        size_t want = home_slot(s, s->key[i] - 1);
        if (((i - want) & (s->slots - 1)) < ((i - gap) & (s->slots - 1)))
            continue;
        s->key[gap] = s->key[i];
        s->next[gap] = s->next[i];
        if (s->timed)
            s->until[gap] = s->until[i];
        gap = i;
    }
    s->key[gap] = 0;
    s->used--;
}

/* ---- who is spare ---- */

static unsigned class_at(const struct mr_shelf *s, size_t i)
{
    return (unsigned)(s->next[i] & 7);
}

static uint64_t next_at(const struct mr_shelf *s, size_t i)
{
    return s->next[i] >> 3;
}

/* Without `until`, what has to stay for ever is never in the heap; its next use does not matter and says so. */
#define STAYS (MR_SHELF_FOREVER + 1)

#define GRACE ((uint64_t)1 << 63)

/* Until when it has to stay; 0: it is spare, perhaps in its time of grace. */
static uint64_t until_at(const struct mr_shelf *s, size_t i)
{
    if (!s->timed)
        return next_at(s, i) == STAYS ? MR_SHELF_FOREVER : 0;
    return s->until[i] & GRACE ? 0 : s->until[i];
}

/* What decides about giving up a spare copy: its next use, or the end of its grace. */
static uint64_t worth_at(const struct mr_shelf *s, size_t i)
{
    uint64_t grace = s->timed && (s->until[i] & GRACE) ? s->until[i] & ~GRACE : MR_SHELF_FOREVER;
    return MR_MIN(next_at(s, i), grace);
}

/* Throws stale entries away when they are most of the heap; what is left stays in heap order, rebuilt by pushing. */
static void tidy(struct mr_shelf *s)
{
    struct mr_heap old = s->spare;
    s->spare = (struct mr_heap){0};
    for (size_t i = 0; i < s->slots; i++)
        if (s->key[i] && until_at(s, i) == 0)
            (void)mr_heap_push(&s->spare, -(double)worth_at(s, i), s->key[i] - 1);
    mr_heap_done(&old);
}

static void enter_spare(struct mr_shelf *s, size_t i)
{
    (void)mr_heap_push(&s->spare, -(double)worth_at(s, i), s->key[i] - 1); /* without memory it just stays longer */
    if (s->spare.n > 2 * s->used + 256)
        tidy(s);
}

/* The spare copy with the farthest next use, or FREE. */
static size_t farthest(struct mr_shelf *s)
{
    while (s->spare.n) {
        struct mr_heap_item top = s->spare.item[0];
        size_t i = find(s, top.value);
        if (i != FREE && until_at(s, i) == 0 && worth_at(s, i) == (uint64_t)-top.key)
            return i;
        mr_heap_pop(&s->spare);
    }
    return FREE;
}

static void set_until(struct mr_shelf *s, size_t i, uint64_t until)
{
    if (!s->timed)
        return;
    s->until[i] = until;
    if (until && until < MR_SHELF_FOREVER && mr_heap_push(&s->due, (double)until, s->key[i] - 1))
        s->until[i] = MR_SHELF_FOREVER; /* no memory to remember it: stays */
}

/* ---- interface ---- */

void mr_shelf_begin(struct mr_shelf *s, uint64_t now)
{
    s->evicted.n = 0;
    while (s->due.n && s->due.item[0].key < (double)now) {
        struct mr_heap_item top = mr_heap_pop(&s->due);
        size_t i = find(s, top.value);
        if (i == FREE || (s->until[i] & ~GRACE) != (uint64_t)top.key)
            continue;
        uint64_t grace = (uint64_t)top.key + s->w->skew;
        bool begins = !(s->until[i] & GRACE) && grace >= now && mr_heap_push(&s->due, (double)grace, top.value) == 0;
        s->until[i] = begins ? grace | GRACE : 0;
        enter_spare(s, i);
    }
}

void mr_shelf_prefetch(const struct mr_shelf *s, uint64_t id)
{
    if (!s->slots)
        return;
    __builtin_prefetch(&s->key[home_slot(s, id)], 1);
    __builtin_prefetch(&s->next[home_slot(s, id)], 1);
}

unsigned mr_shelf_class(const struct mr_shelf *s, uint64_t id)
{
    size_t i = find(s, id);
    return i == FREE ? MR_NOT_HELD : class_at(s, i);
}

unsigned mr_shelf_room(const struct mr_shelf *s, uint64_t bytes)
{
    for (unsigned j = 1; j < s->w->classes && s->used < s->most; j++)
        if (s->room[j] >= bytes)
            return j;
    return MR_NOT_HELD;
}

void mr_shelf_touch(struct mr_shelf *s, uint64_t id, uint64_t next, uint64_t until)
{
    size_t i = find(s, id);
    assert(i != FREE && next <= MR_SHELF_FOREVER);
    uint64_t before = until_at(s, i);
    if (!s->timed && before)
        return; /* stays for ever */
    s->next[i] = next << 3 | class_at(s, i);
    if (until > before)
        set_until(s, i, until);
    if (until_at(s, i) == 0)
        enter_spare(s, i);
}

/* Gives up a spare copy whose next use lies behind `next`; false when there is none. */
static bool give_up(struct mr_shelf *s, uint64_t next, bool must)
{
    size_t i = farthest(s);
    if (i == FREE || (!must && worth_at(s, i) <= next) || MR_VEC_RESERVE(&s->evicted, s->evicted.n + 1))
        return false;
    uint64_t id = s->key[i] - 1;
    s->room[class_at(s, i)] += mr_policy_bytes(s->w, id);
    s->evicted.item[s->evicted.n++] = id;
    mr_heap_pop(&s->spare);
    remove_slot(s, i);
    return true;
}

unsigned mr_shelf_keep(struct mr_shelf *s, uint64_t id, uint64_t next, uint64_t until)
{
    uint64_t bytes = mr_policy_bytes(s->w, id);
    unsigned class;
    assert(find(s, id) == FREE && next <= MR_SHELF_FOREVER);
    while ((class = mr_shelf_room(s, bytes)) == MR_NOT_HELD)
        if (!give_up(s, next, until != 0)) {
            s->refused += until != 0;
            return MR_NOT_HELD;
        }
    if (s->used + 1 > s->slots * 4 / 5 && grow(s))
        return MR_NOT_HELD;
    assert(s->room[class] >= bytes); /* H1 */
    s->room[class] -= bytes;
    s->used++;
    size_t i = put_slot(s, id, (!s->timed && until ? STAYS : next) << 3 | class, 0);
    set_until(s, i, until);
    if (until_at(s, i) == 0)
        enter_spare(s, i);
    return class;
}

void mr_shelf_forget(struct mr_shelf *s, uint64_t id)
{
    size_t i = find(s, id);
    if (i == FREE)
        return;
    s->room[class_at(s, i)] += mr_policy_bytes(s->w, id);
    remove_slot(s, i);
}
