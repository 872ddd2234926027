/* What every engine needs: sample sizes, the access stream of an epoch, the two lower bounds, and the list of policies. */
#include "sim/sim.h"
#include "base/common.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int mr_scenario_check(const struct mr_scenario *s, struct mr_error *err)
{
    if (s->nodes == 0 || s->epochs == 0 || s->samples == 0)
        return mr_error_set(err, MR_E_CONFIG, "a scenario needs at least one node, one epoch and one sample");
    if (s->samples > UINT32_MAX)
        return mr_error_set(err, MR_E_CONFIG, "the simulator holds at most %u samples", UINT32_MAX);
    if (s->batch < s->nodes || s->batch % s->nodes)
        return mr_error_set(err, MR_E_CONFIG, "the global batch (%llu) must be a multiple of the nodes (%u)",
                            (unsigned long long)s->batch, s->nodes);
    if (s->samples < s->batch)
        return mr_error_set(err, MR_E_CONFIG, "%llu samples do not fill one global batch of %llu",
                            (unsigned long long)s->samples, (unsigned long long)s->batch);
    if (!(s->size_mean_mb > 0) || s->size_stdev_mb < 0)
        return mr_error_set(err, MR_E_CONFIG, "the mean sample size must be positive");
    if (!(s->system.compute_mbps > 0))
        return mr_error_set(err, MR_E_CONFIG, "system '%s' has no compute rate", s->system.name);
    return mr_system_check(&s->system, err);
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
    for (uint64_t id = 0; id < s->samples; id++) {
        w->size_mb[id] = draw_size(s, id);
        w->total_mb += w->size_mb[id];
    }
    struct mr_order_params p = {.mode = s->order_mode, .samples = s->samples, .seed = s->seed, .world = 1,
                                .drop_last = true, .shuffle_each_epoch = true};
    rc = mr_order_create(&p, &w->order, err);
    if (rc)
        mr_sim_workload_done(w);
    return rc;
}

/* The global sequence cut into steps of `batch`; node i takes the i-th slice of a step. */
int mr_sim_load_epoch(struct mr_sim_workload *w, uint32_t epoch, struct mr_error *err)
{
    int rc = mr_order_set_epoch(w->order, epoch, err);
    uint64_t ids[1024];
    uint64_t want = w->steps_per_epoch * w->scenario->batch;
    for (uint64_t at = 0; !rc && at < want;) {
        size_t n = mr_order_get(w->order, at, ids, MR_MIN(want - at, (uint64_t)MR_ARRAY_LEN(ids)));
        if (n == 0)
            return mr_error_set(err, MR_E_INTERNAL, "the order ended at %llu of %llu", (unsigned long long)at,
                                (unsigned long long)want);
        for (size_t i = 0; i < n; i++)
            w->stream[at + i] = (uint32_t)ids[i];
        at += n;
    }
    return rc;
}

void mr_sim_workload_done(struct mr_sim_workload *w)
{
    free(w->size_mb);
    free(w->stream);
    mr_order_free(w->order);
    *w = (struct mr_sim_workload){0};
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

/* Walks the whole run once. io_aware is kept as the running maximum of "bytes so far / peak rate - compute so far", to
 * which the total compute is added at the end: the maximum over prefixes of delivery time plus remaining compute. */
int mr_sim_bounds(struct mr_sim_workload *w, struct mr_sim_bounds *out, struct mr_error *err)
{
    const struct mr_scenario *s = w->scenario;
    unsigned char *seen = calloc(s->samples, 1);
    if (!seen)
        return mr_error_set(err, -ENOMEM, "cannot hold %llu samples", (unsigned long long)s->samples);
    double compute = 0, distinct_mb = 0, lead = 0, peak = pfs_peak_mbps(s);
    int rc = 0;
    for (uint32_t e = 0; e < s->epochs && !rc; e++) {
        rc = mr_sim_load_epoch(w, e, err);
        for (uint64_t step = 0; step < w->steps_per_epoch && !rc; step++) {
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
                slowest = fmax(slowest, mb / s->system.compute_mbps);
            }
            compute += slowest;
            lead = fmax(lead, distinct_mb / peak - compute);
        }
    }
    free(seen);
    if (!rc)
        *out = (struct mr_sim_bounds){.compute_only_s = compute, .io_aware_s = compute + lead};
    return rc;
}
