/* Any bytes as a dxt trace: no crash, no leak, no endless work. */
#include "import/trace_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_trace *t;
    struct mr_error err;
    if (mr_trace_create(&t, &err) < 0)
        return 0;
    if (mr_dxt_import(t, (const char *)data, size, "fuzz", &err) == 0)
        (void)mr_trace_finish(t, &err);
    mr_trace_free(t);
    return 0;
}
