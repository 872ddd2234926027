/* What a policy's name and a specification of tiers amount to in the loader: one answer for the loader itself, for a
 * dry run and for a prediction. Nothing is opened. */
#ifndef MR_LOADER_POLICY_CHOICE_H
#define MR_LOADER_POLICY_CHOICE_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_policy_choice {
    const char *policy; /* its name; the registry's */
    const char *tiers;  /* the specification; NULL: no tiers */
    bool reads_ahead;
    bool is_perfect; /* hands out prepared batches */
};

/* NULL and "" are: not given. Errors: MR_E_CONFIG (tiers that cannot be read), MR_E_USAGE (no such policy, tiers for
 * one that keeps nothing, a policy that changes the order without leave), MR_E_UNSUPPORTED (one that changes the order,
 * in this version). */
int mr_policy_choose(const char *policy, const char *tiers, bool allow_reorder, struct mr_policy_choice *out,
                     struct mr_error *err);

/* What these tiers would be on this machine, now: "ram 2.0 GiB (chosen), staging 64.0 MiB (chosen)". `largest` is the
 * largest sample. Errors: those of opening them, as far as they are known before. */
int mr_policy_tell_tiers(const char *tiers, uint64_t set_bytes, uint64_t largest, uint32_t local_ranks, char *out,
                         size_t cap, struct mr_error *err);

#endif
