/* Tar shards as WebDataset uses them: members that follow each other and share their name up to the first dot of the
 * last path component (the key) form one sample; the rest of the name is the part's extension.
 *
 *   0000017.bin   payload: the first of the known payload extensions, else the first part that is no label or text
 *   0000017.cls   label, an integer as text; or  .json with a member "label"
 *
 * The payload of a member is contiguous in the file, 512-byte aligned, so samples are read in place. tar_walk.h says
 * what is understood and what is refused. gzip'ed archives are unpacked as a whole. Samples of several parts:
 * tar_fields.c.
 *
 * Layout: byte 0 version = 1, byte 1 flags (1 = gzip). */
#include "format/format_bytes.h"
#include "format/gzip_inflate.h"
#include "format/stream_out.h"
#include "format/tar_parts.h"
#include "format/tar_walk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OCTAL_SIZE_MAX ((uint64_t)077777777777) /* 8 GiB - 1: beyond, a pax header carries the size */

typedef unsigned long long ull;

/* ---- writing ---- */

struct tar_writer {
    struct mr_writer base;
    struct mr_stream_out *out;
    struct mr_sample_info info;
    uint64_t start, written;
    bool gzip;
};

static void put_octal(uint8_t *p, unsigned len, uint64_t v)
{
    p[len - 1] = 0;
    for (unsigned i = len - 1; i-- > 0; v >>= 3)
        p[i] = (uint8_t)('0' + (v & 7));
}

static int put_header(struct mr_stream_out *o, const char *name, uint64_t size, char type, struct mr_error *err)
{
    uint8_t h[MR_TAR_BLOCK] = {0};
    unsigned sum = 0;
    memcpy(h + MR_TAR_NAME_AT, name, MR_MIN(strlen(name), (size_t)MR_TAR_NAME_LEN));
    put_octal(h + MR_TAR_MODE_AT, 8, 0644);
    put_octal(h + MR_TAR_UID_AT, 8, 0);
    put_octal(h + MR_TAR_GID_AT, 8, 0);
    put_octal(h + MR_TAR_SIZE_AT, MR_TAR_SIZE_LEN, size <= OCTAL_SIZE_MAX ? size : 0);
    put_octal(h + MR_TAR_MTIME_AT, 12, 0); /* constant, so that equal data sets are equal files */
    memset(h + MR_TAR_SUM_AT, ' ', MR_TAR_SUM_LEN);
    h[MR_TAR_TYPE_AT] = (uint8_t)type;
    memcpy(h + MR_TAR_MAGIC_AT,
           "ustar\0"
           "00",
           8);
    for (unsigned i = 0; i < MR_TAR_BLOCK; i++)
        sum += h[i];
    put_octal(h + MR_TAR_SUM_AT, 7, sum);
    return mr_stream_out_put(o, h, MR_TAR_BLOCK, err);
}

int mr_tar_put_padding(struct mr_stream_out *o, uint64_t size, struct mr_error *err)
{
    return mr_stream_out_zeros(o, (size_t)(MR_ALIGN_UP(size, MR_TAR_BLOCK) - size), err);
}

/* A pax header "LEN size=N\n", where LEN counts the whole line with itself. */
static int put_pax_size(struct mr_stream_out *o, uint64_t size, struct mr_error *err)
{
    char body[64], line[80];
    int body_len = snprintf(body, sizeof body, " size=%llu\n", (ull)size);
    int len = snprintf(line, sizeof line, "%d%s", body_len + 2, body);
    int rc = put_header(o, "PaxHeader", (uint64_t)len, 'x', err);
    if (rc >= 0)
        rc = mr_stream_out_put(o, line, (size_t)len, err);
    return rc < 0 ? rc : mr_tar_put_padding(o, (uint64_t)len, err);
}

int mr_tar_put_member(struct mr_stream_out *o, const char *name, uint64_t size, struct mr_error *err)
{
    int rc = size > OCTAL_SIZE_MAX ? put_pax_size(o, size, err) : 0;
    return rc < 0 ? rc : put_header(o, name, size, '0', err);
}

static int tar_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                           struct mr_writer **out, struct mr_error *err)
{
    struct tar_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->gzip = spec->compression == MR_COMP_GZIP;
    int rc = mr_stream_out_open(s, path, spec->compression, spec->compression_level, 0, &w->out, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int tar_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct tar_writer *w = (struct tar_writer *)base;
    char name[MR_TAR_NAME_LEN];
    snprintf(name, sizeof name, "%09llu.%.16s", (ull)info->id, info->suffix ? info->suffix : "bin");
    int rc = mr_tar_put_member(w->out, name, info->bytes, err);
    w->info = *info;
    w->start = mr_stream_out_position(w->out);
    w->written = 0;
    return rc;
}

static void *tar_sample_room(struct mr_writer *base, size_t len)
{
    return mr_stream_out_here(((struct tar_writer *)base)->out, len);
}

static int tar_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct tar_writer *w = (struct tar_writer *)base;
    w->written += len;
    return mr_stream_out_put(w->out, data, len, err);
}

int mr_tar_put_label(struct mr_stream_out *o, uint64_t id, int64_t label, struct mr_error *err)
{
    char name[MR_TAR_NAME_LEN], text[32];
    snprintf(name, sizeof name, "%09llu.cls", (ull)id);
    int len = snprintf(text, sizeof text, "%lld", (long long)label);
    int rc = put_header(o, name, (uint64_t)len, '0', err);
    if (rc >= 0)
        rc = mr_stream_out_put(o, text, (size_t)len, err);
    return rc < 0 ? rc : mr_tar_put_padding(o, (uint64_t)len, err);
}

static int tar_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct tar_writer *w = (struct tar_writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc >= 0)
        rc = mr_tar_put_padding(w->out, w->written, err);
    if (rc >= 0 && w->info.label != MR_LABEL_NONE)
        rc = mr_tar_put_label(w->out, w->info.id, w->info.label, err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {w->start, w->written}, .label = w->info.label};
    return 0;
}

static void tar_writer_abort(struct mr_writer *base)
{
    struct tar_writer *w = (struct tar_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    free(w);
}

int mr_tar_layout(bool gzip, struct mr_layout *layout, struct mr_error *err)
{
    return mr_layout_make((uint8_t[]){MR_TAR_LAYOUT_VERSION, gzip ? MR_TAR_GZIP : 0}, 2, layout, err);
}

static int tar_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                            struct mr_error *err)
{
    struct tar_writer *w = (struct tar_writer *)base;
    struct mr_layout made = {0};
    uint64_t bytes = 0;
    bool gzip = w->gzip;
    int rc = mr_stream_out_zeros(w->out, 2 * MR_TAR_BLOCK, err);
    if (rc < 0)
        mr_stream_out_abort(w->out);
    else
        rc = mr_stream_out_close(w->out, &bytes, err);
    free(w);
    if (rc >= 0)
        rc = mr_tar_layout(gzip, &made, err);
    if (rc < 0)
        return rc;
    *layout = made;
    *file_bytes = bytes;
    return 0;
}

/* ---- finding ---- */

struct part {
    bool present;
    unsigned rank;
    struct mr_extent data;
};

struct tar_scan {
    mr_scan_fn *fn;
    void *user;
    char key[4097];
    bool open; /* a sample is being gathered */
    struct part payload;
    bool has_label; /* one of the parts says what it is */
    int64_t label;
    char seen[32][16]; /* extensions of the sample's parts, to catch duplicates */
    unsigned n_seen;
};

static int flush_sample(struct tar_scan *t, struct mr_error *err)
{
    if (!t->open)
        return 0;
    struct mr_sample_ref ref = {.raw = t->payload.data, .label = t->label};
    t->open = t->has_label = false;
    t->payload = (struct part){0};
    t->label = MR_LABEL_NONE;
    t->n_seen = 0;
    return t->fn(t->user, &ref, t->key, err);
}

static int note_extension(struct tar_scan *t, struct mr_stream_in *in, const struct mr_tar_member *m,
                          struct mr_error *err)
{
    size_t n = strlen(m->ext);
    if (n >= sizeof t->seen[0])
        return 0;
    for (unsigned i = 0; i < t->n_seen; i++)
        if (strcmp(t->seen[i], m->ext) == 0)
            return mr_tar_bad_member(in, m, "appears twice in its sample", err);
    if (t->n_seen < MR_ARRAY_LEN(t->seen))
        memcpy(t->seen[t->n_seen++], m->ext, n + 1);
    return 0;
}

static int add_part(void *user, struct mr_stream_in *in, const struct mr_tar_member *m, struct mr_error *err)
{
    struct tar_scan *t = user;
    int rc = 0;
    if (!t->open || strcmp(t->key, m->key) != 0) {
        if ((rc = flush_sample(t, err)) < 0)
            return rc;
        memcpy(t->key, m->key, strlen(m->key) + 1);
        t->open = true;
    }
    if ((rc = note_extension(t, in, m, err)) < 0)
        return rc;
    unsigned rank = mr_tar_payload_rank(m->ext);
    if (!t->payload.present || rank < t->payload.rank)
        t->payload = (struct part){true, rank, m->data};
    bool cls = strcasecmp(m->ext, "cls") == 0, json = strcasecmp(m->ext, "json") == 0;
    if (cls || (json && !t->has_label)) {
        t->has_label = true;
        rc = mr_tar_read_label(in, &m->data, json, &t->label, err);
    }
    return rc;
}

static int tar_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                    struct mr_error *err)
{
    bool gzip = false;
    struct tar_scan *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot scan '%s'", path);
    *t = (struct tar_scan){.fn = fn, .user = user, .label = MR_LABEL_NONE};
    int rc = mr_tar_walk(s, path, add_part, t, &gzip, err);
    if (rc >= 0)
        rc = flush_sample(t, err);
    if (rc >= 0)
        rc = mr_tar_layout(gzip, layout, err);
    free(t);
    return rc < 0 ? rc : 0;
}

/* ---- reading ---- */

static int check_layout(const struct mr_layout *layout, bool *gzip, struct mr_error *err)
{
    const uint8_t *p = layout->data;
    if (layout->len != 2 || p[0] != MR_TAR_LAYOUT_VERSION || p[1] > MR_TAR_GZIP)
        return mr_error_plain(err, MR_E_FORMAT, "bad layout of a tar file (want 2 bytes of version %d, have %zu bytes)",
                              MR_TAR_LAYOUT_VERSION, layout->len);
    *gzip = p[1] & MR_TAR_GZIP;
    return 0;
}

static int tar_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    bool gzip = false;
    if (mr_tar_is_array(layout))
        return mr_tar_array_cost(layout, out, err);
    int rc = check_layout(layout, &gzip, err);
    if (rc < 0)
        return rc;
    *out = (struct mr_read_cost){
        .access = gzip ? MR_ACCESS_UNPACK : MR_ACCESS_RANGE,
        .bytes_read_per_payload_byte = 1.0,
        .verbatim = !gzip,
        .note = gzip ? "gzip: the whole file is inflated once" : "one range per sample, nothing to decode",
    };
    return 0;
}

static int tar_unpack(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                      struct mr_error *err)
{
    bool gzip = mr_tar_array_gzip(layout);
    int rc = mr_tar_is_array(layout) ? 0 : check_layout(layout, &gzip, err);
    if (rc < 0)
        return rc;
    return gzip ? mr_gzip_inflate(raw, len, out, out_len, err)
                : mr_format_no_unpack(layout, raw, len, out, out_len, err);
}

static int tar_plan(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                    struct mr_extent *ext, unsigned max, unsigned *n, struct mr_error *err)
{
    return mr_tar_is_array(layout) ? mr_tar_array_plan(layout, ref, flags, ext, max, n, err)
                                   : mr_format_plan_single(layout, ref, flags, ext, max, n, err);
}

static int tar_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                      unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    return mr_tar_is_array(layout) ? mr_tar_array_decode(d, layout, ref, flags, raw, len, out, err)
                                   : mr_format_decode_bytes(d, layout, ref, flags, raw, len, out, err);
}

const struct mr_format_ops mr_format_tar = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "tar",
    .doc = "Tar shards as WebDataset's: KEY.bin and KEY.cls per sample; foreign ones by their extensions; optionally "
           "gzip.",
    .extensions = ".tar,.tar.gz,.tgz",
    .caps = MR_FMT_MULTI | MR_FMT_VARSIZE | MR_FMT_LABEL | MR_FMT_VERBATIM,
    .shape = mr_format_shape_flat,
    .synth = mr_format_synth_content,
    .check = mr_format_check_equal,
    .writer_open = tar_writer_open,
    .sample_begin = tar_sample_begin,
    .sample_data = tar_sample_data,
    .sample_room = tar_sample_room,
    .sample_end = tar_sample_end,
    .writer_close = tar_writer_close,
    .writer_abort = tar_writer_abort,
    .side_suffixes = "",
    .scan = tar_scan,
    .cost = tar_cost,
    .unpack = tar_unpack,
    .plan = tar_plan,
    .decode = tar_decode,
    .fields = &mr_tar_field_ops,
};
