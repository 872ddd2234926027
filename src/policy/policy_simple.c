/* Policies without memory: perfect (no I/O at all), naive (read when asked) and staging (read ahead, keep nothing). */
#include "policy/policy_internal.h"

const struct mr_policy_ops mr_policy_perfect_ops = {MR_POLICY_HEAD, .name = "perfect",
                                                    .doc = "every request is immediate: the compute-only lower bound"};
const struct mr_policy_ops mr_policy_naive_ops = {
    MR_POLICY_HEAD, .name = "naive", .doc = "read from the PFS on demand; fetch, write and compute in series",
    .expected = &mr_expected_pfs};
const struct mr_policy_ops mr_policy_staging_ops = {
    MR_POLICY_HEAD, .name = "staging", .doc = "staging buffer filled from the PFS in access order (double buffering)",
    .prefetches = true, .expected = &mr_expected_pfs};
