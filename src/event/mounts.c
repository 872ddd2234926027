/* mountinfo, a line each: number, parent, device, root, path, options, optional fields, "-", type, source, options.
 * Blanks in names are octal there (\040). */
#include "event/mounts.h"
#include "base/common.h"

#include <stdbool.h>
#include <string.h>

struct word {
    const char *text;
    size_t len;
};

static bool next_word(const char **at, const char *end, struct word *w)
{
    const char *p = *at;
    while (p < end && *p == ' ')
        p++;
    w->text = p;
    while (p < end && *p != ' ')
        p++;
    w->len = (size_t)(p - w->text);
    *at = p;
    return w->len > 0;
}

static bool is_octal(const char *p)
{
    return p[0] >= '0' && p[0] <= '3' && p[1] >= '0' && p[1] <= '7' && p[2] >= '0' && p[2] <= '7';
}

/* Length and bytes, without the octal; NULL if there is no room. */
static uint8_t *put_word(uint8_t *to, const uint8_t *end, const struct word *w)
{
    size_t n = 0, len = MR_MIN(w->len, (size_t)4096);
    if ((size_t)(end - to) < len + 2)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        const char *p = w->text + i;
        bool octal = *p == '\\' && len - i > 3 && is_octal(p + 1);
        to[2 + n++] = (uint8_t)(octal ? (p[1] - '0') << 6 | (p[2] - '0') << 3 | (p[3] - '0') : *p);
        i += octal ? 3 : 0;
    }
    to[0] = (uint8_t)n;
    to[1] = (uint8_t)(n >> 8);
    return to + 2 + n;
}

static bool read_line(const char *p, const char *end, struct word *type, struct word *path, struct word *source)
{
    struct word w;
    for (int i = 0; i < 5; i++)
        if (!next_word(&p, end, path))
            return false;
    do {
        if (!next_word(&p, end, &w))
            return false;
    } while (w.len != 1 || *w.text != '-');
    if (!next_word(&p, end, type))
        return false;
    if (!next_word(&p, end, source))
        source->len = 0;
    return true;
}

size_t mr_mounts_encode(const char *text, size_t len, uint8_t *out, size_t cap, uint32_t *count)
{
    const char *end = text + len;
    uint8_t *to = out;
    *count = 0;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        struct word type, path, source;
        if (!stop)
            break; /* a line that was cut */
        if (read_line(text, stop, &type, &path, &source)) {
            uint8_t *p = put_word(to, out + cap, &type);
            p = p ? put_word(p, out + cap, &path) : NULL;
            p = p ? put_word(p, out + cap, &source) : NULL;
            if (!p)
                break;
            to = p;
            ++*count;
        }
        text = stop + 1;
    }
    return (size_t)(to - out);
}

static bool take(const uint8_t **at, const uint8_t *end, const char **text, uint16_t *len)
{
    if (end - *at < 2)
        return false;
    *len = (uint16_t)((*at)[0] | (*at)[1] << 8);
    *at += 2;
    if ((size_t)(end - *at) < *len)
        return false;
    *text = (const char *)*at;
    *at += *len;
    return true;
}

int mr_mounts_next(const uint8_t **at, const uint8_t *end, struct mr_mount_entry *out)
{
    return take(at, end, &out->type, &out->type_len) && take(at, end, &out->path, &out->path_len) &&
           take(at, end, &out->source, &out->source_len);
}
