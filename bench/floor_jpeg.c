/* The floor of JPEG generation: libjpeg-turbo with the same settings on pixels that are already there, one compressor
 * per thread, reused; each encoding is written to a file of its own. */
#include "floors.h"
#include "bench.h"
#include "format/image_synth.h"

#include <stdio.h> /* before jpeglib.h */

#include <errno.h>
#include <fcntl.h>
#include <jpeglib.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PICTURES 8u

struct job {
    const char *folder;
    uint8_t *pixels[PICTURES];
    uint64_t height, width;
    int quality;
    size_t count;
    atomic_size_t next;
};

static void write_file(const char *folder, size_t i, const uint8_t *data, size_t len)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%06zu", folder, i);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || pwrite(fd, data, len, 0) != (ssize_t)len)
        bench_die("cannot write '%s': %s", path, strerror(errno));
    close(fd);
}

static void work(void *user, unsigned thread)
{
    struct job *j = user;
    struct jpeg_compress_struct z;
    struct jpeg_error_mgr manager;
    size_t capacity = (size_t)(j->height * j->width * 3);
    uint8_t *buffer = malloc(capacity);
    (void)thread;
    z.err = jpeg_std_error(&manager);
    jpeg_create_compress(&z);
    for (size_t i; (i = atomic_fetch_add(&j->next, 1)) < j->count;) {
        uint8_t *out = buffer;
        unsigned long len = capacity;
        jpeg_mem_dest(&z, &out, &len);
        z.image_height = (JDIMENSION)j->height;
        z.image_width = (JDIMENSION)j->width;
        z.input_components = 3;
        z.in_color_space = JCS_RGB;
        jpeg_set_defaults(&z);
        jpeg_set_quality(&z, j->quality, TRUE);
        jpeg_start_compress(&z, TRUE);
        while (z.next_scanline < z.image_height) {
            JSAMPROW rows[16];
            for (unsigned k = 0; k < 16; k++)
                rows[k] = j->pixels[i % PICTURES] + ((size_t)z.next_scanline + k) * j->width * 3;
            jpeg_write_scanlines(&z, rows, 16);
        }
        jpeg_finish_compress(&z);
        write_file(j->folder, i, out, len);
    }
    jpeg_destroy_compress(&z);
    free(buffer);
}

struct bench_time floor_write_jpegs(const char *folder, size_t count, uint64_t height, uint64_t width, int quality,
                                    unsigned threads)
{
    struct job j = {.folder = folder, .height = height, .width = width, .quality = quality, .count = count};
    struct mr_dims dims = {.n = 3, .dim = {height, width, 3}};
    for (unsigned i = 0; i < PICTURES; i++) {
        j.pixels[i] = malloc(height * width * 3);
        if (!j.pixels[i])
            bench_die("no memory");
        mr_image_fill(1, i, &dims, 0, j.pixels[i], height * width * 3);
    }
    struct bench_time time = bench_threads(threads, work, &j);
    for (unsigned i = 0; i < PICTURES; i++)
        free(j.pixels[i]);
    return time;
}
