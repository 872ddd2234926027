/* Places of checkpoints: see the header, and README.md for the invariants C1 and C2 that the comments refer to. */
#include "checkpoint/checkpoint_place.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/workers.h"
#include "checkpoint/checkpoint_hash.h"
#include "event/emit.h"
#include "store/traffic.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX_BYTES (64 * MR_MIB)
#define FILE_PATH MR_CHECKPOINT_FILE_PATH

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
    if (mr_store_confine(p.store, folder, false)) { /* C7 */
        mr_checkpoint_place_close(&p);
        return mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    }
    p.shared = mr_store_caps(p.store) & MR_STORE_CAP_PERSISTENT;
    p.lead = rank == 0 || !p.shared;
    p.device = mr_traffic_get(p.store, p.folder);
    *out = p;
    return 0;
}

void mr_checkpoint_place_close(struct mr_checkpoint_place *p)
{
    if (!p->store)
        return;
    mr_traffic_put(p->device);
    mr_store_close(p->store);
    free(p->folder);
    *p = (struct mr_checkpoint_place){0};
}

static void tell(struct mr_events *events, enum mr_span what, uint64_t step, uint64_t start)
{
    struct mr_where at = MR_NOWHERE;
    at.step = step;
    mr_emit(events, what, start, mr_now_ns(), &at, 0);
}

static int write_list(const struct mr_checkpoint_place *at, struct mr_events *events, const char *path,
                      const struct mr_checkpoint_list *l, struct mr_error *err)
{
    char *text;
    struct mr_object *o = NULL;
    int rc = mr_checkpoint_list_encode(l, &text, err);
    if (rc)
        return rc;
    rc = mr_object_open(at->store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, err);
    if (!rc)
        rc = mr_object_write(o, text, strlen(text), 0, err);
    uint64_t start = mr_now_ns();
    if (!rc && at->fsync && !(rc = o->store->ops->fsync(o, err)))
        tell(events, MR_SPAN_CKPT_FSYNC, l->step, start);
    int closed = mr_object_close(o, rc ? NULL : err);
    free(text);
    return rc ? rc : closed;
}

int mr_checkpoint_read_part(const struct mr_checkpoint_place *at, const char *path, struct mr_checkpoint_list *out,
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
    int rc = mr_checkpoint_read_part(at, path, out, err);
    if (rc != -ENOENT)
        return rc;
    mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing: without its list '%s' is no checkpoint", path, dir);
    return mr_error_hint(err, "load an older checkpoint"), MR_E_CORRUPT;
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

int mr_checkpoint_publish(const struct mr_checkpoint_place *at, struct mr_events *events, const char *tmp,
                          const struct mr_checkpoint_list *all, struct mr_error *err)
{
    char path[FILE_PATH], final[MR_CHECKPOINT_PATH], old[MR_CHECKPOINT_PATH];
    snprintf(path, sizeof path, "%s/" MR_CHECKPOINT_LIST_NAME, tmp);
    mr_checkpoint_dir_path(at->folder, all->step, MR_CHECKPOINT_COMPLETE, final);
    mr_checkpoint_dir_path(at->folder, all->step, MR_CHECKPOINT_OLD, old);
    int rc = write_list(at, events, path, all, err);
    if (!rc && at->fsync)
        rc = at->store->ops->sync_dir(at->store, tmp, err);
    uint64_t start = mr_now_ns();
    if (!rc)
        rc = swap_in(at, tmp, final, old, err);
    if (!rc)
        tell(events, MR_SPAN_CKPT_RENAME, all->step, start);
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
    if (rc)
        return rc;
    rc = at->store->ops->mkdir(at->store, tmp, err);
    if (rc != -ENOTDIR) /* or a file or a link has its name: that goes, not what it points to */
        return rc;
    rc = mr_checkpoint_dir_remove(at->store, tmp, err);
    return rc ? rc : at->store->ops->mkdir(at->store, tmp, err);
}

/* ---- reading all of one ---- */

struct reading {
    const struct mr_checkpoint_params *p;
    const struct mr_checkpoint_place *at;
    const char *dir;
    const struct mr_checkpoint_list *list;
    uint8_t **buf; /* of each thread */
    _Atomic uint64_t read_ns;
};

static int read_pieces(struct reading *r, const struct mr_checkpoint_entry *e, struct mr_object *o, uint8_t *buf,
                       uint64_t *hash, struct mr_error *err)
{
    struct mr_checkpoint_hash *h = mr_checkpoint_hash_create(e->chunk_bytes);
    int rc = h ? 0 : mr_error_set(err, -ENOMEM, "cannot checksum '%s'", o->path);
    for (uint64_t at = 0; at < e->bytes && !rc; at += r->p->buffer_bytes) {
        size_t n = (size_t)MR_MIN(r->p->buffer_bytes, e->bytes - at);
        if (r->p->stopped && r->p->stopped(r->p->user))
            rc = mr_error_plain(err, MR_E_INTERRUPTED, "interrupted in the checkpoint '%s'", r->dir);
        uint64_t start = mr_now_ns();
        rc = rc ? rc : mr_object_read(o, buf, n, at, err);
        atomic_fetch_add(&r->read_ns, mr_now_ns() - start);
        if (!rc)
            mr_checkpoint_hash_update(h, buf, n);
    }
    if (!rc)
        *hash = mr_checkpoint_hash_digest(h);
    mr_checkpoint_hash_free(h);
    return rc;
}

static int read_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct reading *r = ctx->user;
    const struct mr_checkpoint_entry *e = &r->list->items[index];
    struct mr_object *o = NULL;
    char path[FILE_PATH];
    uint64_t size = 0, have = e->hash;
    snprintf(path, sizeof path, "%s/%s", r->dir, e->name);
    int rc = mr_object_open(r->at->store, path, MR_OBJ_READ | (r->p->direct ? MR_OBJ_DIRECT : 0), &o, err);
    if (rc == -ENOENT)
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing: the checkpoint's list names it with %" PRIu64 " bytes",
                            path, e->bytes);
    if (!rc)
        rc = mr_object_size(o, &size, err);
    if (!rc && size != e->bytes)
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' has %" PRIu64 " bytes, the checkpoint's list says %" PRIu64, path,
                            size, e->bytes);
    if (!rc)
        rc = read_pieces(r, e, o, r->buf[ctx->thread], &have, err);
    if (!rc && have != e->hash)
        rc =
            mr_error_plain(err, MR_E_CORRUPT, "'%s' does not match its checksum: want %016" PRIx64 ", have %016" PRIx64,
                           path, e->hash, have);
    if (rc == MR_E_CORRUPT)
        mr_error_hint(err, "load an older checkpoint");
    mr_object_close(o, NULL); /* opened for reading only */
    return rc;
}

int mr_checkpoint_verify(const struct mr_checkpoint_params *p, const struct mr_checkpoint_place *at, const char *dir,
                         const struct mr_checkpoint_list *l, uint64_t *read_ns, struct mr_error *err)
{
    struct reading r = {.p = p, .at = at, .dir = dir, .list = l};
    unsigned threads = (unsigned)MR_MIN((uint64_t)p->threads, MR_MAX(l->n, (size_t)1));
    r.buf = calloc(threads, sizeof(*r.buf));
    bool ok = r.buf;
    for (unsigned i = 0; ok && i < threads; i++)
        ok = (r.buf[i] = aligned_alloc(4096, p->buffer_bytes)) != NULL;
    int rc = ok ? mr_workers_run(threads, l->n, 1, read_one, &r, NULL, err)
                : mr_error_set(err, -ENOMEM, "cannot get %u buffers of %" PRIu64 " bytes", threads, p->buffer_bytes);
    for (unsigned i = 0; r.buf && i < threads; i++)
        free(r.buf[i]);
    free(r.buf);
    *read_ns += atomic_load(&r.read_ns);
    return rc;
}
