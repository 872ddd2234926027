/* Escaping and figures; see html_text.h. */
#include "report/html_text.h"
#include "base/common.h"
#include "report/out_stream.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

/* Characters that a name must not bring into a page: they reorder what stands around them, or cannot be seen. */
static bool is_hidden(uint32_t c)
{
    return (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c & 0xfffe) == 0xfffe ||
           (c >= 0xd800 && c < 0xe000) || (c >= 0xfdd0 && c < 0xfdf0);
}

static uint32_t code_point(const uint8_t *p, size_t len)
{
    uint32_t c = len == 1 ? p[0] : p[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++)
        c = c << 6 | (p[i] & 0x3f);
    return c;
}

static void put_ascii(struct mr_strbuf *o, char c, bool is_name)
{
    switch (c) {
    case '&': mr_strbuf_puts(o, "&amp;"); break;
    case '<': mr_strbuf_puts(o, "&lt;"); break;
    case '>': mr_strbuf_puts(o, "&gt;"); break;
    case '"': mr_strbuf_puts(o, "&quot;"); break;
    case '\'': mr_strbuf_puts(o, "&#39;"); break;
    default:
        if ((unsigned char)c < ' ' && (is_name || (c != '\n' && c != '\t')))
            mr_strbuf_printf(o, "\\x%02x", (unsigned char)c);
        else
            mr_strbuf_putc(o, c);
    }
}

/* In a name a line end is a byte like any other, and is to be seen. */
static void put_escaped(struct mr_strbuf *o, const char *text, size_t n, bool is_name)
{
    const uint8_t *p = (const uint8_t *)text;
    for (size_t i = 0; i < n;) {
        size_t len = mr_utf8_length(p + i, n - i);
        uint32_t c = len ? code_point(p + i, len) : 0;
        if (!len)
            mr_strbuf_printf(o, "\\x%02x", p[i]);
        else if (is_hidden(c))
            mr_strbuf_printf(o, "\\u%04x", c);
        else if (len == 1)
            put_ascii(o, (char)c, is_name);
        else
            mr_strbuf_add(o, text + i, len);
        i += len ? len : 1;
    }
}

void mr_html_text(struct mr_strbuf *o, const char *text)
{
    put_escaped(o, text, strlen(text), false);
}

/* A unit behind a number and a space, so many bytes with its comma or full stop left out; 0: none. */
static size_t unit_at(const char *p)
{
    static const char *const units[] = {"%",   "ns",  "us",  "ms",    "s",     "B",     "KiB",  "MiB",
                                        "GiB", "TiB", "B/s", "KiB/s", "MiB/s", "GiB/s", "MB/s", "GB/s"};
    size_t n = strcspn(p, " ,;:()\n");
    n -= n && p[n - 1] == '.';
    for (unsigned i = 0; i < MR_ARRAY_LEN(units); i++)
        if (strlen(units[i]) == n && !memcmp(units[i], p, n))
            return n;
    return 0;
}

void mr_html_sentence(struct mr_strbuf *o, const char *text)
{
    const char *from = text;
    for (const char *p = text; *p; p++) {
        bool arrow = !strncmp(p, " -> ", 4),
             unit = *p == ' ' && p > text && p[-1] >= '0' && p[-1] <= '9' && unit_at(p + 1);
        if (!arrow && !unit)
            continue;
        put_escaped(o, from, (size_t)(p - from), false);
        mr_strbuf_puts(o, arrow ? "&nbsp;&rarr; " : "&nbsp;");
        p += arrow ? 3 : 0;
        from = p + 1;
    }
    put_escaped(o, from, strlen(from), false);
}

void mr_html_printf(struct mr_strbuf *o, const char *fmt, ...)
{
    char small[512], *text = small;
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    if (n >= (int)sizeof small && (text = malloc((size_t)n + 1)))
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    if (n < 0 || !text)
        o->failed = true;
    else
        put_escaped(o, text, (size_t)n, false);
    if (text != small)
        free(text);
}

/* The nearest beginning of a character at or before `at`. */
static size_t char_start(const char *text, size_t at)
{
    while (at && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* More of the end than of the beginning: file names differ there. */
void mr_html_short(struct mr_strbuf *o, const char *name, size_t cap)
{
    size_t n = strlen(name);
    cap = MR_MAX(cap, 16);
    if (n <= cap) {
        put_escaped(o, name, n, true);
        return;
    }
    size_t head = char_start(name, cap * 2 / 5), tail = char_start(name, n - (cap - cap * 2 / 5));
    put_escaped(o, name, head, true);
    mr_strbuf_puts(o, "…");
    put_escaped(o, name + tail, n - tail, true);
}

void mr_html_name(struct mr_strbuf *o, const char *name, size_t cap)
{
    if (strlen(name) > cap) {
        mr_strbuf_puts(o, "<bdi title=\"");
        mr_html_short(o, name, 500);
        mr_strbuf_puts(o, "\">");
    } else {
        mr_strbuf_puts(o, "<bdi>");
    }
    mr_html_short(o, name, cap);
    mr_strbuf_puts(o, "</bdi>");
}

void mr_html_base64(struct mr_strbuf *o, const uint8_t *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=',
                        i + 2 < n ? digits[v & 63] : '='};
        mr_strbuf_add(o, four, 4);
    }
}

/* ---- figures ---- */

double mr_ns_to_s(uint64_t ns)
{
    return ns == UINT64_MAX ? NAN : (double)ns / 1e9;
}

/* Three digits, without an exponent. */
static void three_digits(double v, const char *unit, char out[MR_HUMAN_LEN])
{
    double a = fabs(v);
    snprintf(out, MR_HUMAN_LEN, "%.*f%s", v == 0 || a >= 99.95 ? 0 : a >= 9.995 ? 1 : 2, v, unit);
}

static void seconds_text(double s, char out[MR_HUMAN_LEN])
{
    double a = fabs(s);
    if (a >= 3600)
        snprintf(out, MR_HUMAN_LEN, "%s%.0f h %02d min", s < 0 ? "-" : "", floor(a / 3600), (int)fmod(a / 60, 60));
    else if (a >= 0.9995 || a == 0)
        three_digits(s, " s", out);
    else if (a >= 0.9995e-3)
        three_digits(s * 1e3, " ms", out);
    else if (a >= 0.9995e-6)
        three_digits(s * 1e6, " µs", out);
    else
        three_digits(s * 1e9, " ns", out);
}

const char *mr_unit_text(enum mr_unit unit, double v, char out[MR_HUMAN_LEN])
{
    if (!isfinite(v)) {
        snprintf(out, MR_HUMAN_LEN, "unknown");
        return out;
    }
    switch (unit) {
    case MR_UNIT_NUMBER:
        snprintf(out, MR_HUMAN_LEN, fabs(v) >= 1e6 ? "%.3g" : fabs(v) >= 100 ? "%.0f" : "%.3g", v);
        break;
    case MR_UNIT_COUNT: mr_human_count(v > 0 ? (unsigned long long)llround(fmin(v, 9e18)) : 0, out); break;
    case MR_UNIT_SECONDS: seconds_text(v, out); break;
    case MR_UNIT_BYTES: mr_human_bytes(v, out); break;
    case MR_UNIT_RATE: mr_human_rate(v, out); break;
    case MR_UNIT_SHARE: snprintf(out, MR_HUMAN_LEN, "%.1f %%", 100 * v); break;
    }
    return out;
}

void mr_html_value(struct mr_strbuf *o, enum mr_unit unit, double v, const char *key)
{
    char text[MR_HUMAN_LEN];
    mr_unit_text(unit, v, text);
    if (!isfinite(v)) {
        mr_strbuf_puts(o, "<span class=\"unknown\"");
        if (key)
            mr_strbuf_printf(o, " data-key=\"%s\"", key);
        mr_strbuf_puts(o, ">unknown</span>");
        return;
    }
    mr_strbuf_printf(o, "<data value=\"%.17g\"", v);
    if (key)
        mr_strbuf_printf(o, " data-key=\"%s\"", key);
    mr_strbuf_printf(o, ">%s</data>", text);
}

void mr_html_cell(struct mr_strbuf *o, enum mr_unit unit, double v)
{
    char text[MR_HUMAN_LEN];
    if (isfinite(v))
        mr_strbuf_printf(o, "<td class=\"n\" data-v=\"%.12g\">%s</td>", v, mr_unit_text(unit, v, text));
    else
        mr_strbuf_puts(o, "<td class=\"n unknown\">unknown</td>");
}
