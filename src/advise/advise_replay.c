/* What a change of the loader's settings saves: the trace's own batches are replayed (replay.h) as they were and with
 * the change, and the replay's share of the wait that goes away is taken of the measured wait.
 *
 * The replay as it was is fitted first: reads, CPU work and compute were measured while others used the same storage
 * and CPUs, so they are shortened until the replay takes as long as the trace did. Batches of which nothing is known
 * take the mean.
 *
 * The interval: blocks of neighbouring batches are drawn again and again, with the limits as uncertain as their
 * measurement. Where it was not seen whether more readers get more, its low end is a storage (a lock, a server) that
 * gives all of them together what it gave. */
#include "advise/advise_internal.h"
#include "advise/replay.h"
#include "base/common.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

#define BATCHES_MOST 4000u /* replayed of all ranks */
#define RANKS_MOST 4u
#define DRAWS 16u
#define DRAWN 256u /* batches of a draw */
#define BLOCK 16u
#define LIMIT_ERROR 0.1 /* of a limit that was measured */
#define MODEL_ERROR 0.07
#define FITS 3u        /* rounds */
#define INIT_TIMES 1.5 /* a worker's first batch against others: it sets something up */
#define INIT_LEAST_S 0.01
/* Handing over a batch between processes: a fixed part, the worker's copy into shared memory that was never touched
 * (2 GB/s on the machines that were measured), the loop's page faults when it maps that (12 GB/s). */
#define HAND_S 0.0003
#define START_S 0.03           /* until new workers read, */
#define START_EACH_MOST_S 0.05 /* more than that is the trace's */
#define START_EACH_S 0.02      /* and for each of them: they are started one after the other */
#define PACK_RATE 2e9
#define MAP_RATE 12e9

/* One rank's batches. Workers that start for the first one are no matter of settings. */
struct series {
    struct mr_replay_batch *b;
    size_t n, from, to; /* [from, to) count */
};

struct mr_prediction {
    struct series rank[RANKS_MOST];
    unsigned ranks;
    double read_x, cpu_x, other_x, compute_x; /* undisturbed, of what was measured */
    double start_s, workers;                  /* until the workers of the trace began: so long, so many */
    double init_s;                            /* of a worker that has started, for its first batch: beyond others */
    bool evaluates;                           /* the batches of evaluation, not of training */
};

/* ---- batches ---- */

static bool is_chosen(const struct mr_advice *a, uint32_t rank)
{
    size_t every = MR_MAX(a->x->ranks / RANKS_MOST, (size_t)1);
    return rank % every == 0 && rank / every < RANKS_MOST;
}

static double mean_bytes(const struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    double ranks = fmax(1, (double)a->x->ranks), batch = f->batch * f->sample_bytes;
    double bytes = mr_known(batch) ? batch : mr_known_or(f->demand_bytes_per_s * f->compute_s / ranks, 0);
    return bytes > 0 ? bytes : 1; /* none known: in units of a batch */
}

/* Metadata calls' part of the reads, of a batch of which only means are known. */
static double metadata_part(const struct mr_advice *a)
{
    return a->read_s > 0 ? fmin(1, mr_stall_s(a, MR_STALL_METADATA) / a->read_s) : 0;
}

static struct mr_replay_batch mean_batch(const struct mr_advice *a, const struct mr_pipeline *p)
{
    double meta = metadata_part(a), start = 0;
    if (a->f->epochs >= 2 && mr_known(a->f->first_step_s)) /* a step that begins an epoch */
        start = fmax(0, a->f->first_step_s - p->compute_s - p->read_s - p->cpu_s);
    double other = mr_known(a->f->worker_cpu)
                       ? p->cpu_s * (1 - fmin(1, a->f->worker_cpu * (p->read_s + p->cpu_s) / fmax(p->cpu_s, 1e-12)))
                       : 0;
    other = a->own ? 0 : fmax(0, other);
    return (struct mr_replay_batch){.meta_s = (float)(p->read_s * meta),
                                    .read_s = (float)(p->read_s * (1 - meta)),
                                    .cpu_s = (float)(p->cpu_s - other),
                                    .other_s = (float)other,
                                    .start_s = (float)start,
                                    .bytes = (float)mean_bytes(a)};
}

/* Where a server has one answer at a time, waits for it are those for a lock: bytes are not what they are for. */
static void put_in_turn(const struct mr_advice *a, struct mr_replay_batch *b)
{
    if (!mr_waits_in_turn(a) || a->scaling.waits_for != MR_WAITS_NETWORK)
        return;
    b->other_s += b->read_s;
    b->read_s = 0;
}

static struct mr_replay_batch batch_of(const struct mr_explain_step *s, const struct mr_explain_batch *known,
                                       const struct mr_replay_batch *mean)
{
    struct mr_replay_batch b = *mean;
    double all = (double)(s->end_ns - s->start_ns), stall = (double)s->ns[MR_TIME_STALL];
    if (known && known->known)
        b = (struct mr_replay_batch){.meta_s = known->meta_s,
                                     .read_s = known->read_s,
                                     .other_s = known->other_s,
                                     .cpu_s = known->cpu_s,
                                     .hand_s = known->hand_s,
                                     .start_s = known->start_s,
                                     .bytes = known->bytes > 0 ? known->bytes : mean->bytes};
    b.compute_s = (float)((double)s->ns[MR_TIME_COMPUTE] / 1e9);
    b.rest_s = (float)(fmax(0, all - stall - (double)s->ns[MR_TIME_COMPUTE]) / 1e9);
    b.epoch = s->epoch;
    return b;
}

static bool counts(const struct mr_explanation *x, const struct mr_explain_step *s)
{
    return !x->counted_to || (s->step >= x->counted_from && s->step < x->counted_to);
}

/* In their order: those that count lie together. */
static void count_batch(struct series *s, bool is_counted)
{
    s->b[s->n].uncounted = !is_counted;
    s->from += !is_counted && s->from == s->n;
    s->to = is_counted ? s->n + 1 : s->to;
}

static bool gather(struct mr_advice *a, struct mr_prediction *r, const struct mr_pipeline *p)
{
    const struct mr_explanation *x = a->x;
    const struct mr_replay_batch mean = mean_batch(a, p);
    size_t each = BATCHES_MOST / RANKS_MOST, k = 0;
    struct series *to = NULL;
    for (size_t i = 0; i < x->steps; i++) {
        const struct mr_explain_step *s = &x->step[i];
        while (k < x->batches && x->batch[k].step < i)
            k++;
        if (i == 0 || s->rank != s[-1].rank)
            to = is_chosen(a, s->rank) && r->ranks < RANKS_MOST ? &r->rank[r->ranks++] : NULL;
        if (!to || to->n == each || (s->phase == MR_EXPLAIN_EVAL) != r->evaluates)
            continue;
        if (!to->b && !(to->b = malloc(each * sizeof(*to->b))))
            return false;
        const struct mr_explain_batch *known = k < x->batches && x->batch[k].step == i ? &x->batch[k] : NULL;
        to->b[to->n] = batch_of(s, known, &mean);
        if (!to->n && known && known->known)
            r->start_s = (double)known->start_s;
        to->b[to->n].start_s = to->n ? to->b[to->n].start_s : 0;
        put_in_turn(a, &to->b[to->n]);
        count_batch(to, counts(x, s));
        to->n++;
    }
    return true;
}

static double load_of(const struct mr_replay_batch *b)
{
    return (double)b->meta_s + (double)b->read_s + (double)b->other_s + (double)b->cpu_s;
}

static int by_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_seconds);
    return n ? v[n / 2] : 0;
}

/* The first batch of each worker of an epoch, where workers start with each, else of the run. */
static bool is_first(const struct series *s, size_t i, const struct mr_pipeline *now)
{
    size_t k = i;
    while (k && i - k < (size_t)now->workers && (now->keeps || s->b[k - 1].epoch == s->b[i].epoch))
        k--;
    return i - k < (size_t)now->workers;
}

/* What workers set up when they have started (an index, a connection, a model for the tokens) is in their first batch:
 * it is taken out of that, and is a figure of its own, which workers that live on have once. */
static bool find_init(struct mr_prediction *r, const struct mr_pipeline *now)
{
    struct series *s = &r->rank[0];
    double *first = malloc((2 * s->n + 2) * sizeof(*first)), *rest = first + s->n + 1;
    size_t firsts = 0, rests = 0;
    if (!first)
        return false;
    for (size_t i = 0; i < s->n && !now->team && now->workers >= 1; i++)
        *(is_first(s, i, now) ? &first[firsts++] : &rest[rests++]) = load_of(&s->b[i]);
    double begin = median(first, firsts), usual = median(rest, rests);
    if (firsts && rests >= firsts && begin > INIT_TIMES * usual && begin > usual + INIT_LEAST_S)
        r->init_s = begin - usual;
    free(first);
    for (unsigned k = 0; k < r->ranks && r->init_s > 0; k++)
        for (size_t i = 0; i < r->rank[k].n; i++) {
            struct mr_replay_batch *b = &r->rank[k].b[i];
            float part = (float)fmin(1, usual / fmax(load_of(b), 1e-9));
            if (!is_first(&r->rank[k], i, now))
                continue;
            b->meta_s *= part;
            b->read_s *= part;
            b->other_s *= part;
            b->cpu_s *= part;
        }
    return true;
}

/* ---- settings ---- */

static double or_one(double x)
{
    return x > 0 ? x : 1;
}

static struct mr_replay_setup setup_of(const struct mr_advice *a, const struct mr_prediction *r,
                                       const struct mr_pipeline *p)
{
    struct mr_replay_setup s = {.workers = (unsigned)fmin(fmax(0, p->workers), MR_REPLAY_WORKERS),
                                .ahead = (unsigned)fmax(0, p->ahead),
                                .team = p->team,
                                .drains = !a->own,
                                .starts = !p->keeps,
                                .storage = p->storage,
                                .cpus = mr_known_or(p->cpus, 0),
                                .slots = p->slots,
                                .serial = p->serial,
                                .meta_x = or_one(p->meta_x),
                                .read_x = or_one(p->read_x) * r->read_x,
                                .other_x = r->other_x,
                                .cpu_x = or_one(p->cpu_x) * r->cpu_x,
                                .compute_x = r->compute_x,
                                .read_s_per_byte = p->read_s_per_byte,
                                .tier_share = p->tier_rate > 0 ? p->tier_share : 0,
                                .tier_s_per_byte = p->tier_rate > 0 ? 1 / p->tier_rate : 0,
                                .tier_meta_x = p->tier_meta_x,
                                .tier_from = p->tier_from,
                                .hand_s = p->hand_s,
                                .pack_s = p->pack_s,
                                .start_s = p->start_s,
                                .init_s = r->init_s};
    if (!p->team && r->workers >= 1 && p->workers > r->workers)
        s.start_s += fmin(r->start_s / r->workers, START_EACH_MOST_S) * (p->workers - r->workers);
    /* Without an accelerator that was watched, steps compute on a CPU, as far as the trace shows. */
    if (!a->own && mr_known(a->f->cpu_demand_s) && !mr_known(a->f->accelerator_idle_share))
        s.compute_cpus = 1;
    return s;
}

static double stall_of(const struct mr_prediction *r, const struct mr_replay_setup *s)
{
    double stall = 0;
    struct mr_replay_result out;
    for (unsigned i = 0; i < r->ranks; i++) {
        if (!mr_replay_run(r->rank[i].b, r->rank[i].n, s, &out))
            return NAN;
        stall += out.stall_s;
    }
    return stall;
}

/* Shortens what was measured beside others, until the replay of the run as it was takes as long. */
static void fit(const struct mr_advice *a, struct mr_prediction *r, const struct mr_pipeline *now)
{
    struct mr_replay_result out;
    for (unsigned k = 0; k < FITS && r->ranks; k++) {
        struct mr_replay_setup s = setup_of(a, r, now);
        if (!mr_replay_run(r->rank[0].b, MR_MIN(r->rank[0].n, (size_t)DRAWN), &s, &out))
            return;
        r->read_x = fmin(1, r->read_x / out.read_slow);
        r->cpu_x = fmin(1, r->cpu_x / out.cpu_slow);
        r->other_x = fmin(1, r->other_x / out.other_slow);
        r->compute_x = fmin(1, r->compute_x / out.compute_slow);
        if (out.read_slow < 1.02 && out.cpu_slow < 1.02 && out.other_slow < 1.02 && out.compute_slow < 1.02)
            return;
    }
}

static struct mr_prediction *prepare(struct mr_advice *a, bool evaluates)
{
    struct mr_prediction **of = evaluates ? &a->evaluation : &a->training;
    if (*of)
        return *of;
    struct mr_pipeline now = evaluates ? mr_pipeline_of_evaluation(a) : mr_pipeline_now(a);
    struct mr_prediction *r = calloc(1, sizeof(*r));
    if (!r || !mr_pipeline_known(&now)) {
        a->failed |= !r;
        free(r);
        return NULL;
    }
    r->read_x = r->cpu_x = r->other_x = r->compute_x = 1;
    r->evaluates = evaluates;
    r->workers = now.workers;
    *of = r;
    if (!gather(a, r, &now) || !find_init(r, &now)) {
        a->failed = true;
        return NULL;
    }
    fit(a, r, &now);
    return r;
}

void mr_prediction_free(struct mr_prediction *r)
{
    for (unsigned i = 0; r && i < r->ranks; i++)
        free(r->rank[i].b);
    free(r);
}

/* ---- seconds ---- */

/* Waits of all steps of the phase, were they like those that count. */
static double stalled_s(const struct mr_advice *a, const struct mr_prediction *r)
{
    const struct mr_explanation *x = a->x;
    double stall = 0, counted = 0, all = 0;
    for (size_t i = 0; i < x->steps; i++) {
        const struct mr_explain_step *s = &x->step[i];
        if ((s->phase == MR_EXPLAIN_EVAL) != r->evaluates)
            continue;
        all++;
        counted += counts(x, s);
        stall += counts(x, s) ? (double)s->ns[MR_TIME_STALL] / 1e9 : 0;
    }
    return counted > 0 ? stall * all / counted / fmax(1, (double)x->ranks) : 0;
}

/* Waits that settings can change: workers that had to start for the first batch start no sooner. */
static double base_s(const struct mr_advice *a, const struct mr_prediction *r, const struct mr_pipeline *now)
{
    if (a->x->counted_to && (r->evaluates || a->x->counted_from))
        return stalled_s(a, r);
    if (r->evaluates)
        return a->evaluation_s;
    double load = now->read_s + now->cpu_s + r->init_s, start = fmax(0, (double)a->x->first_ns / 1e9 - load);
    return fmax(0, (a->x->counted_to ? stalled_s(a, r) : a->stall_s) - start);
}

/* Of `base`, by two replays. What the replay as it was does not account for stays. */
static double saved(double base, double now, double then, double scale)
{
    now *= scale;
    then *= scale;
    if (now > base && now > 0)
        then *= base / now;
    return fmin(base, now) - then;
}

static double scale_of(const struct mr_advice *a, const struct mr_prediction *r)
{
    double n = 0, steps = 0;
    for (unsigned i = 0; i < r->ranks; i++)
        n += (double)(r->rank[i].to - MR_MIN(r->rank[i].from, r->rank[i].to));
    for (size_t i = 0; i < a->x->steps; i++)
        steps += (a->x->step[i].phase == MR_EXPLAIN_EVAL) == r->evaluates;
    return n > 0 ? steps / fmax(1, (double)a->x->ranks) / n : 0;
}

static double predict(struct mr_advice *a, bool evaluates, const struct mr_pipeline *q)
{
    struct mr_prediction *r = prepare(a, evaluates);
    if (!r)
        return NAN;
    struct mr_pipeline now = evaluates ? mr_pipeline_of_evaluation(a) : mr_pipeline_now(a);
    const struct mr_replay_setup before = setup_of(a, r, &now), after = setup_of(a, r, q);
    double base = base_s(a, r, &now), scale = scale_of(a, r);
    if (!(scale > 0) && a->x->counted_to)
        return NAN;
    double was = stall_of(r, &before), is = stall_of(r, &after);
    a->replayed = 0;
    for (unsigned i = 0; i < r->ranks; i++)
        a->replayed += (double)r->rank[i].n;
    double behind = evaluates ? a->held_s - a->held_training_s : a->held_training_s;
    double held = base > 0 ? behind / base : 0; /* barriers behind waits go with the waits */
    a->now_s = (1 + held) * base;
    a->then_s = a->now_s - (1 + held) * saved(base, was, is, scale);
    return a->now_s - a->then_s;
}

/* A draw: blocks of the first rank's batches, in the order of the draw. */
static size_t draw(const struct series *of, unsigned round, struct mr_replay_batch *to)
{
    size_t all = of->to - of->from, n = MR_MIN(all, (size_t)DRAWN), block = MR_MIN((size_t)BLOCK, all);
    for (size_t i = 0; i < n;) {
        uint64_t random = mr_rng_at(1, MR_RNG_TEST, (uint64_t)round << 32 | i);
        size_t from = of->from + (size_t)mr_rng_below(random, all - block + 1);
        for (size_t k = 0; k < block && i < n; k++, i++) {
            to[i] = of->b[from + k];
            to[i].start_s = k ? to[i].start_s : 0;
        }
    }
    return n;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Shares of the wait that go away, of all draws, sorted; 0: no answer. */
static unsigned draw_shares(const struct mr_prediction *r, struct mr_replay_setup before, struct mr_replay_setup after,
                            double shares[DRAWS])
{
    struct mr_replay_batch drawn[DRAWN];
    struct mr_replay_result x, y;
    unsigned n = 0;
    double storage[2] = {before.storage, after.storage};
    for (unsigned k = 0; k < DRAWS && r->ranks; k++) {
        const struct series *of = &r->rank[k % r->ranks];
        size_t m = of->to > of->from ? draw(of, k, drawn) : 0;
        double error = 1 + LIMIT_ERROR * (2 * (double)k / (DRAWS - 1) - 1);
        before.storage = storage[0] * error;
        after.storage = storage[1] * error;
        if (!m || !mr_replay_run(drawn, m, &before, &x) || !mr_replay_run(drawn, m, &after, &y) || !(x.stall_s > 0))
            continue;
        shares[n++] = fmin(1, fmax(0, 1 - y.stall_s / x.stall_s));
    }
    qsort(shares, n, sizeof(*shares), ascending);
    return n;
}

/* The pessimist's settings: where it was not seen whether more workers get more, no more of them get anything at a time
 * than did, or than got something in the trace. */
static struct mr_pipeline at_worst(const struct mr_advice *a, const struct mr_pipeline *now,
                                   const struct mr_pipeline *q)
{
    const struct mr_explain_facts *f = a->f;
    struct mr_pipeline w = *q;
    double ranks = fmax(1, (double)a->x->ranks), side = fmax(1, now->workers);
    double reached = fmax(mr_known_or(f->stream_bytes_per_s[0], 0), mr_known_or(f->stream_bytes_per_s[1], 0)) / ranks;
    if (q->workers <= now->workers || a->scaling.scales != MR_SCALES_UNKNOWN)
        return w;
    bool grows_to_knee = mr_known(f->knee) && q->workers <= f->knee;
    if (!(w.storage > 0) && reached > 0)
        w.storage = reached;
    else if (!(w.storage > 0) && !grows_to_knee)
        w.slots = side;
    w.serial = w.serial > 0 ? w.serial : side;
    return w;
}

static bool predict_draft(struct mr_advice *a, struct mr_draft *d, bool evaluates, const struct mr_pipeline *q)
{
    double shares[DRAWS], saves = predict(a, evaluates, q);
    if (!mr_known(saves))
        return false;
    saves = fmax(0, saves);
    struct mr_prediction *r = evaluates ? a->evaluation : a->training;
    struct mr_pipeline now = evaluates ? mr_pipeline_of_evaluation(a) : mr_pipeline_now(a);
    struct mr_pipeline worst = at_worst(a, &now, q);
    double worst_s = fmax(0, predict(a, evaluates, &worst));
    (void)predict(a, evaluates, q); /* the one that the text shows */
    double base = a->now_s, low = saves, high = saves;
    unsigned n = draw_shares(r, setup_of(a, r, &now), setup_of(a, r, q), shares);
    double usual = n ? shares[n / 2] : 0;
    if (n && usual > 0) { /* the draws' spread about the replay of all */
        low = saves * fmin(1, shares[n / 10] / usual);
        high = saves * fmax(1, shares[n - 1 - n / 10] / usual);
    }
    d->f.saves_s = saves;
    d->f.saves_low_s = fmin(low, saves - MODEL_ERROR * saves);
    d->f.saves_high_s = fmin(base, fmax(high, saves + MODEL_ERROR * saves));
    d->f.saves_low_s = fmin(d->f.saves_low_s, worst_s);
    d->f.counted = a->x->counted_to > 0;
    return true;
}

bool mr_predict(struct mr_advice *a, struct mr_draft *d, const struct mr_pipeline *q)
{
    return predict_draft(a, d, false, q);
}

const char *mr_replay_formula(struct mr_advice *a, const char *what)
{
    return mr_say(a, "replay of %.0f batches with %s: waits for data %s -> %s", a->replayed, what,
                  mr_say_s(a, a->now_s), mr_say_s(a, a->then_s));
}

bool mr_predict_evaluation(struct mr_advice *a, struct mr_draft *d, double workers)
{
    struct mr_pipeline q = mr_pipeline_of_evaluation(a);
    bool in_loop = q.workers < 1;
    q.workers = workers;
    q.ahead = fmax(q.ahead, 2 * workers);
    if (in_loop)
        mr_pipeline_hand_over(a, &q);
    q.keeps = true;
    return predict_draft(a, d, true, &q);
}

double mr_read_once_s(struct mr_advice *a, double readers)
{
    struct mr_prediction *r = prepare(a, false);
    double seconds = 0, limit = r ? mr_pipeline_now(a).storage : 0, ranks = fmax(1, (double)a->x->ranks);
    for (size_t i = 0; r && i < r->rank[0].n; i++) {
        const struct mr_replay_batch *b = &r->rank[0].b[i];
        seconds += (double)b->meta_s + (double)b->read_s * r->read_x;
    }
    if (!r || !r->rank[0].n || !(a->f->epochs >= 1) || !mr_known(a->f->epoch_bytes))
        return NAN;
    double each = seconds / (double)r->rank[0].n * a->steps / a->f->epochs;
    return fmax(each / readers, limit > 0 ? a->f->epoch_bytes / ranks / limit : 0);
}

double mr_predict_s(struct mr_advice *a, const struct mr_pipeline *q)
{
    return predict(a, false, q);
}

/* A loop that loads by itself gets its batches through processes: what that costs was not measured. After the number of
 * workers is set. */
void mr_pipeline_hand_over(const struct mr_advice *a, struct mr_pipeline *q)
{
    double bytes = a->f->delivered_bytes / fmax(1, a->steps * fmax(1, (double)a->x->ranks));
    if (a->own || a->f->team)
        return;
    bytes = mr_known(bytes) ? bytes : mean_bytes(a);
    q->pack_s = bytes / PACK_RATE;
    q->hand_s = HAND_S + bytes / MAP_RATE;
    q->start_s = START_S + START_EACH_S * q->workers;
    q->keeps = true; /* as the snippet has it */
}
