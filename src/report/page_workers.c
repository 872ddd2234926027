/* Workers: what each spent its time on, and what every thread did during one slow step. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

/* ---- one bar per worker ---- */

struct share {
    const char *css, *text;
    double ns;
};

#define SHARES (MR_STALL_CAUSE_COUNT + 2)

static double shares_of(const struct mr_explain_worker *w, struct share out[SHARES])
{
    double sum = 0;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        out[c] = (struct share){mr_stall_css(c), mr_stall_text(c), (double)w->ns[c]};
    out[MR_STALL_CAUSE_COUNT] = (struct share){"blocked", "batch ready, not taken", (double)w->blocked_ns};
    out[MR_STALL_CAUSE_COUNT + 1] = (struct share){"idle", "nothing to do", (double)w->idle_ns};
    for (unsigned i = 0; i < SHARES; i++)
        sum += out[i].ns;
    return sum;
}

/* Of a worker that was started for one epoch: which; -1: it lived on, or there is one epoch. */
static int64_t epoch_of(const struct mr_explanation *x, const struct mr_explain_worker *w)
{
    int64_t first = -1, last = -1, middle = -1;
    uint64_t at = w->start_ns + (w->end_ns - w->start_ns) / 2;
    for (size_t i = 0; i < x->steps; i++) {
        const struct mr_explain_step *s = &x->step[i];
        if (s->rank != w->rank)
            continue;
        first = first < 0 ? s->epoch : first;
        last = s->epoch;
        middle = s->start_ns <= at ? s->epoch : middle;
    }
    bool lives_on = x->train_ns && w->end_ns - w->start_ns > x->train_ns / 2;
    return first == last || lives_on ? -1 : middle;
}

static void worker_name(const struct mr_explanation *x, const struct mr_explain_worker *w, char *out, size_t cap)
{
    if (x->ranks > 1)
        snprintf(out, cap, "r%d %s", w->rank < x->ranks ? x->rank[w->rank].rank : (int)w->rank,
                 w->label ? w->label : "worker");
    else
        snprintf(out, cap, "%s", w->label ? w->label : "worker");
    size_t len = strlen(out);
    if (epoch_of(x, w) >= 0)
        snprintf(out + len, cap - len, x->ranks > 1 ? " e%lld" : ", epoch %lld", (long long)epoch_of(x, w));
}

static void draw_row(struct mr_page *p, struct mr_chart *c, const struct mr_explain_worker *w, double row)
{
    struct share part[SHARES];
    double whole = shares_of(w, part), at = 0;
    char tip[160], text[MR_HUMAN_LEN], seconds[MR_HUMAN_LEN];
    for (unsigned i = 0; whole > 0 && i < SHARES; i++) {
        if (!(part[i].ns > 0))
            continue;
        snprintf(tip, sizeof tip, "%s: %s, %s\n%llu batches", part[i].text,
                 mr_unit_text(MR_UNIT_SHARE, part[i].ns / whole, text),
                 mr_unit_text(MR_UNIT_SECONDS, part[i].ns / 1e9, seconds), (unsigned long long)w->batches);
        mr_chart_box(c, at, at + part[i].ns / whole, row + 0.14, row + 0.86, part[i].css, tip);
        at += part[i].ns / whole;
    }
    (void)p;
}

static void draw_workers(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    size_t every = (x->workers + MR_PAGE_LANES - 1) / MR_PAGE_LANES, rows = (x->workers + every - 1) / every;
    double used[SHARES] = {0};
    struct share part[SHARES];
    struct mr_chart c = {.out = p->b, .height = (double)rows * 20, .wide_labels = true};
    c.x = (struct mr_axis){.high = 1, .unit = MR_UNIT_SHARE, .name = "share of its time"};
    c.y = (struct mr_axis){.low = (double)rows, .high = 0, .bare = true};
    mr_chart_open(&c, "Workers", "One bar per worker: how its time was spent.");
    for (size_t i = 0, row = 0; i < x->workers; i += every, row++) {
        draw_row(p, &c, &x->worker[i], (double)row);
        shares_of(&x->worker[i], part);
        for (unsigned k = 0; k < SHARES; k++)
            used[k] += part[k].ns;
    }
    for (size_t i = 0, row = 0; i < x->workers; i += every, row++) {
        char name[64];
        worker_name(x, &x->worker[i], name, sizeof name);
        mr_chart_row_name(&c, (double)row + 0.5, name);
    }
    mr_chart_close(&c);
    mr_legend_open(p->b);
    for (unsigned k = 0; k < SHARES; k++)
        if (used[k] > 0)
            mr_legend_item(p->b, part[k].css, part[k].text);
    mr_legend_close(p->b);
    mr_page_cut(p, rows, x->workers, "workers, evenly spread,");
}

/* ---- the table ---- */

static void put_table(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    char rank[MR_HUMAN_LEN];
    size_t n = MR_MIN(x->workers, MR_PAGE_ROWS);
    mr_strbuf_puts(p->b, "<details class=\"more\"><summary>All workers as a table</summary><div class=\"scroll\">");
    mr_page_table(
        p->shell, NULL,
        "rank|worker|epoch|#process|#batches|#storage|#open/stat|#decode|#transform|#blocked|#idle|#CPU time");
    for (size_t i = 0; i < n; i++) {
        const struct mr_explain_worker *w = &x->worker[i];
        mr_strbuf_printf(p->b, "<tr><td>%s</td>", mr_page_rank_name(x, w->rank, rank));
        mr_page_text_cell(p->shell, w->label, 30);
        if (epoch_of(x, w) >= 0)
            mr_strbuf_printf(p->b, "<td>%lld</td>", (long long)epoch_of(x, w));
        else
            mr_strbuf_puts(p->b, "<td>all</td>");
        mr_html_cell(p->b, MR_UNIT_NUMBER, w->pid);
        mr_html_cell(p->b, MR_UNIT_COUNT, (double)w->batches);
        static const uint8_t cause[] = {MR_STALL_STORAGE, MR_STALL_METADATA, MR_STALL_DECODE, MR_STALL_TRANSFORM};
        for (unsigned k = 0; k < MR_ARRAY_LEN(cause); k++)
            mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(w->ns[cause[k]]));
        mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(w->blocked_ns));
        mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(w->idle_ns));
        mr_html_cell(p->b, MR_UNIT_SECONDS, mr_ns_to_s(w->cpu_ns));
        mr_strbuf_puts(p->b, "</tr>\n");
    }
    mr_page_table_end(p->shell);
    mr_strbuf_puts(p->b, "</div></details>\n");
    mr_page_cut(p, n, x->workers, "workers");
}

/* ---- one slow step ---- */

static void lane_words(unsigned kind, const char **css, const char **text)
{
    bool stall = kind < MR_STALL_CAUSE_COUNT;
    *css = stall ? mr_stall_css(kind) : mr_time_css(kind - MR_STALL_CAUSE_COUNT);
    *text = stall ? mr_stall_text(kind) : mr_time_text(kind - MR_STALL_CAUSE_COUNT);
}

static void draw_lanes(struct mr_page *p)
{
    const struct mr_explain_lanes *l = &p->x->lanes;
    size_t rows = MR_MIN(l->lanes, 64), n = MR_MIN(l->spans, 2000);
    double from = (double)l->start_ns, to = (double)l->end_ns;
    bool used[MR_STALL_CAUSE_COUNT + MR_TIME_CLASS_COUNT] = {false};
    char rank[MR_HUMAN_LEN], tip[160], text[MR_HUMAN_LEN];
    for (size_t i = 0; i < n; i++) {
        from = fmin(from, (double)l->span[i].start_ns);
        to = fmax(to, (double)l->span[i].end_ns);
    }
    if (!rows || !n || !(to > from))
        return;
    mr_strbuf_printf(p->b, "<h3>Inside a slow step</h3><p class=\"cap\">Step %llu", (unsigned long long)l->step);
    if (p->x->ranks > 1)
        mr_strbuf_printf(p->b, " of %s", mr_page_rank_name(p->x, l->rank, rank));
    mr_strbuf_puts(p->b, ", and what every thread did until its batch was there. Shaded: the step.</p>\n");
    struct mr_chart c = {.out = p->b, .height = (double)rows * 22, .wide_labels = true};
    c.x = (struct mr_axis){.high = (to - from) / 1e9, .unit = MR_UNIT_SECONDS, .name = "time"};
    c.y = (struct mr_axis){.low = (double)rows, .high = 0, .bare = true};
    mr_chart_open(&c, "Inside a slow step", "One row per thread: what it did, over time.");
    mr_chart_band(&c, ((double)l->start_ns - from) / 1e9, ((double)l->end_ns - from) / 1e9, "odd", NULL);
    for (size_t i = 0; i < n; i++) {
        const struct mr_explain_lane_span *s = &l->span[i];
        const char *css, *word;
        if (s->lane >= rows || s->kind >= MR_ARRAY_LEN(used))
            continue;
        lane_words(s->kind, &css, &word);
        int len = snprintf(tip, sizeof tip, "%s %s", word,
                           mr_unit_text(MR_UNIT_SECONDS, (double)(s->end_ns - s->start_ns) / 1e9, text));
        if (s->batch != MR_TIME_UNKNOWN)
            snprintf(tip + len, sizeof tip - (size_t)len, "\nbatch %llu", (unsigned long long)s->batch);
        mr_chart_box(&c, ((double)s->start_ns - from) / 1e9, ((double)s->end_ns - from) / 1e9, s->lane + 0.14,
                     s->lane + 0.86, css, tip);
        used[s->kind] = true;
    }
    for (size_t i = 0; i < rows; i++)
        mr_chart_row_name(&c, (double)i + 0.5, l->name[i] ? l->name[i] : "");
    mr_chart_close(&c);
    mr_legend_open(p->b);
    for (unsigned k = 0; k < MR_ARRAY_LEN(used); k++)
        if (used[k]) {
            const char *css, *word;
            lane_words(k, &css, &word);
            mr_legend_item(p->b, css, word);
        }
    mr_legend_close(p->b);
}

void mr_page_workers(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    if (!x->workers && !x->lanes.lanes) {
        if (x->facts.has_steps)
            mr_page_absent(p->shell, "No workers.",
                           "The trace shows no thread or process that prepares batches: the training process reads "
                           "itself, or workers were not traced.");
        return;
    }
    mr_page_section(p->shell, "workers", "Workers",
                    "The threads or processes that prepare batches: what each spent its time on. A worker that is "
                    "mostly idle could do more; one that never is idle is the limit.");
    if (x->workers)
        draw_workers(p);
    draw_lanes(p);
    if (x->workers)
        put_table(p);
    mr_page_section_end(p->shell);
}
