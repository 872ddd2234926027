/* Fields of samples that are found one by one: see field_gather.h. */
#include "format/field_gather.h"
#include "base/vec.h"
#include "format/field_names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mr_gather_init(struct mr_gather *g, const struct mr_field_sink *sink, const char *path, const char *part)
{
    *g = (struct mr_gather){.sink = sink, .path = path, .part = part, .label = MR_LABEL_NONE};
}

void mr_gather_done(struct mr_gather *g)
{
    free(g->field);
    free(g->order);
    free(g->ref);
    *g = (struct mr_gather){0};
}

/* "sample 8123" or "sample 8123 ('000017')". */
static const char *sample_name(const struct mr_gather *g, const char *key, char out[192])
{
    int n = snprintf(out, 192, "sample %llu", (unsigned long long)g->samples);
    if (key && n > 0)
        snprintf(out + n, 192 - (size_t)n, " ('%.120s')", key);
    return out;
}

static int hint_fields(struct mr_error *err)
{
    mr_error_hint(err, "name the fields that all samples have with --fields, or leave such files out with --skip-bad");
    return MR_E_FORMAT;
}

static bool is_named(const char *have, const char *name, size_t len)
{
    return strncmp(have, name, len) == 0 && !have[len];
}

bool mr_gather_wants(const struct mr_gather *g, const char *name, size_t len)
{
    bool wants = g->sink->n_wanted == 0;
    for (unsigned i = 0; i < g->sink->n_wanted && !wants; i++)
        wants = is_named(g->sink->wanted[i], name, len);
    return wants;
}

static int add(struct mr_gather *g, const char *name, size_t len, struct mr_error *err)
{
    if (len == 0 || len >= MR_FIELD_NAME_MAX)
        return mr_error_plain(err, MR_E_FORMAT, "a %s in '%s' has a name of %zu bytes (1 to %u can be kept)", g->part,
                              g->path, len, MR_FIELD_NAME_MAX - 1);
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)name[i] < ' ' || name[i] == 127)
            return mr_error_plain(err, MR_E_FORMAT, "a %s in '%s' has a name with control characters", g->part,
                                  g->path);
    if (g->n == MR_FIELDS_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "'%s' has more than %u fields", g->path, MR_FIELDS_MAX);
    size_t cap = g->cap;
    if (mr_vec_reserve(&g->field, &cap, g->n + 1, sizeof(*g->field)) < 0)
        return mr_error_set(err, -ENOMEM, "cannot keep %u fields", g->n + 1);
    g->cap = (unsigned)cap;
    struct mr_gather_field *f = &g->field[g->n++];
    *f = (struct mr_gather_field){.field = {.role = MR_FIELD_OTHER, .variable = MR_FIELD_FIXED}, .only = UINT64_MAX};
    memcpy(f->name, name, len);
    return 0;
}

int mr_gather_find(struct mr_gather *g, const char *name, size_t len, const char *key, unsigned *k,
                   struct mr_error *err)
{
    char text[192];
    unsigned at = g->last; /* samples mostly have their parts in one order */
    for (unsigned i = 0; i < g->n; i++, at = at + 1 < g->n ? at + 1 : 0)
        if (len < MR_FIELD_NAME_MAX && is_named(g->field[at].name, name, len)) {
            if (g->field[at].seen) {
                mr_error_plain(err, MR_E_FORMAT, "%s of '%s' has the %s '%.*s' twice", sample_name(g, key, text),
                               g->path, g->part, (int)MR_MIN(len, (size_t)120), name);
                return MR_E_FORMAT;
            }
            *k = at;
            g->last = at + 1 < g->n ? at + 1 : 0;
            return 0;
        }
    if (!mr_gather_wants(g, name, len))
        return MR_GATHER_SKIP;
    if (g->samples) {
        mr_error_plain(err, MR_E_FORMAT, "%s of '%s' has a %s '%.*s', which the samples before it have not",
                       sample_name(g, key, text), g->path, g->part, (int)MR_MIN(len, (size_t)120), name);
        return hint_fields(err);
    }
    int rc = add(g, name, len, err);
    *k = g->n - 1;
    g->last = 0;
    return rc;
}

int mr_gather_value(struct mr_gather *g, unsigned k, const struct mr_gather_value *v, const char *key,
                    struct mr_error *err)
{
    char text[192];
    struct mr_gather_field *f = &g->field[k];
    struct mr_field own = {.dtype = v->dtype,
                           .storage = v->storage,
                           .role = f->field.role,
                           .variable = v->any_shape ? MR_FIELD_ANY_SHAPE : MR_FIELD_FIXED,
                           .dims = v->any_shape ? (struct mr_dims){0} : v->dims};
    f->ref = v->ref;
    g->n_seen += !f->seen;
    f->seen = true;
    if (!f->known) {
        f->field = own;
        f->known = true;
        return 0;
    }
    if (f->field.dtype != v->dtype) {
        mr_error_plain(err, MR_E_FORMAT, "%s of '%s': %s '%s' is %s, in the samples before it %s",
                       sample_name(g, key, text), g->path, g->part, f->name, mr_dtype_numpy(v->dtype),
                       mr_dtype_numpy(f->field.dtype));
        return hint_fields(err);
    }
    mr_field_widen(&f->field, &own);
    return 0;
}

/* The sink's order: what was asked for, or the primary one and the others as the first sample has them. */
static int settle_order(struct mr_gather *g, struct mr_error *err)
{
    unsigned n = 0;
    g->order = calloc(MR_MAX(g->n, 1u), sizeof(*g->order));
    g->ref = calloc(MR_MAX(g->n, 1u), sizeof(*g->ref));
    if (!g->order || !g->ref)
        return mr_error_set(err, -ENOMEM, "cannot keep %u fields", g->n);
    for (unsigned i = 0; i < g->sink->n_wanted; i++) {
        unsigned k = 0;
        while (k < g->n && strcmp(g->field[k].name, g->sink->wanted[i]) != 0)
            k++;
        if (k == g->n)
            return mr_error_plain(err, MR_E_FORMAT, "the first sample of '%s' has no %s '%.80s'", g->path, g->part,
                                  g->sink->wanted[i]);
        for (unsigned j = 0; j < n; j++)
            if (g->order[j] == k)
                return mr_error_plain(err, MR_E_USAGE, "field '%.80s' is asked for twice", g->sink->wanted[i]);
        g->order[n++] = k;
    }
    if (g->sink->n_wanted)
        return 0;
    g->order[n++] = g->primary;
    for (unsigned k = 0; k < g->n; k++)
        if (k != g->primary)
            g->order[n++] = k;
    return 0;
}

static bool is_label(int64_t label)
{
    return label > INT32_MIN && label <= INT32_MAX;
}

int mr_gather_sample(struct mr_gather *g, const char *key, struct mr_error *err)
{
    char text[192];
    int rc = g->order ? 0 : settle_order(g, err);
    if (rc < 0)
        return rc;
    if (g->n_seen != g->n) {
        unsigned k = 0;
        while (g->field[k].seen)
            k++;
        mr_error_plain(err, MR_E_FORMAT, "%s of '%s' has no %s '%s', which the samples before it have",
                       sample_name(g, key, text), g->path, g->part, g->field[k].name);
        return hint_fields(err);
    }
    for (unsigned i = 0; i < g->n; i++) {
        g->ref[i] = g->field[g->order[i]].ref;
        g->ref[i].label = MR_LABEL_NONE;
    }
    g->ref[0].label = is_label(g->label) ? g->label : MR_LABEL_NONE;
    g->label = MR_LABEL_NONE;
    for (unsigned k = 0; k < g->n; k++)
        g->field[k].seen = false;
    g->n_seen = 0;
    g->samples++;
    return g->sink->sample(g->sink->user, g->ref, g->n, key, err);
}

static void free_layouts(struct mr_layout *layout, unsigned n)
{
    for (unsigned k = 0; k < n; k++) {
        free(layout[k].data);
        layout[k] = (struct mr_layout){0};
    }
}

static int finish_empty(struct mr_gather *g, struct mr_layout *layout, struct mr_error *err)
{
    const struct mr_field none = {
        .name = "data", .dtype = MR_U8, .role = MR_FIELD_INPUT, .variable = 0, .dims = {.n = 1}};
    return g->sink->done(g->sink->user, &none, layout, 1, err);
}

/* `layout` of each field by its number, whose data become the sink's in any case. */
static int report(struct mr_gather *g, struct mr_layout *layout, struct mr_error *err)
{
    struct mr_field *field = calloc(g->n, sizeof(*field));
    struct mr_layout *sorted = calloc(g->n, sizeof(*sorted));
    int rc = field && sorted ? 0 : mr_error_set(err, -ENOMEM, "cannot keep %u fields", g->n);
    for (unsigned i = 0; i < g->n && rc == 0; i++) {
        const struct mr_gather_field *f = &g->field[g->order[i]];
        field[i] = f->field;
        field[i].name = f->name;
        sorted[i] = layout[g->order[i]];
        if (f->field.storage == MR_FIELD_TEXT) { /* of any length, even where all of a file happen to be alike */
            field[i].variable = 0;
            field[i].dims = (struct mr_dims){.n = 1};
        }
        if (f->field.storage != MR_FIELD_LABEL)
            continue;
        field[i].variable = MR_FIELD_FIXED;
        field[i].dims = (struct mr_dims){0};
        free_layouts(&sorted[i], 1);
    }
    if (rc == 0)
        rc = g->sink->done(g->sink->user, field, sorted, g->n, err);
    else
        free_layouts(layout, g->n);
    free(field);
    free(sorted);
    return rc;
}

int mr_gather_finish(struct mr_gather *g, mr_gather_settle_fn *settle, void *user, struct mr_error *err)
{
    struct mr_layout *layout = calloc(MR_MAX(g->n, 1u), sizeof(*layout));
    int rc = layout ? 0 : mr_error_set(err, -ENOMEM, "cannot keep %u fields", g->n);
    unsigned primary = g->order ? mr_gather_primary(g) : 0;
    for (unsigned k = 0; k < g->n && rc >= 0; k++)
        rc = settle(user, &g->field[k], k, k == primary, &layout[k], err);
    if (rc >= 0 && !g->n)
        rc = settle(user, NULL, 0, true, layout, err);
    if (rc >= 0)
        rc = g->order ? report(g, layout, err) : finish_empty(g, layout, err);
    else if (layout)
        free_layouts(layout, g->n);
    free(layout);
    return rc;
}

/* ---- records that stay as they are ---- */

int mr_gather_whole_keep(void *whole, const struct mr_sample_ref *ref, const char *key, struct mr_error *err)
{
    struct mr_gather_whole *w = whole;
    (void)key;
    struct mr_sample_ref *room = MR_VEC_ADD(w);
    if (!room)
        return mr_error_set(err, -ENOMEM, "cannot keep %zu records", w->n);
    *room = *ref;
    return 0;
}

int mr_gather_whole_report(const struct mr_gather_whole *w, const struct mr_field *data, bool labelled,
                           struct mr_layout *layout, const struct mr_field_sink *sink, struct mr_error *err)
{
    labelled = labelled && w->n;
    for (size_t i = 0; i < w->n; i++)
        labelled &= is_label(w->item[i].label);
    struct mr_sample_ref refs[2] = {{.raw = {0, 0}}};
    struct mr_layout layouts[2] = {*layout};
    const struct mr_field fields[2] = {*data,
                                       {.name = "label",
                                        .dtype = MR_I64,
                                        .storage = MR_FIELD_LABEL,
                                        .role = MR_FIELD_TARGET,
                                        .variable = MR_FIELD_FIXED}};
    int rc = 0;
    *layout = (struct mr_layout){0};
    for (size_t i = 0; i < w->n && rc >= 0; i++) {
        refs[0] = w->item[i];
        refs[0].label = labelled ? refs[0].label : MR_LABEL_NONE;
        rc = sink->sample(sink->user, refs, 1 + labelled, NULL, err);
    }
    if (rc >= 0)
        return sink->done(sink->user, fields, layouts, 1 + labelled, err);
    free_layouts(layouts, 1);
    return rc;
}

/* ---- writing ---- */

int mr_field_layouts(const struct mr_field *field, unsigned n, int rc,
                     int (*make)(void *user, unsigned k, struct mr_layout *out, struct mr_error *err), void *user,
                     struct mr_layout *out, struct mr_error *err)
{
    memset(out, 0, n * sizeof(*out));
    for (unsigned k = 0; k < n && rc >= 0; k++)
        rc = field[k].storage == MR_FIELD_LABEL ? 0 : make(user, k, &out[k], err);
    if (rc < 0)
        free_layouts(out, n);
    return MR_MIN(rc, 0);
}
