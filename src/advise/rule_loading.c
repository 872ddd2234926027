/* Rules about when and by how many workers batches are prepared: look-ahead, readers, decoders, and the two limits that
 * end both, storage and CPUs. */
#include "base/common.h"
#include "advise/advise_internal.h"

#include <string.h>

#define SHALLOW 1 /* batches ahead: with so few, a long batch cannot be covered */
#define LATE 0.20 /* share of the stall in which a reader was idle and nobody had asked */
#define PART 0.2  /* of a batch's load: such a part is worth its own rule */

static const char *evidence(struct mr_advice *a, const struct mr_pipeline *p)
{
    return mr_say(
        a,
        "waited for data %s of %s (%s): %s for reads, %s for decoding and collating, %s nobody had asked yet\n"
        "a batch takes one worker %s (reading %s, decoding %s), 99 %% of them at most %s; computing one takes "
        "%s\n%.0f workers, %.0f batches ahead%s",
        mr_say_s(a, a->stall_s), mr_say_s(a, a->run_s), mr_say_share(a, a->stall_share), mr_say_s(a, a->read_s),
        mr_say_s(a, a->cpu_s), mr_say_s(a, a->late_s), mr_say_s(a, p->read_s + p->cpu_s), mr_say_s(a, p->read_s),
        mr_say_s(a, p->cpu_s), mr_say_s(a, a->f->batch_load_p99_s), mr_say_s(a, p->compute_s), p->workers, p->ahead,
        mr_known(a->busy) ? mr_say(a, ", workers busy %s of their time", mr_say_share(a, a->busy)) : "");
}

static const char *times_faster(struct mr_advice *a, const struct mr_pipeline *p)
{
    double load = p->read_s + p->cpu_s, side = p->workers >= 1 ? p->workers : 1;
    double times = load > 0 ? p->compute_s * side / load : NAN;
    return times > 1 && times < 1e6 ? mr_say(a, "hidden now; would matter if compute got over %.1fx faster", times)
                                    : "hidden behind compute now";
}

static void set_saves(struct mr_draft *d, double saves, double low, double high)
{
    d->f.saves_s = saves;
    d->f.saves_low_s = low;
    d->f.saves_high_s = high;
}

/* The pipeline, or the reason why nothing can be said. */
static bool has_pipeline(struct mr_advice *a, struct mr_pipeline *p)
{
    *p = mr_pipeline_now(a);
    if (!a->f->has_steps)
        return mr_silent(a, "no training steps in the trace");
    if (!mr_pipeline_known(p))
        return mr_silent(a, "how long it takes to load a batch is not in the trace");
    if (!mr_reads_matter(a))
        return mr_silent(a, "waits for data take %s of the time, reading and writing hardly more",
                         mr_say_share(a, a->stall_share));
    return true;
}

/* What is printed for PyTorch has workers that live on (mr_change_loading). */
static bool lives_on(const struct mr_advice *a)
{
    return a->f->framework && !strcmp(a->f->framework, "pytorch");
}

/* ---- PF1 ---- */

static void pf1_words(struct mr_advice *a, struct mr_draft *d, const struct mr_pipeline *p, const struct mr_pipeline *q)
{
    const char *longest = mr_say_s(a, mr_known_or(a->f->batch_load_p99_s, p->read_s + p->cpu_s));
    if (p->workers < 1) {
        d->f.title = mr_say(a, "the training loop loads each batch itself (%s): nothing is loaded while it computes",
                            mr_say_s(a, p->read_s + p->cpu_s));
        d->f.fix = mr_say(a, "load ahead: workers 0 -> %.0f, batches ahead -> %.0f", q->workers, q->ahead);
    } else {
        d->f.title = p->ahead < 1
                         ? mr_say(a, "loading starts only when a batch is asked for; one takes up to %s", longest)
                         : mr_say(a, "%.0f %s ahead %s %s; loading a batch takes up to %s", p->ahead,
                                  p->ahead > 1.5 ? "batches" : "batch", p->ahead > 1.5 ? "cover" : "covers",
                                  mr_say_s(a, p->ahead * p->compute_s), longest);
        d->f.fix = mr_say(a, "batches ahead %.0f -> %.0f", p->ahead, q->ahead);
    }
    if (d->f.potential)
        d->f.title = mr_say(a, "%s; %s", d->f.title, times_faster(a, p));
    mr_change_loading(a, d, fmax(1, q->workers), q->ahead);
}

/* Whether anybody knows what more readers would get. */
static bool scaling_known(const struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    return (f->stream_bytes_per_s[0] > 0 && f->stream_bytes_per_s[1] > 0) || mr_known(f->knee) ||
           a->scaling.scales != MR_SCALES_UNKNOWN;
}

static bool asks_server(const struct mr_advice *a)
{
    return mr_stall_s(a, MR_STALL_NETWORK) > 0.5 * a->read_s;
}

static const char *source(const struct mr_advice *a)
{
    return asks_server(a) ? "server" : "storage";
}

bool mr_rule_pf1(struct mr_advice *a, struct mr_draft *d)
{
    struct mr_pipeline p, q;
    if (!has_pipeline(a, &p))
        return false;
    bool late = a->starved && a->late_s >= LATE * a->stall_s;
    if (p.workers >= 1 && p.ahead > SHALLOW && !late)
        return mr_silent(
            a, "%.0f batches were ahead, and readers were idle in %s of the waits: asking earlier gains nothing",
            p.ahead, mr_say_share(a, a->stall_s > 0 ? a->late_s / a->stall_s : 0));
    q = p;
    q.ahead = fmax(2, p.ahead + 1);
    if (p.workers < 1)
        q.workers = mr_workers_wanted(a, &q);
    q.ahead = fmax(mr_ahead_wanted(a, &q), q.ahead);
    if (p.workers < 1)
        mr_pipeline_hand_over(a, &q);
    q.keeps |= lives_on(a);
    if (!mr_predict(a, d, &q))
        return mr_silent(a, "how long it takes to load a batch is not in the trace");
    double saves = d->f.saves_s;
    if (a->starved && saves < 0.05 * a->stall_s)
        return mr_silent(
            a, "the readers need %s for a batch, computing it takes %s: they cannot keep up, however early they start",
            mr_say_s(a, (p.read_s + p.cpu_s) / fmax(1, p.workers)), mr_say_s(a, p.compute_s));
    d->f.potential = !a->starved;
    bool untried = p.workers < 1 && p.read_s > p.cpu_s && !(p.limit_s > 0) && !scaling_known(a);
    d->f.confidence = untried ? 0.75 : 0.9;
    d->weight = 1.1; /* costs nothing but memory */
    pf1_words(a, d, &p, &q);
    if (untried) /* certain is only that reading goes on while the loop computes */
        d->f.title = mr_say(a, "%s; whether the %s gives more to several readers was not tried", d->f.title, source(a));
    d->f.evidence = evidence(a, &p);
    d->f.formula = mr_replay_formula(
        a, mr_say(a, "%.0f %s and %.0f batches ahead%s", fmax(1, q.workers), q.workers > 1.5 ? "workers" : "worker",
                  q.ahead,
                  q.hand_s > 0 ? mr_say(a, ", %s for each to be handed over", mr_say_s(a, q.hand_s + q.pack_s)) : ""));
    return true;
}

/* ---- TH1, TH2: more workers ---- */

/* Where nobody waits yet: as many as the storage gains from and the CPUs can run. 0: no more than there are. */
static double room_for_workers(const struct mr_advice *a, const struct mr_pipeline *p, double at_work)
{
    double most = fmin(mr_known_or(a->f->knee, 128), mr_known_or(p->cpus, 0));
    return mr_known(at_work) && at_work < most && most > p->workers ? floor(most) : 0;
}

static const char *in_turn(const struct mr_advice *a)
{
    return a->scaling.waits_for == MR_WAITS_NETWORK ? "the server answers one after the other"
                                                    : "a lock, or a server that serves one after the other";
}

static bool more_workers(struct mr_advice *a, struct mr_draft *d, const struct mr_pipeline *p, double at_work,
                         struct mr_pipeline *q)
{
    *q = *p;
    if (a->starved && p->workers >= 1 && p->ahead >= 1 && a->late_s >= 0.5 * a->stall_s)
        return mr_silent(a, "in %s of the waits a reader was idle: there are enough of them (PF1)",
                         mr_say_share(a, a->late_s / a->stall_s));
    q->workers = a->starved ? mr_workers_wanted(a, p) : room_for_workers(a, p, at_work);
    q->ahead = p->team && p->ahead < 1 ? p->ahead : fmax(p->ahead, mr_ahead_wanted(a, q));
    if (q->workers <= p->workers)
        return mr_silent(a, "%.0f workers: more find no CPU, no storage, or nothing to do", p->workers);
    d->f.potential = !a->starved;
    if (p->workers < 1)
        mr_pipeline_hand_over(a, q);
    q->keeps |= lives_on(a);
    if (!mr_predict(a, d, q))
        return mr_silent(a, "how long it takes to load a batch is not in the trace");
    if (a->starved && d->f.saves_s < 0.05 * a->stall_s && mr_waits_in_turn(a))
        return mr_silent(a, "loads wait for each other (%s in locks): %s, and more workers wait as long",
                         mr_say_share(a, a->scaling.lock_share), in_turn(a));
    if (a->starved && d->f.saves_s < 0.02 * a->stall_s)
        return mr_silent(a, "a replay with %.0f workers waits as long", q->workers);
    if (!a->starved)
        set_saves(d, 0, 0, a->stall_s);
    d->f.evidence = evidence(a, p);
    d->f.formula = mr_replay_formula(a, mr_say(a, "%.0f workers", q->workers));
    d->weight = p->workers < 1 || p->ahead < 1 ? 0.7 : 1; /* PF1 says the same better */
    mr_change_loading(a, d, q->workers, q->ahead);
    return true;
}

static const char *ahead_change(struct mr_advice *a, const struct mr_pipeline *p, const struct mr_pipeline *q)
{
    return q->ahead > p->ahead ? mr_say(a, ", batches ahead %.0f -> %.0f", p->ahead, q->ahead) : "";
}

static const char *th1_title(struct mr_advice *a, const struct mr_draft *d, const struct mr_pipeline *p)
{
    const struct mr_explain_facts *f = a->f;
    const char *flight = mr_known(f->in_flight) ? mr_say(a, "%.1f reads", f->in_flight) : "their reads";
    const char *now = p->workers < 1   ? "the training loop reads itself, one read after the other"
                      : asks_server(a) ? mr_say(a, "%.0f %s for answers of a server", p->workers,
                                                p->workers > 1.5 ? "workers wait" : "worker waits")
                                       : mr_say(a, "%.0f %s with %s in flight", p->workers,
                                                p->workers > 1.5 ? "readers" : "reader", flight);
    const char *more = mr_say(a, "a batch takes one reader %s", mr_say_s(a, p->read_s + p->cpu_s));
    if (f->stream_bytes_per_s[0] > 0 && f->stream_bytes_per_s[1] > 0)
        more = mr_say(a, "%.2g at a time get %s, %.2g get %s", f->streams[0], mr_say_rate(a, f->stream_bytes_per_s[0]),
                      f->streams[1], mr_say_rate(a, f->stream_bytes_per_s[1]));
    else if (mr_known(f->knee))
        more = mr_say(a, "the storage gains up to %.0f", f->knee);
    else if (!d->f.potential && !scaling_known(a))
        more = mr_say(a, "%s; whether the %s gives more to more of them was not tried", more, source(a));
    return mr_say(a, "%s; %s%s%s", now, more, d->f.potential ? "; " : "", d->f.potential ? times_faster(a, p) : "");
}

bool mr_rule_th1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    struct mr_pipeline p, q;
    if (!has_pipeline(a, &p))
        return false;
    if (p.read_s < PART * (p.read_s + p.cpu_s))
        return mr_silent(a, "a batch takes %s to decode and %s to read: readers do not wait for the storage (TH2)",
                         mr_say_s(a, p.cpu_s), mr_say_s(a, p.read_s));
    bool asked = f->stream_bytes_per_s[0] > 0 && f->stream_bytes_per_s[1] > 0;
    if (mr_storage_is_limit(a) && (!asked || f->stream_bytes_per_s[1] < 1.15 * f->stream_bytes_per_s[0]))
        return mr_silent(a, "the storage is the limit: %s, whoever asks (TH4)", mr_say_rate(a, mr_storage_limit(a)));
    if (!more_workers(a, d, &p, f->in_flight, &q))
        return false;
    bool sure = scaling_known(a);
    d->f.confidence = sure ? 0.9 : 0.6;
    d->weight *= p.read_s >= p.cpu_s ? 1 : 0.6;
    d->f.title = th1_title(a, d, &p);
    d->f.fix = mr_say(a, "readers %.0f -> %.0f%s", p.workers, q.workers, ahead_change(a, &p, &q));
    return true;
}

/* Decoding that no event tells of, by threads of which the settings say how many. */
static bool few_decoders(struct mr_advice *a, struct mr_draft *d, const struct mr_pipeline *p)
{
    if (!(a->f->decode_threads < 0.5 * p->cpus))
        return false;
    d->f.confidence = 0.2;
    d->f.potential = true;
    d->f.title =
        mr_say(a, "%.0f decoding threads are set, a rank has %.0f CPUs; how long they take is not in the trace",
               a->f->decode_threads, p->cpus);
    d->f.fix = mr_say(a, "decoding threads %.0f -> %.0f, or automatic", a->f->decode_threads, p->cpus);
    d->f.evidence = evidence(a, p);
    d->f.formula = "unknown: no event tells of decoding";
    mr_change_option(a, d, "reader.computation_threads", mr_say_number(a, a->f->decode_threads),
                     mr_say_number(a, p->cpus));
    mr_change_argument(a, d, MR_TARGET_DATASET, "num_parallel_calls", mr_say_number(a, a->f->decode_threads),
                       "AUTOTUNE");
    return true;
}

bool mr_rule_th2(struct mr_advice *a, struct mr_draft *d)
{
    struct mr_pipeline p, q;
    if (!has_pipeline(a, &p))
        return false;
    if (p.cpu_s < 0.001 * (p.read_s + p.cpu_s) && few_decoders(a, d, &p))
        return true;
    if (p.cpu_s < PART * (p.read_s + p.cpu_s))
        return mr_silent(a, "reading a batch takes %s, decoding it %s", mr_say_s(a, p.read_s), mr_say_s(a, p.cpu_s));
    if (!more_workers(a, d, &p, mr_known_or(a->f->decode_threads, p.workers), &q))
        return false;
    /* Workers that are off the CPU sleep, or wait for one: only the former gain from more of them. */
    bool sure = mr_known(p.cpus) && !(a->f->worker_cpu < 0.7);
    d->f.confidence = sure ? 0.9 : 0.55;
    d->weight *= p.cpu_s > p.read_s ? 1 : 0.6;
    bool decodes = !(a->f->worker_cpu < 0.5);
    d->f.title =
        mr_say(a, "%s %s per batch%s, computing it takes %s%s",
               p.workers < 1     ? "the training loop takes"
               : p.workers > 1.5 ? mr_say(a, "%.0f workers take", p.workers)
                                 : "one worker takes",
               mr_say_s(a, p.cpu_s),
               decodes ? " to decode" : mr_say(a, " (%s of it on a CPU)", mr_say_share(a, a->f->worker_cpu)),
               mr_say_s(a, p.compute_s),
               mr_known(p.cpus) ? mr_say(a, "; %.3g %s for each rank", p.cpus, p.cpus > 1 ? "CPUs" : "CPU") : "");
    if (d->f.potential)
        d->f.title = mr_say(a, "%s; %s", d->f.title, times_faster(a, &p));
    d->f.fix = mr_say(a, "workers %.0f -> %.0f", p.workers, q.workers);
    return true;
}

/* ---- the limits ---- */

bool mr_rule_th4(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    struct mr_pipeline p = mr_pipeline_now(a), q;
    double limit = mr_storage_limit(a);
    if (!a->starved)
        return mr_silent(a, "waits for data take %s of the time", mr_say_share(a, a->stall_share));
    if (!mr_known(limit))
        return mr_silent(a, "what the storage gives at most is not known: nobody tried more readers");
    if (!mr_storage_is_limit(a))
        return mr_silent(a, "the storage gives %s, %s are asked for", mr_say_rate(a, limit),
                         mr_say_rate(a, f->demand_bytes_per_s));
    if (!mr_pipeline_known(&p) || p.read_s < p.cpu_s)
        return mr_silent(a, "readers spend most of their time decoding");
    q = p;
    q.storage = 2 * p.storage;
    q.read_x = q.meta_x = 0.5;
    if (!mr_predict(a, d, &q))
        return mr_silent(a, "how long it takes to load a batch is not in the trace");
    d->f.confidence = 0.8;
    bool grows = f->stream_bytes_per_s[1] >= 1.15 * f->stream_bytes_per_s[0];
    d->weight = 0.3; /* new storage, or other data: the last thing to do */
    d->f.title =
        mr_say(a, "the storage is the limit: %s%s; the accelerators ask for %s", mr_say_rate(a, limit),
               grows               ? mr_say(a, ", to %.2g readers", f->streams[1])
               : f->streams[1] > 0 ? mr_say(a, ", with %.2g reads at a time as with %.2g", f->streams[0], f->streams[1])
               : f->queued         ? ", to a queue of requests"
                                   : "",
               mr_say_rate(a, f->demand_bytes_per_s));
    d->f.fix = mr_say(a, "fewer bytes per sample, a cache or a faster tier in front, or faster storage%s",
                      grows ? "" : "; more readers do not help");
    d->f.evidence = evidence(a, &p);
    d->f.formula = mr_replay_formula(a, "storage twice as fast");
    mr_change_to_memory(a, d);
    mr_change_note(mr_change_argument(a, d, MR_TARGET_DATASET, "cache", NULL, "memory"),
                   "where the data set fits into memory; cache('/local/cache') onto a local disk");
    return true;
}

/* CPUs that workers keep busy, of one rank. */
static double batch_cpus(const struct mr_advice *a, const struct mr_pipeline *p)
{
    return fmax(1, p->workers) * mr_known_or(a->f->worker_cpu, 1) * mr_known_or(a->busy, 1);
}

bool mr_rule_cpu1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    struct mr_pipeline p, q;
    if (!a->starved)
        return mr_silent(a, "waits for data take %s of the time", mr_say_share(a, a->stall_share));
    if (!has_pipeline(a, &p))
        return false;
    if (p.cpu_s < p.read_s)
        return mr_silent(a, "reading a batch takes %s, decoding it %s", mr_say_s(a, p.read_s), mr_say_s(a, p.cpu_s));
    if (a->late_s >= 0.5 * a->stall_s)
        return mr_silent(a, "workers were idle in %s of the waits", mr_say_share(a, a->late_s / a->stall_s));
    double side = p.ahead >= 1 ? fmax(1, p.workers) : 0;
    if (side > 0 && (p.read_s + p.cpu_s) / side < 0.5 * p.compute_s)
        return mr_silent(a, "%.0f workers make a batch in half the time that one computes", side);
    if (mr_known(f->worker_cpu) && f->worker_cpu < 0.7)
        return mr_silent(a, "workers are on a CPU in %s of their busy time only", mr_say_share(a, f->worker_cpu));
    if (p.workers >= 1 && mr_workers_wanted(a, &p) > p.workers)
        return mr_silent(a, "more workers would find a CPU (TH2)");
    q = p;
    q.cpu_x = 0.5;
    if (!mr_predict(a, d, &q))
        return mr_silent(a, "how long it takes to load a batch is not in the trace");
    d->f.confidence = mr_known(f->worker_cpu) && mr_known(p.cpus) ? 0.85 : 0.6;
    bool taken = mr_known(p.cpus) && batch_cpus(a, &p) >= 0.8 * p.cpus;
    d->f.title = mr_say(a, "decode-bound: a batch needs %s of a CPU%s; more storage will not help",
                        mr_say_s(a, p.cpu_s), taken ? mr_say(a, " and all %.3g CPUs of a rank are taken", p.cpus) : "");
    bool pictures = mr_has_pictures(a->x);
    d->f.fix = pictures
                   ? "a cheaper decode: decoded or resized data stored once, smaller pictures on disk, fewer "
                     "transforms, a faster decoder (LD1 where PyTorch loads them), or more CPUs per accelerator"
                   : "a cheaper decode: store once what decoding makes, fewer transforms, or more CPUs per accelerator";
    if (pictures)
        mr_change_code(a, d, MR_IDIOM_PYTORCH,
                       "# decode on the accelerator\ntorchvision.io.decode_jpeg(data, device='cuda')");
    mr_change_argument(a, d, MR_TARGET_DATASET, "num_parallel_calls", NULL, "AUTOTUNE");
    mr_change_note(mr_change_argument(a, d, MR_TARGET_DATASET, "cache", NULL, "memory"), "before random transforms");
    d->f.evidence = evidence(a, &p);
    d->f.formula = mr_replay_formula(a, "a decode that takes half the time, if there is one");
    return true;
}

/* ---- PF2: the copy to the accelerator ---- */

bool mr_rule_pf2(struct mr_advice *a, struct mr_draft *d)
{
    double copy = mr_stall_s(a, MR_STALL_COPY) + (double)a->x->ns[MR_TIME_COPY] / 1e9;
    double input = a->stall_s + (double)a->x->ns[MR_TIME_COPY] / 1e9;
    if (!(copy > 0))
        return mr_silent(a, "no copy to an accelerator was seen waiting");
    if (copy < 0.1 * input || copy < 0.01 * a->run_s)
        return mr_silent(a, "copies take %s of the %s of input time", mr_say_s(a, copy), mr_say_s(a, input));
    d->f.saves_s = copy;
    d->f.saves_low_s = 0.5 * copy;
    d->f.saves_high_s = copy;
    d->f.confidence = 0.8;
    d->f.title = mr_say(a, "copying batches to the accelerator takes %s (%s of the run), nothing else meanwhile",
                        mr_say_s(a, copy), mr_say_share(a, copy / a->run_s));
    d->f.fix = "copy the next batch while this one computes: pinned memory and non-blocking copies";
    d->f.evidence = mr_say(a, "copies %s of %s waiting for input", mr_say_s(a, copy), mr_say_s(a, input));
    d->f.formula = mr_say(a, "all copy time: %s", mr_say_s(a, copy));
    mr_change_argument(a, d, MR_TARGET_LOADER, "pin_memory", NULL, "true");
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "batch = batch.to(device, non_blocking=True)    # on a side stream, one batch ahead");
    mr_change_code(a, d, MR_IDIOM_TENSORFLOW, "ds.apply(tf.data.experimental.prefetch_to_device('/gpu:0'))");
    return true;
}
