/* Growing arrays: see vec.h. */
#include "base/vec.h"

#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 256 /* what a first item costs: a small list does not grow five times */

int mr_vec_reserve(void *array, size_t *cap, size_t need, size_t each)
{
    void *old, *grown;
    assert(each > 0);
    if (need <= *cap)
        return 0;
    size_t more = MR_MAX(need, MR_MAX(*cap * 2, FIRST_BYTES / each));
    if (*cap > SIZE_MAX / 4 || more > PTRDIFF_MAX / each)
        return -ENOMEM;
    memcpy(&old, array, sizeof old); /* whatever it points to: every object pointer has the form of a void pointer */
    grown = realloc(old, more * each);
    if (!grown)
        return -ENOMEM;
    memcpy(array, &grown, sizeof grown);
    *cap = more;
    return 0;
}
