/* Errors: filling the caller's struct mr_error. No allocation, no output; see <millrace/error.h> for the contract. */
#include <millrace/error.h>

#include "base/text_escape.h"

#include <errno.h>
#include <stdio.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>

/* Formats aside first: callers may pass a part of the same struct as an argument ("...: %s", err->message). Names come
 * from files and other people: what a terminal or a CI system would obey is escaped here, once for all messages. */
static void format_into(char *dst, size_t cap, size_t at, const char *fmt, va_list ap)
{
    char raw[sizeof(((struct mr_error *)0)->message)], text[4 * sizeof raw + 1];
    int n = vsnprintf(raw, sizeof raw, fmt, ap);
    size_t room = cap - at, len = strlen(mr_text_escape(raw, text, sizeof text));
    bool cut = n >= (int)sizeof raw || len >= room;
    len = len < room ? len : room - 1;
    memcpy(dst + at, text, len);
    dst[at + len] = '\0';
    if (cut && at + len >= 3)
        memcpy(dst + at + len - 3, "...", 4);
}

static bool is_size_limited(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

static int set_message(struct mr_error *err, int code, int with_errno_text, const char *fmt, va_list ap)
{
    if (!err)
        return code;
    format_into(err->message, sizeof err->message, 0, fmt, ap);
    err->code = code;
    err->context[0] = err->hint[0] = '\0';
    if (with_errno_text && code < 0 && code > -10000) {
        size_t used = strlen(err->message);
        snprintf(err->message + used, sizeof err->message - used, ": %s%s", strerror(-code),
                 code == -EFBIG && is_size_limited() ? " (the limit of this shell, 'ulimit -f', is reached)" : "");
    }
    return code;
}

int mr_error_set(struct mr_error *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_message(err, code, 1, fmt, ap);
    va_end(ap);
    return code;
}

int mr_error_plain(struct mr_error *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_message(err, code, 0, fmt, ap);
    va_end(ap);
    return code;
}

void mr_error_context(struct mr_error *err, const char *fmt, ...)
{
    if (!err)
        return;
    size_t end = strlen(err->context), used = end;
    if (used && used + 4 < sizeof err->context) {
        memcpy(err->context + used, " / ", 4);
        used += 3;
    }
    va_list ap;
    va_start(ap, fmt);
    format_into(err->context, sizeof err->context, used, fmt, ap);
    va_end(ap);
    size_t link = strlen(err->context + used);
    bool last = link == end || (link + 3 <= end && !memcmp(err->context + end - link - 3, " / ", 3));
    if (used > end && link && last && !memcmp(err->context + end - link, err->context + used, link))
        err->context[end] = '\0'; /* another process has said so already */
}

void mr_error_hint(struct mr_error *err, const char *fmt, ...)
{
    if (!err)
        return;
    if (!err->hint[0]) {
        va_list ap;
        va_start(ap, fmt);
        format_into(err->hint, sizeof err->hint, 0, fmt, ap);
        va_end(ap);
    }
}

const char *mr_error_name(int code)
{
    switch (code) {
#define MR_ERROR_CASE(name, value, exit_status, text)                                                                  \
    case name: return #name;
        MR_ERROR_LIST(MR_ERROR_CASE)
#undef MR_ERROR_CASE
    default: return code < 0 ? strerror(-code) : "ok";
    }
}

int mr_error_exit_status(int code)
{
    switch (code) {
#define MR_ERROR_CASE(name, value, exit_status, text)                                                                  \
    case name: return exit_status;
        MR_ERROR_LIST(MR_ERROR_CASE)
#undef MR_ERROR_CASE
    default: return code < 0 ? 5 : 0;
    }
}
