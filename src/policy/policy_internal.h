/* What the files of this folder share: each policy's ops, expected-value forms, and what several policies need. */
#ifndef MR_POLICY_POLICY_INTERNAL_H
#define MR_POLICY_POLICY_INTERNAL_H

#include "policy/policy.h"

#define MR_POLICY_EXTERN(id, ops) extern const struct mr_policy_ops mr_policy_##ops##_ops;
MR_POLICY_LIST(MR_POLICY_EXTERN)
#undef MR_POLICY_EXTERN

/* What begins every built-in policy's ops. */
#define MR_POLICY_HEAD .abi = MR_POLICY_ABI, .size = sizeof(struct mr_policy_ops)

/* expected.c */
extern const struct mr_expected_ops mr_expected_pfs, mr_expected_shards, mr_expected_lbann_preload,
    mr_expected_lbann_dynamic, mr_expected_locality, mr_expected_nopfs, mr_expected_millrace;

/* MR_E_UNSUPPORTED with the reason, or 0. */
int mr_policy_need_class(const struct mr_policy_world *w, struct mr_error *err);
/* For stores that are memory only: class 1 of all nodes must hold the set. */
int mr_policy_need_memory(const struct mr_policy_world *w, struct mr_error *err);

#endif
