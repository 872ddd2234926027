/* Lines of a .pfw repeat the same members in the same order. The bytes between their values, once seen, are a shape; a
 * line that has the shape of an earlier one is read by comparing these bytes and taking what lies between. Any other
 * line is parsed member by member (pfw_line.c), with the same result. See pfw_internal.h. */
#include "import/pfw_internal.h"

#include <assert.h>
#include <stdlib.h>

#if defined(__SSE2__)
#include <emmintrin.h>

#define LEARN_MAX 1024 /* shapes learned per file: beyond that its lines are too different to gain from this */
#define STEPS 40
#define BETWEEN 48
#define NOWHERE UINT16_MAX

/* A value: the bytes before it (from the end of the value before), and where it goes. */
struct step {
    char before[BETWEEN];
    uint8_t len;
    bool quoted, pair; /* pair: it is also one of the arguments kept in order */
    uint16_t to;       /* offset in struct pfw_line, or NOWHERE */
    uint16_t pair_at;  /* its place among those */
    const char *last;  /* its text in the line before, of `last_n` bytes */
    uint32_t last_n;
    bool changes; /* often */
};

/* Most values are those of the line before. A shape therefore remembers a line, and which of its values change from
 * line to line: of another line only these are read, and what lies between them is compared with the remembered one. */
struct pfw_shape {
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
    struct pfw_line line;
};

static bool add_step(struct pfw_shape *s, const char *from, const struct pfw_text *value, const struct pfw_line *l,
                     const struct pfw_text *to, const char **next)
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
static bool learn(const char *p, const char *stop, struct pfw_shape *s)
{
    struct pfw_text key, value;
    struct pfw_line l;
    const char *from = p;
    bool broken = false, in_args = false, has_host = false;
    unsigned pairs = 0;
    memset(s, 0, sizeof(*s));
    for (p++;;) {
        const char *at = mr_pfw_take_key(p, stop, &key, &broken);
        if (broken)
            return false;
        if (!at) { /* a closing brace */
            if (!in_args)
                break;
            in_args = false;
            p = mr_pfw_skip_space(p, stop) + 1;
            continue;
        }
        if (!in_args && mr_pfw_text_is(&key, "args") && *at == '{') {
            in_args = true;
            p = at + 1;
            continue;
        }
        struct pfw_text *to = in_args ? mr_pfw_known_fact(&l.f, &key, has_host) : mr_pfw_line_member(&l, &key);
        has_host |= to == &l.f.host;
        p = mr_pfw_take_value(at, stop, &value);
        if (!p || !add_step(s, from, &value, &l, to, &from))
            return false;
        if (in_args && to != &l.f.host && to != &l.f.hhash && pairs++ < PFW_PAIRS) {
            s->step[s->steps - 1].pair = true;
            s->step[s->steps - 1].pair_at = (uint16_t)(pairs - 1);
            s->line.f.key[pairs - 1] = key;
            s->line.f.meant[pairs - 1] = to != NULL;
            s->line.f.n = pairs;
        }
    }
    if (stop - from > BETWEEN)
        return false;
    assert(s->steps <= STEPS && pairs <= STEPS);
    s->tail_len = (uint8_t)(stop - from);
    memcpy(s->tail, from, s->tail_len);
    s->line.cat = (struct pfw_text){.p = "", .quoted = true}; /* if there is none */
    return s->steps > 0;
}

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

/* The end of a bare word, NULL if there is none; *whole if it is an integer, and its value. No loop for usual numbers:
 * their length is unpredictable, so a loop would mispredict. */
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

/* Member by member: copying a struct just after writing its members would stall on store forwarding. */
static inline void put_text(struct pfw_text *to, const char *p, const char *end, bool quoted, bool whole,
                            int64_t number)
{
    to->p = p;
    to->n = (uint32_t)(end - p);
    to->quoted = quoted;
    to->whole = whole;
    to->number = number;
}

/* Reads the value of a step at p; returns its end, NULL if there is none. */
static inline const char *read_value(const struct step *step, const char *p, const char *stop, struct pfw_line *l)
{
    bool whole = false;
    int64_t number = 0;
    const char *q = step->quoted ? quote_end(p, stop) : bare_end(p, stop, &whole, &number);
    if (!q)
        return NULL;
    if (step->to != NOWHERE)
        put_text((struct pfw_text *)(void *)((char *)l + step->to), p, q, step->quoted, whole, number);
    if (step->pair)
        put_text(&l->f.value[step->pair_at], p, q, step->quoted, whole, number);
    return q;
}

/* Remembers what is between the values that change. */
static void remember(struct pfw_shape *s, const char *p, const char *stop)
{
    s->changing = 0;
    for (unsigned i = 0; i < s->steps; i++) {
        struct step *step = &s->step[i];
        if (!step->changes)
            continue;
        assert(step->last >= p && step->last <= stop); /* values follow each other */
        s->change[s->changing].before = p;
        s->change[s->changing].len = (uint32_t)(step->last - p);
        s->change[s->changing++].step = (uint16_t)i;
        p = step->last + step->last_n;
    }
    s->change[s->changing].before = p;
    s->change[s->changing].len = (uint32_t)(stop - p);
    s->alike = 0;
}

#define LASTS 16 /* lines that a remembered line should match */

/* Reads a line of this shape; false if it has another one. Up to PFW_SLACK bytes behind `stop` are readable. */
static bool by_shape(struct pfw_shape *s, const char *line, const char *stop)
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
        /* A value that differs from the remembered line changes often, if that line did not match for long. */
        bool other = !step->last || n != step->last_n || memcmp(at[i], step->last, n) != 0;
        step->changes |= step->last && other && s->alike < LASTS;
        step->last = at[i];
        step->last_n = n;
        read_value(step, at[i], stop, &s->line);
    }
    remember(s, line, stop);
    return true;
}

/* The same for a line like the remembered one. */
static inline bool like_before(struct pfw_shape *s, const char *p, const char *stop)
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
const struct pfw_line *mr_pfw_read_by_shape(struct mr_pfw *im, const char *p, const char *stop)
{
    for (unsigned i = 0; i < im->shapes; i++)
        if (like_before(im->shape[i], p, stop) || by_shape(im->shape[i], p, stop)) {
            struct pfw_shape *s = im->shape[i];
            for (; i; i--)
                im->shape[i] = im->shape[i - 1];
            im->shape[0] = s;
            return &s->line;
        }
    return NULL;
}

/* Remembers the shape of a line, in the place of the one not used for longest. */
void mr_pfw_learn_shape(struct mr_pfw *im, const char *p, const char *stop)
{
    if (im->learned >= LEARN_MAX)
        return;
    im->learned++;
    struct pfw_shape *s = im->shapes == PFW_SHAPES ? im->shape[PFW_SHAPES - 1] : calloc(1, sizeof(*s));
    if (!s)
        return;
    if (im->shapes < PFW_SHAPES)
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

void mr_pfw_forget_shapes(struct mr_pfw *im)
{
    for (unsigned i = 0; i < im->shapes; i++)
        free(im->shape[i]);
    im->shapes = 0;
}
#else
const struct pfw_line *mr_pfw_read_by_shape(struct mr_pfw *im, const char *p, const char *stop)
{
    (void)im, (void)p, (void)stop;
    return NULL;
}

void mr_pfw_learn_shape(struct mr_pfw *im, const char *p, const char *stop)
{
    (void)im, (void)p, (void)stop;
}

void mr_pfw_forget_shapes(struct mr_pfw *im)
{
    (void)im;
}
#endif
