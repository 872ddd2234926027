/* The npy reader on arbitrary files. */
#include "fuzz_array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_put("f.npy", data, size);
    fuzz_rows_and_unpack(&mr_format_npy, "f.npy", data, size);
    fuzz_scan_and_read("npy", "f.npy");
    return 0;
}
