/* Gzip in memory with libdeflate. Its output size is not known beforehand: the last four bytes of the stream usually
 * say it (modulo 2^32), so the first try has that capacity and later ones double. The capacity never exceeds what the
 * input could inflate to by deflate's own maximum ratio, nor the limit on unpacked bytes, so a bomb costs at most that.
 */
#include "format/gzip_inflate.h"
#include "base/cgroup.h"
#include "format/format.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#define GZIP_MIN_MEMBER 18u /* 10 bytes of header, 8 of trailer */

bool mr_gzip_is(const void *data, size_t len)
{
    const unsigned char *p = data;
    return len >= 3 && p[0] == 0x1f && p[1] == 0x8b && p[2] == 8;
}

static uint64_t output_limit(size_t len)
{
    uint64_t by_ratio = len > MR_LIMIT_UNPACKED_BYTES / MR_LIMIT_UNPACK_RATIO ? MR_LIMIT_UNPACKED_BYTES
                                                                              : (uint64_t)len * MR_LIMIT_UNPACK_RATIO;
    return MR_MIN(by_ratio, MR_LIMIT_UNPACKED_BYTES);
}

struct inflate_job {
    const uint8_t *in;
    size_t in_len, in_at;
    uint8_t *out;
    size_t out_cap, out_len;
    uint64_t limit;
};

static int grow_output(struct inflate_job *j, size_t want, struct mr_error *err)
{
    if (j->out_cap >= j->limit)
        return mr_error_plain(err, MR_E_LIMIT, "gzip stream of %zu bytes inflates to more than %llu bytes, the limit",
                              j->in_len, (unsigned long long)j->limit);
    uint64_t cap = MR_MAX((uint64_t)want, (uint64_t)j->out_cap * 2);
    cap = MR_MIN(MR_MAX(cap, (uint64_t)4096), j->limit);
    uint8_t *out = mr_memory_require(cap, "", NULL) ? NULL : realloc(j->out, (size_t)cap + 1);
    if (!out)
        return mr_error_set(err, -ENOMEM, "cannot inflate to %llu bytes", (unsigned long long)cap);
    j->out = out;
    j->out_cap = (size_t)cap;
    return 0;
}

static int inflate_member(struct libdeflate_decompressor *d, struct inflate_job *j, struct mr_error *err)
{
    for (;;) {
        size_t used = 0, made = 0;
        enum libdeflate_result r = libdeflate_gzip_decompress_ex(
            d, j->in + j->in_at, j->in_len - j->in_at, j->out + j->out_len, j->out_cap - j->out_len, &used, &made);
        if (r == LIBDEFLATE_SUCCESS) {
            j->in_at += used;
            j->out_len += made;
            return 0;
        }
        if (r != LIBDEFLATE_INSUFFICIENT_SPACE)
            return mr_error_plain(err, MR_E_CORRUPT,
                                  "gzip member at offset %zu is cut short or corrupt (file has %zu bytes)", j->in_at,
                                  j->in_len);
        int rc = grow_output(j, 0, err);
        if (rc < 0)
            return rc;
    }
}

static bool only_zeros(const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i])
            return false;
    return true;
}

static int inflate_all(struct libdeflate_decompressor *d, struct inflate_job *j, struct mr_error *err)
{
    while (j->in_at < j->in_len) {
        const uint8_t *p = j->in + j->in_at;
        size_t left = j->in_len - j->in_at;
        if (j->in_at && only_zeros(p, left))
            break;
        if (!mr_gzip_is(p, left) || left < GZIP_MIN_MEMBER)
            return mr_error_plain(err, MR_E_FORMAT,
                                  "no gzip member at offset %zu (want bytes 1f 8b 08, have %zu bytes)", j->in_at, left);
        int rc = inflate_member(d, j, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int mr_gzip_inflate(const void *data, size_t len, void **out, size_t *out_len, struct mr_error *err)
{
    if (!mr_gzip_is(data, len) || len < GZIP_MIN_MEMBER)
        return mr_error_plain(err, MR_E_FORMAT,
                              "not a gzip stream (want bytes 1f 8b 08 and at least %u bytes, have %zu)",
                              GZIP_MIN_MEMBER, len);
    struct inflate_job j = {.in = data, .in_len = len, .limit = output_limit(len)};
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    if (!d)
        return mr_error_set(err, -ENOMEM, "cannot start inflating");
    int rc = grow_output(&j, mr_load_le32((const uint8_t *)data + len - 4), err);
    if (rc >= 0)
        rc = inflate_all(d, &j, err);
    libdeflate_free_decompressor(d);
    if (rc < 0) {
        free(j.out);
        return rc;
    }
    *out = j.out;
    *out_len = j.out_len;
    return 0;
}
