/* What the tests and the benchmark of the wire share: samples whose bytes follow from their id, and waiting for ends.
 */
#ifndef MR_TEST_WIRE_TESTLIB_H
#define MR_TEST_WIRE_TESTLIB_H

#include "wire/wire.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WIRE_ID_SIZE(id) ((size_t)((id)&0xffffffff)) /* an id is number << 32 | size */

static inline uint8_t wire_byte(uint64_t id, size_t i)
{
    return (uint8_t)((id >> 32) * 131 + i * 7 + (i >> 8) * 13);
}

static inline void wire_fill(uint8_t *to, uint64_t id)
{
    for (size_t i = 0; i < WIRE_ID_SIZE(id); i++)
        to[i] = wire_byte(id, i);
}

static inline bool wire_right(const uint8_t *bytes, size_t len, uint64_t id)
{
    if (len != WIRE_ID_SIZE(id))
        return false;
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != wire_byte(id, i))
            return false;
    return true;
}

/* Serves every id by making its bytes; ids with the top bits set are answered "not yet" and "no". */
#define WIRE_ID_LATER ((uint64_t)1 << 63)
#define WIRE_ID_NOT ((uint64_t)1 << 62)
struct wire_source {
    _Atomic uint64_t pinned, released;
};
static inline enum mr_wire_answer wire_source_serve(void *ctx, uint32_t peer, uint64_t id, uint64_t deadline_ns,
                                                    struct mr_wire_bytes *out)
{
    struct wire_source *s = ctx;
    (void)peer;
    (void)deadline_ns;
    if (id & WIRE_ID_LATER)
        return MR_WIRE_HAVE_LATER;
    if (id & WIRE_ID_NOT)
        return MR_WIRE_HAVE_NOT;
    uint8_t *bytes = malloc(WIRE_ID_SIZE(id) + 1);
    wire_fill(bytes, id);
    *out = (struct mr_wire_bytes){.data = bytes, .len = WIRE_ID_SIZE(id), .pin = bytes};
    s->pinned++;
    return MR_WIRE_HAVE;
}
static inline void wire_source_release(void *ctx, void *pin)
{
    struct wire_source *s = ctx;
    s->released++;
    free(pin);
}

/* One request and how it ended; ask_wait waits for it. */
struct wire_ask {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned pending;
};
struct wire_one {
    struct wire_ask *group;
    uint64_t id;
    uint8_t *bytes;
    size_t len;
    unsigned ends; /* must be 1 */
    enum mr_wire_status status;
};
static inline void wire_one_done(void *ctx, enum mr_wire_status status, size_t len)
{
    struct wire_one *o = ctx;
    pthread_mutex_lock(&o->group->lock);
    o->status = status;
    o->len = len;
    o->ends++;
    o->group->pending--;
    pthread_cond_signal(&o->group->ended);
    pthread_mutex_unlock(&o->group->lock);
}
static inline int wire_one_start(struct mr_wire *w, uint32_t peer, struct wire_one *o, size_t cap, uint64_t deadline_ns)
{
    pthread_mutex_lock(&o->group->lock);
    o->group->pending++;
    pthread_mutex_unlock(&o->group->lock);
    int rc = mr_wire_request(w, peer, o->id, o->bytes, cap, deadline_ns, wire_one_done, o);
    if (rc) {
        pthread_mutex_lock(&o->group->lock);
        o->group->pending--;
        pthread_mutex_unlock(&o->group->lock);
    }
    return rc;
}
static inline void wire_ask_wait(struct wire_ask *g, unsigned at_most)
{
    pthread_mutex_lock(&g->lock);
    while (g->pending > at_most)
        pthread_cond_wait(&g->ended, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

#endif
