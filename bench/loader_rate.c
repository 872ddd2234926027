/* What the C loader reaches on a data set, for bench/run_torch: samples per second of several epochs after a first one,
 * or with EPOCHS 0 of the first one itself.
 * Usage: loader_rate SET BATCH THREADS EPOCHS [224]; the last makes pictures of that size (RandomResizedCrop, flip,
 * float planes) of the samples. */
#include <millrace/loader.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const struct mr_error *err)
{
    fprintf(stderr, "loader_rate: %s %s\n", err->message, err->context);
    exit(1);
}

static unsigned long long read_epoch(struct mr_loader *l, uint64_t epoch)
{
    struct mr_error err;
    struct mr_batch *b;
    unsigned long long n = 0;
    int rc = mr_loader_start_epoch(l, epoch, &err);
    while (!rc && (rc = mr_loader_next(l, &b, &err)) > 0) {
        n += b->n;
        mr_loader_release(l, b);
        rc = 0;
    }
    if (rc < 0)
        die(&err);
    return n;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: loader_rate SET BATCH THREADS EPOCHS [SIDE]\n");
        return 2;
    }
    struct mr_loader_params p;
    struct mr_preprocess_params pictures;
    struct mr_loader *l;
    struct mr_error err;
    mr_loader_params_init(&p);
    mr_preprocess_params_init(&pictures);
    uint64_t epochs = strtoull(argv[4], NULL, 10);
    p.dataset = argv[1];
    p.batch_size = (uint32_t)atol(argv[2]);
    p.threads = (unsigned)atol(argv[3]);
    p.lookahead = 3;
    p.order.mode = MR_ORDER_TORCH;
    p.order.shuffle_each_epoch = true;
    p.last_epoch = epochs;
    if (argc > 5) {
        pictures.crop = MR_CROP_RANDOM_RESIZED;
        pictures.height = pictures.width = (uint32_t)atol(argv[5]);
        pictures.flip = 0.5;
        pictures.to_float = pictures.planar = pictures.rgb = true;
        p.preprocess = &pictures;
    }
    if (mr_loader_open(&p, &l, &err))
        die(&err);
    double start = now();
    unsigned long long n = read_epoch(l, 0);
    if (epochs) {
        start = now();
        n = 0;
    }
    for (uint64_t epoch = 1; epoch <= epochs; epoch++)
        n += read_epoch(l, epoch);
    printf("%.1f\n", (double)n / (now() - start));
    mr_loader_close(l);
    return 0;
}
