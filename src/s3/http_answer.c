/* Answers of HTTP/1.1: see http_answer.h. Strict where two readings of one answer could differ: a length that is no
 * number, lengths that contradict each other and folded lines are no answer. */
#include "s3/http_answer.h"

#include <string.h>
#include <strings.h>

static bool is_name(const char *name, size_t len, const char *want)
{
    return len == strlen(want) && strncasecmp(name, want, len) == 0;
}

/* Whether a list of words, "a, b", has this one. */
static bool has_word(const char *value, size_t len, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= len; i++) {
        bool begins = i == 0 || strchr(", \t", value[i - 1]) != NULL;
        bool ends = i + n == len || strchr(", \t;", value[i + n]) != NULL;
        if (begins && ends && strncasecmp(value + i, word, n) == 0)
            return true;
    }
    return false;
}

static bool take_number(const char *text, size_t len, uint64_t *out)
{
    uint64_t v = 0;
    if (!len || len > 19)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(text[i] - '0');
    }
    *out = v;
    return true;
}

/* "HTTP/1.1 200 OK"; whether the connection is kept by default. */
static bool take_status(const char *line, size_t len, struct mr_http_head *h)
{
    uint64_t status;
    if (len < 12 || memcmp(line, "HTTP/1.", 7) != 0 || line[8] != ' ' || (len > 12 && line[12] != ' ') ||
        !take_number(line + 9, 3, &status) || status < 100)
        return false;
    *h = (struct mr_http_head){.status = (long)status, .keeps = line[7] == '1'};
    return true;
}

static bool take_header(const char *line, size_t len, struct mr_http_head *h, mr_http_header_fn *fn, void *user)
{
    const char *colon = memchr(line, ':', len), *value, *end = line + len;
    uint64_t length;
    if (!colon || colon == line || *line == ' ' || *line == '\t')
        return false;
    size_t name_len = (size_t)(colon - line);
    for (value = colon + 1; value < end && (*value == ' ' || *value == '\t'); value++)
        ;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    size_t value_len = (size_t)(end - value);
    if (is_name(line, name_len, "content-length")) {
        if (!take_number(value, value_len, &length) || (h->has_length && h->length != length))
            return false;
        h->has_length = true;
        h->length = length;
    } else if (is_name(line, name_len, "transfer-encoding")) {
        if (!is_name(value, value_len, "chunked")) /* others nobody asked for */
            return false;
        h->chunked = true;
    } else if (is_name(line, name_len, "connection")) {
        h->keeps = h->keeps ? !has_word(value, value_len, "close") : has_word(value, value_len, "keep-alive");
    }
    if (fn)
        fn(user, line, name_len, value, value_len);
    return true;
}

int mr_http_head_parse(const char *text, size_t n, struct mr_http_head *out, mr_http_header_fn *fn, void *user)
{
    const char *end = memmem(text, n, "\r\n\r\n", 4), *line = text, *stop;
    struct mr_http_head h = {0};
    if (!end)
        return n >= MR_HTTP_HEAD_MAX || (n >= 5 && memcmp(text, "HTTP/", 5) != 0) ? -1 : 0;
    stop = memchr(line, '\r', (size_t)(end + 1 - line));
    if (!take_status(line, (size_t)(stop - line), &h))
        return -1;
    while (stop < end) {
        line = stop + 2;
        stop = memchr(line, '\r', (size_t)(end + 1 - line));
        if (stop[1] != '\n' || line[-1] != '\n' || !take_header(line, (size_t)(stop - line), &h, fn, user))
            return -1;
    }
    if (h.chunked)
        h.has_length = false; /* the chunks tell */
    if (h.status < 200 || h.status == 204 || h.status == 304) {
        h.chunked = false;
        h.has_length = true;
        h.length = 0;
    }
    *out = h;
    return (int)(end + 4 - text);
}

/* ---- chunks ---- */

enum { IN_SIZE, IN_EXTENSION, IN_DATA, BEHIND_DATA, IN_TRAILER, ENDED };
#define LINE_MAX_BYTES 4096

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* One byte outside the data. False: no chunked body. */
static bool step(struct mr_http_chunks *c, char b)
{
    int digit = digit_of(b);
    if (c->line++ >= LINE_MAX_BYTES)
        return false;
    switch (c->state) {
    case IN_SIZE:
        if (digit >= 0) {
            c->left = c->left << 4 | (unsigned)digit;
            return c->line <= 15;
        }
        if (c->line == 1 || (b != '\r' && b != ';' && b != ' '))
            return false;
        c->state = IN_EXTENSION;
        return true;
    case IN_EXTENSION:
        if (b == '\n') {
            c->state = c->left ? IN_DATA : IN_TRAILER;
            c->line = 0;
        }
        return true;
    case BEHIND_DATA:
        if (b == '\n') {
            c->state = IN_SIZE;
            c->line = 0;
        }
        return b == '\n' || (b == '\r' && c->line == 1);
    default: /* IN_TRAILER: lines until an empty one */
        if (b != '\n')
            return true;
        if (c->line <= 2)
            c->state = ENDED;
        c->line = 0;
        return true;
    }
}

int64_t mr_http_chunks_take(struct mr_http_chunks *c, const char *text, size_t n, const char **data, size_t *len,
                            bool *ended)
{
    size_t at = 0;
    *len = 0;
    while (at < n && c->state != ENDED && c->state != IN_DATA)
        if (!step(c, text[at++]))
            return -1;
    if (at < n && c->state == IN_DATA) {
        *data = text + at;
        *len = c->left < n - at ? (size_t)c->left : n - at;
        at += *len;
        c->left -= *len;
        if (!c->left) {
            c->state = BEHIND_DATA;
            c->line = 0;
        }
    }
    *ended = c->state == ENDED;
    return (int64_t)at;
}
