/* For tests: a run as a user starts it, from a command line; what a run records of itself; and whether another command
 * line is the same run but for the words that are new in it. A shell's own splitting (wordexp) reads the commands. */
#ifndef MR_TEST_RUN_COMMAND_CHECK_H
#define MR_TEST_RUN_COMMAND_CHECK_H

#include "conf/job_options.h"
#include "conf/run_command.h"
#include "job/job.h"

#include <string.h>
#include <wordexp.h>

struct recorded {
    json_t *options, *config; /* as in summary.json */
};

static inline void recorded_done(struct recorded *r)
{
    json_decref(r->options);
    json_decref(r->config);
}

/* Resolves the words after `millrace run`; 0, or the error of the run. --sweep and its value are no part of a job. */
static inline int record_words(size_t n, char *const *words, struct mr_arena *a, struct recorded *out,
                               struct mr_error *err)
{
    struct sweeps {
        struct mr_strings sweep;
    } sweeps;
    static const struct mr_option rows[] = {
        MR_OPTION(sweeps, "sweep", sweep, STRINGS, "[]", .flags = MR_OPTF_REPEAT, .doc = "as of run"), MR_OPTION_END};
    static const struct mr_option_table table = {"run", "run", rows, sizeof(struct sweeps)};
    struct mr_job_options opt;
    const struct mr_options_target targets[] = {{&mr_job_options_table, &opt}, {&table, &sweeps}};
    static const char *presets[] = {MR_SOURCE_DIR "/workloads"};
    struct mr_job j;
    struct mr_job_request req = {
        .options = &opt, .arena = a, .search_path = {1, presets}, .is_quiet = true, .is_local = true};
    int rc = mr_options_defaults(&mr_job_options_table, a, &opt, err);
    rc = rc ? rc : mr_options_defaults(&table, a, &sweeps, err);
    rc = rc ? rc : mr_options_parse_targets(targets, 2, (int)n, words, a, &req.overrides, err);
    rc = rc ? rc : mr_job_resolve(&req, &j, err);
    if (!rc)
        *out = (struct recorded){mr_job_options_to_json(&j.opt), mr_workload_to_json(j.w)};
    return rc;
}

/* Words as a shell reads them. */
static inline void split_command(const char *command, wordexp_t *w)
{
    int rc = wordexp(command, w, WRDE_NOCMD | WRDE_UNDEF);
    if (rc)
        fail_msg("a shell cannot read (%d): %s", rc, command);
}

static inline bool names_key(const char *word, const char *option, const char *key)
{
    char flag[80], off[80];
    snprintf(flag, sizeof flag, "--%s", option ? option : "");
    snprintf(off, sizeof off, "--no-%s", option ? option : "");
    for (unsigned i = 0; flag[i] || off[i]; i++) {
        flag[i] = flag[i] == '_' ? '-' : flag[i];
        off[i] = off[i] == '_' ? '-' : off[i];
    }
    size_t n = strlen(key);
    return (option && (!strcmp(word, flag) || !strcmp(word, off))) || (!strncmp(word, key, n) && word[n] == '=');
}

static inline bool is_among(const char *word, const wordexp_t *list)
{
    for (size_t i = 0; i < list->we_wordc; i++)
        if (!strcmp(list->we_wordv[i], word))
            return true;
    return false;
}

/* Whether a word of `again` that `before` lacks sets this option, this key, or what stands for it. */
static inline bool is_change(const char *option, const char *key, const wordexp_t *before, const wordexp_t *again)
{
    const char *o = option, *k = key ? key : "-";
    for (const struct mr_job_option_pair *p = mr_job_option_pairs; p->option; p++) {
        if (option && !strcmp(p->option, option))
            k = p->key;
        if (key && !strcmp(p->key, key))
            o = p->option;
    }
    for (size_t i = 0; i < again->we_wordc; i++)
        if (!is_among(again->we_wordv[i], before) && names_key(again->we_wordv[i], o, k))
            return true;
    /* --tiers X in place of --tiers Y: only the value is new */
    for (size_t i = 1; i < again->we_wordc; i++)
        if (!is_among(again->we_wordv[i], before) && names_key(again->we_wordv[i - 1], o, k))
            return true;
    return false;
}

/* Fails unless both are the same run, but for what is new in `again` and where results go. */
static inline void check_same_run(const struct recorded *x, const char *before, const char *again, struct mr_arena *a)
{
    wordexp_t w[2];
    struct recorded y = {0};
    struct mr_error err = {0};
    const char *key;
    json_t *v;
    split_command(before, &w[0]);
    split_command(again, &w[1]);
    if (record_words(w[1].we_wordc, w[1].we_wordv, a, &y, &err))
        fail_msg("'%s' is refused: %s", again, err.message);
    for (const struct mr_option *o = mr_job_options_table.options; o->key; o++) {
        const char *was = json_string_value(json_object_get(x->options, o->key));
        const char *is = json_string_value(json_object_get(y.options, o->key));
        if (!(o->flags & MR_OPTF_RESULT) && strcmp(was, is) != 0 && !is_change(o->key, NULL, &w[0], &w[1]))
            fail_msg("option %s was '%s', is '%s' in: %s", o->key, was, is, again);
    }
    json_object_foreach(x->config, key, v)
    {
        json_t *was = json_object_get(v, "value"), *is = json_object_get(json_object_get(y.config, key), "value");
        bool skip =
            !strcmp(key, "output.folder") || !strcmp(json_string_value(json_object_get(v, "origin")), "derived");
        if (!skip && !json_equal(was, is) && !is_change(NULL, key, &w[0], &w[1]))
            fail_msg("key %s was %s, is %s in: %s", key, json_dumps(was, JSON_ENCODE_ANY),
                     json_dumps(is, JSON_ENCODE_ANY), again);
    }
    recorded_done(&y);
    wordfree(&w[0]);
    wordfree(&w[1]);
}

#endif
