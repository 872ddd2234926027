/* Requests to an S3 server: signed, sent over kept connections, repeated where that helps.
 *
 *    op ──start──> ready ──(limit)──> under way ──judge──┬─> done ──wait──> caller
 *                    ^                                   │
 *                    └── waiting until next_ns <─────────┘  5xx, 429, resets, time-outs
 *
 * A client is shared by all threads. A lane (connections and the requests on them) belongs to one thread at a time: a
 * queue has one for itself, a direct call borrows one. An op is the caller's and stays put until `wait` hands it back.
 *
 * Repeats are paid from the client's budget, so that a server in trouble is not asked more often than one in good
 * health; a request that is not answered within its deadline ends with what happened last. After "SlowDown" a lane
 * halves the number of requests it has under way, and adds one for each round of good answers. */
#ifndef MR_S3_CLIENT_H
#define MR_S3_CLIENT_H

#include "base/strbuf.h"
#include "s3/http.h"
#include "s3/s3_credentials.h"
#include "s3/s3_sign.h"

#include <stdatomic.h>

#define MR_S3_BUCKET_MAX 64
#define MR_S3_KEY_MAX 1024
#define MR_S3_ETAG_MAX 136

enum mr_s3_addressing { MR_S3_ADDRESS_AUTO, MR_S3_ADDRESS_PATH, MR_S3_ADDRESS_VIRTUAL };

/* Texts may be "": then the environment, the profile and the defaults of AWS count. */
struct mr_s3_config {
    const char *endpoint, *region, *profile, *ca_file;
    enum mr_s3_addressing addressing;
    bool insecure, anonymous, from_instance;
    unsigned connections; /* of a lane */
    uint64_t connect_timeout_ns, stall_timeout_ns, deadline_ns;
    double hedge; /* share of the slowest requests that get a second one; 0: none */
};

struct mr_s3_stats {
    _Atomic uint64_t requests, answers, retries, slowdowns, hedges, hedges_won, connects, bytes_in, bytes_out,
        first_byte_ns, connect_ns, answer_ns, failures; /* ns: summed over answers; answer_ns: until their last byte */
};

struct mr_s3_client;
struct mr_s3_lane;

enum mr_s3_verb { MR_S3_GET, MR_S3_HEAD, MR_S3_PUT, MR_S3_POST, MR_S3_DELETE };

struct mr_s3_op {
    /* in */
    enum mr_s3_verb verb;
    const char *bucket, *key; /* key "": the bucket itself */
    const char *query;        /* encoded, sorted by name; "" or NULL: none */
    bool ranged;
    uint64_t from;        /* ranged: [from, from + room) */
    const char *if_match; /* an ETag; NULL or "": whatever is there */
    bool if_absent;       /* PUT: only where there is nothing; -EEXIST else */
    void *place;          /* the body goes here; NULL: to `text` */
    size_t room;
    const void *body;
    size_t body_bytes;
    bool needs_md5;        /* DeleteObjects */
    bool once;             /* is not repeated because of the server's trouble */
    const char *verb_text; /* for messages: "read" */
    void *user;
    /* out */
    int code; /* 0, or negative: `why` says more */
    struct mr_error why;
    long status;      /* of the last answer; 0: there was none */
    size_t got;       /* bytes at `place` */
    uint64_t total;   /* size of the object */
    uint64_t mtime_s; /* Last-Modified, of HEAD */
    char etag[MR_S3_ETAG_MAX];
    struct mr_strbuf text; /* body where there is no place, or of an error; freed by mr_s3_op_done */
    unsigned tries;
    uint64_t submit_ns, connect_ns, first_byte_ns, end_ns; /* of the last try, but for submit_ns */
    /* the lane's */
    struct mr_s3_op *next;
    struct mr_s3_send *send[2]; /* the request, and the second one */
    uint64_t next_ns, deadline_ns, sent_ns;
    bool renewed, redirected;
};

int mr_s3_client_open(const struct mr_s3_config *c, struct mr_s3_client **out, struct mr_error *err);
void mr_s3_client_close(struct mr_s3_client *c); /* all lanes are back; accepts NULL */
/* Called in the lane's thread for each op that has ended; before the first one starts. */
typedef void mr_s3_ended_fn(void *user, const struct mr_s3_op *op);
void mr_s3_client_watch(struct mr_s3_client *c, mr_s3_ended_fn *fn, void *user);
const struct mr_s3_stats *mr_s3_client_stats(const struct mr_s3_client *c);
const struct mr_http_ops *mr_s3_client_http(const struct mr_s3_client *c);
const char *mr_s3_client_endpoint(const struct mr_s3_client *c); /* http://127.0.0.1:7070; for people */
const char *mr_s3_client_source(const struct mr_s3_client *c);   /* where the credentials are from */
time_t mr_s3_client_expires(struct mr_s3_client *c);             /* of the credentials; 0: never, or there are none */
void mr_s3_client_region(struct mr_s3_client *c, char out[64]);
bool mr_s3_client_conditional(const struct mr_s3_client *c); /* the server has not refused conditional puts */
/* The server is MinIO, as far as its answers say. */
bool mr_s3_client_minio(const struct mr_s3_client *c);
/* Seconds by which the server's clock is ahead, from its last answer. */
double mr_s3_client_skew_s(const struct mr_s3_client *c);

int mr_s3_lane_get(struct mr_s3_client *c, struct mr_s3_lane **out, struct mr_error *err);
/* Nothing is under way. */
void mr_s3_lane_put(struct mr_s3_lane *l);
void mr_s3_lane_start(struct mr_s3_lane *l, struct mr_s3_op *op);
/* Waits until an op is done, or until_ns has passed; NULL then, and where nothing is under way. */
struct mr_s3_op *mr_s3_lane_wait(struct mr_s3_lane *l, uint64_t until_ns);
unsigned mr_s3_lane_under_way(const struct mr_s3_lane *l);
void mr_s3_lane_cancel(struct mr_s3_lane *l, struct mr_s3_op *op);
/* One op, to its end; returns its code with err set. */
int mr_s3_run(struct mr_s3_client *c, struct mr_s3_op *op, struct mr_error *err);
void mr_s3_op_done(struct mr_s3_op *op);

/* s3://BUCKET/KEY: the key's place in `path`. 0, or MR_E_USAGE. */
bool mr_s3_is_url(const char *path);
int mr_s3_split(const char *path, char bucket[MR_S3_BUCKET_MAX], const char **key, struct mr_error *err);

#endif
