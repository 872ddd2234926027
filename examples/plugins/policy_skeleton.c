/* A policy as a plug-in: read ahead like 'staging', and keep what arrives wherever a storage class of the node has
 * room, first come, first kept; nothing is ever evicted. Nodes serve only themselves: whoever also wants to ask peers
 * needs a rule by which every node knows who holds what (`holds`), because nobody tells it. The header
 * <millrace/plugin_policy.h> says what each operation promises.
 *
 *     millrace sim SCENARIO --policy first-fit */
#include <millrace/plugin.h>
#include <millrace/plugin_policy.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What one node remembers: which class has which sample, and how much room is left. */
struct first_fit {
    const struct mr_policy_world *world;
    uint64_t room[MR_POLICY_CLASS_MAX];
    unsigned char *held; /* per sample: class, or MR_NOT_HELD */
};

static void destroy(void *state)
{
    struct first_fit *s = state;
    free(s->held);
    free(s);
}

/* The scenario may not suit the policy: say why, and the table shows it. */
static int create(const struct mr_policy_world *w, uint32_t node, void **state, struct mr_error *err)
{
    if (w->classes < 2)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "needs a storage class beside the staging buffer");
    struct first_fit *s = calloc(1, sizeof(*s));
    if (!s || !(s->held = malloc(w->samples))) {
        free(s);
        return mr_error_plain(err, -ENOMEM, "no memory for a byte per sample");
    }
    memset(s->held, MR_NOT_HELD, w->samples);
    s->world = w;
    for (unsigned c = 1; c < w->classes; c++)
        s->room[c] = mr_policy_capacity(w, node, c);
    *state = s;
    return 0;
}

/* The node is going to read `id`: from where, and does it stay? Asked in the order of the node's accesses, ahead of the
 * reads, so the answer must not depend on what has arrived. */
static void plan(void *state, uint64_t access, uint64_t id, struct mr_plan *out)
{
    struct first_fit *s = state;
    uint64_t bytes = mr_policy_bytes(s->world, id);
    (void)access;
    mr_plan_sources(out, s->held[id], NULL, 0); /* the own class if it is there, then the PFS */
    for (unsigned c = 1; c < s->world->classes && s->held[id] == MR_NOT_HELD; c++)
        if (s->room[c] >= bytes) {
            s->room[c] -= bytes;
            s->held[id] = (unsigned char)c;
        }
    out->keep = s->held[id];
}

/* What could not be read is not there. */
static void on_result(void *state, uint64_t access, uint64_t id, const struct mr_outcome *o)
{
    struct first_fit *s = state;
    (void)access;
    if (!o->failed || s->held[id] == MR_NOT_HELD)
        return;
    s->room[s->held[id]] += mr_policy_bytes(s->world, id);
    s->held[id] = MR_NOT_HELD;
}

static const struct mr_policy_ops first_fit = {
    .abi = MR_POLICY_ABI,
    .size = sizeof(struct mr_policy_ops),
    .name = "first-fit",
    .doc = "read ahead, keep what fits, first come, first kept: the policy to copy for a plug-in",
    .prefetches = true,
    .keeps = true,
    .create = create,
    .destroy = destroy,
    .plan = plan,
    .on_result = on_result,
};

MR_PLUGIN_DEFINE({MR_PLUGIN_POLICY, &first_fit});
