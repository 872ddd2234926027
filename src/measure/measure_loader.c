/* See measure_loader.h. The pictures are linked into a folder of one class, scanned as a user would do it, and read by
 * the loader of `millrace.torch`, epoch after epoch, until the time is over. They come from the page cache after the
 * first: what is measured is decoding. */
#include "measure/measure_loader.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/temp_folder.h"
#include "dataset/scan.h"
#include "store/store.h"

#include <millrace/loader.h>
#include <millrace/preprocess.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PICTURES_LEAST 8u
#define SIDE 224u
#define MEASURE_NS (2 * MR_NS_PER_S)
#define WARM_NS (MR_NS_PER_S / 5)

static const char *picture_ending(const char *path)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".JPG", ".JPEG", ".png"};
    size_t n = path ? strlen(path) : 0;
    for (unsigned i = 0; i < MR_ARRAY_LEN(endings); i++)
        if (n > strlen(endings[i]) && !strcmp(path + n - strlen(endings[i]), endings[i]))
            return endings[i];
    return NULL;
}

/* Links to the pictures that the trace names, as one class of a data set. Returns how many. */
static unsigned link_pictures(const struct mr_explanation *x, const char *folder)
{
    char name[4400];
    unsigned n = 0;
    snprintf(name, sizeof name, "%s/all", folder);
    if (mkdir(name, 0700))
        return 0;
    for (size_t i = 0; i < x->files; i++) {
        const char *path = x->file[i].path, *ending = picture_ending(path);
        if (!ending || !x->file[i].read_bytes || access(path, R_OK))
            continue;
        snprintf(name, sizeof name, "%s/all/%06u%s", folder, n, ending);
        n += symlink(path, name) == 0;
    }
    return n;
}

static int scan_folder(const char *folder, const atomic_bool *stop, struct mr_error *err)
{
    struct mr_store *store;
    struct mr_scan_result result = {0};
    int rc = mr_store_open_at("", folder, &store, err);
    if (rc < 0)
        return rc;
    const struct mr_scan_options so = {.store = store, .path = folder, .skip_bad = true, .threads = 1, .stop = stop};
    rc = mr_scan(&so, &result, err);
    mr_store_close(store);
    return rc;
}

/* Samples per second. */
static int read_epochs(struct mr_loader *l, const atomic_bool *stop, double *rate, struct mr_error *err)
{
    uint64_t begin = 0, start = mr_now_ns(), now = start, samples = 0;
    int rc = 0;
    for (uint64_t epoch = 0; now - start < MEASURE_NS && rc >= 0 && !(stop && atomic_load(stop)); epoch++) {
        struct mr_batch *b;
        rc = mr_loader_start_epoch(l, epoch, err);
        while (rc >= 0 && now - start < MEASURE_NS && (rc = mr_loader_next(l, &b, err)) > 0) {
            samples += begin ? b->n : 0;
            mr_loader_release(l, b);
            now = mr_now_ns();
            begin = begin || now - start < WARM_NS ? begin : now;
        }
    }
    *rate = begin && now > begin ? (double)samples / ((double)(now - begin) / 1e9) : 0;
    return rc < 0 ? rc : 0;
}

static int measure(const char *folder, unsigned threads, const atomic_bool *stop, double *rate, struct mr_error *err)
{
    struct mr_preprocess_params pictures;
    struct mr_loader_params p;
    struct mr_loader *l = NULL;
    int rc = scan_folder(folder, stop, err);
    mr_preprocess_params_init(&pictures);
    mr_loader_params_init(&p);
    pictures.crop = MR_CROP_RANDOM_RESIZED;
    pictures.height = pictures.width = SIDE;
    pictures.flip = 0.5;
    pictures.to_float = pictures.planar = pictures.rgb = true;
    p.dataset = folder;
    p.batch_size = 8;
    p.threads = threads;
    p.preprocess = &pictures;
    rc = rc ? rc : mr_loader_open(&p, &l, err);
    rc = rc ? rc : read_epochs(l, stop, rate, err);
    mr_loader_close(l);
    return rc;
}

int mr_measure_loader(struct mr_explanation *x, const atomic_bool *stop, struct mr_error *err)
{
    char folder[4096];
    double rate = 0, cpus = isfinite(x->facts.cpus_per_rank) ? fmax(1, x->facts.cpus_per_rank) : 1;
    int rc = mr_temp_folder_make("", "measure", folder, sizeof folder, err);
    if (rc)
        return rc;
    if (link_pictures(x, folder) >= PICTURES_LEAST)
        rc = measure(folder, (unsigned)cpus, stop, &rate, err);
    int removed = mr_temp_folder_remove(folder, rc ? NULL : err);
    if (!rc && rate > 0)
        x->facts.our_sample_s = (double)(unsigned)cpus / rate;
    return rc ? rc : removed;
}
