/* A folder as a storage class: samples in large files with an index, kept from run to run, shared by jobs.
 *
 *   FOLDER/               mode 0700, owned by the user
 *     cache.lock          says that the folder is ours, and its version; who opens, counts capacity, makes or
 *                         removes files has it alone (flock) for a moment
 *     <manifest hash>/    one data set: 32 hex digits
 *       about.json        data set's name and samples, for people; its time is the last use
 *       NNNN.seg          samples one behind the other, each at a multiple of 4096 bytes; O_DIRECT where it is had
 *       NNNN.idx          records of 32 bytes: id, block, length, XXH3-64 of the bytes, check of the record
 *
 * (doc/guides/tiers.md has the bytes.) A record is written after its bytes; a torn or wrong one is not believed, and
 * what it stands for is fetched again. Two jobs that use one data set read each other's entries and write files of
 * their own.
 *
 * Invariants
 *  D1. What read returns has the hash that was stored with it; else MR_E_CORRUPT, the entry is dropped and counted.
 *  D2. The bytes of all files below FOLDER stay within the capacity; entries that nobody holds now (other data sets
 *      first, then those of earlier runs, least recently used first) go before a write is refused with -ENOSPC.
 *  D3. kill -9 at any point leaves a folder that opens, with every entry either whole or not there.
 *  D4. Nothing is deleted that lies under FOLDER and is not ours.
 *
 * Errors of open: MR_E_CONFIG (another owner, not a folder, mode open to others, another version, files that are not a
 * cache's), MR_E_TIMEOUT (somebody keeps the lock), -errno. Read-only or full: opens, reads work, writes fail with
 * -EROFS or -ENOSPC; the caller says so once.
 * Thread safety: all functions from any thread. */
#ifndef MR_CACHE_SSD_H
#define MR_CACHE_SSD_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>

struct mr_ssd;
struct mr_ssd_params {
    const char *folder;
    uint64_t capacity; /* bytes on the file system, all data sets of the folder together */
    uint8_t data_set[16];
    const char *name; /* of the data set, for people; NULL: what is said about it stays, and so does its last use */
    uint64_t samples;
    bool buffered; /* do not try O_DIRECT */
    bool look;     /* change nothing: the folder must be there, writes fail with -EROFS */
};
int mr_ssd_open(const struct mr_ssd_params *p, struct mr_ssd **out, struct mr_error *err);
/* Everything written is durable and in the index when this returns. Accepts NULL. */
void mr_ssd_close(struct mr_ssd *s);

/* What a sample takes of the capacity, its share of the index included; and what of a capacity is not for samples. A
 * policy that fills a class counts with these, else its last samples are refused. */
#define MR_SSD_TAKES(bytes) (((bytes) + 4095) / 4096 * 4096 + 32)
#define MR_SSD_OVERHEAD(capacity) (320 * (uint64_t)1024 + (capacity) / 128)

/* Where it lies. */
const char *mr_ssd_path(const struct mr_ssd *s);
/* How much of the capacity there really is: a device that has less room than that gives what it has, and a folder that
 * cannot be written to what it holds. */
uint64_t mr_ssd_usable(struct mr_ssd *s);

/* Its length if it is here (0: it is not). */
uint64_t mr_ssd_find(struct mr_ssd *s, uint64_t id);
/* All of the sample into `to`, which has room for `bytes`: its length exactly, as find said. -ENOENT, MR_E_CORRUPT
 * (then it is not here any more), -errno. O_DIRECT into a buffer of its own where `to` is not aligned to 4096. */
int mr_ssd_read(struct mr_ssd *s, uint64_t id, void *to, uint64_t bytes, struct mr_error *err);
/* -ENOSPC: no room even without what nobody holds; -EEXIST: it is here; -EROFS, -EIO. Returns when the bytes can be
 * read back; in the index with the next 4 MiB and durable by and by, both at the latest at close. The sample is held. A
 * device that fails later costs what was not yet in the index: it is not here any more, and counts as refused. */
int mr_ssd_write(struct mr_ssd *s, uint64_t id, const void *bytes, uint64_t n, struct mr_error *err);
/* This run wants to keep it (true) or not (false: it may go when room is needed). What was here at open is not held. */
void mr_ssd_hold(struct mr_ssd *s, uint64_t id, bool held);
void mr_ssd_drop(struct mr_ssd *s, uint64_t id);
/* Calls `each` for every sample that is here. */
void mr_ssd_each(struct mr_ssd *s, void (*each)(void *user, uint64_t id, uint64_t bytes), void *user);

struct mr_ssd_stats {
    uint64_t samples, bytes;         /* of this data set, here now */
    uint64_t folder_bytes, capacity; /* all data sets, files as they lie; when it was last counted */
    uint64_t reads, read_bytes, writes, written_bytes, corrupt, refused, evicted;
    bool direct;
};
void mr_ssd_stats(struct mr_ssd *s, struct mr_ssd_stats *out);

#endif
