/* Mixtures: one stream of items out of several sources by their weights. The order of the stream is a function.
 *
 *   item(k) = (source, number of the item in that source)                      k = 0, 1, 2, ... without an end
 *   item j of a source = sample cipher(j mod n) of its epoch j / n             its own epochs, its own shuffle
 *
 * Which source is next is a low-discrepancy choice: with weights in units of 1/65,536, before every k each source has
 * given floor or ceil of weight * k items. So any prefix deviates by less than one item per source, any window by less
 * than two, whatever k; in nested mixtures per level. Weights may change at items that are named beforehand (a
 * schedule): the bound holds across changes. Nothing depends on ranks: rank r of w takes items r, r + w, ...
 *
 * A mixture is a tree. Node 0 is the root; every other node names its parent, which stands before it. A node without
 * children is a source.
 *
 * Why the bound holds, and what a state has: doc/internals/mixtures.md.
 *
 * Thread-safety: none; a mixture belongs to one thread at a time (tables are made when they are first needed). */
#ifndef MILLRACE_MIXTURE_H
#define MILLRACE_MIXTURE_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_MIXTURE_VERSION 1                     /* changes when the same parameters would give other items */
#define MR_MIXTURE_UNIT 65536u                   /* weights are quantised to 1 / this */
#define MR_MIXTURE_MAX_CHILDREN 4096u            /* of one node */
#define MR_MIXTURE_MAX_ITEMS ((uint64_t)1 << 46) /* k stays below */
#define MR_MIXTURE_MAX_NAME 512u                 /* bytes of a name, with its end */

struct mr_mixture_node {
    const char *name; /* for messages and states; borrowed for create only */
    uint32_t parent;  /* index of an earlier node; not looked at for node 0 */
    double weight;    /* share among its siblings, in any unit; 0 only where a later version of the weights has more */
    uint64_t samples; /* of a source, at least 1; 0 for a node with children */
    double tokens;    /* of a source: mean number of tokens of an item, 0: not known. A node with children has the mean
                       * over them by their first weights */
    bool by_tokens;   /* of a node with children: their weights are shares of tokens, not of items */
    uint64_t seed;    /* of the shuffle, with has_seed; else drawn from the mixture's seed and the node's index */
    bool has_seed;
    bool sequential; /* samples in their own order in each epoch */
};

/* From item `from` of node `node` on (counted in items of that node), its children have these weights. Per node in
 * ascending order of `from`, which is above 0. */
struct mr_mixture_change {
    uint32_t node;
    uint64_t from;
    const double *weights; /* one per child, in the order of the nodes; 0: none of that child from here on */
};

struct mr_mixture_params {
    uint64_t seed;
    const struct mr_mixture_node *nodes;
    uint32_t n_nodes;
    const struct mr_mixture_change *changes;
    uint32_t n_changes;
};

struct mr_mixture_item {
    uint32_t node;   /* the source */
    uint64_t number; /* of the item in the source's stream, over all epochs */
    uint64_t epoch;  /* of the source */
    uint64_t sample; /* 0 ... samples - 1 */
};

/* What a node was asked for and has given before item k of the stream. */
struct mr_mixture_share {
    uint64_t given; /* items */
    double asked;   /* items: the integral of its weight over the parent's items; |given - asked| < 1 */
    double weight;  /* its quantised share among its siblings now, 0 ... 1 */
    double epochs;  /* of a source: given / samples; else 0 */
};

struct mr_mixture;

/* Errors: MR_E_USAGE naming the source: a weight that is 0, negative or not a number, or below 1/131,072 of the sum; a
 * source without samples; a tree that is none; changes that do not ascend. -ENOMEM. */
int mr_mixture_create(const struct mr_mixture_params *p, struct mr_mixture **out, struct mr_error *err);
void mr_mixture_free(struct mr_mixture *m); /* accepts NULL */

/* Items first, first + stride, ... n of them. Any k, in any order; the first use of a region makes its table (about
 * 0.1 us per item, at most 131,072 of them; then each item is two table look-ups per level). Errors: MR_E_USAGE for
 * items before a restored state or beyond MR_MIXTURE_MAX_ITEMS, -ENOMEM. */
int mr_mixture_get(struct mr_mixture *m, uint64_t first, uint64_t stride, struct mr_mixture_item *items, size_t n,
                   struct mr_error *err);
/* Item `number` of the source that is node `node`: sets epoch and sample. MR_E_USAGE where it is no source. */
int mr_mixture_sample(struct mr_mixture *m, uint32_t node, uint64_t number, struct mr_mixture_item *item,
                      struct mr_error *err);
/* Of every node, n_nodes of them. */
int mr_mixture_shares(struct mr_mixture *m, uint64_t k, struct mr_mixture_share *shares, struct mr_error *err);
/* In how many versions of its weights node `node` has been before its item k, less one: 0 before the first change. */
uint32_t mr_mixture_weights_version(const struct mr_mixture *m, uint32_t node, uint64_t k);

/* The state before item k as text: one line for the mixture and one per node, together less than 1 KiB per node. */
int mr_mixture_save(struct mr_mixture *m, uint64_t k, char **text, struct mr_error *err); /* free() it */
/* Continues there: *k is the next item. The mixture may have other changes of weights than the saved one from item k on,
 * not before. Items before k can then no longer be asked for. Errors: MR_E_USAGE naming what differs (another seed,
 * source, number of samples, weights), MR_E_FORMAT for text that is not a state; the mixture is as before. */
int mr_mixture_restore(struct mr_mixture *m, const char *text, uint64_t *k, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
