/* Reads over plain HTTP: see http_direct.h.
 *
 *   start ──> waiting ──> connection (kept one, or a new one by libcurl) ──> request sent ──> head ──> body ──> ended
 *
 * The head comes into a small buffer with whatever is behind it; the rest of the body is received where it belongs. Where
 * much is left, the socket wakes up for a good part of it at a time (SO_RCVLOWAT), not for each packet.
 *
 * Invariants (H1 to H3 of http.h besides)
 *   D1  A request is waiting, on one connection, or ended; a connection has one request or is idle.
 *   D2  Into r->into goes what belongs there, in order, at most r->into_room bytes; `took` is called for each piece.
 *   D3  A connection is used again only where its answer ended by its own length and said nothing against it.
 *   D4  A kept connection that turns out closed before anything of an answer came is replaced once: the server had closed
 *       it before it saw the request. */
#include "s3/http_direct.h"
#include "s3/http_answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEAD_FIRST 2048u /* more of the body than needed would be copied */
#define OUT_MAX 20480u
#define WAKE_BYTES ((size_t)256 << 10)
#define CHECK_NS 500000000u

enum conn_state { CONNECTING, IDLE, SENDING, IN_HEAD, IN_BODY };

struct mr_direct_conn {
    struct mr_direct *d;
    struct mr_direct_conn *next;
    int fd; /* -1: none yet */
    enum conn_state state;
    bool used, fresh; /* used: an answer has come over it; fresh: made for this request */
    int wake_bytes;   /* SO_RCVLOWAT */
    char host[320];
    struct mr_http_request *r;
    uint64_t moved_ns, idle_ns;
    struct mr_http_head head;
    struct mr_http_chunks chunks;
    uint64_t left; /* of the body, where its length is known */
    size_t out_len, out_at, in_len;
    char out[OUT_MAX], in[MR_HTTP_HEAD_MAX];
};

struct mr_direct {
    struct mr_direct_owner o;
    unsigned limit, conns;
    uint64_t stall_ns, checked_ns;
    char user_agent[64];
    struct mr_direct_conn *conn;
    struct mr_http_request *waiting, **waiting_tail, *ended, **ended_tail;
    unsigned waits;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- connections ---- */

static void unlink_conn(struct mr_direct *d, struct mr_direct_conn *conn)
{
    struct mr_direct_conn **at = &d->conn;
    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    d->conns--;
}

static void close_conn(struct mr_direct *d, struct mr_direct_conn *conn)
{
    if (conn->state == CONNECTING)
        d->o.drop_connect(d->o.user, conn);
    unlink_conn(d, conn);
    if (conn->fd >= 0) {
        d->o.watch(d->o.user, conn->fd, conn, 0);
        close(conn->fd);
    }
    explicit_bzero(conn->out, sizeof conn->out); /* signatures */
    free(conn);
}

/* "host:port" of http://host:port/...; its length. */
static size_t host_of(const char *url, const char **host)
{
    *host = url + 7;
    return strcspn(*host, "/");
}

static struct mr_direct_conn *idle_conn(struct mr_direct *d, const char *host, size_t len)
{
    struct mr_direct_conn *best = NULL; /* the one used last */
    for (struct mr_direct_conn *c = d->conn; c; c = c->next)
        if (c->state == IDLE && !strncmp(c->host, host, len) && !c->host[len] && (!best || c->idle_ns > best->idle_ns))
            best = c;
    return best;
}

static bool make_room(struct mr_direct *d)
{
    struct mr_direct_conn *oldest = NULL; /* of another host */
    for (struct mr_direct_conn *c = d->conn; c && d->conns >= d->limit; c = c->next)
        if (c->state == IDLE && (!oldest || c->idle_ns < oldest->idle_ns))
            oldest = c;
    if (oldest)
        close_conn(d, oldest);
    return d->conns < d->limit;
}

/* ---- requests ---- */

static void end_request(struct mr_direct *d, struct mr_http_request *r, enum mr_http_failure failure, const char *why)
{
    r->failure = failure;
    if (failure)
        snprintf(r->why, sizeof r->why, "%s", why);
    r->end_ns = now_ns() - r->start_ns;
    r->handle = NULL;
    r->next = NULL;
    *d->ended_tail = r;
    d->ended_tail = &r->next;
}

static void fail_conn(struct mr_direct *d, struct mr_direct_conn *conn, enum mr_http_failure failure, const char *why);

/* False: the text is too long, or a value breaks its line. */
static bool put_request(struct mr_direct_conn *conn, const struct mr_http_request *r)
{
    const char *host, *path;
    size_t len = host_of(r->url, &host);
    path = host + len;
    int n = snprintf(conn->out, sizeof conn->out, "GET %s HTTP/1.1\r\nHost: %.*s\r\nUser-Agent: %s\r\nAccept: */*\r\n",
                     *path ? path : "/", (int)len, host, conn->d->user_agent);
    size_t at = n > 0 ? (size_t)n : sizeof conn->out;
    for (unsigned i = 0; i < r->headers && at < sizeof conn->out; i++) {
        size_t bytes = strlen(r->header[i]);
        if (strpbrk(r->header[i], "\r\n") || bytes + 5 > sizeof conn->out - at)
            return false;
        memcpy(conn->out + at, r->header[i], bytes);
        memcpy(conn->out + at + bytes, "\r\n", 2);
        at += bytes + 2;
    }
    if (at + 2 > sizeof conn->out)
        return false;
    memcpy(conn->out + at, "\r\n", 2);
    conn->out_len = at + 2;
    conn->out_at = 0;
    return true;
}

static void wake_for(struct mr_direct_conn *conn, size_t bytes)
{
    int wanted = bytes > WAKE_BYTES ? (int)WAKE_BYTES : bytes > 65536 ? (int)bytes : 1;
    if (conn->wake_bytes != wanted && !setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted))
        conn->wake_bytes = wanted;
}

/* The connection's request goes to a new connection (D4), or has failed. */
static void broken(struct mr_direct *d, struct mr_direct_conn *conn, const char *why)
{
    struct mr_http_request *r = conn->r;
    bool again = conn->used && !conn->fresh && r && !conn->in_len && conn->state != IN_BODY;
    if (!again) {
        fail_conn(d, conn, MR_HTTP_CUT, why);
        return;
    }
    conn->r = NULL;
    close_conn(d, conn);
    if (mr_direct_start(d, r) < 0)
        end_request(d, r, MR_HTTP_INTERNAL, "no memory");
}

static void send_more(struct mr_direct *d, struct mr_direct_conn *conn)
{
    while (conn->out_at < conn->out_len) {
        ssize_t n = send(conn->fd, conn->out + conn->out_at, conn->out_len - conn->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            d->o.watch(d->o.user, conn->fd, conn, EPOLLIN | EPOLLOUT);
            return;
        }
        if (n < 0) {
            broken(d, conn, strerror(errno));
            return;
        }
        conn->out_at += (size_t)n;
    }
    conn->state = IN_HEAD;
    d->o.watch(d->o.user, conn->fd, conn, EPOLLIN);
}

static void begin(struct mr_direct *d, struct mr_direct_conn *conn)
{
    conn->state = SENDING;
    conn->in_len = 0;
    conn->chunks = (struct mr_http_chunks){0};
    conn->moved_ns = now_ns();
    wake_for(conn, 1);
    if (!put_request(conn, conn->r))
        fail_conn(d, conn, MR_HTTP_INTERNAL, "the request is too long, or a header breaks its line");
    else
        send_more(d, conn);
}

/* Gives waiting requests to connections as long as there are any. */
static void give_out(struct mr_direct *d)
{
    while (d->waiting) {
        struct mr_http_request *r = d->waiting;
        const char *host;
        size_t len = host_of(r->url, &host);
        struct mr_direct_conn *conn = idle_conn(d, host, len);
        bool is_new = !conn;
        if (!conn && !make_room(d))
            return;
        d->waiting = r->next;
        d->waiting_tail = d->waiting ? d->waiting_tail : &d->waiting;
        d->waits--;
        if (is_new && (conn = calloc(1, sizeof(*conn)))) {
            conn->d = d;
            conn->fd = -1;
            conn->wake_bytes = 1;
            snprintf(conn->host, sizeof conn->host, "%.*s", (int)len, host);
            conn->next = d->conn;
            d->conn = conn;
            d->conns++;
        }
        if (!conn) {
            end_request(d, r, MR_HTTP_INTERNAL, "no memory");
            continue;
        }
        conn->r = r;
        conn->fresh = is_new;
        r->handle = conn;
        if (!is_new)
            begin(d, conn);
        else if (d->o.connect(d->o.user, conn, r->url) < 0)
            fail_conn(d, conn, MR_HTTP_INTERNAL, "no memory");
    }
}

static void fail_conn(struct mr_direct *d, struct mr_direct_conn *conn, enum mr_http_failure failure, const char *why)
{
    struct mr_http_request *r = conn->r;
    conn->r = NULL;
    close_conn(d, conn);
    if (r)
        end_request(d, r, failure, why);
    give_out(d);
}

/* ---- answers ---- */

static void on_header(void *user, const char *name, size_t name_len, const char *value, size_t len)
{
    struct mr_http_request *r = user;
    if (r->on_header)
        r->on_header(r, name, name_len, value, len);
}

static void end_answer(struct mr_direct *d, struct mr_direct_conn *conn)
{
    struct mr_http_request *r = conn->r;
    bool again = conn->head.keeps && (conn->head.has_length || conn->head.chunked) && !conn->in_len; /* D3 */
    conn->r = NULL;
    conn->used = true;
    end_request(d, r, MR_HTTP_OK, "");
    if (again) {
        conn->state = IDLE;
        conn->idle_ns = r->start_ns + r->end_ns;
        wake_for(conn, 1);
    } else {
        close_conn(d, conn);
    }
    give_out(d);
}

static bool give(struct mr_http_request *r, const char *data, size_t n)
{
    size_t direct = n < r->into_room ? n : r->into_room;
    if (r->into && direct) { /* D2 */
        memcpy(r->into, data, direct);
        r->into = (char *)r->into + direct;
        r->into_room -= direct;
        r->took(r, direct);
        data += direct;
        n -= direct;
    }
    return !n || !r->data || r->data(r, data, n);
}

/* Bytes of the body that lie in `in`. 1: the answer has ended; -1: refused; -2: no body of HTTP. */
static int take_buffered(struct mr_direct_conn *conn)
{
    size_t n = conn->in_len, at = 0;
    bool ended = false;
    conn->in_len = 0;
    if (!conn->head.chunked) {
        size_t part = conn->head.has_length && conn->left < n ? (size_t)conn->left : n;
        conn->left -= conn->head.has_length ? part : 0;
        conn->in_len = n - part; /* what nobody asked for: D3 */
        return part && !give(conn->r, conn->in, part) ? -1 : conn->head.has_length && !conn->left;
    }
    while (at < n && !ended) {
        const char *data;
        size_t len;
        int64_t used = mr_http_chunks_take(&conn->chunks, conn->in + at, n - at, &data, &len, &ended);
        if (used < 0)
            return -2;
        if (len && !give(conn->r, data, len))
            return -1;
        at += (size_t)used;
    }
    conn->in_len = n - at;
    return ended;
}

/* Bytes received; 0: nothing more for now; -1: the connection ended, or broke. */
static ssize_t receive(struct mr_direct_conn *conn, void *to, size_t n)
{
    for (;;) {
        ssize_t got = recv(conn->fd, to, n, MSG_DONTWAIT);
        if (got > 0)
            return got;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        errno = got ? errno : 0;
        return -1;
    }
}

static const char *why_broken(void)
{
    return errno ? strerror(errno) : "the server closed the connection";
}

/* True: the head is there, and what is behind it was given on. */
static bool read_head(struct mr_direct *d, struct mr_direct_conn *conn)
{
    struct mr_http_request *r = conn->r;
    for (;;) {
        size_t room = conn->in_len < HEAD_FIRST ? HEAD_FIRST - conn->in_len : sizeof conn->in - conn->in_len;
        ssize_t n = receive(conn, conn->in + conn->in_len, room);
        if (n < 0)
            broken(d, conn, why_broken());
        if (n <= 0)
            return false;
        conn->moved_ns = now_ns();
        if (!conn->in_len)
            r->first_byte_ns = conn->moved_ns - r->start_ns;
        conn->in_len += (size_t)n;
        for (;;) {
            int used = mr_http_head_parse(conn->in, conn->in_len, &conn->head, on_header, r);
            if (used < 0) {
                fail_conn(d, conn, MR_HTTP_CUT, "the answer is not HTTP's");
                return false;
            }
            if (!used)
                break;
            memmove(conn->in, conn->in + used, conn->in_len - (size_t)used);
            conn->in_len -= (size_t)used;
            if (conn->head.status >= 200) {
                conn->left = conn->head.length;
                return true;
            }
        }
    }
}

/* The body's next bytes, straight to their place where they have one. As receive(). */
static ssize_t receive_body(struct mr_direct_conn *conn)
{
    struct mr_http_request *r = conn->r;
    size_t most = conn->head.has_length && conn->left < SIZE_MAX ? (size_t)conn->left : SIZE_MAX;
    if (!conn->head.chunked && r->into && r->into_room) {
        size_t want = most < r->into_room ? most : r->into_room;
        ssize_t n = receive(conn, r->into, want);
        if (n > 0) { /* D2 */
            r->into = (char *)r->into + n;
            r->into_room -= (size_t)n;
            conn->left -= conn->head.has_length ? (uint64_t)n : 0;
            r->took(r, (size_t)n);
        }
        return n;
    }
    ssize_t n = receive(conn, conn->in, sizeof conn->in < most || conn->head.chunked ? sizeof conn->in : most);
    conn->in_len = n > 0 ? (size_t)n : 0;
    return n;
}

static void read_body(struct mr_direct *d, struct mr_direct_conn *conn)
{
    for (;;) {
        int ended = conn->in_len ? take_buffered(conn) : !conn->head.chunked && conn->head.has_length && !conn->left;
        if (ended < 0) {
            fail_conn(d, conn, ended == -1 ? MR_HTTP_REFUSED : MR_HTTP_CUT, "the body is not as its head says");
            return;
        }
        if (ended) {
            end_answer(d, conn);
            return;
        }
        ssize_t n = receive_body(conn);
        if (n == 0) {
            wake_for(conn, conn->head.has_length && conn->left < SIZE_MAX ? (size_t)conn->left : 1);
            return;
        }
        if (n < 0 && !errno && !conn->head.chunked && !conn->head.has_length) { /* it ends with the connection */
            end_answer(d, conn);
            return;
        }
        if (n < 0) {
            fail_conn(d, conn, MR_HTTP_CUT, why_broken());
            return;
        }
        conn->moved_ns = now_ns();
    }
}

void mr_direct_event(struct mr_direct *d, struct mr_direct_conn *conn)
{
    if (conn->state == IDLE) { /* closed by the server, or bytes that nobody asked for */
        char one;
        if (recv(conn->fd, &one, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR))
            close_conn(d, conn);
        return;
    }
    if (conn->state == SENDING) {
        send_more(d, conn);
        return;
    }
    if (conn->state == IN_HEAD) {
        if (!read_head(d, conn))
            return;
        conn->state = IN_BODY;
        conn->r->status = conn->head.status;
        if (conn->r->head)
            conn->r->head(conn->r); /* H2 */
    }
    if (conn->state == IN_BODY)
        read_body(d, conn);
}

/* ---- for the owner ---- */

bool mr_direct_can(const struct mr_http_request *r)
{
    return r->took && !strncmp(r->url, "http://", 7) && !strcmp(r->method, "GET");
}

int mr_direct_start(struct mr_direct *d, struct mr_http_request *r)
{
    r->next = NULL;
    r->handle = d;
    *d->waiting_tail = r;
    d->waiting_tail = &r->next;
    d->waits++;
    give_out(d);
    return 0;
}

/* Its handle is the client's while it waits, else its connection. */
bool mr_direct_has(const struct mr_direct *d, const struct mr_http_request *r)
{
    if (r->handle == d)
        return true;
    for (const struct mr_direct_conn *c = d->conn; c; c = c->next)
        if (c == r->handle)
            return true;
    return false;
}

void mr_direct_cancel(struct mr_direct *d, struct mr_http_request *r)
{
    if (r->handle == d) {
        struct mr_http_request **at = &d->waiting;
        while (*at != r)
            at = &(*at)->next;
        *at = r->next;
        for (d->waiting_tail = &d->waiting; *d->waiting_tail; d->waiting_tail = &(*d->waiting_tail)->next)
            ;
        d->waits--;
    } else {
        struct mr_direct_conn *conn = r->handle;
        conn->r = NULL;
        close_conn(d, conn);
        give_out(d);
    }
    r->handle = NULL;
}

void mr_direct_connected(struct mr_direct *d, struct mr_direct_conn *conn, int fd)
{
    uint64_t now = now_ns();
    conn->fd = fd;
    conn->state = IDLE;
    conn->r->connect_ns = now > conn->r->start_ns ? now - conn->r->start_ns : 1;
    if (!d->o.watch(d->o.user, fd, conn, EPOLLIN))
        fail_conn(d, conn, MR_HTTP_INTERNAL, "no memory");
    else
        begin(d, conn);
}

void mr_direct_failed(struct mr_direct *d, struct mr_direct_conn *conn, enum mr_http_failure failure, const char *why)
{
    conn->state = IDLE; /* libcurl has ended it */
    fail_conn(d, conn, failure, why);
}

void mr_direct_check(struct mr_direct *d, uint64_t now)
{
    if (now - d->checked_ns < CHECK_NS)
        return;
    d->checked_ns = now;
    for (struct mr_direct_conn *c = d->conn, *next; c; c = next) {
        next = c->next;
        if (c->state <= IDLE || now - c->moved_ns < d->stall_ns)
            continue;
        mr_direct_event(d, c); /* less than SO_RCVLOWAT may be there */
        bool there = false;
        for (struct mr_direct_conn *k = d->conn; k; k = k->next)
            there |= k == c && k->state > IDLE && now - k->moved_ns >= d->stall_ns;
        if (there)
            fail_conn(d, c, MR_HTTP_TIMEOUT, "nothing moved for too long");
        next = d->conn; /* the list has changed; those that moved are passed by */
    }
}

struct mr_http_request *mr_direct_take(struct mr_direct *d)
{
    struct mr_http_request *list = d->ended;
    d->ended = NULL;
    d->ended_tail = &d->ended;
    return list;
}

struct mr_direct *mr_direct_create(const struct mr_direct_owner *o, const struct mr_http_config *c)
{
    struct mr_direct *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    d->o = *o;
    d->limit = c->connections;
    d->stall_ns = (uint64_t)c->stall_timeout_ms * 1000000u;
    snprintf(d->user_agent, sizeof d->user_agent, "%s", c->user_agent ? c->user_agent : "millrace");
    d->waiting_tail = &d->waiting;
    d->ended_tail = &d->ended;
    return d;
}

void mr_direct_free(struct mr_direct *d)
{
    if (!d)
        return;
    for (struct mr_http_request *r = d->waiting; r; r = r->next)
        r->handle = NULL;
    d->waiting = NULL;
    while (d->conn) {
        if (d->conn->r)
            d->conn->r->handle = NULL;
        d->conn->r = NULL;
        close_conn(d, d->conn);
    }
    free(d);
}
