/* Reading: any thread gets any sample right, more files than the caches hold, files that must be unpacked as a whole,
 * files that change under us. test-label: concurrent */
#include "base/common.h"
#include "base/rng.h"
#include "base/workers.h"
#include "dataset/dataset_parts.h"
#include "dataset/generate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct mr_arena arena;

struct set {
    struct mr_store *store;
    struct mr_gen_plan plan;
    struct mr_dataset *ds;
};

static void make(struct set *s, const char *format, int64_t files, int64_t each, enum mr_compression compression)
{
    struct mr_gen_spec spec;
    struct mr_error err = {0};
    struct mr_gen *g = NULL;
    assert_int_equal(mr_options_defaults(&mr_gen_spec_table, &arena, &spec, &err), 0);
    spec.format = format;
    spec.files = files;
    spec.samples_per_file = each;
    spec.size_bytes = 700;
    spec.dtype = strcmp(format, "npy") == 0 || strcmp(format, "hdf5") == 0 ? "float32" : spec.dtype;
    spec.compression = compression;
    spec.compressibility = 40;
    assert_int_equal(mr_store_open("memory", &s->store, &err), 0);
    if (mr_gen_plan_resolve(&spec, "train", &s->plan, &err) < 0)
        fail_msg("%s", err.message);
    struct mr_gen_options o = {.store = s->store, .folder = "set", .plan = &s->plan, .world = 1, .threads = 2};
    if (mr_gen_open(&o, &g, &err) < 0 || mr_gen_prepare(g, &err) < 0 || mr_gen_run(g, &err) < 0 ||
        mr_gen_finish(g, &err) < 0)
        fail_msg("%s: %s", format, err.message);
    mr_gen_close(g);
    assert_int_equal(mr_dataset_open_in("set", s->store, &s->ds, &err), 0);
}

static void done(struct set *s)
{
    mr_dataset_close(s->ds);
    mr_store_close(s->store);
}

struct readers {
    struct set *set;
    struct mr_dataset_reader *reader[4];
};

static int read_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct readers *r = ctx->user;
    struct mr_gen_plan *p = &r->set->plan;
    struct mr_sample_info info;
    struct mr_sample s;
    uint8_t want[4096], dst[4096];
    uint64_t id = mr_rng_below(mr_rng_at(4, MR_RNG_TEST, index), p->samples);
    bool own = index % 2;
    int rc = mr_gen_plan_sample(p, id, &info, err);
    if (rc < 0 || (rc = mr_dataset_read(r->reader[ctx->thread], id, index % 3 ? 0 : MR_DATASET_VERIFY, own ? dst : NULL,
                                        own ? sizeof dst : 0, &s, err)) < 0)
        return rc;
    p->format->synth(&p->writer, &p->content, &info, 0, want, info.bytes);
    if (s.bytes != info.bytes || memcmp(s.data, want, s.bytes) != 0)
        return mr_error_set(err, MR_E_CORRUPT, "sample %llu is wrong", (unsigned long long)id);
    return 0;
}

static void any_thread_reads_any_sample(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        int64_t files, each;
        enum mr_compression compression;
    } cases[] = {{"indexed_binary", 40, 5, MR_COMP_NONE},
                 {"raw", 50, 1, MR_COMP_NONE},
                 {"npz", 30, 4, MR_COMP_NONE},
                 {"npz", 80, 3, MR_COMP_ZIP},
                 {"tfrecord", 80, 3, MR_COMP_GZIP},
                 {"csv", 10, 3, MR_COMP_GZIP},
                 {"tar", 20, 3, MR_COMP_NONE}};
    for (unsigned c = 0; c < MR_ARRAY_LEN(cases); c++) {
        struct set s = {0};
        struct readers r = {.set = &s};
        struct mr_error err = {0};
        make(&s, cases[c].format, cases[c].files, cases[c].each, cases[c].compression);
        for (unsigned t = 0; t < 4; t++)
            assert_int_equal(mr_dataset_reader_create(s.ds, &r.reader[t], &err), 0);
        if (mr_workers_run(4, 1000, 1, read_one, &r, NULL, &err) < 0)
            fail_msg("%s: %s / %s", cases[c].format, err.message, err.context);
        for (unsigned t = 0; t < 4; t++)
            mr_dataset_reader_free(r.reader[t]);
        done(&s);
    }
}

static void file_that_shrinks_under_us_is_an_error_with_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        enum mr_compression compression;
    } cases[] = {{"raw", MR_COMP_NONE},
                 {"npz", MR_COMP_NONE},
                 {"npz", MR_COMP_ZIP},
                 {"tfrecord", MR_COMP_GZIP},
                 {"indexed_binary", MR_COMP_NONE}};
    for (unsigned c = 0; c < MR_ARRAY_LEN(cases); c++) {
        struct set s = {0};
        struct mr_error err = {0};
        struct mr_sample_place p;
        struct mr_object *o;
        struct mr_dataset_reader *r;
        struct mr_sample sample;
        make(&s, cases[c].format, 3, 1, cases[c].compression);
        assert_int_equal(mr_dataset_locate(s.ds, 1, &p, &err), 0);
        assert_int_equal(mr_object_open(s.store, p.path, MR_OBJ_WRITE, &o, &err), 0);
        assert_int_equal(s.store->ops->truncate(o, 100, &err), 0);
        assert_int_equal(mr_object_close(o, &err), 0);
        assert_int_equal(mr_dataset_reader_create(s.ds, &r, &err), 0);
        int rc = mr_dataset_read(r, 1, 0, NULL, 0, &sample, &err);
        assert_true(rc == MR_E_FORMAT || rc == MR_E_CHANGED || rc == MR_E_CORRUPT);
        assert_non_null(strstr(err.context, "sample 1 of"));
        assert_non_null(strstr(err.hint, "millrace verify"));
        assert_int_equal(mr_dataset_read(r, 2, 0, NULL, 0, &sample, &err), 0);
        s.store->ops->unlink(s.store, p.path, NULL);
        assert_int_equal(mr_dataset_read(r, 1, 0, NULL, 0, &sample, &err), -ENOENT);
        mr_dataset_reader_free(r);
        done(&s);
    }
}

static void folder_without_manifest_says_what_to_do(void **state)
{
    (void)state;
    struct mr_store *store;
    struct mr_dataset *ds;
    struct mr_error err = {0};
    assert_int_equal(mr_store_open("memory", &store, &err), 0);
    assert_int_equal(mr_store_mkdirs(store, "empty", &err), 0);
    assert_int_equal(mr_dataset_open_in("empty", store, &ds, &err), MR_E_FORMAT);
    assert_non_null(strstr(err.hint, "millrace scan"));
    assert_int_equal(mr_dataset_open_in("nowhere", store, &ds, &err), -ENOENT);
    mr_store_close(store);
}

static int teardown(void **state)
{
    (void)state;
    mr_arena_done(&arena);
    return 0;
}

/* A reader that has seen a sample of a size takes a shorter way for the next one of it. Whatever was read before, in
 * whatever way, a sample comes with the same bytes, shape, type and label as to a reader that has seen nothing. */
static void what_was_read_before_changes_nothing(void **state)
{
    (void)state;
    static const char *const formats[] = {"npy", "hdf5", "tfrecord", "tar", "indexed_binary", "raw", "npz", "csv"};
    static const unsigned flags[] = {0, MR_DATASET_RAW, 0, MR_DATASET_VERIFY, 0, 0};
    for (size_t f = 0; f < MR_ARRAY_LEN(formats); f++) {
        struct set set;
        struct mr_dataset_reader *r, *fresh;
        struct mr_error err = {0};
        bool several = strcmp(formats[f], "npy") != 0 && strcmp(formats[f], "raw") != 0;
        make(&set, formats[f], 4, several ? 5 : 1, MR_COMP_NONE);
        assert_int_equal(mr_dataset_reader_create(set.ds, &r, &err), 0);
        for (uint64_t k = 0; k < 96; k++) {
            uint8_t a[16384], b[16384];
            struct mr_sample have = {0}, want = {0};
            uint64_t id = mr_rng_below(mr_rng_at(9, MR_RNG_TEST, k), mr_dataset_count(set.ds));
            bool own = k % 4 != 3;
            unsigned how = flags[mr_rng_below(mr_rng_at(10, MR_RNG_TEST, k), MR_ARRAY_LEN(flags))];
            assert_int_equal(mr_dataset_reader_create(set.ds, &fresh, &err), 0);
            if (mr_dataset_read(r, id, how, own ? a : NULL, own ? sizeof a : 0, &have, &err) < 0 ||
                mr_dataset_read(fresh, id, how, own ? b : NULL, own ? sizeof b : 0, &want, &err) < 0)
                fail_msg("%s: %s", formats[f], err.message);
            assert_true(!own || have.data == a);
            assert_int_equal(have.bytes, want.bytes);
            assert_memory_equal(have.data, want.data, have.bytes);
            assert_int_equal(have.label, want.label);
            assert_string_equal(have.dtype, want.dtype);
            assert_int_equal(have.n_dims, want.n_dims);
            assert_memory_equal(have.dims, want.dims, have.n_dims * sizeof *have.dims);
            mr_dataset_reader_free(fresh);
        }
        mr_dataset_reader_free(r);
        done(&set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_thread_reads_any_sample),
        cmocka_unit_test(file_that_shrinks_under_us_is_an_error_with_its_name),
        cmocka_unit_test(folder_without_manifest_says_what_to_do),
        cmocka_unit_test(what_was_read_before_changes_nothing),
    };
    return cmocka_run_group_tests_name("dataset_reader", tests, NULL, teardown);
}
