/* CSV: RFC 4180 in all its corners, what is a number, what is a header, which line is wrong. */
#include "format_testlib.h"

extern const struct mr_format_ops mr_format_csv;

struct result {
    struct mr_store *s;
    struct test_scan c;
    struct mr_error err;
    struct mr_decoder *d;
    struct mr_growbuf raw;
    struct mr_sample_out out;
    const char *path;
};

static int scan_as(struct result *r, const char *path, const char *text, size_t len)
{
    memset(r, 0, sizeof(*r));
    r->s = test_store("memory");
    r->d = mr_decoder_create();
    r->path = path;
    test_put_file(r->s, path, text, len);
    return test_scan_file(r->s, &mr_format_csv, path, &r->c, &r->err);
}

static int scan(struct result *r, const char *text)
{
    return scan_as(r, "f.csv", text, strlen(text));
}

static const struct mr_sample_out *read_sample(struct result *r, unsigned i)
{
    assert_true(i < r->c.n);
    assert_ok(test_read(r->s, r->path, &mr_format_csv, &r->c.layout, &r->c.ref[i], 0, r->d, &r->raw, &r->out, &r->err),
              r->err);
    return &r->out;
}

static void done(struct result *r)
{
    free(r->c.layout.data);
    free(r->raw.data);
    mr_decoder_free(r->d);
    mr_store_close(r->s);
}

static void expect_i64(struct result *r, unsigned i, const int64_t *want, size_t n)
{
    const struct mr_sample_out *o = read_sample(r, i);
    assert_int_equal(o->dtype, MR_I64);
    assert_int_equal(o->bytes, n * 8);
    assert_memory_equal(o->data, want, n * 8);
}

static void line_ends_and_quotes_of_numbers_do_not_matter(void **state)
{
    (void)state;
    static const char *const texts[] = {"1,2\n3,4\n",
                                        "1,2\r\n3,4\r\n",
                                        "1,2\n3,4",
                                        "1,2\r\n3,4\r",
                                        "\"1\",\"2\"\n3,\"4\"\r\n",
                                        "\n\n1,2\n\r\n3,4\n\n",
                                        ("\xef\xbb\xbf"
                                         "1,2\n3,4\n"),
                                        " 1 ,2\n3,\t4 \n",
                                        "a,b\n1,2\n3,4\n"};
    for (size_t i = 0; i < MR_ARRAY_LEN(texts); i++) {
        struct result r;
        assert_ok(scan(&r, texts[i]), r.err);
        assert_int_equal(r.c.n, 2);
        expect_i64(&r, 0, (int64_t[]){1, 2}, 2);
        expect_i64(&r, 1, (int64_t[]){3, 4}, 2);
        done(&r);
    }
}

static void quoted_fields_hold_anything(void **state)
{
    (void)state;
    struct result r;
    assert_ok(scan(&r, "name,text\nbob,\"a \"\"quoted\"\", line\r\nbreak\"\nann,\"\"\n"), r.err);
    /* No line tells numbers from a header here: three records of bytes. */
    assert_int_equal(r.c.n, 3);
    const struct mr_sample_out *o = read_sample(&r, 1);
    assert_int_equal(o->dtype, MR_U8);
    const char *want = "bob,\"a \"\"quoted\"\", line\r\nbreak\"";
    assert_int_equal(o->bytes, strlen(want));
    assert_memory_equal(o->data, want, o->bytes);
    done(&r);
}

static void a_label_column_is_the_label(void **state)
{
    (void)state;
    struct result r;
    assert_ok(scan(&r, "x,Label,y\n1,7,2\n3,-8,4\n5,,6\n"), r.err);
    assert_int_equal(r.c.n, 3);
    assert_true(r.c.ref[0].label == 7 && r.c.ref[1].label == -8 && r.c.ref[2].label == MR_LABEL_NONE);
    expect_i64(&r, 1, (int64_t[]){3, 4}, 2);
    assert_true(r.out.label == -8);
    done(&r);
}

static void floats_make_the_file_float(void **state)
{
    (void)state;
    struct result r;
    assert_ok(scan(&r, "1,2.5\n-1e3,nan\n.5,-inf\n"), r.err);
    const double *v = read_sample(&r, 1)->data;
    assert_int_equal(r.out.dtype, MR_F64);
    assert_true(v[0] == -1000.0 && v[1] != v[1]);
    done(&r);
}

static void a_wrong_number_of_fields_is_told_with_its_line(void **state)
{
    (void)state;
    struct result r;
    assert_int_equal(scan(&r, "a,b\n1,2\n\"x\ny\",3\n1\n"), MR_E_FORMAT);
    assert_non_null(strstr(r.err.message, "line 5: want 2 fields as in the first record, have 1"));
    done(&r);
    assert_int_equal(scan(&r, "1,2\n1,2,\n"), MR_E_FORMAT);
    assert_non_null(strstr(r.err.message, "line 2"));
    done(&r);
    assert_int_equal(scan(&r, "1,\"2\n3"), MR_E_FORMAT);
    assert_non_null(strstr(r.err.message, "quoted field"));
    done(&r);
    assert_int_equal(scan(&r, "1,\"2\"x\n"), MR_E_FORMAT);
    done(&r);
}

static void tabs_separate_in_tsv(void **state)
{
    (void)state;
    struct result r;
    assert_ok(scan_as(&r, "f.tsv", "1\t2\n3\t4\n", 8), r.err);
    expect_i64(&r, 1, (int64_t[]){3, 4}, 2);
    done(&r);
}

static void empty_files_and_headers_have_no_samples(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\n\r\n", "label,x0\n", "label"};
    for (size_t i = 0; i < MR_ARRAY_LEN(texts); i++) {
        struct result r;
        assert_ok(scan(&r, texts[i]), r.err);
        assert_int_equal(r.c.n, 0);
        done(&r);
    }
}

/* Records longer than the window of the scan, and quoted fields across its edge. */
static void records_across_windows_are_found(void **state)
{
    (void)state;
    enum { ROWS = 30, COLS = 20000 };
    size_t cap = ROWS * (size_t)COLS * 4, n = 0;
    char *text = malloc(cap);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLS; k++)
            n += (size_t)snprintf(text + n, cap - n, "%d%c", i, k + 1 < COLS ? ',' : '\n');
    struct result r;
    assert_ok(scan_as(&r, "f.csv", text, n), r.err);
    assert_int_equal(r.c.n, ROWS);
    const int64_t *v = read_sample(&r, 29)->data;
    assert_true(r.out.dims.dim[0] == COLS && v[0] == 29 && v[COLS - 1] == 29);
    done(&r);
    free(text);
}

static void our_file_is_plain_csv(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_store *s = test_store("memory");
    struct mr_writer *w;
    struct mr_writer_spec spec = {.samples = 2, .dtype = MR_I16, .fixed_size = true, .dims = {.n = 1, .dim = {2}}};
    struct mr_sample_info info = {.dtype = MR_I16, .dims = spec.dims, .bytes = 4, .label = 3};
    struct mr_sample_ref ref;
    struct mr_layout layout;
    uint64_t bytes;
    assert_ok(mr_format_csv.writer_open(s, "f.csv", &spec, &w, &err), err);
    assert_ok(mr_format_csv.sample_begin(w, &info, &err), err);
    assert_ok(mr_format_csv.sample_data(w, "\x01\x00\xff", 3, &err), err);
    assert_ok(mr_format_csv.sample_data(w, "\xff", 1, &err), err);
    assert_ok(mr_format_csv.sample_end(w, &ref, &err), err);
    info.label = MR_LABEL_NONE;
    assert_ok(mr_format_csv.sample_begin(w, &info, &err), err);
    assert_ok(mr_format_csv.sample_data(w, "\x00\x80\x00\x00", 4, &err), err);
    assert_ok(mr_format_csv.sample_end(w, &ref, &err), err);
    assert_ok(mr_format_csv.writer_close(w, &layout, &bytes, &err), err);
    void *text;
    size_t len;
    assert_ok(mr_store_read_file(s, "f.csv", 4096, &text, &len, &err), err);
    assert_string_equal(text, "label,x0,x1\n3,1,-1\n,-32768,0\n");
    free(text);
    free(layout.data);
    mr_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_ends_and_quotes_of_numbers_do_not_matter),
        cmocka_unit_test(quoted_fields_hold_anything),
        cmocka_unit_test(a_label_column_is_the_label),
        cmocka_unit_test(floats_make_the_file_float),
        cmocka_unit_test(a_wrong_number_of_fields_is_told_with_its_line),
        cmocka_unit_test(tabs_separate_in_tsv),
        cmocka_unit_test(empty_files_and_headers_have_no_samples),
        cmocka_unit_test(records_across_windows_are_found),
        cmocka_unit_test(our_file_is_plain_csv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
