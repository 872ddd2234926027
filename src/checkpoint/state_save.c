/* How a save becomes a checkpoint without its ranks talking: see the header and doc/guides/state.md.
 *
 *   leader   clear, mkdir step-N.tmp, begin-ID ─────────────── wait for parts ─ join, list, rename
 *   others   wait for begin-ID ─ file, sums, state ─ rank-R.part ──┘              wait for the name
 *
 * The folder is the only means of communication: a rank that cannot go on leaves rank-R.fail with its reason, the
 * leader that gives up removes the folder. */
#include "checkpoint/state_save.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/workers.h"
#include "checkpoint/checkpoint_hash.h"
#include "checkpoint/state_image.h"
#include "event/emit.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FILE_PATH (MR_CHECKPOINT_PATH + 256)
#define POLL_FIRST_NS (200 * 1000ull)
#define POLL_LAST_NS (50 * 1000 * 1000ull)
#define FAIL_MAX 4096
#define PATIENCE_LEAST 20 /* of the timeout: for a rank that is back */

void mr_save_file_name(uint32_t rank, const char *ending, char out[64])
{
    snprintf(out, 64, "rank-%05u%s", rank, ending);
}

static void in_folder(const char *dir, uint32_t rank, const char *ending, char out[FILE_PATH])
{
    char name[64];
    mr_save_file_name(rank, ending, name);
    snprintf(out, FILE_PATH, "%s/%s", dir, name);
}

static void tmp_of(const struct mr_save_place *p, const struct mr_save *s, char out[MR_CHECKPOINT_PATH])
{
    mr_checkpoint_dir_path(p->at.folder, s->step, MR_CHECKPOINT_TMP, out);
}

static void tell(const struct mr_save_place *p, enum mr_span what, const struct mr_save *s, uint64_t start,
                 uint64_t bytes)
{
    struct mr_where at = MR_NOWHERE;
    at.step = s->step;
    mr_emit(p->events, what, start, mr_now_ns(), &at, (int64_t)bytes);
}

/* ---- waiting for what another rank does in the folder ---- */

struct polling {
    uint64_t pause_ns, deadline_ns;
};

static struct polling start_polling(const struct mr_save_place *p, const struct mr_save *s)
{
    return (struct polling){POLL_FIRST_NS, mr_now_ns() + (s->patience_ns ? s->patience_ns : p->timeout_ns)};
}

uint64_t mr_save_patience(const struct mr_save_place *p, uint64_t made_ns)
{
    uint64_t now = mr_now_ns(), until = made_ns + p->timeout_ns, least = p->timeout_ns / PATIENCE_LEAST;
    return until > now + least ? until - now : least;
}

/* 0 to look again; MR_E_TIMEOUT, MR_E_INTERRUPTED. */
static int pause_polling(const struct mr_save_place *p, struct polling *w)
{
    if (atomic_load(p->stop))
        return MR_E_INTERRUPTED;
    if (mr_now_ns() > w->deadline_ns)
        return MR_E_TIMEOUT;
    mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + w->pause_ns, p->stop);
    w->pause_ns = MR_MIN(2 * w->pause_ns, POLL_LAST_NS);
    return 0;
}

static bool is_there(const struct mr_save_place *p, const char *path)
{
    struct mr_store_stat st;
    return p->at.store->ops->stat(p->at.store, path, &st, NULL) == 0;
}

/* The reason a rank left behind. */
static int read_failure(const struct mr_save_place *p, const char *dir, uint32_t rank, struct mr_error *err)
{
    char path[FILE_PATH];
    void *text;
    size_t len;
    in_folder(dir, rank, ".fail", path);
    if (!is_there(p, path) || mr_store_read_file(p->at.store, path, FAIL_MAX, &text, &len, NULL))
        return 0;
    mr_error_plain(err, MR_E_PEER, "rank %u could not save: %.*s", rank, (int)len, (char *)text);
    free(text);
    return MR_E_PEER;
}

/* What the leader leaves of a save it gave up, in the folder above: who waits for its beginning or its end learns. */
static void failed_path(const struct mr_save_place *p, const struct mr_save *s, char out[FILE_PATH])
{
    snprintf(out, FILE_PATH, "%s/.failed-%s%s", p->at.folder, s->id, s->by);
}

static int leader_failed(const struct mr_save_place *p, const struct mr_save *s, struct mr_error *err)
{
    char path[FILE_PATH];
    void *text;
    size_t len;
    failed_path(p, s, path);
    if (!is_there(p, path) || mr_store_read_file(p->at.store, path, FAIL_MAX, &text, &len, NULL))
        return 0;
    mr_error_plain(err, MR_E_PEER, "rank 0 gave up the save of step %" PRIu64 ": %.*s", s->step, (int)len,
                   (char *)text);
    free(text);
    return MR_E_PEER;
}

static int gave_up(int rc, struct mr_error *err, const struct mr_save *s, const char *what, uint32_t rank)
{
    mr_error_plain(err, rc, "step %" PRIu64 ": rank %u did not %s %s", s->step, rank, what,
                   rc == MR_E_TIMEOUT ? "in time" : "before the end");
    if (rc == MR_E_TIMEOUT)
        mr_error_hint(
            err, "is that rank alive, and does it save the same steps? commit_timeout_s is how long the others wait");
    return rc;
}

/* ---- the beginning ---- */

static int remove_failed(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    const struct mr_save_place *p = user;
    char path[FILE_PATH];
    (void)is_dir, (void)err;
    if (strncmp(name, ".failed-", 8) == 0) {
        snprintf(path, sizeof path, "%s/%s", p->at.folder, name);
        p->at.store->ops->unlink(p->at.store, path, NULL);
    }
    return 0;
}

void mr_save_forget_failures(const struct mr_save_place *p)
{
    p->at.store->ops->list(p->at.store, p->at.folder, remove_failed, (void *)(uintptr_t)p, NULL);
}

static void marker_of(const char *tmp, const struct mr_save *s, char out[FILE_PATH])
{
    snprintf(out, FILE_PATH, "%s/begin-%s%s", tmp, s->id, s->by);
}

static int put_file(const struct mr_save_place *p, const char *path, const void *data, size_t len, bool durable,
                    struct mr_error *err)
{
    struct mr_object *o = NULL;
    int rc = mr_object_open(p->at.store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, err);
    if (!rc && len)
        rc = mr_object_write(o, data, len, 0, err);
    if (!rc && durable)
        rc = o->store->ops->fsync(o, err);
    int closed = mr_object_close(o, rc ? NULL : err);
    return rc ? rc : closed;
}

static int wait_for_begin(const struct mr_save_place *p, const struct mr_save *s, const char *marker,
                          struct mr_error *err)
{
    struct polling w = start_polling(p, s);
    while (!is_there(p, marker)) {
        int rc = leader_failed(p, s, err);
        if (rc)
            return rc;
        rc = pause_polling(p, &w);
        if (rc)
            return gave_up(rc, err, s, "begin this save", 0);
    }
    return 0;
}

/* Space and, at once, the length: file systems let only one thread at a time write past the end of a file. */
static int make_room(struct mr_object *o, uint64_t bytes, struct mr_error *err)
{
    int rc = o->store->ops->allocate(o, bytes, err);
    if (!rc)
        rc = o->store->ops->truncate(o, bytes, err);
    return rc == MR_E_UNSUPPORTED ? 0 : rc;
}

int mr_save_begin(const struct mr_save_place *p, struct mr_save *s, struct mr_error *err)
{
    char tmp[MR_CHECKPOINT_PATH], path[FILE_PATH];
    tmp_of(p, s, tmp);
    marker_of(tmp, s, path);
    int rc;
    if (p->at.lead) {
        rc = mr_checkpoint_begin(&p->at, tmp, err);
        if (!rc && p->world > 1)
            rc = put_file(p, path, "", 0, false, err);
    } else {
        rc = wait_for_begin(p, s, path, err);
        s->leader_is_gone = rc != 0;
    }
    in_folder(tmp, p->rank, MR_SAVE_TENSORS, path);
    unsigned flags = MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE | (p->direct ? MR_OBJ_DIRECT : 0);
    if (!rc)
        rc = mr_object_open(p->at.store, path, flags, &s->file, err);
    return rc ? rc : make_room(s->file, s->bytes, err);
}

/* ---- this rank's part ---- */

/* The files of a rank's part, open until all are durable. */
#define PART_FILES 4
struct part_files {
    struct mr_object *file[PART_FILES];
    size_t n;
};

static int sync_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct part_files *f = ctx->user;
    return f->file[index]->store->ops->fsync(f->file[index], err);
}

/* Flushes all at once, so that they share what a flush costs, and closes them; the first error. */
static int finish_files(const struct mr_save_place *p, const struct mr_save *s, struct part_files *f, int rc,
                        struct mr_error *err)
{
    uint64_t start = mr_now_ns();
    if (!rc && p->at.fsync) {
        rc = mr_workers_run((unsigned)f->n, f->n, 1, sync_one, f, NULL, err);
        if (!rc)
            tell(p, MR_SPAN_CKPT_FSYNC, s, start, s->bytes);
    }
    for (size_t i = 0; i < f->n; i++) {
        int closed = mr_object_close(f->file[i], rc ? NULL : err);
        rc = rc ? rc : closed;
    }
    return rc;
}

/* A small file of this rank and its row in the list. */
static int put_entry(const struct mr_save_place *p, const char *tmp, const char *ending, const void *data, size_t len,
                     struct mr_checkpoint_list *l, struct part_files *f, struct mr_error *err)
{
    char path[FILE_PATH];
    struct mr_object *o;
    struct mr_checkpoint_entry *e = &l->items[l->n++];
    mr_save_file_name(p->rank, ending, e->name);
    e->bytes = len;
    e->hash = XXH3_64bits(data, len);
    e->rank = p->rank;
    in_folder(tmp, p->rank, ending, path);
    int rc = mr_object_open(p->at.store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, err);
    if (rc)
        return rc;
    f->file[f->n++] = o;
    return len ? mr_object_write(o, data, len, 0, err) : 0;
}

static int put_sums(const struct mr_save_place *p, const struct mr_save *s, const char *tmp,
                    struct mr_checkpoint_list *l, struct part_files *f, struct mr_error *err)
{
    size_t words = 3 + s->chunks;
    uint64_t *out = calloc(words, sizeof(*out));
    if (!out)
        return mr_error_set(err, -ENOMEM, "cannot write checksums");
    memcpy(out, MR_SAVE_SUMS_MAGIC, 8);
    out[1] = htole64(MR_STATE_CHUNK);
    out[2] = htole64(s->chunks);
    for (size_t i = 0; i < s->chunks; i++)
        out[3 + i] = htole64(s->sum[i]);
    int rc = put_entry(p, tmp, MR_SAVE_SUMS, out, words * sizeof(*out), l, f, err);
    free(out);
    return rc;
}

/* All files of this rank, complete; the list of them in `l`, whose items the caller frees. */
static int make_part(const struct mr_save_place *p, struct mr_save *s, const char *tmp, struct mr_checkpoint_list *l,
                     struct mr_error *err)
{
    struct part_files f = {.file = {s->file}, .n = 1};
    *l = (struct mr_checkpoint_list){.step = s->step, .world = p->world, .fsync = p->at.fsync};
    snprintf(l->save, sizeof l->save, "%s", s->id);
    l->items = calloc(PART_FILES, sizeof(*l->items));
    if (!l->items)
        return mr_error_set(err, -ENOMEM, "cannot list the files of step %" PRIu64, s->step);
    s->file = NULL; /* closed with the others */
    struct mr_checkpoint_entry *e = &l->items[l->n++];
    mr_save_file_name(p->rank, MR_SAVE_TENSORS, e->name);
    e->bytes = s->bytes;
    e->chunk_bytes = MR_STATE_CHUNK;
    e->hash = mr_checkpoint_hash_of_chunks(s->sum, s->chunks);
    e->rank = p->rank;
    int rc = put_sums(p, s, tmp, l, &f, err);
    if (!rc && s->json)
        rc = put_entry(p, tmp, MR_SAVE_STATE, s->json, strlen(s->json), l, &f, err);
    if (!rc && s->loader)
        rc = put_entry(p, tmp, MR_SAVE_LOADER, s->loader, strlen(s->loader), l, &f, err);
    return finish_files(p, s, &f, rc, err);
}

/* Not the leader: hands the list over by one rename, and waits for what the leader makes of it. */
static int hand_over(const struct mr_save_place *p, const char *tmp, const struct mr_checkpoint_list *l,
                     struct mr_error *err)
{
    char half[FILE_PATH], part[FILE_PATH];
    char *text;
    in_folder(tmp, p->rank, ".half", half);
    in_folder(tmp, p->rank, ".part", part);
    int rc = mr_checkpoint_list_encode(l, &text, err);
    if (rc)
        return rc;
    rc = put_file(p, half, text, strlen(text), p->at.fsync, err);
    free(text);
    if (!rc && p->at.fsync)
        rc = p->at.store->ops->sync_dir(p->at.store, tmp, err);
    return rc ? rc : p->at.store->ops->rename(p->at.store, half, part, err);
}

static int wait_for_name(const struct mr_save_place *p, struct mr_save *s, const char *tmp, struct mr_error *err)
{
    char final[MR_CHECKPOINT_PATH];
    struct polling w = start_polling(p, s);
    mr_checkpoint_dir_path(p->at.folder, s->step, MR_CHECKPOINT_COMPLETE, final);
    for (;;) {
        struct mr_checkpoint_list l;
        bool under_way = is_there(p, tmp); /* before the look at the name: between the two it can only be given */
        if (mr_checkpoint_read_list(&p->at, final, &l, NULL) == 0) {
            bool ours = strcmp(l.save, s->id) == 0;
            mr_checkpoint_list_done(&l);
            if (ours) {
                s->durable_ns = mr_now_ns();
                return 0;
            }
        }
        int rc = leader_failed(p, s, err);
        if (rc)
            return rc;
        if (!under_way)
            return mr_error_plain(err, MR_E_PEER, "step %" PRIu64 " was given up by rank 0: its messages say why",
                                  s->step);
        rc = pause_polling(p, &w);
        if (rc)
            return gave_up(rc, err, s, "complete this save", 0);
    }
}

/* ---- the leader ---- */

static int wait_for_parts(const struct mr_save_place *p, const struct mr_save *s, const char *tmp, struct mr_error *err)
{
    struct polling w = start_polling(p, s);
    for (uint32_t r = 1; p->at.shared && r < p->world; r++) {
        char part[FILE_PATH];
        in_folder(tmp, r, ".part", part);
        while (!is_there(p, part)) {
            int rc = 0;
            for (uint32_t k = r; k < p->world && !rc; k++)
                rc = read_failure(p, tmp, k, err);
            if (rc)
                return rc;
            rc = pause_polling(p, &w);
            if (rc)
                return gave_up(rc, err, s, "finish its part", r);
        }
    }
    return 0;
}

static int publish(const struct mr_save_place *p, struct mr_save *s, const char *tmp, struct mr_checkpoint_list *mine,
                   struct mr_error *err)
{
    char final[MR_CHECKPOINT_PATH], path[FILE_PATH], latest[32];
    struct mr_checkpoint_params params = {.rank = p->rank, .world = p->world, .events = p->events};
    struct mr_checkpoint_place at = p->at;
    struct mr_checkpoint_job j = {.p = &params, .at = &at, .dir = tmp, .list = *mine};
    at.keep_last = 0; /* removing the old ones takes long: after this one is there */
    struct mr_checkpoint_list all;
    int rc = mr_checkpoint_join(&j, &all, err);
    if (rc)
        return rc;
    snprintf(all.save, sizeof all.save, "%s", s->id);
    marker_of(tmp, s, path);
    if (p->world > 1)
        rc = p->at.store->ops->unlink(p->at.store, path, err);
    mr_checkpoint_dir_path(p->at.folder, s->step, MR_CHECKPOINT_COMPLETE, final);
    if (!rc)
        rc = mr_checkpoint_publish(&j, &all, final, err);
    mr_checkpoint_list_done(&all);
    if (rc)
        return rc;
    s->durable_ns = mr_now_ns();
    snprintf(path, sizeof path, "%s/latest", p->at.folder);
    snprintf(latest, sizeof latest, "step-%012" PRIu64 "\n", s->step);
    rc = mr_store_write_file(p->at.store, path, latest, strlen(latest), err);
    if (rc && err)
        mr_error_context(err, "the checkpoint of step %" PRIu64 " is complete, only the pointer to it is not", s->step);
    return !rc && p->at.keep_last ? mr_checkpoint_retire_older(&p->at, s->step, err) : rc;
}

int mr_save_commit(const struct mr_save_place *p, struct mr_save *s, struct mr_error *err)
{
    char tmp[MR_CHECKPOINT_PATH];
    struct mr_checkpoint_list mine;
    struct mr_error why;
    tmp_of(p, s, tmp);
    int rc = make_part(p, s, tmp, &mine, &why);
    if (!rc && p->at.lead)
        rc = wait_for_parts(p, s, tmp, &why);
    if (!rc)
        rc = p->at.lead ? publish(p, s, tmp, &mine, &why) : hand_over(p, tmp, &mine, &why);
    mr_checkpoint_list_done(&mine);
    if (rc)
        mr_save_abandon(p, s, &why);
    else if (!p->at.lead)
        rc = wait_for_name(p, s, tmp, &why);
    if (rc && err)
        *err = why;
    return rc;
}

void mr_save_abandon(const struct mr_save_place *p, struct mr_save *s, const struct mr_error *why)
{
    char tmp[MR_CHECKPOINT_PATH], path[FILE_PATH];
    tmp_of(p, s, tmp);
    mr_object_close(s->file, NULL);
    s->file = NULL;
    if (p->at.lead) {
        failed_path(p, s, path);
        if (p->world > 1)
            put_file(p, path, why->message, strlen(why->message), false, NULL);
        mr_checkpoint_dir_remove(p->at.store, tmp, NULL);
        return;
    }
    if (s->leader_is_gone)
        return;
    marker_of(tmp, s, path); /* before it is there, the word would be lost and the leader wait for its whole time */
    if (wait_for_begin(p, s, path, NULL))
        return;
    in_folder(tmp, p->rank, ".fail", path);
    put_file(p, path, why->message, strlen(why->message), false, NULL);
}
