/* The cipher permutation: exact, invertible, fixed by version, and statistically like a random one. Thresholds are five
 * standard deviations of the statistic under the random hypothesis; seeds are fixed, so the test is deterministic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include "order/order_modes.h"

/* |z| of a chi-square sum against its degrees of freedom. */
static double z_of(double chi2, double dof)
{
    return fabs(chi2 - dof) / sqrt(2 * dof);
}

static double chi2_equal(const unsigned *count, unsigned cells, double expected)
{
    double sum = 0;
    for (unsigned i = 0; i < cells; i++)
        sum += (count[i] - expected) * (count[i] - expected) / expected;
    return sum;
}

static void cipher_is_a_bijection_and_inverse_undoes_it(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 5000; n += n < 300 ? 1 : 97) {
        struct mr_cipher c;
        mr_cipher_init(&c, n, n * 77);
        unsigned char *seen = calloc(n, 1);
        uint64_t *ids = calloc(n, sizeof(*ids));
        mr_cipher_fill(&c, 0, 1, ids, n);
        for (uint64_t x = 0; x < n; x++) {
            assert_true(ids[x] < n && !seen[ids[x]]++);
            assert_int_equal(mr_cipher_at(&c, x), ids[x]);
            assert_int_equal(mr_cipher_inverse(&c, ids[x]), x);
        }
        free(ids);
        free(seen);
    }
}

static void cipher_strided_fill_equals_single_values(void **state)
{
    (void)state;
    const uint64_t sizes[] = {1000003, 1ull << 40, (1ull << 62) - 12345};
    const uint64_t strides[] = {1, 2, 7, 1000, 1001, 65536, 4000000007ull};
    for (unsigned s = 0; s < MR_ARRAY_LEN(sizes); s++)
        for (unsigned t = 0; t < MR_ARRAY_LEN(strides); t++) {
            struct mr_cipher c;
            uint64_t ids[700], at = sizes[s] / 3;
            size_t n = (size_t)MR_MIN((uint64_t)700, (sizes[s] - 1 - at) / strides[t] + 1);
            mr_cipher_init(&c, sizes[s], 5);
            mr_cipher_fill(&c, at, strides[t], ids, n);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(ids[i], mr_cipher_at(&c, at + i * strides[t]));
                assert_int_equal(mr_cipher_inverse(&c, ids[i]), at + i * strides[t]);
            }
        }
}

/* Every (place, id) pair is equally frequent over keys. */
static void cipher_positions_are_uniform_over_keys(void **state)
{
    (void)state;
    const uint64_t sizes[] = {2, 3, 5, 10, 64, 100};
    for (unsigned s = 0; s < MR_ARRAY_LEN(sizes); s++) {
        uint64_t n = sizes[s], keys = 50 * n;
        unsigned *count = calloc(n * n, sizeof(*count));
        uint64_t ids[100];
        for (uint64_t k = 0; k < keys; k++) {
            struct mr_cipher c;
            mr_cipher_init(&c, n, mr_rng_at(1, MR_RNG_TEST, k));
            mr_cipher_fill(&c, 0, 1, ids, n);
            for (uint64_t x = 0; x < n; x++)
                count[x * n + ids[x]]++;
        }
        double dof = (double)((n - 1) * (n - 1));
        assert_true(z_of(chi2_equal(count, (unsigned)(n * n), (double)keys / (double)n), dof) < 5);
        free(count);
    }
}

/* n = 4: all 24 permutations, equally often. */
static void cipher_tiny_domains_reach_every_permutation(void **state)
{
    (void)state;
    unsigned count[256] = {0}, used[24], n_used = 0;
    for (uint64_t k = 0; k < 24000; k++) {
        struct mr_cipher c;
        uint64_t ids[4];
        mr_cipher_init(&c, 4, mr_rng_at(2, MR_RNG_TEST, k));
        mr_cipher_fill(&c, 0, 1, ids, 4);
        count[ids[0] | ids[1] << 2 | ids[2] << 4 | ids[3] << 6]++;
    }
    for (unsigned i = 0; i < 256; i++)
        if (count[i]) {
            assert_true(n_used < 24);
            used[n_used++] = count[i];
        }
    assert_int_equal(n_used, 24);
    assert_true(z_of(chi2_equal(used, 24, 1000), 23) < 5);
}

/* Distances between ids read one stride apart are uniform: no residue of the two-part structure. The strides include
 * the right part's size and its neighbours, where a weak network shows first. */
static void cipher_has_no_fixed_stride_artefacts(void **state)
{
    (void)state;
    const uint64_t sizes[] = {70000, 1000000, 1281167, 1000000000, 1ull << 40};
    for (unsigned s = 0; s < MR_ARRAY_LEN(sizes); s++) {
        struct mr_cipher c;
        mr_cipher_init(&c, sizes[s], 99);
        const uint64_t strides[] = {1, 2, 3, 8, 64, c.b - 1u, c.b, c.b + 1u, 2ull * c.b, c.a, 1024};
        for (unsigned t = 0; t < MR_ARRAY_LEN(strides); t++) {
            enum { CELLS = 128, DRAWS = 25600 };
            unsigned count[CELLS] = {0}, low[CELLS] = {0};
            for (uint64_t i = 0; i < DRAWS; i++) {
                uint64_t x = i * ((sizes[s] - strides[t]) / DRAWS); /* distinct: a repeated pair counts double */
                uint64_t a = mr_cipher_at(&c, x), b = mr_cipher_at(&c, x + strides[t]);
                uint64_t d = (b + sizes[s] - a) % sizes[s];
                count[(unsigned __int128)d * CELLS / sizes[s]]++;
                low[(a ^ b) % CELLS]++;
            }
            assert_true(z_of(chi2_equal(count, CELLS, DRAWS / CELLS), CELLS - 1) < 5);
            assert_true(z_of(chi2_equal(low, CELLS, DRAWS / CELLS), CELLS - 1) < 5);
        }
    }
}

/* Two keys that differ in one bit, or consecutive epochs: places agree as seldom as in two random permutations. */
static void cipher_avalanches_over_seed_and_epoch(void **state)
{
    (void)state;
    enum { N = 20000 };
    static uint64_t a[N], b[N];
    uint64_t same = 0, pairs = 0;
    for (int bit = -8; bit < 64; bit++) {
        struct mr_order_params p = {
            .mode = MR_ORDER_CIPHER, .samples = N, .seed = 1234, .world = 1, .shuffle_each_epoch = true};
        struct mr_order_params q = p;
        if (bit >= 0)
            q.seed ^= 1ull << bit;
        else
            q.epoch = (uint64_t)(bit + 9);
        struct mr_order *o, *r;
        assert_int_equal(mr_order_create(&p, &o, NULL), 0);
        assert_int_equal(mr_order_create(&q, &r, NULL), 0);
        mr_order_get(o, 0, a, N);
        mr_order_get(r, 0, b, N);
        double ab = 0;
        for (unsigned i = 0; i < N; i++) {
            same += a[i] == b[i];
            ab += ((double)a[i] / N - 0.5) * ((double)b[i] / N - 0.5) * 12;
        }
        assert_true(fabs(ab / sqrt(N)) < 5); /* no correlation */
        pairs++;
        mr_order_free(o);
        mr_order_free(r);
    }
    assert_true(fabs((double)same - (double)pairs) < 5 * sqrt((double)pairs)); /* one expected per pair */
}

/* Ids of version 1, fixed: a resumed run after an upgrade must see the same. */
static void cipher_golden_ids_never_change(void **state)
{
    (void)state;
    assert_int_equal(MR_ORDER_VERSION, 1);
    const enum mr_order_mode modes[] = {MR_ORDER_CIPHER, MR_ORDER_SHARD, MR_ORDER_BUFFER, MR_ORDER_FILE};
    const uint64_t want[] = {0x7ef9945607bb30c2ull, 0x87b1ff2187083983ull, 0xc34970ab0f716d4dull, 0x927dcae9686247dull};
    for (unsigned m = 0; m < 4; m++) {
        struct mr_order_params p = {.mode = modes[m],
                                    .samples = 1000003,
                                    .seed = 42,
                                    .epoch = 3,
                                    .rank = 2,
                                    .world = 5,
                                    .shuffle_each_epoch = true,
                                    .window = 1000,
                                    .samples_per_file = 100};
        struct mr_order *o;
        assert_int_equal(mr_order_create(&p, &o, NULL), 0);
        uint64_t ids[1000], hash = 0xcbf29ce484222325ull;
        for (uint64_t k = 0; mr_order_get(o, k, ids, 1000) == 1000; k += 1000)
            for (int i = 0; i < 1000; i++)
                hash = (hash ^ ids[i]) * 0x100000001b3ull;
        assert_int_equal(hash, want[m]);
        mr_order_free(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cipher_is_a_bijection_and_inverse_undoes_it),
        cmocka_unit_test(cipher_strided_fill_equals_single_values),
        cmocka_unit_test(cipher_positions_are_uniform_over_keys),
        cmocka_unit_test(cipher_tiny_domains_reach_every_permutation),
        cmocka_unit_test(cipher_has_no_fixed_stride_artefacts),
        cmocka_unit_test(cipher_avalanches_over_seed_and_epoch),
        cmocka_unit_test(cipher_golden_ids_never_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
