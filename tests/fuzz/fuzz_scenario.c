/* The scenario and system readers on arbitrary bytes: YAML, tables, rate curves, checks. A scenario that is accepted
 * must pass its own check again. */
#include "sim/scenario_yaml.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_arena a = {0};
    struct mr_strings none = {0};
    struct mr_scenario s;
    struct mr_error err;
    if (mr_scenario_parse((const char *)data, size, "fuzz.yaml", &none, NULL, &a, &s, &err) == 0 &&
        mr_scenario_check(&s, &err))
        abort();
    mr_arena_done(&a);
    return 0;
}
