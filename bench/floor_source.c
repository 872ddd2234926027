/* The floor of a source: every file of a folder read once, by threads that do nothing else, through the storage stack
 * that the loader reads through. Prints bytes and seconds as JSON. For bench/run_tiers.
 *
 *   floor_source STACK FOLDER THREADS */
#include "bench.h"
#include "base/common.h"
#include "store/store.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct work {
    struct mr_store *store;
    char **files;
    size_t n, room;
    atomic_size_t next;
    atomic_ullong bytes;
};

static int add_file(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct work *w = user;
    (void)err;
    if (is_dir || name[0] == '.' || strstr(name, ".mrm"))
        return 0;
    if (w->n == w->room) {
        w->room = w->room ? 2 * w->room : 1024;
        if (!(w->files = realloc(w->files, w->room * sizeof(*w->files))))
            bench_die("no memory");
    }
    if (!(w->files[w->n++] = strdup(name)))
        bench_die("no memory");
    return 0;
}

static const char *folder;

static void read_all(void *user, unsigned thread)
{
    struct work *w = user;
    size_t room = 0;
    void *buf = NULL;
    (void)thread;
    for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->n;) {
        char path[4096];
        struct mr_object *o;
        struct mr_error err;
        uint64_t bytes;
        snprintf(path, sizeof(path), "%s/%s", folder, w->files[i]);
        if (mr_object_open(w->store, path, MR_OBJ_READ | MR_OBJ_DIRECT, &o, &err) || mr_object_size(o, &bytes, &err))
            bench_die("%s", err.message);
        size_t want = (bytes + 4095) / 4096 * 4096;
        if (want > room) {
            free(buf);
            if (!(buf = aligned_alloc(4096, room = want)))
                bench_die("no memory");
        }
        if (mr_object_read(o, buf, bytes, 0, &err) || mr_object_close(o, &err))
            bench_die("%s", err.message);
        atomic_fetch_add(&w->bytes, bytes);
    }
    free(buf);
}

int main(int argc, char **argv)
{
    struct work w = {0};
    struct mr_error err;
    if (argc != 4)
        bench_die("usage: floor_source STACK FOLDER THREADS");
    folder = argv[2];
    if (mr_store_open(argv[1], &w.store, &err) || w.store->ops->list(w.store, folder, add_file, &w, &err))
        bench_die("%s", err.message);
    struct bench_time t = bench_threads((unsigned)atoi(argv[3]), read_all, &w);
    mr_store_close(w.store);
    printf("{\"files\": %zu, \"bytes\": %llu, \"seconds\": %.6f}\n", w.n, (unsigned long long)w.bytes, t.wall_s);
    for (size_t i = 0; i < w.n; i++)
        free(w.files[i]);
    free(w.files);
    return 0;
}
