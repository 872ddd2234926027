/* See the header. A file whose chunks have checksums is copied chunk by chunk by several threads, any other front to
 * back by one. Its checksum is compared before the copy gets its name (T3). */
#include "checkpoint/state_drain.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/vec.h"
#include "base/workers.h"
#include "checkpoint/checkpoint_hash.h"
#include "checkpoint/state_image.h"
#include "checkpoint/state_pace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_PATH MR_CHECKPOINT_FILE_PATH
#define THREADS 2

/* What is copied in one go: a file, or a chunk of one that has checksums of its chunks. */
struct unit {
    size_t file;
    uint64_t at, bytes, sum;
    const char *dir; /* where it comes from */
};

struct copying {
    const struct mr_state_drain *how;
    const struct mr_save_place *from, *to;
    struct mr_pace_way in, out;
    struct mr_save *save;
    MR_VEC(char *) dir;
    MR_VEC(struct mr_checkpoint_entry) file;
    MR_VEC(struct unit) unit;
    uint8_t *buf[THREADS];
};

static int copy_pieces(struct copying *c, struct unit *u, struct mr_object *from, uint8_t *buf,
                       struct mr_checkpoint_hash *hash, struct mr_error *err)
{
    int rc = 0;
    uint64_t done = 0;
    do {
        size_t n = (size_t)MR_MIN(MR_STATE_CHUNK, u->bytes - done);
        uint64_t start = mr_now_ns();
        if (mr_save_stopped(c->to))
            return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted in the drain of '%s'", u->dir);
        rc = n ? mr_pace_read(&c->in, from, buf, n, u->at + done, err) : 0;
        if (!rc)
            mr_checkpoint_hash_update(hash, buf, n);
        if (!rc)
            rc = mr_save_write(c->to, c->save, u->file, &c->out, u->at + done, buf, n, err);
        if (!rc && n)
            mr_pace_tell(c->to->events, c->save->step, start, n);
        done += n;
    } while (!rc && done < u->bytes);
    return rc;
}

static int copy_unit(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct copying *c = ctx->user;
    struct unit *u = &c->unit.item[index];
    const struct mr_checkpoint_entry *e = &c->file.item[u->file];
    char path[FILE_PATH];
    struct mr_object *from = NULL;
    uint64_t size = 0;
    snprintf(path, sizeof path, "%s/%s", u->dir, e->name);
    int rc = mr_object_open(c->from->at.store, path, MR_OBJ_READ | (c->from->direct ? MR_OBJ_DIRECT : 0), &from, err);
    if (!rc)
        rc = mr_object_size(from, &size, err);
    if (!rc && size != e->bytes)
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' has %" PRIu64 " bytes, the checkpoint's list says %" PRIu64, path,
                            size, e->bytes);
    struct mr_checkpoint_hash *hash = mr_checkpoint_hash_create(u->bytes == e->bytes ? e->chunk_bytes : 0);
    if (!rc)
        rc = hash ? copy_pieces(c, u, from, c->buf[ctx->thread], hash, err)
                  : mr_error_set(err, -ENOMEM, "cannot checksum '%s'", path);
    if (!rc)
        u->sum = mr_checkpoint_hash_digest(hash);
    mr_checkpoint_hash_free(hash);
    mr_object_close(from, NULL); /* opened for reading only */
    return rc;
}

/* What was read is what the list says (T3). */
static int expect_sums(const struct copying *c, struct mr_error *err)
{
    uint64_t *sum = calloc(MR_MAX(c->unit.n, 1u), sizeof(*sum));
    int rc = sum ? 0 : mr_error_set(err, -ENOMEM, "cannot compare checksums");
    for (size_t i = 0, end; i < c->unit.n && !rc; i = end) {
        const struct unit *u = &c->unit.item[i];
        const struct mr_checkpoint_entry *e = &c->file.item[u->file];
        for (end = i; end < c->unit.n && c->unit.item[end].file == u->file; end++)
            sum[end] = c->unit.item[end].sum;
        uint64_t have = u->bytes == e->bytes ? u->sum : mr_checkpoint_hash_of_chunks(sum + i, end - i);
        if (have != e->hash)
            rc = mr_error_plain(err, MR_E_CORRUPT,
                                "'%s/%s' does not match its checksum: want %016" PRIx64 ", have %016" PRIx64, u->dir,
                                e->name, e->hash, have);
    }
    free(sum);
    return rc;
}

/* The files of one share. */
static int add_share(struct copying *c, const char *folder, struct mr_error *err)
{
    char path[MR_CHECKPOINT_PATH];
    struct mr_checkpoint_list l;
    mr_checkpoint_dir_path(folder, c->save->step, MR_CHECKPOINT_COMPLETE, path);
    int rc = mr_checkpoint_read_list(&c->from->at, path, &l, err);
    if (rc)
        return rc;
    if (l.step != c->save->step)
        rc = mr_error_plain(err, MR_E_CORRUPT, "the list in '%s' is of step %" PRIu64, path, l.step);
    char **dir = MR_VEC_ADD(&c->dir);
    bool ok = dir && (*dir = strdup(path));
    for (size_t i = 0; i < l.n && ok && !rc; i++) {
        struct mr_checkpoint_entry *e = MR_VEC_ADD(&c->file);
        ok = e != NULL;
        if (ok)
            *e = l.items[i];
        uint64_t each = l.items[i].chunk_bytes == MR_STATE_CHUNK ? MR_STATE_CHUNK : l.items[i].bytes, at = 0;
        do {
            struct unit *u = ok ? MR_VEC_ADD(&c->unit) : NULL;
            ok = u != NULL;
            if (ok)
                *u = (struct unit){
                    .file = c->file.n - 1, .at = at, .bytes = MR_MIN(each, l.items[i].bytes - at), .dir = *dir};
            at += each;
        } while (ok && at < l.items[i].bytes);
    }
    c->save->world = l.world;
    mr_checkpoint_list_done(&l);
    return ok || rc ? rc : mr_error_set(err, -ENOMEM, "cannot list the files of a drain");
}

static int copy_units(struct copying *c, struct mr_error *err)
{
    bool ok = true;
    for (unsigned i = 0; i < THREADS; i++)
        ok = (c->buf[i] = aligned_alloc(4096, MR_STATE_CHUNK)) && ok;
    int rc = ok ? mr_workers_run(THREADS, c->unit.n, 1, copy_unit, c, c->how->cut, err)
                : mr_error_set(err, -ENOMEM, "cannot get buffers for a drain");
    for (unsigned i = 0; i < THREADS; i++)
        free(c->buf[i]);
    return rc ? rc : expect_sums(c, err);
}

int mr_state_drain(const struct mr_state_drain *how, struct mr_save *s, char *const *share, size_t shares,
                   struct mr_error *err)
{
    const struct mr_save_place *to = how->to;
    struct copying c = {.how = how, .from = how->from, .to = to, .save = s};
    int rc = 0;
    c.in = (struct mr_pace_way){.pace = how->pace, .device = how->from->at.device, .stop = how->cut};
    c.out = (struct mr_pace_way){.pace = how->pace,
                                 .device = to->at.device,
                                 .by_steps = true,
                                 .flush = to->at.fsync && !to->direct,
                                 .stop = how->cut};
    s->drained = true;
    for (size_t i = 0; i < shares && !rc; i++)
        rc = add_share(&c, share[i], err);
    int made = mr_save_init(s, c.file.item, c.file.n, 0) ? mr_error_set(rc ? NULL : err, -ENOMEM, "cannot drain") : 0;
    rc = rc ? rc : made;
    if (!rc)
        rc = mr_save_begin(to, s, err);
    if (!rc)
        rc = copy_units(&c, err);
    rc = mr_save_end(to, s, rc, err);
    for (size_t i = 0; i < c.dir.n; i++)
        free(c.dir.item[i]);
    free(c.dir.item);
    free(c.file.item);
    free(c.unit.item);
    return rc;
}
