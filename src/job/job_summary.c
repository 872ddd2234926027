/* summary.json of a job: DLIO's own keys at the top and under "metric"; ours under "millrace", with the unit in every
 * key. A pure function of the job and its result (board, trust, host): whoever has those again, e.g. from a trace, gets
 * the same summary. */
#include "base/common.h"
#include "base/strbuf.h"
#include "base/workers.h"
#include "job/job_internal.h"
#include "conf/job_options.h"
#include "job/job_tiers.h"

#include <errno.h>
#include <math.h>
#include <millrace/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *reals(const double *v, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, real(v[i]));
    return list;
}

static json_t *time_text(uint64_t wall_ns)
{
    char text[64];
    struct tm tm;
    time_t s = (time_t)(wall_ns / MR_NS_PER_S);
    gmtime_r(&s, &tm);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof text - n, ".%06u", (unsigned)(wall_ns % MR_NS_PER_S / 1000));
    return json_string(text);
}

/* ---- figures ---- */

static int allocate(struct mr_job_result *r, struct mr_error *err)
{
    r->series = r->series ? r->series : calloc(r->board->world, sizeof(*r->series));
    r->metrics = r->metrics ? r->metrics : calloc(1, sizeof(*r->metrics));
    r->dlio = r->dlio ? r->dlio : calloc(1, sizeof(*r->dlio));
    return r->series && r->metrics && r->dlio ? 0 : mr_error_set(err, -ENOMEM, "cannot hold the result of a run");
}

int mr_job_compute_figures(struct mr_job *j, struct mr_error *err)
{
    const struct mr_workload *w = j->w;
    struct mr_job_result *r = &j->result;
    const struct mr_dlio_params p = {.batch_size = (uint32_t)w->reader.batch_size,
                                     .batch_size_eval = (uint32_t)w->reader.batch_size_eval,
                                     .record_bytes = j->plan.record_bytes,
                                     .exclude_start = (uint64_t)w->output_metric.exclude_start_steps,
                                     .exclude_end = (uint64_t)w->output_metric.exclude_end_steps,
                                     .steps_per_epoch = MR_MIN(j->plan.steps_per_epoch, j->plan.total_steps),
                                     .eval_steps = j->plan.eval_steps,
                                     .au_target = w->metric.au};
    const struct mr_metrics_params own = {
        .seed = j->seed, .exclude_start = p.exclude_start, .exclude_end = p.exclude_end};
    int rc = allocate(r, err);
    if (rc)
        return rc;
    mr_bench_board_series(r->board, r->series);
    mr_metrics_compute(r->series, r->board->world, &own, r->metrics);
    mr_dlio_compute(r->series, r->board->world, &p, r->dlio);
    return 0;
}

/* ---- DLIO's keys ---- */

static void put_dlio_train(json_t *m, const struct mr_dlio_metrics *d)
{
    json_object_set_new(m, "train_au_percentage", reals(d->train_au, d->epochs));
    json_object_set_new(m, "train_au_mean_percentage", real(d->train_au_mean));
    json_object_set_new(m, "train_au_meet_expectation", json_string(d->train_meets ? "success" : "fail"));
    json_object_set_new(m, "train_au_stdev_percentage", real(d->train_au_stdev));
    json_object_set_new(m, "train_throughput_samples_per_second", reals(d->train_throughput, d->epochs));
    json_object_set_new(m, "train_throughput_mean_samples_per_second", real(d->train_throughput_mean));
    json_object_set_new(m, "train_throughput_stdev_samples_per_second", real(d->train_throughput_stdev));
    json_object_set_new(m, "train_io_mean_MB_per_second", real(d->train_io_mean));
    json_object_set_new(m, "train_io_stdev_MB_per_second", real(d->train_io_stdev));
}

static void put_dlio_eval(json_t *m, const struct mr_dlio_metrics *d)
{
    json_object_set_new(m, "eval_au_percentage", reals(d->eval_au, d->evals));
    json_object_set_new(m, "eval_au_mean_percentage", real(d->eval_au_mean));
    json_object_set_new(m, "eval_au_meet_expectation", json_string(d->eval_meets ? "success" : "fail"));
    json_object_set_new(m, "eval_au_stdev_percentage", real(d->eval_au_stdev));
    json_object_set_new(m, "eval_throughput_samples_per_second", reals(d->eval_throughput, d->evals));
    json_object_set_new(m, "eval_throughput_mean_samples_per_second", real(d->eval_throughput_mean));
    json_object_set_new(m, "eval_throughput_stdev_samples_per_second", real(d->eval_throughput_stdev));
    json_object_set_new(m, "eval_io_mean_MB_per_second", real(d->eval_io_mean));
    json_object_set_new(m, "eval_io_stdev_MB_per_second", real(d->eval_io_stdev));
}

static void put_dlio_checkpoint(json_t *m, const struct mr_dlio_metrics *d, const struct mr_metrics *own)
{
    if (own->saves) {
        json_object_set_new(m, "save_checkpoint_io_mean_GB_per_second", real(d->save_io_mean));
        json_object_set_new(m, "save_checkpoint_io_stdev_GB_per_second", real(d->save_io_stdev));
        json_object_set_new(m, "save_checkpoint_duration_mean_seconds", real(d->save_duration_mean));
        json_object_set_new(m, "save_checkpoint_duration_stdev_seconds", real(d->save_duration_stdev));
    }
    if (own->loads) {
        json_object_set_new(m, "load_checkpoint_io_mean_GB_per_second", real(d->load_io_mean));
        json_object_set_new(m, "load_checkpoint_io_stdev_GB_per_second", real(d->load_io_stdev));
        json_object_set_new(m, "load_checkpoint_duration_mean_seconds", real(d->load_duration_mean));
        json_object_set_new(m, "load_checkpoint_duration_stdev_seconds", real(d->load_duration_stdev));
    }
    if (own->saves || own->loads)
        json_object_set_new(m, "checkpoint_size_GB", real(d->checkpoint_gib));
}

/* /proc/cpuinfo or /proc/meminfo as {"name": "text"}; of several CPUs the last one's values stay, as DLIO has it. */
static json_t *proc_json(const char *path)
{
    char line[4096];
    json_t *o = json_object();
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon)
            continue;
        char *end = colon;
        while (end > line && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        *end = '\0';
        char *value = colon + 1 + strspn(colon + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        if (strcmp(line, "processor") != 0)
            json_object_set_new(o, line, json_string(value));
    }
    if (f)
        fclose(f);
    return o;
}

/* DLIO's keys that describe the host. */
static json_t *dlio_host_json(void)
{
    char host[256] = "";
    struct utsname u = {0};
    json_t *o = json_object();
    uname(&u);
    gethostname(host, sizeof host - 1);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (double)MR_GIB;
    json_object_set_new(o, "hostname", json_string(host));
    json_object_set_new(o, "host_cpu_count", json_pack("[i]", (int)sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(o, "host_processor_name", json_string(u.machine));
    json_object_set_new(o, "host_cpuinfo", proc_json("/proc/cpuinfo"));
    json_object_set_new(o, "host_meminfo", proc_json("/proc/meminfo"));
    json_object_set_new(o, "host_memory_GB", json_pack("[f]", memory));
    return o;
}

static void cpu_model(char *out, size_t cap)
{
    char line[512];
    snprintf(out, cap, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(out, cap, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (f)
        fclose(f);
}

static json_t *environment_json(void)
{
    struct utsname u = {0};
    char cpu[256];
    uname(&u);
    cpu_model(cpu, sizeof cpu);
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:s}", "hostname", u.nodename, "kernel", u.release, "machine",
                     u.machine, "cpu", cpu, "cpus", (int)mr_cpus_available(), "memory_bytes",
                     (json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE), "millrace_version",
                     MR_VERSION);
}

json_t *mr_job_host_json(void)
{
    return json_pack("{s:o?, s:o?}", "dlio", dlio_host_json(), "environment", environment_json());
}

/* Whether the page cache of a host could hold its part of the data set. */
static void put_caching(json_t *root, double data_gib)
{
    const json_t *memory = json_array_get(json_object_get(root, "host_memory_GB"), 0);
    json_object_set_new(root, "data_size_per_host_GB", real(data_gib));
    json_object_set_new(root, "potential_caching", json_pack("[i]", json_number_value(memory) <= data_gib ? 0 : 1));
}

static void put_dlio_top(json_t *root, const struct mr_job *j)
{
    uint32_t hosts = MR_MAX(1u, j->result.world / MR_MAX(j->result.local_world, 1u));
    json_object_set_new(root, "start", time_text(j->result.start_wall_ns));
    json_object_set_new(root, "end", time_text(j->result.end_wall_ns));
    json_object_set_new(root, "num_accelerators", json_integer(j->result.world));
    json_object_set_new(root, "num_hosts", json_integer(hosts));
    json_object_set_new(root, "num_files_train", json_integer(j->w->dataset.num_files_train));
    json_object_set_new(root, "num_files_eval", json_integer(j->w->dataset.num_files_eval));
    json_object_set_new(root, "num_samples_per_file", json_integer(j->w->dataset.num_samples_per_file));
    json_object_update(root, json_object_get(j->result.host, "dlio"));
    put_caching(root, j->plan.train_bytes / (double)hosts / (double)MR_GIB);
    json_object_set_new(root, "epochs", json_integer(j->result.dlio->epochs));
}

/* ---- ours ---- */

struct mr_job_loaders mr_job_sum_loaders(const struct mr_job *j)
{
    struct mr_job_loaders l = {0};
    for (uint32_t k = 0; k < j->result.board->world; k++) {
        const struct mr_loader_stats *s = &j->result.board->ranks[k].loader.stats;
        l.read += (double)s->read_ns;
        l.decode += (double)s->decode_ns;
        l.transform += (double)s->transform_ns;
        l.idle += (double)s->idle_ns;
        l.cpu += (double)s->cpu_ns;
        l.empty += s->empty_ratio / (double)j->result.board->world;
    }
    return l;
}

uint64_t mr_job_left_in_buffer(const struct mr_job *j)
{
    uint64_t left = 0;
    for (uint32_t k = 0; k < j->result.board->world; k++)
        left += j->result.board->ranks[k].drains_left;
    return left;
}

static json_t *quantiles(const struct mr_quantiles *q)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "mean", real(q->mean), "p50", real(q->p50), "p95", real(q->p95),
                     "p99", real(q->p99), "max", real(q->max));
}

static json_t *split(const struct mr_split *s)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "compute", real(s->compute), "checkpoint", real(s->checkpoint),
                     "data_stall", real(s->data), "barrier", real(s->barrier), "device_copy", real(s->copy), "other",
                     real(s->other));
}

static json_t *epochs(const struct mr_metrics *m)
{
    json_t *list = json_array();
    for (uint32_t e = 0; e < m->n_epochs; e++) {
        const struct mr_metrics_epoch *x = &m->epochs[e];
        json_array_append_new(list, json_pack("{s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "epoch", (int)x->epoch,
                                              "steps_per_rank", (json_int_t)x->steps, "duration_s", real(x->duration_s),
                                              "au", real(x->au), "samples_per_s", real(x->samples_per_s),
                                              "read_bytes_per_s", real(x->read_bytes_per_s), "data_stall_share",
                                              real(x->stall_share), "first_step_s", real(x->first_step_s)));
    }
    return list;
}

/* Of the burst buffer, or with an engine that writes behind of what is still in memory; null without. */
static json_t *drains(const struct mr_job *j, bool of_buffer)
{
    const struct mr_metrics_drains *d = &j->result.metrics->drain;
    bool has_buffer = *j->w->burst_buffer.folder;
    if (!j->w->workflow.checkpoint || has_buffer != of_buffer || (!of_buffer && !d->buffered))
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "buffered_saves",
                     (json_int_t)d->buffered, "drains", (json_int_t)d->drains, "failed_drains", (json_int_t)d->failed,
                     "left_in_buffer", (json_int_t)mr_job_left_in_buffer(j), "drained_bytes", (json_int_t)d->bytes,
                     "drain_s", quantiles(&d->drain_s), "drain_total_s", real(d->total_s), "drain_overlap_s",
                     real(d->overlap_s), "drain_overlap_share", real(d->overlap_share), "drain_bytes_per_s",
                     real(d->bytes_per_s), "room_wait_s", real(d->room_wait_s), "end_wait_s", real(d->end_wait_s));
}

void mr_job_sum_fields(const struct mr_job *j, struct mr_bench_fields *out)
{
    out->n = 0;
    for (uint32_t k = 0; k < j->result.board->world; k++)
        mr_bench_fields_add(out, &j->result.board->ranks[k].loader.fields);
}

/* What each field cost, over all ranks; null where samples are one array. */
static json_t *fields(const struct mr_job *j)
{
    struct mr_bench_fields f;
    mr_job_sum_fields(j, &f);
    json_t *list = f.n ? json_array() : json_null();
    for (uint32_t k = 0; k < f.n; k++) {
        const struct mr_bench_field *x = &f.field[k];
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:o, s:o}", "name", x->name, "samples",
                                              (json_int_t)x->samples, "stored_bytes", (json_int_t)x->stored_bytes,
                                              "delivered_bytes", (json_int_t)x->bytes, "decode_s",
                                              real((double)x->decode_ns / 1e9), "transform_s",
                                              real((double)x->transform_ns / 1e9)));
    }
    return list;
}

static json_t *checkpoints(const struct mr_job *j)
{
    const struct mr_metrics *m = j->result.metrics;
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "saves", (json_int_t)m->saves, "loads",
                     (json_int_t)m->loads, "saved_bytes", (json_int_t)m->save_bytes, "loaded_bytes",
                     (json_int_t)m->load_bytes, "save_s", quantiles(&m->save_s), "load_s", quantiles(&m->load_s),
                     "save_bytes_per_s", real(m->save_bytes_per_s), "load_bytes_per_s", real(m->load_bytes_per_s),
                     "fsync_share", real(m->fsync_share), "burst_buffer", drains(j, true), "written_behind",
                     drains(j, false));
}

static json_t *ranks(const struct mr_job *j)
{
    json_t *list = json_array();
    for (uint32_t k = 0; k < j->result.board->world; k++) {
        const struct mr_bench_rank *b = &j->result.board->ranks[k];
        const struct mr_loader_stats *s = &b->loader.stats;
        json_array_append_new(
            list, json_pack("{s:i, s:I, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:o}", "rank",
                            (int)k, "steps", (json_int_t)j->result.series[k].n, "threads", (int)s->threads, "read_s",
                            real((double)s->read_ns / 1e9), "decode_s", real((double)s->decode_ns / 1e9), "transform_s",
                            real((double)s->transform_ns / 1e9), "idle_s", real((double)s->idle_ns / 1e9),
                            "thread_cpu_s", real((double)s->cpu_ns / 1e9), "ready_batches_mean", real(s->ready_mean),
                            "queue_empty_share", real(s->empty_ratio), "limiter", b->loader.limiter, "slab_bytes",
                            (json_int_t)s->slab_bytes, "peak_rss_bytes", (json_int_t)b->peak_rss_bytes,
                            "rows_crc32c_sum", (json_int_t)b->rows_crc, "preload_s", real(b->preload_s)));
    }
    return list;
}

/* Which policy read, and whether the steps got the data of the order. */
static json_t *policy_json(const struct mr_job *j)
{
    struct mr_loader_choice c;
    if (mr_job_policy(j, &c, NULL))
        return json_null();
    return json_pack("{s:s, s:b}", "name", c.policy, "keeps_order", !c.is_perfect);
}

static json_t *ours(const struct mr_job *j)
{
    const struct mr_metrics *m = j->result.metrics;
    json_t *o = json_pack("{s:s, s:b, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:o}", "workload", j->w->name, "complete",
                          !j->result.code, "incomplete_reason", j->result.code ? j->result.why.message : "", "ranks",
                          (int)j->result.world, "seed", (json_int_t)j->seed, "steps", (json_int_t)m->steps, "samples",
                          (json_int_t)m->samples, "sample_bytes", (json_int_t)m->sample_bytes, "read_bytes",
                          (json_int_t)m->read_bytes, "duration_s", real(m->duration_s));
    struct {
        const char *key;
        double value;
    } rows[] = {{"au", m->au},
                {"au_ci95_low", m->au_low},
                {"au_ci95_high", m->au_high},
                {"au_cold", m->au_cold},
                {"au_warm", m->au_warm},
                {"au_target", j->w->metric.au},
                {"samples_per_s", m->samples_per_s},
                {"sample_bytes_per_s", m->sample_bytes_per_s},
                {"read_bytes_per_s", m->read_bytes_per_s},
                {"stalled_steps_share", m->stalled_steps},
                {"first_step_load_s", m->first_step_load_s},
                {"epoch_start_stall_share", m->epoch_start_share},
                {"ceiling_speedup", m->ceiling},
                {"compute_mean_s", m->compute_mean_s},
                {"demand_bytes_per_s", m->demand_bytes_per_s},
                {"supply_bytes_per_s", m->supply_bytes_per_s},
                {"headroom", m->headroom},
                {"imbalance", m->imbalance},
                {"imbalance_cv", m->imbalance_cv},
                {"imbalance_cost_s", m->imbalance_cost_s},
                {"eval_au", m->eval_au},
                {"eval_samples_per_s", m->eval_samples_per_s}};
    for (size_t i = 0; o && i < MR_ARRAY_LEN(rows); i++)
        json_object_set_new(o, rows[i].key, real(rows[i].value));
    json_object_set_new(o, "au_steps_counted", json_integer((json_int_t)m->au_steps));
    json_object_set_new(o, "straggler_rank", m->straggler >= 0 ? json_integer(m->straggler) : json_null());
    json_object_set_new(o, "stall_per_step_s", quantiles(&m->stall_s));
    json_object_set_new(o, "step_s", quantiles(&m->step_s));
    json_object_set_new(o, "time_split", split(&m->split));
    json_object_set_new(o, "time_split_worst_rank", split(&m->worst_split));
    json_object_set_new(o, "worst_rank", json_integer(m->worst_rank));
    json_object_set_new(o, "checkpoint", checkpoints(j));
    json_object_set_new(o, "epochs", epochs(m));
    json_object_set_new(o, "per_rank", ranks(j));
    json_object_set_new(o, "fields", fields(j));
    json_object_set_new(o, "policy", policy_json(j));
    json_object_set_new(o, "tiers", mr_job_tiers_json(j));
    return o;
}

json_t *mr_job_figures_json(const struct mr_job *j)
{
    json_t *metric = json_object();
    if (j->w->workflow.train)
        put_dlio_train(metric, j->result.dlio);
    if (j->w->workflow.evaluation && j->result.dlio->evals)
        put_dlio_eval(metric, j->result.dlio);
    put_dlio_checkpoint(metric, j->result.dlio, j->result.metrics);
    return json_pack("{s:o, s:o}", "metric", metric, "millrace", ours(j));
}

/* PASS, FAIL, "none" with its reason; null where there is nothing to judge. */
static void put_verdict(json_t *root, const struct mr_job *j)
{
    static const char *const names[] = {NULL, "PASS", "FAIL", "none"};
    char because[1100];
    const char *name = names[mr_job_judge(j, because, sizeof because)];
    json_object_set_new(root, "verdict", name ? json_string(name) : json_null());
    json_object_set_new(root, "no_verdict_because", *because ? json_string(because) : json_null());
}

/* null: the storage was not asked. */
static json_t *probe_json(const struct mr_job *j)
{
    const struct mr_job_probe *p = &j->result.probe;
    if (!p->streams[0])
        return json_null();
    return json_pack("{s:[i, i], s:[f, f], s:o, s:I}", "streams", (int)p->streams[0], (int)p->streams[1], "bytes_per_s",
                     p->bytes_per_s[0], p->bytes_per_s[1], "storage_limit_bytes_per_s", real(mr_job_storage_limit(j)),
                     "read_bytes", (json_int_t)p->bytes);
}

static json_t *advice_json(const struct mr_job *j)
{
    struct mr_strbuf s = {0};
    mr_job_advise(j, &s);
    json_t *text = s.text && *s.text ? json_string(s.text) : json_null();
    mr_strbuf_done(&s);
    return text;
}

json_t *mr_job_summary_json(const struct mr_job *j)
{
    json_t *root = json_pack("{s:s, s:b}", "schema", "millrace.run/1", "complete", !j->result.code);
    char limiter[256];
    put_verdict(root, j);
    put_dlio_top(root, j);
    json_object_update_new(root, mr_job_figures_json(j));
    json_object_set_new(root, "limiter", json_string(mr_job_limiter(j, limiter, sizeof limiter)));
    json_object_set_new(root, "advice", advice_json(j));
    json_object_set_new(root, "storage_probe", probe_json(j));
    json_object_set_new(root, "trust", mr_job_trust_json(j));
    json_t *environment = json_deep_copy(json_object_get(j->result.host, "environment"));
    json_object_set_new(environment, "ranks_by", json_string(j->result.ranks_by));
    json_object_set_new(root, "environment", environment);
    json_object_set_new(root, "options", mr_job_options_to_json(&j->opt));
    json_object_set_new(root, "config", j->config ? json_deep_copy(j->config) : mr_workload_to_json(j->w));
    json_t *notes = mr_strings_to_json(&j->notes), *more = mr_strings_to_json(&j->w->notes);
    json_array_extend(notes, more);
    json_decref(more);
    json_object_set_new(root, "notes", notes);
    json_object_set_new(root, "tiers_chosen", mr_job_chosen_json(j));
    json_object_set_new(root, "results_folder", json_string(j->out));
    return root;
}
