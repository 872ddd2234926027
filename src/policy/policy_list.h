/* The list of built-in policies. Those of plug-ins come behind them: their identifiers are MR_POLICY_COUNT and up,
 * below mr_policy_count(), which never exceeds MR_POLICY_MAX. */
#ifndef MR_POLICY_POLICY_LIST_H
#define MR_POLICY_POLICY_LIST_H

#include <millrace/error.h>
#include <stdbool.h>

/* X(enum, its ops: mr_policy_<...>_ops). Name and text stand in the ops. */
#define MR_POLICY_LIST(X)                                                                                              \
    X(MR_POLICY_PERFECT, perfect)                                                                                      \
    X(MR_POLICY_NAIVE, naive)                                                                                          \
    X(MR_POLICY_STAGING, staging)                                                                                      \
    X(MR_POLICY_PARALLEL_STAGING, parallel_staging)                                                                    \
    X(MR_POLICY_DEEPIO_ORDERED, deepio_ordered)                                                                        \
    X(MR_POLICY_DEEPIO_OPPORTUNISTIC, deepio_opportunistic)                                                            \
    X(MR_POLICY_LBANN_PRELOAD, lbann_preload)                                                                          \
    X(MR_POLICY_LBANN_DYNAMIC, lbann_dynamic)                                                                          \
    X(MR_POLICY_LOCALITY_AWARE, locality_aware)                                                                        \
    X(MR_POLICY_NOPFS, nopfs)                                                                                          \
    X(MR_POLICY_MILLRACE, millrace)

enum mr_policy_id {
#define MR_POLICY_ENUM(id, ops) id,
    MR_POLICY_LIST(MR_POLICY_ENUM)
#undef MR_POLICY_ENUM
        MR_POLICY_COUNT,
    MR_POLICY_MAX = MR_POLICY_COUNT + 32
};
int mr_policy_count(void); /* built-in ones and those of plug-ins */
const char *mr_policy_name(enum mr_policy_id p);
const char *mr_policy_doc(enum mr_policy_id p);
bool mr_policy_reorders(enum mr_policy_id p);
int mr_policy_parse(const char *name, enum mr_policy_id *out, struct mr_error *err);

#endif
