/* The registry of policies, the directory of who holds what, and the one rule for choosing a source. */
#include "policy/policy.h"
#include "policy/policy_internal.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct mr_policy_ops *policies[MR_POLICY_MAX] = {
#define MR_POLICY_ROW(id, ops) [id] = &mr_policy_##ops##_ops,
    MR_POLICY_LIST(MR_POLICY_ROW)
#undef MR_POLICY_ROW
};
static int count = MR_POLICY_COUNT; /* grows at the start only, before policies are used */

int mr_policy_count(void)
{
    return count;
}

const char *mr_policy_name(enum mr_policy_id p)
{
    return policies[p]->name;
}

const char *mr_policy_doc(enum mr_policy_id p)
{
    return policies[p]->doc;
}

bool mr_policy_reorders(enum mr_policy_id p)
{
    return policies[p]->reorders;
}

static int find(const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return i;
    return -1;
}

int mr_policy_parse(const char *name, enum mr_policy_id *out, struct mr_error *err)
{
    int i = find(name);
    if (i < 0) {
        mr_error_set(err, MR_E_USAGE, "unknown policy '%s'", name);
        mr_error_hint(err, "'millrace help policies' lists them; 'all' runs every one");
        return MR_E_USAGE;
    }
    *out = (enum mr_policy_id)i;
    return 0;
}

int mr_policy_register(const struct mr_policy_ops *ops, struct mr_error *err)
{
    if (ops->abi != MR_POLICY_ABI || ops->size != sizeof(*ops))
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "a policy of abi %u with %u bytes of operations; this program has abi %u with %zu",
                              ops->abi, ops->size, MR_POLICY_ABI, sizeof(*ops));
    const char *name = ops->name; /* 'all' stands for every policy on the command line */
    if (!name || !*name || name[strcspn(name, ", \t")] || !ops->doc || !strcmp(name, "all"))
        return mr_error_plain(err, MR_E_USAGE,
                              "a policy needs a text and a name without comma and space that is not 'all'");
    if (find(ops->name) >= 0)
        return mr_error_plain(err, -EEXIST, "there is a policy '%s' already", ops->name);
    if (ops->reorders != (ops->redraw != NULL))
        return mr_error_plain(err, MR_E_USAGE, "policy '%s' %s the operation 'redraw'", ops->name,
                              ops->redraw ? "does not reorder but has" : "reorders but lacks");
    if (count == MR_POLICY_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "cannot add policy '%s': %d are registered", ops->name,
                              MR_POLICY_MAX - MR_POLICY_COUNT);
    policies[count++] = ops;
    return 0;
}

const struct mr_policy_ops *mr_policy_get_ops(enum mr_policy_id id)
{
    return policies[id];
}

int mr_policy_create(enum mr_policy_id id, const struct mr_policy_world *w, struct mr_policy *p, struct mr_error *err)
{
    *p = (struct mr_policy){.ops = policies[id], .world = *w};
    return p->ops->create ? p->ops->create(p, err) : 0;
}

void mr_policy_free(struct mr_policy *p)
{
    if (p->ops && p->ops->free)
        p->ops->free(p);
    p->state = NULL;
}

struct mr_source mr_policy_source(const struct mr_policy *p, uint32_t node, uint32_t id)
{
    const struct mr_directory *d = p->world.dir;
    uint8_t own = p->ops->from_classes ? d->held[(uint64_t)node * d->samples + id] : MR_NOT_HELD;
    if (own < MR_INCOMING)
        return (struct mr_source){MR_FROM_CLASS, node, own};
    uint32_t peer = p->ops->from_peers ? mr_directory_peer(d, node, id) : MR_NO_SAMPLE;
    if (peer != MR_NO_SAMPLE)
        return (struct mr_source){MR_FROM_PEER, peer, d->held[(uint64_t)peer * d->samples + id]};
    return (struct mr_source){own == MR_INCOMING ? MR_FROM_INCOMING : MR_FROM_PFS, node, 0};
}

unsigned mr_policy_classes(const struct mr_policy_world *w)
{
    return w->system->n_classes;
}

double mr_policy_capacity_mb(const struct mr_policy_world *w, unsigned storage_class)
{
    return storage_class < w->system->n_classes ? w->system->classes[storage_class].capacity_mb : 0;
}

double mr_directory_used_mb(const struct mr_directory *d, uint32_t node, unsigned storage_class)
{
    return d->used_mb[(uint64_t)node * MR_CLASS_MAX + storage_class];
}

int mr_directory_init(struct mr_directory *d, uint32_t nodes, uint64_t samples, const float *size_mb,
                      struct mr_error *err)
{
    *d = (struct mr_directory){.nodes = nodes, .samples = samples, .size_mb = size_mb};
    d->held = malloc(nodes * samples);
    d->holders = calloc(samples, sizeof(*d->holders));
    d->asked = malloc(samples * sizeof(*d->asked));
    d->used_mb = calloc((uint64_t)nodes * MR_CLASS_MAX, sizeof(*d->used_mb));
    if (!d->held || !d->holders || !d->asked || !d->used_mb) {
        mr_directory_done(d);
        return mr_error_set(err, -ENOMEM, "directory of %u nodes x %llu samples", nodes, (unsigned long long)samples);
    }
    memset(d->held, MR_NOT_HELD, nodes * samples);
    return 0;
}

void mr_directory_done(struct mr_directory *d)
{
    free(d->held);
    free(d->holders);
    free(d->asked);
    free(d->used_mb);
    *d = (struct mr_directory){0};
}

void mr_directory_put(struct mr_directory *d, uint32_t node, uint32_t id, unsigned class)
{
    assert(node < d->nodes && id < d->samples && class < MR_CLASS_MAX);
    uint8_t *slot = &d->held[node * d->samples + id];
    mr_directory_drop(d, node, id);
    *slot = (uint8_t) class;
    d->holders[id]++;
    /* Each of k holders is the one that others ask with equal probability: always the latest would make a convoy of
     * readers. */
    if (d->holders[id] == 1 || mr_rng_below(mr_mix64((uint64_t)node << 32 | id), d->holders[id]) == 0)
        d->asked[id] = node;
    d->used_mb[node * MR_CLASS_MAX + class] += d->size_mb[id];
}

void mr_directory_announce(struct mr_directory *d, uint32_t node, uint32_t id)
{
    uint8_t *slot = &d->held[node * d->samples + id];
    if (*slot == MR_NOT_HELD)
        *slot = MR_INCOMING;
}

void mr_directory_drop(struct mr_directory *d, uint32_t node, uint32_t id)
{
    uint8_t *slot = &d->held[node * d->samples + id];
    uint8_t was = *slot;
    *slot = MR_NOT_HELD;
    if (was >= MR_INCOMING)
        return;
    assert(d->holders[id] > 0 && was < MR_CLASS_MAX);
    d->used_mb[node * MR_CLASS_MAX + was] -= d->size_mb[id];
    d->holders[id]--;
}

uint32_t mr_directory_peer(const struct mr_directory *d, uint32_t node, uint32_t id)
{
    if (d->holders[id] == 0)
        return MR_NO_SAMPLE;
    uint32_t asked = d->asked[id];
    if (asked != node && d->held[asked * d->samples + id] < MR_INCOMING)
        return asked;
    for (uint32_t step = 1; step < d->nodes; step++) {
        uint32_t peer = (node + step) % d->nodes;
        if (d->held[peer * d->samples + id] < MR_INCOMING)
            return peer;
    }
    return MR_NO_SAMPLE;
}
