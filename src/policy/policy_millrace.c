/* Our policy. Every access of every node is known, so
 *
 *   1. a sample is read from the PFS only when no node holds it: its first user fetches it and keeps it;
 *   2. everybody else takes it from a peer;
 *   3. when a node's storage is full, it keeps what it will use soonest (Belady) and does not admit a sample whose next
 *      use lies behind that of everything it could evict (bypass);
 *   4. the last copy in the job is evicted only when there is nothing else to evict anywhere: missing another copy
 *      costs a peer read, missing the last one a read from the PFS. It stays with its reader; if that node has nothing
 *      to evict, it goes to the node that will use it next, which would have fetched it from a peer later anyway, or
 *      else to any that has room. A node that will use a sample more often than its only holder takes it over when it
 *      reads it;
 *   5. so when the job cannot hold the set, the first samples stay. Evicting last copies by next use would read a few
 *      per cent less from the PFS, but all of it towards the end of an epoch, which staging buffers do not even out:
 *      runs take longer.
 *
 * Invariants
 *  I1. next[node][id] is the node's next access number of id that has not been staged yet, or NEVER; anywhere[id] the
 *      same over all nodes.
 *  I2. Every held sample that others hold too, or that nobody will use, is in its node's heap `spare` at least once
 *      with its current key. Stale entries are skipped when popped. */
#include "policy/policy_internal.h"
#include "base/common.h"
#include "base/heap.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT32_MAX

struct millrace {
    uint32_t
        *next_of_access; /* [node][epochs * epoch_len]: access number of the node's following use of the same sample */
    uint32_t *anywhere_of_access; /* the same of any node's following use */
    uint32_t *next;               /* [node * samples + id], I1 */
    uint32_t *anywhere;           /* [id], I1 */
    uint16_t *uses;               /* [node * samples + id]: how often the node will still use it */
    struct mr_heap *spare;        /* per node, I2: ids by next use there, the farthest on top */
    double *room_mb;              /* per node and class, what is left: [node * MR_CLASS_MAX + class] */
    uint64_t run_len;             /* accesses of a node over all epochs */
    bool scarce;                  /* without it nothing is ever evicted and the heaps stay empty */
};

static bool is_held(const struct mr_policy *p, uint32_t node, uint32_t id)
{
    return p->world.dir->held[(uint64_t)node * p->world.samples + id] < MR_INCOMING;
}

static bool is_spare(const struct mr_policy *p, uint32_t id)
{
    const struct millrace *s = p->state;
    return p->world.dir->holders[id] > 1 || s->anywhere[id] == NEVER;
}

/* The next use that an entry was made for: keys are negative, so that the largest comes first. */
static uint32_t next_of(const struct mr_heap_item *entry)
{
    return (uint32_t)-entry->key;
}

/* The spare sample with the farthest next use here, or NULL. Drops stale entries on the way (I2). */
static const struct mr_heap_item *farthest_spare(struct mr_policy *p, uint32_t node)
{
    struct millrace *s = p->state;
    struct mr_heap *h = &s->spare[node];
    uint64_t base = (uint64_t)node * p->world.samples;
    while (h->n) {
        const struct mr_heap_item *top = &h->item[0];
        uint32_t id = (uint32_t)top->value;
        if (is_held(p, node, id) && s->next[base + id] == next_of(top) && is_spare(p, id))
            return top;
        mr_heap_pop(h);
    }
    return NULL;
}

/* Enters a held sample into the heap, if it is spare now (I2). */
static void enter(struct mr_policy *p, uint32_t node, uint32_t id)
{
    struct millrace *s = p->state;
    if (is_spare(p, id))
        (void)mr_heap_push(&s->spare[node], -(double)s->next[(uint64_t)node * p->world.samples + id], id);
}

/* The same where it is held beside `node`, when it has become spare. */
static void enter_elsewhere(struct mr_policy *p, uint32_t node, uint32_t id)
{
    uint32_t holder = mr_directory_peer(p->world.dir, node, id);
    if (holder != MR_NO_SAMPLE)
        enter(p, holder, id);
}

static int class_with_room(struct mr_policy *p, uint32_t node, double mb)
{
    const struct millrace *s = p->state;
    for (unsigned j = 1; j < p->world.system->n_classes; j++)
        if (s->room_mb[node * MR_CLASS_MAX + j] >= mb)
            return (int)j;
    return -1;
}

static void put(struct mr_policy *p, uint32_t node, uint32_t id, unsigned class)
{
    struct millrace *s = p->state;
    assert(s->room_mb[node * MR_CLASS_MAX + class] >= p->world.size_mb[id]);
    bool was_last = p->world.dir->holders[id] == 1;
    s->room_mb[node * MR_CLASS_MAX + class] -= p->world.size_mb[id];
    mr_directory_put(p->world.dir, node, id, class);
    if (!s->scarce)
        return;
    enter(p, node, id);
    if (was_last)
        enter_elsewhere(p, node, id);
}

static void drop(struct mr_policy *p, uint32_t node, uint32_t id)
{
    struct millrace *s = p->state;
    assert(is_held(p, node, id)); /* I2: what is spare is held */
    unsigned class = p->world.dir->held[(uint64_t)node * p->world.samples + id];
    s->room_mb[node * MR_CLASS_MAX + class] += p->world.size_mb[id];
    mr_directory_drop(p->world.dir, node, id);
}

/* Makes room by giving up spare samples whose next use lies behind `next`; false when those do not suffice. */
static bool give_up_spare(struct mr_policy *p, uint32_t node, double mb, uint64_t next)
{
    while (class_with_room(p, node, mb) < 0) {
        const struct mr_heap_item *top = farthest_spare(p, node);
        if (!top || next_of(top) <= next)
            return false;
        drop(p, node, (uint32_t)top->value);
    }
    return true;
}

/* The node that uses the sample next, counted in access numbers, which advance alike on all nodes. */
static uint32_t next_user(const struct mr_policy *p, uint32_t id)
{
    const struct millrace *s = p->state;
    uint32_t best = MR_NO_SAMPLE, when = NEVER;
    for (uint32_t i = 0; i < p->world.nodes; i++) {
        uint32_t at = s->next[(uint64_t)i * p->world.samples + id];
        if (at < when) {
            when = at;
            best = i;
        }
    }
    return best;
}

/* Stores a sample that must not be lost on `to`, for any spare samples; false when those do not suffice. */
static bool store_last(struct mr_policy *p, uint32_t from, uint32_t to, uint32_t id)
{
    double mb = p->world.size_mb[id];
    for (const struct mr_heap_item *top; class_with_room(p, to, mb) < 0; drop(p, to, (uint32_t)top->value))
        if (!(top = farthest_spare(p, to)))
            return false;
    put(p, to, id, (unsigned)class_with_room(p, to, mb));
    if (from != to)
        p->world.moved(p->world.user, from, to, id);
    return true;
}

static uint16_t uses_left(const struct mr_policy *p, uint32_t node, uint32_t id)
{
    const struct millrace *s = p->state;
    return s->uses[(uint64_t)node * p->world.samples + id];
}

/* Rule 4: a sample that nobody holds has been read by `node`. */
static void keep_last_copy(struct mr_policy *p, uint32_t node, uint32_t id)
{
    uint32_t user = next_user(p, id), nodes = p->world.nodes;
    if (user == MR_NO_SAMPLE)
        return;
    if (store_last(p, node, node, id) || store_last(p, node, user, id))
        return;
    for (uint32_t k = 1; k < nodes; k++)
        if (store_last(p, node, (user + k) % nodes, id))
            return;
}

/* A sample that others hold has been read by `node`. The only holder's copy moves here when this node will use it more
 * often: the read is made anyway, and the copy left behind is spare. */
static void keep_copy(struct mr_policy *p, uint32_t node, uint32_t id)
{
    const struct millrace *s = p->state;
    const struct mr_directory *d = p->world.dir;
    uint32_t next = s->next[(uint64_t)node * p->world.samples + id];
    if (next == NEVER)
        return;
    uint32_t holder = d->holders[id] == 1 ? mr_directory_peer(d, node, id) : MR_NO_SAMPLE;
    if (give_up_spare(p, node, p->world.size_mb[id], next))
        put(p, node, id, (unsigned)class_with_room(p, node, p->world.size_mb[id]));
    else if (holder != MR_NO_SAMPLE && uses_left(p, node, id) > uses_left(p, holder, id) + 1)
        (void)store_last(p, node, node, id);
}

static void keep(struct mr_policy *p, uint32_t node, uint32_t id, uint64_t k)
{
    struct millrace *s = p->state;
    uint64_t cell = (uint64_t)node * p->world.samples + id;
    double mb = p->world.size_mb[id];
    if (!s->scarce) {
        int class = is_held(p, node, id) ? -1 : class_with_room(p, node, mb);
        if (class > 0)
            put(p, node, id, (unsigned)class);
        return;
    }
    s->next[cell] = s->next_of_access[node * s->run_len + k];
    assert(s->uses[cell] > 0); /* I1: this use was foreseen */
    s->uses[cell]--;
    uint32_t anywhere = s->anywhere_of_access[node * s->run_len + k];
    if (s->anywhere[id] < anywhere)
        s->anywhere[id] = anywhere; /* staging runs ahead, not quite alike on all nodes */
    bool held = is_held(p, node, id);
    if (held)
        enter(p, node, id);
    if (p->world.dir->holders[id] > held && s->anywhere[id] == NEVER)
        enter_elsewhere(p, node, id);
    if (held || s->anywhere[id] == NEVER)
        return;
    if (p->world.dir->holders[id] == 0)
        keep_last_copy(p, node, id);
    else
        keep_copy(p, node, id);
}

/* Fills next_of_access, anywhere_of_access and next by walking the run backwards. */
static int look_ahead(struct mr_policy *p, struct mr_error *err)
{
    const struct mr_policy_world *w = &p->world;
    struct millrace *s = p->state;
    uint64_t epoch_len = w->steps_per_epoch * w->per_node;
    uint32_t *ids = malloc(epoch_len * sizeof(*ids));
    int rc = ids ? 0 : -ENOMEM;
    memset(s->next, 0xff, w->nodes * w->samples * sizeof(*s->next));
    memset(s->anywhere, 0xff, w->samples * sizeof(*s->anywhere));
    for (uint32_t e = w->epochs; e-- > 0 && !rc;)
        for (uint32_t i = 0; i < w->nodes && !rc; i++) {
            rc = w->stream(w->user, e, i, ids, err);
            uint32_t *next = s->next + (uint64_t)i * w->samples;
            for (uint64_t k = epoch_len; k-- > 0 && !rc;) {
                uint64_t access = e * epoch_len + k;
                s->next_of_access[i * s->run_len + access] = next[ids[k]];
                s->anywhere_of_access[i * s->run_len + access] = s->anywhere[ids[k]];
                next[ids[k]] = s->anywhere[ids[k]] = (uint32_t)access; /* an epoch uses a sample once */
                s->uses[(uint64_t)i * w->samples + ids[k]]++;
            }
        }
    memset(s->anywhere, 0, w->samples * sizeof(*s->anywhere));
    free(ids);
    return rc;
}

static int create(struct mr_policy *p, struct mr_error *err)
{
    const struct mr_policy_world *w = &p->world;
    struct millrace *s = calloc(1, sizeof(*s));
    p->state = s;
    if (!s)
        return mr_error_set(err, -ENOMEM, "planning millrace");
    s->run_len = w->steps_per_epoch * w->per_node * w->epochs;
    s->next = malloc(w->nodes * w->samples * sizeof(*s->next));
    s->anywhere = malloc(w->samples * sizeof(*s->anywhere));
    s->spare = calloc(w->nodes, sizeof(*s->spare));
    s->room_mb = calloc((uint64_t)w->nodes * MR_CLASS_MAX, sizeof(*s->room_mb));
    double node_mb = 0;
    for (unsigned j = 1; j < w->system->n_classes; j++)
        node_mb += w->system->classes[j].capacity_mb;
    /* What a node reads in the whole run, with a margin for unequal sizes, is all it could ever keep. */
    double most_mb = w->total_mb * fmin(1.001, 1.1 * w->epochs / w->nodes);
    s->scarce = node_mb < most_mb && w->system->n_classes > 1;
    if (s->scarce) {
        s->next_of_access = malloc(w->nodes * s->run_len * sizeof(*s->next_of_access));
        s->anywhere_of_access = malloc(w->nodes * s->run_len * sizeof(*s->anywhere_of_access));
        s->uses = calloc(w->nodes * w->samples, sizeof(*s->uses));
    }
    if (!s->next || !s->anywhere || !s->spare || !s->room_mb ||
        (s->scarce && !(s->next_of_access && s->anywhere_of_access && s->uses)))
        return mr_error_set(err, -ENOMEM, "planning millrace");
    for (uint32_t i = 0; i < w->nodes; i++)
        for (unsigned j = 1; j < w->system->n_classes; j++)
            s->room_mb[i * MR_CLASS_MAX + j] = w->system->classes[j].capacity_mb;
    return s->scarce ? look_ahead(p, err) : 0;
}

static void free_state(struct mr_policy *p)
{
    struct millrace *s = p->state;
    if (!s)
        return;
    for (uint32_t i = 0; s->spare && i < p->world.nodes; i++)
        mr_heap_done(&s->spare[i]);
    free(s->spare);
    free(s->anywhere);
    free(s->anywhere_of_access);
    free(s->uses);
    free(s->next_of_access);
    free(s->next);
    free(s->room_mb);
    free(s);
}

const struct mr_policy_ops mr_policy_millrace_ops = {
    MR_POLICY_HEAD,     .name = "millrace",   .doc = "PFS only for what no peer holds in time; next-use placement",
    .prefetches = true, .from_classes = true, .from_peers = true,
    .create = create,   .free = free_state,   .keep = keep};
