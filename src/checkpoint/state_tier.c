/* See the header for what tiers are and the invariants T1 to T4. */
#include "checkpoint/state_tier.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/vec.h"
#include "base/workers.h"
#include "checkpoint/state_have.h"
#include "checkpoint/state_image.h"
#include "checkpoint/state_pace.h"
#include "checkpoint/state_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FILE_PATH (MR_CHECKPOINT_PATH + 256)
#define THREADS 2

enum stage { WAITING, DRAINING, FAILED, DRAINED };

/* A checkpoint in a tier. */
struct held {
    uint64_t step, bytes;
    char id[64];  /* of the save: the same on all ranks */
    uint64_t age; /* in this order they go to the final folder, on all ranks */
    enum stage stage;
};

struct tier {
    struct mr_save_place place;
    uint64_t capacity; /* 0: no limit but the file system's */
    unsigned keep_last;
    MR_VEC(struct held) held; /* by age; under the lock */
};

struct mr_state_tiers {
    const struct mr_save_place *final;
    struct mr_save_place out; /* the same for the drain, which can be cut short */
    struct mr_pace *pace;
    struct tier tier[MR_SAVER_TIERS];
    size_t n;
    char job[64];
    bool rank_is_late; /* of the drain's thread: the last drain to the final folder waited for another rank in vain */
    atomic_bool cut;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool quit, recovering;
    bool over; /* nothing is drained any more */
    uint64_t ages;
    int code; /* not told yet */
    struct mr_error why;
};

/* ---- what a tier holds; the lock is held ---- */

static struct held *find(struct tier *t, uint64_t step)
{
    for (size_t i = 0; i < t->held.n; i++)
        if (t->held.item[i].step == step)
            return &t->held.item[i];
    return NULL;
}

static void forget(struct tier *t, uint64_t step)
{
    struct held *h = find(t, step);
    if (!h)
        return;
    size_t at = (size_t)(h - t->held.item);
    memmove(h, h + 1, (--t->held.n - at) * sizeof(*h));
}

static int hold(struct tier *t, const struct held *what, enum stage stage)
{
    forget(t, what->step);
    struct held *h = MR_VEC_ADD(&t->held);
    if (!h)
        return -ENOMEM;
    *h = *what;
    h->stage = stage;
    return 0;
}

static uint64_t bytes_held(const struct tier *t)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < t->held.n; i++)
        bytes += t->held.item[i].bytes;
    return bytes;
}

static bool is_waiting(const struct held *h)
{
    return h->stage == WAITING || h->stage == DRAINING;
}

/* Any step (MR_ALL_STEPS), or this one, in any tier. */
static bool any_waiting(const struct mr_state_tiers *t, uint64_t step)
{
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->tier[i].held.n; k++)
            if (!t->over && is_waiting(&t->tier[i].held.item[k]) &&
                (step == MR_ALL_STEPS || t->tier[i].held.item[k].step == step))
                return true;
    return t->recovering;
}

/* ---- room (T2) ---- */

static uint64_t space_left(const struct tier *t)
{
    uint64_t bytes = UINT64_MAX, inodes, held = bytes_held(t);
    if (t->capacity)
        return t->capacity > held ? t->capacity - held : 0;
    struct mr_store *s = t->place.at.store;
    return s->ops->free_space(s, t->place.at.folder, &bytes, &inodes, NULL) ? UINT64_MAX : bytes;
}

/* The oldest that is drained, if any; with `spare`, only beyond that many newest ones. */
static struct held *oldest_drained(struct tier *t, unsigned spare)
{
    unsigned n = 0;
    struct held *oldest = NULL;
    for (size_t i = 0; i < t->held.n; i++)
        if (t->held.item[i].stage == DRAINED && n++ == 0)
            oldest = &t->held.item[i];
    return n > spare ? oldest : NULL;
}

static void let_go(struct tier *t, uint64_t step)
{
    struct mr_error why;
    if (mr_checkpoint_retire(t->place.at.store, t->place.at.folder, step, &why))
        mr_log(MR_LOG_WARN, "cannot remove step %" PRIu64 " from the tier '%s': %s", step, t->place.at.folder,
               why.message);
    forget(t, step);
}

/* Removes drained ones until there is room; false: there will not be any before a drain. */
static bool make_room(struct tier *t, uint64_t bytes)
{
    struct held *h;
    while (space_left(t) < bytes && (h = oldest_drained(t, 0)))
        let_go(t, h->step);
    return space_left(t) >= bytes;
}

static void tidy(struct tier *t)
{
    struct held *h;
    while ((h = oldest_drained(t, t->keep_last)))
        let_go(t, h->step);
}

static void wait_in_a_hurry(struct mr_state_tiers *t)
{
    mr_pace_hurry(t->pace, true);
    pthread_cond_wait(&t->changed, &t->lock);
    mr_pace_hurry(t->pace, false);
}

const struct mr_save_place *mr_state_tiers_around(struct mr_state_tiers *t)
{
    pthread_mutex_lock(&t->lock);
    while (any_waiting(t, MR_ALL_STEPS))
        wait_in_a_hurry(t);
    pthread_mutex_unlock(&t->lock);
    return t->final;
}

const struct mr_save_place *mr_state_tiers_place(struct mr_state_tiers *t, uint64_t step, uint64_t bytes)
{
    struct tier *first = &t->tier[0];
    bool room = false;
    pthread_mutex_lock(&t->lock);
    while (t->recovering || any_waiting(t, step)) /* T4 */
        wait_in_a_hurry(t);
    for (size_t i = 0; i < t->n; i++) /* what is left of an earlier save of this step failed to drain */
        forget(&t->tier[i], step);
    while (!(room = make_room(first, bytes)) && any_waiting(t, MR_ALL_STEPS))
        wait_in_a_hurry(t);
    pthread_mutex_unlock(&t->lock);
    if (room)
        return &first->place;
    mr_log(MR_LOG_NOTE, "the checkpoint of step %" PRIu64 " does not fit into '%s': it goes to '%s' directly", step,
           first->place.at.folder, t->final->at.folder);
    return t->final;
}

/* ---- one drain ---- */

struct copying {
    struct mr_state_tiers *t;
    struct mr_pace_way in, out;
    struct mr_object *from;
    struct mr_save *save;
    uint8_t *buf[THREADS];
};

static int copy_chunk(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct copying *c = ctx->user;
    uint64_t at = index * MR_STATE_CHUNK;
    size_t n = (size_t)MR_MIN(MR_STATE_CHUNK, c->save->bytes - at);
    uint8_t *buf = c->buf[ctx->thread];
    uint64_t start = mr_now_ns();
    int rc = mr_pace_read(&c->in, c->from, buf, n, at, err);
    if (!rc && XXH3_64bits(buf, n) != c->save->sum[index])
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' does not match its checksum at bytes %" PRIu64 " to %" PRIu64,
                            c->from->path, at, at + n);
    if (!rc)
        rc = mr_pace_write(&c->out, c->save->file, buf, n, at, err);
    if (!rc)
        mr_pace_tell(c->t->final->events, c->save->step, start, n);
    return rc;
}

static int copy_chunks(struct mr_state_tiers *t, const struct mr_save_place *place, struct mr_object *from,
                       const struct mr_save_place *to, struct mr_save *s, struct mr_error *err)
{
    struct copying c = {.t = t, .from = from, .save = s};
    c.in = (struct mr_pace_way){.pace = t->pace, .device = place->at.device, .stop = &t->cut};
    c.out = (struct mr_pace_way){.pace = t->pace,
                                 .device = to->at.device,
                                 .by_steps = true,
                                 .flush = to->at.fsync && !to->direct,
                                 .stop = &t->cut};
    bool ok = true;
    for (unsigned i = 0; i < THREADS; i++)
        ok = (c.buf[i] = aligned_alloc(4096, MR_STATE_CHUNK)) && ok;
    int rc = ok ? mr_workers_run(THREADS, s->chunks, 1, copy_chunk, &c, &t->cut, err)
                : mr_error_set(err, -ENOMEM, "cannot get buffers for a drain");
    for (unsigned i = 0; i < THREADS; i++)
        free(c.buf[i]);
    return rc;
}

/* Everything about the save but its tensors, from where it lies. */
static int read_parts(const struct mr_save_place *at, const char *dir, struct mr_save *s, struct mr_error *err)
{
    struct mr_checkpoint_list l;
    const struct mr_checkpoint_entry *e;
    char name[64];
    int rc = mr_checkpoint_read_list(&at->at, dir, &l, err);
    if (rc)
        return rc;
    mr_save_file_name(at->rank, MR_SAVE_TENSORS, name);
    e = mr_state_find_entry(&l, name);
    if (e) {
        s->bytes = e->bytes;
        rc = mr_state_read_sums(at->at.store, dir, &l, e, &s->sum, &s->chunks, err);
    } else {
        rc = mr_error_plain(err, MR_E_CORRUPT, "the list in '%s' has no '%s'", dir, name);
    }
    mr_save_file_name(at->rank, MR_SAVE_STATE, name);
    if (!rc && (e = mr_state_find_entry(&l, name)))
        rc = mr_state_read_entry(at->at.store, dir, e, MR_STATE_JSON_MAX, (void **)&s->json, err);
    mr_save_file_name(at->rank, MR_SAVE_LOADER, name);
    if (!rc && (e = mr_state_find_entry(&l, name)))
        rc = mr_state_read_entry(at->at.store, dir, e, MR_STATE_JSON_MAX, (void **)&s->loader, err);
    mr_checkpoint_list_done(&l);
    return rc;
}

static int copy_between(struct mr_state_tiers *t, const struct mr_save_place *from, const struct mr_save_place *to,
                        struct mr_save *s, const char *dir, struct mr_error *err)
{
    char path[FILE_PATH], name[64];
    struct mr_object *in = NULL;
    mr_save_file_name(from->rank, MR_SAVE_TENSORS, name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int rc = mr_object_open(from->at.store, path, MR_OBJ_READ | (from->direct ? MR_OBJ_DIRECT : 0), &in, err);
    if (!rc)
        rc = mr_save_begin(to, s, err);
    if (!rc)
        rc = copy_chunks(t, from, in, to, s, err);
    mr_object_close(in, NULL); /* opened for reading only */
    return rc;
}

static int drain_one(struct mr_state_tiers *t, const struct held *h, const struct mr_save_place *from,
                     const struct mr_save_place *to, struct mr_error *err)
{
    char dir[MR_CHECKPOINT_PATH];
    struct mr_save s = {.step = h->step};
    snprintf(s.id, sizeof s.id, "%s", h->id);
    snprintf(s.by, sizeof s.by, "-%s", t->job);
    if (t->rank_is_late)
        s.patience_ns = mr_save_patience(to, 0);
    mr_checkpoint_dir_path(from->at.folder, h->step, MR_CHECKPOINT_COMPLETE, dir);
    int rc = read_parts(from, dir, &s, err);
    if (!rc)
        rc = copy_between(t, from, to, &s, dir, err);
    if (rc) {
        mr_save_abandon(to, &s, err);
    } else {
        rc = mr_save_commit(to, &s, err);
    }
    if (to == &t->out && (!rc || rc == MR_E_TIMEOUT))
        t->rank_is_late = rc != 0;
    free(s.sum);
    free(s.json);
    free(s.loader);
    return rc;
}

/* ---- the thread ---- */

static struct held *oldest_waiting(struct tier *t)
{
    struct held *h = NULL;
    for (size_t k = 0; k < t->held.n; k++)
        if (t->held.item[k].stage == WAITING && (!h || t->held.item[k].age < h->age))
            h = &t->held.item[k];
    return h;
}

/* What is drained next (T3): from the nearest tier to the next one, as long as that has room; else the oldest of all to
 * the final folder, in whatever tier it is, because the other ranks bring theirs in the same order. The lock is held.
 */
static struct held *next_drain(struct mr_state_tiers *t, size_t *from, size_t *to)
{
    struct held *h, *oldest = NULL;
    for (size_t i = 0; i < t->n; i++) {
        h = oldest_waiting(&t->tier[i]);
        if (h && i + 1 < t->n && make_room(&t->tier[i + 1], h->bytes)) {
            *from = i;
            *to = i + 1;
            return h;
        }
        if (h && (!oldest || h->age < oldest->age)) {
            oldest = h;
            *from = i;
            *to = t->n;
        }
    }
    return oldest;
}

/* The lock is held. */
static void settle(struct mr_state_tiers *t, const struct held *h, size_t from, size_t to, int rc, struct mr_error *err)
{
    struct held *mine = find(&t->tier[from], h->step);
    if (rc == MR_E_INTERRUPTED) {
        mine->stage = WAITING;
    } else if (rc) {
        mine->stage = FAILED;
        mr_error_context(err, "draining the checkpoint of step %" PRIu64, h->step);
        err->hint[0] = '\0'; /* an inner one is about loading, or the folder */
        mr_error_hint(err, "it stays in '%s'; the next job drains it", t->tier[from].place.at.folder);
        if (!t->code)
            t->why = *err;
        t->code = t->code ? t->code : rc;
    } else {
        mine->stage = DRAINED;
        if (to < t->n && hold(&t->tier[to], h, WAITING))
            mr_log(MR_LOG_WARN, "step %" PRIu64 " stays in '%s': no memory", h->step, t->tier[to].place.at.folder);
        tidy(&t->tier[from]);
    }
}

static void recover(struct mr_state_tiers *t);

static void *drain_main(void *user)
{
    struct mr_state_tiers *t = user;
    if (t->recovering)
        recover(t);
    pthread_mutex_lock(&t->lock);
    t->recovering = false;
    pthread_cond_broadcast(&t->changed);
    int rc = 0;
    while (!t->quit && rc != MR_E_INTERRUPTED) {
        size_t from, to;
        struct held *h = next_drain(t, &from, &to);
        if (!h) {
            pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        struct held job = *h;
        struct mr_error err;
        h->stage = DRAINING;
        pthread_mutex_unlock(&t->lock);
        rc = drain_one(t, &job, &t->tier[from].place, to < t->n ? &t->tier[to].place : &t->out, &err);
        pthread_mutex_lock(&t->lock);
        settle(t, &job, from, to, rc, &err);
        pthread_cond_broadcast(&t->changed);
    }
    t->over = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- what an earlier job left ---- */

static bool is_in(const struct mr_save_place *at, uint64_t step, const char *id)
{
    char dir[MR_CHECKPOINT_PATH];
    struct mr_checkpoint_list l;
    mr_checkpoint_dir_path(at->at.folder, step, MR_CHECKPOINT_COMPLETE, dir);
    if (mr_checkpoint_read_list(&at->at, dir, &l, NULL))
        return false;
    bool same = strcmp(l.save, id) == 0;
    mr_checkpoint_list_done(&l);
    return same;
}

/* One checkpoint of an earlier job: drained if a later tier or the final folder has it, else waiting if all ranks have
 * it. Others stay until they make room. */
static void recover_one(struct mr_state_tiers *t, size_t i, uint64_t step, const struct mr_state_have *common)
{
    struct tier *at = &t->tier[i];
    char dir[MR_CHECKPOINT_PATH];
    struct mr_checkpoint_list l;
    struct held h = {.step = step, .age = step};
    mr_checkpoint_dir_path(at->place.at.folder, step, MR_CHECKPOINT_COMPLETE, dir);
    if (mr_checkpoint_read_list(&at->place.at, dir, &l, NULL))
        return;
    for (size_t k = 0; k < l.n; k++)
        h.bytes += l.items[k].bytes;
    bool later = is_in(t->final, step, l.save);
    for (size_t k = i + 1; k < t->n && !later; k++)
        later = is_in(&t->tier[k].place, step, l.save);
    snprintf(h.id, sizeof h.id, "%s", l.save);
    mr_checkpoint_list_done(&l);
    enum stage stage = later || !mr_state_have_step(common, step, h.id) ? DRAINED : WAITING;
    pthread_mutex_lock(&t->lock);
    if (hold(at, &h, stage))
        mr_log(MR_LOG_WARN, "step %" PRIu64 " stays in '%s': no memory", step, at->place.at.folder);
    pthread_mutex_unlock(&t->lock);
}

static void recover(struct mr_state_tiers *t)
{
    struct mr_state_have common;
    struct mr_error why;
    const struct mr_save_place *place[MR_SAVER_TIERS];
    for (size_t i = 0; i < t->n; i++)
        place[i] = &t->tier[i].place;
    if (mr_state_have_common(&t->out, place, t->n, t->job, "drain", &common, &why)) {
        mr_log(MR_LOG_WARN, "what an earlier job left in '%s' is not drained: %s", t->tier[0].place.at.folder,
               why.message);
        common = (struct mr_state_have){0};
    }
    for (size_t i = 0; i < t->n; i++) {
        struct mr_checkpoint_dirs d = {0};
        if (mr_checkpoint_dirs_read(place[i]->at.store, place[i]->at.folder, &d, NULL))
            continue;
        for (size_t k = 0; k < d.n; k++)
            if (d.item[k].kind == MR_CHECKPOINT_COMPLETE)
                recover_one(t, i, d.item[k].step, &common);
        mr_checkpoint_dirs_done(&d);
    }
    mr_state_have_done(&common);
}

/* ---- lifecycle ---- */

static int open_tier(const struct mr_saver_params *p, const struct mr_save_place *final, const struct mr_saver_tier *of,
                     struct tier *out, struct mr_error *err)
{
    char folder[MR_CHECKPOINT_PATH];
    if (!of->folder || !*of->folder || strlen(of->folder) > MR_CHECKPOINT_FOLDER_MAX - 16)
        return mr_error_plain(err, MR_E_USAGE, "a tier needs a folder, of at most %d bytes",
                              MR_CHECKPOINT_FOLDER_MAX - 16);
    mr_state_tier_folder(of->folder, p->rank, folder);
    out->capacity = of->capacity;
    out->keep_last = of->keep_last ? of->keep_last : 1;
    int rc = mr_checkpoint_place_open(folder, of->store, p->rank, NULL, &out->place.at, err);
    if (rc)
        return rc;
    if (!(mr_store_caps(out->place.at.store) & MR_STORE_CAP_CONTENT))
        return mr_error_plain(err, MR_E_USAGE, "the tier '%s' keeps nothing to drain", of->folder);
    struct mr_checkpoint_place at = out->place.at;
    out->place = *final;
    out->place.at = at;
    out->place.at.shared = false; /* this rank's alone */
    out->place.at.lead = true;
    out->place.at.fsync = p->fsync;
    rc = mr_store_mkdirs(at.store, at.folder, err);
    return rc ? rc : mr_checkpoint_folder_repair(at.store, at.folder, err);
}

int mr_state_tiers_create(const struct mr_saver_params *p, const struct mr_save_place *final, const char *job,
                          struct mr_pace *pace, struct mr_state_tiers **out, struct mr_error *err)
{
    if (p->tiers > MR_SAVER_TIERS)
        return mr_error_plain(err, MR_E_USAGE, "%zu tiers, at most %d are possible", p->tiers, MR_SAVER_TIERS);
    struct mr_state_tiers *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot make tiers");
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->final = final;
    t->out = *final;
    t->out.stop = &t->cut;
    t->pace = pace;
    t->recovering = true;
    snprintf(t->job, sizeof t->job, "%s", job);
    int rc = 0;
    for (size_t i = 0; i < p->tiers && !rc; i++) {
        t->n++;
        rc = open_tier(p, final, &p->tier[i], &t->tier[i], err);
        t->tier[i].place.stop = &t->cut;
    }
    if (!rc && (rc = pthread_create(&t->thread, NULL, drain_main, t)))
        rc = mr_error_set(err, -rc, "cannot start a thread");
    else
        t->running = !rc;
    if (rc)
        mr_state_tiers_free(t);
    else
        *out = t;
    return rc;
}

void mr_state_tiers_cut(struct mr_state_tiers *t)
{
    atomic_store(&t->cut, true);
    mr_pace_hurry(t->pace, true);
    pthread_mutex_lock(&t->lock);
    t->quit = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

void mr_state_tiers_free(struct mr_state_tiers *t)
{
    if (!t)
        return;
    mr_state_tiers_cut(t);
    if (t->running)
        pthread_join(t->thread, NULL);
    for (size_t i = 0; i < t->n; i++) {
        if (t->tier[i].place.at.store)
            mr_checkpoint_place_close(&t->tier[i].place.at);
        free(t->tier[i].held.item);
    }
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- seen by the saver ---- */

int mr_state_tiers_add(struct mr_state_tiers *t, const struct mr_save_place *at, const struct mr_save *s,
                       struct mr_error *err)
{
    if (at == t->final)
        return 0;
    struct held h = {.step = s->step, .bytes = s->bytes};
    snprintf(h.id, sizeof h.id, "%s", s->id);
    pthread_mutex_lock(&t->lock);
    mr_pace_save(t->pace, s->bytes, mr_now_ns());
    h.age = MR_CHECKPOINT_STEP_MAX + ++t->ages; /* after those of earlier jobs, whose age is their step */
    int rc = hold(&t->tier[0], &h, WAITING);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return rc ? mr_error_set(err, rc, "the checkpoint of step %" PRIu64 " stays in the first tier", s->step) : 0;
}

unsigned mr_state_tiers_pending(struct mr_state_tiers *t)
{
    unsigned n = 0;
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->tier[i].held.n; k++)
            n += is_waiting(&t->tier[i].held.item[k]);
    pthread_mutex_unlock(&t->lock);
    return n;
}

int mr_state_tiers_error(struct mr_state_tiers *t, struct mr_error *err)
{
    pthread_mutex_lock(&t->lock);
    int rc = t->code;
    if (rc && err)
        *err = t->why;
    t->code = 0;
    pthread_mutex_unlock(&t->lock);
    return rc;
}

int mr_state_tiers_wait(struct mr_state_tiers *t, uint64_t step, struct mr_error *err)
{
    pthread_mutex_lock(&t->lock);
    while (any_waiting(t, step))
        wait_in_a_hurry(t);
    pthread_mutex_unlock(&t->lock);
    return mr_state_tiers_error(t, err);
}
