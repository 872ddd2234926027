/* How far the explanation can be trusted: what the trace lacks, and what was inferred. */
#include "base/common.h"
#include "base/strbuf.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define JUMP_NS 3600000000000ull /* a gap of an hour between events of a thread that is busy otherwise */

static int note(struct mr_explanation *x, bool serious, const char *text)
{
    struct mr_explain_trust *t = &x->trust;
    struct mr_explain_note *list = mr_arena_alloc(&x->arena, (t->notes + 1) * sizeof(*list));
    if (!list || !text)
        return -ENOMEM;
    for (size_t i = 0; i < t->notes; i++)
        list[i] = t->note[i];
    list[t->notes] = (struct mr_explain_note){.text = text, .serious = serious};
    t->note = list;
    t->notes++;
    return 0;
}

static int note_cut(struct explain_job *j)
{
    struct mr_explain_trust *t = &j->x->trust;
    char have[MR_HUMAN_LEN], want[MR_HUMAN_LEN];
    if (!t->cut)
        return 0;
    if (t->gone)
        return note(j->x, true,
                    mr_arena_printf(&j->x->arena, "trace is cut off: %s of at least %s events",
                                    mr_human_count(t->events, have), mr_human_count(t->events + t->gone, want)));
    return note(j->x, true,
                mr_arena_printf(&j->x->arena, "trace is cut off: %s events, and %llu bytes that cannot be read",
                                mr_human_count(t->events, have), (unsigned long long)t->skipped_bytes));
}

static uint32_t missing_ranks(const struct explain_job *j)
{
    int32_t world = j->world;
    uint32_t have = 0;
    char *seen = calloc((size_t)MR_MAX(world, 0) + 1, 1);
    for (size_t p = 0; seen && p < j->t->processes; p++) {
        int32_t r = j->number[p];
        if (r >= 0 && r < world && !seen[r]) {
            seen[r] = 1;
            have++;
        }
    }
    free(seen);
    return have && (uint32_t)world > have ? (uint32_t)world - have : 0;
}

/* Real times that go back by more than a thread can: the clock was set, or hosts disagree. */
static bool clock_jumps(const struct explain_job *j)
{
    for (uint32_t l = 0; l < j->lanes; l++)
        for (size_t c = j->lane[l].chunk + 1; c < j->lane[l].chunk + j->lane[l].chunks; c++)
            if (j->t->chunk[c].first_ns > j->t->chunk[c - 1].last_ns + JUMP_NS)
                return true;
    return false;
}

/* torch.profiler names each step; its loader's spans may be missing. */
static unsigned count_profiler_steps(const struct explain_job *j)
{
    static const char stem[] = "ProfilerStep#";
    unsigned n = 0;
    for (size_t p = 0; p < j->t->processes; p++)
        for (uint32_t s = 1; s < j->t->process[p].strings; s++) {
            const struct mr_trace_string *text = &j->t->process[p].string[s];
            n += text->kind == MR_STR_SITE && text->text && memmem(text->text, text->len, stem, sizeof stem - 1);
        }
    return n;
}

static int note_steps(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    uint64_t stall = x->ns[MR_TIME_STALL], unknown = x->stall[MR_STALL_UNKNOWN];
    int rc = 0;
    if (!j->step.n && count_profiler_steps(j))
        rc = note(
            x, false,
            mr_arena_printf(&x->arena,
                            "the profile has %u steps and no span of a loader: what they waited for cannot be told "
                            "('millrace trace' sees the loader)",
                            count_profiler_steps(j)));
    else if (!j->step.n)
        rc = note(x, false, "no training steps in the trace: no stall can be computed, only what calls waited for");
    else if (j->beside.n && stall)
        rc = note(x, false,
                  "the pipeline does not tell who made which batch: causes of the stall are estimated from what the "
                  "process's threads computed and read during the waits");
    else if (x->facts.causes_estimated && stall)
        rc = note(x, false,
                  "the trace has no events of samples: causes of the stall are estimated from what the readers did "
                  "('millrace run --trace FILE' records each batch)");
    else if (stall && unknown * 5 > stall)
        rc = note(x, false,
                  j->run && !j->make.n
                      ? "the trace has no events of samples: causes of the stall are unknown ('millrace run --trace "
                        "FILE' records them)"
                      : "the trace does not say who made the batches: causes of the stall are unknown");
    if (!rc && x->facts.no_loader && j->step.n)
        rc = note(x, false,
                  "the program has no data loader: its waits are the reads, decoding and handovers of the thread that "
                  "trains, between its steps");
    else if (!rc && j->unmatched)
        rc = note(x, false, "batches carry no numbers: workers were matched to waits by their order");
    return rc;
}

int mr_explain_trust(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    struct mr_explain_trust *t = &x->trust;
    const struct mr_trace *r = j->t;
    *t = (struct mr_explain_trust){
        .events = r->events,
        .lost = r->lost,
        .gone = r->gone,
        .recorded = r->recorded,
        .skipped_bytes = r->skipped_bytes,
        .clock_offset_s = r->clock_residual_ns + r->clock_offset_ns > 0 ? r->clock_offset_ns / 1e9 : NAN,
        .clock_residual_s = r->clock_residual_ns + r->clock_offset_ns > 0 ? r->clock_residual_ns / 1e9 : NAN,
        .overhead_share = NAN,
        .blind = j->blind,
        .note = t->note,
        .notes = t->notes};
    for (size_t p = 0; p < r->processes; p++)
        for (unsigned c = 0; r->process[p].skipped && c < MR_CALL_COUNT; c++)
            t->sampled_out += r->process[p].skipped[c];
    t->cut = t->gone || t->skipped_bytes;
    t->ranks_missing = missing_ranks(j);
    t->clock_jump = r->clock_jumps || clock_jumps(j);
    char count[MR_HUMAN_LEN];
    int rc = note_cut(j);
    if (!rc && t->lost)
        rc = note(x, true, mr_arena_printf(&x->arena, "%s events were lost", mr_human_count(t->lost, count)));
    if (!rc && t->ranks_missing)
        rc = note(x, true,
                  mr_arena_printf(&x->arena, "%u %s of the job %s not in the trace", t->ranks_missing,
                                  mr_plural(t->ranks_missing, "rank", "ranks"), t->ranks_missing == 1 ? "is" : "are"));
    if (!rc && t->clock_jump)
        rc = note(x, true, "the clock jumped by more than an hour while the program ran");
    for (size_t i = 0; i < r->notes && !rc; i++)
        rc = note(x, r->note[i].serious, mr_arena_strdup(&x->arena, r->note[i].text));
    return rc || x->facts.counters_only ? rc : note_steps(j);
}
