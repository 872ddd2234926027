/* Who made whom wait. Ranks meet in each training step, at its barriers or collective calls:
 *
 *   rank 0  |-- wait --|-- compute --|======== barrier ========|
 *   rank 1  |-- wait --------------------|-- compute --|= barrier =|       comes last: the others waited for it
 *
 * The one that waited least came last. What the others waited longer than it is its doing; the rest is the price of the
 * call itself. So no clock of one host is compared with that of another. What it did longer than the others since the
 * meeting before is the reason: also an evaluation or a checkpoint between two steps, which only the next meeting
 * shows. The first meeting of a run is left out: there ranks wait for each other's start. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a rank did since the meeting before. */
struct attendant {
    size_t at, end; /* its steps that are left */
    uint64_t waited;
    uint64_t ns[MR_TIME_CLASS_COUNT], stall[MR_STALL_CAUSE_COUNT];
    const struct mr_explain_step *step; /* at hand; NULL: none is left */
};

static void add_step(struct attendant *a, const struct mr_explain_step *s)
{
    a->waited += MR_MAX(s->ns[MR_TIME_BARRIER], s->collective_ns);
    for (unsigned k = 0; k < MR_TIME_CLASS_COUNT; k++)
        a->ns[k] += s->ns[k];
    for (unsigned k = 0; k < MR_STALL_CAUSE_COUNT; k++)
        a->stall[k] += s->stall[k];
}

/* Goes on to the rank's next training step; evaluations before it count, too. */
static void come(const struct mr_explanation *x, struct attendant *a)
{
    a->step = NULL;
    while (a->at < a->end && !a->step) {
        const struct mr_explain_step *s = &x->step[a->at++];
        add_step(a, s);
        a->step = s->phase == MR_EXPLAIN_TRAIN ? s : NULL;
    }
}

/* What follows the step's last barrier is for the next meeting. */
static void leave(struct attendant *a)
{
    bool met = a->step && a->step->ns[MR_TIME_BARRIER];
    memset(a->ns, 0, sizeof a->ns);
    memset(a->stall, 0, sizeof a->stall);
    a->waited = 0;
    for (unsigned k = 0; met && k < MR_TIME_CLASS_COUNT; k++)
        a->ns[k] = a->step->tail_ns[k];
}

/* Of what the last one has done since the meeting before, that far. */
static uint64_t before_meeting(const struct attendant *a, unsigned class)
{
    return a->ns[class] - (a->step->ns[MR_TIME_BARRIER] ? a->step->tail_ns[class] : 0);
}

static void blame(struct mr_explain_culprit *c, const struct attendant *a, uint32_t last, uint32_t ranks, double n)
{
    double waited = 0, others[MR_TIME_CLASS_COUNT] = {0}, causes[MR_STALL_CAUSE_COUNT] = {0};
    for (uint32_t r = 0; r < ranks; r++) {
        if (r == last || !a[r].step)
            continue;
        waited += (double)(a[r].waited - a[last].waited);
        for (unsigned k = 0; k < MR_TIME_CLASS_COUNT; k++)
            others[k] += (double)before_meeting(&a[r], k) / (n - 1);
        for (unsigned k = 0; k < MR_STALL_CAUSE_COUNT; k++)
            causes[k] += (double)a[r].stall[k] / (n - 1);
    }
    if (!(waited > 0))
        return;
    c += last;
    c->steps++;
    c->waited_ns += (uint64_t)waited;
    c->lost_ns += (uint64_t)(waited / (n - 1));
    for (unsigned k = 0; k < MR_TIME_CLASS_COUNT; k++)
        if (k != MR_TIME_BARRIER && (double)before_meeting(&a[last], k) > others[k])
            c->cause[k] += (uint64_t)((double)before_meeting(&a[last], k) - others[k]);
    for (unsigned k = 0; k < MR_STALL_CAUSE_COUNT; k++)
        if ((double)a[last].stall[k] > causes[k])
            c->stall[k] += (uint64_t)((double)a[last].stall[k] - causes[k]);
}

/* One training step of all ranks; false: there is none any more. `first`: of the run. Where nobody waited (gradients
 * are only added up, say) nobody met, and what was done counts for the next meeting. */
static bool sync_step(const struct mr_explanation *x, struct attendant *a, struct mr_explain_culprit *c, bool *first)
{
    uint32_t last = NO_INDEX, n = 0;
    uint64_t most = 0;
    for (uint32_t r = 0; r < x->ranks; r++) {
        come(x, &a[r]);
        if (!a[r].step)
            continue;
        n++;
        most = MR_MAX(most, a[r].waited);
        last = last == NO_INDEX || a[r].waited < a[last].waited ? r : last;
    }
    if (!most)
        return n > 0;
    if (n > 1 && !*first)
        blame(c, a, last, (uint32_t)x->ranks, n);
    *first = false;
    for (uint32_t r = 0; r < x->ranks; r++)
        leave(&a[r]);
    return n > 0;
}

static int by_loss(const void *a, const void *b)
{
    const struct mr_explain_culprit *x = a, *y = b;
    return x->lost_ns != y->lost_ns ? (x->lost_ns > y->lost_ns ? -1 : 1) : x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void find_steps(const struct mr_explanation *x, struct attendant *a)
{
    for (size_t i = 0; i < x->steps; i++) { /* by rank */
        struct attendant *of = &a[x->step[i].rank];
        of->at = of->end ? of->at : i;
        of->end = i + 1;
    }
}

int mr_explain_find_culprits(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    bool first = true;
    if (x->ranks < 2)
        return 0;
    struct attendant *a = calloc(x->ranks, sizeof(*a));
    struct mr_explain_culprit *c = mr_arena_alloc(&x->arena, x->ranks * sizeof(*c));
    if (!a || !c) {
        free(a);
        return -ENOMEM;
    }
    memset(c, 0, x->ranks * sizeof(*c));
    find_steps(x, a);
    while (sync_step(x, a, c, &first))
        continue;
    free(a);
    for (uint32_t r = 0; r < x->ranks; r++)
        c[r].rank = r;
    qsort(c, x->ranks, sizeof(*c), by_loss);
    x->culprit = c;
    while (x->culprits < x->ranks && c[x->culprits].lost_ns)
        x->culprits++;
    return 0;
}
