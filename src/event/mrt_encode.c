/* Encoder of blocks: ring records become columns, columns become byte planes, planes go through zstd. One column is built
 * at a time in a scratch array, so the scratch memory stays in the cache and the ring is read a few times while it is
 * warm. Also used inside traced programs, hence no allocation and no libc beyond memcpy and memset.
 *
 * What must stay true: the output depends only on the arguments; events keep their order; every value survives exactly. */
#define ZSTD_STATIC_LINKING_ONLY
#include "event/mrt.h"
#include "base/common.h"
#include "base/crc32c.h"
#include "base/histogram.h"
#include "event/calls.h"

#include <string.h>
#include <zstd.h>

#define LEVEL 1
#define MAX_EVENTS (MR_BLOCK_EVENTS + 64)
#define MAX_CALLS 48 /* different calls in one block; a block ends before the next one */
#define ZSTD_BYTES (1u << 20)

struct agg {
    uint16_t call;
    uint8_t moves;
    uint32_t count, errors;
    uint64_t bytes, dur_sum, dur_min, dur_max, size_min, size_max;
    uint32_t dur[MR_HIST_BUCKETS], size[MR_HIST_BUCKETS];
};

struct workspace {
    uint64_t value[MAX_EVENTS];
    uint64_t start[MAX_EVENTS]; /* ns */
    uint64_t end[MAX_EVENTS];
    uint64_t offset[MAX_EVENTS];
    int64_t result[MAX_EVENTS];
    uint32_t file[MAX_EVENTS];
    uint16_t call[MAX_EVENTS], fd[MAX_EVENTS];
    uint32_t arg_event[MAX_EVENTS], arg_key[MAX_EVENTS];
    uint8_t arg_type[MAX_EVENTS];
    uint64_t arg_value[MAX_EVENTS];
    uint32_t events, args;
    uint32_t aggs;
    uint8_t agg_of[MR_CALL_COUNT]; /* 1 + index */
    struct agg agg[MAX_CALLS];
    uint8_t plane[MAX_EVENTS];
    _Alignas(64) uint8_t zstd[ZSTD_BYTES];
};

size_t mr_mrt_workspace_bytes(void)
{
    return sizeof(struct workspace);
}

static uint64_t zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
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

static uint8_t *put_varint(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

static unsigned hist_bucket(uint64_t v)
{
    if (v < (1u << MR_HIST_SUB_BITS))
        return (unsigned)v;
    unsigned top = 63 - (unsigned)__builtin_clzll(v);
    unsigned shift = top - MR_HIST_SUB_BITS;
    return ((shift + 1) << MR_HIST_SUB_BITS) + (unsigned)((v >> shift) & ((1u << MR_HIST_SUB_BITS) - 1));
}

static struct agg *agg_get(struct workspace *w, unsigned call)
{
    unsigned row = call < MR_CALL_COUNT ? call : MR_CALL_none;
    if (w->agg_of[row])
        return &w->agg[w->agg_of[row] - 1];
    if (w->aggs == MAX_CALLS)
        return NULL;
    struct agg *a = &w->agg[w->aggs++];
    memset(a, 0, sizeof(*a));
    a->call = (uint16_t)row;
    a->moves = (uint8_t)mr_kind_moves_data(mr_call_get(row)->kind);
    a->dur_min = a->size_min = UINT64_MAX;
    w->agg_of[row] = (uint8_t)w->aggs;
    return a;
}

static void agg_add(struct agg *a, uint64_t dur, int64_t result)
{
    a->count++;
    a->dur_sum += dur;
    a->dur_min = MR_MIN(a->dur_min, dur);
    a->dur_max = MR_MAX(a->dur_max, dur);
    a->dur[hist_bucket(dur)]++;
    if (result < 0) {
        a->errors++;
    } else if (a->moves) {
        uint64_t size = (uint64_t)result;
        a->bytes += size;
        a->size_min = MR_MIN(a->size_min, size);
        a->size_max = MR_MAX(a->size_max, size);
        a->size[hist_bucket(size)]++;
    }
}

/* Takes the continuation records after an event; they may replace its fields. Returns the position after them. */
static uint64_t take_more(struct workspace *w, const struct mr_raw *ring, uint64_t mask, uint64_t at, uint64_t to,
                          uint64_t *dur_ticks)
{
    uint32_t i = w->events;
    for (; at < to; at++) {
        const struct mr_raw *r = &ring[at & mask];
        if (mr_raw_call(r) != MR_CALL_more)
            break;
        uint32_t type = (uint32_t)r->word[1];
        if (type == MR_MORE_OFFSET) {
            w->offset[i] = r->word[0];
        } else if (type == MR_MORE_RESULT) {
            w->result[i] = (int64_t)r->word[0];
        } else if (type == MR_MORE_DURATION) {
            *dur_ticks = r->word[0];
        } else if (type <= MR_MORE_LAST_STORED && w->args < MAX_EVENTS) {
            uint32_t k = w->args++;
            w->arg_event[k] = i;
            w->arg_key[k] = (uint32_t)(r->word[1] >> 32);
            w->arg_type[k] = (uint8_t)type;
            w->arg_value[k] = r->word[0];
        }
    }
    return at;
}

/* Unpacks records into the arrays; returns the position after the last one taken. */
static uint64_t unpack(struct workspace *w, const struct mr_raw *ring, uint64_t mask, uint64_t from, uint64_t to,
                       const struct mr_calibration *cal)
{
    uint64_t scale = tick_scale(cal), at = from;
    w->events = w->args = w->aggs = 0;
    memset(w->agg_of, 0, sizeof(w->agg_of));
    while (at < to && at - from < MR_BLOCK_EVENTS) {
        const struct mr_raw *r = &ring[at & mask];
        unsigned call = mr_raw_call(r);
        if (call == MR_CALL_more) { /* its event was cut off by a damaged ring */
            at++;
            continue;
        }
        struct agg *a = agg_get(w, call);
        if (!a)
            break;
        uint32_t i = w->events;
        uint64_t dur = (uint32_t)r->word[1];
        w->call[i] = (uint16_t)call;
        w->file[i] = (uint32_t)(r->word[1] >> 32);
        w->offset[i] = (uint64_t)((int64_t)r->word[2] >> 16);
        w->fd[i] = (uint16_t)r->word[3];
        w->result[i] = (int64_t)r->word[3] >> 16;
        uint64_t start = r->word[0];
        at = take_more(w, ring, mask, at + 1, to, &dur);
        w->start[i] = scaled(cal->mono0, cal->tick0, scale, start);
        w->end[i] = scaled(cal->mono0, cal->tick0, scale, start + dur);
        agg_add(a, w->end[i] - w->start[i], w->result[i]);
        w->events++;
    }
    return at;
}

/* Writes one plane; returns the end of the output. */
static uint8_t *put_plane(struct workspace *w, ZSTD_CCtx *ctx, uint32_t n, uint8_t *out)
{
    size_t got = ctx ? ZSTD_compressCCtx(ctx, out + 4, n + 512, w->plane, n, LEVEL) : n;
    if (ZSTD_isError(got) || got >= n) {
        memcpy(out + 4, w->plane, n);
        mr_store_le32(out, n);
        return out + 4 + n;
    }
    mr_store_le32(out, (uint32_t)got | 1u << 30);
    return out + 4 + got;
}

/* Writes w->value[0..n) as one column and its directory row. */
static uint8_t *put_column(struct workspace *w, ZSTD_CCtx *ctx, enum mr_mrt_column id, uint8_t mode, uint32_t n, uint8_t *row,
                           uint8_t *out)
{
    uint64_t base = n ? UINT64_MAX : 0, top = 0;
    for (uint32_t i = 0; i < n; i++) {
        base = MR_MIN(base, w->value[i]);
        top = MR_MAX(top, w->value[i]);
    }
    uint64_t span = top - base;
    unsigned planes = n && span ? (64 - (unsigned)__builtin_clzll(span) + 7) / 8 : 0;
    uint8_t *begin = out;
    for (unsigned p = 0; p < planes; p++) {
        for (uint32_t i = 0; i < n; i++)
            w->plane[i] = (uint8_t)((w->value[i] - base) >> (8 * p));
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

/* Sequential access leaves zeros after prediction; random access is smaller as it is. */
static uint8_t fill_offsets(struct workspace *w)
{
    uint32_t hits = 0;
    uint64_t expect = 0;
    for (uint32_t i = 0; i < w->events; i++) {
        hits += w->offset[i] == expect;
        w->value[i] = zigzag((int64_t)(w->offset[i] - expect));
        expect = w->offset[i] + (w->result[i] > 0 ? (uint64_t)w->result[i] : 0);
    }
    if (hits * 4 >= w->events)
        return 1;
    for (uint32_t i = 0; i < w->events; i++)
        w->value[i] = w->offset[i] + 1;
    return 0;
}

static uint8_t fill_column(struct workspace *w, enum mr_mrt_column id, uint64_t first_ns)
{
    uint64_t previous = first_ns;
    uint32_t before = 0;
    switch (id) {
    case MR_COL_GAP:
        for (uint32_t i = 0; i < w->events; i++) {
            w->value[i] = zigzag((int64_t)(w->start[i] - previous));
            previous = w->end[i];
        }
        return 0;
    case MR_COL_DURATION:
        for (uint32_t i = 0; i < w->events; i++)
            w->value[i] = w->end[i] - w->start[i];
        return 0;
    case MR_COL_CALL:
        for (uint32_t i = 0; i < w->events; i++)
            w->value[i] = w->call[i];
        return 0;
    case MR_COL_FILE:
        for (uint32_t i = 0; i < w->events; i++)
            w->value[i] = w->file[i];
        return 0;
    case MR_COL_FD:
        for (uint32_t i = 0; i < w->events; i++)
            w->value[i] = w->fd[i];
        return 0;
    case MR_COL_OFFSET: return fill_offsets(w);
    case MR_COL_RESULT:
        for (uint32_t i = 0; i < w->events; i++)
            w->value[i] = zigzag(w->result[i]);
        return 0;
    case MR_COL_ARG_EVENT:
        for (uint32_t i = 0; i < w->args; i++) {
            w->value[i] = w->arg_event[i] - before;
            before = w->arg_event[i];
        }
        return 0;
    case MR_COL_ARG_KEY:
        for (uint32_t i = 0; i < w->args; i++)
            w->value[i] = w->arg_key[i];
        return 0;
    case MR_COL_ARG_TYPE:
        for (uint32_t i = 0; i < w->args; i++)
            w->value[i] = w->arg_type[i];
        return 0;
    default:
        for (uint32_t i = 0; i < w->args; i++)
            w->value[i] = w->arg_value[i];
        return 0;
    }
}

static uint8_t *put_histogram(uint8_t *p, const uint32_t *bucket)
{
    uint32_t pairs = 0, before = 0;
    for (unsigned b = 0; b < MR_HIST_BUCKETS; b++)
        pairs += bucket[b] != 0;
    p = put_varint(p, pairs);
    for (unsigned b = 0; b < MR_HIST_BUCKETS; b++)
        if (bucket[b]) {
            p = put_varint(p, b - before);
            p = put_varint(p, bucket[b]);
            before = b;
        }
    return p;
}

static uint8_t *put_aggregates(const struct workspace *w, uint8_t *p)
{
    for (uint32_t i = 0; i < w->aggs; i++) {
        const struct agg *a = &w->agg[i];
        uint64_t size_min = a->size_min == UINT64_MAX ? 0 : a->size_min;
        const uint64_t field[] = {a->call, a->count, a->errors, a->bytes, a->dur_sum, a->dur_min, a->dur_max, size_min, a->size_max};
        for (size_t k = 0; k < MR_ARRAY_LEN(field); k++)
            p = put_varint(p, field[k]);
        p = put_histogram(p, a->dur);
        p = put_histogram(p, a->size);
    }
    return p;
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

size_t mr_mrt_encode_events(void *workspace, const struct mr_raw *ring, uint64_t mask, uint64_t from, uint64_t to,
                            const struct mr_calibration *cal, uint64_t key, uint32_t tid, uint64_t sequence, uint64_t lost,
                            uint8_t *out, uint64_t *next, struct mr_mrt_block *block)
{
    struct workspace *w = workspace;
    *next = unpack(w, ring, mask, from, to, cal);
    struct mr_mrt_block b = {.type = MR_MRT_EVENTS, .key = key, .tid = tid, .count = w->events, .sequence = sequence, .lost = lost};
    if (from == to)
        return 0;
    b.first_ns = w->events ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < w->events; i++) {
        b.first_ns = MR_MIN(b.first_ns, w->start[i]);
        b.last_ns = MR_MAX(b.last_ns, w->end[i]);
    }
    unsigned columns = w->args ? MR_COLS - 1 : MR_COL_RESULT;
    uint8_t *payload = out + MR_MRT_HEADER, *row = payload + MR_MRT_EVENTS_FIXED;
    uint8_t *agg = row + columns * MR_MRT_COLUMN_ROW, *p = put_aggregates(w, agg);
    put_calibration(payload, cal);
    mr_store_le16(payload + 40, (uint16_t)columns);
    mr_store_le16(payload + 42, (uint16_t)w->aggs);
    mr_store_le32(payload + 44, w->args);
    mr_store_le32(payload + 48, (uint32_t)(p - agg));
    mr_store_le32(payload + 52, 0);
    ZSTD_CCtx *ctx = ZSTD_initStaticCCtx(w->zstd, sizeof(w->zstd));
    for (unsigned c = 0; c < columns; c++, row += MR_MRT_COLUMN_ROW) {
        enum mr_mrt_column id = (enum mr_mrt_column)(c + 1);
        uint8_t mode = fill_column(w, id, b.first_ns);
        p = put_column(w, ctx, id, mode, id >= MR_COL_ARG_EVENT ? w->args : w->events, row, p);
    }
    b.payload_bytes = (uint32_t)(p - payload);
    *block = b;
    return mr_mrt_seal(out, &b);
}

size_t mr_mrt_encode_strings(const uint8_t *arena, uint64_t len, uint64_t key, uint32_t first, uint8_t *out, size_t cap,
                             uint64_t *taken_bytes, uint32_t *taken)
{
    uint64_t at = 0;
    uint32_t n = 0;
    uint8_t *p = out + MR_MRT_HEADER, *limit = out + cap - 8;
    while (at + 8 <= len) {
        const struct mr_arena_string *s = (const void *)(arena + at);
        if (s->len > len - at - 8 || (size_t)(limit - p) < (size_t)s->len + 8)
            break;
        *p++ = s->kind;
        p = put_varint(p, s->len);
        memcpy(p, s->text, s->len);
        p += s->len;
        at += MR_ARENA_STRING_BYTES(s->len);
        n++;
    }
    *taken_bytes = at;
    *taken = n;
    if (!n)
        return 0;
    const struct mr_mrt_block b = {.type = MR_MRT_STRINGS, .key = key, .count = n, .sequence = first,
                                   .payload_bytes = (uint32_t)(p - out - MR_MRT_HEADER)};
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

size_t mr_mrt_encode_end(uint64_t key, enum mr_mrt_how how, uint32_t threads, uint64_t events, uint64_t lost, uint64_t end_ns,
                         const uint64_t *skipped, uint8_t *out)
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
    const struct mr_mrt_block b = {.type = MR_MRT_END, .key = key, .count = 1, .first_ns = end_ns, .last_ns = end_ns,
                                   .lost = lost, .payload_bytes = at};
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
