/* HTTP by libcurl's multi interface and hashes by OpenSSL, as a module of its own: the only includer of their headers,
 * loaded when a store is opened that needs it. The contract is in http.h.
 *
 * Easy handles are kept and used again, so that a request allocates nothing in libcurl but its list of headers. HTTP/1.1
 * only: one request per connection at a time, which is what object stores are tuned for. Addresses are shuffled, so that
 * connections spread over the addresses of an endpoint. URLs go out as they are: the signature covers each byte of the
 * path, and S3 does not normalise it. */
#include "s3/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define SPARE_MAX 64

struct transfer {
    CURL *easy;
    struct curl_slist *list;
    struct mr_http_request *r;
    struct mr_http_client *owner;
    size_t sent;
    bool told; /* H2 */
    char why[CURL_ERROR_SIZE];
    struct transfer *next, *prev; /* running, or spare by next */
};

struct mr_http_client {
    CURLM *multi;
    struct mr_http_config c;
    char *ca_file, *user_agent;
    struct transfer *running, *spare;
    unsigned spares;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- callbacks ---- */

static void tell_head(struct transfer *t)
{
    if (t->told)
        return;
    t->told = true;
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    t->r->status = status;
    if (t->r->head)
        t->r->head(t->r);
}

static size_t on_data(char *data, size_t one, size_t n, void *user)
{
    struct transfer *t = user;
    tell_head(t);
    n *= one;
    return !t->r->data || t->r->data(t->r, data, n) ? n : n + 1;
}

static size_t on_header(char *line, size_t one, size_t n, void *user)
{
    struct transfer *t = user;
    const char *colon;
    n *= one;
    size_t len = n;
    while (len && (line[len - 1] == '\r' || line[len - 1] == '\n'))
        len--;
    if (t->r->on_header && (colon = memchr(line, ':', len))) {
        const char *value = colon + 1, *end = line + len;
        while (value < end && (*value == ' ' || *value == '\t'))
            value++;
        t->r->on_header(t->r, line, (size_t)(colon - line), value, (size_t)(end - value));
    }
    return n;
}

static size_t on_body(char *to, size_t one, size_t room, void *user)
{
    struct transfer *t = user;
    size_t left = t->r->body_bytes - t->sent, n = one * room < left ? one * room : left;
    if (n)
        memcpy(to, (const char *)t->r->body + t->sent, n);
    t->sent += n;
    return n;
}

/* A connection that was kept is found dead while sending: libcurl sends the body again from its start. */
static int on_seek(void *user, curl_off_t offset, int origin)
{
    struct transfer *t = user;
    if (origin != SEEK_SET || offset < 0 || (size_t)offset > t->r->body_bytes)
        return CURL_SEEKFUNC_FAIL;
    t->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* ---- transfers ---- */

static void set_once(struct transfer *t, const struct mr_http_client *c)
{
    CURL *e = t->easy;
    curl_easy_setopt(e, CURLOPT_PRIVATE, t);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->why);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_NOPROGRESS, 1L);
    curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 256L * 1024);
    curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)c->c.connect_timeout_ms);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)(c->c.stall_timeout_ms + 999) / 1000);
    curl_easy_setopt(e, CURLOPT_USERAGENT, c->user_agent);
    if (c->ca_file)
        curl_easy_setopt(e, CURLOPT_CAINFO, c->ca_file);
    if (c->c.insecure) {
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(e, CURLOPT_READFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_READDATA, t);
    curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(e, CURLOPT_SEEKDATA, t);
}

static struct transfer *get_transfer(struct mr_http_client *c)
{
    struct transfer *t = c->spare;
    if (t) {
        c->spare = t->next;
        c->spares--;
        return t;
    }
    t = calloc(1, sizeof(*t));
    if (t && !(t->easy = curl_easy_init())) {
        free(t);
        t = NULL;
    }
    if (t) {
        t->owner = c;
        set_once(t, c);
    }
    return t;
}

static void free_transfer(struct transfer *t)
{
    curl_easy_cleanup(t->easy);
    free(t);
}

static void put_transfer(struct mr_http_client *c, struct transfer *t)
{
    curl_slist_free_all(t->list);
    t->list = NULL;
    t->r = NULL;
    if (c->spares >= SPARE_MAX) {
        free_transfer(t);
        return;
    }
    t->next = c->spare;
    c->spare = t;
    c->spares++;
}

static void leave_running(struct mr_http_client *c, struct transfer *t)
{
    curl_multi_remove_handle(c->multi, t->easy);
    if (t->prev)
        t->prev->next = t->next;
    else
        c->running = t->next;
    if (t->next)
        t->next->prev = t->prev;
    t->r->handle = NULL;
}

static bool add_headers(struct transfer *t, const struct mr_http_request *r)
{
    for (unsigned i = 0; i < r->headers; i++) {
        struct curl_slist *more = curl_slist_append(t->list, r->header[i]);
        if (!more)
            return false;
        t->list = more;
    }
    struct curl_slist *more = curl_slist_append(t->list, "Expect:"); /* a body is sent at once */
    t->list = more ? more : t->list;
    return more != NULL;
}

static void set_method(struct transfer *t, const struct mr_http_request *r)
{
    CURL *e = t->easy;
    bool sends = !strcmp(r->method, "PUT") || !strcmp(r->method, "POST");
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, NULL);
    if (!strcmp(r->method, "HEAD")) {
        curl_easy_setopt(e, CURLOPT_UPLOAD, 0L);
        curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
        return;
    }
    curl_easy_setopt(e, CURLOPT_NOBODY, 0L);
    curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
    if (sends) {
        curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_bytes);
    }
    if (strcmp(r->method, "GET") != 0 && strcmp(r->method, "PUT") != 0)
        curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, r->method);
}

static int client_start(struct mr_http_client *c, struct mr_http_request *r)
{
    struct transfer *t = get_transfer(c);
    if (!t)
        return -ENOMEM;
    t->r = r;
    t->sent = 0;
    t->told = false;
    t->why[0] = '\0';
    if (!add_headers(t, r)) {
        put_transfer(c, t);
        return -ENOMEM;
    }
    set_method(t, r);
    curl_easy_setopt(t->easy, CURLOPT_URL, r->url);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->list);
    r->status = 0;
    r->failure = MR_HTTP_OK;
    r->why[0] = '\0';
    r->connect_ns = r->first_byte_ns = r->end_ns = 0;
    r->start_ns = now_ns();
    r->handle = t;
    r->next = NULL;
    t->prev = NULL;
    t->next = c->running;
    if (c->running)
        c->running->prev = t;
    c->running = t;
    if (curl_multi_add_handle(c->multi, t->easy) != CURLM_OK) {
        leave_running(c, t);
        put_transfer(c, t);
        return -ENOMEM;
    }
    return 0;
}

static void client_cancel(struct mr_http_client *c, struct mr_http_request *r)
{
    struct transfer *t = r->handle;
    if (!t)
        return;
    leave_running(c, t);
    put_transfer(c, t);
}

static enum mr_http_failure failure_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK: return MR_HTTP_OK;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY: return MR_HTTP_RESOLVE;
    case CURLE_COULDNT_CONNECT: return MR_HTTP_CONNECT;
    case CURLE_OPERATION_TIMEDOUT: return MR_HTTP_TIMEOUT;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR: return MR_HTTP_TLS;
    case CURLE_OUT_OF_MEMORY:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: return MR_HTTP_INTERNAL;
    default: return MR_HTTP_CUT;
    }
}

static void note_times(CURL *e, struct mr_http_request *r)
{
    curl_off_t connect = 0, tls = 0, first = 0, total = 0;
    long made = 0;
    curl_easy_getinfo(e, CURLINFO_CONNECT_TIME_T, &connect);
    curl_easy_getinfo(e, CURLINFO_APPCONNECT_TIME_T, &tls);
    curl_easy_getinfo(e, CURLINFO_STARTTRANSFER_TIME_T, &first);
    curl_easy_getinfo(e, CURLINFO_TOTAL_TIME_T, &total);
    curl_easy_getinfo(e, CURLINFO_NUM_CONNECTS, &made);
    r->connect_ns = made ? (uint64_t)(tls > connect ? tls : connect) * 1000 : 0;
    r->first_byte_ns = (uint64_t)first * 1000;
    r->end_ns = (uint64_t)total * 1000;
}

static struct mr_http_request *take_finished(struct mr_http_client *c)
{
    struct mr_http_request *list = NULL, **tail = &list;
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(c->multi, &left));) {
        struct transfer *t = NULL;
        if (m->msg != CURLMSG_DONE)
            continue;
        CURLcode code = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        struct mr_http_request *r = t->r;
        r->failure = code == CURLE_WRITE_ERROR ? MR_HTTP_REFUSED : failure_of(code);
        if (code == CURLE_OK)
            tell_head(t);
        else
            snprintf(r->why, sizeof r->why, "%s", t->why[0] ? t->why : curl_easy_strerror(code));
        note_times(t->easy, r);
        leave_running(c, t);
        put_transfer(c, t);
        *tail = r;
        tail = &r->next;
        r->next = NULL;
    }
    return list;
}

static struct mr_http_request *client_poll(struct mr_http_client *c, int wait_ms)
{
    int running = 0;
    curl_multi_perform(c->multi, &running);
    struct mr_http_request *list = take_finished(c);
    if (list || wait_ms <= 0)
        return list;
    curl_multi_poll(c->multi, NULL, 0, wait_ms, NULL);
    curl_multi_perform(c->multi, &running);
    return take_finished(c);
}

static void client_close(struct mr_http_client *c)
{
    if (!c)
        return;
    while (c->running)
        client_cancel(c, c->running->r);
    while (c->spare) {
        struct transfer *t = c->spare;
        c->spare = t->next;
        free_transfer(t);
    }
    if (c->multi)
        curl_multi_cleanup(c->multi);
    free(c->ca_file);
    free(c->user_agent);
    free(c);
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static pthread_key_t ctx_key;
static EVP_MD *sha256_md, *md5_md;

static void free_ctx(void *ctx)
{
    EVP_MD_CTX_free(ctx);
}

static void init_libraries(void)
{
    pthread_key_create(&ctx_key, free_ctx);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    sha256_md = EVP_MD_fetch(NULL, "SHA256", NULL);
    md5_md = EVP_MD_fetch(NULL, "MD5", NULL);
}

static struct mr_http_client *client_open(const struct mr_http_config *config)
{
    pthread_once(&curl_once, init_libraries);
    struct mr_http_client *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->c = *config;
    c->multi = curl_multi_init();
    c->user_agent = strdup(config->user_agent ? config->user_agent : "millrace");
    c->ca_file = config->ca_file ? strdup(config->ca_file) : NULL;
    if (!c->multi || !c->user_agent || (config->ca_file && !c->ca_file) || !sha256_md || !md5_md) {
        client_close(c);
        return NULL;
    }
    curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(c->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)config->connections);
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)config->connections);
    return c;
}

/* ---- hashes ---- */

static void digest(const EVP_MD *md, const void *data, size_t len, uint8_t *out)
{
    EVP_MD_CTX *ctx = pthread_getspecific(ctx_key); /* kept for the thread's life: making one costs a small text */
    if (!ctx) {
        ctx = EVP_MD_CTX_new();
        pthread_setspecific(ctx_key, ctx);
    }
    unsigned n = 0;
    if (!ctx || !EVP_DigestInit_ex2(ctx, md, NULL) || !EVP_DigestUpdate(ctx, data, len) ||
        !EVP_DigestFinal_ex(ctx, out, &n))
        memset(out, 0, (size_t)EVP_MD_get_size(md)); /* no memory: the server refuses the signature */
}

static void sha256(const void *data, size_t len, uint8_t out[32])
{
    pthread_once(&curl_once, init_libraries);
    digest(sha256_md, data, len, out);
}

static void md5(const void *data, size_t len, uint8_t out[16])
{
    pthread_once(&curl_once, init_libraries);
    digest(md5_md, data, len, out);
}

static void hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, uint8_t out[32])
{
    unsigned n = 0;
    pthread_once(&curl_once, init_libraries);
    if (!HMAC(sha256_md, key, (int)key_len, data, len, out, &n))
        memset(out, 0, 32);
}

__attribute__((visibility("default"))) const struct mr_http_ops mr_http_module = {
    .abi = MR_HTTP_ABI,
    .name = "libcurl",
    .open = client_open,
    .close = client_close,
    .start = client_start,
    .cancel = client_cancel,
    .poll = client_poll,
    .sha256 = sha256,
    .hmac_sha256 = hmac_sha256,
    .md5 = md5,
};
