/* Why each wait took as long as it did. The wait for batch b is followed backwards through what held the part of b that
 * was ready last:
 *
 *        w0                          f0                    f1        w1
 *        |---- before its start -----|------- its own -----|- tail --|      wait of the consumer
 *   ====== earlier batch =====|      |==== reads, decodes =|                the worker that made it
 *
 *   tail              the batch was ready: passing it on (queue), unless the worker is the limit (stall_match.c), or has
 *                     no CPU: then the thread that passes it on has none
 *   its own           what the worker's calls and spans say; in none of them: on a CPU (decode) or off it (worker)
 *   before its start  the worker was busy with earlier batches: by what it did then; idle before anybody asked for b:
 *                     not started; asked for and not begun: worker
 *
 * Then why it began so late. Let x be the length of the two busy parts: had the worker begun x earlier, nobody would
 * have waited. As long as it was idle in the x before f0 and nobody had asked, the look-ahead was too short: that much
 * of the stall is "not started". As long as it was busy then, more throughput of whatever it did is what is missing,
 * and the stall is counted as behind. The look back ends where the epoch began. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FAULT_MOST 20000000u       /* ns: a page of a mapped file and what is read ahead with it come within that */
#define FAULTS_MANY 4u             /* of one batch: that many are no chance beside a sleep, but slow storage */
#define FAULT_MOST_SLOW 500000000u /* ns: the same of storage that gives a few MB/s */
#define BUSY_LEAST 0.95            /* of the time that a batch took to come: its worker had no time to spare */
#define BESIDE_LEAST 0.3           /* of a wait: less that threads did beside it tells nothing */

/* What is known about one wait. */
struct blame {
    uint64_t cause[MR_STALL_CAUSE_COUNT];
    uint64_t beside[MR_STALL_CAUSE_COUNT]; /* what other threads did, summed */
    uint64_t asleep[MR_STALL_CAUSE_COUNT]; /* of cause: in spans that should be work */
    uint64_t threads, threads_delay;       /* CPU time of other threads of the maker's process; waiting for a CPU */
    uint64_t held;                         /* by the worker: its own part and earlier batches */
    uint64_t early;                        /* of that: before the wait, in place of passing the batch on */
    uint64_t behind, longest;
    uint32_t file;
};

/* Causes of which a thread does the work on a CPU. */
static const uint8_t on_cpu[] = {MR_STALL_PAGE_CACHE, MR_STALL_METADATA, MR_STALL_DECODE, MR_STALL_TRANSFORM,
                                 MR_STALL_QUEUE};

static const uint8_t in_spans[] = {MR_STALL_DECODE, MR_STALL_TRANSFORM, MR_STALL_QUEUE};

static uint64_t sum_of(const uint64_t cause[MR_STALL_CAUSE_COUNT])
{
    uint64_t sum = 0;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        sum += cause[c];
    return sum;
}

/* Reads that took too long for the page cache, where the thread was on a CPU or ready to run without one: others had
 * the CPUs in the middle of a copy. At most the run-queue delay, as reads from a storage take CPU time, too. */
uint64_t mr_explain_stretched_ns(const struct explain_make *m)
{
    if (m->own || m->cpu_ns == UNKNOWN)
        return 0;
    uint64_t slept = explain_span_ns(m->cpu_ns, m->end - m->start);
    return MR_MIN(explain_span_ns(slept, m->cause[MR_STALL_STORAGE]), m->delay_ns);
}

/* Of the time that a make spent in no call and no span: the share on a CPU. 1 where nobody measured. */
static double cpu_share(const struct explain_make *m)
{
    uint64_t told = sum_of(m->cause), dur = m->end - m->start, left = explain_span_ns(told, dur);
    if (m->cpu_ns == UNKNOWN || !left)
        return 1;
    uint64_t busy = m->cause[MR_STALL_PAGE_CACHE] + m->cause[MR_STALL_METADATA] + m->cause[MR_STALL_DECODE] +
                    m->cause[MR_STALL_TRANSFORM] + m->cause[MR_STALL_QUEUE] + mr_explain_stretched_ns(m);
    uint64_t cpu = explain_span_ns(busy, m->cpu_ns);
    return cpu >= left ? 1 : (double)cpu / (double)left;
}

/* Time off the CPU that no call tells of. */
static double off_cpu(const struct explain_make *m)
{
    return m->own ? 0 : (1 - cpu_share(m)) * (double)explain_span_ns(sum_of(m->cause), m->end - m->start);
}

double mr_explain_fault_ns(const struct explain_make *m)
{
    return MR_MIN(off_cpu(m), (double)m->faults * (m->faults < FAULTS_MANY ? FAULT_MOST : FAULT_MOST_SLOW));
}

/* Run-queue delay of a make: as shares of what it did on a CPU, as far as calls and spans show, and of what it slept:
 * whoever wakes up in a call needs a CPU, too. */
struct delay {
    double work, sleep;
};

static struct delay delay_of(const struct explain_make *m)
{
    uint64_t told = sum_of(m->cause), rest = explain_span_ns(told, m->end - m->start);
    double work = cpu_share(m) * (double)rest + (double)mr_explain_stretched_ns(m), delay = (double)m->delay_ns;
    double sleep = (double)m->cause[MR_STALL_WORKER] + off_cpu(m) - mr_explain_fault_ns(m);
    for (unsigned i = 0; i < MR_ARRAY_LEN(on_cpu); i++)
        work += (double)m->cause[on_cpu[i]];
    struct delay d = {.work = delay > 0 && work > 0 ? MR_MIN(delay / work, 1.0) : 0};
    double left = delay - d.work * work;
    d.sleep = left > 0 && sleep > 0 ? MR_MIN(left / sleep, 1.0) : 0;
    return d;
}

/* Run-queue delay stretched everything that the make did on a CPU: its part of each is a cause of its own. */
static void move_delay(const struct explain_make *m, uint64_t cause[MR_STALL_CAUSE_COUNT])
{
    struct delay d = delay_of(m);
    uint64_t copies = mr_explain_stretched_ns(m);
    if (copies) {
        copies = (uint64_t)((double)cause[MR_STALL_STORAGE] * (double)copies / (double)m->cause[MR_STALL_STORAGE]);
        cause[MR_STALL_STORAGE] -= copies;
        cause[MR_STALL_PAGE_CACHE] += copies;
    }
    for (unsigned i = 0; i <= MR_ARRAY_LEN(on_cpu); i++) {
        unsigned from = i < MR_ARRAY_LEN(on_cpu) ? on_cpu[i] : MR_STALL_WORKER;
        uint64_t part = (uint64_t)((double)cause[from] * (from == MR_STALL_WORKER ? d.sleep : d.work));
        cause[from] -= part;
        cause[MR_STALL_CPU] += part;
    }
}

/* Gives the rest of a make's time, which nothing tells of, to decode, storage and worker. */
static void split_rest(const struct explain_make *m, uint64_t rest, uint64_t cause[MR_STALL_CAUSE_COUNT])
{
    uint64_t cpu = m->own ? 0 : (uint64_t)(cpu_share(m) * (double)rest);
    double off = off_cpu(m);
    uint64_t faults = off > 0 ? (uint64_t)(mr_explain_fault_ns(m) / off * (double)(rest - cpu)) : 0;
    cause[MR_STALL_DECODE] += cpu;
    cause[MR_STALL_STORAGE] += faults;
    cause[MR_STALL_WORKER] += rest - cpu - faults;
}

static void blame_ask(const struct explain_job *j, const struct explain_ask *a, struct blame *b)
{
    uint64_t told = sum_of(a->cause), len = a->end - a->start, rest = explain_span_ns(told, len);
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        (a->beside ? b->beside : b->cause)[c] += a->cause[c];
    if (a->beside)
        return;
    if (a->make != NO_INDEX) {
        uint64_t part[MR_STALL_CAUSE_COUNT];
        memcpy(part, a->cause, sizeof part);
        const struct explain_make *m = &j->make.item[a->make];
        if (m->end > m->start) {
            b->threads += (uint64_t)((double)m->threads_ns * (double)len / (double)(m->end - m->start));
            b->threads_delay += (uint64_t)((double)m->threads_delay * (double)len / (double)(m->end - m->start));
        }
        double sleeps = mr_explain_span_sleep(m);
        for (unsigned i = 0; i < MR_ARRAY_LEN(in_spans); i++)
            b->asleep[in_spans[i]] += (uint64_t)(sleeps * (double)part[in_spans[i]]);
        split_rest(&j->make.item[a->make], rest, part);
        move_delay(&j->make.item[a->make], part);
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            b->cause[c] += part[c] - a->cause[c];                      /* modulo 2^64: a->cause is in the sum already */
    } else if (told > len / 4 && a->cause[MR_STALL_WORKER] < told / 2) /* the consumer reads itself */
        b->cause[MR_STALL_DECODE] += rest;
    else
        b->cause[MR_STALL_UNKNOWN] += rest;
    b->held += len;
    b->early += explain_span_ns(a->start, MR_MIN(a->end, j->wait.item[a->wait].start));
    if (a->longest > b->longest) {
        b->longest = a->longest;
        b->file = a->file;
    }
}

/* ---- look-ahead ---- */

/* What a worker did before time `to`: idle with nothing to do, or busy. */
struct past {
    uint64_t unasked, busy;
};

/* Goes back over the makes of the thread. `of_make`: the wait that a make served. */
static struct past look_back(const struct explain_job *j, const uint32_t *of_make, const struct explain_wait *w,
                             uint64_t from, uint64_t to)
{
    const struct explain_lane *l = &j->lane[j->make.item[w->make].lane];
    struct past p = {0};
    for (uint32_t k = w->make; to > from; k--) {
        const struct explain_make *m = &j->make.item[k];
        const struct explain_wait *of = of_make[k] != NO_INDEX ? &j->wait.item[of_make[k]] : NULL;
        uint64_t asked = of && of->requested != UNKNOWN ? of->requested : m->start;
        uint64_t before = k > l->make ? j->make.item[k - 1].end : l->first_ns; /* idle from here to m->start */
        uint64_t idle_from = MR_MAX(MR_MIN(before, m->start), from), idle_to = MR_MIN(MR_MIN(m->start, asked), to);
        p.unasked += explain_span_ns(idle_from, idle_to);
        if (k == l->make)
            break;
        p.busy += explain_span_ns(MR_MAX(j->make.item[k - 1].start, from), MR_MIN(j->make.item[k - 1].end, to));
        if (j->make.item[k - 1].start <= from)
            break;
    }
    return p;
}

/* Moves a part of what the worker did to "not started". */
static void shift(struct blame *b, uint64_t unasked)
{
    uint64_t moved = 0;
    static const uint8_t held[] = {MR_STALL_STORAGE, MR_STALL_PAGE_CACHE, MR_STALL_METADATA, MR_STALL_NETWORK,
                                   MR_STALL_DECODE,  MR_STALL_TRANSFORM,  MR_STALL_QUEUE,    MR_STALL_COPY,
                                   MR_STALL_CPU,     MR_STALL_WORKER,     MR_STALL_UNKNOWN};
    double share = b->held ? (double)unasked / (double)b->held : 0;
    for (unsigned i = 0; i < MR_ARRAY_LEN(held); i++) {
        uint64_t part = (uint64_t)((double)b->cause[held[i]] * share);
        b->cause[held[i]] -= part;
        moved += part;
    }
    b->cause[MR_STALL_NOT_STARTED] += moved;
}

/* Of [from, to): the share in which the worker, at its next batches by then, was ready to run and had no CPU. The thread
 * of its process that passes batches on had none either; and where that is most of the time, it waited for the worker's
 * turns on a CPU to end, too (Python's lock). */
static double crowded(const struct explain_job *j, uint32_t make, uint64_t from, uint64_t to)
{
    const struct explain_lane *l = &j->lane[j->make.item[make].lane];
    double delay = 0;
    for (uint32_t k = make; k < l->make + l->makes && j->make.item[k].start < to; k++) {
        const struct explain_make *m = &j->make.item[k];
        uint64_t inside = explain_span_ns(MR_MAX(m->start, from), MR_MIN(m->end, to)), len = m->end - m->start;
        if (inside)
            delay += (double)inside * (2 * m->delay_ns >= len ? 1 : (double)m->delay_ns / (double)len);
    }
    return to > from ? delay / (double)(to - from) : 0;
}

/* A batch was ready at `from` and came at `to`. A worker that computed its next batches all that time was busy: had this
 * one come at once, the next would have been waited for as long. (Python code that holds the lock keeps the thread that
 * passes batches on from running.) Where passing on is the limit, the worker waits to be asked for some of the time. */
static void blame_next(const struct explain_job *j, uint32_t make, uint64_t from, uint64_t to, uint64_t tail,
                       struct blame *b)
{
    const struct explain_lane *l = &j->lane[j->make.item[make].lane];
    double busy = 0, decode = 0, transform = 0, all = (double)explain_span_ns(from, to);
    for (uint32_t k = make + 1; k < l->make + l->makes && j->make.item[k].start < to; k++) {
        const struct explain_make *m = &j->make.item[k];
        double inside = (double)explain_span_ns(MR_MAX(m->start, from), MR_MIN(m->end, to));
        double len = (double)MR_MAX(m->end - m->start, 1u);
        double cpu = m->cpu_ns == UNKNOWN ? 0 : (double)explain_span_ns(m->delay_ns, m->cpu_ns);
        double apply = fmin((double)m->cause[MR_STALL_TRANSFORM], cpu);
        busy += inside;
        transform += inside * fmin(apply / len, 1);
        decode += inside * fmin((cpu - apply) / len, 1);
    }
    if (!(all > 0) || busy < BUSY_LEAST * all)
        return;
    uint64_t of_decode = MR_MIN((uint64_t)(decode / all * (double)tail), tail);
    uint64_t of_transform = MR_MIN((uint64_t)(transform / all * (double)tail), tail - of_decode);
    b->cause[MR_STALL_QUEUE] -= of_decode + of_transform;
    b->cause[MR_STALL_DECODE] += of_decode;
    b->cause[MR_STALL_TRANSFORM] += of_transform;
}

/* A wait whose batch another thread made. Called while `b` holds what asks told: the busy parts. */
static void blame_worker(const struct explain_job *j, const uint32_t *of_make, const struct explain_wait *w,
                         struct blame *b)
{
    const struct explain_make *m = &j->make.item[w->make];
    const struct explain_lane *l = &j->lane[m->lane];
    uint64_t ready = MR_MAX(m->end, w->start), begun = MR_MIN(MR_MAX(m->start, w->start), w->end);
    uint64_t back = MR_MAX(MR_MAX(explain_span_ns(b->held, m->start), w->begun), l->first_ns);
    if (b->held && back < m->start) {
        struct past p = look_back(j, of_make, w, back, MR_MIN(m->start, w->start));
        struct past inside = {0};
        if (m->start > w->start)
            inside = look_back(j, of_make, w, MR_MAX(w->start, back), m->start);
        uint64_t unasked = MR_MIN(p.unasked, b->held);
        shift(b, unasked);
        b->behind = MR_MIN(p.busy + inside.busy, b->held - unasked);
    }
    /* before its start, and busy with nothing */
    uint64_t idle = explain_span_ns(w->start, begun), busy_before = 0;
    if (begun > w->start) {
        struct past p = look_back(j, of_make, w, w->start, begun);
        busy_before = MR_MIN(p.busy, idle);
        uint64_t unasked = MR_MIN(l->first_ns > w->start ? 0 : p.unasked, idle - busy_before);
        b->cause[MR_STALL_NOT_STARTED] += unasked;
        b->cause[MR_STALL_WORKER] += idle - busy_before - unasked;
    }
    uint64_t tail = explain_span_ns(b->early, explain_span_ns(ready, w->end));
    uint64_t delay = m->own ? 0 : (uint64_t)(crowded(j, w->make, ready, w->end) * (double)tail);
    b->cause[MR_STALL_CPU] += delay;
    b->cause[MR_STALL_QUEUE] += tail - delay;
    if (!m->own)
        blame_next(j, w->make, ready, w->end, tail - delay, b);
}

/* ---- from sums ---- */

static uint64_t grown(uint64_t from, uint64_t to)
{
    return from == UNKNOWN || to == UNKNOWN ? 0 : explain_span_ns(from, to);
}

/* A trace of our own loader that has only steps: what all readers did between this batch and the one before stands for
 * what held it. On the average they were idle for some of that: as far as it would have covered the wait, the
 * look-ahead was too short. `before` NULL: the first of its epoch. */
static void blame_readers(const struct explain_wait *w, const struct explain_wait *before, uint64_t waited,
                          struct blame *b)
{
    static const struct explain_readers none;
    const struct explain_readers *from = before ? &before->sums : &none, *to = &w->sums;
    uint64_t read = grown(from->read, to->read), decode = grown(from->decode, to->decode);
    uint64_t transform = grown(from->transform, to->transform), idle = grown(from->idle, to->idle);
    uint64_t late = before && to->readers ? MR_MIN(idle / to->readers, waited) : 0;
    double busy = (double)(read + decode + transform), rest = (double)(waited - late);
    b->cause[MR_STALL_NOT_STARTED] += late;
    if (!(busy > 0)) {
        b->cause[MR_STALL_WORKER] += waited - late;
        return;
    }
    b->cause[MR_STALL_STORAGE] += (uint64_t)((double)read / busy * rest);
    b->cause[MR_STALL_DECODE] += (uint64_t)((double)decode / busy * rest);
    b->cause[MR_STALL_TRANSFORM] += (uint64_t)((double)transform / busy * rest);
    b->behind = before && to->readers ? waited - late : 0;
}

static void blame_ready(struct explain_job *j, const struct explain_wait *w, struct blame *b)
{
    uint64_t ready = MR_MIN(MR_MAX(w->ready, w->start), w->end);
    const struct explain_wait *before = w > j->wait.item && w[-1].rank == w->rank ? w - 1 : NULL;
    if (before && (before->sums.readers == UNKNOWN || before->epoch != w->epoch || before->loader != w->loader))
        before = NULL;
    if (w->sums.readers == UNKNOWN) {
        b->cause[MR_STALL_UNKNOWN] += ready - w->start;
    } else {
        blame_readers(w, before, ready - w->start, b);
        j->summed = true;
    }
    b->cause[MR_STALL_QUEUE] += w->end - ready;
}

/* Nobody tells who made the batch. The program waited, so what the process computed its pipeline's threads did; with
 * what they waited for in calls these are thread-seconds of one kind, and their shares stand for the wait's. Where that
 * is little of the wait, nobody can say. */
static void blame_beside(struct explain_job *j, const struct explain_wait *w, struct blame *b)
{
    static const uint8_t waits[] = {MR_STALL_STORAGE, MR_STALL_NETWORK},
                         works[] = {MR_STALL_PAGE_CACHE, MR_STALL_METADATA};
    uint64_t len = w->end - w->start, io = 0, copies = 0;
    double part[MR_STALL_CAUSE_COUNT] = {0}, all = 0;
    for (unsigned i = 0; i < 2; i++) {
        part[waits[i]] = (double)b->beside[waits[i]];
        part[works[i]] = (double)b->beside[works[i]];
        io += b->beside[waits[i]];
        copies += b->beside[works[i]];
    }
    part[MR_STALL_DECODE] = (double)explain_span_ns(copies, w->cpu);
    part[MR_STALL_CPU] = (double)w->threads_delay;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        all += part[c];
    if (!len || b->cause[MR_STALL_UNKNOWN] < len / 2)
        return; /* the consumer reads itself */
    j->beside.n++;
    j->beside.waits += (double)len;
    j->beside.cpu += (double)w->cpu;
    j->beside.io += (double)io;
    j->beside.between += w->between != UNKNOWN ? (double)w->between : 0;
    j->beside.told += w->between != UNKNOWN;
    if (all < BESIDE_LEAST * (double)len)
        return; /* too little to go by */
    uint64_t given = 0;
    memset(b->cause, 0, sizeof b->cause);
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++) {
        b->cause[c] = (uint64_t)(part[c] / all * (double)len);
        given += b->cause[c];
    }
    b->cause[io > w->cpu ? MR_STALL_STORAGE : MR_STALL_DECODE] += explain_span_ns(given, len);
}

/* Helpers also explain sleep inside spans that should be work, and nothing else does. */
static void follow_helpers(struct explain_job *j, struct blame *b)
{
    const uint64_t cpu[2] = {b->threads, b->threads_delay};
    mr_explain_follow_helpers(j, b->beside, cpu, MR_STALL_WORKER, b->cause);
    for (unsigned i = 0; i < MR_ARRAY_LEN(in_spans); i++) {
        uint64_t part[MR_STALL_CAUSE_COUNT] = {0}, asleep = MR_MIN(b->asleep[in_spans[i]], b->cause[in_spans[i]]);
        part[in_spans[i]] = asleep;
        mr_explain_follow_helpers(j, b->beside, cpu, in_spans[i], part);
        b->cause[in_spans[i]] -= asleep;
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            b->cause[c] += part[c];
    }
}

static void blame_wait(struct explain_job *j, const uint32_t *of_make, const struct explain_wait *w, struct blame *b)
{
    if (w->make != NO_INDEX || (w->cpu == UNKNOWN && !w->taken))
        follow_helpers(j, b);
    if (w->make == NO_INDEX) {
        if (w->taken) { /* in a pipe or a queue: what for, nobody knows */
            b->cause[MR_STALL_UNKNOWN] += b->cause[MR_STALL_WORKER];
            b->cause[MR_STALL_WORKER] = 0;
            const uint64_t cpu[2] = {w->threads, w->threads_delay};
            mr_explain_follow_helpers(j, b->beside, cpu, MR_STALL_UNKNOWN, b->cause);
        }
        if (w->ready != UNKNOWN && (j->run || w->sums.readers != UNKNOWN)) {
            memset(b->cause, 0, sizeof b->cause); /* what the consumer's thread did is not what it waited for */
            blame_ready(j, w, b);
        } else if (w->cpu != UNKNOWN) {
            blame_beside(j, w, b);
        }
        return;
    }
    if (j->make.item[w->make].lane == w->lane) /* the consumer made it: around that are sampler and bookkeeping */
        b->cause[MR_STALL_QUEUE] += explain_span_ns(b->held, w->end - w->start);
    else
        blame_worker(j, of_make, w, b);
}

/* ---- steps ---- */

/* Causes of all waits of a step, scaled to its stall (X2). */
static void blame_step(struct mr_explain_step *s, const struct blame *b)
{
    uint64_t sum = sum_of(b->cause), stall = s->ns[MR_TIME_STALL], given = 0;
    unsigned largest = MR_STALL_UNKNOWN;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT && sum; c++) {
        s->stall[c] = (uint64_t)((double)b->cause[c] / (double)sum * (double)stall);
        given += s->stall[c];
        largest = s->stall[c] > s->stall[largest] ? c : largest;
    }
    if (given <= stall)
        s->stall[largest] += stall - given;
    else
        s->stall[largest] -= MR_MIN(s->stall[largest], given - stall);
    s->behind_ns = sum ? MR_MIN((uint64_t)((double)b->behind / (double)sum * (double)stall), stall) : 0;
    s->file = b->file;
}

static void blame_steps(struct explain_job *j, struct blame *all)
{
    struct blame step = {.file = NO_INDEX};
    for (size_t i = 0; i < j->wait.n; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        if (w->step == NO_INDEX)
            continue;
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            step.cause[c] += all[i].cause[c];
        step.behind += all[i].behind;
        if (all[i].longest > step.longest) {
            step.longest = all[i].longest;
            step.file = all[i].file;
        }
        struct mr_explain_step *s = &j->step.item[w->step];
        if (w->make != NO_INDEX) {
            const struct explain_make *m = &j->make.item[w->make];
            s->worker = j->lane[m->lane].worker;
            if (s->bytes == UNKNOWN && m->bytes)
                s->bytes = m->bytes;
        }
        bool more = i + 1 < j->wait.n && j->wait.item[i + 1].step == w->step;
        if (more)
            continue;
        blame_step(s, &step);
        step = (struct blame){.file = NO_INDEX};
    }
    for (size_t i = 0; i < j->step.n; i++) { /* steps whose waits are not known */
        struct mr_explain_step *s = &j->step.item[i];
        uint64_t sum = sum_of(s->stall);
        assert(sum <= s->ns[MR_TIME_STALL]); /* X2 */
        s->stall[MR_STALL_UNKNOWN] += s->ns[MR_TIME_STALL] - sum;
    }
}

/* ---- workers ---- */

static void describe_worker(struct explain_job *j, const struct explain_lane *l, struct mr_explain_worker *w)
{
    uint64_t busy = 0, cpu = 0;
    bool known = true;
    for (uint32_t i = l->make; i < l->make + l->makes; i++) {
        const struct explain_make *m = &j->make.item[i];
        uint64_t told = sum_of(m->cause), dur = m->end - m->start;
        uint64_t part[MR_STALL_CAUSE_COUNT];
        memcpy(part, m->cause, sizeof part);
        split_rest(m, explain_span_ns(told, dur), part);
        move_delay(m, part);
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            w->ns[c] += part[c];
        busy += dur;
        known = known && m->cpu_ns != UNKNOWN;
        cpu += m->cpu_ns != UNKNOWN ? m->cpu_ns : 0;
        w->batches++;
    }
    w->start_ns = l->first_ns - j->x->start_ns;
    w->end_ns = l->last_ns - j->x->start_ns;
    w->idle_ns = explain_span_ns(busy, j->make.item[l->make + l->makes - 1].end - l->first_ns);
    w->cpu_ns = known ? cpu : UNKNOWN;
}

static int list_workers(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    uint32_t number = 0, rank = NO_INDEX;
    size_t n = 0;
    for (uint32_t i = 0; i < j->lanes; i++)
        n += j->lane[i].makes && j->lane[i].rank != NO_INDEX && !j->lane[i].consumer;
    x->worker = mr_arena_alloc(&x->arena, (n + 1) * sizeof(*x->worker));
    if (!x->worker)
        return -ENOMEM;
    for (uint32_t i = 0; i < j->lanes; i++) {
        struct explain_lane *l = &j->lane[i];
        if (!l->makes || l->rank == NO_INDEX || l->consumer)
            continue;
        const struct explain_make *m = &j->make.item[l->make];
        number = l->rank == rank ? number + 1 : 0;
        rank = l->rank;
        l->worker = (uint32_t)x->workers;
        struct mr_explain_worker *w = &x->worker[x->workers++];
        *w = (struct mr_explain_worker){.rank = l->rank,
                                        .pid = j->t->process[l->process].pid,
                                        .tid = l->tid,
                                        .id = m->worker != NO_INDEX ? m->worker : number};
        w->label = mr_arena_printf(&x->arena, "%s %u", m->own ? "reader" : "worker", w->id);
        if (!w->label)
            return -ENOMEM;
        describe_worker(j, l, w);
    }
    return 0;
}

static void sum_ranks(struct explain_job *j)
{
    for (size_t i = 0; i < j->step.n; i++) {
        const struct mr_explain_step *s = &j->step.item[i];
        struct mr_explain_rank *r = &j->x->rank[s->rank];
        r->steps++;
        r->behind_ns += s->behind_ns;
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            r->stall[c] += s->stall[c];
        if (s->accelerator_idle_ns != UNKNOWN)
            r->accelerator_idle_ns += s->accelerator_idle_ns;
    }
}

int mr_explain_attribute_stalls(struct explain_job *j)
{
    struct blame *all = calloc(j->wait.n + 1, sizeof(*all));
    uint32_t *of_make = malloc((j->make.n + 1) * sizeof(*of_make));
    int rc = all && of_make ? list_workers(j) : -ENOMEM;
    for (size_t i = 0; i < j->make.n && !rc; i++)
        of_make[i] = NO_INDEX;
    for (uint32_t i = 0; i < j->wait.n && !rc; i++) {
        all[i].file = NO_INDEX;
        if (j->wait.item[i].make != NO_INDEX)
            of_make[j->wait.item[i].make] = i;
    }
    for (size_t i = 0; i < j->ask.n && !rc; i++)
        blame_ask(j, &j->ask.item[i], &all[j->ask.item[i].wait]);
    for (size_t i = 0; i < j->wait.n && !rc; i++)
        if (j->wait.item[i].step != NO_INDEX && !j->wait.item[i].last)
            blame_wait(j, of_make, &j->wait.item[i], &all[i]);
    if (!rc) {
        blame_steps(j, all);
        sum_ranks(j);
    }
    free(all);
    free(of_make);
    return rc;
}
