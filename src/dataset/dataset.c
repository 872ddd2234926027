/* Opening a data set and finding samples: see <millrace/dataset.h>. Everything here is set at open and constant after,
 * which is why all threads may share it. */
#include "dataset/dataset_parts.h"
#include "dataset/gen_fields.h"
#include "base/strbuf.h"
#include "base/common.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mr_dataset {
    struct mr_store *store;
    bool owns_store;
    struct mr_manifest *manifest;
    const struct mr_format_ops *format;
    char *root;
    unsigned *selected; /* fields; NULL: the primary one, without a selection */
    unsigned n_selected;
};

int mr_dataset_find_manifest(struct mr_store *s, const char *path, char *out, struct mr_error *err)
{
    static const char *const places[] = {"", "train/"};
    struct mr_store_stat st;
    if (strlen(path) >= MR_NAME_MAX)
        return mr_error_set(err, -ENAMETOOLONG, "cannot open data set '%s'", path);
    int r = mr_store_stat(s, path, &st, err);
    if (r == -ENOENT)
        mr_error_hint(err, "make a data set with 'millrace gen'");
    if (r < 0)
        return r;
    if (!st.is_dir) {
        snprintf(out, 2 * MR_NAME_MAX, "%s", path);
        return 0;
    }
    for (unsigned i = 0; i < MR_ARRAY_LEN(places); i++) {
        snprintf(out, 2 * MR_NAME_MAX, "%s/%s" MR_MANIFEST_NAME, path, places[i]);
        struct mr_error why;
        r = mr_store_stat(s, out, &st, &why);
        if (r >= 0 && !st.is_dir)
            return 0;
        if (r < 0 && r != -ENOENT && r != -ENOTDIR) { /* it may well be there */
            if (err)
                *err = why;
            return r;
        }
    }
    mr_error_plain(err, MR_E_FORMAT,
                   "'%s' has no manifest: neither '" MR_MANIFEST_NAME "' nor 'train/" MR_MANIFEST_NAME "'", path);
    char word[1024];
    return mr_error_hint(err, "finish it with 'millrace gen', or index existing files with 'millrace scan %s'",
                         mr_shell_word(path, word, sizeof word)),
           MR_E_FORMAT;
}

/* Where file names start: the spec's root, or the manifest's folder. */
static char *find_root(const struct mr_manifest *m, const char *manifest_path)
{
    json_t *spec = json_loads(mr_manifest_get_spec(m), 0, NULL);
    const char *root = json_string_value(json_object_get(spec, "root"));
    const char *slash = strrchr(manifest_path, '/');
    char *out;
    if (root && *root)
        out = strdup(root);
    else if (!slash)
        out = strdup(".");
    else
        out = strndup(manifest_path, slash == manifest_path ? 1 : (size_t)(slash - manifest_path));
    json_decref(spec);
    return out;
}

/* Takes a trailing "@files=N" off a path; a file or folder of that very name goes first. Returns N, or 0: all. */
static uint64_t take_limit(struct mr_store *s, const char *path, char *plain)
{
    static const char mark[] = "@files=";
    struct mr_store_stat st;
    const char *at = NULL;
    char *end;
    for (const char *p = strstr(path, mark); p; p = strstr(p + 1, mark))
        at = p;
    snprintf(plain, MR_NAME_MAX, "%s", path);
    if (!at || strlen(path) >= MR_NAME_MAX || at[strlen(mark)] < '0' || at[strlen(mark)] > '9' ||
        mr_store_stat(s, path, &st, NULL) >= 0)
        return 0;
    uint64_t n = strtoull(at + strlen(mark), &end, 10);
    if (*end)
        return 0;
    plain[at - path] = '\0';
    return n;
}

int mr_dataset_open_in(const char *path, struct mr_store *store, struct mr_dataset **out, struct mr_error *err)
{
    char manifest[2 * MR_NAME_MAX], plain[MR_NAME_MAX];
    uint64_t limit = 0;
    struct mr_dataset *ds = calloc(1, sizeof(*ds));
    if (!ds)
        return mr_error_set(err, -ENOMEM, "cannot open data set '%s'", path);
    ds->store = store;
    /* A store without content (null) serves the data; what the data would be is still read for real. And files in object
     * storage may have their manifest on a disk. */
    struct mr_store *manifest_store = store;
    bool remote = mr_store_is_remote(store), has_content = mr_store_caps(store) & MR_STORE_CAP_CONTENT;
    bool apart = !has_content || (remote && !mr_store_is_url(path));
    int r = apart ? mr_store_open_at("posix", path, &manifest_store, err) : 0;
    if (r >= 0) {
        limit = take_limit(manifest_store, path, plain);
        r = mr_dataset_find_manifest(manifest_store, limit ? plain : path, manifest, err);
    }
    if (r >= 0)
        r = mr_manifest_open(manifest_store, manifest, &ds->manifest, err);
    if (r >= 0 && limit)
        mr_manifest_limit(ds->manifest, limit);
    if (manifest_store != store)
        mr_store_close(manifest_store);
    if (r >= 0 && !(ds->root = find_root(ds->manifest, manifest)))
        r = mr_error_set(err, -ENOMEM, "cannot open data set '%s'", path);
    if (r >= 0 && has_content && remote != mr_store_is_url(ds->root)) {
        r = mr_error_plain(err, MR_E_USAGE, "the files of '%s' are %s, in '%s'", path,
                           remote ? "not in object storage" : "in object storage", ds->root);
        mr_error_hint(err, remote ? "leave --store s3 out" : "give --store s3");
    }
    if (r >= 0 && !(ds->format = mr_format_find(mr_manifest_get_info(ds->manifest)->format, err))) {
        mr_error_context(err, "in data set '%s'", path);
        r = MR_E_UNSUPPORTED;
    }
    if (r < 0)
        mr_dataset_close(ds);
    else
        *out = ds;
    return r < 0 ? r : 0;
}

int mr_dataset_open(const char *path, const char *store, struct mr_dataset **out, struct mr_error *err)
{
    struct mr_store *s;
    int r = mr_store_open_at(store, path, &s, err);
    if (r < 0)
        return r;
    r = mr_dataset_open_in(path, s, out, err);
    if (r < 0)
        mr_store_close(s);
    else
        (*out)->owns_store = true;
    return r;
}

int mr_dataset_open_fields(const char *path, const char *store, const char *const *names, unsigned n,
                           struct mr_dataset **out, struct mr_error *err)
{
    struct mr_dataset *ds;
    int r = mr_dataset_open(path, store, &ds, err);
    if (r >= 0 && (r = mr_dataset_select(ds, names, n, err)) < 0)
        mr_dataset_close(ds);
    if (r >= 0)
        *out = ds;
    return r;
}

void mr_dataset_close(struct mr_dataset *ds)
{
    if (!ds)
        return;
    mr_manifest_close(ds->manifest);
    if (ds->owns_store)
        mr_store_close(ds->store);
    free(ds->root);
    free(ds->selected);
    free(ds);
}

/* ---- fields ---- */

unsigned mr_dataset_fields(const struct mr_dataset *ds)
{
    return mr_manifest_schema(ds->manifest)->n;
}

const struct mr_field *mr_dataset_field(const struct mr_dataset *ds, unsigned i)
{
    const struct mr_schema *s = mr_manifest_schema(ds->manifest);
    return i < s->n ? &s->field[i].field : NULL;
}

unsigned mr_dataset_selected(const struct mr_dataset *ds, const unsigned **out)
{
    if (out)
        *out = ds->selected;
    return ds->n_selected;
}

static int no_such_field(const struct mr_dataset *ds, const char *name, struct mr_error *err)
{
    const struct mr_schema *s = mr_manifest_schema(ds->manifest);
    struct mr_strbuf names = {0};
    for (unsigned i = 0; i < s->n && names.len < 400; i++)
        mr_strbuf_printf(&names, "%s'%s'", i ? ", " : "", s->field[i].field.name);
    mr_error_plain(err, MR_E_USAGE, "data set '%s' has no field '%.80s'; it has %s", ds->root, name,
                   names.text ? names.text : "none");
    mr_strbuf_done(&names);
    return MR_E_USAGE;
}

/* A field by its name; of several, the same one only once. */
static int select_name(struct mr_dataset *ds, const char *name, struct mr_error *err)
{
    const struct mr_schema *s = mr_manifest_schema(ds->manifest);
    bool all = strcmp(name, "*") == 0 && mr_schema_find(s, name) < 0;
    int found = all ? 0 : mr_schema_find(s, name);
    if (found < 0)
        return no_such_field(ds, name, err);
    for (unsigned i = (unsigned)found; i < (all ? s->n : (unsigned)found + 1); i++) {
        bool there = all && !mr_schema_is_default(s, i);
        for (unsigned k = 0; k < ds->n_selected; k++)
            there = there || ds->selected[k] == i;
        if (!there)
            ds->selected[ds->n_selected++] = i;
        else if (!all)
            return mr_error_plain(err, MR_E_USAGE, "field '%s' is asked for twice", name);
    }
    return 0;
}

int mr_dataset_select(struct mr_dataset *ds, const char *const *names, unsigned n, struct mr_error *err)
{
    free(ds->selected);
    ds->n_selected = 0;
    ds->selected = calloc(mr_manifest_schema(ds->manifest)->n + 1, sizeof(*ds->selected));
    if (!ds->selected)
        return mr_error_set(err, -ENOMEM, "cannot select %u fields", n);
    int r = n ? 0 : mr_error_plain(err, MR_E_USAGE, "no field is asked for");
    for (unsigned i = 0; i < n && !r; i++)
        r = select_name(ds, names[i], err);
    return r;
}

uint64_t mr_dataset_stored_bytes(const struct mr_dataset *ds, uint64_t id)
{
    struct mr_manifest_pos pos;
    struct mr_field_place place;
    uint64_t bytes = 0;
    if (mr_manifest_locate(ds->manifest, id, &pos, NULL) < 0)
        return 0;
    if (!ds->n_selected)
        return pos.ref.raw.length;
    for (unsigned i = 0; i < ds->n_selected; i++)
        if (mr_manifest_locate_field(ds->manifest, ds->selected[i], id, &pos, &place, NULL) == 0)
            bytes += place.ref.raw.length;
    return bytes;
}

/* With a selection, sums and bounds are those of its fields. */
static void count_selected(const struct mr_dataset *ds, struct mr_dataset_info *out)
{
    const struct mr_schema *s = mr_manifest_schema(ds->manifest);
    const struct mr_manifest_info *i = mr_manifest_get_info(ds->manifest);
    if (!ds->n_selected)
        return;
    out->sample_bytes = out->sample_min_bytes = out->sample_max_bytes = 0;
    for (unsigned k = 0; k < ds->n_selected; k++) {
        const struct mr_schema_field *f = &s->field[ds->selected[k]];
        /* The sums are those of all files; of some of them, the share by samples. */
        double share = i->all_samples ? (double)i->samples / (double)i->all_samples : 0;
        out->sample_bytes += i->samples == i->all_samples ? f->sum_bytes : (uint64_t)((double)f->sum_bytes * share);
        out->sample_min_bytes += f->min_bytes;
        out->sample_max_bytes += f->max_bytes;
    }
    const struct mr_field *first = &s->field[ds->selected[0]].field;
    snprintf(out->dtype, sizeof out->dtype, "%s", mr_dtype_numpy(first->dtype));
    out->n_dims = first->variable == MR_FIELD_FIXED ? first->dims.n : 0;
    memset(out->dims, 0, sizeof out->dims);
    for (unsigned d = 0; d < out->n_dims; d++)
        out->dims[d] = first->dims.dim[d];
}

uint64_t mr_dataset_count(const struct mr_dataset *ds)
{
    return mr_manifest_get_info(ds->manifest)->samples;
}

const struct mr_manifest *mr_dataset_manifest(const struct mr_dataset *ds)
{
    return ds->manifest;
}

struct mr_store *mr_dataset_store(const struct mr_dataset *ds)
{
    return ds->store;
}

const struct mr_format_ops *mr_dataset_format(const struct mr_dataset *ds)
{
    return ds->format;
}

int mr_dataset_compare_file(const struct mr_dataset *ds, uint64_t file, const char *path, uint64_t bytes,
                            uint64_t mtime_ns, struct mr_error *err)
{
    uint64_t want = mr_manifest_file_bytes(ds->manifest, file), scanned = mr_manifest_file_mtime_ns(ds->manifest, file);
    if (bytes == want && (!mtime_ns || !scanned || mtime_ns == scanned))
        return 0;
    if (bytes != want)
        mr_error_plain(err, MR_E_CHANGED, "'%s' has changed since it was scanned: it had %llu bytes, now %llu", path,
                       (unsigned long long)want, (unsigned long long)bytes);
    else
        mr_error_plain(err, MR_E_CHANGED, "'%s' was modified after the data set was scanned", path);
    mr_error_hint(err, "see what else has changed with 'millrace verify', then scan or generate the set anew");
    return MR_E_CHANGED;
}

int mr_dataset_blame_change(const struct mr_dataset *ds, uint64_t file, int rc, struct mr_error *err)
{
    char path[2 * MR_NAME_MAX];
    struct mr_store_stat st;
    if ((rc != MR_E_FORMAT && rc != MR_E_CORRUPT) || mr_dataset_file_path(ds, file, path, NULL) < 0 ||
        mr_store_stat(ds->store, path, &st, NULL) < 0)
        return rc;
    int changed = mr_dataset_compare_file(ds, file, path, st.bytes, st.mtime_ns, err);
    return changed ? changed : rc;
}

const char *mr_dataset_name(const struct mr_dataset *ds, const char *path)
{
    return strncmp(path, "/proc/self/fd/", 14) ? path : ds->root;
}

const char *mr_dataset_root(const struct mr_dataset *ds)
{
    return ds->root;
}

void mr_dataset_get_info(const struct mr_dataset *ds, struct mr_dataset_info *out)
{
    const struct mr_manifest_info *i = mr_manifest_get_info(ds->manifest);
    *out = (struct mr_dataset_info){
        .samples = i->samples,
        .files = i->files,
        .samples_per_file = i->samples_per_file,
        .file_bytes = i->file_bytes,
        .sample_bytes = i->sample_bytes,
        .sample_min_bytes = i->sample_min_bytes,
        .sample_max_bytes = i->sample_max_bytes,
        .seed = i->seed,
        .generated = (i->flags & MR_MANIFEST_GENERATED) != 0,
        .n_dims = i->dims.n,
        .manifest_bytes = mr_manifest_bytes(ds->manifest),
    };
    snprintf(out->format, sizeof out->format, "%s", i->format);
    snprintf(out->dtype, sizeof out->dtype, "%s", mr_dtype_numpy(i->dtype));
    for (unsigned d = 0; d < i->dims.n; d++)
        out->dims[d] = i->dims.dim[d];
    count_selected(ds, out);
}

int mr_dataset_file_path(const struct mr_dataset *ds, uint64_t file, char *out, struct mr_error *err)
{
    size_t root = strlen(ds->root);
    if (root >= MR_NAME_MAX) /* no system takes such a path */
        return mr_error_set(err, -ENAMETOOLONG, "cannot use the folder '%.64s...'", ds->root);
    memcpy(out, ds->root, root);
    out[root] = '/';
    int r = mr_manifest_file_name(ds->manifest, file, out + root + 1, err);
    return r < 0 ? r : 0;
}

int mr_dataset_locate(const struct mr_dataset *ds, uint64_t id, struct mr_sample_place *out, struct mr_error *err)
{
    struct mr_manifest_pos p;
    int r = mr_manifest_locate(ds->manifest, id, &p, err);
    if (r < 0)
        return r;
    _Static_assert(sizeof(out->path) >= 2 * MR_NAME_MAX, "a place holds any path");
    r = mr_dataset_file_path(ds, p.file, out->path, err);
    if (r < 0)
        return r;
    out->file = p.file;
    out->index = p.index;
    out->offset = p.ref.raw.offset;
    out->bytes = p.ref.raw.length;
    out->label = p.ref.label;
    out->file_bytes = mr_manifest_file_bytes(ds->manifest, p.file);
    return 0;
}

int mr_dataset_file_cost(const struct mr_dataset *ds, uint64_t file, struct mr_read_cost *out, struct mr_error *err)
{
    struct mr_layout layout;
    mr_manifest_file_layout(ds->manifest, file, &layout);
    return ds->format->cost(&layout, out, err);
}

struct mr_content mr_dataset_field_content(const struct mr_dataset *ds, unsigned field)
{
    const struct mr_manifest_info *in = mr_manifest_get_info(ds->manifest);
    const struct mr_content set = {.seed = in->seed, .compress_percent = in->compress_percent};
    return mr_gen_field_content(&set, field);
}
