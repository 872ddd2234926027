/* The TFRecord reader on arbitrary files. Random mutation never hits a CRC-32C, so the first byte chooses: 0 takes the
 * file as it is; otherwise the rest becomes the data of one record with right checksums, which fuzzes tf.train.Example,
 * and, split at that many bytes, of a file with an index beside it. */
#include "base/crc32c.h"
#include "fuzz_format.h"

static size_t make_record(const uint8_t *data, size_t size, uint8_t *out)
{
    mr_store_le64(out, size);
    mr_store_le32(out + 8, mr_crc32c_mask(mr_crc32c(0, out, 8)));
    memcpy(out + 12, data, size);
    mr_store_le32(out + 12 + size, mr_crc32c_mask(mr_crc32c(0, data, size)));
    return size + 16;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    unsigned split = *data++;
    size--;
    if (!split) {
        fuzz_put("f", data, size);
        fuzz_scan_and_read("tfrecord", "f");
        return 0;
    }
    size_t index = MR_MIN((size_t)split - 1, size);
    uint8_t *file = malloc(size + 16);
    size_t len = make_record(data + index, size - index, file);
    fuzz_put("g", file, len);
    fuzz_put("g.idx", data, index);
    fuzz_scan_and_read("tfrecord", "g");
    free(file);
    return 0;
}
