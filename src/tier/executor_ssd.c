/* SSD folders as devices of the executor: reads by look-ahead, copies behind everything else.
 *
 * A sample that the policy keeps on an SSD is copied there after it came, while its place in the segment stays (the
 * copy is a claim). Copies that pile up are given up before they take the room of the look-ahead: a slow SSD costs what
 * it does not keep, never a wait. */
#include "tier/executor_internal.h"
#include "base/log.h"
#include "event/emit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define FULL_NS (100 * MR_NS_PER_MS)
#define DRAIN_SHARE 100u
#define DRAIN_NS (2 * MR_NS_PER_S)

uint8_t mr_executor_find_ssd(struct mr_executor *x, uint64_t id)
{
    for (uint32_t i = 0; i < x->n_ssds; i++)
        if (x->ssd[i].ssd && mr_ssd_find(x->ssd[i].ssd, id))
            return (uint8_t)i;
    return EXECUTOR_NO_SSD;
}

void mr_executor_unhold(struct mr_executor *x, unsigned storage_class, uint64_t id)
{
    unsigned i = storage_class - 2;
    if (i < x->n_ssds && x->ssd[i].ssd)
        mr_ssd_hold(x->ssd[i].ssd, id, false);
}

/* ---- reading ---- */

static uint64_t run_read(void *user, void *mine, struct mr_work_job *job)
{
    (void)mine;
    struct ssd_device *d = user;
    struct mr_executor *x = d->x;
    struct mr_fetching *f = (struct mr_fetching *)job;
    struct mr_holding *e = f->e;
    struct mr_error err;
    uint64_t bytes = mr_ssd_find(d->ssd, e->id);
    f->began_ns = mr_now_ns();
    int rc = bytes == e->bytes ? mr_ssd_read(d->ssd, e->id, mr_segment_data(x->segment, e->at), bytes, &err) : -ENOENT;
    if (!rc) {
        mr_fetch_completed(x, f, bytes, MR_TIER_SSD);
        return bytes;
    }
    if (bytes && rc == -ENOENT) /* stored under this id, and something else */
        mr_ssd_drop(d->ssd, e->id);
    if (rc == MR_E_CORRUPT)
        board_add(x->board->corrupt, 1);
    mr_fetching_next(x, f);
    return 0;
}

static void drop_read(void *user, struct mr_work_job *job)
{
    struct ssd_device *d = user;
    struct mr_error err;
    mr_error_plain(&err, MR_E_INTERRUPTED, "the tiers were closed");
    mr_fetching_failed(d->x, (struct mr_fetching *)job, &err);
}

/* ---- writing ---- */

/* It stays nowhere after all, and the policy hears of it. Under the lock. */
static void not_kept(struct mr_executor *x, struct mr_holding *e)
{
    struct planned_result *r = MR_VEC_ADD(&x->results);
    if (r)
        *r = (struct planned_result){.id = e->id, .outcome = {.failed = true}};
    mr_holdings_set_class(&x->h, e, MR_CLASS_NONE);
    board_add(x->board->ssd_refused, 1);
}

/* A write was refused for lack of room just now: the next one would take a place in staging and be refused, too. */
static bool is_full(const struct ssd_device *d)
{
    return d->full_until_ns && mr_now_ns() < d->full_until_ns;
}

static bool start_spill(struct mr_executor *x, struct mr_holding *e, struct ssd_device *d)
{
    struct mr_spilling *s = malloc(sizeof(*s));
    assert(e->state == MR_HOLDING_READY && !e->spill); /* one copy at a time, of bytes that are there */
    if (!s)
        return false;
    uint64_t key = mr_work_key(MR_URGENT_SPILL, ++x->spill_order);
    *s = (struct mr_spilling){.job = {.at = MR_WORK_IDLE, .bytes = e->bytes, .key = key}, .e = e, .ssd = d->index};
    if (!mr_work_push(d->writes, &s->job)) {
        free(s);
        return false;
    }
    mr_holdings_claim(&x->h, e);
    e->spill = s;
    s->staged = e->storage_class != MR_CLASS_RAM;
    d->spill_bytes += s->staged ? e->bytes : 0;
    x->spills++;
    return true;
}

void mr_executor_spill(struct mr_executor *x, struct mr_holding *e)
{
    unsigned i = e->storage_class - 2u;
    struct ssd_device *d = i < x->n_ssds ? &x->ssd[i] : NULL;
    if (e->spill)
        return;
    if (d && d->ssd && mr_ssd_find(d->ssd, e->id)) {
        mr_ssd_hold(d->ssd, e->id, true);
        return;
    }
    bool room =
        d && d->ssd && !d->refuses && !is_full(d) && d->spill_bytes + e->bytes <= MR_MAX(x->spill_limit, e->bytes);
    if (!room || !start_spill(x, e, d))
        not_kept(x, e);
}

void mr_executor_copy(struct mr_executor *x, struct mr_holding *e)
{
    struct ssd_device *d = &x->ssd[0];
    bool room = d->ssd && !d->refuses && x->capacity[(size_t)x->node * x->classes + 2] >= x->world.total_bytes;
    if (room && !is_full(d) && !e->spill && mr_executor_find_ssd(x, e->id) == EXECUTOR_NO_SSD)
        start_spill(x, e, d);
}

void mr_executor_cancel_spill(struct mr_executor *x, struct mr_holding *e)
{
    struct mr_spilling *s = e->spill;
    if (s && mr_work_take_back(x->ssd[s->ssd].writes, &s->job))
        mr_executor_end_spill(x, s, -ECANCELED);
}

/* The entries stay put while we walk (H4 of the holdings). */
void mr_executor_cancel_spills(struct mr_executor *x, uint8_t ssd, bool all)
{
    for (uint32_t i = 0; i < x->h.n; i++) {
        struct mr_holding *e = mr_holdings_at(&x->h, i);
        if (e->spill && (all || e->spill->staged) && (ssd == EXECUTOR_NO_SSD || e->spill->ssd == ssd))
            mr_executor_cancel_spill(x, e);
    }
}

void mr_executor_end_spill(struct mr_executor *x, struct mr_spilling *s, int rc)
{
    struct ssd_device *d = &x->ssd[s->ssd];
    struct mr_holding *e = s->e;
    bool written = rc == 0 || rc == -EEXIST, belongs = e->storage_class == s->ssd + 2u;
    assert(e->spill == s && e->claims && x->spills); /* the copy is a claim */
    e->spill = NULL;
    d->spill_bytes -= s->staged ? e->bytes : 0;
    x->spills--;
    if (written)
        mr_ssd_hold(d->ssd, e->id, belongs);
    else if (belongs)
        not_kept(x, e);
    free(s);
    mr_holdings_unclaim(&x->h, e);
}

static void tell_copy(const struct ssd_device *d, uint64_t id, uint64_t start, uint64_t bytes)
{
    struct mr_where at = MR_NOWHERE;
    at.sample = id;
    const struct mr_emit_arg arg[] = {{.name = "bytes", .value = (int64_t)bytes},
                                      {.name = "class", .value = d->index + 2}};
    mr_emit_args(d->x->p.events, MR_SPAN_COPY_SSD, start, mr_now_ns(), &at, (int64_t)bytes, arg, MR_ARRAY_LEN(arg));
}

static uint64_t run_write(void *user, void *mine, struct mr_work_job *job)
{
    (void)mine;
    struct ssd_device *d = user;
    struct mr_executor *x = d->x;
    struct mr_spilling *s = (struct mr_spilling *)job;
    struct mr_holding *e = s->e; /* claimed: place and bytes stay */
    struct mr_error err;
    uint64_t bytes = e->bytes, id = e->id, start = mr_now_ns();
    int rc = d->refuses ? -EROFS : mr_ssd_write(d->ssd, e->id, mr_segment_data(x->segment, e->at), bytes, &err);
    bool broken = rc && rc != -EEXIST && rc != -ENOSPC && !d->refuses;
    if (broken)
        mr_log(MR_LOG_WARN, "nothing more is kept on the SSD: %s", err.message);
    pthread_mutex_lock(&x->lock);
    if (broken)
        d->refuses = true;
    mr_executor_end_spill(x, s, rc);
    if (broken || rc == -ENOSPC) {
        d->full_until_ns = mr_now_ns() + FULL_NS;
        mr_executor_cancel_spills(x, d->index, false);
    }
    bool kick = x->waits_for_room;
    pthread_mutex_unlock(&x->lock);
    if (kick)
        mr_segment_kick(x->segment);
    if (!rc)
        tell_copy(d, id, start, bytes);
    return rc ? 0 : bytes;
}

static void drop_write(void *user, struct mr_work_job *job)
{
    struct ssd_device *d = user;
    pthread_mutex_lock(&d->x->lock);
    mr_executor_end_spill(d->x, (struct mr_spilling *)job, -ECANCELED);
    pthread_mutex_unlock(&d->x->lock);
}

bool mr_executor_writes_slowly(const struct mr_executor *x, const struct ssd_device *d)
{
    struct mr_work_load source, writes;
    mr_work_load(x->source, &source);
    mr_work_load(d->writes, &writes);
    return writes.rate > 0 && mr_executor_source_rate(x, &source) > 2 * writes.rate;
}

/* A slow SSD may hold up the end by 2 s, or a hundredth of the time that the training took; what waits then is given up. Under
 * the lock. */
static void end_slow(struct mr_executor *x, uint64_t since_ns)
{
    uint64_t now = mr_now_ns();
    if (now - since_ns < MR_MAX((since_ns - x->begun_ns) / DRAIN_SHARE, DRAIN_NS))
        return;
    for (uint32_t i = 0; i < x->n_ssds; i++)
        if (x->ssd[i].writes && mr_executor_writes_slowly(x, &x->ssd[i]))
            mr_executor_cancel_spills(x, (uint8_t)i, true);
}

int mr_executor_drain(struct mr_executor *x, bool (*over)(void *user), void *user, struct mr_error *err)
{
    uint64_t since_ns = mr_now_ns();
    for (bool more = x && x->n_ssds; more;) {
        if (over(user))
            return mr_error_plain(err, MR_E_INTERRUPTED, "stopped while samples were copied to the SSD");
        for (uint32_t i = 0; i < x->n_ssds; i++)
            mr_work_hurry(x->ssd[i].writes, true);
        pthread_mutex_lock(&x->lock);
        end_slow(x, since_ns);
        more = x->spills > 0;
        pthread_mutex_unlock(&x->lock);
        if (more)
            mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + 2 * MR_NS_PER_MS, NULL);
    }
    for (uint32_t i = 0; x && i < x->n_ssds; i++)
        mr_work_hurry(x->ssd[i].writes, false);
    if (x)
        mr_executor_count(x);
    return 0;
}

int mr_executor_start_ssds(struct mr_executor *x, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < x->n_ssds && !rc; i++) {
        struct ssd_device *d = &x->ssd[i];
        if (!d->ssd)
            continue;
        d->device = mr_traffic_get(NULL, mr_ssd_path(d->ssd));
        struct mr_work_params reads = {
            .name = "an SSD", .device = d->device, .user = d, .run = run_read, .drop = drop_read};
        struct mr_work_params writes = {
            .name = "an SSD", .device = d->device, .user = d, .threads = 1, .run = run_write, .drop = drop_write};
        rc = mr_work_start(&writes, &d->writes, err);
        if (!rc)
            rc = mr_work_start(&reads, &d->reads, err);
    }
    return rc;
}
