/* Our own figures from the step series; definitions in metrics.h and doc/reference/metrics.md. */
#include "metrics/metrics.h"
#include "base/common.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STALL_SHARE 0.05
#define BOOTSTRAP_ROUNDS 1000u
#define BOOTSTRAP_BINS 2000u /* long series are resampled in so many runs of neighbouring steps */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sorted_quantile(const double *v, size_t n, double q)
{
    if (n == 0)
        return 0;
    double at = q * (double)(n - 1);
    size_t low = (size_t)at;
    return low + 1 < n ? v[low] + (at - (double)low) * (v[low + 1] - v[low]) : v[n - 1];
}

double mr_quantile(double *values, size_t n, double q)
{
    qsort(values, n, sizeof(*values), ascending);
    return sorted_quantile(values, n, q);
}

static struct mr_quantiles quantiles(double *v, size_t n)
{
    struct mr_quantiles q = {0};
    if (n == 0)
        return q;
    qsort(v, n, sizeof(*v), ascending);
    for (size_t i = 0; i < n; i++)
        q.mean += v[i] / (double)n;
    q.p50 = sorted_quantile(v, n, 0.50);
    q.p95 = sorted_quantile(v, n, 0.95);
    q.p99 = sorted_quantile(v, n, 0.99);
    q.max = v[n - 1];
    return q;
}

static double wall_ns(const struct mr_step *s)
{
    return (double)(s->end_ns - s->start_ns);
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* ---- accelerator utilisation ---- */

struct au_sum {
    double compute, wall;
    uint64_t steps;
};

/* Numbers [first, end) of a rank's training steps that count: without warm-up, and without what ends the run. */
struct counted {
    uint64_t first, end;
};

static struct counted counted_steps(const struct mr_rank_series *r, const struct mr_metrics_params *p)
{
    uint64_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += r->steps[i].phase == MR_PHASE_TRAIN;
    uint64_t first = MR_MIN(p->exclude_start, n);
    return (struct counted){first, MR_MAX(first, n - MR_MIN(p->exclude_end, n))};
}

/* Whether a step counts; *seen counts the training steps looked at so far. */
static bool step_counts(const struct mr_step *s, struct counted c, uint64_t *seen)
{
    if (s->phase != MR_PHASE_TRAIN)
        return false;
    uint64_t number = (*seen)++;
    return number >= c.first && number < c.end;
}

static struct au_sum sum_au(const struct mr_rank_series *r, const struct mr_metrics_params *p, uint32_t first_epoch,
                            uint32_t last_epoch)
{
    struct au_sum sum = {0};
    struct counted c = counted_steps(r, p);
    uint64_t k = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct mr_step *s = &r->steps[i];
        if (!step_counts(s, c, &k) || s->epoch < first_epoch || s->epoch > last_epoch)
            continue;
        sum.compute += (double)s->compute_ns;
        sum.wall += wall_ns(s);
        sum.steps++;
    }
    return sum;
}

static double au_of(const struct mr_rank_series *series, size_t n, const struct mr_metrics_params *p, uint32_t first,
                    uint32_t last, uint64_t *steps)
{
    double total = 0;
    size_t ranks = 0;
    for (size_t i = 0; i < n; i++) {
        struct au_sum s = sum_au(&series[i], p, first, last);
        if (s.steps == 0)
            continue;
        total += ratio(s.compute, s.wall);
        ranks++;
        if (steps)
            *steps = s.steps;
    }
    return ranks ? total / (double)ranks : NAN;
}

/* Sums per bin of neighbouring steps over all ranks. */
static void fill_bins(const struct mr_rank_series *r, const struct mr_metrics_params *p, size_t bins, double *compute,
                      double *wall)
{
    struct counted c = counted_steps(r, p);
    uint64_t k = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct mr_step *s = &r->steps[i];
        if (!step_counts(s, c, &k))
            continue;
        size_t bin = (size_t)((k - 1 - c.first) * bins / (c.end - c.first));
        compute[bin] += (double)s->compute_ns;
        wall[bin] += wall_ns(s);
    }
}

/* Resamples the bins. */
static void bootstrap(const struct mr_rank_series *series, size_t n, uint64_t counted,
                      const struct mr_metrics_params *p, double *low, double *high)
{
    size_t bins = (size_t)MR_MIN(counted, (uint64_t)BOOTSTRAP_BINS);
    double *compute = calloc(bins + 1, sizeof(*compute)), *wall = calloc(bins + 1, sizeof(*wall));
    double *result = calloc(BOOTSTRAP_ROUNDS, sizeof(*result));
    *low = *high = NAN;
    if (bins && compute && wall && result) {
        for (size_t r = 0; r < n; r++)
            fill_bins(&series[r], p, bins, compute, wall);
        for (uint64_t b = 0; b < BOOTSTRAP_ROUNDS; b++) {
            double c = 0, w = 0;
            for (size_t i = 0; i < bins; i++) {
                size_t pick = (size_t)mr_rng_below(mr_rng_at(p->seed, MR_RNG_TEST + 1, b * bins + i), bins);
                c += compute[pick];
                w += wall[pick];
            }
            result[b] = ratio(c, w);
        }
        qsort(result, BOOTSTRAP_ROUNDS, sizeof(*result), ascending);
        *low = sorted_quantile(result, BOOTSTRAP_ROUNDS, 0.025);
        *high = sorted_quantile(result, BOOTSTRAP_ROUNDS, 0.975);
    }
    free(compute);
    free(wall);
    free(result);
}

static void compute_au(const struct mr_rank_series *series, size_t n, const struct mr_metrics_params *p,
                       struct mr_metrics *m)
{
    m->au = au_of(series, n, p, 0, UINT32_MAX, &m->au_steps);
    m->au_cold = au_of(series, n, p, 0, 0, NULL);
    m->au_warm = au_of(series, n, p, 1, UINT32_MAX, NULL);
    bootstrap(series, n, m->au_steps, p, &m->au_low, &m->au_high);
}

/* ---- where the time went ---- */

static struct mr_split split_of(const struct mr_rank_series *r)
{
    double compute = 0, checkpoint = 0, data = 0, barrier = 0, copy = 0;
    struct mr_split out = {0};
    if (r->n == 0)
        return out;
    for (size_t i = 0; i < r->n; i++) {
        const struct mr_step *s = &r->steps[i];
        compute += (double)s->compute_ns;
        checkpoint += (double)s->checkpoint_ns;
        data += (double)s->load_ns;
        barrier += (double)s->barrier_ns;
        copy += (double)s->copy_ns;
    }
    const struct mr_step *last = &r->steps[r->n - 1];
    double window = (double)(last->end_ns + last->checkpoint_ns - r->steps[0].start_ns);
    if (window <= 0)
        return out;
    out = (struct mr_split){.compute = compute / window,
                            .checkpoint = checkpoint / window,
                            .data = data / window,
                            .barrier = barrier / window,
                            .copy = copy / window};
    out.other = fmax(0, 1 - out.compute - out.checkpoint - out.data - out.barrier - out.copy);
    return out;
}

static void compute_split(const struct mr_rank_series *series, size_t n, struct mr_metrics *m)
{
    size_t ranks = 0;
    for (size_t i = 0; i < n; i++) {
        if (series[i].n == 0)
            continue;
        struct mr_split s = split_of(&series[i]);
        ranks++;
        m->split.compute += s.compute;
        m->split.checkpoint += s.checkpoint;
        m->split.data += s.data;
        m->split.barrier += s.barrier;
        m->split.copy += s.copy;
        m->split.other += s.other;
        if (ranks == 1 || s.data > m->worst_split.data) {
            m->worst_split = s;
            m->worst_rank = series[i].rank;
        }
    }
    if (ranks == 0)
        return;
    double *parts[] = {&m->split.compute, &m->split.checkpoint, &m->split.data,
                       &m->split.barrier, &m->split.copy,       &m->split.other};
    for (size_t i = 0; i < MR_ARRAY_LEN(parts); i++)
        *parts[i] /= (double)ranks;
}

/* ---- the ceiling: no waits for data, no checkpoints ---- */

/* A rank's time since the barrier before, and the part of it without stalls. */
static void between_barriers(const struct mr_rank_series *r, size_t i, double *took, double *busy)
{
    const struct mr_step *s = &r->steps[i];
    *busy = (double)(s->copy_ns + s->compute_wall_ns);
    *took = *busy + (double)s->load_ns + (i ? (double)r->steps[i - 1].checkpoint_ns : 0);
}

/* Steps that all ranks have; 0 where no rank ever waited at a barrier. */
static size_t common_steps(const struct mr_rank_series *series, size_t n)
{
    size_t steps = n ? SIZE_MAX : 0;
    uint64_t waited = 0;
    for (size_t r = 0; r < n; r++) {
        if (!series[r].n)
            continue;
        steps = MR_MIN(steps, series[r].n);
        for (size_t i = 0; i < series[r].n; i++)
            waited += series[r].steps[i].barrier_ns;
    }
    return waited && steps != SIZE_MAX ? steps : 0;
}

/* Where ranks meet at barriers, all go on when the slowest comes. Without stalls that is earlier by the difference of
 * two maxima: barrier time that another rank's stall causes belongs to the stall. */
static double saved_at_barriers(const struct mr_rank_series *series, size_t n, size_t steps)
{
    double saved = 0;
    for (size_t i = 0; i < steps; i++) {
        double last = 0, last_busy = 0, took, busy;
        for (size_t r = 0; r < n; r++) {
            if (!series[r].n)
                continue;
            between_barriers(&series[r], i, &took, &busy);
            last = fmax(last, took);
            last_busy = fmax(last_busy, busy);
        }
        saved += last - last_busy;
    }
    return saved;
}

static void compute_ceiling(const struct mr_rank_series *series, size_t n, struct mr_metrics *m)
{
    double lost = m->split.data + m->split.checkpoint, share = 0;
    size_t ranks = 0, steps = common_steps(series, n);
    double saved = saved_at_barriers(series, n, steps);
    for (size_t r = 0; r < n && steps; r++) {
        const struct mr_step *last = series[r].n ? &series[r].steps[series[r].n - 1] : NULL;
        if (!last)
            continue;
        struct mr_split s = split_of(&series[r]);
        double window = (double)(last->end_ns + last->checkpoint_ns - series[r].steps[0].start_ns);
        share += fmin(ratio(saved + (double)last->checkpoint_ns, window), s.data + s.checkpoint + s.barrier);
        ranks++;
    }
    if (ranks)
        lost = fmax(lost, share / (double)ranks);
    m->ceiling = lost < 1 ? 1 / (1 - lost) : INFINITY;
}

/* ---- totals, stalls ---- */

/* Time this rank spent in evaluation between training steps. What follows its last training step is outside the window,
 * even where another rank is still training when it begins. */
static double eval_between_ns(const struct mr_rank_series *r)
{
    double ns = 0, pending = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->steps[i].phase == MR_PHASE_EVAL) {
            pending += wall_ns(&r->steps[i]) + (double)r->steps[i].checkpoint_ns;
        } else {
            ns += pending;
            pending = 0;
        }
    return ns;
}

static void compute_totals(const struct mr_rank_series *series, size_t n, struct mr_metrics *m)
{
    uint64_t first = UINT64_MAX, last = 0, train_first = UINT64_MAX, train_last = 0;
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < series[r].n; i++) {
            const struct mr_step *s = &series[r].steps[i];
            first = MR_MIN(first, s->start_ns);
            last = MR_MAX(last, s->end_ns + s->checkpoint_ns);
            if (s->phase != MR_PHASE_TRAIN)
                continue;
            train_first = MR_MIN(train_first, s->start_ns);
            train_last = MR_MAX(train_last, s->end_ns + s->checkpoint_ns);
            m->steps++;
            m->samples += s->samples;
            m->sample_bytes += s->sample_bytes;
            m->read_bytes += s->read_bytes;
        }
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < series[r].n_checkpoints; i++) {
            first = MR_MIN(first, series[r].checkpoints[i].start_ns);
            last = MR_MAX(last, series[r].checkpoints[i].start_ns + series[r].checkpoints[i].duration_ns);
        }
    m->duration_s = last > first && first != UINT64_MAX ? (double)(last - first) / 1e9 : 0;
    /* The rate of training: time in evaluation does not count, time in checkpoints does. */
    double train_s =
        train_last > train_first ? ((double)(train_last - train_first) - eval_between_ns(&series[0])) / 1e9 : 0;
    m->samples_per_s = ratio((double)m->samples, train_s);
    m->sample_bytes_per_s = ratio((double)m->sample_bytes, train_s);
    m->read_bytes_per_s = ratio((double)m->read_bytes, train_s);
}

static void compute_stalls(const struct mr_rank_series *series, size_t n, struct mr_metrics *m)
{
    double *load = calloc(m->steps + 1, sizeof(*load)), *step = calloc(m->steps + 1, sizeof(*step));
    size_t k = 0;
    double load_ns = 0, start_ns = 0, stalled = 0, stalled_bytes = 0, stalled_ns = 0, compute = 0;
    uint64_t stalled_steps = 0;
    for (size_t r = 0; load && step && r < n; r++)
        for (size_t i = 0, first = 1; i < series[r].n; i++) {
            const struct mr_step *s = &series[r].steps[i];
            if (s->phase != MR_PHASE_TRAIN)
                continue;
            if (first) {
                m->first_step_load_s = fmax(m->first_step_load_s, (double)s->load_ns / 1e9);
                first = 0;
            }
            load[k] = (double)s->load_ns / 1e9;
            load_ns += (double)s->load_ns;
            start_ns += s->step == 0 ? (double)s->load_ns : 0;
            step[k++] = wall_ns(s) / 1e9;
            compute += (double)s->compute_ns / 1e9;
            if ((double)s->load_ns > STALL_SHARE * wall_ns(s)) {
                stalled += 1;
                if (s->step == 0) /* the pipeline fills: no rate of delivery */
                    continue;
                stalled_bytes += (double)s->read_bytes;
                stalled_ns += wall_ns(s);
                stalled_steps++;
            }
        }
    m->stall_s = quantiles(load ? load : step, load ? k : 0);
    m->step_s = quantiles(step ? step : load, step ? k : 0);
    m->stalled_steps = ratio(stalled, (double)k);
    m->epoch_start_share = ratio(start_ns, load_ns);
    m->compute_mean_s = ratio(compute, (double)k);
    m->demand_bytes_per_s = m->compute_mean_s > 0
                                ? (double)m->read_bytes / (double)MR_MAX(m->steps, 1u) * (double)n / m->compute_mean_s
                                : INFINITY;
    m->supply_bytes_per_s = stalled_steps >= 3 ? stalled_bytes / (stalled_ns / 1e9) * (double)n : NAN;
    m->headroom = m->supply_bytes_per_s / m->demand_bytes_per_s;
    free(load);
    free(step);
}

/* ---- imbalance: the ranks' times before the barrier, step by step ---- */

static void compute_imbalance(const struct mr_rank_series *series, size_t n, struct mr_metrics *m)
{
    double *slowest = calloc(n, sizeof(*slowest));
    size_t steps = n ? series[0].n : 0, counted = 0;
    for (size_t r = 1; r < n; r++)
        steps = MR_MIN(steps, series[r].n);
    m->straggler = -1;
    if (!slowest || n < 2 || steps == 0) {
        free(slowest);
        return;
    }
    for (size_t i = 0; i < steps; i++) {
        double sum = 0, square = 0, most = -1;
        size_t who = 0;
        for (size_t r = 0; r < n; r++) {
            const struct mr_step *s = &series[r].steps[i];
            double t = (double)(s->load_ns + s->copy_ns + s->compute_wall_ns);
            sum += t;
            square += t * t;
            if (t > most) {
                most = t;
                who = r;
            }
        }
        double mean = sum / (double)n;
        if (mean <= 0)
            continue;
        slowest[who] += 1;
        counted++;
        m->imbalance += (most - mean) / mean;
        m->imbalance_cv += sqrt(fmax(0, square / (double)n - mean * mean)) / mean;
        m->imbalance_cost_s += (most - mean) / 1e9;
    }
    m->imbalance = ratio(m->imbalance, (double)counted);
    m->imbalance_cv = ratio(m->imbalance_cv, (double)counted);
    for (size_t r = 0; r < n; r++)
        if (n > 2 && counted >= 10 && slowest[r] > 2.0 * (double)counted / (double)n)
            m->straggler = series[r].rank;
    free(slowest);
}

/* ---- epochs and evaluation ---- */

static void compute_epoch(const struct mr_rank_series *series, size_t n, const struct mr_metrics_params *p,
                          uint32_t epoch, struct mr_metrics_epoch *e)
{
    uint64_t first = UINT64_MAX, last = 0, samples = 0, bytes = 0;
    double load = 0, wall = 0;
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < series[r].n; i++) {
            const struct mr_step *s = &series[r].steps[i];
            if (s->phase != MR_PHASE_TRAIN || s->epoch != epoch)
                continue;
            first = MR_MIN(first, s->start_ns);
            last = MR_MAX(last, s->end_ns + s->checkpoint_ns);
            samples += s->samples;
            bytes += s->read_bytes;
            load += (double)s->load_ns;
            wall += wall_ns(s);
            e->steps += r == 0;
            if (s->step == 0)
                e->first_step_s = fmax(e->first_step_s, wall_ns(s) / 1e9);
        }
    e->epoch = epoch;
    e->duration_s = last > first && first != UINT64_MAX ? (double)(last - first) / 1e9 : 0;
    e->au = au_of(series, n, p, epoch, epoch, NULL);
    e->samples_per_s = ratio((double)samples, e->duration_s);
    e->read_bytes_per_s = ratio((double)bytes, e->duration_s);
    e->stall_share = ratio(load, wall);
}

static void compute_epochs(const struct mr_rank_series *series, size_t n, const struct mr_metrics_params *p,
                           struct mr_metrics *m)
{
    uint32_t epochs = 0;
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < series[r].n; i++)
            if (series[r].steps[i].phase == MR_PHASE_TRAIN)
                epochs = MR_MAX(epochs, series[r].steps[i].epoch + 1);
    m->n_epochs = MR_MIN(epochs, MR_METRICS_EPOCHS_MAX);
    /* Many epochs are only listed when looking at each costs little. */
    if ((double)m->n_epochs * (double)m->steps > 5e8)
        m->n_epochs = 0;
    for (uint32_t e = 0; e < m->n_epochs; e++)
        compute_epoch(series, n, p, e, &m->epochs[e]);
}

static void compute_eval(const struct mr_rank_series *series, size_t n, struct mr_metrics *m)
{
    double compute = 0, wall = 0, samples = 0;
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < series[r].n; i++) {
            const struct mr_step *s = &series[r].steps[i];
            if (s->phase != MR_PHASE_EVAL)
                continue;
            compute += (double)s->compute_ns;
            wall += wall_ns(s);
            samples += s->samples;
        }
    m->eval_au = wall > 0 ? compute / wall : NAN;
    m->eval_samples_per_s = wall > 0 ? samples / (wall / 1e9 / (double)n) : NAN;
}

/* ---- checkpoints: the slowest rank counts ---- */

static void compute_checkpoints(const struct mr_rank_series *series, size_t n, struct mr_metrics *m)
{
    size_t events = n ? series[0].n_checkpoints : 0;
    for (size_t r = 1; r < n; r++)
        events = MR_MIN(events, series[r].n_checkpoints);
    double *save = calloc(events + 1, sizeof(*save)), *load = calloc(events + 1, sizeof(*load));
    double save_ns = 0, load_ns = 0, fsync_ns = 0, busy_ns = 0;
    for (size_t i = 0; save && load && i < events; i++) {
        uint64_t slowest = 0, bytes = 0;
        bool is_load = series[0].checkpoints[i].is_load;
        for (size_t r = 0; r < n; r++) {
            const struct mr_checkpoint_event *c = &series[r].checkpoints[i];
            slowest = MR_MAX(slowest, c->duration_ns);
            bytes += c->bytes;
            fsync_ns += is_load ? 0 : (double)c->fsync_ns;
            busy_ns += is_load ? 0 : (double)(c->fsync_ns + c->write_ns);
        }
        if (is_load) {
            load[m->loads++] = (double)slowest / 1e9;
            m->load_bytes += bytes;
            load_ns += (double)slowest;
        } else {
            save[m->saves++] = (double)slowest / 1e9;
            m->save_bytes += bytes;
            save_ns += (double)slowest;
        }
    }
    m->save_s = quantiles(save, save ? m->saves : 0);
    m->load_s = quantiles(load, load ? m->loads : 0);
    m->save_bytes_per_s = ratio((double)m->save_bytes, save_ns / 1e9);
    m->load_bytes_per_s = ratio((double)m->load_bytes, load_ns / 1e9);
    m->fsync_share = ratio(fsync_ns, busy_ns);
    free(save);
    free(load);
}

/* ---- the burst buffer ---- */

/* From the first training step's start to the end of the last one with its checkpoint. */
static void training_window(const struct mr_rank_series *series, size_t n, uint64_t *from, uint64_t *to)
{
    *from = UINT64_MAX;
    *to = 0;
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < series[r].n; i++) {
            const struct mr_step *s = &series[r].steps[i];
            if (s->phase != MR_PHASE_TRAIN)
                continue;
            *from = MR_MIN(*from, s->start_ns);
            *to = MR_MAX(*to, s->end_ns + s->checkpoint_ns);
        }
}

static double common_ns(uint64_t a, uint64_t a_end, uint64_t b, uint64_t b_end)
{
    uint64_t start = MR_MAX(a, b), end = MR_MIN(a_end, b_end);
    return end > start ? (double)(end - start) : 0;
}

/* Time of a drain in which training went on: inside its window, and no save waited for the drain. Drains and saves come
 * in time order: *next is the first save that may concern this or a later drain. */
static double overlap_ns(const struct mr_drain_event *d, const struct mr_rank_series *r, size_t *next, uint64_t from,
                         uint64_t to)
{
    uint64_t end = d->start_ns + d->duration_ns;
    double ns = common_ns(d->start_ns, end, from, to);
    while (*next < r->n_checkpoints && r->checkpoints[*next].start_ns + r->checkpoints[*next].wait_ns <= d->start_ns)
        ++*next;
    for (size_t i = *next; i < r->n_checkpoints && r->checkpoints[i].start_ns < end; i++)
        ns -= common_ns(MR_MAX(d->start_ns, from), MR_MIN(end, to), r->checkpoints[i].start_ns,
                        r->checkpoints[i].start_ns + r->checkpoints[i].wait_ns);
    return ns > 0 ? ns : 0;
}

static void compute_drains(const struct mr_rank_series *series, size_t n, struct mr_metrics *m)
{
    struct mr_metrics_drains *d = &m->drain;
    uint64_t from, to;
    size_t events = 0, k = 0;
    training_window(series, n, &from, &to);
    for (size_t r = 0; r < n; r++)
        events += series[r].n_drains;
    double *seconds = calloc(events + 1, sizeof(*seconds));
    for (size_t r = 0; r < n; r++) {
        double room = 0;
        size_t next = 0;
        for (size_t i = 0; i < series[r].n_checkpoints; i++) {
            const struct mr_checkpoint_event *c = &series[r].checkpoints[i];
            d->buffered += r == 0 && c->buffered && !c->is_load;
            room += c->is_load ? 0 : (double)c->wait_ns / 1e9;
        }
        d->room_wait_s = MR_MAX(d->room_wait_s, room);
        d->end_wait_s = MR_MAX(d->end_wait_s, (double)series[r].drain_wait_ns / 1e9);
        for (size_t i = 0; seconds && i < series[r].n_drains; i++) {
            const struct mr_drain_event *e = &series[r].drains[i];
            d->failed += e->failed;
            if (e->failed)
                continue;
            seconds[k++] = (double)e->duration_ns / 1e9;
            d->total_s += (double)e->duration_ns / 1e9;
            d->overlap_s += overlap_ns(e, &series[r], &next, from, to) / 1e9;
            d->bytes += e->bytes;
        }
    }
    d->drains = k;
    d->drain_s = quantiles(seconds, seconds ? k : 0);
    d->bytes_per_s = ratio((double)d->bytes, d->total_s);
    d->overlap_share = k ? ratio(d->overlap_s, d->total_s) : NAN;
    free(seconds);
}

void mr_metrics_compute(const struct mr_rank_series *series, size_t n, const struct mr_metrics_params *p,
                        struct mr_metrics *out)
{
    memset(out, 0, sizeof(*out));
    compute_totals(series, n, out);
    compute_au(series, n, p, out);
    compute_split(series, n, out);
    compute_ceiling(series, n, out);
    compute_stalls(series, n, out);
    compute_imbalance(series, n, out);
    compute_epochs(series, n, p, out);
    compute_eval(series, n, out);
    compute_checkpoints(series, n, out);
    compute_drains(series, n, out);
}

double mr_checkpoint_interval(double cost_s, double mtbf_s, double *young_s, double *lost)
{
    double r = cost_s / (2 * mtbf_s);
    *young_s = sqrt(2 * cost_s * mtbf_s);
    double best = r >= 1 ? mtbf_s : *young_s * (1 + sqrt(r) / 3 + r / 9) - cost_s;
    *lost = cost_s / (best + cost_s) + (best + cost_s) / (2 * mtbf_s);
    return best;
}
