/* The page of an explanation: the order of its sections, and what they share. */
#include "report/page.h"
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

const char *mr_page_rank_name(const struct mr_explanation *x, uint32_t rank, char out[MR_HUMAN_LEN])
{
    if (rank < x->ranks && x->rank[rank].rank < 0)
        snprintf(out, MR_HUMAN_LEN, "all");
    else
        snprintf(out, MR_HUMAN_LEN, "rank %d", rank < x->ranks ? x->rank[rank].rank : (int)rank);
    return out;
}

unsigned mr_page_main_cause(const uint64_t stall[MR_STALL_CAUSE_COUNT])
{
    unsigned best = MR_STALL_CAUSE_COUNT;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        if (stall[c] && (best == MR_STALL_CAUSE_COUNT || stall[c] > stall[best]))
            best = c;
    return best;
}

bool mr_page_has_calls(const struct mr_explanation *x)
{
    for (size_t i = 0; i < x->ranks; i++)
        if (x->rank[i].read_calls || x->rank[i].write_calls || x->rank[i].metadata_calls)
            return true;
    return false;
}

double mr_page_training_s(const struct mr_explanation *x)
{
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < x->steps; i++)
        first = MR_MIN(first, x->step[i].start_ns);
    return first != UINT64_MAX && first < x->duration_ns ? (double)first / 1e9 : 0;
}

uint32_t mr_page_before_training(const struct mr_explanation *x, uint64_t column_ns, uint32_t columns)
{
    double skip = column_ns ? floor(mr_page_training_s(x) * 1e9 / (double)column_ns) : 0;
    return skip > 0 && skip < (double)columns - 1 ? (uint32_t)skip : 0;
}

double mr_page_seconds(const struct mr_explanation *x)
{
    return (double)x->duration_ns / 1e9;
}

void mr_page_cut(struct mr_page *p, size_t shown, size_t all, const char *what)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    if (shown < all)
        mr_strbuf_printf(p->b, "<p class=\"cap\">%s of %s %s are shown.</p>\n", mr_human_count(shown, a),
                         mr_human_count(all, b), what);
}

/* ---- epochs and checkpoints over time ---- */

/* The steps of the first rank say when epochs begin. Calls `each` with the epoch and its window in seconds. */
static void for_epochs(const struct mr_explanation *x,
                       void (*each)(struct mr_chart *c, uint32_t epoch, double from, double to), struct mr_chart *c)
{
    size_t begin = 0, n = 0;
    while (n < x->steps && x->step[n].rank == x->step[0].rank)
        n++;
    if (!n || x->step[0].epoch == x->step[n - 1].epoch || x->step[n - 1].epoch - x->step[0].epoch > 200)
        return;
    for (size_t i = 1; i <= n; i++) {
        if (i < n && x->step[i].epoch == x->step[begin].epoch)
            continue;
        uint64_t end = i < n ? x->step[i].start_ns : x->step[i - 1].end_ns;
        each(c, x->step[begin].epoch, (double)x->step[begin].start_ns / 1e9, (double)end / 1e9);
        begin = i;
    }
}

static void shade_epoch(struct mr_chart *c, uint32_t epoch, double from, double to)
{
    if (epoch % 2)
        mr_chart_band(c, from, to, "odd", NULL);
}

static void name_epoch(struct mr_chart *c, uint32_t epoch, double from, double to)
{
    char text[32];
    snprintf(text, sizeof text, "epoch %u", epoch);
    if (to - from > 0.07 * (c->x.high - c->x.low))
        mr_chart_note(c, from + 0.004 * (c->x.high - c->x.low), c->y.low + 0.9 * (c->y.high - c->y.low), "start", text);
}

void mr_page_bands(struct mr_page *p, struct mr_chart *c)
{
    for_epochs(p->x, shade_epoch, c);
    size_t drawn = 0;
    for (size_t i = 0; i < p->x->checkpoints && drawn < 200; i++) {
        const struct mr_explain_checkpoint *k = &p->x->checkpoint[i];
        if (k->rank != p->x->checkpoint[0].rank)
            continue;
        mr_chart_band(c, (double)k->start_ns / 1e9, (double)k->end_ns / 1e9, "band",
                      k->is_load ? "checkpoint restored" : "checkpoint");
        drawn++;
    }
}

void mr_page_band_names(struct mr_page *p, struct mr_chart *c)
{
    for_epochs(p->x, name_epoch, c);
}

/* ---- the page ---- */

static void put_fact(struct mr_strbuf *o, double n, const char *one, const char *many)
{
    char text[MR_HUMAN_LEN];
    if (isfinite(n) && n > 0)
        mr_strbuf_printf(o, "%s%s %s", o->len ? ", " : "", mr_human_count((unsigned long long)n, text),
                         mr_plural((unsigned long long)n, one, many));
}

/* "8 ranks, 1 node, 110 steps, 451 s, ext4; 2026-07-14 08:00 UTC" */
static void put_facts(const struct mr_explanation *x, struct mr_strbuf *o)
{
    char text[MR_HUMAN_LEN], when[32];
    uint64_t steps = 0;
    for (size_t i = 0; i < x->ranks; i++)
        steps = MR_MAX(steps, x->rank[i].steps);
    if (x->ranks && x->rank[0].rank >= 0)
        put_fact(o, (double)x->ranks, "rank", "ranks");
    put_fact(o, x->facts.nodes, "node", "nodes");
    put_fact(o, (double)steps, "step", "steps");
    mr_strbuf_printf(o, "%s%s", o->len ? ", " : "", mr_unit_text(MR_UNIT_SECONDS, mr_page_seconds(x), text));
    if (x->facts.device) {
        mr_strbuf_puts(o, ", ");
        mr_html_short(o, x->facts.device, 40);
    }
    if (x->facts.simulated)
        mr_strbuf_puts(o, ", simulated");
    time_t t = (time_t)(x->start_ns / 1000000000u);
    struct tm tm;
    if (x->start_ns && !x->facts.simulated && gmtime_r(&t, &tm) && strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm))
        mr_strbuf_printf(o, " &nbsp;·&nbsp; started %s UTC", when);
    if (x->facts.program && *x->facts.program) {
        mr_strbuf_puts(o, " &nbsp;·&nbsp; <code>");
        mr_html_name(o, x->facts.program, 100);
        mr_strbuf_puts(o, "</code>");
    }
}

void mr_page_explain(struct mr_page_shell *shell, const struct mr_explanation *x, const struct mr_page_options *o)
{
    static const struct mr_page_options none;
    struct mr_page p = {.shell = shell, .b = &shell->body, .x = x, .o = o ? o : &none};
    if (!shell->facts.len)
        put_facts(x, &shell->facts);
    mr_page_verdict(&p);
    mr_page_findings(&p);
    mr_page_steps(&p);
    mr_page_ranks(&p);
    mr_page_timeline(&p);
    mr_page_sizes(&p);
    mr_page_access(&p);
    mr_page_files(&p);
    mr_page_checkpoints(&p);
    mr_page_workers(&p);
    mr_page_snippets(&p);
    mr_page_trust(&p);
    mr_page_glossary(&p);
}

int mr_page_write(const char *path, const struct mr_explanation *x, const struct mr_page_options *o,
                  struct mr_error *err)
{
    struct mr_page_shell shell = {.title = o && o->title ? o->title : "millrace report", .subject = x->source};
    mr_page_explain(&shell, x, o);
    int rc = mr_page_save(&shell, path, err);
    mr_page_done(&shell);
    return rc;
}
