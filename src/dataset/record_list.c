/* A manifest of the equal records of one plain file, e.g. of token numbers: the file is not read. See
 * <millrace/dataset.h>. */
#include "base/common.h"
#include "dataset/manifest.h"
#include "format/format.h"
#include "format/format_bytes.h"

#include <errno.h>
#include <jansson.h>
#include <millrace/dataset.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RAW_LAYOUT_VERSION 1 /* of format_raw.c */

struct records {
    const char *name; /* inside root */
    char *root;
    uint64_t bytes, n, skip_bytes, record_bytes, step_bytes;
};

static int collect(const struct records *r, struct mr_sample_columns *columns, struct mr_error *err)
{
    int rc = 0;
    for (uint64_t i = 0; rc >= 0 && i < r->n; i++) {
        struct mr_sample_ref ref = {.raw = {r->skip_bytes + i * r->step_bytes, r->record_bytes},
                                    .label = MR_LABEL_NONE};
        rc = mr_sample_columns_add(columns, &ref, err);
    }
    return rc;
}

static int add_file(struct mr_manifest_builder *b, const struct records *r, struct mr_error *err)
{
    struct mr_manifest_file f = {.name = r->name, .bytes = r->bytes};
    struct mr_sample_columns columns = {0};
    int rc = mr_layout_make(&(uint8_t){RAW_LAYOUT_VERSION}, 1, &f.layout, err);
    if (rc >= 0)
        rc = collect(r, &columns, err);
    if (rc >= 0) {
        mr_sample_columns_finish(&columns, f.column);
        rc = mr_manifest_builder_add(b, &f, err);
    }
    mr_sample_columns_done(&columns);
    free(f.layout.data);
    return rc;
}

static int write_records(struct mr_store *s, const struct records *r, const char *manifest, struct mr_error *err)
{
    struct mr_manifest_info info = {.flags = MR_MANIFEST_SCANNED, .dtype = MR_U8, .format = "raw"};
    struct mr_manifest_builder *b = NULL;
    json_t *spec = json_pack("{s:s, s:s}", "format", "raw", "root", r->root);
    char *text = spec ? json_dumps(spec, JSON_COMPACT) : NULL;
    int rc = text ? mr_manifest_builder_create(&info, NULL, text, &b, err)
                  : mr_error_set(err, -ENOMEM, "cannot index '%s'", r->name);
    if (rc >= 0)
        rc = add_file(b, r, err);
    if (rc >= 0)
        rc = mr_manifest_builder_write(b, s, manifest, err);
    mr_manifest_builder_free(b);
    free(text);
    json_decref(spec);
    return rc < 0 ? rc : 0;
}

int mr_dataset_index_records(const char *path, uint64_t skip_bytes, uint64_t record_bytes, uint64_t step_bytes,
                             const char *manifest, struct mr_error *err)
{
    struct records r = {.skip_bytes = skip_bytes, .record_bytes = record_bytes, .step_bytes = step_bytes};
    struct mr_store *s = NULL;
    struct mr_store_stat st;
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || !slash[1] || !record_bytes || !step_bytes)
        return mr_error_plain(err, MR_E_USAGE, "records want the absolute path of a file and sizes above 0, not '%s'",
                              path);
    int rc = mr_store_open("posix", &s, err);
    if (rc >= 0)
        rc = mr_store_stat(s, path, &st, err);
    uint64_t have = rc >= 0 && st.bytes > skip_bytes ? st.bytes - skip_bytes : 0;
    if (rc >= 0 && have < record_bytes)
        rc = mr_error_plain(err, MR_E_USAGE, "'%s' has %llu bytes, less than one record of %llu", path,
                            (unsigned long long)have, (unsigned long long)record_bytes);
    if (rc >= 0) {
        r.bytes = st.bytes;
        r.n = (have - record_bytes) / step_bytes + 1;
        r.name = slash + 1;
        r.root = strndup(path, slash == path ? 1 : (size_t)(slash - path));
        rc = r.root ? write_records(s, &r, manifest, err) : mr_error_set(err, -ENOMEM, "cannot index '%s'", path);
    }
    free(r.root);
    mr_store_close(s);
    return rc < 0 ? rc : 0;
}
