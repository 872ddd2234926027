/* Gathering the fields of a file while its samples are found one by one: tar, TFRecord, CSV and JSON name the parts of
 * every sample again. The first sample says which fields there are; every later one must have the same (F1 of
 * doc/internals/fields.md), with the same types; shapes are widened until they fit all.
 *
 *     per sample:   find (by name), value ... for each part, then sample
 *     at the end:   roles and labels by the format, then finish
 *
 * Belongs to one scan. */
#ifndef MR_FORMAT_FIELD_GATHER_H
#define MR_FORMAT_FIELD_GATHER_H

#include "format/format.h"

/* One part of a sample. */
struct mr_gather_value {
    struct mr_sample_ref ref; /* its label is not looked at */
    enum mr_dtype dtype;
    enum mr_field_storage storage;
    bool any_shape;
    struct mr_dims dims;
};

struct mr_gather_field {
    struct mr_field field; /* the format sets its role before finish */
    char name[MR_FIELD_NAME_MAX];
    struct mr_sample_ref ref;
    bool seen, known;     /* in this sample; in any */
    uint64_t any, only;   /* the format's own: bits seen in any value, bits seen in all */
    uint64_t first, same; /* the format's own */
};

struct mr_gather {
    const struct mr_field_sink *sink;
    const char *path, *part; /* what a field is in this format: "member", "feature" */
    unsigned n, cap, last, n_seen;
    struct mr_gather_field *field; /* in the order of the first sample */
    unsigned *order;               /* numbers of the sink's fields, the primary one first; NULL: not known yet */
    struct mr_sample_ref *ref;
    uint64_t samples;
};

void mr_gather_init(struct mr_gather *g, const struct mr_field_sink *sink, const char *path, const char *part);
void mr_gather_done(struct mr_gather *g);
/* Is it to be looked at? Not where other fields were asked for. */
bool mr_gather_wants(const struct mr_gather *g, const char *name, size_t len);
/* The number of the field, which is new in the first sample. 0; MR_GATHER_SKIP: nobody asked for it; MR_E_FORMAT: the
 * samples before have no such field, or this one has it twice. `key` names the sample in messages; may be NULL. */
#define MR_GATHER_SKIP 1
int mr_gather_find(struct mr_gather *g, const char *name, size_t len, const char *key, unsigned *k,
                   struct mr_error *err);
/* MR_E_FORMAT: it is of another type than those before. */
int mr_gather_value(struct mr_gather *g, unsigned k, const struct mr_gather_value *v, const char *key,
                    struct mr_error *err);
/* The sample is complete: MR_E_FORMAT names what it lacks. `primary` is looked at for the first one, where no fields
 * were asked for. */
int mr_gather_sample(struct mr_gather *g, unsigned primary, int64_t label, const char *key, struct mr_error *err);
/* The number of the primary field, once there was a sample. */
static inline unsigned mr_gather_primary(const struct mr_gather *g)
{
    return g->order[0];
}
/* All samples were there: `layout` of each field by its number, whose data become the sink's in any case. Of a file
 * without samples the one field is "data", with the one layout. */
int mr_gather_finish(struct mr_gather *g, struct mr_layout *layout, struct mr_error *err);

#endif
