/* A policy, as a plug-in provides it (and as every built-in one does): pure decisions about where samples come from and
 * where they stay. No I/O, no threads, no clock: an engine (the simulator) asks and executes, so one process may run
 * many of them.
 *
 * The engine keeps one directory of who holds what, reads samples by three kinds of work and asks the policy at each:
 *   staging  the next samples a node will consume, in access order: from its own classes, a peer or the PFS, as far as
 *            the flags of the policy allow
 *   keeping  a staged sample has arrived: does it stay in a storage class? (ops->keep)
 *   filling  a background thread of a class is free: which sample next? (ops->next_fill), before the start (preload) or
 *            while training runs
 *
 * What must stay true: what is put into a class never exceeds its capacity (mr_policy_capacity_mb); only samples that
 * have arrived are put; decisions follow from the world and the calls alone, so a run can be repeated.
 * Ownership: `create` sets p->state, `free` frees it (called after a failed create as well, then with what is there).
 * Errors: create returns MR_E_UNSUPPORTED with the reason when the scenario does not suit the policy (shown in the
 * table), -ENOMEM. The other operations cannot fail.
 * Thread safety: one policy object belongs to one thread; several run at the same time.
 *
 * This interface is the simulator's. It will change (and its abi number with it) when the loader executes policies.
 *
 * How to write one: examples/plugins/policy_skeleton.c; the conformance suite takes plug-ins (doc/plugins.md). */
#ifndef MILLRACE_PLUGIN_POLICY_H
#define MILLRACE_PLUGIN_POLICY_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_POLICY_ABI 1
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
    double *used_mb;   /* see mr_directory_used_mb */
};
/* MB that `storage_class` of `node` holds. */
double mr_directory_used_mb(const struct mr_directory *d, uint32_t node, unsigned storage_class);
/* For engines and tests: a directory in which nobody holds anything. */
int mr_directory_init(struct mr_directory *d, uint32_t nodes, uint64_t samples, const float *size_mb,
                      struct mr_error *err);
void mr_directory_done(struct mr_directory *d);
void mr_directory_put(struct mr_directory *d, uint32_t node, uint32_t id, unsigned storage_class);
/* Announces a sample that is on its way; does nothing when it is held already. */
void mr_directory_announce(struct mr_directory *d, uint32_t node, uint32_t id);
void mr_directory_drop(struct mr_directory *d, uint32_t node, uint32_t id);
/* A node other than `node` that holds the sample, or MR_NO_SAMPLE. */
uint32_t mr_directory_peer(const struct mr_directory *d, uint32_t node, uint32_t id);

struct mr_system;
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
/* The storage classes of a node: 0 is the staging buffer, so a policy that keeps samples uses 1 and up. */
unsigned mr_policy_classes(const struct mr_policy_world *w);
double mr_policy_capacity_mb(const struct mr_policy_world *w, unsigned storage_class);

struct mr_policy;
struct mr_policy_ops {
    uint32_t abi, size; /* MR_POLICY_ABI, sizeof(struct mr_policy_ops) */
    const char *name, *doc;
    bool reorders;                 /* changes the order of samples, so results must say so; needs redraw */
    bool prefetches;               /* has a staging buffer filled ahead */
    bool from_classes, from_peers; /* sources that staging may use beside the PFS */
    bool preloads;                 /* fills are complete before the first step */
    /* NULL-able ones are optional. create says MR_E_UNSUPPORTED with the reason when the scenario does not suit it. */
    int (*create)(struct mr_policy *p, struct mr_error *err);
    void (*free)(struct mr_policy *p);
    /* The next sample to fill into `storage_class` of `node`, or MR_NO_SAMPLE for now; asked when a filler thread is
     * free. */
    uint32_t (*next_fill)(struct mr_policy *p, uint32_t node, unsigned storage_class);
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

/* Adds a policy under its name; `ops` must outlive all use. abi, size and name are checked: MR_E_UNSUPPORTED,
 * MR_E_USAGE, -EEXIST (the name is taken), MR_E_LIMIT. At the start, before policies are used. */
int mr_policy_register(const struct mr_policy_ops *ops, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
