/* Options as data. One row describes one setting completely: its YAML key, environment variable, command-line flag,
 * type, bounds, unit, default, documentation and example all come from it; so do --help, the man page, the shell
 * completion, the strict check of unknown keys and the "effective configuration" written into every result.
 *
 * A table describes the fields of one C struct. Workload sections (dataset, reader, train ...), store backends,
 * formats, and the sub-commands of the program all use it. To add a setting: add one row and one struct field.
 *
 * A value remembers where it came from (enum mr_origin plus file:line), so that "why is this 4?" has an answer. */
#ifndef MR_CONF_OPTION_H
#define MR_CONF_OPTION_H

#include "base/arena.h"

#include <millrace/error.h>
#include <millrace/plugin_option.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mr_origin {
    MR_ORIGIN_DEFAULT,
    MR_ORIGIN_FILE,
    MR_ORIGIN_ENV,
    MR_ORIGIN_OVERRIDE,
    MR_ORIGIN_FLAG,
    MR_ORIGIN_DERIVED
};

/* Fills `obj` (struct_bytes, any content) with the table's defaults. Strings point into the arena. */
int mr_options_defaults(const struct mr_option_table *t, struct mr_arena *a, void *obj, struct mr_error *err);
/* Parses one textual value into its field, checking type and bounds. The message names the key, the text and what is
 * allowed: bad value '-3' for 'reader.batch_size': must be between 1 and 1048576. */
int mr_option_parse(const struct mr_option_table *t, const struct mr_option *o, const char *text, struct mr_arena *a,
                    void *obj, struct mr_error *err);
/* Finds a row by key or alias; NULL if there is none. */
const struct mr_option *mr_option_find(const struct mr_option_table *t, const char *key);
/* The nearest key by edit distance, or NULL when nothing is near; for "did you mean". */
const char *mr_option_nearest(const struct mr_option_table *t, const char *key);
/* The field's value back as text, in a form mr_option_parse accepts. */
int mr_option_print(const struct mr_option *o, const void *obj, char *out, size_t cap);

/* Parses argv (without the program and sub-command names) by the table: --key value, --key=value, --no-key for
 * booleans, -x, positionals, "--" ends flags. `obj` must hold defaults already (mr_options_defaults, then
 * mr_options_parse_env: environment variables come below flags). Words of the form key=value, +key=value, ++key=value,
 * ~key are collected in `overrides` when it is not NULL (Hydra style), else they are positionals like any word. */
int mr_options_parse_argv(const struct mr_option_table *t, int argc, char *const *argv, struct mr_arena *a, void *obj,
                          struct mr_strings *overrides, struct mr_error *err);

/* The same for several tables at once, first match wins: a command's own options and the global ones. Positionals and
 * the check of required options concern the first table only. */
struct mr_options_target {
    const struct mr_option_table *table;
    void *obj;
};
int mr_options_parse_targets(const struct mr_options_target *targets, unsigned n_targets, int argc, char *const *argv,
                             struct mr_arena *a, struct mr_strings *overrides, struct mr_error *err);
/* How many of the words are the command's: those before '--' and before the first word of a row with MR_OPTF_REST. */
int mr_options_own_words(const struct mr_options_target *targets, unsigned n_targets, int argc, char *const *argv);

/* Applies MILLRACE_<SECTION>_<KEY>=value entries of an environ-like, NULL-terminated array; a '.' in the section
 * becomes
 * '_'. Libraries never call getenv: the program passes its environment. */
int mr_options_parse_env(const struct mr_option_table *t, char *const *envp, struct mr_arena *a, void *obj,
                         struct mr_error *err);
/* The variable's name of a row, e.g. MILLRACE_READER_BATCH_SIZE; returned. */
const char *mr_option_env_name(const struct mr_option_table *t, const struct mr_option *o, char *out, size_t cap);
/* "integer", "size in bytes", ...: for help texts. */
const char *mr_option_type_name(const struct mr_option *o);
/* A bound of a row (its min or max) as one would type it; returned. */
const char *mr_option_bound_text(double bound, char *out, size_t cap);

/* Edit distance (insert, delete, replace, swap of neighbours); ignores case, takes '-' as '_'. */
unsigned mr_edit_distance(const char *a, const char *b);
/* Whether `d` is near enough to a word of that length to be offered as "did you mean". */
bool mr_edit_is_near(const char *word, unsigned d);
/* "Did you mean": start with {.word = WORD}, offer every name, take the nearest; NULL if none is near. Borrows names.
 */
struct mr_nearest {
    const char *word, *name;
    unsigned distance;
};
void mr_nearest_offer(struct mr_nearest *n, const char *name);
const char *mr_nearest_name(const struct mr_nearest *n);
/* Quotes text for a list literal: "a \"b\"" ; returns the length it needs, like snprintf. */
int mr_option_quote(const char *text, char *out, size_t cap);

/* Shared parsers, also used by stores and formats. 0, -EINVAL (not such a value) or -ERANGE (too large, or negative
 * where that is impossible). The letters K M G T alone mean KiB ... TiB; KB ... TB are powers of ten. */
int mr_parse_bytes(const char *text, uint64_t *out);
int mr_parse_duration_ns(const char *text, uint64_t *out);
int mr_parse_double(const char *text, double *out);
int mr_parse_int(const char *text, int64_t *out);

#endif
