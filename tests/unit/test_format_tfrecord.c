/* TFRecord: files others wrote, the wire format of Examples, indexes, wrong lengths. */
#include "format_testlib.h"

#include "base/crc32c.h"
#include "format/tf_example.h"

extern const struct mr_format_ops mr_format_tfrecord;

static size_t put_record(uint8_t *out, const void *data, size_t len)
{
    mr_store_le64(out, len);
    mr_store_le32(out + 8, mr_crc32c_mask(mr_crc32c(0, out, 8)));
    memcpy(out + 12, data, len);
    mr_store_le32(out + 12 + len, mr_crc32c_mask(mr_crc32c(0, data, len)));
    return len + 16;
}

static int memory_get(void *ctx, uint64_t offset, size_t len, const uint8_t **out, struct mr_error *err)
{
    (void)len, (void)err;
    *out = (const uint8_t *)ctx + offset;
    return 0;
}

static struct mr_tf_found find(const void *data, size_t len)
{
    struct mr_tf_found found;
    struct mr_tf_source src = {memory_get, (void *)(uintptr_t)data};
    assert_int_equal(mr_tf_example_find(&src, 0, len, &found, NULL), 0);
    return found;
}

/* Example { "image/encoded": bytes "PAY", "label": int64 5 (unpacked), "w": float, unknown field 9 }, by hand. */
static const char foreign[] = "\x0a\x41"
                              "\x0a\x18"
                              "\x0a\x0d"
                              "image/encoded"
                              "\x12\x07"
                              "\x0a\x05"
                              "\x0a\x03"
                              "PAY"
                              "\x0a\x0d"
                              "\x0a\x05"
                              "label"
                              "\x12\x04"
                              "\x1a\x02"
                              "\x08\x05"
                              "\x0a\x12"
                              "\x0a\x01"
                              "w"
                              "\x12\x0d"
                              "\x12\x06"
                              "\x0a\x04"
                              "\0\0\x80\x3f"
                              "\x2a\x03"
                              "xyz"
                              "\x4a\x02"
                              "hi";

static void features_of_foreign_examples_are_found(void **state)
{
    (void)state;
    struct mr_tf_found f = find(foreign, sizeof foreign - 1);
    assert_true(f.is_example);
    assert_int_equal(f.payload_length, 3);
    assert_memory_equal(foreign + f.payload_offset, "PAY", 3);
    assert_true(f.label == 5);
}

static void every_cut_of_an_example_is_no_example(void **state)
{
    (void)state;
    for (size_t n = 0; n < 67; n++)
        assert_false(find(foreign, n).is_example);
}

static void our_prefix_is_what_the_reader_finds(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 127, 128, 16383, 16384, 5000};
    static const int64_t labels[] = {MR_LABEL_NONE, 0, 1, 127, 128, -1, INT64_MAX};
    for (size_t i = 0; i < MR_ARRAY_LEN(sizes); i++)
        for (size_t k = 0; k < MR_ARRAY_LEN(labels); k++) {
            uint8_t *ex = calloc(1, MR_TF_PREFIX_MAX + sizes[i]);
            size_t n = mr_tf_example_prefix(sizes[i], labels[k], ex);
            assert_true(n <= MR_TF_PREFIX_MAX);
            struct mr_tf_found f = find(ex, n + sizes[i]);
            assert_true(f.is_example && f.payload_offset == n && f.payload_length == sizes[i] && f.label == labels[k]);
            free(ex);
        }
    uint8_t huge[MR_TF_PREFIX_MAX];
    assert_true(mr_tf_example_prefix(MR_LIMIT_SAMPLE_BYTES, INT64_MIN + 1, huge) <= MR_TF_PREFIX_MAX);
}

static void hostile_varints_are_no_example(void **state)
{
    (void)state;
    static const char *const bad[] = {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                                      "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                                      "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x0b\x01", "\x02\x01"};
    for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++)
        assert_false(find(bad[i], strlen(bad[i])).is_example);
}

struct file {
    struct mr_store *s;
    struct test_scan c;
    struct mr_error err;
};

static int scan_bytes(struct file *f, const void *data, size_t len)
{
    f->s = test_store("memory");
    test_put_file(f->s, "f", data, len);
    return test_scan_file(f->s, &mr_format_tfrecord, "f", &f->c, &f->err);
}

static void done(struct file *f)
{
    free(f->c.layout.data);
    mr_store_close(f->s);
}

static void foreign_files_give_payloads_and_raw_records(void **state)
{
    (void)state;
    uint8_t bytes[512];
    struct file f;
    size_t a = put_record(bytes, foreign, sizeof foreign - 1), b = put_record(bytes + a, "plain text", 10);
    assert_ok(scan_bytes(&f, bytes, a + b), f.err);
    assert_int_equal(f.c.n, 2);
    struct mr_decoder *d = mr_decoder_create();
    struct mr_growbuf raw = {0};
    struct mr_sample_out out;
    assert_ok(test_read(f.s, "f", &mr_format_tfrecord, &f.c.layout, &f.c.ref[0], MR_READ_VERIFY, d, &raw, &out, &f.err),
              f.err);
    assert_int_equal(out.bytes, 3);
    assert_memory_equal(out.data, "PAY", 3);
    assert_true(out.label == 5);
    assert_ok(test_read(f.s, "f", &mr_format_tfrecord, &f.c.layout, &f.c.ref[1], MR_READ_VERIFY, d, &raw, &out, &f.err),
              f.err);
    assert_memory_equal(out.data, "plain text", 10);
    free(raw.data);
    mr_decoder_free(d);
    done(&f);
}

/* A payload that lies deeper in its record than the ref can say is checked once, while scanning. */
static void deep_payloads_are_checked_while_scanning(void **state)
{
    (void)state;
    enum { PAD = 9000 };
    size_t inner = sizeof foreign - 1, n = 3 + PAD;
    uint8_t *all = malloc(n + inner), *file = malloc(n + inner + 16);
    memset(all, 'z', n);
    all[0] = 0x4a; /* unknown field 9 of PAD bytes comes first */
    all[1] = (uint8_t)(0x80 | (PAD & 0x7f));
    all[2] = (uint8_t)(PAD >> 7);
    memcpy(all + n, foreign, inner);
    size_t len = put_record(file, all, n + inner);
    struct file f;
    assert_ok(scan_bytes(&f, file, len), f.err);
    assert_int_equal(f.c.n, 1);
    assert_int_equal(f.c.ref[0].aux, 0);
    assert_int_equal(f.c.ref[0].raw.length, 3);
    done(&f);
    file[5000] ^= 1;
    assert_int_equal(scan_bytes(&f, file, len), MR_E_CORRUPT);
    done(&f);
    free(all);
    free(file);
}

static void wrong_lengths_are_told_with_offset(void **state)
{
    (void)state;
    uint8_t bytes[256];
    struct file f;
    size_t a = put_record(bytes, "first", 5), b = put_record(bytes + a, "second", 6);
    for (size_t cut = 1; cut < a + b; cut++) {
        if (cut == a)
            continue;
        assert_int_equal(scan_bytes(&f, bytes, cut), MR_E_FORMAT);
        assert_non_null(strstr(f.err.message, "unexpected end of file"));
        done(&f);
    }
    bytes[a + 2] ^= 4;
    assert_int_equal(scan_bytes(&f, bytes, a + b), MR_E_CORRUPT);
    assert_non_null(strstr(f.err.message, "record 1 at offset 21"));
    assert_true(f.err.hint[0]);
    done(&f);
    /* A right checksum over an absurd length. */
    mr_store_le64(bytes, UINT64_MAX - 4);
    mr_store_le32(bytes + 8, mr_crc32c_mask(mr_crc32c(0, bytes, 8)));
    assert_int_equal(scan_bytes(&f, bytes, a + b), MR_E_FORMAT);
    done(&f);
}

/* The first record of this length makes the file start with gzip's magic. */
static void a_record_that_looks_like_gzip_is_read(void **state)
{
    (void)state;
    size_t len = 0x088b1f;
    uint8_t *data = calloc(1, len), *bytes = malloc(len + 16);
    struct file f;
    size_t n = put_record(bytes, data, len);
    assert_true(bytes[0] == 0x1f && bytes[1] == 0x8b && bytes[2] == 8);
    assert_ok(scan_bytes(&f, bytes, n), f.err);
    assert_int_equal(f.c.n, 1);
    assert_int_equal(f.c.ref[0].raw.length, len);
    done(&f);
    free(data);
    free(bytes);
}

static int scan_with_index(struct file *f, const void *data, size_t len, const char *index)
{
    f->s = test_store("memory");
    test_put_file(f->s, "f", data, len);
    test_put_text(f->s, "f.idx", index);
    return test_scan_file(f->s, &mr_format_tfrecord, "f", &f->c, &f->err);
}

static void an_index_must_agree_with_the_file(void **state)
{
    (void)state;
    uint8_t bytes[256];
    struct file f;
    size_t a = put_record(bytes, "first", 5), b = put_record(bytes + a, "second", 6);
    assert_int_equal(a, 21);
    static const struct {
        const char *text;
        int want; /* records, or negative code */
    } cases[] = {{"0 21\n21 22\n", 2},
                 {"0 21\r\n21 22", 2},
                 {"21 22\n", 1},
                 {"0\t21\n", 1},
                 {"0 20\n", MR_E_FORMAT},
                 {"0 21\n20 22\n", MR_E_FORMAT},
                 {"21 22\n0 21\n", MR_E_FORMAT},
                 {"21 23\n", MR_E_FORMAT},
                 {"44 1\n", MR_E_FORMAT},
                 {"x\n", MR_E_FORMAT},
                 {"0\n", MR_E_FORMAT},
                 {"0 21 3\n", MR_E_FORMAT},
                 {"99999999999999999999999 21\n", MR_E_FORMAT},
                 {"", 2}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        int rc = scan_with_index(&f, bytes, a + b, cases[i].text);
        assert_int_equal(rc < 0 ? rc : (int)f.c.n, cases[i].want);
        if (rc == MR_E_FORMAT && i < 7)
            assert_true(f.err.hint[0]);
        done(&f);
    }
}

static void our_index_is_what_dali_reads(void **state)
{
    (void)state;
    struct mr_store *s = test_store("memory");
    struct mr_error err;
    struct test_file t = {.f = &mr_format_tfrecord, .n = 3, .spec = {.dtype = MR_U8, .fixed_size = true}};
    assert_ok(test_write(s, "f", &t, (uint64_t[]){100}, 64, &err), err);
    void *text;
    size_t len;
    assert_ok(mr_store_read_file(s, "f.idx", 4096, &text, &len, &err), err);
    char want[128];
    unsigned long long each = t.bytes / 3;
    snprintf(want, sizeof want, "0 %llu\n%llu %llu\n%llu %llu\n", each, each, each, 2 * each, each);
    assert_string_equal(text, want);
    free(text);
    test_file_done(&t);
    mr_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_of_foreign_examples_are_found),
        cmocka_unit_test(every_cut_of_an_example_is_no_example),
        cmocka_unit_test(our_prefix_is_what_the_reader_finds),
        cmocka_unit_test(hostile_varints_are_no_example),
        cmocka_unit_test(foreign_files_give_payloads_and_raw_records),
        cmocka_unit_test(deep_payloads_are_checked_while_scanning),
        cmocka_unit_test(wrong_lengths_are_told_with_offset),
        cmocka_unit_test(a_record_that_looks_like_gzip_is_read),
        cmocka_unit_test(an_index_must_agree_with_the_file),
        cmocka_unit_test(our_index_is_what_dali_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
