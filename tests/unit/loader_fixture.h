/* What the tests of the loader share: generated data sets in a folder of their own, loaders over them, and a check of a
 * whole epoch against the order. Included after cmocka.h. */
#ifndef MR_TESTS_UNIT_LOADER_FIXTURE_H
#define MR_TESTS_UNIT_LOADER_FIXTURE_H

#include "base/common.h"
#include "dataset/generate.h"

#include <millrace/dataset.h>
#include <millrace/loader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[256];

static inline void open_root(const char *name)
{
    snprintf(root, sizeof root, "%s/%s-test-%d", MR_BINARY_DIR, name, (int)getpid());
}

static inline void remove_root(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    FILE *f = popen(command, "r");
    if (f)
        pclose(f);
}

static inline void default_spec(struct mr_arena *arena, struct mr_gen_spec *spec)
{
    struct mr_error err;
    assert_int_equal(mr_options_defaults(&mr_gen_spec_table, arena, spec, &err), 0);
}

/* Generates the set of this spec in root/name/train. */
static inline void write_set(const char *name, const struct mr_gen_spec *spec)
{
    struct mr_error err;
    struct mr_gen_plan plan;
    struct mr_store *store;
    struct mr_gen *g;
    char folder[512];
    snprintf(folder, sizeof folder, "%s/%s/train", root, name);
    int rc = mr_gen_plan_resolve(spec, "train", &plan, &err);
    if (!rc)
        rc = mr_store_open("posix", &store, &err);
    if (rc)
        fail_msg("%s", err.message);
    struct mr_gen_options o = {.store = store, .folder = folder, .plan = &plan, .world = 1, .threads = 2};
    rc = mr_gen_open(&o, &g, &err);
    if (!rc)
        rc = mr_gen_prepare(g, &err);
    if (!rc)
        rc = mr_gen_run(g, &err);
    if (!rc)
        rc = mr_gen_finish(g, &err);
    if (rc)
        fail_msg("%s", err.message);
    mr_gen_close(g);
    mr_store_close(store);
}

/* With `chunk`: samples of chunk.dim[0] x 7 rows and as many columns as a chunk has, in chunks of that many rows. */
static inline void make_chunked_set(const char *name, const char *format, int64_t files, int64_t per_file,
                                    uint64_t size, uint64_t stdev, struct mr_dims chunk)
{
    struct mr_arena arena = {0};
    struct mr_gen_spec spec;
    default_spec(&arena, &spec);
    spec.format = format;
    spec.files = files;
    spec.samples_per_file = per_file;
    spec.size_bytes = MR_MAX(size, 1u);
    spec.size_stdev_bytes = stdev;
    spec.labels = 10;
    if (chunk.n) {
        spec.dims = (struct mr_dims){2, {chunk.dim[0] * 7, chunk.dim[1]}};
        spec.chunk = chunk;
    }
    write_set(name, &spec);
    mr_arena_done(&arena);
}

static inline void make_set(const char *name, const char *format, int64_t files, int64_t per_file, uint64_t size,
                            uint64_t stdev)
{
    make_chunked_set(name, format, files, per_file, size, stdev, (struct mr_dims){0});
}

static inline struct mr_loader_params params(const char *name, char path[512])
{
    struct mr_loader_params p;
    snprintf(path, 512, "%s/%s", root, name);
    mr_loader_params_init(&p);
    p.dataset = path;
    p.batch_size = 7;
    p.threads = 3;
    p.lookahead = 3;
    p.order.mode = MR_ORDER_TORCH;
    p.order.seed = 5;
    p.flags = MR_LOADER_VERIFY_CONTENT;
    return p;
}

static inline struct mr_loader *must_open(const struct mr_loader_params *p)
{
    struct mr_loader *l = NULL;
    struct mr_error err = {0};
    if (mr_loader_open(p, &l, &err))
        fail_msg("%s / %s", err.message, err.context);
    return l;
}

/* Reads an epoch; appends the ids to `ids` and returns how many. */
static inline uint64_t read_epoch(struct mr_loader *l, uint64_t epoch, uint64_t *ids, uint64_t stop_after)
{
    struct mr_error err = {0};
    struct mr_batch *b;
    uint64_t n = 0, batches = 0;
    int rc = mr_loader_start_epoch(l, epoch, &err);
    while (!rc && batches < stop_after) {
        rc = mr_loader_next(l, &b, &err);
        if (rc <= 0)
            break;
        assert_true(b->n > 0 && b->epoch == epoch);
        for (uint32_t i = 0; i < b->n; i++) {
            ids[n++] = b->ids[i];
            assert_true(b->bytes[i] > 0 && b->rows[i]);
            assert_true(b->labels[i] >= 0 && b->labels[i] < 10);
        }
        mr_loader_release(l, b);
        batches++;
        rc = 0;
    }
    if (rc < 0)
        fail_msg("%s / %s", err.message, err.context);
    return n;
}

static inline void check_against_order(const struct mr_loader_params *p, uint64_t samples, uint64_t epoch,
                                       const uint64_t *ids, uint64_t n)
{
    struct mr_order_params op = p->order;
    struct mr_order *o;
    struct mr_error err;
    op.samples = samples;
    assert_int_equal(mr_order_create(&op, &o, &err), 0);
    assert_int_equal(mr_order_set_epoch(o, epoch, &err), 0);
    assert_int_equal(n, mr_order_rank_len(o));
    for (uint64_t k = 0; k < n; k++) {
        uint64_t want;
        mr_order_get(o, k, &want, 1);
        assert_int_equal(ids[k], want);
    }
    mr_order_free(o);
}

#endif
