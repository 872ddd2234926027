/* See storage_probe.h. */
#include "event/storage_probe.h"
#include "base/common.h"
#include "event/mrt.h"

#include <math.h>
#include <string.h>

#define PAYLOAD 24u

size_t mr_storage_probe_block(uint64_t key, const struct mr_storage_probe *p, uint8_t out[MR_STORAGE_PROBE_BLOCK])
{
    const struct mr_mrt_block b = {.type = MR_MRT_PROBE, .key = key, .count = 1, .payload_bytes = PAYLOAD};
    uint8_t *to = out + MR_MRT_HEADER;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t bits;
        memcpy(&bits, &p->bytes_per_s[i], sizeof bits);
        mr_store_le32(to + 4 * i, p->streams[i]);
        mr_store_le64(to + 8 + 8 * i, bits);
    }
    return mr_mrt_seal(out, &b);
}

int mr_storage_probe_read(const uint8_t *payload, size_t len, struct mr_storage_probe *out)
{
    struct mr_storage_probe p;
    if (len < PAYLOAD)
        return 0;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t bits = mr_load_le64(payload + 8 + 8 * i);
        memcpy(&p.bytes_per_s[i], &bits, sizeof bits);
        p.streams[i] = mr_load_le32(payload + 4 * i);
        if (!(p.bytes_per_s[i] > 0) || !isfinite(p.bytes_per_s[i]) || !p.streams[i])
            return 0;
    }
    *out = p;
    return p.streams[1] > p.streams[0];
}
