/* Our policy. Every access of every node is known, so
 *
 *   1. a sample is read from the PFS only when no node holds it: its first user fetches it and keeps it;
 *   2. everybody else takes it from a peer;
 *   3. when a node's storage is full, it keeps what it will use soonest (Belady) and does not admit a sample whose next
 *      use lies behind that of everything held (bypass);
 *   4. the last copy in the job is not lost while anybody has room for it: a sample that its holder gives up goes to the
 *      node that will use it next, which would have fetched it from a peer later anyway.
 *
 * Invariants: I1 next[node][id] is the node's next access number of id that has not been staged yet, or NEVER. I2 every
 * held sample of a node is in its heap at least once with its current key; stale entries are skipped when popped. */
#include "policy/policy_internal.h"
#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT32_MAX

struct heap_entry {
    uint32_t next, id;
};

struct heap { /* largest `next` on top */
    struct heap_entry *e;
    uint64_t n, cap;
};

struct millrace {
    uint32_t *next_of_access; /* [node][epochs * epoch_len]: access number of the following use of the same sample */
    uint32_t *next;           /* [node * samples + id], I1 */
    struct heap *heaps;       /* per node, I2 */
    double *room_mb;          /* per node and class, what is left: [node * MR_CLASS_MAX + class] */
    uint64_t run_len;         /* accesses of a node over all epochs */
    bool scarce;              /* without it nothing is ever evicted and the heaps stay empty */
};

static void sift_up(struct heap *h, uint64_t i)
{
    struct heap_entry x = h->e[i];
    for (; i > 0 && h->e[(i - 1) / 2].next < x.next; i = (i - 1) / 2)
        h->e[i] = h->e[(i - 1) / 2];
    h->e[i] = x;
}

static bool heap_push(struct heap *h, struct heap_entry x)
{
    if (h->n == h->cap) {
        uint64_t cap = h->cap ? h->cap * 2 : 1024;
        struct heap_entry *e = realloc(h->e, cap * sizeof(*e));
        if (!e)
            return false;
        h->e = e;
        h->cap = cap;
    }
    h->e[h->n] = x;
    sift_up(h, h->n++);
    return true;
}

static void heap_pop(struct heap *h)
{
    struct heap_entry x = h->e[--h->n];
    uint64_t i = 0;
    for (uint64_t c; (c = 2 * i + 1) < h->n; i = c) {
        if (c + 1 < h->n && h->e[c + 1].next > h->e[c].next)
            c++;
        if (h->e[c].next <= x.next)
            break;
        h->e[i] = h->e[c];
    }
    if (h->n)
        h->e[i] = x;
}

/* The held sample with the farthest next use, or NULL. Drops stale entries on the way (I2). */
static const struct heap_entry *farthest(struct mr_policy *p, uint32_t node)
{
    struct millrace *s = p->state;
    struct heap *h = &s->heaps[node];
    uint64_t base = (uint64_t)node * p->world.samples;
    while (h->n) {
        const struct heap_entry *top = &h->e[0];
        if (p->world.dir->held[base + top->id] < MR_INCOMING && s->next[base + top->id] == top->next)
            return top;
        heap_pop(h);
    }
    return NULL;
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
    s->room_mb[node * MR_CLASS_MAX + class] -= p->world.size_mb[id];
    mr_directory_put(p->world.dir, node, id, class);
    if (s->scarce)
        heap_push(&s->heaps[node], (struct heap_entry){s->next[(uint64_t)node * p->world.samples + id], id});
}

static void drop(struct mr_policy *p, uint32_t node, uint32_t id)
{
    struct millrace *s = p->state;
    unsigned class = p->world.dir->held[(uint64_t)node * p->world.samples + id];
    s->room_mb[node * MR_CLASS_MAX + class] += p->world.size_mb[id];
    mr_directory_drop(p->world.dir, node, id);
}

/* Makes room for a sample whose next use is `next` by giving up farther ones; false when it should be bypassed. Victims
 * that were last copies are listed in `orphans` (up to 8; more are simply lost and read again). */
static bool make_room(struct mr_policy *p, uint32_t node, double mb, uint32_t next, uint32_t *orphans, unsigned *n_orphans)
{
    while (class_with_room(p, node, mb) < 0) {
        const struct heap_entry *top = farthest(p, node);
        if (!top || top->next <= next)
            return false;
        uint32_t victim = top->id;
        drop(p, node, victim);
        heap_pop(&((struct millrace *)p->state)->heaps[node]);
        if (p->world.dir->holders[victim] == 0 && *n_orphans < 8)
            orphans[(*n_orphans)++] = victim;
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

static void hand_over(struct mr_policy *p, uint32_t from, uint32_t to, uint32_t id)
{
    put(p, to, id, (unsigned)class_with_room(p, to, p->world.size_mb[id]));
    p->world.moved(p->world.user, from, to, id);
}

/* Rule 4, one generation deep: what this displaces in turn is not passed on again. */
static void rescue(struct mr_policy *p, uint32_t from, uint32_t id)
{
    uint32_t user = next_user(p, id);
    if (user == MR_NO_SAMPLE)
        return;
    const struct millrace *s = p->state;
    uint32_t lost[8];
    unsigned n_lost = 8; /* full: displaced samples are not collected */
    if (make_room(p, user, p->world.size_mb[id], s->next[(uint64_t)user * p->world.samples + id], lost, &n_lost))
        hand_over(p, from, user, id);
}

static void keep(struct mr_policy *p, uint32_t node, uint32_t id, uint64_t k)
{
    struct millrace *s = p->state;
    uint64_t cell = (uint64_t)node * p->world.samples + id;
    s->next[cell] = s->next_of_access ? s->next_of_access[node * s->run_len + k] : NEVER;
    bool held = p->world.dir->held[cell] < MR_INCOMING;
    if (!s->scarce) {
        int class = held ? -1 : class_with_room(p, node, p->world.size_mb[id]);
        if (class > 0)
            put(p, node, id, (unsigned)class);
        return;
    }
    if (held) {
        heap_push(&s->heaps[node], (struct heap_entry){s->next[cell], id});
        return;
    }
    uint32_t orphans[8];
    unsigned n_orphans = 0;
    if (s->next[cell] != NEVER && make_room(p, node, p->world.size_mb[id], s->next[cell], orphans, &n_orphans))
        put(p, node, id, (unsigned)class_with_room(p, node, p->world.size_mb[id]));
    else if (p->world.dir->holders[id] == 0)
        orphans[n_orphans < 8 ? n_orphans++ : 7] = id;
    for (unsigned i = 0; i < n_orphans; i++)
        rescue(p, node, orphans[i]);
}

/* Fills next_of_access and next by walking the run backwards. */
static int look_ahead(struct mr_policy *p, struct mr_error *err)
{
    const struct mr_policy_world *w = &p->world;
    struct millrace *s = p->state;
    uint64_t epoch_len = w->steps_per_epoch * w->per_node;
    uint32_t *ids = malloc(epoch_len * sizeof(*ids));
    int rc = ids ? 0 : -ENOMEM;
    memset(s->next, 0xff, w->nodes * w->samples * sizeof(*s->next));
    for (uint32_t e = w->epochs; e-- > 0 && !rc;)
        for (uint32_t i = 0; i < w->nodes && !rc; i++) {
            rc = w->stream(w->user, e, i, ids, err);
            uint32_t *next = s->next + (uint64_t)i * w->samples;
            for (uint64_t k = epoch_len; k-- > 0 && !rc;) {
                uint64_t access = e * epoch_len + k;
                s->next_of_access[i * s->run_len + access] = next[ids[k]];
                next[ids[k]] = (uint32_t)access;
            }
        }
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
    s->heaps = calloc(w->nodes, sizeof(*s->heaps));
    s->room_mb = calloc((uint64_t)w->nodes * MR_CLASS_MAX, sizeof(*s->room_mb));
    double node_mb = 0;
    for (unsigned j = 1; j < w->system->n_classes; j++)
        node_mb += w->system->classes[j].capacity_mb;
    /* What a node reads in the whole run, with a margin for unequal sizes, is all it could ever keep. */
    double most_mb = w->total_mb * fmin(1.001, 1.1 * w->epochs / w->nodes);
    s->scarce = node_mb < most_mb && w->system->n_classes > 1;
    if (s->scarce)
        s->next_of_access = malloc(w->nodes * s->run_len * sizeof(*s->next_of_access));
    if (!s->next || !s->heaps || !s->room_mb || (s->scarce && !s->next_of_access))
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
    for (uint32_t i = 0; s->heaps && i < p->world.nodes; i++)
        free(s->heaps[i].e);
    free(s->heaps);
    free(s->next_of_access);
    free(s->next);
    free(s->room_mb);
    free(s);
}

const struct mr_policy_ops mr_policy_millrace_ops = {.id = MR_POLICY_MILLRACE, .prefetches = true, .from_classes = true,
                                                     .from_peers = true, .create = create, .free = free_state, .keep = keep};
