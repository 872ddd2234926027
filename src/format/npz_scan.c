/* Finding the samples of an NPZ file: its members, their arrays and labels. Every size is checked against the file. With
 * fields each member is one: rows of it where the primary one's first axis counts samples, else whole arrays. */
#include "format/npz_layout.h"
#include "base/log.h"
#include "format/field_names.h"
#include "format/zip_write.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define LABELS_MAX (1u << 26)
#define ROWS_WITHOUT_BYTES_MAX (1u << 20)

/* A scan in progress. */
struct npz_scan {
    struct mr_object *o;
    struct mr_zip_list list;
    mr_scan_fn *fn;
    void *user;
    int64_t *labels;
    uint64_t n_labels;
    bool labels_scalar;
    const struct mr_zip_member *label_member;
    enum mr_dtype label_dtype;
    struct mr_field *shape; /* of numbered members: widened by each; NULL: not wanted */
};

/* Reads a small member completely. */
static int read_member(struct npz_scan *s, const struct mr_zip_member *m, const struct mr_zip_place *place,
                       uint8_t **out, struct mr_error *err)
{
    uint8_t *packed = malloc(m->packed_bytes + 1), *data = malloc(m->bytes + 1);
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    int rc = packed && data && inflater ? 0 : mr_error_set(err, -ENOMEM, "cannot read zip member '%s'", m->name);
    if (rc == 0 && m->packed_bytes)
        rc = mr_object_read(s->o, packed, m->packed_bytes, m->header_offset + place->prefix_bytes, err);
    if (rc == 0 && m->method == MR_ZIP_DEFLATED)
        rc = mr_zip_inflate(inflater, packed, m->packed_bytes, data, m->bytes, err);
    else if (rc == 0 && m->bytes)
        memcpy(data, packed, m->bytes);
    if (rc == 0 && libdeflate_crc32(0, data, m->bytes) != m->crc)
        rc = mr_error_plain(err, MR_E_CORRUPT, "CRC-32 of zip member '%s' is wrong", m->name);
    libdeflate_free_decompressor(inflater);
    free(packed);
    if (rc < 0)
        free(data);
    else
        *out = data;
    return rc;
}

/* Inflates the beginning of a member until `want` bytes are there; zlib, because libdeflate inflates only whole
 * members. */
static int inflate_head(struct npz_scan *s, const struct mr_zip_member *m, const struct mr_zip_place *place,
                        uint8_t *out, size_t want, struct mr_error *err)
{
    uint8_t piece[4096];
    z_stream z = {.next_out = out, .avail_out = (uInt)want};
    uint64_t at = 0;
    int rc = 0, status = Z_OK;
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return mr_error_set(err, -ENOMEM, "cannot inflate zip member '%s'", m->name);
    while (rc == 0 && status == Z_OK && z.avail_out && at < m->packed_bytes) {
        size_t n = (size_t)MR_MIN(m->packed_bytes - at, sizeof piece);
        rc = mr_object_read(s->o, piece, n, m->header_offset + place->prefix_bytes + at, err);
        z.next_in = piece;
        z.avail_in = (uInt)n;
        at += n;
        if (rc == 0)
            status = inflate(&z, Z_NO_FLUSH);
        if (status == Z_BUF_ERROR)
            status = Z_OK; /* it only wants more input */
    }
    inflateEnd(&z);
    if (rc == 0 && z.avail_out)
        rc = mr_error_plain(err, MR_E_CORRUPT, "deflated data is damaged near byte %llu",
                            (unsigned long long)(m->header_offset + place->prefix_bytes + at));
    return rc;
}

static int deflated_header(struct npz_scan *s, const struct mr_zip_member *m, const struct mr_zip_place *place,
                           struct mr_npy_header *h, struct mr_error *err)
{
    uint8_t prefix[MR_NPY_PREFIX];
    uint64_t len;
    int rc;
    if (m->bytes < sizeof prefix)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of the array (want a header, have %llu bytes)",
                              (unsigned long long)m->bytes);
    if ((rc = inflate_head(s, m, place, prefix, sizeof prefix, err)) < 0 ||
        (rc = mr_npy_header_length(prefix, &len, err)) < 0)
        return rc;
    uint8_t *data = malloc(len);
    if (!data)
        return mr_error_set(err, -ENOMEM, "cannot read a header of %llu bytes", (unsigned long long)len);
    rc = inflate_head(s, m, place, data, len, err);
    if (rc == 0)
        rc = mr_npy_header_parse(data, len, h, err);
    free(data);
    if (rc == 0 && (h->payload_offset > m->bytes || h->payload_bytes > m->bytes - h->payload_offset))
        rc = mr_error_plain(err, MR_E_FORMAT, "unexpected end of the array (want %llu + %llu bytes, have %llu)",
                            (unsigned long long)h->payload_offset, (unsigned long long)h->payload_bytes,
                            (unsigned long long)m->bytes);
    return rc;
}

static int member_header(struct npz_scan *s, const struct mr_zip_member *m, struct mr_zip_place *place,
                         struct mr_npy_header *h, struct mr_error *err)
{
    int rc = mr_zip_locate(s->o, &s->list, m, place, err);
    if (rc < 0)
        return rc;
    rc = m->method == MR_ZIP_STORED ? mr_npy_header_read(s->o, m->header_offset + place->prefix_bytes, m->bytes, h, err)
                                    : deflated_header(s, m, place, h, err);
    return rc < 0 ? (mr_error_context(err, "zip member '%s'", m->name), rc) : 0;
}

static int64_t load_integer(const uint8_t *p, enum mr_dtype t, bool swap)
{
    uint8_t b[8] = {0};
    unsigned n = mr_dtype_bytes(t);
    for (unsigned i = 0; i < n; i++)
        b[i] = p[swap ? n - 1 - i : i];
    uint64_t v = mr_load_le64(b);
    bool is_signed = t == MR_I8 || t == MR_I16 || t == MR_I32;
    unsigned shift = 64 - 8 * n;
    return is_signed ? (int64_t)(v << shift) >> shift : (int64_t)v;
}

static bool is_integer(enum mr_dtype t)
{
    return t == MR_U8 || t == MR_I8 || t == MR_U16 || t == MR_I16 || t == MR_U32 || t == MR_I32 || t == MR_U64 ||
           t == MR_I64 || t == MR_BOOL;
}

/* Labels are a courtesy: a member with a label's name that is no array of integers is ignored, a damaged one is not. */
static int read_labels(struct npz_scan *s, struct mr_error *err)
{
    static const char *const names[] = {"y.npy", "label.npy", "labels.npy"};
    const struct mr_zip_member *m = NULL;
    for (size_t i = 0; i < MR_ARRAY_LEN(names) && !m; i++)
        m = mr_zip_find(&s->list, names[i]);
    if (!m || m->bytes > 16ull * LABELS_MAX)
        return 0;
    struct mr_zip_place place;
    struct mr_npy_header h = {0};
    uint8_t *data;
    int rc;
    if ((rc = mr_zip_locate(s->o, &s->list, m, &place, err)) < 0 || (rc = read_member(s, m, &place, &data, err)) < 0)
        return rc;
    rc = mr_npy_header_parse(data, m->bytes, &h, NULL);
    uint64_t n = rc == 0 && h.n == 1 ? h.shape[0] : 1;
    if (rc == 0 && h.n <= 1 && is_integer(h.dtype) && n > 0 && n <= LABELS_MAX &&
        h.payload_bytes <= m->bytes - h.payload_offset) {
        s->labels = malloc(n * sizeof(*s->labels));
        for (uint64_t i = 0; s->labels && i < n; i++)
            s->labels[i] =
                load_integer(data + h.payload_offset + i * mr_dtype_bytes(h.dtype), h.dtype, h.flags & MR_ARRAY_SWAP);
        s->n_labels = n;
        s->labels_scalar = h.n == 0;
        s->label_member = m;
        s->label_dtype = h.dtype;
    }
    free(data);
    return s->n_labels && !s->labels ? mr_error_set(err, -ENOMEM, "cannot keep %llu labels", (unsigned long long)n) : 0;
}

static int64_t label_of(const struct npz_scan *s, uint64_t i)
{
    return i < s->n_labels ? s->labels[i] : MR_LABEL_NONE;
}

static bool is_array(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".npy") == 0;
}

/* The number of members 'x_000000', 'x_000001', ... in this order from the first of the directory; 0 = other file. */
static size_t numbered_members(const struct mr_zip_list *l)
{
    size_t n = 0;
    for (; n < l->n; n++) {
        char want[MR_ZIP_NAME_MAX];
        int digits = (int)strlen(l->member[n].name) - 6;
        if (digits < 6 || digits > 20)
            break;
        snprintf(want, sizeof want, "x_%0*zu.npy", digits, n);
        if (strcmp(want, l->member[n].name) != 0)
            break;
    }
    return n;
}

static const struct mr_zip_member *choose_member(const struct mr_zip_list *l)
{
    static const char *const names[] = {"x.npy", "data.npy", "arr_0.npy"};
    const struct mr_zip_member *best = NULL;
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++)
        if ((best = mr_zip_find(l, names[i])))
            return best;
    for (size_t i = 0; i < l->n; i++)
        if (is_array(l->member[i].name) && (!best || l->member[i].bytes > best->bytes))
            best = &l->member[i];
    return best;
}

static void place_in_layout(const struct mr_zip_member *m, const struct mr_zip_place *place,
                            const struct mr_npy_header *h, struct mr_npz_layout *l)
{
    l->mode = m->method == MR_ZIP_STORED ? MR_NPZ_STORED : MR_NPZ_DEFLATED;
    l->place = *place;
    l->npy_bytes = (uint32_t)h->payload_offset;
}

/* One sample = one member. */
static int emit_whole(struct npz_scan *s, const struct mr_zip_member *m, const struct mr_npz_layout *l,
                      uint64_t payload_bytes, uint64_t number, struct mr_error *err)
{
    uint64_t data = m->header_offset + l->place.prefix_bytes;
    struct mr_sample_ref ref = {.raw = {data, m->packed_bytes}, .label = label_of(s, number)};
    if (l->mode == MR_NPZ_STORED)
        ref.raw = (struct mr_extent){data + l->npy_bytes, payload_bytes};
    return s->fn(s->user, &ref, NULL, err);
}

static int emit_rows(struct npz_scan *s, const struct mr_zip_member *m, struct mr_npz_layout *l, struct mr_error *err)
{
    uint64_t bytes = 0, base = m->header_offset + l->place.prefix_bytes + l->npy_bytes;
    (void)mr_array_bytes(&l->desc.dims, l->desc.dtype, &bytes); /* checked by mr_npy_header_desc */
    if (bytes == 0 && l->desc.rows > ROWS_WITHOUT_BYTES_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "%llu rows without bytes (limit %u)", (unsigned long long)l->desc.rows,
                              ROWS_WITHOUT_BYTES_MAX);
    struct mr_array_desc order = l->desc;
    order.flags &= ~(unsigned)MR_ARRAY_SWAP;
    if (l->mode == MR_NPZ_DEFLATED || !mr_array_is_plain(&order)) {
        l->mode = MR_NPZ_PACKED;
        base = 0;
        if (m->bytes > MR_LIMIT_UNPACKED_BYTES)
            return mr_error_plain(err, MR_E_LIMIT, "member of %llu bytes has to be unpacked as a whole (limit %llu)",
                                  (unsigned long long)m->bytes, (unsigned long long)MR_LIMIT_UNPACKED_BYTES);
    }
    l->member_offset = m->header_offset;
    l->packed_bytes = m->packed_bytes;
    int rc = 0;
    for (uint64_t i = 0; i < l->desc.rows && rc >= 0; i++) {
        struct mr_sample_ref ref = {.raw = {base + i * bytes, bytes}, .label = label_of(s, i)};
        rc = s->fn(s->user, &ref, NULL, err);
    }
    return rc < 0 ? rc : 0;
}

static void widen_shape(struct mr_field *all, const struct mr_array_desc *desc, bool first)
{
    const struct mr_field one = {.dtype = desc->dtype, .variable = MR_FIELD_FIXED, .dims = desc->dims};
    if (!all)
        return;
    if (first) {
        all->dtype = desc->dtype;
        all->dims = desc->dims;
    }
    mr_field_widen(all, &one);
}

/* Members of different sizes, as our writer makes them. All must share one layout. */
static int scan_numbered(struct npz_scan *s, size_t n, struct mr_npz_layout *l, struct mr_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct mr_zip_member *m = &s->list.member[i];
        struct mr_npz_layout one = {0};
        struct mr_npy_header h = {0};
        int rc = member_header(s, m, &one.place, &h, err);
        if (rc < 0 || (rc = mr_npy_header_desc(&h, false, false, &one.desc, err)) < 0)
            return rc;
        if (h.n == 1)
            one.desc.flags |= MR_ARRAY_FLEX;
        widen_shape(s->shape, &one.desc, i == 0);
        place_in_layout(m, &one.place, &h, &one);
        if (one.mode == MR_NPZ_DEFLATED)
            one.desc = (struct mr_array_desc){.dtype = h.dtype};
        if (i == 0)
            *l = one;
        else if (!mr_npz_layout_equal(l, &one))
            return mr_error_plain(err, MR_E_UNSUPPORTED,
                                  "zip members '%s' and '%s' differ in more than the number of elements",
                                  s->list.member[0].name, m->name);
        if ((rc = emit_whole(s, m, &one, h.payload_bytes, i, err)) < 0)
            return rc;
    }
    return 0;
}

/* As many labels as the first axis is long: it counts samples. DLIO puts the samples on the last axis. */
static void choose_rows(const struct npz_scan *s, const struct mr_npy_header *h, bool *rows, bool *last)
{
    *last = false;
    if (*rows || !s->n_labels || s->labels_scalar || !h->n)
        return;
    *rows = h->shape[0] == s->n_labels;
    *last = !*rows && s->n_labels > 1 && h->shape[h->n - 1] == s->n_labels;
    *rows |= *last;
}

/* One row is one whole sample, without the sample axis. */
static void strip_one(struct mr_npy_header *h, bool *rows, bool last, struct mr_npz_layout *l)
{
    if (!*rows || h->n == 0 || h->shape[0] != 1 || last)
        return;
    memmove(h->shape, h->shape + 1, (h->n - 1) * sizeof(h->shape[0]));
    h->n--;
    *rows = false;
    l->strip = l->mode == MR_NPZ_DEFLATED;
}

static int scan_one(struct npz_scan *s, bool rows, struct mr_npz_layout *l, struct mr_error *err)
{
    const struct mr_zip_member *m = choose_member(&s->list);
    struct mr_npy_header h = {0};
    bool last = false;
    int rc;
    if (!m)
        return mr_error_plain(err, MR_E_FORMAT, "the archive has no .npy member (%zu members)", s->list.n);
    if ((rc = member_header(s, m, &l->place, &h, err)) < 0)
        return rc;
    place_in_layout(m, &l->place, &h, l);
    choose_rows(s, &h, &rows, &last);
    strip_one(&h, &rows, last, l);
    if ((rc = mr_npy_header_desc(&h, rows, last, &l->desc, err)) < 0)
        return rc;
    if (rows)
        return emit_rows(s, m, l, err);
    if (l->mode == MR_NPZ_DEFLATED)
        l->desc = (struct mr_array_desc){.dtype = h.dtype}; /* the inflated member tells */
    return emit_whole(s, m, l, h.payload_bytes, 0, err);
}

int mr_npz_scan(struct mr_store *store, const char *path, bool rows, mr_scan_fn *fn, void *user,
                struct mr_layout *layout, struct mr_error *err)
{
    struct npz_scan s = {.fn = fn, .user = user};
    struct mr_npz_layout l = {0};
    int rc = mr_object_open(store, path, MR_OBJ_READ, &s.o, err);
    if (rc < 0)
        return rc;
    if ((rc = mr_zip_list_read(s.o, &s.list, err)) == 0 && (rc = read_labels(&s, err)) == 0) {
        size_t n = numbered_members(&s.list);
        rc = n ? scan_numbered(&s, n, &l, err) : scan_one(&s, rows, &l, err);
    }
    if (rc >= 0)
        rc = mr_npz_layout_put(&l, layout, err);
    if (rc < 0)
        mr_error_context(err, "in '%s'", path);
    free(s.labels);
    mr_zip_list_done(&s.list);
    (void)mr_object_close(s.o, NULL); /* nothing was written */
    return rc;
}

/* ---- several fields ---- */

struct npz_field {
    const struct mr_zip_member *member;
    struct mr_npz_layout l;
    uint64_t base, step; /* of the first sample's bytes; to the next one's */
    uint64_t bytes;
};

struct npz_fields {
    struct npz_scan s;
    const struct mr_field_sink *sink;
    bool rows, last; /* the first or the last axis counts samples */
    bool many;       /* there is another field with values */
    uint64_t samples;
    unsigned n;
    struct npz_field *f;
    struct mr_field *field;
    struct mr_layout *layout;
    struct mr_sample_ref *ref;
    char (*name)[MR_FIELD_NAME_MAX];
};

static int reserve_fields(struct npz_fields *x, size_t n, struct mr_error *err)
{
    x->f = calloc(n, sizeof(*x->f));
    x->field = calloc(n, sizeof(*x->field));
    x->layout = calloc(n, sizeof(*x->layout));
    x->ref = calloc(n, sizeof(*x->ref));
    x->name = calloc(n, sizeof(*x->name));
    bool there = x->f && x->field && x->layout && x->ref && x->name;
    return there ? 0 : mr_error_set(err, -ENOMEM, "cannot look at %zu members", n);
}

static void fields_done(struct npz_fields *x)
{
    for (unsigned i = 0; x->layout && i < x->n; i++)
        free(x->layout[i].data);
    free(x->f);
    free(x->field);
    free(x->layout);
    free(x->ref);
    free(x->name);
}

/* How the rows of a member lie; as emit_rows, but that a field of several is unpacked alone. */
static int place_rows(struct npz_fields *x, struct npz_field *f, struct mr_error *err)
{
    struct mr_npz_layout *l = &f->l;
    struct mr_array_desc order = l->desc;
    (void)mr_array_bytes(&l->desc.dims, l->desc.dtype, &f->bytes); /* checked by mr_npy_header_desc */
    if (f->bytes == 0 && l->desc.rows > ROWS_WITHOUT_BYTES_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "%llu rows without bytes (limit %u)", (unsigned long long)l->desc.rows,
                              ROWS_WITHOUT_BYTES_MAX);
    order.flags &= ~(unsigned)MR_ARRAY_SWAP;
    f->base = f->member->header_offset + l->place.prefix_bytes + l->npy_bytes;
    f->step = f->bytes;
    l->member_offset = f->member->header_offset;
    l->packed_bytes = f->member->packed_bytes;
    if (l->mode != MR_NPZ_DEFLATED && mr_array_is_plain(&order))
        return 0;
    l->mode = x->many ? MR_NPZ_UNIT : MR_NPZ_PACKED;
    f->base = 0;
    return f->member->bytes <= MR_LIMIT_UNPACKED_BYTES
               ? 0
               : mr_error_plain(err, MR_E_LIMIT, "member of %llu bytes has to be unpacked as a whole (limit %llu)",
                                (unsigned long long)f->member->bytes, (unsigned long long)MR_LIMIT_UNPACKED_BYTES);
}

/* Looks at a member as field k. MR_E_UNSUPPORTED: it does not count the samples. */
static int open_field(struct npz_fields *x, const struct mr_zip_member *m, struct mr_error *err)
{
    struct npz_field *f = &x->f[x->n];
    struct mr_npy_header h = {0};
    bool rows = x->rows, last = x->last;
    *f = (struct npz_field){.member = m};
    int rc = member_header(&x->s, m, &f->l.place, &h, err);
    if (rc < 0)
        return rc;
    place_in_layout(m, &f->l.place, &h, &f->l);
    if (x->n == 0) {
        choose_rows(&x->s, &h, &rows, &last);
        rows = rows && h.n > 0;
        x->rows = rows;
        x->last = last;
        x->samples = rows ? h.shape[last ? h.n - 1 : 0] : 1;
    } else if (rows) {
        bool first = h.n && h.shape[0] == x->samples;
        last = !first && last && h.n && h.shape[h.n - 1] == x->samples;
        if (!first && !last)
            return mr_error_plain(err, MR_E_UNSUPPORTED, "'%s' has not %llu rows", m->name,
                                  (unsigned long long)x->samples);
    }
    strip_one(&h, &rows, last, &f->l);
    if ((rc = mr_npy_header_desc(&h, rows, last, &f->l.desc, err)) < 0)
        return rc;
    snprintf(x->name[x->n], sizeof x->name[0], "%.*s", (int)MR_MIN(strlen(m->name) - 4, sizeof x->name[0] - 1),
             m->name);
    x->field[x->n] = (struct mr_field){.name = x->name[x->n],
                                       .dtype = h.dtype,
                                       .role = x->n ? mr_field_role_of_name(x->name[x->n]) : MR_FIELD_INPUT,
                                       .variable = MR_FIELD_FIXED,
                                       .dims = f->l.desc.dims};
    if (rows)
        return place_rows(x, f, err);
    f->bytes = h.payload_bytes;
    f->base = m->header_offset + f->l.place.prefix_bytes;
    if (f->l.mode == MR_NPZ_STORED) {
        f->base += f->l.npy_bytes;
    } else {
        f->bytes = m->packed_bytes;
        f->l.desc = (struct mr_array_desc){.dtype = h.dtype}; /* the inflated member tells */
    }
    return 0;
}

/* Are the labels integers of 32 bits, one per sample? */
static bool labels_fit(const struct npz_fields *x)
{
    const struct npz_scan *s = &x->s;
    bool fit = s->label_member && s->n_labels == x->samples;
    for (uint64_t i = 0; fit && i < s->n_labels; i++)
        fit = s->labels[i] > INT32_MIN && s->labels[i] <= INT32_MAX;
    return fit;
}

static int add_field(struct npz_fields *x, const struct mr_zip_member *m, bool wanted, struct mr_error *err)
{
    struct mr_error why = {0};
    if (x->n && m == x->s.label_member && labels_fit(x)) {
        snprintf(x->name[x->n], sizeof x->name[0], "%.*s", (int)strlen(m->name) - 4, m->name);
        x->field[x->n] = (struct mr_field){.name = x->name[x->n],
                                           .dtype = x->s.label_dtype,
                                           .storage = MR_FIELD_LABEL,
                                           .role = MR_FIELD_TARGET,
                                           .variable = MR_FIELD_FIXED};
        x->n++;
        return 0;
    }
    int rc = open_field(x, m, &why);
    if (rc >= 0) {
        x->n++;
        return 0;
    }
    if (x->n && !wanted && (rc == MR_E_UNSUPPORTED || rc == MR_E_LIMIT)) {
        mr_log(MR_LOG_INFO, "member '%s' is left out: %s", m->name, why.message);
        return 0;
    }
    return mr_error_plain(err, rc, "member '%s': %s", m->name, why.message);
}

static const struct mr_zip_member *find_array(const struct mr_zip_list *l, const char *name)
{
    char with[MR_FIELD_NAME_MAX + 8];
    snprintf(with, sizeof with, "%.*s.npy", (int)MR_FIELD_NAME_MAX, name);
    return mr_zip_find(l, with);
}

static int choose_fields(struct npz_fields *x, struct mr_error *err)
{
    const struct mr_zip_list *l = &x->s.list;
    const struct mr_zip_member *first = choose_member(l);
    int rc = first ? 0 : mr_error_plain(err, MR_E_FORMAT, "the archive has no .npy member (%zu members)", l->n);
    for (unsigned i = 0; i < x->sink->n_wanted && rc >= 0; i++) {
        const struct mr_zip_member *m = find_array(l, x->sink->wanted[i]);
        rc = m ? add_field(x, m, true, err)
               : mr_error_plain(err, MR_E_FORMAT, "the archive has no member '%.80s.npy'", x->sink->wanted[i]);
    }
    if (x->sink->n_wanted || rc < 0)
        return rc;
    rc = add_field(x, first, true, err);
    for (size_t i = 0; i < l->n && rc >= 0; i++)
        if (&l->member[i] != first && is_array(l->member[i].name) && x->n < MR_FIELDS_MAX)
            rc = add_field(x, &l->member[i], false, err);
    return rc;
}

static int report_fields(struct npz_fields *x, struct mr_error *err)
{
    bool labelled = false;
    int rc = 0;
    for (unsigned k = 0; k < x->n; k++)
        labelled |= x->field[k].storage == MR_FIELD_LABEL;
    for (uint64_t i = 0; i < x->samples && rc >= 0; i++) {
        for (unsigned k = 0; k < x->n; k++)
            x->ref[k] =
                (struct mr_sample_ref){.raw = {x->f[k].base + i * x->f[k].step, x->f[k].bytes}, .label = MR_LABEL_NONE};
        x->ref[0].label = labelled ? label_of(&x->s, i) : MR_LABEL_NONE;
        rc = x->sink->sample(x->sink->user, x->ref, x->n, NULL, err);
    }
    for (unsigned k = 0; k < x->n && rc >= 0; k++)
        if (x->field[k].storage != MR_FIELD_LABEL)
            rc = mr_npz_layout_put(&x->f[k].l, &x->layout[k], err);
    if (rc < 0)
        return rc;
    rc = x->sink->done(x->sink->user, x->field, x->layout, x->n, err);
    memset(x->layout, 0, x->n * sizeof(*x->layout)); /* they are the sink's */
    return rc;
}

struct numbered {
    const struct mr_field_sink *sink;
    bool labelled;
};

static int report_numbered(void *user, const struct mr_sample_ref *ref, const char *key, struct mr_error *err)
{
    const struct numbered *t = user;
    struct mr_sample_ref refs[2] = {*ref};
    refs[0].label = t->labelled ? ref->label : MR_LABEL_NONE;
    return t->sink->sample(t->sink->user, refs, 1 + t->labelled, key, err);
}

/* A member per sample, 'x_000000' and so on: one field, and the labels. */
static int scan_numbered_fields(struct npz_fields *x, size_t n, struct mr_error *err)
{
    struct mr_field field[2] = {{.name = "x", .role = MR_FIELD_INPUT, .variable = MR_FIELD_FIXED}};
    struct mr_layout layout[2] = {{0}};
    struct mr_npz_layout l = {0};
    struct numbered t = {.sink = x->sink};
    x->samples = n;
    t.labelled = labels_fit(x);
    x->s.fn = report_numbered;
    x->s.user = &t;
    x->s.shape = &field[0];
    if (x->sink->n_wanted)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "the archive has a member for each sample, no fields by name");
    if (t.labelled)
        field[1] = (struct mr_field){.name = "y",
                                     .dtype = x->s.label_dtype,
                                     .storage = MR_FIELD_LABEL,
                                     .role = MR_FIELD_TARGET,
                                     .variable = MR_FIELD_FIXED};
    int rc = scan_numbered(&x->s, n, &l, err);
    if (rc >= 0)
        rc = mr_npz_layout_put(&l, &layout[0], err);
    return rc < 0 ? rc : x->sink->done(x->sink->user, field, layout, 1 + t.labelled, err);
}

/* Is there more than one member with values? */
static bool has_many(const struct npz_fields *x)
{
    size_t arrays = 0;
    for (size_t i = 0; i < x->s.list.n; i++)
        arrays += is_array(x->s.list.member[i].name) && &x->s.list.member[i] != x->s.label_member;
    return arrays > 1;
}

int mr_npz_scan_fields(struct mr_store *store, const char *path, unsigned flags, const struct mr_field_sink *sink,
                       struct mr_error *err)
{
    struct npz_fields x = {.sink = sink, .rows = flags & MR_SCAN_ROWS};
    int rc = mr_object_open(store, path, MR_OBJ_READ, &x.s.o, err);
    if (rc < 0)
        return rc;
    if ((rc = mr_zip_list_read(x.s.o, &x.s.list, err)) == 0 && (rc = read_labels(&x.s, err)) == 0) {
        size_t n = numbered_members(&x.s.list);
        x.many = has_many(&x);
        if (n)
            rc = scan_numbered_fields(&x, n, err);
        else if ((rc = reserve_fields(&x, x.s.list.n + 1 + sink->n_wanted, err)) == 0 &&
                 (rc = choose_fields(&x, err)) >= 0)
            rc = report_fields(&x, err);
    }
    if (rc < 0)
        mr_error_context(err, "in '%s'", path);
    fields_done(&x);
    free(x.s.labels);
    mr_zip_list_done(&x.s.list);
    (void)mr_object_close(x.s.o, NULL); /* nothing was written */
    return rc < 0 ? rc : 0;
}
