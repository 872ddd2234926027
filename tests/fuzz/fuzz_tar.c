/* The tar reader on arbitrary files. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_put("f.tar", data, size);
    fuzz_scan_and_read("tar", "f.tar");
    return 0;
}
