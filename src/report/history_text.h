/* The runs of a folder, one line each, and where they changed: as text, JSON and a page. */
#ifndef MR_REPORT_HISTORY_TEXT_H
#define MR_REPORT_HISTORY_TEXT_H

#include "base/strbuf.h"
#include "history/history.h"

void mr_history_text(const struct mr_history *h, struct mr_strbuf *out);
/* millrace.ls/1; NULL without memory. */
json_t *mr_history_json(const struct mr_history *h);
int mr_history_page(const char *path, const char *subject, const struct mr_history *h, struct mr_error *err);

#endif
