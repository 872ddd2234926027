/* How a saver writes: threads of its own take chunks from the ring and write them behind the caller's back; a
 * synchronous save writes from the caller's memory and waits. Both take the steps of state_save.h. README.md has the
 * invariants S1 to S4. */
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/workers.h"
#include "checkpoint/state_saver.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

/* ---- writing ---- */

/* A place in the queue of bytes per second; the lock is held. */
static uint64_t write_not_before(struct mr_saver *s, size_t bytes)
{
    if (!s->p.bytes_per_s)
        return 0;
    uint64_t now = mr_now_ns(), at = MR_MAX(now, s->next_write_ns);
    s->next_write_ns = at + (uint64_t)((double)bytes * 1e9 / (double)s->p.bytes_per_s);
    return at;
}

static void sum_chunk(struct job *j, const struct chunk *c)
{
    j->save.sum[c->index] = htole64(XXH3_64bits(c->slot, c->bytes));
}

static int write_chunk(struct mr_saver *s, struct job *j, const struct chunk *c, uint64_t not_before,
                       struct mr_error *err)
{
    if (not_before)
        mr_clock_sleep_until(mr_clock_real(), not_before, &s->stop);
    return mr_save_write(&j->save, c->file, c->at, c->slot, c->bytes, err);
}

void mr_saver_fail_late(struct job *j)
{
    struct mr_error why;
    mr_error_plain(&why, MR_E_TIMEOUT, "step %" PRIu64 " was not complete in the time that was left", j->save.step);
    mr_failure_keep(&j->failure, MR_E_TIMEOUT, &why);
}

/* Lists a save that is over. The lock is held. */
static void note_over(struct mr_saver *s, const struct job *j, int code)
{
    struct mr_saved *over = MR_VEC_ADD(&s->over); /* without memory it is done and not listed */
    if (over)
        *over = (struct mr_saved){j->save.step, j->save.bytes, j->save.made_ns, j->save.durable_ns, mr_now_ns(), code};
}

/* Whether a failed save says that the tier is no good, rather than the call, the ranks or the user. */
static bool tier_failed(int rc)
{
    return rc == MR_E_LIMIT || rc == MR_E_CORRUPT || rc == MR_E_FORMAT || (rc < 0 && rc > -4096 && rc != -ENOMEM);
}

/* T5: a save that its tier cannot take, for the reason in `err`, begins in the folder. It is the drain of its step for
 * the ranks whose tier took theirs, and nothing else is drained meanwhile. */
static int go_around(struct mr_saver *s, struct mr_save *save, struct mr_error *err)
{
    uint64_t start = mr_now_ns();
    if (!s->place.hooks.agree || s->place.rank == 0)
        mr_log(MR_LOG_WARN, "the checkpoint of step %" PRIu64 " goes around the %s: %s", save->step,
               s->place.hooks.emulated ? "burst buffer" : "tier", err->message);
    int rc = mr_save_agree(&s->place, mr_state_tiers_wait(s->tiers, MR_ALL_STEPS, err), err);
    save->wait_ns += mr_now_ns() - start;
    snprintf(save->by, sizeof save->by, "-%s", s->place.job);
    mr_save_again(save, &s->place);
    return rc && s->p.sync ? rc : mr_save_begin(save, err);
}

/* In the first tier, or around it; in the folder where there are no tiers. `err` is not NULL. */
static int begin_save(struct mr_saver *s, struct mr_save *save, struct mr_error *err)
{
    uint64_t start = mr_now_ns();
    if (!s->tiers)
        return mr_save_begin(save, err);
    save->held_bytes = save->bytes;
    int rc = s->place.hooks.sum ? s->place.hooks.sum(s->place.hooks.user, &save->held_bytes, err) : 0;
    rc = rc ? rc : mr_save_agree(&s->place, mr_state_tiers_room(s->tiers, save->step, save->held_bytes, err), err);
    save->wait_ns = mr_now_ns() - start;
    if (!rc) {
        save->place = mr_state_tiers_first(s->tiers);
        rc = mr_save_begin(save, err);
        rc = rc ? mr_save_end(save, rc, err) : 0;
    }
    return rc && (tier_failed(rc) || !s->p.sync) ? go_around(s, save, err) : rc;
}

/* The lock is held, and let go meanwhile. */
static void open_file(struct mr_saver *s, struct job *j)
{
    struct mr_error why;
    j->file = OPENING;
    pthread_mutex_unlock(&s->lock);
    int rc = begin_save(s, &j->save, &why);
    pthread_mutex_lock(&s->lock);
    j->file = OPEN;
    if (rc)
        mr_failure_keep(&j->failure, rc, &why);
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
    mr_state_ring_give(&s->ring, c->slot);
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
    if (is_too_late(s))
        mr_saver_fail_late(j);
    int rc = j->failure.code;
    j->full = c->next;
    if (!j->full)
        j->tail = &j->full;
    uint64_t not_before = rc ? 0 : write_not_before(s, c->bytes);
    j->writing++;
    pthread_mutex_unlock(&s->lock);
    if (!rc && !later)
        sum_chunk(j, c);
    if (!rc && (rc = write_chunk(s, j, c, not_before, &why))) {
        mr_error_context(&why, "the checkpoint of step %" PRIu64, j->save.step);
        pthread_mutex_lock(&s->lock);
        mr_failure_keep(&j->failure, rc, &why);
        pthread_mutex_unlock(&s->lock);
    }
    later = later && !rc;
    if (!later)
        mr_state_ring_give(&s->ring, c->slot);
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

void mr_saver_free_job(struct job *j)
{
    mr_save_done(&j->save);
    free(j);
}

/* Everything is written, or the save failed: it ends here. The lock is held, and let go meanwhile. */
static void end_job(struct mr_saver *s, struct job *j)
{
    struct mr_error why;
    int rc = j->failure.code;
    assert(j == s->first && j->written == j->queued); /* S1 */
    j->file = COMMITTING;
    pthread_mutex_unlock(&s->lock);
    if (rc)
        why = j->failure.why;
    rc = mr_save_end(&j->save, rc, &why);
    if (!rc && s->tiers)
        rc = mr_state_tiers_add(s->tiers, &j->save, &why);
    pthread_mutex_lock(&s->lock);
    if (rc)
        mr_failure_keep(&j->failure, rc, &why);
    if (rc && !j->told)
        mr_failure_keep(&s->untold, rc, &j->failure.why);
    note_over(s, j, rc);
    s->first = j->next;
    if (!s->first)
        s->last = &s->first;
    mr_saver_free_job(j);
    pthread_cond_broadcast(&s->changed);
}

/* To object storage sending costs CPU time as well: it begins when the caller goes on. Only of a file that is open, since
 * the thread that opens it chooses the place without the lock. */
static bool waits_for_copy(const struct job *j)
{
    return j->fits && !j->copied && j->save.place->at.by_list;
}

/* What the oldest save needs next; false: nothing at the moment. */
static bool work_once(struct mr_saver *s)
{
    struct job *j = s->first; /* S1 */
    if (!j || j->file == COMMITTING)
        return false;
    bool sums = j->unsummed && (j->copied || j->failure.code);
    if (j->file == CLOSED && !j->failure.code)
        open_file(s, j);
    else if (sums && (j->writing > 1 || !j->full)) /* the device has enough to do */
        sum_later(s, j);
    else if (j->full && ((j->file == OPEN && !waits_for_copy(j)) || j->failure.code))
        do_chunk(s, j);
    else if (j->copied && j->written == j->queued && j->file != OPENING)
        end_job(s, j);
    else
        return false;
    return true;
}

void *mr_saver_writer(void *user)
{
    struct mr_saver *s = user;
    pthread_mutex_lock(&s->lock);
    while (!(s->closing && !s->first))
        if (!work_once(s))
            pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- writing while the caller waits ---- */

struct direct {
    bool by_chunk; /* of a single file, on a store that writes at any offset */
    struct mr_saver *s;
    struct mr_save *save;
    const struct mr_state_image *image;
    uint8_t *buf; /* a chunk of each thread: what does not lie in the caller's memory is made there */
};

static int write_directly(struct direct *d, size_t index, uint8_t *buf, struct mr_error *err)
{
    uint64_t at, start = mr_now_ns(), in_image = (uint64_t)index * d->save->chunk_bytes;
    size_t n;
    struct mr_save_file *f = mr_save_chunk(d->save, index, &at, &n);
    const void *from = mr_state_image_lies(d->image, in_image, n);
    int rc = from ? 0 : mr_state_image_fill(d->image, in_image, buf, n, err);
    if (rc)
        return rc;
    from = from ? from : buf;
    d->save->sum[index] = htole64(XXH3_64bits(from, n));
    mr_checkpoint_emit(d->s->place.events, MR_SPAN_SNAPSHOT, d->save->step, start, mr_now_ns(), n);
    return mr_save_write(d->save, f, at, from, n, err);
}

/* A file, front to back; of a single file a chunk. */
static int write_unit(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct direct *d = ctx->user;
    uint8_t *buf = d->buf + ctx->thread * MR_ALIGN_UP(d->save->chunk_bytes, 4096u);
    if (d->by_chunk)
        return write_directly(d, (size_t)index, buf, err);
    const struct mr_save_file *f = &d->save->file[index];
    size_t chunks = mr_save_chunks(f->is.bytes, d->save->chunk_bytes);
    int rc = 0;
    for (size_t i = 0; i < chunks && !rc; i++)
        rc = write_directly(d, f->first + i, buf, err);
    return rc;
}

static int write_all(struct direct *d, struct mr_error *err)
{
    d->by_chunk = d->save->files == 1 &&
                  mr_store_caps(d->save->place->at.store) & (MR_STORE_CAP_OFFSET_WRITE | MR_STORE_CAP_MULTIPART);
    size_t units = d->by_chunk ? d->save->chunks : d->save->files;
    unsigned threads = (unsigned)MR_MIN((size_t)d->s->p.copy_threads, MR_MAX(units, (size_t)1));
    d->buf = aligned_alloc(4096, threads * MR_ALIGN_UP(d->save->chunk_bytes, 4096u));
    if (!d->buf)
        return mr_error_set(err, -ENOMEM, "cannot get %u buffers of %" PRIu64 " bytes", threads, d->save->chunk_bytes);
    int rc = mr_workers_run(threads, units, 1, write_unit, d, &d->s->stop, err);
    free(d->buf);
    return rc;
}

/* Everything after the beginning, whose result is `rc`. */
static int write_and_end(struct direct *d, int rc, struct mr_error *err)
{
    rc = rc ? rc : write_all(d, err);
    return mr_save_end(d->save, rc, err);
}

/* Nothing is written behind: errors are all this save's own, and drains tell theirs by wait. */
static int save_job(struct mr_saver *s, struct job *j, const struct mr_state_image *image, struct mr_error *err)
{
    struct direct d = {.s = s, .save = &j->save, .image = image};
    int rc = write_and_end(&d, begin_save(s, d.save, err), err);
    if (tier_failed(rc) && d.save->place != &s->place)
        rc = write_and_end(&d, go_around(s, d.save, err), err);
    bool in_tier = d.save->place != &s->place;
    if (!rc && s->tiers)
        rc = mr_state_tiers_add(s->tiers, d.save, err);
    s->did =
        (struct mr_saver_did){in_tier, d.save->wait_ns, atomic_load(&d.save->io_ns), atomic_load(&d.save->fsync_ns)};
    pthread_mutex_lock(&s->lock);
    note_over(s, j, rc);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int mr_saver_save_now(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_save_result *out,
                      struct mr_error *err)
{
    struct mr_state_image image = {0};
    struct job *j = NULL;
    struct mr_error why;
    uint64_t start = mr_now_ns();
    int rc = mr_save_agree(&s->place, mr_saver_prepare(s, step, state, &image, &j, &why), &why);
    uint64_t bytes = rc ? 0 : j->save.bytes - image.header_bytes;
    rc = rc ? rc : save_job(s, j, &image, &why);
    mr_state_image_done(&image);
    if (j)
        mr_saver_free_job(j);
    if (rc && err)
        *err = why;
    else if (!rc && out)
        *out = (struct mr_save_result){.bytes = bytes, .blocked_ns = mr_now_ns() - start};
    return rc;
}
