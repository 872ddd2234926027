/* `millrace workloads`: the presets, and one of them in full. */
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/workload_args.h"
#include "base/log.h"
#include "base/strbuf.h"

#include <math.h>
#include <string.h>

enum action { ACTION_LIST, ACTION_SHOW };

struct workloads_options {
    int action;
    const char *name, *config_dir;
    bool json;
};

static const char *const actions[] = {"list", "show", NULL};

static const struct mr_option workloads_options[] = {
    {.key = "action", .type = MR_OPT_ENUM, .offset = offsetof(struct workloads_options, action), .def = "list",
     .choices = actions, .flags = MR_OPTF_POSITIONAL, .doc = "list: one line per preset. show: everything about one."},
    {.key = "name", .type = MR_OPT_STRING, .offset = offsetof(struct workloads_options, name), .def = "",
     .flags = MR_OPTF_POSITIONAL, .doc = "With show: the preset, or a file."},
    {.key = "config_dir", .type = MR_OPT_STRING, .offset = offsetof(struct workloads_options, config_dir), .def = "",
     .doc = "Folder with workload files, searched first."},
    {.key = "json", .type = MR_OPT_BOOL, .offset = offsetof(struct workloads_options, json), .def = "false",
     .doc = "Prints the result as JSON."},
    MR_OPTION_END,
};

/* A plan even for presets this version cannot run. */
static int load(const char *name, const struct mr_strings *path, struct mr_arena *a, struct mr_workload **w,
                struct mr_plan *p, struct mr_error *err)
{
    struct mr_workload_request req = {.workload = name, .search_path = *path};
    int rc = mr_workload_resolve(&req, a, w, err);
    return rc ? rc : mr_plan_make(*w, 0, p, err);
}

static json_t *summary_json(const struct mr_workload *w, const struct mr_plan *p)
{
    struct mr_error why;
    bool supported = mr_workload_check_supported(w, &why) == 0;
    json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:I, s:s, s:b}", "name", w->name, "format",
                          mr_conf_format_name((enum mr_conf_format)w->dataset.format), "samples",
                          (json_int_t)p->train_samples, "dataset_bytes", (json_int_t)llround(p->train_bytes + p->eval_bytes), "batch_size",
                          (json_int_t)w->reader.batch_size, "compute_per_step_s", p->compute_s, "checkpoint_bytes",
                          (json_int_t)llround(p->checkpoint.model_bytes + p->checkpoint.optimizer_bytes), "source", w->extra.source, "supported",
                          (int)supported);
    if (j && !supported)
        json_object_set_new(j, "why_not", json_string(why.message));
    return j;
}

static void print_summary(const struct mr_workload *w, const struct mr_plan *p)
{
    char samples[MR_HUMAN_LEN] = "-", size[MR_HUMAN_LEN] = "-", batch[24] = "-", compute[32] = "-";
    bool data = p->train_samples > 0;
    if (data) {
        mr_human_count(p->train_samples, samples);
        mr_human_bytes(p->train_bytes + p->eval_bytes, size);
        snprintf(batch, sizeof batch, "%lld", (long long)w->reader.batch_size);
        snprintf(compute, sizeof compute, "%.6g s", p->compute_s);
    } else if (w->workflow.checkpoint) {
        mr_human_bytes(p->checkpoint.model_bytes + p->checkpoint.optimizer_bytes, size);
    }
    printf("%-26s %-20s %13s %11s %6s %12s  %s\n", w->name,
           data ? mr_conf_format_name((enum mr_conf_format)w->dataset.format) : "(checkpoint)", samples, size, batch, compute,
           w->extra.source);
}

static int list(const struct workloads_options *opt, const struct mr_strings *path, struct mr_arena *a, struct mr_error *err)
{
    struct mr_strings names;
    int rc = mr_workload_list(path, a, &names, err);
    if (rc)
        return rc;
    json_t *rows = opt->json ? json_array() : NULL;
    if (!opt->json)
        printf("%-26s %-20s %13s %11s %6s %12s  %s\n", "NAME", "FORMAT", "SAMPLES", "SIZE", "BATCH", "COMPUTE", "SOURCE");
    int first_rc = 0;
    for (unsigned i = 0; i < names.n; i++) {
        struct mr_error why;
        struct mr_workload *w;
        struct mr_plan p;
        rc = load(names.item[i], path, a, &w, &p, &why);
        if (rc) {
            mr_log(MR_LOG_WARN, "preset '%s' is not usable: %s (%s)", names.item[i], why.message, why.context);
            if (!first_rc) {
                first_rc = rc;
                *err = why;
            }
        } else if (opt->json) {
            json_array_append_new(rows, summary_json(w, &p));
        } else {
            print_summary(w, &p);
        }
    }
    if (opt->json)
        rc = mr_cli_print_json(stdout, json_pack("{s:s, s:o}", "schema", "millrace.workloads/1", "workloads", rows), err);
    return first_rc ? first_rc : opt->json ? rc : 0;
}

static void print_expectation(const struct mr_expectation *e)
{
    static const char *const classes[] = {"exact", "shaped", "native"};
    printf("  %-40s", e->metric);
    if (!isnan(e->eq))
        printf(" = %.10g", e->eq);
    if (!isnan(e->ge))
        printf(" >= %.10g", e->ge);
    if (!isnan(e->le))
        printf(" <= %.10g", e->le);
    if (e->tol > 0)
        printf(" +- %.4g %%", e->tol * 100);
    printf(" (%s)\n", classes[e->cls]);
}

static int show(const struct workloads_options *opt, const struct mr_strings *path, struct mr_arena *a, struct mr_error *err)
{
    struct mr_workload *w;
    struct mr_plan p;
    struct mr_error why;
    if (!*opt->name) {
        mr_error_plain(err, MR_E_USAGE, "argument 'NAME' is missing");
        return mr_error_hint(err, "list the names with 'millrace workloads list'");
    }
    int rc = load(opt->name, path, a, &w, &p, err);
    if (rc)
        return rc;
    if (mr_workload_check_supported(w, &why))
        mr_log(MR_LOG_WARN, "%s", why.message);
    if (opt->json)
        return mr_cli_print_json(stdout,
                                 json_pack("{s:s, s:o?, s:o?, s:o?, s:o?}", "schema", "millrace.workload/1", "workload",
                                           mr_cli_workload_json(w), "plan", mr_cli_plan_json(w, &p), "config",
                                           mr_workload_to_json(w), "notes", mr_cli_strings_json(&w->notes)),
                                 err);
    printf("%s (%s)\n", w->name, w->file);
    if (*w->extra.source)
        printf("source: %s\n", w->extra.source);
    for (unsigned i = 0; i < w->extra.notes.n; i++)
        printf("%s\n", w->extra.notes.item[i]);
    puts("\nplan");
    mr_cli_print_plan(stdout, w, &p);
    puts("\nconfiguration (what is not default)");
    mr_cli_print_config(stdout, w, false);
    if (w->extra.n_expect)
        puts("\nexpectations");
    for (unsigned i = 0; i < w->extra.n_expect; i++)
        print_expectation(&w->extra.expect[i]);
    if (w->notes.n)
        puts("\nnotes");
    for (unsigned i = 0; i < w->notes.n; i++)
        printf("  %s\n", w->notes.item[i]);
    return 0;
}

static int workloads_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct workloads_options *opt = ctx->options;
    struct mr_strings path;
    int rc = mr_cli_search_path(opt->config_dir, ctx->arena, &path, err);
    if (rc)
        return rc;
    if (opt->action == ACTION_LIST && *opt->name)
        return mr_error_plain(err, MR_E_USAGE, "unexpected argument '%.200s' after 'list'", opt->name);
    return opt->action == ACTION_LIST ? list(opt, &path, ctx->arena, err) : show(opt, &path, ctx->arena, err);
}

const struct mr_command mr_cmd_workloads = {
    .name = "workloads",
    .synopsis = "[list | show NAME] [--json]",
    .summary = "list the presets, or show one of them",
    .details = "Presets are files in DLIO's format with an x-millrace block. They are searched in --config-dir, in "
               "$MILLRACE_WORKLOADS, and where Millrace keeps its own.\n\n"
               "  millrace workloads list\n  millrace workloads show unet3d_h100\n",
    .table = {.section = "workloads", .doc = "workloads", .options = workloads_options,
              .struct_bytes = sizeof(struct workloads_options)},
    .run = workloads_run,
};
