/* Fill lists: which samples go into which class of which node, in which order. */
#include "policy/policy_internal.h"

#include <errno.h>
#include <stdlib.h>

int mr_fill_plan_init(struct mr_fill_plan *f, uint32_t nodes)
{
    f->nodes = nodes;
    f->lists = calloc((uint64_t)nodes * MR_CLASS_MAX, sizeof(*f->lists));
    return f->lists ? 0 : -ENOMEM;
}

void mr_fill_plan_done(struct mr_fill_plan *f)
{
    for (uint64_t i = 0; f->lists && i < (uint64_t)f->nodes * MR_CLASS_MAX; i++)
        free(f->lists[i].ids);
    free(f->lists);
    f->lists = NULL;
}

struct mr_fill_list *mr_fill_plan_list(struct mr_fill_plan *f, uint32_t node, unsigned class)
{
    return &f->lists[(uint64_t)node * MR_CLASS_MAX + class];
}

int mr_fill_list_reserve(struct mr_fill_list *l, uint64_t n)
{
    l->ids = malloc((n ? n : 1) * sizeof(*l->ids));
    return l->ids ? 0 : -ENOMEM;
}

uint32_t mr_fill_plan_next(struct mr_policy *p, uint32_t node, unsigned class)
{
    struct mr_fill_list *l = mr_fill_plan_list(p->state, node, class);
    const struct mr_directory *d = p->world.dir;
    while (l->at < l->n) {
        uint32_t id = l->ids[l->at++];
        if (d->held[(uint64_t)node * d->samples + id] == MR_NOT_HELD)
            return id;
    }
    return MR_NO_SAMPLE;
}

void mr_fill_plan_free(struct mr_policy *p)
{
    if (p->state)
        mr_fill_plan_done(p->state);
    free(p->state);
}
