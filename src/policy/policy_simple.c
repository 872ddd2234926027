/* Policies without memory: perfect (no I/O at all), naive (read when asked) and staging (read ahead, keep nothing). */
#include "policy/policy_internal.h"

const struct mr_policy_ops mr_policy_perfect_ops = {.id = MR_POLICY_PERFECT};
const struct mr_policy_ops mr_policy_naive_ops = {.id = MR_POLICY_NAIVE};
const struct mr_policy_ops mr_policy_staging_ops = {.id = MR_POLICY_STAGING, .prefetches = true};
