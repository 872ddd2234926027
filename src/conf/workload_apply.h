/* Inside the configuration model: putting YAML nodes into a workload, and the notes and checks at the end. */
#ifndef MR_CONF_WORKLOAD_APPLY_H
#define MR_CONF_WORKLOAD_APPLY_H

#include "conf/workload.h"
#include "conf/yaml.h"

struct mr_applier {
    struct mr_workload *w;
    struct mr_arena *arena;
    bool lenient;
    enum mr_origin kind;
    const char *where; /* file, variable, or the override's key */
    bool quoted;       /* the value at hand stood in quotes */
    struct mr_error *err;
};

/* Index into mr_workload_sections by dotted path ("reader", "model.parallelism", "" for the top), or -1. */
int mr_workload_section_index(const char *path);
/* The origin of a value; section and key must exist. */
struct mr_value_origin *mr_workload_origin(const struct mr_workload *w, const char *section, const char *key);

int mr_apply_top(struct mr_applier *ap, const struct mr_yaml_node *root);
int mr_apply_section(struct mr_applier *ap, int section, const struct mr_yaml_node *node);
/* Sets one value from text, after the DLIO spellings in traps.c. `line` 0 for none. */
int mr_apply_text(struct mr_applier *ap, int section, const struct mr_option *o, const char *text, unsigned line);
/* Back to the default. */
int mr_apply_default(struct mr_applier *ap, int section, const struct mr_option *o);
/* MR_E_CONFIG with the nearest key, or a note when lenient (then 0). `section` -1 means the top level. */
int mr_apply_unknown(struct mr_applier *ap, const char *section, const char *key, unsigned line);
int mr_apply_extra(struct mr_applier *ap, const struct mr_yaml_node *node);
/* "in file:12" or "in override '++x'". Returns err->code. */
void mr_apply_where(const struct mr_applier *ap, unsigned line);

/* Adds a note unless it is there already. */
int mr_workload_note(struct mr_workload *w, struct mr_arena *a, const char *fmt, ...) MR_PRINTF(3, 4);

/* traps.c: values that DLIO's own files carry and mean otherwise; returns the text to parse. */
const char *mr_trap_text(struct mr_applier *ap, const char *section, const char *key, const char *text);
/* traps.c: notes on values that DLIO ignores or inverts, derived values, checks between keys. */
int mr_trap_finish(struct mr_workload *w, struct mr_arena *a, struct mr_error *err);

#endif
