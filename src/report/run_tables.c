/* The table of a sweep or a search, and a prediction, as text and JSON. */
#include "base/common.h"
#include "base/strbuf.h"
#include "report/run_text.h"

#include <math.h>
#include <string.h>

/* ---- searches ---- */

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static const char *const verdict_names[] = {"", "pass", "fail", "none"};

static json_t *point_json(const struct mr_job_point *p)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "value",
                     p->value, "ranks", real(p->ranks), "au", real(p->au), "samples_per_s", real(p->samples_per_s),
                     "read_bytes_per_s", real(p->read_bytes_per_s), "stall_p99_s", real(p->stall_p99_s),
                     "data_stall_share", real(p->data_share), "duration_s", real(p->duration_s), "complete", 1,
                     "limiter", p->limiter, "results_folder", p->out, "verdict", verdict_names[p->verdict],
                     "no_verdict_because", p->because, "steps", (json_int_t)p->steps, "samples", (json_int_t)p->samples,
                     "sample_bytes", (json_int_t)p->sample_bytes, "read_bytes", (json_int_t)p->read_bytes);
}

static json_t *spread_json(const struct mr_job_spread *s)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "median", real(s->median), "low", real(s->low), "high", real(s->high),
                     "confidence", real(s->confidence));
}

static void put_repeats(json_t *point, const struct mr_job_search *s, size_t i)
{
    const struct mr_job_repeats *r = &s->repeats[i];
    json_t *runs = json_array();
    for (unsigned k = 0; k < s->repeat; k++)
        if (s->runs[k * s->n + i].measured)
            json_array_append_new(runs, point_json(&s->runs[k * s->n + i]));
    json_object_set_new(point, "au_spread", spread_json(&r->au));
    json_object_set_new(point, "samples_per_s_spread", spread_json(&r->samples_per_s));
    json_object_set_new(point, "same_work", json_boolean(r->same_work));
    json_object_set_new(point, "other_work", json_string(r->other_work));
    json_object_set_new(point, "repeats", runs);
}

static json_t *points_json(const struct mr_job_search *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n; i++) {
        json_t *point = s->points[i].measured ? point_json(&s->points[i]) : NULL;
        if (point && s->runs)
            put_repeats(point, s, i);
        if (point)
            json_array_append_new(list, point);
    }
    return list;
}

/* Why the first point that has none has no verdict; the others have theirs in their summaries. */
static void print_doubt(struct mr_strbuf *o, const struct mr_job_search *s)
{
    for (const struct mr_job_point *p = s->points; p < s->points + s->n; p++)
        if (p->measured && p->verdict == MR_JOB_NO_VERDICT) {
            mr_strbuf_printf(o, "%s%sno verdict, because %s\n", p->value, *p->value ? ": " : "", p->because);
            return;
        }
}

/* Medians and intervals in place of the columns that say why. */
static void print_repeats(struct mr_strbuf *o, const struct mr_job_search *s, int width)
{
    char rate[MR_HUMAN_LEN];
    double confidence = 1;
    const struct mr_job_repeats *other = NULL;
    mr_strbuf_printf(o, "%-*s %6s %7s %8s %17s %7s %12s %25s %12s\n", width, s->keys, "RANKS", "REPEATS", "AU %",
                     "INTERVAL", "TARGET", "SAMPLES/s", "INTERVAL", "READ");
    for (size_t i = 0; i < s->n; i++) {
        const struct mr_job_point *p = &s->points[i];
        const struct mr_job_repeats *r = &s->repeats[i];
        char au[64], samples[64];
        if (!p->measured)
            continue;
        snprintf(au, sizeof au, "%.2f .. %.2f", 100 * r->au.low, 100 * r->au.high);
        snprintf(samples, sizeof samples, "%.1f .. %.1f", r->samples_per_s.low, r->samples_per_s.high);
        mr_strbuf_printf(o, "%-*s %6.0f %7zu %8.2f %17s %7s %12.1f %25s %12s\n", width, p->value, p->ranks, r->n,
                         100 * p->au, au, verdict_names[p->verdict], p->samples_per_s, samples,
                         mr_human_rate(p->read_bytes_per_s, rate));
        confidence = fmin(confidence, r->samples_per_s.confidence);
        other = other || r->same_work ? other : r;
    }
    mr_strbuf_printf(o, "medians; an interval holds the true median with %.0f %%\n%s\n", 100 * confidence,
                     other ? other->other_work : "every repeat did the same work");
}

static void print_points(struct mr_strbuf *o, const struct mr_job_search *s)
{
    char rate[MR_HUMAN_LEN], stall[MR_HUMAN_LEN];
    int width = (int)MR_MAX(strlen(s->keys), 20u);
    for (size_t i = 0; i < s->n; i++)
        width = MR_MAX(width, (int)strlen(s->points[i].value));
    if (s->runs) {
        print_repeats(o, s, width);
        print_doubt(o, s);
        return;
    }
    mr_strbuf_printf(o, "%-*s %6s %8s %7s %12s %12s %10s %8s\n", width, s->keys, "RANKS", "AU %", "TARGET", "SAMPLES/s",
                     "READ", "STALL p99", "DATA %");
    for (const struct mr_job_point *p = s->points; p < s->points + s->n; p++)
        if (p->measured)
            mr_strbuf_printf(o, "%-*s %6.0f %8.2f %7s %12.1f %12s %10s %8.2f\n", width, p->value, p->ranks, 100 * p->au,
                             verdict_names[p->verdict], p->samples_per_s, mr_human_rate(p->read_bytes_per_s, rate),
                             mr_human_ns(p->stall_p99_s * 1e9, stall), 100 * p->data_share);
    print_doubt(o, s);
}

static void print_most(struct mr_strbuf *o, const struct mr_job_search *s, bool whole, double au)
{
    const char *limit = "; this is as far as was searched (--max-ranks, or the size of the data set)";
    if (!whole)
        mr_strbuf_puts(o, "INCOMPLETE: the search was not finished\n");
    if (s->best == 0)
        mr_strbuf_printf(o, "not even one accelerator stays busy %.0f %% of the time; limited by %s\n", 100 * au,
                         s->n ? s->points[0].limiter : "");
    else
        mr_strbuf_printf(o, "%llu accelerator%s stay%s busy %.0f %% of the time%s\n", (unsigned long long)s->best,
                         s->best == 1 ? "" : "s", s->best == 1 ? "s" : "", 100 * au,
                         s->best == s->limit ? limit
                         : !whole            ? ", at least"
                                             : "");
}

json_t *mr_report_search_json(const struct mr_job *j, const struct mr_job_search *s, bool find_max, bool whole)
{
    double au = j->w->metric.au;
    if (find_max)
        return json_pack("{s:s, s:b, s:I, s:b, s:f, s:o}", "schema", "millrace.find_max/1", "complete", whole,
                         "max_accelerators", (json_int_t)s->best, "at_limit", s->best == s->limit, "au_target", au,
                         "points", points_json(s));
    return json_pack("{s:s, s:b, s:s, s:i, s:f, s:o}", "schema", "millrace.sweep/1", "complete", whole, "key", s->keys,
                     "repeat", (int)s->repeat, "au_target", au, "points", points_json(s));
}

void mr_report_search(const struct mr_job *j, const struct mr_job_search *s, bool find_max, bool whole,
                      struct mr_strbuf *o)
{
    if (find_max)
        print_most(o, s, whole, j->w->metric.au);
    print_points(o, s);
    mr_strbuf_printf(o, "results in %s\n", s->out);
}

/* ---- predictions ---- */

static json_t *checkpoint_json(const struct mr_job_checkpoints *c)
{
    return json_pack("{s:I, s:I, s:i, s:I, s:f, s:f, s:f, s:f, s:s?, s:f, s:f}", "saves", (json_int_t)c->writes,
                     "loads", (json_int_t)c->reads, "writers", (int)c->writers, "files", (json_int_t)c->files, "bytes",
                     c->bytes, "save_s", c->save_s, "load_s", c->load_s, "total_s", c->total_s, "engine", c->engine,
                     "durable_s", c->durable_s, "tail_s", c->tail_s);
}

static void print_checkpoint(struct mr_strbuf *o, const struct mr_job_checkpoints *c)
{
    char size[MR_HUMAN_LEN];
    if (c->writes + c->reads)
        mr_strbuf_printf(
            o,
            "  checkpoints   %s by %u rank%s: %llu written in %.2f s each, %llu read in %.2f s each; %.2f s in all\n",
            mr_human_bytes(c->bytes, size), c->writers, c->writers == 1 ? "" : "s", (unsigned long long)c->writes,
            c->save_s, (unsigned long long)c->reads, c->load_s, c->total_s);
    if (c->writes && c->durable_s > c->save_s)
        mr_strbuf_printf(
            o, "                written behind: durable after %.2f s each; %.2f s of the end wait for the last\n",
            c->durable_s, c->tail_s);
}

static void print_checkpoints_only(struct mr_strbuf *o, const struct mr_job *j, const struct mr_job_prediction *p)
{
    mr_strbuf_printf(o, "SIMULATED: %.2f s for the checkpoints of %u %s on model '%s'\n", p->duration_s, j->plan.ranks,
                     mr_plural(j->plan.ranks, "rank", "ranks"), p->system.name);
    print_checkpoint(o, &p->ckpt);
    if (j->plan.pause_s > 0)
        mr_strbuf_printf(o, "  pauses        %.2f s\n", j->plan.pause_s);
}

json_t *mr_report_prediction_json(const struct mr_job *j, const struct mr_job_prediction *p)
{
    const struct mr_job_played *t = &p->train;
    if (!j->w->workflow.train)
        return json_pack("{s:s, s:b, s:s, s:s, s:i, s:f, s:o}", "schema", "millrace.virtual_run/1", "simulated", 1,
                         "workload", j->w->name, "system", p->system.name, "ranks", (int)j->plan.ranks, "duration_s",
                         p->duration_s, "checkpoint", checkpoint_json(&p->ckpt));
    json_t *root =
        json_pack("{s:s, s:b, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "schema",
                  "millrace.virtual_run/1", "simulated", 1, "workload", j->w->name, "system", p->system.name, "policy",
                  p->policy, "ranks", (int)j->plan.ranks, "au", p->au, "au_target", j->w->metric.au, "duration_s",
                  p->duration_s, "stall_s", p->stall_s, "first_epoch_s", t->first_epoch_s, "samples_per_s",
                  p->samples_per_s, "read_bytes", t->read_bytes, "compute_only_s", t->compute_s, "training_s",
                  t->time_s, "preload_s", p->preload_s, "checkpoint", checkpoint_json(&p->ckpt));
    json_object_set_new(root, "confidence",
                        json_pack("{s:o, s:o, s:o, s:b, s:s?}", "rates_spread",
                                  real(p->system.pfs_spread > 0 ? p->system.pfs_spread : NAN), "au_low",
                                  real(p->au_low), "au_high", real(p->au_high), "rates_of_other_reads",
                                  (int)p->other_reads, "rates_leave_out", p->missing));
    json_object_set_new(root, "evaluation",
                        json_pack("{s:I, s:I, s:f, s:f, s:f}", "evaluations", (json_int_t)j->plan.evaluations, "steps",
                                  (json_int_t)j->plan.eval_steps, "read_bytes", p->eval.read_bytes, "once_s",
                                  p->eval.time_s, "total_s", p->eval_s));
    return root;
}

/* How far to believe it: the ends of what the model's rates were when they were measured. */
static void print_confidence(struct mr_strbuf *o, const struct mr_job_prediction *p)
{
    if (isnan(p->au_low))
        mr_strbuf_puts(o, "  confidence    unknown: the model does not say how far its rates spread");
    else
        mr_strbuf_printf(o, "  confidence    the measured rates spread by %.0f %%: AU between %.1f and %.1f %%",
                         100 * p->system.pfs_spread, 100 * p->au_low, 100 * p->au_high);
    if (p->missing)
        mr_strbuf_printf(o, "; %s", p->missing);
    mr_strbuf_printf(o, "%s\n",
                     p->other_reads ? "; they are of direct reads, and this run reads through the page cache" : "");
}

/* PASS and FAIL only where the whole range is on one side. */
static const char *foretell(const struct mr_job *j, const struct mr_job_prediction *p)
{
    double target = j->w->metric.au;
    if (!isnan(p->au_low) && p->au_low < target && p->au_high >= target)
        return "no verdict, because the spread of the model's rates has both";
    return p->au >= target ? "PASS" : "FAIL";
}

static void print_training(struct mr_strbuf *o, const struct mr_job *j, const struct mr_job_prediction *p)
{
    const struct mr_job_played *t = &p->train;
    char rate[MR_HUMAN_LEN], size[MR_HUMAN_LEN];
    mr_strbuf_printf(o, "  duration      %.2f s, of which the first epoch %.2f s; compute alone %.2f s\n",
                     p->duration_s, t->first_epoch_s, t->compute_s);
    if (p->preload_s > 0)
        mr_strbuf_printf(o, "  preload       %.2f s to read the whole set on every rank\n", p->preload_s);
    if (j->plan.evaluations)
        mr_strbuf_printf(o, "  evaluation    %llu of %llu steps in %.2f s each; %.2f s in all\n",
                         (unsigned long long)j->plan.evaluations, (unsigned long long)j->plan.eval_steps,
                         p->eval.time_s, p->eval_s);
    print_checkpoint(o, &p->ckpt);
    mr_strbuf_printf(o, "  stall         %.2f s (%.1f %%)\n", p->stall_s, 100 * p->stall_s / fmax(t->time_s, 1e-9));
    mr_strbuf_printf(o, "  throughput    %.1f samples/s, %s read in all, %s\n", p->samples_per_s,
                     mr_human_bytes(t->read_bytes, size),
                     mr_human_rate(t->read_bytes / fmax(t->time_s + p->preload_s, 1e-9), rate));
}

void mr_report_prediction(const struct mr_job *j, const struct mr_job_prediction *p, struct mr_strbuf *o)
{
    if (!j->w->workflow.train) {
        print_checkpoints_only(o, j, p);
        return;
    }
    mr_strbuf_printf(o, "SIMULATED: AU %.1f %% (target %.0f %%): %s; %s\n", 100 * p->au, 100 * j->w->metric.au,
                     foretell(j, p),
                     p->stall_s > 0.05 * p->train.time_s ? "limited by storage" : "storage is not the limit");
    mr_strbuf_printf(o, "  workload      %s: %u rank%s x batch %lld on model '%s', policy %s\n",
                     *j->w->name ? j->w->name : "(defaults)", j->plan.ranks, j->plan.ranks == 1 ? "" : "s",
                     (long long)j->w->reader.batch_size, p->system.name, p->policy);
    print_training(o, j, p);
    print_confidence(o, p);
    mr_strbuf_printf(o, "  not simulated: decoding beyond reader.preprocess_time, the spread of compute times%s\n",
                     j->w->pattern.unit == MR_CONF_UNIT_SAMPLE ? "" : ", the calls of the access pattern");
}
