/* What tracing costs. bench_trace MODE ...:
 *   prepare DIR FILES          files of 256 KiB to read
 *   single|thread|fork DIR FILES CALLS
 *                              open, CALLS x pread of 4 KiB at random blocks, close, for every file; threads: 2, forks: 8.
 *                              Prints the least CPU time per call over rounds of one file: what other users of the machine
 *                              do does not enter, and half a ring's worth of draining does.
 *   region                     ns per empty C region
 *   generate FILE EVENTS       a trace of that many events, for measuring readers
 *   encode                     ns and bytes per event of the encoder alone */
#include "base/common.h"
#include "base/rng.h"
#include "event/calls.h"
#include "event/mrt_file.h"

#include <millrace/trace.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* Reads the files [lo, hi); returns the least CPU time of one file, ns per call. */
static double read_files(int lo, int hi)
{
    char path[4096], block[BLOCK];
    double best = 1e18;
    for (int i = lo; i < hi; i++) {
        snprintf(path, sizeof(path), "%s/sample_%06d.bin", dir, i);
        uint64_t t0 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        int fd = open(path, O_RDONLY);
        if (fd < 0)
            die(path);
        for (int c = 0; c < calls; c++) {
            uint64_t at = mr_rng_at(7, MR_RNG_TEST, (uint64_t)i * 100003 + (uint64_t)c) % BLOCKS;
            if (pread(fd, block, BLOCK, (off_t)(at * BLOCK)) != BLOCK)
                die("pread");
        }
        close(fd);
        double ns = (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - t0) / (calls + 2);
        best = MR_MIN(best, ns);
    }
    return best;
}

struct share {
    int lo, hi;
    double best;
};

static void *thread_main(void *arg)
{
    struct share *s = arg;
    s->best = read_files(s->lo, s->hi);
    return NULL;
}

static double in_threads(int n)
{
    pthread_t t[16];
    struct share s[16];
    double sum = 0;
    for (int i = 0; i < n; i++) {
        s[i] = (struct share){files * i / n, files * (i + 1) / n, 0};
        if (pthread_create(&t[i], NULL, thread_main, &s[i]))
            die("pthread_create");
    }
    for (int i = 0; i < n; i++) {
        pthread_join(t[i], NULL);
        sum += s[i].best;
    }
    return sum / n;
}

static double in_forks(int n)
{
    double *best = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), sum = 0;
    for (int i = 0; i < n; i++)
        if (fork() == 0) {
            best[i] = read_files(files * i / n, files * (i + 1) / n);
            _exit(0);
        }
    while (wait(NULL) > 0) {
    }
    for (int i = 0; i < n; i++)
        sum += best[i];
    return sum / n;
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
        ring[i].word[0] = t;
        ring[i].word[1] = (uint64_t)file << 32 | dur;
        ring[i].word[2] = (call == MR_CALL_pread ? (r >> 40) % BLOCKS * BLOCK : MR_NO_OFFSET) << 16 | call;
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

static const struct mr_calibration identity = {.tick0 = 1, .mono0 = 1, .real0 = 1700000000000000000ull, .tick1 = 1000001, .mono1 = 1000001};

static int encode(void)
{
    struct encoder e;
    struct mr_mrt_block b;
    uint64_t seed = 0, next;
    double best = 1e18;
    size_t bytes = 0;
    encoder_init(&e);
    fill(e.ring, MR_BLOCK_EVENTS, &seed, 1000);
    for (int round = 0; round < 40; round++) {
        uint64_t t0 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        bytes = mr_mrt_encode_events(e.workspace, e.ring, MR_BLOCK_EVENTS - 1, 0, MR_BLOCK_EVENTS, &identity, 1, 1, 0, 0, e.out, &next, &b);
        double ns = (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - t0) / MR_BLOCK_EVENTS;
        best = MR_MIN(best, ns);
    }
    printf("%.1f %.2f\n", best, (double)bytes / MR_BLOCK_EVENTS);
    return 0;
}

static void write_names(struct mr_mrt_writer *w, struct encoder *e)
{
    struct mr_process_info p = {.key = 1, .pid = 1, .start_ns = 1, .start_real_ns = identity.real0, .rank = -1, .world = -1, .local_rank = -1,
                                .local_world = -1, .host = "bench", .host_len = 5, .exe = "bench", .exe_len = 5, .cmdline = "bench", .cmdline_len = 5};
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
    size_t n = mr_mrt_encode_strings(arena, at, 1, 1, e->out, MR_MRT_EVENTS_MAX, &taken_bytes, &taken);
    mr_mrt_writer_append(w, e->out, n, NULL);
    free(arena);
}

static int generate(const char *path, uint64_t events)
{
    struct encoder e;
    struct mr_mrt_writer *w;
    struct mr_mrt_block b;
    struct mr_error err = {0};
    uint64_t seed = 0, next, t[4] = {1000, 1000, 1000, 1000};
    encoder_init(&e);
    if (mr_mrt_writer_open(path, false, &w, &err) < 0) {
        fprintf(stderr, "bench_trace: %s\n", err.message);
        return 5;
    }
    write_names(w, &e);
    for (uint64_t done = 0, k = 0; done < events; k++) {
        uint32_t n = (uint32_t)MR_MIN(events - done, (uint64_t)MR_BLOCK_EVENTS);
        t[k % 4] = fill(e.ring, n, &seed, t[k % 4]);
        size_t bytes = mr_mrt_encode_events(e.workspace, e.ring, MR_BLOCK_EVENTS - 1, 0, n, &identity, 1, (uint32_t)(1 + k % 4), k << 20, 0, e.out, &next, &b);
        if (mr_mrt_writer_append(w, e.out, bytes, &err) < 0) {
            fprintf(stderr, "bench_trace: %s\n", err.message);
            return 5;
        }
        done += n;
    }
    return mr_mrt_writer_close(w, &err) < 0 ? 5 : 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "region"))
        return region();
    if (!strcmp(mode, "encode"))
        return encode();
    if (!strcmp(mode, "generate") && argc == 4)
        return generate(argv[2], strtoull(argv[3], NULL, 10));
    if (argc < 4)
        return 2;
    dir = argv[2];
    files = (int)strtol(argv[3], NULL, 10);
    calls = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 998;
    if (!strcmp(mode, "prepare"))
        return prepare();
    double ns = !strcmp(mode, "single") ? read_files(0, files) : !strcmp(mode, "thread") ? in_threads(2) : in_forks(8);
    fprintf(stderr, "%.1f\n", ns);
    return 0;
}
