/* Decompressing a trace. Whole files go through libdeflate; what it cannot read is read by zlib as far as possible.
 *
 * A file of somebody else's may be a bomb: 1 MB of gzip can be 1 GB of zeros. The text is therefore limited to RATIO
 * times the file (traces reach 60), to what the machine or control group has free, and to INFLATE_MAX. The length that
 * the file claims decides nothing but how much is allocated first, within these limits. */
#include "import/trace_internal.h"
#include "base/cgroup.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <libdeflate.h>
#include <zlib.h>

#define INFLATE_MAX (64ull << 30)
#define RATIO 128u
#define SMALL (64ull << 20) /* any file may become that much */

/* Bytes that `len` bytes of gzip may become. */
static size_t most_text(size_t len)
{
    uint64_t free_bytes = mr_machine_memory().free_bytes, most = MR_MAX(SMALL, RATIO * (uint64_t)len);
    if (free_bytes)
        most = MR_MIN(most, MR_MAX(free_bytes / 10 * 9, SMALL));
    return (size_t)MR_MIN(most, INFLATE_MAX);
}

static int too_large(const char *name, size_t len, size_t most, struct mr_error *err)
{
    char have[MR_HUMAN_LEN], limit[MR_HUMAN_LEN];
    mr_error_plain(err, MR_E_LIMIT, "'%s' has %s and decompresses to more than %s, the limit", name,
                   mr_human_bytes((double)len, have), mr_human_bytes((double)most, limit));
    return mr_error_hint(err, "if you trust it, decompress it with 'gzip -d' and give the result"), MR_E_LIMIT;
}

/* Where the next member of a gzip file begins, at or after `from`; `len` if none does. */
static size_t next_member(const uint8_t *data, size_t len, size_t from)
{
    for (const uint8_t *p = data + from; (p = memmem(p, len - (size_t)(p - data), "\x1f\x8b\x08", 3)); p++)
        if (p - data > 0)
            return (size_t)(p - data);
    return len;
}

static bool all_zero(const uint8_t *p, size_t n)
{
    return n == 0 || (p[0] == 0 && !memcmp(p, p + 1, n - 1));
}

/* True if the input ended inside the data of a member; its checksum alone may be missing, and nothing is lost then. Any
 * bytes serve as a checksum here: that they are compared at all tells. */
static bool lacks_data(z_stream *z)
{
    uint8_t checksum[8] = {0}, more[64];
    z->next_in = checksum;
    z->avail_in = sizeof checksum;
    z->next_out = more;
    z->avail_out = sizeof more;
    int state = inflate(z, Z_NO_FLUSH);
    return state != Z_STREAM_END && !(state == Z_DATA_ERROR && z->msg && strstr(z->msg, "check"));
}

/* All members of a gzip file. Of a truncated file what was whole is kept; after damage decoding resumes at the next
 * member. Adds to *skipped the compressed bytes passed over; padding with zeros is no damage. */
static int gunzip_damaged(const uint8_t *data, size_t len, const char *name, char **out, size_t *out_len,
                          uint64_t *skipped, bool *cut, struct mr_error *err)
{
    size_t most = most_text(len), cap = MR_MIN(MR_MAX(len * 8, (size_t)65536), most), n = 0, used = 0;
    char *text = malloc(cap);
    z_stream z = {0};
    if (!text || inflateInit2(&z, 15 + 32) != Z_OK) {
        free(text);
        return mr_error_set(err, -ENOMEM, "cannot decompress '%s'", name);
    }
    int rc = 0, state = Z_OK;
    while (rc == 0) {
        size_t in = MR_MIN(len - used, (size_t)1 << 30);
        if (n == cap) {
            size_t more = MR_MIN(cap * 2, most);
            char *bigger = cap < most ? realloc(text, more) : NULL;
            if (!bigger) {
                rc = cap < most ? mr_error_set(err, -ENOMEM, "cannot decompress '%s'", name)
                                : too_large(name, len, most, err);
                break;
            }
            text = bigger;
            cap = more;
        }
        size_t room = MR_MIN(cap - n, (size_t)1 << 30);
        z.next_in = (Bytef *)(uintptr_t)(data + used);
        z.avail_in = (uInt)in;
        z.next_out = (Bytef *)text + n;
        z.avail_out = (uInt)room;
        state = inflate(&z, Z_NO_FLUSH);
        used += in - z.avail_in;
        n += room - z.avail_out;
        if (state == Z_STREAM_END && used < len && inflateReset(&z) == Z_OK)
            continue;
        if (state == Z_OK && (used < len || !z.avail_out))
            continue;
        if (state == Z_STREAM_END || used == len || all_zero(data + used, len - used))
            break;
        size_t next = next_member(data, len, used);
        *skipped += next - used;
        used = next;
        if (used == len || inflateReset(&z) != Z_OK)
            break;
        if (n && n < cap)
            text[n++] = '\n'; /* the line that was cut off ends here */
    }
    *cut = rc == 0 && n && used == len && (state == Z_OK || state == Z_BUF_ERROR) && lacks_data(&z);
    inflateEnd(&z);
    if (*cut)
        mr_log(MR_LOG_WARN, "'%s' is truncated: what followed its last whole line is lost", name);
    if (rc == 0 && !n && state != Z_STREAM_END)
        rc = mr_error_plain(err, MR_E_FORMAT, "'%s' is not a valid gzip file", name);
    if (rc < 0) {
        free(text);
        return rc;
    }
    *out = text;
    *out_len = n;
    return 0;
}

/* Prefaults memory that is about to be written from end to end: much cheaper than one page fault per page. Kernels
 * without the call take the faults. No huge pages: where memory is fragmented the kernel takes longer to find them than
 * they save. */
static void make_present(char *p, size_t n)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t from = MR_ALIGN_UP((uintptr_t)p, 4096), to = ((uintptr_t)p + n) / 4096 * 4096;
    if (n >= MR_MIB && from < to)
        madvise((void *)from, to - from, MADV_POPULATE_WRITE);
#else
    (void)p, (void)n;
#endif
}

/* The same by libdeflate, two to three times as fast, for intact files; -1: try the slow way. */
static int gunzip_fast(const uint8_t *data, size_t len, char **out, size_t *out_len)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    /* The last four bytes are the length of the last member, which usually is the only one. */
    size_t most = most_text(len), claims = len >= 18 ? mr_load_le32(data + len - 4) : 0;
    size_t cap = MR_MIN(claims + 65536, most), n = 0, used = 0;
    char *text = d ? malloc(cap) : NULL;
    if (text && cap / 64 <= len)
        make_present(text, cap);
    while (text && used < len) {
        size_t in, got;
        enum libdeflate_result r =
            libdeflate_gzip_decompress_ex(d, data + used, len - used, text + n, cap - n, &in, &got);
        if (r == LIBDEFLATE_INSUFFICIENT_SPACE && cap < most) {
            size_t more = MR_MIN(cap * 2, most);
            char *bigger = realloc(text, more);
            if (bigger) {
                text = bigger;
                cap = more;
                continue;
            }
        }
        if (r != LIBDEFLATE_SUCCESS)
            break;
        used += in;
        n += got;
    }
    libdeflate_free_decompressor(d);
    if (!text || used < len) {
        free(text);
        return -1;
    }
    *out = text;
    *out_len = n;
    return 0;
}

int mr_trace_gunzip(const uint8_t *data, size_t len, const char *name, char **out, size_t *out_len, uint64_t *skipped,
                    bool *cut, struct mr_error *err)
{
    *cut = false;
    return gunzip_fast(data, len, out, out_len) == 0 ? 0
                                                     : gunzip_damaged(data, len, name, out, out_len, skipped, cut, err);
}
