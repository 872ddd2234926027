/* The waits of each rank for its next batch, from any framework: which thread consumes, what it waits for, when its
 * epoch began. A wait inside a wait (stages of an iterator) is the outer one's business. Making the iterator counts as
 * part of the first wait: a loop over a loader does both before it sees its first batch. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHUTDOWN_GAP 5000000u /* ns between a wait and the end of its iterator: next(iter(loader)) */
#define ITER_GAP 50000000u    /* ns between making the iterator and the first wait: more is other work of the program */

static bool is_work(unsigned role)
{
    return role == MR_ROLE_COMPUTE || role == MR_ROLE_COMPUTE_LOOP || role == MR_ROLE_STEP || role == MR_ROLE_OWN_STEP;
}

/* The program's first thread, where it waits a good part as often as any other: libraries have threads that wait for
 * the batches they pass on. */
static uint32_t prefer_main(const struct explain_job *j, const struct explain_rank *r, const uint32_t *waits,
                            uint32_t lane)
{
    for (uint32_t i = r->span; i < r->span + r->spans && lane != NO_INDEX; i++) {
        uint32_t other = j->span.item[i].lane;
        const struct explain_lane *l = &j->lane[other];
        if (l->process == j->lane[lane].process && l->tid == j->t->process[l->process].pid &&
            2 * waits[other] >= waits[lane])
            return other;
    }
    return lane;
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
    return prefer_main(j, r, count, lane);
}

/* A thread of the program's own may wait for the loader and hand batches over to the one that trains, which has the
 * optimiser's steps: then that one is the consumer, and what it waits for is the handover. */
static void find_handover(struct explain_job *j, struct explain_rank *r)
{
    uint32_t steps = 0, waits = 0, gets = 0, trains = NO_INDEX;
    r->passer = NO_INDEX;
    for (uint32_t i = r->span; i < r->span + r->spans; i++)
        if (j->span.item[i].role == MR_ROLE_OPTIMIZER) {
            steps++;
            trains = j->span.item[i].lane;
        }
    if (trains == NO_INDEX || trains == r->consumer || steps < 2 ||
        j->lane[trains].process != j->lane[r->consumer].process)
        return;
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &j->span.item[i];
        waits += s->lane == trains && s->role == MR_ROLE_WAIT;
        gets += s->lane == trains && s->role == MR_ROLE_HANDOVER;
    }
    if (waits)
        return;
    if (gets < steps)
        j->blind = MR_BLIND_HANDOVER;
    if (gets >= steps) {
        r->passer = r->consumer;
        r->consumer = trains;
    }
}

/* Which of the spans of `lane` count as waits there. */
static bool is_wait(const struct explain_rank *r, const struct explain_span *s)
{
    if (r->passer == NO_INDEX)
        return s->role == MR_ROLE_WAIT || s->role == MR_ROLE_END;
    return s->role == MR_ROLE_HANDOVER;
}

/* What is handed over k-th is what the other thread waited for k-th; at the end of an epoch many hand over a mark. */
static void number_handovers(struct explain_job *j, const struct explain_rank *r)
{
    uint32_t waits = 0, ends = 0, at = r->span;
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &j->span.item[i];
        waits += s->lane == r->passer && s->role == MR_ROLE_WAIT;
        ends += s->lane == r->passer && s->role == MR_ROLE_END;
    }
    bool marks = r->waits == waits + ends;
    if (!marks && r->waits != waits)
        return;
    for (uint32_t k = r->wait; k < r->wait + r->waits; k++, at++) {
        struct explain_wait *w = &j->wait.item[k];
        while (at < r->span + r->spans &&
               (j->span.item[at].lane != r->passer ||
                (j->span.item[at].role != MR_ROLE_WAIT && (j->span.item[at].role != MR_ROLE_END || !marks))))
            at++;
        if (at == r->span + r->spans)
            return;
        const uint64_t *arg = j->span.item[at].arg;
        w->last = j->span.item[at].role == MR_ROLE_END;
        w->batch = arg[KEY_BATCH];
        w->epoch = arg[KEY_EPOCH] != UNKNOWN ? arg[KEY_EPOCH] : w->epoch;
        w->loader = arg[KEY_LOADER];
        w->rows = arg[KEY_ROWS];
        w->workers = arg[KEY_WORKERS];
        w->prefetch = arg[KEY_PREFETCH];
    }
}

/* What is known of the epochs of one loader. */
struct epochs {
    uint64_t loader, epoch, batch, begun, iter_start, iter_end;
    bool fresh; /* an iterator was made and not used yet */
};

#define LOADERS 16 /* of one program at a time: of more, the one that was used longest ago is forgotten */
struct loaders {
    struct epochs item[LOADERS]; /* by last use */
    unsigned n;
};

static struct epochs *epochs_of(struct loaders *l, uint64_t loader)
{
    unsigned at = l->n;
    while (at && l->item[at - 1].loader != loader)
        at--;
    struct epochs e = at ? l->item[at - 1] : (struct epochs){.loader = loader, .epoch = UNKNOWN};
    unsigned from = at ? at - 1 : 0;
    if (!at && l->n < LOADERS)
        l->n++;
    else if (l->n > from + 1)
        memmove(&l->item[from], &l->item[from + 1], (l->n - 1 - from) * sizeof(*l->item));
    l->item[l->n - 1] = e;
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
                               .cpu = s->arg[KEY_CPU] != UNKNOWN && s->arg[KEY_DELAY] != UNKNOWN
                                          ? s->arg[KEY_CPU] + s->arg[KEY_DELAY]
                                          : s->arg[KEY_CPU],
                               .between = s->arg[KEY_BETWEEN],
                               .threads_delay = s->arg[KEY_THREADS_DELAY] != UNKNOWN ? s->arg[KEY_THREADS_DELAY] : 0,
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

/* A wait inside a wait, of a loader that knows which of its batches is meant, and who makes it: that is what the outer
 * one waits for. */
static void refine_wait(struct explain_wait *w, const struct explain_span *s)
{
    if (s->arg[KEY_BATCH] == UNKNOWN || s->arg[KEY_LOADER] == UNKNOWN || s->end > w->end)
        return;
    w->batch = s->arg[KEY_BATCH];
    w->epoch = s->arg[KEY_EPOCH] != UNKNOWN ? s->arg[KEY_EPOCH] : w->epoch;
    w->loader = s->arg[KEY_LOADER];
    w->rows = s->arg[KEY_ROWS] != UNKNOWN ? s->arg[KEY_ROWS] : w->rows;
    w->workers = s->arg[KEY_WORKERS] != UNKNOWN ? s->arg[KEY_WORKERS] : w->workers;
    w->prefetch = s->arg[KEY_PREFETCH] != UNKNOWN ? s->arg[KEY_PREFETCH] : w->prefetch;
}

/* next(iter(loader)): the iterator is thrown away with the batch, and the program waits for its workers to end. */
static void lengthen_wait(struct explain_wait *w, const struct explain_span *s, uint64_t *until)
{
    if (w->last || w->loader != s->arg[KEY_LOADER] || s->start > w->end + SHUTDOWN_GAP || s->end <= w->end)
        return;
    w->end = *until = s->end;
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
        } else if (is_wait(r, s) && s->start >= until) {
            rc = add_wait(j, rank, epochs_of(&loaders, s->arg[KEY_LOADER]), s);
            if (!rc)
                j->wait.item[j->wait.n - 1].last = s->role == MR_ROLE_END;
            until = s->end;
        } else if (s->role == MR_ROLE_SHUTDOWN && j->wait.n > r->wait) {
            lengthen_wait(&j->wait.item[j->wait.n - 1], s, &until);
        } else if (s->role == MR_ROLE_WAIT && j->wait.n > r->wait) {
            refine_wait(&j->wait.item[j->wait.n - 1], s);
        }
    }
    r->waits = (uint32_t)j->wait.n - r->wait;
    if (!rc && r->passer != NO_INDEX)
        number_handovers(j, r);
    return rc;
}

/* Our own loader tells when a batch is ready: before the wait for it ends. */
static void place_ready(struct explain_job *j, const struct explain_rank *r, const struct explain_span *s, uint32_t at)
{
    for (uint32_t w = at; w < r->wait + r->waits && w < at + 4096; w++)
        if (j->wait.item[w].batch == s->arg[KEY_BATCH] && j->wait.item[w].epoch == s->arg[KEY_EPOCH] &&
            (s->arg[KEY_LOADER] == UNKNOWN || j->wait.item[w].loader == s->arg[KEY_LOADER])) {
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
void mr_explain_place_facts(struct explain_job *j, const struct explain_rank *r)
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
        find_handover(j, &j->rank[r]);
        j->lane[j->rank[r].consumer].consumer = true;
        rc = rank_waits(j, r);
        if (!rc)
            mr_explain_place_facts(j, &j->rank[r]);
    }
    free(count);
    return rc;
}
