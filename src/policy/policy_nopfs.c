/* NoPFS: every node knows how often each node will read each sample. The fastest class gets the most frequent ones of
 * its node, and so on down; inside a class samples are fetched from the PFS in the order of first use. Staging takes
 * the cheapest source: an own class, a peer that plans to keep the sample (the one that uses it first will have it
 * first), the PFS. A sample that staging had to read from the PFS and that is planned for a class counts as fetched
 * into it; one that came from a peer does not, as in the published library.
 *
 * The plan of all nodes is a function of the world; instances of one process share it (one byte per node and sample).
 */
#include "policy/policy_internal.h"
#include "base/common.h"
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is known of all nodes. */
struct nopfs_plan {
    uint8_t *planned; /* [node * samples + id]: class, or MR_NOT_HELD */
    uint32_t *early;  /* [id * 2]: the planning nodes that use it first and second; nodes: none */
    uint64_t *first;  /* while planning: [node * samples + id]: first access */
};

enum { WANTED, PENDING, FETCHED }; /* PENDING: staging is reading it and may keep it */

struct nopfs {
    const struct mr_policy_world *w;
    uint32_t node;
    struct nopfs_plan *plan;
    bool owns_plan;
    uint8_t *state; /* per sample, of those planned here */
    struct {
        struct first_use *item;
        uint64_t n, at;
    } list[MR_POLICY_CLASS_MAX];
    struct { /* passed by the filler while pending, and not kept after all */
        struct first_use *item;
        size_t n, cap;
    } again;
};

struct first_use {
    uint64_t when, id;
};

static int by_first_use(const void *a, const void *b)
{
    const struct first_use *x = a, *y = b;
    return x->when < y->when ? -1 : x->when > y->when;
}

/* Chooses classes by descending frequency (ties by id) for one node. */
static void choose_classes(const struct mr_policy_world *w, uint32_t node, const uint16_t *count, uint8_t *planned)
{
    unsigned class = 1;
    uint64_t left = mr_policy_capacity(w, node, 1);
    uint16_t most = 0;
    for (uint64_t id = 0; id < w->samples; id++)
        most = MR_MAX(most, count[id]);
    for (uint16_t freq = most; freq > 0; freq--)
        for (uint64_t id = 0; id < w->samples; id++) {
            if (count[id] != freq)
                continue;
            uint64_t bytes = mr_policy_bytes(w, id);
            while (class < w->classes && bytes > left)
                left = ++class < w->classes ? mr_policy_capacity(w, node, class) : 0;
            if (class == w->classes)
                return;
            left -= bytes;
            planned[id] = (uint8_t) class;
        }
}

#define COLUMN 4096u

/* Counts one rank's accesses of an epoch. */
static int tally_rank(const struct mr_policy_world *w, uint64_t epoch, uint32_t rank, uint16_t *count, uint64_t *first,
                      struct mr_error *err)
{
    uint64_t ids[COLUMN], row = 0;
    for (int64_t n; (n = mr_schedule_ids(w->schedule, epoch, rank, row, ids, COLUMN, err)) != 0; row += (uint64_t)n) {
        if (n < 0)
            return (int)n;
        for (int64_t k = 0; k < n; k++) {
            uint64_t access = mr_schedule_access(w->schedule, epoch, row + (uint64_t)k, rank);
            if (count[ids[k]] == 0 || access < first[ids[k]])
                first[ids[k]] = access;
            count[ids[k]] += count[ids[k]] < UINT16_MAX;
        }
    }
    return 0;
}

/* Counts every node's accesses; epochs outermost, because producing an epoch's order is the expensive part. */
static int tally(const struct mr_policy_world *w, uint16_t *count, uint64_t *first, struct mr_error *err)
{
    struct mr_schedule *s = w->schedule;
    int rc = 0;
    for (uint64_t e = mr_schedule_first_epoch(s); e <= mr_schedule_last_epoch(s) && !rc; e++)
        for (uint32_t i = 0; i < w->nodes && !rc; i++)
            for (uint32_t r = mr_schedule_first_rank(s, i); r < mr_schedule_first_rank(s, i + 1) && !rc; r++)
                rc = tally_rank(w, e, r, count + i * w->samples, first + i * w->samples, err);
    return rc;
}

/* The two planning nodes that use a sample first. */
static void find_early(const struct mr_policy_world *w, struct nopfs_plan *p)
{
    for (uint64_t id = 0; id < w->samples; id++) {
        uint32_t *early = p->early + 2 * id;
        uint64_t when[2] = {MR_NO_ACCESS, MR_NO_ACCESS};
        early[0] = early[1] = w->nodes;
        for (uint32_t i = 0; i < w->nodes; i++) {
            if (p->planned[i * w->samples + id] == MR_NOT_HELD)
                continue;
            uint64_t at = p->first[i * w->samples + id]; /* written for samples that the node uses */
            if (at >= when[1])
                continue;
            bool best = at < when[0];
            when[1] = best ? when[0] : at;
            early[1] = best ? early[0] : i;
            when[0] = best ? at : when[0];
            early[0] = best ? i : early[0];
        }
    }
}

static void free_plan(void *data)
{
    struct nopfs_plan *p = data;
    free(p->planned);
    free(p->early);
    free(p->first);
    free(p);
}

static int make_plan(const struct mr_policy_world *w, struct nopfs_plan **out, struct mr_error *err)
{
    uint64_t cells = w->nodes * w->samples;
    struct nopfs_plan *p = calloc(1, sizeof(*p));
    uint16_t *count = calloc(cells, sizeof(*count));
    if (p) {
        p->planned = malloc(cells);
        p->early = malloc(2 * w->samples * sizeof(*p->early));
        p->first = calloc(cells, sizeof(*p->first));
    }
    int rc = p && count && p->planned && p->early && p->first ? 0 : -ENOMEM;
    if (!rc) {
        memset(p->planned, MR_NOT_HELD, cells);
        rc = w->classes > 1 ? tally(w, count, p->first, err) : 0;
        for (uint32_t i = 0; i < w->nodes && !rc && w->classes > 1; i++)
            choose_classes(w, i, count + i * w->samples, p->planned + i * w->samples);
    }
    if (!rc)
        find_early(w, p);
    else if (p)
        free_plan(p);
    free(count);
    if (!rc)
        *out = p;
    return rc;
}

static int get_plan(struct nopfs *s, struct mr_error *err)
{
    struct mr_policy_memo *memo = s->w->memo;
    if (memo && memo->data) {
        s->plan = memo->data;
        return 0;
    }
    int rc = make_plan(s->w, &s->plan, err);
    s->owns_plan = !memo;
    if (!rc && memo)
        *memo = (struct mr_policy_memo){.data = s->plan, .free = free_plan};
    return rc;
}

static int order_lists(struct nopfs *s)
{
    const uint8_t *planned = s->plan->planned + s->node * s->w->samples;
    const uint64_t *first = s->plan->first + s->node * s->w->samples;
    for (unsigned class = 1; class < s->w->classes; class ++) {
        uint64_t n = 0;
        for (uint64_t id = 0; id < s->w->samples; id++)
            n += planned[id] == class;
        s->list[class].item = malloc(MR_MAX(n, (uint64_t)1) * sizeof(*s->list[class].item));
        if (!s->list[class].item)
            return -ENOMEM;
        for (uint64_t id = 0; id < s->w->samples; id++)
            if (planned[id] == class)
                s->list[class].item[s->list[class].n++] = (struct first_use){first[id], id};
        qsort(s->list[class].item, n, sizeof(*s->list[class].item), by_first_use);
    }
    return 0;
}

static void destroy(void *state)
{
    struct nopfs *s = state;
    for (unsigned j = 0; j < MR_POLICY_CLASS_MAX; j++)
        free(s->list[j].item);
    if (s->owns_plan && s->plan)
        free_plan(s->plan);
    free(s->again.item);
    free(s->state);
    free(s);
}

static int create(const struct mr_policy_world *w, uint32_t node, void **state, struct mr_error *err)
{
    struct nopfs *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "planning nopfs");
    *s = (struct nopfs){.w = w, .node = node, .state = calloc(w->samples, 1)};
    int rc = s->state ? get_plan(s, err) : -ENOMEM;
    if (!rc)
        rc = order_lists(s);
    if (rc) {
        destroy(s);
        return rc == -ENOMEM ? mr_error_set(err, rc, "planning nopfs") : rc;
    }
    *state = s;
    return 0;
}

static unsigned planned_class(const struct nopfs *s, uint32_t node, uint64_t id)
{
    return s->plan->planned[node * s->w->samples + id];
}

static void plan(void *state, uint64_t access, uint64_t id, struct mr_plan *out)
{
    struct nopfs *s = state;
    unsigned class = planned_class(s, s->node, id);
    const uint32_t *early = s->plan->early + 2 * id;
    uint32_t peers[2];
    unsigned n = 0;
    (void)access;
    for (unsigned i = 0; i < 2; i++)
        if (early[i] < s->w->nodes && early[i] != s->node)
            peers[n++] = early[i];
    bool have = class != MR_NOT_HELD && s->state[id] != WANTED;
    mr_plan_sources(out, have ? class : MR_NOT_HELD, peers, n);
    out->keep = class;
    out->keep_only_from_pfs = !have;
    if (class != MR_NOT_HELD && !have)
        s->state[id] = PENDING;
}

static void on_result(void *state, uint64_t access, uint64_t id, const struct mr_outcome *o)
{
    struct nopfs *s = state;
    if (s->state[id] != PENDING)
        return;
    s->state[id] = o->kept ? FETCHED : WANTED;
    unsigned class = planned_class(s, s->node, id);
    uint64_t at = s->list[class].at, first = s->plan->first[s->node * s->w->samples + id];
    bool passed = at == s->list[class].n || s->list[class].item[at].when > first;
    if (!o->kept && passed && MR_VEC_RESERVE(&s->again, s->again.n + 1) == 0)
        s->again.item[s->again.n++] = (struct first_use){access, id};
}

static bool give(struct nopfs *s, struct first_use u, struct mr_fill *out)
{
    if (s->state[u.id] != WANTED)
        return false;
    s->state[u.id] = FETCHED;
    *out = (struct mr_fill){.id = u.id,
                            .deadline = u.when,
                            .storage_class = planned_class(s, s->node, u.id),
                            .n_sources = 1,
                            .source[0] = {.kind = MR_FROM_PFS}};
    return true;
}

static bool next_fill(void *state, unsigned class, uint64_t horizon, struct mr_fill *out)
{
    struct nopfs *s = state;
    for (size_t k = s->again.n; k-- > 0;) {
        struct first_use u = s->again.item[k];
        if (planned_class(s, s->node, u.id) != class || u.when >= horizon)
            continue;
        s->again.item[k] = s->again.item[--s->again.n];
        if (give(s, u, out))
            return true;
    }
    while (s->list[class].at < s->list[class].n && s->list[class].item[s->list[class].at].when < horizon)
        if (give(s, s->list[class].item[s->list[class].at++], out))
            return true;
    return false;
}

static bool holds(void *state, uint32_t node, uint64_t id, uint64_t access)
{
    (void)access;
    return planned_class(state, node, id) != MR_NOT_HELD;
}

const struct mr_policy_ops mr_policy_nopfs_ops = {
    MR_POLICY_HEAD,
    .name = "nopfs",
    .doc = "classes filled by access frequency, staging from the cheapest source",
    .prefetches = true,
    .keeps = true,
    .holds_by_plan = true,
    .create = create,
    .destroy = destroy,
    .plan = plan,
    .next_fill = next_fill,
    .on_result = on_result,
    .holds = holds,
    .expected = &mr_expected_nopfs};
