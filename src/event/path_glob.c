#include "event/path_glob.h"

#include <string.h>

#define BETWEEN "\n" /* globs; nothing that separates them in a list */

/* Iterative, so hostile patterns cost at most length x length. */
bool mr_glob(const char *p, size_t len, const char *t)
{
    const char *end = p + len, *star = NULL, *back = NULL;
    while (*t) {
        if (p < end && *p == '*') {
            star = ++p;
            back = t;
            continue;
        }
        bool hit = p < end && (*p == '?' || *p == *t);
        const char *after = p + 1;
        if (p < end && *p == '[') {
            const char *q = p + 1;
            bool negate = q < end && (*q == '!' || *q == '^'), in = false;
            for (q += negate; q < end && *q != ']'; q++) {
                if (q + 2 < end && q[1] == '-' && q[2] != ']') {
                    in |= *t >= q[0] && *t <= q[2];
                    q += 2;
                } else {
                    in |= *t == *q;
                }
            }
            if (q < end) {
                hit = in != negate;
                after = q + 1;
            }
        }
        if (hit) {
            p = after;
            t++;
        } else if (star) {
            p = star;
            t = ++back;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*')
        p++;
    return p == end;
}

/* Where a glob of a list ends: a comma inside braces belongs to it. */
static size_t item_length(const char *p)
{
    size_t n = 0;
    for (unsigned depth = 0; p[n]; n++) {
        depth += p[n] == '{' && strchr(p + n, '}');
        depth -= p[n] == '}' && depth;
        if (!depth && (p[n] == ':' || p[n] == ','))
            break;
    }
    return n;
}

/* A list being made: globs, each behind BETWEEN. */
struct list {
    char *text;
    size_t used, cap;
    bool ok;
};

static void add(struct list *l, const char *from, size_t n)
{
    l->ok = l->ok && l->used + n < l->cap;
    if (!l->ok)
        return;
    memmove(l->text + l->used, from, n);
    l->used += n;
    l->text[l->used] = 0;
}

/* The innermost braces of a glob that have a comma; others stand for themselves. False if there are none. */
static bool find_braces(const char *p, size_t len, size_t *open, size_t *close)
{
    bool opened = false, comma = false;
    for (size_t i = 0; i < len; i++) {
        if (p[i] == '{') {
            *open = i;
            opened = true;
            comma = false;
        } else if (p[i] == '}') {
            *close = i;
            if (opened && comma)
                return true;
            opened = false;
        }
        comma |= p[i] == ',';
    }
    return false;
}

/* Replaces the glob at `at` by one for each word in those braces, at the end of the list. */
static void spread(struct list *l, size_t at, size_t len, size_t open, size_t close)
{
    for (size_t word = open + 1, n; l->ok && word <= close; word += n + 1) {
        for (n = 0; word + n < close && l->text[at + word + n] != ',';)
            n++;
        add(l, BETWEEN, 1);
        add(l, l->text + at, open);
        add(l, l->text + at + word, n);
        add(l, l->text + at + close + 1, len - close - 1);
    }
    if (!l->ok)
        return;
    memmove(l->text + at, l->text + at + len + 1, l->used - at - len); /* with the NUL */
    l->used -= len + 1;
}

bool mr_globs_read(const char *list, char *out, size_t cap)
{
    struct list l = {.text = out, .cap = cap, .ok = cap > 0};
    for (const char *p = list; *p && l.ok;) {
        size_t n = item_length(p);
        if (n) {
            add(&l, BETWEEN, 1);
            add(&l, p, n);
            if (p[n - 1] == '/')
                add(&l, "*", 1);
        }
        p += n + (p[n] != 0);
    }
    for (size_t at = 1; l.ok && at < l.used;) {
        size_t len = strcspn(out + at, BETWEEN), open = 0, close = 0;
        if (find_braces(out + at, len, &open, &close))
            spread(&l, at, len, open, close);
        else
            at += len + 1;
    }
    if (!l.ok || !l.used)
        out[0] = 0;
    return l.ok;
}

bool mr_globs_match(const char *globs, const char *path)
{
    for (const char *p = globs; *p;) {
        size_t n = strcspn(p, BETWEEN);
        if (n && mr_glob(p, n, path))
            return true;
        p += n + (p[n] != 0);
    }
    return false;
}
