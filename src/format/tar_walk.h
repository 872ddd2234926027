/* Walking through a tar archive: its regular files one by one, each cut into the key of its sample and what follows it.
 * Understood: ustar, GNU long names and base-256 sizes, pax headers (path, size). Refused: sparse members, names that
 * are absolute or climb with "..", anything cut short, an archive without its end blocks. Links, devices, folders,
 * names without an extension and names that start with a dot are skipped, as WebDataset skips them. */
#ifndef MR_FORMAT_TAR_WALK_H
#define MR_FORMAT_TAR_WALK_H

#include "format/stream_in.h"

#define MR_TAR_BLOCK 512u

enum { /* a header block */
       MR_TAR_NAME_AT = 0,
       MR_TAR_NAME_LEN = 100,
       MR_TAR_MODE_AT = 100,
       MR_TAR_UID_AT = 108,
       MR_TAR_GID_AT = 116,
       MR_TAR_SIZE_AT = 124,
       MR_TAR_SIZE_LEN = 12,
       MR_TAR_MTIME_AT = 136,
       MR_TAR_SUM_AT = 148,
       MR_TAR_SUM_LEN = 8,
       MR_TAR_TYPE_AT = 156,
       MR_TAR_MAGIC_AT = 257,
       MR_TAR_PREFIX_AT = 345,
       MR_TAR_PREFIX_LEN = 155
};

struct mr_tar_member {
    const char *name, *key; /* until the function returns */
    const char *ext;        /* what follows the first dot behind the key */
    uint64_t header_at;
    struct mr_extent data;
};
/* `in` may be looked at. A negative result ends the walk; it must have set err. */
typedef int mr_tar_fn(void *user, struct mr_stream_in *in, const struct mr_tar_member *m, struct mr_error *err);

/* *gzip: all offsets count in the unpacked archive. */
int mr_tar_walk(struct mr_store *s, const char *path, mr_tar_fn *fn, void *user, bool *gzip, struct mr_error *err);
/* MR_E_FORMAT: what is wrong with the member. */
int mr_tar_bad_member(const struct mr_stream_in *in, const struct mr_tar_member *m, const char *what,
                      struct mr_error *err);

#endif
