/* AWS Signature Version 4, as S3 wants it: the path is encoded once and not normalised. Checked with AWS's published
 * vectors, the generic ones and S3's own (tests/unit/test_s3_sign.c). Pure: no clock, no I/O; the hashes come from the
 * transport's module. */
#ifndef MR_S3_SIGN_H
#define MR_S3_SIGN_H

#include "s3/http.h"

#include <time.h>

#define MR_S3_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"
#define MR_S3_HEX 65 /* a SHA-256 in hexadecimal, with its end */
#define MR_S3_AUTHORIZATION_MAX 640

/* Appends `text` percent-encoded as S3 wants it: unreserved characters stay, '/' stays in paths. False: no room; `out`
 * is NUL-terminated in any case. */
bool mr_s3_encode(const char *text, bool is_path, char *out, size_t cap);

struct mr_s3_header {
    const char *name, *value; /* name in lower case */
};

/* What is signed. Headers are sorted by name; `path` and `query` are encoded, query sorted ("" for none). */
struct mr_s3_to_sign {
    const char *method, *path, *query;
    const struct mr_s3_header *header;
    unsigned headers;
    const char *payload_hash, *stamp; /* stamp: mr_s3_amz_date */
};

/* A key for one day, region and service: four HMACs that are made once a day. */
struct mr_s3_signing_key {
    uint8_t key[32];
    char scope[96]; /* 20130524/us-east-1/s3/aws4_request */
};

void mr_s3_hex(const uint8_t *bytes, size_t n, char *out); /* 2 n + 1 characters */
void mr_s3_hash_hex(const struct mr_http_ops *http, const void *data, size_t len, char out[MR_S3_HEX]);
void mr_s3_amz_date(time_t t, char out[17]); /* 20130524T000000Z */
void mr_s3_signing_key(const struct mr_http_ops *http, const char *secret, time_t t, const char *region,
                       const char *service, struct mr_s3_signing_key *out);
/* "AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=..." False: it does not fit. */
bool mr_s3_authorization(const struct mr_http_ops *http, const struct mr_s3_to_sign *s, const char *access_key,
                         const struct mr_s3_signing_key *key, char out[MR_S3_AUTHORIZATION_MAX]);

#endif
