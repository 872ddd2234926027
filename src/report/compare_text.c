/* A comparison on the terminal: see compare_text.h. One table per side against the base, at most 100 columns. */
#include "report/compare_text.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "base/text_escape.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NAME_WIDTH 23
#define SPAN_CELL 12
#define CELL 20

/* In what a metric is shown: the base decides, so that both columns have the same unit. */
struct scale {
    double by;
    const char *unit;
};

static struct scale pick(const struct scale *s, size_t n, double x)
{
    size_t i = 0;
    while (i + 1 < n && fabs(x) < s[i].by)
        i++;
    return s[i];
}

static struct scale scale_of(int metric, double x)
{
    static const struct scale seconds[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
    static const struct scale bytes[] = {{0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}, {1, "B"}};
    static const struct scale rates[] = {
        {0x1p40, "TiB/s"}, {0x1p30, "GiB/s"}, {0x1p20, "MiB/s"}, {0x1p10, "KiB/s"}, {1, "B/s"}};
    switch (mr_compare_metric_info[metric].unit) {
    case MR_IN_SECONDS: return pick(seconds, MR_ARRAY_LEN(seconds), x);
    case MR_IN_BYTES: return pick(bytes, MR_ARRAY_LEN(bytes), x);
    case MR_IN_BYTES_RATE: return pick(rates, MR_ARRAY_LEN(rates), x);
    case MR_IN_SHARE: return (struct scale){0.01, "%"};
    case MR_IN_RATE: break;
    }
    return (struct scale){1, ""};
}

/* Four digits, more before the point when there are. */
static int decimals(double x)
{
    x = fabs(x);
    return x >= 1000 ? 0 : x >= 100 ? 1 : x >= 10 ? 2 : 3;
}

static void cell_text(const struct mr_compare_cell *x, const struct scale *s, char out[64])
{
    double v = x->mean / s->by;
    int d = MR_MAX(1, decimals(v));
    if (!x->n)
        snprintf(out, 64, "unknown");
    else if (x->n == 1 || x->sd == 0 || !isfinite(x->sd))
        snprintf(out, 64, "%.*f", d, v);
    else
        snprintf(out, 64, "%.*f +/- %.*f", d, v, d, x->sd / s->by);
}

static void change_text(int metric, const struct mr_compare_row *row, size_t side, char out[64])
{
    const struct mr_compare_change *x = &row->change[side];
    if (!isfinite(x->change))
        snprintf(out, 64, row->cell[0].n && row->cell[side].n ? "from 0" : "unknown");
    else if (x->verdict == MR_COMPARE_SAME && x->change == 0)
        snprintf(out, 64, "same");
    else if (mr_compare_metric_info[metric].unit == MR_IN_SHARE)
        snprintf(out, 64, "%+.1f pp", 100 * x->change);
    else
        snprintf(out, 64, "%+.1f %%", 100 * x->change);
}

static const char *unit_of_change(int metric)
{
    return mr_compare_metric_info[metric].unit == MR_IN_SHARE ? "pp" : "%";
}

static void verdict_text(const struct mr_compare *c, int metric, const struct mr_compare_change *x, char out[96])
{
    out[0] = '\0';
    switch ((enum mr_compare_verdict)x->verdict) {
    case MR_COMPARE_BETTER:
    case MR_COMPARE_WORSE:
        snprintf(out, 96, x->p < 0.001 ? "%s  (p < 0.001)" : "%s  (p = %.3f)",
                 x->verdict == MR_COMPARE_BETTER ? "better" : "worse", x->p);
        break;
    case MR_COMPARE_SAME:
        if (x->change != 0)
            snprintf(out, 96, "same, within %.2g %s", 100 * c->least, unit_of_change(metric));
        break;
    case MR_COMPARE_UNDECIDED:
        if (!isfinite(x->detectable))
            snprintf(out, 96, "not judged: too few figures");
        else
            snprintf(out, 96, "no difference detectable below %.*f %s", x->detectable < 0.1, 100 * x->detectable,
                     unit_of_change(metric));
        break;
    case MR_COMPARE_ONE_RUN: snprintf(out, 96, "not judged: one run"); break;
    case MR_COMPARE_OTHER_WORK: snprintf(out, 96, "not comparable: other work"); break;
    case MR_COMPARE_PREDICTED: snprintf(out, 96, "predicted"); break;
    case MR_COMPARE_NOT_JUDGED: break;
    }
}

/* Whether AU reaches what the workload asks for: said beside the verdict, because it is what MLPerf asks. */
static void target_text(const struct mr_compare *c, int metric, size_t side, char out[96])
{
    const struct mr_compare_run *r = &c->side[side].run.item[0];
    size_t at = strlen(out);
    if (metric == MR_COMPARE_AU && !isnan(r->au_target) && c->row[metric].cell[side].n)
        snprintf(out + at, 96 - at, "%s%s %.2f", at ? "; " : "",
                 c->row[metric].cell[side].low >= r->au_target ? "passes" : "fails", r->au_target);
}

static void print_row(FILE *f, const struct mr_compare *c, int metric, size_t side)
{
    const struct mr_compare_row *row = &c->row[metric];
    char a[64], b[64], change[64], verdict[96];
    bool base = row->cell[0].n && row->cell[0].mean != 0;
    struct scale s = scale_of(metric, row->cell[base ? 0 : side].mean);
    cell_text(&row->cell[0], &s, a);
    cell_text(&row->cell[side], &s, b);
    change_text(metric, row, side, change);
    verdict_text(c, metric, &row->change[side], verdict);
    target_text(c, metric, side, verdict);
    fprintf(f, " %-*s %*s %*s %-6s %9s", NAME_WIDTH - 1, mr_compare_metric_info[metric].text, CELL, a, CELL, b, s.unit,
            change);
    fprintf(f, *verdict ? "  %s\n" : "\n", verdict);
}

static void print_causes(FILE *f, const struct mr_compare *c, size_t side)
{
    static const char *const text[] = {
#define TEXT(name, key, text) text,
        MR_STALL_CAUSES(TEXT)
#undef TEXT
    };
    for (int k = 0; k < MR_STALL_CAUSE_COUNT; k++) {
        double a = c->cause[(size_t)k * c->sides], b = c->cause[(size_t)k * c->sides + side];
        if (isfinite(a) && isfinite(b) && (a >= 0.0005 || b >= 0.0005)) /* neither unknown nor nothing */
            fprintf(f, "   %-*s %*.1f %*.1f %-6s %+6.1f pp\n", NAME_WIDTH - 3, text[k], CELL, 100 * a, CELL, 100 * b,
                    "%", 100 * (b - a));
    }
}

/* The end of a path says more than its beginning. */
static const char *short_name(const char *name, char *out, size_t most)
{
    char tail[512];
    mr_text_escape(name, tail, sizeof tail);
    size_t n = strlen(tail);
    if (n > most)
        snprintf(out, most + 1, "..%s", tail + n - most + 2);
    else
        snprintf(out, most + 1, "%s", tail);
    return out;
}

static void print_settings(FILE *f, const struct mr_compare *c, size_t side)
{
    char a[200], b[200], key[200];
    size_t shown = 0;
    bool known = c->side[0].run.item[0].machine && c->side[side].run.item[0].machine; /* summaries */
    for (size_t i = 0; i < c->setting.n; i++) {
        const struct mr_compare_setting *s = &c->setting.item[i];
        if (!strcmp(s->value[0], s->value[side]) || (!known && (!*s->value[0] || !*s->value[side])))
            continue;
        fprintf(f, "%s%s %s -> %s", shown++ ? ", " : " changed: ", mr_text_escape(s->key, key, sizeof key),
                *s->value[0] ? mr_text_escape(s->value[0], a, sizeof a) : "(none)",
                *s->value[side] ? mr_text_escape(s->value[side], b, sizeof b) : "(none)");
    }
    fputs(shown ? "\n" : known ? " changed: no setting\n" : " changed: traces do not tell settings\n", f);
}

static void print_side(FILE *f, const struct mr_compare *c, size_t side)
{
    char a[CELL + 1], b[CELL + 1];
    fprintf(f, "\n %-*s %*s %*s %-6s %9s  %s\n", NAME_WIDTH - 1, "", CELL, short_name(c->side[0].name, a, CELL), CELL,
            short_name(c->side[side].name, b, CELL), "", "change", "verdict");
    for (int m = 0; m < MR_COMPARE_METRIC_COUNT; m++) {
        if (c->row[m].shown)
            print_row(f, c, m, side);
        if (m == MR_COMPARE_STALL)
            print_causes(f, c, side);
    }
    print_settings(f, c, side);
}

static void print_head(FILE *f, const struct mr_compare *c)
{
    static const char *const same[] = {"yes", "NO", "unknown"};
    struct mr_strbuf runs = {0};
    char text[600];
    size_t all = 0;
    for (size_t s = 0; s < c->sides; s++) {
        mr_strbuf_printf(&runs, s ? " + %zu" : "%zu", c->side[s].run.n);
        all += c->side[s].run.n;
    }
    fprintf(f, "same work: %s (%s)\n", same[c->same_work], mr_text_escape(c->work, text, sizeof text));
    fprintf(f, "%s %s", runs.text ? runs.text : "", mr_plural(all, "run", "runs"));
    uint64_t steps = c->side[0].run.item[0].steps;
    if (c->same_work == MR_WORK_SAME && steps)
        fprintf(f, ", %" PRIu64 " %s each", steps, mr_plural(steps, "step", "steps"));
    fputc('\n', f);
    mr_strbuf_done(&runs);
}

/* How spans that the program named scale: medians, and how many times the first side's. */
static void print_spans(FILE *f, const struct mr_compare *c)
{
    char name[64], time[MR_HUMAN_LEN];
    if (!c->span.n)
        return;
    fprintf(f, "\n %-*s", NAME_WIDTH, "named spans, median");
    for (size_t s = 0; s < c->sides; s++)
        fprintf(f, " %*s%7s", SPAN_CELL, short_name(c->side[s].name, name, SPAN_CELL), "");
    fputc('\n', f);
    for (size_t i = 0; i < c->span.n; i++) {
        fprintf(f, "  %-*s", NAME_WIDTH - 1, short_name(c->span.item[i].name, name, NAME_WIDTH - 1));
        for (size_t s = 0; s < c->sides; s++) {
            double x = c->span.item[i].cell[s].median_s, ratio = x / c->span.item[i].cell[0].median_s;
            fprintf(f, " %*s", SPAN_CELL, isfinite(x) ? mr_human_ns(x * 1e9, time) : "-");
            if (s && isfinite(ratio))
                fprintf(f, " %5.2fx", ratio);
            else
                fprintf(f, "%7s", "");
        }
        fputc('\n', f);
    }
}

void mr_compare_print(FILE *f, const struct mr_compare *c)
{
    char text[900];
    print_head(f, c);
    for (size_t s = 1; s < c->sides; s++)
        print_side(f, c, s);
    print_spans(f, c);
    if (!isnan(c->predicted_s))
        fprintf(f, " predicted by simulation %.4g s", c->predicted_s);
    if (!isnan(c->prediction_error))
        fprintf(f, ", error %+.1f %%", 100 * c->prediction_error);
    if (!isnan(c->predicted_s))
        fputc('\n', f);
    for (size_t i = 0; i < c->note.n; i++)
        fprintf(f, " note: %s\n", mr_text_escape(c->note.item[i], text, sizeof text));
}
