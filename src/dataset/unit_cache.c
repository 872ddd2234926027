/* Decoded units for all threads of a loader: see unit_cache.h.
 *
 * Invariants, under the lock: U1 a unit in a bucket is not dropped; one that is dropped is freed by its last user. U2 a
 * unit with refs > 0 is never freed. U3 data and len change once, while `loading`, and are read without the lock by users
 * who saw it end. U4 bytes is the sum of cap of all units in buckets. U5 memory in the pool belongs to no unit. */
#include "dataset/unit_cache.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#define BUCKETS 1024u
#define POOL 32u /* pieces of memory that wait for the next units: new memory costs a page fault per page */
#define POOL_PIECE (16 * MR_MIB) /* larger ones are freed */

struct mr_unit_cache {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    uint64_t most, bytes, tick;
    struct mr_cached_unit *bucket[BUCKETS];
    bool once;
    unsigned pooled;
    struct mr_unit_memory pool[POOL];
};

struct mr_unit_cache *mr_unit_cache_create(uint64_t bytes, bool once)
{
    struct mr_unit_cache *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->most = bytes;
    c->once = once;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->filled, NULL);
    return c;
}

/* Under the lock (U5). */
static void recycle(struct mr_unit_cache *c, struct mr_unit_memory m)
{
    if (m.data && c->pooled < POOL && m.cap <= POOL_PIECE)
        c->pool[c->pooled++] = m;
    else
        free(m.data);
}

static void unit_free(struct mr_unit_cache *c, struct mr_cached_unit *u)
{
    recycle(c, (struct mr_unit_memory){u->data, u->cap});
    free(u);
}

void mr_unit_cache_free(struct mr_unit_cache *c)
{
    if (!c)
        return;
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct mr_cached_unit *u = c->bucket[i], *next; u; u = next) {
            assert(u->refs == 0);
            next = u->next;
            unit_free(c, u);
        }
    while (c->pooled)
        free(c->pool[--c->pooled].data);
    pthread_cond_destroy(&c->filled);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static struct mr_cached_unit **bucket_of(struct mr_unit_cache *c, uint64_t file, uint64_t key)
{
    return &c->bucket[mr_mix64(key + file * 0x9e3779b97f4a7c15ull) % BUCKETS];
}

/* Out of its bucket (U1, U4); freed, or left to its users. */
static void drop(struct mr_unit_cache *c, struct mr_cached_unit *u)
{
    struct mr_cached_unit **at = bucket_of(c, u->file, u->key);
    while (*at != u)
        at = &(*at)->next;
    *at = u->next;
    c->bytes -= u->cap;
    u->dropped = true;
    if (u->refs == 0)
        unit_free(c, u);
}

/* U2. */
static void make_room(struct mr_unit_cache *c)
{
    while (c->bytes > c->most) {
        struct mr_cached_unit *oldest = NULL;
        for (unsigned i = 0; i < BUCKETS; i++)
            for (struct mr_cached_unit *u = c->bucket[i]; u; u = u->next)
                if (u->refs == 0 && (!oldest || u->used < oldest->used))
                    oldest = u;
        if (!oldest)
            return;
        drop(c, oldest);
    }
}

struct mr_cached_unit *mr_unit_cache_get(struct mr_unit_cache *c, uint64_t file, uint64_t key, bool *mine)
{
    struct mr_cached_unit **bucket = bucket_of(c, file, key);
    pthread_mutex_lock(&c->lock);
    struct mr_cached_unit *u = *bucket;
    while (u && (u->file != file || u->key != key))
        u = u->next;
    *mine = !u;
    if (!u && (u = calloc(1, sizeof(*u)))) {
        *u = (struct mr_cached_unit){.file = file, .key = key, .loading = true, .next = *bucket};
        *bucket = u;
    }
    if (u) {
        u->refs++;
        u->used = ++c->tick;
    }
    while (u && !*mine && u->loading)
        pthread_cond_wait(&c->filled, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return u;
}

struct mr_unit_memory mr_unit_cache_memory(struct mr_unit_cache *c, size_t bytes)
{
    struct mr_unit_memory m = {0};
    unsigned best = POOL;
    pthread_mutex_lock(&c->lock);
    for (unsigned i = 0; i < c->pooled; i++)
        if (c->pool[i].cap >= bytes && (best == POOL || c->pool[i].cap < c->pool[best].cap))
            best = i;
    if (best < POOL && c->pool[best].cap / 8 <= bytes) { /* small units do not keep large pieces */
        m = c->pool[best];
        c->pool[best] = c->pool[--c->pooled];
    }
    pthread_mutex_unlock(&c->lock);
    return m.data ? m : (struct mr_unit_memory){malloc(bytes), bytes};
}

void mr_unit_cache_recycle(struct mr_unit_cache *c, struct mr_unit_memory m)
{
    pthread_mutex_lock(&c->lock);
    recycle(c, m);
    pthread_mutex_unlock(&c->lock);
}

void mr_unit_cache_fill(struct mr_unit_cache *c, struct mr_cached_unit *u, struct mr_unit_memory m, size_t len)
{
    pthread_mutex_lock(&c->lock);
    assert(u->loading && u->refs > 0); /* U3 */
    u->data = m.data;
    u->len = m.data ? len : 0;
    u->cap = m.data ? m.cap : 0;
    u->loading = false;
    c->bytes += u->cap;
    if (!m.data)
        drop(c, u);
    else
        make_room(c);
    pthread_cond_broadcast(&c->filled);
    pthread_mutex_unlock(&c->lock);
}

void mr_unit_cache_put(struct mr_unit_cache *c, struct mr_cached_unit *u, uint64_t served, uint64_t rows)
{
    pthread_mutex_lock(&c->lock);
    assert(u->refs > 0);
    u->served += served;
    bool last = --u->refs == 0 && u->dropped;
    if (last)
        unit_free(c, u);
    else if (c->once && !u->dropped && rows && u->served >= rows)
        drop(c, u);
    pthread_mutex_unlock(&c->lock);
}
