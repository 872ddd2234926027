/* Saving and loading the caller's tensors against the floors of the same run, by turns:
 *   memcpy       the same bytes into memory that was touched before, same number of threads   <-> what save() blocks
 *   direct       O_DIRECT writes of the same bytes, 8 MiB each, same threads, then fsync       <-> until it is durable
 *   direct read  O_DIRECT reads of the same bytes, same threads, buffers used again            <-> a verified load
 * usage: bench_state FOLDER [MIB] [ROUNDS]; one line of JSON per round. bench/run_state makes the table. */
#include "base/clock.h"
#include "base/common.h"
#include "base/workers.h"

#include <millrace/state.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE (8ull << 20)
#define READERS 8
#define WRITERS 2

static uint8_t *from, *to;
static uint64_t bytes;
static int fd;
static uint8_t *read_buf[READERS];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int copy_piece(struct mr_worker_ctx *ctx, uint64_t i, struct mr_error *err)
{
    (void)ctx, (void)err;
    memcpy(to + i * PIECE, from + i * PIECE, PIECE);
    return 0;
}

static int write_piece(struct mr_worker_ctx *ctx, uint64_t i, struct mr_error *err)
{
    (void)ctx, (void)err;
    if (pwrite(fd, to + i * PIECE, PIECE, (off_t)(i * PIECE)) != (ssize_t)PIECE)
        die("pwrite");
    return 0;
}

static int read_piece(struct mr_worker_ctx *ctx, uint64_t i, struct mr_error *err)
{
    (void)err;
    if (pread(fd, read_buf[ctx->thread], PIECE, (off_t)(i * PIECE)) != (ssize_t)PIECE)
        die("pread");
    return 0;
}

static double run(unsigned threads, mr_work_fn *fn)
{
    uint64_t start = mr_now_ns();
    mr_workers_run(threads, bytes / PIECE, 1, fn, NULL, NULL, NULL);
    return (double)(mr_now_ns() - start) * 1e-9;
}

static double floor_write(const char *path)
{
    unlink(path);
    uint64_t start = mr_now_ns();
    fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)bytes))
        die(path);
    run(WRITERS, write_piece);
    if (fsync(fd))
        die("fsync");
    return (double)(mr_now_ns() - start) * 1e-9;
}

static struct mr_tensor *make_tensors(size_t n, uint64_t *shape)
{
    struct mr_tensor *t = calloc(n, sizeof(*t));
    *shape = bytes / n / 4;
    for (size_t i = 0; i < n; i++) {
        char *name = malloc(32);
        snprintf(name, 32, "layer.%zu.weight", i);
        t[i] =
            (struct mr_tensor){.name = name, .dtype = "F32", .dims = 1, .shape = shape, .data = from + i * *shape * 4};
    }
    return t;
}

static double load(const char *folder)
{
    struct mr_state_reader *r;
    struct mr_error e;
    struct mr_state_params p = {
        .size = sizeof p, .folder = folder, .step = MR_ALL_STEPS, .threads = READERS, .direct = true};
    uint64_t start = mr_now_ns(), at = 0;
    if (mr_state_open(&p, &r, &e))
        return fprintf(stderr, "%s\n", e.message), exit(1), 0;
    size_t n = mr_state_tensors(r);
    struct mr_state_range *g = calloc(n, sizeof(*g));
    for (size_t i = 0; i < n; at += mr_state_tensor(r, i++)->bytes)
        g[i] = (struct mr_state_range){i, 0, mr_state_tensor(r, i)->bytes, to + at, 0};
    if (mr_state_read(r, g, n, &e))
        return fprintf(stderr, "%s\n", e.message), exit(1), 0;
    free(g);
    mr_state_close(r);
    return (double)(mr_now_ns() - start) * 1e-9;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return fprintf(stderr, "usage: bench_state FOLDER [MIB] [ROUNDS]\n"), 2;
    unsigned cpus = mr_cpus_available(), rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 5;
    bytes = (argc > 2 ? (uint64_t)atoi(argv[2]) : 1024) << 20;
    char floor_path[1024];
    snprintf(floor_path, sizeof floor_path, "%s/floor.bin", argv[1]);
    from = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (from == MAP_FAILED || to == MAP_FAILED)
        die("mmap");
    madvise(from, bytes, MADV_HUGEPAGE);
    madvise(to, bytes, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)from)[i] = i * 0x9e3779b97f4a7c15ull;
    memset(to, 1, bytes);
    for (int i = 0; i < READERS; i++)
        read_buf[i] = memset(aligned_alloc(4096, PIECE), 0, PIECE);
    uint64_t shape;
    struct mr_state state = {sizeof state, make_tensors(200, &shape), 200, "{}", NULL, NULL};
    struct mr_saver_params p = {.size = sizeof p,
                                .folder = argv[1],
                                .world = 1,
                                .fsync = true,
                                .direct = true,
                                .write_threads = argc > 4 ? (unsigned)atoi(argv[4]) : 0,
                                .keep_last = 1};
    struct mr_saver *s;
    struct mr_error e;
    if (mr_saver_open(&p, &s, &e))
        return fprintf(stderr, "%s\n", e.message), 1;
    for (unsigned k = 0; k <= rounds; k++) {
        struct mr_save_result r;
        struct mr_saved done;
        double copy = run(cpus, copy_piece);
        if (mr_saver_save(s, k, &state, &r, &e) || mr_saver_wait(s, MR_ALL_STEPS, &e))
            return fprintf(stderr, "%s\n", e.message), 1;
        mr_saver_last(s, &done);
        double written = floor_write(floor_path);
        double read_floor = run(READERS, read_piece), loaded = load(argv[1]);
        close(fd);
        if (memcmp(from, to, shape * 4 * 200) != 0)
            return fprintf(stderr, "the load differs from what was saved\n"), 1;
        printf("{\"round\": %u, \"bytes\": %llu, \"memcpy_s\": %.4f, \"blocked_s\": %.4f, \"direct_write_s\": %.4f, "
               "\"durable_s\": %.4f, \"direct_read_s\": %.4f, \"load_s\": %.4f}\n",
               k, (unsigned long long)bytes, copy, (double)r.blocked_ns * 1e-9, written,
               (double)(done.durable_ns - done.start_ns) * 1e-9, read_floor, loaded);
        fflush(stdout);
    }
    unlink(floor_path);
    return mr_saver_close(s, &e) ? 1 : 0;
}
