/* Probes: short, repeatable measurements of one folder's storage and of memory. Each runs a fixed time on a number of
 * threads and returns a rate. They leave nothing behind: the test file has no name while it is used, so that even a
 * killed process gives its space back; the small files of the open probe are removed before it returns.
 *
 * Cold-cache discipline: direct requests bypass the page cache; buffered reads come after the file's pages have been
 * dropped and stop at the end of the file instead of reading what is warm by then. */
#ifndef MR_PROBE_MACHINE_PROBE_H
#define MR_PROBE_MACHINE_PROBE_H

#include <millrace/error.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MR_PROBE_THREADS_MAX 64

struct mr_probe_file {
    int fd, fd_direct; /* fd_direct is -1 where the file system has no direct I/O */
    uint64_t size;     /* a multiple of 4 MiB */
    bool in_memory;    /* tmpfs or ramfs: there is no device behind it */
};

/* Writes a nameless file of incompressible bytes, up to `size` or what max_seconds allow (at least 16 MiB). */
int mr_probe_file_open(const char *folder, uint64_t size, double max_seconds, const atomic_bool *stop,
                       struct mr_probe_file *out, struct mr_error *err);
void mr_probe_file_close(struct mr_probe_file *f);

struct mr_probe_spec {
    bool write, random, direct;
    unsigned threads;
    uint64_t request_bytes; /* a power of two, 4 KiB ... 4 MiB */
};

/* Bytes per second: the sum of the threads' own rates, each over the time from its first to its last request after a
 * start of 5 % of the time that is not counted. Buffered requests count from the start, because a second pass over the
 * file would be warm; buffered writes include the time to reach the device. Every thread has a part of the file of its
 * own when sequential. */
int mr_probe_run(const struct mr_probe_file *f, const struct mr_probe_spec *s, double seconds, uint64_t seed,
                 const atomic_bool *stop, double *bytes_per_s, struct mr_error *err);
/* open + close and stat of small files, per second over all threads. */
int mr_probe_opens(const char *folder, unsigned threads, double seconds, const atomic_bool *stop, double *opens_per_s,
                   double *stats_per_s, struct mr_error *err);
/* memcpy, over and over, from one block to another of the thread's own: bytes copied (not read plus written) per second
 * over all threads. The blocks are made and touched once, for up to `threads` threads. */
struct mr_probe_copy {
    unsigned threads;
    uint64_t block_bytes;
    char *blocks; /* 2 * threads of them */
};
int mr_probe_copy_open(unsigned threads, uint64_t block_bytes, struct mr_probe_copy *out, struct mr_error *err);
int mr_probe_copy_run(const struct mr_probe_copy *c, unsigned threads, double seconds, const atomic_bool *stop,
                      double *bytes_per_s, struct mr_error *err);
void mr_probe_copy_close(struct mr_probe_copy *c);

#endif
