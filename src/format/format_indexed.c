/* Indexed binary, as the DLIO benchmark lays it out: FILE holds the records one after the other and nothing else,
 * FILE.off.idx their offsets and FILE.sz.idx their sizes, both as unsigned 64-bit little-endian numbers. Offsets count
 * from the start of the file, whatever its size (DLIO's own generator restarts them at 0 in every buffer it writes,
 * which makes its larger files unreadable; scan says so).
 *
 * mmap_indexed_binary is the same on storage; the name asks the reader to go through the mmap store.
 *
 * Layout: byte 0 version = 1. */
#include "format/format_bytes.h"
#include "format/stream_in.h"
#include "format/stream_out.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define IDX_LAYOUT_VERSION 1
#define IDX_BUFFER (64u * 1024u)
#define PATH_MAX_BYTES 4096u

typedef unsigned long long ull;

struct idx_writer {
    struct mr_writer base;
    struct mr_stream_out *data, *offsets, *sizes;
    struct mr_sample_info info;
    uint64_t start, written;
};

static int side_path(const char *path, const char *suffix, char out[PATH_MAX_BYTES], struct mr_error *err)
{
    int n = snprintf(out, PATH_MAX_BYTES, "%s%s", path, suffix);
    if (n < 0 || (size_t)n >= PATH_MAX_BYTES)
        return mr_error_plain(err, MR_E_USAGE, "path '%.64s...' is too long", path);
    return 0;
}

static void idx_writer_abort(struct mr_writer *base)
{
    struct idx_writer *w = (struct idx_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->data);
    mr_stream_out_abort(w->offsets);
    mr_stream_out_abort(w->sizes);
    free(w);
}

/* The file and its side-cars, as a whole, or (whole > 0) from sample `first` of `whole` on, each of `each` bytes. */
static int idx_open(struct mr_store *s, const char *path, uint64_t first, uint64_t whole, uint64_t each,
                    struct mr_writer **out, struct mr_error *err)
{
    char off[PATH_MAX_BYTES], sz[PATH_MAX_BYTES];
    int rc = side_path(path, ".off.idx", off, err);
    if (rc >= 0)
        rc = side_path(path, ".sz.idx", sz, err);
    if (rc < 0)
        return rc;
    struct idx_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    rc = mr_stream_out_open_part(s, path, 0, first * each, whole * each, &w->data, err);
    if (rc >= 0)
        rc = mr_stream_out_open_part(s, off, IDX_BUFFER, 8 * first, 8 * whole, &w->offsets, err);
    if (rc >= 0)
        rc = mr_stream_out_open_part(s, sz, IDX_BUFFER, 8 * first, 8 * whole, &w->sizes, err);
    if (rc < 0) {
        idx_writer_abort(&w->base);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int idx_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                           struct mr_writer **out, struct mr_error *err)
{
    if (spec->compression != MR_COMP_NONE)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "cannot write '%s': indexed binary files are not compressed",
                              path);
    return idx_open(s, path, 0, 0, 0, out, err);
}

static uint64_t idx_part_bytes(const struct mr_writer_spec *spec, const struct mr_sample_info *one)
{
    return spec->compression == MR_COMP_NONE && spec->fixed_size ? one->bytes : 0;
}

static int idx_part_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                         const struct mr_sample_info *one, uint64_t first, uint64_t n, struct mr_writer **out,
                         struct mr_error *err)
{
    (void)n;
    return idx_open(s, path, first, spec->samples, one->bytes, out, err);
}

static int idx_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct idx_writer *w = (struct idx_writer *)base;
    (void)err;
    w->info = *info;
    w->start = mr_stream_out_position(w->data);
    w->written = 0;
    return 0;
}

static void *idx_sample_room(struct mr_writer *base, size_t len)
{
    return mr_stream_out_here(((struct idx_writer *)base)->data, len);
}

static int idx_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct idx_writer *w = (struct idx_writer *)base;
    w->written += len;
    return mr_stream_out_put(w->data, data, len, err);
}

static int put_u64(struct mr_stream_out *o, uint64_t v, struct mr_error *err)
{
    uint8_t bytes[8];
    mr_store_le64(bytes, v);
    return mr_stream_out_put(o, bytes, sizeof bytes, err);
}

static int idx_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct idx_writer *w = (struct idx_writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc >= 0)
        rc = put_u64(w->offsets, w->start, err);
    if (rc >= 0)
        rc = put_u64(w->sizes, w->written, err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {w->start, w->written}, .label = w->info.label};
    return 0;
}

static int idx_layout(struct mr_layout *layout, struct mr_error *err)
{
    return mr_layout_make(&(uint8_t){IDX_LAYOUT_VERSION}, 1, layout, err);
}

static int idx_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                            struct mr_error *err)
{
    struct idx_writer *w = (struct idx_writer *)base;
    struct mr_layout made = {0};
    uint64_t bytes = 0;
    int rc = mr_stream_out_close(w->data, &bytes, err);
    int off_rc = mr_stream_out_close(w->offsets, NULL, rc < 0 ? NULL : err);
    if (rc >= 0)
        rc = off_rc;
    int sz_rc = mr_stream_out_close(w->sizes, NULL, rc < 0 ? NULL : err);
    if (rc >= 0)
        rc = sz_rc;
    free(w);
    if (rc >= 0)
        rc = idx_layout(&made, err);
    if (rc < 0)
        return rc;
    *layout = made;
    *file_bytes = bytes;
    return 0;
}

/* ---- finding ---- */

static int check_extent(const char *path, uint64_t i, uint64_t offset, uint64_t size, uint64_t end, uint64_t file_bytes,
                        struct mr_error *err)
{
    if (offset < end) {
        mr_error_plain(err, MR_E_FORMAT,
                       "record %llu of '%s' overlaps the one before (want an offset of at least %llu, have %llu)",
                       (ull)i, path, (ull)end, (ull)offset);
        return mr_error_hint(
                   err,
                   "DLIO's generator restarts the offsets in every buffer; generate the data set with 'millrace gen'"),
               MR_E_FORMAT;
    }
    if (offset > file_bytes || size > file_bytes - offset)
        return mr_error_plain(err, MR_E_FORMAT,
                              "record %llu of '%s': unexpected end of file (want %llu bytes at %llu, file has %llu)",
                              (ull)i, path, (ull)size, (ull)offset, (ull)file_bytes);
    if (size > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "record %llu of '%s' has %llu bytes, over the limit of %llu", (ull)i,
                              path, (ull)size, (ull)MR_LIMIT_SAMPLE_BYTES);
    return 0;
}

static int scan_pairs(const char *path, struct mr_stream_in *off, struct mr_stream_in *sz, uint64_t file_bytes,
                      mr_scan_fn *fn, void *user, struct mr_error *err)
{
    const uint8_t *p;
    if (off->size % 8 || off->size != sz->size)
        return mr_error_plain(err, MR_E_FORMAT, "'%s' has %llu bytes and '%s' has %llu (want the same multiple of 8)",
                              off->path, (ull)off->size, sz->path, (ull)sz->size);
    uint64_t end = 0;
    for (uint64_t i = 0; i < off->size / 8; i++) {
        int rc = mr_stream_in_get(off, i * 8, 8, &p, err);
        if (rc < 0)
            return rc;
        uint64_t offset = mr_load_le64(p);
        rc = mr_stream_in_get(sz, i * 8, 8, &p, err);
        if (rc < 0)
            return rc;
        uint64_t size = mr_load_le64(p);
        rc = check_extent(path, i, offset, size, end, file_bytes, err);
        if (rc < 0)
            return rc;
        end = offset + size;
        rc = fn(user, &(struct mr_sample_ref){.raw = {offset, size}, .label = MR_LABEL_NONE}, NULL, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static bool never_gzip(const uint8_t *head, size_t len)
{
    (void)head, (void)len;
    return true;
}

static int idx_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                    struct mr_error *err)
{
    char off_path[PATH_MAX_BYTES], sz_path[PATH_MAX_BYTES];
    struct mr_stream_in off = {0}, sz = {0};
    struct mr_store_stat st;
    int rc = side_path(path, ".off.idx", off_path, err);
    if (rc >= 0)
        rc = side_path(path, ".sz.idx", sz_path, err);
    if (rc >= 0)
        rc = mr_store_stat(s, path, &st, err);
    if (rc >= 0)
        rc = mr_stream_in_open(s, off_path, never_gzip, &off, err);
    if (rc >= 0)
        rc = mr_stream_in_open(s, sz_path, never_gzip, &sz, err);
    if (rc == -ENOENT)
        mr_error_hint(err, "an indexed binary file needs FILE.off.idx and FILE.sz.idx beside it");
    if (rc >= 0)
        rc = scan_pairs(path, &off, &sz, st.bytes, fn, user, err);
    mr_stream_in_close(&off);
    mr_stream_in_close(&sz);
    return rc < 0 ? rc : idx_layout(layout, err);
}

static int idx_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    if (layout->len != 1 || *(const uint8_t *)layout->data != IDX_LAYOUT_VERSION)
        return mr_error_plain(err, MR_E_FORMAT,
                              "bad layout of an indexed binary file (want 1 byte of version %d, have %zu bytes)",
                              IDX_LAYOUT_VERSION, layout->len);
    *out = (struct mr_read_cost){.access = MR_ACCESS_RANGE,
                                 .bytes_read_per_payload_byte = 1.0,
                                 .verbatim = true,
                                 .note = "one range per sample, nothing to decode"};
    return 0;
}

#define IDX_OPS(format_name, format_doc, ext)                                                                          \
    {                                                                                                                  \
        .abi = MR_FORMAT_ABI, .size = sizeof(struct mr_format_ops), .name = format_name, .doc = format_doc,            \
        .extensions = ext, .caps = MR_FMT_MULTI | MR_FMT_VARSIZE | MR_FMT_VERBATIM, .shape = mr_format_shape_flat,     \
        .synth = mr_format_synth_content, .check = mr_format_check_equal, .writer_open = idx_writer_open,              \
        .sample_begin = idx_sample_begin, .sample_data = idx_sample_data, .sample_end = idx_sample_end,                \
        .sample_room = idx_sample_room, .writer_close = idx_writer_close, .writer_abort = idx_writer_abort,            \
        .part_bytes = idx_part_bytes, .part_open = idx_part_open, .side_suffixes = ".off.idx\0.sz.idx\0",              \
        .scan = idx_scan, .cost = idx_cost, .unpack = mr_format_no_unpack, .plan = mr_format_plan_single,              \
        .decode = mr_format_decode_bytes,                                                                              \
    }

const struct mr_format_ops mr_format_indexed_binary = IDX_OPS(
    "indexed_binary", "Records in one file, their offsets and sizes in FILE.off.idx and FILE.sz.idx, as DLIO's.",
    ".indexed_binary");
const struct mr_format_ops mr_format_mmap_indexed_binary =
    IDX_OPS("mmap_indexed_binary", "Indexed binary, read through the mmap store.", ".mmap_indexed_binary");
