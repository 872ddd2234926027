/* `millrace ls`: the runs and traces of folders, a line each, and where their figures changed. */
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "report/page_output.h"
#include "report/print.h"
#include "report/history_text.h"

#include <string.h>

struct ls_options {
    struct mr_strings folder;
    const char *html;
    int64_t threads;
    bool json;
};

#define ROW(key, field, type, def, ...) MR_OPTION(ls_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option ls_options[] = {
    ROW("folder", folder, STRINGS, "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT,
        .doc = "Folders, searched to a depth of 8, or single runs and traces: results of 'millrace run', .mrt, "
               "DFTracer's .pfw, logs of Darshan. Default: the working folder."),
    ROW("html", html, STRING, "", .doc = "Also writes a page with the trends.", .example = "--html trends.html"),
    MR_ROW_THREADS(offsetof(struct ls_options, threads), MR_DOC_THREADS),
    MR_ROW_JSON(offsetof(struct ls_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

static int ls_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    static const char *const here = ".";
    const struct ls_options *o = ctx->options;
    const char *const *path = o->folder.n ? (const char *const *)o->folder.item : &here;
    struct mr_compare_options how = {.threads = (unsigned)o->threads, .stop = ctx->stop};
    struct mr_history h = {0};
    struct mr_strbuf text = {0};
    int rc = strcmp(o->html, "-") == 0 && o->json
                 ? mr_error_plain(err, MR_E_USAGE, "--html - and --json both write to standard output")
                 : mr_history_read(path, o->folder.n ? o->folder.n : 1, &how, &h, err);
    if (!rc && o->json) {
        rc = mr_cli_print_json(stdout, mr_history_json(&h), err);
    } else if (!rc && strcmp(o->html, "-") != 0) {
        mr_history_text(&h, &text);
        rc = mr_cli_print_text(&text, err);
    }
    if (!rc && *o->html)
        rc = mr_history_page(o->html, path[0], &h, err);
    if (!rc && *o->html)
        mr_cli_tell_page(o->html);
    mr_history_done(&h);
    return rc;
}

const struct mr_command mr_cmd_ls = {
    .name = "ls",
    .synopsis = "[options] [FOLDER...]",
    .summary = "runs and traces of a folder, one line each; trends and changes of level",
    .details =
        "One line for each run: when it began, what ran, how long it and its steps took, the share of the time that "
        "training waited for data, verdict and best finding. Runs of one workload or program with as many ranks are a "
        "series; a change of level is called where chance explains it in less than 1 of 100 series.\n\n"
        "Examples:\n"
        "  millrace ls results\n"
        "  millrace ls results --html trends.html",
    .table = {.section = "ls", .doc = "Listing.", .options = ls_options, .struct_bytes = sizeof(struct ls_options)},
    .run = ls_run,
};
