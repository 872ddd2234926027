/* The generator: see generate.h and README.md; generate_prepare.c has what comes before writing. Invariants:
 *   1. A file is written under a temporary name and renamed when whole; its side-cars get their names before it.
 *   2. Without a manifest, a file's journal record is written before the rename (journal.h).
 *   3. A file counts as finished only if its final name has the size that the manifest or a journal record gives, and
 *      its side-cars exist (with `repair`: if every byte is what the spec makes).
 *   4. The manifest is written last, when every file has a record; journals are removed after it is durable.
 *   5. A file in parts is written under its temporary name by whoever has a part of it. A part's journal record is
 *      written after its bytes; it counts while the temporary file reaches to its end, which prepare checks. finish
 *      joins the records of the parts to that of the file, then 2 and 1 apply.
 *   6. From prepare to close, rank 0 holds the folder's lock (gen_lock.h), so that nobody else prepares or writes.
 *   7. Where the store puts files whole (object storage), a file is written under its own name, which it gets with its
 *      last byte; a journal record that got lost costs writing the file again.
 * Threads share `struct mr_gen` read-only except for the atomic counters; each has its own scratch. */
#include "dataset/generate_internal.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/workers.h"
#include "dataset/gen_parts.h"

#include <assert.h>
#include <errno.h>
#include <millrace/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    g->at_once = mr_store_puts_whole(o->store);
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

void mr_gen_set_progress(struct mr_gen *g, struct mr_progress *progress)
{
    g->o.progress = progress;
}

/* ---- writing ---- */

static int sides_are_there(struct mr_gen *g, const char *path, struct mr_error *err)
{
    char side[2 * MR_NAME_MAX + 32];
    int r = 1;
    for (const char *x = g->p->format->side_suffixes; r > 0 && x && *x; x += strlen(x) + 1) {
        snprintf(side, sizeof side, "%s%s", path, x);
        r = mr_gen_exists(g->o.store, side, err);
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
    if (g->at_once) /* invariant 7 */
        snprintf(temporary, sizeof temporary, "%s", path);
    else
        mr_gen_temporary_path(g->o.folder, name, temporary);
    int r = mr_gen_write_file(g->p, g->o.store, temporary, file, t, g->o.stop, g->o.progress, &f, err);
    if (r >= 0 && g->manifest && f.bytes != mr_manifest_file_bytes(g->manifest, file)) {
        r = mr_error_plain(err, MR_E_CORRUPT, "'%s' comes out with %llu bytes, the manifest says %llu", path,
                           (unsigned long long)f.bytes, (unsigned long long)mr_manifest_file_bytes(g->manifest, file));
        mr_error_hint(err, "the set was written by another version; replace it with --overwrite");
    }
    if (r >= 0 && g->o.fsync && !g->at_once)
        r = make_durable(g, temporary, err);
    if (r >= 0 && g->journal)
        r = mr_journal_add(g->journal, file, &f, err);
    if (r >= 0 && !g->at_once)
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
    g->compare = calloc(g->threads, sizeof(struct mr_compare_shim *));
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
    if ((r = mr_gen_exists(g->o.store, g->manifest_path, err)) < 0)
        return r;
    if (r) {
        r = mr_manifest_open(g->o.store, g->manifest_path, &g->manifest, err);
        if (r >= 0 && mr_manifest_get_info(g->manifest)->files != (uint64_t)g->p->spec.files)
            r = mr_error_plain(err, MR_E_CORRUPT, "manifest '%s' does not fit its own spec", g->manifest_path);
        g->was_complete = r >= 0;
        return r;
    }
    if (!g->o.repair && !g->at_once)
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

static int set_fields(const struct mr_gen_plan *p, struct mr_manifest_builder *b, struct mr_error *err)
{
    struct mr_field field[MR_GEN_FIELDS_MAX];
    for (unsigned k = 0; k < p->n_fields; k++)
        field[k] = mr_gen_plan_field(p, k);
    return mr_manifest_builder_set_fields(b, field, p->n_fields, err);
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
    if (r >= 0 && g->p->n_fields)
        r = set_fields(g->p, b, err);
    if (r >= 0)
        r = mr_manifest_builder_write(b, g->o.store, g->manifest_path, err);
    mr_manifest_builder_free(b);
    return r;
}

int mr_gen_finish(struct mr_gen *g, struct mr_error *err)
{
    assert(!g->journal); /* invariant 4: this rank has closed what it wrote */
    struct mr_journals *js = NULL;
    int there = mr_gen_exists(g->o.store, g->manifest_path, err), r = there;
    if (r == 0 && g->p->parts > 1 && !g->at_once)
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
