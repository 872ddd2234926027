/* `millrace doctor`: what on this machine will distort results, and what to do about it. Looks, tries a small temporary
 * file in PATH, changes nothing. Warnings do not change the exit status: they are the result. */
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "base/strbuf.h"
#include "loader/policy_choice.h"
#include "probe/doctor.h"
#include "report/name_json.h"

#include "build_info.h"

#include <errno.h>
#include <string.h>

struct doctor_options {
    const char *path;
    bool json;
};

#define ROW(key, field, type, def, ...) MR_OPTION(doctor_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option doctor_options[] = {
    ROW("path", path, STRING, ".", .flags = MR_OPTF_POSITIONAL,
        .doc = "The folder where data sets would lie, or s3://BUCKET/PREFIX.", .example = "millrace doctor /scratch"),
    MR_ROW_JSON(offsetof(struct doctor_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

static const char *const level_names[] = {"OK", "NOTE", "WARN"};

/* Advice under the value, broken at about 100 columns. */
static void print_advice(const char *text)
{
    while (*text) {
        size_t len = strlen(text), cut = len;
        if (len > 98)
            for (cut = 98; cut > 20 && text[cut] != ' ';)
                cut--;
        printf("                          %.*s\n", (int)cut, text);
        text += cut + (text[cut] == ' ');
    }
}

static void print_text(const struct mr_doctor *d)
{
    for (unsigned i = 0; i < d->n; i++) {
        const struct mr_doctor_finding *f = &d->finding[i];
        printf("%-5s %-19s %s\n", level_names[f->level], f->topic, f->value);
        print_advice(f->advice);
    }
    unsigned warn = mr_doctor_count(d, MR_DOCTOR_WARN), note = mr_doctor_count(d, MR_DOCTOR_NOTE);
    printf("\n%u %s, %u %s for '%s'\n", warn, mr_plural(warn, "warning", "warnings"), note,
           mr_plural(note, "note", "notes"), d->path);
}

static int print_json(const struct mr_doctor *d, struct mr_error *err)
{
    static const char *const names[] = {"ok", "note", "warn"};
    json_t *checks = json_array();
    for (unsigned i = 0; i < d->n; i++)
        json_array_append_new(checks, json_pack("{s:s, s:s, s:o, s:s}", "topic", d->finding[i].topic, "level",
                                                names[d->finding[i].level], "value", mr_name_json(d->finding[i].value),
                                                "advice", d->finding[i].advice));
    json_t *root =
        json_pack("{s:s, s:o, s:i, s:i}", "schema", "millrace.doctor/1", "path", mr_name_json(d->path), "warnings",
                  (int)mr_doctor_count(d, MR_DOCTOR_WARN), "notes", (int)mr_doctor_count(d, MR_DOCTOR_NOTE));
    for (unsigned i = 0; i < d->n_figures; i++) {
        double v = d->figure[i].value;
        bool whole = v >= 0 && v < 0x1p62 && v == (double)(json_int_t)v;
        json_object_set_new(root, d->figure[i].key, whole ? json_integer((json_int_t)v) : json_real(v));
    }
    json_object_set_new(root, "checks", checks);
    return mr_cli_print_json(stdout, root, err);
}

/* What `run --tiers auto` would take of this machine for one rank and a data set without an end. */
static void add_tiers(struct mr_doctor *d)
{
    char sizes[256];
    struct mr_error why;
    if (mr_policy_tell_tiers("auto", UINT64_C(1) << 59, MR_MIB, 1, sizes, sizeof sizes, &why) == 0)
        mr_doctor_add(d, "tiers", MR_DOCTOR_OK, "", "--tiers auto may take %s", sizes);
    else
        mr_doctor_add(d, "tiers", MR_DOCTOR_NOTE, "Policies that keep samples have nowhere to keep them in memory.",
                      "%s", why.message);
}

static int doctor_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct doctor_options *o = ctx->options;
    struct mr_doctor *d = mr_arena_alloc(ctx->arena, sizeof(*d));
    if (!d)
        return mr_error_set(err, -ENOMEM, "cannot examine this machine");
    int rc = mr_doctor_examine(o->path, MR_BUILD_URING, ctx->arena, d, err);
    if (rc)
        return rc;
    add_tiers(d);
    if (o->json)
        return print_json(d, err);
    print_text(d);
    return 0;
}

const struct mr_command mr_cmd_doctor = {
    .name = "doctor",
    .synopsis = "[PATH] [--json]",
    .summary = "say what on this machine will distort results, and what to do about it",
    .details = "Each line is OK, NOTE or WARN. Examines the file system of PATH (default: here), memory, cores, "
               "clocks, limits, io_uring and MPI. It writes and removes one temporary file of 1 MiB in PATH, if it "
               "may. Of s3://BUCKET/PREFIX it examines the endpoint, whose credentials are used and when they end, the "
               "server's "
               "clock, and how many requests at a time are answered. The exit status is 0 whatever it finds, 5 if PATH "
               "cannot be examined.\n\n"
               "  millrace doctor /scratch\n  millrace doctor --json | jq '.checks[] | select(.level==\"warn\")'\n",
    .table = {.section = "doctor",
              .doc = "Examining the machine.",
              .options = doctor_options,
              .struct_bytes = sizeof(struct doctor_options)},
    .run = doctor_run,
};
