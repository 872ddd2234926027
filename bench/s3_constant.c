/* An S3 server that costs next to nothing: every object is there and holds constant bytes. For bench/run_s3, so that the
 * client is what is measured.
 *
 *   s3_constant PORT_FILE        serves 127.0.0.1 on a free port, which it writes into the file, until it is killed
 *
 * GET and HEAD of /BUCKET/N/BYTES/NAME: an object of BYTES bytes; one range per request. A listing with the prefix
 * N/BYTES/ names N objects (at most 1,000). Signatures are not looked at. One thread, epoll; bodies go out by sendfile
 * from 256 KiB of memory, which copies nothing on this side. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BODY ((size_t)256 << 10) /* stays in the cache */
#define HEAD_MAX 16384
#define LIST_MAX (200 * 1024)
#define FDS_MAX 4096

struct connection {
    char in[HEAD_MAX];
    size_t have;
    char *out; /* head of the answer, and the listing */
    size_t out_len, out_at;
    unsigned long long left, at; /* of the body */
    bool waits;                  /* for room to write */
};

static struct connection *connections[FDS_MAX];
static int poller, body_fd;
static char date[64];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void end(int fd)
{
    free(connections[fd]->out);
    free(connections[fd]);
    connections[fd] = NULL;
    close(fd);
}

static void watch(int fd, bool for_writing)
{
    struct epoll_event e = {.events = for_writing ? EPOLLOUT : EPOLLIN, .data.fd = fd};
    if (connections[fd]->waits != for_writing)
        epoll_ctl(poller, EPOLL_CTL_MOD, fd, &e);
    connections[fd]->waits = for_writing;
}

/* Value of a header, or NULL; `head` ends with an empty line. */
static const char *header(const char *head, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line && line[2] != '\r'; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, n) && line[2 + n] == ':')
            return line + 3 + n + strspn(line + 3 + n, " ");
    return NULL;
}

static void list(struct connection *c, const char *query)
{
    unsigned n = 0;
    unsigned long long bytes = 0;
    char *body = malloc(LIST_MAX);
    const char *prefix = strstr(query, "prefix=");
    if (!body)
        die("malloc");
    if (prefix && sscanf(prefix, "prefix=%u%%2F%llu%%2F", &n, &bytes) != 2)
        sscanf(prefix, "prefix=%u/%llu/", &n, &bytes);
    size_t len = (size_t)snprintf(
        body, LIST_MAX, "<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>");
    for (unsigned i = 0; i < n && i < 1000; i++)
        len += (size_t)snprintf(body + len, LIST_MAX - len,
                                "<Contents><Key>%u/%llu/o%06u.raw</Key><LastModified>2026-01-01T00:00:00.000Z"
                                "</LastModified><Size>%llu</Size></Contents>",
                                n, bytes, i, bytes);
    len += (size_t)snprintf(body + len, LIST_MAX - len, "</ListBucketResult>");
    c->out_len = (size_t)snprintf(c->out, LIST_MAX + HEAD_MAX,
                                  "HTTP/1.1 200 OK\r\nDate: %s\r\nContent-Type: application/xml\r\nContent-Length: "
                                  "%zu\r\n\r\n%s",
                                  date, len, body);
    free(body);
}

static void serve(struct connection *c, const char *head)
{
    unsigned long long bytes = 0, from = 0, to;
    char method[8] = "", range[96] = "";
    const char *value = header(head, "range");
    c->out_at = c->out_len = c->left = 0;
    if (!c->out && !(c->out = malloc(LIST_MAX + HEAD_MAX)))
        die("malloc");
    sscanf(head, "%7s", method);
    const char *rest = head + strlen(method) + 1, *query = rest + strcspn(rest, "? \r");
    if (*query == '?' && strstr(query, "list-type")) {
        list(c, query);
        return;
    }
    if (*rest != '/' || sscanf(rest, "/%*[^/]/%*u/%llu/", &bytes) != 1 || (*method != 'G' && *method != 'H')) {
        c->out_len = (size_t)snprintf(c->out, HEAD_MAX, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    to = bytes;
    if (value && sscanf(value, "bytes=%llu-%llu", &from, &to) == 2) {
        to = to + 1 < bytes ? to + 1 : bytes;
        from = from < to ? from : to;
        snprintf(range, sizeof range, "Content-Range: bytes %llu-%llu/%llu\r\n", from, to - 1, bytes);
    }
    c->out_len = (size_t)snprintf(c->out, HEAD_MAX,
                                  "HTTP/1.1 %s\r\nDate: %s\r\nETag: \"0123456789abcdef0123456789abcdef\"\r\n"
                                  "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n"
                                  "Content-Type: application/octet-stream\r\n%sContent-Length: %llu\r\n\r\n",
                                  *range ? "206 Partial Content" : "200 OK", date, range, to - from);
    c->left = *method == 'G' ? to - from : 0;
    c->at = from;
}

/* False: there is no more room, or nothing more to send. */
static bool push(int fd, struct connection *c)
{
    if (c->out_at < c->out_len) {
        ssize_t n = send(fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL | (c->left ? MSG_MORE : 0));
        if (n > 0)
            c->out_at += (size_t)n;
        return n > 0;
    }
    if (!c->left)
        return false;
    off_t at = (off_t)(c->at % BODY);
    size_t most = BODY - (size_t)at;
    ssize_t n = sendfile(fd, body_fd, &at, c->left < most ? c->left : most);
    if (n > 0) {
        c->left -= (unsigned long long)n;
        c->at += (unsigned long long)n;
    }
    return n > 0;
}

static bool is_busy(const struct connection *c)
{
    return c->out_at < c->out_len || c->left;
}

static void step(int fd)
{
    struct connection *c = connections[fd];
    if (!c)
        return;
    if (!c->waits) {
        ssize_t n = recv(fd, c->in + c->have, HEAD_MAX - 1 - c->have, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            end(fd);
            return;
        }
        c->have += n > 0 ? (size_t)n : 0;
        c->in[c->have] = '\0';
    }
    for (char *stop; is_busy(c) || (stop = strstr(c->in, "\r\n\r\n"));) {
        if (!is_busy(c)) {
            stop[3] = '\0'; /* "\r\n\r" ends the headers */
            serve(c, c->in);
            size_t used = (size_t)(stop + 4 - c->in);
            memmove(c->in, c->in + used, c->have - used + 1);
            c->have -= used;
        }
        while (push(fd, c))
            ;
        if (is_busy(c))
            break;
    }
    watch(fd, is_busy(c));
}

static void accept_all(int listener)
{
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        int one = 1;
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (fd >= FDS_MAX || !(connections[fd] = calloc(1, sizeof(struct connection)))) {
            close(fd);
            continue;
        }
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    }
}

static int start(const char *port_file)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    char temporary[4096], *page = malloc(BODY);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    body_fd = memfd_create("body", MFD_CLOEXEC);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0 || body_fd < 0 || poller < 0 || !page || bind(fd, (struct sockaddr *)&a, len) || listen(fd, 512) ||
        getsockname(fd, (struct sockaddr *)&a, &len))
        die("s3_constant");
    memset(page, 'x', BODY);
    if (write(body_fd, page, BODY) != (ssize_t)BODY)
        die("write");
    free(page);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    snprintf(temporary, sizeof temporary, "%s.tmp", port_file);
    FILE *f = fopen(temporary, "w");
    if (!f || fprintf(f, "%d", ntohs(a.sin_port)) < 0 || fclose(f) || rename(temporary, port_file))
        die(port_file);
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: s3_constant PORT_FILE\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    int listener = start(argv[1]);
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(poller, events, 64, 1000);
        time_t now = time(NULL);
        struct tm tm;
        strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
        for (int i = 0; i < n; i++)
            if (events[i].data.fd == listener)
                accept_all(listener);
            else
                step(events[i].data.fd);
    }
}
