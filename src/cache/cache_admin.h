/* Managing a cache folder from outside a run, for `millrace cache`: what it holds, whether that is whole, removing data
 * sets and filling it ahead of a run. Jobs may use the folder meanwhile; the invariants of ssd.h hold for all of it.
 *
 * Threads: verify and fill start how->threads threads of their own and return when these have ended. */
#ifndef MR_CACHE_CACHE_ADMIN_H
#define MR_CACHE_CACHE_ADMIN_H

#include "cache/ssd_folder.h"

#include <millrace/dataset.h>
#include <stdatomic.h>
#include <stdio.h>

/* One data set of the folder. */
struct mr_cache_set {
    char key[MR_SSD_KEY];
    struct mr_ssd_about about;
    int64_t used_s; /* last use, seconds since 1970; 0: never */
    uint64_t samples, bytes;
    bool in_use; /* by a job */
};

struct mr_cache_list {
    struct mr_cache_set *set; /* last used first */
    size_t n;
};

/* How verify and fill work. */
struct mr_cache_work {
    unsigned threads;
    FILE *progress; /* NULL: silent */
    const atomic_bool *stop;
};

/* The data sets of the folder, without `samples` and `bytes`. `which`: a key, the beginning of one (four characters or
 * more), or a name; "" takes all. MR_E_USAGE when no data set is meant by it; the errors of mr_ssd_folder_open. Free
 * the list with mr_cache_list_done in every case. */
int mr_cache_list(const char *folder, const char *which, struct mr_cache_list *out, struct mr_error *err);
/* Counts `samples` and `bytes` of every data set of the list, and the bytes of the whole folder. */
int mr_cache_count(const char *folder, struct mr_cache_list *l, uint64_t *folder_bytes, struct mr_error *err);
void mr_cache_list_done(struct mr_cache_list *l);

struct mr_cache_verified {
    uint64_t samples, bytes;      /* that match their checksums */
    uint64_t corrupt, unreadable; /* corrupt ones are dropped */
};
/* Reads every sample of the listed data sets. `bad` gets a message for each that is not whole, from any thread. */
int mr_cache_verify(const char *folder, const struct mr_cache_list *l, const struct mr_cache_work *how,
                    void (*bad)(void *user, const char *message), void *user, struct mr_cache_verified *out,
                    struct mr_error *err);

/* Removes the listed data sets. *freed: bytes on the file system; *kept: files that a job uses, or that cannot be
 * removed. */
int mr_cache_drop(const char *folder, const struct mr_cache_list *l, uint64_t *freed, unsigned *kept,
                  struct mr_error *err);

struct mr_cache_filling {
    const char *folder, *name; /* name: of the data set, for people */
    uint64_t capacity;         /* of the folder, all data sets together */
    bool checksums;            /* keeps stored checksums, too */
};
struct mr_cache_filled {
    uint64_t samples, bytes;      /* of this data set, now in the folder */
    uint64_t written, read_bytes; /* by this call */
    bool full;                    /* the capacity is used up */
};
/* Reads the data set into the folder until everything or the capacity is in. After MR_E_INTERRUPTED *out is set, too:
 * the samples read until then stay, and a later call goes on from there. */
int mr_cache_fill(struct mr_dataset *ds, const struct mr_cache_filling *f, const struct mr_cache_work *how,
                  struct mr_cache_filled *out, struct mr_error *err);

#endif
