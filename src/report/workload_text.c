/* A workload and its plan as text and JSON. */
#include "report/workload_text.h"

#include "base/common.h"
#include "base/strbuf.h"
#include "base/text_escape.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void mr_report_line(struct mr_strbuf *o, const char *before, const char *first, const char *between, const char *second,
                    const char *after)
{
    mr_strbuf_puts(o, before);
    mr_strbuf_text(o, first);
    mr_strbuf_puts(o, between);
    mr_strbuf_text(o, second);
    mr_strbuf_puts(o, after);
    mr_strbuf_putc(o, '\n');
}

void mr_report_config(const struct mr_workload *w, bool all, struct mr_strbuf *o)
{
    for (int s = 0; mr_workload_sections[s].table; s++) {
        const struct mr_option_table *t = mr_workload_sections[s].table;
        const void *obj = (const char *)w + mr_workload_sections[s].offset;
        for (const struct mr_option *k = t->options; k->key; k++) {
            const struct mr_value_origin *v = &w->origins[s][k - t->options];
            char path[128], value[512], shown[2049], origin[4200];
            if (!all && v->kind == MR_ORIGIN_DEFAULT)
                continue;
            snprintf(path, sizeof path, "%s%s%s", t->section, *t->section ? "." : "", k->key);
            mr_workload_value_text(k, obj, value, sizeof value);
            mr_workload_origin_text(v, origin, sizeof origin);
            mr_strbuf_printf(o, "  %-46s = %-24s # ", path,
                             *value ? mr_text_escape(value, shown, sizeof shown) : "\"\"");
            mr_strbuf_text(o, origin);
            mr_strbuf_putc(o, '\n');
        }
    }
}

static void row(struct mr_strbuf *o, const char *name, const char *fmt, ...) MR_PRINTF(3, 4);
static void row(struct mr_strbuf *o, const char *name, const char *fmt, ...)
{
    va_list ap;
    mr_strbuf_printf(o, "  %-28s ", name);
    va_start(ap, fmt);
    mr_strbuf_vprintf(o, fmt, ap);
    va_end(ap);
    mr_strbuf_putc(o, '\n');
}

static void row_bytes(struct mr_strbuf *o, const char *name, double bytes)
{
    char human[MR_HUMAN_LEN], count[MR_HUMAN_LEN];
    row(o, name, "%s (%s)", mr_human_count((unsigned long long)(bytes + 0.5), count), mr_human_bytes(bytes, human));
}

static void row_count(struct mr_strbuf *o, const char *name, uint64_t n)
{
    char human[MR_HUMAN_LEN];
    row(o, name, "%s", mr_human_count(n, human));
}

static void row_need(struct mr_strbuf *o, const char *name, double mb_per_s)
{
    row(o, name, "%.*f MB/s", mb_per_s < 10 ? 3 : 1, mb_per_s);
}

static void print_data(struct mr_strbuf *o, const struct mr_workload *w, const struct mr_workload_plan *p)
{
    row(o, "format", "%s", mr_conf_format_name((enum mr_conf_format)w->dataset.format));
    row_count(o, "train files", p->train_files);
    row_count(o, "train samples", p->train_samples);
    if (p->eval_files) {
        row_count(o, "eval files", p->eval_files);
        row_count(o, "eval samples", p->eval_samples);
    }
    char record[MR_HUMAN_LEN];
    if (p->record_bytes == floor(p->record_bytes))
        row(o, "record bytes (mean)", "%s", mr_human_count((unsigned long long)p->record_bytes, record));
    else
        row(o, "record bytes (mean)", "%.15g", p->record_bytes);
    if (p->read_bytes != p->record_bytes)
        row(o, "bytes read of a record", "%s", mr_human_count((unsigned long long)p->read_bytes, record));
    row_bytes(o, "data set bytes", p->train_bytes + p->eval_bytes);
}

static void print_steps(struct mr_strbuf *o, const struct mr_workload *w, const struct mr_workload_plan *p)
{
    char human[MR_HUMAN_LEN];
    const char *order = mr_workload_order_name(w);
    row(o, "access order", "%s", strcmp(order, "auto") ? order : "auto (torch; cipher above 100 million samples)");
    row_count(o, "steps per epoch (each rank)", p->steps_per_epoch);
    row_count(o, "total steps (each rank)", p->total_steps);
    if (p->samples_left_out)
        row(o, "samples left out", "%s per epoch (incomplete batches; reader.drop_last)",
            mr_human_count(p->samples_left_out, human));
    row(o, "compute per step", "%.9g s", p->compute_s);
    if (p->need_bytes_per_s > 0) {
        row_need(o, "need per accelerator", p->need_bytes_per_s / 1e6);
        if (p->ranks > 1)
            row_need(o, "need of all ranks", p->need_bytes_per_s * p->ranks / 1e6);
    } else {
        row(o, "need per accelerator", "as fast as the storage can (compute time is 0)");
    }
    if (p->evaluations)
        row(o, "evaluations", "%llu of %llu %s", (unsigned long long)p->evaluations, (unsigned long long)p->eval_steps,
            mr_plural(p->eval_steps, "step", "steps"));
}

static void print_checkpoint(struct mr_strbuf *o, const struct mr_workload_plan *p)
{
    const struct mr_plan_checkpoint *c = &p->checkpoint;
    if (c->parameters)
        row_count(o, "model parameters", c->parameters);
    row_bytes(o, "checkpoint model bytes", c->model_bytes);
    if (c->optimizer_bytes > 0)
        row_bytes(o, "checkpoint optimizer bytes", c->optimizer_bytes);
    row_bytes(o, "checkpoint bytes", c->model_bytes + c->optimizer_bytes);
    row(o, "checkpoint files", "%llu (%llu model, %llu optimizer)",
        (unsigned long long)c->model_files + c->optimizer_files, (unsigned long long)c->model_files,
        (unsigned long long)c->optimizer_files);
    row(o, "checkpoints", "%llu written, %llu read", (unsigned long long)c->writes, (unsigned long long)c->reads);
}

void mr_report_plan(const struct mr_workload *w, const struct mr_workload_plan *p, struct mr_strbuf *o)
{
    char human[MR_HUMAN_LEN];
    row(o, "ranks", "%u", p->ranks);
    if (p->train_files || p->eval_files)
        print_data(o, w, p);
    if (w->workflow.train)
        print_steps(o, w, p);
    if (w->workflow.checkpoint)
        print_checkpoint(o, p);
    double s = p->train_s + p->eval_s + p->pause_s;
    row(o, "duration, at least", "%.9g s (%s; compute %.9g s, evaluation %.9g s, pauses %.9g s)", s,
        mr_human_ns(s * 1e9, human), p->train_s, p->eval_s, p->pause_s);
}

static json_t *expect_json(const struct mr_workload_extra *x)
{
    static const char *const classes[] = {"exact", "shaped", "native"};
    json_t *list = json_array();
    for (unsigned i = 0; i < x->n_expect; i++) {
        const struct mr_expectation *e = &x->expect[i];
        json_t *j = json_pack("{s:s, s:s, s:f}", "metric", e->metric, "class", classes[e->cls], "tolerance", e->tol);
        if (!isnan(e->eq))
            json_object_set_new(j, "eq", json_real(e->eq));
        if (!isnan(e->ge))
            json_object_set_new(j, "ge", json_real(e->ge));
        if (!isnan(e->le))
            json_object_set_new(j, "le", json_real(e->le));
        json_array_append_new(list, j);
    }
    return list;
}

json_t *mr_report_workload_json(const struct mr_workload *w)
{
    const struct mr_workload_extra *x = &w->extra;
    json_t *file = json_string(w->file), *name = json_string(w->name);
    return json_pack("{s:o, s:o, s:s, s:s, s:i, s:f, s:o, s:o, s:o}", "name", name ? name : json_null(), "file",
                     file ? file : json_null(), "source", x->source, "storage_model", x->storage_model, "ranks",
                     (int)x->ranks, "scale", x->scale, "scale_keep", mr_strings_to_json(&x->scale_keep), "expect",
                     expect_json(x), "preset_notes", mr_strings_to_json(&x->notes));
}

static json_t *checkpoint_json(const struct mr_plan_checkpoint *c)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "model_parameters", (json_int_t)c->parameters,
                     "model_bytes", (json_int_t)c->model_bytes, "optimizer_bytes", (json_int_t)c->optimizer_bytes,
                     "model_files", (json_int_t)c->model_files, "optimizer_files", (json_int_t)c->optimizer_files,
                     "checkpoints_written", (json_int_t)c->writes, "checkpoints_read", (json_int_t)c->reads);
}

json_t *mr_report_plan_json(const struct mr_workload *w, const struct mr_workload_plan *p)
{
    json_t *j = json_pack(
        "{s:i, s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "ranks",
        (int)p->ranks, "format", mr_conf_format_name((enum mr_conf_format)w->dataset.format), "train_files",
        (json_int_t)p->train_files, "eval_files", (json_int_t)p->eval_files, "train_samples",
        (json_int_t)p->train_samples, "eval_samples", (json_int_t)p->eval_samples, "record_bytes_mean", p->record_bytes,
        "dataset_bytes", (json_int_t)llround(p->train_bytes + p->eval_bytes), "steps_per_epoch",
        (json_int_t)p->steps_per_epoch, "total_steps", (json_int_t)p->total_steps, "samples_left_out_per_epoch",
        (json_int_t)p->samples_left_out, "eval_steps", (json_int_t)p->eval_steps, "evaluations",
        (json_int_t)p->evaluations, "compute_per_step_s", p->compute_s, "need_per_accelerator_bytes_per_s",
        p->need_bytes_per_s, "duration_at_least_s", p->train_s + p->eval_s + p->pause_s, "compute_s", p->train_s,
        "evaluation_s", p->eval_s, "pauses_s", p->pause_s);
    if (j && p->read_bytes != p->record_bytes)
        json_object_set_new(j, "read_bytes_of_record", json_real(p->read_bytes));
    if (j && w->workflow.train)
        json_object_set_new(j, "access_order", json_string(mr_workload_order_name(w)));
    if (j && w->workflow.checkpoint)
        json_object_set_new(j, "checkpoint", checkpoint_json(&p->checkpoint));
    return j;
}
