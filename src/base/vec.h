/* Growing array: a pointer, a length and a capacity in any struct, and the one piece of code that makes it longer.
 *
 *     struct list { MR_VEC(struct row) rows; ... } l = {0};
 *     struct row *r = MR_VEC_ADD(&l.rows);
 *     if (!r)
 *         return mr_error_set(err, -ENOMEM, "cannot list the rows");
 *     *r = (struct row){...};
 *     for (size_t i = 0; i < l.rows.n; i++)
 *         use(&l.rows.item[i]);
 *     free(l.rows.item);
 *
 * A zero-initialised one is empty and ready. The capacity at least doubles each time, so that adding n items one by one
 * costs O(n) and at most half of the memory is idle. Adding may move the items: pointers to them are valid until the
 * next one is added; an index stays valid.
 *
 * When memory is short nothing changes: the old items stay where they are and remain the owner's to free.
 *
 * Not thread-safe. The memory is from malloc, so that an owner may hand `item` over to others, who call free. */
#ifndef MR_BASE_VEC_H
#define MR_BASE_VEC_H

#include <stddef.h>

/* The three members, as a type without a name. A named struct with members item, n and cap (both size_t) works too. */
#define MR_VEC(type)                                                                                                   \
    struct {                                                                                                           \
        type *item;                                                                                                    \
        size_t n, cap;                                                                                                 \
    }

/* Makes room for `need` items in all; 0 or -ENOMEM. `v` is evaluated several times. */
#define MR_VEC_RESERVE(v, need) mr_vec_reserve(&(v)->item, &(v)->cap, (need), sizeof(*(v)->item))

/* One more item: a pointer to it, not initialised; NULL without memory. `v` is evaluated several times. */
#define MR_VEC_ADD(v)                                                                                                  \
    ((v)->n < (v)->cap || MR_VEC_RESERVE((v), (v)->n + 1) == 0 ? &(v)->item[(v)->n++] : (__typeof__((v)->item))0)

/* For arrays whose pointer and capacity lie elsewhere. `array` is the address of the pointer. Makes room for at least
 * `need` items of `each` bytes. Returns 0, or -ENOMEM with everything as it was (also where need * each is no size). */
int mr_vec_reserve(void *array, size_t *cap, size_t need, size_t each);

#endif
