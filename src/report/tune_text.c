/* A search for people and for programs: see tune_text.h. */
#include "report/tune_text.h"
#include "base/common.h"
#include "base/text_escape.h"
#include "report/name_json.h"
#include "report/trial_text.h"

#include <inttypes.h>
#include <math.h>

static void put_row(struct mr_strbuf *out, const char *text, double predicted, const char *measured, const char *note)
{
    mr_strbuf_printf(out, "  %-62s %8.3g s%s%*s%s%s\n", text, predicted, *measured ? "  " : "", *measured ? 10 : 0,
                     measured, *note ? "  " : "", note);
}

static void put_settings(const struct mr_tune *u, bool ran, struct mr_strbuf *out)
{
    char figure[32] = "";
    mr_strbuf_printf(out, "  %-62s %10s%s\n", "", "predicted", ran ? "    measured" : "");
    if (ran)
        snprintf(figure, sizeof figure, "%.3g s", u->base_measured_s);
    put_row(out, "as it is", u->base_s, figure, "");
    for (size_t i = 0; i < u->settings; i++) {
        const struct mr_tune_setting *s = &u->setting[i];
        if (ran)
            snprintf(figure, sizeof figure, s->failed ? "failed" : "%.3g s", s->measured_s);
        put_row(out, s->text, s->predicted_s, figure, ran && i == u->best ? "<- best" : "");
    }
}

void mr_tune_result_text(const struct mr_tune *u, struct mr_strbuf *out)
{
    put_settings(u, true, out);
    mr_trial_result_text(&u->trial, out);
}

void mr_tune_plan_text(const struct mr_tune *u, bool is_all, struct mr_strbuf *out)
{
    const struct mr_trial *t = &u->trial;
    mr_strbuf_puts(out, "  program    ");
    mr_strbuf_text(out, t->program);
    mr_strbuf_printf(out, "\n  searched   %zu settings by replay, in %.2g s\n", u->searched, u->searched_s);
    if (t->whole)
        mr_strbuf_printf(out, "  measured   %zu settings, whole runs, in turn\n\n", u->settings);
    else
        mr_strbuf_printf(out, "  measured   %zu settings, steps %" PRIu64 " to %" PRIu64 ", in turn, traced alike\n\n",
                         u->settings, t->from, t->to);
    if (is_all)
        put_settings(u, false, out);
}

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *mr_tune_json(const struct mr_tune *u, bool ran)
{
    json_t *list = json_array();
    for (size_t i = 0; i < u->settings; i++) {
        const struct mr_tune_setting *s = &u->setting[i];
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o}", "set", s->text, "predicted_s",
                                              number(s->predicted_s), "measured_s", number(s->measured_s), "failed",
                                              s->failed ? mr_name_json(s->failed) : json_null()));
    }
    return json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "schema", "millrace.tune/1", "searched",
                     (json_int_t)u->searched, "searched_s", number(u->searched_s), "base_predicted_s",
                     number(u->base_s), "base_measured_s", number(u->base_measured_s), "settings", list, "best",
                     ran ? json_string(u->setting[u->best].text) : json_null(), "trial", mr_trial_json(&u->trial, ran));
}
