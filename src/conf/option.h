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
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mr_opt_type {
    MR_OPT_BOOL,     /* bool;      true false yes no on off 1 0 */
    MR_OPT_INT,      /* int64_t;   decimal, 1_000, 1e6 if integral */
    MR_OPT_DOUBLE,   /* double */
    MR_OPT_BYTES,    /* uint64_t;  4096, 256KiB, 1.5GiB, 100MB (decimal MB = 10^6) */
    MR_OPT_DURATION, /* uint64_t nanoseconds; a bare number is in seconds; 1.3s 200ms 5min */
    MR_OPT_STRING,   /* const char *, never NULL; owned by the arena given to the parser */
    MR_OPT_ENUM,     /* int: index into `choices` */
    MR_OPT_DIMS,     /* struct mr_dims: [224, 224, 3] or 224x224x3 */
    MR_OPT_DIST,     /* struct mr_dist: a number (seconds) or {type: normal, mean: ..., stdev: ...} */
    MR_OPT_STRINGS,  /* struct mr_strings: [a, "b c"], or one bare word */
    MR_OPT_UINTS,    /* struct mr_uints: [1009254400, 865075200], any length */
};

#define MR_DIMS_MAX 8
struct mr_dims {
    unsigned n;
    uint64_t dim[MR_DIMS_MAX];
};

struct mr_strings {
    unsigned n;
    const char **item; /* arena */
};

struct mr_uints {
    unsigned n;
    uint64_t *item; /* arena */
};

enum mr_dist_kind {
    MR_DIST_CONSTANT,
    MR_DIST_NORMAL,
    MR_DIST_UNIFORM,
    MR_DIST_GAMMA,
    MR_DIST_EXPONENTIAL,
    MR_DIST_POISSON
};
struct mr_dist {
    enum mr_dist_kind kind;
    double a, b; /* constant: a; normal: mean, stdev; uniform: min, max; gamma: shape, scale; exponential: scale;
                    poisson: lam */
};

enum mr_opt_flags {
    MR_OPTF_POSITIONAL = 1, /* command line: filled by bare words, in table order */
    MR_OPTF_REQUIRED = 2,   /* must be given */
    MR_OPTF_HIDDEN = 4,     /* not in short help */
    MR_OPTF_REPEAT = 8,     /* STRINGS: the flag may be repeated; a positional one takes all remaining words */
    MR_OPTF_NO_EFFECT = 16, /* accepted because other tools write it; the doc says why it changes nothing here */
    MR_OPTF_SIZE = 32,      /* DOUBLE: also takes the units of sizes (a mean of 114660.07 bytes, or 256KiB) */
    MR_OPTF_REST = 128, /* with POSITIONAL and REPEAT: its first word ends the options, as '--' does; the words after it
                           are its own */
    MR_OPTF_SECRET = 64, /* never printed: shown as '***' wherever the effective configuration is */
};

struct mr_option {
    const char *key; /* YAML key inside its section and, with '_' as '-', the long flag */
    enum mr_opt_type type;
    size_t offset;              /* of the field in the table's struct */
    const char *def;            /* default, in the syntax of the type; never NULL */
    double min, max;            /* inclusive bounds for numbers; both 0 = none */
    const char *const *choices; /* ENUM: NULL-terminated */
    char short_flag;            /* 'j' for -j, or 0 */
    unsigned flags;
    const char *alias;   /* other accepted key(s), comma-separated, or NULL */
    const char *doc;     /* one or two full sentences */
    const char *example; /* or NULL */
};

/* A row of the table of struct S. Files with one struct wrap it:
 *     #define ROW(key, field, type, def, ...) MR_OPTION(run_options, key, field, type, def, __VA_ARGS__)
 *     ROW("dry_run", dry_run, BOOL, "false", .short_flag = 'n', .doc = "Prints what would be done."), */
#define MR_OPTION(S, k, field, t, d, ...)                                                                              \
    {                                                                                                                  \
        .key = k, .type = MR_OPT_##t, .offset = offsetof(struct S, field), .def = d, __VA_ARGS__                       \
    }

#define MR_OPTION_END                                                                                                  \
    {                                                                                                                  \
        .key = NULL                                                                                                    \
    }

struct mr_option_table {
    const char *section; /* "dataset", or the sub-command's name */
    const char *doc;
    const struct mr_option *options; /* ends with MR_OPTION_END */
    size_t struct_bytes;
};

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
/* Quotes text for a list literal: "a \"b\"" ; returns the length it needs, like snprintf. */
int mr_option_quote(const char *text, char *out, size_t cap);

/* Shared parsers, also used by stores and formats. 0, -EINVAL (not such a value) or -ERANGE (too large, or negative
 * where that is impossible). The letters K M G T alone mean KiB ... TiB; KB ... TB are powers of ten. */
int mr_parse_bytes(const char *text, uint64_t *out);
int mr_parse_duration_ns(const char *text, uint64_t *out);
int mr_parse_double(const char *text, double *out);
int mr_parse_int(const char *text, int64_t *out);

#endif
