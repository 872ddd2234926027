/* Generated sets with several fields: what `gen --fields` names, and writing them.
 *
 *     data:f4:16x768x1152,labels:i4:768x1152:target,weight:f4:-:weight
 *
 * name, dtype, shape ("-": one number), role (by the name, unless given). Content of field k is that of a seed of its
 * own, so that every field can be checked alone. */
#ifndef MR_DATASET_GEN_FIELDS_H
#define MR_DATASET_GEN_FIELDS_H

#include "base/content.h"
#include "dataset/manifest.h"

#define MR_GEN_FIELDS_MAX 256u
#define MR_GEN_FIELD_NAME 64u

struct mr_gen_field {
    char name[MR_GEN_FIELD_NAME];
    enum mr_dtype dtype;
    enum mr_field_storage storage;
    enum mr_field_role role;
    struct mr_dims dims;
    uint64_t bytes;
    struct mr_content content;
};

/* Of field k of a set with this content. */
struct mr_content mr_gen_field_content(const struct mr_content *set, unsigned k);

struct mr_gen_plan;
struct mr_sample;
struct mr_gen_scratch;
struct mr_gen_spec;

/* The plan's fields, by its spec; a label where labels are drawn. */
int mr_gen_fields_resolve(struct mr_gen_plan *p, struct mr_error *err);
/* Field k as formats and manifests take it; its name is the plan's. */
struct mr_field mr_gen_plan_field(const struct mr_gen_plan *p, unsigned k);
/* What field k of a sample is. */
int mr_gen_plan_field_sample(const struct mr_gen_plan *p, unsigned k, uint64_t id, struct mr_sample_info *out,
                             struct mr_error *err);
/* As mr_gen_plan_compare, of the field with this name. */
int mr_gen_plan_compare_field(const struct mr_gen_plan *p, const char *name, uint64_t id, const struct mr_sample *have,
                              struct mr_error *err);

#endif
