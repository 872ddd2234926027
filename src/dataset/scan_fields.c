/* Fields of files: see scan_fields.h. */
#include "dataset/scan_fields.h"
#include "base/common.h"
#include "format/field_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void mr_scan_fields_done(struct mr_scan_fields *f)
{
    for (unsigned i = 0; f->layout && i < f->n; i++)
        free(f->layout[i].data);
    for (unsigned i = 0; f->column && i < f->n_columns; i++)
        mr_sample_columns_done(&f->column[i]);
    free(f->field);
    free(f->names);
    free(f->layout);
    free(f->column);
    *f = (struct mr_scan_fields){0};
}

/* ---- one file ---- */

static int keep_sample(void *user, const struct mr_sample_ref *refs, unsigned n, const char *key, struct mr_error *err)
{
    struct mr_scan_fields *f = user;
    (void)key;
    if (!f->column) {
        f->column = calloc(n, sizeof(*f->column));
        f->n_columns = f->column ? n : 0;
    }
    if (n != f->n_columns)
        return mr_error_set(err, f->column ? MR_E_INTERNAL : -ENOMEM, "cannot keep samples of %u fields", n);
    for (unsigned i = 0; i < n; i++) {
        struct mr_sample_ref ref = refs[i];
        if (i)
            ref.label = MR_LABEL_NONE;
        int rc = mr_sample_columns_add(&f->column[i], &ref, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int copy_fields(struct mr_scan_fields *f, const struct mr_field *fields, unsigned n, struct mr_error *err)
{
    f->field = calloc(n + 1, sizeof(*f->field)); /* one more: a label may come */
    f->names = calloc(n + 1, MR_FIELD_NAME_MAX);
    if (!f->field || !f->names)
        return mr_error_set(err, -ENOMEM, "cannot keep %u fields", n);
    f->n = n;
    for (unsigned i = 0; i < n; i++) {
        char *name = f->names + (size_t)i * MR_FIELD_NAME_MAX;
        size_t len = strnlen(fields[i].name, MR_FIELD_NAME_MAX);
        if (!mr_field_name_is_sound(fields[i].name, len))
            return mr_error_plain(err, MR_E_FORMAT, "a field's name of %zu bytes cannot be kept in a manifest", len);
        memcpy(name, fields[i].name, len);
        f->field[i] = fields[i];
        f->field[i].name = name;
        for (unsigned k = 0; k < i; k++)
            if (strcmp(f->field[k].name, name) == 0)
                return mr_error_plain(err, MR_E_FORMAT, "two fields have the name '%s'", name);
    }
    return 0;
}

static int keep_fields(void *user, const struct mr_field *fields, struct mr_layout *layouts, unsigned n,
                       struct mr_error *err)
{
    struct mr_scan_fields *f = user;
    struct mr_layout *kept = calloc(n ? n : 1, sizeof(*kept));
    int rc = kept && n && n <= MR_FIELDS_MAX && (!f->n_columns || n == f->n_columns)
                 ? copy_fields(f, fields, n, err)
                 : mr_error_set(err, kept ? MR_E_INTERNAL : -ENOMEM, "cannot keep %u fields", n);
    if (rc) {
        for (unsigned i = 0; i < n; i++)
            free(layouts[i].data);
        free(kept);
        f->n = 0;
        return rc;
    }
    memcpy(kept, layouts, n * sizeof(*kept));
    f->layout = kept;
    return 0;
}

int mr_scan_file_fields(const struct mr_field_ops *ops, struct mr_store *s, const char *path, unsigned flags,
                        const struct mr_scan_wanted *wanted, struct mr_scan_fields *out, struct mr_error *err)
{
    const struct mr_field_sink sink = {
        .user = out, .wanted = wanted->name, .n_wanted = wanted->n, .sample = keep_sample, .done = keep_fields};
    int rc = ops->scan(s, path, flags, &sink, err);
    if (rc >= 0 && !out->layout)
        rc = mr_error_plain(err, MR_E_INTERNAL, "the format names no fields");
    if (rc < 0)
        mr_scan_fields_done(out);
    return rc < 0 ? rc : 0;
}

/* ---- all files ---- */

/* Decoding looks at the first bytes of a picture, so a field may have both kinds. */
static bool is_picture(const struct mr_field *f)
{
    return f->storage == MR_FIELD_JPEG || f->storage == MR_FIELD_PNG;
}

static int compare(const struct mr_field *a, const struct mr_field *f, const char *first, struct mr_error *err)
{
    if (a->dtype != f->dtype)
        return mr_error_plain(err, MR_E_FORMAT, "field '%s' is %s here and %s in '%s'", f->name,
                              mr_dtype_numpy(f->dtype), mr_dtype_numpy(a->dtype), first);
    if (a->storage != f->storage && !(is_picture(a) && is_picture(f)))
        return mr_error_plain(err, MR_E_FORMAT, "field '%s' is stored as %s here and as %s in '%s'", f->name,
                              mr_field_storage_name(f->storage), mr_field_storage_name(a->storage), first);
    return 0;
}

static unsigned find(const struct mr_scan_fields *f, const char *name)
{
    for (unsigned i = 0; i < f->n; i++)
        if (strcmp(f->field[i].name, name) == 0)
            return i;
    return UINT32_MAX;
}

static int join_first(struct mr_scan_fields *all, const struct mr_scan_fields *file, unsigned *at, struct mr_error *err)
{
    int rc = copy_fields(all, file->field, file->n, err);
    for (unsigned i = 0; i < file->n; i++)
        at[i] = i;
    return rc;
}

int mr_scan_fields_join(struct mr_scan_fields *all, const struct mr_scan_fields *file, const char *first, unsigned **at,
                        struct mr_error *err)
{
    unsigned *map = calloc(MR_MAX(file->n, all->n) + 1, sizeof(*map));
    int rc = map ? 0 : mr_error_set(err, -ENOMEM, "cannot compare %u fields", file->n);
    if (rc == 0 && !all->n)
        rc = join_first(all, file, map, err);
    for (unsigned i = 0; rc == 0 && i < all->n; i++) {
        map[i] = find(file, all->field[i].name);
        if (map[i] == UINT32_MAX)
            rc = mr_error_plain(err, MR_E_FORMAT, "there is no field '%s', which '%s' has", all->field[i].name, first);
        else if (i == 0 && map[i])
            rc = mr_error_plain(err, MR_E_FORMAT, "the primary field is '%s' here and '%s' in '%s'",
                                file->field[0].name, all->field[0].name, first);
        else
            rc = compare(&all->field[i], &file->field[map[i]], first, err);
    }
    for (unsigned i = 0; rc == 0 && i < file->n; i++)
        if (find(all, file->field[i].name) == UINT32_MAX)
            rc = mr_error_plain(err, MR_E_FORMAT, "there is a field '%s', which '%s' has not", file->field[i].name,
                                first);
    for (unsigned i = 0; rc == 0 && i < all->n; i++)
        mr_field_widen(&all->field[i], &file->field[map[i]]);
    if (rc) {
        free(map);
        return rc == -ENOMEM ? rc
                             : (mr_error_hint(err, "name the fields that all files have with --fields, or leave such "
                                                   "files out with --skip-bad"),
                                rc);
    }
    *at = map;
    return 0;
}

int mr_scan_fields_add_label(struct mr_scan_fields *all, struct mr_error *err)
{
    const char *name = find(all, "label") == UINT32_MAX ? "label" : "class";
    for (unsigned i = 0; i < all->n; i++)
        if (all->field[i].storage == MR_FIELD_LABEL)
            return 0;
    if (find(all, name) != UINT32_MAX)
        return mr_error_plain(err, MR_E_FORMAT, "fields have both names that labels of folders can have");
    char *at = all->names + (size_t)all->n * MR_FIELD_NAME_MAX;
    memcpy(at, name, strlen(name) + 1);
    all->field[all->n++] = (struct mr_field){
        .name = at, .dtype = MR_I64, .storage = MR_FIELD_LABEL, .role = MR_FIELD_TARGET, .variable = MR_FIELD_FIXED};
    return 0;
}
