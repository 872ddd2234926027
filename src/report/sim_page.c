/* The page of a simulation: run time and sources of the data by policy, the plot of a sweep, and, for one policy, the
 * explanation of its simulated trace, drawn by the same code as that of a real one. */
#include "base/common.h"
#include "report/sim_text.h"
#include "report/line_plot.h"
#include "report/page.h"
#include "report/svg_chart.h"

#include <math.h>
#include <string.h>

/* ---- one study ---- */

struct part {
    const char *css, *text;
    double value;
};

static double local_mb(const struct mr_sim_result *r)
{
    double sum = 0;
    for (unsigned c = 0; c < MR_CLASS_MAX; c++)
        sum += r->class_mb[c];
    return sum;
}

static unsigned time_parts(const struct mr_sim_result *r, struct part out[3])
{
    double preload = fmin(r->preload_s, r->stall_s); /* nodes wait for it: it is a part of the stall */
    out[0] = (struct part){"t-startup", "preloading", preload};
    out[1] = (struct part){"t-compute", "compute", fmax(0, r->time_s - r->stall_s)};
    out[2] = (struct part){"t-data_stall", "data stall", r->stall_s - preload};
    return 3;
}

static unsigned source_parts(const struct mr_sim_result *r, struct part out[3])
{
    out[0] = (struct part){"a2", "node's own storage", local_mb(r) * 1e6};
    out[1] = (struct part){"a4", "other nodes", r->peer_mb * 1e6};
    out[2] = (struct part){"s-storage", "shared file system", r->pfs_mb * 1e6};
    return 3;
}

static unsigned possible_rows(const struct mr_study *st)
{
    unsigned n = 0;
    for (unsigned i = 0; i < st->n; i++)
        n += st->rows[i].mean.possible;
    return n;
}

/* One bar per policy; `mark` is a line through all of them, NAN: none. */
static void draw_bars(struct mr_strbuf *o, const struct mr_study *st, const char *title, const char *what,
                      enum mr_unit unit, unsigned (*parts)(const struct mr_sim_result *, struct part *), double mark)
{
    struct part part[3];
    bool used[3] = {false};
    double most = isfinite(mark) ? mark : 0;
    unsigned rows = possible_rows(st), row = 0, n = 0;
    for (unsigned i = 0; i < st->n; i++) {
        double sum = 0;
        n = parts(&st->rows[i].mean, part);
        for (unsigned k = 0; st->rows[i].mean.possible && k < n; k++)
            sum += part[k].value;
        most = fmax(most, sum);
    }
    struct mr_chart c = {.out = o, .height = rows * 26.0, .wide_labels = true};
    c.x = (struct mr_axis){.high = mr_axis_end(most, unit), .unit = unit};
    c.y = (struct mr_axis){.low = rows, .high = 0, .bare = true};
    mr_strbuf_printf(o, "<h3>%s</h3>", title);
    mr_chart_open(&c, title, what);
    for (unsigned i = 0; i < st->n; i++) {
        double at = 0;
        if (!st->rows[i].mean.possible)
            continue;
        n = parts(&st->rows[i].mean, part);
        for (unsigned k = 0; k < n; k++) {
            char tip[128], text[MR_HUMAN_LEN];
            if (!(part[k].value > 0))
                continue;
            snprintf(tip, sizeof tip, "%s: %s %s", mr_policy_name(st->rows[i].mean.policy), part[k].text,
                     mr_unit_text(unit, part[k].value, text));
            mr_chart_box(&c, at, at + part[k].value, row + 0.15, row + 0.85, part[k].css, tip);
            at += part[k].value;
            used[k] = true;
        }
        row++;
    }
    if (isfinite(mark))
        mr_chart_box(&c, mark, mark + 0.0025 * c.x.high, 0, rows, "quiet", "lower bound: first reads of every sample");
    row = 0;
    for (unsigned i = 0; i < st->n; i++)
        if (st->rows[i].mean.possible)
            mr_chart_row_name(&c, row++ + 0.5, mr_policy_name(st->rows[i].mean.policy));
    mr_chart_close(&c);
    mr_legend_open(o);
    for (unsigned k = 0; k < n; k++)
        if (used[k])
            mr_legend_item(o, part[k].css, part[k].text);
    if (isfinite(mark))
        mr_legend_item(o, "quiet", "lower bound");
    mr_legend_close(o);
}

static void put_row(struct mr_page_shell *p, const struct mr_study *st, const struct mr_study_row *row)
{
    const struct mr_sim_result *r = &row->mean;
    struct mr_strbuf *o = &p->body;
    mr_strbuf_puts(o, "<tr><td>");
    mr_html_short(o, mr_policy_name(r->policy), 40);
    if (!r->possible) {
        mr_strbuf_puts(o, "</td><td colspan=\"8\">cannot run: ");
        mr_html_text(o, r->why);
        mr_strbuf_puts(o, "</td></tr>\n");
        return;
    }
    mr_strbuf_puts(o, "</td>");
    mr_html_cell(o, MR_UNIT_SECONDS, r->time_s);
    mr_html_cell(o, MR_UNIT_SECONDS, row->time_min_s);
    mr_html_cell(o, MR_UNIT_SECONDS, row->time_max_s);
    double ratio = r->time_s / st->bounds.io_aware_s;
    if (mr_study_is_comparable(row) && ratio >= 0.9995) /* below it: not the same work */
        mr_html_cell(o, MR_UNIT_NUMBER, ratio);
    else
        mr_strbuf_puts(o, "<td class=\"n\">-</td>");
    mr_html_cell(o, MR_UNIT_SECONDS, r->stall_s);
    mr_html_cell(o, MR_UNIT_BYTES, r->pfs_mb * 1e6);
    mr_html_cell(o, MR_UNIT_BYTES, r->peer_mb * 1e6);
    mr_strbuf_printf(o, "<td>%s</td></tr>\n",
                     !mr_study_is_comparable(row)    ? "not comparable: sees part of the samples"
                     : mr_policy_reorders(r->policy) ? "reorders"
                                                     : "");
}

static void put_study(struct mr_page_shell *p, const struct mr_study *st)
{
    mr_page_section(p, "policies", "Policies",
                    "How long the run takes under each policy, how long nodes wait for data, and where the data "
                    "comes from. Nothing was run: this is a simulation.");
    if (possible_rows(st)) {
        draw_bars(&p->body, st, "Run time", "One bar per policy: compute, data stall and preloading.", MR_UNIT_SECONDS,
                  time_parts, st->bounds.io_aware_s);
        draw_bars(&p->body, st, "Where the data came from", "One bar per policy: bytes by their source.", MR_UNIT_BYTES,
                  source_parts, NAN);
    }
    mr_page_table(p, NULL,
                  "policy|#time|#least|#most|#x bound|#stall|#from the shared file system|#from other nodes|remark");
    for (unsigned i = 0; i < st->n; i++)
        put_row(p, st, &st->rows[i]);
    mr_page_table_end(p);
    mr_page_section_end(p);
}

/* ---- sweep ---- */

static int put_sweep(struct mr_page_shell *p, const struct mr_sim_sweep *sw, struct mr_error *err)
{
    int rc = 0;
    mr_page_section(p, "sweep", "Sweep", "Run time by policy for every value of the swept key.");
    if (sw->grid.n_axes == 1 && sw->grid.n <= MR_PLOT_POINTS_MAX) {
        mr_strbuf_puts(&p->body, "<div class=\"plot\">");
        rc = mr_report_sweep_svg(sw, &p->body, err);
        mr_strbuf_puts(&p->body, "</div>");
    }
    struct mr_strbuf heads = {0};
    for (unsigned x = 0; x < sw->grid.n_axes; x++)
        mr_strbuf_printf(&heads, "%s|", sw->grid.axis[x].key);
    mr_strbuf_puts(&heads, "policy|#time|#least|#most|#bound|#stall|#from the shared file system|#from other nodes");
    if (!rc && !heads.failed)
        mr_page_table(p, NULL, heads.text);
    mr_strbuf_done(&heads);
    unsigned rows = 0;
    for (unsigned i = 0; i < sw->grid.n && !rc; i++)
        for (unsigned k = 0; k < sw->studies[i].n && rows < 2000; k++) {
            const struct mr_study_row *row = &sw->studies[i].rows[k];
            const struct mr_sim_result *r = &row->mean;
            if (!r->possible)
                continue;
            mr_strbuf_puts(&p->body, "<tr>");
            for (unsigned x = 0; x < sw->grid.n_axes; x++)
                mr_page_text_cell(p, mr_sweep_value(&sw->grid, i, x), 40);
            mr_page_text_cell(p, mr_policy_name(r->policy), 40);
            const double s[] = {r->time_s, row->time_min_s, row->time_max_s, sw->studies[i].bounds.io_aware_s,
                                r->stall_s};
            for (unsigned v = 0; v < MR_ARRAY_LEN(s); v++)
                mr_html_cell(&p->body, MR_UNIT_SECONDS, s[v]);
            mr_html_cell(&p->body, MR_UNIT_BYTES, r->pfs_mb * 1e6);
            mr_html_cell(&p->body, MR_UNIT_BYTES, r->peer_mb * 1e6);
            mr_strbuf_puts(&p->body, "</tr>\n");
            rows++;
        }
    mr_page_table_end(p);
    mr_page_section_end(p);
    return rc;
}

/* ---- the page ---- */

int mr_report_sim_page(const struct mr_sim_sweep *sw, const struct mr_explanation *x, const char *path,
                       struct mr_error *err)
{
    const struct mr_study *st = &sw->studies[0];
    const struct mr_scenario *s = &st->scenario;
    char samples[MR_HUMAN_LEN], size[MR_HUMAN_LEN];
    struct mr_page_shell p = {.title = "millrace sim", .subject = s->name};
    mr_html_printf(&p.facts, "%s: %u %s, %u %s, %s samples, %s; simulated", s->system.name, s->nodes,
                   mr_plural(s->nodes, "node", "nodes"), s->epochs, mr_plural(s->epochs, "epoch", "epochs"),
                   mr_human_count(s->samples, samples), mr_human_bytes(st->dataset_mb * 1e6, size));
    int rc = 0;
    if (sw->grid.n_axes)
        rc = put_sweep(&p, sw, err);
    else
        put_study(&p, st);
    if (!rc && x)
        mr_page_explain(&p, x, NULL);
    rc = rc ? rc : mr_page_save(&p, path, err);
    mr_page_done(&p);
    return rc;
}
