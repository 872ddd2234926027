/* The effective configuration as text and JSON, each value with its origin. Secrets are never shown. */
#include "conf/workload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *mr_origin_name(enum mr_origin o)
{
    static const char *const names[] = {"default", "file", "environment", "override", "flag", "derived"};
    return names[o];
}

void mr_workload_value_text(const struct mr_option *o, const void *obj, char *out, size_t cap)
{
    const char *field = (const char *)obj + o->offset;
    if ((o->flags & MR_OPTF_SECRET) && **(const char *const *)field)
        snprintf(out, cap, "***");
    else if (mr_option_print(o, obj, out, cap) >= (int)cap && cap > 4)
        memcpy(out + cap - 4, "...", 4);
}

void mr_workload_origin_text(const struct mr_value_origin *v, char *out, size_t cap)
{
    if (v->line)
        snprintf(out, cap, "%s %s:%u", mr_origin_name(v->kind), v->where, v->line);
    else if (*v->where)
        snprintf(out, cap, "%s %s", mr_origin_name(v->kind), v->where);
    else
        snprintf(out, cap, "%s", mr_origin_name(v->kind));
}

/* A variable or override may hold bytes that are not UTF-8, which JSON cannot carry. */
static json_t *text_to_json(const char *text)
{
    json_t *j = json_string(text);
    return j ? j : json_string("(not UTF-8)");
}

static json_t *list_to_json(const struct mr_option *o, const char *field)
{
    json_t *list = json_array();
    if (o->type == MR_OPT_DIMS) {
        const struct mr_dims *d = (const struct mr_dims *)(const void *)field;
        for (unsigned i = 0; i < d->n; i++)
            json_array_append_new(list, json_integer((json_int_t)d->dim[i]));
    } else if (o->type == MR_OPT_UINTS) {
        const struct mr_uints *d = (const struct mr_uints *)(const void *)field;
        for (unsigned i = 0; i < d->n; i++)
            json_array_append_new(list, json_integer((json_int_t)d->item[i]));
    } else {
        const struct mr_strings *d = (const struct mr_strings *)(const void *)field;
        for (unsigned i = 0; i < d->n; i++)
            json_array_append_new(list, text_to_json(d->item[i]));
    }
    return list;
}

static json_t *dist_to_json(const struct mr_option *o, const void *obj, const struct mr_dist *d)
{
    if (d->kind == MR_DIST_CONSTANT)
        return json_real(d->a);
    char text[160];
    mr_option_print(o, obj, text, sizeof text);
    return json_string(text);
}

static json_t *value_to_json(const struct mr_option *o, const void *obj)
{
    const char *field = (const char *)obj + o->offset;
    char text[64];
    switch (o->type) {
    case MR_OPT_BOOL: return json_boolean(*(const bool *)field);
    case MR_OPT_INT: return json_integer(*(const int64_t *)(const void *)field);
    case MR_OPT_DOUBLE: return json_real(*(const double *)(const void *)field);
    case MR_OPT_BYTES: return json_integer((json_int_t) * (const uint64_t *)(const void *)field);
    case MR_OPT_DURATION: return json_real((double)*(const uint64_t *)(const void *)field / 1e9);
    case MR_OPT_STRING:
        if ((o->flags & MR_OPTF_SECRET) && **(const char *const *)(const void *)field)
            return json_string("***");
        return text_to_json(*(const char *const *)(const void *)field);
    case MR_OPT_ENUM: mr_option_print(o, obj, text, sizeof text); return json_string(text);
    case MR_OPT_DIST: return dist_to_json(o, obj, (const struct mr_dist *)(const void *)field);
    case MR_OPT_DIMS:
    case MR_OPT_STRINGS:
    case MR_OPT_UINTS: return list_to_json(o, field);
    }
    return json_null();
}

json_t *mr_workload_to_json(const struct mr_workload *w)
{
    json_t *root = json_object();
    for (int s = 0; root && mr_workload_sections[s].table; s++) {
        const struct mr_option_table *t = mr_workload_sections[s].table;
        const void *obj = (const char *)w + mr_workload_sections[s].offset;
        for (const struct mr_option *o = t->options; o->key; o++) {
            const struct mr_value_origin *v = &w->origins[s][o - t->options];
            char path[128], where[4200];
            snprintf(path, sizeof path, "%s%s%s", t->section, *t->section ? "." : "", o->key);
            json_t *entry = json_pack("{s:o, s:s}", "value", value_to_json(o, obj), "origin", mr_origin_name(v->kind));
            if (v->line)
                snprintf(where, sizeof where, "%s:%u", v->where, v->line);
            else
                snprintf(where, sizeof where, "%s", v->where);
            if (entry && *where)
                json_object_set_new(entry, "where", text_to_json(where));
            if (!entry || json_object_set_new(root, path, entry)) {
                json_decref(root);
                return NULL;
            }
        }
    }
    return root;
}

json_t *mr_strings_to_json(const struct mr_strings *list)
{
    json_t *j = json_array();
    for (unsigned i = 0; i < list->n; i++)
        json_array_append_new(j, json_string(list->item[i]));
    return j;
}

bool mr_workload_json_text(const struct mr_option *o, const json_t *v, char *out, size_t cap)
{
    size_t n = 0, i;
    const json_t *item;
    if (json_is_string(v))
        return snprintf(out, cap, "%s", json_string_value(v)) < (int)cap;
    if (json_is_boolean(v))
        return snprintf(out, cap, "%s", json_is_true(v) ? "true" : "false") < (int)cap;
    if (json_is_integer(v))
        return snprintf(out, cap, "%lld", (long long)json_integer_value(v)) < (int)cap;
    if (json_is_real(v))
        return snprintf(out, cap, "%.17g%s", json_real_value(v), o->type == MR_OPT_DURATION ? "s" : "") < (int)cap;
    if (!json_is_array(v))
        return false;
    n += (size_t)snprintf(out, cap, "[");
    json_array_foreach(v, i, item)
    {
        char one[4096];
        if (json_is_string(item) ? mr_option_quote(json_string_value(item), one, sizeof one) >= (int)sizeof one
                                 : json_is_array(item) || !mr_workload_json_text(o, item, one, sizeof one))
            return false;
        if (n + strlen(one) + 4 > cap)
            return false;
        n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? ", " : "", one);
    }
    snprintf(out + n, cap - n, "]");
    return true;
}

int mr_workload_from_json(const json_t *config, struct mr_arena *a, struct mr_workload **out, struct mr_error *err)
{
    static const struct mr_workload_request nothing;
    struct mr_workload *w;
    char path[128], text[4200];
    int rc = mr_workload_resolve(&nothing, a, &w, err);
    for (int s = 0; !rc && mr_workload_sections[s].table; s++) {
        const struct mr_option_table *t = mr_workload_sections[s].table;
        for (const struct mr_option *o = t->options; !rc && o->key; o++) {
            snprintf(path, sizeof path, "%s%s%s", t->section, *t->section ? "." : "", o->key);
            const json_t *v = json_object_get(json_object_get(config, path), "value");
            if (!v || (o->flags & MR_OPTF_SECRET) || !mr_workload_json_text(o, v, text, sizeof text))
                continue;
            rc = mr_option_parse(t, o, text, a, (char *)w + mr_workload_sections[s].offset, err);
            if (rc && o->type == MR_OPT_ENUM)
                rc = 0; /* the word of a plug-in that is not loaded */
        }
    }
    if (!rc)
        *out = w;
    return rc;
}
