/* Gathering the fields of a file while its samples are found one by one: tar, TFRecord, CSV and JSON name the parts of
 * every sample again. The first sample says which fields there are; every later one must have the same (F1 of
 * doc/internals/fields.md), with the same types; shapes are widened until they fit all.
 *
 *     per sample:   find (by name), value ... for each part, then sample
 *     at the end:   finish, which has the format settle each field
 *
 * Belongs to one scan. Files whose records may stay as they are keep them beside it (struct mr_gather_whole). At the end
 * of a file that is written, mr_field_layouts makes what its fields need. */
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
    unsigned primary; /* the format's choice, in the first sample; looked at where no fields were asked for */
    bool has_primary; /* the format's own */
    int64_t label;    /* of the sample under way, from the format; MR_LABEL_NONE again after it */
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
/* The sample is complete: MR_E_FORMAT names what it lacks. */
int mr_gather_sample(struct mr_gather *g, const char *key, struct mr_error *err);
/* The number of the primary field, once there was a sample. */
static inline unsigned mr_gather_primary(const struct mr_gather *g)
{
    return g->order[0];
}
/* Settles type, storage and role of field k and makes its layout; a label has none. Of a file without fields: the layout
 * of the one field "data" (f is NULL). */
typedef int mr_gather_settle_fn(void *user, struct mr_gather_field *f, unsigned k, bool primary, struct mr_layout *out,
                                struct mr_error *err);
/* All samples were there. */
int mr_gather_finish(struct mr_gather *g, mr_gather_settle_fn *settle, void *user, struct mr_error *err);

/* Records of a file that stays as it is: one field, and labels where all have one of 32 bits. */
struct mr_gather_whole {
    struct mr_sample_ref *item;
    size_t n, cap;
};
/* For a format's walk: `whole` is a struct mr_gather_whole. */
int mr_gather_whole_keep(void *whole, const struct mr_sample_ref *ref, const char *key, struct mr_error *err);
/* `layout` becomes the sink's in any case. labelled: the labels are to be looked at. */
int mr_gather_whole_report(const struct mr_gather_whole *w, const struct mr_field *data, bool labelled,
                           struct mr_layout *layout, const struct mr_field_sink *sink, struct mr_error *err);

/* The layouts of a writer's fields, none for labels, unless `rc` says that it failed: then, and where one cannot be made,
 * all are empty. Returns rc, or that error. */
int mr_field_layouts(const struct mr_field *field, unsigned n, int rc,
                     int (*make)(void *user, unsigned k, struct mr_layout *out, struct mr_error *err), void *user,
                     struct mr_layout *out, struct mr_error *err);

#endif
