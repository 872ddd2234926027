/* All-gather over TCP for ranks that share nothing but an address and a port. Rank 0 listens until all others have
 * come, then stops listening; the connections stay for the rounds. A connection must say HELLO (64 bytes: magic 8,
 * version 4, rank 4, world 4, zero 12, key 32) and gets it back with rank 0's rank; others are closed. Somebody who
 * connects and says nothing holds one of PENDING_MAX places until the time is over, the oldest is closed when a new one
 * needs it. A round: everyone sends len (8 bytes) and its bytes; rank 0 sends everything back. Blocking, with one
 * deadline. */
#include "base/clock.h"
#include "base/common.h"
#include "wire/wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO 64
#define PORTS 16u
#define PENDING_MAX 32u
#define RETRY_NS (20 * MR_NS_PER_MS)

struct mr_wire_tcp {
    uint32_t rank, world;
    uint64_t deadline_ns, timeout_ns;
    uint8_t key[MR_WIRE_SECRET_BYTES];
    int *fd; /* rank 0: one for each rank; others: [0] */
};

struct pending {
    int fd;
    size_t got;
    uint8_t hello[HELLO];
};

/* ---- bytes with a deadline ---- */

static int wait_for(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = mr_now_ns();
        if (now >= deadline_ns)
            return MR_E_TIMEOUT;
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, (int)MR_MIN((deadline_ns - now) / MR_NS_PER_MS + 1, (uint64_t)1000));
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

static int move_all(int fd, bool out, void *buf, size_t len, uint64_t deadline_ns)
{
    for (uint8_t *p = buf; len > 0;) {
        ssize_t n = out ? send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, p, len, MSG_DONTWAIT);
        if (n > 0) {
            p += n;
            len -= (size_t)n;
            continue;
        }
        if (n == 0)
            return -ECONNRESET;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int rc = wait_for(fd, out ? POLLOUT : POLLIN, deadline_ns);
        if (rc)
            return rc;
    }
    return 0;
}

static void encode_hello(const struct mr_wire_tcp *t, uint32_t rank, uint8_t out[HELLO])
{
    memset(out, 0, HELLO);
    memcpy(out, "MRWKV\0\0\1", 8);
    mr_store_le32(out + 8, 1);
    mr_store_le32(out + 12, rank);
    mr_store_le32(out + 16, t->world);
    memcpy(out + 32, t->key, sizeof(t->key));
}

/* ---- addresses ---- */

static struct addrinfo *resolve(const char *host, uint16_t port, struct mr_error *err)
{
    char service[8];
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    snprintf(service, sizeof(service), "%u", port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc == 0)
        return list;
    mr_error_plain(err, MR_E_CONFIG, "cannot resolve '%s': %s", host, gai_strerror(rc));
    mr_error_hint(err, "MASTER_ADDR must name rank 0's host as the other nodes see it");
    return NULL;
}

static uint16_t port_at(uint16_t port, unsigned k)
{
    return (uint16_t)(port + 1 + k > 65535 ? port - 1 - k : port + 1 + k);
}

/* ---- rank 0 ---- */

static int try_listen(const struct addrinfo *a)
{
    int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 128) == 0)
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

static int listen_near(const struct mr_wire_tcp_params *p, struct mr_error *err)
{
    int fd = -1;
    for (unsigned k = 0; k < PORTS && fd < 0; k++) {
        struct addrinfo *list = resolve(p->host, port_at(p->port, k), err);
        if (!list)
            return MR_E_CONFIG;
        for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
            fd = try_listen(a);
        freeaddrinfo(list);
    }
    if (fd < 0)
        mr_error_set(err, fd, "cannot listen on '%s', ports %u to %u", p->host, port_at(p->port, 0),
                     port_at(p->port, PORTS - 1));
    return fd;
}

static void drop(struct pending *q, unsigned *n, unsigned i)
{
    if (q[i].fd >= 0)
        close(q[i].fd);
    memmove(&q[i], &q[i + 1], (--*n - i) * sizeof(*q));
}

/* A complete hello: takes the connection over, or leaves it to be closed. Returns how many ranks came by it. */
static unsigned admit(struct mr_wire_tcp *t, struct pending *q)
{
    uint8_t want[HELLO];
    uint32_t rank = mr_load_le32(q->hello + 12);
    encode_hello(t, rank, want);
    if (memcmp(q->hello, want, HELLO) != 0 || rank == 0 || rank >= t->world)
        return 0;
    encode_hello(t, 0, want);
    if (move_all(q->fd, true, want, HELLO, t->deadline_ns) != 0)
        return 0;
    bool again = t->fd[rank] >= 0; /* it lost patience with its first connection */
    if (again)
        close(t->fd[rank]);
    t->fd[rank] = q->fd;
    q->fd = -1;
    return !again;
}

static void take_new(int listener, struct pending *q, unsigned *n)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (*n == PENDING_MAX)
        drop(q, n, 0);
    q[(*n)++] = (struct pending){.fd = fd};
}

static unsigned read_pending(struct mr_wire_tcp *t, struct pending *q, unsigned *n)
{
    unsigned came = 0;
    for (unsigned i = 0; i < *n;) {
        ssize_t got = recv(q[i].fd, q[i].hello + q[i].got, HELLO - q[i].got, MSG_DONTWAIT);
        if (got > 0)
            q[i].got += (size_t)got;
        if (q[i].got == HELLO)
            came += admit(t, &q[i]);
        bool over = q[i].got == HELLO || got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
        if (over)
            drop(q, n, i);
        else
            i++;
    }
    return came;
}

static int gather_ranks(struct mr_wire_tcp *t, int listener, struct mr_error *err)
{
    struct pending q[PENDING_MAX];
    unsigned n = 0, came = 1;
    while (came < t->world && mr_now_ns() < t->deadline_ns) {
        struct pollfd p[PENDING_MAX + 1] = {{.fd = listener, .events = POLLIN}};
        for (unsigned i = 0; i < n; i++)
            p[i + 1] = (struct pollfd){.fd = q[i].fd, .events = POLLIN};
        poll(p, n + 1, 100);
        came += read_pending(t, q, &n);
        if (p[0].revents)
            take_new(listener, q, &n);
    }
    while (n)
        drop(q, &n, 0);
    if (came == t->world)
        return 0;
    return mr_error_plain(err, MR_E_TIMEOUT, "%u of %u ranks came in time", came, t->world);
}

/* ---- the others ---- */

static int try_connect(struct mr_wire_tcp *t, const struct addrinfo *a, uint64_t patience_ns)
{
    uint8_t hello[HELLO], back[HELLO], want[HELLO];
    uint64_t soon = MR_MIN(t->deadline_ns, mr_now_ns() + patience_ns);
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int rc = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : -errno;
    if (rc == -EINPROGRESS)
        rc = wait_for(fd, POLLOUT, soon);
    encode_hello(t, t->rank, hello);
    encode_hello(t, 0, want);
    if (!rc)
        rc = move_all(fd, true, hello, HELLO, soon);
    if (!rc)
        rc = move_all(fd, false, back, HELLO, soon);
    if (!rc && memcmp(back, want, HELLO) != 0)
        rc = -EPROTO;
    if (!rc)
        return fd;
    close(fd);
    return rc;
}

static int find_root(struct mr_wire_tcp *t, const struct mr_wire_tcp_params *p, struct mr_error *err)
{
    int fd = -1;
    uint64_t patience_ns = MR_NS_PER_S / 4; /* with whoever else listens on one of the ports; more each time */
    for (; mr_now_ns() < t->deadline_ns; patience_ns = MR_MIN(2 * patience_ns, 8 * MR_NS_PER_S)) {
        for (unsigned k = 0; k < PORTS; k++) {
            struct addrinfo *list = resolve(p->host, port_at(p->port, k), err);
            if (!list)
                return MR_E_CONFIG;
            for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
                fd = try_connect(t, a, patience_ns);
            freeaddrinfo(list);
            if (fd >= 0)
                return fd;
        }
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + RETRY_NS, NULL);
    }
    mr_error_plain(err, MR_E_TIMEOUT, "rank %u found no rank 0 at '%s', ports %u to %u", t->rank, p->host,
                   port_at(p->port, 0), port_at(p->port, PORTS - 1));
    mr_error_hint(err, "is MASTER_ADDR reachable from here, and does rank 0 run with the same key?");
    return MR_E_TIMEOUT;
}

/* ---- the interface ---- */

int mr_wire_tcp_open(const struct mr_wire_tcp_params *p, struct mr_wire_tcp **out, struct mr_error *err)
{
    if (!p->host || !p->world || p->rank >= p->world || p->world > 1u << 20)
        return mr_error_plain(err, MR_E_USAGE, "the exchange needs a host, and a rank below its world");
    struct mr_wire_tcp *t = calloc(1, sizeof(*t));
    int rc = 0;
    if (!t || !(t->fd = malloc(p->world * sizeof(*t->fd)))) {
        free(t);
        return mr_error_set(err, -ENOMEM, "cannot exchange addresses");
    }
    for (uint32_t i = 0; i < p->world; i++)
        t->fd[i] = -1;
    t->rank = p->rank;
    t->world = p->world;
    t->timeout_ns = p->timeout_ns ? p->timeout_ns : 300 * MR_NS_PER_S;
    t->deadline_ns = mr_now_ns() + t->timeout_ns;
    if (p->key)
        memcpy(t->key, p->key, sizeof(t->key));
    if (p->rank == 0 && p->world > 1) {
        int listener = listen_near(p, err);
        rc = listener < 0 ? listener : gather_ranks(t, listener, err);
        if (listener >= 0)
            close(listener);
    } else if (p->rank > 0) {
        t->fd[0] = find_root(t, p, err);
        rc = t->fd[0] < 0 ? t->fd[0] : 0;
    }
    if (rc) {
        mr_wire_tcp_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

static int round_root(struct mr_wire_tcp *t, const void *mine, size_t len, uint8_t *all, uint32_t *who)
{
    int rc = 0;
    memcpy(all, mine, len);
    for (uint32_t r = 1; r < t->world && !rc; r++) {
        uint8_t size[8];
        *who = r;
        rc = move_all(t->fd[r], false, size, sizeof(size), t->deadline_ns);
        if (!rc && mr_load_le64(size) != len)
            rc = -EPROTO;
        if (!rc)
            rc = move_all(t->fd[r], false, all + r * len, len, t->deadline_ns);
    }
    for (uint32_t r = 1; r < t->world && !rc; r++) {
        *who = r;
        rc = move_all(t->fd[r], true, all, len * t->world, t->deadline_ns);
    }
    return rc;
}

int mr_wire_exchange_tcp(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err)
{
    struct mr_wire_tcp *t = ctx;
    uint32_t who = 0;
    int rc;
    t->deadline_ns = mr_now_ns() + t->timeout_ns;
    if (t->rank == 0) {
        rc = round_root(t, mine, len, all, &who);
    } else {
        uint8_t size[8], *copy = malloc(len ? len : 1);
        mr_store_le64(size, len);
        rc = copy ? move_all(t->fd[0], true, size, sizeof(size), t->deadline_ns) : -ENOMEM;
        if (!rc) {
            memcpy(copy, mine, len);
            rc = move_all(t->fd[0], true, copy, len, t->deadline_ns);
        }
        if (!rc)
            rc = move_all(t->fd[0], false, all, len * t->world, t->deadline_ns);
        free(copy);
    }
    return rc ? mr_error_set(err, rc, "rank %u cannot exchange addresses with rank %u", t->rank, who) : 0;
}

void mr_wire_tcp_close(struct mr_wire_tcp *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->world; i++)
        if (t->fd[i] >= 0)
            close(t->fd[i]);
    free(t->fd);
    free(t);
}
