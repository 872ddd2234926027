/* What carries the store's requests: one struct of operations, provided by the module millrace_s3_curl.so (libcurl for
 * HTTP, OpenSSL for hashes). The module is loaded when the first s3 store is opened, so nothing else depends on either
 * library. It includes this header and uses none of our functions.
 *
 * A client belongs to one thread at a time and runs any number of requests at once over connections that it keeps. A
 * request is the caller's and stays put, with all texts and buffers it points to, until `poll` has handed it back or it
 * was cancelled. Callbacks run inside poll, in its thread, and call no operation.
 *
 *   H1  Every started request is handed back by poll exactly once, or cancelled.
 *   H2  `head` is called once per answer, after its status and headers are there and before the first byte of its body.
 *   H3  A body that ends before its Content-Length ends the request with MR_HTTP_CUT, never as complete. */
#ifndef MR_S3_HTTP_H
#define MR_S3_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_HTTP_ABI 2
#define MR_HTTP_MODULE_SYMBOL "mr_http_module"
#define MR_HTTP_HEADERS_MAX 12

enum mr_http_failure {
    MR_HTTP_OK,       /* there is a status */
    MR_HTTP_CONNECT,  /* refused, unreachable */
    MR_HTTP_RESOLVE,  /* no such host */
    MR_HTTP_TLS,      /* the certificate or the handshake was refused */
    MR_HTTP_TIMEOUT,  /* nothing moved for too long */
    MR_HTTP_CUT,      /* the connection broke, or the body is too short */
    MR_HTTP_REFUSED,  /* `data` returned false */
    MR_HTTP_INTERNAL, /* no memory, a bad address */
};

struct mr_http_request {
    /* in */
    const char *method, *url;
    const char *header[MR_HTTP_HEADERS_MAX]; /* "Name: value" */
    unsigned headers;
    const void *body; /* of PUT and POST */
    size_t body_bytes;
    void (*on_header)(struct mr_http_request *r, const char *name, size_t name_len, const char *value, size_t len);
    void (*head)(struct mr_http_request *r);                             /* H2 */
    bool (*data)(struct mr_http_request *r, const void *data, size_t n); /* false: stop */
    /* Where the next bytes of the body belong, set by `head`; a transport that can receives them there, in order, and calls
     * `took` for what has come. What is beyond into_room, and all of it from one that cannot, goes to `data`. took NULL:
     * everything does. */
    void *into;
    size_t into_room;
    void (*took)(struct mr_http_request *r, size_t n);
    /* out */
    long status;
    enum mr_http_failure failure;
    char why[256];                  /* where failure is set; the library's words */
    uint64_t start_ns, connect_ns;  /* connect_ns: spent on a new connection; 0: one was reused */
    uint64_t first_byte_ns, end_ns; /* from start */
    /* the module's */
    void *handle;
    struct mr_http_request *next;
};

struct mr_http_config {
    unsigned connections; /* at once */
    unsigned connect_timeout_ms;
    unsigned stall_timeout_ms; /* a request on which nothing moves for so long has failed */
    const char *ca_file;       /* NULL: the system's */
    bool insecure;             /* do not check who answers */
    const char *user_agent;
};

struct mr_http_client;

struct mr_http_ops {
    uint32_t abi;
    const char *name;                                                  /* "libcurl/7.88.1 OpenSSL/3.0.19" */
    struct mr_http_client *(*open)(const struct mr_http_config *c);    /* NULL: no memory */
    void (*close)(struct mr_http_client *c);                           /* cancels what is under way */
    int (*start)(struct mr_http_client *c, struct mr_http_request *r); /* 0, or -ENOMEM */
    void (*cancel)(struct mr_http_client *c, struct mr_http_request *r);
    /* Moves data; waits up to wait_ms where there is none to move. Finished requests, linked by next, or NULL. */
    struct mr_http_request *(*poll)(struct mr_http_client *c, int wait_ms);

    void (*sha256)(const void *data, size_t len, uint8_t out[32]);
    void (*hmac_sha256)(const void *key, size_t key_len, const void *data, size_t len, uint8_t out[32]);
    void (*md5)(const void *data, size_t len, uint8_t out[16]);
};

struct mr_error;
/* Finds and loads the module, once per process. MR_E_UNSUPPORTED where this build has none. */
int mr_http_load(const struct mr_http_ops **out, struct mr_error *err);
bool mr_http_module_find(char *path, size_t cap);

#endif
