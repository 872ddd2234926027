/* Rules about checkpoints: where they are written, whether training waits, who writes. */
#include "base/common.h"
#include "base/rng.h"
#include "advise/advise_internal.h"
#include "advise/replay.h"
#include "metrics/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHECKPOINT_SHARE 0.03
#define MTBF_S 86400.0 /* between two failures of a job, where nobody knows better */
#define DRAWS 16u
#define SAVES_DRAWN 64u
#define RATE_ERROR 2.0 /* times: of a rate that nobody measured */
#define MODEL_ERROR 0.05
#define BACK_ERROR 0.1 /* of how long writing takes beside training */

struct saves {
    double n, seconds, bytes, interval;
    double writers; /* ranks that save */
    bool beside;    /* other threads save: the seconds block nobody */
};

/* Of the rank that writes most: the others wait for it. */
static struct saves checkpoints_of(const struct mr_advice *a)
{
    struct saves s = {0};
    uint64_t first = UINT64_MAX, last = 0, n0 = 0;
    uint32_t writer = UINT32_MAX;
    for (size_t i = 0; i < a->x->checkpoints; i++) {
        const struct mr_explain_checkpoint *c = &a->x->checkpoint[i];
        if (c->is_load)
            continue;
        s.bytes += (double)c->bytes;
        s.beside |= c->beside;
        s.writers += c->rank != writer; /* they are sorted by rank */
        writer = c->rank;
        if (c->rank != a->x->checkpoint[0].rank)
            continue;
        n0++;
        s.seconds += (double)(c->end_ns - c->start_ns) / 1e9;
        first = MR_MIN(first, c->start_ns);
        last = MR_MAX(last, c->start_ns);
    }
    s.n = (double)n0;
    s.interval = n0 > 1 ? (double)(last - first) / 1e9 / (double)(n0 - 1) : a->run_s;
    return s;
}

static bool is_buffered(const struct mr_advice *a)
{
    for (size_t i = 0; i < a->x->checkpoints; i++)
        if (a->x->checkpoint[i].buffered)
            return true;
    return false;
}

int mr_checkpoint_saves(const struct mr_advice *a, struct mr_replay_save **out, size_t *n)
{
    const struct mr_explanation *x = a->x;
    struct mr_replay_save *s = malloc((x->checkpoints + 1) * sizeof(*s));
    double blocked = 0, bytes = 0;
    uint64_t end = 0, trained = 0;
    for (size_t i = 0; i < x->steps; i++)
        trained = MR_MAX(trained, x->step[i].end_ns);
    *n = 0;
    *out = s;
    if (!s)
        return -ENOMEM;
    for (size_t i = 0; i < x->checkpoints; i++) {
        const struct mr_explain_checkpoint *c = &x->checkpoint[i];
        bytes += c->is_load ? 0 : (double)c->bytes;
        if (c->is_load || c->rank != x->checkpoint[0].rank)
            continue;
        if (*n)
            s[*n - 1].between_s = (double)(c->start_ns - MR_MIN(c->start_ns, end)) / 1e9;
        end = MR_MAX(end, c->end_ns);
        s[(*n)++] =
            (struct mr_replay_save){.blocked_s = (double)(c->end_ns - c->start_ns) / 1e9, .bytes = (double)c->bytes};
        blocked += s[*n - 1].blocked_s;
    }
    if (*n) /* of counted steps: training goes on behind them */
        s[*n - 1].between_s = x->counted_to ? INFINITY : (double)(trained - MR_MIN(trained, end)) / 1e9;
    for (size_t i = 0; i < *n && blocked > 0; i++) /* those of other ranks, and waits for them */
        s[i].blocked_s *= a->checkpoint_s / blocked;
    return 0;
}

/* Of `n` saves drawn at random: the share of the time they block that goes away. */
static double drawn_share(const struct mr_replay_save *s, size_t n, unsigned round, double front_s_per_byte)
{
    struct mr_replay_save drawn[SAVES_DRAWN];
    double all = 0, limit = 2 * (double)round / (DRAWS - 1) - 1;
    size_t m = MR_MIN(n, (size_t)SAVES_DRAWN);
    for (size_t i = 0; i < m; i++) {
        uint64_t random = mr_rng_at(2, MR_RNG_TEST, (uint64_t)round << 32 | i);
        drawn[i] =
            s[i + 1 < m ? (size_t)mr_rng_below(random, n - 1) : n - 1]; /* the end of the run is the last one's */
        all += drawn[i].blocked_s;
    }
    double front = front_s_per_byte * pow(RATE_ERROR, -limit), back = 1 - BACK_ERROR * limit;
    return all > 0 ? 1 - mr_replay_saves(drawn, m, front, back) / all : 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Replays the saves with `rate` for what blocks, and fills in what that saves. Returns what saves still block. */
static double predict_saves(struct mr_advice *a, struct mr_draft *d, double rate)
{
    struct mr_replay_save *s;
    size_t n;
    double shares[DRAWS];
    if (mr_checkpoint_saves(a, &s, &n) || !n) {
        a->failed |= !s;
        free(s);
        return a->checkpoint_s;
    }
    double left = fmin(a->checkpoint_s, mr_replay_saves(s, n, 1 / rate, 1)), saves = a->checkpoint_s - left;
    for (unsigned k = 0; k < DRAWS; k++)
        shares[k] = fmin(1, fmax(0, drawn_share(s, n, k, 1 / rate)));
    qsort(shares, DRAWS, sizeof(*shares), ascending);
    d->f.saves_s = saves;
    d->f.saves_low_s = fmin((1 - MODEL_ERROR) * saves, shares[DRAWS / 10] * a->checkpoint_s);
    d->f.saves_high_s = fmax((1 + MODEL_ERROR) * saves, shares[DRAWS - 1 - DRAWS / 10] * a->checkpoint_s);
    d->f.saves_high_s = fmin(d->f.saves_high_s, a->checkpoint_s);
    free(s);
    return left;
}

static const char *saves_formula(struct mr_advice *a, const struct saves *s, double rate, const char *where,
                                 double left)
{
    return mr_say(a, "replay of %.0f saves with %s at %s in front and the rest beside training: blocked %s -> %s", s->n,
                  where, mr_say_rate(a, rate), mr_say_s(a, a->checkpoint_s), mr_say_s(a, left));
}

bool mr_rule_ck1(struct mr_advice *a, struct mr_draft *d)
{
    struct saves s = checkpoints_of(a);
    const struct mr_explain_facts *f = a->f;
    if (s.n < 1)
        return mr_silent(a, "no checkpoint was saved");
    if (!(s.bytes > 0))
        return mr_silent(a, "how many bytes the checkpoints have is not in the trace");
    double saving = s.beside ? s.seconds : a->checkpoint_s, rate = saving > 0 ? s.bytes / s.writers / saving : NAN;
    if (is_buffered(a))
        return mr_silent(a, "checkpoints go through a burst buffer already");
    double fast = mr_known_or(f->fast_write_bytes_per_s, MR_LOCAL_RATE);
    if (!(rate < fast / 1.5))
        return mr_silent(a, "checkpoints are written at %s by each rank: no local tier is clearly faster",
                         mr_say_rate(a, rate));
    bool blocks = a->checkpoint_s >= CHECKPOINT_SHARE * a->run_s;
    double drain = s.bytes / s.n / s.writers / rate, left = predict_saves(a, d, fast);
    double late = fmax(0, left - s.bytes / s.writers / fast);
    d->f.confidence = mr_known(f->fast_write_bytes_per_s) ? 0.9 : 0.75;
    d->f.potential = !blocks;
    d->f.title =
        mr_say(a, "%.0f %s training for %s (%s), written at %s", s.n,
               s.n == 1 ? "checkpoint blocks" : "checkpoints block", mr_say_s(a, a->checkpoint_s),
               mr_say_share(a, a->run_s > 0 ? a->checkpoint_s / a->run_s : 0), mr_say_rate(a, rate * s.writers));
    d->f.fix = mr_say(a,
                      "burst buffer: save to a local disk or memory, copy to the checkpoint folder while training goes "
                      "on (%.1fx faster)",
                      fast / rate);
    d->f.evidence = mr_say(a, "%s per checkpoint, %s between two, %s to copy one%s", mr_say_bytes(a, s.bytes / s.n),
                           mr_say_s(a, s.interval), mr_say_s(a, drain),
                           late > 0.01 * a->checkpoint_s ? ": it does not end before the next, or the run, does" : "");
    d->f.formula = saves_formula(a, &s, fast, "a local tier", left);
    mr_change_option(a, d, "checkpoint.burst_buffer.folder", NULL, "/tmp/ckpt");
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "torch.distributed.checkpoint.async_save(state, checkpoint_id='/local/ckpt/42')    # then copy");
    mr_change_storage(a, d, MR_TARGET_FILES, "rsync -a /local/ckpt/ CHECKPOINTS/ &");
    return true;
}

bool mr_rule_ck2(struct mr_advice *a, struct mr_draft *d)
{
    struct saves s = checkpoints_of(a);
    double written = 0, blocked = 0;
    for (size_t i = 0; i < a->x->checkpoints; i++) {
        const struct mr_explain_checkpoint *c = &a->x->checkpoint[i];
        if (c->is_load || c->write_ns == MR_TIME_UNKNOWN)
            continue;
        blocked += (double)(c->end_ns - c->start_ns);
        written += (double)c->write_ns + (c->fsync_ns == MR_TIME_UNKNOWN ? 0 : (double)c->fsync_ns);
    }
    if (s.n < 1)
        return mr_silent(a, "no checkpoint was saved");
    if (is_buffered(a))
        return mr_silent(a, "checkpoints go through a burst buffer already");
    if (s.beside)
        return mr_silent(a, "checkpoints are written beside training already");
    if (a->checkpoint_s < CHECKPOINT_SHARE * a->run_s)
        return mr_silent(a, "checkpoints block %s of the time",
                         mr_say_share(a, a->run_s > 0 ? a->checkpoint_s / a->run_s : 0));
    if (!(written >= 0.5 * blocked))
        return mr_silent(a, "writing is %s of the time that checkpoints block",
                         mr_say_share(a, blocked > 0 ? written / blocked : NAN));
    double left = predict_saves(a, d, MR_COPY_RATE);
    d->f.confidence = 0.8;
    d->weight = a->own ? 0.7 : 1.1; /* of other programs: a line of code, no other place to write to */
    d->f.title = mr_say(a, "training stands still while checkpoints are written: %s of %s blocked",
                        mr_say_s(a, written / 1e9 / s.writers), mr_say_s(a, a->checkpoint_s));
    bool torch = a->f->framework && !strcmp(a->f->framework, "pytorch");
    d->f.fix = mr_say(a, "snapshot the state into memory, and write it while training goes on%s",
                      torch ? ": millrace.checkpoint.Saver" : "");
    d->f.evidence = mr_say(a, "%.0f checkpoints of %s, writing %s of the time", s.n, mr_say_bytes(a, s.bytes / s.n),
                           mr_say_share(a, written / blocked));
    d->f.formula = saves_formula(a, &s, MR_COPY_RATE, "a copy in memory", left);
    mr_change_option(a, d, "checkpoint.engine", "sync", "async");
    mr_change_argument(a, d, MR_TARGET_SAVE, "saver", MR_TARGET_SAVE, "millrace.checkpoint.Saver");
    mr_change_code(a, d, MR_IDIOM_TENSORFLOW, "tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)");
    return true;
}

/* Where writing beside training would not end before the next save, only fewer saves help. */
bool mr_rule_ck4(struct mr_advice *a, struct mr_draft *d)
{
    struct saves s = checkpoints_of(a);
    if (s.n < 2)
        return mr_silent(a, "fewer than two checkpoints were saved");
    if (a->checkpoint_s < CHECKPOINT_SHARE * a->run_s)
        return mr_silent(a, "checkpoints block %s of the time", mr_say_share(a, a->checkpoint_s / a->run_s));
    double cost = a->checkpoint_s / s.n, between = fmax(0, s.interval - cost), young, lost;
    if (between >= cost && !s.beside)
        return mr_silent(a, "%s between two saves of %s: one can be written while training goes on (CK1, CK2)",
                         mr_say_s(a, between), mr_say_s(a, cost));
    double best = mr_checkpoint_interval(cost, MTBF_S, &young, &lost);
    d->f.saves_s = a->checkpoint_s * (1 - fmin(1, s.interval / best));
    d->f.saves_low_s = 0.75 * d->f.saves_s;
    d->f.saves_high_s = a->checkpoint_s;
    d->f.confidence = 0.8;
    d->f.title = mr_say(a, "a checkpoint of %s after every %s of training: they take %s of the time", mr_say_s(a, cost),
                        mr_say_s(a, between), mr_say_share(a, a->checkpoint_s / a->run_s));
    d->f.fix = mr_say(a, "save less often: with one failure a day, every %s loses least", mr_say_s(a, best));
    d->f.evidence = mr_say(a,
                           "%.0f checkpoints, one every %s; written beside training, each would end after the next "
                           "was due",
                           s.n, mr_say_s(a, s.interval));
    d->f.formula = mr_say(a, "%s x (1 - %s / %s), the interval by Daly for a cost of %s and a failure in 24 h",
                          mr_say_s(a, a->checkpoint_s), mr_say_s(a, s.interval), mr_say_s(a, best), mr_say_s(a, cost));
    mr_change_note(mr_change_option(a, d, "checkpoint.steps_between_checkpoints", NULL, "1000"), "or more");
    mr_change_code(a, d, MR_IDIOM_PYTORCH, "if step % 1000 == 0: save(...)    # or more");
    return true;
}

bool mr_rule_ck3(struct mr_advice *a, struct mr_draft *d)
{
    struct saves s = checkpoints_of(a);
    double one = 0, ranks = (double)a->x->ranks;
    for (size_t i = 0; i < a->x->checkpoints; i++)
        if (!a->x->checkpoint[i].is_load && a->x->checkpoint[i].rank == 0)
            one += (double)a->x->checkpoint[i].bytes;
    if (s.n < 1)
        return mr_silent(a, "no checkpoint was saved");
    if (ranks < 2)
        return mr_silent(a, "one rank");
    if (!(one >= 0.9 * s.bytes) || !(s.bytes > 0))
        return mr_silent(a, "rank 0 writes %s of the checkpoints", mr_say_share(a, s.bytes > 0 ? one / s.bytes : NAN));
    double lost = s.seconds; /* rank 0 writes, the others wait: for all of them */
    if (lost < CHECKPOINT_SHARE * a->run_s)
        return mr_silent(a, "checkpoints take %s of the time", mr_say_share(a, a->run_s > 0 ? lost / a->run_s : 0));
    double writers = fmin(ranks, mr_known_or(a->f->knee, 4));
    d->f.saves_s = lost * (1 - 1 / writers);
    d->f.saves_low_s = 0.3 * d->f.saves_s;
    d->f.saves_high_s = lost * (1 - 1 / ranks);
    d->f.confidence = 0.6;
    d->f.title = mr_say(a, "rank 0 writes all checkpoints (%s) while %s", mr_say_bytes(a, s.bytes),
                        ranks > 2 ? mr_say(a, "%.0f ranks wait", ranks - 1) : "the other one waits");
    d->f.fix = "a sharded checkpoint: every rank writes its part";
    d->f.evidence =
        mr_say(a, "%s of %s by rank 0, in %s", mr_say_bytes(a, one), mr_say_bytes(a, s.bytes), mr_say_s(a, s.seconds));
    d->f.formula = mr_say(a, "%s x (1 - 1 / %.0f writers)", mr_say_s(a, lost), writers);
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "torch.distributed.checkpoint.save(state_dict, checkpoint_id=path)    # each rank its shard");
    return true;
}
