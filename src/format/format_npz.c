/* NPZ: a zip archive of .npy members. What we write, and numpy.load reads: 'x', the samples, shape (n, *dims), and 'y',
 * their labels (int64), left out when no sample has one. Samples of different sizes in one file get a member each,
 * 'x_000000', 'x_000001', ...; deflate by compression zip (or gzip: the same algorithm).
 *
 * Five ways to read, told by the layout:
 *   STORED    the sample is one range, read in place. With MR_READ_VERIFY and one sample per member the range grows to
 *             the whole member, whose CRC is checked. Rows of a member with several samples are not checked one by one:
 *             that would read the whole file for each.
 *   DEFLATED  one sample per member: the member is read and inflated; its own local header has sizes and CRC, so files
 *             that differ in them still share one layout.
 *   PACKED    several samples in a deflated, Fortran-ordered or last-axis member: the file is unpacked once, with its
 *             CRC checked, into C-ordered rows.
 *   UNIT      the same of one field of several: only its member is read and unpacked.
 *
 * npz_fields.c writes samples of several fields; npz_layout.[ch] has the layout, npz_scan.c finds samples in files of others. */
#include "format/npz_layout.h"
#include "base/cgroup.h"
#include "format/zip_write.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- writing ---- */

struct npz_writer {
    struct mr_array_writer a;
    struct mr_zip_writer zip;
    bool many_members; /* sizes vary: one member per sample */
    unsigned digits;   /* of the number in such a member's name */
    struct mr_npz_layout layout;
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
    w->layout = (struct mr_npz_layout){.mode = !w->zip.level ? MR_NPZ_STORED
                                               : own         ? MR_NPZ_DEFLATED
                                                             : MR_NPZ_PACKED,
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
    if (w->layout.mode == MR_NPZ_DEFLATED)
        r.raw = (struct mr_extent){data, w->zip.member[w->zip.n - 1].packed_bytes};
    else if (w->layout.mode == MR_NPZ_PACKED)
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
    struct mr_npz_layout *l = &w->layout;
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
    if (l->mode == MR_NPZ_DEFLATED)
        l->desc = (struct mr_array_desc){.dtype = h.dtype}; /* the inflated member tells */
    if (l->mode == MR_NPZ_PACKED || (l->desc.flags & MR_ARRAY_ROWS)) {
        l->member_offset = w->zip.member[0].header_offset;
        l->packed_bytes = w->zip.member[0].packed_bytes;
    }
    return mr_npz_layout_put(l, layout, err);
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

/* ---- finding (npz_scan.c) ---- */

static int npz_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                    struct mr_error *err)
{
    return mr_npz_scan(s, path, false, fn, user, layout, err);
}

static int npz_scan_rows(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                         struct mr_error *err)
{
    return mr_npz_scan(s, path, true, fn, user, layout, err);
}

/* ---- reading ---- */

static int npz_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    struct mr_npz_layout l = {0};
    int rc = mr_npz_layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    struct mr_read_cost c = {.access = MR_ACCESS_RANGE, .bytes_read_per_payload_byte = 1.0};
    if (l.mode == MR_NPZ_PACKED || l.mode == MR_NPZ_UNIT) {
        uint64_t row = 0;
        (void)mr_array_bytes(&l.desc.dims, l.desc.dtype, &row);
        c.access = l.mode == MR_NPZ_UNIT ? MR_ACCESS_UNIT : MR_ACCESS_UNPACK;
        c.note = l.mode == MR_NPZ_UNIT
                     ? "several samples in one deflated or Fortran-ordered member, which is unpacked as a whole"
                     : "several samples in one deflated or Fortran-ordered member: the file is unpacked as a whole";
        if (row && l.desc.rows)
            c.bytes_read_per_payload_byte = (double)l.packed_bytes / ((double)row * (double)l.desc.rows);
    } else if (l.mode == MR_NPZ_DEFLATED) {
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
static bool checkable(const struct mr_npz_layout *l)
{
    return l->mode != MR_NPZ_PACKED && l->mode != MR_NPZ_UNIT && !(l->desc.flags & MR_ARRAY_ROWS);
}

static int npz_plan(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                    struct mr_extent *ext, unsigned max, unsigned *n, struct mr_error *err)
{
    struct mr_npz_layout l = {0};
    int rc = mr_npz_layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    *n = 1;
    if (max < 1)
        return mr_error_plain(err, MR_E_LIMIT, "no room for the sample's range");
    struct mr_extent e = ref->raw;
    if (l.mode == MR_NPZ_UNIT) {
        uint64_t span = (uint64_t)l.place.prefix_bytes + l.place.descriptor_bytes;
        if (!mr_add_ok(l.packed_bytes, span, &span))
            return mr_error_plain(err, MR_E_FORMAT, "bad npz layout (%llu packed bytes)",
                                  (unsigned long long)l.packed_bytes);
        ext[0] = (struct mr_extent){l.member_offset, span};
        return 0;
    }
    uint64_t before = l.mode == MR_NPZ_DEFLATED ? l.place.prefix_bytes : 0, end;
    if (l.mode == MR_NPZ_STORED && (flags & MR_READ_VERIFY) && checkable(&l))
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

static int decode_deflated(struct mr_decoder *d, struct mr_npz_layout *l, unsigned flags, const uint8_t *raw,
                           size_t len, struct mr_sample_out *out, struct mr_error *err)
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
    return mr_array_deliver_as(d, 1, &a, member + h.payload_offset, h.payload_bytes, out, err);
}

static int decode_stored(struct mr_decoder *d, struct mr_npz_layout *l, unsigned flags, const uint8_t *raw, size_t len,
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
    return mr_array_deliver_as(d, 0, &l->desc, payload, len, out, err);
}

static int npz_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                      unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    struct mr_npz_layout l = {0};
    struct mr_extent want = {0};
    unsigned n;
    int rc;
    if ((rc = mr_npz_layout_get(layout, &l, err)) < 0 || (rc = npz_plan(layout, ref, flags, &want, 1, &n, err)) < 0)
        return rc;
    if (l.mode == MR_NPZ_UNIT) { /* raw is the unpacked member */
        if (ref->raw.offset > len || ref->raw.length > len - ref->raw.offset)
            return mr_error_plain(err, MR_E_FORMAT, "unexpected end of the member (want %llu bytes at %llu, have %zu)",
                                  (unsigned long long)ref->raw.length, (unsigned long long)ref->raw.offset, len);
        out->label = ref->label;
        l.desc.flags &= ~(unsigned)(MR_ARRAY_SWAP | MR_ARRAY_FORTRAN | MR_ARRAY_LAST);
        return mr_array_deliver_as(d, 0, &l.desc, (const uint8_t *)raw + ref->raw.offset, ref->raw.length, out, err);
    }
    if (len != want.length)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of sample (want %llu bytes at %llu, have %zu)",
                              (unsigned long long)want.length, (unsigned long long)want.offset, len);
    out->label = ref->label;
    if (l.mode == MR_NPZ_DEFLATED)
        return decode_deflated(d, &l, flags, raw, len, out, err);
    if (l.mode == MR_NPZ_PACKED) /* unpack has put the rows right */
        l.desc.flags &= ~(unsigned)(MR_ARRAY_SWAP | MR_ARRAY_FORTRAN | MR_ARRAY_LAST);
    return decode_stored(d, &l, flags, raw, len, out, err);
}

/* The member's bytes, inflated or in place. *owned is to be freed if it is not NULL. */
static int member_bytes(const struct mr_npz_layout *l, const uint8_t *raw, size_t len, uint8_t **owned,
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
        inflated = mr_malloc_within(z.bytes);
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
    struct mr_npz_layout l = {0};
    uint8_t *owned = NULL;
    const uint8_t *data = NULL;
    uint64_t bytes = 0;
    int rc = mr_npz_layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    if (l.mode != MR_NPZ_PACKED && l.mode != MR_NPZ_UNIT)
        return mr_format_no_unpack(layout, raw, len, out, out_len, err);
    if (l.mode == MR_NPZ_UNIT)
        l.member_offset = 0;
    if ((rc = member_bytes(&l, raw, len, &owned, &data, &bytes, err)) < 0)
        return rc;
    struct mr_npy_header h;
    struct mr_array_desc now;
    if ((rc = mr_npy_header_parse(data, bytes, &h, err)) == 0)
        rc = mr_npy_header_desc(&h, true, l.desc.flags & MR_ARRAY_LAST, &now, err);
    if (rc == 0 && (!same_rows(&now, &l.desc) || h.payload_bytes > bytes - h.payload_offset))
        rc = mr_error_plain(err, MR_E_CHANGED, "the array's header differs from what the scan saw");
    void *rows = rc == 0 ? mr_malloc_within(h.payload_bytes) : NULL;
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
    .fields = &mr_npz_field_ops,
};
