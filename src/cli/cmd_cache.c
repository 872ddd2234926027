/* `millrace cache`: what lies in a cache folder (the SSD class of a run with tiers), whether it is whole, removing data
 * sets from it, and filling it ahead of a run. */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/workers.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "report/print.h"
#include "report/cache_text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum action { ACTION_LS, ACTION_VERIFY, ACTION_DROP, ACTION_FILL };
static const char *const actions[] = {"ls", "verify", "drop", "fill", NULL};

struct cache_options {
    int action;
    const char *folder, *data, *store;
    uint64_t capacity;
    int64_t threads;
    bool all, checksums, json;
};

#define ROW(key, field, type, def, ...) MR_OPTION(cache_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option rows[] = {
    ROW("action", action, ENUM, "ls", .choices = actions, .flags = MR_OPTF_POSITIONAL,
        .doc = "ls: one line per data set. verify: reads everything and compares checksums. drop: removes a data set. "
               "fill: reads a data set into the folder."),
    ROW("folder", folder, STRING, "", .flags = MR_OPTF_POSITIONAL, .doc = "The cache folder."),
    ROW("data", data, STRING, "", .flags = MR_OPTF_POSITIONAL,
        .doc = "With fill: folder of the data set, or a manifest. With drop and verify: the data set's key, or the "
               "beginning of it, or its name, as ls shows them."),
    ROW("capacity", capacity, BYTES, "0", .doc = "With fill: what the folder may take, all data sets together.",
        .example = "100GiB"),
    ROW("all", all, BOOL, "false", .doc = "With drop: every data set."),
    ROW("checksums", checksums, BOOL, "false",
        .doc = "With fill: keep stored checksums too, as runs that verify them do (run --verify)."),
    MR_ROW_THREADS(offsetof(struct cache_options, threads),
                   "With verify and fill: samples that are read at once; 0 = one per CPU."),
    MR_ROW_STORE(offsetof(struct cache_options, store), "With fill: storage stack to read the data set through."),
    MR_ROW_JSON(offsetof(struct cache_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

static struct mr_cache_work work_of(const struct cache_options *o, const struct mr_command_ctx *ctx)
{
    return (struct mr_cache_work){.threads = o->threads ? (unsigned)o->threads : mr_cpus_available(),
                                  .progress = mr_log_shows(MR_LOG_NOTE) ? stderr : NULL,
                                  .stop = ctx->stop};
}

static int list(const struct cache_options *o, struct mr_cache_list *l, struct mr_error *err)
{
    struct mr_strbuf text = {0};
    uint64_t bytes = 0;
    int rc = mr_cache_count(o->folder, l, &bytes, err);
    if (rc || o->json)
        return rc ? rc : mr_cli_print_json(stdout, mr_report_cache_list_json(o->folder, l, bytes), err);
    mr_report_cache_list(o->folder, l, bytes, &text);
    return mr_cli_print_text(&text, err);
}

/* ---- verify ---- */

static void print_bad(void *user, const char *message)
{
    const struct cache_options *o = user;
    if (!o->json)
        printf("%s\n", message);
}

/* Damage is an error also where all of it could be dropped. */
static int judge(const struct cache_options *o, const struct mr_cache_verified *v, struct mr_error *err)
{
    if (v->corrupt) {
        mr_error_plain(err, MR_E_CORRUPT, "'%s' had %" PRIu64 " corrupt %s; %s dropped", o->folder, v->corrupt,
                       mr_plural(v->corrupt, "sample", "samples"), mr_plural(v->corrupt, "it is", "they are"));
        return mr_error_hint(err, "the next run reads them from the source again; look at the device"), MR_E_CORRUPT;
    }
    return v->unreadable ? mr_error_plain(err, -EIO, "%" PRIu64 " %s in '%s' cannot be read", v->unreadable,
                                          mr_plural(v->unreadable, "sample", "samples"), o->folder)
                         : 0;
}

static int verify(struct cache_options *o, const struct mr_cache_list *l, const struct mr_cache_work *how,
                  struct mr_error *err)
{
    struct mr_cache_verified v;
    struct mr_strbuf text = {0};
    int rc = mr_cache_verify(o->folder, l, how, print_bad, o, &v, err);
    if (rc)
        return rc;
    if (!o->json)
        mr_report_cache_verified(o->folder, &v, &text);
    rc = o->json ? mr_cli_print_json(stdout, mr_report_cache_verified_json(o->folder, &v), err)
                 : mr_cli_print_text(&text, err);
    return rc ? rc : judge(o, &v, err);
}

/* ---- drop ---- */

static int drop(const struct cache_options *o, const struct mr_cache_list *l, struct mr_error *err)
{
    struct mr_strbuf text = {0};
    uint64_t freed;
    unsigned kept;
    int rc = mr_cache_drop(o->folder, l, &freed, &kept, err);
    if (rc)
        return rc;
    if (!o->json)
        mr_report_cache_dropped(o->folder, freed, &text);
    rc = o->json ? mr_cli_print_json(stdout, mr_report_cache_dropped_json(o->folder, l->n, freed, kept), err)
                 : mr_cli_print_text(&text, err);
    if (rc || !kept)
        return rc;
    mr_error_plain(err, MR_E_INCOMPLETE,
                   "%u %s of '%s' could not be removed: a job uses %s, or the folder is read-only", kept,
                   mr_plural(kept, "file", "files"), o->folder, mr_plural(kept, "it", "them"));
    return mr_error_hint(err, "drop again when the job has ended"), MR_E_INCOMPLETE;
}

/* ---- fill ---- */

static int print_filled(const struct cache_options *o, uint64_t of_samples, const struct mr_cache_filled *f,
                        struct mr_error *err)
{
    struct mr_strbuf text = {0};
    if (o->json)
        return mr_cli_print_json(stdout, mr_report_cache_filled_json(o->folder, of_samples, f), err);
    mr_report_cache_filled(o->folder, o->data, of_samples, f, &text);
    return mr_cli_print_text(&text, err);
}

/* Ctrl-C: the samples read stay in the folder, and a later fill goes on from there. */
static int fill(const struct cache_options *o, struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct mr_cache_filling q = {
        .folder = o->folder, .name = o->data, .capacity = o->capacity, .checksums = o->checksums};
    const struct mr_cache_work how = work_of(o, ctx);
    struct mr_cache_filled filled;
    struct mr_dataset *ds;
    if (!*o->data || !o->capacity) {
        mr_error_plain(err, MR_E_USAGE, "fill needs a data set and --capacity");
        return mr_error_hint(err, "millrace cache fill %s DATA --capacity 100GiB", o->folder), MR_E_USAGE;
    }
    int rc = mr_dataset_open(o->data, o->store, &ds, err);
    if (rc < 0)
        return rc;
    rc = mr_cache_fill(ds, &q, &how, &filled, err);
    if (!rc || rc == MR_E_INTERRUPTED) {
        int printed = print_filled(o, mr_dataset_count(ds), &filled, rc ? NULL : err);
        rc = rc ? rc : printed;
    }
    ctx->whole = !rc;
    mr_dataset_close(ds);
    return rc;
}

static int cache_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    struct cache_options *o = ctx->options;
    struct mr_cache_list l;
    if (!*o->folder)
        return mr_error_plain(err, MR_E_USAGE, "say which folder: millrace cache %s FOLDER", actions[o->action]);
    if (o->action == ACTION_FILL)
        return fill(o, ctx, err);
    if (o->action == ACTION_DROP && !*o->data == !o->all)
        return mr_error_plain(err, MR_E_USAGE, "say which data set is to be dropped, or --all");
    const struct mr_cache_work how = work_of(o, ctx);
    int rc = mr_cache_list(o->folder, o->data, &l, err);
    if (!rc)
        rc = o->action == ACTION_LS       ? list(o, &l, err)
             : o->action == ACTION_VERIFY ? verify(o, &l, &how, err)
                                          : drop(o, &l, err);
    mr_cache_list_done(&l);
    return rc;
}

const struct mr_command mr_cmd_cache = {
    .name = "cache",
    .synopsis = "[ls | verify | drop | fill] FOLDER [DATA]",
    .summary = "list, verify, drop and fill the SSD folders of tiers",
    .details =
        "A cache folder is what '--tiers ssd=FOLDER:SIZE' keeps samples in, from run to run; several data sets and "
        "several jobs share it. A sample that does not have its checksum is never used: it is dropped and read from "
        "the source again. verify looks for all of them at once (exit status 4 where there were some). drop removes "
        "what no job uses; a folder that is not a cache is refused, and files that are not ours stay.\n\n"
        "fill reads a data set ahead of a run, up to a capacity; Ctrl-C ends it at any time, what was read stays, and "
        "filling again goes on from there.\n\n"
        "  millrace cache ls /nvme/cache\n  millrace cache fill /nvme/cache /data/imagenet --capacity 100GiB\n"
        "  millrace cache verify /nvme/cache\n  millrace cache drop /nvme/cache /data/imagenet\n",
    .table = {.section = "cache", .doc = "cache", .options = rows, .struct_bytes = sizeof(struct cache_options)},
    .run = cache_run,
};
