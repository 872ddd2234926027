/* The registry of policies, and what every one of them does alike. */
#include "policy/policy_internal.h"
#include "policy/shelf.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
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

int mr_policy_create(enum mr_policy_id id, const struct mr_policy_world *w, uint32_t node, struct mr_policy *out,
                     struct mr_error *err)
{
    const struct mr_policy_ops *ops = policies[id];
    void *state = NULL;
    assert(node < w->nodes && w->classes >= 1 && w->classes <= MR_POLICY_CLASS_MAX);
    int rc = ops->create ? ops->create(w, node, &state, err) : 0;
    if (!rc)
        *out = (struct mr_policy){.ops = ops, .state = state};
    return rc;
}

void mr_policy_free(struct mr_policy *p)
{
    if (p->ops && p->ops->destroy && p->state)
        p->ops->destroy(p->state);
    *p = (struct mr_policy){0};
}

int mr_policy_create_expected(enum mr_policy_id id, const struct mr_policy_world *w, struct mr_policy *out,
                              struct mr_error *err)
{
    const struct mr_policy_ops *ops = policies[id];
    void *state = NULL;
    if (!ops->expected)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "%s; it takes the exact engine (--method exact)",
                              ops->redraw ? "redraws its batches" : "has no expected-value form");
    int rc = ops->expected->create(w, &state, err);
    if (!rc)
        *out = (struct mr_policy){.ops = ops, .state = state};
    return rc;
}

void mr_policy_free_expected(struct mr_policy *p)
{
    if (p->ops && p->state)
        p->ops->expected->destroy(p->state);
    *p = (struct mr_policy){0};
}

void mr_policy_memo_done(struct mr_policy_memo *m)
{
    if (m->data)
        m->free(m->data);
    *m = (struct mr_policy_memo){0};
}

uint64_t mr_policy_bytes(const struct mr_policy_world *w, uint64_t id)
{
    return w->sample_bytes ? w->sample_bytes : w->bytes_of(w->user, id);
}

uint64_t mr_policy_capacity(const struct mr_policy_world *w, uint32_t node, unsigned storage_class)
{
    return storage_class < w->classes ? w->capacity[(uint64_t)node * w->classes + storage_class] : 0;
}

uint64_t mr_policy_memory(const struct mr_policy_world *w)
{
    uint64_t most = 0, memory = 64 * MR_MIB;
    for (uint32_t n = 0; n < w->nodes; n++) {
        uint64_t room = 0;
        for (unsigned j = 1; j < w->classes; j++)
            room += mr_policy_capacity(w, n, j);
        most = MR_MAX(most, MR_MIN(room, w->total_bytes));
    }
    double mean = (double)w->total_bytes / (double)MR_MAX(w->samples, (uint64_t)1);
    double copies = (double)most / fmax(mean, 1);
    while ((double)MR_MIN(mr_shelf_most(false, memory), mr_shelf_most(true, memory)) < copies)
        memory *= 2;
    return memory;
}

void mr_plan_sources(struct mr_plan *out, unsigned own_class, const uint32_t *peers, unsigned n_peers)
{
    *out = (struct mr_plan){.keep = MR_NOT_HELD};
    if (own_class != MR_NOT_HELD)
        out->source[out->n_sources++] = (struct mr_plan_source){.kind = MR_FROM_CLASS, .storage_class = own_class};
    for (unsigned i = 0; i < n_peers && out->n_sources < MR_ARRAY_LEN(out->source) - 1; i++)
        out->source[out->n_sources++] = (struct mr_plan_source){.kind = MR_FROM_PEER, .node = peers[i]};
    out->source[out->n_sources++] = (struct mr_plan_source){.kind = MR_FROM_PFS};
}

void mr_policy_plan(const struct mr_policy *p, uint64_t access, uint64_t id, struct mr_plan *out)
{
    if (p->ops->plan)
        p->ops->plan(p->state, access, id, out);
    else
        mr_plan_sources(out, MR_NOT_HELD, NULL, 0);
}

int mr_policy_need_class(const struct mr_policy_world *w, struct mr_error *err)
{
    return w->classes > 1 ? 0 : mr_error_set(err, MR_E_UNSUPPORTED, "needs a storage class beside the staging buffer");
}

int mr_policy_need_memory(const struct mr_policy_world *w, struct mr_error *err)
{
    uint64_t room = 0;
    int rc = mr_policy_need_class(w, err);
    for (uint32_t n = 0; n < w->nodes; n++)
        room += mr_policy_capacity(w, n, 1);
    if (!rc && w->total_bytes > room)
        rc = mr_error_set(err, MR_E_UNSUPPORTED, "the data set (%.0f MB) does not fit all nodes' class 1 (%.0f MB)",
                          (double)w->total_bytes / 1e6, (double)room / 1e6);
    return rc;
}
