/* Writing zip archives; see zip_write.h. Deflated members use zlib, because a member arrives in pieces and may be
 * larger than memory; libdeflate, which reads them back, compresses only whole buffers. */
#include "base/crc32c.h"
#include "base/vec.h"
#include "format/zip_write.h"
#include "format/zip_read.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define PACKED_BYTES (64u << 10)
#define LOCAL_EXTRA 20u
#define VERSION_ZIP64 45
/* 1980-01-01 00:00, the earliest a zip can say: equal content gives equal files. */
#define DOS_DATE 0x0021u

static void local_header(const struct mr_zip_written *m, uint8_t *h)
{
    size_t n = strlen(m->name);
    memset(h, 0, MR_ZIP_LOCAL_BYTES);
    mr_store_le32(h, 0x04034b50);
    mr_store_le16(h + 4, VERSION_ZIP64);
    mr_store_le16(h + 8, m->method);
    mr_store_le16(h + 12, DOS_DATE);
    mr_store_le32(h + 14, m->crc);
    mr_store_le32(h + 18, UINT32_MAX);
    mr_store_le32(h + 22, UINT32_MAX);
    mr_store_le16(h + 26, (uint16_t)n);
    mr_store_le16(h + 28, LOCAL_EXTRA);
    memcpy(h + MR_ZIP_LOCAL_BYTES, m->name, n);
    uint8_t *x = h + MR_ZIP_LOCAL_BYTES + n;
    mr_store_le16(x, 1);
    mr_store_le16(x + 2, 16);
    mr_store_le64(x + 4, m->bytes);
    mr_store_le64(x + 12, m->packed_bytes);
}

static int start_deflate(struct mr_zip_writer *z, struct mr_error *err)
{
    if (!z->packed)
        z->packed = malloc(PACKED_BYTES);
    z_stream *s = calloc(1, sizeof(*s));
    if (!s || !z->packed || deflateInit2(s, z->level, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(s);
        return mr_error_set(err, -ENOMEM, "cannot start deflate");
    }
    z->deflater = s;
    return 0;
}

int mr_zip_member_begin(struct mr_zip_writer *z, const char *name, struct mr_error *err)
{
    if (mr_vec_reserve(&z->member, &z->cap, z->n + 1, sizeof(*z->member)) < 0)
        return mr_error_set(err, -ENOMEM, "cannot keep %zu zip members", z->n + 1);
    struct mr_zip_written *m = &z->member[z->n];
    *m = (struct mr_zip_written){.header_offset = mr_array_output_pos(z->out),
                                 .method = z->level ? MR_ZIP_DEFLATED : MR_ZIP_STORED};
    if (snprintf(m->name, sizeof m->name, "%s", name) >= (int)sizeof m->name)
        return mr_error_plain(err, MR_E_USAGE, "zip member name '%s' is too long", name);
    uint8_t h[MR_ZIP_LOCAL_BYTES + MR_ZIP_NAME_MAX + LOCAL_EXTRA];
    local_header(m, h);
    z->prefix_bytes = MR_ZIP_LOCAL_BYTES + (uint32_t)strlen(m->name) + LOCAL_EXTRA;
    z->data_offset = m->header_offset + z->prefix_bytes;
    int rc = mr_array_output_add(z->out, h, z->prefix_bytes, err);
    if (rc == 0 && z->level)
        rc = start_deflate(z, err);
    if (rc == 0)
        z->n++;
    return rc;
}

/* Feeds zlib until it has taken everything, or, to finish, until it has said everything. */
static int run_deflate(struct mr_zip_writer *z, const uint8_t *data, size_t len, int finish, struct mr_error *err)
{
    z_stream *s = z->deflater;
    int status = Z_OK;
    do {
        uInt take = (uInt)MR_MIN(len, 1u << 30);
        s->next_in = (z_const Bytef *)data;
        s->avail_in = take;
        do {
            s->next_out = z->packed;
            s->avail_out = PACKED_BYTES;
            status = deflate(s, finish && take == len ? Z_FINISH : Z_NO_FLUSH);
            int rc = mr_array_output_add(z->out, z->packed, PACKED_BYTES - s->avail_out, err);
            if (rc < 0)
                return rc;
        } while (s->avail_out == 0);
        data += take;
        len -= take;
    } while (len);
    if (finish && status != Z_STREAM_END)
        return mr_error_plain(err, MR_E_INTERNAL, "deflate did not finish (%d)", status);
    return 0;
}

int mr_zip_member_data(struct mr_zip_writer *z, const void *data, size_t len, struct mr_error *err)
{
    struct mr_zip_written *m = &z->member[z->n - 1];
    if (len == 0)
        return 0;
    size_t folded = mr_crc32_fold(&m->crc, data, len);
    m->crc = libdeflate_crc32(m->crc, (const uint8_t *)data + folded, len - folded);
    m->bytes += len;
    return z->deflater ? run_deflate(z, data, len, 0, err) : mr_array_output_add(z->out, data, len, err);
}

int mr_zip_member_end(struct mr_zip_writer *z, struct mr_error *err)
{
    struct mr_zip_written *m = &z->member[z->n - 1];
    if (z->deflater) {
        int rc = run_deflate(z, NULL, 0, 1, err);
        deflateEnd(z->deflater);
        free(z->deflater);
        z->deflater = NULL;
        if (rc < 0)
            return rc;
    }
    m->packed_bytes = mr_array_output_pos(z->out) - z->data_offset;
    uint8_t h[MR_ZIP_LOCAL_BYTES + MR_ZIP_NAME_MAX + LOCAL_EXTRA];
    local_header(m, h);
    return mr_array_output_patch(z->out, m->header_offset, h, z->prefix_bytes, err);
}

/* One entry; returns its length. */
static size_t central_entry(const struct mr_zip_written *m, uint8_t *e)
{
    size_t n = strlen(m->name), extra = 0;
    uint8_t *x = e + 46 + n;
    memset(e, 0, 46);
    mr_store_le32(e, 0x02014b50);
    mr_store_le16(e + 4, 3 << 8 | VERSION_ZIP64); /* made on UNIX */
    mr_store_le16(e + 6, VERSION_ZIP64);
    mr_store_le16(e + 10, m->method);
    mr_store_le16(e + 14, DOS_DATE);
    mr_store_le32(e + 16, m->crc);
    mr_store_le16(e + 28, (uint16_t)n);
    mr_store_le32(e + 38, 0600u << 16);
    memcpy(e + 46, m->name, n);
    const uint64_t value[3] = {m->bytes, m->packed_bytes, m->header_offset};
    static const unsigned at[3] = {24, 20, 42};
    for (unsigned i = 0; i < 3; i++) {
        mr_store_le32(e + at[i], (uint32_t)MR_MIN(value[i], UINT32_MAX));
        if (value[i] >= UINT32_MAX) {
            mr_store_le64(x + 4 + extra, value[i]);
            extra += 8;
        }
    }
    if (extra) {
        mr_store_le16(x, 1);
        mr_store_le16(x + 2, (uint16_t)extra);
        extra += 4;
    }
    mr_store_le16(e + 30, (uint16_t)extra);
    return 46 + n + extra;
}

/* The end records; returns their length. */
static size_t end_records(uint64_t entries, uint64_t bytes, uint64_t offset, uint8_t e[98])
{
    size_t n = 0;
    memset(e, 0, 98);
    if (entries >= UINT16_MAX || bytes >= UINT32_MAX || offset >= UINT32_MAX) {
        mr_store_le32(e, 0x06064b50);
        mr_store_le64(e + 4, 44);
        mr_store_le16(e + 12, 3 << 8 | VERSION_ZIP64);
        mr_store_le16(e + 14, VERSION_ZIP64);
        mr_store_le64(e + 24, entries);
        mr_store_le64(e + 32, entries);
        mr_store_le64(e + 40, bytes);
        mr_store_le64(e + 48, offset);
        mr_store_le32(e + 56, 0x07064b50);
        mr_store_le64(e + 64, offset + bytes);
        mr_store_le32(e + 72, 1);
        n = 76;
    }
    mr_store_le32(e + n, 0x06054b50);
    mr_store_le16(e + n + 8, (uint16_t)MR_MIN(entries, UINT16_MAX));
    mr_store_le16(e + n + 10, (uint16_t)MR_MIN(entries, UINT16_MAX));
    mr_store_le32(e + n + 12, (uint32_t)MR_MIN(bytes, UINT32_MAX));
    mr_store_le32(e + n + 16, (uint32_t)MR_MIN(offset, UINT32_MAX));
    return n + 22;
}

int mr_zip_directory(struct mr_zip_writer *z, struct mr_error *err)
{
    uint64_t offset = mr_array_output_pos(z->out);
    uint8_t e[128 + MR_ZIP_NAME_MAX];
    int rc = 0;
    for (size_t i = 0; i < z->n && rc == 0; i++)
        rc = mr_array_output_add(z->out, e, central_entry(&z->member[i], e), err);
    if (rc == 0)
        rc = mr_array_output_add(z->out, e, end_records(z->n, mr_array_output_pos(z->out) - offset, offset, e), err);
    return rc;
}

void mr_zip_writer_done(struct mr_zip_writer *z)
{
    if (z->deflater) {
        deflateEnd(z->deflater);
        free(z->deflater);
    }
    free(z->packed);
    free(z->member);
    *z = (struct mr_zip_writer){0};
}
