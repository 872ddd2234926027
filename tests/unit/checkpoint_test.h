/* What the checkpoint tests share: a folder of their own, files to save, and looking at what is left on disk. */
#ifndef MR_TESTS_CHECKPOINT_TEST_H
#define MR_TESTS_CHECKPOINT_TEST_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <millrace/checkpoint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char ct_dir[256];
static bool ct_drain_each; /* a save counts when it is drained: of any engine */

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

/* Saves until killed, every third step twice; tells the last finished step through the pipe. */
static inline void ct_save_forever(struct mr_checkpointer *c, const struct mr_checkpoint_file *files, size_t n, int fd)
{
    struct mr_checkpoint_result r;
    struct mr_error e;
    uint64_t step = 0;
    if (mr_checkpoint_newest(c, &step, &e))
        step = 0;
    for (step++;; step++)
        for (int twice = 0; twice < (step % 3 ? 1 : 2); twice++)
            if (mr_checkpoint_save(c, step, files, n, &r, &e) || (ct_drain_each && mr_checkpoint_drain(c, &e)) ||
                write(fd, &step, sizeof step) != sizeof step)
                _exit(1);
}

/* Lets a child save with the checkpointer that `open_one` gives, and kills it some microseconds after its first save.
 * Returns the last step that it had told to be saved; 0 if it never came to one. */
static inline uint64_t ct_save_and_kill(struct mr_checkpointer *(*open_one)(void),
                                        const struct mr_checkpoint_file *files, size_t n, unsigned us)
{
    int ends[2];
    uint64_t done = 0, step;
    if (pipe(ends))
        return 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        ct_save_forever(open_one(), files, n, ends[1]);
    }
    close(ends[1]);
    if (read(ends[0], &done, sizeof done) != sizeof done)
        done = 0;
    usleep(us);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    while (read(ends[0], &step, sizeof step) == sizeof step)
        done = step;
    close(ends[0]);
    return done;
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

/* What an older version wrote: two files with checksums of their whole content. */
#define CT_OLD_BYTES 12
static inline void ct_write_old(const char *folder, uint64_t step)
{
    char dir[800], path[900], list[600];
    snprintf(dir, sizeof dir, "%s/step-%012llu", folder, (unsigned long long)step);
    if (mkdir(dir, 0777))
        abort();
    snprintf(path, sizeof path, "%s/a.bin", dir);
    ct_write_text(path, "hello");
    snprintf(path, sizeof path, "%s/b.bin", dir);
    ct_write_text(path, "worlds!");
    snprintf(list, sizeof list,
             "{\"schema\": \"millrace.checkpoint/1\", \"step\": %llu, \"world\": 2, \"fsync\": false, \"files\": ["
             "{\"name\": \"a.bin\", \"bytes\": 5, \"xxh3\": \"9555e8555c62dcfd\", \"rank\": 0}, "
             "{\"name\": \"b.bin\", \"bytes\": 7, \"xxh3\": \"87c4157ea11324b7\", \"rank\": 1}]}",
             (unsigned long long)step);
    snprintf(path, sizeof path, "%s/checkpoint.json", dir);
    ct_write_text(path, list);
}

#endif
