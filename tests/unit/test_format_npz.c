/* NPZ: what is written comes back, stored or deflated, one or many samples per file, of one size or many; damage is
 * found; archives made to mislead are refused. */
#include "array_cases.h"
#include "format/zip_read.h"
#include "format/zip_write.h"

static void every_dtype_shape_and_compression_survives_the_round_trip(void **state)
{
    struct mr_store *s = *state;
    static const struct mr_dims shapes[] = {
        {.n = 0}, {.n = 1, .dim = {1}}, {.n = 1, .dim = {0}}, {.n = 2, .dim = {3, 5}}, {.n = 3, .dim = {2, 3, 4}}};
    for (unsigned t = 0; t < MR_DTYPE_COUNT; t++)
        for (size_t k = 0; k < MR_ARRAY_LEN(shapes); k++)
            for (uint64_t n = 1; n < 4; n++)
                for (unsigned zip = 0; zip < 2; zip++) {
                    struct mr_writer_spec spec = {.samples = n,
                                                  .dtype = t,
                                                  .dims = shapes[k],
                                                  .fixed_size = true,
                                                  .compression = zip ? MR_COMP_ZIP : MR_COMP_NONE};
                    round_trip(&mr_format_npz, s, "a.npz", &spec, 7);
                }
}

static void samples_of_different_sizes_share_a_file_and_a_layout(void **state)
{
    struct mr_store *s = *state;
    for (unsigned zip = 0; zip < 2; zip++)
        for (uint64_t n = 1; n <= 64; n = n * 4) {
            struct mr_writer_spec spec = {
                .samples = n, .dtype = MR_F32, .compression = zip ? MR_COMP_ZIP : MR_COMP_NONE};
            round_trip(&mr_format_npz, s, "v.npz", &spec, 100);
        }
    /* One sample per file, sizes differ: the layouts are equal, so that a manifest keeps one. */
    static struct found a, b;
    struct mr_error err = {0};
    uint64_t bytes;
    for (unsigned zip = 0; zip < 2; zip++) {
        struct mr_writer_spec spec = {
            .samples = 1, .dtype = MR_U8, .fixed_size = true, .compression = zip ? MR_COMP_ZIP : MR_COMP_NONE};
        spec.dims = (struct mr_dims){.n = 1, .dim = {10}};
        assert_int_equal(write_case(&mr_format_npz, s, "1.npz", &spec, 100, &a, &bytes, &err), 0);
        spec.dims.dim[0] = 123456;
        assert_int_equal(write_case(&mr_format_npz, s, "2.npz", &spec, 100000, &b, &bytes, &err), 0);
        assert_int_equal(a.layout.len, b.layout.len);
        assert_memory_equal(a.layout.data, b.layout.data, a.layout.len);
        found_done(&a);
        found_done(&b);
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
        round_trip(&mr_format_npz, s, "big.npz", &spec, 300000);
    }
}

static void stored_sample_is_read_in_place(void **state)
{
    struct mr_store *s = *state;
    static struct found f;
    struct mr_error err = {0};
    uint64_t bytes;
    struct mr_writer_spec spec = {.samples = 1, .dtype = MR_U8, .dims = {.n = 1, .dim = {1000}}, .fixed_size = true};
    assert_int_equal(write_case(&mr_format_npz, s, "p.npz", &spec, 100, &f, &bytes, &err), 0);
    struct mr_extent e;
    unsigned n;
    assert_int_equal(mr_format_npz.plan(&f.layout, &f.ref[0], 0, &e, 1, &n, &err), 0);
    assert_int_equal(e.length, 1000);
    struct mr_read_cost cost;
    assert_int_equal(mr_format_npz.cost(&f.layout, &cost, &err), 0);
    assert_true(cost.verbatim);
    uint8_t have[1000], want[1000];
    void *file;
    size_t len;
    assert_int_equal(mr_store_read_file(s, "p.npz", 1 << 20, &file, &len, &err), 0);
    memcpy(have, (char *)file + e.offset, 1000);
    content_of(MR_U8, 0, 0, want, 1000);
    assert_memory_equal(have, want, 1000);
    assert_int_equal(mr_format_npz.plan(&f.layout, &f.ref[0], MR_READ_VERIFY, &e, 1, &n, &err), 0);
    assert_int_equal(e.offset, 0);
    free(file);
    found_done(&f);
}

/* Reads every sample of what a scan finds; 0 if all went well. */
static int read_all(struct mr_store *s, const char *path)
{
    static struct found f;
    struct mr_error err = {0};
    struct reader r;
    memset(&f, 0, sizeof f);
    int rc = mr_format_npz.scan(s, path, collect_ref, &f, &f.layout, &err);
    if (rc < 0) {
        found_done(&f);
        return rc;
    }
    rc = reader_open(&r, &mr_format_npz, s, path, &f.layout, &err);
    for (unsigned i = 0; i < f.n && rc == 0; i++) {
        struct mr_sample_out out = {0};
        rc = reader_get(&r, &f.layout, &f.ref[i], MR_READ_VERIFY, &out, &err);
    }
    reader_close(&r);
    found_done(&f);
    return rc;
}

static void a_file_cut_anywhere_is_an_error(void **state)
{
    struct mr_store *s = *state;
    static struct found f;
    struct mr_error err = {0};
    for (unsigned zip = 0; zip < 2; zip++) {
        uint64_t size;
        struct mr_writer_spec spec = {.samples = 1 + zip,
                                      .dtype = MR_F32,
                                      .dims = {.n = 1, .dim = {50}},
                                      .fixed_size = true,
                                      .compression = zip ? MR_COMP_ZIP : MR_COMP_NONE};
        assert_int_equal(write_case(&mr_format_npz, s, "w.npz", &spec, 64, &f, &size, &err), 0);
        found_done(&f);
        void *data;
        size_t len;
        assert_int_equal(mr_store_read_file(s, "w.npz", 1 << 20, &data, &len, &err), 0);
        assert_int_equal(read_all(s, "w.npz"), 0);
        for (size_t n = 0; n < len; n++) {
            assert_int_equal(mr_store_write_file(s, "cut.npz", data, n, &err), 0);
            assert_true(read_all(s, "cut.npz") < 0);
        }
        free(data);
    }
}

static void any_damaged_payload_byte_is_found_when_verifying(void **state)
{
    struct mr_store *s = *state;
    static struct found f;
    struct mr_error err = {0};
    for (unsigned zip = 0; zip < 2; zip++) {
        uint64_t size;
        struct mr_writer_spec spec = {.samples = 1,
                                      .dtype = MR_U8,
                                      .dims = {.n = 1, .dim = {100}},
                                      .fixed_size = true,
                                      .compression = zip ? MR_COMP_ZIP : MR_COMP_NONE};
        assert_int_equal(write_case(&mr_format_npz, s, "w.npz", &spec, 64, &f, &size, &err), 0);
        uint8_t *data;
        size_t len;
        assert_int_equal(mr_store_read_file(s, "w.npz", 1 << 20, (void **)&data, &len, &err), 0);
        for (uint64_t i = 0; i < f.ref[0].raw.length; i++) {
            uint8_t *b = data + f.ref[0].raw.offset + i;
            *b ^= 0x20;
            assert_int_equal(mr_store_write_file(s, "bad.npz", data, len, &err), 0);
            *b ^= 0x20;
            struct reader r;
            struct mr_sample_out out = {0};
            assert_int_equal(reader_open(&r, &mr_format_npz, s, "bad.npz", &f.layout, &err), 0);
            int rc = reader_get(&r, &f.layout, &f.ref[0], MR_READ_VERIFY, &out, &err);
            if (rc == 0 && zip) { /* the bits behind the end of a deflate stream mean nothing */
                uint8_t want[100];
                content_of(MR_U8, 0, 0, want, sizeof want);
                assert_int_equal(i, f.ref[0].raw.length - 1);
                assert_memory_equal(out.data, want, sizeof want);
            } else {
                assert_int_equal(rc, MR_E_CORRUPT);
            }
            reader_close(&r);
        }
        free(data);
        found_done(&f);
    }
}

/* A stored archive of one member, as bytes, to be bent. */
static uint8_t *make_archive(struct mr_store *s, size_t *len)
{
    static struct found f;
    struct mr_error err = {0};
    uint64_t size;
    void *data;
    struct mr_writer_spec spec = {.samples = 1, .dtype = MR_U8, .dims = {.n = 1, .dim = {30}}, .fixed_size = true};
    assert_int_equal(write_case(&mr_format_npz, s, "base.npz", &spec, 64, &f, &size, &err), 0);
    found_done(&f);
    assert_int_equal(mr_store_read_file(s, "base.npz", 1 << 20, &data, len, &err), 0);
    return data;
}

static uint8_t *find_sig(uint8_t *data, size_t len, uint32_t sig)
{
    for (size_t i = 0; i + 4 <= len; i++)
        if (mr_load_le32(data + i) == sig)
            return data + i;
    return NULL;
}

static void comments_and_leading_bytes_are_accepted(void **state)
{
    struct mr_store *s = *state;
    struct mr_error err = {0};
    size_t len;
    uint8_t *data = make_archive(s, &len), *more = malloc(len + 3000);
    memset(more, '#', 1000);
    memcpy(more + 1000, data, len);
    memset(more + 1000 + len, 'c', 2000);
    mr_store_le16(more + 1000 + len - 2, 2000); /* comment length */
    assert_int_equal(mr_store_write_file(s, "more.npz", more, len + 3000, &err), 0);
    assert_int_equal(read_all(s, "more.npz"), 0);
    free(data);
    free(more);
}

static void misleading_archives_are_refused(void **state)
{
    struct mr_store *s = *state;
    struct mr_error err = {0};
    size_t len;
    /* offset in the first directory entry, width, value, expected code */
    static const struct {
        unsigned at, width;
        uint32_t value;
        int code;
    } bend[] = {
        {8, 2, 1, MR_E_UNSUPPORTED},       /* encrypted */
        {10, 2, 12, MR_E_UNSUPPORTED},     /* bzip2 */
        {20, 4, 1u << 30, MR_E_FORMAT},    /* larger than the file */
        {24, 4, 1000, MR_E_FORMAT},        /* stored, but sizes differ */
        {34, 2, 3, MR_E_UNSUPPORTED},      /* on disk 3 */
        {42, 4, 0xfffffff0u, MR_E_FORMAT}, /* header outside */
        {28, 2, 0xffff, MR_E_FORMAT},      /* name longer than the directory */
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(bend); i++) {
        uint8_t *data = make_archive(s, &len), *e = find_sig(data, len, 0x02014b50);
        if (bend[i].width == 2)
            mr_store_le16(e + bend[i].at, (uint16_t)bend[i].value);
        else
            mr_store_le32(e + bend[i].at, bend[i].value);
        assert_int_equal(mr_store_write_file(s, "bent.npz", data, len, &err), 0);
        assert_int_equal(read_all(s, "bent.npz"), bend[i].code);
        free(data);
    }
    /* a bomb: deflated, ratio beyond what deflate can do */
    uint8_t *data = make_archive(s, &len), *e = find_sig(data, len, 0x02014b50);
    mr_store_le16(e + 10, 8);
    mr_store_le32(e + 24, 1u << 30);
    assert_int_equal(mr_store_write_file(s, "bomb.npz", data, len, &err), 0);
    assert_int_equal(read_all(s, "bomb.npz"), MR_E_LIMIT);
    /* both entries point to the same member */
    free(data);
    data = make_archive(s, &len);
    e = find_sig(data, len, 0x02014b50);
    uint8_t *second = find_sig(e + 4, len - (size_t)(e + 4 - data), 0x02014b50);
    memcpy(second + 20, e + 20, 8);
    mr_store_le32(second + 42, 0);
    assert_int_equal(mr_store_write_file(s, "overlap.npz", data, len, &err), 0);
    assert_int_equal(read_all(s, "overlap.npz"), MR_E_FORMAT);
    free(data);
}

/* Zip64 and data descriptors, built by hand: header, stored .npy, descriptor, directory with zip64 fields. */
static void zip64_and_data_descriptors_are_understood(void **state)
{
    struct mr_store *s = *state;
    struct mr_error err = {0};
    for (unsigned wide = 0; wide < 2; wide++)
        for (unsigned sig = 0; sig < 2; sig++) {
            uint8_t out[1024] = {0};
            size_t len, at = 0;
            uint8_t *base = make_archive(s, &len), *c = find_sig(base, len, 0x02014b50);
            uint32_t crc = mr_load_le32(c + 16), bytes = mr_load_le32(c + 24);
            memcpy(out, base, 55 + bytes);
            mr_store_le16(out + 6, 8);
            memset(out + 14, 0, 12);
            memset(out + 35 + 4, 0, 16);
            at = 55 + bytes;
            if (sig) {
                mr_store_le32(out + at, 0x08074b50);
                at += 4;
            }
            mr_store_le32(out + at, crc);
            mr_store_le32(out + at + 4, bytes);
            mr_store_le32(out + at + (wide ? 12 : 8), bytes);
            at += wide ? 20 : 12;
            size_t dir = at;
            memcpy(out + at, c, 46 + 5);
            mr_store_le16(out + at + 8, 8);
            mr_store_le32(out + at + 20, UINT32_MAX);
            mr_store_le32(out + at + 24, UINT32_MAX);
            mr_store_le32(out + at + 42, UINT32_MAX);
            mr_store_le16(out + at + 30, 28);
            at += 51;
            mr_store_le16(out + at, 1);
            mr_store_le16(out + at + 2, 24);
            mr_store_le64(out + at + 4, bytes);
            mr_store_le64(out + at + 12, bytes);
            at += 28;
            size_t end = at;
            mr_store_le32(out + at, 0x06064b50);
            mr_store_le64(out + at + 4, 44);
            mr_store_le64(out + at + 24, 1);
            mr_store_le64(out + at + 32, 1);
            mr_store_le64(out + at + 40, end - dir);
            mr_store_le64(out + at + 48, dir);
            mr_store_le32(out + at + 56, 0x07064b50);
            mr_store_le64(out + at + 64, end);
            mr_store_le32(out + at + 72, 1);
            at += 76;
            mr_store_le32(out + at, 0x06054b50);
            memset(out + at + 8, 0xff, 12);
            at += 22;
            assert_int_equal(mr_store_write_file(s, "z64.npz", out, at, &err), 0);
            assert_int_equal(read_all(s, "z64.npz"), 0);
            out[60] ^= 1;
            assert_int_equal(mr_store_write_file(s, "z64.npz", out, at, &err), 0);
            assert_true(read_all(s, "z64.npz") < 0);
            free(base);
        }
}

/* The file begins with a hole, so that offsets beyond 4 GiB need no 4 GiB. */
static void archives_beyond_4_gib_and_65535_members_use_zip64(void **state)
{
    struct mr_store *s = *state;
    struct mr_error err = {0};
    static const struct {
        uint64_t start;
        unsigned members;
    } cases[] = {{5 * MR_GIB, 3}, {0, 70000}, {5 * MR_GIB, 70000}};
    for (size_t k = 0; k < MR_ARRAY_LEN(cases); k++) {
        struct mr_array_output o;
        struct mr_zip_writer z = {.out = &o};
        struct mr_zip_list l;
        struct mr_zip_place place;
        struct mr_object *obj;
        assert_int_equal(mr_array_output_open(&o, s, "far.zip", &err), 0);
        o.start = cases[k].start;
        for (unsigned i = 0; i < cases[k].members; i++) {
            char name[16];
            snprintf(name, sizeof name, "m%u", i);
            assert_int_equal(mr_zip_member_begin(&z, name, &err), 0);
            assert_int_equal(mr_zip_member_data(&z, name, strlen(name), &err), 0);
            assert_int_equal(mr_zip_member_end(&z, &err), 0);
        }
        assert_int_equal(mr_zip_directory(&z, &err), 0);
        assert_int_equal(mr_array_output_close(&o, &err), 0);
        mr_zip_writer_done(&z);
        assert_int_equal(mr_object_open(s, "far.zip", MR_OBJ_READ, &obj, &err), 0);
        if (mr_zip_list_read(obj, &l, &err) < 0)
            die(&err);
        assert_int_equal(l.n, cases[k].members);
        assert_int_equal(l.member[0].header_offset, cases[k].start);
        const struct mr_zip_member *last = &l.member[l.n - 1];
        if (mr_zip_locate(obj, &l, last, &place, &err) < 0)
            die(&err);
        char text[16] = "";
        assert_int_equal(mr_object_read(obj, text, last->bytes, last->header_offset + place.prefix_bytes, &err), 0);
        assert_string_equal(text, last->name);
        mr_zip_list_done(&l);
        (void)mr_object_close(obj, NULL);
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
        cmocka_unit_test(every_dtype_shape_and_compression_survives_the_round_trip),
        cmocka_unit_test(samples_of_different_sizes_share_a_file_and_a_layout),
        cmocka_unit_test(large_samples_survive),
        cmocka_unit_test(stored_sample_is_read_in_place),
        cmocka_unit_test(a_file_cut_anywhere_is_an_error),
        cmocka_unit_test(any_damaged_payload_byte_is_found_when_verifying),
        cmocka_unit_test(comments_and_leading_bytes_are_accepted),
        cmocka_unit_test(misleading_archives_are_refused),
        cmocka_unit_test(archives_beyond_4_gib_and_65535_members_use_zip64),
        cmocka_unit_test(zip64_and_data_descriptors_are_understood),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
