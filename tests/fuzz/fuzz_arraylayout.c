/* Layouts of the array formats come from a manifest, which may be anything: plan, decode and unpack with arbitrary
 * ones. Input: format u8, flags u8, layout length u8, offset u16, length u16, aux u8, layout, bytes read. */
#include "fuzz_array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mr_format_ops *const formats[] = {&mr_format_npy, &mr_format_npz, &mr_format_hdf5};
    static struct mr_decoder *d;
    static uint8_t dst[1 << 16];
    if (!d)
        d = mr_decoder_create();
    if (size < 8 || size - 8 < data[2])
        return 0;
    const struct mr_format_ops *f = formats[data[0] % 3];
    struct mr_layout layout = {(void *)(data + 8), data[2]};
    struct mr_sample_ref ref = {.raw = {mr_load_le16(data + 3), mr_load_le16(data + 5)}, .aux = data[7]};
    const uint8_t *raw = data + 8 + data[2];
    size_t len = size - 8 - data[2], out_len;
    struct mr_error err;
    struct mr_extent ext[16];
    struct mr_read_cost cost;
    unsigned n, flags = data[1] & MR_READ_VERIFY;
    void *unpacked;
    struct mr_sample_out out = {.dst = dst, .dst_cap = sizeof dst};
    (void)f->cost(&layout, &cost, &err);
    if (f->plan(&layout, &ref, flags, ext, MR_ARRAY_LEN(ext), &n, &err) >= 0) {
        /* Give decode as many bytes as planned where there are enough, so that it gets past the first check. */
        uint64_t want = 0;
        for (unsigned i = 0; i < n; i++)
            want += ext[i].length;
        (void)f->decode(d, &layout, &ref, flags, raw, want < len ? (size_t)want : len, &out, &err);
    }
    if (f->unpack(&layout, raw, len, &unpacked, &out_len, &err) >= 0)
        free(unpacked);
    return 0;
}
