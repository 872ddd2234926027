/* Parquet: what is written comes back, in one row group or many, plain or compressed; files of pyarrow (the fuzz corpus,
 * whose values tests/fuzz/make_parquet_corpus.py lays down) are read exactly; a file cut or bent anywhere is an error
 * or, where nothing checks it, other values, never a crash; what is not read is named. */
#include "array_cases.h"
#include "format/parquet_codec.h"
#include "format/parquet_layout.h"
#include "format/parquet_unit.h"
#include "format/parquet_values.h"
#include "format/parquet_write.h"

static void every_dtype_and_shape_survives_the_round_trip(void **state)
{
    struct mr_store *s = *state;
    static const struct mr_dims shapes[] = {
        {.n = 0}, {.n = 1, .dim = {1}}, {.n = 1, .dim = {9}}, {.n = 2, .dim = {3, 5}}, {.n = 4, .dim = {2, 3, 4, 5}}};
    for (unsigned t = 0; t < MR_DTYPE_COUNT; t++)
        for (size_t k = 0; k < MR_ARRAY_LEN(shapes); k++)
            for (unsigned zip = 0; zip < 2; zip++) {
                struct mr_writer_spec spec = {.samples = 7,
                                              .dtype = t,
                                              .dims = shapes[k],
                                              .fixed_size = true,
                                              .chunk_dims = {.n = k % 2, .dim = {3}},
                                              .compression = zip ? MR_COMP_GZIP : MR_COMP_NONE};
                struct mr_writer *w;
                struct mr_error err;
                if (t == MR_C64 || t == MR_C128 || t == MR_BF16)
                    assert_int_equal(mr_format_parquet.writer_open(s, "a", &spec, &w, &err), MR_E_UNSUPPORTED);
                else
                    round_trip(&mr_format_parquet, s, "a.parquet", &spec, 7);
            }
}

static void values_of_differing_length_survive(void **state)
{
    static const enum mr_dtype types[] = {MR_U8, MR_I16, MR_F32, MR_BOOL, MR_F64};
    for (size_t i = 0; i < MR_ARRAY_LEN(types); i++)
        for (uint64_t group = 0; group < 40; group += 26) {
            struct mr_writer_spec spec = {
                .samples = 50, .dtype = types[i], .chunk_dims = {.n = group > 0, .dim = {group}}};
            round_trip(&mr_format_parquet, *state, "v.parquet", &spec, 1000);
        }
}

/* Chunks above the split size become several units, none of which is the whole. */
static void large_chunks_are_cut_at_pages(void **state)
{
    struct mr_store *s = *state;
    static struct found f;
    struct mr_error err;
    struct mr_pq_layout l;
    for (unsigned zip = 0; zip < 2; zip++) {
        struct mr_writer_spec spec = {.samples = 6,
                                      .dtype = MR_F32,
                                      .dims = {.n = 2, .dim = {300, 300}},
                                      .fixed_size = true,
                                      .compression = zip ? MR_COMP_GZIP : MR_COMP_NONE};
        round_trip(&mr_format_parquet, s, "big.parquet", &spec, 100000);
        memset(&f, 0, sizeof f);
        if (mr_format_parquet.scan(s, "big.parquet", collect_ref, &f, &f.layout, &err) < 0)
            die(&err);
        assert_int_equal(mr_pq_layout_get(&f.layout, &l, &err), 0);
        assert_in_range(l.units, 3, 6);
        struct mr_extent e[2];
        unsigned n;
        assert_int_equal(mr_format_parquet.plan(&f.layout, &f.ref[5], 0, e, 2, &n, &err), 0);
        assert_in_range(e[0].length, 1000, 2 << 20);
        found_done(&f);
    }
}

/* ---- files of pyarrow ---- */

static void put_corpus(struct mr_store *s, const char *name)
{
    static uint8_t data[1 << 16];
    char path[512];
    struct mr_error err;
    snprintf(path, sizeof path, MR_SOURCE_DIR "/tests/fuzz/corpus/parquet/%s", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    assert_int_equal(mr_store_write_file(s, name, data, n, &err), 0);
}

struct field_case {
    unsigned n, rows;
    char name[8][16];
    struct mr_field field[8];
    struct mr_layout layout[8];
    struct mr_sample_ref ref[64][8];
};

static int keep_row(void *user, const struct mr_sample_ref *refs, unsigned n, const char *key, struct mr_error *err)
{
    struct field_case *c = user;
    (void)key, (void)err;
    assert_true(n <= 8 && c->rows < 64);
    memcpy(c->ref[c->rows++], refs, n * sizeof *refs);
    return 0;
}

static int keep_done(void *user, const struct mr_field *fields, struct mr_layout *layouts, unsigned n,
                     struct mr_error *err)
{
    struct field_case *c = user;
    (void)err;
    c->n = n;
    for (unsigned i = 0; i < n; i++) {
        c->field[i] = fields[i];
        snprintf(c->name[i], sizeof c->name[i], "%s", fields[i].name);
        c->layout[i] = layouts[i];
    }
    return 0;
}

static int scan_case(struct mr_store *s, const char *path, struct field_case *c, struct mr_error *err)
{
    memset(c, 0, sizeof *c);
    const struct mr_field_sink sink = {.user = c, .sample = keep_row, .done = keep_done};
    return mr_format_parquet.fields->scan(s, path, 0, &sink, err);
}

static void case_done(struct field_case *c)
{
    for (unsigned i = 0; i < c->n; i++)
        free(c->layout[i].data);
}

/* What make_parquet_corpus.py put into row i. */
static void check_value(const char *name, int64_t i, const struct mr_sample_out *o)
{
    int64_t x = 3 * i - 7;
    float f = (float)i / 4;
    int32_t k = (int32_t)(i % 5);
    char text[16];
    snprintf(text, sizeof text, "row %d", (int)i);
    switch (name[0]) {
    case 'x': assert_true(o->dtype == MR_I64 && o->bytes == 8 && memcmp(o->data, &x, 8) == 0); break;
    case 'f': assert_true(o->dtype == MR_F32 && o->bytes == 4 && memcmp(o->data, &f, 4) == 0); break;
    case 'k': assert_true(o->dtype == MR_I32 && o->bytes == 4 && memcmp(o->data, &k, 4) == 0); break;
    case 's': assert_true(o->bytes == strlen(text) && memcmp(o->data, text, o->bytes) == 0); break;
    default:
        assert_true(o->dtype == MR_I16 && o->bytes == 2u * (uint64_t)(i % 4) && o->dims.n == 1);
        for (int64_t j = 0; j < i % 4; j++)
            assert_int_equal(((const int16_t *)o->data)[j], i + j);
    }
}

static void files_of_pyarrow_are_read_exactly(void **state)
{
    struct mr_store *s = *state;
    static const char *const files[] = {"plain", "dictionary", "snappy_v2", "zstd", "lz4", "gzip", "delta"};
    static struct field_case c;
    struct mr_error err;
    for (size_t k = 0; k < MR_ARRAY_LEN(files); k++) {
        put_corpus(s, files[k]);
        if (scan_case(s, files[k], &c, &err) < 0)
            die(&err);
        assert_int_equal(c.rows, 40);
        assert_int_equal(c.n, 5);
        assert_int_equal(c.field[3].storage, MR_FIELD_TEXT);
        for (unsigned f = 0; f < c.n; f++) {
            struct reader r;
            assert_int_equal(reader_open(&r, &mr_format_parquet, s, files[k], &c.layout[f], &err), 0);
            for (unsigned i = 0; i < 40; i++) {
                struct mr_sample_out o = {0};
                if (reader_get(&r, &c.layout[f], &c.ref[i][f], 0, &o, &err) < 0)
                    die(&err);
                check_value(c.name[f], i, &o);
            }
            reader_close(&r);
        }
        case_done(&c);
    }
}

static void what_is_not_read_is_named(void **state)
{
    static struct field_case c;
    struct mr_error err;
    put_corpus(*state, "nested");
    assert_int_equal(scan_case(*state, "nested", &c, &err), MR_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "column 'deep'"));
    assert_non_null(strstr(err.hint, "--fields"));
}

/* ---- damage ---- */

static int read_all(struct mr_store *s, const char *path)
{
    static struct field_case c;
    struct mr_error err;
    int rc = scan_case(s, path, &c, &err);
    for (unsigned f = 0; f < c.n && rc >= 0; f++) {
        struct reader r;
        rc = reader_open(&r, &mr_format_parquet, s, path, &c.layout[f], &err);
        for (unsigned i = 0; i < c.rows && rc >= 0; i += 13) {
            struct mr_sample_out o = {0};
            rc = reader_get(&r, &c.layout[f], &c.ref[i][f], 0, &o, &err);
        }
        reader_close(&r);
    }
    case_done(&c);
    return rc;
}

static void a_file_cut_or_bent_anywhere_never_crashes(void **state)
{
    struct mr_store *s = *state;
    void *data;
    size_t len;
    struct mr_error err;
    put_corpus(s, "dictionary");
    assert_int_equal(mr_store_read_file(s, "dictionary", 1 << 16, &data, &len, &err), 0);
    for (size_t n = 0; n < len; n += 29) {
        assert_int_equal(mr_store_write_file(s, "cut", data, n, &err), 0);
        assert_true(read_all(s, "cut") < 0);
    }
    uint8_t *bytes = data;
    for (size_t i = 0; i < len; i += 11) {
        bytes[i] ^= (uint8_t)(1 + i % 255);
        assert_int_equal(mr_store_write_file(s, "bent", bytes, len, &err), 0);
        (void)read_all(s, "bent");
        bytes[i] ^= (uint8_t)(1 + i % 255);
    }
    free(data);
}

static void wrong_checksums_are_found(void **state)
{
    struct mr_store *s = *state;
    static struct found f;
    struct mr_error err;
    uint64_t bytes = 0;
    uint8_t byte;
    struct mr_object *o;
    struct mr_sample_out out = {0};
    struct mr_writer_spec spec = {.samples = 50, .dtype = MR_I64, .fixed_size = true};
    memset(&f, 0, sizeof f);
    assert_int_equal(write_case(&mr_format_parquet, s, "crc", &spec, 8, &f, &bytes, &err), 0);
    assert_int_equal(mr_object_open(s, "crc", MR_OBJ_READ | MR_OBJ_WRITE, &o, &err), 0);
    assert_int_equal(mr_object_read(o, &byte, 1, 100, &err), 0);
    byte ^= 16;
    assert_int_equal(mr_object_write(o, &byte, 1, 100, &err), 0);
    mr_object_close(o, NULL);
    struct reader r;
    assert_int_equal(reader_open(&r, &mr_format_parquet, s, "crc", &f.layout, &err), 0);
    assert_int_equal(reader_get(&r, &f.layout, &f.ref[3], 0, &out, &err), MR_E_CORRUPT);
    assert_non_null(strstr(err.message, "checksum"));
    reader_close(&r);
    found_done(&f);
}

static void nulls_are_refused(void **state)
{
    /* A page of two values of which the second is null: 03 02 = one group of bits, 01. */
    static const uint8_t page[] = {0x15, 0, 0x15, 28, 0x15, 28, 0x2c, 0x15, 4, 0x15, 0, 0x15, 6, 0x15, 6, 0x00,
                                   0x00, 2, 0,    0,  0,    3,  1,    7,    0, 0,    0, 0,    0, 0,    0};
    const struct mr_pq_type t = {.physical = MR_PQ_INT64, .dtype = MR_I64, .max_def = 1};
    struct mr_unit_memory m = {0};
    size_t len;
    struct mr_error err;
    (void)state;
    assert_int_equal(mr_pq_unit_decode(&t, page, sizeof page, &m, &len, &err), MR_E_FORMAT);
    assert_non_null(strstr(err.message, "null"));
    free(m.data);
    m = (struct mr_unit_memory){malloc(MR_UNIT_HEAD + sizeof page), MR_UNIT_HEAD + sizeof page};
    memcpy((uint8_t *)m.data + MR_UNIT_HEAD, page, sizeof page);
    assert_int_equal(mr_pq_unit_here(&t, &m, sizeof page, &len, &err), MR_E_FORMAT);
    free(m.data);
}

/* ---- parts ---- */

static void packed_numbers_of_every_width_are_read(void **state)
{
    (void)state;
    for (unsigned width = 0; width <= 32; width++)
        for (unsigned n = 1; n < 400; n += 57) {
            uint8_t bytes[2 + 400 * 4] = {0};
            uint32_t out[MR_PQ_RUN_BLOCK];
            unsigned groups = (n + 7) / 8;
            bytes[0] = (uint8_t)(groups << 1 | 1);
            for (unsigned i = 0; i < n; i++) {
                uint64_t v = (i * 2654435761u) & (width ? UINT64_MAX >> (64 - width) : 0);
                for (unsigned b = 0; b < width; b++)
                    bytes[1 + (i * width + b) / 8] |= (uint8_t)((v >> b & 1) << (i * width + b) % 8);
            }
            size_t len = 1 + ((size_t)n * width + 7) / 8; /* cut behind the last number that counts */
            uint8_t *exact = malloc(len);
            memcpy(exact, bytes, len);
            struct mr_pq_runs r = {.at = exact, .end = exact + len, .width = width};
            uint64_t k;
            bool equal;
            assert_true(groups < 64 && mr_pq_runs_take(&r, n, out, &k, &equal));
            assert_true(k == n && !equal);
            for (unsigned i = 0; i < n; i++)
                assert_int_equal(out[i], (i * 2654435761u) & (width ? UINT64_MAX >> (64 - width) : 0));
            free(exact);
        }
}

static void snappy_and_lz4_undo_what_they_should(void **state)
{
    struct mr_error err;
    char out[64];
    (void)state;
    /* "abcabcabcabcabcabc!" as a literal of 3, a copy of 15 from 3 before, a literal of 1 */
    static const uint8_t snappy[] = {19, 2 << 2, 'a', 'b', 'c', 14 << 2 | 2, 3, 0, 0, '!'};
    static const uint8_t lz4[] = {3 << 4 | 11, 'a', 'b', 'c', 3, 0, 1 << 4, '!'};
    assert_int_equal(mr_pq_decompress(MR_PQ_SNAPPY, snappy, sizeof snappy, out, 19, &err), 0);
    assert_memory_equal(out, "abcabcabcabcabcabc!", 19);
    memset(out, 0, sizeof out);
    assert_int_equal(mr_pq_decompress(MR_PQ_LZ4, lz4, sizeof lz4, out, 19, &err), 0);
    assert_memory_equal(out, "abcabcabcabcabcabc!", 19);
    for (size_t n = 0; n < sizeof snappy; n++)
        assert_int_equal(mr_pq_decompress(MR_PQ_SNAPPY, snappy, n, out, 19, &err), MR_E_CORRUPT);
    for (size_t n = 0; n < sizeof lz4; n++)
        assert_int_equal(mr_pq_decompress(MR_PQ_LZ4, lz4, n, out, 19, &err), MR_E_CORRUPT);
    assert_int_equal(mr_pq_decompress(MR_PQ_SNAPPY, snappy, sizeof snappy, out, 18, &err), MR_E_CORRUPT);
}

static void rows_behind_24_bits_are_found(void **state)
{
    (void)state;
    for (uint64_t row = (1u << 24) - 2; row < (1u << 24) + 2; row++) {
        struct mr_sample_ref ref = mr_pq_ref(row, 4);
        assert_true(ref.aux < 1u << 24);
        assert_int_equal(mr_pq_row(&ref), row);
    }
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
        cmocka_unit_test(values_of_differing_length_survive),
        cmocka_unit_test(large_chunks_are_cut_at_pages),
        cmocka_unit_test(files_of_pyarrow_are_read_exactly),
        cmocka_unit_test(what_is_not_read_is_named),
        cmocka_unit_test(a_file_cut_or_bent_anywhere_never_crashes),
        cmocka_unit_test(wrong_checksums_are_found),
        cmocka_unit_test(nulls_are_refused),
        cmocka_unit_test(packed_numbers_of_every_width_are_read),
        cmocka_unit_test(snappy_and_lz4_undo_what_they_should),
        cmocka_unit_test(rows_behind_24_bits_are_found),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
