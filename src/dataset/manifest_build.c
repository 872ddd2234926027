/* Writing the manifest: see manifest.h and doc/reference/manifest.md. Files arrive in order; their columns are appended
 * to the set's columns, which stay rules as long as the data are regular. Writing streams the sections to a temporary
 * beside the target, goes back for the header, syncs and renames: the target is the old file or the new one, never
 * half. */
#include "base/common.h"
#include "base/map.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "dataset/manifest.h"
#include "dataset/manifest_bytes.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct mr_manifest_builder {
    struct mr_manifest_info info;
    struct mr_name_template tmpl;
    bool has_template, has_mtime;
    char *spec;
    struct mr_colbuild sample[MR_SC_COUNT];
    struct mr_colbuild first, bytes, layout, mtime, name_index, layout_index;
    struct mr_strbuf names, classes, layouts;
    char last_name[MR_NAME_MAX];
    uint64_t n_layouts;
    struct mr_map layout_of; /* by hash of its bytes: number + 1 */
    uint64_t *layout_starts;
    size_t layout_cap;
    struct mr_schema_builder *schema; /* of fields beyond the primary one; NULL: there are none */
    uint64_t *own_layout;             /* scratch: the number of each one's layout */
    struct mr_field *fields;          /* what is written; NULL: no schema */
    unsigned n_fields;
    char *field_names;
};

static const unsigned sample_width[MR_SC_COUNT] = {6, 5, 3, 4};
static const char *const sample_field[MR_SC_COUNT] = {"offset", "length", "aux", "label"};

int mr_sample_columns_add(struct mr_sample_columns *c, const struct mr_sample_ref *ref, struct mr_error *err)
{
    if (ref->label != MR_LABEL_NONE && (ref->label <= INT32_MIN || ref->label > INT32_MAX))
        return mr_error_set(err, MR_E_LIMIT, "label %lld does not fit the manifest's 32 bits", (long long)ref->label);
    uint32_t label = ref->label == MR_LABEL_NONE ? MR_LABEL_STORED_NONE : (uint32_t)(int32_t)ref->label;
    uint64_t v[MR_SC_COUNT] = {ref->raw.offset, ref->raw.length, ref->aux, label};
    for (unsigned k = 0; k < MR_SC_COUNT; k++) {
        c->build[k].raw_width = sample_width[k];
        if (v[k] >> (8 * sample_width[k]))
            return mr_error_set(err, MR_E_LIMIT, "sample %s %llu does not fit the manifest's %u bits", sample_field[k],
                                (unsigned long long)v[k], 8 * sample_width[k]);
        if (mr_colbuild_add(&c->build[k], c->n, v[k]) < 0)
            return mr_error_set(err, -ENOMEM, "cannot keep the positions of %llu samples", (unsigned long long)c->n);
    }
    c->n++;
    return 0;
}

void mr_sample_columns_finish(struct mr_sample_columns *c, struct mr_column out[MR_SC_COUNT])
{
    for (unsigned k = 0; k < MR_SC_COUNT; k++)
        mr_colbuild_finish(&c->build[k], &out[k]);
}

void mr_sample_columns_done(struct mr_sample_columns *c)
{
    for (unsigned k = 0; k < MR_SC_COUNT; k++)
        mr_colbuild_done(&c->build[k]);
    c->n = 0;
}

int mr_manifest_builder_create(const struct mr_manifest_info *info, const struct mr_name_template *tmpl,
                               const char *spec, struct mr_manifest_builder **out, struct mr_error *err)
{
    struct mr_manifest_builder *b = calloc(1, sizeof(*b));
    if (!b || !(b->spec = strdup(spec))) {
        free(b);
        return mr_error_set(err, -ENOMEM, "cannot build a manifest");
    }
    b->info = *info;
    b->info.samples = b->info.files = b->info.samples_per_file = b->info.file_bytes = b->info.sample_bytes = 0;
    b->info.sample_min_bytes = UINT64_MAX;
    b->info.sample_max_bytes = 0;
    if (tmpl) {
        b->tmpl = *tmpl;
        b->has_template = true;
    }
    for (unsigned k = 0; k < MR_SC_COUNT; k++)
        b->sample[k].raw_width = sample_width[k];
    b->bytes.raw_width = 6;
    b->layout.raw_width = 4;
    b->first.raw_width = b->mtime.raw_width = b->name_index.raw_width = b->layout_index.raw_width = 8;
    *out = b;
    return 0;
}

void mr_manifest_builder_free(struct mr_manifest_builder *b)
{
    if (!b)
        return;
    for (unsigned k = 0; k < MR_SC_COUNT; k++)
        mr_colbuild_done(&b->sample[k]);
    struct mr_colbuild *all[] = {&b->first, &b->bytes, &b->layout, &b->mtime, &b->name_index, &b->layout_index};
    for (unsigned i = 0; i < MR_ARRAY_LEN(all); i++)
        mr_colbuild_done(all[i]);
    mr_strbuf_done(&b->names);
    mr_strbuf_done(&b->classes);
    mr_strbuf_done(&b->layouts);
    mr_map_done(&b->layout_of);
    mr_schema_builder_free(b->schema);
    free(b->own_layout);
    free(b->fields);
    free(b->field_names);
    free(b->layout_starts);
    free(b->spec);
    free(b);
}

int mr_manifest_builder_add_class(struct mr_manifest_builder *b, const char *name, struct mr_error *err)
{
    mr_strbuf_add(&b->classes, name, strlen(name) + 1);
    return b->classes.failed ? mr_error_set(err, -ENOMEM, "cannot keep the class names") : 0;
}

static bool layout_is(const struct mr_manifest_builder *b, uint64_t i, const struct mr_layout *l)
{
    uint64_t start = b->layout_starts[i];
    return b->layout_starts[i + 1] - start == l->len && memcmp(b->layouts.text + start, l->data, l->len) == 0;
}

/* The number of this layout; equal ones share one. Two that have the same hash and are not equal do not: the later one
 * is kept once for every file that has it. Negative: out of memory or too many. */
static int64_t layout_number(struct mr_manifest_builder *b, const struct mr_layout *l)
{
    uint64_t *at = b->n_layouts < UINT32_MAX - 1 ? mr_map_put(&b->layout_of, XXH3_64bits(l->data, l->len)) : NULL;
    if (!at || mr_vec_reserve(&b->layout_starts, &b->layout_cap, b->n_layouts + 2, sizeof(*b->layout_starts)) < 0)
        return -ENOMEM;
    if (*at && layout_is(b, *at - 1, l))
        return (int64_t)*at - 1;
    assert(b->n_layouts + 2 <= b->layout_cap);
    b->layout_starts[b->n_layouts] = b->layouts.len;
    mr_strbuf_add(&b->layouts, l->len ? l->data : "", l->len);
    b->layout_starts[b->n_layouts + 1] = b->layouts.len;
    *at = *at ? *at : b->n_layouts + 1;
    return b->layouts.failed ? -ENOMEM : (int64_t)b->n_layouts++;
}

static void put_varint(struct mr_strbuf *s, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        mr_strbuf_putc(s, (char)(v | 0x80));
    mr_strbuf_putc(s, (char)v);
}

static int add_name(struct mr_manifest_builder *b, const char *name, struct mr_error *err)
{
    size_t len = strlen(name), shared = 0;
    if (!mr_name_is_safe(name, len))
        return mr_error_set(err, MR_E_FORMAT, "file name '%s' cannot be kept in a manifest", name);
    if (b->info.files && strcmp(b->last_name, name) >= 0)
        return mr_error_set(err, MR_E_INTERNAL, "file names must ascend: '%s' after '%s'", name, b->last_name);
    if (b->info.files % MRM_NAMES_PER_BLOCK == 0) {
        if (mr_colbuild_add(&b->name_index, b->name_index.n, b->names.len) < 0)
            return mr_error_set(err, -ENOMEM, "cannot keep the file names");
    } else {
        while (name[shared] && name[shared] == b->last_name[shared])
            shared++;
    }
    put_varint(&b->names, shared);
    put_varint(&b->names, len - shared);
    mr_strbuf_add(&b->names, name + shared, len - shared);
    memcpy(b->last_name, name, len + 1);
    return b->names.failed ? mr_error_set(err, -ENOMEM, "cannot keep the file names") : 0;
}

static void count_lengths(struct mr_manifest_info *i, const struct mr_column *c)
{
    bool constant = c->encoding == MR_COLUMN_CONST;
    for (uint64_t j = 0; j < c->count; j++) {
        uint64_t v = mr_column_get(c, j, j);
        i->sample_bytes += constant ? v * c->count : v;
        i->sample_min_bytes = MR_MIN(i->sample_min_bytes, v);
        i->sample_max_bytes = MR_MAX(i->sample_max_bytes, v);
        if (constant)
            break;
    }
}

int mr_manifest_builder_set_fields(struct mr_manifest_builder *b, const struct mr_field *fields, unsigned n,
                                   struct mr_error *err)
{
    free(b->fields);
    free(b->field_names);
    b->fields = calloc(n, sizeof(*b->fields));
    b->field_names = calloc(n, MR_FIELD_NAME_MAX);
    b->n_fields = n;
    if (!b->fields || !b->field_names)
        return mr_error_set(err, -ENOMEM, "cannot keep a schema of %u fields", n);
    for (unsigned i = 0; i < n; i++) {
        size_t len = strlen(fields[i].name);
        if (!mr_field_name_is_sound(fields[i].name, len))
            return mr_error_set(err, MR_E_FORMAT, "a field's name of %zu bytes cannot be kept in a manifest", len);
        char *name = b->field_names + (size_t)i * MR_FIELD_NAME_MAX;
        memcpy(name, fields[i].name, len + 1);
        b->fields[i] = fields[i];
        b->fields[i].name = name;
    }
    return 0;
}

static int add_own_fields(struct mr_manifest_builder *b, const struct mr_manifest_file *f)
{
    if (!f->n_own)
        return 0;
    if (!b->schema) {
        b->schema = mr_schema_builder_create(f->n_own);
        b->own_layout = calloc(f->n_own, sizeof(*b->own_layout));
    }
    if (!b->schema || !b->own_layout)
        return -ENOMEM;
    for (unsigned i = 0; i < f->n_own; i++) {
        int64_t number = layout_number(b, &f->own[i].layout);
        if (number < 0)
            return -ENOMEM;
        b->own_layout[i] = (uint64_t)number;
    }
    return mr_schema_builder_add(b->schema, f->own, b->own_layout);
}

int mr_manifest_builder_add(struct mr_manifest_builder *b, const struct mr_manifest_file *f, struct mr_error *err)
{
    uint64_t n = f->column[MR_SC_OFFSET].count, file = b->info.files;
    int r = b->has_template ? 0 : add_name(b, f->name, err);
    if (r < 0)
        return r;
    if (f->bytes >> 48)
        return mr_error_set(err, MR_E_LIMIT, "a file of %llu bytes does not fit the manifest's 48 bits",
                            (unsigned long long)f->bytes);
    int64_t layout = layout_number(b, &f->layout);
    bool no_memory = layout < 0;
    for (unsigned k = 0; k < MR_SC_COUNT && !no_memory; k++)
        if (k != MR_SC_LABEL || !b->info.label_classes)
            no_memory = mr_colbuild_add_group(&b->sample[k], &f->column[k]) < 0;
    no_memory = no_memory || mr_colbuild_add(&b->first, file, b->info.samples) < 0 ||
                mr_colbuild_add(&b->bytes, file, f->bytes) < 0 || mr_colbuild_add(&b->mtime, file, f->mtime_ns) < 0 ||
                mr_colbuild_add(&b->layout, file, (uint64_t)layout) < 0 || add_own_fields(b, f) < 0;
    if (no_memory)
        return mr_error_set(err, -ENOMEM, "cannot keep the manifest of %llu files", (unsigned long long)file);
    count_lengths(&b->info, &f->column[MR_SC_LENGTH]);
    b->has_mtime = b->has_mtime || f->mtime_ns;
    b->info.samples += n;
    b->info.file_bytes += f->bytes;
    b->info.files++;
    return 0;
}

/* One pass of writing: sections collected here, data streamed to the object at `at`. */
struct sink {
    struct mr_object *object;
    uint64_t at;
    uint8_t head[MRM_HEADER_BYTES + MRM_MAX_SECTIONS * MRM_ENTRY_BYTES];
    uint32_t sections;
};

static int put_section(struct sink *k, uint32_t id, const struct mr_column *c, struct mr_error *err)
{
    uint8_t *e = k->head + MRM_HEADER_BYTES + (size_t)k->sections * MRM_ENTRY_BYTES;
    k->sections++;
    mr_store_le32(e + MRM_E_ID, id);
    e[MRM_E_ENC] = c->encoding;
    e[MRM_E_WIDTH] = c->width;
    mr_store_le64(e + MRM_E_COUNT, c->count);
    mr_store_le64(e + MRM_E_BASE, c->base);
    mr_store_le64(e + MRM_E_STEP, c->step);
    if (!c->data_bytes)
        return 0;
    mr_store_le64(e + MRM_E_OFFSET, k->at);
    mr_store_le64(e + MRM_E_BYTES, c->data_bytes);
    mr_store_le64(e + MRM_E_CHECK, XXH3_64bits(c->data, c->data_bytes));
    for (uint64_t done = 0; done < c->data_bytes;) {
        size_t n = (size_t)MR_MIN(c->data_bytes - done, 64 * MR_MIB);
        int r = mr_object_write(k->object, c->data + done, n, k->at + done, err);
        if (r < 0)
            return r;
        done += n;
    }
    static const uint8_t zero[MRM_ALIGN];
    uint64_t end = k->at + c->data_bytes;
    k->at = MR_ALIGN_UP(end, MRM_ALIGN);
    return k->at > end ? mr_object_write(k->object, zero, k->at - end, end, err) : 0;
}

static int put_blob(struct sink *k, uint32_t id, const void *data, size_t len, struct mr_error *err)
{
    struct mr_column c = {.encoding = MR_COLUMN_BLOB, .count = len, .data = data, .data_bytes = len};
    return put_section(k, id, &c, err);
}

static int put_built(struct sink *k, uint32_t id, struct mr_colbuild *b, struct mr_error *err)
{
    struct mr_column c;
    mr_colbuild_finish(b, &c);
    return put_section(k, id, &c, err);
}

static int put_samples(struct mr_manifest_builder *b, struct sink *k, struct mr_error *err)
{
    int r;
    for (unsigned i = 0; i < MR_SC_LABEL; i++)
        if ((r = put_built(k, MRM_SAMPLE_OFFSET + i, &b->sample[i], err)) < 0)
            return r;
    if (!b->info.label_classes)
        return put_built(k, MRM_SAMPLE_LABEL, &b->sample[MR_SC_LABEL], err);
    struct mr_column c = {.encoding = MR_COLUMN_RANDOM, .count = b->info.samples, .step = b->info.label_classes};
    return put_section(k, MRM_SAMPLE_LABEL, &c, err);
}

static int put_files(struct mr_manifest_builder *b, struct sink *k, struct mr_error *err)
{
    int r = 0;
    struct mr_column first;
    if (mr_colbuild_add(&b->first, b->info.files, b->info.samples) < 0)
        return mr_error_set(err, -ENOMEM, "cannot write the manifest");
    mr_colbuild_finish(&b->first, &first);
    if (first.encoding == MR_COLUMN_AFFINE && first.step)
        b->info.samples_per_file = first.step;
    else
        r = put_section(k, MRM_FILE_FIRST, &first, err);
    if (r < 0 || (r = put_built(k, MRM_FILE_BYTES, &b->bytes, err)) < 0 ||
        (r = put_built(k, MRM_FILE_LAYOUT, &b->layout, err)) < 0)
        return r;
    if (b->has_mtime && (r = put_built(k, MRM_FILE_MTIME, &b->mtime, err)) < 0)
        return r;
    for (uint64_t i = 0; i <= b->n_layouts; i++)
        if (mr_colbuild_add(&b->layout_index, i, b->n_layouts ? b->layout_starts[i] : 0) < 0)
            return mr_error_set(err, -ENOMEM, "cannot write the manifest");
    if ((r = put_built(k, MRM_LAYOUT_INDEX, &b->layout_index, err)) < 0)
        return r;
    return put_blob(k, MRM_LAYOUT_DATA, b->layouts.text, b->layouts.len, err);
}

static int put_names(struct mr_manifest_builder *b, struct sink *k, struct mr_error *err)
{
    int r;
    if (b->has_template) {
        uint8_t t[24 + sizeof b->tmpl.prefix + sizeof b->tmpl.suffix];
        size_t prefix = strlen(b->tmpl.prefix), suffix = strlen(b->tmpl.suffix);
        mr_store_le64(t, b->tmpl.subfolders);
        mr_store_le32(t + 8, b->tmpl.digits);
        mr_store_le32(t + 12, b->tmpl.folder_digits);
        mr_store_le32(t + 16, (uint32_t)prefix);
        mr_store_le32(t + 20, (uint32_t)suffix);
        memcpy(t + 24, b->tmpl.prefix, prefix);
        memcpy(t + 24 + prefix, b->tmpl.suffix, suffix);
        r = put_blob(k, MRM_NAME_TEMPLATE, t, 24 + prefix + suffix, err);
    } else {
        if (mr_colbuild_add(&b->name_index, b->name_index.n, b->names.len) < 0)
            return mr_error_set(err, -ENOMEM, "cannot write the manifest");
        if ((r = put_built(k, MRM_NAME_INDEX, &b->name_index, err)) >= 0)
            r = put_blob(k, MRM_NAME_DATA, b->names.text, b->names.len, err);
    }
    if (r >= 0 && b->classes.len)
        r = put_blob(k, MRM_CLASS_NAMES, b->classes.text, b->classes.len, err);
    return r;
}

static int put_fields(struct mr_manifest_builder *b, struct sink *k, struct mr_error *err)
{
    if (!b->fields)
        return 0;
    const struct mr_manifest_info *i = &b->info;
    const uint64_t primary[3] = {i->sample_bytes, i->samples ? i->sample_min_bytes : 0, i->sample_max_bytes};
    struct mr_strbuf section = {0}, data = {0};
    int r = mr_schema_builder_finish(b->schema, b->fields, b->n_fields, primary, &section, &data, err);
    if (r >= 0)
        r = put_blob(k, MRM_FIELDS, section.text, section.len, err);
    if (r >= 0)
        r = put_blob(k, MRM_FIELD_DATA, data.text, data.len, err);
    mr_strbuf_done(&section);
    mr_strbuf_done(&data);
    return r;
}

static void fill_header(const struct mr_manifest_builder *b, struct sink *k)
{
    uint8_t *h = k->head;
    const struct mr_manifest_info *i = &b->info;
    memcpy(h, MRM_MAGIC, 8);
    mr_store_le32(h + MRM_H_VERSION, MR_MANIFEST_VERSION);
    mr_store_le32(h + MRM_H_ENDIAN, MRM_ENDIAN);
    mr_store_le64(h + MRM_H_LENGTH, k->at);
    mr_store_le64(h + MRM_H_SAMPLES, i->samples);
    mr_store_le64(h + MRM_H_FILES, i->files);
    mr_store_le64(h + MRM_H_FILE_BYTES, i->file_bytes);
    mr_store_le64(h + MRM_H_SAMPLE_BYTES, i->sample_bytes);
    mr_store_le64(h + MRM_H_MIN, i->samples ? i->sample_min_bytes : 0);
    mr_store_le64(h + MRM_H_MAX, i->sample_max_bytes);
    mr_store_le64(h + MRM_H_SEED, i->seed);
    mr_store_le32(h + MRM_H_CONTENT, i->content_version);
    mr_store_le32(h + MRM_H_RNG, i->rng_version);
    mr_store_le32(h + MRM_H_COMPRESS, i->compress_percent);
    mr_store_le32(h + MRM_H_DTYPE, (uint32_t)i->dtype);
    mr_store_le32(h + MRM_H_NDIM, i->dims.n);
    mr_store_le32(h + MRM_H_FLAGS, i->flags);
    for (unsigned d = 0; d < i->dims.n; d++)
        mr_store_le64(h + MRM_H_DIMS + 8 * d, i->dims.dim[d]);
    size_t name = strnlen(i->format, sizeof i->format - 1);
    memcpy(h + MRM_H_FORMAT, i->format, MR_MIN(name, (size_t)MRM_FORMAT_BYTES));
    if (name > MRM_FORMAT_BYTES)
        memcpy(h + MRM_H_FORMAT_MORE, i->format + MRM_FORMAT_BYTES, name - MRM_FORMAT_BYTES);
    mr_store_le32(h + MRM_H_SECTIONS, k->sections);
    mr_store_le64(h + MRM_H_PER_FILE, i->samples_per_file);
    uint8_t covered[MRM_H_CHECK + MRM_MAX_SECTIONS * MRM_ENTRY_BYTES];
    size_t table = (size_t)k->sections * MRM_ENTRY_BYTES;
    memcpy(covered, h, MRM_H_CHECK);
    memcpy(covered + MRM_H_CHECK, h + MRM_HEADER_BYTES, table);
    mr_store_le64(h + MRM_H_CHECK, XXH3_64bits(covered, MRM_H_CHECK + table));
}

static int write_all(struct mr_manifest_builder *b, struct sink *k, struct mr_error *err)
{
    int r;
    /* Room for all sections there can be; the few unused entries cost less than a second pass. */
    unsigned most = b->fields ? MRM_SECTION_COUNT - 1 : MRM_FIELDS - 1;
    k->at = MR_ALIGN_UP(MRM_HEADER_BYTES + most * MRM_ENTRY_BYTES, MRM_ALIGN);
    size_t head = k->at;
    if ((r = put_blob(k, MRM_SPEC, b->spec, strlen(b->spec), err)) < 0 || (r = put_samples(b, k, err)) < 0 ||
        (r = put_files(b, k, err)) < 0 || (r = put_names(b, k, err)) < 0 || (r = put_fields(b, k, err)) < 0)
        return r;
    fill_header(b, k);
    if ((r = mr_object_write(k->object, k->head, head, 0, err)) < 0)
        return r;
    return k->object->store->ops->fsync(k->object, err);
}

static void folder_of(const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        snprintf(out, cap, ".");
    else
        snprintf(out, cap, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

int mr_manifest_builder_write(struct mr_manifest_builder *b, struct mr_store *s, const char *path, struct mr_error *err)
{
    char folder[MR_NAME_MAX], temporary[MR_NAME_MAX + 16];
    folder_of(path, folder, sizeof folder);
    bool at_once = mr_store_puts_whole(s); /* the object has its name when it is whole */
    snprintf(temporary, sizeof temporary, "%s%s", path, at_once ? "" : ".tmp");
    char what[MR_NAME_MAX + 32];
    snprintf(what, sizeof what, "write manifest '%s'", path);
    int r = at_once ? 0 : mr_store_require(s, MR_STORE_CAP_WRITE | MR_STORE_CAP_RENAME, what, err);
    if (r < 0)
        return r;
    struct sink *k = calloc(1, sizeof(*k));
    if (!k)
        return mr_error_set(err, -ENOMEM, "cannot write manifest '%s'", path);
    r = mr_object_open(s, temporary, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &k->object, err);
    if (r >= 0) {
        r = write_all(b, k, err);
        if (r < 0)
            mr_object_abandon(k->object);
        int closed = mr_object_close(k->object, r < 0 ? NULL : err);
        if (r >= 0)
            r = closed;
        if (r >= 0 && !at_once)
            r = s->ops->rename(s, temporary, path, err);
        if (r >= 0)
            r = s->ops->sync_dir(s, folder, err);
        if (r < 0 && !at_once)
            s->ops->unlink(s, temporary, NULL);
    }
    free(k);
    if (r < 0)
        mr_error_context(err, "in manifest '%s'", path);
    return r < 0 ? r : 0;
}
