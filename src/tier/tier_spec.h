/* What a node gives to the tiers, as text:
 *
 *     ram=2GiB,ssd=/nvme/cache:100GiB,ssd=/sata/cache:1TiB,staging=64MiB,readers=8
 *
 * in any order; SSD folders are classes in the order in which they stand. What is not named is not used, apart from
 * staging, which has a size in any case. "ram=auto", and "auto" or "" for the whole: as much RAM as the data set needs,
 * within what is free without a margin of 10 % or 1 GiB. Folders may hold colons, but no commas. readers: threads of
 * the node that read the source; not given: found by measuring. */
#ifndef MR_TIER_TIER_SPEC_H
#define MR_TIER_TIER_SPEC_H

#include "base/cgroup.h"

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>

#define MR_TIER_SSDS_MAX 6u
#define MR_TIER_AUTO UINT64_MAX

struct mr_tier_spec {
    uint64_t ram, staging; /* bytes; ram 0: no such class */
    unsigned readers;      /* 0: found by measuring */
    unsigned n_ssds;
    struct mr_tier_spec_ssd {
        char *folder;
        uint64_t capacity;
    } ssd[MR_TIER_SSDS_MAX];
    bool ram_chosen, staging_chosen; /* by us */
};

/* What a data set asks of a node. */
struct mr_tier_need {
    uint64_t set_bytes, largest; /* stored bytes of all samples, and of the largest one */
    uint32_t local_ranks;
};

/* Reads the text and chooses what it leaves open from the machine. Errors: MR_E_CONFIG, -ENOMEM. */
int mr_tier_spec_parse(const char *text, const struct mr_tier_need *need, struct mr_tier_spec *out,
                       struct mr_error *err);
void mr_tier_spec_done(struct mr_tier_spec *s);
/* "ram 2.0 GiB, ssd /nvme/cache 100.0 GiB, staging 64.0 MiB (chosen)" */
void mr_tier_spec_text(const struct mr_tier_spec *s, char *out, size_t cap);
/* Memory that the segment takes for it: a class's holes are paid on top of what it holds (space.h). */
uint64_t mr_tier_spec_memory(const struct mr_tier_spec *s, const struct mr_tier_need *need);

/* The two halves of parse. read leaves MR_TIER_AUTO where something is to be chosen. */
int mr_tier_spec_read(const char *text, struct mr_tier_spec *out, struct mr_error *err);
int mr_tier_spec_choose(struct mr_tier_spec *s, const struct mr_tier_need *need, struct mr_machine_memory memory,
                        struct mr_error *err);

#endif
