/* Option values: text to field and back, by the row's type. mr_option_print gives a text that mr_option_parse takes and
 * that yields the same field again; a property test holds every type to it. */
#include "conf/option.h"

#include "base/common.h"

#include <ctype.h>
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX 65536u /* items of a list; a longer one is a mistake */

static const struct {
    const char *name, *a, *b;
} dists[] = {
    [MR_DIST_CONSTANT] = {"constant", "value", NULL},       [MR_DIST_NORMAL] = {"normal", "mean", "stdev"},
    [MR_DIST_UNIFORM] = {"uniform", "min", "max"},          [MR_DIST_GAMMA] = {"gamma", "shape", "scale"},
    [MR_DIST_EXPONENTIAL] = {"exponential", "scale", NULL}, [MR_DIST_POISSON] = {"poisson", "lam", NULL},
};

const char *mr_option_type_name(const struct mr_option *o)
{
    static const char *const names[] = {
        [MR_OPT_BOOL] = "true or false",
        [MR_OPT_INT] = "integer",
        [MR_OPT_DOUBLE] = "number",
        [MR_OPT_BYTES] = "size in bytes (4096, 256KiB, 100MB)",
        [MR_OPT_DURATION] = "duration (seconds, or 1.3s, 200ms, 5min)",
        [MR_OPT_STRING] = "text",
        [MR_OPT_ENUM] = "one of a list",
        [MR_OPT_DIMS] = "dimensions ([224, 224, 3] or 224x224x3)",
        [MR_OPT_DIST] = ("seconds, or a distribution: {type: normal, mean: 1.0, stdev: 0.1}, uniform with min and max, "
                         "gamma with shape and scale, exponential with scale, poisson with lam"),
        [MR_OPT_STRINGS] = "list of words",
        [MR_OPT_UINTS] = "list of whole numbers",
    };
    return names[o->type];
}

/* Reads one item of a flow list or map at *p: quoted, or bare up to a delimiter. Returns a fresh arena string. */
static char *take_item(const char **p, const char *delims, struct mr_arena *a)
{
    const char *s = *p;
    while (isspace((unsigned char)*s))
        s++;
    if (*s == '"' || *s == '\'') {
        char quote = *s++;
        char *out = mr_arena_alloc(a, strlen(s) + 1), *w = out;
        if (!out)
            return NULL;
        for (; *s && *s != quote; s++) {
            if (quote == '"' && *s == '\\' && s[1])
                s++;
            *w++ = *s;
        }
        if (*s != quote)
            return NULL;
        s++;
        while (isspace((unsigned char)*s))
            s++;
        *p = s;
        return out;
    }
    size_t n = strcspn(s, delims);
    *p = s + n;
    while (n && isspace((unsigned char)s[n - 1]))
        n--;
    return mr_arena_strndup(a, s, n);
}

/* Splits "[a, b]" into items; text without a bracket is one item; empty text is none. */
static int split_list(const char *text, struct mr_arena *a, struct mr_strings *out)
{
    struct mr_strings list = {0};
    const char *p = text;
    while (isspace((unsigned char)*p))
        p++;
    if (!*p) {
        *out = list;
        return 0;
    }
    unsigned cap = 1;
    if (*p == '[')
        for (const char *c = p; *c; c++)
            cap += *c == ',';
    if (cap > LIST_MAX)
        return -ERANGE;
    list.item = mr_arena_alloc(a, cap * sizeof(*list.item));
    if (!list.item)
        return -ENOMEM;
    if (*p != '[') {
        list.item[list.n++] = mr_arena_strdup(a, text);
        *out = list;
        return list.item[0] ? 0 : -ENOMEM;
    }
    p++;
    for (;;) {
        while (isspace((unsigned char)*p))
            p++;
        if (*p == ']')
            break;
        if (*p == '[' || *p == '{' || !*p || list.n == cap)
            return -EINVAL;
        bool quoted = *p == '"' || *p == '\'';
        char *item = take_item(&p, ",]", a);
        if (!item || (!*item && !quoted))
            return -EINVAL;
        list.item[list.n++] = item;
        if (*p == ',')
            p++;
        else if (*p != ']')
            return -EINVAL;
    }
    for (p++; isspace((unsigned char)*p); p++)
        ;
    if (*p)
        return -EINVAL;
    *out = list;
    return 0;
}

static int parse_dims(const char *text, struct mr_arena *a, struct mr_dims *out)
{
    struct mr_dims dims = {0};
    struct mr_strings list;
    int64_t v;
    if (!strchr(text, '[') && strpbrk(text, "xX")) {
        char buf[128];
        if (snprintf(buf, sizeof buf, "[%s]", text) >= (int)sizeof buf)
            return -EINVAL;
        for (char *c = buf; *c; c++)
            if (*c == 'x' || *c == 'X')
                *c = ',';
        return parse_dims(buf, a, out);
    }
    int rc = split_list(text, a, &list);
    if (rc)
        return rc;
    if (list.n > MR_DIMS_MAX)
        return -ERANGE;
    for (unsigned i = 0; i < list.n; i++) {
        rc = mr_parse_int(list.item[i], &v);
        if (rc)
            return rc;
        if (v < 0)
            return -ERANGE;
        dims.dim[dims.n++] = (uint64_t)v;
    }
    *out = dims;
    return 0;
}

static int parse_uints(const char *text, struct mr_arena *a, struct mr_uints *out)
{
    struct mr_uints v = {0};
    struct mr_strings list;
    int rc = split_list(text, a, &list);
    if (rc)
        return rc;
    v.item = mr_arena_alloc(a, (list.n + 1) * sizeof(*v.item));
    if (!v.item)
        return -ENOMEM;
    for (; v.n < list.n; v.n++) {
        rc = mr_parse_bytes(list.item[v.n], &v.item[v.n]);
        if (rc)
            return rc;
    }
    *out = v;
    return 0;
}

/* A constant may carry a unit of time; parameters of a distribution as well, except gamma's shape. */
static int parse_seconds(const char *text, double *out)
{
    uint64_t ns;
    int rc = mr_parse_double(text, out);
    if (rc == -EINVAL && !(rc = mr_parse_duration_ns(text, &ns)))
        *out = (double)ns / 1e9;
    return rc;
}

static int find_dist(const char *name, enum mr_dist_kind *out)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(dists); i++)
        if (!strcasecmp(dists[i].name, name)) {
            *out = (enum mr_dist_kind)i;
            return 0;
        }
    return -EINVAL;
}

static int parse_dist_map(const char *text, struct mr_arena *a, struct mr_dist *out)
{
    char *key[4], *value[4];
    unsigned n = 0;
    const char *p = text + 1;
    struct mr_dist d = {.kind = MR_DIST_NORMAL};
    bool have_kind = false, have_a = false, have_b = false;
    for (;;) {
        while (isspace((unsigned char)*p))
            p++;
        if (*p == '}')
            break;
        if (n == MR_ARRAY_LEN(key) || !(key[n] = take_item(&p, ":,}", a)) || *p != ':')
            return -EINVAL;
        p++;
        if (!(value[n] = take_item(&p, ",}", a)) || (*p != ',' && *p != '}'))
            return -EINVAL;
        n++;
        p += *p == ',';
    }
    for (p++; isspace((unsigned char)*p); p++)
        ;
    if (*p)
        return -EINVAL;
    for (unsigned i = 0; i < n; i++)
        if (!strcmp(key[i], "type")) {
            if (have_kind || find_dist(value[i], &d.kind))
                return -EINVAL;
            have_kind = true;
        }
    for (unsigned i = 0; i < n; i++) {
        if (!strcmp(key[i], "type"))
            continue;
        bool is_a = !strcmp(key[i], dists[d.kind].a), is_b = dists[d.kind].b && !strcmp(key[i], dists[d.kind].b);
        if ((!is_a && !is_b) || (is_a ? have_a : have_b) || parse_seconds(value[i], is_a ? &d.a : &d.b))
            return -EINVAL;
        *(is_a ? &have_a : &have_b) = true;
    }
    if (!have_a || (dists[d.kind].b && !have_b && d.kind != MR_DIST_NORMAL))
        return -EINVAL;
    *out = d;
    return 0;
}

static int parse_dist(const char *text, struct mr_arena *a, struct mr_dist *out)
{
    while (isspace((unsigned char)*text))
        text++;
    struct mr_dist d = {.kind = MR_DIST_CONSTANT};
    int rc = *text == '{' ? parse_dist_map(text, a, &d) : parse_seconds(text, &d.a);
    if (rc)
        return rc;
    if (d.a < 0 || d.b < 0 || (d.kind == MR_DIST_UNIFORM && d.b < d.a))
        return -ERANGE;
    *out = d;
    return 0;
}

static int parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < MR_ARRAY_LEN(yes); i++) {
        if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
            *out = !strcasecmp(text, yes[i]);
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_double(const struct mr_option *o, const char *text, double *out)
{
    uint64_t bytes;
    int rc = mr_parse_double(text, out);
    if (rc == -EINVAL && (o->flags & MR_OPTF_SIZE) && !(rc = mr_parse_bytes(text, &bytes)))
        *out = (double)bytes;
    return rc;
}

static int in_bounds(const struct mr_option *o, double v)
{
    return (o->min == 0 && o->max == 0) || (v >= o->min && v <= o->max) ? 0 : -ERANGE;
}

static int parse_enum(const struct mr_option *o, const char *text, int *out)
{
    for (int i = 0; o->choices[i]; i++)
        if (!strcasecmp(o->choices[i], text)) {
            *out = i;
            return 0;
        }
    return -EINVAL;
}

/* Writes the field only when the value is good. */
static int parse_value(const struct mr_option *o, const char *text, struct mr_arena *a, void *field)
{
    union {
        bool b;
        int64_t i;
        double d;
        uint64_t u;
        int e;
        char *s;
        struct mr_dims dims;
        struct mr_dist dist;
        struct mr_strings strings;
        struct mr_uints uints;
    } v;
    size_t bytes = 0;
    int rc = -EINVAL;
#define TAKE(member, call)                                                                                             \
    bytes = sizeof v.member;                                                                                           \
    rc = (call)
    switch (o->type) {
    case MR_OPT_BOOL: TAKE(b, parse_bool(text, &v.b)); break;
    case MR_OPT_INT:
        TAKE(i, mr_parse_int(text, &v.i));
        rc = rc ? rc : in_bounds(o, (double)v.i);
        break;
    case MR_OPT_DOUBLE:
        TAKE(d, parse_double(o, text, &v.d));
        rc = rc ? rc : in_bounds(o, v.d);
        break;
    case MR_OPT_BYTES:
        TAKE(u, mr_parse_bytes(text, &v.u));
        rc = rc ? rc : in_bounds(o, (double)v.u);
        break;
    case MR_OPT_DURATION:
        TAKE(u, mr_parse_duration_ns(text, &v.u));
        rc = rc ? rc : in_bounds(o, (double)v.u / 1e9);
        break;
    case MR_OPT_STRING: TAKE(s, (v.s = mr_arena_strdup(a, text)) ? 0 : -ENOMEM); break;
    case MR_OPT_ENUM: TAKE(e, parse_enum(o, text, &v.e)); break;
    case MR_OPT_DIMS: TAKE(dims, parse_dims(text, a, &v.dims)); break;
    case MR_OPT_DIST:
        TAKE(dist, parse_dist(text, a, &v.dist));
        rc = rc ? rc : in_bounds(o, v.dist.a);
        break;
    case MR_OPT_STRINGS: TAKE(strings, split_list(text, a, &v.strings)); break;
    case MR_OPT_UINTS: TAKE(uints, parse_uints(text, a, &v.uints)); break;
    }
#undef TAKE
    if (!rc)
        memcpy(field, &v, bytes);
    return rc;
}

const char *mr_option_bound_text(double bound, char *out, size_t cap)
{
    if (bound > -9.2e18 && bound < 9.2e18 && bound == trunc(bound))
        snprintf(out, cap, "%" PRId64, (int64_t)bound); /* all digits: 4.61168601842739e+18 cannot be typed in */
    else
        snprintf(out, cap, "%.15g", bound);
    return out;
}

/* "must be between 1 and 8", "must be one of: a, b", "must be a size in bytes". */
static void describe_allowed(const struct mr_option *o, char *out, size_t cap)
{
    if (o->type == MR_OPT_ENUM) {
        size_t at = (size_t)snprintf(out, cap, "must be one of");
        for (int i = 0; o->choices[i] && at < cap; i++)
            at += (size_t)snprintf(out + at, cap - at, "%s %s", i ? "," : ":", o->choices[i]);
        return;
    }
    char min[32], max[32];
    if (o->min != 0 || o->max != 0)
        snprintf(out, cap, "must be between %s and %s%s (%s)", mr_option_bound_text(o->min, min, sizeof min),
                 mr_option_bound_text(o->max, max, sizeof max),
                 o->type == MR_OPT_DURATION || o->type == MR_OPT_DIST ? " s" : "", mr_option_type_name(o));
    else if (o->type == MR_OPT_INT)
        snprintf(out, cap, "must be between %" PRId64 " and %" PRId64 " (%s)", INT64_MIN, INT64_MAX,
                 mr_option_type_name(o));
    else
        snprintf(out, cap, "must be: %s", mr_option_type_name(o));
}

static const char *nearest_choice(const struct mr_option *o, const char *text)
{
    struct mr_nearest n = {.word = text};
    for (int i = 0; o->type == MR_OPT_ENUM && o->choices[i]; i++)
        mr_nearest_offer(&n, o->choices[i]);
    return mr_nearest_name(&n);
}

int mr_option_parse(const struct mr_option_table *t, const struct mr_option *o, const char *text, struct mr_arena *a,
                    void *obj, struct mr_error *err)
{
    assert(o->offset < t->struct_bytes); /* the row is for a field of the table's struct */
    int rc = parse_value(o, text, a, (char *)obj + o->offset);
    if (!rc)
        return 0;
    if (rc == -ENOMEM)
        return mr_error_set(err, rc, "cannot keep the value of '%s'", o->key);
    char allowed[512];
    describe_allowed(o, allowed, sizeof allowed);
    const char *dot = t->section && *t->section ? "." : "";
    mr_error_plain(err, MR_E_CONFIG, "bad value '%.200s' for '%s%s%s': %s", text, t->section ? t->section : "", dot,
                   o->key, allowed);
    const char *near = nearest_choice(o, text);
    if (near)
        mr_error_hint(err, "did you mean '%s'?", near);
    return MR_E_CONFIG;
}

int mr_options_defaults(const struct mr_option_table *t, struct mr_arena *a, void *obj, struct mr_error *err)
{
    memset(obj, 0, t->struct_bytes);
    for (const struct mr_option *o = t->options; o->key; o++) {
        assert(o->offset < t->struct_bytes && (o->type != MR_OPT_ENUM || o->choices));
        int rc = parse_value(o, o->def, a, (char *)obj + o->offset);
        if (rc == -ENOMEM)
            return mr_error_set(err, rc, "cannot keep the default of '%s'", o->key);
        if (rc)
            return mr_error_plain(err, MR_E_INTERNAL, "the default '%s' of '%s.%s' is not a valid value", o->def,
                                  t->section, o->key);
    }
    return 0;
}

static bool same_key(const char *key, const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (key[i] == '\0' || (key[i] != word[i] && !(key[i] == '_' && word[i] == '-')))
            return false;
    return key[n] == '\0';
}

const struct mr_option *mr_option_find(const struct mr_option_table *t, const char *key)
{
    for (const struct mr_option *o = t->options; o->key; o++) {
        if (same_key(o->key, key, strlen(key)))
            return o;
        for (const char *alias = o->alias; alias && *alias;) {
            size_t n = strcspn(alias, ",");
            if (n == strlen(key) && same_key(key, alias, n))
                return o;
            alias += n + (alias[n] == ',');
        }
    }
    return NULL;
}

/* The shortest text that reads back as the same double. */
static int print_double(double v, char *out, size_t cap)
{
    for (int digits = 6; digits <= 17; digits++) {
        int n = snprintf(out, cap, "%.*g", digits, v);
        double back = strtod(out, NULL);
        if (n >= (int)cap || back == v || digits == 17)
            return n;
    }
    return 0;
}

int mr_option_quote(const char *text, char *out, size_t cap)
{
    size_t n = 0;
#define PUT(c)                                                                                                         \
    do {                                                                                                               \
        if (n + 1 < cap)                                                                                               \
            out[n] = (c);                                                                                              \
        n++;                                                                                                           \
    } while (0)
    PUT('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            PUT('\\');
        PUT(*text);
    }
    PUT('"');
#undef PUT
    if (cap)
        out[MR_MIN(n, cap - 1)] = '\0';
    return (int)n;
}

static int print_list(const struct mr_option *o, const void *field, char *out, size_t cap)
{
    const struct mr_dims *dims = field;
    const struct mr_strings *strings = field;
    const struct mr_uints *uints = field;
    unsigned n = o->type == MR_OPT_DIMS ? dims->n : o->type == MR_OPT_STRINGS ? strings->n : uints->n;
    size_t at = 0;
#define REST (at < cap ? out + at : NULL), (at < cap ? cap - at : 0)
    at += (size_t)snprintf(REST, "[");
    for (unsigned i = 0; i < n; i++) {
        if (i)
            at += (size_t)snprintf(REST, ", ");
        if (o->type == MR_OPT_STRINGS)
            at += (size_t)mr_option_quote(strings->item[i], REST);
        else
            at += (size_t)snprintf(REST, "%llu",
                                   (unsigned long long)(o->type == MR_OPT_DIMS ? dims->dim[i] : uints->item[i]));
    }
    at += (size_t)snprintf(REST, "]");
#undef REST
    return (int)at;
}

static int print_dist(const struct mr_dist *d, char *out, size_t cap)
{
    char a[40], b[40];
    print_double(d->a, a, sizeof a);
    print_double(d->b, b, sizeof b);
    if (d->kind == MR_DIST_CONSTANT)
        return snprintf(out, cap, "%s", a);
    if (!dists[d->kind].b)
        return snprintf(out, cap, "{type: %s, %s: %s}", dists[d->kind].name, dists[d->kind].a, a);
    return snprintf(out, cap, "{type: %s, %s: %s, %s: %s}", dists[d->kind].name, dists[d->kind].a, a, dists[d->kind].b,
                    b);
}

int mr_option_print(const struct mr_option *o, const void *obj, char *out, size_t cap)
{
    const char *field = (const char *)obj + o->offset;
    switch (o->type) {
    case MR_OPT_BOOL: return snprintf(out, cap, "%s", *(const bool *)field ? "true" : "false");
    case MR_OPT_INT: return snprintf(out, cap, "%lld", (long long)*(const int64_t *)field);
    case MR_OPT_DOUBLE: return print_double(*(const double *)field, out, cap);
    case MR_OPT_BYTES: return snprintf(out, cap, "%llu", (unsigned long long)*(const uint64_t *)field);
    case MR_OPT_DURATION: {
        uint64_t ns = *(const uint64_t *)field;
        if (ns % MR_NS_PER_S == 0)
            return snprintf(out, cap, "%llus", (unsigned long long)(ns / MR_NS_PER_S));
        return snprintf(out, cap, "%lluns", (unsigned long long)ns);
    }
    case MR_OPT_STRING: return snprintf(out, cap, "%s", *(const char *const *)field);
    case MR_OPT_ENUM: return snprintf(out, cap, "%s", o->choices[*(const int *)field]);
    case MR_OPT_DIST: return print_dist((const struct mr_dist *)field, out, cap);
    case MR_OPT_DIMS:
    case MR_OPT_STRINGS:
    case MR_OPT_UINTS: return print_list(o, field, out, cap);
    }
    return 0;
}
