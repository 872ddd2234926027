/* What the parts of a client share: its state, and one sent request. */
#ifndef MR_S3_INTERNAL_H
#define MR_S3_INTERNAL_H

#include "base/rng.h"
#include "s3/s3_client.h"

#include <pthread.h>

#define MR_S3_URL_MAX 8192
#define MR_S3_HEADER_TEXT 11264

struct mr_s3_client {
    const struct mr_http_ops *http;
    char scheme[8], host[300]; /* host[:port] of path-style addresses */
    char shown[320];
    bool is_aws, virtual_style, anonymous, insecure, plain;
    char ca_file[1024], profile[128];
    bool from_instance;
    unsigned connections;
    uint64_t connect_timeout_ns, stall_timeout_ns, deadline_ns;
    double hedge;
    struct mr_s3_stats stats;
    mr_s3_ended_fn *ended;
    void *ended_user;
    _Atomic bool no_conditional;
    atomic_bool minio;         /* an answer named that server */
    _Atomic bool reached;      /* some server has answered: what breaks now may come back */
    _Atomic uint64_t first_ns; /* when the first op started; 0: none has */
    _Atomic int64_t skew_ms;
    pthread_mutex_t lock; /* guards what follows; held while credentials are renewed, never during other requests */
    char region[64];
    bool region_given, have_credentials;
    struct mr_s3_credentials credentials;
    unsigned region_generation;
    double tokens; /* of the budget for repeats */
    uint64_t tokens_ns;
    struct mr_s3_lane *free_lanes;
};

/* One request on the wire. */
struct mr_s3_send {
    struct mr_http_request r;
    struct mr_s3_lane *lane;
    struct mr_s3_op *op;
    struct mr_s3_send *next_free;
    size_t got;    /* bytes of the body so far */
    bool is_body;  /* they go to the op's place */
    bool dropped;  /* its op has ended while this one was among the requests just handed back */
    bool is_stray; /* other bytes than those asked for: stop */
    char region_hint[64];
    uint64_t total, first; /* of Content-Range */
    bool has_total, has_first;
    uint64_t length, mtime_s;
    char etag[MR_S3_ETAG_MAX];
    long retry_after_s;
    char url[MR_S3_URL_MAX], text[MR_S3_HEADER_TEXT];
    struct mr_strbuf answer;
};

struct mr_s3_lane {
    struct mr_s3_client *c;
    struct mr_http_client *http;
    struct mr_s3_lane *next;
    struct mr_s3_op *ready, **ready_tail, *waiting, *done, **done_tail, *flying;
    struct mr_s3_send *free_sends;
    unsigned in_flight, under_way;
    double limit; /* requests at once */
    uint64_t slowed_ns, seed, answers;
    uint64_t latency_ns[64], slow_ns; /* of recent answers; how long the slowest of them took, 0: not computed */
    unsigned latencies;
    char date[40];    /* Date of the last answer */
    time_t stamped_s; /* of `stamp` */
    char stamp[17];   /* x-amz-date */
    /* what signing needs, copied when one of the generations changes */
    struct mr_s3_credentials credentials;
    struct mr_s3_signing_key key;
    char region[64], host[300], day[9];
    unsigned generation;
};

#define MR_S3_TOKENS_MAX 500.0 /* of the budget for repeats */
/* ".cn" where names of hosts end so. */
const char *mr_s3_cn_suffix(const char *region);

/* Fills url and headers of a request, signed now. 0, -ENAMETOOLONG, or why there are no credentials (err set). */
int mr_s3_prepare(struct mr_s3_lane *l, struct mr_s3_op *op, struct mr_s3_send *s, struct mr_error *err);

enum mr_s3_verdict { MR_S3_DONE, MR_S3_AGAIN, MR_S3_SLOWER, MR_S3_RENEW, MR_S3_REDIRECT };
/* What an answer means for its op: fills code, why and the results. */
enum mr_s3_verdict mr_s3_judge(struct mr_s3_lane *l, struct mr_s3_op *op, struct mr_s3_send *s);

#endif
