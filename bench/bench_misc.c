/* Rows without a floor: memory of generating one large record, ids per second and memory of the access order, bytes of
 * manifest per sample, start-up time. What is about memory runs in a child of its own. */
#include "base/common.h"
#include "bench.h"
#include "bench_case.h"

#include <math.h>
#include <millrace/dataset.h>
#include <millrace/order.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE_RECORD 600000000ull
#define MEMORY_LIMIT_MB 268.435456 /* 256 MiB */
#define STARTS 20

/* ---- in the child ---- */

static int child_generate(const char *format, const char *folder)
{
    struct bench_case c = {
        .name = format, .format = format, .files = 1, .samples_per_file = 1, .size_bytes = LARGE_RECORD};
    printf("%.6f\n", bench_case_generate(&c, folder, 2).wall_s);
    return 0;
}

static int child_order(const char *mode, uint64_t samples, uint64_t count)
{
    struct mr_error err = {0};
    struct mr_order_params p = {.samples = samples, .seed = 7, .world = 1, .shuffle_each_epoch = true};
    struct mr_order *order;
    static uint64_t ids[65536];
    uint64_t window, sum = 0;
    struct bench_time start = bench_clock();
    if (mr_order_mode_parse(mode, &p.mode, &window, &err) < 0 || mr_order_create(&p, &order, &err) < 0)
        bench_die("%s", err.message);
    for (uint64_t at = 0; at < count;) {
        size_t n = mr_order_get(order, at, ids, MR_ARRAY_LEN(ids));
        if (!n)
            bench_die("the order ended early");
        sum += ids[n - 1];
        at += n;
    }
    double seconds = bench_since(start).wall_s;
    mr_order_free(order);
    printf("%.0f\n", (double)count / seconds);
    return sum == UINT64_MAX; /* keeps the loop from being removed */
}

int bench_child_main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[0], "generate") == 0)
        return child_generate(argv[1], argv[2]);
    if (argc == 4 && strcmp(argv[0], "order") == 0)
        return child_order(argv[1], strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    return 2;
}

/* ---- in the parent ---- */

static void memory_of_generation(const struct bench_options *o)
{
    static const char *const formats[] = {"npy", "npz", "indexed_binary", "tfrecord", "hdf5"};
    char name[64], folder[4096];
    snprintf(folder, sizeof folder, "%s/large", o->dir);
    for (size_t i = 0; i < MR_ARRAY_LEN(formats); i++) {
        char *argv[] = {(char *)(uintptr_t)o->self, "--child", "generate", (char *)(uintptr_t)formats[i], folder, NULL};
        struct bench_child c;
        snprintf(name, sizeof name, "memory of gen %s, one 600 MB record", formats[i]);
        if (!bench_wanted(o, name) || !bench_case_possible(&(struct bench_case){.name = name, .format = formats[i]}))
            continue;
        bench_spawn(argv, &c);
        bench_remove_tree(folder);
        bench_value(name, c.peak_bytes / 1e6, "MB", true, MEMORY_LIMIT_MB);
    }
}

static void order_rows(const struct bench_options *o)
{
    static const struct {
        const char *mode, *samples, *count, *text;
        double min_rate, max_mb;
    } rows[] = {
        {"cipher", "1000000000", "30000000", "order cipher, 10^9 samples", 10e6, 50},
        {"torch", "10000000", "10000000", "order torch, 10^7 samples", 0, 0},
        {"sequential", "1000000000", "100000000", "order sequential, 10^9 samples", 0, 50},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        char name[96];
        double rate = 0, memory = 0;
        char *argv[] = {(char *)(uintptr_t)o->self,
                        "--child",
                        "order",
                        (char *)(uintptr_t)rows[i].mode,
                        (char *)(uintptr_t)rows[i].samples,
                        (char *)(uintptr_t)rows[i].count,
                        NULL};
        if (!bench_wanted(o, rows[i].text))
            continue;
        for (unsigned k = 0; k < o->rounds; k++) {
            struct bench_child c;
            bench_spawn(argv, &c);
            rate = MR_MAX(rate, c.value);
            memory = MR_MAX(memory, c.peak_bytes);
        }
        bench_value(rows[i].text, rate / 1e6, "M ids/s", false, rows[i].min_rate / 1e6);
        snprintf(name, sizeof name, "memory of %s", rows[i].text);
        bench_value(name, memory / 1e6, "MB", true, rows[i].max_mb);
    }
}

static void manifest_rows(const struct bench_options *o)
{
    static const struct bench_case sets[] = {
        {.name = "manifest, sizes vary, many per file",
         .format = "indexed_binary",
         .files = 4,
         .samples_per_file = 50000,
         .size_bytes = 200,
         .extra = {{"size_stdev", "60"}, {"labels", "1000"}}},
        {.name = "manifest, one sample per file",
         .format = "raw",
         .files = 4000,
         .samples_per_file = 1,
         .size_bytes = 1000,
         .extra = {{"size_stdev", "100"}}},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(sets); i++) {
        struct mr_error err = {0};
        struct mr_dataset *ds;
        struct mr_dataset_info info;
        char folder[4096];
        if (!bench_wanted(o, sets[i].name))
            continue;
        snprintf(folder, sizeof folder, "%s/manifest", o->dir);
        bench_case_generate(&sets[i], folder, 2);
        if (mr_dataset_open(folder, NULL, &ds, &err) < 0)
            bench_die("%s", err.message);
        mr_dataset_get_info(ds, &info);
        bench_value(sets[i].name, (double)info.manifest_bytes / (double)info.samples, "bytes/sample", true, 24);
        mr_dataset_close(ds);
        bench_remove_tree(folder);
    }
}

static void one_start_up(const struct bench_options *o, const char *what, char *const *argv, double most_ms,
                         double most_mb)
{
    char name[96];
    double best = INFINITY, memory = 0;
    snprintf(name, sizeof name, "start-up of millrace %s", what);
    if (!o->millrace || !bench_wanted(o, name))
        return;
    for (int i = 0; i < STARTS; i++) {
        struct bench_child c;
        bench_spawn(argv, &c);
        best = MR_MIN(best, c.seconds);
        memory = MR_MAX(memory, c.peak_bytes);
    }
    bench_value(name, best * 1e3, "ms", true, most_ms);
    snprintf(name, sizeof name, "memory of millrace %s", what);
    bench_value(name, memory / 1e6, "MB", true, most_mb);
}

static void start_up(const struct bench_options *o)
{
    char *self = (char *)(uintptr_t)o->millrace;
    one_start_up(o, "--version", (char *[]){self, "--version", NULL}, 0, 0);
    one_start_up(o, "run --dry-run", (char *[]){self, "run", "workload=unet3d_h100", "--dry-run", "-q", NULL}, 30,
                 67.1);
}

void bench_misc_all(const struct bench_options *o)
{
    start_up(o);
    order_rows(o);
    manifest_rows(o);
    memory_of_generation(o);
}
