/* What the trust in a result rests on: what was asked of the page cache against what was measured, how fast the harness
 * itself is (the same reads on the null store), how many CPUs the threads have, how good the clock is. job_doubts.c
 * judges it. */
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/common.h"
#include "dataset/dataset_parts.h"
#include "job/job_internal.h"
#include "store/store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CEILING_NS (200 * MR_NS_PER_MS)

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
    p.policy = p.policy && !strcmp(p.policy, "naive") ? p.policy : "staging";
    p.tiers = NULL;
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

static void measure_cache(struct mr_job *j)
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
}

/* Direct reads of samples, where the file system of the data set has them; elsewhere the cache was used after all. */
static bool bypasses_cache(const struct mr_job *j)
{
    char dataset[4200], path[2 * MR_NAME_MAX];
    struct mr_bench_params bp;
    struct mr_dataset *ds;
    bool asked = j->w->reader.odirect || strstr(j->opt.store, "direct=true") || strstr(j->opt.store, "direct=1");
    if (!asked || mr_store_is_url(j->data) || !j->info.samples || !j->result.metrics->steps)
        return false;
    mr_job_trainer_params(j, &bp);
    mr_bench_set_path(&bp, false, dataset, sizeof dataset);
    if (mr_dataset_open(dataset, NULL, &ds, NULL))
        return false;
    int fd = mr_dataset_file_path(ds, 0, path, NULL) < 0 ? -1 : open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    mr_dataset_close(ds);
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

/* Ranks that a launcher pinned have their CPUs for themselves; all others share those that there are. */
static void measure_cpus(struct mr_job *j)
{
    struct mr_job_trust *t = &j->result.trust;
    const struct mr_bench_board *b = j->result.board;
    bool launched = j->comm && mr_comm_is_launched(j->comm);
    unsigned each = b->ranks[j->result.rank].loader.stats.threads + (j->opt.compute != MR_COMPUTE_SLEEP ? 1 : 0);
    double cpu_s = 0;
    t->cpus_around = mr_cpus_of_process(getppid());
    bool apart = launched && t->cpus_around > mr_cpus_affinity();
    unsigned sharing = apart ? 1 : j->result.local_world;
    t->threads = sharing * each;
    for (uint32_t k = 0; k < b->world; k++)
        cpu_s += (double)b->ranks[k].loader.stats.cpu_ns / 1e9;
    cpu_s *= (double)sharing / b->world;
    t->cpu_share = j->result.metrics->duration_s > 0 ? cpu_s / j->result.metrics->duration_s / t->cpus : 0;
    if (t->cpus_around <= mr_cpus_affinity()) /* a quota is not a pinning */
        t->cpus_around = t->cpus;
}

void mr_job_measure_trust(struct mr_job *j)
{
    struct mr_job_trust *t = &j->result.trust;
    measure_clock(t);
    measure_cpus(j);
    t->cold_share = -1;
    if (j->info.samples || j->result.metrics->loads)
        measure_cache(j);
    t->bypasses_cache = bypasses_cache(j);
    if (j->info.samples && j->opt.ceiling && j->result.metrics->steps && !j->result.code)
        measure_ceiling(j);
    mr_job_find_doubts(j);
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
        "{s:b, s:o, s:s, s:o, s:b, s:o, s:o, s:o, s:i, s:i, s:i, s:i, s:b, s:f, s:I, s:I, s:f}", "trusted",
        t->doubts.n == 0 && !j->result.code, "doubts", mr_strings_to_json(&t->doubts), "cache_asked", caches[t->asked],
        "cold_fraction", number_or_null(t->cold_share < 0 ? NAN : t->cold_share), "cache_bypassed", t->bypasses_cache,
        "harness_ceiling_samples_per_s", number_or_null(t->ceiling_samples_per_s > 0 ? t->ceiling_samples_per_s : NAN),
        "harness_ceiling_bytes_per_s", number_or_null(t->ceiling_bytes_per_s > 0 ? t->ceiling_bytes_per_s : NAN),
        "harness_ceiling_share", number_or_null(t->ceiling_share > 0 ? t->ceiling_share : NAN), "cpus", (int)t->cpus,
        "cpus_around", (int)t->cpus_around, "local_ranks", (int)j->result.local_world, "threads", (int)t->threads,
        "overcommitted", t->threads > t->cpus, "reader_cpu_share", t->cpu_share, "clock_step_ns",
        (json_int_t)t->clock_step_ns, "timer_lateness_ns", (json_int_t)t->timer_late_ns, "clock_shift_s",
        t->clock_shift_s);
}
