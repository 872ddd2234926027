/* A data set and a sample of it as text and JSON: see dataset_text.h. */
#include "report/dataset_text.h"
#include "base/common.h"
#include "base/histogram.h"
#include "base/text_escape.h"
#include "dataset/dataset_parts.h"
#include "report/name_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define SIZES_MAX 2000000u /* samples looked at for the size distribution; more are taken in even steps */

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

static void print_dims(struct mr_strbuf *o, const struct mr_dataset_info *i)
{
    mr_strbuf_printf(o, "sample     %s", i->dtype);
    for (unsigned d = 0; d < i->n_dims; d++)
        mr_strbuf_printf(o, "%s%" PRIu64, d ? " x " : ", ", i->dims[d]);
    mr_strbuf_puts(o, i->n_dims ? "\n" : ", shapes differ or are known only from the files\n");
}

static void print_field(struct mr_strbuf *o, const struct mr_schema_field *x)
{
    char bytes[MR_HUMAN_LEN], name[4 * MR_FIELD_NAME_MAX];
    const struct mr_field *f = &x->field;
    struct mr_strbuf shape = {0};
    for (unsigned d = 0; f->variable != MR_FIELD_ANY_SHAPE && d < f->dims.n; d++)
        if ((int)d == f->variable)
            mr_strbuf_printf(&shape, "%s?", d ? " x " : "");
        else
            mr_strbuf_printf(&shape, "%s%" PRIu64, d ? " x " : "", f->dims.dim[d]);
    const char *text = f->variable == MR_FIELD_ANY_SHAPE ? "any shape" : f->dims.n ? shape.text : "one number";
    mr_strbuf_printf(o, "  %-16s %-4s %-20s %-6s %-7s", mr_name_escape(f->name, name, sizeof name),
                     mr_dtype_numpy(f->dtype), text, mr_field_role_name(f->role), mr_field_storage_name(f->storage));
    if (f->storage == MR_FIELD_LABEL)
        mr_strbuf_puts(o, "in the manifest\n");
    else
        mr_strbuf_printf(o, "%s\n", mr_human_bytes((double)x->sum_bytes, bytes));
    mr_strbuf_done(&shape);
}

/* The schema, where the manifest has one. */
static void print_fields(struct mr_strbuf *o, const struct mr_manifest *m)
{
    const struct mr_schema *s = mr_manifest_schema(m);
    if (!s->stored)
        return;
    mr_strbuf_printf(o, "fields     %u\n", s->n);
    for (unsigned i = 0; i < s->n; i++)
        print_field(o, &s->field[i]);
}

static json_t *fields_json(const struct mr_manifest *m)
{
    const struct mr_schema *s = mr_manifest_schema(m);
    json_t *list = json_array();
    for (unsigned i = 0; i < s->n; i++) {
        const struct mr_schema_field *x = &s->field[i];
        const struct mr_field *f = &x->field;
        json_t *dims = json_array();
        for (unsigned d = 0; d < f->dims.n; d++)
            json_array_append_new(dims, (int)d == f->variable ? json_null() : json_integer((json_int_t)f->dims.dim[d]));
        json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:s, s:s, s:I, s:I, s:I}", "name", mr_name_json(f->name),
                                              "dtype", mr_dtype_numpy(f->dtype), "dims",
                                              f->variable == MR_FIELD_ANY_SHAPE ? json_null() : dims, "role",
                                              mr_field_role_name(f->role), "storage", mr_field_storage_name(f->storage),
                                              "stored_bytes", (json_int_t)x->sum_bytes, "min_bytes",
                                              (json_int_t)x->min_bytes, "max_bytes", (json_int_t)x->max_bytes));
        if (f->variable == MR_FIELD_ANY_SHAPE)
            json_decref(dims);
    }
    return list;
}

static void print_summary(struct mr_strbuf *o, const struct mr_dataset *ds, const struct mr_dataset_info *i,
                          const struct sizes *s, const struct mr_read_cost *cost)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN], root[4 * MR_NAME_MAX];
    const struct mr_manifest *m = mr_dataset_manifest(ds);
    mr_strbuf_printf(o, "data set   %s (%s)\n", mr_name_escape(mr_dataset_root(ds), root, sizeof root),
                     i->generated ? "generated" : "scanned");
    mr_strbuf_printf(o, "format     %s\n", i->format);
    print_dims(o, i);
    print_fields(o, m);
    mr_strbuf_printf(o, "samples    %s in %s %s", mr_human_count(i->samples, a), mr_human_count(i->files, b),
                     mr_plural(i->files, "file", "files"));
    if (i->samples_per_file)
        mr_strbuf_printf(o, ", %s each", mr_human_count(i->samples_per_file, a));
    mr_strbuf_printf(o, "\nbytes      %s in files, ", mr_human_bytes((double)i->file_bytes, a));
    mr_strbuf_printf(o, "%s in samples\n", mr_human_bytes((double)i->sample_bytes, a));
    mr_strbuf_printf(o, "sizes      min %s", mr_human_bytes((double)i->sample_min_bytes, a));
    mr_strbuf_printf(o, ", mean %s", mr_human_bytes(i->samples ? (double)i->sample_bytes / (double)i->samples : 0, a));
    mr_strbuf_printf(o, ", p50 %s", mr_human_bytes((double)mr_histogram_quantile(&s->h, 0.5), a));
    mr_strbuf_printf(o, ", p99 %s", mr_human_bytes((double)mr_histogram_quantile(&s->h, 0.99), a));
    mr_strbuf_printf(o, ", max %s\n", mr_human_bytes((double)i->sample_max_bytes, a));
    if (cost)
        mr_strbuf_printf(o, "reading    %.3g bytes read per payload byte; %s\n", cost->bytes_read_per_payload_byte,
                         cost->note ? cost->note : "");
    mr_strbuf_printf(o, "manifest   %s, %.3g bytes per sample, %" PRIu64 " %s\n",
                     mr_human_bytes((double)i->manifest_bytes, a),
                     i->samples ? (double)i->manifest_bytes / (double)i->samples : 0, mr_manifest_layouts(m),
                     mr_plural(mr_manifest_layouts(m), "layout", "layouts"));
    if (i->generated)
        mr_strbuf_printf(o, "seed       %" PRIu64 "\n", i->seed);
    mr_strbuf_printf(o, "made from  %s\n", mr_manifest_get_spec(m));
}

static json_t *summary_json(const struct mr_dataset *ds, const struct mr_dataset_info *i, const struct sizes *s,
                            const struct mr_read_cost *cost)
{
    json_t *dims = json_array();
    for (unsigned d = 0; d < i->n_dims; d++)
        json_array_append_new(dims, json_integer((json_int_t)i->dims[d]));
    json_t *j = json_pack("{s:s, s:o, s:b, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I}", "schema", "millrace.show/1",
                          "root", mr_name_json(mr_dataset_root(ds)), "generated", i->generated, "format", i->format,
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
    json_object_set_new(j, "fields", fields_json(mr_dataset_manifest(ds)));
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

/* Text into `o`, or JSON into *json where it is not NULL. */
static int describe(const struct mr_dataset *ds, struct mr_strbuf *o, json_t **json, struct mr_error *err)
{
    struct mr_dataset_info i;
    struct mr_read_cost cost;
    struct sizes *s = malloc(sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot show '%s'", mr_dataset_root(ds));
    mr_dataset_get_info(ds, &i);
    measure(mr_dataset_manifest(ds), s);
    bool known = i.files && mr_dataset_file_cost(ds, 0, &cost, NULL) >= 0;
    if (json)
        *json = summary_json(ds, &i, s, known ? &cost : NULL);
    else
        print_summary(o, ds, &i, s, known ? &cost : NULL);
    free(s);
    return 0;
}

int mr_report_dataset(const struct mr_dataset *ds, struct mr_strbuf *o, struct mr_error *err)
{
    return describe(ds, o, NULL, err);
}

int mr_report_dataset_json(const struct mr_dataset *ds, json_t **out, struct mr_error *err)
{
    return describe(ds, NULL, out, err);
}

/* ---- a sample ---- */

void mr_report_sample(const struct mr_dataset *ds, uint64_t id, const struct mr_sample_place *p, struct mr_strbuf *o)
{
    const char *class_name = mr_manifest_label_name(mr_dataset_manifest(ds), p->label);
    char path[4 * MR_NAME_MAX];
    mr_strbuf_printf(o,
                     "sample  %" PRIu64 "\nfile    %s\nnumber  %" PRIu64 " of file %" PRIu64 "\noffset  %" PRIu64
                     "\nlength  %" PRIu64 "\n",
                     id, mr_name_escape(p->path, path, sizeof path), p->index, p->file, p->offset, p->bytes);
    if (p->label != MR_SAMPLE_NO_LABEL)
        mr_strbuf_printf(o, "label   %" PRId64 "%s%s\n", p->label, class_name ? " " : "",
                         class_name ? mr_name_escape(class_name, path, sizeof path) : "");
}

json_t *mr_report_sample_json(const struct mr_dataset *ds, uint64_t id, const struct mr_sample_place *p)
{
    const char *class_name = mr_manifest_label_name(mr_dataset_manifest(ds), p->label);
    json_t *j = json_pack("{s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:I}", "schema", "millrace.show_sample/1", "sample",
                          (json_int_t)id, "path", mr_name_json(p->path), "file", (json_int_t)p->file, "index",
                          (json_int_t)p->index, "offset_bytes", (json_int_t)p->offset, "length_bytes",
                          (json_int_t)p->bytes, "file_bytes", (json_int_t)p->file_bytes);
    json_object_set_new(j, "label", p->label == MR_SAMPLE_NO_LABEL ? json_null() : json_integer(p->label));
    if (class_name)
        json_object_set_new(j, "class", mr_name_json(class_name));
    return j;
}
