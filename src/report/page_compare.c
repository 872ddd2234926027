/* The page of a comparison: see page_compare.h. */
#include "report/page_compare.h"
#include "base/common.h"
#include "report/page_shell.h"
#include "report/svg_chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MOST 600u
#define BINS 48u
#define SIDES_DRAWN 6u /* as many colours there are */

static const char *css_of(size_t side)
{
    static const char *const css[SIDES_DRAWN] = {"a0", "a1", "a2", "a3", "a4", "a5"};
    return css[side % SIDES_DRAWN];
}

static size_t drawn(const struct mr_compare *c)
{
    return MR_MIN(c->sides, (size_t)SIDES_DRAWN);
}

static void put_legend(struct mr_page_shell *p, const struct mr_compare *c)
{
    char name[128];
    mr_legend_open(&p->body);
    for (size_t s = 0; s < drawn(c); s++) {
        snprintf(name, sizeof name, "%.80s (%zu %s)", c->side[s].name, c->side[s].run.n,
                 mr_plural(c->side[s].run.n, "run", "runs"));
        mr_legend_item(&p->body, css_of(s), name);
    }
    mr_legend_close(&p->body);
}

/* ---- the table ---- */

static enum mr_unit unit_of(int metric)
{
    switch (mr_compare_metric_info[metric].unit) {
    case MR_IN_SECONDS: return MR_UNIT_SECONDS;
    case MR_IN_SHARE: return MR_UNIT_SHARE;
    case MR_IN_BYTES: return MR_UNIT_BYTES;
    case MR_IN_BYTES_RATE: return MR_UNIT_RATE;
    case MR_IN_RATE: break;
    }
    return MR_UNIT_NUMBER;
}

static void put_cell(struct mr_page_shell *p, int metric, const struct mr_compare_cell *x)
{
    char mean[MR_HUMAN_LEN], sd[MR_HUMAN_LEN];
    mr_strbuf_printf(&p->body, "<td class=\"n\" data-v=\"%.9g\">%s", isnan(x->mean) ? 0 : x->mean,
                     mr_unit_text(unit_of(metric), x->mean, mean));
    if (x->n > 1 && x->sd > 0)
        mr_strbuf_printf(&p->body, " &plusmn; %s", mr_unit_text(unit_of(metric), x->sd, sd));
    mr_strbuf_puts(&p->body, "</td>");
}

static void put_change(struct mr_page_shell *p, const struct mr_compare *c, int metric, size_t side)
{
    const struct mr_compare_row *row = &c->row[metric];
    const struct mr_compare_change *x = &row->change[side];
    bool share = mr_compare_metric_info[metric].unit == MR_IN_SHARE;
    const char *unit = share ? "pp" : "%";
    if (isnan(x->change))
        mr_strbuf_printf(&p->body, "<td class=\"n unknown\">%s</td><td>",
                         row->cell[0].n && row->cell[side].n ? "from 0" : "unknown");
    else
        mr_strbuf_printf(&p->body, "<td class=\"n\" data-v=\"%.9g\">%+.1f %s</td><td>", x->change, 100 * x->change,
                         unit);
    mr_strbuf_puts(&p->body, mr_compare_verdict_name((enum mr_compare_verdict)x->verdict));
    if (x->verdict == MR_COMPARE_BETTER || x->verdict == MR_COMPARE_WORSE)
        mr_strbuf_printf(&p->body, x->p < 0.001 ? " (p &lt; 0.001)" : " (p = %.3f)", x->p);
    else if (x->verdict == MR_COMPARE_UNDECIDED)
        mr_strbuf_printf(&p->body, " below %.*f %s", x->detectable < 0.1, 100 * x->detectable, unit);
    else if (x->verdict == MR_COMPARE_SAME && x->change != 0)
        mr_strbuf_printf(&p->body, ", within %.2g %s", 100 * c->least, unit);
    else if (x->verdict == MR_COMPARE_ONE_RUN)
        mr_strbuf_puts(&p->body, ": one run");
    mr_strbuf_puts(&p->body, "</td>");
}

/* The name of a side over its column: its end says more than its beginning; '|' separates columns. */
static const char *head_of(const struct mr_compare *c, size_t side, char out[64])
{
    const char *name = c->side[side].name;
    size_t n = strlen(name);
    snprintf(out, 64, "%s%s", n > 30 ? ".." : "", n > 30 ? name + n - 28 : name);
    for (char *at = out; (at = strchr(at, '|'));)
        *at = ' ';
    return out;
}

static void put_table(struct mr_page_shell *p, const struct mr_compare *c, size_t side)
{
    char heads[256], a[64], b[64];
    snprintf(heads, sizeof heads, "Metric|#%s|#%s|#Change|Verdict", head_of(c, 0, a), head_of(c, side, b));
    mr_page_table(p, NULL, heads);
    for (int m = 0; m < MR_COMPARE_METRIC_COUNT; m++) {
        const struct mr_compare_row *row = &c->row[m];
        if (!row->shown)
            continue;
        mr_strbuf_printf(&p->body, "<tr><td>%s</td>", mr_compare_metric_info[m].text);
        put_cell(p, m, &row->cell[0]);
        put_cell(p, m, &row->cell[side]);
        put_change(p, c, m, side);
        mr_strbuf_puts(&p->body, "</tr>\n");
    }
    mr_page_table_end(p);
}

static void put_summary(struct mr_page_shell *p, const struct mr_compare *c)
{
    static const char *const same[] = {"Same work: ", "Other work: ", "Whether it is the same work is unknown: "};
    mr_page_section(p, "result", "What changed",
                    "Means over the runs of a side and their standard deviation. Better and worse are called only what "
                    "chance does not explain, after correction for the number of metrics.");
    mr_strbuf_puts(&p->body, "<p><b>");
    mr_html_text(&p->body, same[c->same_work]);
    mr_strbuf_puts(&p->body, "</b>");
    mr_html_text(&p->body, c->work);
    mr_strbuf_puts(&p->body, "</p>\n");
    for (size_t s = 1; s < c->sides; s++) {
        mr_strbuf_puts(&p->body, "<h3>");
        mr_html_name(&p->body, c->side[0].name, 60);
        mr_strbuf_puts(&p->body, " &rarr; ");
        mr_html_name(&p->body, c->side[s].name, 60);
        mr_strbuf_puts(&p->body, "</h3>\n");
        put_table(p, c, s);
    }
    for (size_t i = 0; i < c->note.n; i++) {
        mr_strbuf_puts(&p->body, "<p class=\"note\">");
        mr_html_text(&p->body, c->note.item[i]);
        mr_strbuf_puts(&p->body, "</p>\n");
    }
    mr_page_section_end(p);
}

/* ---- steps ---- */

static size_t most_steps(const struct mr_compare *c)
{
    size_t most = 0;
    for (size_t s = 0; s < c->sides; s++)
        for (size_t i = 0; i < c->side[s].run.n; i++)
            most = MR_MAX(most, c->side[s].run.item[i].steps);
    return most;
}

/* Mean over the runs of a side, and over the steps that share a column. */
static void fill_columns(const struct mr_compare_side *s, enum mr_compare_part part, size_t steps, size_t columns,
                         double *out)
{
    for (size_t k = 0; k < columns; k++) {
        double sum = 0;
        size_t n = 0, from = k * steps / columns, to = MR_MAX((k + 1) * steps / columns, from + 1);
        for (size_t i = 0; i < s->run.n; i++)
            for (size_t e = from; e < to && e < s->run.item[i].steps; e++, n++)
                sum += s->run.item[i].step[e].s[part];
        out[k] = n ? sum / (double)n : NAN;
    }
}

static void put_strip(struct mr_page_shell *p, const struct mr_compare *c, enum mr_compare_part part, const char *title,
                      size_t steps, double *value)
{
    size_t columns = MR_MIN(steps, (size_t)COLUMNS_MOST);
    double most = 0;
    for (size_t s = 0; s < drawn(c); s++) {
        fill_columns(&c->side[s], part, steps, columns, value + s * columns);
        for (size_t k = 0; k < columns; k++)
            most = fmax(most, isnan(value[s * columns + k]) ? 0 : value[s * columns + k]);
    }
    if (!(most > 0))
        return;
    struct mr_chart chart = {.out = &p->body,
                             .height = 160,
                             .x = {.high = (double)steps, .unit = MR_UNIT_COUNT, .name = "step"},
                             .y = {.high = mr_axis_end(most, MR_UNIT_SECONDS), .unit = MR_UNIT_SECONDS}};
    mr_strbuf_printf(&p->body, "<h3>%s</h3>\n", title);
    mr_chart_open(&chart, title, "Mean over the runs of each side, step by step.");
    for (size_t s = 0; s < drawn(c); s++)
        mr_chart_edge(&chart, columns, value + s * columns, css_of(s), c->side[s].name);
    mr_chart_close(&chart);
}

static void put_steps(struct mr_page_shell *p, const struct mr_compare *c)
{
    size_t steps = most_steps(c);
    double *value = steps ? malloc(SIDES_DRAWN * COLUMNS_MOST * sizeof(*value)) : NULL;
    if (!value) {
        mr_page_absent(p, "Steps", "There are no training steps in what is compared.");
        return;
    }
    mr_page_section(p, "steps", "Steps over each other", "The k-th step of every side, mean over its runs and ranks.");
    put_legend(p, c);
    put_strip(p, c, MR_PART_STEP, "Length of a step", steps, value);
    put_strip(p, c, MR_PART_STALL, "Waiting for data in it", steps, value);
    put_strip(p, c, MR_PART_CHECKPOINT, "Checkpoint behind it", steps, value);
    mr_page_section_end(p);
    free(value);
}

/* ---- distributions ---- */

/* Share of the steps of a side in each bin; what is longer than `high` is in the last one. */
static void fill_bins(const struct mr_compare_side *s, enum mr_compare_part part, double high, double out[BINS])
{
    double all = 0;
    memset(out, 0, BINS * sizeof(*out));
    for (size_t i = 0; i < s->run.n; i++)
        for (size_t e = 0; e < s->run.item[i].steps; e++, all++)
            out[MR_MIN((size_t)(s->run.item[i].step[e].s[part] / high * BINS), (size_t)BINS - 1)]++;
    for (size_t k = 0; k < BINS && all > 0; k++)
        out[k] /= all;
}

/* Where the axis of a histogram ends: a little behind the 99th percentile of the side with the longest tail. */
static double tail_of(const struct mr_compare *c, enum mr_compare_part part)
{
    double high = 0;
    for (size_t s = 0; s < drawn(c); s++)
        for (size_t i = 0; i < c->side[s].run.n; i++) {
            struct mr_step_figures f;
            mr_step_figures_of(c->side[s].run.item[i].step, c->side[s].run.item[i].steps, &f);
            double x = part == MR_PART_STALL ? f.p99_stall : f.p99_step;
            high = fmax(high, isnan(x) ? 0 : x);
        }
    return 1.1 * high;
}

static void put_histogram(struct mr_page_shell *p, const struct mr_compare *c, enum mr_compare_part part,
                          const char *title)
{
    double share[SIDES_DRAWN][BINS], most = 0, high = tail_of(c, part);
    if (!(high > 0))
        return;
    for (size_t s = 0; s < drawn(c); s++) {
        fill_bins(&c->side[s], part, high, share[s]);
        for (size_t k = 0; k < BINS; k++)
            most = fmax(most, share[s][k]);
    }
    struct mr_chart chart = {.out = &p->body,
                             .height = 140,
                             .x = {.high = high, .unit = MR_UNIT_SECONDS},
                             .y = {.high = mr_axis_end(most, MR_UNIT_SHARE), .unit = MR_UNIT_SHARE}};
    mr_strbuf_printf(&p->body, "<h3>%s</h3>\n", title);
    mr_chart_open(&chart, title, "Share of the steps by their length; the last bin has all that are longer.");
    for (size_t s = 0; s < drawn(c); s++)
        mr_chart_edge(&chart, BINS, share[s], css_of(s), c->side[s].name);
    mr_chart_close(&chart);
}

/* Every run is a mark: who looks at four of them sees at once how much they differ. */
static void put_runs(struct mr_page_shell *p, const struct mr_compare *c, int metric)
{
    const struct mr_compare_row *row = &c->row[metric];
    double high = 0;
    for (size_t s = 0; s < drawn(c); s++)
        high = fmax(high, row->cell[s].n ? row->cell[s].high : 0);
    if (!(high > 0))
        return;
    struct mr_chart chart = {.out = &p->body,
                             .height = 36 * (double)drawn(c),
                             .wide_labels = true,
                             .x = {.high = mr_axis_end(high, unit_of(metric)), .unit = unit_of(metric)},
                             .y = {.low = 0, .high = (double)drawn(c), .unit = MR_UNIT_NUMBER, .bare = true}};
    mr_strbuf_printf(&p->body, "<h3>%s of each run</h3>\n", mr_compare_metric_info[metric].text);
    mr_chart_open(&chart, mr_compare_metric_info[metric].text, "One mark per run, one row per side.");
    for (size_t s = 0; s < drawn(c); s++)
        for (size_t i = 0; i < c->side[s].run.n; i++) {
            double x = c->side[s].run.item[i].value[metric], y = (double)drawn(c) - (double)s - 0.5;
            double half = 0.002 * chart.x.high;
            if (!isnan(x))
                mr_chart_box(&chart, x - half, x + half, y - 0.3, y + 0.3, css_of(s), c->side[s].run.item[i].path);
        }
    for (size_t s = 0; s < drawn(c); s++)
        mr_chart_row_name(&chart, (double)drawn(c) - (double)s - 0.5, c->side[s].name);
    mr_chart_close(&chart);
}

static void put_distributions(struct mr_page_shell *p, const struct mr_compare *c)
{
    mr_page_section(p, "spread", "How they spread",
                    "Runs of one thing differ, too: only what is larger than that counts.");
    put_legend(p, c);
    put_runs(p, c, MR_COMPARE_WALL);
    put_runs(p, c, MR_COMPARE_AU);
    put_histogram(p, c, MR_PART_STEP, "Lengths of the steps");
    put_histogram(p, c, MR_PART_STALL, "Waiting for data per step");
    mr_page_section_end(p);
}

/* ---- causes and settings ---- */

static void put_causes(struct mr_page_shell *p, const struct mr_compare *c)
{
    bool any = false;
    for (size_t i = 0; i < MR_STALL_CAUSE_COUNT * c->sides; i++)
        any |= c->cause[i] > 0;
    if (!any)
        return;
    mr_page_section(p, "causes", "Why they waited for data", "Shares of the training time.");
    struct mr_strbuf heads = {0};
    char name[64];
    mr_strbuf_puts(&heads, "Cause");
    for (size_t s = 0; s < drawn(c); s++)
        mr_strbuf_printf(&heads, "|#%s", head_of(c, s, name));
    mr_page_table(p, NULL, heads.text ? heads.text : "Cause");
    mr_strbuf_done(&heads);
    for (int k = 0; k < MR_STALL_CAUSE_COUNT; k++) {
        bool shown = false;
        for (size_t s = 0; s < drawn(c); s++)
            shown |= c->cause[(size_t)k * c->sides + s] >= 0.0005;
        if (!shown)
            continue;
        mr_strbuf_puts(&p->body, "<tr>");
        mr_page_text_cell(p, mr_stall_text((enum mr_stall_cause)k), 64);
        for (size_t s = 0; s < drawn(c); s++)
            mr_html_cell(&p->body, MR_UNIT_SHARE, c->cause[(size_t)k * c->sides + s]);
        mr_strbuf_puts(&p->body, "</tr>\n");
    }
    mr_page_table_end(p);
    mr_page_section_end(p);
}

/* ---- named spans ---- */

/* One row per side: the middle half of the durations and the median. */
static void draw_span(struct mr_page_shell *p, const struct mr_compare *c, const struct mr_compare_span *x)
{
    double high = 0;
    for (size_t s = 0; s < drawn(c); s++)
        high = fmax(high, isfinite(x->cell[s].p75_s) ? x->cell[s].p75_s : 0);
    if (!(high > 0))
        return;
    struct mr_chart chart = {.out = &p->body,
                             .height = 26 * (double)drawn(c),
                             .wide_labels = true,
                             .x = {.high = mr_axis_end(high, MR_UNIT_SECONDS), .unit = MR_UNIT_SECONDS},
                             .y = {.low = (double)drawn(c), .high = 0, .bare = true}};
    mr_strbuf_puts(&p->body, "<h3>");
    mr_html_short(&p->body, x->name, 60);
    mr_strbuf_puts(&p->body, "</h3>\n");
    mr_chart_open(&chart, "Durations of a named span", "One row per side: the middle half, and the median.");
    for (size_t s = 0; s < drawn(c); s++) {
        const struct mr_compare_span_cell *v = &x->cell[s];
        double y = (double)s, half = 0.003 * chart.x.high;
        char css[24];
        if (!isfinite(v->median_s))
            continue;
        snprintf(css, sizeof css, "%s box", css_of(s));
        mr_chart_box(&chart, v->p25_s, fmax(v->p75_s, v->p25_s + half), y + 0.2, y + 0.8, css, NULL);
        mr_chart_box(&chart, v->median_s - half, v->median_s + half, y + 0.2, y + 0.8, css_of(s), NULL);
    }
    for (size_t s = 0; s < drawn(c); s++)
        mr_chart_row_name(&chart, (double)s + 0.5, c->side[s].name);
    mr_chart_close(&chart);
}

static void put_spans(struct mr_page_shell *p, const struct mr_compare *c)
{
    struct mr_strbuf heads = {0};
    char name[64];
    if (!c->span.n)
        return;
    mr_page_section(p, "spans", "How named spans scale",
                    "Parts of the program that it named itself, on every side: the median, and how many times the "
                    "first side's. Box: the middle half of the durations.");
    mr_strbuf_puts(&heads, "Name");
    for (size_t s = 0; s < drawn(c); s++) {
        mr_strbuf_printf(&heads, "|#%s", head_of(c, s, name));
        if (s)
            mr_strbuf_puts(&heads, "|#times");
    }
    mr_page_table(p, NULL, heads.text ? heads.text : "Name");
    mr_strbuf_done(&heads);
    for (size_t i = 0; i < c->span.n; i++) {
        const struct mr_compare_span *x = &c->span.item[i];
        mr_strbuf_puts(&p->body, "<tr>");
        mr_page_text_cell(p, x->name, 60);
        for (size_t s = 0; s < drawn(c); s++) {
            mr_html_cell(&p->body, MR_UNIT_SECONDS, x->cell[s].median_s);
            if (s)
                mr_html_cell(&p->body, MR_UNIT_NUMBER, x->cell[s].median_s / x->cell[0].median_s);
        }
        mr_strbuf_puts(&p->body, "</tr>\n");
    }
    mr_page_table_end(p);
    for (size_t i = 0; i < MR_MIN(c->span.n, (size_t)6); i++)
        draw_span(p, c, &c->span.item[i]);
    mr_page_section_end(p);
}

static void put_settings(struct mr_page_shell *p, const struct mr_compare *c)
{
    if (!c->setting.n) {
        mr_page_absent(p, "Settings", "No setting that is known differs.");
        return;
    }
    struct mr_strbuf heads = {0};
    char name[64];
    mr_page_section(p, "settings", "What is set differently", NULL);
    mr_strbuf_puts(&heads, "Setting");
    for (size_t s = 0; s < drawn(c); s++)
        mr_strbuf_printf(&heads, "|%s", head_of(c, s, name));
    mr_page_table(p, NULL, heads.text ? heads.text : "Setting");
    mr_strbuf_done(&heads);
    for (size_t i = 0; i < c->setting.n && i < 200; i++) {
        mr_strbuf_puts(&p->body, "<tr>");
        mr_page_text_cell(p, c->setting.item[i].key, 80);
        for (size_t s = 0; s < drawn(c); s++)
            mr_page_text_cell(p, c->setting.item[i].value[s], 120);
        mr_strbuf_puts(&p->body, "</tr>\n");
    }
    mr_page_table_end(p);
    mr_page_section_end(p);
}

int mr_page_compare_write(const char *path, const struct mr_compare *c, struct mr_error *err)
{
    struct mr_strbuf subject = {0};
    for (size_t s = 0; s < c->sides; s++)
        mr_strbuf_printf(&subject, "%s%.200s", s ? ", " : "", c->side[s].name);
    struct mr_page_shell p = {.title = "millrace compare", .subject = subject.text};
    put_summary(&p, c);
    put_steps(&p, c);
    put_distributions(&p, c);
    put_causes(&p, c);
    put_spans(&p, c);
    put_settings(&p, c);
    int rc = mr_page_save(&p, path, err);
    mr_page_done(&p);
    mr_strbuf_done(&subject);
    return rc;
}
