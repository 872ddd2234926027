/* From a workload to its data set: the one place that turns a workload into the generator's spec, and the one that
 * drives the generator over the ranks of a job. `gen`, `run --generate` and `workloads check` write the same bytes for
 * the same workload because all of them come here. */
#ifndef MR_JOB_JOB_GENERATE_H
#define MR_JOB_JOB_GENERATE_H

#include "comm/comm.h"
#include "conf/workload.h"
#include "dataset/generate.h"

/* The specs of the training and the evaluation set (0 files: there is none); `valid` may be NULL. What a workload
 * cannot say (labels, JPEG quality) has the generator's default. Errors: MR_E_UNSUPPORTED for a compression that the
 * generator lacks. */
int mr_job_gen_spec(const struct mr_workload *w, struct mr_arena *a, struct mr_gen_spec *train,
                    struct mr_gen_spec *valid, struct mr_error *err);

/* One split on its way: what it is, where it goes, what became of it. */
struct mr_job_split {
    const char *name; /* "train", "valid"; borrowed */
    struct mr_gen_plan plan;
    struct mr_gen_estimate estimate;
    struct mr_gen_result result; /* of all ranks */
    char folder[4096];
    uint64_t free_bytes; /* after mr_job_gen_estimate; UINT64_MAX: the store cannot tell */
    double seconds;
};

struct mr_job_gen_params {
    const char *folder; /* the splits go to FOLDER/train and FOLDER/valid; as all here, borrowed */
    const char *store;
    unsigned threads; /* per rank; 0: the CPUs divided by the local ranks */
    bool overwrite, repair, fsync;
    bool makes_valid; /* leaves an empty FOLDER/valid when there is no evaluation set, as DLIO wants it */
    const atomic_bool *stop;
    atomic_bool *all_stop; /* shared by forked ranks, or NULL */
    FILE *progress;        /* of rank 0; NULL: silent */
};

/* Resolves one split; no I/O. */
int mr_job_split_init(struct mr_job_split *s, const struct mr_gen_spec *spec, const char *name, const char *folder,
                      struct mr_error *err);
/* Collective over the ranks of `c`: writes the splits, each continued where an earlier call was interrupted. All ranks
 * return the same code. Errors: those of mr_gen_*, MR_E_USAGE for a store that keeps nothing or is not shared. */
int mr_job_generate(const struct mr_job_gen_params *p, struct mr_comm *c, struct mr_job_split *splits, unsigned n,
                    struct mr_error *err);
/* What the splits will take and whether it fits; writes nothing. */
int mr_job_gen_estimate(const struct mr_job_gen_params *p, struct mr_job_split *splits, unsigned n,
                        struct mr_error *err);

#endif
