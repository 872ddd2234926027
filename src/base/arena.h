/* Arena: memory for everything that lives as long as one plan. Bump allocation from chunks; freed all at once. Not
 * thread-safe. Pointers stay valid until mr_arena_done. */
#ifndef MR_BASE_ARENA_H
#define MR_BASE_ARENA_H

#include <stddef.h>

struct mr_arena_chunk;
struct mr_arena {
    struct mr_arena_chunk *head;
    size_t used_bytes; /* handed out, without chunk slack */
};

/* A zero-initialised arena is ready for use. Returns NULL only when memory is exhausted. Zeroed, 16-byte aligned. */
void *mr_arena_alloc(struct mr_arena *a, size_t bytes);
char *mr_arena_strdup(struct mr_arena *a, const char *text);
char *mr_arena_strndup(struct mr_arena *a, const char *text, size_t len);
char *mr_arena_printf(struct mr_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Hands everything over to another arena, and leaves none. */
void mr_arena_join(struct mr_arena *into, struct mr_arena *from);
void mr_arena_done(struct mr_arena *a);

#endif
