/* `millrace demo`: what the program is for, in under a minute. A data set is made, a training run on slow (emulated)
 * storage starves, its own figures say why, the same run with more reads in flight does not. Every step is a command of
 * this program, shown as the user would type it and resolved from those words, so nothing here can do what a user could
 * not. The folder it makes is removed unless it is asked to stay. */
#include "base/common.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "base/temp_folder.h"
#include "job/job_generate.h"
#include "conf/job_options.h"
#include "job/job.h"
#include "report/name_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEMO_STORE "throttle(stream_bandwidth=30MB,bandwidth=120MB):posix"

struct demo_options {
    const char *folder;
    bool keep, json;
};

#define AT(field) offsetof(struct demo_options, field)
#define ROW(key, field, type, def, ...) MR_OPTION(demo_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option rows[] = {
    ROW("folder", folder, STRING, "", .flags = MR_OPTF_POSITIONAL,
        .doc = "Where to work; it must not exist yet. Default: a new folder in $TMPDIR or /tmp."),
    ROW("keep", keep, BOOL, "false", .doc = "Leaves data set and results where they are."),
    MR_ROW_JSON(AT(json), MR_DOC_JSON),
    MR_OPTION_END,
};

struct outcome {
    double au, samples_per_s, stall, demand, supply, duration_s;
    char limiter[192];
};

struct demo {
    const struct mr_command_ctx *ctx;
    const struct demo_options *opt;
    char folder[4096], data[4200];
    FILE *talk; /* stdout, or nothing with --json */
};

/* ---- running ---- */

static bool needs_quotes(const char *word)
{
    return strpbrk(word, " ()*?") != NULL;
}

/* Shows the command that does the same. */
static void show_command(struct demo *d, const char *command, int argc, char *const *argv)
{
    fprintf(d->talk, "   $ millrace %s", command);
    for (int i = 0; i < argc; i++)
        fprintf(d->talk, needs_quotes(argv[i]) ? " '%s'" : " %s", argv[i]);
    fputc('\n', d->talk);
}

static double or_nan(double x)
{
    return isfinite(x) ? x : NAN;
}

static void take_outcome(const struct mr_job *j, struct outcome *o)
{
    const struct mr_metrics *m = j->result.metrics;
    *o = (struct outcome){.au = or_nan(m->au),
                          .samples_per_s = or_nan(m->samples_per_s),
                          .stall = or_nan(m->split.data),
                          .demand = or_nan(m->demand_bytes_per_s),
                          .supply = or_nan(m->supply_bytes_per_s),
                          .duration_s = or_nan(m->duration_s)};
    mr_job_limiter(j, o->limiter, sizeof o->limiter);
}

static int run_job(struct demo *d, int argc, char *const *argv, struct outcome *out, struct mr_error *err)
{
    struct mr_arena *a = d->ctx->arena;
    struct mr_job_options options;
    struct mr_job *j = mr_arena_alloc(a, sizeof(*j));
    struct mr_options_target target = {&mr_job_options_table, &options};
    struct mr_job_request req = {
        .options = &options, .envp = environ, .arena = a, .stop = d->ctx->stop, .is_quiet = true, .is_local = true};
    int rc = j ? mr_options_defaults(&mr_job_options_table, a, &options, err) : mr_error_set(err, -ENOMEM, "demo");
    if (!rc)
        rc = mr_options_parse_targets(&target, 1, argc, argv, a, &req.overrides, err);
    if (!rc)
        rc = mr_cli_search_path("", a, &req.search_path, err);
    if (!rc)
        rc = mr_job_resolve(&req, j, err);
    if (!rc)
        rc = mr_job_run(j, err);
    if (!rc)
        take_outcome(j, out);
    if (j)
        mr_job_done(j);
    return rc;
}

#define WORD(text) ((char *)(uintptr_t)(text))

static int train(struct demo *d, const char *name, const char *threads, const char *lookahead, struct outcome *out,
                 struct mr_error *err)
{
    char results[4200];
    snprintf(results, sizeof results, "%s/%s", d->folder, name);
    char *words[] = {WORD("unet3d_h100"),
                     WORD("--data"),
                     d->data,
                     WORD("dataset.num_files_train=96"),
                     WORD("dataset.record_length_bytes=524288"),
                     WORD("dataset.record_length_bytes_stdev=0"),
                     WORD("dataset.record_length_bytes_resize=0"),
                     WORD("reader.batch_size=2"),
                     WORD("train.epochs=2"),
                     WORD("train.computation_time=0.0125"),
                     WORD("workflow.checkpoint=false"),
                     WORD("--store"),
                     WORD(DEMO_STORE),
                     WORD("--threads"),
                     WORD(threads),
                     WORD("--lookahead"),
                     WORD(lookahead),
                     WORD("--out"),
                     results};
    show_command(d, "run", MR_ARRAY_LEN(words), words);
    return run_job(d, MR_ARRAY_LEN(words), words, out, err);
}

static int generate(struct demo *d, struct mr_error *err)
{
    char *words[] = {d->data,    WORD("--format"), WORD("npz"),   WORD("--files"),
                     WORD("96"), WORD("--size"),   WORD("512KiB")};
    struct mr_gen_spec spec;
    struct mr_job_split split;
    struct mr_comm *self = NULL;
    struct mr_options_target target = {&mr_gen_spec_table, &spec};
    const struct mr_job_gen_params p = {.folder = d->data, .store = "posix", .stop = d->ctx->stop};
    show_command(d, "gen", MR_ARRAY_LEN(words), words);
    int rc = mr_options_defaults(&mr_gen_spec_table, d->ctx->arena, &spec, err);
    if (!rc)
        rc = mr_options_parse_targets(&target, 1, MR_ARRAY_LEN(words) - 1, words + 1, d->ctx->arena, NULL, err);
    if (!rc)
        rc = mr_job_split_init(&split, &spec, "train", d->data, err);
    if (!rc)
        rc = mr_comm_open(0, 1, &self, err);
    if (!rc)
        rc = mr_job_generate(&p, self, &split, 1, err);
    mr_comm_close(self);
    return rc;
}

/* ---- talking ---- */

static void say_outcome(const struct demo *d, const struct outcome *o)
{
    fprintf(d->talk, "   accelerators busy (AU) %.1f %%, %.0f samples/s; waiting for data %.0f %% of the time\n",
            100 * o->au, o->samples_per_s, 100 * o->stall);
}

static void say_why(const struct demo *d, const struct outcome *o)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    fprintf(d->talk, "   why: %s\n", o->limiter);
    if (isfinite(o->supply) && isfinite(o->demand))
        fprintf(d->talk, "   the training asks for %s/s; one reading thread gets %s/s\n", mr_human_bytes(o->demand, a),
                mr_human_bytes(o->supply, b));
}

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *outcome_json(const struct outcome *o)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "au", real(o->au), "samples_per_s", real(o->samples_per_s),
                     "data_stall_share", real(o->stall), "demand_bytes_per_s", real(o->demand), "supply_bytes_per_s",
                     real(o->supply), "duration_s", real(o->duration_s), "limiter", o->limiter);
}

static int finish(const struct demo *d, const struct outcome *before, const struct outcome *after, struct mr_error *err)
{
    double gain = after->samples_per_s / before->samples_per_s;
    if (d->opt->json) {
        int rc = mr_cli_print_json(stdout,
                                   json_pack("{s:s, s:o, s:b, s:o, s:o, s:o}", "schema", "millrace.demo/1", "folder",
                                             mr_name_json(d->folder), "kept", d->opt->keep, "before",
                                             outcome_json(before), "after", outcome_json(after), "speedup", real(gain)),
                                   err);
        if (rc)
            return rc;
    }
    fprintf(d->talk, "\n             %12s %12s %14s\n", "AU", "samples/s", "waiting");
    fprintf(d->talk, "   before    %10.1f %% %12.0f %12.0f %%\n", 100 * before->au, before->samples_per_s,
            100 * before->stall);
    fprintf(d->talk, "   after     %10.1f %% %12.0f %12.0f %%\n", 100 * after->au, after->samples_per_s,
            100 * after->stall);
    fprintf(d->talk, "\nThe same data, order and storage: %.1f times as fast. ", gain);
    if (d->opt->keep)
        fprintf(d->talk, "Data and results are in '%s'.\n", d->folder);
    else
        fprintf(d->talk, "The folder is removed (--keep leaves it).\n");
    if (gain > 1)
        return 0;
    mr_error_plain(err, MR_E_BUDGET, "the fix made nothing faster here: %.0f samples/s before, %.0f after",
                   before->samples_per_s, after->samples_per_s);
    return mr_error_hint(err, "see what disturbs this machine with 'millrace doctor'"), MR_E_BUDGET;
}

/* ---- the command ---- */

static int make_folder(struct demo *d, struct mr_error *err)
{
    const char *given = d->opt->folder;
    int rc = 0;
    if (!*given)
        rc = mr_temp_folder_make("", "demo", d->folder, sizeof d->folder, err);
    else if (snprintf(d->folder, sizeof d->folder, "%s", given), mkdir(given, 0777) != 0)
        rc = mr_error_set(err, -errno, "cannot create '%s'", given);
    snprintf(d->data, sizeof d->data, "%s/data", d->folder);
    return rc;
}

static int play(struct demo *d, struct mr_error *err)
{
    struct outcome before, after;
    fprintf(d->talk, "1. A data set: 96 files of 512 KiB, one sample each.\n");
    int rc = generate(d, err);
    if (rc)
        return rc;
    fprintf(
        d->talk,
        "\n2. Training on storage that gives 30 MB/s to one reader and 120 MB/s in all, with one reading thread.\n");
    if ((rc = train(d, "before", "1", "1", &before, err)) != 0)
        return rc;
    say_outcome(d, &before);
    say_why(d, &before);
    fprintf(d->talk, "\n3. The fix: more reads in flight, further ahead.\n");
    if ((rc = train(d, "after", "4", "8", &after, err)) != 0)
        return rc;
    say_outcome(d, &after);
    return finish(d, &before, &after, err);
}

static int demo(struct mr_command_ctx *ctx, struct mr_error *err)
{
    struct demo d = {.ctx = ctx, .opt = ctx->options, .talk = stdout};
    int rc = make_folder(&d, err);
    if (rc)
        return rc;
    if (d.opt->json && !(d.talk = fopen("/dev/null", "w")))
        rc = mr_error_set(err, -errno, "cannot open '/dev/null'");
    if (!rc)
        rc = play(&d, err);
    if (d.talk && d.talk != stdout)
        fclose(d.talk);
    int removed = d.opt->keep ? 0 : mr_temp_folder_remove(d.folder, rc ? NULL : err);
    return rc ? rc : removed;
}

const struct mr_command mr_cmd_demo = {
    .name = "demo",
    .synopsis = "[FOLDER] [--keep] [--json]",
    .summary = "a starved training run, why it starves, and the fix, in under a minute",
    .details = "Makes 50 MB of data, trains on emulated slow storage with one reading\n"
               "thread, shows what the accelerators wait for, trains again with more reads in\n"
               "flight and compares. Prints every command it runs; no MPI, nothing is left\n"
               "behind. Exit status 3 if the fix made nothing faster.\n"
               "\n"
               "  millrace demo\n"
               "  millrace demo ./try --keep\n",
    .table = {.section = "demo", .doc = "demo", .options = rows, .struct_bytes = sizeof(struct demo_options)},
    .run = demo,
};
