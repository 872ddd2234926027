/* Writing NPZ files whose samples have several fields: a member NAME.npy per field, its rows the samples; one field after
 * the other. Labels are a member of their own. Finding them: npz_scan.c. */
#include "format/npz_layout.h"
#include "format/zip_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct field_place {
    struct mr_npz_layout l;
    uint64_t data_offset;
};

struct fields_writer {
    struct mr_writer base;
    struct mr_array_output out;
    struct mr_zip_writer zip;
    uint64_t samples, row, written;
    struct mr_sample_info info;
    int64_t *labels;
    unsigned n;
    struct field_place *place;
    struct mr_field field[]; /* names are borrowed until the writer is closed */
};

static void fields_free(struct fields_writer *w)
{
    mr_zip_writer_done(&w->zip);
    mr_array_output_abort(&w->out);
    free(w->labels);
    free(w->place);
    free(w);
}

static void fields_abort(struct mr_writer *base)
{
    if (base)
        fields_free((struct fields_writer *)base);
}

static int fields_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                       const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err)
{
    struct fields_writer *w = calloc(1, sizeof(*w) + n * sizeof(w->field[0]));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->n = n;
    w->samples = spec->samples;
    memcpy(w->field, fields, n * sizeof(w->field[0]));
    w->labels = malloc(MR_MAX(spec->samples, 1u) * sizeof(*w->labels));
    w->place = calloc(n, sizeof(*w->place));
    int rc = w->labels && w->place ? mr_array_output_open(&w->out, s, path, err)
                                   : mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    for (unsigned k = 0; k < n && rc >= 0; k++)
        if (strlen(fields[k].name) + 4 >= MR_ZIP_NAME_MAX)
            rc = mr_error_plain(err, MR_E_UNSUPPORTED, "the name '%s' is too long for a member of an npz file",
                                fields[k].name);
        else if (fields[k].dims.n == MR_DIMS_MAX)
            rc = mr_error_plain(err, MR_E_UNSUPPORTED, "fields in npz files may have %u axes at most", MR_DIMS_MAX - 1);
    if (rc < 0) {
        fields_free(w);
        return rc;
    }
    w->zip.out = &w->out;
    w->zip.level = spec->compression == MR_COMP_NONE ? 0 : mr_array_deflate_level(spec->compression_level);
    *out = &w->base;
    return 0;
}

/* Begins the member of field k with the header of its array. */
static int begin_member(struct fields_writer *w, unsigned k, struct mr_error *err)
{
    char name[MR_ZIP_NAME_MAX];
    uint8_t header[MR_NPY_BUILD_MAX];
    const struct mr_field *f = &w->field[k];
    struct mr_npy_header h = {.dtype = f->dtype, .n = f->dims.n + 1, .shape = {w->samples}};
    memcpy(h.shape + 1, f->dims.dim, f->dims.n * sizeof(h.shape[0]));
    snprintf(name, sizeof name, "%s.npy", f->name);
    int rc = mr_zip_member_begin(&w->zip, name, err);
    if (rc < 0)
        return rc;
    size_t len = mr_npy_header_build(f->dtype, h.shape, h.n, header);
    struct field_place *p = &w->place[k];
    bool own = w->samples == 1; /* checksums of members can be checked then */
    p->data_offset = w->zip.data_offset;
    p->l = (struct mr_npz_layout){.mode = !w->zip.level ? MR_NPZ_STORED
                                          : own         ? MR_NPZ_DEFLATED
                                                        : MR_NPZ_UNIT,
                                  .strip = w->zip.level && own,
                                  .place = {.prefix_bytes = w->zip.prefix_bytes},
                                  .npy_bytes = (uint32_t)len};
    p->l.desc = (struct mr_array_desc){.dtype = f->dtype};
    if (own && !w->zip.level)
        p->l.desc.dims = f->dims;
    else if (!own)
        rc = mr_npy_header_desc(&h, true, false, &p->l.desc, err);
    return rc < 0 ? rc : mr_zip_member_data(&w->zip, header, len, err);
}

static int fields_begin(struct mr_writer *base, unsigned field, const struct mr_sample_info *info, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    if (field == 0)
        w->labels[w->row] = info->label;
    w->info = *info;
    w->written = 0;
    return w->row == 0 ? begin_member(w, field, err) : 0;
}

static int fields_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    w->written += len;
    return mr_zip_member_data(&w->zip, data, len, err);
}

static int fields_end(struct mr_writer *base, unsigned field, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    struct field_place *p = &w->place[field];
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc < 0)
        return rc;
    uint64_t at = w->row * w->info.bytes;
    struct mr_sample_ref r = {.raw = {p->data_offset + p->l.npy_bytes + at, w->info.bytes}, .label = w->info.label};
    if (++w->row == w->samples) {
        rc = mr_zip_member_end(&w->zip, err);
        const struct mr_zip_written *m = &w->zip.member[w->zip.n - 1];
        bool shared = p->l.mode == MR_NPZ_UNIT || (p->l.desc.flags & MR_ARRAY_ROWS);
        p->l.member_offset = shared ? m->header_offset : 0;
        p->l.packed_bytes = shared ? m->packed_bytes : 0;
        if (p->l.mode == MR_NPZ_DEFLATED)
            r.raw = (struct mr_extent){p->data_offset, m->packed_bytes};
        w->row = 0;
    }
    if (p->l.mode == MR_NPZ_UNIT)
        r.raw.offset = at;
    *ref = r;
    return rc;
}

static int put_labels(struct fields_writer *w, const char *name, struct mr_error *err)
{
    char member[MR_ZIP_NAME_MAX];
    uint8_t header[MR_NPY_BUILD_MAX];
    snprintf(member, sizeof member, "%s.npy", name);
    for (uint64_t i = 0; i < w->samples; i++) /* as little-endian, on any machine */
        mr_store_le64(&w->labels[i], (uint64_t)w->labels[i]);
    int rc = mr_zip_member_begin(&w->zip, member, err);
    if (rc == 0)
        rc = mr_zip_member_data(&w->zip, header, mr_npy_header_build(MR_I64, &w->samples, 1, header), err);
    if (rc == 0)
        rc = mr_zip_member_data(&w->zip, w->labels, w->samples * sizeof(*w->labels), err);
    return rc == 0 ? mr_zip_member_end(&w->zip, err) : rc;
}

static int fields_close(struct mr_writer *base, struct mr_layout *layouts, uint64_t *file_bytes, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    int rc = 0;
    memset(layouts, 0, w->n * sizeof(*layouts));
    for (unsigned k = 0; k < w->n && rc >= 0; k++)
        rc = w->field[k].storage == MR_FIELD_LABEL ? put_labels(w, w->field[k].name, err)
                                                   : mr_npz_layout_put(&w->place[k].l, &layouts[k], err);
    if (rc >= 0)
        rc = mr_zip_directory(&w->zip, err);
    uint64_t size = mr_array_output_pos(&w->out);
    if (rc >= 0)
        rc = mr_array_output_close(&w->out, err);
    for (unsigned k = 0; k < w->n && rc < 0; k++) {
        free(layouts[k].data);
        layouts[k] = (struct mr_layout){0};
    }
    if (rc >= 0)
        *file_bytes = size;
    fields_free(w);
    return rc < 0 ? rc : 0;
}

const struct mr_field_ops mr_npz_field_ops = {
    .size = sizeof(struct mr_field_ops),
    .scan = mr_npz_scan_fields,
    .by_field = true,
    .writer_open = fields_open,
    .begin = fields_begin,
    .data = fields_data,
    .end = fields_end,
    .writer_close = fields_close,
    .writer_abort = fields_abort,
};
