/* `millrace cat`: one sample's payload (or its raw bytes in the file) on standard output. */
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/workload_args.h"
#include "report/print.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct cat_options {
    const char *folder, *id, *store;
    bool raw, json;
};

#define AT(field) offsetof(struct cat_options, field)
#define ROW(key, field, type, def, ...) MR_OPTION(cat_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option rows[] = {
    MR_ROW_FOLDER(AT(folder), MR_DOC_FOLDER),
    ROW("id", id, STRING, "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REQUIRED, .doc = "Number of the sample."),
    ROW("raw", raw, BOOL, "false",
        .doc = "The bytes as they lie in the file (a JPEG stays a JPEG) instead of the decoded payload."),
    MR_ROW_JSON(AT(json), "Print shape, type, label and size of the sample as JSON instead of its bytes."),
    MR_ROW_STORE(AT(store), MR_DOC_STORE),
    MR_OPTION_END,
};

static int put(const void *data, size_t len, struct mr_error *err)
{
    if (fwrite(data, 1, len, stdout) != len)
        return mr_error_set(err, -errno, "cannot write %zu bytes to standard output", len);
    return 0;
}

/* In a file that is compressed as a whole, offsets refer to the unpacked bytes. */
static int refuse_packed(struct mr_dataset *ds, uint64_t file, const char *path, struct mr_error *err)
{
    struct mr_layout layout;
    struct mr_read_cost cost;
    mr_manifest_file_layout(mr_dataset_manifest(ds), file, &layout);
    int r = mr_dataset_format(ds)->cost(&layout, &cost, err);
    if (r < 0 || cost.access == MR_ACCESS_RANGE)
        return r;
    mr_error_plain(err, MR_E_UNSUPPORTED, "'%s' is compressed as a whole: no range of its bytes is this sample", path);
    return mr_error_hint(err, "leave out --raw"), MR_E_UNSUPPORTED;
}

static int cat_raw(struct mr_dataset *ds, uint64_t id, struct mr_error *err)
{
    struct mr_sample_place p;
    struct mr_object *o;
    int r = mr_dataset_locate(ds, id, &p, err);
    if (r >= 0)
        r = refuse_packed(ds, p.file, p.path, err);
    if (r < 0)
        return r;
    uint8_t *buf = malloc(p.bytes ? p.bytes : 1);
    if (!buf)
        return mr_error_set(err, -ENOMEM, "cannot read a sample of %llu bytes", (unsigned long long)p.bytes);
    r = mr_object_open(mr_dataset_store(ds), p.path, MR_OBJ_READ, &o, err);
    if (r >= 0) {
        r = mr_object_read(o, buf, p.bytes, p.offset, err);
        mr_object_close(o, NULL);
    }
    if (r >= 0)
        r = put(buf, p.bytes, err);
    free(buf);
    return r;
}

static int describe(uint64_t id, const struct mr_sample *s, struct mr_error *err)
{
    json_t *dims = json_array();
    for (unsigned d = 0; d < s->n_dims; d++)
        json_array_append_new(dims, json_integer((json_int_t)s->dims[d]));
    json_t *label = s->label == MR_SAMPLE_NO_LABEL ? json_null() : json_integer(s->label);
    return mr_cli_print_json(stdout,
                             json_pack("{s:s, s:I, s:s, s:o, s:I, s:o}", "schema", "millrace.sample/1", "sample",
                                       (json_int_t)id, "dtype", s->dtype, "dims", dims, "bytes", (json_int_t)s->bytes,
                                       "label", label),
                             err);
}

static int cat_payload(struct mr_dataset *ds, uint64_t id, bool json, struct mr_error *err)
{
    struct mr_dataset_reader *r;
    struct mr_sample s;
    int rc = mr_dataset_reader_create(ds, &r, err);
    if (rc < 0)
        return rc;
    rc = mr_dataset_read(r, id, MR_DATASET_VERIFY, NULL, 0, &s, err);
    if (rc >= 0)
        rc = json ? describe(id, &s, err) : put(s.data, s.bytes, err);
    mr_dataset_reader_free(r);
    return rc;
}

static int run_cat(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct cat_options *o = ctx->options;
    struct mr_dataset *ds;
    int64_t id;
    if (mr_parse_int(o->id, &id) < 0 || id < 0)
        return mr_error_plain(err, MR_E_USAGE, "bad sample number '%s': want a whole number from 0 up", o->id);
    if (o->raw && o->json)
        return mr_error_plain(err, MR_E_USAGE, "--raw and --json exclude each other");
    int r = mr_dataset_open(o->folder, o->store, &ds, err);
    if (r < 0)
        return r;
    r = o->raw ? cat_raw(ds, (uint64_t)id, err) : cat_payload(ds, (uint64_t)id, o->json, err);
    mr_dataset_close(ds);
    return r;
}

const struct mr_command mr_cmd_cat = {
    .name = "cat",
    .synopsis = "FOLDER ID [--raw | --json]",
    .summary = "write one sample to standard output",
    .details = "Stored checksums are verified.\n\n"
               "  millrace cat /data/img 17 > pixels\n"
               "  millrace cat /data/img 17 --raw > image.jpg\n",
    .table = {.section = "cat", .doc = "cat", .options = rows, .struct_bytes = sizeof(struct cat_options)},
    .run = run_cat,
};
