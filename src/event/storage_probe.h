/* What the storage of a traced program gives to more readers than it had: a block MR_MRT_PROBE, written behind the trace
 * (doc/reference/trace-format.md). */
#ifndef MR_EVENT_STORAGE_PROBE_H
#define MR_EVENT_STORAGE_PROBE_H

#include <stddef.h>
#include <stdint.h>

struct mr_storage_probe {
    uint32_t streams[2]; /* as many as the program had, and more */
    double bytes_per_s[2];
};

#define MR_STORAGE_PROBE_BLOCK 128u
/* A sealed block; returns its bytes. */
size_t mr_storage_probe_block(uint64_t key, const struct mr_storage_probe *p, uint8_t out[MR_STORAGE_PROBE_BLOCK]);
/* Of a payload. 0: it holds none, or figures that cannot be. */
int mr_storage_probe_read(const uint8_t *payload, size_t len, struct mr_storage_probe *out);

#endif
