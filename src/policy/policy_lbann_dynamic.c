/* LBANN's dynamic store: the first reader of a sample keeps it in memory and serves everybody else from then on. The
 * store is memory only (class 1), so the set has to fit the memory of all nodes. Where a node reads more first
 * than its own memory holds, it keeps a part of it, by hash, so that everybody knows which. */
#include "policy/homes.h"
#include "policy/policy_internal.h"
#include "policy/shelf.h"

#include <errno.h>
#include <stdlib.h>

struct lbann {
    struct mr_homes *homes;
    struct mr_shelf shelf;
    uint32_t node;
    bool owns_homes;
};

static void free_homes(void *data)
{
    mr_homes_free(data);
}

static void destroy(void *state)
{
    struct lbann *s = state;
    mr_shelf_done(&s->shelf);
    if (s->owns_homes)
        mr_homes_free(s->homes);
    free(s);
}

static int get_homes(const struct mr_policy_world *w, struct lbann *s, struct mr_error *err)
{
    struct mr_homes_options o = {.classes = 2, .entries_max = UINT64_MAX / 4};
    if (w->memo && w->memo->data) {
        s->homes = w->memo->data;
        return 0;
    }
    int rc = mr_homes_create(w, &o, &s->homes, err);
    s->owns_homes = !w->memo;
    if (!rc && w->memo)
        *w->memo = (struct mr_policy_memo){.data = s->homes, .free = free_homes};
    return rc;
}

static int create(const struct mr_policy_world *w, uint32_t node, void **state, struct mr_error *err)
{
    int rc = mr_policy_need_memory(w, err);
    if (rc)
        return rc;
    struct lbann *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "planning lbann-dynamic");
    s->node = node;
    mr_shelf_init(&s->shelf, w, node, false, UINT64_MAX);
    for (unsigned j = 2; j < w->classes; j++)
        s->shelf.room[j] = 0;
    rc = get_homes(w, s, err);
    if (rc) {
        destroy(s);
        return rc;
    }
    *state = s;
    return 0;
}

static void plan(void *state, uint64_t access, uint64_t id, struct mr_plan *out)
{
    struct lbann *s = state;
    uint64_t first;
    uint32_t home;
    unsigned own = mr_shelf_class(&s->shelf, id);
    mr_homes_first(s->homes, &id, &first, &home, 1);
    bool held = mr_homes_kept_by(s->homes, mr_homes_hash(id), home);
    mr_plan_sources(out, own, &home, held && first < access && home != s->node);
    out->keep = own;
    if (own == MR_NOT_HELD && held && home == s->node)
        out->keep = mr_shelf_keep(&s->shelf, id, 0, MR_SHELF_FOREVER);
}

static void on_result(void *state, uint64_t access, uint64_t id, const struct mr_outcome *o)
{
    struct lbann *s = state;
    (void)access;
    if (o->failed)
        mr_shelf_forget(&s->shelf, id);
}

static bool holds(void *state, uint32_t node, uint64_t id, uint64_t access)
{
    const struct lbann *s = state;
    return mr_homes_holds(s->homes, node, id, access);
}

const struct mr_policy_ops mr_policy_lbann_dynamic_ops = {
    MR_POLICY_HEAD,
    .name = "lbann-dynamic",
    .doc = "the first reader of a sample keeps it and serves the others; needs the set to fit all nodes' memory",
    .prefetches = true,
    .keeps = true,
    .create = create,
    .destroy = destroy,
    .plan = plan,
    .on_result = on_result,
    .holds = holds,
    .expected = &mr_expected_lbann_dynamic};
