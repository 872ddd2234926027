/* What every engine needs: sample sizes, the access stream of an epoch, the two lower bounds, and the list of policies.
 */
#include "sim/sim.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/sizes.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MB 1e6

int mr_scenario_check(const struct mr_scenario *s, struct mr_error *err)
{
    if (s->nodes == 0 || s->epochs == 0 || s->samples == 0)
        return mr_error_set(err, MR_E_CONFIG, "a scenario needs at least one node, one epoch and one sample");
    if (s->samples > UINT32_MAX)
        return mr_error_set(err, MR_E_CONFIG, "the simulator holds at most %u samples", UINT32_MAX);
    if (s->batch < s->nodes)
        return mr_error_plain(err, MR_E_CONFIG, "batch %llu is smaller than %u nodes; use at least %u",
                              (unsigned long long)s->batch, s->nodes, s->nodes);
    if (s->batch % s->nodes)
        return mr_error_plain(err, MR_E_CONFIG, "batch %llu does not divide by %u nodes; use %llu",
                              (unsigned long long)s->batch, s->nodes,
                              (unsigned long long)(s->batch - s->batch % s->nodes));
    if ((double)s->samples * s->epochs > 1e11)
        return mr_error_set(err, MR_E_CONFIG,
                            "%.3g accesses (samples x epochs) are more than the simulator takes (1e11)",
                            (double)s->samples * s->epochs);
    if (s->samples < s->batch)
        return mr_error_set(err, MR_E_CONFIG, "%llu samples do not fill one global batch of %llu",
                            (unsigned long long)s->samples, (unsigned long long)s->batch);
    if (!(s->size_mean_mb > 0) || s->size_stdev_mb < 0)
        return mr_error_set(err, MR_E_CONFIG, "the mean sample size must be positive");
    if (!(s->system.compute_mbps > 0))
        return mr_error_set(err, MR_E_CONFIG, "system '%s' has no compute rate", s->system.name);
    return mr_system_check(&s->system, err);
}

/* Cutting a normal at 0 raises its mean, by 0.7 % at a deviation of 0.4 of the mean and without limit beyond: 27 KB
 * with a deviation of 100 KB came out as 90 KB. From there on sizes are those that 'gen' would make: mean and deviation
 * come out as asked. Below, they are those of the published simulator. */
static bool is_wide(const struct mr_scenario *s)
{
    return s->size_stdev_mb > 0.4 * s->size_mean_mb;
}

/* Where no set of so many samples has the deviation, it has the nearest, and the mean. */
static void wide_sizes(struct mr_sim_workload *w)
{
    const struct mr_scenario *s = w->scenario;
    struct mr_sizes z;
    struct mr_error ignored;
    (void)mr_sizes_init(&z, s->samples, s->seed, MR_MAX(s->size_mean_mb * MB, 1), s->size_stdev_mb * MB, &ignored);
    double sum = 0;
    for (uint64_t id = 0; id < s->samples; id++)
        sum += (double)mr_sizes_at(&z, id);
    double mb = s->size_mean_mb * (double)s->samples / sum;
    w->total_mb = 0;
    for (uint64_t id = 0; id < s->samples; id++) {
        w->size_mb[id] = (float)((double)mr_sizes_at(&z, id) * mb);
        w->total_mb += w->size_mb[id];
    }
}

/* Normal, drawn again while not positive: a truncated normal, as in the published simulator. */
static float draw_size(const struct mr_scenario *s, uint64_t id)
{
    for (uint64_t attempt = 0; attempt < 64; attempt++) {
        double z = mr_rng_normal(s->seed, MR_RNG_SIZE, id + attempt * s->samples);
        double mb = s->size_mean_mb + s->size_stdev_mb * z;
        if (mb > 0)
            return (float)mb;
    }
    return (float)s->size_mean_mb;
}

/* Equal sizes are those of the scenario: in size_mb samples beyond 16 MB are not exact to the byte. */
uint64_t mr_sim_sample_bytes(const struct mr_sim_workload *w, uint64_t id)
{
    bool equal = !(w->scenario->size_stdev_mb > 0);
    assert(id < w->scenario->samples);
    return (uint64_t)llround((equal ? w->scenario->size_mean_mb : (double)w->size_mb[id]) * MB);
}

static int create_order(const struct mr_scenario *s, struct mr_order **out, struct mr_error *err)
{
    struct mr_order_params p = {.mode = s->order_mode,
                                .samples = s->samples,
                                .seed = s->seed,
                                .world = 1,
                                .drop_last = true,
                                .shuffle_each_epoch = true};
    return mr_order_create(&p, out, err);
}

int mr_sim_workload_init(struct mr_sim_workload *w, const struct mr_scenario *s, struct mr_error *err)
{
    *w = (struct mr_sim_workload){.scenario = s};
    int rc = mr_scenario_check(s, err);
    if (rc)
        return rc;
    w->steps_per_epoch = s->samples / s->batch;
    w->per_node = s->batch / s->nodes;
    w->size_mb = malloc(s->samples * sizeof(*w->size_mb));
    w->stream = malloc(w->steps_per_epoch * s->batch * sizeof(*w->stream));
    if (!w->size_mb || !w->stream) {
        mr_sim_workload_done(w);
        return mr_error_set(err, -ENOMEM, "cannot hold %llu samples", (unsigned long long)s->samples);
    }
    if (is_wide(s))
        wide_sizes(w);
    for (uint64_t id = 0; id < s->samples && !is_wide(s); id++) {
        w->size_mb[id] = draw_size(s, id);
        w->total_mb += w->size_mb[id];
    }
    rc = create_order(s, &w->order, err);
    if (rc)
        mr_sim_workload_done(w);
    return rc;
}

/* The global sequence, dealt to the nodes as the order deals it to ranks: node i reads positions i, i + N, i + 2N ...
 * Its samples of a step lie together in the stream. */
int mr_sim_load_epoch(struct mr_sim_workload *w, uint32_t epoch, struct mr_error *err)
{
    int rc = mr_order_set_epoch(w->order, epoch, err);
    uint64_t ids[1024];
    uint64_t batch = w->scenario->batch, nodes = w->scenario->nodes, want = w->steps_per_epoch * batch;
    for (uint64_t at = 0; !rc && at < want;) {
        size_t n = mr_order_get(w->order, at, ids, MR_MIN(want - at, (uint64_t)MR_ARRAY_LEN(ids)));
        if (n == 0)
            return mr_error_set(err, MR_E_INTERNAL, "the order ended at %llu of %llu", (unsigned long long)at,
                                (unsigned long long)want);
        for (size_t i = 0; i < n; i++) {
            uint64_t step = (at + i) / batch, in_step = (at + i) % batch;
            w->stream[step * batch + in_step % nodes * w->per_node + in_step / nodes] = (uint32_t)ids[i];
        }
        at += n;
    }
    return rc;
}

void mr_sim_workload_done(struct mr_sim_workload *w)
{
    free(w->size_mb);
    free(w->stream);
    free(w->step_mb);
    mr_order_free(w->order);
    *w = (struct mr_sim_workload){0};
}

double mr_sim_compute_s(const struct mr_scenario *s, double mb)
{
    return s->step_s > 0 ? s->step_s : mb / s->system.compute_mbps;
}

/* The fastest the PFS can deliver to at most N clients. */
static double pfs_peak_mbps(const struct mr_scenario *s)
{
    double best = 0;
    for (uint32_t clients = 1; clients <= s->nodes; clients++) {
        double rate = mr_curve_at(&s->system.pfs_mbps, clients);
        best = fmax(best, fmin(rate, clients * s->system.pfs_link_mbps));
    }
    return best;
}

/* The bounds from the steps' sums: every byte of the first epoch is new, and what drop_last left out of it does not
 * count. */
static void bounds_of_steps(const struct mr_sim_workload *w, struct mr_sim_bounds *out)
{
    const struct mr_scenario *s = w->scenario;
    double compute = 0, distinct_mb = 0, consumed_mb = 0, lead = 0, peak = pfs_peak_mbps(s);
    for (uint64_t step = 0; step < mr_sim_steps(w); step++) {
        double slowest = 0, sum = 0;
        for (uint32_t node = 0; node < s->nodes; node++) {
            double mb = w->step_mb[step * s->nodes + node];
            slowest = fmax(slowest, mb);
            sum += mb;
        }
        compute += mr_sim_compute_s(s, slowest);
        distinct_mb += step < w->steps_per_epoch ? sum : 0;
        consumed_mb += sum;
        lead = fmax(lead, distinct_mb / peak - compute);
    }
    *out = (struct mr_sim_bounds){.compute_only_s = compute, .io_aware_s = compute + lead, .consumed_mb = consumed_mb};
}

/* Walks the whole run once. io_aware is kept as the running maximum of "bytes so far / peak rate - compute so far", to
 * which the total compute is added at the end: the maximum over prefixes of delivery time plus remaining compute. */
int mr_sim_bounds(struct mr_sim_workload *w, struct mr_sim_bounds *out, struct mr_error *err)
{
    const struct mr_scenario *s = w->scenario;
    if (w->step_mb) {
        bounds_of_steps(w, out);
        return 0;
    }
    unsigned char *seen = calloc(s->samples, 1);
    if (!seen)
        return mr_error_set(err, -ENOMEM, "cannot hold %llu samples", (unsigned long long)s->samples);
    double compute = 0, distinct_mb = 0, consumed_mb = 0, lead = 0, peak = pfs_peak_mbps(s);
    int rc = 0;
    for (uint32_t e = 0; e < s->epochs && !rc; e++) {
        rc = mr_sim_load_epoch(w, e, err);
        uint64_t steps = MR_MIN(w->steps_per_epoch, mr_sim_steps(w) - e * w->steps_per_epoch);
        for (uint64_t step = 0; step < steps && !rc; step++) {
            double slowest = 0;
            for (uint32_t node = 0; node < s->nodes; node++) {
                const uint32_t *ids = w->stream + step * s->batch + node * w->per_node;
                double mb = 0;
                for (uint64_t k = 0; k < w->per_node; k++) {
                    mb += w->size_mb[ids[k]];
                    if (!seen[ids[k]]) {
                        seen[ids[k]] = 1;
                        distinct_mb += w->size_mb[ids[k]];
                    }
                }
                slowest = fmax(slowest, mr_sim_compute_s(s, mb));
                consumed_mb += mb;
            }
            compute += slowest;
            lead = fmax(lead, distinct_mb / peak - compute);
        }
    }
    free(seen);
    if (!rc)
        *out =
            (struct mr_sim_bounds){.compute_only_s = compute, .io_aware_s = compute + lead, .consumed_mb = consumed_mb};
    return rc;
}

/* ---- sums of steps ---- */

struct summing { /* one thread's share: epochs first, first + stride, ... with an order of its own */
    struct mr_sim_workload w;
    uint32_t first, stride;
    const atomic_bool *stop;
    struct mr_error err;
    int rc;
};

static void sum_epoch(struct mr_sim_workload *w, uint32_t epoch)
{
    const struct mr_scenario *s = w->scenario;
    float *out = w->step_mb + (uint64_t)epoch * w->steps_per_epoch * s->nodes;
    const uint32_t *ids = w->stream;
    for (uint64_t k = 0; k < w->steps_per_epoch * s->nodes; k++, ids += w->per_node) {
        double mb = 0;
        for (uint64_t i = 0; i < w->per_node; i++)
            mb += w->size_mb[ids[i]];
        out[k] = (float)mb;
    }
}

static void *sum_epochs(void *arg)
{
    struct summing *t = arg;
    for (uint32_t e = t->first; e < t->w.scenario->epochs && !t->rc; e += t->stride) {
        if (t->stop && atomic_load(t->stop))
            t->rc = mr_error_set(&t->err, MR_E_INTERRUPTED, "stopped in epoch %u", e);
        if (!t->rc)
            t->rc = mr_sim_load_epoch(&t->w, e, &t->err);
        if (!t->rc)
            sum_epoch(&t->w, e);
    }
    return NULL;
}

#define SUMMING_MAX 16

/* Threads 1 ... n-1 get an order and a stream of their own; thread 0 is the caller, with the workload's. */
static int sum_in_parallel(struct mr_sim_workload *w, unsigned n, const atomic_bool *stop, struct mr_error *err)
{
    struct summing t[SUMMING_MAX] = {0};
    pthread_t id[SUMMING_MAX];
    unsigned started = 1;
    int rc = 0;
    for (unsigned k = 0; k < n; k++)
        t[k] = (struct summing){.w = *w, .first = k, .stride = n, .stop = stop};
    for (unsigned k = 1; k < n; k++) {
        t[k].w.order = NULL;
        t[k].w.stream = malloc(w->steps_per_epoch * w->scenario->batch * sizeof(*w->stream));
        rc = rc ? rc : t[k].w.stream ? create_order(w->scenario, &t[k].w.order, err) : -ENOMEM;
    }
    for (; started < n && !rc; started++)
        if (pthread_create(&id[started], NULL, sum_epochs, &t[started]))
            rc = mr_error_set(err, MR_E_INTERNAL, "cannot start a thread");
    if (!rc)
        sum_epochs(&t[0]);
    for (unsigned k = 1; k < n; k++) {
        if (k < started)
            pthread_join(id[k], NULL);
        free(t[k].w.stream);
        mr_order_free(t[k].w.order);
    }
    for (unsigned k = 0; k < n && !rc; k++)
        if ((rc = t[k].rc) && err)
            *err = t[k].err;
    return rc;
}

int mr_sim_load_steps(struct mr_sim_workload *w, unsigned threads, const atomic_bool *stop, struct mr_error *err)
{
    const struct mr_scenario *s = w->scenario;
    unsigned n = MR_MAX(1u, MR_MIN(MR_MIN(threads, SUMMING_MAX), s->epochs));
    w->step_mb = malloc((uint64_t)s->epochs * w->steps_per_epoch * s->nodes * sizeof(*w->step_mb));
    int rc = w->step_mb ? sum_in_parallel(w, n, stop, err) : -ENOMEM;
    if (rc) {
        free(w->step_mb);
        w->step_mb = NULL;
    }
    return rc == -ENOMEM
               ? mr_error_set(err, rc, "sums of %.3g steps", (double)s->epochs * (double)w->steps_per_epoch * s->nodes)
               : rc;
}

/* One byte per node and sample for who has what, then twelve while planning nopfs; the schedule's tables have eight per
 * sample and epoch, and millrace remembers what each node keeps: no more than it reads, or has room for. */
double mr_sim_exact_bytes(const struct mr_scenario *s)
{
    double cells = (double)s->nodes * (double)s->samples, accesses = (double)s->samples * s->epochs, room = 0;
    for (unsigned j = 1; j < s->system.n_classes; j++)
        room += s->system.classes[j].capacity_mb / s->size_mean_mb * s->nodes;
    return 13 * cells + 8 * accesses + 64 * fmin(fmin(cells, accesses), room) + 24 * (double)s->samples;
}

double mr_sim_expected_bytes(const struct mr_scenario *s)
{
    return 4 * (double)s->samples / ((double)s->batch / s->nodes) * s->epochs + 60 * (double)s->samples;
}
