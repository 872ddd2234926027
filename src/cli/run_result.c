/* The results of a run: summary.json with the DLIO benchmark's keys and ours, config.json, one series of steps per rank
 * and the checkpoints. Every file is written beside its name and renamed, so what is there is whole.
 *
 * summary.json: DLIO's own keys at the top and under "metric"; ours under "millrace", with the unit in every key. */
#include "base/common.h"
#include "cli/run_internal.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static void put_dlio_top(json_t *root, const struct run *r)
{
    uint32_t hosts = MR_MAX(1u, r->comm->world / MR_MAX(r->comm->local_world, 1u));
    char host[256] = "";
    struct utsname u = {0};
    uname(&u);
    gethostname(host, sizeof host - 1);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (double)MR_GIB;
    double data = r->plan.train_bytes / (double)hosts / (double)MR_GIB;
    json_object_set_new(root, "start", time_text(r->start_wall_ns));
    json_object_set_new(root, "end", time_text(r->end_wall_ns));
    json_object_set_new(root, "num_accelerators", json_integer(r->comm->world));
    json_object_set_new(root, "num_hosts", json_integer(hosts));
    json_object_set_new(root, "hostname", json_string(host));
    json_object_set_new(root, "num_files_train", json_integer(r->w->dataset.num_files_train));
    json_object_set_new(root, "num_files_eval", json_integer(r->w->dataset.num_files_eval));
    json_object_set_new(root, "num_samples_per_file", json_integer(r->w->dataset.num_samples_per_file));
    json_object_set_new(root, "host_cpu_count", json_pack("[i]", (int)sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(root, "host_processor_name", json_string(u.machine));
    json_object_set_new(root, "host_cpuinfo", proc_json("/proc/cpuinfo"));
    json_object_set_new(root, "host_meminfo", proc_json("/proc/meminfo"));
    json_object_set_new(root, "host_memory_GB", json_pack("[f]", memory));
    json_object_set_new(root, "data_size_per_host_GB", real(data));
    json_object_set_new(root, "potential_caching", json_pack("[i]", memory <= data ? 0 : 1));
    json_object_set_new(root, "epochs", json_integer(r->dlio->epochs));
}

/* ---- ours ---- */

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

/* null without one. */
static json_t *burst_buffer(const struct run *r)
{
    const struct mr_metrics_drains *d = &r->metrics->drain;
    if (!r->w->workflow.checkpoint || !*r->w->burst_buffer.folder)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "buffered_saves",
                     (json_int_t)d->buffered, "drains", (json_int_t)d->drains, "failed_drains", (json_int_t)d->failed,
                     "left_in_buffer", (json_int_t)mr_run_left_in_buffer(r), "drained_bytes", (json_int_t)d->bytes,
                     "drain_s", quantiles(&d->drain_s), "drain_total_s", real(d->total_s), "drain_overlap_s",
                     real(d->overlap_s), "drain_overlap_share", real(d->overlap_share), "drain_bytes_per_s",
                     real(d->bytes_per_s), "room_wait_s", real(d->room_wait_s), "end_wait_s", real(d->end_wait_s));
}

static json_t *checkpoints(const struct run *r)
{
    const struct mr_metrics *m = r->metrics;
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "saves", (json_int_t)m->saves, "loads",
                     (json_int_t)m->loads, "saved_bytes", (json_int_t)m->save_bytes, "loaded_bytes",
                     (json_int_t)m->load_bytes, "save_s", quantiles(&m->save_s), "load_s", quantiles(&m->load_s),
                     "save_bytes_per_s", real(m->save_bytes_per_s), "load_bytes_per_s", real(m->load_bytes_per_s),
                     "fsync_share", real(m->fsync_share), "burst_buffer", burst_buffer(r));
}

static json_t *ranks(const struct run *r)
{
    json_t *list = json_array();
    for (uint32_t k = 0; k < r->board->world; k++) {
        const struct mr_bench_rank *b = &r->board->ranks[k];
        const struct mr_loader_stats *s = &b->loader.stats;
        json_array_append_new(
            list, json_pack("{s:i, s:I, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:o}", "rank",
                            (int)k, "steps", (json_int_t)r->series[k].n, "threads", (int)s->threads, "read_s",
                            real((double)s->read_ns / 1e9), "decode_s", real((double)s->decode_ns / 1e9), "transform_s",
                            real((double)s->transform_ns / 1e9), "idle_s", real((double)s->idle_ns / 1e9),
                            "thread_cpu_s", real((double)s->cpu_ns / 1e9), "ready_batches_mean", real(s->ready_mean),
                            "queue_empty_share", real(s->empty_ratio), "limiter", b->loader.limiter, "slab_bytes",
                            (json_int_t)s->slab_bytes, "peak_rss_bytes", (json_int_t)b->peak_rss_bytes,
                            "rows_crc32c_sum", (json_int_t)b->rows_crc, "preload_s", real(b->preload_s)));
    }
    return list;
}

static json_t *ours(const struct run *r)
{
    const struct mr_metrics *m = r->metrics;
    char text[256];
    json_t *o = json_pack("{s:s, s:b, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:o}", "workload", r->w->name, "complete",
                          !r->code, "incomplete_reason", r->code ? r->why.message : "", "ranks", (int)r->comm->world,
                          "seed", (json_int_t)r->seed, "steps", (json_int_t)m->steps, "samples", (json_int_t)m->samples,
                          "sample_bytes", (json_int_t)m->sample_bytes, "read_bytes", (json_int_t)m->read_bytes,
                          "duration_s", real(m->duration_s));
    struct {
        const char *key;
        double value;
    } rows[] = {{"au", m->au},
                {"au_ci95_low", m->au_low},
                {"au_ci95_high", m->au_high},
                {"au_cold", m->au_cold},
                {"au_warm", m->au_warm},
                {"au_target", r->w->metric.au},
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
    json_object_set_new(o, "limiter", json_string(mr_run_limiter(r, text, sizeof text)));
    json_object_set_new(o, "checkpoint", checkpoints(r));
    json_object_set_new(o, "epochs", epochs(m));
    json_object_set_new(o, "per_rank", ranks(r));
    return o;
}

json_t *mr_run_summary_json(const struct run *r)
{
    json_t *root = json_pack("{s:s, s:b}", "schema", "millrace.run/1", "complete", !r->code);
    json_t *metric = json_object();
    put_dlio_top(root, r);
    if (r->w->workflow.train)
        put_dlio_train(metric, r->dlio);
    if (r->w->workflow.evaluation && r->dlio->evals)
        put_dlio_eval(metric, r->dlio);
    put_dlio_checkpoint(metric, r->dlio, r->metrics);
    json_object_set_new(root, "metric", metric);
    json_object_set_new(root, "millrace", ours(r));
    json_object_set_new(root, "trust", mr_run_trust_json(r));
    json_object_set_new(root, "environment", mr_run_environment_json(r));
    json_object_set_new(root, "config", mr_workload_to_json(r->w));
    json_t *notes = mr_cli_strings_json(&r->notes), *more = mr_cli_strings_json(&r->w->notes);
    json_array_extend(notes, more);
    json_decref(more);
    json_object_set_new(root, "notes", notes);
    json_object_set_new(root, "results_folder", json_string(r->out));
    return root;
}

/* ---- the folder ---- */

void mr_run_choose_out(const struct run *r, char *out, size_t cap)
{
    const struct mr_workload *w = r->w;
    char stamp[64];
    struct tm tm;
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &tm);
    if (*r->opt->out || *w->output.folder) {
        snprintf(out, cap, "%s", *r->opt->out ? r->opt->out : w->output.folder);
        return;
    }
    snprintf(out, cap, "results/%s-%s", *w->name ? w->name : "run", stamp);
    for (unsigned i = 2; access(out, F_OK) == 0; i++)
        snprintf(out, cap, "results/%s-%s-%u", *w->name ? w->name : "run", stamp, i);
}

int mr_run_make_out(struct run *r, struct mr_error *err)
{
    struct mr_store *s;
    bool given = *r->opt->out || *r->w->output.folder;
    r->made_out = !given || access(r->out, F_OK) != 0;
    int rc = mr_store_open("posix", &s, err);
    if (rc < 0)
        return rc;
    rc = mr_store_mkdirs(s, given ? r->out : "results", err);
    mr_store_close(s);
    while (rc >= 0 && !given && mkdir(r->out, 0777) != 0) {
        if (errno != EEXIST)
            rc = mr_error_set(err, -errno, "cannot make the folder '%s'", r->out);
        else
            mr_run_choose_out(r, r->out, sizeof r->out); /* another run was quicker */
    }
    if (rc >= 0 && access(r->out, W_OK | X_OK) != 0)
        rc = mr_error_set(err, -errno, "cannot write to the results folder '%s'", r->out);
    if (rc < 0)
        mr_error_hint(err, "choose another folder with --out");
    return rc < 0 ? rc : 0;
}

/* ---- files ---- */

/* Opens NAME.tmp in the results folder. */
static FILE *begin(const struct run *r, const char *name, char tmp[4300], struct mr_error *err)
{
    snprintf(tmp, 4300, "%s/%s.tmp", r->out, name);
    FILE *f = fopen(tmp, "we");
    if (!f)
        mr_error_set(err, -errno, "cannot write '%s'", tmp);
    return f;
}

static int finish(const struct run *r, FILE *f, const char *name, const char *tmp, struct mr_error *err)
{
    char path[4300];
    snprintf(path, sizeof path, "%s/%s", r->out, name);
    errno = 0;
    bool bad = ferror(f) != 0;
    bad |= fflush(f) != 0;
    int code = bad ? errno : 0;
    if (fclose(f) != 0 && !bad) {
        bad = true;
        code = errno;
    }
    if (!bad && rename(tmp, path) == 0)
        return 0;
    code = code ? code : errno ? errno : EIO;
    unlink(tmp);
    return mr_error_set(err, -code, "cannot write '%s'", path);
}

static int write_steps(const struct run *r, const struct mr_rank_series *s, struct mr_error *err)
{
    char name[64], tmp[4300];
    snprintf(name, sizeof name, "rank-%u.steps.csv", s->rank);
    FILE *f = begin(r, name, tmp, err);
    if (!f)
        return err ? err->code : -EIO;
    mr_run_put_steps(f, s->steps, 0, s->n);
    return finish(r, f, name, tmp, err);
}

static int write_checkpoints(const struct run *r, struct mr_error *err)
{
    char tmp[4300];
    FILE *f = begin(r, "checkpoints.csv", tmp, err);
    if (!f)
        return err ? err->code : -EIO;
    fputs("rank,kind,step,start_ns,duration_ns,write_ns,fsync_ns,read_ns,bytes,files,wait_ns,buffered\n", f);
    for (uint32_t k = 0; k < r->board->world; k++)
        for (size_t i = 0; i < r->series[k].n_checkpoints; i++) {
            const struct mr_checkpoint_event *c = &r->series[k].checkpoints[i];
            fprintf(f,
                    "%u,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                    ",%" PRIu64 ",%d\n",
                    k, c->is_load ? "load" : "save", c->step, c->start_ns, c->duration_ns, c->write_ns, c->fsync_ns,
                    c->read_ns, c->bytes, c->files, c->wait_ns, c->buffered);
        }
    return finish(r, f, "checkpoints.csv", tmp, err);
}

static int write_drains(const struct run *r, struct mr_error *err)
{
    char tmp[4300];
    FILE *f = begin(r, "drains.csv", tmp, err);
    if (!f)
        return err ? err->code : -EIO;
    fputs("rank,step,queued_ns,start_ns,duration_ns,bytes,files,failed\n", f);
    for (uint32_t k = 0; k < r->board->world; k++)
        for (size_t i = 0; i < r->series[k].n_drains; i++) {
            const struct mr_drain_event *d = &r->series[k].drains[i];
            fprintf(f, "%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%d\n", k, d->step,
                    d->queued_ns, d->start_ns, d->duration_ns, d->bytes, d->files, d->failed);
        }
    return finish(r, f, "drains.csv", tmp, err);
}

static int write_json(const struct run *r, const char *name, json_t *value, struct mr_error *err)
{
    char tmp[4300];
    FILE *f = value ? begin(r, name, tmp, err) : NULL;
    if (!f) {
        json_decref(value);
        return value && err ? err->code : mr_error_set(err, -ENOMEM, "cannot write '%s'", name);
    }
    int rc = json_dumpf(value, f, JSON_INDENT(2));
    json_decref(value);
    fputc('\n', f);
    (void)rc; /* a failed write shows in the stream */
    return finish(r, f, name, tmp, err);
}

int mr_run_write_summary(const struct run *r, struct mr_error *err)
{
    return write_json(r, "summary.json", mr_run_summary_json(r), err);
}

/* An earlier run in the same folder may have had more ranks, or checkpoints: its series would pass for this one's. */
static void remove_stale(const struct run *r)
{
    char path[4300];
    if (!r->metrics->saves && !r->metrics->loads) {
        snprintf(path, sizeof path, "%s/checkpoints.csv", r->out);
        unlink(path);
    }
    if (!(r->metrics->drain.drains + r->metrics->drain.failed)) {
        snprintf(path, sizeof path, "%s/drains.csv", r->out);
        unlink(path);
    }
    for (uint32_t k = r->board->world;; k++) {
        snprintf(path, sizeof path, "%s/rank-%u.steps.csv", r->out, k);
        if (unlink(path) != 0)
            break;
    }
}

int mr_run_write_results(const struct run *r, struct mr_error *err)
{
    struct mr_store *s;
    int rc = mr_store_open("posix", &s, err);
    if (rc < 0)
        return rc;
    rc = mr_store_mkdirs(s, r->out, err);
    mr_store_close(s);
    if (rc >= 0)
        rc = mr_run_write_summary(r, err); /* first: the most valuable */
    if (rc >= 0)
        rc = write_json(r, "config.json", mr_workload_to_json(r->w), err);
    for (uint32_t k = 0; rc >= 0 && k < r->board->world; k++)
        rc = write_steps(r, &r->series[k], err);
    if (rc >= 0 && (r->metrics->saves || r->metrics->loads))
        rc = write_checkpoints(r, err);
    if (rc >= 0 && r->metrics->drain.drains + r->metrics->drain.failed)
        rc = write_drains(r, err);
    if (rc >= 0)
        remove_stale(r);
    return rc < 0 ? rc : 0;
}
