/* Option rows: how a store of a plug-in describes its settings. One row gives the key, type, bounds, default and text
 * of one field of a C struct; help, checking of unknown keys and "did you mean" follow from it. Before `open` is called
 * the program fills the struct from the defaults and from what the user wrote, so a plug-in never parses text itself:
 *
 *     struct my_options { uint64_t bytes; bool verify; };
 *     static const struct mr_option rows[] = {
 *         MR_OPTION(my_options, "bytes", bytes, BYTES, "1MiB", .max = 1e12, .doc = "Size of a piece."),
 *         MR_OPTION(my_options, "verify", verify, BOOL, "false", .doc = "Check what is read."),
 *         MR_OPTION_END };
 *     .options = {.section = "my", .doc = "My store", .options = rows, .struct_bytes = sizeof(struct my_options)}
 *
 * The struct and the strings in it live only during `open`: copy what is needed later. In C++ write the rows without
 * the macros, in the order of struct mr_option. */
#ifndef MILLRACE_PLUGIN_OPTION_H
#define MILLRACE_PLUGIN_OPTION_H

#include <millrace/dtype.h>
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
    MR_OPTF_RESULT = 256, /* where results go: a command that repeats the run leaves it out */
    MR_OPTF_WRITES = 512, /* of a store: a file or folder of its own that it writes to; no workload file may give it */
    MR_OPTF_SECRET = 64,  /* never printed: shown as '***' wherever the effective configuration is */
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

#endif
