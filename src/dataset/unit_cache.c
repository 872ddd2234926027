/* Decoded units for all threads of a loader: see unit_cache.h.
 *
 * Invariants, under the lock: U1 a unit in a bucket is not dropped; one that is dropped is freed by its last user. U2 a
 * unit with refs > 0 is never freed. U3 data and len change once, while `loading`, and are read without the lock by users
 * who saw it end. U4 bytes is the sum of len of all units in buckets. */
#include "dataset/unit_cache.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#define BUCKETS 1024u

struct mr_unit_cache {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    uint64_t most, bytes, tick;
    struct mr_cached_unit *bucket[BUCKETS];
};

struct mr_unit_cache *mr_unit_cache_create(uint64_t bytes)
{
    struct mr_unit_cache *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->most = bytes;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->filled, NULL);
    return c;
}

static void unit_free(struct mr_cached_unit *u)
{
    free(u->data);
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
            unit_free(u);
        }
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
    c->bytes -= u->len;
    u->dropped = true;
    if (u->refs == 0)
        unit_free(u);
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

void mr_unit_cache_fill(struct mr_unit_cache *c, struct mr_cached_unit *u, void *data, size_t len)
{
    pthread_mutex_lock(&c->lock);
    assert(u->loading && u->refs > 0); /* U3 */
    u->data = data;
    u->len = data ? len : 0;
    u->loading = false;
    c->bytes += u->len;
    if (!data)
        drop(c, u);
    else
        make_room(c);
    pthread_cond_broadcast(&c->filled);
    pthread_mutex_unlock(&c->lock);
}

void mr_unit_cache_put(struct mr_unit_cache *c, struct mr_cached_unit *u)
{
    pthread_mutex_lock(&c->lock);
    assert(u->refs > 0);
    bool last = --u->refs == 0 && u->dropped;
    pthread_mutex_unlock(&c->lock);
    if (last)
        unit_free(u);
}
