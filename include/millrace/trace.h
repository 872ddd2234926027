/* Annotations: spans, instants, counters and metadata of a program, in the same trace as its I/O calls.
 *
 * Nothing needs to be linked. The functions live in the tracer, which `millrace trace` or LD_PRELOAD brings into the
 * process; without it the references stay empty and every macro is one test. A span costs two time stamps and one
 * 32-byte store (about 30 ns). All functions are callable from any thread; a span begins and ends on one thread, and
 * spans of one thread nest.
 *
 *   #include <millrace/trace.h>
 *   MILLRACE_REGION_BEGIN(step, "train", "step");
 *   MILLRACE_REGION_INT(step, "epoch", epoch);
 *   ... the calls in between belong to it ...
 *   MILLRACE_REGION_END(step);
 *
 * C++ programs include <millrace/trace.hpp> for scopes. */
#ifndef MILLRACE_TRACE_H
#define MILLRACE_TRACE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MILLRACE_ARGS_MAX 16

enum millrace_arg_type { MILLRACE_INT = 1, MILLRACE_UINT = 2, MILLRACE_DOUBLE = 3, MILLRACE_TEXT = 4 };

/* Where a kind of span comes from. Static, one per place in the source: names are looked up once per process. */
struct millrace_site {
    const char *category, *name; /* must outlive the site */
    uint32_t id, epoch;          /* the tracer's; zero at first */
};

/* Key and value of a span. Keys and texts are copied when the span ends. */
struct millrace_arg {
    const char *key;
    enum millrace_arg_type type;
    union {
        int64_t i;
        uint64_t u;
        double d;
        const char *s;
    } value;
};

struct millrace_span {
    struct millrace_site *site;
    uint64_t begin; /* 0: not recorded */
    unsigned args;
    struct millrace_arg arg[MILLRACE_ARGS_MAX];
};

#define MILLRACE_WEAK __attribute__((weak))
/* 1 while the tracer is in this process and switched on. */
MILLRACE_WEAK int millrace_trace_active(void);
/* Switches recording on or off for the whole process. */
MILLRACE_WEAK void millrace_trace_start(void);
MILLRACE_WEAK void millrace_trace_stop(void);
/* A time stamp for millrace_trace_span. */
MILLRACE_WEAK uint64_t millrace_trace_now(void);
MILLRACE_WEAK void millrace_trace_span(struct millrace_site *site, uint64_t begin, const struct millrace_arg *args,
                                       unsigned n);
/* The same of a span that has ended before: `end` is a time stamp, too. */
MILLRACE_WEAK void millrace_trace_span_between(struct millrace_site *site, uint64_t begin, uint64_t end,
                                               const struct millrace_arg *args, unsigned n);
MILLRACE_WEAK void millrace_trace_instant(struct millrace_site *site, const struct millrace_arg *args, unsigned n);
MILLRACE_WEAK void millrace_trace_counter(struct millrace_site *site, double value);
/* Facts about the process (rank, model, data set ...) that hold from now on. */
MILLRACE_WEAK void millrace_trace_metadata(const struct millrace_arg *args, unsigned n);
/* The same with names that are not static; slower by one look-up. */
MILLRACE_WEAK void millrace_trace_span_named(const char *category, const char *name, uint64_t begin,
                                             const struct millrace_arg *args, unsigned n);

/* The same functions as a table. */
struct millrace_functions {
    size_t bytes; /* of the table */
    int (*active)(void);
    void (*start)(void);
    void (*stop)(void);
    uint64_t (*now)(void);
    void (*span)(struct millrace_site *site, uint64_t begin, const struct millrace_arg *args, unsigned n);
    void (*instant)(struct millrace_site *site, const struct millrace_arg *args, unsigned n);
    void (*counter)(struct millrace_site *site, double value);
    void (*metadata)(const struct millrace_arg *args, unsigned n);
    void (*span_named)(const char *category, const char *name, uint64_t begin, const struct millrace_arg *args,
                       unsigned n);
    void (*span_between)(struct millrace_site *site, uint64_t begin, uint64_t end, const struct millrace_arg *args,
                         unsigned n);
};
#define MILLRACE_FUNCTIONS_NAME 0x4d520001

#if !defined(MILLRACE_TRACE_INSIDE) && !defined(__PIC__)
/* Where code is not position-independent, linkers decide for good that a weak reference leads nowhere. There the tracer
 * is asked for its table, through confstr(3) of the C library, before which it stands: without it the C library knows
 * no such name. */
extern size_t millrace_confstr(int name, char *out, size_t len) __asm__("confstr");

static inline int millrace_no_active(void)
{
    return 0;
}
static inline void millrace_no_switch(void)
{
}
static inline uint64_t millrace_no_now(void)
{
    return 0;
}
static inline void millrace_no_span(struct millrace_site *site, uint64_t begin, const struct millrace_arg *args,
                                    unsigned n)
{
    (void)site, (void)begin, (void)args, (void)n;
}
static inline void millrace_no_instant(struct millrace_site *site, const struct millrace_arg *args, unsigned n)
{
    (void)site, (void)args, (void)n;
}
static inline void millrace_no_counter(struct millrace_site *site, double value)
{
    (void)site, (void)value;
}
static inline void millrace_no_metadata(const struct millrace_arg *args, unsigned n)
{
    (void)args, (void)n;
}
static inline void millrace_no_span_named(const char *category, const char *name, uint64_t begin,
                                          const struct millrace_arg *args, unsigned n)
{
    (void)category, (void)name, (void)begin, (void)args, (void)n;
}

static inline void millrace_no_span_between(struct millrace_site *site, uint64_t begin, uint64_t end,
                                            const struct millrace_arg *args, unsigned n)
{
    (void)site, (void)begin, (void)end, (void)args, (void)n;
}

/* Threads that ask at once get the same answer. A tracer that knows fewer functions than this header counts as none. */
static inline const struct millrace_functions *millrace_table(void)
{
    static const struct millrace_functions none = {
        sizeof(none),         millrace_no_active,     millrace_no_switch,      millrace_no_switch,
        millrace_no_now,      millrace_no_span,       millrace_no_instant,     millrace_no_counter,
        millrace_no_metadata, millrace_no_span_named, millrace_no_span_between};
    static const struct millrace_functions *known;
    const struct millrace_functions *f = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
    if (!f) {
        char out[sizeof(f)];
        int before = errno;
        f = &none;
        if (millrace_confstr(MILLRACE_FUNCTIONS_NAME, out, sizeof(out)) == sizeof(out))
            __builtin_memcpy(&f, out, sizeof(f));
        if (f->bytes < sizeof(*f))
            f = &none;
        errno = before;
        __atomic_store_n(&known, f, __ATOMIC_RELEASE);
    }
    return f;
}
#define millrace_trace_active (millrace_table()->active)
#define millrace_trace_start (millrace_table()->start)
#define millrace_trace_stop (millrace_table()->stop)
#define millrace_trace_now (millrace_table()->now)
#define millrace_trace_span (millrace_table()->span)
#define millrace_trace_instant (millrace_table()->instant)
#define millrace_trace_counter (millrace_table()->counter)
#define millrace_trace_metadata (millrace_table()->metadata)
#define millrace_trace_span_named (millrace_table()->span_named)
#define millrace_trace_span_between (millrace_table()->span_between)
#elif !defined(MILLRACE_TRACE_INSIDE)
/* Without the tracer there is nothing behind these names: calls do nothing then, and ask 0. */
#define millrace_trace_active() (millrace_trace_active ? (millrace_trace_active)() : 0)
#define millrace_trace_start() (millrace_trace_start ? (millrace_trace_start)() : (void)0)
#define millrace_trace_stop() (millrace_trace_stop ? (millrace_trace_stop)() : (void)0)
#define millrace_trace_now() (millrace_trace_now ? (millrace_trace_now)() : 0)
#define millrace_trace_span(site, begin, args, n)                                                                      \
    (millrace_trace_span ? (millrace_trace_span)(site, begin, args, n) : (void)0)
#define millrace_trace_instant(site, args, n)                                                                          \
    (millrace_trace_instant ? (millrace_trace_instant)(site, args, n) : (void)0)
#define millrace_trace_counter(site, value) (millrace_trace_counter ? (millrace_trace_counter)(site, value) : (void)0)
#define millrace_trace_metadata(args, n) (millrace_trace_metadata ? (millrace_trace_metadata)(args, n) : (void)0)
#define millrace_trace_span_named(category, name, begin, args, n)                                                      \
    (millrace_trace_span_named ? (millrace_trace_span_named)(category, name, begin, args, n) : (void)0)
#define millrace_trace_span_between(site, begin, end, args, n)                                                         \
    (millrace_trace_span_between ? (millrace_trace_span_between)(site, begin, end, args, n) : (void)0)
#endif

/* A missing text is an empty one. */
static inline const char *millrace_text(const char *text)
{
    return text ? text : "";
}

/* The argument of that key, which may have been given before, or a new one; NULL if there are too many. */
static inline struct millrace_arg *millrace_arg_of(struct millrace_arg *args, unsigned *n, const char *key)
{
    unsigned at = 0;
    while (at < *n && args[at].key != key && __builtin_strcmp(millrace_text(args[at].key), millrace_text(key)) != 0)
        at++;
    if (at == MILLRACE_ARGS_MAX)
        return 0;
    if (at == *n)
        args[(*n)++].key = key;
    return &args[at];
}

#define MILLRACE_REGION_BEGIN(id, category_, name_)                                                                    \
    static struct millrace_site millrace_site_##id = {category_, name_, 0, 0};                                         \
    struct millrace_span millrace_span_##id;                                                                           \
    millrace_span_##id.site = &millrace_site_##id;                                                                     \
    millrace_span_##id.args = 0;                                                                                       \
    millrace_span_##id.begin = millrace_trace_now ? millrace_trace_now() : 0

#define MILLRACE_REGION_ARG(id, key_, type_, member_, value_)                                                          \
    do {                                                                                                               \
        if (millrace_span_##id.begin) {                                                                                \
            struct millrace_arg *millrace_arg_ =                                                                       \
                millrace_arg_of(millrace_span_##id.arg, &millrace_span_##id.args, key_);                               \
            if (millrace_arg_) {                                                                                       \
                millrace_arg_->type = (type_);                                                                         \
                millrace_arg_->value.member_ = (value_);                                                               \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
#define MILLRACE_REGION_INT(id, key, v) MILLRACE_REGION_ARG(id, key, MILLRACE_INT, i, v)
#define MILLRACE_REGION_UINT(id, key, v) MILLRACE_REGION_ARG(id, key, MILLRACE_UINT, u, v)
#define MILLRACE_REGION_DOUBLE(id, key, v) MILLRACE_REGION_ARG(id, key, MILLRACE_DOUBLE, d, v)
#define MILLRACE_REGION_TEXT(id, key, v) MILLRACE_REGION_ARG(id, key, MILLRACE_TEXT, s, millrace_text(v))

#define MILLRACE_REGION_END(id)                                                                                        \
    do {                                                                                                               \
        if (millrace_span_##id.begin)                                                                                  \
            millrace_trace_span(millrace_span_##id.site, millrace_span_##id.begin, millrace_span_##id.arg,             \
                                millrace_span_##id.args);                                                              \
    } while (0)

#define MILLRACE_INSTANT(category_, name_)                                                                             \
    do {                                                                                                               \
        static struct millrace_site millrace_site_ = {category_, name_, 0, 0};                                         \
        if (millrace_trace_instant)                                                                                    \
            millrace_trace_instant(&millrace_site_, 0, 0);                                                             \
    } while (0)

#define MILLRACE_COUNTER(category_, name_, value_)                                                                     \
    do {                                                                                                               \
        static struct millrace_site millrace_site_ = {category_, name_, 0, 0};                                         \
        if (millrace_trace_counter)                                                                                    \
            millrace_trace_counter(&millrace_site_, value_);                                                           \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
