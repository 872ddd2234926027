/* The waits of each rank for its next batch, from any framework: which thread consumes, what it waits for, when its
 * epoch began. A wait inside a wait (stages of an iterator) is the outer one's business. Making the iterator counts as
 * part of the first wait: a loop over a loader does both before it sees its first batch. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ITER_GAP 50000000u /* ns between making the iterator and the first wait: more is other work of the program */

static bool is_work(unsigned role)
{
    return role == MR_ROLE_COMPUTE || role == MR_ROLE_COMPUTE_LOOP || role == MR_ROLE_STEP || role == MR_ROLE_OWN_STEP;
}

/* The thread with the most waits; without any, the one that computes. */
static uint32_t find_consumer(struct explain_job *j, const struct explain_rank *r, uint32_t *count)
{
    uint64_t best = 0;
    uint32_t lane = NO_INDEX;
    for (uint32_t i = r->span; i < r->span + r->spans; i++)
        count[j->span.item[i].lane] = 0;
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &j->span.item[i];
        bool waits = s->role == MR_ROLE_WAIT;
        if (!waits && !is_work(s->role))
            continue;
        count[s->lane] += 1;
        uint64_t worth = (uint64_t)count[s->lane] << waits;
        if (worth > best) {
            best = worth;
            lane = s->lane;
        }
    }
    return lane;
}

/* What is known of the epochs of one loader. */
struct epochs {
    uint64_t loader, epoch, batch, begun, iter_start, iter_end;
    bool fresh; /* an iterator was made and not used yet */
};

#define LOADERS 16 /* of one program; more share the last place */
struct loaders {
    struct epochs item[LOADERS];
    unsigned n;
};

static struct epochs *epochs_of(struct loaders *l, uint64_t loader)
{
    for (unsigned i = 0; i < l->n; i++)
        if (l->item[i].loader == loader)
            return &l->item[i];
    if (l->n < LOADERS)
        l->n++;
    l->item[l->n - 1] = (struct epochs){.loader = loader, .epoch = UNKNOWN};
    return &l->item[l->n - 1];
}

static void begin_epoch(struct epochs *e, const struct explain_span *s)
{
    e->epoch = e->epoch == UNKNOWN ? 0 : e->epoch + 1;
    e->batch = 0;
    e->begun = e->iter_start = s->start;
    e->iter_end = s->end;
    e->fresh = true;
}

static int add_wait(struct explain_job *j, uint32_t rank, struct epochs *e, const struct explain_span *s)
{
    struct explain_wait *w = MR_VEC_ADD(&j->wait);
    bool first = e->epoch == UNKNOWN || (s->arg[KEY_EPOCH] != UNKNOWN && !e->fresh && s->arg[KEY_EPOCH] != e->epoch);
    if (!w)
        return -ENOMEM;
    if (first)
        begin_epoch(e, s);
    if (s->arg[KEY_EPOCH] != UNKNOWN)
        e->epoch = s->arg[KEY_EPOCH];
    *w = (struct explain_wait){.start = s->start,
                               .end = s->end,
                               .epoch = e->epoch,
                               .batch = s->arg[KEY_BATCH] != UNKNOWN ? s->arg[KEY_BATCH] : e->batch,
                               .loader = s->arg[KEY_LOADER],
                               .rows = s->arg[KEY_ROWS],
                               .bytes = s->arg[KEY_BYTES],
                               .workers = s->arg[KEY_WORKERS],
                               .prefetch = s->arg[KEY_PREFETCH],
                               .begun = e->begun,
                               .requested = UNKNOWN,
                               .ready = UNKNOWN,
                               .sums = {.readers = UNKNOWN},
                               .idle = UNKNOWN,
                               .rank = rank,
                               .lane = s->lane,
                               .step = NO_INDEX,
                               .make = NO_INDEX};
    if (e->fresh && !first && s->start >= e->iter_end && s->start - e->iter_end < ITER_GAP)
        w->start = e->iter_start;
    e->fresh = false;
    e->batch = w->batch + 1;
    return 0;
}

static int rank_waits(struct explain_job *j, uint32_t rank)
{
    struct explain_rank *r = &j->rank[rank];
    struct loaders loaders = {.n = 0};
    uint64_t until = 0;
    int rc = 0;
    r->wait = (uint32_t)j->wait.n;
    for (uint32_t i = r->span; i < r->span + r->spans && !rc; i++) {
        const struct explain_span *s = &j->span.item[i];
        if (s->lane != r->consumer)
            continue;
        if (s->role == MR_ROLE_ITER && s->start >= until) {
            begin_epoch(epochs_of(&loaders, s->arg[KEY_LOADER]), s);
            if (s->arg[KEY_EPOCH] != UNKNOWN)
                epochs_of(&loaders, s->arg[KEY_LOADER])->epoch = s->arg[KEY_EPOCH];
        } else if ((s->role == MR_ROLE_WAIT || s->role == MR_ROLE_END) && s->start >= until) {
            rc = add_wait(j, rank, epochs_of(&loaders, s->arg[KEY_LOADER]), s);
            if (!rc)
                j->wait.item[j->wait.n - 1].last = s->role == MR_ROLE_END;
            until = s->end;
        }
    }
    r->waits = (uint32_t)j->wait.n - r->wait;
    return rc;
}

/* Our own loader tells when a batch is ready: before the wait for it ends. */
static void place_ready(struct explain_job *j, const struct explain_rank *r, const struct explain_span *s, uint32_t at)
{
    for (uint32_t w = at; w < r->wait + r->waits && w < at + 4096; w++)
        if (j->wait.item[w].batch == s->arg[KEY_BATCH] && j->wait.item[w].epoch == s->arg[KEY_EPOCH]) {
            j->wait.item[w].ready = s->start;
            j->wait.item[w].sums = (struct explain_readers){.readers = s->arg[KEY_READERS],
                                                            .read = s->arg[KEY_READ],
                                                            .decode = s->arg[KEY_DECODE],
                                                            .transform = s->arg[KEY_TRANSFORM],
                                                            .idle = s->arg[KEY_IDLE]};
            return;
        }
}

static void place_idle(struct explain_wait *w, const struct explain_span *s)
{
    if (w->start < s->end && s->start < w->end + ITER_GAP)
        w->idle = (w->idle == UNKNOWN ? 0 : w->idle) + explain_span_ns(s->start, s->end);
}

/* Facts that come beside the waits. */
static void place_facts(struct explain_job *j, const struct explain_rank *r)
{
    uint32_t at = r->wait;
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &j->span.item[i];
        if (s->role != MR_ROLE_ACCELERATOR_IDLE && s->role != MR_ROLE_BATCH_READY)
            continue;
        while (at < r->wait + r->waits && j->wait.item[at].end < s->start)
            at++;
        if (s->role == MR_ROLE_BATCH_READY)
            place_ready(j, r, s, at);
        else if (at < r->wait + r->waits)
            place_idle(&j->wait.item[at], s);
    }
}

int mr_explain_find_waits(struct explain_job *j)
{
    uint32_t *count = calloc(j->lanes + 1, sizeof(*count));
    int rc = count ? 0 : -ENOMEM;
    for (uint32_t r = 0; r < j->ranks && !rc; r++) {
        j->rank[r].consumer = find_consumer(j, &j->rank[r], count);
        if (j->rank[r].consumer == NO_INDEX)
            continue;
        j->lane[j->rank[r].consumer].consumer = true;
        rc = rank_waits(j, r);
        if (!rc)
            place_facts(j, &j->rank[r]);
    }
    free(count);
    return rc;
}
