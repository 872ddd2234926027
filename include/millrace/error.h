/* Errors: how every Millrace function says what went wrong.
 *
 * A function that can fail returns an int: 0 (or a count) on success, a negative code on failure. The code is either
 * -errno (an operating-system error) or one of the MR_E_* values below, which lie outside the errno range. Functions
 * also take a caller-owned `struct mr_error *err` as their last argument. It may be NULL. It is written only on failure
 * and never read, so a caller may reuse one object for many calls without clearing it.
 *
 * The text has three parts, printed by the command line as three lines:
 *   message  the fact, lower case, names in single quotes: cannot read sample 8123 of 'train-0042.npz': ...
 *   context  where: one " / "-separated chain, innermost first: in dataset 'imagenet', bench.yaml:14
 *   hint     what to do next, naming a command: regenerate it with 'millrace gen --repair'
 *
 * The text is for people: control characters and bytes that are no UTF-8, from the names in it, are shown as \xNN.
 *
 * Thread safety: distinct objects may be used from distinct threads; one object belongs to one thread at a time.
 */
#ifndef MILLRACE_ERROR_H
#define MILLRACE_ERROR_H

#include <stdarg.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* One list gives the code, its name, its process exit status and its text. To add one: add a row at the end. */
#define MR_ERROR_LIST(X)                                                                                               \
    X(MR_E_INTERNAL, 10001, 1, "internal error")                                                                       \
    X(MR_E_USAGE, 10002, 2, "wrong usage")                                                                             \
    X(MR_E_CONFIG, 10003, 2, "bad configuration")                                                                      \
    X(MR_E_BUDGET, 10004, 3, "budget or expectation not met")                                                          \
    X(MR_E_FORMAT, 10005, 4, "bad input file")                                                                         \
    X(MR_E_CORRUPT, 10006, 4, "checksum or content mismatch")                                                          \
    X(MR_E_CHANGED, 10007, 4, "file changed while in use")                                                             \
    X(MR_E_UNSUPPORTED, 10008, 2, "not supported by this build or backend")                                            \
    X(MR_E_INCOMPLETE, 10009, 6, "incomplete or untrusted result")                                                     \
    X(MR_E_INTERRUPTED, 10010, 130, "interrupted")                                                                     \
    X(MR_E_PEER, 10011, 5, "another rank failed")                                                                      \
    X(MR_E_LIMIT, 10012, 4, "beyond a safety limit")                                                                   \
    X(MR_E_TIMEOUT, 10013, 5, "not there in time")

enum mr_error_code {
#define MR_ERROR_ENUM(name, value, exit_status, text) name = -(value),
    MR_ERROR_LIST(MR_ERROR_ENUM)
#undef MR_ERROR_ENUM
};

struct mr_error {
    int code;          /* the negative code the function returned */
    char message[768]; /* always NUL-terminated; cut with "..." if too long */
    char context[768]; /* empty or a chain, innermost first */
    char hint[384];    /* empty or one sentence */
};

#if defined(__GNUC__)
#define MR_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define MR_PRINTF(f, a)
#endif

/* Writes code and message, clears context and hint. Returns `code`, so that `return mr_error_set(err, ...)` works.
 * For a -errno code the system's text is appended after ": ". err may be NULL. */
int mr_error_set(struct mr_error *err, int code, const char *fmt, ...) MR_PRINTF(3, 4);
/* The same without appending the system's text, for when the message already explains it. */
int mr_error_plain(struct mr_error *err, int code, const char *fmt, ...) MR_PRINTF(3, 4);
/* Appends one link to the context chain, unless it is the last one already. Returns nothing, so that the caller returns
 * its own code: without an err nobody else knows it. err may be NULL. */
void mr_error_context(struct mr_error *err, const char *fmt, ...) MR_PRINTF(2, 3);
/* Sets the hint if none is set yet: the innermost layer knows best. As above:
 * `return mr_error_hint(err, "try '%s'", near), MR_E_USAGE;`. err may be NULL. */
void mr_error_hint(struct mr_error *err, const char *fmt, ...) MR_PRINTF(2, 3);

/* "MR_E_CONFIG" or "ENOENT"-like text; never NULL. */
const char *mr_error_name(int code);
/* The process exit status for a code: see the list above; -errno values are 5 (I/O error); 0 is 0. */
int mr_error_exit_status(int code);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
