/* The list of policies: one row gives the identifier, the name and the text everywhere. */
#ifndef MR_POLICY_POLICY_LIST_H
#define MR_POLICY_POLICY_LIST_H

#include <millrace/error.h>
#include <stdbool.h>

/* X(enum, name, changes the sample order, doc) */
#define MR_POLICY_LIST(X)                                                                                              \
    X(MR_POLICY_PERFECT, "perfect", false, "every request is immediate: the compute-only lower bound")                 \
    X(MR_POLICY_NAIVE, "naive", false, "read from the PFS on demand; fetch, write and compute in series")              \
    X(MR_POLICY_STAGING, "staging", false, "staging buffer filled from the PFS in access order (double buffering)")    \
    X(MR_POLICY_PARALLEL_STAGING, "parallel-staging", true,                                                            \
      "shards copied to the last class, batches redrawn from local samples")                                           \
    X(MR_POLICY_DEEPIO_ORDERED, "deepio-ordered", false,                                                               \
      "shards preloaded into memory, staged from own or peer memory")                                                  \
    X(MR_POLICY_DEEPIO_OPPORTUNISTIC, "deepio-opportunistic", true,                                                    \
      "as deepio-ordered, batches redrawn from cached samples")                                                        \
    X(MR_POLICY_LBANN_PRELOAD, "lbann-preload", false,                                                                 \
      "as deepio-ordered; needs the data set to fit all nodes' memory")                                                \
    X(MR_POLICY_LBANN_DYNAMIC, "lbann-dynamic", false, "the first reader of a sample keeps it and serves the others")  \
    X(MR_POLICY_LOCALITY_AWARE, "locality-aware", false,                                                               \
      "shards preloaded into the last class, batch items read where they are held")                                    \
    X(MR_POLICY_NOPFS, "nopfs", false, "classes filled by access frequency, staging from the cheapest source")         \
    X(MR_POLICY_MILLRACE, "millrace", false, "PFS only for what no peer holds in time; next-use placement")

enum mr_policy_id {
#define MR_POLICY_ENUM(id, name, reorders, doc) id,
    MR_POLICY_LIST(MR_POLICY_ENUM)
#undef MR_POLICY_ENUM
        MR_POLICY_COUNT
};
const char *mr_policy_name(enum mr_policy_id p);
const char *mr_policy_doc(enum mr_policy_id p);
bool mr_policy_reorders(enum mr_policy_id p);
int mr_policy_parse(const char *name, enum mr_policy_id *out, struct mr_error *err);

#endif
