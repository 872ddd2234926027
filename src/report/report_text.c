/* The screen of a report: see report_text.h. One function per block; each writes whole lines. */
#include "report/report_text.h"
#include "base/common.h"
#include "base/text_escape.h"
#include "report/out_stream.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 98u
#define BAR 30u
#define CAUSES_SHOWN 4u
#define FINDINGS_SHOWN 3u
#define NOTES_SHOWN 4u
#define SPANS_SHOWN 8u
#define FIELDS_SHOWN 6u
#define USUAL_SIZE 0.1 /* of the reads: a size that fewer have says nothing of them */

static const char *bold(const struct mr_report_text *how)
{
    return how->colour ? "\033[1m" : "";
}

static const char *plain(const struct mr_report_text *how)
{
    return how->colour ? "\033[0m" : "";
}

void mr_report_name(struct mr_strbuf *out, const char *name, size_t most)
{
    const uint8_t *p = (const uint8_t *)name;
    size_t left = strlen(name), count = 0;
    for (size_t i = 0; i < left; i += MR_MAX(mr_utf8_length(p + i, left - i), (size_t)1))
        count++;
    size_t skip = count > most && most > 3 ? count - most + 3 : 0;
    if (skip)
        mr_strbuf_puts(out, "...");
    for (size_t at = 0; left; at++) {
        size_t len = mr_utf8_length(p, left), step = MR_MAX(len, (size_t)1);
        if (at >= skip && (!mr_text_printable(p) || mr_text_is_command(name, (const char *)p)))
            mr_strbuf_putc(out, '?');
        else if (at >= skip)
            mr_strbuf_add(out, (const char *)p, len);
        p += step;
        left -= step;
    }
}

/* Text in lines of at most WIDTH, each begun with `indent` spaces but the first. */
static void wrap(struct mr_strbuf *out, const char *from, unsigned indent)
{
    struct mr_strbuf safe = {0};
    mr_strbuf_text(&safe, from);
    const char *text = safe.text ? safe.text : "";
    size_t column = indent;
    while (*text) {
        size_t word = strcspn(text, " \n");
        if (column > indent && column + 1 + word > WIDTH) {
            mr_strbuf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            mr_strbuf_putc(out, ' ');
            column++;
        }
        mr_strbuf_add(out, text, word);
        column += word;
        text += word;
        text += strspn(text, " \n");
    }
    mr_strbuf_done(&safe);
    mr_strbuf_putc(out, '\n');
}

/* ---- head and verdict ---- */

static uint64_t steps_of_rank(const struct mr_explanation *x)
{
    uint64_t most = 0;
    for (size_t r = 0; r < x->ranks; r++)
        most = MR_MAX(most, x->rank[r].steps);
    return most;
}

static void put_head(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out)
{
    struct mr_strbuf facts = {0};
    uint64_t steps = steps_of_rank(x);
    if (x->ranks > 1 || (x->ranks && x->rank[0].rank >= 0))
        mr_strbuf_printf(&facts, "%zu %s, ", x->ranks, mr_plural(x->ranks, "rank", "ranks"));
    double processes = x->facts.counters_only && isfinite(x->facts.ranks) ? x->facts.ranks : NAN;
    if (isfinite(processes))
        mr_strbuf_printf(&facts, "%.0f %s", processes,
                         mr_plural((unsigned long long)processes, "process", "processes"));
    else if (isfinite(x->facts.nodes))
        mr_strbuf_printf(&facts, "%.0f %s", x->facts.nodes,
                         mr_plural((unsigned long long)x->facts.nodes, "node", "nodes"));
    if (steps)
        mr_strbuf_printf(&facts, ", %llu %s", (unsigned long long)steps, mr_plural(steps, "step", "steps"));
    if (x->facts.simulated)
        mr_strbuf_puts(&facts, ", simulated");
    char length[MR_HUMAN_LEN];
    mr_strbuf_printf(&facts, "%s%s", facts.len ? ", " : "", mr_human_ns((double)x->duration_ns, length));
    if (x->facts.device && *x->facts.device)
        mr_strbuf_printf(&facts, ", %s", x->facts.device);
    struct mr_strbuf name = {0};
    size_t room = WIDTH > facts.len + 20 ? WIDTH - facts.len - 20 : 20;
    mr_report_name(&name, x->source, room);
    int gap = (int)WIDTH - 16 - (int)name.len - (int)facts.len;
    mr_strbuf_printf(out, "%smillrace report %s%s%*s%s\n\n", bold(how), name.text ? name.text : "", plain(how),
                     MR_MAX(gap, 2), "", facts.text ? facts.text : "");
    mr_strbuf_done(&name);
    mr_strbuf_done(&facts);
}

void mr_report_verdict(const struct mr_explanation *x, struct mr_strbuf *out)
{
    for (unsigned i = 0; i < MR_ARRAY_LEN(x->verdict.line); i++) {
        if (!x->verdict.line[i])
            continue;
        mr_strbuf_puts(out, i ? "         " : "VERDICT  ");
        wrap(out, x->verdict.line[i], 9);
    }
}

/* ---- where the time went ---- */

struct row {
    const char *label, *remark;
    double ns, worst_ns;
    bool inner;
};

static void put_row(struct mr_strbuf *out, const struct row *r, double window, double worst_window, bool ranks)
{
    double share = window > 0 ? r->ns / window : 0;
    unsigned n = (unsigned)(share * BAR + 0.5);
    char bar[BAR + 1];
    n = MR_MIN(n, BAR);
    n = n || !(share >= 0.005) ? n : 1;
    memset(bar, '#', n);
    bar[n] = 0;
    char time[MR_HUMAN_LEN];
    mr_strbuf_printf(out, "  %s%-*s %-*s %12s %6.1f %%", r->inner ? "  " : "", r->inner ? 19 : 21, r->label, (int)BAR,
                     bar, mr_human_ns(r->ns, time), 100 * share);
    if (ranks && !r->inner)
        mr_strbuf_printf(out, " %6.1f %%", worst_window > 0 ? 100 * r->worst_ns / worst_window : 0);
    if (r->remark)
        mr_strbuf_printf(out, "   <- %s", r->remark);
    mr_strbuf_putc(out, '\n');
}

static const char *remark_of(unsigned cause)
{
    switch (cause) {
    case MR_STALL_NOT_STARTED: return "look-ahead";
    case MR_STALL_WORKER: return "off the CPU";
    case MR_STALL_CPU: return "no CPU was free";
    default: return NULL;
    }
}

static void put_causes(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out)
{
    static const char *const text[] = {
#define CAUSE_TEXT(name, key, words) [MR_STALL_##name] = words,
        MR_STALL_CAUSES(CAUSE_TEXT)
#undef CAUSE_TEXT
    };
    bool shown[MR_STALL_CAUSE_COUNT] = {false};
    double least = how->all ? 1 : 0.002 * (double)x->train_ns;
    for (unsigned n = 0; n < (how->all ? MR_STALL_CAUSE_COUNT : CAUSES_SHOWN); n++) {
        unsigned best = MR_STALL_CAUSE_COUNT;
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            if (!shown[c] && (double)x->stall[c] >= least &&
                (best == MR_STALL_CAUSE_COUNT || x->stall[c] > x->stall[best]))
                best = c;
        if (best == MR_STALL_CAUSE_COUNT)
            return;
        shown[best] = true;
        put_row(
            out,
            &(struct row){.label = text[best], .ns = (double)x->stall[best], .inner = true, .remark = remark_of(best)},
            (double)x->train_ns, 0, false);
    }
}

/* What the rows above do not show: evaluation, and the time before and after the training where it is worth a line. */
static void put_outside(const struct mr_explanation *x, struct mr_strbuf *out)
{
    double before = (double)x->ns[MR_TIME_STARTUP], after = (double)x->after_ns;
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    if (x->verdict.evaluation_s > 0.01 * (double)x->ns[MR_TIME_STALL] / 1e9)
        mr_strbuf_printf(out, "  of the data stall %s in evaluation\n", mr_human_ns(x->verdict.evaluation_s * 1e9, a));
    if (before + after > 0.005 * (double)x->train_ns)
        mr_strbuf_printf(out, "  outside of training: %s before the first step, %s after the last\n",
                         mr_human_ns(before, a), mr_human_ns(after, b));
}

static void put_split(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out)
{
    static const char *const text[] = {
#define CLASS_TEXT(name, key, words) [MR_TIME_##name] = words,
        MR_TIME_CLASSES(CLASS_TEXT)
#undef CLASS_TEXT
    };
    static const uint8_t order[] = {MR_TIME_COMPUTE, MR_TIME_STALL,   MR_TIME_CHECKPOINT, MR_TIME_BARRIER,
                                    MR_TIME_COPY,    MR_TIME_LOGGING, MR_TIME_OTHER};
    const struct mr_explain_rank *worst = &x->rank[x->worst_rank];
    bool ranks = x->ranks > 1;
    char title[32] = "";
    if (ranks)
        snprintf(title, sizeof title, "worst(r%d)", worst->rank);
    mr_strbuf_printf(out, "\n%sWHERE THE TIME WENT%s", bold(how), plain(how));
    if (ranks)
        mr_strbuf_printf(out, "%*s%s%*s", 26, "", "mean of ranks", 30, title);
    mr_strbuf_putc(out, '\n');
    for (unsigned i = 0; i < MR_ARRAY_LEN(order); i++) {
        unsigned c = order[i];
        struct row r = {.label = text[c], .ns = (double)x->ns[c], .worst_ns = (double)worst->ns[c]};
        if (c == MR_TIME_OTHER) {
            r.ns -= (double)x->after_ns;
            r.worst_ns -= (double)worst->after_ns;
        }
        if (r.ns < 0.0005 * (double)x->train_ns && c != MR_TIME_COMPUTE && c != MR_TIME_STALL)
            continue;
        put_row(out, &r, (double)x->train_ns, (double)worst->train_ns, ranks);
        if (c == MR_TIME_STALL)
            put_causes(x, how, out);
    }
    put_outside(x, out);
}

/* Without steps: what calls waited for, stalling anybody or not. */
static void put_waits(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out)
{
    static const char *const text[] = {[MR_WAIT_STORAGE] = "storage",
                                       [MR_WAIT_PAGE_CACHE] = "page cache",
                                       [MR_WAIT_METADATA] = "open/stat",
                                       [MR_WAIT_IPC] = "other processes",
                                       [MR_WAIT_NETWORK] = "network"};
    double window = 0, sum = 0;
    for (size_t r = 0; r < x->ranks; r++)
        window += (double)(x->rank[r].end_ns - x->rank[r].start_ns) / (double)x->ranks;
    for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++)
        sum += isfinite(mr_wait_s(x, c)) ? mr_wait_s(x, c) : 0;
    if (!(sum > 0))
        return;
    mr_strbuf_printf(out, "\n%sWHAT CALLS WAITED FOR%s  (%s)\n", bold(how), plain(how),
                     x->facts.counters_only ? "sum over the calls of a process, mean of all processes"
                                            : "time with at least one such call; they overlap");
    for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++)
        if (mr_wait_s(x, c) > 0)
            put_row(out, &(struct row){.label = text[c], .ns = (double)x->wait[c]}, window, 0, false);
}

/* Without steps: the parts of the program that it named itself. */
static void put_spans(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out)
{
    size_t n = how->all ? x->snippets : MR_MIN(x->snippets, (size_t)SPANS_SHOWN);
    char count[MR_HUMAN_LEN], sum[MR_HUMAN_LEN], median[MR_HUMAN_LEN], slow[MR_HUMAN_LEN];
    if (!n)
        return;
    mr_strbuf_printf(out, "\n%sNAMED SPANS%s%*s%10s %12s %10s %10s\n", bold(how), plain(how), 35, "", "times", "in all",
                     "median", "99 %");
    for (size_t i = 0; i < n; i++) {
        const struct mr_explain_snippet *s = &x->snippet[i];
        struct mr_strbuf name = {0};
        mr_report_name(&name, s->name, 42);
        mr_strbuf_printf(out, "  %-44s%10s %12s %10s %10s\n", name.text ? name.text : "",
                         mr_human_count(s->count, count), mr_human_ns((double)s->sum_ns, sum),
                         mr_human_ns((double)s->median_ns, median), mr_human_ns((double)s->p99_ns, slow));
        mr_strbuf_done(&name);
    }
    if (n < x->snippets)
        mr_strbuf_printf(out, "  ... %zu more; --all shows them\n", x->snippets - n);
}

/* ---- key numbers ---- */

/* Adds "  text" to a line that is being made, if the figure is known. */
static void part(struct mr_strbuf *line, double known, const char *fmt, ...) MR_PRINTF(3, 4);
static void part(struct mr_strbuf *line, double known, const char *fmt, ...)
{
    char text[160];
    va_list ap;
    if (!isfinite(known))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mr_strbuf_printf(line, "%s%s", line->len ? "   " : "  ", text);
}

/* Ends a line of parts. One that is too wide gets narrower gaps; what still does not fit goes on in the next line. */
static void end_line(struct mr_strbuf *out, struct mr_strbuf *line)
{
    static const char gap[] = "   ";
    size_t column = 0;
    const char *rest = line->len ? line->text : NULL;
    if (line->len && line->len <= WIDTH) {
        mr_strbuf_printf(out, "%s\n", line->text);
        rest = NULL;
    }
    while (rest) {
        const char *end = strstr(rest, gap);
        int len = (int)(end ? end - rest : (ptrdiff_t)strlen(rest));
        bool wrap = column && column + 2 + (size_t)len > WIDTH;
        mr_strbuf_printf(out, "%s%.*s", wrap ? "\n    " : column ? "  " : "", len, rest);
        column = (wrap ? 4 : column ? column + 2 : 0) + (size_t)len;
        rest = end ? end + sizeof gap - 1 : NULL;
        if (!rest)
            mr_strbuf_putc(out, '\n');
    }
    mr_strbuf_done(line);
    *line = (struct mr_strbuf){0};
}

static void put_reads(const struct mr_explanation *x, struct mr_strbuf *out)
{
    const struct mr_explain_sizes *s = &x->read_sizes;
    struct mr_strbuf line = {0};
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    uint64_t ops = 0, streamed = 0, consecutive = 0;
    for (unsigned i = 0; i < MR_EXPLAIN_SIZE_BINS; i++)
        ops += s->ops[i];
    for (size_t i = 0; i < x->files; i++) {
        streamed += x->file[i].streamed;
        consecutive += x->file[i].consecutive;
    }
    if (!ops)
        return;
    part(&line, 0, "reads %s", mr_human_count(ops, a));
    if (s->top && (double)s->top_ops[0] > USUAL_SIZE * (double)ops)
        part(&line, 0, "%.0f %% are %s", 100 * (double)s->top_ops[0] / (double)ops,
             mr_human_bytes((double)s->top_size[0], b));
    if (streamed)
        part(&line, 0, "consecutive %.0f %%", 100 * (double)consecutive / (double)streamed);
    part(&line, 0, "p50 %s, p99 %s", mr_human_ns((double)s->p50_ns, a), mr_human_ns((double)s->p99_ns, b));
    part(&line, x->facts.in_flight, "%.1f in flight", x->facts.in_flight);
    end_line(out, &line);
}

/* Where samples came from, in a run over tiers. */
static void put_tiers(const struct mr_explain_facts *f, struct mr_strbuf *out)
{
    static const char *const names[] = {"memory", "SSD", "peers", "source"};
    struct mr_strbuf line = {0};
    char read[MR_HUMAN_LEN];
    if (!isfinite(f->from[0]))
        return;
    for (unsigned i = 0; i < MR_ARRAY_LEN(names); i++)
        part(&line, f->from[i] > 0 ? f->from[i] : NAN, "%s%s %.1f %%", line.len ? "" : "tiers: ", names[i],
             100 * f->from[i]);
    part(&line, f->source_bytes, "%s from the source", mr_human_bytes(f->source_bytes, read));
    part(&line, f->source_reread, "each byte %.3f times", f->source_reread);
    end_line(out, &line);
}

/* "object storage: boto3 to 127.0.0.1:9000 (TLS), 1,234 requests of 64.0 KiB ..." */
static void put_objects(const struct mr_explain_objects *s, struct mr_strbuf *out)
{
    struct mr_strbuf line = {0};
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    if (!s->client || !(s->requests > 0))
        return;
    part(&line, 0, "object storage: %s%s%s%s", s->client, s->peer ? " to " : "", s->peer ? s->peer : "",
         s->tls ? " (TLS)" : "");
    part(&line, 0, "%s %s of %s", mr_human_count((uint64_t)s->requests, a),
         mr_plural((uint64_t)s->requests, "request", "requests"), mr_human_bytes(s->bytes / s->requests, b));
    part(&line, s->first_byte_s, "first byte %s, last %s", mr_human_ns(s->first_byte_s / s->requests * 1e9, a),
         mr_human_ns(s->answer_s / s->requests * 1e9, b));
    part(&line, s->in_flight, "%.1f in flight", s->in_flight);
    part(&line, s->connections, "%s new %s", mr_human_count((uint64_t)s->connections, a),
         mr_plural((uint64_t)s->connections, "connection", "connections"));
    part(&line, s->retries > 0 ? s->retries : NAN, "%s %s", mr_human_count((uint64_t)s->retries, a),
         mr_plural((uint64_t)s->retries, "repeat", "repeats"));
    end_line(out, &line);
}

/* "once", "1.51 times", "19,700 times". */
static const char *times_text(double ratio, char out[MR_HUMAN_LEN + 8])
{
    char count[MR_HUMAN_LEN];
    if (fabs(ratio - 1) < 0.005)
        return "once";
    if (ratio < 1000)
        snprintf(out, MR_HUMAN_LEN + 8, "%.3g times", ratio);
    else
        snprintf(out, MR_HUMAN_LEN + 8, "%s times", mr_human_count((unsigned long long)(ratio + 0.5), count));
    return out;
}

static void put_figures(const struct mr_explanation *x, struct mr_strbuf *out)
{
    const struct mr_explain_facts *f = &x->facts;
    struct mr_strbuf line = {0};
    char times[MR_HUMAN_LEN + 8];
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN], c[MR_HUMAN_LEN];
    if (f->has_steps) {
        part(&line, f->au, "AU %.1f %% [%.1f-%.1f]", 100 * f->au, 100 * f->au_low, 100 * f->au_high);
        part(&line, f->epochs > 1 ? f->au_cold : NAN, "first epoch %.1f %%", 100 * f->au_cold);
        part(&line, f->ceiling, "without stalls at most %.2fx faster", f->ceiling);
        part(&line, f->headroom, "headroom %.2fx", f->headroom);
        end_line(out, &line);
    }
    part(&line, f->samples_per_s, "throughput %.1f samples/s", f->samples_per_s);
    if (f->read_bytes > 0) {
        part(&line, f->read_bytes, "read %s", mr_human_bytes(f->read_bytes, a));
        part(&line, f->reread_ratio, "each byte %s", times_text(f->reread_ratio, times));
        if (isfinite(f->busy_bytes_per_s))
            part(&line, f->wall_bytes_per_s, "wall %s, busy %s", mr_human_rate(f->wall_bytes_per_s, b),
                 mr_human_rate(f->busy_bytes_per_s, c));
        else
            part(&line, f->wall_bytes_per_s, "wall %s", mr_human_rate(f->wall_bytes_per_s, b));
    }
    if (f->counters_only)
        part(&line, f->written_bytes, "written %s", mr_human_bytes(f->written_bytes, a));
    end_line(out, &line);
    put_reads(x, out);
    put_objects(&f->objects, out);
    if (!f->has_steps)
        return;
    part(&line, f->step_s, "step p50 %s p99 %s", mr_human_ns(f->step_s * 1e9, a), mr_human_ns(f->step_p99_s * 1e9, b));
    part(&line, f->stall_p50_s, "stall p50 %s", mr_human_ns(f->stall_p50_s * 1e9, a));
    part(&line, f->stall_p99_s, "p99 %s, max %s", mr_human_ns(f->stall_p99_s * 1e9, a),
         mr_human_ns(f->stall_max_s * 1e9, b));
    end_line(out, &line);
    part(&line, f->workers, f->workers > 0 ? "%.0f %s per rank" : "no workers: the training loop reads by itself",
         f->workers, f->own_run ? "readers" : mr_plural((unsigned long long)f->workers, "worker", "workers"));
    part(&line, f->prefetch > 0 ? f->prefetch : NAN, "%.0f batches ahead", f->prefetch);
    char cpu[32] = "";
    if (isfinite(f->worker_cpu))
        snprintf(cpu, sizeof cpu, ", %.0f %% of it on a CPU", 100 * f->worker_cpu);
    part(&line, f->batch_load_s, "one makes a batch in %s%s", mr_human_ns(f->batch_load_s * 1e9, a), cpu);
    end_line(out, &line);
    put_tiers(f, out);
}

static void put_numbers(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out)
{
    struct mr_strbuf figures = {0};
    put_figures(x, &figures);
    if (figures.len)
        mr_strbuf_printf(out, "\n%sKEY NUMBERS%s\n%s", bold(how), plain(how), figures.text);
    out->failed |= figures.failed;
    mr_strbuf_done(&figures);
}

/* Of samples with several fields: which of them is read and decoded for how much. */
static void put_fields(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out)
{
    size_t n = how->all ? x->fields : MR_MIN(x->fields, (size_t)FIELDS_SHOWN);
    char read[MR_HUMAN_LEN], given[MR_HUMAN_LEN], decode[MR_HUMAN_LEN], change[MR_HUMAN_LEN];
    if (x->fields < 2)
        return;
    mr_strbuf_printf(out, "\n%sFIELDS%s%*s%12s %12s %12s %12s\n", bold(how), plain(how), 40, "", "read", "delivered",
                     "decoded in", "transformed");
    for (size_t i = 0; i < n; i++) {
        const struct mr_explain_field *f = &x->field[i];
        struct mr_strbuf name = {0};
        mr_report_name(&name, f->name, 42);
        mr_strbuf_printf(out, "  %-44s%12s %12s %12s %12s\n", name.text ? name.text : "",
                         mr_human_bytes((double)f->stored_bytes, read), mr_human_bytes((double)f->bytes, given),
                         mr_human_ns((double)f->decode_ns, decode), mr_human_ns((double)f->transform_ns, change));
        mr_strbuf_done(&name);
    }
    if (n < x->fields)
        mr_strbuf_printf(out, "  ... %zu more; --all shows them\n", x->fields - n);
}

/* ---- findings ---- */

static const char *colour_of(const struct mr_report_text *how, unsigned severity)
{
    static const char *const colour[] = {"", "\033[33m", "\033[33;1m", "\033[31;1m"};
    return how->colour && severity < MR_ARRAY_LEN(colour) ? colour[severity] : "";
}

static void put_finding(const struct mr_finding *f, const struct mr_finding *before, size_t number,
                        const struct mr_report_text *how, struct mr_strbuf *out)
{
    struct mr_strbuf text = {0};
    char saves[48] = "", time[MR_HUMAN_LEN];
    if (f->potential && isfinite(f->saves_s))
        snprintf(saves, sizeof saves, "hidden now");
    else if (isfinite(f->saves_s))
        snprintf(saves, sizeof saves, "%s%s", mr_finding_is_bound(f) ? "up to " : "~",
                 mr_human_ns(f->saves_s * 1e9, time));
    mr_strbuf_printf(out, " %zu %s%-5s %-8s%s ", number, colour_of(how, f->severity), f->id,
                     mr_severity_name((enum mr_severity)f->severity), plain(how));
    mr_report_name(&text, f->title, 1000);
    size_t room = 68, len = text.text ? strlen(text.text) : 0;
    if (len <= room)
        mr_strbuf_printf(out, "%-*s %10s\n", (int)room, text.text ? text.text : "", saves);
    else { /* the seconds stay where they are looked for */
        wrap(out, text.text, 18);
        if (*saves)
            mr_strbuf_printf(out, "%*s%10s\n", 87 - 10, "saves ", saves);
    }
    mr_strbuf_done(&text);
    if (f->fix) {
        struct mr_strbuf fix = {0};
        mr_strbuf_puts(&fix, "fix: ");
        mr_report_name(&fix, f->fix, 1000);
        mr_strbuf_printf(out, "%18s", "");
        wrap(out, fix.text ? fix.text : "", 18);
        mr_strbuf_done(&fix);
    }
    if (!f->command || (before && before->command && strcmp(before->command, f->command) == 0))
        return;
    bool again = strncmp(f->command, "millrace trace", 14) == 0; /* somebody has to change the program first */
    mr_strbuf_printf(out, "%18s%s: ", "", again ? "then" : "try");
    mr_strbuf_text(out, f->command);
    mr_strbuf_putc(out, '\n');
}

size_t mr_report_shown(const struct mr_explanation *x)
{
    size_t n = MR_MIN(x->findings, (size_t)FINDINGS_SHOWN);
    while (x->verdict.verdict == MR_VERDICT_HEALTHY && n && x->finding[n - 1].severity == MR_SEVERITY_NOTE)
        n--;
    return n;
}

void mr_report_findings(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out)
{
    size_t n = how->all ? x->findings : mr_report_shown(x);
    while (how->alarms && n && x->finding[n - 1].severity == MR_SEVERITY_NOTE)
        n--;
    if (!n)
        return;
    mr_strbuf_printf(out, "\n%sFINDINGS%s", bold(how), plain(how));
    if (n < x->findings)
        mr_strbuf_printf(out, " (%zu of %zu; %s shows the rest)", n, x->findings, how->rest ? how->rest : "--all");
    mr_strbuf_putc(out, '\n');
    for (size_t i = 0; i < n; i++)
        put_finding(&x->finding[i], i ? &x->finding[i - 1] : NULL, i + 1, how, out);
}

/* ---- trust ---- */

static void put_trust(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out)
{
    const struct mr_explain_trust *t = &x->trust;
    char count[MR_HUMAN_LEN];
    mr_strbuf_printf(out, "\n%sTRUST%s  ", bold(how), plain(how));
    if (x->facts.counters_only)
        mr_strbuf_printf(out, "%scounters of %s %s",
                         mr_trust_complete(t) ? "" : "the log is not complete: ", mr_human_count(x->all_files, count),
                         mr_plural(x->all_files, "file", "files"));
    else if (!mr_trust_complete(t))
        mr_strbuf_printf(out, "the trace is not complete: %s events", mr_human_count(t->events, count));
    else
        mr_strbuf_printf(out, "trace complete: %s events, none lost", mr_human_count(t->events, count));
    if (t->sampled_out)
        mr_strbuf_printf(out, "; %s more calls were sampled out", mr_human_count(t->sampled_out, count));
    if (isfinite(t->overhead_share))
        mr_strbuf_printf(out, "; overhead %.1f %%", 100 * t->overhead_share);
    if (isfinite(x->facts.cold_fraction))
        mr_strbuf_printf(out, "; %.0f %% was already in the page cache", 100 * (1 - x->facts.cold_fraction));
    if (isfinite(t->clock_offset_s))
        mr_strbuf_printf(out, "; clocks %.0f us apart", 1e6 * t->clock_offset_s);
    mr_strbuf_putc(out, '\n');
    if (x->facts.ended_early) {
        struct mr_strbuf why = {0};
        mr_strbuf_printf(&why, "the run ended early: %s", x->facts.ended_early);
        mr_strbuf_puts(out, "       ! ");
        wrap(out, why.text ? why.text : "", 9);
        mr_strbuf_done(&why);
    }
    for (size_t i = 0; i < t->notes && (how->all || i < NOTES_SHOWN); i++) {
        mr_strbuf_printf(out, "       %s", t->note[i].serious ? "! " : "- ");
        wrap(out, t->note[i].text, 9);
    }
    if (how->next)
        mr_strbuf_printf(out, "%sNEXT%s   %s\n", bold(how), plain(how), how->next);
}

void mr_report_text(const struct mr_explanation *x, const struct mr_report_text *how, struct mr_strbuf *out)
{
    put_head(x, how, out);
    mr_report_verdict(x, out);
    if (x->facts.has_steps && x->ranks)
        put_split(x, how, out);
    else if (x->ranks)
        put_waits(x, how, out);
    if (!x->facts.has_steps)
        put_spans(x, how, out);
    put_numbers(x, how, out);
    if (!x->facts.own_run) /* the text of the run has them */
        put_fields(x, how, out);
    mr_report_findings(x, how, out);
    put_trust(x, how, out);
}
