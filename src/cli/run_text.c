/* The summary on the terminal: verdict first, at most 40 lines. */
#include "base/common.h"
#include "base/strbuf.h"
#include "base/workers.h"
#include "cli/run_internal.h"

#include <math.h>
#include <millrace/order.h>
#include <string.h>

#define LISTED_EPOCHS 6u
#define LISTED_NOTES 4u
#define THREADS_MOST 256 /* advice to start more than this is none */

/* Sums over the ranks' loaders. */
struct loaders {
    double read, decode, transform, idle, empty, cpu;
};

static struct loaders add_up(const struct run *r)
{
    struct loaders l = {0};
    for (uint32_t k = 0; k < r->board->world; k++) {
        const struct mr_loader_stats *s = &r->board->ranks[k].loader.stats;
        l.read += (double)s->read_ns;
        l.decode += (double)s->decode_ns;
        l.transform += (double)s->transform_ns;
        l.idle += (double)s->idle_ns;
        l.cpu += (double)s->cpu_ns;
        l.empty += s->empty_ratio / (double)r->board->world;
    }
    return l;
}

static const char *why_data(const struct run *r, char *text, size_t cap)
{
    struct loaders l = add_up(r);
    double busy = l.read + l.decode + l.transform, all = busy + l.idle;
    if (all <= 0)
        snprintf(text, cap, "data loading");
    else if (r->metrics->epoch_start_share > 0.5 && l.idle > busy)
        snprintf(text, cap, "the starts of epochs: %.0f %% of the waiting is for their first batch, and they are short",
                 100 * r->metrics->epoch_start_share);
    else if (l.idle > busy)
        snprintf(text, cap,
                 "a look-ahead that is too short: threads are idle %.0f %% of the time, yet batches come late",
                 100 * l.idle / all);
    else if (l.read >= l.decode + l.transform)
        snprintf(text, cap, "storage: %.0f %% of the reading threads' time is spent waiting for reads",
                 100 * l.read / all);
    else
        snprintf(text, cap, "%s: %.0f %% of the reading threads' time goes to decoding and preprocessing",
                 l.transform > l.decode ? "preprocessing" : "decoding", 100 * (l.decode + l.transform) / all);
    return text;
}

const char *mr_run_limiter(const struct run *r, char *text, size_t cap)
{
    const struct mr_split *s = &r->metrics->split;
    if (r->metrics->steps == 0)
        snprintf(text, cap, "nothing was trained");
    else if (r->metrics->au >= r->w->metric.au && s->data < 0.05 && s->checkpoint < 0.05)
        snprintf(text, cap, "compute: storage is not the limit");
    else if (s->data >= fmax(s->checkpoint, fmax(s->barrier, s->other)))
        return why_data(r, text, cap);
    else if (s->checkpoint >= fmax(s->barrier, s->other))
        snprintf(text, cap, "checkpoints: training stands still for %.0f %% of the time", 100 * s->checkpoint);
    else if (s->barrier >= s->other)
        snprintf(text, cap, "waiting for the slowest rank (imbalance %.0f %%)", 100 * r->metrics->imbalance);
    else
        snprintf(text, cap, "late wake-ups and overhead (%.0f %%), not by storage: %u rank%s on %u CPU%s",
                 100 * s->other, r->comm->local_world, r->comm->local_world == 1 ? "" : "s", mr_cpus_available(),
                 mr_cpus_available() == 1 ? "" : "s");
    return text;
}

static void print_verdict(FILE *f, const struct run *r)
{
    const struct mr_metrics *m = r->metrics;
    char why[256];
    double target = r->w->metric.au;
    if (r->code)
        fprintf(f, "INCOMPLETE: %s\n", r->why.message);
    if (!r->w->workflow.train) {
        fprintf(f, "%llu checkpoints written, %llu read back and verified\n", (unsigned long long)m->saves,
                (unsigned long long)m->loads);
        return;
    }
    if (m->steps == 0 || isnan(m->au)) {
        fprintf(f, "too few steps for a verdict: %llu of all ranks\n", (unsigned long long)m->steps);
        return;
    }
    if (m->compute_mean_s <= 0) {
        fprintf(f, "%.0f samples/s without compute; limited by %s\n", m->samples_per_s,
                mr_run_limiter(r, why, sizeof why));
        return;
    }
    bool fine = m->au >= target && m->split.data < 0.05 && m->split.checkpoint < 0.05;
    fprintf(f, "AU %.1f %% (target %.0f %%): %s; %s%s\n", 100 * m->au, 100 * target,
            r->code           ? "no verdict"
            : m->au >= target ? "PASS"
                              : "FAIL",
            fine              ? ""
            : m->au >= target ? "next limit: "
                              : "limited by ",
            fine ? "storage is not the limit" : mr_run_limiter(r, why, sizeof why));
}

/* How many threads per rank would load a batch in the time one computes, by what a batch cost a thread in this run. */
static void print_advice(FILE *f, const struct run *r)
{
    const struct mr_metrics *m = r->metrics;
    struct loaders l = add_up(r);
    double batches = 0, threads = r->board->ranks[0].loader.stats.threads;
    char cost[MR_HUMAN_LEN], compute[MR_HUMAN_LEN];
    for (uint32_t k = 0; k < r->board->world; k++)
        batches += (double)r->board->ranks[k].loader.stats.batches;
    if (m->split.data < 0.05 || batches <= 0 || threads < 1 || m->compute_mean_s <= 0)
        return;
    double batch_s = (l.read + l.decode + l.transform) / batches / 1e9;
    double needed = ceil(batch_s / m->compute_mean_s * 1.1);
    double cpus = l.cpu / batches / 1e9 / m->compute_mean_s * r->comm->local_world;
    fprintf(f, "  advice        a batch costs a thread %s, computing it takes %s: ", mr_human_ns(batch_s * 1e9, cost),
            mr_human_ns(m->compute_mean_s * 1e9, compute));
    if (cpus > mr_cpus_available())
        fprintf(f, "the reading threads alone would need %.0f CPUs, there are %u\n", ceil(cpus), mr_cpus_available());
    else if (needed > THREADS_MOST)
        fprintf(f, "no number of threads makes up for that\n");
    else if (needed > threads)
        fprintf(f, "try --threads %.0f --lookahead %.0f (if storage and CPUs allow)\n", needed, needed + 1);
    else
        fprintf(f, "%.0f threads are enough; try --lookahead %.0f, or faster storage\n", threads,
                fmax(2, ceil(m->stall_s.p99 / m->compute_mean_s)) + threads);
}

static void print_rates(FILE *f, const struct run *r)
{
    const struct mr_metrics *m = r->metrics;
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN], c[MR_HUMAN_LEN], d[MR_HUMAN_LEN];
    if (isnan(m->au))
        fputs("  AU            none: no step but those left out at the start and the end", f);
    else
        fprintf(f, "  AU            %.2f %%, 95 %% between %.2f and %.2f %%", 100 * m->au, 100 * m->au_low,
                100 * m->au_high);
    if (!isnan(m->au_cold) && !isnan(m->au_warm))
        fprintf(f, "; first epoch %.2f %%, later %.2f %%", 100 * m->au_cold, 100 * m->au_warm);
    fprintf(f, "\n  throughput    %.1f samples/s, %s read, %s to the trainer\n", m->samples_per_s,
            mr_human_rate(m->read_bytes_per_s, a), mr_human_rate(m->sample_bytes_per_s, b));
    fprintf(f, "  stall/step    p50 %s, p95 %s, p99 %s, max %s; %.1f %% of steps stall over 5 %%\n",
            mr_human_ns(m->stall_s.p50 * 1e9, a), mr_human_ns(m->stall_s.p95 * 1e9, b),
            mr_human_ns(m->stall_s.p99 * 1e9, c), mr_human_ns(m->stall_s.max * 1e9, d), 100 * m->stalled_steps);
    fprintf(f,
            "  time          compute %.1f %%, data %.1f %%, checkpoint %.1f %%, barrier %.1f %%, copy %.1f %%, other "
            "%.1f %%\n",
            100 * m->split.compute, 100 * m->split.data, 100 * m->split.checkpoint, 100 * m->split.barrier,
            100 * m->split.copy, 100 * m->split.other);
    struct loaders l = add_up(r);
    double all = l.read + l.decode + l.transform + l.idle;
    if (all > 0)
        fprintf(f,
                "  readers       read %.1f %%, decode %.1f %%, preprocess %.1f %%, idle %.1f %% of the reading "
                "threads' time\n",
                100 * l.read / all, 100 * l.decode / all, 100 * l.transform / all, 100 * l.idle / all);
    if (isfinite(m->demand_bytes_per_s) && m->demand_bytes_per_s > 0) {
        fprintf(f, "  demand        %s", mr_human_rate(m->demand_bytes_per_s, a));
        if (isfinite(m->supply_bytes_per_s))
            fprintf(f, ", supply %s while it was the limit, headroom %.2f", mr_human_rate(m->supply_bytes_per_s, b),
                    m->headroom);
        fprintf(f, "; without stalls %.2f times as fast\n", m->ceiling);
    }
    double preload_s = 0;
    for (uint32_t k = 0; k < r->board->world; k++)
        preload_s = fmax(preload_s, r->board->ranks[k].preload_s);
    if (preload_s > 0)
        fprintf(f, "  preload       %s before the first step, to read the whole set\n",
                mr_human_ns(preload_s * 1e9, a));
    print_advice(f, r);
    if (r->comm->world > 1)
        fprintf(f, "  imbalance     %.1f %% per step, %.2f s in all%s\n", 100 * m->imbalance, m->imbalance_cost_s,
                m->straggler >= 0 ? "; one rank is a straggler" : "");
}

static void print_epochs(FILE *f, const struct mr_metrics *m)
{
    char rate[MR_HUMAN_LEN];
    if (m->n_epochs < 2)
        return;
    fputs("  epoch      steps    seconds       AU %   samples/s        read  stall %\n", f);
    for (uint32_t e = 0; e < m->n_epochs; e++) {
        const struct mr_metrics_epoch *x = &m->epochs[e];
        if (m->n_epochs > LISTED_EPOCHS && e == LISTED_EPOCHS - 1 && e + 1 < m->n_epochs) {
            fprintf(f, "  ... %u more in summary.json\n", m->n_epochs - LISTED_EPOCHS);
            e = m->n_epochs - 2;
            continue;
        }
        fprintf(f, "  %5u %10llu %10.2f %10.2f %11.1f %11s %8.2f\n", e + 1, (unsigned long long)x->steps, x->duration_s,
                100 * (isnan(x->au) ? 0 : x->au), x->samples_per_s, mr_human_rate(x->read_bytes_per_s, rate),
                100 * x->stall_share);
    }
}

static void print_checkpoints(FILE *f, const struct mr_metrics *m)
{
    char size[MR_HUMAN_LEN], rate[MR_HUMAN_LEN], slowest[MR_HUMAN_LEN], mean[MR_HUMAN_LEN];
    if (m->saves)
        fprintf(f, "  saved         %llu x %s at %s; mean %s, slowest %s; fsync %.0f %% of write and fsync\n",
                (unsigned long long)m->saves, mr_human_bytes((double)m->save_bytes / (double)m->saves, size),
                mr_human_rate(m->save_bytes_per_s, rate), mr_human_ns(m->save_s.mean * 1e9, mean),
                mr_human_ns(m->save_s.max * 1e9, slowest), 100 * m->fsync_share);
    if (m->loads)
        fprintf(f, "  loaded        %llu x %s at %s; mean %s, slowest %s\n", (unsigned long long)m->loads,
                mr_human_bytes((double)m->load_bytes / (double)m->loads, size),
                mr_human_rate(m->load_bytes_per_s, rate), mr_human_ns(m->load_s.mean * 1e9, mean),
                mr_human_ns(m->load_s.max * 1e9, slowest));
}

uint64_t mr_run_left_in_buffer(const struct run *r)
{
    uint64_t left = 0;
    for (uint32_t k = 0; k < r->board->world; k++)
        left += r->board->ranks[k].drains_left;
    return left;
}

static void print_drains(FILE *f, const struct run *r)
{
    const struct mr_metrics_drains *d = &r->metrics->drain;
    uint64_t left = mr_run_left_in_buffer(r);
    char size[MR_HUMAN_LEN], rate[MR_HUMAN_LEN], mean[MR_HUMAN_LEN], room[MR_HUMAN_LEN], end[MR_HUMAN_LEN];
    if (!r->w->workflow.checkpoint || !*r->w->burst_buffer.folder)
        return;
    fprintf(f, "  drained       %llu of the burst buffer", (unsigned long long)d->drains);
    if (d->drains)
        fprintf(f, ", %s at %s; mean %s, %.0f %% of it while training", mr_human_bytes((double)d->bytes, size),
                mr_human_rate(d->bytes_per_s, rate), mr_human_ns(d->drain_s.mean * 1e9, mean), 100 * d->overlap_share);
    fprintf(f, "; waited %s for room, %s at the end\n", mr_human_ns(d->room_wait_s * 1e9, room),
            mr_human_ns(d->end_wait_s * 1e9, end));
    if (r->metrics->saves > d->buffered)
        fprintf(f, "  burst buffer  %llu of %llu checkpoints went around it\n",
                (unsigned long long)(r->metrics->saves - d->buffered), (unsigned long long)r->metrics->saves);
    if (left)
        fprintf(f, "  burst buffer  %llu checkpoint%s in it (%llu drain%s failed); the next run drains what is there\n",
                (unsigned long long)left, left == 1 ? " is" : "s are", (unsigned long long)d->failed,
                d->failed == 1 ? "" : "s");
}

static void print_trust(FILE *f, const struct run *r)
{
    const struct run_trust *t = &r->trust;
    char lateness[MR_HUMAN_LEN];
    fputs("  trust         ", f);
    if (t->cold_share >= 0)
        fprintf(f, "%.0f %% of the data was cold; ", 100 * t->cold_share);
    if (t->ceiling_samples_per_s > 0)
        fprintf(f, "harness alone %.0f samples/s per rank; ", t->ceiling_samples_per_s);
    fprintf(f, "%u threads on %u CPUs; timers %s late\n", t->threads, t->cpus,
            mr_human_ns((double)t->timer_late_ns, lateness));
    for (unsigned i = 0; i < t->doubts.n; i++)
        fprintf(f, "  doubt         %s\n", t->doubts.item[i]);
}

/* The order that was read in: "auto" is told as what it became. */
static const char *order_name(const struct run *r)
{
    const char *name = mr_workload_order_name(r->w);
    if (strcmp(name, "auto") != 0)
        return name;
    return r->info.samples <= MR_ORDER_AUTO_TORCH_MAX ? "torch" : "cipher";
}

void mr_run_print_summary(FILE *f, const struct run *r)
{
    const struct mr_metrics *m = r->metrics;
    print_verdict(f, r);
    fprintf(f, "  workload      %s: %u rank%s x batch %lld, %s order, seed %llu; %.2f s\n",
            *r->w->name ? r->w->name : "(defaults)", r->comm->world, r->comm->world == 1 ? "" : "s",
            (long long)r->w->reader.batch_size, order_name(r), (unsigned long long)r->seed, m->duration_s);
    if (r->w->workflow.train && m->steps)
        print_rates(f, r);
    if (!isnan(m->eval_au))
        fprintf(f, "  evaluation    AU %.2f %%, %.1f samples/s\n", 100 * m->eval_au, m->eval_samples_per_s);
    print_checkpoints(f, m);
    print_drains(f, r);
    print_epochs(f, m);
    if (r->w->workflow.train && m->steps)
        fprintf(f,
                "  by DLIO       AU %.2f %%, %.1f samples/s, %.2f \"MB\"/s (its formulas; doc/metrics.md says what "
                "they miss)\n",
                r->dlio->train_au_mean, r->dlio->train_throughput_mean, r->dlio->train_io_mean);
    print_trust(f, r);
    for (unsigned i = 0; i < r->notes.n && i < LISTED_NOTES; i++)
        fprintf(f, "  note          %s\n", r->notes.item[i]);
    fprintf(f, "  results       %s\n", r->out);
}
