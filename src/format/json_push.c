/* See json_push.h. One state says what may come next; a bit per level says whether it is an object. A number that lies
 * within one piece, the common case by far, is taken in one step; one that is cut by a piece's end is gathered first.
 */
#include "format/json_push.h"

#include <string.h>

enum json_state {
    BEFORE_VALUE, /* a value must come */
    FIRST_VALUE,  /* after '[': a value or ']' */
    FIRST_KEY,    /* after '{': a key or '}' */
    BEFORE_KEY,   /* after ',' in an object */
    BEFORE_COLON,
    AFTER_VALUE, /* ',' or the closing bracket */
    DONE,        /* after a top-level value */
    IN_STRING,
    IN_ESCAPE,
    IN_UNICODE,
    AFTER_SURROGATE, /* a high surrogate needs \u.... */
    AFTER_SURROGATE_BACKSLASH,
    IN_NUMBER,
    IN_WORD,
};

static int bad(const struct mr_json *j, struct mr_error *err, const char *what)
{
    return mr_error_plain(err, MR_E_FORMAT, "bad JSON at offset %llu: %s", (unsigned long long)j->offset, what);
}

static bool object_at(const struct mr_json *j, unsigned depth)
{
    return j->in_object[depth / 8] >> (depth % 8) & 1;
}

static void value_done(struct mr_json *j)
{
    j->state = j->depth ? AFTER_VALUE : DONE;
    j->saw_value = true;
}

static int emit(struct mr_json *j, enum mr_json_event e, uint64_t end, struct mr_error *err)
{
    struct mr_json_token t = {.event = e, .depth = j->depth, .start = j->token_start, .end = end};
    return j->fn(j->user, &t, err);
}

static int open_level(struct mr_json *j, bool object, struct mr_error *err)
{
    j->token_start = j->offset;
    if (j->depth == MR_JSON_DEPTH)
        return bad(j, err, "nested deeper than 128 levels");
    int rc = emit(j, object ? MR_PUSH_OBJECT : MR_PUSH_ARRAY, j->offset + 1, err);
    if (object)
        j->in_object[j->depth / 8] |= (uint8_t)(1u << j->depth % 8);
    else
        j->in_object[j->depth / 8] &= (uint8_t) ~(1u << j->depth % 8);
    j->depth++;
    j->state = object ? FIRST_KEY : FIRST_VALUE;
    return rc;
}

static int close_level(struct mr_json *j, bool object, struct mr_error *err)
{
    if (!j->depth || object_at(j, j->depth - 1) != object)
        return bad(j, err, object ? "unexpected '}'" : "unexpected ']'");
    j->depth--;
    j->token_start = j->offset;
    int rc = emit(j, object ? MR_PUSH_OBJECT_END : MR_PUSH_ARRAY_END, j->offset + 1, err);
    value_done(j);
    return rc;
}

static int number_done(struct mr_json *j, const char *text, size_t len, uint64_t end, struct mr_error *err)
{
    struct mr_number n;
    if (mr_number_lex(text, text + len, false, &n) != len)
        return bad(j, err, "not a number");
    struct mr_json_token t = {
        .event = MR_PUSH_NUMBER, .depth = j->depth, .start = j->token_start, .end = end, .number = &n};
    int rc = j->fn(j->user, &t, err);
    value_done(j);
    return rc;
}

static int string_done(struct mr_json *j, struct mr_error *err)
{
    struct mr_json_token t = {.event = j->is_key ? MR_PUSH_KEY : MR_PUSH_STRING,
                              .depth = j->depth,
                              .start = j->token_start,
                              .end = j->offset + 1,
                              .text = j->token,
                              .len = MR_MIN(j->token_len, (size_t)MR_JSON_TOKEN)};
    int rc = j->fn(j->user, &t, err);
    if (j->is_key)
        j->state = BEFORE_COLON;
    else
        value_done(j);
    return rc;
}

static void gather(struct mr_json *j, char c)
{
    if (j->token_len < MR_JSON_TOKEN)
        j->token[j->token_len] = c;
    j->token_len++;
}

static void gather_utf8(struct mr_json *j, unsigned code)
{
    if (code < 0x80) {
        gather(j, (char)code);
    } else if (code < 0x800) {
        gather(j, (char)(0xc0 | code >> 6));
        gather(j, (char)(0x80 | (code & 63)));
    } else if (code < 0x10000) {
        gather(j, (char)(0xe0 | code >> 12));
        gather(j, (char)(0x80 | (code >> 6 & 63)));
        gather(j, (char)(0x80 | (code & 63)));
    } else {
        gather(j, (char)(0xf0 | code >> 18));
        gather(j, (char)(0x80 | (code >> 12 & 63)));
        gather(j, (char)(0x80 | (code >> 6 & 63)));
        gather(j, (char)(0x80 | (code & 63)));
    }
}

/* One byte of a multi-byte character: no overlong forms, no surrogates, nothing above U+10FFFF. */
static int utf8_byte(struct mr_json *j, uint8_t c, struct mr_error *err)
{
    if (!j->utf8_left) {
        if (c >= 0xc2 && c <= 0xdf)
            j->utf8_left = 1, j->utf8_code = c & 31, j->utf8_min = 0x80;
        else if ((c & 0xf0) == 0xe0)
            j->utf8_left = 2, j->utf8_code = c & 15, j->utf8_min = 0x800;
        else if (c >= 0xf0 && c <= 0xf4)
            j->utf8_left = 3, j->utf8_code = c & 7, j->utf8_min = 0x10000;
        else
            return bad(j, err, "string is not UTF-8");
    } else {
        if ((c & 0xc0) != 0x80)
            return bad(j, err, "string is not UTF-8");
        j->utf8_code = j->utf8_code << 6 | (c & 63);
        if (--j->utf8_left == 0 &&
            (j->utf8_code < j->utf8_min || j->utf8_code > 0x10ffff || (j->utf8_code & 0x1ff800) == 0xd800))
            return bad(j, err, "string is not UTF-8");
    }
    gather(j, (char)c);
    return 0;
}

static int string_byte(struct mr_json *j, uint8_t c, struct mr_error *err)
{
    if (j->utf8_left || c >= 0x80)
        return utf8_byte(j, c, err);
    if (c == '"')
        return string_done(j, err);
    if (c == '\\')
        j->state = IN_ESCAPE;
    else if (c < 0x20)
        return bad(j, err, "control character in a string");
    else
        gather(j, (char)c);
    return 0;
}

static int escape_byte(struct mr_json *j, uint8_t c, struct mr_error *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (c == 'u') {
        j->state = IN_UNICODE;
        j->escape_left = 4;
        j->escape_code = 0;
        return 0;
    }
    const char *p = c ? memchr(from, c, sizeof from - 1) : NULL;
    if (!p)
        return bad(j, err, "unknown escape in a string");
    gather(j, to[p - from]);
    j->state = IN_STRING;
    return 0;
}

static int unicode_byte(struct mr_json *j, uint8_t c, struct mr_error *err)
{
    unsigned digit = c >= '0' && c <= '9'                 ? c - (unsigned)'0'
                     : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32u) - 'a' + 10u
                                                          : 16u;
    if (digit == 16)
        return bad(j, err, "\\u needs four hexadecimal digits");
    j->escape_code = j->escape_code << 4 | digit;
    if (--j->escape_left)
        return 0;
    bool high = (j->escape_code & 0xfc00) == 0xd800, low = (j->escape_code & 0xfc00) == 0xdc00;
    if (j->surrogate ? !low : low)
        return bad(j, err, "unpaired surrogate in a string");
    if (high) {
        j->surrogate = j->escape_code;
        j->state = AFTER_SURROGATE;
        return 0;
    }
    if (low)
        j->escape_code = 0x10000 + ((j->surrogate & 0x3ff) << 10 | (j->escape_code & 0x3ff));
    j->surrogate = 0;
    gather_utf8(j, j->escape_code);
    j->state = IN_STRING;
    return 0;
}

static int surrogate_byte(struct mr_json *j, uint8_t c, struct mr_error *err)
{
    if (c != (j->state == AFTER_SURROGATE ? '\\' : 'u'))
        return bad(j, err, "unpaired surrogate in a string");
    if (j->state == AFTER_SURROGATE) {
        j->state = AFTER_SURROGATE_BACKSLASH;
        return 0;
    }
    return escape_byte(j, c, err);
}

static void start_string(struct mr_json *j, bool key)
{
    j->token_start = j->offset;
    j->token_len = 0;
    j->is_key = key;
    j->state = IN_STRING;
}

static int start_value(struct mr_json *j, uint8_t c, struct mr_error *err)
{
    switch (c) {
    case '{': return open_level(j, true, err);
    case '[': return open_level(j, false, err);
    case '"': start_string(j, false); return 0;
    case 't': j->word = "true"; break;
    case 'f': j->word = "false"; break;
    case 'n': j->word = "null"; break;
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
    case 'N':
    case 'I':
        j->token_start = j->offset;
        j->token_len = 0;
        gather(j, (char)c);
        j->state = IN_NUMBER;
        return 0;
    default: return bad(j, err, "a value was expected");
    }
    j->token_start = j->offset;
    j->token_len = 1;
    j->state = IN_WORD;
    return 0;
}

static int word_byte(struct mr_json *j, uint8_t c, struct mr_error *err)
{
    if (c != (uint8_t)j->word[j->token_len])
        return bad(j, err, "true, false or null was expected");
    if (j->word[++j->token_len])
        return 0;
    int rc = emit(j,
                  *j->word == 't'   ? MR_PUSH_TRUE
                  : *j->word == 'f' ? MR_PUSH_FALSE
                                    : MR_PUSH_NULL,
                  j->offset + 1, err);
    value_done(j);
    return rc;
}

static int between_byte(struct mr_json *j, uint8_t c, struct mr_error *err)
{
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r')
        return 0;
    switch ((enum json_state)j->state) {
    case FIRST_VALUE:
        if (c == ']')
            return close_level(j, false, err);
        return start_value(j, c, err);
    case BEFORE_VALUE: return start_value(j, c, err);
    case FIRST_KEY:
        if (c == '}')
            return close_level(j, true, err);
        /* fallthrough */
    case BEFORE_KEY:
        if (c != '"')
            return bad(j, err, "a key in double quotes was expected");
        start_string(j, true);
        return 0;
    case BEFORE_COLON:
        if (c != ':')
            return bad(j, err, "':' was expected");
        j->state = BEFORE_VALUE;
        return 0;
    case AFTER_VALUE:
        if (c == ']' || c == '}')
            return close_level(j, c == '}', err);
        if (c != ',')
            return bad(j, err, "',' or a closing bracket was expected");
        j->state = object_at(j, j->depth - 1) ? BEFORE_KEY : BEFORE_VALUE;
        return 0;
    default:
        if (!j->many)
            return bad(j, err, "text after the end of the value");
        return start_value(j, c, err);
    }
}

static bool ends_number(uint8_t c)
{
    return c == ',' || c == ']' || c == '}' || c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static int feed_byte(struct mr_json *j, uint8_t c, struct mr_error *err)
{
    int rc;
    switch ((enum json_state)j->state) {
    case IN_STRING: return string_byte(j, c, err);
    case IN_ESCAPE: return escape_byte(j, c, err);
    case IN_UNICODE: return unicode_byte(j, c, err);
    case AFTER_SURROGATE:
    case AFTER_SURROGATE_BACKSLASH: return surrogate_byte(j, c, err);
    case IN_WORD: return word_byte(j, c, err);
    case IN_NUMBER:
        if (!ends_number(c)) {
            if (j->token_len == MR_JSON_TOKEN)
                return bad(j, err, "a number of more than 1024 characters");
            gather(j, (char)c);
            return 0;
        }
        rc = number_done(j, j->token, j->token_len, j->offset, err);
        return rc < 0 ? rc : between_byte(j, c, err);
    default: return between_byte(j, c, err);
    }
}

void mr_json_init(struct mr_json *j, bool many, uint64_t offset, mr_json_fn *fn, void *user)
{
    memset(j, 0, offsetof(struct mr_json, token));
    j->fn = fn;
    j->user = user;
    j->many = many;
    j->offset = offset;
    j->state = many ? DONE : BEFORE_VALUE;
}

static size_t run_of_elements(struct mr_json *j, const char *p, const char *end)
{
    bool element = (j->state == BEFORE_VALUE || j->state == FIRST_VALUE) && j->depth && !object_at(j, j->depth - 1);
    size_t n = element ? j->run(j->user, j->depth, p, end) : 0;
    if (n)
        j->state = BEFORE_VALUE; /* the last comma is taken */
    return n;
}

/* A number inside an array whose end is in sight. Returns its length, 0 when it must be gathered. */
static size_t whole_number(const struct mr_json *j, const char *p, const char *end)
{
    if ((j->state != BEFORE_VALUE && j->state != FIRST_VALUE) || !j->depth || ((*p < '0' || *p > '9') && *p != '-'))
        return 0;
    for (size_t n = 1; p + n < end && n < 64; n++)
        if (ends_number((uint8_t)p[n]))
            return n;
    return 0;
}

int mr_json_feed(struct mr_json *j, const void *data, size_t len, struct mr_error *err)
{
    const char *p = data, *end = p + len;
    while (p < end) {
        size_t n = j->run ? run_of_elements(j, p, end) : 0;
        int rc = 0;
        if (n) {
            p += n;
            j->offset += n;
            continue;
        }
        n = whole_number(j, p, end);
        if (n) {
            j->token_start = j->offset;
            rc = number_done(j, p, n, j->offset + n, err);
        } else {
            n = 1;
            rc = feed_byte(j, (uint8_t)*p, err);
        }
        if (rc < 0)
            return rc;
        p += n;
        j->offset += n;
    }
    return 0;
}

int mr_json_end(struct mr_json *j, struct mr_error *err)
{
    if (j->state == IN_NUMBER && !j->depth) {
        int rc = number_done(j, j->token, j->token_len, j->offset, err);
        if (rc < 0)
            return rc;
    }
    return j->state == DONE ? 0 : bad(j, err, "unexpected end of the text");
}
