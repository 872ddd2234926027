/* `millrace workloads`: the presets, one of them in full, and whether they behave like what they stand for. */
#include "preset/check.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "report/preset_text.h"
#include "report/workload_text.h"

#include <string.h>

enum action { ACTION_LIST, ACTION_SHOW, ACTION_CHECK };

struct workloads_options {
    int action;
    const char *name, *config_dir, *dir;
    double scale;
    bool json, keep, allow_plugins;
};

static const char *const actions[] = {"list", "show", "check", NULL};

#define ROW(key, field, type, def, ...) MR_OPTION(workloads_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option workloads_options[] = {
    ROW("action", action, ENUM, "list", .choices = actions, .flags = MR_OPTF_POSITIONAL,
        .doc =
            "list: one line per preset. show: everything about one. check: perform its access pattern at a small scale "
            "and "
            "compare with the figures of its source."),
    ROW("name", name, STRING, "", .flags = MR_OPTF_POSITIONAL,
        .doc = "With show and check: the preset, or a file. With check also 'all'."),
    ROW("config_dir", config_dir, STRING, "", .doc = "Folder with workload files, searched first."),
    ROW("scale", scale, DOUBLE, "0", .min = 0, .max = 1,
        .doc = "With check: size of the data set relative to the original; 0: the preset's own.", .example = "0.01"),
    ROW("dir", dir, STRING, "", .doc = "With check: where the data is put meanwhile; default $TMPDIR or /tmp."),
    ROW("keep", keep, BOOL, "false", .doc = "With check: leave data and traces there."),
    ROW("allow_plugins", allow_plugins, BOOL, "false", .doc = "With check: " MR_DOC_ALLOW_PLUGINS),
    ROW("json", json, BOOL, "false", .doc = "Prints the result as JSON."),
    MR_OPTION_END,
};

/* A plan even for presets this version cannot run. */
static int load(const char *name, const struct mr_strings *path, struct mr_arena *a, struct mr_workload **w,
                struct mr_workload_plan *p, struct mr_error *err)
{
    struct mr_workload_request req = {.workload = name, .search_path = *path};
    int rc = mr_workload_resolve(&req, a, w, err);
    return rc ? rc : mr_plan_make(*w, 0, p, err);
}

static int list(const struct workloads_options *opt, const struct mr_strings *path, struct mr_arena *a,
                struct mr_error *err)
{
    struct mr_strings names;
    int rc = mr_workload_list(path, a, &names, err);
    if (rc)
        return rc;
    json_t *rows = opt->json ? json_array() : NULL;
    int width = mr_cli_widest(&names, 26);
    struct mr_strbuf text = {0};
    mr_report_preset_heads(width, &text);
    int first_rc = 0;
    for (unsigned i = 0; i < names.n; i++) {
        struct mr_error why;
        struct mr_workload *w;
        struct mr_workload_plan p;
        rc = load(names.item[i], path, a, &w, &p, &why);
        if (rc) {
            mr_log(MR_LOG_WARN, "preset '%s' is not usable: %s (%s)", names.item[i], why.message, why.context);
            if (!first_rc) {
                first_rc = rc;
                *err = why;
            }
        } else if (opt->json) {
            json_array_append_new(rows, mr_report_preset_json(w, &p));
        } else {
            mr_report_preset(w, &p, width, &text);
        }
    }
    if (opt->json)
        mr_strbuf_done(&text);
    rc = opt->json ? mr_cli_print_json(
                         stdout, json_pack("{s:s, s:o}", "schema", "millrace.workloads/1", "workloads", rows), err)
                   : mr_cli_print_text(&text, err);
    return first_rc ? first_rc : rc;
}

static int show(const struct workloads_options *opt, const struct mr_strings *path, struct mr_arena *a,
                struct mr_error *err)
{
    struct mr_workload *w;
    struct mr_workload_plan p;
    struct mr_error why;
    if (!*opt->name) {
        mr_error_plain(err, MR_E_USAGE, "argument 'NAME' is missing");
        return mr_error_hint(err, "list the names with 'millrace workloads list'"), MR_E_USAGE;
    }
    int rc = load(opt->name, path, a, &w, &p, err);
    if (rc)
        return rc;
    if (mr_workload_check_supported(w, &why))
        mr_log(MR_LOG_WARN, "%s", why.message);
    if (opt->json)
        return mr_cli_print_json(stdout,
                                 json_pack("{s:s, s:o?, s:o?, s:o?, s:o?}", "schema", "millrace.workload/1", "workload",
                                           mr_report_workload_json(w), "plan", mr_report_plan_json(w, &p), "config",
                                           mr_workload_to_json(w), "notes", mr_strings_to_json(&w->notes)),
                                 err);
    struct mr_strbuf text = {0};
    mr_report_line(&text, "", w->name, " (", w->file, ")");
    if (*w->extra.source)
        mr_report_line(&text, "source: ", w->extra.source, "", "", "");
    for (unsigned i = 0; i < w->extra.notes.n; i++)
        mr_report_line(&text, "", w->extra.notes.item[i], "", "", "");
    mr_strbuf_puts(&text, "\nplan\n");
    mr_report_plan(w, &p, &text);
    mr_strbuf_puts(&text, "\nconfiguration (what is not default)\n");
    mr_report_config(w, false, &text);
    mr_report_expectations(&w->extra, &text);
    if (w->notes.n)
        mr_strbuf_puts(&text, "\nnotes\n");
    for (unsigned i = 0; i < w->notes.n; i++)
        mr_report_line(&text, "  ", w->notes.item[i], "", "", "");
    return mr_cli_print_text(&text, err);
}

/* ---- check ---- */

struct tally {
    unsigned presets, lines, failed, broken;
    json_t *rows;
};

static int check_one(const struct workloads_options *opt, const char *name, const struct mr_strings *path,
                     struct mr_command_ctx *ctx, struct tally *t, struct mr_error *err)
{
    struct mr_workload_request req = {.workload = name, .search_path = *path};
    struct mr_check_params p = {
        .scale = opt->scale, .dir = opt->dir, .keep = opt->keep, .search = path, .stop = ctx->stop};
    struct mr_check_report r;
    struct mr_workload *w;
    int rc = mr_workload_resolve(&req, ctx->arena, &w, err);
    if (!rc)
        rc = mr_check_preset(w, &p, ctx->arena, &r, err);
    if (rc)
        return mr_error_context(err, "preset '%s'", name), rc;
    struct mr_strbuf text = {0};
    if (opt->json)
        json_array_append_new(t->rows, mr_report_preset_check_json(&r));
    else
        mr_report_preset_check(&r, &text);
    if ((rc = mr_cli_print_text(&text, err)))
        return rc;
    fflush(stdout); /* checks take long: each is shown when it ends */
    t->presets++;
    t->lines += r.n_lines;
    t->failed += r.failed;
    return 0;
}

static int check(const struct workloads_options *opt, const struct mr_strings *path, struct mr_command_ctx *ctx,
                 struct mr_error *err)
{
    struct mr_strings names = {.n = 1, .item = (const char *[]){opt->name}};
    struct tally t = {.rows = opt->json ? json_array() : NULL};
    struct mr_error first;
    int rc = 0, broken = 0;
    if (!*opt->name) {
        mr_error_plain(err, MR_E_USAGE, "argument 'NAME' is missing");
        return mr_error_hint(err, "list the names with 'millrace workloads list', or check 'all'"), MR_E_USAGE;
    }
    if (!strcmp(opt->name, "all"))
        rc = mr_workload_list(path, ctx->arena, &names, err);
    for (unsigned i = 0; i < names.n && !rc; i++) {
        struct mr_error why;
        int one = check_one(opt, names.item[i], path, ctx, &t, &why);
        if (one == MR_E_INTERRUPTED || (one && names.n == 1)) {
            rc = one;
            *err = why;
        } else if (one) {
            mr_log(MR_LOG_WARN, "preset '%s' could not be checked: %s", names.item[i], why.message);
            first = broken ? first : why;
            broken = broken ? broken : one;
            t.broken++;
        }
    }
    if (!rc && opt->json)
        rc = mr_cli_print_json(stdout,
                               json_pack("{s:s, s:i, s:i, s:i, s:O}", "schema", "millrace.workloads_check/1", "presets",
                                         (int)t.presets, "expectations", (int)t.lines, "failed", (int)t.failed,
                                         "results", t.rows),
                               err);
    else if (!rc && names.n > 1)
        printf("%u %s, %u %s, %u failed\n", t.presets, mr_plural(t.presets, "preset", "presets"), t.lines,
               mr_plural(t.lines, "expectation", "expectations"), t.failed);
    json_decref(t.rows);
    if (!rc && t.failed)
        rc = mr_error_plain(err, MR_E_BUDGET, "%u of %u expectations failed", t.failed, t.lines);
    if (!rc && broken) {
        *err = first;
        rc = broken;
    }
    return rc;
}

static int workloads_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct workloads_options *opt = ctx->options;
    struct mr_strings path;
    int rc = mr_cli_search_path(opt->config_dir, ctx->arena, &path, err);
    if (rc)
        return rc;
    mr_cli_choose_plugins(opt->action != ACTION_CHECK, opt->allow_plugins);
    if (opt->action == ACTION_LIST && *opt->name)
        return mr_error_plain(err, MR_E_USAGE, "unexpected argument '%.200s' after 'list'", opt->name);
    if (opt->action == ACTION_CHECK)
        return check(opt, &path, ctx, err);
    return opt->action == ACTION_LIST ? list(opt, &path, ctx->arena, err) : show(opt, &path, ctx->arena, err);
}

const struct mr_command mr_cmd_workloads = {
    .name = "workloads",
    .synopsis = "[list | show NAME | check NAME|all] [options]",
    .summary = "list the presets, show one, or check them against their sources",
    .details =
        "Presets are files in DLIO's format with an x-millrace block. They are searched in --config-dir, in "
        "$MILLRACE_WORKLOADS, and where Millrace keeps its own.\n\n"
        "check generates the data set at a small scale, performs the preset's access pattern on emulated storage and "
        "prints target and measured value of every expectation. exact: follows from the pattern and must hold. "
        "shaped: must hold on the emulated storage. native: depends on this machine, reported only. Exit status 3 "
        "when an exact or shaped one fails.\n\n"
        "  millrace workloads list\n  millrace workloads show unet3d_h100\n"
        "  millrace workloads check imagenet-theta\n",
    .table = {.section = "workloads",
              .doc = "workloads",
              .options = workloads_options,
              .struct_bytes = sizeof(struct workloads_options)},
    .run = workloads_run,
};
