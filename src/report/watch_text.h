/* A running job as `millrace watch` shows it: a screen of a few lines, one line, or one JSON object. Names from the
 * trace are escaped. */
#ifndef MR_REPORT_WATCH_TEXT_H
#define MR_REPORT_WATCH_TEXT_H

#include "base/strbuf.h"
#include "watch/watch.h"

#include <jansson.h>

#define MR_WATCH_RANK_LINES 8 /* of the screen, beyond two ranks */

void mr_watch_screen(const struct mr_watch_figures *f, struct mr_strbuf *out);
void mr_watch_line(const struct mr_watch_figures *f, struct mr_strbuf *out);
/* millrace.watch/1; NULL without memory. */
json_t *mr_watch_json(const struct mr_watch_figures *f);

#endif
