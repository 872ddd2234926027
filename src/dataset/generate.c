/* The generator: see generate.h and README.md. Invariants:
 *   1. A file is written under a temporary name and renamed when whole; its side-cars get their names before it.
 *   2. Without a manifest, a file's journal record is written before the rename (journal.h).
 *   3. A file counts as finished only if its final name has the size that the manifest or a journal record gives, and
 *      its side-cars exist (with `repair`: if every byte is what the spec makes).
 *   4. The manifest is written last, when every file has a record; journals are removed after it is durable.
 *   5. A file in parts is written under its temporary name by whoever has a part of it. A part's journal record is
 *      written after its bytes; it counts while the temporary file reaches to its end, which prepare checks. finish
 *      joins the records of the parts to that of the file, then 2 and 1 apply.
 *   6. From prepare to close, rank 0 holds the folder's lock (gen_lock.h), so that nobody else prepares or writes.
 * Threads share `struct mr_gen` read-only except for the atomic counters; each has its own scratch. */
#include "dataset/generate.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/workers.h"
#include "dataset/compare_store.h"
#include "dataset/gen_file.h"
#include "dataset/gen_lock.h"
#include "dataset/gen_parts.h"
#include "dataset/journal.h"

#include <assert.h>
#include <errno.h>
#include <millrace/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mr_gen {
    struct mr_gen_options o;
    const struct mr_gen_plan *p;
    char manifest_path[MR_NAME_MAX + 32];
    char *spec;                   /* JSON */
    struct mr_manifest *manifest; /* while running: a complete set is there */
    struct mr_journals *done;     /* while running: what earlier runs finished */
    struct mr_journal *journal;
    struct mr_gen_lock *lock; /* rank 0, from prepare to close */
    struct mr_gen_scratch *scratch;
    struct mr_compare **compare;
    unsigned threads;
    uint64_t parts; /* while running: work items per file */
    _Atomic uint64_t files_written, bytes_written, files_kept, bytes_kept, synth_ns, write_ns;
    bool was_complete, had_manifest;
};

int mr_gen_open(const struct mr_gen_options *o, struct mr_gen **out, struct mr_error *err)
{
    if (strlen(o->folder) > MR_NAME_MAX / 2)
        return mr_error_set(err, -ENAMETOOLONG, "cannot use folder '%s'", o->folder);
    struct mr_gen *g = calloc(1, sizeof(*g));
    struct mr_strbuf spec = {0};
    mr_gen_plan_to_json(o->plan, &spec);
    if (!g || spec.failed) {
        mr_strbuf_done(&spec);
        free(g);
        return mr_error_set(err, -ENOMEM, "cannot generate '%s'", o->folder);
    }
    g->o = *o;
    g->p = o->plan;
    g->threads = MR_MAX(o->threads, 1u);
    g->spec = mr_strbuf_take(&spec);
    snprintf(g->manifest_path, sizeof g->manifest_path, "%s/" MR_MANIFEST_NAME, o->folder);
    *out = g;
    return 0;
}

static void end_run(struct mr_gen *g)
{
    for (unsigned i = 0; g->scratch && i < g->threads; i++)
        mr_gen_scratch_done(&g->scratch[i]);
    for (unsigned i = 0; g->compare && i < g->threads; i++)
        mr_compare_free(g->compare[i]);
    free(g->scratch);
    free(g->compare);
    g->scratch = NULL;
    g->compare = NULL;
    mr_journals_close(g->done);
    mr_manifest_close(g->manifest);
    g->done = NULL;
    g->manifest = NULL;
}

void mr_gen_close(struct mr_gen *g)
{
    if (!g)
        return;
    end_run(g);
    mr_journal_close(g->journal, NULL);
    mr_gen_lock_release(g->lock);
    free(g->spec);
    free(g);
}

/* 1 there, 0 not, negative: cannot be told, which must not pass for "not". */
static int exists(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_store_stat st;
    int r = mr_store_stat(s, path, &st, err);
    return r >= 0 ? 1 : r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

void mr_gen_set_progress(struct mr_gen *g, struct mr_progress *progress)
{
    g->o.progress = progress;
}

/* ---- before writing ---- */

/* A small file of the same kind, written to memory, tells what the format adds (headers, text form, compression). */
static int bytes_per_wanted_byte(const struct mr_gen_plan *p, double *out, struct mr_error *err)
{
    struct mr_gen_spec small = p->spec;
    small.files = 1;
    small.size_stdev_bytes = 0;
    small.samples_per_file = MR_MIN(small.samples_per_file, 4);
    if (p->writer.fixed_size && p->spec.dims.n && p->fixed.bytes > MR_MIB) {
        small.dims.n = small.chunk.n = 0;
        small.size_bytes = MR_MIB;
    }
    small.size_bytes = MR_MIN(small.size_bytes, MR_MIB);
    struct mr_gen_plan q;
    struct mr_store *memory = NULL;
    struct mr_gen_scratch t = {0};
    struct mr_manifest_file f = {0};
    int r = mr_gen_plan_resolve(&small, p->split, &q, err);
    if (r >= 0)
        r = mr_store_open("memory", &memory, err);
    if (r >= 0)
        r = mr_gen_scratch_init(&t, err);
    char name[MR_NAME_MAX]; /* errors name the file that would be written first */
    mr_name_from_template(&p->names, 0, name);
    const char *slash = strrchr(name, '/');
    if (r >= 0)
        r = mr_gen_write_file(&q, memory, slash ? slash + 1 : name, 0, &t, NULL, NULL, &f, err);
    if (r >= 0)
        *out = (double)f.bytes / q.want_bytes;
    free(f.layout.data);
    mr_gen_scratch_done(&t);
    mr_store_close(memory);
    return r < 0 ? r : 0;
}

int mr_gen_estimate(const struct mr_gen_plan *p, struct mr_gen_estimate *out, struct mr_error *err)
{
    double ratio;
    int r = bytes_per_wanted_byte(p, &ratio, err);
    if (r < 0)
        return r;
    uint64_t files = (uint64_t)p->spec.files, sides = 0;
    for (const char *s = p->format->side_suffixes; s && *s; s += strlen(s) + 1)
        sides++;
    double each = p->want_bytes * ratio / (double)files;
    double blocks = (double)(uint64_t)(each / 4096 + 1) * 4096; /* file systems hand out whole blocks */
    *out = (struct mr_gen_estimate){
        .files = files,
        .samples = p->samples,
        .inodes = files * (1 + sides) + p->names.subfolders + 8,
        .bytes = (uint64_t)(blocks * (double)files) + sides * 8 * (p->samples + files) + 64 * MR_KIB,
    };
    return 0;
}

static int refuse_other(struct mr_gen *g, const struct mr_gen_spec *there, struct mr_error *err)
{
    struct mr_strbuf what = {0};
    mr_gen_spec_diff(there, &g->p->spec, &what);
    mr_error_plain(err, MR_E_CONFIG, "folder '%s' holds another data set: %s", g->o.folder, what.text ? what.text : "");
    mr_strbuf_done(&what);
    mr_error_hint(err, "choose another folder, or replace it with --overwrite");
    return MR_E_CONFIG;
}

/* Removes the files of a set with this spec; names follow from it, so nothing foreign is touched. */
static void remove_files(struct mr_gen *g, const struct mr_gen_spec *there, const char *split)
{
    struct mr_gen_plan old;
    char name[MR_NAME_MAX], path[2 * MR_NAME_MAX], side[2 * MR_NAME_MAX + 32];
    struct mr_store *s = g->o.store;
    if (mr_gen_plan_resolve(there, split, &old, NULL) < 0)
        return;
    for (uint64_t f = 0; f < (uint64_t)there->files; f++) {
        mr_name_from_template(&old.names, f, name);
        for (int temporary = 0; temporary < 2; temporary++) {
            if (temporary)
                mr_gen_temporary_path(g->o.folder, name, path);
            else
                mr_gen_path(g->o.folder, name, path);
            s->ops->unlink(s, path, NULL);
            for (const char *x = old.format->side_suffixes; x && *x; x += strlen(x) + 1) {
                snprintf(side, sizeof side, "%s%s", path, x);
                s->ops->unlink(s, side, NULL);
            }
        }
    }
    for (uint64_t d = 0; d < old.names.subfolders; d++) {
        snprintf(path, sizeof path, "%s/%0*llu", g->o.folder, (int)old.names.folder_digits, (unsigned long long)d);
        s->ops->unlink(s, path, NULL);
    }
}

/* What is there was made from `json`. Returns 1 when it is what we are asked for, 0 when it was removed. */
static int settle(struct mr_gen *g, const char *json, struct mr_error *err)
{
    struct mr_arena a = {0};
    struct mr_gen_spec there;
    const char *split = NULL;
    struct mr_strbuf ignored = {0};
    int r = mr_gen_spec_from_json(json, &a, &there, &split, NULL, err);
    bool ours = r >= 0;
    bool same = ours && strcmp(split, g->p->split) == 0 && mr_gen_spec_diff(&there, &g->p->spec, &ignored) == 0;
    mr_strbuf_done(&ignored);
    if (same) {
        r = 1;
    } else if (!g->o.overwrite) {
        if (ours)
            r = refuse_other(g, &there, err);
        else
            mr_error_hint(err, "choose another folder, or replace the manifest with --overwrite");
        r = r < 0 ? r : MR_E_CONFIG;
    } else {
        if (ours)
            remove_files(g, &there, split);
        r = 0;
    }
    mr_arena_done(&a);
    return r;
}

/* 1: a complete set with our spec; 0: none (any more). */
static int settle_manifest(struct mr_gen *g, struct mr_error *err)
{
    struct mr_store *s = g->o.store;
    struct mr_manifest *m = NULL;
    int r = exists(s, g->manifest_path, err);
    if (r <= 0)
        return r;
    r = mr_manifest_open(s, g->manifest_path, &m, err);
    if (r < 0 && !g->o.overwrite && !g->o.repair)
        return mr_error_hint(err, "'millrace gen' with --repair and the same options writes it again"), r;
    bool readable = r >= 0;
    r = readable ? settle(g, mr_manifest_get_spec(m), err) : 0;
    mr_manifest_close(m);
    g->had_manifest = true;
    return r == 0 ? s->ops->unlink(s, g->manifest_path, err) : r;
}

static int settle_journals(struct mr_gen *g, uint64_t *done_bytes, struct mr_error *err)
{
    struct mr_journals *js = NULL;
    uint64_t bytes;
    int r = mr_journals_open(g->o.store, g->o.folder, mr_gen_records(g->p), &js, err);
    if (r < 0 || !js)
        return r;
    r = settle(g, mr_journals_spec(js), err);
    int sound = r == 1 ? mr_gen_parts_settle(g->p, g->o.store, g->o.folder, js, done_bytes, err) : 1;
    if (r == 1)
        for (uint64_t f = 0; f < (uint64_t)g->p->spec.files; f++)
            if (mr_journals_has(js, f, &bytes))
                *done_bytes += bytes;
    mr_journals_close(js);
    if (sound < 0)
        return sound;
    if (sound == 0)
        *done_bytes = 0;
    if (r == 0 || sound == 0)
        mr_journals_remove(g->o.store, g->o.folder);
    return r;
}

struct foreign {
    const struct mr_gen *g;
    char name[256];
    uint64_t n;
};

static int look_for_foreign(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct foreign *f = user;
    (void)err;
    bool ours = name[0] == '.';
    if (is_dir && f->g->p->names.subfolders && strspn(name, "0123456789") == strlen(name))
        ours = true;
    if (!ours && f->n++ == 0)
        snprintf(f->name, sizeof f->name, "%s", name);
    return 0;
}

static int refuse_foreign(struct mr_gen *g, struct mr_error *err)
{
    struct foreign f = {.g = g};
    int r = g->o.overwrite || g->had_manifest ? 0 : exists(g->o.store, g->o.folder, err);
    if (r <= 0)
        return r;
    r = g->o.store->ops->list(g->o.store, g->o.folder, look_for_foreign, &f, err);
    if (r < 0 || f.n == 0)
        return r < 0 ? r : 0;
    mr_error_plain(err, MR_E_CONFIG, "folder '%s' is not empty and has no manifest: it holds '%s'%s", g->o.folder,
                   f.name, f.n > 1 ? " and more" : "");
    mr_error_hint(
        err, "choose another folder, index what is there with 'millrace scan %s', or write into it with --overwrite",
        g->o.folder);
    return MR_E_CONFIG;
}

int mr_gen_free_space(struct mr_store *s, const char *folder, char *where, uint64_t *bytes, uint64_t *inodes,
                      struct mr_error *err)
{
    struct mr_store_stat st;
    snprintf(where, MR_NAME_MAX, "%s", folder);
    while (mr_store_stat(s, where, &st, NULL) < 0) {
        char *slash = strrchr(where, '/');
        if (!slash) {
            snprintf(where, MR_NAME_MAX, ".");
            break;
        }
        slash[slash == where] = '\0';
        if (slash == where)
            break;
    }
    return s->ops->free_space(s, where, bytes, inodes, err);
}

static int check_space(struct mr_gen *g, uint64_t done_bytes, struct mr_error *err)
{
    struct mr_gen_estimate e;
    uint64_t bytes = 0, inodes = 0;
    char where[MR_NAME_MAX], a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    int r = mr_gen_estimate(g->p, &e, err);
    if (r < 0)
        return r;
    r = mr_gen_free_space(g->o.store, g->o.folder, where, &bytes, &inodes, err);
    if (r == MR_E_UNSUPPORTED)
        return 0;
    if (r < 0)
        return r;
    uint64_t need = e.bytes > done_bytes ? e.bytes - done_bytes : 0;
    if (need > bytes) {
        mr_error_plain(err, -ENOSPC, "the data set does not fit: need %s, have %s at '%s'",
                       mr_human_bytes((double)need, a), mr_human_bytes((double)bytes, b), where);
        return mr_error_hint(
                   err, "choose another folder, fewer --files or a smaller --size; --dry-run shows what is needed"),
               -ENOSPC;
    }
    if (inodes && e.inodes > inodes && done_bytes == 0) {
        mr_error_plain(err, -ENOSPC, "the data set does not fit: need %llu inodes, have %llu at '%s'",
                       (unsigned long long)e.inodes, (unsigned long long)inodes, where);
        return mr_error_hint(err, "put more samples into each file with --samples-per-file"), -ENOSPC;
    }
    return 0;
}

static int make_folders(struct mr_gen *g, struct mr_error *err)
{
    char path[2 * MR_NAME_MAX];
    snprintf(path, sizeof path, "%s/" MR_JOURNAL_FOLDER, g->o.folder);
    int r = mr_store_mkdirs(g->o.store, path, err);
    for (uint64_t d = 0; r >= 0 && d < MR_MIN(g->p->names.subfolders, (uint64_t)g->p->spec.files); d++) {
        snprintf(path, sizeof path, "%s/%0*llu", g->o.folder, (int)g->p->names.folder_digits, (unsigned long long)d);
        r = g->o.store->ops->mkdir(g->o.store, path, err);
    }
    return r < 0 ? r : 0;
}

static int prepare_folder(struct mr_gen *g, struct mr_error *err)
{
    uint64_t done_bytes = 0;
    int complete = settle_manifest(g, err);
    if (complete < 0)
        return complete;
    if (complete)
        return 0;
    int resuming = settle_journals(g, &done_bytes, err);
    if (resuming < 0)
        return resuming;
    int r = 0;
    if (!resuming && (r = refuse_foreign(g, err)) < 0)
        return r;
    if ((r = check_space(g, done_bytes, err)) < 0)
        return r;
    return make_folders(g, err);
}

/* A folder that is not there cannot be locked, and must not appear when the set is refused. It is made by preparing,
 * then locked, and looked at again: another generator may have come between. */
int mr_gen_prepare(struct mr_gen *g, struct mr_error *err)
{
    const unsigned needs = MR_STORE_CAP_WRITE | MR_STORE_CAP_RENAME | MR_STORE_CAP_OFFSET_WRITE;
    char what[MR_NAME_MAX + 32];
    snprintf(what, sizeof what, "generate '%s'", g->o.folder);
    int r = mr_store_require(g->o.store, needs, what, err); /* before anything is there */
    if (r >= 0)
        r = mr_gen_lock_take(g->o.store, g->o.folder, &g->lock, err);
    bool before = r > 0;
    if (r >= 0)
        r = prepare_folder(g, err);
    if (r < 0 || before)
        return r;
    r = mr_gen_lock_take(g->o.store, g->o.folder, &g->lock, err);
    return r > 0 ? prepare_folder(g, err) : r;
}

/* Is what lies in the folder generated? A manifest that cannot be read, or is of scanned files, is not ours to remove.
 */
static bool is_generated(struct mr_store *s, const char *manifest_path, const char *folder)
{
    struct mr_manifest *m = NULL;
    struct mr_journals *js = NULL;
    bool generated = false;
    if (mr_manifest_open(s, manifest_path, &m, NULL) >= 0)
        generated = (mr_manifest_get_info(m)->flags & MR_MANIFEST_GENERATED) != 0;
    else if (mr_journals_open(s, folder, 0, &js, NULL) >= 0)
        generated = js != NULL;
    mr_manifest_close(m);
    mr_journals_close(js);
    return generated;
}

int mr_gen_remove(struct mr_store *s, const char *folder, bool *removed, struct mr_error *err)
{
    static const struct mr_gen_plan nothing = {.split = ""};
    struct mr_gen g = {.o = {.store = s, .folder = folder, .overwrite = true}, .p = &nothing};
    uint64_t ignored = 0;
    if (strlen(folder) > MR_NAME_MAX / 2)
        return mr_error_set(err, -ENAMETOOLONG, "cannot use folder '%s'", folder);
    snprintf(g.manifest_path, sizeof g.manifest_path, "%s/" MR_MANIFEST_NAME, folder);
    int r = mr_gen_lock_take(s, folder, &g.lock, err);
    bool there = r >= 0 && is_generated(s, g.manifest_path, folder);
    if (there)
        r = settle_manifest(&g, err);
    if (there && r >= 0)
        r = settle_journals(&g, &ignored, err);
    mr_gen_lock_release(g.lock);
    if (r < 0)
        return r;
    if (there)
        s->ops->unlink(s, folder, NULL); /* stays when something foreign is in it */
    *removed = there;
    return 0;
}

/* ---- writing ---- */

static int sides_are_there(struct mr_gen *g, const char *path, struct mr_error *err)
{
    char side[2 * MR_NAME_MAX + 32];
    int r = 1;
    for (const char *x = g->p->format->side_suffixes; r > 0 && x && *x; x += strlen(x) + 1) {
        snprintf(side, sizeof side, "%s%s", path, x);
        r = exists(g->o.store, side, err);
    }
    return r;
}

/* Invariant 3. Returns 1, 0 or a negative code. */
static int is_finished(struct mr_gen *g, unsigned thread, uint64_t file, const char *path, uint64_t *bytes,
                       struct mr_error *err)
{
    struct mr_store_stat st;
    if (g->manifest)
        *bytes = mr_manifest_file_bytes(g->manifest, file);
    else if (!mr_journals_has(g->done, file, bytes))
        return 0;
    int r = mr_store_stat(g->o.store, path, &st, err);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    if (st.bytes != *bytes)
        return 0;
    if ((r = sides_are_there(g, path, err)) <= 0 || !g->o.repair)
        return r;
    struct mr_manifest_file f = {0};
    struct mr_file_diff diff;
    r = mr_gen_write_file(g->p, mr_compare_store(g->compare[thread]), path, file, &g->scratch[thread], g->o.stop, NULL,
                          &f, err);
    free(f.layout.data);
    mr_compare_take(g->compare[thread], &diff);
    return r < 0 ? r : diff.kind == MR_DIFF_NONE;
}

static int each_path(struct mr_gen *g, const char *from, const char *to, struct mr_error *err)
{
    assert(strcmp(from, to) != 0); /* invariant 1: a temporary name becomes the final one */
    struct mr_store *s = g->o.store;
    char a[2 * MR_NAME_MAX + 32], b[2 * MR_NAME_MAX + 32];
    int r = 0;
    for (const char *x = g->p->format->side_suffixes; r >= 0 && x && *x; x += strlen(x) + 1) {
        snprintf(a, sizeof a, "%s%s", from, x);
        snprintf(b, sizeof b, "%s%s", to, x);
        r = s->ops->rename(s, a, b, err);
    }
    return r < 0 ? r : s->ops->rename(s, from, to, err);
}

static void discard(struct mr_gen *g, const char *temporary)
{
    struct mr_store *s = g->o.store;
    char side[2 * MR_NAME_MAX + 32];
    s->ops->unlink(s, temporary, NULL);
    for (const char *x = g->p->format->side_suffixes; x && *x; x += strlen(x) + 1) {
        snprintf(side, sizeof side, "%s%s", temporary, x);
        s->ops->unlink(s, side, NULL);
    }
}

static int sync_path(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_object *o;
    int r = mr_object_open(s, path, MR_OBJ_WRITE, &o, err);
    if (r < 0)
        return r;
    r = s->ops->fsync(o, err);
    int closed = mr_object_close(o, r < 0 ? NULL : err);
    return r < 0 ? r : closed;
}

static int make_durable(struct mr_gen *g, const char *temporary, struct mr_error *err)
{
    char side[2 * MR_NAME_MAX + 32];
    int r = sync_path(g->o.store, temporary, err);
    for (const char *x = g->p->format->side_suffixes; r >= 0 && x && *x; x += strlen(x) + 1) {
        snprintf(side, sizeof side, "%s%s", temporary, x);
        r = sync_path(g->o.store, side, err);
    }
    return r;
}

/* Invariants 1 and 2. */
static int put_file(struct mr_gen *g, unsigned thread, uint64_t file, const char *name, const char *path,
                    struct mr_error *err)
{
    assert(thread < g->threads && (g->manifest || g->journal)); /* invariant 2: somebody tells its size */
    char temporary[2 * MR_NAME_MAX];
    struct mr_manifest_file f = {0};
    struct mr_gen_scratch *t = &g->scratch[thread];
    mr_gen_temporary_path(g->o.folder, name, temporary);
    int r = mr_gen_write_file(g->p, g->o.store, temporary, file, t, g->o.stop, g->o.progress, &f, err);
    if (r >= 0 && g->manifest && f.bytes != mr_manifest_file_bytes(g->manifest, file)) {
        r = mr_error_plain(err, MR_E_CORRUPT, "'%s' comes out with %llu bytes, the manifest says %llu", path,
                           (unsigned long long)f.bytes, (unsigned long long)mr_manifest_file_bytes(g->manifest, file));
        mr_error_hint(err, "the set was written by another version; replace it with --overwrite");
    }
    if (r >= 0 && g->o.fsync)
        r = make_durable(g, temporary, err);
    if (r >= 0 && g->journal)
        r = mr_journal_add(g->journal, file, &f, err);
    if (r >= 0)
        r = each_path(g, temporary, path, err);
    free(f.layout.data);
    if (r < 0) {
        discard(g, temporary);
        return r;
    }
    atomic_fetch_add(&g->files_written, 1);
    atomic_fetch_add(&g->bytes_written, f.bytes);
    return 0;
}

static void tell_limiter(struct mr_gen *g, struct mr_gen_scratch *t)
{
    uint64_t synth = atomic_fetch_add(&g->synth_ns, t->synth_ns) + t->synth_ns;
    uint64_t write = atomic_fetch_add(&g->write_ns, t->write_ns) + t->write_ns;
    t->synth_ns = t->write_ns = 0;
    bool encodes = g->p->spec.compression || (g->p->format->caps & MR_FMT_LOSSY);
    if (g->o.progress)
        mr_progress_set_limiter(g->o.progress, synth > write ? "CPU: content" : encodes ? "CPU: encoding" : "writing");
}

static bool someone_stopped(struct mr_gen *g)
{
    if (!g->o.all_stop)
        return false;
    if (g->o.stop && atomic_load_explicit(g->o.stop, memory_order_relaxed))
        atomic_store(g->o.all_stop, true);
    return atomic_load_explicit(g->o.all_stop, memory_order_relaxed);
}

/* Invariant 5. */
static int put_part(struct mr_gen *g, unsigned thread, uint64_t file, uint64_t part, const char *name,
                    struct mr_error *err)
{
    assert(g->journal && !g->manifest && part < g->parts); /* invariant 5 */
    char temporary[2 * MR_NAME_MAX];
    struct mr_manifest_file f = {0};
    uint64_t number = mr_gen_part_record(g->p, file, part), bytes = mr_gen_part_bytes(g->p, part), end;
    if (mr_journals_has(g->done, number, &end)) {
        atomic_fetch_add(&g->bytes_kept, bytes);
        if (g->o.progress)
            mr_progress_add(g->o.progress, 0, bytes);
        return 0;
    }
    mr_gen_temporary_path(g->o.folder, name, temporary);
    int r = mr_gen_write_part(g->p, g->o.store, temporary, file, part, &g->scratch[thread], g->o.stop, g->o.progress,
                              &f, err);
    if (r >= 0 && g->o.fsync)
        r = make_durable(g, temporary, err);
    if (r >= 0)
        r = mr_journal_add(g->journal, number, &f, err);
    free(f.layout.data);
    if (r >= 0)
        atomic_fetch_add(&g->bytes_written, bytes);
    return r;
}

/* A file, or a part of one. */
static int one_item(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct mr_gen *g = ctx->user;
    uint64_t item = g->o.rank + index * g->o.world, bytes = 0;
    uint64_t file = item / g->parts, part = item % g->parts;
    assert(file < (uint64_t)g->p->spec.files && ctx->thread < g->threads);
    char name[MR_NAME_MAX], path[2 * MR_NAME_MAX];
    if (someone_stopped(g))
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    mr_name_from_template(&g->p->names, file, name);
    mr_gen_path(g->o.folder, name, path);
    int r = is_finished(g, ctx->thread, file, path, &bytes, err);
    if (r == 1) {
        atomic_fetch_add(&g->files_kept, part == 0);
        atomic_fetch_add(&g->bytes_kept, part == 0 ? bytes : 0);
        if (g->o.progress)
            mr_progress_add(g->o.progress, g->p->parts / g->parts, part == 0 ? bytes : 0);
        return 0;
    }
    if (r == 0 && g->parts > 1)
        r = put_part(g, ctx->thread, file, part, name, err);
    else if (r == 0)
        r = put_file(g, ctx->thread, file, name, path, err);
    if (r < 0)
        return mr_error_context(err, "in file '%s'", path), r;
    if (g->o.progress)
        mr_progress_add(g->o.progress, g->p->parts / g->parts, 0);
    tell_limiter(g, &g->scratch[ctx->thread]);
    return 0;
}

/* What is there, seen by this rank: rank 0 has settled it. */
static int start_run(struct mr_gen *g, struct mr_error *err)
{
    int r = 0;
    g->parts = 1; /* what is there is held against the spec file by file */
    g->scratch = calloc(g->threads, sizeof(*g->scratch));
    g->compare = calloc(g->threads, sizeof(struct mr_compare *));
    if (!g->scratch || !g->compare)
        return mr_error_set(err, -ENOMEM, "cannot generate '%s'", g->o.folder);
    for (unsigned i = 0; r >= 0 && i < g->threads; i++) {
        r = mr_gen_scratch_init(&g->scratch[i], err);
        g->scratch[i].scale = mr_gen_scale(g->p);
        if (r >= 0 && g->o.repair)
            r = mr_compare_create(g->o.store, &g->compare[i], err);
    }
    if (r < 0)
        return r;
    if ((r = exists(g->o.store, g->manifest_path, err)) < 0)
        return r;
    if (r) {
        r = mr_manifest_open(g->o.store, g->manifest_path, &g->manifest, err);
        if (r >= 0 && mr_manifest_get_info(g->manifest)->files != (uint64_t)g->p->spec.files)
            r = mr_error_plain(err, MR_E_CORRUPT, "manifest '%s' does not fit its own spec", g->manifest_path);
        g->was_complete = r >= 0;
        return r;
    }
    if (!g->o.repair)
        g->parts = g->p->parts;
    if ((r = mr_journals_open(g->o.store, g->o.folder, mr_gen_records(g->p), &g->done, err)) < 0)
        return r;
    return mr_journal_create(g->o.store, g->o.folder, g->o.rank, g->spec, &g->journal, err);
}

int mr_gen_run(struct mr_gen *g, struct mr_error *err)
{
    int r = start_run(g, err);
    uint64_t items = (uint64_t)g->p->spec.files * g->parts;
    uint64_t mine = items > g->o.rank ? (items - g->o.rank + g->o.world - 1) / g->o.world : 0;
    if (r >= 0)
        r = mr_workers_run(g->threads, mine, 1, one_item, g, g->o.stop, err);
    if (r == MR_E_INTERRUPTED && g->o.all_stop)
        atomic_store(g->o.all_stop, true);
    if (r >= 0 && g->journal && g->o.fsync)
        r = mr_journal_sync(g->journal, err);
    int closed = mr_journal_close(g->journal, r < 0 ? NULL : err);
    g->journal = NULL;
    end_run(g);
    if (r < 0) {
        mr_error_context(err, "in the generation of '%s' (what is finished stays; the same command continues)",
                         g->o.folder);
        return r;
    }
    return closed < 0 ? closed : 0;
}

/* ---- after writing ---- */

/* A file whose parts are all there gets its record and its name. */
static int join_file(struct mr_gen *g, struct mr_journals *js, struct mr_journal *to, uint64_t file,
                     struct mr_error *err)
{
    char name[MR_NAME_MAX], path[2 * MR_NAME_MAX], temporary[2 * MR_NAME_MAX];
    struct mr_manifest_file f = {0};
    struct mr_store_stat st;
    uint64_t bytes;
    mr_name_from_template(&g->p->names, file, name);
    mr_gen_path(g->o.folder, name, path);
    mr_gen_temporary_path(g->o.folder, name, temporary);
    if (mr_journals_has(js, file, &bytes) && mr_store_stat(g->o.store, path, &st, NULL) >= 0 && st.bytes == bytes)
        return 0;
    int r = mr_gen_parts_join(g->p, js, file, &f, err);
    if (r >= 0)
        r = mr_journal_add(to, file, &f, err);
    if (r >= 0)
        r = each_path(g, temporary, path, err);
    free(f.layout.data);
    if (r < 0)
        return mr_error_context(err, "in file '%s'", path), r;
    atomic_fetch_add(&g->files_written, 1);
    return 0;
}

static int join_files(struct mr_gen *g, struct mr_error *err)
{
    struct mr_journals *js = NULL;
    struct mr_journal *to = NULL;
    int r = mr_journals_open(g->o.store, g->o.folder, mr_gen_records(g->p), &js, err);
    if (r < 0 || !js)
        return r;
    r = mr_journal_create(g->o.store, g->o.folder, g->o.rank, g->spec, &to, err);
    for (uint64_t f = 0; r >= 0 && f < (uint64_t)g->p->spec.files; f++)
        r = join_file(g, js, to, f, err);
    int closed = mr_journal_close(to, r < 0 ? NULL : err);
    mr_journals_close(js);
    return r < 0 ? r : closed;
}

static int merge(struct mr_gen *g, struct mr_journals *js, struct mr_manifest_builder *b, struct mr_error *err)
{
    int r = 0;
    for (uint64_t f = 0; r >= 0 && f < (uint64_t)g->p->spec.files; f++) {
        struct mr_manifest_file record;
        r = mr_journals_get(js, f, &record, err);
        if (r >= 0 && record.column[0].count != g->p->writer.samples)
            r = mr_error_plain(err, MR_E_CORRUPT, "the journal has %llu samples of file %llu, want %llu",
                               (unsigned long long)record.column[0].count, (unsigned long long)f,
                               (unsigned long long)g->p->writer.samples);
        if (r >= 0)
            r = mr_manifest_builder_add(b, &record, err);
    }
    return r;
}

static int sync_folders(struct mr_gen *g, struct mr_error *err)
{
    char path[2 * MR_NAME_MAX];
    int r = g->o.store->ops->sync_dir(g->o.store, g->o.folder, err);
    for (uint64_t d = 0; r >= 0 && d < MR_MIN(g->p->names.subfolders, (uint64_t)g->p->spec.files); d++) {
        snprintf(path, sizeof path, "%s/%0*llu", g->o.folder, (int)g->p->names.folder_digits, (unsigned long long)d);
        r = g->o.store->ops->sync_dir(g->o.store, path, err);
    }
    return r;
}

static int write_manifest(struct mr_gen *g, struct mr_journals *js, struct mr_error *err)
{
    struct mr_manifest_builder *b = NULL;
    struct mr_manifest_info info = {
        .seed = g->p->content.seed,
        .content_version = MR_CONTENT_VERSION,
        .rng_version = MR_RNG_VERSION,
        .compress_percent = g->p->content.compress_percent,
        .flags = MR_MANIFEST_GENERATED,
        .dtype = g->p->writer.dtype,
        .dims = g->p->writer.dims,
        .label_classes = (uint64_t)g->p->spec.labels,
    };
    snprintf(info.format, sizeof info.format, "%s", g->p->format->name);
    int r = mr_manifest_builder_create(&info, &g->p->names, g->spec, &b, err);
    if (r >= 0)
        r = merge(g, js, b, err);
    if (r >= 0)
        r = mr_manifest_builder_write(b, g->o.store, g->manifest_path, err);
    mr_manifest_builder_free(b);
    return r;
}

int mr_gen_finish(struct mr_gen *g, struct mr_error *err)
{
    assert(!g->journal); /* invariant 4: this rank has closed what it wrote */
    struct mr_journals *js = NULL;
    int there = exists(g->o.store, g->manifest_path, err), r = there;
    if (r == 0 && g->p->parts > 1)
        r = join_files(g, err);
    if (r >= 0 && g->o.fsync)
        r = sync_folders(g, err);
    if (r < 0)
        return r;
    if (!there) {
        if ((r = mr_journals_open(g->o.store, g->o.folder, mr_gen_records(g->p), &js, err)) < 0)
            return r;
        if (!js)
            return mr_error_plain(err, MR_E_INCOMPLETE, "no journal in '%s'", g->o.folder);
        r = write_manifest(g, js, err);
        mr_journals_close(js);
    }
    if (r >= 0)
        mr_journals_remove(g->o.store, g->o.folder);
    return r;
}

void mr_gen_get_result(const struct mr_gen *g, struct mr_gen_result *out)
{
    *out = (struct mr_gen_result){.files_written = g->files_written,
                                  .bytes_written = g->bytes_written,
                                  .files_kept = g->files_kept,
                                  .bytes_kept = g->bytes_kept,
                                  .was_complete = g->was_complete};
}
