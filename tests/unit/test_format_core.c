/* What formats share: element types, the registry, gzip with its limits, the streams, decoder scratch. With arguments
 * it is a tool for the interoperability tests:
 *
 *   test_format_core write FORMAT FILE SAMPLES BYTES [gzip]   writes samples of known content
 *   test_format_core dump FORMAT FILE                         scans and prints one line per sample: label dtype dims
 * hex */
#include "format_testlib.h"

#include "format/gzip_inflate.h"
#include "format/stream_in.h"
#include "format/stream_out.h"
#include "format/text_values.h"

#include <locale.h>
#include <math.h>
#include <zlib.h>

static void dtype_names_of_numpy_and_people_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mr_dtype want;
        bool swap;
    } cases[] = {{"uint8", MR_U8, false},  {"u1", MR_U8, false},         {"|u1", MR_U8, false},
                 {"<f4", MR_F32, false},   {">f4", MR_F32, true},        {">u1", MR_U8, false},
                 {"fp16", MR_F16, false},  {"bfloat16", MR_BF16, false}, {"u8", MR_U64, false},
                 {"int8", MR_I8, false},   {"i8", MR_I64, false},        {"=c16", MR_C128, false},
                 {"bool", MR_BOOL, false}, {"Float64", MR_F64, false}};
    struct mr_error err;
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        enum mr_dtype t;
        bool swap = !cases[i].swap;
        assert_ok(mr_dtype_parse(cases[i].text, &t, &swap, &err), err);
        assert_int_equal(t, cases[i].want);
        assert_int_equal(swap, cases[i].swap);
    }
    enum mr_dtype t;
    assert_int_equal(mr_dtype_parse("float33", &t, NULL, &err), MR_E_USAGE);
    assert_non_null(strstr(err.message, "float32"));
    assert_int_equal(mr_dtype_parse(">f4", &t, NULL, &err), MR_E_USAGE);
    assert_int_equal(mr_dtype_parse("<uint8", &t, NULL, &err), MR_E_USAGE);
}

static void unknown_formats_are_listed(void **state)
{
    (void)state;
    struct mr_error err;
    assert_null(mr_format_find("tfrekord", &err));
    assert_int_equal(err.code, MR_E_USAGE);
    assert_non_null(strstr(err.message, "tfrecord"));
    assert_string_equal(mr_format_for_path("a/b.TFRecord.gz")->name, "tfrecord");
    assert_string_equal(mr_format_for_path("a/b.jsonl")->name, "jsonl");
    assert_string_equal(mr_format_for_path("a/b.mmap_indexed_binary")->name, "mmap_indexed_binary");
    assert_null(mr_format_for_path("a/b.txt"));
    assert_null(mr_format_for_path(".csv"));
}

static size_t gzip_of(const void *data, size_t len, uint8_t *out, size_t cap)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (uint8_t *)(uintptr_t)data;
    z.avail_in = (unsigned)len;
    z.next_out = out;
    z.avail_out = (unsigned)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static void gzip_members_are_joined_and_damage_is_found(void **state)
{
    (void)state;
    struct mr_error err;
    uint8_t packed[400];
    size_t a = gzip_of("hello ", 6, packed, 100), b = gzip_of("world", 5, packed + a, 100);
    void *out = NULL;
    size_t len = 0;
    memset(packed + a + b, 0, 40); /* padding after the last member */
    assert_ok(mr_gzip_inflate(packed, a + b + 40, &out, &len, &err), err);
    assert_int_equal(len, 11);
    assert_memory_equal(out, "hello world", 11);
    free(out);
    for (size_t cut = 0; cut < a + b; cut++) {
        if (cut == a)
            continue;
        assert_true(mr_gzip_inflate(packed, cut, &out, &len, &err) < 0);
    }
    packed[a - 6] ^= 1; /* CRC of the first member */
    assert_int_equal(mr_gzip_inflate(packed, a + b, &out, &len, &err), MR_E_CORRUPT);
    packed[a - 6] ^= 1;
    packed[a + b] = 'x';
    assert_int_equal(mr_gzip_inflate(packed, a + b + 1, &out, &len, &err), MR_E_FORMAT);
}

/* The size at the end of a gzip stream is only a hint: claiming 4 GiB must cost nothing. */
static void a_lying_gzip_size_allocates_nothing(void **state)
{
    (void)state;
    struct mr_error err;
    uint8_t packed[100];
    size_t n = gzip_of("hi", 2, packed, sizeof packed);
    memset(packed + n - 4, 0xff, 4);
    void *out;
    size_t len;
    assert_int_equal(mr_gzip_inflate(packed, n, &out, &len, &err), MR_E_CORRUPT);
}

static void small_puts_are_written_in_large_pieces(void **state)
{
    (void)state;
    struct mr_error err;
    /* The 4th write fails; 1.2 MB in puts of 100 bytes need only three. */
    struct mr_store *s = test_store("fault(op=write,nth=4,error=EIO):memory");
    struct mr_stream_out *o;
    assert_ok(mr_stream_out_open(s, "f", MR_COMP_NONE, 0, 0, &o, &err), err);
    char piece[100];
    memset(piece, 'p', sizeof piece);
    for (int i = 0; i < 12000; i++)
        assert_ok(mr_stream_out_put(o, piece, sizeof piece, &err), err);
    uint64_t bytes = 0;
    assert_true(mr_stream_out_position(o) == 1200000);
    assert_ok(mr_stream_out_close(o, &bytes, &err), err);
    assert_true(bytes == 1200000);
    mr_store_close(s);
}

static void a_failed_stream_stays_failed(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_store *s = test_store("fault(op=write,nth=1,error=ENOSPC):memory");
    struct mr_stream_out *o;
    char *big = calloc(1, 1 << 20);
    assert_ok(mr_stream_out_open(s, "f", MR_COMP_NONE, 0, 0, &o, &err), err);
    assert_int_equal(mr_stream_out_put(o, big, 1 << 20, &err), -ENOSPC);
    assert_int_equal(mr_stream_out_put(o, "x", 1, &err), -ENOSPC);
    assert_int_equal(mr_stream_out_close(o, NULL, &err), -ENOSPC);
    free(big);
    mr_store_close(s);
}

static void scratch_and_private_objects_are_kept_and_freed(void **state)
{
    (void)state;
    struct mr_decoder *d = mr_decoder_create();
    void *a = mr_decoder_scratch(d, 0, 100), *b = mr_decoder_scratch(d, 1, 100);
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(mr_decoder_scratch(d, 0, 50), a);
    assert_null(mr_decoder_scratch(d, 4, 1));
    int key1, key2;
    *mr_decoder_private(d, &key1, free) = malloc(10);
    assert_non_null(*mr_decoder_private(d, &key1, free));
    assert_null(*mr_decoder_private(d, &key2, free));
    mr_decoder_free(d);
    mr_decoder_free(NULL);
}

/* Bit patterns of every kind survive printing and parsing, in a locale with a decimal comma too. */
static void floats_survive_text_exactly(void **state)
{
    (void)state;
    struct mr_error err;
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        print_message("de_DE.UTF-8 not installed: checked in the C locale only\n");
    static const enum mr_dtype types[] = {MR_F16, MR_BF16, MR_F32, MR_F64};
    struct mr_store *s = test_store("memory");
    for (unsigned k = 0; k < MR_ARRAY_LEN(types); k++) {
        enum { N = 3000 };
        unsigned size = mr_dtype_bytes(types[k]);
        uint8_t *in = malloc(N * size), *out = malloc(N * size);
        for (unsigned i = 0; i < N; i++) {
            uint64_t bits = i < 4 ? (uint64_t)(i & 1) << (8 * size - 1) | (i >> 1) : mr_rng_at(3, MR_RNG_TEST, i);
            for (unsigned b = 0; b < size; b++)
                in[i * size + b] = (uint8_t)(bits >> 8 * b);
            uint8_t *top = in + i * size + size - 1;
            uint8_t ones = types[k] == MR_F16 ? 0x7c : 0x7f;
            if ((*top & ones) == ones)
                *top &= (uint8_t)~0x40;
        }
        struct mr_stream_out *o;
        struct mr_text_printer p = {.dtype = types[k]};
        assert_ok(mr_stream_out_open(s, "t", MR_COMP_NONE, 0, 0, &o, &err), err);
        for (size_t at = 0; at < N * size; at += 7)
            assert_ok(mr_text_print(&p, o, in + at, MR_MIN((size_t)7, N * size - at), &err), err);
        assert_ok(mr_stream_out_close(o, NULL, &err), err);
        void *text;
        size_t len;
        assert_ok(mr_store_read_file(s, "t", 1 << 20, &text, &len, &err), err);
        struct mr_text_sink sink;
        mr_text_sink_init(&sink, types[k], out, N * size);
        for (const char *q = text, *end = q + len; q < end;) {
            struct mr_number num;
            size_t n = mr_number_lex(q, end, true, &num);
            assert_true(n && mr_text_sink_add(&sink, &num));
            q += n + 1;
        }
        assert_int_equal(sink.bytes, N * size);
        assert_memory_equal(in, out, N * size);
        free(text);
        free(in);
        free(out);
    }
    mr_store_close(s);
    setlocale(LC_ALL, "C");
}

static double parsed(const char *text)
{
    struct mr_number n;
    struct mr_text_sink s;
    double v = 0;
    assert_int_equal(mr_number_lex(text, text + strlen(text), true, &n), strlen(text));
    mr_text_sink_init(&s, MR_F64, &v, sizeof v);
    assert_true(mr_text_sink_add(&s, &n));
    return v;
}

static void decimals_are_rounded_as_strtod_rounds_them(void **state)
{
    (void)state;
    static const char *const hard[] = {"9007199254740993",
                                       "1.7976931348623158e308",
                                       "2.2250738585072011e-308",
                                       "4.9e-324",
                                       "2e-324",
                                       "0.1",
                                       "123456789012345678901234567890",
                                       "1e400",
                                       "1e-400",
                                       "5e-324",
                                       "8.41e21",
                                       "9214843084008499",
                                       "0.500000000000000166533453693773481063544750213623046875",
                                       "6929495644600919.5",
                                       "3.7455744005952583e15"};
    for (size_t i = 0; i < MR_ARRAY_LEN(hard); i++)
        assert_true(parsed(hard[i]) == strtod(hard[i], NULL));
    for (unsigned i = 0; i < 20000; i++) {
        char text[64];
        uint64_t r = mr_rng_at(11, MR_RNG_TEST, i);
        snprintf(text, sizeof text, "%s%llu.%llue%d", r & 1 ? "-" : "", (unsigned long long)(r >> 33),
                 (unsigned long long)(r >> 5 & 0xffffff), (int)(r >> 20 & 1023) % 600 - 300);
        assert_true(parsed(text) == strtod(text, NULL));
    }
    assert_true(isnan(parsed("NaN")) && isinf(parsed("-Infinity")) && parsed("-inf") < 0);
}

static void integers_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mr_dtype t;
        bool fits;
    } cases[] = {{"255", MR_U8, true},
                 {"256", MR_U8, false},
                 {"-1", MR_U8, false},
                 {"-128", MR_I8, true},
                 {"-129", MR_I8, false},
                 {"18446744073709551615", MR_U64, true},
                 {"18446744073709551616", MR_U64, false},
                 {"9223372036854775807", MR_I64, true},
                 {"9223372036854775808", MR_I64, false},
                 {"-9223372036854775808", MR_I64, true},
                 {"1.0", MR_I32, false},
                 {"1e2", MR_I32, false},
                 {"2", MR_BOOL, false}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_number n;
        struct mr_text_sink s;
        uint64_t v = 0;
        const char *end = cases[i].text + strlen(cases[i].text);
        assert_true(cases[i].text + mr_number_lex(cases[i].text, end, false, &n) == end);
        mr_text_sink_init(&s, cases[i].t, &v, sizeof v);
        assert_int_equal(mr_text_sink_add(&s, &n), cases[i].fits);
    }
}

/* ---- the tool ---- */

static int dump_sample(struct mr_store *s, const char *path, const struct mr_format_ops *f, struct mr_object *o,
                       struct mr_decoder *d, const struct test_scan *c, unsigned i, struct mr_error *err)
{
    struct mr_growbuf raw = {0};
    struct mr_sample_out out = {0};
    (void)s, (void)path;
    int rc = mr_format_read_sample(f, o, d, &c->layout, &c->ref[i], MR_READ_VERIFY, &raw, &out, err);
    if (rc >= 0) {
        printf("%s%lld %s ", c->ref[i].label == MR_LABEL_NONE ? "none:" : "",
               out.label == MR_LABEL_NONE ? 0ll : (long long)out.label, mr_dtype_numpy(out.dtype));
        for (unsigned k = 0; k < out.dims.n; k++)
            printf("%s%llu", k ? "x" : "", (unsigned long long)out.dims.dim[k]);
        printf(" ");
        for (size_t k = 0; k < out.bytes; k++)
            printf("%02x", ((const uint8_t *)out.data)[k]);
        printf("\n");
    }
    free(raw.data);
    return rc;
}

static int tool_dump(const struct mr_format_ops *f, const char *path, struct mr_error *err)
{
    static struct test_scan c;
    struct mr_store *s = test_store("posix");
    struct mr_decoder *d = mr_decoder_create();
    struct mr_object *o = NULL;
    int rc = test_scan_file(s, f, path, &c, err);
    if (rc >= 0)
        rc = mr_object_open(s, path, MR_OBJ_READ, &o, err);
    for (unsigned i = 0; rc >= 0 && i < c.n && i < TEST_SAMPLES_MAX; i++)
        rc = dump_sample(s, path, f, o, d, &c, i, err);
    mr_object_close(o, NULL);
    free(c.layout.data);
    mr_decoder_free(d);
    mr_store_close(s);
    return rc;
}

static int tool_write(const struct mr_format_ops *f, char **argv, int argc, struct mr_error *err)
{
    static struct test_file t;
    uint64_t want = strtoull(argv[5], NULL, 10);
    struct mr_store *s = test_store("posix");
    t.f = f;
    t.n = (unsigned)MR_MIN(strtoul(argv[4], NULL, 10), (unsigned long)TEST_SAMPLES_MAX);
    t.spec = (struct mr_writer_spec){
        .dtype = MR_U8, .fixed_size = true, .compression = argc > 6 ? MR_COMP_GZIP : MR_COMP_NONE};
    int rc = test_write(s, argv[3], &t, &want, 1000, err);
    test_file_done(&t);
    mr_store_close(s);
    return rc;
}

static int tool(int argc, char **argv)
{
    struct mr_error err;
    const struct mr_format_ops *f = argc > 3 ? mr_format_find(argv[2], &err) : NULL;
    if (!f)
        return 2;
    int rc = strcmp(argv[1], "dump") == 0 ? tool_dump(f, argv[3], &err)
             : argc > 5                   ? tool_write(f, argv, argc, &err)
                                          : -EINVAL;
    if (rc < 0)
        fprintf(stderr, "%s\n%s\n", err.message, err.context);
    return mr_error_exit_status(rc);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtype_names_of_numpy_and_people_are_understood),
        cmocka_unit_test(unknown_formats_are_listed),
        cmocka_unit_test(gzip_members_are_joined_and_damage_is_found),
        cmocka_unit_test(a_lying_gzip_size_allocates_nothing),
        cmocka_unit_test(small_puts_are_written_in_large_pieces),
        cmocka_unit_test(a_failed_stream_stays_failed),
        cmocka_unit_test(scratch_and_private_objects_are_kept_and_freed),
        cmocka_unit_test(floats_survive_text_exactly),
        cmocka_unit_test(decimals_are_rounded_as_strtod_rounds_them),
        cmocka_unit_test(integers_out_of_range_are_refused),
    };
    if (argc > 1)
        return tool(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
