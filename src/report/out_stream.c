/* Buffered output with escaping. */
#include "report/out_stream.h"
#include "base/common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BUFFER (1u << 18)

/* The name that the file will have, links followed; NULL: it is no regular file, or there is no memory. */
static char *name_of_whole(const char *path, mode_t *mode)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return errno == ENOENT && lstat(path, &st) < 0 ? strdup(path) : NULL;
    *mode = st.st_mode & 0777;
    return S_ISREG(st.st_mode) ? realpath(path, NULL) : NULL;
}

/* A descriptor for what will be `path`, or -errno. */
static int open_part(struct mr_out *o, const char *path)
{
    mode_t mode = 0600;
    size_t n = strlen(path) + 1;
    o->whole = name_of_whole(path, &mode);
    n = o->whole ? strlen(o->whole) + sizeof(".XXXXXX") : n;
    o->part = o->whole ? malloc(n) : NULL;
    if (o->part) {
        snprintf(o->part, n, "%s.XXXXXX", o->whole);
        int fd = mkostemp(o->part, O_CLOEXEC);
        if (fd >= 0) {
            fchmod(fd, mode);
            return fd;
        }
    }
    free(o->part); /* a folder that takes no new files: the file itself will do, if it is there */
    free(o->whole);
    o->part = o->whole = NULL;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

int mr_out_open(struct mr_out *o, const char *path, bool gzip, struct mr_error *err)
{
    *o = (struct mr_out){.fd = -1, .path = path};
    o->buffer = malloc(BUFFER);
    o->packed = gzip ? malloc(BUFFER) : NULL;
    o->gz = gzip ? calloc(1, sizeof(z_stream)) : NULL;
    if (!o->buffer || (gzip && (!o->packed || !o->gz ||
                                deflateInit2(o->gz, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK))) {
        mr_out_close(o, NULL);
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    }
    int fd = strcmp(path, "-") ? open_part(o, path) : dup(1);
    o->fd = fd < -1 ? -1 : fd;
    if (o->fd < 0) {
        int rc = mr_error_set(err, fd < -1 ? fd : -errno, "cannot create '%s'", path);
        mr_out_close(o, NULL);
        return rc;
    }
    return 0;
}

int mr_out_open_fd(struct mr_out *o, int fd, const char *name, struct mr_error *err)
{
    *o = (struct mr_out){.fd = fd, .path = name, .buffer = malloc(BUFFER)};
    if (o->buffer)
        return 0;
    close(fd);
    return mr_error_set(err, -ENOMEM, "cannot write '%s'", name);
}

static void write_all(struct mr_out *o, const uint8_t *p, size_t n)
{
    while (n && !o->failed) {
        ssize_t r = write(o->fd, p, n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0) {
            o->failed = r ? -errno : -EIO;
            return;
        }
        p += r;
        n -= (size_t)r;
    }
}

static void drain(struct mr_out *o, bool last)
{
    z_stream *z = o->gz;
    if (!z) {
        write_all(o, o->buffer, o->used);
        o->used = 0;
        return;
    }
    z->next_in = o->buffer;
    z->avail_in = (uInt)o->used;
    int state;
    do {
        z->next_out = o->packed;
        z->avail_out = BUFFER;
        state = deflate(z, last ? Z_FINISH : Z_NO_FLUSH);
        write_all(o, o->packed, BUFFER - z->avail_out);
    } while (!o->failed && (last ? state == Z_OK : z->avail_in > 0));
    o->used = 0;
}

static void put_bytes(struct mr_out *o, const void *p, size_t n)
{
    const uint8_t *from = p;
    while (n) {
        size_t k = MR_MIN(n, BUFFER - o->used);
        memcpy(o->buffer + o->used, from, k);
        o->used += k;
        from += k;
        n -= k;
        if (o->used == BUFFER)
            drain(o, false);
    }
}

void mr_out_bytes(struct mr_out *o, const void *p, size_t n)
{
    const char *from = p, *quote;
    while (o->in_field && n && (quote = memchr(from, '"', n))) {
        size_t k = (size_t)(quote - from) + 1;
        put_bytes(o, from, k);
        put_bytes(o, "\"", 1);
        from += k;
        n -= k;
    }
    put_bytes(o, from, n);
}

void mr_out_field_begin(struct mr_out *o)
{
    put_bytes(o, "\"", 1);
    o->in_field = true;
}

void mr_out_field_end(struct mr_out *o)
{
    o->in_field = false;
    put_bytes(o, "\"", 1);
}

void mr_out_text(struct mr_out *o, const char *text)
{
    mr_out_bytes(o, text, strlen(text));
}

void mr_out_number(struct mr_out *o, uint64_t v)
{
    char digits[24];
    size_t at = sizeof(digits);
    do
        digits[--at] = (char)('0' + v % 10);
    while (v /= 10);
    mr_out_bytes(o, digits + at, sizeof(digits) - at);
}

void mr_out_signed(struct mr_out *o, int64_t v)
{
    if (v < 0)
        mr_out_text(o, "-");
    mr_out_number(o, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

void mr_out_format(struct mr_out *o, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    mr_out_bytes(o, text, n < 0 ? 0 : MR_MIN((size_t)n, sizeof(text) - 1));
}

size_t mr_utf8_length(const uint8_t *p, size_t n)
{
    size_t len = p[0] < 0x80                   ? 1
                 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
                 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
                 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                               : 0;
    if (!len || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] >= 0x90))
        return 0;
    return len;
}

/* C1 controls and the line ends of Unicode: JSON allows them as they are, but readers that split text into lines stop
 * at them. */
static bool ends_lines(const uint8_t *p, size_t len)
{
    return (len == 2 && p[0] == 0xc2 && p[1] < 0xa0) ||
           (len == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9));
}

void mr_out_json(struct mr_out *o, const char *text, size_t n, enum mr_json_mode mode)
{
    const uint8_t *p = (const uint8_t *)text;
    mr_out_text(o, "\"");
    for (size_t i = 0; i < n;) {
        size_t len = mr_utf8_length(p + i, n - i);
        if (!len) {
            mr_out_format(o, mode == MR_JSON_HEX ? "\\\\x%02x" : "\\uef%02x", p[i]);
            i++;
        } else if (len > 1 && ends_lines(p + i, len)) {
            mr_out_format(o, "\\u%04x", len == 2 ? p[i + 1] : 0x2000u + (p[i + 2] & 0x3f));
            i += len;
        } else if (len > 1) {
            mr_out_bytes(o, p + i, len);
            i += len;
        } else {
            uint8_t c = p[i++];
            if (c == '"' || c == '\\')
                mr_out_format(o, "\\%c", c);
            else if (c < 0x20 || c == 0x7f)
                mr_out_format(o, "\\u%04x", c);
            else
                mr_out_bytes(o, &c, 1);
        }
    }
    mr_out_text(o, "\"");
}

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

/* A cell that begins like a formula is one for a spreadsheet, also after blanks. */
static bool is_formula(const char *p, size_t n)
{
    while (n && *p == ' ')
        p++, n--;
    return n && (strchr("=+-@", *p) || is_control(*p)) && *p;
}

void mr_out_csv(struct mr_out *o, const char *p, size_t n)
{
    bool quote = false;
    for (size_t i = 0; i < n; i++)
        quote |= p[i] == '"' || p[i] == ',';
    mr_out_text(o, quote ? "\"" : "");
    mr_out_text(o, is_formula(p, n) ? "'" : "");
    for (size_t i = 0, len; i < n; i += len) {
        len = MR_MAX(mr_utf8_length((const uint8_t *)p + i, n - i), (size_t)1);
        if (p[i] == '"')
            mr_out_text(o, "\"\"");
        else if (is_control(p[i]) || (len > 1 && ends_lines((const uint8_t *)p + i, len)))
            for (size_t k = i; k < i + len; k++)
                mr_out_format(o, "\\x%02x", (uint8_t)p[k]);
        else
            mr_out_bytes(o, p + i, len);
    }
    mr_out_text(o, quote ? "\"" : "");
}

int mr_out_close(struct mr_out *o, struct mr_error *err)
{
    if (o->fd >= 0) {
        drain(o, true);
        if (close(o->fd) < 0 && !o->failed)
            o->failed = -errno;
        if (o->part && !o->failed && rename(o->part, o->whole) < 0)
            o->failed = -errno;
        if (o->part && o->failed)
            unlink(o->part);
    }
    free(o->part);
    free(o->whole);
    o->part = o->whole = NULL;
    if (o->gz)
        deflateEnd(o->gz);
    free(o->gz);
    free(o->buffer);
    free(o->packed);
    o->fd = -1;
    o->gz = NULL;
    o->buffer = o->packed = NULL;
    return o->failed ? mr_error_set(err, o->failed, "cannot write '%s'", o->path) : 0;
}
