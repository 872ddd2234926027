/* See history_text.h. */
#include "report/history_text.h"
#include "base/common.h"
#include "base/text_escape.h"
#include "report/html_text.h"
#include "report/page_shell.h"
#include "report/svg_chart.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME_MOST 28u
#define SERIES_DRAWN 12u

static const char *const verdict_key[] = {
#define KEY(name, key) key,
    MR_VERDICT_CLASSES(KEY)
#undef KEY
};

static const char *when_text(uint64_t ns, char out[32])
{
    time_t t = (time_t)(ns / MR_NS_PER_S);
    struct tm tm;
    if (!ns || !localtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%d %H:%M:%S", &tm))
        snprintf(out, 32, "-");
    return out;
}

static enum mr_unit unit_of(enum mr_compare_metric m)
{
    switch (mr_compare_metric_info[m].unit) {
    case MR_IN_SECONDS: return MR_UNIT_SECONDS;
    case MR_IN_SHARE: return MR_UNIT_SHARE;
    case MR_IN_BYTES: return MR_UNIT_BYTES;
    case MR_IN_BYTES_RATE: return MR_UNIT_RATE;
    case MR_IN_RATE: break;
    }
    return MR_UNIT_NUMBER;
}

static const char *doubt_of(const struct mr_compare_run *r)
{
    return r->simulated ? ", simulated" : r->incomplete ? ", incomplete" : r->untrusted ? ", not trusted" : "";
}

/* ---- text ---- */

static const char *cell(enum mr_compare_metric m, const struct mr_compare_run *r, char out[MR_HUMAN_LEN])
{
    return isnan(r->value[m]) ? "-" : mr_unit_text(unit_of(m), r->value[m], out);
}

static void put_entry(const struct mr_history_entry *e, struct mr_strbuf *o)
{
    char when[32], wall[MR_HUMAN_LEN], step[MR_HUMAN_LEN], data[MR_HUMAN_LEN], name[4 * NAME_MOST];
    const struct mr_compare_run *r = &e->run;
    size_t n = strlen(e->name), from = n > NAME_MOST ? n - (NAME_MOST - 2) : 0;
    snprintf(name, sizeof name, "%s%s", from ? ".." : "", e->name + from);
    mr_strbuf_printf(o, "%-19s  ", when_text(e->start_ns, when));
    if (e->error) {
        mr_strbuf_puts(o, "cannot be read: ");
        mr_strbuf_text(o, e->error);
    } else {
        char safe[4 * sizeof name];
        mr_strbuf_printf(o, "%-*s %10s %10s %8s  %s%s%s%s  ", (int)NAME_MOST, mr_text_escape(name, safe, sizeof safe),
                         cell(MR_COMPARE_WALL, r, wall), cell(MR_COMPARE_STEP, r, step),
                         cell(MR_COMPARE_STALL, r, data), verdict_key[r->verdict], r->best ? " " : "",
                         r->best ? r->best : "", doubt_of(r));
        mr_strbuf_text(o, e->path);
    }
    mr_strbuf_putc(o, '\n');
}

static void put_change(const struct mr_history *h, const struct mr_history_series *s, enum mr_history_metric m,
                       const struct mr_change_point *c, struct mr_strbuf *o)
{
    enum mr_compare_metric metric = mr_history_metric_of(m);
    char before[MR_HUMAN_LEN], after[MR_HUMAN_LEN], when[32];
    const struct mr_history_entry *e = &h->entry[s->entry[c->at]];
    bool better = (c->after > c->before) == (mr_compare_metric_info[metric].good > 0);
    mr_strbuf_puts(o, better ? " better  " : " WORSE   ");
    mr_strbuf_text(o, s->name);
    mr_strbuf_printf(o, ": %s %s -> %s", mr_compare_metric_info[metric].text,
                     mr_unit_text(unit_of(metric), c->before, before), mr_unit_text(unit_of(metric), c->after, after));
    if (unit_of(metric) != MR_UNIT_SHARE && c->before > 0)
        mr_strbuf_printf(o, " (%+.1f %%)", 100 * (c->after / c->before - 1));
    mr_strbuf_printf(o, " from %s on, ", when_text(e->start_ns, when));
    mr_strbuf_text(o, e->path);
    mr_strbuf_puts(o, c->p < 0.001 ? "  (p < 0.001)\n" : "  (p < 0.01)\n");
}

void mr_history_text(const struct mr_history *h, struct mr_strbuf *o)
{
    bool any = false;
    mr_strbuf_printf(o, "%-19s  %-*s %10s %10s %8s  %s\n", "when", (int)NAME_MOST, "what", "wall", "a step", "data",
                     "verdict, where");
    for (size_t i = 0; i < h->entries; i++)
        put_entry(&h->entry[i], o);
    for (size_t k = 0; k < h->series_count; k++)
        for (unsigned m = 0; m < MR_HISTORY_METRIC_COUNT; m++)
            for (size_t i = 0; i < h->series[k].metric[m].changes; i++) {
                if (!any)
                    mr_strbuf_puts(o, "\nchanges of level\n");
                any = true;
                put_change(h, &h->series[k], (enum mr_history_metric)m, &h->series[k].metric[m].change[i], o);
            }
    if (h->cut)
        mr_strbuf_printf(o, "\nonly the first %u runs are listed\n", MR_HISTORY_MOST);
}

/* ---- JSON ---- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *text_json(const char *text)
{
    struct mr_strbuf s = {0};
    if (!text)
        return json_null();
    mr_strbuf_text(&s, text);
    json_t *out = json_string(s.text ? s.text : "");
    mr_strbuf_done(&s);
    return out;
}

static json_t *entry_json(const struct mr_history_entry *e)
{
    json_t *o = json_pack("{s:o,s:o}", "path", text_json(e->path), "start_s", number((double)e->start_ns / 1e9));
    if (e->error) {
        json_object_set_new(o, "error", text_json(e->error));
        return o;
    }
    const struct mr_compare_run *r = &e->run;
    json_object_set_new(o, "name", text_json(e->name));
    json_object_set_new(o, "ranks", json_integer((json_int_t)r->work.ranks));
    json_object_set_new(o, "verdict", json_string(verdict_key[r->verdict]));
    json_object_set_new(o, "headline", text_json(r->headline));
    json_object_set_new(o, "best_finding", text_json(r->best));
    json_object_set_new(o, "complete", json_boolean(!r->incomplete));
    json_object_set_new(o, "trusted", json_boolean(!r->untrusted));
    json_object_set_new(o, "simulated", json_boolean(r->simulated));
    for (int m = 0; m < MR_COMPARE_METRIC_COUNT; m++)
        json_object_set_new(o, mr_compare_metric_info[m].key, number(r->value[m]));
    return o;
}

json_t *mr_history_json(const struct mr_history *h)
{
    json_t *runs = json_array(), *changes = json_array();
    for (size_t i = 0; i < h->entries; i++)
        json_array_append_new(runs, entry_json(&h->entry[i]));
    for (size_t k = 0; k < h->series_count; k++)
        for (unsigned m = 0; m < MR_HISTORY_METRIC_COUNT; m++)
            for (size_t i = 0; i < h->series[k].metric[m].changes; i++) {
                const struct mr_history_series *s = &h->series[k];
                const struct mr_change_point *c = &s->metric[m].change[i];
                const char *key = mr_compare_metric_info[mr_history_metric_of((enum mr_history_metric)m)].key;
                json_array_append_new(changes,
                                      json_pack("{s:o,s:I,s:s,s:o,s:o,s:o,s:o}", "name", text_json(s->name), "ranks",
                                                (json_int_t)s->ranks, "metric", key, "path",
                                                text_json(h->entry[s->entry[c->at]].path), "before", number(c->before),
                                                "after", number(c->after), "p", number(c->p)));
            }
    return json_pack("{s:s,s:b,s:o,s:o}", "schema", "millrace.ls/1", "whole", !h->cut, "runs", runs, "changes",
                     changes);
}

/* ---- the page ---- */

static void draw_metric(struct mr_page_shell *p, const struct mr_history *h, const struct mr_history_series *s,
                        enum mr_history_metric m, double *y)
{
    enum mr_compare_metric metric = mr_history_metric_of(m);
    double most = 0;
    for (size_t i = 0; i < s->entries; i++) {
        y[i] = h->entry[s->entry[i]].run.value[metric];
        most = fmax(most, isnan(y[i]) ? 0 : y[i]);
    }
    if (!(most > 0))
        return;
    const char *title = mr_compare_metric_info[metric].text;
    struct mr_chart c = {.out = &p->body,
                         .height = 120,
                         .x = {.high = (double)s->entries, .unit = MR_UNIT_COUNT, .name = "run"},
                         .y = {.high = mr_axis_end(most, unit_of(metric)), .unit = unit_of(metric)}};
    mr_strbuf_printf(&p->body, "<h4>%s</h4>\n", title);
    mr_chart_open(&c, title, "One column per run, by time; a line for each level.");
    mr_chart_columns(&c, s->entries, &(struct mr_series){"a0", y}, 1, 0.4);
    size_t changes = s->metric[m].changes;
    for (size_t k = 0; k <= changes && changes; k++) {
        const struct mr_change_point *at = s->metric[m].change;
        double from = k ? (double)at[k - 1].at : 0, to = k < changes ? (double)at[k].at : (double)s->entries;
        double level = k ? at[k - 1].after : at[0].before;
        mr_chart_line(&c, 2, (double[]){from, to}, (double[]){level, level}, "a1");
    }
    for (size_t i = 0; i < s->entries; i++) {
        struct mr_strbuf tip = {0};
        char when[32], v[MR_HUMAN_LEN];
        const struct mr_history_entry *e = &h->entry[s->entry[i]];
        mr_strbuf_printf(&tip, "%s, %s: %.300s", mr_unit_text(unit_of(metric), y[i], v), when_text(e->start_ns, when),
                         e->path);
        mr_chart_band(&c, (double)i, (double)i + 1, "hit", tip.text ? tip.text : "");
        mr_strbuf_done(&tip);
    }
    mr_chart_close(&c);
}

static int put_series(struct mr_page_shell *p, const struct mr_history *h, const struct mr_history_series *s)
{
    double *value = malloc((s->entries + 1) * sizeof(*value));
    if (!value)
        return -ENOMEM;
    mr_strbuf_puts(&p->body, "<h3>");
    mr_html_name(&p->body, s->name, 80);
    mr_strbuf_printf(&p->body, ", %llu %s, %zu %s</h3>\n", (unsigned long long)s->ranks,
                     mr_plural(s->ranks, "rank", "ranks"), s->entries, mr_plural(s->entries, "run", "runs"));
    for (unsigned m = 0; m < MR_HISTORY_METRIC_COUNT; m++) {
        for (size_t i = 0; i < s->metric[m].changes; i++) {
            struct mr_strbuf line = {0};
            put_change(h, s, (enum mr_history_metric)m, &s->metric[m].change[i], &line);
            mr_strbuf_puts(&p->body, "<p class=\"note\">");
            mr_html_text(&p->body, line.text ? line.text : "");
            mr_strbuf_puts(&p->body, "</p>\n");
            mr_strbuf_done(&line);
        }
        draw_metric(p, h, s, (enum mr_history_metric)m, value);
    }
    free(value);
    return 0;
}

static void put_row(struct mr_page_shell *p, const struct mr_history_entry *e)
{
    char when[32];
    mr_strbuf_puts(&p->body, "<tr>");
    mr_page_text_cell(p, when_text(e->start_ns, when), 32);
    mr_page_text_cell(p, e->name, 60);
    for (unsigned m = 0; m < MR_HISTORY_METRIC_COUNT; m++) {
        enum mr_compare_metric metric = mr_history_metric_of((enum mr_history_metric)m);
        mr_html_cell(&p->body, unit_of(metric), e->error ? (double)NAN : e->run.value[metric]);
    }
    if (e->error) {
        mr_page_text_cell(p, e->error, 120);
    } else {
        struct mr_strbuf v = {0};
        mr_strbuf_printf(&v, "%s%s%s%s", verdict_key[e->run.verdict], e->run.best ? " " : "",
                         e->run.best ? e->run.best : "", doubt_of(&e->run));
        mr_page_text_cell(p, v.text, 80);
        mr_strbuf_done(&v);
    }
    mr_page_text_cell(p, e->path, 120);
    mr_strbuf_puts(&p->body, "</tr>\n");
}

int mr_history_page(const char *path, const char *subject, const struct mr_history *h, struct mr_error *err)
{
    struct mr_page_shell p = {.title = "millrace ls", .subject = subject};
    size_t drawn = 0;
    int rc = 0;
    mr_page_section(&p, "trends", "Trends",
                    "Complete runs of one workload or program with as many ranks, by time. A change of level is called "
                    "where chance explains it in less than 1 of 100 series.");
    for (size_t k = 0; k < h->series_count && drawn < SERIES_DRAWN && !rc; k++)
        if (h->series[k].entries > 1) {
            rc = put_series(&p, h, &h->series[k]);
            drawn++;
        }
    if (!drawn)
        mr_strbuf_puts(&p.body, "<p>No program or workload ran twice.</p>\n");
    mr_page_section_end(&p);
    mr_page_section(&p, "runs", "Runs", NULL);
    mr_page_table(&p, NULL, "When|What|#Step, mean|#Wall|#Data stall|#Samples/s|Verdict|Where");
    for (size_t i = 0; i < h->entries && p.body.len < MR_PAGE_BYTES_MAX - 100000; i++)
        put_row(&p, &h->entry[h->entries - 1 - i]);
    mr_page_table_end(&p);
    mr_page_section_end(&p);
    rc = rc ? mr_error_set(err, rc, "cannot write '%s'", path) : mr_page_save(&p, path, err);
    mr_page_done(&p);
    return rc;
}
