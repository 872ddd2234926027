/* `millrace workloads`: the presets, one of them in full, and whether they behave like what they stand for. */
#include "job/check.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/workload_args.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"

#include <math.h>
#include <string.h>

enum action { ACTION_LIST, ACTION_SHOW, ACTION_CHECK };

struct workloads_options {
    int action;
    const char *name, *config_dir, *dir;
    double scale;
    bool json, keep;
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
    ROW("json", json, BOOL, "false", .doc = "Prints the result as JSON."),
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
    json_t *j =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:I, s:s, s:b}", "name", w->name, "format",
                  mr_conf_format_name((enum mr_conf_format)w->dataset.format), "samples", (json_int_t)p->train_samples,
                  "dataset_bytes", (json_int_t)llround(p->train_bytes + p->eval_bytes), "batch_size",
                  (json_int_t)w->reader.batch_size, "compute_per_step_s", p->compute_s, "checkpoint_bytes",
                  (json_int_t)llround(p->checkpoint.model_bytes + p->checkpoint.optimizer_bytes), "source",
                  w->extra.source, "supported", (int)supported);
    if (j && !supported)
        json_object_set_new(j, "why_not", json_string(why.message));
    return j;
}

static void print_summary(const struct mr_workload *w, const struct mr_plan *p, int name_width)
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
    printf("%-*s %-20s %13s %11s %6s %12s  %s\n", name_width, w->name,
           data ? mr_conf_format_name((enum mr_conf_format)w->dataset.format) : "(checkpoint)", samples, size, batch,
           compute, w->extra.source);
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
    if (!opt->json)
        printf("%-*s %-20s %13s %11s %6s %12s  %s\n", width, "NAME", "FORMAT", "SAMPLES", "SIZE", "BATCH", "COMPUTE",
               "SOURCE");
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
            print_summary(w, &p, width);
        }
    }
    if (opt->json)
        rc = mr_cli_print_json(stdout, json_pack("{s:s, s:o}", "schema", "millrace.workloads/1", "workloads", rows),
                               err);
    return first_rc ? first_rc : opt->json ? rc : 0;
}

static const char *const classes[] = {"exact", "shaped", "native"};

/* "= 0.07 +- 20 %", ">= 0.98" */
static const char *target_text(const struct mr_expectation *e, char *out, size_t cap)
{
    int n = 0;
    const struct {
        const char *sign;
        double value;
    } parts[] = {{"= ", e->eq}, {">= ", e->ge}, {"<= ", e->le}};
    *out = '\0';
    for (unsigned i = 0; i < 3; i++)
        if (!isnan(parts[i].value) && n < (int)cap)
            n += snprintf(out + n, cap - (size_t)n, "%s%s%.10g", n ? " " : "", parts[i].sign, parts[i].value);
    if (e->tol > 0 && n < (int)cap)
        snprintf(out + n, cap - (size_t)n, " +- %.4g %%", e->tol * 100);
    return out;
}

static void print_expectation(const struct mr_expectation *e)
{
    char target[128];
    printf("  %-48s %s (%s)\n", e->metric, target_text(e, target, sizeof target), classes[e->cls]);
}

static int show(const struct workloads_options *opt, const struct mr_strings *path, struct mr_arena *a,
                struct mr_error *err)
{
    struct mr_workload *w;
    struct mr_plan p;
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
                                           mr_cli_workload_json(w), "plan", mr_cli_plan_json(w, &p), "config",
                                           mr_workload_to_json(w), "notes", mr_strings_to_json(&w->notes)),
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

/* ---- check ---- */

static const char *const verdicts[] = {"ok", "FAIL", "reported", "skipped"};

static void print_report(const struct mr_check_report *r)
{
    char size[MR_HUMAN_LEN], target[128], scaled[64];
    const struct mr_check_shape *s = &r->shape;
    printf("%s: ", r->name);
    if (s->reads)
        printf("scale %.6g, %u %s, %s, ", s->factor, s->ranks, mr_plural(s->ranks, "rank", "ranks"),
               mr_human_bytes(s->data_bytes, size));
    printf("%.1f s", r->seconds);
    if (r->attempts > 1)
        printf(", %u attempts", r->attempts);
    printf("%s%s\n", r->skipped ? "; plan only: " : "", r->skipped ? r->skipped : "");
    int width = 48;
    for (unsigned i = 0; i < r->n_lines; i++)
        width = MR_MAX(width, (int)strlen(r->lines[i].e->metric));
    for (unsigned i = 0; i < r->n_lines; i++) {
        const struct mr_check_line *l = &r->lines[i];
        *scaled = '\0';
        if (fabs(l->ratio - 1) > 1e-12)
            snprintf(scaled, sizeof scaled, "  scaled back by %.6g", l->ratio);
        printf("  %-*s %-24s %14.6g  %-6s %s%s%s%s\n", width, l->e->metric, target_text(l->e, target, sizeof target),
               l->measured, classes[l->e->cls], verdicts[l->verdict], *l->why ? ": " : "", l->why, scaled);
    }
    if (r->n_lines == 0)
        puts("  no expectations: it ran, but nothing was compared; x-millrace.expect says what to check "
             "('millrace help config')");
    fflush(stdout);
}

static json_t *report_json(const struct mr_check_report *r)
{
    json_t *lines = json_array();
    for (unsigned i = 0; lines && i < r->n_lines; i++) {
        const struct mr_check_line *l = &r->lines[i];
        char target[128];
        json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:f}", "metric", l->e->metric, "target",
                              target_text(l->e, target, sizeof target), "class", classes[l->e->cls], "verdict",
                              verdicts[l->verdict], "scaled_by", l->ratio);
        if (j && *l->why)
            json_object_set_new(j, "why", json_string(l->why));
        if (j && !isnan(l->measured))
            json_object_set_new(j, "measured", json_real(l->measured));
        json_array_append_new(lines, j);
    }
    return json_pack("{s:s, s:f, s:i, s:I, s:f, s:i, s:i, s:s*, s:o}", "name", r->name, "scale", r->shape.factor,
                     "ranks", (int)r->shape.ranks, "data_bytes",
                     (json_int_t)llround(r->shape.reads ? r->shape.data_bytes : 0), "duration_s", r->seconds,
                     "attempts", (int)r->attempts, "failed", (int)r->failed, "plan_only_because", r->skipped,
                     "expectations", lines);
}

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
    if (opt->json)
        json_array_append_new(t->rows, report_json(&r));
    else
        print_report(&r);
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
