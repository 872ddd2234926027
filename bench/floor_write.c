/* The floor of generation: the same bytes in as many files, ready in memory; nothing is made, summed, renamed or noted.
 */
#include "floors.h"
#include "base/common.h"
#include "base/content.h"
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE (1u << 20)

struct job {
    const char *folder;
    const struct floor_file *files;
    size_t n;
    atomic_size_t next;
    uint8_t *piece[16];
};

static void write_one(const struct job *j, size_t i, const uint8_t *piece)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%06zu", j->folder, i);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        bench_die("cannot create '%s': %s", path, strerror(errno));
    for (uint64_t at = 0; at < j->files[i].bytes;) {
        const uint8_t *from = piece ? piece : j->files[i].data + at;
        ssize_t n = pwrite(fd, from, (size_t)MR_MIN(j->files[i].bytes - at, (uint64_t)PIECE), (off_t)at);
        if (n <= 0)
            bench_die("cannot write '%s': %s", path, strerror(errno));
        at += (uint64_t)n;
    }
    close(fd);
}

static void work(void *user, unsigned thread)
{
    struct job *j = user;
    for (size_t i; (i = atomic_fetch_add(&j->next, 1)) < j->n;)
        write_one(j, i, j->piece[thread]);
}

struct bench_time floor_write_files(const char *folder, const struct floor_file *files, size_t n, bool hot,
                                    unsigned threads)
{
    struct job j = {.folder = folder, .files = files, .n = n};
    for (unsigned t = 0; t < threads && hot; t++) {
        j.piece[t] = aligned_alloc(4096, PIECE);
        if (!j.piece[t])
            bench_die("no memory");
        mr_content_fill(&(struct mr_content){.seed = 1}, t, 0, j.piece[t], PIECE);
    }
    struct bench_time time = bench_threads(threads, work, &j);
    for (unsigned t = 0; t < threads; t++)
        free(j.piece[t]);
    return time;
}
