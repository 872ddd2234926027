/* The growing string and the human-readable figures. */
#include "base/strbuf.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct mr_strbuf *s, size_t extra)
{
    if (s->failed)
        return false;
    if (s->len + extra + 1 <= s->cap)
        return true;
    size_t cap = s->cap ? s->cap * 2 : 64;
    while (cap < s->len + extra + 1)
        cap *= 2;
    char *text = realloc(s->text, cap);
    if (!text) {
        s->failed = true;
        return false;
    }
    s->text = text;
    s->cap = cap;
    return true;
}

void mr_strbuf_add(struct mr_strbuf *s, const char *text, size_t len)
{
    if (!reserve(s, len))
        return;
    assert(s->len + len < s->cap);
    memcpy(s->text + s->len, text, len);
    s->len += len;
    s->text[s->len] = '\0';
}

void mr_strbuf_puts(struct mr_strbuf *s, const char *text)
{
    mr_strbuf_add(s, text, strlen(text));
}

void mr_strbuf_putc(struct mr_strbuf *s, char c)
{
    mr_strbuf_add(s, &c, 1);
}

void mr_strbuf_printf(struct mr_strbuf *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    mr_strbuf_vprintf(s, fmt, ap);
    va_end(ap);
}

void mr_strbuf_vprintf(struct mr_strbuf *s, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n >= 0 && reserve(s, (size_t)n)) {
        vsnprintf(s->text + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

char *mr_strbuf_take(struct mr_strbuf *s)
{
    mr_strbuf_add(s, "", 0);
    char *text = s->failed ? NULL : s->text;
    if (!text)
        free(s->text);
    *s = (struct mr_strbuf){0};
    return text;
}

void mr_strbuf_done(struct mr_strbuf *s)
{
    free(s->text);
    *s = (struct mr_strbuf){0};
}

static const char *scaled(double v, double step, const char *const *units, int n_units, const char *suffix, char *out)
{
    int u = 0;
    while (u + 1 < n_units && (v >= step || v <= -step)) {
        v /= step;
        u++;
    }
    int digits = u == 0 ? 0 : v < 10 ? 2 : v < 100 ? 1 : 0;
    snprintf(out, MR_HUMAN_LEN, "%.*f %s%s", digits, v, units[u], suffix);
    return out;
}

static const char *const iec_units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

const char *mr_human_bytes(double bytes, char out[MR_HUMAN_LEN])
{
    return scaled(bytes, 1024, iec_units, 7, "", out);
}

const char *mr_human_rate(double bytes_per_s, char out[MR_HUMAN_LEN])
{
    return scaled(bytes_per_s, 1024, iec_units, 7, "/s", out);
}

const char *mr_human_ns(double ns, char out[MR_HUMAN_LEN])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    if (ns >= 3600e9) {
        snprintf(out, MR_HUMAN_LEN, "%.0f h %02.0f min", (double)(long long)(ns / 3600e9),
                 (double)((long long)(ns / 60e9) % 60));
        return out;
    }
    if (ns >= 120e9) {
        snprintf(out, MR_HUMAN_LEN, "%lld min %02lld s", (long long)(ns / 60e9), (long long)(ns / 1e9) % 60);
        return out;
    }
    return scaled(ns, 1000, units, 4, "", out);
}

const char *mr_human_count(unsigned long long n, char out[MR_HUMAN_LEN])
{
    char digits[MR_HUMAN_LEN];
    int len = snprintf(digits, sizeof digits, "%llu", n), o = 0;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            out[o++] = ',';
        out[o++] = digits[i];
    }
    out[o] = '\0';
    return out;
}

const char *mr_shell_word(const char *word, char *out, size_t cap)
{
    size_t n = 0;
    if (*word && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=+,:@%")] == '\0')
        return word;
    if (cap < 3)
        return "\"...\"";
    out[n++] = '"';
    for (const char *c = word; *c; c++) {
        if (n + 4 > cap) /* an escape, the closing quote, the end */
            return "\"...\"";
        if (strchr("\"\\$`", *c))
            out[n++] = '\\';
        out[n++] = *c;
    }
    out[n++] = '"';
    out[n] = '\0';
    return out;
}

const char *mr_plural(unsigned long long n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}
