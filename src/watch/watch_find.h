/* What `millrace watch WORD` is about: a trace, a results folder, or a process that is traced. */
#ifndef MR_WATCH_WATCH_FIND_H
#define MR_WATCH_WATCH_FIND_H

#include <limits.h>
#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>

/* The trace or results folder that a word means: a path, or the number of a process of this machine, which is a traced
 * program, something it started, `millrace trace` or `millrace run`. MR_E_USAGE for a process that writes no trace. */
int mr_watch_find(const char *word, char path[PATH_MAX], struct mr_error *err);
/* The traces of a results folder: trace.mrt or, while several ranks write, a part of each; else every *.mrt. The
 * caller frees the names and the list. */
int mr_watch_parts(const char *folder, char ***out, size_t *n, struct mr_error *err);
/* Asks the collector of a trace to keep the file fresh for the next seconds. Nothing happens where there is none. */
void mr_watch_request(const char *trace, unsigned seconds);

#endif
