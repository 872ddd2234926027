/* The result of `millrace check`: see check_output.h. */
#include "report/check_output.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "base/text_escape.h"
#include "report/out_stream.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool mr_check_knows(const struct mr_budget_line *l)
{
    return isfinite(l->have) && isfinite(l->limit);
}

static const char *state_of(const struct mr_budget_line *l)
{
    return l->met ? "ok" : mr_check_knows(l) ? "MISSED" : "unknown";
}

/* "0.8123, limit 0.9": what there is to say beside the line itself. */
static const char *figures_text(const struct mr_budget_line *l, char out[128])
{
    if (!isfinite(l->have))
        snprintf(out, 128, "%.60s is not known", l->name);
    else if (!isfinite(l->limit))
        snprintf(out, 128, "%.6g; the baseline is not known", l->have);
    else if (l->of_baseline)
        snprintf(out, 128, "%.6g, limit %.6g", l->have, l->limit);
    else
        snprintf(out, 128, "%.6g", l->have);
    return out;
}

void mr_check_print(FILE *f, const struct mr_check_result *r)
{
    char text[128], line[1024];
    unsigned met = 0, widest = 0;
    for (unsigned i = 0; i < r->budget->lines; i++) {
        met += r->budget->line[i].met;
        widest = MR_MAX(widest, (unsigned)strlen(r->budget->line[i].text));
    }
    for (unsigned i = 0; i < r->budget->lines; i++) {
        const struct mr_budget_line *l = &r->budget->line[i];
        fprintf(f, "%-7s  %-*s  %s\n", state_of(l), (int)MR_MIN(widest, 60u),
                mr_text_escape(l->text, line, sizeof line), figures_text(l, text));
    }
    fprintf(f, "%u of %u %s met", met, r->budget->lines, mr_plural(r->budget->lines, "limit", "limits"));
    if (r->runs > 1)
        fprintf(f, ", by the mean of %zu runs", r->runs);
    if (r->baseline_runs)
        fprintf(f, "; baseline of %zu %s", r->baseline_runs, mr_plural(r->baseline_runs, "run", "runs"));
    fputc('\n', f);
}

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

int mr_check_print_json(FILE *f, const struct mr_check_result *r, struct mr_error *err)
{
    json_t *lines = json_array();
    bool all = true;
    for (unsigned i = 0; i < r->budget->lines; i++) {
        const struct mr_budget_line *l = &r->budget->line[i];
        all = all && l->met;
        json_array_append_new(lines, json_pack("{s:s, s:s, s:o, s:o, s:b}", "line", l->text, "metric", l->name, "value",
                                               real(l->have), "limit", real(l->limit), "met", l->met));
    }
    json_t *o = json_pack("{s:s, s:b, s:b, s:b, s:i, s:i, s:o}", "schema", "millrace.check/1", "met", all, "complete",
                          !r->incomplete, "trusted", !r->untrusted, "runs", (int)r->runs, "baseline_runs",
                          (int)r->baseline_runs, "lines", lines);
    char *text = o ? json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    if (text)
        fprintf(f, "%s\n", text);
    free(text);
    json_decref(o);
    return text ? 0 : mr_error_set(err, -ENOMEM, "cannot print the result");
}

/* A workflow command ends with its line, and '%' begins an escape. */
static void put_github(FILE *f, const char *text, bool property)
{
    for (; *text; text++)
        if (*text == '%' || *text == '\n' || *text == '\r' || (property && (*text == ':' || *text == ',')))
            fprintf(f, "%%%02X", (unsigned char)*text);
        else
            fputc(*text, f);
}

void mr_check_print_github(FILE *f, const struct mr_check_result *r)
{
    char text[128];
    for (unsigned i = 0; i < r->budget->lines; i++) {
        const struct mr_budget_line *l = &r->budget->line[i];
        if (l->met)
            continue;
        fputs("::error ", f);
        if (r->budget->file && l->line) {
            fputs("file=", f);
            put_github(f, r->budget->file, true);
            fprintf(f, ",line=%u,", l->line);
        }
        fputs("title=millrace check::", f);
        put_github(f, l->text, false);
        fputs(": ", f);
        put_github(f, figures_text(l, text), false);
        fputc('\n', f);
    }
}

/* Text of XML 1.0; control characters are not allowed there at all. */
static void put_xml(struct mr_out *o, const char *text)
{
    struct mr_strbuf safe = {0};
    mr_strbuf_text(&safe, text);
    for (const char *p = safe.text ? safe.text : ""; *p; p++)
        switch (*p) {
        case '&': mr_out_text(o, "&amp;"); break;
        case '<': mr_out_text(o, "&lt;"); break;
        case '>': mr_out_text(o, "&gt;"); break;
        case '"': mr_out_text(o, "&quot;"); break;
        default: mr_out_bytes(o, p, 1);
        }
    mr_strbuf_done(&safe);
}

static void put_case(struct mr_out *o, const char *what, const struct mr_budget_line *l)
{
    char text[128];
    mr_out_text(o, "  <testcase classname=\"");
    put_xml(o, what);
    mr_out_text(o, "\" name=\"");
    put_xml(o, l->text);
    if (l->met) {
        mr_out_text(o, "\"/>\n");
        return;
    }
    mr_out_text(o, mr_check_knows(l) ? "\"><failure message=\"" : "\"><error message=\"");
    if (mr_check_knows(l)) {
        put_xml(o, l->name);
        mr_out_text(o, " is ");
    }
    put_xml(o, figures_text(l, text));
    if (mr_check_knows(l)) {
        mr_out_text(o, ", want ");
        put_xml(o, l->text);
    }
    mr_out_text(o, "\"/></testcase>\n");
}

int mr_check_write_junit(const char *path, const char *what, const struct mr_check_result *r, struct mr_error *err)
{
    struct mr_out o;
    unsigned failures = 0, errors = 0;
    for (unsigned i = 0; i < r->budget->lines; i++) {
        const struct mr_budget_line *l = &r->budget->line[i];
        failures += !l->met && mr_check_knows(l);
        errors += !l->met && !mr_check_knows(l);
    }
    int rc = mr_out_open(&o, path, false, err);
    if (rc)
        return rc;
    mr_out_format(&o,
                  "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"millrace check\" tests=\"%u\" "
                  "failures=\"%u\" errors=\"%u\">\n",
                  r->budget->lines, failures, errors);
    for (unsigned i = 0; i < r->budget->lines; i++)
        put_case(&o, what, &r->budget->line[i]);
    mr_out_text(&o, "</testsuite>\n");
    return mr_out_close(&o, err);
}
