/* Snippets: spans that the program named (annotations, TimeLogger's), their distribution and a timeline per thread. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BOXES 24

static void snippet_css(size_t i, char out[8])
{
    snprintf(out, 8, "a%zu", i % 6);
}

/* ---- distribution ---- */

static void draw_box(struct mr_chart *c, const struct mr_explain_snippet *s, size_t i)
{
    double row = (double)i, low = (double)s->min_ns / 1e9, high = (double)s->p99_ns / 1e9;
    char css[16], tip[256], t[5][MR_HUMAN_LEN], name[8];
    const uint64_t *at[] = {&s->min_ns, &s->p25_ns, &s->median_ns, &s->p75_ns, &s->p99_ns};
    for (unsigned k = 0; k < 5; k++)
        mr_unit_text(MR_UNIT_SECONDS, mr_ns_to_s(*at[k]), t[k]);
    snprintf(tip, sizeof tip, "least %s\n25 %% %s\nmedian %s\n75 %% %s\n99 %% %s", t[0], t[1], t[2], t[3], t[4]);
    snippet_css(i, name);
    snprintf(css, sizeof css, "%s box", name);
    low = fmax(low, c->x.low);
    mr_chart_box(c, low, high, row + 0.46, row + 0.54, "whisker", NULL);
    mr_chart_box(c, fmax(c->x.low, (double)s->p25_ns / 1e9), (double)s->p75_ns / 1e9, row + 0.18, row + 0.82, css,
                 NULL);
    double median = fmax(c->x.low, (double)s->median_ns / 1e9);
    mr_chart_box(c, median / 1.008, median * 1.008, row + 0.18, row + 0.82, name, NULL);
    mr_chart_box(c, c->x.low, c->x.high, row, row + 1, "hit", tip);
}

static void draw_boxes(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    size_t n = MR_MIN(x->snippets, BOXES);
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < n; i++) {
        if (x->snippet[i].min_ns)
            low = fmin(low, (double)x->snippet[i].min_ns / 1e9);
        high = fmax(high, (double)x->snippet[i].p99_ns / 1e9);
    }
    if (!(high > 0))
        return;
    low = fmin(low, high / 2);
    struct mr_chart c = {.out = p->b, .height = (double)n * 26, .wide_labels = true};
    c.x = (struct mr_axis){
        .low = fmax(1e-9, low * 0.8), .high = high * 1.25, .unit = MR_UNIT_SECONDS, .log = true, .name = "duration"};
    c.y = (struct mr_axis){.low = (double)n, .high = 0, .bare = true};
    mr_strbuf_puts(p->b, "<h3>Distribution</h3><p class=\"cap\">Box: the middle half of all durations, with the "
                         "median; line: from the least to the 99th percentile.</p>");
    mr_chart_open(&c, "Durations of snippets",
                  "One row per snippet: the middle half of its durations, the median, the range.");
    for (size_t i = 0; i < n; i++)
        draw_box(&c, &x->snippet[i], i);
    for (size_t i = 0; i < n; i++)
        mr_chart_row_name(&c, (double)i + 0.5, x->snippet[i].name);
    mr_chart_close(&c);
    mr_page_cut(p, n, x->snippets, "snippets");
}

/* ---- timeline ---- */

static void draw_threads(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    size_t rows = 0, n = MR_MIN(x->snippet_spans, 4000);
    for (size_t i = 0; i < n; i++) /* by thread, then time */
        rows += i == 0 || x->snippet_span[i].tid != x->snippet_span[i - 1].tid ||
                x->snippet_span[i].pid != x->snippet_span[i - 1].pid;
    size_t shown = MR_MIN(rows, MR_PAGE_LANES), row = 0;
    if (!shown)
        return;
    struct mr_chart c = {.out = p->b, .height = (double)shown * 20, .link = "time", .wide_labels = true};
    c.x = (struct mr_axis){
        .low = mr_page_training_s(x), .high = mr_page_seconds(x), .unit = MR_UNIT_SECONDS, .name = "time"};
    c.y = (struct mr_axis){.low = (double)shown, .high = 0, .bare = true};
    mr_strbuf_puts(p->b, "<h3>Timeline per thread</h3>");
    mr_chart_open(&c, "Snippets over time", "One row per thread: when it was in which snippet.");
    char name[MR_PAGE_LANES][MR_HUMAN_LEN] = {{0}};
    for (size_t i = 0; i < n; i++) {
        const struct mr_explain_snippet_span *s = &x->snippet_span[i];
        char css[8], tip[192], text[MR_HUMAN_LEN];
        if (i && (s->tid != s[-1].tid || s->pid != s[-1].pid))
            row++;
        if (row >= shown)
            break;
        snprintf(name[row], MR_HUMAN_LEN, s->pid == s->tid ? "process %u" : "%u / %u", s->pid, s->tid);
        snippet_css(s->snippet, css);
        snprintf(tip, sizeof tip, "%.100s: %s", s->snippet < x->snippets ? x->snippet[s->snippet].name : "",
                 mr_unit_text(MR_UNIT_SECONDS, (double)(s->end_ns - s->start_ns) / 1e9, text));
        if ((double)s->end_ns / 1e9 >= c.x.low)
            mr_chart_box(&c, fmax(c.x.low, (double)s->start_ns / 1e9), (double)s->end_ns / 1e9, (double)row + 0.15,
                         (double)row + 0.85, css, n <= 1500 ? tip : NULL);
    }
    for (size_t i = 0; i < shown; i++)
        mr_chart_row_name(&c, (double)i + 0.5, name[i]);
    mr_chart_close(&c);
    mr_legend_open(p->b);
    for (size_t i = 0; i < MR_MIN(x->snippets, 6); i++) {
        char css[8];
        snippet_css(i, css);
        mr_strbuf_printf(p->b, "<li><i class=\"%s\"></i>", css);
        mr_html_short(p->b, x->snippet[i].name, 40);
        mr_strbuf_puts(p->b, "</li>");
    }
    mr_legend_close(p->b);
    mr_page_cut(p, shown, rows, "threads");
}

void mr_page_snippets(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    if (!x->snippets)
        return;
    mr_page_section(p->shell, "snippets", "Named spans",
                    "Parts of the program that it named itself: how long each took, how often, and when.");
    draw_boxes(p);
    draw_threads(p);
    mr_strbuf_puts(p->b, "<div class=\"scroll\">");
    mr_page_table(p->shell, NULL, "category|name|#times|#in all|#least|#25 %|#median|#75 %|#99 %|#longest");
    for (size_t i = 0; i < MR_MIN(x->snippets, MR_PAGE_ROWS); i++) {
        const struct mr_explain_snippet *s = &x->snippet[i];
        mr_strbuf_puts(p->b, "<tr>");
        mr_page_text_cell(p->shell, s->category, 30);
        mr_page_text_cell(p->shell, s->name, 60);
        mr_html_cell(p->b, MR_UNIT_COUNT, (double)s->count);
        const uint64_t ns[] = {s->sum_ns, s->min_ns, s->p25_ns, s->median_ns, s->p75_ns, s->p99_ns, s->max_ns};
        for (unsigned k = 0; k < MR_ARRAY_LEN(ns); k++)
            mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(ns[k]));
        mr_strbuf_puts(p->b, "</tr>\n");
    }
    mr_page_table_end(p->shell);
    mr_strbuf_puts(p->b, "</div>");
    mr_page_section_end(p->shell);
}
