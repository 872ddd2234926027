/* The manifest: what is written is read back, regular sets cost nothing per sample, and no damaged file is accepted. */
#include "base/common.h"
#include "base/rng.h"
#include "dataset/manifest.h"
#include "dataset/manifest_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct mr_store *memory(void)
{
    struct mr_store *s;
    struct mr_error err;
    assert_int_equal(mr_store_open("memory", &s, &err), 0);
    return s;
}

static const struct mr_name_template tmpl = {
    .subfolders = 4, .digits = 3, .folder_digits = 1, .prefix = "img_", .suffix = "_of_100.raw"};

static struct mr_manifest_builder *builder(const struct mr_name_template *t, uint64_t classes)
{
    struct mr_manifest_builder *b;
    struct mr_error err;
    struct mr_manifest_info info = {.seed = 77,
                                    .content_version = 1,
                                    .rng_version = 1,
                                    .flags = MR_MANIFEST_GENERATED,
                                    .dtype = MR_F32,
                                    .dims = {.n = 2, .dim = {3, 4}},
                                    .label_classes = classes,
                                    .format = "raw"};
    assert_int_equal(mr_manifest_builder_create(&info, t, "{\"a\":1}", &b, &err), 0);
    return b;
}

static struct mr_sample_ref random_ref(uint64_t i)
{
    uint64_t r = mr_rng_at(5, MR_RNG_TEST, i);
    return (struct mr_sample_ref){.raw = {r >> 16, r >> 24},
                                  .aux = (uint32_t)r & 0xffffff,
                                  .label = i % 7 == 0 ? MR_LABEL_NONE : (int64_t)(int32_t)(r >> 20)};
}

static void add_random(struct mr_manifest_builder *b, const char *name, uint64_t first, uint64_t n, uint64_t bytes)
{
    struct mr_sample_columns c = {0};
    struct mr_error err;
    for (uint64_t i = 0; i < n; i++) {
        struct mr_sample_ref ref = random_ref(first + i);
        assert_int_equal(mr_sample_columns_add(&c, &ref, &err), 0);
    }
    struct mr_manifest_file f = {
        .name = name, .bytes = bytes, .layout = {.data = (void *)"layout", .len = first % 3 + 1}};
    mr_sample_columns_finish(&c, f.column);
    if (n == 0)
        for (unsigned k = 0; k < MR_SC_COUNT; k++)
            f.column[k] = (struct mr_column){.encoding = MR_COLUMN_CONST};
    assert_int_equal(mr_manifest_builder_add(b, &f, &err), 0);
    mr_sample_columns_done(&c);
}

static struct mr_manifest *write_and_open(struct mr_manifest_builder *b, struct mr_store *s)
{
    struct mr_manifest *m = NULL;
    struct mr_error err;
    if (mr_manifest_builder_write(b, s, "m", &err) < 0 || mr_manifest_open(s, "m", &m, &err) < 0)
        fail_msg("%s", err.message);
    mr_manifest_builder_free(b);
    return m;
}

static void expect_ref(const struct mr_manifest *m, uint64_t id, const struct mr_sample_ref *want)
{
    struct mr_manifest_pos p;
    struct mr_error err;
    assert_int_equal(mr_manifest_locate(m, id, &p, &err), 0);
    assert_int_equal(p.ref.raw.offset, want->raw.offset);
    assert_int_equal(p.ref.raw.length, want->raw.length);
    assert_int_equal(p.ref.aux, want->aux);
    assert_int_equal(p.ref.label, want->label);
}

static void manifest_irregular_samples_come_back(void **state)
{
    (void)state;
    struct mr_store *s = memory();
    struct mr_manifest_builder *b = builder(NULL, 0);
    uint64_t count[] = {3, 0, 1, 17, 2, 0, 0, 40, 5, 1, 1, 1, 9, 2, 2, 8, 3, 4, 0, 6};
    uint64_t first = 0;
    char name[64];
    for (unsigned f = 0; f < MR_ARRAY_LEN(count); f++) {
        snprintf(name, sizeof name, "folder/file-%04u%s", f, f % 3 ? "" : "-long-tail");
        add_random(b, name, first, count[f], 1000 + f);
        first += count[f];
    }
    struct mr_manifest *m = write_and_open(b, s);
    assert_int_equal(mr_manifest_get_info(m)->samples, first);
    assert_int_equal(mr_manifest_get_info(m)->files, MR_ARRAY_LEN(count));
    assert_string_equal(mr_manifest_get_spec(m), "{\"a\":1}");
    uint64_t at = 0;
    for (unsigned f = 0; f < MR_ARRAY_LEN(count); f++) {
        uint64_t from, n;
        char have[MR_NAME_MAX];
        struct mr_layout l;
        mr_manifest_file_samples(m, f, &from, &n);
        assert_int_equal(from, at);
        assert_int_equal(n, count[f]);
        assert_int_equal(mr_manifest_file_bytes(m, f), 1000 + f);
        mr_manifest_file_layout(m, f, &l);
        assert_int_equal(l.len, at % 3 + 1);
        assert_memory_equal(l.data, "layout", l.len);
        snprintf(name, sizeof name, "folder/file-%04u%s", f, f % 3 ? "" : "-long-tail");
        assert_int_equal(mr_manifest_file_name(m, f, have, NULL), strlen(name));
        assert_string_equal(have, name);
        assert_int_equal(mr_manifest_find_file(m, name), f);
        for (uint64_t i = 0; i < n; i++) {
            struct mr_manifest_pos p;
            struct mr_sample_ref want = random_ref(at + i);
            assert_int_equal(mr_manifest_locate(m, at + i, &p, NULL), 0);
            assert_int_equal(p.file, f);
            assert_int_equal(p.index, i);
            expect_ref(m, at + i, &want);
        }
        at += n;
    }
    assert_int_equal(mr_manifest_find_file(m, "folder/nothing"), UINT64_MAX);
    struct mr_manifest_pos p;
    assert_int_equal(mr_manifest_locate(m, first, &p, NULL), MR_E_USAGE);
    mr_manifest_close(m);
    mr_store_close(s);
}

/* The budget: 24 bytes per sample for the worst generated case, one sample per file. */
static void manifest_costs_at_most_24_bytes_per_sample(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct mr_store *s = memory();
    struct mr_manifest_builder *b = builder(&tmpl, 0);
    for (uint64_t f = 0; f < N; f++) {
        struct mr_sample_columns c = {0};
        struct mr_sample_ref ref = random_ref(f);
        assert_int_equal(mr_sample_columns_add(&c, &ref, NULL), 0);
        struct mr_manifest_file file = {.bytes = mr_rng_at(6, MR_RNG_TEST, f) >> 16,
                                        .layout = {.data = (void *)"x", .len = 1}};
        mr_sample_columns_finish(&c, file.column);
        assert_int_equal(mr_manifest_builder_add(b, &file, NULL), 0);
        mr_sample_columns_done(&c);
    }
    struct mr_manifest *m = write_and_open(b, s);
    assert_true(mr_manifest_bytes(m) <= 24 * (uint64_t)N + 4096);
    assert_int_equal(mr_manifest_get_info(m)->samples_per_file, 1);
    char name[MR_NAME_MAX];
    mr_manifest_file_name(m, 97, name, NULL);
    assert_string_equal(name, "1/img_097_of_100.raw");
    assert_int_equal(mr_manifest_find_file(m, "1/img_097_of_100.raw"), 97);
    assert_int_equal(mr_manifest_find_file(m, "2/img_097_of_100.raw"), UINT64_MAX);
    assert_int_equal(mr_manifest_find_file(m, "1/img_97_of_100.raw"), UINT64_MAX);
    mr_manifest_close(m);
    mr_store_close(s);
}

static void manifest_of_1e9_regular_samples_is_tiny(void **state)
{
    (void)state;
    const uint64_t files = 1000, each = 1000000;
    struct mr_store *s = memory();
    struct mr_manifest_builder *b = builder(&tmpl, 1000);
    struct mr_manifest_file f = {.bytes = each * 2048 + 128, .layout = {.data = (void *)"x", .len = 1}};
    for (unsigned k = 0; k < MR_SC_COUNT; k++)
        f.column[k] = (struct mr_column){.encoding = MR_COLUMN_CONST, .count = each};
    f.column[MR_SC_OFFSET] = (struct mr_column){.encoding = MR_COLUMN_AFFINE, .count = each, .base = 128, .step = 2048};
    f.column[MR_SC_LENGTH].base = 2048;
    for (uint64_t i = 0; i < files; i++)
        assert_int_equal(mr_manifest_builder_add(b, &f, NULL), 0);
    struct mr_manifest *m = write_and_open(b, s);
    assert_true(mr_manifest_bytes(m) < 4096);
    assert_int_equal(mr_manifest_get_info(m)->samples, files * each);
    assert_int_equal(mr_manifest_get_info(m)->sample_bytes, files * each * 2048);
    mr_manifest_close(m);
    assert_int_equal(mr_manifest_open(s, "m", &m, NULL), 0);
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t id = mr_rng_below(mr_rng_at(9, MR_RNG_TEST, i), files * each);
        struct mr_sample_ref want = {.raw = {128 + 2048 * (id % each), 2048},
                                     .label = mr_manifest_random_label(77, id, 1000)};
        expect_ref(m, id, &want);
    }
    mr_manifest_close(m);
    mr_store_close(s);
}

static void *manifest_bytes_of(bool names, size_t *len)
{
    struct mr_store *s = memory();
    struct mr_manifest_builder *b = builder(names ? NULL : &tmpl, 0);
    char name[64];
    for (unsigned f = 0; f < 20; f++) {
        snprintf(name, sizeof name, "d/file-%04u", f);
        add_random(b, name, 3 * f, 3, 1000 + f * f);
    }
    assert_int_equal(mr_manifest_builder_add_class(b, "cat", NULL), 0);
    assert_int_equal(mr_manifest_builder_write(b, s, "m", NULL), 0);
    mr_manifest_builder_free(b);
    void *data;
    assert_int_equal(mr_store_read_file(s, "m", 1 << 20, &data, len, NULL), 0);
    mr_store_close(s);
    return data;
}

static void manifest_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    size_t len;
    uint8_t *data = manifest_bytes_of(true, &len);
    for (size_t n = 0; n < len; n++) {
        struct mr_manifest *m = NULL;
        struct mr_error err = {0};
        uint8_t *cut = malloc(n + 1); /* exact size, so that a read beyond it is seen */
        memcpy(cut, data, n);
        uint8_t *exact = realloc(cut, n ? n : 1);
        int r = mr_manifest_parse(exact, n, "cut", &m, &err);
        assert_int_equal(r, MR_E_FORMAT);
        assert_true(err.message[0] != 0);
        free(exact);
    }
    free(data);
}

/* Every bit is covered by a checksum or must be zero. */
static void manifest_with_any_flipped_bit_is_refused(void **state)
{
    (void)state;
    size_t len;
    uint8_t *data = manifest_bytes_of(true, &len);
    struct mr_manifest *m = NULL;
    assert_int_equal(mr_manifest_parse(data, len, "good", &m, NULL), 0);
    mr_manifest_close(m);
    for (size_t i = 0; i < len; i++) {
        struct mr_error err = {0};
        data[i] ^= (uint8_t)(1u << (i % 8));
        assert_true(mr_manifest_parse(data, len, "flipped", &m, &err) < 0);
        assert_true(err.message[0] != 0);
        data[i] ^= (uint8_t)(1u << (i % 8));
    }
    free(data);
}

static void manifest_refuses_names_that_leave_the_folder(void **state)
{
    (void)state;
    static const char *const bad[] = {"../x", "/etc/passwd", "a/../../b", "a//b", "./a", "a/.", "", ".."};
    static const char *const good[] = {"a", "a/b", "..a", "a..", "new\nline", "\xff\xfe"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(bad); i++)
        assert_false(mr_name_is_safe(bad[i], strlen(bad[i])));
    for (unsigned i = 0; i < MR_ARRAY_LEN(good); i++)
        assert_true(mr_name_is_safe(good[i], strlen(good[i])));
}

static void manifest_refuses_values_beyond_its_widths(void **state)
{
    (void)state;
    struct mr_sample_columns c = {0};
    struct mr_error err;
    struct mr_sample_ref far = {.raw = {1ull << 48, 1}}, longest = {.raw = {0, 1ull << 40}}, aux = {.aux = 1u << 24},
                         label = {.label = 1ll << 40};
    assert_int_equal(mr_sample_columns_add(&c, &far, &err), MR_E_LIMIT);
    assert_int_equal(mr_sample_columns_add(&c, &longest, &err), MR_E_LIMIT);
    assert_int_equal(mr_sample_columns_add(&c, &aux, &err), MR_E_LIMIT);
    assert_int_equal(mr_sample_columns_add(&c, &label, &err), MR_E_LIMIT);
    mr_sample_columns_done(&c);
}

/* Property: a column returns what was added, whatever the grouping, and whatever rule it found. */
static void column_returns_what_was_added(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 300; round++) {
        struct mr_colbuild b = {.raw_width = 8};
        uint64_t value[200], index[200], n = 0, kind = round % 5;
        while (n < 150) {
            uint64_t group = kind < 3 ? 1 + round % 7 : 1 + mr_rng_below(mr_rng_at(round, MR_RNG_TEST, n), 12);
            struct mr_colbuild one = {.raw_width = 8};
            struct mr_column c;
            bool whole = round % 2;
            for (uint64_t j = 0; j < group; j++, n++) {
                uint64_t r = mr_rng_at(round, MR_RNG_TEST, 1000 + n);
                value[n] = kind == 0 ? 42 : kind == 1 ? 100 + 8 * j : kind == 2 && n > 100 ? r >> 40 : 100 + 16 * j;
                index[n] = j;
                assert_int_equal(mr_colbuild_add(whole ? &one : &b, j, value[n]), 0);
            }
            if (whole) {
                mr_colbuild_finish(&one, &c);
                assert_int_equal(mr_colbuild_add_group(&b, &c), 0);
            }
            mr_colbuild_done(&one);
        }
        struct mr_column c;
        mr_colbuild_finish(&b, &c);
        assert_int_equal(c.count, n);
        for (uint64_t i = 0; i < n; i++)
            assert_int_equal(mr_column_get(&c, i, index[i]), value[i]);
        if (kind == 0)
            assert_int_equal(c.encoding, MR_COLUMN_CONST);
        if (kind == 1)
            assert_int_equal(c.data_bytes, 0);
        mr_colbuild_done(&b);
    }
}

static void templated_names_are_what_printf_writes(void **state)
{
    (void)state;
    static const uint64_t numbers[] = {0, 7, 9, 10, 999, 1000, 123456789, UINT64_MAX};
    for (uint32_t digits = 0; digits <= 20; digits++)
        for (unsigned i = 0; i < MR_ARRAY_LEN(numbers); i++)
            for (uint64_t folders = 0; folders <= 1000; folders += 500) {
                const struct mr_name_template t = {.subfolders = folders,
                                                   .digits = digits,
                                                   .folder_digits = digits / 2,
                                                   .prefix = "a%d",
                                                   .suffix = ".npz"};
                char have[MR_NAME_MAX], want[MR_NAME_MAX], folder[64] = "";
                if (folders)
                    snprintf(folder, sizeof folder, "%0*llu/", (int)digits / 2,
                             (unsigned long long)(numbers[i] % folders));
                snprintf(want, sizeof want, "%sa%%d%0*llu.npz", folder, (int)digits, (unsigned long long)numbers[i]);
                assert_int_equal(mr_name_from_template(&t, numbers[i], have), strlen(want));
                assert_string_equal(have, want);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templated_names_are_what_printf_writes),
        cmocka_unit_test(column_returns_what_was_added),
        cmocka_unit_test(manifest_irregular_samples_come_back),
        cmocka_unit_test(manifest_costs_at_most_24_bytes_per_sample),
        cmocka_unit_test(manifest_of_1e9_regular_samples_is_tiny),
        cmocka_unit_test(manifest_cut_at_any_byte_is_refused),
        cmocka_unit_test(manifest_with_any_flipped_bit_is_refused),
        cmocka_unit_test(manifest_refuses_names_that_leave_the_folder),
        cmocka_unit_test(manifest_refuses_values_beyond_its_widths),
    };
    return cmocka_run_group_tests_name("dataset_manifest", tests, NULL, NULL);
}
