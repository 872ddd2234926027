/* PNG decoding of arbitrary bytes. The checksums of chunks are put right first, so that mutations reach the code behind
 * them (bad checksums have a unit test of their own). One decoder for all inputs, as in a loader. */
#include "format/image_file.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void repair_checksums(uint8_t *file, size_t size)
{
    size_t at = 8;
    while (at + 12 <= size) {
        size_t n = load_be32(file + at);
        if (n > size - at - 12)
            return;
        uint32_t crc = (uint32_t)crc32(crc32(0, NULL, 0), file + at + 4, (uInt)n + 4);
        for (unsigned i = 0; i < 4; i++)
            file[at + 8 + n + i] = (uint8_t)(crc >> (24 - 8 * i));
        at += n + 12;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mr_decoder *d;
    static uint8_t pixels[1 << 18]; /* larger images are refused, which keeps the fuzzer fast */
    uint8_t version = 1;
    struct mr_layout layout = {.data = &version, .len = 1};
    struct mr_sample_ref ref = {.raw = {0, size}, .label = MR_LABEL_NONE};
    struct mr_sample_out out = {.dst = pixels, .dst_cap = sizeof pixels};
    uint8_t *file = malloc(size ? size : 1);
    if (!d)
        d = mr_decoder_create();
    if (!file || !d)
        abort();
    if (size)
        memcpy(file, data, size);
    repair_checksums(file, size);
    int rc = mr_format_png.decode(d, &layout, &ref, 0, file, size, &out, NULL);
    if (rc == 0 && (out.bytes > sizeof pixels ||
                    out.bytes != out.dims.dim[0] * out.dims.dim[1] * out.dims.dim[2] * mr_dtype_bytes(out.dtype)))
        abort();
    free(file);
    return 0;
}
