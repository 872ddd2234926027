/* See the header for what tiers are and README.md for the invariants T1 to T6. */
#include "checkpoint/state_tier.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/vec.h"
#include "checkpoint/checkpoint_guard.h"
#include "checkpoint/checkpoint_read.h"
#include "checkpoint/state_image.h"
#include "checkpoint/state_pace.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS (20 * MR_NS_PER_MS) /* how often a wait looks whether the job stops */
#define DRAIN_THREADS 2

enum stage { WAITING, DRAINING, FAILED, DRAINED };

/* A checkpoint in a tier. */
struct held {
    struct mr_state_had is; /* world: of an earlier job of another size: its shares are in `left`; 0: this rank's own */
    uint64_t age;           /* in this order they go to the final folder, on all ranks */
    uint64_t queued_ns;
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
    struct mr_pace *pace;
    struct tier tier[MR_SAVER_TIERS + 1]; /* the last: `final` as the drain sees it, which can be cut short */
    size_t n;
    bool buffer;
    struct mr_state_have left; /* shares of earlier jobs, of this rank; by the drain's thread, once */
    atomic_bool cut;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool recovering;
    bool over; /* nothing is drained any more */
    uint64_t ages;
    unsigned recovered;
    MR_VEC(struct mr_checkpoint_drained) drains; /* to the final folder */
    struct mr_failure untold, first;             /* not told yet; of all */
};

/* ---- what a tier holds; the lock is held ---- */

static struct held *find(struct tier *t, uint64_t step)
{
    for (size_t i = 0; i < t->held.n; i++)
        if (t->held.item[i].is.step == step)
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
    forget(t, what->is.step);
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
        bytes += t->held.item[i].is.bytes;
    return bytes;
}

/* Of any step (MR_ALL_STEPS), or this one, in any tier: those that wait or drain; `failed`: also those that failed. */
static unsigned count_waiting(const struct mr_state_tiers *t, uint64_t step, bool failed)
{
    unsigned n = 0;
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->tier[i].held.n; k++) {
            const struct held *h = &t->tier[i].held.item[k];
            n += (step == MR_ALL_STEPS || h->is.step == step) && h->stage <= (failed ? FAILED : DRAINING);
        }
    return n;
}

static bool is_stopped(const struct mr_state_tiers *t)
{
    return t->final->hooks.stopped && t->final->hooks.stopped(t->final->hooks.user);
}

static bool any_waiting(const struct mr_state_tiers *t, uint64_t step)
{
    return t->recovering || ((!t->over || is_stopped(t)) && count_waiting(t, step, false));
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

static bool is_share_of(const struct mr_state_had *x, size_t tier, uint64_t step, const char *id)
{
    return x->tier == tier && x->step == step && strcmp(x->id, id) == 0;
}

/* The folders of this rank's shares, one after the other; *at begins with 0. */
static bool next_share(const struct mr_state_tiers *t, const struct tier *from, const struct held *h, size_t *at,
                       struct mr_path *folder)
{
    if (!h->is.world) {
        *folder = mr_path("%s", from->place.at.folder);
        return (*at)++ == 0;
    }
    for (; *at < t->left.n; ++*at) {
        const struct mr_state_had *x = &t->left.item[*at];
        if (is_share_of(x, (size_t)(from - t->tier), h->is.step, h->is.id)) {
            *folder = mr_state_tier_folder(from->place.at.base, x->share);
            ++*at;
            return true;
        }
    }
    return false;
}

/* T1: only what a later place has. */
static int let_go(struct mr_state_tiers *t, struct tier *from, const struct held *h)
{
    struct held what = *h;
    assert(what.stage == DRAINED); /* T1 */
    struct mr_path folder;
    struct mr_error why;
    int rc = 0;
    for (size_t at = 0; next_share(t, from, &what, &at, &folder);)
        if ((rc = mr_checkpoint_retire(from->place.at.store, folder.text, what.is.step, &why))) {
            mr_log(MR_LOG_WARN, "cannot remove step %" PRIu64 " from the tier '%s': %s", what.is.step, folder.text,
                   why.message);
            mr_error_context(&why, "draining the checkpoint of step %" PRIu64, what.is.step);
            why.hint[0] = '\0';
            mr_error_hint(&why, "the next run with this burst buffer removes it");
            break;
        }
    if (rc && t->buffer)
        mr_failure_keep(&t->first, rc, &why);
    forget(from, what.is.step);
    return rc;
}

/* Removes drained ones until there is room; false: there will not be any before a drain. */
static bool make_room(struct mr_state_tiers *t, struct tier *in, uint64_t bytes)
{
    struct held *h;
    while (space_left(in) < bytes && (h = oldest_drained(in, 0)))
        let_go(t, in, h);
    return space_left(in) >= bytes;
}

/* The first code of a removal that failed. */
static int tidy(struct mr_state_tiers *t, struct tier *in)
{
    struct held *h;
    int rc = 0;
    while ((h = oldest_drained(in, in->keep_last))) {
        int code = let_go(t, in, h);
        rc = rc ? rc : code;
    }
    return rc;
}

/* T6. The lock is held, and let go meanwhile. */
static int wait_in_a_hurry(struct mr_state_tiers *t, struct mr_error *err)
{
    if (is_stopped(t))
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted while the burst buffer drained");
    mr_pace_hurry(t->pace, true);
    if (t->final->hooks.stopped)
        mr_cond_wait_until(&t->changed, &t->lock, mr_now_ns() + LOOK_NS);
    else
        pthread_cond_wait(&t->changed, &t->lock);
    mr_pace_hurry(t->pace, false);
    return 0;
}

/* Nothing of that step waits for its drain any more. The lock is held. */
static int settle_all(struct mr_state_tiers *t, uint64_t step, struct mr_error *err)
{
    int rc = 0;
    while (!rc && any_waiting(t, step))
        rc = wait_in_a_hurry(t, err);
    return rc;
}

int mr_state_tiers_wait(struct mr_state_tiers *t, uint64_t step, struct mr_error *err)
{
    pthread_mutex_lock(&t->lock);
    int rc = settle_all(t, step, err);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

struct mr_save_place *mr_state_tiers_first(struct mr_state_tiers *t)
{
    return &t->tier[0].place;
}

int mr_state_tiers_room(struct mr_state_tiers *t, uint64_t step, uint64_t bytes, struct mr_error *err)
{
    struct tier *first = &t->tier[0];
    bool room = false;
    pthread_mutex_lock(&t->lock);
    int rc = settle_all(t, step, err);       /* T4 */
    for (size_t i = 0; i < t->n && !rc; i++) /* what is left of an earlier save of this step failed to drain */
        forget(&t->tier[i], step);
    while (!rc && !(room = make_room(t, first, bytes)) && any_waiting(t, MR_ALL_STEPS))
        rc = wait_in_a_hurry(t, err);
    if (!rc && !room)
        rc = mr_error_plain(err, MR_E_LIMIT,
                            "the %s '%s' has room for %" PRIu64 " bytes, the checkpoint has %" PRIu64 " (%" PRIu64
                            " bytes of others are in it)",
                            t->buffer ? "burst buffer" : "tier", first->place.at.base, space_left(first), bytes,
                            bytes_held(first));
    pthread_mutex_unlock(&t->lock);
    return rc;
}

/* ---- one drain: pieces are written as they are read; their checksums are compared before the copy gets its name (T3) */

struct drain {
    struct mr_state_tiers *t;
    struct held what;
    size_t from, to; /* numbers of tiers */
    uint64_t start_ns;
    struct mr_save save;
    struct mr_checkpoint_reading read;
};

static int add_share(struct drain *d, const char *folder, struct mr_error *err)
{
    struct mr_path dir = mr_checkpoint_dir_path(folder, d->save.step, MR_CHECKPOINT_COMPLETE);
    struct mr_checkpoint_list l;
    int rc = mr_checkpoint_read_list(d->read.at, dir.text, &l, err);
    if (rc)
        return rc;
    rc = mr_checkpoint_reading_add(&d->read, dir.text, &l, err);
    d->save.world = l.world;
    mr_checkpoint_list_done(&l);
    return rc;
}

static int write_piece(void *user, const struct mr_checkpoint_unit *u, uint64_t at, const void *buf, size_t n,
                       struct mr_error *err)
{
    struct mr_save *s = &((struct drain *)user)->save;
    int rc = mr_save_write(s, &s->file[u->file], at, buf, n, err);
    struct mr_where where = MR_NOWHERE;
    const struct mr_emit_arg bytes = {.name = "bytes", .value = (int64_t)n};
    where.step = s->step;
    if (!rc)
        mr_emit_args(s->place->events, MR_SPAN_DRAIN_PIECE, u->start_ns, mr_now_ns(), &where, (int64_t)n, &bytes, 1);
    return rc;
}

static int drain_one(struct drain *d, struct mr_error *err)
{
    struct mr_state_tiers *t = d->t;
    struct tier *from = &t->tier[d->from];
    const struct held *h = &d->what;
    struct mr_save *s = &d->save;
    struct mr_checkpoint_reading *r = &d->read;
    *r = (struct mr_checkpoint_reading){.at = &from->place.at,
                                        .direct = from->place.direct,
                                        .threads = DRAIN_THREADS,
                                        .piece_bytes = MR_STATE_CHUNK,
                                        .pace = t->pace,
                                        .stop = &t->cut,
                                        .take = write_piece,
                                        .user = d};
    struct mr_path folder;
    *s = (struct mr_save){
        .place = &t->tier[d->to].place, .step = h->is.step, .world = h->is.world, .drained = true, .pace = t->pace};
    snprintf(s->id, sizeof s->id, "%s", h->is.id);
    snprintf(s->by, sizeof s->by, "-%s", t->final->job);
    int rc = 0;
    for (size_t at = 0; !rc && next_share(t, from, h, &at, &folder);)
        rc = add_share(d, folder.text, err);
    if (mr_save_init(s, r->list.items, r->list.n, 0) && !rc)
        rc = mr_error_set(err, -ENOMEM, "cannot drain");
    rc = rc ? rc : mr_save_begin(s, err);
    rc = rc ? rc : mr_checkpoint_reading_run(r, err);
    rc = mr_save_end(s, rc, err);
    mr_checkpoint_reading_done(r);
    return rc;
}

/* ---- what an earlier job left ---- */

/* The place has this save, or one of the step that was made later. */
static bool is_in(const struct mr_save_place *at, const struct mr_state_had *h, bool or_newer)
{
    struct mr_state_had there;
    if (mr_state_have_in(&at->at, h->step, &there, NULL) <= 0)
        return false;
    if (strcmp(there.id, h->id) == 0 && (there.fsync || !at->at.fsync))
        return true;
    if (!or_newer || at->at.by_list || there.time_ns <= h->time_ns) /* a server has a clock of its own */
        return false;
    mr_log(MR_LOG_WARN, "'%s' is newer than the copy of its step in the burst buffer, which is dropped",
           mr_checkpoint_dir_path(at->at.folder, h->step, MR_CHECKPOINT_COMPLETE).text);
    return true;
}

/* A checkpoint of an earlier job in a tier: drained if a later tier or the final folder has it, else waiting. Of those
 * that are not whole, a burst buffer keeps nothing: their saves were not over. In tiers they stay until they make room. */
static int recover_one(struct mr_state_tiers *t, size_t i, const struct mr_state_had *whole, const struct held *h)
{
    bool drained = !whole;
    for (size_t k = i + 1; !drained && k <= t->n; k++)
        drained = is_in(&t->tier[k].place, whole, k == t->n);
    pthread_mutex_lock(&t->lock);
    int rc = !whole && find(&t->tier[i], h->is.step) ? 0 : hold(&t->tier[i], h, drained ? DRAINED : WAITING);
    t->recovered += !rc && whole && i == 0;
    pthread_mutex_unlock(&t->lock);
    return rc;
}

/* What has only a torn or a replaced copy in the tier is cleared before. */
static int recover_all(struct mr_state_tiers *t, const struct mr_state_have *common)
{
    int rc = 0;
    for (size_t k = 0, end; k < t->left.n && !rc; k = end) { /* several shares are held once */
        const struct mr_state_had *x = &t->left.item[k], *whole = mr_state_have_find(common, x->step, x->id);
        struct held h = {.is = *x, .age = x->step, .queued_ns = mr_now_ns()};
        for (end = k + 1; end < t->left.n && is_share_of(&t->left.item[end], x->tier, x->step, x->id); end++)
            h.is.bytes += t->left.item[end].bytes;
        if (whole && t->buffer && t->tier[x->tier].capacity)
            h.is.bytes = whole->bytes;
        if (x->share == t->final->rank && x->world == t->final->world)
            h.is.world = 0; /* as if this job had saved it */
        rc = recover_one(t, x->tier, whole, &h);
    }
    for (size_t k = 0; k < common->n && !rc; k++) { /* of which this rank has no share: it is there all the same */
        const struct mr_state_had *c = &common->item[k];
        struct held h = {.is = *c, .age = c->step, .queued_ns = mr_now_ns()};
        h.is.bytes = 0;
        if (!mr_state_have_find(&t->left, c->step, c->id))
            rc = recover_one(t, 0, c, &h);
    }
    return rc;
}

static void recover(struct mr_state_tiers *t)
{
    struct mr_state_have common;
    struct mr_error why;
    const struct mr_checkpoint_place *place[MR_SAVER_TIERS];
    for (size_t i = 0; i < t->n; i++)
        place[i] = &t->tier[i].place.at;
    if (mr_state_have_common(&t->tier[t->n].place, place, t->n, "drain", &t->left, &common, &why))
        mr_log(MR_LOG_WARN, "what an earlier job left in '%s' is not drained: %s", t->tier[0].place.at.base,
               why.message);
    if (recover_all(t, &common))
        mr_log(MR_LOG_WARN, "what an earlier job left stays in '%s': no memory", t->tier[0].place.at.base);
    mr_state_have_done(&common);
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n && t->buffer; i++)
        tidy(t, &t->tier[i]);
    pthread_mutex_unlock(&t->lock);
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
        if (h && !h->is.world && i + 1 < t->n && make_room(t, &t->tier[i + 1], h->is.bytes)) {
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

static void note_failure(struct mr_state_tiers *t, const struct drain *d, int rc, struct mr_error *err)
{
    const struct mr_checkpoint_place *at = &t->tier[d->from].place.at;
    mr_error_context(err, "draining the checkpoint of step %" PRIu64 "%s", d->what.is.step,
                     t->buffer ? " from the burst buffer" : "");
    err->hint[0] = '\0'; /* an inner one is about loading, or the folder */
    mr_error_hint(err, "the checkpoint stays in '%s'; the next %s drains it", t->buffer ? at->base : at->folder,
                  t->buffer ? "run with this burst buffer" : "job");
    if (t->buffer)
        mr_log(MR_LOG_WARN, "cannot drain the checkpoint of step %" PRIu64 " from the burst buffer: %s",
               d->what.is.step, err->message);
    mr_failure_keep(&t->untold, rc, err);
    mr_failure_keep(&t->first, rc, err);
}

/* What came of a drain. The lock is held. */
static void settle(struct mr_state_tiers *t, const struct drain *d, int rc, struct mr_error *err)
{
    struct held *mine = find(&t->tier[d->from], d->what.is.step);
    const struct mr_save *s = &d->save;
    mine->stage = rc == MR_E_INTERRUPTED ? WAITING : rc ? FAILED : DRAINED;
    if (rc == MR_E_INTERRUPTED)
        return;
    if (rc) {
        note_failure(t, d, rc, err);
    } else {
        if (d->to < t->n && hold(&t->tier[d->to], &d->what, WAITING))
            mr_log(MR_LOG_WARN, "step %" PRIu64 " stays in '%s': no memory", s->step, s->place->at.folder);
        int freed = tidy(t, &t->tier[d->from]);
        rc = t->buffer ? freed : 0;
    }
    struct mr_checkpoint_drained *row = d->to == t->n ? MR_VEC_ADD(&t->drains) : NULL;
    if (row) /* without memory it is done and not listed */
        *row = (struct mr_checkpoint_drained){.step = s->step,
                                              .bytes = s->all_files ? s->all_bytes : s->bytes,
                                              .files = s->all_files ? s->all_files : s->files,
                                              .queued_ns = d->what.queued_ns,
                                              .start_ns = d->start_ns,
                                              .end_ns = mr_now_ns(),
                                              .code = rc};
}

static void *drain_main(void *user)
{
    struct mr_state_tiers *t = user;
    recover(t);
    pthread_mutex_lock(&t->lock);
    t->recovering = false;
    pthread_cond_broadcast(&t->changed);
    int rc = 0;
    while (!atomic_load(&t->cut) && rc != MR_E_INTERRUPTED) {
        struct drain d = {.t = t};
        struct mr_error err;
        struct held *h = next_drain(t, &d.from, &d.to);
        if (!h) {
            pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        assert(h->stage == WAITING); /* T3 */
        h->stage = DRAINING;
        d.what = *h;
        d.start_ns = mr_now_ns();
        pthread_mutex_unlock(&t->lock);
        rc = drain_one(&d, &err);
        pthread_mutex_lock(&t->lock);
        settle(t, &d, rc, &err);
        mr_save_done(&d.save);
        pthread_cond_broadcast(&t->changed);
    }
    t->over = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- lifecycle ---- */

static int open_tier(const struct mr_saver_params *p, const struct mr_save_place *final, const struct mr_saver_tier *of,
                     struct tier *out, struct mr_error *err)
{
    bool buffer = final->hooks.emulated;
    const char *what = buffer ? "burst buffer" : "tier";
    struct mr_checkpoint_place *at = &out->place.at;
    out->capacity = of->capacity;
    out->keep_last = of->keep_last || buffer ? of->keep_last : 1;
    out->place = *final;
    *at = (struct mr_checkpoint_place){0};
    int rc = mr_state_tier_open(of, p->rank, buffer ? p->events : NULL, at, err);
    if (rc)
        return mr_error_context(err, "the %s", what), rc;
    if (!(mr_store_caps(at->store) & MR_STORE_CAP_CONTENT))
        return mr_error_plain(err, buffer ? MR_E_CONFIG : MR_E_USAGE, "the %s '%s' keeps nothing to drain", what,
                              of->folder);
    bool is_folder = at->shared; /* of the operating system, not of this process */
    at->shared = false;          /* this rank's alone */
    at->lead = true;
    at->fsync = p->fsync;
    rc = mr_store_mkdirs(at->store, at->folder, err);
    int claimed = is_folder ? mr_checkpoint_claim(at->base, final->at.folder, false, err) : 0; /* T7 */
    if (is_folder && !claimed)
        claimed = mr_checkpoint_lock(at->folder, true, &at->lock_fd, err);
    if (claimed)
        return claimed;
    mr_save_forget(&out->place);
    rc = rc ? rc : mr_checkpoint_folder_repair(at->store, at->folder, err);
    return buffer ? 0 : rc; /* a save that finds it broken goes around it */
}

int mr_state_tiers_create(const struct mr_saver_params *p, const struct mr_save_place *final, struct mr_pace *pace,
                          struct mr_state_tiers **out, struct mr_error *err)
{
    struct mr_state_tiers *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "cannot make tiers");
    pthread_mutex_init(&t->lock, NULL);
    mr_cond_init(&t->changed);
    t->final = final;
    t->buffer = final->hooks.emulated;
    t->pace = pace;
    t->recovering = true;
    int rc = 0;
    for (size_t i = 0; i < p->tiers && !rc; i++) {
        t->n++;
        rc = open_tier(p, final, &p->tier[i], &t->tier[i], err);
        t->tier[i].place.stop = &t->cut;
    }
    t->tier[t->n].place = *final;
    t->tier[t->n].place.stop = &t->cut;
    t->tier[t->n].place.hooks.agree = NULL; /* drains meet in the folder */
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
        mr_checkpoint_place_close(&t->tier[i].place.at);
        free(t->tier[i].held.item);
    }
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    mr_state_have_done(&t->left);
    free(t->drains.item);
    free(t);
}

/* ---- seen by the saver ---- */

int mr_state_tiers_add(struct mr_state_tiers *t, const struct mr_save *s, struct mr_error *err)
{
    struct held h = {.is = {.step = s->step, .bytes = s->held_bytes}, .queued_ns = mr_now_ns()};
    const struct mr_checkpoint_place *first = &t->tier[0].place.at;
    bool around = s->place == t->final;
    int rc = 0;
    snprintf(h.is.id, sizeof h.is.id, "%s", s->id);
    if (around) /* an earlier save of the step, if it is there */
        mr_checkpoint_retire(first->store, first->folder, s->step, NULL);
    pthread_mutex_lock(&t->lock);
    if (around) {
        forget(&t->tier[0], s->step);
    } else {
        mr_pace_save(t->pace, s->bytes, h.queued_ns);
        h.age = MR_CHECKPOINT_STEP_MAX + ++t->ages; /* after those of earlier jobs, whose age is their step */
        rc = hold(&t->tier[0], &h, WAITING);
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return rc ? mr_error_set(err, rc, "the checkpoint of step %" PRIu64 " stays in the first tier", s->step) : 0;
}

unsigned mr_state_tiers_pending(struct mr_state_tiers *t, bool failed)
{
    pthread_mutex_lock(&t->lock);
    unsigned n = count_waiting(t, MR_ALL_STEPS, failed);
    pthread_mutex_unlock(&t->lock);
    return n;
}

int mr_state_tiers_failure(struct mr_state_tiers *t, bool untold, struct mr_error *err)
{
    pthread_mutex_lock(&t->lock);
    int rc = mr_failure_get(untold ? &t->untold : &t->first, untold, err);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

unsigned mr_state_tiers_recovered(struct mr_state_tiers *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->recovering && !wait_in_a_hurry(t, NULL))
        ;
    unsigned n = t->recovered;
    pthread_mutex_unlock(&t->lock);
    return n;
}

uint64_t mr_state_tiers_drains(struct mr_state_tiers *t, uint64_t first, struct mr_checkpoint_drained *out,
                               uint64_t cap)
{
    uint64_t n = 0;
    pthread_mutex_lock(&t->lock);
    for (; n < cap && first + n < t->drains.n; n++)
        out[n] = t->drains.item[first + n];
    pthread_mutex_unlock(&t->lock);
    return n;
}

uint32_t mr_state_tiers_find(struct mr_state_tiers *t, uint64_t *step, bool *all_shares)
{
    const struct held *best = NULL;
    uint32_t world = 0;
    pthread_mutex_lock(&t->lock);
    for (size_t k = 0; k < t->tier[0].held.n; k++) {
        const struct held *h = &t->tier[0].held.item[k];
        if (h->stage != DRAINED && (*step == MR_ALL_STEPS ? !best || h->is.step > best->is.step : h->is.step == *step))
            best = h;
    }
    if (best) {
        *step = best->is.step;
        world = best->is.world ? best->is.world : t->final->world;
        const struct mr_state_had *x = mr_state_have_find(&t->left, best->is.step, best->is.id);
        *all_shares = best->is.world && x && x->share == MR_STATE_ALL_SHARES;
    }
    pthread_mutex_unlock(&t->lock);
    return world;
}
