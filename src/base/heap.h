/* Priority queue: a binary heap of (key, value), the least key on top. For the largest first, push the negated key.
 *
 *     struct mr_heap due = {0};
 *     mr_heap_push(&due, when_s, thread);
 *     while (due.n && due.item[0].key <= now_s)
 *         wake((uint32_t)mr_heap_pop(&due).value);
 *     mr_heap_done(&due);
 *
 * Keys are doubles: exact for whole numbers up to 2^53, which the steps, access numbers and indices of this program
 * stay below. A key that is not a number breaks the order and is refused by an assert.
 *
 * Cost: push and pop O(log n), 16 bytes per entry. Entries cannot be changed or removed from the middle: push the new
 * key and skip the old entry when it comes up. Among equal keys the order depends only on the order of the calls, so
 * equal runs of a simulation stay equal.
 *
 * Not thread-safe. */
#ifndef MR_BASE_HEAP_H
#define MR_BASE_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct mr_heap_item {
    double key;
    uint64_t value;
};

/* A zero-initialised heap is empty and ready for use. item[0] is the top while n > 0; the others are in heap order. */
struct mr_heap {
    struct mr_heap_item *item;
    size_t n, cap;
};

/* 0, or -ENOMEM with the heap as it was. */
int mr_heap_push(struct mr_heap *h, double key, uint64_t value);
/* Takes the top away. The heap must not be empty. */
struct mr_heap_item mr_heap_pop(struct mr_heap *h);
/* Frees the memory. The heap is empty and ready again. */
void mr_heap_done(struct mr_heap *h);

#endif
