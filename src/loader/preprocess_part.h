/* Preprocessing of a picture of which only a part was decoded: what is needed is known once the picture's size is, so a
 * decoder that can leave rows and columns out asks before it starts. */
#ifndef MR_LOADER_PREPROCESS_PART_H
#define MR_LOADER_PREPROCESS_PART_H

#include <millrace/plugin_format.h>
#include <millrace/preprocess.h>

/* How far a picture may be reduced before it is resized (mr_preprocess_params.fast): 1, 2, 4 or 8. */
unsigned mr_preprocess_shrink(const struct mr_preprocess *x, const struct mr_preprocess_plan *plan);
/* mr_preprocess_run with a part of the picture that holds at least what is needed; part NULL: all of it. */
int mr_preprocess_run_part(struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct mr_sample *in,
                           const struct mr_part *part, void *dst, size_t cap, size_t *bytes, struct mr_error *err);
/* For what belongs to the picture (preprocess_joint.c): the parameters, and memory that grows and stays. */
const struct mr_preprocess_params *mr_preprocess_params_of(const struct mr_preprocess *x);
void *mr_preprocess_scratch(struct mr_preprocess *x, size_t bytes);

#endif
