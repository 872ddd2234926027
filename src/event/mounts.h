/* The table of mounts in a trace: which file system a path lies on. A block MR_MRT_MOUNTS holds that of the machine of
 * its process (doc/reference/trace-format.md). Encoding is malloc-free: the preload library does it as well. */
#ifndef MR_EVENT_MOUNTS_H
#define MR_EVENT_MOUNTS_H

#include <stddef.h>
#include <stdint.h>

#define MR_MOUNTS_TEXT (1u << 20) /* bytes of /proc/self/mountinfo that are looked at */

/* The payload of a block from the text of /proc/self/mountinfo, at most `cap` bytes; *count says how many entries it
 * has. Lines that cannot be read are left out. */
size_t mr_mounts_encode(const char *text, size_t len, uint8_t *out, size_t cap, uint32_t *count);

/* A sealed block with the mounts of this machine at `out`, which has room for MR_MOUNTS_BLOCK bytes; 0: they cannot be
 * read. Not malloc-free. */
#define MR_MOUNTS_BLOCK (MR_MOUNTS_TEXT + 128u)
size_t mr_mounts_block(uint64_t key, uint64_t now_ns, uint8_t *out);

/* One entry of a payload, not NUL-terminated; the pointers lie in the payload. */
struct mr_mount_entry {
    const char *type, *path, *source;
    uint16_t type_len, path_len, source_len;
};
/* The entry at *at, which moves behind it; 0 if there is none (any more). */
int mr_mounts_next(const uint8_t **at, const uint8_t *end, struct mr_mount_entry *out);

#endif
