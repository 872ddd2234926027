/* From an op to a signed request: address, headers, signature. */
#include "base/common.h"
#include "s3/s3_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* SHA-256 of no bytes at all. */
static const char nothing[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
static const char *const verbs[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};

bool mr_s3_is_url(const char *path)
{
    return strncmp(path, "s3://", 5) == 0;
}

int mr_s3_split(const char *path, char bucket[MR_S3_BUCKET_MAX], const char **key, struct mr_error *err)
{
    if (!mr_s3_is_url(path)) {
        mr_error_plain(err, MR_E_USAGE, "'%s' is no address of object storage", path);
        return mr_error_hint(err, "write s3://BUCKET/PATH"), MR_E_USAGE;
    }
    const char *name = path + 5;
    size_t n = strcspn(name, "/");
    if (n < 3 || n >= MR_S3_BUCKET_MAX)
        return mr_error_plain(err, MR_E_USAGE, "'%s' has no bucket: a bucket's name has 3 to 63 characters", path);
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789.-_", name[i]))
            return mr_error_plain(err, MR_E_USAGE, "'%s': a bucket's name has small letters, digits, '.' and '-' only",
                                  path);
    memcpy(bucket, name, n);
    bucket[n] = '\0';
    *key = name[n] ? name + n + 1 : name + n;
    return strlen(*key) > MR_S3_KEY_MAX
               ? mr_error_plain(err, -ENAMETOOLONG, "the key of '%s' has more than 1024 bytes", path)
               : 0;
}

/* Credentials, region and day as they are now: the signing key is made again when one of them has changed. */
static int refresh(struct mr_s3_lane *l, time_t now, struct mr_error *err)
{
    struct mr_s3_client *c = l->c;
    int rc = 0;
    if (l->stamped_s != now)
        mr_s3_amz_date(now, l->stamp);
    l->stamped_s = now;
    pthread_mutex_lock(&c->lock);
    bool old = c->credentials.expires && c->credentials.expires < now + 300;
    if (!c->anonymous && (!c->have_credentials || old)) {
        const struct mr_s3_credentials_params p = {
            .profile = c->profile, .region = c->region, .from_instance = c->from_instance};
        struct mr_s3_credentials fresh = {.generation = c->credentials.generation};
        rc = mr_s3_credentials_find(c->http, &p, &fresh, err);
        if (!rc) {
            c->credentials = fresh;
            c->have_credentials = true;
        } else if (old && c->credentials.expires > now) {
            rc = 0; /* they hold for some minutes yet */
        }
        explicit_bzero(&fresh, sizeof fresh);
    }
    unsigned generation = c->credentials.generation + 1000003u * c->region_generation;
    if (!rc && (generation != l->generation || memcmp(l->stamp, l->day, 8) != 0)) {
        l->credentials = c->credentials;
        snprintf(l->region, sizeof l->region, "%s", c->region);
        snprintf(l->host, sizeof l->host, "%s", c->host);
        memcpy(l->day, l->stamp, 8);
        l->generation = generation;
        mr_s3_signing_key(c->http, l->credentials.secret, now, l->region, "s3", &l->key);
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

struct builder {
    struct mr_s3_send *s;
    size_t used;
    bool full;
    struct mr_s3_header signed_header[8];
    unsigned n_signed;
};

/* Adds a header; one that is signed keeps name and value apart. They come in the order of their names. */
static void add(struct builder *b, const char *name, const char *value, bool is_signed)
{
    struct mr_http_request *r = &b->s->r;
    size_t cap = sizeof b->s->text - b->used;
    int n = snprintf(b->s->text + b->used, cap, "%s: %s", name, value);
    if (n < 0 || (size_t)n >= cap || r->headers == MR_HTTP_HEADERS_MAX) {
        b->full = true;
        return;
    }
    if (is_signed)
        b->signed_header[b->n_signed++] =
            (struct mr_s3_header){.name = name, .value = b->s->text + b->used + strlen(name) + 2};
    r->header[r->headers++] = b->s->text + b->used;
    b->used += (size_t)n + 1;
}

static void base64(const uint8_t in[16], char out[25])
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (unsigned i = 0, o = 0; i < 16; i += 3) {
        unsigned v = (unsigned)in[i] << 16 | (i + 1 < 16 ? (unsigned)in[i + 1] << 8 | in[i + 2] : 0);
        out[o++] = digit[v >> 18];
        out[o++] = digit[v >> 12 & 63];
        out[o++] = i + 1 < 16 ? digit[v >> 6 & 63] : '=';
        out[o++] = i + 1 < 16 ? digit[v & 63] : '=';
        out[o] = '\0';
    }
}

/* http://host/bucket/key or https://bucket.host/key; `path` is what is signed. */
static bool put_address(const struct mr_s3_lane *l, const struct mr_s3_op *op, struct mr_s3_send *s, char *host,
                        size_t host_cap, const char **path)
{
    const struct mr_s3_client *c = l->c;
    bool by_host = c->virtual_style && *op->bucket && !strchr(op->bucket, '.');
    snprintf(host, host_cap, "%s%s%s", by_host ? op->bucket : "", by_host ? "." : "", l->host);
    int n = snprintf(s->url, sizeof s->url, "%s://%s", c->scheme, host);
    size_t at = (size_t)n;
    n = snprintf(s->url + at, sizeof s->url - at, "/%s%s", by_host ? "" : op->bucket,
                 by_host || !*op->bucket || !*op->key ? "" : "/");
    size_t end = at + (size_t)n;
    if (!mr_s3_encode(op->key, true, s->url + end, sizeof s->url - end))
        return false;
    *path = s->url + at;
    return true;
}

static void add_conditions(struct builder *b, const struct mr_s3_op *op)
{
    char text[64];
    if (op->if_absent && !atomic_load(&b->s->lane->c->no_conditional))
        add(b, "If-None-Match", "*", false);
    if (op->if_match && *op->if_match && strncmp(op->if_match, "W/", 2) != 0) /* a weak one never matches */
        add(b, "If-Match", op->if_match, false);
    if (op->ranged) {
        snprintf(text, sizeof text, "bytes=%llu-%llu", (unsigned long long)op->from,
                 (unsigned long long)(op->from + op->room - 1));
        add(b, "Range", text, false);
    }
}

static void add_signed(struct builder *b, const struct mr_s3_op *op, const char *host, const char *payload)
{
    struct mr_s3_lane *l = b->s->lane;
    char text[64];
    uint8_t md5[16];
    if (op->needs_md5) {
        l->c->http->md5(op->body, op->body_bytes, md5);
        base64(md5, text);
        add(b, "content-md5", text, true);
    }
    b->signed_header[b->n_signed++] = (struct mr_s3_header){.name = "host", .value = host};
    add(b, "x-amz-content-sha256", payload, true);
    add(b, "x-amz-date", l->stamp, true);
    if (*l->credentials.token)
        add(b, "x-amz-security-token", l->credentials.token, true);
}

int mr_s3_prepare(struct mr_s3_lane *l, struct mr_s3_op *op, struct mr_s3_send *s, struct mr_error *err)
{
    struct mr_s3_client *c = l->c;
    char host[400], payload[MR_S3_HEX], authorization[MR_S3_AUTHORIZATION_MAX];
    const char *path, *query = op->query ? op->query : "";
    time_t now = time(NULL);
    int rc = refresh(l, now, err);
    if (rc)
        return rc;
    s->r.method = verbs[op->verb];
    s->r.url = s->url;
    s->r.headers = 0;
    s->r.body = op->body;
    s->r.body_bytes = op->body_bytes;
    struct builder b = {.s = s};
    if (!put_address(l, op, s, host, sizeof host, &path))
        return mr_error_plain(err, -ENAMETOOLONG, "the address of '%s' is too long", op->key);
    if (!c->anonymous) {
        if (op->body_bytes && c->plain)
            mr_s3_hash_hex(c->http, op->body, op->body_bytes, payload);
        else /* TLS protects a body */
            snprintf(payload, sizeof payload, "%s", op->body_bytes ? MR_S3_UNSIGNED_PAYLOAD : nothing);
        add_signed(&b, op, host, payload);
        const struct mr_s3_to_sign what = {.method = s->r.method,
                                           .path = path,
                                           .query = query,
                                           .header = b.signed_header,
                                           .headers = b.n_signed,
                                           .payload_hash = payload,
                                           .stamp = l->stamp};
        b.full |= !mr_s3_authorization(c->http, &what, l->credentials.access_key, &l->key, authorization);
        add(&b, "Authorization", authorization, false);
    }
    add_conditions(&b, op);
    size_t len = strlen(s->url);
    int n = *query ? snprintf(s->url + len, sizeof s->url - len, "?%s", query) : 0;
    if (b.full || n < 0 || (size_t)n >= sizeof s->url - len)
        return mr_error_plain(err, -ENAMETOOLONG, "the request for '%s' is too long", op->key);
    return 0;
}
