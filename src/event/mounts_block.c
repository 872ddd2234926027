/* The mounts block of this machine, read from /proc. Apart from mounts.c, which is malloc-free and part of the preload
 * library. */
#include "base/common.h"
#include "event/mounts.h"
#include "event/mrt.h"

#include <stdio.h>
#include <stdlib.h>

size_t mr_mounts_block(uint64_t key, uint64_t now_ns, uint8_t *out)
{
    struct mr_mrt_block b = {.type = MR_MRT_MOUNTS, .key = key, .first_ns = now_ns, .last_ns = now_ns};
    char *text = malloc(MR_MOUNTS_TEXT);
    FILE *f = text ? fopen("/proc/self/mountinfo", "re") : NULL;
    size_t n = f ? fread(text, 1, MR_MOUNTS_TEXT, f) : 0;
    if (f)
        fclose(f);
    b.payload_bytes = n ? (uint32_t)mr_mounts_encode(text, n, out + MR_MRT_HEADER, MR_MOUNTS_TEXT, &b.count) : 0;
    free(text);
    return b.count ? mr_mrt_seal(out, &b) : 0;
}
