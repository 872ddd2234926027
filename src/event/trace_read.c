/* Loading traces: mapping files, reading process and string blocks, listing the events blocks. */
#include "event/trace_read.h"
#include "base/common.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/workers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <libdeflate.h>
#include <zlib.h>
#include <zstd.h>

/* Memory that lives as long as the trace. */
struct mr_trace_file {
    struct mr_trace_file *next;
    void *data;
    size_t len;
    bool mapped;
};

/* A file, whatever its path. */
struct mr_trace_source {
    struct mr_trace_source *next;
    dev_t device;
    ino_t inode;
};

#define STRING_MAX_ID (1u << 28)

int mr_trace_create(struct mr_trace **out, struct mr_error *err)
{
    struct mr_trace *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot load traces");
    *out = t;
    return 0;
}

void mr_trace_free(struct mr_trace *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->processes; i++)
        if (!t->process[i].borrowed)
            free(t->process[i].string);
    for (struct mr_trace_file *f = t->files, *next; f; f = next) {
        next = f->next;
        if (f->mapped)
            munmap(f->data, f->len);
        else
            free(f->data);
        free(f);
    }
    mr_arena_done(&t->arena);
    free(t->process);
    free(t->chunk);
    free(t->node);
    free(t->key_slot);
    free(t);
}

static int grow(void **array, size_t *cap, size_t need, size_t each, struct mr_error *err)
{
    if (need <= *cap)
        return 0;
    size_t bigger = MR_MAX(need, *cap * 2 + 16);
    void *p = realloc(*array, bigger * each);
    if (!p)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    *array = p;
    *cap = bigger;
    return 0;
}

static int keep(struct mr_trace *t, void *data, size_t len, bool mapped, struct mr_error *err)
{
    struct mr_trace_file *f = malloc(sizeof(*f));
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    *f = (struct mr_trace_file){.next = t->files, .data = data, .len = len, .mapped = mapped};
    t->files = f;
    return 0;
}

int mr_trace_keep(struct mr_trace *t, void *data, struct mr_error *err)
{
    return keep(t, data, 0, false, err);
}

static void key_put(struct mr_trace *t, uint64_t key, size_t index)
{
    size_t i = mr_mix64(key) & (t->key_slots - 1);
    while (t->key_slot[i])
        i = (i + 1) & (t->key_slots - 1);
    t->key_slot[i] = index + 1;
}

static struct mr_trace_process *find_process(struct mr_trace *t, uint64_t key)
{
    if (t->key_slots)
        for (size_t i = mr_mix64(key) & (t->key_slots - 1); t->key_slot[i]; i = (i + 1) & (t->key_slots - 1))
            if (t->process[t->key_slot[i] - 1].key == key)
                return &t->process[t->key_slot[i] - 1];
    return NULL;
}

int mr_trace_process_get(struct mr_trace *t, uint64_t key, uint32_t *index, struct mr_error *err)
{
    const struct mr_trace_process *there = find_process(t, key);
    if (there) {
        *index = (uint32_t)(there - t->process);
        return 0;
    }
    int rc = grow((void **)&t->process, &t->process_cap, t->processes + 1, sizeof(*t->process), err);
    if (rc < 0)
        return rc;
    if (t->processes * 2 >= t->key_slots) {
        size_t slots = t->key_slots ? t->key_slots * 2 : 64;
        uint64_t *bigger = calloc(slots, sizeof(*bigger));
        if (!bigger)
            return mr_error_set(err, -ENOMEM, "cannot load the trace");
        free(t->key_slot);
        t->key_slot = bigger;
        t->key_slots = slots;
        for (size_t i = 0; i < t->processes; i++)
            key_put(t, t->process[i].key, i);
    }
    struct mr_trace_process *p = &t->process[t->processes];
    memset(p, 0, sizeof(*p));
    p->key = key;
    p->rank = p->world = p->local_rank = p->local_world = -1;
    key_put(t, key, t->processes);
    *index = (uint32_t)t->processes++;
    return 0;
}

int mr_trace_string_set(struct mr_trace *t, struct mr_trace_process *p, uint32_t id, uint8_t kind, const char *text,
                        uint32_t len, struct mr_error *err)
{
    (void)t;
    if (!id || id > STRING_MAX_ID || p->borrowed)
        return mr_error_plain(err, MR_E_CORRUPT, "bad string id %u", id);
    if (id >= p->string_cap) {
        uint32_t cap = MR_MAX(id + 1, p->string_cap * 2 + 64);
        struct mr_trace_string *bigger = realloc(p->string, cap * sizeof(*bigger));
        if (!bigger)
            return mr_error_set(err, -ENOMEM, "cannot load names");
        memset(bigger + p->string_cap, 0, (cap - p->string_cap) * sizeof(*bigger));
        p->string = bigger;
        p->string_cap = cap;
    }
    p->string[id] = (struct mr_trace_string){.text = text, .len = len, .kind = kind};
    p->strings = MR_MAX(p->strings, id + 1);
    return 0;
}

const struct mr_trace_string *mr_trace_string(const struct mr_trace_process *p, uint32_t id)
{
    static const struct mr_trace_string none = {.text = ""};
    return id && id < p->strings && p->string[id].text ? &p->string[id] : &none;
}

void mr_trace_label(const struct mr_trace_process *p, unsigned call, uint32_t file, struct mr_trace_string *category,
                    struct mr_trace_string *name)
{
    const struct mr_call_info *i = mr_call_get(call);
    *category =
        (struct mr_trace_string){.text = mr_layer_name(i->layer), .len = (uint32_t)strlen(mr_layer_name(i->layer))};
    *name = (struct mr_trace_string){.text = i->name, .len = (uint32_t)strlen(i->name)};
    const struct mr_trace_string *s = mr_trace_string(p, file);
    if (i->layer != MR_LAYER_APP || s->kind != MR_STR_SITE)
        return;
    const char *cut = memchr(s->text, 0, s->len);
    if (!cut)
        return;
    category->text = s->text;
    category->len = (uint32_t)(cut - s->text);
    name->text = cut + 1;
    name->len = s->len - category->len - 1;
}

int mr_trace_node_get(struct mr_trace *t, const char *name, size_t len, uint32_t *index, struct mr_error *err)
{
    len = strnlen(name, MR_MIN(len, sizeof(t->node->name) - 1));
    for (size_t i = 0; i < t->nodes; i++)
        if (strlen(t->node[i].name) == len && !memcmp(t->node[i].name, name, len)) {
            *index = (uint32_t)i;
            return 0;
        }
    int rc = grow((void **)&t->node, &t->node_cap, t->nodes + 1, sizeof(*t->node), err);
    if (rc < 0)
        return rc;
    memset(&t->node[t->nodes], 0, sizeof(*t->node));
    memcpy(t->node[t->nodes].name, name, len);
    *index = (uint32_t)t->nodes++;
    return 0;
}

int mr_trace_chunk_add(struct mr_trace *t, struct mr_trace_chunk **out, struct mr_error *err)
{
    int rc = grow((void **)&t->chunk, &t->chunk_cap, t->chunks + 1, sizeof(*t->chunk), err);
    if (rc < 0)
        return rc;
    *out = &t->chunk[t->chunks++];
    memset(*out, 0, sizeof(**out));
    return 0;
}

/* ---- own format ---- */

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
    int64_t apart = n->has_offset ? offset - n->real_offset : 0;
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
        char *text = raw && raw <= 64 * MR_MIB ? mr_arena_alloc(&t->arena, raw) : NULL;
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
        if (len > (size_t)(end - p) || v->head.sequence + i > STRING_MAX_ID)
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
    if (!v->head.key) { /* of the file, which has lost whole processes */
        t->recorded += v->head.payload_bytes >= 32 ? mr_load_le64(v->payload + 8) : 0;
        return 0;
    }
    int rc = mr_trace_process_get(t, v->head.key, &index, err);
    if (rc == 0 && v->head.payload_bytes >= 32) {
        if (v->head.last_ns >= t->process[index].end_ns) { /* one before an exec that failed counts no more */
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
    if (rc < 0)
        return rc;
    c->process = index;
    c->tid = v->head.tid;
    c->count = v->head.count;
    c->sequence = v->head.sequence;
    c->first_ns = v->head.first_ns;
    c->last_ns = v->head.last_ns;
    c->args = mr_mrt_args(v);
    c->view = *v;
    t->process[index].lost = MR_MAX(t->process[index].lost, v->head.lost);
    return 0;
}

static int add_mrt(struct mr_trace *t, const uint8_t *data, size_t len, const char *name, struct mr_error *err)
{
    struct mr_mrt_scan scan = {0};
    int rc = mr_mrt_scan(data, len, true, name, &scan,
                         err); /* a damaged block costs only itself: it is left out here, for all readers */
    t->skipped_bytes += scan.skipped_bytes;
    for (size_t i = 0; i < scan.views && rc == 0; i++)
        switch (scan.view[i].head.type) {
        case MR_MRT_PROCESS: rc = read_process(t, &scan.view[i], err); break;
        case MR_MRT_STRINGS: rc = read_strings(t, &scan.view[i], err); break;
        case MR_MRT_EVENTS: rc = read_events(t, &scan.view[i], err); break;
        case MR_MRT_END: rc = read_end(t, &scan.view[i], err); break;
        default: break;
        }
    mr_mrt_scan_done(&scan);
    if (rc < 0)
        mr_error_context(err, "in trace '%s'", name);
    return rc;
}

/* ---- files ---- */

#define INFLATE_MAX (64ull << 30)

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

/* All members of a gzip file, one after the other. A cut end keeps what was whole; behind damage it goes on with the
 * next member. Adds to *skipped the compressed bytes passed over; padding with zeros is no damage. */
static int gunzip(const uint8_t *data, size_t len, const char *name, char **out, size_t *out_len, uint64_t *skipped,
                  struct mr_error *err)
{
    size_t cap = MR_MAX(len * 8, (size_t)65536), n = 0, used = 0;
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
            char *bigger = cap < INFLATE_MAX ? realloc(text, cap * 2) : NULL;
            if (!bigger) {
                rc = mr_error_plain(err, MR_E_LIMIT, "'%s' decompresses to more than %zu bytes", name, cap);
                break;
            }
            text = bigger;
            cap *= 2;
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
    inflateEnd(&z);
    if (rc == 0 && n && used == len && (state == Z_OK || state == Z_BUF_ERROR))
        mr_log(MR_LOG_WARN, "'%s' is cut off: what was behind its last whole line is not there", name);
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

/* Makes memory present that is about to be written from end to end: much cheaper than a page fault each. Kernels that
 * cannot do it let the faults happen. Not in large pages: where memory is in use, the kernel takes longer to find them
 * than they save. */
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

/* The same by libdeflate, two to three times as fast, for files that are whole; -1 lets the careful way try. */
static int gunzip_fast(const uint8_t *data, size_t len, char **out, size_t *out_len)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    /* The last four bytes say how long the last member is: all of it in the usual case. */
    size_t cap = len >= 18 ? MR_MIN((size_t)mr_load_le32(data + len - 4), len * 1032) + 65536 : 65536, n = 0, used = 0;
    char *text = d ? malloc(cap) : NULL;
    if (text && cap / 64 <= len)
        make_present(text, cap);
    while (text && used < len) {
        size_t in, got;
        enum libdeflate_result r =
            libdeflate_gzip_decompress_ex(d, data + used, len - used, text + n, cap - n, &in, &got);
        if (r == LIBDEFLATE_INSUFFICIENT_SPACE && cap < INFLATE_MAX) {
            char *bigger = realloc(text, cap * 2);
            if (bigger) {
                text = bigger;
                cap *= 2;
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

/* ---- files ----
 *
 * In two steps: files are opened, decompressed and, if they are DFTracer's, parsed by several threads at once; then
 * they are added to the trace, one after the other in the order in which they were given. */

struct input {
    char *path;
    bool in_folder;
    bool again; /* the same file as one before it */
    dev_t device;
    ino_t inode;
    uint64_t bytes;      /* as stored */
    const uint8_t *data; /* the content, decompressed; NULL where `pfw` has it already */
    size_t len;
    void *memory; /* that it is in */
    size_t memory_len;
    bool mapped;
    struct mr_pfw *pfw;
    uint64_t skipped_bytes;
    int rc; /* of loading it, and why */
    struct mr_error err;
};

static void let_go(struct input *in)
{
    if (in->mapped && in->memory)
        munmap(in->memory, in->memory_len);
    else if (!in->mapped)
        free(in->memory);
    in->memory = NULL;
    in->data = NULL;
}

static void take(struct input *in, void *memory, size_t len, bool mapped)
{
    let_go(in);
    in->data = in->memory = memory;
    in->len = in->memory_len = len;
    in->mapped = mapped;
}

/* All that a pipe has to say, in memory. */
static int read_pipe(int fd, void **out, size_t *len)
{
    size_t n = 0, cap = 0;
    char *data = NULL;
    for (ssize_t k = 1; k;) {
        if (n == cap) {
            cap = cap ? cap * 2 : 1 << 16;
            char *bigger = realloc(data, cap);
            if (!bigger) {
                free(data);
                return -ENOMEM;
            }
            data = bigger;
        }
        k = read(fd, data + n, cap - n);
        if (k < 0 && errno != EINTR) {
            int rc = -errno;
            free(data);
            return rc;
        }
        n += k > 0 ? (size_t)k : 0;
    }
    *out = data;
    *len = n;
    return 0;
}

static int map_file(int fd, size_t len, void **out)
{
    void *data = len ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (data == MAP_FAILED)
        return -errno;
    *out = data;
    return 0;
}

/* True if the trace is still being written, or its collector was killed. */
static bool is_unfinished(const char *path)
{
    char spool[4096];
    struct stat st;
    return snprintf(spool, sizeof(spool), "%s.spool", path) < (int)sizeof(spool) && lstat(spool, &st) == 0;
}

/* Opens a file. Under a limit on the size two take turns: in the moment between two turns there is none, or an empty
 * one. */
static int open_file(const char *path, struct stat *st)
{
    int fd, tries = is_unfinished(path) ? 100 : 1;
    for (;;) {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        bool ok = fd >= 0 && fstat(fd, st) == 0;
        if (--tries == 0 || (ok && (st->st_size || !S_ISREG(st->st_mode))) || (fd < 0 && errno != ENOENT))
            return fd;
        if (fd >= 0)
            close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static int read_file(struct input *in)
{
    struct stat st;
    void *data = NULL;
    int fd = open_file(in->path, &st), rc = 0;
    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = mr_error_set(&in->err, -errno, "cannot open the trace '%s'", in->path);
    } else {
        bool mapped = !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode);
        size_t len = (size_t)st.st_size;
        rc = mapped ? map_file(fd, len, &data) : read_pipe(fd, &data, &len);
        if (rc < 0)
            rc = mr_error_set(&in->err, rc, "cannot read the trace '%s'", in->path);
        else
            take(in, data, len, mapped);
        in->bytes = len;
        if (rc == 0 && !len)
            rc = mr_error_plain(&in->err, MR_E_FORMAT, "the trace '%s' is empty", in->path);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

static int decompress(struct input *in)
{
    char *text = NULL;
    size_t n = 0;
    if (in->len < 2 || in->data[0] != 0x1f || in->data[1] != 0x8b)
        return 0;
    int rc = gunzip_fast(in->data, in->len, &text, &n);
    if (rc < 0)
        rc = gunzip(in->data, in->len, in->path, &text, &n, &in->skipped_bytes, &in->err);
    if (rc == 0)
        take(in, text, n, false);
    return rc;
}

static int parse(struct input *in)
{
    const char *text = (const char *)in->data;
    if (mr_mrt_is_header(in->data, in->len) || mr_dxt_is(text, in->len))
        return 0;
    if (!mr_pfw_is(text, in->len)) {
        mr_error_plain(&in->err, MR_E_FORMAT, "'%s' is not a trace", in->path);
        return mr_error_hint(&in->err, "readable are .mrt and .pfw, also gzipped, and the text of darshan-dxt-parser"),
               MR_E_FORMAT;
    }
    int rc = mr_pfw_parse(text, in->len, in->path, &in->pfw, &in->err);
    let_go(in);
    return rc;
}

/* What can be done for every file on its own. How it went is in the input: others go on. */
static void load(struct input *in)
{
    in->rc = in->data ? 0 : read_file(in);
    in->rc = in->rc ? in->rc : decompress(in);
    in->rc = in->rc ? in->rc : parse(in);
}

static int load_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct input *in = &((struct input *)ctx->user)[index];
    (void)err;
    if (!in->again)
        load(in);
    return 0;
}

/* The content stays with the trace where that reads in it later. */
static int join_content(struct mr_trace *t, struct input *in, struct mr_error *err)
{
    if (in->pfw) {
        struct mr_pfw *p = in->pfw;
        in->pfw = NULL;
        return mr_pfw_join(t, p, err);
    }
    if (!mr_mrt_is_header(in->data, in->len))
        return mr_dxt_import(t, (const char *)in->data, in->len, in->path, err);
    int rc = in->memory ? keep(t, in->memory, in->memory_len, in->mapped, err) : 0;
    if (rc < 0)
        return rc;
    in->memory = NULL;
    return add_mrt(t, in->data, in->len, in->path, err);
}

static int join(struct mr_trace *t, struct input *in, struct mr_error *err)
{
    if (in->rc < 0) {
        if (err)
            *err = in->err;
        return in->rc;
    }
    struct mr_trace_source *s = mr_arena_alloc(&t->arena, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    *s = (struct mr_trace_source){.next = t->sources, .device = in->device, .inode = in->inode};
    t->sources = s;
    t->file_bytes += in->bytes;
    t->skipped_bytes += in->skipped_bytes;
    return join_content(t, in, err);
}

static void input_done(struct input *in)
{
    let_go(in);
    mr_pfw_free(in->pfw);
    free(in->path);
}

int mr_trace_add_memory(struct mr_trace *t, const void *data, size_t len, const char *name, struct mr_error *err)
{
    struct input in = {.path = strdup(name), .data = data, .len = len, .mapped = true};
    int rc = -ENOMEM;
    if (in.path) {
        load(&in);
        rc = join(t, &in, err);
    }
    input_done(&in);
    return rc;
}

static bool is_source(const struct mr_trace *t, const struct stat *st)
{
    for (const struct mr_trace_source *s = t->sources; s; s = s->next)
        if (s->device == st->st_dev && s->inode == st->st_ino)
            return true;
    return false;
}

bool mr_trace_reads(const struct mr_trace *t, const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && is_source(t, &st);
}

struct inputs {
    struct input *item;
    size_t n, cap;
};

static int input_add(struct inputs *all, const char *path, const struct stat *st, bool in_folder, struct mr_error *err)
{
    int rc = grow((void **)&all->item, &all->cap, all->n + 1, sizeof(*all->item), err);
    char *copy = rc ? NULL : strdup(path);
    if (!copy)
        return rc ? rc : mr_error_set(err, -ENOMEM, "cannot load the trace");
    all->item[all->n++] =
        (struct input){.path = copy, .in_folder = in_folder, .device = st->st_dev, .inode = st->st_ino, .mapped = true};
    return 0;
}

static int by_file(const void *a, const void *b)
{
    const struct input *x = *(struct input *const *)a, *y = *(struct input *const *)b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode)
        return x->inode < y->inode ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Files that were named twice, or added before. */
static int find_again(const struct mr_trace *t, struct inputs *all, struct mr_error *err)
{
    struct input **in = malloc((all->n + 1) * sizeof(struct input *));
    if (!in)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    for (size_t i = 0; i < all->n; i++)
        in[i] = &all->item[i];
    qsort(in, all->n, sizeof(struct input *), by_file);
    for (size_t i = 0; i < all->n; i++) {
        const struct stat st = {.st_dev = in[i]->device, .st_ino = in[i]->inode};
        in[i]->again =
            is_source(t, &st) || (i && in[i]->device == in[i - 1]->device && in[i]->inode == in[i - 1]->inode);
    }
    free(in);
    return 0;
}

static bool is_trace_name(const char *name)
{
    static const char *const ends[] = {".mrt", ".mrt.gz", ".pfw", ".pfw.gz", ".dxt", ".dxt.txt"};
    size_t n = strlen(name);
    for (size_t i = 0; i < MR_ARRAY_LEN(ends); i++)
        if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int list_folder(struct inputs *all, const char *path, struct mr_error *err)
{
    struct dirent **entry;
    int rc = 0, found = 0, n = scandir(path, &entry, NULL, by_name);
    if (n < 0)
        return mr_error_set(err, -errno, "cannot read the folder '%s'", path);
    for (int i = 0; i < n; i++) {
        char file[4096];
        struct stat st = {0};
        snprintf(file, sizeof(file), "%s/%s", path, entry[i]->d_name);
        bool trace = rc == 0 && is_trace_name(entry[i]->d_name);
        free(entry[i]);
        bool there = trace && stat(file, &st) == 0;
        if (!trace || (there && !S_ISREG(st.st_mode)))
            continue; /* also a folder; a pipe would have to be waited for */
        found++;
        if (there && st.st_size == 0)
            continue; /* its process was killed between making the file and writing to it */
        rc = there ? input_add(all, file, &st, true, err)
                   : mr_error_set(err, -errno, "cannot open the trace '%s'", file);
    }
    free(entry);
    if (rc < 0 || found)
        return rc;
    rc = mr_error_plain(err, MR_E_FORMAT, "the folder '%s' holds no traces", path);
    return mr_error_hint(err, "folders in it are not looked into: give them too, as in '%s/*'", path), rc;
}

/* The older of two files that take turns belongs to the trace. */
static int list_older(struct inputs *all, const char *path, struct mr_error *err)
{
    char older[4096];
    struct stat st;
    if (snprintf(older, sizeof(older), "%s.1", path) >= (int)sizeof(older) || stat(older, &st) < 0 ||
        !S_ISREG(st.st_mode) || !st.st_size)
        return 0;
    return input_add(all, older, &st, true, err);
}

static int list(struct inputs *all, const char *path, struct mr_error *err)
{
    struct stat st = {0};
    if (!strcmp(path, "-"))
        path = "/dev/stdin";
    bool unfinished = is_unfinished(path);
    if (stat(path, &st) < 0 && !unfinished)
        return mr_error_set(err, -errno, "cannot open the trace '%s'", path);
    if (S_ISDIR(st.st_mode))
        return list_folder(all, path, err);
    int rc = input_add(all, path, &st, false, err);
    return rc || !unfinished ? rc : list_older(all, path, err);
}

/* A file of a folder that is no trace, or was cut off in its first bytes, is left out and told, as damage in a trace
 * is; unless all of them are. */
static int join_all(struct mr_trace *t, struct inputs *all, struct mr_error *err)
{
    size_t left_out = 0;
    int rc = 0;
    for (size_t i = 0; i < all->n && rc == 0; i++) {
        struct input *in = &all->item[i];
        bool bad = in->in_folder && in->rc == MR_E_FORMAT && left_out + 1 < all->n;
        if (!bad) {
            rc = in->again ? 0 : join(t, in, err);
        } else {
            left_out++;
            t->skipped_bytes += in->bytes;
            mr_log(MR_LOG_WARN, "%s: it is left out", in->err.message);
        }
        input_done(in);
        *in = (struct input){.mapped = true};
    }
    return rc;
}

int mr_trace_add_all(struct mr_trace *t, const char *const *paths, size_t n, unsigned threads, struct mr_error *err)
{
    struct inputs all = {0};
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = list(&all, paths[i], err);
    rc = rc ? rc : find_again(t, &all, err);
    if (rc == 0)
        rc = mr_workers_run(
            (unsigned)MR_MIN((size_t)(threads ? threads : mr_cpus_available()), MR_MAX(all.n, (size_t)1)), all.n, 1,
            load_one, all.item, t->stop, err);
    rc = rc ? rc : join_all(t, &all, err);
    for (size_t i = 0; i < all.n; i++)
        input_done(&all.item[i]);
    free(all.item);
    return rc;
}

int mr_trace_add(struct mr_trace *t, const char *path, struct mr_error *err)
{
    return mr_trace_add_all(t, &path, 1, 1, err);
}

static int by_place(const void *a, const void *b)
{
    const struct mr_trace_chunk *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    if (x->sequence != y->sequence)
        return x->sequence < y->sequence ? -1 : 1;
    if (x->last_ns != y->last_ns) /* in files that were joined the later one may stand before the other */
        return x->last_ns < y->last_ns ? -1 : 1;
    return x->view.offset < y->view.offset ? -1 : x->view.offset > y->view.offset;
}

/* Lets processes use the strings of the one they name. One level: that one must have strings of its own. */
static void share_names(struct mr_trace *t)
{
    for (size_t i = 0; i < t->processes; i++) {
        struct mr_trace_process *p = &t->process[i];
        const struct mr_trace_process *owner = p->names_key && !p->borrowed ? find_process(t, p->names_key) : NULL;
        if (!owner || owner->names_key)
            continue;
        free(p->string);
        p->string = owner->string;
        p->strings = owner->strings;
        p->borrowed = true;
    }
}

static int by_number(const void *a, const void *b)
{
    const struct mr_trace_process *x = *(struct mr_trace_process *const *)a, *y = *(struct mr_trace_process *const *)b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Traces of other tools may tell of one process in several files, its rank in one of them. */
static void share_ranks(struct mr_trace_process *const *p, size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        int32_t rank = -1;
        for (end = i; end < n && p[end]->node == p[i]->node && p[end]->pid == p[i]->pid && p[end]->again == p[i]->again;
             end++)
            rank = MR_MAX(rank, p[end]->rank);
        for (size_t k = i; k < end; k++)
            if (p[k]->rank < 0 && !p[k]->ppid && !p[k]->how)
                p[k]->rank = rank;
    }
}

/* Tells processes of one number apart. An image that exec left behind goes on in the next one, and page faults are told
 * by a process without parent and end beside the real one; but a forked image is a new process, and so is what comes
 * after one that has exited. */
static int number_again(struct mr_trace *t, struct mr_error *err)
{
    struct mr_trace_process **p = malloc((t->processes + 1) * sizeof(*p));
    const struct mr_trace_process *before = NULL;
    uint32_t again = 0;
    if (!p)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    for (size_t i = 0; i < t->processes; i++)
        p[i] = &t->process[i];
    qsort(p, t->processes, sizeof(struct mr_trace_process *), by_number);
    for (size_t i = 0; i < t->processes; i++) {
        if (i && (p[i]->node != p[i - 1]->node || p[i]->pid != p[i - 1]->pid)) {
            before = NULL;
            again = 0;
        }
        if (p[i]->ppid || p[i]->how) {
            again += before && (p[i]->flags & MR_PROCESS_FORKED || before->how == MR_HOW_EXIT);
            before = p[i];
        }
        p[i]->again = again;
    }
    share_ranks(p, t->processes);
    free(p);
    return 0;
}

/* Events that a process recorded and that are in no block. */
static int count_gone(struct mr_trace *t, struct mr_error *err)
{
    uint64_t *found = calloc(t->processes + 1, sizeof(*found));
    if (!found)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    for (size_t i = 0; i < t->chunks; i++)
        found[t->chunk[i].process] += t->chunk[i].count;
    for (size_t p = 0; p < t->processes; p++)
        t->gone += t->process[p].recorded > found[p] ? t->process[p].recorded - found[p] : 0;
    t->gone = MR_MAX(t->gone, t->recorded > t->events ? t->recorded - t->events : 0);
    free(found);
    return 0;
}

/* Processes whose block is damaged are known by their events only. Those say what time it was, too. */
static void find_clocks(struct mr_trace *t)
{
    for (size_t i = 0; i < t->chunks; i++) {
        const struct mr_mrt_view *v = &t->chunk[i].view;
        struct mr_trace_process *p = &t->process[t->chunk[i].process];
        if (t->chunk[i].imported || p->known || v->head.payload_bytes < 24)
            continue;
        int64_t offset = (int64_t)(mr_load_le64(v->payload + 16) - mr_load_le64(v->payload + 8));
        int64_t apart = t->nodes && t->node[0].has_offset ? offset - t->node[0].real_offset : INT64_MAX;
        p->real_offset =
            apart > -(int64_t)MR_NS_PER_S && apart < (int64_t)MR_NS_PER_S ? t->node[0].real_offset : offset;
    }
}

int mr_trace_finish(struct mr_trace *t, struct mr_error *err)
{
    size_t n = 0;
    mr_pfw_resolve(t);
    find_clocks(t);
    share_names(t);
    if (number_again(t, err) < 0)
        return -ENOMEM;
    if (t->chunks)
        qsort(t->chunk, t->chunks, sizeof(*t->chunk), by_place);
    t->first_ns = UINT64_MAX;
    for (size_t i = 0; i < t->chunks; i++) {
        struct mr_trace_chunk c = t->chunk[i];
        const struct mr_trace_chunk *before = n ? &t->chunk[n - 1] : NULL;
        /* The same events written twice: the later block is the longer one, or has what came of an exec. */
        if (before && !c.imported && !before->imported && before->process == c.process && before->tid == c.tid &&
            before->sequence == c.sequence) {
            t->events -= before->count;
            n--;
        }
        if (!c.imported) {
            c.first_ns += (uint64_t)t->process[c.process].real_offset;
            c.last_ns += (uint64_t)t->process[c.process].real_offset;
        }
        if (c.count) {
            t->first_ns = MR_MIN(t->first_ns, c.first_ns);
            t->last_ns = MR_MAX(t->last_ns, c.last_ns);
        }
        t->events += c.count;
        t->chunk[n++] = c;
    }
    t->chunks = n;
    if (t->first_ns == UINT64_MAX)
        t->first_ns = t->last_ns = 0;
    for (size_t i = 0; i < t->processes; i++)
        t->lost += t->process[i].lost;
    return count_gone(t, err);
}

/* ---- reading ---- */

static int event_batch_room(struct mr_event_batch *b, size_t n, struct mr_error *err)
{
    if (n <= b->cap)
        return 0;
    n = MR_MAX(n, (size_t)33024);
    free(b->memory);
    b->cap = 0;
    /* 4 arrays of 8 bytes, 1 of 4, 2 of 2; arguments 8+4+4+1; scratch 16 */
    uint8_t *m = b->memory = aligned_alloc(64, MR_ALIGN_UP(n * (32 + 4 + 4 + 17 + 16) + 4096, 64));
    if (!m)
        return mr_error_set(err, -ENOMEM, "cannot decode events");
    struct mr_columns *c = &b->c;
    c->start_ns = (uint64_t *)m;
    c->end_ns = c->start_ns + n;
    c->offset = c->end_ns + n;
    c->result = (int64_t *)(c->offset + n);
    c->arg_value = (uint64_t *)(c->result + n);
    c->file = (uint32_t *)(c->arg_value + n);
    c->arg_event = c->file + n;
    c->arg_key = c->arg_event + n;
    c->call = (uint16_t *)(c->arg_key + n);
    c->fd = c->call + n;
    c->arg_type = (uint8_t *)(c->fd + n);
    b->cap = n;
    return 0;
}

int mr_trace_read(const struct mr_trace *t, size_t chunk, unsigned want, struct mr_event_batch *b, struct mr_error *err)
{
    const struct mr_trace_chunk *c = &t->chunk[chunk];
    if (t->stop && atomic_load_explicit(t->stop, memory_order_relaxed))
        return mr_error_set(err, MR_E_INTERRUPTED, "stopped in block %zu of %zu", chunk, t->chunks);
    b->count = c->count;
    b->args = c->args;
    b->process = &t->process[c->process];
    b->tid = c->tid;
    if (c->imported) {
        free(b->memory);
        b->memory = NULL;
        b->cap = 0;
        b->c = c->column;
        return 0;
    }
    if (!b->zstd && !(b->zstd = ZSTD_createDCtx()))
        return mr_error_set(err, -ENOMEM, "cannot decode events");
    int rc = event_batch_room(b, MR_MAX(c->count, c->args), err);
    if (rc < 0)
        return rc;
    uint8_t *scratch = (uint8_t *)b->memory + MR_ALIGN_UP(b->cap * 57, 64);
    return mr_mrt_decode(&c->view, want, b->process->real_offset, b->zstd, scratch, &b->c, err);
}

void mr_event_batch_done(struct mr_event_batch *b)
{
    ZSTD_freeDCtx(b->zstd);
    free(b->memory);
    *b = (struct mr_event_batch){0};
}
