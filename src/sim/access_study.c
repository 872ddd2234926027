/* What an order asks of a cache; see access_study.h. */
#include "sim/access_study.h"
#include "base/common.h"
#include "sim/placement.h"

#include <errno.h>
#include <stdlib.h>

const double mr_access_ratios[MR_ACCESS_RATIOS] = {.05, .1, .2, .33, .5, .75};

/* Every placement walks every node's whole run, and a node's run means producing every epoch. */
static int check_size(const struct mr_scenario *s, struct mr_error *err)
{
    double walked = (double)s->nodes * (double)s->samples * s->epochs * MR_ACCESS_RATIOS * 3;
    if (walked < 2e10)
        return 0;
    mr_error_plain(err, MR_E_CONFIG,
                   "the access study walks the order once for every node, size and placement: %.2g accesses here, 2e10 "
                   "is the most",
                   walked);
    return mr_error_hint(err, "take fewer samples, nodes or epochs; the shares hardly depend on the number of samples"),
           MR_E_CONFIG;
}

static int measure(struct mr_sim_workload *w, struct mr_access_study *a, struct mr_error *err)
{
    a->uses = calloc(w->scenario->epochs + 1ull, sizeof(*a->uses));
    int rc = a->uses ? mr_sim_frequency(w, a->uses, err) : mr_error_set(err, -ENOMEM, "access study");
    if (!rc)
        rc = mr_sim_reuse_distance(w, a->reuse, MR_ACCESS_BINS, &a->first, err);
    for (unsigned i = 0; i < MR_ACCESS_RATIOS && !rc; i++)
        for (int p = 0; p < 3 && !rc; p++)
            rc = mr_sim_outside_reads(w, mr_access_ratios[i], (enum mr_placement)p, &a->outside[i][p], err);
    return rc;
}

double mr_access_expected_uses(const struct mr_scenario *s, uint32_t k)
{
    return (double)s->samples * mr_binomial_pmf(s->epochs, 1.0 / s->nodes, k);
}

int mr_access_study(const struct mr_scenario *s, struct mr_access_study *out, struct mr_error *err)
{
    struct mr_sim_workload w;
    struct mr_access_study a = {0};
    int rc = check_size(s, err);
    if (!rc)
        rc = mr_sim_workload_init(&w, s, err);
    if (rc)
        return rc;
    rc = measure(&w, &a, err);
    mr_sim_workload_done(&w);
    if (rc)
        mr_access_study_done(&a);
    else
        *out = a;
    return rc;
}

void mr_access_study_done(struct mr_access_study *a)
{
    free(a->uses);
    a->uses = NULL;
}
