/* Functions of memory and strings for the tracer's own use: the C library's, past whoever stands between. A thread
 * sanitizer's versions look at who else has touched the memory, and would report what our spin locks protect as races
 * of the program. The names are hidden: calls inside this library, also those that the compiler and zstd make, bind
 * here. Before the C library is found (a sanitizer's start) plain loops do the work. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"

#include <dlfcn.h>
#include <stddef.h>
#include <time.h>

/* Loops that stay loops: a compiler may see a memcpy in them. */
#if defined(__clang__)
#define MR_PLAIN __attribute__((no_builtin))
#else
#define MR_PLAIN __attribute__((optimize("no-tree-loop-distribute-patterns")))
#endif

/* A function that jumps to the C library's once that is known; `by_hand` is a statement that does the same. */
#define MR_LIBC(type, name, params, args, by_hand)                                                                     \
    static type(*real_##name) params;                                                                                  \
    MR_HIDDEN type name params;                                                                                        \
    MR_PLAIN type name params                                                                                          \
    {                                                                                                                  \
        if (real_##name)                                                                                               \
            return real_##name args;                                                                                   \
        by_hand;                                                                                                       \
    }

typedef const char *text;

static MR_PLAIN int compare(const unsigned char *a, const unsigned char *b, size_t n, bool strings)
{
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i] || (strings && !a[i]))
            return a[i] - b[i];
    return 0;
}

static MR_PLAIN size_t length(text s, size_t cap)
{
    size_t n = 0;
    while (n < cap && s[n])
        n++;
    return n;
}

static MR_PLAIN char *find(text s, int c, bool last)
{
    text found = NULL;
    for (;; s++) {
        if (*s == (char)c)
            found = s;
        if (!*s || (found && !last))
            return (char *)found;
    }
}

/* How many bytes at the start are in the set, or are not. */
static MR_PLAIN size_t span(text s, text set, bool in)
{
    size_t n = 0;
    while (s[n] && (find(set, s[n], false) != NULL) == in)
        n++;
    return n;
}

static MR_PLAIN void *copy(char *to, text from, size_t n)
{
    if (to <= from)
        for (size_t i = 0; i < n; i++)
            to[i] = from[i];
    else
        while (n--)
            to[n] = from[n];
    return to;
}

static MR_PLAIN void *fill(char *at, int c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        at[i] = (char)c;
    return at;
}

MR_LIBC(void *, memcpy, (void *restrict to, const void *restrict from, size_t n), (to, from, n),
        return copy(to, from, n))
MR_LIBC(void *, memmove, (void *to, const void *from, size_t n), (to, from, n), return copy(to, from, n))
MR_LIBC(void *, memset, (void *at, int c, size_t n), (at, c, n), return fill(at, c, n))
MR_LIBC(int, memcmp, (const void *a, const void *b, size_t n), (a, b, n), return compare(a, b, n, false))
MR_LIBC(size_t, strlen, (text s), (s), return length(s, SIZE_MAX))
MR_LIBC(size_t, strnlen, (text s, size_t n), (s, n), return length(s, n))
MR_LIBC(char *, strchr, (text s, int c), (s, c), return find(s, c, false))
MR_LIBC(char *, strrchr, (text s, int c), (s, c), return find(s, c, true))
MR_LIBC(int, strcmp, (text a, text b), (a, b), return compare((const void *)a, (const void *)b, SIZE_MAX, true))
MR_LIBC(int, strncmp, (text a, text b, size_t n), (a, b, n), return compare((const void *)a, (const void *)b, n, true))
MR_LIBC(size_t, strspn, (text s, text set), (s, set), return span(s, set, true))
MR_LIBC(size_t, strcspn, (text s, text set), (s, set), return span(s, set, false))
MR_LIBC(int, clock_gettime, (clockid_t clock, struct timespec *t), (clock, t),
        return (int)mr_sys2(SYS_clock_gettime, clock, t))

#define MR_FIND(name) *(void **)&real_##name = dlsym(libc, #name)

static void __attribute__((constructor(101))) find_libc(void)
{
    mr_leave_foreign();
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (!libc)
        return;
    MR_FIND(memcpy);
    MR_FIND(memmove);
    MR_FIND(memset);
    MR_FIND(memcmp);
    MR_FIND(strlen);
    MR_FIND(strnlen);
    MR_FIND(strchr);
    MR_FIND(strrchr);
    MR_FIND(strcmp);
    MR_FIND(strncmp);
    MR_FIND(strspn);
    MR_FIND(strcspn);
    MR_FIND(clock_gettime);
    dlclose(libc); /* it stays: the program uses it */
}
