/* `millrace show`: what a data set is, or where one sample of it lies. Reads the manifest only. */
#include "base/common.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "report/print.h"
#include "report/dataset_text.h"

struct show_options {
    const char *folder, *id, *store;
    bool json;
};

#define AT(field) offsetof(struct show_options, field)
#define ROW(key, field, type, def, ...) MR_OPTION(show_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option rows[] = {
    MR_ROW_FOLDER(AT(folder), MR_DOC_FOLDER),
    ROW("id", id, STRING, "", .flags = MR_OPTF_POSITIONAL, .doc = "Number of a sample: shows where it lies."),
    MR_ROW_STORE(AT(store), MR_DOC_STORE),
    MR_ROW_JSON(AT(json), MR_DOC_JSON),
    MR_OPTION_END,
};

static int show_set(const struct show_options *o, const struct mr_dataset *ds, struct mr_error *err)
{
    struct mr_strbuf text = {0};
    json_t *j = NULL;
    int r = o->json ? mr_report_dataset_json(ds, &j, err) : mr_report_dataset(ds, &text, err);
    if (r < 0)
        return r;
    return o->json ? mr_cli_print_json(stdout, j, err) : mr_cli_print_text(&text, err);
}

static int show_sample(const struct show_options *o, const struct mr_dataset *ds, struct mr_error *err)
{
    int64_t id;
    struct mr_sample_place p;
    struct mr_strbuf text = {0};
    if (mr_parse_int(o->id, &id) < 0 || id < 0)
        return mr_error_plain(err, MR_E_USAGE, "bad sample number '%s': want a whole number from 0 up", o->id);
    int r = mr_dataset_locate(ds, (uint64_t)id, &p, err);
    if (r < 0)
        return r;
    if (o->json)
        return mr_cli_print_json(stdout, mr_report_sample_json(ds, (uint64_t)id, &p), err);
    mr_report_sample(ds, (uint64_t)id, &p, &text);
    return mr_cli_print_text(&text, err);
}

static int run_show(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct show_options *o = ctx->options;
    struct mr_dataset *ds;
    int r = mr_dataset_open(o->folder, o->store, &ds, err);
    if (r < 0)
        return r;
    r = *o->id ? show_sample(o, ds, err) : show_set(o, ds, err);
    mr_dataset_close(ds);
    return r;
}

const struct mr_command mr_cmd_show = {
    .name = "show",
    .synopsis = "FOLDER [ID] [--json]",
    .summary = "what a data set is, or where one of its samples lies",
    .details = "Reads the manifest only, so it is as quick for a billion samples as for ten.\n\n"
               "  millrace show /data/unet3d\n"
               "  millrace show /data/unet3d/valid 17 --json\n",
    .table = {.section = "show", .doc = "show", .options = rows, .struct_bytes = sizeof(struct show_options)},
    .run = run_show,
};
