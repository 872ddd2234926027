/* The five promises of the access order (see src/order/order.c), in every mode, over many sizes and worlds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include <millrace/order.h>

static const enum mr_order_mode all_modes[] = {MR_ORDER_SEQUENTIAL, MR_ORDER_TORCH,  MR_ORDER_CIPHER,
                                               MR_ORDER_SHARD,      MR_ORDER_BUFFER, MR_ORDER_FILE};
static const uint64_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 31, 64, 100, 101, 257, 1000, 2311, 4096};
static const uint32_t worlds[] = {1, 2, 3, 7, 16};

static bool is_local(enum mr_order_mode m)
{
    return m >= MR_ORDER_SHARD;
}

static struct mr_order_params params(enum mr_order_mode mode, uint64_t n, uint32_t rank, uint32_t world, bool drop)
{
    return (struct mr_order_params){.mode = mode,
                                    .samples = n,
                                    .seed = 11,
                                    .rank = rank,
                                    .world = world,
                                    .drop_last = drop,
                                    .shuffle_each_epoch = true,
                                    .window = 10,
                                    .samples_per_file = 7};
}

static struct mr_order *make(struct mr_order_params p)
{
    struct mr_order *o = NULL;
    struct mr_error e = {0};
    if (mr_order_create(&p, &o, &e))
        fail_msg("%s", e.message);
    return o;
}

/* All ids of a rank, read in uneven pieces; freed by the caller. */
static uint64_t *ids_of(const struct mr_order *o, uint32_t rank, uint64_t *len)
{
    *len = mr_order_rank_len(o);
    uint64_t *ids = calloc(*len + 1, sizeof(*ids)), at = 0, piece = 1;
    while (at < *len) {
        size_t n = mr_order_get_for(o, rank, at, ids + at, (size_t)MR_MIN(piece, *len - at));
        assert_int_not_equal(n, 0);
        at += n;
        piece = piece * 3 + 1;
    }
    uint64_t beyond;
    assert_int_equal(mr_order_get_for(o, rank, *len, &beyond, 1), 0);
    return ids;
}

/* The global sequence: rank r's k-th at k * world + r. */
static uint64_t *sequence(const struct mr_order *o, uint32_t world, uint64_t *total)
{
    uint64_t len, *all = calloc(mr_order_total(o) + 1, sizeof(*all));
    for (uint32_t r = 0; r < world; r++) {
        uint64_t *ids = ids_of(o, r, &len);
        for (uint64_t k = 0; k < len; k++)
            all[k * world + r] = ids[k];
        free(ids);
    }
    *total = mr_order_total(o);
    return all;
}

static void check_union(enum mr_order_mode mode, uint64_t n, uint32_t world, bool drop)
{
    struct mr_order *o = make(params(mode, n, 0, world, drop));
    uint64_t total, *all = sequence(o, world, &total), missing = 0, repeats = 0;
    unsigned char *seen = calloc(n, 1);
    assert_int_equal(total, mr_order_rank_len(o) * world);
    assert_int_equal(total, drop ? n / world * world : (n + world - 1) / world * world);
    for (uint64_t i = 0; i < total; i++) {
        assert_true(all[i] < n);
        repeats += seen[all[i]];
        seen[all[i]] = 1;
    }
    for (uint64_t i = 0; i < n; i++)
        missing += !seen[i];
    assert_int_equal(missing, drop ? n % world : 0);
    assert_int_equal(repeats, drop ? 0 : total - n);
    free(seen);
    free(all);
    mr_order_free(o);
}

static void order_union_over_ranks_is_permutation(void **state)
{
    (void)state;
    for (unsigned m = 0; m < MR_ARRAY_LEN(all_modes); m++)
        for (unsigned s = 0; s < MR_ARRAY_LEN(sizes); s++)
            for (unsigned w = 0; w < MR_ARRAY_LEN(worlds); w++)
                for (int drop = 0; drop < 2; drop++)
                    check_union(all_modes[m], sizes[s], worlds[w], drop);
}

static void order_every_rank_computes_the_same_plan(void **state)
{
    (void)state;
    for (unsigned m = 0; m < MR_ARRAY_LEN(all_modes); m++)
        for (unsigned w = 0; w < MR_ARRAY_LEN(worlds); w++) {
            struct mr_order *zero = make(params(all_modes[m], 1003, 0, worlds[w], false));
            assert_int_equal(mr_order_set_epoch(zero, 3, NULL), 0);
            for (uint32_t r = 0; r < worlds[w]; r++) {
                struct mr_order_params p = params(all_modes[m], 1003, r, worlds[w], false);
                p.epoch = 3; /* create prepares the same epoch as set_epoch */
                struct mr_order *own = make(p);
                uint64_t len, got[1003], *want = ids_of(zero, r, &len);
                assert_int_equal(mr_order_get(own, 0, got, 1003), len);
                assert_memory_equal(got, want, len * sizeof(*want));
                free(want);
                mr_order_free(own);
            }
            mr_order_free(zero);
        }
}

/* In global modes g does not depend on the world at all. */
static void order_global_sequence_is_the_same_for_every_world(void **state)
{
    (void)state;
    for (unsigned m = 0; m < 3; m++)
        for (unsigned s = 0; s < MR_ARRAY_LEN(sizes); s++) {
            struct mr_order *one = make(params(all_modes[m], sizes[s], 0, 1, false));
            uint64_t n, *want = sequence(one, 1, &n);
            for (unsigned w = 1; w < MR_ARRAY_LEN(worlds); w++) {
                struct mr_order *o = make(params(all_modes[m], sizes[s], 0, worlds[w], false));
                uint64_t total, *have = sequence(o, worlds[w], &total);
                for (uint64_t i = 0; i < total; i++)
                    assert_int_equal(have[i], want[i % n]);
                free(have);
                mr_order_free(o);
            }
            free(want);
            mr_order_free(one);
        }
}

static void order_resume_equals_continuing_with_changing_worlds(void **state)
{
    (void)state;
    for (unsigned m = 0; m < 3; m++)
        for (uint64_t trial = 0; trial < 60; trial++) {
            uint64_t n = 1 + mr_rng_at(1, MR_RNG_TEST, trial) % 500, pos = 0, hop = 0;
            struct mr_order *one = make(params(all_modes[m], n, 0, 1, false));
            mr_order_set_epoch(one, trial, NULL);
            uint64_t total, *want = sequence(one, 1, &total);
            while (pos < n) { /* every leg with another world, a random number of steps */
                uint32_t world = worlds[mr_rng_at(2, MR_RNG_TEST, trial * 100 + hop) % 5];
                struct mr_order *o = make(params(all_modes[m], n, world - 1, world, false));
                mr_order_set_epoch(o, trial, NULL);
                assert_int_equal(mr_order_seek(o, pos, NULL), 0);
                uint64_t left, *have = sequence(o, world, &left);
                assert_int_equal(left, (n - pos + world - 1) / world * world);
                for (uint64_t i = 0; i < left; i++)
                    assert_int_equal(have[i], want[(pos + i) % n]);
                pos += (1 + mr_rng_at(3, MR_RNG_TEST, trial * 100 + hop++) % (left / world)) * world;
                free(have);
                mr_order_free(o);
            }
            free(want);
            mr_order_free(one);
        }
}

static void order_resume_equals_continuing_at_every_split(void **state)
{
    (void)state;
    for (unsigned m = 0; m < MR_ARRAY_LEN(all_modes); m++)
        for (unsigned w = 0; w < MR_ARRAY_LEN(worlds); w++)
            for (int drop = 0; drop < 2; drop++) {
                uint32_t world = worlds[w];
                struct mr_order *o = make(params(all_modes[m], 130, 0, world, drop));
                uint64_t total, *want = sequence(o, world, &total);
                for (uint64_t pos = 0; pos <= total; pos += world) {
                    assert_int_equal(mr_order_seek(o, pos, NULL), 0);
                    uint64_t left, *have = sequence(o, world, &left);
                    assert_int_equal(left, total - pos);
                    assert_memory_equal(have, want + pos, left * sizeof(*want));
                    free(have);
                }
                mr_order_set_epoch(o, 0, NULL); /* back to the start */
                assert_int_equal(mr_order_total(o), total);
                free(want);
                mr_order_free(o);
            }
}

static void order_epochs_and_seeds_differ_unless_told_to_repeat(void **state)
{
    (void)state;
    for (unsigned m = 1; m < MR_ARRAY_LEN(all_modes); m++)
        for (int each = 0; each < 2; each++) {
            struct mr_order_params p = params(all_modes[m], 1000, 0, 2, false);
            p.shuffle_each_epoch = each;
            struct mr_order *o = make(p);
            uint64_t total, *a = sequence(o, 2, &total);
            assert_int_equal(mr_order_set_epoch(o, 1, NULL), 0);
            uint64_t *b = sequence(o, 2, &total);
            uint64_t same = 0;
            for (uint64_t i = 0; i < total; i++)
                same += a[i] == b[i];
            assert_true(each ? same < total / 4 : same == total);
            mr_order_free(o);
            p.seed++; /* another seed, same epoch; torch adds seed and epoch, so compare with epoch 0 */
            o = make(p);
            uint64_t *c = sequence(o, 2, &total);
            assert_memory_not_equal(a, c, total * sizeof(*a));
            free(a);
            free(b);
            free(c);
            mr_order_free(o);
        }
}

static void order_file_mode_keeps_samples_of_a_file_in_sequence(void **state)
{
    (void)state;
    uint64_t first[41] = {0}; /* uneven files, some empty */
    for (uint64_t f = 0; f < 40; f++)
        first[f + 1] = first[f] + mr_rng_at(5, MR_RNG_TEST, f) % 30 / 2 * (f % 5 != 0);
    uint64_t n = first[40];
    for (unsigned w = 0; w < MR_ARRAY_LEN(worlds); w++)
        for (int table = 0; table < 2; table++) {
            uint32_t world = worlds[w];
            struct mr_order_params p = params(MR_ORDER_FILE, n, 0, world, true);
            p.file_first = table ? first : NULL;
            p.n_files = 40;
            struct mr_order *o = make(p);
            uint64_t jumps = 0, files = table ? 40 : (n + 6) / 7;
            unsigned char *seen = calloc(n, 1);
            for (uint32_t r = 0; r < world; r++) {
                uint64_t len, *ids = ids_of(o, r, &len);
                for (uint64_t k = 0; k < len; k++) {
                    seen[ids[k]]++;
                    jumps += k && ids[k] != ids[k - 1] + 1;
                }
                free(ids);
            }
            for (uint64_t i = 0; i < n; i++)
                assert_true(seen[i] <= 1);
            assert_true(jumps <= files + world); /* a jump only where a file or a slice ends */
            assert_true(jumps + world > files / 3);
            free(seen);
            mr_order_free(o);
        }
}

static void order_buffer_mode_reads_at_most_a_window_ahead(void **state)
{
    (void)state;
    struct mr_order_params p = params(MR_ORDER_BUFFER, 5000, 1, 3, false);
    p.window = 50;
    struct mr_order *o = make(p);
    uint64_t len, *ids = ids_of(o, 1, &len), moved = 0;
    for (uint64_t k = 0; k < len; k++) {
        uint64_t local = ids[k] - 5000 / 3;
        if (k + 1 < len) /* the padded last one repeats the head */
            assert_true(local < k + 50);
        moved += local != k;
    }
    assert_true(moved > len * 9 / 10);
    free(ids);
    mr_order_free(o);
    p.window = 1; /* no buffer: the stream as it is */
    o = make(p);
    ids = ids_of(o, 1, &len);
    for (uint64_t k = 0; k + 1 < len; k++)
        assert_int_equal(ids[k], 5000 / 3 + k);
    free(ids);
    mr_order_free(o);
}

static void order_huge_sizes_do_not_overflow(void **state)
{
    (void)state;
    const enum mr_order_mode o1[] = {MR_ORDER_SEQUENTIAL, MR_ORDER_CIPHER, MR_ORDER_SHARD, MR_ORDER_FILE,
                                     MR_ORDER_AUTO};
    const uint64_t huge[] = {1000000000000ull, 1000000000039ull, (1ull << 62) - 1, 1ull << 62};
    for (unsigned m = 0; m < MR_ARRAY_LEN(o1); m++)
        for (unsigned s = 0; s < MR_ARRAY_LEN(huge); s++)
            for (int drop = 0; drop < 2; drop++) {
                struct mr_order_params p = params(o1[m], huge[s], 99999, 100000, drop);
                struct mr_order *o = make(p);
                uint64_t len = mr_order_rank_len(o), ids[600];
                assert_int_equal(len, huge[s] / 100000 + (!drop && huge[s] % 100000));
                assert_int_equal(mr_order_get(o, len - 300, ids, 600), 300);
                for (int i = 0; i < 300; i++)
                    assert_true(ids[i] < huge[s]);
                uint64_t pos = len / 2 * 100000, again[10];
                mr_order_get(o, len / 2, ids, 10);
                assert_int_equal(mr_order_seek(o, pos, NULL), 0);
                assert_int_equal(mr_order_get(o, 0, again, 10), 10);
                assert_memory_equal(ids, again, sizeof again);
                mr_order_free(o);
            }
}

static void order_impossible_parameters_are_refused(void **state)
{
    (void)state;
    struct mr_order *o = NULL;
    struct mr_error e;
    struct mr_order_params good = params(MR_ORDER_CIPHER, 10, 0, 1, false), p;
    const uint64_t bad_files[] = {0, 5, 4, 10}, short_files[] = {0, 5, 9};
#define REFUSED(change)                                                                                                \
    p = good;                                                                                                          \
    change;                                                                                                            \
    assert_int_equal(mr_order_create(&p, &o, &e), MR_E_USAGE);                                                         \
    assert_null(o)
    REFUSED(p.samples = 0);
    REFUSED(p.samples = MR_ORDER_MAX_SAMPLES + 1);
    REFUSED(p.world = 0);
    REFUSED(p.rank = 1);
    REFUSED(p.mode = (enum mr_order_mode)99);
    REFUSED(p.mode = MR_ORDER_BUFFER; p.window = 0);
    REFUSED(p.mode = MR_ORDER_FILE; p.samples_per_file = 0);
    REFUSED(p.mode = MR_ORDER_FILE; p.file_first = bad_files; p.n_files = 3);
    REFUSED(p.mode = MR_ORDER_FILE; p.file_first = short_files; p.n_files = 2);
    p = params(MR_ORDER_TORCH, MR_ORDER_MAX_SAMPLES, 0, 1, false);
    assert_int_equal(mr_order_create(&p, &o, &e), -12); /* ENOMEM, with a way out */
    assert_non_null(strstr(e.hint, "cipher"));
    mr_order_free(NULL);
}

static void order_seek_checks_the_position(void **state)
{
    (void)state;
    struct mr_error e;
    struct mr_order *o = make(params(MR_ORDER_CIPHER, 10, 0, 3, false));
    assert_int_equal(mr_order_seek(o, 12, &e), 0); /* the padded end */
    assert_int_equal(mr_order_rank_len(o), 0);
    assert_int_equal(mr_order_seek(o, 13, &e), MR_E_USAGE);
    assert_int_equal(mr_order_seek(o, 5, &e), 0);
    mr_order_free(o);
    o = make(params(MR_ORDER_SHARD, 10, 0, 3, false));
    assert_int_equal(mr_order_seek(o, 5, &e), MR_E_USAGE);
    assert_non_null(strstr(e.message, "world size"));
    assert_int_equal(mr_order_seek(o, 6, &e), 0);
    mr_order_free(o);
}

static void order_saved_state_continues_and_refuses_strangers(void **state)
{
    (void)state;
    struct mr_error e;
    char text[MR_ORDER_STATE_LEN], again[MR_ORDER_STATE_LEN];
    for (unsigned m = 0; m < MR_ARRAY_LEN(all_modes); m++) {
        struct mr_order *o = make(params(all_modes[m], 1000, 1, 4, false));
        uint64_t want[200], have[200];
        assert_int_equal(mr_order_set_epoch(o, 6, NULL), 0);
        assert_int_equal(mr_order_get(o, 50, want, 200), 200);
        assert_int_equal(mr_order_save(o, 50, text), 0);
        struct mr_order *p = make(params(all_modes[m], 1000, 1, 4, false));
        assert_int_equal(mr_order_restore(p, text, &e), 0);
        assert_int_equal(mr_order_epoch(p), 6);
        assert_int_equal(mr_order_get(p, 0, have, 200), 200);
        assert_memory_equal(have, want, sizeof want);
        mr_order_save(p, 0, again);
        assert_string_equal(text, again);
        mr_order_free(p);
        p = make(params(all_modes[m], 1000, 1, 8, false)); /* another world */
        assert_int_equal(mr_order_restore(p, text, &e), is_local(all_modes[m]) ? MR_E_USAGE : 0);
        if (is_local(all_modes[m]))
            assert_non_null(strstr(e.message, "world is 4, this run's is 8"));
        mr_order_free(p);
        struct mr_order_params q = params(all_modes[m], 1000, 1, 4, false);
        q.seed = 99;
        p = make(q);
        assert_int_equal(mr_order_restore(p, text, &e), MR_E_USAGE);
        assert_non_null(strstr(e.message, "seed"));
        mr_order_free(p);
        p = make(params(all_modes[m], 1001, 1, 4, false));
        assert_int_equal(mr_order_restore(p, text, &e), MR_E_USAGE);
        mr_order_free(p);
        mr_order_free(o);
    }
}

static void order_damaged_states_are_refused(void **state)
{
    (void)state;
    struct mr_error e;
    char text[MR_ORDER_STATE_LEN], bad[MR_ORDER_STATE_LEN];
    struct mr_order *o = make(params(MR_ORDER_CIPHER, 1000, 0, 1, false));
    mr_order_save(o, 7, text);
    size_t len = strlen(text);
    for (size_t cut = 0; cut + 1 < len; cut++) { /* every truncation that is not a shorter number */
        memcpy(bad, text, cut);
        bad[cut] = '\0';
        assert_int_equal(mr_order_restore(o, bad, &e), MR_E_FORMAT);
    }
    assert_int_equal(mr_order_restore(o, "millrace-order mode=averyveryverylongname version=1", &e), MR_E_FORMAT);
    assert_int_equal(mr_order_restore(o, "", &e), MR_E_FORMAT);
    assert_int_equal(mr_order_restore(o, text, &e), 0);
    assert_int_equal(mr_order_rank_len(o), 993);
    mr_order_free(o);
}

static void order_mode_names_parse_back(void **state)
{
    (void)state;
    enum mr_order_mode m;
    uint64_t window = 5;
    struct mr_error e = {0};
    for (int i = MR_ORDER_AUTO; i <= MR_ORDER_FILE; i++) {
        assert_int_equal(mr_order_mode_parse(mr_order_mode_name((enum mr_order_mode)i), &m, &window, &e), 0);
        assert_int_equal(m, i);
    }
    assert_int_equal(window, 5);
    assert_int_equal(mr_order_mode_parse("buffer(1024)", &m, &window, &e), 0);
    assert_int_equal(window, 1024);
    static const char *const bad[] = {"",         "Torch",      "buffer(0)", "buffer(-1)",
                                      "buffer(1", "buffer(1)x", "buffer()",  "buffer(99999999999999999999)"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(bad); i++)
        assert_int_equal(mr_order_mode_parse(bad[i], &m, &window, &e), MR_E_USAGE);
    assert_int_equal(window, 1024);
    mr_order_mode_parse("nosuch", &m, &window, &e);
    assert_non_null(strstr(e.hint, "cipher"));
    assert_int_equal(mr_order_mode_parse("nosuch", &m, NULL, NULL), MR_E_USAGE);
}

/* places: without padding the place of the k-th sample of rank r is k * world + r; a padded position repeats a sample
 * whose place is elsewhere. Every sample has a place of its own. */
static void check_places(enum mr_order_mode mode, uint64_t n, uint32_t world, bool table)
{
    uint64_t first[] = {0, n / 3, n / 3, n - n / 4, n};
    struct mr_order_params p = params(mode, n, 0, world, false);
    if (table) {
        p.file_first = first;
        p.n_files = MR_ARRAY_LEN(first) - 1;
    }
    struct mr_order *o = make(p);
    uint64_t *ids = calloc(n, sizeof(*ids)), *places = calloc(n, sizeof(*places));
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        assert_int_equal(mr_order_set_epoch(o, epoch, NULL), 0);
        assert_int_equal(mr_order_index(o, NULL), 0);
        uint64_t total, *all = sequence(o, world, &total);
        unsigned char *taken = calloc(total + world, 1);
        for (uint64_t i = 0; i < n; i++)
            ids[i] = (i * 7 + 3) % n == 0 || n % 7 == 0 ? i : (i * 7 + 3) % n;
        mr_order_places(o, ids, places, n);
        for (uint64_t i = 0; i < n; i++) {
            assert_true(places[i] < total && all[places[i]] == ids[i]);
            uint64_t one;
            mr_order_places(o, &ids[i], &one, 1); /* alone as in a block */
            assert_int_equal(one, places[i]);
        }
        for (uint64_t id = 0; id < n; id++) {
            uint64_t at;
            mr_order_places(o, &id, &at, 1);
            assert_false(taken[at]);
            taken[at] = 1;
        }
        free(all);
        free(taken);
    }
    free(ids);
    free(places);
    mr_order_free(o);
}

static void order_places_are_the_inverse(void **state)
{
    (void)state;
    for (unsigned m = 0; m < MR_ARRAY_LEN(all_modes); m++)
        for (unsigned s = 0; s < MR_ARRAY_LEN(sizes); s++)
            for (unsigned w = 0; w < MR_ARRAY_LEN(worlds); w++) {
                if (is_local(all_modes[m]) && sizes[s] < worlds[w])
                    continue; /* slices can be empty, and their ranks read a neighbour's sample */
                check_places(all_modes[m], sizes[s], worlds[w], false);
                if (all_modes[m] == MR_ORDER_FILE)
                    check_places(all_modes[m], sizes[s], worlds[w], true);
            }
}

static void order_places_at_the_largest_sizes(void **state)
{
    (void)state;
    static const uint64_t many[] = {1000000007, (uint64_t)1 << 40, ((uint64_t)1 << 52) - 1, ((uint64_t)1 << 52) + 7,
                                    MR_ORDER_MAX_SAMPLES};
    for (unsigned m = 0; m < MR_ARRAY_LEN(many); m++) {
        struct mr_order *o = make(params(MR_ORDER_CIPHER, many[m], 0, 1, true));
        uint64_t ids[600], places[600], back;
        for (unsigned i = 0; i < 600; i++)
            ids[i] = i < 3 ? many[m] - 1 - i : mr_rng_below(mr_rng_at(5, MR_RNG_TEST, i), many[m]);
        mr_order_places(o, ids, places, 600);
        for (unsigned i = 0; i < 600; i++) {
            assert_int_equal(mr_order_get(o, places[i], &back, 1), 1);
            assert_true(back == ids[i]);
        }
        mr_order_free(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_union_over_ranks_is_permutation),
        cmocka_unit_test(order_every_rank_computes_the_same_plan),
        cmocka_unit_test(order_global_sequence_is_the_same_for_every_world),
        cmocka_unit_test(order_resume_equals_continuing_with_changing_worlds),
        cmocka_unit_test(order_resume_equals_continuing_at_every_split),
        cmocka_unit_test(order_epochs_and_seeds_differ_unless_told_to_repeat),
        cmocka_unit_test(order_file_mode_keeps_samples_of_a_file_in_sequence),
        cmocka_unit_test(order_buffer_mode_reads_at_most_a_window_ahead),
        cmocka_unit_test(order_huge_sizes_do_not_overflow),
        cmocka_unit_test(order_impossible_parameters_are_refused),
        cmocka_unit_test(order_seek_checks_the_position),
        cmocka_unit_test(order_saved_state_continues_and_refuses_strangers),
        cmocka_unit_test(order_damaged_states_are_refused),
        cmocka_unit_test(order_places_are_the_inverse),
        cmocka_unit_test(order_places_at_the_largest_sizes),
        cmocka_unit_test(order_mode_names_parse_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
