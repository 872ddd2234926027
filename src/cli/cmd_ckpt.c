/* `millrace ckpt`: what lies in a folder of checkpoints, whether it is whole, removing one, and how often to save. */
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/workers.h"
#include "base/text_escape.h"
#include "base/regular_file.h"
#include "checkpoint/checkpoint_read.h"
#include "checkpoint/checkpoint_foreign.h"
#include "metrics/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <millrace/state.h>
#include <stdlib.h>
#include <string.h>

enum action { ACTION_LS, ACTION_SHOW, ACTION_VERIFY, ACTION_RM, ACTION_INTERVAL };

struct ckpt_options {
    int action;
    const char *folder, *store;
    int64_t step, threads;
    uint64_t mtbf, cost;
    bool json, force;
};

static const char *const actions[] = {"ls", "show", "verify", "rm", "interval", NULL};

#define ROW(key, field, type, def, ...) MR_OPTION(ckpt_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option ckpt_options[] = {
    ROW("action", action, ENUM, "ls", .choices = actions, .flags = MR_OPTF_POSITIONAL,
        .doc = "ls: one line per checkpoint. show: the files and tensors of one. verify: reads all of one and compares "
               "checksums. rm: removes one. interval: how often to save."),
    ROW("folder", folder, STRING, "", .flags = MR_OPTF_POSITIONAL,
        .doc = "The folder that checkpoints are kept in; with interval the results folder of a run, for the cost of a "
               "save."),
    ROW("step", step, INT, "-1", .min = -1, .max = 1e18, .doc = "Which checkpoint; -1: the newest complete one."),
    ROW("store", store, STRING, "posix", .doc = "Storage stack to read through."),
    MR_ROW_THREADS(offsetof(struct ckpt_options, threads),
                   "With verify: files that are read at once; 0 = one per CPU."),
    ROW("force", force, BOOL, "false", .doc = "With rm: also the only complete one."),
    ROW("mtbf", mtbf, DURATION, "0", .doc = "With interval: mean time between failures of the whole job.",
        .example = "6h"),
    ROW("cost", cost, DURATION, "0", .doc = "With interval: how long one save holds up training.", .example = "12s"),
    MR_ROW_JSON(offsetof(struct ckpt_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

/* ---- finding ---- */

/* The checkpoint that --step means; its path and its list. */
static int choose(const struct ckpt_options *o, const struct mr_checkpoint_place *at, struct mr_path *dir,
                  struct mr_checkpoint_list *list, struct mr_error *err)
{
    int rc = mr_checkpoint_find(at->store, at->folder, o->step < 0 ? MR_ALL_STEPS : (uint64_t)o->step, dir, err);
    return rc ? rc : mr_checkpoint_read_list(at, dir->text, list, err);
}

static uint64_t bytes_of(const struct mr_checkpoint_list *l)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < l->n; i++)
        bytes += l->items[i].bytes;
    return bytes;
}

/* ---- ls ---- */

static void print_row(const struct mr_checkpoint_dir *d, const struct mr_checkpoint_list *l, const char *why)
{
    char size[MR_HUMAN_LEN], files[MR_HUMAN_LEN];
    if (!d->usable)
        printf("%12" PRIu64 "  %-10s %s\n", d->step, "unfinished", "the next save removes it");
    else if (why)
        printf("%12" PRIu64 "  %-10s %s\n", d->step, "damaged", why);
    else
        printf("%12" PRIu64 "  %-10s %10s %8s files  %5u ranks%s\n", d->step, "complete",
               mr_human_bytes((double)bytes_of(l), size), mr_human_count(l->n, files), l->world,
               l->fsync ? "" : "  (not synced)");
}

static void print_nothing(const struct mr_checkpoint_place *at)
{
    struct mr_error what = {0};
    mr_checkpoint_hint_foreign(at->store, at->folder, &what);
    printf("no checkpoints in %s%s%s\n", at->folder, what.hint[0] ? ": " : "", what.hint);
}

static int list_all(const struct ckpt_options *o, const struct mr_checkpoint_place *at, struct mr_error *err)
{
    struct mr_checkpoint_dirs d;
    json_t *rows = json_array();
    int rc = mr_checkpoint_dirs_read(at->store, at->folder, &d, err);
    if (rc == -ENOTDIR)
        mr_checkpoint_hint_foreign(at->store, at->folder, err);
    if (rc) {
        json_decref(rows);
        return rc;
    }
    if (!o->json && d.n)
        printf("%12s  %-10s %10s %14s %12s\n", "step", "state", "size", "", "");
    for (size_t i = 0; i < d.n; i++) {
        struct mr_checkpoint_list l = {0};
        struct mr_error why = {0};
        bool usable = d.item[i].usable;
        struct mr_path dir = mr_checkpoint_dir_path(at->folder, d.item[i].step, d.item[i].kind);
        int bad = usable ? mr_checkpoint_read_list(at, dir.text, &l, &why) : 0;
        if (o->json)
            json_array_append_new(rows,
                                  json_pack("{s:I, s:s, s:I, s:I, s:I}", "step", (json_int_t)d.item[i].step, "state",
                                            !usable ? "unfinished"
                                            : bad   ? "damaged"
                                                    : "complete",
                                            "bytes", (json_int_t)bytes_of(&l), "files", (json_int_t)l.n, "ranks",
                                            (json_int_t)l.world));
        else
            print_row(&d.item[i], &l, bad ? why.message : NULL);
        mr_checkpoint_list_done(&l);
    }
    if (!o->json && !d.n)
        print_nothing(at);
    mr_checkpoint_dirs_done(&d);
    if (o->json)
        return mr_cli_print_json(stdout, json_pack("{s:s, s:o}", "schema", "millrace.ckpt/1", "checkpoints", rows),
                                 err);
    json_decref(rows);
    return 0;
}

/* ---- show ---- */

static void shape_text(const struct mr_stored_tensor *t, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "[");
    for (unsigned d = 0; d < t->dims && n < cap; d++)
        n += (size_t)snprintf(out + n, cap - n, "%s%" PRIu64, d ? ", " : "", t->shape[d]);
    if (n < cap)
        snprintf(out + n, cap - n, "]");
}

static void print_tensor(const struct mr_stored_tensor *t)
{
    char shape[256], size[MR_HUMAN_LEN], name[512];
    shape_text(t, shape, sizeof shape);
    printf("  rank %-4u %-8s %-24s %10s  %s\n", t->rank, t->dtype, shape, mr_human_bytes((double)t->bytes, size),
           mr_name_escape(t->name, name, sizeof name));
}

static json_t *tensor_json(const struct mr_stored_tensor *t)
{
    json_t *shape = json_array();
    for (unsigned d = 0; d < t->dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
    return json_pack("{s:s, s:I, s:s, s:o, s:I}", "name", t->name, "rank", (json_int_t)t->rank, "dtype", t->dtype,
                     "shape", shape, "bytes", (json_int_t)t->bytes);
}

/* Tensors, where it has any: a checkpoint of an emulated training has files only. rows: NULL without --json. */
static int show_tensors(const struct ckpt_options *o, uint64_t step, json_t *rows, struct mr_error *err)
{
    struct mr_state_reader *r;
    struct mr_state_params p = {.size = sizeof p, .folder = o->folder, .store = o->store, .step = step};
    int rc = mr_state_open(&p, &r, err);
    if (rc)
        return rc == MR_E_FORMAT ? 0 : rc;
    for (size_t i = 0; i < mr_state_tensors(r); i++)
        if (o->json)
            json_array_append_new(rows, tensor_json(mr_state_tensor(r, i)));
        else
            print_tensor(mr_state_tensor(r, i));
    mr_state_close(r);
    return 0;
}

/* One file of tensors, of any program. */
static bool is_file_of_tensors(const char *path)
{
    size_t n = strlen(path), e = strlen(".safetensors");
    return n > e && strcmp(path + n - e, ".safetensors") == 0;
}

static int show_file(const struct ckpt_options *o, struct mr_error *err)
{
    json_t *tensors = json_array();
    int rc = show_tensors(o, MR_ALL_STEPS, tensors, err);
    if (!rc && o->json)
        return mr_cli_print_json(stdout, json_pack("{s:s, s:o}", "schema", "millrace.ckpt_show/1", "tensors", tensors),
                                 err);
    json_decref(tensors);
    return rc;
}

static int show(const struct ckpt_options *o, const struct mr_checkpoint_place *at, struct mr_error *err)
{
    struct mr_path dir;
    char size[MR_HUMAN_LEN];
    struct mr_checkpoint_list l;
    json_t *files = json_array();
    int rc = choose(o, at, &dir, &l, err);
    if (rc) {
        json_decref(files);
        return rc;
    }
    if (!o->json)
        printf("%s: step %" PRIu64 ", %u ranks, %s\n", dir.text, l.step, l.world,
               mr_human_bytes((double)bytes_of(&l), size));
    for (size_t i = 0; i < l.n; i++)
        if (o->json)
            json_array_append_new(files, json_pack("{s:s, s:I, s:I}", "name", l.items[i].name, "bytes",
                                                   (json_int_t)l.items[i].bytes, "rank", (json_int_t)l.items[i].rank));
        else
            printf("  %-40s %10s\n", l.items[i].name, mr_human_bytes((double)l.items[i].bytes, size));
    json_t *tensors = json_array();
    rc = show_tensors(o, l.step, tensors, err);
    if (o->json && !rc)
        rc = mr_cli_print_json(stdout,
                               json_pack("{s:s, s:I, s:I, s:o, s:o}", "schema", "millrace.ckpt_show/1", "step",
                                         (json_int_t)l.step, "ranks", (json_int_t)l.world, "files", files, "tensors",
                                         tensors),
                               err);
    else
        json_decref(files), json_decref(tensors);
    mr_checkpoint_list_done(&l);
    return rc;
}

/* ---- verify, rm ---- */

static bool is_stopped(void *user)
{
    return atomic_load((const atomic_bool *)user);
}

static int verify(const struct ckpt_options *o, const struct mr_checkpoint_place *at, const atomic_bool *stop,
                  struct mr_error *err)
{
    struct mr_path dir;
    char size[MR_HUMAN_LEN];
    struct mr_checkpoint_params p = {.world = 1,
                                     .threads = o->threads ? (unsigned)o->threads : mr_cpus_available(),
                                     .buffer_bytes = 4 * MR_MIB,
                                     .stopped = is_stopped,
                                     .user = (void *)(uintptr_t)stop};
    struct mr_checkpoint_list l;
    uint64_t read_ns = 0;
    int rc = choose(o, at, &dir, &l, err);
    if (rc)
        return rc;
    rc = mr_checkpoint_verify(&p, at, dir.text, &l, &read_ns, err);
    if (!rc && !o->json)
        printf("%s: complete, %zu files and %s match their checksums\n", dir.text, l.n,
               mr_human_bytes((double)bytes_of(&l), size));
    if (!rc && o->json)
        rc = mr_cli_print_json(stdout,
                               json_pack("{s:s, s:I, s:I, s:I, s:b}", "schema", "millrace.ckpt_verify/1", "step",
                                         (json_int_t)l.step, "files", (json_int_t)l.n, "bytes",
                                         (json_int_t)bytes_of(&l), "complete", 1),
                               err);
    mr_checkpoint_list_done(&l);
    return rc;
}

/* How many complete ones there are besides this step. */
static int count_others(const struct mr_checkpoint_place *at, uint64_t step, unsigned *n, bool *there,
                        struct mr_error *err)
{
    struct mr_checkpoint_dirs d;
    int rc = mr_checkpoint_dirs_read(at->store, at->folder, &d, err);
    if (rc)
        return rc;
    *n = 0;
    *there = false;
    for (size_t i = 0; i < d.n; i++) {
        bool usable = d.item[i].usable;
        *there |= usable && d.item[i].step == step && d.item[i].kind != MR_CHECKPOINT_OLD;
        *n += usable && d.item[i].step != step;
    }
    mr_checkpoint_dirs_done(&d);
    return 0;
}

static int remove_one(const struct ckpt_options *o, const struct mr_checkpoint_place *at, struct mr_error *err)
{
    unsigned others;
    bool there;
    if (o->step < 0)
        return mr_error_plain(err, MR_E_USAGE, "say which one: --step N");
    int rc = count_others(at, (uint64_t)o->step, &others, &there, err);
    if (rc)
        return rc;
    if (!there)
        return mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint of step %lld in '%s'",
                              (long long)o->step, at->folder);
    if (!others && !o->force) {
        mr_error_plain(err, MR_E_USAGE, "step %lld is the only complete checkpoint in '%s'", (long long)o->step,
                       at->folder);
        return mr_error_hint(err, "--force removes it all the same"), MR_E_USAGE;
    }
    return mr_checkpoint_retire(at->store, at->folder, (uint64_t)o->step, err);
}

/* ---- interval ---- */

/* The mean time of a save in the results of a run. */
static int cost_of_run(const char *folder, double *cost, struct mr_error *err)
{
    char path[4200];
    json_error_t why;
    double mean = 0;
    snprintf(path, sizeof path, "%.4096s/summary.json", folder);
    FILE *f = mr_fopen_regular(path);
    if (!f)
        return mr_error_set(err, -errno, "cannot read '%s'", path);
    json_t *root = json_loadf(f, 0, &why);
    fclose(f);
    if (!root)
        return mr_error_plain(err, MR_E_USAGE, "cannot read '%s': %s", path, why.text);
    int bad = json_unpack(root, "{s:{s:{s:{s:F}}}}", "millrace", "checkpoint", "save_s", "mean", &mean);
    json_decref(root);
    if (bad || !(mean > 0))
        return mr_error_plain(err, MR_E_USAGE, "'%s' has no checkpoints that were saved", path);
    *cost = mean;
    return 0;
}

static int interval(const struct ckpt_options *o, struct mr_error *err)
{
    double mtbf = (double)o->mtbf * 1e-9, cost = (double)o->cost * 1e-9;
    char every[MR_HUMAN_LEN], young_text[MR_HUMAN_LEN], each[MR_HUMAN_LEN];
    int rc = !o->cost && *o->folder ? cost_of_run(o->folder, &cost, err) : 0;
    if (rc)
        return rc;
    if (!(mtbf > 0) || !(cost > 0)) {
        mr_error_plain(err, MR_E_USAGE,
                       "interval needs --mtbf, and --cost or the results folder of a run with checkpoints");
        return mr_error_hint(err, "millrace ckpt interval --mtbf 6h --cost 12s"), MR_E_USAGE;
    }
    double young, lost, best = mr_checkpoint_interval(cost, mtbf, &young, &lost);
    if (lost >= 1)
        return mr_error_plain(err, MR_E_USAGE,
                              "no interval helps: with saves of %s and a failure every %s training does not get on",
                              mr_human_ns(cost * 1e9, each), mr_human_ns(mtbf * 1e9, every));
    if (o->json)
        return mr_cli_print_json(stdout,
                                 json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "schema", "millrace.ckpt_interval/1",
                                           "interval_s", best, "young_s", young, "cost_s", cost, "mtbf_s", mtbf,
                                           "lost_share", lost),
                                 err);
    printf("save every %s (Daly; Young %s): a save costs %s, and %.2f %% of the time is lost\n",
           mr_human_ns(best * 1e9, every), mr_human_ns(young * 1e9, young_text), mr_human_ns(cost * 1e9, each),
           100 * lost);
    return 0;
}

static int ckpt_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct ckpt_options *o = ctx->options;
    struct mr_checkpoint_place at;
    if (o->action == ACTION_INTERVAL)
        return interval(o, err);
    if (!*o->folder || strlen(o->folder) > MR_CHECKPOINT_FOLDER_MAX)
        return mr_error_plain(err, MR_E_USAGE, "say which folder: millrace ckpt %s FOLDER", actions[o->action]);
    int rc = mr_checkpoint_place_open(o->folder, o->store, 0, NULL, &at, err);
    if (rc)
        return rc;
    if (o->action == ACTION_SHOW && is_file_of_tensors(o->folder)) {
        mr_checkpoint_place_close(&at);
        return show_file(o, err);
    }
    rc = o->action == ACTION_LS       ? list_all(o, &at, err)
         : o->action == ACTION_SHOW   ? show(o, &at, err)
         : o->action == ACTION_VERIFY ? verify(o, &at, ctx->stop, err)
                                      : remove_one(o, &at, err);
    mr_checkpoint_place_close(&at);
    return rc;
}

const struct mr_command mr_cmd_ckpt = {
    .name = "ckpt",
    .synopsis = "[ls | show | verify | rm] FOLDER [--step N], or interval --mtbf TIME",
    .summary = "list, show, verify and remove checkpoints; how often to save",
    .details =
        "Works on every folder of checkpoints that Millrace wrote: those of 'millrace run' and states of real "
        "trainings. A folder 'step-N' is complete by its name; verify reads all of it and compares every byte with "
        "its checksum (exit status 4 where one differs). show also lists the tensors of a .safetensors file of any "
        "program.\n\n"
        "interval computes how often to save from the cost of a save and the mean time between failures, by "
        "Daly's estimate.\n\n"
        "  millrace ckpt ls checkpoints\n  millrace ckpt verify checkpoints --step 120\n"
        "  millrace ckpt interval --mtbf 6h --cost 12s\n",
    .table = {.section = "ckpt", .doc = "ckpt", .options = ckpt_options, .struct_bytes = sizeof(struct ckpt_options)},
    .run = ckpt_run,
};
