/* Verifying: see verify.h. One work item is one file or, in sets of few files, a range of the samples of one. Each
 * thread has its own reader, scratch and comparing store; findings and counters are shared, findings under a lock so
 * that the callback needs none. */
#include "dataset/verify.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/workers.h"
#include "dataset/compare_store.h"
#include "dataset/gen_file.h"
#include "dataset/walk.h"

#include <errno.h>
#include <millrace/version.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct thread_state {
    struct mr_dataset_reader *reader;
    struct mr_sample *value; /* of each field */
    struct mr_gen_scratch scratch;
    struct mr_compare_shim *compare;
};

struct verify {
    struct mr_dataset *ds;
    const struct mr_manifest *m;
    const struct mr_verify_options *o;
    struct mr_gen_plan plan;
    bool has_plan;   /* content can be computed */
    bool byte_exact; /* and so can whole files */
    struct mr_arena arena;
    struct thread_state *thread;
    unsigned n_fields;         /* that are read; 0: samples are one payload */
    uint64_t parts;            /* work items per file */
    _Atomic uint64_t bad_mask; /* parts > 1: files with something bad, which are fewer than 64 */
    pthread_mutex_t lock;      /* guards calls of o->found */
    _Atomic uint64_t files, samples, bytes, bad_files, bad_samples, missing, extra, unreadable, wrong;
};

const char *mr_finding_kind_name(enum mr_finding_kind kind)
{
    static const char *const names[] = {
        [MR_FIND_MISSING] = "missing", [MR_FIND_SIZE] = "size",     [MR_FIND_MTIME] = "mtime",
        [MR_FIND_CONTENT] = "content", [MR_FIND_SAMPLE] = "sample", [MR_FIND_UNREADABLE] = "unreadable",
        [MR_FIND_EXTRA] = "extra"};
    return names[kind];
}

static void tell(struct verify *v, const struct mr_damage *f)
{
    atomic_fetch_add(f->kind == MR_FIND_UNREADABLE ? &v->unreadable : &v->wrong, 1);
    pthread_mutex_lock(&v->lock);
    if (v->o->found)
        v->o->found(v->o->user, f);
    pthread_mutex_unlock(&v->lock);
}

/* The sample whose raw bytes hold this offset, or MR_NO_SAMPLE. */
static uint64_t sample_at(struct verify *v, uint64_t file, uint64_t offset)
{
    uint64_t first, n;
    struct mr_manifest_pos p;
    mr_manifest_file_samples(v->m, file, &first, &n);
    for (uint64_t i = first; i < first + n; i++)
        if (mr_manifest_locate(v->m, i, &p, NULL) >= 0 && offset >= p.ref.raw.offset &&
            offset - p.ref.raw.offset < p.ref.raw.length)
            return i;
    return MR_NO_SAMPLE;
}

/* `tells`: a file in several parts is reported once. */
static bool check_stat(struct verify *v, uint64_t file, const char *path, bool tells)
{
    struct mr_store_stat st;
    struct mr_error err = {0};
    uint64_t want = mr_manifest_file_bytes(v->m, file), mtime = mr_manifest_file_mtime_ns(v->m, file);
    char text[256];
    int r = mr_store_stat(mr_dataset_store(v->ds), path, &st, &err);
    if (!tells)
        return r >= 0 && st.bytes == want && (!mtime || st.mtime_ns == mtime);
    if (r < 0) {
        bool gone = r == -ENOENT || r == -ENOTDIR;
        tell(v, &(struct mr_damage){.kind = gone ? MR_FIND_MISSING : MR_FIND_UNREADABLE,
                                    .path = path,
                                    .sample = MR_NO_SAMPLE,
                                    .want = want,
                                    .text = gone ? "file is missing" : err.message});
        if (gone)
            atomic_fetch_add(&v->missing, 1);
        return false;
    }
    if (st.bytes != want) {
        snprintf(text, sizeof text, "wrong size: want %llu bytes, have %llu", (unsigned long long)want,
                 (unsigned long long)st.bytes);
        tell(v, &(struct mr_damage){.kind = MR_FIND_SIZE,
                                    .path = path,
                                    .sample = MR_NO_SAMPLE,
                                    .want = want,
                                    .have = st.bytes,
                                    .text = text});
        return false;
    }
    if (mtime && st.mtime_ns != mtime) {
        tell(v, &(struct mr_damage){.kind = MR_FIND_MTIME,
                                    .path = path,
                                    .sample = MR_NO_SAMPLE,
                                    .want = mtime,
                                    .have = st.mtime_ns,
                                    .text = "file was modified after it was scanned"});
        return false;
    }
    return true;
}

static void tell_diff(struct verify *v, uint64_t file, const char *path, const struct mr_file_diff *d)
{
    char text[512];
    struct mr_damage f = {.kind = MR_FIND_CONTENT,
                          .path = d->path,
                          .sample = MR_NO_SAMPLE,
                          .want = d->want,
                          .have = d->have,
                          .text = text};
    if (d->kind == MR_DIFF_MISSING) {
        f.kind = MR_FIND_MISSING;
        f.text = "file is missing";
        atomic_fetch_add(&v->missing, 1);
    } else if (d->kind == MR_DIFF_SIZE) {
        f.kind = MR_FIND_SIZE;
        snprintf(text, sizeof text, "wrong size: want %llu bytes, have %llu", (unsigned long long)d->want,
                 (unsigned long long)d->have);
    } else {
        struct mr_manifest_pos p;
        f.has_offset = true;
        f.offset = d->offset;
        f.sample = strcmp(d->path, path) == 0 ? sample_at(v, file, d->offset) : MR_NO_SAMPLE;
        int n = snprintf(text, sizeof text, "wrong content at offset %llu: want 0x%02llx, have 0x%02llx",
                         (unsigned long long)d->offset, (unsigned long long)d->want & 0xff,
                         (unsigned long long)d->have & 0xff);
        if (f.sample != MR_NO_SAMPLE && mr_manifest_locate(v->m, f.sample, &p, NULL) >= 0)
            snprintf(text + n, sizeof text - (size_t)n, " (byte %llu of sample %llu)",
                     (unsigned long long)(d->offset - p.ref.raw.offset), (unsigned long long)f.sample);
        atomic_fetch_add(&v->bad_samples, f.sample != MR_NO_SAMPLE);
    }
    tell(v, &f);
}

/* Computes the file again and compares. 1 good, 0 bad, negative: the check failed. */
static int check_bytes(struct verify *v, struct thread_state *t, uint64_t file, uint64_t part, const char *path,
                       struct mr_error *err)
{
    struct mr_manifest_file f = {0};
    struct mr_file_diff diff;
    struct mr_store *s = mr_compare_store(t->compare);
    int r = v->parts > 1
                ? mr_gen_write_part(&v->plan, s, path, file, part, &t->scratch, v->o->stop, v->o->progress, &f, err)
                : mr_gen_write_file(&v->plan, s, path, file, &t->scratch, v->o->stop, v->o->progress, &f, err);
    uint64_t samples = f.column[0].count;
    free(f.layout.data);
    mr_compare_take(t->compare, &diff);
    if (r == MR_E_INTERRUPTED)
        return r;
    if (r < 0) {
        tell(v, &(struct mr_damage){.kind = mr_is_storage_error(r) ? MR_FIND_UNREADABLE : MR_FIND_CONTENT,
                                    .path = path,
                                    .sample = MR_NO_SAMPLE,
                                    .text = err->message});
        return 0;
    }
    atomic_fetch_add(&v->samples, samples);
    if (diff.kind == MR_DIFF_NONE)
        return 1;
    tell_diff(v, file, path, &diff);
    return 0;
}

static bool chosen(const struct verify *v, uint64_t id)
{
    return v->o->sample_rate >= 1 ||
           mr_rng_unit(mr_rng_at(mr_manifest_get_info(v->m)->seed, MR_RNG_TEST, id)) < v->o->sample_rate;
}

static int check_fields(struct verify *v, struct thread_state *t, uint64_t id, struct mr_error *err)
{
    struct mr_sample *s = t->value;
    const struct mr_schema *schema = mr_manifest_schema(v->m);
    int r = mr_dataset_read_fields(t->reader, id, MR_DATASET_VERIFY, s, v->n_fields, err);
    for (unsigned k = 0; r >= 0 && v->has_plan && k < v->n_fields; k++) {
        r = mr_gen_plan_compare_field(&v->plan, schema->field[k].field.name, id, &s[k], err);
        if (r < 0)
            mr_error_context(err, "in field '%s'", schema->field[k].field.name);
    }
    return r;
}

/* Every field of a sample is checked, those of role other as well. */
static int select_fields(struct verify *v, struct mr_error *err)
{
    const struct mr_schema *schema = mr_manifest_schema(v->m);
    if (!schema->stored)
        return 0;
    const char **name = calloc(schema->n, sizeof(*name));
    if (!name)
        return mr_error_set(err, -ENOMEM, "cannot verify %u fields", schema->n);
    for (unsigned k = 0; k < schema->n; k++)
        name[k] = schema->field[k].field.name;
    int r = mr_dataset_select(v->ds, name, schema->n, err);
    free(name);
    v->n_fields = r < 0 ? 0 : schema->n;
    return r;
}

static int check_sample(struct verify *v, struct thread_state *t, uint64_t id, struct mr_error *err)
{
    struct mr_sample s;
    if (v->n_fields)
        return check_fields(v, t, id, err);
    int r = mr_dataset_read(t->reader, id, MR_DATASET_VERIFY, NULL, 0, &s, err);
    return r < 0 || !v->has_plan ? r : mr_gen_plan_compare(&v->plan, id, &s, err);
}

/* Reads the chosen samples of the file, or of the part. 1 good, 0 bad, negative: stopped. */
static int check_samples(struct verify *v, struct thread_state *t, uint64_t file, uint64_t part, const char *path,
                         struct mr_error *err)
{
    uint64_t first, n, bad = 0;
    mr_manifest_file_samples(v->m, file, &first, &n);
    uint64_t each = (n + v->parts - 1) / v->parts, from = MR_MIN(part * each, n), to = MR_MIN(from + each, n);
    for (uint64_t id = first + from; id < first + to; id++) {
        if (!chosen(v, id))
            continue;
        if (v->o->stop && atomic_load_explicit(v->o->stop, memory_order_relaxed))
            return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
        struct mr_error why = {0};
        struct mr_manifest_pos p = {0};
        int r = check_sample(v, t, id, &why);
        (void)mr_manifest_locate(v->m, id, &p, NULL);
        atomic_fetch_add(&v->samples, 1);
        if (v->o->progress)
            mr_progress_add(v->o->progress, 0, p.ref.raw.length);
        if (r >= 0)
            continue;
        bad++;
        char text[sizeof why.message + sizeof why.context]; /* and which field it is */
        const char *behind = strstr(why.context, " / ");
        snprintf(text, sizeof text, "%s%s%.*s", why.message, v->n_fields && why.context[0] ? ", " : "",
                 !v->n_fields ? 0
                 : behind     ? (int)(behind - why.context)
                              : (int)strlen(why.context),
                 why.context);
        tell(v, &(struct mr_damage){.kind = mr_is_storage_error(r) ? MR_FIND_UNREADABLE : MR_FIND_SAMPLE,
                                    .path = path,
                                    .sample = id,
                                    .has_offset = true,
                                    .offset = p.ref.raw.offset,
                                    .want = p.ref.raw.length,
                                    .text = text});
    }
    atomic_fetch_add(&v->bad_samples, bad);
    return bad == 0;
}

/* Only the first bad part of a file counts the file. */
static void count_bad(struct verify *v, uint64_t file)
{
    uint64_t bit = v->parts > 1 ? (uint64_t)1 << file : 0;
    if (!bit || !(atomic_fetch_or(&v->bad_mask, bit) & bit))
        atomic_fetch_add(&v->bad_files, 1);
}

/* The part's share of the file's bytes. */
static uint64_t share(const struct verify *v, uint64_t file, uint64_t part)
{
    uint64_t bytes = mr_manifest_file_bytes(v->m, file);
    return part + 1 < v->parts ? bytes / v->parts : bytes - bytes / v->parts * (v->parts - 1);
}

static int one_item(struct mr_worker_ctx *ctx, uint64_t item, struct mr_error *err)
{
    struct verify *v = ctx->user;
    struct thread_state *t = &v->thread[ctx->thread];
    uint64_t file = item / v->parts, part = item % v->parts;
    char path[2 * MR_NAME_MAX];
    int r = mr_dataset_file_path(v->ds, file, path, err);
    if (r < 0)
        return r;
    int good = check_stat(v, file, path, part == 0);
    if (good && !v->o->quick)
        good = v->byte_exact ? check_bytes(v, t, file, part, path, err) : check_samples(v, t, file, part, path, err);
    if (good < 0)
        return good;
    atomic_fetch_add(&v->files, part == 0);
    atomic_fetch_add(&v->bytes, good ? share(v, file, part) : 0);
    if (!good)
        count_bad(v, file);
    if (v->o->progress)
        mr_progress_add(v->o->progress, part == 0, 0);
    return 0;
}

#define SAMPLE_PARTS 64u
#define SAMPLE_PARTS_BYTES (128 * MR_MIB)

/* Generated files that can be written in parts are compared in those; others that can be read by range are read in
 * ranges of their samples. A compressed file would be unpacked by every thread. */
static uint64_t parts_of_files(const struct verify *v)
{
    const struct mr_manifest_info *i = mr_manifest_get_info(v->m);
    struct mr_layout layout;
    struct mr_read_cost cost;
    if (v->o->quick || i->files >= 64)
        return 1;
    if (v->byte_exact)
        return v->plan.parts;
    for (uint64_t f = 0; f < i->files; f++) {
        mr_manifest_file_layout(v->m, f, &layout);
        if (mr_dataset_format(v->ds)->cost(&layout, &cost, NULL) < 0 || cost.access != MR_ACCESS_RANGE)
            return 1;
    }
    return i->file_bytes >= SAMPLE_PARTS_BYTES ? SAMPLE_PARTS : 1;
}

/* ---- files that nobody knows ---- */

static bool is_known(struct verify *v, const char *name)
{
    if (mr_manifest_find_file(v->m, name) != UINT64_MAX)
        return true;
    size_t len = strlen(name);
    char main_name[MR_NAME_MAX];
    for (const char *x = mr_dataset_format(v->ds)->side_suffixes; x && *x; x += strlen(x) + 1) {
        size_t n = strlen(x);
        if (len <= n || strcmp(name + len - n, x) != 0)
            continue;
        snprintf(main_name, sizeof main_name, "%.*s", (int)(len - n), name);
        if (mr_manifest_find_file(v->m, main_name) != UINT64_MAX)
            return true;
    }
    return false;
}

static int visit(void *user, unsigned thread, const char *name, struct mr_error *err)
{
    struct verify *v = user;
    char path[2 * MR_NAME_MAX];
    (void)thread;
    (void)err;
    const struct mr_format_ops *f = mr_format_for_path(name);
    if (!f || strcmp(f->name, mr_dataset_format(v->ds)->name) != 0 || is_known(v, name))
        return 0; /* only files that another reader would take for samples of this set */
    mr_gen_path(mr_dataset_root(v->ds), name, path);
    atomic_fetch_add(&v->extra, 1);
    tell(v, &(struct mr_damage){
                .kind = MR_FIND_EXTRA, .path = path, .sample = MR_NO_SAMPLE, .text = "file is not in the manifest"});
    return 0;
}

/* A set made by gen with this version's writers can be computed again; one of another version at least has known
 * content. */
static void find_plan(struct verify *v)
{
    const char *version;
    v->has_plan = mr_gen_plan_of_manifest(v->m, &v->arena, &v->plan, &version);
    v->byte_exact = v->has_plan && v->o->sample_rate >= 1 && !v->o->by_sample && strcmp(version, MR_VERSION) == 0;
}

static int make_threads(struct verify *v, unsigned n, struct mr_error *err)
{
    int r = 0;
    v->thread = calloc(n, sizeof(*v->thread));
    if (!v->thread)
        return mr_error_set(err, -ENOMEM, "cannot verify");
    for (unsigned i = 0; r >= 0 && i < n; i++) {
        r = mr_dataset_reader_create(v->ds, &v->thread[i].reader, err);
        v->thread[i].value = calloc(v->n_fields + 1, sizeof(*v->thread[i].value));
        if (r >= 0 && !v->thread[i].value)
            r = mr_error_set(err, -ENOMEM, "cannot verify");
        if (r >= 0)
            r = mr_gen_scratch_init(&v->thread[i].scratch, err);
        if (v->has_plan) /* the display counts bytes of files */
            v->thread[i].scratch.scale =
                (double)mr_manifest_get_info(v->m)->file_bytes * mr_gen_scale(&v->plan) / v->plan.want_bytes;
        if (r >= 0)
            r = mr_compare_create(mr_dataset_store(v->ds), &v->thread[i].compare, err);
    }
    return r;
}

int mr_verify(struct mr_dataset *ds, const struct mr_verify_options *o, struct mr_verify_result *out,
              struct mr_error *err)
{
    struct verify v = {.ds = ds, .m = mr_dataset_manifest(ds), .o = o};
    unsigned threads = MR_MAX(o->threads, 1u);
    pthread_mutex_init(&v.lock, NULL);
    find_plan(&v);
    v.parts = parts_of_files(&v);
    int r = select_fields(&v, err);
    if (r >= 0)
        r = make_threads(&v, threads, err);
    if (r >= 0)
        r = mr_workers_run(threads, mr_manifest_get_info(v.m)->files * v.parts, 1, one_item, &v, o->stop, err);
    if (r >= 0)
        r = mr_walk(mr_dataset_store(ds), mr_dataset_root(ds), threads, o->stop, visit, &v, err);
    for (unsigned i = 0; v.thread && i < threads; i++) {
        mr_dataset_reader_free(v.thread[i].reader);
        free(v.thread[i].value);
        mr_gen_scratch_done(&v.thread[i].scratch);
        mr_compare_free(v.thread[i].compare);
    }
    free(v.thread);
    mr_arena_done(&v.arena);
    pthread_mutex_destroy(&v.lock);
    if (r < 0)
        return r;
    *out = (struct mr_verify_result){.files = v.files,
                                     .samples = v.samples,
                                     .bytes = v.bytes,
                                     .bad_files = v.bad_files,
                                     .bad_samples = v.bad_samples,
                                     .missing = v.missing,
                                     .extra = v.extra,
                                     .unreadable = v.unreadable,
                                     .wrong = v.wrong,
                                     .byte_exact = v.byte_exact && !o->quick};
    return 0;
}
