/* Inside src/order: the tree of a mixture, as mixture.c makes it and mixture_state.c saves it. */
#ifndef MR_ORDER_MIXTURE_PARTS_H
#define MR_ORDER_MIXTURE_PARTS_H

#include "order/mixture_turns.h"

struct mix_node {
    char name[MR_MIXTURE_MAX_NAME];
    uint32_t parent, place; /* place: among the children of the parent */
    uint32_t n_children, *child;
    struct mr_turns *turns; /* of the children */
    uint64_t last_change;
    bool by_tokens; /* the weights of the children are shares of tokens */
    bool weighted;  /* has a weight above 0 in some version */
    bool sequential;
    double tokens;
    uint64_t samples, seed; /* of a source */
    struct mr_order *order; /* of a source; made when first needed */
};

struct mr_mixture {
    uint64_t seed;
    uint32_t n;
    struct mix_node *node;
};

/* Items that each node has given before item k. */
int mr_mixture_given(struct mr_mixture *m, uint64_t k, uint64_t *given, struct mr_error *err);

#endif
