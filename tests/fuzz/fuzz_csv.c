/* The csv reader on arbitrary files. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_put("f.csv", data, size);
    fuzz_scan_and_read("csv", "f.csv");
    return 0;
}
