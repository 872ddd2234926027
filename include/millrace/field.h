/* Fields: what a sample is made of. A data set has a schema, an ordered list of fields; a sample has a value of each.
 * The first one is the primary field: what programs get that ask for no fields. doc/internals/fields.md has the design.
 *
 * Thread safety: plain data. Ownership: strings belong to whoever hands the struct out, and are copied where it is
 * taken, unless a comment says otherwise. */
#ifndef MILLRACE_FIELD_H
#define MILLRACE_FIELD_H

#include <millrace/dtype.h>
#include <millrace/plugin_option.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_FIELDS_MAX 4096u
#define MR_FIELD_NAME_MAX 256u /* with the terminating NUL */

/* How a value lies in its file; what decoding makes of it is dtype and dims. These numbers are kept in manifests. */
enum mr_field_storage {
    MR_FIELD_RAW,   /* an array of numbers, or bytes */
    MR_FIELD_LABEL, /* an integer that the manifest itself keeps: it costs no read */
    MR_FIELD_JPEG,  /* a picture's file: height x width x channels of u1 once it is decoded */
    MR_FIELD_PNG,
    MR_FIELD_TEXT, /* characters: an array of u1 */
    MR_FIELD_NPY,  /* a .npy file inside another one */
    MR_FIELD_STORAGES
};

/* What training takes it for. Kept in manifests. OTHER is not delivered unless it is asked for by name. */
enum mr_field_role { MR_FIELD_INPUT, MR_FIELD_TARGET, MR_FIELD_WEIGHT, MR_FIELD_OTHER, MR_FIELD_ROLES };

#define MR_FIELD_FIXED (-1)     /* all samples have `dims` */
#define MR_FIELD_ANY_SHAPE (-2) /* samples differ in more than one axis, or in how many they have */

struct mr_field {
    const char *name; /* UTF-8, not empty, shorter than MR_FIELD_NAME_MAX, no control characters */
    enum mr_dtype dtype;
    enum mr_field_storage storage;
    enum mr_field_role role;
    /* MR_FIELD_FIXED, MR_FIELD_ANY_SHAPE (dims are not set then), or the one axis in which samples differ, whose entry
     * in dims is 0. */
    int variable;
    struct mr_dims dims;
};
const char *mr_field_storage_name(enum mr_field_storage s); /* "raw", "label", "jpeg", "png", "text", "npy" */
const char *mr_field_role_name(enum mr_field_role r);       /* "input", "target", "weight", "other" */

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
