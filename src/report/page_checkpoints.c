/* Checkpoints: when each rank was blocked by saving or restoring, and how long the data took to be safe. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdio.h>

#define BARS 1500

/* Ranks are rows; with too many of them every n-th. */
static uint32_t row_step(const struct mr_explanation *x)
{
    size_t ranks = 0;
    for (size_t i = 0; i < x->checkpoints; i++)
        ranks = MR_MAX(ranks, x->checkpoint[i].rank + 1u);
    return (uint32_t)MR_MAX(1, (ranks + MR_PAGE_LANES - 1) / MR_PAGE_LANES);
}

static void tip_of(const struct mr_explanation *x, const struct mr_explain_checkpoint *k, bool drain, char *tip,
                   size_t cap)
{
    char name[MR_HUMAN_LEN], a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    double lasts =
        drain ? (double)(k->drain_end_ns - k->drain_start_ns) / 1e9 : (double)(k->end_ns - k->start_ns) / 1e9;
    snprintf(tip, cap, "%s: %s %s, %s", mr_page_rank_name(x, k->rank, name),
             drain        ? "drained in"
             : k->is_load ? "restored in"
                          : "blocked for",
             mr_unit_text(MR_UNIT_SECONDS, lasts, a), mr_human_bytes((double)k->bytes, b));
}

static void draw_gantt(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    uint32_t every = row_step(x), rows = 0;
    size_t of_shown = 0, every_bar;
    for (size_t i = 0; i < x->checkpoints; i++)
        if (x->checkpoint[i].rank % every == 0) {
            rows = MR_MAX(rows, x->checkpoint[i].rank / every + 1);
            of_shown++;
        }
    every_bar = of_shown / BARS + 1;
    struct mr_chart c = {.out = p->b, .height = fmax(40, rows * 20.0), .link = "time", .wide_labels = false};
    c.x = (struct mr_axis){.high = mr_page_seconds(x), .unit = MR_UNIT_SECONDS, .name = "time"};
    c.y = (struct mr_axis){.low = rows, .high = 0, .bare = true};
    mr_chart_open(&c, "Checkpoints",
                  "One row per rank: solid while the rank was blocked, light while data drained in the background.");
    size_t seen = 0;
    bool drains = false, loads = false;
    char tip[160], name[MR_HUMAN_LEN];
    for (size_t i = 0; i < x->checkpoints; i++) {
        const struct mr_explain_checkpoint *k = &x->checkpoint[i];
        if (k->rank % every || seen++ % every_bar)
            continue;
        uint32_t number = k->rank / every;
        double row = number;
        if (k->drain_end_ns != MR_TIME_UNKNOWN && k->drain_start_ns != MR_TIME_UNKNOWN) {
            tip_of(x, k, true, tip, sizeof tip);
            mr_chart_box(&c, (double)k->drain_start_ns / 1e9, (double)k->drain_end_ns / 1e9, row + 0.3, row + 0.7,
                         "t-checkpoint box", tip);
            drains = true;
        }
        tip_of(x, k, false, tip, sizeof tip);
        mr_chart_box(&c, (double)k->start_ns / 1e9, (double)k->end_ns / 1e9, row + 0.12, row + 0.88,
                     k->is_load ? "rd" : "t-checkpoint", tip);
        loads |= k->is_load;
    }
    for (uint32_t r = 0; r < rows; r += MR_MAX(1, rows / 24))
        mr_chart_row_name(&c, r + 0.5, mr_page_rank_name(x, r * every, name));
    mr_chart_close(&c);
    mr_legend_open(p->b);
    mr_legend_item(p->b, "t-checkpoint", "blocked by saving");
    if (loads)
        mr_legend_item(p->b, "rd", "blocked by restoring");
    if (drains)
        mr_strbuf_puts(p->b, "<li><i class=\"t-checkpoint half\"></i>draining in the background</li>");
    mr_legend_close(p->b);
}

static void put_row(struct mr_page *p, const struct mr_explain_checkpoint *k)
{
    char name[MR_HUMAN_LEN];
    double blocked = (double)(k->end_ns - k->start_ns) / 1e9;
    double drain = k->drain_end_ns == MR_TIME_UNKNOWN || k->drain_start_ns == MR_TIME_UNKNOWN
                       ? NAN
                       : (double)(k->drain_end_ns - k->drain_start_ns) / 1e9;
    mr_strbuf_printf(p->b, "<tr><td>%s</td><td>%s</td>", mr_page_rank_name(p->x, k->rank, name),
                     k->is_load ? "restore" : "save");
    mr_html_cell(p->b, MR_UNIT_SECONDS, (double)k->start_ns / 1e9);
    mr_html_cell(p->b, MR_UNIT_SECONDS, blocked);
    bool seen = k->bytes || k->write_ns || k->fsync_ns; /* else the trace has only the span around it */
    mr_html_cell(p->b, MR_UNIT_SECONDS, seen ? mr_ns_to_s(k->write_ns) : NAN);
    mr_html_cell(p->b, MR_UNIT_SECONDS, seen ? mr_ns_to_s(k->fsync_ns) : NAN);
    if (isfinite(drain))
        mr_html_cell(p->b, MR_UNIT_SECONDS, drain);
    else
        mr_strbuf_puts(p->b, "<td class=\"n\">none</td>");
    mr_html_cell(p->b, MR_UNIT_BYTES, seen ? (double)k->bytes : NAN);
    mr_html_cell(p->b, MR_UNIT_RATE, seen && blocked > 0 ? (double)k->bytes / blocked : NAN);
    mr_page_text_cell(p->shell, k->path, 50);
    mr_strbuf_puts(p->b, "</tr>\n");
}

void mr_page_checkpoints(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    if (!x->checkpoints) {
        if (x->facts.has_steps)
            mr_page_absent(p->shell, "No checkpoints.", "None was saved or restored in this trace.");
        return;
    }
    mr_page_section(p->shell, "checkpoints", "Checkpoints",
                    "When ranks were blocked by saving or restoring, and how long the data took to drain.");
    draw_gantt(p);
    mr_strbuf_puts(p->b, "<div class=\"scroll\">");
    mr_page_table(p->shell, NULL, "rank|what|#at|#blocked|#writing|#flushing|#draining|#bytes|#rate|file");
    for (size_t i = 0; i < MR_MIN(x->checkpoints, MR_PAGE_ROWS); i++)
        put_row(p, &x->checkpoint[i]);
    mr_page_table_end(p->shell);
    mr_strbuf_puts(p->b, "</div>");
    mr_page_cut(p, MR_MIN(x->checkpoints, MR_PAGE_ROWS), x->checkpoints, "checkpoints");
    mr_page_section_end(p->shell);
}
