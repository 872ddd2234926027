/* See stream_in.h. Invariant: buf[0 .. len) are the bytes [base, base + len) of the file. */
#include "format/stream_in.h"
#include "format/gzip_inflate.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define WINDOW_BYTES (1024u * 1024u)
#define PEEK_BYTES 4096u
/* Jumps beyond this skip more than a large read costs to read through. */
#define JUMP_BYTES (256u * 1024u)

static int unpack_file(struct mr_store *s, struct mr_stream_in *in, struct mr_error *err)
{
    void *packed = NULL, *data = NULL;
    size_t packed_len = 0, len = 0;
    mr_object_close(in->object, NULL);
    in->object = NULL;
    int rc = mr_store_read_file(s, in->path, MR_LIMIT_UNPACKED_BYTES, &packed, &packed_len, err);
    if (rc < 0)
        return rc;
    rc = mr_gzip_inflate(packed, packed_len, &data, &len, err);
    free(packed);
    if (rc < 0) {
        mr_error_context(err, "in '%s'", in->path);
        return rc;
    }
    free(in->buf);
    in->buf = data;
    in->base = 0;
    in->len = in->size = len;
    in->gzip = true;
    return 0;
}

int mr_stream_in_open(struct mr_store *s, const char *path, mr_stream_in_plain_fn *is_plain, struct mr_stream_in *in,
                      struct mr_error *err)
{
    const uint8_t *head;
    *in = (struct mr_stream_in){.path = path};
    int rc = mr_object_open(s, path, MR_OBJ_READ, &in->object, err);
    if (rc < 0)
        return rc;
    rc = mr_object_size(in->object, &in->size, err);
    in->buf_cap = (size_t)MR_MIN(MR_MAX(in->size, (uint64_t)1), (uint64_t)WINDOW_BYTES);
    in->buf = rc < 0 ? NULL : malloc(in->buf_cap);
    if (rc >= 0 && !in->buf)
        rc = mr_error_set(err, -ENOMEM, "cannot read '%s'", path);
    size_t n = (size_t)MR_MIN(in->size, (uint64_t)MR_STREAM_IN_HEAD);
    if (rc >= 0 && n) {
        rc = mr_stream_in_get(in, 0, n, &head, err);
        if (rc >= 0 && mr_gzip_is(head, n) && !(is_plain && is_plain(head, n)))
            rc = unpack_file(s, in, err);
    }
    if (rc < 0)
        mr_stream_in_close(in);
    return rc < 0 ? rc : 0;
}

void mr_stream_in_close(struct mr_stream_in *in)
{
    mr_object_close(in->object, NULL);
    free(in->buf);
    *in = (struct mr_stream_in){0};
}

static int fill(struct mr_stream_in *in, uint64_t offset, size_t want, struct mr_error *err)
{
    assert(in->object && want <= in->buf_cap); /* an unpacked file is there from end to end */
    uint64_t end = in->base + in->len;
    bool jump = offset < in->base || offset - MR_MIN(offset, end) > JUMP_BYTES;
    size_t n = jump || !in->len ? MR_MIN(MR_MAX(want, (size_t)PEEK_BYTES), in->buf_cap) : in->buf_cap;
    n = (size_t)MR_MIN((uint64_t)n, in->size - offset);
    in->len = 0;
    int rc = mr_object_read(in->object, in->buf, n, offset, err);
    if (rc < 0)
        return rc;
    in->base = offset;
    in->len = n;
    return 0;
}

int mr_stream_in_get(struct mr_stream_in *in, uint64_t offset, size_t len, const uint8_t **out, struct mr_error *err)
{
    if (offset > in->size || len > in->size - offset)
        return mr_error_plain(err, MR_E_FORMAT,
                              "cannot read '%s': unexpected end of file (want %zu bytes at %llu, file has %llu)",
                              in->path, len, (unsigned long long)offset, (unsigned long long)in->size);
    if (offset < in->base || offset + len > in->base + in->len) {
        int rc = fill(in, offset, len, err);
        if (rc < 0)
            return rc;
    }
    assert(offset >= in->base && offset + len <= in->base + in->len); /* the invariant above */
    *out = in->buf + (offset - in->base);
    return 0;
}

int64_t mr_stream_in_chunk(struct mr_stream_in *in, uint64_t offset, const uint8_t **out, struct mr_error *err)
{
    if (offset >= in->size)
        return 0;
    int rc = mr_stream_in_get(in, offset, 1, out, err);
    if (rc < 0)
        return rc;
    return (int64_t)(in->base + in->len - offset);
}
