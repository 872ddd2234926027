/* Signature Version 4: see s3_sign.h. canonical request -> its hash -> text to sign -> HMAC by the day's key. */
#include "s3/s3_sign.h"
#include "base/common.h"

#include <stdio.h>
#include <string.h>

#define CANONICAL_MAX 16384

static bool stays(unsigned char c, bool is_path)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == '~' || (is_path && c == '/');
}

bool mr_s3_encode(const char *text, bool is_path, char *out, size_t cap)
{
    static const char digit[] = "0123456789ABCDEF";
    size_t at = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        size_t n = stays(*p, is_path) ? 1 : 3;
        if (at + n >= cap) {
            out[at] = '\0';
            return false;
        }
        if (n == 1) {
            out[at++] = (char)*p;
        } else {
            out[at++] = '%';
            out[at++] = digit[*p >> 4];
            out[at++] = digit[*p & 15];
        }
    }
    out[at] = '\0';
    return true;
}

void mr_s3_hex(const uint8_t *bytes, size_t n, char *out)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digit[bytes[i] >> 4];
        out[2 * i + 1] = digit[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

void mr_s3_hash_hex(const struct mr_http_ops *http, const void *data, size_t len, char out[MR_S3_HEX])
{
    uint8_t hash[32];
    http->sha256(data, len, hash);
    mr_s3_hex(hash, sizeof hash, out);
}

void mr_s3_amz_date(time_t t, char out[17])
{
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, 17, "%Y%m%dT%H%M%SZ", &tm);
}

static void hmac_text(const struct mr_http_ops *http, const uint8_t key[32], const char *text, uint8_t out[32])
{
    http->hmac_sha256(key, 32, text, strlen(text), out);
}

void mr_s3_signing_key(const struct mr_http_ops *http, const char *secret, time_t t, const char *region,
                       const char *service, struct mr_s3_signing_key *out)
{
    char date[17], first[160];
    uint8_t a[32], b[32];
    mr_s3_amz_date(t, date);
    date[8] = '\0';
    snprintf(out->scope, sizeof out->scope, "%s/%s/%s/aws4_request", date, region, service);
    int n = snprintf(first, sizeof first, "AWS4%s", secret);
    http->hmac_sha256(first, MR_MIN((size_t)n, sizeof first - 1), date, 8, a);
    explicit_bzero(first, sizeof first);
    hmac_text(http, a, region, b);
    hmac_text(http, b, service, a);
    hmac_text(http, a, "aws4_request", out->key);
    explicit_bzero(a, sizeof a);
    explicit_bzero(b, sizeof b);
}

struct text {
    char *at, *end;
    bool full;
};

static void put(struct text *t, const char *s)
{
    size_t n = strlen(s);
    if (n >= (size_t)(t->end - t->at)) {
        t->full = true;
        return;
    }
    memcpy(t->at, s, n + 1);
    t->at += n;
}

/* A header's value with spaces at its ends cut and runs of them made one. */
static void put_value(struct text *t, const char *v)
{
    v += strspn(v, " ");
    for (size_t n; *v; v += n + strspn(v + n, " ")) { /* word by word */
        n = strcspn(v, " ");
        if (n >= (size_t)(t->end - t->at)) {
            t->full = true;
            return;
        }
        memcpy(t->at, v, n);
        t->at += n;
        *t->at = '\0';
        if (v[n + strspn(v + n, " ")])
            put(t, " ");
    }
}

static void put_names(struct text *t, const struct mr_s3_to_sign *s)
{
    for (unsigned i = 0; i < s->headers; i++) {
        if (i)
            put(t, ";");
        put(t, s->header[i].name);
    }
}

static bool canonical(const struct mr_s3_to_sign *s, char *out, size_t cap)
{
    struct text t = {.at = out, .end = out + cap};
    put(&t, s->method);
    put(&t, "\n");
    put(&t, s->path);
    put(&t, "\n");
    put(&t, s->query);
    put(&t, "\n");
    for (unsigned i = 0; i < s->headers; i++) {
        put(&t, s->header[i].name);
        put(&t, ":");
        put_value(&t, s->header[i].value);
        put(&t, "\n");
    }
    put(&t, "\n");
    put_names(&t, s);
    put(&t, "\n");
    put(&t, s->payload_hash);
    return !t.full;
}

bool mr_s3_authorization(const struct mr_http_ops *http, const struct mr_s3_to_sign *s, const char *access_key,
                         const struct mr_s3_signing_key *key, char out[MR_S3_AUTHORIZATION_MAX])
{
    char text[CANONICAL_MAX], hash[MR_S3_HEX];
    uint8_t mac[32];
    if (!canonical(s, text, sizeof text))
        return false;
    mr_s3_hash_hex(http, text, strlen(text), hash);
    snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", s->stamp, key->scope, hash);
    hmac_text(http, key->key, text, mac);
    mr_s3_hex(mac, sizeof mac, hash);
    struct text t = {.at = out, .end = out + MR_S3_AUTHORIZATION_MAX};
    put(&t, "AWS4-HMAC-SHA256 Credential=");
    put(&t, access_key);
    put(&t, "/");
    put(&t, key->scope);
    put(&t, ", SignedHeaders=");
    put_names(&t, s);
    put(&t, ", Signature=");
    put(&t, hash);
    return !t.full;
}
