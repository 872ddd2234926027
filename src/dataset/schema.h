/* The schema of a data set in memory: its fields and, for those beyond the primary one, where their values lie. Bytes:
 * doc/internals/fields.md. Read from a manifest, or made up for one that has none ("data", and "label" where there are
 * labels). Immutable once it is loaded.
 *
 * Building: create, one add per file, then put the fields (whose dims only the last file settles) and write. */
#ifndef MR_DATASET_SCHEMA_H
#define MR_DATASET_SCHEMA_H

#include "base/strbuf.h"
#include "dataset/column.h"
#include "format/format.h"

#include <millrace/field.h>

/* The columns that a field beyond the primary one has. */
enum mr_field_column { MR_FC_OFFSET, MR_FC_LENGTH, MR_FC_AUX, MR_FC_LAYOUT, MR_FC_COUNT };

struct mr_schema_field {
    struct mr_field field; /* its name lies in the schema */
    uint64_t sum_bytes, min_bytes, max_bytes;
    bool own; /* it has columns; else it is the primary field, or a label */
    struct mr_column column[MR_FC_COUNT];
};

struct mr_schema {
    unsigned n;
    struct mr_schema_field *field;
    char *names;
    bool stored; /* the manifest has it; else it was made up */
};
void mr_schema_done(struct mr_schema *s);
/* The number of the field with this name, or -1. */
int mr_schema_find(const struct mr_schema *s, const char *name);
/* Is it delivered where nobody names fields? */
static inline bool mr_schema_is_default(const struct mr_schema *s, unsigned i)
{
    return s->field[i].field.role != MR_FIELD_OTHER;
}

/* What the parser needs of the manifest. */
struct mr_schema_source {
    const char *name; /* of the manifest, for messages */
    uint64_t samples, files, layouts;
    const struct mr_column *fields, *data; /* sections 16 and 17 */
};
int mr_schema_parse(const struct mr_schema_source *from, struct mr_schema *out, struct mr_error *err);
/* For a set without one; has_label: there is at least one label. */
int mr_schema_make_up(enum mr_dtype dtype, const struct mr_dims *dims, uint64_t sum, uint64_t min, uint64_t max,
                      bool has_label, struct mr_schema *out, struct mr_error *err);

/* ---- building ---- */

/* One field of one file beyond the primary one. */
struct mr_field_values {
    struct mr_layout layout;               /* borrowed */
    struct mr_column column[MR_FC_LAYOUT]; /* of its samples */
};

struct mr_schema_builder;
/* For n_own fields with columns of their own. NULL: out of memory. */
struct mr_schema_builder *mr_schema_builder_create(unsigned n_own);
void mr_schema_builder_free(struct mr_schema_builder *b);
/* The next file; `layout` are the manifest's numbers of the layouts. -ENOMEM. */
int mr_schema_builder_add(struct mr_schema_builder *b, const struct mr_field_values *values, const uint64_t *layout);
/* Sections 16 and 17 for these fields, of which the own ones are those added. Sums of the primary one are given. */
int mr_schema_builder_finish(struct mr_schema_builder *b, const struct mr_field *fields, unsigned n,
                             const uint64_t primary[3], struct mr_strbuf *section, struct mr_strbuf *data,
                             struct mr_error *err);
/* Has a field columns of its own? The first one has not, nor has a label. */
static inline bool mr_field_is_own(const struct mr_field *f, unsigned number)
{
    return number > 0 && f->storage != MR_FIELD_LABEL;
}
/* Is the name fit for a schema? */
bool mr_field_name_is_sound(const char *name, size_t len);

#endif
