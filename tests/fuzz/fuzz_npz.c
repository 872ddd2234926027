/* The npz reader on arbitrary files. */
#include "fuzz_array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_put("f.npz", data, size);
    fuzz_rows_and_unpack(&mr_format_npz, "f.npz", data, size);
    fuzz_scan_and_read("npz", "f.npz");
    return 0;
}
