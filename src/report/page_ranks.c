/* Ranks: rank x time as heat maps, who made whom wait, and a table. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PARTS (MR_STALL_CAUSE_COUNT + MR_TIME_CLASS_COUNT)

/* ---- heat maps ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What full colour stands for: the most, or, where single cells tower over the others, what 99.5 % stay below. */
static double full_colour(const double *v, size_t n)
{
    double *sorted = malloc(n * sizeof(double)), most = 0, usual = 0;
    size_t known = 0;
    for (size_t i = 0; i < n; i++)
        if (v[i] > 0) {
            most = fmax(most, v[i]);
            if (sorted)
                sorted[known++] = v[i];
        }
    if (sorted && known) {
        qsort(sorted, known, sizeof(double), by_value);
        usual = sorted[(size_t)(0.995 * (double)(known - 1))];
    }
    free(sorted);
    return usual > 0 && most > 2 * usual ? usual : most;
}

struct heat_map {
    const char *title, *what;
    const double *value;
    enum mr_heat_hue hue;
    enum mr_unit unit;
    double factor; /* from a cell to the unit */
};

static void draw_heat(struct mr_page *p, const struct heat_map *m)
{
    const struct mr_explain_heat *h = &p->x->heat;
    uint32_t skip = mr_page_before_training(p->x, h->column_ns, h->columns), columns = h->columns - skip;
    size_t cells = (size_t)h->rows * h->columns;
    char text[MR_HUMAN_LEN];
    double most = full_colour(m->value, cells) * m->factor;
    if (m->unit == MR_UNIT_SHARE)
        most = 1;
    double *shades = malloc(cells * sizeof(double));
    if (!shades) {
        p->b->failed = true;
        return;
    }
    for (size_t i = 0; i < (size_t)h->rows * columns; i++) {
        double v = m->value[i / columns * h->columns + skip + i % columns];
        shades[i] = most > 0 ? v * m->factor / most : 0;
    }
    mr_strbuf_printf(p->b, "<h3>%s</h3>", m->title);
    struct mr_chart c = {.out = p->b, .height = fmax(56, fmin(230, 16.0 * h->rows)), .link = "time"};
    c.x = (struct mr_axis){.low = (double)skip * (double)h->column_ns / 1e9,
                           .high = (double)h->columns * (double)h->column_ns / 1e9,
                           .unit = MR_UNIT_SECONDS};
    c.y = (struct mr_axis){.low = (double)h->rows * h->ranks_per_row, .high = 0, .bare = true};
    mr_chart_open(&c, m->title, m->what);
    mr_chart_heat(&c, h->rows, columns, shades, m->hue, most, m->unit, h->ranks_per_row, p->x->ranks);
    for (unsigned k = 0, every = (h->rows + 7) / 8; k < h->rows; k += every) {
        char name[MR_HUMAN_LEN];
        uint32_t rank = k * h->ranks_per_row;
        mr_chart_row_name(&c, (k + 0.5) * h->ranks_per_row, mr_page_rank_name(p->x, rank, name));
    }
    mr_chart_close(&c);
    mr_strbuf_printf(p->b, "<div class=\"scale\">0 <u class=\"h%d\"></u> %s%s</div>\n", (int)m->hue,
                     mr_unit_text(m->unit, most, text), m->unit == MR_UNIT_SHARE ? " of the time" : " per rank");
    free(shades);
}

static bool has_any(const double *v, size_t n)
{
    for (size_t i = 0; v && i < n; i++)
        if (v[i] > 0)
            return true;
    return false;
}

static void draw_heats(struct mr_page *p)
{
    const struct mr_explain_heat *h = &p->x->heat;
    size_t cells = (size_t)h->rows * h->columns;
    double per_s = h->column_ns ? 1e9 / (double)h->column_ns / MR_MAX(h->ranks_per_row, 1) : 0;
    const struct heat_map maps[] = {{"Stalled", "Share of the time that each rank waited for data, over the run.",
                                     h->stall, MR_HEAT_RED, MR_UNIT_SHARE, 1},
                                    {"Read", "Bytes per second that each rank read, over the run.", h->read_bytes,
                                     MR_HEAT_BLUE, MR_UNIT_RATE, per_s},
                                    {"Written", "Bytes per second that each rank wrote, over the run.",
                                     h->written_bytes, MR_HEAT_GREEN, MR_UNIT_RATE, per_s}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(maps); i++)
        if (has_any(maps[i].value, cells))
            draw_heat(p, &maps[i]);
    if (h->ranks_per_row > 1)
        mr_strbuf_printf(p->b, "<p class=\"cap\">Each row is the mean of %u ranks.</p>\n", h->ranks_per_row);
}

/* ---- one bar per rank ---- */

/* What a rank's training went to: the stall by its causes. Returns how many parts there are. */
static unsigned parts_of(const struct mr_explain_rank *r, double part[], const char *css[], const char *text[])
{
    static const uint8_t order[] = {MR_TIME_COMPUTE, MR_TIME_COPY,    MR_TIME_STALL, MR_TIME_CHECKPOINT,
                                    MR_TIME_LOGGING, MR_TIME_BARRIER, MR_TIME_OTHER};
    unsigned n = 0;
    for (unsigned k = 0; k < MR_ARRAY_LEN(order); k++) {
        unsigned t = order[k];
        for (unsigned c = 0; t == MR_TIME_STALL && c < MR_STALL_CAUSE_COUNT; c++, n++) {
            css[n] = mr_stall_css(c);
            text[n] = mr_stall_text(c);
            part[n] = (double)r->stall[c];
        }
        if (t == MR_TIME_STALL)
            continue;
        css[n] = mr_time_css(t);
        text[n] = mr_time_text(t);
        part[n++] = (double)r->ns[t] - (t == MR_TIME_OTHER ? (double)r->after_ns : 0);
    }
    return n;
}

static void draw_bar(struct mr_chart *c, const struct mr_explain_rank *r, double row, double used[])
{
    double part[PARTS], at = 0, whole = (double)r->train_ns;
    const char *css[PARTS], *text[PARTS];
    unsigned n = parts_of(r, part, css, text);
    char tip[160], share[MR_HUMAN_LEN], seconds[MR_HUMAN_LEN];
    for (unsigned i = 0; i < n; i++) {
        if (!(part[i] > 0) || !(whole > 0))
            continue;
        snprintf(tip, sizeof tip, "%s: %s, %s", text[i], mr_unit_text(MR_UNIT_SHARE, part[i] / whole, share),
                 mr_unit_text(MR_UNIT_SECONDS, part[i] / 1e9, seconds));
        mr_chart_box(c, at, fmin(1, at + part[i] / whole), row + 0.12, row + 0.88, css[i], tip);
        at = fmin(1, at + part[i] / whole);
        used[i] += part[i];
    }
}

/* Ranks that wait at barriers for one that does not: the bar without a barrier is the straggler's. */
static void draw_bars(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    size_t every = (x->ranks + MR_PAGE_LANES - 1) / MR_PAGE_LANES, row = 0, rows = 0;
    uint32_t last = x->culprits ? x->culprit[0].rank : UINT32_MAX;
    double used[PARTS] = {0}, none[PARTS];
    const char *css[PARTS], *text[PARTS];
    for (size_t i = 0; i < x->ranks; i++)
        rows += i % every == 0 || i == last;
    mr_strbuf_puts(p->b, "<h3>Where the training of each rank went</h3>");
    struct mr_chart c = {.out = p->b, .height = 18 * (double)rows};
    c.x = (struct mr_axis){.high = 1, .unit = MR_UNIT_SHARE, .name = "share of its training"};
    c.y = (struct mr_axis){.low = (double)rows, .high = 0, .bare = true};
    mr_chart_open(&c, "Ranks", "One bar per rank: what the time of its training went to.");
    for (size_t i = 0; i < x->ranks; i++)
        if (i % every == 0 || i == last)
            draw_bar(&c, &x->rank[i], (double)row++, used);
    for (size_t i = 0, at = 0; i < x->ranks; i++) {
        char name[MR_HUMAN_LEN];
        if (i % every == 0 || i == last)
            mr_chart_row_name(&c, (double)at++ + 0.5, mr_page_rank_name(x, (uint32_t)i, name));
    }
    mr_chart_close(&c);
    mr_legend_open(p->b);
    unsigned n = parts_of(&x->rank[0], none, css, text);
    for (unsigned i = 0; i < n; i++)
        if (used[i] > 0)
            mr_legend_item(p->b, css[i], text[i]);
    mr_legend_close(p->b);
    mr_page_cut(p, rows, x->ranks, "ranks, evenly spread, and the one that came last,");
}

/* ---- who made whom wait ---- */

static void put_culprits(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    char name[MR_HUMAN_LEN];
    if (!x->culprits)
        return;
    mr_strbuf_puts(p->b, "<h3>Who made whom wait</h3><p class=\"cap\">Ranks that came last to a step's barrier while "
                         "others waited, and what they did meanwhile.</p>\n");
    mr_page_table(p->shell, NULL,
                  "rank|#steps it came last|#others waited, summed|#lost by the job|it was busy with|because of");
    for (size_t i = 0; i < MR_MIN(x->culprits, 20); i++) {
        const struct mr_explain_culprit *k = &x->culprit[i];
        unsigned best = 0, cause = mr_page_main_cause(k->stall);
        for (unsigned t = 0; t < MR_TIME_CLASS_COUNT; t++)
            best = k->cause[t] > k->cause[best] ? t : best;
        mr_strbuf_printf(p->b, "<tr><td>%s</td>", mr_page_rank_name(x, k->rank, name));
        mr_html_cell(p->b, MR_UNIT_COUNT, (double)k->steps);
        mr_html_cell(p->b, MR_UNIT_SECONDS, (double)k->waited_ns / 1e9);
        mr_html_cell(p->b, MR_UNIT_SECONDS, (double)k->lost_ns / 1e9);
        mr_strbuf_printf(p->b, "<td><i class=\"%s\"></i>%s</td><td>%s</td></tr>\n", mr_time_css(best),
                         mr_time_text(best),
                         best == MR_TIME_STALL && cause < MR_STALL_CAUSE_COUNT ? mr_stall_text(cause) : "");
    }
    mr_page_table_end(p->shell);
    mr_page_cut(p, MR_MIN(x->culprits, 20), x->culprits, "ranks");
}

/* ---- the table ---- */

static void put_rank_row(struct mr_page *p, uint32_t i)
{
    const struct mr_explain_rank *r = &p->x->rank[i];
    char name[MR_HUMAN_LEN];
    double whole = r->train_ns ? (double)r->train_ns : (double)(r->end_ns - r->start_ns);
    mr_strbuf_printf(p->b, "<tr><td data-v=\"%d\">%s</td>", r->rank, mr_page_rank_name(p->x, i, name));
    mr_page_text_cell(p->shell, r->host, 40);
    mr_html_cell(p->b, MR_UNIT_COUNT, (double)r->steps);
    static const uint8_t shares[] = {MR_TIME_COMPUTE, MR_TIME_STALL, MR_TIME_CHECKPOINT, MR_TIME_BARRIER};
    for (unsigned k = 0; k < MR_ARRAY_LEN(shares); k++)
        mr_html_cell(p->b, MR_UNIT_SHARE, whole > 0 && p->x->facts.has_steps ? (double)r->ns[shares[k]] / whole : NAN);
    bool calls = mr_page_has_calls(p->x), idle = isfinite(p->x->facts.accelerator_idle_share);
    mr_html_cell(p->b, MR_UNIT_SECONDS, idle ? mr_ns_to_s(r->accelerator_idle_ns) : NAN);
    mr_html_cell(p->b, MR_UNIT_BYTES, calls ? (double)r->read_bytes : NAN);
    mr_html_cell(p->b, MR_UNIT_BYTES, calls ? (double)r->written_bytes : NAN);
    mr_html_cell(p->b, MR_UNIT_COUNT, calls ? (double)(r->read_calls + r->write_calls + r->metadata_calls) : NAN);
    bool told = !mr_trust_complete(&p->x->trust); /* traces of other tools do not tell how a process ended */
    for (size_t k = 0; k < p->x->ranks; k++)
        told |= p->x->rank[k].ended;
    mr_strbuf_printf(p->b, "<td>%s</td></tr>\n",
                     r->ended ? "whole"
                     : told   ? "cut off"
                              : "<span class=\"unknown\">unknown</span>");
}

/* With more ranks than rows: evenly spread, and the worst. */
static void put_rank_table(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    size_t every = (x->ranks + MR_PAGE_ROWS - 1) / MR_PAGE_ROWS, shown = 0;
    mr_strbuf_puts(p->b, "<h3>All ranks</h3><div class=\"scroll\">\n");
    mr_page_table(
        p->shell, NULL,
        "rank|host|#steps|#compute|#data stall|#checkpoint|#barrier|#accelerator idle|#read|#written|#calls|trace");
    for (size_t i = 0; i < x->ranks; i++)
        if (i % every == 0 || i == x->worst_rank) {
            put_rank_row(p, (uint32_t)i);
            shown++;
        }
    mr_page_table_end(p->shell);
    mr_strbuf_puts(p->b, "</div>\n");
    mr_page_cut(p, shown, x->ranks, "ranks, evenly spread, and the worst,");
}

void mr_page_ranks(struct mr_page *p)
{
    if (p->x->ranks < 2)
        return;
    mr_page_section(p->shell, "ranks", "Ranks",
                    "One row per rank, time from left to right. Rows that differ are stragglers; columns that differ "
                    "are phases of the whole job.");
    if (p->x->facts.has_steps)
        draw_bars(p);
    draw_heats(p);
    put_culprits(p);
    put_rank_table(p);
    mr_page_section_end(p->shell);
}
