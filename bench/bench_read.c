/* Reading rows: samples in shuffled order from a warm page cache through the public data-set API, against the floor
 * that preads the same ranges (and decodes with the same library where decoding cannot be avoided). Both put samples
 * one after the other into a slab per thread that is larger than the caches, touched beforehand: the destination a
 * batch has. */
#include "base/common.h"
#include "bench.h"
#include "bench_set.h"

#include <millrace/dataset.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET 0.85
#define SLAB_BYTES (32 * MR_MIB)
#define RUN_SECONDS 0.25
#define THREADS_MAX 2u

static const struct read_case {
    struct bench_case set;
    enum floor_decoder decoder;
    double budget;
} cases[] = {
    {{"read npy", "npy", 192, 1, MR_MIB, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read npz", "npz", 192, 1, MR_MIB, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read npz 150 kB", "npz", 1024, 1, 150528, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read npz deflated", "npz", 96, 1, MR_MIB, {{"compression", "zip"}, {"compressibility", "50"}}, 0},
     FLOOR_DEFLATE,
     BUDGET},
    {{"read indexed_binary", "indexed_binary", 8, 192, 131072, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read mmap_indexed_binary", "mmap_indexed_binary", 8, 192, 131072, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read tfrecord", "tfrecord", 8, 200, 114660, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read hdf5", "hdf5", 8, 128, 150528, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read hdf5 chunked", "hdf5", 8, 128, 150528, {{"dims", "224x224x3"}, {"chunk", "224x224x3"}}, 0},
     FLOOR_COPY,
     BUDGET},
    {{"read hdf5 gzip",
      "hdf5",
      4,
      64,
      150528,
      {{"dims", "224x224x3"}, {"chunk", "224x224x3"}, {"compression", "gzip"}},
      0},
     FLOOR_ZLIB,
     BUDGET},
    {{"read tar", "tar", 8, 200, 114660, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read indexed_binary 4 KiB", "indexed_binary", 4, 4096, 4096, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read tfrecord 4 KiB", "tfrecord", 4, 4096, 4096, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read tar 4 KiB", "tar", 4, 4096, 4096, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read hdf5 4 KiB", "hdf5", 4, 4096, 4096, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read raw", "raw", 1024, 1, 114688, {{0}}, 0}, FLOOR_COPY, BUDGET},
    {{"read jpeg", "jpeg", 128, 1, 114660, {{"quality", "85"}}, 0}, FLOOR_JPEG, BUDGET},
    {{"read png", "png", 64, 1, 150000, {{0}}, 0}, FLOOR_PNG, BUDGET},
    {{"read csv", "csv", 8, 32, 16384, {{0}}, 0}, FLOOR_NUMBERS, BUDGET},
    {{"read json", "json", 8, 32, 16384, {{0}}, 0}, FLOOR_JSON, BUDGET},
    {{"read jsonl", "jsonl", 8, 32, 16384, {{0}}, 0}, FLOOR_JSON, BUDGET},
};

struct context {
    const struct read_case *c;
    struct bench_set set;
    uint64_t reads;
    struct mr_dataset_reader *reader[THREADS_MAX];
    struct floor_reader *floor[THREADS_MAX];
    uint8_t *slab[THREADS_MAX];
    unsigned threads;
};

static uint8_t *slot(const struct context *x, unsigned thread, uint64_t k)
{
    uint64_t room = MR_ALIGN_UP(x->set.payload_bytes + FLOOR_SLACK, 4096),
             slots = MR_MAX(SLAB_BYTES / room, (uint64_t)1);
    return x->slab[thread] + k % slots * room;
}

static void product_work(void *user, unsigned thread)
{
    struct context *x = user;
    struct mr_error err = {0};
    struct mr_sample s;
    for (uint64_t k = thread; k < x->reads; k += x->threads) {
        uint64_t id = x->set.order[k % x->set.n];
        if (mr_dataset_read(x->reader[thread], id, 0, slot(x, thread, k / x->threads), x->set.payload_bytes, &s, &err) <
            0)
            bench_die("%s, sample %llu: %s", x->c->set.name, (unsigned long long)id, err.message);
    }
}

static void floor_work(void *user, unsigned thread)
{
    struct context *x = user;
    for (uint64_t k = thread; k < x->reads; k += x->threads)
        floor_read_sample(x->floor[thread], &x->set.samples[x->set.order[k % x->set.n]],
                          slot(x, thread, k / x->threads));
}

static void product(void *user, unsigned threads, struct bench_run *out)
{
    struct context *x = user;
    x->threads = threads;
    out->time = bench_threads(threads, product_work, x);
    out->units = (double)x->reads;
}

static void floor_run(void *user, unsigned threads, struct bench_run *out)
{
    struct context *x = user;
    x->threads = threads;
    out->time = bench_threads(threads, floor_work, x);
    out->units = (double)x->reads;
}

static bool prepare(const struct bench_options *o, struct context *x)
{
    struct mr_error err = {0};
    struct bench_run r;
    if (!bench_set_make(o, &x->c->set, &x->set))
        return false;
    for (unsigned t = 0; t < THREADS_MAX; t++) {
        size_t bytes = MR_ALIGN_UP(SLAB_BYTES + x->set.payload_bytes + 2 * FLOOR_SLACK, 4096);
        if (mr_dataset_reader_create(x->set.ds, &x->reader[t], &err) < 0)
            bench_die("%s", err.message);
        x->slab[t] = aligned_alloc(4096, bytes);
        if (!x->slab[t])
            bench_die("no memory");
        memset(x->slab[t], 1, bytes);
        x->floor[t] = floor_reader_create(x->c->decoder, x->set.raw_bytes);
    }
    x->reads = x->set.n;
    floor_run(x, 1, &r); /* warms up, and says how many passes make a run long enough */
    product(x, 1, &r);
    double passes = RUN_SECONDS / r.time.wall_s;
    x->reads = x->set.n * (uint64_t)MR_MAX(1.0, passes + 0.5);
    return true;
}

/* The floor must have read the same samples, or its speed says nothing. */
static void check_equal(const struct context *x)
{
    struct mr_error err = {0};
    struct mr_sample s;
    uint8_t *dst = x->slab[0];
    for (uint64_t id = 0; id < x->set.n; id += x->set.n / 7 + 1) {
        if (mr_dataset_read(x->reader[0], id, 0, NULL, 0, &s, &err) < 0)
            bench_die("%s: %s", x->c->set.name, err.message);
        memset(dst, 0, x->set.payload_bytes);
        floor_read_sample(x->floor[0], &x->set.samples[id], dst);
        size_t skip = x->c->decoder == FLOOR_DEFLATE ? 128 : 0; /* the .npy header inside the deflated member */
        if (memcmp(dst + skip, s.data, s.bytes) != 0)
            bench_die("%s: the floor reads other bytes than the product (sample %llu)", x->c->set.name,
                      (unsigned long long)id);
    }
}

static void finish(struct context *x)
{
    for (unsigned t = 0; t < THREADS_MAX; t++) {
        mr_dataset_reader_free(x->reader[t]);
        floor_reader_free(x->floor[t]);
        free(x->slab[t]);
    }
    bench_set_remove(&x->set);
}

void bench_read_all(const struct bench_options *o)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        const struct read_case *c = &cases[i];
        struct context x = {.c = c};
        if (!bench_wanted(o, c->set.name) || !bench_case_possible(&c->set))
            continue;
        if (!prepare(o, &x))
            continue;
        check_equal(&x);
        for (unsigned threads = 1; threads <= THREADS_MAX; threads++)
            bench_compare(o, c->set.name, threads, product, floor_run, &x, 1, "samples/s", c->budget);
        finish(&x);
    }
}
