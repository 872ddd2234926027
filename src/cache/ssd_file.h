/* A pair NNNN.seg, NNNN.idx, open: bytes of samples and what stands in the index about them.
 *
 * Locks (flock, all taken with the folder locked): every process that uses a pair shares the lock of its .idx; the one
 * that appends to it has the lock of its .seg alone. So: .idx alone = nobody else uses it; .seg alone = nobody else
 * appends. What is unlocked by the end of a process needs no cleaning up. */
#ifndef MR_CACHE_SSD_FILE_H
#define MR_CACHE_SSD_FILE_H

#include "cache/ssd_index.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct mr_ssd_file {
    uint32_t number;
    int seg, idx;
    uint64_t salt;
    uint64_t parsed; /* bytes of the index that were read */
    uint64_t live;   /* samples here that are known, and the blocks they take; guarded by the owner's lock */
    uint64_t live_blocks;
    uint64_t listed;    /* of the live ones those that nobody holds */
    uint64_t end;       /* behind the last sample that any record stands for; never falls */
    uint64_t allocated; /* the .seg has room up to here, counted in the folder's bytes */
    atomic_bool own;    /* this process appends to it */
    atomic_bool direct;
    atomic_bool writable;
    atomic_bool gone; /* unlinked */
    atomic_bool unsynced;
    bool alone, asked;  /* while room is made: is it used by nobody else? */
    unsigned mem_align; /* of memory, for direct I/O */
    pthread_mutex_t append;
};

/* `writable` false: the folder is read-only. Shares the lock. Errors: -ENOENT, MR_E_FORMAT (torn or of another kind),
 * -errno. With the folder locked, as all functions that lock. */
int mr_ssd_file_open(int set, uint32_t number, const uint8_t data_set[16], bool writable, bool direct,
                     struct mr_ssd_file **out);
/* Makes an empty pair and owns it. -EEXIST. */
int mr_ssd_file_create(int set, uint32_t number, const uint8_t data_set[16], bool direct, struct mr_ssd_file **out);
void mr_ssd_file_close(struct mr_ssd_file *f); /* accepts NULL */

/* Becomes the one who appends. False: somebody else is. What others have appended so far must be read before `end` is
 * used: mr_ssd_take_over does. */
bool mr_ssd_file_own(struct mr_ssd_file *f);
/* Somebody else may append; all records are known until here. */
void mr_ssd_file_disown(struct mr_ssd_file *f);
/* What this process wrote to it is on the device: bytes before records. */
int mr_ssd_file_sync(struct mr_ssd_file *f);
/* Nobody else uses it: then it stays so until mr_ssd_file_share. */
bool mr_ssd_file_alone(struct mr_ssd_file *f);
void mr_ssd_file_share(struct mr_ssd_file *f);
/* Nobody needs it: removes both files, of which it is alone. */
void mr_ssd_file_remove(struct mr_ssd_file *f, int set);

/* Whole records that were not read yet, at most `cap` of them; wrong ones are left out, *torn counts them. Returns how
 * many, 0 at the end, or -errno. */
int mr_ssd_file_records(struct mr_ssd_file *f, struct mr_ssd_record *out, unsigned cap, uint64_t *torn);
/* Writes bytes (whole blocks, aligned memory) at `at`. */
int mr_ssd_file_put(struct mr_ssd_file *f, const void *bytes, uint64_t n, uint64_t at);
/* Appends records to the index; none is there if it fails. */
int mr_ssd_file_add(struct mr_ssd_file *f, const struct mr_ssd_record *r, unsigned n);
/* Reads n bytes of a sample; *got is less where the file ends. `bounce` (or NULL) is aligned memory with room for all
 * blocks, needed where mr_ssd_file_reads_into says no. */
bool mr_ssd_file_reads_into(const struct mr_ssd_file *f, const void *to);
int mr_ssd_file_get(struct mr_ssd_file *f, void *to, uint64_t n, uint64_t at, void *bounce, uint64_t *got);
/* A sample is not here any more: says so in the index, then gives its blocks back. -EOPNOTSUPP: this file system cannot
 * give them back one by one. */
int mr_ssd_file_forget(struct mr_ssd_file *f, const struct mr_ssd_record *r);

#endif
