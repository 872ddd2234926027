/* The DLIO benchmark's figures by its own formulas (its statistics counter, 2024-2026), kept apart because several of
 * them are not what their names say; doc/reference/metrics.md lists how they differ from ours. On the same series they
 * equal DLIO's.
 *
 *   block         steps up to a checkpoint, and its wall clock T
 *   AU(block)     sum of compute[start..end] / (T - sum of load + compute of the steps left out), in percent
 *   rate(block)   (steps - 2) x batch / the same time, whatever was left out
 *   epoch         mean of its blocks weighted by their steps; job: mean (AU) or sum (rate) over ranks, then mean over
 * epochs MB/s          rate x configured record length / 2^20 */
#include "base/common.h"
#include "metrics/metrics.h"

#include <math.h>
#include <string.h>

struct block {
    const struct mr_step *steps;
    size_t n;
};

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* DLIO's two times of a step: from asking for the batch to the end of compute, and compute with its oversleeping. */
static double proc_s(const struct mr_step *s)
{
    return seconds(s->load_ns + s->copy_ns + s->compute_wall_ns);
}

/* The bound of a Python slice: negative ones count from the end of the list. */
static size_t bound(int64_t at, size_t n)
{
    return at < 0 ? (size_t)MR_MAX((int64_t)n + at, 0) : MR_MIN((size_t)at, n);
}

/* Without the steps [0, start) and (end, n), which overlap when more is left out than there is. */
static double trimmed_s(const struct block *b, uint64_t start, int64_t end)
{
    double t = seconds(b->steps[b->n - 1].end_ns - b->steps[0].start_ns);
    for (size_t i = 0; i < bound((int64_t)start, b->n); i++)
        t -= proc_s(&b->steps[i]);
    for (size_t i = bound(end + 1, b->n); i < b->n; i++)
        t -= proc_s(&b->steps[i]);
    return t;
}

static double kept_compute_s(const struct block *b, uint64_t start, int64_t end)
{
    double c = 0;
    for (size_t i = bound((int64_t)start, b->n); i < bound(end + 1, b->n); i++)
        c += seconds(b->steps[i].compute_wall_ns);
    return c;
}

static void train_block(const struct block *b, const struct mr_dlio_params *p, double *au, double *rate)
{
    int64_t end = (int64_t)p->steps_per_epoch - 1 - (int64_t)p->exclude_end;
    double t = trimmed_s(b, p->exclude_start, end), c = kept_compute_s(b, p->exclude_start, end);
    *au = c == 0 || t == 0 ? 0 : 100 * c / t;
    *rate = t == 0 ? 0 : ((double)b->n - 2) / t * p->batch_size;
}

static void eval_block(const struct block *b, const struct mr_dlio_params *p, double *au, double *rate)
{
    int64_t end = (int64_t)p->eval_steps - 1 - (int64_t)p->exclude_end;
    double c = kept_compute_s(b, p->exclude_start, end), t = trimmed_s(b, p->exclude_start, end);
    double wall = seconds(b->steps[b->n - 1].end_ns - b->steps[0].start_ns);
    *au = c == 0 || t == 0 ? 0 : 100 * c / t;
    *rate = wall == 0 ? 0 : (double)b->n / wall * p->batch_size_eval;
}

/* The run of steps from `at` on that share phase, epoch and block. */
static struct block block_at(const struct mr_rank_series *r, size_t at)
{
    const struct mr_step *s = &r->steps[at];
    size_t n = 1;
    while (at + n < r->n && s[n].phase == s->phase && s[n].epoch == s->epoch && s[n].block == s->block)
        n++;
    return (struct block){s, n};
}

struct weighted {
    double au, rate, steps;
};

static void add_rank(const struct mr_rank_series *r, const struct mr_dlio_params *p, struct mr_dlio_metrics *out)
{
    struct weighted w = {0};
    uint32_t epoch = UINT32_MAX, evals = 0, epochs = 0;
    for (size_t at = 0; at <= r->n;) {
        const struct mr_step *s = at < r->n ? &r->steps[at] : NULL;
        bool ends = epoch != UINT32_MAX && (!s || (s->phase == MR_PHASE_TRAIN && s->epoch != epoch));
        if (ends && epochs < MR_METRICS_EPOCHS_MAX) {
            out->train_au[epochs] += w.steps > 0 ? w.au / w.steps : 0;
            out->train_throughput[epochs++] += w.steps > 0 ? w.rate / w.steps : 0;
            w = (struct weighted){0};
        }
        if (!s)
            break;
        struct block b = block_at(r, at);
        double au, rate;
        if (s->phase == MR_PHASE_TRAIN) {
            train_block(&b, p, &au, &rate);
            w.au += au * (double)b.n;
            w.rate += rate * (double)b.n;
            w.steps += (double)b.n;
            epoch = s->epoch;
        } else if (evals < MR_METRICS_EPOCHS_MAX) {
            eval_block(&b, p, &au, &rate);
            out->eval_au[evals] += au;
            out->eval_throughput[evals++] += rate;
        }
        at += b.n;
    }
    out->epochs = MR_MAX(out->epochs, epochs);
    out->evals = MR_MAX(out->evals, evals);
}

static void mean_stdev(const double *v, size_t n, double *mean, double *stdev)
{
    double sum = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    *mean = n ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++)
        square += (v[i] - *mean) * (v[i] - *mean);
    *stdev = n ? sqrt(square / (double)n) : 0;
}

/* Rank 0 only, as DLIO does: size of the whole checkpoint over that rank's time. */
static void checkpoints(const struct mr_rank_series *series, size_t n, bool loads, struct mr_dlio_metrics *out)
{
    double sum_io = 0, sum_io2 = 0, sum_t = 0, sum_t2 = 0, count = 0;
    for (size_t i = 0; n && i < series[0].n_checkpoints; i++) {
        const struct mr_checkpoint_event *c = &series[0].checkpoints[i];
        if (c->is_load != loads)
            continue;
        double bytes = 0, t = seconds(c->duration_ns);
        for (size_t r = 0; r < n; r++)
            bytes += i < series[r].n_checkpoints ? (double)series[r].checkpoints[i].bytes : 0;
        double io = t > 0 ? bytes / (double)MR_GIB / t : 0;
        out->checkpoint_gib = bytes / (double)MR_GIB;
        sum_io += io;
        sum_io2 += io * io;
        sum_t += t;
        sum_t2 += t * t;
        count += 1;
    }
    if (count == 0)
        return;
    double io = sum_io / count, t = sum_t / count;
    double io_dev = sqrt(fmax(0, sum_io2 / count - io * io)), t_dev = sqrt(fmax(0, sum_t2 / count - t * t));
    *(loads ? &out->load_io_mean : &out->save_io_mean) = io;
    *(loads ? &out->load_io_stdev : &out->save_io_stdev) = io_dev;
    *(loads ? &out->load_duration_mean : &out->save_duration_mean) = t;
    *(loads ? &out->load_duration_stdev : &out->save_duration_stdev) = t_dev;
}

void mr_dlio_compute(const struct mr_rank_series *series, size_t n, const struct mr_dlio_params *p,
                     struct mr_dlio_metrics *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t r = 0; r < n; r++)
        add_rank(&series[r], p, out);
    for (uint32_t e = 0; n && e < MR_METRICS_EPOCHS_MAX; e++) { /* AU: mean over ranks; the rate stays a sum */
        out->train_au[e] /= (double)n;
        out->eval_au[e] /= (double)n;
    }
    double to_mib = p->record_bytes / (double)MR_MIB;
    mean_stdev(out->train_au, out->epochs, &out->train_au_mean, &out->train_au_stdev);
    mean_stdev(out->train_throughput, out->epochs, &out->train_throughput_mean, &out->train_throughput_stdev);
    mean_stdev(out->eval_au, out->evals, &out->eval_au_mean, &out->eval_au_stdev);
    mean_stdev(out->eval_throughput, out->evals, &out->eval_throughput_mean, &out->eval_throughput_stdev);
    out->train_io_mean = out->train_throughput_mean * to_mib;
    out->train_io_stdev = out->train_throughput_stdev * to_mib;
    out->eval_io_mean = out->eval_throughput_mean * to_mib;
    out->eval_io_stdev = out->eval_throughput_stdev * to_mib;
    out->train_meets = out->train_au_mean >= 100 * p->au_target;
    out->eval_meets = out->eval_au_mean >= 100 * p->au_target;
    checkpoints(series, n, false, out);
    checkpoints(series, n, true, out);
}
