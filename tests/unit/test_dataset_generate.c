/* The generator and the verifier: bytes depend on the spec only, whatever the threads, ranks, interruptions and
 * failures; sizes come out as asked; damage is found and repaired. test-label: concurrent */
#include "amount.h"
#include "base/common.h"
#include "base/rng.h"
#include "dataset/gen_file.h"
#include "dataset/generate.h"
#include "dataset/verify.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define GOLDEN_SIZES 1177267378013860098u
#define GOLDEN_LABELS 1942717928116356011u

static struct mr_arena arena;
static uint64_t part_bytes; /* of the sets made by generate(); 0: as the plan says, which is whole files here */

static struct mr_gen_spec base_spec(const char *format)
{
    struct mr_gen_spec s;
    struct mr_error err;
    assert_int_equal(mr_options_defaults(&mr_gen_spec_table, &arena, &s, &err), 0);
    s.format = format;
    s.files = 13;
    s.size_bytes = 3000;
    s.seed = 7;
    return s;
}

static struct mr_store *open_store(const char *spec)
{
    struct mr_store *s = NULL;
    struct mr_error err = {0};
    if (mr_store_open(spec, &s, &err) < 0)
        fail_msg("%s", err.message);
    return s;
}

/* All phases, ranks one after the other, as the command does it. */
static int generate(struct mr_store *s, const char *folder, const struct mr_gen_spec *spec, unsigned threads,
                    uint32_t world, bool overwrite, bool repair, struct mr_gen_result *result, struct mr_error *err)
{
    struct mr_gen_plan plan;
    struct mr_gen_result sum = {0};
    int r = mr_gen_plan_resolve(spec, "train", &plan, err);
    struct mr_gen *g[16] = {0};
    if (r >= 0 && part_bytes) {
        mr_gen_plan_split(&plan, part_bytes);
        assert_true(plan.parts > 2);
    }
    for (uint32_t rank = 0; r >= 0 && rank < world; rank++) {
        struct mr_gen_options o = {.store = s,
                                   .folder = folder,
                                   .plan = &plan,
                                   .rank = rank,
                                   .world = world,
                                   .threads = threads,
                                   .overwrite = overwrite,
                                   .repair = repair};
        r = mr_gen_open(&o, &g[rank], err);
    }
    if (r >= 0)
        r = mr_gen_prepare(g[0], err);
    for (uint32_t rank = 0; r >= 0 && rank < world; rank++)
        r = mr_gen_run(g[rank], err);
    if (r >= 0)
        r = mr_gen_finish(g[0], err);
    for (uint32_t rank = 0; rank < world; rank++) {
        struct mr_gen_result one = {0};
        if (g[rank])
            mr_gen_get_result(g[rank], &one);
        sum.files_written += one.files_written;
        sum.files_kept += one.files_kept;
        sum.was_complete = one.was_complete;
        mr_gen_close(g[rank]);
    }
    if (result)
        *result = sum;
    return r;
}

static void must_generate(struct mr_store *s, const char *folder, const struct mr_gen_spec *spec, unsigned threads,
                          uint32_t world, bool repair, struct mr_gen_result *result)
{
    struct mr_error err = {0};
    if (generate(s, folder, spec, threads, world, false, repair, result, &err) < 0)
        fail_msg("%s / %s", err.message, err.context);
}

static uint64_t hash_file(struct mr_store *s, const char *path, uint64_t seed)
{
    void *data;
    size_t len;
    struct mr_error err = {0};
    if (mr_store_read_file(s, path, 1 << 26, &data, &len, &err) < 0)
        fail_msg("%s", err.message);
    uint64_t h = XXH3_64bits_withSeed(data, len, seed);
    free(data);
    return h;
}

/* Of all files in order, side-cars included, and the manifest. */
static uint64_t hash_set(struct mr_store *s, const char *folder, const struct mr_gen_spec *spec)
{
    struct mr_gen_plan plan;
    char name[MR_NAME_MAX], path[2 * MR_NAME_MAX];
    uint64_t h = 1;
    assert_int_equal(mr_gen_plan_resolve(spec, "train", &plan, NULL), 0);
    for (uint64_t f = 0; f < (uint64_t)spec->files; f++) {
        mr_name_from_template(&plan.names, f, name);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        h = hash_file(s, path, h);
        for (const char *x = plan.format->side_suffixes; x && *x; x += strlen(x) + 1) {
            snprintf(path, sizeof path, "%s/%s%s", folder, name, x);
            h = hash_file(s, path, h);
        }
    }
    snprintf(path, sizeof path, "%s/" MR_MANIFEST_NAME, folder);
    return hash_file(s, path, h);
}

static void count_finding(void *user, const struct mr_damage *f)
{
    unsigned *n = user;
    n[f->kind]++;
}

static struct mr_verify_result verify(struct mr_store *s, const char *folder, double rate, unsigned *kinds)
{
    struct mr_dataset *ds;
    struct mr_error err = {0};
    struct mr_verify_result r = {0};
    struct mr_verify_options o = {.threads = 3, .sample_rate = rate, .found = count_finding, .user = kinds};
    if (mr_dataset_open_in(folder, s, &ds, &err) < 0 || mr_verify(ds, &o, &r, &err) < 0)
        fail_msg("%s / %s", err.message, err.context);
    mr_dataset_close(ds);
    return r;
}

static void must_be_good(struct mr_store *s, const char *folder)
{
    unsigned kinds[8] = {0};
    struct mr_verify_result r = verify(s, folder, 1, kinds);
    assert_int_equal(r.bad_files + r.extra + r.missing, 0);
    assert_true(r.byte_exact);
}

static const char *const formats[] = {"raw",   "npy",  "npz", "tfrecord", "indexed_binary", "tar", "csv",
                                      "jsonl", "jpeg", "png", "hdf5"};

static void bytes_do_not_depend_on_threads_or_ranks(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 7};
    for (unsigned f = 0; f < MR_ARRAY_LEN(formats); f++) {
        if (!mr_format_find(formats[f], NULL))
            continue; /* not in this build */
        struct mr_gen_spec spec = base_spec(formats[f]);
        spec.subfolders = 3;
        spec.labels = 10;
        uint64_t want = 0;
        for (unsigned w = 0; w < MR_ARRAY_LEN(worlds); w++) {
            struct mr_store *s = open_store("memory");
            must_generate(s, "set", &spec, worlds[3 - w], worlds[w], false, NULL);
            uint64_t have = hash_set(s, "set", &spec);
            if (w == 0)
                want = have;
            assert_int_equal(have, want);
            must_be_good(s, "set");
            mr_store_close(s);
        }
        struct mr_store *s = open_store("memory");
        spec.seed = 8;
        must_generate(s, "set", &spec, 2, 1, false, NULL);
        assert_true(hash_set(s, "set", &spec) != want);
        mr_store_close(s);
    }
}

static const char *const split_formats[] = {"raw", "npy", "tfrecord", "indexed_binary", "hdf5"};

static struct mr_gen_spec split_spec(const char *format)
{
    struct mr_gen_spec spec = base_spec(format);
    spec.files = 2;
    spec.samples_per_file = 41;
    spec.size_bytes = 300;
    spec.labels = 100;
    return spec;
}

static void files_in_parts_have_the_bytes_of_whole_ones(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 7};
    for (unsigned f = 0; f < MR_ARRAY_LEN(split_formats); f++) {
        struct mr_gen_spec spec = split_spec(split_formats[f]);
        struct mr_store *s = open_store("memory");
        must_generate(s, "whole", &spec, 2, 1, false, NULL);
        uint64_t want = hash_set(s, "whole", &spec);
        for (unsigned w = 0; w < MR_ARRAY_LEN(worlds); w++) {
            struct mr_gen_result result;
            char folder[16];
            snprintf(folder, sizeof folder, "set%u", w);
            part_bytes = 700 + 1100 * w;
            must_generate(s, folder, &spec, worlds[3 - w], worlds[w], false, &result);
            part_bytes = 0;
            assert_int_equal(result.files_written, 2);
            assert_int_equal(hash_set(s, folder, &spec), want);
            must_be_good(s, folder);
            must_generate(s, folder, &spec, 1, 1, false, &result);
            assert_int_equal(result.files_written, 0);
        }
        mr_store_close(s);
    }
}

/* What files in parts need does not hold everywhere: there they are written as a whole. */
static void only_equal_records_are_split(void **state)
{
    (void)state;
    struct mr_gen_plan plan;
    struct mr_gen_spec spec = split_spec("tfrecord");
    spec.labels = 129; /* labels of one and of two bytes */
    assert_int_equal(mr_gen_plan_resolve(&spec, "train", &plan, NULL), 0);
    mr_gen_plan_split(&plan, 1000);
    assert_int_equal(plan.parts, 1);
    spec.labels = 128;
    assert_int_equal(mr_gen_plan_resolve(&spec, "train", &plan, NULL), 0);
    assert_int_equal(plan.parts, 1); /* small files */
    mr_gen_plan_split(&plan, 1000);
    assert_true(plan.parts > 10);
    spec.size_stdev_bytes = 50;
    assert_int_equal(mr_gen_plan_resolve(&spec, "train", &plan, NULL), 0);
    mr_gen_plan_split(&plan, 1000);
    assert_int_equal(plan.parts, 1);
}

/* As failing_call_at_any_point_is_survived, for files in parts, continued by other ranks and threads. Then the
 * unfinished file is cut or removed behind the generator's back: parts that are recorded, but gone, are written again.
 */
static void interrupted_parts_are_continued(void **state)
{
    (void)state;
    for (unsigned f = 0; f < MR_ARRAY_LEN(split_formats); f++) {
        struct mr_gen_spec spec = split_spec(split_formats[f]);
        struct mr_store *plain = open_store("memory");
        must_generate(plain, "want", &spec, 1, 1, false, NULL);
        uint64_t want = hash_set(plain, "want", &spec);
        mr_store_close(plain);
        for (unsigned nth = 1; nth < 120; nth += (1 + f % 2) * mr_test_stride(5)) {
            struct mr_error err = {0};
            char text[64], name[MR_NAME_MAX], path[2 * MR_NAME_MAX];
            struct mr_gen_plan plan;
            snprintf(text, sizeof text, "fault(nth=%u,error=EIO):memory", nth);
            struct mr_store *faulty = open_store(text), *below = faulty->lower;
            part_bytes = 2500;
            (void)generate(faulty, "set", &spec, 1, 1 + nth % 2, false, false, NULL, &err);
            assert_int_equal(mr_gen_plan_resolve(&spec, "train", &plan, NULL), 0);
            mr_name_from_template(&plan.names, nth % 2, name);
            mr_gen_temporary_path("set", name, path);
            struct mr_object *o;
            if (nth % 3 == 1)
                below->ops->unlink(below, path, NULL);
            else if (nth % 3 == 2 && mr_object_open(below, path, MR_OBJ_WRITE, &o, NULL) >= 0) {
                assert_int_equal(below->ops->truncate(o, 1000, &err), 0);
                mr_object_close(o, NULL);
            }
            must_generate(below, "set", &spec, 2, 3 - nth % 2, false, NULL);
            part_bytes = 0;
            assert_int_equal(hash_set(below, "set", &spec), want);
            mr_store_close(faulty);
        }
    }
}

static void samples_read_back_are_the_content_of_their_number(void **state)
{
    (void)state;
    for (unsigned f = 0; f < MR_ARRAY_LEN(formats); f++) {
        const struct mr_format_ops *ops = mr_format_find(formats[f], NULL);
        if (!ops)
            continue; /* not in this build */
        struct mr_store *s = open_store("memory");
        struct mr_gen_spec spec = base_spec(formats[f]);
        struct mr_gen_plan plan;
        struct mr_error err = {0};
        spec.labels = 100;
        if (ops->caps & MR_FMT_MULTI)
            spec.samples_per_file = 4;
        if (ops->caps & MR_FMT_VARSIZE)
            spec.size_stdev_bytes = 500;
        assert_int_equal(mr_gen_plan_resolve(&spec, "train", &plan, &err), 0);
        must_generate(s, "set", &spec, 2, 1, false, NULL);
        struct mr_dataset *ds;
        struct mr_dataset_reader *r;
        assert_int_equal(mr_dataset_open_in("set", s, &ds, &err), 0);
        assert_int_equal(mr_dataset_reader_create(ds, &r, &err), 0);
        assert_int_equal(mr_dataset_count(ds), plan.samples);
        uint8_t *mine = malloc(1 << 20), *want = malloc(1 << 20);
        for (uint64_t id = 0; id < plan.samples; id++) {
            struct mr_sample_info info;
            struct mr_sample a, b, c;
            assert_int_equal(mr_gen_plan_sample(&plan, id, &info, &err), 0);
            if (mr_dataset_read(r, id, 0, mine, 1 << 20, &a, &err) < 0)
                fail_msg("%s: %s / %s", formats[f], err.message, err.context);
            assert_ptr_equal(a.data, mine);
            assert_int_equal(a.bytes, info.bytes);
            assert_int_equal(a.label, mr_manifest_random_label(7, id, 100));
            if (!(ops->caps & MR_FMT_LOSSY)) {
                ops->synth(&plan.writer, &plan.content, &info, 0, want, info.bytes);
                assert_memory_equal(a.data, want, info.bytes);
            }
            assert_int_equal(mr_dataset_read(r, id, MR_DATASET_VERIFY, NULL, 0, &b, &err), 0);
            assert_int_equal(b.bytes, a.bytes);
            assert_memory_equal(a.data, b.data, a.bytes);
            assert_int_equal(mr_dataset_read(r, id, 0, mine, info.bytes - 1, &c, &err), MR_E_LIMIT);
        }
        struct mr_sample none;
        assert_int_equal(mr_dataset_read(r, plan.samples, 0, NULL, 0, &none, &err), MR_E_USAGE);
        free(mine);
        free(want);
        mr_dataset_reader_free(r);
        mr_dataset_close(ds);
        mr_store_close(s);
    }
}

static void complete_set_is_left_alone_and_another_spec_is_refused(void **state)
{
    (void)state;
    struct mr_store *s = open_store("memory");
    struct mr_gen_spec spec = base_spec("npy"), other = spec;
    struct mr_gen_result r;
    struct mr_error err = {0};
    must_generate(s, "set", &spec, 2, 1, false, &r);
    assert_int_equal(r.files_written, 13);
    must_generate(s, "set", &spec, 2, 3, false, &r);
    assert_int_equal(r.files_written, 0);
    assert_int_equal(r.files_kept, 13);
    assert_true(r.was_complete);
    other.files = 5;
    other.size_bytes = 4000;
    assert_int_equal(generate(s, "set", &other, 1, 1, false, false, NULL, &err), MR_E_CONFIG);
    assert_non_null(strstr(err.message, "files is 13 there, 5 asked"));
    assert_non_null(strstr(err.message, "size is 3000 there, 4000 asked"));
    must_be_good(s, "set");
    assert_int_equal(generate(s, "set", &other, 1, 1, true, false, NULL, &err), 0);
    must_be_good(s, "set"); /* in particular: no file of the old set is left */
    mr_store_close(s);
}

static void foreign_files_are_not_overwritten(void **state)
{
    (void)state;
    struct mr_store *s = open_store("memory");
    struct mr_gen_spec spec = base_spec("npy");
    struct mr_error err = {0};
    assert_int_equal(mr_store_mkdirs(s, "set", &err), 0);
    assert_int_equal(mr_store_write_file(s, "set/img_00_of_13.npy", "mine", 4, &err), 0);
    assert_int_equal(generate(s, "set", &spec, 1, 1, false, false, NULL, &err), MR_E_CONFIG);
    assert_non_null(strstr(err.message, "img_00_of_13.npy"));
    void *data;
    size_t len;
    assert_int_equal(mr_store_read_file(s, "set/img_00_of_13.npy", 100, &data, &len, &err), 0);
    assert_int_equal(len, 4);
    free(data);
    mr_store_close(s);
}

static void flip(struct mr_store *s, const char *path, uint64_t offset)
{
    struct mr_object *o;
    uint8_t b;
    assert_int_equal(mr_object_open(s, path, MR_OBJ_READ | MR_OBJ_WRITE, &o, NULL), 0);
    assert_int_equal(mr_object_read(o, &b, 1, offset, NULL), 0);
    b ^= 0x10;
    assert_int_equal(mr_object_write(o, &b, 1, offset, NULL), 0);
    assert_int_equal(mr_object_close(o, NULL), 0);
}

/* Any byte of any file, headers and side-cars included. */
static void damage_anywhere_is_found_and_repaired(void **state)
{
    (void)state;
    for (unsigned f = 0; f < MR_ARRAY_LEN(formats); f++) {
        if (!mr_format_find(formats[f], NULL))
            continue; /* not in this build */
        struct mr_store *s = open_store("memory");
        struct mr_gen_spec spec = base_spec(formats[f]);
        struct mr_gen_plan plan;
        struct mr_gen_result r;
        char name[MR_NAME_MAX], path[2 * MR_NAME_MAX];
        assert_int_equal(mr_gen_plan_resolve(&spec, "train", &plan, NULL), 0);
        must_generate(s, "set", &spec, 2, 1, false, NULL);
        uint64_t want = hash_set(s, "set", &spec);
        for (unsigned round = 0; round < 12; round += mr_test_stride(3)) {
            unsigned kinds[8] = {0};
            struct mr_store_stat st;
            uint64_t file = mr_rng_below(mr_rng_at(round, MR_RNG_TEST, f), 13);
            mr_name_from_template(&plan.names, file, name);
            snprintf(path, sizeof path, "set/%s%s", name,
                     round == 0 && *plan.format->side_suffixes ? plan.format->side_suffixes : "");
            assert_int_equal(mr_store_stat(s, path, &st, NULL), 0);
            if (round == 1)
                assert_int_equal(s->ops->unlink(s, path, NULL), 0);
            else
                flip(s, path,
                     round == 2   ? 0
                     : round == 3 ? st.bytes - 1
                                  : mr_rng_below(mr_rng_at(round, MR_RNG_TEST, 99), st.bytes));
            struct mr_verify_result v = verify(s, "set", 1, kinds);
            assert_int_equal(v.bad_files, 1);
            assert_int_equal(kinds[round == 1 ? MR_FIND_MISSING : MR_FIND_CONTENT], 1);
            must_generate(s, "set", &spec, 2, 1, true, &r);
            assert_int_equal(r.files_written, 1);
            assert_int_equal(hash_set(s, "set", &spec), want);
            must_be_good(s, "set");
        }
        mr_store_close(s);
    }
}

static void extra_files_are_reported(void **state)
{
    (void)state;
    struct mr_store *s = open_store("memory");
    struct mr_gen_spec spec = base_spec("npy");
    unsigned kinds[8] = {0};
    must_generate(s, "set", &spec, 1, 1, false, NULL);
    assert_int_equal(mr_store_write_file(s, "set/other.npy", "x", 1, NULL), 0);
    assert_int_equal(mr_store_write_file(s, "set/README.txt", "x", 1, NULL), 0);
    struct mr_verify_result v = verify(s, "set", 1, kinds);
    assert_int_equal(v.extra, 1);
    assert_int_equal(v.bad_files, 0);
    assert_int_equal(kinds[MR_FIND_EXTRA], 1);
    mr_store_close(s);
}

static void a_share_of_the_samples_can_be_checked(void **state)
{
    (void)state;
    struct mr_store *s = open_store("memory");
    struct mr_gen_spec spec = base_spec("tfrecord");
    unsigned kinds[8] = {0};
    spec.samples_per_file = 100;
    spec.size_bytes = 50;
    must_generate(s, "set", &spec, 1, 1, false, NULL);
    struct mr_verify_result v = verify(s, "set", 0.1, kinds);
    assert_in_range(v.samples, 80, 180);
    assert_int_equal(v.bad_files, 0);
    assert_false(v.byte_exact);
    mr_store_close(s);
}

/* Every storage call of a whole generation fails once: the error is told, nothing is lost, the next run completes the
 * set. */
static void failing_call_at_any_point_is_survived(void **state)
{
    (void)state;
    static const char *const kinds[] = {"indexed_binary", "npz"};
    for (unsigned k = 0; k < MR_ARRAY_LEN(kinds); k++) {
        struct mr_gen_spec spec = base_spec(kinds[k]);
        spec.files = 3;
        struct mr_store *plain = open_store("memory");
        must_generate(plain, "want", &spec, 1, 1, false, NULL);
        uint64_t want = hash_set(plain, "want", &spec);
        mr_store_close(plain);
        unsigned failures = 0;
        for (unsigned nth = 1;; nth++) {
            struct mr_error err = {0};
            char text[64];
            snprintf(text, sizeof text, "fault(nth=%u,error=%s):memory", nth, nth % 2 ? "EIO" : "ENOSPC");
            struct mr_store *faulty = open_store(text);
            uint64_t matched = 0, injected = 0;
            int r = generate(faulty, "set", &spec, 1, 1, false, false, NULL, &err);
            if (r < 0) {
                failures++;
                assert_true(r == -EIO || r == -ENOSPC);
                assert_true(err.message[0] != 0);
            }
            assert_int_equal(mr_store_fault_counts(faulty, &matched, &injected, &err), 0);
            must_generate(faulty->lower, "set", &spec, 1, 1, false, NULL); /* below the shim nothing fails */
            assert_int_equal(hash_set(faulty->lower, "set", &spec), want);
            must_be_good(faulty->lower, "set");
            mr_store_close(faulty);
            if (injected == 0)
                break;
            assert_true(nth < 500);
        }
        assert_true(failures > 20);
    }
}

static void short_writes_and_interruptions_change_nothing(void **state)
{
    (void)state;
    struct mr_gen_spec spec = base_spec("npz");
    struct mr_store *plain = open_store("memory"), *rough = open_store("fault(op=write,every=2,short=0.3):memory"),
                    *broken = open_store("fault(op=write,every=3,error=EINTR):memory");
    must_generate(plain, "set", &spec, 1, 1, false, NULL);
    must_generate(rough, "set", &spec, 1, 1, false, NULL);
    must_generate(broken, "set", &spec, 1, 1, false, NULL);
    assert_int_equal(hash_set(plain, "set", &spec), hash_set(rough, "set", &spec));
    assert_int_equal(hash_set(plain, "set", &spec), hash_set(broken, "set", &spec));
    mr_store_close(plain);
    mr_store_close(rough);
    mr_store_close(broken);
}

static void set_that_does_not_fit_is_refused_before_writing(void **state)
{
    (void)state;
    struct mr_store *s = open_store("memory,capacity=20000");
    struct mr_gen_spec spec = base_spec("npy");
    struct mr_error err = {0};
    struct mr_store_stat st;
    assert_int_equal(generate(s, "set", &spec, 1, 1, false, false, NULL, &err), -ENOSPC);
    assert_non_null(strstr(err.message, "need"));
    assert_non_null(strstr(err.message, "have"));
    assert_true(mr_store_stat(s, "set/img_00_of_13.npy", &st, NULL) < 0);
    mr_store_close(s);
}

static void sizes_have_the_asked_mean_and_deviation(void **state)
{
    (void)state;
    static const struct {
        uint64_t n;
        double mean, stdev;
    } cases[] = {{168, 146600628, 68341808}, {168, 150000, 70000}, {10000, 2828486, 71311}, {1000, 100000, 100000},
                 {500, 1000, 499},           {37, 4096, 1},        {2, 1000, 100},          {200000, 114660, 136000},
                 {300000, 20000, 9000}};
    for (unsigned c = 0; c < MR_ARRAY_LEN(cases); c++) {
        struct mr_sizes s;
        struct mr_error err = {0};
        if (mr_sizes_init(&s, cases[c].n, 3, cases[c].mean, cases[c].stdev, &err) < 0)
            fail_msg("%s", err.message);
        double sum = 0, square = 0;
        for (uint64_t i = 0; i < cases[c].n; i++) {
            double x = (double)mr_sizes_at(&s, i) - cases[c].mean;
            assert_true(mr_sizes_at(&s, i) >= 1);
            sum += x;
            square += x * x;
        }
        double mean = cases[c].mean + sum / (double)cases[c].n;
        double stdev = sqrt(square / (double)cases[c].n - pow(sum / (double)cases[c].n, 2));
        if (fabs(mean / cases[c].mean - 1) > 0.01 || fabs(stdev - cases[c].stdev) > MR_MAX(0.01 * cases[c].stdev, 0.5))
            fail_msg("case %u: asked %g +- %g, got %g +- %g", c, cases[c].mean, cases[c].stdev, mean, stdev);
    }
    struct mr_sizes s;
    struct mr_error err = {0};
    assert_int_equal(mr_sizes_init(&s, 2, 1, 100, 5000, &err), MR_E_USAGE);
}

static void size_permutation_is_one(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 300; n += 7) {
        unsigned char seen[300] = {0}, half = 0;
        while ((uint64_t)1 << (2 * half) < n)
            half++;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = mr_sizes_permute(n, n, half, i);
            assert_true(p < n && !seen[p]);
            seen[p] = 1;
        }
    }
}

static void normal_quantile_inverts_the_distribution(void **state)
{
    (void)state;
    for (double p = 1e-9; p < 1; p += 0.00137)
        assert_true(fabs(0.5 * erfc(-mr_normal_quantile(p) / sqrt(2)) - p) < 1e-8);
}

/* A changed value would silently make other data sets: fixed for ever within a version. */
static void sizes_and_labels_are_fixed_by_version(void **state)
{
    (void)state;
    struct mr_sizes s;
    assert_int_equal(mr_sizes_init(&s, 1000, 42, 10000, 3000, NULL), 0);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 1000; i++)
        sum = sum * 31 + mr_sizes_at(&s, i);
    uint64_t labels = 0;
    for (uint64_t i = 0; i < 1000; i++)
        labels = labels * 31 + (uint64_t)mr_manifest_random_label(42, i, 1000);
    assert_int_equal(sum, GOLDEN_SIZES);
    assert_int_equal(labels, GOLDEN_LABELS);
}

static void samples_of_a_file_have_one_size_where_the_format_has_it_so(void **state)
{
    (void)state;
    struct mr_gen_plan p;
    struct mr_error err = {0};
    struct mr_gen_spec s = base_spec("npy");
    s.samples_per_file = 3;
    s.files = 400;
    s.size_bytes = 10000;
    s.size_stdev_bytes = 1000;
    assert_int_equal(mr_gen_plan_resolve(&s, "train", &p, &err), 0);
    double sum = 0, square = 0;
    for (uint64_t file = 0; file < 400; file++) {
        struct mr_sample_info one, other;
        assert_int_equal(mr_gen_plan_sample(&p, 3 * file, &one, &err), 0);
        for (uint64_t k = 1; k < 3; k++) {
            assert_int_equal(mr_gen_plan_sample(&p, 3 * file + k, &other, &err), 0);
            assert_int_equal(one.bytes, other.bytes);
        }
        sum += (double)one.bytes / 400;
        square += (double)one.bytes * (double)one.bytes / 400;
    }
    assert_true(fabs(sum - 10000) < 50 && fabs(sqrt(square - sum * sum) - 1000) < 50);
}

static void impossible_specs_are_refused(void **state)
{
    (void)state;
    struct mr_gen_plan p;
    struct mr_error err = {0};
    struct mr_gen_spec a = base_spec("jpeg"), b = base_spec("npy"), c = base_spec("npy"), d = base_spec("nothing"),
                       e = base_spec("npy"), f = base_spec("npy");
    a.samples_per_file = 2;
    b.dims = (struct mr_dims){.n = 1, .dim = {100}};
    b.size_stdev_bytes = 10;
    c.prefix = "../x";
    e.dtype = "float33";
    f.dims = (struct mr_dims){.n = 3, .dim = {1u << 30, 1u << 30, 1u << 30}};
    const struct mr_gen_spec *bad[] = {&a, &b, &c, &d, &e, &f};
    for (unsigned i = 0; i < MR_ARRAY_LEN(bad); i++)
        assert_int_equal(mr_gen_plan_resolve(bad[i], "train", &p, &err), MR_E_USAGE);
}

static int teardown(void **state)
{
    (void)state;
    mr_arena_done(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_do_not_depend_on_threads_or_ranks),
        cmocka_unit_test(files_in_parts_have_the_bytes_of_whole_ones),
        cmocka_unit_test(only_equal_records_are_split),
        cmocka_unit_test(interrupted_parts_are_continued),
        cmocka_unit_test(samples_read_back_are_the_content_of_their_number),
        cmocka_unit_test(complete_set_is_left_alone_and_another_spec_is_refused),
        cmocka_unit_test(foreign_files_are_not_overwritten),
        cmocka_unit_test(damage_anywhere_is_found_and_repaired),
        cmocka_unit_test(extra_files_are_reported),
        cmocka_unit_test(a_share_of_the_samples_can_be_checked),
        cmocka_unit_test(failing_call_at_any_point_is_survived),
        cmocka_unit_test(short_writes_and_interruptions_change_nothing),
        cmocka_unit_test(set_that_does_not_fit_is_refused_before_writing),
        cmocka_unit_test(sizes_have_the_asked_mean_and_deviation),
        cmocka_unit_test(size_permutation_is_one),
        cmocka_unit_test(normal_quantile_inverts_the_distribution),
        cmocka_unit_test(sizes_and_labels_are_fixed_by_version),
        cmocka_unit_test(samples_of_a_file_have_one_size_where_the_format_has_it_so),
        cmocka_unit_test(impossible_specs_are_refused),
    };
    return cmocka_run_group_tests_name("dataset_generate", tests, NULL, teardown);
}
