/* NPY: files of every dtype, shape and order come back as they were written; headers that are not what numpy writes are
 * refused with a reason; a file cut at any byte is an error, never a crash. */
#include "array_cases.h"
#include "format/npy_header.h"

static void every_dtype_and_shape_survives_the_round_trip(void **state)
{
    struct mr_store *s = *state;
    static const struct mr_dims shapes[] = {
        {.n = 0}, {.n = 1, .dim = {1}}, {.n = 1, .dim = {0}}, {.n = 2, .dim = {3, 5}}, {.n = 4, .dim = {2, 3, 4, 5}}};
    for (unsigned t = 0; t < MR_DTYPE_COUNT; t++)
        for (size_t k = 0; k < MR_ARRAY_LEN(shapes); k++)
            for (uint64_t n = 0; n < 4; n++) {
                struct mr_writer_spec spec = {.samples = n, .dtype = t, .dims = shapes[k], .fixed_size = true};
                round_trip(&mr_format_npy, s, "a.npy", &spec, 7);
            }
}

static void samples_larger_than_any_buffer_survive(void **state)
{
    struct mr_store *s = *state;
    struct mr_writer_spec spec = {.samples = 3, .dtype = MR_U8, .dims = {.n = 1, .dim = {700001}}, .fixed_size = true};
    round_trip(&mr_format_npy, s, "big.npy", &spec, 300000);
    spec.samples = 1;
    spec.fixed_size = false;
    spec.dims.n = 0;
    round_trip(&mr_format_npy, s, "vary.npy", &spec, 100);
}

/* Puts a header of our making and a payload into a file. */
static void put_npy(struct mr_store *s, const char *path, const char *dict, unsigned version, const void *payload,
                    size_t len)
{
    uint8_t b[4096] = {0x93, 'N', 'U', 'M', 'P', 'Y', (uint8_t)version, 0};
    size_t at = version == 1 ? 10 : 12, n = strlen(dict);
    if (version == 1)
        mr_store_le16(b + 8, (uint16_t)(n + 1));
    else
        mr_store_le32(b + 8, (uint32_t)(n + 1));
    memcpy(b + at, dict, n);
    b[at + n] = '\n';
    if (len)
        memcpy(b + at + n + 1, payload, len);
    struct mr_error err = {0};
    if (mr_store_write_file(s, path, b, at + n + 1 + len, &err) < 0)
        die(&err);
}

static int scan_file(struct mr_store *s, const char *path, bool rows, struct found *f, struct mr_error *err)
{
    memset(f, 0, sizeof *f);
    return (rows ? mr_format_npy.scan_rows : mr_format_npy.scan)(s, path, collect_ref, f, &f->layout, err);
}

static void versions_orders_and_byte_orders_of_foreign_files_are_understood(void **state)
{
    struct mr_store *s = *state;
    static struct found f;
    struct mr_error err = {0};
    const uint16_t values[6] = {1, 2, 3, 4, 5, 6};
    uint16_t swapped[6];
    for (unsigned i = 0; i < 6; i++)
        swapped[i] = __builtin_bswap16(values[i]);
    for (unsigned version = 1; version <= 3; version++)
        for (unsigned fortran = 0; fortran < 2; fortran++)
            for (unsigned big = 0; big < 2; big++)
                for (unsigned rows = 0; rows < 2; rows++) {
                    char dict[128];
                    snprintf(dict, sizeof dict, "{'shape': (2L, 3), \"descr\": '%cu2', 'fortran_order': %s}   ",
                             big ? '>' : '<', fortran ? "True" : "False");
                    put_npy(s, "f.npy", dict, version, big ? swapped : values, sizeof values);
                    if (scan_file(s, "f.npy", rows, &f, &err) < 0)
                        die(&err);
                    struct reader r;
                    if (reader_open(&r, &mr_format_npy, s, "f.npy", &f.layout, &err) < 0)
                        die(&err);
                    assert_int_equal(f.n, rows ? 2 : 1);
                    uint16_t got[6];
                    for (unsigned i = 0; i < f.n; i++) {
                        struct mr_sample_out out = {.dst = got + 3 * i, .dst_cap = rows ? 6 : 12};
                        if (reader_get(&r, &f.layout, &f.ref[i], 0, &out, &err) < 0)
                            die(&err);
                        assert_int_equal(out.dims.n, rows ? 1 : 2);
                    }
                    static const uint16_t c_order[6] = {1, 2, 3, 4, 5, 6}, f_order[6] = {1, 3, 5, 2, 4, 6};
                    assert_memory_equal(got, fortran ? f_order : c_order, sizeof got);
                    reader_close(&r);
                    found_done(&f);
                }
}

static void what_is_not_an_array_of_numbers_is_refused_with_its_reason(void **state)
{
    struct mr_store *s = *state;
    static struct found f;
    static const struct {
        const char *dict, *reason;
    } bad[] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "pickle"},
        {"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,), }", "structured"},
        {"{'descr': '<U5', 'fortran_order': False, 'shape': (1,), }", "not a number"},
        {"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (1,), }", "not a number"},
        {"{'descr': '<f3', 'fortran_order': False, 'shape': (1,), }", "unsupported dtype"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", "True or False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,,), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, }", "lacks the key 'shape'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", "unknown key"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", "only spaces"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "overflows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1000,), }", "unexpected end of the array"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1), }", "more than 9 axes"},
        {"['descr']                     ", "'{'"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++) {
        struct mr_error err = {0};
        put_npy(s, "bad.npy", bad[i].dict, 1, "abcdefgh", 8);
        int rc = scan_file(s, "bad.npy", false, &f, &err);
        assert_true(rc < 0);
        if (!strstr(err.message, bad[i].reason))
            fail_msg("'%s' does not say '%s'", err.message, bad[i].reason);
        assert_non_null(strstr(err.context, "bad.npy"));
    }
}

static void a_file_cut_anywhere_is_an_error(void **state)
{
    struct mr_store *s = *state;
    static struct found f;
    struct mr_error err = {0};
    uint64_t size = 0;
    struct mr_writer_spec spec = {.samples = 2, .dtype = MR_F32, .dims = {.n = 1, .dim = {5}}, .fixed_size = true};
    memset(&f, 0, sizeof f);
    assert_int_equal(write_case(&mr_format_npy, s, "w.npy", &spec, 8, &f, &size, &err), 0);
    found_done(&f);
    void *data;
    size_t len;
    assert_int_equal(mr_store_read_file(s, "w.npy", 1 << 20, &data, &len, &err), 0);
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(mr_store_write_file(s, "cut.npy", data, n, &err), 0);
        assert_true(scan_file(s, "cut.npy", true, &f, &err) < 0);
        found_done(&f);
    }
    free(data);
}

static void wrong_use_of_the_writer_is_an_error(void **state)
{
    struct mr_store *s = *state;
    struct mr_error err = {0};
    struct mr_writer *w;
    struct mr_writer_spec spec = {
        .samples = 2, .dtype = MR_U8, .dims = {.n = 1, .dim = {4}}, .fixed_size = true, .compression = MR_COMP_GZIP};
    assert_int_equal(mr_format_npy.writer_open(s, "x.npy", &spec, &w, &err), MR_E_UNSUPPORTED);
    spec.compression = MR_COMP_NONE;
    assert_int_equal(mr_format_npy.writer_open(s, "x.npy", &spec, &w, &err), 0);
    struct mr_sample_info info = {.dtype = MR_U8, .dims = {.n = 1, .dim = {4}}, .bytes = 4, .label = MR_LABEL_NONE};
    struct mr_sample_ref ref;
    assert_int_equal(mr_format_npy.sample_begin(w, &info, &err), 0);
    assert_int_equal(mr_format_npy.sample_data(w, "12345", 5, &err), MR_E_USAGE);
    assert_int_equal(mr_format_npy.sample_data(w, "123", 3, &err), 0);
    assert_int_equal(mr_format_npy.sample_end(w, &ref, &err), MR_E_USAGE);
    assert_int_equal(mr_format_npy.sample_data(w, "4", 1, &err), 0);
    assert_int_equal(mr_format_npy.sample_end(w, &ref, &err), 0);
    info.dims.dim[0] = info.bytes = 5;
    assert_int_equal(mr_format_npy.sample_begin(w, &info, &err), MR_E_USAGE);
    struct mr_layout layout;
    uint64_t bytes;
    assert_int_equal(mr_format_npy.writer_close(w, &layout, &bytes, &err), MR_E_USAGE);
    mr_format_npy.writer_abort(NULL);
}

static int setup(void **state)
{
    *state = open_store("memory");
    return 0;
}
static int teardown(void **state)
{
    mr_store_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_and_shape_survives_the_round_trip),
        cmocka_unit_test(samples_larger_than_any_buffer_survive),
        cmocka_unit_test(versions_orders_and_byte_orders_of_foreign_files_are_understood),
        cmocka_unit_test(what_is_not_an_array_of_numbers_is_refused_with_its_reason),
        cmocka_unit_test(a_file_cut_anywhere_is_an_error),
        cmocka_unit_test(wrong_use_of_the_writer_is_an_error),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
