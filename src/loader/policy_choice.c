/* The one place where a policy is chosen: mr_loader_choose of <millrace/loader.h>; and policy_choice.h. */
#include "loader/policy_choice.h"
#include "policy/policy.h"
#include "tier/tier_spec.h"

static bool is_given(const char *text)
{
    return text && *text;
}

static int refuse_order(const struct mr_policy_ops *ops, struct mr_error *err)
{
    mr_error_plain(err, MR_E_UNSUPPORTED, "policy '%s' changes the sample order, which this loader preserves",
                   ops->name);
    return mr_error_hint(err, "'millrace' keeps the order; 'millrace sim' simulates '%s'", ops->name), MR_E_UNSUPPORTED;
}

static int refuse_tiers(const struct mr_policy_ops *ops, struct mr_error *err)
{
    mr_error_plain(err, MR_E_USAGE, "tiers are given, but policy '%s' keeps nothing in them", ops->name);
    return mr_error_hint(err, "leave out the tiers, or take 'millrace', 'nopfs' or 'lbann-dynamic'"), MR_E_USAGE;
}

static int check_tiers(const char *tiers, struct mr_error *err)
{
    struct mr_tier_spec s;
    int rc = mr_tier_spec_read(tiers, &s, err);
    if (!rc)
        mr_tier_spec_done(&s);
    return rc;
}

int mr_loader_choose(const char *policy, const char *tiers, struct mr_loader_choice *out, struct mr_error *err)
{
    enum mr_policy_id id;
    bool tiered = is_given(tiers);
    int rc = mr_policy_parse(is_given(policy) ? policy : tiered ? "millrace" : "staging", &id, err);
    if (rc)
        return rc;
    const struct mr_policy_ops *ops = mr_policy_get_ops(id);
    if (ops->reorders || ops->redraw)
        return refuse_order(ops, err);
    if (tiered && !ops->keeps)
        return refuse_tiers(ops, err);
    if (tiered && (rc = check_tiers(tiers, err)))
        return rc;
    *out = (struct mr_loader_choice){.policy = ops->name,
                                     .tiers = !ops->keeps ? NULL
                                              : tiered    ? tiers
                                                          : "auto",
                                     .reads_ahead = ops->prefetches || ops->keeps || id == MR_POLICY_PERFECT,
                                     .is_perfect = id == MR_POLICY_PERFECT};
    return 0;
}

int mr_policy_tell_tiers(const char *tiers, uint64_t set_bytes, uint64_t largest, uint32_t local_ranks, char *out,
                         size_t cap, struct mr_error *err)
{
    const struct mr_tier_need need = {.set_bytes = set_bytes, .largest = largest, .local_ranks = local_ranks};
    struct mr_tier_spec s;
    int rc = mr_tier_spec_parse(tiers, &need, &s, err);
    if (rc)
        return rc;
    mr_tier_spec_text(&s, out, cap);
    mr_tier_spec_done(&s);
    return 0;
}
