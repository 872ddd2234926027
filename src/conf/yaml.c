/* YAML events (libyaml) to a tree. See yaml.h for what is refused and why. */
#include "conf/yaml.h"

#include "base/common.h"
#include "base/strbuf.h"
#include "conf/option.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

struct anchor {
    const char *name;
    struct mr_yaml_node *node; /* NULL while it is being read */
    struct anchor *next;
};

struct loader {
    yaml_parser_t parser;
    const char *name, *text;
    size_t len;
    struct mr_arena *arena;
    struct anchor *anchors; /* latest first: a name may be given again */
    struct mr_error *err;
    unsigned depth, nodes, n_anchors;
};

static int fail(struct loader *l, int code, unsigned line, const char *what, const char *detail)
{
    if (detail)
        mr_error_plain(l->err, code, "%s '%.100s'", what, detail);
    else
        mr_error_plain(l->err, code, "%s", what);
    mr_error_context(l->err, "in %s:%u", l->name, line);
    return code;
}

/* How many bytes the UTF-8 sequence at s takes, 0 when it is none (also overlong forms and surrogates). */
static size_t utf8_bytes(const unsigned char *s, size_t left)
{
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (n == 1)
        return 1;
    if (n > left || s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool is_overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool is_outside = (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf4 && s[1] >= 0x90);
    return is_overlong || is_outside ? 0 : n;
}

/* libyaml reads ahead: its line is that of the token before, and an incomplete sequence has no byte. So the first byte
 * that is not UTF-8 is searched for here. */
static int not_text(struct loader *l, const char *problem)
{
    size_t at = 0, n, start = 0;
    unsigned line = 1;
    const unsigned char *s = (const unsigned char *)l->text;
    for (; at < l->len && (n = utf8_bytes(s + at, l->len - at)) > 0; at += n)
        if (s[at] == '\n') {
            line++;
            start = at + 1;
        }
    if (at < l->len) {
        mr_error_plain(l->err, MR_E_FORMAT, "not valid YAML: byte 0x%02x at column %zu (offset %zu) is not UTF-8",
                       s[at], at - start + 1, at);
        mr_error_context(l->err, "in %s:%u", l->name, line);
        mr_error_hint(l->err, "write the file as UTF-8: 'iconv -f LATIN1 -t UTF-8'");
        return MR_E_FORMAT;
    }
    const yaml_parser_t *p = &l->parser; /* UTF-8, but a character that YAML does not allow */
    mr_error_plain(l->err, MR_E_FORMAT, "not valid YAML: %.200s: 0x%02x at offset %zu", problem,
                   (unsigned)p->problem_value, p->problem_offset);
    for (line = 1, at = 0; at < l->len && at < p->problem_offset; at++)
        line += s[at] == '\n';
    mr_error_context(l->err, "in %s:%u", l->name, line);
    return MR_E_FORMAT;
}

static int next_event(struct loader *l, yaml_event_t *e)
{
    if (yaml_parser_parse(&l->parser, e))
        return 0;
    const yaml_parser_t *p = &l->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return mr_error_set(l->err, -ENOMEM, "cannot read '%s'", l->name);
    const char *problem = p->problem ? p->problem : "unreadable";
    unsigned line = (unsigned)(p->problem_mark.line + 1);
    bool tab = strstr(problem, "character that cannot start any token") != NULL;
    if (p->error == YAML_READER_ERROR)
        return not_text(l, problem); /* a bad file, not a wrong setting */
    mr_error_plain(l->err, MR_E_CONFIG, "not valid YAML: %.200s%s", problem, tab ? " (a tab?)" : "");
    mr_error_context(l->err, "in %s:%u", l->name, line);
    return MR_E_CONFIG;
}

static struct mr_yaml_node *new_node(struct loader *l, enum mr_yaml_kind kind, const yaml_event_t *e)
{
    struct mr_yaml_node *n = mr_arena_alloc(l->arena, sizeof(*n));
    if (!n) {
        mr_error_set(l->err, -ENOMEM, "cannot read '%s'", l->name);
        return NULL;
    }
    n->kind = kind;
    n->line = (unsigned)(e->start_mark.line + 1);
    n->weight = 1;
    return n;
}

static int add_anchor(struct loader *l, const yaml_char_t *name, struct mr_yaml_node *node)
{
    if (!name)
        return 0;
    if (++l->n_anchors > MR_YAML_MAX_ANCHORS) {
        mr_error_plain(l->err, MR_E_LIMIT, "'%s' has more than %u anchors", l->name, MR_YAML_MAX_ANCHORS);
        return MR_E_LIMIT;
    }
    struct anchor *a = mr_arena_alloc(l->arena, sizeof(*a));
    if (!a || !(a->name = mr_arena_strdup(l->arena, (const char *)name)))
        return mr_error_set(l->err, -ENOMEM, "cannot read '%s'", l->name);
    a->node = node;
    a->next = l->anchors;
    l->anchors = a;
    return 0;
}

/* Every visit counts, so aliases of aliases reach the limit as copies would. */
static int count(struct loader *l, unsigned weight, unsigned line)
{
    assert(l->nodes <= MR_YAML_MAX_NODES);
    if (weight > MR_YAML_MAX_NODES - l->nodes)
        return fail(l, MR_E_LIMIT, line, "the file has too many nodes (aliases counted in full); the limit is 200000",
                    NULL);
    l->nodes += weight;
    return 0;
}

static int use_alias(struct loader *l, const yaml_event_t *e, struct mr_yaml_node **out)
{
    const char *name = (const char *)e->data.alias.anchor;
    unsigned line = (unsigned)(e->start_mark.line + 1);
    for (struct anchor *a = l->anchors; a; a = a->next) {
        if (strcmp(a->name, name) != 0)
            continue;
        if (!a->node)
            return fail(l, MR_E_FORMAT, line, "an anchor contains itself:", name);
        int rc = count(l, a->node->weight, line);
        if (!rc)
            *out = a->node;
        return rc;
    }
    return fail(l, MR_E_CONFIG, line, "unknown anchor", name);
}

static int grow(struct loader *l, struct mr_yaml_node *n, unsigned *cap)
{
    if (n->n < *cap)
        return 0;
    /* Duplicate keys are found by comparing with all others; maps are small or hostile. */
    if (n->kind == MR_YAML_MAP && n->n >= MR_YAML_MAX_KEYS)
        return fail(l, MR_E_LIMIT, n->line, "a map with more than 1024 keys", NULL);
    unsigned wanted = *cap ? *cap * 2 : 8;
    struct mr_yaml_node **value = mr_arena_alloc(l->arena, wanted * sizeof(struct mr_yaml_node *));
    struct mr_yaml_node **key = mr_arena_alloc(l->arena, wanted * sizeof(struct mr_yaml_node *));
    if (!value || !key)
        return mr_error_set(l->err, -ENOMEM, "cannot read '%s'", l->name);
    if (n->n) {
        memcpy(value, n->value, n->n * sizeof(struct mr_yaml_node *));
        memcpy(key, n->key, n->n * sizeof(struct mr_yaml_node *));
    }
    n->value = value;
    n->key = key;
    *cap = wanted;
    return 0;
}

struct mr_yaml_node *mr_yaml_get(const struct mr_yaml_node *map, const char *key)
{
    for (unsigned i = 0; map && map->kind == MR_YAML_MAP && i < map->n; i++)
        if (!strcmp(map->key[i]->text, key))
            return map->value[i];
    return NULL;
}

static int read_node(struct loader *l, yaml_event_t *first, struct mr_yaml_node **out);

static int read_list(struct loader *l, struct mr_yaml_node *n)
{
    unsigned cap = 0;
    for (;;) {
        yaml_event_t e;
        int rc = next_event(l, &e);
        if (rc)
            return rc;
        if (e.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&e);
            return 0;
        }
        rc = grow(l, n, &cap);
        if (!rc)
            rc = read_node(l, &e, &n->value[n->n]);
        yaml_event_delete(&e);
        if (rc)
            return rc;
        n->weight += n->value[n->n++]->weight;
    }
}

/* Keys of the merged map (or of each in a list) that the map itself has not. */
static int merge(struct loader *l, struct mr_yaml_node *n, unsigned *cap, const struct mr_yaml_node *from)
{
    if (from->kind == MR_YAML_LIST) {
        for (unsigned i = 0; i < from->n; i++) {
            if (from->value[i]->kind != MR_YAML_MAP)
                return fail(l, MR_E_CONFIG, from->line, "'<<' needs maps", NULL);
            int rc = merge(l, n, cap, from->value[i]);
            if (rc)
                return rc;
        }
        return 0;
    }
    if (from->kind != MR_YAML_MAP)
        return fail(l, MR_E_CONFIG, from->line, "'<<' needs a map", NULL);
    for (unsigned i = 0; i < from->n; i++) {
        if (mr_yaml_get(n, from->key[i]->text))
            continue;
        int rc = grow(l, n, cap);
        if (rc)
            return rc;
        n->key[n->n] = from->key[i];
        n->value[n->n++] = from->value[i];
    }
    return 0;
}

static int read_map(struct loader *l, struct mr_yaml_node *n)
{
    unsigned cap = 0;
    struct mr_yaml_node *merged = NULL;
    for (;;) {
        yaml_event_t e;
        int rc = next_event(l, &e);
        if (rc)
            return rc;
        if (e.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&e);
            return merged ? merge(l, n, &cap, merged) : 0;
        }
        struct mr_yaml_node *key = NULL, *value = NULL;
        rc = read_node(l, &e, &key);
        yaml_event_delete(&e);
        if (rc)
            return rc;
        if (key->kind != MR_YAML_SCALAR)
            return fail(l, MR_E_CONFIG, key->line, "a key must be a word", NULL);
        if (mr_yaml_get(n, key->text))
            return fail(l, MR_E_CONFIG, key->line, "duplicate key", key->text);
        if ((rc = next_event(l, &e)))
            return rc;
        rc = read_node(l, &e, &value);
        yaml_event_delete(&e);
        if (rc)
            return rc;
        n->weight += key->weight + value->weight;
        if (key->plain && !strcmp(key->text, "<<")) {
            if (merged)
                return fail(l, MR_E_CONFIG, key->line, "duplicate key", key->text);
            merged = value;
            continue;
        }
        if ((rc = grow(l, n, &cap)))
            return rc;
        n->key[n->n] = key;
        n->value[n->n++] = value;
    }
}

static int read_collection(struct loader *l, const yaml_event_t *e, bool is_map, struct mr_yaml_node **out)
{
    const yaml_char_t *name = is_map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor;
    struct mr_yaml_node *n = new_node(l, is_map ? MR_YAML_MAP : MR_YAML_LIST, e);
    if (!n)
        return -ENOMEM;
    if (l->depth >= MR_YAML_MAX_DEPTH)
        return fail(l, MR_E_LIMIT, n->line, "nested deeper than 64 levels", NULL);
    int rc = add_anchor(l, name, NULL); /* known, but not yet usable */
    if (rc)
        return rc;
    struct anchor *mine = name ? l->anchors : NULL;
    l->depth++;
    rc = is_map ? read_map(l, n) : read_list(l, n);
    l->depth--;
    if (rc)
        return rc;
    if (mine)
        mine->node = n;
    *out = n;
    return 0;
}

static int read_scalar(struct loader *l, const yaml_event_t *e, struct mr_yaml_node **out)
{
    struct mr_yaml_node *n = new_node(l, MR_YAML_SCALAR, e);
    if (!n)
        return -ENOMEM;
    const char *value = (const char *)e->data.scalar.value;
    if (memchr(value, '\0', e->data.scalar.length))
        return fail(l, MR_E_CONFIG, n->line, "a NUL character in a value", NULL);
    n->weight += (unsigned)(e->data.scalar.length / 64);
    n->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (n->plain && strchr(value, '\t'))
        return fail(l, MR_E_CONFIG, n->line, "a tab inside a value (use blanks, or quote it)", NULL);
    n->text = mr_arena_strndup(l->arena, value, e->data.scalar.length);
    if (!n->text)
        return mr_error_set(l->err, -ENOMEM, "cannot read '%s'", l->name);
    int rc = count(l, n->weight - 1, n->line);
    if (!rc)
        rc = add_anchor(l, e->data.scalar.anchor, n);
    if (!rc)
        *out = n;
    return rc;
}

static int read_node(struct loader *l, yaml_event_t *first, struct mr_yaml_node **out)
{
    unsigned line = (unsigned)(first->start_mark.line + 1);
    int rc = first->type == YAML_ALIAS_EVENT ? 0 : count(l, 1, line);
    if (rc)
        return rc;
    switch (first->type) {
    case YAML_SCALAR_EVENT: return read_scalar(l, first, out);
    case YAML_SEQUENCE_START_EVENT: return read_collection(l, first, false, out);
    case YAML_MAPPING_START_EVENT: return read_collection(l, first, true, out);
    case YAML_ALIAS_EVENT: return use_alias(l, first, out);
    default: return fail(l, MR_E_CONFIG, line, "not valid YAML: a value is missing", NULL);
    }
}

/* Stream: optional one document. A second one would be ignored by most readers, so it is refused. */
static int read_stream(struct loader *l, struct mr_yaml_node **out)
{
    struct mr_yaml_node *root = NULL;
    unsigned documents = 0;
    for (bool done = false; !done;) {
        yaml_event_t e;
        int rc = next_event(l, &e);
        if (rc)
            return rc;
        switch (e.type) {
        case YAML_STREAM_END_EVENT: done = true; break;
        case YAML_DOCUMENT_START_EVENT:
            if (documents++)
                rc = fail(l, MR_E_CONFIG, (unsigned)(e.start_mark.line + 1), "the file has more than one document",
                          NULL);
            break;
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT: break;
        default: rc = read_node(l, &e, &root); break;
        }
        yaml_event_delete(&e);
        if (rc)
            return rc;
    }
    if (!root || mr_yaml_is_null(root)) {
        root = mr_arena_alloc(l->arena, sizeof(*root));
        if (!root)
            return mr_error_set(l->err, -ENOMEM, "cannot read '%s'", l->name);
        root->kind = MR_YAML_MAP;
        root->line = root->weight = 1;
    }
    *out = root;
    return 0;
}

/* libyaml takes a tab between tokens silently where it only separates; as indentation it fails with a riddle. */
static int check_tabs(struct loader *l, const char *text, size_t len)
{
    unsigned line = 1;
    bool indent = true;
    for (size_t i = 0; i < len; i++) {
        if (indent && text[i] == '\t')
            return fail(l, MR_E_CONFIG, line, "a tab in the indentation (YAML wants blanks)", NULL);
        if (text[i] == '\n')
            line++;
        indent = text[i] == '\n' || (indent && text[i] == ' ');
    }
    return 0;
}

int mr_yaml_parse(const char *text, size_t len, const char *name, struct mr_arena *a, struct mr_yaml_node **out,
                  struct mr_error *err)
{
    struct loader l = {.name = name, .text = text, .len = len, .arena = a, .err = err};
    if (len > MR_YAML_MAX_BYTES) {
        mr_error_plain(err, MR_E_LIMIT, "'%s' is too large for a configuration file (have %zu bytes, limit %u)", name,
                       len, MR_YAML_MAX_BYTES);
        return MR_E_LIMIT;
    }
    int rc = check_tabs(&l, text, len);
    if (rc)
        return rc;
    if (!yaml_parser_initialize(&l.parser))
        return mr_error_set(err, -ENOMEM, "cannot read '%s'", name);
    yaml_parser_set_encoding(&l.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&l.parser, (const unsigned char *)text, len);
    rc = read_stream(&l, out);
    yaml_parser_delete(&l.parser);
    return rc;
}

int mr_yaml_load(const char *path, struct mr_arena *a, struct mr_yaml_node **out, struct mr_error *err)
{
    struct stat st;
    int rc = 0;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = mr_error_set(err, -errno, "cannot read '%s'", path);
        goto close_fd;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = mr_error_plain(err, MR_E_CONFIG, "'%s' is not a regular file", path);
        goto close_fd;
    }
    text = malloc(MR_YAML_MAX_BYTES + 1);
    if (!text) {
        rc = mr_error_set(err, -ENOMEM, "cannot read '%s'", path);
        goto close_fd;
    }
    size_t len = 0;
    while (len <= MR_YAML_MAX_BYTES) {
        ssize_t n = read(fd, text + len, MR_YAML_MAX_BYTES + 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = mr_error_set(err, -errno, "cannot read '%s'", path);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    if (!rc)
        rc = mr_yaml_parse(text, len, path, a, out, err);
close_fd:
    free(text);
    if (fd >= 0)
        close(fd);
    return rc;
}

bool mr_yaml_is_null(const struct mr_yaml_node *n)
{
    return n->kind == MR_YAML_SCALAR && n->plain &&
           (!*n->text || !strcmp(n->text, "~") || !strcasecmp(n->text, "null") || !strcmp(n->text, "None"));
}

static void put_flow(const struct mr_yaml_node *n, struct mr_strbuf *s, bool nested)
{
    if (n->kind == MR_YAML_SCALAR) {
        if (!nested || (n->plain && !strpbrk(n->text, ",[]{}\"'"))) {
            mr_strbuf_puts(s, n->text);
            return;
        }
        mr_strbuf_putc(s, '"');
        for (const char *c = n->text; *c; c++) {
            if (*c == '"' || *c == '\\')
                mr_strbuf_putc(s, '\\');
            mr_strbuf_putc(s, *c);
        }
        mr_strbuf_putc(s, '"');
        return;
    }
    bool map = n->kind == MR_YAML_MAP;
    mr_strbuf_putc(s, map ? '{' : '[');
    for (unsigned i = 0; i < n->n && !s->failed; i++) {
        if (i)
            mr_strbuf_puts(s, ", ");
        if (map) {
            put_flow(n->key[i], s, true);
            mr_strbuf_puts(s, ": ");
        }
        put_flow(n->value[i], s, true);
    }
    mr_strbuf_putc(s, map ? '}' : ']');
}

char *mr_yaml_flow(const struct mr_yaml_node *n, struct mr_arena *a)
{
    struct mr_strbuf s = {0};
    put_flow(n, &s, false);
    char *out = s.failed ? NULL : mr_arena_strdup(a, s.text ? s.text : "");
    mr_strbuf_done(&s);
    return out;
}
