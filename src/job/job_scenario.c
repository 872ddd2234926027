/* Job to scenario; see job_scenario.h. */
#include "job/job_scenario.h"
#include "job/job_internal.h"
#include "base/common.h"
#include "base/log.h"
#include "model/system_yaml.h"
#include "sim/scenario_yaml.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define MB 1e6
#define NO_LIMIT_MBPS 1e9
#define QUEUE_DEPTH 32u /* the loader's */
#define QUEUE_ROOM (32 * (double)MR_MIB)
#define TIER_THREADS 8 /* of a node's tiers, where the run does not say */

bool mr_job_reads_samples(const struct mr_job *j)
{
    return j->w->dataset.format != MR_CF_SYNTHETIC && j->w->pattern.unit != MR_CONF_UNIT_NONE;
}

/* The simulator plays global orders; those that stay inside a rank's slice are played as a shuffle. */
static enum mr_order_mode order_of(const struct mr_workload *w)
{
    enum mr_order_mode mode;
    uint64_t window;
    if (mr_order_mode_parse(mr_workload_order_name(w), &mode, &window, NULL) < 0 || mode > MR_ORDER_CIPHER)
        return MR_ORDER_AUTO;
    return mode;
}

void mr_job_training(const struct mr_job *j, struct mr_job_part *out)
{
    const struct mr_workload_plan *p = &j->plan;
    uint64_t each = MR_MAX(p->steps_per_epoch, 1u);
    *out = (struct mr_job_part){.samples = p->train_samples,
                                .steps = p->steps_per_epoch,
                                .epochs = (p->total_steps + each - 1) / each,
                                .limit = p->total_steps % each ? p->total_steps : 0,
                                .batch = (uint64_t)j->w->reader.batch_size,
                                .compute_s = p->compute_s,
                                .order = order_of(j->w),
                                .reads = mr_job_reads_samples(j) && j->w->reader.read_type != MR_CONF_READ_MEMORY};
}

static unsigned threads_of(const struct mr_job *j)
{
    return (unsigned)MR_MAX(j->opt.threads ? j->opt.threads : j->w->reader.read_threads, 1);
}

bool mr_job_queues_reads(const struct mr_job *j)
{
    return j->opt.io == MR_LOADER_IO_QUEUE || (j->opt.io == MR_LOADER_IO_AUTO && j->w->reader.odirect);
}

/* Batches in memory, the trainer's included, as the loader has them: the look-ahead, and where a queue of requests
 * finds too few rows in that, some more as long as they are little memory. */
static uint64_t batches_of(const struct mr_job *j, const struct mr_job_part *part, double record)
{
    const struct mr_conf_reader *r = &j->w->reader;
    int64_t ahead = j->opt.lookahead >= 0 ? j->opt.lookahead : r->prefetch_size;
    if (ahead == 0 && j->opt.lookahead < 0 && r->data_loader == MR_DL_PYTORCH)
        ahead = 2;
    uint64_t batches = (uint64_t)ahead + 1, want = (QUEUE_DEPTH + part->batch - 1) / part->batch + 2;
    if (!mr_job_queues_reads(j) || batches >= want)
        return batches;
    return batches + MR_MIN(want - batches, (uint64_t)(QUEUE_ROOM / fmax((double)part->batch * record, 1)));
}

/* Requests in flight of a rank: one of each thread, or a queue's, as far as there are rows to read into. The trainer
 * holds one batch. */
static unsigned streams_of(const struct mr_job *j, uint64_t batches, uint64_t batch)
{
    unsigned threads = threads_of(j);
    if (!mr_job_queues_reads(j))
        return threads;
    uint64_t rows = MR_MAX(batches - 1, 1u) * batch;
    return (unsigned)MR_MAX((uint64_t)threads, MR_MIN((uint64_t)QUEUE_DEPTH, rows));
}

/* The threads of all classes together are limited; the machine's own come first. */
static unsigned fit_threads(const struct mr_system *s, unsigned asked)
{
    unsigned others = 0;
    for (unsigned k = 1; k < s->n_classes; k++)
        others += s->classes[k].threads;
    unsigned room = others < MR_NODE_THREADS_MAX ? MR_NODE_THREADS_MAX - others : 1;
    return MR_MIN(asked, room);
}

/* The rate by which the published rules compute; the shared engine takes the time of a step as it is. */
static void set_compute(struct mr_scenario *s, double step_s)
{
    double local_mb = s->size_mean_mb * (double)s->batch / s->nodes;
    s->step_s = step_s;
    s->system.compute_mbps = step_s > 0 ? local_mb / step_s : NO_LIMIT_MBPS;
}

void mr_job_scenario(const struct mr_job *j, const struct mr_system *machine, const struct mr_job_part *part,
                     struct mr_scenario *out)
{
    const struct mr_workload *w = j->w;
    double record = part->reads ? j->plan.read_bytes : 1e-3; /* nothing is read, and no size is not one */
    double step_mb = (double)part->batch * record / MB;
    double preprocess_s = mr_dist_mean(&w->reader.preprocess_time);
    uint64_t batches = batches_of(j, part, record);
    unsigned streams = streams_of(j, batches, part->batch);
    struct mr_scenario s = {.system = *machine,
                            .nodes = j->plan.ranks,
                            .batch = part->batch * j->plan.ranks,
                            .epochs =
                                (uint32_t)MR_MIN(part->epochs, (uint64_t)UINT32_MAX), /* too many: refused later */
                            .drop_last = true, /* a last batch that is smaller is taken for a full one */
                            .size_mean_mb = record / MB,
                            .size_stdev_mb = part->reads ? w->dataset.record_length_bytes_stdev / MB : 0,
                            .seed = j->seed,
                            .order_mode = part->order,
                            .steps = part->limit};
    snprintf(s.name, sizeof s.name, "%s", *w->name ? w->name : "workload");
    s.batch_asked = s.batch;
    s.samples = MR_MAX(part->samples, part->steps * s.batch);
    set_compute(&s, part->compute_s);
    /* The workload says what a thread's preprocessing costs; the model's rate is that of its own source's application.
     */
    s.system.classes[0].threads = fit_threads(&s.system, streams);
    s.system.classes[0].capacity_mb = (double)batches * step_mb;
    s.system.preprocess_mbps = NO_LIMIT_MBPS;
    if (preprocess_s > 0 && part->reads) /* by the threads that there are, whoever is in flight */
        s.system.preprocess_mbps = record / MB / preprocess_s * fmin(1, (double)threads_of(j) / streams);
    *out = s;
}

/* A system that knows its rates by the size and kind of requests has those of this workload's. */
static int load_system(const struct mr_job *j, const char *name, struct mr_system *out, struct mr_error *err)
{
    const struct mr_conf_reader *r = &j->w->reader;
    int rc = mr_system_load(name, &j->req.search_path, j->arena, out, err);
    double record = mr_workload_read_bytes(j->w);
    double request = r->transfer_size ? fmin((double)r->transfer_size, record) : record;
    if (!rc && request > 0)
        mr_system_fit(out, request / MB, !r->odirect);
    return rc;
}

int mr_job_load_system(const struct mr_job *j, struct mr_system *out, struct mr_error *err)
{
    const char *name = *j->opt.system ? j->opt.system : j->w->extra.storage_model;
    bool shapes = !*j->opt.system && strchr(name, '('); /* what 'workloads check' shapes real storage with */
    if (*name && !shapes)
        return load_system(j, name, out, err);
    return mr_error_plain(err, MR_E_USAGE, "a virtual run needs a storage model%s%s%s",
                          shapes ? "; the workload's '" : "", shapes ? name : "",
                          shapes ? "' shapes real storage" : "");
}

/* ---- a study ---- */

/* The last word that sets `key`, as its value; NULL if none does. */
static const char *last_value(const struct mr_strings *words, const char *key)
{
    size_t n = strlen(key);
    for (unsigned i = words->n; i-- > 0;)
        if (!strncmp(words->item[i], key, n) && words->item[i][n] == '=')
            return words->item[i] + n + 1;
    return NULL;
}

/* All but system=, which is the machine and not a change to the scenario. */
static int without_system(const struct mr_strings *words, struct mr_arena *a, struct mr_strings *out,
                          struct mr_error *err)
{
    const char **item = mr_arena_alloc(a, (words->n + 1) * sizeof(*item));
    unsigned n = 0;
    if (!item)
        return mr_error_set(err, -ENOMEM, "overrides");
    for (unsigned i = 0; i < words->n; i++)
        if (strncmp(words->item[i], "system=", strlen("system=")) != 0)
            item[n++] = words->item[i];
    *out = (struct mr_strings){.n = n, .item = item};
    return 0;
}

static int find_machine(struct mr_job *j, const struct mr_job_measured *m, const char *name, struct mr_system *out,
                        struct mr_error *err)
{
    struct mr_error ignored;
    if (name)
        return load_system(j, name, out, err);
    if (m) {
        mr_job_measured_system(m, j->plan.ranks, out);
        return 0;
    }
    int rc = mr_job_load_system(j, out, &ignored);
    if (rc == MR_E_USAGE) {
        mr_error_plain(err, MR_E_CONFIG, "the scenario names no 'system'");
        return mr_error_hint(err, "give system=NAME; 'millrace sim --list' shows the shipped ones"), MR_E_CONFIG;
    }
    if (rc)
        *err = ignored;
    return rc;
}

/* Measured figures stand above those that the workload says. */
static void put_measured(const struct mr_job_measured *m, struct mr_scenario *s)
{
    s->size_mean_mb = m->sample_bytes / MB;
    s->epochs = (uint32_t)m->epochs;
    const uint64_t whole_batches = s->samples / s->batch; /* of an epoch */
    s->steps = m->steps < m->epochs * (double)whole_batches ? (uint64_t)m->steps : 0;
    if (m->tier_nodes > 0) {
        s->staging_serves = true;
        s->nodes = (uint32_t)m->tier_nodes;
        double threads = m->tier_threads > 0 ? m->tier_threads / m->tier_nodes : TIER_THREADS;
        s->system.classes[0].threads = fit_threads(&s->system, (unsigned)fmax(1, threads));
        if (m->staging_bytes > 0)
            s->system.classes[0].capacity_mb = m->staging_bytes / m->tier_nodes / MB;
    }
    set_compute(s, m->compute_s);
    if (m->convert_s > 0)
        s->system.preprocess_mbps = m->sample_bytes * m->samples / MB / m->convert_s;
}

static int check_reads(const struct mr_job *j, const struct mr_job_part *part, struct mr_error *err)
{
    if (!j->plan.train_samples || j->plan.record_bytes < 1 || !part->steps || !mr_job_reads_samples(j))
        return mr_error_plain(err, MR_E_CONFIG, "workload '%s' reads no samples; there is nothing to simulate",
                              j->w->name);
    if (!part->reads)
        mr_log(MR_LOG_NOTE, "'%s' reads its data set into memory before the first step; what comes after is simulated",
               j->w->name);
    return 0;
}

int mr_job_study_scenario(struct mr_job *j, const struct mr_job_measured *measured, const struct mr_strings *words,
                          struct mr_scenario *out, struct mr_error *err)
{
    const char *nodes = last_value(words, "nodes");
    struct mr_strings changes;
    struct mr_system machine;
    struct mr_scenario s;
    struct mr_job_part part;
    int64_t n;
    if (measured)
        j->opt.threads = (int64_t)fmin(measured->threads, MR_JOB_STAGING_THREADS_MOST);
    int rc = without_system(words, j->arena, &changes, err);
    if (!rc)
        rc = find_machine(j, measured, last_value(words, "system"), &machine, err);
    if (nodes && !mr_parse_int(nodes, &n) && n > 0 && n < UINT16_MAX) /* others are refused with the other words */
        j->opt.ranks = n;
    if (!rc)
        rc = mr_plan_make(j->w, (uint32_t)j->opt.ranks, &j->plan, err);
    if (rc)
        return rc;
    mr_job_training(j, &part);
    if ((rc = check_reads(j, &part, err)))
        return rc;
    mr_job_scenario(j, &machine, &part, &s);
    if (measured) {
        struct mr_job_measured m = *measured;
        if (nodes) /* of another size: a node for every rank */
            m.tier_nodes = 0;
        put_measured(&m, &s);
    }
    rc = mr_scenario_change(&s, &changes, &j->req.search_path, j->arena, err);
    if (!rc)
        *out = s;
    return rc;
}
