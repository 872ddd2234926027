/* Floors: the unavoidable work alone, with plain system calls and the same third-party decoders. */
#ifndef MR_BENCH_FLOORS_H
#define MR_BENCH_FLOORS_H

#include "bench.h"

#include <stddef.h>
#include <stdint.h>

/* A file to be written: its bytes, ready in memory. */
struct floor_file {
    uint8_t *data;
    uint64_t bytes;
};
/* Writes n files, "<folder>/<number>": open, pwrite in pieces of at most 1 MiB, close. With `hot` the bytes come from
 * one buffer of 1 MiB per thread, which stays in the cache, instead of from the files' data. Returns its time. */
struct bench_time floor_write_files(const char *folder, const struct floor_file *files, size_t n, bool hot,
                                    unsigned threads);

/* Encodes `count` images of height x width x 3 with quality q from pixels prepared beforehand (8 pictures, taken in
 * turn), one file each: encode to memory, open, pwrite, close. Returns its time. */
struct bench_time floor_write_jpegs(const char *folder, size_t count, uint64_t height, uint64_t width, int quality,
                                    unsigned threads);

enum floor_decoder { FLOOR_COPY, FLOOR_JPEG, FLOOR_PNG, FLOOR_DEFLATE, FLOOR_ZLIB, FLOOR_NUMBERS, FLOOR_JSON };

/* One sample: where its bytes lie, how large it is decoded. */
struct floor_sample {
    const char *path; /* opened and closed for this sample, when fd < 0 */
    int fd;
    uint64_t offset, bytes, decoded_bytes;
};

#define FLOOR_SLACK                                                                                                    \
    4096 /* dst has this much more room than decoded_bytes: a deflated .npy carries its header along                   \
          */

struct floor_reader; /* per thread */
struct floor_reader *floor_reader_create(enum floor_decoder decoder, size_t max_bytes);
void floor_reader_free(struct floor_reader *r);
/* Puts the sample to dst, which is large enough. Dies on any error. */
void floor_read_sample(struct floor_reader *r, const struct floor_sample *s, uint8_t *dst);

/* The middle crop x crop pixels of a picture of height x width x 3 bytes, resized to out x out (bilinear, as wide as
 * the reduction), as floats from 0 to 1 in planes. Per thread. */
struct floor_preprocess;
struct floor_preprocess *floor_preprocess_create(unsigned height, unsigned width, unsigned crop, unsigned out);
void floor_preprocess_free(struct floor_preprocess *f); /* accepts NULL */
void floor_preprocess(struct floor_preprocess *f, const uint8_t *pixels, float *dst);

/* Direct reads (O_DIRECT) of n samples in the given order with io_uring, `depth` in flight, the blocks of sample k into
 * row k % rows. Files that are open must be so with O_DIRECT. False: not with this build, kernel or file system. */
bool floor_can_read_direct(const char *folder);
struct bench_time floor_read_direct(const struct floor_sample *samples, const uint64_t *order, uint64_t n,
                                    uint8_t *slab, uint64_t rows, uint64_t row_bytes, unsigned depth);

#endif
