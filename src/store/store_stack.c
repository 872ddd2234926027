/* The registry of backends and shims, the text form of a stack, and what a stack can do.
 *
 * A stack text is cut at ':' outside parentheses and quotes; the rightmost piece is the backend, opened first, each
 * piece to the left wraps what is there. The registry grows only at the start (plug-ins), then it may be used from any
 * thread. */
#include "base/common.h"
#include "store/store_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* To add a backend or a shim: one extern in store_internal.h, one row here. */
#define STORES_MAX 72 /* with those of plug-ins */
static const struct mr_store_ops *registry[STORES_MAX + 1] = {
    &mr_store_posix_ops, &mr_store_uring_ops,    &mr_store_mmap_ops,  &mr_store_memory_ops, &mr_store_null_ops,
    &mr_store_s3_ops,    &mr_store_throttle_ops, &mr_store_fault_ops, &mr_store_trace_ops,  &mr_store_count_ops,
};

const struct mr_store_ops *const *mr_store_registry(void)
{
    return registry;
}

/* ---- the text form of a stack ---- */

#define MAX_LAYERS 16

struct layer {
    char *name, *options; /* options: "k=v,k=v", or NULL */
    const struct mr_store_ops *ops;
};

static const struct mr_store_ops *find_ops(const char *name)
{
    if (!name)
        return NULL;
    for (const struct mr_store_ops *const *o = registry; *o; o++)
        if (strcmp((*o)->name, name) == 0)
            return *o;
    return NULL;
}

/* The first operation that is missing, or NULL. The function pointers are the block from `open` to the end. */
static const char *missing_op(const struct mr_store_ops *ops)
{
    static const char *const names[] = {"open",     "close",      "object_open", "object_close", "object_size",
                                        "read",     "write",      "fsync",       "allocate",     "truncate",
                                        "stat",     "list",       "mkdir",       "unlink",       "rename",
                                        "sync_dir", "free_space", "drop_cache",  "resident",     "ioq_create",
                                        "ioq_free", "ioq_submit", "ioq_reap",    "ioq_register"};
    static_assert(sizeof(struct mr_store_ops) - offsetof(struct mr_store_ops, open) == sizeof(names),
                  "one name per operation");
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        void *fn;
        memcpy(&fn, (const char *)ops + offsetof(struct mr_store_ops, open) + i * sizeof(fn), sizeof(fn));
        if (!fn)
            return names[i];
    }
    return NULL;
}

int mr_store_register(const struct mr_store_ops *ops, struct mr_error *err)
{
    size_t n = 0;
    while (registry[n])
        n++;
    if (ops->abi != MR_STORE_ABI || ops->size != sizeof(*ops))
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "a store of abi %u with %u bytes of operations; this program has abi %u with %zu",
                              ops->abi, ops->size, MR_STORE_ABI, sizeof(*ops));
    if (!ops->name || !*ops->name || ops->name[strcspn(ops->name, "(),:=\" \t")] || !ops->doc || !ops->options.options)
        return mr_error_plain(err, MR_E_USAGE,
                              "a store needs a plain name, a text and option rows, be it the end row alone");
    if (find_ops(ops->name))
        return mr_error_plain(err, -EEXIST, "there is a store '%s' already", ops->name);
    const char *missing = missing_op(ops);
    if (missing)
        return mr_error_plain(err, MR_E_USAGE, "store '%s' lacks the operation '%s'", ops->name, missing);
    if (n + 1 >= MR_ARRAY_LEN(registry))
        return mr_error_plain(err, MR_E_LIMIT, "cannot add store '%s': there are %d", ops->name, STORES_MAX);
    registry[n] = ops;
    return 0;
}

static const char *nearest_store(const char *name)
{
    struct mr_nearest near = {.word = name};
    for (size_t i = 0; registry[i]; i++)
        mr_nearest_offer(&near, registry[i]->name);
    return mr_nearest_name(&near);
}

/* Finds the next `sep` outside parentheses and double quotes. Returns its place or the end of the text; NULL when a
 * quote or parenthesis is left open or closes nothing. */
static char *next_separator(char *text, char sep)
{
    int depth = 0;
    bool quoted = false;
    char *p = text;
    for (; *p; p++) {
        if (*p == '"')
            quoted = !quoted;
        else if (quoted)
            continue;
        else if (*p == '(')
            depth++;
        else if (*p == ')' && --depth < 0)
            return NULL;
        else if (*p == sep && depth == 0)
            return p;
    }
    return depth == 0 && !quoted ? p : NULL;
}

static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        text[--n] = '\0';
    return text;
}

/* One piece: name | name(options) | name,options */
static int parse_layer(char *text, const char *spec, struct layer *out, struct mr_error *err)
{
    text = trim(text);
    char *cut = text + strcspn(text, "(,");
    struct layer l = {.name = text};
    if (*cut == '(') {
        char *end = text + strlen(text) - 1;
        if (*end != ')')
            return mr_error_plain(err, MR_E_CONFIG, "bad store '%s': '%s' after the closing parenthesis of '%.*s'",
                                  spec, strrchr(text, ')') ? strrchr(text, ')') + 1 : text, (int)(cut - text), text);
        *end = '\0';
    }
    if (*cut) {
        *cut = '\0';
        l.options = cut + 1;
    }
    l.name = trim(l.name);
    if (!*l.name)
        return mr_error_plain(err, MR_E_CONFIG, "bad store '%s': a name is missing", spec);
    l.ops = find_ops(l.name);
    if (!l.ops) {
        mr_error_plain(err, MR_E_CONFIG, "unknown store '%s' in '%s'", l.name, spec);
        const char *near = nearest_store(l.name);
        if (near)
            mr_error_hint(err, "did you mean '%s'? 'millrace help store' lists them", near);
        else
            mr_error_hint(err, "'millrace help store' lists them");
        return MR_E_CONFIG;
    }
    *out = l;
    return 0;
}

static int parse_spec(char *text, const char *spec, struct layer *layers, unsigned *n, struct mr_error *err)
{
    unsigned count = 0;
    for (char *rest = text; rest;) {
        char *end = next_separator(rest, ':');
        if (!end)
            return mr_error_plain(err, MR_E_CONFIG, "bad store '%s': parentheses or quotes do not match", spec);
        if (count == MAX_LAYERS)
            return mr_error_plain(err, MR_E_CONFIG, "bad store '%s': more than %d layers", spec, MAX_LAYERS);
        char *next = *end ? end + 1 : NULL;
        *end = '\0';
        int rc = parse_layer(rest, spec, &layers[count], err);
        if (rc < 0)
            return rc;
        count++;
        rest = next;
    }
    for (unsigned i = 0; i < count; i++) {
        if (i + 1 < count && !layers[i].ops->is_shim)
            return mr_error_plain(err, MR_E_CONFIG, "bad store '%s': '%s' is a backend and must come last", spec,
                                  layers[i].name);
        if (i + 1 == count && layers[i].ops->is_shim) {
            mr_error_plain(err, MR_E_CONFIG, "bad store '%s': '%s' is a shim and needs a backend below it", spec,
                           layers[i].name);
            mr_error_hint(err, "write '%s:posix'", spec);
            return MR_E_CONFIG;
        }
    }
    *n = count;
    return 0;
}

/* ---- addresses ---- */

bool mr_store_is_url(const char *path)
{
    return path && strncmp(path, "s3://", 5) == 0;
}

/* Where the last layer of a stack begins in its text. */
static const char *backend_text(const char *spec)
{
    int depth = 0;
    bool quoted = false;
    const char *last = spec;
    for (const char *p = spec; *p; p++) {
        if (*p == '"')
            quoted = !quoted;
        else if (!quoted)
            depth += (*p == '(') - (*p == ')');
        if (*p == ':' && depth == 0 && !quoted)
            last = p + 1;
    }
    return last + strspn(last, " \t");
}

/* The name alone, without options. */
static bool is_plain(const char *backend, const char *name)
{
    size_t n = strlen(name);
    return strncmp(backend, name, n) == 0 && backend[n + strspn(backend + n, " \t")] == '\0';
}

static bool is_for_files(const char *backend)
{
    static const char *const names[] = {"posix", "uring", "mmap"};
    size_t n = strcspn(backend, "(, \t");
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++)
        if (strlen(names[i]) == n && strncmp(backend, names[i], n) == 0)
            return true;
    return false;
}

int mr_store_spec_for(const char *spec, const char *path, char **out, struct mr_error *err)
{
    const char *backend;
    char *text = NULL;
    int n = 0;
    spec = spec && *spec ? spec : "posix";
    backend = backend_text(spec);
    if (!mr_store_is_url(path) || !is_for_files(backend)) {
        text = strdup(spec);
    } else if (is_plain(backend, "posix")) {
        n = asprintf(&text, "%.*ss3", (int)(backend - spec), spec);
    } else {
        mr_error_plain(err, MR_E_USAGE, "'%s' is in object storage, and store '%s' reads files", path, backend);
        return mr_error_hint(err, "leave --store out, or give s3: --store 's3(endpoint=...)'"), MR_E_USAGE;
    }
    if (n < 0 || !text)
        return mr_error_set(err, -ENOMEM, "cannot open store '%s'", spec);
    *out = text;
    return 0;
}

int mr_store_backend_for(const char *spec, const char *path, char **out, struct mr_error *err)
{
    return mr_store_spec_for(spec && *spec ? backend_text(spec) : NULL, path, out, err);
}

int mr_store_open_at(const char *spec, const char *path, struct mr_store **out, struct mr_error *err)
{
    char *text;
    int rc = mr_store_spec_for(spec, path, &text, err);
    if (rc)
        return rc;
    rc = mr_store_open(text, out, err);
    free(text);
    return rc;
}

static int set_option(const struct layer *l, char *text, uint64_t *seen, struct mr_arena *a, void *obj,
                      struct mr_error *err)
{
    const struct mr_option_table *t = &l->ops->options;
    char *eq = strchr(text, '=');
    char *value = eq ? trim(eq + 1) : NULL;
    if (eq)
        *eq = '\0';
    text = trim(text);
    const struct mr_option *o = mr_option_find(t, text);
    if (!o) {
        mr_error_plain(err, MR_E_CONFIG, "unknown option '%s' of store '%s'", text, l->name);
        const char *near = mr_option_nearest(t, text);
        if (near)
            mr_error_hint(err, "did you mean '%s'? 'millrace help store' lists the options", near);
        else
            mr_error_hint(err, "'millrace help store' lists the options");
        return MR_E_CONFIG;
    }
    if (!value)
        return mr_error_plain(err, MR_E_CONFIG, "option '%s' of store '%s' needs a value: %s=...", text, l->name, text);
    uint64_t bit = 1ull << (o - t->options);
    if (*seen & bit)
        return mr_error_plain(err, MR_E_CONFIG, "option '%s' of store '%s' is given twice", text, l->name);
    *seen |= bit;
    size_t len = strlen(value);
    if (len >= 2 && value[0] == '"' && value[len - 1] == '"') {
        value[len - 1] = '\0';
        value++;
    }
    return mr_option_parse(t, o, value, a, obj, err);
}

static int open_layer(const struct layer *l, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    struct mr_arena a = {0};
    uint64_t seen = 0;
    void *obj = mr_arena_alloc(&a, MR_MAX(l->ops->options.struct_bytes, 1));
    int rc =
        obj ? mr_options_defaults(&l->ops->options, &a, obj, err) : mr_error_set(err, -ENOMEM, "cannot open a store");
    char *rest = l->options ? trim(l->options) : NULL;
    if (rest && !*rest)
        rest = NULL;
    while (rc == 0 && rest) {
        char *end = next_separator(rest, ',');
        if (!end) { /* the whole spec was balanced, so this cannot be reached; never trust that */
            rc = mr_error_plain(err, MR_E_CONFIG, "options of store '%s': parentheses or quotes do not match", l->name);
            break;
        }
        char *next = *end ? end + 1 : NULL;
        *end = '\0';
        rc = set_option(l, rest, &seen, &a, obj, err);
        rest = next;
    }
    if (rc == 0)
        rc = l->ops->open(obj, lower, out, err);
    mr_arena_done(&a);
    return rc;
}

int mr_store_open(const char *spec, struct mr_store **out, struct mr_error *err)
{
    struct layer layers[MAX_LAYERS];
    unsigned n = 0;
    char *text = strdup(spec ? spec : "");
    if (!text)
        return mr_error_set(err, -ENOMEM, "cannot open store '%s'", spec);
    int rc = parse_spec(text, spec ? spec : "", layers, &n, err);
    struct mr_store *top = NULL;
    for (unsigned i = n; rc == 0 && i-- > 0;) {
        struct mr_store *s = NULL;
        rc = open_layer(&layers[i], top, &s, err);
        if (rc == 0)
            top = s;
    }
    if (rc < 0) {
        mr_store_close(top);
        if (err && err->code == rc)
            mr_error_context(err, "in store '%s'", spec ? spec : "");
    } else {
        *out = top;
    }
    free(text);
    return rc;
}

void mr_store_close(struct mr_store *s)
{
    if (s)
        s->ops->close(s);
}

/* ---- what a stack can do ---- */

unsigned mr_store_caps(const struct mr_store *s)
{
    unsigned removed = 0;
    for (; s->lower; s = s->lower)
        removed |= s->ops->caps_removed;
    return s->ops->caps & ~removed;
}

bool mr_store_puts_whole(const struct mr_store *s)
{
    const unsigned whole = MR_STORE_CAP_WRITE | MR_STORE_CAP_WHOLE_PUT | MR_STORE_CAP_MULTIPART;
    unsigned caps = mr_store_caps(s);
    return (caps & whole) == whole && !(caps & MR_STORE_CAP_RENAME);
}

/* Who is to blame: the shim that takes the capability away, or the backend. */
static const char *lacks(const struct mr_store *s, unsigned cap)
{
    for (; s->lower; s = s->lower)
        if (s->ops->caps_removed & cap)
            break;
    return s->ops->name;
}

int mr_store_require(const struct mr_store *s, unsigned caps, const char *what, struct mr_error *err)
{
    static const struct {
        unsigned cap;
        const char *text;
    } names[] = {
        {MR_STORE_CAP_WRITE, "write"},
        {MR_STORE_CAP_DIRECT, "bypass the page cache"},
        {MR_STORE_CAP_PERSISTENT, "keep anything longer than the process"},
        {MR_STORE_CAP_CONTENT, "read back what was written"},
        {MR_STORE_CAP_RENAME, "rename"},
        {MR_STORE_CAP_OFFSET_WRITE, "write at any offset"},
        {MR_STORE_CAP_APPEND, "extend a file that was closed"},
        {MR_STORE_CAP_MULTIPART, "put a file together from parts"},
        {MR_STORE_CAP_WHOLE_PUT, "put a file in one piece"},
    };
    unsigned missing = caps & ~mr_store_caps(s);
    for (size_t i = 0; missing && i < MR_ARRAY_LEN(names); i++)
        if (missing & names[i].cap) {
            mr_error_plain(err, MR_E_UNSUPPORTED, "cannot %s: store '%s' cannot %s", what, lacks(s, names[i].cap),
                           names[i].text);
            mr_error_hint(err, "use store 'posix' or another that can; 'millrace help store' lists them");
            return MR_E_UNSUPPORTED;
        }
    return missing ? mr_error_plain(err, MR_E_UNSUPPORTED, "cannot %s: store '%s' lacks capability 0x%x", what,
                                    lacks(s, missing), missing)
                   : 0;
}

int mr_store_spec_caps(const char *spec, unsigned *out, struct mr_error *err)
{
    struct layer layers[MAX_LAYERS];
    unsigned n = 0, removed = 0;
    char *text = strdup(spec);
    int rc =
        text ? parse_spec(text, spec, layers, &n, err) : mr_error_set(err, -ENOMEM, "cannot read store '%s'", spec);
    for (unsigned i = 0; !rc && i + 1 < n; i++)
        removed |= layers[i].ops->caps_removed;
    if (!rc)
        *out = layers[n - 1].ops->caps & ~removed;
    free(text);
    return rc;
}

/* The options of one layer; they are cut. */
static bool layer_writes(const struct layer *l, char *which, size_t cap)
{
    for (char *rest = l->options; rest && *rest;) {
        char *end = next_separator(rest, ',');
        char *next = end && *end ? end + 1 : NULL;
        rest[strcspn(rest, "=,")] = '\0';
        const struct mr_option *o = mr_option_find(&l->ops->options, trim(rest));
        if (o && (o->flags & MR_OPTF_WRITES)) {
            snprintf(which, cap, "%s of store '%s'", o->key, l->name);
            return true;
        }
        rest = next;
    }
    return false;
}

bool mr_store_spec_writes(const char *spec, char *which, size_t cap)
{
    struct layer layers[MAX_LAYERS];
    unsigned n = 0;
    bool found = false;
    char *text = strdup(spec);
    int rc = text ? parse_spec(text, spec, layers, &n, NULL) : -ENOMEM;
    for (unsigned i = 0; !rc && i < n && !found; i++)
        found = layer_writes(&layers[i], which, cap);
    free(text);
    return found;
}
