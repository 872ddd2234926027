/* How far a result can be trusted: what was asked of the page cache against what was measured, how fast the harness
 * itself is (the same reads on the null store), whether threads fit the CPUs, how good the clock is. */
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/workers.h"
#include "cli/run_internal.h"

#include <inttypes.h>
#include <math.h>
#include <millrace/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CEILING_NS (200 * MR_NS_PER_MS)
#define LATE_SHARE 0.10 /* of the compute time, overslept: more is a doubt */

/* ---- measuring ---- */

static void measure_clock(struct run_trust *t)
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
static void measure_ceiling(struct run *r)
{
    struct mr_bench_params bp = {.workload = r->w,
                                 .plan = &r->plan,
                                 .comm = r->comm,
                                 .board = r->board,
                                 .data = r->data,
                                 .first_files = {r->first_files[0], r->first_files[1]},
                                 .seed = r->seed,
                                 .threads = (unsigned)r->opt->threads,
                                 .lookahead = r->opt->lookahead};
    struct mr_loader_params p;
    char store[96], dataset[4200];
    struct mr_loader *l;
    struct mr_batch *b;
    mr_bench_loader_params(&bp, false, &p);
    snprintf(store, sizeof store, "null(size=%" PRIu64 ",fill=none)", r->info.file_bytes + 4096);
    mr_bench_set_path(&bp, false, dataset, sizeof dataset);
    p.dataset = dataset;
    p.store = store;
    p.flags = MR_LOADER_RAW;
    p.io = MR_LOADER_IO_THREADS;
    if (mr_loader_open(&p, &l, NULL))
        return;
    uint64_t limit = MR_MIN(CEILING_NS, (uint64_t)(r->metrics->duration_s * 1e8)); /* at most a tenth of the run */
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
        r->trust.ceiling_samples_per_s = (double)samples / ((double)(now - start) / 1e9);
        r->trust.ceiling_bytes_per_s = (double)bytes / ((double)(now - start) / 1e9);
        r->trust.ceiling_share = r->metrics->samples_per_s / (double)r->comm->world / r->trust.ceiling_samples_per_s;
    }
}

static void doubt_cache(struct run *r)
{
    struct run_trust *t = &r->trust;
    struct mr_bench_cold sum = {0};
    for (uint32_t k = 0; k < r->board->world; k++) {
        sum.cold_bytes += r->board->ranks[k].cold.cold_bytes;
        sum.total_bytes += r->board->ranks[k].cold.total_bytes;
        sum.unknown_files += r->board->ranks[k].cold.unknown_files;
    }
    t->asked = (enum mr_bench_cache)r->opt->cache;
    t->cold_share = sum.total_bytes && !sum.unknown_files ? (double)sum.cold_bytes / (double)sum.total_bytes : -1;
    struct mr_arena *a = r->ctx->arena;
    if (t->asked == MR_CACHE_COLD && t->cold_share < 0)
        mr_run_note(&t->doubts, a, "asked for a cold cache; this file system cannot tell whether it was");
    else if (t->asked == MR_CACHE_COLD && t->cold_share < 0.95)
        mr_run_note(&t->doubts, a, "asked for a cold cache, but %.0f %% of the data was in memory",
                    100 * (1 - t->cold_share));
    else if (t->asked == MR_CACHE_WARM && t->cold_share > 0.05)
        mr_run_note(&t->doubts, a, "asked for a warm cache, but %.0f %% of the data was not in memory",
                    100 * t->cold_share);
}

/* A host that wakes the trainer late makes accelerators look idle, whatever the storage does. */
static void doubt_wakeups(struct run *r)
{
    double asked = 0, took = 0;
    if (r->opt->compute != MR_COMPUTE_SLEEP)
        return;
    for (uint32_t k = 0; k < r->board->world; k++)
        for (size_t i = 0; i < r->series[k].n; i++) {
            asked += (double)r->series[k].steps[i].compute_ns;
            took += (double)r->series[k].steps[i].compute_wall_ns;
        }
    if (asked > 0 && took > (1 + LATE_SHARE) * asked)
        mr_run_note(&r->trust.doubts, r->ctx->arena,
                    "this machine is too busy for these compute times: %.0f %% more passed than was asked for",
                    100 * (took / asked - 1));
}

void mr_run_measure_trust(struct run *r)
{
    struct run_trust *t = &r->trust;
    struct mr_arena *a = r->ctx->arena;
    measure_clock(t);
    t->cpus = mr_cpus_available();
    unsigned each = r->board->ranks[r->comm->rank].loader.stats.threads;
    t->threads = r->comm->local_world * (each + (r->opt->compute != MR_COMPUTE_SLEEP ? 1 : 0));
    t->cold_share = -1;
    if (r->info.samples || r->metrics->loads)
        doubt_cache(r);
    if (r->info.samples && r->opt->ceiling && r->metrics->steps && !r->code)
        measure_ceiling(r);
    if (t->ceiling_share > 0.5)
        mr_run_note(&t->doubts, a,
                    "the harness itself may limit: a rank read at %.0f %% of what it can without any storage",
                    100 * t->ceiling_share);
    /* Many threads that wait for storage are fine; many that want the CPU distort each other's times. */
    double cpu_s = 0;
    for (uint32_t k = 0; k < r->board->world; k++)
        cpu_s += (double)r->board->ranks[k].loader.stats.cpu_ns / 1e9;
    t->cpu_share = r->metrics->duration_s > 0 ? cpu_s / r->metrics->duration_s / t->cpus : 0;
    if (t->threads > t->cpus && t->cpu_share > 0.7)
        mr_run_note(&t->doubts, a, "%u threads keep %u CPU%s %.0f %% busy: decoding and waiting are mixed up",
                    t->threads, t->cpus, t->cpus == 1 ? "" : "s", 100 * t->cpu_share);
    doubt_wakeups(r);
    if (t->timer_late_ns > MR_NS_PER_MS)
        mr_run_note(&t->doubts, a, "timers fire %.1f ms late: short compute times are not exact",
                    (double)t->timer_late_ns / 1e6);
}

/* ---- telling ---- */

static json_t *number_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *mr_run_trust_json(const struct run *r)
{
    static const char *const caches[] = {"asis", "cold", "warm"};
    const struct run_trust *t = &r->trust;
    return json_pack(
        "{s:b, s:o, s:s, s:o, s:o, s:o, s:o, s:i, s:i, s:b, s:f, s:I, s:I}", "trusted", t->doubts.n == 0 && !r->code,
        "doubts", mr_cli_strings_json(&t->doubts), "cache_asked", caches[t->asked], "cold_fraction",
        number_or_null(t->cold_share < 0 ? NAN : t->cold_share), "harness_ceiling_samples_per_s",
        number_or_null(t->ceiling_samples_per_s > 0 ? t->ceiling_samples_per_s : NAN), "harness_ceiling_bytes_per_s",
        number_or_null(t->ceiling_bytes_per_s > 0 ? t->ceiling_bytes_per_s : NAN), "harness_ceiling_share",
        number_or_null(t->ceiling_share > 0 ? t->ceiling_share : NAN), "cpus", (int)t->cpus, "threads", (int)t->threads,
        "overcommitted", t->threads > t->cpus, "reader_cpu_share", t->cpu_share, "clock_step_ns",
        (json_int_t)t->clock_step_ns, "timer_lateness_ns", (json_int_t)t->timer_late_ns);
}

static void cpu_model(char *out, size_t cap)
{
    char line[512];
    snprintf(out, cap, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(out, cap, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (f)
        fclose(f);
}

json_t *mr_run_environment_json(const struct run *r)
{
    struct utsname u = {0};
    char cpu[256];
    uname(&u);
    cpu_model(cpu, sizeof cpu);
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:s, s:s}", "hostname", u.nodename, "kernel", u.release, "machine",
                     u.machine, "cpu", cpu, "cpus", (int)mr_cpus_available(), "memory_bytes",
                     (json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE), "millrace_version",
                     MR_VERSION, "ranks_by", r->comm->ops->name);
}
