/* Indexed binary and raw: index against file, offsets beyond 4 GiB, DLIO's restarting offsets. */
#include "format_testlib.h"

extern const struct mr_format_ops mr_format_indexed_binary, mr_format_raw;

static int scan_pairs(const uint64_t *off, size_t n_off, const uint64_t *sz, size_t n_sz, size_t file_bytes,
                      struct test_scan *c, struct mr_error *err)
{
    struct mr_store *s = test_store("memory");
    uint8_t bytes[256];
    char data[256] = "";
    test_put_file(s, "f", data, file_bytes);
    for (size_t i = 0; i < n_off; i++)
        mr_store_le64(bytes + 8 * i, off[i]);
    test_put_file(s, "f.off.idx", bytes, 8 * n_off);
    for (size_t i = 0; i < n_sz; i++)
        mr_store_le64(bytes + 8 * i, sz[i]);
    test_put_file(s, "f.sz.idx", bytes, 8 * n_sz);
    int rc = test_scan_file(s, &mr_format_indexed_binary, "f", c, err);
    free(c->layout.data);
    mr_store_close(s);
    return rc;
}

#define PAIRS(off, sz, bytes) scan_pairs(off, MR_ARRAY_LEN(off), sz, MR_ARRAY_LEN(sz), bytes, &c, &err)

static void the_index_must_fit_the_file(void **state)
{
    (void)state;
    static struct test_scan c;
    struct mr_error err;
    const uint64_t off[] = {0, 10, 30}, sz[] = {10, 0, 5}, restart[] = {0, 10, 0}, far[] = {0, 10, UINT64_MAX - 2},
                   two[] = {1, 2};
    assert_ok(PAIRS(off, sz, 35), err);
    assert_int_equal(c.n, 3);
    assert_true(c.ref[2].raw.offset == 30 && c.ref[2].raw.length == 5);
    assert_int_equal(PAIRS(off, sz, 34), MR_E_FORMAT);
    assert_non_null(strstr(err.message, "want 5 bytes at 30, file has 34"));
    assert_int_equal(PAIRS(far, sz, 200), MR_E_FORMAT);
    assert_int_equal(PAIRS(off, two, 200), MR_E_FORMAT);
    const uint64_t ten[] = {10, 10, 10};
    assert_int_equal(PAIRS(restart, ten, 200), MR_E_FORMAT);
    assert_non_null(strstr(err.hint, "millrace gen"));
}

static void a_missing_index_is_named(void **state)
{
    (void)state;
    static struct test_scan c;
    struct mr_error err;
    struct mr_store *s = test_store("memory");
    test_put_text(s, "f", "data");
    assert_int_equal(test_scan_file(s, &mr_format_indexed_binary, "f", &c, &err), -ENOENT);
    assert_non_null(strstr(err.message, "f.off.idx"));
    assert_non_null(strstr(err.hint, ".sz.idx"));
    mr_store_close(s);
}

/* A sparse file: the record lies beyond 4 GiB, and beyond any generation buffer. */
static void offsets_beyond_4_gib_are_right(void **state)
{
    (void)state;
    char dir[] = "/tmp/mr-indexed-XXXXXX", path[64], side[96];
    static struct test_scan c;
    struct mr_error err;
    struct mr_store *s = test_store("posix");
    struct mr_object *o;
    uint8_t idx[16];
    const uint64_t far = ((uint64_t)5 << 30) + 3;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f", dir);
    assert_ok(mr_object_open(s, path, MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &err), err);
    assert_ok(mr_object_write(o, "far away", 8, far, &err), err);
    assert_ok(mr_object_close(o, &err), err);
    mr_store_le64(idx, 0);
    mr_store_le64(idx + 8, far);
    snprintf(side, sizeof side, "%s.off.idx", path);
    test_put_file(s, side, idx, 16);
    mr_store_le64(idx, far);
    mr_store_le64(idx + 8, 8);
    snprintf(side, sizeof side, "%s.sz.idx", path);
    test_put_file(s, side, idx, 16);
    assert_ok(test_scan_file(s, &mr_format_indexed_binary, path, &c, &err), err);
    assert_int_equal(c.n, 2);
    struct mr_decoder *d = mr_decoder_create();
    struct mr_growbuf raw = {0};
    struct mr_sample_out out;
    assert_ok(test_read(s, path, &mr_format_indexed_binary, &c.layout, &c.ref[1], 0, d, &raw, &out, &err), err);
    assert_memory_equal(out.data, "far away", 8);
    free(raw.data);
    mr_decoder_free(d);
    free(c.layout.data);
    unlink(side);
    snprintf(side, sizeof side, "%s.off.idx", path);
    unlink(side);
    unlink(path);
    rmdir(dir);
    mr_store_close(s);
}

static void raw_files_of_several_sizes_are_refused(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_store *s = test_store("memory");
    struct mr_writer *w;
    struct mr_writer_spec spec = {.samples = 2, .dtype = MR_U8};
    assert_int_equal(mr_format_raw.writer_open(s, "f", &spec, &w, &err), MR_E_UNSUPPORTED);
    assert_non_null(strstr(err.hint, "indexed_binary"));
    mr_store_close(s);
}

static void a_sample_of_the_wrong_length_is_refused(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_store *s = test_store("memory");
    struct mr_writer *w;
    struct mr_sample_ref ref;
    struct mr_sample_info info = {.bytes = 10, .dims = {.n = 1, .dim = {10}}, .label = MR_LABEL_NONE};
    struct mr_writer_spec spec = {.samples = 1, .dtype = MR_U8, .fixed_size = true, .dims = info.dims};
    for (const struct mr_format_ops *const *f = mr_format_registry(); *f; f++) {
        if (strcmp((*f)->name, "jpeg") == 0 || strcmp((*f)->name, "png") == 0)
            continue; /* pixels, not bytes */
        if ((*f)->writer_open(s, "f", &spec, &w, &err) < 0)
            continue;
        int rc = (*f)->sample_begin(w, &info, &err);
        if (rc >= 0)
            rc = (*f)->sample_data(w, "short", 5, &err);
        if (rc >= 0)
            rc = (*f)->sample_end(w, &ref, &err);
        assert_true(rc < 0);
        (*f)->writer_abort(w);
    }
    mr_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_index_must_fit_the_file),
        cmocka_unit_test(a_missing_index_is_named),
        cmocka_unit_test(offsets_beyond_4_gib_are_right),
        cmocka_unit_test(raw_files_of_several_sizes_are_refused),
        cmocka_unit_test(a_sample_of_the_wrong_length_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
