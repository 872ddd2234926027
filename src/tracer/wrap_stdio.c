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

/* getc_unlocked, putc_unlocked and their kin are inlined by the compiler: only the filling and emptying of a stream's
 * buffer reaches the library. So it is noted where the pointers of a stream stand after each call; what they have moved
 * since then is the program's own doing, recorded as getc and putc at the next call on the stream. Where there are
 * threads that goes only for streams that were filled or emptied in this way before: on others it may be what another
 * thread is doing in a call just now. */
#define NOTED 64u
struct noted {
    _Atomic uintptr_t stream, inlined; /* the same where the program moves the pointers itself, else 0 */
    _Atomic uintptr_t read_at, write_at;
};
static struct noted noted[NOTED];

static struct noted *noted_at(const FILE *f)
{
    return &noted[((uintptr_t)f * 0x9e3779b97f4a7c15ull) >> 58];
}

static uintptr_t load(_Atomic uintptr_t *v)
{
    return atomic_load_explicit(v, memory_order_relaxed);
}

static void store(_Atomic uintptr_t *v, const void *to)
{
    atomic_store_explicit(v, (uintptr_t)to, memory_order_relaxed);
}

static void note(const FILE *f)
{
    struct noted *n = noted_at(f);
    if (load(&n->stream) != (uintptr_t)f) {
        if (load(&n->inlined))
            return; /* another one needs the place more */
        store(&n->stream, f);
    }
    store(&n->read_at, f->_IO_read_ptr);
    store(&n->write_at, f->_IO_write_ptr);
}

static void put_stream(uint64_t t0, uint64_t t1, unsigned call, FILE *f, uint64_t offset, uint64_t count,
                       int64_t result)
{
    int keep = errno, fd = f ? fileno(f) : -1;
    if (result < 0) {
        count = count == (uint64_t)result ? (uint64_t) - (int64_t)keep : count; /* nobody knows what was asked for */
        result = -(int64_t)keep;
    }
    errno = keep;
    if (fd >= 0)
        mr_put_fd(t0, t1, call, fd, offset, count, result);
    else
        put_nameless(t0, t1, call, offset, result);
    if (f)
        note(f);
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

/* Bytes that the program has taken out of the stream's buffer by itself, and put there. */
static inline int64_t read_inlined(const FILE *f)
{
    struct noted *n = noted_at(f);
    uintptr_t at = load(&n->read_at);
    bool known =
        load(&n->stream) == (uintptr_t)f && at >= (uintptr_t)f->_IO_read_base && at <= (uintptr_t)f->_IO_read_ptr;
    return known ? (int64_t)((uintptr_t)f->_IO_read_ptr - at) : 0;
}

static inline int64_t written_inlined(const FILE *f)
{
    struct noted *n = noted_at(f);
    if (load(&n->stream) != (uintptr_t)f) /* not even looked at: it may be none (T1), or closed, as stdout at the end */
        return 0;
    uintptr_t base = (uintptr_t)f->_IO_write_base, end = (uintptr_t)f->_IO_write_ptr, at = load(&n->write_at);
    if (end <= base)
        return 0;
    return (int64_t)(end - (at >= base && at <= end ? at : base)); /* else it has been emptied since, with all others */
}

static void inlined_from_now(const FILE *f)
{
    struct noted *n = noted_at(f);
    note(f);
    if (load(&n->stream) == (uintptr_t)f)
        store(&n->inlined, f);
}

static void put_inlined(FILE *f)
{
    uint64_t now = mr_stamp();
    int64_t taken = read_inlined(f), put = written_inlined(f);
    if (taken)
        put_stream(now, now, CALL(getc), f, NONE, (uint64_t)taken, taken);
    if (put)
        put_stream(now, now, CALL(putc), f, NONE, (uint64_t)put, put);
    if (taken || put)
        inlined_from_now(f);
}

extern char __libc_single_threaded __attribute__((weak)); /* since glibc 2.32 */
extern FILE *_IO_list_all __attribute__((weak));

static inline bool alone(void)
{
    return &__libc_single_threaded && __libc_single_threaded;
}

/* Before every call on a stream. */
static inline void catch_up(FILE *f)
{
    if (f && (alone() || load(&noted_at(f)->inlined) == (uintptr_t)f) &&
        MR_UNLIKELY(read_inlined(f) || written_inlined(f)))
        put_inlined(f);
}

/* Before calls on all of them. Other threads may be closing theirs. */
static void catch_up_all(void)
{
    for (FILE *f = alone() && &_IO_list_all ? _IO_list_all : NULL; f; f = f->_chain)
        catch_up(f);
    catch_up(stdin);
    catch_up(stdout);
}

void mr_streams_forget(void)
{
    for (unsigned i = 0; i < NOTED; i++) {
        store(&noted[i].stream, NULL);
        store(&noted[i].inlined, NULL);
    }
}

void mr_stream_closing(FILE *f)
{
    struct noted *n = noted_at(f);
    catch_up(f);
    if (load(&n->inlined) == (uintptr_t)f)
        store(&n->inlined, NULL);
    if (load(&n->stream) == (uintptr_t)f)
        store(&n->stream, NULL);
}

static void __attribute__((destructor)) at_exit(void)
{
    if (mr_enter())
        catch_up_all();
}

/* As MR_WRAP, of a call on a stream. */
#define MR_STREAM(ret, name, stream, params, args, ...)                                                                \
    MR_REAL(ret, name, params, args)                                                                                   \
    MR_SYMBOL(ret, name, params)                                                                                       \
    {                                                                                                                  \
        if (!mr_enter())                                                                                               \
            return real_##name args;                                                                                   \
        catch_up(stream);                                                                                              \
        uint64_t t0 = mr_stamp();                                                                                      \
        ret r = real_##name args;                                                                                      \
        uint64_t t1 = mr_stamp();                                                                                      \
        __VA_ARGS__;                                                                                                   \
        return r;                                                                                                      \
    }

#define MR_STREAM_2(ret, name, name64, stream, params, args, ...)                                                      \
    MR_STREAM(ret, name, stream, params, args, __VA_ARGS__)                                                            \
    MR_STREAM(ret, name64, stream, params, args, __VA_ARGS__)

static void put_fopen(uint64_t t0, uint64_t t1, unsigned call, path p, FILE *f)
{
    int keep = errno;
    mr_put_open(t0, t1, call, CWD, p, NONE, f ? fileno(f) : -1);
    errno = keep;
}

MR_WRAP_2(FILE *, fopen, fopen64, (path p, path m), (p, m), put_fopen(t0, t1, CALL(fopen), p, r))
MR_ALIAS(_IO_fopen, fopen)
MR_WRAP(FILE *, setmntent, (path p, path m), (p, m), put_fopen(t0, t1, CALL(fopen), p, r))
MR_ALIAS(__setmntent, setmntent)
MR_WRAP(FILE *, fdopen, (int fd, path m), (fd, m),
        mr_put_fd(t0, t1, CALL(fdopen), fd, NONE, (uint64_t)(r ? fd : -errno), r ? fd : -errno))
MR_ALIAS(_IO_fdopen, fdopen)
MR_WRAP_2(FILE *, tmpfile, tmpfile64, (void), (), mr_file_set(r ? fileno(r) : -1, 0);
          ST0(tmpfile, r, r ? fileno(r) : -1))
MR_WRAP(FILE *, fmemopen, (void *b, size_t n, path m), (b, n, m),
        put_nameless(t0, t1, CALL(fmemopen), NONE, r ? 0 : -errno))
MR_WRAP(FILE *, open_memstream, (char **b, size_t *n), (b, n),
        put_nameless(t0, t1, CALL(open_memstream), NONE, r ? 0 : -errno))
MR_WRAP(FILE *, open_wmemstream, (wchar_t * *b, size_t *n), (b, n),
        put_nameless(t0, t1, CALL(open_memstream), NONE, r ? 0 : -errno))
MR_WRAP(FILE *, fopencookie, (void *c, path m, cookie_io_functions_t f), (c, m, f),
        put_nameless(t0, t1, CALL(fopencookie), NONE, r ? 0 : -errno))

/* Asked for bytes instead of items the C library does the same and says how many it took of the last item, which is cut
 * short at the end of the file. If the product does not fit, what happens is its own affair. */
#define MR_FREAD(name, params, args, bytewise)                                                                         \
    MR_REAL(size_t, name, params, args)                                                                                \
    MR_SYMBOL(size_t, name, params)                                                                                    \
    {                                                                                                                  \
        size_t bytes;                                                                                                  \
        bool by_items = __builtin_mul_overflow(s, n, &bytes) || !bytes;                                                \
        if (!mr_enter())                                                                                               \
            return real_##name args;                                                                                   \
        catch_up(f);                                                                                                   \
        uint64_t t0 = mr_stamp();                                                                                      \
        size_t r = by_items ? real_##name args : real_##name bytewise;                                                 \
        uint64_t t1 = mr_stamp();                                                                                      \
        if (by_items) {                                                                                                \
            ST(fread, f, bytes, r *s);                                                                                 \
            return r;                                                                                                  \
        }                                                                                                              \
        ST(fread, f, bytes, got(f, r > 0, (int64_t)r));                                                                \
        return r == bytes ? n : r / s;                                                                                 \
    }
MR_FREAD(fread, (void *b, size_t s, size_t n, FILE *f), (b, s, n, f), (b, 1, bytes, f))
MR_ALIAS(_IO_fread, fread)
MR_FREAD(fread_unlocked, (void *b, size_t s, size_t n, FILE *f), (b, s, n, f), (b, 1, bytes, f))
MR_FREAD(__fread_chk, (void *b, size_t c, size_t s, size_t n, FILE *f), (b, c, s, n, f), (b, c, 1, bytes, f))
MR_FREAD(__fread_unlocked_chk, (void *b, size_t c, size_t s, size_t n, FILE *f), (b, c, s, n, f), (b, c, 1, bytes, f))
#define PUT_ITEMS (r || !s || !n ? (int64_t)(r * s) : -1)
MR_STREAM(size_t, fwrite, f, (const void *b, size_t s, size_t n, FILE *f), (b, s, n, f), ST(fwrite, f, s *n, PUT_ITEMS))
MR_ALIAS(_IO_fwrite, fwrite)
MR_STREAM(size_t, fwrite_unlocked, f, (const void *b, size_t s, size_t n, FILE *f), (b, s, n, f),
          ST(fwrite, f, s *n, PUT_ITEMS))

/* Some calls do not say how many bytes they took; the read pointers of the stream do: exactly as long as one call takes
 * less than a whole buffer after the first refill. */
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

/* Of a line with NULs in it the text is only the beginning. What the pointers say may be another thread's doing: it
 * must look like a whole line. */
static int64_t line_bytes(FILE *f, struct place before, const char *line, int room)
{
    int64_t text = line ? (int64_t)strlen(line) : 0, n = line && text < room - 1 ? taken(f, before, 0) : 0;
    if (n > text && n < room && !line[n] && (line[n - 1] == '\n' || n == room - 1 || feof(f)))
        return n;
    return got(f, line != NULL, text);
}

#define MR_GETS(name, as, stream, room, params, args)                                                                  \
    MR_REAL(char *, name, params, args)                                                                                \
    MR_SYMBOL(char *, name, params)                                                                                    \
    {                                                                                                                  \
        if (!mr_enter())                                                                                               \
            return real_##name args;                                                                                   \
        catch_up(stream);                                                                                              \
        struct place before = place_of(stream);                                                                        \
        uint64_t t0 = mr_stamp();                                                                                      \
        char *r = real_##name args;                                                                                    \
        uint64_t t1 = mr_stamp();                                                                                      \
        ST0(as, stream, line_bytes(stream, before, r, room));                                                          \
        return r;                                                                                                      \
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
MR_STREAM(int, fgetc, f, (FILE * f), (f), ST0(fgetc, f, GETC(f)))
MR_STREAM(int, fgetc_unlocked, f, (FILE * f), (f), ST0(fgetc, f, GETC(f)))
MR_STREAM(int, getc, f, (FILE * f), (f), ST0(getc, f, GETC(f)))
MR_ALIAS(_IO_getc, getc)
MR_STREAM(int, getc_unlocked, f, (FILE * f), (f), ST0(getc, f, GETC(f)))
MR_STREAM(int, getchar, stdin, (void), (), ST0(getchar, stdin, GETC(stdin)))
MR_STREAM(int, getchar_unlocked, stdin, (void), (), ST0(getchar, stdin, GETC(stdin)))
MR_STREAM(int, getw, f, (FILE * f), (f), ST0(getw, f, got(f, !feof(f), 4)))
MR_STREAM(int, ungetc, f, (int c, FILE *f), (c, f), ST0(ungetc, f, 0))
MR_ALIAS(_IO_ungetc, ungetc)
MR_STREAM(ssize_t, getline, f, (char **b, size_t *n, FILE *f), (b, n, f), ST0(getline, f, got(f, r >= 0, r)))
MR_STREAM(ssize_t, getdelim, f, (char **b, size_t *n, int d, FILE *f), (b, n, d, f),
          put_stream(t0, t1, d == 10 ? CALL(getline) : CALL(getdelim), f, NONE, (uint64_t)got(f, r >= 0, r),
                     got(f, r >= 0, r)))
MR_ALIAS(__getdelim, getdelim)

#define PUTC (r == EOF ? -1 : 1)
MR_STREAM(int, fputc, f, (int c, FILE *f), (c, f), ST0(fputc, f, PUTC))
MR_STREAM(int, fputc_unlocked, f, (int c, FILE *f), (c, f), ST0(fputc, f, PUTC))
MR_STREAM(int, putc, f, (int c, FILE *f), (c, f), ST0(putc, f, PUTC))
MR_ALIAS(_IO_putc, putc)
MR_STREAM(int, putc_unlocked, f, (int c, FILE *f), (c, f), ST0(putc, f, PUTC))
MR_STREAM(int, putchar, stdout, (int c), (c), ST0(putchar, stdout, PUTC))
MR_STREAM(int, putchar_unlocked, stdout, (int c), (c), ST0(putchar, stdout, PUTC))
MR_STREAM(int, putw, f, (int v, FILE *f), (v, f), ST0(putw, f, r == EOF ? -1 : 4))
MR_STREAM(int, fputs, f, (path s, FILE *f), (s, f), ST0(fputs, f, r == EOF ? -1 : (int64_t)strlen(s)))
MR_ALIAS(_IO_fputs, fputs)
MR_STREAM(int, fputs_unlocked, f, (path s, FILE *f), (s, f), ST0(fputs, f, r == EOF ? -1 : (int64_t)strlen(s)))
MR_STREAM(int, puts, stdout, (path s), (s), ST0(puts, stdout, r == EOF ? -1 : (int64_t)strlen(s) + 1))
MR_ALIAS(_IO_puts, puts)

#define WGETC(f) got(f, r != WEOF, 1)
#define WPUTC (r == WEOF ? -1 : 1)
MR_STREAM(wint_t, fgetwc, f, (FILE * f), (f), ST0(fgetwc, f, WGETC(f)))
MR_STREAM(wint_t, fgetwc_unlocked, f, (FILE * f), (f), ST0(fgetwc, f, WGETC(f)))
MR_STREAM(wint_t, getwc, f, (FILE * f), (f), ST0(getwc, f, WGETC(f)))
MR_STREAM(wint_t, getwc_unlocked, f, (FILE * f), (f), ST0(getwc, f, WGETC(f)))
MR_STREAM(wint_t, getwchar, stdin, (void), (), ST0(getwchar, stdin, WGETC(stdin)))
MR_STREAM(wint_t, getwchar_unlocked, stdin, (void), (), ST0(getwchar, stdin, WGETC(stdin)))
MR_STREAM(wchar_t *, fgetws, f, (wchar_t * b, int n, FILE *f), (b, n, f),
          ST0(fgetws, f, got(f, r != NULL, r ? (int64_t)wcslen(r) : 0)))
MR_STREAM(wchar_t *, fgetws_unlocked, f, (wchar_t * b, int n, FILE *f), (b, n, f),
          ST0(fgetws, f, got(f, r != NULL, r ? (int64_t)wcslen(r) : 0)))
MR_STREAM(wchar_t *, __fgetws_chk, f, (wchar_t * b, size_t c, int n, FILE *f), (b, c, n, f),
          ST0(fgetws, f, got(f, r != NULL, r ? (int64_t)wcslen(r) : 0)))
MR_STREAM(wchar_t *, __fgetws_unlocked_chk, f, (wchar_t * b, size_t c, int n, FILE *f), (b, c, n, f),
          ST0(fgetws, f, got(f, r != NULL, r ? (int64_t)wcslen(r) : 0)))
MR_STREAM(wint_t, ungetwc, f, (wint_t c, FILE *f), (c, f), ST0(ungetwc, f, 0))
MR_STREAM(wint_t, fputwc, f, (wchar_t c, FILE *f), (c, f), ST0(fputwc, f, WPUTC))
MR_STREAM(wint_t, fputwc_unlocked, f, (wchar_t c, FILE *f), (c, f), ST0(fputwc, f, WPUTC))
MR_STREAM(wint_t, putwc, f, (wchar_t c, FILE *f), (c, f), ST0(putwc, f, WPUTC))
MR_STREAM(wint_t, putwc_unlocked, f, (wchar_t c, FILE *f), (c, f), ST0(putwc, f, WPUTC))
MR_STREAM(wint_t, putwchar, stdout, (wchar_t c), (c), ST0(putwchar, stdout, WPUTC))
MR_STREAM(wint_t, putwchar_unlocked, stdout, (wchar_t c), (c), ST0(putwchar, stdout, WPUTC))
MR_STREAM(int, fputws, f, (const wchar_t *s, FILE *f), (s, f), ST0(fputws, f, r == EOF ? -1 : (int64_t)wcslen(s)))
MR_STREAM(int, fputws_unlocked, f, (const wchar_t *s, FILE *f), (s, f),
          ST0(fputws, f, r == EOF ? -1 : (int64_t)wcslen(s)))

/* All streams are empty: what is found in them from now on is new. */
static void emptied_all(void)
{
    for (unsigned i = 0; i < NOTED; i++)
        store(&noted[i].write_at, NULL);
}

#define MR_FLUSH(name)                                                                                                 \
    MR_REAL(int, name, (FILE * f), (f))                                                                                \
    MR_SYMBOL(int, name, (FILE * f))                                                                                   \
    {                                                                                                                  \
        if (!mr_enter())                                                                                               \
            return real_##name(f);                                                                                     \
        f ? catch_up(f) : catch_up_all();                                                                              \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = real_##name(f);                                                                                        \
        uint64_t t1 = mr_stamp();                                                                                      \
        ST0(fflush, f, r);                                                                                             \
        if (!f && !r && alone())                                                                                       \
            emptied_all();                                                                                             \
        return r;                                                                                                      \
    }
MR_FLUSH(fflush)
MR_FLUSH(fflush_unlocked)
#define SEEK(c, f, offset, result)                                                                                     \
    put_stream(t0, t1, CALL(c), f, (uint64_t)(offset), (uint64_t)(result), (int64_t)(result))
MR_STREAM(int, fseek, f, (FILE * f, long o, int w), (f, o, w), SEEK(fseek, f, o, r))
MR_STREAM_2(int, fseeko, fseeko64, f, (FILE * f, int64_t o, int w), (f, o, w), SEEK(fseeko, f, o, r))
MR_STREAM(long, ftell, f, (FILE * f), (f), ST0(ftell, f, r))
MR_STREAM_2(int64_t, ftello, ftello64, f, (FILE * f), (f), ST0(ftello, f, r))
MR_STREAM_2(int, fgetpos, fgetpos64, f, (FILE * f, void *p), (f, p), ST0(fgetpos, f, r ? -1 : 0))
MR_STREAM_2(int, fsetpos, fsetpos64, f, (FILE * f, const void *p), (f, p), ST0(fsetpos, f, r ? -1 : 0))
MR_STREAM(int, setvbuf, f, (FILE * f, char *b, int m, size_t n), (f, b, m, n), ST0(setvbuf, f, r ? -1 : 0))
MR_ALIAS(_IO_setvbuf, setvbuf)
MR_ALIAS(_IO_fflush, fflush)
MR_ALIAS(_IO_ftell, ftell)
MR_ALIAS(_IO_fgetpos, fgetpos)
MR_ALIAS(_IO_fgetpos64, fgetpos)
MR_ALIAS(_IO_fsetpos, fsetpos)
MR_ALIAS(_IO_fsetpos64, fsetpos)

/* What inlined functions call when the buffer is empty, or full. */
MR_REAL(int, __uflow, (FILE * f), (f))
MR_SYMBOL(int, __uflow, (FILE * f))
{
    if (!mr_enter())
        return real___uflow(f);
    int64_t n = read_inlined(f);
    inlined_from_now(f);
    uint64_t t0 = mr_stamp();
    int r = real___uflow(f);
    uint64_t t1 = mr_stamp();
    ST0(getc, f, got(f, n || r != EOF, n + (r != EOF)));
    return r;
}

MR_REAL(int, __overflow, (FILE * f, int c), (f, c))
MR_SYMBOL(int, __overflow, (FILE * f, int c))
{
    if (!mr_enter())
        return real___overflow(f, c);
    int64_t n = written_inlined(f);
    inlined_from_now(f);
    uint64_t t0 = mr_stamp();
    int r = real___overflow(f, c);
    uint64_t t1 = mr_stamp();
    ST0(putc, f, r == EOF ? -1 : n + (c != EOF));
    return r;
}

/* Formatted output; the variable-argument names go through these. */
typedef const wchar_t *wide;
MR_STREAM(int, vfprintf, f, (FILE * f, path s, va_list a), (f, s, a), ST0(vfprintf, f, r))
MR_STREAM(int, vprintf, stdout, (path s, va_list a), (s, a), ST0(vprintf, stdout, r))
MR_WRAP(int, vdprintf, (int fd, path s, va_list a), (fd, s, a), FD0(vdprintf, fd, NONE))
MR_STREAM(int, __vfprintf_chk, f, (FILE * f, int g, path s, va_list a), (f, g, s, a), ST0(vfprintf, f, r))
MR_STREAM(int, __vprintf_chk, stdout, (int g, path s, va_list a), (g, s, a), ST0(vprintf, stdout, r))
MR_WRAP(int, __vdprintf_chk, (int fd, int g, path s, va_list a), (fd, g, s, a), FD0(vdprintf, fd, NONE))
MR_STREAM(int, vfwprintf, f, (FILE * f, wide s, va_list a), (f, s, a), ST0(vfwprintf, f, r))
MR_STREAM(int, vwprintf, stdout, (wide s, va_list a), (s, a), ST0(vwprintf, stdout, r))
MR_STREAM(int, __vfwprintf_chk, f, (FILE * f, int g, wide s, va_list a), (f, g, s, a), ST0(vfwprintf, f, r))
MR_STREAM(int, __vwprintf_chk, stdout, (int g, wide s, va_list a), (g, s, a), ST0(vwprintf, stdout, r))
/* Formatted input in the same way. Wide streams have pointers of their own, of which the first three are these;
 * characters are counted, as everywhere for them. */
struct wide_place {
    const wchar_t *at, *end, *base;
};

static struct wide_place wide_place_of(FILE *f)
{
    return f->_mode > 0 && f->_wide_data ? *(const struct wide_place *)(const void *)f->_wide_data
                                         : (struct wide_place){0};
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

#define MR_SCAN(name, as, stream, params, args, count)                                                                 \
    MR_REAL(int, name, params, args)                                                                                   \
    MR_SYMBOL(int, name, params)                                                                                       \
    {                                                                                                                  \
        if (!mr_enter())                                                                                               \
            return real_##name args;                                                                                   \
        catch_up(stream);                                                                                              \
        count##_place before = count##_start(stream);                                                                  \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = real_##name args;                                                                                      \
        uint64_t t1 = mr_stamp();                                                                                      \
        ST0(as, stream, count(stream, before, r));                                                                     \
        return r;                                                                                                      \
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
#define MR_VARIADIC(name, last, before, params, by, args, ...)                                                         \
    MR_EXPORT int w_##name params __asm__(#name);                                                                      \
    int w_##name params                                                                                                \
    {                                                                                                                  \
        va_list a;                                                                                                     \
        va_start(a, last);                                                                                             \
        bool on = mr_enter();                                                                                          \
        if (on)                                                                                                        \
            before;                                                                                                    \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = real_##by args;                                                                                        \
        uint64_t t1 = mr_stamp();                                                                                      \
        va_end(a);                                                                                                     \
        if (on) {                                                                                                      \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
        return r;                                                                                                      \
    }
MR_VARIADIC(fprintf, s, catch_up(f), (FILE * f, path s, ...), vfprintf, (f, s, a), ST0(fprintf, f, r))
MR_VARIADIC(printf, s, catch_up(stdout), (path s, ...), vprintf, (s, a), ST0(printf, stdout, r))
MR_VARIADIC(dprintf, s, (void)0, (int fd, path s, ...), vdprintf, (fd, s, a), FD0(dprintf, fd, NONE))
MR_VARIADIC(__fprintf_chk, s, catch_up(f), (FILE * f, int g, path s, ...), __vfprintf_chk, (f, g, s, a),
            ST0(fprintf, f, r))
MR_VARIADIC(__printf_chk, s, catch_up(stdout), (int g, path s, ...), __vprintf_chk, (g, s, a), ST0(printf, stdout, r))
MR_VARIADIC(__dprintf_chk, s, (void)0, (int fd, int g, path s, ...), __vdprintf_chk, (fd, g, s, a),
            FD0(dprintf, fd, NONE))
MR_VARIADIC(fwprintf, s, catch_up(f), (FILE * f, wide s, ...), vfwprintf, (f, s, a), ST0(fwprintf, f, r))
MR_VARIADIC(wprintf, s, catch_up(stdout), (wide s, ...), vwprintf, (s, a), ST0(wprintf, stdout, r))
MR_VARIADIC(__fwprintf_chk, s, catch_up(f), (FILE * f, int g, wide s, ...), __vfwprintf_chk, (f, g, s, a),
            ST0(fwprintf, f, r))
MR_VARIADIC(__wprintf_chk, s, catch_up(stdout), (int g, wide s, ...), __vwprintf_chk, (g, s, a),
            ST0(wprintf, stdout, r))
#define MR_VSCAN(name, as, stream, params, by, args, count)                                                            \
    MR_EXPORT int w_##name params __asm__(#name);                                                                      \
    int w_##name params                                                                                                \
    {                                                                                                                  \
        va_list a;                                                                                                     \
        va_start(a, s);                                                                                                \
        bool on = mr_enter();                                                                                          \
        if (on)                                                                                                        \
            catch_up(stream);                                                                                          \
        count##_place before = count##_start(stream);                                                                  \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = real_##by args;                                                                                        \
        uint64_t t1 = mr_stamp();                                                                                      \
        va_end(a);                                                                                                     \
        if (on)                                                                                                        \
            ST0(as, stream, count(stream, before, r));                                                                 \
        return r;                                                                                                      \
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

MR_WRAP(int, fcloseall, (void), (), mr_streams_forget(); mr_put(t0, t1, CALL(fcloseall), 0, 0, NONE, r ? -errno : 0))

/* ---- closing: the descriptor is known only before ---- */

#define MR_CLOSES_STREAM(name, failed)                                                                                 \
    MR_REAL(int, name, (FILE * f), (f))                                                                                \
    MR_SYMBOL(int, name, (FILE * f))                                                                                   \
    {                                                                                                                  \
        if (!mr_enter() || !f)                                                                                         \
            return real_##name(f);                                                                                     \
        int keep = errno, fd = fileno(f);                                                                              \
        mr_stream_closing(f);                                                                                          \
        uint32_t file = mr_file_closing(fd);                                                                           \
        errno = keep;                                                                                                  \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = real_##name(f);                                                                                        \
        uint64_t t1 = mr_stamp();                                                                                      \
        if (fd < 0)                                                                                                    \
            put_nameless(t0, t1, CALL(fclose), NONE, failed ? -errno : 0);                                             \
        else if (file != MR_FILE_EXCLUDED)                                                                             \
            mr_put(t0, t1, CALL(fclose), file, mr_fd1(fd), NONE, failed ? -errno : 0);                                 \
        if (MR_UNLIKELY(mr_core.python_waits)) /* Python closes its script before it runs it */                        \
            mr_python_opened();                                                                                        \
        return r;                                                                                                      \
    }
MR_CLOSES_STREAM(fclose, r)
MR_ALIAS(_IO_fclose, fclose)
MR_CLOSES_STREAM(endmntent, !r)
MR_ALIAS(__endmntent, endmntent)

#define MR_FREOPEN(name)                                                                                               \
    MR_REAL(FILE *, name, (path p, path m, FILE * f), (p, m, f))                                                       \
    MR_SYMBOL(FILE *, name, (path p, path m, FILE * f))                                                                \
    {                                                                                                                  \
        if (!mr_enter() || !f)                                                                                         \
            return real_##name(p, m, f);                                                                               \
        int keep = errno, before = fileno(f);                                                                          \
        errno = keep;                                                                                                  \
        mr_stream_closing(f);                                                                                          \
        uint64_t t0 = mr_stamp();                                                                                      \
        FILE *r = real_##name(p, m, f);                                                                                \
        uint64_t t1 = mr_stamp();                                                                                      \
        if (r && !p) { /* another mode for the same file */                                                            \
            ST0(freopen, r, fileno(r));                                                                                \
            return r;                                                                                                  \
        }                                                                                                              \
        if (!r && before >= 0)                                                                                         \
            mr_file_set(before, 0); /* it is closed all the same */                                                    \
        put_fopen(t0, t1, CALL(freopen), p, r);                                                                        \
        return r;                                                                                                      \
    }
MR_FREOPEN(freopen)
MR_FREOPEN(freopen64)

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
    if (on)
        catch_up(f);
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
static int64_t perror_bytes(path s, int number)
{
    char b[256];
    int keep = errno;
    size_t n = strlen(strerror_r(number, b, sizeof(b))) + 1;
    errno = keep;
    return (int64_t)(n + (s && *s ? strlen(s) + 2 : 0));
}
MR_SYMBOL(void, perror, (path s))
{
    bool on = mr_enter();
    int number = errno;
    uint64_t t0 = mr_stamp();
    real_perror(s);
    uint64_t t1 = mr_stamp();
    if (on)
        ST0(perror, stderr, perror_bytes(s, number));
}
