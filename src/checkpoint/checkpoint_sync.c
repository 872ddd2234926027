/* The engine "sync": training waits until a checkpoint is written, directly or into a burst buffer that a thread
 * drains. See <millrace/checkpoint.h> for the contract and README.md for the invariants that the comments refer to.
 *
 *   begin (leader)   clear what a killed save left, make step-N.tmp
 *   write (all)      files through one buffer per thread; a part list per rank
 *   publish (leader) join the lists, make all durable, rename, retire older ones
 *
 * Between the phases the ranks agree. The leader is rank 0, and every rank where the store is private to its process
 * (memory, null): there each rank keeps a checkpoint of its own. With a burst buffer the phases are done there, and the
 * leader's drain (checkpoint_drain.h) does the rest. */
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "checkpoint/checkpoint_drain.h"
#include "checkpoint/checkpointer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define BUFFER_DEFAULT (4 * MR_MIB)

struct sync {
    struct mr_checkpointer base;
    struct mr_checkpoint_params p;
    struct mr_checkpoint_place final, buffer; /* buffer.store is NULL without one */
    struct mr_checkpoint_drainer *drainer;    /* leader, with a buffer */
    bool recovered;
};

#define SYNC(checkpointer) ((struct sync *)(checkpointer))

/* ---- opening and closing ---- */

/* Absolute, without "//", "/./" and a slash at the end: the same folder under one name. */
static void plain_path(const char *folder, char out[MR_CHECKPOINT_PATH])
{
    char cwd[MR_CHECKPOINT_PATH], full[2 * MR_CHECKPOINT_PATH];
    size_t n = 0;
    bool absolute = *folder == '/' || !getcwd(cwd, sizeof cwd);
    snprintf(full, sizeof full, "%s%s%s", absolute ? "" : cwd, absolute ? "" : "/", folder);
    for (const char *at = full; *at && n < MR_CHECKPOINT_PATH - 1;) {
        if (at[0] == '/' && (at[1] == '/' || at[1] == '\0')) {
            at++;
        } else if (at[0] == '/' && at[1] == '.' && (at[2] == '/' || at[2] == '\0')) {
            at += 2;
        } else {
            out[n++] = *at++;
        }
    }
    out[n] = '\0';
}

/* BUFFER/NAME-HASH: checkpoints of other folders may wait in the same buffer and must not be drained to this one. */
static void burst_path(const struct mr_checkpoint_params *p, char out[MR_CHECKPOINT_PATH])
{
    char path[MR_CHECKPOINT_PATH];
    plain_path(p->folder, path);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(out, MR_CHECKPOINT_PATH, "%.*s/%.32s-%016" PRIx64, MR_CHECKPOINT_FOLDER_MAX - MR_CHECKPOINT_BURST_NAME,
             p->burst_folder, *name ? name : "root", (uint64_t)XXH3_64bits(path, strlen(path)));
}

static int open_burst(struct sync *c, const struct mr_checkpoint_params *p, struct mr_error *err)
{
    char folder[MR_CHECKPOINT_PATH];
    burst_path(p, folder);
    int rc = mr_checkpoint_place_open(folder, p->burst_store, p->rank, p->events, &c->buffer, err);
    if (rc)
        return mr_error_context(err, "the burst buffer"), rc;
    c->buffer.fsync = p->fsync;
    if (!(mr_store_caps(c->buffer.store) & MR_STORE_CAP_CONTENT))
        return mr_error_plain(err, MR_E_CONFIG, "a burst buffer on a store that keeps no content cannot be drained");
    if (p->world > 1 && c->buffer.shared != c->final.shared)
        return mr_error_plain(err, MR_E_CONFIG,
                              "the burst buffer and the checkpoint folder must both be seen by all %u ranks", p->world);
    return c->final.lead ? mr_checkpoint_drainer_create(&c->p, &c->buffer, &c->final, p->burst_bytes, &c->drainer, err)
                         : 0;
}

static void sync_close(struct mr_checkpointer *base)
{
    struct sync *c = SYNC(base);
    mr_checkpoint_drainer_free(c->drainer);
    mr_checkpoint_place_close(&c->buffer);
    mr_checkpoint_place_close(&c->final);
    free(c);
}

static int sync_open(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err)
{
    struct sync *c = calloc(1, sizeof(*c));
    if (!c)
        return mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    c->base.ops = &mr_checkpoint_sync_engine;
    c->p = *p;
    c->p.folder = c->p.store = c->p.burst_folder = c->p.burst_store = c->p.engine = NULL; /* the caller's */
    c->p.threads = p->threads ? p->threads : 1;
    c->p.buffer_bytes = MR_ALIGN_UP(p->buffer_bytes ? p->buffer_bytes : BUFFER_DEFAULT, 4096u);
    int rc = mr_checkpoint_place_open(p->folder, p->store, p->rank, p->events, &c->final, err);
    c->final.fsync = p->fsync;
    c->final.keep_last = p->keep_last;
    if (!rc && p->burst_folder && *p->burst_folder)
        rc = open_burst(c, p, err);
    if (rc) {
        sync_close(&c->base);
        return rc;
    }
    *out = &c->base;
    return 0;
}

static int agree(struct sync *c, int code, struct mr_error *err)
{
    return c->p.agree ? c->p.agree(c->p.user, code, err) : code;
}

/* ---- save ---- */

/* Fills the share of this rank from the caller's files. */
static int take_files(struct mr_checkpoint_job *j, const struct mr_checkpoint_file *files, uint64_t n,
                      struct mr_error *err)
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
        *e = (struct mr_checkpoint_entry){.bytes = files[i].bytes, .rank = j->p->rank};
        memcpy(e->name, files[i].name, strlen(files[i].name) + 1);
    }
    return mr_checkpoint_list_check(&j->list, err);
}

static struct mr_checkpoint_result result_of(const struct mr_checkpoint_job *j, const char *path)
{
    struct mr_checkpoint_result r = {.files = j->list.n};
    for (size_t i = 0; i < j->list.n; i++)
        r.bytes += j->list.items[i].bytes;
    snprintf(r.path, sizeof r.path, "%.*s", (int)sizeof r.path - 1, path);
    return r;
}

static int save_at(struct sync *c, const struct mr_checkpoint_place *at, uint64_t step,
                   const struct mr_checkpoint_file *files, uint64_t n, struct mr_checkpoint_result *out,
                   struct mr_error *err)
{
    char tmp[MR_CHECKPOINT_PATH], final[MR_CHECKPOINT_PATH];
    struct mr_checkpoint_job j = {.p = &c->p,
                                  .at = at,
                                  .dir = tmp,
                                  .stopped = c->p.stopped,
                                  .user = c->p.user,
                                  .list = {.step = step, .world = c->p.world, .fsync = at->fsync}};
    struct mr_checkpoint_list all = {0};
    uint64_t start = mr_now_ns();
    mr_checkpoint_dir_path(at->folder, step, MR_CHECKPOINT_TMP, tmp);
    mr_checkpoint_dir_path(at->folder, step, MR_CHECKPOINT_COMPLETE, final);
    int rc = take_files(&j, files, n, err);
    bool begun = !rc && at->lead; /* nothing of ours is there before, so that a bad call removes nothing */
    if (begun)
        rc = mr_checkpoint_begin(at, tmp, err);
    rc = agree(c, rc, err); /* C4, here and below */
    if (!rc)
        rc = agree(c, mr_checkpoint_write_share(&j, err), err);
    if (!rc) {
        if (at->lead && !(rc = mr_checkpoint_join(&j, &all, err)))
            rc = mr_checkpoint_publish(&j, &all, final, err);
        rc = agree(c, rc, err);
    }
    if (rc && begun)
        mr_checkpoint_dir_remove(at->store, tmp, NULL); /* C2; the error that matters is already reported */
    if (!rc) {
        *out = result_of(&j, final);
        out->duration_ns = mr_now_ns() - start;
        out->write_ns = atomic_load(&j.io_ns);
        out->fsync_ns = atomic_load(&j.fsync_ns);
    }
    mr_checkpoint_list_done(&all);
    mr_checkpoint_list_done(&j.list);
    return rc;
}

/* ---- the burst buffer ---- */

static unsigned sync_recover(struct mr_checkpointer *base)
{
    struct sync *c = SYNC(base);
    struct mr_error why;
    unsigned found = 0;
    if (!c->drainer || c->recovered)
        return 0;
    c->recovered = true;
    if (mr_checkpoint_drainer_recover(c->drainer, &found, &why))
        mr_log(MR_LOG_WARN, "cannot look for checkpoints in the burst buffer: %s", why.message);
    else if (found)
        mr_log(MR_LOG_NOTE, "%u checkpoint%s of an earlier run %s drained from the burst buffer '%s'", found,
               found == 1 ? "" : "s", found == 1 ? "is" : "are", c->buffer.folder);
    return found;
}

/* Whether a failed save says that the buffer is no good, rather than the call, the ranks or the user. */
static bool buffer_failed(int rc)
{
    return rc == MR_E_LIMIT || rc == MR_E_CORRUPT || rc == MR_E_FORMAT || (rc < 0 && rc > -4096 && rc != -ENOMEM);
}

/* Waits for room and writes to the buffer. *wait_ns: the first part. All ranks get the same code. */
static int save_in_buffer(struct sync *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                          struct mr_checkpoint_result *out, uint64_t *wait_ns, struct mr_error *err)
{
    uint64_t start = mr_now_ns(), bytes = 0;
    int rc = 0;
    sync_recover(&c->base);
    for (uint64_t i = 0; i < n; i++)
        bytes += files[i].bytes;
    if (c->p.sum && c->buffer.shared && (rc = c->p.sum(c->p.user, &bytes, err)))
        return rc;
    if (c->drainer)
        rc = mr_checkpoint_drainer_room(c->drainer, step, bytes, err);
    rc = agree(c, rc, err);
    *wait_ns = mr_now_ns() - start;
    if (rc)
        return rc;
    rc = save_at(c, &c->buffer, step, files, n, out, err);
    if (!rc && c->drainer)
        mr_checkpoint_drainer_add(c->drainer, step, bytes);
    return rc;
}

/* B2: nobody else writes to the final folder meanwhile. What the buffer has of this step, if anything, is out of date.
 */
static int save_around(struct sync *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                       struct mr_checkpoint_result *out, uint64_t *wait_ns, struct mr_error *err)
{
    uint64_t start = mr_now_ns();
    int rc = agree(c, c->drainer ? mr_checkpoint_drainer_idle(c->drainer, err) : 0, err);
    *wait_ns += mr_now_ns() - start;
    if (!rc)
        rc = save_at(c, &c->final, step, files, n, out, err);
    if (!rc && c->drainer)
        mr_checkpoint_drainer_drop(c->drainer, step);
    return rc;
}

static int sync_save(struct mr_checkpointer *base, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                     struct mr_checkpoint_result *out, struct mr_error *err)
{
    struct sync *c = SYNC(base);
    struct mr_error why;
    uint64_t start = mr_now_ns(), wait_ns = 0;
    if (!c->buffer.store)
        return save_at(c, &c->final, step, files, n, out, err);
    int rc = save_in_buffer(c, step, files, n, out, &wait_ns, &why);
    bool buffered = !rc;
    if (buffer_failed(rc)) {
        if (c->p.rank == 0)
            mr_log(MR_LOG_WARN, "the checkpoint of step %" PRIu64 " goes around the burst buffer: %s%s", step,
                   why.message, rc == -ENOENT && c->p.world > 1 ? "; all ranks must see the buffer" : "");
        rc = save_around(c, step, files, n, out, &wait_ns, &why);
    }
    if (!rc) {
        out->buffered = buffered;
        out->wait_ns = wait_ns;
        out->duration_ns = mr_now_ns() - start;
    } else if (err) {
        *err = why;
    }
    return rc;
}

static int sync_drain(struct mr_checkpointer *base, struct mr_error *err)
{
    struct sync *c = SYNC(base);
    struct mr_error why;
    int rc = 0;
    if (!c->buffer.store)
        return 0;
    sync_recover(&c->base);
    if (c->drainer) {
        rc = mr_checkpoint_drainer_idle(c->drainer, &why);
        int failed = mr_checkpoint_drainer_failure(c->drainer, rc ? NULL : &why);
        rc = rc ? rc : failed;
    }
    rc = agree(c, rc, &why);
    if (rc && err)
        *err = why;
    return rc;
}

static uint64_t sync_buffered(struct mr_checkpointer *base)
{
    struct sync *c = SYNC(base);
    return c->drainer ? mr_checkpoint_drainer_left(c->drainer) : 0;
}

static uint64_t sync_drains(struct mr_checkpointer *base, uint64_t first, struct mr_checkpoint_drained *out,
                            uint64_t cap)
{
    struct sync *c = SYNC(base);
    return c->drainer ? mr_checkpoint_drainer_records(c->drainer, first, out, cap) : 0;
}

/* ---- load ---- */

struct found {
    const struct mr_checkpoint_place *at;
    uint64_t step, newest; /* newest: of any, UINT64_MAX without one */
    enum mr_checkpoint_kind kind;
    bool exists, unfinished; /* the folder; something in it that is no checkpoint */
};

/* Looks in one place for the step, or for the newest (UINT64_MAX), and keeps what is better than what was found before.
 */
static int look_in(const struct mr_checkpoint_place *at, uint64_t step, struct found *f, struct mr_error *err)
{
    struct mr_checkpoint_dirs d = {0};
    struct mr_error why;
    int rc = mr_checkpoint_dirs_read(at->store, at->folder, &d, &why);
    if (rc == -ENOENT)
        return 0;
    if (rc) {
        if (err)
            *err = why;
        return rc;
    }
    f->exists = true;
    f->unfinished |= d.n > 0;
    for (size_t i = 0; i < d.n; i++) {
        uint64_t have = d.item[i].step;
        if (!mr_checkpoint_dirs_usable(&d, i))
            continue;
        f->newest = f->newest == UINT64_MAX ? have : MR_MAX(f->newest, have);
        if (step == UINT64_MAX ? !f->at || have > f->step : have == step && !f->at) {
            f->at = at;
            f->step = have;
            f->kind = d.item[i].kind;
        }
    }
    mr_checkpoint_dirs_done(&d);
    return 0;
}

/* The final folder counts before the burst buffer, where there is one. */
static int locate(struct sync *c, uint64_t step, struct found *out, struct mr_error *err)
{
    struct found f = {.newest = UINT64_MAX};
    int rc = look_in(&c->final, step, &f, err);
    if (!rc && c->buffer.store)
        rc = look_in(&c->buffer, step, &f, err);
    if (rc)
        return rc;
    if (f.at) {
        *out = f;
        return 0;
    }
    if (step == UINT64_MAX)
        return mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint in '%s'%s", c->final.folder,
                              !f.exists      ? ": the folder does not exist"
                              : f.unfinished ? ", only unfinished ones"
                                             : "");
    mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint of step %" PRIu64 " in '%s'", step,
                   c->final.folder);
    if (f.newest != UINT64_MAX)
        mr_error_hint(err, "the newest is of step %" PRIu64, f.newest);
    return MR_E_INCOMPLETE;
}

static int sync_newest(struct mr_checkpointer *base, uint64_t *step, struct mr_error *err)
{
    struct sync *c = SYNC(base);
    struct found f = {0};
    int rc = locate(c, UINT64_MAX, &f, err);
    if (!rc)
        *step = f.step;
    return rc;
}

/* Keeps what this rank reads. With as many ranks as saved that is one rank's share; with fewer or more, every file is
 * still read by exactly one rank (C5). */
static void keep_share(const struct mr_checkpoint_job *j, uint32_t shift, struct mr_checkpoint_list *l)
{
    size_t n = 0;
    uint32_t mine = (uint32_t)(((uint64_t)j->p->rank + shift) % j->p->world);
    for (size_t i = 0; i < l->n; i++)
        if (!j->at->shared || l->items[i].rank % j->p->world == mine)
            l->items[n++] = l->items[i];
    l->n = n;
}

static int load_share(struct sync *c, struct mr_checkpoint_job *j, uint64_t step, uint32_t shift,
                      char dir[MR_CHECKPOINT_PATH], struct mr_error *err)
{
    struct found f = {0};
    if (!(mr_store_caps(c->final.store) & MR_STORE_CAP_CONTENT)) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "the store keeps no content, so there is no checkpoint to load");
        mr_error_hint(err, "use a store that does: 'millrace help store'");
        return MR_E_UNSUPPORTED;
    }
    int rc = locate(c, step, &f, err);
    if (rc)
        return rc;
    j->at = f.at;
    mr_checkpoint_dir_path(f.at->folder, f.step, f.kind, dir);
    rc = mr_checkpoint_read_list(f.at, dir, &j->list, err);
    if (rc)
        return rc;
    if (j->list.step != f.step)
        return mr_error_plain(err, MR_E_CORRUPT,
                              "'%s/" MR_CHECKPOINT_LIST_NAME "' is of step %" PRIu64
                              ", its folder's name says %" PRIu64,
                              dir, j->list.step, f.step);
    keep_share(j, shift, &j->list);
    return mr_checkpoint_read_share(j, err);
}

/* The buffer must not be freed while it is read. Drains that failed have been told; they free nothing. */
static int settle_drains(struct sync *c, struct mr_error *err)
{
    if (!c->buffer.store)
        return 0;
    sync_recover(&c->base);
    return agree(c, c->drainer ? mr_checkpoint_drainer_idle(c->drainer, err) : 0, err);
}

static int sync_load(struct mr_checkpointer *base, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                     struct mr_error *err)
{
    struct sync *c = SYNC(base);
    char dir[MR_CHECKPOINT_PATH] = "";
    struct mr_checkpoint_job j = {.p = &c->p, .at = &c->final, .dir = dir, .stopped = c->p.stopped, .user = c->p.user};
    uint64_t start = mr_now_ns();
    int rc = settle_drains(c, err);
    uint64_t wait_ns = mr_now_ns() - start;
    if (!rc)
        rc = agree(c, load_share(c, &j, step, shift, dir, err), err);
    if (!rc) {
        *out = result_of(&j, dir);
        out->duration_ns = mr_now_ns() - start;
        out->wait_ns = wait_ns;
        out->buffered = j.at == &c->buffer;
        out->read_ns = atomic_load(&j.io_ns);
    }
    mr_checkpoint_list_done(&j.list);
    return rc;
}

const struct mr_checkpoint_engine_ops mr_checkpoint_sync_engine = {
    .abi = MR_CHECKPOINT_ENGINE_ABI,
    .size = sizeof(struct mr_checkpoint_engine_ops),
    .name = "sync",
    .doc = "Training waits while all ranks write, to the final folder or a burst buffer, which is drained meanwhile.",
    .open = sync_open,
    .close = sync_close,
    .save = sync_save,
    .load = sync_load,
    .newest = sync_newest,
    .recover = sync_recover,
    .drain = sync_drain,
    .buffered = sync_buffered,
    .drains = sync_drains,
};
