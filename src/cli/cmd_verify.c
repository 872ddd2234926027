/* `millrace verify`: is a data set what its manifest and its seed say? Names everything that is not. */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/workers.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/workload_args.h"
#include "dataset/verify.h"
#include "dataset/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct verify_options {
    const char *folder, *store;
    double sample_rate;
    int64_t threads;
    bool quick, by_sample, json;
};

#define AT(field) offsetof(struct verify_options, field)
#define ROW(key, field, type, def, ...) MR_OPTION(verify_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option rows[] = {
    MR_ROW_FOLDER(AT(folder), "Folder of the data set (train and valid are both checked) or a manifest."),
    ROW("quick", quick, BOOL, "false", .doc = "Only sizes, times, missing and extra files; reads no data."),
    ROW("sample_rate", sample_rate, DOUBLE, "1", .min = 1e-9, .max = 1,
        .doc = "Check this share of the samples instead of every byte; sizes of all files are checked anyway.",
        .example = "0.01"),
    ROW("by_sample", by_sample, BOOL, "false",
        .doc = "Compare decoded samples instead of file bytes: for images and compressed files that were written with "
               "another version of "
               "an encoder library, whose bytes differ though the content is right."),
    MR_ROW_THREADS(AT(threads), MR_DOC_THREADS),
    MR_ROW_STORE(AT(store), MR_DOC_STORE),
    MR_ROW_JSON(AT(json), MR_DOC_JSON),
    MR_OPTION_END,
};

struct sink {
    bool json;
    json_t *findings;
};

static void found(void *user, const struct mr_finding *f)
{
    struct sink *s = user;
    char path[4 * MR_NAME_MAX];
    if (!s->json) {
        printf("%s: %s\n", mr_name_escape(f->path, path, sizeof path), f->text);
        return;
    }
    json_t *j =
        json_pack("{s:s, s:o, s:o, s:I, s:I}", "kind", mr_finding_kind_name(f->kind), "path", mr_cli_name_json(f->path),
                  "text", mr_cli_name_json(f->text), "want", (json_int_t)f->want, "have", (json_int_t)f->have);
    if (j && f->sample != MR_NO_SAMPLE)
        json_object_set_new(j, "sample", json_integer((json_int_t)f->sample));
    if (j && f->has_offset)
        json_object_set_new(j, "offset_bytes", json_integer((json_int_t)f->offset));
    json_array_append_new(s->findings, j);
}

static int verify_one(struct mr_command_ctx *ctx, const char *path, struct sink *sink, struct mr_store *store,
                      struct mr_verify_result *out, struct mr_error *err)
{
    const struct verify_options *o = ctx->options;
    struct mr_dataset *ds;
    struct mr_progress *progress = NULL;
    int r = mr_dataset_open_in(path, store, &ds, err);
    if (r < 0)
        return r;
    const struct mr_manifest_info *i = mr_manifest_get_info(mr_dataset_manifest(ds));
    struct mr_progress_options po = {.verb = "verifying",
                                     .unit = "files",
                                     .total = i->files,
                                     .total_bytes = o->quick || o->sample_rate < 1 ? 0 : i->file_bytes,
                                     .stream = mr_log_shows(MR_LOG_NOTE) ? stderr : NULL,
                                     .force_tty = -1};
    r = mr_progress_start(&po, &progress, err);
    struct mr_verify_options vo = {.threads = o->threads ? (unsigned)o->threads : mr_cpus_available(),
                                   .quick = o->quick,
                                   .by_sample = o->by_sample,
                                   .sample_rate = o->sample_rate,
                                   .stop = ctx->stop,
                                   .progress = progress,
                                   .found = found,
                                   .user = sink};
    if (r >= 0)
        r = mr_verify(ds, &vo, out, err);
    mr_progress_stop(progress);
    mr_dataset_close(ds);
    return r;
}

static void add(struct mr_verify_result *sum, const struct mr_verify_result *r, bool first)
{
    sum->files += r->files;
    sum->samples += r->samples;
    sum->bytes += r->bytes;
    sum->bad_files += r->bad_files;
    sum->bad_samples += r->bad_samples;
    sum->missing += r->missing;
    sum->extra += r->extra;
    sum->unreadable += r->unreadable;
    sum->wrong += r->wrong;
    sum->byte_exact = r->byte_exact && (first || sum->byte_exact);
}

static void print_summary(const struct verify_options *o, const struct mr_verify_result *r)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    const char *how = o->quick ? "sizes" : r->byte_exact ? "every byte" : "samples";
    if (r->bad_files || r->extra) {
        printf("bad: %s of ", mr_human_count(r->bad_files, a));
        printf("%s files are wrong (%" PRIu64 " missing), %" PRIu64 " files are not in the manifest\n",
               mr_human_count(r->files, a), r->missing, r->extra);
        return;
    }
    printf("good: %s file%s, ", mr_human_count(r->files, a), r->files == 1 ? "" : "s");
    if (!o->quick)
        printf("%s sample%s, ", mr_human_count(r->samples, a), r->samples == 1 ? "" : "s");
    printf("%s; checked %s\n", mr_human_bytes((double)r->bytes, b), how);
}

static int report(const struct verify_options *o, const struct mr_verify_result *r, struct sink *s,
                  struct mr_error *err)
{
    if (!o->json) {
        print_summary(o, r);
        return 0;
    }
    json_t *j =
        json_pack("{s:s, s:o, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O}", "schema", "millrace.verify/1",
                  "path", mr_cli_name_json(o->folder), "good", r->bad_files == 0 && r->extra == 0, "level",
                  o->quick        ? "sizes"
                  : r->byte_exact ? "bytes"
                                  : "samples",
                  "files", (json_int_t)r->files, "samples", (json_int_t)r->samples, "good_bytes", (json_int_t)r->bytes,
                  "bad_files", (json_int_t)r->bad_files, "bad_samples", (json_int_t)r->bad_samples, "missing_files",
                  (json_int_t)r->missing, "extra_files", (json_int_t)r->extra, "unreadable", (json_int_t)r->unreadable,
                  "findings", s->findings);
    return mr_cli_print_json(stdout, j, err);
}

static int one_entry(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    (void)name, (void)is_dir, (void)err;
    *(bool *)user = true;
    return 0;
}

/* Sets made for DLIO have a folder for the evaluation set even when there is none. */
static bool holds_something(struct mr_store *store, const char *folder)
{
    bool any = false;
    return store->ops->list(store, folder, one_entry, &any, NULL) < 0 || any;
}

/* The paths to check: both splits of a generated folder, finished or not, else the one that is given. */
static unsigned splits_of(struct mr_store *store, const char *folder, char paths[2][2 * MR_NAME_MAX])
{
    static const char *const names[] = {"train", "valid"};
    struct mr_store_stat st;
    unsigned n = 0;
    bool finished = false;
    char own[2 * MR_NAME_MAX];
    snprintf(own, sizeof own, "%.4000s/" MR_MANIFEST_NAME, folder);
    for (unsigned i = 0; i < 2 && mr_store_stat(store, own, &st, NULL) < 0; i++) {
        char manifest[3 * MR_NAME_MAX];
        snprintf(paths[n], sizeof paths[n], "%.4000s/%s", folder, names[i]);
        snprintf(manifest, sizeof manifest, "%s/" MR_MANIFEST_NAME, paths[n]);
        bool there = mr_store_stat(store, paths[n], &st, NULL) >= 0 && st.is_dir && holds_something(store, paths[n]);
        finished = finished || mr_store_stat(store, manifest, &st, NULL) >= 0;
        n += there;
    }
    if (!finished) {
        snprintf(paths[0], sizeof paths[0], "%.4000s", folder);
        return 1;
    }
    return n;
}

static int run_verify(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct verify_options *o = ctx->options;
    struct sink sink = {.json = o->json, .findings = json_array()};
    struct mr_verify_result sum = {0}, one;
    struct mr_store *store = NULL;
    char paths[2][2 * MR_NAME_MAX];
    int r = o->quick && (o->sample_rate < 1 || o->by_sample)
                ? mr_error_plain(err, MR_E_USAGE,
                                 "--quick reads no data: --sample-rate and --by-sample have no effect with it")
                : mr_store_open(o->store, &store, err);
    unsigned n = r < 0 ? 0 : splits_of(store, o->folder, paths);
    for (unsigned i = 0; r >= 0 && i < n; i++) {
        r = verify_one(ctx, paths[i], &sink, store, &one, err);
        if (r >= 0)
            add(&sum, &one, i == 0);
    }
    mr_store_close(store);
    if (r >= 0)
        r = report(o, &sum, &sink, err);
    json_decref(sink.findings);
    if (r >= 0 && (sum.bad_files || sum.extra)) {
        /* Where the storage failed and nothing else was found, the data set is not known to be bad. */
        r = mr_error_plain(err, sum.unreadable && !sum.wrong ? -EIO : MR_E_CORRUPT,
                           sum.unreadable && !sum.wrong
                               ? "data set '%s' cannot be read: %" PRIu64 " files failed, %" PRIu64 " are extra"
                               : "data set '%s' is not what its manifest says: %" PRIu64 " bad files, %" PRIu64
                                 " extra",
                           o->folder, sum.bad_files, sum.extra);
        mr_error_hint(
            err, sum.unreadable && !sum.wrong
                     ? "look at permissions and at the storage; the lines above say what failed where"
                 : sum.bad_files
                     ? "generated sets: 'millrace gen --repair' with the same options; others: 'millrace scan' again"
                     : "move the extra files elsewhere; if they belong to a scanned set, 'millrace scan' again");
    }
    return r;
}

const struct mr_command mr_cmd_verify = {
    .name = "verify",
    .synopsis = "FOLDER [--quick] [--sample-rate F] [--by-sample] [--json]",
    .summary = "check a data set: sizes, checksums, content",
    .details = "Generated sets are computed again and compared byte by byte; for others every sample is read with its "
               "stored checksum. "
               "Names every bad file and sample with offset, wanted and found value, and exits with 4; with 5 if files "
               "cannot be read and nothing is known to be wrong.\n\n"
               "  millrace verify /data/unet3d\n"
               "  millrace verify /data/imagenet --quick\n"
               "  millrace verify /data/unet3d --sample-rate 0.01 --json\n",
    .table = {.section = "verify", .doc = "verify", .options = rows, .struct_bytes = sizeof(struct verify_options)},
    .run = run_verify,
};
