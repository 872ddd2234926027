/* The budgeted buffer pool.
 *
 *   take ──> idle buffer of the same or a slightly larger class? ──yes──> hand out
 *              │ no
 *              ├─ owned + capacity <= budget ──> reserve, map and fault in outside the lock, hand out
 *              ├─ in use + capacity <= budget ──> unmap idle buffers until it fits, then as above
 *              └─ else wait for a give (take) or fail (try_take)
 *
 * Capacities are rounded up to four classes per power of two (at most 25 % over), so that similar requests reuse each
 * other's buffers; near the budget the rounding is dropped rather than the request refused.
 *
 * Invariants (numbers 1-3 are in the header):
 *   4. owned_bytes counts a buffer from before it is mapped until after it is unmapped, so memory never runs ahead of
 *      the account.
 *   5. All fields of the pool and of its descriptors are guarded by `lock`; buffer contents belong to the user.
 *
 * Waiters are not served in order: a thread that already holds a buffer and wants a small one may pass one that waits
 * for a large one. In order, the two could block each other for ever. */
#include "base/bufpool.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE ((size_t)4096)
#define HUGE_FROM ((size_t)4 << 20)
#define HASH_LEN 256u

struct buffer {
    void *addr;
    size_t cap;
    bool idle;
    struct buffer *next_hash, *next_idle;
};

struct mr_bufpool {
    pthread_mutex_t lock;
    pthread_cond_t given;
    uint64_t budget, owned, in_use, high_water, waits;
    bool stopped;
    struct buffer *hash[HASH_LEN]; /* every buffer, by address */
    struct buffer *idle;           /* most recently given first: its pages are the warmest */
};

static unsigned hash_of(const void *addr)
{
    return (unsigned)(((uintptr_t)addr >> 12) * 0x9e3779b97f4a7c15ull >> 56);
}

/* Rounds up to the next of 4 steps per power of two, at least one page. */
static size_t class_bytes(size_t bytes)
{
    if (bytes <= 4 * PAGE)
        return MR_ALIGN_UP(MR_MAX(bytes, (size_t)1), PAGE);
    size_t step = ((size_t)1 << (63 - __builtin_clzll(bytes - 1))) / 4;
    return MR_ALIGN_UP(bytes, step);
}

static void *map_faulted(size_t cap)
{
    void *addr = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (addr == MAP_FAILED)
        return NULL;
    if (cap >= HUGE_FROM)
        madvise(addr, cap, MADV_HUGEPAGE); /* a wish; without it only more faults now */
#ifdef MADV_POPULATE_WRITE
    if (madvise(addr, cap, MADV_POPULATE_WRITE) == 0)
        return addr;
#endif
    for (size_t at = 0; at < cap; at += PAGE) /* kernels before 5.14 */
        ((volatile char *)addr)[at] = 0;
    return addr;
}

int mr_bufpool_create(uint64_t budget_bytes, struct mr_bufpool **out, struct mr_error *err)
{
    if (budget_bytes < PAGE)
        return mr_error_plain(err, MR_E_USAGE, "buffer budget of %llu bytes is less than one page (%zu bytes)",
                              (unsigned long long)budget_bytes, PAGE);
    struct mr_bufpool *p = calloc(1, sizeof(*p));
    if (!p)
        return mr_error_set(err, -ENOMEM, "cannot create a buffer pool");
    p->budget = budget_bytes / PAGE * PAGE;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->given, NULL);
    *out = p;
    return 0;
}

static void remove_from_hash(struct mr_bufpool *p, struct buffer *b)
{
    struct buffer **at = &p->hash[hash_of(b->addr)];
    while (*at != b)
        at = &(*at)->next_hash;
    *at = b->next_hash;
}

/* Invariant 4: unmap first, then the account. */
static void drop_idle(struct mr_bufpool *p, struct buffer **at)
{
    struct buffer *b = *at;
    *at = b->next_idle; /* NOLINT(clang-analyzer-core.NullDereference): callers know that *at is one */
    remove_from_hash(p, b);
    munmap(b->addr, b->cap);
    p->owned -= b->cap;
    free(b);
}

void mr_bufpool_free(struct mr_bufpool *p)
{
    if (!p)
        return;
    while (p->idle)
        drop_idle(p, &p->idle);
    assert(p->owned == 0 && "a buffer was not given back");
    pthread_cond_destroy(&p->given);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static void count_use(struct mr_bufpool *p, size_t cap)
{
    p->in_use += cap;
    p->high_water = MR_MAX(p->high_water, p->in_use);
    assert(p->in_use <= p->owned && p->owned <= p->budget); /* invariant 1 */
}

static void *reuse_idle(struct mr_bufpool *p, size_t cap)
{
    for (struct buffer **at = &p->idle; *at; at = &(*at)->next_idle) {
        struct buffer *b = *at;
        if (b->cap < cap || b->cap / 2 > cap)
            continue;
        *at = b->next_idle;
        b->idle = false;
        count_use(p, b->cap);
        return b->addr;
    }
    return NULL;
}

/* Called with the lock held and `cap` bytes reserved in owned and in_use; drops the lock while faulting pages in. */
static void *map_reserved(struct mr_bufpool *p, size_t cap)
{
    pthread_mutex_unlock(&p->lock);
    struct buffer *b = calloc(1, sizeof(*b));
    void *addr = b ? map_faulted(cap) : NULL;
    pthread_mutex_lock(&p->lock);
    if (!addr) {
        free(b);
        p->in_use -= cap;
        p->owned -= cap;
        pthread_cond_broadcast(&p->given);
        return NULL;
    }
    *b = (struct buffer){.addr = addr, .cap = cap, .next_hash = p->hash[hash_of(addr)]};
    p->hash[hash_of(addr)] = b;
    return addr;
}

static void *take(struct mr_bufpool *p, size_t bytes, bool may_wait)
{
    if (bytes > p->budget)
        return NULL;
    size_t exact = MR_ALIGN_UP(MR_MAX(bytes, (size_t)1), PAGE), cap = class_bytes(bytes);
    if (cap > p->budget)
        cap = exact;
    pthread_mutex_lock(&p->lock);
    void *addr = NULL;
    while (!p->stopped) {
        addr = reuse_idle(p, exact);
        if (addr)
            break;
        if (p->in_use + exact <= p->budget) {
            if (p->in_use + cap > p->budget)
                cap = exact;
            while (p->owned + cap > p->budget)
                drop_idle(p, &p->idle);
            p->owned += cap;
            count_use(p, cap);
            addr = map_reserved(p, cap);
            break;
        }
        if (!may_wait)
            break;
        p->waits++;
        pthread_cond_wait(&p->given, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return addr;
}

void *mr_bufpool_take(struct mr_bufpool *p, size_t bytes)
{
    return take(p, bytes, true);
}

void *mr_bufpool_try_take(struct mr_bufpool *p, size_t bytes)
{
    return take(p, bytes, false);
}

void mr_bufpool_give(struct mr_bufpool *p, void *buf)
{
    if (!buf)
        return;
    pthread_mutex_lock(&p->lock);
    struct buffer *b = p->hash[hash_of(buf)];
    while (b && b->addr != buf)
        b = b->next_hash;
    assert(b && !b->idle && "not a buffer of this pool, or given back twice"); /* invariant 2 */
    if (b && !b->idle) {
        b->idle = true;
        b->next_idle = p->idle;
        p->idle = b;
        p->in_use -= b->cap;
        pthread_cond_broadcast(&p->given);
    }
    pthread_mutex_unlock(&p->lock);
}

void mr_bufpool_stop(struct mr_bufpool *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    pthread_cond_broadcast(&p->given);
    pthread_mutex_unlock(&p->lock);
}

void mr_bufpool_get_stats(struct mr_bufpool *p, struct mr_bufpool_stats *out)
{
    pthread_mutex_lock(&p->lock);
    *out = (struct mr_bufpool_stats){
        .budget_bytes = p->budget, .in_use_bytes = p->in_use, .high_water_bytes = p->high_water, .waits = p->waits};
    pthread_mutex_unlock(&p->lock);
}
