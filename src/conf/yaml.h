/* YAML into a small tree with the line of every node. Hostile input is expected: the limits below hold, duplicate keys,
 * tabs, bad UTF-8, several documents and self-referring anchors are refused with file and line.
 *
 * Anchors are shared, not copied: an alias is the same node again, so a document that multiplies by aliases costs no
 * memory; but what a reader would walk is counted, and more than MR_YAML_MAX_NODES is refused. Merge keys (<<) work. */
#ifndef MR_CONF_YAML_H
#define MR_CONF_YAML_H

#include "base/arena.h"

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>

#define MR_YAML_MAX_BYTES (4u << 20)
#define MR_YAML_MAX_DEPTH 64u
#define MR_YAML_MAX_NODES 200000u /* a long text counts as several */
#define MR_YAML_MAX_KEYS 1024u    /* of one map */
#define MR_YAML_MAX_ANCHORS 1000u

enum mr_yaml_kind { MR_YAML_SCALAR, MR_YAML_LIST, MR_YAML_MAP };

struct mr_yaml_node {
    enum mr_yaml_kind kind;
    bool plain;       /* scalar without quotes */
    unsigned line;    /* 1-based */
    const char *text; /* scalar */
    unsigned n;       /* entries of a list or map */
    struct mr_yaml_node **value;
    struct mr_yaml_node **key; /* map: scalars, parallel to value */
    unsigned weight;           /* nodes a walk of this one visits */
};

/* `name` stands for the file in messages. An empty document gives an empty map. The tree lives in the arena. */
int mr_yaml_parse(const char *text, size_t len, const char *name, struct mr_arena *a, struct mr_yaml_node **out,
                  struct mr_error *err);
/* Reads the file (at most MR_YAML_MAX_BYTES) and parses it. */
int mr_yaml_load(const char *path, struct mr_arena *a, struct mr_yaml_node **out, struct mr_error *err);

/* NULL if the map has no such key. */
struct mr_yaml_node *mr_yaml_get(const struct mr_yaml_node *map, const char *key);
/* Whether it is a plain null (empty, ~, null). */
bool mr_yaml_is_null(const struct mr_yaml_node *n);
/* The node in flow style, as mr_option_parse reads lists and maps: [a, "b"], {k: v}. A scalar is its text. NULL when
 * memory is exhausted. */
char *mr_yaml_flow(const struct mr_yaml_node *n, struct mr_arena *a);

#endif
