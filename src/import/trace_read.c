/* A trace in memory: processes with their names, nodes, chunks; and decoding the events of a chunk. Files are loaded in
 * trace_files.c, own ones in trace_mrt.c; trace_finish.c brings what they said into order. */
#include "import/trace_internal.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <zstd.h>

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
    mr_darshan_free(t->darshan);
    mr_arena_done(&t->arena);
    free(t->note);
    free(t->process);
    free(t->chunk);
    free(t->node);
    mr_map_done(&t->process_of);
    free(t);
}

static int no_memory(struct mr_error *err)
{
    return mr_error_set(err, -ENOMEM, "cannot load the trace");
}

int mr_trace_keep_memory(struct mr_trace *t, void *data, size_t len, bool mapped, struct mr_error *err)
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
    return mr_trace_keep_memory(t, data, 0, false, err);
}

struct mr_trace_process *mr_trace_find_process(struct mr_trace *t, uint64_t key)
{
    uint64_t at = mr_map_get(&t->process_of, key);
    return at ? &t->process[at - 1] : NULL;
}

int mr_trace_process_get(struct mr_trace *t, uint64_t key, uint32_t *index, struct mr_error *err)
{
    uint64_t *at = mr_map_put(&t->process_of, key);
    if (!at || mr_vec_reserve(&t->process, &t->process_cap, t->processes + 1, sizeof(*t->process)) < 0)
        return no_memory(err);
    if (!*at) {
        struct mr_trace_process *p = &t->process[t->processes];
        memset(p, 0, sizeof(*p));
        p->key = key;
        p->rank = p->world = p->local_rank = p->local_world = -1;
        *at = ++t->processes;
    }
    assert(*at <= t->processes && t->process[*at - 1].key == key);
    *index = (uint32_t)(*at - 1);
    return 0;
}

int mr_trace_string_set(struct mr_trace *t, struct mr_trace_process *p, uint32_t id, uint8_t kind, const char *text,
                        uint32_t len, struct mr_error *err)
{
    (void)t;
    if (!id || id > MR_TRACE_STRING_MAX || p->borrowed)
        return mr_error_plain(err, MR_E_CORRUPT, "bad string id %u", id);
    size_t had = p->string_cap;
    if (mr_vec_reserve(&p->string, &p->string_cap, (size_t)id + 1, sizeof(*p->string)) < 0)
        return mr_error_set(err, -ENOMEM, "cannot load names");
    memset(p->string + had, 0, (p->string_cap - had) * sizeof(*p->string));
    assert(id < p->string_cap && !p->borrowed);
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
    if (mr_vec_reserve(&t->node, &t->node_cap, t->nodes + 1, sizeof(*t->node)) < 0)
        return no_memory(err);
    memset(&t->node[t->nodes], 0, sizeof(*t->node));
    memcpy(t->node[t->nodes].name, name, len);
    *index = (uint32_t)t->nodes++;
    return 0;
}

int mr_trace_chunk_add(struct mr_trace *t, struct mr_trace_chunk **out, struct mr_error *err)
{
    if (mr_vec_reserve(&t->chunk, &t->chunk_cap, t->chunks + 1, sizeof(*t->chunk)) < 0)
        return no_memory(err);
    *out = &t->chunk[t->chunks++];
    memset(*out, 0, sizeof(**out));
    return 0;
}

int mr_trace_note(struct mr_trace *t, bool serious, struct mr_error *err, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (size_t i = 0; i < t->notes; i++)
        if (!strcmp(t->note[i].text, text))
            return 0;
    char *copy = mr_arena_strdup(&t->arena, text);
    if (!copy || mr_vec_reserve(&t->note, &t->note_cap, t->notes + 1, sizeof(*t->note)) < 0)
        return no_memory(err);
    t->note[t->notes++] = (struct mr_trace_note){copy, serious};
    return 0;
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

/* A trace may be larger than memory: what was decoded need not stay. The page cache still has it for the next pass. */
static void drop_pages(const struct mr_trace_chunk *c)
{
    const uintptr_t page = 4096, from = (uintptr_t)c->view.payload, to = from + c->view.head.payload_bytes;
    uintptr_t first = (from + page - 1) / page * page, last = to / page * page;
    if (c->mapped && last > first)
        (void)madvise((void *)first, last - first, MADV_DONTNEED);
}

int mr_trace_read(const struct mr_trace *t, size_t chunk, unsigned want, struct mr_event_batch *b, struct mr_error *err)
{
    assert(chunk < t->chunks);
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
    rc = mr_mrt_decode(&c->view, want, b->process->real_offset, b->zstd, scratch, &b->c, err);
    drop_pages(c);
    return rc;
}

void mr_event_batch_done(struct mr_event_batch *b)
{
    ZSTD_freeDCtx(b->zstd);
    free(b->memory);
    *b = (struct mr_event_batch){0};
}
