/* Generation rows: the product's generator, manifest included, against the floor that writes files of the same sizes.
 * Both start with an empty folder; deleting the previous run's files is not timed. */
#include "base/common.h"
#include "bench.h"
#include "bench_case.h"
#include "floors.h"
#include "format/image_synth.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct bench_case cases[] = {
    {.name = "gen npy", .format = "npy", .files = 384, .samples_per_file = 1, .size_bytes = MR_MIB, .budget = 0.8},
    {.name = "gen npz", .format = "npz", .files = 384, .samples_per_file = 1, .size_bytes = MR_MIB, .budget = 0.8},
    {.name = "gen npz 64 MiB",
     .format = "npz",
     .files = 6,
     .samples_per_file = 1,
     .size_bytes = 64 * MR_MIB,
     .budget = 0.8},
    {.name = "gen indexed_binary",
     .format = "indexed_binary",
     .files = 8,
     .samples_per_file = 384,
     .size_bytes = 131072,
     .budget = 0.8},
    {.name = "gen tfrecord",
     .format = "tfrecord",
     .files = 8,
     .samples_per_file = 400,
     .size_bytes = 114660,
     .budget = 0.8},
    {.name = "gen hdf5", .format = "hdf5", .files = 8, .samples_per_file = 384, .size_bytes = 131072, .budget = 0.8},
    {.name = "gen indexed_binary 4 KiB",
     .format = "indexed_binary",
     .files = 8,
     .samples_per_file = 8192,
     .size_bytes = 4096,
     .budget = 0.8},
    {.name = "gen tfrecord 4 KiB",
     .format = "tfrecord",
     .files = 8,
     .samples_per_file = 8192,
     .size_bytes = 4096,
     .budget = 0.8},
    {.name = "gen csv", .format = "csv", .files = 16, .samples_per_file = 16, .size_bytes = 65536},
};

struct context {
    const struct bench_case *c;
    char product[4096], floor[4096];
    struct floor_file *files; /* what the product wrote, index files included */
    uint64_t bytes;
    size_t n;
    bool hot;
    uint64_t height, width; /* jpeg */
    int quality;
};

/* The data files of a set, collected by nftw, which has no argument for a context. */
static struct context *collecting;

static int collect(const char *path, const struct stat *st, int type, struct FTW *at)
{
    struct context *x = collecting;
    (void)at;
    if (type != FTW_F || strstr(path, ".mrm") || strstr(path, "/."))
        return 0;
    struct floor_file f = {.data = malloc((size_t)st->st_size + 1), .bytes = (uint64_t)st->st_size};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    x->files = realloc(x->files, (x->n + 1) * sizeof(*x->files));
    if (!x->files || !f.data || fd < 0 || read(fd, f.data, f.bytes) != (ssize_t)f.bytes)
        bench_die("cannot hold '%s' in memory", path);
    close(fd);
    x->files[x->n++] = f;
    x->bytes += (uint64_t)st->st_size;
    return 0;
}

static void product(void *user, unsigned threads, struct bench_run *out)
{
    struct context *x = user;
    bench_remove_tree(x->product);
    out->time = bench_case_generate(x->c, x->product, threads);
    if (!x->n) {
        collecting = x;
        nftw(x->product, collect, 32, FTW_PHYS);
    }
    out->units = (double)x->bytes;
}

static void make_floor_folder(const struct context *x)
{
    bench_remove_tree(x->floor);
    if (mkdir(x->floor, 0777) != 0)
        bench_die("cannot create '%s'", x->floor);
}

static void floor_files(void *user, unsigned threads, struct bench_run *out)
{
    struct context *x = user;
    make_floor_folder(x);
    out->time = floor_write_files(x->floor, x->files, x->n, x->hot, threads);
    out->units = (double)x->bytes;
}

static void product_images(void *user, unsigned threads, struct bench_run *out)
{
    struct context *x = user;
    bench_remove_tree(x->product);
    out->time = bench_case_generate(x->c, x->product, threads);
    out->units = (double)x->c->files;
}

static void floor_images(void *user, unsigned threads, struct bench_run *out)
{
    struct context *x = user;
    make_floor_folder(x);
    out->time = floor_write_jpegs(x->floor, (size_t)x->c->files, x->height, x->width, x->quality, threads);
    out->units = (double)x->c->files;
}

static void paths(const struct bench_options *o, struct context *x)
{
    snprintf(x->product, sizeof x->product, "%s/gen", o->dir);
    snprintf(x->floor, sizeof x->floor, "%s/floor", o->dir);
}

static void finish(struct context *x)
{
    bench_remove_tree(x->product);
    bench_remove_tree(x->floor);
    for (size_t i = 0; i < x->n; i++)
        free(x->files[i].data);
    free(x->files);
}

/* One run outside the measurement: warms up, and tells of a format that does not work. */
static bool works(const struct context *x)
{
    struct mr_error err = {0};
    struct bench_time time;
    bench_remove_tree(x->product);
    if (bench_case_try(x->c, x->product, 2, &time, &err) >= 0)
        return true;
    bench_failed(x->c->name, err.message);
    return false;
}

static void images(const struct bench_options *o, unsigned threads)
{
    static const struct bench_case c = {.name = "gen jpeg",
                                        .format = "jpeg",
                                        .files = 256,
                                        .samples_per_file = 1,
                                        .size_bytes = 114660,
                                        .extra = {{"quality", "85"}}};
    struct mr_writer_spec spec = {.samples = 1, .quality = 85};
    struct mr_sample_info info = {0};
    if (mr_format_find(c.format, NULL)->shape(&spec, c.size_bytes, &info, NULL) < 0)
        bench_die("cannot choose the size of images");
    struct context x = {.c = &c, .height = info.dims.dim[0], .width = info.dims.dim[1], .quality = 85};
    paths(o, &x);
    bench_compare(o, c.name, threads, product_images, floor_images, &x, 1, "images/s", 0.9);
    finish(&x);
}

void bench_generate_all(const struct bench_options *o)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        if (!bench_wanted(o, cases[i].name) || !bench_case_possible(&cases[i]))
            continue;
        for (unsigned threads = 1; threads <= 2; threads++) {
            struct context x = {.c = &cases[i], .hot = o->hot};
            paths(o, &x);
            if (!works(&x))
                break;
            bench_compare(o, cases[i].name, threads, product, floor_files, &x, 1e6, "MB/s", cases[i].budget);
            finish(&x);
        }
    }
    for (unsigned threads = 1; threads <= 2 && bench_wanted(o, "gen jpeg"); threads++)
        images(o, threads);
}
