/* CSV and OpenMetrics of an explanation: see report_csv.h. */
#include "report/report_csv.h"
#include "base/common.h"
#include "report/out_stream.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *const time_key[] = {
#define KEY(name, key, text) key,
    MR_TIME_CLASSES(KEY)
#undef KEY
};
static const char *const stall_key[] = {
#define KEY(name, key, text) key,
    MR_STALL_CAUSES(KEY)
#undef KEY
};

/* ---- cells: each begins with its comma ---- */

static void put_seconds(struct mr_out *o, uint64_t ns)
{
    if (ns == MR_TIME_UNKNOWN)
        mr_out_text(o, ",");
    else
        mr_out_format(o, ",%.9f", (double)ns / 1e9);
}

static void put_count(struct mr_out *o, uint64_t n)
{
    mr_out_text(o, ",");
    if (n != MR_TIME_UNKNOWN)
        mr_out_number(o, n);
}

static void put_real(struct mr_out *o, double v)
{
    mr_out_text(o, ",");
    if (isfinite(v))
        mr_out_format(o, "%.9g", v);
}

static void put_heads(struct mr_out *o, const char *prefix, const char *const *key, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        mr_out_format(o, ",%s%s_s", prefix, key[i]);
}

static void put_times(struct mr_out *o, const uint64_t *ns, const uint64_t *stall)
{
    for (unsigned c = 0; c < MR_TIME_CLASS_COUNT; c++)
        put_seconds(o, ns[c]);
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        put_seconds(o, stall[c]);
}

/* ---- tables ---- */

static void put_steps(struct mr_out *o, const struct mr_explanation *x)
{
    mr_out_text(o, "rank,epoch,step,batch,start_s,end_s");
    put_heads(o, "", time_key, MR_TIME_CLASS_COUNT);
    put_heads(o, "stall_", stall_key, MR_STALL_CAUSE_COUNT);
    mr_out_text(o, ",accelerator_idle_s,read_bytes,worker,phase\n");
    for (size_t i = 0; i < x->steps; i++) {
        const struct mr_explain_step *s = &x->step[i];
        mr_out_format(o, "%d,%u,%llu", x->rank[s->rank].rank, s->epoch, (unsigned long long)s->step);
        put_count(o, s->batch);
        put_seconds(o, s->start_ns);
        put_seconds(o, s->end_ns);
        put_times(o, s->ns, s->stall);
        put_seconds(o, s->accelerator_idle_ns);
        put_count(o, s->bytes);
        mr_out_text(o, ",");
        if (s->worker < x->workers)
            mr_out_csv(o, x->worker[s->worker].label, strlen(x->worker[s->worker].label));
        mr_out_text(o, s->phase == MR_EXPLAIN_EVAL ? ",eval\n" : ",train\n");
    }
}

static void put_ranks(struct mr_out *o, const struct mr_explanation *x)
{
    mr_out_text(o, "rank,host,start_s,end_s,training_s");
    put_heads(o, "", time_key, MR_TIME_CLASS_COUNT);
    put_heads(o, "stall_", stall_key, MR_STALL_CAUSE_COUNT);
    mr_out_text(o, ",steps,samples,read_bytes,written_bytes,read_calls,write_calls,metadata_calls,io_s\n");
    for (size_t i = 0; i < x->ranks; i++) {
        const struct mr_explain_rank *r = &x->rank[i];
        mr_out_format(o, "%d,", r->rank);
        mr_out_csv(o, r->host ? r->host : "", r->host ? strlen(r->host) : 0);
        put_seconds(o, r->start_ns);
        put_seconds(o, r->end_ns);
        put_seconds(o, r->train_ns);
        put_times(o, r->ns, r->stall);
        put_count(o, r->steps);
        put_count(o, r->samples);
        put_count(o, r->read_bytes);
        put_count(o, r->written_bytes);
        put_count(o, r->read_calls);
        put_count(o, r->write_calls);
        put_count(o, r->metadata_calls);
        put_seconds(o, r->io_ns);
        mr_out_text(o, "\n");
    }
}

static void put_files(struct mr_out *o, const struct mr_explanation *x)
{
    mr_out_text(o, "path,file_system,read_bytes,written_bytes,unique_bytes,reads,writes,opens,time_s,ranks,pattern\n");
    for (size_t i = 0; i < x->files; i++) {
        const struct mr_explain_file *f = &x->file[i];
        mr_out_csv(o, f->path, strlen(f->path));
        mr_out_text(o, ",");
        if (f->fs)
            mr_out_csv(o, f->fs, strlen(f->fs));
        put_count(o, f->read_bytes);
        put_count(o, f->written_bytes);
        put_count(o, f->unique_bytes);
        put_count(o, f->reads);
        put_count(o, f->writes);
        put_count(o, f->opens);
        put_seconds(o, f->dur_ns);
        put_count(o, f->ranks);
        mr_out_format(o, ",%s\n", mr_access_pattern_name((enum mr_access_pattern)f->pattern));
    }
}

static void put_timeline(struct mr_out *o, const struct mr_explanation *x)
{
    const struct mr_explain_timeline *t = &x->timeline;
    double bin_s = (double)t->bin_ns / 1e9;
    mr_out_text(o, "start_s,read_bytes_per_s,written_bytes_per_s,reads_in_flight,stall_share,compute_share,"
                   "checkpoint_share,ready_batches\n");
    for (uint32_t b = 0; b < t->bins; b++) {
        mr_out_format(o, "%.9f", b * bin_s);
        put_real(o, t->read_bytes ? t->read_bytes[b] / bin_s : NAN);
        put_real(o, t->written_bytes ? t->written_bytes[b] / bin_s : NAN);
        put_real(o, t->in_flight ? t->in_flight[b] : NAN);
        put_real(o, t->stall && x->facts.has_steps ? t->stall[b] : NAN);
        put_real(o, t->compute && x->facts.has_steps ? t->compute[b] : NAN);
        put_real(o, t->checkpoint && x->facts.has_steps ? t->checkpoint[b] : NAN);
        put_real(o, t->ready ? t->ready[b] : NAN);
        mr_out_text(o, "\n");
    }
}

/* ---- OpenMetrics ---- */

static void put_gauge(struct mr_out *o, const char *name, const char *unit, const char *help, double v)
{
    if (!isfinite(v))
        return;
    mr_out_format(o, "# TYPE millrace_%s gauge\n", name);
    if (*unit)
        mr_out_format(o, "# UNIT millrace_%s %s\n", name, unit);
    mr_out_format(o, "# HELP millrace_%s %s\nmillrace_%s %.9g\n", name, help, name, v);
}

static void put_family(struct mr_out *o, const char *name, const char *help, const char *label, const char *const *key,
                       const uint64_t *ns, unsigned n)
{
    mr_out_format(
        o, "# TYPE millrace_%s_seconds gauge\n# UNIT millrace_%s_seconds seconds\n# HELP millrace_%s_seconds %s\n",
        name, name, name, help);
    for (unsigned i = 0; i < n; i++)
        if (ns[i] != MR_TIME_UNKNOWN)
            mr_out_format(o, "millrace_%s_seconds{%s=\"%s\"} %.9f\n", name, label, key[i], (double)ns[i] / 1e9);
}

static void put_metrics(struct mr_out *o, const struct mr_explanation *x)
{
    unsigned count[4] = {0};
    put_gauge(o, "duration_seconds", "seconds", "First event to last.", (double)x->duration_ns / 1e9);
    if (x->facts.has_steps) {
        put_gauge(o, "stall_share", "", "Share of the training time that waited for data.", x->verdict.stall_share);
        put_family(o, "time", "Where the time went, mean over ranks.", "class", time_key, x->ns, MR_TIME_CLASS_COUNT);
        put_family(o, "stall", "Why training waited for data, mean over ranks.", "cause", stall_key, x->stall,
                   MR_STALL_CAUSE_COUNT);
    }
    put_gauge(o, "accelerator_utilisation", "", "AU: compute of the steps / their length.", x->facts.au);
    put_gauge(o, "samples_per_second", "", "Throughput.", x->facts.samples_per_s);
    put_gauge(o, "step_p99_seconds", "seconds", "99th percentile of the steps.", x->facts.step_p99_s);
    put_gauge(o, "stall_p99_seconds", "seconds", "99th percentile of the waits.", x->facts.stall_p99_s);
    put_gauge(o, "read_bytes", "bytes", "Read from data files.", x->facts.read_bytes);
    put_gauge(o, "lost_events", "", "Events that the trace lacks.", (double)(x->trust.lost + x->trust.gone));
    for (size_t i = 0; i < x->findings; i++)
        count[MR_MIN(x->finding[i].severity, 3)]++;
    mr_out_text(o, "# TYPE millrace_findings gauge\n# HELP millrace_findings Findings of the advisor.\n");
    for (unsigned s = 0; s < 4; s++)
        mr_out_format(o, "millrace_findings{severity=\"%s\"} %u\n", mr_severity_name((enum mr_severity)s), count[s]);
    mr_out_text(o, "# EOF\n");
}

/* ---- the folder ---- */

int mr_report_csv(const char *folder, const struct mr_explanation *x, struct mr_error *err)
{
    static const struct {
        const char *name;
        void (*put)(struct mr_out *o, const struct mr_explanation *x);
    } files[] = {{"steps.csv", put_steps},
                 {"ranks.csv", put_ranks},
                 {"files.csv", put_files},
                 {"timeline.csv", put_timeline},
                 {"metrics.txt", put_metrics}};
    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return mr_error_set(err, -errno, "cannot make the folder '%s'", folder);
    for (size_t i = 0; i < MR_ARRAY_LEN(files); i++) {
        char path[4300];
        struct mr_out o;
        if (snprintf(path, sizeof path, "%s/%s", folder, files[i].name) >= (int)sizeof path)
            return mr_error_set(err, -ENAMETOOLONG, "cannot write into '%s'", folder);
        int rc = mr_out_open(&o, path, false, err);
        if (rc)
            return rc;
        files[i].put(&o, x);
        rc = mr_out_close(&o, err);
        if (rc)
            return rc;
    }
    return 0;
}
