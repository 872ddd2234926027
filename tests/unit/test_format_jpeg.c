/* JPEG: written pictures resemble their content, have the requested size, and damaged files are errors, never crashes
 * and never invented pixels. */
#include "image_test.h"

#include <errno.h>
#include <jpeglib.h>

static const struct mr_writer_spec spec85 = {.samples = 1, .quality = 85};

static void jpeg_round_trip_resembles_content(void **state)
{
    (void)state;
    static const struct {
        uint64_t h, w, c;
        unsigned quality;
        size_t piece;
    } cases[] = {{375, 500, 3, 85, 100000},   {375, 500, 1, 85, 777},  {1, 1, 3, 85, 10},
                 {8, 8, 1, 85, 64},           {17, 1000, 3, 85, 3001}, {640, 480, 3, 50, 7},
                 {600, 801, 3, 95, 1 << 20},  {64, 64, 3, 10, 5000},   {64, 64, 3, 100, 5000},
                 {2000, 3000, 3, 90, 1 << 18}};
    struct mr_decoder *d = mr_decoder_create();
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_error err = {0};
        struct mr_writer_spec spec = {.samples = 1, .quality = cases[i].quality};
        struct mr_sample_info info = image_info(i, cases[i].h, cases[i].w, cases[i].c);
        struct image_file f = image_write(&mr_format_jpeg, &spec, &info, cases[i].piece);
        struct mr_sample_out out = {0};
        assert_int_equal(image_decode(&mr_format_jpeg, d, f.data, f.len, &out, &err), 0);
        assert_int_equal(out.bytes, info.bytes);
        assert_memory_equal(out.dims.dim, info.dims.dim, sizeof(uint64_t) * 3);
        if (cases[i].h > 1 && mr_format_jpeg.check(&spec, &image_content, &info, &out, &err) != 0)
            fail_msg("case %zu: %s", i, err.message);
        /* Another sample's picture must not pass. */
        info.id += 1000;
        if (cases[i].h > 8 && cases[i].quality > 10) {
            assert_int_equal(mr_format_jpeg.check(&spec, &image_content, &info, &out, &err), MR_E_CORRUPT);
            assert_non_null(strstr(err.message, " dB, want at least "));
        }
        image_file_done(&f);
    }
    mr_decoder_free(d);
}

static void jpeg_content_is_a_function_of_position(void **state)
{
    (void)state;
    for (uint64_t c = 1; c <= 3; c += 2) {
        struct mr_sample_info info = image_info(5, 300, 517, c);
        uint8_t *whole = malloc(info.bytes), *part = malloc(info.bytes);
        mr_format_jpeg.synth(&spec85, &image_content, &info, 0, whole, info.bytes);
        for (uint64_t k = 0; k < 200; k++) {
            uint64_t at = mr_rng_below(mr_rng_at(1, MR_RNG_TEST, 2 * k), info.bytes);
            size_t n = (size_t)mr_rng_below(mr_rng_at(1, MR_RNG_TEST, 2 * k + 1), info.bytes - at) + 1;
            n = k % 2 ? n : MR_MIN(n, (size_t)700);
            mr_format_jpeg.synth(&spec85, &image_content, &info, at, part, n);
            assert_memory_equal(part, whole + at, n);
        }
        free(whole);
        free(part);
    }
}

/* Byte-for-byte: a data set made here must verify on any machine. Sums change only with MR_IMAGE_VERSION. */
static void jpeg_pictures_never_change_within_a_version(void **state)
{
    (void)state;
    struct mr_sample_info info = image_info(42, 211, 333, 3);
    uint8_t *p = malloc(info.bytes);
    uint64_t sum = 0;
    mr_image_fill(7, 42, &info.dims, 0, p, info.bytes);
    for (uint64_t i = 0; i < info.bytes; i++)
        sum = mr_mix64(sum ^ p[i]);
    free(p);
    assert_int_equal(MR_IMAGE_VERSION, 1);
    assert_int_equal(sum, UINT64_C(0x60313d6b08c2d476));
}

static void jpeg_same_sample_gives_same_file(void **state)
{
    (void)state;
    struct mr_sample_info info = image_info(3, 100, 150, 3);
    struct image_file a = image_write(&mr_format_jpeg, &spec85, &info, 999);
    struct image_file b = image_write(&mr_format_jpeg, &spec85, &info, 45000);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    image_file_done(&a);
    image_file_done(&b);
}

/* The whole path of a generator: shape, write. Returns the file's size. */
static uint64_t generated_size(unsigned quality, uint64_t channels, uint64_t id, uint64_t want)
{
    struct mr_error err = {0};
    struct mr_writer_spec spec = {.samples = 1, .quality = quality, .dims = {.n = 3, .dim = {0, 0, channels}}};
    struct mr_sample_info info = {.id = id};
    assert_int_equal(mr_format_jpeg.shape(&spec, want, &info, &err), 0);
    assert_int_equal(info.dims.dim[2], channels);
    struct image_file f = image_write(&mr_format_jpeg, &spec, &info, 1 << 18);
    uint64_t len = f.len;
    image_file_done(&f);
    return len;
}

static void jpeg_file_has_the_requested_size(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1000, 1500, 2500, 5000, 10000, 20000, 50000, 114660, 200000, 500000};
    static const unsigned qualities[] = {85, 1, 8, 33, 50, 75, 88, 95, 99, 100};
    unsigned exact = 0, all = 0;
    for (size_t q = 0; q < MR_ARRAY_LEN(qualities); q++)
        for (size_t i = 0; i < MR_ARRAY_LEN(sizes); i++)
            for (uint64_t c = 1; c <= 3; c += 2) {
                uint64_t want = sizes[i] / (qualities[q] == 85 ? 1 : 4) + 600;
                uint64_t have = generated_size(qualities[q], c, i + 100 * q, want);
                all++;
                exact += have == want;
                if (fabs((double)have / (double)want - 1) > (want < 5000 ? 0.1 : 0.03))
                    fail_msg("quality %u, %d channels: asked for %d bytes, got %d", qualities[q], (int)c, (int)want,
                             (int)have);
            }
    assert_true(exact >= all * 9 / 10);
}

static void jpeg_sizes_have_the_requested_mean_and_deviation(void **state)
{
    (void)state;
    double want_sum = 0, want_squares = 0, sum = 0, squares = 0;
    enum { N = 150 };
    for (uint64_t i = 0; i < N; i++) {
        double want = floor(40000 + 8000 * mr_rng_normal(9, MR_RNG_TEST, i));
        double have = (double)generated_size(85, 3, i, (uint64_t)want);
        want_sum += want;
        want_squares += want * want;
        sum += have;
        squares += have * have;
    }
    double want_sd = sqrt(want_squares / N - want_sum / N * want_sum / N), sd = sqrt(squares / N - sum / N * sum / N);
    assert_true(fabs(sum / want_sum - 1) < 0.005);
    assert_true(fabs(sd / want_sd - 1) < 0.01);
}

static void jpeg_request_below_the_smallest_gives_the_smallest(void **state)
{
    (void)state;
    assert_true(generated_size(85, 3, 1, 10) < 800);
    assert_true(generated_size(85, 3, 1, 0) < 800);
}

static void jpeg_fixed_dims_are_kept(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_writer_spec spec = {.samples = 1, .fixed_size = true, .dims = {.n = 2, .dim = {30, 40}}};
    struct mr_sample_info info = {.id = 1};
    assert_int_equal(mr_format_jpeg.shape(&spec, 1200, &info, &err), 0);
    assert_int_equal(info.dims.n, 2);
    assert_int_equal(info.bytes, 1200);
    assert_int_equal(info.file_bytes, 0);
    struct image_file f = image_write(&mr_format_jpeg, &spec, &info, 100);
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_out out = {0};
    assert_int_equal(image_decode(&mr_format_jpeg, d, f.data, f.len, &out, &err), 0);
    assert_int_equal(out.dims.dim[0], 30);
    assert_int_equal(out.dims.dim[1], 40);
    assert_int_equal(out.dims.dim[2], 1);
    assert_int_equal(mr_format_jpeg.check(&spec, &image_content, &info, &out, &err), 0);
    image_file_done(&f);
    mr_decoder_free(d);
    spec.dims = (struct mr_dims){.n = 3, .dim = {30, 40, 7}};
    assert_int_equal(mr_format_jpeg.shape(&spec, 1200, &info, &err), MR_E_CONFIG);
    spec.dims = (struct mr_dims){.n = 3, .dim = {70000, 40, 3}};
    assert_int_equal(mr_format_jpeg.shape(&spec, 1200, &info, &err), MR_E_CONFIG);
    spec = (struct mr_writer_spec){.samples = 1};
    assert_int_equal(mr_format_jpeg.shape(&spec, UINT64_C(1) << 50, &info, &err), MR_E_LIMIT);
    spec.quality = 101;
    assert_int_equal(mr_format_jpeg.shape(&spec, 1000, &info, &err), MR_E_CONFIG);
}

static void jpeg_padding_of_any_length_is_readable(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_info info = image_info(3, 40, 50, 3);
    struct image_file plain = image_write(&mr_format_jpeg, &spec85, &info, 6000);
    static const unsigned pads[] = {0, 1, 2, 3, 4, 5, 100, 65536, 65537, 65538, 65539, 65540, 65541, 65542, 200000};
    for (size_t i = 0; i < MR_ARRAY_LEN(pads); i++) {
        struct mr_sample_out out = {0};
        info.file_bytes = plain.len + pads[i];
        struct image_file f = image_write(&mr_format_jpeg, &spec85, &info, 6000);
        assert_int_equal(f.len, plain.len + pads[i]);
        if (image_decode(&mr_format_jpeg, d, f.data, f.len, &out, &err) != 0)
            fail_msg("padding of %u: %s", pads[i], err.message);
        assert_int_equal(mr_format_jpeg.check(&spec85, &image_content, &info, &out, &err), 0);
        image_file_done(&f);
    }
    image_file_done(&plain);
    mr_decoder_free(d);
}

static void jpeg_truncation_anywhere_is_an_error(void **state)
{
    (void)state;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_info info = image_info(3, 60, 80, 3);
    struct image_file f = image_write(&mr_format_jpeg, &spec85, &info, 6000);
    for (size_t cut = 0; cut < f.len; cut += cut < 700 || cut + 50 > f.len ? 1 : 13) {
        struct mr_error err = {0};
        struct mr_sample_out out = {0};
        if (image_decode(&mr_format_jpeg, d, f.data, cut, &out, &err) != MR_E_FORMAT)
            fail_msg("cut at %zu of %zu was taken for an image", cut, f.len);
        assert_non_null(strstr(err.message, "bad JPEG data"));
    }
    struct mr_sample_out out = {0};
    assert_int_equal(image_decode(&mr_format_jpeg, d, f.data, f.len, &out, NULL), 0);
    image_file_done(&f);
    mr_decoder_free(d);
}

static void jpeg_flipped_bytes_never_crash(void **state)
{
    (void)state;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_info info = image_info(3, 60, 80, 3);
    struct image_file f = image_write(&mr_format_jpeg, &spec85, &info, 6000);
    uint8_t *dst = malloc(1 << 20);
    unsigned refused = 0;
    for (uint64_t k = 0; k < 1500; k++) {
        struct mr_sample_out out = {.dst = dst, .dst_cap = 1 << 20};
        size_t at = k < 640 ? (size_t)k : (size_t)mr_rng_below(mr_rng_at(3, MR_RNG_TEST, k), f.len);
        uint8_t old = f.data[at];
        f.data[at] = (uint8_t)mr_rng_at(4, MR_RNG_TEST, k);
        int rc = image_decode(&mr_format_jpeg, d, f.data, f.len, &out, NULL);
        assert_true(rc == 0 || rc == MR_E_FORMAT || rc == MR_E_LIMIT);
        refused += rc != 0;
        f.data[at] = old;
    }
    assert_true(refused > 100);
    free(dst);
    image_file_done(&f);
    mr_decoder_free(d);
}

static void jpeg_bomb_is_refused_before_memory_is_taken(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_info info = image_info(3, 60, 80, 3);
    struct image_file f = image_write(&mr_format_jpeg, &spec85, &info, 6000);
    size_t at = 0;
    while (f.data[at] != 0xff || f.data[at + 1] != 0xc0)
        at++;
    memcpy(f.data + at + 5, "\xff\xdc\xff\xdc", 4); /* 65500 x 65500 */
    struct mr_sample_out out = {0};
    assert_int_equal(image_decode(&mr_format_jpeg, d, f.data, f.len, &out, &err), MR_E_LIMIT);
    assert_non_null(strstr(err.message, "65500 x 65500"));
    image_file_done(&f);
    mr_decoder_free(d);
}

static void jpeg_too_small_destination_tells_what_is_needed(void **state)
{
    (void)state;
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_info info = image_info(3, 60, 80, 3);
    struct image_file f = image_write(&mr_format_jpeg, &spec85, &info, 6000);
    uint8_t small[100];
    struct mr_sample_out out = {.dst = small, .dst_cap = sizeof small};
    assert_int_equal(image_decode(&mr_format_jpeg, d, f.data, f.len, &out, NULL), MR_E_LIMIT);
    assert_int_equal(out.bytes, 60 * 80 * 3);
    image_file_done(&f);
    mr_decoder_free(d);
}

static void jpeg_bad_use_of_the_writer_is_an_error(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_store *s;
    struct mr_writer *w;
    assert_int_equal(mr_store_open("memory", &s, &err), 0);
    struct mr_writer_spec two = {.samples = 2};
    assert_int_equal(mr_format_jpeg.writer_open(s, "x", &two, &w, &err), MR_E_CONFIG);
    struct mr_sample_info info = image_info(1, 16, 16, 3),
                          flat = {.dtype = MR_U8, .dims = {.n = 1, .dim = {100}}, .bytes = 100};
    struct mr_layout layout;
    struct mr_sample_ref ref;
    uint64_t bytes;
    uint8_t pixels[16 * 16 * 3 + 1] = {0};
    assert_int_equal(mr_format_jpeg.writer_open(s, "x", &spec85, &w, &err), 0);
    assert_int_equal(mr_format_jpeg.sample_begin(w, &flat, &err), MR_E_CONFIG);
    assert_int_equal(mr_format_jpeg.writer_close(w, &layout, &bytes, &err), MR_E_INTERNAL);
    assert_int_equal(mr_format_jpeg.writer_open(s, "x", &spec85, &w, &err), 0);
    assert_int_equal(mr_format_jpeg.sample_begin(w, &info, &err), 0);
    assert_int_equal(mr_format_jpeg.sample_data(w, pixels, sizeof pixels, &err), MR_E_INTERNAL);
    assert_int_equal(mr_format_jpeg.sample_data(w, pixels, 100, &err), 0);
    assert_int_equal(mr_format_jpeg.sample_end(w, &ref, &err), MR_E_INTERNAL);
    mr_format_jpeg.writer_abort(w);
    mr_format_jpeg.writer_abort(NULL);
    mr_store_close(s);
}

static void jpeg_full_disk_is_reported(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_store *s;
    struct mr_writer *w;
    struct mr_sample_ref ref;
    assert_int_equal(mr_store_open("posix", &s, &err), 0);
    for (int streamed = 0; streamed < 2; streamed++) {
        struct mr_sample_info info = image_info(1, 1000, 1500, 3);
        info.file_bytes = streamed ? 0 : 1100000;
        uint8_t *pixels = malloc(info.bytes);
        mr_format_jpeg.synth(&spec85, &image_content, &info, 0, pixels, info.bytes);
        assert_int_equal(mr_format_jpeg.writer_open(s, "/dev/full", &spec85, &w, &err), 0);
        assert_int_equal(mr_format_jpeg.sample_begin(w, &info, &err), 0);
        int rc = mr_format_jpeg.sample_data(w, pixels, info.bytes, &err);
        if (rc == 0)
            rc = mr_format_jpeg.sample_end(w, &ref, &err);
        assert_int_equal(rc, -ENOSPC);
        mr_format_jpeg.writer_abort(w);
        free(pixels);
    }
    mr_store_close(s);
}

/* Encodes with libjpeg itself: forms that others write and we do not. */
static size_t encode_by_library(J_COLOR_SPACE space, int channels, bool progressive, int scans, uint8_t **out)
{
    struct jpeg_compress_struct z;
    struct jpeg_error_mgr manager;
    unsigned long len = 0;
    uint8_t row[64 * 4];
    static jpeg_scan_info many[1000];
    *out = NULL;
    z.err = jpeg_std_error(&manager);
    jpeg_create_compress(&z);
    jpeg_mem_dest(&z, out, &len);
    z.image_width = z.image_height = 64;
    z.input_components = channels;
    z.in_color_space = space;
    jpeg_set_defaults(&z);
    if (progressive)
        jpeg_simple_progression(&z);
    if (scans) { /* DC at full precision, then one coefficient of one component per scan, over and over refined */
        for (int i = 0; i < scans; i++)
            many[i] = (jpeg_scan_info){.comps_in_scan = 1, .Ss = i ? i : 0, .Se = i ? i : 0};
        z.scan_info = many;
        z.num_scans = scans;
    }
    for (int i = 0; i < 64 * channels; i++)
        row[i] = (uint8_t)(i % channels == 3 ? 255 : 40 + 50 * (i % channels));
    jpeg_start_compress(&z, TRUE);
    while (z.next_scanline < z.image_height) {
        JSAMPROW r = row;
        jpeg_write_scanlines(&z, &r, 1);
    }
    jpeg_finish_compress(&z);
    jpeg_destroy_compress(&z);
    return len;
}

static void jpeg_forms_of_others_are_read(void **state)
{
    (void)state;
    struct mr_decoder *d = mr_decoder_create();
    static const struct {
        J_COLOR_SPACE space;
        int in, out;
        bool progressive;
    } cases[] = {{JCS_RGB, 3, 3, true}, {JCS_GRAYSCALE, 1, 1, true}, {JCS_CMYK, 4, 3, false}, {JCS_CMYK, 4, 3, true}};
    for (size_t i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_error err = {0};
        struct mr_sample_out out = {0};
        uint8_t *file;
        size_t len = encode_by_library(cases[i].space, cases[i].in, cases[i].progressive, 0, &file);
        if (image_decode(&mr_format_jpeg, d, file, len, &out, &err) != 0)
            fail_msg("case %zu: %s", i, err.message);
        assert_int_equal(out.dims.dim[2], cases[i].out);
        for (int c = 0; c < cases[i].out; c++) /* Adobe's inverted CMYK with K = 255 is plain RGB */
            assert_true(abs(((const uint8_t *)out.data)[30 * 64 * cases[i].out + c] - (40 + 50 * c)) <= 3);
        free(file);
    }
    mr_decoder_free(d);
}

static void jpeg_file_of_too_many_scans_is_refused(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_decoder *d = mr_decoder_create();
    struct mr_sample_out out = {0};
    uint8_t *file;
    size_t len = encode_by_library(JCS_GRAYSCALE, 1, true, 60, &file);
    assert_int_equal(image_decode(&mr_format_jpeg, d, file, len, &out, &err), 0);
    /* Repeat the last scan's bytes (from its SOS marker to EOI) 600 times. */
    size_t sos = len;
    while (file[sos - 2] != 0xff || file[sos - 1] != 0xda)
        sos--;
    sos -= 2;
    size_t scan = len - 2 - sos, n = 0;
    uint8_t *bomb = malloc(len + 600 * scan);
    memcpy(bomb, file, len - 2);
    n = len - 2;
    for (int i = 0; i < 600; i++, n += scan)
        memcpy(bomb + n, file + sos, scan);
    memcpy(bomb + n, "\xff\xd9", 2);
    out = (struct mr_sample_out){0};
    assert_int_equal(image_decode(&mr_format_jpeg, d, bomb, n + 2, &out, &err), MR_E_FORMAT);
    free(bomb);
    free(file);
    mr_decoder_free(d);
}

static int count_sample(void *user, const struct mr_sample_ref *ref, const char *key, struct mr_error *err)
{
    (void)key, (void)err;
    *(uint64_t *)user += ref->raw.length;
    return 0;
}

static void jpeg_scan_finds_one_sample_and_refuses_other_files(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_store *s;
    struct mr_layout layout = {0};
    struct mr_sample_info info = image_info(3, 60, 80, 3);
    struct image_file f = image_write(&mr_format_jpeg, &spec85, &info, 6000);
    uint64_t found = 0;
    assert_int_equal(mr_store_open("memory", &s, &err), 0);
    assert_int_equal(mr_store_write_file(s, "a.jpg", f.data, f.len, &err), 0);
    assert_int_equal(mr_store_write_file(s, "b.jpg", "GIF89a", 6, &err), 0);
    assert_int_equal(mr_store_write_file(s, "c.jpg", "", 0, &err), 0);
    assert_int_equal(mr_format_jpeg.scan(s, "a.jpg", count_sample, &found, &layout, &err), 0);
    assert_int_equal(found, f.len);
    free(layout.data);
    assert_int_equal(mr_format_jpeg.scan(s, "b.jpg", count_sample, &found, &layout, &err), MR_E_FORMAT);
    assert_int_equal(mr_format_jpeg.scan(s, "c.jpg", count_sample, &found, &layout, &err), MR_E_FORMAT);
    mr_store_close(s);
    image_file_done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jpeg_round_trip_resembles_content),
        cmocka_unit_test(jpeg_content_is_a_function_of_position),
        cmocka_unit_test(jpeg_pictures_never_change_within_a_version),
        cmocka_unit_test(jpeg_same_sample_gives_same_file),
        cmocka_unit_test(jpeg_file_has_the_requested_size),
        cmocka_unit_test(jpeg_sizes_have_the_requested_mean_and_deviation),
        cmocka_unit_test(jpeg_request_below_the_smallest_gives_the_smallest),
        cmocka_unit_test(jpeg_fixed_dims_are_kept),
        cmocka_unit_test(jpeg_padding_of_any_length_is_readable),
        cmocka_unit_test(jpeg_truncation_anywhere_is_an_error),
        cmocka_unit_test(jpeg_flipped_bytes_never_crash),
        cmocka_unit_test(jpeg_bomb_is_refused_before_memory_is_taken),
        cmocka_unit_test(jpeg_too_small_destination_tells_what_is_needed),
        cmocka_unit_test(jpeg_bad_use_of_the_writer_is_an_error),
        cmocka_unit_test(jpeg_full_disk_is_reported),
        cmocka_unit_test(jpeg_forms_of_others_are_read),
        cmocka_unit_test(jpeg_file_of_too_many_scans_is_refused),
        cmocka_unit_test(jpeg_scan_finds_one_sample_and_refuses_other_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
