/* Planning: reclaims what ranks are done with, plans accesses as far as rings and staging allow, starts fills. All by
 * the planner thread. */
#include "tier/executor_internal.h"
#include "tier/peers.h"

#include <assert.h>
#include <string.h>

#define FILLS_MAX 16u /* under way at once */

enum step { PLANNED, BLOCKED };

/* ---- giving back ---- */

static void drop_claim(struct mr_executor *x, uint32_t slot)
{
    uint32_t number = x->slot_holding[slot];
    x->slot_holding[slot] = MR_HOLDING_NONE;
    if (number != MR_HOLDING_NONE)
        mr_holdings_unclaim(&x->h, mr_holdings_at(&x->h, number));
}

void mr_executor_reclaim(struct mr_executor *x)
{
    struct mr_delivery d;
    pthread_mutex_lock(&x->lock);
    for (uint32_t r = 0; r < x->ranks; r++)
        for (uint64_t n = mr_segment_reclaimed(x->segment, r); mr_segment_reclaim(x->segment, r, &d); n++)
            drop_claim(x, slot_of_delivery(x, r, n));
    pthread_mutex_unlock(&x->lock);
}

/* ---- the directory ---- */

/* Everything is in memory and stays: nothing is left to decide. */
static bool all_here(const struct mr_executor *x)
{
    return x->h.ram_ready == x->info.samples;
}

/* Nothing is left to decide and nothing to read: ranks find their samples by themselves (S6 of the segment). Where
 * there is no room for the list, deliveries go on. */
static void list_all(struct mr_executor *x)
{
    uint64_t n = x->info.samples;
    if (x->listed || !n || !all_here(x))
        return;
    x->listed = true;
    x->directory = mr_space_take(x->h.space, n * sizeof(struct mr_segment_entry));
    if (x->directory == MR_SPACE_NONE)
        return;
    struct mr_segment_entry *list = (struct mr_segment_entry *)(void *)mr_segment_data(x->segment, x->directory);
    for (uint32_t i = 0; i < x->h.slots; i++)
        if (x->h.slot[i] != MR_HOLDING_NONE) {
            const struct mr_holding *e = mr_holdings_at(&x->h, x->h.slot[i]);
            if (e->id < n)
                list[e->id] = (struct mr_segment_entry){e->at, e->bytes};
        }
    mr_segment_list(x->segment, x->directory, n);
}

static void unlist_all(struct mr_executor *x)
{
    if (x->listed && x->directory != MR_SPACE_NONE) {
        mr_segment_list(x->segment, MR_SEGMENT_NO_DIRECTORY, 0);
        mr_space_give(x->h.space, x->directory);
    }
    x->listed = false;
}

/* ---- a seek ---- */

/* Those that wait are forgotten; what is under way for them comes and is spare then. */
void mr_executor_empty_rings(struct mr_executor *x)
{
    unlist_all(x);
    x->h.keep_spare = true;
    for (uint32_t i = 0; i < x->h.slots; i++)
        if (x->h.slot[i] != MR_HOLDING_NONE) {
            struct mr_holding *e = mr_holdings_at(&x->h, x->h.slot[i]);
            if (e->storage_class >= 2 && e->storage_class != MR_CLASS_NONE)
                mr_executor_unhold(x, e->storage_class, e->id);
            if (e->fetch) {
                e->fetch->first_waiter = e->fetch->last_waiter = MR_HOLDING_NONE;
                e->fetch->tells = false;
                e->lingers = true;
            }
        }
    for (uint32_t r = 0; r < x->ranks; r++) {
        for (uint64_t n = mr_segment_reclaimed(x->segment, r); n < x->planned[r]; n++)
            drop_claim(x, slot_of_delivery(x, r, n));
        x->planned[r] = 0;
    }
    mr_holdings_forget_classes(&x->h);
    x->h.keep_spare = false;
    x->results.n = 0;
}

/* ---- one access ---- */

static void evict(struct mr_executor *x, const uint64_t *ids, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct mr_holding *e = mr_holdings_find(&x->h, ids[i]);
        if (!e)
            continue;
        unsigned c = e->storage_class;
        mr_holdings_set_class(&x->h, e, MR_CLASS_NONE);
        mr_holdings_claim(&x->h, e);
        mr_executor_cancel_spill(x, e);
        mr_holdings_unclaim(&x->h, e);
        if (c >= 2 && c != MR_CLASS_NONE)
            mr_executor_unhold(x, c, ids[i]);
    }
}

static void take_peers(struct mr_executor *x, const struct mr_plan_source *source, unsigned n, uint8_t *n_peers,
                       uint32_t *peer)
{
    *n_peers = 0;
    for (unsigned i = 0; x->peers && i < n && *n_peers < 2; i++)
        if (source[i].kind == MR_FROM_PEER && source[i].node != x->node)
            peer[(*n_peers)++] = source[i].node;
}

static void ask_policy(struct mr_executor *x, uint64_t access, uint64_t id)
{
    struct walk *k = &x->walk;
    assert(pthread_equal(pthread_self(), x->planner_self)); /* E5 */
    k->planned = true;
    k->keep = MR_NOT_HELD;
    k->n_peers = 0;
    k->only_from_pfs = k->tells = false;
    if (MR_LIKELY(all_here(x)))
        return;
    struct mr_plan plan;
    mr_policy_plan(&x->policy, access, id, &plan);
    evict(x, plan.evict, plan.n_evict);
    take_peers(x, plan.source, plan.n_sources, &k->n_peers, k->peer);
    k->keep = plan.keep;
    k->only_from_pfs = plan.keep_only_from_pfs;
    k->tells = true;
}

static void tell_policy(struct mr_executor *x, uint64_t access, uint64_t id, enum mr_source_kind from, bool kept)
{
    struct mr_outcome o = {.from = from, .kept = kept};
    mr_policy_result(&x->policy, access, id, &o);
}

/* E4. A copy of the RAM class is given up, and the policy told. */
static bool give_one_up(struct mr_executor *x)
{
    struct mr_holding *e = mr_holdings_any_idle(&x->h);
    if (!e)
        return false;
    assert(!e->claims && !e->fetch && e->storage_class == MR_CLASS_RAM); /* E4, H1 */
    struct mr_outcome o = {.failed = true};
    mr_policy_result(&x->policy, 0, e->id, &o);
    mr_holdings_set_class(&x->h, e, MR_CLASS_NONE);
    mr_holdings_settle(&x->h, e);
    return true;
}

static bool is_anything_out(const struct mr_executor *x)
{
    if (x->fetches || x->spills || x->pins)
        return true;
    for (uint32_t r = 0; r < x->ranks; r++)
        if (x->planned[r] > mr_segment_reclaimed(x->segment, r))
            return true;
    return false;
}

static bool make_place(struct mr_executor *x, struct mr_holding *e, uint64_t bytes)
{
    while (!mr_holdings_place(&x->h, e, bytes))
        if (is_anything_out(x) || !give_one_up(x))
            return false;
    return true;
}

static void deliver_now(struct mr_executor *x, uint32_t rank, uint64_t n, struct mr_holding *e)
{
    struct mr_delivery d = {.id = e->id, .at = e->at, .bytes = e->bytes, .from = MR_TIER_RAM};
    mr_segment_plan(x->segment, rank, n, &d, MR_DELIVERY_READY);
    count_up(&x->board->from[MR_TIER_RAM], e->bytes, 0);
}

/* Starts the fetch of an entry that has a place. */
static bool start_fetch(struct mr_executor *x, struct mr_holding *e, uint64_t access)
{
    struct mr_fetching *f = mr_fetching_new(x, e);
    const struct walk *k = &x->walk;
    if (!f)
        return false;
    f->access = access;
    f->job.key = mr_work_key(MR_URGENT_READ, access);
    f->tells = k->tells;
    f->only_from_pfs = k->only_from_pfs;
    f->n_peers = k->n_peers;
    memcpy(f->peer, k->peer, sizeof f->peer);
    f->ssd = mr_executor_find_ssd(x, e->id);
    if (f->ssd != EXECUTOR_NO_SSD && mr_executor_source_is_sooner(x, f->ssd))
        f->ssd = EXECUTOR_NO_SSD;
    return true;
}

/* The place at hand was planned and has no entry with a place: makes both. NULL: not now. */
static struct mr_holding *bring(struct mr_executor *x, struct mr_holding *e, uint64_t id, uint64_t access)
{
    if (!e)
        e = mr_holdings_add(&x->h, id);
    if (!e)
        return NULL;
    if (make_place(x, e, mr_executor_exact_bytes(x, id))) {
        if (start_fetch(x, e, access))
            return e;
        mr_holdings_unplace(&x->h, e);
    }
    mr_holdings_settle(&x->h, e);
    return NULL;
}

/* May something that has no place yet be staged? */
static bool may_stage(const struct mr_executor *x, uint64_t id)
{
    uint64_t staged = x->h.bytes[MR_HOLDING_STAGING];
    return !staged || staged + mr_executor_bytes_of((void *)(uintptr_t)x, id) <= x->staging;
}

static void keep(struct mr_executor *x, struct mr_holding *e, unsigned storage_class)
{
    if (storage_class == MR_NOT_HELD || e->storage_class == storage_class)
        return;
    mr_holdings_set_class(&x->h, e, storage_class);
    if (e->state == MR_HOLDING_READY && storage_class >= 2)
        mr_executor_spill(x, e);
}

static enum step plan_next(struct mr_executor *x, uint64_t id, uint64_t access)
{
    struct walk *k = &x->walk;
    uint32_t r = k->rank;
    uint64_t n = x->planned[r];
    struct mr_holding *e = mr_holdings_find(&x->h, id);
    if (n >= mr_segment_reclaimed(x->segment, r) + x->depth)
        return BLOCKED;
    bool there = e && e->state != MR_HOLDING_AWAY;
    if (!k->planned) {
        if (!there && !may_stage(x, id))
            return BLOCKED;
        ask_policy(x, access, id);
        e = mr_holdings_find(&x->h, id);
        there = e && e->state != MR_HOLDING_AWAY;
    }
    if (!there && !(e = bring(x, e, id, access)))
        return BLOCKED;
    uint32_t slot = slot_of_delivery(x, r, n);
    assert(access >= k->next_access);                              /* E1 */
    assert(e->state != MR_HOLDING_AWAY);                           /* E2 */
    assert(x->slot_holding[slot] == MR_HOLDING_NONE);              /* its last delivery was reclaimed */
    assert((e->state == MR_HOLDING_COMING) == (e->fetch != NULL)); /* E3, E6 */
    k->next_access = access + 1;
    mr_holdings_claim(&x->h, e);
    x->slot_holding[slot] = e->self;
    keep(x, e, k->keep);
    if (e->state == MR_HOLDING_READY) {
        deliver_now(x, r, n, e);
        if (k->tells)
            tell_policy(x, access, id, MR_FROM_CLASS, e->storage_class != MR_CLASS_NONE);
    } else {
        struct mr_delivery d = {.id = id};
        mr_segment_plan(x->segment, r, n, &d, MR_DELIVERY_PLANNED);
        mr_fetching_join(x, e->fetch, slot, access);
        if (!there)
            mr_fetching_go(x, e->fetch);
        else if (k->tells)
            tell_policy(x, access, id, MR_FROM_CLASS, e->storage_class != MR_CLASS_NONE);
    }
    x->planned[r]++;
    mr_executor_advance(x);
    return PLANNED;
}

static void tell_results(struct mr_executor *x)
{
    assert(pthread_equal(pthread_self(), x->planner_self)); /* E5 */
    for (size_t i = 0; i < x->results.n; i++) {
        struct planned_result *r = &x->results.item[i];
        mr_policy_result(&x->policy, r->access, r->id, &r->outcome);
    }
    x->results.n = 0;
}

bool mr_executor_plan(struct mr_executor *x)
{
    uint64_t wake = 0, id, access;
    bool any = false;
    pthread_mutex_lock(&x->lock);
    tell_results(x);
    x->waits_for_room = false;
    unsigned most = x->listed && x->directory != MR_SPACE_NONE ? 0 : EXECUTOR_RUN;
    for (unsigned i = 0; i < most && mr_executor_at(x, &id, &access); i++) {
        uint32_t r = x->walk.rank;
        if (plan_next(x, id, access) == BLOCKED) {
            x->waits_for_room = true;
            break;
        }
        wake |= (uint64_t)1 << (r % 64);
        any = true;
    }
    list_all(x);
    board_set(x->board->ram_bytes, x->h.bytes[MR_HOLDING_RAM]);
    pthread_mutex_unlock(&x->lock);
    for (uint32_t r = 0; r < x->ranks; r++)
        if (wake >> (r % 64) & 1)
            mr_segment_wake(x->segment, r);
    return any;
}

/* ---- fills ---- */

/* Brings one sample into a class ahead of its use; false: there was no place, and the policy knows. */
static bool start_fill(struct mr_executor *x, const struct mr_fill *fill)
{
    struct mr_holding *e = mr_holdings_find(&x->h, fill->id);
    struct mr_outcome o = {.from = MR_FROM_PFS, .kept = true};
    if (e && e->state != MR_HOLDING_AWAY) {
        keep(x, e, fill->storage_class);
        mr_policy_result(&x->policy, fill->deadline, fill->id, &o);
        return true;
    }
    if (!e)
        e = mr_holdings_add(&x->h, fill->id);
    struct mr_fetching *f = NULL;
    if (e && mr_holdings_place(&x->h, e, mr_executor_exact_bytes(x, fill->id)) && !(f = mr_fetching_new(x, e)))
        mr_holdings_unplace(&x->h, e);
    if (!f) {
        if (e)
            mr_holdings_settle(&x->h, e);
        o = (struct mr_outcome){.failed = true};
        mr_policy_result(&x->policy, fill->deadline, fill->id, &o);
        return false;
    }
    mr_holdings_set_class(&x->h, e, fill->storage_class);
    f->access = fill->deadline;
    f->job.key = mr_work_key(MR_URGENT_FILL, fill->deadline);
    f->fill = f->tells = true;
    f->ssd = mr_executor_find_ssd(x, e->id);
    take_peers(x, fill->source, fill->n_sources, &f->n_peers, f->peer);
    x->fills++;
    mr_fetching_go(x, f);
    return true;
}

bool mr_executor_fill(struct mr_executor *x)
{
    struct mr_fill fill;
    uint64_t id, access;
    bool any = false;
    if (x->fills_end || x->alone || !x->policy.ops->next_fill)
        return false;
    pthread_mutex_lock(&x->lock);
    bool more = mr_executor_at(x, &id, &access);
    uint64_t horizon = more ? access + MR_MAX(x->world.skew * 4, mr_schedule_stride(x->schedule) / 4) : MR_NO_ACCESS;
    /* Who plans by itself what to keep fills what others read: not while they need the source sooner. */
    if (x->peers && x->policy.ops->holds_by_plan)
        horizon = MR_MIN(horizon, mr_peers_need(x->peers));
    for (unsigned c = 1; c < x->classes; c++)
        while (x->fills < FILLS_MAX && mr_policy_next_fill(&x->policy, c, horizon, &fill)) {
            evict(x, fill.evict, fill.n_evict);
            if (!start_fill(x, &fill))
                break;
            any = true;
        }
    x->fills_end = !any && !more && !x->fills;
    pthread_mutex_unlock(&x->lock);
    return any;
}

/* ---- for peers ---- */

bool mr_executor_load_for_peer(struct mr_executor *x, struct mr_holding *e, uint64_t id, uint8_t ssd)
{
    uint64_t bytes = mr_ssd_find(x->ssd[ssd].ssd, id);
    if (!bytes || x->h.bytes[MR_HOLDING_STAGING] + bytes > x->staging)
        return false;
    if (!e)
        e = mr_holdings_add(&x->h, id);
    struct mr_fetching *f = NULL;
    if (e && mr_holdings_place(&x->h, e, bytes) && !(f = mr_fetching_new(x, e)))
        mr_holdings_unplace(&x->h, e);
    if (!f) {
        if (e)
            mr_holdings_settle(&x->h, e);
        return false;
    }
    e->lingers = true;
    f->ssd = ssd;
    f->job.key = mr_work_key(MR_URGENT_READ, 0); /* somebody else's look-ahead: about now */
    mr_fetching_go(x, f);
    return true;
}

/* A node's first read of it from `from` to `to`; MR_NO_ACCESS: there is none. */
static uint64_t coming_read(struct mr_executor *x, uint32_t node, uint64_t id, uint64_t from, uint64_t to)
{
    struct mr_schedule *s = x->schedule;
    uint64_t last = MR_MIN(mr_schedule_epoch_of(s, to), mr_schedule_last_epoch(s)), when;
    for (uint64_t e = mr_schedule_epoch_of(s, from); e <= last; e++)
        if (!mr_schedule_find(s, e, &id, &when, 1, NULL) && when != MR_NO_ACCESS && when >= from && when <= to &&
            mr_schedule_node_of(s, when) == node)
            return when;
    return MR_NO_ACCESS;
}

/* For what the peer asks: its next read of it, by where this node is. Others are at most `skew` behind. */
static uint64_t asked_for(struct mr_executor *x, uint32_t peer, uint64_t id, uint64_t access)
{
    struct mr_schedule *s = x->schedule;
    uint64_t begin = mr_schedule_access(s, mr_schedule_first_epoch(s), 0, 0), skew = x->world.skew;
    return coming_read(x, peer, id, MR_MAX(access, begin + skew) - skew, access + skew);
}

bool mr_executor_will_hold(struct mr_executor *x, uint64_t id, uint32_t peer)
{
    uint64_t next, access;
    if (!x->policy.ops || !mr_executor_at(x, &next, &access))
        return false;
    uint64_t far = access + x->world.skew, read = coming_read(x, x->node, id, access, far);
    if (read != MR_NO_ACCESS && mr_policy_holds(&x->policy, x->node, id, read + 1))
        return !x->policy.ops->holds_by_plan || read < asked_for(x, peer, id, access);
    return !x->policy.ops->holds_by_plan && mr_policy_holds(&x->policy, x->node, id, far);
}

bool mr_executor_comes_first(struct mr_executor *x, const struct mr_fetching *f, uint32_t peer)
{
    struct mr_schedule *s = x->schedule;
    uint64_t next, access;
    if (!x->policy.ops || !x->policy.ops->holds_by_plan || !f)
        return true;
    if (!mr_executor_at(x, &next, &access)) /* all is planned */
        access = mr_schedule_access(s, mr_schedule_last_epoch(s) + 1, 0, 0);
    return f->access < asked_for(x, peer, f->e->id, access);
}

uint64_t mr_executor_need(struct mr_executor *x)
{
    uint64_t least = MR_NO_ACCESS;
    for (uint32_t r = 0; r < x->ranks; r++)
        for (uint64_t n = mr_segment_reclaimed(x->segment, r); n < x->planned[r]; n++) {
            uint32_t number = x->slot_holding[slot_of_delivery(x, r, n)];
            const struct mr_holding *e = number == MR_HOLDING_NONE ? NULL : mr_holdings_at(&x->h, number);
            if (!e || !e->fetch || e->fetch->n_peers || e->fetch->ssd != EXECUTOR_NO_SSD)
                continue;
            least = MR_MIN(least, e->fetch->access);
            break; /* they are in the order of their accesses */
        }
    return least;
}
