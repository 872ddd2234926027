/* Training loops without a data loader: the thread that trains reads its data itself, or takes it from a pool, a queue,
 * an event loop. Nobody tells of its waits; they are found from what the thread did between its train spans (backward,
 * optimizer.step), in one more pass over its own events.
 *
 *   ...step|      |load|    |load|  forward   |backward||step|   |load| ...
 *          |<---------- gap ----------------->|       |<>|   |<--
 *                 |<--- wait ---->|<- tail -->|
 *
 *  H1. Data activity is a read of a file, a span of a reader, decoder or transform, and taking something over. Calls on
 *      metadata, pipes and sockets count where they lie beside it, or take a millisecond. What lies inside train spans,
 *      checkpoints, barriers and imports does not, nor do writes, /proc, code and terminals.
 *  H2. Activities less than a tenth of the gap apart (0.1 to 1 ms) are one wait. Longer holes are compute, but for gaps
 *      with four waits or more: nobody computes between so many reads of one step, so that they are one, and the holes
 *      are decoding. Time before the first activity is the end of the step before (loss.item(), a log). Where it is
 *      told when the forward pass began (forward_ns), what the loop did from its first read until then is the wait,
 *      unless a device is in use, for which copies wait.
 *  H3. A step begins with the first wait of a gap, unless that lies between a backward pass and its optimiser. Without
 *      waits it begins behind an optimiser's step, when the next one of the same optimiser comes: a loop may have
 *      several. So a step is a batch, as with a loader: passes that accumulate gradients are steps. In a program that
 *      has no optimiser each backward pass is one's step.
 *      Where calls of whole models are in the trace (`forward`), they part the waits: reads with none between them are
 *      one, which lasts until the next call.
 *  H4. A wait before a call without gradients or in eval mode is a step of an evaluation, unless most steps have such
 *      calls (a teacher's). Without calls of models: a gap that is much longer than the others, with several waits, is an evaluation: each wait but the last is a
 *      step of it.
 *  H6. Readers of lines and compressed files read much at once: where gaps without a read take as long before the forward
 *      pass as those with one, or half as long, all of that time is the wait.
 *  H7. A program without optimisers and backward passes only calls models: each call of one is a step.
 *  H5. What cannot be told makes the verdict "incomplete": sleep in no call and no span (awake_ns), and computing that
 *      may be decoding: holes, what lies between reads and the forward pass, and where that is not told, tails that are
 *      longer than a forward pass takes. A device that computes beside the loop (JAX) is idle while the loop loads if the
 *      loop waits for it in most steps, or hardly at all. */
#include "base/common.h"
#include "explain/explain_hand.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NEAR_NS 20000u     /* between calls: one activity */
#define HOLE_LEAST 100000u /* H2 */
#define HOLE_MOST 1000000u
#define LONG_CALLS 1000000u /* H1: in calls that are data only if they take long */
#define MANY_WAITS 4u       /* H2 */
#define EVAL_TIMES 8u       /* H4: the usual gap */
#define EVAL_WAITS 3u
#define FAULTS_MANY 4u      /* H2 */
#define PAGES_SHARE 0.2     /* H2: of the time before the forward pass */
#define FORWARD_TIMES 0.5   /* H5: a backward pass: so long a forward pass takes */
#define HIDDEN 0.2          /* H5: of the time, asleep */
#define UNCLEAR 0.1         /* H5: of the time, on a CPU */
#define START_NS 1000000000 /* before the first train span: the first forward pass prepares itself */

/* ---- what the thread did ---- */

/* H1. False: nothing that is known of the thread's time. */
static bool judge_call(const struct explain_job *j, const struct mr_event_batch *b, uint32_t i, uint32_t file,
                       struct act *a)
{
    const struct explain_file *f = file != NO_INDEX ? &j->file.item[file] : NULL;
    unsigned kind = j->call_kind[b->c.call[i]];
    int64_t result = b->c.result[i] == MR_NO_RESULT ? 0 : b->c.result[i];
    bool reads = kind == MR_EV_READ || kind == MR_EV_COPY;
    unsigned wait = mr_explain_wait_class(j, b->c.call[i], f ? f->kind : MR_FD_UNKNOWN, a->end - a->start, result);
    if (wait == MR_WAIT_CLASS_COUNT)
        return false;
    a->kind = KNOWN;
    if (f && (f->code || f->log || f->saved || f->state || f->kind == MR_FD_TTY))
        return true;
    if (wait == MR_WAIT_METADATA)
        a->kind = WEAK;
    else if (wait == MR_WAIT_STORAGE || wait == MR_WAIT_PAGE_CACHE)
        a->kind = !reads ? KNOWN : result > 0 ? STRONG : WEAK;
    else if (reads || kind == MR_EV_WAIT)
        a->kind = WEAK;
    if (wait == MR_WAIT_IPC && a->kind == WEAK)
        a->taken = a->end - a->start;
    return true;
}

static bool judge_span(const struct hand *h, const struct mr_region_class *c, struct act *a)
{
    switch (c->role) {
    case MR_ROLE_HANDOVER:
        a->taken = a->end - a->start;
        a->kind = STRONG;
        return true;
    case MR_ROLE_INSIDE: a->kind = STRONG; return true;
    case MR_ROLE_PART: a->kind = STRONG; return c->cause == MR_REGION_DECODE || c->cause == MR_REGION_TRANSFORM;
    case MR_ROLE_RESTORE: a->kind = h->loads ? STRONG : KNOWN; return true;
    case MR_ROLE_BACKWARD:
    case MR_ROLE_FORWARD:
    case MR_ROLE_OPTIMIZER:
    case MR_ROLE_JIT:
    case MR_ROLE_DEVICE:
    case MR_ROLE_SAVE:
    case MR_ROLE_DRAIN_WAIT:
    case MR_ROLE_BARRIER:
    case MR_ROLE_COPY:
    case MR_ROLE_STARTUP: a->kind = KNOWN; return true;
    default: return false;
    }
}

/* Events come in the order of their ends: what lies inside a span has come before it, and is the span's. */
static int add_act(struct hand *h, struct act a)
{
    struct act *last = h->act.n ? &h->act.item[h->act.n - 1] : NULL;
    uint64_t taken = 0;
    for (; last && last->start >= a.start; last = h->act.n ? last - 1 : NULL) {
        taken += last->taken;
        h->act.n--;
    }
    a.taken = MR_MAX(a.taken, a.kind == KNOWN ? 0 : taken);
    if (last && last->kind == a.kind && a.start >= last->end && a.start - last->end <= NEAR_NS) {
        last->end = a.end;
        last->taken += a.taken;
        return 0;
    }
    last = MR_VEC_ADD(&h->act);
    if (!last)
        return -ENOMEM;
    *last = a;
    return 0;
}

static int read_chunk(struct hand *h, const struct mr_event_batch *b)
{
    const struct explain_job *j = h->j;
    uint32_t process = j->lane[h->lane].process, strings = j->t->process[process].strings;
    int rc = 0;
    for (uint32_t i = 0; i < b->count && !rc; i++) {
        uint32_t id = b->c.file[i], call = b->c.call[i];
        struct act a = {.start = b->c.start_ns[i], .end = b->c.end_ns[i]};
        bool counts = false;
        if (call > MR_CALL_metadata)
            counts = judge_call(j, b, i,
                                id < strings && j->file_of[process][id] ? j->file_of[process][id] - 1 : NO_INDEX, &a);
        else if (call == MR_CALL_region && id < strings)
            counts = judge_span(h, &j->site[process][id], &a);
        if (counts && j->rank[h->rank].held.n && mr_intervals_has(&j->rank[h->rank].held, a.start))
            a.kind = KNOWN, a.taken = 0;
        rc = counts ? add_act(h, a) : 0;
    }
    return rc;
}

static int act_order(const void *a, const void *b)
{
    const struct act *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static int read_lane(struct hand *h, struct mr_error *err)
{
    struct explain_job *j = h->j;
    const struct explain_lane *l = &j->lane[h->lane];
    uint64_t to = h->train.item[h->train.n - 1].end;
    for (size_t c = l->chunk; c < l->chunk + l->chunks; c++) {
        if (!j->t->chunk[c].count || j->t->chunk[c].first_ns > to)
            continue;
        int rc = mr_trace_read(j->t, c, MR_WANT_TIME | MR_WANT_CALL | MR_WANT_FILE | MR_WANT_RESULT | MR_WANT_FD,
                               &j->worker[0].batch, err);
        if (rc)
            return rc;
        if (read_chunk(h, &j->worker[0].batch))
            return mr_error_set(err, -ENOMEM, "cannot explain the trace");
    }
    if (h->act.n) /* spans of coroutines may overlap */
        qsort(h->act.item, h->act.n, sizeof(*h->act.item), act_order);
    return 0;
}

/* ---- waits ---- */

static bool is_taken(const struct phase *p)
{
    return 2 * p->taken > p->end - p->start;
}

static int add_wait(struct hand *h, const struct phase *p, uint64_t cpu)
{
    struct explain_job *j = h->j;
    struct explain_rank *r = &j->rank[h->rank];
    bool taken = is_taken(p);
    struct explain_wait *w = MR_VEC_ADD(&j->wait);
    if (!w)
        return -ENOMEM;
    r->waits++;
    *w = (struct explain_wait){.start = p->start,
                               .end = p->end,
                               .batch = r->waits - 1,
                               .loader = UNKNOWN,
                               .rows = UNKNOWN,
                               .bytes = UNKNOWN,
                               .workers = UNKNOWN,
                               .prefetch = UNKNOWN,
                               .begun = r->waits > 1 ? w[-1].begun : p->start,
                               .requested = UNKNOWN,
                               .ready = UNKNOWN,
                               .sums = {.readers = UNKNOWN},
                               .idle = UNKNOWN,
                               .cpu = UNKNOWN,
                               .own_cpu = cpu,
                               .between = UNKNOWN,
                               .rank = h->rank,
                               .lane = h->lane,
                               .step = NO_INDEX,
                               .make = NO_INDEX,
                               .taken = taken};
    *(taken ? &h->taken : &h->own) += p->end - p->start;
    return 0;
}

/* Joins an act to the gap's phases, or begins one. */
static int add_phase(struct hand *h, const struct act *a, uint64_t from, uint64_t to, uint64_t hole)
{
    struct phase *p = h->phase.n ? &h->phase.item[h->phase.n - 1] : NULL;
    uint64_t start = MR_MAX(a->start, from), end = MR_MIN(a->end, to);
    if (!p || start > p->end + hole) {
        p = MR_VEC_ADD(&h->phase);
        if (!p)
            return -ENOMEM;
        *p = (struct phase){.start = start, .end = end};
    }
    p->end = MR_MAX(p->end, end);
    p->taken += MR_MIN(a->taken, end - start);
    p->weak += a->kind == WEAK ? end - start : 0;
    p->strong |= a->kind == STRONG;
    return 0;
}

/* The phases of a gap (H1, H2). *known: how long the thread was in calls and spans. */
static int find_phases(struct hand *h, uint64_t from, uint64_t to, uint64_t *known)
{
    uint64_t hole = MR_MIN(MR_MAX((to - from) / 10, (uint64_t)HOLE_LEAST), (uint64_t)HOLE_MOST), until = from;
    size_t n = 0;
    h->phase.n = 0;
    *known = 0;
    while (h->at < h->act.n && h->act.item[h->at].end <= from)
        h->at++;
    for (size_t i = h->at; i < h->act.n && h->act.item[i].start < to; i++) {
        const struct act *a = &h->act.item[i];
        *known += explain_span_ns(MR_MAX(a->start, until), MR_MIN(a->end, to));
        until = MR_MAX(until, a->end);
        if (a->end > from && a->kind != KNOWN && add_phase(h, a, from, to, hole))
            return -ENOMEM;
    }
    for (size_t i = 0; i < h->phase.n; i++)
        if (h->phase.item[i].strong || h->phase.item[i].weak >= LONG_CALLS)
            h->phase.item[n++] = h->phase.item[i];
    h->phase.n = n;
    return 0;
}

/* H2: so many reads of one step are one wait. */
static void join_phases(struct hand *h)
{
    struct phase *p = h->phase.item;
    for (size_t i = 1; i < h->phase.n; i++) {
        p->end = p[i].end;
        p->taken += p[i].taken;
    }
    h->phase.n = 1;
}

static bool begin_step(struct hand *h, uint64_t at, bool evaluates)
{
    struct explain_rank *r = &h->j->rank[h->rank];
    struct explain_begin *b = MR_VEC_ADD(&r->begin);
    if (b)
        *b = (struct explain_begin){.at = at, .evaluates = evaluates};
    h->seen = 0;
    return b != NULL;
}

/* H2: pages of mapped files are read without a call. Where nothing else is before the forward pass, the sleep for them
 * right before it is the wait; all of that time where many pages were read and the sleep is a good part of it, as the
 * rest puts a batch together. Returns the sleep for pages. */
static uint64_t fault_phase(struct hand *h, const struct train *t, uint64_t from, uint64_t known)
{
    uint64_t len = t->start - from,
             asleep = t->awake != UNKNOWN ? explain_span_ns(MR_MIN(t->awake + known, len), len) : 0;
    const struct explain_make m = {.start = from, .end = from + asleep, .cpu_ns = 0, .faults = t->faults};
    uint64_t slept = t->faults ? (uint64_t)mr_explain_fault_ns(&m) : 0;
    if (slept < LONG_CALLS || h->phase.n || t->forward == UNKNOWN || t->forward <= from)
        return slept;
    bool all = t->faults >= FAULTS_MANY && (double)slept >= PAGES_SHARE * (double)(t->forward - from);
    struct phase *p = MR_VEC_ADD(&h->phase);
    if (p)
        *p = (struct phase){
            .start = all ? from : t->forward - MR_MIN(slept, t->forward - from), .end = t->forward, .strong = true};
    return slept;
}

/* H5: what a gap leaves open. */
static void doubt_gap(struct hand *h, size_t i, uint64_t from, uint64_t known, bool usual)
{
    const struct train *t = &h->train.item[i];
    uint64_t len = t->start - from, asleep = t->awake != UNKNOWN ? explain_span_ns(t->awake, len) : len;
    h->asleep += i ? explain_span_ns(known, asleep) : 0;
    if (!usual || !h->phase.n)
        return;
    for (size_t k = 1; k < h->phase.n; k++)
        h->unclear += h->phase.item[k].start - h->phase.item[k - 1].end;
    const struct phase *last = &h->phase.item[h->phase.n - 1];
    if (t->forward != UNKNOWN && t->forward >= last->end) {
        h->unclear += t->forward - last->end;
    } else if (!is_taken(last)) { /* of what is taken over, whoever made it decoded it */
        h->tails += t->start - last->end;
        h->backs += t->end - t->start;
    }
}

/* H2: where models' calls are known, reads with none between them are one wait, which lasts until the next one; behind
 * the last one until the train span: the next batch is fetched early. False: no call in this gap. */
static bool part_phases(struct hand *h, uint64_t from, const struct train *t)
{
    struct phase *p = h->phase.item;
    size_t n = 0;
    if (!mr_hand_next_forward(h, from, t->start) || !h->phase.n)
        return false;
    for (size_t i = 1; i < h->phase.n; i++) {
        if (mr_hand_next_forward(h, p[n].end, p[i].start)) {
            p[++n] = p[i];
            continue;
        }
        p[n].end = p[i].end;
        p[n].taken += p[i].taken;
    }
    h->phase.n = n + 1;
    for (size_t i = 0; i <= n; i++) {
        const struct forward *f = mr_hand_next_forward(h, p[i].end, i < n ? p[i + 1].start : t->start);
        p[i].evaluates = f && f->evaluates && !h->teaches;
        if (!t->device && !is_taken(&p[i]))
            p[i].end = f ? f->start : t->start;
    }
    return true;
}

/* H2: until the forward pass all that a loop does with what it read is the wait. */
static void stretch_phases(struct hand *h, const struct train *t)
{
    struct phase *last = h->phase.n ? &h->phase.item[h->phase.n - 1] : NULL;
    if (!last || t->forward == UNKNOWN || t->forward < last->end || t->device || is_taken(last))
        return;
    last->end = t->forward;
    join_phases(h);
}

/* H6 */
static int fill_gap(struct hand *h, const struct train *t, uint64_t from, bool parted)
{
    uint64_t taken = 0;
    if (t->forward == UNKNOWN || t->forward <= from || t->device)
        return 0;
    if (parted && h->phase.n) { /* what models are called for later in the gap has waits of its own */
        h->phase.item[0].start = from;
        return 0;
    }
    for (size_t i = 0; i < h->phase.n; i++)
        taken += h->phase.item[i].taken;
    h->phase.n = 0;
    struct phase *p = MR_VEC_ADD(&h->phase);
    if (p)
        *p = (struct phase){.start = from, .end = t->forward, .taken = taken, .strong = true};
    return p ? 0 : -ENOMEM;
}

/* The time before a train span. `from`: where it can begin at the earliest. */
static int do_gap(struct hand *h, size_t i, uint64_t from)
{
    const struct train *t = &h->train.item[i];
    uint64_t known, all = 0, len = t->start - from;
    bool inside = i && t->steps && !t[-1].steps; /* between a backward pass and its optimiser */
    if (find_phases(h, from, t->start, &known))
        return -ENOMEM;
    known += fault_phase(h, t, from, known);
    bool unusual = len > EVAL_TIMES * h->usual, parted = part_phases(h, from, t);
    bool evaluates = i && unusual && h->phase.n >= EVAL_WAITS && !parted;
    if (h->bursts && !inside && fill_gap(h, t, from, parted))
        return -ENOMEM;
    if (h->phase.n >= MANY_WAITS && !evaluates && !parted)
        join_phases(h);
    if (!evaluates && !parted)
        stretch_phases(h, t);
    for (size_t k = 0; k + 1 < h->phase.n && evaluates; k++)
        h->phase.item[k].evaluates = true;
    unusual |= parted;
    doubt_gap(h, i, from, known, !unusual);
    for (size_t k = 0; k < h->phase.n; k++)
        all += h->phase.item[k].end - h->phase.item[k].start;
    for (size_t k = 0; k < h->phase.n; k++) {
        const struct phase *p = &h->phase.item[k];
        uint64_t wait = p->end - p->start, slept = t->awake != UNKNOWN ? explain_span_ns(t->awake, len) : UNKNOWN;
        uint64_t part = slept != UNKNOWN && all ? (uint64_t)((double)slept * (double)wait / (double)all) : 0;
        if (add_wait(h, p, slept != UNKNOWN ? explain_span_ns(part, wait) : UNKNOWN))
            return -ENOMEM;
        struct explain_wait *w = &h->j->wait.item[h->j->wait.n - 1];
        if (len) {
            w->own_delay = (uint64_t)((double)t->delay * (double)wait / (double)len);
            w->threads = (uint64_t)((double)t->threads * (double)wait / (double)len);
            w->threads_delay = (uint64_t)((double)t->threads_delay * (double)wait / (double)len);
        }
        w->faults = all ? (uint64_t)((double)t->faults * (double)wait / (double)all + 0.5) : 0;
        bool begins = (!k && !inside) || p->evaluates || (k && p[-1].evaluates);
        if (begins && !begin_step(h, p->start, p->evaluates))
            return -ENOMEM;
    }
    return 0;
}

/* H3 */
static int count_optimizer(struct hand *h, const struct train *t)
{
    uint64_t bit = t->optimizer != UNKNOWN ? 1ull << (t->optimizer & 63) : 1;
    if (!t->steps)
        return 0;
    if (h->seen & bit && !begin_step(h, h->stepped, false))
        return -ENOMEM;
    h->seen |= bit;
    h->stepped = t->end;
    return 0;
}

static bool is_data(const struct act *a)
{
    return a->kind == STRONG || (a->kind == WEAK && a->end - a->start >= LONG_CALLS);
}

/* Whether the loop has data activity in a good part of its steps, of which a batch may have several. */
static bool has_data(const struct hand *h)
{
    const struct train *t = h->train.item;
    size_t acts = 0, steps = 0, at = 0;
    for (size_t i = 1; i < h->train.n; i++) {
        bool any = false;
        for (; at < h->act.n && h->act.item[at].start < t[i].start; at++)
            any |= h->act.item[at].start >= t[i - 1].end && is_data(&h->act.item[at]);
        acts += any;
        steps += t[i].steps;
    }
    return 4 * acts >= steps;
}

/* Of the phases before the first train span those that are the start-up's: all that end before the evaluation begins,
 * but for the last one, which is its first wait. */
static void drop_startup(struct hand *h, uint64_t evaluates)
{
    struct phase *p = h->phase.item;
    size_t skip = 0;
    while (skip + 1 < h->phase.n && p[skip + 1].end <= evaluates)
        skip++;
    if (skip)
        memmove(p, p + skip, (h->phase.n - skip) * sizeof(*p));
    h->phase.n -= skip;
}

/* H4: a program may evaluate before its first step. The last wait is that of the first step, unless a model is called
 * without gradients behind it. */
static int first_evaluation(struct hand *h, uint64_t first, const struct forward *f)
{
    const struct train *t = h->train.item;
    uint64_t known, from = MR_MAX(explain_span_ns(START_NS, f->start), first);
    if (find_phases(h, from, t->start, &known))
        return -ENOMEM;
    drop_startup(h, f->start);
    if (!has_data(h))
        h->phase.n = 0;
    part_phases(h, from, t);
    bool evaluates = !h->phase.n || h->phase.item[0].start > f->start, begun = evaluates;
    if (evaluates && !begin_step(h, f->start, true))
        return -ENOMEM;
    for (size_t k = 0; k < h->phase.n; k++) {
        const struct phase *p = &h->phase.item[k];
        if (add_wait(h, p, UNKNOWN) ||
            ((!begun || p->evaluates || evaluates) && !begin_step(h, p->start, p->evaluates)))
            return -ENOMEM;
        evaluates = p->evaluates;
        begun = true;
    }
    return evaluates && !begin_step(h, t->start, false) ? -ENOMEM : 0;
}

/* The first call of a model before the first train span, if that evaluates; NULL: none. */
static const struct forward *evaluates_first(const struct hand *h, uint64_t first)
{
    const struct forward *f = mr_hand_next_forward(h, first, h->train.item[0].start);
    return f && f->evaluates && !h->teaches ? f : NULL;
}

/* Before the first train span the program starts up: the last activity before it is the wait of the first step. */
static int first_gap(struct hand *h)
{
    const struct explain_lane *l = &h->j->lane[h->lane];
    const struct train *t = h->train.item;
    uint64_t first = MR_MIN(MR_MAX(l->first_ns, h->j->rank[h->rank].from), t->start), known;
    const struct forward *evaluates = evaluates_first(h, first);
    if (evaluates)
        return first_evaluation(h, first, evaluates);
    uint64_t from = MR_MAX(explain_span_ns(2 * h->usual + START_NS, t->start), first);
    while (h->at < h->act.n && h->act.item[h->at].end <= from)
        h->at++;
    if (h->at < h->act.n && h->act.item[h->at].kind == STRONG)
        from = MR_MIN(from, h->act.item[h->at].start);
    if (find_phases(h, from, t->start, &known))
        return -ENOMEM;
    if (!h->phase.n || !has_data(h))
        return begin_step(h, t->start, false) ? 0 : -ENOMEM;
    struct phase p = h->phase.item[h->phase.n - 1];
    for (size_t k = h->phase.n - 1; k-- > 0 && h->phase.n >= MANY_WAITS && h->phase.item[k].start + h->usual >= p.end;)
        p.start = h->phase.item[k].start;
    const struct forward *f = mr_hand_next_forward(h, p.end, t->start);
    if (f && !t->device && !is_taken(&p))
        p.end = f->start;
    return add_wait(h, &p, UNKNOWN) || !begin_step(h, p.start, false) ? -ENOMEM : 0;
}

/* A loop that reads by itself makes its batches itself, as a loader without workers does. */
static int make_batches(struct hand *h)
{
    struct explain_job *j = h->j;
    const struct explain_rank *r = &j->rank[h->rank];
    for (uint32_t i = r->wait; i < r->wait + r->waits && h->own > h->taken; i++) {
        struct explain_wait *w = &j->wait.item[i];
        if (w->taken)
            continue;
        struct explain_make *m = MR_VEC_ADD(&j->make);
        if (!m)
            return -ENOMEM;
        w->workers = w->prefetch = 0;
        *m = (struct explain_make){.start = w->start,
                                   .end = w->end,
                                   .epoch = UNKNOWN,
                                   .batch = w->batch,
                                   .loader = UNKNOWN,
                                   .cpu_ns = w->own_cpu,
                                   .threads_ns = w->threads,
                                   .threads_delay = w->threads_delay,
                                   .delay_ns = w->own_cpu != UNKNOWN ? w->own_delay : 0,
                                   .faults = w->faults,
                                   .worker = NO_INDEX,
                                   .lane = h->lane};
    }
    return 0;
}

/* H5. Where the waits that are known are more, they decide. */
static void doubt(struct hand *h)
{
    const struct train *t = h->train.item;
    uint64_t all = t[h->train.n - 1].end - t[0].start, waits = h->own + h->taken;
    uint64_t forward = (uint64_t)(FORWARD_TIMES * (double)h->backs), unclear = h->unclear;
    unclear += explain_span_ns(forward, h->tails);
    if ((double)h->asleep > HIDDEN * (double)all && h->asleep > waits)
        h->j->blind = MR_BLIND_ASLEEP;
    else if (mr_explain_device_overlaps(h->j, h->rank, h->lane, waits))
        h->j->blind = MR_BLIND_ASYNC;
    else if ((double)unclear > UNCLEAR * (double)all && unclear > waits)
        h->j->blind = MR_BLIND_DECODE;
}

static int find_waits(struct hand *h)
{
    struct explain_rank *r = &h->j->rank[h->rank];
    r->consumer = h->lane;
    r->passer = NO_INDEX;
    r->hand = true;
    r->wait = (uint32_t)h->j->wait.n;
    h->j->lane[h->lane].consumer = true;
    int rc = first_gap(h);
    for (size_t i = 0; i < h->train.n && !rc; i++) {
        rc = i ? do_gap(h, i, h->train.item[i - 1].end) : 0;
        rc = rc ? rc : count_optimizer(h, &h->train.item[i]);
    }
    r->trained = h->train.item[h->train.n - 1].end;
    if (!rc)
        doubt(h);
    return rc ? rc : make_batches(h);
}

static int hand_rank(struct explain_job *j, uint32_t rank, struct mr_error *err)
{
    struct hand h = {.j = j, .rank = rank, .lane = mr_explain_trainer_of(j, &j->rank[rank])};
    int rc = 0;
    if (j->rank[rank].consumer != NO_INDEX || h.lane == NO_INDEX)
        return 0;
    if (mr_hand_list_train(&h))
        rc = mr_error_set(err, -ENOMEM, "cannot explain the trace");
    rc = rc ? rc : read_lane(&h, err);
    if (!rc && (mr_hand_find_bursts(&h) || find_waits(&h)))
        rc = mr_error_set(err, -ENOMEM, "cannot explain the trace");
    free(h.act.item);
    free(h.train.item);
    free(h.phase.item);
    free(h.forward.item);
    return rc;
}

int mr_explain_find_hand(struct explain_job *j, struct mr_error *err)
{
    size_t makes = j->make.n;
    int rc = 0;
    for (uint32_t r = 0; r < j->ranks && !rc && !j->run; r++)
        if (!(rc = hand_rank(j, r, err)) && j->rank[r].hand)
            mr_explain_place_facts(j, &j->rank[r]);
    if (!rc && j->make.n > makes)
        mr_explain_sort_makes(j);
    return rc;
}
