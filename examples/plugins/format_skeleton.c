/* A file format as a plug-in: records of any length, one after the other.
 *
 *     bytes 0-7   "MRLREC1\n"
 *     then for each sample: 8 bytes length (little-endian), the sample's bytes
 *
 * Shows writing in pieces, scanning a file that anybody may have written (everything in it is checked before use), and
 * reading a sample by one range. The header <millrace/plugin_format.h> says what each operation promises.
 *
 *     millrace gen DIR --format lenrec ...        millrace scan DIR --format lenrec        dataset.format: lenrec */
#include <millrace/plugin.h>
#include <millrace/plugin_format.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "MRLREC1\n"
#define MAGIC_BYTES 8u
#define HEAD_BYTES 8u /* of a record */
#define LAYOUT_VERSION 1

struct writer {
    struct mr_writer base; /* first */
    struct mr_stream_out *out;
    struct mr_sample_info info;
    uint64_t start, written;
};

/* ---- writing ---- */

static int writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec, struct mr_writer **out,
                       struct mr_error *err)
{
    if (spec->compression != MR_COMP_NONE)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "cannot write '%s': format lenrec does not compress", path);
    struct writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    int rc = mr_stream_out_open(s, path, MR_COMP_NONE, 0, 0, &w->out, err);
    if (rc >= 0 && (rc = mr_stream_out_put(w->out, MAGIC, MAGIC_BYTES, err)) < 0)
        mr_stream_out_abort(w->out);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct writer *w = (struct writer *)base;
    unsigned char head[HEAD_BYTES];
    for (unsigned i = 0; i < HEAD_BYTES; i++)
        head[i] = (unsigned char)(info->bytes >> (8 * i));
    int rc = mr_stream_out_put(w->out, head, sizeof(head), err);
    w->info = *info;
    w->start = mr_stream_out_position(w->out);
    w->written = 0;
    return rc;
}

static int sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct writer *w = (struct writer *)base;
    w->written += len;
    return mr_stream_out_put(w->out, data, len, err);
}

static int sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct writer *w = (struct writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {w->start, w->written}, .label = w->info.label};
    return 0;
}

static int make_layout(struct mr_layout *layout, struct mr_error *err)
{
    const unsigned char version = LAYOUT_VERSION;
    return mr_layout_make(&version, 1, layout, err);
}

static int writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes, struct mr_error *err)
{
    struct writer *w = (struct writer *)base;
    uint64_t bytes = 0;
    int rc = mr_stream_out_close(w->out, &bytes, err);
    free(w);
    if (rc >= 0)
        rc = make_layout(layout, err);
    if (rc >= 0)
        *file_bytes = bytes;
    return rc;
}

static void writer_abort(struct mr_writer *base)
{
    struct writer *w = (struct writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    free(w);
}

/* ---- finding ---- */

static int bad_record(struct mr_error *err, const char *path, uint64_t at, uint64_t want, uint64_t have)
{
    return mr_error_plain(err, MR_E_FORMAT,
                          "cannot read '%s': unexpected end of file (record at %llu wants %llu bytes, file has %llu)",
                          path, (unsigned long long)at, (unsigned long long)want, (unsigned long long)have);
}

static int scan_records(struct mr_object *o, uint64_t size, mr_scan_fn *fn, void *user, struct mr_error *err)
{
    int rc = 0;
    for (uint64_t at = MAGIC_BYTES; rc >= 0 && at < size;) {
        unsigned char head[HEAD_BYTES];
        uint64_t len = 0;
        if (size - at < HEAD_BYTES)
            return bad_record(err, o->path, at, HEAD_BYTES, size - at);
        if ((rc = mr_object_read(o, head, sizeof(head), at, err)) < 0)
            return rc;
        for (unsigned i = 0; i < HEAD_BYTES; i++)
            len |= (uint64_t)head[i] << (8 * i);
        at += HEAD_BYTES;
        if (len > size - at)
            return bad_record(err, o->path, at, len, size - at);
        if (len > MR_LIMIT_SAMPLE_BYTES)
            return mr_error_plain(err, MR_E_LIMIT, "cannot read '%s': a record of %llu bytes is over the limit",
                                  o->path, (unsigned long long)len);
        const struct mr_sample_ref ref = {.raw = {at, len}, .label = MR_LABEL_NONE};
        rc = fn(user, &ref, NULL, err);
        at += len;
    }
    return rc;
}

static int scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                struct mr_error *err)
{
    struct mr_object *o;
    uint64_t size = 0;
    char magic[MAGIC_BYTES];
    int rc = mr_object_open(s, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    rc = mr_object_size(o, &size, err);
    if (rc >= 0)
        rc = mr_object_read(o, magic, sizeof(magic), 0, err);
    if (rc >= 0 && memcmp(magic, MAGIC, sizeof(magic)) != 0)
        rc = mr_error_plain(err, MR_E_FORMAT, "'%s' is no lenrec file: it does not begin with MRLREC1", path);
    if (rc >= 0)
        rc = scan_records(o, size, fn, user, err);
    mr_object_close(o, NULL); /* opened for reading only */
    return rc < 0 ? rc : make_layout(layout, err);
}

/* ---- reading ---- */

static int cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    if (layout->len != 1 || *(const unsigned char *)layout->data != LAYOUT_VERSION)
        return mr_error_plain(err, MR_E_FORMAT, "bad layout of a lenrec file (want 1 byte of version %d, have %zu)",
                              LAYOUT_VERSION, layout->len);
    *out = (struct mr_read_cost){.access = MR_ACCESS_RANGE,
                                 .bytes_read_per_payload_byte = 1.0,
                                 .verbatim = true,
                                 .note = "one range per sample, nothing to decode"};
    return 0;
}

static const struct mr_format_ops lenrec = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "lenrec",
    .doc = "Records of any length, each behind its length: the format to copy for a plug-in.",
    .extensions = ".lenrec",
    .caps = MR_FMT_MULTI | MR_FMT_VARSIZE | MR_FMT_VERBATIM,
    .shape = mr_format_shape_flat,
    .synth = mr_format_synth_content,
    .check = mr_format_check_equal,
    .writer_open = writer_open,
    .sample_begin = sample_begin,
    .sample_data = sample_data,
    .sample_end = sample_end,
    .writer_close = writer_close,
    .writer_abort = writer_abort,
    .side_suffixes = "",
    .scan = scan,
    .cost = cost,
    .unpack = mr_format_no_unpack,
    .plan = mr_format_plan_single,
    .decode = mr_format_decode_bytes,
};

MR_PLUGIN_DEFINE({MR_PLUGIN_FORMAT, &lenrec});
