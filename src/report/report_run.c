/* A run inside a report: see report_run.h. */
#include "report/report_run.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "job/job_replay.h"
#include "report/run_text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mr_report_run {
    bool has_job; /* there is a results folder with it */
    struct mr_job job;
    struct mr_bench_board *board; /* without one */
    struct mr_metrics metrics;
};

static int compute_alone(struct mr_report_run *r, struct mr_error *err)
{
    struct mr_rank_series *series = calloc(r->board->world, sizeof(*series));
    if (!series)
        return mr_error_set(err, -ENOMEM, "cannot compute the figures of the run");
    mr_bench_board_series(r->board, series);
    mr_metrics_compute(series, r->board->world, &(struct mr_metrics_params){.seed = 1, .exclude_start = 1},
                       &r->metrics);
    free(series);
    return 0;
}

static bool is_results_folder(const char *path)
{
    char summary[4200];
    snprintf(summary, sizeof summary, "%s/summary.json", path);
    return access(summary, R_OK) == 0;
}

int mr_report_run_open(const char *path, const struct mr_trace *t, struct mr_arena *a, struct mr_report_run **out,
                       struct mr_error *err)
{
    struct mr_report_run *r = calloc(1, sizeof(*r));
    char *differs = NULL;
    *out = NULL;
    if (!r)
        return mr_error_set(err, -ENOMEM, "cannot report on the run");
    r->has_job = is_results_folder(path);
    int rc =
        r->has_job ? mr_job_replay(path, t, a, &r->job, &differs, err) : mr_job_board_from_trace(t, &r->board, err);
    if (!rc && !r->has_job)
        rc = compute_alone(r, err);
    if (differs)
        mr_log(MR_LOG_WARN, "the trace does not confirm the summary: %s", differs);
    free(differs);
    if (rc) {
        mr_report_run_free(r);
        return rc == MR_E_FORMAT ? 0 : rc; /* no run in it */
    }
    *out = r;
    return 0;
}

const struct mr_workload *mr_report_run_workload(const struct mr_report_run *r)
{
    return r->has_job ? r->job.w : NULL;
}

static void print_alone(struct mr_strbuf *o, const struct mr_report_run *r)
{
    const struct mr_metrics *m = &r->metrics;
    char read[MR_HUMAN_LEN], p50[MR_HUMAN_LEN], p99[MR_HUMAN_LEN];
    mr_strbuf_printf(o, "Run\n  ranks %u, steps %llu, samples %llu, %.2f s\n", r->board->world,
                     (unsigned long long)m->steps, (unsigned long long)m->samples, m->duration_s);
    if (m->steps)
        mr_strbuf_printf(
            o,
            "  AU %.2f %% (without the first step), %.1f samples/s, %s read\n"
            "  stall per step p50 %s, p99 %s\n"
            "  time: compute %.1f %%, data %.1f %%, checkpoint %.1f %%, barrier %.1f %%, copy %.1f %%, other %.1f %%\n",
            100 * m->au, m->samples_per_s, mr_human_rate(m->read_bytes_per_s, read),
            mr_human_ns(m->stall_s.p50 * 1e9, p50), mr_human_ns(m->stall_s.p99 * 1e9, p99), 100 * m->split.compute,
            100 * m->split.data, 100 * m->split.checkpoint, 100 * m->split.barrier, 100 * m->split.copy,
            100 * m->split.other);
    if (m->saves + m->loads)
        mr_strbuf_printf(o, "  checkpoints: %llu written, %llu read back\n", (unsigned long long)m->saves,
                         (unsigned long long)m->loads);
}

const char *mr_report_run_workload_name(const struct mr_report_run *r)
{
    if (!r || !r->has_job || !r->job.w)
        return NULL;
    const char *file = r->job.w->file, *name = r->job.w->name;
    return file && *file && access(file, R_OK) == 0 ? file : name && *name ? name : NULL;
}

void mr_report_run_text(struct mr_report_run *r, struct mr_explanation *x, struct mr_strbuf *o)
{
    if (r->has_job) {
        r->job.result.explained = x; /* for the moment: it is the caller's */
        mr_report_job(&r->job, false, o);
        r->job.result.explained = NULL;
    } else
        print_alone(o, r);
    mr_strbuf_putc(o, '\n');
}

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *mr_report_run_json(const struct mr_report_run *r)
{
    const struct mr_metrics *m = &r->metrics;
    if (r->has_job)
        return mr_job_figures_json(&r->job);
    return json_pack("{s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "ranks", (int)r->board->world, "steps",
                     (json_int_t)m->steps, "samples", (json_int_t)m->samples, "duration_s", real(m->duration_s), "au",
                     real(m->au), "samples_per_s", real(m->samples_per_s), "read_bytes_per_s",
                     real(m->read_bytes_per_s), "data_stall_share", real(m->split.data), "saves", (json_int_t)m->saves,
                     "loads", (json_int_t)m->loads);
}

void mr_report_run_free(struct mr_report_run *r)
{
    if (!r)
        return;
    if (r->has_job)
        mr_job_done(&r->job);
    mr_bench_board_free(r->board);
    free(r);
}
