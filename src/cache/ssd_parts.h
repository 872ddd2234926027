/* Inside an open SSD class: the samples that are known (ssd.c, ssd_load.c), the buffers of what is being written
 * (ssd_write.c), and how room is made (ssd_room.c).
 *
 * Lock order: `write`, then the folder, then `lock`. `lock` is held for moments and never over I/O.
 *
 *  P1. An entry in the map has its record in the index of its file, or is UNFLUSHED and its bytes lie in a buffer.
 *  P2. A record is appended after the bytes it stands for were written; one that takes it back, before they are given
 *      back. Buffers are written one at a time, in the order they were filled.
 *  P3. The blocks of an entry are given back when nobody reads it any more (readers) and it is not UNFLUSHED; who makes
 *      that true does it. */
#ifndef MR_CACHE_SSD_PARTS_H
#define MR_CACHE_SSD_PARTS_H

#include "base/map.h"
#include "base/vec.h"
#include "cache/ssd.h"
#include "cache/ssd_file.h"
#include "cache/ssd_folder.h"

#define MR_SSD_BUFFER ((size_t)4 << 20)
#define MR_SSD_NONE UINT32_MAX /* no entry */
#define MR_SSD_FILES 65536u

enum mr_ssd_flags {
    MR_SSD_HELD = 1,      /* this run wants it */
    MR_SSD_UNFLUSHED = 2, /* its bytes lie in a buffer */
    MR_SSD_DOOMED = 4,    /* not in the map any more, but still read or unflushed */
    MR_SSD_LISTED = 8     /* in the list of what may go */
};

struct mr_ssd_entry {
    struct mr_ssd_record r;
    uint32_t file; /* of files */
    uint32_t older, newer;
    uint16_t readers;
    uint8_t flags;
};

struct mr_ssd_buffer {
    uint8_t *data;
    size_t used;
    uint64_t at;
    uint32_t file;
    MR_VEC(uint32_t) entries;
};

struct mr_ssd {
    struct mr_ssd_folder folder;
    int set; /* the data set's folder */
    uint8_t data_set[16];
    char key[MR_SSD_KEY];
    struct mr_ssd_about about;
    uint64_t capacity, slack, step, segment_bytes;
    bool want_direct, read_only, tell_about;

    pthread_mutex_t lock;
    struct mr_map map; /* id: GONE, or entry + 2 */
    MR_VEC(struct mr_ssd_entry) entries;
    uint32_t free_entry, oldest, newest;
    struct mr_ssd_file **files; /* places do not move; n_files grows with the folder locked */
    uint32_t n_files;
    struct mr_ssd_stats stats;
    uint64_t refreshed_ns;
    MR_VEC(void *) bounces; /* kept for the next read */

    pthread_mutex_t write;
    pthread_cond_t flushed;
    struct mr_ssd_buffer buffer[2];
    unsigned filling;
    bool flushing;
    atomic_bool no_allocate, no_punch; /* the file system cannot */
    uint32_t current;                  /* file that is appended to, or MR_SSD_NONE */
    int refuse_code;                   /* a write was refused with it ... */
    uint64_t refuse_until_ns;
    _Atomic uint64_t freed; /* ... and that many entries had gone until then */
    uint64_t refuse_freed;
};

/* ---- ssd.c: entries; with s->lock ---- */
struct mr_ssd_entry *mr_ssd_entry_of(struct mr_ssd *s, uint64_t id, uint32_t *number);
/* A new one in the map; NULL: no memory. */
struct mr_ssd_entry *mr_ssd_entry_add(struct mr_ssd *s, const struct mr_ssd_record *r, uint32_t file, unsigned flags,
                                      uint32_t *number);
/* Out of the map and the list. True: its blocks can be given back now (*what, *file), and its place is free; false: it
 * is doomed, and who has it does that later. */
bool mr_ssd_entry_take_out(struct mr_ssd *s, uint32_t number, struct mr_ssd_record *what, uint32_t *file);
/* Its last reader has gone, or it is flushed: true when it was doomed and now its blocks can be given back. */
bool mr_ssd_entry_release(struct mr_ssd *s, uint32_t number, struct mr_ssd_record *what, uint32_t *file);
/* Without s->lock: what take_out or release said. */
void mr_ssd_give_back(struct mr_ssd *s, const struct mr_ssd_record *what, uint32_t file, bool folder_locked);

/* ---- ssd_load.c; with the folder locked ---- */
/* -ENFILE: too many. */
int mr_ssd_keep_file(struct mr_ssd *s, struct mr_ssd_file *f, uint32_t *number);
/* Files that came since the last time, and what is new in those of others. */
int mr_ssd_load(struct mr_ssd *s, struct mr_error *err);
/* Leftovers of those who were killed: pairs that are no pairs, room that no record stands for. */
void mr_ssd_clean(struct mr_ssd *s);
/* News of one file of somebody else. */
int mr_ssd_file_news(struct mr_ssd *s, uint32_t file);
/* Appends to it from here on, and knows all that others have appended. False: somebody else does, or it cannot be read.
 */
bool mr_ssd_take_over(struct mr_ssd *s, uint32_t file);

/* ---- ssd_room.c; with s->write ---- */
/* There is place for `need` bytes behind the end of the current file. */
bool mr_ssd_has_place(const struct mr_ssd *s, uint64_t need);
/* Makes place; the current file is made or changed where necessary. Opens the lock meanwhile: ask again. */
int mr_ssd_place(struct mr_ssd *s, uint64_t need, struct mr_error *err);
/* The current file is complete, and open to others. */
int mr_ssd_finish_current(struct mr_ssd *s);
/* Brings the folder down to its capacity, less `wanted`; what nobody holds goes. With the folder locked. */
void mr_ssd_make_room(struct mr_ssd *s, uint64_t wanted);

/* ---- ssd_write.c; with s->write ---- */
int mr_ssd_flush(struct mr_ssd *s);

#endif
