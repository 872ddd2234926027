/* Explanations made by hand, for tests of what is made from them (advice, text, page, comparison): a run of so many
 * ranks and steps of which the stall, its causes, workers, files and checkpoints are set one by one. What is not set is
 * unknown (NAN), as in a trace that does not tell. */
#ifndef MR_TESTS_EXPLAIN_TESTLIB_H
#define MR_TESTS_EXPLAIN_TESTLIB_H

#include "explain/explain.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XT_NS(s) ((uint64_t)((s)*1e9 + 0.5))

static inline void *xt_alloc(struct mr_explanation *x, size_t bytes)
{
    void *p = mr_arena_alloc(&x->arena, bytes);
    assert(p);
    return p;
}

/* All figures NAN, nothing known. */
static inline void xt_unknown_facts(struct mr_explain_facts *f)
{
    memset(f, 0xff, sizeof(*f)); /* every double of these bytes is a NAN */
    f->program = f->framework = "";
    f->device = f->ended_early = f->workload = f->format = f->peer = NULL;
    f->shuffled = f->global_shuffle = f->counters_only = f->simulated = f->own_run = f->checkpoints = false;
    f->has_steps = f->has_workers = f->sharded = f->causes_estimated = f->team = f->queued = f->persistent =
        f->no_loader = f->program_cut = false;
    f->objects = (struct mr_explain_objects){0};
}

static inline void xt_step(struct mr_explanation *x, uint32_t rank, uint64_t i, uint64_t each, double compute_s)
{
    struct mr_explain_step *s = &x->step[x->steps++];
    *s = (struct mr_explain_step){.rank = rank,
                                  .step = i,
                                  .batch = i,
                                  .start_ns = i * each,
                                  .end_ns = (i + 1) * each,
                                  .accelerator_idle_ns = MR_TIME_UNKNOWN,
                                  .bytes = MR_TIME_UNKNOWN,
                                  .worker = UINT32_MAX,
                                  .file = UINT32_MAX};
    s->ns[MR_TIME_COMPUTE] = XT_NS(compute_s);
}

/* `ranks` ranks of `steps` steps that compute `compute_s` each and do nothing else; time is added by the functions
 * below.
 */
static inline struct mr_explanation *xt_new(uint32_t ranks, uint64_t steps, double compute_s)
{
    struct mr_explanation *x = calloc(1, sizeof(*x));
    assert(x);
    uint64_t each = XT_NS(compute_s);
    x->source = "test";
    x->duration_ns = x->train_ns = steps * each;
    x->rank = xt_alloc(x, ranks * sizeof(*x->rank));
    x->step = xt_alloc(x, ranks * steps * sizeof(*x->step));
    x->ranks = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        x->rank[r] = (struct mr_explain_rank){.rank = (int32_t)r,
                                              .host = "node0",
                                              .end_ns = x->duration_ns,
                                              .train_ns = x->train_ns,
                                              .steps = steps,
                                              .ended = true};
        x->rank[r].ns[MR_TIME_COMPUTE] = steps * each;
        x->rank[r].accelerator_idle_ns = MR_TIME_UNKNOWN;
        for (uint64_t i = 0; i < steps; i++)
            xt_step(x, r, i, each, compute_s);
    }
    x->ns[MR_TIME_COMPUTE] = steps * each;
    x->trust.events = 1000;
    x->trust.clock_offset_s = x->trust.clock_residual_s = x->trust.overhead_share = NAN;
    xt_unknown_facts(&x->facts);
    x->facts.has_steps = steps > 0;
    x->facts.compute_s = compute_s;
    x->facts.ranks = ranks;
    x->facts.nodes = 1;
    x->facts.epochs = 1;
    return x;
}

/* Every step of every rank takes longer by `seconds` / steps of the class. */
static inline void xt_time(struct mr_explanation *x, enum mr_time_class c, double seconds)
{
    uint64_t steps = x->ranks && x->steps ? x->steps / x->ranks : 0, each = steps ? XT_NS(seconds) / steps : 0;
    x->ns[c] += XT_NS(seconds);
    x->duration_ns += XT_NS(seconds);
    if (c != MR_TIME_STARTUP)
        x->train_ns += XT_NS(seconds);
    for (size_t r = 0; r < x->ranks; r++) {
        x->rank[r].ns[c] += XT_NS(seconds);
        x->rank[r].end_ns += XT_NS(seconds);
        x->rank[r].train_ns = x->train_ns;
    }
    for (size_t i = 0; i < x->steps && c != MR_TIME_STARTUP; i++) {
        x->step[i].ns[c] += each;
        x->step[i].start_ns += x->step[i].step * each;
        x->step[i].end_ns += (x->step[i].step + 1) * each;
    }
}

/* Waits for data of `seconds` in all (each rank), for one cause. */
static inline void xt_stall(struct mr_explanation *x, enum mr_stall_cause cause, double seconds)
{
    uint64_t steps = x->ranks && x->steps ? x->steps / x->ranks : 0, each = steps ? XT_NS(seconds) / steps : 0;
    xt_time(x, MR_TIME_STALL, seconds);
    x->stall[cause] += XT_NS(seconds);
    for (size_t r = 0; r < x->ranks; r++)
        x->rank[r].stall[cause] += XT_NS(seconds);
    for (size_t i = 0; i < x->steps; i++)
        x->step[i].stall[cause] += each;
}

/* `per_rank` workers that prepare each batch in read_s + cpu_s, busy so much of the time. 0: the consumer does it. */
static inline void xt_loading(struct mr_explanation *x, unsigned per_rank, double ahead, double read_s, double cpu_s,
                              double busy)
{
    struct mr_explain_facts *f = &x->facts;
    f->workers = per_rank;
    f->prefetch = ahead;
    f->batch_read_s = read_s;
    f->batch_decode_s = cpu_s;
    f->batch_load_s = f->batch_load_p99_s = read_s + cpu_s;
    f->has_workers = per_rank > 0;
    x->worker = xt_alloc(x, (x->ranks * per_rank + 1) * sizeof(*x->worker));
    for (size_t r = 0; r < x->ranks; r++)
        for (unsigned w = 0; w < per_rank; w++)
            x->worker[x->workers++] =
                (struct mr_explain_worker){.rank = (uint32_t)r,
                                           .id = w,
                                           .label = "worker",
                                           .end_ns = x->duration_ns,
                                           .idle_ns = (uint64_t)((1 - busy) * (double)x->duration_ns),
                                           .cpu_ns = MR_TIME_UNKNOWN};
    for (size_t r = 0; r < x->ranks; r++)
        x->rank[r].io_ns =
            (uint64_t)(fmin(1, read_s * (double)x->rank[r].steps / fmax(1, per_rank) / ((double)x->duration_ns / 1e9)) *
                       (double)x->duration_ns);
}

/* `n` saves, spread over the run, by every rank, `seconds` in all for each. */
static inline void xt_checkpoints(struct mr_explanation *x, unsigned n, double seconds, uint64_t bytes)
{
    xt_time(x, MR_TIME_CHECKPOINT, seconds);
    x->checkpoint = xt_alloc(x, x->ranks * n * sizeof(*x->checkpoint));
    x->facts.checkpoints = true;
    for (size_t r = 0; r < x->ranks; r++)
        for (unsigned i = 0; i < n; i++) {
            uint64_t start = x->duration_ns / (n + 1) * (i + 1);
            x->checkpoint[x->checkpoints++] = (struct mr_explain_checkpoint){.rank = (uint32_t)r,
                                                                             .start_ns = start,
                                                                             .end_ns = start + XT_NS(seconds / n),
                                                                             .write_ns = XT_NS(seconds / n),
                                                                             .fsync_ns = MR_TIME_UNKNOWN,
                                                                             .drain_start_ns = MR_TIME_UNKNOWN,
                                                                             .drain_end_ns = MR_TIME_UNKNOWN,
                                                                             .bytes = bytes};
        }
}

/* `ops` reads of `size` bytes that take `each_s`, all threads together. */
static inline void xt_reads(struct mr_explanation *x, uint64_t ops, uint64_t size, double each_s)
{
    unsigned bin = 0;
    while (bin + 1 < MR_EXPLAIN_SIZE_BINS && size >> (bin + 1))
        bin++;
    x->read_sizes.ops[bin] += ops;
    x->read_sizes.bytes[bin] += ops * size;
    x->read_sizes.dur_ns[bin] += XT_NS(each_s * (double)ops);
    x->facts.read_bytes = (isfinite(x->facts.read_bytes) ? x->facts.read_bytes : 0) + (double)ops * (double)size;
}

static inline const struct mr_finding *xt_finding(const struct mr_explanation *x, const char *id)
{
    for (size_t i = 0; i < x->findings; i++)
        if (strcmp(x->finding[i].id, id) == 0)
            return &x->finding[i];
    return NULL;
}

static inline const char *xt_silence(const struct mr_explanation *x, const char *id)
{
    for (size_t i = 0; i < x->silences; i++)
        if (strcmp(x->silence[i].id, id) == 0)
            return x->silence[i].why;
    return NULL;
}

#endif
