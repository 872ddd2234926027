/* YAML nodes into a workload, with the origin of each value. Overrides come here as nodes, too, so a file and the
 * command line obey the same rules. */
#include "conf/workload_apply.h"

#include "base/common.h"
#include "base/strbuf.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int mr_workload_section_index(const char *path)
{
    if (!strncmp(path, "data_reader", 11) && (path[11] == '\0' || path[11] == '.'))
        path += 5;
    for (int i = 0; mr_workload_sections[i].table; i++)
        if (!strcmp(mr_workload_sections[i].table->section, path))
            return i;
    return -1;
}

struct mr_value_origin *mr_workload_origin(const struct mr_workload *w, const char *section, const char *key)
{
    int i = mr_workload_section_index(section);
    assert(i >= 0); /* callers name sections and keys that exist */
    const struct mr_option_table *t = mr_workload_sections[i].table;
    const struct mr_option *o = mr_option_find(t, key);
    assert(o);
    return &w->origins[i][o - t->options];
}

bool mr_workload_is_set(const struct mr_workload *w, const char *section, const char *key)
{
    return mr_workload_origin(w, section, key)->kind != MR_ORIGIN_DEFAULT;
}

int mr_workload_note(struct mr_workload *w, struct mr_arena *a, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (unsigned i = 0; i < w->notes.n; i++)
        if (!strcmp(w->notes.item[i], text))
            return 0;
    if (w->notes.n >= 256) /* a lenient load of a strange file */
        return 0;
    const char **item = mr_arena_alloc(a, (w->notes.n + 1) * sizeof(*item));
    char *copy = mr_arena_strdup(a, text);
    if (!item || !copy)
        return -ENOMEM;
    if (w->notes.n)
        memcpy(item, w->notes.item, w->notes.n * sizeof(*item));
    item[w->notes.n++] = copy;
    w->notes.item = item;
    return 0;
}

void mr_apply_where(const struct mr_applier *ap, unsigned line)
{
    switch (ap->kind) {
    case MR_ORIGIN_FILE: mr_error_context(ap->err, "in %s:%u", ap->where, line); break;
    case MR_ORIGIN_ENV: mr_error_context(ap->err, "in environment variable '%s'", ap->where); break;
    default: mr_error_context(ap->err, "in override '%s'", ap->where); break;
    }
}

static void set_origin(struct mr_applier *ap, int section, const struct mr_option *o, unsigned line)
{
    assert(section >= 0 && section < MR_WORKLOAD_SECTIONS_MAX);
    const struct mr_option_table *t = mr_workload_sections[section].table;
    assert(o >= t->options && mr_option_find(t, o->key) == o); /* each row has an origin of its own */
    ap->w->origins[section][o - t->options] =
        (struct mr_value_origin){.kind = ap->kind, .where = ap->where, .line = ap->kind == MR_ORIGIN_FILE ? line : 0};
}

static void *section_struct(struct mr_applier *ap, int section)
{
    return (char *)ap->w + mr_workload_sections[section].offset;
}

static mr_workload_plugin_fn *plugin_loader;

void mr_workload_set_plugin_loader(mr_workload_plugin_fn *fn)
{
    plugin_loader = fn;
}

/* Loads what the key `plugin` names; from a file, paths are relative to its folder. */
static int load_plugins(struct mr_applier *ap)
{
    const struct mr_strings *list = &ap->w->top.plugin;
    const char *slash = ap->kind == MR_ORIGIN_FILE ? strrchr(ap->where, '/') : NULL;
    int rc = 0;
    for (unsigned i = 0; i < list->n && !rc; i++) {
        char path[4096];
        if (slash && list->item[i][0] != '/')
            snprintf(path, sizeof path, "%.*s/%s", (int)(slash - ap->where), ap->where, list->item[i]);
        else
            snprintf(path, sizeof path, "%s", list->item[i]);
        rc = plugin_loader ? plugin_loader(path, ap->kind, ap->err)
                           : mr_error_plain(ap->err, MR_E_UNSUPPORTED, "this program loads no plug-ins: '%s'", path);
    }
    return rc;
}

int mr_apply_text(struct mr_applier *ap, int section, const struct mr_option *o, const char *text, unsigned line)
{
    const struct mr_option_table *t = mr_workload_sections[section].table;
    text = mr_trap_text(ap, t->section, o->key, text);
    int rc = mr_option_parse(t, o, text, ap->arena, section_struct(ap, section), ap->err);
    if (!rc && section == 0 && !strcmp(o->key, "plugin"))
        rc = load_plugins(ap);
    if (rc)
        mr_apply_where(ap, line);
    else
        set_origin(ap, section, o, line);
    return rc;
}

int mr_apply_default(struct mr_applier *ap, int section, const struct mr_option *o)
{
    const struct mr_option_table *t = mr_workload_sections[section].table;
    int rc = mr_option_parse(t, o, o->def, ap->arena, section_struct(ap, section), ap->err);
    if (!rc)
        ap->w->origins[section][o - t->options] = (struct mr_value_origin){.kind = MR_ORIGIN_DEFAULT, .where = ""};
    return rc;
}

static int apply_value(struct mr_applier *ap, int section, const struct mr_option *o, const char *key,
                       const struct mr_yaml_node *node)
{
    const struct mr_option_table *t = mr_workload_sections[section].table;
    if (strcmp(key, "model_size") == 0 &&
        mr_workload_note(ap->w, ap->arena,
                         "model.model_size is taken as model_size_bytes (DLIO ignores it and writes 10 KiB)"))
        return mr_error_set(ap->err, -ENOMEM, "cannot keep a note");
    if (mr_yaml_is_null(node)) {
        int rc = mr_apply_default(ap, section, o);
        if (!rc)
            set_origin(ap, section, o, node->line);
        return rc;
    }
    if (node->kind == MR_YAML_MAP && o->type != MR_OPT_DIST && o->type != MR_OPT_STRING) {
        mr_error_plain(ap->err, MR_E_CONFIG, "'%s%s%s' takes a value (%s), not a map", t->section,
                       *t->section ? "." : "", o->key, mr_option_type_name(o));
        return mr_apply_where(ap, node->line), MR_E_CONFIG;
    }
    char *text = mr_yaml_flow(node, ap->arena);
    if (!text)
        return mr_error_set(ap->err, -ENOMEM, "cannot keep '%s'", o->key);
    ap->quoted = node->kind == MR_YAML_SCALAR && !node->plain;
    return mr_apply_text(ap, section, o, text, node->line);
}

struct guess {
    unsigned distance;
    char path[128];
};

static void consider(struct guess *g, const char *word, const char *section, const char *key)
{
    /* Lengths that differ by more than any accepted distance cannot be near; most pairs end here. */
    size_t a = strlen(word), b = strlen(key);
    if ((a > b ? a - b : b - a) > 3)
        return;
    unsigned d = mr_edit_distance(word, key);
    if (d >= g->distance)
        return;
    g->distance = d;
    snprintf(g->path, sizeof g->path, "%s%s%s", section, *section ? "." : "", key);
}

/* A row by its key or an alias; what is offered is the key. */
static void consider_row(struct guess *g, const char *word, const char *section, const struct mr_option *o)
{
    consider(g, word, section, o->key);
    for (const char *alias = o->alias; alias && *alias;) {
        char name[64];
        size_t n = strcspn(alias, ",");
        struct guess by_alias = {.distance = g->distance};
        snprintf(name, sizeof name, "%.*s", (int)n, alias);
        consider(&by_alias, word, section, name);
        if (by_alias.distance < g->distance) {
            g->distance = by_alias.distance;
            snprintf(g->path, sizeof g->path, "%s%s%s", section, *section ? "." : "", o->key);
        }
        alias += n + (alias[n] == ',');
    }
}

/* The last name of a section below `parent` ("parallelism" for "model.parallelism"), or NULL. */
static const char *child_name(const char *parent, const char *path)
{
    size_t n = strlen(parent);
    if (!*path || strncmp(path, parent, n) != 0 || (n && path[n] != '.'))
        return NULL;
    const char *rest = path + n + (n > 0);
    return strchr(rest, '.') ? NULL : rest;
}

/* Same section first; another section wins only when it has exactly the key, or when nothing near is at hand. */
static const char *nearest_path(const char *section, const char *key, struct guess *best)
{
    struct guess here = {.distance = ~0u}, there = {.distance = ~0u};
    for (int i = 0; mr_workload_sections[i].table; i++) {
        const struct mr_option_table *t = mr_workload_sections[i].table;
        bool same = !strcmp(t->section, section);
        for (const struct mr_option *o = t->options; o->key; o++)
            consider_row(same ? &here : &there, key, t->section, o);
        const char *child = child_name(section, t->section);
        if (child)
            consider(&here, key, section, child);
        else if (*t->section && !same)
            consider(&there, key, strrchr(t->section, '.') ? t->section : "",
                     strrchr(t->section, '.') ? strrchr(t->section, '.') + 1 : t->section);
    }
    if (!*section)
        consider(&here, key, "", "x-millrace");
    bool here_near = mr_edit_is_near(key, here.distance), there_near = mr_edit_is_near(key, there.distance);
    if (!here_near && !there_near)
        return NULL;
    *best = here_near && !(there.distance == 0 && here.distance > 0) ? here : there;
    return best->path;
}

int mr_apply_unknown(struct mr_applier *ap, const char *section, const char *key, unsigned line)
{
    struct guess g;
    const char *near = nearest_path(section, key, &g);
    const char *dot = *section ? "." : "";
    if (ap->lenient) {
        char at[300] = "";
        if (ap->kind == MR_ORIGIN_FILE)
            snprintf(at, sizeof at, " (%s:%u)", ap->where, line);
        int rc = mr_workload_note(ap->w, ap->arena, "unknown key '%s%s%.100s'%s is ignored%s%s%s", section, dot, key,
                                  at, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        return rc ? mr_error_set(ap->err, rc, "cannot keep a note") : 0;
    }
    mr_error_plain(ap->err, MR_E_CONFIG, "unknown key '%s%s%.100s'", section, dot, key);
    mr_apply_where(ap, line);
    if (near)
        mr_error_hint(ap->err, "did you mean '%s'? ('--lenient' ignores unknown keys)", near);
    return mr_error_hint(ap->err, "list the keys with 'millrace help config'; '--lenient' ignores unknown ones"),
           MR_E_CONFIG;
}

/* Files of early DLIO and of MLPerf Storage v0.5 describe the model under `checkpoint`. */
static const struct mr_option *find_moved(const char *section, const char *key, int *to)
{
    static const char *const keys[] = {"model_size", "optimization_groups", "num_layers", "layer_parameters"};
    for (unsigned i = 0; !strcmp(section, "checkpoint") && i < MR_ARRAY_LEN(keys); i++) {
        if (strcmp(key, keys[i]) == 0) {
            *to = mr_workload_section_index("model");
            return mr_option_find(mr_workload_sections[*to].table, key);
        }
    }
    return NULL;
}

static int apply_moved(struct mr_applier *ap, int to, const struct mr_option *o, const char *key,
                       const struct mr_yaml_node *node)
{
    if (mr_workload_note(ap->w, ap->arena, "checkpoint.%s is taken as model.%s, as DLIO calls it now", key, o->key))
        return mr_error_set(ap->err, -ENOMEM, "cannot keep a note");
    return apply_value(ap, to, o, o->key, node);
}

int mr_apply_section(struct mr_applier *ap, int section, const struct mr_yaml_node *node)
{
    const struct mr_option_table *t = mr_workload_sections[section].table;
    if (mr_yaml_is_null(node))
        return 0;
    if (node->kind == MR_YAML_SCALAR && !strcmp(t->section, "model")) /* its name is all that early files say of it */
        return apply_value(ap, section, mr_option_find(t, "name"), "name", node);
    if (node->kind != MR_YAML_MAP) {
        mr_error_plain(ap->err, MR_E_CONFIG, "section '%s' must hold keys, not %s", t->section,
                       node->kind == MR_YAML_LIST ? "a list" : "a value");
        return mr_apply_where(ap, node->line), MR_E_CONFIG;
    }
    for (unsigned i = 0; i < node->n; i++) {
        const char *key = node->key[i]->text;
        const struct mr_option *o = mr_option_find(t, key);
        char path[160];
        snprintf(path, sizeof path, "%s.%.100s", t->section, key);
        int to = section, child = o ? -1 : mr_workload_section_index(path), rc;
        const struct mr_option *moved = o ? NULL : find_moved(t->section, key, &to);
        if (o)
            rc = apply_value(ap, section, o, key, node->value[i]);
        else if (moved)
            rc = apply_moved(ap, to, moved, key, node->value[i]);
        else if (child >= 0)
            rc = mr_apply_section(ap, child, node->value[i]);
        else
            rc = mr_apply_unknown(ap, t->section, key, node->key[i]->line);
        if (rc)
            return rc;
    }
    return 0;
}

static int apply_top_pass(struct mr_applier *ap, const struct mr_yaml_node *root, bool only_plugins)
{
    const struct mr_option_table *top = mr_workload_sections[0].table;
    for (unsigned i = 0; i < root->n; i++) {
        const char *key = root->key[i]->text;
        const struct mr_yaml_node *value = root->value[i];
        const struct mr_option *o = mr_option_find(top, key);
        int section = o || strchr(key, '.') ? -1 : mr_workload_section_index(key), rc;
        if (only_plugins != !strcmp(key, "plugin"))
            continue;
        if (o)
            rc = apply_value(ap, 0, o, key, value);
        else if (!strcmp(key, "x-millrace"))
            rc = mr_apply_extra(ap, value);
        else if (section > 0)
            rc = mr_apply_section(ap, section, value);
        else if (!strcmp(key, "workload") && value->kind == MR_YAML_MAP && root->n == 1)
            rc = mr_apply_top(ap, value);
        else
            rc = mr_apply_unknown(ap, "", key, root->key[i]->line);
        if (rc)
            return rc;
    }
    return 0;
}

int mr_apply_top(struct mr_applier *ap, const struct mr_yaml_node *root)
{
    if (root->kind != MR_YAML_MAP) {
        mr_error_plain(ap->err, MR_E_CONFIG, "a workload must hold sections such as 'dataset:' and 'reader:'");
        return mr_apply_where(ap, root->line), MR_E_CONFIG;
    }
    for (unsigned pass = 0; pass < 2; pass++) { /* plug-ins first: other keys may name what they bring */
        int rc = apply_top_pass(ap, root, pass == 0);
        if (rc)
            return rc;
    }
    return 0;
}
