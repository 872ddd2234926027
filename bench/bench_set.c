/* See bench_set.h. */
#include "bench_set.h"
#include "base/common.h"
#include "base/rng.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void shuffle(struct bench_set *s)
{
    for (uint64_t i = 0; i < s->n; i++)
        s->order[i] = i;
    for (uint64_t i = s->n; i > 1; i--) {
        uint64_t j = mr_rng_below(mr_rng_at(1, MR_RNG_TEST, i), i), t = s->order[i - 1];
        s->order[i - 1] = s->order[j];
        s->order[j] = t;
    }
}

/* Where every sample lies; files of several samples are opened once, as the product keeps them open. */
static void locate(struct bench_set *s)
{
    struct mr_error err = {0};
    struct mr_dataset_reader *r;
    static struct mr_sample_place place;
    const bool shared = s->c->samples_per_file > 1;
    uint64_t open_file = UINT64_MAX;
    char *path = NULL;
    int fd = -1;
    if (mr_dataset_reader_create(s->ds, &r, &err) < 0)
        bench_die("%s: %s", s->c->name, err.message);
    for (uint64_t id = 0; id < s->n; id++) {
        struct mr_sample sample;
        if (mr_dataset_locate(s->ds, id, &place, &err) < 0 ||
            mr_dataset_read(r, id, MR_DATASET_VERIFY, NULL, 0, &sample, &err) < 0)
            bench_die("%s: %s", s->c->name, err.message);
        if (place.file != open_file) {
            open_file = place.file;
            path = strdup(place.path); /* one per file, freed with its first sample */
            fd = shared ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        }
        s->samples[id] = (struct floor_sample){
            .path = path, .fd = fd, .offset = place.offset, .bytes = place.bytes, .decoded_bytes = sample.bytes};
        s->payload_bytes = MR_MAX(s->payload_bytes, (uint64_t)sample.bytes);
        s->raw_bytes = MR_MAX(s->raw_bytes, place.bytes);
    }
    mr_dataset_reader_free(r);
}

bool bench_set_make(const struct bench_options *o, const struct bench_case *c, struct bench_set *out)
{
    struct bench_time time;
    struct mr_error err = {0};
    *out = (struct bench_set){.c = c};
    snprintf(out->folder, sizeof out->folder, "%s/set", o->dir);
    bench_remove_tree(out->folder);
    if (bench_case_try(c, out->folder, 2, &time, &err) < 0 || mr_dataset_open(out->folder, NULL, &out->ds, &err) < 0) {
        bench_failed(c->name, err.message);
        bench_remove_tree(out->folder);
        return false;
    }
    out->n = mr_dataset_count(out->ds);
    out->order = calloc(out->n, sizeof(*out->order));
    out->samples = calloc(out->n, sizeof(*out->samples));
    if (!out->order || !out->samples)
        bench_die("no memory");
    shuffle(out);
    locate(out);
    return true;
}

static bool first_of_file(const struct bench_set *s, uint64_t id)
{
    return id == 0 || s->samples[id].path != s->samples[id - 1].path;
}

void bench_set_reopen(struct bench_set *s, int flags)
{
    int fd = -1;
    for (uint64_t id = 0; id < s->n; id++) {
        if (s->samples[id].fd < 0)
            continue;
        if (first_of_file(s, id)) {
            close(s->samples[id].fd);
            if ((fd = open(s->samples[id].path, O_RDONLY | O_CLOEXEC | flags)) < 0)
                bench_die("cannot open '%s'", s->samples[id].path);
        }
        s->samples[id].fd = fd;
    }
}

void bench_set_drop_cache(const struct bench_set *s)
{
    for (uint64_t id = 0; id < s->n; id++) {
        if (!first_of_file(s, id))
            continue;
        int fd = open(s->samples[id].path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fdatasync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
            bench_die("cannot drop '%s' from the page cache", s->samples[id].path);
        close(fd);
    }
}

void bench_set_remove(struct bench_set *s)
{
    for (uint64_t id = s->n; id-- > 0;) /* backwards: a path must outlive the question whose it is */
        if (first_of_file(s, id)) {
            if (s->samples[id].fd >= 0)
                close(s->samples[id].fd);
            free((char *)(uintptr_t)s->samples[id].path);
        }
    mr_dataset_close(s->ds);
    free(s->samples);
    free(s->order);
    bench_remove_tree(s->folder);
}
