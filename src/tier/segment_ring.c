/* Deliveries: rings between the leader and each rank of its node, without locks. segment.h has the contract and the
 * invariants, segment_internal.h what lies where.
 *
 * Waking (S5). A rank's threads wait for `progress` of their rank, each with the bit n % 32, after they have entered n
 * in `waiting`. The leader sets deliveries, raises `progress` and then reads `waiting`: it wakes only the bits of those
 * that have come. Either the leader sees the entry, or the thread sees the new `progress` and with it the delivery.
 * The leader waits for `kick`; it remembers which value it has seen, so that what is told while it works is not lost.
 *
 * A rank with k deliveries ahead tells about every k/16th DONE only (at most every 64th): the leader is not woken for
 * each sample of a rank that has plenty, and for every one of a rank that has next to nothing. A thread that begins to
 * wait always tells. */
#include "base/clock.h"
#include "base/common.h"
#include "base/futex.h"
#include "tier/segment_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define STATE_BITS 3
#define STATE(word) ((enum mr_delivery_state)((word)&7u))
#define WORD(n, state) ((uint64_t)(n) << STATE_BITS | (uint64_t)(state))
#define BIT(n) (1u << ((n) % 32))
#define EVERY_MAX 64u
#define UNLIKE_NS (2 * MR_NS_PER_S)

/* ---- the leader ---- */

/* Keeps the text if there is room; returns its index + 1. */
static uint16_t keep_error(struct mr_segment_rank *r, uint64_t n, const struct mr_error *err)
{
    for (unsigned k = 0; err && k < MR_SEGMENT_ERRORS; k++)
        if (!r->error[k].used) {
            r->error[k].used = n + 1;
            r->error[k].text = *err;
            return (uint16_t)(k + 1);
        }
    return 0;
}

static void set(struct mr_segment *s, uint32_t rank, uint64_t n, const struct mr_delivery *d,
                enum mr_delivery_state state, const struct mr_error *err)
{
    struct mr_segment_slot *slot = mr_segment_slot(s, rank, n);
    slot->id = d->id;
    slot->at = d->at;
    slot->bytes = d->bytes;
    slot->began_ns = d->began_ns;
    slot->came_ns = d->came_ns;
    slot->code = d->code;
    slot->from = (uint16_t)d->from;
    slot->error = state == MR_DELIVERY_FAILED ? keep_error(&s->rank[rank], n, err) : 0;
    atomic_store_explicit(&slot->word, WORD(n, state), memory_order_release);
}

void mr_segment_plan(struct mr_segment *s, uint32_t rank, uint64_t n, const struct mr_delivery *d,
                     enum mr_delivery_state state)
{
    assert(n >= s->reclaimed[rank] && n - s->reclaimed[rank] < s->depth); /* S1: the place is the leader's */
    set(s, rank, n, d, state, NULL);
    atomic_store_explicit(&s->rank[rank].planned, n + 1, memory_order_release);
}

void mr_segment_deliver(struct mr_segment *s, uint32_t rank, uint64_t n, const struct mr_delivery *d,
                        const struct mr_error *err)
{
    bool failed = d->code != 0;
    assert(atomic_load(&mr_segment_slot(s, rank, n)->word) == WORD(n, MR_DELIVERY_PLANNED)); /* S1 */
    set(s, rank, n, d, failed ? MR_DELIVERY_FAILED : MR_DELIVERY_READY, failed ? err : NULL);
}

bool mr_segment_has_come(const struct mr_segment *s, uint32_t rank, uint64_t n)
{
    uint64_t word = atomic_load_explicit(&mr_segment_slot(s, rank, n)->word, memory_order_acquire);
    return word == WORD(n, MR_DELIVERY_READY) || word == WORD(n, MR_DELIVERY_FAILED);
}

void mr_segment_wake(struct mr_segment *s, uint32_t rank)
{
    struct mr_segment_rank *r = &s->rank[rank];
    atomic_fetch_add(&r->progress, 1);
    if (atomic_load(&r->waiters) == 0)
        return;
    uint32_t bits = atomic_load(&r->unlisted) ? ~0u : 0;
    for (unsigned k = 0; k < MR_SEGMENT_WAITING; k++) {
        uint64_t n = atomic_load(&r->waiting[k]);
        if (n && mr_segment_has_come(s, rank, n - 1))
            bits |= BIT(n - 1);
    }
    if (bits)
        mr_futex_wake(&r->progress, bits);
}

void mr_segment_wake_all(struct mr_segment *s, uint32_t rank)
{
    atomic_fetch_add(&s->rank[rank].progress, 1);
    if (atomic_load(&s->rank[rank].waiters) > 0)
        mr_futex_wake(&s->rank[rank].progress, ~0u);
}

static void give_back(struct mr_segment *s, uint32_t rank, struct mr_segment_slot *slot, struct mr_delivery *d)
{
    if (d)
        *d = (struct mr_delivery){slot->id,      slot->at,   slot->bytes, slot->began_ns,
                                  slot->came_ns, slot->code, slot->from};
    if (slot->error)
        s->rank[rank].error[slot->error - 1].used = 0;
    slot->error = 0;
    s->reclaimed[rank]++;
}

bool mr_segment_reclaim(struct mr_segment *s, uint32_t rank, struct mr_delivery *d)
{
    uint64_t n = s->reclaimed[rank];
    struct mr_segment_slot *slot = mr_segment_slot(s, rank, n);
    bool left = atomic_load_explicit(&s->rank[rank].state, memory_order_acquire) == MR_RANK_LEFT;
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    bool used = word == WORD(n, MR_DELIVERY_DONE) ||
                (left && (word == WORD(n, MR_DELIVERY_READY) || word == WORD(n, MR_DELIVERY_FAILED)));
    if (used)
        give_back(s, rank, slot, d);
    return used;
}

bool mr_segment_take_back(struct mr_segment *s, uint32_t rank, struct mr_delivery *d, enum mr_delivery_state *was)
{
    uint64_t n = s->reclaimed[rank];
    if (n >= atomic_load_explicit(&s->rank[rank].planned, memory_order_relaxed))
        return false;
    struct mr_segment_slot *slot = mr_segment_slot(s, rank, n);
    enum mr_delivery_state state = STATE(atomic_load_explicit(&slot->word, memory_order_acquire));
    atomic_store_explicit(&slot->word, WORD(n, MR_DELIVERY_DONE), memory_order_relaxed);
    give_back(s, rank, slot, d);
    if (was)
        *was = state;
    return true;
}

uint64_t mr_segment_reclaimed(const struct mr_segment *s, uint32_t rank)
{
    return s->reclaimed[rank];
}

void mr_segment_kick(struct mr_segment *s)
{
    atomic_fetch_add(&s->head->kick, 1);
    if (atomic_load(&s->head->leader_waits) > 0)
        mr_futex_wake(&s->head->kick, ~0u);
}

/* S3 for the leader, however busy the ranks that live keep it. */
static void look_now_and_then(struct mr_segment *s, uint64_t now)
{
    if (now - s->looked_ns < MR_SEGMENT_LOOK_NS)
        return;
    s->looked_ns = now;
    mr_segment_look(s); /* kicks if one has ended */
}

void mr_segment_wait_ranks(struct mr_segment *s, uint64_t timeout_ns)
{
    struct mr_segment_head *h = s->head;
    uint64_t now = mr_now_ns(), end = now + timeout_ns;
    look_now_and_then(s, now);
    atomic_fetch_add(&h->leader_waits, 1);
    uint32_t kick;
    while ((kick = atomic_load(&h->kick)) == s->kick_seen && now < end) {
        mr_futex_wait(&h->kick, kick, MR_MIN(end - now, MR_SEGMENT_LOOK_NS), ~0u);
        now = mr_now_ns();
        look_now_and_then(s, now);
    }
    atomic_fetch_sub(&h->leader_waits, 1);
    s->kick_seen = kick;
}

uint64_t mr_segment_wanted(const struct mr_segment *s, uint32_t rank)
{
    uint64_t least = UINT64_MAX;
    for (unsigned k = 0; k < MR_SEGMENT_WAITING; k++) {
        uint64_t n = atomic_load_explicit(&s->rank[rank].waiting[k], memory_order_relaxed);
        if (n && n - 1 < least)
            least = n - 1;
    }
    return least;
}

void mr_segment_list(struct mr_segment *s, uint64_t at, uint64_t samples)
{
    bool any = at != MR_SEGMENT_NO_DIRECTORY;
    atomic_store_explicit(&s->head->directory_at, any ? at : 0, memory_order_relaxed);
    atomic_store(&s->head->directory_samples, any ? samples : 0);
    for (uint32_t r = 0; any && r < s->ranks; r++)
        mr_segment_wake_all(s, r);
}

struct place {
    uint32_t rank;
    uint64_t epoch, position;
};

static void fail_seek(struct mr_segment *s, const struct place *a, const struct place *b)
{
    struct mr_error why;
    mr_error_plain(&why, MR_E_USAGE,
                   "ranks %u and %u of a node begin at different places: epoch %llu, position %llu and epoch %llu, "
                   "position %llu",
                   a->rank + s->head->first_rank, b->rank + s->head->first_rank, (unsigned long long)a->epoch,
                   (unsigned long long)a->position, (unsigned long long)b->epoch, (unsigned long long)b->position);
    mr_error_hint(&why, "all ranks must start the same epoch, and restore states of the same checkpoint");
    mr_segment_fail(s, &why);
}

/* What the rank asks for, if that is newer than what it was answered. */
static bool asks_for(struct mr_segment *s, uint32_t rank, struct place *p)
{
    struct mr_segment_rank *r = &s->rank[rank];
    uint64_t asks = atomic_load(&r->asks);
    *p = (struct place){rank, atomic_load(&r->seek_epoch), atomic_load(&r->seek_position)};
    s->asks[rank] = asks;
    return asks % 2 == 0 && asks > atomic_load_explicit(&r->answered, memory_order_relaxed) &&
           asks == atomic_load(&r->asks);
}

/* Ranks that ask for different places may be about to change their minds alike (a seek that was stopped, and another
 * one); if they do not, they never will. */
static void ranks_differ(struct mr_segment *s, const struct place *a, const struct place *b)
{
    uint64_t now = mr_now_ns();
    if (!s->unlike_since)
        s->unlike_since = now;
    else if (now - s->unlike_since > UNLIKE_NS)
        fail_seek(s, a, b);
}

bool mr_segment_seek_asked(struct mr_segment *s, uint64_t *epoch, uint64_t *position, bool *gone)
{
    struct place first = {0}, p;
    unsigned asking = 0, living = 0;
    bool alike = true;
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (atomic_load_explicit(&s->rank[r].state, memory_order_acquire) == MR_RANK_LEFT)
            continue;
        living++;
        if (!asks_for(s, r, &p))
            continue;
        if (asking++ == 0)
            first = p;
        else if (p.epoch != first.epoch || p.position != first.position) {
            ranks_differ(s, &first, &p);
            alike = false;
        }
    }
    *gone = mr_segment_failed(s, NULL) != 0;
    if (alike)
        s->unlike_since = 0;
    if (*gone || !alike || asking == 0 || asking < living)
        return false;
    *epoch = first.epoch;
    *position = first.position;
    return true;
}

void mr_segment_seek_done(struct mr_segment *s)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        for (uint64_t k = 0; k < s->depth; k++)
            atomic_store_explicit(&mr_segment_slot(s, r, k)->word, 0, memory_order_relaxed);
        for (unsigned k = 0; k < MR_SEGMENT_ERRORS; k++)
            s->rank[r].error[k].used = 0;
        atomic_store_explicit(&s->rank[r].planned, 0, memory_order_relaxed);
        s->reclaimed[r] = 0;
    }
    for (uint32_t r = 0; r < s->ranks; r++)
        atomic_store(&s->rank[r].answered, s->asks[r]);
    for (uint32_t r = 0; r < s->ranks; r++)
        mr_segment_wake_all(s, r);
}

/* ---- a rank ---- */

/* Lists the thread as waiting for n (UINT64_MAX: for a seek, unlisted) until wait_ends. */
static int wait_begins(struct mr_segment *s, uint32_t rank, uint64_t n)
{
    struct mr_segment_rank *r = &s->rank[rank];
    int listed = -1;
    for (unsigned k = 0; n != UINT64_MAX && listed < 0 && k < MR_SEGMENT_WAITING; k++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&r->waiting[k], &none, n + 1))
            listed = (int)k;
    }
    if (listed < 0)
        atomic_fetch_add(&r->unlisted, 1);
    atomic_fetch_add(&r->waiters, 1);
    return listed;
}

static void wait_ends(struct mr_segment *s, uint32_t rank, int listed)
{
    struct mr_segment_rank *r = &s->rank[rank];
    atomic_fetch_sub(&r->waiters, 1);
    if (listed < 0)
        atomic_fetch_sub(&r->unlisted, 1);
    else
        atomic_store(&r->waiting[listed], 0);
}

static int interrupted(struct mr_error *err)
{
    return mr_error_plain(err, MR_E_INTERRUPTED, "reading was stopped");
}

static bool is_answered(struct mr_segment *s, uint32_t rank, uint64_t asks)
{
    return atomic_load(&s->rank[rank].answered) >= asks;
}

/* Waits for delivery n, or for the answer to seek n. 0, or why it ended without. */
static int wait_for(struct mr_segment *s, uint32_t rank, uint64_t n, bool is_seek, bool (*over)(void *), void *user,
                    struct mr_error *err)
{
    struct mr_segment_rank *r = &s->rank[rank];
    int rc = 0, listed = wait_begins(s, rank, is_seek ? UINT64_MAX : n);
    uint64_t looked = mr_now_ns();
    mr_segment_kick(s);
    for (;;) {
        uint32_t seen = atomic_load(&r->progress);
        uint64_t now = mr_now_ns();
        bool look = now - looked >= MR_SEGMENT_LOOK_NS;
        if (is_seek ? is_answered(s, rank, n) : mr_segment_has_come(s, rank, n))
            break;
        looked = look ? now : looked;
        if ((rc = mr_segment_ended(s, look, err)) != 0)
            break;
        if (over && over(user)) {
            rc = interrupted(err);
            break;
        }
        if (!is_seek && atomic_load(&s->head->directory_samples)) {
            rc = mr_error_plain(err, -EAGAIN, "it is in the directory");
            break;
        }
        mr_futex_wait(&r->progress, seen, MR_SEGMENT_LOOK_NS, is_seek ? ~0u : BIT(n));
    }
    wait_ends(s, rank, listed);
    return rc;
}

int mr_segment_seek(struct mr_segment *s, uint32_t rank, uint64_t epoch, uint64_t position, bool (*over)(void *user),
                    void *user, struct mr_error *err)
{
    struct mr_segment_rank *r = &s->rank[rank];
    uint64_t asks = atomic_load(&r->asks) + 2;
    atomic_store(&r->asks, asks - 1);
    atomic_store(&r->seek_epoch, epoch);
    atomic_store(&r->seek_position, position);
    atomic_store(&r->asks, asks);
    return wait_for(s, rank, asks, true, over, user, err);
}

static int failure(struct mr_segment *s, uint32_t rank, const struct mr_segment_slot *slot, struct mr_error *err)
{
    int code = slot->code < 0 ? slot->code : MR_E_INTERNAL;
    if (err && slot->error > 0 && slot->error <= MR_SEGMENT_ERRORS) {
        *err = s->rank[rank].error[slot->error - 1].text;
        err->code = code;
        return code;
    }
    return mr_error_set(err, code, "sample %llu could not be read", (unsigned long long)slot->id);
}

const void *mr_segment_find(const struct mr_segment *s, uint64_t id, struct mr_delivery *d)
{
    const struct mr_segment_head *h = s->head;
    if (id >= atomic_load_explicit(&h->directory_samples, memory_order_acquire))
        return NULL;
    if (MR_UNLIKELY(atomic_load_explicit(&h->failed, memory_order_relaxed) == MR_FAILED_SET ||
                    atomic_load_explicit(&h->closing, memory_order_relaxed)))
        return NULL; /* who waits hears why */
    uint64_t at = atomic_load_explicit(&h->directory_at, memory_order_relaxed);
    const struct mr_segment_entry *e = (const struct mr_segment_entry *)(const void *)(s->data + at) + id;
    *d = (struct mr_delivery){.id = id, .at = e->at, .bytes = e->bytes, .from = MR_TIER_RAM};
    return s->data + e->at;
}

int mr_segment_check(struct mr_segment *s, struct mr_error *err)
{
    return mr_segment_ended(s, true, err);
}

const void *mr_segment_take(struct mr_segment *s, uint32_t rank, uint64_t n, struct mr_delivery *d,
                            bool (*over)(void *user), void *user, struct mr_error *err)
{
    const struct mr_segment_slot *slot = mr_segment_slot(s, rank, n);
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    if (MR_UNLIKELY(word != WORD(n, MR_DELIVERY_READY))) {
        if (wait_for(s, rank, n, false, over, user, err) != 0)
            return NULL;
        word = atomic_load_explicit(&slot->word, memory_order_acquire);
    }
    if (d)
        *d = (struct mr_delivery){slot->id,      slot->at,   slot->bytes, slot->began_ns,
                                  slot->came_ns, slot->code, slot->from};
    if (MR_UNLIKELY(word != WORD(n, MR_DELIVERY_READY))) {
        failure(s, rank, slot, err);
        return NULL;
    }
    if (MR_UNLIKELY(slot->at > s->head->data_bytes || slot->bytes > s->head->data_bytes - slot->at)) {
        mr_error_plain(err, MR_E_INTERNAL, "delivery %llu lies outside of the segment", (unsigned long long)n);
        return NULL;
    }
    return s->data + slot->at;
}

void mr_segment_interrupt(struct mr_segment *s, uint32_t rank)
{
    mr_segment_wake_all(s, rank);
}

void mr_segment_done(struct mr_segment *s, uint32_t rank, uint64_t n)
{
    uint64_t planned = atomic_load_explicit(&s->rank[rank].planned, memory_order_relaxed);
    uint64_t ahead = planned > n ? planned - n : 0, every = MR_MIN(ahead / 16, EVERY_MAX);
    atomic_store_explicit(&mr_segment_slot(s, rank, n)->word, WORD(n, MR_DELIVERY_DONE), memory_order_release);
    if (every < 2 || n % every == 0)
        mr_segment_kick(s);
}
