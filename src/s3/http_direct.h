/* Reads over plain HTTP without a copy: connections of a client that libcurl has made and handed over, on which requests
 * are written and answers read here, bodies straight to where they belong. Everything else (other methods, TLS, proxies)
 * is libcurl's. Part of the module; http_curl_module.c is the only caller. */
#ifndef MR_S3_HTTP_DIRECT_H
#define MR_S3_HTTP_DIRECT_H

#include "s3/http.h"

struct mr_direct;
struct mr_direct_conn;

/* What the owner does. `connect` begins a connection, which ends in mr_direct_connected or mr_direct_failed; `watch`
 * says which events (EPOLLIN, EPOLLOUT; 0: none any more) of a socket are to reach mr_direct_event. */
struct mr_direct_owner {
    void *user;
    int (*connect)(void *user, struct mr_direct_conn *conn, const char *url);
    void (*drop_connect)(void *user, struct mr_direct_conn *conn);
    bool (*watch)(void *user, int fd, struct mr_direct_conn *conn, unsigned events);
};

struct mr_direct *mr_direct_create(const struct mr_direct_owner *o, const struct mr_http_config *c);
void mr_direct_free(struct mr_direct *d); /* cancels what is under way; accepts NULL */
/* GET of an object over plain HTTP. */
bool mr_direct_can(const struct mr_http_request *r);
int mr_direct_start(struct mr_direct *d, struct mr_http_request *r); /* r->handle: a struct mr_direct_job */
void mr_direct_cancel(struct mr_direct *d, struct mr_http_request *r);
bool mr_direct_has(const struct mr_direct *d, const struct mr_http_request *r);
void mr_direct_connected(struct mr_direct *d, struct mr_direct_conn *conn, int fd); /* takes fd */
void mr_direct_failed(struct mr_direct *d, struct mr_direct_conn *conn, enum mr_http_failure failure, const char *why);
void mr_direct_event(struct mr_direct *d, struct mr_direct_conn *conn);
/* Ends requests on which nothing has moved for too long. */
void mr_direct_check(struct mr_direct *d, uint64_t now_ns);
/* Ended requests, linked by next, or NULL. */
struct mr_http_request *mr_direct_take(struct mr_direct *d);

#endif
