/* What the tests of SSD folders share: a folder of their own, samples whose size and bytes follow from their number. */
#ifndef MR_TESTS_SSD_TEST_H
#define MR_TESTS_SSD_TEST_H

#include "base/common.h"
#include "base/content.h"
#include "base/rng.h"
#include "base/temp_folder.h"
#include "cache/ssd.h"
#include "cache/ssd_folder.h"
#include "cache/ssd_io.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool st_child;                  /* a process of a test's: it must not go on with the other tests */
static char st_base[256], st_dir[300]; /* the cache is made inside */

static inline int st_setup(void **state)
{
    (void)state;
    mr_ssd_fault = NULL;
    int rc = mr_temp_folder_make("", "ssd", st_base, sizeof st_base, NULL);
    snprintf(st_dir, sizeof st_dir, "%s/cache", st_base);
    return rc;
}

/* Where syncing costs nothing, for hundreds of runs. */
static inline int st_setup_in_memory(void **state)
{
    if (mr_temp_folder_make("/dev/shm", "ssd", st_base, sizeof st_base, NULL))
        return st_setup(state);
    mr_ssd_fault = NULL;
    snprintf(st_dir, sizeof st_dir, "%s/cache", st_base);
    return 0;
}

static inline int st_teardown(void **state)
{
    (void)state;
    return mr_temp_folder_remove(st_base, NULL);
}

static inline struct mr_ssd *st_open_as(uint8_t set, uint64_t capacity)
{
    struct mr_ssd_params p = {
        .folder = st_dir, .capacity = capacity, .data_set = {set}, .name = "a set", .samples = 1000};
    struct mr_ssd *s = NULL;
    struct mr_error e = {0};
    if (mr_ssd_open(&p, &s, &e)) {
        if (st_child) {
            fprintf(stderr, "cannot open: %s\n", e.message);
            _exit(9);
        }
        fail_msg("cannot open: %s", e.message);
    }
    return s;
}

static inline struct mr_ssd *st_open(uint64_t capacity)
{
    return st_open_as(1, capacity);
}

static inline uint64_t st_size(uint64_t id)
{
    uint64_t r = mr_mix64(id + 77);
    return r % 16 == 0 ? 1 + r % 5000 : r % 16 == 1 ? 4096 * (1 + r % 20) : 1 + (r >> 8) % 120000;
}

static inline void st_fill(uint64_t id, uint8_t *to, uint64_t n)
{
    const struct mr_content c = {.seed = 5};
    mr_content_fill(&c, id, 0, to, n);
}

static inline int st_write_n(struct mr_ssd *s, uint64_t id, uint64_t n)
{
    uint8_t *b = malloc(n);
    st_fill(id, b, n);
    int rc = mr_ssd_write(s, id, b, n, NULL);
    free(b);
    return rc;
}

static inline int st_write(struct mr_ssd *s, uint64_t id)
{
    return st_write_n(s, id, st_size(id));
}

/* Reads to an odd or an even address; -EILSEQ: wrong bytes, which must not be. */
static inline int st_read_n(struct mr_ssd *s, uint64_t id, uint64_t n, bool aligned)
{
    const struct mr_content c = {.seed = 5};
    uint8_t *b = aligned_alloc(4096, MR_ALIGN_UP(n + 64, 4096)), *to = aligned ? b : b + 3;
    memset(b, 0xee, n + 64);
    int rc = mr_ssd_read(s, id, to, n, NULL);
    if (!rc && (mr_content_verify(&c, id, 0, to, n) != n || to[n] != 0xee))
        rc = -EILSEQ;
    free(b);
    return rc;
}

static inline int st_read(struct mr_ssd *s, uint64_t id)
{
    return st_read_n(s, id, st_size(id), id % 3 != 0);
}

static uint64_t st_sum;
static inline int st_add(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)path, (void)type, (void)at;
    st_sum += (uint64_t)st->st_blocks * 512;
    return 0;
}
/* As du does. */
static inline uint64_t st_du(void)
{
    st_sum = 0;
    nftw(st_dir, st_add, 16, FTW_PHYS);
    return st_sum;
}

static inline pid_t st_fork(void)
{
    pid_t pid = fork();
    st_child = pid == 0;
    return pid;
}

/* The path of a file of data set `set`. */
static inline const char *st_path(uint8_t set, const char *name)
{
    static char path[512];
    char key[MR_SSD_KEY];
    uint8_t data_set[16] = {set};
    mr_ssd_key_text(data_set, key);
    snprintf(path, sizeof path, "%s/%s/%s", st_dir, key, name);
    return path;
}

static inline struct mr_ssd_stats st_stats(struct mr_ssd *s)
{
    struct mr_ssd_stats x;
    mr_ssd_stats(s, &x);
    return x;
}

#endif
