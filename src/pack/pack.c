/* Packing: see pack.h and README.md for the invariants. */
#include "pack/pack.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "base/workers.h"
#include "dataset/gen_file.h"
#include "dataset/gen_lock.h"
#include "dataset/journal.h"
#include "dataset/scan.h"
#include "format/format.h"
#include "pack/pack_internal.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES (256 * MR_MIB)
#define SOURCE_MANIFEST ".source.mrm" /* of a folder that was scanned for us */

typedef unsigned long long ull;

struct pack {
    const struct mr_pack_options *o;
    struct mr_pack_set source;
    const struct mr_format_ops *format;
    const struct mr_field_ops *fields; /* used where samples have several fields; else NULL */
    uint64_t samples, per_file, files;
    bool labelled;
    struct mr_name_template names;
    char manifest[2 * MR_NAME_MAX];
    char *spec;
    struct mr_journals *done;
    struct mr_journal *journal;
    atomic_ullong kept, written;
};

/* ---- what is packed ---- */

/* The source's manifest; a folder without one is scanned, once. */
static int find_source(struct pack *p, char path[2 * MR_NAME_MAX], struct mr_error *err)
{
    struct mr_store_stat st;
    struct mr_scan_result found;
    int rc = mr_dataset_find_manifest(p->o->source_store, p->o->source, path, err);
    if (rc != MR_E_FORMAT && rc != -ENOENT) /* there is one, or that cannot be seen */
        return rc;
    snprintf(path, 2 * MR_NAME_MAX, "%.4000s/" SOURCE_MANIFEST, p->o->folder);
    if (mr_store_stat(p->o->store, path, &st, NULL) == 0)
        return 0;
    if (mr_store_is_url(p->o->folder) || mr_store_is_url(p->o->source)) { /* they lie in different stores */
        mr_error_plain(err, MR_E_USAGE, "'%s' has no manifest", p->o->source);
        return mr_error_hint(err, "make one with 'millrace scan %s'", p->o->source), MR_E_USAGE;
    }
    const struct mr_scan_options so = {.store = p->o->source_store,
                                       .path = p->o->source,
                                       .format = p->o->source_format,
                                       .out = path,
                                       .threads = p->o->threads,
                                       .stop = p->o->stop};
    return mr_scan(&so, &found, err);
}

static void choose_files(struct pack *p)
{
    const struct mr_manifest_info *i = mr_manifest_get_info(mr_dataset_manifest(p->source.ds[0]));
    double share = p->o->share > 0 && p->o->share < 1 ? p->o->share : 1;
    p->samples = MR_MAX((uint64_t)((double)i->samples * share + 0.999999), 1u);
    p->samples = MR_MIN(p->samples, i->samples);
    uint64_t each = MR_MAX(i->file_bytes / MR_MAX(i->samples, 1u), 1u);
    p->per_file = p->o->samples_per_file ? p->o->samples_per_file : MR_MAX(FILE_BYTES / each, 1u);
    if (!(p->format->caps & MR_FMT_MULTI))
        p->per_file = 1;
    p->files = (p->samples + p->per_file - 1) / p->per_file;
}

/* A set is labelled if its first sample is, and if the label is among the fields that were named. */
static void find_labels(struct pack *p)
{
    struct mr_manifest_pos pos;
    const struct mr_manifest *m = mr_dataset_manifest(p->source.ds[0]);
    p->labelled = p->source.with_label && mr_manifest_locate(m, 0, &pos, NULL) == 0 && pos.ref.label != MR_LABEL_NONE;
}

/* Files of one sample each are what packing is against. */
static int find_format(struct pack *p, struct mr_error *err)
{
    const struct mr_format_ops *f = mr_format_find(p->o->format, NULL);
    struct mr_strbuf names = {0};
    if (f && f->caps & MR_FMT_MULTI) {
        p->format = f;
        return 0;
    }
    for (const struct mr_format_ops *const *x = mr_format_registry(); *x; x++)
        if ((*x)->caps & MR_FMT_MULTI)
            mr_strbuf_printf(&names, "%s%s", names.len ? ", " : "", (*x)->name);
    mr_error_plain(err, MR_E_USAGE,
                   f ? "files of format '%s' hold one sample each: --to must be one of %s"
                     : "unknown format '%s': --to must be one of %s",
                   p->o->format, names.text ? names.text : "(none)");
    mr_strbuf_done(&names);
    return MR_E_USAGE;
}

static json_t *field_names(const struct pack *p)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < p->o->n_fields; i++)
        json_array_append_new(list, json_string(p->o->fields[i]));
    return list;
}

static int choose_names(struct pack *p, struct mr_error *err)
{
    const char *ext = p->format->extensions;
    size_t n = strcspn(ext, ",");
    p->names = (struct mr_name_template){.digits = 1, .prefix = "part_"};
    for (uint64_t f = p->files; f >= 10; f /= 10)
        p->names.digits++;
    snprintf(p->names.suffix, sizeof p->names.suffix, "_of_%llu%.*s", (ull)p->files, (int)n, ext);
    json_t *j = json_pack("{s:s, s:s, s:s, s:I, s:I, s:b}", "producer", "pack", "format", p->format->name, "source",
                          p->o->source, "samples", (json_int_t)p->samples, "samples_per_file", (json_int_t)p->per_file,
                          "compressed", p->o->compress);
    if (j && p->o->n_fields)
        json_object_set_new(j, "fields", field_names(p));
    p->spec = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    return p->spec ? 0 : mr_error_plain(err, MR_E_USAGE, "the source's name is not UTF-8");
}

static int choose(struct pack *p, struct mr_error *err)
{
    if (p->source.n > 1) {
        p->fields = mr_format_fields(p->format);
        if (!p->fields || !p->fields->writer_open)
            return mr_error_plain(err, MR_E_UNSUPPORTED, "format '%s' cannot hold samples of %u fields",
                                  p->format->name, p->source.n);
    }
    choose_files(p);
    find_labels(p);
    return choose_names(p, err);
}

/* ---- one file ---- */

struct file_job {
    struct pack *p;
    uint64_t first, n;
    struct mr_dataset_reader *reader[MR_PACK_FIELDS_MAX];
    struct mr_sample_columns column[MR_PACK_FIELDS_MAX];
    struct mr_writer *w;
};

/* What files with these first bytes are called; others find pictures in tar shards by that. */
static const char *suffix_of(const struct mr_sample *s)
{
    static const struct {
        const char *suffix, *first;
        size_t n;
    } kinds[] = {
        {"jpg", "\xff\xd8\xff", 3}, {"png", "\x89PNG\r\n\x1a\n", 8}, {"npy", "\x93NUMPY", 6}, {"gif", "GIF8", 4}};
    for (size_t i = 0; i < MR_ARRAY_LEN(kinds); i++)
        if (s->bytes >= kinds[i].n && memcmp(s->data, kinds[i].first, kinds[i].n) == 0)
            return kinds[i].suffix;
    const char *riff = s->data;
    return s->bytes >= 12 && !memcmp(riff, "RIFF", 4) && !memcmp(riff + 8, "WEBP", 4) ? "webp" : NULL;
}

static void info_of(const struct mr_sample *s, uint64_t id, bool raw, struct mr_sample_info *out)
{
    bool swap;
    *out = (struct mr_sample_info){
        .id = id, .bytes = s->bytes, .label = s->label, .dims.n = s->n_dims, .suffix = raw ? suffix_of(s) : NULL};
    (void)mr_dtype_parse(s->dtype, &out->dtype, &swap, NULL); /* our own name of it */
    for (unsigned d = 0; d < s->n_dims; d++)
        out->dims.dim[d] = s->dims[d];
}

static int copy_value(struct file_job *j, unsigned k, uint64_t id, struct mr_error *err)
{
    const struct mr_field_ops *ops = j->p->fields;
    const struct mr_format_ops *f = j->p->format;
    struct mr_sample s;
    struct mr_sample_info info;
    struct mr_sample_ref ref = {0};
    int rc = mr_dataset_read(j->reader[k], id, j->p->source.flags, NULL, 0, &s, err);
    if (rc < 0)
        return rc;
    info_of(&s, id, (j->p->source.flags & MR_DATASET_RAW) != 0, &info);
    if (!j->p->labelled)
        info.label = MR_LABEL_NONE;
    rc = ops ? ops->begin(j->w, k, &info, err) : f->sample_begin(j->w, &info, err);
    if (rc == 0)
        rc = ops ? ops->data(j->w, s.data, s.bytes, err) : f->sample_data(j->w, s.data, s.bytes, err);
    if (rc == 0)
        rc = ops ? ops->end(j->w, k, &ref, err) : f->sample_end(j->w, &ref, err);
    ref.label = k ? MR_LABEL_NONE : info.label;
    if (rc == 0)
        rc = mr_sample_columns_add(&j->column[k], &ref, err);
    if (rc < 0)
        mr_error_context(err, "in sample %llu", (ull)id);
    return rc;
}

static int copy_values(struct file_job *j, struct mr_error *err)
{
    unsigned n = j->p->source.n, outer = j->p->fields && j->p->fields->by_field ? n : 1, inner = n / outer;
    int rc = 0;
    for (unsigned f = 0; f < outer && rc == 0; f++)
        for (uint64_t i = 0; i < j->n && rc == 0; i++) {
            if (j->p->o->stop && atomic_load_explicit(j->p->o->stop, memory_order_relaxed))
                return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
            for (unsigned k = 0; k < inner && rc == 0; k++)
                rc = copy_value(j, f + k, j->first + i, err);
        }
    return rc;
}

/* As the source has them; a label field behind. */
static unsigned make_fields(const struct pack *p, struct mr_field *out)
{
    for (unsigned k = 0; k < p->source.n; k++) {
        out[k] = p->source.field[k];
        out[k].storage = out[k].storage == MR_FIELD_TEXT                        ? MR_FIELD_TEXT
                         : p->fields && MR_FIELD_OPS_HAVE(p->fields, writes_as) ? p->fields->writes_as
                                                                                : MR_FIELD_RAW;
    }
    if (p->labelled)
        out[p->source.n] = (struct mr_field){.name = "label",
                                             .dtype = MR_I64,
                                             .storage = MR_FIELD_LABEL,
                                             .role = MR_FIELD_TARGET,
                                             .variable = MR_FIELD_FIXED};
    return p->source.n + p->labelled;
}

static int open_writer(struct file_job *j, const char *path, struct mr_error *err)
{
    const struct pack *p = j->p;
    const struct mr_field *first = &p->source.field[0];
    bool raw = p->source.flags & MR_DATASET_RAW, fixed = !raw && first->variable == MR_FIELD_FIXED;
    struct mr_writer_spec spec = {.samples = j->n,
                                  .dtype = raw ? MR_U8 : first->dtype,
                                  .dims = fixed ? first->dims : (struct mr_dims){0},
                                  .fixed_size = fixed,
                                  .compression = p->o->compress ? MR_COMP_GZIP : MR_COMP_NONE,
                                  .compression_level = 4,
                                  .quality = 90};
    struct mr_field field[MR_PACK_FIELDS_MAX + 1];
    int rc = p->fields ? p->fields->writer_open(p->o->store, path, &spec, field, make_fields(p, field), &j->w, err)
                       : p->format->writer_open(p->o->store, path, &spec, &j->w, err);
    if (rc == 0)
        j->w->ops = p->format;
    return rc;
}

/* The journal's record of the file: refs of all fields. */
static int close_writer(struct file_job *j, uint64_t file, struct mr_error *err)
{
    const struct pack *p = j->p;
    struct mr_layout layout[MR_PACK_FIELDS_MAX + 1] = {{0}};
    struct mr_field_values *own = calloc(p->source.n, sizeof(*own));
    struct mr_column column[MR_SC_COUNT];
    struct mr_manifest_file f = {.own = own, .n_own = p->source.n - 1};
    int rc = p->fields ? p->fields->writer_close(j->w, layout, &f.bytes, err)
                       : p->format->writer_close(j->w, layout, &f.bytes, err);
    j->w = NULL;
    if (rc == 0 && !own)
        rc = mr_error_set(err, -ENOMEM, "cannot keep %u fields", p->source.n);
    f.layout = layout[0];
    if (rc == 0)
        mr_sample_columns_finish(&j->column[0], f.column);
    for (unsigned k = 1; k < p->source.n && rc == 0; k++) {
        mr_sample_columns_finish(&j->column[k], column);
        own[k - 1].layout = layout[k];
        memcpy(own[k - 1].column, column, sizeof own[k - 1].column);
    }
    if (rc == 0)
        rc = mr_journal_add(p->journal, file, &f, err);
    for (unsigned k = 0; k <= p->source.n; k++)
        free(layout[k].data);
    free(own);
    return rc;
}

static int each_rename(struct pack *p, const char *from, const char *to, struct mr_error *err)
{
    char a[2 * MR_NAME_MAX + 32], b[2 * MR_NAME_MAX + 32];
    int rc = 0;
    for (const char *x = p->format->side_suffixes; rc == 0 && x && *x; x += strlen(x) + 1) {
        snprintf(a, sizeof a, "%s%s", from, x);
        snprintf(b, sizeof b, "%s%s", to, x);
        rc = p->o->store->ops->rename(p->o->store, a, b, err);
    }
    return rc < 0 ? rc : p->o->store->ops->rename(p->o->store, from, to, err);
}

static int write_file(struct file_job *j, uint64_t file, const char *temporary, struct mr_error *err)
{
    struct pack *p = j->p;
    int rc = 0;
    for (unsigned k = 0; k < p->source.n && rc == 0; k++)
        rc = mr_dataset_reader_create(p->source.ds[k], &j->reader[k], err);
    if (rc == 0)
        rc = open_writer(j, temporary, err);
    if (rc == 0)
        rc = copy_values(j, err);
    if (rc < 0 && j->w) {
        if (p->fields)
            p->fields->writer_abort(j->w);
        else
            p->format->writer_abort(j->w);
    }
    if (rc == 0)
        rc = close_writer(j, file, err); /* invariant 1 */
    for (unsigned k = 0; k < p->source.n; k++) {
        mr_dataset_reader_free(j->reader[k]);
        mr_sample_columns_done(&j->column[k]);
    }
    return rc;
}

static int pack_file(struct mr_worker_ctx *ctx, uint64_t file, struct mr_error *err)
{
    struct pack *p = ctx->user;
    char name[MR_NAME_MAX], path[2 * MR_NAME_MAX], temporary[2 * MR_NAME_MAX];
    struct mr_store_stat st;
    uint64_t bytes = 0, first = file * p->per_file;
    mr_name_from_template(&p->names, file, name);
    mr_gen_path(p->o->folder, name, path);
    if (p->done && mr_journals_has(p->done, file, &bytes) && mr_store_stat(p->o->store, path, &st, NULL) == 0 &&
        st.bytes == bytes) {
        atomic_fetch_add(&p->kept, 1);
        return 0;
    }
    bool at_once = mr_store_puts_whole(p->o->store); /* invariant 1 is the store's */
    if (at_once)
        memcpy(temporary, path, sizeof temporary);
    else
        mr_gen_temporary_path(p->o->folder, name, temporary);
    struct file_job *j = calloc(1, sizeof(*j));
    if (!j)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    *j = (struct file_job){.p = p, .first = first, .n = MR_MIN(p->per_file, p->samples - first)};
    int rc = write_file(j, file, temporary, err);
    if (rc == 0 && !at_once)
        rc = each_rename(p, temporary, path, err);
    if (p->o->progress)
        mr_progress_add(p->o->progress, j->n, 0);
    free(j);
    if (rc < 0)
        mr_error_context(err, "in file '%s'", path);
    return rc;
}

/* ---- the whole ---- */

static int add_classes(const struct pack *p, struct mr_manifest_builder *b, struct mr_error *err)
{
    const struct mr_manifest *m = mr_dataset_manifest(p->source.ds[0]);
    const char *name;
    int rc = 0;
    for (int64_t i = 0; rc == 0 && (name = mr_manifest_label_name(m, i)); i++)
        rc = mr_manifest_builder_add_class(b, name, err);
    return rc;
}

/* Invariant 2. */
static int write_manifest(struct pack *p, struct mr_pack_result *out, struct mr_error *err)
{
    struct mr_manifest_info info = {.flags = MR_MANIFEST_SCANNED,
                                    .dtype = p->source.flags & MR_DATASET_RAW ? MR_U8 : p->source.field[0].dtype};
    struct mr_field field[MR_PACK_FIELDS_MAX + 1];
    struct mr_manifest_builder *b = NULL;
    struct mr_journals *js = NULL;
    snprintf(info.format, sizeof info.format, "%s", p->format->name);
    int rc = mr_journals_open(p->o->store, p->o->folder, p->files, &js, err);
    if (rc == 0)
        rc = mr_manifest_builder_create(&info, &p->names, p->spec, &b, err);
    for (uint64_t f = 0; f < p->files && rc == 0; f++) {
        struct mr_manifest_file record;
        rc = mr_journals_get(js, f, &record, err);
        if (rc == 0)
            rc = mr_manifest_builder_add(b, &record, err);
        out->bytes += rc == 0 ? record.bytes : 0;
    }
    if (rc == 0)
        rc = add_classes(p, b, err);
    if (rc == 0 && p->fields)
        rc = mr_manifest_builder_set_fields(b, field, make_fields(p, field), err);
    if (rc == 0)
        rc = mr_manifest_builder_write(b, p->o->store, p->manifest, err);
    mr_manifest_builder_free(b);
    mr_journals_close(js);
    return rc;
}

static int write_all(struct pack *p, struct mr_pack_result *out, struct mr_error *err)
{
    char journals[2 * MR_NAME_MAX];
    int rc = mr_journals_open(p->o->store, p->o->folder, p->files, &p->done, err);
    if (rc == 0 && p->done && strcmp(mr_journals_spec(p->done), p->spec) != 0) { /* invariant 4 */
        rc = mr_error_plain(err, MR_E_USAGE, "'%s' holds an unfinished set that was asked for in another way",
                            p->o->folder);
        mr_error_hint(err, "repeat the command that began it, or remove the folder");
    }
    snprintf(journals, sizeof journals, "%.4000s/" MR_JOURNAL_FOLDER, p->o->folder);
    if (rc == 0)
        rc = mr_store_mkdirs(p->o->store, journals, err);
    if (rc == 0)
        rc = mr_journal_create(p->o->store, p->o->folder, 0, p->spec, &p->journal, err);
    if (rc == 0)
        rc = mr_workers_run(p->o->threads, p->files, 1, pack_file, p, p->o->stop, err);
    int closed = mr_journal_close(p->journal, rc < 0 ? NULL : err);
    mr_journals_close(p->done);
    rc = rc < 0 ? rc : closed;
    if (rc == 0)
        rc = write_manifest(p, out, err);
    if (rc == 0)
        mr_journals_remove(p->o->store, p->o->folder);
    if (rc < 0)
        mr_error_context(err, "in '%s' (finished files stay; the same command continues)", p->o->folder);
    return rc;
}

static int check(struct pack *p, struct mr_pack_result *out, struct mr_error *err)
{
    struct mr_pack_set packed;
    uint64_t begin = mr_now_ns();
    int rc = mr_pack_set_open(&packed, p->o->store, p->manifest, NULL, 0, err);
    if (rc < 0)
        return rc;
    if (p->source.flags & MR_DATASET_RAW && packed.n == 1)
        packed.flags = 0;
    p->source.with_label = p->labelled;
    if (p->o->verify)
        rc = mr_pack_compare(&p->source, &packed, p->samples, p->o->threads, p->o->stop, err);
    out->verify_s = 1e-9 * (double)(mr_now_ns() - begin);
    if (rc == 0 && p->samples < out->source_samples) {
        rc = mr_pack_rate(&p->source, p->samples, &out->source_rate, err);
        if (rc == 0)
            rc = mr_pack_rate(&packed, p->samples, &out->packed_rate, err);
    }
    mr_pack_set_close(&packed);
    return rc;
}

static int run(struct pack *p, struct mr_pack_result *out, struct mr_error *err)
{
    char source[2 * MR_NAME_MAX];
    struct mr_gen_lock *lock = NULL;
    uint64_t begin = mr_now_ns();
    struct mr_store_stat st;
    int rc = find_format(p, err);
    if (rc == 0 && !mr_store_is_url(p->o->source))
        rc = mr_store_stat(p->o->source_store, p->o->source, &st, err);
    if (rc == 0)
        rc = mr_store_mkdirs(p->o->store, p->o->folder, err);
    if (rc == 0 && (rc = mr_gen_lock_take(p->o->store, p->o->folder, &lock, err)) > 0)
        rc = 0;
    snprintf(p->manifest, sizeof p->manifest, "%.4000s/" MR_MANIFEST_NAME, p->o->folder);
    if (rc == 0 && mr_store_stat(p->o->store, p->manifest, &st, NULL) == 0)
        rc = mr_error_plain(err, MR_E_USAGE, "'%s' holds a complete data set already", p->o->folder);
    if (rc == 0)
        rc = find_source(p, source, err);
    if (rc == 0)
        rc = mr_pack_set_open(&p->source, p->o->source_store, source, p->o->fields, p->o->n_fields, err);
    if (rc == 0) {
        rc = choose(p, err);
        const struct mr_manifest_info *i = mr_manifest_get_info(mr_dataset_manifest(p->source.ds[0]));
        out->source_samples = i->samples;
        out->source_files = i->files;
    }
    if (rc == 0)
        rc = write_all(p, out, err);
    out->pack_s = 1e-9 * (double)(mr_now_ns() - begin);
    if (rc == 0)
        rc = check(p, out, err);
    if (rc == 0 && strstr(source, SOURCE_MANIFEST))
        p->o->store->ops->unlink(p->o->store, source, NULL);
    mr_gen_lock_release(lock);
    return rc;
}

int mr_pack(const struct mr_pack_options *o, struct mr_pack_result *out, struct mr_error *err)
{
    struct pack *p = calloc(1, sizeof(*p));
    if (!p)
        return mr_error_set(err, -ENOMEM, "cannot pack '%s'", o->source);
    p->o = o;
    *out = (struct mr_pack_result){0};
    int rc = run(p, out, err);
    out->samples = p->samples;
    out->files = p->files;
    out->files_kept = p->kept;
    out->fields = p->source.n;
    out->labelled = p->labelled;
    mr_pack_set_close(&p->source);
    free(p->spec);
    free(p);
    return rc;
}
