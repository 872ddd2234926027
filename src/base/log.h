/* Log: how libraries talk without printing. A library calls mr_log; the program decides where it goes by setting one
 * sink. Without a sink nothing is printed. Levels: errors are returned, not logged, so the highest level is WARN.
 * Thread-safe; the sink may be called from any thread and must not call back into Millrace. */
#ifndef MR_BASE_LOG_H
#define MR_BASE_LOG_H

#include <millrace/error.h>
#include <stdbool.h>

enum mr_log_level { MR_LOG_WARN, MR_LOG_NOTE, MR_LOG_INFO, MR_LOG_DEBUG };

typedef void mr_log_fn(void *user, enum mr_log_level level, const char *text);

/* Set before threads start. `max_level` cuts off what is more talkative. */
void mr_log_set_sink(mr_log_fn *fn, void *user, enum mr_log_level max_level);
/* Would something of this level be shown? False without a sink: then nothing is. */
bool mr_log_shows(enum mr_log_level level);
void mr_log(enum mr_log_level level, const char *fmt, ...) MR_PRINTF(2, 3);

#endif
