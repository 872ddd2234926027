/* The step strip: one column per step, stacked by what its time went to, the mean over ranks; with more steps than
 * columns fit, one column for several. Above each column a dot: its slowest step of a single rank. Below it the slowest
 * steps as a table. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From the bottom up: what never changes first, so that stalls stand out above it. */
enum { STALLS = MR_STALL_CAUSE_COUNT, PARTS = 5 + STALLS + 1 };
static const uint8_t below[] = {MR_TIME_COMPUTE, MR_TIME_COPY,  MR_TIME_STARTUP,
                                MR_TIME_LOGGING, MR_TIME_OTHER, MR_TIME_BARRIER};

struct strip {
    size_t columns;
    uint64_t first, last;    /* steps */
    double *part[PARTS];     /* seconds per step */
    double *total, *slowest; /* mean; and of the slowest single step */
    double *at;              /* columns + 1 times, seconds */
    uint32_t *worst;         /* index of that step */
    uint32_t *count;
};

static const char *part_css(unsigned k)
{
    return k < MR_ARRAY_LEN(below) ? mr_time_css(below[k])
           : k < PARTS - 1         ? mr_stall_css(k - MR_ARRAY_LEN(below))
                                   : mr_time_css(MR_TIME_CHECKPOINT);
}

static const char *part_text(unsigned k)
{
    return k < MR_ARRAY_LEN(below) ? mr_time_text(below[k])
           : k < PARTS - 1         ? mr_stall_text(k - MR_ARRAY_LEN(below))
                                   : mr_time_text(MR_TIME_CHECKPOINT);
}

static double part_of(const struct mr_explain_step *s, unsigned k)
{
    uint64_t ns = k < MR_ARRAY_LEN(below) ? s->ns[below[k]]
                  : k < PARTS - 1         ? s->stall[k - MR_ARRAY_LEN(below)]
                                          : s->ns[MR_TIME_CHECKPOINT];
    return (double)ns / 1e9;
}

static bool strip_alloc(struct strip *s)
{
    double *numbers = calloc(s->columns * (PARTS + 3) + 1, sizeof(double));
    uint32_t *indices = calloc(s->columns * 2, sizeof(uint32_t));
    s->total = numbers;
    s->worst = indices;
    if (!numbers || !indices)
        return false;
    s->slowest = numbers + s->columns;
    s->at = numbers + 2 * s->columns;
    for (unsigned k = 0; k < PARTS; k++)
        s->part[k] = numbers + (3 + k) * s->columns + 1;
    s->count = indices + s->columns;
    for (size_t i = 0; i <= s->columns; i++)
        s->at[i] = INFINITY;
    return true;
}

static void strip_done(struct strip *s)
{
    free(s->total);
    free(s->worst);
}

static size_t column_of(const struct strip *s, uint64_t step)
{
    return (size_t)((double)(step - s->first) * (double)s->columns / (double)(s->last - s->first + 1));
}

static void strip_add(struct strip *s, const struct mr_explain_step *e, uint32_t index)
{
    size_t i = MR_MIN(column_of(s, e->step), s->columns - 1);
    double lasts = (double)(e->end_ns - e->start_ns) / 1e9;
    for (unsigned k = 0; k < PARTS; k++)
        s->part[k][i] += part_of(e, k);
    s->at[i] = fmin(s->at[i], (double)e->start_ns / 1e9);
    s->count[i]++;
    if (lasts > s->slowest[i] || s->count[i] == 1) {
        s->slowest[i] = lasts;
        s->worst[i] = index;
    }
}

/* Means; and times of columns that no step fell into: those of the next. */
static void strip_finish(struct strip *s, double end)
{
    for (size_t i = 0; i < s->columns; i++)
        for (unsigned k = 0; k < PARTS; k++) {
            s->part[k][i] /= MR_MAX(s->count[i], 1);
            s->total[i] += s->part[k][i];
        }
    s->at[s->columns] = end;
    for (size_t i = s->columns; i-- > 0;)
        s->at[i] = fmin(s->at[i], s->at[i + 1]);
}

#define ALL_RANKS UINT32_MAX

/* Of all ranks, or of one. */
static bool strip_make(const struct mr_explanation *x, uint32_t rank, struct strip *s)
{
    *s = (struct strip){.first = UINT64_MAX};
    double end = 0;
    for (size_t i = 0; i < x->steps; i++) {
        s->first = MR_MIN(s->first, x->step[i].step);
        s->last = MR_MAX(s->last, x->step[i].step);
        end = fmax(end, (double)x->step[i].end_ns / 1e9);
    }
    uint64_t steps = s->last - s->first + 1;
    s->columns = (size_t)MR_MIN(steps, MR_PAGE_COLUMNS);
    if (!strip_alloc(s))
        return false;
    for (size_t i = 0; i < x->steps; i++)
        if (rank == ALL_RANKS || x->step[i].rank == rank)
            strip_add(s, &x->step[i], (uint32_t)i);
    strip_finish(s, end);
    return true;
}

/* ---- drawing ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *v, size_t n, double q)
{
    double *sorted = malloc(n * sizeof(double)), at = 0;
    if (sorted) {
        memcpy(sorted, v, n * sizeof(double));
        qsort(sorted, n, sizeof(double), by_value);
        at = sorted[(size_t)(q * (double)(n - 1))];
        free(sorted);
    }
    return at;
}

/* One step of ten minutes must not press a thousand of a second into a line: the axis ends where nearly all end. */
static double strip_top(const struct strip *s)
{
    double most = 0, usual = quantile(s->total, s->columns, 0.97);
    for (size_t i = 0; i < s->columns; i++)
        most = fmax(most, fmax(s->total[i], s->slowest[i]));
    double enough = fmax(1.5 * usual, 1.2 * quantile(s->slowest, s->columns, 0.6));
    return mr_axis_end(s->columns >= 20 && usual > 0 && most > 2 * enough ? enough : most, MR_UNIT_SECONDS);
}

static void tip_of_column(struct mr_page *p, const struct strip *s, size_t i, struct mr_strbuf *tip)
{
    const struct mr_explain_step *e = &p->x->step[s->worst[i]];
    double width = (double)(s->last - s->first + 1) / (double)s->columns;
    uint64_t from = s->first + (uint64_t)ceil((double)i * width - 1e-9),
             to = s->first + (uint64_t)ceil((double)(i + 1) * width - 1e-9) - 1;
    char text[MR_HUMAN_LEN], rank[MR_HUMAN_LEN];
    tip->len = 0;
    if (to > from)
        mr_strbuf_printf(tip, "steps %llu to %llu: mean %s\n", (unsigned long long)from, (unsigned long long)to,
                         mr_unit_text(MR_UNIT_SECONDS, s->total[i], text));
    else
        mr_strbuf_printf(tip, "step %llu, epoch %u: %s\n", (unsigned long long)from, e->epoch,
                         mr_unit_text(MR_UNIT_SECONDS, s->total[i], text));
    for (unsigned k = 0; k < PARTS; k++)
        if (s->part[k][i] > 0.005 * s->total[i])
            mr_strbuf_printf(tip, "  %s %s\n", part_text(k), mr_unit_text(MR_UNIT_SECONDS, s->part[k][i], text));
    if (s->count[i] > 1)
        mr_strbuf_printf(tip, "slowest: %s, ", mr_page_rank_name(p->x, e->rank, rank));
    if (to > from)
        mr_strbuf_printf(tip, "step %llu, ", (unsigned long long)e->step);
    if (s->count[i] > 1)
        mr_strbuf_printf(tip, "%s", mr_unit_text(MR_UNIT_SECONDS, s->slowest[i], text));
    if (e->batch != MR_TIME_UNKNOWN)
        mr_strbuf_printf(tip, "\nbatch %llu", (unsigned long long)e->batch);
    if (e->worker != UINT32_MAX)
        mr_strbuf_printf(tip, ", worker %u", e->worker < p->x->workers ? p->x->worker[e->worker].id : e->worker);
    if (e->phase == MR_EXPLAIN_EVAL)
        mr_strbuf_puts(tip, ", evaluation");
    if (e->file < p->x->files) {
        const char *path = p->x->file[e->file].path;
        size_t n = 0;
        for (const char *c = path; *c; c++)
            if (*c == '/' && c[1])
                n = (size_t)(c - path) + 1;
        mr_strbuf_printf(tip, "\nfile %.60s", path + n);
    }
}

static void draw_epochs(struct mr_page *p, const struct strip *s, struct mr_chart *c, bool names)
{
    size_t begin = 0;
    char text[32];
    if (p->x->step[s->worst[s->columns - 1]].epoch > 40 + p->x->step[s->worst[0]].epoch)
        return; /* stripes, not bands */
    for (size_t i = 1; i <= s->columns; i++) {
        uint32_t epoch = p->x->step[s->worst[begin]].epoch;
        if (i < s->columns && p->x->step[s->worst[i]].epoch == epoch)
            continue;
        double from = c->x.low + (double)begin * (c->x.high - c->x.low) / (double)s->columns,
               to = c->x.low + (double)i * (c->x.high - c->x.low) / (double)s->columns;
        snprintf(text, sizeof text, "epoch %u", epoch);
        bool whole = begin == 0 && i == s->columns;
        if (names && !whole && i - begin > s->columns / 16)
            mr_chart_note(c, from + 0.004 * (c->x.high - c->x.low), 0.955 * c->y.high, "start", text);
        else if (!names && !whole && epoch % 2)
            mr_chart_band(c, from, to, "odd", NULL);
        begin = i;
    }
}

/* The slowest single steps; where they are above the axis, at its end. */
static void draw_slowest(const struct strip *s, struct mr_chart *c)
{
    double *x = malloc(2 * s->columns * sizeof(double));
    for (size_t i = 0; x && i < s->columns; i++) {
        bool apart = s->slowest[i] > 1.02 * s->total[i];
        x[i] = c->x.low + ((double)i + 0.5) * (c->x.high - c->x.low) / (double)s->columns;
        x[s->columns + i] = !s->count[i] || !apart ? NAN : fmin(s->slowest[i], 0.993 * c->y.high);
    }
    if (x)
        mr_chart_dots(c, s->columns, x, x + s->columns, "small mark");
    free(x);
}

static void note_cut_off(const struct strip *s, struct mr_chart *c)
{
    size_t most = 0, cut = 0;
    char text[64], seconds[MR_HUMAN_LEN];
    for (size_t i = 0; i < s->columns; i++) {
        most = s->total[i] > s->total[most] ? i : most;
        cut += s->total[i] > c->y.high;
    }
    if (!cut)
        return;
    double at = ((double)most + 0.5) / (double)s->columns;
    snprintf(text, sizeof text, at < 0.8 ? "↖ up to %s" : "up to %s ↗",
             mr_unit_text(MR_UNIT_SECONDS, s->total[most], seconds));
    mr_chart_note(c, c->x.low + (at + (at < 0.8 ? 1 : -1) * 0.6 / (double)s->columns) * (c->x.high - c->x.low),
                  0.93 * c->y.high, at < 0.8 ? "start" : "end", text);
}

static double gap_of(size_t columns)
{
    return columns < 8 ? 0.6 : columns <= 120 ? 0.18 : columns <= 300 ? 0.12 : 0;
}

static void draw_strip(struct mr_page *p, const struct strip *s, bool several)
{
    struct mr_series series[PARTS];
    struct mr_chart c = {.out = p->b, .height = 260, .link = "step", .column_time = s->at, .columns = s->columns};
    struct mr_strbuf tip = {0};
    double dx = (double)(s->last - s->first + 1) / (double)s->columns;
    c.x = (struct mr_axis){
        .low = (double)s->first - 0.5, .high = (double)s->last + 0.5, .unit = MR_UNIT_COUNT, .name = "step"};
    c.y = (struct mr_axis){.high = strip_top(s), .unit = MR_UNIT_SECONDS};
    for (unsigned k = 0; k < PARTS; k++)
        series[k] = (struct mr_series){part_css(k), s->part[k]};
    mr_chart_open(&c, "Step strip",
                  "One column per step: compute at the bottom, data stall by its cause above, checkpoints on top.");
    draw_epochs(p, s, &c, false);
    mr_chart_columns(&c, s->columns, series, PARTS, gap_of(s->columns));
    draw_slowest(s, &c);
    for (size_t i = 0; i < s->columns; i++)
        if (s->count[i]) {
            tip_of_column(p, s, i, &tip);
            mr_chart_band(&c, c.x.low + (double)i * dx, c.x.low + (double)(i + 1) * dx, "hit",
                          tip.failed ? NULL : tip.text);
        }
    note_cut_off(s, &c);
    draw_epochs(p, s, &c, true);
    mr_chart_close(&c);
    mr_strbuf_done(&tip);
    mr_legend_open(p->b);
    for (unsigned k = 0; k < PARTS; k++) {
        double sum = 0;
        for (size_t i = 0; i < s->columns; i++)
            sum += s->part[k][i];
        if (sum > 0)
            mr_legend_item(p->b, part_css(k), part_text(k));
    }
    if (several || dx > 1)
        mr_strbuf_puts(p->b, "<li><i class=\"dot\"></i>slowest single step</li>");
    mr_legend_close(p->b);
}

/* ---- the slowest steps ---- */

#define SLOWEST 12
/* Of what is not compute, the class that took longest: MR_TIME_STALL where nothing took longer than the stall. */
static unsigned longest_wait(const struct mr_explain_step *e)
{
    unsigned most = MR_TIME_STALL;
    for (unsigned t = 0; t < MR_TIME_CLASS_COUNT; t++)
        if (t != MR_TIME_COMPUTE && e->ns[t] > e->ns[most])
            most = t;
    return most;
}

static void put_step_row(struct mr_page *p, const struct mr_explain_step *e)
{
    char name[MR_HUMAN_LEN];
    unsigned cause = mr_page_main_cause(e->stall);
    mr_strbuf_puts(p->b, "<tr>");
    mr_html_cell(p->b, MR_UNIT_COUNT, (double)e->step);
    mr_html_cell(p->b, MR_UNIT_COUNT, e->epoch);
    mr_strbuf_printf(p->b, "<td>%s</td>", mr_page_rank_name(p->x, e->rank, name));
    mr_html_cell(p->b, MR_UNIT_SECONDS, (double)(e->end_ns - e->start_ns) / 1e9);
    mr_html_cell(p->b, MR_UNIT_SECONDS, (double)e->ns[MR_TIME_STALL] / 1e9);
    unsigned other = longest_wait(e);
    if (other != MR_TIME_STALL)
        mr_strbuf_printf(p->b, "<td><i class=\"%s\"></i>%s</td>", mr_time_css(other), mr_time_text(other));
    else if (cause < MR_STALL_CAUSE_COUNT)
        mr_strbuf_printf(p->b, "<td><i class=\"%s\"></i>%s</td>", mr_stall_css(cause), mr_stall_text(cause));
    else
        mr_strbuf_puts(p->b, "<td>no stall</td>");
    mr_html_cell(p->b, MR_UNIT_SECONDS, (double)e->ns[MR_TIME_CHECKPOINT] / 1e9);
    mr_html_cell(p->b, MR_UNIT_BYTES, e->bytes == MR_TIME_UNKNOWN ? NAN : (double)e->bytes);
    mr_page_text_cell(p->shell, e->file < p->x->files ? p->x->file[e->file].path : NULL, 60);
    mr_strbuf_puts(p->b, "</tr>\n");
}

static void put_slowest(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    const struct mr_explain_step *top[SLOWEST] = {0};
    size_t n = 0;
    for (size_t i = 0; i < x->steps; i++) {
        const struct mr_explain_step *e = &x->step[i];
        uint64_t lasts = e->end_ns - e->start_ns;
        if (n == SLOWEST && lasts <= top[n - 1]->end_ns - top[n - 1]->start_ns)
            continue;
        size_t at = n < SLOWEST ? n++ : n - 1;
        for (; at && top[at - 1]->end_ns - top[at - 1]->start_ns < lasts; at--)
            top[at] = top[at - 1];
        top[at] = e;
    }
    mr_strbuf_puts(p->b, "<h3>Slowest steps</h3>\n");
    mr_page_table(p->shell, NULL,
                  "#step|#epoch|rank|#time|#stall|waited mostly for|#checkpoint|#read|file read last or longest");
    for (size_t i = 0; i < n; i++)
        put_step_row(p, top[i]);
    mr_page_table_end(p->shell);
}

static void put_head(struct mr_page *p)
{
    uint64_t first = UINT64_MAX, last = 0;
    char text[256];
    for (size_t i = 0; i < p->x->steps; i++) {
        first = MR_MIN(first, p->x->step[i].step);
        last = MR_MAX(last, p->x->step[i].step);
    }
    uint64_t steps = last - first + 1, each = (steps + MR_PAGE_COLUMNS - 1) / MR_PAGE_COLUMNS;
    int n = each > 1 ? snprintf(text, sizeof text, "One column for about %llu steps", (unsigned long long)each)
                     : snprintf(text, sizeof text, "One column per step");
    snprintf(text + n, sizeof text - (size_t)n,
             "%s. Grey is compute; the colours above it are time the accelerator "
             "waited, by cause.",
             p->x->ranks > 1 ? ", the mean of all ranks" : "");
    mr_page_section(p->shell, "steps", "Steps", text);
}

#define STRAGGLES 0.01 /* of the training that others lose to it */

/* A mean hides the rank that the others wait for: its steps have a picture of their own. */
static void draw_straggler(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    const struct mr_explain_culprit *c = x->culprits ? &x->culprit[0] : NULL;
    char rank[MR_HUMAN_LEN], lost[MR_HUMAN_LEN];
    struct strip s;
    if (!c || (double)c->lost_ns < STRAGGLES * (double)x->train_ns)
        return;
    mr_strbuf_printf(
        p->b,
        "<h3>The rank that others waited for: %s</h3><p class=\"cap\">The same for this rank alone. It came "
        "last in %llu steps, which cost the job %s.</p>\n",
        mr_page_rank_name(x, c->rank, rank), (unsigned long long)c->steps,
        mr_unit_text(MR_UNIT_SECONDS, (double)c->lost_ns / 1e9, lost));
    if (strip_make(x, c->rank, &s))
        draw_strip(p, &s, false);
    else
        p->b->failed = true;
    strip_done(&s);
}

void mr_page_steps(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    struct strip s;
    if (!x->steps) {
        mr_page_absent(p->shell, "No steps.",
                       x->facts.counters_only
                           ? "The source has counters only: neither steps nor stalls can be computed."
                           : "The trace has no training steps: neither annotations nor a loader that is known to us.");
        return;
    }
    put_head(p);
    mr_strbuf_puts(p->b, "<p class=\"cap zoomhint\" hidden>Drag across the picture to zoom; all pictures over time "
                         "follow. Double-click shows the whole run.</p>");
    if (strip_make(x, ALL_RANKS, &s))
        draw_strip(p, &s, x->ranks > 1);
    else
        p->b->failed = true;
    strip_done(&s);
    draw_straggler(p);
    put_slowest(p);
    mr_page_section_end(p->shell);
}
