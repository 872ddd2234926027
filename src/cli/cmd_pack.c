/* `millrace pack`: a data set, such as a folder of small files, into larger files of another format. */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/text_escape.h"
#include "base/workers.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "report/print.h"
#include "cli/workload_args.h"
#include "pack/pack.h"
#include "report/name_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pack_options {
    const char *source, *folder, *format, *from, *sample, *fields;
    int64_t samples_per_file, threads;
    bool gzip, no_verify, json;
};

#define AT(field) offsetof(struct pack_options, field)
#define ROW(key, field, type, def, ...) MR_OPTION(pack_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option rows[] = {
    ROW("source", source, STRING, "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REQUIRED,
        .doc = "A data set, or a folder of files, which is scanned first."),
    ROW("folder", folder, STRING, "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REQUIRED,
        .doc = "Folder of the new data set."),
    ROW("to", format, STRING, "tar", .doc = "Format of the new files.", .example = "parquet"),
    ROW("from", from, STRING, "",
        .doc = "Format of the source's files, where it is scanned; by default by their names.", .example = "raw"),
    ROW("fields", fields, STRING, "", .doc = "Keep these fields only: names joined by commas, the label's among them.",
        .example = "data,labels"),
    ROW("samples_per_file", samples_per_file, INT, "0", .min = 0, .max = 1e12,
        .doc = "0: as many as make files of about 256 MiB."),
    ROW("sample", sample, STRING, "100%",
        .doc =
            "Only this share of the samples, the first ones; then both are read and the gain for all is extrapolated.",
        .example = "1%"),
    ROW("gzip", gzip, BOOL, "false", .doc = "Compress inside the files, where the format can."),
    ROW("no_verify", no_verify, BOOL, "false", .doc = "Do not compare the new samples with the source's at the end."),
    MR_ROW_THREADS(AT(threads), MR_DOC_THREADS),
    MR_ROW_JSON(AT(json), MR_DOC_JSON),
    MR_OPTION_END,
};

static int take_share(const char *text, double *out, struct mr_error *err)
{
    char *end;
    double v = strtod(text, &end);
    if (*end == '%' && end[1] == '\0')
        v /= 100;
    else if (*end)
        v = 0;
    if (end == text || !(v > 0) || v > 1)
        return mr_error_plain(err, MR_E_USAGE, "bad value '%s' for '--sample': must be above 0 and at most 100%%",
                              text);
    *out = v;
    return 0;
}

static int print_json(const struct pack_options *o, const struct mr_pack_result *r, struct mr_error *err)
{
    return mr_cli_print_json(
        stdout,
        json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:b, s:f, s:f}", "schema", "millrace.pack/1",
                  "folder", mr_name_json(o->folder), "format", o->format, "samples", (json_int_t)r->samples,
                  "source_samples", (json_int_t)r->source_samples, "source_files", (json_int_t)r->source_files, "files",
                  (json_int_t)r->files, "files_kept", (json_int_t)r->files_kept, "bytes", (json_int_t)r->bytes,
                  "pack_s", r->pack_s, "verify_s", r->verify_s, "verified", !o->no_verify, "source_samples_per_s",
                  r->source_rate, "packed_samples_per_s", r->packed_rate),
        err);
}

static int report(const struct pack_options *o, const struct mr_pack_result *r, struct mr_error *err)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN], c[MR_HUMAN_LEN], name[4 * 4096];
    if (o->json)
        return print_json(o, r, err);
    printf("%s: %s %s %s, ", mr_name_escape(o->folder, name, sizeof name), mr_human_count(r->files, a), o->format,
           mr_plural(r->files, "file", "files"));
    printf("%s of %s samples from %s files, %s in %s\n", mr_human_count(r->samples, a),
           mr_human_count(r->source_samples, b), mr_human_count(r->source_files, c),
           mr_human_bytes((double)r->bytes, name), mr_human_ns(1e9 * r->pack_s, name + MR_HUMAN_LEN));
    if (r->files_kept)
        printf("kept: %s %s of an earlier run\n", mr_human_count(r->files_kept, a),
               mr_plural(r->files_kept, "file", "files"));
    if (!o->no_verify)
        printf("verified: every sample%s equals the source's, %s\n", r->labelled ? " and label" : "",
               mr_human_ns(1e9 * r->verify_s, a));
    if (r->source_rate > 0) {
        double before = (double)r->source_samples / r->source_rate, after = (double)r->source_samples / r->packed_rate;
        printf("reading, one thread, in order: %s samples/s before, ",
               mr_human_count((unsigned long long)r->source_rate, a));
        printf("%s packed (%.1fx); all %s samples: %s before, %s packed\n",
               mr_human_count((unsigned long long)r->packed_rate, a), r->packed_rate / r->source_rate,
               mr_human_count(r->source_samples, b), mr_human_ns(1e9 * before, c), mr_human_ns(1e9 * after, name));
    }
    return 0;
}

/* "a,b" as a list. */
static int split_fields(struct mr_arena *a, const char *text, const char *const **out, unsigned *n,
                        struct mr_error *err)
{
    size_t most = 1;
    for (const char *p = text; *p; p++)
        most += *p == ',';
    char *rest = mr_arena_strdup(a, text);
    const char **list = mr_arena_alloc(a, most * sizeof(*list));
    if (!rest || !list)
        return mr_error_set(err, -ENOMEM, "cannot keep %zu fields", most);
    for (*n = 0; *text && rest;) {
        const char *name = strsep(&rest, ",");
        if (!*name)
            return mr_error_plain(err, MR_E_USAGE, "--fields '%s' has an empty name", text);
        list[(*n)++] = name;
    }
    *out = list;
    return 0;
}

static int run_pack(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct pack_options *o = ctx->options;
    struct mr_store *store = NULL, *source = NULL;
    struct mr_progress *progress = NULL;
    struct mr_pack_result result = {0};
    struct mr_progress_options po = {.verb = "packing",
                                     .unit = "samples",
                                     .stream = mr_log_shows(MR_LOG_NOTE) ? stderr : NULL,
                                     .force_tty = -1,
                                     .only_work = true};
    double share = 1;
    const char *const *fields = NULL;
    unsigned n_fields = 0;
    int rc = take_share(o->sample, &share, err);
    if (rc == 0)
        rc = split_fields(ctx->arena, o->fields, &fields, &n_fields, err);
    if (rc == 0)
        rc = mr_store_open_at("posix", o->folder, &store, err);
    if (rc == 0)
        rc = mr_store_open_at("posix", o->source, &source, err);
    if (rc == 0)
        rc = mr_progress_start(&po, &progress, err);
    const struct mr_pack_options p = {.store = store,
                                      .source_store = source,
                                      .fields = fields,
                                      .n_fields = n_fields,
                                      .source = o->source,
                                      .source_format = *o->from ? o->from : NULL,
                                      .folder = o->folder,
                                      .format = o->format,
                                      .samples_per_file = (uint64_t)o->samples_per_file,
                                      .share = share,
                                      .compress = o->gzip,
                                      .verify = !o->no_verify,
                                      .threads = o->threads ? (unsigned)o->threads : mr_cpus_available(),
                                      .stop = ctx->stop,
                                      .progress = progress};
    if (rc == 0)
        rc = mr_pack(&p, &result, err);
    mr_progress_stop(progress);
    mr_store_close(store);
    mr_store_close(source);
    return rc < 0 ? rc : report(o, &result, err);
}

const struct mr_command mr_cmd_pack = {
    .name = "pack",
    .synopsis = "SOURCE FOLDER [--to FORMAT] [--samples-per-file N] [--sample 1%] [--json]",
    .summary = "put many small files, or another format, into large files",
    .details = "Copies the samples of a data set into files of another format: same order, labels, class names and "
               "fields. Pictures and raw files are copied as they are stored, arrays as arrays. What is finished stays "
               "when the command is interrupted or killed; the same command continues. At the end every sample is "
               "compared with the source's.\n\n"
               "  millrace pack /data/imagenet/train /data/packed --to tar\n"
               "  millrace pack /data/climate/train /data/climate-parquet --to parquet\n"
               "  millrace pack /data/imagenet/train /tmp/try --to tfrecord --sample 10%\n",
    .table = {.section = "pack", .doc = "pack", .options = rows, .struct_bytes = sizeof(struct pack_options)},
    .run = run_pack,
};
