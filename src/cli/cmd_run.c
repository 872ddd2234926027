/* `millrace run --dry-run`: the resolved configuration, and what it amounts to. */
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/workload_args.h"

#include <errno.h>

struct run_options {
    const char *workload, *config_dir;
    bool dry_run, json, lenient;
    int64_t ranks;
};

static const struct mr_option run_options[] = {
    {.key = "workload", .type = MR_OPT_STRING, .offset = offsetof(struct run_options, workload), .def = "",
     .flags = MR_OPTF_POSITIONAL, .doc = "A preset's name or a workload file; the same as workload=NAME."},
    {.key = "dry_run", .type = MR_OPT_BOOL, .offset = offsetof(struct run_options, dry_run), .def = "false", .short_flag = 'n',
     .doc = "Prints the resolved configuration, files, bytes, steps and the expected duration; reads and writes no data."},
    {.key = "ranks", .type = MR_OPT_INT, .offset = offsetof(struct run_options, ranks), .def = "0", .min = 0, .max = 1e6,
     .doc = "Ranks of the job (one emulated accelerator each); 0: what the workload was described with, else 1."},
    {.key = "config_dir", .type = MR_OPT_STRING, .offset = offsetof(struct run_options, config_dir), .def = "",
     .doc = "Folder with workload files, searched first; workload/NAME.yaml inside it is found, too.",
     .example = "--config-dir my/configs"},
    {.key = "lenient", .type = MR_OPT_BOOL, .offset = offsetof(struct run_options, lenient), .def = "false",
     .doc = "Unknown keys are noted and ignored."},
    {.key = "json", .type = MR_OPT_BOOL, .offset = offsetof(struct run_options, json), .def = "false",
     .doc = "Prints the result as JSON."},
    MR_OPTION_END,
};

static int print_json(const struct mr_workload *w, const struct mr_plan *p, struct mr_error *err)
{
    json_t *root = json_pack("{s:s, s:o?, s:o?, s:o?, s:o?}", "schema", "millrace.dry_run/1", "workload",
                             mr_cli_workload_json(w), "plan", mr_cli_plan_json(w, p), "config", mr_workload_to_json(w),
                             "notes", mr_cli_strings_json(&w->notes));
    return mr_cli_print_json(stdout, root, err);
}

static void print_text(const struct mr_workload *w, const struct mr_plan *p)
{
    printf("workload %s%s%s%s\n", *w->name ? w->name : "(defaults only)", *w->file ? " (" : "", w->file, *w->file ? ")" : "");
    if (*w->extra.source)
        printf("source   %s\n", w->extra.source);
    puts("\nplan");
    mr_cli_print_plan(stdout, w, p);
    puts("\nconfiguration");
    mr_cli_print_config(stdout, w, true);
    if (w->notes.n)
        puts("\nnotes");
    for (unsigned i = 0; i < w->notes.n; i++)
        printf("  %s\n", w->notes.item[i]);
}

static int run_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct run_options *opt = ctx->options;
    struct mr_workload *w;
    struct mr_plan plan;
    int rc = mr_cli_workload(opt->workload, opt->config_dir, &ctx->overrides, opt->lenient, ctx->arena, &w, err);
    if (rc)
        return rc;
    rc = mr_workload_check_supported(w, err);
    if (!rc)
        rc = mr_plan_make(w, (uint32_t)opt->ranks, &plan, err);
    if (rc)
        return rc;
    if (!opt->dry_run)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "the training run is not part of this version yet; use --dry-run");
    if (opt->json)
        return print_json(w, &plan, err);
    print_text(w, &plan);
    return 0;
}

const struct mr_command mr_cmd_run = {
    .name = "run",
    .synopsis = "--dry-run [WORKLOAD] [KEY=VALUE...] [--ranks N] [--json]",
    .summary = "run a workload (this version: --dry-run only)",
    .details = "WORKLOAD is a preset ('millrace workloads list') or a file in DLIO's format. Overrides use Hydra's syntax: "
               "workload=NAME, ++workload.reader.batch_size=4, +key=value, key=value, ~key; the prefix 'workload.' may be left "
               "out. Precedence: default < file < environment < override.\n\n"
               "  millrace run --dry-run unet3d_h100\n"
               "  millrace run --dry-run workload=resnet50_h100 ++workload.reader.batch_size=4 --ranks 8\n"
               "  millrace run --dry-run my.yaml dataset.num_files_train=1024 --json\n\n"
               "See 'millrace help config' for all keys.\n",
    .table = {.section = "run", .doc = "run", .options = run_options, .struct_bytes = sizeof(struct run_options)},
    .takes_overrides = true,
    .run = run_run,
};
