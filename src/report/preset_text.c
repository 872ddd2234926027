/* Presets and their checks as text and JSON: see preset_text.h. */
#include "report/preset_text.h"
#include "base/common.h"
#include "base/text_escape.h"

#include <math.h>
#include <string.h>

/* ---- list ---- */

void mr_report_preset_heads(int name_width, struct mr_strbuf *o)
{
    mr_strbuf_printf(o, "%-*s %-20s %13s %11s %6s %12s  %s\n", name_width, "NAME", "FORMAT", "SAMPLES", "SIZE", "BATCH",
                     "COMPUTE", "SOURCE");
}

json_t *mr_report_preset_json(const struct mr_workload *w, const struct mr_workload_plan *p)
{
    struct mr_error why;
    bool supported = mr_workload_check_supported(w, &why) == 0;
    json_t *j =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:I, s:s, s:b}", "name", w->name, "format",
                  mr_conf_format_name((enum mr_conf_format)w->dataset.format), "samples", (json_int_t)p->train_samples,
                  "dataset_bytes", (json_int_t)llround(p->train_bytes + p->eval_bytes), "batch_size",
                  (json_int_t)w->reader.batch_size, "compute_per_step_s", p->compute_s, "checkpoint_bytes",
                  (json_int_t)llround(p->checkpoint.model_bytes + p->checkpoint.optimizer_bytes), "source",
                  w->extra.source, "supported", (int)supported);
    if (j && !supported)
        json_object_set_new(j, "why_not", json_string(why.message));
    return j;
}

void mr_report_preset(const struct mr_workload *w, const struct mr_workload_plan *p, int name_width,
                      struct mr_strbuf *o)
{
    char samples[MR_HUMAN_LEN] = "-", size[MR_HUMAN_LEN] = "-", batch[24] = "-", compute[32] = "-", name[1025];
    bool data = p->train_samples > 0;
    if (data) {
        mr_human_count(p->train_samples, samples);
        mr_human_bytes(p->train_bytes + p->eval_bytes, size);
        snprintf(batch, sizeof batch, "%lld", (long long)w->reader.batch_size);
        snprintf(compute, sizeof compute, "%.6g s", p->compute_s);
    } else if (w->workflow.checkpoint) {
        mr_human_bytes(p->checkpoint.model_bytes + p->checkpoint.optimizer_bytes, size);
    }
    mr_strbuf_printf(o, "%-*s %-20s %13s %11s %6s %12s  ", name_width, mr_text_escape(w->name, name, sizeof name),
                     data ? mr_conf_format_name((enum mr_conf_format)w->dataset.format) : "(checkpoint)", samples, size,
                     batch, compute);
    mr_strbuf_text(o, w->extra.source);
    mr_strbuf_putc(o, '\n');
}

/* ---- expectations ---- */

static const char *const classes[] = {"exact", "shaped", "native"};

/* "= 0.07 +- 20 %", ">= 0.98" */
static const char *target_text(const struct mr_expectation *e, char *out, size_t cap)
{
    int n = 0;
    const struct {
        const char *sign;
        double value;
    } parts[] = {{"= ", e->eq}, {">= ", e->ge}, {"<= ", e->le}};
    *out = '\0';
    for (unsigned i = 0; i < 3; i++)
        if (!isnan(parts[i].value) && n < (int)cap)
            n += snprintf(out + n, cap - (size_t)n, "%s%s%.10g", n ? " " : "", parts[i].sign, parts[i].value);
    if (e->tol > 0 && n < (int)cap)
        snprintf(out + n, cap - (size_t)n, " +- %.4g %%", e->tol * 100);
    return out;
}

void mr_report_expectations(const struct mr_workload_extra *x, struct mr_strbuf *o)
{
    char target[128];
    if (x->n_expect)
        mr_strbuf_puts(o, "\nexpectations\n");
    for (unsigned i = 0; i < x->n_expect; i++)
        mr_strbuf_printf(o, "  %-48s %s (%s)\n", x->expect[i].metric, target_text(&x->expect[i], target, sizeof target),
                         classes[x->expect[i].cls]);
}

/* ---- checks ---- */

static const char *const verdicts[] = {"ok", "FAIL", "reported", "skipped"};

void mr_report_preset_check(const struct mr_check_report *r, struct mr_strbuf *o)
{
    char size[MR_HUMAN_LEN], target[128], scaled[64];
    const struct mr_check_shape *s = &r->shape;
    mr_strbuf_text(o, r->name);
    mr_strbuf_puts(o, ": ");
    if (s->reads)
        mr_strbuf_printf(o, "scale %.6g, %u %s, %s, ", s->factor, s->ranks, mr_plural(s->ranks, "rank", "ranks"),
                         mr_human_bytes(s->data_bytes, size));
    mr_strbuf_printf(o, "%.1f s", r->seconds);
    if (r->attempts > 1)
        mr_strbuf_printf(o, ", %u attempts", r->attempts);
    mr_strbuf_printf(o, "%s%s\n", r->skipped ? "; plan only: " : "", r->skipped ? r->skipped : "");
    int width = 48;
    for (unsigned i = 0; i < r->n_lines; i++)
        width = MR_MAX(width, (int)strlen(r->lines[i].e->metric));
    for (unsigned i = 0; i < r->n_lines; i++) {
        const struct mr_check_line *l = &r->lines[i];
        *scaled = '\0';
        if (fabs(l->ratio - 1) > 1e-12)
            snprintf(scaled, sizeof scaled, "  scaled back by %.6g", l->ratio);
        mr_strbuf_printf(o, "  %-*s %-24s %14.6g  %-6s %s%s%s%s\n", width, l->e->metric,
                         target_text(l->e, target, sizeof target), l->measured, classes[l->e->cls],
                         verdicts[l->verdict], *l->why ? ": " : "", l->why, scaled);
    }
    if (r->n_lines == 0)
        mr_strbuf_puts(o, "  no expectations: it ran, but nothing was compared; x-millrace.expect says what to check "
                          "('millrace help config')\n");
}

json_t *mr_report_preset_check_json(const struct mr_check_report *r)
{
    json_t *lines = json_array();
    for (unsigned i = 0; lines && i < r->n_lines; i++) {
        const struct mr_check_line *l = &r->lines[i];
        char target[128];
        json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:f}", "metric", l->e->metric, "target",
                              target_text(l->e, target, sizeof target), "class", classes[l->e->cls], "verdict",
                              verdicts[l->verdict], "scaled_by", l->ratio);
        if (j && *l->why)
            json_object_set_new(j, "why", json_string(l->why));
        if (j && !isnan(l->measured))
            json_object_set_new(j, "measured", json_real(l->measured));
        json_array_append_new(lines, j);
    }
    return json_pack("{s:s, s:f, s:i, s:I, s:f, s:i, s:i, s:s*, s:o}", "name", r->name, "scale", r->shape.factor,
                     "ranks", (int)r->shape.ranks, "data_bytes",
                     (json_int_t)llround(r->shape.reads ? r->shape.data_bytes : 0), "duration_s", r->seconds,
                     "attempts", (int)r->attempts, "failed", (int)r->failed, "plan_only_because", r->skipped,
                     "expectations", lines);
}
