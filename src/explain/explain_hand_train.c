/* Loops without a data loader: the spans by which steps are found, of the thread that trains. */
#include "base/common.h"
#include "explain/explain_hand.h"

#include <errno.h>
#include <stdlib.h>

#define STEPS_LEAST 3u    /* of the optimiser: fewer are no loop */
#define BURSTS_LEAST 2u   /* H6: gaps with a read, behind the first batch */
#define BURST_NS 1000000u /* H6: of the others, before the forward pass */

/* ---- whose ---- */

/* What a step of the rank has at its end. A program may change its weights by hand, without an optimiser: a backward
 * pass. One that only evaluates calls models (H7). */
static unsigned step_role(const struct explain_job *j, const struct explain_rank *r)
{
    static const uint8_t roles[] = {MR_ROLE_OPTIMIZER, MR_ROLE_BACKWARD};
    for (unsigned k = 0; k < MR_ARRAY_LEN(roles); k++)
        for (uint32_t i = r->span; i < r->span + r->spans; i++)
            if (j->span.item[i].role == roles[k])
                return roles[k];
    return MR_ROLE_FORWARD;
}

/* The one thread with these spans, of a rank that nobody else tells of; NO_INDEX: none. */
uint32_t mr_explain_trainer_of(const struct explain_job *j, const struct explain_rank *r)
{
    uint32_t lane = NO_INDEX, steps = 0;
    unsigned role = step_role(j, r);
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &j->span.item[i];
        if (s->role != role || (role == MR_ROLE_OPTIMIZER && s->arg[KEY_OPTIMIZER] == UNKNOWN))
            continue; /* none, or a whole compiled step (TensorFlow), of which nobody knows what it waits for */
        if (lane != NO_INDEX && s->lane != lane)
            return NO_INDEX;
        lane = s->lane;
        steps++;
    }
    return steps >= STEPS_LEAST ? lane : NO_INDEX;
}

static uint64_t or_0(uint64_t v)
{
    return v != UNKNOWN ? v : 0;
}

/* Other compiled functions' figures of the time before the next train span, which counts from the last of them. */
static void carry_over(struct train *to, const struct explain_span *s)
{
    to->awake += or_0(s->arg[KEY_AWAKE]);
    to->threads += or_0(s->arg[KEY_THREADS]);
    to->threads_delay += or_0(s->arg[KEY_THREADS_DELAY]);
    to->delay += or_0(s->arg[KEY_DELAY]);
    to->faults += or_0(s->arg[KEY_FAULTS]);
}

/* Train spans, the outer one where one lies in another (an optimiser that calls back). */
static int list_train(struct hand *h)
{
    const struct explain_rank *r = &h->j->rank[h->rank];
    unsigned role = step_role(h->j, r);
    struct train before = {0};
    uint64_t until = 0;
    for (uint32_t i = r->span; i < r->span + r->spans; i++) {
        const struct explain_span *s = &h->j->span.item[i];
        bool passes = s->role == MR_ROLE_BACKWARD, steps = s->role == role;
        if (s->lane != h->lane || s->start < until)
            continue;
        if (!steps && !passes) {
            if (s->role == MR_ROLE_JIT || s->role == MR_ROLE_FORWARD)
                carry_over(&before, s);
            continue;
        }
        struct train *t = MR_VEC_ADD(&h->train);
        if (!t)
            return -ENOMEM;
        *t = (struct train){.start = s->start,
                            .end = s->end,
                            .awake = s->arg[KEY_AWAKE] != UNKNOWN ? s->arg[KEY_AWAKE] + before.awake : UNKNOWN,
                            .threads = or_0(s->arg[KEY_THREADS]) + before.threads,
                            .threads_delay = or_0(s->arg[KEY_THREADS_DELAY]) + before.threads_delay,
                            .delay = or_0(s->arg[KEY_DELAY]) + before.delay,
                            .faults = or_0(s->arg[KEY_FAULTS]) + before.faults,
                            .optimizer = s->arg[KEY_OPTIMIZER],
                            .forward = role == MR_ROLE_FORWARD           ? s->start
                                       : s->arg[KEY_FORWARD] <= s->start ? s->start - s->arg[KEY_FORWARD]
                                                                         : UNKNOWN,
                            .device = s->arg[KEY_DEVICE] == 1,
                            .steps = steps};
        before = (struct train){0};
        until = s->end;
    }
    return 0;
}

/* Calls of whole models. In most gaps between train spans: a teacher's, of each step. */
static int list_forward(struct hand *h)
{
    const struct explain_rank *r = &h->j->rank[h->rank];
    size_t gaps = 0, at = 0;
    bool only = step_role(h->j, r) == MR_ROLE_FORWARD; /* they are train spans */
    for (uint32_t i = r->span; i < r->span + r->spans && !only; i++) {
        const struct explain_span *s = &h->j->span.item[i];
        if (s->lane != h->lane || s->role != MR_ROLE_FORWARD)
            continue;
        struct forward *f = MR_VEC_ADD(&h->forward);
        if (!f)
            return -ENOMEM;
        *f = (struct forward){s->start, s->end, s->arg[KEY_EVALUATES] == 1};
    }
    for (size_t i = 1; i < h->train.n; i++) {
        bool evaluates = false;
        for (; at < h->forward.n && h->forward.item[at].start < h->train.item[i].start; at++)
            evaluates |= h->forward.item[at].start >= h->train.item[i - 1].end && h->forward.item[at].evaluates;
        gaps += evaluates;
    }
    size_t steps = 0;
    for (size_t i = 1; i < h->train.n; i++)
        steps += h->train.item[i].steps;
    h->teaches = 2 * gaps > steps;
    return 0;
}

const struct forward *mr_hand_next_forward(const struct hand *h, uint64_t at, uint64_t to)
{
    size_t lo = 0, hi = h->forward.n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (h->forward.item[mid].start < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < h->forward.n && h->forward.item[lo].start < to ? &h->forward.item[lo] : NULL;
}

/* Files of tensors are read with torch.load(), as checkpoints are: those that come with every other step are data. */
static void find_loads(struct hand *h)
{
    const struct explain_rank *r = &h->j->rank[h->rank];
    uint32_t loads = 0, steps = 0;
    for (unsigned pass = 0; pass < 2; pass++)
        for (uint32_t i = r->span; i < r->span + r->spans; i++) {
            struct explain_span *s = &h->j->span.item[i];
            if (s->lane != h->lane)
                continue;
            loads += !pass && s->role == MR_ROLE_RESTORE && s->start > h->train.item[0].start;
            steps += !pass && s->role == MR_ROLE_OPTIMIZER;
            h->loads = 2 * loads >= steps;
            if (pass && h->loads && s->role == MR_ROLE_RESTORE)
                s->role = MR_ROLE_NONE; /* no checkpoint */
        }
}

static int gap_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The median of the gaps before a backward pass; before any where there is none. */
static int find_usual(struct hand *h)
{
    uint64_t *gap = malloc((h->train.n + 1) * sizeof(*gap));
    size_t n = 0;
    if (!gap)
        return -ENOMEM;
    for (unsigned any = 0; any < 2 && !n; any++)
        for (size_t i = 1; i < h->train.n; i++)
            if (any || !h->train.item[i].steps)
                gap[n++] = explain_span_ns(h->train.item[i - 1].end, h->train.item[i].start);
    qsort(gap, n, sizeof(*gap), gap_order);
    h->usual = n ? gap[n / 2] : 0;
    free(gap);
    return 0;
}

int mr_hand_list_train(struct hand *h)
{
    int rc = list_train(h);
    rc = rc ? rc : find_usual(h);
    rc = rc ? rc : list_forward(h);
    if (!rc)
        find_loads(h);
    return rc;
}

static uint64_t median(uint64_t *v, size_t n)
{
    if (n)
        qsort(v, n, sizeof(*v), gap_order);
    return n ? v[n / 2] : 0;
}

/* Whether a gap has a read, and moves *at to the first act behind its beginning. */
static bool has_read(const struct hand *h, uint64_t from, uint64_t to, size_t *at)
{
    while (*at < h->act.n && h->act.item[*at].end <= from)
        (*at)++;
    for (size_t k = *at; k < h->act.n && h->act.item[k].start < to; k++)
        if (h->act.item[k].kind == STRONG && h->act.item[k].start >= from)
            return true;
    return false;
}

int mr_hand_find_bursts(struct hand *h)
{
    uint64_t *gap[2] = {malloc((h->train.n + 1) * sizeof(uint64_t)), malloc((h->train.n + 1) * sizeof(uint64_t))};
    size_t n[2] = {0}, at = 0, passes = 0;
    int rc = gap[0] && gap[1] ? 0 : -ENOMEM;
    for (size_t i = 0; i < h->train.n; i++)
        passes += !h->train.item[i].steps;
    for (size_t i = 1; i < h->train.n && !rc; i++) {
        const struct train *t = &h->train.item[i];
        uint64_t from = t[-1].end;
        if ((passes && t->steps) || t->forward == UNKNOWN || t->forward <= from || t->device ||
            mr_hand_next_forward(h, from, t->forward))
            continue;
        bool reads = has_read(h, from, t->forward, &at);
        gap[reads][n[reads]++] = t->forward - from;
    }
    uint64_t with = rc ? 0 : median(gap[1], n[1]), without = rc ? 0 : median(gap[0], n[0]);
    h->bursts = n[1] >= BURSTS_LEAST && 3 * n[0] >= n[1] && without >= BURST_NS && 2 * without >= with;
    free(gap[0]);
    free(gap[1]);
    return rc;
}
