/* Preprocessing of a picture of which only a part was decoded: what is needed is known once the picture's size is, so a
 * decoder that can leave rows and columns out asks before it starts. */
#ifndef MR_LOADER_PREPROCESS_PART_H
#define MR_LOADER_PREPROCESS_PART_H

#include <millrace/plugin_format.h>
#include <millrace/preprocess.h>

struct mr_rect {
    uint32_t top, left, height, width;
};

/* What becomes of one picture in one epoch. */
struct mr_preprocess_plan {
    struct mr_rect from;    /* cut out of the picture */
    uint32_t height, width; /* that is resized to this */
    struct mr_rect result;  /* and this is cut out of the resized picture */
    bool flip;
    struct mr_rect need; /* source pixels that the result is made of */
};

/* For a picture of this size. Pure. MR_E_USAGE for a picture smaller than a crop. */
int mr_preprocess_plan(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, uint64_t height, uint64_t width,
                       struct mr_preprocess_plan *out, struct mr_error *err);
/* mr_preprocess_run with a part of the picture that holds at least what is needed; part NULL: all of it. */
int mr_preprocess_run_part(struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct mr_sample *in,
                           const struct mr_part *part, void *dst, size_t cap, size_t *bytes, struct mr_error *err);

#endif
