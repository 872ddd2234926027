/* The drain: see the header for what it does and README.md for the invariants B1 to B6. One lock guards the queue and
 * the records; it is never held during I/O. Every wait looks at the stop flags, at the latest WAIT_NS after they were
 * set. */
#include "checkpoint/checkpoint_drain.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/vec.h"
#include "checkpoint/state_pace.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_NS (20 * MR_NS_PER_MS)

enum item_state { WAITING, DRAINING, FAILED };

/* One checkpoint in the buffer. */
struct item {
    uint64_t step, bytes, queued_ns;
    bool recovered; /* of an earlier run, which may have copied it */
    enum item_state state;
};

struct mr_checkpoint_drainer {
    const struct mr_checkpoint_params *p;
    const struct mr_checkpoint_place *buffer, *final;
    uint64_t capacity;
    struct mr_pace *pace; /* beside the training's reads; who waits for the drain is in a hurry */
    pthread_t thread;
    bool running;
    atomic_bool cut; /* end now; afterwards the caller's stop function is not asked any more */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* anything below */
    struct item *items;     /* in the order in which they are drained */
    size_t n, cap;
    struct mr_checkpoint_drained *records;
    uint64_t n_records;
    size_t records_cap;
    bool quit, over; /* over: the thread has left its loop */
    int rc;          /* the first failure */
    struct mr_error err;
};

static bool drain_stopped(void *user)
{
    const struct mr_checkpoint_drainer *d = user;
    return atomic_load(&d->cut) || (d->p->stopped && d->p->stopped(d->p->user));
}

/* With the lock. For the drain, which must hurry then. */
static void wait_a_little(struct mr_checkpoint_drainer *d)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t at = (uint64_t)t.tv_nsec + WAIT_NS;
    t.tv_sec += (time_t)(at / MR_NS_PER_S);
    t.tv_nsec = (long)(at % MR_NS_PER_S);
    mr_pace_hurry(d->pace, true);
    pthread_cond_timedwait(&d->changed, &d->lock, &t);
    mr_pace_hurry(d->pace, false);
}

/* ---- one drain ---- */

static bool same_files(const struct mr_checkpoint_list *a, const struct mr_checkpoint_list *b)
{
    bool same = a->n == b->n && a->world == b->world;
    for (size_t i = 0; same && i < a->n; i++)
        same = a->items[i].bytes == b->items[i].bytes && a->items[i].hash == b->items[i].hash &&
               a->items[i].rank == b->items[i].rank && strcmp(a->items[i].name, b->items[i].name) == 0;
    return same;
}

static uint64_t list_time(const struct mr_checkpoint_place *at, const char *dir)
{
    char path[MR_CHECKPOINT_PATH + sizeof MR_CHECKPOINT_LIST_NAME];
    struct mr_store_stat st = {0};
    snprintf(path, sizeof path, "%s/" MR_CHECKPOINT_LIST_NAME, dir);
    return at->store->ops->stat(at->store, path, &st, NULL) == 0 ? st.mtime_ns : 0;
}

/* Whether the final storage needs no copy: an earlier run was killed between giving it its name and freeing the buffer,
 * or somebody saved this step there since. */
static bool is_there(const struct mr_checkpoint_drainer *d, const struct mr_checkpoint_list *l, const char *from,
                     const char *final)
{
    struct mr_checkpoint_list have;
    if (mr_checkpoint_read_list(d->final, final, &have, NULL))
        return false;
    bool same = have.step == l->step && same_files(&have, l) && (have.fsync || !d->final->fsync);
    mr_checkpoint_list_done(&have);
    if (same || list_time(d->final, final) <= list_time(d->buffer, from))
        return same;
    mr_log(MR_LOG_WARN, "'%s' is newer than the copy of its step in the burst buffer, which is dropped", final);
    return true;
}

static int copy_over(struct mr_checkpoint_drainer *d, struct mr_checkpoint_job *j, const char *final,
                     struct mr_error *err)
{
    int rc = mr_checkpoint_begin(d->final, j->dir, err);
    if (!rc)
        rc = mr_checkpoint_copy(j, err);
    struct mr_checkpoint_list all = j->list;
    all.fsync = d->final->fsync;
    if (!rc)
        rc = mr_checkpoint_publish(j, &all, final, err);
    if (rc && !atomic_load(&d->cut))
        mr_checkpoint_dir_remove(d->final->store, j->dir, NULL); /* the error that matters is already reported */
    return rc;
}

/* B1: the buffer is freed only after the copy has its name. */
static int drain_one(struct mr_checkpoint_drainer *d, bool recovered, struct mr_checkpoint_drained *r,
                     struct mr_error *err)
{
    char from[MR_CHECKPOINT_PATH], tmp[MR_CHECKPOINT_PATH], final[MR_CHECKPOINT_PATH];
    struct mr_checkpoint_job j = {.p = d->p,
                                  .at = d->final,
                                  .from = d->buffer,
                                  .dir = tmp,
                                  .from_dir = from,
                                  .pace = d->pace,
                                  .stopped = drain_stopped,
                                  .user = d};
    mr_checkpoint_dir_path(d->buffer->folder, r->step, MR_CHECKPOINT_COMPLETE, from);
    mr_checkpoint_dir_path(d->final->folder, r->step, MR_CHECKPOINT_TMP, tmp);
    mr_checkpoint_dir_path(d->final->folder, r->step, MR_CHECKPOINT_COMPLETE, final);
    int rc = mr_checkpoint_read_list(d->buffer, from, &j.list, err);
    if (rc)
        return rc;
    if (j.list.step != r->step)
        rc = mr_error_plain(err, MR_E_CORRUPT, "the list in '%s' is of step %" PRIu64, from, j.list.step);
    else if (!recovered || !is_there(d, &j.list, from, final))
        rc = copy_over(d, &j, final, err);
    else if (d->final->fsync)
        rc = d->final->store->ops->sync_dir(d->final->store, d->final->folder, err);
    r->files = j.list.n;
    r->bytes = 0;
    for (size_t i = 0; i < j.list.n; i++)
        r->bytes += j.list.items[i].bytes;
    mr_checkpoint_list_done(&j.list);
    return rc ? rc : mr_checkpoint_retire(d->buffer->store, d->buffer->folder, r->step, err);
}

static void tell_failure(const struct mr_checkpoint_drainer *d, uint64_t step, struct mr_error *err)
{
    mr_error_context(err, "draining the checkpoint of step %" PRIu64 " from the burst buffer", step);
    err->hint[0] = '\0'; /* an inner one is about loading */
    mr_error_hint(err, "the checkpoint stays in '%s'; the next run with this burst buffer drains it",
                  d->buffer->folder);
    mr_log(MR_LOG_WARN, "cannot drain the checkpoint of step %" PRIu64 " from the burst buffer: %s", step,
           err->message);
}

/* ---- the thread ---- */

static struct item *find(struct mr_checkpoint_drainer *d, uint64_t step)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i].step == step)
            return &d->items[i];
    return NULL;
}

static void forget(struct mr_checkpoint_drainer *d, uint64_t step)
{
    struct item *x = find(d, step);
    if (!x)
        return;
    size_t at = (size_t)(x - d->items);
    memmove(x, x + 1, (--d->n - at) * sizeof(*x));
}

static struct item *next_waiting(struct mr_checkpoint_drainer *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i].state == WAITING)
            return &d->items[i];
    return NULL;
}

/* With the lock, after drain_one. Room for the record was made before. */
static void settle(struct mr_checkpoint_drainer *d, const struct mr_checkpoint_drained *r, const struct mr_error *err)
{
    if (r->code == 0) {
        forget(d, r->step);
    } else {
        find(d, r->step)->state = r->code == MR_E_INTERRUPTED ? WAITING : FAILED;
        if (r->code != MR_E_INTERRUPTED && !d->rc) {
            d->rc = r->code;
            d->err = *err;
        }
    }
    if (r->code != MR_E_INTERRUPTED)
        d->records[d->n_records++] = *r;
}

static void *drain_main(void *arg)
{
    struct mr_checkpoint_drainer *d = arg;
    struct mr_error err;
    int code = 0;
    pthread_mutex_lock(&d->lock);
    while (!d->quit && code != MR_E_INTERRUPTED) {
        struct item *x = next_waiting(d);
        if (!x) {
            pthread_cond_wait(&d->changed, &d->lock); /* for an add or the end */
            continue;
        }
        x->state = DRAINING;
        struct mr_checkpoint_drained r = {.step = x->step, .queued_ns = x->queued_ns, .start_ns = mr_now_ns()};
        bool recovered = x->recovered;
        pthread_mutex_unlock(&d->lock);
        code = r.code = drain_one(d, recovered, &r, &err);
        r.end_ns = mr_now_ns();
        if (code && code != MR_E_INTERRUPTED)
            tell_failure(d, r.step, &err);
        pthread_mutex_lock(&d->lock);
        settle(d, &r, &err);
        pthread_cond_broadcast(&d->changed);
    }
    d->over = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- the queue, seen by the trainer ---- */

/* Room for one more item and its record, so that adding and finishing cannot fail. With the lock. */
static int make_room_for_one(struct mr_checkpoint_drainer *d)
{
    if (mr_vec_reserve(&d->items, &d->cap, d->n + 1, sizeof(*d->items)) < 0)
        return -ENOMEM;
    return mr_vec_reserve(&d->records, &d->records_cap, d->n_records + d->n + 1, sizeof(*d->records));
}

static void queue(struct mr_checkpoint_drainer *d, uint64_t step, uint64_t bytes, bool recovered)
{
    pthread_mutex_lock(&d->lock);
    forget(d, step); /* B6: at most a failed one of an earlier save of this step */
    d->items[d->n++] = (struct item){.step = step, .bytes = bytes, .queued_ns = mr_now_ns(), .recovered = recovered};
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

void mr_checkpoint_drainer_add(struct mr_checkpoint_drainer *d, uint64_t step, uint64_t bytes)
{
    mr_pace_save(d->pace, bytes, mr_now_ns());
    queue(d, step, bytes, false);
}

void mr_checkpoint_drainer_drop(struct mr_checkpoint_drainer *d, uint64_t step)
{
    char dir[MR_CHECKPOINT_PATH];
    struct mr_store_stat st;
    mr_checkpoint_dir_path(d->buffer->folder, step, MR_CHECKPOINT_COMPLETE, dir);
    if (d->buffer->store->ops->stat(d->buffer->store, dir, &st, NULL) == 0)
        mr_checkpoint_retire(d->buffer->store, d->buffer->folder, step, NULL);
    pthread_mutex_lock(&d->lock);
    forget(d, step);
    pthread_mutex_unlock(&d->lock);
}

/* Whether the thread still works on something, so that waiting may help. With the lock. */
static bool busy(struct mr_checkpoint_drainer *d)
{
    bool pending = false;
    for (size_t i = 0; i < d->n; i++)
        pending |= d->items[i].state != FAILED;
    return pending && !d->over;
}

static int interrupted(struct mr_error *err)
{
    return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted while the burst buffer drained");
}

/* Bytes that may still be put into the buffer; UINT64_MAX when nobody can tell. */
static uint64_t space_left(struct mr_checkpoint_drainer *d, uint64_t held)
{
    uint64_t bytes = UINT64_MAX, inodes;
    if (d->capacity)
        return d->capacity > held ? d->capacity - held : 0;
    if (d->buffer->store->ops->free_space(d->buffer->store, d->buffer->folder, &bytes, &inodes, NULL))
        return UINT64_MAX;
    return bytes;
}

static int no_room(const struct mr_checkpoint_drainer *d, uint64_t bytes, uint64_t left, uint64_t held,
                   struct mr_error *err)
{
    mr_error_plain(err, MR_E_LIMIT,
                   "the burst buffer '%s' has room for %" PRIu64 " bytes, the checkpoint has %" PRIu64 " (%" PRIu64
                   " bytes of others are in it)",
                   d->buffer->folder, left, bytes, held);
    return MR_E_LIMIT;
}

int mr_checkpoint_drainer_room(struct mr_checkpoint_drainer *d, uint64_t step, uint64_t bytes, struct mr_error *err)
{
    for (;;) {
        uint64_t held = 0;
        pthread_mutex_lock(&d->lock);
        int rc = make_room_for_one(d);
        const struct item *same = find(d, step);
        bool taken = same && same->state != FAILED, hope = busy(d); /* B6 */
        for (size_t i = 0; i < d->n; i++)
            held += d->items[i].bytes;
        pthread_mutex_unlock(&d->lock);
        if (rc)
            return mr_error_set(err, rc, "cannot queue a checkpoint for the drain");
        uint64_t left = space_left(d, held);
        if (!taken && bytes <= left)
            return 0;
        if (!hope && !taken)
            return no_room(d, bytes, left, held, err);
        if (!hope || drain_stopped(d))
            return interrupted(err);
        pthread_mutex_lock(&d->lock);
        if (busy(d))
            wait_a_little(d);
        pthread_mutex_unlock(&d->lock);
    }
}

int mr_checkpoint_drainer_idle(struct mr_checkpoint_drainer *d, struct mr_error *err)
{
    bool left = false;
    pthread_mutex_lock(&d->lock);
    while (busy(d) && !drain_stopped(d))
        wait_a_little(d);
    for (size_t i = 0; i < d->n; i++)
        left |= d->items[i].state != FAILED;
    pthread_mutex_unlock(&d->lock);
    return left ? interrupted(err) : 0;
}

int mr_checkpoint_drainer_failure(struct mr_checkpoint_drainer *d, struct mr_error *err)
{
    pthread_mutex_lock(&d->lock);
    int rc = d->rc;
    if (rc && err)
        *err = d->err;
    pthread_mutex_unlock(&d->lock);
    return rc;
}

uint64_t mr_checkpoint_drainer_left(struct mr_checkpoint_drainer *d)
{
    pthread_mutex_lock(&d->lock);
    uint64_t n = d->n;
    pthread_mutex_unlock(&d->lock);
    return n;
}

uint64_t mr_checkpoint_drainer_records(struct mr_checkpoint_drainer *d, uint64_t first,
                                       struct mr_checkpoint_drained *out, uint64_t cap)
{
    uint64_t n = 0;
    pthread_mutex_lock(&d->lock);
    for (; n < cap && first + n < d->n_records; n++)
        out[n] = d->records[first + n];
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* ---- what an earlier run left ---- */

static uint64_t bytes_in(const struct mr_checkpoint_drainer *d, uint64_t step)
{
    char dir[MR_CHECKPOINT_PATH];
    struct mr_checkpoint_list l;
    uint64_t bytes = 0;
    mr_checkpoint_dir_path(d->buffer->folder, step, MR_CHECKPOINT_COMPLETE, dir);
    if (mr_checkpoint_read_list(d->buffer, dir, &l, NULL))
        return 0; /* the drain will tell */
    for (size_t i = 0; i < l.n; i++)
        bytes += l.items[i].bytes;
    mr_checkpoint_list_done(&l);
    return bytes;
}

int mr_checkpoint_drainer_recover(struct mr_checkpoint_drainer *d, unsigned *found, struct mr_error *err)
{
    struct mr_checkpoint_dirs dirs = {0};
    struct mr_store *s = d->buffer->store;
    unsigned n = 0;
    int rc = mr_store_mkdirs(s, d->buffer->folder, err);
    if (!rc)
        rc = mr_checkpoint_folder_repair(s, d->buffer->folder, err);
    if (!rc)
        rc = mr_checkpoint_dirs_read(s, d->buffer->folder, &dirs, err);
    for (size_t i = 0; !rc && i < dirs.n; i++) {
        if (dirs.item[i].kind != MR_CHECKPOINT_COMPLETE)
            continue;
        pthread_mutex_lock(&d->lock);
        rc = make_room_for_one(d);
        pthread_mutex_unlock(&d->lock);
        if (rc) {
            mr_error_set(err, rc, "cannot queue a checkpoint for the drain");
            break;
        }
        queue(d, dirs.item[i].step, bytes_in(d, dirs.item[i].step), true);
        n++;
    }
    mr_checkpoint_dirs_done(&dirs);
    if (!rc)
        *found = n;
    return rc;
}

/* ---- lifecycle ---- */

int mr_checkpoint_drainer_create(const struct mr_checkpoint_params *p, const struct mr_checkpoint_place *buffer,
                                 const struct mr_checkpoint_place *final, uint64_t capacity,
                                 struct mr_checkpoint_drainer **out, struct mr_error *err)
{
    pthread_condattr_t monotonic;
    struct mr_checkpoint_drainer *d = calloc(1, sizeof(*d));
    if (!d)
        return mr_error_set(err, -ENOMEM, "cannot make the drain of the burst buffer");
    d->p = p;
    d->buffer = buffer;
    d->final = final;
    d->capacity = capacity;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    d->pace = mr_pace_create(0, false);
    int rc = d->pace ? pthread_create(&d->thread, NULL, drain_main, d) : ENOMEM;
    d->running = rc == 0;
    if (rc) {
        mr_checkpoint_drainer_free(d);
        return mr_error_set(err, -rc, "cannot start the thread that drains the burst buffer");
    }
    *out = d;
    return 0;
}

void mr_checkpoint_drainer_free(struct mr_checkpoint_drainer *d)
{
    if (!d)
        return;
    atomic_store(&d->cut, true);
    if (d->pace)
        mr_pace_hurry(d->pace, true);
    pthread_mutex_lock(&d->lock);
    d->quit = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (d->running)
        pthread_join(d->thread, NULL);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->changed);
    mr_pace_free(d->pace);
    free(d->items);
    free(d->records);
    free(d);
}
