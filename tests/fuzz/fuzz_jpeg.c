/* JPEG decoding of arbitrary bytes. One decoder for all inputs, as in a loader: a broken image must not disturb the
 * next. */
#include "format/image_file.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mr_decoder *d;
    static uint8_t pixels[1 << 18]; /* larger images are refused, which keeps the fuzzer fast */
    uint8_t version = 1;
    struct mr_layout layout = {.data = &version, .len = 1};
    struct mr_sample_ref ref = {.raw = {0, size}, .label = MR_LABEL_NONE};
    struct mr_sample_out out = {.dst = pixels, .dst_cap = sizeof pixels};
    if (!d)
        d = mr_decoder_create();
    int rc = mr_format_jpeg.decode(d, &layout, &ref, 0, data, size, &out, NULL);
    if (rc == 0 && (out.bytes > sizeof pixels || out.bytes != out.dims.dim[0] * out.dims.dim[1] * out.dims.dim[2]))
        abort();
    return 0;
}
