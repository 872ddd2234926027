/* A job over tiers: what was asked for, and what the nodes' memory, SSDs, peers and the source gave. */
#ifndef MR_JOB_JOB_TIERS_H
#define MR_JOB_JOB_TIERS_H

#include "job/job.h"

/* What reader.policy and reader.tiers amount to, for this job. Errors: those of mr_loader_choose. */
int mr_job_policy(const struct mr_job *j, struct mr_loader_choice *out, struct mr_error *err);
/* Keys that do not go together: MR_E_CONFIG, and the errors of the policy. */
int mr_job_check_tiers(const struct mr_job *j, struct mr_error *err);
/* "policy staging", "policy millrace, tiers auto (ram 1.2 GiB (chosen), ...), peers auto": what a dry run says, with
 * all ranks on this machine. */
void mr_job_tell_policy(const struct mr_job *j, struct mr_strbuf *out);

enum { MR_JOB_RAM, MR_JOB_SSD, MR_JOB_PEER, MR_JOB_SOURCE, MR_JOB_SOURCES };
extern const char *const mr_job_sources[MR_JOB_SOURCES];

/* Over all ranks and nodes. */
struct mr_job_tiers {
    bool used;
    uint32_t nodes;
    struct mr_loader_from from[MR_JOB_SOURCES];
    uint64_t samples, bytes; /* from all of them */
    struct mr_loader_tier_stats sum;
    uint64_t distinct_bytes;   /* at most: of the samples that any node read from the source */
    double source_bytes_per_s; /* while the source was read; NAN: not known */
    double bound_s;            /* every distinct byte once at that rate, or the steps' compute if that is longer */
    double train_s;            /* what the epochs took, from the start of the first on, without checkpoints */
};
void mr_job_sum_tiers(const struct mr_job *j, struct mr_job_tiers *out);
/* For the summary: null without tiers. */
json_t *mr_job_tiers_json(const struct mr_job *j);
/* The nodes' lines about what they chose; an empty list without tiers. */
json_t *mr_job_chosen_json(const struct mr_job *j);

#endif
