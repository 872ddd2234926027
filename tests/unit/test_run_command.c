/* The command that repeats a run: for random options and overrides, what a run records of itself becomes a command,
 * which, read by a shell and parsed again, is the same run. Every row of both tables is among them by construction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/common.h"
#include "run_command_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state_of_random = 1;

static uint64_t below(uint64_t n)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (state_of_random >> 33) % n;
}

/* Characters that shells, YAML and Hydra's words treat specially. */
static void random_text(char *out, size_t cap)
{
    static const char letters[] = "abcXYZ019_-./:=+,~ \"'\\$`!*?[]{}()#&;|<>%@";
    size_t n = below(MR_MIN(cap - 1, 12));
    for (size_t i = 0; i < n; i++)
        out[i] = letters[below(sizeof letters - 1)];
    out[n] = '\0';
}

static double within(const struct mr_option *o, double least, double most)
{
    if (o->min < o->max) {
        least = fmax(least, o->min);
        most = fmin(most, o->max);
    }
    return least + (most - least) * (double)below(1000001) / 1e6;
}

/* A value that the row may take, as text. */
static void random_value(const struct mr_option *o, char *out, size_t cap)
{
    unsigned choices = 0;
    char text[40];
    switch (o->type) {
    case MR_OPT_BOOL: snprintf(out, cap, "%s", below(2) ? "true" : "false"); break;
    case MR_OPT_INT: snprintf(out, cap, "%.0f", floor(within(o, -1, below(2) ? 20 : 1e6))); break;
    case MR_OPT_DOUBLE: snprintf(out, cap, "%.17g", within(o, 0, below(2) ? 1 : 1e4)); break;
    case MR_OPT_BYTES: snprintf(out, cap, "%.0f", floor(within(o, 0, below(2) ? 1e3 : 1e12))); break;
    case MR_OPT_DURATION: snprintf(out, cap, "%.9fs", within(o, 0, below(2) ? 1 : 1e5)); break;
    case MR_OPT_STRING: random_text(out, cap); break;
    case MR_OPT_ENUM:
        while (o->choices[choices])
            choices++;
        snprintf(out, cap, "%s", o->choices[below(choices)]);
        break;
    case MR_OPT_DIMS: snprintf(out, cap, "[%u, %u]", 1 + (unsigned)below(300), 1 + (unsigned)below(300)); break;
    case MR_OPT_UINTS: snprintf(out, cap, "[%u, %u]", (unsigned)below(300), (unsigned)below(300)); break;
    case MR_OPT_DIST:
        snprintf(out, cap, below(2) ? "%u.%02u" : "{type: normal, mean: %u, stdev: 0.%u}", (unsigned)below(9),
                 (unsigned)below(99));
        break;
    case MR_OPT_STRINGS:
        random_text(text, sizeof text);
        size_t n = (size_t)snprintf(out, cap, "[");
        n += (size_t)mr_option_quote(text, out + n, cap - n);
        snprintf(out + n, cap - n, ", b]");
        break;
    }
}

/* ---- options ---- */

static void set_option(const struct mr_option *o, struct mr_arena *a, struct mr_job_options *opt)
{
    struct mr_error err;
    char text[200];
    do
        random_value(o, text, sizeof text);
    while ((o->flags & MR_OPTF_POSITIONAL) && !*text);
    if (mr_option_parse(&mr_job_options_table, o, text, a, opt, &err))
        fail_msg("%s: '%s': %s", o->key, text, err.message);
}

/* As recorded by the run: workload=NAME is the positional word. */
static void parse_again(const char *command, struct mr_arena *a, struct mr_job_options *out)
{
    wordexp_t w;
    struct mr_error err;
    struct mr_strings overrides = {0};
    split_command(command, &w);
    assert_int_equal(mr_options_defaults(&mr_job_options_table, a, out, &err), 0);
    if (mr_options_parse_argv(&mr_job_options_table, (int)w.we_wordc, w.we_wordv, a, out, &overrides, &err))
        fail_msg("%s: %s", command, err.message);
    struct mr_workload_request req = {.workload = out->workload, .overrides = overrides};
    const char *name = mr_workload_chosen(&req);
    out->workload = mr_arena_strdup(a, name ? name : "");
    wordfree(&w);
}

static void every_option_comes_back(void **state)
{
    (void)state;
    static unsigned seen[256];
    struct mr_error err;
    json_t *nothing = json_object();
    for (unsigned round = 0; round < 3000; round++) {
        struct mr_arena a = {0};
        struct mr_job_options opt, again;
        assert_int_equal(mr_options_defaults(&mr_job_options_table, &a, &opt, &err), 0);
        unsigned row = 0, rows = 0, sets = 1 + (unsigned)below(6);
        for (const struct mr_option *o = mr_job_options_table.options; o->key; o++)
            rows++;
        assert_true(rows < MR_ARRAY_LEN(seen));
        for (; sets; sets--)
            set_option(&mr_job_options_table.options[below(rows)], &a, &opt);
        json_t *record = mr_job_options_to_json(&opt);
        const char *command = mr_run_command(record, nothing, &a);
        parse_again(command ? command : "", &a, &again);
        for (const struct mr_option *o = mr_job_options_table.options; o->key; o++, row++) {
            char was[4200], is[4200], def[4200];
            struct mr_job_options d;
            assert_int_equal(mr_options_defaults(&mr_job_options_table, &a, &d, &err), 0);
            mr_option_print(o, &opt, was, sizeof was);
            mr_option_print(o, &again, is, sizeof is);
            mr_option_print(o, &d, def, sizeof def);
            bool left_out = o->flags & MR_OPTF_RESULT;
            if (strcmp(left_out ? def : was, is) != 0)
                fail_msg("%s was '%s', is '%s' after: %s", o->key, was, is, command ? command : "(none)");
            seen[row] += strcmp(was, def) != 0;
        }
        json_decref(record);
        mr_arena_done(&a);
    }
    json_decref(nothing);
    for (unsigned i = 0; mr_job_options_table.options[i].key; i++)
        if (!seen[i])
            fail_msg("%s was never set", mr_job_options_table.options[i].key);
}

/* ---- keys of the workload ---- */

/* One key set by a word (or in the environment, or removed), beside a few options; false: no workload is like that. */
static bool try_key(const char *key, const char *value, bool removes)
{
    struct mr_arena a = {0};
    struct mr_error err;
    struct recorded x;
    char word[600];
    snprintf(word, sizeof word, "%s%s%s%s", removes ? "~" : "", key, removes ? "" : "=", removes ? "" : value);
    char *words[] = {"resnet50_a100", "--seed", "7", word, "--tiers=ram=1GiB", "--no-probe", "reader.batch_size=3"};
    bool ok = !record_words(MR_ARRAY_LEN(words) - !strcmp(key, "reader.batch_size"), words, &a, &x, &err);
    if (ok) {
        const char *command = mr_run_command(x.options, x.config, &a);
        if (!command)
            fail_msg("no command for %s", word);
        check_same_run(&x, command, command, &a);
        recorded_done(&x);
    }
    mr_arena_done(&a);
    return ok;
}

static void every_key_comes_back(void **state)
{
    (void)state;
    for (int s = 0; mr_workload_sections[s].table; s++) {
        const struct mr_option_table *t = mr_workload_sections[s].table;
        for (const struct mr_option *o = t->options; o->key; o++) {
            char key[128], value[400];
            unsigned taken = 0;
            snprintf(key, sizeof key, "%s%s%s", t->section, *t->section ? "." : "", o->key);
            if ((o->flags & MR_OPTF_SECRET) || !strcmp(key, "plugin"))
                continue; /* never printed; loads a file */
            for (unsigned i = 0; i < 40 && taken < 8; i++) {
                random_value(o, value, sizeof value);
                char text[850];
                bool quote = o->type == MR_OPT_STRING;
                if (quote)
                    mr_option_quote(value, text, sizeof text);
                taken += try_key(key, quote ? text : value, false);
            }
            taken += taken ? 0 : try_key(key, o->def, false);
            if (!taken)
                fail_msg("no value for %s", key);
            try_key(key, "", true);
        }
    }
}

static void environment_comes_back_as_words(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_error err;
    struct mr_job j;
    struct mr_job_options opt;
    static char *const env[] = {"MILLRACE_READER_BATCH_SIZE=5", NULL};
    static const char *presets[] = {MR_SOURCE_DIR "/workloads"};
    assert_int_equal(mr_options_defaults(&mr_job_options_table, &a, &opt, &err), 0);
    opt.workload = "resnet50_a100";
    struct mr_job_request req = {.options = &opt, .arena = &a, .search_path = {1, presets}, .envp = env};
    assert_int_equal(mr_job_resolve(&req, &j, &err), 0);
    struct recorded x = {mr_job_options_to_json(&j.opt), mr_workload_to_json(j.w)};
    assert_string_equal(mr_run_command(x.options, x.config, &a), "resnet50_a100 reader.batch_size=5");
    recorded_done(&x);
    mr_arena_done(&a);
}

/* ---- changes ---- */

static void a_change_replaces_what_sets_the_same(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"w --threads 4 --seed 7", "reader.read_threads=8", "w --seed 7 reader.read_threads=8"},
        {"w --seed 7 reader.tiers=ram=1GiB", "--tiers auto", "w --seed 7 --tiers auto"},
        {"w --store \"a b\" --verify", "--store posix", "w --verify --store posix"},
        {"w --no-probe --data \"x y\" reader.batch_size=3", "--probe --data z",
         "w reader.batch_size=3 --probe --data z"},
        {"w \"~reader.order\" \"a.b=c d\"", "reader.order=shard", "w \"a.b=c d\" reader.order=shard"},
        {"w --data --seed reader.seed=1", "--seed 3", "w --data --seed reader.seed=1 --seed 3"},
        {"w --lookahead 2", "--sweep reader.prefetch_size=1,2", "w --sweep reader.prefetch_size=1,2"},
        {"w --verify", "", "w --verify"},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        struct mr_arena a = {0};
        assert_string_equal(mr_run_command_with(rows[i][0], rows[i][1], &a), rows[i][2]);
        mr_arena_done(&a);
    }
}

static void what_is_not_recorded_has_no_command(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    json_t *o = json_pack("{s:s}", "ranks", "many");
    assert_null(mr_run_command(NULL, NULL, &a));
    assert_null(mr_run_command(o, NULL, &a));
    json_decref(o);
    mr_arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_comes_back),
        cmocka_unit_test(every_key_comes_back),
        cmocka_unit_test(environment_comes_back_as_words),
        cmocka_unit_test(a_change_replaces_what_sets_the_same),
        cmocka_unit_test(what_is_not_recorded_has_no_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
