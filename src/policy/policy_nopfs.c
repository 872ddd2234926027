/* NoPFS: every node knows how often it will read each sample. The fastest class gets the most frequent ones, and so on
 * down; inside a class samples are fetched from the PFS in the order of first use. Staging takes the cheapest source. A
 * sample that staging had to read from the PFS and that is planned for a class counts as fetched into it. */
#include "policy/policy_internal.h"
#include "base/common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct nopfs {
    struct mr_fill_plan plan; /* first member: the shared fill-plan functions use it */
    uint8_t *planned;         /* [node * samples + id]: class, or MR_NOT_HELD */
};

struct first_use {
    uint32_t when, id;
};

static int by_first_use(const void *a, const void *b)
{
    const struct first_use *x = a, *y = b;
    return x->when < y->when ? -1 : x->when > y->when;
}

/* Chooses classes by descending frequency (ties by id) for one node. */
static void choose_classes(const struct mr_policy_world *w, const uint16_t *count, uint8_t *planned)
{
    unsigned class = 1;
    double left = w->system->classes[1].capacity_mb;
    for (uint32_t freq = w->epochs; freq > 0; freq--)
        for (uint64_t id = 0; id < w->samples; id++) {
            if (count[id] != freq)
                continue;
            while (class < w->system->n_classes && w->size_mb[id] > left)
                left = ++class < w->system->n_classes ? w->system->classes[class].capacity_mb : 0;
            if (class == w->system->n_classes)
                return;
            left -= w->size_mb[id];
            planned[id] = (uint8_t) class;
        }
}

static int order_lists(struct mr_policy *p, uint32_t node, const uint32_t *first)
{
    const struct mr_policy_world *w = &p->world;
    struct nopfs *s = p->state;
    const uint8_t *planned = s->planned + (uint64_t)node * w->samples;
    struct first_use *uses = malloc(w->samples * sizeof(*uses));
    if (!uses)
        return -ENOMEM;
    int rc = 0;
    for (unsigned class = 1; class < w->system->n_classes && !rc; class ++) {
        uint64_t n = 0;
        for (uint64_t id = 0; id < w->samples; id++)
            if (planned[id] == class)
                uses[n++] = (struct first_use){first[id], (uint32_t)id};
        qsort(uses, n, sizeof(*uses), by_first_use);
        struct mr_fill_list *l = mr_fill_plan_list(&s->plan, node, class);
        rc = mr_fill_list_reserve(l, n);
        for (uint64_t k = 0; k < n && !rc; k++)
            l->ids[l->n++] = uses[k].id;
    }
    free(uses);
    return rc;
}

/* Counts every node's accesses; epochs outermost, because producing an epoch's order is the expensive part. */
static int tally(struct mr_policy *p, uint16_t *count, uint32_t *first, struct mr_error *err)
{
    const struct mr_policy_world *w = &p->world;
    uint64_t epoch_len = w->steps_per_epoch * w->per_node;
    uint32_t *ids = malloc(epoch_len * sizeof(*ids));
    int rc = ids ? 0 : -ENOMEM;
    for (uint32_t e = 0; e < w->epochs && !rc; e++)
        for (uint32_t i = 0; i < w->nodes && !rc; i++) {
            rc = w->stream(w->user, e, i, ids, err);
            uint64_t base = (uint64_t)i * w->samples;
            for (uint64_t k = 0; k < epoch_len && !rc; k++)
                if (count[base + ids[k]]++ == 0)
                    first[base + ids[k]] = (uint32_t)(e * epoch_len + k);
        }
    free(ids);
    return rc;
}

static int create(struct mr_policy *p, struct mr_error *err)
{
    const struct mr_policy_world *w = &p->world;
    struct nopfs *s = calloc(1, sizeof(*s));
    p->state = s;
    uint64_t cells = w->nodes * w->samples;
    uint16_t *count = calloc(cells, sizeof(*count));
    uint32_t *first = malloc(cells * sizeof(*first));
    int rc =
        s && count && first && !mr_fill_plan_init(&s->plan, w->nodes) && (s->planned = malloc(cells)) ? 0 : -ENOMEM;
    if (!rc && w->system->n_classes > 1) {
        memset(s->planned, MR_NOT_HELD, cells);
        rc = tally(p, count, first, err);
        for (uint32_t i = 0; i < w->nodes && !rc; i++) {
            choose_classes(w, count + (uint64_t)i * w->samples, s->planned + (uint64_t)i * w->samples);
            rc = order_lists(p, i, first + (uint64_t)i * w->samples);
        }
    } else if (!rc) {
        memset(s->planned, MR_NOT_HELD, cells);
    }
    free(count);
    free(first);
    return rc == -ENOMEM ? mr_error_set(err, rc, "planning nopfs") : rc;
}

static void free_state(struct mr_policy *p)
{
    struct nopfs *s = p->state;
    if (s)
        free(s->planned);
    mr_fill_plan_free(p);
}

static void keep_planned(struct mr_policy *p, uint32_t node, uint32_t id, uint64_t k)
{
    (void)k;
    struct nopfs *s = p->state;
    uint64_t cell = (uint64_t)node * p->world.samples + id;
    if (s->planned[cell] != MR_NOT_HELD && p->world.dir->held[cell] == MR_INCOMING)
        mr_directory_put(p->world.dir, node, id, s->planned[cell]);
}

static bool will_keep(const struct mr_policy *p, uint32_t node, uint32_t id)
{
    const struct nopfs *s = p->state;
    return s->planned[(uint64_t)node * p->world.samples + id] != MR_NOT_HELD;
}

const struct mr_policy_ops mr_policy_nopfs_ops = {
    MR_POLICY_HEAD,
    .name = "nopfs",
    .doc = "classes filled by access frequency, staging from the cheapest source",
    .prefetches = true,
    .from_classes = true,
    .from_peers = true,
    .create = create,
    .free = free_state,
    .next_fill = mr_fill_plan_next,
    .keep = keep_planned,
    .will_keep = will_keep};
