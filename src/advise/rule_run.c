/* Rules about the course of a run: starts of epochs, tails, stragglers, noisy neighbours, the software between storage
 * and batch, the harness itself. */
#include "base/common.h"
#include "base/strbuf.h"
#include "advise/advise_internal.h"

#include <stdlib.h>
#include <string.h>

#define ITERATORS_LEAST 5 /* epochs of a batch or two */

bool mr_rule_th3(struct mr_advice *a, struct mr_draft *d)
{
    struct mr_draft other = *d;
    double req = a->x->read_sizes.top ? (double)a->x->read_sizes.top_size[0] : NAN;
    if (!mr_known(req) || req >= 1048576)
        return mr_silent(a, "reads of %s: no trade-off between size and number", mr_say_bytes(a, req));
    if (!mr_rule_th1(a, &other))
        return mr_silent(a, "more readers are no advice here (TH1: %s)", a->why);
    d->f.confidence = 0.3;
    d->f.potential = other.f.potential;
    d->f.title =
        mr_say(a, "reads of %s by few readers: larger ones or more of them? Only a trial tells", mr_say_bytes(a, req));
    d->f.fix = "try request size x readers on a small part of the data, take the least that reaches the best rate";
    d->f.evidence = other.f.evidence;
    d->f.formula = "the best cell of the trial against the present one";
    d->f.command =
        mr_try_run(a, "--sweep reader.read_threads=1,4,16 --sweep reader.transfer_size=262144,1048576,4194304");
    return true;
}

bool mr_rule_ev1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double workers = f->evaluation_workers, load = f->evaluation_load_s, compute = f->evaluation_compute_s;
    if (a->evaluation_s < MR_STARVED * a->run_s)
        return mr_silent(a, "waits of evaluation take %s of the time", mr_say_share(a, a->evaluation_s / a->run_s));
    d->f.confidence = 0.7;
    d->f.title = mr_say(a, "evaluation waits %s for its data", mr_say_s(a, a->evaluation_s));
    d->f.evidence = mr_say(a, "of %s waited for data in all", mr_say_s(a, a->waited_s));
    if (mr_known(workers) && mr_known(load) && mr_known(compute) && load > 0) {
        double room = f->evaluation_cpu < 0.5 ? 8 : mr_known_or(f->cpus_per_rank, 8); /* asleep: CPUs are no limit */
        double most = fmax(fmax(1, workers), room);
        double then = fmin(most, fmax(workers + 1, ceil(load / fmax(compute, load / most))));
        (void)mr_predict_evaluation(a, d, then);
        d->f.title = mr_say(a, "%s: %.0f %s, a batch takes one %s", d->f.title, workers,
                            workers > 0.5 && workers < 1.5 ? "worker" : "workers", mr_say_s(a, load));
        d->f.fix = mr_say(a, "the evaluation's loader: workers %.0f -> %.0f", workers, then);
        d->f.formula = mr_replay_formula(a, mr_say(a, "%.0f workers", then));
        mr_change_argument(a, d, MR_TARGET_EVALUATION, "num_workers", mr_say_number(a, workers),
                           mr_say_number(a, then));
        mr_change_argument(a, d, MR_TARGET_EVALUATION, "persistent_workers", NULL, "true");
    } else {
        d->f.fix = "give the evaluation's loader workers, or more of them, or evaluate less often";
        d->f.formula = "unknown: how long a batch of it takes to load is not in the trace";
    }
    mr_change_argument(a, d, MR_TARGET_EVALUATED, "num_parallel_calls", NULL, "AUTOTUNE");
    mr_change_argument(a, d, MR_TARGET_EVALUATED, "prefetch", NULL, "AUTOTUNE");
    return true;
}

/* next(iter(loader)) in the loop: an iterator, with workers of its own, for each batch or two. What it costs is all of the
 * wait but for what a batch takes, at most. */
static bool iterator_each_time(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double load = mr_known_or(f->batch_load_s, 0) * a->steps, most = fmax(0, a->stall_s - load);
    if (!(f->epochs >= ITERATORS_LEAST) || !(f->epochs >= 0.5 * a->steps) || !(f->workers >= 1) || f->team || a->own ||
        !a->starved)
        return false;
    d->f.saves_s = d->f.saves_high_s = most;
    d->f.saves_low_s = 0.5 * most;
    d->f.confidence = 0.8;
    d->weight = 1.1;
    d->f.title =
        mr_say(a,
               "an iterator of the loader is made for every batch or two (%.0f for %.0f steps): its workers are "
               "started and ended each time",
               f->epochs, a->steps);
    d->f.fix = "make the iterator once, and take all batches of an epoch from it";
    d->f.evidence = mr_say(a, "%s waited in all, a batch takes a worker %s", mr_say_s(a, a->stall_s),
                           mr_say_s(a, mr_known_or(f->batch_load_s, 0)));
    d->f.formula = "not replayed: the waits without what the batches take, at most; half of it at least";
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "batches = iter(loader)    # once; then next(batches) in each step, a new one behind StopIteration");
    return true;
}

bool mr_rule_ep1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double more = f->first_step_s - f->step_s;
    if (iterator_each_time(a, d))
        return true;
    if (!(f->epochs >= 2) || !mr_known(more))
        return mr_silent(a, "fewer than two epochs");
    if (f->persistent)
        return mr_silent(a, "workers live on from epoch to epoch");
    if (f->first_step_s <= 3 * f->step_s)
        return mr_silent(a, "the first step of an epoch takes %s, others %s", mr_say_s(a, f->first_step_s),
                         mr_say_s(a, f->step_s));
    struct mr_pipeline q = mr_pipeline_now(a);
    q.keeps = true;
    bool replayed = a->starved && mr_predict(a, d, &q);
    if (!replayed) {
        d->f.saves_s = more * (f->epochs - 1);
        d->f.saves_low_s = 0.5 * d->f.saves_s;
        d->f.saves_high_s = d->f.saves_s;
    }
    d->f.confidence = 0.85;
    d->weight = 1.1;
    d->f.title = mr_say(a, "each epoch begins with a step of %s, others take %s: workers or an index are set up anew",
                        mr_say_s(a, f->first_step_s), mr_say_s(a, f->step_s));
    d->f.fix = "keep workers and their state between epochs";
    d->f.evidence = mr_say(a, "%.0f epochs", f->epochs);
    d->f.formula = replayed ? mr_replay_formula(a, "workers that start once")
                            : mr_say(a, "not replayed: (%s - %s) x %.0f epochs behind the first",
                                     mr_say_s(a, f->first_step_s), mr_say_s(a, f->step_s), f->epochs - 1);
    mr_change_argument(a, d, MR_TARGET_LOADER, "persistent_workers", "false", "true");
    mr_change_code(a, d, MR_IDIOM_TENSORFLOW, "ds.repeat(epochs)    # one iterator over all epochs");
    return true;
}

bool mr_rule_fm2(struct mr_advice *a, struct mr_draft *d)
{
    struct mr_draft other = *d;
    const char *format = a->f->format;
    if (!format || (strcmp(format, "hdf5") != 0 && strcmp(format, "npz") != 0 && strcmp(format, "npy") != 0))
        return mr_silent(a, "the data are not HDF5 or NPZ");
    if (!(mr_known_or(a->f->prefetch, 1) < 1))
        return mr_silent(a, "batches are read ahead already");
    if (!mr_rule_pf1(a, &other))
        return mr_silent(a, "reading ahead is no advice here (PF1: %s)", a->why);
    d->f = other.f;
    d->f.id = "FM2";
    d->weight = 0.7; /* PF1 is the same advice for any format */
    d->f.title = mr_say(a, "%s files are read without read-ahead, as the library does it", format);
    d->f.fix = "read ahead with a loader of your own choice, or tell the kernel: posix_fadvise(POSIX_FADV_WILLNEED)";
    mr_change_drop(d, MR_IDIOM_PYTORCH);
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)    # for the next file, before it is needed");
    return true;
}

bool mr_rule_io1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double raw = f->stream_bytes_per_s[0], pipe = f->busy_bytes_per_s;
    if (!a->starved)
        return mr_silent(a, "waits for data take %s of the time", mr_say_share(a, a->stall_share));
    if (!(raw > 0) || !(pipe > 0) || !(f->streams[1] > f->workers + 0.5)) /* not of a probe */
        return mr_silent(a, "what the storage gives without the pipeline is not known");
    if (pipe >= 0.5 * raw)
        return mr_silent(a, "the pipeline gets %s of %s", mr_say_rate(a, pipe), mr_say_rate(a, raw));
    if (a->read_s < a->cpu_s || mr_known_or(f->worker_cpu, 0) > 0.7)
        return mr_silent(a, "the CPUs are busy decoding");
    d->f.saves_s = (1 - pipe / raw) * a->read_s;
    d->f.saves_low_s = 0;
    d->f.saves_high_s = a->read_s;
    d->f.confidence = 0.5;
    d->f.title = mr_say(a, "while it reads, the pipeline gets %s; the same readers get %s from the storage alone",
                        mr_say_rate(a, pipe), mr_say_rate(a, raw));
    d->f.fix = "look at what readers do between their reads ('millrace report --all' lists workers)";
    d->f.evidence = mr_say(a, "waits for reads %s", mr_say_s(a, a->read_s));
    d->f.formula = mr_say(a, "waits for reads x (1 - %s / %s)", mr_say_rate(a, pipe), mr_say_rate(a, raw));
    return true;
}

bool mr_rule_hr1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double ranks = fmax(1, mr_known_or(f->ranks, 1));
    double wanted = f->batch > 0 && f->compute_s > 0 ? ranks * f->batch / f->compute_s : NAN;
    if (!mr_known(f->harness_samples_per_s) || !mr_known(wanted))
        return mr_silent(a, "the rate on storage that takes no time was not measured");
    if (f->harness_samples_per_s >= wanted)
        return mr_silent(a, "the harness could deliver %.0f samples/s, %.0f are asked for", f->harness_samples_per_s,
                         wanted);
    if (!a->starved)
        return mr_silent(a, "waits for data take %s of the time", mr_say_share(a, a->stall_share));
    d->f.confidence = 0.9;
    d->f.title =
        mr_say(a, "this machine delivers %.0f samples/s even from storage that takes no time; %.0f are asked for",
               f->harness_samples_per_s, wanted);
    d->f.fix = "fewer accelerators per node, or more CPUs: the result says nothing about the storage";
    d->f.evidence = mr_say(a, "waits for data %s of the time", mr_say_share(a, a->stall_share));
    d->f.formula = "no storage can help";
    return true;
}

bool mr_rule_sc1(struct mr_advice *a, struct mr_draft *d)
{
    (void)d;
    return mr_silent(a, "needs runs with different numbers of ranks: one run does not tell how waits scale");
}

/* Compute of steps, sorted. */
static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double step_quantile(const struct mr_explanation *x, unsigned class, double q)
{
    double *v = x->steps ? malloc(x->steps * sizeof(*v)) : NULL, out = NAN;
    for (size_t i = 0; v && i < x->steps; i++)
        v[i] = (double)x->step[i].ns[class] / 1e9;
    if (v) {
        qsort(v, x->steps, sizeof(*v), by_value);
        out = v[(size_t)(q * (double)(x->steps - 1))];
    }
    free(v);
    return out;
}

/* Waits beyond three times the usual one. */
static double tail_s(const struct mr_explanation *x, double usual)
{
    double s = 0;
    for (size_t i = 0; i < x->steps; i++)
        s += fmax(0, (double)x->step[i].ns[MR_TIME_STALL] / 1e9 - 3 * usual);
    return x->ranks ? s / (double)x->ranks : s;
}

bool mr_rule_tl1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_sizes *s = &a->x->read_sizes;
    if (!a->starved || a->read_s < 0.3 * a->stall_s)
        return mr_silent(a, "training does not wait for reads");
    uint64_t usual_ns = s->storage_p99_ns ? s->storage_p50_ns : s->p50_ns; /* hits of a cache are no tail's opposite */
    uint64_t slow_ns = s->storage_p99_ns ? s->storage_p99_ns : s->p99_ns;
    if (!usual_ns || slow_ns <= 10 * usual_ns || slow_ns < 1000000)
        return mr_silent(a, "reads take %s, 99 %% of them at most %s", mr_say_s(a, (double)usual_ns / 1e9),
                         mr_say_s(a, (double)slow_ns / 1e9));
    if (mr_storage_is_limit(a))
        return mr_silent(a, "the storage is the limit: reads wait for each other (TH4)");
    double usual = step_quantile(a->x, MR_TIME_STALL, 0.5), tail = tail_s(a->x, usual);
    if (tail < 0.3 * a->stall_s || mr_known_or(a->f->stalled_steps, 0) > 0.5)
        return mr_silent(a, "most steps wait, not a few: rare slow reads are not the reason");
    d->f.saves_s = fmin(tail, a->read_s);
    d->f.saves_low_s = 0.3 * d->f.saves_s;
    d->f.saves_high_s = a->read_s;
    d->f.confidence = 0.6;
    d->f.title = mr_say(a, "few reads are very slow: half take %s, one in a hundred over %s",
                        mr_say_s(a, (double)usual_ns / 1e9), mr_say_s(a, (double)slow_ns / 1e9));
    d->f.fix = "a deeper queue of batches, or read a second time what does not come";
    d->f.evidence = mr_say(a, "waits beyond three times the usual %s: %s of %s", mr_say_s(a, usual), mr_say_s(a, tail),
                           mr_say_s(a, a->stall_s));
    d->f.formula = mr_say(a, "those waits: %s", mr_say_s(a, tail));
    double workers = fmax(1, mr_known_or(a->f->workers, 1));
    mr_change_loading(a, d, workers, fmax(2 * mr_known_or(a->f->prefetch, 2), 4));
    return true;
}

int mr_culprit_rank(const struct mr_advice *a, const struct mr_explain_culprit *c)
{
    return a->x->rank[c->rank].rank;
}

unsigned mr_culprit_class(const struct mr_explain_culprit *c)
{
    unsigned why = 0;
    for (unsigned k = 1; k < MR_TIME_CLASS_COUNT; k++)
        why = c->cause[k] > c->cause[why] ? k : why;
    return why;
}

/* It has evaluation steps, and no other rank has. */
static bool evaluates_alone(const struct mr_advice *a, const struct mr_explain_culprit *c)
{
    size_t own = 0, all = 0;
    unsigned class = mr_culprit_class(c);
    for (size_t i = 0; i < a->x->steps; i++) {
        bool evaluates = a->x->step[i].phase == MR_EXPLAIN_EVAL;
        all += evaluates;
        own += evaluates && a->x->step[i].rank == c->rank;
    }
    return own && own == all && (class == MR_TIME_STALL || class == MR_TIME_COMPUTE);
}

static const char *culprit_fix(struct mr_advice *a, const struct mr_explain_culprit *c)
{
    if (evaluates_alone(a, c))
        return "let every rank evaluate its part, or evaluate beside training";
    switch (mr_culprit_class(c)) {
    case MR_TIME_STALL:
        return mr_say(a, "find out why rank %d waits for data, and not the others: its files, node, disk, workers",
                      mr_culprit_rank(a, c));
    case MR_TIME_CHECKPOINT: return "save beside training (asynchronously), or let every rank save its part";
    default: return "look at its node (placement, disk, other programs), or give it less";
    }
}

const char *mr_culprit_does(struct mr_advice *a, const struct mr_explain_culprit *c)
{
    static const char *const does[] = {[MR_TIME_COMPUTE] = "computed",
                                       [MR_TIME_STALL] = "waited for data",
                                       [MR_TIME_CHECKPOINT] = "saved checkpoints",
                                       [MR_TIME_BARRIER] = "waited",
                                       [MR_TIME_COPY] = "copied to its device",
                                       [MR_TIME_STARTUP] = "started",
                                       [MR_TIME_OTHER] = "did something else"};
    static const char *const causes[] = {
#define CAUSE_WORDS(name, key, words) [MR_STALL_##name] = words,
        MR_STALL_CAUSES(CAUSE_WORDS)
#undef CAUSE_WORDS
    };
    unsigned class = mr_culprit_class(c), cause = 0;
    for (unsigned k = 1; k < MR_STALL_CAUSE_COUNT; k++)
        cause = c->stall[k] > c->stall[cause] ? k : cause;
    if (evaluates_alone(a, c))
        return "evaluated alone";
    bool told = class == MR_TIME_STALL && c->stall[cause] && cause != MR_STALL_UNKNOWN;
    return mr_say(a, "%s%s%s%s longer than the others", does[class], told ? " (" : "", told ? causes[cause] : "",
                  told ? ")" : "");
}

/* Of its waits for data: for reads. */
static bool waits_for_reads(const struct mr_explain_culprit *c)
{
    uint64_t reads = 0, all = 0;
    for (unsigned k = 0; k < MR_STALL_CAUSE_COUNT; k++) {
        all += c->stall[k];
        reads += MR_POOL_READ & (1u << k) ? c->stall[k] : 0;
    }
    return 2 * reads >= all;
}

/* Steps in which somebody came last, and what that cost. */
static double meetings(const struct mr_advice *a, double *lost)
{
    double all = *lost = 0;
    for (size_t i = 0; i < a->x->culprits; i++) {
        all += (double)a->x->culprit[i].steps;
        *lost += (double)a->x->culprit[i].lost_ns;
    }
    return all;
}

static bool wants_bytes(const struct mr_advice *a, const struct mr_explain_culprit *c)
{
    return mr_culprit_class(c) == MR_TIME_STALL && waits_for_reads(c) && mr_storage_is_limit(a);
}

const struct mr_explain_culprit *mr_straggler(const struct mr_advice *a)
{
    const struct mr_explain_culprit *c = a->x->culprits ? &a->x->culprit[0] : NULL;
    double lost, all = meetings(a, &lost), ranks = (double)a->x->ranks;
    if (!c || ranks < 2 || wants_bytes(a, c))
        return NULL;
    /* Of two, one comes last half the time by chance; where it costs anything, only a straggler does. */
    bool often = (double)c->steps > fmax(0.5, fmin(2 / ranks, 0.8)) * all;
    return often || ((double)c->steps > 0.5 * all && (double)c->lost_ns >= 0.9 * lost) ? c : NULL;
}

bool mr_rule_tl2(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_culprit *c = a->x->culprits ? &a->x->culprit[0] : NULL;
    double lost, all = meetings(a, &lost);
    if (!c || a->x->ranks < 2)
        return mr_silent(a, "no rank waited for another");
    if (wants_bytes(a, c))
        return mr_silent(a,
                         "rank %d waits for reads while the storage is the limit: whoever is last, it is for want of "
                         "bytes (TH4)",
                         mr_culprit_rank(a, c));
    if (!mr_straggler(a))
        return mr_silent(a, "the slowest rank changes: rank %d was it in %s of %s steps", mr_culprit_rank(a, c),
                         mr_say_count(a, (double)c->steps), mr_say_count(a, all));
    unsigned why = mr_culprit_class(c);
    d->f.saves_s = (double)c->lost_ns / 1e9;
    d->f.saves_low_s = 0.75 * d->f.saves_s;
    d->f.saves_high_s = fmin(fmax(a->barrier_s, d->f.saves_s), 1.2 * d->f.saves_s);
    d->f.confidence = 0.8;
    d->pools |= why == MR_TIME_STALL        ? MR_POOL_STALL
                : why == MR_TIME_CHECKPOINT ? MR_POOL_CHECKPOINT
                : why == MR_TIME_COMPUTE    ? MR_POOL_COMPUTE
                                            : 0; /* its own time and what the others waited for it */
    d->f.title = mr_say(a, "rank %d is last in %s of the steps: it %s", mr_culprit_rank(a, c),
                        mr_say_share(a, (double)c->steps / fmax(1, all)), mr_culprit_does(a, c));
    d->f.fix = culprit_fix(a, c);
    d->f.evidence = mr_say(a, "%s lost to it, others waited %s in all", mr_say_s(a, (double)c->lost_ns / 1e9),
                           mr_say_s(a, (double)c->waited_ns / 1e9));
    d->f.formula = "sum over steps of (mean barrier wait of the other ranks - this rank's)";
    char word[4400];
    if (a->x->path && !a->own)
        d->f.command = mr_say(a, "millrace report %s --rank %d", mr_shell_word(a->x->path, word, sizeof word),
                              mr_culprit_rank(a, c));
    return true;
}

bool mr_rule_nb1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double low = step_quantile(a->x, MR_TIME_COMPUTE, 0.1), usual = step_quantile(a->x, MR_TIME_COMPUTE, 0.5);
    if (!mr_known(f->cpu_busy))
        return mr_silent(a, "how busy the CPUs were is not known");
    if (f->cpu_busy < 0.9 || a->x->steps < 20)
        return mr_silent(a, "CPUs %s busy", mr_say_share(a, f->cpu_busy));
    if (!(usual > 1.2 * low))
        return mr_silent(a, "steps compute %s, the quick ones %s: loading does not slow them", mr_say_s(a, usual),
                         mr_say_s(a, low));
    d->f.saves_s = (usual - low) * a->steps;
    d->f.saves_low_s = 0;
    d->f.saves_high_s = d->f.saves_s;
    d->f.confidence = 0.4;
    d->f.title = mr_say(a, "CPUs %s busy, and compute takes %s in most steps, %s in the quick ones",
                        mr_say_share(a, f->cpu_busy), mr_say_s(a, usual), mr_say_s(a, low));
    d->f.fix = "leave CPUs to the training process: fewer workers, threads of libraries limited, processes pinned";
    d->f.evidence = mr_say(a, "%s steps", mr_say_count(a, (double)a->x->steps));
    d->f.formula = mr_say(a, "(%s - %s) x %.0f steps", mr_say_s(a, usual), mr_say_s(a, low), a->steps);
    mr_change_code(a, d, MR_IDIOM_PYTORCH, "torch.set_num_threads(n)    # in each worker: 1");
    return true;
}
