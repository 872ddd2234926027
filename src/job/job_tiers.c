/* See job_tiers.h. Figures of a node are on the board of each of its ranks; ranks of a node follow each other, so the
 * first of each run of ranks with one node number counts. */
#include "job/job_tiers.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "loader/policy_choice.h"

#include <math.h>
#include <string.h>

const char *const mr_job_sources[MR_JOB_SOURCES] = {"ram", "ssd", "peer", "source"};

/* ---- what was asked for ---- */

int mr_job_policy(const struct mr_job *j, struct mr_loader_choice *out, struct mr_error *err)
{
    return mr_bench_choose_policy(j->w, (unsigned)j->opt.threads, out, err);
}

int mr_job_check_tiers(const struct mr_job *j, struct mr_error *err)
{
    const struct mr_workload *w = j->w;
    struct mr_loader_choice c;
    int rc = mr_job_policy(j, &c, err);
    if (rc || !(*w->reader.policy || *w->reader.tiers))
        return rc;
    int access = w->reader.file_access;
    const char *with = w->dataset.format == MR_CF_SYNTHETIC     ? "dataset.format=synthetic, which reads nothing"
                       : w->pattern.unit != MR_CONF_UNIT_SAMPLE ? "pattern.unit, which reads around the loader"
                       : !c.tiers && !c.is_perfect              ? NULL
                       : access == MR_FA_COLLECTIVE || access == MR_FA_MPIO
                           ? "reader.file_access collective and mpio, where ranks read for others"
                       : w->reader.read_type == MR_CONF_READ_MEMORY
                           ? "reader.read_type=memory, which keeps all of the set"
                           : NULL;
    if (!with)
        return 0;
    mr_error_plain(err, MR_E_CONFIG, "policy '%s' does not go together with %s", c.policy, with);
    return mr_error_hint(err, "leave out one of them"), MR_E_CONFIG;
}

void mr_job_tell_policy(const struct mr_job *j, struct mr_strbuf *out)
{
    static const char *const peers[] = {"auto", "on", "off"};
    struct mr_loader_choice c;
    if (mr_job_policy(j, &c, NULL))
        return;
    mr_strbuf_printf(out, "policy %s", c.policy);
    if (c.is_perfect)
        mr_strbuf_printf(out, ": prepared batches, not the data of the order");
    if (!c.tiers)
        return;
    char sizes[512];
    struct mr_error why;
    int rc = mr_policy_tell_tiers(c.tiers, (uint64_t)((double)j->plan.train_samples * j->plan.read_bytes),
                                  (uint64_t)j->plan.read_bytes + 1, j->plan.ranks, sizes, sizeof sizes, &why);
    mr_strbuf_printf(out, ", tiers %s (%s), peers %s", c.tiers, rc ? why.message : sizes, peers[j->w->reader.peers]);
}

/* ---- what came ---- */

static void add_from(struct mr_loader_from *sum, const struct mr_loader_from *one)
{
    sum->samples += one->samples;
    sum->bytes += one->bytes;
    sum->fetch_ns += one->fetch_ns;
}

static void add_node(struct mr_job_tiers *t, const struct mr_loader_tier_stats *s)
{
    struct mr_loader_tier_stats *o = &t->sum;
    t->nodes++;
    o->source_bytes += s->source_bytes;
    o->source_reads += s->source_reads;
    o->distinct_bytes += s->distinct_bytes;
    o->filled_bytes += s->filled_bytes;
    o->served += s->served;
    o->served_bytes += s->served_bytes;
    o->refetched += s->refetched;
    o->corrupt += s->corrupt;
    o->ssd_refused += s->ssd_refused;
    o->ram_bytes += s->ram_bytes;
    o->ram_capacity += s->ram_capacity;
    o->ssd_bytes += s->ssd_bytes;
    o->ssd_capacity += s->ssd_capacity;
    o->staging_capacity += s->staging_capacity;
    o->peers_lost += s->peers_lost;
    o->threads += s->threads;
    o->source_busy_ns = MR_MAX(o->source_busy_ns, s->source_busy_ns); /* nodes read at the same time */
    o->set_bytes = s->set_bytes;
}

static bool is_first_of_node(const struct mr_bench_board *b, uint32_t k)
{
    return k == 0 || b->ranks[k].loader.stats.tier.node != b->ranks[k - 1].loader.stats.tier.node;
}

/* Reading begins before the first step does. */
static double until_first_step(const struct mr_job *j)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t k = 0; k < j->result.board->world; k++)
        if (j->result.series[k].n)
            first = MR_MIN(first, j->result.series[k].steps[0].start_ns);
    return first == UINT64_MAX ? 0 : (double)first / 1e9;
}

/* The first epoch cannot be shorter than reading what is distinct, none shorter than its compute. */
static void find_bound(const struct mr_job *j, struct mr_job_tiers *t)
{
    const struct mr_metrics *m = j->result.metrics;
    t->source_bytes_per_s = t->sum.source_busy_ns ? (double)t->sum.source_bytes / ((double)t->sum.source_busy_ns / 1e9)
                                                  : m->supply_bytes_per_s;
    double read_s = t->source_bytes_per_s > 0 ? (double)t->distinct_bytes / t->source_bytes_per_s : 0;
    double saving_s = m->split.checkpoint * m->duration_s;
    t->train_s = until_first_step(j) - (saving_s > 0 ? saving_s : 0);
    for (uint32_t e = 0; e < m->n_epochs; e++) {
        double compute_s = (double)m->epochs[e].steps * (m->compute_mean_s > 0 ? m->compute_mean_s : 0);
        t->bound_s += e == 0 ? fmax(compute_s, read_s) : compute_s;
        t->train_s += m->epochs[e].duration_s;
    }
}

void mr_job_sum_tiers(const struct mr_job *j, struct mr_job_tiers *out)
{
    const struct mr_bench_board *b = j->result.board;
    *out = (struct mr_job_tiers){.source_bytes_per_s = NAN};
    for (uint32_t k = 0; k < b->world; k++) {
        const struct mr_loader_tier_stats *s = &b->ranks[k].loader.stats.tier;
        if (!s->used)
            continue;
        out->used = true;
        add_from(&out->from[MR_JOB_RAM], &s->ram);
        add_from(&out->from[MR_JOB_SSD], &s->ssd);
        add_from(&out->from[MR_JOB_PEER], &s->peer);
        add_from(&out->from[MR_JOB_SOURCE], &s->source);
        if (is_first_of_node(b, k))
            add_node(out, s);
    }
    for (unsigned f = 0; f < MR_JOB_SOURCES; f++) {
        out->samples += out->from[f].samples;
        out->bytes += out->from[f].bytes;
    }
    out->distinct_bytes =
        out->nodes > 1 ? MR_MIN(out->sum.distinct_bytes, out->sum.set_bytes) : out->sum.distinct_bytes;
    if (out->used)
        find_bound(j, out);
}

/* ---- JSON ---- */

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

static json_t *sources_json(const struct mr_job_tiers *t)
{
    json_t *o = json_object();
    for (unsigned f = 0; f < MR_JOB_SOURCES; f++) {
        const struct mr_loader_from *x = &t->from[f];
        json_object_set_new(o, mr_job_sources[f],
                            json_pack("{s:I, s:I, s:o, s:o}", "samples", (json_int_t)x->samples, "bytes",
                                      (json_int_t)x->bytes, "hit_ratio",
                                      real(ratio((double)x->samples, (double)t->samples)), "fetch_mean_s",
                                      real(ratio((double)x->fetch_ns / 1e9, (double)x->samples))));
    }
    return o;
}

json_t *mr_job_tiers_json(const struct mr_job *j)
{
    struct mr_job_tiers t;
    mr_job_sum_tiers(j, &t);
    if (!t.used)
        return json_null();
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {{"source_bytes", t.sum.source_bytes},
                {"source_reads", t.sum.source_reads},
                {"distinct_bytes", t.distinct_bytes},
                {"filled_bytes", t.sum.filled_bytes},
                {"served_samples", t.sum.served},
                {"served_bytes", t.sum.served_bytes},
                {"refetched", t.sum.refetched},
                {"corrupt", t.sum.corrupt},
                {"ssd_refused", t.sum.ssd_refused},
                {"peers_lost", t.sum.peers_lost},
                {"ram_bytes", t.sum.ram_bytes},
                {"ram_capacity_bytes", t.sum.ram_capacity},
                {"ssd_bytes", t.sum.ssd_bytes},
                {"ssd_capacity_bytes", t.sum.ssd_capacity},
                {"staging_capacity_bytes", t.sum.staging_capacity},
                {"source_threads", t.sum.threads}};
    json_t *o = json_pack("{s:i, s:o}", "nodes", (int)t.nodes, "sources", sources_json(&t));
    for (size_t i = 0; o && i < MR_ARRAY_LEN(rows); i++)
        json_object_set_new(o, rows[i].key, json_integer((json_int_t)rows[i].value));
    json_object_set_new(o, "source_bytes_per_distinct_byte",
                        real(ratio((double)t.sum.source_bytes, (double)t.distinct_bytes)));
    json_object_set_new(o, "source_bytes_per_s", real(t.source_bytes_per_s));
    json_object_set_new(o, "bound_s", real(t.bound_s));
    json_object_set_new(o, "bound_ratio", real(ratio(t.train_s, t.bound_s)));
    return o;
}

json_t *mr_job_chosen_json(const struct mr_job *j)
{
    const struct mr_bench_board *b = j->result.board;
    json_t *list = json_array();
    for (uint32_t k = 0; k < b->world; k++)
        if (b->ranks[k].loader.stats.tier.used && is_first_of_node(b, k))
            json_array_append_new(list, json_string(b->ranks[k].loader.chosen));
    return list;
}
