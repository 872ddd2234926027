/* Steps of a run of our own trainer: from the figures that each step told, so that a report shows the numbers that the
 * run showed. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>

static int add_steps(struct explain_job *j, uint32_t rank, const struct mr_run_rank *run)
{
    for (size_t i = 0; i < run->steps.n; i++) {
        const struct mr_step *from = &run->steps.item[i];
        struct mr_explain_step *s = MR_VEC_ADD(&j->step);
        if (!s)
            return -ENOMEM;
        uint64_t end = i + 1 < run->steps.n ? run->steps.item[i + 1].start_ns : from->end_ns;
        *s = (struct mr_explain_step){.rank = rank,
                                      .step = i,
                                      .epoch = from->epoch,
                                      .batch = from->step,
                                      .start_ns = run->origin_ns + from->start_ns,
                                      .end_ns = run->origin_ns + MR_MAX(end, from->end_ns),
                                      .accelerator_idle_ns = UNKNOWN,
                                      .bytes = from->read_bytes,
                                      .worker = NO_INDEX,
                                      .file = NO_INDEX,
                                      .phase = from->phase == MR_PHASE_EVAL ? MR_EXPLAIN_EVAL : MR_EXPLAIN_TRAIN};
        j->x->rank[rank].samples += from->samples;
    }
    return 0;
}

static size_t paint_step(struct explain_paint *p, uint64_t origin, const struct mr_step *s)
{
    uint64_t start = origin + s->start_ns, loaded = start + s->load_ns, copied = loaded + s->copy_ns;
    uint64_t end = origin + s->end_ns;
    p[0] = (struct explain_paint){start, loaded, MR_TIME_STALL};
    p[1] = (struct explain_paint){loaded, copied, MR_TIME_COPY};
    p[2] = (struct explain_paint){copied, copied + s->compute_ns, MR_TIME_COMPUTE};
    p[3] = (struct explain_paint){end - MR_MIN(s->barrier_ns, end), end, MR_TIME_BARRIER};
    return 4;
}

static int paint_rank(struct explain_job *j, uint32_t rank, const struct mr_run_rank *run)
{
    struct explain_paint *p = malloc((4 * run->steps.n + run->checkpoints.n + 1) * sizeof(*p));
    size_t n = 0;
    if (!p)
        return -ENOMEM;
    for (size_t i = 0; i < run->steps.n; i++)
        n += paint_step(p + n, run->origin_ns, &run->steps.item[i]);
    for (size_t i = 0; i < run->checkpoints.n; i++) {
        uint64_t start = run->origin_ns + run->checkpoints.item[i].start_ns;
        p[n++] = (struct explain_paint){start, start + run->checkpoints.item[i].duration_ns, MR_TIME_CHECKPOINT};
    }
    j->rank[rank].rest = MR_TIME_OTHER;
    int rc = mr_explain_paint(j, rank, p, n);
    free(p);
    return rc;
}

static int add_checkpoints(struct explain_job *j, uint32_t rank, const struct mr_run_rank *run)
{
    for (size_t i = 0; i < run->checkpoints.n; i++) {
        const struct mr_checkpoint_event *from = &run->checkpoints.item[i];
        struct explain_save *s = MR_VEC_ADD(&j->checkpoint);
        if (!s)
            return -ENOMEM;
        uint64_t start = run->origin_ns + from->start_ns;
        *s = (struct explain_save){.lane = NO_INDEX,
                                   .file = NO_INDEX,
                                   .c = {.rank = rank,
                                         .start_ns = start,
                                         .end_ns = start + from->duration_ns,
                                         .write_ns = from->write_ns,
                                         .fsync_ns = from->fsync_ns,
                                         .drain_start_ns = UNKNOWN,
                                         .drain_end_ns = UNKNOWN,
                                         .bytes = from->bytes,
                                         .is_load = from->is_load,
                                         .buffered = from->buffered}};
        for (size_t k = 0; k < run->drains.n && from->buffered && !from->is_load; k++)
            if (run->drains.item[k].step == from->step) {
                s->c.drain_start_ns = run->origin_ns + run->drains.item[k].start_ns;
                s->c.drain_end_ns = s->c.drain_start_ns + run->drains.item[k].duration_ns;
            }
    }
    return 0;
}

/* The rank of the run that a rank of the explanation is. */
static const struct mr_run_rank *run_of(const struct explain_job *j, uint32_t rank)
{
    int32_t number = MR_MAX(j->x->rank[rank].rank, 0);
    return (uint32_t)number < j->run->world ? &j->run->rank[number] : NULL;
}

static void place_waits(struct explain_job *j, const struct explain_rank *r)
{
    uint32_t at = r->step;
    for (uint32_t i = r->wait; i < r->wait + r->waits; i++) {
        struct explain_wait *w = &j->wait.item[i];
        while (at < r->step + r->steps && j->step.item[at].end_ns <= w->start)
            at++;
        if (at < r->step + r->steps && j->step.item[at].start_ns <= w->start)
            w->step = at;
    }
}

int mr_explain_own_steps(struct explain_job *j)
{
    int rc = 0;
    for (uint32_t r = 0; r < j->ranks && !rc; r++) {
        const struct mr_run_rank *run = run_of(j, r);
        struct explain_rank *k = &j->rank[r];
        k->step = (uint32_t)j->step.n;
        if (run)
            rc = add_steps(j, r, run);
        k->steps = (uint32_t)j->step.n - k->step;
        if (run && !rc) {
            j->x->rank[r].ended = run->ended;
            place_waits(j, k);
            rc = add_checkpoints(j, r, run);
        }
    }
    if (!rc)
        mr_explain_choose_steps(j);
    for (uint32_t r = 0; r < j->ranks && !rc; r++)
        rc = run_of(j, r) ? paint_rank(j, r, run_of(j, r)) : mr_explain_paint(j, r, NULL, 0);
    return rc;
}
