/* What can only be said of a trace when all of its files are there: clocks, names and ranks that processes share,
 * reused pids, the order of the chunks, and events that are missing. */
#include "import/trace_internal.h"
#include "base/common.h"
#include "import/counters.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static int by_place(const void *a, const void *b)
{
    const struct mr_trace_chunk *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    if (x->sequence != y->sequence)
        return x->sequence < y->sequence ? -1 : 1;
    if (x->last_ns != y->last_ns) /* in concatenated files the later block may come first */
        return x->last_ns < y->last_ns ? -1 : 1;
    return x->view.offset < y->view.offset ? -1 : x->view.offset > y->view.offset;
}

/* Processes may use the strings of another one. One level only: that one must have strings of its own. */
static void share_names(struct mr_trace *t)
{
    for (size_t i = 0; i < t->processes; i++) {
        struct mr_trace_process *p = &t->process[i];
        const struct mr_trace_process *owner =
            p->names_key && !p->borrowed ? mr_trace_find_process(t, p->names_key) : NULL;
        if (!owner || owner->names_key)
            continue;
        free(p->string);
        p->string = owner->string;
        p->strings = owner->strings;
        p->borrowed = true;
    }
}

static int by_number(const void *a, const void *b)
{
    const struct mr_trace_process *x = *(struct mr_trace_process *const *)a, *y = *(struct mr_trace_process *const *)b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Traces of other tools may describe one process in several files, its rank in only one of them. */
static void share_ranks(struct mr_trace_process *const *p, size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        int32_t rank = -1;
        for (end = i; end < n && p[end]->node == p[i]->node && p[end]->pid == p[i]->pid && p[end]->again == p[i]->again;
             end++)
            rank = MR_MAX(rank, p[end]->rank);
        for (size_t k = i; k < end; k++)
            if (p[k]->rank < 0 && !p[k]->ppid && !p[k]->how)
                p[k]->rank = rank;
    }
}

/* Disambiguates reused pids. An image replaced by exec is the same process as its successor, and page faults come in a
 * process of their own without parent and end; but a forked image is a new process, and so is one that follows another
 * that has exited. */
static int number_reused_pids(struct mr_trace *t, struct mr_error *err)
{
    struct mr_trace_process **p = malloc((t->processes + 1) * sizeof(*p));
    const struct mr_trace_process *before = NULL;
    uint32_t again = 0;
    if (!p)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    for (size_t i = 0; i < t->processes; i++)
        p[i] = &t->process[i];
    qsort(p, t->processes, sizeof(struct mr_trace_process *), by_number);
    for (size_t i = 0; i < t->processes; i++) {
        if (i && (p[i]->node != p[i - 1]->node || p[i]->pid != p[i - 1]->pid)) {
            before = NULL;
            again = 0;
        }
        if (p[i]->ppid || p[i]->how) {
            again += before && (p[i]->flags & MR_PROCESS_FORKED || before->how == MR_HOW_EXIT);
            before = p[i];
        }
        p[i]->again = again;
    }
    share_ranks(p, t->processes);
    free(p);
    return 0;
}

/* Events that a process recorded and that are in no block. */
static int count_gone(struct mr_trace *t, struct mr_error *err)
{
    uint64_t *found = calloc(t->processes + 1, sizeof(*found));
    if (!found)
        return mr_error_set(err, -ENOMEM, "cannot load the trace");
    for (size_t i = 0; i < t->chunks; i++)
        found[t->chunk[i].process] += t->chunk[i].count;
    for (size_t p = 0; p < t->processes; p++)
        t->gone += t->process[p].recorded > found[p] ? t->process[p].recorded - found[p] : 0;
    t->gone = MR_MAX(t->gone, t->recorded > t->events ? t->recorded - t->events : 0);
    free(found);
    return 0;
}

/* A process whose block is damaged is known by its events only. Their blocks carry the clock offset, too. */
static void find_clocks(struct mr_trace *t)
{
    for (size_t i = 0; i < t->chunks; i++) {
        const struct mr_mrt_view *v = &t->chunk[i].view;
        struct mr_trace_process *p = &t->process[t->chunk[i].process];
        if (t->chunk[i].imported || p->known || v->head.payload_bytes < 24)
            continue;
        int64_t offset = (int64_t)(mr_load_le64(v->payload + 16) - mr_load_le64(v->payload + 8));
        int64_t apart = t->nodes && t->node[0].has_offset
                            ? (int64_t)((uint64_t)offset - (uint64_t)t->node[0].real_offset)
                            : INT64_MAX;
        p->real_offset =
            apart > -(int64_t)MR_NS_PER_S && apart < (int64_t)MR_NS_PER_S ? t->node[0].real_offset : offset;
    }
}

/* What the sources cannot say. */
static int note_limits(struct mr_trace *t, struct mr_error *err)
{
    if (t->counters && !t->events)
        return mr_trace_note(t, false, err,
                             "Darshan counters only: no stall can be computed, and when a call was made is unknown");
    return 0;
}

int mr_trace_finish(struct mr_trace *t, struct mr_error *err)
{
    size_t n = 0;
    mr_pfw_resolve(t);
    find_clocks(t);
    share_names(t);
    if (number_reused_pids(t, err) < 0)
        return -ENOMEM;
    if (t->chunks)
        qsort(t->chunk, t->chunks, sizeof(*t->chunk), by_place);
    t->first_ns = UINT64_MAX;
    for (size_t i = 0; i < t->chunks; i++) {
        struct mr_trace_chunk c = t->chunk[i];
        const struct mr_trace_chunk *before = n ? &t->chunk[n - 1] : NULL;
        /* The same events written twice: the later block is longer, or has the outcome of an exec. */
        if (before && !c.imported && !before->imported && before->process == c.process && before->tid == c.tid &&
            before->sequence == c.sequence) {
            t->events -= before->count;
            n--;
        }
        if (!c.imported) {
            c.first_ns += (uint64_t)t->process[c.process].real_offset;
            c.last_ns += (uint64_t)t->process[c.process].real_offset;
        }
        if (c.count) {
            t->first_ns = MR_MIN(t->first_ns, c.first_ns);
            t->last_ns = MR_MAX(t->last_ns, c.last_ns);
        }
        t->events += c.count;
        t->chunk[n++] = c;
    }
    t->chunks = n;
    assert(t->chunks <= t->chunk_cap);
    if (t->first_ns == UINT64_MAX) {
        t->first_ns = t->counters ? t->counters->start_ns : 0;
        t->last_ns = t->counters ? t->counters->end_ns : 0;
    }
    for (size_t i = 0; i < t->processes; i++)
        t->lost += t->process[i].lost;
    return note_limits(t, err) ? -ENOMEM : count_gone(t, err);
}
