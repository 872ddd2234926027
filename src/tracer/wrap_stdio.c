/* The C library's streams. A stream's file is that of its descriptor. Bytes are what the call moved between program and
 * stream; the reads and writes the library does for its buffers are not visible, and are not counted twice. */
#undef _FILE_OFFSET_BITS
#include "tracer/tracer_internal.h"
#include "tracer/wrap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

typedef const char *path;

/* Streams without a file: none that a filter could include. */
static void put_nameless(uint64_t t0, uint64_t t1, unsigned call, uint64_t offset, int64_t result)
{
    if (!mr_config.include[0])
        mr_put(t0, t1, call, 0, 0, offset, result);
}

static void put_stream(uint64_t t0, uint64_t t1, unsigned call, FILE *f, uint64_t offset, uint64_t count, int64_t result)
{
    int keep = errno, fd = f ? fileno(f) : -1;
    if (result < 0) {
        count = count == (uint64_t)result ? (uint64_t)-(int64_t)keep : count; /* nobody knows what was asked for */
        result = -(int64_t)keep;
    }
    errno = keep;
    if (fd >= 0)
        mr_put_fd(t0, t1, call, fd, offset, count, result);
    else
        put_nameless(t0, t1, call, offset, result);
    errno = keep;
}
/* count: what was asked for; moved: what was done, negative on failure. */
#define ST(c, f, count, moved) put_stream(t0, t1, CALL(c), f, NONE, (uint64_t)(count), (int64_t)(moved))
#define ST0(c, f, result) put_stream(t0, t1, CALL(c), f, NONE, (uint64_t)(result), (int64_t)(result))

/* A stream at its end is not an error: 0 bytes. */
static int64_t got(FILE *f, int ok, int64_t n)
{
    return ok ? n : ferror(f) ? -1 : 0;
}

static void put_fopen(uint64_t t0, uint64_t t1, unsigned call, path p, FILE *f)
{
    int keep = errno;
    mr_put_open(t0, t1, call, CWD, p, NONE, f ? fileno(f) : -1);
    errno = keep;
}

MR_WRAP(FILE *, fopen, (path p, path m), (p, m), put_fopen(t0, t1, CALL(fopen), p, r))
MR_ALIAS(fopen64, fopen)
MR_ALIAS(_IO_fopen, fopen)
MR_WRAP(FILE *, fdopen, (int fd, path m), (fd, m), mr_put_fd(t0, t1, CALL(fdopen), fd, NONE, (uint64_t)(r ? fd : -1), r ? fd : -errno))
MR_ALIAS(_IO_fdopen, fdopen)
MR_WRAP(FILE *, tmpfile, (void), (), mr_file_set(r ? fileno(r) : -1, 0); ST0(tmpfile, r, r ? fileno(r) : -1))
MR_ALIAS(tmpfile64, tmpfile)
MR_WRAP(FILE *, fmemopen, (void *b, size_t n, path m), (b, n, m), put_nameless(t0, t1, CALL(fmemopen), NONE, r ? 0 : -errno))
MR_WRAP(FILE *, open_memstream, (char **b, size_t *n), (b, n), put_nameless(t0, t1, CALL(open_memstream), NONE, r ? 0 : -errno))
MR_WRAP(FILE *, open_wmemstream, (wchar_t **b, size_t *n), (b, n), put_nameless(t0, t1, CALL(open_memstream), NONE, r ? 0 : -errno))
MR_WRAP(FILE *, fopencookie, (void *c, path m, cookie_io_functions_t f), (c, m, f), put_nameless(t0, t1, CALL(fopencookie), NONE, r ? 0 : -errno))

/* Asked for bytes instead of items the C library does the same and says how many it took of the last item, which is cut short at the end of
 * the file. If the product does not fit, what happens is its own affair. */
#define MR_FREAD(name, params, args, bytewise)                                                                       \
    MR_REAL(size_t, name, params, args)                                                                              \
    MR_SYMBOL(size_t, name, params)                                                                                  \
    {                                                                                                                \
        size_t bytes;                                                                                                \
        bool by_items = __builtin_mul_overflow(s, n, &bytes) || !bytes;                                              \
        if (!mr_enter())                                                                                             \
            return real_##name args;                                                                                 \
        uint64_t t0 = mr_stamp();                                                                                    \
        size_t r = by_items ? real_##name args : real_##name bytewise;                                               \
        uint64_t t1 = mr_stamp();                                                                                    \
        if (by_items) {                                                                                              \
            ST(fread, f, bytes, r * s);                                                                              \
            return r;                                                                                                \
        }                                                                                                            \
        ST(fread, f, bytes, got(f, r > 0, (int64_t)r));                                                              \
        return r == bytes ? n : r / s;                                                                               \
    }
MR_FREAD(fread, (void *b, size_t s, size_t n, FILE *f), (b, s, n, f), (b, 1, bytes, f))
MR_ALIAS(_IO_fread, fread)
MR_FREAD(fread_unlocked, (void *b, size_t s, size_t n, FILE *f), (b, s, n, f), (b, 1, bytes, f))
MR_FREAD(__fread_chk, (void *b, size_t c, size_t s, size_t n, FILE *f), (b, c, s, n, f), (b, c, 1, bytes, f))
MR_FREAD(__fread_unlocked_chk, (void *b, size_t c, size_t s, size_t n, FILE *f), (b, c, s, n, f), (b, c, 1, bytes, f))
#define PUT_ITEMS (r || !s || !n ? (int64_t)(r * s) : -1)
MR_WRAP(size_t, fwrite, (const void *b, size_t s, size_t n, FILE *f), (b, s, n, f), ST(fwrite, f, s * n, PUT_ITEMS))
MR_ALIAS(_IO_fwrite, fwrite)
MR_WRAP(size_t, fwrite_unlocked, (const void *b, size_t s, size_t n, FILE *f), (b, s, n, f), ST(fwrite, f, s * n, PUT_ITEMS))

/* Some calls do not say how many bytes they took; the read pointers of the stream do: exactly as long as one call takes less than a whole
 * buffer after the first refill. */
struct place {
    const char *at, *end;
};

static struct place place_of(FILE *f)
{
    return (struct place){f->_IO_read_ptr, f->_IO_read_end};
}

static int64_t taken(FILE *f, struct place before, int result)
{
    int64_t left = before.end - before.at;
    bool same = f->_IO_read_end == before.end && f->_IO_read_ptr >= before.at;
    int64_t n = same ? f->_IO_read_ptr - before.at : left + (f->_IO_read_ptr - f->_IO_read_base);
    return result == EOF && ferror(f) ? -1 : n;
}

/* Of a line with NULs in it the text is only the beginning. What the pointers say may be another thread's doing: it must look like a whole line. */
static int64_t line_bytes(FILE *f, struct place before, const char *line, int room)
{
    int64_t text = line ? (int64_t)strlen(line) : 0, n = line && text < room - 1 ? taken(f, before, 0) : 0;
    if (n > text && n < room && !line[n] && (line[n - 1] == '\n' || n == room - 1 || feof(f)))
        return n;
    return got(f, line != NULL, text);
}

#define MR_GETS(name, as, stream, room, params, args)                                                                \
    MR_REAL(char *, name, params, args)                                                                              \
    MR_SYMBOL(char *, name, params)                                                                                  \
    {                                                                                                                \
        if (!mr_enter())                                                                                             \
            return real_##name args;                                                                                 \
        struct place before = place_of(stream);                                                                      \
        uint64_t t0 = mr_stamp();                                                                                    \
        char *r = real_##name args;                                                                                  \
        uint64_t t1 = mr_stamp();                                                                                    \
        ST0(as, stream, line_bytes(stream, before, r, room));                                                        \
        return r;                                                                                                    \
    }
MR_GETS(fgets, fgets, f, n, (char *b, int n, FILE *f), (b, n, f))
MR_ALIAS(_IO_fgets, fgets)
MR_GETS(fgets_unlocked, fgets, f, n, (char *b, int n, FILE *f), (b, n, f))
MR_GETS(__fgets_chk, fgets, f, n, (char *b, size_t c, int n, FILE *f), (b, c, n, f))
MR_GETS(__fgets_unlocked_chk, fgets, f, n, (char *b, size_t c, int n, FILE *f), (b, c, n, f))
MR_GETS(gets, gets, stdin, 0, (char *b), (b))
MR_ALIAS(_IO_gets, gets)
MR_GETS(__gets_chk, gets, stdin, 0, (char *b, size_t c), (b, c))
#define GETC(f) got(f, r != EOF, 1)
MR_WRAP(int, fgetc, (FILE * f), (f), ST0(fgetc, f, GETC(f)))
MR_WRAP(int, fgetc_unlocked, (FILE * f), (f), ST0(fgetc, f, GETC(f)))
MR_WRAP(int, getc, (FILE * f), (f), ST0(getc, f, GETC(f)))
MR_ALIAS(_IO_getc, getc)
MR_WRAP(int, getc_unlocked, (FILE * f), (f), ST0(getc, f, GETC(f)))
MR_WRAP(int, getchar, (void), (), ST0(getchar, stdin, GETC(stdin)))
MR_WRAP(int, getchar_unlocked, (void), (), ST0(getchar, stdin, GETC(stdin)))
MR_WRAP(int, getw, (FILE * f), (f), ST0(getw, f, got(f, !feof(f), 4)))
MR_WRAP(int, ungetc, (int c, FILE *f), (c, f), ST0(ungetc, f, 0))
MR_ALIAS(_IO_ungetc, ungetc)
MR_WRAP(ssize_t, getline, (char **b, size_t *n, FILE *f), (b, n, f), ST0(getline, f, got(f, r >= 0, r)))
MR_WRAP(ssize_t, getdelim, (char **b, size_t *n, int d, FILE *f), (b, n, d, f), put_stream(t0, t1, d == 10 ? CALL(getline) : CALL(getdelim), f, NONE, (uint64_t)got(f, r >= 0, r), got(f, r >= 0, r)))
MR_ALIAS(__getdelim, getdelim)

#define PUTC (r == EOF ? -1 : 1)
MR_WRAP(int, fputc, (int c, FILE *f), (c, f), ST0(fputc, f, PUTC))
MR_WRAP(int, fputc_unlocked, (int c, FILE *f), (c, f), ST0(fputc, f, PUTC))
MR_WRAP(int, putc, (int c, FILE *f), (c, f), ST0(putc, f, PUTC))
MR_ALIAS(_IO_putc, putc)
MR_WRAP(int, putc_unlocked, (int c, FILE *f), (c, f), ST0(putc, f, PUTC))
MR_WRAP(int, putchar, (int c), (c), ST0(putchar, stdout, PUTC))
MR_WRAP(int, putchar_unlocked, (int c), (c), ST0(putchar, stdout, PUTC))
MR_WRAP(int, putw, (int v, FILE *f), (v, f), ST0(putw, f, r == EOF ? -1 : 4))
MR_WRAP(int, fputs, (path s, FILE *f), (s, f), ST0(fputs, f, r == EOF ? -1 : (int64_t)strlen(s)))
MR_ALIAS(_IO_fputs, fputs)
MR_WRAP(int, fputs_unlocked, (path s, FILE *f), (s, f), ST0(fputs, f, r == EOF ? -1 : (int64_t)strlen(s)))
MR_WRAP(int, puts, (path s), (s), ST0(puts, stdout, r == EOF ? -1 : (int64_t)strlen(s) + 1))
MR_ALIAS(_IO_puts, puts)

#define WGETC(f) got(f, r != WEOF, 1)
#define WPUTC (r == WEOF ? -1 : 1)
MR_WRAP(wint_t, fgetwc, (FILE * f), (f), ST0(fgetwc, f, WGETC(f)))
MR_WRAP(wint_t, fgetwc_unlocked, (FILE * f), (f), ST0(fgetwc, f, WGETC(f)))
MR_WRAP(wint_t, getwc, (FILE * f), (f), ST0(getwc, f, WGETC(f)))
MR_WRAP(wint_t, getwc_unlocked, (FILE * f), (f), ST0(getwc, f, WGETC(f)))
MR_WRAP(wint_t, getwchar, (void), (), ST0(getwchar, stdin, WGETC(stdin)))
MR_WRAP(wint_t, getwchar_unlocked, (void), (), ST0(getwchar, stdin, WGETC(stdin)))
MR_WRAP(wchar_t *, fgetws, (wchar_t * b, int n, FILE *f), (b, n, f), ST0(fgetws, f, got(f, r != NULL, r ? (int64_t)wcslen(r) : 0)))
MR_WRAP(wchar_t *, fgetws_unlocked, (wchar_t * b, int n, FILE *f), (b, n, f), ST0(fgetws, f, got(f, r != NULL, r ? (int64_t)wcslen(r) : 0)))
MR_WRAP(wchar_t *, __fgetws_chk, (wchar_t * b, size_t c, int n, FILE *f), (b, c, n, f), ST0(fgetws, f, got(f, r != NULL, r ? (int64_t)wcslen(r) : 0)))
MR_WRAP(wchar_t *, __fgetws_unlocked_chk, (wchar_t * b, size_t c, int n, FILE *f), (b, c, n, f), ST0(fgetws, f, got(f, r != NULL, r ? (int64_t)wcslen(r) : 0)))
MR_WRAP(wint_t, ungetwc, (wint_t c, FILE *f), (c, f), ST0(ungetwc, f, 0))
MR_WRAP(wint_t, fputwc, (wchar_t c, FILE *f), (c, f), ST0(fputwc, f, WPUTC))
MR_WRAP(wint_t, fputwc_unlocked, (wchar_t c, FILE *f), (c, f), ST0(fputwc, f, WPUTC))
MR_WRAP(wint_t, putwc, (wchar_t c, FILE *f), (c, f), ST0(putwc, f, WPUTC))
MR_WRAP(wint_t, putwc_unlocked, (wchar_t c, FILE *f), (c, f), ST0(putwc, f, WPUTC))
MR_WRAP(wint_t, putwchar, (wchar_t c), (c), ST0(putwchar, stdout, WPUTC))
MR_WRAP(wint_t, putwchar_unlocked, (wchar_t c), (c), ST0(putwchar, stdout, WPUTC))
MR_WRAP(int, fputws, (const wchar_t *s, FILE *f), (s, f), ST0(fputws, f, r == EOF ? -1 : (int64_t)wcslen(s)))
MR_WRAP(int, fputws_unlocked, (const wchar_t *s, FILE *f), (s, f), ST0(fputws, f, r == EOF ? -1 : (int64_t)wcslen(s)))

MR_WRAP(int, fflush, (FILE * f), (f), ST0(fflush, f, r))
MR_WRAP(int, fflush_unlocked, (FILE * f), (f), ST0(fflush, f, r))
#define SEEK(c, f, offset, result) put_stream(t0, t1, CALL(c), f, (uint64_t)(offset), (uint64_t)(result), (int64_t)(result))
MR_WRAP(int, fseek, (FILE * f, long o, int w), (f, o, w), SEEK(fseek, f, o, r))
MR_WRAP(int, fseeko, (FILE * f, int64_t o, int w), (f, o, w), SEEK(fseeko, f, o, r))
MR_ALIAS(fseeko64, fseeko)
MR_WRAP(long, ftell, (FILE * f), (f), ST0(ftell, f, r))
MR_WRAP(int64_t, ftello, (FILE * f), (f), ST0(ftello, f, r))
MR_ALIAS(ftello64, ftello)
MR_WRAP(int, fgetpos, (FILE * f, void *p), (f, p), ST0(fgetpos, f, r ? -1 : 0))
MR_ALIAS(fgetpos64, fgetpos)
MR_WRAP(int, fsetpos, (FILE * f, const void *p), (f, p), ST0(fsetpos, f, r ? -1 : 0))
MR_ALIAS(fsetpos64, fsetpos)
MR_WRAP(int, setvbuf, (FILE * f, char *b, int m, size_t n), (f, b, m, n), ST0(setvbuf, f, r ? -1 : 0))
MR_ALIAS(_IO_setvbuf, setvbuf)
MR_ALIAS(_IO_fflush, fflush)
MR_ALIAS(_IO_ftell, ftell)
MR_ALIAS(_IO_fgetpos, fgetpos)
MR_ALIAS(_IO_fgetpos64, fgetpos)
MR_ALIAS(_IO_fsetpos, fsetpos)
MR_ALIAS(_IO_fsetpos64, fsetpos)

/* getc_unlocked, putc_unlocked and their kin are inlined by the compiler: only every filling and emptying of the stream's buffer reaches the
 * library. They are recorded as getc and putc with the bytes of the buffer; what is left of output when the stream is closed, then. */
#define INLINED 64u
static _Atomic uintptr_t inlined[INLINED]; /* streams that were written to in this way */

static _Atomic uintptr_t *inlined_at(FILE *f)
{
    return &inlined[((uintptr_t)f * 0x9e3779b97f4a7c15ull) >> 58];
}

static int64_t unwritten(FILE *f)
{
    return f->_IO_write_ptr > f->_IO_write_base ? f->_IO_write_ptr - f->_IO_write_base : 0;
}

MR_WRAP(int, __uflow, (FILE * f), (f), ST0(getc, f, got(f, r != EOF, 1 + (f->_IO_read_end - f->_IO_read_ptr))))

MR_REAL(int, __overflow, (FILE * f, int c), (f, c))
MR_SYMBOL(int, __overflow, (FILE * f, int c))
{
    if (!mr_enter())
        return real___overflow(f, c);
    int64_t before = unwritten(f);
    uint64_t t0 = mr_stamp();
    int r = real___overflow(f, c);
    uint64_t t1 = mr_stamp();
    atomic_store_explicit(inlined_at(f), (uintptr_t)f, memory_order_relaxed);
    ST0(putc, f, r == EOF ? -1 : before + 1 - unwritten(f));
    return r;
}

/* Formatted output; the variable-argument names go through these. */
typedef const wchar_t *wide;
MR_WRAP(int, vfprintf, (FILE * f, path s, va_list a), (f, s, a), ST0(vfprintf, f, r))
MR_WRAP(int, vprintf, (path s, va_list a), (s, a), ST0(vprintf, stdout, r))
MR_WRAP(int, vdprintf, (int fd, path s, va_list a), (fd, s, a), FD0(vdprintf, fd, NONE))
MR_WRAP(int, __vfprintf_chk, (FILE * f, int g, path s, va_list a), (f, g, s, a), ST0(vfprintf, f, r))
MR_WRAP(int, __vprintf_chk, (int g, path s, va_list a), (g, s, a), ST0(vprintf, stdout, r))
MR_WRAP(int, __vdprintf_chk, (int fd, int g, path s, va_list a), (fd, g, s, a), FD0(vdprintf, fd, NONE))
MR_WRAP(int, vfwprintf, (FILE * f, wide s, va_list a), (f, s, a), ST0(vfwprintf, f, r))
MR_WRAP(int, vwprintf, (wide s, va_list a), (s, a), ST0(vwprintf, stdout, r))
MR_WRAP(int, __vfwprintf_chk, (FILE * f, int g, wide s, va_list a), (f, g, s, a), ST0(vfwprintf, f, r))
MR_WRAP(int, __vwprintf_chk, (int g, wide s, va_list a), (g, s, a), ST0(vwprintf, stdout, r))
/* Formatted input in the same way. Wide streams have pointers of their own, of which the first three are these; characters are counted, as everywhere for them. */
struct wide_place {
    const wchar_t *at, *end, *base;
};

static struct wide_place wide_place_of(FILE *f)
{
    return f->_mode > 0 && f->_wide_data ? *(const struct wide_place *)(const void *)f->_wide_data : (struct wide_place){0};
}

static int64_t taken_wide(FILE *f, struct wide_place before, int result)
{
    struct wide_place now = wide_place_of(f);
    bool same = now.end == before.end && now.at >= before.at;
    int64_t n = same ? now.at - before.at : before.end - before.at + (now.at - now.base);
    return result == EOF && ferror(f) ? -1 : n;
}
#define taken_place struct place
#define taken_start place_of
#define taken_wide_place struct wide_place
#define taken_wide_start wide_place_of

#define MR_SCAN(name, as, stream, params, args, count)                                                         \
    MR_REAL(int, name, params, args)                                                                                 \
    MR_SYMBOL(int, name, params)                                                                                     \
    {                                                                                                                \
        if (!mr_enter())                                                                                             \
            return real_##name args;                                                                                 \
        count##_place before = count##_start(stream);                                                                      \
        uint64_t t0 = mr_stamp();                                                                                    \
        int r = real_##name args;                                                                                    \
        uint64_t t1 = mr_stamp();                                                                                    \
        ST0(as, stream, count(stream, before, r));                                                                   \
        return r;                                                                                                    \
    }
MR_SCAN(vfscanf, vfscanf, f, (FILE * f, path s, va_list a), (f, s, a), taken)
MR_SCAN(vscanf, vscanf, stdin, (path s, va_list a), (s, a), taken)
MR_SCAN(__isoc99_vfscanf, vfscanf, f, (FILE * f, path s, va_list a), (f, s, a), taken)
MR_SCAN(__isoc99_vscanf, vscanf, stdin, (path s, va_list a), (s, a), taken)
MR_SCAN(__isoc23_vfscanf, vfscanf, f, (FILE * f, path s, va_list a), (f, s, a), taken)
MR_SCAN(__isoc23_vscanf, vscanf, stdin, (path s, va_list a), (s, a), taken)
MR_SCAN(vfwscanf, vfwscanf, f, (FILE * f, wide s, va_list a), (f, s, a), taken_wide)
MR_SCAN(vwscanf, vfwscanf, stdin, (wide s, va_list a), (s, a), taken_wide)
MR_SCAN(__isoc99_vfwscanf, vfwscanf, f, (FILE * f, wide s, va_list a), (f, s, a), taken_wide)
MR_SCAN(__isoc99_vwscanf, vfwscanf, stdin, (wide s, va_list a), (s, a), taken_wide)
MR_SCAN(__isoc23_vfwscanf, vfwscanf, f, (FILE * f, wide s, va_list a), (f, s, a), taken_wide)
MR_SCAN(__isoc23_vwscanf, vfwscanf, stdin, (wide s, va_list a), (s, a), taken_wide)
MR_ALIAS(__vfscanf, vfscanf)
MR_ALIAS(_IO_vfprintf, vfprintf)

/* name(first parameters, ...) recorded as `name`, done by `by`. */
#define MR_VARIADIC(name, last, params, by, args, ...)                                                               \
    MR_EXPORT int w_##name params __asm__(#name);                                                                    \
    int w_##name params                                                                                              \
    {                                                                                                                \
        va_list a;                                                                                                   \
        va_start(a, last);                                                                                           \
        bool on = mr_enter();                                                                                        \
        uint64_t t0 = mr_stamp();                                                                                    \
        int r = real_##by args;                                                                                      \
        uint64_t t1 = mr_stamp();                                                                                    \
        va_end(a);                                                                                                   \
        if (on) {                                                                                                    \
            __VA_ARGS__;                                                                                             \
        }                                                                                                            \
        return r;                                                                                                    \
    }
MR_VARIADIC(fprintf, s, (FILE * f, path s, ...), vfprintf, (f, s, a), ST0(fprintf, f, r))
MR_VARIADIC(printf, s, (path s, ...), vprintf, (s, a), ST0(printf, stdout, r))
MR_VARIADIC(dprintf, s, (int fd, path s, ...), vdprintf, (fd, s, a), FD0(dprintf, fd, NONE))
MR_VARIADIC(__fprintf_chk, s, (FILE * f, int g, path s, ...), __vfprintf_chk, (f, g, s, a), ST0(fprintf, f, r))
MR_VARIADIC(__printf_chk, s, (int g, path s, ...), __vprintf_chk, (g, s, a), ST0(printf, stdout, r))
MR_VARIADIC(__dprintf_chk, s, (int fd, int g, path s, ...), __vdprintf_chk, (fd, g, s, a), FD0(dprintf, fd, NONE))
MR_VARIADIC(fwprintf, s, (FILE * f, wide s, ...), vfwprintf, (f, s, a), ST0(fwprintf, f, r))
MR_VARIADIC(wprintf, s, (wide s, ...), vwprintf, (s, a), ST0(wprintf, stdout, r))
MR_VARIADIC(__fwprintf_chk, s, (FILE * f, int g, wide s, ...), __vfwprintf_chk, (f, g, s, a), ST0(fwprintf, f, r))
MR_VARIADIC(__wprintf_chk, s, (int g, wide s, ...), __vwprintf_chk, (g, s, a), ST0(wprintf, stdout, r))
#define MR_VSCAN(name, as, stream, params, by, args, count)                                                          \
    MR_EXPORT int w_##name params __asm__(#name);                                                                    \
    int w_##name params                                                                                              \
    {                                                                                                                \
        va_list a;                                                                                                   \
        va_start(a, s);                                                                                              \
        bool on = mr_enter();                                                                                        \
        count##_place before = count##_start(stream);                                                                      \
        uint64_t t0 = mr_stamp();                                                                                    \
        int r = real_##by args;                                                                                      \
        uint64_t t1 = mr_stamp();                                                                                    \
        va_end(a);                                                                                                   \
        if (on)                                                                                                      \
            ST0(as, stream, count(stream, before, r));                                                               \
        return r;                                                                                                    \
    }
MR_VSCAN(fscanf, fscanf, f, (FILE * f, path s, ...), vfscanf, (f, s, a), taken)
MR_VSCAN(scanf, scanf, stdin, (path s, ...), vscanf, (s, a), taken)
MR_VSCAN(__isoc99_fscanf, fscanf, f, (FILE * f, path s, ...), __isoc99_vfscanf, (f, s, a), taken)
MR_VSCAN(__isoc99_scanf, scanf, stdin, (path s, ...), __isoc99_vscanf, (s, a), taken)
MR_VSCAN(__isoc23_fscanf, fscanf, f, (FILE * f, path s, ...), __isoc23_vfscanf, (f, s, a), taken)
MR_VSCAN(__isoc23_scanf, scanf, stdin, (path s, ...), __isoc23_vscanf, (s, a), taken)
MR_VSCAN(fwscanf, fwscanf, f, (FILE * f, wide s, ...), vfwscanf, (f, s, a), taken_wide)
MR_VSCAN(wscanf, fwscanf, stdin, (wide s, ...), vwscanf, (s, a), taken_wide)
MR_VSCAN(__isoc99_fwscanf, fwscanf, f, (FILE * f, wide s, ...), __isoc99_vfwscanf, (f, s, a), taken_wide)
MR_VSCAN(__isoc99_wscanf, fwscanf, stdin, (wide s, ...), __isoc99_vwscanf, (s, a), taken_wide)
MR_VSCAN(__isoc23_fwscanf, fwscanf, f, (FILE * f, wide s, ...), __isoc23_vfwscanf, (f, s, a), taken_wide)
MR_VSCAN(__isoc23_wscanf, fwscanf, stdin, (wide s, ...), __isoc23_vwscanf, (s, a), taken_wide)
MR_ALIAS(_IO_printf, printf)
MR_ALIAS(_IO_fprintf, fprintf)

MR_WRAP(int, fcloseall, (void), (), mr_put(t0, t1, CALL(fcloseall), 0, 0, NONE, r ? -errno : 0))

/* ---- closing: the descriptor is known only before ---- */

MR_REAL(int, fclose, (FILE * f), (f))
MR_SYMBOL(int, fclose, (FILE * f))
{
    if (!mr_enter() || !f)
        return real_fclose(f);
    int keep = errno, fd = fileno(f);
    int64_t rest = atomic_load_explicit(inlined_at(f), memory_order_relaxed) == (uintptr_t)f ? unwritten(f) : 0;
    uint32_t file = mr_file_closing(fd);
    errno = keep;
    uint64_t t0 = mr_stamp();
    int r = real_fclose(f);
    uint64_t t1 = mr_stamp();
    if (rest && file != MR_FILE_EXCLUDED)
        mr_put(t0, t0, CALL(putc), file, fd >= 0 ? (uint32_t)MR_MIN(fd, 0xfffe) + 1 : 0, NONE, rest);
    if (fd < 0)
        put_nameless(t0, t1, CALL(fclose), NONE, r ? -errno : 0);
    else if (file != MR_FILE_EXCLUDED)
        mr_put(t0, t1, CALL(fclose), file, fd >= 0 ? (uint32_t)MR_MIN(fd, 0xfffe) + 1 : 0, NONE, r ? -errno : 0);
    return r;
}
MR_ALIAS(_IO_fclose, fclose)

MR_REAL(FILE *, freopen, (path p, path m, FILE *f), (p, m, f))
MR_SYMBOL(FILE *, freopen, (path p, path m, FILE *f))
{
    if (!mr_enter() || !f)
        return real_freopen(p, m, f);
    int keep = errno, before = fileno(f);
    errno = keep;
    uint64_t t0 = mr_stamp();
    FILE *r = real_freopen(p, m, f);
    uint64_t t1 = mr_stamp();
    if (r && !p) { /* another mode for the same file */
        ST0(freopen, r, fileno(r));
        return r;
    }
    if (!r && before >= 0)
        mr_file_set(before, 0); /* it is closed all the same */
    put_fopen(t0, t1, CALL(freopen), p, r);
    return r;
}
MR_ALIAS(freopen64, freopen)

MR_VOID(setbuf, (FILE * f, char *b), (f, b), ST0(setvbuf, f, 0))
MR_VOID(setbuffer, (FILE * f, char *b, size_t n), (f, b, n), ST0(setvbuf, f, 0))
MR_VOID(setlinebuf, (FILE * f), (f), ST0(setvbuf, f, 0))

static void boot_rewind(FILE *f);
static void (*real_rewind)(FILE *) = boot_rewind;
static void boot_rewind(FILE *f)
{
    *(void **)&real_rewind = mr_next("rewind");
    real_rewind(f);
}
MR_SYMBOL(void, rewind, (FILE * f))
{
    bool on = mr_enter();
    uint64_t t0 = mr_stamp();
    real_rewind(f);
    uint64_t t1 = mr_stamp();
    if (on)
        ST0(rewind, f, 0);
}

static void boot_perror(path s);
static void (*real_perror)(path) = boot_perror;
static void boot_perror(path s)
{
    *(void **)&real_perror = mr_next("perror");
    real_perror(s);
}
MR_SYMBOL(void, perror, (path s))
{
    bool on = mr_enter();
    uint64_t t0 = mr_stamp();
    real_perror(s);
    uint64_t t1 = mr_stamp();
    if (on)
        ST0(perror, stderr, 0);
}
