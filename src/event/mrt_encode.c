/* Encoder of blocks: ring records become columns, columns become byte planes, planes go through zstd. Records are
 * unpacked once into one array per column while they are tallied; then column after column is cut into planes, in loops
 * of a fixed length that compilers turn into vector code. Also used inside traced programs, hence no allocation and no
 * libc beyond memcpy and memset.
 *
 * What must stay true: the output depends only on the arguments; events keep their order; every value survives exactly.
 */
#define ZSTD_STATIC_LINKING_ONLY
#include "event/mrt.h"
#include "base/common.h"
#include "base/crc32c.h"
#include "event/calls.h"
#include "event/mrt_tally.h"

#include <string.h>
#include <zstd.h>

#define LEVEL 1
#define SAMPLE 2048u /* bytes of a plane that tell how to pack it */
#define STRIDE 64u   /* values handled at a time; arrays have room up to the next multiple */
#define MAX_EVENTS (MR_BLOCK_EVENTS + 64)
#define REST                                                                                                           \
    24u /* events and arguments beyond a block that need no block of their own; the last event may bring 40 more */
#define ZSTD_BYTES (1u << 20)
#define STRINGS_BYTES                                                                                                  \
    (128                                                                                                               \
     << 10) /* a block of names ends with the one that passes this; packing needs not more workspace than planes   \
                 */

struct workspace {
    /* As they are stored: gap and result as zigzag, the offset as its mode says. Narrow where values are, so that all
     * stay in the cache. */
    uint64_t gap[MAX_EVENTS], dur[MAX_EVENTS], offset[MAX_EVENTS], result[MAX_EVENTS], arg_value[MAX_EVENTS];
    uint32_t file[MAX_EVENTS], arg_event[MAX_EVENTS], arg_key[MAX_EVENTS];
    uint16_t call[MAX_EVENTS], fd[MAX_EVENTS], arg_type[MAX_EVENTS];
    uint32_t events, args, last_arg_event;
    uint32_t block; /* events in one, if fewer than usual */
    uint64_t first_ns, last_ns;
    uint8_t plane[MAX_EVENTS];
    struct mr_tally tally;
    _Alignas(64) uint8_t zstd[ZSTD_BYTES];
};

size_t mr_mrt_workspace_bytes(void)
{
    return sizeof(struct workspace);
}

void mr_mrt_workspace_block(void *workspace, uint32_t events)
{
    struct workspace *w = workspace;
    w->block = events;
}

static uint64_t tick_scale(const struct mr_calibration *cal)
{
    uint64_t ticks = cal->tick1 - cal->tick0, ns = cal->mono1 - cal->mono0;
    if (!ticks || (int64_t)ticks < 0 || (int64_t)ns <= 0)
        return 1ull << 32;
    return (uint64_t)(((unsigned __int128)ns << 32) / ticks);
}

static uint64_t scaled(uint64_t mono0, uint64_t tick0, uint64_t scale, uint64_t tick)
{
    int64_t d = (int64_t)(tick - tick0);
    uint64_t mag = d < 0 ? (uint64_t)-d : (uint64_t)d;
    uint64_t ns = (uint64_t)(((unsigned __int128)mag * scale) >> 32);
    return d < 0 ? mono0 - ns : mono0 + ns;
}

uint64_t mr_ticks_to_ns(const struct mr_calibration *cal, uint64_t tick)
{
    return scaled(cal->mono0, cal->tick0, tick_scale(cal), tick);
}

/* Cells of a ring, or of an array if mask is UINT64_MAX. */
struct cells {
    const uint64_t *cell;
    uint64_t mask, to;
};

static inline uint64_t cell_at(const struct cells *c, uint64_t at)
{
    return c->cell[at & c->mask];
}

/* An event as it is in the ring; continuation records replace what does not fit. */
struct found {
    unsigned call;
    uint32_t file, fd1;
    uint64_t start, ticks, offset;
    int64_t result;
};

/* Takes the record or repeat at carry->at, which lies before c->to; no continuations. False: there is no event, but a
 * gap (R7), a continuation whose event was cut off by a damaged ring, or a cell that was never written. */
static inline __attribute__((always_inline)) bool take_event(const struct cells *c, struct mr_carry *carry,
                                                             struct found *f)
{
    static const uint16_t short_call[MR_SHORTS] = {[MR_SHORT_read] = MR_CALL_read,
                                                   [MR_SHORT_write] = MR_CALL_write,
                                                   [MR_SHORT_pread] = MR_CALL_pread,
                                                   [MR_SHORT_pwrite] = MR_CALL_pwrite,
                                                   [MR_SHORT_lseek] = MR_CALL_lseek};
    uint64_t at = carry->at, head = cell_at(c, at);
    if (MR_LIKELY(head & MR_RAW_SHORT)) {
        unsigned kind = (unsigned)(head % MR_SHORTS);
        carry->at = at + 1;
        f->call = short_call[kind];
        f->start = carry->end + (head >> 3 & ((1u << MR_SHORT_GAP_BITS) - 1));
        f->ticks = head >> 16 & ((1u << MR_SHORT_DURATION_BITS) - 1);
        f->offset = kind >= MR_SHORT_pread ? carry->offset + (uint64_t)((int64_t)head >> 32) : MR_NO_OFFSET;
        carry->offset = kind >= MR_SHORT_pread ? f->offset : carry->offset;
        f->result = kind == MR_SHORT_lseek ? (int64_t)f->offset : (int64_t)carry->result_fd >> 16;
    } else {
        uint64_t size =
            MR_UNLIKELY(head == MR_RAW_SKIP) ? 0 : cell_at(c, at + 1); /* behind a gap's cell there may be no memory */
        bool repeat = head & MR_RAW_REPEAT;
        f->call = mr_cell_call(head);
        f->offset = (uint64_t)((int64_t)head >> 16);
        f->ticks = (uint32_t)size;
        carry->at = head == MR_RAW_SKIP && c->mask != UINT64_MAX ? MR_MIN((at | c->mask) + 1, c->to)
                                                                 : at + (repeat    ? 2
                                                                         : f->call ? MR_RECORD_CELLS
                                                                                   : 1);
        if (MR_UNLIKELY(f->call <= MR_CALL_more || carry->at > c->to)) {
            carry->at = MR_MIN(carry->at, c->to);
            return false;
        }
        if (repeat) {
            f->start = carry->end + (size >> 32);
            f->result = f->call == MR_CALL_lseek ? (int64_t)f->offset : (int64_t)carry->result_fd >> 16;
            carry->offset = f->offset == MR_NO_OFFSET ? carry->offset : f->offset;
        } else {
            f->start = cell_at(c, at + 2);
            carry->file = size >> 32;
            carry->offset = f->offset;
            carry->result_fd = cell_at(c, at + 3);
            f->result = (int64_t)carry->result_fd >> 16;
        }
    }
    carry->end = f->start + f->ticks;
    f->file = (uint32_t)carry->file;
    f->fd1 = (uint16_t)carry->result_fd;
    return true;
}

/* Takes the continuation records after an event; they may replace its fields. */
static void take_more(struct workspace *w, const struct cells *c, struct mr_carry *carry, struct found *f)
{
    uint32_t i = w->events;
    for (; carry->at + MR_RECORD_CELLS <= c->to; carry->at += MR_RECORD_CELLS) {
        uint64_t kind = cell_at(c, carry->at + 1), value = cell_at(c, carry->at + 2);
        uint32_t type = (uint32_t)kind;
        if (cell_at(c, carry->at) != MR_CALL_more)
            break;
        if (type == MR_MORE_OFFSET) {
            f->offset = value;
        } else if (type == MR_MORE_RESULT) {
            f->result = (int64_t)value;
        } else if (type == MR_MORE_DURATION) {
            f->ticks = value;
        } else if (type <= MR_MORE_LAST_STORED && w->args < MAX_EVENTS) {
            uint32_t k = w->args++;
            w->arg_event[k] = i - w->last_arg_event;
            w->arg_key[k] = (uint32_t)(kind >> 32);
            w->arg_type[k] = (uint16_t)type;
            w->arg_value[k] = value;
            w->last_arg_event = i;
        }
    }
}

/* Offsets are stored as differences from where the access before ended if that makes many of them 0: sequential access.
 * Random access is smaller as it is. The first events of a block tell which. */
static bool is_sequential(const struct cells *c, struct mr_carry carry)
{
    uint64_t expect = 0, n = 0, hits = 0;
    struct found f;
    while (n < 2048 && carry.at < c->to) {
        if (!take_event(c, &carry, &f))
            continue;
        n++;
        hits += f.offset == expect;
        expect = f.offset + (f.result > 0 ? (uint64_t)f.result : 0);
    }
    return hits * 4 >= n;
}

/* Unpacks events into the columns; carry tells where they begin, and then where they end. */
static void unpack(struct workspace *w, const struct cells *c, struct mr_carry *carry, const struct mr_calibration *cal,
                   bool sequential)
{
    const uint64_t scale = tick_scale(cal), mono0 = cal->mono0, tick0 = cal->tick0;
    uint64_t first = UINT64_MAX, last = 0, previous = 0, expect = 0;
    struct mr_tally_streak streak = {0};
    struct mr_carry here = *carry; /* in registers */
    struct found f;
    w->events = w->args = w->last_arg_event = 0;
    const uint32_t most = w->block ? w->block : MR_BLOCK_EVENTS + REST;
    while (here.at < c->to && w->events + w->args < most) {
        if (MR_UNLIKELY(!take_event(c, &here, &f)))
            continue;
        uint32_t i = w->events;
        if (MR_UNLIKELY(here.at < c->to && cell_at(c, here.at) == MR_CALL_more))
            take_more(w, c, &here, &f);
        uint64_t start = scaled(mono0, tick0, scale, f.start), end = scaled(mono0, tick0, scale, f.start + f.ticks);
        w->gap[i] = mr_zigzag((int64_t)(start - previous));
        w->dur[i] = end - start;
        w->offset[i] = sequential ? mr_zigzag((int64_t)(f.offset - expect)) : f.offset + 1;
        w->call[i] = (uint16_t)f.call;
        w->file[i] = f.file;
        w->fd[i] = (uint16_t)f.fd1;
        w->result[i] = mr_zigzag(f.result);
        previous = end;
        expect = f.offset + (f.result > 0 ? (uint64_t)f.result : 0);
        first = MR_MIN(first, start);
        last = MR_MAX(last, end);
        mr_tally_add(&w->tally, &streak, f.call, f.file, end - start, f.result);
        w->events++;
    }
    mr_tally_end(&w->tally, &streak);
    w->first_ns = w->events ? first : 0;
    w->last_ns = last;
    if (w->events) /* the first gap counts from the block's start */
        w->gap[0] = mr_zigzag((int64_t)((uint64_t)mr_unzigzag(w->gap[0]) - first));
    *carry = here;
}

/* ---- columns ---- */

/* The loops below, once per width of values and instruction set: they are compiled into functions with the target
 * attribute. */
typedef void span_fn(const void *value, uint32_t n, uint64_t *low, uint64_t *high);
typedef void plane_fn(const void *value, uint32_t n, uint64_t base, unsigned shift, uint8_t *plane);

#define LOOPS(name, attribute, type)                                                                                   \
    attribute static void span_##name(const void *values, uint32_t n, uint64_t *low, uint64_t *high)                   \
    {                                                                                                                  \
        const type *value = values;                                                                                    \
        type a = value[0], b = value[0];                                                                               \
        for (size_t i = 0; i < n; i++) {                                                                               \
            a = MR_MIN(a, value[i]);                                                                                   \
            b = MR_MAX(b, value[i]);                                                                                   \
        }                                                                                                              \
        *low = a;                                                                                                      \
        *high = b;                                                                                                     \
    }                                                                                                                  \
    attribute static void plane_##name(const void *values, uint32_t n, uint64_t base, unsigned shift,                  \
                                       uint8_t *restrict plane)                                                        \
    {                                                                                                                  \
        const type *restrict value = values, least = (type)base;                                                       \
        for (size_t i = 0; i < n; i++)                                                                                 \
            plane[i] = (uint8_t)((type)(value[i] - least) >> shift);                                                   \
    }
#define WIDTHS(name, attribute)                                                                                        \
    LOOPS(name##2, attribute, uint16_t)                                                                                \
    LOOPS(name##4, attribute, uint32_t)                                                                                \
    LOOPS(name##8, attribute, uint64_t)
/* The compilers' usual level does not vectorise loops whose length it cannot see. */
#if defined(__clang__)
#define VECTORISE
#else
#define VECTORISE __attribute__((optimize("O3")))
#endif
WIDTHS(plain, VECTORISE)
#if defined(__x86_64__)
WIDTHS(avx2_, VECTORISE __attribute__((target("avx2"))))
WIDTHS(avx512_, VECTORISE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
#endif

/* By width of values: 2, 4 and 8 bytes. */
struct loops {
    span_fn *span[3];
    plane_fn *plane[3];
};
#define ALL(name)                                                                                                      \
    {                                                                                                                  \
        {span_##name##2, span_##name##4, span_##name##8},                                                              \
        {                                                                                                              \
            plane_##name##2, plane_##name##4, plane_##name##8                                                          \
        }                                                                                                              \
    }

static const struct loops *best_loops(void)
{
    static const struct loops plain = ALL(plain);
#if defined(__x86_64__)
    static const struct loops avx2 = ALL(avx2_), avx512 = ALL(avx512_);
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &avx512;
    if (__builtin_cpu_supports("avx2"))
        return &avx2;
#endif
    return &plain;
}

/* Where the values of a column lie, and the binary logarithm of half their width. */
struct values {
    void *at;
    unsigned width;
};

static void repeat_first(const struct values *v, uint32_t from, uint32_t to)
{
    uint8_t *p = v->at;
    size_t each = (size_t)2 << v->width;
    for (uint32_t i = from; i < to; i++)
        memcpy(p + i * each, p, each);
}

/* zstd at its usual level looks for repetitions; measured values have none, and random ones of a few kinds (which block
 * of a file) come out larger and four times slower with the short ones it finds. LITERALS all but leaves the search
 * out. */
enum pack { REPETITIONS, LITERALS };

static size_t pack_bytes(ZSTD_CCtx *ctx, enum pack how, const uint8_t *from, size_t n, uint8_t *to, size_t room)
{
    if (how == REPETITIONS)
        return ZSTD_compressCCtx(ctx, to, room, from, n, LEVEL);
    ZSTD_CCtx_reset(ctx, ZSTD_reset_session_and_parameters);
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, -1000);
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman);
    return ZSTD_compress2(ctx, to, room, from, n);
}

/* Tries both on a part of the plane. */
static enum pack choose_pack(ZSTD_CCtx *ctx, const uint8_t *plane, uint32_t n, uint8_t *scratch)
{
    if (n < 4 * SAMPLE)
        return REPETITIONS;
    const uint8_t *part = plane + n / 2;
    uint32_t changes = 0;
    for (uint32_t i = 1; i < SAMPLE; i++)
        changes += part[i] != part[i - 1];
    if (changes < SAMPLE / 4)
        return REPETITIONS;
    size_t a = pack_bytes(ctx, REPETITIONS, part, SAMPLE, scratch, SAMPLE + 512),
           b = pack_bytes(ctx, LITERALS, part, SAMPLE, scratch, SAMPLE + 512);
    return !ZSTD_isError(b) && b <= a ? LITERALS : REPETITIONS;
}

/* Writes one plane; returns the end of the output. */
static uint8_t *put_plane(struct workspace *w, ZSTD_CCtx *ctx, uint32_t n, uint8_t *out)
{
    size_t got = ctx ? pack_bytes(ctx, choose_pack(ctx, w->plane, n, out + 4), w->plane, n, out + 4, n + 512) : n;
    if (ZSTD_isError(got) || got >= n) {
        memcpy(out + 4, w->plane, n);
        mr_store_le32(out, n);
        return out + 4 + n;
    }
    mr_store_le32(out, (uint32_t)got | 1u << 30);
    return out + 4 + got;
}

/* Writes the first n values as one column and its directory row. The array has room to the next multiple of STRIDE. */
static uint8_t *put_column(struct workspace *w, const struct loops *loops, ZSTD_CCtx *ctx, enum mr_mrt_column id,
                           uint8_t mode, const struct values *v, uint32_t n, uint8_t *row, uint8_t *out)
{
    uint64_t base = 0, top = 0;
    uint32_t padded = MR_ALIGN_UP(n, STRIDE);
    repeat_first(v, n, padded);
    if (n)
        loops->span[v->width](v->at, padded, &base, &top);
    uint64_t span = top - base;
    unsigned planes = span ? (64 - (unsigned)__builtin_clzll(span) + 7) / 8 : 0;
    uint8_t *begin = out;
    for (unsigned p = 0; p < planes; p++) {
        loops->plane[v->width](v->at, padded, base, 8 * p, w->plane);
        out = put_plane(w, ctx, n, out);
    }
    row[0] = (uint8_t)id;
    row[1] = mode;
    row[2] = (uint8_t)planes;
    row[3] = 0;
    mr_store_le32(row + 4, (uint32_t)(out - begin));
    mr_store_le64(row + 8, base);
    return out;
}

size_t mr_mrt_seal(uint8_t *out, const struct mr_mrt_block *b)
{
    size_t total = MR_ALIGN_UP(MR_MRT_HEADER + (size_t)b->payload_bytes, 8);
    memset(out + MR_MRT_HEADER + b->payload_bytes, 0, total - MR_MRT_HEADER - b->payload_bytes);
    mr_store_le32(out, MR_MRT_BLOCK_MAGIC);
    mr_store_le16(out + 4, b->type);
    mr_store_le16(out + 6, b->flags);
    mr_store_le32(out + 8, b->payload_bytes);
    mr_store_le64(out + 16, b->key);
    mr_store_le32(out + 24, b->tid);
    mr_store_le32(out + 28, b->count);
    mr_store_le64(out + 32, b->sequence);
    mr_store_le64(out + 40, b->first_ns);
    mr_store_le64(out + 48, b->last_ns);
    mr_store_le64(out + 56, b->lost);
    mr_store_le32(out + 12, mr_crc32c(0, out + 16, 48 + (size_t)b->payload_bytes));
    return total;
}

static void put_calibration(uint8_t *p, const struct mr_calibration *cal)
{
    mr_store_le64(p, cal->tick0);
    mr_store_le64(p + 8, cal->mono0);
    mr_store_le64(p + 16, cal->real0);
    mr_store_le64(p + 24, cal->tick1);
    mr_store_le64(p + 32, cal->mono1);
}

size_t mr_mrt_encode_events(void *workspace, const uint64_t *ring, uint64_t mask, uint64_t to, struct mr_carry *carry,
                            const struct mr_calibration *cal, uint64_t key, uint32_t tid, uint64_t sequence,
                            uint64_t lost, uint8_t *out, struct mr_mrt_block *block)
{
    const struct cells cells = {.cell = ring, .mask = mask, .to = to};
    struct workspace *w = workspace;
    const struct loops *loops = best_loops();
    const struct values column[MR_COLS] = {
        [MR_COL_GAP] = {w->gap, 2},
        [MR_COL_DURATION] = {w->dur, 2},
        [MR_COL_CALL] = {w->call, 0},
        [MR_COL_FILE] = {w->file, 1},
        [MR_COL_FD] = {w->fd, 0},
        [MR_COL_OFFSET] = {w->offset, 2},
        [MR_COL_RESULT] = {w->result, 2},
        [MR_COL_ARG_EVENT] = {w->arg_event, 1},
        [MR_COL_ARG_KEY] = {w->arg_key, 1},
        [MR_COL_ARG_TYPE] = {w->arg_type, 0},
        [MR_COL_ARG_VALUE] = {w->arg_value, 2},
    };
    if (carry->at == to)
        return 0;
    bool sequential = is_sequential(&cells, *carry);
    unpack(w, &cells, carry, cal, sequential);
    struct mr_mrt_block b = {.type = MR_MRT_EVENTS,
                             .key = key,
                             .tid = tid,
                             .count = w->events,
                             .sequence = sequence,
                             .lost = lost,
                             .first_ns = w->first_ns,
                             .last_ns = w->last_ns};
    unsigned columns = w->args ? MR_COLS - 1 : MR_COL_RESULT;
    uint16_t aggregates;
    uint8_t *payload = out + MR_MRT_HEADER, *row = payload + MR_MRT_EVENTS_FIXED;
    uint8_t *agg = row + columns * MR_MRT_COLUMN_ROW, *p = mr_tally_put(&w->tally, agg, &aggregates);
    put_calibration(payload, cal);
    mr_store_le16(payload + 40, (uint16_t)columns);
    mr_store_le16(payload + 42, aggregates);
    mr_store_le32(payload + 44, w->args);
    mr_store_le32(payload + 48, (uint32_t)(p - agg));
    mr_store_le32(payload + 52, 0);
    ZSTD_CCtx *ctx = ZSTD_initStaticCCtx(w->zstd, sizeof(w->zstd));
    for (unsigned id = 1; id <= columns; id++, row += MR_MRT_COLUMN_ROW)
        p = put_column(w, loops, ctx, (enum mr_mrt_column)id, id == MR_COL_OFFSET && sequential, &column[id],
                       id >= MR_COL_ARG_EVENT ? w->args : w->events, row, p);
    b.payload_bytes = (uint32_t)(p - payload);
    *block = b;
    return mr_mrt_seal(out, &b);
}

size_t mr_mrt_encode_records(void *workspace, const struct mr_raw *record, uint32_t n, const struct mr_calibration *cal,
                             uint64_t key, uint32_t tid, uint64_t sequence, uint64_t lost, uint8_t *out,
                             uint32_t *taken, struct mr_mrt_block *block)
{
    struct mr_carry carry = {0};
    size_t bytes = mr_mrt_encode_events(workspace, record->word, UINT64_MAX, (uint64_t)MR_RECORD_CELLS * n, &carry, cal,
                                        key, tid, sequence, lost, out, block);
    *taken = (uint32_t)(carry.at / MR_RECORD_CELLS);
    return bytes;
}

/* Copies whole strings to `to`, which has `room` bytes; returns how many bytes came out. */
static size_t copy_strings(const uint8_t *arena, uint64_t len, uint8_t *to, size_t room, uint64_t *taken_bytes,
                           uint32_t *taken)
{
    uint64_t at = 0;
    uint32_t n = 0;
    uint8_t *p = to, *limit = to + room;
    while (at + 8 <= len && p - to < STRINGS_BYTES) {
        const struct mr_arena_string *s = (const void *)(arena + at);
        if (s->len > len - at - 8 || (size_t)(limit - p) < (size_t)s->len + 8)
            break;
        *p++ = s->kind;
        p = mr_put_varint(p, s->len);
        memcpy(p, s->text, s->len);
        p += s->len;
        at += MR_ARENA_STRING_BYTES(s->len);
        n++;
    }
    *taken_bytes = at;
    *taken = n;
    return (size_t)(p - to);
}

size_t mr_mrt_encode_strings(void *workspace, const uint8_t *arena, uint64_t len, uint64_t key, uint32_t first,
                             uint8_t *out, size_t cap, uint64_t *taken_bytes, uint32_t *taken)
{
    struct workspace *w = workspace;
    size_t half = cap / 2;
    uint8_t *plain = out + half, *payload = out + MR_MRT_HEADER;
    size_t raw = copy_strings(arena, len, plain, cap - half - 8, taken_bytes, taken);
    struct mr_mrt_block b = {
        .type = MR_MRT_STRINGS, .key = key, .count = *taken, .sequence = first, .payload_bytes = (uint32_t)raw};
    if (!*taken)
        return 0;
    ZSTD_CCtx *ctx = ZSTD_initStaticCCtx(w->zstd, sizeof(w->zstd));
    size_t got = ctx ? ZSTD_compressCCtx(ctx, payload + 4, half - MR_MRT_HEADER - 4, plain, raw, LEVEL) : raw;
    if (!ZSTD_isError(got) && got + 4 < raw) {
        mr_store_le32(payload, (uint32_t)raw);
        b.flags = MR_MRT_STRINGS_PACKED;
        b.payload_bytes = (uint32_t)got + 4;
    } else {
        memmove(payload, plain, raw);
    }
    return mr_mrt_seal(out, &b);
}

size_t mr_mrt_encode_process(const struct mr_process_info *p, uint8_t *out, size_t cap)
{
    size_t host = MR_MIN(p->host_len, 255u), exe = MR_MIN(p->exe_len, 4096u);
    size_t cmd = MR_MIN((size_t)p->cmdline_len, cap - 48 - 16 - host - exe);
    mr_store_le32(out, p->pid);
    mr_store_le32(out + 4, p->ppid);
    mr_store_le64(out + 8, p->start_ns);
    mr_store_le64(out + 16, p->start_real_ns);
    mr_store_le32(out + 24, (uint32_t)p->rank);
    mr_store_le32(out + 28, (uint32_t)p->world);
    mr_store_le32(out + 32, (uint32_t)p->local_rank);
    mr_store_le32(out + 36, (uint32_t)p->local_world);
    mr_store_le32(out + 40, p->uid);
    mr_store_le32(out + 44, p->flags);
    uint8_t *q = out + 48;
    mr_store_le16(q, (uint16_t)host);
    memcpy(q + 2, p->host, host);
    q += 2 + host;
    mr_store_le16(q, (uint16_t)exe);
    memcpy(q + 2, p->exe, exe);
    q += 2 + exe;
    mr_store_le32(q, (uint32_t)cmd);
    memcpy(q + 4, p->cmdline, cmd);
    q += 4 + cmd;
    if (p->flags & MR_PROCESS_SHARES_NAMES) {
        mr_store_le64(q, p->names_key);
        q += 8;
    }
    return (size_t)(q - out);
}

_Static_assert(MR_CALL_COUNT <= MR_SLOT_CALLS, "slots have room for every call");

size_t mr_mrt_encode_end(uint64_t key, enum mr_mrt_how how, uint32_t threads, uint64_t events, uint64_t lost,
                         uint64_t end_ns, const uint64_t *skipped, uint8_t *out)
{
    uint8_t *p = out + MR_MRT_HEADER;
    uint32_t at = 32;
    for (uint32_t c = 0; skipped && c < MR_CALL_COUNT; c++)
        if (skipped[c]) {
            mr_store_le32(p + at, c);
            mr_store_le64(p + at + 4, skipped[c]);
            at += 12;
        }
    mr_store_le32(p, how);
    mr_store_le32(p + 4, threads);
    mr_store_le64(p + 8, events);
    mr_store_le64(p + 16, lost);
    mr_store_le64(p + 24, end_ns);
    const struct mr_mrt_block b = {.type = MR_MRT_END,
                                   .key = key,
                                   .count = 1,
                                   .first_ns = end_ns,
                                   .last_ns = end_ns,
                                   .lost = lost,
                                   .payload_bytes = at};
    return mr_mrt_seal(out, &b);
}

void mr_mrt_file_header(uint64_t real_ns, const uint8_t id[16], uint8_t out[MR_MRT_HEADER])
{
    memset(out, 0, MR_MRT_HEADER);
    memcpy(out, MR_MRT_MAGIC, 8);
    mr_store_le16(out + 8, MR_MRT_MAJOR);
    mr_store_le32(out + 12, MR_MRT_HEADER);
    mr_store_le64(out + 16, real_ns);
    memcpy(out + 24, id, 16);
    mr_store_le32(out + 60, mr_crc32c(0, out, 60));
}
