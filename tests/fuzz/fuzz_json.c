/* The json reader on arbitrary files. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_put("f.json", data, size);
    fuzz_scan_and_read("json", "f.json");
    fuzz_scan_and_read("jsonl", "f.json");
    return 0;
}
