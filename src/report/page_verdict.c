/* The first screen: the verdict, where the time went, the key numbers; and the findings. */
#include "base/common.h"
#include "report/page_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHELL_SNIPPET 3 /* of struct mr_finding: for any framework */

/* ---- verdict ---- */

static const char *verdict_key(unsigned v)
{
    static const char *const keys[] = {
#define VERDICT_KEY(name, key) key,
        MR_VERDICT_CLASSES(VERDICT_KEY)
#undef VERDICT_KEY
    };
    return v < MR_ARRAY_LEN(keys) ? keys[v] : "incomplete";
}

static void put_card(struct mr_page *p)
{
    const struct mr_verdict *v = &p->x->verdict;
    const char *tone = v->verdict == MR_VERDICT_HEALTHY ? "good" : v->verdict == MR_VERDICT_INCOMPLETE ? "warn" : "bad";
    mr_strbuf_printf(p->b,
                     "<section class=\"card verdict %s\" id=\"verdict\" data-class=\"%s\" data-stall-share=\"%.9g\">",
                     tone, verdict_key(v->verdict), isfinite(v->stall_share) ? v->stall_share : -1.0);
    mr_strbuf_puts(p->b, "<p class=\"head\">");
    mr_html_sentence(p->b, v->line[0] ? v->line[0] : verdict_key(v->verdict));
    mr_strbuf_puts(p->b, "</p>");
    for (unsigned i = 1; i < MR_ARRAY_LEN(v->line); i++)
        if (v->line[i]) {
            mr_strbuf_puts(p->b, "<p>");
            mr_html_sentence(p->b, v->line[i]);
            mr_strbuf_puts(p->b, "</p>");
        }
    if (v->missing && (!v->line[0] || !strstr(v->line[0], v->missing))) {
        mr_strbuf_puts(p->b, "<p>Missing: ");
        mr_html_text(p->b, v->missing);
        mr_strbuf_puts(p->b, "</p>");
    }
}

/* ---- where the time went ---- */

static double sum_of(const uint64_t *v, unsigned n)
{
    double sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum += (double)v[i];
    return sum;
}

/* Light colours that dark text is read on. */
static bool is_light(const char *css)
{
    static const char *const light[] = {"t-compute",    "t-startup",   "t-other",  "s-not_started",
                                        "s-page_cache", "s-transform", "s-unknown"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(light); i++)
        if (strcmp(css, light[i]) == 0)
            return true;
    return false;
}

static void bar_part(struct mr_page *p, double *at, double part, const char *css, const char *text)
{
    char share[MR_HUMAN_LEN];
    if (!(part > 0))
        return;
    mr_strbuf_printf(p->b,
                     "<rect class=\"%s\" x=\"%.3f%%\" width=\"%.3f%%\" height=\"100%%\"><title>%s %s</title></rect>",
                     css, *at * 100, part * 100, text, mr_unit_text(MR_UNIT_SHARE, part, share));
    if (part > 0.012 * (double)strlen(text) + 0.04)
        mr_strbuf_printf(p->b, "<text class=\"in %s%s%s\" x=\"%.3f%%\" dx=\"10\" y=\"25\">%s %.0f %%</text>", css,
                         is_light(css) ? " lite" : "", part < 0.03 * (double)strlen(text) + 0.12 ? " sm" : "",
                         *at * 100, text, 100 * part);
    *at += part;
}

/* What of a class lies in the training window: start-up and what follows the last step do not. */
static double in_training(const uint64_t ns[MR_TIME_CLASS_COUNT], uint64_t after, unsigned t)
{
    return t == MR_TIME_STARTUP ? 0 : (double)ns[t] - (t == MR_TIME_OTHER ? (double)after : 0);
}

/* One bar: compute, the stall by its causes, then the rest. */
static void put_time_bar(struct mr_page *p, double whole)
{
    const struct mr_explanation *x = p->x;
    double at = 0;
    mr_strbuf_puts(p->b, "<svg class=\"timebar p\" role=\"img\" aria-label=\"where the time of the training "
                         "went\"><title>where the time went</title>");
    for (unsigned t = 0; t < MR_TIME_CLASS_COUNT; t++) {
        double by_cause = t == MR_TIME_STALL ? sum_of(x->stall, MR_STALL_CAUSE_COUNT) : 0;
        for (unsigned c = 0; by_cause > 0 && c < MR_STALL_CAUSE_COUNT; c++)
            bar_part(p, &at, (double)x->stall[c] / whole, mr_stall_css(c), mr_stall_text(c));
        if (!(by_cause > 0))
            bar_part(p, &at, in_training(x->ns, x->after_ns, t) / whole, mr_time_css(t), mr_time_text(t));
    }
    mr_strbuf_puts(p->b, "</svg>\n");
}

struct time_row {
    const char *css, *text, *key; /* key: place in the JSON; NULL none */
    double mean, worst;           /* ns */
    bool sub;
};

static void put_time_row(struct mr_page *p, const struct time_row *r, double whole, double worst_whole)
{
    mr_strbuf_printf(p->b,
                     "<tr%s><td><i class=\"%s\"></i>%s</td><td class=\"bar\"><svg class=\"hbar p\" viewBox=\"0 0 100 "
                     "1\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"%s\" width=\"%.2f\" "
                     "height=\"1\"/></svg></td><td class=\"n\">",
                     r->sub ? " class=\"sub\"" : "", r->css, r->text, r->css, fmin(100, 100 * r->mean / whole));
    mr_html_value(p->b, MR_UNIT_SECONDS, r->mean / 1e9, r->key);
    mr_strbuf_puts(p->b, "</td><td class=\"n\">");
    mr_html_value(p->b, MR_UNIT_SHARE, r->mean / whole, NULL);
    mr_strbuf_puts(p->b, "</td>");
    if (p->x->ranks > 1 && worst_whole > 0) {
        mr_strbuf_puts(p->b, "<td class=\"n\">");
        mr_html_value(p->b, MR_UNIT_SHARE, r->worst / worst_whole, NULL);
        mr_strbuf_puts(p->b, "</td>");
    }
    mr_strbuf_puts(p->b, "</tr>\n");
}

static void put_causes(struct mr_page *p, double whole, const struct mr_explain_rank *worst)
{
    static const char *const key[] = {
#define STALL_KEY(name, key, text) "stall." key "_s",
        MR_STALL_CAUSES(STALL_KEY)
#undef STALL_KEY
    };
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++) {
        struct time_row r = {.css = mr_stall_css(c),
                             .text = mr_stall_text(c),
                             .key = key[c],
                             .mean = (double)p->x->stall[c],
                             .worst = (double)worst->stall[c],
                             .sub = true};
        if (r.mean > 0 || r.worst > 0)
            put_time_row(p, &r, whole, (double)worst->train_ns);
    }
}

static void put_time_rows(struct mr_page *p, double whole, const struct mr_explain_rank *worst)
{
    static const char *const key[] = {
#define TIME_KEY(name, key, text) "time." key "_s",
        MR_TIME_CLASSES(TIME_KEY)
#undef TIME_KEY
    };
    const struct mr_explanation *x = p->x;
    for (unsigned t = 0; t < MR_TIME_CLASS_COUNT; t++) {
        struct time_row r = {.css = mr_time_css(t),
                             .text = mr_time_text(t),
                             .key = t == MR_TIME_OTHER ? NULL : key[t], /* the JSON's has what follows the last step */
                             .mean = in_training(x->ns, x->after_ns, t),
                             .worst = in_training(worst->ns, worst->after_ns, t)};
        if (t != MR_TIME_STARTUP && (r.mean > 0 || r.worst > 0 || t <= MR_TIME_STALL))
            put_time_row(p, &r, whole, (double)worst->train_ns);
        if (t == MR_TIME_STALL)
            put_causes(p, whole, worst);
    }
}

static void put_time_head(struct mr_page *p, const char *time, uint32_t worst)
{
    char name[MR_HUMAN_LEN];
    mr_strbuf_printf(p->b,
                     "<div class=\"tablebox\"><table class=\"split-table\"><thead><tr><th></th><th></th><th "
                     "class=\"n\">%s</th><th class=\"n\">share</th>",
                     time);
    if (worst < p->x->ranks && p->x->ranks > 1)
        mr_strbuf_printf(p->b, "<th class=\"n\">worst, %s</th>", mr_page_rank_name(p->x, worst, name));
    mr_strbuf_puts(p->b, "</tr></thead><tbody>\n");
}

static void put_training(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    uint32_t worst = MR_MIN(x->worst_rank, (uint32_t)x->ranks - 1);
    mr_strbuf_puts(p->b, "<h3>Where the time of the training went</h3>\n");
    put_time_bar(p, (double)x->train_ns);
    put_time_head(p, x->ranks > 1 ? "mean of ranks" : "time", worst);
    put_time_rows(p, (double)x->train_ns, &x->rank[worst]);
    mr_strbuf_puts(p->b, "</tbody></table></div>\n<p class=\"cap\">Outside of it: ");
    mr_html_value(p->b, MR_UNIT_SECONDS, (double)x->ns[MR_TIME_STARTUP] / 1e9, "time.startup_s");
    mr_strbuf_puts(p->b, " before the first step, ");
    mr_html_value(p->b, MR_UNIT_SECONDS, (double)x->after_ns / 1e9, "after_s");
    mr_strbuf_puts(p->b, " after the last.</p>\n");
}

/* Without steps: what calls waited for, stalling anybody or not. */
static void put_waits(struct mr_page *p)
{
    static const struct {
        const char *css, *text, *key;
    } row[] = {[MR_WAIT_STORAGE] = {"s-storage", "storage", "waits.storage_s"},
               [MR_WAIT_PAGE_CACHE] = {"s-page_cache", "page cache", "waits.page_cache_s"},
               [MR_WAIT_METADATA] = {"s-metadata", "open/stat", "waits.metadata_s"},
               [MR_WAIT_IPC] = {"s-worker", "other processes", "waits.ipc_s"},
               [MR_WAIT_NETWORK] = {"s-network", "network", "waits.network_s"}};
    const struct mr_explanation *x = p->x;
    double window = 0;
    for (size_t r = 0; r < x->ranks; r++)
        window += (double)(x->rank[r].end_ns - x->rank[r].start_ns) / (double)x->ranks;
    double sum = 0;
    for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++)
        sum += isfinite(mr_wait_s(x, c)) ? mr_wait_s(x, c) : 0;
    if (!(window > 0) || !(sum > 0))
        return;
    mr_strbuf_printf(p->b, "<h3>What calls waited for</h3><p class=\"cap\">%s</p>\n",
                     x->facts.counters_only ? "Sum over the calls of a process, mean of all processes."
                                            : "Time in which at least one such call was under way; they overlap.");
    put_time_head(p, "time", UINT32_MAX);
    for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++)
        if (isfinite(mr_wait_s(x, c)))
            put_time_row(p,
                         &(struct time_row){
                             .css = row[c].css, .text = row[c].text, .key = row[c].key, .mean = (double)x->wait[c]},
                         window, 0);
    mr_strbuf_puts(p->b, "</tbody></table></div>\n");
}

static void put_time_split(struct mr_page *p)
{
    if (p->x->ranks && p->x->train_ns)
        put_training(p);
    else if (p->x->ranks)
        put_waits(p);
}

/* ---- key numbers ---- */

static void put_tile(struct mr_page *p, enum mr_unit unit, double v, const char *label, const char *key)
{
    mr_strbuf_puts(p->b, "<div class=\"tile\"><b>");
    mr_html_value(p->b, unit, v, key);
    mr_strbuf_printf(p->b, "</b>%s</div>\n", label);
}

struct key_number {
    enum mr_unit unit;
    double value;
    const char *label, *key, *name; /* name: in the list of what is unknown */
};

static void put_unknown(struct mr_page *p, const struct key_number *n, unsigned count)
{
    bool any = false;
    for (unsigned i = 0; i < count; i++)
        if (!isfinite(n[i].value)) {
            mr_strbuf_printf(p->b, "%s%s", any ? ", " : "<p class=\"cap\">Unknown from this trace: ", n[i].name);
            any = true;
        }
    if (any)
        mr_strbuf_puts(p->b, ".</p>\n");
}

static void put_tiles(struct mr_page *p)
{
    const struct mr_explain_facts *f = &p->x->facts;
    bool calls = mr_page_has_calls(p->x), reads = f->read_bytes > 0; /* of nothing there is no rate */
    const struct key_number numbers[] = {
        {MR_UNIT_SHARE, f->au, "accelerator utilisation (AU)", "facts.au", "accelerator utilisation"},
        {MR_UNIT_NUMBER, f->samples_per_s, "samples per second", "facts.samples_per_s", "samples per second"},
        {MR_UNIT_SECONDS, f->step_s, "median step", "facts.step_p50_s", "time of a step"},
        {MR_UNIT_SECONDS, f->step_p99_s, "99 % of steps are faster", "facts.step_p99_s", "slow steps"},
        {MR_UNIT_NUMBER, f->ceiling, "times faster at most, if I/O were free", "facts.ceiling", "ceiling"},
        {MR_UNIT_NUMBER, f->headroom, "supply / demand of data", "facts.headroom", "headroom"},
        {MR_UNIT_BYTES, calls ? f->read_bytes : NAN, "read", "facts.data_read_bytes", "bytes read"},
        {MR_UNIT_RATE, calls && reads ? f->wall_bytes_per_s : NAN, "read rate over the run", "facts.wall_bytes_per_s",
         "read rate"},
        {MR_UNIT_RATE, reads ? f->busy_bytes_per_s : NAN, "read rate while reading", "facts.busy_bytes_per_s",
         "read rate while reading"},
        {MR_UNIT_NUMBER, reads ? f->in_flight : NAN, "reads in flight per rank", "facts.reads_in_flight",
         "reads in flight"}};
    mr_strbuf_puts(p->b, "<div class=\"tiles\">\n");
    put_tile(p, MR_UNIT_SECONDS, mr_page_seconds(p->x), "run time", "duration_s");
    for (unsigned i = 0; i < MR_ARRAY_LEN(numbers); i++)
        if (isfinite(numbers[i].value))
            put_tile(p, numbers[i].unit, numbers[i].value, numbers[i].label, numbers[i].key);
    mr_strbuf_puts(p->b, "</div>\n");
    put_unknown(p, numbers, MR_ARRAY_LEN(numbers));
}

void mr_page_verdict(struct mr_page *p)
{
    put_card(p);
    put_tiles(p);
    mr_strbuf_puts(p->b, "</section>\n");
    size_t before = p->b->len;
    mr_strbuf_puts(p->b, "<section class=\"card\">");
    size_t empty = p->b->len;
    put_time_split(p);
    if (p->b->len == empty && !p->b->failed)
        p->b->text[p->b->len = before] = '\0';
    else
        mr_strbuf_puts(p->b, "</section>\n");
}

/* ---- findings ---- */

static void put_gain(struct mr_page *p, const struct mr_finding *f)
{
    char low[MR_HUMAN_LEN], high[MR_HUMAN_LEN];
    if (!isfinite(f->saves_s)) {
        mr_strbuf_puts(p->b, "<span class=\"gain unknown\">gain unknown</span>");
        return;
    }
    if (f->potential && !(f->saves_s > 0)) {
        mr_strbuf_puts(p->b, "<span class=\"gain unknown\">hidden behind compute now</span>");
        return;
    }
    mr_strbuf_printf(p->b, "<span class=\"gain\">%s ",
                     f->potential             ? "would save"
                     : mr_finding_is_bound(f) ? "at best"
                                              : "saves about");
    mr_html_value(p->b, MR_UNIT_SECONDS, f->saves_s, NULL);
    if (isfinite(f->saves_low_s) && isfinite(f->saves_high_s))
        mr_strbuf_printf(p->b, " (%s to %s)", mr_unit_text(MR_UNIT_SECONDS, f->saves_low_s, low),
                         mr_unit_text(MR_UNIT_SECONDS, f->saves_high_s, high));
    mr_strbuf_puts(p->b, "</span>");
}

/* The run as a bar: what stays, what the fix takes away, and between which bounds. */
static void put_gain_bar(struct mr_page *p, const struct mr_finding *f)
{
    double whole = mr_page_seconds(p->x), low = f->saves_low_s, high = f->saves_high_s;
    if (!(f->saves_s > 0) || !(whole > 0))
        return;
    double saved = fmin(1, f->saves_s / whole);
    mr_strbuf_printf(
        p->b,
        "<svg class=\"hbar p gainbar\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" role=\"img\" "
        "aria-label=\"run time "
        "with the fix\"><title>predicted run time: %.3g s of %.3g s</title><rect class=\"t-compute\" width=\"%.1f\" "
        "height=\"10\"/><rect class=\"saved\" x=\"%.1f\" width=\"%.1f\" height=\"10\"/>",
        whole - f->saves_s, whole, 1000 * (1 - saved), 1000 * (1 - saved), 1000 * saved);
    if (isfinite(low) && isfinite(high))
        mr_strbuf_printf(p->b, "<rect class=\"whisker\" x=\"%.1f\" width=\"%.1f\" y=\"4\" height=\"2\"/>",
                         1000 * fmax(0, 1 - high / whole), 1000 * fmin(1, fmax(0, (high - low) / whole)));
    mr_strbuf_puts(p->b, "</svg>\n");
    mr_legend_open(p->b);
    mr_legend_item(p->b, "t-compute", "run time that stays");
    mr_legend_item(p->b, "saved", "predicted to go");
    if (isfinite(low) && isfinite(high))
        mr_legend_item(p->b, "whisker", "interval of the prediction");
    mr_legend_close(p->b);
}

/* The snippet of the program's framework; millrace's own for its runs. -1: none is known, all are shown. */
static int snippet_in_use(const struct mr_explanation *x)
{
    static const char *const names[] = {"millrace", "pytorch", "tensorflow"};
    for (int i = 0; x->facts.framework && i < (int)MR_ARRAY_LEN(names); i++)
        if (!strcmp(x->facts.framework, names[i]))
            return i;
    return -1;
}

static void put_block(struct mr_page *p, const char *label, const char *text, bool to_copy)
{
    if (!text || !*text)
        return;
    mr_strbuf_printf(p->b, "<div><p class=\"lab\">%s</p><pre%s>", label, to_copy ? " class=\"copyable\"" : "");
    mr_html_text(p->b, text);
    mr_strbuf_puts(p->b, "</pre></div>\n");
}

static void put_finding(struct mr_page *p, const struct mr_finding *f, bool open)
{
    static const char *const of[] = {"millrace", "PyTorch", "tf.data", "shell"};
    const char *tone = f->severity == MR_SEVERITY_CRITICAL ? " bad" : f->severity == MR_SEVERITY_MAJOR ? " warn" : "";
    mr_strbuf_printf(p->b, "<details class=\"card finding\"%s data-id=\"", open ? " open" : "");
    mr_html_text(p->b, f->id);
    mr_strbuf_printf(p->b, "\"><summary class=\"top\"><span class=\"badge%s\">%s</span><span class=\"id\">", tone,
                     mr_severity_name(f->severity));
    mr_html_text(p->b, f->id);
    mr_strbuf_puts(p->b, "</span><b>");
    mr_html_sentence(p->b, f->title ? f->title : "");
    mr_strbuf_puts(p->b, "</b>");
    put_gain(p, f);
    mr_strbuf_puts(p->b, "</summary>\n");
    put_gain_bar(p, f);
    if (f->fix) {
        mr_strbuf_puts(p->b, "<p class=\"fix\"><b>Fix:</b> ");
        mr_html_sentence(p->b, f->fix);
        mr_strbuf_puts(p->b, "</p>\n");
    }
    mr_strbuf_puts(p->b, "<div class=\"grid2\">");
    put_block(p, "measured", f->evidence, false);
    int used = snippet_in_use(p->x);
    bool others = false;
    for (int i = 0; i < (int)MR_ARRAY_LEN(f->snippet); i++) {
        bool shown = used < 0 || i == used || i == SHELL_SNIPPET || !f->snippet[used];
        put_block(p, of[i], shown ? f->snippet[i] : NULL, true);
        others |= !shown && f->snippet[i];
    }
    put_block(p, "try it", f->command, true);
    mr_strbuf_puts(p->b, "</div>");
    if (others) {
        mr_strbuf_puts(p->b, "<details class=\"more\"><summary>In other frameworks</summary><div class=\"grid2\">");
        for (int i = 0; i < SHELL_SNIPPET; i++)
            put_block(p, of[i], i != used ? f->snippet[i] : NULL, true);
        mr_strbuf_puts(p->b, "</div></details>");
    }
    if (f->formula || isfinite(f->confidence)) {
        mr_strbuf_puts(p->b, "<details class=\"more\"><summary>How the gain is computed</summary>");
        put_block(p, "formula", f->formula, false);
        if (isfinite(f->adds_s) && isfinite(f->saves_s) && f->adds_s < 0.99 * f->saves_s) {
            mr_strbuf_puts(p->b, "<p>Of it, beyond what the findings above save already: ");
            mr_html_value(p->b, MR_UNIT_SECONDS, f->adds_s, NULL);
            mr_strbuf_puts(p->b, ".</p>");
        }
        mr_strbuf_printf(p->b, "<p>Confidence %.0f %%.%s</p></details>", 100 * f->confidence,
                         f->potential ? " Hidden behind compute now: it would matter if compute got faster." : "");
    }
    mr_strbuf_puts(p->b, "</details>\n");
}

void mr_page_findings(struct mr_page *p)
{
    const struct mr_explanation *x = p->x;
    static const char *const nothing = "No rule applies to what this trace tells.";
    static const char *const why[] = {[MR_VERDICT_HEALTHY] = "There is nothing worth a change.",
                                      [MR_VERDICT_INPUT] = nothing,
                                      [MR_VERDICT_CHECKPOINT] = nothing,
                                      [MR_VERDICT_IMBALANCE] = nothing,
                                      [MR_VERDICT_LOGGING] = nothing,
                                      [MR_VERDICT_STARTUP] = nothing,
                                      [MR_VERDICT_IO] = nothing,
                                      [MR_VERDICT_INCOMPLETE] = "What is needed to judge this run is missing."};
    if (!x->findings) {
        mr_page_absent(p->shell, "No findings.", why[MR_MIN(x->verdict.verdict, MR_VERDICT_INCOMPLETE)]);
        return;
    }
    mr_page_section(p->shell, "findings", "Findings",
                    "What to change, by the seconds it is predicted to save. Gains do not add up: two fixes may remove "
                    "the same wait.");
    for (size_t i = 0; i < MR_MIN(x->findings, 40); i++)
        put_finding(p, &x->finding[i], i < 3 && x->finding[i].severity > MR_SEVERITY_NOTE);
    mr_page_cut(p, MR_MIN(x->findings, 40), x->findings, "findings");
    if (x->silences) {
        mr_strbuf_puts(p->b,
                       "<details class=\"more\"><summary>Rules that did not fire, and why</summary><dl class=\"kv\">");
        for (size_t i = 0; i < MR_MIN(x->silences, 80); i++) {
            mr_strbuf_puts(p->b, "<dt>");
            mr_html_text(p->b, x->silence[i].id);
            mr_strbuf_puts(p->b, "</dt><dd>");
            mr_html_text(p->b, x->silence[i].why);
            mr_strbuf_puts(p->b, "</dd>");
        }
        mr_strbuf_puts(p->b, "</dl></details>");
    }
    mr_page_section_end(p->shell);
}
