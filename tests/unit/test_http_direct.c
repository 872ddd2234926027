/* Answers of HTTP/1.1 and connections that are read without libcurl: what a server may send in whatever pieces, and what
 * must not pass for an answer. A thread plays the server: each connection gets the next script. */
#include "base/common.h"
#include "s3/http.h"
#include "s3/http_answer.h"

#include <arpa/inet.h>
#include <millrace/error.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

/* ---- heads and chunks, in every possible pair of pieces ---- */

static void heads_are_read_whole_or_refused(void **state)
{
    static const struct {
        const char *text;
        int used; /* 1: all of it up to the body; -1: refused; 0: not whole */
        long status;
        bool keeps, has_length, chunked;
        uint64_t length;
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 1, 200, true, true, false, 5},
        {"HTTP/1.1 206 Partial Content\r\ncontent-LENGTH:7 \r\nConnection: Close\r\n\r\n", 1, 206, false, true, false,
         7},
        {"HTTP/1.0 200 OK\r\n\r\n", 1, 200, false, false, false, 0},
        {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", 1, 200, true, false, false, 0},
        {"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n", 1, 404, true, false, true, 0},
        {"HTTP/1.1 100 Continue\r\n\r\n", 1, 100, true, true, false, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", 0, 0, false, false, false, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", -1, 0, false, false, false, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", -1, 0, false, false, false, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\n", -1, 0, false, false, false, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", -1, 0, false, false, false, 0},
        {"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", -1, 0, false, false, false, 0},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", -1, 0, false, false, false, 0},
        {"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", -1, 0, false, false, false, 0},
        {"HTTP/2 200\r\n\r\n", -1, 0, false, false, false, 0},
        {"220 mail.example\r\n", -1, 0, false, false, false, 0},
    };
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        struct mr_http_head h = {0};
        int used = mr_http_head_parse(rows[i].text, strlen(rows[i].text), &h, NULL, NULL);
        const char *body = strstr(rows[i].text, "\r\n\r\n");
        int want = rows[i].used == 1 ? (int)(body + 4 - rows[i].text) : rows[i].used;
        if (used != want)
            fail_msg("%s: %d, not %d", rows[i].text, used, want);
        if (used <= 0)
            continue;
        assert_int_equal(h.status, rows[i].status);
        assert_int_equal(h.keeps, rows[i].keeps);
        assert_int_equal(h.has_length, rows[i].has_length);
        assert_int_equal(h.chunked, rows[i].chunked);
        assert_int_equal(h.length, rows[i].length);
        for (int k = 5; k < used; k++) /* no part of it is taken for the whole */
            assert_int_equal(mr_http_head_parse(rows[i].text, (size_t)k, &h, NULL, NULL), 0);
    }
}

/* -1: refused; else the bytes of the body, in `out`. */
static int unchunk(const char *text, size_t n, size_t piece, char *out, bool *ended)
{
    struct mr_http_chunks c = {0};
    int got = 0;
    *ended = false;
    for (size_t at = 0; at < n && !*ended;) {
        const char *data;
        size_t len, most = n - at < piece ? n - at : piece;
        int64_t used = mr_http_chunks_take(&c, text + at, most, &data, &len, ended);
        if (used < 0)
            return -1;
        if (len)
            memcpy(out + got, data, len);
        got += (int)len;
        at += (size_t)used;
    }
    return got;
}

static void chunks_are_joined_or_refused(void **state)
{
    static const char good[] = "5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: z\r\n\r\n";
    static const char *const bad[] = {"x\r\n", "\r\n", "5\r\nhelloworld", "1234567890123456\r\n", "-1\r\n"};
    char out[64];
    bool ended;
    (void)state;
    for (size_t piece = 1; piece < sizeof good; piece++) {
        assert_int_equal(unchunk(good, sizeof good - 1, piece, out, &ended), 15);
        assert_true(ended);
        assert_memory_equal(out, "hello0123456789", 15);
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++)
        assert_int_equal(unchunk(bad[i], strlen(bad[i]), 1, out, &ended), -1);
    assert_int_equal(unchunk("5\r\nhello\r\n", 10, 3, out, &ended), 5);
    assert_false(ended);
}

/* ---- connections ---- */

#define BODY 300000u /* longer than what wakes a socket up */

struct script {
    const char *head;  /* NULL: hangs up before it reads a request */
    size_t bytes;      /* of the body: 'x' */
    bool stays;        /* the connection is kept for another request */
    unsigned pause_ms; /* in the middle of it */
};

static struct {
    int listener, port;
    const struct script *script;
    atomic_int at, connections;
    bool ends;
} server;

static void send_all(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t k = send(fd, data, n, MSG_NOSIGNAL);
        if (k <= 0)
            return;
        data += k;
        n -= (size_t)k;
    }
}

static bool read_request(int fd)
{
    char text[8192];
    size_t have = 0;
    while (have < sizeof text - 1) {
        ssize_t n = recv(fd, text + have, sizeof text - 1 - have, 0);
        if (n <= 0)
            return false;
        have += (size_t)n;
        text[have] = '\0';
        if (strstr(text, "\r\n\r\n"))
            return strstr(text, "GET /b/k HTTP/1.1\r\n") == text && strstr(text, "\r\nRange: bytes=0-\r\n");
    }
    return false;
}

static void play(int fd)
{
    static char body[BODY];
    memset(body, 'x', sizeof body);
    for (;;) {
        const struct script *s = &server.script[atomic_load(&server.at)];
        if (s->head && !read_request(fd))
            return;
        atomic_fetch_add(&server.at, 1);
        if (!s->head)
            return;
        send_all(fd, s->head, strlen(s->head));
        send_all(fd, body, s->bytes / 2);
        const struct timespec pause = {.tv_nsec = s->pause_ms * 1000000l};
        if (s->pause_ms)
            nanosleep(&pause, NULL);
        send_all(fd, body, s->bytes - s->bytes / 2);
        if (!s->stays)
            return;
    }
}

static void *serve(void *unused)
{
    (void)unused;
    for (int fd; (fd = accept(server.listener, NULL, NULL)) >= 0 && !server.ends; close(fd)) {
        atomic_fetch_add(&server.connections, 1);
        play(fd);
    }
    return NULL;
}

struct read_state {
    struct mr_http_request r;
    char place[BODY];
    size_t direct, other;
    long head_status;
};

static void on_head(struct mr_http_request *r)
{
    struct read_state *s = (struct read_state *)r;
    s->head_status = r->status;
    if (r->status != 200 && r->status != 206)
        return;
    r->into = s->place;
    r->into_room = sizeof s->place;
}
static void on_took(struct mr_http_request *r, size_t n)
{
    ((struct read_state *)r)->direct += n;
}
static bool on_data(struct mr_http_request *r, const void *data, size_t n)
{
    struct read_state *s = (struct read_state *)r;
    (void)data;
    s->other += n;
    return s->other < 10000;
}

static struct mr_http_request *wait_for(const struct mr_http_ops *http, struct mr_http_client *c)
{
    struct mr_http_request *r = NULL;
    for (unsigned i = 0; !r && i < 1000; i++)
        r = http->poll(c, 100);
    assert_non_null(r);
    assert_null(r->next);
    return r;
}

/* One read after the other on a client with one connection; `want`: how each ends. */
struct outcome {
    enum mr_http_failure failure;
    long status;
    size_t direct, other;
};

static void run(const struct script *script, const struct outcome *want, size_t n, int connections, unsigned stall_ms)
{
    const struct mr_http_ops *http;
    struct mr_error err;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    pthread_t thread;
    char url[64];
    if (mr_http_load(&http, &err))
        skip();
    memset(&server, 0, sizeof server);
    server.script = script;
    server.listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&a, len), 0);
    assert_int_equal(listen(server.listener, 8), 0);
    assert_int_equal(getsockname(server.listener, (struct sockaddr *)&a, &len), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/b/k", ntohs(a.sin_port));
    const struct mr_http_config config = {.connections = 1, .connect_timeout_ms = 5000, .stall_timeout_ms = stall_ms};
    struct mr_http_client *c = http->open(&config);
    assert_non_null(c);
    struct read_state *s = malloc(sizeof(*s));
    for (size_t i = 0; i < n; i++) {
        memset(s, 0, sizeof(*s));
        s->r = (struct mr_http_request){.method = "GET",
                                        .url = url,
                                        .header = {"Range: bytes=0-"},
                                        .headers = 1,
                                        .head = on_head,
                                        .data = on_data,
                                        .took = on_took};
        assert_int_equal(http->start(c, &s->r), 0);
        assert_ptr_equal(wait_for(http, c), &s->r);
        if (s->r.failure != want[i].failure || (!want[i].failure && s->r.status != want[i].status) ||
            s->direct != want[i].direct || s->other != want[i].other)
            fail_msg("read %zu: failure %d (%s), status %ld, %zu bytes at their place, %zu others", i, s->r.failure,
                     s->r.why, s->r.status, s->direct, s->other);
        for (size_t k = 0; k < s->direct; k++)
            assert_int_equal(s->place[k], 'x');
    }
    http->close(c);
    free(s);
    server.ends = true;
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(server.listener);
    assert_int_equal(atomic_load(&server.connections), connections);
}

#define LENGTH(n) "Content-Length: " n "\r\n\r\n"

static void bodies_go_to_their_place_over_a_kept_connection(void **state)
{
    (void)state;
    const struct script script[] = {{"HTTP/1.1 200 OK\r\n" LENGTH("300000"), 300000, true, 0},
                                    {"HTTP/1.1 206 Partial Content\r\n" LENGTH("70000"), 70000, true, 0},
                                    {"HTTP/1.1 200 OK\r\n" LENGTH("0"), 0, true, 0},
                                    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n" LENGTH("10"), 10, false, 0}};
    const struct outcome want[] = {
        {MR_HTTP_OK, 200, 300000, 0}, {MR_HTTP_OK, 206, 70000, 0}, {MR_HTTP_OK, 200, 0, 0}, {MR_HTTP_OK, 200, 10, 0}};
    run(script, want, 4, 1, 5000);
}

static void a_kept_connection_that_was_closed_is_replaced(void **state)
{
    (void)state;
    const struct script script[] = {{"HTTP/1.1 200 OK\r\n" LENGTH("10"), 10, false, 0},
                                    {"HTTP/1.1 200 OK\r\n" LENGTH("20"), 20, false, 0},
                                    {NULL, 0, false, 0}};
    const struct outcome want[] = {{MR_HTTP_OK, 200, 10, 0}, {MR_HTTP_OK, 200, 20, 0}, {MR_HTTP_CUT, 0, 0, 0}};
    run(script, want, 3, 3, 5000); /* a new one that is closed at once has failed: the third request */
}

static void errors_are_given_to_data_whatever_their_framing(void **state)
{
    (void)state;
    const struct script script[] = {
        {"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 0, true, 0},
        {"HTTP/1.1 503 Slow Down\r\n" LENGTH("100"), 100, true, 0},
        {"HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n", 200, false, 0}};
    const struct outcome want[] = {{MR_HTTP_OK, 404, 0, 5}, {MR_HTTP_OK, 503, 0, 100}, {MR_HTTP_OK, 500, 0, 200}};
    run(script, want, 3, 1, 5000);
}

static void what_is_cut_or_no_http_or_too_much_fails(void **state)
{
    (void)state;
    const struct script script[] = {
        {"HTTP/1.1 200 OK\r\n" LENGTH("200000"), 100000, false, 0},
        {"HTTP/1.1 200 OK\r\nContent-Le", 0, false, 0},
        {"220 mail.example\r\n\r\n", 0, false, 0},
        {"HTTP/1.1 400 Bad\r\n" LENGTH("20000"), 20000, false, 0},
        {"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 0, false, 0}};
    const struct outcome want[] = {{MR_HTTP_CUT, 0, 100000, 0},
                                   {MR_HTTP_CUT, 0, 0, 0},
                                   {MR_HTTP_CUT, 0, 0, 0},
                                   {MR_HTTP_REFUSED, 0, 0, 16384},
                                   {MR_HTTP_CUT, 0, 0, 0}};
    run(script, want, 3, 3, 5000);
    run(script + 4, want + 4, 1, 1, 5000);
}

/* Bytes behind an answer belong to no request: the connection is not used again. */
static void what_nobody_asked_for_ends_a_connection(void **state)
{
    (void)state;
    const struct script script[] = {
        {"HTTP/1.1 200 OK\r\n" LENGTH("3") "xxxHTTP/1.1 200 OK\r\n" LENGTH("3") "yyy", 0, false, 0},
        {"HTTP/1.1 200 OK\r\n" LENGTH("4"), 4, false, 0}};
    const struct outcome want[] = {{MR_HTTP_OK, 200, 3, 0}, {MR_HTTP_OK, 200, 4, 0}};
    run(script, want, 2, 2, 5000);
}

/* Half of the body is less than what wakes the socket up, and the rest comes late, or too late. */
static void slow_bodies_arrive_and_stuck_ones_time_out(void **state)
{
    (void)state;
    const struct script slow[] = {{"HTTP/1.1 200 OK\r\n" LENGTH("300000"), 300000, false, 300}};
    const struct outcome good[] = {{MR_HTTP_OK, 200, 300000, 0}}, late[] = {{MR_HTTP_TIMEOUT, 0, 150000, 0}};
    run(slow, good, 1, 1, 5000);
    const struct script stuck[] = {{"HTTP/1.1 200 OK\r\n" LENGTH("300000"), 300000, false, 999}};
    run(stuck, late, 1, 1, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_read_whole_or_refused),
        cmocka_unit_test(chunks_are_joined_or_refused),
        cmocka_unit_test(bodies_go_to_their_place_over_a_kept_connection),
        cmocka_unit_test(a_kept_connection_that_was_closed_is_replaced),
        cmocka_unit_test(errors_are_given_to_data_whatever_their_framing),
        cmocka_unit_test(what_is_cut_or_no_http_or_too_much_fails),
        cmocka_unit_test(what_nobody_asked_for_ends_a_connection),
        cmocka_unit_test(slow_bodies_arrive_and_stuck_ones_time_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
