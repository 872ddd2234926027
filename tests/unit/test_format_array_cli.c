/* With arguments: a small tool for the interoperability tests in Python; without: checks of what the array formats
 * share. test_format_array_cli dump FILE [rows]   prints one line per sample: dtype shape label, then the payload as
 * hex test_format_array_cli write FORMAT FILE SAMPLES DTYPE DIMS [deflate] [chunk=AxBxC] [vary]   dims like 4x5, or 0
 */
#include "array_cases.h"
#include "format/array_common.h"

#include <inttypes.h>

static int fail_cli(const struct mr_error *err)
{
    fprintf(stderr, "%s\n%s\n%s\n", err->message, err->context, err->hint);
    return mr_error_exit_status(err->code);
}

static struct mr_dims parse_dims(const char *text)
{
    struct mr_dims d = {0};
    if (strcmp(text, "scalar") == 0)
        return d;
    for (char *end; *text && d.n < MR_DIMS_MAX; text = *end ? end + 1 : end)
        d.dim[d.n++] = strtoull(text, &end, 10);
    return d;
}

static int dump(int argc, char **argv)
{
    static struct found f;
    struct mr_error err = {0};
    struct mr_store *s = open_store("posix");
    const struct mr_format_ops *ops = mr_format_for_path(argv[2]);
    bool rows = argc > 3 && strcmp(argv[3], "rows") == 0;
    struct reader r;
    int rc = (rows ? ops->scan_rows : ops->scan)(s, argv[2], collect_ref, &f, &f.layout, &err);
    if (rc < 0) {
        mr_store_close(s);
        return fail_cli(&err);
    }
    rc = reader_open(&r, ops, s, argv[2], &f.layout, &err);
    for (unsigned i = 0; i < f.n && rc == 0; i++) {
        struct mr_sample_out out = {0};
        if ((rc = reader_get(&r, &f.layout, &f.ref[i], MR_READ_VERIFY, &out, &err)) < 0)
            break;
        printf("%s (", mr_dtype_numpy(out.dtype));
        for (unsigned k = 0; k < out.dims.n; k++)
            printf("%s%" PRIu64, k ? "," : "", out.dims.dim[k]);
        if (out.label == MR_LABEL_NONE)
            printf(") none ");
        else
            printf(") %" PRId64 " ", out.label);
        for (size_t k = 0; k < out.bytes; k++)
            printf("%02x", ((const uint8_t *)out.data)[k]);
        printf("\n");
    }
    reader_close(&r);
    found_done(&f);
    mr_store_close(s);
    return rc < 0 ? fail_cli(&err) : 0;
}

static int write_file(int argc, char **argv)
{
    static struct found f;
    struct mr_error err = {0};
    uint64_t file_bytes;
    const struct mr_format_ops *ops = mr_format_find(argv[2], &err);
    struct mr_writer_spec spec = {
        .samples = strtoull(argv[4], NULL, 10), .dims = parse_dims(argv[6]), .fixed_size = true};
    if (!ops || mr_dtype_parse(argv[5], &spec.dtype, NULL, &err) < 0)
        return fail_cli(&err);
    for (int i = 7; i < argc; i++) {
        if (strcmp(argv[i], "deflate") == 0)
            spec.compression = MR_COMP_ZIP;
        if (strncmp(argv[i], "chunk=", 6) == 0)
            spec.chunk_dims = parse_dims(argv[i] + 6);
        if (strcmp(argv[i], "vary") == 0)
            spec.fixed_size = false;
    }
    struct mr_store *s = open_store("posix");
    int rc = write_case(ops, s, argv[3], &spec, 1000, &f, &file_bytes, &err);
    found_done(&f);
    mr_store_close(s);
    return rc < 0 ? fail_cli(&err) : 0;
}

static void gather_of_every_order_equals_index_arithmetic(void **state)
{
    (void)state;
    const unsigned rows = 3, a = 4, b = 5;
    uint16_t src[60], dst[60];
    for (unsigned i = 0; i < 60; i++)
        src[i] = (uint16_t)(1000 + i);
    for (unsigned flags = 0; flags < 4; flags++) {
        bool fortran = flags & 1, last = flags & 2;
        struct mr_array_desc d = {.dtype = MR_U16, .rows = rows, .dims = {.n = 2, .dim = {a, b}}};
        d.flags = MR_ARRAY_ROWS | (fortran ? MR_ARRAY_FORTRAN : 0) | (last ? MR_ARRAY_LAST : 0);
        mr_array_normalise(dst, src, &d);
        for (unsigned r = 0; r < rows; r++)
            for (unsigned i = 0; i < a; i++)
                for (unsigned k = 0; k < b; k++) {
                    /* shape (rows, a, b) or (a, b, rows), in C or Fortran order */
                    unsigned n[3] = {last ? a : rows, last ? b : a, last ? rows : b};
                    unsigned x[3] = {last ? i : r, last ? k : i, last ? r : k};
                    unsigned at = fortran ? x[0] + n[0] * (x[1] + n[1] * x[2]) : x[2] + n[2] * (x[1] + n[1] * x[0]);
                    assert_int_equal(dst[(r * a + i) * b + k], src[at]);
                }
    }
}

static void layouts_of_every_length_are_checked(void **state)
{
    (void)state;
    struct mr_array_desc a = {.dtype = MR_F32, .flags = MR_ARRAY_ROWS, .rows = 7, .dims = {.n = 3, .dim = {2, 3, 4}}},
                         back;
    uint8_t b[MR_ARRAY_DESC_MAX];
    size_t used, len = mr_array_desc_encode(&a, b);
    for (size_t n = 0; n < len; n++)
        assert_true(mr_array_desc_decode(b, n, &back, &used, NULL) < 0);
    assert_int_equal(mr_array_desc_decode(b, len, &back, &used, NULL), 0);
    assert_int_equal(used, len);
    mr_store_le64(b + 12, UINT64_MAX / 2);
    assert_int_equal(mr_array_desc_decode(b, len, &back, &used, NULL), MR_E_LIMIT);
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "dump") == 0)
        return dump(argc, argv);
    if (argc >= 7 && strcmp(argv[1], "write") == 0)
        return write_file(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_of_every_order_equals_index_arithmetic),
        cmocka_unit_test(layouts_of_every_length_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
