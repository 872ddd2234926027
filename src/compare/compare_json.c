/* A comparison as JSON, "millrace.compare/1": base units, the unit in every key, null for what is unknown. */
#include "compare/compare.h"

#include <math.h>

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *count(uint64_t x)
{
    return x == MR_TIME_UNKNOWN ? json_null() : json_integer((json_int_t)x);
}

/* Paths may hold any bytes. */
static json_t *name_json(const char *text)
{
    json_t *s = json_string(text);
    return s ? s : json_string("(not UTF-8)");
}

static json_t *run_json(const struct mr_compare_run *r)
{
    json_t *values = json_object();
    for (int m = 0; m < MR_COMPARE_METRIC_COUNT; m++)
        json_object_set_new(values, mr_compare_metric_info[m].key, real(r->value[m]));
    return json_pack("{s:o, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "path", name_json(r->path), "simulated",
                     r->simulated, "complete", !r->incomplete, "trusted", !r->untrusted, "reason",
                     r->why ? name_json(r->why) : json_null(), "ranks", count(r->work.ranks), "steps",
                     count(r->work.steps), "samples", count(r->work.samples), "sample_bytes",
                     count(r->work.sample_bytes), "read_bytes", count(r->work.read_bytes), "metrics", values);
}

static json_t *side_json(const struct mr_compare_side *s)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < s->run.n; i++)
        json_array_append_new(runs, run_json(&s->run.item[i]));
    return json_pack("{s:o, s:b, s:o}", "name", name_json(s->name), "simulated", s->simulated, "runs", runs);
}

static json_t *cell_json(const struct mr_compare_cell *x)
{
    return json_pack("{s:i, s:o, s:o, s:o, s:o}", "runs", (int)x->n, "mean", real(x->mean), "stdev", real(x->sd), "min",
                     real(x->low), "max", real(x->high));
}

static json_t *change_json(const struct mr_compare_change *x, const struct mr_compare_metric_info *i)
{
    const char *name = mr_compare_verdict_name((enum mr_compare_verdict)x->verdict);
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "change", real(x->change), "change_is",
                     i->unit == MR_IN_SHARE ? "difference" : "relative", "low", real(x->low), "high", real(x->high),
                     "p", real(x->p), "detectable", real(x->detectable), "verdict",
                     *name ? json_string(name) : json_null());
}

static json_t *metrics_json(const struct mr_compare *c)
{
    json_t *list = json_array();
    for (int m = 0; m < MR_COMPARE_METRIC_COUNT; m++) {
        json_t *cells = json_array(), *changes = json_array();
        for (size_t s = 0; s < c->sides; s++) {
            json_array_append_new(cells, cell_json(&c->row[m].cell[s]));
            if (s)
                json_array_append_new(changes, change_json(&c->row[m].change[s], &mr_compare_metric_info[m]));
        }
        json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "metric", mr_compare_metric_info[m].key, "sides",
                                              cells, "changes", changes));
    }
    return list;
}

static json_t *causes_json(const struct mr_compare *c)
{
    static const char *const key[] = {
#define KEY(name, key, text) key,
        MR_STALL_CAUSES(KEY)
#undef KEY
    };
    json_t *o = json_object();
    for (int k = 0; k < MR_STALL_CAUSE_COUNT; k++) {
        json_t *sides = json_array();
        for (size_t s = 0; s < c->sides; s++)
            json_array_append_new(sides, real(c->cause[(size_t)k * c->sides + s]));
        json_object_set_new(o, key[k], sides);
    }
    return o;
}

static json_t *spans_json(const struct mr_compare *c)
{
    json_t *all = json_array();
    for (size_t i = 0; i < c->span.n; i++) {
        const struct mr_compare_span *x = &c->span.item[i];
        json_t *sides = json_array();
        for (size_t s = 0; s < c->sides; s++)
            json_array_append_new(sides, json_pack("{s:o, s:o, s:o, s:o}", "count", real(x->cell[s].count), "p25_s",
                                                   real(x->cell[s].p25_s), "median_s", real(x->cell[s].median_s),
                                                   "p75_s", real(x->cell[s].p75_s)));
        json_array_append_new(all, json_pack("{s:o, s:o, s:o}", "category", name_json(x->category), "name",
                                             name_json(x->name), "sides", sides));
    }
    return all;
}

json_t *mr_compare_json(const struct mr_compare *c)
{
    json_t *sides = json_array(), *settings = json_array(), *notes = json_array();
    for (size_t s = 0; s < c->sides; s++)
        json_array_append_new(sides, side_json(&c->side[s]));
    for (size_t i = 0; i < c->setting.n; i++) {
        json_t *values = json_array();
        for (size_t s = 0; s < c->sides; s++)
            json_array_append_new(values, name_json(c->setting.item[i].value[s]));
        json_array_append_new(settings,
                              json_pack("{s:o, s:o}", "key", name_json(c->setting.item[i].key), "values", values));
    }
    for (size_t i = 0; i < c->note.n; i++)
        json_array_append_new(notes, name_json(c->note.item[i]));
    json_t *same = c->same_work == MR_WORK_UNKNOWN ? json_null() : json_boolean(c->same_work == MR_WORK_SAME);
    return json_pack("{s:s, s:o, s:o, s:f, s:f, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "schema",
                     "millrace.compare/1", "same_work", same, "work", name_json(c->work), "level", c->level,
                     "least_effect", c->least, "tests", (int)c->tests, "sides", sides, "metrics", metrics_json(c),
                     "stall_share_by_cause", causes_json(c), "named_spans", spans_json(c), "settings", settings,
                     "predicted_s", real(c->predicted_s), "prediction_error", real(c->prediction_error), "notes",
                     notes);
}
