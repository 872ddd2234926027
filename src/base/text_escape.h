/* Text from files, names and other programs on its way to a terminal, a log or a CI system. What could act there becomes
 * \xNN: control characters (escape sequences, line ends), C1 controls, bytes that are no UTF-8, and characters that
 * cannot be seen or turn the direction of writing. So do the second '#' of "##" and the first ':' of a text that begins
 * with "::", because CI systems take commands from a job's output (GitHub "::error::", Azure "##vso[", TeamCity
 * "##teamcity["). Every message of mr_error_set and mr_log has passed through here. */
#ifndef MR_BASE_TEXT_ESCAPE_H
#define MR_BASE_TEXT_ESCAPE_H

#include "base/strbuf.h"

/* Into `out`, cut at a whole character where `cap` is too small; returned. Applied twice it changes nothing more. */
const char *mr_text_escape(const char *text, char *out, size_t cap);
/* The same for a name that a reader may want to turn back into bytes: a backslash becomes \\. */
const char *mr_name_escape(const char *name, char *out, size_t cap);
/* Appends the text, escaped. */
void mr_strbuf_text(struct mr_strbuf *s, const char *text);
/* Length of the UTF-8 character at `p` that may be shown as it is (1 to 4), else 0. `p` ends with NUL. */
unsigned mr_text_printable(const unsigned char *p);
/* Whether the byte at `p` makes what a CI system takes for a command; `start`: of the whole text. */
bool mr_text_is_command(const char *start, const char *p);

#endif
