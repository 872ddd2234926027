/* Roles by names: see field_names.h. */
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
