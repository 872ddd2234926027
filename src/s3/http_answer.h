/* Answers of HTTP/1.1 as they come over a connection: the head, and where the body ends. Pure functions over bytes that
 * anybody may have sent; for connections that are read without libcurl (http_direct.h). */
#ifndef MR_S3_HTTP_ANSWER_H
#define MR_S3_HTTP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_HTTP_HEAD_MAX 16384

struct mr_http_head {
    long status;
    bool chunked, keeps; /* keeps: the connection may be used again */
    bool has_length;     /* else the body ends with the connection, unless it is chunked */
    uint64_t length;
};

typedef void mr_http_header_fn(void *user, const char *name, size_t name_len, const char *value, size_t len);

/* The head at the beginning of `text`: its bytes with the empty line behind it; 0: it is not whole yet; -1: no head, a
 * folded line, two lengths that differ. Headers are passed on as they come. */
int mr_http_head_parse(const char *text, size_t n, struct mr_http_head *out, mr_http_header_fn *fn, void *user);

/* A chunked body. Begin with zeroes. */
struct mr_http_chunks {
    uint64_t left; /* of the chunk */
    uint8_t state;
    uint16_t line; /* bytes of a line so far */
};
/* Takes from `text` what comes next: *data, *len is a piece of the body (len 0: none in it). Bytes taken; -1: no chunked
 * body. *ended: that was all. */
int64_t mr_http_chunks_take(struct mr_http_chunks *c, const char *text, size_t n, const char **data, size_t *len,
                            bool *ended);

#endif
