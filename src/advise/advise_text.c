/* What `report --explain ID` shows: the rule's condition, what was measured, where, how the seconds were computed, how
 * the change is made, and why the other rules did not fire. */
#include "base/common.h"
#include "base/strbuf.h"
#include "advise/advise_internal.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define FILES_SHOWN 5
#define STEPS_SHOWN 5

static const struct mr_rule *rule_of(const char *id)
{
    for (unsigned i = 0; i < mr_rule_count; i++)
        if (strcasecmp(mr_rules[i].id, id) == 0)
            return &mr_rules[i];
    return NULL;
}

static const struct mr_finding *finding_of(const struct mr_explanation *x, const char *id)
{
    for (size_t i = 0; i < x->findings; i++)
        if (strcmp(x->finding[i].id, id) == 0)
            return &x->finding[i];
    return NULL;
}

static const char *silence_of(const struct mr_explanation *x, const char *id)
{
    for (size_t i = 0; i < x->silences; i++)
        if (strcmp(x->silence[i].id, id) == 0)
            return x->silence[i].why;
    return "";
}

/* Lines of `text`, indented; control bytes of names that came with it as '?'. */
static void put_lines(struct mr_strbuf *s, const char *indent, const char *text)
{
    for (const char *p = text; p && *p;) {
        size_t n = strcspn(p, "\n");
        mr_strbuf_puts(s, indent);
        for (size_t i = 0; i < n; i++)
            mr_strbuf_putc(s, (unsigned char)p[i] < 0x20 || p[i] == 0x7f ? '?' : p[i]);
        mr_strbuf_putc(s, '\n');
        p += n + (p[n] == '\n');
    }
}

static void put_part(struct mr_strbuf *s, const char *title, const char *text)
{
    if (!text || !*text)
        return;
    mr_strbuf_printf(s, "%s\n", title);
    put_lines(s, "  ", text);
}

static void put_evidence(struct mr_strbuf *s, const struct mr_explanation *x)
{
    char ns[MR_HUMAN_LEN], bytes[MR_HUMAN_LEN];
    size_t shown = MR_MIN(x->files, (size_t)FILES_SHOWN);
    if (shown)
        mr_strbuf_puts(s, "files with most bytes\n");
    for (size_t i = 0; i < shown; i++) {
        const struct mr_explain_file *f = &x->file[i];
        mr_strbuf_printf(s, "  %10s  %8s in %llu calls  ",
                         mr_human_bytes((double)(f->read_bytes + f->written_bytes), bytes),
                         mr_human_ns((double)f->dur_ns, ns), (unsigned long long)f->calls);
        put_lines(s, "", f->path);
    }
}

static void put_steps(struct mr_strbuf *s, const struct mr_explanation *x)
{
    uint64_t below = UINT64_MAX;
    char ns[MR_HUMAN_LEN], step[MR_HUMAN_LEN];
    bool any = false;
    for (unsigned k = 0; k < STEPS_SHOWN; k++) {
        const struct mr_explain_step *worst = NULL;
        for (size_t i = 0; i < x->steps; i++)
            if (x->step[i].ns[MR_TIME_STALL] < below &&
                (!worst || x->step[i].ns[MR_TIME_STALL] > worst->ns[MR_TIME_STALL]))
                worst = &x->step[i];
        if (!worst || !worst->ns[MR_TIME_STALL])
            break;
        if (!any)
            mr_strbuf_puts(s, "longest waits\n");
        any = true;
        below = worst->ns[MR_TIME_STALL];
        mr_strbuf_printf(s, "  rank %u epoch %u step %llu: waited %s of %s\n", worst->rank, worst->epoch,
                         (unsigned long long)worst->step, mr_human_ns((double)below, ns),
                         mr_human_ns((double)(worst->end_ns - worst->start_ns), step));
    }
}

static void put_finding(struct mr_strbuf *s, const struct mr_explanation *x, const struct mr_finding *f)
{
#define KIND_TEXT(name, key, text) text,
    static const char *const kind[] = {MR_IDIOMS(KIND_TEXT)};
#undef KIND_TEXT
    mr_strbuf_printf(s, "%s %s%s\n", f->id, mr_severity_name(f->severity), f->potential ? " (potential)" : "");
    put_lines(s, "  ", f->title);
    put_part(s, "measured", f->evidence);
    if (isfinite(f->saves_s))
        mr_strbuf_printf(s,
                         "saves\n  %.3g s (%.3g to %.3g s), %.3g s beyond the findings before it; confidence %.0f %%\n",
                         f->saves_s, f->saves_low_s, f->saves_high_s, f->adds_s, 100 * f->confidence);
    put_part(s, "computed as", f->formula);
    put_part(s, "fix", f->fix);
    for (unsigned i = 0; i < MR_ARRAY_LEN(kind); i++)
        put_part(s, kind[i], f->snippet[i]);
    put_part(s, "try it", f->command);
    put_evidence(s, x);
    put_steps(s, x);
}

int mr_advise_text(const struct mr_explanation *x, const char *id, char **out, struct mr_error *err)
{
    const struct mr_rule *r = rule_of(id);
    struct mr_strbuf s = {0};
    if (!r) {
        mr_error_set(err, MR_E_USAGE, "no rule is called '%s'", id);
        mr_error_hint(err, "findings and their ids are in 'millrace report TRACE --all'");
        return MR_E_USAGE;
    }
    const struct mr_finding *f = finding_of(x, r->id);
    if (f)
        put_finding(&s, x, f);
    else
        mr_strbuf_printf(&s, "%s does not apply: %s\n", r->id, silence_of(x, r->id));
    put_part(&s, "fires when", r->condition);
    mr_strbuf_puts(&s, "other rules that did not fire\n");
    for (size_t i = 0; i < x->silences; i++)
        if (strcmp(x->silence[i].id, r->id) != 0)
            mr_strbuf_printf(&s, "  %-5s %s\n", x->silence[i].id, x->silence[i].why);
    char *text = mr_strbuf_take(&s);
    if (!text)
        return mr_error_set(err, -ENOMEM, "cannot explain '%s'", id);
    *out = text;
    return 0;
}
