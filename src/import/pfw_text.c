/* Values in the text of a .pfw: JSON, as much of it as a line needs, numbers and times. See pfw_internal.h. */
#include "import/pfw_internal.h"

#include <stdlib.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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
const char *mr_pfw_take_value(const char *p, const char *end, struct pfw_text *out)
{
    p = mr_pfw_skip_space(p, end);
    if (p == end)
        return NULL;
    if (*p == '"') {
        const char *q = string_end(p + 1, end);
        if (!q)
            return NULL;
        *out = (struct pfw_text){.p = p + 1, .n = (uint32_t)(q - p - 1), .quoted = true};
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
                *out = (struct pfw_text){.p = start, .n = (uint32_t)(p + 1 - start)};
                return p + 1;
            }
        }
        return NULL;
    }
    while (p < end && *p != ',' && *p != '}' && *p != ']' && *p != ' ')
        p++;
    *out = (struct pfw_text){.p = start, .n = (uint32_t)(p - start)};
    return p > start ? p : NULL;
}

/* Next "key": of an object; returns the place of its value, NULL at the end, *bad set if it is broken. */
const char *mr_pfw_take_key(const char *p, const char *end, struct pfw_text *key, bool *bad)
{
    p = mr_pfw_skip_space(p, end);
    if (p < end && *p == '}')
        return NULL;
    *bad = true;
    if (p >= end || *p != '"')
        return NULL;
    const char *q = string_end(p + 1, end);
    if (!q)
        return NULL;
    *key = (struct pfw_text){.p = p + 1, .n = (uint32_t)(q - p - 1), .quoted = true};
    p = mr_pfw_skip_space(q + 1, end);
    if (p >= end || *p != ':')
        return NULL;
    *bad = false;
    return mr_pfw_skip_space(p + 1, end);
}

/* Next "key": value of an object; NULL at its end, *bad set if it is broken. */
const char *mr_pfw_take_pair(const char *p, const char *end, struct pfw_text *key, struct pfw_text *value, bool *bad)
{
    p = mr_pfw_take_key(p, end, key, bad);
    if (!p)
        return NULL;
    p = mr_pfw_take_value(p, end, value);
    *bad = !p;
    return p;
}
bool mr_pfw_parse_int(const struct pfw_text *t, int64_t *out)
{
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

/* Too large for int64_t, but not for 64 bits. */
bool mr_pfw_large(const struct pfw_text *t, uint64_t *out)
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
bool mr_pfw_is_plain_number(const struct pfw_text *t)
{
    uint32_t minus = t->n && t->p[0] == '-';
    return t->n > minus && (t->p[minus] != '0' || t->n == 1);
}

bool mr_pfw_double(const struct pfw_text *t, double *out)
{
    char buf[64], *end;
    if (!t->n || t->n >= sizeof(buf))
        return false;
    memcpy(buf, t->p, t->n);
    buf[t->n] = 0;
    *out = strtod(buf, &end);
    return *end == 0 && end != buf;
}

/* A decimal fraction times `unit`, exactly: a double has no room for the nanoseconds of an epoch. False if it is
 * written otherwise. */
static bool fraction_ns(const struct pfw_text *t, uint64_t unit, uint64_t *out)
{
    const char *point = memchr(t->p, '.', t->n), *end = t->p + t->n;
    struct pfw_text whole = {.p = t->p, .n = point ? (uint32_t)(point - t->p) : 0};
    int64_t v;
    if (!point || !mr_pfw_int(&whole, &v) || v < 0 || *whole.p == '-' || (uint64_t)v > PFW_TIME_MAX / unit)
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
uint64_t mr_pfw_ns(const struct pfw_text *t, double unit_ns)
{
    uint64_t unit = (uint64_t)unit_ns, ns;
    int64_t v;
    double d;
    if (mr_pfw_int(t, &v))
        return v <= 0 ? 0 : (uint64_t)v > PFW_TIME_MAX / unit ? PFW_TIME_MAX : (uint64_t)v * unit;
    if (t->p && fraction_ns(t, unit, &ns))
        return ns;
    if (!t->p || !mr_pfw_double(t, &d) || !(d > 0))
        return 0;
    return d * unit_ns < (double)PFW_TIME_MAX ? (uint64_t)(d * unit_ns + 0.5) : PFW_TIME_MAX;
}

/* The unit of a file. Times since 1970 reveal it by their magnitude (2014 to 2052); others are microseconds, the
 * default of this format. */
double mr_pfw_unit_of(const struct pfw_text *ts)
{
    int64_t whole;
    double d;
    if (mr_pfw_int(ts, &whole))
        d = (double)whole;
    else if (!mr_pfw_double(ts, &d))
        return 1000;
    return d > 1e17 ? 1 : d >= 1.4e12 && d < 2.6e12 ? 1e6 : d >= 1.4e9 && d < 2.6e9 ? 1e9 : 1000;
}

uint64_t mr_pfw_hash_value(const struct pfw_text *t)
{
    uint64_t v = 0;
    for (size_t i = 0; i < t->n; i++) {
        char ch = t->p[i];
        if (ch < '0' || ch > '9')
            return mr_hash_bytes(t->p, t->n, 7); /* hex: any text will do as a key */
        v = v * 10 + (uint64_t)(ch - '0');
    }
    return v;
}
