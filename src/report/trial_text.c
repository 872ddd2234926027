/* A trial for people and for programs: see trial_text.h. Figures are those of struct mr_judgement. */
#include "report/trial_text.h"
#include "base/common.h"
#include "base/text_escape.h"
#include "report/name_json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const part_text[] = {
#define PART_TEXT(name, key, text) text,
    MR_WINDOW_PARTS(PART_TEXT)
#undef PART_TEXT
};
static const char *const part_key[] = {
#define PART_KEY(name, key, text) key,
    MR_WINDOW_PARTS(PART_KEY)
#undef PART_KEY
};

static const char *seconds(double s, char out[MR_HUMAN_LEN])
{
    if (isnan(s))
        snprintf(out, MR_HUMAN_LEN, "unknown");
    else
        snprintf(out, MR_HUMAN_LEN, "%.3g s", fabs(s) < 0.0005 ? 0 : s);
    return out;
}

/* "95.1 % [93.0-97.2]" */
static const char *share(double x, double low, double high, char out[64])
{
    if (isnan(x))
        snprintf(out, 64, "unknown");
    else if (isnan(low))
        snprintf(out, 64, "%.1f %%", 100 * x);
    else
        snprintf(out, 64, "%.1f %% [%.0f to %.0f]", 100 * x, 100 * low, 100 * high);
    return out;
}

/* ---- before ---- */

void mr_trial_plan_text(const struct mr_trial *t, struct mr_strbuf *out)
{
    char text[64];
    const struct mr_prediction_share *p = &t->predicted;
    mr_strbuf_printf(out, "%s  ", t->finding->id);
    mr_strbuf_text(out, t->finding->title);
    mr_strbuf_puts(out, "\n\n  program    ");
    mr_strbuf_text(out, t->program);
    mr_strbuf_printf(out, "\n  change     ");
    mr_strbuf_text(out, t->injection.target);
    mr_strbuf_printf(out, ": %s\n", t->injection.wanted);
    mr_strbuf_printf(out, "  predicted  %s of the waits %s\n", share(p->share, p->low, p->high, text),
                     t->whole ? "of the run, what lies before and behind its steps included" : "in these steps");
    if (t->whole)
        mr_strbuf_printf(out, "  runs       %u of each, in turn, whole\n", t->req.repeat);
    else
        mr_strbuf_printf(out, "  window     steps %" PRIu64 " to %" PRIu64 ", %u runs of each, in turn, traced alike\n",
                         t->from, t->to, t->req.repeat);
    if (t->x->checkpoints && !t->req.keep_saves)
        mr_strbuf_puts(out,
                       "  saves      go to folders beside those of the program, which are removed (--keep-saves)\n");
}

/* ---- figures ---- */

static void mean_parts(const struct mr_trial *t, bool changed, double out[MR_WINDOW_PART_COUNT], double *wall)
{
    size_t n = 0;
    memset(out, 0, MR_WINDOW_PART_COUNT * sizeof(*out));
    *wall = 0;
    for (size_t i = 0; i < t->runs; i++)
        n += t->run[i].changed == changed;
    for (size_t i = 0; i < t->runs; i++) {
        if (t->run[i].changed != changed)
            continue;
        for (unsigned k = 0; k < MR_WINDOW_PART_COUNT; k++)
            out[k] += t->run[i].window.sum[k] / (double)n;
        *wall += t->run[i].window.wall_s / (double)n;
    }
}

static void row(struct mr_strbuf *out, const char *name, double a, double b, const char *saved, const char *predicted)
{
    char x[MR_HUMAN_LEN], y[MR_HUMAN_LEN];
    mr_strbuf_printf(out, "  %-22s %10s %10s   %-*s%s%s\n", name, seconds(a, x), seconds(b, y), *predicted ? 30 : 0,
                     saved, *predicted && strlen(saved) >= 30 ? "  " : "", predicted);
}

static void put_runs(const struct mr_trial *t, bool changed, struct mr_strbuf *out)
{
    char text[MR_HUMAN_LEN];
    mr_strbuf_printf(out, "  waits of the runs of %c:", changed ? 'B' : 'A');
    for (size_t i = 0; i < t->runs; i++)
        if (t->run[i].changed == changed)
            mr_strbuf_printf(out, "  %s", seconds(t->run[i].window.wait_s, text));
    mr_strbuf_putc(out, '\n');
}

static void put_figures(const struct mr_trial *t, struct mr_strbuf *out)
{
    const struct mr_judgement *j = &t->judgement;
    double a[MR_WINDOW_PART_COUNT], b[MR_WINDOW_PART_COUNT], wall_a, wall_b;
    char saved[128], predicted[128], s[MR_HUMAN_LEN], low[MR_HUMAN_LEN], high[MR_HUMAN_LEN];
    mean_parts(t, false, a, &wall_a);
    mean_parts(t, true, b, &wall_b);
    mr_strbuf_printf(out, "\n  %-22s %10s %10s   %-30s%s\n", "", "A", "B", "saved", "predicted");
    for (unsigned k = 0; k < MR_WINDOW_PART_COUNT; k++)
        if (a[k] > 0.001 * wall_a || b[k] > 0.001 * wall_a)
            row(out, part_text[k], a[k], b[k], seconds(a[k] - b[k], s), "");
    double of = j->wait.a > 0 ? j->wait.a : NAN;
    row(out, "all waits", j->wait.a, j->wait.b, share(j->wait.saved / of, j->wait.low / of, j->wait.high / of, saved),
        share(t->predicted.share, t->predicted.low, t->predicted.high, predicted));
    if (isnan(j->gain.low))
        seconds(j->gain.saved, saved);
    else
        snprintf(saved, sizeof saved, "%s [%s to %s]", seconds(j->gain.saved, s), seconds(j->gain.low, low),
                 seconds(j->gain.high, high));
    if (isnan(j->predicted_low_s))
        seconds(j->predicted_s, predicted);
    else
        snprintf(predicted, sizeof predicted, "%s [%s to %s]", seconds(j->predicted_s, s),
                 seconds(j->predicted_low_s, low), seconds(j->predicted_high_s, high));
    char name[48];
    if (t->whole)
        snprintf(name, sizeof name, "the run");
    else
        snprintf(name, sizeof name, "these %" PRIu64 " steps", t->to - t->from);
    row(out, name, wall_a, wall_b, saved, predicted);
    put_runs(t, false, out);
    put_runs(t, true, out);
}

/* ---- the verdict ---- */

static void put_undecided(const struct mr_trial *t, struct mr_strbuf *out)
{
    const struct mr_judgement *j = &t->judgement;
    char low[MR_HUMAN_LEN], high[MR_HUMAN_LEN], between[MR_HUMAN_LEN];
    if (isnan(j->gain.low)) {
        mr_strbuf_puts(out, "one run of each side says nothing about the next one: --repeat 2 or more");
        return;
    }
    mr_strbuf_printf(out, "B saves between %s and %s; the runs of A differ by %s", seconds(j->gain.low, low),
                     seconds(j->gain.high, high), seconds(j->between_a, between));
    if (j->more)
        mr_strbuf_printf(out, "; about %zu runs of each side would tell (--repeat %zu)", j->more, j->more);
    else
        mr_strbuf_puts(out, "; more runs alone would not tell: use a machine with less beside it");
}

/* What is tried, in a sentence. */
static const char *name_of(const struct mr_trial *t)
{
    return t->req.set ? "the change" : t->finding->id;
}

static void put_verdict(const struct mr_trial *t, struct mr_strbuf *out)
{
    const struct mr_judgement *j = &t->judgement;
    double a[MR_WINDOW_PART_COUNT], b[MR_WINDOW_PART_COUNT], wall_a, wall_b;
    char x[MR_HUMAN_LEN], y[MR_HUMAN_LEN], saved[64], said[64];
    double of = j->wait.a > 0 ? j->wait.a : NAN;
    mean_parts(t, false, a, &wall_a);
    mean_parts(t, true, b, &wall_b);
    share(j->gain.saved / of, NAN, NAN, saved);
    share(t->predicted.share, NAN, NAN, said);
    mr_strbuf_printf(out, "\nVERDICT  %s: ", mr_trial_verdict_name(j->verdict));
    switch (j->verdict) {
    case MR_TRIAL_CONFIRMED:
    case MR_TRIAL_SMALLER:
        mr_strbuf_printf(out, "%s saves %s of the waits, %s were predicted; %s %s instead of %s", name_of(t), saved,
                         said, t->whole ? "the run takes" : "the steps take", seconds(wall_b, x), seconds(wall_a, y));
        break;
    case MR_TRIAL_NO_GAIN:
        mr_strbuf_printf(out, "%s saves at most %s of the %s that %s", name_of(t), seconds(fmax(0, j->gain.high), x),
                         seconds(wall_a, y), t->whole ? "the run takes" : "the steps take");
        break;
    case MR_TRIAL_HARMFUL:
        if (t->failed) {
            mr_strbuf_puts(out, "the changed program fails: ");
            mr_strbuf_text(out, t->failed);
        } else {
            mr_strbuf_printf(out, "with %s %s %s longer", name_of(t), t->whole ? "the run takes" : "the steps take",
                             seconds(-j->gain.saved, x));
        }
        break;
    case MR_TRIAL_UNDECIDED: put_undecided(t, out); break;
    }
    mr_strbuf_putc(out, '\n');
}

void mr_trial_result_text(const struct mr_trial *t, struct mr_strbuf *out)
{
    if (t->injected.changed && !t->own) {
        mr_strbuf_puts(out, "  injected   ");
        mr_strbuf_text(out, t->injected.change);
        mr_strbuf_putc(out, '\n');
    }
    if (!t->failed)
        put_figures(t, out);
    put_verdict(t, out);
    if (t->evicts)
        mr_strbuf_puts(
            out,
            "         the data were dropped from the page cache before each run, as the recorded run read storage\n");
    for (size_t i = 0; i < t->notes; i++) {
        mr_strbuf_puts(out, "         ");
        mr_strbuf_text(out, t->note[i]);
        mr_strbuf_putc(out, '\n');
    }
}

/* ---- JSON ---- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *saving_json(const struct mr_saving *s)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "a_s", number(s->a), "b_s", number(s->b), "saved_s", number(s->saved),
                     "low_s", number(s->low), "high_s", number(s->high));
}

static json_t *run_json(const struct mr_trial_one *r)
{
    json_t *parts = json_object();
    for (unsigned k = 0; k < MR_WINDOW_PART_COUNT; k++) {
        char key[32];
        snprintf(key, sizeof key, "%s_s", part_key[k]);
        json_object_set_new(parts, key, number(r->window.sum[k]));
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "side", r->changed ? "b" : "a", "wait_s", number(r->window.wait_s),
                     "steps_s", number(r->window.wall_s), "took_s", number(r->took_s), "parts", parts);
}

static void add_result(const struct mr_trial *t, json_t *to)
{
    const struct mr_judgement *j = &t->judgement;
    json_t *runs = json_array(), *notes = json_array();
    for (size_t i = 0; i < t->runs; i++)
        json_array_append_new(runs, run_json(&t->run[i]));
    for (size_t i = 0; i < t->notes; i++)
        json_array_append_new(notes, json_string(t->note[i]));
    json_object_set_new(to, "verdict", json_string(mr_trial_verdict_name(j->verdict)));
    json_object_set_new(to, "injected", t->injected.change ? mr_name_json(t->injected.change) : json_null());
    json_object_set_new(to, "failed", t->failed ? mr_name_json(t->failed) : json_null());
    json_object_set_new(to, "runs", runs);
    json_object_set_new(to, "notes", notes);
    if (t->failed)
        return;
    json_object_set_new(to, "wait", saving_json(&j->wait));
    json_object_set_new(to, "rest", saving_json(&j->rest));
    json_object_set_new(to, "gain", saving_json(&j->gain));
    json_object_set_new(to, "predicted_s", number(j->predicted_s));
    json_object_set_new(to, "predicted_low_s", number(j->predicted_low_s));
    json_object_set_new(to, "predicted_high_s", number(j->predicted_high_s));
    json_object_set_new(to, "repeats_needed", j->more ? json_integer((json_int_t)j->more) : json_null());
}

json_t *mr_trial_json(const struct mr_trial *t, bool ran)
{
    json_t *predicted = json_pack("{s:o, s:o, s:o}", "share", number(t->predicted.share), "low",
                                  number(t->predicted.low), "high", number(t->predicted.high));
    json_t *root =
        json_pack("{s:s, s:s, s:o, s:o, s:s, s:o, s:[I,I], s:I, s:o}", "schema", "millrace.try/1", "id", t->finding->id,
                  "trace", mr_name_json(t->x->source), "program", mr_name_json(t->program), "wanted",
                  t->injection.wanted, "loaders", t->own ? json_null() : json_incref(t->injection.loaders), "steps",
                  (json_int_t)t->from, (json_int_t)t->to, "repeat", (json_int_t)t->req.repeat, "predicted", predicted);
    if (root && ran)
        add_result(t, root);
    return root;
}
