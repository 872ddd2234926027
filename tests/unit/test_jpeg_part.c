/* Decoding a part of a JPEG picture: the pixels are those of a full decoding, whatever the sampling of the chroma, the
 * place of the part and the kind of file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include "format/format.h"
#include "format/image_file.h"

#include <stdio.h> /* before jpeglib.h */

#include <jpeglib.h>
#include <stdlib.h>
#include <string.h>

struct picture {
    unsigned height, width, channels;
    int h_factor, v_factor; /* of luma */
    bool progressive;
};

/* Edges and gradients in all channels, so that a wrong neighbour shows. */
static void paint(const struct picture *p, uint8_t *pixels)
{
    for (unsigned y = 0; y < p->height; y++)
        for (unsigned x = 0; x < p->width; x++)
            for (unsigned c = 0; c < p->channels; c++)
                pixels[((size_t)y * p->width + x) * p->channels + c] =
                    (uint8_t)(mr_mix64(((uint64_t)y / 3) << 32 | (x / (2 + c))) ^ (x * (c + 1) + y));
}

static size_t encode(const struct picture *p, uint8_t **out)
{
    struct jpeg_compress_struct z;
    struct jpeg_error_mgr manager;
    unsigned long len = 0;
    uint8_t *pixels = malloc((size_t)p->height * p->width * p->channels);
    paint(p, pixels);
    *out = NULL;
    z.err = jpeg_std_error(&manager);
    jpeg_create_compress(&z);
    jpeg_mem_dest(&z, out, &len);
    z.image_height = p->height;
    z.image_width = p->width;
    z.input_components = (int)p->channels;
    z.in_color_space = p->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(&z);
    z.comp_info[0].h_samp_factor = p->h_factor;
    z.comp_info[0].v_samp_factor = p->v_factor;
    if (p->progressive)
        jpeg_simple_progression(&z);
    jpeg_start_compress(&z, TRUE);
    while (z.next_scanline < z.image_height) {
        JSAMPROW row = pixels + (size_t)z.next_scanline * p->width * p->channels;
        jpeg_write_scanlines(&z, &row, 1);
    }
    jpeg_finish_compress(&z);
    jpeg_destroy_compress(&z);
    free(pixels);
    return len;
}

static int choose(void *user, struct mr_part *part, struct mr_error *err)
{
    const struct mr_part *want = user;
    (void)err;
    assert_int_equal(part->full_height, want->full_height);
    assert_int_equal(part->full_width, want->full_width);
    *part = *want;
    return 0;
}

static void decode(struct mr_decoder *d, const uint8_t *jpeg, size_t len, struct mr_sample_out *out)
{
    struct mr_layout layout;
    struct mr_error err;
    struct mr_sample_ref ref = {.raw = {0, len}, .label = 7};
    assert_int_equal(mr_image_layout(&layout, &err), 0);
    int rc = mr_format_jpeg.decode(d, &layout, &ref, 0, jpeg, len, out, &err);
    if (rc)
        fail_msg("%s", err.message);
    free(layout.data);
}

static void check_part(struct mr_decoder *d, const uint8_t *jpeg, size_t len, const uint8_t *whole,
                       const struct picture *p, struct mr_part want)
{
    want.full_height = p->height;
    want.full_width = p->width;
    struct mr_sample_out out = {.choose_part = choose, .choose_user = &want};
    decode(d, jpeg, len, &out);
    const struct mr_part *have = &out.part;
    assert_int_equal(have->full_height, p->height);
    assert_true(have->top <= want.top && have->left <= want.left);
    assert_true(have->top + have->height >= want.top + want.height &&
                have->left + have->width >= want.left + want.width);
    assert_int_equal(out.dims.dim[0], have->height);
    assert_int_equal(out.dims.dim[1], have->width);
    for (uint64_t y = want.top; y < want.top + want.height; y++) {
        const uint8_t *a = whole + (y * p->width + want.left) * p->channels;
        const uint8_t *b =
            (const uint8_t *)out.data + ((y - have->top) * have->width + want.left - have->left) * p->channels;
        if (memcmp(a, b, want.width * p->channels) != 0)
            fail_msg("row %llu of the part %llu x %llu at %llu, %llu of a picture %u x %u (%d x %d%s) differs",
                     (unsigned long long)y, (unsigned long long)want.height, (unsigned long long)want.width,
                     (unsigned long long)want.top, (unsigned long long)want.left, p->height, p->width, p->h_factor,
                     p->v_factor, p->progressive ? ", progressive" : "");
    }
}

/* A part of the reduced picture has the pixels of all of the reduced picture, and holds what was asked for; only at its
 * edges a pixel may be another, which is why there is one more. */
static void check_reduced_part(struct mr_decoder *d, const uint8_t *jpeg, size_t len, const struct picture *p,
                               const struct mr_sample_out *whole, struct mr_part want)
{
    want.full_height = p->height;
    want.full_width = p->width;
    struct mr_sample_out out = {.choose_part = choose, .choose_user = &want};
    decode(d, jpeg, len, &out);
    const struct mr_part *have = &out.part;
    const uint64_t s = want.shrink, stride = whole->dims.dim[1] * p->channels;
    assert_int_equal(have->shrink, s);
    assert_int_equal(have->full_width, p->width);
    assert_true(have->top <= want.top / s && have->left <= want.left / s);
    assert_true((have->top + have->height) * s >= want.top + want.height);
    assert_true((have->left + have->width) * s >= want.left + want.width);
    assert_int_equal(out.dims.dim[0], have->height);
    assert_int_equal(out.dims.dim[1], have->width);
    const uint64_t left = want.left / s, width = (want.left + want.width + s - 1) / s - left;
    for (uint64_t y = want.top / s; y < (want.top + want.height + s - 1) / s; y++)
        assert_memory_equal((const uint8_t *)whole->data + y * stride + left * p->channels,
                            (const uint8_t *)out.data +
                                ((y - have->top) * have->width + left - have->left) * p->channels,
                            width * p->channels);
}

static void check_reduced(const struct picture *p, unsigned shrink, unsigned parts)
{
    struct mr_decoder *d = mr_decoder_create(), *whole_decoder = mr_decoder_create();
    uint8_t *jpeg;
    size_t len = encode(p, &jpeg);
    struct mr_part all = {
        .height = p->height, .width = p->width, .full_height = p->height, .full_width = p->width, .shrink = shrink};
    struct mr_sample_out whole = {.choose_part = choose, .choose_user = &all};
    decode(whole_decoder, jpeg, len, &whole);
    assert_int_equal(whole.dims.dim[0], (p->height + shrink - 1) / shrink);
    assert_int_equal(whole.dims.dim[1], (p->width + shrink - 1) / shrink);
    for (unsigned i = 0; i < parts; i++) {
        uint64_t r[4];
        for (unsigned k = 0; k < 4; k++)
            r[k] = mr_mix64((uint64_t)i * 4 + k + p->width + shrink);
        struct mr_part want = {.top = r[0] % p->height, .left = r[1] % p->width, .shrink = shrink};
        want.height = 1 + r[2] % (p->height - want.top);
        want.width = 1 + r[3] % (p->width - want.left);
        check_reduced_part(d, jpeg, len, p, &whole, want);
    }
    free(jpeg);
    mr_decoder_free(d);
    mr_decoder_free(whole_decoder);
}

static void reduced_parts_have_the_pixels_of_the_reduced_whole(void **state)
{
    (void)state;
    static const int factors[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(factors); i++)
        for (unsigned shrink = 2; shrink <= 8; shrink *= 2)
            check_reduced(&(struct picture){.height = 171 + 7 * i,
                                            .width = 203 + 5 * i,
                                            .channels = i == 3 ? 1 : 3,
                                            .h_factor = i == 3 ? 1 : factors[i][0],
                                            .v_factor = i == 3 ? 1 : factors[i][1],
                                            .progressive = i == 2 && shrink == 2},
                          shrink, 100);
}

static void check_picture(const struct picture *p, unsigned parts)
{
    struct mr_decoder *d = mr_decoder_create();
    uint8_t *jpeg;
    size_t len = encode(p, &jpeg), bytes = (size_t)p->height * p->width * p->channels;
    uint8_t *whole = malloc(bytes);
    struct mr_sample_out out = {.dst = whole, .dst_cap = bytes};
    decode(d, jpeg, len, &out);
    assert_int_equal(out.bytes, bytes);
    for (unsigned i = 0; i < parts; i++) {
        uint64_t r[4];
        for (unsigned k = 0; k < 4; k++)
            r[k] = mr_mix64((uint64_t)i * 4 + k + p->width);
        struct mr_part want = {.top = r[0] % p->height, .left = r[1] % p->width};
        want.height = 1 + r[2] % (p->height - want.top);
        want.width = 1 + r[3] % (p->width - want.left);
        check_part(d, jpeg, len, whole, p, want);
    }
    check_part(d, jpeg, len, whole, p, (struct mr_part){.height = p->height, .width = p->width});
    free(whole);
    free(jpeg);
    mr_decoder_free(d);
}

static void parts_have_the_pixels_of_the_whole(void **state)
{
    (void)state;
    static const int factors[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(factors); i++)
        for (unsigned progressive = 0; progressive < 2; progressive++) {
            struct picture p = {.height = 101 + 7 * i, .width = 133 + 5 * i, .channels = 3};
            p.h_factor = factors[i][0];
            p.v_factor = factors[i][1];
            p.progressive = progressive;
            check_picture(&p, 400);
        }
}

static void grey_and_tiny_pictures_too(void **state)
{
    (void)state;
    check_picture(&(struct picture){.height = 90, .width = 61, .channels = 1, .h_factor = 1, .v_factor = 1}, 200);
    for (unsigned side = 1; side < 36; side += 3)
        check_picture(
            &(struct picture){.height = side, .width = 37 - side, .channels = 3, .h_factor = 2, .v_factor = 2}, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_have_the_pixels_of_the_whole),
        cmocka_unit_test(reduced_parts_have_the_pixels_of_the_reduced_whole),
        cmocka_unit_test(grey_and_tiny_pictures_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
