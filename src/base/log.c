/* One process-wide log sink. */
#include "base/log.h"

#include "base/text_escape.h"

#include <stdio.h>

static mr_log_fn *sink_fn;
static void *sink_user;
static enum mr_log_level sink_level;

void mr_log_set_sink(mr_log_fn *fn, void *user, enum mr_log_level max_level)
{
    sink_fn = fn;
    sink_user = user;
    sink_level = max_level;
}

bool mr_log_shows(enum mr_log_level level)
{
    return sink_fn && level <= sink_level;
}

void mr_log(enum mr_log_level level, const char *fmt, ...)
{
    if (!mr_log_shows(level))
        return;
    char raw[1024], text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    sink_fn(sink_user, level, mr_text_escape(raw, text, sizeof text));
}
