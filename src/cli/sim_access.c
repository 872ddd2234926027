/* `millrace sim --access`: what the order of a scenario asks of a cache, before any policy: how often a node reads a
 * sample, how far apart two reads of it lie, and how many reads leave the node for a cache of any size. */
#include "cli/sim_output.h"
#include "base/common.h"
#include "cli/workload_args.h"
#include "sim/placement.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define BINS 10
static const double ratios[] = {.05, .1, .2, .33, .5, .75};

struct access {
    uint64_t *uses; /* [0 ... epochs]: samples that node 0 reads so often */
    uint64_t reuse[BINS], first;
    double outside[MR_ARRAY_LEN(ratios)][3];
};

/* Every placement walks every node's whole run, and a node's run means producing every epoch. */
static int check_size(const struct mr_scenario *s, struct mr_error *err)
{
    double walked = (double)s->nodes * (double)s->samples * s->epochs * (double)MR_ARRAY_LEN(ratios) * 3;
    if (walked < 2e10)
        return 0;
    mr_error_plain(err, MR_E_CONFIG,
                   "the access study walks the order once for every node, size and placement: %.2g accesses here, 2e10 "
                   "is the most",
                   walked);
    return mr_error_hint(err, "take fewer samples, nodes or epochs; the shares hardly depend on the number of samples"),
           MR_E_CONFIG;
}

static int measure(struct mr_sim_workload *w, struct access *a, struct mr_error *err)
{
    a->uses = calloc(w->scenario->epochs + 1ull, sizeof(*a->uses));
    int rc = a->uses ? mr_sim_frequency(w, a->uses, err) : mr_error_set(err, -ENOMEM, "access study");
    if (!rc)
        rc = mr_sim_reuse_distance(w, a->reuse, BINS, &a->first, err);
    for (unsigned i = 0; i < MR_ARRAY_LEN(ratios) && !rc; i++)
        for (int p = 0; p < 3 && !rc; p++)
            rc = mr_sim_outside_reads(w, ratios[i], (enum mr_placement)p, &a->outside[i][p], err);
    return rc;
}

static double expected_uses(const struct mr_scenario *s, uint32_t k)
{
    return (double)s->samples * mr_binomial_pmf(s->epochs, 1.0 / s->nodes, k);
}

static void print_text(const struct mr_scenario *s, const struct access *a)
{
    printf("%s: %u nodes, %u epochs, %llu samples\n\nsamples that a node reads so often (binomial, and node 0 of this "
           "order)\n",
           s->name, s->nodes, s->epochs, (unsigned long long)s->samples);
    for (uint32_t k = 0; k <= s->epochs; k++)
        if (a->uses[k] || expected_uses(s, k) >= 0.5)
            printf("  %5u times %14.1f %14llu\n", k, expected_uses(s, k), (unsigned long long)a->uses[k]);
    printf("\nother samples that node 0 reads between two reads of the same one\n");
    for (unsigned i = 0; i < BINS; i++)
        printf("  below %10llu %14llu accesses\n", (unsigned long long)(s->samples * (i + 1) / BINS),
               (unsigned long long)a->reuse[i]);
    printf("  first reads      %14llu\n\nreads that leave the node, per access, when it holds a part of the set\n  %8s "
           "%10s %10s %10s\n",
           (unsigned long long)a->first, "holds", "random", "frequency", "next use");
    for (unsigned i = 0; i < MR_ARRAY_LEN(ratios); i++)
        printf("  %6.0f %% %10.3f %10.3f %10.3f\n", 100 * ratios[i], a->outside[i][0], a->outside[i][1],
               a->outside[i][2]);
}

static json_t *to_json(const struct mr_scenario *s, const struct access *a)
{
    json_t *uses = json_array(), *reuse = json_array(), *outside = json_array();
    for (uint32_t k = 0; k <= s->epochs; k++)
        if (a->uses[k] || expected_uses(s, k) >= 0.5)
            json_array_append_new(uses, json_pack("{s:i, s:I, s:f}", "uses", (int)k, "samples", (json_int_t)a->uses[k],
                                                  "expected_samples", expected_uses(s, k)));
    for (unsigned i = 0; i < BINS; i++)
        json_array_append_new(reuse, json_pack("{s:I, s:I}", "below_samples", (json_int_t)(s->samples * (i + 1) / BINS),
                                               "accesses", (json_int_t)a->reuse[i]));
    for (unsigned i = 0; i < MR_ARRAY_LEN(ratios); i++)
        json_array_append_new(outside,
                              json_pack("{s:f, s:f, s:f, s:f}", "cache_ratio", ratios[i], "random", a->outside[i][0],
                                        "frequency", a->outside[i][1], "next_use", a->outside[i][2]));
    return json_pack("{s:s, s:s, s:i, s:i, s:I, s:o, s:o, s:I, s:o}", "schema", "millrace.sim_access/1", "scenario",
                     s->name, "nodes", (int)s->nodes, "epochs", (int)s->epochs, "samples", (json_int_t)s->samples,
                     "frequency", uses, "reuse_distance", reuse, "first_accesses", (json_int_t)a->first,
                     "outside_reads_per_access", outside);
}

int mr_cli_sim_access(const struct mr_scenario *s, bool json, struct mr_error *err)
{
    struct mr_sim_workload w;
    struct access a = {0};
    int rc = check_size(s, err);
    if (!rc)
        rc = mr_sim_workload_init(&w, s, err);
    if (rc)
        return rc;
    rc = measure(&w, &a, err);
    if (!rc && json)
        rc = mr_cli_print_json(stdout, to_json(s, &a), err);
    else if (!rc)
        print_text(s, &a);
    free(a.uses);
    mr_sim_workload_done(&w);
    return rc;
}
