/* Finding the blocks of a .mrt file and decoding events. Every length is checked against what is there; a block that
 * fails its checksum is skipped by searching the next one that passes. */
#include "event/mrt_file.h"
#include "base/common.h"
#include "base/crc32c.h"
#include "base/vec.h"
#include "event/calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

bool mr_mrt_is_header(const uint8_t *data, size_t len)
{
    return len >= MR_MRT_HEADER && !memcmp(data, MR_MRT_MAGIC, 8);
}

static void parse_head(const uint8_t *p, struct mr_mrt_block *b)
{
    b->type = mr_load_le16(p + 4);
    b->flags = mr_load_le16(p + 6);
    b->payload_bytes = mr_load_le32(p + 8);
    b->crc = mr_load_le32(p + 12);
    b->key = mr_load_le64(p + 16);
    b->tid = mr_load_le32(p + 24);
    b->count = mr_load_le32(p + 28);
    b->sequence = mr_load_le64(p + 32);
    b->first_ns = mr_load_le64(p + 40);
    b->last_ns = mr_load_le64(p + 48);
    b->lost = mr_load_le64(p + 56);
}

/* Bytes of the block at `at`, 0 if there is no whole valid one. */
static uint64_t block_at(const uint8_t *data, size_t len, uint64_t at, bool verify, struct mr_mrt_block *b)
{
    if (at + MR_MRT_HEADER > len || mr_load_le32(data + at) != MR_MRT_BLOCK_MAGIC)
        return 0;
    parse_head(data + at, b);
    uint64_t total = MR_ALIGN_UP(MR_MRT_HEADER + (uint64_t)b->payload_bytes, 8);
    if (total > len - at)
        return 0;
    if (verify && mr_crc32c(0, data + at + 16, 48 + (size_t)b->payload_bytes) != b->crc)
        return 0;
    return total;
}

static int add_view(struct mr_mrt_scan *s, const uint8_t *data, uint64_t at, const struct mr_mrt_block *b,
                    struct mr_error *err)
{
    if (mr_vec_reserve(&s->view, &s->cap, s->views + 1, sizeof(*s->view)) < 0)
        return mr_error_set(err, -ENOMEM, "cannot list %zu blocks", s->views);
    s->view[s->views++] = (struct mr_mrt_view){.head = *b, .offset = at, .payload = data + at + MR_MRT_HEADER};
    return 0;
}

/* True if the footer was there, whole, and agreed with the blocks. */
static bool by_footer(const uint8_t *data, size_t len, bool verify, struct mr_mrt_scan *out, struct mr_error *err,
                      int *rc)
{
    struct mr_mrt_block foot, b;
    if (len < MR_MRT_HEADER * 2 + 16 || memcmp(data + len - 8, MR_MRT_FOOT_MAGIC, 8) != 0)
        return false;
    uint64_t at = mr_load_le64(data + len - 16);
    if (at > len - 16 || at % 8 || !block_at(data, len - 16, at, true, &foot) || foot.type != MR_MRT_FOOTER ||
        (uint64_t)foot.count * 72 != foot.payload_bytes)
        return false;
    for (uint32_t i = 0; i < foot.count; i++) {
        const uint8_t *e = data + at + MR_MRT_HEADER + (size_t)i * 72;
        uint64_t offset = mr_load_le64(e);
        if (offset >= at || memcmp(e + 8, data + offset, MR_MIN(64u, at - offset)) != 0 ||
            !block_at(data, at, offset, verify, &b)) {
            out->views = 0;
            return false;
        }
        *rc = add_view(out, data, offset, &b, err);
        if (*rc < 0)
            return true;
    }
    out->had_footer = true;
    return true;
}

static uint64_t next_block(const uint8_t *data, size_t len, uint64_t at, struct mr_mrt_block *b)
{
    for (at = MR_ALIGN_UP(at, 8); at + MR_MRT_HEADER <= len; at += 8)
        if (block_at(data, len, at, true, b))
            return at;
    return len;
}

int mr_mrt_scan(const uint8_t *data, size_t len, bool verify, const char *name, struct mr_mrt_scan *out,
                struct mr_error *err)
{
    struct mr_mrt_scan s = {0};
    struct mr_mrt_block b;
    int rc = 0;
    if (!mr_mrt_is_header(data, len))
        return mr_error_plain(err, MR_E_FORMAT, "'%s' is not a Millrace trace", name);
    if (mr_crc32c(0, data, 60) != mr_load_le32(data + 60))
        return mr_error_plain(err, MR_E_CORRUPT, "the header of '%s' is damaged (checksum at 60)", name);
    if (mr_load_le16(data + 8) != MR_MRT_MAJOR)
        return mr_error_plain(err, MR_E_FORMAT, "'%s' has trace format version %u, this program reads %u", name,
                              mr_load_le16(data + 8), MR_MRT_MAJOR);
    if (by_footer(data, len, verify, &s, err, &rc)) {
        if (rc < 0)
            mr_mrt_scan_done(&s);
        else
            *out = s;
        return rc;
    }
    for (uint64_t at = MR_MRT_HEADER; at < len && rc == 0;) {
        uint64_t total = block_at(data, len, at, true, &b);
        if (!total) {
            uint64_t next = next_block(data, len, at + 8, &b);
            if (!(len - at == 16 && !memcmp(data + len - 8, MR_MRT_FOOT_MAGIC, 8)))
                s.skipped_bytes += next - at;
            at = next;
            continue;
        }
        if (b.type != MR_MRT_FOOTER)
            rc = add_view(&s, data, at, &b, err);
        at += total;
    }
    if (rc < 0) {
        mr_mrt_scan_done(&s);
        return rc;
    }
    *out = s;
    return 0;
}

int mr_mrt_scan_part(const uint8_t *data, size_t len, struct mr_mrt_scan *out, size_t *used, struct mr_error *err)
{
    struct mr_mrt_scan s = {0};
    struct mr_mrt_block b;
    uint64_t at = 0;
    while (at < len) {
        uint64_t total = block_at(data, len, at, true, &b), next = total ? at : next_block(data, len, at + 8, &b);
        if (next >= len)
            break; /* perhaps the begin of a block: more of it may come */
        s.skipped_bytes += next - at;
        at = next;
        if (!total)
            continue;
        int rc = add_view(&s, data, at, &b, err);
        if (rc < 0) {
            mr_mrt_scan_done(&s);
            return rc;
        }
        at += total;
    }
    *out = s;
    *used = at;
    return 0;
}

void mr_mrt_scan_done(struct mr_mrt_scan *s)
{
    free(s->view);
    *s = (struct mr_mrt_scan){0};
}

/* ---- decoding ---- */

static int bad(struct mr_error *err, const struct mr_mrt_view *v, const char *what)
{
    return mr_error_plain(err, MR_E_CORRUPT, "bad events block at %llu: %s", (unsigned long long)v->offset, what);
}

uint32_t mr_mrt_args(const struct mr_mrt_view *v)
{
    if (v->head.payload_bytes < MR_MRT_EVENTS_FIXED)
        return 0;
    return MR_MIN(mr_load_le32(v->payload + 44), MR_MRT_MAX_COUNT);
}

int64_t mr_mrt_real_offset(const struct mr_mrt_view *v)
{
    return v->head.payload_bytes < MR_MRT_EVENTS_FIXED
               ? 0
               : (int64_t)(mr_load_le64(v->payload + 16) - mr_load_le64(v->payload + 8));
}

/* Values from their planes, one, two or up to eight at a time. */
#if defined(__clang__)
#define VECTORISE
#else
#define VECTORISE __attribute__((optimize("O3")))
#endif
MR_SIMD_CLONES VECTORISE static void join_one(uint64_t *restrict value, const uint8_t *restrict p, size_t n,
                                              uint64_t base)
{
    for (size_t i = 0; i < n; i++)
        value[i] = base + p[i];
}

MR_SIMD_CLONES VECTORISE static void join_two(uint64_t *restrict value, const uint8_t *restrict p,
                                              const uint8_t *restrict q, size_t n, uint64_t base)
{
    for (size_t i = 0; i < n; i++)
        value[i] = base + ((uint32_t)q[i] << 8 | p[i]);
}

MR_SIMD_CLONES VECTORISE static void join_more(uint64_t *restrict value, const uint8_t *restrict p, size_t n,
                                               unsigned shift)
{
    for (size_t i = 0; i < n; i++)
        value[i] += (uint64_t)p[i] << shift;
}

struct column {
    const uint8_t *data;
    uint32_t bytes;
    uint8_t planes, mode;
    uint64_t base;
    bool there;
};

/* The bytes of the next plane: where they lie, or decompressed into `room`. */
static const uint8_t *take_plane(const struct mr_mrt_view *v, const uint8_t **at, const uint8_t *end, ZSTD_DCtx *ctx,
                                 uint32_t n, uint8_t *room, struct mr_error *err)
{
    const uint8_t *p = *at;
    if (end - p < 4) {
        bad(err, v, "column is cut");
        return NULL;
    }
    uint32_t head = mr_load_le32(p), len = head & 0x3fffffffu, method = head >> 30;
    p += 4;
    if (len > (size_t)(end - p) || method > 1) {
        bad(err, v, "plane is cut");
        return NULL;
    }
    *at = p + len;
    if (method == 0) {
        if (len != n)
            bad(err, v, "plane has a wrong length");
        return len == n ? p : NULL;
    }
    size_t got = ZSTD_decompressDCtx(ctx, room, n, p, len);
    if (ZSTD_isError(got) || got != n) {
        bad(err, v, "plane does not decompress");
        return NULL;
    }
    return room;
}

/* `plane` has room for two planes. */
static int decode_column(const struct mr_mrt_view *v, const struct column *c, ZSTD_DCtx *ctx, uint32_t n,
                         uint8_t *plane, uint64_t *value, struct mr_error *err)
{
    if (!c->planes || !c->there) {
        for (uint32_t i = 0; i < n; i++)
            value[i] = c->base;
        return 0;
    }
    const uint8_t *at = c->data, *end = c->data + c->bytes;
    const uint8_t *low = take_plane(v, &at, end, ctx, n, plane, err);
    const uint8_t *high = low && c->planes > 1 ? take_plane(v, &at, end, ctx, n, plane + n, err) : NULL;
    if (!low || (c->planes > 1 && !high))
        return MR_E_CORRUPT;
    if (high)
        join_two(value, low, high, n, c->base);
    else
        join_one(value, low, n, c->base);
    for (unsigned k = 2; k < c->planes; k++) {
        const uint8_t *more = take_plane(v, &at, end, ctx, n, plane, err);
        if (!more)
            return MR_E_CORRUPT;
        join_more(value, more, n, 8 * k);
    }
    return 0;
}

static int read_directory(const struct mr_mrt_view *v, struct column col[MR_COLS], struct mr_error *err)
{
    const uint8_t *p = v->payload;
    uint32_t len = v->head.payload_bytes;
    if (len < MR_MRT_EVENTS_FIXED)
        return bad(err, v, "too short");
    uint32_t columns = mr_load_le16(p + 40), aggregates = mr_load_le32(p + 48);
    uint64_t at = MR_MRT_EVENTS_FIXED + (uint64_t)columns * MR_MRT_COLUMN_ROW;
    if (at + aggregates > len)
        return bad(err, v, "directory is longer than the block");
    if (v->head.count > MR_MRT_MAX_COUNT || mr_load_le32(p + 44) > MR_MRT_MAX_COUNT)
        return bad(err, v, "too many events");
    at += aggregates;
    for (uint32_t i = 0; i < columns; i++) {
        const uint8_t *row = p + MR_MRT_EVENTS_FIXED + i * MR_MRT_COLUMN_ROW;
        uint32_t bytes = mr_load_le32(row + 4);
        if (bytes > len - at || row[2] > 8)
            return bad(err, v, "column is longer than the block");
        if (row[0] < MR_COLS)
            col[row[0]] = (struct column){.data = p + at,
                                          .bytes = bytes,
                                          .planes = row[2],
                                          .mode = row[1],
                                          .base = mr_load_le64(row + 8),
                                          .there = true};
        at += bytes;
    }
    return 0;
}

static void fill_times(uint64_t first, uint32_t n, const uint64_t *gap, const uint64_t *dur, uint64_t *start,
                       uint64_t *end)
{
    uint64_t previous = first;
    for (uint32_t i = 0; i < n; i++) {
        start[i] = previous + (uint64_t)mr_unzigzag(gap[i]);
        previous = end[i] = start[i] + dur[i];
    }
}

static void fill_offset(const struct column *c, uint32_t n, const uint64_t *value, const int64_t *result,
                        uint64_t *offset)
{
    uint64_t expect = 0;
    for (uint32_t i = 0; i < n; i++) {
        offset[i] = c->mode ? expect + (uint64_t)mr_unzigzag(value[i]) : value[i] - 1;
        expect = offset[i] + (result[i] > 0 ? (uint64_t)result[i] : 0);
    }
}

static int decode_args(const struct mr_mrt_view *v, const struct column *col, ZSTD_DCtx *ctx, uint8_t *plane,
                       const struct mr_columns *out, struct mr_error *err)
{
    uint32_t n = mr_mrt_args(v);
    uint64_t event = 0;
    if (!n)
        return 0;
    int rc = decode_column(v, &col[MR_COL_ARG_EVENT], ctx, n, plane, out->arg_value, err);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        event += out->arg_value[i];
        if (event >= v->head.count)
            return bad(err, v, "argument of no event");
        out->arg_event[i] = (uint32_t)event;
    }
    if (rc == 0)
        rc = decode_column(v, &col[MR_COL_ARG_KEY], ctx, n, plane, out->arg_value, err);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        out->arg_key[i] = (uint32_t)out->arg_value[i];
    if (rc == 0)
        rc = decode_column(v, &col[MR_COL_ARG_TYPE], ctx, n, plane, out->arg_value, err);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        out->arg_type[i] = (uint8_t)out->arg_value[i];
    return rc ? rc : decode_column(v, &col[MR_COL_ARG_VALUE], ctx, n, plane, out->arg_value, err);
}

static int decode_wanted(const struct mr_mrt_view *v, const struct column *col, unsigned want, int64_t shift_ns,
                         ZSTD_DCtx *ctx, uint64_t *value, uint8_t *plane, const struct mr_columns *out,
                         struct mr_error *err)
{
    uint32_t n = v->head.count;
    int rc = 0;
    if (want & MR_WANT_TIME) {
        rc = decode_column(v, &col[MR_COL_GAP], ctx, n, plane, value, err);
        rc = rc ? rc : decode_column(v, &col[MR_COL_DURATION], ctx, n, plane, out->end_ns, err);
        if (rc == 0)
            fill_times(v->head.first_ns + (uint64_t)shift_ns, n, value, out->end_ns, out->start_ns, out->end_ns);
    }
    if (rc == 0 && want & MR_WANT_CALL) {
        rc = decode_column(v, &col[MR_COL_CALL], ctx, n, plane, value, err);
        for (uint32_t i = 0; i < n && rc == 0; i++)
            out->call[i] = (uint16_t)(value[i] < MR_CALL_COUNT ? value[i] : MR_CALL_none);
    }
    if (rc == 0 && want & MR_WANT_FILE) {
        rc = decode_column(v, &col[MR_COL_FILE], ctx, n, plane, value, err);
        for (uint32_t i = 0; i < n && rc == 0; i++)
            out->file[i] = (uint32_t)value[i];
    }
    if (rc == 0 && want & MR_WANT_FD) {
        rc = decode_column(v, &col[MR_COL_FD], ctx, n, plane, value, err);
        for (uint32_t i = 0; i < n && rc == 0; i++)
            out->fd[i] = (uint16_t)value[i];
    }
    if (rc == 0 && want & (MR_WANT_RESULT | MR_WANT_OFFSET)) {
        rc = decode_column(v, &col[MR_COL_RESULT], ctx, n, plane, value, err);
        for (uint32_t i = 0; i < n && rc == 0; i++)
            out->result[i] = mr_unzigzag(value[i]);
    }
    if (rc == 0 && want & MR_WANT_OFFSET) {
        rc = decode_column(v, &col[MR_COL_OFFSET], ctx, n, plane, value, err);
        if (rc == 0)
            fill_offset(&col[MR_COL_OFFSET], n, value, out->result, out->offset);
    }
    return rc;
}

int mr_mrt_decode(const struct mr_mrt_view *v, unsigned want, int64_t shift_ns, void *zstd, void *scratch,
                  const struct mr_columns *out, struct mr_error *err)
{
    struct column col[MR_COLS] = {{0}};
    uint64_t *value = scratch;
    int rc = read_directory(v, col, err);
    if (rc < 0)
        return rc;
    uint8_t *plane = (uint8_t *)scratch + (size_t)MR_MAX(v->head.count, mr_mrt_args(v)) * 8;
    rc = decode_wanted(v, col, want, shift_ns, zstd, value, plane, out, err);
    return rc == 0 && want & MR_WANT_ARGS ? decode_args(v, col, zstd, plane, out, err) : rc;
}

static bool get_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; *p < end && shift < 64; shift += 7) {
        uint8_t b = *(*p)++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return true;
        }
    }
    return false;
}

struct cursor {
    const uint8_t *p, *end;
    bool cut;
};

static uint64_t next_varint(struct cursor *c)
{
    uint64_t v = 0;
    c->cut |= !get_varint(&c->p, c->end, &v);
    return v;
}

typedef void bucket_fn(void *user, unsigned bucket, uint64_t count);

static void visit_histogram(struct cursor *c, bucket_fn *fn, void *user)
{
    uint64_t bucket = 0;
    for (uint64_t pairs = next_varint(c); pairs && !c->cut; pairs--) {
        uint64_t step = next_varint(c), count = next_varint(c);
        c->cut |= step >= MR_HIST_BUCKETS || (bucket += step) >= MR_HIST_BUCKETS;
        if (!c->cut && fn)
            fn(user, (unsigned)bucket, count);
    }
}

static void visit_function(struct cursor *c, const struct mr_mrt_visitor *how, void *user)
{
    uint64_t f[8];
    for (int k = 0; k < 8; k++)
        f[k] = next_varint(c);
    const struct mr_mrt_aggregate a = {.call = f[0] < MR_CALL_COUNT ? (uint32_t)f[0] : MR_CALL_none,
                                       .site = (uint32_t)f[1],
                                       .count = f[2],
                                       .errors = f[3],
                                       .bytes = f[4],
                                       .dur_sum = f[5],
                                       .dur_min = f[6],
                                       .dur_max = f[7]};
    if (c->cut)
        return;
    if (how->function)
        how->function(user, &a);
    visit_histogram(c, how->duration, user);
    uint64_t listed = next_varint(c), size = 0;
    for (uint64_t i = 1; i < listed && !c->cut; i++) {
        size += next_varint(c);
        uint64_t count = next_varint(c);
        if (!c->cut && how->size)
            how->size(user, size, count);
    }
    if (listed || c->cut)
        return;
    struct mr_mrt_sizes s = {.min = next_varint(c)};
    s.max = next_varint(c);
    for (int b = 0; b < MR_TALLY_BINS; b++)
        s.bin[b] = next_varint(c);
    if (!c->cut && how->sizes)
        how->sizes(user, &s);
    visit_histogram(c, how->size_bucket, user);
}

/* True if the block lists its files. */
static bool visit_files(struct cursor *c, const struct mr_mrt_visitor *how, void *user)
{
    uint64_t listed = next_varint(c), id = 0;
    for (uint64_t i = 1; i < listed && !c->cut; i++) {
        id += (uint64_t)mr_unzigzag(next_varint(c));
        struct mr_tally_file r = {.id = (uint32_t)id};
        r.calls = (uint32_t)next_varint(c);
        r.opens = (uint32_t)next_varint(c);
        r.read_bytes = next_varint(c);
        r.written_bytes = next_varint(c);
        r.dur_ns = next_varint(c);
        if (!c->cut && how->file)
            how->file(user, &r);
    }
    return listed;
}

int mr_mrt_aggregates(const struct mr_mrt_view *v, const struct mr_mrt_visitor *how, void *user, struct mr_error *err)
{
    struct column col[MR_COLS];
    int rc = read_directory(v, col, err);
    uint32_t n = rc < 0 ? 0 : mr_load_le16(v->payload + 42);
    if (rc < 0 || n == MR_TALLY_NONE)
        return rc;
    struct cursor c = {.p = v->payload + MR_MRT_EVENTS_FIXED + mr_load_le16(v->payload + 40) * MR_MRT_COLUMN_ROW};
    c.end = c.p + mr_load_le32(v->payload + 48);
    for (uint32_t i = 0; i < n && !c.cut; i++)
        visit_function(&c, how, user);
    bool files = !c.cut && visit_files(&c, how, user);
    return c.cut   ? bad(err, v, "aggregate is cut")
           : files ? MR_COVERS_FUNCTIONS | MR_COVERS_FILES
                   : MR_COVERS_FUNCTIONS;
}
