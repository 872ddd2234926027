/* HTTP by libcurl's multi interface and hashes by OpenSSL, as a module of its own: the only includer of their headers,
 * loaded when a store is opened that needs it. The contract is in http.h.
 *
 * Easy handles are kept and used again, so that a request allocates next to nothing. HTTP/1.1 only: one request per
 * connection at a time, which is what object stores are tuned for. Addresses are shuffled, so that connections spread
 * over the addresses of an endpoint. URLs go out as they are: the signature covers each byte of the path, and S3 does
 * not normalise it.
 *
 * Sockets are watched by epoll and handed to libcurl one by one (curl_multi_socket_action), so that a wake-up costs what
 * has arrived, not what is under way:
 *   W1  `watched` is what epoll reports of a socket, `wanted` what libcurl wants to hear. A kept connection stays watched
 *       between two requests, so that its next one changes nothing; where something arrives meanwhile, it leaves epoll.
 *   W2  A connection leaves epoll before it is closed: a copy of it in a forked child would keep it there. Sockets that
 *       libcurl makes for itself leave it as soon as libcurl has no more use for them. */
#include "s3/http.h"
#include "s3/http_direct.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SPARE_MAX 64
#define EVENTS_MAX 64

struct transfer {
    CURL *easy;
    struct curl_slist header[MR_HTTP_HEADERS_MAX + 1]; /* libcurl reads it only */
    const char *method;                                /* what the handle is set up for */
    struct mr_http_request *r;
    struct mr_direct_conn *conn; /* instead: it makes this connection, which is handed over */
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
    int poller;
    struct mr_direct *direct; /* reads over plain HTTP; NULL: libcurl's, there is a proxy */
    uint64_t timer_ns;        /* when libcurl wants to be called; 0: not */
    struct watched_socket {
        uint8_t watched, wanted; /* W1: EPOLLIN, EPOLLOUT */
        bool is_connection;
        struct mr_direct_conn *direct; /* not libcurl's any more */
    } * socket;                        /* by descriptor */
    int sockets;
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

/* ---- sockets ---- */

static bool make_room(struct mr_http_client *c, int fd)
{
    int n = c->sockets ? c->sockets : 64;
    if (fd < c->sockets)
        return true;
    while (n <= fd)
        n *= 2;
    struct watched_socket *more = realloc(c->socket, (size_t)n * sizeof(*more));
    if (!more)
        return false;
    memset(more + c->sockets, 0, (size_t)(n - c->sockets) * sizeof(*more));
    c->socket = more;
    c->sockets = n;
    return true;
}

static void watch(struct mr_http_client *c, int fd, uint8_t events)
{
    struct epoll_event e = {.events = events, .data.fd = fd};
    int op = !events ? EPOLL_CTL_DEL : c->socket[fd].watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    epoll_ctl(c->poller, op, fd, &e);
    c->socket[fd].watched = events;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *of_socket)
{
    struct mr_http_client *c = user;
    (void)easy, (void)of_socket;
    if (fd < 0 || !make_room(c, fd))
        return what == CURL_POLL_REMOVE ? 0 : -1;
    struct watched_socket *s = &c->socket[fd];
    s->wanted = what == CURL_POLL_REMOVE  ? 0
                : what == CURL_POLL_INOUT ? EPOLLIN | EPOLLOUT
                : what == CURL_POLL_OUT   ? EPOLLOUT
                                          : EPOLLIN;
    bool stays = !s->wanted && (s->is_connection || !s->watched); /* W1, W2 */
    if (!stays && s->wanted != s->watched)
        watch(c, fd, s->wanted);
    return 0;
}

static curl_socket_t on_open(void *user, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct mr_http_client *c = user;
    (void)purpose;
    int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
    if (fd >= 0 && !make_room(c, fd)) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0)
        c->socket[fd] = (struct watched_socket){.is_connection = true};
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

/* W2 */
static int on_close(void *user, curl_socket_t fd)
{
    struct mr_http_client *c = user;
    if (fd < c->sockets) {
        if (c->socket[fd].watched)
            watch(c, fd, 0);
        c->socket[fd] = (struct watched_socket){0};
    }
    return close(fd);
}

static int on_timer(CURLM *multi, long wait_ms, void *user)
{
    struct mr_http_client *c = user;
    (void)multi;
    c->timer_ns = wait_ms < 0 ? 0 : now_ns() + (uint64_t)wait_ms * 1000000u;
    return 0;
}

static void hand_over(struct mr_http_client *c, const struct epoll_event *e)
{
    int fd = e->data.fd, running;
    if (c->socket[fd].direct) {
        mr_direct_event(c->direct, c->socket[fd].direct);
        return;
    }
    if (!c->socket[fd].wanted) { /* W1 */
        watch(c, fd, 0);
        return;
    }
    int bits = (e->events & EPOLLIN ? CURL_CSELECT_IN : 0) | (e->events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
               (e->events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
    curl_multi_socket_action(c->multi, fd, bits, &running);
}

static void run_timer(struct mr_http_client *c)
{
    int running;
    if (c->timer_ns && c->timer_ns <= now_ns()) {
        c->timer_ns = 0;
        curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

/* Until something moves, the timer is due, or wait_ms are over. */
static void wait_for_sockets(struct mr_http_client *c, int wait_ms)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t now = c->timer_ns ? now_ns() : 0;
    if (c->timer_ns && wait_ms > 0) {
        uint64_t left = c->timer_ns > now ? (c->timer_ns - now + 999999) / 1000000 : 0;
        wait_ms = left < (uint64_t)wait_ms ? (int)left : wait_ms;
    }
    int n = epoll_wait(c->poller, events, EVENTS_MAX, wait_ms);
    for (int i = 0; i < n; i++)
        hand_over(c, &events[i]);
    run_timer(c);
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
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, on_open);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, t->owner);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETDATA, t->owner);
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
    if (!t->conn)
        t->r->handle = NULL;
    curl_multi_remove_handle(c->multi, t->easy);
    if (t->prev)
        t->prev->next = t->next;
    else
        c->running = t->next;
    if (t->next)
        t->next->prev = t->prev;
}

static int enter_running(struct mr_http_client *c, struct transfer *t)
{
    t->prev = NULL;
    t->next = c->running;
    if (c->running)
        c->running->prev = t;
    c->running = t;
    if (curl_multi_add_handle(c->multi, t->easy) == CURLM_OK)
        return 0;
    leave_running(c, t);
    return -ENOMEM;
}

/* The list is ours and lives as long as the request. */
static void set_headers(struct transfer *t, const struct mr_http_request *r)
{
    unsigned n = 0;
    for (; n < r->headers; n++)
        t->header[n] = (struct curl_slist){.data = (char *)r->header[n], .next = &t->header[n + 1]};
    t->header[n] = (struct curl_slist){.data = (char *)"Expect:"}; /* a body is sent at once */
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->header);
}

static void set_method(struct transfer *t, const struct mr_http_request *r)
{
    CURL *e = t->easy;
    bool sends = !strcmp(r->method, "PUT") || !strcmp(r->method, "POST");
    if (sends)
        curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_bytes);
    if (t->method && !strcmp(t->method, r->method))
        return;
    t->method = r->method;
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, NULL);
    if (!strcmp(r->method, "HEAD")) {
        curl_easy_setopt(e, CURLOPT_UPLOAD, 0L);
        curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
        return;
    }
    curl_easy_setopt(e, CURLOPT_NOBODY, 0L);
    curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
    if (sends)
        curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
    if (strcmp(r->method, "GET") != 0 && strcmp(r->method, "PUT") != 0)
        curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, r->method);
}

static int client_start(struct mr_http_client *c, struct mr_http_request *r)
{
    r->status = 0;
    r->failure = MR_HTTP_OK;
    r->why[0] = '\0';
    r->connect_ns = r->first_byte_ns = r->end_ns = 0;
    r->into = NULL;
    r->start_ns = now_ns();
    r->next = NULL;
    if (c->direct && mr_direct_can(r))
        return mr_direct_start(c->direct, r);
    struct transfer *t = get_transfer(c);
    if (!t)
        return -ENOMEM;
    t->r = r;
    t->sent = 0;
    t->told = false;
    t->why[0] = '\0';
    set_headers(t, r);
    set_method(t, r);
    curl_easy_setopt(t->easy, CURLOPT_URL, r->url);
    r->handle = t;
    int rc = enter_running(c, t);
    if (rc)
        put_transfer(c, t);
    return rc;
}

/* ---- connections that are handed over ---- */

static int connect_direct(void *user, struct mr_direct_conn *conn, const char *url)
{
    struct mr_http_client *c = user;
    struct transfer *t = get_transfer(c);
    if (!t)
        return -ENOMEM;
    t->conn = conn;
    t->why[0] = '\0';
    curl_easy_setopt(t->easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(t->easy, CURLOPT_URL, url);
    int rc = enter_running(c, t);
    if (rc)
        free_transfer(t);
    return rc;
}

static void drop_connect(void *user, struct mr_direct_conn *conn)
{
    struct mr_http_client *c = user;
    struct transfer *t = c->running;
    while (t && t->conn != conn)
        t = t->next;
    if (t) {
        leave_running(c, t);
        free_transfer(t);
    }
}

static bool watch_direct(void *user, int fd, struct mr_direct_conn *conn, unsigned events)
{
    struct mr_http_client *c = user;
    if (!make_room(c, fd))
        return false;
    if (c->socket[fd].watched != events)
        watch(c, fd, (uint8_t)events);
    c->socket[fd].direct = events ? conn : NULL;
    return true;
}

static enum mr_http_failure failure_of(CURLcode code);

/* A copy of the socket is ours; libcurl closes its own with the handle. */
static void connected(struct mr_http_client *c, struct transfer *t, CURLcode code)
{
    struct mr_direct_conn *conn = t->conn;
    curl_socket_t fd = CURL_SOCKET_BAD;
    char why[CURL_ERROR_SIZE];
    snprintf(why, sizeof why, "%s", t->why[0] ? t->why : curl_easy_strerror(code));
    if (code == CURLE_OK)
        curl_easy_getinfo(t->easy, CURLINFO_ACTIVESOCKET, &fd);
    int copy = fd == CURL_SOCKET_BAD ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    leave_running(c, t);
    free_transfer(t);
    if (copy >= 0)
        mr_direct_connected(c->direct, conn, copy);
    else if (code == CURLE_OK)
        mr_direct_failed(c->direct, conn, MR_HTTP_INTERNAL, "no descriptor for a connection");
    else
        mr_direct_failed(c->direct, conn, failure_of(code), why);
}

static void client_cancel(struct mr_http_client *c, struct mr_http_request *r)
{
    struct transfer *t = r->handle;
    if (!t)
        return;
    if (c->direct && mr_direct_has(c->direct, r)) {
        mr_direct_cancel(c->direct, r);
        return;
    }
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
        if (t->conn) {
            connected(c, t, code);
            continue;
        }
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
    *tail = c->direct ? mr_direct_take(c->direct) : NULL;
    return list;
}

static struct mr_http_request *client_poll(struct mr_http_client *c, int wait_ms)
{
    run_timer(c); /* what was started */
    struct mr_http_request *list = take_finished(c);
    if (list)
        return list;
    wait_for_sockets(c, wait_ms);
    if (c->direct)
        mr_direct_check(c->direct, now_ns());
    return take_finished(c);
}

static void client_close(struct mr_http_client *c)
{
    if (!c)
        return;
    mr_direct_free(c->direct);
    c->direct = NULL;
    for (struct transfer *t = c->running, *next; t; t = next) {
        next = t->next;
        if (t->r)
            t->r->handle = NULL;
        curl_multi_remove_handle(c->multi, t->easy);
        free_transfer(t);
    }
    while (c->spare) {
        struct transfer *t = c->spare;
        c->spare = t->next;
        free_transfer(t);
    }
    if (c->multi)
        curl_multi_cleanup(c->multi);
    if (c->poller >= 0)
        close(c->poller);
    free(c->socket);
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

/* Requests to a proxy are worded differently. */
static bool has_proxy(void)
{
    static const char *const names[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return true;
    }
    return false;
}

static struct mr_http_client *client_open(const struct mr_http_config *config)
{
    pthread_once(&curl_once, init_libraries);
    struct mr_http_client *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->c = *config;
    c->poller = epoll_create1(EPOLL_CLOEXEC);
    c->multi = curl_multi_init();
    c->user_agent = strdup(config->user_agent ? config->user_agent : "millrace");
    c->ca_file = config->ca_file ? strdup(config->ca_file) : NULL;
    const struct mr_direct_owner owner = {
        .user = c, .connect = connect_direct, .drop_connect = drop_connect, .watch = watch_direct};
    c->direct = has_proxy() ? NULL : mr_direct_create(&owner, config);
    if (!c->multi || c->poller < 0 || !c->user_agent || (config->ca_file && !c->ca_file) || !sha256_md || !md5_md) {
        client_close(c);
        return NULL;
    }
    curl_multi_setopt(c->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(c->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)config->connections);
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)config->connections);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    return c;
}

/* ---- hashes ---- */

static void digest(const EVP_MD *md, const void *data, size_t len, const void *more, size_t more_len, uint8_t *out)
{
    EVP_MD_CTX *ctx = pthread_getspecific(ctx_key); /* kept for the thread's life: making one costs a small text */
    if (!ctx) {
        ctx = EVP_MD_CTX_new();
        pthread_setspecific(ctx_key, ctx);
    }
    unsigned n = 0;
    if (!ctx || !EVP_DigestInit_ex2(ctx, md, NULL) || !EVP_DigestUpdate(ctx, data, len) ||
        (more_len && !EVP_DigestUpdate(ctx, more, more_len)) || !EVP_DigestFinal_ex(ctx, out, &n))
        memset(out, 0, (size_t)EVP_MD_get_size(md)); /* no memory: the server refuses the signature */
}

static void sha256(const void *data, size_t len, uint8_t out[32])
{
    pthread_once(&curl_once, init_libraries);
    digest(sha256_md, data, len, NULL, 0, out);
}

static void md5(const void *data, size_t len, uint8_t out[16])
{
    pthread_once(&curl_once, init_libraries);
    digest(md5_md, data, len, NULL, 0, out);
}

/* By two digests: OpenSSL's own call looks up and builds a context for each text, which costs several times as much. */
static void hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, uint8_t out[32])
{
    uint8_t block[64] = {0}, outer[64 + 32];
    pthread_once(&curl_once, init_libraries);
    if (key_len > sizeof block)
        digest(sha256_md, key, key_len, NULL, 0, block);
    else if (key_len)
        memcpy(block, key, key_len);
    for (unsigned i = 0; i < sizeof block; i++) {
        outer[i] = block[i] ^ 0x5c;
        block[i] ^= 0x36;
    }
    digest(sha256_md, block, sizeof block, data, len, outer + 64);
    digest(sha256_md, outer, sizeof outer, NULL, 0, out);
    OPENSSL_cleanse(block, sizeof block);
    OPENSSL_cleanse(outer, sizeof outer);
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
