/* Properties of the text form of tiers: what it says is what comes out, what cannot be is refused with the reason, and
 * what is left open fits the machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include "tier/tier_spec.h"

static const struct mr_tier_need small = {.set_bytes = 243 * MR_MIB, .largest = 81000, .local_ranks = 2};

static void a_specification_means_what_it_says_in_any_order(void **state)
{
    (void)state;
    static const char *const texts[] = {"ram=2GiB,ssd=/nvme/a:b:100GiB,staging=64MiB,readers=3,ssd=rel/:1T",
                                        "staging=64MiB,ssd=/nvme/a:b:100GiB,ssd=rel:1T,ram=2G,readers=3"};
    for (unsigned k = 0; k < MR_ARRAY_LEN(texts); k++) {
        struct mr_tier_spec s;
        assert_int_equal(mr_tier_spec_read(texts[k], &s, NULL), 0);
        assert_int_equal(s.ram, 2 * MR_GIB);
        assert_int_equal(s.staging, 64 * MR_MIB);
        assert_int_equal(s.n_ssds, 2);
        assert_int_equal(s.readers, 3);
        assert_string_equal(s.ssd[0].folder, "/nvme/a:b");
        assert_int_equal(s.ssd[0].capacity, 100 * MR_GIB);
        assert_string_equal(s.ssd[1].folder, "rel");
        assert_int_equal(s.ssd[1].capacity, 1024 * MR_GIB);
        mr_tier_spec_done(&s);
    }
}

static void what_cannot_be_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"rma=2GiB", "is not one of"},
        {"ram", "has no size"},
        {"ram=", "has no size"},
        {"ram=much", "does not end with a size"},
        {"ram=0", "size 0"},
        {"ram=1G,ram=1G", "twice"},
        {"readers=2,readers=2", "twice"},
        {"readers=0", "from 1 to 32"},
        {"readers=33", "from 1 to 32"},
        {"readers=-1", "from 1 to 32"},
        {"readers=4x", "from 1 to 32"},
        {"readers", "from 1 to 32"},
        {"ram=auto,ram=1G", "twice"},
        {"staging=1G,staging=2G", "twice"},
        {"ssd=/nvme", "has no size"},
        {"ssd=/nvme:", "has no size"},
        {"ssd=:1G", "names no folder"},
        {"ssd=/a:0", "size 0"},
        {"ssd=/a:1G,ssd=/a/:2G", "names a folder twice"},
        {"ssd=a:1G,ssd=b:1G,ssd=c:1G,ssd=d:1G,ssd=e:1G,ssd=f:1G,ssd=g:1G", "too many"},
        {"ram=1G,", "is not one of"},
        {",", "is not one of"},
        {"ram=99999999999TiB", "out of range"},
        {"ram=65536TiB", "out of range"},
        {"ram=-1", "ram=-1"},
        {"auto,ram=1G", "is not one of"},
    };
    for (unsigned k = 0; k < MR_ARRAY_LEN(cases); k++) {
        struct mr_tier_spec s;
        struct mr_error err = {0};
        assert_int_equal(mr_tier_spec_read(cases[k].text, &s, &err), MR_E_CONFIG);
        if (!strstr(err.message, cases[k].why))
            fail_msg("'%s' gave: %s", cases[k].text, err.message);
        assert_true(*err.hint);
    }
}

static void what_is_left_open_fits_the_machine_and_the_set(void **state)
{
    (void)state;
    struct mr_error err;
    static const char *const open[] = {NULL, "", "auto", "ram=auto"};
    for (uint64_t i = 0; i < 4000; i++) {
        uint64_t bits = mr_rng_at(1, MR_RNG_TEST, i);
        struct mr_machine_memory m = {.total_bytes = MR_GIB << (bits % 9)};
        m.free_bytes = m.total_bytes / 100 * (bits >> 8 & 63);
        struct mr_tier_need need = {.set_bytes = (uint64_t)1 << (20 + (bits >> 16) % 20),
                                    .largest = (uint64_t)1 << (10 + (bits >> 24) % 18),
                                    .local_ranks = 1 + (bits >> 32) % 8};
        struct mr_tier_spec s;
        assert_int_equal(mr_tier_spec_read(open[i % 4], &s, &err), 0);
        if (mr_tier_spec_choose(&s, &need, m, &err) != 0) {
            assert_int_equal(err.code, MR_E_CONFIG); /* not even staging fits */
            assert_true(s.ram == 0);
            continue;
        }
        uint64_t margin = MR_MAX(m.total_bytes / 10, MR_GIB);
        assert_true(s.ram <= need.set_bytes && s.ram_chosen && s.staging_chosen);
        assert_true(s.staging >= 2 * need.local_ranks * need.largest);
        if (s.ram > 0)
            assert_true(mr_tier_spec_memory(&s, &need) <= m.free_bytes - margin);
        struct mr_tier_spec more = {.ram = s.ram + s.ram / 50 + MR_MIB, .staging = s.staging};
        if (s.ram > 0 && s.ram < need.set_bytes) /* and not much less than fits */
            assert_true(mr_tier_spec_memory(&more, &need) > m.free_bytes - margin);
    }
}

static void more_than_there_is_and_too_little_are_refused(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_tier_spec s;
    struct mr_tier_need large = {.set_bytes = 1024 * MR_GIB, .largest = 200 * MR_MIB, .local_ranks = 8};
    struct mr_machine_memory m = {.total_bytes = 64 * MR_GIB, .free_bytes = 32 * MR_GIB};
    assert_int_equal(mr_tier_spec_read("ram=40GiB", &s, &err), 0);
    assert_int_equal(mr_tier_spec_choose(&s, &large, m, &err), MR_E_CONFIG);
    assert_non_null(strstr(err.message, "32.0 GiB free"));
    assert_int_equal(mr_tier_spec_read("ram=1GiB,staging=1GiB", &s, &err), 0);
    assert_int_equal(mr_tier_spec_choose(&s, &large, m, &err), MR_E_CONFIG);
    assert_non_null(strstr(err.message, "too little"));
    static const char *const slips[] = {"ram=80", "ram=1GiB,ssd=/nvme:100"};
    for (unsigned k = 0; k < MR_ARRAY_LEN(slips); k++) {
        assert_int_equal(mr_tier_spec_read(slips[k], &s, &err), 0);
        assert_int_equal(mr_tier_spec_choose(&s, &small, m, &err), MR_E_CONFIG);
        assert_non_null(strstr(err.message, "holds no sample: the largest has 81,000 bytes"));
        assert_string_equal(err.hint, k == 0 ? "did you mean 80MiB?" : "did you mean 100MiB?");
        mr_tier_spec_done(&s);
    }
    /* RAM beyond the set is not taken from others. */
    assert_int_equal(mr_tier_spec_read("ram=40GiB", &s, &err), 0);
    assert_int_equal(mr_tier_spec_choose(&s, &small, m, &err), 0);
    assert_int_equal(s.ram, small.set_bytes);
    large.largest = (uint64_t)1 << 50;
    assert_int_equal(mr_tier_spec_choose(&s, &large, m, &err), MR_E_LIMIT);
}

static void the_choice_is_told(void **state)
{
    (void)state;
    struct mr_tier_spec s;
    char text[200];
    struct mr_error err;
    assert_int_equal(mr_tier_spec_parse("ssd=/nvme/c:1GiB", &small, &s, &err), 0);
    mr_tier_spec_text(&s, text, sizeof text);
    assert_string_equal(text, "ssd /nvme/c 1.00 GiB, staging 64.0 MiB (chosen)");
    mr_tier_spec_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_specification_means_what_it_says_in_any_order),
        cmocka_unit_test(what_cannot_be_is_refused_with_the_reason),
        cmocka_unit_test(what_is_left_open_fits_the_machine_and_the_set),
        cmocka_unit_test(more_than_there_is_and_too_little_are_refused),
        cmocka_unit_test(the_choice_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
