/* NPZ: a zip archive of .npy members. What we write, and numpy.load reads: 'x', the samples, shape (n, *dims), and 'y',
 * their labels (int64), left out when no sample has one. Samples of different sizes in one file get a member each,
 * 'x_000000', 'x_000001', ...; deflate by compression zip (or gzip: the same algorithm).
 *
 * Four ways to read, told by the layout:
 *   STORED    the sample is one range, read in place. With MR_READ_VERIFY and one sample per member the range grows to
 *             the whole member, whose CRC is checked. Rows of a member with several samples are not checked one by one:
 *             that would read the whole file for each.
 *   DEFLATED  one sample per member: the member is read and inflated; its own local header tells sizes and CRC, so
 * files that differ in them still share one layout. PACKED    several samples in a deflated, Fortran-ordered or
 * last-axis member: the file is unpacked once, with its CRC checked, into C-ordered rows.
 *
 * Layout: version u8 = 1, mode u8, descriptor bytes u8, strip u8 (DEFLATED: the member's first axis, of length 1, is
 * the sample axis and not part of the sample), local header bytes u32, .npy header bytes u32, member offset u64,
 * member's packed bytes u64 (both 0 where each sample has its own member), array description. */
#include "format/npy_header.h"
#include "format/zip_read.h"
#include "format/zip_write.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define NPZ_LAYOUT_VERSION 1
#define NPZ_FIXED 28u
#define LABELS_MAX (1u << 26)
#define ROWS_WITHOUT_BYTES_MAX (1u << 20)

enum npz_mode { NPZ_STORED, NPZ_DEFLATED, NPZ_PACKED };

struct npz_layout {
    enum npz_mode mode;
    bool strip;
    struct mr_zip_place place;
    uint32_t npy_bytes;
    uint64_t member_offset, packed_bytes;
    struct mr_array_desc desc;
};

static size_t layout_encode(const struct npz_layout *l, uint8_t data[NPZ_FIXED + MR_ARRAY_DESC_MAX])
{
    data[0] = NPZ_LAYOUT_VERSION;
    data[1] = (uint8_t)l->mode;
    data[2] = (uint8_t)l->place.descriptor_bytes;
    data[3] = l->strip;
    mr_store_le32(data + 4, l->place.prefix_bytes);
    mr_store_le32(data + 8, l->npy_bytes);
    mr_store_le64(data + 12, l->member_offset);
    mr_store_le64(data + 20, l->packed_bytes);
    return NPZ_FIXED + mr_array_desc_encode(&l->desc, data + NPZ_FIXED);
}

static int layout_put(const struct npz_layout *l, struct mr_layout *out, struct mr_error *err)
{
    uint8_t data[NPZ_FIXED + MR_ARRAY_DESC_MAX];
    return mr_array_layout_make(data, layout_encode(l, data), out, err);
}

static bool layout_equal(const struct npz_layout *a, const struct npz_layout *b)
{
    uint8_t x[NPZ_FIXED + MR_ARRAY_DESC_MAX], y[NPZ_FIXED + MR_ARRAY_DESC_MAX];
    size_t n = layout_encode(a, x);
    return n == layout_encode(b, y) && memcmp(x, y, n) == 0;
}

static int layout_get(const struct mr_layout *layout, struct npz_layout *out, struct mr_error *err)
{
    const uint8_t *data = layout->data;
    size_t used;
    if (layout->len < NPZ_FIXED || data[0] != NPZ_LAYOUT_VERSION || data[1] > NPZ_PACKED || data[3] > 1)
        return mr_error_plain(err, MR_E_FORMAT, "bad npz layout (%zu bytes)", layout->len);
    struct npz_layout l = {.mode = data[1],
                           .strip = data[3],
                           .place = {.prefix_bytes = mr_load_le32(data + 4), .descriptor_bytes = data[2]},
                           .npy_bytes = mr_load_le32(data + 8),
                           .member_offset = mr_load_le64(data + 12),
                           .packed_bytes = mr_load_le64(data + 20)};
    int rc = mr_array_desc_decode(data + NPZ_FIXED, layout->len - NPZ_FIXED, &l.desc, &used, err);
    if (rc < 0)
        return rc;
    unsigned dd = l.place.descriptor_bytes;
    if (used != layout->len - NPZ_FIXED || (dd != 0 && dd != 12 && dd != 16 && dd != 20 && dd != 24) ||
        l.place.prefix_bytes < MR_ZIP_LOCAL_BYTES || l.place.prefix_bytes > MR_ZIP_LOCAL_BYTES + 2 * UINT16_MAX ||
        l.npy_bytes > MR_LIMIT_HEADER_BYTES)
        return mr_error_plain(err, MR_E_FORMAT, "bad npz layout (%zu bytes)", layout->len);
    *out = l;
    return 0;
}

/* ---- writing ---- */

struct npz_writer {
    struct mr_array_writer a;
    struct mr_zip_writer zip;
    bool many_members; /* sizes vary: one member per sample */
    unsigned digits;   /* of the number in such a member's name */
    struct npz_layout layout;
};

static int npz_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                           struct mr_writer **out, struct mr_error *err)
{
    if (spec->dims.n == MR_DIMS_MAX && spec->fixed_size)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "samples in npz files may have %u axes at most", MR_DIMS_MAX - 1);
    struct npz_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    int rc = mr_array_writer_init(&w->a, &mr_format_npz, s, path, spec, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    w->many_members = w->a.vary = !spec->fixed_size && spec->samples > 1;
    w->digits = 6;
    for (uint64_t n = spec->samples / 1000000; n > 1; n /= 10)
        w->digits++;
    w->zip.out = &w->a.out;
    w->zip.level = spec->compression == MR_COMP_NONE ? 0 : mr_array_deflate_level(spec->compression_level);
    *out = &w->a.base;
    return 0;
}

/* Opens the member that the current sample starts, and writes its .npy header. */
static int begin_member(struct npz_writer *w, struct mr_error *err)
{
    char name[MR_ZIP_NAME_MAX] = "x.npy";
    uint64_t shape[MR_NPY_AXES];
    uint8_t header[MR_NPY_BUILD_MAX];
    unsigned n = 0;
    if (w->many_members)
        snprintf(name, sizeof name, "x_%0*llu.npy", (int)w->digits, (unsigned long long)w->a.ended);
    else
        shape[n++] = w->a.samples;
    for (unsigned i = 0; i < w->a.info.dims.n; i++)
        shape[n++] = w->a.info.dims.dim[i];
    int rc = mr_zip_member_begin(&w->zip, name, err);
    if (rc < 0)
        return rc;
    size_t len = mr_npy_header_build(w->a.info.dtype, shape, n, header);
    bool own = w->many_members || w->a.samples == 1;
    w->layout = (struct npz_layout){.mode = !w->zip.level ? NPZ_STORED
                                            : own         ? NPZ_DEFLATED
                                                          : NPZ_PACKED,
                                    .strip = w->zip.level && w->a.samples == 1,
                                    .place = {.prefix_bytes = w->zip.prefix_bytes},
                                    .npy_bytes = (uint32_t)len};
    return mr_zip_member_data(&w->zip, header, len, err);
}

static int npz_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct npz_writer *w = (struct npz_writer *)base;
    if (info->dims.n == MR_DIMS_MAX)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "samples in npz files may have %u axes at most", MR_DIMS_MAX - 1);
    int rc = mr_array_writer_begin(&w->a, info, err);
    return rc == 0 && (w->many_members || w->a.begun == 1) ? begin_member(w, err) : rc;
}

static int npz_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct npz_writer *w = (struct npz_writer *)base;
    int rc = mr_array_writer_take(&w->a, len, err);
    return rc < 0 ? rc : mr_zip_member_data(&w->zip, data, len, err);
}

static int npz_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct npz_writer *w = (struct npz_writer *)base;
    int rc = mr_array_writer_end(&w->a, err);
    if (rc == 0 && (w->many_members || w->a.ended == w->a.samples))
        rc = mr_zip_member_end(&w->zip, err);
    if (rc < 0)
        return rc;
    uint64_t row = w->many_members ? 0 : w->a.ended - 1, data = w->zip.data_offset;
    struct mr_sample_ref r = {.raw = {data + w->layout.npy_bytes + row * w->a.info.bytes, w->a.info.bytes},
                              .label = w->a.info.label};
    if (w->layout.mode == NPZ_DEFLATED)
        r.raw = (struct mr_extent){data, w->zip.member[w->zip.n - 1].packed_bytes};
    else if (w->layout.mode == NPZ_PACKED)
        r.raw.offset = row * w->a.info.bytes;
    *ref = r;
    return 0;
}

static int write_labels(struct npz_writer *w, struct mr_error *err)
{
    uint8_t header[MR_NPY_BUILD_MAX];
    for (uint64_t i = 0; i < w->a.samples; i++) /* as little-endian, on any machine */
        mr_store_le64(&w->a.labels[i], (uint64_t)w->a.labels[i]);
    int rc = mr_zip_member_begin(&w->zip, "y.npy", err);
    if (rc == 0)
        rc = mr_zip_member_data(&w->zip, header, mr_npy_header_build(MR_I64, &w->a.samples, 1, header), err);
    if (rc == 0)
        rc = mr_zip_member_data(&w->zip, w->a.labels, w->a.samples * sizeof(*w->a.labels), err);
    return rc == 0 ? mr_zip_member_end(&w->zip, err) : rc;
}

/* Completes the layout of what was written; the samples' member is the first one. */
static int finish_layout(struct npz_writer *w, struct mr_layout *layout, struct mr_error *err)
{
    struct npz_layout *l = &w->layout;
    struct mr_npy_header h = {.dtype = w->a.info.dtype};
    bool own = w->many_members || w->a.samples == 1;
    if (!own)
        h.shape[h.n++] = w->a.samples;
    for (unsigned i = 0; i < w->a.info.dims.n; i++)
        h.shape[h.n++] = w->a.info.dims.dim[i];
    int rc = mr_npy_header_desc(&h, !own, false, &l->desc, err);
    if (rc < 0)
        return rc;
    if (w->many_members && l->desc.dims.n == 1)
        l->desc.flags |= MR_ARRAY_FLEX; /* also if the last sample happens to be empty */
    if (l->mode == NPZ_DEFLATED)
        l->desc = (struct mr_array_desc){.dtype = h.dtype}; /* the inflated member tells */
    if (l->mode == NPZ_PACKED || (l->desc.flags & MR_ARRAY_ROWS)) {
        l->member_offset = w->zip.member[0].header_offset;
        l->packed_bytes = w->zip.member[0].packed_bytes;
    }
    return layout_put(l, layout, err);
}

static void npz_writer_free(struct npz_writer *w)
{
    mr_zip_writer_done(&w->zip);
    mr_array_writer_done(&w->a);
    free(w);
}

static int npz_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                            struct mr_error *err)
{
    struct npz_writer *w = (struct npz_writer *)base;
    struct mr_layout made = {0};
    uint64_t size = 0;
    int rc = mr_array_writer_complete(&w->a, err);
    if (rc == 0 && w->a.samples == 0) {
        rc = begin_member(w, err);
        if (rc == 0)
            rc = mr_zip_member_end(&w->zip, err);
    }
    if (rc == 0)
        rc = finish_layout(w, &made, err);
    if (rc == 0 && w->a.any_label)
        rc = write_labels(w, err);
    if (rc == 0)
        rc = mr_zip_directory(&w->zip, err);
    size = mr_array_output_pos(&w->a.out);
    if (rc == 0)
        rc = mr_array_output_close(&w->a.out, err);
    if (rc == 0) {
        *layout = made;
        *file_bytes = size;
    } else {
        free(made.data);
    }
    npz_writer_free(w);
    return rc;
}

static void npz_writer_abort(struct mr_writer *base)
{
    if (base)
        npz_writer_free((struct npz_writer *)base);
}

/* ---- finding ---- */

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
                            const struct mr_npy_header *h, struct npz_layout *l)
{
    l->mode = m->method == MR_ZIP_STORED ? NPZ_STORED : NPZ_DEFLATED;
    l->place = *place;
    l->npy_bytes = (uint32_t)h->payload_offset;
}

/* One sample = one member. */
static int emit_whole(struct npz_scan *s, const struct mr_zip_member *m, const struct npz_layout *l,
                      uint64_t payload_bytes, uint64_t number, struct mr_error *err)
{
    uint64_t data = m->header_offset + l->place.prefix_bytes;
    struct mr_sample_ref ref = {.raw = {data, m->packed_bytes}, .label = label_of(s, number)};
    if (l->mode == NPZ_STORED)
        ref.raw = (struct mr_extent){data + l->npy_bytes, payload_bytes};
    return s->fn(s->user, &ref, NULL, err);
}

static int emit_rows(struct npz_scan *s, const struct mr_zip_member *m, struct npz_layout *l, struct mr_error *err)
{
    uint64_t bytes = 0, base = m->header_offset + l->place.prefix_bytes + l->npy_bytes;
    (void)mr_array_bytes(&l->desc.dims, l->desc.dtype, &bytes); /* checked by mr_npy_header_desc */
    if (bytes == 0 && l->desc.rows > ROWS_WITHOUT_BYTES_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "%llu rows without bytes (limit %u)", (unsigned long long)l->desc.rows,
                              ROWS_WITHOUT_BYTES_MAX);
    struct mr_array_desc order = l->desc;
    order.flags &= ~(unsigned)MR_ARRAY_SWAP;
    if (l->mode == NPZ_DEFLATED || !mr_array_is_plain(&order)) {
        l->mode = NPZ_PACKED;
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
static int scan_numbered(struct npz_scan *s, size_t n, struct npz_layout *l, struct mr_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct mr_zip_member *m = &s->list.member[i];
        struct npz_layout one = {0};
        struct mr_npy_header h = {0};
        int rc = member_header(s, m, &one.place, &h, err);
        if (rc < 0 || (rc = mr_npy_header_desc(&h, false, false, &one.desc, err)) < 0)
            return rc;
        if (h.n == 1)
            one.desc.flags |= MR_ARRAY_FLEX;
        place_in_layout(m, &one.place, &h, &one);
        if (one.mode == NPZ_DEFLATED)
            one.desc = (struct mr_array_desc){.dtype = h.dtype};
        if (i == 0)
            *l = one;
        else if (!layout_equal(l, &one))
            return mr_error_plain(err, MR_E_UNSUPPORTED,
                                  "zip members '%s' and '%s' differ in more than the number of elements",
                                  s->list.member[0].name, m->name);
        if ((rc = emit_whole(s, m, &one, h.payload_bytes, i, err)) < 0)
            return rc;
    }
    return 0;
}

static int scan_one(struct npz_scan *s, bool rows, struct npz_layout *l, struct mr_error *err)
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
        l->strip = l->mode == NPZ_DEFLATED;
    }
    if ((rc = mr_npy_header_desc(&h, rows, last, &l->desc, err)) < 0)
        return rc;
    if (rows)
        return emit_rows(s, m, l, err);
    if (l->mode == NPZ_DEFLATED)
        l->desc = (struct mr_array_desc){.dtype = h.dtype}; /* the inflated member tells */
    return emit_whole(s, m, l, h.payload_bytes, 0, err);
}

static int scan_path(struct mr_store *store, const char *path, bool rows, mr_scan_fn *fn, void *user,
                     struct mr_layout *layout, struct mr_error *err)
{
    struct npz_scan s = {.fn = fn, .user = user};
    struct npz_layout l = {0};
    int rc = mr_object_open(store, path, MR_OBJ_READ, &s.o, err);
    if (rc < 0)
        return rc;
    if ((rc = mr_zip_list_read(s.o, &s.list, err)) == 0 && (rc = read_labels(&s, err)) == 0) {
        size_t n = numbered_members(&s.list);
        rc = n ? scan_numbered(&s, n, &l, err) : scan_one(&s, rows, &l, err);
    }
    if (rc >= 0)
        rc = layout_put(&l, layout, err);
    if (rc < 0)
        mr_error_context(err, "in '%s'", path);
    free(s.labels);
    mr_zip_list_done(&s.list);
    (void)mr_object_close(s.o, NULL); /* nothing was written */
    return rc;
}

static int npz_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                    struct mr_error *err)
{
    return scan_path(s, path, false, fn, user, layout, err);
}

static int npz_scan_rows(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                         struct mr_error *err)
{
    return scan_path(s, path, true, fn, user, layout, err);
}

/* ---- reading ---- */

static int npz_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    struct npz_layout l = {0};
    int rc = layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    struct mr_read_cost c = {.access = MR_ACCESS_RANGE, .bytes_read_per_payload_byte = 1.0};
    if (l.mode == NPZ_PACKED) {
        uint64_t row = 0;
        (void)mr_array_bytes(&l.desc.dims, l.desc.dtype, &row);
        c.access = MR_ACCESS_UNPACK;
        c.note = "several samples in one deflated or Fortran-ordered member: the file is unpacked as a whole";
        if (row && l.desc.rows)
            c.bytes_read_per_payload_byte = (double)l.packed_bytes / ((double)row * (double)l.desc.rows);
    } else if (l.mode == NPZ_DEFLATED) {
        c.note = "deflated: whole member is inflated";
    } else {
        c.verbatim = mr_array_is_plain(&l.desc);
        c.note = !c.verbatim ? "big-endian or Fortran order: rearranged in memory"
                 : l.desc.flags & MR_ARRAY_ROWS
                     ? "payload read in place; the member's CRC covers all its samples and is not checked per sample"
                     : "payload read in place; verifying reads the member's headers too";
    }
    *out = c;
    return 0;
}

/* Is the sample a member of its own, so that its CRC can be checked? */
static bool checkable(const struct npz_layout *l)
{
    return l->mode != NPZ_PACKED && !(l->desc.flags & MR_ARRAY_ROWS);
}

static int npz_plan(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                    struct mr_extent *ext, unsigned max, unsigned *n, struct mr_error *err)
{
    struct npz_layout l = {0};
    int rc = layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    *n = 1;
    if (max < 1)
        return mr_error_plain(err, MR_E_LIMIT, "no room for the sample's range");
    struct mr_extent e = ref->raw;
    uint64_t before = l.mode == NPZ_DEFLATED ? l.place.prefix_bytes : 0, end;
    if (l.mode == NPZ_STORED && (flags & MR_READ_VERIFY) && checkable(&l))
        before = (uint64_t)l.place.prefix_bytes + l.npy_bytes;
    if (e.offset < before || !mr_add_ok(e.offset, e.length, &end) ||
        !mr_add_ok(end, before + l.place.descriptor_bytes, &end))
        return mr_error_plain(err, MR_E_FORMAT, "sample at %llu lies before its own headers",
                              (unsigned long long)e.offset);
    e.offset -= before;
    e.length += before + (before ? l.place.descriptor_bytes : 0);
    ext[0] = e;
    return 0;
}

static struct libdeflate_decompressor *inflater_of(struct mr_decoder *d)
{
    static const char key; /* its address names the slot */
    void **slot = mr_decoder_private(d, &key, (void (*)(void *))libdeflate_free_decompressor);
    if (slot && !*slot)
        *slot = libdeflate_alloc_decompressor();
    return slot ? *slot : NULL;
}

static int check_crc(const struct mr_zip_local *z, const void *data, size_t len, struct mr_error *err)
{
    uint32_t have = libdeflate_crc32(0, data, len);
    return have == z->crc
               ? 0
               : mr_error_plain(err, MR_E_CORRUPT, "CRC-32 of the zip member is %08x, want %08x", have, z->crc);
}

/* Delivers one sample of array bytes in file order. */
static int deliver_array(struct mr_decoder *d, unsigned slot, struct mr_array_desc *a, const void *payload,
                         uint64_t bytes, struct mr_sample_out *out, struct mr_error *err)
{
    int rc = mr_array_desc_resolve(a, bytes, err);
    if (rc < 0)
        return rc;
    struct mr_array_desc one = *a;
    one.flags &= ~(unsigned)(MR_ARRAY_ROWS | MR_ARRAY_LAST);
    if (mr_array_is_plain(&one)) {
        rc = mr_array_deliver(payload, bytes, out, err);
    } else {
        void *p;
        if ((rc = mr_array_target(d, slot, bytes, out, &p, err)) < 0)
            return rc;
        mr_array_normalise(p, payload, &one);
        rc = mr_array_deliver(p, bytes, out, err);
    }
    out->dtype = a->dtype;
    out->dims = a->dims;
    return rc;
}

static int decode_deflated(struct mr_decoder *d, struct npz_layout *l, unsigned flags, const uint8_t *raw, size_t len,
                           struct mr_sample_out *out, struct mr_error *err)
{
    struct mr_zip_local z;
    struct mr_npy_header h;
    struct mr_array_desc a;
    int rc;
    if ((rc = mr_zip_local_parse(raw, len, &l->place, &z, err)) < 0 ||
        (rc = mr_zip_check_ratio(z.packed_bytes, z.bytes, err)) < 0)
        return rc;
    if (z.method != MR_ZIP_DEFLATED)
        return mr_error_plain(err, MR_E_CHANGED, "zip member is not deflated any more (method %u)", z.method);
    struct libdeflate_decompressor *inflater = inflater_of(d);
    uint8_t *member = mr_decoder_scratch(d, 0, MR_MAX(z.bytes, 1));
    if (!inflater || !member)
        return mr_error_set(err, -ENOMEM, "cannot inflate %llu bytes", (unsigned long long)z.bytes);
    if ((rc = mr_zip_inflate(inflater, raw + l->place.prefix_bytes, z.packed_bytes, member, z.bytes, err)) < 0)
        return rc;
    if ((flags & MR_READ_VERIFY) && (rc = check_crc(&z, member, z.bytes, err)) < 0)
        return rc;
    if ((rc = mr_npy_header_parse(member, z.bytes, &h, err)) < 0)
        return rc;
    if (h.payload_bytes > z.bytes - h.payload_offset)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of the array (want %llu bytes, have %llu)",
                              (unsigned long long)h.payload_bytes, (unsigned long long)(z.bytes - h.payload_offset));
    if (l->strip) {
        if (h.n == 0 || h.shape[0] != 1)
            return mr_error_plain(err, MR_E_CHANGED, "the array holds more than one sample now");
        memmove(h.shape, h.shape + 1, (h.n - 1) * sizeof(h.shape[0]));
        h.n--;
    }
    if ((rc = mr_npy_header_desc(&h, false, false, &a, err)) < 0)
        return rc;
    return deliver_array(d, 1, &a, member + h.payload_offset, h.payload_bytes, out, err);
}

static int decode_stored(struct mr_decoder *d, struct npz_layout *l, unsigned flags, const uint8_t *raw, size_t len,
                         struct mr_sample_out *out, struct mr_error *err)
{
    const uint8_t *payload = raw;
    if ((flags & MR_READ_VERIFY) && checkable(l)) {
        struct mr_zip_local z;
        int rc = mr_zip_local_parse(raw, len, &l->place, &z, err);
        if (rc < 0)
            return rc;
        if (z.packed_bytes < l->npy_bytes)
            return mr_error_plain(err, MR_E_CHANGED, "zip member is shorter than its array header");
        if ((rc = check_crc(&z, raw + l->place.prefix_bytes, z.packed_bytes, err)) < 0)
            return rc;
        payload = raw + l->place.prefix_bytes + l->npy_bytes;
        len = z.packed_bytes - l->npy_bytes;
    }
    return deliver_array(d, 0, &l->desc, payload, len, out, err);
}

static int npz_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                      unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    struct npz_layout l = {0};
    struct mr_extent want = {0};
    unsigned n;
    int rc;
    if ((rc = layout_get(layout, &l, err)) < 0 || (rc = npz_plan(layout, ref, flags, &want, 1, &n, err)) < 0)
        return rc;
    if (len != want.length)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of sample (want %llu bytes at %llu, have %zu)",
                              (unsigned long long)want.length, (unsigned long long)want.offset, len);
    out->label = ref->label;
    if (l.mode == NPZ_DEFLATED)
        return decode_deflated(d, &l, flags, raw, len, out, err);
    if (l.mode == NPZ_PACKED) /* unpack has put the rows right */
        l.desc.flags &= ~(unsigned)(MR_ARRAY_SWAP | MR_ARRAY_FORTRAN | MR_ARRAY_LAST);
    return decode_stored(d, &l, flags, raw, len, out, err);
}

/* The member's bytes, inflated or in place. *owned is to be freed if it is not NULL. */
static int member_bytes(const struct npz_layout *l, const uint8_t *raw, size_t len, uint8_t **owned,
                        const uint8_t **data, uint64_t *bytes, struct mr_error *err)
{
    uint64_t span, end;
    struct mr_zip_local z;
    if (!mr_add_ok(l->packed_bytes, (uint64_t)l->place.prefix_bytes + l->place.descriptor_bytes, &span) ||
        !mr_add_ok(l->member_offset, span, &end) || end > len)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of file (want %llu bytes at %llu, file has %zu)",
                              (unsigned long long)l->packed_bytes, (unsigned long long)l->member_offset, len);
    int rc = mr_zip_local_parse(raw + l->member_offset, span, &l->place, &z, err);
    if (rc < 0)
        return rc;
    const uint8_t *packed = raw + l->member_offset + l->place.prefix_bytes;
    uint8_t *inflated = NULL;
    if (z.method == MR_ZIP_DEFLATED) {
        if ((rc = mr_zip_check_ratio(z.packed_bytes, z.bytes, err)) < 0)
            return rc;
        struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
        inflated = malloc(MR_MAX(z.bytes, 1));
        rc = inflater && inflated
                 ? mr_zip_inflate(inflater, packed, z.packed_bytes, inflated, z.bytes, err)
                 : mr_error_set(err, -ENOMEM, "cannot inflate %llu bytes", (unsigned long long)z.bytes);
        libdeflate_free_decompressor(inflater);
    } else if (z.method != MR_ZIP_STORED || z.bytes != z.packed_bytes) {
        rc = mr_error_plain(err, MR_E_CHANGED, "zip member has method %u now", z.method);
    }
    const uint8_t *p = inflated ? inflated : packed;
    if (rc == 0)
        rc = check_crc(&z, p, z.bytes, err);
    if (rc < 0) {
        free(inflated);
        return rc;
    }
    *owned = inflated;
    *data = p;
    *bytes = z.bytes;
    return 0;
}

static bool same_rows(const struct mr_array_desc *a, const struct mr_array_desc *b)
{
    return a->dtype == b->dtype && a->flags == b->flags && a->rows == b->rows && a->dims.n == b->dims.n &&
           memcmp(a->dims.dim, b->dims.dim, a->dims.n * sizeof(a->dims.dim[0])) == 0;
}

static int npz_unpack(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                      struct mr_error *err)
{
    struct npz_layout l = {0};
    uint8_t *owned = NULL;
    const uint8_t *data = NULL;
    uint64_t bytes = 0;
    int rc = layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    if (l.mode != NPZ_PACKED)
        return mr_format_no_unpack(layout, raw, len, out, out_len, err);
    if ((rc = member_bytes(&l, raw, len, &owned, &data, &bytes, err)) < 0)
        return rc;
    struct mr_npy_header h;
    struct mr_array_desc now;
    if ((rc = mr_npy_header_parse(data, bytes, &h, err)) == 0)
        rc = mr_npy_header_desc(&h, true, l.desc.flags & MR_ARRAY_LAST, &now, err);
    if (rc == 0 && (!same_rows(&now, &l.desc) || h.payload_bytes > bytes - h.payload_offset))
        rc = mr_error_plain(err, MR_E_CHANGED, "the array's header differs from what the scan saw");
    void *rows = rc == 0 ? malloc(MR_MAX(h.payload_bytes, 1)) : NULL;
    if (rc == 0 && !rows)
        rc = mr_error_set(err, -ENOMEM, "cannot unpack %llu bytes", (unsigned long long)h.payload_bytes);
    if (rc == 0) {
        mr_array_normalise(rows, data + h.payload_offset, &now);
        *out = rows;
        *out_len = h.payload_bytes;
    }
    free(owned);
    return rc;
}

const struct mr_format_ops mr_format_npz = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "npz",
    .doc = "NumPy zip archives: samples in 'x', labels in 'y'; stored or deflated, zip64, CRC-32.",
    .extensions = ".npz",
    .caps = MR_FMT_MULTI | MR_FMT_VARSIZE | MR_FMT_LABEL | MR_FMT_CHECKSUM | MR_FMT_VERBATIM | MR_FMT_DTYPE,
    .shape = mr_format_shape_flat,
    .synth = mr_format_synth_content,
    .check = mr_format_check_equal,
    .writer_open = npz_writer_open,
    .sample_begin = npz_sample_begin,
    .sample_data = npz_sample_data,
    .sample_end = npz_sample_end,
    .writer_close = npz_writer_close,
    .writer_abort = npz_writer_abort,
    .side_suffixes = "",
    .scan = npz_scan,
    .scan_rows = npz_scan_rows,
    .cost = npz_cost,
    .unpack = npz_unpack,
    .plan = npz_plan,
    .decode = npz_decode,
};
