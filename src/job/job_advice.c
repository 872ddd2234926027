/* What would help a run that waited for its data, in one line. More threads only help where more streams bring more
 * bytes, which the probe after the run has found out (job_probe.c); where they do not, the storage is the limit, and it
 * is named with its rate. A pure function of the job and its result. */
#include "base/common.h"
#include "base/strbuf.h"
#include "job/job_internal.h"

#include <math.h>
#include <stdio.h>

#define THREADS_MOST 256 /* advice to start more than this is none */
#define ENOUGH 1.2       /* times what the accelerators ask for */
#define GROWS 1.15       /* so much more from more streams is more */
#define NEARLY 0.9

static double batches(const struct mr_job *j)
{
    double n = 0;
    for (uint32_t k = 0; k < j->result.board->world; k++)
        n += (double)j->result.board->ranks[k].loader.stats.batches;
    return n;
}

/* What a batch costs a thread. */
static double batch_s(const struct mr_job *j)
{
    struct mr_job_loaders l = mr_job_sum_loaders(j);
    return (l.read + l.decode + l.transform) / batches(j) / 1e9;
}

double mr_job_needed_threads(const struct mr_job *j)
{
    double compute_s = j->result.metrics->compute_mean_s;
    return batches(j) > 0 && compute_s > 0 ? ceil(batch_s(j) / compute_s * 1.1) : 0;
}

bool mr_job_queues_reads(const struct mr_job *j)
{
    return j->opt.io == MR_LOADER_IO_QUEUE || (j->opt.io == MR_LOADER_IO_AUTO && j->w->reader.odirect);
}

/* Never less than what the run itself got while it waited. */
bool mr_job_storage_limit(const struct mr_job *j, double *bytes_per_s)
{
    const struct mr_job_probe *p = &j->result.probe;
    const struct mr_metrics *m = j->result.metrics;
    double here = (double)j->result.local_world / MR_MAX(j->result.world, 1u);
    double got = isfinite(m->supply_bytes_per_s) ? m->supply_bytes_per_s * here : 0;
    if (!(p->bytes_per_s[0] > 0) || !(p->bytes_per_s[1] > 0))
        return false;
    *bytes_per_s = fmax(got, fmax(p->bytes_per_s[0], p->bytes_per_s[1]));
    /* Storage that gives clearly more than is asked for is not the limit, whatever more threads would get. */
    bool grows = p->bytes_per_s[1] >= GROWS * p->bytes_per_s[0];
    return *bytes_per_s < (grows ? NEARLY : ENOUGH) * m->demand_bytes_per_s * here;
}

static const char *mbps(double bytes_per_s, char text[32])
{
    double x = bytes_per_s / 1e6;
    snprintf(text, 32, x >= 10 ? "%.0f MB/s" : x >= 1 ? "%.1f MB/s" : "%.3f MB/s", x);
    return text;
}

/* More threads, as far as they bring anything. */
static void advise_threads(const struct mr_job *j, double threads, double needed, struct mr_strbuf *s)
{
    const struct mr_job_probe *p = &j->result.probe;
    const struct mr_metrics *m = j->result.metrics;
    double limit, grows = p->bytes_per_s[0] > 0 ? p->bytes_per_s[1] / p->bytes_per_s[0] : 0;
    bool limited = mr_job_storage_limit(j, &limit);
    char a[32], b[32];
    if (limited && grows < GROWS)
        mr_strbuf_printf(
            s,
            "the storage is the limit: %s, to %u %s as to %u; the accelerators ask for %s. More threads do "
            "not help; fewer bytes per sample, a cache or faster tier in front, or a faster device would",
            mbps(limit, a), p->streams[0], mr_plural(p->streams[0], "thread", "threads"), p->streams[1],
            mbps(m->demand_bytes_per_s, b));
    else if (needed > THREADS_MOST)
        mr_strbuf_puts(s, "no number of threads makes up for that");
    else if (limited) {
        double enough = fmin(needed, ceil(threads * grows - 0.1));
        mr_strbuf_printf(s,
                         "try --threads %.0f --lookahead %.0f; then the storage is the limit: %s, of %s that the "
                         "accelerators ask for",
                         enough, enough + 1, mbps(limit, a), mbps(m->demand_bytes_per_s, b));
    } else {
        mr_strbuf_printf(s, "try --threads %.0f --lookahead %.0f", needed, needed + 1);
        if (grows > 0)
            mr_strbuf_printf(s, " (%u %s read %s, %u read %s)", p->streams[0],
                             mr_plural(p->streams[0], "thread", "threads"), mbps(p->bytes_per_s[0], a), p->streams[1],
                             mbps(p->bytes_per_s[1], b));
        else
            mr_strbuf_puts(s, " (if storage and CPUs allow)");
    }
}

void mr_job_advise(const struct mr_job *j, struct mr_strbuf *out)
{
    const struct mr_metrics *m = j->result.metrics;
    struct mr_job_loaders l = mr_job_sum_loaders(j);
    double threads = j->result.board->ranks[0].loader.stats.threads, needed = mr_job_needed_threads(j), limit;
    char cost[MR_MAX(MR_HUMAN_LEN, 32)], compute[MR_MAX(MR_HUMAN_LEN, 32)];
    if (!m->steps || !(m->split.data >= MR_ADVICE_STALL) || needed <= 0 || threads < 1)
        return;
    double cpus = l.cpu / batches(j) / 1e9 / m->compute_mean_s * j->result.local_world;
    bool reads = l.read > l.decode + l.transform;
    mr_strbuf_printf(out, "a batch costs a thread %s, computing it takes %s: ", mr_human_ns(batch_s(j) * 1e9, cost),
                     mr_human_ns(m->compute_mean_s * 1e9, compute));
    if (cpus > j->result.trust.cpus)
        mr_strbuf_printf(out, "the reading threads alone would need %.0f CPUs, there are %u", ceil(cpus),
                         j->result.trust.cpus);
    else if (mr_job_queues_reads(j) && reads && l.read > l.idle)
        mr_strbuf_printf(
            out,
            "the storage is the limit: %s, to a queue of requests; the accelerators ask for %s. Fewer bytes "
            "per sample, a cache or faster tier in front, or a faster device would help",
            mbps(m->read_bytes_per_s, cost), mbps(m->demand_bytes_per_s, compute));
    else if (needed > threads || (reads && mr_job_storage_limit(j, &limit))) /* threads may be idle for it, too */
        advise_threads(j, threads, needed, out);
    else
        mr_strbuf_printf(out, "%.0f threads are enough; try --lookahead %.0f, or faster storage", threads,
                         fmax(2, ceil(m->stall_s.p99 / m->compute_mean_s)) + threads);
}
