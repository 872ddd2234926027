/* The folder itself: is it ours, who may change it now, what does it hold, how large is it. Nothing here knows samples.
 * One object belongs to one mr_ssd or one command; its lock excludes threads and processes alike. */
#ifndef MR_CACHE_SSD_FOLDER_H
#define MR_CACHE_SSD_FOLDER_H

#include <millrace/error.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define MR_SSD_KEY 33 /* 32 hex digits and NUL: the name of a data set's folder */

struct mr_ssd_folder {
    char *path;
    int dir, lock_fd;
    bool read_only;
    pthread_mutex_t mutex;
};

/* `make`: a folder that is missing is made, an empty one of the user becomes ours. Errors: MR_E_CONFIG (not a cache,
 * another owner, open to others, another version), -errno. */
int mr_ssd_folder_open(const char *path, bool make, struct mr_ssd_folder *out, struct mr_error *err);
void mr_ssd_folder_close(struct mr_ssd_folder *f);
/* Alone in the folder, for a moment. MR_E_TIMEOUT after ten seconds. */
int mr_ssd_folder_lock(struct mr_ssd_folder *f, struct mr_error *err);
bool mr_ssd_folder_try(struct mr_ssd_folder *f); /* without waiting for anybody */
void mr_ssd_folder_unlock(struct mr_ssd_folder *f);
/* Bytes on the file system of everything below it, as du counts them. */
uint64_t mr_ssd_folder_bytes(const struct mr_ssd_folder *f);

void mr_ssd_key_text(const uint8_t data_set[16], char out[MR_SSD_KEY]);
bool mr_ssd_key_parse(const char *text, uint8_t data_set[16]);

/* One data set in the folder. */
struct mr_ssd_set {
    char key[MR_SSD_KEY];
    int64_t used_s; /* last use, seconds since 1970 */
};
/* All of them, longest unused first; the caller frees *sets. */
int mr_ssd_folder_sets(const struct mr_ssd_folder *f, struct mr_ssd_set **sets, unsigned *n, struct mr_error *err);
/* Its folder, open; -ENOENT. */
int mr_ssd_set_open(const struct mr_ssd_folder *f, const char *key);

/* A number that has NNNN.seg, NNNN.idx or both. */
struct mr_ssd_pair {
    uint32_t number;
    bool seg, idx;
};
/* Ascending by number; the caller frees *pairs. */
int mr_ssd_set_pairs(int set, struct mr_ssd_pair **pairs, unsigned *n);
void mr_ssd_pair_name(uint32_t number, const char *end, char out[32]); /* end: "seg" or "idx" */
/* Removes a pair that nobody uses and adds to *freed (may be NULL) the bytes that are free now; false: it is in use, or
 * cannot be removed. With the folder locked. */
bool mr_ssd_pair_remove(int set, const struct mr_ssd_pair *p, uint64_t *freed);
bool mr_ssd_pair_in_use(int set, const struct mr_ssd_pair *p);
/* Removes what is left of a data set without files. With the folder locked. */
void mr_ssd_set_remove_empty(const struct mr_ssd_folder *f, const char *key);

/* What about.json says. */
struct mr_ssd_about {
    char name[256];
    uint64_t samples;
};
bool mr_ssd_about_read(int set, struct mr_ssd_about *out);
/* Written when it is missing or says something else; its time becomes now. With the folder locked. */
void mr_ssd_about_clean(int set); /* a half-written one */
int mr_ssd_about_write(int set, const struct mr_ssd_about *about);

#endif
