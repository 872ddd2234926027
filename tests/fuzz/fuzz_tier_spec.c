/* The text form of tiers: any bytes give a specification that fits the machine, or an error, never a crash. */
#include "base/common.h"
#include "tier/tier_spec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 2000)
        return 0;
    char *text = malloc(size + 1), said[300];
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    struct mr_error err = {0};
    struct mr_tier_spec s;
    struct mr_tier_need need = {.set_bytes = 10 * MR_GIB, .largest = 100000, .local_ranks = 4};
    struct mr_machine_memory machine = {.total_bytes = 16 * MR_GIB, .free_bytes = 8 * MR_GIB};
    int rc = mr_tier_spec_read(text, &s, &err);
    if (rc == 0) {
        rc = mr_tier_spec_choose(&s, &need, machine, &err);
        if (rc == 0 && (mr_tier_spec_memory(&s, &need) > machine.free_bytes || s.ram > need.set_bytes))
            abort();
        if (rc == 0)
            mr_tier_spec_text(&s, said, sizeof said);
        mr_tier_spec_done(&s);
    }
    if (rc != 0 && !*err.message)
        abort();
    free(text);
    return 0;
}
