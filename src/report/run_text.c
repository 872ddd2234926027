/* The summary of a run as text: verdict first, at most 40 lines. */
#include "base/common.h"
#include "base/strbuf.h"
#include "report/run_text.h"
#include "job/job_tiers.h"
#include "report/report_text.h"

#include <math.h>
#include <millrace/order.h>
#include <stdlib.h>
#include <string.h>

#define LISTED_EPOCHS 6u
#define LISTED_NOTES 4u
#define LISTED_FIELDS 8u

static void print_verdict(struct mr_strbuf *o, const struct mr_job *j)
{
    const struct mr_metrics *m = j->result.metrics;
    char why[256], because[1100];
    double target = j->w->metric.au;
    if (j->result.code)
        mr_strbuf_printf(o, "INCOMPLETE: %s\n", j->result.why.message);
    if (!j->w->workflow.train) {
        mr_strbuf_printf(o, "%llu %s written, %llu read back and verified\n", (unsigned long long)m->saves,
                         mr_plural(m->saves, "checkpoint", "checkpoints"), (unsigned long long)m->loads);
        return;
    }
    if (m->steps == 0 || isnan(m->au)) {
        mr_strbuf_printf(o, "too few steps for a verdict: %llu of all ranks\n", (unsigned long long)m->steps);
        return;
    }
    if (m->compute_mean_s <= 0) {
        mr_strbuf_printf(o, "%.0f samples/s without compute; limited by %s\n", m->samples_per_s,
                         mr_job_limiter(j, why, sizeof why));
        return;
    }
    enum mr_job_verdict verdict = mr_job_judge(j, because, sizeof because);
    bool fine = m->au >= target && m->split.data < 0.05 && m->split.checkpoint < 0.05;
    mr_strbuf_printf(o, "AU %.1f %% (target %.0f %%): ", 100 * m->au, 100 * target);
    if (verdict == MR_JOB_NO_VERDICT)
        mr_strbuf_printf(o, "no verdict, because %s%s", because, fine ? "\n" : "\n  limit         ");
    else
        mr_strbuf_printf(o, "%s; ", verdict == MR_JOB_PASS ? "PASS" : "FAIL");
    if (!fine)
        mr_strbuf_printf(o, "%s%s\n", m->au >= target ? "next limit: " : "limited by ",
                         mr_job_limiter(j, why, sizeof why));
    else if (verdict == MR_JOB_PASS)
        mr_strbuf_printf(o, "storage%s is not the limit\n",
                         j->result.trust.asked == MR_CACHE_WARM ? " with its data in memory" : "");
}

/* What `millrace report` says of the run's trace: the verdict, and what would help. */
static void print_explained(struct mr_strbuf *o, const struct mr_job *j, bool findings)
{
    struct mr_strbuf text = {0};
    char rest[4200];
    snprintf(rest, sizeof rest, "millrace report %s --all", j->out);
    if (!mr_job_is_explained(j))
        return;
    if (findings)
        mr_report_findings(j->result.explained, &(struct mr_report_text){.alarms = true, .rest = rest}, &text);
    else
        mr_report_verdict(j->result.explained, &text);
    if (text.text && !text.failed)
        mr_strbuf_puts(o, text.text);
    mr_strbuf_done(&text);
}

/* The rules decide where they can: a rank that is last for want of a shared storage's bytes is no straggler. */
static bool is_straggler_told(const struct mr_job *j)
{
    const struct mr_explanation *x = j->result.explained;
    bool told = !mr_job_is_explained(j);
    for (size_t i = 0; !told && i < x->findings; i++)
        told = strcmp(x->finding[i].id, "TL2") == 0;
    return told && j->result.metrics->straggler >= 0;
}

static void print_rates(struct mr_strbuf *o, const struct mr_job *j)
{
    const struct mr_metrics *m = j->result.metrics;
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN], c[MR_HUMAN_LEN], d[MR_HUMAN_LEN];
    if (isnan(m->au))
        mr_strbuf_puts(o, "  AU            none: no step but those left out at the start and the end");
    else
        mr_strbuf_printf(o, "  AU            %.2f %%, 95 %% between %.2f and %.2f %%", 100 * m->au, 100 * m->au_low,
                         100 * m->au_high);
    if (!isnan(m->au_cold) && !isnan(m->au_warm))
        mr_strbuf_printf(o, "; first epoch %.2f %%, later %.2f %%", 100 * m->au_cold, 100 * m->au_warm);
    mr_strbuf_printf(o, "\n  throughput    %.1f samples/s, %s read, %s to the trainer\n", m->samples_per_s,
                     mr_human_rate(m->read_bytes_per_s, a), mr_human_rate(m->sample_bytes_per_s, b));
    mr_strbuf_printf(o, "  stall/step    p50 %s, p95 %s, p99 %s, max %s; %.1f %% of steps stall over 5 %%\n",
                     mr_human_ns(m->stall_s.p50 * 1e9, a), mr_human_ns(m->stall_s.p95 * 1e9, b),
                     mr_human_ns(m->stall_s.p99 * 1e9, c), mr_human_ns(m->stall_s.max * 1e9, d),
                     100 * m->stalled_steps);
    mr_strbuf_printf(
        o,
        "  time          compute %.1f %%, data %.1f %%, checkpoint %.1f %%, barrier %.1f %%, copy %.1f %%, other "
        "%.1f %%\n",
        100 * m->split.compute, 100 * m->split.data, 100 * m->split.checkpoint, 100 * m->split.barrier,
        100 * m->split.copy, 100 * m->split.other);
    struct mr_job_loaders l = mr_job_sum_loaders(j);
    double all = l.read + l.decode + l.transform + l.idle;
    if (all > 0)
        mr_strbuf_printf(
            o,
            "  readers       read %.1f %%, decode %.1f %%, preprocess %.1f %%, idle %.1f %% of the reading "
            "threads' time\n",
            100 * l.read / all, 100 * l.decode / all, 100 * l.transform / all, 100 * l.idle / all);
    if (isfinite(m->demand_bytes_per_s) && m->demand_bytes_per_s > 0) {
        mr_strbuf_printf(o, "  demand        %s", mr_human_rate(m->demand_bytes_per_s, a));
        if (isfinite(m->supply_bytes_per_s))
            mr_strbuf_printf(o, ", supply %s while it was the limit, headroom %.2f",
                             mr_human_rate(m->supply_bytes_per_s, b), m->headroom);
        mr_strbuf_printf(o, "; removing all stalls would make it at most %.2fx faster\n", m->ceiling);
    }
    double preload_s = 0;
    for (uint32_t k = 0; k < j->result.board->world; k++)
        preload_s = fmax(preload_s, j->result.board->ranks[k].preload_s);
    if (preload_s > 0)
        mr_strbuf_printf(o, "  preload       %s before the first step, to read the whole set\n",
                         mr_human_ns(preload_s * 1e9, a));
    if (j->result.world > 1)
        mr_strbuf_printf(o, "  imbalance     %.1f %% per step, %.2f s in all", 100 * m->imbalance, m->imbalance_cost_s);
    if (j->result.world > 1 && is_straggler_told(j))
        mr_strbuf_printf(o, "; rank %lld is a straggler", (long long)m->straggler);
    if (j->result.world > 1)
        mr_strbuf_putc(o, '\n');
}

/* "ram 75.0 % (2,250 samples, 182 MB), source 25.0 % (750 samples, 61 MB, 3.2 ms each)" */
static void print_sources(struct mr_strbuf *o, const struct mr_job_tiers *t)
{
    char n[MR_HUMAN_LEN], size[MR_HUMAN_LEN], took[MR_HUMAN_LEN];
    const char *sep = "  sources       ";
    for (unsigned i = 0; i < MR_JOB_SOURCES; i++) {
        const struct mr_loader_from *x = &t->from[i];
        if (!x->samples)
            continue;
        mr_strbuf_printf(o, "%s%s %.1f %% (%s samples, %s", sep, mr_job_sources[i],
                         100 * (double)x->samples / (double)t->samples, mr_human_count(x->samples, n),
                         mr_human_bytes((double)x->bytes, size));
        if (x->fetch_ns)
            mr_strbuf_printf(o, ", %s each", mr_human_ns((double)x->fetch_ns / (double)x->samples, took));
        mr_strbuf_putc(o, ')');
        sep = ", ";
    }
    if (t->samples)
        mr_strbuf_putc(o, '\n');
}

static int by_cost(const void *a, const void *b)
{
    const struct mr_bench_field *x = a, *y = b;
    uint64_t p = x->decode_ns + x->transform_ns, q = y->decode_ns + y->transform_ns;
    return p != q ? (p < q) - (p > q) : (x->stored_bytes < y->stored_bytes) - (x->stored_bytes > y->stored_bytes);
}

/* Where samples have several fields: which of them is read and decoded for how much. */
static void print_fields(struct mr_strbuf *o, const struct mr_job *j)
{
    struct mr_bench_fields f;
    char read[MR_HUMAN_LEN], given[MR_HUMAN_LEN];
    mr_job_sum_fields(j, &f);
    if (f.n < 2)
        return;
    qsort(f.field, f.n, sizeof f.field[0], by_cost);
    for (uint32_t k = 0; k < f.n && k < LISTED_FIELDS; k++) {
        const struct mr_bench_field *x = &f.field[k];
        mr_strbuf_printf(o, "  %-14s%-12s %s read, %s to the trainer; decoded in %.3f s", k ? "" : "fields", x->name,
                         mr_human_bytes((double)x->stored_bytes, read), mr_human_bytes((double)x->bytes, given),
                         (double)x->decode_ns / 1e9);
        if (x->transform_ns)
            mr_strbuf_printf(o, ", preprocessed in %.3f s", (double)x->transform_ns / 1e9);
        mr_strbuf_putc(o, '\n');
    }
    if (f.n > LISTED_FIELDS)
        mr_strbuf_printf(o, "  %-14sand %u more: 'fields' in summary.json\n", "", f.n - LISTED_FIELDS);
}

static void print_tiers(struct mr_strbuf *o, const struct mr_job *j)
{
    const struct mr_bench_board *b = j->result.board;
    struct mr_job_tiers t;
    char read[MR_HUMAN_LEN], distinct[MR_HUMAN_LEN], rate[MR_HUMAN_LEN];
    mr_job_sum_tiers(j, &t);
    if (!t.used)
        return;
    struct mr_strbuf asked = {0}; /* where only the trace is left */
    if (!*b->ranks[0].loader.chosen)
        mr_job_tell_policy(j, &asked);
    mr_strbuf_printf(o, "  tiers         %s%s\n", asked.text ? asked.text : b->ranks[0].loader.chosen,
                     t.nodes > 1 ? "; all nodes: tiers_chosen in summary.json" : "");
    mr_strbuf_done(&asked);
    print_sources(o, &t);
    mr_strbuf_printf(o, "  source        %s read", mr_human_bytes((double)t.sum.source_bytes, read));
    if (t.distinct_bytes)
        mr_strbuf_printf(o, ", %.3f times the %s that are distinct",
                         (double)t.sum.source_bytes / (double)t.distinct_bytes,
                         mr_human_bytes((double)t.distinct_bytes, distinct));
    if (t.source_bytes_per_s > 0)
        mr_strbuf_printf(o, ", at %s", mr_human_rate(t.source_bytes_per_s, rate));
    if (t.bound_s > 0)
        mr_strbuf_printf(o, "; bound %.2f s, the epochs took %.2f times that", t.bound_s, t.train_s / t.bound_s);
    mr_strbuf_putc(o, '\n');
    if (t.sum.refetched || t.sum.ssd_refused || t.sum.peers_lost)
        mr_strbuf_printf(
            o,
            "  faults        %llu fetched again (%llu with a wrong checksum), %llu refused by the SSD, %u peers lost\n",
            (unsigned long long)t.sum.refetched, (unsigned long long)t.sum.corrupt,
            (unsigned long long)t.sum.ssd_refused, t.sum.peers_lost);
}

static void print_epochs(struct mr_strbuf *o, const struct mr_metrics *m)
{
    char rate[MR_HUMAN_LEN];
    if (m->n_epochs < 2)
        return;
    mr_strbuf_puts(o, "  epoch      steps    seconds       AU %   samples/s        read  stall %\n");
    for (uint32_t e = 0; e < m->n_epochs; e++) {
        const struct mr_metrics_epoch *x = &m->epochs[e];
        if (m->n_epochs > LISTED_EPOCHS && e == LISTED_EPOCHS - 1 && e + 1 < m->n_epochs) {
            mr_strbuf_printf(o, "  ... %u more in summary.json\n", m->n_epochs - LISTED_EPOCHS);
            e = m->n_epochs - 2;
            continue;
        }
        mr_strbuf_printf(o, "  %5u %10llu %10.2f %10.2f %11.1f %11s %8.2f\n", e + 1, (unsigned long long)x->steps,
                         x->duration_s, 100 * (isnan(x->au) ? 0 : x->au), x->samples_per_s,
                         mr_human_rate(x->read_bytes_per_s, rate), 100 * x->stall_share);
    }
}

static void print_checkpoints(struct mr_strbuf *o, const struct mr_metrics *m)
{
    char size[MR_HUMAN_LEN], rate[MR_HUMAN_LEN], slowest[MR_HUMAN_LEN], mean[MR_HUMAN_LEN];
    if (m->saves)
        mr_strbuf_printf(o, "  saved         %llu x %s at %s; mean %s, slowest %s; fsync %.0f %% of write and fsync\n",
                         (unsigned long long)m->saves, mr_human_bytes((double)m->save_bytes / (double)m->saves, size),
                         mr_human_rate(m->save_bytes_per_s, rate), mr_human_ns(m->save_s.mean * 1e9, mean),
                         mr_human_ns(m->save_s.max * 1e9, slowest), 100 * m->fsync_share);
    if (m->loads)
        mr_strbuf_printf(o, "  loaded        %llu x %s at %s; mean %s, slowest %s\n", (unsigned long long)m->loads,
                         mr_human_bytes((double)m->load_bytes / (double)m->loads, size),
                         mr_human_rate(m->load_bytes_per_s, rate), mr_human_ns(m->load_s.mean * 1e9, mean),
                         mr_human_ns(m->load_s.max * 1e9, slowest));
}

static void print_drains(struct mr_strbuf *o, const struct mr_job *j)
{
    const struct mr_metrics_drains *d = &j->result.metrics->drain;
    uint64_t left = mr_job_left_in_buffer(j);
    char size[MR_HUMAN_LEN], rate[MR_HUMAN_LEN], mean[MR_HUMAN_LEN], room[MR_HUMAN_LEN], end[MR_HUMAN_LEN];
    bool buffer = *j->w->burst_buffer.folder;
    if (!j->w->workflow.checkpoint || (!buffer && !d->buffered))
        return;
    mr_strbuf_printf(o, buffer ? "  drained       %llu of the burst buffer" : "  written       %llu behind training",
                     (unsigned long long)d->drains);
    if (d->drains)
        mr_strbuf_printf(o, ", %s at %s; mean %s, %.0f %% of it while training", mr_human_bytes((double)d->bytes, size),
                         mr_human_rate(d->bytes_per_s, rate), mr_human_ns(d->drain_s.mean * 1e9, mean),
                         100 * d->overlap_share);
    mr_strbuf_printf(o, "; waited %s for room, %s at the end\n", mr_human_ns(d->room_wait_s * 1e9, room),
                     mr_human_ns(d->end_wait_s * 1e9, end));
    if (!buffer)
        return;
    if (j->result.metrics->saves > d->buffered)
        mr_strbuf_printf(o, "  burst buffer  %llu of %llu checkpoints went around it\n",
                         (unsigned long long)(j->result.metrics->saves - d->buffered),
                         (unsigned long long)j->result.metrics->saves);
    if (left)
        mr_strbuf_printf(
            o, "  burst buffer  %llu checkpoint%s in it (%llu drain%s failed); the next run drains what is there\n",
            (unsigned long long)left, left == 1 ? " is" : "s are", (unsigned long long)d->failed,
            d->failed == 1 ? "" : "s");
}

static void print_trust(struct mr_strbuf *o, const struct mr_job *j)
{
    const struct mr_job_trust *t = &j->result.trust;
    char lateness[MR_HUMAN_LEN], alone[MR_HUMAN_LEN];
    mr_strbuf_puts(o, "  trust         ");
    if (t->bypasses_cache)
        mr_strbuf_puts(o, "direct reads, around the page cache; ");
    else if (t->cold_share >= 0)
        mr_strbuf_printf(o, "%.0f %% of the data was already in the page cache; ", 100 * (1 - t->cold_share));
    if (t->ceiling_samples_per_s > 0)
        mr_strbuf_printf(o, "harness alone %s samples/s per rank; ",
                         mr_human_count((unsigned long long)(t->ceiling_samples_per_s + 0.5), alone));
    mr_strbuf_printf(o, "%u %s on %u %s; timers %s late\n", t->threads, mr_plural(t->threads, "thread", "threads"),
                     t->cpus, mr_plural(t->cpus, "CPU", "CPUs"), mr_human_ns((double)t->timer_late_ns, lateness));
    for (unsigned i = 0; i < t->doubts.n; i++)
        mr_strbuf_printf(o, "  doubt         %s\n", t->doubts.item[i]);
}

/* The order that was read in: "auto" is told as what it became. */
static const char *order_name(const struct mr_job *j)
{
    const char *name = mr_workload_order_name(j->w);
    if (strcmp(name, "auto") != 0)
        return name;
    return j->info.samples <= MR_ORDER_AUTO_TORCH_MAX ? "torch" : "cipher";
}

/* DLIO counts the steps of a block less two, so an epoch of one or two steps has a negative rate or none; it computes
 * MB/s with the size of a sample that the workload says, whatever was read. */
static void print_dlio(struct mr_strbuf *o, const struct mr_job *j)
{
    const struct mr_dlio_metrics *d = j->result.dlio;
    const struct mr_metrics *m = j->result.metrics;
    char says[MR_HUMAN_LEN], has[MR_HUMAN_LEN];
    double real = m->samples ? fmax((double)m->sample_bytes, (double)m->read_bytes) / (double)m->samples : 0;
    bool other = real > 0 && (real < j->plan.record_bytes / 1.2 || real > j->plan.record_bytes * 1.2);
    if (d->train_throughput_mean <= 0) {
        mr_strbuf_puts(o, "  by DLIO       no rate: its formula needs at least 3 steps between checkpoints "
                          "(doc/reference/metrics.md)\n");
        return;
    }
    mr_strbuf_printf(o, "  by DLIO       AU %.2f %%, %.1f samples/s, ", d->train_au_mean, d->train_throughput_mean);
    if (other && j->result.trust.doubts.n)
        mr_strbuf_printf(
            o, "no MB/s: it takes a sample for %s bytes, here it has %s (DLIO's formulas, doc/reference/metrics.md)\n",
            mr_human_count((unsigned long long)(j->plan.record_bytes + 0.5), says),
            mr_human_count((unsigned long long)(real + 0.5), has));
    else
        mr_strbuf_printf(o, "%.2f MiB/s of records (DLIO's formulas, doc/reference/metrics.md)\n", d->train_io_mean);
}

void mr_report_job(const struct mr_job *j, bool explains, struct mr_strbuf *o)
{
    const struct mr_metrics *m = j->result.metrics;
    print_verdict(o, j);
    if (explains)
        print_explained(o, j, false);
    mr_strbuf_printf(o, "  workload      %s: %u rank%s x batch %lld, %s order, seed %llu; %.2f s\n",
                     *j->w->name ? j->w->name : "(defaults)", j->result.world, j->result.world == 1 ? "" : "s",
                     (long long)j->w->reader.batch_size, order_name(j), (unsigned long long)j->seed, m->duration_s);
    if (j->w->workflow.train && m->steps)
        print_rates(o, j);
    if (!isnan(m->eval_au))
        mr_strbuf_printf(o, "  evaluation    AU %.2f %%, %.1f samples/s\n", 100 * m->eval_au, m->eval_samples_per_s);
    print_fields(o, j);
    print_tiers(o, j);
    print_checkpoints(o, m);
    print_drains(o, j);
    print_epochs(o, m);
    if (j->w->workflow.train && m->steps)
        print_dlio(o, j);
    print_trust(o, j);
    for (unsigned i = 0; i < j->notes.n && i < LISTED_NOTES; i++)
        mr_strbuf_printf(o, "  note          %s\n", j->notes.item[i]);
    mr_strbuf_printf(o, "  results       %s\n", j->out);
    if (explains)
        print_explained(o, j, true);
}
