/* The replay: an event-driven simulation of one loop and its workers; replay.h has the picture.
 *
 * Invariants
 *  R1 An actor is in one stage; its key is the time at which the stage ends, for a stage on a resource the resource's
 *     own clock at which it ends.
 *  R2 A resource's clock runs at `speed` <= 1: all of its users together get no more than it has.
 *  R3 Batch k is taken in order by its worker, and not before the look-ahead allows. */
#include "advise/replay.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum resource { STORAGE, SERIAL, CPUS, RESOURCES, TIMER = RESOURCES, IDLE };
enum stage { META, READ, OTHER, WORK, READY, HAND, COMPUTE, REST, WAIT };

struct actor {
    uint8_t on, stage; /* enum resource or TIMER, IDLE; enum stage */
    bool fresh;        /* has started, and not loaded yet */
    double key, load, since, work;
    size_t batch, next;
};

struct clock {
    double now, speed, capacity, load; /* capacity 0: no limit */
};

struct replay {
    const struct mr_replay_batch *b;
    const struct mr_replay_setup *s;
    size_t n, consumed, epoch_end;
    bool *ready;
    struct actor a[MR_REPLAY_WORKERS + 1]; /* 0: the loop */
    unsigned workers;
    double width; /* of a worker: a team counts as one */
    struct clock clock[RESOURCES];
    double now, wait_from;
    double nominal[RESOURCES], took[RESOURCES], compute_nominal, compute_took;
    struct mr_replay_result out;
};

static double times(double x)
{
    return x > 0 ? x : 1;
}

static void set_speed(struct clock *c)
{
    c->speed = c->capacity > 0 && c->load > c->capacity * (1 + 1e-9) ? c->capacity / c->load : 1;
}

static void leave(struct replay *r, struct actor *a)
{
    if (a->on < RESOURCES) {
        struct clock *c = &r->clock[a->on];
        bool computes = a->stage == COMPUTE;
        *(computes ? &r->compute_took : &r->took[a->on]) += r->now - a->since;
        *(computes ? &r->compute_nominal : &r->nominal[a->on]) += a->work;
        c->load = fmax(0, c->load - a->load);
        set_speed(c);
    }
    a->on = IDLE;
}

/* Enters a stage of `work` seconds, undisturbed; `load` is what it takes of the resource meanwhile. */
static void enter(struct replay *r, struct actor *a, enum stage stage, unsigned on, double work, double load)
{
    a->stage = (uint8_t)stage;
    a->since = r->now;
    a->work = work;
    a->load = load;
    a->on = (uint8_t)(on < RESOURCES && r->clock[on].capacity > 0 && load > 0 ? on : TIMER);
    if (a->on == TIMER) {
        a->key = r->now + work;
        return;
    }
    struct clock *c = &r->clock[on];
    a->key = c->now + work;
    c->load += load;
    set_speed(c);
}

/* Of what the batch reads: from the tier. */
static double tier_share(const struct replay *r, const struct mr_replay_batch *b)
{
    return b->epoch >= r->s->tier_from ? r->s->tier_share : 0;
}

static double read_s(const struct replay *r, const struct mr_replay_batch *b)
{
    const struct mr_replay_setup *s = r->s;
    double own = s->read_s_per_byte > 0 ? s->read_s_per_byte * (double)b->bytes : (double)b->read_s * times(s->read_x);
    double share = tier_share(r, b);
    return (1 - share) * own + share * s->tier_s_per_byte * (double)b->bytes;
}

static double meta_s(const struct replay *r, const struct mr_replay_batch *b)
{
    double share = tier_share(r, b);
    return (double)b->meta_s * times(r->s->meta_x) * (1 - share + share * r->s->tier_meta_x);
}

/* Begins the stage, or the next one that takes any time. Returns at READY without entering it. */
static bool begin_load(struct replay *r, struct actor *a, unsigned stage)
{
    const struct mr_replay_batch *b = &r->b[a->batch];
    const struct mr_replay_setup *s = r->s;
    for (; stage < READY; stage++) {
        const double work[READY] = {[META] = meta_s(r, b) + (a->fresh ? s->init_s : 0),
                                    [READ] = read_s(r, b),
                                    [OTHER] = (double)b->other_s * times(s->other_x),
                                    [WORK] = (double)b->cpu_s * times(s->cpu_x) + s->pack_s};
        static const uint8_t on[READY] = {[META] = TIMER, [READ] = STORAGE, [OTHER] = SERIAL, [WORK] = CPUS};
        if (!(work[stage] > 0))
            continue;
        double took = work[stage] / r->width;
        double stored = (1 - tier_share(r, b)) * (double)b->bytes;
        double load = stage == META ? 0 : stage != READ || s->slots > 0 ? r->width : stored / took;
        a->fresh = false;
        enter(r, a, (enum stage)stage, on[stage], took, load);
        return true;
    }
    return false;
}

/* ---- the workers ---- */

/* Batches before this one may be begun. */
static size_t limit_of(const struct replay *r)
{
    bool asked = r->a[0].stage == WAIT;
    size_t ahead = r->s->ahead > 0 ? r->s->ahead : asked ? 1 : 0;
    size_t limit = r->consumed + ahead;
    return limit < r->epoch_end ? limit : r->epoch_end;
}

static void dispatch(struct replay *r, struct actor *w)
{
    while (w->on == IDLE && w->next < limit_of(r)) {
        w->batch = w->next;
        w->next += r->workers;
        if (!begin_load(r, w, META))
            r->ready[w->batch] = true;
    }
}

static void dispatch_all(struct replay *r)
{
    for (unsigned i = 1; i <= r->workers; i++)
        if (r->a[i].on == IDLE)
            dispatch(r, &r->a[i]);
}

/* The loop asks for the first batch of an epoch: before that nothing was loaded for it. */
static void open_epoch(struct replay *r)
{
    size_t k = r->consumed, end = k;
    while (end < r->n && (!r->s->drains || r->b[end].epoch == r->b[k].epoch))
        end++;
    r->epoch_end = end;
    for (unsigned i = 1; i <= r->workers; i++) {
        r->a[i].next = k + i - 1;
        double start = (double)r->b[k].start_s + r->s->start_s;
        r->a[i].fresh |= k == 0 || r->s->starts;
        if ((k == 0 || r->s->starts) && start > 0) {
            enter(r, &r->a[i], READY, TIMER, start, 0);
            r->a[i].batch = SIZE_MAX;
        }
    }
}

/* ---- the loop ---- */

static void take_batch(struct replay *r)
{
    const struct mr_replay_batch *b = &r->b[r->consumed];
    struct actor *loop = &r->a[0];
    double hand = (double)b->hand_s * times(r->s->hand_x) + r->s->hand_s;
    r->out.stall_s += b->uncounted ? 0 : r->now - r->wait_from + hand;
    loop->batch = r->consumed++;
    enter(r, loop, HAND, TIMER, hand, 0);
    dispatch_all(r);
}

static void ask(struct replay *r)
{
    struct actor *loop = &r->a[0];
    r->wait_from = r->now;
    loop->stage = WAIT;
    loop->on = IDLE;
    if (r->consumed == r->n)
        return;
    if (r->consumed == r->epoch_end)
        open_epoch(r);
    loop->batch = r->consumed;
    if (!r->workers) {
        if (!begin_load(r, loop, META))
            take_batch(r);
        return;
    }
    dispatch_all(r);
    if (r->ready[r->consumed])
        take_batch(r);
}

static void go_on(struct replay *r, struct actor *loop)
{
    const struct mr_replay_batch *b = &r->b[loop->batch];
    switch ((enum stage)loop->stage) {
    case HAND: enter(r, loop, COMPUTE, CPUS, (double)b->compute_s * times(r->s->compute_x), r->s->compute_cpus); break;
    case COMPUTE: enter(r, loop, REST, TIMER, (double)b->rest_s, 0); break;
    case REST: ask(r); break;
    default:
        if (!begin_load(r, loop, loop->stage + 1u))
            take_batch(r);
    }
}

static void end_stage(struct replay *r, struct actor *a)
{
    leave(r, a);
    if (a == &r->a[0]) {
        go_on(r, a);
        return;
    }
    if (a->batch != SIZE_MAX && a->stage < READY && begin_load(r, a, a->stage + 1u))
        return;
    if (a->batch != SIZE_MAX)
        r->ready[a->batch] = true;
    dispatch(r, a);
    if (r->a[0].stage == WAIT && r->consumed < r->n && r->ready[r->consumed])
        take_batch(r);
}

/* ---- events ---- */

static void advance(struct replay *r, double to)
{
    for (unsigned k = 0; k < RESOURCES; k++)
        r->clock[k].now += (to - r->now) * r->clock[k].speed;
    r->now = to;
}

static struct actor *next_event(struct replay *r, double *at)
{
    struct actor *first[RESOURCES + 1] = {0}, *best = NULL;
    for (unsigned i = 0; i <= r->workers; i++) {
        struct actor *a = &r->a[i];
        if (a->on != IDLE && (!first[a->on] || a->key < first[a->on]->key))
            first[a->on] = a;
    }
    for (unsigned k = 0; k <= RESOURCES; k++) {
        if (!first[k])
            continue;
        const struct clock *c = &r->clock[k < RESOURCES ? k : 0];
        double t = k == TIMER ? first[k]->key : r->now + fmax(0, first[k]->key - c->now) / c->speed;
        if (!best || t < *at) {
            best = first[k];
            *at = t;
        }
    }
    return best;
}

static double slow(double took, double nominal)
{
    return nominal > 0 ? took / nominal : 1;
}

bool mr_replay_run(const struct mr_replay_batch *b, size_t n, const struct mr_replay_setup *s,
                   struct mr_replay_result *out)
{
    struct replay *r = calloc(1, sizeof(*r));
    double at = 0;
    if (!r || !(r->ready = calloc(n + 1, sizeof(*r->ready)))) {
        free(r);
        return false;
    }
    r->b = b;
    r->n = n;
    r->s = s;
    r->workers = s->workers && s->team ? 1 : s->workers < MR_REPLAY_WORKERS ? s->workers : MR_REPLAY_WORKERS;
    r->width = s->workers && s->team ? (double)s->workers : 1;
    r->clock[STORAGE] = (struct clock){.speed = 1, .capacity = s->slots > 0 ? s->slots : s->storage};
    r->clock[SERIAL] = (struct clock){.speed = 1, .capacity = s->serial};
    r->clock[CPUS] = (struct clock){.speed = 1, .capacity = s->cpus};
    for (unsigned i = 0; i <= r->workers; i++)
        r->a[i].on = IDLE;
    ask(r);
    for (struct actor *a; (a = next_event(r, &at));) {
        assert(at >= r->now - 1e-9);
        advance(r, fmax(at, r->now));
        end_stage(r, a);
    }
    r->out.wall_s = r->now;
    r->out.read_slow = slow(r->took[STORAGE], r->nominal[STORAGE]);
    r->out.cpu_slow = slow(r->took[CPUS], r->nominal[CPUS]);
    r->out.compute_slow = slow(r->compute_took, r->compute_nominal);
    r->out.other_slow = slow(r->took[SERIAL], r->nominal[SERIAL]);
    *out = r->out;
    free(r->ready);
    free(r);
    return true;
}

double mr_replay_saves(const struct mr_replay_save *s, size_t n, double front_s_per_byte, double back_x)
{
    double blocked = 0, behind = 0; /* behind: of the save before, still to do */
    for (size_t i = 0; i < n; i++) {
        blocked += behind + fmin(s[i].blocked_s, front_s_per_byte * s[i].bytes);
        behind = fmax(0, back_x * s[i].blocked_s - s[i].between_s);
    }
    return blocked + behind;
}
