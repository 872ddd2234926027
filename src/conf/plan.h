/* What a workload amounts to, before anything runs: files, samples, bytes, steps, checkpoints, the bandwidth one
 * accelerator asks for, and the least time it can take. Pure arithmetic over a resolved workload.
 *
 * Steps: each of R ranks reads floor(samples / R) samples and floor(that / batch_size) batches of them (drop_last, as
 * DLIO does), or, with reader.drop_last off, ceil of both: then the head of the order is repeated so that all ranks get
 * equally many, and the last batch is smaller.
 *
 * Checkpoint of a transformer (P parameters, hidden size h): model = P x model_datatype, optimizer = (3 P + 15 h) x
 * optimizer_datatype. Files: ZeRO 0: tensor x pipeline of each; ZeRO 1 and 2: the model by the first replica (one file
 * per layer and tensor rank when there are pipeline stages, else one per tensor rank), the optimizer by every rank;
 * ZeRO 3: both by every rank. */
#ifndef MR_CONF_PLAN_H
#define MR_CONF_PLAN_H

#include "conf/workload.h"

struct mr_plan_checkpoint {
    uint64_t parameters; /* 0: not a transformer */
    double model_bytes, optimizer_bytes;
    uint64_t model_files, optimizer_files;
    uint64_t writes, reads; /* over the whole run */
    double scale;           /* every file is written with this share of its size; 0: with all of it */
};

struct mr_workload_plan {
    uint32_t ranks;
    uint64_t train_files, eval_files, train_samples, eval_samples;
    double record_bytes; /* mean */
    double read_bytes;   /* of a record: of the fields that are read */
    double train_bytes, eval_bytes;
    uint64_t steps_per_epoch, total_steps; /* of each rank */
    uint64_t samples_left_out;             /* per epoch, by drop_last */
    uint64_t eval_steps, evaluations;
    double compute_s;        /* mean of one step */
    double need_bytes_per_s; /* of one accelerator; 0 when compute_s is 0: then it is unlimited */
    struct mr_plan_checkpoint checkpoint;
    double train_s, eval_s, pause_s; /* lower bound of the duration: compute only */
};

/* A model that is neither a transformer nor listed: ranks that write it, and files each of them writes (three for
 * TensorFlow: graph, index, tensors; or as checkpoint.files lists them). */
uint64_t mr_plan_blob_writers(const struct mr_workload *w, uint64_t ranks);
uint64_t mr_plan_blob_files(const struct mr_workload *w);
/* ranks 0: what the workload says (x-millrace.ranks), else what its model needs, else 1. MR_E_CONFIG when the model
 * does not fit the ranks or a figure leaves all bounds. */
int mr_plan_make(const struct mr_workload *w, uint32_t ranks, struct mr_workload_plan *out, struct mr_error *err);

#endif
