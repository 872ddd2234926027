/* One YAML map into one struct: see yaml_map.h. */
#include "conf/yaml_map.h"

#include <errno.h>
#include <string.h>

int mr_yaml_where(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, int code, struct mr_error *err)
{
    mr_error_context(err, "in %s:%u", r->file, n->line);
    return code;
}

static const struct mr_yaml_nested *find_nested(const struct mr_yaml_nested *nested, const char *key)
{
    for (; nested && nested->key; nested++)
        if (strcmp(nested->key, key) == 0)
            return nested;
    return NULL;
}

static int unknown_key(const struct mr_yaml_reader *r, const struct mr_yaml_node *key, const struct mr_option_table *t,
                       struct mr_error *err)
{
    mr_error_plain(err, MR_E_CONFIG, "unknown key '%.100s' in '%s'", key->text, t->section);
    const char *near = mr_option_nearest(t, key->text);
    if (near)
        mr_error_hint(err, "did you mean '%s'?", near);
    return mr_yaml_where(r, key, MR_E_CONFIG, err);
}

static int read_entry(const struct mr_yaml_reader *r, const struct mr_yaml_node *key, const struct mr_yaml_node *value,
                      const struct mr_option_table *t, const struct mr_yaml_nested *nested, void *obj,
                      struct mr_error *err)
{
    const struct mr_yaml_nested *n = find_nested(nested, key->text);
    if (n)
        return n->read(r, value, obj, err);
    const struct mr_option *o = mr_option_find(t, key->text);
    if (!o)
        return unknown_key(r, key, t, err);
    char *text = mr_yaml_flow(value, r->arena);
    if (!text)
        return mr_error_set(err, -ENOMEM, "reading '%s'", key->text);
    int rc = mr_option_parse(t, o, text, r->arena, obj, err);
    return rc ? mr_yaml_where(r, value, rc, err) : 0;
}

int mr_yaml_read_map(const struct mr_yaml_reader *r, const struct mr_yaml_node *map, const struct mr_option_table *t,
                     const struct mr_yaml_nested *nested, void *obj, struct mr_error *err)
{
    if (map->kind != MR_YAML_MAP) {
        mr_error_plain(err, MR_E_CONFIG, "'%s' must be a map of keys and values", t->section);
        return mr_yaml_where(r, map, MR_E_CONFIG, err);
    }
    int rc = 0;
    for (unsigned i = 0; i < map->n && !rc; i++)
        rc = read_entry(r, map->key[i], map->value[i], t, nested, obj, err);
    return rc;
}
