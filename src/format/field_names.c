/* Roles by names, shapes of several values: see field_names.h. */
#include "format/field_names.h"
#include "base/common.h"

#include <string.h>

enum mr_field_role mr_field_role_of_name(const char *name)
{
    static const char *const targets[] = {"label", "labels", "y", "target", "targets", "mask", "masks"};
    const char *leaf = strrchr(name, '/');
    leaf = leaf ? leaf + 1 : name;
    for (size_t i = 0; i < MR_ARRAY_LEN(targets); i++)
        if (strcmp(leaf, targets[i]) == 0)
            return MR_FIELD_TARGET;
    return strstr(leaf, "weight") ? MR_FIELD_WEIGHT : MR_FIELD_INPUT;
}

void mr_field_widen(struct mr_field *all, const struct mr_field *f)
{
    int axis = all->variable;
    unsigned differ = 0;
    if (all->variable == MR_FIELD_ANY_SHAPE)
        return;
    bool any = f->variable == MR_FIELD_ANY_SHAPE || f->dims.n != all->dims.n;
    for (unsigned d = 0; !any && d < all->dims.n; d++)
        if ((int)d != all->variable && ((int)d == f->variable || f->dims.dim[d] != all->dims.dim[d])) {
            axis = (int)d;
            differ++;
        }
    if (any || differ + (all->variable >= 0) > 1) {
        all->variable = MR_FIELD_ANY_SHAPE;
        all->dims = (struct mr_dims){0};
    } else if (differ) {
        all->variable = axis;
        all->dims.dim[axis] = 0;
    }
}
