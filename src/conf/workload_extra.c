/* The x-millrace block: what DLIO has no key for. Source of the figures, ranks, down-scaling, a storage model, the
 * variants and the expectations a preset is checked by, notes; and any ordinary section, for keys that only we have. */
#include "conf/workload_apply.h"

#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define MAX_EXPECT 256u

static int bad(struct mr_applier *ap, const struct mr_yaml_node *n, const char *what)
{
    mr_error_plain(ap->err, MR_E_CONFIG, "in 'x-millrace': %s", what);
    return mr_apply_where(ap, n->line), MR_E_CONFIG;
}

static int get_text(struct mr_applier *ap, const struct mr_yaml_node *n, const char **out)
{
    if (n->kind != MR_YAML_SCALAR)
        return bad(ap, n, "a text is wanted here");
    *out = n->text;
    return 0;
}

static int get_number(struct mr_applier *ap, const struct mr_yaml_node *n, double *out)
{
    if (n->kind != MR_YAML_SCALAR || mr_parse_double(n->text, out))
        return bad(ap, n, "a number is wanted here");
    return 0;
}

/* A text or a list of texts. */
static int get_texts(struct mr_applier *ap, const struct mr_yaml_node *n, struct mr_strings *out)
{
    unsigned count = n->kind == MR_YAML_LIST ? n->n : 1;
    struct mr_strings list = {.item = mr_arena_alloc(ap->arena, (count + 1) * sizeof(*list.item))};
    if (!list.item)
        return mr_error_set(ap->err, -ENOMEM, "cannot keep the x-millrace block");
    for (; list.n < count; list.n++) {
        int rc = get_text(ap, n->kind == MR_YAML_LIST ? n->value[list.n] : n, &list.item[list.n]);
        if (rc)
            return rc;
    }
    *out = list;
    return 0;
}

static int get_scale(struct mr_applier *ap, const struct mr_yaml_node *n)
{
    struct mr_workload_extra *x = &ap->w->extra;
    int rc = 0;
    if (n->kind != MR_YAML_MAP)
        rc = get_number(ap, n, &x->scale);
    for (unsigned i = 0; n->kind == MR_YAML_MAP && i < n->n && !rc; i++) {
        if (!strcmp(n->key[i]->text, "default"))
            rc = get_number(ap, n->value[i], &x->scale);
        else if (!strcmp(n->key[i]->text, "keep"))
            rc = get_texts(ap, n->value[i], &x->scale_keep);
        else
            rc = bad(ap, n->key[i], "scale has the keys 'default' and 'keep'");
    }
    if (!rc && !(x->scale > 0 && x->scale <= 1))
        rc = bad(ap, n, "scale must be above 0 and at most 1");
    return rc;
}

static int get_class(struct mr_applier *ap, const struct mr_yaml_node *n, enum mr_expect_class *out)
{
    static const char *const names[] = {"exact", "shaped", "native"};
    for (size_t i = 0; n->kind == MR_YAML_SCALAR && i < MR_ARRAY_LEN(names); i++)
        if (!strcmp(n->text, names[i])) {
            *out = (enum mr_expect_class)i;
            return 0;
        }
    return bad(ap, n, "class must be one of: exact, shaped, native");
}

static int get_expectation(struct mr_applier *ap, const struct mr_yaml_node *n, struct mr_expectation *out)
{
    struct mr_expectation e = {.eq = NAN, .ge = NAN, .le = NAN, .line = n->line};
    int rc = n->kind == MR_YAML_MAP ? 0 : bad(ap, n, "an expectation is a map: {metric: NAME, eq|ge|le: VALUE}");
    for (unsigned i = 0; !rc && i < n->n; i++) {
        const char *key = n->key[i]->text;
        const struct mr_yaml_node *v = n->value[i];
        if (!strcmp(key, "metric"))
            rc = get_text(ap, v, &e.metric);
        else if (!strcmp(key, "eq"))
            rc = get_number(ap, v, &e.eq);
        else if (!strcmp(key, "ge"))
            rc = get_number(ap, v, &e.ge);
        else if (!strcmp(key, "le"))
            rc = get_number(ap, v, &e.le);
        else if (!strcmp(key, "tol"))
            rc = get_number(ap, v, &e.tol);
        else if (!strcmp(key, "class"))
            rc = get_class(ap, v, &e.cls);
        else
            rc = bad(ap, n->key[i], "an expectation has the keys metric, eq, ge, le, tol, class");
    }
    if (!rc && (!e.metric || (isnan(e.eq) && isnan(e.ge) && isnan(e.le)) || e.tol < 0))
        rc = bad(ap, n, "an expectation needs a metric and one of eq, ge, le; tol is not negative");
    if (!rc)
        *out = e;
    return rc;
}

static int get_expectations(struct mr_applier *ap, const struct mr_yaml_node *n)
{
    if (n->kind != MR_YAML_LIST || n->n > MAX_EXPECT)
        return bad(ap, n, "expect is a list of at most 256 checks");
    struct mr_expectation *list = mr_arena_alloc(ap->arena, (n->n + 1) * sizeof(*list));
    if (!list)
        return mr_error_set(ap->err, -ENOMEM, "cannot keep the expectations");
    for (unsigned i = 0; i < n->n; i++) {
        int rc = get_expectation(ap, n->value[i], &list[i]);
        if (rc)
            return rc;
    }
    ap->w->extra.expect = list;
    ap->w->extra.n_expect = n->n;
    return 0;
}

static int get_ranks(struct mr_applier *ap, const struct mr_yaml_node *n)
{
    int64_t v = 0;
    if (n->kind != MR_YAML_SCALAR || mr_parse_int(n->text, &v) || v < 1 || v > 1000000)
        return bad(ap, n, "ranks must be a whole number from 1 to 1000000");
    ap->w->extra.ranks = (uint32_t)v;
    return 0;
}

/* Their content is looked at when one is asked for: only a check does that. */
static int get_variants(struct mr_applier *ap, const struct mr_yaml_node *n)
{
    if (n->kind != MR_YAML_MAP)
        return bad(ap, n, "variants are a map: {NAME: {ranks: 4, reader: {...}}}");
    for (unsigned i = 0; i < n->n; i++) {
        const char *name = n->key[i]->text;
        if (!*name || strcspn(name, "/> ") != strlen(name) || strlen(name) > 40)
            return bad(ap, n->key[i], "a variant's name has no '/', '>' or space and at most 40 characters");
        if (n->value[i]->kind != MR_YAML_MAP)
            return bad(ap, n->value[i], "a variant is a map of what differs");
    }
    ap->w->extra.variants = n;
    return 0;
}

static int unknown(struct mr_applier *ap, const struct mr_yaml_node *key)
{
    static const char *const names[] = {"source", "ranks", "scale", "storage_model", "variants", "expect", "notes"};
    if (ap->lenient)
        return mr_apply_unknown(ap, "x-millrace", key->text, key->line);
    mr_error_plain(ap->err, MR_E_CONFIG, "unknown key 'x-millrace.%.100s'", key->text);
    mr_apply_where(ap, key->line);
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++)
        if (mr_edit_is_near(key->text, mr_edit_distance(key->text, names[i])))
            mr_error_hint(ap->err, "did you mean 'x-millrace.%s'?", names[i]);
    return mr_error_hint(
               ap->err,
               "it has the keys source, ranks, scale, storage_model, variants, expect, notes and the sections"),
           MR_E_CONFIG;
}

int mr_apply_extra(struct mr_applier *ap, const struct mr_yaml_node *node)
{
    struct mr_workload_extra *x = &ap->w->extra;
    if (mr_yaml_is_null(node))
        return 0;
    if (node->kind != MR_YAML_MAP)
        return bad(ap, node, "it must hold keys");
    for (unsigned i = 0; i < node->n; i++) {
        const char *key = node->key[i]->text;
        const struct mr_yaml_node *v = node->value[i];
        int section = strchr(key, '.') ? -1 : mr_workload_section_index(key), rc;
        if (!strcmp(key, "source"))
            rc = get_text(ap, v, &x->source);
        else if (!strcmp(key, "storage_model"))
            rc = get_text(ap, v, &x->storage_model);
        else if (!strcmp(key, "ranks"))
            rc = get_ranks(ap, v);
        else if (!strcmp(key, "scale"))
            rc = get_scale(ap, v);
        else if (!strcmp(key, "expect"))
            rc = get_expectations(ap, v);
        else if (!strcmp(key, "variants"))
            rc = get_variants(ap, v);
        else if (!strcmp(key, "notes"))
            rc = get_texts(ap, v, &x->notes);
        else if (section > 0)
            rc = mr_apply_section(ap, section, v);
        else
            rc = unknown(ap, node->key[i]);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- variants ---- */

/* A copy whose values and origins can be changed without touching the original. */
static struct mr_workload *copy_of(const struct mr_workload *w, struct mr_arena *a)
{
    struct mr_workload *copy = mr_arena_alloc(a, sizeof(*copy));
    if (!copy)
        return NULL;
    *copy = *w;
    copy->extra.variants = NULL;
    for (int s = 0; mr_workload_sections[s].table; s++) {
        unsigned rows = 0;
        while (mr_workload_sections[s].table->options[rows].key)
            rows++;
        copy->origins[s] = mr_arena_alloc(a, (rows + 1) * sizeof(*copy->origins[s]));
        if (!copy->origins[s])
            return NULL;
        memcpy(copy->origins[s], w->origins[s], (rows + 1) * sizeof(*copy->origins[s]));
    }
    return copy;
}

int mr_workload_variant(const struct mr_workload *w, const char *name, struct mr_arena *a, struct mr_workload **out,
                        struct mr_error *err)
{
    const struct mr_yaml_node *all = w->extra.variants, *node = NULL;
    for (unsigned i = 0; all && i < all->n; i++)
        if (!strcmp(all->key[i]->text, name))
            node = all->value[i];
    if (!node)
        return -ENOENT;
    struct mr_applier ap = {.arena = a, .kind = MR_ORIGIN_FILE, .where = w->file, .err = err, .w = copy_of(w, a)};
    if (!ap.w)
        return mr_error_set(err, -ENOMEM, "cannot keep variant '%s'", name);
    for (unsigned i = 0; i < node->n; i++) {
        const char *key = node->key[i]->text;
        if (mr_workload_section_index(key) <= 0 && strcmp(key, "ranks") != 0 && strcmp(key, "storage_model") != 0)
            return bad(&ap, node->key[i], "a variant has the keys ranks, storage_model and the sections");
    }
    int rc = mr_apply_extra(&ap, node);
    if (!rc)
        *out = ap.w;
    return rc;
}
