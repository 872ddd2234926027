/* Compression of Parquet's pages: see parquet_codec.h. Both decoders by hand check every length and distance against
 * what is left of input and output; copies of 16 bytes at a time run only where both have room for them. */
#include "format/parquet_codec.h"
#include "base/common.h"

#include <errno.h>
#include <libdeflate.h>
#include <string.h>
#include <zstd.h>

#define WIDE 16u

struct cursor {
    const uint8_t *in, *in_end;
    uint8_t *out, *out_start, *out_end;
};

static inline bool copy_literal(struct cursor *c, size_t n)
{
    if (n > (size_t)(c->in_end - c->in) || n > (size_t)(c->out_end - c->out))
        return false;
    if (n <= WIDE && (size_t)(c->in_end - c->in) >= WIDE && (size_t)(c->out_end - c->out) >= WIDE)
        memcpy(c->out, c->in, WIDE);
    else
        memcpy(c->out, c->in, n);
    c->in += n;
    c->out += n;
    return true;
}

/* n bytes from `back` bytes before; they may overlap what is written. */
static inline bool copy_match(struct cursor *c, size_t back, size_t n)
{
    if (back == 0 || back > (size_t)(c->out - c->out_start) || n > (size_t)(c->out_end - c->out))
        return false;
    uint8_t *to = c->out, *end = to + n;
    const uint8_t *from = to - back;
    c->out = end;
    if (back >= WIDE && (size_t)(c->out_end - end) >= WIDE) {
        for (; to < end; to += WIDE, from += WIDE)
            memcpy(to, from, WIDE);
        return true;
    }
    if (back >= 8 && (size_t)(c->out_end - end) >= 8) {
        for (; to < end; to += 8, from += 8)
            memcpy(to, from, 8);
        return true;
    }
    for (size_t have = back; n; have *= 2) { /* the pattern doubles */
        size_t part = MR_MIN(n, have);
        memcpy(to, from, part);
        to += part;
        n -= part;
    }
    return true;
}

static inline size_t load_le(const uint8_t *p, unsigned bytes)
{
    size_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v |= (size_t)p[i] << (8 * i);
    return v;
}

/* One element of snappy: a literal, or a copy with a distance of 1, 2 or 4 bytes. */
static inline bool snappy_element(struct cursor *c)
{
    static const uint8_t follows[4] = {0, 1, 2, 4};
    unsigned tag = *c->in++, kind = tag & 3;
    size_t n = (tag >> 2) + 1, left = (size_t)(c->in_end - c->in), more = follows[kind];
    if (kind == 0) {
        if (n > 60) {
            more = n - 60;
            if (more > left)
                return false;
            n = load_le(c->in, (unsigned)more) + 1;
            c->in += more;
        }
        return copy_literal(c, n);
    }
    if (more > left)
        return false;
    size_t back = load_le(c->in, (unsigned)more);
    c->in += more;
    if (kind == 1) {
        n = (tag >> 2 & 7) + 4;
        back |= (size_t)(tag >> 5) << 8;
    }
    return copy_match(c, back, n);
}

static bool unsnappy(struct cursor *c)
{
    uint64_t want = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (c->in == c->in_end || shift > 28)
            return false;
        want |= (uint64_t)(*c->in & 127) << shift;
        if (!(*c->in++ & 128))
            break;
    }
    if (want != (uint64_t)(c->out_end - c->out))
        return false;
    while (c->in < c->in_end)
        if (!snappy_element(c))
            return false;
    return c->out == c->out_end;
}

static inline bool lz4_length(struct cursor *c, size_t *n)
{
    if (*n < 15)
        return true;
    for (uint8_t b = 255; b == 255; *n += b) {
        if (c->in == c->in_end || *n > MR_PQ_PAGE_MAX)
            return false;
        b = *c->in++;
    }
    return true;
}

/* A block: literals and matches in turn, literals last. */
static bool unlz4(struct cursor *c)
{
    while (c->in < c->in_end) {
        unsigned token = *c->in++;
        size_t literals = token >> 4, match = token & 15;
        if (!lz4_length(c, &literals) || !copy_literal(c, literals))
            return false;
        if (c->in == c->in_end)
            break;
        if (c->in_end - c->in < 2)
            return false;
        size_t back = load_le(c->in, 2);
        c->in += 2;
        if (!lz4_length(c, &match) || !copy_match(c, back, match + 4))
            return false;
    }
    return c->out == c->out_end;
}

static bool gunzip(const void *src, size_t len, void *dst, size_t dst_len)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    size_t got = 0;
    bool ok = d && libdeflate_gzip_decompress(d, src, len, dst, dst_len, &got) == LIBDEFLATE_SUCCESS && got == dst_len;
    libdeflate_free_decompressor(d);
    return ok;
}

static const char *const names[] = {"none", "snappy", "gzip", "lzo", "brotli", "lz4 (Hadoop's)", "zstd", "lz4"};

const char *mr_pq_codec_name(unsigned codec)
{
    return codec < MR_ARRAY_LEN(names) ? names[codec] : "unknown";
}

bool mr_pq_codec_is_read(unsigned codec)
{
    return codec == MR_PQ_UNCOMPRESSED || codec == MR_PQ_SNAPPY || codec == MR_PQ_GZIP || codec == MR_PQ_ZSTD ||
           codec == MR_PQ_LZ4;
}

int mr_pq_decompress(unsigned codec, const void *src, size_t len, void *dst, size_t dst_len, struct mr_error *err)
{
    struct cursor c = {.in = src, .in_end = (const uint8_t *)src + len, .out = dst, .out_start = dst};
    bool ok = false;
    c.out_end = c.out + dst_len;
    switch (codec) {
    case MR_PQ_SNAPPY: ok = unsnappy(&c); break;
    case MR_PQ_LZ4: ok = unlz4(&c); break;
    case MR_PQ_GZIP: ok = gunzip(src, len, dst, dst_len); break;
    case MR_PQ_ZSTD: ok = ZSTD_decompress(dst, dst_len, src, len) == dst_len; break;
    default: return mr_error_plain(err, MR_E_UNSUPPORTED, "compression '%s' is not read", mr_pq_codec_name(codec));
    }
    return ok ? 0
              : mr_error_plain(err, MR_E_CORRUPT, "a page is damaged: its %zu bytes of %s do not unpack to %zu", len,
                               mr_pq_codec_name(codec), dst_len);
}
