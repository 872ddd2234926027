/* Policies: pure decisions about where samples come from and where they stay. No I/O, no threads, no clock: an engine
 * (the simulator today, the loader tomorrow) asks and executes.
 *
 * The engine keeps one directory of who holds what, reads samples by three kinds of work and asks the policy at each:
 *   staging  the next samples a node will consume, in access order: from where? (mr_policy_source)
 *   keeping  a staged sample has arrived: does it stay in a storage class? (ops->keep)
 *   filling  a background thread of a class is free: which sample next? (ops->next_fill), before the start (preload) or
 *            while training runs
 *
 * How to add a policy: one file policy_<name>.c with its ops, one row in MR_POLICY_LIST (policy_list.h). */
#ifndef MR_POLICY_POLICY_H
#define MR_POLICY_POLICY_H

#include "model/model.h"
#include "policy/policy_list.h"

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>

#define MR_NOT_HELD 0xff
#define MR_INCOMING                                                                                                    \
    0xfe /* on its way into a class of this node; nobody can read it yet, and nobody should fetch it again */
#define MR_NO_SAMPLE UINT32_MAX

/* Who holds what: one byte per node and sample, plus the used space of each class. */
struct mr_directory {
    uint32_t nodes;
    uint64_t samples;
    const float *size_mb;
    uint8_t *held;     /* [node * samples + id]: class, MR_NOT_HELD or MR_INCOMING */
    uint16_t *holders; /* per sample: how many nodes hold it */
    uint32_t *asked;   /* per sample: the holder that others ask first; may have dropped it since */
    double *used_mb;   /* [node * MR_CLASS_MAX + class] */
};
int mr_directory_init(struct mr_directory *d, uint32_t nodes, uint64_t samples, const float *size_mb,
                      struct mr_error *err);
void mr_directory_done(struct mr_directory *d);
void mr_directory_put(struct mr_directory *d, uint32_t node, uint32_t id, unsigned class);
/* Announces a sample that is on its way; does nothing when it is held already. */
void mr_directory_announce(struct mr_directory *d, uint32_t node, uint32_t id);
void mr_directory_drop(struct mr_directory *d, uint32_t node, uint32_t id);
/* A node other than `node` that holds the sample, or MR_NO_SAMPLE. */
uint32_t mr_directory_peer(const struct mr_directory *d, uint32_t node, uint32_t id);

/* What a policy may know: the machine, the sizes, and the whole future. */
struct mr_policy_world {
    const struct mr_system *system;
    uint32_t nodes, epochs;
    uint64_t samples, steps_per_epoch, per_node;
    const float *size_mb;
    double total_mb;
    struct mr_directory *dir;
    /* Ids that `node` reads in `epoch`, in order: steps_per_epoch * per_node of them, into out. */
    int (*stream)(void *user, uint32_t epoch, uint32_t node, uint32_t *out, struct mr_error *err);
    /* The policy sends a sample from one node's class to another's; the engine moves the bytes. */
    void (*moved)(void *user, uint32_t from, uint32_t to, uint32_t id);
    void *user;
};

enum mr_source_kind { MR_FROM_PFS, MR_FROM_PEER, MR_FROM_CLASS, MR_FROM_INCOMING };
struct mr_source {
    enum mr_source_kind kind;
    uint32_t node;  /* PEER: who */
    unsigned class; /* PEER and CLASS: which */
};

struct mr_policy;
struct mr_policy_ops {
    enum mr_policy_id id;
    bool prefetches;               /* has a staging buffer filled ahead */
    bool from_classes, from_peers; /* sources that staging may use beside the PFS */
    bool preloads;                 /* fills are complete before the first step */
    /* NULL-able ones are optional. create says MR_E_UNSUPPORTED with the reason when the scenario does not suit it. */
    int (*create)(struct mr_policy *p, struct mr_error *err);
    void (*free)(struct mr_policy *p);
    /* The next sample to fill into `class` of `node`, or MR_NO_SAMPLE for now; asked when a filler thread is free. */
    uint32_t (*next_fill)(struct mr_policy *p, uint32_t node, unsigned class);
    bool fill_from_peers;
    /* Will keep() store a sample read from the PFS? Then it is announced, and fillers leave it alone. */
    bool (*will_keep)(const struct mr_policy *p, uint32_t node, uint32_t id);
    /* Access number `k` (over all epochs) of `node` has been staged: updates the directory (keep, evict). */
    void (*keep)(struct mr_policy *p, uint32_t node, uint32_t id, uint64_t k);
    /* Policies that change the order: rewrites the node's accesses of an epoch in place. */
    void (*redraw)(struct mr_policy *p, uint32_t epoch, uint32_t node, uint32_t *ids, uint64_t n, uint64_t seed);
};

struct mr_policy {
    const struct mr_policy_ops *ops;
    struct mr_policy_world world;
    void *state;
};

const struct mr_policy_ops *mr_policy_get_ops(enum mr_policy_id id);
int mr_policy_create(enum mr_policy_id id, const struct mr_policy_world *w, struct mr_policy *p, struct mr_error *err);
void mr_policy_free(struct mr_policy *p);
/* Where staging should take the sample from, now: own class, else a peer, else what is already on its way
 * here, else the PFS, as far as the policy uses them. */
struct mr_source mr_policy_source(const struct mr_policy *p, uint32_t node, uint32_t id);

#endif
