/* See the header. The free slots are a stack: the one that was written last is used next, while it is in the caches.
 *
 * Memory of a ring that is freed goes to the next one of the process: as much as the largest ring of the process had, so
 * that savers that come one after the other touch no new pages. */
#include "checkpoint/state_ring.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/vec.h"
#include "base/workers.h"
#include "checkpoint/state_cuda.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct block {
    uint8_t *base;
    size_t bytes;
    bool pinned;
};

static struct {
    pthread_mutex_t lock;
    MR_VEC(struct block) block;
    size_t bytes, largest; /* in it; of any ring so far */
    pid_t pid;             /* whose it is: a forked child does not inherit the memory */
} spare = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. */
static void check_process(void)
{
    if (spare.pid == getpid())
        return;
    spare.block.n = 0;
    spare.bytes = spare.largest = 0;
    spare.pid = getpid();
}

/* Keeps a block, or gives it back to the system. */
static void give_up(struct block b, size_t ring_bytes)
{
    pthread_mutex_lock(&spare.lock);
    check_process();
    spare.largest = MR_MAX(spare.largest, ring_bytes);
    struct block *kept = spare.bytes + b.bytes <= spare.largest ? MR_VEC_ADD(&spare.block) : NULL;
    if (kept) {
        *kept = b;
        spare.bytes += b.bytes;
    }
    pthread_mutex_unlock(&spare.lock);
    if (!kept)
        munmap(b.base, b.bytes);
}

/* A block of at most so many bytes, as many of them as there are; false: none. */
static bool take_spare(size_t bytes, size_t slot_bytes, struct block *out)
{
    pthread_mutex_lock(&spare.lock);
    check_process();
    struct block *best = NULL;
    for (size_t i = 0; i < spare.block.n; i++)
        if (spare.block.item[i].bytes >= slot_bytes && (!best || spare.block.item[i].bytes > best->bytes))
            best = &spare.block.item[i];
    if (best) {
        size_t n = MR_MIN(bytes, best->bytes) / slot_bytes * slot_bytes;
        *out = (struct block){best->base, n, false};
        best->base += n;
        best->bytes -= n;
        spare.bytes -= n;
        if (!best->bytes)
            *best = spare.block.item[--spare.block.n];
    }
    pthread_mutex_unlock(&spare.lock);
    return best != NULL;
}

struct mr_state_ring {
    size_t slot_bytes, slots;
    MR_VEC(struct block) block;
    pthread_mutex_t lock;
    pthread_cond_t given; /* a slot is free */
    uint8_t **free;       /* stack; room for all slots; under lock */
    size_t n_free;
};

int mr_state_ring_create(size_t slot_bytes, struct mr_state_ring **out, struct mr_error *err)
{
    struct mr_state_ring *r = calloc(1, sizeof(*r));
    if (!r)
        return mr_error_set(err, -ENOMEM, "cannot make a ring");
    r->slot_bytes = slot_bytes;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->given, NULL);
    *out = r;
    return 0;
}

void mr_state_ring_free(struct mr_state_ring *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->block.n; i++) {
        if (r->block.item[i].pinned)
            mr_cuda_unpin(r->block.item[i].base);
        give_up(r->block.item[i], r->slots * r->slot_bytes);
    }
    pthread_cond_destroy(&r->given);
    pthread_mutex_destroy(&r->lock);
    free(r->block.item);
    free(r->free);
    free(r);
}

size_t mr_state_ring_slots(const struct mr_state_ring *r)
{
    return r->slots;
}

struct touching {
    uint8_t *base;
    size_t slot_bytes;
};

static int touch_slot(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct touching *t = ctx->user;
    (void)err;
    volatile uint8_t *at = t->base + index * t->slot_bytes;
    for (size_t i = 0; i < t->slot_bytes; i += 4096)
        at[i] = 0;
    return 0;
}

/* New memory, touched. */
static int map_block(size_t bytes, size_t slot_bytes, unsigned threads, struct block *out)
{
    uint8_t *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return -ENOMEM;
    *out = (struct block){base, bytes, false};
    madvise(base, bytes, MADV_HUGEPAGE);
    madvise(base, bytes, MADV_DONTFORK); /* a forked worker must not inherit gigabytes to copy on write */
    mr_workers_run(threads, bytes / slot_bytes, 1, touch_slot, &(struct touching){base, slot_bytes}, NULL, NULL);
    return 0;
}

static int add_block(struct mr_state_ring *r, const struct block *what)
{
    size_t more = what->bytes / r->slot_bytes;
    uint8_t **bigger = malloc((r->slots + more) * sizeof(*bigger));
    struct block *b = bigger ? MR_VEC_ADD(&r->block) : NULL;
    if (!b) {
        free(bigger);
        return -ENOMEM;
    }
    *b = *what;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->n_free; i++)
        bigger[i] = r->free[i];
    for (size_t i = 0; i < more; i++)
        bigger[r->n_free++] = b->base + (more - 1 - i) * r->slot_bytes;
    free(r->free);
    r->free = bigger;
    r->slots += more;
    pthread_cond_broadcast(&r->given);
    pthread_mutex_unlock(&r->lock);
    return 0;
}

int mr_state_ring_grow(struct mr_state_ring *r, size_t slots, unsigned threads, struct mr_error *err)
{
    int rc = 0;
    while (r->slots < slots && !rc) {
        size_t bytes = (slots - r->slots) * r->slot_bytes;
        struct block b = {0};
        if (!take_spare(bytes, r->slot_bytes, &b))
            rc = map_block(bytes, r->slot_bytes, threads, &b);
        if (!rc && (rc = add_block(r, &b)))
            give_up(b, 0);
        if (rc)
            mr_error_set(err, rc, "cannot get %zu MiB for the copy of the state", bytes >> 20);
    }
    return rc;
}

void mr_state_ring_pin(struct mr_state_ring *r)
{
    for (size_t i = 0; i < r->block.n; i++)
        if (!r->block.item[i].pinned)
            r->block.item[i].pinned = mr_cuda_pin(r->block.item[i].base, r->block.item[i].bytes) == 0;
}

uint8_t *mr_state_ring_try(struct mr_state_ring *r)
{
    pthread_mutex_lock(&r->lock);
    uint8_t *slot = r->n_free ? r->free[--r->n_free] : NULL;
    pthread_mutex_unlock(&r->lock);
    return slot;
}

uint8_t *mr_state_ring_take(struct mr_state_ring *r, uint64_t *waited_ns)
{
    pthread_mutex_lock(&r->lock);
    if (!r->n_free) {
        uint64_t start = mr_now_ns();
        while (!r->n_free)
            pthread_cond_wait(&r->given, &r->lock);
        *waited_ns += mr_now_ns() - start;
    }
    uint8_t *slot = r->free[--r->n_free];
    pthread_mutex_unlock(&r->lock);
    return slot;
}

void mr_state_ring_give(struct mr_state_ring *r, uint8_t *slot)
{
    pthread_mutex_lock(&r->lock);
    assert(r->n_free < r->slots); /* S3: each slot once */
    r->free[r->n_free++] = slot;
    pthread_cond_signal(&r->given);
    pthread_mutex_unlock(&r->lock);
}
