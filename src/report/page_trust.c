/* The end of the page: how far its figures can be trusted, on what they were measured, with which settings, and what
 * the words mean. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdio.h>

/* ---- trust ---- */

static void put_pair(struct mr_page *p, const char *name, enum mr_unit unit, double v)
{
    mr_strbuf_printf(p->b, "<dt>%s</dt><dd>", name);
    mr_html_value(p->b, unit, v, NULL);
    mr_strbuf_puts(p->b, "</dd>");
}

static void put_known(struct mr_page *p, const char *name, enum mr_unit unit, double v)
{
    if (isfinite(v))
        put_pair(p, name, unit, v);
}

static void put_count(struct mr_page *p, const char *name, uint64_t n)
{
    if (n)
        put_pair(p, name, MR_UNIT_COUNT, (double)n);
}

static void put_trust(struct mr_page *p)
{
    const struct mr_explain_trust *t = &p->x->trust;
    mr_strbuf_puts(p->b, "<h3>The trace</h3><dl class=\"kv\"><dt>trace</dt><dd>");
    mr_strbuf_puts(p->b, t->cut ? "<b>cut off</b>" : !mr_trust_complete(t) || t->gone ? "incomplete" : "complete");
    mr_strbuf_puts(p->b, "</dd>");
    if (p->x->facts.counters_only)
        put_pair(p, "files with counters", MR_UNIT_COUNT, (double)p->x->all_files);
    else
        put_pair(p, "events", MR_UNIT_COUNT, (double)t->events);
    if (!p->x->facts.counters_only)
        put_pair(p, "events lost", MR_UNIT_COUNT, (double)t->lost);
    put_count(p, "events that are gone", t->gone);
    put_count(p, "bytes that could not be read", t->skipped_bytes);
    put_count(p, "events left out by sampling", t->sampled_out);
    put_count(p, "processes not traced", t->untraced);
    put_count(p, "ranks missing", t->ranks_missing);
    put_pair(p, "cost of tracing", MR_UNIT_SHARE, t->overhead_share);
    put_known(p, "clock offset between hosts", MR_UNIT_SECONDS, t->clock_offset_s);
    put_known(p, "what is left after aligning clocks", MR_UNIT_SECONDS, t->clock_residual_s);
    put_known(p, "read from the device, not from the page cache", MR_UNIT_SHARE, p->x->facts.cold_fraction);
    if (p->x->facts.ended_early) {
        mr_strbuf_puts(p->b, "<dt>run</dt><dd><b>ended early:</b> ");
        mr_html_short(p->b, p->x->facts.ended_early, 200);
        mr_strbuf_puts(p->b, "</dd>");
    }
    if (t->clock_jump)
        mr_strbuf_puts(p->b, "<dt>clock</dt><dd><b>jumped during the run</b></dd>");
    mr_strbuf_puts(p->b, "</dl>\n");
    if (!t->notes)
        return;
    mr_strbuf_puts(p->b, "<ul class=\"notes\">");
    for (size_t i = 0; i < MR_MIN(t->notes, 50); i++) {
        mr_strbuf_puts(p->b, t->note[i].serious ? "<li class=\"serious\">" : "<li>");
        mr_html_short(p->b, t->note[i].text, 400);
        mr_strbuf_puts(p->b, "</li>");
    }
    mr_strbuf_puts(p->b, "</ul>\n");
}

/* ---- environment and settings ---- */

static void put_environment(struct mr_page *p)
{
    const struct mr_explain_facts *f = &p->x->facts;
    mr_strbuf_puts(p->b, "<h3>Program and machine</h3><dl class=\"kv\">");
    if (f->program && *f->program) {
        mr_strbuf_puts(p->b, "<dt>program</dt><dd class=\"mono\">");
        mr_html_name(p->b, f->program, 200);
        mr_strbuf_puts(p->b, "</dd>");
    }
    if (f->framework && *f->framework) {
        mr_strbuf_puts(p->b, "<dt>framework</dt><dd>");
        mr_html_short(p->b, f->framework, 40);
        mr_strbuf_puts(p->b, "</dd>");
    }
    mr_strbuf_puts(p->b, "<dt>file system of most reads</dt><dd>");
    if (f->device)
        mr_html_short(p->b, f->device, 60);
    else
        mr_strbuf_puts(p->b, "<span class=\"unknown\">unknown</span>");
    mr_strbuf_puts(p->b, "</dd>");
    if (f->objects.client) {
        mr_strbuf_puts(p->b, "<dt>object storage</dt><dd>");
        mr_html_short(p->b, f->objects.client, 40);
        if (f->objects.peer) {
            mr_strbuf_puts(p->b, ", ");
            mr_html_short(p->b, f->objects.peer, 80);
        }
        mr_strbuf_puts(p->b, f->objects.tls ? ", TLS</dd>" : "</dd>");
        put_known(p, "requests to it", MR_UNIT_COUNT, f->objects.requests);
        put_known(p, "requests in flight", MR_UNIT_COUNT, f->objects.in_flight);
    }
    put_known(p, "nodes", MR_UNIT_COUNT, f->nodes);
    put_known(p, "ranks", MR_UNIT_COUNT, f->ranks);
    put_known(p, "CPUs of a node", MR_UNIT_COUNT, f->cpus_per_node);
    put_known(p, "CPUs of a rank", MR_UNIT_COUNT, f->cpus_per_rank);
    put_known(p, "memory of a node", MR_UNIT_BYTES, f->memory_bytes);
    put_known(p, "readers of a rank", MR_UNIT_COUNT, f->workers);
    put_known(p, "batches ahead", MR_UNIT_COUNT, f->prefetch);
    put_known(p, "samples of a batch", MR_UNIT_COUNT, f->batch);
    put_known(p, "stored bytes of a sample", MR_UNIT_BYTES, f->sample_bytes);
    put_known(p, "data set", MR_UNIT_BYTES, f->dataset_bytes > 0 ? f->dataset_bytes : NAN);
    mr_strbuf_puts(p->b, "</dl>\n");
}

static void put_settings(struct mr_page *p)
{
    const struct mr_page_options *o = p->o;
    if (!o->settings)
        return;
    mr_strbuf_puts(p->b,
                   "<h3>Settings</h3><p class=\"cap\">What differs from the defaults.</p><div class=\"scroll\">\n");
    mr_page_table(p->shell, NULL, "key|value");
    for (size_t i = 0; i < MR_MIN(o->settings, MR_PAGE_ROWS); i++) {
        const struct mr_page_setting *s = &o->setting[i];
        mr_strbuf_puts(p->b, "<tr>");
        mr_page_text_cell(p->shell, s->name, 60);
        mr_page_text_cell(p->shell, s->value, 120);
        mr_strbuf_puts(p->b, "</tr>\n");
    }
    mr_page_table_end(p->shell);
    mr_strbuf_puts(p->b, "</div>");
}

void mr_page_trust(struct mr_page *p)
{
    mr_page_section(p->shell, "trust", "Trust",
                    "Whether these figures can be relied on, and what they were measured with.");
    mr_strbuf_puts(p->b, "<div class=\"split\"><div>");
    put_trust(p);
    mr_strbuf_puts(p->b, "</div><div>");
    put_environment(p);
    mr_strbuf_puts(p->b, "</div></div>\n");
    put_settings(p);
    mr_page_section_end(p->shell);
}

/* ---- glossary ---- */

static const struct {
    const char *word, *meaning;
} glossary[] = {
    {"data stall", "Time in which a rank waited for its next batch and did nothing else: neither computing nor saving "
                   "a checkpoint. Share: stall / training window."},
    {"cause of a stall",
     "The sample of the batch that was ready last is followed back through the wait: each part of it belongs to what "
     "held that sample then: storage, page cache, open/stat, decode, transform, queue, copy."},
    {"not started",
     "A reader was idle and nobody had asked for the batch yet: look-ahead is too short, storage is not the limit."},
    {"worker busy/waiting", "The batch had been asked for, but its worker was held up by something none of the other "
                            "causes names: a lock, a full CPU, sleep."},
    {"compute", "Time inside steps of training. It comes first: what happens at the same time is hidden behind it and "
                "counts as no stall."},
    {"checkpoint",
     "Time in which a rank was blocked by saving or restoring. What drains in the background afterwards is not in it."},
    {"barrier", "Time in which a rank waited for other ranks. It is the stall or checkpoint of somebody else: see who "
                "made whom wait."},
    {"AU", "Accelerator utilisation: compute of the counted steps / wall time of the same steps, without the first "
           "step. The interval is a 95 % bootstrap over steps."},
    {"ceiling", "window / (window − data stall − checkpoint): removing all of both would make the run at most so many "
                "times faster. Barrier time that another rank's stall or checkpoint causes counts as that stall."},
    {"headroom", "supply / demand. Demand: ranks × batch × bytes per sample / compute time of a step. Supply: the rate "
                 "reached while loading was the limit."},
    {"read rate over the run, while reading",
     "Bytes / window, and bytes / time in which at least one read was in flight. The second is what storage gave."},
    {"in flight", "Σ durations of calls / length of their union: how many are under way while there is one."},
    {"page cache", "Reads that came back at the speed of memory: the kernel had the data already."},
    {"distinct", "Bytes of a file that were read at least once, each counted once. read / distinct is how often they "
                 "were read again."},
    {"pattern",
     "whole-file: read from begin to end at once; streaming: each read begins where the last of its stream ended; "
     "strided: equal distances; shuffled-records: jumps between runs that are read in order; random: neither."},
    {"lost by the job", "Per step: arrival of the last rank − mean arrival of the others, summed over the steps in "
                        "which this rank was last."},
    {"training window",
     "From the start of the first step to the end of the last, or of the checkpoint behind it. Shares are of it."},
    {"window", "From the first event of a rank to its last. Its classes of time do not overlap and add up to it."},
};

void mr_page_glossary(struct mr_page *p)
{
    mr_page_section(p->shell, "glossary", "Glossary", NULL);
    mr_strbuf_puts(p->b, "<dl class=\"glossary\">");
    for (size_t i = 0; i < MR_ARRAY_LEN(glossary); i++)
        mr_strbuf_printf(p->b, "<div><dt>%s</dt><dd>%s</dd></div>\n", glossary[i].word, glossary[i].meaning);
    mr_strbuf_puts(p->b, "</dl>");
    mr_page_section_end(p->shell);
}
