/* Budgets: see budget.h. */
#include "report/budget.h"
#include "base/common.h"
#include "conf/option.h"
#include "conf/yaml.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Short names: what they stand for, times a factor. */
static const struct {
    const char *name, *full;
    double factor;
} short_names[] = {
    {"wall_s", "duration_s", 1},
    {"stall_pct", "verdict.stall_share", 100},
    {"stall_share", "verdict.stall_share", 1},
    {"stall_s", "verdict.stall_s", 1},
    {"p50_stall_s", "facts.stall_p50_s", 1},
    {"p99_stall_s", "facts.stall_p99_s", 1},
    {"max_stall_s", "facts.stall_max_s", 1},
    {"p50_step_s", "facts.step_p50_s", 1},
    {"p99_step_s", "facts.step_p99_s", 1},
    {"compute_s", "time.compute_s", 1},
    {"checkpoint_s", "time.checkpoint_s", 1},
    {"barrier_s", "time.barrier_s", 1},
    {"read_bytes", "facts.data_read_bytes", 1},
    {"cold_fraction", "trust.cold_fraction", 1},
};

static const char *const severities[] = {"note", "minor", "major", "critical"};

/* ---- reading ---- */

static const struct {
    const char *text;
    enum mr_budget_op op;
} ops[] = {{">=", MR_BUDGET_AT_LEAST}, {"<=", MR_BUDGET_AT_MOST}, {"==", MR_BUDGET_IS},
           {"!=", MR_BUDGET_IS_NOT},   {">", MR_BUDGET_ABOVE},    {"<", MR_BUDGET_BELOW}};

static int bad_line(const char *text, const char *why, struct mr_error *err)
{
    mr_error_plain(err, MR_E_CONFIG, "bad budget line '%.200s': %s", text, why);
    return mr_error_hint(err, "NAME OP LIMIT, as in 'au >= 0.9' or 'wall_s <= baseline * 1.03'"), MR_E_CONFIG;
}

static const char *skip_space(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

static const char *read_number(const char *p, double *out)
{
    char *end;
    double v = strtod(p, &end);
    if (end == p || !isfinite(v))
        return NULL;
    end = (char *)(uintptr_t)skip_space(end);
    if (*end == '%') { /* 5 % of a share; names that end in _pct are percentages themselves */
        v /= 100;
        end = (char *)(uintptr_t)skip_space(end + 1);
    }
    *out = v;
    return end;
}

/* "0.9", "baseline", "baseline * 1.03", "1.03 * baseline". */
static const char *read_limit(const char *p, struct mr_budget_line *out)
{
    static const char word[] = "baseline";
    out->factor = 1;
    if (strncmp(p, word, sizeof word - 1) != 0) {
        p = read_number(p, &out->factor);
        if (!p || *p != '*')
            return p;
        p = skip_space(p + 1);
        out->of_baseline = !strncmp(p, word, sizeof word - 1);
        return out->of_baseline ? skip_space(p + sizeof word - 1) : NULL;
    }
    out->of_baseline = true;
    p = skip_space(p + sizeof word - 1);
    return *p == '*' ? read_number(skip_space(p + 1), &out->factor) : p;
}

int mr_budget_parse_line(const char *text, struct mr_arena *a, struct mr_budget_line *out, struct mr_error *err)
{
    struct mr_budget_line l = {.text = mr_arena_strdup(a, text), .have = NAN, .limit = NAN};
    const char *p = skip_space(text);
    size_t n = strcspn(p, " \t<>=!");
    l.name = mr_arena_strndup(a, p, n);
    if (!l.text || !l.name)
        return mr_error_set(err, -ENOMEM, "cannot read the budget");
    if (!n)
        return bad_line(text, "it has no name", err);
    p = skip_space(p + n);
    size_t i = 0;
    while (i < MR_ARRAY_LEN(ops) && strncmp(p, ops[i].text, strlen(ops[i].text)) != 0)
        i++;
    if (i == MR_ARRAY_LEN(ops))
        return bad_line(text, "no comparison; want one of >= <= == != > <", err);
    l.op = ops[i].op;
    p = read_limit(skip_space(p + strlen(ops[i].text)), &l);
    if (!p || *p)
        return bad_line(text, "the limit is neither a number nor 'baseline' times one", err);
    *out = l;
    return 0;
}

static int read_lines(const struct mr_yaml_node *list, struct mr_arena *a, struct mr_budget *b, struct mr_error *err)
{
    if (!list || list->kind != MR_YAML_LIST || !list->n) {
        mr_error_plain(err, MR_E_CONFIG, "'%s' has no list 'budget'", b->file);
        return mr_error_hint(err, "a line 'budget:' and below it '  - au >= 0.9'"), MR_E_CONFIG;
    }
    b->line = mr_arena_alloc(a, list->n * sizeof(*b->line));
    if (!b->line)
        return mr_error_set(err, -ENOMEM, "cannot read the budget");
    for (unsigned i = 0; i < list->n; i++) {
        const struct mr_yaml_node *x = list->value[i];
        int rc = x->kind == MR_YAML_SCALAR ? mr_budget_parse_line(x->text, a, &b->line[i], err)
                                           : bad_line("(not a text)", "want NAME OP LIMIT", err);
        if (rc) {
            mr_error_context(err, "in %s:%u", b->file, x->line);
            return rc;
        }
        b->line[i].line = x->line;
        b->lines++;
    }
    return 0;
}

int mr_budget_load(const char *path, struct mr_arena *a, struct mr_budget *out, struct mr_error *err)
{
    struct mr_yaml_node *root;
    struct mr_budget b = {.file = path};
    int rc = mr_yaml_load(path, a, &root, err);
    if (rc)
        return rc;
    for (unsigned i = 0; root->kind == MR_YAML_MAP && i < root->n; i++) {
        const char *key = root->key[i]->text;
        if (!strcmp(key, "baseline") && root->value[i]->kind == MR_YAML_SCALAR)
            b.baseline = root->value[i]->text;
        else if (strcmp(key, "budget") != 0) {
            mr_error_plain(err, MR_E_CONFIG, "unknown key '%.100s' in a budget; it has 'budget' and 'baseline'", key);
            mr_error_context(err, "in %s:%u", path, root->key[i]->line);
            return MR_E_CONFIG;
        }
    }
    rc = read_lines(root->kind == MR_YAML_MAP ? mr_yaml_get(root, "budget") : root, a, &b, err);
    if (!rc)
        *out = b;
    return rc;
}

/* ---- figures ---- */

static bool is_figure(const json_t *v)
{
    return json_is_number(v) || json_is_boolean(v) || json_is_null(v);
}

/* Numbers, truth values and unknowns of an object and of those in it; null stays null. */
static void flatten(json_t *to, const char *prefix, const json_t *from)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)from, key, v)
    {
        char name[256];
        snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (json_is_object(v))
            flatten(to, name, v);
        else if (is_figure(v))
            json_object_set_new(to, name,
                                json_is_boolean(v)  ? json_integer(json_is_true(v))
                                : json_is_number(v) ? json_real(json_number_value(v))
                                                    : json_null());
    }
}

static void count_one(json_t *to, const char *what)
{
    char name[128];
    snprintf(name, sizeof name, "findings.%s", what);
    json_object_set_new(to, name, json_real(json_number_value(json_object_get(to, name)) + 1));
}

static void count_findings(json_t *to, const json_t *findings)
{
    size_t i;
    const json_t *f;
    json_object_set_new(to, "findings.total", json_real((double)json_array_size(findings)));
    for (i = 0; i < MR_ARRAY_LEN(severities); i++) {
        char name[64];
        snprintf(name, sizeof name, "findings.%s", severities[i]);
        json_object_set_new(to, name, json_real(0));
    }
    json_array_foreach(findings, i, f)
    {
        const char *severity = json_string_value(json_object_get(f, "severity"));
        const char *id = json_string_value(json_object_get(f, "id"));
        if (severity)
            count_one(to, severity);
        if (id)
            count_one(to, id);
    }
}

json_t *mr_budget_figures(const json_t *report, const json_t *summary)
{
    json_t *to = json_object(), *trust = json_object(), *v;
    const char *key;
    flatten(to, "", report);
    count_findings(to, json_object_get(report, "findings"));
    flatten(to, "run", json_object_get(summary, "millrace"));
    flatten(trust, "trust", json_object_get(summary, "trust")); /* what only the run itself knows */
    json_object_foreach(trust, key, v)
    {
        const json_t *have = json_object_get(to, key);
        if (!have || json_is_null(have))
            json_object_set(to, key, v);
    }
    json_decref(trust);
    return to;
}

json_t *mr_budget_mean(json_t *const *figures, size_t n)
{
    json_t *to = json_object(), *v;
    const char *key;
    json_object_foreach(figures[0], key, v)
    {
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            const json_t *x = json_object_get(figures[i], key);
            /* of findings that a run does not have there is no key: none */
            sum += json_is_number(x) ? json_number_value(x) : !x && !strncmp(key, "findings.", 9) ? 0 : NAN;
        }
        json_object_set_new(to, key, isnan(sum) ? json_null() : json_real(sum / (double)n));
    }
    return to;
}

/* ---- checking ---- */

/* The key of a name: itself, what a short name stands for, or the only key that ends so. NULL: there is none. */
static const char *key_of(const json_t *figures, const char *name, double *factor)
{
    const char *key, *found = NULL;
    json_t *v;
    size_t n = strlen(name), matches = 0;
    *factor = 1;
    if (json_object_get(figures, name))
        return name;
    for (size_t i = 0; i < MR_ARRAY_LEN(short_names); i++)
        if (!strcmp(short_names[i].name, name)) {
            *factor = short_names[i].factor;
            return short_names[i].full;
        }
    json_object_foreach((json_t *)(uintptr_t)figures, key, v)
    {
        size_t k = strlen(key);
        if (k > n && key[k - n - 1] == '.' && !strcmp(key + k - n, name) && strncmp(key, "run.", 4) != 0) {
            found = key;
            matches++;
        }
    }
    return matches == 1 ? found : NULL;
}

/* A rule that did not fire is not in the figures, and was found 0 times: capital letters and digits. */
static bool is_rule(const char *name)
{
    static const char word[] = "findings.";
    if (strncmp(name, word, sizeof word - 1) != 0 || !isupper((unsigned char)name[sizeof word - 1]))
        return false;
    for (const char *p = name + sizeof word - 1; *p; p++)
        if (!isupper((unsigned char)*p) && !isdigit((unsigned char)*p))
            return false;
    return true;
}

static int unknown_name(const struct mr_budget *b, const struct mr_budget_line *l, const json_t *figures,
                        struct mr_error *err)
{
    struct mr_nearest near = {.word = l->name};
    const char *key;
    json_t *v;
    for (size_t i = 0; i < MR_ARRAY_LEN(short_names); i++)
        mr_nearest_offer(&near, short_names[i].name);
    json_object_foreach((json_t *)(uintptr_t)figures, key, v)
    {
        const char *last = strrchr(key, '.');
        mr_nearest_offer(&near, key);
        if (last)
            mr_nearest_offer(&near, last + 1);
    }
    mr_error_plain(err, MR_E_CONFIG, "unknown metric '%.100s'", l->name);
    if (mr_nearest_name(&near))
        mr_error_hint(err, "did you mean '%s'? 'millrace report --json' has all names", mr_nearest_name(&near));
    else
        mr_error_hint(err, "names are the keys of 'millrace report --json', as in trust.cold_fraction");
    if (b->file)
        mr_error_context(err, "in %s:%u", b->file, l->line);
    return MR_E_CONFIG;
}

static double value_of(const json_t *figures, const char *key, double factor)
{
    const json_t *v = json_object_get(figures, key);
    return json_is_number(v) ? factor * json_number_value(v) : !v && is_rule(key) ? 0 : NAN;
}

static bool meets(enum mr_budget_op op, double have, double limit)
{
    if (!isfinite(have) || !isfinite(limit)) /* no figure: every one would be below an infinite limit */
        return false;
    switch (op) {
    case MR_BUDGET_AT_LEAST: return have >= limit;
    case MR_BUDGET_AT_MOST: return have <= limit;
    case MR_BUDGET_ABOVE: return have > limit;
    case MR_BUDGET_BELOW: return have < limit;
    case MR_BUDGET_IS: return have == limit;
    case MR_BUDGET_IS_NOT: return have != limit;
    }
    return false;
}

int mr_budget_check(struct mr_budget *b, const json_t *figures, const json_t *baseline, struct mr_error *err)
{
    for (unsigned i = 0; i < b->lines; i++) {
        struct mr_budget_line *l = &b->line[i];
        double factor = 1;
        const char *key = is_rule(l->name) ? l->name : key_of(figures, l->name, &factor);
        if (!key)
            return unknown_name(b, l, figures, err);
        if (l->of_baseline && !baseline) {
            mr_error_plain(err, MR_E_CONFIG, "'%.200s' needs a baseline", l->text);
            return mr_error_hint(err, "name its runs: 'baseline: runs/main' in the file, or --baseline runs/main"),
                   MR_E_CONFIG;
        }
        l->have = value_of(figures, key, factor);
        l->limit = l->of_baseline ? l->factor * value_of(baseline, key, factor) : l->factor;
        l->met = meets(l->op, l->have, l->limit);
    }
    return 0;
}
