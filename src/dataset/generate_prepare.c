/* The generator before it writes: estimate, free space, what is in the folder already and whether it may stay; removing
 * a generated set. Invariants in generate.c. */
#include "dataset/generate_internal.h"
#include "base/common.h"
#include "base/rng.h"
#include "dataset/gen_parts.h"

#include <assert.h>
#include <errno.h>
#include <millrace/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mr_gen_exists(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_store_stat st;
    int r = mr_store_stat(s, path, &st, err);
    return r >= 0 ? 1 : r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

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
    if (p->n_fields && p->want_bytes / (double)p->samples > MR_MIB) { /* beside which headers are nothing */
        *out = 1.01;
        return 0;
    }
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
    int r = mr_gen_exists(s, g->manifest_path, err);
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
    int r = g->o.overwrite || g->had_manifest ? 0 : mr_gen_exists(g->o.store, g->o.folder, err);
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
    int r = mr_store_abort_unfinished(g->o.store, g->o.folder, "", NULL, err);
    if (r < 0)
        return r;
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
    const unsigned needs =
        g->at_once ? MR_STORE_CAP_WRITE : MR_STORE_CAP_WRITE | MR_STORE_CAP_RENAME | MR_STORE_CAP_OFFSET_WRITE;
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
