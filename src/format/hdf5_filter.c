/* Undoing HDF5 filters; see hdf5_filter.h. Filters are undone last to first, alternating between two buffers. */
#include "format/hdf5_filter.h"

#include <libdeflate.h>
#include <string.h>

#define SLACK 64u /* checksums of several Fletcher filters may sit between chunk and file */

int mr_h5_pipeline_check(const struct mr_h5_pipeline *p, struct mr_error *err)
{
    static const struct {
        unsigned id;
        const char *name;
    } known[] = {{4, "szip"},    {5, "nbit"},           {6, "scaleoffset"}, {32000, "lzf"}, {32001, "blosc"},
                 {32004, "lz4"}, {32008, "bitshuffle"}, {32013, "zfp"},     {32015, "zstd"}};
    for (unsigned i = 0; i < p->n; i++) {
        unsigned id = p->filter[i].id;
        if (id == MR_H5_DEFLATE || id == MR_H5_FLETCHER32 || (id == MR_H5_SHUFFLE && p->filter[i].value > 0))
            continue;
        const char *name = "unknown";
        for (size_t k = 0; k < MR_ARRAY_LEN(known); k++)
            name = known[k].id == id ? known[k].name : name;
        mr_error_plain(err, MR_E_UNSUPPORTED, "filter %u (%s) is not supported (want deflate, shuffle, fletcher32)", id,
                       name);
        return mr_error_hint(err, "rewrite the file with gzip or without compression, e.g. with h5repack -f GZIP=4"),
               MR_E_UNSUPPORTED;
    }
    return 0;
}

int mr_h5_pipeline_plausible(const struct mr_h5_pipeline *p, uint64_t stored, uint64_t chunk_bytes,
                             struct mr_error *err)
{
    uint64_t ratio = 1;
    for (unsigned i = 0; i < p->n; i++)
        ratio = p->filter[i].id == MR_H5_DEFLATE ? MR_LIMIT_UNPACK_RATIO : ratio;
    if (chunk_bytes / ratio <= stored)
        return 0;
    return mr_error_plain(err, MR_E_LIMIT, "a chunk of %llu bytes cannot come out of %llu stored ones",
                          (unsigned long long)chunk_bytes, (unsigned long long)stored);
}

size_t mr_h5_unfilter_bytes(uint64_t chunk_bytes)
{
    return (size_t)chunk_bytes + SLACK;
}

uint32_t mr_h5_fletcher32(const uint8_t *data, size_t len)
{
    uint32_t a = 0, b = 0;
    size_t words = len / 2;
    while (words) {
        size_t n = MR_MIN(words, 360); /* so many words cannot overflow the sums */
        words -= n;
        for (; n; n--, data += 2) {
            a += (uint32_t)data[0] << 8 | data[1];
            b += a;
        }
        a = (a & 0xffff) + (a >> 16);
        b = (b & 0xffff) + (b >> 16);
    }
    if (len % 2) {
        a += (uint32_t)data[0] << 8;
        b += a;
        a = (a & 0xffff) + (a >> 16);
        b = (b & 0xffff) + (b >> 16);
    }
    a = (a & 0xffff) + (a >> 16);
    b = (b & 0xffff) + (b >> 16);
    return b << 16 | a;
}

static void unshuffle(uint8_t *restrict dst, const uint8_t *restrict src, size_t len, size_t elem)
{
    size_t n = len / elem, whole = n * elem;
    for (size_t b = 0; n && b < elem; b++) { /* an element longer than the chunk shuffles nothing */
        const uint8_t *s = src + b * n;
        uint8_t *d = dst + b;
        for (size_t i = 0; i < n; i++, d += elem)
            *d = s[i];
    }
    memcpy(dst + whole, src + whole, len - whole);
}

static int inflate_step(void *inflater, const uint8_t *src, size_t len, uint8_t *dst, size_t cap, size_t *got,
                        struct mr_error *err)
{
    enum libdeflate_result r = libdeflate_zlib_decompress(inflater, src, len, dst, cap, got);
    if (r == LIBDEFLATE_SUCCESS)
        return 0;
    return mr_error_plain(err, MR_E_CORRUPT,
                          r == LIBDEFLATE_INSUFFICIENT_SPACE ? "a chunk inflates to more than %zu bytes"
                                                             : "deflated chunk is damaged (want %zu bytes)",
                          cap);
}

int mr_h5_unfilter(const struct mr_h5_pipeline *p, uint32_t mask, void *inflater, const uint8_t *raw, size_t len,
                   uint64_t chunk_bytes, uint8_t *const work[2], bool verify, const uint8_t **out, struct mr_error *err)
{
    const uint8_t *at = raw;
    size_t cap = mr_h5_unfilter_bytes(chunk_bytes);
    unsigned turn = 0;
    for (unsigned i = p->n; i-- > 0;) {
        if (mask & (1u << i))
            continue;
        if (p->filter[i].id == MR_H5_FLETCHER32) {
            if (len < 4)
                return mr_error_plain(err, MR_E_CORRUPT, "a chunk of %zu bytes has no room for its checksum", len);
            len -= 4;
            if (verify) {
                uint32_t want = mr_load_le32(at + len), have = mr_h5_fletcher32(at, len);
                /* The library once wrote sums with the bytes of each half exchanged, and still accepts them. */
                uint32_t old = (have & 0x00ff00ffu) << 8 | (have & 0xff00ff00u) >> 8;
                if (want != have && want != old)
                    return mr_error_plain(err, MR_E_CORRUPT, "Fletcher-32 sum of a chunk is %08x, want %08x", have,
                                          want);
            }
        } else if (p->filter[i].id == MR_H5_DEFLATE) {
            size_t got = 0;
            int rc = inflate_step(inflater, at, len, work[turn], cap, &got, err);
            if (rc < 0)
                return rc;
            at = work[turn];
            len = got;
            turn = !turn;
        } else {
            if (len > cap)
                return mr_error_plain(err, MR_E_CORRUPT, "a chunk has %zu bytes, more than %zu", len, cap);
            unshuffle(work[turn], at, len, p->filter[i].value);
            at = work[turn];
            turn = !turn;
        }
    }
    if (len != chunk_bytes)
        return mr_error_plain(err, MR_E_CORRUPT, "a chunk has %zu bytes after its filters, want %llu", len,
                              (unsigned long long)chunk_bytes);
    *out = at;
    return 0;
}
