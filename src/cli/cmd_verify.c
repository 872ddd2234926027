/* `millrace verify`: is a data set what its manifest and its seed say? Names everything that is not. */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/workers.h"
#include "base/text_escape.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "dataset/verify_folder.h"
#include "report/name_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

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
               "another version of an encoder library, whose bytes differ though the content is right."),
    MR_ROW_THREADS(AT(threads), MR_DOC_THREADS),
    MR_ROW_STORE(AT(store), MR_DOC_STORE),
    MR_ROW_JSON(AT(json), MR_DOC_JSON),
    MR_OPTION_END,
};

struct sink {
    bool json;
    json_t *findings;
};

static void found(void *user, const struct mr_damage *f)
{
    struct sink *s = user;
    char path[4 * MR_NAME_MAX];
    if (!s->json) {
        printf("%s: %s\n", mr_name_escape(f->path, path, sizeof path), f->text);
        return;
    }
    json_t *j =
        json_pack("{s:s, s:o, s:o, s:I, s:I}", "kind", mr_finding_kind_name(f->kind), "path", mr_name_json(f->path),
                  "text", mr_name_json(f->text), "want", (json_int_t)f->want, "have", (json_int_t)f->have);
    if (j && f->sample != MR_NO_SAMPLE)
        json_object_set_new(j, "sample", json_integer((json_int_t)f->sample));
    if (j && f->has_offset)
        json_object_set_new(j, "offset_bytes", json_integer((json_int_t)f->offset));
    json_array_append_new(s->findings, j);
}

static void print_summary(const struct verify_options *o, const struct mr_verify_result *r)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    const char *how = o->quick ? "sizes" : r->byte_exact ? "every byte" : "samples";
    if (r->bad_files || r->extra) {
        printf("bad: %s of %s %s wrong (%" PRIu64 " missing), %" PRIu64 " %s not in the manifest\n",
               mr_human_count(r->bad_files, a), mr_human_count(r->files, b),
               mr_plural(r->files, "file is", "files are"), r->missing, r->extra,
               mr_plural(r->extra, "file is", "files are"));
        return;
    }
    printf("good: %s %s, ", mr_human_count(r->files, a), mr_plural(r->files, "file", "files"));
    if (!o->quick)
        printf("%s %s, ", mr_human_count(r->samples, a), mr_plural(r->samples, "sample", "samples"));
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
                  "path", mr_name_json(o->folder), "good", r->bad_files == 0 && r->extra == 0, "level",
                  o->quick        ? "sizes"
                  : r->byte_exact ? "bytes"
                                  : "samples",
                  "files", (json_int_t)r->files, "samples", (json_int_t)r->samples, "good_bytes", (json_int_t)r->bytes,
                  "bad_files", (json_int_t)r->bad_files, "bad_samples", (json_int_t)r->bad_samples, "missing_files",
                  (json_int_t)r->missing, "extra_files", (json_int_t)r->extra, "unreadable", (json_int_t)r->unreadable,
                  "findings", s->findings);
    return mr_cli_print_json(stdout, j, err);
}

/* The exit status: where the storage failed and nothing else was found, the data set is not known to be bad. */
static int judge(const char *folder, const struct mr_verify_result *r, struct mr_error *err)
{
    bool unknown = r->unreadable && !r->wrong;
    int code = unknown ? -EIO : MR_E_CORRUPT;
    if (!r->bad_files && !r->extra)
        return 0;
    mr_error_plain(err, code, "data set '%s' %s: %" PRIu64 " bad %s, %" PRIu64 " extra", folder,
                   unknown ? "cannot be read" : "is not what its manifest says", r->bad_files,
                   mr_plural(r->bad_files, "file", "files"), r->extra);
    mr_error_hint(err,
                  unknown ? "look at permissions and at the storage; the lines above say what failed where"
                  : r->bad_files
                      ? "generated sets: 'millrace gen --repair' with the same options; others: 'millrace scan' again"
                      : "move the extra files elsewhere; if they belong to a scanned set, 'millrace scan' again");
    return code;
}

static int run_verify(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct verify_options *o = ctx->options;
    struct mr_verify_result result;
    struct mr_store *store;
    if (o->quick && (o->sample_rate < 1 || o->by_sample))
        return mr_error_plain(err, MR_E_USAGE,
                              "--quick reads no data: --sample-rate and --by-sample have no effect with it");
    int rc = mr_store_open_at(o->store, o->folder, &store, err);
    if (rc < 0)
        return rc;
    struct sink sink = {.json = o->json, .findings = json_array()};
    const struct mr_verify_options vo = {.threads = o->threads ? (unsigned)o->threads : mr_cpus_available(),
                                         .quick = o->quick,
                                         .by_sample = o->by_sample,
                                         .sample_rate = o->sample_rate,
                                         .stop = ctx->stop,
                                         .found = found,
                                         .user = &sink};
    rc = mr_verify_folder(o->folder, store, &vo, mr_log_shows(MR_LOG_NOTE) ? stderr : NULL, &result, err);
    mr_store_close(store);
    if (rc >= 0)
        rc = report(o, &result, &sink, err);
    json_decref(sink.findings);
    return rc < 0 ? rc : judge(o->folder, &result, err);
}

const struct mr_command mr_cmd_verify = {
    .name = "verify",
    .synopsis = "FOLDER [--quick] [--sample-rate F] [--by-sample] [--json]",
    .summary = "check a data set: sizes, checksums, content",
    .details = "Generated sets are computed again and compared byte by byte; for others every sample is read with its "
               "stored checksum. Names every bad file and sample with offset, wanted and found value, and exits with "
               "4; with 5 if files cannot be read and nothing is known to be wrong.\n\n"
               "  millrace verify /data/unet3d\n"
               "  millrace verify /data/imagenet --quick\n"
               "  millrace verify /data/unet3d --sample-rate 0.01 --json\n",
    .table = {.section = "verify", .doc = "verify", .options = rows, .struct_bytes = sizeof(struct verify_options)},
    .run = run_verify,
};
