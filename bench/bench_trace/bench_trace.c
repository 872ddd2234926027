/* What tracing costs. bench_trace MODE ...:
 *   prepare DIR FILES          files of 256 KiB to read
 *   single|thread|fork DIR FILES [CALLS]
 *                              open, CALLS x pread of 4 KiB at random blocks, close, for every file; threads: 2,
 * forks: 8. Prints wall time per event of the whole loop, forks and joins included, and CPU time per event of the
 *                              program (not of a collector beside it).
 *   turns DIR FILES FLOOR WORKERS thread|fork
 *                              the same by turns with and without tracing in one process (turns_cost.c); FLOOR is
 * trace_floor.so stamps                     ns of two time stamps and nothing else, which no tracer can do without
 *   region                     ns per empty C region
 *   generate FILE EVENTS [samples]
 *                              a trace of that many events, for measuring readers: long reads of 1000 files by 4
 * threads, or, with `samples`, 8 ranks that open, read and close a million small files of all sizes and compute inflate
 * FILE               the floor of reading a .pfw.gz: ns of CPU time to decompress it and find its lines, and their
 * number encode                     ns and bytes per event of the encoder alone */
#include "base/common.h"
#include "base/rng.h"
#include "event/calls.h"
#include "event/mrt_file.h"
#include "event/mrt_sink.h"
#include "turns_cost.h"

#include <millrace/trace.h>

#include <fcntl.h>
#include <libdeflate.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 64

static const char *dir;
static int files, calls;

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * MR_NS_PER_S + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int prepare(void)
{
    char path[4096], *data = calloc(BLOCKS, BLOCK);
    if (!data || (mkdir(dir, 0700) < 0 && access(dir, W_OK) < 0))
        die(dir);
    for (int i = 0; i < files; i++) {
        snprintf(path, sizeof(path), "%s/sample_%06d.bin", dir, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || write(fd, data, BLOCKS * BLOCK) != BLOCKS * BLOCK || close(fd) < 0)
            die(path);
    }
    free(data);
    return 0;
}

/* Reads the files [lo, hi). */
static void read_files(int lo, int hi)
{
    char path[4096], block[BLOCK];
    uint64_t x = (uint64_t)lo * 2654435761u + 1;
    for (int i = lo; i < hi; i++) {
        snprintf(path, sizeof(path), "%s/sample_%06d.bin", dir, i);
        int fd = open(path, O_RDONLY);
        if (fd < 0)
            die(path);
        for (int c = 0; c < calls; c++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            if (pread(fd, block, BLOCK, (off_t)(x % BLOCKS * BLOCK)) != BLOCK)
                die("pread");
        }
        close(fd);
    }
}

struct share {
    int lo, hi;
};

static void *thread_main(void *arg)
{
    struct share *s = arg;
    read_files(s->lo, s->hi);
    return NULL;
}

static void in_threads(int n)
{
    pthread_t t[16];
    struct share s[16];
    for (int i = 0; i < n; i++) {
        s[i] = (struct share){files * i / n, files * (i + 1) / n};
        if (pthread_create(&t[i], NULL, thread_main, &s[i]))
            die("pthread_create");
    }
    for (int i = 0; i < n; i++)
        pthread_join(t[i], NULL);
}

static void in_forks(int n)
{
    for (int i = 0; i < n; i++)
        if (fork() == 0) {
            read_files(files * i / n, files * (i + 1) / n);
            _exit(0);
        }
    while (wait(NULL) > 0) {
    }
}

static uint64_t cpu_ns(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * MR_NS_PER_S +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * MR_NS_PER_US;
}

static int work(const char *mode)
{
    double events = (double)files * (calls + 2);
    uint64_t cpu = cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN), t0 = clock_ns(CLOCK_MONOTONIC);
    if (!strcmp(mode, "single"))
        read_files(0, files);
    else if (!strcmp(mode, "thread"))
        in_threads(2);
    else
        in_forks(8);
    double wall = (double)(clock_ns(CLOCK_MONOTONIC) - t0);
    cpu = cpu_ns(RUSAGE_SELF) + cpu_ns(RUSAGE_CHILDREN) - cpu;
    fprintf(stderr, "%.2f %.2f\n", wall / events, (double)cpu / events);
    return 0;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint64_t stamp(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return clock_ns(CLOCK_MONOTONIC);
#endif
}

static int stamps(void)
{
    enum { BLOCKS_TIMED = 101, PAIRS = 10000 };
    static double ns[BLOCKS_TIMED];
    static volatile uint64_t last; /* keeps the stamps from being left out where they are ordinary calls */
    for (int i = 0; i < BLOCKS_TIMED; i++) {
        uint64_t t0 = clock_ns(CLOCK_MONOTONIC), sum = 0;
        for (int k = 0; k < PAIRS; k++) {
            sum -= stamp();
            sum += stamp();
        }
        last = sum;
        ns[i] = (double)(clock_ns(CLOCK_MONOTONIC) - t0) / PAIRS;
    }
    (void)last;
    qsort(ns, BLOCKS_TIMED, sizeof(ns[0]), compare_doubles);
    printf("%.1f\n", ns[BLOCKS_TIMED / 2]);
    return 0;
}

static int region(void)
{
    double best = 1e18;
    for (int round = 0; round < 40; round++) {
        uint64_t t0 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < 20000; i++) {
            MILLRACE_REGION_BEGIN(empty, "bench", "empty");
            MILLRACE_REGION_END(empty);
        }
        double ns = (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - t0) / 20000;
        best = MR_MIN(best, ns);
    }
    fprintf(stderr, "%.1f\n", best);
    return 0;
}

/* Half a ring of the workload above, with the noise of real timings. */
static uint64_t fill(struct mr_raw *ring, uint32_t n, uint64_t *seed, uint64_t t)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t r = mr_rng_at(11, MR_RNG_TEST, (*seed)++);
        unsigned call = i % 1000 == 0 ? MR_CALL_open : i % 1000 == 999 ? MR_CALL_close : MR_CALL_pread;
        uint32_t file = 1 + (uint32_t)((*seed / 1000) % 1000);
        uint64_t dur = 260 + (r & 63) + ((r >> 8 & 255) == 0 ? r >> 16 & 4095 : 0);
        ring[i].word[0] = (call == MR_CALL_pread ? (r >> 40) % BLOCKS * BLOCK : MR_NO_OFFSET) << 16 | call;
        ring[i].word[1] = (uint64_t)file << 32 | dur;
        ring[i].word[2] = t;
        ring[i].word[3] = (uint64_t)(call == MR_CALL_pread ? BLOCK : 0) << 16 | 4;
        t += dur + 40 + (r >> 32 & 15);
    }
    return t;
}

struct encoder {
    void *workspace;
    uint8_t *out;
    struct mr_raw *ring;
};

static void encoder_init(struct encoder *e)
{
    e->workspace = aligned_alloc(64, MR_ALIGN_UP(mr_mrt_workspace_bytes(), 64));
    e->out = aligned_alloc(64, MR_MRT_EVENTS_MAX);
    e->ring = calloc(MR_BLOCK_EVENTS, sizeof(*e->ring));
    if (!e->workspace || !e->out || !e->ring)
        die("memory");
    memset(e->workspace, 0, mr_mrt_workspace_bytes());
}

static void encoder_done(struct encoder *e)
{
    free(e->workspace);
    free(e->out);
    free(e->ring);
}

static const struct mr_calibration identity = {
    .tick0 = 1, .mono0 = 1, .real0 = 1700000000000000000ull, .tick1 = 1000001, .mono1 = 1000001};

static int encode(void)
{
    struct encoder e;
    struct mr_mrt_block b;
    uint64_t seed = 0;
    uint32_t taken;
    double best = 1e18;
    size_t bytes = 0;
    encoder_init(&e);
    fill(e.ring, MR_BLOCK_EVENTS, &seed, 1000);
    for (int round = 0; round < 40; round++) {
        uint64_t t0 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        bytes = mr_mrt_encode_records(e.workspace, e.ring, MR_BLOCK_EVENTS, &identity, 1, 1, 0, 0, e.out, &taken, &b);
        double ns = (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - t0) / MR_BLOCK_EVENTS;
        best = MR_MIN(best, ns);
    }
    printf("%.1f %.2f\n", best, (double)bytes / MR_BLOCK_EVENTS);
    encoder_done(&e);
    return 0;
}

static void write_names(struct mr_mrt_writer *w, struct encoder *e)
{
    struct mr_process_info p = {.key = 1,
                                .pid = 1,
                                .start_ns = 1,
                                .start_real_ns = identity.real0,
                                .rank = -1,
                                .world = -1,
                                .local_rank = -1,
                                .local_world = -1,
                                .host = "bench",
                                .host_len = 5,
                                .exe = "bench",
                                .exe_len = 5,
                                .cmdline = "bench",
                                .cmdline_len = 5};
    struct mr_mrt_block b = {.type = MR_MRT_PROCESS, .key = 1, .count = 1};
    b.payload_bytes = (uint32_t)mr_mrt_encode_process(&p, e->out + 64, MR_RING_PROCESS_BYTES);
    mr_mrt_writer_append(w, e->out, mr_mrt_seal(e->out, &b), NULL);
    uint8_t *arena = calloc(1001, 64);
    uint64_t at = 0, taken_bytes;
    uint32_t taken;
    for (int i = 0; arena && i < 1000; i++) {
        struct mr_arena_string *s = (void *)(arena + at);
        s->len = (uint32_t)snprintf(s->text, 40, "/data/sample_%06d.bin", i);
        at += MR_ARENA_STRING_BYTES(s->len);
    }
    size_t n = mr_mrt_encode_strings(e->workspace, arena, at, 1, 1, e->out, MR_MRT_EVENTS_MAX, &taken_bytes, &taken);
    mr_mrt_writer_append(w, e->out, n, NULL);
    free(arena);
}

static int generate(const char *path, uint64_t events)
{
    struct encoder e;
    struct mr_mrt_writer *w;
    struct mr_mrt_block b;
    struct mr_error err = {0};
    uint32_t taken;
    uint64_t seed = 0, t[4] = {1000, 1000, 1000, 1000};
    encoder_init(&e);
    if (mr_mrt_writer_open(path, false, &w, &err) < 0) {
        fprintf(stderr, "bench_trace: %s\n", err.message);
        encoder_done(&e);
        return 5;
    }
    write_names(w, &e);
    for (uint64_t done = 0, k = 0; done < events; k++) {
        uint32_t n = (uint32_t)MR_MIN(events - done, (uint64_t)MR_BLOCK_EVENTS);
        t[k % 4] = fill(e.ring, n, &seed, t[k % 4]);
        size_t bytes = mr_mrt_encode_records(e.workspace, e.ring, n, &identity, 1, (uint32_t)(1 + k % 4), k << 20, 0,
                                             e.out, &taken, &b);
        if (mr_mrt_writer_append(w, e.out, bytes, &err) < 0) {
            fprintf(stderr, "bench_trace: %s\n", err.message);
            encoder_done(&e);
            return 5;
        }
        done += n;
    }
    encoder_done(&e);
    return mr_mrt_writer_close(w, &err) < 0 ? 5 : 0;
}

/* A training run as its ranks record it: sample after sample is opened, read whole and closed by two loader threads,
 * the trainer computes. */
static int generate_samples(const char *path, uint64_t events)
{
    struct mr_mrt_sink *sink;
    struct mr_error err = {0};
    uint64_t clock[8][3] = {{0}}, made = 0, seed = 0;
    uint32_t *file = malloc(1000000 * sizeof(*file));
    if (!file || mr_mrt_sink_open_sim(path, &(struct mr_mrt_sim){.world = 8, .ranks_per_node = 4, .program = "bench"},
                                      &sink, &err) < 0) {
        fprintf(stderr, "bench_trace: %s\n", err.message);
        free(file);
        return 5;
    }
    struct mr_event_sink *s = mr_mrt_sink_get(sink);
    uint32_t compute = mr_mrt_sink_site(sink, "compute", "step"), fetch = mr_mrt_sink_site(sink, "loader", "fetch");
    for (uint32_t i = 0; i < 1000000; i++) {
        char name[64];
        snprintf(name, sizeof(name), "/data/train/%03u/img_%06u.jpeg", i % 1000, i);
        file[i] = s->intern(s, name);
    }
    while (made < events) {
        uint64_t r = mr_rng_at(5, MR_RNG_TEST, seed++);
        uint32_t rank = (uint32_t)(r & 7), tid = 1 + (uint32_t)(r >> 3 & 1);
        uint64_t *t = &clock[rank][tid], begin = *t;
        static const uint16_t kind[4] = {MR_EV_OPEN, MR_EV_STAT, MR_EV_READ, MR_EV_CLOSE};
        for (unsigned k = 0; k < 4; k++) {
            uint64_t dur = (k == 2 ? 20000 : 700) + (r >> (8 + 4 * k) & 511);
            s->emit(s, &(struct mr_event){.kind = kind[k],
                                          .rank = rank,
                                          .tid = tid,
                                          .start_ns = *t,
                                          .dur_ns = dur,
                                          .path_id = file[(r >> 24) % 1000000],
                                          .offset = UINT64_MAX,
                                          .result = k == 2 ? (int64_t)(60000 + (r >> 40 & 0x1ffff)) : 0});
            *t += dur + 300 + (r >> 50 & 63);
        }
        s->emit(s, &(struct mr_event){.kind = MR_EV_REGION,
                                      .rank = rank,
                                      .tid = tid,
                                      .start_ns = begin,
                                      .dur_ns = *t - begin,
                                      .path_id = fetch});
        made += 5;
        if (seed % 32 == 0) {
            s->emit(s, &(struct mr_event){.kind = MR_EV_REGION,
                                          .rank = rank,
                                          .tid = 3,
                                          .start_ns = clock[rank][0],
                                          .dur_ns = 300000,
                                          .path_id = compute});
            clock[rank][0] += 400000;
            made++;
        }
    }
    free(file);
    return mr_mrt_sink_close(sink, &err) < 0 ? 5 : 0;
}

static int inflate_floor(const char *path)
{
    int fd = open(path, O_RDONLY);
    off_t len = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    if (len < 18)
        die(path);
    const uint8_t *data = mmap(NULL, (size_t)len, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    size_t cap = (size_t)len * 64, best = SIZE_MAX, lines = 0;
    char *text = malloc(cap);
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    if (data == MAP_FAILED || !text || !d)
        die("memory");
    for (int round = 0; round < 5; round++) {
        uint64_t t0 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        size_t used = 0, n = 0, in, got;
        while (used < (size_t)len && libdeflate_gzip_decompress_ex(d, data + used, (size_t)len - used, text + n,
                                                                   cap - n, &in, &got) == LIBDEFLATE_SUCCESS) {
            used += in;
            n += got;
        }
        lines = 0;
        for (const char *p = text, *end = text + n; p < end && (p = memchr(p, '\n', (size_t)(end - p))); p++)
            lines++;
        best = MR_MIN(best, (size_t)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - t0));
    }
    printf("%zu %zu\n", best, lines);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "stamps"))
        return stamps();
    if (!strcmp(mode, "region"))
        return region();
    if (!strcmp(mode, "turns") && argc == 7)
        return turns_cost(argv[2], (unsigned)strtoul(argv[3], NULL, 10), argv[4], (unsigned)strtoul(argv[5], NULL, 10),
                          !strcmp(argv[6], "fork"));
    if (!strcmp(mode, "encode"))
        return encode();
    if (!strcmp(mode, "inflate") && argc == 3)
        return inflate_floor(argv[2]);
    if (!strcmp(mode, "generate") && argc >= 4)
        return (argc > 4 ? generate_samples : generate)(argv[2], strtoull(argv[3], NULL, 10));
    if (argc < 4)
        return 2;
    dir = argv[2];
    files = (int)strtol(argv[3], NULL, 10);
    calls = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 998;
    if (!strcmp(mode, "prepare"))
        return prepare();
    return work(mode);
}
