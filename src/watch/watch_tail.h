/* One trace file that is still being written: what was appended since the last look, in whole blocks. A file that takes
 * the place of another one under the same name (`millrace trace --max-size`) is read from its begin. Not thread-safe. */
#ifndef MR_WATCH_WATCH_TAIL_H
#define MR_WATCH_WATCH_TAIL_H

#include "event/mrt_file.h"

#include <sys/types.h>

struct mr_tail {
    char *path;
    int fd;
    ino_t inode;
    uint64_t at; /* bytes of the file that were read */
    uint64_t skipped_bytes;
    uint8_t *buffer;
    size_t cap;
    unsigned turns; /* how often another file took its place: what lay between two looks may be missing */
    bool ended;     /* its footer was read */
    bool written;   /* somebody holds it open for writing, when last looked */
};

int mr_tail_open(const char *path, struct mr_tail *t, struct mr_error *err);
/* Looks for new blocks and calls `take` for each, the footer excepted. The payload is valid during the call.
 * *took says how many there were. Reads at most some 32 MiB: call it again while it takes any. */
typedef int mr_tail_block_fn(void *user, const struct mr_mrt_view *block, struct mr_error *err);
int mr_tail_poll(struct mr_tail *t, mr_tail_block_fn *take, void *user, size_t *took, struct mr_error *err);
void mr_tail_close(struct mr_tail *t); /* accepts one that is zeroed */

#endif
