/* What the checkpoint tests share: a folder of their own, files to save, and looking at what is left on disk. */
#ifndef MR_TESTS_CHECKPOINT_TEST_H
#define MR_TESTS_CHECKPOINT_TEST_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <millrace/checkpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char ct_dir[256];

static int ct_remove(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st, (void)type, (void)f;
    return remove(path);
}

static inline int ct_setup(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(ct_dir, sizeof ct_dir, "%.200s/mr-ckpt-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(ct_dir) ? 0 : -1;
}

/* Where fsync costs nothing, for tests of hundreds of saves. */
static inline int ct_setup_in_memory(void **state)
{
    snprintf(ct_dir, sizeof ct_dir, "/dev/shm/mr-ckpt-XXXXXX");
    return mkdtemp(ct_dir) ? 0 : ct_setup(state);
}

static inline int ct_teardown(void **state)
{
    (void)state;
    return nftw(ct_dir, ct_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static inline struct mr_checkpoint_file ct_file(const char *name, uint64_t bytes)
{
    struct mr_checkpoint_file f = {.bytes = bytes};
    snprintf(f.name, sizeof f.name, "%s", name);
    return f;
}

/* How many entries of the folder end so; "" counts all. */
static inline unsigned ct_count(const char *dir, const char *suffix)
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));) {
        size_t len = strlen(e->d_name), tail = strlen(suffix);
        n += e->d_name[0] != '.' && len >= tail && strcmp(e->d_name + len - tail, suffix) == 0;
    }
    if (d)
        closedir(d);
    return n;
}

static inline void ct_path(char *out, size_t cap, uint64_t step, const char *file)
{
    snprintf(out, cap, "%s/step-%012llu/%s", ct_dir, (unsigned long long)step, file);
}

static inline void ct_write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        abort();
}

#endif
