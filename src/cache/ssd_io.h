/* The system calls of an SSD folder, each with a place where a test makes it fail. They return 0 (or what is said) or
 * -errno, and go on after signals and short transfers. */
#ifndef MR_CACHE_SSD_IO_H
#define MR_CACHE_SSD_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum mr_ssd_call {
    MR_SSD_CALL_OPEN,
    MR_SSD_CALL_READ,
    MR_SSD_CALL_WRITE,
    MR_SSD_CALL_ALLOCATE,
    MR_SSD_CALL_PUNCH,
    MR_SSD_CALL_TRUNCATE,
    MR_SSD_CALL_SYNC,
    MR_SSD_CALL_LOCK,
    MR_SSD_CALL_STAT,
    MR_SSD_CALL_REMOVE,
    MR_SSD_CALL_MEMORY,
    MR_SSD_CALLS
};

/* Tests: asked before each call; an errno other than 0 is its result, and the call is not made. Set while no folder is
 * open. */
extern int (*mr_ssd_fault)(enum mr_ssd_call call);

int mr_ssd_openat(int dir, const char *name, int flags, unsigned mode); /* the descriptor, close-on-exec */
/* All n bytes, or an error; *got (read) may be less at the end of the file. */
int mr_ssd_pread(int fd, void *to, size_t n, uint64_t at, size_t *got);
int mr_ssd_pwrite(int fd, const void *from, size_t n, uint64_t at);
int mr_ssd_append(int fd, const void *from,
                  size_t n); /* to an O_APPEND descriptor, in one call: it is cut short where a device is full */
/* n bytes at a multiple of the block size, whose last block may lie partly behind n: whole blocks straight to `to`, the
 * rest through a block of our own. */
int mr_ssd_pread_blocks(int fd, uint8_t *to, size_t n, uint64_t at, size_t *got);
int mr_ssd_allocate(int fd, uint64_t at, uint64_t n);
int mr_ssd_punch(int fd, uint64_t at, uint64_t n);
int mr_ssd_truncate(int fd, uint64_t n);
int mr_ssd_sync(int fd);
int mr_ssd_lock(int fd, int how); /* flock with LOCK_NB: -EWOULDBLOCK when somebody else has it */
int mr_ssd_stat(int fd, struct stat *st);
int mr_ssd_statat(int dir, const char *name, struct stat *st); /* of a link itself */
int mr_ssd_unlinkat(int dir, const char *name, bool folder);
int mr_ssd_renameat(int dir, const char *from, const char *to);
int mr_ssd_mkdirat(int dir, const char *name, unsigned mode);
void *mr_ssd_aligned(size_t bytes); /* memory for direct I/O, freed with free; NULL: there is none */

#endif
