/* How studies are shown: the sorted table with bars, the storage plan, what an order asks of a cache, and JSON. */
#include "report/sim_text.h"
#include "base/common.h"
#include "base/strbuf.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

static void print_bar(struct mr_strbuf *o, double share)
{
    int n = (int)lround(fmin(1, share) * 24);
    for (int i = 0; i < n; i++)
        mr_strbuf_puts(o, "█");
}

/* "0.866" below the bound would be a riddle: what does not read all that training reads has no place beside it. */
static const char *ratio_text(const struct mr_study *st, const struct mr_study_row *row, char *out, size_t cap)
{
    double ratio = row->mean.time_s / st->bounds.io_aware_s;
    if (!mr_study_is_comparable(row) || ratio < 0.9995)
        return "-";
    snprintf(out, cap, "%.3f", ratio);
    return out;
}

static int policy_width(const struct mr_study *st)
{
    int width = 21;
    for (unsigned i = 0; i < st->n; i++)
        width = MR_MAX(width, (int)strlen(mr_policy_name(st->rows[i].mean.policy)));
    return width;
}

static void print_row(struct mr_strbuf *o, const struct mr_study *st, const struct mr_study_row *row, double slowest)
{
    const struct mr_sim_result *r = &row->mean;
    char pfs[MR_HUMAN_LEN], peer[MR_HUMAN_LEN], ratio[32];
    if (!r->possible) {
        mr_strbuf_printf(o, "%-*s  cannot run: %s\n", policy_width(st), mr_policy_name(r->policy), r->why);
        return;
    }
    mr_strbuf_printf(o, "%-*s %11.2f ", policy_width(st), mr_policy_name(r->policy), r->time_s);
    if (st->seeds > 1)
        mr_strbuf_printf(o, "%10.2f %10.2f ", row->time_min_s, row->time_max_s);
    mr_strbuf_printf(o, "%8s %9.2f %11s %11s  ", ratio_text(st, row, ratio, sizeof ratio), r->stall_s,
                     mr_human_bytes(r->pfs_mb * 1e6, pfs), mr_human_bytes(r->peer_mb * 1e6, peer));
    print_bar(o, r->time_s / slowest);
    if (!mr_study_is_comparable(row))
        mr_strbuf_printf(o, " not comparable: sees %.0f %% of the samples per epoch", 100 * r->randomness);
    else if (mr_policy_reorders(r->policy))
        mr_strbuf_puts(o, " reorders");
    mr_strbuf_putc(o, '\n');
}

static void print_rows(struct mr_strbuf *o, const struct mr_study *st)
{
    double slowest = 0;
    bool below = false;
    for (unsigned i = 0; i < st->n; i++)
        slowest = fmax(slowest, st->rows[i].mean.time_s);
    for (unsigned i = 0; i < st->n; i++) {
        const struct mr_study_row *row = &st->rows[i];
        print_row(o, st, row, slowest);
        below |= mr_study_is_comparable(row) && row->mean.time_s < 0.9995 * st->bounds.io_aware_s;
    }
    if (below)
        mr_strbuf_puts(o, "\nx BOUND is left out where a policy is below the bound: 'perfect' needs no read at all\n");
}

void mr_report_study(const struct mr_study *st, bool thesis, struct mr_strbuf *o)
{
    char size[MR_HUMAN_LEN], samples[MR_HUMAN_LEN];
    const struct mr_scenario *s = &st->scenario;
    mr_strbuf_printf(o, "%s on %s: %u %s, %u %s, %s samples, %s%s", s->name, s->system.name, s->nodes,
                     mr_plural(s->nodes, "node", "nodes"), s->epochs, mr_plural(s->epochs, "epoch", "epochs"),
                     mr_human_count(s->samples, samples), mr_human_bytes(st->dataset_mb * 1e6, size),
                     thesis ? ", rules of the published simulator" : "");
    if (st->seeds > 1)
        mr_strbuf_printf(o, "; means of %u seeds", st->seeds);
    mr_strbuf_printf(o, "\nlower bounds: compute only %.2f s, with the first read of every sample %.2f s\n\n",
                     st->bounds.compute_only_s, st->bounds.io_aware_s);
    mr_strbuf_printf(o, "%-*s %11s ", policy_width(st), "POLICY", "TIME s");
    if (st->seeds > 1)
        mr_strbuf_printf(o, "%10s %10s ", "LEAST s", "MOST s");
    mr_strbuf_printf(o, "%8s %9s %11s %11s\n", "x BOUND", "STALL s", "FROM PFS", "FROM PEERS");
    print_rows(o, st);
    if (st->method == MR_SIM_EXPECTED)
        mr_strbuf_printf(
            o,
            "\nexpected behaviour on whole steps instead of every sample's place (exact tables: %.0f GB); see "
            "doc/guides/simulator.md\n",
            mr_sim_exact_bytes(s) / 1e9);
    else if (st->grain > 1)
        mr_strbuf_printf(o, "\n%llu samples are moved together; --grain 1 is exact\n", (unsigned long long)st->grain);
}

/* ---- JSON ---- */

static json_t *row_json(const struct mr_study *st, const struct mr_study_row *row)
{
    const struct mr_sim_result *r = &row->mean;
    if (!r->possible)
        return json_pack("{s:s, s:b, s:s}", "name", mr_policy_name(r->policy), "possible", 0, "why", r->why);
    json_t *classes = json_array();
    double local = r->class_mb[0];
    for (unsigned j = 1; j < st->scenario.system.n_classes; j++) {
        local += r->class_mb[j];
        json_array_append_new(classes, json_real(r->class_mb[j] * 1e6));
    }
    double moved = local + r->pfs_mb + r->peer_mb;
    return json_pack(
        "{s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:b, s:f, s:b}", "name",
        mr_policy_name(r->policy), "possible", 1, "time_s", r->time_s, "time_min_s", row->time_min_s, "time_max_s",
        row->time_max_s, "ratio_to_bound", r->time_s / st->bounds.io_aware_s, "stall_s", r->stall_s,
        "stall_first_epoch_s", r->stall_first_epoch_s, "stall_later_s", fmax(0, r->stall_s - r->stall_first_epoch_s),
        "preload_s", r->preload_s, "pfs_bytes", r->pfs_mb * 1e6, "peer_bytes", r->peer_mb * 1e6, "class_bytes", classes,
        "local_hit_ratio", moved > 0 ? local / moved : 0.0, "peer_hit_ratio", moved > 0 ? r->peer_mb / moved : 0.0,
        "consumed_bytes", r->consumed_mb * 1e6, "imbalance", r->imbalance, "changes_order",
        (int)mr_policy_reorders(r->policy), "distinct_samples_per_epoch_ratio", r->randomness, "comparable",
        (int)mr_study_is_comparable(row));
}

json_t *mr_report_study_json(const struct mr_study *st, bool thesis, unsigned seeds)
{
    json_t *rows = json_array();
    for (unsigned i = 0; i < st->n; i++)
        json_array_append_new(rows, row_json(st, &st->rows[i]));
    const struct mr_scenario *s = &st->scenario;
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:{s:f, s:f}, s:o}", "schema",
                     "millrace.sim/1", "scenario", s->name, "system", s->system.name, "compat",
                     thesis ? "thesis" : "none", "method", mr_sim_method_names[st->method], "nodes",
                     (json_int_t)s->nodes, "epochs", (json_int_t)s->epochs, "samples", (json_int_t)s->samples, "batch",
                     (json_int_t)s->batch, "seed", (json_int_t)s->seed, "seeds", (json_int_t)seeds, "dataset_bytes",
                     st->dataset_mb * 1e6, "grain_samples", (json_int_t)st->grain, "bounds", "compute_only_s",
                     st->bounds.compute_only_s, "io_aware_s", st->bounds.io_aware_s, "policies", rows);
}

/* ---- plan ---- */

void mr_report_storage_plan(const struct mr_storage_plan *p, const struct mr_scenario *s, struct mr_strbuf *o)
{
    char size[MR_HUMAN_LEN];
    mr_strbuf_printf(o, "%s on %s under %s: stall at most %.3g %% of the run time\n", s->name, s->system.name,
                     mr_policy_name(p->policy), 100 * p->max_stall);
    if (!p->reachable)
        mr_strbuf_printf(
            o,
            "not reachable: %.2f %% with room for everything; the answers below come within %.3g %% of that run time\n",
            100 * p->best_stall, 100 * p->max_stall);
    for (unsigned k = 0; k < p->n_answers; k++) {
        const struct mr_storage_answer *a = &p->answers[k];
        mr_strbuf_printf(o, "\n%s: at least %s per node", a->class_name, mr_human_bytes(a->capacity_mb * 1e6, size));
        mr_strbuf_printf(o, a->class > 1 ? ", with the classes before it as they are\n" : ", without other classes\n");
        for (unsigned i = 0; i < a->n; i++) {
            mr_strbuf_printf(o, "  %11s %11.2f s %7.2f %%  ", mr_human_bytes(a->curve[i].capacity_mb * 1e6, size),
                             a->curve[i].time_s, 100 * a->curve[i].stall);
            print_bar(o, a->curve[i].stall);
            mr_strbuf_putc(o, '\n');
        }
    }
}

json_t *mr_report_storage_plan_json(const struct mr_storage_plan *p, const struct mr_scenario *s)
{
    json_t *answers = json_array();
    for (unsigned k = 0; k < p->n_answers; k++) {
        const struct mr_storage_answer *a = &p->answers[k];
        json_t *curve = json_array();
        for (unsigned i = 0; i < a->n; i++)
            json_array_append_new(curve, json_pack("{s:f, s:f, s:f}", "capacity_bytes", a->curve[i].capacity_mb * 1e6,
                                                   "time_s", a->curve[i].time_s, "stall_ratio", a->curve[i].stall));
        json_array_append_new(answers, json_pack("{s:i, s:s, s:f, s:o}", "class", (int)a->class, "name", a->class_name,
                                                 "capacity_bytes", a->capacity_mb * 1e6, "curve", curve));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:f, s:b, s:f, s:o}", "schema", "millrace.sim_plan/1", "scenario", s->name,
                     "system", s->system.name, "policy", mr_policy_name(p->policy), "max_stall_ratio", p->max_stall,
                     "reachable", (int)p->reachable, "best_stall_ratio", p->best_stall, "answers", answers);
}

/* ---- access ---- */

void mr_report_access(const struct mr_scenario *s, const struct mr_access_study *a, struct mr_strbuf *o)
{
    char samples[MR_HUMAN_LEN];
    mr_strbuf_printf(
        o, "%s: %u %s, %u %s, %s samples\n\nsamples that a node reads so often (binomial, and node 0 of this order)\n",
        s->name, s->nodes, mr_plural(s->nodes, "node", "nodes"), s->epochs, mr_plural(s->epochs, "epoch", "epochs"),
        mr_human_count(s->samples, samples));
    for (uint32_t k = 0; k <= s->epochs; k++)
        if (a->uses[k] || mr_access_expected_uses(s, k) >= 0.5)
            mr_strbuf_printf(o, "  %5u %-5s %14.1f %14llu\n", k, mr_plural(k, "time", "times"),
                             mr_access_expected_uses(s, k), (unsigned long long)a->uses[k]);
    mr_strbuf_printf(o, "\nother samples that node 0 reads between two reads of the same one\n");
    for (unsigned i = 0; i < MR_ACCESS_BINS; i++)
        mr_strbuf_printf(o, "  below %10llu %14llu accesses\n",
                         (unsigned long long)(s->samples * (i + 1) / MR_ACCESS_BINS), (unsigned long long)a->reuse[i]);
    mr_strbuf_printf(
        o,
        "  first reads      %14llu\n\nreads that leave the node, per access, when it holds a part of the set\n  %8s "
        "%10s %10s %10s\n",
        (unsigned long long)a->first, "holds", "random", "frequency", "next use");
    for (unsigned i = 0; i < MR_ACCESS_RATIOS; i++)
        mr_strbuf_printf(o, "  %6.0f %% %10.3f %10.3f %10.3f\n", 100 * mr_access_ratios[i], a->outside[i][0],
                         a->outside[i][1], a->outside[i][2]);
}

json_t *mr_report_access_json(const struct mr_scenario *s, const struct mr_access_study *a)
{
    json_t *uses = json_array(), *reuse = json_array(), *outside = json_array();
    for (uint32_t k = 0; k <= s->epochs; k++)
        if (a->uses[k] || mr_access_expected_uses(s, k) >= 0.5)
            json_array_append_new(uses, json_pack("{s:i, s:I, s:f}", "uses", (int)k, "samples", (json_int_t)a->uses[k],
                                                  "expected_samples", mr_access_expected_uses(s, k)));
    for (unsigned i = 0; i < MR_ACCESS_BINS; i++)
        json_array_append_new(reuse, json_pack("{s:I, s:I}", "below_samples",
                                               (json_int_t)(s->samples * (i + 1) / MR_ACCESS_BINS), "accesses",
                                               (json_int_t)a->reuse[i]));
    for (unsigned i = 0; i < MR_ACCESS_RATIOS; i++)
        json_array_append_new(outside,
                              json_pack("{s:f, s:f, s:f, s:f}", "cache_ratio", mr_access_ratios[i], "random",
                                        a->outside[i][0], "frequency", a->outside[i][1], "next_use", a->outside[i][2]));
    return json_pack("{s:s, s:s, s:i, s:i, s:I, s:o, s:o, s:I, s:o}", "schema", "millrace.sim_access/1", "scenario",
                     s->name, "nodes", (int)s->nodes, "epochs", (int)s->epochs, "samples", (json_int_t)s->samples,
                     "frequency", uses, "reuse_distance", reuse, "first_accesses", (json_int_t)a->first,
                     "outside_reads_per_access", outside);
}
