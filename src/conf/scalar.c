/* Numbers as people write them: 1_000, 1e6, 256KiB, 100MB, 1.3s, 200ms. Integers are parsed exactly in 64 bits; only
 * texts with a point or an exponent go through double. Hexadecimal, inf and nan, which strtod would take, are refused.
 */
#include "conf/option.h"

#include "base/common.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SCALAR_MAX 64

struct scalar {
    bool negative, integral; /* integral: digits only, value in `digits` */
    uint64_t digits;
    bool too_large;
    double real; /* magnitude */
    char unit[8];
};

/* Copies the numeric part without its underscores; an underscore must stand between two digits. */
static int copy_number(const char **text, char out[SCALAR_MAX], bool *integral)
{
    const char *s = *text;
    size_t n = 0;
    *integral = true;
    for (; *s; s++) {
        if (*s == '_') {
            if (n == 0 || !isdigit((unsigned char)s[-1]) || !isdigit((unsigned char)s[1]))
                return -EINVAL;
            continue;
        }
        bool exponent =
            (*s == 'e' || *s == 'E') && n &&
            (isdigit((unsigned char)s[1]) || ((s[1] == '-' || s[1] == '+') && isdigit((unsigned char)s[2])));
        if (!isdigit((unsigned char)*s) && *s != '.' && !exponent)
            break;
        if (n + 3 >= SCALAR_MAX)
            return -EINVAL;
        out[n++] = *s;
        if (!isdigit((unsigned char)*s))
            *integral = false;
        if (exponent && (s[1] == '-' || s[1] == '+'))
            out[n++] = *++s;
    }
    out[n] = '\0';
    *text = s;
    return n ? 0 : -EINVAL;
}

static int split(const char *text, struct scalar *out)
{
    char number[SCALAR_MAX];
    *out = (struct scalar){0};
    while (isspace((unsigned char)*text))
        text++;
    if (*text == '-' || *text == '+')
        out->negative = *text++ == '-';
    int rc = copy_number(&text, number, &out->integral);
    if (rc)
        return rc;
    char *end = NULL;
    out->real = strtod(number, &end);
    if (*end)
        return -EINVAL;
    if (out->integral) {
        errno = 0;
        out->digits = strtoull(number, NULL, 10);
        out->too_large = errno == ERANGE;
    }
    while (*text == ' ')
        text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    if (n >= sizeof out->unit)
        return -EINVAL;
    memcpy(out->unit, text, n);
    return isfinite(out->real) ? 0 : -ERANGE;
}

/* value * factor as an exact or rounded unsigned integer. */
static int scale_u64(const struct scalar *s, uint64_t factor, bool allow_fraction, uint64_t *out)
{
    if (s->too_large)
        return -ERANGE;
    if (s->negative && s->real != 0)
        return -ERANGE;
    if (s->integral)
        return __builtin_mul_overflow(s->digits, factor, out) ? -ERANGE : 0;
    double v = s->real * (double)factor;
    if (!(v < 18446744073709551616.0))
        return -ERANGE;
    double r = nearbyint(v);
    if (!allow_fraction && r != v)
        return -EINVAL;
    if (r >= 18446744073709551616.0)
        return -ERANGE;
    *out = (uint64_t)r;
    return 0;
}

struct unit {
    const char *name;
    uint64_t factor;
};

static int find_unit(const struct unit *units, size_t n, const char *name, uint64_t *factor)
{
    for (size_t i = 0; i < n; i++)
        if (!strcasecmp(units[i].name, name)) {
            *factor = units[i].factor;
            return 0;
        }
    return -EINVAL;
}

int mr_parse_bytes(const char *text, uint64_t *out)
{
    static const struct unit units[] = {
        {"", 1},
        {"B", 1},
        {"KiB", MR_KIB},
        {"MiB", MR_MIB},
        {"GiB", MR_GIB},
        {"TiB", 1ull << 40},
        {"PiB", 1ull << 50},
        {"K", MR_KIB},
        {"M", MR_MIB},
        {"G", MR_GIB},
        {"T", 1ull << 40},
        {"KB", 1000},
        {"MB", 1000000},
        {"GB", 1000000000},
        {"TB", 1000000000000ull},
        {"PB", 1000000000000000ull},
    };
    struct scalar s;
    uint64_t factor = 0, v = 0;
    int rc = split(text, &s);
    if (!rc)
        rc = find_unit(units, MR_ARRAY_LEN(units), s.unit, &factor);
    if (!rc)
        rc = scale_u64(&s, factor, factor > 1, &v);
    if (!rc)
        *out = v;
    return rc;
}

int mr_parse_duration_ns(const char *text, uint64_t *out)
{
    static const struct unit units[] = {
        {"", MR_NS_PER_S},          {"s", MR_NS_PER_S},      {"sec", MR_NS_PER_S},
        {"ms", MR_NS_PER_MS},       {"us", MR_NS_PER_US},    {"ns", 1},
        {"min", 60 * MR_NS_PER_S},  {"m", 60 * MR_NS_PER_S}, {"h", 3600 * MR_NS_PER_S},
        {"d", 86400 * MR_NS_PER_S},
    };
    struct scalar s;
    uint64_t factor = 0, v = 0;
    int rc = split(text, &s);
    if (!rc)
        rc = find_unit(units, MR_ARRAY_LEN(units), s.unit, &factor);
    if (!rc)
        rc = scale_u64(&s, factor, true, &v);
    if (!rc)
        *out = v;
    return rc;
}

int mr_parse_double(const char *text, double *out)
{
    struct scalar s;
    int rc = split(text, &s);
    if (!rc && s.unit[0] == '%' && !s.unit[1])
        s.real /= 100;
    else if (!rc && s.unit[0])
        rc = -EINVAL;
    if (!rc)
        *out = s.negative ? -s.real : s.real;
    return rc;
}

int mr_parse_int(const char *text, int64_t *out)
{
    struct scalar s;
    uint64_t magnitude = 0;
    int rc = split(text, &s);
    if (rc)
        return rc;
    if (s.unit[0])
        return -EINVAL;
    bool negative = s.negative;
    s.negative = false;
    rc = scale_u64(&s, 1, false, &magnitude);
    if (rc)
        return rc;
    if (magnitude > (uint64_t)INT64_MAX + negative)
        return -ERANGE;
    *out = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return 0;
}
