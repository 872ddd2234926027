/* Preprocessing against a reference that is written the obvious way, in double and pixel by pixel; what is drawn at
 * random is the same for the same sample and epoch and spread as promised; bad input is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"

#include <math.h>
#include <millrace/preprocess.h>
#include <stdlib.h>
#include <string.h>

#define SIDE_MAX 64u

static uint8_t pixels[SIDE_MAX * SIDE_MAX * 4];
static float made_floats[SIDE_MAX * SIDE_MAX * 4];

static struct mr_sample picture(uint32_t height, uint32_t width, uint32_t channels, uint64_t seed)
{
    for (size_t i = 0; i < (size_t)height * width * channels; i++)
        pixels[i] = (uint8_t)mr_rng_at(seed, MR_RNG_TEST, i);
    return (struct mr_sample){.data = pixels,
                              .bytes = (size_t)height * width * channels,
                              .dtype = "u1",
                              .n_dims = 3,
                              .dims = {height, width, channels}};
}

/* The filters by their textbook formulas. */
static double filter_at(enum mr_filter f, double x)
{
    const double d = fabs(x), px = M_PI * x;
    switch (f) {
    case MR_FILTER_BICUBIC:
        return d < 1 ? 1.5 * d * d * d - 2.5 * d * d + 1 : d < 2 ? -0.5 * d * d * d + 2.5 * d * d - 4 * d + 2 : 0;
    case MR_FILTER_BOX: return x > -0.5 && x <= 0.5;
    case MR_FILTER_HAMMING: return d == 0 ? 1 : d < 1 ? sin(px) / px * (0.54 + 0.46 * cos(px)) : 0;
    case MR_FILTER_LANCZOS: return d == 0 ? 1 : d < 3 ? 3 * sin(px) * sin(px / 3) / (px * px) : 0;
    default: return d < 1 ? 1 - d : 0;
    }
}

/* How much of source pixel k is in pixel i; sums are not 1 yet. */
static double share(enum mr_filter f, uint32_t from, uint32_t to, uint32_t i, uint32_t k)
{
    double scale = (double)from / to, middle = (i + 0.5) * scale;
    if (f == MR_FILTER_NEAREST) {
        middle = 0.5 * scale; /* added up, as Pillow does */
        for (uint32_t n = 0; n < i; n++)
            middle += scale;
        return k == (uint32_t)middle;
    }
    return filter_at(f, (k + 0.5 - middle) / (scale > 1 ? scale : 1));
}

/* One value of the resized part [top, left, height, width] of the picture. */
static double reference(const struct mr_sample *s, enum mr_filter f, const uint32_t part[4], uint32_t height,
                        uint32_t width, uint32_t y, uint32_t x, uint32_t c)
{
    double sum = 0, weights = 0;
    const uint8_t *p = s->data;
    for (uint32_t j = 0; j < part[2]; j++) {
        double down = share(f, part[2], height, y, j);
        for (uint32_t i = 0; down != 0 && i < part[3]; i++) {
            double w = down * share(f, part[3], width, x, i);
            sum += w * p[((part[0] + j) * s->dims[1] + part[1] + i) * s->dims[2] + c];
            weights += w;
        }
    }
    return sum / weights;
}

static struct mr_preprocess *must_create(const struct mr_preprocess_params *p)
{
    struct mr_preprocess *x = NULL;
    struct mr_error err = {0};
    if (mr_preprocess_create(p, &x, &err))
        fail_msg("%s", err.message);
    return x;
}

static size_t must_run(struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct mr_sample *s, void *dst,
                       size_t cap)
{
    struct mr_error err = {0};
    size_t bytes = 0;
    if (mr_preprocess_run(x, epoch, id, s, dst, cap, &bytes, &err))
        fail_msg("%s", err.message);
    return bytes;
}

/* Compares a whole result with the reference, in every element type and layout. */
static void check_all_outputs(struct mr_preprocess_params p, const struct mr_sample *s, const uint32_t part[4],
                              bool flip)
{
    uint32_t height = p.height ? p.height : part[2], width = p.width ? p.width : part[3],
             channels = (uint32_t)s->dims[2];
    for (unsigned variant = 0; variant < 4; variant++) {
        p.to_float = variant & 1;
        p.planar = variant & 2;
        struct mr_preprocess *x = must_create(&p);
        size_t bytes = must_run(x, 3, 17, s, made_floats, sizeof made_floats), n = (size_t)height * width * channels;
        assert_int_equal(bytes, n * (p.to_float ? sizeof(float) : 1));
        for (uint32_t y = 0; y < height; y++)
            for (uint32_t i = 0; i < width; i++)
                for (uint32_t c = 0; c < channels; c++) {
                    double want = reference(s, p.filter, part, height, width, y, flip ? width - 1 - i : i, c);
                    if (!p.overshoot || !p.to_float)
                        want = MR_MIN(MR_MAX(want, 0), 255);
                    size_t at =
                        p.planar ? ((size_t)c * height + y) * width + i : ((size_t)y * width + i) * channels + c;
                    double have = p.to_float ? ((double)made_floats[at] * (double)p.stdev[c] + (double)p.mean[c]) * 255
                                             : (double)((uint8_t *)made_floats)[at];
                    if (fabs(have - want) > (p.to_float ? 1e-3 : 0.502))
                        fail_msg("%u x %u x %u to %u x %u, variant %u: at %u, %u, %u have %g, want %g", part[2],
                                 part[3], channels, height, width, variant, y, i, c, have, want);
                }
        mr_preprocess_free(x);
    }
}

static void resizing_equals_the_reference(void **state)
{
    (void)state;
    static const uint32_t sizes[][4] = {{40, 30, 20, 15}, {40, 30, 17, 29}, {9, 11, 25, 31},
                                        {1, 1, 5, 7},     {50, 3, 1, 1},    {33, 64, 32, 63},
                                        {64, 64, 8, 8},   {20, 20, 20, 10}, {20, 20, 10, 20}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(sizes) * MR_FILTER_RANDOM; i++)
        for (uint32_t channels = 1; channels <= 4; channels++)
            for (int flip = 0; flip < 2; flip++) {
                const uint32_t *size = sizes[i % MR_ARRAY_LEN(sizes)];
                struct mr_sample s = picture(size[0], size[1], channels, i);
                struct mr_preprocess_params p;
                mr_preprocess_params_init(&p);
                p.filter = (enum mr_filter)(i / MR_ARRAY_LEN(sizes));
                p.overshoot = channels & 1;
                p.height = size[2];
                p.width = size[3];
                p.flip = flip;
                p.mean[0] = 0.485f, p.mean[1] = 0.456f, p.mean[2] = 0.406f;
                p.stdev[0] = 0.229f, p.stdev[1] = 0.224f, p.stdev[2] = 0.225f;
                check_all_outputs(p, &s, (const uint32_t[]){0, 0, size[0], size[1]}, flip);
            }
}

static void the_center_is_cut_out_and_resized(void **state)
{
    (void)state;
    for (uint32_t channels = 1; channels <= 4; channels++)
        for (int flip = 0; flip < 2; flip++) {
            struct mr_sample s = picture(37, 50, channels, 5);
            struct mr_preprocess_params p;
            mr_preprocess_params_init(&p);
            p.crop = MR_CROP_CENTER;
            p.crop_height = 20;
            p.crop_width = 31;
            p.flip = flip;
            check_all_outputs(p, &s, (const uint32_t[]){8, 9, 20, 31}, flip);
            p.height = 9;
            p.width = 40;
            check_all_outputs(p, &s, (const uint32_t[]){8, 9, 20, 31}, flip);
        }
}

/* Only the pixels that the result needs are looked at, at every border and in the middle. */
static void parts_of_a_resized_picture_equal_the_whole(void **state)
{
    (void)state;
    struct mr_sample s = picture(61, 47, 3, 8);
    static uint8_t whole[SIDE_MAX * SIDE_MAX * 3], part[SIDE_MAX * SIDE_MAX * 3];
    for (int f = 0; f < MR_FILTER_RANDOM; f++)
        for (uint32_t side = 5; side <= 60; side += 11) { /* of the shorter side: huge reductions and enlargements */
            struct mr_preprocess_params p;
            mr_preprocess_params_init(&p);
            p.filter = (enum mr_filter)f;
            p.height = p.width = side;
            struct mr_preprocess *x = must_create(&p);
            must_run(x, 0, 0, &s, whole, sizeof whole);
            mr_preprocess_free(x);
            p.last_crop = MR_CROP_RANDOM;
            p.last_height = side / 2, p.last_width = 1 + side / 3;
            x = must_create(&p);
            for (uint64_t id = 0; id < 40; id++) {
                struct mr_preprocess_plan plan;
                struct mr_error err;
                assert_int_equal(mr_preprocess_plan(x, 0, id, 61, 47, &plan, &err), 0);
                must_run(x, 0, id, &s, part, sizeof part);
                assert_true(plan.need.top + plan.need.height <= 61 && plan.need.left + plan.need.width <= 47);
                for (uint32_t y = 0; y < p.last_height; y++)
                    assert_memory_equal(part + (size_t)y * p.last_width * 3,
                                        whole + ((plan.result.top + y) * side + plan.result.left) * 3,
                                        (size_t)p.last_width * 3);
            }
            mr_preprocess_free(x);
        }
}

static void a_random_filter_is_drawn_once_per_sample_and_epoch(void **state)
{
    (void)state;
    struct mr_preprocess_params p;
    struct mr_preprocess_plan a, b;
    struct mr_error err;
    unsigned cubic = 0, changed = 0;
    mr_preprocess_params_init(&p);
    p.height = p.width = 8;
    p.filter = MR_FILTER_RANDOM;
    struct mr_preprocess *x = must_create(&p);
    for (uint64_t id = 0; id < 4000; id++) {
        assert_int_equal(mr_preprocess_plan(x, 1, id, 20, 20, &a, &err), 0);
        assert_true(a.filter == MR_FILTER_BILINEAR || a.filter == MR_FILTER_BICUBIC);
        cubic += a.filter == MR_FILTER_BICUBIC;
        assert_int_equal(mr_preprocess_plan(x, 2, id, 20, 20, &b, &err), 0);
        changed += a.filter != b.filter;
        assert_int_equal(mr_preprocess_plan(x, 1, id, 20, 20, &b, &err), 0);
        assert_int_equal(a.filter, b.filter);
    }
    assert_in_range(cubic, 1800, 2200); /* deviation 32 */
    assert_in_range(changed, 1800, 2200);
    mr_preprocess_free(x);
}

static void two_axes_are_one_channel(void **state)
{
    (void)state;
    struct mr_sample s = picture(12, 10, 1, 1), flat = s;
    struct mr_preprocess_params p;
    uint8_t a[30], b[30];
    mr_preprocess_params_init(&p);
    p.height = 5;
    p.width = 6;
    flat.n_dims = 2;
    struct mr_preprocess *x = must_create(&p);
    assert_int_equal(must_run(x, 0, 0, &s, a, sizeof a), 30);
    assert_int_equal(must_run(x, 0, 0, &flat, b, sizeof b), 30);
    assert_memory_equal(a, b, 30);
    mr_preprocess_free(x);
}

/* The picture says where each of its pixels was: what was cut out can be read off. */
static void random_crops_are_drawn_from_everywhere_once_per_sample_and_epoch(void **state)
{
    (void)state;
    enum { SIDE = 16, CROP = 12, N = 4000 };
    static uint8_t where[SIDE * SIDE * 2], out[CROP * CROP * 2], again[CROP * CROP * 2];
    struct mr_sample s = {.data = where, .bytes = sizeof where, .dtype = "u1", .n_dims = 3, .dims = {SIDE, SIDE, 2}};
    unsigned seen[SIDE - CROP + 1][SIDE - CROP + 1] = {{0}}, flipped = 0, changed = 0;
    for (unsigned i = 0; i < SIDE * SIDE; i++) {
        where[2 * i] = (uint8_t)(i / SIDE);
        where[2 * i + 1] = (uint8_t)(i % SIDE);
    }
    struct mr_preprocess_params p;
    mr_preprocess_params_init(&p);
    p.crop = MR_CROP_RANDOM;
    p.crop_height = p.crop_width = CROP;
    p.flip = 0.25;
    p.seed = 9;
    struct mr_preprocess *x = must_create(&p), *y = must_create(&p);
    for (uint64_t id = 0; id < N; id++) {
        must_run(x, 1, id, &s, out, sizeof out);
        must_run(y, 1, id, &s, again, sizeof again);
        assert_memory_equal(out, again, sizeof out);
        bool flip = out[1] > out[3];
        flipped += flip;
        seen[out[0]][flip ? out[2 * CROP - 1] : out[1]]++;
        must_run(y, 2, id, &s, again, sizeof again);
        changed += memcmp(out, again, sizeof out) != 0;
    }
    for (unsigned a = 0; a <= SIDE - CROP; a++)
        for (unsigned b = 0; b <= SIDE - CROP; b++)
            assert_in_range(seen[a][b], N / 25 / 2, N / 25 * 2); /* 160 expected, deviation 12 */
    assert_in_range(flipped, N / 4 - 150, N / 4 + 150);          /* deviation 27 */
    assert_true(changed > N * 9 / 10);
    mr_preprocess_free(x);
    mr_preprocess_free(y);
}

/* Area and aspect ratio of the parts, read off the values at the corners of a picture that is its own coordinates. */
static void random_sizes_keep_their_bounds(void **state)
{
    (void)state;
    enum { SIDE = 200, OUT = 50 };
    static uint8_t where[SIDE * SIDE * 2];
    static float out[OUT * OUT * 2];
    struct mr_sample s = {.data = where, .bytes = sizeof where, .dtype = "u1", .n_dims = 3, .dims = {SIDE, SIDE, 2}};
    for (unsigned i = 0; i < SIDE * SIDE; i++) {
        where[2 * i] = (uint8_t)(i / SIDE);
        where[2 * i + 1] = (uint8_t)(i % SIDE);
    }
    struct mr_preprocess_params p;
    mr_preprocess_params_init(&p);
    p.crop = MR_CROP_RANDOM_RESIZED;
    p.height = p.width = OUT;
    p.to_float = true;
    struct mr_preprocess *x = must_create(&p);
    double smallest = 1, largest = 0;
    for (uint64_t id = 0; id < 2000; id++) {
        must_run(x, 0, id, &s, out, sizeof out);
        /* The distance of the first and the last pixel's middle is 49 steps of 1/50 of the part, away from the borders.
         */
        double high = 255.0 * (double)(out[2 * (40 * OUT + 25)] - out[2 * (10 * OUT + 25)]) / 30 * OUT;
        double wide = 255.0 * (double)(out[2 * (25 * OUT + 40) + 1] - out[2 * (25 * OUT + 10) + 1]) / 30 * OUT;
        double area = high * wide / (SIDE * SIDE), ratio = wide / high;
        assert_true(area > 0.08 * 0.95 && area < 1.01);
        assert_true(ratio > 0.75 * 0.96 && ratio < 4.0 / 3 * 1.04);
        smallest = MR_MIN(smallest, area);
        largest = MR_MAX(largest, area);
    }
    assert_true(smallest < 0.12 && largest > 0.85);
    mr_preprocess_free(x);
}

static void a_part_that_never_fits_is_the_middle(void **state)
{
    (void)state;
    struct mr_sample s = picture(4, 60, 3, 2); /* ratio 15: no part of at least 0.9 of the area fits */
    struct mr_preprocess_params p;
    mr_preprocess_params_init(&p);
    p.crop = MR_CROP_RANDOM_RESIZED;
    p.scale_min = 0.9;
    p.height = p.width = 8;
    check_all_outputs(p, &s, (const uint32_t[]){0, 27, 4, 5}, false);
}

static void bad_parameters_are_refused(void **state)
{
    (void)state;
    struct mr_preprocess_params good, p;
    struct mr_preprocess *x;
    struct mr_error err;
    mr_preprocess_params_init(&good);
    p = good, p.crop = MR_CROP_CENTER;
    assert_int_equal(mr_preprocess_create(&p, &x, &err), MR_E_USAGE);
    p = good, p.height = 5;
    assert_int_equal(mr_preprocess_create(&p, &x, &err), MR_E_USAGE);
    p = good, p.crop = MR_CROP_RANDOM_RESIZED;
    assert_int_equal(mr_preprocess_create(&p, &x, &err), MR_E_USAGE);
    p = good, p.filter = (enum mr_filter)7;
    assert_int_equal(mr_preprocess_create(&p, &x, &err), MR_E_USAGE);
    p = good, p.flip = 1.5;
    assert_int_equal(mr_preprocess_create(&p, &x, &err), MR_E_USAGE);
    p = good, p.flip = NAN;
    assert_int_equal(mr_preprocess_create(&p, &x, &err), MR_E_USAGE);
    p = good, p.stdev[2] = 0;
    assert_int_equal(mr_preprocess_create(&p, &x, &err), MR_E_USAGE);
    p = good, p.scale_min = 2;
    assert_int_equal(mr_preprocess_create(&p, &x, &err), MR_E_USAGE);
    p = good, p.height = p.width = MR_PREPROCESS_SIDE_MAX + 1;
    assert_int_equal(mr_preprocess_create(&p, &x, &err), MR_E_USAGE);
}

static void what_is_no_picture_is_refused(void **state)
{
    (void)state;
    struct mr_sample s = picture(10, 10, 3, 1), bad;
    struct mr_preprocess_params p;
    struct mr_error err;
    uint8_t out[1000];
    size_t bytes;
    mr_preprocess_params_init(&p);
    p.crop = MR_CROP_CENTER;
    p.crop_height = p.crop_width = 10;
    struct mr_preprocess *x = must_create(&p);
    bad = s, bad.n_dims = 1;
    assert_int_equal(mr_preprocess_run(x, 0, 0, &bad, out, sizeof out, &bytes, &err), MR_E_USAGE);
    bad = s, memcpy(bad.dtype, "f4", 3);
    assert_int_equal(mr_preprocess_run(x, 0, 0, &bad, out, sizeof out, &bytes, &err), MR_E_USAGE);
    bad = s, bad.dims[2] = 5;
    assert_int_equal(mr_preprocess_run(x, 0, 0, &bad, out, sizeof out, &bytes, &err), MR_E_USAGE);
    bad = s, bad.bytes--;
    assert_int_equal(mr_preprocess_run(x, 0, 0, &bad, out, sizeof out, &bytes, &err), MR_E_USAGE);
    bad = s, bad.dims[0] = 9, bad.bytes = 270; /* smaller than the crop */
    assert_int_equal(mr_preprocess_run(x, 0, 0, &bad, out, sizeof out, &bytes, &err), MR_E_USAGE);
    assert_non_null(strstr(err.message, "9 x 10"));
    assert_int_equal(mr_preprocess_run(x, 0, 0, &s, out, 299, &bytes, &err), MR_E_LIMIT);
    assert_int_equal(bytes, 300);
    assert_int_equal(mr_preprocess_run(x, 0, 0, &s, out, 300, &bytes, &err), 0);
    mr_preprocess_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resizing_equals_the_reference),
        cmocka_unit_test(the_center_is_cut_out_and_resized),
        cmocka_unit_test(parts_of_a_resized_picture_equal_the_whole),
        cmocka_unit_test(a_random_filter_is_drawn_once_per_sample_and_epoch),
        cmocka_unit_test(two_axes_are_one_channel),
        cmocka_unit_test(random_crops_are_drawn_from_everywhere_once_per_sample_and_epoch),
        cmocka_unit_test(random_sizes_keep_their_bounds),
        cmocka_unit_test(a_part_that_never_fits_is_the_middle),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(what_is_no_picture_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
