/* The parts of saves, loads and drains: see the header, and README.md for the invariants C1 to C6 that the comments
 * refer to. Files are written, read and copied in pieces through one buffer per thread; a checkpoint gets its name by
 * one rename when all of it is there. */
#include "checkpoint/checkpoint_engine.h"
#include "checkpoint/checkpoint_hash.h"
#include "checkpoint/state_pace.h"
#include "store/traffic.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/content.h"
#include "base/workers.h"
#include "event/emit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX_BYTES (64 * MR_MIB)
#define HASH_BLOCK (4 * MR_CONTENT_BLOCK)
#define FILE_PATH (MR_CHECKPOINT_PATH + 256)

/* ---- places ---- */

int mr_checkpoint_place_open(const char *folder, const char *store, uint32_t rank, struct mr_events *events,
                             struct mr_checkpoint_place *out, struct mr_error *err)
{
    struct mr_checkpoint_place p = {.folder = strdup(folder)};
    int rc = p.folder ? mr_store_open_with_events(store, mr_events_calls(events), &p.store, err)
                      : mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    if (rc) {
        free(p.folder);
        return rc;
    }
    /* A checkpoint gets its name when it is complete, so a store that cannot rename is refused before the first save.
     */
    char what[MR_CHECKPOINT_PATH + 32];
    snprintf(what, sizeof what, "keep checkpoints in '%s'", folder);
    rc = mr_store_require(p.store, MR_STORE_CAP_WRITE | MR_STORE_CAP_RENAME, what, err);
    if (rc) {
        mr_checkpoint_place_close(&p);
        return rc;
    }
    p.shared = mr_store_caps(p.store) & MR_STORE_CAP_PERSISTENT;
    p.lead = rank == 0 || !p.shared;
    p.device = mr_traffic_get(p.store, p.folder);
    *out = p;
    return 0;
}

void mr_checkpoint_place_close(struct mr_checkpoint_place *p)
{
    mr_traffic_put(p->device);
    mr_store_close(p->store);
    free(p->folder);
    *p = (struct mr_checkpoint_place){0};
}

/* ---- files ---- */

static int check_stop(const struct mr_checkpoint_job *j, struct mr_error *err)
{
    return j->stopped && j->stopped(j->user)
               ? mr_error_plain(err, MR_E_INTERRUPTED, "interrupted in the checkpoint '%s'", j->dir)
               : 0;
}

/* Fills and hashes block by block, so that the hash finds the bytes in the cache. Constant content is zeros, which the
 * buffer holds from the start (run_job) and nobody else writes to. */
static void make_piece(const struct mr_checkpoint_job *j, const char *name, uint64_t at, uint8_t *buf, size_t len,
                       struct mr_checkpoint_hash *hash)
{
    for (size_t done = 0; done < len;) {
        size_t n = MR_MIN((size_t)HASH_BLOCK, len - done);
        if (j->p->random_content)
            mr_checkpoint_content(j->p, j->list.step, name, at + done, buf + done, n);
        mr_checkpoint_hash_update(hash, buf + done, n);
        done += n;
    }
}

static void tell(const struct mr_checkpoint_job *j, enum mr_checkpoint_part part, uint64_t start, uint64_t end,
                 uint64_t bytes)
{
    mr_checkpoint_tell(j->p, part, j->list.step, start, end, bytes);
}

static int write_pieces(struct mr_checkpoint_job *j, struct mr_checkpoint_entry *e, uint8_t *buf, struct mr_object *o,
                        struct mr_checkpoint_hash *hash, struct mr_error *err)
{
    const struct mr_checkpoint_params *p = j->p;
    for (uint64_t at = 0; at < e->bytes;) {
        size_t n = (size_t)MR_MIN(p->buffer_bytes, e->bytes - at);
        int rc = check_stop(j, err);
        if (rc)
            return rc;
        uint64_t begin = mr_now_ns();
        make_piece(j, e->name, at, buf, n, hash);
        uint64_t start = mr_now_ns();
        rc = mr_object_write(o, buf, n, at, err);
        uint64_t end = mr_now_ns();
        atomic_fetch_add(&j->io_ns, end - start);
        if (rc < 0)
            return rc;
        tell(j, MR_CHECKPOINT_SNAPSHOT, begin, start, n);
        tell(j, MR_CHECKPOINT_WRITE, start, end, n);
        at += n;
    }
    e->hash = mr_checkpoint_hash_digest(hash);
    return 0;
}

static int sync_file(struct mr_checkpoint_job *j, struct mr_object *o, struct mr_error *err)
{
    if (!j->at->fsync)
        return 0;
    uint64_t start = mr_now_ns();
    int rc = o->store->ops->fsync(o, err);
    uint64_t end = mr_now_ns();
    atomic_fetch_add(&j->fsync_ns, end - start);
    tell(j, MR_CHECKPOINT_FSYNC, start, end, 0);
    return rc;
}

static int save_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct mr_checkpoint_job *j = ctx->user;
    struct mr_checkpoint_entry *e = &j->list.items[index];
    struct mr_object *o = NULL;
    char path[FILE_PATH];
    snprintf(path, sizeof path, "%s/%s", j->dir, e->name);
    struct mr_checkpoint_hash *hash = mr_checkpoint_hash_create(e->chunk_bytes);
    if (!hash)
        return mr_error_set(err, -ENOMEM, "cannot checksum '%s'", path);
    /* Exclusive: the folder is new, so a file that exists is another rank's of the same name. */
    unsigned flags = MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE | (j->p->direct ? MR_OBJ_DIRECT : 0);
    int rc = mr_object_open(j->at->store, path, flags, &o, err);
    if (rc == -EEXIST)
        rc = mr_error_plain(err, MR_E_USAGE, "two ranks write a checkpoint file named '%s'", e->name);
    if (!rc)
        rc = o->store->ops->allocate(o, e->bytes, err);
    if (!rc)
        rc = write_pieces(j, e, j->buffers[ctx->thread], o, hash, err);
    if (!rc)
        rc = sync_file(j, o, err);
    int closed = mr_object_close(o, rc ? NULL : err);
    mr_checkpoint_hash_free(hash);
    return rc ? rc : closed;
}

static int expect_size(struct mr_object *o, const struct mr_checkpoint_entry *e, struct mr_error *err)
{
    uint64_t size;
    int rc = mr_object_size(o, &size, err);
    if (rc || size == e->bytes)
        return rc;
    mr_error_plain(err, MR_E_CORRUPT, "'%s' has %" PRIu64 " bytes, the checkpoint's list says %" PRIu64, o->path, size,
                   e->bytes);
    mr_error_hint(err, "load an older checkpoint");
    return MR_E_CORRUPT;
}

static int expect_hash(const struct mr_object *o, const struct mr_checkpoint_entry *e, struct mr_checkpoint_hash *hash,
                       struct mr_error *err)
{
    uint64_t have = mr_checkpoint_hash_digest(hash);
    if (have == e->hash)
        return 0;
    mr_error_plain(err, MR_E_CORRUPT, "'%s' does not match its checksum: want %016" PRIx64 ", have %016" PRIx64,
                   o->path, e->hash, have);
    mr_error_hint(err, "load an older checkpoint");
    return MR_E_CORRUPT;
}

static int read_pieces(struct mr_checkpoint_job *j, const struct mr_checkpoint_entry *e, uint8_t *buf,
                       struct mr_object *o, struct mr_checkpoint_hash *hash, struct mr_error *err)
{
    int rc = expect_size(o, e, err);
    for (uint64_t at = 0; !rc && at < e->bytes;) {
        size_t n = (size_t)MR_MIN(j->p->buffer_bytes, e->bytes - at);
        rc = check_stop(j, err);
        if (rc)
            break;
        uint64_t start = mr_now_ns();
        rc = mr_object_read(o, buf, n, at, err);
        atomic_fetch_add(&j->io_ns, mr_now_ns() - start);
        if (!rc)
            mr_checkpoint_hash_update(hash, buf, n);
        at += n;
    }
    return rc ? rc : expect_hash(o, e, hash, err);
}

/* A file of a complete checkpoint: one that is missing is damage. */
static int open_to_read(const struct mr_checkpoint_place *at, const char *dir, const struct mr_checkpoint_entry *e,
                        unsigned direct, struct mr_object **out, struct mr_error *err)
{
    char path[FILE_PATH];
    snprintf(path, sizeof path, "%s/%s", dir, e->name);
    int rc = mr_object_open(at->store, path, MR_OBJ_READ | direct, out, err);
    if (rc != -ENOENT)
        return rc;
    mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing: the checkpoint's list names it with %" PRIu64 " bytes", path,
                   e->bytes);
    mr_error_hint(err, "load an older checkpoint");
    return MR_E_CORRUPT;
}

static int load_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct mr_checkpoint_job *j = ctx->user;
    const struct mr_checkpoint_entry *e = &j->list.items[index];
    struct mr_object *o;
    int rc = open_to_read(j->at, j->dir, e, j->p->direct ? MR_OBJ_DIRECT : 0, &o, err);
    if (rc)
        return rc;
    struct mr_checkpoint_hash *hash = mr_checkpoint_hash_create(e->chunk_bytes);
    if (hash) {
        rc = read_pieces(j, e, j->buffers[ctx->thread], o, hash, err);
    } else {
        rc = mr_error_set(err, -ENOMEM, "cannot checksum '%s'", o->path);
    }
    mr_checkpoint_hash_free(hash);
    mr_object_close(o, NULL); /* opened for reading only */
    return rc;
}

/* One file from the buffer to where it stays. What was read is what the list says, or the copy fails. */
static int copy_pieces(struct mr_checkpoint_job *j, const struct mr_checkpoint_entry *e, uint8_t *buf,
                       struct mr_object *in, struct mr_object *out, struct mr_checkpoint_hash *hash,
                       struct mr_error *err)
{
    uint64_t size;
    const struct mr_pace_way from = {.pace = j->pace, .device = j->from->device};
    const struct mr_pace_way to = {
        .pace = j->pace, .device = j->at->device, .by_steps = true, .flush = j->at->fsync && !j->p->direct};
    int rc = expect_size(in, e, err);
    for (uint64_t at = 0; !rc && at < e->bytes;) {
        size_t n = (size_t)MR_MIN(j->p->buffer_bytes, e->bytes - at);
        rc = check_stop(j, err);
        uint64_t start = mr_now_ns();
        if (!rc)
            rc = mr_pace_read(&from, in, buf, n, at, err);
        if (!rc) {
            mr_checkpoint_hash_update(hash, buf, n);
            rc = mr_pace_write(&to, out, buf, n, at, err);
        }
        atomic_fetch_add(&j->io_ns, mr_now_ns() - start);
        if (!rc)
            mr_pace_tell(j->p->events, j->list.step, start, n);
        at += n;
    }
    if (!rc)
        rc = expect_hash(in, e, hash, err);
    bool kept = mr_store_caps(j->at->store) & MR_STORE_CAP_CONTENT;
    if (!rc && kept)
        rc = mr_object_size(out, &size, err);
    if (!rc && kept && size != e->bytes)
        rc = mr_error_plain(err, -EIO, "'%s' has %" PRIu64 " bytes after %" PRIu64 " were written", out->path, size,
                            e->bytes);
    return rc;
}

static int copy_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct mr_checkpoint_job *j = ctx->user;
    const struct mr_checkpoint_entry *e = &j->list.items[index];
    struct mr_object *in = NULL, *out = NULL;
    char path[FILE_PATH];
    unsigned direct = j->p->direct ? MR_OBJ_DIRECT : 0;
    struct mr_checkpoint_hash *hash = mr_checkpoint_hash_create(e->chunk_bytes);
    if (!hash)
        return mr_error_set(err, -ENOMEM, "cannot checksum '%s'", e->name);
    int rc = open_to_read(j->from, j->from_dir, e, direct, &in, err);
    snprintf(path, sizeof path, "%s/%s", j->dir, e->name);
    if (!rc)
        rc = mr_object_open(j->at->store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE | direct, &out, err);
    if (!rc)
        rc = out->store->ops->allocate(out, e->bytes, err);
    if (!rc)
        rc = copy_pieces(j, e, j->buffers[ctx->thread], in, out, hash, err);
    if (!rc)
        rc = sync_file(j, out, err);
    int closed = mr_object_close(out, rc ? NULL : err);
    mr_object_close(in, NULL); /* opened for reading only */
    mr_checkpoint_hash_free(hash);
    return rc ? rc : closed;
}

/* Runs fn over the share with a buffer per thread (C3). */
static int run_job(struct mr_checkpoint_job *j, mr_work_fn *fn, struct mr_error *err)
{
    if (j->list.n == 0)
        return 0;
    unsigned threads = (unsigned)MR_MIN((uint64_t)j->p->threads, j->list.n);
    j->buffers = calloc(threads, sizeof(*j->buffers));
    int rc = j->buffers ? 0 : -ENOMEM;
    for (unsigned i = 0; i < threads && !rc; i++)
        if ((j->buffers[i] = aligned_alloc(4096, j->p->buffer_bytes)))
            memset(j->buffers[i], 0, j->p->buffer_bytes);
        else
            rc = -ENOMEM;
    if (rc)
        mr_error_set(err, rc, "cannot get %u buffers of %" PRIu64 " bytes", threads, j->p->buffer_bytes);
    else
        rc = mr_workers_run(threads, j->list.n, 1, fn, j, NULL, err);
    for (unsigned i = 0; j->buffers && i < threads; i++)
        free(j->buffers[i]);
    free(j->buffers);
    j->buffers = NULL;
    return rc;
}

/* ---- lists ---- */

static int write_list(struct mr_checkpoint_job *j, const char *path, const struct mr_checkpoint_list *l, bool durable,
                      struct mr_error *err)
{
    char *text;
    struct mr_object *o = NULL;
    int rc = mr_checkpoint_list_encode(l, &text, err);
    if (rc)
        return rc;
    rc = mr_object_open(j->at->store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, err);
    if (!rc)
        rc = mr_object_write(o, text, strlen(text), 0, err);
    if (!rc && durable)
        rc = sync_file(j, o, err);
    int closed = mr_object_close(o, rc ? NULL : err);
    free(text);
    return rc ? rc : closed;
}

static int read_list(const struct mr_checkpoint_place *at, const char *path, struct mr_checkpoint_list *out,
                     struct mr_error *err)
{
    void *data;
    size_t len;
    int rc = mr_store_read_file(at->store, path, LIST_MAX_BYTES, &data, &len, err);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_list_parse(data, len, path, out, err);
    free(data);
    return rc;
}

int mr_checkpoint_read_list(const struct mr_checkpoint_place *at, const char *dir, struct mr_checkpoint_list *out,
                            struct mr_error *err)
{
    char path[FILE_PATH];
    snprintf(path, sizeof path, "%s/" MR_CHECKPOINT_LIST_NAME, dir);
    int rc = read_list(at, path, out, err);
    if (rc != -ENOENT)
        return rc;
    mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing: without its list '%s' is no checkpoint", path, dir);
    return mr_error_hint(err, "load an older checkpoint"), MR_E_CORRUPT;
}

static void part_path(const char *dir, uint32_t rank, char out[FILE_PATH])
{
    snprintf(out, FILE_PATH, "%s/rank-%05u.part", dir, rank);
}

/* The parts only carry the lists to here. */
int mr_checkpoint_join(struct mr_checkpoint_job *j, struct mr_checkpoint_list *out, struct mr_error *err)
{
    char path[FILE_PATH];
    struct mr_checkpoint_list all = {.step = j->list.step, .world = j->list.world, .fsync = j->list.fsync};
    int rc = mr_checkpoint_list_append(&all, &j->list, err);
    for (uint32_t r = 1; j->at->shared && r < j->p->world && !rc; r++) {
        struct mr_checkpoint_list part;
        part_path(j->dir, r, path);
        rc = read_list(j->at, path, &part, err);
        if (rc)
            break;
        rc = mr_checkpoint_list_append(&all, &part, err);
        mr_checkpoint_list_done(&part);
        if (!rc)
            rc = j->at->store->ops->unlink(j->at->store, path, err);
    }
    if (!rc)
        rc = mr_checkpoint_list_check(&all, err);
    if (rc)
        mr_checkpoint_list_done(&all);
    else
        *out = all;
    return rc;
}

/* ---- names ---- */

int mr_checkpoint_retire_older(const struct mr_checkpoint_place *at, uint64_t just_saved, struct mr_error *err)
{
    struct mr_checkpoint_dirs d;
    int rc = mr_checkpoint_dirs_read(at->store, at->folder, &d, err);
    if (rc)
        return rc;
    unsigned kept = 0;
    for (size_t i = d.n; i-- > 0 && !rc;)
        if (mr_checkpoint_dirs_usable(&d, i) && ++kept > at->keep_last && d.item[i].step != just_saved)
            rc = mr_checkpoint_retire(at->store, at->folder, d.item[i].step, err);
    mr_checkpoint_dirs_done(&d);
    if (rc && err)
        mr_error_context(err, "removing older checkpoints; the new one of step %" PRIu64 " is complete", just_saved);
    return rc;
}

/* step-N.tmp becomes step-N. One that is there already steps aside first and comes back if the renaming fails, so a
 * complete copy exists at every moment (C1, C2). */
static int swap_in(const struct mr_checkpoint_place *at, const char *tmp, const char *final, const char *old,
                   struct mr_error *err)
{
    const struct mr_store_ops *ops = at->store->ops;
    struct mr_store_stat st;
    bool replaces = ops->stat(at->store, final, &st, NULL) == 0;
    int rc = replaces ? ops->rename(at->store, final, old, err) : 0;
    if (rc)
        return rc;
    rc = ops->rename(at->store, tmp, final, err);
    if (rc && replaces)
        ops->rename(at->store, old, final,
                    NULL); /* if this fails as well, readers and the next save find the old one */
    if (!rc && at->fsync)
        rc = ops->sync_dir(at->store, at->folder, err);
    if (!rc && replaces)
        rc = mr_checkpoint_dir_remove(at->store, old, err);
    return rc;
}

int mr_checkpoint_publish(struct mr_checkpoint_job *j, const struct mr_checkpoint_list *all, const char *final,
                          struct mr_error *err)
{
    const struct mr_checkpoint_place *at = j->at;
    char path[FILE_PATH], old[MR_CHECKPOINT_PATH];
    snprintf(path, sizeof path, "%s/" MR_CHECKPOINT_LIST_NAME, j->dir);
    mr_checkpoint_dir_path(at->folder, all->step, MR_CHECKPOINT_OLD, old);
    int rc = write_list(j, path, all, true, err);
    if (!rc && at->fsync)
        rc = at->store->ops->sync_dir(at->store, j->dir, err);
    uint64_t start = mr_now_ns();
    if (!rc)
        rc = swap_in(at, j->dir, final, old, err);
    if (!rc)
        tell(j, MR_CHECKPOINT_RENAME, start, mr_now_ns(), 0);
    if (!rc && at->keep_last)
        rc = mr_checkpoint_retire_older(at, all->step, err);
    return rc;
}

/* The folder itself must outlive a crash, too: its name lies in its parent. */
static int sync_parent(const struct mr_checkpoint_place *at, struct mr_error *err)
{
    char parent[MR_CHECKPOINT_PATH];
    snprintf(parent, sizeof parent, "%s", at->folder);
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/')
        parent[--n] = '\0';
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    return at->store->ops->sync_dir(at->store, slash ? parent : ".", err);
}

int mr_checkpoint_begin(const struct mr_checkpoint_place *at, const char *tmp, struct mr_error *err)
{
    struct mr_store_stat st;
    bool is_new = at->store->ops->stat(at->store, at->folder, &st, NULL) != 0;
    int rc = mr_store_mkdirs(at->store, at->folder, err);
    if (!rc && is_new && at->fsync)
        rc = sync_parent(at, err);
    if (!rc)
        rc = mr_checkpoint_folder_repair(at->store, at->folder, err);
    return rc ? rc : at->store->ops->mkdir(at->store, tmp, err);
}

/* ---- passes ---- */

int mr_checkpoint_write_share(struct mr_checkpoint_job *j, struct mr_error *err)
{
    char part[FILE_PATH];
    int rc = run_job(j, save_one, err);
    if (rc || j->at->lead)
        return rc;
    part_path(j->dir, j->p->rank, part);
    return write_list(j, part, &j->list, false, err);
}

int mr_checkpoint_read_share(struct mr_checkpoint_job *j, struct mr_error *err)
{
    return run_job(j, load_one, err);
}

int mr_checkpoint_copy(struct mr_checkpoint_job *j, struct mr_error *err)
{
    return run_job(j, copy_one, err);
}
