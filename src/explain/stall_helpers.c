/* Helpers: threads that make no batch by themselves, but work while the thread that makes one sleeps (pyarrow's pool, a
 * worker's own executor, an event loop, a producer behind a queue), and processes that serve it (a downloader). What
 * they have in flight while it sleeps is what it waits for.
 *
 *   maker  ==| asleep: in no call, or in a pipe or queue |==
 *   helper      |==== reads ====|  |== reads ==|
 *
 * Second-pass questions are asked of each helper about the same time. Their answers are thread-seconds: where they are
 * more than the sleep, its causes are their shares; where they are less, the rest stays the worker's. Writes of helpers
 * hold no batch up. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>

#define HELP_LEAST 0.02 /* of the sleep: less is chance */

/* Threads of ranks that neither make batches nor take them. busy: processes of makers and consumers, whose threads help
 * only their own. */
int mr_explain_find_helpers(struct explain_job *j)
{
    bool *busy = calloc(j->t->processes + 1, sizeof(*busy));
    if (!busy)
        return -ENOMEM;
    for (uint32_t i = 0; i < j->lanes; i++)
        if (j->lane[i].makes || j->lane[i].consumer)
            busy[j->lane[i].process] = true;
    int rc = 0;
    for (uint32_t i = 0; i < j->lanes && !rc; i++) {
        struct explain_lane *l = &j->lane[i];
        if (l->makes || l->consumer || l->rank == NO_INDEX)
            continue;
        uint32_t *slot = MR_VEC_ADD(&j->helper);
        rc = slot ? 0 : -ENOMEM;
        if (slot)
            *slot = i;
        l->serves_all = !busy[l->process];
    }
    free(busy);
    return rc;
}

bool mr_explain_helps(const struct explain_lane *helper, const struct explain_lane *l)
{
    return helper->rank == l->rank && (helper->process == l->process || helper->serves_all);
}

/* Of the spans of a make that should be work (decode, transform, collate): the share that it slept in them, as far as
 * its CPU time shows. A collate function may wait for a pool of its own. */
double mr_explain_span_sleep(const struct explain_make *m)
{
    uint64_t spans = m->cause[MR_STALL_DECODE] + m->cause[MR_STALL_TRANSFORM] + m->cause[MR_STALL_QUEUE];
    if (m->own || m->cpu_ns == UNKNOWN || !spans)
        return 0;
    uint64_t cpu = explain_span_ns(m->cause[MR_STALL_PAGE_CACHE] + m->cause[MR_STALL_METADATA], m->cpu_ns);
    return (double)explain_span_ns(cpu, spans) / (double)spans;
}

/* Gives what a maker slept, `cause[from]`, to what its helpers did meanwhile: `beside` their calls, `cpu` what other
 * threads of its process computed, and how long they waited for a CPU. */
void mr_explain_follow_helpers(struct explain_job *j, const uint64_t beside[MR_STALL_CAUSE_COUNT],
                               const uint64_t cpu[2], unsigned from, uint64_t cause[MR_STALL_CAUSE_COUNT])
{
    static const uint8_t io[] = {MR_STALL_STORAGE, MR_STALL_NETWORK, MR_STALL_PAGE_CACHE, MR_STALL_METADATA};
    double part[MR_STALL_CAUSE_COUNT] = {0}, all = 0, asleep = (double)cause[from];
    uint64_t copies = beside[MR_STALL_PAGE_CACHE] + beside[MR_STALL_METADATA];
    uint64_t spans = beside[MR_STALL_DECODE] + beside[MR_STALL_TRANSFORM];
    for (unsigned i = 0; i < MR_ARRAY_LEN(io); i++)
        part[io[i]] = (double)beside[io[i]];
    part[MR_STALL_TRANSFORM] = (double)beside[MR_STALL_TRANSFORM];
    part[MR_STALL_DECODE] = (double)beside[MR_STALL_DECODE] + (double)explain_span_ns(copies + spans, cpu[0]);
    part[MR_STALL_CPU] = (double)cpu[1];
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        all += part[c];
    j->helped.asleep += asleep;
    if (!(asleep > 0) || all < HELP_LEAST * asleep)
        return;
    double scale = all > asleep ? asleep / all : 1;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++) {
        uint64_t moved = MR_MIN((uint64_t)(part[c] * scale), cause[from]);
        cause[c] += moved;
        cause[from] -= moved;
        j->helped.reads += c == MR_STALL_DECODE || c == MR_STALL_TRANSFORM || c == MR_STALL_CPU ? 0 : (double)moved;
    }
}
