/* TFRecord: records one after the other, each
 *
 *   offset 0   8 bytes  length of the data, little-endian
 *          8   4        masked CRC-32C of those 8 bytes
 *         12   length   the data: normally a tf.train.Example
 *   12+length  4        masked CRC-32C of the data
 *
 * A sample's ref points at its payload (a bytes feature of the Example, or the whole data of a record that is none), so
 * it is read in place. Its aux says how far the record reaches around it, which VERIFY needs for the two checksums:
 * bits 23..12 bytes from the record's start to the payload, bits 11..0 bytes from the payload's end to the record's
 * end. Where either is over 4095, aux is 0: scan then checks the data's checksum once and VERIFY later has nothing to
 * check.
 *
 * Our records are Example {label, size, image}, image last. Beside every file lies FILE.idx, the text index of DALI's
 * tfrecord2idx ("offset size" of each record per line). When such an index exists, scan takes its records, and it must
 * agree with the file. In a gzip file all offsets count in the unpacked stream.
 *
 * Layout: byte 0 version = 1, byte 1 flags (1 = gzip). Records of several features: tfrecord_fields.c. */
#include "base/crc32c.h"
#include "format/format_bytes.h"
#include "format/gzip_inflate.h"
#include "format/tf_example.h"
#include "format/tfrecord_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AUX_BITS 12u
#define AUX_MAX ((1u << AUX_BITS) - 1)
#define INDEX_SUFFIX ".idx"

typedef unsigned long long ull;

/* ---- writing ---- */

struct tfr_writer {
    struct mr_writer base;
    struct mr_stream_out *out, *index;
    struct mr_sample_info info;
    uint64_t record_start, written;
    unsigned prefix; /* from the record's start to the payload */
    uint32_t crc;
    bool gzip;
};

int mr_tfr_index_path(const char *path, char out[MR_TFR_PATH_MAX], struct mr_error *err)
{
    int n = snprintf(out, MR_TFR_PATH_MAX, "%s%s", path, INDEX_SUFFIX);
    if (n < 0 || (size_t)n >= MR_TFR_PATH_MAX)
        return mr_error_plain(err, MR_E_USAGE, "path '%.64s...' is too long", path);
    return 0;
}

static void tfr_writer_abort(struct mr_writer *base)
{
    struct tfr_writer *w = (struct tfr_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    mr_stream_out_abort(w->index);
    free(w);
}

static int tfr_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                           struct mr_writer **out, struct mr_error *err)
{
    char side[MR_TFR_PATH_MAX];
    int rc = mr_tfr_index_path(path, side, err);
    if (rc < 0)
        return rc;
    struct tfr_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->gzip = spec->compression == MR_COMP_GZIP;
    rc = mr_stream_out_open(s, path, spec->compression, spec->compression_level, 0, &w->out, err);
    if (rc >= 0)
        rc = mr_stream_out_open(s, side, MR_COMP_NONE, 0, MR_TFR_INDEX_BUFFER, &w->index, err);
    if (rc < 0) {
        tfr_writer_abort(&w->base);
        return rc;
    }
    *out = &w->base;
    return 0;
}

/* Labels of one byte (below 128) keep all records of one length. */
static uint64_t tfr_part_bytes(const struct mr_writer_spec *spec, const struct mr_sample_info *one)
{
    uint8_t prefix[MR_TF_PREFIX_MAX];
    if (spec->compression != MR_COMP_NONE || !spec->fixed_size || one->label > 127)
        return 0;
    return MR_TFR_HEAD + mr_tf_example_prefix(one->bytes, one->label, prefix) + one->bytes + MR_TFR_TAIL;
}

static unsigned digits(uint64_t v)
{
    unsigned n = 1;
    while (v /= 10)
        n++;
    return n;
}

/* Bytes of the index of the first n records: two numbers, a space and an end of line each. Offsets of at least 10^d
 * have more than d digits. */
static uint64_t index_bytes(uint64_t n, uint64_t record_bytes)
{
    uint64_t bytes = n * (1 + 1 + digits(record_bytes) + 1);
    for (uint64_t power = 10;; power *= 10) {
        uint64_t shorter = (power + record_bytes - 1) / record_bytes;
        bytes += n > shorter ? n - shorter : 0;
        if (n <= shorter || power > UINT64_MAX / 100)
            return bytes;
    }
}

static int tfr_part_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                         const struct mr_sample_info *one, uint64_t first, uint64_t n, struct mr_writer **out,
                         struct mr_error *err)
{
    char side[MR_TFR_PATH_MAX];
    uint64_t each = tfr_part_bytes(spec, one);
    (void)n;
    if (!each)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "records of '%s' differ in length: it cannot be written in parts",
                              path);
    int rc = mr_tfr_index_path(path, side, err);
    if (rc < 0)
        return rc;
    struct tfr_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    rc = mr_stream_out_open_part(s, path, 0, first * each, spec->samples * each, &w->out, err);
    if (rc >= 0)
        rc = mr_stream_out_open_part(s, side, MR_TFR_INDEX_BUFFER, index_bytes(first, each),
                                     index_bytes(spec->samples, each), &w->index, err);
    if (rc < 0) {
        tfr_writer_abort(&w->base);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int tfr_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct tfr_writer *w = (struct tfr_writer *)base;
    uint8_t head[MR_TFR_HEAD + MR_TF_PREFIX_MAX];
    if (info->bytes > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "a sample of %llu bytes is over the limit of %llu", (ull)info->bytes,
                              (ull)MR_LIMIT_SAMPLE_BYTES);
    size_t prefix = mr_tf_example_prefix(info->bytes, info->label, head + MR_TFR_HEAD);
    mr_store_le64(head, prefix + info->bytes);
    mr_store_le32(head + 8, mr_crc32c_mask(mr_crc32c(0, head, 8)));
    w->info = *info;
    w->record_start = mr_stream_out_position(w->out);
    w->written = 0;
    w->prefix = (unsigned)(MR_TFR_HEAD + prefix);
    w->crc = mr_crc32c(0, head + MR_TFR_HEAD, prefix);
    return mr_stream_out_put(w->out, head, w->prefix, err);
}

static void *tfr_sample_room(struct mr_writer *base, size_t len)
{
    return mr_stream_out_here(((struct tfr_writer *)base)->out, len);
}

static int tfr_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct tfr_writer *w = (struct tfr_writer *)base;
    w->crc = mr_crc32c(w->crc, data, len);
    w->written += len;
    return mr_stream_out_put(w->out, data, len, err);
}

static char *print_number(char *p, uint64_t v)
{
    char digits[20];
    unsigned n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        *p++ = digits[--n];
    return p;
}

/* Once per record, so not with snprintf. */
int mr_tfr_put_index_line(struct mr_stream_out *index, uint64_t offset, uint64_t size, struct mr_error *err)
{
    char *start = mr_stream_out_room(index, 48, err);
    if (!start)
        return err ? err->code : MR_E_INTERNAL;
    char *p = print_number(start, offset);
    *p++ = ' ';
    p = print_number(p, size);
    *p++ = '\n';
    mr_stream_out_advance(index, (size_t)(p - start));
    return 0;
}

static int tfr_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct tfr_writer *w = (struct tfr_writer *)base;
    uint8_t tail[MR_TFR_TAIL];
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc < 0)
        return rc;
    mr_store_le32(tail, mr_crc32c_mask(w->crc));
    rc = mr_stream_out_put(w->out, tail, sizeof tail, err);
    if (rc >= 0)
        rc = mr_tfr_put_index_line(w->index, w->record_start, mr_stream_out_position(w->out) - w->record_start, err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {w->record_start + w->prefix, w->written},
                                  .aux = w->prefix << AUX_BITS | MR_TFR_TAIL,
                                  .label = w->info.label};
    return 0;
}

int mr_tfr_layout(bool gzip, struct mr_layout *layout, struct mr_error *err)
{
    return mr_layout_make((uint8_t[]){MR_TFR_LAYOUT_VERSION, gzip ? MR_TFR_GZIP : 0}, 2, layout, err);
}

static int tfr_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                            struct mr_error *err)
{
    struct tfr_writer *w = (struct tfr_writer *)base;
    struct mr_layout made = {0};
    uint64_t bytes = 0;
    bool gzip = w->gzip;
    int rc = mr_stream_out_close(w->out, &bytes, err);
    int index_rc = mr_stream_out_close(w->index, NULL, rc < 0 ? NULL : err);
    free(w);
    if (rc >= 0)
        rc = index_rc;
    if (rc >= 0)
        rc = mr_tfr_layout(gzip, &made, err);
    if (rc < 0)
        return rc;
    *layout = made;
    *file_bytes = bytes;
    return 0;
}

/* ---- finding ---- */

static bool length_is_sound(const uint8_t head[MR_TFR_HEAD])
{
    return mr_load_le32(head + 8) == mr_crc32c_mask(mr_crc32c(0, head, 8));
}

/* A first record of some 560 kB starts like gzip; its checksum tells. */
static bool is_plain(const uint8_t *head, size_t len)
{
    return len >= MR_TFR_HEAD && length_is_sound(head);
}

struct tfr_walk {
    struct mr_stream_in in;
    mr_tfr_fn *fn;
    void *user;
    uint64_t record; /* number */
};

static int source_get(void *ctx, uint64_t offset, size_t len, const uint8_t **out, struct mr_error *err)
{
    return mr_stream_in_get(ctx, offset, len, out, err);
}

static int check_data_crc(struct mr_stream_in *in, const struct mr_tfr_record *r, struct mr_error *err)
{
    uint32_t crc = 0;
    const uint8_t *p;
    for (uint64_t done = 0; done < r->len;) {
        size_t n = (size_t)MR_MIN(r->len - done, (uint64_t)MR_STREAM_IN_MAX);
        int rc = mr_stream_in_get(in, r->at + MR_TFR_HEAD + done, n, &p, err);
        if (rc < 0)
            return rc;
        crc = mr_crc32c(crc, p, n);
        done += n;
    }
    int rc = mr_stream_in_get(in, r->at + MR_TFR_HEAD + r->len, MR_TFR_TAIL, &p, err);
    if (rc < 0)
        return rc;
    if (mr_load_le32(p) != mr_crc32c_mask(crc))
        return mr_error_plain(err, MR_E_CORRUPT,
                              "record %llu at offset %llu of '%s': checksum of its %llu bytes differs", (ull)r->number,
                              (ull)r->at, in->path, (ull)r->len);
    return 0;
}

static int record_length(struct tfr_walk *t, uint64_t at, uint64_t *len, struct mr_error *err)
{
    const uint8_t *head;
    int rc = mr_stream_in_get(&t->in, at, MR_TFR_HEAD, &head, err);
    if (rc < 0) {
        mr_error_context(err, "in the header of record %llu", (ull)t->record);
        return rc;
    }
    if (!length_is_sound(head)) {
        mr_error_plain(err, MR_E_CORRUPT,
                       "record %llu at offset %llu of '%s': checksum of the length differs (want %08x, have %08x)",
                       (ull)t->record, (ull)at, t->in.path, mr_crc32c_mask(mr_crc32c(0, head, 8)),
                       mr_load_le32(head + 8));
        return mr_error_hint(err, "the file is damaged there or is no TFRecord file"), MR_E_CORRUPT;
    }
    *len = mr_load_le64(head);
    uint64_t left = t->in.size - at - MR_TFR_HEAD;
    if (left < MR_TFR_TAIL || *len > left - MR_TFR_TAIL)
        return mr_error_plain(err, MR_E_FORMAT,
                              "record %llu of '%s': unexpected end of file (want %llu bytes at %llu, file has %llu)",
                              (ull)t->record, t->in.path, (ull)*len, (ull)(at + MR_TFR_HEAD), (ull)t->in.size);
    if (*len > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "record %llu of '%s' has %llu bytes, over the limit of %llu",
                              (ull)t->record, t->in.path, (ull)*len, (ull)MR_LIMIT_SAMPLE_BYTES);
    return 0;
}

int mr_tfr_payload_ref(struct mr_stream_in *in, const struct mr_tfr_record *r, uint64_t offset, uint64_t length,
                       struct mr_sample_ref *ref, struct mr_error *err)
{
    uint64_t before = offset - r->at, after = r->at + MR_TFR_HEAD + r->len + MR_TFR_TAIL - offset - length;
    int rc = 0;
    *ref = (struct mr_sample_ref){.raw = {offset, length}, .label = MR_LABEL_NONE};
    if (before <= AUX_MAX && after <= AUX_MAX)
        ref->aux = (uint32_t)(before << AUX_BITS | after);
    else
        rc = check_data_crc(in, r, err);
    return rc;
}

static int report_record(struct tfr_walk *t, uint64_t at, uint64_t len, struct mr_error *err)
{
    const struct mr_tfr_record r = {.number = t->record++, .at = at, .len = len};
    return t->fn(t->user, &t->in, &r, err);
}

static int scan_all(struct tfr_walk *t, struct mr_error *err)
{
    for (uint64_t at = 0, len = 0; at < t->in.size; at += MR_TFR_HEAD + len + MR_TFR_TAIL) {
        int rc = record_length(t, at, &len, err);
        if (rc >= 0)
            rc = report_record(t, at, len, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* One line of the index, "offset size\n". Returns 1, 0 at the end, or a negative code. */
static int next_index_line(struct mr_stream_in *in, uint64_t *at, uint64_t line, uint64_t number[2],
                           struct mr_error *err)
{
    const uint8_t *p;
    size_t n = (size_t)MR_MIN(in->size - *at, (uint64_t)64), i = 0;
    if (!n)
        return 0;
    int rc = mr_stream_in_get(in, *at, n, &p, err);
    if (rc < 0)
        return rc;
    for (int k = 0; k < 2; k++) {
        size_t digits = 0;
        for (number[k] = 0; i < n && p[i] >= '0' && p[i] <= '9'; i++, digits++)
            if (__builtin_mul_overflow(number[k], 10, &number[k]) ||
                __builtin_add_overflow(number[k], p[i] - '0', &number[k]))
                digits = 0, i = n;
        if (!digits)
            goto bad;
        while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r'))
            i++;
    }
    if (i < n && p[i] != '\n')
        goto bad;
    if (i == n && *at + n < in->size)
        goto bad;
    *at += MR_MIN(i + 1, n);
    return 1;
bad:
    mr_error_plain(err, MR_E_FORMAT, "'%s' line %llu: want 'offset size' of a record", in->path, (ull)line);
    return mr_error_hint(err, "delete the index; the file can be scanned without it"), MR_E_FORMAT;
}

static int scan_by_index(struct tfr_walk *t, struct mr_stream_in *index, struct mr_error *err)
{
    uint64_t at = 0, end = 0, number[2] = {0}, len = 0;
    int rc;
    while ((rc = next_index_line(index, &at, t->record + 1, number, err)) > 0) {
        if (number[0] < end || number[0] > t->in.size || number[1] > t->in.size - number[0]) {
            mr_error_plain(err, MR_E_FORMAT,
                           "'%s' line %llu: record of %llu bytes at %llu overlaps the one before (ends at %llu) or the "
                           "end of the file (at %llu)",
                           index->path, (ull)t->record + 1, (ull)number[1], (ull)number[0], (ull)end, (ull)t->in.size);
            return mr_error_hint(err, "delete the index; the file can be scanned without it"), MR_E_FORMAT;
        }
        rc = record_length(t, number[0], &len, err);
        if (rc >= 0 && len + MR_TFR_HEAD + MR_TFR_TAIL != number[1]) {
            rc = mr_error_plain(
                err, MR_E_FORMAT, "'%s' line %llu: the record at %llu has %llu bytes, the index says %llu", index->path,
                (ull)t->record + 1, (ull)number[0], (ull)(len + MR_TFR_HEAD + MR_TFR_TAIL), (ull)number[1]);
            mr_error_hint(err, "delete the index; the file can be scanned without it");
        }
        if (rc >= 0)
            rc = report_record(t, number[0], len, err);
        if (rc < 0)
            return rc;
        end = number[0] + number[1];
    }
    return rc;
}

int mr_tfr_walk(struct mr_store *s, const char *path, mr_tfr_fn *fn, void *user, bool *gzip, struct mr_error *err)
{
    struct tfr_walk t = {.fn = fn, .user = user};
    struct mr_stream_in index;
    struct mr_store_stat st;
    char side[MR_TFR_PATH_MAX];
    int rc = mr_tfr_index_path(path, side, err);
    if (rc >= 0)
        rc = mr_stream_in_open(s, path, is_plain, &t.in, err);
    if (rc < 0)
        return rc;
    rc = mr_store_stat(s, side, &st, err);
    if (rc == -ENOENT || (rc >= 0 && (st.is_dir || !st.bytes))) {
        rc = scan_all(&t, err);
    } else if (rc >= 0 && (rc = mr_stream_in_open(s, side, NULL, &index, err)) >= 0) {
        rc = scan_by_index(&t, &index, err);
        mr_stream_in_close(&index);
    }
    *gzip = t.in.gzip;
    mr_stream_in_close(&t.in);
    return rc < 0 ? rc : 0;
}

struct one_payload {
    mr_scan_fn *fn;
    void *user;
};

static int report_payload(void *user, struct mr_stream_in *in, const struct mr_tfr_record *r, struct mr_error *err)
{
    const struct one_payload *t = user;
    struct mr_tf_found found;
    struct mr_sample_ref ref;
    int rc = mr_tf_example_find(&(struct mr_tf_source){source_get, in}, r->at + MR_TFR_HEAD, r->len, &found, err);
    if (rc < 0)
        return rc;
    if (!found.is_example)
        found = (struct mr_tf_found){
            .payload_offset = r->at + MR_TFR_HEAD, .payload_length = r->len, .label = MR_LABEL_NONE};
    rc = mr_tfr_payload_ref(in, r, found.payload_offset, found.payload_length, &ref, err);
    ref.label = found.label;
    return rc < 0 ? rc : t->fn(t->user, &ref, NULL, err);
}

static int tfr_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                    struct mr_error *err)
{
    struct one_payload t = {.fn = fn, .user = user};
    bool gzip = false;
    int rc = mr_tfr_walk(s, path, report_payload, &t, &gzip, err);
    return rc < 0 ? rc : mr_tfr_layout(gzip, layout, err);
}

/* ---- reading ---- */

static int check_layout(const struct mr_layout *layout, struct mr_error *err)
{
    const uint8_t *p = layout->data;
    if (layout->len != 2 || p[0] != MR_TFR_LAYOUT_VERSION || p[1] > MR_TFR_GZIP)
        return mr_error_plain(err, MR_E_FORMAT,
                              "bad layout of a TFRecord file (want 2 bytes of version %d, have %zu bytes)",
                              MR_TFR_LAYOUT_VERSION, layout->len);
    return 0;
}

static int tfr_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    if (mr_tfr_is_feature(layout))
        return mr_tfr_feature_cost(layout, out, err);
    int rc = check_layout(layout, err);
    if (rc < 0)
        return rc;
    bool gzip = ((const uint8_t *)layout->data)[1] & MR_TFR_GZIP;
    *out = (struct mr_read_cost){
        .access = gzip ? MR_ACCESS_UNPACK : MR_ACCESS_RANGE,
        .bytes_read_per_payload_byte = 1.0,
        .verbatim = !gzip,
        .note = gzip ? "gzip: the whole file is inflated once" : "one range per sample; verifying adds some 100 bytes",
    };
    return 0;
}

static int tfr_unpack(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                      struct mr_error *err)
{
    bool feature = mr_tfr_is_feature(layout);
    int rc = feature ? 0 : check_layout(layout, err);
    if (rc < 0)
        return rc;
    if (feature ? !mr_tfr_feature_gzip(layout) : !(((const uint8_t *)layout->data)[1] & MR_TFR_GZIP))
        return mr_format_no_unpack(layout, raw, len, out, out_len, err);
    return mr_gzip_inflate(raw, len, out, out_len, err);
}

static int tfr_plan(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                    struct mr_extent *ext, unsigned max, unsigned *n, struct mr_error *err)
{
    struct mr_sample_ref whole = *ref;
    if ((flags & MR_READ_VERIFY) && ref->aux && !mr_tfr_is_feature(layout)) {
        uint64_t before = ref->aux >> AUX_BITS & AUX_MAX, after = ref->aux & AUX_MAX;
        if (before > ref->raw.offset || before < MR_TFR_HEAD || after < MR_TFR_TAIL ||
            ref->raw.length > UINT64_MAX - before - after)
            return mr_error_plain(err, MR_E_FORMAT, "bad reference to a TFRecord sample (offset %llu, aux %#x)",
                                  (ull)ref->raw.offset, ref->aux);
        whole.raw = (struct mr_extent){ref->raw.offset - before, before + ref->raw.length + after};
    }
    return mr_format_plan_single(layout, &whole, flags, ext, max, n, err);
}

static int verify_record(const struct mr_sample_ref *ref, uint64_t before, const uint8_t *raw, size_t len,
                         struct mr_error *err)
{
    ull at = (ull)(ref->raw.offset - before);
    if (!length_is_sound(raw))
        return mr_error_plain(err, MR_E_CORRUPT, "record at offset %llu: checksum of the length differs", at);
    if (mr_load_le64(raw) != len - MR_TFR_HEAD - MR_TFR_TAIL)
        return mr_error_plain(err, MR_E_CHANGED, "record at offset %llu: length differs (want %zu, have %llu)", at,
                              len - MR_TFR_HEAD - MR_TFR_TAIL, (ull)mr_load_le64(raw));
    uint32_t want = mr_load_le32(raw + len - MR_TFR_TAIL);
    uint32_t have = mr_crc32c_mask(mr_crc32c(0, raw + MR_TFR_HEAD, len - MR_TFR_HEAD - MR_TFR_TAIL));
    if (want != have)
        return mr_error_plain(err, MR_E_CORRUPT,
                              "record at offset %llu: checksum of its %zu bytes differs (want %08x, have %08x)", at,
                              len - MR_TFR_HEAD - MR_TFR_TAIL, want, have);
    return 0;
}

static int tfr_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                      unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    if (mr_tfr_is_feature(layout))
        return mr_tfr_feature_decode(d, layout, ref, raw, len, out, err);
    if (!(flags & MR_READ_VERIFY) || !ref->aux)
        return mr_format_decode_bytes(d, layout, ref, flags, raw, len, out, err);
    struct mr_extent whole;
    unsigned n;
    int rc = tfr_plan(layout, ref, flags, &whole, 1, &n, err);
    if (rc < 0)
        return rc;
    if (len != whole.length)
        return mr_error_plain(err, MR_E_FORMAT, "record at offset %llu has the wrong size (want %llu bytes, have %zu)",
                              (ull)whole.offset, (ull)whole.length, len);
    uint64_t before = ref->raw.offset - whole.offset;
    rc = verify_record(ref, before, raw, len, err);
    if (rc < 0)
        return rc;
    return mr_format_decode_bytes(d, layout, ref, flags, (const uint8_t *)raw + before, (size_t)ref->raw.length, out,
                                  err);
}

const struct mr_format_ops mr_format_tfrecord = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "tfrecord",
    .doc = "TensorFlow records of tf.train.Example with masked CRC-32C, optionally gzip; index side-car as DALI's.",
    .extensions = ".tfrecord,.tfrecords,.tfrec,.tfrecord.gz,.tfrecords.gz",
    .caps = MR_FMT_MULTI | MR_FMT_VARSIZE | MR_FMT_LABEL | MR_FMT_CHECKSUM | MR_FMT_VERBATIM,
    .shape = mr_format_shape_flat,
    .synth = mr_format_synth_content,
    .check = mr_format_check_equal,
    .writer_open = tfr_writer_open,
    .sample_begin = tfr_sample_begin,
    .sample_data = tfr_sample_data,
    .sample_room = tfr_sample_room,
    .sample_end = tfr_sample_end,
    .writer_close = tfr_writer_close,
    .writer_abort = tfr_writer_abort,
    .part_bytes = tfr_part_bytes,
    .part_open = tfr_part_open,
    .side_suffixes = INDEX_SUFFIX "\0",
    .scan = tfr_scan,
    .cost = tfr_cost,
    .unpack = tfr_unpack,
    .plan = tfr_plan,
    .decode = tfr_decode,
    .fields = &mr_tfr_field_ops,
};
