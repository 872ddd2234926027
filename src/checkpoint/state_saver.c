/* A saver: copies states into its ring while the caller waits, and writes them out behind the caller's back. See
 * <millrace/state.h> for the contract and doc/guides/state.md for the design.
 *
 *   save():  image ─ copy threads: slot ─ fill ─> chunks of the newest save
 *   writers: chunks of the OLDEST save ─ checksum, write ─ slot back ─ all written: commit ─> the next save is the
 * oldest
 *
 * Invariants
 *  S1 Saves are written and committed one after the other, in the order they were made: a save clears what a killed one
 *     left in the folder and must not meet another one of its own there.
 *  S2 The caller's tensors are read only inside save(); what writers touch is the ring's and the saver's.
 *  S3 A slot is the copier's until its chunk is queued, then the writer's until it is given back; every slot of a
 * failed save is given back, too. S4 Errors of a save are told once: by the next call, or by close. One lock guards the
 * saves and their chunks; it is not held while anything is copied, written or waited for. */
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/vec.h"
#include "base/workers.h"
#include "checkpoint/state_image.h"
#include "checkpoint/state_have.h"
#include "checkpoint/state_pace.h"
#include "checkpoint/state_ring.h"
#include "checkpoint/state_save.h"
#include "checkpoint/state_tier.h"
#include "event/emit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define WRITERS_MAX 64
#define WRITERS_DEFAULT 4u /* while one computes a checksum, the others keep the device busy */
#define COPIERS_MAX 64
#define RING_MIN 2 /* slots: one is copied while one is written */
#define TIMEOUT_DEFAULT_S 600

struct chunk {
    struct chunk *next;
    uint8_t *slot;
    size_t index;
};

enum opening { CLOSED, OPENING, OPEN };

struct job {
    struct job *next;
    struct mr_save save;
    const struct mr_save_place *at; /* where it is written to; from its opening on */
    struct chunk *chunk;            /* [chunks] */
    struct chunk *full, **tail;     /* copied, not taken by a writer */
    struct chunk *unsummed;         /* written while the caller waited: their checksums come later */
    bool fits;                      /* the ring holds all of it: nobody waits for a slot */
    size_t queued, written;
    unsigned writing; /* chunks that are being written */
    bool copied, committing;
    bool told; /* its failure needs no telling: the caller knows */
    enum opening file;
    uint64_t start_ns;
    int code;
    struct mr_error why;
};

/* A copy that goes on while the caller does: mr_saver_begin. */
struct behind {
    struct mr_saver *s;
    struct job *j;
    struct mr_state_image image;
    struct mr_save_result result;
    pthread_t thread;
    bool running;
    int code;
    struct mr_error why;
};

struct mr_saver {
    struct behind behind; /* the caller's thread and, while it runs, the copier's */
    struct mr_save_place place;
    struct mr_state_tiers *tiers; /* before that place; NULL: none */
    struct mr_pace *pace;
    struct mr_state_ring *ring;
    uint64_t ring_bytes, bytes_per_s;
    unsigned copiers, writers;
    char job_id[32];
    pid_t pid;
    int lock_fd;
    uint64_t last_step; /* and how often it was saved in a row: parts of a save's id, the same on all ranks */
    unsigned again;
    bool saved_one;
    atomic_bool stop;
    pthread_t thread[WRITERS_MAX];
    unsigned running;

    pthread_mutex_t lock;
    pthread_cond_t changed;   /* anything below */
    struct job *first, *last; /* oldest and newest save that are not over */
    bool closing, ending;
    bool rank_is_late; /* the last save but those that failed here waited for another rank in vain */
    uint64_t end_ns;   /* of `ender`: mr_saver_end_within */
    pthread_t ender;
    uint64_t next_write_ns; /* bytes_per_s: when the next may begin */
    MR_VEC(struct mr_saved) over;
    int code; /* not told yet */
    struct mr_error why;
};

/* ---- writing ---- */

static size_t chunks_of(uint64_t bytes)
{
    return (size_t)(bytes / MR_STATE_CHUNK + (bytes % MR_STATE_CHUNK != 0));
}

static size_t chunk_bytes(const struct mr_save *s, size_t index)
{
    return (size_t)MR_MIN(MR_STATE_CHUNK, s->bytes - index * MR_STATE_CHUNK);
}

/* A place in the queue of bytes per second; the lock is held. */
static uint64_t write_not_before(struct mr_saver *s, size_t bytes)
{
    if (!s->bytes_per_s)
        return 0;
    uint64_t now = mr_now_ns(), at = MR_MAX(now, s->next_write_ns);
    s->next_write_ns = at + (uint64_t)((double)bytes * 1e9 / (double)s->bytes_per_s);
    return at;
}

static void sum_chunk(struct job *j, const struct chunk *c)
{
    j->save.sum[c->index] = XXH3_64bits(c->slot, chunk_bytes(&j->save, c->index));
}

static int write_chunk(struct mr_saver *s, struct job *j, const struct chunk *c, uint64_t not_before,
                       struct mr_error *err)
{
    size_t n = chunk_bytes(&j->save, c->index);
    if (not_before)
        mr_clock_sleep_until(mr_clock_real(), not_before, &s->stop);
    uint64_t start = mr_now_ns();
    const struct mr_pace_way way = {.pace = s->pace,
                                    .device = j->at->at.device,
                                    .by_steps = !s->tiers,
                                    .flush = j->at->at.fsync && !j->at->direct,
                                    .stop = &s->stop};
    int rc = mr_pace_write(&way, j->save.file, c->slot, n, c->index * MR_STATE_CHUNK, err);
    struct mr_where at = MR_NOWHERE;
    at.step = j->save.step;
    if (!rc)
        mr_emit(s->place.events, MR_SPAN_CKPT_WRITE, start, mr_now_ns(), &at, (int64_t)n);
    return rc;
}

static void fail(struct job *j, int code, const struct mr_error *why)
{
    if (j->code)
        return;
    j->code = code;
    j->why = *why;
}

/* The lock is held. */
static void set_patience(const struct mr_saver *s, struct job *j)
{
    if (s->rank_is_late && !j->save.patience_ns)
        j->save.patience_ns = mr_save_patience(&s->place, j->start_ns);
}

/* The lock is held, and let go meanwhile. */
static void open_file(struct mr_saver *s, struct job *j)
{
    struct mr_error why;
    j->file = OPENING;
    set_patience(s, j);
    pthread_mutex_unlock(&s->lock);
    if (s->tiers)
        j->at = mr_state_tiers_place(s->tiers, j->save.step, j->save.bytes);
    int rc = mr_save_begin(j->at, &j->save, &why);
    if (rc && j->at != &s->place) { /* a tier that fails: the save need not */
        mr_log(MR_LOG_WARN, "the tier '%s' fails: %s", j->at->at.folder, why.message);
        mr_save_abandon(j->at, &j->save, &why);
        j->at = mr_state_tiers_around(s->tiers);
        rc = mr_save_begin(j->at, &j->save, &why);
    }
    pthread_mutex_lock(&s->lock);
    j->file = OPEN;
    if (rc)
        fail(j, rc, &why);
    pthread_cond_broadcast(&s->changed);
}

/* Past the time that mr_saver_end_within gave. The lock is held. */
static bool is_too_late(const struct mr_saver *s)
{
    return s->ending && mr_now_ns() >= s->end_ns;
}

/* A chunk of `unsummed`. The lock is held, and let go meanwhile. */
static void sum_later(struct mr_saver *s, struct job *j)
{
    struct chunk *c = j->unsummed;
    j->unsummed = c->next;
    pthread_mutex_unlock(&s->lock);
    sum_chunk(j, c);
    mr_state_ring_give(s->ring, c->slot);
    pthread_mutex_lock(&s->lock);
    j->written++;
    pthread_cond_broadcast(&s->changed);
}

/* While the caller waits for the copy, nothing takes CPU time from it that can be done later: checksums. */
static void do_chunk(struct mr_saver *s, struct job *j)
{
    struct chunk *c = j->full;
    struct mr_error why;
    bool later = j->fits && !j->copied;
    if (is_too_late(s)) {
        mr_error_plain(&why, MR_E_TIMEOUT, "step %" PRIu64 " was not complete in the time that was left", j->save.step);
        fail(j, MR_E_TIMEOUT, &why);
    }
    int rc = j->code;
    j->full = c->next;
    if (!j->full)
        j->tail = &j->full;
    uint64_t not_before = rc ? 0 : write_not_before(s, chunk_bytes(&j->save, c->index));
    j->writing++;
    pthread_mutex_unlock(&s->lock);
    if (!rc && !later)
        sum_chunk(j, c);
    if (!rc && (rc = write_chunk(s, j, c, not_before, &why))) {
        mr_error_context(&why, "the checkpoint of step %" PRIu64, j->save.step);
        pthread_mutex_lock(&s->lock);
        fail(j, rc, &why);
        pthread_mutex_unlock(&s->lock);
    }
    later = later && !rc;
    if (!later)
        mr_state_ring_give(s->ring, c->slot);
    pthread_mutex_lock(&s->lock);
    j->writing--;
    if (later) {
        c->next = j->unsummed;
        j->unsummed = c;
    } else {
        j->written++;
    }
    pthread_cond_broadcast(&s->changed);
}

static void free_job(struct job *j)
{
    free(j->save.sum);
    free(j->save.json);
    free(j->save.loader);
    free(j->chunk);
    free(j);
}

/* Everything is written, or the save failed: it ends here. The lock is held, and let go meanwhile. */
static void end_job(struct mr_saver *s, struct job *j)
{
    struct mr_error why;
    int rc = j->code;
    j->committing = true;
    set_patience(s, j);
    pthread_mutex_unlock(&s->lock);
    if (rc)
        mr_save_abandon(j->at, &j->save, &j->why);
    else
        rc = mr_save_commit(j->at, &j->save, &why);
    if (!rc && s->tiers)
        rc = mr_state_tiers_add(s->tiers, j->at, &j->save, &why);
    pthread_mutex_lock(&s->lock);
    if (rc)
        fail(j, rc, &why);
    if (!rc || rc == MR_E_TIMEOUT)
        s->rank_is_late = rc != 0;
    if (rc && !s->code && !j->told) {
        s->code = rc;
        s->why = j->why;
    }
    struct mr_saved *over = MR_VEC_ADD(&s->over); /* without memory it is done and not listed */
    if (over)
        *over = (struct mr_saved){j->save.step, j->save.bytes, j->start_ns, j->save.durable_ns, mr_now_ns(), rc};
    s->first = j->next;
    if (!s->first)
        s->last = NULL;
    free_job(j);
    pthread_cond_broadcast(&s->changed);
}

/* What the oldest save needs next; false: nothing at the moment. */
static bool work_once(struct mr_saver *s)
{
    struct job *j = s->first; /* S1 */
    if (!j || j->committing)
        return false;
    if (j->file == CLOSED && !j->code) {
        open_file(s, j);
        return true;
    }
    if (j->unsummed && (j->copied || j->code) && (j->writing > 1 || !j->full)) { /* the device has enough to do */
        sum_later(s, j);
        return true;
    }
    if (j->full && (j->file == OPEN || j->code)) {
        do_chunk(s, j);
        return true;
    }
    if (j->copied && j->written == j->queued && j->file != OPENING) {
        end_job(s, j);
        return true;
    }
    return false;
}

static void *writer_main(void *user)
{
    struct mr_saver *s = user;
    pthread_mutex_lock(&s->lock);
    while (!(s->closing && !s->first))
        if (!work_once(s))
            pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- opening and closing ---- */

/* One saver at a time clears and writes a folder. The lock goes with the process. */
static int lock_folder(struct mr_saver *s, struct mr_error *err)
{
    char path[MR_CHECKPOINT_PATH];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    s->lock_fd = -1;
    if (!s->place.at.lead || !s->place.at.shared)
        return 0;
    int rc = mr_store_mkdirs(s->place.at.store, s->place.at.folder, err);
    if (rc)
        return rc;
    snprintf(path, sizeof path, "%.*s/.saver", MR_CHECKPOINT_FOLDER_MAX, s->place.at.folder);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool ours = s->lock_fd < 0 || fcntl(s->lock_fd, F_OFD_SETLK, &whole) == 0 || (errno != EAGAIN && errno != EACCES);
    if (ours) { /* or a store without such files, a file system without locks: nobody can tell */
        mr_save_forget_failures(&s->place);
        /* What a killed job left, before another rank takes it for this one's; the first save tells of errors. */
        mr_checkpoint_folder_repair(s->place.at.store, s->place.at.folder, NULL);
        return 0;
    }
    close(s->lock_fd);
    s->lock_fd = -1;
    mr_error_plain(err, -EBUSY, "another saver works in '%s'", s->place.at.folder);
    mr_error_hint(err, "one job at a time may save into a folder; give this one another");
    return -EBUSY;
}

static int check_params(const struct mr_saver_params *p, struct mr_error *err)
{
    if (!p->folder || !*p->folder || strlen(p->folder) > MR_CHECKPOINT_FOLDER_MAX)
        return mr_error_plain(err, MR_E_USAGE, "a saver needs a folder, of at most %d bytes", MR_CHECKPOINT_FOLDER_MAX);
    if (p->world < 1 || p->rank >= p->world)
        return mr_error_plain(err, MR_E_USAGE, "rank %u of %u ranks does not exist", p->rank, p->world);
    if (p->world > 1 && (!p->job || !*p->job))
        return mr_error_plain(err, MR_E_USAGE, "%u ranks need a common `job`: a text that no other job has", p->world);
    return 0;
}

static void name_job(struct mr_saver *s, const char *job)
{
    uint64_t id = job ? XXH3_64bits(job, strlen(job)) : mr_wall_ns() ^ ((uint64_t)getpid() << 40);
    snprintf(s->job_id, sizeof s->job_id, "%016" PRIx64, id);
}

static int start_writers(struct mr_saver *s, struct mr_error *err)
{
    while (s->running < s->writers) {
        int rc = pthread_create(&s->thread[s->running], NULL, writer_main, s);
        if (rc)
            return mr_error_set(err, -rc, "cannot start a thread");
        s->running++;
    }
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
    mr_state_ring_free(s->ring);
    mr_state_tiers_free(s->tiers);
    mr_pace_free(s->pace);
    mr_checkpoint_place_close(&s->place.at);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->over.item);
    free(s);
}

/* Before the writers: they ask the tiers. */
static int open_tiers(struct mr_saver *s, const struct mr_saver_params *p, struct mr_error *err)
{
    s->pace = mr_pace_create(p->tiers ? p->drain_bytes_per_s : 0, p->tiers > 0);
    if (!s->pace)
        return mr_error_set(err, -ENOMEM, "cannot make a saver");
    if (!p->tiers)
        return 0;
    if (s->place.at.lead)
        mr_state_have_forget(&s->place, s->job_id);
    return mr_state_tiers_create(p, &s->place, s->job_id, s->pace, &s->tiers, err);
}

int mr_saver_open(const struct mr_saver_params *params, struct mr_saver **out, struct mr_error *err)
{
    struct mr_saver_params given = {0}, *p = &given;
    memcpy(p, params, MR_MIN(params->size, sizeof given)); /* of a program that knows fewer of them */
    int rc = check_params(p, err);
    if (rc)
        return rc;
    struct mr_saver *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot make a saver");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->lock_fd = -1;
    s->pid = getpid();
    s->ring_bytes = p->ring_bytes;
    s->bytes_per_s = p->bytes_per_s;
    s->copiers = MR_MIN(p->copy_threads ? p->copy_threads : mr_cpus_available(), COPIERS_MAX);
    s->writers = MR_MIN(p->write_threads ? p->write_threads : WRITERS_DEFAULT, WRITERS_MAX);
    name_job(s, p->job);
    rc = mr_checkpoint_place_open(p->folder, p->store, p->rank, p->events, &s->place.at, err);
    if (!rc)
        rc = mr_store_require(s->place.at.store, MR_STORE_CAP_OFFSET_WRITE, "write the chunks of a state in any order",
                              err);
    s->place.at.fsync = p->fsync;
    s->place.at.keep_last = p->keep_last;
    s->place.rank = p->rank;
    s->place.world = p->world;
    s->place.direct = p->direct;
    s->place.timeout_ns = (uint64_t)(p->commit_timeout_s ? p->commit_timeout_s : TIMEOUT_DEFAULT_S) * MR_NS_PER_S;
    s->place.stop = &s->stop;
    s->place.events = p->events;
    if (!rc)
        rc = lock_folder(s, err);
    if (!rc)
        rc = mr_state_ring_create(MR_STATE_CHUNK, &s->ring, err);
    if (!rc)
        rc = open_tiers(s, p, err);
    if (!rc)
        rc = start_writers(s, err);
    if (rc)
        free_saver(s);
    else
        *out = s;
    return rc;
}

/* ---- saving ---- */

/* What is free, within the control group's limit. */
static uint64_t free_memory(void)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = mr_cgroup_memory_limit(), used = mr_cgroup_memory_used();
    return limit && limit - MR_MIN(used, limit) < bytes ? limit - MR_MIN(used, limit) : bytes;
}

static int size_ring(struct mr_saver *s, uint64_t bytes, struct mr_error *err)
{
    uint64_t want = s->ring_bytes;
    if (!want) /* what is in the ring already is not free any more */
        want = MR_MIN(bytes, free_memory() / 2 + mr_state_ring_slots(s->ring) * MR_STATE_CHUNK);
    size_t slots = chunks_of(want);
    return mr_state_ring_grow(s->ring, MR_MAX(slots, (size_t)RING_MIN), s->copiers, err);
}

int mr_saver_reserve(struct mr_saver *s, uint64_t bytes, struct mr_error *err)
{
    return size_ring(s, bytes, err);
}

/* S4. The lock is held. */
static int take_error(struct mr_saver *s, struct mr_error *err)
{
    int rc = s->code;
    if (rc && err)
        *err = s->why;
    s->code = 0;
    return rc || !s->tiers ? rc : mr_state_tiers_error(s->tiers, err);
}

static char *copy_text(const char *text, bool *failed)
{
    char *copy = text ? strdup(text) : NULL;
    *failed = *failed || (text && !copy);
    return copy;
}

/* Appends it to the saves that are not over. The lock is held. */
static void append_job(struct mr_saver *s, struct job *j)
{
    if (s->last)
        s->last->next = j;
    else
        s->first = j;
    s->last = j;
    pthread_cond_broadcast(&s->changed);
}

static int make_job(struct mr_saver *s, uint64_t step, const struct mr_state *state, const struct mr_state_image *image,
                    struct job **out, struct mr_error *err)
{
    struct job *j = calloc(1, sizeof(*j));
    bool failed = !j;
    if (j) {
        j->start_ns = mr_now_ns();
        j->at = &s->place;
        j->tail = &j->full;
        j->save.step = step;
        j->save.bytes = image->bytes;
        j->save.chunks = chunks_of(image->bytes);
        j->save.sum = calloc(MR_MAX(j->save.chunks, 1u), sizeof(*j->save.sum));
        j->chunk = calloc(MR_MAX(j->save.chunks, 1u), sizeof(*j->chunk));
        j->save.json = copy_text(state->json, &failed);
        j->save.loader = copy_text(state->loader, &failed);
        s->again = s->saved_one && s->last_step == step ? s->again + 1 : 0;
        s->saved_one = true;
        s->last_step = step;
        snprintf(j->save.id, sizeof j->save.id, "%s-%" PRIu64 "-%u", s->job_id, step, s->again);
    }
    if (failed || !j->save.sum || !j->chunk) {
        if (j)
            free_job(j);
        return mr_error_set(err, -ENOMEM, "cannot save step %" PRIu64, step);
    }
    *out = j;
    return 0;
}

struct copying {
    struct mr_saver *s;
    struct job *j;
    const struct mr_state_image *image;
    uint64_t room_ns[COPIERS_MAX];
};

/* Who waits for room waits for the writers. */
static uint8_t *take_slot(struct mr_saver *s, uint64_t *waited_ns)
{
    uint8_t *slot = mr_state_ring_try(s->ring);
    if (slot)
        return slot;
    mr_pace_hurry(s->pace, true);
    slot = mr_state_ring_take(s->ring, waited_ns);
    mr_pace_hurry(s->pace, false);
    return slot;
}

static int copy_chunk(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct copying *c = ctx->user;
    struct chunk *k = &c->j->chunk[index];
    uint8_t *slot = take_slot(c->s, &c->room_ns[ctx->thread]);
    int rc = mr_state_image_fill(c->image, index * MR_STATE_CHUNK, slot, chunk_bytes(&c->j->save, index), err);
    if (rc) {
        mr_state_ring_give(c->s->ring, slot); /* S3 */
        return rc;
    }
    *k = (struct chunk){.slot = slot, .index = index};
    pthread_mutex_lock(&c->s->lock);
    *c->j->tail = k;
    c->j->tail = &k->next;
    c->j->queued++;
    pthread_cond_signal(&c->s->changed);
    pthread_mutex_unlock(&c->s->lock);
    return 0;
}

static int copy_state(struct mr_saver *s, struct job *j, const struct mr_state_image *image, struct mr_save_result *r,
                      struct mr_error *err)
{
    if (!s->tiers) /* else the drain's is the last leg */
        mr_pace_save(s->pace, image->bytes, mr_now_ns());
    struct copying c = {.s = s, .j = j, .image = image};
    struct mr_error why;
    uint64_t start = mr_now_ns();
    j->fits = mr_state_ring_slots(s->ring) >= j->save.chunks;
    pthread_mutex_lock(&s->lock);
    append_job(s, j);
    pthread_mutex_unlock(&s->lock);
    uint64_t step = j->save.step; /* once it is copied, the job is the writers' */
    int rc = mr_workers_run(s->copiers, j->save.chunks, 1, copy_chunk, &c, NULL, &why);
    pthread_mutex_lock(&s->lock);
    if (rc)
        fail(j, rc, &why);
    j->copied = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    r->copy_ns = mr_now_ns() - start;
    for (unsigned i = 0; i < s->copiers; i++)
        r->room_ns += c.room_ns[i];
    struct mr_where at = MR_NOWHERE;
    at.step = step;
    mr_emit(s->place.events, MR_SPAN_SNAPSHOT, start, start + r->copy_ns, &at, (int64_t)image->bytes);
    if (rc && err)
        *err = why;
    return rc;
}

static bool is_pending(const struct mr_saver *s, uint64_t step)
{
    for (const struct job *j = s->first; j; j = j->next)
        if (step == MR_ALL_STEPS || j->save.step == step)
            return true;
    return false;
}

/* In a hurry, if there is anything to wait for. The lock is held, and let go meanwhile. */
static void wait_for_end(struct mr_saver *s, uint64_t step)
{
    if (!is_pending(s, step))
        return;
    mr_pace_hurry(s->pace, true);
    while (is_pending(s, step))
        pthread_cond_wait(&s->changed, &s->lock);
    mr_pace_hurry(s->pace, false);
}

/* A save that the caller was told about is not told again. */
static void forget_failure(struct mr_saver *s)
{
    pthread_mutex_lock(&s->lock);
    wait_for_end(s, MR_ALL_STEPS);
    s->code = 0;
    pthread_mutex_unlock(&s->lock);
}

/* Ends a copy that goes on behind, and takes the error of an earlier save, if any. The save at hand is made all the
 * same: ranks must make the same saves, and the others know nothing of it. */
static int settle(struct mr_saver *s, struct mr_error *err)
{
    int rc = s->pid == getpid() ? mr_saver_fence(s, NULL, err) : 0;
    if (rc)
        return rc;
    pthread_mutex_lock(&s->lock);
    rc = take_error(s, err);
    pthread_mutex_unlock(&s->lock);
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
    if (s->place.world == 1 || s->pid != getpid())
        return 0;
    int rc = make_job(s, step, &nothing, &empty, &j, err);
    if (rc)
        return rc;
    mr_error_plain(&reason, MR_E_USAGE, "%s", why);
    j->copied = true;
    j->told = true;
    fail(j, MR_E_USAGE, &reason);
    pthread_mutex_lock(&s->lock);
    append_job(s, j);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

/* Everything before the copy. On success *image and *j are the caller's. */
static int describe(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_state_image *image,
                    struct job **j, struct mr_error *err)
{
    if (s->pid != getpid())
        return mr_error_plain(err, MR_E_USAGE, "a saver cannot be used in a forked child");
    if (step > MR_CHECKPOINT_STEP_MAX)
        return mr_error_plain(err, MR_E_USAGE, "step %" PRIu64 " is beyond %llu", step, MR_CHECKPOINT_STEP_MAX);
    int rc = mr_state_image_make(state, image, err);
    if (rc)
        return rc;
    rc = size_ring(s, image->bytes, err);
    if (!rc && image->after)
        mr_state_ring_pin(s->ring);
    if (!rc)
        rc = make_job(s, step, state, image, j, err);
    if (rc)
        mr_state_image_done(image);
    return rc;
}

/* The same; the other ranks learn of a state that cannot be saved. */
static int prepare(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_state_image *image,
                   struct job **j, struct mr_error *err)
{
    struct mr_error why;
    int rc = describe(s, step, state, image, j, &why);
    if (rc && step <= MR_CHECKPOINT_STEP_MAX)
        mr_saver_fail(s, step, why.message, NULL);
    if (rc && err)
        *err = why;
    return rc;
}

/* Copies and clears up. */
static int copy_and_end(struct mr_saver *s, struct job *j, struct mr_state_image *image, struct mr_save_result *r,
                        struct mr_error *err)
{
    int rc = copy_state(s, j, image, r, err);
    if (rc)
        forget_failure(s);
    r->bytes = image->bytes - image->header_bytes;
    mr_state_image_done(image);
    return rc;
}

int mr_saver_save(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_save_result *out,
                  struct mr_error *err)
{
    struct mr_save_result r = {0};
    struct mr_state_image image;
    struct job *j = NULL;
    uint64_t start = mr_now_ns();
    int earlier = settle(s, err), rc = prepare(s, step, state, &image, &j, earlier ? NULL : err);
    if (!rc)
        rc = copy_and_end(s, j, &image, &r, earlier ? NULL : err);
    r.blocked_ns = mr_now_ns() - start;
    if (!rc && out)
        *out = r;
    return earlier ? earlier : rc;
}

/* ---- copying behind ---- */

static void *copier_main(void *user)
{
    struct behind *b = user;
    b->code = copy_and_end(b->s, b->j, &b->image, &b->result, &b->why);
    return NULL;
}

int mr_saver_begin(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_error *err)
{
    struct behind *b = &s->behind;
    struct mr_state_image image;
    struct job *j = NULL;
    uint64_t start = mr_now_ns();
    int earlier = settle(s, err), rc = prepare(s, step, state, &image, &j, earlier ? NULL : err);
    if (rc)
        return earlier ? earlier : rc;
    rc = mr_state_image_own(&image, earlier ? NULL : err);
    if (rc) {
        mr_state_image_done(&image);
        free_job(j);
        return earlier ? earlier : rc;
    }
    *b = (struct behind){.s = s, .j = j, .image = image, .result = {.blocked_ns = mr_now_ns() - start}};
    rc = pthread_create(&b->thread, NULL, copier_main, b);
    if (rc == 0)
        b->running = true;
    else /* then the caller waits, as in save */
        copier_main(b);
    return earlier;
}

int mr_saver_fence(struct mr_saver *s, struct mr_save_result *out, struct mr_error *err)
{
    struct behind *b = &s->behind;
    uint64_t start = mr_now_ns();
    if (b->running)
        pthread_join(b->thread, NULL);
    b->running = false;
    b->result.blocked_ns += mr_now_ns() - start;
    int rc = b->code;
    if (rc && err)
        *err = b->why;
    if (!rc && out)
        *out = b->result;
    *b = (struct behind){0};
    return rc;
}

int mr_saver_wait(struct mr_saver *s, uint64_t step, struct mr_error *err)
{
    pthread_mutex_lock(&s->lock);
    wait_for_end(s, step);
    int rc = take_error(s, err);
    pthread_mutex_unlock(&s->lock);
    int drained = s->tiers ? mr_state_tiers_wait(s->tiers, step, rc ? NULL : err) : 0;
    return rc ? rc : drained;
}

unsigned mr_saver_pending(struct mr_saver *s)
{
    unsigned n = 0;
    pthread_mutex_lock(&s->lock);
    for (const struct job *j = s->first; j; j = j->next)
        n++;
    pthread_mutex_unlock(&s->lock);
    return s->tiers ? n + mr_state_tiers_pending(s->tiers) : n;
}

/* ---- ending in time ---- */

/* Waits for the end of the time, or of the saver. */
static void *end_main(void *user)
{
    struct mr_saver *s = user;
    struct timespec t = {(time_t)(s->end_ns / MR_NS_PER_S), (long)(s->end_ns % MR_NS_PER_S)};
    struct mr_error why;
    pthread_mutex_lock(&s->lock);
    while (!s->closing && mr_now_ns() < s->end_ns)
        pthread_cond_timedwait(&s->changed, &s->lock, &t);
    if (!s->closing) {
        atomic_store(&s->stop, true); /* nobody waits for other ranks */
        for (struct job *j = s->first; j; j = j->next) {
            mr_error_plain(&why, MR_E_TIMEOUT, "step %" PRIu64 " was not complete in the time that was left",
                           j->save.step);
            fail(j, MR_E_TIMEOUT, &why);
        }
        pthread_cond_broadcast(&s->changed);
    }
    bool late = !s->closing;
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
    s->bytes_per_s = 0;
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
    bool has = n < s->over.n;
    if (has)
        *out = s->over.item[n];
    pthread_mutex_unlock(&s->lock);
    return has;
}

bool mr_saver_last(struct mr_saver *s, struct mr_saved *out)
{
    pthread_mutex_lock(&s->lock);
    uint64_t n = s->over.n;
    pthread_mutex_unlock(&s->lock);
    return n && mr_saver_saved(s, n - 1, out);
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
