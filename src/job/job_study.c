/* The scenario of a study, from words: a scenario file, a workload on a machine, or a finished run. */
#include "conf/job_options.h"
#include "job/job_scenario.h"
#include "sim/scenario_yaml.h"

#include "base/common.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

/* The words by whom they are for. */
struct words {
    const char *workload; /* of workload=NAME; NULL: none */
    struct mr_strings for_workload, for_scenario;
};

/* Words for the workload are those with a dot (reader.batch_size=4) or Hydra's signs; the others set keys of the
 * scenario. */
static bool is_for_workload(const char *word)
{
    return strchr("+~", word[0]) || memchr(word, '.', strcspn(word, "="));
}

static int sort_words(const struct mr_job_study_request *q, struct words *out, struct mr_error *err)
{
    static const char key[] = "workload=";
    unsigned n = q->words.n + q->more_words.n;
    *out = (struct words){0};
    out->for_workload.item = mr_arena_alloc(q->arena, (n + 1) * sizeof(char *));
    out->for_scenario.item = mr_arena_alloc(q->arena, (n + 1) * sizeof(char *));
    if (!out->for_workload.item || !out->for_scenario.item)
        return mr_error_set(err, -ENOMEM, "overrides");
    for (unsigned i = 0; i < n; i++) {
        const char *word = i < q->words.n ? q->words.item[i] : q->more_words.item[i - q->words.n];
        if (strncmp(word, key, sizeof key - 1) == 0)
            out->workload = word + sizeof key - 1;
        else if (is_for_workload(word))
            out->for_workload.item[out->for_workload.n++] = word;
        else
            out->for_scenario.item[out->for_scenario.n++] = word;
    }
    return 0;
}

/* The training of a workload, on the machine of system=NAME or the workload's own. */
static int scenario_of_workload(const struct mr_job_study_request *q, const struct words *words,
                                struct mr_scenario *out, struct mr_error *err)
{
    struct mr_job_options options;
    struct mr_job *j = mr_arena_alloc(q->arena, sizeof(*j));
    int rc = j ? mr_options_defaults(&mr_job_options_table, q->arena, &options, err)
               : mr_error_set(err, -ENOMEM, "workload '%s'", words->workload);
    options.workload = words->workload;
    const struct mr_job_request req = {.options = &options,
                                       .overrides = words->for_workload,
                                       .search_path = q->search_path,
                                       .envp = q->envp,
                                       .arena = q->arena,
                                       .stop = q->stop,
                                       .is_local = true};
    if (!rc)
        rc = mr_job_resolve(&req, j, err);
    if (rc)
        return rc;
    for (unsigned i = 0; q->logs_notes && i < j->w->notes.n; i++)
        mr_log(MR_LOG_NOTE, "%s", j->w->notes.item[i]);
    return mr_job_study_scenario(j, NULL, &words->for_scenario, out, err);
}

static int scenario_of_run(const struct mr_job_study_request *q, const struct words *words, struct mr_scenario *out,
                           struct mr_error *err)
{
    struct mr_job_measured measured;
    struct mr_job *j = mr_arena_alloc(q->arena, sizeof(*j));
    int rc = j ? mr_job_load_measured(q->from, &measured, err) : mr_error_set(err, -ENOMEM, "run '%s'", q->from);
    if (!rc)
        rc = mr_job_load(q->from, &q->search_path, q->arena, j, err);
    if (rc)
        return rc;
    rc = mr_job_study_scenario(j, &measured, &words->for_scenario, out, err);
    mr_job_done(j);
    return rc;
}

int mr_job_choose_scenario(const struct mr_job_study_request *q, struct mr_scenario *out, struct mr_error *err)
{
    struct words words;
    int rc = sort_words(q, &words, err);
    if (rc)
        return rc;
    int sources = (words.workload != NULL) + (*q->scenario != '\0') + (*q->from != '\0');
    if (sources != 1) {
        mr_error_plain(err, MR_E_USAGE,
                       sources ? "give one of a scenario, a workload and --from"
                               : "nothing to simulate: give a scenario, or workload=NAME system=NAME");
        return mr_error_hint(err,
                             "'millrace sim --list' shows scenarios and systems, 'millrace workloads list' workloads"),
               MR_E_USAGE;
    }
    if (words.workload)
        return scenario_of_workload(q, &words, out, err);
    if (words.for_workload.n)
        return mr_error_plain(err, MR_E_USAGE, "'%s' sets a key of a workload, but there is none",
                              words.for_workload.item[0]);
    if (*q->from)
        return scenario_of_run(q, &words, out, err);
    return mr_scenario_load(q->scenario, &q->search_path, &words.for_scenario, q->arena, out, err);
}
