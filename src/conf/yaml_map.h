/* Reading one YAML map into one struct by its option table, strictly: unknown keys are errors with file, line and the
 * nearest valid key. Keys whose value is itself a map or a list of maps are named in `nested` and read by a function.
 */
#ifndef MR_CONF_YAML_MAP_H
#define MR_CONF_YAML_MAP_H

#include "conf/option.h"
#include "conf/yaml.h"

struct mr_yaml_reader {
    const char *file; /* for messages */
    struct mr_arena *arena;
};

struct mr_yaml_nested {
    const char *key;
    int (*read)(const struct mr_yaml_reader *r, const struct mr_yaml_node *value, void *obj, struct mr_error *err);
};

/* `obj` must hold the defaults already (mr_options_defaults). `nested` ends with a NULL key and may be NULL. */
int mr_yaml_read_map(const struct mr_yaml_reader *r, const struct mr_yaml_node *map, const struct mr_option_table *t,
                     const struct mr_yaml_nested *nested, void *obj, struct mr_error *err);
/* Adds "in FILE:LINE" to an error. Returns `code`. */
int mr_yaml_where(const struct mr_yaml_reader *r, const struct mr_yaml_node *n, int code, struct mr_error *err);

#endif
