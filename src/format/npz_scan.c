/* Finding the samples of an NPZ file: its members, their arrays and labels. Every size is checked against the file. */
#include "format/npz_layout.h"
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
    struct mr_npy_header h;
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

static int scan_one(struct npz_scan *s, bool rows, struct mr_npz_layout *l, struct mr_error *err)
{
    const struct mr_zip_member *m = choose_member(&s->list);
    struct mr_npy_header h;
    bool last = false;
    int rc;
    if (!m)
        return mr_error_plain(err, MR_E_FORMAT, "the archive has no .npy member (%zu members)", s->list.n);
    if ((rc = member_header(s, m, &l->place, &h, err)) < 0)
        return rc;
    place_in_layout(m, &l->place, &h, l);
    if (!rows && s->n_labels && !s->labels_scalar && h.n > 0) {
        /* As many labels as the first axis is long: it counts samples. DLIO puts the samples on the last axis. */
        rows = h.shape[0] == s->n_labels;
        last = !rows && s->n_labels > 1 && h.shape[h.n - 1] == s->n_labels;
        rows |= last;
    }
    if (rows && h.n > 0 && h.shape[0] == 1 && !last) { /* one row is one whole sample, without the sample axis */
        memmove(h.shape, h.shape + 1, (h.n - 1) * sizeof(h.shape[0]));
        h.n--;
        rows = false;
        l->strip = l->mode == MR_NPZ_DEFLATED;
    }
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
