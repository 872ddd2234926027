/* Reader of DFTracer's .pfw, every flavour: one JSON object per line, with or without brackets and commas; phases as
 * letters or numbers; numbers plain or quoted; hashes decimal or hex; file names inline (fname) or by hash (FH lines).
 * A line that is no whole object is skipped and counted. Unescaped control bytes, which DFTracer writes, are accepted.
 *
 * POSIX and STDIO names become calls; everything else becomes a region named by category and name, with its arguments.
 *
 * Lines repeat the same members in the same order. The bytes between their values, once seen, are a shape; a line that
 * has the shape of an earlier one is read by comparing these bytes and taking what lies between. Any other line is
 * parsed member by member, with the same result. */
#include "event/trace_read.h"
#include "base/common.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

struct text {
    const char *p;
    uint32_t n;
    bool quoted;
    bool whole; /* `number` is its value */
    int64_t number;
};

/* One growing set of columns: the events of a thread. */
struct lane {
    uint64_t key; /* process key */
    uint32_t process, tid;
    struct mr_columns c;
    uint32_t n, cap, args, args_cap;
    uint64_t first, last;
    uint64_t *folded; /* by call: calls that a line stands for beyond the first; NULL if none */
};

/* Hash table from 64-bit keys to numbers. */
struct table {
    uint64_t *key;
    uint32_t *value;
    size_t slots, used;
};

/* What a text meant the last time. */
struct memo {
    const char *p, *q;
    size_t n, m;
    uint64_t value;
};

#define SHAPES 24
#define LEARN_MAX 1024 /* shapes made per file: beyond, its lines are too different for this */
struct shape;

/* The events of a file, before they belong to a trace. Its names are copies: the file's text need not stay. */
struct mr_pfw {
    struct mr_arena arena;
    uint64_t skipped_lines;
    struct lane *lane;
    size_t lanes, lane_cap, last_lane;
    struct table lane_of, hash_string, text_string, host_of, rank_of;
    int64_t fact_id; /* of the last line with a fact */
    struct mr_trace_string *string;
    uint32_t strings, string_cap;
    uint32_t no_host;
    double unit_ns;              /* of ts and dur, from the first event */
    struct shape *shape[SHAPES]; /* the one used last comes first */
    unsigned shapes, learned;
    struct memo last_host, last_file, last_site;
};

static uint64_t hash_bytes(const char *p, size_t n, uint64_t seed)
{
    uint64_t h = mr_mix64(seed + ((uint64_t)n << 32)); /* mixed, or a short text could undo what tells seeds apart */
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = mr_mix64(h ^ v);
    }
    uint64_t v = 0;
    memcpy(&v, p, n);
    return mr_mix64(h ^ v ^ 0x1234567);
}

static int table_grow(struct table *t)
{
    size_t slots = t->slots ? t->slots * 2 : 256;
    uint64_t *key = calloc(slots, sizeof(*key));
    uint32_t *value = calloc(slots, sizeof(*value));
    if (!key || !value) {
        free(key);
        free(value);
        return -ENOMEM;
    }
    for (size_t i = 0; i < t->slots; i++)
        if (t->value[i]) {
            size_t k = t->key[i] & (slots - 1);
            while (value[k])
                k = (k + 1) & (slots - 1);
            key[k] = t->key[i];
            value[k] = t->value[i];
        }
    free(t->key);
    free(t->value);
    t->key = key;
    t->value = value;
    t->slots = slots;
    return 0;
}

/* The place of a key's value; 0 in it means new. NULL without memory. */
static uint32_t *table_at(struct table *t, uint64_t key)
{
    key = mr_mix64(key);
    if (t->used * 2 >= t->slots && table_grow(t) < 0)
        return NULL;
    size_t i = key & (t->slots - 1);
    while (t->value[i] && t->key[i] != key)
        i = (i + 1) & (t->slots - 1);
    if (!t->value[i]) {
        t->key[i] = key;
        t->used++;
    }
    return &t->value[i];
}

/* The value of a key, 0 if it has none. */
static uint32_t table_find(const struct table *t, uint64_t key)
{
    key = mr_mix64(key);
    for (size_t i = key & (t->slots - 1); t->slots && t->value[i]; i = (i + 1) & (t->slots - 1))
        if (t->key[i] == key)
            return t->value[i];
    return 0;
}

static void table_done(struct table *t)
{
    free(t->key);
    free(t->value);
    *t = (struct table){0};
}

/* ---- JSON, as much of it as a line needs ---- */

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == ','))
        p++;
    return p;
}

/* The closing quote. Most strings are shorter than 16 bytes or are paths of some dozens: one or two steps. */
static const char *string_end(const char *p, const char *end)
{
    for (;;) {
#if defined(__SSE2__)
        while (end - p >= 16) {
            __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
            int hits = _mm_movemask_epi8(
                _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'))));
            if (hits) {
                p += __builtin_ctz((unsigned)hits);
                break;
            }
            p += 16;
        }
#endif
        while (p < end && *p != '"' && *p != '\\')
            p++;
        if (p >= end)
            return NULL;
        if (*p == '"')
            return p;
        p += 2; /* the escaped byte */
        if (p >= end)
            return NULL;
    }
}

/* A value: string without its quotes, object or array with its brackets, or a bare word. Returns the end or NULL. */
static const char *take_value(const char *p, const char *end, struct text *out)
{
    p = skip_space(p, end);
    if (p == end)
        return NULL;
    if (*p == '"') {
        const char *q = string_end(p + 1, end);
        if (!q)
            return NULL;
        *out = (struct text){.p = p + 1, .n = (uint32_t)(q - p - 1), .quoted = true};
        return q + 1;
    }
    const char *start = p;
    if (*p == '{' || *p == '[') {
        int depth = 0;
        for (; p < end; p++) {
            if (*p == '"') {
                p = string_end(p + 1, end);
                if (!p)
                    return NULL;
            } else if (*p == '{' || *p == '[') {
                depth++;
            } else if ((*p == '}' || *p == ']') && --depth == 0) {
                *out = (struct text){.p = start, .n = (uint32_t)(p + 1 - start)};
                return p + 1;
            }
        }
        return NULL;
    }
    while (p < end && *p != ',' && *p != '}' && *p != ']' && *p != ' ')
        p++;
    *out = (struct text){.p = start, .n = (uint32_t)(p - start)};
    return p > start ? p : NULL;
}

/* Next "key": of an object; returns the place of its value, NULL at the end, *bad set if it is broken. */
static const char *take_key(const char *p, const char *end, struct text *key, bool *bad)
{
    p = skip_space(p, end);
    if (p < end && *p == '}')
        return NULL;
    *bad = true;
    if (p >= end || *p != '"')
        return NULL;
    const char *q = string_end(p + 1, end);
    if (!q)
        return NULL;
    *key = (struct text){.p = p + 1, .n = (uint32_t)(q - p - 1), .quoted = true};
    p = skip_space(q + 1, end);
    if (p >= end || *p != ':')
        return NULL;
    *bad = false;
    return skip_space(p + 1, end);
}

/* Next "key": value of an object; NULL at its end, *bad set if it is broken. */
static const char *take_pair(const char *p, const char *end, struct text *key, struct text *value, bool *bad)
{
    p = take_key(p, end, key, bad);
    if (!p)
        return NULL;
    p = take_value(p, end, value);
    *bad = !p;
    return p;
}

static inline bool is(const struct text *t, const char *word)
{
    size_t n = strlen(word);
    return t->n == n && !memcmp(t->p, word, n);
}

static bool to_int(const struct text *t, int64_t *out)
{
    if (t->whole) {
        *out = t->number;
        return true;
    }
    if (!t->n)
        return false;
    const char *p = t->p, *end = p + t->n;
    bool minus = *p == '-';
    uint64_t v = 0;
    p += minus;
    if (p == end || end - p > 19)
        return false;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    if (v > (uint64_t)INT64_MAX + minus)
        return false;
    *out = (int64_t)(minus ? -v : v);
    return true;
}

/* What is too large for to_int and not for 64 bits. */
static bool to_large(const struct text *t, uint64_t *out)
{
    uint64_t v = 0;
    if (t->n < 19 || t->n > 20)
        return false;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->p[i] < '0' || t->p[i] > '9' || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(t->p[i] - '0'), &v))
            return false;
    *out = v;
    return true;
}

/* True if the text is how its number is written: "007" is a name. */
static bool is_plain_number(const struct text *t)
{
    uint32_t minus = t->n && t->p[0] == '-';
    return t->n > minus && (t->p[minus] != '0' || t->n == 1);
}

static bool to_double(const struct text *t, double *out)
{
    char buf[64], *end;
    if (!t->n || t->n >= sizeof(buf))
        return false;
    memcpy(buf, t->p, t->n);
    buf[t->n] = 0;
    *out = strtod(buf, &end);
    return *end == 0 && end != buf;
}

#define TIME_MAX ((uint64_t)INT64_MAX / 2) /* start and duration together still fit */

/* A decimal fraction times `unit`, exactly: a double has no room for the nanoseconds of an epoch. False if it is
 * written otherwise. */
static bool fraction_ns(const struct text *t, uint64_t unit, uint64_t *out)
{
    const char *point = memchr(t->p, '.', t->n), *end = t->p + t->n;
    struct text whole = {.p = t->p, .n = point ? (uint32_t)(point - t->p) : 0};
    int64_t v;
    if (!point || !to_int(&whole, &v) || v < 0 || *whole.p == '-' || (uint64_t)v > TIME_MAX / unit)
        return false;
    uint64_t part = 0, scale = unit;
    for (const char *p = point + 1; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        part += (uint64_t)(*p - '0') * scale; /* tenths of what is kept, so that the last digit can be rounded */
        scale /= 10;
    }
    *out = (uint64_t)v * unit + (part + 5) / 10;
    return true;
}

/* A time in the file's unit, as ns. */
static uint64_t to_ns(const struct text *t, double unit_ns)
{
    uint64_t unit = (uint64_t)unit_ns, ns;
    int64_t v;
    double d;
    if (to_int(t, &v))
        return v <= 0 ? 0 : (uint64_t)v > TIME_MAX / unit ? TIME_MAX : (uint64_t)v * unit;
    if (t->p && fraction_ns(t, unit, &ns))
        return ns;
    if (!t->p || !to_double(t, &d) || !(d > 0))
        return 0;
    return d * unit_ns < (double)TIME_MAX ? (uint64_t)(d * unit_ns + 0.5) : TIME_MAX;
}

/* The unit of a file. Times since 1970 tell it by their size (2014 to 2052); others are microseconds, as everywhere in
 * this format. */
static double unit_of(const struct text *ts)
{
    int64_t whole;
    double d;
    if (to_int(ts, &whole))
        d = (double)whole;
    else if (!to_double(ts, &d))
        return 1000;
    return d > 1e17 ? 1 : d >= 1.4e12 && d < 2.6e12 ? 1e6 : d >= 1.4e9 && d < 2.6e9 ? 1e9 : 1000;
}

static uint64_t hash_value(const struct text *t)
{
    uint64_t v = 0;
    for (size_t i = 0; i < t->n; i++) {
        char ch = t->p[i];
        if (ch < '0' || ch > '9')
            return hash_bytes(t->p, t->n, 7); /* hex spelling: any text will do as a name */
        v = v * 10 + (uint64_t)(ch - '0');
    }
    return v;
}

/* ---- names ---- */

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
static struct text unescape(struct mr_pfw *im, struct text t)
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
    return (struct text){.p = out, .n = (uint32_t)n, .quoted = true};
}

/* A copy that outlives the file's text. */
static struct text copy_text(struct mr_pfw *im, struct text t)
{
    char *copy = mr_arena_alloc(&im->arena, t.n + 1);
    if (copy)
        memcpy(copy, t.p, t.n);
    return (struct text){.p = copy ? copy : "", .n = copy ? t.n : 0, .quoted = true};
}

/* The same, without escapes. */
static struct text own_text(struct mr_pfw *im, struct text t)
{
    struct text plain = unescape(im, t);
    return plain.p == t.p ? copy_text(im, t) : plain;
}

static uint32_t new_string(struct mr_pfw *im, uint8_t kind, struct text t)
{
    if (im->strings == im->string_cap) {
        uint32_t cap = im->string_cap ? im->string_cap * 2 : 1024;
        struct mr_trace_string *bigger = realloc(im->string, cap * sizeof(*bigger));
        if (!bigger)
            return 0;
        im->string = bigger;
        im->string_cap = cap;
        if (!im->strings)
            im->string[im->strings++] = (struct mr_trace_string){.text = ""};
    }
    im->string[im->strings] = (struct mr_trace_string){.text = t.p, .len = (uint32_t)t.n, .kind = kind};
    return im->strings++;
}

/* Id of a text. Told apart by a 64-bit hash of it and its kind. */
static uint32_t text_id(struct mr_pfw *im, uint8_t kind, struct text t)
{
    uint32_t *at = table_at(&im->text_string, hash_bytes(t.p, t.n, kind));
    if (at && !*at)
        *at = new_string(im, kind, own_text(im, t));
    return at ? *at : 0;
}

static uint32_t site_string(struct mr_pfw *im, struct text category, struct text name)
{
    uint32_t *at = table_at(&im->text_string, hash_bytes(name.p, name.n, hash_bytes(category.p, category.n, 99)));
    if (at && !*at) {
        category = unescape(im, category);
        name = unescape(im, name);
        char *s = mr_arena_alloc(&im->arena, category.n + name.n + 2);
        if (!s)
            return 0;
        memcpy(s, category.p, category.n);
        memcpy(s + category.n + 1, name.p, name.n);
        *at = new_string(im, MR_STR_SITE, (struct text){.p = s, .n = category.n + 1 + name.n, .quoted = true});
    }
    return at ? *at : 0;
}

/* Id of the file a hash stands for; its name may come later. */
static uint32_t file_by_hash(struct mr_pfw *im, const struct text *h)
{
    uint32_t *at = table_at(&im->hash_string, hash_value(h));
    if (at && !*at && (*at = new_string(im, MR_STR_PATH, copy_text(im, *h))))
        im->string[*at].unnamed = true;
    return at ? *at : 0;
}

/* ---- events ---- */

/* The arguments of a line, taken apart once. */
#define PAIRS 64
struct facts {
    struct text host, hhash, file, fhash, ret, offset, count, fd;
    struct text key[PAIRS], value[PAIRS]; /* the others, and those above again for regions */
    bool meant[PAIRS];                    /* has a field above */
    unsigned n;
};

/* Arguments that every flavour gives a meaning; the rest becomes arguments of a region. Behind a host's name there is
 * no second one: it is an argument of the program. */
static struct text *known_fact(struct facts *f, const struct text *key, bool has_host)
{
    switch (key->n) {
    case 2: return is(key, "fd") ? &f->fd : NULL;
    case 3: return is(key, "ret") ? &f->ret : NULL;
    case 5:
        switch (key->p[1]) {
        case 'n': return is(key, "fname") ? &f->file : NULL;
        case 'h': return is(key, "fhash") ? &f->fhash : is(key, "hhash") && !has_host ? &f->hhash : NULL;
        case 'o': return is(key, "count") ? &f->count : NULL;
        default: return NULL;
        }
    case 6: return is(key, "offset") ? &f->offset : NULL;
    case 8: return is(key, "hostname") && !has_host ? &f->host : NULL;
    default: return NULL;
    }
}

/* Takes the object at p apart; returns the place after it, NULL if it is broken. */
static const char *read_facts(const char *p, const char *end, struct facts *f)
{
    struct text key, value;
    bool broken = false;
    const char *at = ++p;
    for (; (p = take_pair(p, end, &key, &value, &broken)); at = p) {
        struct text *to = known_fact(f, &key, f->host.p != NULL);
        if (to)
            *to = value;
        if (f->n < PAIRS && to != &f->host && to != &f->hhash) {
            f->key[f->n] = key;
            f->value[f->n] = value;
            f->meant[f->n++] = to != NULL;
        }
    }
    if (broken)
        return NULL;
    at = skip_space(at, end); /* the closing brace */
    return at < end ? at + 1 : NULL;
}

struct line {
    struct text id, name, cat, pid, tid, ts, dur, ph;
    struct facts f;
};

/* Where a member of the line goes; told by length and first letter, then checked. */
static struct text *line_member(struct line *l, const struct text *key)
{
    switch (key->n) {
    case 2: return is(key, "ts") ? &l->ts : is(key, "ph") ? &l->ph : is(key, "id") ? &l->id : NULL;
    case 3:
        switch (key->p[0]) {
        case 'c': return is(key, "cat") ? &l->cat : NULL;
        case 'p': return is(key, "pid") ? &l->pid : NULL;
        case 't': return is(key, "tid") ? &l->tid : NULL;
        case 'd': return is(key, "dur") ? &l->dur : NULL;
        default: return NULL;
        }
    case 4: return is(key, "name") ? &l->name : NULL;
    default: return NULL;
    }
}

static bool parse_line(const char *p, const char *end, struct line *l)
{
    struct text key, value;
    bool broken = false;
    memset(l, 0, offsetof(struct line, f));
    memset(&l->f, 0, offsetof(struct facts, key));
    l->f.n = 0;
    p++;
    while ((p = take_key(p, end, &key, &broken))) {
        struct text *to = line_member(l, &key);
        if (!to && is(&key, "args") && p < end && *p == '{')
            p = read_facts(p, end, &l->f);
        else
            p = take_value(p, end, &value);
        if (!p)
            return false;
        if (to)
            *to = value;
    }
    if (!l->cat.p)
        l->cat = (struct text){.p = "", .quoted = true};
    return !broken && l->name.p;
}

/* ---- shapes ---- */

#define STEPS 40
#define BETWEEN 48
#define NOWHERE UINT16_MAX

/* A value: the bytes before it (from the end of the value before), and where it goes. */
struct step {
    char before[BETWEEN];
    uint8_t len;
    bool quoted, pair; /* pair: it is also one of the arguments kept in order */
    uint16_t to;       /* offset in struct line, or NOWHERE */
    uint16_t pair_at;  /* its place among those */
    const char *last;  /* its text in the line before, of `last_n` bytes */
    uint32_t last_n;
    bool changes; /* often */
};

/* Most values are those of the line before. A shape therefore remembers a line, and which of its values change from
 * line to line: of another line only these are read, and what lies between them is compared with the remembered one. */
struct shape {
    struct step step[STEPS];
    unsigned steps;
    char tail[BETWEEN];
    uint8_t tail_len;
    unsigned changing, alike; /* values that change; lines like the remembered one since it was remembered */
    struct {
        const char *before; /* bytes of the remembered line from the changing value before to this one */
        uint32_t len;
        uint16_t step;
    } change[STEPS + 1]; /* the last one is the rest of the line */
    struct line line;
};

static bool add_step(struct shape *s, const char *from, const struct text *value, const struct line *l,
                     const struct text *to, const char **next)
{
    if (s->steps == STEPS || value->p - from > BETWEEN || (!value->quoted && (*value->p == '{' || *value->p == '[')))
        return false;
    struct step *step = &s->step[s->steps++];
    *step = (struct step){.len = (uint8_t)(value->p - from), .quoted = value->quoted, .to = NOWHERE};
    if (to)
        step->to = (uint16_t)((const char *)to - (const char *)l);
    memcpy(step->before, from, step->len);
    *next = value->p + value->n;
    return true;
}

/* Makes a shape of a line that was parsed; false if it has values that shapes do not have. */
static bool learn(const char *p, const char *stop, struct shape *s)
{
    struct text key, value;
    struct line l;
    const char *from = p;
    bool broken = false, in_args = false, has_host = false;
    unsigned pairs = 0;
    memset(s, 0, sizeof(*s));
    for (p++;;) {
        const char *at = take_key(p, stop, &key, &broken);
        if (broken)
            return false;
        if (!at) { /* a closing brace */
            if (!in_args)
                break;
            in_args = false;
            p = skip_space(p, stop) + 1;
            continue;
        }
        if (!in_args && is(&key, "args") && *at == '{') {
            in_args = true;
            p = at + 1;
            continue;
        }
        struct text *to = in_args ? known_fact(&l.f, &key, has_host) : line_member(&l, &key);
        has_host |= to == &l.f.host;
        p = take_value(at, stop, &value);
        if (!p || !add_step(s, from, &value, &l, to, &from))
            return false;
        if (in_args && to != &l.f.host && to != &l.f.hhash && pairs++ < PAIRS) {
            s->step[s->steps - 1].pair = true;
            s->step[s->steps - 1].pair_at = (uint16_t)(pairs - 1);
            s->line.f.key[pairs - 1] = key;
            s->line.f.meant[pairs - 1] = to != NULL;
            s->line.f.n = pairs;
        }
    }
    if (stop - from > BETWEEN)
        return false;
    s->tail_len = (uint8_t)(stop - from);
    memcpy(s->tail, from, s->tail_len);
    s->line.cat = (struct text){.p = "", .quoted = true}; /* if there is none */
    return s->steps > 0;
}

#if defined(__SSE2__)
#define SLACK 64 /* bytes that may be looked at behind a line */

static inline bool same(const char *a, const char *b, unsigned n)
{
    for (unsigned at = 0; at < n; at += 16) {
        unsigned equal =
            (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(const void *)(a + at)),
                                                       _mm_loadu_si128((const __m128i *)(const void *)(b + at))));
        unsigned wanted = n - at >= 16 ? 0xffff : (1u << (n - at)) - 1;
        if ((equal & wanted) != wanted)
            return false;
    }
    return true;
}

/* The closing quote before `stop`, or NULL. */
static inline const char *quote_end(const char *p, const char *stop)
{
    while (p < stop) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        unsigned hits = (unsigned)_mm_movemask_epi8(
            _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'))));
        if (!hits) {
            p += 16;
            continue;
        }
        p += __builtin_ctz(hits);
        if (p >= stop || *p == '"')
            break;
        p += 2;
    }
    return p < stop ? p : NULL;
}

/* The number that the first n (1 to 8) of eight digits are; what follows them does not matter. */
static inline uint64_t eight_digits(const char *p, unsigned n)
{
    uint64_t v;
    memcpy(&v, p, 8);
    v = (v << (64 - 8 * n)) & 0x0f0f0f0f0f0f0f0full; /* zeros before them instead; then neighbours are joined: to four
                                                        of two digits, two of four, one of eight */
    v = (v * 10 + (v >> 8)) & 0x00ff00ff00ff00ffull;
    v = (v * 100 + (v >> 16)) & 0x0000ffff0000ffffull;
    return (v * 10000 + (v >> 32)) & 0xffffffff;
}

/* How many of the 16 bytes at p are digits, from the first on. */
static inline unsigned digits_at(const char *p)
{
    __m128i v = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(const void *)p), _mm_set1_epi8((char)('0' + 128)));
    unsigned others = (unsigned)_mm_movemask_epi8(_mm_cmpgt_epi8(v, _mm_set1_epi8(9 - 128)));
    return (unsigned)__builtin_ctz(others | 1u << 16);
}

/* The end of a bare word, NULL if it is none; *whole if it is an integer, and its value. No loop for usual numbers: how
 * long they are cannot be foreseen. */
static inline const char *bare_end(const char *p, const char *stop, bool *whole, int64_t *number)
{
    static const uint64_t ten_to[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    const char *start = p;
    bool minus = p < stop && *p == '-';
    p += minus;
    const char *digits = p;
    unsigned n = digits_at(p);
    uint64_t v = n == 0   ? 0
                 : n <= 8 ? eight_digits(p, n)
                          : eight_digits(p, 8) * ten_to[n - 8] + eight_digits(p + 8, n - 8);
    for (p += n; n == 16 && p < stop && *p >= '0' && *p <= '9'; p++)
        v = v * 10 + (uint64_t)(*p - '0');
    *whole = p > digits && p - digits <= 18;
    for (; p < stop && *p != ',' && *p != '}' && *p != ']' && *p != ' '; p++) {
        *whole = false;
        if (*p == '{' || *p == '[' || *p == '"')
            return NULL;
    }
    *number = (int64_t)(minus ? -v : v);
    return p > start && p <= stop ? p : NULL;
}

/* Member by member: copying a struct that was just written in parts would wait for the parts. */
static inline void put_text(struct text *to, const char *p, const char *end, bool quoted, bool whole, int64_t number)
{
    to->p = p;
    to->n = (uint32_t)(end - p);
    to->quoted = quoted;
    to->whole = whole;
    to->number = number;
}

/* Reads the value of a step at p; returns its end, NULL if there is none. */
static inline const char *read_value(const struct step *step, const char *p, const char *stop, struct line *l)
{
    bool whole = false;
    int64_t number = 0;
    const char *q = step->quoted ? quote_end(p, stop) : bare_end(p, stop, &whole, &number);
    if (!q)
        return NULL;
    if (step->to != NOWHERE)
        put_text((struct text *)(void *)((char *)l + step->to), p, q, step->quoted, whole, number);
    if (step->pair)
        put_text(&l->f.value[step->pair_at], p, q, step->quoted, whole, number);
    return q;
}

/* Remembers what is between the values that change. */
static void remember(struct shape *s, const char *p, const char *stop)
{
    s->changing = 0;
    for (unsigned i = 0; i < s->steps; i++) {
        struct step *step = &s->step[i];
        if (!step->changes)
            continue;
        s->change[s->changing].before = p;
        s->change[s->changing].len = (uint32_t)(step->last - p);
        s->change[s->changing++].step = (uint16_t)i;
        p = step->last + step->last_n;
    }
    s->change[s->changing].before = p;
    s->change[s->changing].len = (uint32_t)(stop - p);
    s->alike = 0;
}

#define LASTS 16 /* lines that a remembered one should be good for */

/* Reads a line of this shape; false if it has another one. Up to SLACK bytes behind `stop` are readable. */
static bool by_shape(struct shape *s, const char *line, const char *stop)
{
    const char *p = line, *at[STEPS], *end[STEPS];
    for (unsigned i = 0; i < s->steps; i++) {
        const struct step *step = &s->step[i];
        bool whole;
        int64_t number;
        if (stop - p < step->len || !same(p, step->before, step->len))
            return false;
        at[i] = p += step->len;
        end[i] = p = step->quoted ? quote_end(p, stop) : bare_end(p, stop, &whole, &number);
        if (!p)
            return false;
    }
    if (stop - p != s->tail_len || !same(p, s->tail, s->tail_len))
        return false;
    for (unsigned i = 0; i < s->steps; i++) {
        struct step *step = &s->step[i];
        uint32_t n = (uint32_t)(end[i] - at[i]);
        /* What is other than in the line remembered before changes often, if that one was not good for long. */
        bool other = !step->last || n != step->last_n || memcmp(at[i], step->last, n);
        step->changes |= step->last && other && s->alike < LASTS;
        step->last = at[i];
        step->last_n = n;
        read_value(step, at[i], stop, &s->line);
    }
    remember(s, line, stop);
    return true;
}

/* The same for a line like the remembered one. */
static inline bool like_before(struct shape *s, const char *p, const char *stop)
{
    for (unsigned i = 0;; i++) {
        uint32_t len = s->change[i].len;
        bool rest = i == s->changing;
        if (rest ? stop - p != len : stop - p < len)
            return false;
        if (!same(p, s->change[i].before, len))
            return false;
        if (rest)
            break;
        p += len;
        p = read_value(&s->step[s->change[i].step], p, stop, &s->line);
        if (!p)
            return false;
    }
    s->alike++;
    return true;
}

/* The line as one of the shapes reads it, or NULL. */
static const struct line *by_any_shape(struct mr_pfw *im, const char *p, const char *stop)
{
    for (unsigned i = 0; i < im->shapes; i++)
        if (like_before(im->shape[i], p, stop) || by_shape(im->shape[i], p, stop)) {
            struct shape *s = im->shape[i];
            for (; i; i--)
                im->shape[i] = im->shape[i - 1];
            im->shape[0] = s;
            return &s->line;
        }
    return NULL;
}

/* Remembers the shape of a line, in the place of the one not used for longest. */
static void keep_shape(struct mr_pfw *im, const char *p, const char *stop)
{
    if (im->learned >= LEARN_MAX)
        return;
    im->learned++;
    struct shape *s = im->shapes == SHAPES ? im->shape[SHAPES - 1] : calloc(1, sizeof(*s));
    if (!s)
        return;
    if (im->shapes < SHAPES)
        im->shape[im->shapes++] = s;
    if (!learn(p, stop, s)) {
        im->shapes--;
        free(s);
        return;
    }
    for (unsigned i = im->shapes - 1; i; i--)
        im->shape[i] = im->shape[i - 1];
    im->shape[0] = s;
}
#else
#define SLACK SIZE_MAX
#endif

static struct lane *lane_get(struct mr_pfw *im, uint64_t process_key, uint32_t tid)
{
    struct lane *last = im->lanes ? &im->lane[im->last_lane] : NULL;
    if (last && last->key == process_key && last->tid == tid)
        return last;
    uint32_t *at = table_at(&im->lane_of, process_key ^ mr_mix64(tid));
    if (!at)
        return NULL;
    if (!*at) {
        if (im->lanes == im->lane_cap) {
            size_t cap = im->lane_cap ? im->lane_cap * 2 : 16;
            struct lane *bigger = realloc(im->lane, cap * sizeof(*bigger));
            if (!bigger)
                return NULL;
            im->lane = bigger;
            im->lane_cap = cap;
        }
        memset(&im->lane[im->lanes], 0, sizeof(*im->lane));
        im->lane[im->lanes].key = process_key;
        im->lane[im->lanes].tid = tid;
        im->lane[im->lanes].first = UINT64_MAX;
        *at = (uint32_t)++im->lanes;
    }
    im->last_lane = *at - 1;
    return &im->lane[im->last_lane];
}

static int resize(void *array, size_t each, size_t n)
{
    void **at = array;
    void *bigger = realloc(*at, each * n);
    if (!bigger)
        return -ENOMEM;
    *at = bigger;
    return 0;
}

static int lane_room(struct lane *l)
{
    if (l->n < l->cap)
        return 0;
    uint32_t cap = l->cap ? l->cap * 2 : 256;
    struct mr_columns *c = &l->c;
    if (resize(&c->start_ns, 8, cap) || resize(&c->end_ns, 8, cap) || resize(&c->offset, 8, cap) ||
        resize(&c->result, 8, cap) || resize(&c->file, 4, cap) || resize(&c->call, 2, cap) || resize(&c->fd, 2, cap))
        return -ENOMEM;
    l->cap = cap;
    return 0;
}

static int add_arg(struct lane *l, uint32_t key, uint8_t type, uint64_t value)
{
    struct mr_columns *c = &l->c;
    if (l->args == l->args_cap) {
        uint32_t cap = l->args_cap ? l->args_cap * 2 : 256;
        if (resize(&c->arg_event, 4, cap) || resize(&c->arg_key, 4, cap) || resize(&c->arg_type, 1, cap) ||
            resize(&c->arg_value, 8, cap))
            return -ENOMEM;
        l->args_cap = cap;
    }
    c->arg_event[l->args] = l->n;
    c->arg_key[l->args] = key;
    c->arg_type[l->args] = type;
    c->arg_value[l->args++] = value;
    return 0;
}

static int add_typed(struct mr_pfw *im, struct lane *l, struct text key, struct text value)
{
    int64_t i;
    double d;
    uint64_t large;
    uint32_t k = text_id(im, MR_STR_KEY, key);
    if ((!value.quoted || is_plain_number(&value)) && to_int(&value, &i)) /* DFTracer quotes numbers, too */
        return add_arg(l, k, MR_MORE_INT, (uint64_t)i);
    if (!value.quoted && to_large(&value, &large))
        return add_arg(l, k, MR_MORE_UINT, large);
    if (!value.quoted &&
        (is(&value, "null") ? (d = NAN, true)
                            : to_double(&value, &d))) { /* our export writes null for what is no number */
        uint64_t bits;
        memcpy(&bits, &d, 8);
        return add_arg(l, k, MR_MORE_DOUBLE, bits);
    }
    return add_arg(l, k, MR_MORE_TEXT, text_id(im, MR_STR_TEXT, value));
}

static int keep_args(struct mr_pfw *im, struct lane *l, const struct facts *f, bool is_call)
{
    int rc = 0;
    bool nested = false; /* DFTracer's own: p_idx, and a level with it */
    for (unsigned i = 0; i < f->n && rc == 0; i++) {
        const struct text *key = &f->key[i];
        nested |= is(key, "p_idx");
        if ((f->meant[i] && is_call) || is(key, "p_idx") || (nested && is(key, "level")) ||
            (is_call && is(key, "whence")))
            continue;
        if (is_call && is(key, "fname2"))
            rc = add_arg(l, 0, MR_MORE_FILE2, text_id(im, MR_STR_PATH, f->value[i]));
        else
            rc = add_typed(im, l, *key, f->value[i]);
    }
    return rc;
}

/* True if this is what was asked the last time. */
static inline bool memo_is(const struct memo *m, const struct text *a, const struct text *b)
{
    return m->n == a->n && m->p && (m->p == a->p || !memcmp(m->p, a->p, a->n)) &&
           (!b || (m->m == b->n && (m->q == b->p || !memcmp(m->q, b->p, b->n))));
}

static uint64_t memo_set(struct memo *m, const struct text *a, const struct text *b, uint64_t value)
{
    *m = (struct memo){.p = a->p, .n = a->n, .q = b ? b->p : NULL, .m = b ? b->n : 0, .value = value};
    return value;
}

static uint64_t host_key(struct mr_pfw *im, const struct facts *f)
{
    if (!f->host.p)
        return f->hhash.p ? hash_value(&f->hhash) : 0;
    return memo_is(&im->last_host, &f->host, NULL)
               ? im->last_host.value
               : memo_set(&im->last_host, &f->host, NULL, hash_bytes(f->host.p, f->host.n, 3));
}

static uint32_t file_id(struct mr_pfw *im, const struct facts *f)
{
    if (!f->file.p)
        return f->fhash.p ? file_by_hash(im, &f->fhash) : 0;
    return (uint32_t)(memo_is(&im->last_file, &f->file, NULL)
                          ? im->last_file.value
                          : memo_set(&im->last_file, &f->file, NULL, text_id(im, MR_STR_PATH, f->file)));
}

static uint32_t site_id(struct mr_pfw *im, const struct line *l)
{
    return (uint32_t)(memo_is(&im->last_site, &l->name, &l->cat)
                          ? im->last_site.value
                          : memo_set(&im->last_site, &l->name, &l->cat, site_string(im, l->cat, l->name)));
}

static unsigned call_of(const struct line *l)
{
    if (is(&l->cat, "SYSCALL"))
        return mr_call_find_raw(l->name.p, l->name.n);
    if (!is(&l->cat, "POSIX") && !is(&l->cat, "STDIO") && !is(&l->cat, "URING") && !is(&l->cat, "MPIIO") &&
        !is(&l->cat, "HDF5") && !is(&l->cat, "MMAP"))
        return MR_CALL_none;
    /* Names repeat: remember the last few look-ups by content. */
    static __thread struct {
        char name[24];
        size_t n;
        unsigned call;
    } cache[16];
    size_t slot =
        l->name.n ? ((unsigned char)l->name.p[0] * 7u + (unsigned char)l->name.p[l->name.n - 1] * 3u + l->name.n) & 15
                  : 0;
    if (l->name.n && l->name.n == cache[slot].n && !memcmp(cache[slot].name, l->name.p, l->name.n))
        return cache[slot].call;
    unsigned call = mr_call_find(l->name.p, l->name.n);
    if (l->name.n < sizeof(cache[slot].name)) {
        memcpy(cache[slot].name, l->name.p, l->name.n);
        cache[slot].n = l->name.n;
        cache[slot].call = call;
    }
    return call;
}

static int64_t fact_int(const struct text *t, int64_t otherwise)
{
    int64_t v;
    return t->p && to_int(t, &v) ? v : otherwise;
}

/* What a call returned. A number written without its sign, or as a fraction of none, is still that number; what is none
 * (a pointer) is unknown. */
static int64_t fact_result(const struct text *t)
{
    int64_t v;
    uint64_t large;
    double d;
    if (!t->p)
        return MR_NO_RESULT;
    if (to_int(t, &v))
        return v;
    if (to_large(t, &large))
        return (int64_t)large;
    return to_double(t, &d) && fabs(d) < 0x1p63 && d == floor(d) && !memchr(t->p, 'x', t->n) ? (int64_t)d
                                                                                             : MR_NO_RESULT;
}

static const struct text *fact_named(const struct facts *f, const char *name)
{
    for (unsigned i = 0; i < f->n; i++)
        if (is(&f->key[i], name))
            return &f->value[i];
    return NULL;
}

/* The number of calls that a line stands for, NULL if it does not say. Oldest versions wrote one for every field. */
static const struct text *folded_calls(const struct facts *f)
{
    const struct text *calls = fact_named(f, "dft_cnt");
    return calls ? calls : fact_named(f, "dur_count");
}

/* True for a line that stands for several calls (aggregated mode): they have a phase of their own, before they were
 * counters. */
static bool is_folded(const struct line *l)
{
    char ph = l->ph.n ? l->ph.p[0] : 'X';
    return ph == '3' || ph == 'A' || ((ph == 'C' || ph == '2') && folded_calls(&l->f));
}

/* Gives the event of such a line the sums of bytes and time. A field that was the same in all calls has its value
 * instead of a sum. */
static int unfold(struct mr_pfw *im, const struct line *l, struct lane *lane, uint32_t i)
{
    const struct text *calls = folded_calls(&l->f), *dur = fact_named(&l->f, "dur_sum"),
                      *bytes = fact_named(&l->f, "ret_sum");
    struct mr_columns *c = &lane->c;
    int64_t n = calls ? MR_MAX(fact_int(calls, 1), (int64_t)1) : 1;
    uint64_t ns = dur ? to_ns(dur, im->unit_ns) : 0;
    bytes = bytes ? bytes : fact_named(&l->f, "size_sum");
    if (bytes && c->call[i] != MR_CALL_region)
        c->result[i] = fact_int(bytes, 0);
    else if (c->result[i] != MR_NO_RESULT && __builtin_mul_overflow(c->result[i], n, &c->result[i]))
        c->result[i] = MR_NO_RESULT;
    if (!dur && (dur = fact_named(&l->f, "dur")) && __builtin_mul_overflow(to_ns(dur, im->unit_ns), (uint64_t)n, &ns))
        ns = TIME_MAX;
    if (dur)
        c->end_ns[i] = c->start_ns[i] + MR_MIN(ns, TIME_MAX);
    if (!lane->folded && n > 1 && !(lane->folded = calloc(MR_CALL_COUNT, sizeof(*lane->folded))))
        return -ENOMEM;
    if (n > 1)
        lane->folded[c->call[i]] += (uint64_t)n - 1;
    return 0;
}

static uint64_t process_key(uint64_t host, int64_t pid)
{
    return mr_mix64(host) ^ mr_mix64((uint64_t)pid + 0x51ed);
}

static int add_event(struct mr_pfw *im, const struct line *l, unsigned app_call)
{
    const struct facts *f = &l->f;
    int64_t pid = fact_int(&l->pid, 0), tid = fact_int(&l->tid, pid);
    uint64_t host = host_key(im, f);
    struct lane *lane = lane_get(im, process_key(host, pid), (uint32_t)tid);
    if (!lane || lane_room(lane) < 0)
        return -ENOMEM;
    if (!lane->n) { /* first event of this thread: remember who it is */
        lane->process = (uint32_t)pid;
        uint32_t *at = table_at(&im->host_of, lane->key);
        if (!at)
            return -ENOMEM;
        *at = f->host.p ? text_id(im, MR_STR_TEXT, f->host) : f->hhash.p ? file_by_hash(im, &f->hhash) : im->no_host;
    }
    if (im->unit_ns == 0)
        im->unit_ns = unit_of(&l->ts);
    uint64_t start = to_ns(&l->ts, im->unit_ns), dur = to_ns(&l->dur, im->unit_ns);
    unsigned call = app_call ? app_call : call_of(l);
    struct mr_columns *c = &lane->c;
    uint32_t i = lane->n;
    int64_t fd = fact_int(&f->fd, -1);
    c->start_ns[i] = start;
    c->end_ns[i] = start + dur;
    c->call[i] = (uint16_t)(call ? call : MR_CALL_region);
    c->result[i] = !call || app_call ? 0 : fact_result(&f->ret);
    c->offset[i] = call ? (uint64_t)fact_int(&f->offset, -1) : MR_NO_OFFSET;
    c->fd[i] = call && fd >= 0 && fd < 0xffff ? (uint16_t)(fd + 1) : 0;
    bool is_io = mr_call_get(c->call[i])->layer != MR_LAYER_APP;
    c->file[i] = is_io ? file_id(im, f) : call == MR_CALL_metadata ? 0 : site_id(im, l);
    bool folded = !app_call && is_folded(l);
    int rc = folded ? unfold(im, l, lane, i) : 0;
    if (rc == 0 && is_io && !folded && f->count.p && fact_int(&f->count, -1) != c->result[i])
        rc = add_arg(lane, 0, MR_MORE_COUNT, (uint64_t)fact_int(&f->count, 0));
    if (rc == 0)
        rc = keep_args(im, lane, f, is_io);
    lane->first = MR_MIN(lane->first, start);
    lane->last = MR_MAX(lane->last, c->end_ns[i]);
    lane->n++;
    return rc;
}

/* A fact with a time. Lines of the same id that follow each other are one event: our export writes a line per fact. */
static int add_fact(struct mr_pfw *im, const struct line *l, struct text name, struct text value)
{
    int64_t id = fact_int(&l->id, -1);
    struct lane *lane = im->lanes ? &im->lane[im->last_lane] : NULL;
    if (id >= 0 && id == im->fact_id && lane && lane->n && lane->c.call[lane->n - 1] == MR_CALL_metadata) {
        lane->n--;
        int rc = add_typed(im, lane, name, value);
        lane->n++;
        return rc;
    }
    struct line one = *l;
    one.f.n = 1;
    one.f.key[0] = name;
    one.f.value[0] = value;
    one.f.meant[0] = false;
    im->fact_id = id;
    return add_event(im, &one, MR_CALL_metadata);
}

/* The process of a line. Some versions of DFTracer put a 'q' behind the number in facts that are no strings. */
static int64_t fact_pid(const struct line *l)
{
    struct text pid = l->pid;
    if (pid.n && !pid.quoted && pid.p[pid.n - 1] == 'q')
        pid.n--;
    return fact_int(&pid, 0);
}

/* The rank of a process: of the fact 'rank', or of a name "Rank 3". */
static int add_rank(struct mr_pfw *im, const struct line *l, struct text name, struct text value)
{
    int64_t rank;
    if (is(&l->name, "process_name")) {
        if (name.n < 6 || memcmp(name.p, "Rank ", 5) != 0)
            return 0;
        value = (struct text){.p = name.p + 5, .n = name.n - 5};
    } else if (!is(&name, "rank")) {
        return 0;
    }
    if (!to_int(&value, &rank) || rank < 0 || rank >= INT32_MAX)
        return 0;
    uint32_t *at = table_at(&im->rank_of, process_key(host_key(im, &l->f), fact_pid(l)));
    if (!at)
        return -ENOMEM;
    *at = (uint32_t)rank + 1;
    return 0;
}

/* FH, HH, SH lines name what a hash stands for; PR lines are facts about a process; CM lines are facts about the run,
 * which become events where they have a time. */
static int add_metadata(struct mr_pfw *im, const struct line *l)
{
    struct text name = {0}, hash = {0};
    bool fact = is(&l->name, "CM") && l->ts.p, process = is(&l->name, "PR") || is(&l->name, "process_name");
    if (!fact && !process && !is(&l->name, "FH") && !is(&l->name, "HH") && !is(&l->name, "SH"))
        return 0;
    for (unsigned i = 0; i < l->f.n; i++) {
        if (is(&l->f.key[i], "name"))
            name = l->f.value[i];
        else if (is(&l->f.key[i], "value") || is(&l->f.key[i], "hash"))
            hash = l->f.value[i];
    }
    if (process && name.p)
        return add_rank(im, l, name, hash);
    if (!name.p || !hash.p)
        return 0;
    if (fact)
        return add_fact(im, l, name, hash);
    uint32_t id = file_by_hash(im, &hash);
    if (!id)
        return -ENOMEM;
    name = own_text(im, name);
    im->string[id].text = name.p;
    im->string[id].len = (uint32_t)name.n;
    im->string[id].unnamed = false;
    return 0;
}

static int add_line(struct mr_pfw *im, const struct line *l)
{
    char ph = l->ph.n ? l->ph.p[0] : 'X';
    switch (ph) {
    case 'M':
    case '4': return add_metadata(im, l);
    case 'C':
    case '2': return l->ts.p ? add_event(im, l, is_folded(l) ? 0 : MR_CALL_counter) : 0;
    case 'i':
    case 'I':
    case 'R': return l->ts.p ? add_event(im, l, MR_CALL_instant) : 0;
    case 'X':
    case '1':
    case '3':
    case 'A': return l->ts.p ? add_event(im, l, 0) : 0;
    default: im->skipped_lines++; return 0;
    }
}

/* ---- the whole ---- */

/* True if the line has more than one object, as compact JSON has; braces in strings may say so too. */
static bool has_several(const char *p, const char *stop)
{
    while ((p = memchr(p, '}', (size_t)(stop - p)))) {
        for (p++; p < stop && (*p == ',' || *p == ' '); p++) {
        }
        if (p < stop && *p == '{')
            return true;
    }
    return false;
}

/* Behind the closing brace of the object at p; `stop` if it has none. */
static const char *object_end(const char *p, const char *stop)
{
    unsigned depth = 0;
    for (; p < stop; p++) {
        if (*p == '"') {
            for (p++; p < stop && *p != '"'; p++)
                p += *p == '\\';
        } else if (*p == '{' || *p == '[') {
            depth++;
        } else if ((*p == '}' || *p == ']') && --depth == 0) {
            return p + 1;
        }
    }
    return stop;
}

static const char *skip_between(const char *p, const char *stop)
{
    while (p < stop && (*p == '[' || *p == ']' || *p == ' ' || *p == ',' || *p == '\r'))
        p++;
    return p;
}

/* A line with several objects, one after the other. */
static int add_objects(struct mr_pfw *im, const char *p, const char *stop)
{
    struct line l;
    int rc = 0;
    while ((p = skip_between(p, stop)) < stop && rc == 0) {
        const char *end = *p == '{' ? object_end(p, stop) : stop;
        if (*p == '{' && parse_line(p, end, &l))
            rc = add_line(im, &l);
        else if (!(*p == '}' && skip_between(p + 1, stop) == stop)) /* of {"traceEvents":[ ... ]} */
            im->skipped_lines++;
        p = end;
    }
    return rc;
}

/* Chrome's wrapping of a list of events. */
static const char *skip_wrapping(const char *p, const char *end)
{
    static const char word[] = "\"traceEvents\"";
    const char *q = skip_space(p, end);
    if (q == end || *q != '{')
        return p;
    q = skip_space(q + 1, end);
    if ((size_t)(end - q) < sizeof(word) || memcmp(q, word, sizeof(word) - 1))
        return p;
    q = skip_space(q + sizeof(word) - 1, end);
    return q < end && *q == ':' ? q + 1 : p;
}

/* `salt` is the file's: names are per file, so a process is, too. */
static int lane_to_chunk(struct mr_trace *t, uint64_t salt, struct mr_pfw *im, struct lane *l, struct mr_error *err)
{
    struct mr_trace_chunk *c;
    uint32_t index, node;
    int rc = mr_trace_process_get(t, mr_mix64(l->key ^ salt), &index, err);
    rc = rc ? rc : mr_trace_chunk_add(t, &c, err);
    if (rc < 0)
        return rc;
    uint32_t *host = table_at(&im->host_of, l->key);
    const struct mr_trace_string *h = host && *host ? &im->string[*host] : NULL;
    *c = (struct mr_trace_chunk){.process = index,
                                 .tid = l->tid,
                                 .count = l->n,
                                 .args = l->args,
                                 .first_ns = l->first,
                                 .last_ns = l->last,
                                 .column = l->c,
                                 .imported = true,
                                 .sequence = t->chunks};
    rc = mr_trace_node_get(t, h ? h->text : "unknown", h ? h->len : 7, &node, err);
    if (rc < 0)
        return rc;
    struct mr_trace_process *p = &t->process[index];
    if (!p->known) {
        p->pid = l->process;
        p->node = node;
        p->known = true;
        p->start_ns = l->first;
        uint32_t rank = table_find(&im->rank_of, l->key);
        if (!rank) /* of a line without a host */
            rank = table_find(&im->rank_of, process_key(0, l->process));
        if (rank)
            p->rank = (int32_t)(rank - 1);
    }
    p->string = im->string;
    p->strings = im->strings;
    p->borrowed = true;
    if (l->folded && !p->skipped)
        p->skipped = mr_arena_alloc(&t->arena, MR_CALL_COUNT * sizeof(*p->skipped));
    for (unsigned call = 0; l->folded && p->skipped && call < MR_CALL_COUNT; call++)
        p->skipped[call] += l->folded[call];
    return 0;
}

/* The columns become the trace's, or are freed where there is none, or no room to keep them. */
static int keep_lane(struct mr_trace *t, struct lane *l, struct mr_error *err)
{
    void *all[] = {l->c.start_ns, l->c.end_ns,    l->c.offset,  l->c.result,   l->c.file,     l->c.call,
                   l->c.fd,       l->c.arg_event, l->c.arg_key, l->c.arg_type, l->c.arg_value};
    int rc = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++) {
        int one = t && all[i] ? mr_trace_keep(t, all[i], err) : 0;
        if (one < 0 || !t)
            free(all[i]);
        rc = one < 0 ? one : rc;
    }
    return rc;
}

/* ---- names in other files ---- */

/* The hashes of one file. A process that was forked knows which names its parent has written, and does not write them
 * again. */
struct mr_pfw_names {
    struct mr_pfw_names *next;
    struct table id; /* by hash; its arrays belong to the trace */
    struct mr_trace_string *string;
    uint32_t strings;
};

/* Hands the hashes over to the trace, which may need them for other files. */
static int keep_names(struct mr_trace *t, struct mr_pfw *im, struct mr_error *err)
{
    struct mr_pfw_names *n = im->hash_string.used ? mr_arena_alloc(&t->arena, sizeof(*n)) : NULL;
    if (!n)
        return im->hash_string.used ? mr_error_set(err, -ENOMEM, "cannot keep the names") : 0;
    void **const all[] = {(void **)&im->hash_string.key, (void **)&im->hash_string.value};
    const struct table kept = im->hash_string;
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++) {
        int rc = mr_trace_keep(t, *all[i], err);
        if (rc < 0)
            return rc;
        *all[i] = NULL;
    }
    *n = (struct mr_pfw_names){.next = t->pfw_names, .id = kept, .string = im->string, .strings = im->strings};
    t->pfw_names = n;
    return 0;
}

/* What a hash stands for in any file; *hint is the one asked first, and then the one that knew it. */
static const struct mr_trace_string *name_of(const struct mr_trace *t, struct text hash,
                                             const struct mr_pfw_names **hint)
{
    uint64_t key = hash_value(&hash);
    for (const struct mr_pfw_names *n = *hint ? *hint : t->pfw_names, *first = n; n;) {
        uint32_t id = table_find(&n->id, key);
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

/* A machine under its hash becomes the one of that name. */
static void resolve_node(struct mr_trace *t, uint32_t node, const struct mr_pfw_names **hint)
{
    struct mr_trace_node *n = &t->node[node];
    const struct mr_trace_string *name = name_of(t, (struct text){.p = n->name, .n = (uint32_t)strlen(n->name)}, hint);
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
                s->unnamed ? name_of(t, (struct text){.p = s->text, .n = s->len}, &hint) : NULL;
            if (name) {
                s->text = name->text;
                s->len = name->len;
            }
        }
}

/* Behind the mark that some editors put before UTF-8. */
static const char *skip_mark(const char *p, const char *end)
{
    return end - p >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? p + 3 : p;
}

bool mr_pfw_is(const char *data, size_t len)
{
    const char *p = skip_mark(data, data + len);
    len -= (size_t)(p - data);
    data = p;
    for (size_t i = 0; i < MR_MIN(len, (size_t)4096); i++)
        if (data[i] != ' ' && data[i] != '\t' && data[i] != '\n' && data[i] != '\r')
            return data[i] == '[' || data[i] == '{';
    return false;
}

#define INDENTED_MAX 65536u
#define INDENTED_TRIES 64 /* that fail: then the file has lone braces for another reason */

/* An object over several lines, as tools that indent JSON write it (jq): its brace is alone in its line. Returns what
 * is behind it, NULL if it is none. */
static const char *read_indented(struct mr_pfw *im, const char *p, const char *stop, const char *end, struct line *l)
{
    if (*p != '{' || skip_space(p + 1, stop) != stop)
        return NULL;
    const char *close = object_end(p, p + MR_MIN((size_t)(end - p), (size_t)INDENTED_MAX));
    size_t n = (size_t)(close - p);
    char *copy = close > stop && close[-1] == '}' ? mr_arena_alloc(&im->arena, n) : NULL;
    for (size_t i = 0; copy && i < n; i++)
        copy[i] = p[i] == '\n' || p[i] == '\r' ? ' ' : p[i];
    return copy && parse_line(copy, copy + n, l) ? close : NULL;
}

static int parse_text(struct mr_pfw *im, const char *data, size_t len)
{
    struct line l;
    unsigned tries = INDENTED_TRIES;
    int rc = 0;
    for (const char *end = data + len, *p = skip_wrapping(skip_mark(data, end), end); p < end && rc == 0;) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        const char *stop = eol ? eol : end;
        p = skip_between(skip_space(p, stop), stop);
        if (p < stop) {
            bool room = (size_t)(end - stop) >= SLACK; /* to look a little behind the line */
            const struct line *known = room ? by_any_shape(im, p, stop) : NULL;
            if (known) {
                rc = add_line(im, known);
            } else if (has_several(p, stop)) {
                rc = add_objects(im, p, stop);
            } else if (*p == '{' && parse_line(p, stop, &l)) {
                rc = add_line(im, &l);
                if (room)
                    keep_shape(im, p, stop);
            } else {
                const char *behind = tries ? read_indented(im, p, stop, end, &l) : NULL;
                if (behind)
                    rc = add_line(im, &l);
                im->skipped_lines += !behind;
                tries -= !behind && tries;
                stop = behind ? behind : stop;
            }
        }
        p = stop + 1;
    }
    return rc;
}

/* What only reading needs: it points into the text. */
static void text_done(struct mr_pfw *im)
{
    for (unsigned i = 0; i < im->shapes; i++)
        free(im->shape[i]);
    im->shapes = 0;
    im->last_host = im->last_file = im->last_site = (struct memo){0};
    table_done(&im->lane_of);
    table_done(&im->text_string);
}

void mr_pfw_free(struct mr_pfw *im)
{
    if (!im)
        return;
    text_done(im);
    table_done(&im->hash_string);
    table_done(&im->host_of);
    table_done(&im->rank_of);
    for (size_t i = 0; i < im->lanes; i++) {
        free(im->lane[i].folded);
        keep_lane(NULL, &im->lane[i], NULL);
    }
    free(im->lane);
    free(im->string);
    mr_arena_done(&im->arena);
    free(im);
}

int mr_pfw_parse(const char *data, size_t len, const char *name, struct mr_pfw **out, struct mr_error *err)
{
    struct mr_pfw *im = calloc(1, sizeof(*im));
    int rc = -ENOMEM;
    if (im) {
        im->fact_id = -1;
        im->no_host = new_string(im, MR_STR_TEXT, (struct text){.p = "unknown", .n = 7, .quoted = true});
        rc = parse_text(im, data, len);
        text_done(im);
    }
    if (rc < 0) {
        mr_pfw_free(im);
        return mr_error_set(err, rc, "cannot import '%s'", name);
    }
    *out = im;
    return 0;
}

int mr_pfw_join(struct mr_trace *t, struct mr_pfw *im, struct mr_error *err)
{
    const uint64_t salt = mr_mix64(t->processes + 1);
    int rc = 0;
    t->skipped_lines += im->skipped_lines;
    for (size_t i = 0; i < im->lanes; i++) {
        struct lane *l = &im->lane[i];
        int kept = keep_lane(t, l, err);
        rc = rc ? rc : kept;
        if (rc == 0)
            rc = lane_to_chunk(t, salt, im, l, err);
        l->c = (struct mr_columns){0};
    }
    int kept = im->string ? mr_trace_keep(t, im->string, err) : 0;
    if (kept == 0) {
        kept = keep_names(t, im, err);
        im->string = NULL; /* the trace's */
    }
    mr_arena_join(&t->arena, &im->arena);
    mr_pfw_free(im);
    return rc ? rc : kept;
}

int mr_pfw_import(struct mr_trace *t, const char *data, size_t len, const char *name, struct mr_error *err)
{
    struct mr_pfw *im;
    int rc = mr_pfw_parse(data, len, name, &im, err);
    return rc ? rc : mr_pfw_join(t, im, err);
}
