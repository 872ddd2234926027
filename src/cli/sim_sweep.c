/* A sweep of `millrace sim`: the values of one key, or the grid of several, and how the studies of its points are shown
 * (table, JSON, CSV, plot). The points are numbered with the last key running fastest; studies[] has their order. */
#include "cli/sim_output.h"
#include "base/common.h"
#include "report/line_plot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int add_axis(struct mr_cli_sweep *sw, const char *text, struct mr_arena *a, struct mr_error *err)
{
    const char *eq = strchr(text, '=');
    if (!eq || eq == text || !eq[1])
        return mr_error_plain(err, MR_E_USAGE, "bad sweep '%s': want KEY=VALUE,VALUE,... like nodes=1,2,4", text);
    struct mr_cli_axis *x = &sw->axis[sw->n_axes];
    x->key = mr_arena_strndup(a, text, (size_t)(eq - text));
    for (unsigned i = 0; i < sw->n_axes && x->key; i++)
        if (!strcmp(sw->axis[i].key, x->key))
            return mr_error_plain(err, MR_E_USAGE, "'%s' is swept twice", x->key);
    for (const char *at = eq + 1; *at;) {
        size_t n = strcspn(at, ",");
        if (n == 0 || x->n == MR_ARRAY_LEN(x->value))
            return mr_error_plain(err, MR_E_USAGE, "bad sweep '%s': 1 to %zu values with commas between them", text,
                                  MR_ARRAY_LEN(x->value));
        x->value[x->n++] = mr_arena_strndup(a, at, n);
        if (!x->value[x->n - 1])
            return mr_error_set(err, -ENOMEM, "sweep");
        at += n + (at[n] == ',');
    }
    sw->n_axes++;
    sw->n *= x->n;
    return x->key ? 0 : mr_error_set(err, -ENOMEM, "sweep");
}

int mr_cli_sweep_parse(const struct mr_strings *texts, struct mr_arena *a, struct mr_cli_sweep *out,
                       struct mr_error *err)
{
    struct mr_cli_sweep sw = {.n = 1};
    if (texts->n > MR_CLI_SWEEP_AXES)
        return mr_error_plain(err, MR_E_USAGE, "%u sweeps are more than %d", texts->n, MR_CLI_SWEEP_AXES);
    for (unsigned i = 0; i < texts->n; i++) {
        int rc = add_axis(&sw, texts->item[i], a, err);
        if (rc)
            return rc;
    }
    if (sw.n > MR_CLI_SWEEP_POINTS)
        return mr_error_plain(err, MR_E_USAGE, "the sweeps have %u points together, more than %d", sw.n,
                              MR_CLI_SWEEP_POINTS);
    sw.studies = calloc(sw.n, sizeof(*sw.studies));
    if (!sw.studies)
        return mr_error_set(err, -ENOMEM, "sweep");
    *out = sw;
    return 0;
}

const char *mr_cli_sweep_value(const struct mr_cli_sweep *sw, unsigned point, unsigned axis)
{
    for (unsigned i = sw->n_axes - 1; i > axis; i--)
        point /= sw->axis[i].n;
    return sw->axis[axis].value[point % sw->axis[axis].n];
}

static const struct mr_study_row *find_row(const struct mr_study *st, int policy)
{
    for (unsigned i = 0; i < st->n; i++)
        if ((int)st->rows[i].mean.policy == policy)
            return &st->rows[i];
    return NULL;
}

static bool is_partial(const struct mr_cli_sweep *sw, int policy)
{
    for (unsigned i = 0; i < sw->n; i++) {
        const struct mr_study_row *r = find_row(&sw->studies[i], policy);
        if (r && r->mean.possible && !mr_study_is_comparable(r))
            return true;
    }
    return false;
}

/* ---- text ---- */

static void print_time(const struct mr_study_row *r, int width)
{
    if (r && r->mean.possible)
        printf(" %*.2f", width, r->mean.time_s);
    else
        printf(" %*s", width, "-");
}

/* As wide as its longest value, so that long ones do not push the others aside. */
static int column_width(const struct mr_cli_axis *x, int least)
{
    int width = MR_MAX(least, (int)strlen(x->key));
    for (unsigned i = 0; i < x->n; i++)
        width = MR_MAX(width, (int)strlen(x->value[i]));
    return width;
}

/* One key: its values side by side, a line per policy. */
static void print_line(const struct mr_cli_sweep *sw)
{
    int first = MR_MAX(21, (int)strlen(sw->axis[0].key)), width = column_width(&sw->axis[0], 11);
    printf("%-*s", first, sw->axis[0].key);
    for (unsigned i = 0; i < sw->n; i++)
        printf(" %*s", width, mr_cli_sweep_value(sw, i, 0));
    printf("\n%-*s", first, "(bound)");
    for (unsigned i = 0; i < sw->n; i++)
        printf(" %*.2f", width, sw->studies[i].bounds.io_aware_s);
    putchar('\n');
    for (int p = 0; p < mr_policy_count(); p++) {
        if (!find_row(&sw->studies[0], p))
            continue;
        printf("%-*s", first, mr_policy_name((enum mr_policy_id)p));
        for (unsigned i = 0; i < sw->n; i++)
            print_time(find_row(&sw->studies[i], p), width);
        puts(is_partial(sw, p) ? "  not comparable: sees part of the data" : "");
    }
}

/* Several keys: a line per point, a column per policy. */
static void print_grid(const struct mr_cli_sweep *sw)
{
    for (unsigned x = 0; x < sw->n_axes; x++)
        printf("%*s ", column_width(&sw->axis[x], 6), sw->axis[x].key);
    printf("%11s", "(bound)");
    for (int p = 0; p < mr_policy_count(); p++)
        if (find_row(&sw->studies[0], p))
            printf(" %*s", MR_MAX(11, (int)strlen(mr_policy_name((enum mr_policy_id)p))),
                   mr_policy_name((enum mr_policy_id)p));
    putchar('\n');
    for (unsigned i = 0; i < sw->n; i++) {
        for (unsigned x = 0; x < sw->n_axes; x++)
            printf("%*s ", column_width(&sw->axis[x], 6), mr_cli_sweep_value(sw, i, x));
        printf("%11.2f", sw->studies[i].bounds.io_aware_s);
        for (int p = 0; p < mr_policy_count(); p++)
            if (find_row(&sw->studies[0], p))
                print_time(find_row(&sw->studies[i], p), MR_MAX(11, (int)strlen(mr_policy_name((enum mr_policy_id)p))));
        putchar('\n');
    }
    for (int p = 0; p < mr_policy_count(); p++)
        if (is_partial(sw, p))
            printf("%s is not comparable: it sees part of the data\n", mr_policy_name((enum mr_policy_id)p));
}

void mr_cli_print_sweep(const struct mr_cli_sweep *sw)
{
    printf("run time in seconds%s\n", sw->studies[0].seeds > 1 ? ", means over the seeds" : "");
    if (sw->n_axes == 1)
        print_line(sw);
    else
        print_grid(sw);
}

/* ---- JSON ---- */

json_t *mr_cli_sweep_json(const struct mr_cli_sweep *sw, bool thesis, unsigned seeds)
{
    json_t *points = json_array(), *keys = json_array();
    for (unsigned x = 0; x < sw->n_axes; x++)
        json_array_append_new(keys, json_string(sw->axis[x].key));
    for (unsigned i = 0; i < sw->n; i++) {
        json_t *values = json_object();
        for (unsigned x = 0; x < sw->n_axes; x++)
            json_object_set_new(values, sw->axis[x].key, json_string(mr_cli_sweep_value(sw, i, x)));
        json_t *point =
            json_pack("{s:o, s:o?}", "values", values, "result", mr_cli_study_json(&sw->studies[i], thesis, seeds));
        if (sw->n_axes == 1)
            json_object_set_new(point, "value", json_string(mr_cli_sweep_value(sw, i, 0)));
        json_array_append_new(points, point);
    }
    json_t *j = json_pack("{s:s, s:o, s:o}", "schema", "millrace.sim_sweep/1", "keys", keys, "points", points);
    if (sw->n_axes == 1)
        json_object_set_new(j, "key", json_string(sw->axis[0].key));
    return j;
}

/* ---- CSV ---- */

static void put_csv_text(const char *text)
{
    bool quote = text[strcspn(text, ",\"\n")] != '\0';
    if (quote)
        putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    if (quote)
        putchar('"');
}

void mr_cli_print_csv(const struct mr_cli_sweep *sw)
{
    for (unsigned x = 0; x < sw->n_axes; x++) {
        put_csv_text(sw->axis[x].key);
        putchar(',');
    }
    puts("policy,possible,comparable,time_s,time_min_s,time_max_s,bound_s,stall_s,pfs_bytes,peer_bytes,"
         "distinct_samples_per_epoch_ratio");
    for (unsigned i = 0; i < sw->n; i++)
        for (unsigned k = 0; k < sw->studies[i].n; k++) {
            const struct mr_study_row *row = &sw->studies[i].rows[k];
            const struct mr_sim_result *r = &row->mean;
            for (unsigned x = 0; x < sw->n_axes; x++) {
                put_csv_text(mr_cli_sweep_value(sw, i, x));
                putchar(',');
            }
            printf("%s,%d,%d,", mr_policy_name(r->policy), r->possible, mr_study_is_comparable(row));
            if (r->possible)
                printf("%.9g,%.9g,%.9g,%.9g,%.9g,%.0f,%.0f,%.6g\n", r->time_s, row->time_min_s, row->time_max_s,
                       sw->studies[i].bounds.io_aware_s, r->stall_s, r->pfs_mb * 1e6, r->peer_mb * 1e6, r->randomness);
            else
                printf(",,,%.9g,,,,\n", sw->studies[i].bounds.io_aware_s);
        }
}

/* ---- plot ---- */

int mr_cli_sweep_svg(const struct mr_cli_sweep *sw, struct mr_strbuf *out, struct mr_error *err)
{
    const struct mr_scenario *s = &sw->studies[0].scenario;
    struct mr_plot_line lines[MR_POLICY_MAX + 1];
    const char *x[MR_PLOT_POINTS_MAX];
    char title[256];
    double *y = calloc(3 * (MR_POLICY_MAX + 1) * (size_t)sw->n, sizeof(*y)), *row = y;
    unsigned n = 0;
    if (!y)
        return mr_error_set(err, -ENOMEM, "plot");
    for (unsigned i = 0; i < sw->n; i++) {
        x[i] = mr_cli_sweep_value(sw, i, 0);
        row[i] = sw->studies[i].bounds.io_aware_s;
    }
    lines[n++] = (struct mr_plot_line){.name = "lower bound", .y = row, .is_bound = true};
    for (int p = 0; p < mr_policy_count(); p++) {
        if (!find_row(&sw->studies[0], p))
            continue;
        row += 3 * sw->n;
        double *low = row + sw->n, *high = low + sw->n;
        for (unsigned i = 0; i < sw->n; i++) {
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
                                      .x_name = sw->axis[0].key,
                                      .y_name = "run time",
                                      .unit = "s",
                                      .n = sw->n,
                                      .x = x,
                                      .lines = lines,
                                      .n_lines = n};
    mr_line_plot_svg(&plot, out);
    free(y);
    return out->failed ? mr_error_set(err, -ENOMEM, "plot") : 0;
}
