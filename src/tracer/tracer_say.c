/* What the tracer says on the program's stderr, and text without the C library: it may be called anywhere, also in a
 * signal handler, and must not allocate. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"

#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

long mr_write_quietly(long fd, const struct iovec *parts, unsigned n)
{
    const uint64_t raised = 1ull << (SIGPIPE - 1) | 1ull << (SIGXFSZ - 1);
    const struct timespec now = {0};
    uint64_t before = mr_signals_block();
    long r = mr_sys3(SYS_writev, fd, parts, n);
    if (r == -EPIPE || r == -EFBIG) /* the signal is pending: consume it */
        mr_sys4(SYS_rt_sigtimedwait, &raised, NULL, &now, sizeof(raised));
    mr_signals_restore(before);
    return r;
}

static void say_line(const char *line, size_t n)
{
    mr_write_quietly(2, &(struct iovec){(void *)line, n}, 1);
}

/* The common ones; strerror may allocate memory. */
static const char *error_text(long error)
{
    switch (error) {
    case EACCES: return "permission denied";
    case EPERM: return "operation not permitted";
    case ENOENT: return "no such folder";
    case ENOTDIR: return "not a folder";
    case EROFS: return "read-only file system";
    case ENOSPC: return "no space left";
    case EDQUOT: return "disk quota exceeded";
    case ENOMEM: return "out of memory";
    case EMFILE:
    case ENFILE: return "too many open files";
    case EFBIG: return "file too large";
    default: return NULL;
    }
}

void mr_say(const char *what, long error)
{
    char line[512];
    size_t n = mr_copy_text(line, sizeof(line) - 96, "millrace trace: ");
    n += mr_copy_text(line + n, sizeof(line) - 96 - n, what);
    if (error) {
        error = error < 0 ? -error : error;
        const char *text = error_text(error);
        n += mr_copy_text(line + n, sizeof(line) - n, text ? ": " : ", errno ");
        n += text ? mr_copy_text(line + n, sizeof(line) - n, text) : mr_decimal(line + n, (uint64_t)error);
    }
    n += mr_copy_text(line + n, sizeof(line) - n, "; the program goes on untraced\n");
    say_line(line, n);
}

void mr_say_plain(const char *what)
{
    char line[512];
    size_t n = mr_copy_text(line, sizeof(line) - 2, "millrace trace: ");
    n += mr_copy_text(line + n, sizeof(line) - 2 - n, what);
    line[n++] = '\n';
    say_line(line, n);
}

void mr_stop_tracing(const char *why, long error)
{
    if (!mr_live.alive)
        return;
    atomic_store(&mr_off, 1);
    mr_set_active(false);
    mr_live.alive = 0;
    mr_say(why, error);
}

size_t mr_copy_text(char *to, size_t cap, const char *from)
{
    size_t n = strlen(from);
    if (n >= cap)
        n = cap ? cap - 1 : 0;
    memcpy(to, from, n);
    if (cap)
        to[n] = 0;
    return n;
}

size_t mr_decimal(char *to, uint64_t v)
{
    char digits[24];
    size_t n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    for (size_t i = 0; i < n; i++)
        to[i] = digits[n - 1 - i];
    return n;
}

size_t mr_hex(char *to, uint64_t v)
{
    for (int i = 0; i < 16; i++)
        to[i] = "0123456789abcdef"[v >> (60 - 4 * i) & 15];
    return 16;
}
