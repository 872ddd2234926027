/* Tar shards whose samples have several parts: a field per suffix. Pictures, texts and other bytes are the member's
 * data; a .npy member is its array. cls is an integer, kept in the manifest, where all of a file are; so is the member
 * "label" of a .json part where there is no cls.
 *
 * The ref of an array is its payload, without the .npy header; aux is the header's length. Layout version 2:
 *
 *   0  1  version = 2
 *   1  1  flags: 1 gzip
 *   2  1  mode: 0 all arrays of the file are alike (but for the first axis, with MR_ARRAY_FLEX) and plain: the payload
 *         is the value, to be read in place; 1 they differ: each is read with its header, which says what it is
 *   3  1  0
 *   4     array description
 *
 * We write KEY.NAME.npy per field, whose name is NAME; of others' names .npy is cut off where something is left. */
#include "format/field_gather.h"
#include "format/field_names.h"
#include "format/npy_header.h"
#include "format/stream_out.h"
#include "format/tar_parts.h"
#include "format/tar_walk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ARRAY_VERSION 2
#define ARRAY_HEAD 4u
enum array_mode { ALIKE, DIFFERING };

/* Bits of mr_gather_field.any. */
#define NO_LABEL 1u  /* a cls part is no integer of 32 bits */
#define NOT_PLAIN 2u /* an array is big-endian or in Fortran's order */

/* ---- layout and reading ---- */

bool mr_tar_is_array(const struct mr_layout *layout)
{
    return layout->len > ARRAY_HEAD && *(const uint8_t *)layout->data == ARRAY_VERSION;
}

bool mr_tar_array_gzip(const struct mr_layout *layout)
{
    return mr_tar_is_array(layout) && (((const uint8_t *)layout->data)[1] & MR_TAR_GZIP);
}

static int put_layout(bool gzip, enum array_mode mode, const struct mr_array_desc *desc, struct mr_layout *out,
                      struct mr_error *err)
{
    uint8_t b[ARRAY_HEAD + MR_ARRAY_DESC_MAX] = {ARRAY_VERSION, gzip ? MR_TAR_GZIP : 0, (uint8_t)mode, 0};
    return mr_layout_make(b, ARRAY_HEAD + mr_array_desc_encode(desc, b + ARRAY_HEAD), out, err);
}

static int get_layout(const struct mr_layout *layout, enum array_mode *mode, struct mr_array_desc *desc,
                      struct mr_error *err)
{
    const uint8_t *b = layout->data;
    size_t used;
    if (b[1] > MR_TAR_GZIP || b[2] > DIFFERING || b[3])
        return mr_error_plain(err, MR_E_FORMAT, "bad layout of an array in a tar file (%zu bytes)", layout->len);
    int rc = mr_array_desc_decode(b + ARRAY_HEAD, layout->len - ARRAY_HEAD, desc, &used, err);
    if (rc == 0 && used != layout->len - ARRAY_HEAD)
        return mr_error_plain(err, MR_E_FORMAT, "bad layout of an array in a tar file (%zu bytes)", layout->len);
    *mode = b[2];
    return rc;
}

int mr_tar_array_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    enum array_mode mode;
    struct mr_array_desc desc;
    int rc = get_layout(layout, &mode, &desc, err);
    if (rc < 0)
        return rc;
    bool gzip = mr_tar_array_gzip(layout);
    *out = (struct mr_read_cost){.access = gzip ? MR_ACCESS_UNPACK : MR_ACCESS_RANGE,
                                 .bytes_read_per_payload_byte = 1.0,
                                 .verbatim = !gzip && mode == ALIKE,
                                 .note = gzip            ? "gzip: the whole file is inflated once"
                                         : mode == ALIKE ? "one range per sample, nothing to decode"
                                                         : "one range per sample, with its .npy header"};
    return 0;
}

int mr_tar_array_plan(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                      struct mr_extent *ext, unsigned max, unsigned *n, struct mr_error *err)
{
    enum array_mode mode;
    struct mr_array_desc desc;
    struct mr_sample_ref whole = *ref;
    int rc = get_layout(layout, &mode, &desc, err);
    if (rc < 0)
        return rc;
    if (mode == DIFFERING) {
        if (ref->aux > ref->raw.offset || ref->raw.length > UINT64_MAX - ref->aux)
            return mr_error_plain(err, MR_E_FORMAT, "bad reference to an array (offset %llu, header %u)",
                                  (unsigned long long)ref->raw.offset, ref->aux);
        whole.raw = (struct mr_extent){ref->raw.offset - ref->aux, ref->raw.length + ref->aux};
    }
    return mr_format_plan_single(layout, &whole, flags, ext, max, n, err);
}

int mr_tar_array_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                        unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    enum array_mode mode;
    struct mr_array_desc desc;
    struct mr_npy_header h;
    (void)flags;
    out->label = ref->label;
    int rc = get_layout(layout, &mode, &desc, err);
    if (rc < 0)
        return rc;
    if (mode == ALIKE)
        return mr_array_deliver_as(d, 0, &desc, raw, len, out, err);
    if ((rc = mr_npy_header_parse(raw, len, &h, err)) < 0 ||
        (rc = mr_npy_header_desc(&h, false, false, &desc, err)) < 0)
        return rc;
    if (h.payload_offset > len || h.payload_bytes > len - h.payload_offset)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of the array (want %llu bytes, have %zu)",
                              (unsigned long long)(h.payload_offset + h.payload_bytes), len);
    return mr_array_deliver_as(d, 0, &desc, (const uint8_t *)raw + h.payload_offset, h.payload_bytes, out, err);
}

/* ---- finding ---- */

struct fields_scan {
    struct mr_gather g;
    char key[4097];
    bool open, has_cls;
    unsigned best_rank; /* of the first sample's parts */
    int64_t json_label;
    unsigned cls;   /* the number of its field */
    bool cls_known; /* there is one */
    bool gzip;
};

static bool has_ending(const char *name, size_t len, const char *ending)
{
    size_t n = strlen(ending);
    return len >= n && strncasecmp(name + len - n, ending, n) == 0;
}

static enum mr_field_storage storage_of(const char *ext)
{
    static const struct {
        const char *ext;
        enum mr_field_storage storage;
    } known[] = {{"jpg", MR_FIELD_JPEG},  {"jpeg", MR_FIELD_JPEG},      {"png", MR_FIELD_PNG},
                 {"npy", MR_FIELD_NPY},   {"json", MR_FIELD_TEXT},      {"txt", MR_FIELD_TEXT},
                 {"text", MR_FIELD_TEXT}, {"cls", MR_FIELD_TEXT},       {"yaml", MR_FIELD_TEXT},
                 {"xml", MR_FIELD_TEXT},  {"id", MR_FIELD_TEXT},        {"index", MR_FIELD_TEXT},
                 {"inx", MR_FIELD_TEXT},  {"transcript", MR_FIELD_TEXT}};
    const char *last = strrchr(ext, '.');
    last = last ? last + 1 : ext;
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++)
        if (strcasecmp(last, known[i].ext) == 0)
            return known[i].storage;
    return MR_FIELD_RAW;
}

/* What the header of a .npy member says. */
static int look_at_array(struct mr_stream_in *in, const struct mr_tar_member *m, struct mr_gather_value *v, bool *plain,
                         struct mr_error *err)
{
    const uint8_t *p;
    uint64_t len;
    struct mr_npy_header h;
    struct mr_array_desc desc;
    if (m->data.length < MR_NPY_PREFIX)
        return mr_tar_bad_member(in, m, "too short for an array", err);
    int rc = mr_stream_in_get(in, m->data.offset, MR_NPY_PREFIX, &p, err);
    if (rc >= 0)
        rc = mr_npy_header_length(p, &len, err);
    if (rc >= 0 && (len > m->data.length || len > MR_STREAM_IN_MAX))
        return mr_tar_bad_member(in, m, "the header of its array is longer than the member, or than 64 KiB", err);
    if (rc >= 0)
        rc = mr_stream_in_get(in, m->data.offset, (size_t)len, &p, err);
    if (rc >= 0)
        rc = mr_npy_header_parse(p, (size_t)len, &h, err);
    if (rc >= 0 && h.payload_bytes > m->data.length - h.payload_offset)
        return mr_tar_bad_member(in, m, "unexpected end of the array", err);
    if (rc >= 0)
        rc = mr_npy_header_desc(&h, false, false, &desc, err);
    if (rc < 0) {
        mr_error_context(err, "member at offset %llu of '%s'", (unsigned long long)m->header_at, in->path);
        return rc;
    }
    desc.flags &= ~(unsigned)MR_ARRAY_FLEX;
    v->dtype = h.dtype;
    v->dims = desc.dims;
    v->ref.raw = (struct mr_extent){m->data.offset + h.payload_offset, h.payload_bytes};
    v->ref.aux = (uint32_t)h.payload_offset;
    *plain = mr_array_is_plain(&desc);
    return 0;
}

/* Adds the label that a .json part has, where there is no cls. */
static int add_json_label(struct fields_scan *t, struct mr_error *err)
{
    unsigned k;
    const struct mr_gather_value v = {.dtype = MR_I64, .storage = MR_FIELD_LABEL};
    bool there = false;
    for (k = 0; k < t->g.n; k++)
        there = there || (strcmp(t->g.field[k].name, "label") == 0 &&
                          (t->g.field[k].seen || t->g.field[k].field.storage != MR_FIELD_LABEL));
    if (t->has_cls || t->json_label == MR_LABEL_NONE || there || (t->g.samples && !t->cls_known))
        return 0;
    int rc = mr_gather_find(&t->g, "label", 5, t->key, &k, err);
    if (rc == MR_GATHER_SKIP)
        return 0;
    t->cls_known = true;
    t->cls = k;
    t->g.label = t->json_label;
    rc = rc < 0 ? rc : mr_gather_value(&t->g, k, &v, t->key, err);
    if (t->g.label <= INT32_MIN || t->g.label > INT32_MAX)
        t->g.field[k].any |= NO_LABEL;
    return rc;
}

static int flush(struct fields_scan *t, struct mr_error *err)
{
    if (!t->open)
        return 0;
    int rc = add_json_label(t, err);
    if (rc >= 0 && t->g.n_seen)
        rc = mr_gather_sample(&t->g, t->key, err);
    t->open = t->has_cls = false;
    t->g.label = t->json_label = MR_LABEL_NONE;
    return rc;
}

static int add_value(struct fields_scan *t, struct mr_stream_in *in, const struct mr_tar_member *m, unsigned k,
                     struct mr_error *err)
{
    struct mr_gather_value v = {.ref = {.raw = m->data}, .dtype = MR_U8, .storage = storage_of(m->ext)};
    bool plain = true;
    int rc = 0;
    v.any_shape = v.storage == MR_FIELD_JPEG || v.storage == MR_FIELD_PNG;
    v.dims = (struct mr_dims){.n = 1, .dim = {m->data.length}};
    if (v.storage == MR_FIELD_NPY && (rc = look_at_array(in, m, &v, &plain, err)) < 0)
        return rc;
    rc = mr_gather_value(&t->g, k, &v, t->key, err);
    t->g.field[k].any |= plain ? 0 : NOT_PLAIN;
    if (rc < 0 || strcasecmp(m->ext, "cls") != 0)
        return rc;
    t->has_cls = t->cls_known = true;
    t->cls = k;
    rc = mr_tar_read_label(in, &m->data, false, &t->g.label, err);
    if (t->g.label <= INT32_MIN || t->g.label > INT32_MAX)
        t->g.field[k].any |= NO_LABEL;
    return rc;
}

static int take_member(void *user, struct mr_stream_in *in, const struct mr_tar_member *m, struct mr_error *err)
{
    struct fields_scan *t = user;
    unsigned k;
    int rc = 0;
    if (!t->open || strcmp(t->key, m->key) != 0) {
        if ((rc = flush(t, err)) < 0)
            return rc;
        memcpy(t->key, m->key, strlen(m->key) + 1);
        t->open = true;
    }
    size_t len = strlen(m->ext);
    if (len > 4 && has_ending(m->ext, len, ".npy"))
        len -= 4;
    if (strcasecmp(m->ext, "json") == 0 && !t->has_cls)
        rc = mr_tar_read_label(in, &m->data, true, &t->json_label, err);
    if (rc >= 0)
        rc = mr_gather_find(&t->g, m->ext, len, t->key, &k, err);
    if (rc)
        return rc == MR_GATHER_SKIP ? 0 : rc;
    unsigned rank = mr_tar_payload_rank(m->ext);
    if (!t->g.samples && (t->g.n == 1 || rank < t->best_rank)) {
        t->g.primary = k;
        t->best_rank = rank;
    }
    return add_value(t, in, m, k, err);
}

static enum mr_field_role role_of(const struct mr_gather_field *f)
{
    char stem[MR_FIELD_NAME_MAX];
    snprintf(stem, sizeof stem, "%.*s", (int)strcspn(f->name, "."), f->name);
    if (strcasecmp(stem, "cls") == 0 || strcasecmp(stem, "seg") == 0)
        return MR_FIELD_TARGET;
    enum mr_field_role role = mr_field_role_of_name(stem);
    return role != MR_FIELD_INPUT || f->field.storage == MR_FIELD_NPY ? role : MR_FIELD_OTHER;
}

static int array_layout(const struct fields_scan *t, const struct mr_gather_field *f, struct mr_layout *out,
                        struct mr_error *err)
{
    struct mr_array_desc desc = {.dtype = f->field.dtype, .dims = f->field.dims};
    uint64_t rest = 1;
    for (unsigned d = 1; d < desc.dims.n; d++)
        rest *= desc.dims.dim[d] != 0;
    bool flex = f->field.variable == 0 && rest;
    bool alike = !(f->any & NOT_PLAIN) && (f->field.variable == MR_FIELD_FIXED || flex);
    if (alike && flex)
        desc.flags |= MR_ARRAY_FLEX;
    if (!alike)
        desc = (struct mr_array_desc){.dtype = f->field.dtype};
    return put_layout(t->gzip, alike ? ALIKE : DIFFERING, &desc, out, err);
}

static int settle_part(void *user, struct mr_gather_field *f, unsigned k, bool primary, struct mr_layout *out,
                       struct mr_error *err)
{
    const struct fields_scan *t = user;
    if (!f)
        return mr_tar_layout(t->gzip, out, err);
    f->field.role = primary ? MR_FIELD_INPUT : role_of(f);
    if (t->cls_known && k == t->cls && !primary && !(f->any & NO_LABEL)) {
        f->field.storage = MR_FIELD_LABEL;
        f->field.dtype = MR_I64;
    }
    if (f->field.storage == MR_FIELD_LABEL)
        return 0;
    return f->field.storage == MR_FIELD_NPY ? array_layout(t, f, out, err) : mr_tar_layout(t->gzip, out, err);
}

static int scan_fields(struct mr_store *s, const char *path, unsigned flags, const struct mr_field_sink *sink,
                       struct mr_error *err)
{
    (void)flags;
    struct fields_scan *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot scan '%s'", path);
    t->json_label = MR_LABEL_NONE;
    mr_gather_init(&t->g, sink, path, "member");
    int rc = mr_tar_walk(s, path, take_member, t, &t->gzip, err);
    if (rc >= 0)
        rc = flush(t, err);
    if (rc >= 0)
        rc = mr_gather_finish(&t->g, settle_part, t, err);
    mr_gather_done(&t->g);
    free(t);
    return rc < 0 ? rc : 0;
}

/* ---- writing ---- */

struct fields_writer {
    struct mr_writer base;
    struct mr_stream_out *out;
    bool gzip;
    unsigned n;
    uint64_t start, written;
    struct mr_sample_info info;
    struct mr_field field[]; /* names are borrowed until the writer is closed */
};

static void fields_abort(struct mr_writer *base)
{
    struct fields_writer *w = (struct fields_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    free(w);
}

static int fields_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                       const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err)
{
    struct fields_writer *w = calloc(1, sizeof(*w) + n * sizeof(w->field[0]));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->n = n;
    memcpy(w->field, fields, n * sizeof(w->field[0]));
    w->gzip = spec->compression == MR_COMP_GZIP;
    int rc = mr_stream_out_open(s, path, spec->compression, spec->compression_level, 0, &w->out, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int fields_begin(struct mr_writer *base, unsigned field, const struct mr_sample_info *info, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    char name[MR_TAR_NAME_LEN];
    uint8_t header[MR_NPY_BUILD_MAX];
    size_t len = mr_npy_header_build(info->dtype, info->dims.dim, info->dims.n, header);
    int n = snprintf(name, sizeof name, "%09llu.%s.npy", (unsigned long long)info->id, w->field[field].name);
    if (n < 0 || (size_t)n >= sizeof name)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "the name '%s' is too long for a member of a tar file",
                              w->field[field].name);
    int rc = 0;
    if (field == 0 && info->label != MR_LABEL_NONE) /* in front of the arrays: their members are then read in one go */
        rc = mr_tar_put_label(w->out, info->id, info->label, err);
    if (rc >= 0)
        rc = mr_tar_put_member(w->out, name, len + info->bytes, err);
    if (rc >= 0)
        rc = mr_stream_out_put(w->out, header, len, err);
    w->info = *info;
    w->start = mr_stream_out_position(w->out);
    w->written = 0;
    return rc;
}

static int fields_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    w->written += len;
    return mr_stream_out_put(w->out, data, len, err);
}

static int fields_end(struct mr_writer *base, unsigned field, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    uint8_t header[MR_NPY_BUILD_MAX];
    (void)field;
    size_t len = mr_npy_header_build(w->info.dtype, w->info.dims.dim, w->info.dims.n, header);
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc >= 0)
        rc = mr_tar_put_padding(w->out, len + w->written, err);
    if (rc >= 0)
        *ref = (struct mr_sample_ref){.raw = {w->start, w->written}, .aux = (uint32_t)len, .label = w->info.label};
    return rc;
}

static int written_layout(void *writer, unsigned k, struct mr_layout *out, struct mr_error *err)
{
    const struct fields_writer *w = writer;
    const struct mr_array_desc desc = {.dtype = w->field[k].dtype, .dims = w->field[k].dims};
    return put_layout(w->gzip, ALIKE, &desc, out, err);
}

static int fields_close(struct mr_writer *base, struct mr_layout *layouts, uint64_t *file_bytes, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    uint64_t bytes = 0;
    int rc = mr_stream_out_zeros(w->out, 2 * MR_TAR_BLOCK, err);
    if (rc >= 0) {
        rc = mr_stream_out_close(w->out, &bytes, err);
        w->out = NULL;
    }
    rc = mr_field_layouts(w->field, w->n, rc, written_layout, w, layouts, err);
    if (rc >= 0)
        *file_bytes = bytes;
    fields_abort(&w->base);
    return rc;
}

const struct mr_field_ops mr_tar_field_ops = {
    .size = sizeof(struct mr_field_ops),
    .scan = scan_fields,
    .writer_open = fields_open,
    .begin = fields_begin,
    .data = fields_data,
    .end = fields_end,
    .writer_close = fields_close,
    .writer_abort = fields_abort,
    .writes_as = MR_FIELD_NPY,
};
