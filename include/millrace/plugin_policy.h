/* A policy, as a plug-in provides it (and as every built-in one does): decisions about where samples come from and
 * where they stay, made by every node for itself, without talking to the others. No I/O, no clock, no threads: an
 * engine (the simulator, the loader) asks and executes. doc/internals/policy.md has the invariants by number and what
 * each policy computes.
 *
 *   world     what all nodes agree on before the first step: the schedule (who reads which sample when), sizes, and the
 *             capacity of every class of every node
 *   instance  one per node: what `create` makes
 *   class     storage of a node: 0 is the staging buffer, through which everything goes; a policy that keeps samples
 *             uses 1 and up, the fastest first
 *
 * The engine of a node asks `plan` once for every access of its ranks, in ascending order, ahead of the read; asks
 * `next_fill` whenever a background thread of a class is free; and tells `on_result` what became of it.
 *
 * What must stay true (the conformance suite checks it; doc/internals/policy.md numbers it):
 *   - decisions follow from the world, the node and the accesses planned so far, never from a clock or from results of
 *     others: two instances with the same world and node decide alike;
 *   - `holds` is a function of the world: every node gives the same answer;
 *   - a peer named as a source holds the sample by the rule; the last source is always the PFS, so a peer that does not
 *     have it after all costs time, never a wrong byte;
 *   - what is planned to stay in a class, fills included, never exceeds its capacity.
 *
 * Ownership: `create` sets *state only on success, `destroy` frees it. The world outlives its instances.
 * Errors: create returns MR_E_UNSUPPORTED with the reason when the world does not suit the policy (shown in the table),
 * -ENOMEM. The other operations cannot fail; where memory runs out they keep less.
 * Thread safety: one instance belongs to one thread at a time, and so does a schedule: instances that share one run in
 * the same thread.
 *
 * How to write one: examples/plugins/policy_skeleton.c; the conformance suite takes plug-ins
 * (doc/guides/plugins.md). */
#ifndef MILLRACE_PLUGIN_POLICY_H
#define MILLRACE_PLUGIN_POLICY_H

#include <millrace/error.h>
#include <millrace/schedule.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_POLICY_ABI 2
#define MR_POLICY_CLASS_MAX 8 /* classes of a node, the staging buffer included */
#define MR_NOT_HELD 0xff      /* instead of a class */
#define MR_NO_SAMPLE UINT64_MAX

/* Something that instances of one policy in one process may share: tables that follow from the world alone. Begins with
 * zeros; whoever has none computes its own. */
struct mr_policy_memo {
    void *data;
    void (*free)(void *data);
};
void mr_policy_memo_done(struct mr_policy_memo *m);

/* What every node knows. */
struct mr_policy_world {
    uint32_t nodes, classes;  /* classes of a node, the staging buffer included */
    const uint64_t *capacity; /* bytes, [node * classes + class] */
    uint64_t samples, epochs; /* epochs that are known, from the start on */
    double node_batch;        /* samples of a node in a step, on average */
    double epoch_share;       /* of the samples that an epoch reads: below 1 where some are left out */
    uint64_t sample_bytes;    /* of every sample; 0: sizes differ, bytes_of knows them */
    uint64_t total_bytes;     /* of the set */
    uint64_t (*bytes_of)(void *user, uint64_t id);
    void *user;
    struct mr_schedule *schedule; /* NULL only for the expected-value form */
    uint64_t skew;                /* how many accesses nodes may be apart: look-ahead of staging plus a step */
    uint64_t horizon;             /* epochs to look ahead for copies of one's own; 0: 8 */
    uint64_t memory_bytes;        /* most that an instance may take; 0: 64 MiB */
    uint64_t seed;                /* for policies that redraw */
    struct mr_policy_memo *memo;  /* or NULL */
};
uint64_t mr_policy_bytes(const struct mr_policy_world *w, uint64_t id);
uint64_t mr_policy_capacity(const struct mr_policy_world *w, uint32_t node, unsigned storage_class);

enum mr_source_kind { MR_FROM_PFS, MR_FROM_PEER, MR_FROM_CLASS };
struct mr_plan_source {
    enum mr_source_kind kind;
    uint32_t node;          /* PEER: who; which of its classes, it knows itself */
    unsigned storage_class; /* CLASS: where the node itself has it */
};

/* What to do for an access. */
struct mr_plan {
    unsigned n_sources; /* at least 1; the last one is the PFS */
    struct mr_plan_source source[3];
    unsigned keep;           /* the class in which the sample is afterwards, or MR_NOT_HELD */
    bool keep_only_from_pfs; /* ... only if that is where it came from */
    unsigned n_evict;        /* given up for it, from whatever class the node has them in */
    const uint64_t *evict;   /* valid until the next plan or next_fill of this instance */
};
/* The usual sources, as far as given: own class (MR_NOT_HELD: none), peers (NULL: none), the PFS. Keeps nothing. */
void mr_plan_sources(struct mr_plan *out, unsigned own_class, const uint32_t *peers, unsigned n_peers);

struct mr_fill {
    uint64_t id, deadline;  /* the access before which it should be there */
    unsigned storage_class; /* where it goes; usually the one asked for */
    unsigned n_sources;
    struct mr_plan_source source[3];
    unsigned n_evict;
    const uint64_t *evict;
};

struct mr_outcome {
    enum mr_source_kind from; /* the source that delivered */
    bool failed;              /* none did */
    bool kept;                /* it is in the planned class now */
};

/* ---- the expected-value form: what the policy does on average, for runs too large for exact tables ---- */

/* Shares of a step's bytes by source; they add up to 1. */
struct mr_expected_split {
    double pfs, peer, own[MR_POLICY_CLASS_MAX];
    unsigned peer_class; /* where the peer has it */
};

/* All nodes in one object. Uses the numbers of the world only, no schedule; nodes are alike. Positions are in epochs
 * from the start (1.5: in the middle of the second). */
struct mr_expected_ops {
    int (*create)(const struct mr_policy_world *w, void **state, struct mr_error *err);
    void (*destroy)(void *state);
    /* Where the accesses of `node` at `position` come from. `draw` in [0, 1) chooses among a peer's classes. */
    void (*stage)(void *state, uint32_t node, double position, double draw, struct mr_expected_split *out);
    /* The next bytes a filler of the class fetches from the PFS, at most max_bytes, when staging has come to
     * `position`; 0: done. NULL: nothing is filled. */
    double (*fill)(void *state, uint32_t node, unsigned storage_class, double position, double max_bytes);
};

/* ---- the policy ---- */

struct mr_policy_ops {
    uint32_t abi, size; /* MR_POLICY_ABI, sizeof(struct mr_policy_ops) */
    const char *name, *doc;
    bool reorders;   /* changes the sample order, so results must say so; needs redraw */
    bool prefetches; /* has a staging buffer filled ahead */
    bool keeps;      /* keeps samples in classes: needs an engine that has some */
    bool preloads;   /* fills are complete before the first step */
    /* `holds` says what a node plans to keep, not since when it has it: a peer that does not have it now is not waited
     * for. Without it, what holds by the rule is there or about to come. */
    bool holds_by_plan;
    /* All of these may be NULL. Without create there is no state; without plan everything comes from the PFS and
     * nothing stays. */
    int (*create)(const struct mr_policy_world *w, uint32_t node, void **state, struct mr_error *err);
    void (*destroy)(void *state);
    /* `id` is what the node reads at `access`: the order's sample, or what redraw has put there. Sets every field. */
    void (*plan)(void *state, uint64_t access, uint64_t id, struct mr_plan *out);
    /* A background thread of `storage_class` is free: the next sample to bring into it, by deadline; false when there
     * is none with a deadline before `horizon`. It counts as held from then on. */
    bool (*next_fill)(void *state, unsigned storage_class, uint64_t horizon, struct mr_fill *out);
    /* What became of the planned access, or of a fill (its deadline and id). */
    void (*on_result)(void *state, uint64_t access, uint64_t id, const struct mr_outcome *o);
    /* Does `node` hold `id` by the rule just before `access`? NULL: nobody holds anything that others could ask for. */
    bool (*holds)(void *state, uint32_t node, uint64_t id, uint64_t access);
    /* Rewrites what the node reads in an epoch: row by row, in each row rank by rank. */
    void (*redraw)(void *state, uint64_t epoch, uint64_t *ids, uint64_t n);
    const struct mr_expected_ops *expected; /* or NULL: the policy takes the exact engine */
};

/* Adds a policy under its name; `ops` must outlive all use. abi, size and name are checked: MR_E_UNSUPPORTED,
 * MR_E_USAGE, -EEXIST (the name is taken), MR_E_LIMIT. At the start, before policies are used. */
int mr_policy_register(const struct mr_policy_ops *ops, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
