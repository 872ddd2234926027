/* Text and figures inside HTML and SVG. Whatever comes from a trace (file names, host names, arguments, names of spans)
 * goes through mr_html_text or mr_html_name: it stays text, in one direction, and its odd bytes are seen. The same
 * escaping holds between tags and inside quoted attributes. */
#ifndef MR_REPORT_HTML_TEXT_H
#define MR_REPORT_HTML_TEXT_H

#include "base/strbuf.h"

#include <stdint.h>

/* Escapes & < > " '. Control bytes, bytes that are not UTF-8 and characters that turn the direction of the text around
 * are written out ("\x1b", "\u202e"); line ends and tabs stay. */
void mr_html_text(struct mr_strbuf *o, const char *text);
/* A sentence of ours: a line does not end inside "3.09 s" or "77 %", and an arrow is one. */
void mr_html_sentence(struct mr_strbuf *o, const char *text);
void mr_html_printf(struct mr_strbuf *o, const char *fmt, ...) MR_PRINTF(2, 3); /* formats, then escapes */
/* A name that may be long: its middle is left out beyond `cap` bytes (at least 16); the title has up to 500 of them. */
void mr_html_name(struct mr_strbuf *o, const char *name, size_t cap);
/* The same as plain text, for a <title> inside a drawing. */
void mr_html_short(struct mr_strbuf *o, const char *name, size_t cap);

void mr_html_base64(struct mr_strbuf *o, const uint8_t *p, size_t n);

/* What a number is; says how it is written, on axes and in tables. */
enum mr_unit { MR_UNIT_NUMBER, MR_UNIT_COUNT, MR_UNIT_SECONDS, MR_UNIT_BYTES, MR_UNIT_RATE, MR_UNIT_SHARE };

/* "3.71 s", "31.0 %", "1.5 GiB", "235,910"; "unknown" for NAN. Returns `out`. */
const char *mr_unit_text(enum mr_unit unit, double value, char out[MR_HUMAN_LEN]);
/* The same as a <data> element with the exact value: <data value="3.7104">3.71 s</data>. `key` (may be NULL) is the
 * value's place in the JSON report: what the two show can be compared. */
void mr_html_value(struct mr_strbuf *o, enum mr_unit unit, double value, const char *key);
/* A table cell with it, for sorting by the exact value. */
void mr_html_cell(struct mr_strbuf *o, enum mr_unit unit, double value);
/* Nanoseconds as seconds; NAN for UINT64_MAX. */
double mr_ns_to_s(uint64_t ns);

#endif
