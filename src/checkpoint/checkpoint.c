/* The synchronous checkpoint engine: see <millrace/checkpoint.h> for the contract and README.md for the invariants C1
 * to C6 that the comments refer to.
 *
 *   begin (leader)   clear what a killed save left, make step-N.tmp
 *   write (all)      files through one buffer per thread; a part list per rank
 *   publish (leader) join the lists, make all durable, rename, retire older ones
 *
 * Between the phases the ranks agree. The leader is rank 0, and every rank where the store is private to its process
 * (memory, null): there each rank keeps a checkpoint of its own. */
#include <millrace/checkpoint.h>

#include "base/clock.h"
#include "base/common.h"
#include "base/content.h"
#include "base/workers.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_list.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define LIST_MAX_BYTES (64 * MR_MIB)
#define BUFFER_DEFAULT (4 * MR_MIB)
#define BUFFER_MAX MR_GIB
#define THREADS_MAX 1024
#define HASH_BLOCK (4 * MR_CONTENT_BLOCK)
#define FILE_PATH (MR_CHECKPOINT_PATH + 256)

struct mr_checkpointer {
    struct mr_checkpoint_params p;
    char *folder;
    struct mr_store *store;
    bool shared; /* all ranks see one store */
    bool lead;
};

/* One save or load in progress, shared by its threads: each entry has one writer, the counters are atomic. */
struct job {
    struct mr_checkpointer *c;
    const char *dir;
    struct mr_checkpoint_list list; /* this rank's share */
    uint8_t **buffers;              /* per thread */
    _Atomic uint64_t io_ns, fsync_ns;
};

static int check_params(const struct mr_checkpoint_params *p, struct mr_error *err)
{
    if (!p->folder || !*p->folder || p->world == 0 || p->rank >= p->world)
        return mr_error_plain(err, MR_E_USAGE, "a checkpointer needs a folder and a rank below its world");
    if (strlen(p->folder) > MR_CHECKPOINT_FOLDER_MAX)
        return mr_error_plain(err, MR_E_USAGE, "the checkpoint folder's path has %zu bytes, more than %d",
                              strlen(p->folder), MR_CHECKPOINT_FOLDER_MAX);
    if (p->world > 1 && !p->agree)
        return mr_error_plain(err, MR_E_USAGE, "a checkpointer of %u ranks needs a way to agree", p->world);
    if (p->threads > THREADS_MAX || p->buffer_bytes > BUFFER_MAX)
        return mr_error_plain(err, MR_E_USAGE,
                              "a checkpointer takes up to %d threads and %" PRIu64
                              " bytes of buffer, not %u and %" PRIu64,
                              THREADS_MAX, BUFFER_MAX, p->threads, p->buffer_bytes);
    return 0;
}

int mr_checkpointer_open(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err)
{
    int rc = check_params(p, err);
    if (rc)
        return rc;
    struct mr_checkpointer *c = calloc(1, sizeof(*c));
    if (!c)
        return mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    c->p = *p;
    c->p.folder = c->p.store = NULL; /* the caller's */
    c->p.threads = p->threads ? p->threads : 1;
    c->p.buffer_bytes = MR_ALIGN_UP(p->buffer_bytes ? p->buffer_bytes : BUFFER_DEFAULT, 4096u);
    c->folder = strdup(p->folder);
    rc = c->folder ? mr_store_open(p->store && *p->store ? p->store : "posix", &c->store, err)
                   : mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    if (rc) {
        mr_checkpointer_close(c);
        return rc;
    }
    c->shared = mr_store_caps(c->store) & MR_STORE_CAP_PERSISTENT;
    c->lead = p->rank == 0 || !c->shared;
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

static int check_stop(const struct job *j, struct mr_error *err)
{
    return j->c->p.stopped && j->c->p.stopped(j->c->p.user)
               ? mr_error_plain(err, MR_E_INTERRUPTED, "interrupted in the checkpoint '%s'", j->dir)
               : 0;
}

/* ---- files ---- */

/* Content depends on (seed, step, name) only, so that any reader could recompute it. */
static uint64_t content_key(const struct job *j, const struct mr_checkpoint_entry *e)
{
    return XXH3_64bits_withSeed(e->name, strlen(e->name), j->list.step);
}

/* Fills and hashes block by block, so that the hash finds the bytes in the cache. Constant content is zeros, which the
 * buffer holds from the start (run_job) and nobody else writes to. */
static void make_piece(const struct job *j, uint64_t key, uint64_t at, uint8_t *buf, size_t len, XXH3_state_t *hash)
{
    const struct mr_content content = {.seed = j->c->p.seed};
    for (size_t done = 0; done < len;) {
        size_t n = MR_MIN((size_t)HASH_BLOCK, len - done);
        if (j->c->p.random_content)
            mr_content_fill(&content, key, at + done, buf + done, n);
        XXH3_64bits_update(hash, buf + done, n);
        done += n;
    }
}

static int write_pieces(struct job *j, struct mr_checkpoint_entry *e, uint8_t *buf, struct mr_object *o,
                        XXH3_state_t *hash, struct mr_error *err)
{
    const struct mr_checkpoint_params *p = &j->c->p;
    uint64_t key = content_key(j, e);
    for (uint64_t at = 0; at < e->bytes;) {
        size_t n = (size_t)MR_MIN(p->buffer_bytes, e->bytes - at);
        int rc = check_stop(j, err);
        if (rc)
            return rc;
        make_piece(j, key, at, buf, n, hash);
        uint64_t start = mr_now_ns();
        rc = mr_object_write(o, buf, n, at, err);
        atomic_fetch_add(&j->io_ns, mr_now_ns() - start);
        if (rc < 0)
            return rc;
        at += n;
    }
    e->hash = XXH3_64bits_digest(hash);
    return 0;
}

static int sync_file(struct job *j, struct mr_object *o, struct mr_error *err)
{
    if (!j->c->p.fsync)
        return 0;
    uint64_t start = mr_now_ns();
    int rc = o->store->ops->fsync(o, err);
    atomic_fetch_add(&j->fsync_ns, mr_now_ns() - start);
    return rc;
}

static int save_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct job *j = ctx->user;
    struct mr_checkpoint_entry *e = &j->list.items[index];
    struct mr_object *o = NULL;
    char path[FILE_PATH];
    snprintf(path, sizeof path, "%s/%s", j->dir, e->name);
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return mr_error_set(err, -ENOMEM, "cannot checksum '%s'", path);
    XXH3_64bits_reset(hash);
    /* Exclusive: the folder is new, so a file that exists is another rank's of the same name. */
    unsigned flags = MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE | (j->c->p.direct ? MR_OBJ_DIRECT : 0);
    int rc = mr_object_open(j->c->store, path, flags, &o, err);
    if (rc == -EEXIST)
        rc = mr_error_plain(err, MR_E_USAGE, "two ranks write a checkpoint file named '%s'", e->name);
    if (!rc)
        rc = o->store->ops->allocate(o, e->bytes, err);
    if (!rc)
        rc = write_pieces(j, e, j->buffers[ctx->thread], o, hash, err);
    if (!rc)
        rc = sync_file(j, o, err);
    int closed = mr_object_close(o, rc ? NULL : err);
    XXH3_freeState(hash);
    return rc ? rc : closed;
}

static int read_pieces(struct job *j, const struct mr_checkpoint_entry *e, uint8_t *buf, struct mr_object *o,
                       XXH3_state_t *hash, struct mr_error *err)
{
    uint64_t size;
    int rc = mr_object_size(o, &size, err);
    if (!rc && size != e->bytes)
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' has %" PRIu64 " bytes, the checkpoint's list says %" PRIu64,
                            o->path, size, e->bytes);
    for (uint64_t at = 0; !rc && at < e->bytes;) {
        size_t n = (size_t)MR_MIN(j->c->p.buffer_bytes, e->bytes - at);
        rc = check_stop(j, err);
        if (rc)
            break;
        uint64_t start = mr_now_ns();
        rc = mr_object_read(o, buf, n, at, err);
        atomic_fetch_add(&j->io_ns, mr_now_ns() - start);
        if (!rc)
            XXH3_64bits_update(hash, buf, n);
        at += n;
    }
    uint64_t have = XXH3_64bits_digest(hash);
    if (!rc && have != e->hash)
        rc =
            mr_error_plain(err, MR_E_CORRUPT, "'%s' does not match its checksum: want %016" PRIx64 ", have %016" PRIx64,
                           o->path, e->hash, have);
    if (rc == MR_E_CORRUPT)
        mr_error_hint(err, "load an older checkpoint");
    return rc;
}

static int load_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct job *j = ctx->user;
    const struct mr_checkpoint_entry *e = &j->list.items[index];
    struct mr_object *o;
    char path[FILE_PATH];
    snprintf(path, sizeof path, "%s/%s", j->dir, e->name);
    int rc = mr_object_open(j->c->store, path, MR_OBJ_READ | (j->c->p.direct ? MR_OBJ_DIRECT : 0), &o, err);
    if (rc == -ENOENT) {
        mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing: the checkpoint's list names it with %" PRIu64 " bytes",
                       path, e->bytes);
        mr_error_hint(err, "load an older checkpoint");
        return MR_E_CORRUPT;
    }
    if (rc)
        return rc;
    XXH3_state_t *hash = XXH3_createState();
    if (hash) {
        XXH3_64bits_reset(hash);
        rc = read_pieces(j, e, j->buffers[ctx->thread], o, hash, err);
    } else {
        rc = mr_error_set(err, -ENOMEM, "cannot checksum '%s'", path);
    }
    XXH3_freeState(hash);
    mr_object_close(o, NULL); /* opened for reading only */
    return rc;
}

/* Runs fn over the share with a buffer per thread (C3). */
static int run_job(struct job *j, mr_work_fn *fn, struct mr_error *err)
{
    if (j->list.n == 0)
        return 0;
    unsigned threads = (unsigned)MR_MIN((uint64_t)j->c->p.threads, j->list.n);
    j->buffers = calloc(threads, sizeof(*j->buffers));
    int rc = j->buffers ? 0 : -ENOMEM;
    for (unsigned i = 0; i < threads && !rc; i++)
        if ((j->buffers[i] = aligned_alloc(4096, j->c->p.buffer_bytes)))
            memset(j->buffers[i], 0, j->c->p.buffer_bytes);
        else
            rc = -ENOMEM;
    if (rc)
        mr_error_set(err, rc, "cannot get %u buffers of %" PRIu64 " bytes", threads, j->c->p.buffer_bytes);
    else
        rc = mr_workers_run(threads, j->list.n, 1, fn, j, NULL, err);
    for (unsigned i = 0; j->buffers && i < threads; i++)
        free(j->buffers[i]);
    free(j->buffers);
    j->buffers = NULL;
    return rc;
}

/* ---- lists ---- */

static int write_list(struct job *j, const char *path, const struct mr_checkpoint_list *l, bool durable,
                      struct mr_error *err)
{
    char *text;
    struct mr_object *o = NULL;
    int rc = mr_checkpoint_list_encode(l, &text, err);
    if (rc)
        return rc;
    rc = mr_object_open(j->c->store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, err);
    if (!rc)
        rc = mr_object_write(o, text, strlen(text), 0, err);
    if (!rc && durable)
        rc = sync_file(j, o, err);
    int closed = mr_object_close(o, rc ? NULL : err);
    free(text);
    return rc ? rc : closed;
}

static int read_list(struct mr_checkpointer *c, const char *path, struct mr_checkpoint_list *out, struct mr_error *err)
{
    void *data;
    size_t len;
    int rc = mr_store_read_file(c->store, path, LIST_MAX_BYTES, &data, &len, err);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_list_parse(data, len, path, out, err);
    free(data);
    return rc;
}

static void part_path(const char *dir, uint32_t rank, char out[FILE_PATH])
{
    snprintf(out, FILE_PATH, "%s/rank-%05u.part", dir, rank);
}

/* Leader: its own list and those of the others become checkpoint.json. The parts only carry the lists to here. */
static int join_lists(struct job *j, struct mr_error *err)
{
    struct mr_checkpointer *c = j->c;
    char path[FILE_PATH];
    struct mr_checkpoint_list all = {.step = j->list.step, .world = j->list.world, .fsync = j->list.fsync};
    int rc = mr_checkpoint_list_append(&all, &j->list, err);
    for (uint32_t r = 1; c->shared && r < c->p.world && !rc; r++) {
        struct mr_checkpoint_list part;
        part_path(j->dir, r, path);
        rc = read_list(c, path, &part, err);
        if (rc)
            break;
        rc = mr_checkpoint_list_append(&all, &part, err);
        mr_checkpoint_list_done(&part);
        if (!rc)
            rc = c->store->ops->unlink(c->store, path, err);
    }
    if (!rc)
        rc = mr_checkpoint_list_check(&all, err);
    snprintf(path, sizeof path, "%s/" MR_CHECKPOINT_LIST_NAME, j->dir);
    if (!rc)
        rc = write_list(j, path, &all, true, err);
    mr_checkpoint_list_done(&all);
    return rc;
}

/* ---- save ---- */

/* Removes all but the newest keep_last; the one just saved stays even if its step is lower than others'. */
static int retire_older(struct mr_checkpointer *c, uint64_t just_saved, struct mr_error *err)
{
    struct mr_checkpoint_dirs d;
    int rc = mr_checkpoint_dirs_read(c->store, c->folder, &d, err);
    if (rc)
        return rc;
    unsigned kept = 0;
    for (size_t i = d.n; i-- > 0 && !rc;)
        if (mr_checkpoint_dirs_usable(&d, i) && ++kept > c->p.keep_last && d.item[i].step != just_saved)
            rc = mr_checkpoint_retire(c->store, c->folder, d.item[i].step, err);
    mr_checkpoint_dirs_done(&d);
    if (rc && err)
        mr_error_context(err, "removing older checkpoints; the new one of step %" PRIu64 " is complete", just_saved);
    return rc;
}

/* step-N.tmp becomes step-N. One that is there already steps aside first and comes back if the renaming fails, so a
 * complete copy exists at every moment (C1, C2). */
static int swap_in(struct mr_checkpointer *c, const char *tmp, const char *final, const char *old, struct mr_error *err)
{
    const struct mr_store_ops *ops = c->store->ops;
    struct mr_store_stat st;
    bool replaces = ops->stat(c->store, final, &st, NULL) == 0;
    int rc = replaces ? ops->rename(c->store, final, old, err) : 0;
    if (rc)
        return rc;
    rc = ops->rename(c->store, tmp, final, err);
    if (rc && replaces)
        ops->rename(c->store, old, final, NULL); /* if this fails as well, readers and the next save find the old one */
    if (!rc && c->p.fsync)
        rc = ops->sync_dir(c->store, c->folder, err);
    if (!rc && replaces)
        rc = mr_checkpoint_dir_remove(c->store, old, err);
    return rc;
}

static int publish(struct job *j, const char *final, struct mr_error *err)
{
    struct mr_checkpointer *c = j->c;
    char old[MR_CHECKPOINT_PATH];
    mr_checkpoint_dir_path(c->folder, j->list.step, MR_CHECKPOINT_OLD, old);
    int rc = join_lists(j, err);
    if (!rc && c->p.fsync)
        rc = c->store->ops->sync_dir(c->store, j->dir, err);
    if (!rc)
        rc = swap_in(c, j->dir, final, old, err);
    if (!rc && c->p.keep_last)
        rc = retire_older(c, j->list.step, err);
    return rc;
}

/* The folder itself must outlive a crash, too: its name lies in its parent. */
static int sync_parent(struct mr_checkpointer *c, struct mr_error *err)
{
    char parent[MR_CHECKPOINT_PATH];
    snprintf(parent, sizeof parent, "%s", c->folder);
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/')
        parent[--n] = '\0';
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    return c->store->ops->sync_dir(c->store, slash ? parent : ".", err);
}

static int begin(struct mr_checkpointer *c, const char *tmp, struct mr_error *err)
{
    struct mr_store_stat st;
    bool is_new = c->store->ops->stat(c->store, c->folder, &st, NULL) != 0;
    int rc = mr_store_mkdirs(c->store, c->folder, err);
    if (!rc && is_new && c->p.fsync)
        rc = sync_parent(c, err);
    if (!rc)
        rc = mr_checkpoint_folder_repair(c->store, c->folder, err);
    return rc ? rc : c->store->ops->mkdir(c->store, tmp, err);
}

/* Fills the share of this rank from the caller's files. */
static int take_files(struct job *j, const struct mr_checkpoint_file *files, uint64_t n, struct mr_error *err)
{
    if (j->list.step > MR_CHECKPOINT_STEP_MAX)
        return mr_error_plain(err, MR_E_USAGE, "step %" PRIu64 " is too large to name a checkpoint", j->list.step);
    j->list.items = calloc(MR_MAX(n, 1u), sizeof(*j->list.items));
    if (!j->list.items)
        return mr_error_set(err, -ENOMEM, "cannot list %" PRIu64 " files", n);
    for (uint64_t i = 0; i < n; i++) {
        int rc = mr_checkpoint_name_check(files[i].name, sizeof files[i].name, err);
        if (rc)
            return rc;
        if (files[i].bytes > INT64_MAX)
            return mr_error_plain(err, MR_E_USAGE, "checkpoint file '%s' of %" PRIu64 " bytes is too large",
                                  files[i].name, files[i].bytes);
        struct mr_checkpoint_entry *e = &j->list.items[j->list.n++];
        *e = (struct mr_checkpoint_entry){.bytes = files[i].bytes, .rank = j->c->p.rank};
        memcpy(e->name, files[i].name, strlen(files[i].name) + 1);
    }
    return mr_checkpoint_list_check(&j->list, err);
}

static int write_share(struct job *j, struct mr_error *err)
{
    struct mr_checkpointer *c = j->c;
    char part[FILE_PATH];
    int rc = run_job(j, save_one, err);
    if (rc || c->lead)
        return rc;
    part_path(j->dir, c->p.rank, part);
    return write_list(j, part, &j->list, false, err);
}

static struct mr_checkpoint_result result_of(const struct job *j, const char *path)
{
    struct mr_checkpoint_result r = {.files = j->list.n};
    for (size_t i = 0; i < j->list.n; i++)
        r.bytes += j->list.items[i].bytes;
    snprintf(r.path, sizeof r.path, "%.*s", (int)sizeof r.path - 1, path);
    return r;
}

int mr_checkpoint_save(struct mr_checkpointer *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                       struct mr_checkpoint_result *out, struct mr_error *err)
{
    char tmp[MR_CHECKPOINT_PATH], final[MR_CHECKPOINT_PATH];
    struct job j = {.c = c, .dir = tmp, .list = {.step = step, .world = c->p.world, .fsync = c->p.fsync}};
    uint64_t start = mr_now_ns();
    mr_checkpoint_dir_path(c->folder, step, MR_CHECKPOINT_TMP, tmp);
    mr_checkpoint_dir_path(c->folder, step, MR_CHECKPOINT_COMPLETE, final);
    int rc = take_files(&j, files, n, err);
    bool begun = !rc && c->lead; /* nothing of ours is there before, so that a bad call removes nothing */
    if (begun)
        rc = begin(c, tmp, err);
    rc = agree(c, rc, err); /* C4, here and below */
    if (!rc)
        rc = agree(c, write_share(&j, err), err);
    if (!rc)
        rc = agree(c, c->lead ? publish(&j, final, err) : 0, err);
    if (rc && begun)
        mr_checkpoint_dir_remove(c->store, tmp, NULL); /* C2; the error that matters is already reported */
    if (!rc) {
        *out = result_of(&j, final);
        out->duration_ns = mr_now_ns() - start;
        out->write_ns = atomic_load(&j.io_ns);
        out->fsync_ns = atomic_load(&j.fsync_ns);
    }
    mr_checkpoint_list_done(&j.list);
    return rc;
}

/* ---- load ---- */

/* Finds the folder to read: the newest for step UINT64_MAX. */
static int locate(struct mr_checkpointer *c, uint64_t *step, char dir[MR_CHECKPOINT_PATH], struct mr_error *err)
{
    struct mr_checkpoint_dirs d = {0};
    struct mr_error why;
    int rc = mr_checkpoint_dirs_read(c->store, c->folder, &d, &why);
    if (rc < 0 && rc != -ENOENT) {
        if (err)
            *err = why;
        return rc;
    }
    size_t found = d.n;
    uint64_t newest = UINT64_MAX;
    for (size_t i = 0; i < d.n; i++)
        if (mr_checkpoint_dirs_usable(&d, i)) {
            newest = d.item[i].step;
            if (*step == UINT64_MAX || d.item[i].step == *step)
                found = i;
        }
    if (found < d.n) {
        mr_checkpoint_dir_path(c->folder, d.item[found].step, d.item[found].kind, dir);
        *step = d.item[found].step;
        rc = 0;
    } else if (*step == UINT64_MAX) {
        rc = mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint in '%s'%s", c->folder,
                            rc == -ENOENT ? ": the folder does not exist"
                            : d.n         ? ", only unfinished ones"
                                          : "");
    } else {
        rc = mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint of step %" PRIu64 " in '%s'", *step,
                            c->folder);
        if (newest != UINT64_MAX)
            mr_error_hint(err, "the newest is of step %" PRIu64, newest);
    }
    mr_checkpoint_dirs_done(&d);
    return rc;
}

int mr_checkpoint_newest(struct mr_checkpointer *c, uint64_t *step, struct mr_error *err)
{
    char dir[MR_CHECKPOINT_PATH];
    uint64_t found = UINT64_MAX;
    int rc = locate(c, &found, dir, err);
    if (!rc)
        *step = found;
    return rc;
}

/* Keeps what this rank reads. With as many ranks as saved that is one rank's share; with fewer or more, every file is
 * still read by exactly one rank (C5). */
static void keep_share(struct mr_checkpointer *c, uint32_t shift, struct mr_checkpoint_list *l)
{
    size_t n = 0;
    uint32_t mine = (uint32_t)(((uint64_t)c->p.rank + shift) % c->p.world);
    for (size_t i = 0; i < l->n; i++)
        if (!c->shared || l->items[i].rank % c->p.world == mine)
            l->items[n++] = l->items[i];
    l->n = n;
}

static int load_share(struct job *j, uint64_t step, uint32_t shift, char dir[MR_CHECKPOINT_PATH], struct mr_error *err)
{
    struct mr_checkpointer *c = j->c;
    char path[FILE_PATH];
    if (!(mr_store_caps(c->store) & MR_STORE_CAP_CONTENT)) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "the store keeps no content, so there is no checkpoint to load");
        mr_error_hint(err, "use a store that does: 'millrace help store'");
        return MR_E_UNSUPPORTED;
    }
    int rc = locate(c, &step, dir, err);
    if (rc)
        return rc;
    snprintf(path, sizeof path, "%s/" MR_CHECKPOINT_LIST_NAME, dir);
    rc = read_list(c, path, &j->list, err);
    if (rc == -ENOENT)
        return mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing: '%s' is no checkpoint", path, dir);
    if (rc)
        return rc;
    if (j->list.step != step)
        return mr_error_plain(err, MR_E_CORRUPT, "'%s' is of step %" PRIu64 ", its folder's name says %" PRIu64, path,
                              j->list.step, step);
    keep_share(c, shift, &j->list);
    return run_job(j, load_one, err);
}

int mr_checkpoint_load(struct mr_checkpointer *c, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                       struct mr_error *err)
{
    char dir[MR_CHECKPOINT_PATH] = "";
    struct job j = {.c = c, .dir = dir};
    uint64_t start = mr_now_ns();
    int rc = agree(c, load_share(&j, step, shift, dir, err), err);
    if (!rc) {
        *out = result_of(&j, dir);
        out->duration_ns = mr_now_ns() - start;
        out->read_ns = atomic_load(&j.io_ns);
    }
    mr_checkpoint_list_done(&j.list);
    return rc;
}
