/* A growing string. Zero-initialise it ({0}), append, take or free. `text` is NULL until the first append, otherwise
 * always NUL-terminated. A failed allocation sets `failed` and makes further appends no-ops, so a long sequence of
 * appends needs one check at the end. */
#ifndef MR_BASE_STRBUF_H
#define MR_BASE_STRBUF_H

#include <millrace/error.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct mr_strbuf {
    char *text;
    size_t len, cap;
    bool failed;
};

void mr_strbuf_add(struct mr_strbuf *s, const char *text, size_t len);
void mr_strbuf_puts(struct mr_strbuf *s, const char *text);
void mr_strbuf_putc(struct mr_strbuf *s, char c);
void mr_strbuf_printf(struct mr_strbuf *s, const char *fmt, ...) MR_PRINTF(2, 3);
void mr_strbuf_vprintf(struct mr_strbuf *s, const char *fmt, va_list ap) MR_PRINTF(2, 0);
/* Returns the text (never NULL unless allocation failed); the caller frees it; `s` is empty again. */
char *mr_strbuf_take(struct mr_strbuf *s);
void mr_strbuf_done(struct mr_strbuf *s);

/* Human-readable figures into a caller's buffer (returned): sizes in IEC units ("1.5 GiB"), durations ("1.3 ms"),
 * counts with thousands separators ("1,281,167"), rates ("3.2 GiB/s"). 32 bytes always suffice. */
#define MR_HUMAN_LEN 32
const char *mr_human_bytes(double bytes, char out[MR_HUMAN_LEN]);
const char *mr_human_rate(double bytes_per_s, char out[MR_HUMAN_LEN]);
const char *mr_human_ns(double ns, char out[MR_HUMAN_LEN]);
const char *mr_human_count(unsigned long long n, char out[MR_HUMAN_LEN]);
/* A word of a command line that we suggest: as it is, or in double quotes where a shell would take it apart. What does
 * not fit `cap` becomes "...": half a word in quotes is another word, and without quotes it could run something. */
const char *mr_shell_word(const char *word, char *out, size_t cap);
/* The word that follows the number: mr_plural(n, "process", "processes"). */
const char *mr_plural(unsigned long long n, const char *one, const char *many);

#endif
