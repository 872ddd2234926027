/* The synchronous checkpoint engine: see <millrace/checkpoint.h> for the contract.
 *
 * Invariants: C1 a folder step-N exists only when every file that its checkpoint.json lists is complete (and durable, with fsync).
 * C2 a failed save leaves all earlier checkpoints as they were and removes what it began. C3 memory is threads x buffer_bytes.
 * C4 all ranks return the same verdict: each phase ends with an agreement. */
#include <millrace/checkpoint.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/content.h"
#include "base/workers.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define LIST_NAME "checkpoint.json"
#define LIST_MAX_BYTES (256 * MR_MIB)
#define BUFFER_DEFAULT (4 * MR_MIB)
#define PATH_MAX_BYTES 2048

struct mr_checkpointer {
    struct mr_checkpoint_params p;
    char *folder;
    struct mr_store *store;
};

/* What is known of a written file. */
struct entry {
    char name[192];
    uint64_t bytes, hash;
};

/* One save or load in progress, shared by its writer threads. */
struct job {
    struct mr_checkpointer *c;
    const char *dir;
    uint64_t step;
    struct entry *entries;
    uint8_t **buffers; /* per thread */
    _Atomic uint64_t io_ns, fsync_ns;
};

int mr_checkpointer_open(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err)
{
    if (!p->folder || !*p->folder || p->world == 0 || p->rank >= p->world)
        return mr_error_plain(err, MR_E_USAGE, "a checkpointer needs a folder and a rank below its world");
    if (p->world > 1 && !p->agree)
        return mr_error_plain(err, MR_E_USAGE, "several ranks need a way to agree");
    struct mr_checkpointer *c = calloc(1, sizeof(*c));
    if (!c)
        return mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    c->p = *p;
    c->p.threads = p->threads ? p->threads : 1;
    c->p.buffer_bytes = MR_ALIGN_UP(p->buffer_bytes ? p->buffer_bytes : BUFFER_DEFAULT, 4096u);
    c->folder = strdup(p->folder);
    int rc = c->folder ? mr_store_open(p->store && *p->store ? p->store : "posix", &c->store, err)
                       : mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    if (rc) {
        mr_checkpointer_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void mr_checkpointer_close(struct mr_checkpointer *c)
{
    if (!c)
        return;
    mr_store_close(c->store);
    free(c->folder);
    free(c);
}

static int agree(struct mr_checkpointer *c, int code, struct mr_error *err)
{
    return c->p.agree ? c->p.agree(c->p.user, code, err) : code;
}

static void step_dir(const struct mr_checkpointer *c, uint64_t step, bool tmp, char out[PATH_MAX_BYTES])
{
    snprintf(out, PATH_MAX_BYTES, "%s/step-%012" PRIu64 "%s", c->folder, step, tmp ? ".tmp" : "");
}

/* ---- removing ---- */

struct names {
    struct mr_arena arena;
    const char **item;
    size_t n, cap;
};

static int collect_name(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct names *l = user;
    (void)is_dir;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        const char **item = realloc(l->item, cap * sizeof(*item));
        if (!item)
            return mr_error_set(err, -ENOMEM, "listing checkpoints");
        l->item = item;
        l->cap = cap;
    }
    const char *copy = mr_arena_strdup(&l->arena, name);
    if (!copy)
        return mr_error_set(err, -ENOMEM, "listing checkpoints");
    l->item[l->n++] = copy;
    return 0;
}

static void names_done(struct names *l)
{
    free(l->item);
    mr_arena_done(&l->arena);
}

/* Removes a folder of files; a missing one is fine. checkpoint.json goes first, so that a half-removed one is no checkpoint. */
static int remove_dir(struct mr_store *s, const char *dir, struct mr_error *err)
{
    struct names l = {0};
    char path[PATH_MAX_BYTES + 256];
    struct mr_error scratch;
    int rc = s->ops->list(s, dir, collect_name, &l, &scratch);
    if (rc == -ENOENT) {
        names_done(&l);
        return 0;
    }
    snprintf(path, sizeof path, "%s/" LIST_NAME, dir);
    s->ops->unlink(s, path, NULL);
    for (size_t i = 0; rc >= 0 && i < l.n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, l.item[i]);
        if (strcmp(l.item[i], LIST_NAME) != 0)
            rc = s->ops->unlink(s, path, &scratch);
    }
    names_done(&l);
    if (rc >= 0)
        rc = s->ops->unlink(s, dir, &scratch);
    if (rc < 0 && err)
        *err = scratch;
    return rc < 0 ? rc : 0;
}

/* ---- files ---- */

static void fill(const struct mr_checkpointer *c, uint64_t key, uint64_t offset, uint8_t *buf, size_t len)
{
    struct mr_content content = {.seed = c->p.seed, .compress_percent = c->p.random_content ? 0 : 100};
    mr_content_fill(&content, key, offset, buf, len);
}

static int write_file(struct job *j, struct entry *e, uint64_t key, uint8_t *buf, struct mr_object *o, struct mr_error *err)
{
    const struct mr_checkpointer *c = j->c;
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return mr_error_set(err, -ENOMEM, "checksumming");
    XXH3_64bits_reset(hash);
    int rc = o->store->ops->allocate(o, e->bytes, err);
    for (uint64_t at = 0; rc >= 0 && at < e->bytes;) {
        size_t n = (size_t)MR_MIN(c->p.buffer_bytes, e->bytes - at);
        fill(c, key, at, buf, n);
        XXH3_64bits_update(hash, buf, n);
        uint64_t start = mr_now_ns();
        rc = mr_object_write(o, buf, n, at, err);
        atomic_fetch_add(&j->io_ns, mr_now_ns() - start);
        at += n;
    }
    e->hash = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    if (rc >= 0 && c->p.fsync) {
        uint64_t start = mr_now_ns();
        rc = o->store->ops->fsync(o, err);
        atomic_fetch_add(&j->fsync_ns, mr_now_ns() - start);
    }
    return rc < 0 ? rc : 0;
}

static int save_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct job *j = ctx->user;
    struct entry *e = &j->entries[index];
    struct mr_object *o;
    char path[PATH_MAX_BYTES + 256];
    snprintf(path, sizeof path, "%s/%s", j->dir, e->name);
    unsigned flags = MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE | (j->c->p.direct ? MR_OBJ_DIRECT : 0);
    int rc = mr_object_open(j->c->store, path, flags, &o, err);
    if (rc)
        return rc;
    uint64_t key = j->step << 32 ^ (uint64_t)j->c->p.rank << 20 ^ index;
    rc = write_file(j, e, key, j->buffers[ctx->thread], o, err);
    int closed = mr_object_close(o, rc ? NULL : err);
    return rc ? rc : closed;
}

static int load_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct job *j = ctx->user;
    const struct entry *e = &j->entries[index];
    uint8_t *buf = j->buffers[ctx->thread];
    struct mr_object *o;
    uint64_t size;
    char path[PATH_MAX_BYTES + 256];
    snprintf(path, sizeof path, "%s/%s", j->dir, e->name);
    int rc = mr_object_open(j->c->store, path, MR_OBJ_READ | (j->c->p.direct ? MR_OBJ_DIRECT : 0), &o, err);
    if (rc)
        return rc;
    XXH3_state_t *hash = XXH3_createState();
    rc = hash ? mr_object_size(o, &size, err) : mr_error_set(err, -ENOMEM, "checksumming");
    if (rc >= 0 && size != e->bytes)
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' has %" PRIu64 " bytes, the checkpoint says %" PRIu64, path, size, e->bytes);
    if (hash)
        XXH3_64bits_reset(hash);
    for (uint64_t at = 0; rc >= 0 && at < e->bytes;) {
        size_t n = (size_t)MR_MIN(j->c->p.buffer_bytes, e->bytes - at);
        uint64_t start = mr_now_ns();
        rc = mr_object_read(o, buf, n, at, err);
        atomic_fetch_add(&j->io_ns, mr_now_ns() - start);
        XXH3_64bits_update(hash, buf, n);
        at += n;
    }
    if (rc >= 0 && XXH3_64bits_digest(hash) != e->hash) {
        mr_error_plain(err, MR_E_CORRUPT, "'%s' does not match its checksum", path);
        rc = mr_error_hint(err, "use an older checkpoint");
    }
    XXH3_freeState(hash);
    mr_object_close(o, NULL);
    return rc < 0 ? rc : 0;
}

/* Runs fn over the job's entries with a buffer per thread. */
static int run_job(struct job *j, uint64_t n, mr_work_fn *fn, struct mr_error *err)
{
    unsigned threads = (unsigned)MR_MIN((uint64_t)j->c->p.threads, MR_MAX(n, 1u));
    j->buffers = calloc(threads, sizeof(*j->buffers));
    int rc = j->buffers ? 0 : -ENOMEM;
    for (unsigned i = 0; i < threads && !rc; i++)
        if (!(j->buffers[i] = aligned_alloc(4096, j->c->p.buffer_bytes)))
            rc = -ENOMEM;
    if (rc)
        mr_error_set(err, rc, "cannot get %u buffers of %" PRIu64 " bytes", threads, j->c->p.buffer_bytes);
    else
        rc = mr_workers_run(threads, n, 1, fn, j, NULL, err);
    for (unsigned i = 0; j->buffers && i < threads; i++)
        free(j->buffers[i]);
    free(j->buffers);
    return rc;
}

/* ---- lists ---- */

static json_t *entries_json(const struct job *j, uint64_t n)
{
    json_t *files = json_array();
    for (uint64_t i = 0; i < n; i++) {
        char hash[24];
        snprintf(hash, sizeof hash, "%016" PRIx64, j->entries[i].hash);
        json_array_append_new(files, json_pack("{s:s, s:I, s:s, s:I}", "name", j->entries[i].name, "bytes",
                                               (json_int_t)j->entries[i].bytes, "xxh3", hash, "rank", (json_int_t)j->c->p.rank));
    }
    return files;
}

static int write_json(struct mr_checkpointer *c, const char *path, json_t *root, struct mr_error *err)
{
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    int rc;
    if (c->p.fsync) {
        rc = mr_store_write_file(c->store, path, text, strlen(text), err);
    } else {
        struct mr_object *o;
        rc = mr_object_open(c->store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, err);
        if (!rc) {
            rc = mr_object_write(o, text, strlen(text), 0, err);
            int closed = mr_object_close(o, rc ? NULL : err);
            rc = rc ? rc : closed;
        }
    }
    free(text);
    return rc;
}

static int read_json(struct mr_checkpointer *c, const char *path, json_t **out, struct mr_error *err)
{
    void *data;
    size_t len;
    int rc = mr_store_read_file(c->store, path, LIST_MAX_BYTES, &data, &len, err);
    if (rc < 0)
        return rc;
    json_error_t why;
    json_t *root = json_loadb(data, len, JSON_REJECT_DUPLICATES, &why);
    free(data);
    if (!root)
        return mr_error_plain(err, MR_E_CORRUPT, "'%s' is not JSON: %s (line %d)", path, why.text, why.line);
    *out = root;
    return 0;
}

static void part_path(const char *dir, uint32_t rank, char out[PATH_MAX_BYTES + 256])
{
    snprintf(out, PATH_MAX_BYTES + 256, "%s/rank-%05u.part", dir, rank);
}

/* Rank 0: joins the ranks' lists into checkpoint.json. */
static int join_lists(struct job *j, struct mr_error *err)
{
    struct mr_checkpointer *c = j->c;
    char path[PATH_MAX_BYTES + 256];
    json_t *all = json_array();
    int rc = all ? 0 : mr_error_set(err, -ENOMEM, "joining lists");
    for (uint32_t r = 0; r < c->p.world && !rc; r++) {
        json_t *part;
        part_path(j->dir, r, path);
        rc = read_json(c, path, &part, err);
        if (rc)
            break;
        json_array_extend(all, part);
        json_decref(part);
        c->store->ops->unlink(c->store, path, NULL);
    }
    if (rc) {
        json_decref(all);
        return rc;
    }
    snprintf(path, sizeof path, "%s/" LIST_NAME, j->dir);
    return write_json(c, path, json_pack("{s:s, s:I, s:I, s:b, s:o}", "schema", "millrace.checkpoint/1", "step",
                                         (json_int_t)j->step, "world", (json_int_t)c->p.world, "fsync", (int)c->p.fsync, "files", all), err);
}

/* ---- save ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_checkpoint_name(const char *name, uint64_t *step)
{
    char tail;
    return sscanf(name, "step-%" SCNu64 "%c", step, &tail) == 1;
}

/* Steps of the complete checkpoints, ascending. */
static int list_steps(struct mr_checkpointer *c, struct names *l, struct mr_error *err)
{
    int rc = c->store->ops->list(c->store, c->folder, collect_name, l, err);
    if (rc < 0)
        return rc;
    size_t n = 0;
    uint64_t step;
    for (size_t i = 0; i < l->n; i++)
        if (is_checkpoint_name(l->item[i], &step))
            l->item[n++] = l->item[i];
    l->n = n;
    qsort(l->item, n, sizeof(*l->item), compare_names);
    return 0;
}

static int retire_old(struct mr_checkpointer *c, struct mr_error *err)
{
    struct names l = {0};
    char dir[PATH_MAX_BYTES];
    int rc = list_steps(c, &l, err);
    for (size_t i = 0; !rc && i + c->p.keep_last < l.n; i++) {
        snprintf(dir, sizeof dir, "%s/%s", c->folder, l.item[i]);
        rc = remove_dir(c->store, dir, err);
    }
    names_done(&l);
    return rc;
}

static int publish(struct job *j, const char *final, struct mr_error *err)
{
    struct mr_checkpointer *c = j->c;
    const struct mr_store_ops *ops = c->store->ops;
    int rc = join_lists(j, err);
    if (!rc && c->p.fsync)
        rc = ops->sync_dir(c->store, j->dir, err);
    if (!rc)
        rc = remove_dir(c->store, final, err); /* the same step saved before */
    if (!rc)
        rc = ops->rename(c->store, j->dir, final, err);
    if (!rc && c->p.fsync)
        rc = ops->sync_dir(c->store, c->folder, err);
    if (!rc && c->p.keep_last)
        rc = retire_old(c, err);
    return rc;
}

static int begin(struct mr_checkpointer *c, const char *dir, struct mr_error *err)
{
    int rc = mr_store_mkdirs(c->store, c->folder, err);
    if (!rc)
        rc = remove_dir(c->store, dir, err);
    return rc ? rc : c->store->ops->mkdir(c->store, dir, err);
}

int mr_checkpoint_save(struct mr_checkpointer *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                       struct mr_checkpoint_result *out, struct mr_error *err)
{
    char tmp[PATH_MAX_BYTES], final[PATH_MAX_BYTES], part[PATH_MAX_BYTES + 256];
    struct job j = {.c = c, .dir = tmp, .step = step};
    uint64_t start = mr_now_ns(), bytes = 0;
    step_dir(c, step, true, tmp);
    step_dir(c, step, false, final);
    int rc = agree(c, c->p.rank == 0 ? begin(c, tmp, err) : 0, err);
    if (rc)
        return rc;
    j.entries = calloc(MR_MAX(n, 1u), sizeof(*j.entries));
    if (!j.entries)
        rc = mr_error_set(err, -ENOMEM, "cannot list %" PRIu64 " files", n);
    for (uint64_t i = 0; i < n && !rc; i++) {
        memcpy(j.entries[i].name, files[i].name, sizeof j.entries[i].name);
        j.entries[i].bytes = files[i].bytes;
        bytes += files[i].bytes;
    }
    if (!rc)
        rc = run_job(&j, n, save_one, err);
    if (!rc) {
        part_path(tmp, c->p.rank, part);
        rc = write_json(c, part, entries_json(&j, n), err);
    }
    rc = agree(c, rc, err);
    if (!rc)
        rc = agree(c, c->p.rank == 0 ? publish(&j, final, err) : 0, err);
    if (rc && c->p.rank == 0)
        remove_dir(c->store, tmp, NULL); /* C2; the error that matters is already reported */
    free(j.entries);
    if (rc)
        return rc;
    *out = (struct mr_checkpoint_result){.bytes = bytes, .files = n, .duration_ns = mr_now_ns() - start,
                                         .write_ns = atomic_load(&j.io_ns), .fsync_ns = atomic_load(&j.fsync_ns)};
    snprintf(out->path, sizeof out->path, "%.*s", (int)sizeof out->path - 1, final);
    return 0;
}

/* ---- load ---- */

int mr_checkpoint_newest(struct mr_checkpointer *c, uint64_t *step, struct mr_error *err)
{
    struct names l = {0};
    struct mr_error why;
    int rc = list_steps(c, &l, &why);
    bool found = !rc && l.n > 0 && is_checkpoint_name(l.item[l.n - 1], step);
    names_done(&l);
    if (rc < 0 && rc != -ENOENT) {
        if (err)
            *err = why;
        return rc;
    }
    return found ? 0 : mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint in '%s'", c->folder);
}

/* Takes the entries of one rank out of checkpoint.json. */
static int pick_entries(json_t *root, const char *path, uint32_t rank, struct job *j, uint64_t *n, struct mr_error *err)
{
    json_t *files = json_object_get(root, "files"), *file;
    size_t i;
    j->entries = calloc(MR_MAX(json_array_size(files), 1u), sizeof(*j->entries));
    if (!j->entries)
        return mr_error_set(err, -ENOMEM, "reading '%s'", path);
    *n = 0;
    json_array_foreach(files, i, file) {
        const char *name, *hash;
        json_int_t bytes, owner;
        if (json_unpack(file, "{s:s, s:I, s:s, s:I}", "name", &name, "bytes", &bytes, "xxh3", &hash, "rank", &owner) || bytes < 0 ||
            strlen(name) >= sizeof j->entries[0].name || strchr(name, '/') || name[0] == '.')
            return mr_error_plain(err, MR_E_CORRUPT, "'%s': bad entry %zu", path, i);
        if ((uint32_t)owner != rank)
            continue;
        struct entry *e = &j->entries[(*n)++];
        snprintf(e->name, sizeof e->name, "%s", name);
        e->bytes = (uint64_t)bytes;
        e->hash = strtoull(hash, NULL, 16);
    }
    return 0;
}

static int load_share(struct mr_checkpointer *c, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out, struct mr_error *err)
{
    char dir[PATH_MAX_BYTES], path[PATH_MAX_BYTES + 256];
    struct job j = {.c = c, .dir = dir};
    json_t *root = NULL;
    uint64_t n = 0, start = mr_now_ns();
    int rc = step == UINT64_MAX ? mr_checkpoint_newest(c, &step, err) : 0;
    if (rc)
        return rc;
    step_dir(c, step, false, dir);
    snprintf(path, sizeof path, "%s/" LIST_NAME, dir);
    rc = read_json(c, path, &root, err);
    if (!rc)
        rc = pick_entries(root, path, (c->p.rank + shift) % c->p.world, &j, &n, err);
    json_decref(root);
    if (!rc)
        rc = run_job(&j, n, load_one, err);
    struct mr_checkpoint_result r = {.files = n, .read_ns = atomic_load(&j.io_ns), .duration_ns = mr_now_ns() - start};
    for (uint64_t i = 0; i < n; i++)
        r.bytes += j.entries[i].bytes;
    free(j.entries);
    snprintf(r.path, sizeof r.path, "%.*s", (int)sizeof r.path - 1, dir);
    if (!rc)
        *out = r;
    return rc;
}

int mr_checkpoint_load(struct mr_checkpointer *c, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                       struct mr_error *err)
{
    return agree(c, load_share(c, step, shift, out, err), err);
}
