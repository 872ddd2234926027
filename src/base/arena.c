/* Arena: chunks in a list, the newest (with room left) at the head. Chunks come zeroed from calloc and are never
 * reused, so handed-out memory is zero without a memset. A request too large to share a chunk gets one of its own, put
 * behind the head so that the head's room is not lost. */
#include "base/arena.h"
#include "base/common.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)64 << 10)
#define ALIGN ((size_t)16)

struct mr_arena_chunk {
    struct mr_arena_chunk *next;
    size_t used, cap;
    size_t pad; /* keeps data[] 16-byte aligned */
    unsigned char data[];
};

static struct mr_arena_chunk *add_chunk(struct mr_arena *a, size_t bytes)
{
    bool own = bytes > CHUNK_BYTES / 4;
    size_t cap = own ? bytes : CHUNK_BYTES;
    if (cap > SIZE_MAX - sizeof(struct mr_arena_chunk))
        return NULL;
    struct mr_arena_chunk *c = calloc(1, sizeof(*c) + cap);
    if (!c)
        return NULL;
    c->cap = cap;
    if (own && a->head) {
        c->next = a->head->next;
        a->head->next = c;
    } else {
        c->next = a->head;
        a->head = c;
    }
    return c;
}

void *mr_arena_alloc(struct mr_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGN)
        return NULL;
    size_t need = MR_ALIGN_UP(MR_MAX(bytes, (size_t)1), ALIGN);
    struct mr_arena_chunk *c = a->head;
    if (!c || c->cap - c->used < need)
        c = add_chunk(a, need);
    if (!c)
        return NULL;
    void *p = c->data + c->used;
    assert(c->cap - c->used >= need && (uintptr_t)p % ALIGN == 0);
    c->used += need;
    a->used_bytes += need;
    return p;
}

static char *copy_text(struct mr_arena *a, const char *text, size_t len)
{
    char *copy = mr_arena_alloc(a, len + 1);
    if (copy)
        memcpy(copy, text, len);
    return copy;
}

char *mr_arena_strndup(struct mr_arena *a, const char *text, size_t len)
{
    return copy_text(a, text, strnlen(text, len));
}

char *mr_arena_strdup(struct mr_arena *a, const char *text)
{
    return copy_text(a, text, strlen(text));
}

char *mr_arena_printf(struct mr_arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = n < 0 ? NULL : mr_arena_alloc(a, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

void mr_arena_join(struct mr_arena *into, struct mr_arena *from)
{
    struct mr_arena_chunk **end = into->head ? &into->head->next : &into->head, *rest = *end;
    *end = from->head;
    while (*end)
        end = &(*end)->next;
    *end = rest;
    into->used_bytes += from->used_bytes;
    *from = (struct mr_arena){0};
}

void mr_arena_done(struct mr_arena *a)
{
    for (struct mr_arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct mr_arena){0};
}
