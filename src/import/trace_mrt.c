/* Own traces: process, strings, events and end blocks become parts of a trace. Events stay where they are in the file
 * and are decoded when they are read. */
#include "import/trace_internal.h"
#include "base/common.h"

#include <errno.h>
#include <string.h>
#include <zstd.h>

#define STARTS_MOST 65536u

static int read_process(struct mr_trace *t, const struct mr_mrt_view *v, struct mr_error *err)
{
    const uint8_t *p = v->payload, *end = p + v->head.payload_bytes;
    uint32_t index, node;
    int rc = mr_trace_process_get(t, v->head.key, &index, err);
    if (rc < 0)
        return rc;
    if (end - p < 56)
        return mr_error_plain(err, MR_E_CORRUPT, "bad process block at %llu", (unsigned long long)v->offset);
    size_t host = mr_load_le16(p + 48);
    const uint8_t *q = p + 50;
    if ((size_t)(end - q) < host + 2)
        return mr_error_plain(err, MR_E_CORRUPT, "bad process block at %llu", (unsigned long long)v->offset);
    rc = mr_trace_node_get(t, (const char *)q, host, &node, err);
    if (rc < 0)
        return rc;
    struct mr_trace_process *r = &t->process[index];
    q += host;
    size_t exe = mr_load_le16(q);
    q += 2;
    if ((size_t)(end - q) < exe + 4)
        return mr_error_plain(err, MR_E_CORRUPT, "bad process block at %llu", (unsigned long long)v->offset);
    r->exe = (struct mr_trace_string){.text = (const char *)q, .len = (uint32_t)exe};
    q += exe;
    uint32_t cmd = mr_load_le32(q);
    r->cmdline = (struct mr_trace_string){.text = (const char *)q + 4,
                                          .len = (uint32_t)MR_MIN((size_t)cmd, (size_t)(end - q - 4))};
    r->pid = mr_load_le32(p);
    r->ppid = mr_load_le32(p + 4);
    r->rank = (int32_t)mr_load_le32(p + 24);
    r->world = (int32_t)mr_load_le32(p + 28);
    r->local_rank = (int32_t)mr_load_le32(p + 32);
    r->local_world = (int32_t)mr_load_le32(p + 36);
    r->uid = mr_load_le32(p + 40);
    r->flags = mr_load_le32(p + 44);
    r->node = node;
    r->known = true;
    q += 4 + r->cmdline.len;
    if (r->flags & MR_PROCESS_SHARES_NAMES && end - q >= 8)
        r->names_key = mr_load_le64(q);
    /* All processes of a machine share one offset, so that clock corrections do not shift them against each other. */
    int64_t offset = (int64_t)(mr_load_le64(p + 16) - mr_load_le64(p + 8));
    struct mr_trace_node *n = &t->node[node];
    int64_t apart = n->has_offset ? (int64_t)((uint64_t)offset - (uint64_t)n->real_offset) : 0;
    if (!n->has_offset) {
        n->real_offset = offset;
        n->has_offset = true;
    }
    r->real_offset = apart > -(int64_t)MR_NS_PER_S && apart < (int64_t)MR_NS_PER_S ? n->real_offset : offset;
    r->start_ns = mr_load_le64(p + 8) + (uint64_t)r->real_offset;
    return 0;
}

static int read_strings(struct mr_trace *t, const struct mr_mrt_view *v, struct mr_error *err)
{
    const uint8_t *p = v->payload, *end = p + v->head.payload_bytes;
    uint32_t index;
    int rc = mr_trace_process_get(t, v->head.key, &index, err);
    if (v->head.flags & MR_MRT_STRINGS_PACKED) {
        size_t raw = end - p >= 4 ? mr_load_le32(p) : 0;
        bool fits = raw <= 64 * MR_MIB && raw <= 16 * MR_KIB + 128 * (size_t)(end - p); /* names shrink to a tenth */
        char *text = raw && fits ? mr_arena_alloc(&t->arena, raw) : NULL;
        size_t got = text ? ZSTD_decompress(text, raw, p + 4, (size_t)(end - p - 4)) : 0;
        if (!text || ZSTD_isError(got))
            return mr_error_plain(err, MR_E_CORRUPT, "bad strings block at %llu", (unsigned long long)v->offset);
        p = (const uint8_t *)text;
        end = p + got;
    }
    for (uint32_t i = 0; i < v->head.count && rc == 0; i++) {
        uint64_t len = 0;
        unsigned shift = 0;
        if (end - p < 2)
            return mr_error_plain(err, MR_E_CORRUPT, "bad strings block at %llu", (unsigned long long)v->offset);
        uint8_t kind = *p++;
        for (; p < end; shift += 7) {
            uint8_t b = *p++;
            len |= (uint64_t)(b & 0x7f) << MR_MIN(shift, 63u);
            if (!(b & 0x80))
                break;
        }
        if (len > (size_t)(end - p) || v->head.sequence + i > MR_TRACE_STRING_MAX)
            return mr_error_plain(err, MR_E_CORRUPT, "bad strings block at %llu", (unsigned long long)v->offset);
        rc = mr_trace_string_set(t, &t->process[index], (uint32_t)(v->head.sequence + i), kind, (const char *)p,
                                 (uint32_t)len, err);
        p += len;
    }
    return rc;
}

static int read_end(struct mr_trace *t, const struct mr_mrt_view *v, struct mr_error *err)
{
    uint32_t index;
    if (!v->head.key) { /* of the file itself, which dropped whole processes */
        t->recorded += v->head.payload_bytes >= 32 ? mr_load_le64(v->payload + 8) : 0;
        return 0;
    }
    int rc = mr_trace_process_get(t, v->head.key, &index, err);
    if (rc == 0 && v->head.payload_bytes >= 32) {
        if (v->head.last_ns >= t->process[index].end_ns) { /* an end before a failed exec is superseded */
            t->process[index].how = mr_load_le32(v->payload);
            t->process[index].end_ns = v->head.last_ns;
        }
        t->process[index].lost = MR_MAX(t->process[index].lost, mr_load_le64(v->payload + 16));
        t->process[index].recorded = MR_MAX(t->process[index].recorded, mr_load_le64(v->payload + 8));
        for (uint32_t at = 32; at + 12 <= v->head.payload_bytes; at += 12) {
            uint32_t call = mr_load_le32(v->payload + at);
            uint64_t **skipped = &t->process[index].skipped;
            if (!*skipped)
                *skipped = mr_arena_alloc(&t->arena, MR_CALL_COUNT * sizeof(**skipped));
            if (*skipped && call < MR_CALL_COUNT)
                (*skipped)[call] =
                    mr_load_le64(v->payload + at + 4); /* totals: a later end of the same process replaces them */
        }
    }
    return rc;
}

static int read_events(struct mr_trace *t, const struct mr_mrt_view *v, struct mr_error *err)
{
    struct mr_trace_chunk *c = NULL;
    uint32_t index;
    if (v->head.count > MR_MRT_MAX_COUNT)
        return mr_error_plain(err, MR_E_CORRUPT, "events block at %llu claims %u events", (unsigned long long)v->offset,
                              v->head.count);
    int rc = mr_trace_process_get(t, v->head.key, &index, err);
    rc = rc ? rc : mr_trace_chunk_add(t, &c, err);
    if (rc != 0)
        return rc;
    c->process = index;
    c->tid = v->head.tid;
    c->count = v->head.count;
    c->sequence = v->head.sequence;
    c->first_ns = v->head.first_ns;
    c->last_ns = v->head.last_ns;
    c->args = mr_mrt_args(v);
    c->view = *v;
    c->mapped = t->mapped;
    t->process[index].lost = MR_MAX(t->process[index].lost, v->head.lost);
    return 0;
}

/* One per program; of a damaged file's million the first ones will do. */
static int read_start(struct mr_trace *t, const struct mr_mrt_view *v, struct mr_error *err)
{
    const struct mr_trace_start s = {v->head.key, v->payload, v->payload + v->head.payload_bytes};
    if (t->starts == STARTS_MOST)
        return 0;
    if (t->starts == t->start_cap) {
        size_t cap = t->start_cap ? 2 * t->start_cap : 4;
        struct mr_trace_start *bigger = mr_arena_alloc(&t->arena, cap * sizeof(*bigger));
        if (!bigger)
            return mr_error_set(err, -ENOMEM, "cannot load the trace");
        if (t->starts)
            memcpy(bigger, t->start, t->starts * sizeof(*bigger));
        t->start = bigger;
        t->start_cap = cap;
    }
    t->start[t->starts++] = s;
    return 0;
}

int mr_trace_add_block(struct mr_trace *t, const struct mr_mrt_view *v, struct mr_error *err)
{
    switch (v->head.type) {
    case MR_MRT_PROCESS: return read_process(t, v, err);
    case MR_MRT_STRINGS: return read_strings(t, v, err);
    case MR_MRT_EVENTS: return read_events(t, v, err);
    case MR_MRT_END: return read_end(t, v, err);
    case MR_MRT_START: return read_start(t, v, err);
    case MR_MRT_PROBE: return mr_storage_probe_read(v->payload, v->head.payload_bytes, &t->probe), 0;
    case MR_MRT_MOUNTS: return mr_trace_add_mounts(t, v, err);
    default: return 0;
    }
}

int mr_trace_add_mrt(struct mr_trace *t, const uint8_t *data, size_t len, const char *name, struct mr_error *err)
{
    struct mr_mrt_scan scan = {0};
    int rc = mr_mrt_scan(data, len, true, name, &scan, err); /* a damaged block is skipped here, once for all readers */
    t->skipped_bytes += scan.skipped_bytes;
    for (size_t i = 0; i < scan.views && rc == 0; i++)
        rc = mr_trace_add_block(t, &scan.view[i], err);
    t->unended += !scan.had_footer;
    t->sees |= MR_SEES_DATA | MR_SEES_METADATA | MR_SEES_OTHERS;
    mr_mrt_scan_done(&scan);
    if (rc < 0)
        mr_error_context(err, "in trace '%s'", name);
    return rc;
}
