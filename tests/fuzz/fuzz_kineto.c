/* Any bytes as a kineto file: no crash, no leak, no endless work. */
#include "import/trace_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_trace *t;
    struct mr_pfw *p;
    struct mr_error err;
    if (mr_trace_create(&t, &err) < 0)
        return 0;
    (void)mr_kineto_is((const char *)data, size);
    if (mr_kineto_parse((const char *)data, size, "fuzz", &p, &err) == 0 && mr_pfw_join(t, p, &err) == 0)
        (void)mr_trace_finish(t, &err);
    mr_trace_free(t);
    return 0;
}
