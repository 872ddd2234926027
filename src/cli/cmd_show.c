/* `millrace show`: what a data set is, or where one sample of it lies. Reads the manifest only. */
#include "base/common.h"
#include "base/histogram.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/workload_args.h"
#include "dataset/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZES_MAX 2000000u /* samples looked at for the size distribution; more are taken in even steps */

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

struct sizes {
    struct mr_histogram h;
    uint64_t step;
};

static void measure(const struct mr_manifest *m, struct sizes *s)
{
    const struct mr_manifest_info *i = mr_manifest_get_info(m);
    struct mr_manifest_pos p;
    mr_histogram_init(&s->h);
    s->step = i->samples / SIZES_MAX + 1;
    if (i->samples && i->sample_min_bytes == i->sample_max_bytes) {
        mr_histogram_add_n(&s->h, i->sample_min_bytes, i->samples);
        return;
    }
    for (uint64_t id = 0; id < i->samples; id += s->step)
        if (mr_manifest_locate(m, id, &p, NULL) >= 0)
            mr_histogram_add(&s->h, p.ref.raw.length);
}

static void print_dims(const struct mr_dataset_info *i)
{
    printf("sample     %s", i->dtype);
    for (unsigned d = 0; d < i->n_dims; d++)
        printf("%s%" PRIu64, d ? " x " : ", ", i->dims[d]);
    puts(i->n_dims ? "" : ", shapes differ or are known only from the files");
}

static void print_summary(const struct mr_dataset *ds, const struct mr_dataset_info *i, const struct sizes *s,
                          const struct mr_read_cost *cost)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN], root[4 * MR_NAME_MAX];
    const struct mr_manifest *m = mr_dataset_manifest(ds);
    printf("data set   %s (%s)\n", mr_name_escape(mr_dataset_root(ds), root, sizeof root),
           i->generated ? "generated" : "scanned");
    printf("format     %s\n", i->format);
    print_dims(i);
    printf("samples    %s in %s %s", mr_human_count(i->samples, a), mr_human_count(i->files, b),
           mr_plural(i->files, "file", "files"));
    if (i->samples_per_file)
        printf(", %s each", mr_human_count(i->samples_per_file, a));
    printf("\nbytes      %s in files, ", mr_human_bytes((double)i->file_bytes, a));
    printf("%s in samples\n", mr_human_bytes((double)i->sample_bytes, a));
    printf("sizes      min %s", mr_human_bytes((double)i->sample_min_bytes, a));
    printf(", mean %s", mr_human_bytes(i->samples ? (double)i->sample_bytes / (double)i->samples : 0, a));
    printf(", p50 %s", mr_human_bytes((double)mr_histogram_quantile(&s->h, 0.5), a));
    printf(", p99 %s", mr_human_bytes((double)mr_histogram_quantile(&s->h, 0.99), a));
    printf(", max %s\n", mr_human_bytes((double)i->sample_max_bytes, a));
    if (cost)
        printf("reading    %.3g bytes read per payload byte; %s\n", cost->bytes_read_per_payload_byte,
               cost->note ? cost->note : "");
    printf("manifest   %s, %.3g bytes per sample, %" PRIu64 " %s\n", mr_human_bytes((double)i->manifest_bytes, a),
           i->samples ? (double)i->manifest_bytes / (double)i->samples : 0, mr_manifest_layouts(m),
           mr_plural(mr_manifest_layouts(m), "layout", "layouts"));
    if (i->generated)
        printf("seed       %" PRIu64 "\n", i->seed);
    printf("made from  %s\n", mr_manifest_get_spec(m));
}

static json_t *summary_json(const struct mr_dataset *ds, const struct mr_dataset_info *i, const struct sizes *s,
                            const struct mr_read_cost *cost)
{
    json_t *dims = json_array();
    for (unsigned d = 0; d < i->n_dims; d++)
        json_array_append_new(dims, json_integer((json_int_t)i->dims[d]));
    json_t *j = json_pack("{s:s, s:o, s:b, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I}", "schema", "millrace.show/1",
                          "root", mr_cli_name_json(mr_dataset_root(ds)), "generated", i->generated, "format", i->format,
                          "dtype", i->dtype, "dims", dims, "samples", (json_int_t)i->samples, "files",
                          (json_int_t)i->files, "samples_per_file", (json_int_t)i->samples_per_file, "file_bytes",
                          (json_int_t)i->file_bytes, "sample_bytes", (json_int_t)i->sample_bytes);
    json_object_update_new(
        j, json_pack("{s:I, s:I, s:I, s:I, s:f, s:I, s:I}", "sample_min_bytes", (json_int_t)i->sample_min_bytes,
                     "sample_max_bytes", (json_int_t)i->sample_max_bytes, "sample_p50_bytes",
                     (json_int_t)mr_histogram_quantile(&s->h, 0.5), "sample_p99_bytes",
                     (json_int_t)mr_histogram_quantile(&s->h, 0.99), "sample_mean_bytes",
                     i->samples ? (double)i->sample_bytes / (double)i->samples : 0.0, "manifest_bytes",
                     (json_int_t)i->manifest_bytes, "content_seed", (json_int_t)i->seed));
    if (cost)
        json_object_set_new(j, "read_cost",
                            json_pack("{s:f, s:b, s:s}", "bytes_per_payload_byte", cost->bytes_read_per_payload_byte,
                                      "whole_file_unpacked", cost->access == MR_ACCESS_UNPACK, "note",
                                      cost->note ? cost->note : ""));
    json_t *spec = json_loads(mr_manifest_get_spec(mr_dataset_manifest(ds)), 0, NULL);
    if (spec)
        json_object_set_new(j, "spec", spec);
    return j;
}

static int show_set(const struct show_options *o, const struct mr_dataset *ds, struct mr_error *err)
{
    struct mr_dataset_info i;
    struct mr_read_cost cost;
    struct sizes *s = malloc(sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot show '%s'", o->folder);
    mr_dataset_get_info(ds, &i);
    measure(mr_dataset_manifest(ds), s);
    bool known = i.files && mr_dataset_file_cost(ds, 0, &cost, NULL) >= 0;
    int r = 0;
    if (o->json)
        r = mr_cli_print_json(stdout, summary_json(ds, &i, s, known ? &cost : NULL), err);
    else
        print_summary(ds, &i, s, known ? &cost : NULL);
    free(s);
    return r;
}

static int show_sample(const struct show_options *o, const struct mr_dataset *ds, struct mr_error *err)
{
    int64_t id;
    struct mr_sample_place p;
    char path[4 * MR_NAME_MAX];
    if (mr_parse_int(o->id, &id) < 0 || id < 0)
        return mr_error_plain(err, MR_E_USAGE, "bad sample number '%s': want a whole number from 0 up", o->id);
    int r = mr_dataset_locate(ds, (uint64_t)id, &p, err);
    if (r < 0)
        return r;
    const char *class_name = mr_manifest_label_name(mr_dataset_manifest(ds), p.label);
    if (o->json) {
        json_t *j = json_pack("{s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:I}", "schema", "millrace.show_sample/1", "sample",
                              (json_int_t)id, "path", mr_cli_name_json(p.path), "file", (json_int_t)p.file, "index",
                              (json_int_t)p.index, "offset_bytes", (json_int_t)p.offset, "length_bytes",
                              (json_int_t)p.bytes, "file_bytes", (json_int_t)p.file_bytes);
        json_object_set_new(j, "label", p.label == MR_SAMPLE_NO_LABEL ? json_null() : json_integer(p.label));
        if (class_name)
            json_object_set_new(j, "class", mr_cli_name_json(class_name));
        return mr_cli_print_json(stdout, j, err);
    }
    printf("sample  %" PRId64 "\nfile    %s\nnumber  %" PRIu64 " of file %" PRIu64 "\noffset  %" PRIu64
           "\nlength  %" PRIu64 "\n",
           id, mr_name_escape(p.path, path, sizeof path), p.index, p.file, p.offset, p.bytes);
    if (p.label != MR_SAMPLE_NO_LABEL)
        printf("label   %" PRId64 "%s%s\n", p.label, class_name ? " " : "",
               class_name ? mr_name_escape(class_name, path, sizeof path) : "");
    return 0;
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
