/* See mcp_tools.h. To add a tool: a row in `tools`, its arguments in a list before it. An argument without a flag is a
 * positional word. */
#include "mcp/mcp_tools.h"
#include "base/common.h"
#include "base/vec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum arg_type { ARG_TEXT, ARG_TEXTS, ARG_NUMBER, ARG_SWITCH };

struct arg {
    const char *name;
    enum arg_type type;
    const char *flag; /* NULL: positional */
    bool required;
    const char *doc;
};

struct tool {
    const char *name, *command, *doc;
    const char *fixed[3]; /* options that are always given */
    const struct arg *arg;
    bool runs; /* the user's program */
};

#define END                                                                                                            \
    {                                                                                                                  \
        .name = NULL                                                                                                   \
    }
#define JSON_ARG                                                                                                       \
    {                                                                                                                  \
        "json", ARG_SWITCH, "--json", false, "All figures as JSON instead of text: exact, and long."                   \
    }
#define TRACES                                                                                                         \
    "Results folders of 'millrace run', or traces: .mrt, DFTracer's .pfw, torch.profiler's JSON, Darshan's logs, or "  \
    "folders of them."

static const struct arg report_args[] = {
    {"path", ARG_TEXTS, NULL, true, TRACES " Several are one job."},
    {"steps", ARG_TEXT, "--steps", false, "Only these training steps, FROM:TO."},
    {"time", ARG_TEXT, "--time", false, "Only this part of the run, FROM:TO in seconds from its start."},
    {"rank", ARG_NUMBER, "--rank", false, "Only this rank."},
    {"all", ARG_SWITCH, "--all", false, "Every finding and cause, and the tables of calls, sizes and files."},
    JSON_ARG,
    END};
static const struct arg explain_args[] = {
    {"path", ARG_TEXTS, NULL, true, TRACES},
    {"rule", ARG_TEXT, "--explain", true, "The id of a rule, as findings have it: PF1, TH2 ..."},
    END};
static const struct arg compare_args[] = {{"sides", ARG_TEXTS, NULL, true,
                                           "Two or more: a run, a trace, a folder of several runs, or several with "
                                           "commas between them. The first is the base."},
                                          JSON_ARG,
                                          END};
static const struct arg check_args[] = {
    {"path", ARG_TEXTS, NULL, true, "Runs or traces; of several the mean is checked."},
    {"limits", ARG_TEXTS, "--limit", false, "Lines NAME OP LIMIT: 'stall_pct <= 5', 'wall_s <= baseline * 1.03'."},
    {"budget", ARG_TEXT, "--budget", false, "A YAML file with such lines."},
    {"baseline", ARG_TEXT, "--baseline", false, "Runs that 'baseline' stands for."},
    JSON_ARG,
    END};
static const struct arg sim_args[] = {
    {"scenario", ARG_TEXT, NULL, false, "A scenario by name or file; 'list' shows them."},
    {"settings", ARG_TEXTS, NULL, false, "Words KEY=VALUE: workload=unet3d_h100, system=lassen, train.epochs=2 ..."},
    {"policy", ARG_TEXT, "--policy", false, "Policies, separated by commas, or all."},
    {"from", ARG_TEXT, "--from", false, "A run or a trace that is simulated beside its measurement."},
    {"sweep", ARG_TEXTS, "--sweep", false, "KEY=A,B,C: every value."},
    {"list", ARG_SWITCH, "--list", false, "Lists scenarios and systems."},
    JSON_ARG,
    END};
static const struct arg ls_args[] = {
    {"folders", ARG_TEXTS, NULL, true, "Folders, searched to a depth of 8."}, JSON_ARG, END};
static const struct arg watch_args[] = {
    {"what", ARG_TEXT, NULL, true, "A trace that is being written, a results folder, or a process number."}, END};
static const struct arg try_args[] = {
    {"finding", ARG_TEXT, NULL, false, "The id of a finding; without it the first one that can be tried."},
    {"path", ARG_TEXT, NULL, true, "The trace or run whose program is run again."},
    {"steps", ARG_TEXT, "--steps", false, "Steps that are compared, FROM:TO."},
    {"repeat", ARG_NUMBER, "--repeat", false, "Runs of each side."},
    {"limit", ARG_TEXT, "--limit", false, "The longest that a run may take: '5min'."},
    {"apply", ARG_SWITCH, "--apply", false, "Shows the change as a diff; nothing is written."},
    {"dry_run", ARG_SWITCH, "--dry-run", false, "Shows what would be run and changed."},
    JSON_ARG,
    END};

static const struct tool tools[] = {
    {.name = "report",
     .command = "report",
     .arg = report_args,
     .doc =
         "Where the time of a training run went and why: verdict, time split, causes of waits for data, findings with "
         "predicted savings and the change to make. Start here."},
    {.name = "explain",
     .command = "report",
     .arg = explain_args,
     .doc = "One finding in depth: condition, measured values, formula with the numbers put in, the change."},
    {.name = "compare",
     .command = "compare",
     .arg = compare_args,
     .doc = "Runs beside each other: same work or not, what is better or worse and how certain that is."},
    {.name = "check",
     .command = "check",
     .arg = check_args,
     .doc = "Runs against limits; the last line says how many are met."},
    {.name = "sim",
     .command = "sim",
     .arg = sim_args,
     .doc = "Predicts a training job's I/O on a described machine under prefetching policies."},
    {.name = "ls",
     .command = "ls",
     .arg = ls_args,
     .doc = "The runs and traces of folders, one line each, with verdicts and changes of level over time."},
    {.name = "watch",
     .command = "watch",
     .fixed = {"--screens=1", "--json"},
     .arg = watch_args,
     .doc = "A running job now: steps, waits, who is late, storage rates, when it ends. One look, as JSON."},
    {.name = "try",
     .command = "try",
     .arg = try_args,
     .runs = true,
     .doc = "Runs the traced program again with and without the change of a finding, in turn, and prints predicted and "
            "measured savings. Takes as long as four starts of the program and its steps."},
};

/* ---- schemas ---- */

static json_t *arg_schema(const struct arg *a)
{
    switch (a->type) {
    case ARG_TEXT: return json_pack("{s:s,s:s}", "type", "string", "description", a->doc);
    case ARG_TEXTS:
        return json_pack("{s:s,s:{s:s},s:i,s:s}", "type", "array", "items", "type", "string", "minItems", 1,
                         "description", a->doc);
    case ARG_NUMBER: return json_pack("{s:s,s:i,s:s}", "type", "integer", "minimum", 0, "description", a->doc);
    case ARG_SWITCH: break;
    }
    return json_pack("{s:s,s:s}", "type", "boolean", "description", a->doc);
}

static json_t *tool_json(const struct tool *t)
{
    json_t *properties = json_object(), *required = json_array();
    for (const struct arg *a = t->arg; a->name; a++) {
        json_object_set_new(properties, a->name, arg_schema(a));
        if (a->required)
            json_array_append_new(required, json_string(a->name));
    }
    return json_pack("{s:s,s:s,s:{s:s,s:o,s:o,s:b},s:{s:b,s:b,s:b}}", "name", t->name, "description", t->doc,
                     "inputSchema", "type", "object", "properties", properties, "required", required,
                     "additionalProperties", false, "annotations", "readOnlyHint", !t->runs, "destructiveHint", false,
                     "openWorldHint", false);
}

json_t *mr_mcp_tools(bool allow_run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < MR_ARRAY_LEN(tools); i++)
        if (allow_run || !tools[i].runs)
            json_array_append_new(list, tool_json(&tools[i]));
    return list;
}

/* ---- calls ---- */

struct words {
    char **item;
    size_t n, cap;
};

static int add_word(struct words *w, const char *flag, const char *text)
{
    if (mr_vec_reserve(&w->item, &w->cap, w->n + 2, sizeof(*w->item)) < 0)
        return -ENOMEM;
    int n = flag ? asprintf(&w->item[w->n], "%s=%s", flag, text) : asprintf(&w->item[w->n], "%s", text);
    if (n < 0)
        w->item[w->n] = NULL;
    w->n += n >= 0;
    w->item[w->n] = NULL;
    return n < 0 ? -ENOMEM : 0;
}

static int add_text(struct words *w, const struct arg *a, const json_t *v, struct mr_error *err)
{
    const char *text = json_string_value(v);
    if (!text || strlen(text) != json_string_length(v))
        return mr_error_plain(err, MR_E_USAGE, "'%s' must be %s", a->name,
                              a->type == ARG_TEXTS ? "a list of texts" : "a text");
    if (!*text || (!a->flag && *text == '-'))
        return mr_error_plain(err, MR_E_USAGE, "'%s' cannot be '%.100s'", a->name, text);
    return add_word(w, a->flag, text) < 0 ? mr_error_set(err, -ENOMEM, "cannot run the command") : 0;
}

static int add_value(struct words *w, const struct arg *a, const json_t *v, struct mr_error *err)
{
    char number[32];
    size_t i;
    const json_t *one;
    int rc = 0;
    switch (a->type) {
    case ARG_TEXT: return add_text(w, a, v, err);
    case ARG_TEXTS:
        if (!json_is_array(v)) /* one text is a list of one */
            return add_text(w, a, v, err);
        json_array_foreach((json_t *)(uintptr_t)v, i, one)
        {
            rc = rc ? rc : add_text(w, a, one, err);
        }
        return rc || json_array_size(v) ? rc : mr_error_plain(err, MR_E_USAGE, "'%s' is empty", a->name);
    case ARG_NUMBER:
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return mr_error_plain(err, MR_E_USAGE, "'%s' must be a whole number", a->name);
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
        return add_word(w, a->flag, number) < 0 ? mr_error_set(err, -ENOMEM, "cannot run the command") : 0;
    case ARG_SWITCH: break;
    }
    if (!json_is_boolean(v))
        return mr_error_plain(err, MR_E_USAGE, "'%s' must be true or false", a->name);
    return json_is_true(v) && add_word(w, NULL, a->flag) < 0 ? mr_error_set(err, -ENOMEM, "cannot run the command") : 0;
}

static const struct tool *find_tool(const char *name, bool allow_run)
{
    for (size_t i = 0; name && i < MR_ARRAY_LEN(tools); i++)
        if (!strcmp(tools[i].name, name) && (allow_run || !tools[i].runs))
            return &tools[i];
    return NULL;
}

static int known_arguments(const struct tool *t, const json_t *arguments, struct mr_error *err)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)arguments, key, v)
    {
        const struct arg *a = t->arg;
        while (a->name && strcmp(a->name, key) != 0)
            a++;
        if (!a->name)
            return mr_error_plain(err, MR_E_USAGE, "'%s' has no argument '%.100s'", t->name, key);
    }
    return 0;
}

int mr_mcp_words(const char *tool, const json_t *arguments, bool allow_run, char ***out, bool *runs,
                 struct mr_error *err)
{
    const struct tool *t = find_tool(tool, allow_run);
    struct words w = {0};
    if (!t)
        return mr_error_plain(err, MR_E_USAGE, "there is no tool '%.100s'%s", tool ? tool : "",
                              tool && find_tool(tool, true) ? ": the server was started without --allow-run" : "");
    int rc = arguments && !json_is_object(arguments) ? mr_error_plain(err, MR_E_USAGE, "arguments must be an object")
                                                     : known_arguments(t, arguments, err);
    if (!rc && add_word(&w, NULL, t->command) < 0)
        rc = mr_error_set(err, -ENOMEM, "cannot run the command");
    for (size_t i = 0; i < MR_ARRAY_LEN(t->fixed) && t->fixed[i] && !rc; i++)
        rc = add_word(&w, NULL, t->fixed[i]) < 0 ? mr_error_set(err, -ENOMEM, "cannot run the command") : 0;
    for (const struct arg *a = t->arg; a->name && !rc; a++) {
        const json_t *v = json_object_get(arguments, a->name);
        if (v && !json_is_null(v))
            rc = add_value(&w, a, v, err);
        else if (a->required)
            rc = mr_error_plain(err, MR_E_USAGE, "'%s' wants '%s'", t->name, a->name);
    }
    if (rc)
        mr_mcp_words_free(w.item);
    else
        *out = w.item;
    *runs = t->runs;
    return rc;
}

void mr_mcp_words_free(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}
