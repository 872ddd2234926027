/* What an answer means: done, again, again more slowly, again with other credentials or in another region, or the end.
 * Messages carry the server's own words (its <Code> and <Message>, nothing else of its answer, and those without any
 * part of the credentials) and what to do. */
#include "base/common.h"
#include "s3/s3_internal.h"
#include "s3/s3_xml.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct words {
    char code[64], message[400], region[64];
};

/* Takes a secret out of a text that comes from elsewhere. */
static void scrub(char *text, const char *secret)
{
    size_t n = strlen(secret);
    if (n < 4)
        return;
    for (char *at; (at = strstr(text, secret));)
        memset(at, '*', n);
}

static void read_words(const struct mr_s3_lane *l, const struct mr_s3_send *s, struct words *w)
{
    const char *text = s->answer.text ? s->answer.text : "";
    mr_s3_xml_find(text, s->answer.len, "Code", w->code, sizeof w->code);
    mr_s3_xml_find(text, s->answer.len, "Message", w->message, sizeof w->message);
    if (!mr_s3_xml_find(text, s->answer.len, "Region", w->region, sizeof w->region) && *s->region_hint)
        snprintf(w->region, sizeof w->region, "%s", s->region_hint);
    for (int i = 0; i < 2; i++) {
        char *t = i ? w->message : w->code;
        scrub(t, l->credentials.secret);
        scrub(t, l->credentials.access_key);
        scrub(t, l->credentials.token);
    }
}

static int fail(struct mr_s3_op *op, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(struct mr_s3_op *op, int code, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    op->code = code;
    mr_error_plain(&op->why, code, "cannot %s 's3://%s%s%s': %s", op->verb_text ? op->verb_text : "reach", op->bucket,
                   *op->key ? "/" : "", op->key, text);
    return code;
}

/* The codes of S3 that need words of their own. */
static const struct {
    const char *name;
    int code;
    const char *hint;
} known[] = {
    {"NoSuchBucket", MR_E_CONFIG, "check the bucket's name and the endpoint; 'aws s3 mb s3://BUCKET' makes one"},
    {"NoSuchKey", -ENOENT, NULL},
    {"NoSuchUpload", -ENOENT, NULL},
    {"AccessDenied", -EACCES, "these credentials may not do this here: ask the bucket's owner for the permission"},
    {"AllAccessDisabled", -EACCES, "the bucket's owner has closed it"},
    {"InvalidAccessKeyId", -EACCES,
     "the server has no such key: check AWS_ACCESS_KEY_ID or AWS_PROFILE, and the endpoint"},
    {"XAdminUserNotFound", -EACCES,
     "the server has no such key: check AWS_ACCESS_KEY_ID or AWS_PROFILE, and the endpoint"},
    {"SignatureDoesNotMatch", -EACCES, "the secret key is wrong: check AWS_SECRET_ACCESS_KEY or AWS_PROFILE"},
    {"ExpiredToken", -EACCES, "get new credentials: the session token has expired"},
    {"TokenRefreshRequired", -EACCES, "get new credentials: the session token has expired"},
    {"InvalidToken", -EACCES, "AWS_SESSION_TOKEN does not belong to these keys"},
    {"RequestTimeTooSkewed", -EACCES, "set this machine's clock ('timedatectl', 'chronyc tracking')"},
    {"RequestExpired", -EACCES, "set this machine's clock ('timedatectl', 'chronyc tracking')"},
    {"InvalidBucketName", MR_E_CONFIG, "check the bucket's name"},
    {"EntityTooLarge", -EFBIG, NULL},
    {"QuotaExceeded", -EDQUOT, "the bucket is full: free space or ask for more"},
    {"XMinioStorageFull", -ENOSPC, "the server's storage is full"},
    {"InvalidRange", 0, NULL},
};

static int code_of_status(long status)
{
    switch (status) {
    case 401:
    case 403: return -EACCES;
    case 404: return -ENOENT;
    case 409: return -EBUSY;
    case 412: return MR_E_CHANGED;
    default: return -EIO;
    }
}

static enum mr_s3_verdict refused(struct mr_s3_lane *l, struct mr_s3_op *op, const struct mr_s3_send *s,
                                  const struct words *w)
{
    const char *hint = NULL;
    int code = s->r.status == 404 && *w->code ? -EACCES : code_of_status(s->r.status); /* some servers hide by 404 */
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++)
        if (!strcmp(w->code, known[i].name)) {
            code = known[i].code;
            hint = known[i].hint;
        }
    if (s->r.status == 404 && code == -ENOENT)
        fail(op, code, "no such object");
    else if (*w->code)
        fail(op, code, "%s: %s (status %ld from %s)", w->code, *w->message ? w->message : "no reason given",
             s->r.status, l->host);
    else
        fail(op, code, "status %ld from %s", s->r.status, l->host);
    double skew = mr_s3_client_skew_s(l->c);
    if (code == -EACCES && fabs(skew) > 300)
        mr_error_hint(&op->why, "the server's clock is %.0f s %s of this machine's: set the clock ('timedatectl')",
                      fabs(skew), skew > 0 ? "ahead" : "behind");
    if (hint)
        mr_error_hint(&op->why, "%s", hint);
    else if (s->r.status == 403)
        mr_error_hint(&op->why, "check the keys, the endpoint and the permission for this prefix");
    return MR_S3_DONE;
}

/* 301, 307 and 400 AuthorizationHeaderMalformed name the region where the bucket is. */
static enum mr_s3_verdict elsewhere(struct mr_s3_op *op, const struct mr_s3_send *s, const struct words *w)
{
    char endpoint[256];
    if (*w->region && !op->redirected)
        return MR_S3_REDIRECT;
    if (*w->region)
        fail(op, MR_E_CONFIG, "the bucket is in region '%s' and cannot be reached there", w->region);
    else if (mr_s3_xml_find(s->answer.text ? s->answer.text : "", s->answer.len, "Endpoint", endpoint, sizeof endpoint))
        fail(op, MR_E_CONFIG, "the bucket is at another endpoint, '%s'", endpoint);
    else
        fail(op, MR_E_CONFIG, "the server redirects the request elsewhere (status %ld)", s->r.status);
    mr_error_hint(&op->why, "give the bucket's own place: --store 's3(region=...,endpoint=...)'");
    return MR_S3_DONE;
}

static void changed(struct mr_s3_op *op)
{
    fail(op, MR_E_CHANGED, "the object was replaced while it was in use");
    mr_error_hint(&op->why, "do not write to a data set that is being read; run again to read the new one");
}

static enum mr_s3_verdict precondition(struct mr_s3_op *op)
{
    if (op->if_absent) {
        fail(op, -EEXIST, "there is such an object already");
        return MR_S3_DONE;
    }
    changed(op);
    return MR_S3_DONE;
}

static bool is_passing(long status, const struct words *w)
{
    return status >= 500 || status == 429 || status == 408 || !strcmp(w->code, "RequestTimeout") ||
           !strcmp(w->code, "OperationAborted") || !strcmp(w->code, "ConditionalRequestConflict");
}

static enum mr_s3_verdict failed_status(struct mr_s3_lane *l, struct mr_s3_op *op, struct mr_s3_send *s)
{
    struct words w;
    long status = s->r.status;
    read_words(l, s, &w);
    if (status == 501 && op->if_absent && !atomic_exchange(&l->c->no_conditional, true))
        return MR_S3_AGAIN;
    if (status == 301 || status == 307 || status == 308 || !strcmp(w.code, "AuthorizationHeaderMalformed") ||
        !strcmp(w.code, "IncorrectEndpoint"))
        return elsewhere(op, s, &w);
    if (status == 412)
        return precondition(op);
    if (is_passing(status, &w) && status != 501) {
        refused(l, op, s, &w); /* what to say if the deadline comes */
        bool slower = status == 503 || status == 429 || !strcmp(w.code, "SlowDown");
        return slower ? MR_S3_SLOWER : MR_S3_AGAIN;
    }
    bool old = !strcmp(w.code, "ExpiredToken") || !strcmp(w.code, "TokenRefreshRequired");
    refused(l, op, s, &w);
    return old && !op->renewed ? MR_S3_RENEW : MR_S3_DONE;
}

static enum mr_s3_verdict failed_connection(struct mr_s3_lane *l, struct mr_s3_op *op, const struct mr_s3_send *s)
{
    const char *why = s->r.why;
    static const char *const what[] = {[MR_HTTP_CONNECT] = "no connection",
                                       [MR_HTTP_RESOLVE] = "unknown host",
                                       [MR_HTTP_TLS] = "TLS",
                                       [MR_HTTP_TIMEOUT] = "no answer in time",
                                       [MR_HTTP_CUT] = "the connection broke"};
    switch (s->r.failure) {
    case MR_HTTP_TLS:
        fail(op, -EPROTO, "TLS with %s: %s", l->host, why);
        mr_error_hint(&op->why, "give the certificate of its authority: --store 's3(ca_file=FILE)'");
        return MR_S3_DONE;
    case MR_HTTP_INTERNAL: fail(op, -ENOMEM, "%s", why); return MR_S3_DONE;
    case MR_HTTP_REFUSED:
        fail(op, -EPROTO, "%s sends %s", l->host,
             s->is_stray ? "other bytes than those asked for" : "more than was asked for");
        return MR_S3_AGAIN;
    default: break;
    }
    fail(op, s->r.failure == MR_HTTP_TIMEOUT ? MR_E_TIMEOUT : -EIO, "%s: %s (%s)", l->host, what[s->r.failure], why);
    mr_error_hint(&op->why, "is the endpoint right and the server up? 'curl -v %s' shows it", l->c->shown);
    return MR_S3_AGAIN;
}

/* A range that the server cut short although the object goes on. */
static bool is_short(const struct mr_s3_op *op, const struct mr_s3_send *s)
{
    if (op->verb != MR_S3_GET || !op->place)
        return false;
    uint64_t want = op->room;
    if (op->ranged && s->has_total)
        want = s->total > op->from ? MR_MIN(want, s->total - op->from) : 0;
    else if (s->r.status == 200)
        want = MR_MIN(want, s->length);
    return s->got < want;
}

static void take_results(struct mr_s3_op *op, struct mr_s3_send *s)
{
    op->code = 0;
    op->got = s->got;
    op->total = s->has_total ? s->total : s->length;
    op->mtime_s = s->mtime_s;
    memcpy(op->etag, s->etag, sizeof op->etag);
    mr_strbuf_done(&op->text);
    op->text = s->answer;
    s->answer = (struct mr_strbuf){0};
}

enum mr_s3_verdict mr_s3_judge(struct mr_s3_lane *l, struct mr_s3_op *op, struct mr_s3_send *s)
{
    op->status = s->r.failure ? 0 : s->r.status;
    if (s->r.failure)
        return failed_connection(l, op, s);
    long status = s->r.status;
    bool ok = status >= 200 && status < 300;
    if (op->ranged && status == 200 && op->from > 0) {
        fail(op, MR_E_UNSUPPORTED, "%s does not serve ranges", l->host);
        return MR_S3_DONE;
    }
    if (op->ranged && status == 416) { /* behind the end */
        s->got = 0;
        mr_strbuf_done(&s->answer);
        take_results(op, s);
        return MR_S3_DONE;
    }
    char code[64];
    if (ok && op->verb == MR_S3_POST && s->answer.text && /* an error may come behind a good status */
        mr_s3_xml_find(s->answer.text, s->answer.len, "Code", code, sizeof code) && !op->needs_md5) {
        s->r.status = !strcmp(code, "InternalError") || !strcmp(code, "SlowDown") ? 503 : 400;
        return failed_status(l, op, s);
    }
    if (!ok)
        return failed_status(l, op, s);
    if (op->if_match && *op->if_match && strcmp(op->if_match, s->etag) != 0) { /* a server that ignores If-Match */
        if (*s->etag)
            changed(op);
        else
            fail(op, -EPROTO, "the answer of %s is not S3's", l->host);
        return MR_S3_DONE;
    }
    if (is_short(op, s)) {
        fail(op, -EIO, "%s sent %zu bytes of %zu", l->host, s->got, op->room);
        return MR_S3_AGAIN;
    }
    take_results(op, s);
    return MR_S3_DONE;
}
