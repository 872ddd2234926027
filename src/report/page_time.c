/* The run over time: bandwidth, calls in flight, batches ready, ranks that stalled, below each other on one axis. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdlib.h>

struct curve {
    const double *value;
    const char *css, *name;
    bool edge;
};

static double most_of(const struct curve *k, unsigned curves, uint32_t from, uint32_t bins)
{
    double most = 0;
    for (unsigned c = 0; c < curves; c++)
        for (uint32_t i = from; k[c].value && i < bins; i++)
            if (isfinite(k[c].value[i]))
                most = fmax(most, k[c].value[i]);
    return most;
}

static void draw_curves(struct mr_page *p, const char *title, const char *what, enum mr_unit unit,
                        const struct curve *k, unsigned curves, bool last)
{
    const struct mr_explain_timeline *t = &p->x->timeline;
    uint32_t skip = mr_page_before_training(p->x, t->bin_ns, t->bins);
    struct mr_chart c = {.out = p->b, .height = 96, .link = "time"};
    c.x = (struct mr_axis){.low = (double)skip * (double)t->bin_ns / 1e9,
                           .high = (double)t->bins * (double)t->bin_ns / 1e9,
                           .unit = MR_UNIT_SECONDS,
                           .name = last ? "time" : NULL};
    c.y = (struct mr_axis){.high = mr_axis_end(most_of(k, curves, skip, t->bins), unit), .unit = unit};
    mr_strbuf_puts(p->b, "<div class=\"row-head\"><h3>");
    mr_html_text(p->b, title);
    mr_strbuf_puts(p->b, "</h3>");
    mr_legend_open(p->b);
    for (unsigned i = 0; curves > 1 && i < curves; i++)
        mr_legend_item(p->b, k[i].css, k[i].name);
    mr_legend_close(p->b);
    mr_strbuf_puts(p->b, "</div>");
    mr_chart_open(&c, title, what);
    mr_page_bands(p, &c);
    for (unsigned i = 0; i < curves; i++) {
        if (k[i].edge)
            mr_chart_edge(&c, t->bins - skip, k[i].value + skip, k[i].css, k[i].name);
        else
            mr_chart_area(&c, t->bins - skip, k[i].value + skip, k[i].css, k[i].name);
    }
    mr_page_band_names(p, &c);
    mr_chart_close(&c);
}

static bool is_used(const double *v, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; v && i < n; i++)
        if (v[i] > 0)
            return true;
    return false;
}

static void draw_bandwidth(struct mr_page *p)
{
    const struct mr_explain_timeline *t = &p->x->timeline;
    double *rate = malloc(2 * (size_t)t->bins * sizeof(double)), seconds = (double)t->bin_ns / 1e9;
    if (!rate) {
        p->b->failed = true;
        return;
    }
    for (uint32_t i = 0; i < t->bins; i++) {
        rate[i] = t->read_bytes ? t->read_bytes[i] / seconds : NAN;
        rate[t->bins + i] = t->written_bytes ? t->written_bytes[i] / seconds : NAN;
    }
    struct curve k[] = {{rate, "rd", "read", false}, {rate + t->bins, "wr", "written", false}};
    uint32_t skip = mr_page_before_training(p->x, t->bin_ns, t->bins);
    double reads = most_of(k, 1, skip, t->bins), writes = most_of(k + 1, 1, skip, t->bins);
    if (reads > 0 && writes > 0 && fmax(reads, writes) > 4 * fmin(reads, writes)) { /* one would hide the other */
        draw_curves(p, "Read", "Bytes per second that all ranks read.", MR_UNIT_RATE, k, 1, false);
        draw_curves(p, "Written", "Bytes per second that all ranks wrote.", MR_UNIT_RATE, k + 1, 1, false);
    } else {
        draw_curves(p, "Bandwidth", "Bytes per second of all ranks, read and written.", MR_UNIT_RATE,
                    reads > 0 ? k : k + 1, 1 + (reads > 0 && writes > 0), false);
    }
    free(rate);
}

void mr_page_timeline(struct mr_page *p)
{
    const struct mr_explain_timeline *t = &p->x->timeline;
    if (!t->bins || !t->bin_ns) {
        if (p->x->facts.counters_only)
            mr_page_absent(p->shell, "No timeline.",
                           "The source has counters only: it does not say when things happened.");
        return;
    }
    uint32_t skip = mr_page_before_training(p->x, t->bin_ns, t->bins);
    bool calls = is_used(t->read_bytes, skip, t->bins) || is_used(t->written_bytes, skip, t->bins);
    if (!calls && !t->ready && !p->x->facts.has_steps) {
        mr_page_absent(p->shell, "No timeline.",
                       p->x->facts.counters_only ? "The source has counters only: it does not say when things happened."
                                                 : "The trace has neither reads and writes nor training steps.");
        return;
    }
    mr_page_section(p->shell, "time", "Over time",
                    "All on one time axis, which begins with training. Shaded: every other epoch, and, in the colour "
                    "of checkpoints, when the "
                    "first rank saved.");
    if (calls)
        draw_bandwidth(p);
    else
        mr_strbuf_puts(p->b, mr_page_has_calls(p->x)
                                 ? "<p class=\"cap\">Nothing was read or written during training.</p>"
                                 : "<p class=\"cap\">This trace has no reads and writes: their rate is unknown.</p>");
    if (is_used(t->in_flight, skip, t->bins))
        draw_curves(p, "Reads and writes in flight", "Mean number of data calls in flight.", MR_UNIT_NUMBER,
                    &(struct curve){t->in_flight, "a4", "in flight", false}, 1, false);
    if (t->ready)
        draw_curves(p, "Batches ready", "Batches that were loaded and not taken yet, mean over ranks.", MR_UNIT_NUMBER,
                    &(struct curve){t->ready, "quiet", "ready", false}, 1, false);
    else if (p->x->facts.has_steps)
        mr_strbuf_puts(p->b, "<p class=\"cap\">How many batches were ready is not in this trace.</p>");
    if (p->x->facts.has_steps) {
        struct curve k[] = {{t->stall, mr_time_css(MR_TIME_STALL), "waiting for data", false},
                            {t->checkpoint, mr_time_css(MR_TIME_CHECKPOINT), "saving", false}};
        bool saves = is_used(t->checkpoint, skip, t->bins);
        draw_curves(p, "Ranks that waited", "Share of the ranks that waited for data or saved a checkpoint.",
                    MR_UNIT_SHARE, k, saves ? 2 : 1, true);
    }
    mr_page_section_end(p->shell);
}
