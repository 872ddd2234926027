/* PNG: lossless, of the requested size, tolerant of what others write, strict about damage. */
#include "image_test.h"

#include <errno.h>
#include <png.h>
#include <zlib.h>

static const struct mr_writer_spec plain = {.samples = 1};

static void png_round_trip_is_exact(void **state)
{
    (void)state;
    static const struct {
        uint64_t h, w, c;
        int level;
        size_t piece;
    } cases[] = {
        {375, 500, 3, 1, 100000}, {375, 500, 1, 6, 777}, {1, 1, 3, 9, 10}, {8, 8, 1, 0, 64}, {17, 1000, 3, 3, 3001}};
    struct mr_decoder *d = mr_decoder_create();
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_error err = {0};
        struct mr_writer_spec spec = {.samples = 1, .compression = MR_COMP_ZIP, .compression_level = cases[i].level};
        struct mr_sample_info info = image_info(i, cases[i].h, cases[i].w, cases[i].c);
        struct image_file f = image_write(&mr_format_png, &spec, &info, cases[i].piece);
        struct mr_sample_out out = {0};
        assert_int_equal(image_decode(&mr_format_png, d, f.data, f.len, &out, &err), 0);
        assert_memory_equal(out.dims.dim, info.dims.dim, sizeof(uint64_t) * 3);
        if (mr_format_png.check(&spec, &image_content, &info, &out, &err) != 0)
            fail_msg("case %zu: %s", i, err.message);
        ((uint8_t *)(uintptr_t)out.data)[info.bytes / 2] ^= 1;
        assert_int_equal(mr_format_png.check(&spec, &image_content, &info, &out, &err), MR_E_CORRUPT);
        char where[64];
        snprintf(where, sizeof where, "at byte %llu of %llu", (unsigned long long)info.bytes / 2,
                 (unsigned long long)info.bytes);
        assert_non_null(strstr(err.message, where));
        image_file_done(&f);
    }
    mr_decoder_free(d);
}

static void png_file_has_the_requested_size(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {700, 2000, 5000, 20000, 50001, 114660, 300000};
    unsigned exact = 0, all = 0;
    for (int level = 0; level <= 9; level += 3)
        for (size_t i = 0; i < MR_ARRAY_LEN(sizes); i++)
            for (uint64_t c = 1; c <= 3; c += 2) {
                struct mr_error err = {0};
                struct mr_writer_spec spec = {.samples = 1,
                                              .compression = MR_COMP_ZIP,
                                              .compression_level = level,
                                              .dims = {.n = 3, .dim = {0, 0, c}}};
                struct mr_sample_info info = {.id = i};
                assert_int_equal(mr_format_png.shape(&spec, sizes[i], &info, &err), 0);
                struct image_file f = image_write(&mr_format_png, &spec, &info, 1 << 18);
                all++;
                exact += f.len == sizes[i];
                if (fabs((double)f.len / (double)sizes[i] - 1) > 0.03)
                    fail_msg("level %d, %d channels: asked for %d bytes, got %zu", level, (int)c, (int)sizes[i], f.len);
                image_file_done(&f);
            }
    assert_true(exact >= all * 9 / 10);
}

static void png_truncation_anywhere_is_an_error(void **state)
{
    (void)state;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_info info = image_info(3, 30, 40, 3);
    info.file_bytes = 4000; /* with a padding chunk */
    struct image_file f = image_write(&mr_format_png, &plain, &info, 6000);
    for (size_t cut = 0; cut < f.len; cut++) {
        struct mr_error err = {0};
        struct mr_sample_out out = {0};
        if (image_decode(&mr_format_png, d, f.data, cut, &out, &err) != MR_E_FORMAT)
            fail_msg("cut at %zu of %zu was taken for an image", cut, f.len);
        assert_non_null(strstr(err.message, "bad PNG data near byte"));
    }
    image_file_done(&f);
    mr_decoder_free(d);
}

/* Every byte is covered by a checksum or by the signature, so a flipped bit anywhere must be noticed. */
static void png_flipped_bit_anywhere_is_an_error(void **state)
{
    (void)state;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_info info = image_info(3, 20, 30, 3);
    info.file_bytes = 2600;
    struct image_file f = image_write(&mr_format_png, &plain, &info, 6000);
    for (size_t at = 0; at < f.len; at++) {
        struct mr_sample_out out = {0};
        uint8_t bit = (uint8_t)(1u << (at % 8));
        f.data[at] ^= bit;
        int rc = image_decode(&mr_format_png, d, f.data, f.len, &out, NULL);
        if (rc != MR_E_FORMAT && rc != MR_E_LIMIT)
            fail_msg("flipped bit in byte %zu went unnoticed", at);
        f.data[at] ^= bit;
    }
    image_file_done(&f);
    mr_decoder_free(d);
}

static void put_chunk(uint8_t *file, size_t *len, const char *type, const void *data, uint32_t n)
{
    uint8_t *p = file + *len;
    png_save_uint_32(p, n);
    memcpy(p + 4, type, 4);
    if (n)
        memcpy(p + 8, data, n);
    png_save_uint_32(p + 8 + n, (png_uint_32)crc32(crc32(0, NULL, 0), p + 4, n + 4));
    *len += n + 12;
}

static void png_bombs_are_refused(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_out out = {0};
    static uint8_t file[100000];
    size_t len = 8;
    uint8_t header[13] = {0, 0, 0xff, 0, 0, 0, 0xff, 0, 8, 6, 0, 0, 0}; /* 65280 x 65280 RGBA */
    memcpy(file, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(file, &len, "IHDR", header, 13);
    put_chunk(file, &len, "IDAT", "x\x9c", 2);
    put_chunk(file, &len, "IEND", NULL, 0);
    assert_int_equal(image_decode(&mr_format_png, d, file, len, &out, &err), MR_E_LIMIT);
    assert_non_null(strstr(err.message, "65280 x 65280"));

    /* A compressed text of 64 MiB before a good image: skipped, not inflated. */
    struct mr_sample_info info = image_info(3, 20, 30, 3);
    struct image_file f = image_write(&mr_format_png, &plain, &info, 6000);
    uLongf packed = 80000;
    uint8_t *zeros = calloc(64, MR_MIB), *text = malloc(packed + 5);
    memcpy(text, "a\0\0", 3);
    assert_int_equal(compress2(text + 3, &packed, zeros, 64 * MR_MIB, 9), Z_OK);
    len = 33;
    memcpy(file, f.data, len);
    put_chunk(file, &len, "zTXt", text, (uint32_t)packed + 3);
    memcpy(file + len, f.data + 33, f.len - 33);
    out = (struct mr_sample_out){0};
    assert_int_equal(image_decode(&mr_format_png, d, file, len + f.len - 33, &out, &err), 0);
    free(zeros);
    free(text);
    image_file_done(&f);
    mr_decoder_free(d);
}

struct memory_file {
    uint8_t data[65536];
    size_t len;
};

static void memory_write(png_structp png, png_bytep data, size_t len)
{
    struct memory_file *m = png_get_io_ptr(png);
    assert_true(m->len + len <= sizeof m->data);
    memcpy(m->data + m->len, data, len);
    m->len += len;
}

static void memory_flush(png_structp png)
{
    (void)png;
}

/* Writes a 32 x 32 image of rows that count up, in a form of the library's choice. */
static void encode_by_library(int type, int depth, bool interlaced, bool transparent, struct memory_file *m)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_color palette[16];
    uint8_t row[32 * 8];
    for (int i = 0; i < 16; i++)
        palette[i] = (png_color){.red = (uint8_t)(i * 10), .green = (uint8_t)(i * 5), .blue = (uint8_t)i};
    m->len = 0;
    png_set_write_fn(png, m, memory_write, memory_flush);
    png_set_IHDR(png, info, 32, 32, depth, type, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(png, info, palette, 16);
    if (transparent)
        png_set_tRNS(png, info, (png_bytep) "\x80", 1, NULL);
    png_write_info(png, info);
    int passes = png_set_interlace_handling(png);
    for (int p = 0; p < passes; p++)
        for (int y = 0; y < 32; y++) {
            memset(row, type == PNG_COLOR_TYPE_PALETTE ? y % 16 : y * 3, sizeof row);
            if (depth == 4)
                memset(row, (y % 16) * 17, sizeof row);
            png_write_row(png, row);
        }
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
}

static void png_forms_of_others_are_read(void **state)
{
    (void)state;
    struct mr_decoder *d = mr_decoder_create();
    static const struct {
        int type, depth;
        bool interlaced, transparent;
        unsigned channels;
        enum mr_dtype dtype;
        uint8_t first_of_row_5[2];
    } cases[] = {
        {PNG_COLOR_TYPE_PALETTE, 8, false, false, 3, MR_U8, {50, 25}},
        {PNG_COLOR_TYPE_PALETTE, 8, true, true, 4, MR_U8, {50, 25}},
        {PNG_COLOR_TYPE_GRAY, 4, false, false, 1, MR_U8, {85, 85}},
        {PNG_COLOR_TYPE_GRAY, 16, false, false, 1, MR_U16, {15, 15}},
        {PNG_COLOR_TYPE_RGB, 16, true, false, 3, MR_U16, {15, 15}},
        {PNG_COLOR_TYPE_RGB_ALPHA, 8, true, false, 4, MR_U8, {15, 15}},
        {PNG_COLOR_TYPE_GRAY_ALPHA, 8, false, false, 2, MR_U8, {15, 15}},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_error err = {0};
        struct mr_sample_out out = {0};
        static struct memory_file m;
        encode_by_library(cases[i].type, cases[i].depth, cases[i].interlaced, cases[i].transparent, &m);
        if (image_decode(&mr_format_png, d, m.data, m.len, &out, &err) != 0)
            fail_msg("case %zu: %s", i, err.message);
        assert_int_equal(out.dims.dim[2], cases[i].channels);
        assert_int_equal(out.dtype, cases[i].dtype);
        size_t row_bytes = 32 * cases[i].channels * mr_dtype_bytes(out.dtype);
        assert_int_equal(out.bytes, 32 * row_bytes);
        assert_memory_equal((const uint8_t *)out.data + 5 * row_bytes, cases[i].first_of_row_5, 2);
    }
    mr_decoder_free(d);
}

static void png_sixteen_bits_arrive_in_machine_order(void **state)
{
    (void)state;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_out out = {0};
    static uint8_t file[1000];
    size_t len = 8;
    uint8_t header[13] = {0, 0, 0, 1, 0, 0, 0, 1, 16, 0, 0, 0, 0}, packed[64];
    uLongf n = sizeof packed;
    memcpy(file, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(file, &len, "IHDR", header, 13);
    assert_int_equal(compress(packed, &n, (const uint8_t *)"\0\x12\x34", 3), Z_OK);
    put_chunk(file, &len, "IDAT", packed, (uint32_t)n);
    put_chunk(file, &len, "IEND", NULL, 0);
    assert_int_equal(image_decode(&mr_format_png, d, file, len, &out, NULL), 0);
    assert_int_equal(*(const uint16_t *)out.data, 0x1234);
    mr_decoder_free(d);
}

static void png_too_small_destination_tells_what_is_needed(void **state)
{
    (void)state;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_info info = image_info(3, 20, 30, 3);
    struct image_file f = image_write(&mr_format_png, &plain, &info, 6000);
    uint8_t small[100];
    struct mr_sample_out out = {.dst = small, .dst_cap = sizeof small};
    assert_int_equal(image_decode(&mr_format_png, d, f.data, f.len, &out, NULL), MR_E_LIMIT);
    assert_int_equal(out.bytes, 20 * 30 * 3);
    image_file_done(&f);
    mr_decoder_free(d);
}

static void png_bad_use_and_full_disk_are_errors(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_store *s;
    struct mr_writer *w;
    struct mr_sample_ref ref;
    struct mr_layout layout;
    uint64_t bytes;
    struct mr_sample_info info = image_info(1, 600, 1000, 3);
    uint8_t *pixels = malloc(info.bytes + 1);
    assert_int_equal(mr_store_open("posix", &s, &err), 0);
    struct mr_writer_spec bad = {.samples = 3};
    assert_int_equal(mr_format_png.writer_open(s, "/dev/full", &bad, &w, &err), MR_E_CONFIG);
    bad = (struct mr_writer_spec){.samples = 1, .compression = MR_COMP_ZIP, .compression_level = 10};
    assert_int_equal(mr_format_png.writer_open(s, "/dev/full", &bad, &w, &err), MR_E_CONFIG);
    assert_int_equal(mr_format_png.writer_open(s, "/dev/full", &plain, &w, &err), 0);
    assert_int_equal(mr_format_png.writer_close(w, &layout, &bytes, &err), MR_E_INTERNAL);
    mr_format_png.synth(&plain, &image_content, &info, 0, pixels, info.bytes);
    assert_int_equal(mr_format_png.writer_open(s, "/dev/full", &plain, &w, &err), 0);
    assert_int_equal(mr_format_png.sample_begin(w, &info, &err), 0);
    assert_int_equal(mr_format_png.sample_data(w, pixels, info.bytes + 1, &err), MR_E_INTERNAL);
    int rc = mr_format_png.sample_data(w, pixels, info.bytes, &err);
    if (rc == 0)
        rc = mr_format_png.sample_end(w, &ref, &err);
    assert_int_equal(rc, -ENOSPC);
    mr_format_png.writer_abort(w);
    mr_format_png.writer_abort(NULL);
    mr_store_close(s);
    free(pixels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(png_round_trip_is_exact),
        cmocka_unit_test(png_file_has_the_requested_size),
        cmocka_unit_test(png_truncation_anywhere_is_an_error),
        cmocka_unit_test(png_flipped_bit_anywhere_is_an_error),
        cmocka_unit_test(png_bombs_are_refused),
        cmocka_unit_test(png_forms_of_others_are_read),
        cmocka_unit_test(png_sixteen_bits_arrive_in_machine_order),
        cmocka_unit_test(png_too_small_destination_tells_what_is_needed),
        cmocka_unit_test(png_bad_use_and_full_disk_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
