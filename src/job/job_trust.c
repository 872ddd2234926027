/* How far a result can be trusted: what was asked of the page cache against what was measured, how fast the harness
 * itself is (the same reads on the null store), whether threads fit the CPUs, how good the clock is. */
#include "base/clock.h"
#include "base/common.h"
#include "job/job_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CEILING_NS (200 * MR_NS_PER_MS)
#define LATE_SHARE 0.10 /* of the compute time, overslept: more is a doubt */

/* ---- measuring ---- */

static void measure_clock(struct mr_job_trust *t)
{
    double late[5];
    uint64_t smallest = UINT64_MAX;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t a = mr_now_ns(), b = mr_now_ns();
        if (b > a)
            smallest = MR_MIN(smallest, b - a);
    }
    for (unsigned i = 0; i < MR_ARRAY_LEN(late); i++) {
        uint64_t until = mr_now_ns() + 200 * MR_NS_PER_US;
        mr_clock_sleep_until(mr_clock_real(), until, NULL);
        late[i] = (double)(mr_now_ns() - until);
    }
    t->clock_step_ns = smallest == UINT64_MAX ? 0 : smallest;
    t->timer_late_ns = (uint64_t)mr_quantile(late, MR_ARRAY_LEN(late), 0.5);
}

/* Reads batches from a store that does nothing, for a moment. Decoding is left out: there is nothing to decode. */
static void measure_ceiling(struct mr_job *j)
{
    struct mr_bench_params bp;
    struct mr_loader_params p;
    char store[96], dataset[4200];
    struct mr_loader *l;
    struct mr_batch *b;
    mr_job_trainer_params(j, &bp);
    mr_bench_loader_params(&bp, false, &p);
    snprintf(store, sizeof store, "null(size=%" PRIu64 ",fill=none)", j->info.file_bytes + 4096);
    mr_bench_set_path(&bp, false, dataset, sizeof dataset);
    p.dataset = dataset;
    p.store = store;
    p.flags = MR_LOADER_RAW;
    p.io = MR_LOADER_IO_THREADS;
    if (mr_loader_open(&p, &l, NULL))
        return;
    uint64_t limit =
        MR_MIN(CEILING_NS, (uint64_t)(j->result.metrics->duration_s * 1e8)); /* at most a tenth of the run */
    uint64_t start = mr_now_ns(), samples = 0, bytes = 0, now = start;
    for (uint64_t e = 0; now - start < limit && mr_loader_start_epoch(l, e, NULL) == 0; e++)
        while (now - start < limit && mr_loader_next(l, &b, NULL) > 0) {
            samples += b->n;
            bytes += b->read_bytes;
            mr_loader_release(l, b);
            now = mr_now_ns();
        }
    mr_loader_close(l);
    if (samples && now > start) {
        j->result.trust.ceiling_samples_per_s = (double)samples / ((double)(now - start) / 1e9);
        j->result.trust.ceiling_bytes_per_s = (double)bytes / ((double)(now - start) / 1e9);
        j->result.trust.ceiling_share =
            j->result.metrics->samples_per_s / (double)j->result.world / j->result.trust.ceiling_samples_per_s;
    }
}

static void doubt_cache(struct mr_job *j)
{
    struct mr_job_trust *t = &j->result.trust;
    struct mr_bench_cold sum = {0};
    for (uint32_t k = 0; k < j->result.board->world; k++) {
        sum.cold_bytes += j->result.board->ranks[k].cold.cold_bytes;
        sum.total_bytes += j->result.board->ranks[k].cold.total_bytes;
        sum.unknown_files += j->result.board->ranks[k].cold.unknown_files;
    }
    t->asked = (enum mr_bench_cache)j->opt.cache;
    t->cold_share = sum.total_bytes && !sum.unknown_files ? (double)sum.cold_bytes / (double)sum.total_bytes : -1;
    struct mr_arena *a = j->arena;
    if (t->asked == MR_CACHE_COLD && t->cold_share < 0)
        mr_job_note(&t->doubts, a, "asked for a cold cache; this file system cannot tell whether it was");
    else if (t->asked == MR_CACHE_COLD && t->cold_share < 0.95)
        mr_job_note(&t->doubts, a, "asked for a cold cache, but %.0f %% of the data was in memory",
                    100 * (1 - t->cold_share));
    else if (t->asked == MR_CACHE_WARM && t->cold_share > 0.05)
        mr_job_note(&t->doubts, a, "asked for a warm cache, but %.0f %% of the data was not in memory",
                    100 * t->cold_share);
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
        mr_job_note(&j->result.trust.doubts, j->arena,
                    "this machine is too busy for these compute times: %.0f %% more passed than was asked for",
                    100 * (took / asked - 1));
}

void mr_job_measure_trust(struct mr_job *j)
{
    struct mr_job_trust *t = &j->result.trust;
    struct mr_arena *a = j->arena;
    measure_clock(t);
    unsigned each = j->result.board->ranks[j->comm->rank].loader.stats.threads;
    t->threads = j->result.local_world * (each + (j->opt.compute != MR_COMPUTE_SLEEP ? 1 : 0));
    t->cold_share = -1;
    if (j->info.samples || j->result.metrics->loads)
        doubt_cache(j);
    if (j->info.samples && j->opt.ceiling && j->result.metrics->steps && !j->result.code)
        measure_ceiling(j);
    if (t->ceiling_share > 0.5)
        mr_job_note(&t->doubts, a,
                    "the harness itself may limit: a rank read at %.0f %% of what it can without any storage",
                    100 * t->ceiling_share);
    /* Many threads that wait for storage are fine; many that want the CPU distort each other's times. */
    double cpu_s = 0;
    for (uint32_t k = 0; k < j->result.board->world; k++)
        cpu_s += (double)j->result.board->ranks[k].loader.stats.cpu_ns / 1e9;
    t->cpu_share = j->result.metrics->duration_s > 0 ? cpu_s / j->result.metrics->duration_s / t->cpus : 0;
    if (t->threads > t->cpus && t->cpu_share > 0.7)
        mr_job_note(&t->doubts, a, "%u threads keep %u CPU%s %.0f %% busy: decoding and waiting are mixed up",
                    t->threads, t->cpus, t->cpus == 1 ? "" : "s", 100 * t->cpu_share);
    doubt_wakeups(j);
    if (t->timer_late_ns > MR_NS_PER_MS)
        mr_job_note(&t->doubts, a, "timers fire %.1f ms late: short compute times are not exact",
                    (double)t->timer_late_ns / 1e6);
}

/* ---- telling ---- */

static json_t *number_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *mr_job_trust_json(const struct mr_job *j)
{
    static const char *const caches[] = {"asis", "cold", "warm"};
    const struct mr_job_trust *t = &j->result.trust;
    return json_pack(
        "{s:b, s:o, s:s, s:o, s:o, s:o, s:o, s:i, s:i, s:i, s:b, s:f, s:I, s:I}", "trusted",
        t->doubts.n == 0 && !j->result.code, "doubts", mr_strings_to_json(&t->doubts), "cache_asked", caches[t->asked],
        "cold_fraction", number_or_null(t->cold_share < 0 ? NAN : t->cold_share), "harness_ceiling_samples_per_s",
        number_or_null(t->ceiling_samples_per_s > 0 ? t->ceiling_samples_per_s : NAN), "harness_ceiling_bytes_per_s",
        number_or_null(t->ceiling_bytes_per_s > 0 ? t->ceiling_bytes_per_s : NAN), "harness_ceiling_share",
        number_or_null(t->ceiling_share > 0 ? t->ceiling_share : NAN), "cpus", (int)t->cpus, "local_ranks",
        (int)j->result.local_world, "threads", (int)t->threads, "overcommitted", t->threads > t->cpus,
        "reader_cpu_share", t->cpu_share, "clock_step_ns", (json_int_t)t->clock_step_ns, "timer_lateness_ns",
        (json_int_t)t->timer_late_ns);
}
