/* Progress of long work on stderr: done / total, rate, ETA and what limits. On a terminal one line is rewritten five
 * times a second; elsewhere one line every 10 s and one at the end. Counters may be advanced from any thread; a
 * background thread draws. The library part never prints: the caller gives the stream (NULL: silent). */
#ifndef MR_BASE_PROGRESS_H
#define MR_BASE_PROGRESS_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct mr_progress;

struct mr_progress_options {
    const char *verb;     /* "generating" */
    const char *unit;     /* "files" */
    uint64_t total;       /* in units; 0 = unknown */
    uint64_t total_bytes; /* 0 = unknown */
    FILE *stream;         /* stderr, or NULL for silence */
    int force_tty;        /* -1 detect, 0 no, 1 yes (tests) */
    bool only_work;       /* no final line where nothing was done */
};

int mr_progress_start(const struct mr_progress_options *opt, struct mr_progress **out, struct mr_error *err);
void mr_progress_add(struct mr_progress *p, uint64_t units, uint64_t bytes);
/* What limits now, e.g. "disk write", "CPU: encoding"; copied; NULL clears. */
void mr_progress_set_limiter(struct mr_progress *p, const char *text);
/* Draws the final line and frees. Accepts NULL. */
void mr_progress_stop(struct mr_progress *p);

#endif
