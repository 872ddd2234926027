/* See the header. The free slots are a stack: the one that was written last is used next, while it is in the caches.
 *
 * Memory of a ring that is freed goes to the next one of the process: as much as the largest ring of the process had, so
 * that savers that come one after the other touch no new pages. */
#include "checkpoint/state_ring.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/workers.h"
#include "checkpoint/state_cuda.h"
#include "checkpoint/state_image.h"
#include "checkpoint/state_pace.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Slots of rings that are gone: as many as the largest one had. */
static struct {
    pthread_mutex_t lock;
    MR_VEC(uint8_t *) slot;
    size_t largest;
    pid_t pid; /* whose they are: a forked child does not inherit the memory */
} spare = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. */
static void check_process(void)
{
    if (spare.pid != getpid())
        spare.slot.n = spare.largest = 0;
    spare.pid = getpid();
}

/* Keeps a slot, or gives it back to the system. */
static void give_up(uint8_t *slot, size_t ring_slots)
{
    pthread_mutex_lock(&spare.lock);
    check_process();
    spare.largest = MR_MAX(spare.largest, ring_slots);
    uint8_t **kept = spare.slot.n < spare.largest ? MR_VEC_ADD(&spare.slot) : NULL;
    if (kept)
        *kept = slot;
    pthread_mutex_unlock(&spare.lock);
    if (!kept)
        munmap(slot, MR_STATE_CHUNK);
}

static uint8_t *take_spare(void)
{
    pthread_mutex_lock(&spare.lock);
    check_process();
    uint8_t *slot = spare.slot.n ? spare.slot.item[--spare.slot.n] : NULL;
    pthread_mutex_unlock(&spare.lock);
    return slot;
}

void mr_state_ring_init(struct mr_state_ring *r)
{
    *r = (struct mr_state_ring){0};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->given, NULL);
}

void mr_state_ring_done(struct mr_state_ring *r)
{
    for (size_t i = 0; i < r->slot.n; i++) {
        if (i < r->pinned)
            mr_cuda_unpin(r->slot.item[i]);
        give_up(r->slot.item[i], r->slot.n);
    }
    pthread_cond_destroy(&r->given);
    pthread_mutex_destroy(&r->lock);
    free(r->slot.item);
    free(r->free.item);
}

static int touch_slot(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    volatile uint8_t *at = (uint8_t *)ctx->user + index * MR_STATE_CHUNK;
    (void)err;
    for (size_t i = 0; i < MR_STATE_CHUNK; i += 4096)
        at[i] = 0;
    return 0;
}

/* New memory for so many slots, touched; NULL: there is none. */
static uint8_t *map_slots(size_t slots, unsigned threads)
{
    size_t bytes = slots * MR_STATE_CHUNK;
    uint8_t *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    madvise(base, bytes, MADV_HUGEPAGE);
    madvise(base, bytes, MADV_DONTFORK); /* a forked worker must not inherit gigabytes to copy on write */
    mr_workers_run(threads, slots, 1, touch_slot, base, NULL, NULL);
    return base;
}

/* There is room for it. */
static void add_slot(struct mr_state_ring *r, uint8_t *base)
{
    pthread_mutex_lock(&r->lock);
    r->slot.item[r->slot.n++] = base;
    r->free.item[r->free.n++] = base;
    pthread_cond_signal(&r->given);
    pthread_mutex_unlock(&r->lock);
}

int mr_state_ring_grow(struct mr_state_ring *r, size_t slots, unsigned threads, struct mr_error *err)
{
    uint8_t *base = NULL;
    pthread_mutex_lock(&r->lock);
    bool room = MR_VEC_RESERVE(&r->slot, slots) == 0 && MR_VEC_RESERVE(&r->free, slots) == 0;
    pthread_mutex_unlock(&r->lock);
    while (room && r->slot.n < slots && (base = take_spare()))
        add_slot(r, base);
    size_t more = slots - MR_MIN(r->slot.n, slots);
    base = room && more ? map_slots(more, threads) : NULL;
    for (size_t i = more; base && i-- > 0;)
        add_slot(r, base + i * MR_STATE_CHUNK);
    return r->slot.n >= slots ? 0
                              : mr_error_set(err, -ENOMEM, "cannot get %zu MiB for the copy of the state",
                                             (size_t)(more * MR_STATE_CHUNK >> 20));
}

void mr_state_ring_pin(struct mr_state_ring *r)
{
    while (r->pinned < r->slot.n && mr_cuda_pin(r->slot.item[r->pinned], MR_STATE_CHUNK) == 0)
        r->pinned++;
}

uint8_t *mr_state_ring_take(struct mr_state_ring *r, struct mr_pace *pace, uint64_t *waited_ns)
{
    uint64_t start = mr_now_ns();
    pthread_mutex_lock(&r->lock);
    bool waits = !r->free.n;
    if (waits)
        mr_pace_hurry(pace, true);
    while (!r->free.n)
        pthread_cond_wait(&r->given, &r->lock);
    uint8_t *slot = r->free.item[--r->free.n];
    pthread_mutex_unlock(&r->lock);
    if (waits) {
        mr_pace_hurry(pace, false);
        *waited_ns += mr_now_ns() - start;
    }
    return slot;
}

void mr_state_ring_give(struct mr_state_ring *r, uint8_t *slot)
{
    pthread_mutex_lock(&r->lock);
    assert(r->free.n < r->slot.n); /* S3: each slot once */
    r->free.item[r->free.n++] = slot;
    pthread_cond_signal(&r->given);
    pthread_mutex_unlock(&r->lock);
}
