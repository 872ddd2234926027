/* Sizes of calls: how many and how many bytes by size, and what a call of a size costs. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdio.h>

struct size_range {
    unsigned low, high; /* bins, inclusive */
    bool any;
};

static void widen(struct size_range *r, const struct mr_explain_sizes *s)
{
    for (unsigned k = 0; k < MR_EXPLAIN_SIZE_BINS; k++)
        if (s->ops[k]) {
            r->low = r->any ? MR_MIN(r->low, k) : k;
            r->high = r->any ? MR_MAX(r->high, k) : k;
            r->any = true;
        }
}

static struct mr_axis size_axis(const struct size_range *r)
{
    return (struct mr_axis){
        .low = exp2(r->low), .high = exp2(r->high + 1), .unit = MR_UNIT_BYTES, .log = true, .name = "size of a call"};
}

static void draw_amount(struct mr_page *p, const struct size_range *r, const char *title, const char *what,
                        enum mr_unit unit, const uint64_t *reads, const uint64_t *writes)
{
    double value[2][MR_EXPLAIN_SIZE_BINS], most = 0;
    unsigned n = r->high - r->low + 1;
    char text[MR_HUMAN_LEN], size[MR_HUMAN_LEN], tip[160];
    for (unsigned i = 0; i < n; i++) {
        value[0][i] = (double)reads[r->low + i];
        value[1][i] = (double)writes[r->low + i];
        most = fmax(most, value[0][i] + value[1][i]);
    }
    struct mr_chart c = {.out = p->b,
                         .height = 150,
                         .is_small = true,
                         .x = size_axis(r),
                         .y = {.high = mr_axis_end(most, unit), .unit = unit}};
    mr_strbuf_printf(p->b, "<div><h3>%s</h3>", title);
    mr_chart_open(&c, title, what);
    mr_chart_columns(&c, n, (struct mr_series[]){{"rd", value[0]}, {"wr", value[1]}}, 2, 0.15);
    for (unsigned i = 0; i < n; i++) {
        double from = exp2(r->low + i);
        if (!(value[0][i] + value[1][i] > 0))
            continue;
        int len = snprintf(tip, sizeof tip, "%s and more", mr_human_bytes(from, size));
        for (unsigned k = 0; k < 2; k++)
            if (value[k][i] > 0)
                len += snprintf(tip + len, sizeof tip - (size_t)len, "\n%s %s", k ? "written" : "read",
                                mr_unit_text(unit, value[k][i], text));
        mr_chart_band(&c, from, 2 * from, "hit", tip);
    }
    mr_chart_close(&c);
    mr_strbuf_puts(p->b, "</div>");
}

/* Mean time of a call by its size. */
static void draw_cost(struct mr_page *p, const struct size_range *r)
{
    const struct mr_explain_sizes *both[] = {&p->x->read_sizes, &p->x->write_sizes};
    double x[2][MR_EXPLAIN_SIZE_BINS], y[2][MR_EXPLAIN_SIZE_BINS], low = INFINITY, high = 0;
    unsigned n = r->high - r->low + 1;
    for (unsigned k = 0; k < 2; k++)
        for (unsigned i = 0; i < n; i++) {
            uint64_t ops = both[k]->ops[r->low + i], ns = both[k]->dur_ns[r->low + i];
            x[k][i] = exp2(r->low + i + 0.5);
            y[k][i] = ops && ns ? (double)ns / (double)ops / 1e9 : NAN;
            if (isfinite(y[k][i])) {
                low = fmin(low, y[k][i]);
                high = fmax(high, y[k][i]);
            }
        }
    if (!(high > 0))
        return;
    struct mr_chart c = {.out = p->b, .height = 150, .is_small = true, .x = size_axis(r)};
    c.y = (struct mr_axis){.low = pow(10, floor(log10(low))),
                           .high = pow(10, ceil(log10(high * 1.01))),
                           .unit = MR_UNIT_SECONDS,
                           .log = true};
    mr_strbuf_puts(p->b, "<div><h3>Time of a call</h3>");
    mr_chart_open(&c, "Latency by size", "Mean time of a call by its size; both axes are logarithmic.");
    static const char *const line[] = {"rd", "wr"}, *const dot[] = {"rd big", "wr big"};
    for (unsigned k = 0; k < 2; k++) {
        mr_chart_line(&c, n, x[k], y[k], line[k]);
        mr_chart_dots(&c, n, x[k], y[k], dot[k]);
        for (unsigned i = 0; i < n; i++) {
            char tip[96], text[MR_HUMAN_LEN], size[MR_HUMAN_LEN];
            if (!isfinite(y[k][i]))
                continue;
            snprintf(tip, sizeof tip, "%s of %s and more: %s", k ? "writes" : "reads",
                     mr_human_bytes(exp2(r->low + i), size), mr_unit_text(MR_UNIT_SECONDS, y[k][i], text));
            double reach = pow(c.y.high / c.y.low, 0.05);
            mr_chart_box(&c, exp2(r->low + i), exp2(r->low + i + 1), y[k][i] / reach, y[k][i] * reach, "hit", tip);
        }
    }
    mr_chart_close(&c);
    mr_strbuf_puts(p->b, "</div>");
}

static void put_latency_row(struct mr_page *p, const char *name, const struct mr_explain_sizes *s)
{
    uint64_t ops = s->zero;
    for (unsigned k = 0; k < MR_EXPLAIN_SIZE_BINS; k++)
        ops += s->ops[k];
    if (!ops)
        return;
    mr_strbuf_printf(p->b, "<tr><td>%s</td>", name);
    mr_html_cell(p->b, MR_UNIT_COUNT, (double)ops);
    mr_html_cell(p->b, MR_UNIT_COUNT, (double)s->zero);
    mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(s->p50_ns));
    mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(s->p95_ns));
    mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(s->p99_ns));
    mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(s->max_ns));
    mr_strbuf_puts(p->b, "<td>");
    for (unsigned i = 0; i < MR_MIN(s->top, 4); i++) {
        char size[MR_HUMAN_LEN], count[MR_HUMAN_LEN];
        mr_strbuf_printf(p->b, "%s%s × %s", i ? ", " : "", mr_human_count(s->top_ops[i], count),
                         mr_human_bytes((double)s->top_size[i], size));
    }
    mr_strbuf_puts(p->b, "</td></tr>\n");
}

void mr_page_sizes(struct mr_page *p)
{
    const struct mr_explain_sizes *r = &p->x->read_sizes, *w = &p->x->write_sizes;
    struct size_range range = {0};
    widen(&range, r);
    widen(&range, w);
    if (!range.any)
        return;
    mr_page_section(p->shell, "sizes", "Sizes",
                    "How large reads and writes were: many small calls pay the latency of storage again and again.");
    mr_legend_open(p->b);
    mr_legend_item(p->b, "rd", "read");
    mr_legend_item(p->b, "wr", "written");
    mr_legend_close(p->b);
    mr_strbuf_puts(p->b, "<div class=\"grid3\">");
    draw_amount(p, &range, "Calls", "Number of calls by size.", MR_UNIT_COUNT, r->ops, w->ops);
    draw_amount(p, &range, "Bytes", "Bytes by the size of the call.", MR_UNIT_BYTES, r->bytes, w->bytes);
    draw_cost(p, &range);
    mr_strbuf_puts(p->b, "</div>\n");
    mr_page_table(p->shell, NULL, "|#calls|#at the end of a file|#median|#95 %|#99 %|#longest|most frequent sizes");
    put_latency_row(p, "reads", r);
    put_latency_row(p, "writes", w);
    mr_page_table_end(p->shell);
    mr_page_section_end(p->shell);
}
