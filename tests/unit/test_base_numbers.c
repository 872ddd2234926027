/* Properties of the random numbers, sample content, CRC-32C, the histogram and the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/common.h"
#include "base/content.h"
#include "base/crc32c.h"
#include "base/histogram.h"
#include "base/rng.h"

/* Version 1 of the generator, fixed for ever: data sets on disk depend on it. */
static void rng_golden_values_never_change(void **state)
{
    (void)state;
    assert_int_equal(MR_RNG_VERSION, 1);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 1000; i++)
        sum = sum * 31 + mr_rng_at(42, MR_RNG_ORDER, i);
    assert_int_equal(mr_rng_at(0, MR_RNG_ORDER, 0), 0xa9bd08a94f64dd76ull);
    assert_int_equal(sum, 0x699cc67a0c3ff68dull);
}

static void rng_bits_are_balanced_and_avalanche(void **state)
{
    (void)state;
    unsigned ones[64] = {0};
    double flipped = 0;
    for (uint64_t i = 0; i < 4096; i++) {
        uint64_t a = mr_rng_at(1, MR_RNG_TEST, i);
        for (int b = 0; b < 64; b++)
            ones[b] += a >> b & 1;
        flipped += __builtin_popcountll(a ^ mr_rng_at(1, MR_RNG_TEST, i ^ (1ull << (i % 64))));
        flipped += __builtin_popcountll(a ^ mr_rng_at(1ull ^ (1ull << (i % 64)), MR_RNG_TEST, i));
    }
    for (int b = 0; b < 64; b++)
        assert_true(abs((int)ones[b] - 2048) < 5 * 32); /* five standard deviations */
    assert_true(fabs(flipped / 8192 - 32) < 0.5);
}

static void rng_unit_below_and_normal_have_the_right_moments(void **state)
{
    (void)state;
    double sum = 0, n1 = 0, n2 = 0;
    unsigned bin[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t r = mr_rng_at(3, MR_RNG_TEST, i);
        double u = mr_rng_unit(r), z = mr_rng_normal(3, MR_RNG_TEST, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        bin[mr_rng_below(r, 7)]++;
        n1 += z;
        n2 += z * z;
    }
    assert_true(fabs(sum / 70000 - 0.5) < 0.006);
    for (int i = 0; i < 7; i++)
        assert_true(abs((int)bin[i] - 10000) < 500);
    assert_true(fabs(n1 / 70000) < 0.02 && fabs(n2 / 70000 - 1) < 0.03);
    assert_int_equal(mr_rng_below(UINT64_MAX, 5), 4);
    assert_true(mr_rng_unit(UINT64_MAX) < 1);
}

static void content_any_piece_equals_the_whole(void **state)
{
    (void)state;
    size_t n = 3 * MR_CONTENT_BLOCK + 777;
    uint8_t *whole = malloc(n), *piece = malloc(n);
    for (unsigned percent = 0; percent <= 100; percent += 30) {
        struct mr_content c = {.seed = 5, .compress_percent = percent};
        mr_content_fill(&c, 9, 0, whole, n);
        for (uint64_t i = 0; i < 60; i++) {
            size_t at = mr_rng_at(1, MR_RNG_TEST, i) % n, len = mr_rng_at(2, MR_RNG_TEST, i) % (n - at + 1);
            memset(piece, 0xEE, n);
            mr_content_fill(&c, 9, at, piece, len);
            assert_memory_equal(piece, whole + at, len);
            for (size_t k = len; k < MR_MIN(len + 64, n); k++)
                assert_int_equal(piece[k], 0xEE); /* nothing written past the end */
            assert_int_equal(mr_content_verify(&c, 9, at, piece, len), len);
        }
    }
    free(whole);
    free(piece);
}

static void content_verify_finds_the_first_bad_byte(void **state)
{
    (void)state;
    struct mr_content c = {.seed = 5};
    size_t n = 2 * MR_CONTENT_BLOCK;
    uint8_t *b = malloc(n);
    mr_content_fill(&c, 1, 100, b, n);
    for (size_t bad = n - 1; bad > 4000; bad -= 3999) {
        b[bad] ^= 1;
        assert_int_equal(mr_content_verify(&c, 1, 100, b, n), bad);
    }
    mr_content_fill(&c, 1, 100, b, n);
    assert_true(mr_content_verify(&c, 2, 100, b, n) < 8); /* another sample has other bytes */
    c.seed = 6;
    assert_true(mr_content_verify(&c, 1, 100, b, n) < 8);
    free(b);
}

static void content_compressibility_is_the_share_of_zero_lines(void **state)
{
    (void)state;
    uint8_t *b = malloc(MR_CONTENT_BLOCK);
    static const uint8_t zero[64];
    for (unsigned percent = 0; percent <= 100; percent++) {
        struct mr_content c = {.seed = 1, .compress_percent = percent};
        mr_content_fill(&c, 3, 0, b, MR_CONTENT_BLOCK);
        unsigned zeros = 0;
        for (size_t at = 0; at < MR_CONTENT_BLOCK; at += 64)
            zeros += !memcmp(b + at, zero, 64);
        assert_int_equal(zeros, MR_CONTENT_BLOCK / 64 * percent / 100);
    }
    free(b);
}

static void content_golden_checksum_never_changes(void **state)
{
    (void)state;
    assert_int_equal(MR_CONTENT_VERSION, 1);
    uint8_t *b = malloc(100000);
    struct mr_content c = {.seed = 123, .compress_percent = 20};
    mr_content_fill(&c, 77, 0, b, 100000);
    assert_int_equal(mr_crc32c(0, b, 100000), 0x257051afu);
    c.compress_percent = 0; /* made by other loops */
    mr_content_fill(&c, 77, 0, b, 100000);
    assert_int_equal(mr_crc32c(0, b, 100000), 0xb9708949u);
    free(b);
}

static void crc32c_known_vectors(void **state)
{
    (void)state;
    uint8_t b[32];
    assert_int_equal(mr_crc32c(0, "123456789", 9), 0xe3069283u);
    memset(b, 0, 32); /* RFC 3720, B.4 */
    assert_int_equal(mr_crc32c(0, b, 32), 0x8a9136aau);
    memset(b, 0xff, 32);
    assert_int_equal(mr_crc32c(0, b, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        b[i] = (uint8_t)i;
    assert_int_equal(mr_crc32c(0, b, 32), 0x46dd794eu);
    for (int i = 0; i < 32; i++)
        b[i] = (uint8_t)(31 - i);
    assert_int_equal(mr_crc32c(0, b, 32), 0x113fdb5cu);
    assert_int_equal(mr_crc32c(0, "", 0), 0);
    assert_int_equal(mr_crc32c_mask(0), 0xa282ead8u);
}

/* The bit-by-bit definition, slow and obvious. */
static uint32_t crc_by_bits(uint32_t poly, const uint8_t *p, size_t len)
{
    uint32_t crc = ~0u;
    while (len--) {
        crc ^= *p++;
        for (int i = 0; i < 8; i++)
            crc = crc & 1 ? crc >> 1 ^ poly : crc >> 1;
    }
    return ~crc;
}

static void crc32c_equals_the_definition_at_every_length_and_chains(void **state)
{
    (void)state;
    size_t n = 40000;
    uint8_t *b = malloc(n);
    struct mr_content c = {.seed = 1};
    mr_content_fill(&c, 0, 0, b, n);
    for (uint64_t i = 0; i < 120; i++) {
        size_t at = i % 9, len = i < 60 ? i : mr_rng_at(4, MR_RNG_TEST, i) % (n - 9);
        uint32_t want = crc_by_bits(0x82f63b78u, b + at, len);
        assert_int_equal(mr_crc32c(0, b + at, len), want);
        size_t cut = len / 3;
        assert_int_equal(mr_crc32c(mr_crc32c(0, b + at, cut), b + at + cut, len - cut), want);
        for (int way = MR_CRC32C_PLAIN; way <= MR_CRC32C_FOLDING; way++) {
            uint32_t crc = 0;
            if (mr_crc32c_by(way, &crc, b + at, len))
                assert_int_equal(crc, want);
        }
        uint32_t zip = 0;
        size_t folded = mr_crc32_fold(&zip, b + at, len);
        assert_true(folded == 0 || folded == len / 256 * 256);
        folded += mr_crc32_fold(&zip, b + at + folded, MR_MIN(n - at - folded, (size_t)512)); /* chains */
        assert_int_equal(zip, folded ? crc_by_bits(0xedb88320u, b + at, folded) : 0);
    }
    free(b);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void histogram_quantiles_are_within_one_part_in_32(void **state)
{
    (void)state;
    enum { N = 5000 };
    static uint64_t v[N];
    struct mr_histogram *h = malloc(sizeof(*h));
    for (unsigned range = 1; range < 64; range += 9) {
        mr_histogram_init(h);
        for (uint64_t i = 0; i < N; i++) {
            v[i] = mr_rng_at(range, MR_RNG_TEST, i) >> (64 - range) >> (i % 4);
            mr_histogram_add(h, v[i]);
        }
        qsort(v, N, sizeof v[0], compare_u64);
        assert_int_equal(h->count, N);
        assert_int_equal(mr_histogram_quantile(h, 0), v[0]);
        assert_int_equal(mr_histogram_quantile(h, 1), v[N - 1]);
        for (double q = 0.01; q < 1; q += 0.01) {
            double want = (double)v[(size_t)ceil(q * N) - 1], have = (double)mr_histogram_quantile(h, q);
            assert_true(fabs(have - want) <= want / 32);
            size_t below = (size_t)(q * (N - 1));
            want = (double)v[below] + ((double)v[below + 1] - (double)v[below]) * (q * (N - 1) - (double)below);
            assert_true(fabs(mr_histogram_between(h, q) - want) <= want / 32);
        }
    }
    free(h);
}

static void histogram_merge_equals_adding_everything_to_one(void **state)
{
    (void)state;
    struct mr_histogram *all = calloc(3, sizeof(*all)), *a = all + 1, *b = all + 2;
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t v = mr_rng_at(6, MR_RNG_TEST, i) >> (i % 64);
        mr_histogram_add(all, v);
        mr_histogram_add(i % 3 ? a : b, v);
    }
    mr_histogram_add_n(all, 7, 5);
    mr_histogram_add_n(b, 7, 5);
    mr_histogram_merge(a, b);
    assert_int_equal(a->count, all->count);
    assert_int_equal(a->min, all->min);
    assert_int_equal(a->max, all->max);
    assert_memory_equal(a->bucket, all->bucket, sizeof a->bucket);
    mr_histogram_init(b);
    mr_histogram_merge(a, b); /* merging nothing changes nothing */
    assert_int_equal(a->min, all->min);
    assert_int_equal(mr_histogram_quantile(b, 0.5), 0);
    mr_histogram_add(b, UINT64_MAX);
    assert_int_equal(mr_histogram_quantile(b, 0.5), UINT64_MAX);
    mr_histogram_init(b);
    assert_true(mr_histogram_between(b, 0.5) == 0);
    mr_histogram_add(b, 10);
    mr_histogram_add(b, 1000);
    assert_true(mr_histogram_between(b, 0.5) == 505 && mr_histogram_between(b, 0) == 10 &&
                mr_histogram_between(b, 1) == 1000);
    free(all);
}

static void clock_virtual_moves_only_by_sleeping_or_advancing(void **state)
{
    (void)state;
    struct mr_clock c;
    mr_clock_init_virtual(&c, 100);
    assert_int_equal(mr_clock_now_ns(&c), 100);
    uint64_t before = mr_now_ns();
    mr_clock_sleep_until(&c, 3600 * MR_NS_PER_S, NULL);
    assert_true(mr_now_ns() - before < 60 * MR_NS_PER_S);
    assert_int_equal(mr_clock_now_ns(&c), 3600 * MR_NS_PER_S);
    mr_clock_advance(&c, 5); /* never backwards */
    assert_int_equal(mr_clock_now_ns(&c), 3600 * MR_NS_PER_S);
}

static void clock_real_sleeps_to_the_deadline(void **state)
{
    (void)state;
    struct mr_clock *c = mr_clock_real();
    uint64_t deadline = mr_clock_now_ns(c) + 5 * MR_NS_PER_MS;
    mr_clock_sleep_until(c, deadline, NULL);
    assert_true(mr_clock_now_ns(c) >= deadline);
    uint64_t before = mr_now_ns();
    mr_clock_sleep_until(c, 1, NULL); /* the past: at once */
    mr_clock_advance(c, UINT64_MAX);  /* no effect */
    assert_true(mr_now_ns() - before < 60 * MR_NS_PER_S);
    assert_true(mr_wall_ns() > 1600000000ull * MR_NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rng_golden_values_never_change),
        cmocka_unit_test(rng_bits_are_balanced_and_avalanche),
        cmocka_unit_test(rng_unit_below_and_normal_have_the_right_moments),
        cmocka_unit_test(content_any_piece_equals_the_whole),
        cmocka_unit_test(content_verify_finds_the_first_bad_byte),
        cmocka_unit_test(content_compressibility_is_the_share_of_zero_lines),
        cmocka_unit_test(content_golden_checksum_never_changes),
        cmocka_unit_test(crc32c_known_vectors),
        cmocka_unit_test(crc32c_equals_the_definition_at_every_length_and_chains),
        cmocka_unit_test(histogram_quantiles_are_within_one_part_in_32),
        cmocka_unit_test(histogram_merge_equals_adding_everything_to_one),
        cmocka_unit_test(clock_virtual_moves_only_by_sleeping_or_advancing),
        cmocka_unit_test(clock_real_sleeps_to_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
