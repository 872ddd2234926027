/* A checkpoint engine as a plug-in: one file per rank, renamed when it is complete, and a marker that counts.
 *
 *     FOLDER/step-N.gG.rank-R     all files of rank R: head, bytes, checksum; written as .tmp, then renamed
 *     FOLDER/step-N.done          "G WORLD": written by rank 0 when every rank has renamed its file
 *
 * What must stay true
 *  1. A checkpoint exists if and only if its marker does; the marker is written last and removed first.
 *  2. Saving a step again uses the other generation G (0 or 1), so the files that the marker names are never touched.
 *  3. All ranks return the same code: every phase ends with an agreement.
 * The header <millrace/plugin_checkpoint.h> says what each operation promises.
 *
 *     checkpoint.engine: rank-files       (workload file, or as an override) */
#include <millrace/plugin.h>
#include <millrace/plugin_checkpoint.h>
#include <millrace/plugin_store.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAGIC 0x315641535f524d00u
#define PIECE ((size_t)1 << 20)
#define PATH_BYTES 1200
#define NAME_BYTES sizeof(((struct mr_checkpoint_file *)0)->name)
#define FILES_MAX 1000000u

struct engine {
    struct mr_checkpointer base; /* first */
    struct mr_checkpoint_params p;
    struct mr_store *store;
    char *folder;
};

static const struct mr_checkpoint_engine_ops rank_files;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int agree(struct engine *e, int code, struct mr_error *err)
{
    return e->p.agree ? e->p.agree(e->p.user, code, err) : code;
}

/* ---- opening ---- */

static void engine_close(struct mr_checkpointer *c)
{
    struct engine *e = (struct engine *)c;
    mr_store_close(e->store);
    free(e->folder);
    free(e);
}

static int engine_open(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err)
{
    if (p->burst_folder && *p->burst_folder)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "checkpoint engine 'rank-files' has no burst buffer");
    struct engine *e = calloc(1, sizeof(*e));
    if (!e)
        return mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    e->base.ops = &rank_files;
    e->p = *p;
    e->p.folder = e->p.store = e->p.engine = NULL; /* the caller's */
    e->folder = strdup(p->folder);
    int rc = e->folder ? mr_checkpoint_open_store(p, &e->store, err)
                       : mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    if (rc == 0)
        rc = mr_store_require(e->store, MR_STORE_CAP_WRITE | MR_STORE_CAP_RENAME, "keep checkpoints", err);
    if (rc == 0 && p->world > 1)
        rc = mr_store_require(e->store, MR_STORE_CAP_PERSISTENT, "share checkpoints between ranks", err);
    if (rc < 0) {
        engine_close(&e->base);
        return rc;
    }
    *out = &e->base;
    return 0;
}

/* ---- names and markers ---- */

struct marker {
    uint64_t step;
    unsigned generation, world;
};

static void marker_path(const struct engine *e, uint64_t step, char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s/step-%" PRIu64 ".done", e->folder, step);
}

static void rank_path(const struct engine *e, const struct marker *m, uint32_t rank, const char *end,
                      char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s/step-%" PRIu64 ".g%u.rank-%" PRIu32 "%s", e->folder, m->step, m->generation, rank,
             end);
}

/* 1 there, 0 not, or a negative code. */
static int read_marker(const struct engine *e, uint64_t step, struct marker *out, struct mr_error *err)
{
    char path[PATH_BYTES];
    struct mr_error why;
    void *text = NULL;
    size_t len = 0;
    marker_path(e, step, path);
    int rc = mr_store_read_file(e->store, path, 64, &text, &len, &why);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0) {
        if (err)
            *err = why;
        return rc;
    }
    struct marker m = {.step = step};
    bool good = sscanf(text, "%u %u", &m.generation, &m.world) == 2 && m.generation < 2 && m.world > 0;
    free(text);
    if (!good)
        return mr_error_plain(err, MR_E_CORRUPT, "'%s' is damaged", path);
    *out = m;
    return 1;
}

struct steps {
    uint64_t *item;
    size_t n;
};

static int add_step(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct steps *s = user;
    uint64_t step;
    int used = 0;
    if (is_dir || sscanf(name, "step-%" SCNu64 ".done%n", &step, &used) != 1 || used == 0 || name[used])
        return 0;
    uint64_t *more = realloc(s->item, (s->n + 1) * sizeof(*more));
    if (!more)
        return mr_error_set(err, -ENOMEM, "cannot list the checkpoints");
    s->item = more;
    s->item[s->n++] = step;
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

/* The steps that have a marker; free item. */
static int list_steps(const struct engine *e, struct steps *out, struct mr_error *err)
{
    struct steps s = {0};
    struct mr_error why;
    int rc = e->store->ops->list(e->store, e->folder, add_step, &s, &why);
    if (rc == -ENOENT)
        rc = 0;
    if (rc < 0) {
        free(s.item);
        if (err)
            *err = why;
        return rc;
    }
    if (s.n)
        qsort(s.item, s.n, sizeof(*s.item), newest_first);
    *out = s;
    return 0;
}

static int engine_newest(struct mr_checkpointer *c, uint64_t *step, struct mr_error *err)
{
    struct engine *e = (struct engine *)c;
    struct steps s;
    int rc = list_steps(e, &s, err);
    if (rc < 0)
        return rc;
    if (s.n == 0)
        return mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint in '%s'", e->folder);
    *step = s.item[0];
    free(s.item);
    return 0;
}

/* ---- one rank's file ---- */

struct stream {
    struct mr_object *o;
    uint64_t at, hash, io_ns;
    unsigned char *buf;
};

static void hash_bytes(struct stream *s, const unsigned char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->hash = (s->hash ^ b[i]) * 0x100000001b3u;
}

static void to_le64(uint64_t v, unsigned char out[8])
{
    for (unsigned i = 0; i < 8; i++)
        out[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t from_le64(const unsigned char in[8])
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 8; i++)
        v |= (uint64_t)in[i] << (8 * i);
    return v;
}

static int put(struct stream *s, const void *data, size_t n, struct mr_error *err)
{
    uint64_t start = now_ns();
    int rc = mr_object_write(s->o, data, n, s->at, err);
    s->io_ns += now_ns() - start;
    hash_bytes(s, data, n);
    s->at += n;
    return rc;
}

static int get(struct stream *s, void *data, size_t n, struct mr_error *err)
{
    uint64_t start = now_ns();
    int rc = mr_object_read(s->o, data, n, s->at, err);
    s->io_ns += now_ns() - start;
    if (rc == 0)
        hash_bytes(s, data, n);
    s->at += n;
    return rc;
}

static int put64(struct stream *s, uint64_t v, struct mr_error *err)
{
    unsigned char b[8];
    to_le64(v, b);
    return put(s, b, sizeof(b), err);
}

static int get64(struct stream *s, uint64_t *v, struct mr_error *err)
{
    unsigned char b[8];
    int rc = get(s, b, sizeof(b), err);
    if (rc == 0)
        *v = from_le64(b);
    return rc;
}

static int interrupted(const struct engine *e, struct mr_error *err)
{
    return e->p.stopped && e->p.stopped(e->p.user)
               ? mr_error_plain(err, MR_E_INTERRUPTED, "interrupted in a checkpoint in '%s'", e->folder)
               : 0;
}

static int put_content(struct engine *e, struct stream *s, uint64_t step, const struct mr_checkpoint_file *f,
                       struct mr_error *err)
{
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < f->bytes;) {
        size_t n = f->bytes - at < PIECE ? (size_t)(f->bytes - at) : PIECE;
        uint64_t start = now_ns();
        mr_checkpoint_content(&e->p, step, f->name, at, s->buf, n);
        uint64_t made = now_ns();
        rc = interrupted(e, err);
        if (rc == 0)
            rc = put(s, s->buf, n, err);
        mr_checkpoint_tell(&e->p, MR_CHECKPOINT_SNAPSHOT, step, start, made, n);
        mr_checkpoint_tell(&e->p, MR_CHECKPOINT_WRITE, step, made, now_ns(), n);
        at += n;
    }
    return rc;
}

static int put_all(struct engine *e, struct stream *s, uint64_t step, const struct mr_checkpoint_file *files,
                   uint64_t n, struct mr_error *err)
{
    int rc = put64(s, MAGIC, err);
    if (rc == 0)
        rc = put64(s, step, err);
    if (rc == 0)
        rc = put64(s, n, err);
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        rc = put64(s, files[i].bytes, err);
        if (rc == 0)
            rc = put(s, files[i].name, NAME_BYTES, err);
    }
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        rc = put_content(e, s, step, &files[i], err);
    return rc == 0 ? put64(s, s->hash, err) : rc;
}

static int check_files(const struct mr_checkpoint_file *files, uint64_t n, struct mr_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        int rc = mr_checkpoint_name_check(files[i].name, NAME_BYTES, err);
        for (uint64_t k = 0; rc == 0 && k < i; k++)
            if (strcmp(files[i].name, files[k].name) == 0)
                rc = mr_error_plain(err, MR_E_USAGE, "checkpoint file '%s' is named twice", files[i].name);
        if (rc < 0)
            return rc;
    }
    return n <= FILES_MAX ? 0 : mr_error_plain(err, MR_E_USAGE, "a checkpoint of more than %u files", FILES_MAX);
}

/* This rank's file under its final name; on failure nothing is left. */
static int write_share(struct engine *e, const struct marker *m, const struct mr_checkpoint_file *files, uint64_t n,
                       struct mr_checkpoint_result *r, struct mr_error *err)
{
    char tmp[PATH_BYTES], path[PATH_BYTES];
    struct stream s = {.hash = 0xcbf29ce484222325u, .buf = malloc(PIECE)};
    if (!s.buf)
        return mr_error_set(err, -ENOMEM, "cannot save a checkpoint");
    rank_path(e, m, e->p.rank, ".tmp", tmp);
    rank_path(e, m, e->p.rank, "", path);
    int rc = mr_object_open(e->store, tmp, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &s.o, err);
    if (rc == 0) {
        rc = put_all(e, &s, m->step, files, n, err);
        uint64_t start = now_ns();
        if (rc == 0 && e->p.fsync)
            rc = e->store->ops->fsync(s.o, err);
        r->fsync_ns = now_ns() - start;
        if (e->p.fsync)
            mr_checkpoint_tell(&e->p, MR_CHECKPOINT_FSYNC, m->step, start, start + r->fsync_ns, 0);
        int closed = mr_object_close(s.o, rc ? NULL : err);
        rc = rc ? rc : closed;
        start = now_ns();
        if (rc == 0)
            rc = e->store->ops->rename(e->store, tmp, path, err);
        mr_checkpoint_tell(&e->p, MR_CHECKPOINT_RENAME, m->step, start, now_ns(), 0);
        if (rc < 0)
            e->store->ops->unlink(e->store, tmp, NULL);
    }
    r->write_ns = s.io_ns;
    free(s.buf);
    return rc;
}

/* ---- saving ---- */

static int write_marker(struct engine *e, const struct marker *m, struct mr_error *err)
{
    char path[PATH_BYTES], text[64];
    marker_path(e, m->step, path);
    int rc = e->p.fsync ? e->store->ops->sync_dir(e->store, e->folder, err) : 0;
    int n = snprintf(text, sizeof(text), "%u %u\n", m->generation, m->world);
    return rc ? rc : mr_store_write_file(e->store, path, text, (size_t)n, err);
}

static void remove_files(struct engine *e, const struct marker *m)
{
    char path[PATH_BYTES];
    for (uint32_t r = 0; r < m->world; r++) {
        rank_path(e, m, r, "", path);
        e->store->ops->unlink(e->store, path, NULL);
    }
}

/* Older than the newest keep_last. What cannot be removed is tried again by the next save. */
static void retire(struct engine *e, uint64_t just_saved)
{
    struct steps s;
    char path[PATH_BYTES];
    if (e->p.keep_last == 0 || list_steps(e, &s, NULL) < 0)
        return;
    for (size_t i = e->p.keep_last; i < s.n; i++) {
        struct marker m;
        marker_path(e, s.item[i], path);
        if (s.item[i] != just_saved && read_marker(e, s.item[i], &m, NULL) == 1 &&
            e->store->ops->unlink(e->store, path, NULL) == 0)
            remove_files(e, &m);
    }
    free(s.item);
}

static int engine_save(struct mr_checkpointer *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                       struct mr_checkpoint_result *out, struct mr_error *err)
{
    struct engine *e = (struct engine *)c;
    struct mr_checkpoint_result r = {.files = n};
    struct marker before, m = {.step = step, .world = e->p.world};
    uint64_t start = now_ns();
    int rc = check_files(files, n, err), there = 0;
    if (rc == 0 && e->p.rank == 0)
        rc = mr_store_mkdirs(e->store, e->folder, err);
    rc = agree(e, rc, err);
    if (rc == 0) {
        there = read_marker(e, step, &before, err);
        m.generation = there == 1 && before.generation == 0;
        rc = there < 0 ? there : write_share(e, &m, files, n, &r, err);
        rc = agree(e, rc, err);
    }
    if (rc == 0)
        rc = agree(e, e->p.rank == 0 ? write_marker(e, &m, err) : 0, err);
    if (rc < 0)
        return rc;
    if (e->p.rank == 0) {
        if (there == 1)
            remove_files(e, &before);
        retire(e, step);
    }
    for (uint64_t i = 0; i < n; i++)
        r.bytes += files[i].bytes;
    r.duration_ns = now_ns() - start;
    snprintf(r.path, sizeof(r.path), "%.900s/step-%" PRIu64 ".done", e->folder, step);
    *out = r;
    return 0;
}

/* ---- loading ---- */

static int damaged(struct mr_error *err, const char *path)
{
    mr_error_plain(err, MR_E_CORRUPT, "'%s' does not match its checksum", path);
    mr_error_hint(err, "load an older checkpoint");
    return MR_E_CORRUPT;
}

/* Reads it all; what the head says is believed only as far as the file's size allows. */
static int read_stream(struct engine *e, struct stream *s, uint64_t size, const char *path,
                       struct mr_checkpoint_result *r, struct mr_error *err)
{
    uint64_t magic = 0, step = 0, n = 0, bytes = 0;
    int rc = size < 32 ? damaged(err, path) : get64(s, &magic, err);
    if (rc == 0)
        rc = get64(s, &step, err);
    if (rc == 0)
        rc = get64(s, &n, err);
    if (rc == 0 && (magic != MAGIC || n > (size - 32) / (8 + NAME_BYTES)))
        rc = damaged(err, path);
    while (rc == 0 && s->at < size - 8) {
        size_t piece = size - 8 - s->at < PIECE ? (size_t)(size - 8 - s->at) : PIECE;
        rc = interrupted(e, err);
        if (rc == 0)
            rc = get(s, s->buf, piece, err);
    }
    uint64_t want = s->hash, have = 0;
    if (rc == 0)
        rc = get64(s, &have, err);
    if (rc == 0 && have != want)
        rc = damaged(err, path);
    bytes = rc == 0 ? size - 32 - n * (8 + NAME_BYTES) : 0;
    r->bytes += bytes;
    r->files += rc == 0 ? n : 0;
    return rc;
}

static int read_share(struct engine *e, const struct marker *m, uint32_t rank, struct mr_checkpoint_result *r,
                      struct mr_error *err)
{
    char path[PATH_BYTES];
    uint64_t size = 0;
    struct stream s = {.hash = 0xcbf29ce484222325u, .buf = malloc(PIECE)};
    if (!s.buf)
        return mr_error_set(err, -ENOMEM, "cannot load a checkpoint");
    rank_path(e, m, rank, "", path);
    int rc = mr_object_open(e->store, path, MR_OBJ_READ, &s.o, err);
    if (rc == -ENOENT)
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing", path);
    if (rc == 0) {
        rc = mr_object_size(s.o, &size, err);
        if (rc == 0)
            rc = read_stream(e, &s, size, path, r, err);
        mr_object_close(s.o, NULL); /* opened for reading only */
    }
    r->read_ns += s.io_ns;
    free(s.buf);
    return rc;
}

/* Every file is read by one rank, also when the job has another size than the one that saved. */
static int load_mine(struct engine *e, uint64_t step, uint32_t shift, struct mr_checkpoint_result *r,
                     struct mr_error *err)
{
    struct marker m;
    int rc = step == UINT64_MAX ? engine_newest(&e->base, &step, err) : 0;
    if (rc == 0)
        rc = read_marker(e, step, &m, err);
    if (rc == 0)
        return mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint of step %" PRIu64 " in '%s'", step,
                              e->folder);
    uint32_t mine = (uint32_t)(((uint64_t)e->p.rank + shift) % e->p.world);
    for (uint64_t k = mine; rc == 1 && k < m.world; k += e->p.world) {
        int one = read_share(e, &m, (uint32_t)k, r, err);
        rc = one ? one : 1;
    }
    snprintf(r->path, sizeof(r->path), "%.900s/step-%" PRIu64 ".done", e->folder, step);
    return rc < 0 ? rc : 0;
}

static int engine_load(struct mr_checkpointer *c, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                       struct mr_error *err)
{
    struct engine *e = (struct engine *)c;
    struct mr_checkpoint_result r = {0};
    uint64_t start = now_ns();
    int rc = agree(e, load_mine(e, step, shift, &r, err), err);
    if (rc < 0)
        return rc;
    r.duration_ns = now_ns() - start;
    *out = r;
    return 0;
}

static const struct mr_checkpoint_engine_ops rank_files = {
    .abi = MR_CHECKPOINT_ENGINE_ABI,
    .size = sizeof(struct mr_checkpoint_engine_ops),
    .name = "rank-files",
    .doc = "One file per rank and a marker: the checkpoint engine to copy for a plug-in.",
    .open = engine_open,
    .close = engine_close,
    .save = engine_save,
    .load = engine_load,
    .newest = engine_newest,
    .recover = mr_checkpoint_no_recover,
    .drain = mr_checkpoint_no_drain,
    .buffered = mr_checkpoint_no_buffered,
    .drains = mr_checkpoint_no_drains,
};

MR_PLUGIN_DEFINE({MR_PLUGIN_CHECKPOINT, &rank_files});
