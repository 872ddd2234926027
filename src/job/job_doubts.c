/* What withdraws a verdict. A run deserves PASS or FAIL only if it was the workload that ran, on the storage that was
 * meant, on a machine that did not stand in its way, for long enough, by a clock that can be believed. Every doubt is
 * one line that says what was found; the first one is told in place of the verdict.
 *
 * All of it follows from the figures and from struct mr_job_trust; nothing is measured here (job_trust.c does that), so
 * a test can put in the figures of any machine. */
#include "base/common.h"
#include "base/strbuf.h"
#include "job/job_internal.h"
#include "job/job_tiers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATE_SHARE 0.10    /* of the compute time, overslept: more is a doubt */
#define CEILING_SHARE 0.50 /* of what the harness can do at all */
#define CACHED_SHARE 0.10  /* of the data in memory although nobody asked for that */
#define STEPS_LEAST 10     /* counted in the AU, of every rank */
#define SHIFT_LEAST_S 1.0  /* of the system clock */

#define DOUBT(j, ...) mr_job_note(&(j)->result.trust.doubts, (j)->arena, __VA_ARGS__)

static void doubt_data(struct mr_job *j)
{
    for (unsigned i = 0; i < j->unlike.n; i++)
        DOUBT(j, "%s", j->unlike.item[i]);
    if (j->info.samples && j->result.metrics->steps && !mr_job_store_has_content(j))
        DOUBT(j, "the store has no content: no storage was read");
    struct mr_loader_choice c;
    if (mr_job_policy(j, &c, NULL) == 0 && c.is_perfect && j->result.metrics->steps)
        DOUBT(j, "policy perfect hands out prepared batches: no step got the data of the order");
}

/* An emulated device is as slow with its data in memory; plug-ins and the other backends keep their own counsel. */
static bool uses_page_cache(const struct mr_job *j)
{
    const char *colon = strrchr(j->opt.store, ':'), *backend = colon ? colon + 1 : j->opt.store;
    bool files = !strncmp(backend, "posix", 5) || !strncmp(backend, "uring", 5) || !strncmp(backend, "mmap", 4);
    return files && !strstr(j->opt.store, "throttle") && !j->result.trust.bypasses_cache;
}

static void doubt_cache(struct mr_job *j)
{
    const struct mr_job_trust *t = &j->result.trust;
    bool reads = j->result.metrics->read_bytes > 0 && j->w->reader.read_type != MR_CONF_READ_MEMORY;
    if (t->bypasses_cache)
        return;
    if (t->asked == MR_CACHE_COLD && t->cold_share < 0)
        DOUBT(j, "asked for a cold cache; this file system cannot tell whether it was");
    else if (t->asked == MR_CACHE_COLD && t->cold_share < 0.95)
        DOUBT(j, "asked for a cold cache, but %.0f %% of the data was in memory", 100 * (1 - t->cold_share));
    else if (t->asked == MR_CACHE_WARM && t->cold_share > 0.05)
        DOUBT(j, "asked for a warm cache, but %.0f %% of the data was not in memory", 100 * t->cold_share);
    else if (t->asked == MR_CACHE_ASIS && reads && uses_page_cache(j) && t->cold_share >= 0 &&
             t->cold_share < 1 - CACHED_SHARE)
        DOUBT(j,
              "%.0f %% of the data was in the page cache, so memory was measured, not storage (--cache cold drops it, "
              "--cache warm says that it is meant)",
              100 * (1 - t->cold_share));
}

static void doubt_cpus(struct mr_job *j)
{
    const struct mr_job_trust *t = &j->result.trust;
    bool launched =
        j->result.ranks_by && strcmp(j->result.ranks_by, "self") != 0 && strcmp(j->result.ranks_by, "fork") != 0;
    if (t->cpus_around > t->cpus && t->threads > t->cpus)
        DOUBT(j, "%u threads are pinned to %u of %u CPUs%s", t->threads, t->cpus, t->cpus_around,
              launched ? " (mpirun binds ranks to cores unless told otherwise: mpirun --bind-to none)" : "");
    /* Many threads that wait for storage are fine; many that want the CPU distort each other's times. */
    else if (t->threads > t->cpus && t->cpu_share > 0.7)
        DOUBT(j, "%u threads keep %u CPU%s %.0f %% busy: decoding and waiting are mixed up", t->threads, t->cpus,
              t->cpus == 1 ? "" : "s", 100 * t->cpu_share);
    if (t->ceiling_share > CEILING_SHARE)
        DOUBT(j, "the harness itself may limit: a rank read at %.0f %% of what it can without any storage",
              100 * t->ceiling_share);
}

static bool has_target(const struct mr_job *j)
{
    return j->w->workflow.train && j->result.metrics->steps && j->result.metrics->compute_mean_s > 0;
}

static void doubt_steps(struct mr_job *j)
{
    const struct mr_metrics *m = j->result.metrics;
    double target = j->w->metric.au;
    uint64_t each = m->au_steps;
    if (!has_target(j))
        return;
    if (each < STEPS_LEAST)
        DOUBT(j, "too few steps: the AU is that of %llu %s per rank, of at least %d", (unsigned long long)each,
              mr_plural(each, "step", "steps"), STEPS_LEAST);
    else if (m->au_low < target && m->au_high >= target)
        DOUBT(j, "too few steps: the AU lies between %.1f and %.1f %% (95 %%), the target of %.0f %% in between",
              100 * m->au_low, 100 * m->au_high, 100 * target);
}

/* A host that wakes the trainer late makes accelerators look idle, whatever the storage does. */
static void doubt_wakeups(struct mr_job *j)
{
    double asked = 0, took = 0;
    if (j->opt.compute != MR_COMPUTE_SLEEP)
        return;
    for (uint32_t k = 0; k < j->result.board->world; k++)
        for (size_t i = 0; i < j->result.series[k].n; i++) {
            asked += (double)j->result.series[k].steps[i].compute_ns;
            took += (double)j->result.series[k].steps[i].compute_wall_ns;
        }
    if (asked > 0 && took > (1 + LATE_SHARE) * asked)
        DOUBT(j, "this machine is too busy for these compute times: %.0f %% more passed than was asked for",
              100 * (took / asked - 1));
}

static void doubt_clock(struct mr_job *j)
{
    const struct mr_job_trust *t = &j->result.trust;
    const struct mr_metrics *m = j->result.metrics;
    doubt_wakeups(j);
    if (t->timer_late_ns > MR_NS_PER_MS && (double)t->timer_late_ns > 1e9 * LATE_SHARE * m->compute_mean_s)
        DOUBT(j, "timers fire %.1f ms late: short compute times are not exact", (double)t->timer_late_ns / 1e6);
    if (m->step_s.p50 > 0 && (double)t->clock_step_ns > 0.01e9 * m->step_s.p50)
        DOUBT(j, "the clock moves in steps of %.3f ms, half of the steps take less than %.3f ms",
              (double)t->clock_step_ns / 1e6, 1e3 * m->step_s.p50);
    if (fabs(t->clock_shift_s) > fmax(SHIFT_LEAST_S, 0.02 * m->duration_s))
        DOUBT(j, "the system clock moved by %.1f s while the run went on: it was set, or the machine stood still",
              t->clock_shift_s);
}

void mr_job_find_doubts(struct mr_job *j)
{
    doubt_data(j);
    if (j->info.samples || j->result.metrics->loads)
        doubt_cache(j);
    doubt_cpus(j);
    doubt_steps(j);
    doubt_clock(j);
}

enum mr_job_verdict mr_job_judge(const struct mr_job *j, char *because, size_t cap)
{
    const struct mr_strings *doubts = &j->result.trust.doubts;
    because[0] = '\0';
    if (!has_target(j))
        return MR_JOB_NOT_ASKED;
    if (j->result.code)
        snprintf(because, cap, "the run is incomplete: %s", j->result.why.message);
    else if (doubts->n == 1)
        snprintf(because, cap, "%s", doubts->item[0]);
    else if (doubts->n)
        snprintf(because, cap, "%s (and %u more %s)", doubts->item[0], doubts->n - 1,
                 mr_plural(doubts->n - 1, "doubt", "doubts"));
    else if (isnan(j->result.metrics->au))
        snprintf(because, cap, "there is no step but those left out at the start and the end");
    if (because[0])
        return MR_JOB_NO_VERDICT;
    return j->result.metrics->au >= j->w->metric.au ? MR_JOB_PASS : MR_JOB_FAIL;
}
