/* Numbers as text: what the CSV and JSON formats share. Printing is exact (every value reads back bit-identical, NaN
 * payloads excepted), parsing is correctly rounded, neither looks at the locale. Complex values are two numbers each.
 */
#ifndef MR_FORMAT_TEXT_VALUES_H
#define MR_FORMAT_TEXT_VALUES_H

#include "format/format.h"
#include "format/stream_out.h"

/* ---- one number ---- */

struct mr_number {
    const char *text; /* the token */
    size_t len;
    bool negative, integer; /* integer: digits only */
    bool special;           /* nan or infinity */
    bool nan;
    bool inexact; /* digits beyond the 19th were dropped from the mantissa */
    uint64_t mantissa;
    int exponent; /* decimal: value = mantissa * 10^exponent */
};

/* Recognises a number at the start of [p, end): JSON's grammar, plus nan, inf, infinity in any case and a leading '+'
 * when `loose`, else only NaN, Infinity and -Infinity as Python's json writes them. Returns its length, or 0. */
size_t mr_number_lex(const char *p, const char *end, bool loose, struct mr_number *out);
bool mr_number_to_int64(const struct mr_number *n, int64_t *out); /* false: not integral or out of range */

/* ---- rows of numbers ---- */

/* The scalar inside an element and how many of them an element has (2 for complex). */
enum mr_dtype mr_text_component(enum mr_dtype t, unsigned *count);

/* Prints elements that arrive in arbitrary pieces. Zero-initialise, set dtype; `any` tells that a separator is due. */
struct mr_text_printer {
    enum mr_dtype dtype;
    bool any;
    bool json; /* NaN, Infinity as JSON readers know them; else nan, inf */
    unsigned carry_len;
    uint8_t carry[8];
};
int mr_text_print(struct mr_text_printer *p, struct mr_stream_out *out, const void *data, size_t len,
                  struct mr_error *err);

/* Collects parsed numbers as elements of one type. Counts on beyond `cap_bytes`, so that the caller learns the need. */
struct mr_text_sink {
    enum mr_dtype component;
    unsigned component_bytes;
    uint8_t *dst;
    size_t cap_bytes, bytes;
};
void mr_text_sink_init(struct mr_text_sink *s, enum mr_dtype dtype, void *dst, size_t cap_bytes);
/* False: the number cannot be represented in the type. */
bool mr_text_sink_add(struct mr_text_sink *s, const struct mr_number *n);

/* The common case of both formats taken fast: numbers 0..255 without leading zeros, each followed at once by
 * `separator`. Takes as many from [p, end) as it can see and puts them to dst, which has `room`; returns how many,
 * *rest is behind the last one's separator. Stops early at whatever it does not know, at the end of the text and of the
 * room: the caller goes on with the general way, so this decides nothing about validity. No branch per digit. */
size_t mr_text_run_u8(const char *p, const char *end, char separator, uint8_t *dst, size_t room, const char **rest);

/* Bytes of text per byte of payload, about: what reading costs. */
double mr_text_amplification(enum mr_dtype t);

/* Operations of both formats. Content is made finite (no NaN or infinity, booleans 0 or 1), because text keeps values,
 * not bit patterns. */
void mr_text_synth(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                   uint64_t offset, void *dst, size_t len);
int mr_text_check(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                  const struct mr_sample_out *have, struct mr_error *err);

#endif
