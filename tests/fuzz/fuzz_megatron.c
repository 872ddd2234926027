/* Megatron's index: the first byte is the size of the .bin in units of 16 bytes, the rest is the .idx. Whatever opens is
 * read: all documents, at most 64 at once, and packed. */
#include "fuzz_tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t bin[256 * 16];
    if (!size)
        return 0;
    fuzz_put("f.bin", bin, 16ul * data[0]);
    fuzz_put("f.idx", data + 1, size - 1);
    fuzz_tokens(&mr_token_megatron, "f");
    return 0;
}
