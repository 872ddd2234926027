/* Names of a data set's files: made from a template, and checked before they become a path. See manifest.h. */
#include "base/common.h"
#include "dataset/manifest.h"

#include <string.h>

static char *put_number(char *to, uint64_t value, uint32_t digits)
{
    char text[MR_NAME_DIGITS_MAX];
    unsigned n = 0;
    do
        text[n++] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    for (uint32_t i = n; i < digits; i++)
        *to++ = '0';
    while (n > 0)
        *to++ = text[--n];
    return to;
}

static char *put_text(char *to, const char *text)
{
    size_t n = strlen(text);
    memcpy(to, text, n);
    return to + n;
}

/* By hand: a file of one sample is named for every read, and printf touches more memory than the rest of the way to the
 * file. */
int mr_name_from_template(const struct mr_name_template *t, uint64_t file, char *out)
{
    char *to = out;
    _Static_assert(MR_NAME_MAX > 2 * sizeof(t->prefix) + 2 * (MR_NAME_DIGITS_MAX + 1), "every templated name fits");
    if (t->subfolders) {
        to = put_number(to, file % t->subfolders, MR_MIN(t->folder_digits, MR_NAME_DIGITS_MAX));
        *to++ = '/';
    }
    to = put_text(to, t->prefix);
    to = put_number(to, file, MR_MIN(t->digits, MR_NAME_DIGITS_MAX));
    to = put_text(to, t->suffix);
    *to = 0;
    return (int)(to - out);
}

bool mr_name_is_safe(const char *name, size_t len)
{
    if (len == 0 || len >= MR_NAME_MAX || memchr(name, 0, len))
        return false;
    for (size_t at = 0; at <= len;) {
        const char *slash = memchr(name + at, '/', len - at);
        size_t n = slash ? (size_t)(slash - name) - at : len - at;
        if (n == 0 || (n == 1 && name[at] == '.') || (n == 2 && name[at] == '.' && name[at + 1] == '.'))
            return false;
        at += n + 1;
    }
    return true;
}
