/* See stream_out.h.
 *
 *   put ──small──> buf ──full──┬──────────────> store
 *    └────large (buf flushed)──┘   or deflate ─> zbuf ──full──> store
 *
 * Invariants: 1. position = bytes handed to emit + buf_len. 2. file_at = bytes the store has taken; writes are
 * contiguous from 0 (a part: from its offset). 3. Once `failed` is set nothing is written any more. */
#include "format/stream_out.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define DEFAULT_BUFFER (512u * 1024u)
#define FIRST_BUFFER (32u * 1024u) /* most files of small samples never need more, and malloc recycles it */
#define ZBUF_BYTES (256u * 1024u)

struct mr_stream_out {
    struct mr_object *object;
    uint64_t emitted, file_at;
    size_t buf_len, buf_cap, buf_max;
    char *buf;
    z_stream *z;
    unsigned char *zbuf;
    uint64_t whole_bytes; /* of the file this is a part of; 0: this is the whole */
    int failed;           /* the first error's code */
};

static void stream_free(struct mr_stream_out *o)
{
    if (o->z) {
        deflateEnd(o->z);
        free(o->z);
    }
    free(o->zbuf);
    free(o->buf);
    free(o);
}

static int start_gzip(struct mr_stream_out *o, int level, struct mr_error *err)
{
    o->zbuf = malloc(ZBUF_BYTES);
    z_stream *z = calloc(1, sizeof(*z));
    /* 15 + 16: largest window, gzip wrapper. */
    if (!o->zbuf || !z ||
        deflateInit2(z, level > 0 ? MR_MIN(level, 9) : 4, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(z);
        return mr_error_set(err, -ENOMEM, "cannot start compressing");
    }
    o->z = z;
    return 0;
}

static int stream_open(struct mr_store *s, const char *path, enum mr_compression compression, int level,
                       size_t buffer_bytes, unsigned flags, struct mr_stream_out **out, struct mr_error *err)
{
    struct mr_stream_out *o = calloc(1, sizeof(*o));
    if (!o)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    o->buf_max = buffer_bytes ? buffer_bytes : DEFAULT_BUFFER;
    o->buf_cap = MR_MIN(o->buf_max, (size_t)FIRST_BUFFER);
    o->buf = malloc(o->buf_cap);
    int rc = o->buf ? 0 : mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    if (rc >= 0 && compression == MR_COMP_ZIP)
        rc = mr_error_plain(err, MR_E_UNSUPPORTED, "cannot write '%s': this format knows gzip, not zip compression",
                            path);
    if (rc >= 0 && compression == MR_COMP_GZIP)
        rc = start_gzip(o, level, err);
    if (rc >= 0)
        rc = mr_object_open(s, path, MR_OBJ_WRITE | MR_OBJ_CREATE | flags, &o->object, err);
    if (rc < 0) {
        stream_free(o);
        return rc;
    }
    *out = o;
    return 0;
}

int mr_stream_out_open(struct mr_store *s, const char *path, enum mr_compression compression, int level,
                       size_t buffer_bytes, struct mr_stream_out **out, struct mr_error *err)
{
    return stream_open(s, path, compression, level, buffer_bytes, MR_OBJ_TRUNCATE, out, err);
}

int mr_stream_out_open_part(struct mr_store *s, const char *path, size_t buffer_bytes, uint64_t offset,
                            uint64_t whole_bytes, struct mr_stream_out **out, struct mr_error *err)
{
    int rc = stream_open(s, path, MR_COMP_NONE, 0, buffer_bytes, whole_bytes ? 0 : MR_OBJ_TRUNCATE, out, err);
    if (rc < 0)
        return rc;
    (*out)->emitted = (*out)->file_at = offset;
    (*out)->whole_bytes = whole_bytes;
    return 0;
}

static int store_write(struct mr_stream_out *o, const void *data, size_t len, struct mr_error *err)
{
    if (!len)
        return 0;
    assert(!o->failed); /* invariant 3 */
    int rc = mr_object_write(o->object, data, len, o->file_at, err);
    if (rc < 0)
        return o->failed = rc;
    o->file_at += len;
    return 0;
}

static int deflate_some(struct mr_stream_out *o, const void *data, size_t len, int flush, struct mr_error *err)
{
    const unsigned char *in = data;
    int zrc = Z_OK;
    do {
        /* avail_in is 32 bits wide. */
        size_t n = MR_MIN(len, (size_t)1 << 30);
        o->z->next_in = (unsigned char *)(uintptr_t)in;
        o->z->avail_in = (unsigned)n;
        in += n;
        len -= n;
        do {
            o->z->next_out = o->zbuf;
            o->z->avail_out = ZBUF_BYTES;
            zrc = deflate(o->z, len ? Z_NO_FLUSH : flush);
            if (zrc == Z_STREAM_ERROR)
                return o->failed = mr_error_plain(err, MR_E_INTERNAL, "deflate failed");
            int rc = store_write(o, o->zbuf, ZBUF_BYTES - o->z->avail_out, err);
            if (rc < 0)
                return rc;
        } while (o->z->avail_out == 0);
    } while (len);
    return 0;
}

static int emit(struct mr_stream_out *o, const void *data, size_t len, struct mr_error *err)
{
    o->emitted += len;
    return o->z ? deflate_some(o, data, len, Z_NO_FLUSH, err) : store_write(o, data, len, err);
}

static int flush_buffer(struct mr_stream_out *o, struct mr_error *err)
{
    size_t n = o->buf_len;
    o->buf_len = 0;
    return n ? emit(o, o->buf, n, err) : 0;
}

/* Called when the buffer is full (or too short for what is asked): grows it up to buf_max, then empties it. */
static int make_room(struct mr_stream_out *o, size_t want, struct mr_error *err)
{
    if (o->buf_cap < o->buf_max) {
        size_t cap = MR_MIN(o->buf_max, MR_MAX(4 * o->buf_cap, 2 * want));
        char *buf = realloc(o->buf, cap);
        if (!buf)
            return o->failed = mr_error_set(err, -ENOMEM, "cannot gather %zu bytes", cap);
        o->buf = buf;
        o->buf_cap = cap;
    }
    return want > o->buf_cap - o->buf_len ? flush_buffer(o, err) : 0;
}

static int refuse(const struct mr_stream_out *o, struct mr_error *err)
{
    return mr_error_plain(err, o->failed, "an earlier write to this file failed");
}

int mr_stream_out_put(struct mr_stream_out *o, const void *data, size_t len, struct mr_error *err)
{
    const char *p = data;
    if (MR_UNLIKELY(o->failed))
        return refuse(o, err);
    if (len >= MR_STREAM_DIRECT) {
        int rc = flush_buffer(o, err);
        return rc < 0 ? rc : emit(o, p, len, err);
    }
    while (len) {
        assert(o->buf_len < o->buf_cap);
        size_t n = MR_MIN(len, o->buf_cap - o->buf_len);
        if (p != o->buf + o->buf_len) /* it was made in place: mr_stream_out_here */
            memcpy(o->buf + o->buf_len, p, n);
        o->buf_len += n;
        p += n;
        len -= n;
        if (o->buf_len == o->buf_cap) {
            int rc = make_room(o, 1, err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

int mr_stream_out_zeros(struct mr_stream_out *o, size_t len, struct mr_error *err)
{
    static const char zeros[1024];
    for (size_t n; len; len -= n) {
        n = MR_MIN(len, sizeof zeros);
        int rc = mr_stream_out_put(o, zeros, n, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

char *mr_stream_out_room(struct mr_stream_out *o, size_t len, struct mr_error *err)
{
    if (MR_UNLIKELY(o->failed)) {
        refuse(o, err);
        return NULL;
    }
    if (len > o->buf_cap - o->buf_len && make_room(o, len, err) < 0)
        return NULL;
    if (len > o->buf_cap) {
        mr_error_plain(err, MR_E_INTERNAL, "%zu bytes of room asked from a buffer of %zu", len, o->buf_cap);
        return NULL;
    }
    return o->buf + o->buf_len;
}

void *mr_stream_out_here(struct mr_stream_out *o, size_t len)
{
    return len < MR_STREAM_DIRECT && len <= o->buf_cap - o->buf_len ? o->buf + o->buf_len : NULL;
}

void mr_stream_out_advance(struct mr_stream_out *o, size_t len)
{
    assert(len <= o->buf_cap - o->buf_len);
    o->buf_len += len;
}

uint64_t mr_stream_out_position(const struct mr_stream_out *o)
{
    return o->emitted + o->buf_len;
}

int mr_stream_out_close(struct mr_stream_out *o, uint64_t *file_bytes, struct mr_error *err)
{
    int rc = o->failed ? refuse(o, err) : flush_buffer(o, err);
    if (rc >= 0 && o->z)
        rc = deflate_some(o, NULL, 0, Z_FINISH, err);
    if (rc >= 0 && o->whole_bytes && o->file_at == o->whole_bytes)
        rc = o->object->store->ops->truncate(o->object, o->whole_bytes, err);
    assert(rc < 0 || o->z || o->file_at == o->emitted); /* invariants 1 and 2: all of it is in the store */
    if (rc < 0)
        mr_object_abandon(o->object);
    int close_rc = mr_object_close(o->object, rc < 0 ? NULL : err);
    if (rc >= 0)
        rc = close_rc;
    if (rc >= 0 && file_bytes)
        *file_bytes = o->file_at;
    stream_free(o);
    return rc < 0 ? rc : 0;
}

void mr_stream_out_abort(struct mr_stream_out *o)
{
    if (!o)
        return;
    mr_object_abandon(o->object);
    mr_object_close(o->object, NULL);
    stream_free(o);
}
