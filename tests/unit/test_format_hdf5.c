/* HDF5: what is written comes back, contiguous or in chunks of any shape, plain or deflated; every chunk index and
 * filter is read; a file cut or bent anywhere is an error or gives the right content, never a crash. */
#include "array_cases.h"
#include "format/hdf5_layout.h"
#include "format/hdf5_write.h"

#include <libdeflate.h>

static void every_dtype_and_shape_survives_the_round_trip(void **state)
{
    struct mr_store *s = *state;
    static const struct mr_dims shapes[] = {
        {.n = 0}, {.n = 1, .dim = {1}}, {.n = 1, .dim = {0}}, {.n = 2, .dim = {3, 5}}, {.n = 4, .dim = {2, 3, 4, 5}}};
    for (unsigned t = 0; t < MR_DTYPE_COUNT; t++)
        for (size_t k = 0; k < MR_ARRAY_LEN(shapes); k++)
            for (uint64_t n = 0; n < 4; n += 1 + n)
                for (unsigned zip = 0; zip < 2; zip++) {
                    struct mr_writer_spec spec = {.samples = n,
                                                  .dtype = t,
                                                  .dims = shapes[k],
                                                  .fixed_size = true,
                                                  .compression = zip ? MR_COMP_GZIP : MR_COMP_NONE};
                    round_trip(&mr_format_hdf5, s, "a.h5", &spec, 7);
                }
}

static void chunks_of_every_shape_survive_the_round_trip(void **state)
{
    struct mr_store *s = *state;
    const uint64_t dims[3] = {5, 4, 3};
    for (unsigned code = 0; code < 4 * 5 * 4 * 3; code++) {
        struct mr_writer_spec spec = {
            .samples = 7, .dtype = MR_U16, .dims = {.n = 3, .dim = {dims[0], dims[1], dims[2]}}, .fixed_size = true};
        spec.chunk_dims =
            (struct mr_dims){.n = 4, .dim = {code % 4 + 1, code / 4 % 5 + 1, code / 20 % 4 + 1, code / 80 % 3 + 1}};
        spec.compression = code % 2 ? MR_COMP_GZIP : MR_COMP_NONE;
        round_trip(&mr_format_hdf5, s, "c.h5", &spec, 11);
        if (code % 4 == 0) { /* the shape inside a sample is enough */
            memmove(spec.chunk_dims.dim, spec.chunk_dims.dim + 1, 3 * sizeof(uint64_t));
            spec.chunk_dims.n = 3;
            spec.compression = MR_COMP_GZIP;
            round_trip(&mr_format_hdf5, s, "c.h5", &spec, 1000);
        }
    }
}

static void large_samples_survive(void **state)
{
    struct mr_store *s = *state;
    for (unsigned zip = 0; zip < 2; zip++) {
        struct mr_writer_spec spec = {.samples = 2,
                                      .dtype = MR_U8,
                                      .dims = {.n = 1, .dim = {700001}},
                                      .fixed_size = true,
                                      .compression = zip ? MR_COMP_ZIP : MR_COMP_NONE};
        round_trip(&mr_format_hdf5, s, "big.h5", &spec, 300000);
        spec.chunk_dims = (struct mr_dims){.n = 1, .dim = {100000}};
        round_trip(&mr_format_hdf5, s, "big.h5", &spec, 300000);
    }
}

/* A million entries would do as well; this many need three levels of B-tree. */
static void index_of_100000_chunks_is_read_in_one_pass(void **state)
{
    struct mr_store *s = *state;
    enum { N = 100000 };
    struct mr_error err = {0};
    struct mr_array_output o;
    struct mr_h5_dataset d = {.dtype = MR_U8,
                              .n = 2,
                              .dim = {N, 1},
                              .max_dim = {N, 1},
                              .storage = MR_H5_CHUNKED,
                              .chunk = {1, 1},
                              .chunk_bytes = 1};
    struct mr_h5_chunk *map = calloc(N, sizeof *map), *back = NULL;
    uint8_t meta[MR_H5_META_BYTES] = {0};
    assert_int_equal(mr_array_output_open(&o, s, "many.h5", &err), 0);
    assert_int_equal(mr_array_output_zeros(&o, MR_H5_META_BYTES + N, &err), 0);
    for (unsigned i = 0; i < N; i++)
        map[i] = (struct mr_h5_chunk){.addr = MR_H5_META_BYTES + (i * 7919u) % N, .bytes = 1};
    uint64_t nodes_at = mr_array_output_pos(&o), nodes_end, count = 0;
    assert_int_equal(mr_h5_write_btree(&o, &d, map, N, &d.addr, &err), 0);
    nodes_end = mr_array_output_pos(&o);
    const struct mr_h5_member members[2] = {{"labels", NULL}, {"records", &d}};
    mr_h5_metadata(members, 2, nodes_end, meta, sizeof meta);
    assert_int_equal(mr_array_output_patch(&o, 0, meta, sizeof meta, &err), 0);
    assert_int_equal(mr_array_output_close(&o, &err), 0);
    struct mr_object *obj;
    struct mr_h5_file f;
    assert_int_equal(mr_object_open(s, "many.h5", MR_OBJ_READ, &obj, &err), 0);
    assert_int_equal(mr_h5_open(obj, &f, &err), 0);
    uint64_t before = f.budget, nodes = (nodes_end - nodes_at) / (24 + 64 * 8 + 65 * 32);
    assert_int_equal(mr_h5_chunk_map(&f, &d, &back, &count, &err), 0);
    assert_int_equal(count, N);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(back[i].addr, map[i].addr);
    assert_int_equal(nodes, 1563 + 25 + 1);
    assert_int_equal(before - f.budget, 2 * nodes); /* head and body of each node, once */
    (void)mr_object_close(obj, NULL);
    free(map);
    free(back);
}

static void filters_are_undone_in_any_order(void **state)
{
    (void)state;
    enum { N = 1200 };
    uint8_t plain[N], a[4 * N], b[4 * N], w0[N + 64], w1[N + 64];
    uint8_t *const work[2] = {w0, w1};
    struct mr_error err = {0};
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(6);
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    static const uint16_t orders[][4] = {{2, 1, 3, 0}, {3, 2, 1, 0}, {1, 3, 0, 0}, {2, 3, 0, 0},
                                         {3, 1, 0, 0}, {2, 0, 0, 0}, {1, 2, 0, 0}};
    content_of(MR_U8, 1, 0, plain, N);
    for (size_t k = 0; k < MR_ARRAY_LEN(orders); k++)
        for (uint32_t mask = 0; mask < 8; mask++) {
            struct mr_h5_pipeline p = {0};
            size_t len = N;
            memcpy(a, plain, N);
            for (unsigned i = 0; i < 3 && orders[k][i]; i++) {
                p.filter[p.n++] = (struct mr_h5_filter){.id = orders[k][i], .value = 4};
                if (mask & 1u << i)
                    continue;
                if (orders[k][i] == 1) {
                    len = libdeflate_zlib_compress(c, a, len, b, sizeof b);
                    memcpy(a, b, len);
                } else if (orders[k][i] == 2) {
                    size_t n = len / 4;
                    for (size_t j = 0; j < n * 4; j++)
                        b[j % 4 * n + j / 4] = a[j];
                    memcpy(b + n * 4, a + n * 4, len - n * 4);
                    memcpy(a, b, len);
                } else {
                    mr_store_le32(a + len, mr_h5_fletcher32(a, len));
                    len += 4;
                }
            }
            const uint8_t *out = NULL;
            if (mr_h5_unfilter(&p, mask, d, a, len, N, work, true, &out, &err) < 0)
                die(&err);
            assert_memory_equal(out, plain, N);
            bool summed = false;
            for (unsigned i = 0; i < p.n; i++)
                summed |= p.filter[i].id == 3 && !(mask & 1u << i);
            a[len / 2] ^= 4;
            if (summed)
                assert_true(mr_h5_unfilter(&p, mask, d, a, len, N, work, true, &out, &err) < 0);
        }
    libdeflate_free_compressor(c);
    libdeflate_free_decompressor(d);
}

/* Once took a loop over four billion absent bytes. */
static void shuffle_of_elements_longer_than_the_chunk_moves_nothing(void **state)
{
    (void)state;
    uint8_t w0[128], w1[128];
    uint8_t *const work[2] = {w0, w1};
    const uint8_t *out = NULL;
    const struct mr_h5_pipeline p = {.filter = {{.id = 2, .value = UINT32_MAX}}, .n = 1};
    assert_int_equal(mr_h5_unfilter(&p, 0, NULL, (const uint8_t *)"abcdefgh", 8, 8, work, true, &out, NULL), 0);
    assert_memory_equal(out, "abcdefgh", 8);
}

static void metadata_checksum_equals_the_published_one(void **state)
{
    (void)state;
    /* lookup3's own self test: hashlittle("Four score and seven years ago", 30, 0) */
    assert_int_equal(mr_h5_checksum("Four score and seven years ago", 30), 0x17770551);
    assert_int_equal(mr_h5_checksum("", 0), 0xdeadbeef);
}

/* 0 if everything that the scan finds can be read; *sum identifies the content. */
static int read_all(struct mr_store *s, const char *path, uint32_t *sum)
{
    static struct found f;
    struct mr_error err = {0};
    struct reader r;
    memset(&f, 0, sizeof f);
    *sum = 0;
    int rc = mr_format_hdf5.scan(s, path, collect_ref, &f, &f.layout, &err);
    if (rc == 0) {
        rc = reader_open(&r, &mr_format_hdf5, s, path, &f.layout, &err);
        for (unsigned i = 0; i < f.n && rc == 0; i++) {
            struct mr_sample_out out = {0};
            rc = reader_get(&r, &f.layout, &f.ref[i], MR_READ_VERIFY, &out, &err);
            if (rc == 0)
                *sum = libdeflate_crc32(*sum, out.data, out.bytes);
        }
        reader_close(&r);
    }
    found_done(&f);
    return rc;
}

static void a_file_cut_or_bent_anywhere_never_crashes(void **state)
{
    struct mr_store *s = *state;
    static struct found f;
    struct mr_error err = {0};
    for (unsigned kind = 0; kind < 3; kind++) {
        uint64_t size;
        uint32_t want, have;
        struct mr_writer_spec spec = {
            .samples = 3, .dtype = MR_F32, .dims = {.n = 2, .dim = {4, 3}}, .fixed_size = true};
        spec.compression = kind == 1 ? MR_COMP_GZIP : MR_COMP_NONE;
        if (kind == 2)
            spec.chunk_dims = (struct mr_dims){.n = 2, .dim = {2, 2}};
        assert_int_equal(write_case(&mr_format_hdf5, s, "w.h5", &spec, 64, &f, &size, &err), 0);
        found_done(&f);
        uint8_t *data;
        size_t len;
        assert_int_equal(mr_store_read_file(s, "w.h5", 1 << 20, (void **)&data, &len, &err), 0);
        assert_int_equal(read_all(s, "w.h5", &want), 0);
        for (size_t n = 0; n<len; n += n> 1800 && n < 4000 ? 50 : 1) {
            assert_int_equal(mr_store_write_file(s, "cut.h5", data, n, &err), 0);
            assert_true(read_all(s, "cut.h5", &have) < 0);
        }
        for (size_t n = 0; n<len; n += n> 1800 && n < 4000 ? 50 : 1) {
            uint8_t was = data[n];
            data[n] = (uint8_t)(was ^ (n % 3 == 0 ? 0xff : n % 3 == 1 ? 1 : 0x80));
            assert_int_equal(mr_store_write_file(s, "bent.h5", data, len, &err), 0);
            (void)read_all(s, "bent.h5", &have);
            data[n] = was;
        }
        free(data);
    }
}

static void never_written_chunks_are_fill_values(void **state)
{
    struct mr_store *s = *state;
    struct mr_error err = {0};
    struct mr_object *o;
    assert_int_equal(mr_object_open(s, "raw", MR_OBJ_WRITE | MR_OBJ_CREATE, &o, &err), 0);
    assert_int_equal(mr_object_write(o, "\1\2\3\4", 4, 0, &err), 0);
    (void)mr_object_close(o, NULL);
    struct mr_h5_layout l = {
        .mode = MR_H5_MAP,
        .chunk_axes = 2,
        .chunk = {1, 2},
        .fill = {9, 8},
        .desc = {.dtype = MR_U16, .flags = MR_ARRAY_ROWS | MR_ARRAY_SWAP, .rows = 1, .dims = {.n = 1, .dim = {3}}}};
    const struct mr_h5_chunk map[2] = {{.addr = MR_H5_UNDEF}, {.addr = 0, .bytes = 4}};
    struct mr_layout layout;
    assert_int_equal(mr_h5_layout_make(&l, map, 2, &layout, &err), 0);
    struct reader r;
    struct mr_sample_out out = {0};
    const struct mr_sample_ref ref = {.label = 5};
    assert_int_equal(reader_open(&r, &mr_format_hdf5, s, "raw", &layout, &err), 0);
    if (reader_get(&r, &layout, &ref, 0, &out, &err) < 0)
        die(&err);
    static const uint8_t want[6] = {8, 9, 8, 9, 2, 1}; /* big-endian in the file, fill value too */
    assert_int_equal(out.bytes, 6);
    assert_memory_equal(out.data, want, 6);
    reader_close(&r);
    for (size_t n = 0; n < layout.len; n++)
        assert_true(mr_h5_layout_get(&(struct mr_layout){layout.data, n}, &l, &err) < 0);
    free(layout.data);
}

static void samples_of_different_shapes_in_one_file_are_refused(void **state)
{
    struct mr_store *s = *state;
    struct mr_error err = {0};
    struct mr_writer *w;
    struct mr_writer_spec spec = {.samples = 2, .dtype = MR_U8};
    assert_int_equal(mr_format_hdf5.writer_open(s, "v.h5", &spec, &w, &err), MR_E_UNSUPPORTED);
    assert_true(err.hint[0] != 0);
    spec.samples = 1;
    round_trip(&mr_format_hdf5, s, "v.h5", &spec, 100);
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
        cmocka_unit_test(chunks_of_every_shape_survive_the_round_trip),
        cmocka_unit_test(large_samples_survive),
        cmocka_unit_test(index_of_100000_chunks_is_read_in_one_pass),
        cmocka_unit_test(filters_are_undone_in_any_order),
        cmocka_unit_test(shuffle_of_elements_longer_than_the_chunk_moves_nothing),
        cmocka_unit_test(metadata_checksum_equals_the_published_one),
        cmocka_unit_test(a_file_cut_or_bent_anywhere_never_crashes),
        cmocka_unit_test(never_written_chunks_are_fill_values),
        cmocka_unit_test(samples_of_different_shapes_in_one_file_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
