/* Inside src/order: one level of a mixture, the sequence in which the children of one node take turns. See
 * mixture_turns.c. Belongs to one thread. */
#ifndef MR_ORDER_MIXTURE_TURNS_H
#define MR_ORDER_MIXTURE_TURNS_H

#include <millrace/mixture.h>

struct mr_turns;

/* n children with these weights, whose sum is MR_MIXTURE_UNIT. `seed` decides among children that are equally due. */
int mr_turns_create(uint32_t n, const uint32_t *weights, uint64_t seed, struct mr_turns **out, struct mr_error *err);
void mr_turns_free(struct mr_turns *p);
/* From item `from` on, behind all earlier changes, these weights. */
int mr_turns_change(struct mr_turns *p, uint64_t from, const uint32_t *weights, struct mr_error *err);
/* Before item k the children have given so many items, of which the sum is k: continue there. */
int mr_turns_start(struct mr_turns *p, uint64_t k, const uint64_t *given, struct mr_error *err);

/* Item k: the child, and which of its own items it is. k is below MR_MIXTURE_MAX_ITEMS and not before the start. */
int mr_turns_at(struct mr_turns *p, uint64_t k, uint32_t *child, uint64_t *number, struct mr_error *err);
/* The items that each child has given before item k. */
int mr_turns_given(struct mr_turns *p, uint64_t k, uint64_t *given, struct mr_error *err);
/* The same as the weights have it, in 1 / MR_MIXTURE_UNIT of an item. */
uint64_t mr_turns_asked(const struct mr_turns *p, uint32_t child, uint64_t k);
uint32_t mr_turns_weight(const struct mr_turns *p, uint32_t child, uint64_t k);
uint32_t mr_turns_version(const struct mr_turns *p, uint64_t k); /* of the weights of item k, from 0 */
uint64_t mr_turns_hash(const struct mr_turns *p, uint64_t k);    /* of all weights before item k */
uint64_t mr_turns_first(const struct mr_turns *p);               /* the start */

#endif
