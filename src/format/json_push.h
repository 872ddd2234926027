/* A strict JSON tokenizer that is fed pieces of any size and calls back per token; memory is constant. RFC 8259, with
 * NaN, Infinity and -Infinity as Python's json module writes them. Strings must be UTF-8, escapes valid, surrogates
 * paired; nesting is limited to MR_JSON_DEPTH. */
#ifndef MR_FORMAT_JSON_PUSH_H
#define MR_FORMAT_JSON_PUSH_H

#include "format/text_values.h"

#define MR_JSON_DEPTH 128u
#define MR_JSON_TOKEN 1024u /* numbers longer than this are refused, strings are handed out cut */

enum mr_json_event {
    MR_PUSH_OBJECT,
    MR_PUSH_OBJECT_END,
    MR_PUSH_ARRAY,
    MR_PUSH_ARRAY_END,
    MR_PUSH_KEY,
    MR_PUSH_STRING,
    MR_PUSH_NUMBER,
    MR_PUSH_TRUE,
    MR_PUSH_FALSE,
    MR_PUSH_NULL
};

struct mr_json_token {
    enum mr_json_event event;
    unsigned depth;      /* of the value: 0 = top level; END events have the depth of their start */
    uint64_t start, end; /* offsets of the token's text; for END events, of the closing bracket */
    const char *text;    /* KEY, STRING: unescaped, not NUL-terminated */
    size_t len;
    const struct mr_number *number; /* NUMBER */
};

/* Negative return stops; it must have set err. */
typedef int mr_json_fn(void *user, const struct mr_json_token *t, struct mr_error *err);

/* Takes a run of array elements, each with its comma, from [p, end) and returns how many characters; 0: none. Offered
 * at the start of an element; what it leaves comes as tokens. */
typedef size_t mr_json_run_fn(void *user, unsigned depth, const char *p, const char *end);

struct mr_json {
    mr_json_fn *fn;
    mr_json_run_fn *run; /* or NULL; set after init */
    void *user;
    bool many; /* several top-level values one after the other (JSON lines) are fine */
    uint64_t offset, token_start;
    unsigned state, depth;
    bool is_key, saw_value;
    uint8_t in_object[MR_JSON_DEPTH / 8 + 1];
    size_t token_len;
    unsigned utf8_left, utf8_code, utf8_min;
    unsigned escape_left, escape_code, surrogate;
    const char *word;
    char token[MR_JSON_TOKEN];
};

void mr_json_init(struct mr_json *j, bool many, uint64_t offset, mr_json_fn *fn, void *user);
int mr_json_feed(struct mr_json *j, const void *data, size_t len, struct mr_error *err);
/* No more input. MR_E_FORMAT when a value is not complete. */
int mr_json_end(struct mr_json *j, struct mr_error *err);

#endif
