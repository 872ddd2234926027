/* A saver: copies states into its ring while the caller waits, and writes them out behind the caller's back, or writes
 * them from the caller's memory while it waits. See <millrace/state.h> for the contract, README.md for the invariants.
 *
 *   save():  image ─ copy threads: slot ─ fill ─> chunks of the newest save
 *   writers: chunks of the OLDEST save ─ checksum, write ─ slot back ─ all written: its name ─> the next is the oldest
 *   save() of a synchronous one:  image ─ threads of the caller: checksum, write ─ its name
 */
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/cond.h"
#include "base/workers.h"
#include "checkpoint/checkpoint_guard.h"
#include "checkpoint/state_saver.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITERS_DEFAULT 4u /* while one computes a checksum, the others keep the device busy */
#define RING_MIN 2         /* slots: one is copied while one is written */

/* ---- opening and closing ---- */

/* One saver at a time clears and writes a folder. The lock goes with the process. */
static int lock_folder(struct mr_saver *s, struct mr_error *err)
{
    struct mr_checkpoint_place *at = &s->place.at;
    if (!at->lead || !at->shared)
        return 0;
    int rc = mr_store_mkdirs(at->store, at->folder, err);
    if (rc) /* with tiers a save succeeds all the same */
        return s->p.tiers ? 0 : rc;
    rc = mr_checkpoint_lock(at->folder, false, &at->lock_fd, err);
    if (rc)
        return rc;
    mr_save_forget(&s->place);
    /* What a killed job left, before another rank takes it for this one's; the first save has its errors. */
    mr_checkpoint_folder_repair(at->store, at->folder, NULL);
    return 0;
}

static void free_saver(struct mr_saver *s)
{
    if (s->pace)
        mr_pace_hurry(s->pace, true);
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < s->running; i++)
        pthread_join(s->thread[i], NULL);
    if (s->ending)
        pthread_join(s->ender, NULL);
    mr_state_ring_done(&s->ring);
    mr_state_tiers_free(s->tiers);
    mr_pace_free(s->pace);
    mr_checkpoint_place_close(&s->place.at);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->over.item);
    free(s);
}

/* Before the writers: they ask the tiers. */
static int open_tiers(struct mr_saver *s, struct mr_error *err)
{
    s->pace = mr_pace_create(s->p.tiers ? s->p.drain_bytes_per_s : 0, s->p.tiers > 0 && !s->place.hooks.emulated);
    if (!s->pace)
        return mr_error_set(err, -ENOMEM, "cannot make a saver");
    if (!s->p.tiers)
        return 0;
    return mr_state_tiers_create(&s->p, &s->place, s->pace, &s->tiers, err);
}

static int start(struct mr_saver *s, const struct mr_saver_hooks *hooks, struct mr_error *err)
{
    const char *what = "write the chunks of a state in any order";
    int rc = mr_save_place_open(&s->p, hooks, &s->stop, &s->place, err);
    if (!rc && !s->p.sync && !s->place.at.by_list)
        rc = mr_store_require(s->place.at.store, MR_STORE_CAP_OFFSET_WRITE, what, err);
    rc = rc ? rc : lock_folder(s, err);
    rc = rc ? rc : open_tiers(s, err);
    while (!rc && !s->p.sync && s->running < s->p.write_threads) {
        rc = -pthread_create(&s->thread[s->running], NULL, mr_saver_writer, s);
        if (rc)
            mr_error_set(err, rc, "cannot start a thread");
        else
            s->running++;
    }
    return rc;
}

int mr_saver_open_with(const struct mr_saver_params *params, const struct mr_saver_hooks *hooks, struct mr_saver **out,
                       struct mr_error *err)
{
    struct mr_saver *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot make a saver");
    struct mr_saver_params *p = &s->p;
    memcpy(p, params, MR_MIN(params->size, sizeof *p)); /* of a program that knows fewer of them */
    p->copy_threads = MR_MIN(p->copy_threads ? p->copy_threads : mr_cpus_available(), MR_SAVER_THREADS_MAX);
    p->write_threads = MR_MIN(p->write_threads ? p->write_threads : WRITERS_DEFAULT, MR_SAVER_THREADS_MAX);
    pthread_mutex_init(&s->lock, NULL);
    mr_cond_init(&s->changed);
    mr_state_ring_init(&s->ring);
    s->last = &s->first;
    s->last_step = MR_ALL_STEPS; /* none */
    s->pid = getpid();
    s->chunk_bytes = hooks->chunk_bytes ? hooks->chunk_bytes : MR_STATE_CHUNK;
    int rc = start(s, hooks, err);
    p->folder = p->store = p->job = NULL; /* the caller's */
    p->tier = NULL;
    if (rc)
        free_saver(s);
    else
        *out = s;
    return rc;
}

int mr_saver_open(const struct mr_saver_params *params, struct mr_saver **out, struct mr_error *err)
{
    return mr_saver_open_with(params, &(struct mr_saver_hooks){0}, out, err);
}

/* ---- saving ---- */

int mr_saver_reserve(struct mr_saver *s, uint64_t bytes, struct mr_error *err)
{
    uint64_t want = s->p.ring_bytes;
    if (s->p.sync)
        return 0;
    if (!want) /* what is in the ring already is not free any more */
        want = MR_MIN(bytes, mr_machine_memory().free_bytes / 2 + s->ring.slot.n * s->chunk_bytes);
    size_t slots = mr_save_chunks(want, s->chunk_bytes);
    return mr_state_ring_grow(&s->ring, MR_MAX(slots, (size_t)RING_MIN), s->p.copy_threads, err);
}

/* S4 */
static int take_error(struct mr_saver *s, struct mr_error *err)
{
    pthread_mutex_lock(&s->lock);
    int rc = mr_failure_get(&s->untold, true, err);
    pthread_mutex_unlock(&s->lock);
    return rc || !s->tiers ? rc : mr_state_tiers_failure(s->tiers, true, err);
}

/* Appends it to the saves that are not over. The lock is held. */
static void append_job(struct mr_saver *s, struct job *j)
{
    *s->last = j;
    s->last = &j->next;
    pthread_cond_broadcast(&s->changed);
}

/* The files that an image becomes. malloc'ed; NULL without memory. */
static struct mr_checkpoint_entry *list_files(const struct mr_saver *s, const struct mr_state_image *image, size_t *n)
{
    *n = s->place.hooks.files ? image->pieces : 1;
    struct mr_checkpoint_entry *e = calloc(MR_MAX(*n, (size_t)1), sizeof(*e));
    for (size_t i = 0; e && i < *n; i++) {
        e[i].bytes = s->place.hooks.files ? image->piece[i].bytes : image->bytes;
        e[i].rank = s->place.rank;
        snprintf(e[i].name, sizeof e[i].name, "%.191s",
                 s->place.hooks.files ? image->piece[i].tensor.name
                                      : mr_save_file_name(s->place.rank, MR_SAVE_TENSORS).text);
    }
    return e;
}

static int make_job(struct mr_saver *s, uint64_t step, const struct mr_state *state, const struct mr_state_image *image,
                    struct job **out, struct mr_error *err)
{
    struct job *j = calloc(1, sizeof(*j));
    size_t files = 0;
    struct mr_checkpoint_entry *file = list_files(s, image, &files);
    const struct mr_checkpoint_list names = {.items = file, .n = files};
    bool failed = !j || !file || mr_save_init(&j->save, file, files, s->chunk_bytes);
    int rc = failed ? 0 : mr_checkpoint_list_check(&names, err);
    free(file);
    if (j && !failed) {
        j->save.place = &s->place;
        j->save.made_ns = mr_now_ns();
        j->save.pace = s->p.sync ? NULL : s->pace;
        j->tail = &j->full;
        j->save.step = step;
        j->save.sums = !s->place.hooks.files;
        j->chunk = mr_arena_alloc(&j->save.memory, j->save.chunks * sizeof(*j->chunk));
        j->save.json = state->json ? mr_arena_strdup(&j->save.memory, state->json) : NULL;
        j->save.loader = state->loader ? mr_arena_strdup(&j->save.memory, state->loader) : NULL;
        failed = !j->chunk || (state->json && !j->save.json) || (state->loader && !j->save.loader);
        s->again = s->last_step == step ? s->again + 1 : 0;
        s->last_step = step;
        snprintf(j->save.id, sizeof j->save.id, "%s-%" PRIu64 "-%u", s->place.job, step, s->again);
    }
    if (!rc && failed)
        rc = mr_error_set(err, -ENOMEM, "cannot save step %" PRIu64, step);
    if (!rc)
        *out = j;
    else if (j)
        mr_saver_free_job(j);
    return rc;
}

static int copy_chunk(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct behind *b = ctx->user;
    struct mr_saver *s = b->s;
    struct chunk *k = &b->j->chunk[index];
    uint64_t waited_ns = 0;
    *k = (struct chunk){.slot = mr_state_ring_take(&s->ring, s->pace, &waited_ns), .index = (size_t)index};
    atomic_fetch_add(&b->room_ns, waited_ns);
    k->file = mr_save_chunk(&b->j->save, k->index, &k->at, &k->bytes);
    int rc = mr_state_image_fill(&b->image, index * s->chunk_bytes, k->slot, k->bytes, err);
    if (rc) {
        mr_state_ring_give(&s->ring, k->slot); /* S3 */
        return rc;
    }
    pthread_mutex_lock(&s->lock);
    *b->j->tail = k;
    b->j->tail = &k->next;
    b->j->queued++;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int copy_state(struct behind *b, struct mr_error *err)
{
    struct mr_saver *s = b->s;
    struct job *j = b->j;
    uint64_t start = mr_now_ns(), step = j->save.step; /* once it is copied, the job is the writers' */
    if (!s->tiers)                                     /* else the drain's is the last leg */
        mr_pace_save(s->pace, b->image.bytes, start);
    j->fits = s->ring.slot.n >= j->save.chunks;
    pthread_mutex_lock(&s->lock);
    append_job(s, j);
    pthread_mutex_unlock(&s->lock);
    int rc = mr_workers_run(s->p.copy_threads, j->save.chunks, 1, copy_chunk, b, NULL, err);
    pthread_mutex_lock(&s->lock);
    if (rc)
        mr_failure_keep(&j->failure, rc, err);
    j->copied = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    uint64_t end = mr_now_ns();
    mr_checkpoint_emit(s->place.events, MR_SPAN_SNAPSHOT, step, start, end, b->image.bytes);
    b->result = (struct mr_save_result){
        .bytes = b->image.bytes - b->image.header_bytes, .copy_ns = end - start, .room_ns = atomic_load(&b->room_ns)};
    return rc;
}

static unsigned count_pending(const struct mr_saver *s, uint64_t step)
{
    unsigned n = 0;
    for (const struct job *j = s->first; j; j = j->next)
        n += step == MR_ALL_STEPS || j->save.step == step;
    return n;
}

/* In a hurry, if there is anything to wait for. The lock is held, and let go meanwhile. */
static void wait_for_end(struct mr_saver *s, uint64_t step)
{
    if (!count_pending(s, step))
        return;
    mr_pace_hurry(s->pace, true);
    while (count_pending(s, step))
        pthread_cond_wait(&s->changed, &s->lock);
    mr_pace_hurry(s->pace, false);
}

/* Ends a copy that goes on behind, and takes the error of an earlier save, if any. The save at hand is made all the
 * same: ranks must make the same saves, and the others know nothing of it. */
static int settle(struct mr_saver *s, struct mr_error *err)
{
    int rc = s->pid == getpid() ? mr_saver_fence(s, NULL, err) : 0;
    if (rc)
        return rc;
    rc = take_error(s, err);
    if (rc && err)
        mr_error_context(err, "an earlier save; this one is made all the same");
    return rc;
}

int mr_saver_fail(struct mr_saver *s, uint64_t step, const char *why, struct mr_error *err)
{
    static const struct mr_state nothing = {.size = sizeof nothing};
    static const struct mr_state_image empty = {0};
    struct mr_error reason;
    struct job *j;
    if (s->place.world == 1 || s->pid != getpid() || s->place.hooks.agree)
        return 0;
    int rc = make_job(s, step, &nothing, &empty, &j, err);
    if (rc)
        return rc;
    mr_error_plain(&reason, MR_E_USAGE, "%s", why);
    if (s->p.sync) {
        mr_save_end(&j->save, MR_E_USAGE, &reason);
        mr_saver_free_job(j);
        return 0;
    }
    j->copied = true;
    j->told = true;
    mr_failure_keep(&j->failure, MR_E_USAGE, &reason);
    pthread_mutex_lock(&s->lock);
    append_job(s, j);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int mr_saver_prepare(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_state_image *image,
                     struct job **j, struct mr_error *err)
{
    if (s->pid != getpid())
        return mr_error_plain(err, MR_E_USAGE, "a saver cannot be used in a forked child");
    if (step > MR_CHECKPOINT_STEP_MAX)
        return mr_error_plain(err, MR_E_USAGE, "step %" PRIu64 " is beyond %llu", step, MR_CHECKPOINT_STEP_MAX);
    int rc = mr_state_image_make(state, s->place.hooks.files ? s->chunk_bytes : 0, image, err);
    rc = rc ? rc : mr_saver_reserve(s, image->bytes, err);
    if (!rc && image->after && !s->p.sync)
        mr_state_ring_pin(&s->ring);
    rc = rc ? rc : make_job(s, step, state, image, j, err);
    if (rc) {
        mr_state_image_done(image);
        mr_saver_fail(s, step, err->message, NULL);
    }
    return rc;
}

/* Copies and clears up. */
static void *copier_main(void *user)
{
    struct behind *b = user;
    struct mr_saver *s = b->s;
    struct mr_error why;
    int rc = copy_state(b, &why);
    if (rc) { /* the fence returns it, so that no later call does */
        mr_failure_keep(&b->failure, rc, &why);
        pthread_mutex_lock(&s->lock);
        wait_for_end(s, MR_ALL_STEPS);
        s->untold.code = 0;
        pthread_mutex_unlock(&s->lock);
    }
    mr_state_image_done(&b->image);
    return NULL;
}

/* Everything up to the copy, which goes on behind or is over when this returns; the fence has its result. 0 or the error
 * of this or an earlier save; without a copy, no fence is due (behind.s is NULL). */
static int start_copy(struct mr_saver *s, uint64_t step, const struct mr_state *state, bool behind,
                      struct mr_error *err)
{
    struct behind *b = &s->behind;
    struct mr_error own;
    uint64_t start = mr_now_ns();
    int earlier = settle(s, err);
    *b = (struct behind){.s = s};
    int rc = mr_saver_prepare(s, step, state, &b->image, &b->j, earlier || !err ? &own : err);
    if (rc) {
        *b = (struct behind){0};
        return earlier ? earlier : rc;
    }
    b->blocked_ns = mr_now_ns() - start;
    b->running = behind && pthread_create(&b->thread, NULL, copier_main, b) == 0;
    if (!b->running) { /* else the caller waits */
        copier_main(b);
        b->blocked_ns = mr_now_ns() - start;
    }
    return earlier;
}

int mr_saver_save(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_save_result *out,
                  struct mr_error *err)
{
    if (s->p.sync)
        return mr_saver_save_now(s, step, state, out, err);
    int earlier = start_copy(s, step, state, false, err);
    int rc = s->behind.s ? mr_saver_fence(s, out, earlier ? NULL : err) : 0; /* else there is nothing to copy */
    return earlier ? earlier : rc;
}

/* ---- copying behind ---- */

int mr_saver_begin(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_error *err)
{
    return s->p.sync ? mr_saver_save(s, step, state, NULL, err) : start_copy(s, step, state, true, err);
}

int mr_saver_fence(struct mr_saver *s, struct mr_save_result *out, struct mr_error *err)
{
    struct behind *b = &s->behind;
    uint64_t start = mr_now_ns();
    if (b->running)
        pthread_join(b->thread, NULL);
    b->result.blocked_ns = b->blocked_ns + mr_now_ns() - start;
    int rc = mr_failure_get(&b->failure, true, err);
    if (!rc && out)
        *out = b->result;
    *b = (struct behind){0};
    return rc;
}

int mr_saver_settle(struct mr_saver *s, uint64_t step, struct mr_error *err)
{
    pthread_mutex_lock(&s->lock);
    wait_for_end(s, step);
    pthread_mutex_unlock(&s->lock);
    return s->tiers ? mr_state_tiers_wait(s->tiers, step, err) : 0;
}

int mr_saver_wait(struct mr_saver *s, uint64_t step, struct mr_error *err)
{
    int rc = mr_saver_settle(s, step, err), failed = take_error(s, err);
    return failed ? failed : rc;
}

unsigned mr_saver_pending(struct mr_saver *s)
{
    pthread_mutex_lock(&s->lock);
    unsigned n = count_pending(s, MR_ALL_STEPS);
    pthread_mutex_unlock(&s->lock);
    return s->tiers ? n + mr_state_tiers_pending(s->tiers, false) : n;
}

/* ---- ending in time ---- */

/* Waits for the end of the time, or of the saver. */
static void *end_main(void *user)
{
    struct mr_saver *s = user;
    pthread_mutex_lock(&s->lock);
    while (!s->closing && mr_now_ns() < s->end_ns)
        mr_cond_wait_until(&s->changed, &s->lock, s->end_ns);
    bool late = !s->closing;
    atomic_store(&s->stop, late); /* nobody waits for other ranks */
    for (struct job *j = late ? s->first : NULL; j; j = j->next)
        mr_saver_fail_late(j);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (late && s->tiers)
        mr_state_tiers_cut(s->tiers);
    return NULL;
}

int mr_saver_end_within(struct mr_saver *s, uint64_t ns, struct mr_error *err)
{
    if (s->pid != getpid())
        return 0;
    pthread_mutex_lock(&s->lock);
    s->p.bytes_per_s = 0;
    bool again = s->ending;
    if (!again) {
        s->end_ns = mr_now_ns() + ns;
        s->ending = pthread_create(&s->ender, NULL, end_main, s) == 0;
    }
    pthread_mutex_unlock(&s->lock);
    if (!again)
        mr_pace_hurry(s->pace, true);
    return s->ending ? 0 : mr_error_plain(err, -EAGAIN, "cannot start a thread");
}

void mr_saver_step(struct mr_saver *s)
{
    mr_pace_step(s->pace, mr_now_ns());
}

bool mr_saver_saved(struct mr_saver *s, uint64_t n, struct mr_saved *out)
{
    pthread_mutex_lock(&s->lock);
    n = n == MR_ALL_STEPS ? s->over.n - 1 : n;
    bool has = n < s->over.n;
    if (has)
        *out = s->over.item[n];
    pthread_mutex_unlock(&s->lock);
    return has;
}

bool mr_saver_last(struct mr_saver *s, struct mr_saved *out)
{
    return mr_saver_saved(s, MR_ALL_STEPS, out);
}

void mr_saver_cut(struct mr_saver *s)
{
    if (!s || s->pid != getpid())
        return;
    mr_saver_fence(s, NULL, NULL);
    pthread_mutex_lock(&s->lock);
    wait_for_end(s, MR_ALL_STEPS);
    pthread_mutex_unlock(&s->lock);
    free_saver(s);
}

int mr_saver_close(struct mr_saver *s, struct mr_error *err)
{
    if (!s)
        return 0;
    if (s->pid != getpid())
        return 0; /* the threads are the parent's; so is the memory of the ring */
    int copied = mr_saver_fence(s, NULL, err);
    int rc = mr_saver_wait(s, MR_ALL_STEPS, copied ? NULL : err);
    free_saver(s);
    return copied ? copied : rc;
}
