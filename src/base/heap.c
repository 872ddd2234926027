/* Priority queue: see heap.h. Invariant 1: no entry has a key below that of its parent, (i - 1) / 2. */
#include "base/heap.h"

#include "base/vec.h"

#include <assert.h>
#include <stdlib.h>

int mr_heap_push(struct mr_heap *h, double key, uint64_t value)
{
    assert(key == key); /* invariant 1 needs keys that compare */
    int rc = MR_VEC_RESERVE(h, h->n + 1);
    if (rc)
        return rc;
    size_t i = h->n++;
    for (; i > 0 && h->item[(i - 1) / 2].key > key; i = (i - 1) / 2)
        h->item[i] = h->item[(i - 1) / 2];
    h->item[i] = (struct mr_heap_item){key, value};
    return 0;
}

struct mr_heap_item mr_heap_pop(struct mr_heap *h)
{
    assert(h->n > 0);
    struct mr_heap_item top = h->item[0], last = h->item[--h->n];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < h->n; i = c) {
        if (c + 1 < h->n && h->item[c + 1].key < h->item[c].key)
            c++;
        if (h->item[c].key >= last.key)
            break;
        h->item[i] = h->item[c];
    }
    h->item[i] = last;
    assert(h->n == 0 || h->item[0].key >= top.key); /* invariant 1 */
    return top;
}

void mr_heap_done(struct mr_heap *h)
{
    free(h->item);
    *h = (struct mr_heap){0};
}
