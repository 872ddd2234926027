/* `millrace gen`: writes a data set, continues an interrupted one, or repairs a damaged one. What to write comes from
 * flags, from a workload (DLIO file or preset with Hydra overrides), or both: flags stand above the workload. Ranks
 * (--ranks, or mpirun) share the files; rank 0 prepares, prints and writes the manifest. */
#include "base/common.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/globals.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "comm/comm.h"
#include "dataset/gen_spec.h"
#include "dataset/manifest.h"
#include "job/job.h"
#include "job/job_generate.h"
#include "report/split_text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

struct gen_options {
    const char *folder, *workload, *config_dir, *store;
    struct mr_gen_spec spec;
    int64_t eval_files, eval_subfolders, threads, ranks;
    bool dry_run, json, overwrite, repair, fsync, lenient, allow_plugins;
    atomic_bool *all_stop; /* not an option: shared by the forked ranks */
};

#define AT(field) offsetof(struct gen_options, field)
#define ROW(key, field, type, def, ...) MR_OPTION(gen_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option rows[] = {
    ROW("folder", folder, STRING, "", .flags = MR_OPTF_POSITIONAL,
        .doc = "Where to write; the files go to FOLDER/train and FOLDER/valid. Default: the workload's data_folder."),
    MR_GEN_SPEC_ROWS(AT(spec)),
    ROW("eval_files", eval_files, INT, "0", .min = 0, .max = 1e12,
        .doc = "Files of the evaluation set, in FOLDER/valid; 0 = none."),
    ROW("eval_subfolders", eval_subfolders, INT, "0", .min = 0, .max = 1e9, .doc = "Subfolders of the evaluation set."),
    ROW("workload", workload, STRING, "", .short_flag = 'w',
        .doc = "Take what flags do not say from this preset or workload file; the same as workload=NAME.",
        .example = "unet3d_h100"),
    ROW("config_dir", config_dir, STRING, "", .doc = "Folder with workload files, searched first."),
    ROW("allow_plugins", allow_plugins, BOOL, "false", .doc = MR_DOC_ALLOW_PLUGINS),
    ROW("lenient", lenient, BOOL, "false", .doc = "Unknown keys of the workload are noted and ignored."),
    MR_ROW_THREADS(AT(threads), "Threads per rank; 0 = one per CPU. The bytes do not depend on it."),
    ROW("ranks", ranks, INT, "1", .min = 1, .max = 1024,
        .doc =
            "Local processes that share the work. Under mpirun or srun leave it at 1. The bytes do not depend on it."),
    MR_ROW_STORE(AT(store), "Storage stack to write through; 'millrace help store' lists the parts."),
    ROW("fsync", fsync, BOOL, "false",
        .doc = "Make each file durable before it gets its name: survives a power cut, costs time."),
    ROW("overwrite", overwrite, BOOL, "false", .doc = "Replace another data set that lies in the folder."),
    ROW("repair", repair, BOOL, "false",
        .doc = "Compare every byte of every file with what it should be and write missing and damaged files again. "
               "Needs no other options: the manifest says what the set is."),
    ROW("dry_run", dry_run, BOOL, "false", .doc = "Say what would be written and whether it fits; write nothing."),
    MR_ROW_JSON(AT(json), MR_DOC_JSON),
    MR_OPTION_END,
};

static const struct mr_option_table table = {
    .section = "gen", .doc = "gen", .options = rows, .struct_bytes = sizeof(struct gen_options)};

/* ---- what to write ---- */

static int from_workload(const struct mr_workload *w, struct gen_options *o, struct mr_arena *a, struct mr_error *err)
{
    struct mr_gen_spec valid;
    int r = mr_job_gen_spec(w, a, &o->spec, &valid, err);
    if (r < 0)
        return r;
    o->eval_files = valid.files;
    o->eval_subfolders = valid.subfolders;
    o->folder = w->dataset.data_folder;
    return 0;
}

/* What lies between the defaults and the flags (a workload, a manifest) is in `o`: variables and flags once more on top
 * of it. */
static int reapply_flags(struct mr_command_ctx *ctx, struct gen_options *o, struct mr_error *err)
{
    struct mr_strings again = {0};
    int r = mr_options_parse_env(&table, environ, ctx->arena, o, err);
    if (r < 0)
        return r;
    /* The global options were taken before; here they only have to be recognised. */
    void *globals = mr_arena_alloc(ctx->arena, mr_globals_table.struct_bytes);
    if (!globals || mr_options_defaults(&mr_globals_table, ctx->arena, globals, err) < 0)
        return mr_error_set(err, -ENOMEM, "cannot read the options");
    struct mr_options_target targets[] = {{&table, o}, {&mr_globals_table, globals}};
    return mr_options_parse_targets(targets, 2, ctx->argc, ctx->argv, ctx->arena, &again, err);
}

/* The spec that the split in FOLDER/NAME was made from; false where no manifest of ours can be read. */
static bool spec_there(struct mr_store *s, const char *folder, const char *name, struct mr_arena *a,
                       struct mr_gen_spec *out)
{
    struct mr_manifest *m = NULL;
    struct mr_error ignored;
    const char *split, *path = mr_arena_printf(a, "%s/%s/" MR_MANIFEST_NAME, folder, name);
    bool found = path && mr_manifest_open(s, path, &m, &ignored) >= 0 &&
                 mr_gen_spec_from_json(mr_manifest_get_spec(m), a, out, &split, NULL, &ignored) >= 0;
    mr_manifest_close(m);
    return found;
}

/* --repair without a workload: the set says itself what it should be, so nobody has to remember its options. Flags
 * stand above it and are then compared with what is there, as without --repair. */
static int apply_manifest(struct mr_command_ctx *ctx, struct gen_options *o, struct mr_error *err)
{
    struct mr_gen_spec train, valid;
    struct mr_store *s = NULL;
    if (!o->repair || *o->workload || ctx->overrides.n || !*o->folder)
        return 0;
    int r = mr_store_open_at(o->store, o->folder, &s, err);
    if (r < 0)
        return r;
    bool has_train = spec_there(s, o->folder, "train", ctx->arena, &train);
    if (has_train) {
        o->spec = train;
        if (spec_there(s, o->folder, "valid", ctx->arena, &valid)) {
            o->eval_files = valid.files;
            o->eval_subfolders = valid.subfolders;
        }
    }
    mr_store_close(s);
    return has_train ? reapply_flags(ctx, o, err) : 0;
}

/* The workload lies between the defaults and the flags. */
static int apply_workload(struct mr_command_ctx *ctx, struct gen_options *o, struct mr_error *err)
{
    struct mr_workload *w;
    if (!*o->workload && !ctx->overrides.n)
        return 0;
    mr_cli_choose_plugins(o->dry_run, o->allow_plugins);
    int r = mr_cli_workload(o->workload, o->config_dir, &ctx->overrides, o->lenient, ctx->arena, &w, err);
    if (r < 0)
        return r;
    if (w->dataset.format == MR_CF_SYNTHETIC)
        return mr_error_plain(err, MR_E_USAGE, "workload '%s' has synthetic data: there is nothing to generate",
                              w->name);
    if (!w->workflow.train && !w->workflow.generate_data && !w->workflow.evaluation)
        return mr_error_plain(err, MR_E_USAGE, "workload '%s' reads no data: it only writes checkpoints", w->name);
    if ((r = mr_workload_check_supported(w, err)) < 0)
        return r;
    mr_job_export_storage(w);
    if ((r = mr_options_defaults(&table, ctx->arena, o, err)) < 0 || (r = from_workload(w, o, ctx->arena, err)) < 0)
        return r;
    return reapply_flags(ctx, o, err);
}

static int resolve_split(const struct gen_options *o, bool valid, struct mr_job_split *s, struct mr_error *err)
{
    struct mr_gen_spec spec = o->spec;
    if (valid) {
        spec.files = o->eval_files;
        spec.subfolders = o->eval_subfolders;
    }
    return mr_job_split_init(s, &spec, valid ? "valid" : "train", o->folder, err);
}

/* ---- what to say ---- */

static int report(const struct gen_options *o, struct mr_job_split *splits, unsigned n, struct mr_error *err)
{
    struct mr_strbuf text = {0};
    for (unsigned i = 0; !o->json && i < n; i++)
        mr_report_split(&splits[i], o->dry_run, &text);
    if (!o->json)
        return mr_cli_print_text(&text, err);
    json_t *list = json_array();
    for (unsigned i = 0; i < n; i++)
        json_array_append_new(list, mr_report_split_json(&splits[i], o->dry_run));
    return mr_cli_print_json(
        stdout, json_pack("{s:s, s:b, s:o}", "schema", "millrace.gen/1", "dry_run", o->dry_run, "splits", list), err);
}

/* Forked ranks share one stop flag and end with their parent, so that nobody writes on when the job is gone. */
static int open_ranks(struct gen_options *o, struct mr_comm **c, struct mr_error *err)
{
    pid_t parent = getpid();
    if (o->ranks > 1) {
        void *shared = mmap(NULL, sizeof(*o->all_stop), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
            return mr_error_set(err, -errno, "cannot share memory between ranks");
        o->all_stop = shared;
    }
    int r = mr_comm_open((uint32_t)o->ranks, 0, c, err);
    if (r >= 0 && o->ranks > 1 && (*c)->rank > 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* it died before the line above */
            r = mr_error_plain(err, MR_E_PEER, "rank 0 is gone");
    }
    return r;
}

static struct mr_job_gen_params to_params(const struct mr_command_ctx *ctx, const struct gen_options *o)
{
    return (struct mr_job_gen_params){.folder = o->folder,
                                      .store = o->store,
                                      .threads = (unsigned)o->threads,
                                      .overwrite = o->overwrite,
                                      .repair = o->repair,
                                      .fsync = o->fsync,
                                      .makes_valid = *o->workload || ctx->overrides.n,
                                      .stop = ctx->stop,
                                      .all_stop = o->all_stop,
                                      .progress = mr_log_shows(MR_LOG_NOTE) ? stderr : NULL};
}

static int run_ranks(struct mr_command_ctx *ctx, struct gen_options *o, struct mr_job_split *splits, unsigned n,
                     struct mr_error *err)
{
    struct mr_comm *c = NULL;
    int r = open_ranks(o, &c, err);
    if (r < 0 || !c) {
        mr_comm_close(c);
        return r;
    }
    const struct mr_job_gen_params p = to_params(ctx, o);
    r = mr_job_generate(&p, c, splits, n, err);
    bool is_reporter = c->rank == 0;
    if (r == MR_E_PEER)
        mr_error_hint(err, "what is finished stays: run the same command again");
    if (r < 0 && is_reporter && mr_comm_is_launched(c))
        mr_cli_tell_error(r, err);
    mr_comm_close(c);
    if (is_reporter)
        return r < 0 ? r : report(o, splits, n, err);
    if ((r != MR_E_PEER || o->ranks > 1) &&
        !freopen("/dev/null", "w", stderr)) /* rank 0 tells the error that all agreed on */
        r = MR_E_INTERNAL;
    return r;
}

static int dry_run(const struct mr_command_ctx *ctx, const struct gen_options *o, struct mr_job_split *splits,
                   unsigned n, struct mr_error *err)
{
    const struct mr_job_gen_params p = to_params(ctx, o);
    int r = mr_job_gen_estimate(&p, splits, n, err);
    return r < 0 ? r : report(o, splits, n, err);
}

/* A flag that one or two formats obey is refused with another: it would do nothing. A workload may hold such keys, as
 * DLIO's files do, so only the words of the command line count. */
static int refuse_idle_flags(const struct mr_command_ctx *ctx, const struct gen_options *o, struct mr_error *err)
{
    static const struct {
        const char *flag, *format, *also;
    } only[] = {{"--chunk", "hdf5", "parquet"}, {"--quality", "jpeg", "jpeg"}};
    for (int i = 0; i < ctx->argc && strcmp(ctx->argv[i], "--") != 0; i++)
        for (size_t k = 0; k < MR_ARRAY_LEN(only); k++) {
            size_t len = strlen(only[k].flag);
            bool given =
                !strncmp(ctx->argv[i], only[k].flag, len) && (ctx->argv[i][len] == '\0' || ctx->argv[i][len] == '=');
            if (given && strcmp(o->spec.format, only[k].format) != 0 && strcmp(o->spec.format, only[k].also) != 0) {
                mr_error_plain(err, MR_E_USAGE, "'%s' has no effect with format '%s'", only[k].flag, o->spec.format);
                mr_error_hint(err, "leave it out, or give --format %s", only[k].format);
                return MR_E_USAGE;
            }
        }
    return 0;
}

static int run_gen(struct mr_command_ctx *ctx, struct mr_error *err)
{
    struct gen_options *o = ctx->options;
    struct mr_job_split splits[2] = {{0}};
    int r = apply_workload(ctx, o, err);
    if (r >= 0)
        r = apply_manifest(ctx, o, err);
    if (r >= 0)
        r = refuse_idle_flags(ctx, o, err);
    if (r < 0)
        return r;
    if (!*o->folder)
        return mr_error_plain(err, MR_E_USAGE, "no folder given"),
               mr_error_hint(err, "millrace gen FOLDER --format npz --files 8"), MR_E_USAGE;
    unsigned n = o->eval_files ? 2 : 1;
    for (unsigned i = 0; r >= 0 && i < n; i++)
        r = resolve_split(o, i == 1, &splits[i], err);
    if (r < 0)
        return r;
    return o->dry_run ? dry_run(ctx, o, splits, n, err) : run_ranks(ctx, o, splits, n, err);
}

const struct mr_command mr_cmd_gen = {
    .name = "gen",
    .synopsis = "FOLDER [options] [workload=NAME] [KEY=VALUE...]",
    .summary = "write a data set, continue an interrupted one, or repair a damaged one",
    .details =
        "Every byte is a function of the options, never of threads, ranks or interruptions: any reader can verify any "
        "sample. A set "
        "that is complete is left alone; one that was interrupted, even by kill -9, is continued; another set in the "
        "folder is refused "
        "unless --overwrite is given. --repair compares every byte and writes missing and damaged files again, by the "
        "manifest's options.\n\n"
        "  millrace gen /data/unet3d workload=unet3d_h100 ++workload.dataset.num_files_train=28\n"
        "  millrace gen /data/img --format jpeg --files 10000 --size 115KB --labels 1000 --eval-files 500\n"
        "  millrace gen /data/tf --format tfrecord --files 64 --samples-per-file 1251 --size 114660 --ranks 4\n"
        "  millrace gen /data/img --repair\n",
    .table = {.section = "gen", .doc = "gen", .options = rows, .struct_bytes = sizeof(struct gen_options)},
    .takes_overrides = true,
    .run = run_gen,
};
