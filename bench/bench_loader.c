/* Loader rows. Warm: batches through <millrace/loader.h> against threads that only read (and decode) the same samples
 * into rows of a slab of the same size. Cold: the loader with direct reads through a queue against a floor that keeps
 * as many direct reads in flight with io_uring. Ceiling: no storage at all (null store), small samples. */
#include "base/common.h"
#include "bench.h"
#include "bench_set.h"

#include <fcntl.h>
#include <math.h>
#include <millrace/loader.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOKAHEAD 3u
#define RUN_SECONDS 0.3
#define THREADS_MAX 2u
#define QUEUE_DEPTH 32u
#define CROP 360u /* of preprocessing */
#define SIDE 224u

static const struct loader_case {
    struct bench_case set;
    enum floor_decoder decoder;
    uint32_t batch;
    bool cold;
    unsigned lookahead; /* 0: LOOKAHEAD */
    bool preprocess;    /* the middle of the picture, resized to SIDE x SIDE, float32, in planes */
    bool
        aligned; /* cold: samples are moved to the aligned start of their row, which the floor does not do: no budget */
    bool tiers;  /* samples come from the node's RAM class; the floor copies them from shared memory with 4 KiB pages */
} cases[] = {
    {{"loader npz 1 MiB", "npz", 128, 1, MR_MIB, {{0}}, 0}, FLOOR_COPY, 8, false, 0, false, false, false},
    {{"loader jpeg", "jpeg", 128, 1, 114660, {{"quality", "85"}}, 0}, FLOOR_JPEG, 16, false, 0, false, false, false},
    {{"loader jpeg, cropped and resized", "jpeg", 128, 1, 114660, {{"quality", "85"}}, 0},
     FLOOR_JPEG,
     16,
     false,
     0,
     true,
     false,
     false},
    {{"loader hdf5 x1", "hdf5", 128, 1, MR_MIB, {{0}}, 0}, FLOOR_COPY, 8, false, 0, false, false, false},
    {{"loader hdf5 x16", "hdf5", 8, 16, MR_MIB, {{0}}, 0}, FLOOR_COPY, 8, false, 0, false, false, false},
    {{"loader indexed_binary", "indexed_binary", 8, 192, 131072, {{0}}, 0},
     FLOOR_COPY,
     64,
     false,
     0,
     false,
     false,
     false},
    {{"loader unet3d, npz 155 MB", "npz", 8, 1, 155700000, {{0}}, 0}, FLOOR_COPY, 2, false, 1, false, false, false},
    {{"cold loader indexed_binary", "indexed_binary", 8, 192, 131072, {{0}}, 0},
     FLOOR_COPY,
     64,
     true,
     0,
     false,
     false,
     false},
    {{"cold loader npz 1 MiB", "npz", 384, 1, MR_MIB, {{0}}, 0}, FLOOR_COPY, 8, true, 0, false, false, false},
    {{"cold loader npz 1 MiB, aligned rows", "npz", 384, 1, MR_MIB, {{0}}, 0},
     FLOOR_COPY,
     8,
     true,
     0,
     false,
     true,
     false},
    {{"cold loader npz 112 KiB", "npz", 1536, 1, 114660, {{0}}, 0}, FLOOR_COPY, 64, true, 0, false, false, false},
    {{"cold loader hdf5 x16", "hdf5", 96, 16, 114660, {{0}}, 0}, FLOOR_COPY, 64, true, 0, false, false, false},
    {{"cold loader tfrecord", "tfrecord", 8, 192, 114660, {{0}}, 0}, FLOOR_COPY, 64, true, 0, false, false, false},
    {{"RAM class, 81 kB", "raw", 1500, 1, 81000, {{0}}, 0}, FLOOR_COPY, 64, false, 0, false, false, true},
    {{"RAM class, 1 MB", "raw", 128, 1, 1000000, {{0}}, 0}, FLOOR_COPY, 8, false, 0, false, false, true},
};

struct context {
    const struct loader_case *c;
    struct bench_set set;
    unsigned epochs;
    struct mr_loader *loader[THREADS_MAX + 1]; /* by number of threads */
    uint64_t next_epoch;
    uint8_t *slab;
    uint64_t rows, row_bytes;
    struct floor_reader *floor[THREADS_MAX];
    struct mr_preprocess_params preprocess;
    struct floor_preprocess *floor_preprocess[THREADS_MAX];
    uint8_t *picture[THREADS_MAX]; /* the floor's, decoded */
    uint8_t *shared;               /* the floor's samples, for `tiers` */
    _Atomic uint64_t ticket;
};

static struct mr_loader *open_with(const struct mr_loader_params *p)
{
    struct mr_loader *l;
    struct mr_error err = {0};
    if (mr_loader_open(p, &l, &err) < 0)
        bench_die("loader of '%s': %s", p->dataset, err.message);
    return l;
}

static struct mr_loader *open_loader(const struct context *x, unsigned threads)
{
    struct mr_loader_params p;
    mr_loader_params_init(&p);
    p.dataset = x->set.folder;
    p.store = x->c->cold ? "uring" : "posix";
    p.batch_size = x->c->batch;
    p.threads = threads;
    p.lookahead = x->c->lookahead ? x->c->lookahead : LOOKAHEAD;
    p.last_epoch = x->c->cold ? 0 : UINT64_MAX; /* cold: the page cache is dropped in between */
    p.preprocess = x->c->preprocess ? &x->preprocess : NULL;
    if (x->c->tiers) {
        p.policy = "millrace";
        p.tiers = "ram=1GiB,staging=64MiB"; /* more than the set, which all of it fits then */
    }
    if (x->c->cold) {
        p.flags = MR_LOADER_DIRECT | (x->c->aligned ? 0 : MR_LOADER_IN_PLACE);
        p.io = MR_LOADER_IO_QUEUE;
        p.queue_depth = QUEUE_DEPTH;
    }
    return open_with(&p);
}

/* One epoch; returns its samples. */
static uint64_t consume(struct mr_loader *l, uint64_t epoch)
{
    struct mr_error err = {0};
    struct mr_batch *b;
    uint64_t samples = 0;
    int rc = mr_loader_start_epoch(l, epoch, &err);
    while (rc >= 0 && (rc = mr_loader_next(l, &b, &err)) > 0) {
        samples += b->n;
        mr_loader_release(l, b);
    }
    if (rc < 0)
        bench_die("loader: %s", err.message);
    return samples;
}

static void product(void *user, unsigned threads, struct bench_run *out)
{
    struct context *x = user;
    if (x->c->cold)
        bench_set_drop_cache(&x->set);
    struct bench_time start = bench_clock();
    for (unsigned e = 0; e < x->epochs; e++)
        out->units += (double)consume(x->loader[threads], x->next_epoch++);
    out->time = bench_since(start);
    if (out->units != (double)(x->epochs * x->set.n))
        bench_die("%s: the loader delivered %.0f samples, want %llu", x->c->set.name, out->units,
                  (unsigned long long)(x->epochs * x->set.n));
}

static void floor_work(void *user, unsigned thread)
{
    struct context *x = user;
    for (uint64_t k; (k = atomic_fetch_add(&x->ticket, 1)) < x->epochs * x->set.n;) {
        uint8_t *row = x->slab + k % x->rows * x->row_bytes;
        const struct floor_sample *s = &x->set.samples[x->set.order[k % x->set.n]];
        if (x->shared) {
            memcpy(row, x->shared + x->set.order[k % x->set.n] * x->row_bytes, x->set.payload_bytes);
            continue;
        }
        floor_read_sample(x->floor[thread], s, x->c->preprocess ? x->picture[thread] : row);
        if (x->c->preprocess)
            floor_preprocess(x->floor_preprocess[thread], x->picture[thread], (float *)row);
    }
}

static void floor_run(void *user, unsigned threads, struct bench_run *out)
{
    struct context *x = user;
    atomic_store(&x->ticket, 0);
    if (x->c->cold) {
        bench_set_drop_cache(&x->set);
        out->time =
            floor_read_direct(x->set.samples, x->set.order, x->set.n, x->slab, x->rows, x->row_bytes, QUEUE_DEPTH);
    } else {
        out->time = bench_threads(threads, floor_work, x);
    }
    out->units = (double)(x->epochs * x->set.n);
}

/* Both sides of preprocessing, and a look whether they make the same picture. */
static void prepare_preprocessing(struct context *x)
{
    struct mr_error err = {0};
    struct mr_dataset_reader *r;
    struct mr_preprocess *ours;
    struct mr_sample s;
    size_t bytes;
    static float a[3 * SIDE * SIDE], b[3 * SIDE * SIDE];
    mr_preprocess_params_init(&x->preprocess);
    x->preprocess.crop = MR_CROP_CENTER;
    x->preprocess.crop_height = x->preprocess.crop_width = CROP;
    x->preprocess.height = x->preprocess.width = SIDE;
    x->preprocess.to_float = x->preprocess.planar = true;
    if (mr_dataset_reader_create(x->set.ds, &r, &err) < 0 || mr_dataset_read(r, 0, 0, NULL, 0, &s, &err) < 0 ||
        mr_preprocess_create(&x->preprocess, &ours, &err) < 0 ||
        mr_preprocess_run(ours, 0, 0, &s, a, sizeof a, &bytes, &err) < 0)
        bench_die("%s: %s", x->c->set.name, err.message);
    for (unsigned t = 0; t < THREADS_MAX; t++) {
        x->floor_preprocess[t] = floor_preprocess_create((unsigned)s.dims[0], (unsigned)s.dims[1], CROP, SIDE);
        x->picture[t] = calloc(1, x->set.payload_bytes + FLOOR_SLACK);
        if (!x->picture[t])
            bench_die("no memory");
    }
    floor_preprocess(x->floor_preprocess[0], s.data, b);
    for (size_t i = 0; i < MR_ARRAY_LEN(a); i++)
        if (!(fabsf(a[i] - b[i]) < 1e-4f))
            bench_die("%s: the floor makes another picture: %g, want %g", x->c->set.name, (double)b[i], (double)a[i]);
    mr_preprocess_free(ours);
    mr_dataset_reader_free(r);
}

/* The samples' memory of the floor: shared, small pages, all of them there. */
static void prepare_shared(struct context *x)
{
    uint64_t bytes = x->set.n * x->row_bytes;
    int fd = memfd_create("bench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        bench_die("no shared memory");
    x->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (x->shared == MAP_FAILED)
        bench_die("no shared memory");
    madvise(x->shared, bytes, MADV_NOHUGEPAGE);
    memset(x->shared, 2, bytes);
    close(fd);
}

static void prepare(struct context *x)
{
    struct bench_run r = {0};
    unsigned lookahead = x->c->lookahead ? x->c->lookahead : LOOKAHEAD;
    x->epochs = 1;
    x->row_bytes = MR_ALIGN_UP(MR_MAX(x->set.payload_bytes, x->set.raw_bytes) + 2 * FLOOR_SLACK, 4096);
    if (x->c->preprocess) {
        prepare_preprocessing(x);
        x->row_bytes = MR_ALIGN_UP(3 * SIDE * SIDE * sizeof(float), 4096);
    }
    x->rows = (uint64_t)(lookahead + 1) * x->c->batch;
    x->slab = mmap(NULL, x->rows * x->row_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (x->slab == MAP_FAILED)
        bench_die("no memory");
    madvise(x->slab, x->rows * x->row_bytes, MADV_HUGEPAGE); /* as the loader does */
    memset(x->slab, 1, x->rows * x->row_bytes);
    if (x->c->tiers)
        prepare_shared(x);
    for (unsigned t = 1; t <= (x->c->cold ? 1 : THREADS_MAX); t++) {
        x->floor[t - 1] = floor_reader_create(x->c->decoder, x->set.raw_bytes);
        x->loader[t] = open_loader(x, t);
    }
    if (x->c->cold) {
        bench_set_reopen(&x->set, O_DIRECT);
        return;
    }
    for (unsigned t = THREADS_MAX; x->c->tiers && t > 0; t--)
        product(x, t, &(struct bench_run){0}); /* fills the class */
    product(x, 1, &r);                         /* warms up, and says how many epochs make a run long enough */
    x->epochs = (unsigned)MR_MAX(1.0, RUN_SECONDS / r.time.wall_s + 0.5);
}

static void finish(struct context *x)
{
    for (unsigned t = 1; t <= THREADS_MAX; t++) {
        mr_loader_close(x->loader[t]);
        if (x->floor[t - 1])
            floor_reader_free(x->floor[t - 1]);
    }
    for (unsigned t = 0; t < THREADS_MAX; t++) {
        floor_preprocess_free(x->floor_preprocess[t]);
        free(x->picture[t]);
    }
    munmap(x->slab, x->rows * x->row_bytes);
    if (x->shared)
        munmap(x->shared, x->set.n * x->row_bytes);
    bench_set_remove(&x->set);
}

static void one_case(const struct bench_options *o, const struct loader_case *c)
{
    struct context x = {.c = c};
    if (c->cold && !floor_can_read_direct(o->dir)) {
        bench_absent(c->set.name, "O_DIRECT with io_uring");
        return;
    }
    if (!bench_set_make(o, &c->set, &x.set))
        return;
    prepare(&x);
    for (unsigned threads = 1; threads <= (c->cold ? 1 : THREADS_MAX); threads++)
        bench_compare(o, c->set.name, threads, product, floor_run, &x, 1, "samples/s",
                      c->aligned ? 0
                      : c->cold  ? 0.8
                                 : 0.9);
    finish(&x);
}

/* What the loader itself can do: nothing is read, samples are small. */
static void ceiling(const struct bench_options *o)
{
    static const struct bench_case c = {.name = "loader ceiling, null store",
                                        .format = "indexed_binary",
                                        .files = 4,
                                        .samples_per_file = 65536,
                                        .size_bytes = 64};
    char folder[4096];
    double best = 0;
    if (!bench_wanted(o, c.name))
        return;
    snprintf(folder, sizeof folder, "%s/null", o->dir);
    bench_case_generate(&c, folder, 2);
    struct mr_loader_params p;
    mr_loader_params_init(&p);
    p.dataset = folder;
    p.store = "null(size=1GiB,fill=none)";
    p.batch_size = 1024;
    p.threads = THREADS_MAX;
    p.lookahead = LOOKAHEAD;
    struct mr_loader *l = open_with(&p);
    consume(l, 0);
    for (unsigned i = 0; i < 2 * o->rounds; i++) {
        struct bench_time start = bench_clock();
        uint64_t n = consume(l, 1 + i) + consume(l, 1000 + i);
        best = MR_MAX(best, (double)n / bench_since(start).wall_s);
    }
    mr_loader_close(l);
    bench_remove_tree(folder);
    bench_value(c.name, best / 1e6, "M samples/s", false, 2);
}

void bench_loader_all(const struct bench_options *o)
{
    ceiling(o);
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++)
        if (bench_wanted(o, cases[i].set.name) && bench_case_possible(&cases[i].set))
            one_case(o, &cases[i]);
}
