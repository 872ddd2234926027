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
#include <xxhash.h>

#define OPEN_AT_ONCE 64 /* files of a rank: more are opened as they are written */
#define POLL_FIRST_NS (200 * 1000ull)
#define POLL_LAST_NS (50 * 1000 * 1000ull)
#define FAIL_MAX 4096
#define PATIENCE_LEAST 20 /* of the timeout: for a rank that is back */

void mr_save_file_name(uint32_t rank, const char *ending, char out[64])
{
    snprintf(out, 64, "rank-%05u%s", rank, ending);
}

static struct mr_path tmp_of(const struct mr_save_place *p, const struct mr_save *s)
{
    return mr_checkpoint_dir_path(p->at.folder, s->step, MR_CHECKPOINT_TMP);
}

/* What a rank leaves there: its part of the list, or why it has none. */
static struct mr_path left_by(const struct mr_save_place *p, const struct mr_save *s, uint32_t rank, const char *ending)
{
    return mr_path("%s/rank-%05u%s", tmp_of(p, s).text, rank, ending);
}

static struct mr_path marker_of(const struct mr_save_place *p, const struct mr_save *s)
{
    return mr_path("%s/begin-%s%s", tmp_of(p, s).text, s->id, s->by);
}

/* What the leader leaves of a save it gave up, in the folder above: who waits for its beginning or its end learns. */
static struct mr_path failed_path(const struct mr_save_place *p, const struct mr_save *s)
{
    return mr_path("%s/.failed-%s%s", p->at.folder, s->id, s->by);
}

static void tell(const struct mr_save_place *p, enum mr_span what, const struct mr_save *s, uint64_t start,
                 uint64_t bytes)
{
    mr_checkpoint_emit(p->events, what, s->step, start, mr_now_ns(), bytes);
}

void mr_failure_keep(struct mr_failure *f, int code, const struct mr_error *why)
{
    if (!f->code)
        *f = (struct mr_failure){code, *why};
}

int mr_failure_get(const struct mr_failure *f, struct mr_error *err)
{
    if (f->code && err)
        *err = f->why;
    return f->code;
}

int mr_failure_take(struct mr_failure *f, struct mr_error *err)
{
    int rc = mr_failure_get(f, err);
    f->code = 0;
    return rc;
}

bool mr_save_stopped(const struct mr_save_place *p)
{
    return atomic_load(p->stop) || (p->stopped && p->stopped(p->user));
}

int mr_save_agree(const struct mr_save_place *p, int rc, struct mr_error *err)
{
    return p->agree ? p->agree(p->user, rc, err) : rc;
}

/* ---- the files of a save ---- */

size_t mr_save_chunks(uint64_t bytes, uint64_t chunk_bytes)
{
    return (size_t)(bytes / chunk_bytes + (bytes % chunk_bytes != 0));
}

int mr_save_init(struct mr_save *s, const struct mr_checkpoint_entry *file, size_t files, uint64_t chunk_bytes)
{
    pthread_mutex_init(&s->lock, NULL);
    s->file = calloc(MR_MAX(files, 1u), sizeof(*s->file));
    s->files = s->file ? files : 0;
    s->chunk_bytes = chunk_bytes;
    for (size_t i = 0; i < s->files; i++) {
        s->file[i] = (struct mr_save_file){.is = file[i], .left = file[i].bytes, .first = s->chunks};
        s->bytes += file[i].bytes;
        if (chunk_bytes) {
            s->file[i].is.chunk_bytes = chunk_bytes;
            s->chunks += mr_save_chunks(file[i].bytes, chunk_bytes);
        }
    }
    s->sum = calloc(MR_MAX(s->chunks, 1u), sizeof(*s->sum));
    return s->file && s->sum ? 0 : -ENOMEM;
}

static void close_files(struct mr_save *s)
{
    for (size_t i = 0; i < s->files; i++) {
        mr_object_close(s->file[i].object, NULL);
        s->file[i].object = NULL;
    }
}

void mr_save_done(struct mr_save *s)
{
    pthread_mutex_destroy(&s->lock);
    free(s->file);
    free(s->sum);
    free(s->json);
    free(s->loader);
}

const struct mr_save_file *mr_save_chunk(const struct mr_save *s, size_t index, uint64_t *at, size_t *n)
{
    size_t low = 0, high = s->files;
    while (high - low > 1) { /* the last file that begins there or before; empty ones begin where the next one does */
        size_t mid = low + (high - low) / 2;
        if (s->file[mid].first <= index)
            low = mid;
        else
            high = mid;
    }
    const struct mr_save_file *f = &s->file[low];
    *at = (index - f->first) * s->chunk_bytes;
    *n = (size_t)MR_MIN(s->chunk_bytes, f->is.bytes - *at);
    return f;
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
    if (mr_save_stopped(p))
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

/* The reason that is in this file; 0: there is none. */
static int read_failure(const struct mr_save_place *p, const char *path, const char *what, struct mr_error *err)
{
    void *text;
    size_t len;
    if (!is_there(p, path) || mr_store_read_file(p->at.store, path, FAIL_MAX, &text, &len, NULL))
        return 0;
    mr_error_plain(err, MR_E_PEER, "%s: %.*s", what, (int)len, (char *)text);
    free(text);
    return MR_E_PEER;
}

static int leader_failed(const struct mr_save_place *p, const struct mr_save *s, struct mr_error *err)
{
    char what[64];
    snprintf(what, sizeof what, "rank 0 gave up the save of step %" PRIu64, s->step);
    return read_failure(p, failed_path(p, s).text, what, err);
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
    (void)is_dir, (void)err;
    if (strncmp(name, ".failed-", 8) == 0)
        p->at.store->ops->unlink(p->at.store, mr_path("%s/%s", p->at.folder, name).text, NULL);
    return 0;
}

void mr_save_forget_failures(const struct mr_save_place *p)
{
    p->at.store->ops->list(p->at.store, p->at.folder, remove_failed, (void *)(uintptr_t)p, NULL);
}

static int wait_for_begin(const struct mr_save_place *p, const struct mr_save *s, struct mr_error *err)
{
    struct mr_path marker = marker_of(p, s);
    struct polling w = start_polling(p, s);
    while (!is_there(p, marker.text)) {
        int rc = leader_failed(p, s, err);
        if (rc)
            return rc;
        rc = pause_polling(p, &w);
        if (rc)
            return gave_up(rc, err, s, "begin this save", 0);
    }
    return 0;
}

static int sync_object(const struct mr_save_place *p, struct mr_save *s, struct mr_object *o, struct mr_error *err)
{
    if (!p->at.fsync)
        return 0;
    uint64_t start = mr_now_ns();
    int rc = o->store->ops->fsync(o, err);
    atomic_fetch_add(&s->fsync_ns, mr_now_ns() - start);
    if (!rc)
        tell(p, MR_SPAN_CKPT_FSYNC, s, start, 0);
    return rc;
}

static int close_object(struct mr_object *o, int rc, struct mr_error *err)
{
    int closed = mr_object_close(o, rc ? NULL : err);
    return rc ? rc : closed;
}

/* A small file, which stays open. */
static int write_small(const struct mr_save_place *p, const char *path, const void *data, size_t len,
                       struct mr_object **o, struct mr_error *err)
{
    int rc = mr_object_open(p->at.store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, o, err);
    return rc || !len ? rc : mr_object_write(*o, data, len, 0, err);
}

/* For another rank to see; nothing that has to be durable. */
static int put_note(const struct mr_save_place *p, struct mr_path path, const char *text, struct mr_error *err)
{
    struct mr_object *o = NULL;
    int rc = write_small(p, path.text, text, strlen(text), &o, err);
    return close_object(o, rc, err);
}

/* A list in the folder of the save; with fsync it, and the folder, are durable. */
static int put_list(const struct mr_save_place *p, struct mr_save *s, const char *path,
                    const struct mr_checkpoint_list *l, struct mr_error *err)
{
    struct mr_object *o = NULL;
    char *text;
    int rc = mr_checkpoint_list_encode(l, &text, err);
    if (rc)
        return rc;
    rc = write_small(p, path, text, strlen(text), &o, err);
    free(text);
    if (!rc)
        rc = sync_object(p, s, o, err);
    rc = close_object(o, rc, err);
    return rc || !p->at.fsync ? rc : p->at.store->ops->sync_dir(p->at.store, tmp_of(p, s).text, err);
}

/* Space and, at once, the length: file systems let only one thread at a time write past the end of a file. */
static int make_room(struct mr_object *o, uint64_t bytes, struct mr_error *err)
{
    if (!(mr_store_caps(o->store) & MR_STORE_CAP_OFFSET_WRITE)) /* such a store writes at the end only */
        return 0;
    int rc = o->store->ops->allocate(o, bytes, err);
    if (!rc)
        rc = o->store->ops->truncate(o, bytes, err);
    return rc == MR_E_UNSUPPORTED ? 0 : rc;
}

/* The lock is held, or nobody else is there yet. */
static int open_file(const struct mr_save_place *p, const struct mr_save *s, struct mr_save_file *f,
                     struct mr_error *err)
{
    struct mr_path path = mr_path("%s/%s", tmp_of(p, s).text, f->is.name);
    /* Exclusive: the folder is new, so a file that exists is another rank's of the same name. */
    unsigned flags = MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_EXCLUSIVE | (p->direct ? MR_OBJ_DIRECT : 0);
    int rc = mr_object_open(p->at.store, path.text, flags, &f->object, err);
    f->opened = !rc;
    if (rc == -EEXIST)
        rc = mr_error_plain(err, MR_E_USAGE, "two ranks write a checkpoint file named '%s'", f->is.name);
    return rc ? rc : make_room(f->object, f->is.bytes, err);
}

int mr_save_begin(const struct mr_save_place *p, struct mr_save *s, struct mr_error *err)
{
    int rc = 0;
    if (p->at.lead) {
        rc = mr_checkpoint_begin(&p->at, s->step, err);
        if (!rc && p->world > 1 && !p->agree)
            rc = put_note(p, marker_of(p, s), "", err);
    } else if (!p->agree) {
        rc = wait_for_begin(p, s, err);
        s->leader_is_gone = rc != 0;
    }
    rc = mr_save_agree(p, rc, err);
    s->begun = !rc;
    for (size_t i = 0; i < s->files && i < OPEN_AT_ONCE && !rc && !p->agree; i++)
        rc = open_file(p, s, &s->file[i], err);
    return rc;
}

int mr_save_write(const struct mr_save_place *p, struct mr_save *s, size_t file, const struct mr_pace_way *way,
                  uint64_t at, const void *buf, size_t n, struct mr_error *err)
{
    struct mr_save_file *f = &s->file[file];
    struct mr_object *whole = NULL;
    if (p->stopped && p->stopped(p->user))
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted in the checkpoint of step %" PRIu64, s->step);
    pthread_mutex_lock(&s->lock);
    int rc = f->opened ? 0 : open_file(p, s, f, err);
    pthread_mutex_unlock(&s->lock);
    if (rc)
        return rc;
    uint64_t start = mr_now_ns();
    rc = n ? mr_pace_write(way, f->object, buf, n, at, err) : 0;
    atomic_fetch_add(&s->io_ns, mr_now_ns() - start);
    if (!rc && n && !s->drained)
        tell(p, MR_SPAN_CKPT_WRITE, s, start, n);
    pthread_mutex_lock(&s->lock);
    f->left -= n;
    if (!rc && !f->left && s->files > 1) { /* a single file is made durable together with what describes it */
        whole = f->object;
        f->object = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    if (!whole)
        return rc;
    return close_object(whole, sync_object(p, s, whole, err), err);
}

/* ---- this rank's part ---- */

/* The files of a rank's part that are open until all are durable, and its list. */
#define EXTRA_FILES 3
struct part {
    struct mr_checkpoint_list list;
    struct mr_object **open;
    size_t n;
    const struct mr_save_place *p;
    struct mr_save *s;
};

static int sync_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    const struct part *f = ctx->user;
    return sync_object(f->p, f->s, f->open[index], err);
}

/* Flushes all at once, so that they share what a flush costs, and closes them; the first error. */
static int finish_files(struct part *f, int rc, struct mr_error *err)
{
    if (!rc && f->p->at.fsync && f->n)
        rc = mr_workers_run((unsigned)MR_MIN(f->n, (size_t)EXTRA_FILES + 1), f->n, 1, sync_one, f, NULL, err);
    for (size_t i = 0; i < f->n; i++)
        rc = close_object(f->open[i], rc, err);
    return rc;
}

/* A small file of this rank and its row in the list. */
static int put_entry(struct part *f, const char *ending, const void *data, size_t len, struct mr_error *err)
{
    const struct mr_save_place *p = f->p;
    struct mr_object *o = NULL;
    struct mr_checkpoint_entry *e = &f->list.items[f->list.n++];
    mr_save_file_name(p->rank, ending, e->name);
    e->bytes = len;
    e->hash = XXH3_64bits(data, len);
    e->rank = p->rank;
    int rc = write_small(p, left_by(p, f->s, p->rank, ending).text, data, len, &o, err);
    if (o)
        f->open[f->n++] = o;
    return rc;
}

static int put_sums(struct part *f, struct mr_error *err)
{
    const struct mr_save *s = f->s;
    size_t words = 3 + s->chunks;
    uint64_t *out = calloc(words, sizeof(*out));
    if (!out)
        return mr_error_set(err, -ENOMEM, "cannot write checksums");
    memcpy(out, MR_SAVE_SUMS_MAGIC, 8);
    out[1] = htole64(s->chunk_bytes);
    out[2] = htole64(s->chunks);
    memcpy(out + 3, s->sum, s->chunks * sizeof(*s->sum));
    int rc = put_entry(f, MR_SAVE_SUMS, out, words * sizeof(*out), err);
    free(out);
    return rc;
}

/* The file's row in the list; one without bytes is made here. */
static int add_file(struct part *f, struct mr_save_file *file, struct mr_error *err)
{
    const struct mr_save *s = f->s;
    struct mr_checkpoint_entry *e = &f->list.items[f->list.n++];
    *e = file->is;
    if (s->chunk_bytes)
        e->hash = mr_checkpoint_hash_of_chunks(s->sum + file->first, mr_save_chunks(e->bytes, s->chunk_bytes));
    int rc = file->opened ? 0 : open_file(f->p, s, file, err);
    if (file->object)
        f->open[f->n++] = file->object;
    file->object = NULL;
    return rc;
}

/* All files of this rank, complete; the list of them in `l`, whose items the caller frees. */
static int make_part(const struct mr_save_place *p, struct mr_save *s, struct mr_checkpoint_list *l,
                     struct mr_error *err)
{
    struct part f = {.p = p, .s = s, .list = {.step = s->step, .world = p->world, .fsync = p->at.fsync}};
    size_t cap = s->files + EXTRA_FILES;
    int rc = 0;
    if (s->world)
        f.list.world = s->world;
    snprintf(f.list.save, sizeof f.list.save, "%s", s->id);
    f.list.items = calloc(cap, sizeof(*f.list.items));
    f.open = calloc(cap, sizeof(*f.open));
    if (!f.list.items || !f.open)
        rc = mr_error_set(err, -ENOMEM, "cannot list the files of step %" PRIu64, s->step);
    for (size_t i = 0; i < s->files && !rc; i++)
        rc = add_file(&f, &s->file[i], err);
    if (!rc && s->sums)
        rc = put_sums(&f, err);
    if (!rc && s->json)
        rc = put_entry(&f, MR_SAVE_STATE, s->json, strlen(s->json), err);
    if (!rc && s->loader)
        rc = put_entry(&f, MR_SAVE_LOADER, s->loader, strlen(s->loader), err);
    rc = finish_files(&f, rc, err);
    free(f.open);
    *l = f.list;
    return rc;
}

/* Not the leader: hands the list over by one rename, and waits for what the leader makes of it. */
static int hand_over(const struct mr_save_place *p, struct mr_save *s, const struct mr_checkpoint_list *l,
                     struct mr_error *err)
{
    struct mr_path half = left_by(p, s, p->rank, ".half"), part = left_by(p, s, p->rank, ".part");
    int rc = put_list(p, s, half.text, l, err);
    return rc ? rc : p->at.store->ops->rename(p->at.store, half.text, part.text, err);
}

static int wait_for_name(const struct mr_save_place *p, struct mr_save *s, struct mr_error *err)
{
    struct mr_path final = mr_checkpoint_dir_path(p->at.folder, s->step, MR_CHECKPOINT_COMPLETE);
    struct polling w = start_polling(p, s);
    for (;;) {
        bool under_way =
            is_there(p, tmp_of(p, s).text); /* before the look at the name: between the two it can only be given */
        if (mr_checkpoint_is_of(&p->at, final.text, s->id)) {
            s->durable_ns = mr_now_ns();
            return 0;
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

static int wait_for_parts(const struct mr_save_place *p, const struct mr_save *s, struct mr_error *err)
{
    struct polling w = start_polling(p, s);
    for (uint32_t r = 1; p->at.shared && r < p->world; r++) {
        struct mr_path part = left_by(p, s, r, ".part");
        while (!is_there(p, part.text)) {
            int rc = 0;
            for (uint32_t k = r; k < p->world && !rc; k++) {
                char what[64];
                snprintf(what, sizeof what, "rank %u could not save", k);
                rc = read_failure(p, left_by(p, s, k, ".fail").text, what, err);
            }
            if (rc)
                return rc;
            rc = pause_polling(p, &w);
            if (rc)
                return gave_up(rc, err, s, "finish its part", r);
        }
    }
    return 0;
}

/* The lists of all ranks as one; their parts only carried them to here. */
static int join(const struct mr_save_place *p, const struct mr_save *s, struct mr_checkpoint_list *all,
                struct mr_error *err)
{
    int rc = 0;
    for (uint32_t r = 1; p->at.shared && r < p->world && !rc; r++) {
        struct mr_path path = left_by(p, s, r, ".part");
        struct mr_checkpoint_list part;
        rc = mr_checkpoint_read_part(&p->at, path.text, &part, err);
        if (rc)
            break;
        rc = mr_checkpoint_list_append(all, &part, err);
        mr_checkpoint_list_done(&part);
        if (!rc)
            rc = p->at.store->ops->unlink(p->at.store, path.text, err);
    }
    return rc ? rc : mr_checkpoint_list_check(all, err);
}

static int publish(const struct mr_save_place *p, struct mr_save *s, struct mr_checkpoint_list *all,
                   struct mr_error *err)
{
    char latest[32];
    int rc = join(p, s, all, err);
    if (!rc && p->world > 1 && !p->agree)
        rc = p->at.store->ops->unlink(p->at.store, marker_of(p, s).text, err);
    if (!rc)
        rc = put_list(p, s, mr_path("%s/" MR_CHECKPOINT_LIST_NAME, tmp_of(p, s).text).text, all, err);
    uint64_t start = mr_now_ns();
    if (!rc)
        rc = mr_checkpoint_publish(&p->at, s->step, err);
    if (rc)
        return rc;
    tell(p, MR_SPAN_CKPT_RENAME, s, start, 0);
    s->durable_ns = mr_now_ns();
    s->all_files = all->n;
    for (size_t i = 0; i < all->n; i++)
        s->all_bytes += all->items[i].bytes;
    snprintf(latest, sizeof latest, "step-%012" PRIu64 "\n", s->step);
    if (p->latest)
        rc = mr_store_write_file(p->at.store, mr_path("%s/latest", p->at.folder).text, latest, strlen(latest), err);
    if (rc && err)
        mr_error_context(err, "the checkpoint of step %" PRIu64 " is complete, only the pointer to it is not", s->step);
    return !rc && p->at.keep_last ? mr_checkpoint_retire_older(&p->at, s->step, err) : rc;
}

/* Leaves nothing, and the other ranks the reason. */
static void abandon(const struct mr_save_place *p, struct mr_save *s, const struct mr_error *why)
{
    close_files(s);
    if (p->at.lead) {
        if (p->world > 1 && !p->agree)
            put_note(p, failed_path(p, s), why->message, NULL);
        mr_checkpoint_dir_remove(p->at.store, tmp_of(p, s).text, NULL);
        return;
    }
    /* Before the folder is there, the word would be lost and the leader wait for its whole time. */
    if (!s->leader_is_gone && !p->agree && wait_for_begin(p, s, NULL) == 0)
        put_note(p, left_by(p, s, p->rank, ".fail"), why->message, NULL);
}

/* With ranks that meet by calls; rc of this rank's part. */
static int end_together(const struct mr_save_place *p, struct mr_save *s, struct mr_checkpoint_list *mine, int rc,
                        struct mr_error *err)
{
    if (!rc && !p->at.lead)
        rc = hand_over(p, s, mine, err);
    rc = mr_save_agree(p, rc, err);
    if (!rc)
        rc = mr_save_agree(p, p->at.lead ? publish(p, s, mine, err) : 0, err);
    return rc;
}

int mr_save_end(const struct mr_save_place *p, struct mr_save *s, int rc, struct mr_error *err)
{
    struct mr_checkpoint_list mine = {0};
    struct mr_error why = {0};
    if (rc && err)
        why = *err;
    bool failed = rc != 0;
    if (!failed)
        rc = make_part(p, s, &mine, &why);
    if (p->agree && s->begun) {
        close_files(s); /* before the leader removes the folder */
        rc = end_together(p, s, &mine, rc, &why);
    } else if (!rc) {
        rc = p->at.lead ? wait_for_parts(p, s, &why) : 0;
        if (!rc)
            rc = p->at.lead ? publish(p, s, &mine, &why) : hand_over(p, s, &mine, &why);
    }
    mr_checkpoint_list_done(&mine);
    if (rc)
        abandon(p, s, &why);
    else if (!p->at.lead && !p->agree)
        rc = wait_for_name(p, s, &why);
    if (rc && err)
        *err = why;
    return rc;
}
