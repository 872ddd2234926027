/* See text_values.h.
 *
 * Parsing decimal to binary: with p = 10^e correct to 64 bits and m exact, m * p in 64-bit-mantissa arithmetic is off
 * by less than 2^-62 of its value. When the values a little below and a little above it round to the same double (or
 * float), that is the correctly rounded result; in the rare other case strtod decides. */
#include "format/text_values.h"
#include "base/content.h"

#include <ctype.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define POWER_MAX 330
#define EXPONENT_STOP 1000000 /* counting on would only overflow */
#define NUMBER_TEXT_MAX 40u   /* longest printed number and its separator */
#define TOKEN_MAX 1100u       /* longest number that is handed to strtod */

static locale_t c_locale;
static long double power[2 * POWER_MAX + 1];
static bool power_exact_enough;
static char byte_text[256][4];
static uint8_t byte_text_len[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

#ifdef __SIZEOF_FLOAT128__
typedef __float128 wide;
#define WIDE_IS_WIDE 1
#else
typedef long double wide;
#define WIDE_IS_WIDE (LDBL_MANT_DIG > 100)
#endif

static void prepare(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    wide p = 1;
    for (int k = 0; k <= POWER_MAX; k++, p *= 10) {
        power[POWER_MAX + k] = (long double)p;
        power[POWER_MAX - k] = (long double)(1 / p);
    }
    power_exact_enough = WIDE_IS_WIDE && LDBL_MANT_DIG >= 64;
    for (unsigned v = 0; v < 256; v++) {
        char text[8];
        byte_text_len[v] = (uint8_t)snprintf(text, sizeof text, "%u", v);
        memcpy(byte_text[v], text, 4);
    }
}

/* ---- lexing ---- */

static size_t match_word(const char *p, const char *end, const char *word, bool any_case)
{
    size_t n = strlen(word);
    if ((size_t)(end - p) < n)
        return 0;
    return (any_case ? strncasecmp(p, word, n) : memcmp(p, word, n)) == 0 ? n : 0;
}

static size_t lex_special(const char *p, const char *end, bool loose, struct mr_number *out)
{
    size_t n = match_word(p, end, loose ? "nan" : "NaN", loose);
    if (n) {
        out->nan = true;
    } else {
        n = match_word(p, end, loose ? "infinity" : "Infinity", loose);
        if (!n && loose)
            n = match_word(p, end, "inf", true);
    }
    out->special = n > 0;
    return n;
}

static bool is_digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

/* Digits go into the mantissa while they fit; later ones only scale (whole part) or vanish (fraction). */
static const char *lex_digits(const char *p, const char *end, bool fraction, struct mr_number *out)
{
    for (; is_digit(p, end); p++) {
        if (out->mantissa < UINT64_MAX / 10 - 1) {
            out->mantissa = out->mantissa * 10 + (uint64_t)(*p - '0');
            out->exponent -= fraction && out->exponent > -EXPONENT_STOP;
        } else {
            out->inexact |= *p != '0';
            out->exponent += !fraction && out->exponent < EXPONENT_STOP;
        }
    }
    return p;
}

/* After the mantissa: e, an optional sign, digits. Returns NULL when malformed, p when there is no exponent. */
static const char *lex_exponent(const char *p, const char *end, struct mr_number *out)
{
    if (p == end || (*p != 'e' && *p != 'E'))
        return p;
    p++;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (!is_digit(p, end))
        return NULL;
    int e = 0;
    for (; is_digit(p, end); p++)
        if (e < 100000)
            e = e * 10 + (*p - '0');
    out->exponent += negative ? -e : e;
    out->integer = false;
    return p;
}

size_t mr_number_lex(const char *start, const char *end, bool loose, struct mr_number *out)
{
    const char *p = start;
    *out = (struct mr_number){.text = start, .integer = true};
    if (p < end && (*p == '-' || (loose && *p == '+')))
        out->negative = *p++ == '-';
    if (!is_digit(p, end) && !(loose && p + 1 < end && *p == '.' && is_digit(p + 1, end))) {
        size_t n = lex_special(p, end, loose, out);
        if (!n)
            return 0;
        out->integer = false;
        return out->len = (size_t)(p - start) + n;
    }
    if (!loose && *p == '0' && is_digit(p + 1, end))
        return 0;
    p = lex_digits(p, end, false, out);
    if (p < end && *p == '.') {
        if (!loose && !is_digit(p + 1, end))
            return 0;
        p = lex_digits(p + 1, end, true, out);
        out->integer = false;
    }
    p = lex_exponent(p, end, out);
    if (!p)
        return 0;
    return out->len = (size_t)(p - start);
}

bool mr_number_to_int64(const struct mr_number *n, int64_t *out)
{
    if (!n->integer || n->exponent)
        return false;
    if (n->negative) {
        if (n->mantissa > (uint64_t)INT64_MAX + 1)
            return false;
        *out = (int64_t)(0 - n->mantissa);
        return true;
    }
    if (n->mantissa > INT64_MAX)
        return false;
    *out = (int64_t)n->mantissa;
    return true;
}

/* Digits of more than 19 places may still be a uint64; the lexer leaves at most one digit out. */
static bool to_uint64(const struct mr_number *n, uint64_t *out)
{
    if (!n->integer || (n->negative && n->mantissa))
        return false;
    uint64_t v = 0;
    for (size_t i = 0; i < n->len; i++) {
        if (n->text[i] < '0' || n->text[i] > '9')
            continue; /* the sign */
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, n->text[i] - '0', &v))
            return false;
    }
    *out = v;
    return true;
}

/* ---- text to floating point ---- */

static bool slow_double(const struct mr_number *n, bool as_float, double *out)
{
    char copy[TOKEN_MAX + 1];
    if (n->len > TOKEN_MAX)
        return false;
    memcpy(copy, n->text, n->len);
    copy[n->len] = 0;
    *out = as_float ? (double)strtof_l(copy, NULL, c_locale) : strtod_l(copy, NULL, c_locale);
    return true;
}

static bool to_floating(const struct mr_number *n, bool as_float, double *out)
{
    pthread_once(&once, prepare);
    if (n->special) {
        double v = n->nan ? (double)NAN : (double)INFINITY;
        *out = n->negative ? -v : v;
        return true;
    }
    if (!n->mantissa && !n->inexact) {
        *out = n->negative ? -0.0 : 0.0;
        return true;
    }
    if (n->inexact || !power_exact_enough || n->exponent > POWER_MAX || n->exponent < -POWER_MAX)
        return slow_double(n, as_float, out);
    long double r = (long double)n->mantissa * power[POWER_MAX + n->exponent];
    long double low = r * (1.0L - 0x1p-61L), high = r * (1.0L + 0x1p-61L);
    double a = as_float ? (double)(float)low : (double)low, b = as_float ? (double)(float)high : (double)high;
    if (a != b)
        return slow_double(n, as_float, out);
    *out = n->negative ? -a : a;
    return true;
}

/* Round to nearest even; the double has more bits than either, and a decimal with few digits lies far from ties. */
static uint16_t double_to_half(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    v = fabs(v);
    if (isnan(v))
        return sign | 0x7e00;
    if (v >= 65520.0)
        return sign | 0x7c00;
    if (v < 0x1p-14)
        return sign | (uint16_t)nearbyint(v * 0x1p24);
    int e;
    double m = frexp(v, &e);                         /* [0.5, 1) */
    unsigned mant = (unsigned)nearbyint(m * 2048.0); /* 1024 .. 2048 */
    return sign | (uint16_t)((unsigned)(e + 13) * 1024u + mant);
}

static double half_to_double(uint16_t h)
{
    unsigned e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (m ? (double)NAN : (double)INFINITY) : e ? ldexp(1024 + m, (int)e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

static uint16_t float_to_bfloat(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if (isnan(f))
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* ---- the sink ---- */

enum mr_dtype mr_text_component(enum mr_dtype t, unsigned *count)
{
    *count = t == MR_C64 || t == MR_C128 ? 2 : 1;
    return t == MR_C64 ? MR_F32 : t == MR_C128 ? MR_F64 : t;
}

void mr_text_sink_init(struct mr_text_sink *s, enum mr_dtype dtype, void *dst, size_t cap_bytes)
{
    unsigned count;
    *s = (struct mr_text_sink){.component = mr_text_component(dtype, &count), .dst = dst, .cap_bytes = cap_bytes};
    s->component_bytes = mr_dtype_bytes(s->component);
}

static bool integer_bytes(enum mr_dtype t, const struct mr_number *n, uint8_t out[8])
{
    static const struct {
        int64_t min, max;
    } range[] = {
        [MR_U8] = {0, UINT8_MAX},          [MR_I8] = {INT8_MIN, INT8_MAX},
        [MR_U16] = {0, UINT16_MAX},        [MR_I16] = {INT16_MIN, INT16_MAX},
        [MR_U32] = {0, UINT32_MAX},        [MR_I32] = {INT32_MIN, INT32_MAX},
        [MR_I64] = {INT64_MIN, INT64_MAX}, [MR_BOOL] = {0, 1},
    };
    int64_t v;
    uint64_t u;
    if (t == MR_U64) {
        if (!to_uint64(n, &u))
            return false;
        mr_store_le64(out, u);
        return true;
    }
    if (!mr_number_to_int64(n, &v) || v < range[t].min || v > range[t].max)
        return false;
    mr_store_le64(out, (uint64_t)v);
    return true;
}

static bool number_bytes(enum mr_dtype t, const struct mr_number *n, uint8_t out[8])
{
    double v;
    float f;
    switch (t) {
    case MR_F64:
        if (!to_floating(n, false, &v))
            return false;
        memcpy(out, &v, 8);
        return true;
    case MR_F32:
    case MR_BF16:
        if (!to_floating(n, true, &v))
            return false;
        f = (float)v;
        if (t == MR_F32)
            memcpy(out, &f, 4);
        else
            mr_store_le16(out, float_to_bfloat(f));
        return true;
    case MR_F16:
        if (!to_floating(n, false, &v))
            return false;
        mr_store_le16(out, double_to_half(v));
        return true;
    default: return integer_bytes(t, n, out);
    }
}

bool mr_text_sink_add(struct mr_text_sink *s, const struct mr_number *n)
{
    uint8_t value[8];
    if (!number_bytes(s->component, n, value))
        return false;
    if (s->bytes <= s->cap_bytes && s->cap_bytes - s->bytes >= s->component_bytes)
        memcpy(s->dst + s->bytes, value, s->component_bytes);
    s->bytes += s->component_bytes;
    return true;
}

/* ---- runs of bytes ---- */

#define RUN_BLOCK 64u /* characters looked at together: one bit each */

struct run_masks {
    uint64_t separators, digits, zeros;
};

#ifdef __SSE2__
static inline struct run_masks look(const char *p, char separator)
{
    const __m128i sep = _mm_set1_epi8(separator), zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9);
    struct run_masks m = {0};
    for (unsigned i = 0; i < 4; i++) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)), d = _mm_sub_epi8(v, zero);
        m.separators |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, sep)) << 16 * i;
        m.digits |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(d, nine), d)) << 16 * i;
        m.zeros |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, zero)) << 16 * i;
    }
    return m;
}
#else
static inline struct run_masks look(const char *p, char separator)
{
    struct run_masks m = {0};
    for (unsigned i = 0; i < RUN_BLOCK; i++) {
        m.separators |= (uint64_t)(p[i] == separator) << i;
        m.digits |= (uint64_t)((unsigned)(p[i] - '0') < 10) << i;
        m.zeros |= (uint64_t)(p[i] == '0') << i;
    }
    return m;
}
#endif

/* True when the characters up to the last separator are numbers of one to three digits, none with a leading zero. */
static inline bool run_is_plain(const struct run_masks *m)
{
    uint64_t upto = ~UINT64_C(0) >> __builtin_clzll(m->separators);
    uint64_t d = m->digits & upto, starts = (m->separators << 1 | 1) & upto;
    return (d | m->separators) == upto && !(starts & m->separators) && !(d & d >> 1 & d >> 2 & d >> 3) &&
           !(m->zeros & starts & d >> 1);
}

size_t mr_text_run_u8(const char *p, const char *end, char separator, uint8_t *dst, size_t room, const char **rest)
{
    uint8_t *to = dst;
    /* The last number of a block is loaded as four characters, up to three of them behind the block. A block has at
     * most half as many numbers as characters. */
    while ((size_t)(end - p) >= RUN_BLOCK + 4 && room - (size_t)(to - dst) >= RUN_BLOCK / 2) {
        struct run_masks m = look(p, separator);
        if (!m.separators || !run_is_plain(&m))
            break;
        uint8_t *first = to;
        unsigned start = 0;
        uint32_t over = 0;
        do {
            unsigned at = (unsigned)__builtin_ctzll(m.separators);
            /* The digits move to the top bytes, ones uppermost; the product has 100 a + 10 b + c there, modulo 256. */
            uint32_t digits = mr_load_le32(p + start) << (32 - 8 * (at - start)) & 0x0f0f0f00;
            *to++ = (uint8_t)(digits * (100u << 16 | 10u << 8 | 1u) >> 24);
            over |= 0x020505u - __builtin_bswap32(digits); /* borrows when the number is above 255 */
            start = at + 1;
            m.separators &= m.separators - 1;
        } while (m.separators);
        if (over >> 31) {
            to = first;
            break;
        }
        p += start;
    }
    *rest = p;
    return (size_t)(to - dst);
}

/* ---- printing ---- */

static char *print_u64(char *p, uint64_t v)
{
    char digits[20];
    unsigned n = 0;
    do {
        digits[n++] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    while (n)
        *p++ = digits[--n];
    return p;
}

static char *print_i64(char *p, int64_t v)
{
    if (v < 0)
        *p++ = '-';
    return print_u64(p, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

static char *print_floating(char *p, double v, int digits, bool json)
{
    if (isnan(v) || isinf(v)) {
        const char *word = isnan(v) ? (json ? "NaN" : "nan")
                           : v < 0  ? (json ? "-Infinity" : "-inf")
                                    : (json ? "Infinity" : "inf");
        size_t n = strlen(word);
        memcpy(p, word, n);
        return p + n;
    }
    int n = snprintf(p, NUMBER_TEXT_MAX, "%.*g", digits, v);
    return p + n;
}

static char *print_one(char *p, enum mr_dtype t, const uint8_t *e, bool json)
{
    float f;
    double d;
    switch (t) {
    case MR_U8:
    case MR_BOOL: return print_u64(p, e[0]);
    case MR_I8: return print_i64(p, (int8_t)e[0]);
    case MR_U16: return print_u64(p, mr_load_le16(e));
    case MR_I16: return print_i64(p, (int16_t)mr_load_le16(e));
    case MR_U32: return print_u64(p, mr_load_le32(e));
    case MR_I32: return print_i64(p, (int32_t)mr_load_le32(e));
    case MR_U64: return print_u64(p, mr_load_le64(e));
    case MR_I64: return print_i64(p, (int64_t)mr_load_le64(e));
    case MR_F16: return print_floating(p, half_to_double(mr_load_le16(e)), 5, json);
    case MR_BF16: {
        uint32_t u = (uint32_t)mr_load_le16(e) << 16;
        memcpy(&f, &u, 4);
        return print_floating(p, (double)f, 4, json);
    }
    case MR_F32: memcpy(&f, e, 4); return print_floating(p, (double)f, 9, json);
    default: memcpy(&d, e, 8); return print_floating(p, d, 17, json);
    }
}

#define PRINT_RUN 1024u

static int print_bytes(struct mr_text_printer *pr, struct mr_stream_out *out, const uint8_t *p, size_t len,
                       struct mr_error *err)
{
    while (len) {
        size_t n = MR_MIN(len, (size_t)PRINT_RUN);
        char *room = mr_stream_out_room(out, 4 * n + 4, err);
        if (!room)
            return err ? err->code : MR_E_INTERNAL;
        char *q = room;
        for (size_t i = 0; i < n; i++) {
            *q = ',';
            q += pr->any;
            pr->any = true;
            memcpy(q, byte_text[p[i]], 4);
            q += byte_text_len[p[i]];
        }
        mr_stream_out_advance(out, (size_t)(q - room));
        p += n;
        len -= n;
    }
    return 0;
}

static int print_run(struct mr_text_printer *pr, struct mr_stream_out *out, enum mr_dtype t, unsigned size,
                     const uint8_t *p, size_t count, struct mr_error *err)
{
    while (count) {
        size_t n = MR_MIN(count, (size_t)PRINT_RUN);
        char *room = mr_stream_out_room(out, NUMBER_TEXT_MAX * n, err);
        if (!room)
            return err ? err->code : MR_E_INTERNAL;
        char *q = room;
        for (size_t i = 0; i < n; i++, p += size) {
            if (pr->any)
                *q++ = ',';
            pr->any = true;
            q = print_one(q, t, p, pr->json);
        }
        mr_stream_out_advance(out, (size_t)(q - room));
        count -= n;
    }
    return 0;
}

static int print_pieces(struct mr_text_printer *p, struct mr_stream_out *out, const uint8_t *data, size_t len,
                        struct mr_error *err)
{
    unsigned count;
    enum mr_dtype t = mr_text_component(p->dtype, &count);
    unsigned size = mr_dtype_bytes(t);
    if (t == MR_U8)
        return print_bytes(p, out, data, len, err);
    if (p->carry_len) {
        size_t n = MR_MIN((size_t)(size - p->carry_len), len);
        memcpy(p->carry + p->carry_len, data, n);
        p->carry_len += (unsigned)n;
        data += n;
        len -= n;
        if (p->carry_len < size)
            return 0;
        p->carry_len = 0;
        int rc = print_run(p, out, t, size, p->carry, 1, err);
        if (rc < 0)
            return rc;
    }
    int rc = print_run(p, out, t, size, data, len / size, err);
    p->carry_len = (unsigned)(len % size);
    memcpy(p->carry, data + (len - p->carry_len), p->carry_len);
    return rc;
}

int mr_text_print(struct mr_text_printer *p, struct mr_stream_out *out, const void *data, size_t len,
                  struct mr_error *err)
{
    if (!len)
        return 0;
    pthread_once(&once, prepare);
    locale_t old = uselocale(c_locale);
    int rc = print_pieces(p, out, data, len, err);
    uselocale(old);
    return rc;
}

double mr_text_amplification(enum mr_dtype t)
{
    static const double factor[MR_DTYPE_COUNT] = {
        [MR_U8] = 3.6,  [MR_I8] = 4.0,   [MR_U16] = 2.9, [MR_I16] = 3.2,  [MR_U32] = 2.7,
        [MR_I32] = 2.8, [MR_U64] = 2.6,  [MR_I64] = 2.5, [MR_F16] = 5.0,  [MR_F32] = 3.7,
        [MR_F64] = 3.0, [MR_BOOL] = 2.0, [MR_C64] = 3.7, [MR_C128] = 3.0, [MR_BF16] = 5.0,
    };
    return (unsigned)t < MR_DTYPE_COUNT ? factor[t] : 1.0;
}

/* ---- content ---- */

/* Makes byte k of an element harmless, looking at no other byte, so that any piece of a sample can be made alone: the
 * top byte of a floating-point number holds enough of the exponent to keep it below the all-ones pattern. */
void mr_text_synth(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                   uint64_t offset, void *dst, size_t len)
{
    uint8_t *p = dst;
    unsigned count;
    enum mr_dtype t = mr_text_component(info->dtype, &count);
    unsigned size = mr_dtype_bytes(t);
    uint8_t ones = t == MR_F16 ? 0x7c : t == MR_F32 || t == MR_F64 || t == MR_BF16 ? 0x7f : 0;
    mr_format_synth_content(spec, content, info, offset, dst, len);
    if (t == MR_BOOL)
        for (size_t i = 0; i < len; i++)
            p[i] &= 1;
    if (!ones)
        return;
    for (size_t i = (size_t)((size - 1 + size - offset % size) % size); i < len; i += size)
        if ((p[i] & ones) == ones)
            p[i] &= (uint8_t)~0x40;
}

int mr_text_check(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                  const struct mr_sample_out *have, struct mr_error *err)
{
    uint8_t want[8192];
    const uint8_t *data = have->data;
    if (have->bytes != info->bytes)
        return mr_error_plain(err, MR_E_CORRUPT, "sample %llu has the wrong size (want %llu bytes, have %zu)",
                              (unsigned long long)info->id, (unsigned long long)info->bytes, have->bytes);
    for (size_t at = 0, n; at < have->bytes; at += n) {
        n = MR_MIN(have->bytes - at, sizeof want);
        mr_text_synth(spec, content, info, at, want, n);
        if (memcmp(want, data + at, n) == 0)
            continue;
        size_t k = 0;
        while (want[k] == data[at + k])
            k++;
        return mr_error_plain(err, MR_E_CORRUPT, "sample %llu differs from its content at byte %zu of %zu",
                              (unsigned long long)info->id, at + k, have->bytes);
    }
    return 0;
}
