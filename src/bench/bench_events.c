/* The trainer's events: see bench_events.h. */
#include "bench/bench_events.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/workers.h"
#include "bench/rank_figures.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Up to eight characters of a name. */
static int64_t packed(const char *name)
{
    char text[sizeof(int64_t)] = {0};
    int64_t value;
    memcpy(text, name, strnlen(name, sizeof text));
    memcpy(&value, text, sizeof value);
    return value;
}

static bool is_global_shuffle(const struct mr_workload *w)
{
    return w->reader.order != MR_CO_SHARD && (w->reader.file_shuffle || w->reader.sample_shuffle);
}

/* Ranks are meant to read different samples. Equal ones in file order are read by all on purpose; equal draws of a
 * shuffle are not. */
static bool is_sharded(const struct mr_workload *w)
{
    return !w->pattern.same_offsets || w->reader.sample_shuffle;
}

void mr_bench_emit_open(const struct mr_bench_params *p, uint64_t start_ns, uint64_t end_ns)
{
    const struct mr_workload *w = p->workload;
    struct mr_machine_memory memory = mr_machine_memory();
    int64_t ahead = p->lookahead >= 0 ? p->lookahead : w->reader.prefetch_size;
    const struct mr_emit_arg args[] = {
        {.name = "threads", .value = p->threads ? (int64_t)p->threads : w->reader.read_threads},
        {.name = "lookahead", .value = ahead},
        {.name = "batch_size", .value = w->reader.batch_size},
        {.name = "decode_threads",
         .value = mr_workload_is_set(w, "reader", "computation_threads") ? w->reader.computation_threads : 0},
        {.name = "cpus", .value = (int64_t)mr_cpus_available()},
        {.name = "memory_bytes", .value = (int64_t)memory.total_bytes},
        {.name = "memory_free_bytes", .value = (int64_t)memory.free_bytes},
        {.name = "local_free_bytes", .value = (int64_t)mr_local_free_bytes()},
        {.name = "queued", .value = p->io == MR_LOADER_IO_QUEUE || (p->io == MR_LOADER_IO_AUTO && w->reader.odirect)},
        {.name = "preprocess_sleeps", .value = p->preprocess_sleeps},
        {.name = "sharded", .value = is_sharded(w)},
        {.name = "global_shuffle", .value = is_global_shuffle(w)},
        {.name = "steps",
         .value = (int64_t)p->board->step_cap - 1}, /* evaluation's, too; `millrace watch` shows how many are left */
        {.name = "format", .value = packed(mr_conf_format_name((enum mr_conf_format)w->dataset.format))},
    };
    mr_emit_args(p->events, MR_SPAN_OPEN, start_ns, end_ns, &MR_NOWHERE, 0, args, MR_ARRAY_LEN(args));
}

static int64_t bits_of(double v)
{
    int64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* By its name, which the figures have in theirs. */
static void emit_field(struct mr_events *e, uint64_t now, const struct mr_bench_field *f)
{
    char name[8][sizeof f->name + 32];
    struct mr_emit_arg arg[MR_ARRAY_LEN(name)];
    unsigned n = 0;
#define PUT(member)                                                                                                    \
    snprintf(name[n], sizeof name[n], MR_RANK_FIELD "%s:" #member, f->name);                                           \
    arg[n] = (struct mr_emit_arg){.name = name[n], .value = (int64_t)f->member};                                       \
    n++;
    MR_FIELD_COSTS(PUT)
#undef PUT
    mr_emit_args(e, MR_SPAN_RANK_FIGURES, now, now, &MR_NOWHERE, 0, arg, n);
}

void mr_bench_emit_rank(struct mr_events *e, uint64_t origin_ns, const struct mr_bench_rank *r)
{
#define WHOLE(text, member) {.name = text, .value = (int64_t)r->member},
#define REAL(text, member) {.name = text, .value = bits_of(r->member), .is_real = true},
    int64_t limiter;
    memcpy(&limiter, r->loader.limiter, sizeof limiter);
    const struct mr_emit_arg args[] = {MR_RANK_FIGURES(WHOLE, REAL){.name = MR_RANK_LIMITER, .value = limiter}};
    static_assert(MR_ARRAY_LEN(args) + 4 <= MR_EMIT_ARGS, "more figures than an event has arguments");
    uint64_t now = mr_now_ns();
    mr_emit(e, MR_SPAN_RUN, origin_ns, now, &MR_NOWHERE, 0);
    mr_emit_args(e, MR_SPAN_RANK_FIGURES, now, now, &MR_NOWHERE, 0, args, MR_ARRAY_LEN(args));
    for (uint32_t k = 0; k < r->loader.fields.n; k++)
        emit_field(e, now, &r->loader.fields.field[k]);
    if (!r->loader.stats.tier.used)
        return;
    const struct mr_emit_arg mine[] = {MR_TIER_RANK_FIGURES(WHOLE)}, node[] = {MR_TIER_NODE_FIGURES(WHOLE)};
    mr_emit_args(e, MR_SPAN_RANK_FIGURES, now, now, &MR_NOWHERE, 0, mine, MR_ARRAY_LEN(mine));
    mr_emit_args(e, MR_SPAN_RANK_FIGURES, now, now, &MR_NOWHERE, 0, node, MR_ARRAY_LEN(node));
}
