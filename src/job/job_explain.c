/* What the rules of `report` say of a run that has just ended: its trace, explained once, with what only the job knows
 * (the probe, the harness's own limit). The verdict, the advice and the limiter of `run` are all taken from it, so run
 * and report cannot disagree. A run without a trace, or with one that cannot be explained, has its figures all the
 * same. */
#include "advise/explain_open.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "job/job_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void mr_job_explain(struct mr_job *j)
{
    struct mr_error why;
    char path[4200];
    const char *trace = path;
    mr_job_trace_path(j, path, sizeof path);
    if (access(path, R_OK) != 0)
        return;
    json_t *summary = mr_job_summary_json(j);
    const struct mr_explain_how how = {
        .explain = {.rank = -1,
                    .step_from = -1,
                    .source = j->out,
                    .workload = *j->w->file ? j->w->file : j->w->name,
                    .pictures = j->req.pictures},
        .summary = summary,
    };
    if (mr_explain_open(&trace, 1, &how, &j->result.explained, &why))
        mr_log(MR_LOG_INFO, "the trace of this run is not explained: %s", why.message);
    json_decref(summary);
}

bool mr_job_is_explained(const struct mr_job *j)
{
    const struct mr_explanation *x = j->result.explained;
    return x && x->facts.has_steps;
}

void mr_job_advise(const struct mr_job *j, struct mr_strbuf *out)
{
    const struct mr_explanation *x = j->result.explained;
    if (!mr_job_is_explained(j) || x->verdict.verdict == MR_VERDICT_HEALTHY)
        return;
    for (unsigned i = 0; i < MR_ARRAY_LEN(x->verdict.line); i++)
        if (x->verdict.line[i])
            mr_strbuf_printf(out, "%s%s", out->len ? " " : "", x->verdict.line[i]);
}

double mr_job_storage_limit(const struct mr_job *j)
{
    return mr_job_is_explained(j) ? j->result.explained->verdict.storage_limit_bytes_per_s : NAN;
}

/* Why data came late. */
static const char *why_data(const struct mr_job *j, char *text, size_t cap)
{
    const struct mr_explanation *x = j->result.explained;
    static const char *const names[MR_STALL_CAUSE_COUNT] = {
#define NAME(name, key, shown) shown,
        MR_STALL_CAUSES(NAME)
#undef NAME
    };
    double limit = mr_job_storage_limit(j);
    uint64_t stall = mr_job_is_explained(j) ? x->ns[MR_TIME_STALL] : 0;
    if (!stall || x->verdict.cause == MR_STALL_UNKNOWN)
        snprintf(text, cap, "data loading");
    else if (isfinite(limit))
        snprintf(text, cap,
                 limit < 1e8 ? "storage delivers at most %.3g MB/s; the job needs %.0f MB/s"
                             : "storage delivers at most %.0f MB/s; the job needs %.0f MB/s",
                 limit / 1e6, x->facts.demand_bytes_per_s / 1e6);
    else if (x->verdict.verdict == MR_VERDICT_HEALTHY && 2 * x->first_ns > stall)
        snprintf(text, cap, "the wait for the first batch");
    else if (x->verdict.cause == MR_STALL_NOT_STARTED)
        snprintf(text, cap, "a look-ahead that is too short: %.0f %% of the waits were for batches not yet begun",
                 100 * (double)x->stall[MR_STALL_NOT_STARTED] / (double)stall);
    else
        snprintf(text, cap, "%s: %.0f %% of the waits for data", names[x->verdict.cause],
                 100 * (double)x->stall[x->verdict.cause] / (double)stall);
    return text;
}

/* Barriers behind waits for data, or behind saves, belong to these: `of` is what the rules say the run is bound by. */
static double with_barrier(const struct mr_job *j, double part, enum mr_verdict_class of)
{
    return part + (mr_job_is_explained(j) && j->result.explained->verdict.verdict == of
                       ? j->result.metrics->split.barrier
                       : 0);
}

const char *mr_job_limiter(const struct mr_job *j, char *text, size_t cap)
{
    const struct mr_split *s = &j->result.metrics->split;
    double data = with_barrier(j, s->data, MR_VERDICT_INPUT);
    double saves = with_barrier(j, s->checkpoint, MR_VERDICT_CHECKPOINT);
    if (j->result.metrics->steps == 0)
        snprintf(text, cap, "nothing was trained");
    else if (j->result.metrics->au >= j->w->metric.au && s->data < 0.05 && s->checkpoint < 0.05)
        snprintf(text, cap, j->result.trust.doubts.n ? "compute" : "compute: storage is not the limit");
    else if (data >= fmax(saves, fmax(s->barrier, s->other)))
        return why_data(j, text, cap);
    else if (saves >= fmax(s->barrier, s->other))
        snprintf(text, cap, "checkpoints: training stands still for %.0f %% of the time", 100 * s->checkpoint);
    else if (s->barrier >= s->other)
        snprintf(text, cap, "waiting for the slowest rank (imbalance %.0f %%)", 100 * j->result.metrics->imbalance);
    else
        snprintf(text, cap, "late wake-ups and overhead (%.0f %%), not by storage: %u rank%s on %u CPU%s",
                 100 * s->other, j->result.local_world, j->result.local_world == 1 ? "" : "s", j->result.trust.cpus,
                 j->result.trust.cpus == 1 ? "" : "s");
    return text;
}
