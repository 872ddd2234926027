/* Clients: where the server is and whose requests these are, from options, environment and profile; what is known of
 * them later. Requests are s3_client.c's. */
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "s3/s3_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is known ---- */

void mr_s3_client_watch(struct mr_s3_client *c, mr_s3_ended_fn *fn, void *user)
{
    c->ended_user = user;
    c->ended = fn;
}

const struct mr_s3_stats *mr_s3_client_stats(const struct mr_s3_client *c)
{
    return &c->stats;
}

const struct mr_http_ops *mr_s3_client_http(const struct mr_s3_client *c)
{
    return c->http;
}

const char *mr_s3_client_endpoint(const struct mr_s3_client *c)
{
    return c->shown;
}

const char *mr_s3_client_source(const struct mr_s3_client *c)
{
    return c->anonymous ? "none (anonymous)" : c->have_credentials ? c->credentials.source : "not looked for yet";
}

time_t mr_s3_client_expires(struct mr_s3_client *c)
{
    pthread_mutex_lock(&c->lock);
    time_t t = c->have_credentials ? c->credentials.expires : 0;
    pthread_mutex_unlock(&c->lock);
    return t;
}

void mr_s3_client_region(struct mr_s3_client *c, char out[64])
{
    pthread_mutex_lock(&c->lock);
    memcpy(out, c->region, sizeof c->region);
    pthread_mutex_unlock(&c->lock);
}

bool mr_s3_client_conditional(const struct mr_s3_client *c)
{
    return !atomic_load(&c->no_conditional);
}

bool mr_s3_client_minio(const struct mr_s3_client *c)
{
    return atomic_load_explicit(&c->minio, memory_order_relaxed);
}

double mr_s3_client_skew_s(const struct mr_s3_client *c)
{
    return (double)atomic_load_explicit(&c->skew_ms, memory_order_relaxed) / 1000;
}

/* ---- opening ---- */

const char *mr_s3_cn_suffix(const char *region)
{
    return strncmp(region, "cn-", 3) ? "" : ".cn";
}

static const char *first_set(const char *a, const char *b, const char *c, const char *d)
{
    return a && *a ? a : b && *b ? b : c && *c ? c : d;
}

static int set_endpoint(struct mr_s3_client *c, const char *url, struct mr_error *err)
{
    const char *rest = strstr(url, "://");
    size_t n = rest ? (size_t)(rest - url) : 0;
    if (!rest ||
        (strncmp(url, "http", MR_MAX(n, (size_t)4)) != 0 && strncmp(url, "https", MR_MAX(n, (size_t)5)) != 0)) {
        mr_error_plain(err, MR_E_CONFIG, "the endpoint '%s' is no address", url);
        return mr_error_hint(err, "write it as http://HOST:PORT or https://HOST"), MR_E_CONFIG;
    }
    snprintf(c->scheme, sizeof c->scheme, "%.*s", (int)n, url);
    c->plain = n == 4;
    rest += 3;
    size_t len = strcspn(rest, "/?#");
    const char *port = c->plain ? ":80" : ":443";
    if (len > strlen(port) && !strncmp(rest + len - strlen(port), port, strlen(port)) && rest[len - 1] != ']')
        len -= strlen(port); /* a default port is not in the Host header, which is signed */
    if (len == 0 || len >= sizeof c->host || memchr(rest, '@', len))
        return mr_error_plain(err, MR_E_CONFIG, "the endpoint has no host, or a name and password in it");
    if (rest[strcspn(rest, "/?#")] && strcmp(rest + strcspn(rest, "/?#"), "/") != 0)
        return mr_error_plain(err, MR_E_CONFIG, "the endpoint '%s' has a path; it must be a host alone", url);
    snprintf(c->host, sizeof c->host, "%.*s", (int)len, rest);
    snprintf(c->shown, sizeof c->shown, "%s://%s", c->scheme, c->host);
    return 0;
}

static int configure(struct mr_s3_client *c, const struct mr_s3_config *in, struct mr_error *err)
{
    struct mr_s3_profile profile;
    char aws[128];
    mr_s3_profile_read(in->profile, &profile);
    const char *given = first_set(in->region, secure_getenv("AWS_REGION"), secure_getenv("AWS_DEFAULT_REGION"), NULL);
    const char *region = first_set(given, profile.region, "us-east-1", NULL);
    snprintf(c->region, sizeof c->region, "%s", region);
    const char *endpoint = first_set(in->endpoint, secure_getenv("AWS_ENDPOINT_URL_S3"),
                                     secure_getenv("AWS_ENDPOINT_URL"), profile.endpoint);
    c->is_aws = !*endpoint;
    snprintf(aws, sizeof aws, "https://s3.%s.amazonaws.com%s", c->region, mr_s3_cn_suffix(c->region));
    int rc = set_endpoint(c, c->is_aws ? aws : endpoint, err);
    c->virtual_style = in->addressing == MR_S3_ADDRESS_VIRTUAL || (in->addressing == MR_S3_ADDRESS_AUTO && c->is_aws);
    if (!rc && c->plain && c->is_aws)
        rc = MR_E_CONFIG;
    return rc;
}

int mr_s3_client_open(const struct mr_s3_config *in, struct mr_s3_client **out, struct mr_error *err)
{
    const struct mr_http_ops *http;
    int rc = mr_http_load(&http, err);
    struct mr_s3_client *c = rc ? NULL : calloc(1, sizeof(*c));
    if (!c)
        return rc ? rc : mr_error_set(err, -ENOMEM, "cannot open object storage");
    c->http = http;
    pthread_mutex_init(&c->lock, NULL);
    c->anonymous = in->anonymous;
    c->insecure = in->insecure;
    c->from_instance = in->from_instance;
    c->connections = MR_MAX(in->connections, 1u);
    c->connect_timeout_ns = in->connect_timeout_ns;
    c->stall_timeout_ns = in->stall_timeout_ns;
    c->deadline_ns = in->deadline_ns;
    c->hedge = in->hedge;
    c->tokens = MR_S3_TOKENS_MAX;
    c->tokens_ns = mr_now_ns();
    snprintf(c->ca_file, sizeof c->ca_file, "%s", first_set(in->ca_file, secure_getenv("AWS_CA_BUNDLE"), NULL, ""));
    snprintf(c->profile, sizeof c->profile, "%s", in->profile ? in->profile : "");
    rc = configure(c, in, err);
    if (!rc && c->insecure)
        mr_log(MR_LOG_WARN, "s3: certificates are not checked (insecure=true): anybody on the way may answer");
    if (rc)
        mr_s3_client_close(c);
    else
        *out = c;
    return rc;
}
