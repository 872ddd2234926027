/* What the two sides of JSON share: records as they are (format_json.c) and a field per member (json_fields.c). */
#ifndef MR_FORMAT_JSON_PARTS_H
#define MR_FORMAT_JSON_PARTS_H

#include "format/json_push.h"

enum mr_member_kind { MR_MEMBER_STRING, MR_MEMBER_NUMBER, MR_MEMBER_NULL, MR_MEMBER_ARRAY, MR_MEMBER_TEXT };

/* A member of a record. ARRAY: of numbers, rectangular; TEXT: anything else, kept as it is written. */
struct mr_json_member {
    uint64_t record;
    const char *name; /* not terminated, until the function returns */
    size_t name_len;
    struct mr_extent where;
    enum mr_member_kind kind;
    bool integers;
    int64_t value; /* of an integer */
    struct mr_dims dims;
};
struct mr_json_events {
    void *user;
    int (*member)(void *user, const struct mr_json_member *m, struct mr_error *err);
    int (*record)(void *user, uint64_t record, struct mr_error *err); /* its members were there */
};
struct mr_json_facts {
    bool gzip, numbers; /* every record has an array of numbers called x, data, ... */
    enum mr_dtype dtype;
    struct mr_field shape; /* of these arrays: variable and dims */
};
int mr_json_walk(struct mr_store *s, const char *path, bool lines, mr_scan_fn *fn, void *user,
                 const struct mr_json_events *events, struct mr_json_facts *facts, struct mr_layout *layout,
                 struct mr_error *err);
/* The numbers of a JSON array, as elements of this type. */
int mr_json_array_decode(struct mr_decoder *d, const struct mr_sample_ref *ref, enum mr_dtype dtype, const void *raw,
                         size_t len, struct mr_sample_out *out, struct mr_error *err);

/* Layout version 2: a member. */
bool mr_json_is_member(const struct mr_layout *layout);
bool mr_json_member_gzip(const struct mr_layout *layout);
int mr_json_member_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err);
int mr_json_member_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                          const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err);
extern const struct mr_field_ops mr_json_field_ops, mr_jsonl_field_ops;

#endif
