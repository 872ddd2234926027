/* Option values: every type reads back what it prints; bad values are refused with the bounds; argv and environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include "conf/option.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct all {
    bool flag;
    int64_t count;
    double ratio, mean;
    uint64_t size, wait;
    const char *name;
    int colour;
    struct mr_dims dims;
    struct mr_dist time;
    struct mr_strings words, paths;
    struct mr_uints lengths;
};

static const char *const colours[] = {"red", "green", "blue", NULL};
static const struct mr_option rows[] = {
    {.key = "flag",
     .type = MR_OPT_BOOL,
     .offset = offsetof(struct all, flag),
     .def = "false",
     .short_flag = 'f',
     .doc = "."},
    {.key = "count",
     .type = MR_OPT_INT,
     .offset = offsetof(struct all, count),
     .def = "4",
     .min = -10,
     .max = 1e15,
     .short_flag = 'c',
     .alias = "number,how_many",
     .doc = "."},
    {.key = "ratio", .type = MR_OPT_DOUBLE, .offset = offsetof(struct all, ratio), .def = "0.5", .doc = "."},
    {.key = "mean_size",
     .type = MR_OPT_DOUBLE,
     .offset = offsetof(struct all, mean),
     .def = "1",
     .flags = MR_OPTF_SIZE,
     .doc = "."},
    {.key = "size", .type = MR_OPT_BYTES, .offset = offsetof(struct all, size), .def = "4KiB", .doc = "."},
    {.key = "wait_time", .type = MR_OPT_DURATION, .offset = offsetof(struct all, wait), .def = "1.5s", .doc = "."},
    {.key = "name", .type = MR_OPT_STRING, .offset = offsetof(struct all, name), .def = "x", .doc = "."},
    {.key = "colour",
     .type = MR_OPT_ENUM,
     .offset = offsetof(struct all, colour),
     .def = "green",
     .choices = colours,
     .doc = "."},
    {.key = "dims", .type = MR_OPT_DIMS, .offset = offsetof(struct all, dims), .def = "[1, 2]", .doc = "."},
    {.key = "time", .type = MR_OPT_DIST, .offset = offsetof(struct all, time), .def = "0.1", .doc = "."},
    {.key = "words", .type = MR_OPT_STRINGS, .offset = offsetof(struct all, words), .def = "[]", .doc = "."},
    {.key = "lengths", .type = MR_OPT_UINTS, .offset = offsetof(struct all, lengths), .def = "[]", .doc = "."},
    {.key = "paths",
     .type = MR_OPT_STRINGS,
     .offset = offsetof(struct all, paths),
     .def = "[]",
     .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT,
     .doc = "."},
    MR_OPTION_END,
};
static const struct mr_option_table table = {
    .section = "t", .doc = "", .options = rows, .struct_bytes = sizeof(struct all)};

static struct mr_arena arena;
static struct mr_error err;

static int teardown(void **state)
{
    (void)state;
    mr_arena_done(&arena);
    return 0;
}

static void fresh(struct all *a)
{
    memset(a, 0xa5, sizeof *a);
    assert_int_equal(mr_options_defaults(&table, &arena, a, &err), 0);
}

static int set(struct all *a, const char *key, const char *text)
{
    const struct mr_option *o = mr_option_find(&table, key);
    assert_non_null(o);
    return mr_option_parse(&table, o, text, &arena, a, &err);
}

static void scalars_take_units_and_refuse_the_rest(void **state)
{
    (void)state;
    uint64_t u = 7;
    int64_t i = 7;
    double d = 7;
    static const struct {
        const char *text;
        uint64_t want;
    } sizes[] = {{"0", 0},
                 {"4096", 4096},
                 {"256KiB", 262144},
                 {"1.5GiB", 1610612736},
                 {"100MB", 100000000},
                 {"1_000", 1000},
                 {"1e6", 1000000},
                 {"4k", 4096},
                 {" 12 B ", 12},
                 {"18446744073709551615", UINT64_MAX},
                 {"0.5KiB", 512}};
    for (size_t k = 0; k < MR_ARRAY_LEN(sizes); k++) {
        assert_int_equal(mr_parse_bytes(sizes[k].text, &u), 0);
        assert_true(u == sizes[k].want);
    }
    static const struct {
        const char *text;
        uint64_t want;
    } times[] = {{"1.3s", 1300000000},   {"2", 2000000000}, {"200ms", 200000000},
                 {"5min", 300000000000}, {"10ns", 10},      {"1us", 1000}};
    for (size_t k = 0; k < MR_ARRAY_LEN(times); k++) {
        assert_int_equal(mr_parse_duration_ns(times[k].text, &u), 0);
        assert_true(u == times[k].want);
    }
    u = 7;
    static const char *const bad_sizes[] = {"",    "-1", "nan", "inf",  "0x10",  "18446744073709551616", "16EiB",
                                            "1 2", "_1", "1_",  "1__0", "1e400", "20000000TiB",          "12parsecs",
                                            "1.5", "1e", "+",   ".",    "--1"};
    for (size_t k = 0; k < MR_ARRAY_LEN(bad_sizes); k++) {
        assert_true(mr_parse_bytes(bad_sizes[k], &u) < 0);
        assert_true(u == 7); /* untouched */
    }
    assert_int_equal(mr_parse_bytes("99999999999999999999", &u), -ERANGE);
    assert_int_equal(mr_parse_int("-9223372036854775808", &i), 0);
    assert_true(i == INT64_MIN);
    assert_int_equal(mr_parse_int("9223372036854775808", &i), -ERANGE);
    assert_int_equal(mr_parse_int("1.5", &i), -EINVAL);
    assert_int_equal(mr_parse_int("1.5e1", &i), 0);
    assert_int_equal(i, 15);
    assert_int_equal(mr_parse_int("7KiB", &i), -EINVAL);
    assert_int_equal(mr_parse_double("90%", &d), 0);
    assert_true(fabs(d - 0.9) < 1e-12);
    assert_true(mr_parse_double("NaN", &d) < 0);
    assert_true(mr_parse_double("1e999", &d) < 0);
    assert_true(mr_parse_duration_ns("-1s", &u) < 0);
    assert_true(mr_parse_duration_ns("1e20", &u) < 0);
}

static uint64_t draw(uint64_t *counter)
{
    return mr_rng_at(42, MR_RNG_TEST, (*counter)++);
}

/* Draws a random field of every type, prints it, parses the text, and compares the print again. */
static void every_type_reads_back_what_it_prints(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 3000; round++) {
        struct all a, b;
        fresh(&a);
        fresh(&b);
        uint64_t counter = round * 128;
        a.flag = draw(&counter) & 1;
        a.count = (int64_t)mr_rng_below(draw(&counter), 1000000000000000ull) - 10;
        a.ratio = ldexp(mr_rng_unit(draw(&counter)) - 0.5, (int)(round % 200) - 100);
        a.mean = (double)mr_rng_below(draw(&counter), 1u << 30) / 100;
        a.size = draw(&counter) >> (round & 63);
        a.wait = draw(&counter) >> (round * 7 & 63);
        a.colour = (int)mr_rng_below(draw(&counter), 3);
        a.dims.n = (unsigned)mr_rng_below(draw(&counter), MR_DIMS_MAX + 1);
        for (unsigned k = 0; k < a.dims.n; k++)
            a.dims.dim[k] = draw(&counter) >> 20;
        a.time = (struct mr_dist){.kind = (enum mr_dist_kind)(round % 6), .a = mr_rng_unit(draw(&counter))};
        if (a.time.kind == MR_DIST_NORMAL || a.time.kind == MR_DIST_GAMMA)
            a.time.b = mr_rng_unit(draw(&counter));
        if (a.time.kind == MR_DIST_UNIFORM)
            a.time.b = a.time.a + mr_rng_unit(draw(&counter));
        const char *words[4];
        char text[4][8];
        a.words = (struct mr_strings){.n = (unsigned)mr_rng_below(draw(&counter), 5), .item = words};
        for (unsigned k = 0; k < a.words.n; k++) {
            for (int c = 0; c < 7; c++)
                text[k][c] = "ab,[]{}\"'\\ :x"[mr_rng_below(draw(&counter), 13)];
            text[k][7] = '\0';
            words[k] = text[k];
        }
        uint64_t lengths[9];
        a.lengths = (struct mr_uints){.n = (unsigned)mr_rng_below(draw(&counter), 10), .item = lengths};
        for (unsigned k = 0; k < a.lengths.n; k++)
            lengths[k] = draw(&counter);
        for (const struct mr_option *o = rows; o->key; o++) {
            char first[512], second[512];
            assert_true(mr_option_print(o, &a, first, sizeof first) < (int)sizeof first);
            if (mr_option_parse(&table, o, first, &arena, &b, &err))
                fail_msg("'%s' printed '%s', which does not parse: %s", o->key, first, err.message);
            mr_option_print(o, &b, second, sizeof second);
            assert_string_equal(first, second);
        }
        assert_true(a.ratio == b.ratio && a.wait == b.wait && a.size == b.size && a.time.a == b.time.a);
        for (unsigned k = 0; k < a.words.n; k++)
            assert_string_equal(a.words.item[k], b.words.item[k]);
    }
}

static void a_bad_value_names_key_text_and_bounds_and_changes_nothing(void **state)
{
    (void)state;
    struct all a;
    fresh(&a);
    assert_int_equal(set(&a, "count", "-11"), MR_E_CONFIG);
    assert_string_equal(err.message,
                        "bad value '-11' for 't.count': must be between -10 and 1000000000000000 (integer)");
    assert_int_equal(a.count, 4);
    assert_int_equal(set(&a, "colour", "gren"), MR_E_CONFIG);
    assert_non_null(strstr(err.message, "red, green, blue"));
    assert_non_null(strstr(err.hint, "'green'"));
    assert_int_equal(set(&a, "dims", "[1,2,3,4,5,6,7,8,9]"), MR_E_CONFIG);
    assert_int_equal(set(&a, "dims", "[1,,2]"), MR_E_CONFIG);
    assert_int_equal(set(&a, "dims", "[1,2"), MR_E_CONFIG);
    assert_int_equal(set(&a, "dims", "224x224x3"), 0);
    assert_int_equal(a.dims.n, 3);
    assert_int_equal(set(&a, "time", "{type: normal}"), MR_E_CONFIG);
    assert_int_equal(set(&a, "time", "{type: uniform, min: 2, max: 1}"), MR_E_CONFIG);
    assert_int_equal(set(&a, "time", "{type: normal, mean: 1, stdev: 0.1, mean: 2}"), MR_E_CONFIG);
    assert_int_equal(set(&a, "time", "-1"), MR_E_CONFIG);
    assert_int_equal(set(&a, "time", "200ms"), 0);
    assert_true(a.time.a == 0.2);
    assert_int_equal(set(&a, "mean-size", "114660.07"), 0);
    assert_true(a.mean == 114660.07);
    assert_int_equal(set(&a, "mean_size", "2KiB"), 0);
    assert_true(a.mean == 2048);
    assert_int_equal(set(&a, "words", "[\"a, b\", c]"), 0);
    assert_string_equal(a.words.item[0], "a, b");
    assert_int_equal(set(&a, "words", "[\"a"), MR_E_CONFIG);
}

static void keys_are_found_by_alias_and_guessed_by_distance(void **state)
{
    (void)state;
    assert_ptr_equal(mr_option_find(&table, "how_many"), &rows[1]);
    assert_ptr_equal(mr_option_find(&table, "wait-time"), &rows[5]);
    assert_null(mr_option_find(&table, "how"));
    assert_string_equal(mr_option_nearest(&table, "cuont"), "count");
    assert_string_equal(mr_option_nearest(&table, "wait_tme"), "wait_time");
    assert_null(mr_option_nearest(&table, "zzzzzz"));
    assert_int_equal(mr_edit_distance("batch_size", "BATCH-SIZE"), 0);
    assert_int_equal(mr_edit_distance("ab", "ba"), 1);
    assert_int_equal(mr_edit_distance("", "abc"), 3);
}

static int parse(struct all *a, struct mr_strings *overrides, int n, const char **argv)
{
    fresh(a);
    return mr_options_parse_argv(&table, n, (char *const *)argv, &arena, a, overrides, &err);
}
#define PARSE(a, ov, ...)                                                                                              \
    parse(a, ov, (int)MR_ARRAY_LEN(((const char *[]){__VA_ARGS__})), (const char *[]){__VA_ARGS__})

static void argv_flags_positionals_and_overrides(void **state)
{
    (void)state;
    struct all a;
    struct mr_strings ov = {0};
    assert_int_equal(PARSE(&a, &ov, "-fc", "9", "--size=1MiB", "one", "++x.y=3", "~z", "--", "k=v", "-f"), 0);
    assert_true(a.flag && a.count == 9 && a.size == MR_MIB);
    assert_int_equal(a.paths.n, 3);
    assert_string_equal(a.paths.item[1], "k=v");
    assert_int_equal(ov.n, 2);
    assert_string_equal(ov.item[0], "++x.y=3");
    assert_int_equal(PARSE(&a, NULL, "k=v"), 0); /* a plain word when nobody wants overrides */
    assert_string_equal(a.paths.item[0], "k=v");
    assert_int_equal(PARSE(&a, NULL, "-c7", "--no-flag"), 0);
    assert_true(a.count == 7 && !a.flag);
    assert_int_equal(PARSE(&a, NULL, "--count"), MR_E_USAGE);
    assert_int_equal(PARSE(&a, NULL, "--cuont", "3"), MR_E_USAGE);
    assert_non_null(strstr(err.hint, "'--count'"));
    assert_int_equal(PARSE(&a, NULL, "--count", "1", "--count", "2"), MR_E_USAGE);
    assert_int_equal(PARSE(&a, NULL, "--no-count"), MR_E_USAGE);
    assert_int_equal(PARSE(&a, NULL, "--paths", "x"), MR_E_USAGE);
    assert_int_equal(PARSE(&a, NULL, "--count=zero"), MR_E_USAGE);
    assert_non_null(strstr(err.message, "'--count'"));
}

static void environment_is_below_flags_and_names_the_variable(void **state)
{
    (void)state;
    struct all a;
    char *good[] = {"PATH=/bin", "MILLRACE_T_COUNT=17", "MILLRACE_T_COUNTER=18", NULL};
    char *bad[] = {"MILLRACE_T_WAIT_TIME=soon", NULL};
    char *argv[] = {"--count", "3"};
    char name[64];
    fresh(&a);
    assert_int_equal(mr_options_parse_env(&table, good, &arena, &a, &err), 0);
    assert_int_equal(a.count, 17);
    assert_int_equal(mr_options_parse_argv(&table, 2, argv, &arena, &a, NULL, &err), 0);
    assert_int_equal(a.count, 3);
    assert_int_equal(mr_options_parse_env(&table, bad, &arena, &a, &err), MR_E_CONFIG);
    assert_non_null(strstr(err.context, "MILLRACE_T_WAIT_TIME"));
    assert_string_equal(mr_option_env_name(&table, &rows[5], name, sizeof name), "MILLRACE_T_WAIT_TIME");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_take_units_and_refuse_the_rest),
        cmocka_unit_test(every_type_reads_back_what_it_prints),
        cmocka_unit_test(a_bad_value_names_key_text_and_bounds_and_changes_nothing),
        cmocka_unit_test(keys_are_found_by_alias_and_guessed_by_distance),
        cmocka_unit_test(argv_flags_positionals_and_overrides),
        cmocka_unit_test(environment_is_below_flags_and_names_the_variable),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
