/* The verdict: one class and three lines (what, why, best fix), from the findings and the split of the time.
 *
 * V1 A run in which nothing costs 5 % (checkpoints: 3 %) is healthy, whatever patterns it shows.
 * V2 What cannot be known is not judged: without steps, with ranks or a good part of the events missing, the class is
 *    "incomplete", and what is missing is said.
 * V3 Bandwidth, decoding, asking too late and too few workers have a sentence of their own: their fixes differ. */
#include "base/common.h"
#include "base/strbuf.h"
#include "advise/advise_internal.h"

#include <errno.h>
#include <string.h>

#define CHECKPOINT_SHARE 0.03
#define BARRIER_SHARE 0.05
#define LOGGING_SHARE 0.05
#define STARTUP_SHARE 0.25
#define STARTUP_LEAST_S 60 /* of start-up: a trial run of a minute or two always has a good part of it */
#define STEPS_LEAST 3      /* of a traced program: the first always waits, and one more is chance */
#define COUNTED_SHARE 0.02 /* of the run in I/O calls: a bad pattern in less has no cost */
#define LOST_SHARE 0.05    /* of the events: with more missing, sums are wrong */
#define HELD_SHARE 0.01    /* of the run at barriers behind waits for data: less is not worth words */

/* Of a cause: beyond the first step of the run, in which workers start and everybody waits. */
static double steady_s(const struct mr_explanation *x, unsigned cause)
{
    double sum = (double)x->stall[cause], first = 0;
    for (size_t i = 0; i < x->steps; i++)
        if (i == 0 || x->step[i].rank != x->step[i - 1].rank)
            first += (double)x->step[i].stall[cause];
    return fmax(0, sum - first / fmax(1, (double)x->ranks)) / 1e9;
}

static uint8_t largest_cause(const struct mr_explanation *x)
{
    unsigned best = MR_STALL_UNKNOWN;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        if (steady_s(x, c) > steady_s(x, best) || (steady_s(x, c) == steady_s(x, best) && x->stall[c] > x->stall[best]))
            best = c;
    return (uint8_t)best;
}

static const char *blind_spot(uint8_t blind)
{
    switch (blind) {
    case MR_BLIND_ASLEEP:
        return "the loop's wait time: it blocks where the tracer cannot see (e.g. a condition variable)";
    case MR_BLIND_ASYNC:
        return "whether the device was idle while the loop loaded: it computes beside the loop, which waits for it now "
               "and then only";
    case MR_BLIND_DECODE:
        return "where loading ends: between reads and the backward pass the loop computes, and that may be decoding";
    default: return "the loop's wait time: it gets its batches from a thread, in a way that the tracer cannot see";
    }
}

/* V2. NULL: all that is needed is there. */
static const char *missing(struct mr_advice *a)
{
    const struct mr_explain_trust *t = &a->x->trust;
    double all = (double)(t->events + t->lost + t->gone);
    if (!a->f->has_steps)
        return "training steps: no waits for data can be computed";
    if (a->steps < STEPS_LEAST && !a->f->own_run)
        return mr_say(a, "more training steps: %.0f %s too few to judge by", a->steps, a->steps < 1.5 ? "is" : "are");
    if (t->blind)
        return blind_spot(t->blind);
    if (t->ranks_missing)
        return mr_say(a, "%u %s of the job", t->ranks_missing, mr_plural(t->ranks_missing, "rank", "ranks"));
    if (t->cut && t->recorded > t->events)
        return mr_say(a, "the rest of the trace: %s of at least %s events", mr_say_count(a, (double)t->events),
                      mr_say_count(a, (double)t->recorded));
    if ((t->cut && !t->gone) || t->unfinished) /* nobody knows how much it is */
        return mr_say(a, "the rest of the trace, behind %s %s", mr_say_count(a, (double)t->events),
                      mr_plural(t->events, "event", "events"));
    if (t->clock_jump)
        return "times that can be relied on: the clock jumped by more than an hour";
    if (all > 0 && (double)(t->lost + t->gone) > LOST_SHARE * all)
        return mr_say(a, "%s events that were lost", mr_say_count(a, (double)(t->lost + t->gone)));
    return NULL;
}

/* Of the run: time lost to ranks that came last. Barriers alone cost time, too, that no balance would give back. */
static double lost_to_others(const struct mr_advice *a)
{
    double lost = 0;
    for (size_t i = 0; i < a->x->culprits; i++)
        lost += (double)a->x->culprit[i].lost_ns / 1e9;
    return a->run_s > 0 ? lost / a->run_s : 0;
}

/* The rank that the others wait for, if that costs enough and it is because of `class`: their waits are for the same
 * thing then. NULL: none. */
static const struct mr_explain_culprit *held_up_by(const struct mr_advice *a, unsigned class)
{
    const struct mr_explain_culprit *c = mr_straggler(a);
    return c && lost_to_others(a) >= BARRIER_SHARE && mr_culprit_class(c) == class ? c : NULL;
}

/* Waits for data of all, with those for ranks that waited for data. */
static double waited_s(const struct mr_advice *a)
{
    return a->waited_s + a->held_s;
}

static uint8_t class_of(const struct mr_advice *a, double stall_share)
{
    const struct mr_explanation *x = a->x;
    double run = a->run_s, checkpoint = a->checkpoint_s / run, barrier = a->imbalance_s / run;
    double whole = (double)x->duration_ns / 1e9, logging = mr_pool_s(a, MR_POOL_LOGGING) / run;
    if (!a->waits)
        stall_share = 0;
    if (stall_share >= MR_STARVED && stall_share >= checkpoint && stall_share >= barrier)
        return MR_VERDICT_INPUT;
    if (checkpoint >= CHECKPOINT_SHARE && checkpoint >= barrier)
        return MR_VERDICT_CHECKPOINT;
    if (held_up_by(a, MR_TIME_CHECKPOINT))
        return MR_VERDICT_CHECKPOINT;
    if (barrier >= BARRIER_SHARE && lost_to_others(a) >= BARRIER_SHARE)
        return MR_VERDICT_IMBALANCE;
    if (stall_share >= MR_STARVED)
        return MR_VERDICT_INPUT;
    if (logging >= LOGGING_SHARE)
        return MR_VERDICT_LOGGING;
    bool starts = a->startup_s >= STARTUP_LEAST_S && a->startup_s >= STARTUP_SHARE * whole;
    return starts ? MR_VERDICT_STARTUP : MR_VERDICT_HEALTHY;
}

/* "Rank 1 <did something> 61 % of the time (2.29 s of 3.79 s), and the others waited 2.09 s for it." */
static const char *held_up_line(struct mr_advice *a, const struct mr_explain_culprit *c, const char *did)
{
    const struct mr_explain_rank *r = &a->x->rank[c->rank];
    double took = (double)r->ns[mr_culprit_class(c)] / 1e9, train = (double)r->train_ns / 1e9;
    return mr_say(a, "Rank %d %s %s of the time (%s of %s), and the others waited %s for it.", r->rank, did,
                  mr_say_share(a, took / train), mr_say_s(a, took), mr_say_s(a, train),
                  mr_say_s(a, (double)c->lost_ns / 1e9));
}

static const char *input_line(struct mr_advice *a, double share, const char *of)
{
    if (held_up_by(a, MR_TIME_STALL))
        return mr_say(a, "Input-bound. %s", held_up_line(a, held_up_by(a, MR_TIME_STALL), "waited for data"));
    const char *line = mr_say(a, "Input-bound. Training waited for data %s of the time %s", mr_say_share(a, share), of);
    return a->held_s < HELD_SHARE * a->run_s
               ? mr_say(a, "%s.", line)
               : mr_say(a, "%s, and %s for ranks that waited for data.", line, mr_say_share(a, a->held_s / a->run_s));
}

static const char *headline(struct mr_advice *a, double share, double seconds)
{
    const char *of = mr_say(a, "(%s of %s%s)", mr_say_s(a, seconds), mr_say_s(a, a->run_s),
                            a->x->ranks > 1 ? ", mean of ranks" : "");
    switch (a->x->verdict.verdict) {
    case MR_VERDICT_INPUT: return input_line(a, share, of);
    case MR_VERDICT_CHECKPOINT:
        if (held_up_by(a, MR_TIME_CHECKPOINT))
            return mr_say(a, "Checkpoint-bound. %s",
                          held_up_line(a, held_up_by(a, MR_TIME_CHECKPOINT), "saved checkpoints"));
        return mr_say(a, "Checkpoint-bound. Saving blocked training %s of the time (%s of %s).",
                      mr_say_share(a, a->checkpoint_s / a->run_s), mr_say_s(a, a->checkpoint_s), mr_say_s(a, a->run_s));
    case MR_VERDICT_IMBALANCE:
        return mr_say(a, "Imbalance-bound. Ranks waited for other ranks %s of the time (%s of %s).",
                      mr_say_share(a, a->imbalance_s / a->run_s), mr_say_s(a, a->imbalance_s), mr_say_s(a, a->run_s));
    case MR_VERDICT_LOGGING:
        return mr_say(a, "Logging-bound. Training wrote and read its own logs and settings %s of the time (%s of %s).",
                      mr_say_share(a, mr_pool_s(a, MR_POOL_LOGGING) / a->run_s),
                      mr_say_s(a, mr_pool_s(a, MR_POOL_LOGGING)), mr_say_s(a, a->run_s));
    case MR_VERDICT_STARTUP:
        return mr_say(a, "Start-up-bound. The first step began after %s of %s.", mr_say_s(a, a->startup_s),
                      mr_say_s(a, (double)a->x->duration_ns / 1e9));
    default:
        return mr_say(a, "Healthy. Training waited for data %s of the time %s%s.", mr_say_share(a, share), of,
                      share >= MR_STARVED ? ", nearly all for the first batch" : "");
    }
}

/* Waiting for a server: its answers, or the bytes behind them. */
static const char *why_network(struct mr_advice *a, double network)
{
    const struct mr_explain_facts *f = a->f;
    bool objects = f->objects.client && f->peer && f->objects.peer && !strcmp(f->peer, f->objects.peer);
    const char *took =
        mr_say(a, "Waiting for %s%s%s took longest: %s of the %s waited",
               objects ? mr_say(a, "object storage (%s)", f->objects.client) : "the network", f->peer ? ", " : "",
               f->peer ? f->peer : "", mr_say_s(a, network), mr_say_s(a, waited_s(a)));
    if (!mr_known(f->net_answer_s) || !(f->net_requests > 0))
        return mr_say(a, "%s.", took);
    if (f->net_answer_s > f->net_transfer_s)
        return mr_say(a,
                      "%s, most of it until the first bytes of an answer (%s each, %s requests): the server or a "
                      "rate limit, not bandwidth.",
                      took, mr_say_s(a, f->net_answer_s / f->net_requests), mr_say_count(a, f->net_requests));
    return mr_say(a, "%s, most of it for transfer: %s per connection.", took,
                  mr_say_rate(a, f->net_bytes / f->net_transfer_s));
}

/* V3 */
static const char *why_reads(struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    double limit = mr_storage_limit(a), meta = mr_stall_s(a, MR_STALL_METADATA);
    double network = mr_stall_s(a, MR_STALL_NETWORK);
    if (network > 0.5 * a->read_s)
        return why_network(a, network);
    /* Reads that no call shows (io_uring, an emulated device) do not count as busy. */
    bool busy = mr_known(f->storage_busy) && f->storage_busy * a->run_s > 0.5 * a->read_s;
    if (mr_storage_is_limit(a) && limit >= f->demand_bytes_per_s)
        return mr_say(a, "The storage is near its limit: it gives %s, the accelerators ask for %s.",
                      mr_say_rate(a, limit), mr_say_rate(a, f->demand_bytes_per_s));
    if (mr_storage_is_limit(a))
        return mr_say(a, "The storage is the limit: %s, of %s that the accelerators ask for.", mr_say_rate(a, limit),
                      mr_say_rate(a, f->demand_bytes_per_s));
    if (meta > 0.5 * a->read_s)
        return mr_say(a, "Opening and looking up files took longest: %s of the %s waited.", mr_say_s(a, meta),
                      mr_say_s(a, waited_s(a)));
    return mr_say(a, "Reads took too long%s%s: %s of the %s waited.",
                  mr_known(f->workers) && f->workers >= 1
                      ? mr_say(a, " for %.0f %s", f->workers, f->workers > 1.5 ? "readers" : "reader")
                      : "",
                  busy ? mr_say(a, " (storage %s busy)", mr_say_share(a, f->storage_busy)) : "", mr_say_s(a, a->read_s),
                  mr_say_s(a, waited_s(a)));
}

static const char *why_late(struct mr_advice *a)
{
    return mr_known(a->f->storage_busy)
               ? mr_say(a, "Storage was %s busy: batches were requested too late, not read too slowly.",
                        mr_say_share(a, a->f->storage_busy))
               : "Readers were idle while nobody had asked for the batch: batches were requested too late.";
}

/* As the table of the report has it, evaluation's waits among them, and the barriers behind. */
static double table_s(const struct mr_advice *a, unsigned cause)
{
    return (double)a->x->stall[cause] / 1e9 + a->held_cause_s[cause];
}

static const char *why_input(struct mr_advice *a)
{
    double reads = 0, cpu = 0, all = 0;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++) {
        all += steady_s(a->x, c);
        reads += MR_POOL_READ & (1u << c) ? steady_s(a->x, c) : 0;
        cpu += MR_POOL_CPU & (1u << c) ? steady_s(a->x, c) : 0;
    }
    if (a->evaluation_s > 0.5 * waited_s(a))
        return mr_say(a, "%s of the %s waited are evaluation's: its loader needs workers, or more of them.",
                      mr_say_s(a, a->evaluation_s), mr_say_s(a, waited_s(a)));
    double worker = steady_s(a->x, MR_STALL_WORKER), copy = steady_s(a->x, MR_STALL_COPY);
    double late = steady_s(a->x, MR_STALL_NOT_STARTED), most = fmax(fmax(reads, cpu), fmax(fmax(late, worker), copy));
    double queued = steady_s(a->x, MR_STALL_CPU);
    most = fmax(most, queued);
    if (!(most > 0) || steady_s(a->x, MR_STALL_UNKNOWN) > 0.5 * all)
        return "The trace does not tell what the batches were held up by.";
    if (most == reads || (most == late && reads > cpu && mr_storage_is_limit(a))) /* idle: for want of bytes */
        return why_reads(a);
    if (most == late)
        return why_late(a);
    if (most == copy)
        return mr_say(a, "Copies to the accelerator took longest: %s of the %s waited.",
                      mr_say_s(a, table_s(a, MR_STALL_COPY)), mr_say_s(a, waited_s(a)));
    if (most == queued)
        return mr_say(a, "Readers were ready to run and had no free CPU: %s of the %s waited.",
                      mr_say_s(a, table_s(a, MR_STALL_CPU)), mr_say_s(a, waited_s(a)));
    if (most == worker)
        return mr_say(a,
                      "%s held up by something else than reading or decoding (sleeping, a lock): %s of the %s waited.",
                      a->f->workers < 1 ? "Loading was" : "Workers were", mr_say_s(a, table_s(a, MR_STALL_WORKER)),
                      mr_say_s(a, waited_s(a)));
    double queue = steady_s(a->x, MR_STALL_QUEUE);
    if (queue > 0.5 * cpu)
        return mr_say(
            a, "Collating batches and passing them on took longest: %s of the %s waited; more storage will not help.",
            mr_say_s(a, table_s(a, MR_STALL_QUEUE)), mr_say_s(a, waited_s(a)));
    return mr_say(a, "Decoding and transforming took longest: %s of the %s waited; more storage will not help.",
                  mr_say_s(a, a->cpu_s), mr_say_s(a, waited_s(a)));
}

static const char *why_ranks(struct mr_advice *a)
{
    const struct mr_explain_culprit *c = a->x->culprits ? &a->x->culprit[0] : NULL;
    return c ? mr_say(a, "Rank %d came last in %s steps and cost the others %s: it %s.", mr_culprit_rank(a, c),
                      mr_say_count(a, (double)c->steps), mr_say_s(a, (double)c->lost_ns / 1e9), mr_culprit_does(a, c))
             : NULL;
}

/* Why batches came late; the first one of a run apart, where that is a good part. */
static const char *why_waits(struct mr_advice *a)
{
    const char *text = why_input(a);
    double first = (double)a->x->first_ns / 1e9;
    if (a->imbalance_s >= BARRIER_SHARE * a->run_s && lost_to_others(a) >= BARRIER_SHARE && mr_straggler(a) &&
        !held_up_by(a, MR_TIME_STALL))
        text = mr_say(a, "%s %s", why_ranks(a), text);
    return first > 0.3 * a->waited_s && a->evaluation_s < 0.5 * a->waited_s
               ? mr_say(a, "%s Of the waits, %s are for the first batch.", text, mr_say_s(a, first))
               : text;
}

static const char *why(struct mr_advice *a)
{
    const struct mr_explanation *x = a->x;
    switch (x->verdict.verdict) {
    case MR_VERDICT_INPUT: return why_waits(a);
    case MR_VERDICT_IMBALANCE: return why_ranks(a);
    case MR_VERDICT_HEALTHY:
        return mr_known(a->f->headroom) && a->f->headroom > 1
                   ? mr_say(a, "Data would keep up with compute up to %.3gx faster.", a->f->headroom)
                   : NULL;
    default: return NULL;
    }
}

/* The first finding, and the second where it adds a good part. */
static const char *best_fix(struct mr_advice *a)
{
    const struct mr_explanation *x = a->x;
    if (!x->findings || x->finding[0].severity == MR_SEVERITY_NOTE)
        return NULL;
    const struct mr_finding *f = &x->finding[0], *g = x->findings > 1 ? &x->finding[1] : NULL;
    double whole = fmax((double)x->duration_ns / 1e9, a->run_s), saves = f->saves_s,
           spread = (f->saves_high_s - f->saves_low_s) / 2;
    if (g && (g->severity < MR_SEVERITY_MAJOR || strlen(f->fix) + strlen(g->fix) > 120))
        g = NULL;
    if (g && mr_finding_is_bound(g))
        g = NULL;
    if (g && !strcmp(f->id, "PF1") && !strncmp(g->id, "TH", 2) && a->f->workers < 1)
        g = NULL; /* loading ahead means workers, and how many is said */
    saves += g ? g->adds_s : 0;
    if (mr_finding_is_bound(f)) {
        const char *least = f->saves_low_s > 0.05 * f->saves_s
                                ? mr_say(a, "at least -%.0f %%", 100 * f->saves_low_s / whole)
                                : "perhaps nothing";
        bool runs = f->command && a->own; /* of other programs somebody has to change the program first */
        return mr_say(a, "Worth a trial (%s): %s.  At best %s -> %s (-%.0f %%), %s: not tried%s%s", f->id, f->fix,
                      mr_say_s(a, whole), mr_say_s(a, whole - f->saves_s), 100 * f->saves_s / whole, least,
                      runs ? ".  " : "", runs ? f->command : "");
    }
    if (!strcmp(f->id, "TH4"))
        return mr_say(a, "No setting gets more (TH4): %s.  At twice the rate %s -> %s (-%.0f %%)", f->fix,
                      mr_say_s(a, whole), mr_say_s(a, whole - f->saves_s), 100 * f->saves_s / whole);
    const char *fix = mr_say(a, "Best fix (%s%s%s): %s%s%s.", f->id, g ? " + " : "", g ? g->id : "", f->fix,
                             g ? "; " : "", g ? g->fix : "");
    return mr_say(a, "%s  Predicted %s -> %s (-%.0f %% +/- %.0f)", fix, mr_say_s(a, whole), mr_say_s(a, whole - saves),
                  100 * saves / whole, 100 * spread / whole);
}

/* Of stdio alone: standard streams are left out, so a program without files has none. */
static bool has_counters(const struct mr_counters *c)
{
    bool any = c->has_stdio && !c->has_posix && !c->has_mpiio;
    for (unsigned i = 0; i < MR_COUNTER_COUNT && (c->has_posix || c->has_mpiio || c->has_stdio); i++)
        any |= mr_known(c->value[i]);
    return any;
}

/* Counters tell how calls were made, not who waited for them: no class but "io-bound" and "healthy". */
static int counters_verdict(struct mr_advice *a)
{
    struct mr_verdict *v = &a->x->verdict;
    const struct mr_counters *c = a->x->counters;
    double calls = mr_pool_s(a, MR_POOL_CALLS), run = c->run_s;
    /* Logs without times cannot show what a pattern costs. */
    bool costs = a->x->findings && (!(calls > 0) || calls >= COUNTED_SHARE * run);
    *v = (struct mr_verdict){.verdict = costs ? MR_VERDICT_IO : MR_VERDICT_HEALTHY,
                             .stall_share = NAN,
                             .stall_s = NAN,
                             .storage_limit_bytes_per_s = NAN};
    bool cut = !mr_trust_complete(&a->x->trust);
    if (cut || !(run > 0) || !has_counters(c)) {
        v->verdict = MR_VERDICT_INCOMPLETE;
        v->missing = cut ? "the rest of the log" : run > 0 ? "counters of POSIX, MPI-IO or stdio" : "the run time";
        v->line[0] = mr_say(a, "Incomplete. Missing: %s.", v->missing);
    } else {
        const char *part =
            mr_say(a, "%s of the run (%s of %s)", mr_say_share(a, calls / run), mr_say_s(a, calls), mr_say_s(a, run));
        v->line[0] = costs ? mr_say(a, "I/O calls took a process %s; %s", part, a->x->finding[0].title)
                     : a->x->findings
                         ? mr_say(a, "Healthy. I/O calls took a process %s; a pattern without a cost: %s", part,
                                  a->x->finding[0].title)
                         : mr_say(a, "Healthy. I/O calls took a process %s, and show no pattern that costs.", part);
        v->line[1] = "Counters only: nobody can tell from them how long the program waited.";
        v->line[2] = costs ? mr_say(a, "Best fix (%s): %s.", a->x->finding[0].id, a->x->finding[0].fix) : NULL;
    }
    return a->failed ? -ENOMEM : 0;
}

int mr_advise_verdict(struct mr_advice *a)
{
    if (a->x->counters && !a->f->has_steps)
        return counters_verdict(a);
    struct mr_verdict *v = &a->x->verdict;
    double idle = a->f->accelerator_idle_share;
    *v = (struct mr_verdict){.cause = largest_cause(a->x),
                             .stall_s = a->waited_s,
                             .stall_share = a->waited_share,
                             .evaluation_s = a->evaluation_s,
                             .storage_limit_bytes_per_s = mr_storage_is_limit(a) ? mr_storage_limit(a) : NAN};
    /* Where the accelerator was watched, only its own idle time counts: queued work hides waits of the host. */
    double share = mr_known(idle) ? fmin(idle, a->waited_share) : a->waited_share;
    v->missing = missing(a);
    v->verdict =
        v->missing ? MR_VERDICT_INCOMPLETE : class_of(a, fmin(share + a->held_s / a->run_s, a->waited_steady_share));
    if (v->verdict == MR_VERDICT_HEALTHY && a->f->ended_early) { /* what was seen of it was; the rest nobody knows */
        v->verdict = MR_VERDICT_INCOMPLETE;
        v->missing = mr_say(a, "the rest of the run: %s", a->f->ended_early);
    }
    if (v->missing)
        v->line[0] = mr_say(a, "Incomplete. Missing: %s.", v->missing);
    else
        v->line[0] = headline(a, share, share * a->run_s);
    v->line[1] = v->missing ? (a->waits ? why_input(a) : NULL) : why(a);
    v->line[2] = best_fix(a);
    return a->failed ? -ENOMEM : 0;
}
