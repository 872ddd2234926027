/* Names in a .pfw: texts, sites and files become ids in a list of the file's own; hashes that a file does not name are
 * looked up in the others. See pfw_internal.h. */
#include "import/pfw_internal.h"

#include <assert.h>
#include <errno.h>

static unsigned hex4(const char *p)
{
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        char ch = p[i];
        v = v * 16 + (unsigned)(ch >= '0' && ch <= '9'   ? ch - '0'
                                : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
                                : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                                         : 0);
    }
    return v;
}

/* An escaped code point as UTF-8, at most 4 bytes. The escapes of U+EF80 to U+EFFF (our export) and U+DC80 to U+DCFF
 * (Python's surrogateescape) stand for single bytes that are no UTF-8. */
static size_t put_utf8(char *out, uint32_t v)
{
    if (v < 0x80 || (v >= 0xdc80 && v <= 0xdcff) || (v >= 0xef80 && v <= 0xefff)) {
        out[0] = (char)v;
        return 1;
    }
    size_t n = v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i; i--, v >>= 6)
        out[i] = (char)(0x80 | (v & 63));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | v);
    return n;
}

/* Undoes the escapes of a JSON string, in the arena. Text without a backslash stays where it is. */
static struct pfw_text unescape(struct mr_pfw *im, struct pfw_text t)
{
    if (!t.quoted || !memchr(t.p, '\\', t.n)) /* an object or a list stays as it is written */
        return t;
    char *out = mr_arena_alloc(&im->arena, t.n + 1);
    size_t n = 0;
    if (!out)
        return t;
    for (size_t i = 0; i < t.n; i++) {
        if (t.p[i] != '\\' || i + 1 == t.n) {
            out[n++] = t.p[i];
            continue;
        }
        char ch = t.p[++i];
        if (ch == 'u' && t.n - i > 4) {
            uint32_t v = hex4(t.p + i + 1);
            i += 4;
            if (v >= 0xd800 && v < 0xdc00 && t.n - i > 6 && t.p[i + 1] == '\\' && t.p[i + 2] == 'u') {
                uint32_t low = hex4(t.p + i + 3);
                if (low >= 0xdc00 && low < 0xe000) {
                    v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
                    i += 6;
                }
            }
            n += put_utf8(out + n, v);
        } else {
            out[n++] = ch == 'n'   ? '\n'
                       : ch == 't' ? '\t'
                       : ch == 'r' ? '\r'
                       : ch == 'b' ? '\b'
                       : ch == 'f' ? '\f'
                                   : ch;
        }
    }
    return (struct pfw_text){.p = out, .n = (uint32_t)n, .quoted = true};
}

/* A copy that outlives the file's text. */
static struct pfw_text copy_text(struct mr_pfw *im, struct pfw_text t)
{
    char *copy = mr_arena_alloc(&im->arena, t.n + 1);
    if (copy)
        memcpy(copy, t.p, t.n);
    return (struct pfw_text){.p = copy ? copy : "", .n = copy ? t.n : 0, .quoted = true};
}

/* The same, without escapes. */
struct pfw_text mr_pfw_own_text(struct mr_pfw *im, struct pfw_text t)
{
    struct pfw_text plain = unescape(im, t);
    return plain.p == t.p ? copy_text(im, t) : plain;
}

uint32_t mr_pfw_new_string(struct mr_pfw *im, uint8_t kind, struct pfw_text t)
{
    if (MR_VEC_RESERVE(&im->string, im->string.n + 2) < 0)
        return 0;
    if (!im->string.n)
        im->string.item[im->string.n++] = (struct mr_trace_string){.text = ""};
    assert(im->string.n > 0 && im->string.n < im->string.cap); /* 0 is no id */
    im->string.item[im->string.n] = (struct mr_trace_string){.text = t.p, .len = (uint32_t)t.n, .kind = kind};
    return (uint32_t)im->string.n++;
}

/* Id of a text, found by the 64-bit hash of it and its kind. */
uint32_t mr_pfw_text_id(struct mr_pfw *im, uint8_t kind, struct pfw_text t)
{
    uint64_t *at = mr_map_put(&im->text_string, mr_hash_bytes(t.p, t.n, kind));
    if (at && !*at)
        *at = mr_pfw_new_string(im, kind, mr_pfw_own_text(im, t));
    return at ? (uint32_t)*at : 0;
}

uint32_t mr_pfw_site_string(struct mr_pfw *im, struct pfw_text category, struct pfw_text name)
{
    uint64_t *at =
        mr_map_put(&im->text_string, mr_hash_bytes(name.p, name.n, mr_hash_bytes(category.p, category.n, 99)));
    if (at && !*at) {
        category = unescape(im, category);
        name = unescape(im, name);
        char *s = mr_arena_alloc(&im->arena, category.n + name.n + 2);
        if (!s)
            return 0;
        memcpy(s, category.p, category.n);
        memcpy(s + category.n + 1, name.p, name.n);
        *at =
            mr_pfw_new_string(im, MR_STR_SITE, (struct pfw_text){.p = s, .n = category.n + 1 + name.n, .quoted = true});
    }
    return at ? (uint32_t)*at : 0;
}

/* Id of the file a hash stands for; its name may come later. */
uint32_t mr_pfw_file_by_hash(struct mr_pfw *im, const struct pfw_text *h)
{
    uint64_t *at = mr_map_put(&im->hash_string, mr_pfw_hash_value(h));
    if (at && !*at && (*at = mr_pfw_new_string(im, MR_STR_PATH, copy_text(im, *h))))
        im->string.item[*at].unnamed = true;
    return at ? (uint32_t)*at : 0;
}
/* ---- names in other files ---- */

/* The hashes of one file. A process that was forked knows which names its parent has written, and does not write them
 * again. */
struct mr_pfw_names {
    struct mr_pfw_names *next;
    struct mr_map id; /* by hash; its memory belongs to the trace */
    struct mr_trace_string *string;
    uint32_t strings;
};

/* Hands the hashes over to the trace, which may need them for other files. */
int mr_pfw_keep_names(struct mr_trace *t, struct mr_pfw *im, struct mr_error *err)
{
    struct mr_pfw_names *n = im->hash_string.used ? mr_arena_alloc(&t->arena, sizeof(*n)) : NULL;
    if (!n)
        return im->hash_string.used ? mr_error_set(err, -ENOMEM, "cannot keep the names") : 0;
    int rc = mr_trace_keep(t, im->hash_string.slot, err);
    if (rc < 0)
        return rc;
    *n = (struct mr_pfw_names){
        .next = t->pfw_names, .id = im->hash_string, .string = im->string.item, .strings = (uint32_t)im->string.n};
    im->hash_string = (struct mr_map){0};
    t->pfw_names = n;
    return 0;
}

/* What a hash stands for in any file. *hint is the file to try first, and becomes the one that had it. */
static const struct mr_trace_string *name_of(const struct mr_trace *t, struct pfw_text hash,
                                             const struct mr_pfw_names **hint)
{
    uint64_t key = mr_pfw_hash_value(&hash);
    for (const struct mr_pfw_names *n = *hint ? *hint : t->pfw_names, *first = n; n;) {
        uint32_t id = (uint32_t)mr_map_get(&n->id, key);
        if (id && !n->string[id].unnamed) {
            *hint = n;
            return &n->string[id];
        }
        n = n->next ? n->next : t->pfw_names;
        if (n == first)
            break;
    }
    return NULL;
}

/* A node known by its hash gets its name, or becomes the node that has it already. */
static void resolve_node(struct mr_trace *t, uint32_t node, const struct mr_pfw_names **hint)
{
    struct mr_trace_node *n = &t->node[node];
    const struct mr_trace_string *name =
        name_of(t, (struct pfw_text){.p = n->name, .n = (uint32_t)strlen(n->name)}, hint);
    if (!name || name->len >= sizeof(n->name))
        return;
    for (uint32_t other = 0; other < t->nodes; other++)
        if (other != node && strlen(t->node[other].name) == name->len &&
            !memcmp(t->node[other].name, name->text, name->len)) {
            for (size_t p = 0; p < t->processes; p++)
                if (t->process[p].node == node)
                    t->process[p].node = other;
            return;
        }
    memset(n->name, 0, sizeof(n->name));
    memcpy(n->name, name->text, name->len);
}

void mr_pfw_resolve(struct mr_trace *t)
{
    const struct mr_pfw_names *hint = NULL;
    if (!t->pfw_names || !t->pfw_names->next)
        return;
    for (uint32_t i = 0; i < t->nodes; i++)
        resolve_node(t, i, &hint);
    for (struct mr_pfw_names *n = t->pfw_names; n; n = n->next)
        for (uint32_t i = 1; i < n->strings; i++) {
            struct mr_trace_string *s = &n->string[i];
            const struct mr_trace_string *name =
                s->unnamed ? name_of(t, (struct pfw_text){.p = s->text, .n = s->len}, &hint) : NULL;
            if (name) {
                s->text = name->text;
                s->len = name->len;
            }
        }
}
