/* A sweep of `millrace sim`: the values of one key, or the grid of several, and how the studies of its points are shown
 * (table, JSON, CSV, plot). The points are numbered with the last key running fastest; studies[] has their order. */
#include "report/sim_text.h"
#include "base/common.h"
#include "report/line_plot.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct mr_study_row *find_row(const struct mr_study *st, int policy)
{
    for (unsigned i = 0; i < st->n; i++)
        if ((int)st->rows[i].mean.policy == policy)
            return &st->rows[i];
    return NULL;
}

static bool is_partial(const struct mr_sim_sweep *sw, int policy)
{
    for (unsigned i = 0; i < sw->grid.n; i++) {
        const struct mr_study_row *r = find_row(&sw->studies[i], policy);
        if (r && r->mean.possible && !mr_study_is_comparable(r))
            return true;
    }
    return false;
}

/* ---- text ---- */

static void print_time(struct mr_strbuf *o, const struct mr_study_row *r, int width)
{
    if (r && r->mean.possible)
        mr_strbuf_printf(o, " %*.2f", width, r->mean.time_s);
    else
        mr_strbuf_printf(o, " %*s", width, "-");
}

/* As wide as its longest value, so that long ones do not push the others aside. */
static int column_width(const struct mr_sweep_axis *x, int least)
{
    int width = MR_MAX(least, (int)strlen(x->key));
    for (unsigned i = 0; i < x->n; i++)
        width = MR_MAX(width, (int)strlen(x->value[i]));
    return width;
}

/* One key: its values side by side, a line per policy. */
static void print_line(struct mr_strbuf *o, const struct mr_sim_sweep *sw)
{
    int first = MR_MAX(21, (int)strlen(sw->grid.axis[0].key)), width = column_width(&sw->grid.axis[0], 11);
    mr_strbuf_printf(o, "%-*s", first, sw->grid.axis[0].key);
    for (unsigned i = 0; i < sw->grid.n; i++)
        mr_strbuf_printf(o, " %*s", width, mr_sweep_value(&sw->grid, i, 0));
    mr_strbuf_printf(o, "\n%-*s", first, "(bound)");
    for (unsigned i = 0; i < sw->grid.n; i++)
        mr_strbuf_printf(o, " %*.2f", width, sw->studies[i].bounds.io_aware_s);
    mr_strbuf_putc(o, '\n');
    for (int p = 0; p < mr_policy_count(); p++) {
        if (!find_row(&sw->studies[0], p))
            continue;
        mr_strbuf_printf(o, "%-*s", first, mr_policy_name((enum mr_policy_id)p));
        for (unsigned i = 0; i < sw->grid.n; i++)
            print_time(o, find_row(&sw->studies[i], p), width);
        mr_strbuf_puts(o, is_partial(sw, p) ? "  not comparable: sees part of the data\n" : "\n");
    }
}

/* Several keys: a line per point, a column per policy. */
static void print_grid(struct mr_strbuf *o, const struct mr_sim_sweep *sw)
{
    for (unsigned x = 0; x < sw->grid.n_axes; x++)
        mr_strbuf_printf(o, "%*s ", column_width(&sw->grid.axis[x], 6), sw->grid.axis[x].key);
    mr_strbuf_printf(o, "%11s", "(bound)");
    for (int p = 0; p < mr_policy_count(); p++)
        if (find_row(&sw->studies[0], p))
            mr_strbuf_printf(o, " %*s", MR_MAX(11, (int)strlen(mr_policy_name((enum mr_policy_id)p))),
                             mr_policy_name((enum mr_policy_id)p));
    mr_strbuf_putc(o, '\n');
    for (unsigned i = 0; i < sw->grid.n; i++) {
        for (unsigned x = 0; x < sw->grid.n_axes; x++)
            mr_strbuf_printf(o, "%*s ", column_width(&sw->grid.axis[x], 6), mr_sweep_value(&sw->grid, i, x));
        mr_strbuf_printf(o, "%11.2f", sw->studies[i].bounds.io_aware_s);
        for (int p = 0; p < mr_policy_count(); p++)
            if (find_row(&sw->studies[0], p))
                print_time(o, find_row(&sw->studies[i], p),
                           MR_MAX(11, (int)strlen(mr_policy_name((enum mr_policy_id)p))));
        mr_strbuf_putc(o, '\n');
    }
    for (int p = 0; p < mr_policy_count(); p++)
        if (is_partial(sw, p))
            mr_strbuf_printf(o, "%s is not comparable: it sees part of the data\n",
                             mr_policy_name((enum mr_policy_id)p));
}

void mr_report_sweep(const struct mr_sim_sweep *sw, struct mr_strbuf *o)
{
    mr_strbuf_printf(o, "run time in seconds%s\n", sw->studies[0].seeds > 1 ? ", means over the seeds" : "");
    if (sw->grid.n_axes == 1)
        print_line(o, sw);
    else
        print_grid(o, sw);
}

/* ---- JSON ---- */

json_t *mr_report_sweep_json(const struct mr_sim_sweep *sw, bool thesis, unsigned seeds)
{
    json_t *points = json_array(), *keys = json_array();
    for (unsigned x = 0; x < sw->grid.n_axes; x++)
        json_array_append_new(keys, json_string(sw->grid.axis[x].key));
    for (unsigned i = 0; i < sw->grid.n; i++) {
        json_t *values = json_object();
        for (unsigned x = 0; x < sw->grid.n_axes; x++)
            json_object_set_new(values, sw->grid.axis[x].key, json_string(mr_sweep_value(&sw->grid, i, x)));
        json_t *point =
            json_pack("{s:o, s:o?}", "values", values, "result", mr_report_study_json(&sw->studies[i], thesis, seeds));
        if (sw->grid.n_axes == 1)
            json_object_set_new(point, "value", json_string(mr_sweep_value(&sw->grid, i, 0)));
        json_array_append_new(points, point);
    }
    json_t *j = json_pack("{s:s, s:o, s:o}", "schema", "millrace.sim_sweep/1", "keys", keys, "points", points);
    if (sw->grid.n_axes == 1)
        json_object_set_new(j, "key", json_string(sw->grid.axis[0].key));
    return j;
}

/* ---- CSV ---- */

static void put_csv_text(struct mr_strbuf *o, const char *text)
{
    bool quote = text[strcspn(text, ",\"\n")] != '\0';
    if (quote)
        mr_strbuf_putc(o, '"');
    for (; *text; text++) {
        if (*text == '"')
            mr_strbuf_putc(o, '"');
        mr_strbuf_putc(o, *text);
    }
    if (quote)
        mr_strbuf_putc(o, '"');
}

void mr_report_sweep_csv(const struct mr_sim_sweep *sw, struct mr_strbuf *o)
{
    for (unsigned x = 0; x < sw->grid.n_axes; x++) {
        put_csv_text(o, sw->grid.axis[x].key);
        mr_strbuf_putc(o, ',');
    }
    mr_strbuf_puts(o, "policy,possible,comparable,time_s,time_min_s,time_max_s,bound_s,stall_s,pfs_bytes,peer_bytes,"
                      "distinct_samples_per_epoch_ratio\n");
    for (unsigned i = 0; i < sw->grid.n; i++)
        for (unsigned k = 0; k < sw->studies[i].n; k++) {
            const struct mr_study_row *row = &sw->studies[i].rows[k];
            const struct mr_sim_result *r = &row->mean;
            for (unsigned x = 0; x < sw->grid.n_axes; x++) {
                put_csv_text(o, mr_sweep_value(&sw->grid, i, x));
                mr_strbuf_putc(o, ',');
            }
            mr_strbuf_printf(o, "%s,%d,%d,", mr_policy_name(r->policy), r->possible, mr_study_is_comparable(row));
            if (r->possible)
                mr_strbuf_printf(o, "%.9g,%.9g,%.9g,%.9g,%.9g,%.0f,%.0f,%.6g\n", r->time_s, row->time_min_s,
                                 row->time_max_s, sw->studies[i].bounds.io_aware_s, r->stall_s, r->pfs_mb * 1e6,
                                 r->peer_mb * 1e6, r->randomness);
            else
                mr_strbuf_printf(o, ",,,%.9g,,,,\n", sw->studies[i].bounds.io_aware_s);
        }
}

/* ---- plot ---- */

int mr_report_sweep_svg(const struct mr_sim_sweep *sw, struct mr_strbuf *out, struct mr_error *err)
{
    const struct mr_scenario *s = &sw->studies[0].scenario;
    struct mr_plot_line lines[MR_POLICY_MAX + 1];
    const char *x[MR_PLOT_POINTS_MAX];
    char title[256];
    double *y = calloc(3 * (MR_POLICY_MAX + 1) * (size_t)sw->grid.n, sizeof(*y)), *row = y;
    unsigned n = 0;
    assert(sw->grid.n_axes == 1 && sw->grid.n <= MR_PLOT_POINTS_MAX);
    if (!y)
        return mr_error_set(err, -ENOMEM, "plot");
    for (unsigned i = 0; i < sw->grid.n; i++) {
        x[i] = mr_sweep_value(&sw->grid, i, 0);
        row[i] = sw->studies[i].bounds.io_aware_s;
    }
    lines[n++] = (struct mr_plot_line){.name = "lower bound", .y = row, .is_bound = true};
    for (int p = 0; p < mr_policy_count(); p++) {
        if (!find_row(&sw->studies[0], p))
            continue;
        row += 3 * sw->grid.n;
        double *low = row + sw->grid.n, *high = low + sw->grid.n;
        for (unsigned i = 0; i < sw->grid.n; i++) {
            const struct mr_study_row *r = find_row(&sw->studies[i], p);
            bool runs = r && r->mean.possible;
            row[i] = runs ? r->mean.time_s : 0;
            low[i] = runs ? r->time_min_s : 0;
            high[i] = runs ? r->time_max_s : 0;
        }
        bool spreads = sw->studies[0].seeds > 1;
        lines[n++] = (struct mr_plot_line){.name = mr_policy_name((enum mr_policy_id)p),
                                           .y = row,
                                           .low = spreads ? low : NULL,
                                           .high = spreads ? high : NULL,
                                           .colour = (unsigned)p};
    }
    snprintf(title, sizeof title, "%s on %s: run time by policy", s->name, s->system.name);
    const struct mr_line_plot plot = {.title = title,
                                      .x_name = sw->grid.axis[0].key,
                                      .y_name = "run time",
                                      .unit = "s",
                                      .n = sw->grid.n,
                                      .x = x,
                                      .lines = lines,
                                      .n_lines = n};
    mr_line_plot_svg(&plot, out);
    free(y);
    return out->failed ? mr_error_set(err, -ENOMEM, "plot") : 0;
}
