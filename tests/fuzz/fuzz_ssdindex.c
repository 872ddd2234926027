/* The index of an SSD folder: whatever lies in the file, reading gives records with a right check or none, and what is
 * found lies where the header says. Each input is tried as a whole file, and as records behind a right header. */
#include "cache/ssd_index.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const uint8_t *bytes, size_t n)
{
    struct mr_ssd_header h;
    uint32_t version;
    if (!mr_ssd_header_read(bytes, n, &h, &version))
        return;
    for (size_t at = MR_SSD_HEADER; at + MR_SSD_RECORD <= n; at += MR_SSD_RECORD) {
        struct mr_ssd_record r;
        uint8_t again[MR_SSD_RECORD];
        if (!mr_ssd_record_read(bytes + at, h.salt, &r))
            continue;
        mr_ssd_record_write(&r, h.salt, again);
        if (memcmp(again, bytes + at, sizeof again) != 0)
            abort(); /* a record says all that its bytes say */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct mr_ssd_header h = {.data_set = {1, 2, 3}, .salt = 7, .number = 1};
    uint8_t *framed = malloc(MR_SSD_HEADER + size);
    read_all(data, size);
    if (framed) {
        mr_ssd_header_write(&h, framed);
        if (size)
            memcpy(framed + MR_SSD_HEADER, data, size);
        read_all(framed, MR_SSD_HEADER + size);
    }
    free(framed);
    return 0;
}
