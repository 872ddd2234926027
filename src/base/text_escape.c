/* Escaping text for people: see text_escape.h. */
#include "base/text_escape.h"

#include "base/common.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Marks of direction, joiners, line ends of Unicode, byte order marks: seen by programs only. */
static bool is_hidden(uint32_t c)
{
    return c == 0x61c || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
           c == 0xfeff;
}

unsigned mr_text_printable(const unsigned char *p)
{
    if (p[0] < 0x80)
        return p[0] >= 0x20 && p[0] != 0x7f;
    unsigned n = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
    uint32_t c = n ? p[0] & (0xffu >> (n + 1)) : 0;
    for (unsigned i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    bool overlong = (n == 3 && c < 0x800) || (n == 4 && c < 0x10000);
    return overlong || c < 0xa0 || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff || is_hidden(c) ? 0 : n;
}

bool mr_text_is_command(const char *start, const char *p)
{
    return (p[0] == '#' && p > start && p[-1] == '#') ||
           (p[0] == ':' && p[1] == ':' && strspn(start, " ") == (size_t)(p - start));
}

static const char *escape(const char *text, char *out, size_t cap, bool is_name)
{
    size_t o = 0;
    for (const char *p = text; *p && o + 5 < cap;) {
        unsigned n = mr_text_is_command(text, p) ? 0 : mr_text_printable((const unsigned char *)p);
        if (*p == '\\' && is_name)
            out[o++] = '\\';
        if (n)
            memcpy(out + o, p, n);
        else
            snprintf(out + o, cap - o, "\\x%02x", (unsigned char)*p);
        o += n ? n : 4;
        p += MR_MAX(n, 1u);
    }
    if (cap)
        out[o] = '\0';
    return out;
}

const char *mr_text_escape(const char *text, char *out, size_t cap)
{
    return escape(text, out, cap, false);
}

const char *mr_name_escape(const char *name, char *out, size_t cap)
{
    return escape(name, out, cap, true);
}

void mr_strbuf_text(struct mr_strbuf *s, const char *text)
{
    for (const char *p = text; *p && !s->failed;) {
        unsigned n = mr_text_is_command(text, p) ? 0 : mr_text_printable((const unsigned char *)p);
        if (n)
            mr_strbuf_add(s, p, n);
        else
            mr_strbuf_printf(s, "\\x%02x", (unsigned char)*p);
        p += MR_MAX(n, 1u);
    }
}
