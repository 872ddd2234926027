/* The workload loader on arbitrary bytes: YAML, tables, traps, plan, JSON. The first byte chooses lenient or strict. */
#include "conf/plan.h"
#include "conf/workload.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_arena a = {0};
    struct mr_workload *w;
    struct mr_workload_plan plan;
    struct mr_error err;
    bool lenient = size && data[0] == '#';
    if (mr_workload_parse((const char *)data, size, "fuzz.yaml", lenient, &a, &w, &err) == 0) {
        mr_plan_make(w, 3, &plan, &err);
        mr_workload_check_supported(w, &err);
        if (size % 8 == 0) { /* hundreds of small allocations; not for every input */
            json_t *j = mr_workload_to_json(w);
            if (!j)
                abort(); /* valid YAML is UTF-8, so every value has a JSON form */
            json_decref(j);
        }
    }
    mr_arena_done(&a);
    return 0;
}
