/* A manifest of files that somebody else listed: sizes are asked in parallel, nothing is read. See
 * <millrace/dataset.h>. */
#include "base/common.h"
#include "base/workers.h"
#include "dataset/manifest.h"
#include "format/image_file.h"

#include <errno.h>
#include <jansson.h>
#include <millrace/dataset.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sizing {
    const struct mr_file_list *list;
    struct mr_store *store;
    uint64_t *bytes;
};

static int ask_size(struct mr_worker_ctx *ctx, uint64_t i, struct mr_error *err)
{
    const struct sizing *z = ctx->user;
    char path[2 * MR_NAME_MAX];
    struct mr_store_stat st;
    int n = snprintf(path, sizeof path, "%s/%s", z->list->root, z->list->names[i]);
    if (n < 0 || (size_t)n >= sizeof path)
        return mr_error_set(err, -ENAMETOOLONG, "cannot use the file '%.64s...'", z->list->names[i]);
    int rc = mr_store_stat(z->store, path, &st, err);
    if (rc < 0)
        return rc;
    z->bytes[i] = st.bytes;
    return 0;
}

static int add_file(struct mr_manifest_builder *b, const struct mr_file_list *list, uint64_t i, uint64_t bytes,
                    const struct mr_layout *layout, struct mr_error *err)
{
    struct mr_manifest_file f = {.name = list->names[i], .bytes = bytes, .layout = *layout};
    struct mr_sample_columns columns = {0};
    struct mr_sample_ref ref = {.raw = {0, bytes}, .label = list->labels ? list->labels[i] : MR_LABEL_NONE};
    int rc = mr_sample_columns_add(&columns, &ref, err);
    if (rc >= 0) {
        mr_sample_columns_finish(&columns, f.column);
        rc = mr_manifest_builder_add(b, &f, err);
    }
    mr_sample_columns_done(&columns);
    return rc;
}

/* What the manifest says of itself: where the files are. */
static char *spec_of(const struct mr_file_list *list)
{
    json_t *spec = json_pack("{s:s, s:s}", "format", list->format, "root", list->root);
    char *text = spec ? json_dumps(spec, JSON_COMPACT) : NULL;
    json_decref(spec);
    return text;
}

static int build(const struct mr_file_list *list, const struct sizing *z, const char *manifest, struct mr_error *err)
{
    struct mr_manifest_info info = {.flags = MR_MANIFEST_SCANNED, .dtype = MR_U8};
    struct mr_manifest_builder *b = NULL;
    struct mr_layout layout = {0};
    char *spec = spec_of(list);
    snprintf(info.format, sizeof info.format, "%s", list->format);
    int rc = spec ? mr_image_layout(&layout, err) : mr_error_set(err, -ENOMEM, "cannot index '%s'", list->root);
    if (rc >= 0)
        rc = mr_manifest_builder_create(&info, NULL, spec, &b, err);
    for (uint64_t i = 0; rc >= 0 && i < list->n; i++) {
        if (i && strcmp(list->names[i - 1], list->names[i]) >= 0)
            rc = mr_error_plain(err, MR_E_USAGE, "file names must ascend: '%s' after '%s'", list->names[i],
                                list->names[i - 1]);
        else
            rc = add_file(b, list, i, z->bytes[i], &layout, err);
    }
    if (rc >= 0)
        rc = mr_manifest_builder_write(b, z->store, manifest, err);
    mr_manifest_builder_free(b);
    free(layout.data);
    free(spec);
    return rc < 0 ? rc : 0;
}

int mr_dataset_index_files(const struct mr_file_list *list, const char *manifest, struct mr_error *err)
{
    if (strcmp(list->format, "jpeg") != 0 && strcmp(list->format, "png") != 0)
        return mr_error_plain(err, MR_E_USAGE, "files of format '%s' cannot be listed; pictures can", list->format);
    if (!list->n)
        return mr_error_plain(err, MR_E_USAGE, "there are no files to index in '%s'", list->root);
    struct sizing z = {.list = list, .bytes = calloc(list->n, sizeof(*z.bytes))};
    if (!z.bytes)
        return mr_error_set(err, -ENOMEM, "cannot index %llu files", (unsigned long long)list->n);
    int rc = mr_store_open("posix", &z.store, err);
    if (rc >= 0)
        rc = mr_workers_run(list->threads ? list->threads : mr_cpus_available(), list->n, 64, ask_size, &z, NULL, err);
    if (rc >= 0)
        rc = build(list, &z, manifest, err);
    mr_store_close(z.store);
    free(z.bytes);
    return rc < 0 ? rc : 0;
}
