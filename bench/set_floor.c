/* The floor of a data set that is already there, as a program of its own: `bench_floor FOLDER THREADS BATCH SLABS
 * PASSES` reads (and decodes) every sample of the set once per pass, in order, with THREADS threads, into SLABS slabs
 * of BATCH rows, and prints one line per pass: samples, seconds, CPU seconds. It is what bench/run_dlio holds the other
 * two against. Whole batches only: what is left over at the end is not read, as with drop_last. Nothing else is done:
 * no order between threads, no hand-over, no checksum. */
#include "base/common.h"
#include "floors.h"

#include <errno.h>
#include <fcntl.h>
#include <millrace/dataset.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define THREADS_MAX 16u

struct work {
    struct floor_sample *samples;
    uint64_t n, rows, row_bytes, payload_bytes, raw_bytes;
    uint8_t *slab;
    struct floor_reader *reader[THREADS_MAX];
    _Atomic uint64_t ticket;
};

static uint64_t number(const char *text, uint64_t max)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end || end == text || v < 1 || v > max)
        bench_die("'%s' is not a number from 1 to %llu", text, (unsigned long long)max);
    return v;
}

/* Where every sample lies. Files of several samples are opened here, once. */
static void locate(struct mr_dataset *ds, struct work *w)
{
    struct mr_error err = {0};
    struct mr_dataset_reader *r;
    static struct mr_sample_place place, next;
    uint64_t file = UINT64_MAX;
    char *path = NULL;
    int fd = -1;
    if (mr_dataset_reader_create(ds, &r, &err) < 0)
        bench_die("%s", err.message);
    for (uint64_t id = 0; id < w->n; id++) {
        struct mr_sample sample;
        if (mr_dataset_locate(ds, id, &place, &err) < 0 || mr_dataset_read(r, id, 0, NULL, 0, &sample, &err) < 0)
            bench_die("%s", err.message);
        if (place.file != file) {
            bool shared = id + 1 < mr_dataset_count(ds) && mr_dataset_locate(ds, id + 1, &next, &err) == 0 &&
                          next.file == place.file;
            file = place.file;
            path = strdup(place.path);
            fd = shared ? open(path, O_RDONLY | O_CLOEXEC) : -1;
            if (!path || (shared && fd < 0))
                bench_die("cannot open '%s': %s", place.path, strerror(errno));
        }
        w->samples[id] = (struct floor_sample){
            .path = path, .fd = fd, .offset = place.offset, .bytes = place.bytes, .decoded_bytes = sample.bytes};
        w->payload_bytes = MR_MAX(w->payload_bytes, (uint64_t)sample.bytes);
        w->raw_bytes = MR_MAX(w->raw_bytes, place.bytes);
    }
    mr_dataset_reader_free(r);
}

/* Both must give the same bytes, or the floor floors something else. */
static void compare(struct mr_dataset *ds, struct work *w)
{
    struct mr_error err = {0};
    struct mr_dataset_reader *r;
    if (mr_dataset_reader_create(ds, &r, &err) < 0)
        bench_die("%s", err.message);
    for (uint64_t id = 0; id < w->n; id += MR_MAX(1, w->n / 8)) {
        struct mr_sample sample;
        if (mr_dataset_read(r, id, 0, NULL, 0, &sample, &err) < 0)
            bench_die("%s", err.message);
        floor_read_sample(w->reader[0], &w->samples[id], w->slab);
        if (memcmp(sample.data, w->slab, sample.bytes) != 0)
            bench_die("sample %llu: the floor reads other bytes", (unsigned long long)id);
    }
    mr_dataset_reader_free(r);
}

static void pass(void *user, unsigned thread)
{
    struct work *w = user;
    for (uint64_t k; (k = atomic_fetch_add(&w->ticket, 1)) < w->n;)
        floor_read_sample(w->reader[thread], &w->samples[k], w->slab + k % w->rows * w->row_bytes);
}

static void prepare(struct mr_dataset *ds, enum floor_decoder decoder, unsigned threads, struct work *w)
{
    locate(ds, w);
    w->row_bytes = MR_ALIGN_UP(w->payload_bytes + FLOOR_SLACK, 4096);
    w->slab = mmap(NULL, w->rows * w->row_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w->slab == MAP_FAILED)
        bench_die("no memory for %llu rows", (unsigned long long)w->rows);
    madvise(w->slab, w->rows * w->row_bytes, MADV_HUGEPAGE); /* as the loader does */
    memset(w->slab, 1, w->rows * w->row_bytes);
    for (unsigned t = 0; t < threads; t++)
        w->reader[t] = floor_reader_create(decoder, decoder == FLOOR_COPY ? 1 : w->raw_bytes);
    compare(ds, w);
}

static void finish(struct mr_dataset *ds, unsigned threads, struct work *w)
{
    for (uint64_t id = w->n; id-- > 0;) /* backwards: a path must outlive the question whose it is */
        if (id == 0 || w->samples[id].path != w->samples[id - 1].path) {
            if (w->samples[id].fd >= 0)
                close(w->samples[id].fd);
            free((char *)(uintptr_t)w->samples[id].path);
        }
    for (unsigned t = 0; t < threads; t++)
        floor_reader_free(w->reader[t]);
    munmap(w->slab, w->rows * w->row_bytes);
    free(w->samples);
    mr_dataset_close(ds);
}

int main(int argc, char **argv)
{
    struct mr_error err = {0};
    struct mr_dataset *ds;
    struct mr_dataset_info info;
    struct work w = {0};
    struct rlimit files;
    if (argc != 6)
        bench_die("usage: bench_floor FOLDER THREADS BATCH SLABS PASSES");
    unsigned threads = (unsigned)number(argv[2], THREADS_MAX);
    uint64_t batch = number(argv[3], 1u << 20), passes = number(argv[5], 1000);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (mr_dataset_open(argv[1], NULL, &ds, &err) < 0)
        bench_die("%s", err.message);
    mr_dataset_get_info(ds, &info);
    bool jpeg = strcmp(info.format, "jpeg") == 0;
    w.n = mr_dataset_count(ds) / batch * batch;
    w.rows = number(argv[4], 1000) * batch;
    if (w.n == 0 || !(w.samples = calloc(w.n, sizeof(*w.samples))))
        bench_die("no full batch, or no memory");
    prepare(ds, jpeg ? FLOOR_JPEG : FLOOR_COPY, threads, &w);
    for (uint64_t p = 0; p < passes; p++) {
        atomic_store(&w.ticket, 0);
        struct bench_time t = bench_threads(threads, pass, &w);
        printf("%llu %.9f %.9f\n", (unsigned long long)w.n, t.wall_s, t.cpu_s);
    }
    finish(ds, threads, &w);
    return fflush(stdout) == 0 ? 0 : 1;
}
