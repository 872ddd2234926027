/* Scanning existing files: see scan.h. Steps: list, choose the format, sort, then batches of files: each file of a
 * batch is looked into by some thread, afterwards the batch is added to the manifest in order. A batch bounds the
 * memory. */
#include "dataset/scan.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "base/workers.h"
#include "dataset/scan_fields.h"
#include "dataset/walk.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 2048u
#define MAX_FORMATS 64u
#define FIRST_FILES 64u /* that may be empty or broken before one shows what samples are */

struct found {
    uint64_t bytes, mtime_ns;
    struct mr_layout layout;
    struct mr_sample_columns columns;
    struct mr_scan_fields fields; /* of formats that have some: instead of layout and columns */
    struct mr_error *error;       /* malloc'ed: the file is broken */
};

struct scan {
    const struct mr_scan_options *o;
    const struct mr_format_ops *format;
    const struct mr_field_ops *fields; /* the format's; NULL: samples are one payload and a label */
    struct mr_scan_fields schema;      /* of the files that were added */
    const char *schema_from;           /* the first of them */
    char root[MR_NAME_MAX];
    struct mr_strbuf *listed; /* per thread, NUL-terminated names */
    unsigned threads;
    char **name; /* sorted, pointing into listed */
    uint64_t n;
    uint64_t first; /* of the batch */
    struct found batch[BATCH];
    const char *class_name;
    uint64_t classes;
    bool label_by_folder;
    struct mr_manifest_builder *builder;
    struct mr_scan_result result;
    int io_error; /* of a file that could not be read at all */
};

static int keep_name(void *user, unsigned thread, const char *name, struct mr_error *err)
{
    struct scan *s = user;
    size_t len = strlen(name), own = strlen(MR_MANIFEST_NAME);
    if (len >= own && strcmp(name + len - own, MR_MANIFEST_NAME) == 0)
        return 0;
    mr_strbuf_add(&s->listed[thread], name, len + 1);
    return s->listed[thread].failed ? mr_error_set(err, -ENOMEM, "cannot keep the names of the files") : 0;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int index_names(struct scan *s, struct mr_error *err)
{
    uint64_t n = 0, i = 0;
    for (unsigned t = 0; t < s->threads; t++)
        for (const char *p = s->listed[t].text; p && p < s->listed[t].text + s->listed[t].len; p += strlen(p) + 1)
            n++;
    s->name = calloc(n ? n : 1, sizeof(*s->name));
    if (!s->name)
        return mr_error_set(err, -ENOMEM, "cannot keep the names of %llu files", (unsigned long long)n);
    for (unsigned t = 0; t < s->threads; t++)
        for (char *p = s->listed[t].text; p && p < s->listed[t].text + s->listed[t].len; p += strlen(p) + 1)
            s->name[i++] = p;
    s->n = n;
    qsort(s->name, n, sizeof(*s->name), by_bytes);
    return 0;
}

/* The asked format, or the one most files have by their extension. */
static int choose_format(struct scan *s, struct mr_error *err)
{
    const struct mr_format_ops *const *all = mr_format_registry();
    uint64_t count[MAX_FORMATS] = {0}, best = 0;
    if (s->o->format) {
        s->format = mr_format_find(s->o->format, err);
        return s->format ? 0 : MR_E_USAGE;
    }
    for (uint64_t i = 0; i < s->n; i++) {
        const struct mr_format_ops *f = mr_format_for_path(s->name[i]);
        for (unsigned k = 0; f && all[k] && k < MAX_FORMATS; k++)
            count[k] += all[k] == f;
    }
    for (unsigned k = 0; all[k] && k < MAX_FORMATS; k++)
        if (count[k] > best) {
            best = count[k];
            s->format = all[k];
        }
    if (s->format)
        return 0;
    mr_error_plain(err, MR_E_FORMAT, "'%s' holds no file of a known format", s->o->path);
    return mr_error_hint(err, "name the format with --format; 'millrace help formats' lists them"), MR_E_FORMAT;
}

/* Leaves the files of the chosen format; an asked format that no extension fits means all files. */
static void filter_names(struct scan *s)
{
    uint64_t kept = 0, fitting = 0;
    for (uint64_t i = 0; i < s->n; i++)
        fitting += mr_format_for_path(s->name[i]) == s->format;
    if (fitting == 0 && s->o->format)
        return;
    for (uint64_t i = 0; i < s->n; i++)
        if (mr_format_for_path(s->name[i]) == s->format)
            s->name[kept++] = s->name[i];
    s->result.other_files = s->n - kept;
    s->n = kept;
}

static int keep_sample(void *user, const struct mr_sample_ref *ref, const char *key, struct mr_error *err)
{
    struct found *f = user;
    (void)key;
    return mr_sample_columns_add(&f->columns, ref, err);
}

static int look_into(struct scan *s, struct found *f, const char *path, struct mr_error *err)
{
    struct mr_store_stat st;
    int r = mr_store_stat(s->o->store, path, &st, err);
    if (r < 0)
        return r;
    if (st.is_dir)
        return mr_error_plain(err, MR_E_FORMAT, "'%s' is a folder", path);
    f->bytes = st.bytes;
    f->mtime_ns = st.mtime_ns;
    if (s->fields) {
        const struct mr_scan_wanted wanted = {.name = s->o->fields, .n = s->o->n_fields};
        return mr_scan_file_fields(s->fields, s->o->store, path, s->o->rows ? MR_SCAN_ROWS : 0, &wanted, &f->fields,
                                   err);
    }
    if (s->o->rows && s->format->scan_rows)
        return s->format->scan_rows(s->o->store, path, keep_sample, f, &f->layout, err);
    return s->format->scan(s->o->store, path, keep_sample, f, &f->layout, err);
}

static int scan_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct scan *s = ctx->user;
    struct found *f = &s->batch[index];
    struct mr_error why = {0};
    char path[2 * MR_NAME_MAX];
    snprintf(path, sizeof path, "%s/%s", s->root, s->name[s->first + index]);
    int r = look_into(s, f, path, &why);
    if (r == -ENOMEM) {
        if (err)
            *err = why;
        return r;
    }
    if (r < 0) {
        f->error = malloc(sizeof(*f->error));
        if (!f->error)
            return mr_error_set(err, -ENOMEM, "cannot keep an error");
        *f->error = why;
    }
    if (s->o->progress)
        mr_progress_add(s->o->progress, 1, f->bytes);
    return 0;
}

static void forget(struct found *f)
{
    mr_sample_columns_done(&f->columns);
    mr_scan_fields_done(&f->fields);
    free(f->layout.data);
    free(f->error);
    *f = (struct found){0};
}

/* The class of a name is its first component; names are sorted, so a new one is a new class. */
static int label_of(struct scan *s, const char *name, int64_t *label, struct mr_error *err)
{
    const char *slash = strchr(name, '/');
    size_t len = slash ? (size_t)(slash - name) : 0;
    if (!s->class_name || strncmp(s->class_name, name, len) != 0 || s->class_name[len] != '/') {
        char text[MR_NAME_MAX];
        snprintf(text, sizeof text, "%.*s", (int)len, name);
        int r = mr_manifest_builder_add_class(s->builder, text, err);
        if (r < 0)
            return r;
        s->class_name = name;
        s->classes++;
    }
    *label = (int64_t)s->classes - 1;
    return 0;
}

/* Puts the file's fields into the order of the schema; the primary one's columns and layout are the file's. */
static int take_fields(struct scan *s, struct found *f, const char *name, struct mr_manifest_file *file,
                       struct mr_field_values **own, struct mr_error *err)
{
    unsigned *at = NULL;
    bool empty = s->schema.n && !f->fields.n_columns; /* fits whatever others are */
    int r = empty ? 0 : mr_scan_fields_join(&s->schema, &f->fields, s->schema_from ? s->schema_from : name, &at, err);
    if (r < 0)
        return r;
    s->schema_from = s->schema_from ? s->schema_from : name;
    struct mr_field_values *values = calloc(s->schema.n, sizeof(*values));
    if (!values)
        r = mr_error_set(err, -ENOMEM, "cannot keep %u fields", s->schema.n);
    for (unsigned i = 0; r >= 0 && i < s->schema.n; i++) {
        struct mr_column column[MR_SC_COUNT];
        if (!mr_field_is_own(&s->schema.field[i], i))
            continue;
        struct mr_field_values *v = &values[file->n_own++];
        v->layout = f->fields.layout[empty ? 0 : at[i]];
        for (unsigned k = 0; k < MR_SC_COUNT; k++)
            column[k] = (struct mr_column){.encoding = MR_COLUMN_CONST};
        if (!empty && f->fields.n_columns && f->fields.column[at[i]].n)
            mr_sample_columns_finish(&f->fields.column[at[i]], column);
        for (unsigned k = 0; k < MR_FC_LAYOUT; k++)
            v->column[k] = column[k];
    }
    free(at);
    file->own = *own = values;
    file->layout = f->fields.layout[0];
    if (f->fields.n_columns) {
        f->columns = f->fields.column[0];
        f->fields.column[0] = (struct mr_sample_columns){0};
    }
    return r;
}

static bool has_label_field(const struct mr_scan_fields *f)
{
    for (unsigned i = 0; i < f->n; i++)
        if (f->field[i].storage == MR_FIELD_LABEL)
            return true;
    return false;
}

static int add_one(struct scan *s, struct found *f, const char *name, struct mr_field_values **own,
                   struct mr_error *err)
{
    struct mr_manifest_file file = {.name = name, .bytes = f->bytes, .mtime_ns = f->mtime_ns, .layout = f->layout};
    int64_t label;
    int r = s->fields ? take_fields(s, f, name, &file, own, err) : 0;
    if (r < 0)
        return r;
    mr_sample_columns_finish(&f->columns, file.column);
    for (unsigned k = 0; k < MR_SC_COUNT; k++)
        if (f->columns.n == 0)
            file.column[k] = (struct mr_column){.encoding = MR_COLUMN_CONST};
    if (s->fields && !has_label_field(&f->fields)) /* what looked like labels are not, or was not asked for */
        file.column[MR_SC_LABEL] =
            (struct mr_column){.encoding = MR_COLUMN_CONST, .count = f->columns.n, .base = MR_LABEL_STORED_NONE};
    if (s->label_by_folder) {
        if ((r = label_of(s, name, &label, err)) < 0)
            return r;
        file.column[MR_SC_LABEL] =
            (struct mr_column){.encoding = MR_COLUMN_CONST, .count = f->columns.n, .base = (uint32_t)label};
    }
    if ((r = mr_manifest_builder_add(s->builder, &file, err)) < 0)
        return r;
    s->result.files++;
    s->result.samples += f->columns.n;
    s->result.bytes += f->bytes;
    return 0;
}

static void report_bad(struct scan *s, const char *path, const struct mr_error *why)
{
    s->result.bad_files++;
    if (mr_is_storage_error(why->code))
        s->io_error = why->code;
    if (s->o->bad)
        s->o->bad(s->o->user, path, why);
}

static int add_batch(struct scan *s, uint64_t n, struct mr_error *err)
{
    int r = 0;
    for (uint64_t i = 0; i < n; i++) {
        const char *name = s->name[s->first + i];
        char path[2 * MR_NAME_MAX];
        snprintf(path, sizeof path, "%s/%s", s->root, name);
        struct mr_field_values *own = NULL;
        struct mr_error why = {0};
        if (s->batch[i].error) {
            report_bad(s, path, s->batch[i].error);
        } else if (r >= 0) {
            r = add_one(s, &s->batch[i], name, &own, &why);
            if (r == MR_E_FORMAT) { /* it is not like the files before */
                report_bad(s, path, &why);
                r = 0;
            } else if (r < 0 && err) {
                *err = why;
            }
        }
        free(own);
        forget(&s->batch[i]);
    }
    return r;
}

static int scan_all(struct scan *s, struct mr_error *err)
{
    int r = 0;
    for (s->first = 0; r >= 0 && s->first < s->n; s->first += BATCH) {
        uint64_t n = MR_MIN(s->n - s->first, BATCH);
        r = mr_workers_run(s->threads, n, 1, scan_one, s, s->o->stop, err);
        if (r >= 0)
            r = add_batch(s, n, err);
    }
    for (unsigned i = 0; i < BATCH; i++)
        forget(&s->batch[i]);
    if (r >= 0 && s->result.bad_files && !s->o->skip_bad) {
        r = mr_error_plain(err, s->io_error ? s->io_error : MR_E_FORMAT, "%llu of %llu files %s",
                           (unsigned long long)s->result.bad_files, (unsigned long long)s->n,
                           s->io_error ? "are broken or cannot be read" : "are broken");
        mr_error_hint(err, "leave them out with --skip-bad");
    }
    return r;
}

/* ImageFolder: one sample per file, each file in a folder that names its class. */
static bool has_class_folders(const struct scan *s)
{
    if (s->format->caps & (MR_FMT_MULTI | MR_FMT_LABEL))
        return false;
    for (uint64_t i = 0; i < s->n; i++)
        if (!strchr(s->name[i], '/'))
            return false;
    return s->n > 0;
}

/* Takes the schema of the first file that has samples: one without any fits every other. Returns the element type. */
static enum mr_dtype first_schema(struct scan *s)
{
    enum mr_dtype dtype = MR_U8;
    bool found = false;
    for (uint64_t i = 0; i < s->n && !found; i++) {
        struct found f = {0};
        unsigned *at = NULL;
        char path[2 * MR_NAME_MAX];
        snprintf(path, sizeof path, "%s/%s", s->root, s->name[i]);
        if (look_into(s, &f, path, NULL) < 0 || !f.fields.n_columns) {
            forget(&f);
            if (i >= FIRST_FILES)
                break;
            continue;
        }
        found = true;
        dtype = f.fields.field[0].dtype;
        if (mr_scan_fields_join(&s->schema, &f.fields, s->name[i], &at, NULL) == 0)
            s->schema_from = s->name[i];
        free(at);
        forget(&f);
    }
    return dtype;
}

/* Element type of the samples, where the format knows one: that of the first sample. */
static enum mr_dtype first_dtype(struct scan *s)
{
    struct found f = {0};
    enum mr_dtype dtype = MR_U8;
    char path[2 * MR_NAME_MAX];
    snprintf(path, sizeof path, "%s/%s", s->root, s->name[0]);
    if (s->fields)
        return first_schema(s);
    struct mr_object *o = NULL;
    if ((s->format->caps & MR_FMT_DTYPE) && look_into(s, &f, path, NULL) >= 0 && f.columns.n && f.columns.n < 100000 &&
        mr_object_open(s->o->store, path, MR_OBJ_READ, &o, NULL) >= 0) {
        struct mr_column c[MR_SC_COUNT];
        struct mr_growbuf raw = {0};
        struct mr_sample_out out = {0};
        struct mr_decoder *d = mr_decoder_create();
        mr_sample_columns_finish(&f.columns, c);
        struct mr_sample_ref ref = {
            .raw = {mr_column_get(&c[MR_SC_OFFSET], 0, 0), mr_column_get(&c[MR_SC_LENGTH], 0, 0)},
            .aux = (uint32_t)mr_column_get(&c[MR_SC_AUX], 0, 0),
            .label = MR_LABEL_NONE};
        if (d && mr_format_read_sample(s->format, o, d, &f.layout, &ref, 0, &raw, &out, NULL) >= 0)
            dtype = out.dtype;
        mr_decoder_free(d);
        free(raw.data);
        mr_object_close(o, NULL);
    }
    forget(&f);
    return dtype;
}

static int make_spec(struct scan *s, struct mr_strbuf *out, struct mr_error *err)
{
    const char *slash = strrchr(s->result.manifest, '/');
    size_t len = slash ? (size_t)(slash - s->result.manifest) : 1;
    bool beside = strlen(s->root) == len && strncmp(s->root, slash ? s->result.manifest : ".", len) == 0;
    json_t *spec = json_pack("{s:s,s:s,s:s}", "producer", "scan", "scanned", "folder", "format", s->format->name);
    char *root = beside ? NULL : realpath(s->root, NULL);
    int r = 0;
    if (!beside && (!spec || json_object_set_new(spec, "root", json_string(root ? root : s->root)) != 0)) {
        r = mr_error_plain(err, MR_E_USAGE,
                           "the folder's name is not UTF-8, so a manifest elsewhere cannot refer to it");
        mr_error_hint(err, "write the manifest into the folder itself: leave --out away");
    }
    char *text = spec ? json_dumps(spec, JSON_COMPACT) : NULL;
    if (r >= 0 && !text)
        r = mr_error_set(err, -ENOMEM, "cannot write the manifest");
    if (r >= 0)
        mr_strbuf_puts(out, text);
    free(text);
    free(root);
    json_decref(spec);
    return r;
}

/* Beside the files; or on a disk, where they are in object storage. */
static int write_manifest(struct scan *s, struct mr_error *err)
{
    struct mr_store *local;
    if (!mr_store_is_remote(s->o->store) || mr_store_is_url(s->result.manifest))
        return mr_manifest_builder_write(s->builder, s->o->store, s->result.manifest, err);
    int r = mr_store_open("posix", &local, err);
    if (r < 0)
        return r;
    r = mr_manifest_builder_write(s->builder, local, s->result.manifest, err);
    mr_store_close(local);
    return r;
}

/* The schema, with the roles that the user gave. */
static int set_fields(struct scan *s, struct mr_error *err)
{
    int r = s->label_by_folder ? mr_scan_fields_add_label(&s->schema, err) : 0;
    for (unsigned i = 0; i < s->o->n_fields && i < s->schema.n; i++)
        if (s->o->roles && s->o->roles[i] >= 0)
            s->schema.field[i].role = (enum mr_field_role)s->o->roles[i];
    s->result.fields = s->schema.n;
    return r < 0 ? r : mr_manifest_builder_set_fields(s->builder, s->schema.field, s->schema.n, err);
}

static int build(struct scan *s, struct mr_error *err)
{
    struct mr_strbuf spec = {0};
    struct mr_manifest_info info = {.flags = MR_MANIFEST_SCANNED};
    int r = make_spec(s, &spec, err);
    if (r < 0)
        return r;
    s->fields = mr_format_fields(s->format);
    if (s->o->n_fields && !s->fields)
        r = mr_error_plain(err, MR_E_UNSUPPORTED, "samples of format '%s' have no fields to choose from",
                           s->format->name);
    if (r < 0) {
        mr_strbuf_done(&spec);
        return r;
    }
    info.dtype = first_dtype(s);
    snprintf(info.format, sizeof info.format, "%s", s->format->name);
    r = mr_manifest_builder_create(&info, NULL, spec.text, &s->builder, err);
    mr_strbuf_done(&spec);
    s->label_by_folder = has_class_folders(s);
    if (r >= 0)
        r = scan_all(s, err);
    if (r >= 0 && s->result.files == 0) {
        r = mr_error_plain(err, MR_E_FORMAT, "'%s' holds no readable file of format '%s'", s->o->path, s->format->name);
        mr_error_hint(err, "name another format with --format");
    } else if (r >= 0 && s->result.samples == 0) {
        r = mr_error_plain(err, MR_E_FORMAT, "'%s' holds no samples (%llu file%s of format '%s')", s->o->path,
                           (unsigned long long)s->result.files, s->result.files == 1 ? "" : "s", s->format->name);
        mr_error_hint(err, "name another format with --format, or look at them: 'ls -l'");
    }
    if (r >= 0 && s->fields)
        r = set_fields(s, err);
    s->result.classes = s->classes;
    snprintf(s->result.format, sizeof s->result.format, "%s", s->format->name);
    return r < 0 ? r : write_manifest(s, err);
}

/* Sets root and manifest path, lists the files. */
static int list_files(struct scan *s, struct mr_error *err)
{
    struct mr_store_stat st;
    int r = mr_store_stat(s->o->store, s->o->path, &st, err);
    if (r < 0)
        return r;
    size_t len = strlen(s->o->path);
    while (len > 1 && s->o->path[len - 1] == '/')
        len--;
    if (len >= sizeof s->root / 2)
        return mr_error_set(err, -ENAMETOOLONG, "cannot scan '%s'", s->o->path);
    if (st.is_dir) {
        snprintf(s->root, sizeof s->root, "%.*s", (int)len, s->o->path);
        snprintf(s->result.manifest, sizeof s->result.manifest, "%s/" MR_MANIFEST_NAME, s->root);
        r = mr_walk(s->o->store, s->root, s->threads, s->o->stop, keep_name, s, err);
    } else {
        const char *slash = strrchr(s->o->path, '/');
        snprintf(s->root, sizeof s->root, "%.*s", slash ? (slash == s->o->path ? 1 : (int)(slash - s->o->path)) : 1,
                 slash ? s->o->path : ".");
        snprintf(s->result.manifest, sizeof s->result.manifest, "%s.mrm", s->o->path);
        r = keep_name(s, 0, slash ? slash + 1 : s->o->path, err);
    }
    if (s->o->out)
        snprintf(s->result.manifest, sizeof s->result.manifest, "%s", s->o->out);
    return r;
}

int mr_scan(const struct mr_scan_options *o, struct mr_scan_result *out, struct mr_error *err)
{
    struct scan *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot scan '%s'", o->path);
    s->o = o;
    s->threads = MR_MAX(o->threads, 1u);
    s->listed = calloc(s->threads, sizeof(*s->listed));
    int r = s->listed ? list_files(s, err) : mr_error_set(err, -ENOMEM, "cannot scan '%s'", o->path);
    if (r >= 0)
        r = index_names(s, err);
    if (r >= 0)
        r = choose_format(s, err);
    if (r >= 0) {
        filter_names(s);
        r = s->n ? build(s, err) : mr_error_plain(err, MR_E_FORMAT, "'%s' holds no files", o->path);
    }
    *out = s->result;
    mr_manifest_builder_free(s->builder);
    mr_scan_fields_done(&s->schema);
    for (unsigned t = 0; s->listed && t < s->threads; t++)
        mr_strbuf_done(&s->listed[t]);
    free(s->listed);
    free(s->name);
    free(s);
    return r < 0 ? r : 0;
}
