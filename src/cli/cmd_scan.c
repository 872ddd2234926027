/* `millrace scan`: a manifest for files that are already there. */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/workers.h"
#include "base/text_escape.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "dataset/scan.h"
#include "report/name_json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define REMOTE_THREADS 32u /* requests at once to object storage */

struct scan_options {
    const char *path, *format, *out, *store, *fields;
    int64_t threads;
    bool rows, skip_bad, json;
};

#define AT(field) offsetof(struct scan_options, field)
#define ROW(key, field, type, def, ...) MR_OPTION(scan_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option rows[] = {
    ROW("path", path, STRING, "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REQUIRED,
        .doc = "Folder (searched with all subfolders) or a single file."),
    ROW("format", format, STRING, "", .short_flag = 'f',
        .doc = "Format of the files; by default the most frequent one, by the file names.", .example = "tfrecord"),
    ROW("out", out, STRING, "", .short_flag = 'o',
        .doc = "Where to write the manifest; by default manifest.mrm in the folder, or FILE.mrm."),
    ROW("rows", rows, BOOL, "false",
        .doc = "npy and npz: each row of the first axis is a sample; without it an array is one sample."),
    ROW("fields", fields, STRING, "",
        .doc = "Keep these fields only, the first one as the primary: names joined by commas, each with :input, "
               ":target, :weight or :other behind it where its role is to be another. By default all that are found.",
        .example = "data,labels:target"),
    ROW("skip_bad", skip_bad, BOOL, "false",
        .doc = "Leave broken files out and say how many; without it they are listed and no manifest is written."),
    MR_ROW_THREADS(AT(threads), MR_DOC_THREADS),
    MR_ROW_STORE(AT(store), MR_DOC_STORE),
    MR_ROW_JSON(AT(json), MR_DOC_JSON),
    MR_OPTION_END,
};

static void bad_file(void *user, const char *path, const struct mr_error *why)
{
    char name[4 * MR_NAME_MAX];
    json_t *list = user;
    fprintf(stderr, "millrace: broken file '%s': %s\n", mr_name_escape(path, name, sizeof name), why->message);
    if (why->hint[0])
        fprintf(stderr, "  hint: %s\n", why->hint);
    json_array_append_new(list,
                          json_pack("{s:o, s:o}", "path", mr_name_json(path), "error", mr_name_json(why->message)));
}

/* `why`: the scan failed, there is no manifest; NULL: it did not. */
static int print_json(const struct mr_scan_result *r, json_t *bad, const struct mr_error *why, struct mr_error *err)
{
    json_t *j =
        json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:O}", "schema", "millrace.scan/1", "manifest",
                  why ? json_null() : mr_name_json(r->manifest), "format", r->format, "files", (json_int_t)r->files,
                  "samples", (json_int_t)r->samples, "bytes", (json_int_t)r->bytes, "classes", (json_int_t)r->classes,
                  "bad_files", (json_int_t)r->bad_files, "other_files", (json_int_t)r->other_files, "bad", bad);
    if (j && why)
        json_object_set_new(j, "error", mr_name_json(why->message));
    return mr_cli_print_json(stdout, j, err);
}

static int report(const struct scan_options *o, const struct mr_scan_result *r, json_t *bad, struct mr_error *err)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN], name[4 * MR_NAME_MAX];
    if (o->json)
        return print_json(r, bad, NULL, err);
    printf("%s: %s %s %s, ", mr_name_escape(r->manifest, name, sizeof name), mr_human_count(r->files, a), r->format,
           mr_plural(r->files, "file", "files"));
    printf("%s %s, %s", mr_human_count(r->samples, a), mr_plural(r->samples, "sample", "samples"),
           mr_human_bytes((double)r->bytes, b));
    if (r->fields > 1)
        printf(", %s fields", mr_human_count(r->fields, a));
    if (r->classes)
        printf(", %s %s", mr_human_count(r->classes, a), mr_plural(r->classes, "class", "classes"));
    putchar('\n');
    if (r->bad_files)
        printf("left out: %s broken %s\n", mr_human_count(r->bad_files, a), mr_plural(r->bad_files, "file", "files"));
    if (r->other_files)
        printf("ignored: %s %s of other formats\n", mr_human_count(r->other_files, a),
               mr_plural(r->other_files, "file", "files"));
    return 0;
}

/* The names and roles of --fields. */
static int take_fields(const struct scan_options *o, struct mr_arena *a, struct mr_scan_options *so,
                       struct mr_error *err)
{
    size_t most = 1;
    for (const char *p = o->fields; *p; p++)
        most += *p == ',';
    char *text = mr_arena_strdup(a, o->fields);
    const char **name = mr_arena_alloc(a, most * sizeof(*name));
    int *role = mr_arena_alloc(a, most * sizeof(*role));
    if (!text || !name || !role)
        return mr_error_set(err, -ENOMEM, "cannot keep %zu fields", most);
    for (char *part = text, *next; *o->fields && part; part = next) {
        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        char *colon = strrchr(part, ':');
        role[so->n_fields] = -1;
        for (int k = 0; colon && k < MR_FIELD_ROLES; k++)
            if (strcmp(colon + 1, mr_field_role_name((enum mr_field_role)k)) == 0)
                role[so->n_fields] = k;
        if (role[so->n_fields] >= 0)
            *colon = '\0';
        if (!*part)
            return mr_error_plain(err, MR_E_USAGE, "--fields '%s' has an empty name", o->fields);
        name[so->n_fields++] = part;
    }
    so->fields = name;
    so->roles = role;
    return 0;
}

static int run_scan(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct scan_options *o = ctx->options;
    struct mr_store *store;
    struct mr_progress *progress = NULL;
    struct mr_progress_options po = {
        .verb = "scanning", .unit = "files", .stream = mr_log_shows(MR_LOG_NOTE) ? stderr : NULL, .force_tty = -1};
    int r = mr_store_open_at(o->store, o->path, &store, err);
    if (r < 0)
        return r;
    bool remote = mr_store_is_url(o->path); /* waiting for answers, not for CPUs */
    mr_store_remember_listings(store);
    json_t *bad = json_array();
    struct mr_scan_result result = {0};
    r = mr_progress_start(&po, &progress, err);
    struct mr_scan_options so = {
        .store = store,
        .path = o->path,
        .format = *o->format ? o->format : NULL,
        .out = *o->out ? o->out : NULL,
        .rows = o->rows,
        .skip_bad = o->skip_bad,
        .threads = o->threads ? (unsigned)o->threads
                   : remote   ? REMOTE_THREADS
                              : mr_cpus_available(),
        .stop = ctx->stop,
        .progress = progress,
        .bad = bad_file,
        .user = bad,
    };
    if (r >= 0)
        r = take_fields(o, ctx->arena, &so, err);
    if (r >= 0)
        r = mr_scan(&so, &result, err);
    mr_progress_stop(progress);
    mr_store_close(store);
    if (r >= 0)
        r = report(o, &result, bad, err);
    else if (o->json && r != MR_E_INTERRUPTED)
        (void)print_json(&result, bad, err, NULL); /* the scan's own error is the one to report */
    json_decref(bad);
    return r;
}

const struct mr_command mr_cmd_scan = {
    .name = "scan",
    .synopsis = "PATH [--format F] [--out MANIFEST] [--skip-bad] [--json]",
    .summary = "make a manifest for existing files",
    .details = "Understands folders of images (class folders become labels, in order of their names), tar shards, "
               "TFRecord, HDF5, NPY, NPZ, CSV, JSON and indexed binary files that others wrote. Files are ordered by "
               "name, so the numbering is stable. Nothing is written but the manifest.\n\n"
               "  millrace scan /data/imagenet/train\n"
               "  millrace scan /data/shards --format tar --out /tmp/shards.mrm\n",
    .table = {.section = "scan", .doc = "scan", .options = rows, .struct_bytes = sizeof(struct scan_options)},
    .run = run_scan,
};
