/* Mixtures: the tree of nodes over mixture_turns.c, which orders the children of one node. Item k of the stream walks
 * down: the turns of the root give a child and which of its items, which the turns of that child resolve, down to
 * a source, whose item j is sample j mod n of the cipher order (src/order) of its epoch j / n. */
#include "order/mixture_parts.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <millrace/order.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

/* ---- weights ---- */

struct share {
    double exact; /* in units */
    uint32_t index;
};

static int by_remainder(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    double rx = x->exact - floor(x->exact), ry = y->exact - floor(y->exact);
    if (rx != ry)
        return rx > ry ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int check_weight(const struct mr_mixture *m, const struct mix_node *parent, uint32_t c, double weight,
                        struct mr_error *err)
{
    const char *name = m->node[parent->child[c]].name;
    if (isfinite(weight) && weight >= 0)
        return 0;
    return mr_error_plain(err, MR_E_USAGE, "the weight of source '%s' is %g, not a positive number", name, weight);
}

/* The shares of a node's children in units, of which every positive one has at least one. */
static int quantise(const struct mr_mixture *m, const struct mix_node *parent, const double *weight, uint32_t *units,
                    struct mr_error *err)
{
    struct share share[MR_MIXTURE_MAX_CHILDREN];
    uint32_t n = parent->n_children;
    double sum = 0, largest = 0;
    int rc = 0;
    for (uint32_t c = 0; rc >= 0 && c < n; c++) {
        rc = check_weight(m, parent, c, weight[c], err);
        largest = MR_MAX(largest, weight[c]);
    }
    if (rc < 0)
        return rc;
    if (largest <= 0)
        return mr_error_plain(err, MR_E_USAGE, "the weights of all sources of '%s' are 0", parent->name);
    for (uint32_t c = 0; c < n; c++) /* divided first: the largest weights overflow in a sum */
        sum += share[c].exact = weight[c] / largest / (parent->by_tokens ? m->node[parent->child[c]].tokens : 1);
    int64_t left = MR_MIXTURE_UNIT;
    for (uint32_t c = 0; c < n; c++) {
        share[c].index = c;
        share[c].exact *= MR_MIXTURE_UNIT / sum;
        if (weight[c] > 0 && share[c].exact < 0.5)
            return mr_error_plain(err, MR_E_USAGE,
                                  "the share of source '%s' is %.3g of the items, too small: the least is 1/%u",
                                  m->node[parent->child[c]].name, share[c].exact / MR_MIXTURE_UNIT, MR_MIXTURE_UNIT);
        units[c] = weight[c] > 0 ? MR_MAX(1u, (uint32_t)share[c].exact) : 0;
        left -= units[c];
    }
    qsort(share, n, sizeof(*share), by_remainder);
    for (uint32_t i = 0; left > 0; i = (i + 1) % n)
        if (units[share[i].index]) {
            units[share[i].index]++;
            left--;
        }
    for (; left < 0; left++) { /* many of less than one unit: the largest gives */
        uint32_t most = 0;
        for (uint32_t c = 1; c < n; c++)
            most = units[c] > units[most] ? c : most;
        units[most]--;
    }
    return 0;
}

/* ---- making one ---- */

static int link_nodes(struct mr_mixture *m, const struct mr_mixture_params *p, struct mr_error *err)
{
    for (uint32_t i = 0; i < m->n; i++) {
        const struct mr_mixture_node *from = &p->nodes[i];
        struct mix_node *to = &m->node[i];
        const char *name = from->name ? from->name : "";
        if (strlen(name) >= sizeof to->name || strchr(name, '\n'))
            return mr_error_plain(err, MR_E_USAGE,
                                  "the name of a source has at most %u bytes and no end of line: '%.64s...'",
                                  MR_MIXTURE_MAX_NAME - 1, name);
        memcpy(to->name, name, strlen(name) + 1);
        to->parent = from->parent;
        to->samples = from->samples;
        to->tokens = from->tokens;
        to->sequential = from->sequential;
        to->by_tokens = from->by_tokens;
        to->seed = from->has_seed ? from->seed : mr_rng_at(p->seed, MR_RNG_ORDER, i);
        if (i == 0)
            continue;
        if (from->parent >= i)
            return mr_error_plain(err, MR_E_USAGE, "source '%s' stands before what it is a part of", name);
        struct mix_node *parent = &m->node[from->parent];
        if (parent->n_children == MR_MIXTURE_MAX_CHILDREN)
            return mr_error_plain(err, MR_E_USAGE, "'%s' has more than %u sources: nest them", parent->name,
                                  MR_MIXTURE_MAX_CHILDREN);
        to->place = parent->n_children++;
    }
    for (uint32_t i = 0; i < m->n; i++) {
        struct mix_node *node = &m->node[i];
        node->child = node->n_children ? malloc(node->n_children * sizeof(*node->child)) : NULL;
        if (node->n_children && !node->child)
            return mr_error_set(err, -ENOMEM, "cannot make a mixture of %u sources", m->n);
    }
    for (uint32_t i = 1; i < m->n; i++) {
        assert(m->node[m->node[i].parent].child); /* it counted this one */
        m->node[m->node[i].parent].child[m->node[i].place] = i;
    }
    return 0;
}

static int check_source(const struct mix_node *node, struct mr_error *err)
{
    if (node->n_children || (node->samples && node->samples <= MR_ORDER_MAX_SAMPLES))
        return 0;
    return mr_error_plain(err, MR_E_USAGE, "source '%s' is empty: it has %llu samples", node->name, (ull)node->samples);
}

/* Weights in tokens need the tokens of every child's items. */
static int check_tokens(const struct mr_mixture *m, const struct mix_node *node, struct mr_error *err)
{
    for (uint32_t c = 0; c < node->n_children; c++) {
        const struct mix_node *child = &m->node[node->child[c]];
        if (!isfinite(child->tokens) || child->tokens < 0)
            return mr_error_plain(err, MR_E_USAGE, "an item of source '%s' has %g tokens", child->name, child->tokens);
        if (node->by_tokens && child->tokens <= 0)
            return mr_error_plain(err, MR_E_USAGE, "weights in tokens need the tokens of an item of source '%s'",
                                  child->name);
    }
    return 0;
}

/* The first weights of a node, and its mean number of tokens if its children have one. */
static int weigh(struct mr_mixture *m, struct mix_node *node, const struct mr_mixture_params *p, struct mr_error *err)
{
    uint32_t n = node->n_children, index = (uint32_t)(node - m->node);
    double *weight = malloc(n * sizeof(*weight));
    uint32_t *units = calloc(n, sizeof(*units));
    int rc = weight && units ? check_tokens(m, node, err) : mr_error_set(err, -ENOMEM, "cannot make a mixture");
    for (uint32_t c = 0; rc >= 0 && c < n; c++)
        weight[c] = p->nodes[node->child[c]].weight;
    if (rc >= 0)
        rc = quantise(m, node, weight, units, err);
    if (rc >= 0)
        rc = mr_turns_create(n, units, mr_rng_at(p->seed, MR_RNG_MIXTURE, index), &node->turns, err);
    double mean = 0;
    bool known = true;
    for (uint32_t c = 0; rc >= 0 && c < n; c++) {
        struct mix_node *child = &m->node[node->child[c]];
        child->weighted = units[c] > 0;
        known = known && child->tokens > 0;
        mean += units[c] * child->tokens / MR_MIXTURE_UNIT;
    }
    node->tokens = known ? mean : 0;
    free(weight);
    free(units);
    return rc;
}

static int change(struct mr_mixture *m, const struct mr_mixture_change *x, struct mr_error *err)
{
    if (x->node >= m->n || !m->node[x->node].n_children)
        return mr_error_plain(err, MR_E_USAGE, "a change of weights is of node %u, which has no sources", x->node);
    struct mix_node *node = &m->node[x->node];
    uint32_t *units = calloc(node->n_children, sizeof(*units));
    int rc = units ? 0 : mr_error_set(err, -ENOMEM, "cannot hold the weights of '%s'", node->name);
    if (rc >= 0 && x->from <= node->last_change)
        rc = mr_error_plain(err, MR_E_USAGE,
                            "the changes of the weights of '%s' must ascend from above 0: item %llu after %llu",
                            node->name, (ull)x->from, (ull)node->last_change);
    if (rc >= 0 && x->from >= MR_MIXTURE_MAX_ITEMS)
        rc = mr_error_plain(err, MR_E_USAGE, "a change of weights at item %llu is beyond the limit of %llu",
                            (ull)x->from, (ull)MR_MIXTURE_MAX_ITEMS);
    if (rc >= 0)
        rc = quantise(m, node, x->weights, units, err);
    if (rc >= 0)
        rc = mr_turns_change(node->turns, x->from, units, err);
    for (uint32_t c = 0; rc >= 0 && c < node->n_children; c++)
        m->node[node->child[c]].weighted |= units[c] > 0;
    if (rc >= 0)
        node->last_change = x->from;
    free(units);
    return rc;
}

static int build(struct mr_mixture *m, const struct mr_mixture_params *p, struct mr_error *err)
{
    int rc = link_nodes(m, p, err);
    for (uint32_t i = 0; rc >= 0 && i < m->n; i++)
        rc = check_source(&m->node[i], err);
    for (uint32_t i = m->n; rc >= 0 && i-- > 0;) /* children first: their tokens make up the parent's */
        if (m->node[i].n_children)
            rc = weigh(m, &m->node[i], p, err);
    for (uint32_t i = 0; rc >= 0 && i < p->n_changes; i++)
        rc = change(m, &p->changes[i], err);
    for (uint32_t i = 1; rc >= 0 && i < m->n; i++)
        if (!m->node[i].weighted) {
            rc = mr_error_plain(err, MR_E_USAGE, "the weight of source '%s' is 0", m->node[i].name);
            mr_error_hint(err, "leave it out, or give it a weight in a change of weights");
        }
    return rc;
}

int mr_mixture_create(const struct mr_mixture_params *p, struct mr_mixture **out, struct mr_error *err)
{
    if (p->n_nodes < 2 || p->n_nodes > 1u << 20)
        return mr_error_plain(err, MR_E_USAGE, "a mixture needs a source (it has %u nodes, of at most %u)", p->n_nodes,
                              1u << 20);
    struct mr_mixture *m = calloc(1, sizeof(*m));
    if (m)
        m->node = calloc(p->n_nodes, sizeof(*m->node));
    if (!m || !m->node) {
        free(m);
        return mr_error_set(err, -ENOMEM, "cannot make a mixture of %u sources", p->n_nodes);
    }
    m->n = p->n_nodes;
    m->seed = p->seed;
    int rc = build(m, p, err);
    if (rc < 0) {
        mr_mixture_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

void mr_mixture_free(struct mr_mixture *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n; i++) {
        mr_turns_free(m->node[i].turns);
        mr_order_free(m->node[i].order);
        free(m->node[i].child);
    }
    free(m->node);
    free(m);
}

/* ---- items ---- */

/* Item `number` of a source. */
static int pick(struct mix_node *node, struct mr_mixture_item *item, struct mr_error *err)
{
    int rc = 0;
    item->epoch = item->number / node->samples;
    if (!node->order) {
        struct mr_order_params p = {.mode = node->sequential ? MR_ORDER_SEQUENTIAL : MR_ORDER_CIPHER,
                                    .samples = node->samples,
                                    .seed = node->seed,
                                    .world = 1,
                                    .epoch = item->epoch,
                                    .shuffle_each_epoch = true};
        rc = mr_order_create(&p, &node->order, err);
    } else if (mr_order_epoch(node->order) != item->epoch) {
        rc = mr_order_set_epoch(node->order, item->epoch, err);
    }
    if (rc >= 0)
        mr_order_get(node->order, item->number % node->samples, &item->sample, 1);
    return rc;
}

int mr_mixture_sample(struct mr_mixture *m, uint32_t node, uint64_t number, struct mr_mixture_item *item,
                      struct mr_error *err)
{
    if (node >= m->n || m->node[node].n_children)
        return mr_error_plain(err, MR_E_USAGE, "node %u of the mixture is no source", node);
    *item = (struct mr_mixture_item){.node = node, .number = number};
    return pick(&m->node[node], item, err);
}

int mr_mixture_get(struct mr_mixture *m, uint64_t first, uint64_t stride, struct mr_mixture_item *items, size_t n,
                   struct mr_error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct mr_mixture_item *item = &items[i];
        uint32_t at = 0, place;
        int rc = 0;
        item->number = first + i * stride;
        while (rc >= 0 && m->node[at].n_children) {
            rc = mr_turns_at(m->node[at].turns, item->number, &place, &item->number, err);
            if (rc >= 0)
                at = m->node[at].child[place];
        }
        item->node = at;
        if (rc >= 0)
            rc = pick(&m->node[at], item, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mr_mixture_given(struct mr_mixture *m, uint64_t k, uint64_t *given, struct mr_error *err)
{
    uint64_t *part = calloc(m->n, sizeof(*part));
    int rc = part ? 0 : mr_error_set(err, -ENOMEM, "cannot count the items of %u sources", m->n);
    given[0] = k;
    for (uint32_t i = 0; rc >= 0 && i < m->n; i++) {
        const struct mix_node *node = &m->node[i];
        if (!node->n_children)
            continue;
        rc = mr_turns_given(node->turns, given[i], part, err);
        for (uint32_t c = 0; rc >= 0 && c < node->n_children; c++)
            given[node->child[c]] = part[c];
    }
    free(part);
    return rc;
}

int mr_mixture_shares(struct mr_mixture *m, uint64_t k, struct mr_mixture_share *shares, struct mr_error *err)
{
    uint64_t *given = calloc(m->n, sizeof(*given));
    int rc = given ? mr_mixture_given(m, k, given, err) : mr_error_set(err, -ENOMEM, "cannot count the items");
    for (uint32_t i = 0; rc >= 0 && i < m->n; i++) {
        const struct mix_node *node = &m->node[i];
        shares[i] = (struct mr_mixture_share){.given = given[i], .asked = (double)k, .weight = 1};
        if (i) {
            const struct mr_turns *above = m->node[node->parent].turns;
            uint64_t whole = given[node->parent];
            shares[i].asked = (double)mr_turns_asked(above, node->place, whole) / MR_MIXTURE_UNIT;
            shares[i].weight = (double)mr_turns_weight(above, node->place, whole) / MR_MIXTURE_UNIT;
        }
        if (node->samples && !node->n_children)
            shares[i].epochs = (double)given[i] / (double)node->samples;
    }
    free(given);
    return rc;
}

uint32_t mr_mixture_weights_version(const struct mr_mixture *m, uint32_t node, uint64_t k)
{
    return node < m->n && m->node[node].turns ? mr_turns_version(m->node[node].turns, k) : 0;
}
