/* Option values on arbitrary text: the first byte chooses the type. What parses must print, and read back the same. */
#include "conf/option.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

union field {
    bool b;
    int64_t i;
    double d;
    uint64_t u;
    const char *s;
    int e;
    struct mr_dims dims;
    struct mr_dist dist;
    struct mr_strings strings;
    struct mr_uints uints;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const choices[] = {"red", "green", NULL};
    if (size < 1 || size > 2000)
        return 0;
    struct mr_option row = {.key = "k",
                            .type = (enum mr_opt_type)(data[0] % (MR_OPT_UINTS + 1)),
                            .def = "",
                            .choices = choices,
                            .flags = data[0] & 64 ? MR_OPTF_SIZE : 0};
    const struct mr_option_table table = {.section = "t", .options = &row, .struct_bytes = sizeof(union field)};
    struct mr_arena a = {0};
    struct mr_error err;
    union field first, second;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    char *text = mr_arena_strndup(&a, (const char *)data + 1, strnlen((const char *)data + 1, size - 1));
    static char one[65536], two[65536];
    if (text && mr_option_parse(&table, &row, text, &a, &first, &err) == 0) {
        int n = mr_option_print(&row, &first, one, sizeof one);
        if (n < 0 || n >= (int)sizeof one || mr_option_parse(&table, &row, one, &a, &second, &err) != 0)
            abort();
        mr_option_print(&row, &second, two, sizeof two);
        if (strcmp(one, two) != 0)
            abort();
    }
    mr_arena_done(&a);
    return 0;
}
