/* The file mappings of one process, in order of address and without overlap: which file, and where in it, lies behind
 * an address. A new mapping replaces what it covers, as mmap does. Not thread-safe. Appending can run out of memory:
 * the map then stays as it was. */
#ifndef MR_LAUNCH_ADDRESS_MAP_H
#define MR_LAUNCH_ADDRESS_MAP_H

#include <stddef.h>
#include <stdint.h>

struct mr_mapping {
    uint64_t from, to; /* addresses [from, to) */
    uint64_t offset;   /* in the file, of `from` */
    uint32_t file;     /* the caller's number; 0: no file, or one that is filtered out */
};

/* Zero-initialise it ({0}). */
struct mr_address_map {
    struct mr_mapping *item;
    size_t n, cap;
};

int mr_address_map_add(struct mr_address_map *m, struct mr_mapping add); /* 0 or -ENOMEM */
/* mremap: what was at `from` is at `to`, and grows to `len` bytes of the same file. Unknown addresses do nothing. */
int mr_address_map_move(struct mr_address_map *m, uint64_t from, uint64_t to, uint64_t len);
/* fork: `m` becomes a copy of `parent`. */
int mr_address_map_copy(struct mr_address_map *m, const struct mr_address_map *parent);
/* The mapping that holds the address, or NULL; valid until the map changes. */
const struct mr_mapping *mr_address_map_find(const struct mr_address_map *m, uint64_t address);
void mr_address_map_done(struct mr_address_map *m);

#endif
