/* How a save becomes a checkpoint without its ranks talking: see the header and doc/guides/state.md.
 *
 *   leader   clear, mkdir step-N.tmp, begin-ID ─────────────── wait for parts ─ join, list, rename
 *   others   wait for begin-ID ─ file, sums, state ─ rank-R.part ──┘              wait for the name
 *
 * The folder is the only means of communication: a rank that cannot go on leaves rank-R.fail with its reason, the
 * leader that gives up removes the folder. With `agree` each of the three phases (begin, write, publish) ends with a
 * call of it instead, which every rank reaches whatever happened to it (C4). */
#include "checkpoint/state_save.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/workers.h"
#include "checkpoint/checkpoint_read.h"
#include "checkpoint/state_pace.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define OPEN_AT_ONCE 64 /* files of a rank: more are opened as they are written */
#define SMALL_FILES 3   /* of a rank: checksums, state, loader */
#define POLL_FIRST_NS (200 * 1000ull)
#define POLL_LAST_NS (50 * 1000 * 1000ull)
#define FAIL_MAX 4096
#define LATEST "latest"
#define PATIENCE_LEAST 20 /* of the timeout: for a rank that is back */
#define TIMEOUT_DEFAULT_S 600

int mr_save_place_open(const struct mr_saver_params *p, const struct mr_saver_hooks *hooks, const atomic_bool *stop,
                       struct mr_save_place *out, struct mr_error *err)
{
    if (p->world < 1 || p->rank >= p->world)
        return mr_error_plain(err, MR_E_USAGE, "rank %u of %u ranks does not exist", p->rank, p->world);
    if (p->world > 1 && (!p->job || !*p->job))
        return mr_error_plain(err, MR_E_USAGE, "%u ranks need a common `job`: a text that no other job has", p->world);
    if (p->tiers > MR_SAVER_TIERS)
        return mr_error_plain(err, MR_E_USAGE, "%zu tiers, at most %d are possible", p->tiers, MR_SAVER_TIERS);
    uint64_t id = p->job ? XXH3_64bits(p->job, strlen(p->job)) : mr_wall_ns() ^ ((uint64_t)getpid() << 40);
    *out = (struct mr_save_place){
        .rank = p->rank,
        .world = p->world,
        .direct = p->direct,
        .timeout_ns = (uint64_t)(p->commit_timeout_s ? p->commit_timeout_s : TIMEOUT_DEFAULT_S) * MR_NS_PER_S,
        .stop = stop,
        .events = p->events,
        .hooks = *hooks};
    snprintf(out->job, sizeof out->job, "%016" PRIx64, id);
    int rc = mr_checkpoint_place_open(p->folder, p->store, p->rank, p->events, &out->at, err);
    out->at.fsync = p->fsync;
    out->at.keep_last = p->keep_last;
    return rc;
}

struct mr_path mr_save_file_name(uint32_t rank, const char *ending)
{
    return mr_path("rank-%05u%s", rank, ending);
}

static struct mr_path tmp_of(const struct mr_save *s)
{
    return mr_checkpoint_dir_path(s->place->at.folder, s->step, MR_CHECKPOINT_TMP);
}

/* Where its files are written; on object storage where they stay. */
static struct mr_path files_of(const struct mr_save *s)
{
    return mr_checkpoint_dir_path(s->place->at.folder, s->step, s->target);
}

/* What a rank leaves there: its part of the list, or why it has none. */
static struct mr_path left_by(const struct mr_save *s, uint32_t rank, const char *ending)
{
    return mr_path("%s/%s", tmp_of(s).text, mr_save_file_name(rank, ending).text);
}

static struct mr_path marker_of(const struct mr_save *s)
{
    return mr_path("%s/begin-%s%s", tmp_of(s).text, s->id, s->by);
}

/* What the leader leaves of a save it gave up, in the folder above: who waits for its beginning or its end learns. */
static struct mr_path failed_path(const struct mr_save *s)
{
    return mr_path("%s/.failed-%s%s", s->place->at.folder, s->id, s->by);
}

static void tell(const struct mr_save *s, enum mr_span what, uint64_t start, uint64_t bytes)
{
    mr_checkpoint_emit(s->place->events, what, s->step, start, mr_now_ns(), bytes);
}

void mr_failure_keep(struct mr_failure *f, int code, const struct mr_error *why)
{
    if (!f->code)
        *f = (struct mr_failure){code, *why};
}

int mr_failure_get(struct mr_failure *f, bool forget, struct mr_error *err)
{
    int rc = f->code;
    if (rc && err)
        *err = f->why;
    f->code = forget ? 0 : rc;
    return rc;
}

static bool is_stopped(const struct mr_save_place *p)
{
    return atomic_load(p->stop) || (p->hooks.stopped && p->hooks.stopped(p->hooks.user));
}

int mr_save_agree(const struct mr_save_place *p, int rc, struct mr_error *err)
{
    return p->hooks.agree ? p->hooks.agree(p->hooks.user, rc, err) : rc;
}

/* ---- the files of a save ---- */

size_t mr_save_chunks(uint64_t bytes, uint64_t chunk_bytes)
{
    return (size_t)(bytes / chunk_bytes + (bytes % chunk_bytes != 0));
}

int mr_save_init(struct mr_save *s, const struct mr_checkpoint_entry *file, size_t files, uint64_t chunk_bytes)
{
    pthread_mutex_init(&s->lock, NULL);
    s->file = mr_arena_alloc(&s->memory, (files + SMALL_FILES) * sizeof(*s->file));
    s->files = s->file ? files : 0;
    s->chunk_bytes = chunk_bytes;
    s->target = MR_CHECKPOINT_TMP;
    for (size_t i = 0; i < s->files; i++) {
        s->file[i] = (struct mr_save_file){.is = file[i], .left = file[i].bytes, .first = s->chunks};
        s->bytes += file[i].bytes;
        if (chunk_bytes) {
            s->file[i].is.chunk_bytes = chunk_bytes;
            s->chunks += mr_save_chunks(file[i].bytes, chunk_bytes);
        }
    }
    s->sum = mr_arena_alloc(&s->memory, s->chunks * sizeof(*s->sum));
    return s->file && s->sum ? 0 : -ENOMEM;
}

void mr_save_again(struct mr_save *s, struct mr_save_place *place)
{
    for (size_t i = 0; i < s->files; i++) {
        s->file[i].opened = false;
        s->file[i].left = s->file[i].is.bytes;
    }
    s->begun = false;
    s->place = place;
    s->target = MR_CHECKPOINT_TMP;
}

static int close_object(struct mr_object *o, int rc, struct mr_error *err)
{
    if (rc)
        mr_object_abandon(o);
    int closed = mr_object_close(o, rc ? NULL : err);
    return rc ? rc : closed;
}

/* The first error. */
static int close_files(struct mr_save *s, int rc, struct mr_error *err)
{
    for (size_t i = 0; i < s->files + s->small; i++) {
        rc = close_object(s->file[i].object, rc, err);
        s->file[i].object = NULL;
    }
    return rc;
}

void mr_save_done(struct mr_save *s)
{
    pthread_mutex_destroy(&s->lock);
    mr_arena_done(&s->memory);
}

static int compare_chunk(const void *index, const void *file)
{
    const struct mr_save_file *f = file;
    size_t i = *(const size_t *)index;
    return i < f->first ? -1 : i - f->first >= mr_save_chunks(f->is.bytes, f->is.chunk_bytes);
}

struct mr_save_file *mr_save_chunk(const struct mr_save *s, size_t index, uint64_t *at, size_t *n)
{
    struct mr_save_file *f = bsearch(&index, s->file, s->files, sizeof(*f), compare_chunk);
    *at = (index - f->first) * s->chunk_bytes;
    *n = (size_t)MR_MIN(s->chunk_bytes, f->is.bytes - *at);
    return f;
}

/* ---- waiting for what another rank does in the folder ---- */

struct mr_save_wait mr_save_wait_for(const struct mr_save_place *p, uint64_t made_ns)
{
    uint64_t now = mr_now_ns(), rest = MR_MAX(made_ns + p->timeout_ns, now + p->timeout_ns / PATIENCE_LEAST);
    return (struct mr_save_wait){POLL_FIRST_NS, p->rank_is_late ? rest : now + p->timeout_ns};
}

int mr_save_wait(const struct mr_save_place *p, struct mr_save_wait *w, uint32_t rank, const char *what,
                 struct mr_error *err)
{
    int rc = is_stopped(p) ? MR_E_INTERRUPTED : mr_now_ns() > w->deadline_ns ? MR_E_TIMEOUT : 0;
    if (rc)
        mr_error_plain(err, rc, "rank %u did not %s %s", rank, what, rc == MR_E_TIMEOUT ? "in time" : "before the end");
    if (rc == MR_E_TIMEOUT)
        mr_error_hint(
            err, "is that rank alive, and does it save the same steps? commit_timeout_s is how long the others wait");
    if (rc)
        return rc;
    mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + w->pause_ns, p->stop);
    w->pause_ns = MR_MIN(2 * w->pause_ns, POLL_LAST_NS);
    return 0;
}

/* 1, 0, or the error of the look, which says nothing about the other rank. */
static int is_there(const struct mr_save *s, const char *path)
{
    struct mr_store_stat st;
    return mr_store_look(s->place->at.store, path, &st, NULL);
}

/* The reason that is in this file; 0: there is none. */
static int read_failure(const struct mr_save *s, const char *path, const char *what, struct mr_error *err)
{
    void *text;
    size_t len;
    if (mr_store_read_file(s->place->at.store, path, FAIL_MAX, &text, &len, NULL))
        return 0;
    mr_error_plain(err, MR_E_PEER, "%s: %.*s", what, (int)len, (char *)text);
    free(text);
    return MR_E_PEER;
}

/* Why another rank gave up; 0: none has. The leader looks at the ranks from `first` on, the others at the leader. */
static int look_for_failure(const struct mr_save *s, uint32_t first, struct mr_error *err)
{
    char what[64];
    int rc = 0;
    snprintf(what, sizeof what, "rank 0 gave up the save of step %" PRIu64, s->step);
    if (!s->place->at.lead)
        return read_failure(s, failed_path(s).text, what, err);
    for (uint32_t r = first; r < s->place->world && !rc; r++) {
        snprintf(what, sizeof what, "rank %u could not save", r);
        rc = read_failure(s, left_by(s, r, ".fail").text, what, err);
    }
    return rc;
}

/* One look at what other ranks do, and a pause. */
static int look_and_wait(const struct mr_save *s, struct mr_save_wait *w, uint32_t rank, const char *what,
                         struct mr_error *err)
{
    int rc = look_for_failure(s, rank, err);
    if (rc)
        return rc;
    rc = mr_save_wait(s->place, w, rank, what, err);
    if (rc)
        mr_error_context(err, "the save of step %" PRIu64, s->step);
    return rc;
}

static int wait_for_begin(const struct mr_save *s, struct mr_error *err)
{
    struct mr_path marker = marker_of(s);
    struct mr_save_wait w = mr_save_wait_for(s->place, s->made_ns);
    int rc = 0;
    while (!rc && is_there(s, marker.text) <= 0)
        rc = look_and_wait(s, &w, 0, "begin this save", err);
    return rc;
}

static int wait_for_parts(const struct mr_save *s, struct mr_error *err)
{
    struct mr_save_wait w = mr_save_wait_for(s->place, s->made_ns);
    int rc = 0;
    for (uint32_t r = 1; s->place->at.shared && r < s->place->world && !rc; r++)
        while (!rc && is_there(s, left_by(s, r, ".part").text) <= 0)
            rc = look_and_wait(s, &w, r, "finish its part", err);
    return rc;
}

static int wait_for_name(struct mr_save *s, struct mr_error *err)
{
    enum mr_checkpoint_kind kind = s->place->at.by_list ? s->target : MR_CHECKPOINT_COMPLETE;
    struct mr_path final = mr_checkpoint_dir_path(s->place->at.folder, s->step, kind);
    struct mr_save_wait w = mr_save_wait_for(s->place, s->made_ns);
    int rc = 0;
    while (!rc) {
        bool under_way =
            is_there(s, tmp_of(s).text) != 0; /* first: between the two looks it can only be given its name */
        if (mr_checkpoint_is_of(&s->place->at, final.text, s->id)) {
            s->durable_ns = mr_now_ns();
            return 0;
        }
        rc = look_and_wait(s, &w, 0, "complete this save", err);
        if (!rc && !under_way)
            rc = mr_error_plain(err, MR_E_PEER, "step %" PRIu64 " was given up by rank 0: its messages say why",
                                s->step);
    }
    return rc;
}

/* ---- the beginning ---- */

static int forget_one(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    const struct mr_save_place *p = user;
    bool failed = strncmp(name, ".failed-", 8) == 0, have = strncmp(name, MR_SAVE_HAVE, strlen(MR_SAVE_HAVE)) == 0;
    bool torn = strncmp(name, LATEST ".tmp.", strlen(LATEST ".tmp.")) == 0; /* mr_store_write_file was killed */
    struct mr_path path = mr_path("%s/%s", p->at.folder, name);
    (void)err;
    if (failed || torn || (have && !strstr(name, p->job)))
        (is_dir ? mr_checkpoint_dir_remove : p->at.store->ops->unlink)(p->at.store, path.text, NULL);
    return 0;
}

void mr_save_forget(const struct mr_save_place *p)
{
    p->at.store->ops->list(p->at.store, p->at.folder, forget_one, (void *)(uintptr_t)p, NULL);
}

static int sync_object(struct mr_save *s, struct mr_object *o, struct mr_error *err)
{
    if (!s->place->at.fsync)
        return 0;
    uint64_t start = mr_now_ns();
    int rc = o->store->ops->fsync(o, err);
    atomic_fetch_add(&s->fsync_ns, mr_now_ns() - start);
    if (!rc)
        tell(s, MR_SPAN_CKPT_FSYNC, start, 0);
    return rc;
}

/* A text in the folder. `passes`: for another rank to see, nothing that has to be durable. */
static int put_text(struct mr_save *s, struct mr_path path, const char *text, bool passes, struct mr_error *err)
{
    struct mr_object *o = NULL;
    unsigned flags = MR_OBJ_WRITE | MR_OBJ_CREATE | (passes ? MR_OBJ_TRUNCATE : MR_OBJ_EXCLUSIVE);
    int rc = mr_object_open(s->place->at.store, path.text, flags, &o, err);
    if (!rc && *text)
        rc = mr_object_write(o, text, strlen(text), 0, err);
    if (!rc && !passes)
        rc = sync_object(s, o, err);
    return close_object(o, rc, err);
}

/* A list in the folder of the save; with fsync it, and the folder, are durable. */
static int put_list(struct mr_save *s, struct mr_path path, const struct mr_checkpoint_list *l, struct mr_error *err)
{
    const struct mr_checkpoint_place *at = &s->place->at;
    char *text;
    int rc = mr_checkpoint_list_encode(l, &text, err);
    if (rc)
        return rc;
    rc = put_text(s, path, text, false, err);
    free(text);
    return rc || !at->fsync ? rc : at->store->ops->sync_dir(at->store, tmp_of(s).text, err);
}

/* Space and, at once, the length: file systems let only one thread at a time write past the end of a file. */
static int make_room(struct mr_object *o, uint64_t bytes, struct mr_error *err)
{
    if (!(mr_store_caps(o->store) & MR_STORE_CAP_OFFSET_WRITE)) /* such a store writes at the end only */
        return 0;
    int rc = o->store->ops->allocate(o, bytes, err);
    rc = rc ? rc : o->store->ops->truncate(o, bytes, err);
    return rc == MR_E_UNSUPPORTED ? 0 : rc;
}

/* The lock is held, or nobody else is there yet. */
static int open_file(const struct mr_save *s, struct mr_save_file *f, struct mr_error *err)
{
    struct mr_path path = mr_path("%s/%s", files_of(s).text, f->is.name);
    /* Exclusive: the folder is new, so a file that exists is another rank's of the same name. */
    unsigned flags = MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE;
    if (s->place->direct && f->left)
        flags |= MR_OBJ_DIRECT;
    int rc = mr_object_open(s->place->at.store, path.text, flags, &f->object, err);
    f->opened = !rc;
    if (rc == -EEXIST)
        rc = mr_error_plain(err, MR_E_USAGE, "two ranks write a checkpoint file named '%s'", f->is.name);
    return rc ? rc : make_room(f->object, f->is.bytes, err);
}

int mr_save_begin(struct mr_save *s, struct mr_error *err)
{
    const struct mr_save_place *p = s->place;
    int rc = 0;
    if (p->at.lead) {
        rc = mr_checkpoint_begin(&p->at, s->step, err);
        if (!rc && p->world > 1 && !p->hooks.agree)
            rc = put_text(s, marker_of(s), "", true, err);
    } else if (!p->hooks.agree) {
        rc = wait_for_begin(s, err);
        s->leader_is_gone = rc != 0;
    }
    rc = mr_save_agree(p, rc, err);
    s->begun = !rc;
    /* the same on all ranks: none is published before all parts are there */
    rc = rc ? rc : mr_checkpoint_target(&p->at, s->step, &s->target, err);
    for (size_t i = 0; i < s->files && i < OPEN_AT_ONCE && !rc && !p->hooks.agree; i++)
        rc = open_file(s, &s->file[i], err);
    return rc;
}

int mr_save_write(struct mr_save *s, struct mr_save_file *f, uint64_t at, const void *buf, size_t n,
                  struct mr_error *err)
{
    const struct mr_save_place *p = s->place;
    bool last_leg = s->drained || !p->at.base; /* to the folder, or one after the other through tiers */
    const struct mr_pace_way way = {s->pace, p->at.device, last_leg, p->at.fsync && !p->direct, p->stop};
    struct mr_object *whole = NULL;
    if (is_stopped(p))
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted in the checkpoint of step %" PRIu64, s->step);
    pthread_mutex_lock(&s->lock);
    int rc = f->opened ? 0 : open_file(s, f, err);
    pthread_mutex_unlock(&s->lock);
    if (rc)
        return rc;
    uint64_t start = mr_now_ns();
    rc = mr_pace_move(&way, f->object, buf, NULL, n, at, err);
    atomic_fetch_add(&s->io_ns, mr_now_ns() - start);
    if (!rc && !s->drained)
        tell(s, MR_SPAN_CKPT_WRITE, start, n);
    pthread_mutex_lock(&s->lock);
    f->left -= n;
    if (!rc && !f->left && s->files > 1) { /* a single file is made durable together with what describes it */
        whole = f->object;
        f->object = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return whole ? close_object(whole, sync_object(s, whole, err), err) : rc;
}

/* ---- this rank's part ---- */

static int sync_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct mr_save *s = ctx->user;
    return s->file[index].object ? sync_object(s, s->file[index].object, err) : 0;
}

/* A small file of this rank, which stays open. */
static int put_small(struct mr_save *s, const char *ending, const void *data, size_t len, struct mr_error *err)
{
    struct mr_save_file *f = &s->file[s->files + s->small++];
    *f = (struct mr_save_file){.is = {.bytes = len, .hash = XXH3_64bits(data, len), .rank = s->place->rank}};
    snprintf(f->is.name, sizeof f->is.name, "%.63s", mr_save_file_name(s->place->rank, ending).text);
    int rc = open_file(s, f, err);
    return rc || !len ? rc : mr_object_write(f->object, data, len, 0, err);
}

static int put_sums(struct mr_save *s, struct mr_error *err)
{
    size_t words = 3 + s->chunks;
    uint64_t *out = calloc(words, sizeof(*out));
    if (!out)
        return mr_error_set(err, -ENOMEM, "cannot write checksums");
    memcpy(out, MR_SAVE_SUMS_MAGIC, 8);
    out[1] = htole64(s->chunk_bytes);
    out[2] = htole64(s->chunks);
    memcpy(out + 3, s->sum, s->chunks * sizeof(*s->sum));
    int rc = put_small(s, MR_SAVE_SUMS, out, words * sizeof(*out), err);
    free(out);
    return rc;
}

/* All files of this rank, complete; those without bytes are made here. What is open is flushed at once, so that flushes
 * share what they cost. */
static int make_part(struct mr_save *s, struct mr_error *err)
{
    int rc = 0;
    s->small = 0;
    for (size_t i = 0; i < s->files && !rc; i++) {
        struct mr_save_file *f = &s->file[i];
        if (s->chunk_bytes)
            f->is.hash = mr_checkpoint_hash_of_chunks(s->sum + f->first, mr_save_chunks(f->is.bytes, s->chunk_bytes));
        rc = f->opened ? 0 : open_file(s, f, err);
    }
    if (!rc && s->sums)
        rc = put_sums(s, err);
    if (!rc && s->json)
        rc = put_small(s, MR_SAVE_STATE, s->json, strlen(s->json), err);
    if (!rc && s->loader)
        rc = put_small(s, MR_SAVE_LOADER, s->loader, strlen(s->loader), err);
    if (!rc && s->place->at.fsync)
        rc = mr_workers_run(SMALL_FILES + 1, s->files + s->small, 1, sync_one, s, NULL, err);
    return close_files(s, rc, err);
}

/* The list of them; the caller frees its items. */
static int list_part(const struct mr_save *s, struct mr_checkpoint_list *l, struct mr_error *err)
{
    *l = (struct mr_checkpoint_list){.step = s->step,
                                     .world = s->world ? s->world : s->place->world,
                                     .fsync = s->place->at.fsync,
                                     .n = s->files + s->small};
    snprintf(l->save, sizeof l->save, "%s", s->id);
    l->items = calloc(MR_MAX(l->n, 1u), sizeof(*l->items));
    for (size_t i = 0; l->items && i < l->n; i++)
        l->items[i] = s->file[i].is;
    return l->items ? 0 : mr_error_set(err, -ENOMEM, "cannot list the files of step %" PRIu64, s->step);
}

/* Not the leader: hands the list over by one rename. */
static int hand_over(struct mr_save *s, const struct mr_checkpoint_list *l, struct mr_error *err)
{
    uint32_t rank = s->place->rank;
    struct mr_store *store = s->place->at.store;
    int rc = put_list(s, left_by(s, rank, s->place->at.by_list ? ".part" : ".half"), l, err);
    return s->place->at.by_list || rc
               ? rc
               : store->ops->rename(store, left_by(s, rank, ".half").text, left_by(s, rank, ".part").text, err);
}

/* ---- the leader ---- */

/* The lists of all ranks as one; their parts only carried them to here. */
static int join(const struct mr_save *s, struct mr_checkpoint_list *all, struct mr_error *err)
{
    const struct mr_checkpoint_place *at = &s->place->at;
    int rc = 0;
    for (uint32_t r = 1; at->shared && r < s->place->world && !rc; r++) {
        struct mr_path path = left_by(s, r, ".part");
        struct mr_checkpoint_list part;
        rc = mr_checkpoint_read_part(at, path.text, &part, err);
        if (rc)
            break;
        rc = mr_checkpoint_list_append(all, &part, err);
        mr_checkpoint_list_done(&part);
        if (!rc && !at->by_list)
            rc = at->store->ops->unlink(at->store, path.text, err);
    }
    return rc ? rc : mr_checkpoint_list_check(all, err);
}

static int publish(struct mr_save *s, struct mr_checkpoint_list *all, struct mr_error *err)
{
    const struct mr_save_place *p = s->place;
    char latest[32];
    int rc = join(s, all, err);
    if (!rc && p->world > 1 && !p->hooks.agree && !p->at.by_list)
        rc = p->at.store->ops->unlink(p->at.store, marker_of(s).text, err);
    rc = rc ? rc : put_list(s, mr_path("%s/" MR_CHECKPOINT_LIST_NAME, files_of(s).text), all, err);
    uint64_t start = mr_now_ns();
    s->durable_ns = !rc && p->at.by_list ? start : 0; /* the list is the commit */
    rc = rc ? rc : mr_checkpoint_publish(&p->at, s->step, s->target, err);
    if (rc)
        return rc;
    tell(s, MR_SPAN_CKPT_RENAME, start, 0);
    s->durable_ns = mr_now_ns();
    s->all_files = all->n;
    for (size_t i = 0; i < all->n; i++)
        s->all_bytes += all->items[i].bytes;
    snprintf(latest, sizeof latest, "step-%012" PRIu64 "\n", s->step);
    if (!p->hooks.emulated)
        rc = mr_store_write_file(p->at.store, mr_path("%s/" LATEST, p->at.folder).text, latest, strlen(latest), err);
    if (rc)
        mr_error_context(err, "the checkpoint of step %" PRIu64 " is complete, only the pointer to it is not", s->step);
    return !rc && p->at.keep_last ? mr_checkpoint_retire_older(&p->at, s->step, err) : rc;
}

/* Leaves nothing, and the other ranks the reason. */
static void abandon(struct mr_save *s, const struct mr_error *why)
{
    const struct mr_save_place *p = s->place;
    close_files(s, MR_E_INTERRUPTED, NULL);
    if (p->at.lead) {
        if (p->world > 1 && !p->hooks.agree)
            put_text(s, failed_path(s), why->message, true, NULL);
        mr_checkpoint_dir_remove(p->at.store, tmp_of(s).text, NULL);
        if (p->at.by_list && !s->durable_ns) /* C9: with its list it is complete, whatever failed then */
            mr_checkpoint_dir_remove(p->at.store, files_of(s).text, NULL);
        return;
    }
    /* Before the folder is there, the word would be lost and the leader wait for its whole time. */
    if (!s->leader_is_gone && !p->hooks.agree && wait_for_begin(s, NULL) == 0)
        put_text(s, left_by(s, p->rank, ".fail"), why->message, true, NULL);
}

int mr_save_end(struct mr_save *s, int rc, struct mr_error *err)
{
    const struct mr_save_place *p = s->place;
    struct mr_checkpoint_list mine = {0};
    rc = rc ? rc : make_part(s, err);
    rc = rc ? rc : list_part(s, &mine, err);
    if (rc)
        close_files(s, rc, NULL); /* before the leader removes the folder */
    if (!rc && !p->at.lead)
        rc = hand_over(s, &mine, err);
    if (s->begun)
        rc = mr_save_agree(p, rc, err);
    if (!rc && p->at.lead && !p->hooks.agree)
        rc = wait_for_parts(s, err);
    if (!rc && p->at.lead)
        rc = publish(s, &mine, err);
    if (s->begun)
        rc = mr_save_agree(p, rc, err);
    mr_checkpoint_list_done(&mine);
    if (rc)
        abandon(s, err);
    else if (!p->at.lead && !p->hooks.agree)
        rc = wait_for_name(s, err);
    if (!rc || rc == MR_E_TIMEOUT)
        s->place->rank_is_late = rc != 0;
    return rc;
}
