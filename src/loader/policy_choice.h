/* What tiers amount to on this machine, for a dry run and 'millrace doctor'. What a policy's name and a specification of
 * tiers amount to is mr_loader_choose of <millrace/loader.h>, in policy_choice.c. Nothing is opened. */
#ifndef MR_LOADER_POLICY_CHOICE_H
#define MR_LOADER_POLICY_CHOICE_H

#include <millrace/loader.h>

/* What these tiers would be on this machine, now: "ram 2.0 GiB (chosen), staging 64.0 MiB (chosen)". `largest` is the
 * largest sample. Errors: those of opening them, as far as they are known before. */
int mr_policy_tell_tiers(const char *tiers, uint64_t set_bytes, uint64_t largest, uint32_t local_ranks, char *out,
                         size_t cap, struct mr_error *err);

#endif
