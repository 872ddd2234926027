/* Indexed binary: the first byte is the number of records claimed, then offsets, sizes, data as far as they go. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    size_t n = 8 * (size_t)(*data % 16);
    data++;
    size--;
    size_t off = MR_MIN(n, size);
    size_t sz = MR_MIN(n, size - off);
    fuzz_put("f.off.idx", data, off);
    fuzz_put("f.sz.idx", data + off, sz);
    fuzz_put("f", data + off + sz, size - off - sz);
    fuzz_scan_and_read("indexed_binary", "f");
    return 0;
}
