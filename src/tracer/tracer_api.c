/* Annotations from inside the program: see <millrace/trace.h>. */
#include "tracer/wrap.h"

#include <string.h>

#include <millrace/trace.h>

static uint32_t site_string(const char *category, const char *name)
{
    char text[1024];
    size_t c = strnlen(category, 400), n = strnlen(name, 600);
    memcpy(text, category, c);
    text[c] = 0;
    memcpy(text + c + 1, name, n);
    return mr_string_id(MR_STR_SITE, text, c + 1 + n);
}

/* Two threads may look up at once: both get the same id. The epoch is stored last. */
static uint32_t site_id(struct millrace_site *s)
{
    if (MR_LIKELY(__atomic_load_n(&s->epoch, __ATOMIC_ACQUIRE) == mr_core.epoch))
        return __atomic_load_n(&s->id, __ATOMIC_RELAXED);
    uint32_t id = site_string(s->category, s->name);
    __atomic_store_n(&s->id, id, __ATOMIC_RELAXED);
    if (id)
        __atomic_store_n(&s->epoch, mr_core.epoch, __ATOMIC_RELEASE);
    return id;
}

static uint32_t text_id(enum mr_string_kind kind, const char *text)
{
    return mr_string_id(kind, text ? text : "", text ? strlen(text) : 0);
}

/* Keys come again and again, mostly as the same constants of a program: their ids are remembered by address. Whether an
 * entry is valid is in `state`, epoch << 1 | 1; it is written once in an epoch, by the thread that got it to epoch
 * << 1. Memory may be used for another text later: what was there is compared. */
struct known_key {
    _Alignas(64) _Atomic uint64_t state;
    const char *key;
    uint32_t id;
    char text[40];
};
static struct known_key known_keys[32];

static bool is_same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static __attribute__((noinline, cold)) uint32_t new_key(struct known_key *k, uint64_t state, const char *key)
{
    uint64_t valid = (uint64_t)mr_core.epoch << 1 | 1;
    size_t len = key ? strlen(key) : sizeof(k->text);
    uint32_t id = text_id(MR_STR_KEY, key);
    if (id && len < sizeof(k->text) && state >> 1 != valid >> 1 &&
        atomic_compare_exchange_strong(&k->state, &state, valid & ~1ull)) {
        memcpy(k->text, key, len + 1);
        k->key = key;
        k->id = id;
        atomic_store_explicit(&k->state, valid, memory_order_release);
    }
    return id;
}

static inline uint32_t key_id(const char *key)
{
    uintptr_t at = (uintptr_t)key;
    struct known_key *k = &known_keys[(at >> 4 ^ at >> 9) % MR_ARRAY_LEN(known_keys)];
    uint64_t state = atomic_load_explicit(&k->state, memory_order_acquire);
    if (MR_LIKELY(state == ((uint64_t)mr_core.epoch << 1 | 1) && k->key == key && is_same(k->text, key)))
        return k->id;
    return new_key(k, state, key);
}

static unsigned to_extras(const struct millrace_arg *args, unsigned n, struct mr_extra *out)
{
    n = MR_MIN(n, (unsigned)MILLRACE_ARGS_MAX);
    for (unsigned i = 0; i < n; i++) {
        out[i].type = (uint32_t)args[i].type;
        out[i].key = key_id(args[i].key);
        out[i].value = args[i].type == MILLRACE_TEXT ? text_id(MR_STR_TEXT, args[i].value.s) : args[i].value.u;
    }
    return n;
}

static __attribute__((noinline)) MR_TOGETHER void put_site(uint64_t t0, uint64_t t1, unsigned call, uint32_t id,
                                                           const struct millrace_arg *args, unsigned n)
{
    struct mr_extra extra[MILLRACE_ARGS_MAX];
    if (!n) {
        mr_put_inline(t0 ? t0 : t1, t1, call, id, 0, MR_NO_OFFSET, 0);
        return;
    }
    n = to_extras(args, n, extra);
    if (n == 1)
        mr_put_one(t0 ? t0 : t1, t1, call, id, 0, MR_NO_OFFSET, 0, extra);
    else
        mr_put_slow(t0 ? t0 : t1, t1, call, id, 0, MR_NO_OFFSET, 0, extra, n);
}

MR_EXPORT int millrace_trace_active(void)
{
    return mr_enter();
}

MR_EXPORT void millrace_trace_start(void)
{
    mr_enter();
    if (mr_live.alive)
        mr_switch(true);
}

MR_EXPORT void millrace_trace_stop(void)
{
    mr_switch(false);
}

MR_EXPORT MR_TOGETHER uint64_t millrace_trace_now(void)
{
    return mr_enter() ? mr_stamp() : 0;
}

MR_EXPORT MR_TOGETHER void millrace_trace_span(struct millrace_site *site, uint64_t begin,
                                               const struct millrace_arg *args, unsigned n)
{
    if (mr_enter())
        put_site(begin, mr_stamp(), CALL(region), site_id(site), args, n);
}

MR_EXPORT void millrace_trace_span_between(struct millrace_site *site, uint64_t begin, uint64_t end,
                                           const struct millrace_arg *args, unsigned n)
{
    if (mr_enter() && begin && begin <= end)
        put_site(begin, end, CALL(region), site_id(site), args, n);
}

MR_EXPORT void millrace_trace_span_named(const char *category, const char *name, uint64_t begin,
                                         const struct millrace_arg *args, unsigned n)
{
    if (mr_enter())
        put_site(begin, mr_stamp(), CALL(region), site_string(category, name), args, n);
}

MR_EXPORT void millrace_trace_instant(struct millrace_site *site, const struct millrace_arg *args, unsigned n)
{
    if (mr_enter())
        put_site(0, mr_stamp(), CALL(instant), site_id(site), args, n);
}

MR_EXPORT void millrace_trace_counter(struct millrace_site *site, double value)
{
    const struct millrace_arg arg = {.key = "value", .type = MILLRACE_DOUBLE, .value.d = value};
    if (mr_enter())
        put_site(0, mr_stamp(), CALL(counter), site_id(site), &arg, 1);
}

MR_EXPORT void millrace_trace_metadata(const struct millrace_arg *args, unsigned n)
{
    if (mr_enter())
        put_site(0, mr_stamp(), CALL(metadata), 0, args, n);
}

/* For programs whose linker has settled that our names lead nowhere (see the header). */
static const struct millrace_functions functions = {
    .bytes = sizeof(functions),
    .active = millrace_trace_active,
    .start = millrace_trace_start,
    .stop = millrace_trace_stop,
    .now = millrace_trace_now,
    .span = millrace_trace_span,
    .instant = millrace_trace_instant,
    .counter = millrace_trace_counter,
    .metadata = millrace_trace_metadata,
    .span_named = millrace_trace_span_named,
    .span_between = millrace_trace_span_between,
};

MR_REAL(size_t, confstr, (int name, char *out, size_t len), (name, out, len))
MR_SYMBOL(size_t, confstr, (int name, char *out, size_t len))
{
    const struct millrace_functions *f = &functions;
    if (name != MILLRACE_FUNCTIONS_NAME || len != sizeof(f))
        return real_confstr(name, out, len);
    memcpy(out, &f, sizeof(f));
    return sizeof(f);
}
