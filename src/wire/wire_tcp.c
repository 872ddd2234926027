/* All-gather over TCP for ranks that share nothing but an address, a port and a key. Rank 0 listens until all others
 * have come, then stops listening; the connections stay for the rounds. On each the two ranks greet (wire_greet.h); rank
 * 0 ends the greeting with a keyed hash, so that the other side learns that it was taken.
 *
 * Strangers. A connection has GREET_NS to prove itself, at most PENDING_MAX do so at a time; where a new one needs a
 * place, the oldest of the address that has most of them goes. Nothing is allocated for a stranger, and nothing waits
 * for one. In the other direction whoever listens on one of the ports has `patience`, then the next port is tried.
 *
 * A round: everyone sends len (8 bytes), its bytes and a keyed hash of both; rank 0 sends everything back, with another.
 * The hashes are made with the connection's own key and count the rounds. Blocking, with one deadline. */
#include "base/clock.h"
#include "base/common.h"
#include "wire/wire.h"
#include "wire/wire_greet.h"

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

#define PORTS 16u
#define PENDING_MAX 256u
#define ACCEPT_MANY 32u /* at a time */
#define GREET_NS (5 * MR_NS_PER_S)
#define PATIENCE_NS (2 * MR_NS_PER_S)
#define RETRY_NS (20 * MR_NS_PER_MS)

struct mr_wire_tcp {
    uint32_t rank, world;
    uint64_t deadline_ns, timeout_ns, round;
    uint8_t key[MR_WIRE_SECRET_BYTES];
    int *fd;                          /* rank 0: one for each rank; others: [0] */
    uint8_t (*session)[MR_MAC_BYTES]; /* of the same connections */
};

_Static_assert(MR_GREET_HELLO_BYTES == MR_GREET_PROOF_BYTES, "what comes has one length");

/* A connection that has not proven anything. */
struct pending {
    int fd;
    size_t got;
    uint64_t until_ns;
    struct in6_addr from; /* IPv4: at its beginning */
    uint8_t message[MR_GREET_HELLO_BYTES];
    struct mr_greet greet;
};
struct waiting {
    unsigned n;
    struct pending of[PENDING_MAX];
    struct pollfd fds[PENDING_MAX + 1];
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

static void drop(struct waiting *w, unsigned i)
{
    if (w->of[i].fd >= 0)
        close(w->of[i].fd);
    memmove(&w->of[i], &w->of[i + 1], (--w->n - i) * sizeof(w->of[0]));
}

/* The oldest of the address that has most connections waiting: a flood from one host pushes out its own. */
static unsigned one_too_many(const struct waiting *w)
{
    unsigned best = 0, most = 0;
    for (unsigned i = 0; i < w->n; i++) {
        unsigned same = 0;
        for (unsigned k = i; k < w->n; k++)
            same += memcmp(&w->of[i].from, &w->of[k].from, sizeof w->of[i].from) == 0;
        if (same > most) {
            most = same;
            best = i;
        }
    }
    return best;
}

static struct in6_addr address_of(const struct sockaddr_storage *a)
{
    struct in6_addr out = {0};
    if (a->ss_family == AF_INET)
        memcpy(&out, &((const struct sockaddr_in *)(const void *)a)->sin_addr, sizeof(struct in_addr));
    else if (a->ss_family == AF_INET6)
        out = ((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return out;
}

static bool take_new(struct waiting *w, int listener)
{
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof from;
    int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return false;
    if (w->n == PENDING_MAX)
        drop(w, one_too_many(w));
    w->of[w->n++] = (struct pending){.fd = fd, .from = address_of(&from), .until_ns = mr_now_ns() + GREET_NS};
    return true;
}

static struct mr_greet_self self_of(const struct mr_wire_tcp *t)
{
    return (struct mr_greet_self){.key = t->key, .use = MR_GREET_EXCHANGE, .rank = t->rank, .world = t->world};
}

static void welcome_of(const uint8_t session[MR_MAC_BYTES], uint8_t out[MR_MAC_BYTES])
{
    mr_mac_derive(session, "millrace welcome", NULL, 0, out);
}

/* It has proven that it is `rank`. One that comes again lost patience with its first connection. */
static unsigned admit(struct mr_wire_tcp *t, struct pending *q)
{
    uint8_t welcome[MR_MAC_BYTES];
    uint32_t rank = q->greet.peer;
    welcome_of(q->greet.session, welcome);
    if (send(q->fd, welcome, sizeof welcome, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof welcome)
        return 0;
    bool again = t->fd[rank] >= 0;
    if (again)
        close(t->fd[rank]);
    t->fd[rank] = q->fd;
    memcpy(t->session[rank], q->greet.session, MR_MAC_BYTES);
    q->fd = -1;
    return !again;
}

/* A whole message. False: the connection goes; *came counts the ranks that came by it. */
static bool hear(struct mr_wire_tcp *t, struct pending *q, unsigned *came)
{
    uint8_t challenge[MR_GREET_CHALLENGE_BYTES];
    struct mr_greet_self self = self_of(t);
    q->got = 0;
    if (q->greet.begun) {
        if (mr_greet_accept(&self, &q->greet, q->message, sizeof q->message))
            *came += admit(t, q);
        return false;
    }
    /* A socket that nothing was sent through has room for it. */
    return mr_greet_answer(&self, &q->greet, q->message, sizeof q->message, challenge) &&
           send(q->fd, challenge, sizeof challenge, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof challenge;
}

static unsigned read_pending(struct mr_wire_tcp *t, struct waiting *w)
{
    unsigned came = 0;
    uint64_t now = mr_now_ns();
    for (unsigned i = 0; i < w->n;) {
        struct pending *q = &w->of[i];
        ssize_t got = recv(q->fd, q->message + q->got, sizeof q->message - q->got, MSG_DONTWAIT);
        bool stays = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
        q->got += got > 0 ? (size_t)got : 0;
        if (stays && q->got == sizeof q->message)
            stays = hear(t, q, &came);
        if (stays && now < q->until_ns)
            i++;
        else
            drop(w, i);
    }
    return came;
}

static int gather_ranks(struct mr_wire_tcp *t, int listener, struct mr_error *err)
{
    struct waiting *w = calloc(1, sizeof(*w));
    unsigned came = 1;
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot exchange addresses");
    while (came < t->world && mr_now_ns() < t->deadline_ns) {
        w->fds[0] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (unsigned i = 0; i < w->n; i++)
            w->fds[i + 1] = (struct pollfd){.fd = w->of[i].fd, .events = POLLIN};
        poll(w->fds, w->n + 1, 100);
        came += read_pending(t, w);
        for (unsigned i = 0; w->fds[0].revents && i < ACCEPT_MANY && take_new(w, listener);)
            i++;
    }
    while (w->n)
        drop(w, 0);
    free(w);
    if (came == t->world)
        return 0;
    mr_error_plain(err, MR_E_TIMEOUT, "%u of %u ranks came in time", came, t->world);
    return mr_error_hint(err, "do all of them have the same key?"), MR_E_TIMEOUT;
}

/* ---- the others ---- */

/* The initiator's part of the greeting. */
static int greet_root(struct mr_wire_tcp *t, int fd, uint64_t soon)
{
    uint8_t challenge[MR_GREET_CHALLENGE_BYTES], message[MR_GREET_HELLO_BYTES], welcome[MR_MAC_BYTES],
        want[MR_MAC_BYTES];
    struct mr_greet_self self = self_of(t);
    struct mr_greet g = {0};
    int rc = mr_greet_begin(&self, &g, 0, message) ? 0 : -EIO;
    rc = rc ? rc : move_all(fd, true, message, sizeof message, soon);
    rc = rc ? rc : move_all(fd, false, challenge, sizeof challenge, soon);
    if (!rc && !mr_greet_prove(&self, &g, challenge, sizeof challenge, message))
        rc = mr_greet_kind(challenge, sizeof challenge) ? -EKEYREJECTED : -EPROTO;
    rc = rc ? rc : move_all(fd, true, message, sizeof message, soon);
    rc = rc ? rc : move_all(fd, false, welcome, sizeof welcome, soon);
    welcome_of(g.session, want);
    if (!rc && !mr_mac_same(welcome, want))
        rc = -EPROTO;
    memcpy(t->session[0], g.session, MR_MAC_BYTES);
    return rc;
}

static int try_connect(struct mr_wire_tcp *t, const struct addrinfo *a, uint64_t patience_ns)
{
    uint64_t soon = MR_MIN(t->deadline_ns, mr_now_ns() + patience_ns);
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int rc = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : -errno;
    if (rc == -EINPROGRESS)
        rc = wait_for(fd, POLLOUT, soon);
    rc = rc ? rc : greet_root(t, fd, soon);
    if (!rc)
        return fd;
    close(fd);
    return rc;
}

static int find_root(struct mr_wire_tcp *t, const struct mr_wire_tcp_params *p, struct mr_error *err)
{
    int fd = -1;
    bool other_key = false;
    uint64_t patience_ns = MR_NS_PER_S / 4; /* with whoever else listens on one of the ports; more each time */
    for (; mr_now_ns() < t->deadline_ns; patience_ns = MR_MIN(2 * patience_ns, PATIENCE_NS)) {
        for (unsigned k = 0; k < PORTS; k++) {
            struct addrinfo *list = resolve(p->host, port_at(p->port, k), err);
            if (!list)
                return MR_E_CONFIG;
            for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
                fd = try_connect(t, a, patience_ns);
            freeaddrinfo(list);
            other_key |= fd == -EKEYREJECTED;
            if (fd >= 0)
                return fd;
        }
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + RETRY_NS, NULL);
    }
    mr_error_plain(err, MR_E_TIMEOUT, "rank %u found no rank 0 at '%s', ports %u to %u", t->rank, p->host,
                   port_at(p->port, 0), port_at(p->port, PORTS - 1));
    mr_error_hint(err, other_key ? "somebody answered there with another key: is it the same on all ranks?"
                                 : "is MASTER_ADDR reachable from here?");
    return MR_E_TIMEOUT;
}

/* ---- the interface ---- */

int mr_wire_tcp_open(const struct mr_wire_tcp_params *p, struct mr_wire_tcp **out, struct mr_error *err)
{
    if (!p->host || !p->key || !p->world || p->rank >= p->world || p->world > 1u << 20)
        return mr_error_plain(err, MR_E_USAGE, "the exchange needs a host, a key, and a rank below its world");
    struct mr_wire_tcp *t = calloc(1, sizeof(*t));
    int rc = 0;
    if (t)
        t->fd = malloc(p->world * sizeof(*t->fd));
    if (t)
        t->session = calloc(p->world, sizeof(*t->session));
    for (uint32_t i = 0; t && t->fd && i < p->world; i++)
        t->fd[i] = -1;
    if (!t || !t->fd || !t->session) {
        mr_wire_tcp_close(t);
        return mr_error_set(err, -ENOMEM, "cannot exchange addresses");
    }
    t->rank = p->rank;
    t->world = p->world;
    t->timeout_ns = p->timeout_ns ? p->timeout_ns : 300 * MR_NS_PER_S;
    t->deadline_ns = mr_now_ns() + t->timeout_ns;
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

/* Of a message of a round, with the key of the connection it goes over. */
static void seal(const struct mr_wire_tcp *t, uint32_t connection, bool from_root, const void *data, uint64_t len,
                 uint8_t out[MR_MAC_BYTES])
{
    uint8_t head[17] = {from_root};
    struct mr_mac m;
    mr_store_le64(head + 1, t->round);
    mr_store_le64(head + 9, len);
    mr_mac_init(&m, t->session[connection]);
    mr_mac_add(&m, head, sizeof head);
    mr_mac_add(&m, data, len);
    mr_mac_done(&m, out);
}

static int receive_sealed(struct mr_wire_tcp *t, uint32_t connection, bool from_root, void *data, size_t len)
{
    uint8_t came[MR_MAC_BYTES], want[MR_MAC_BYTES];
    int rc = move_all(t->fd[connection], false, data, len, t->deadline_ns);
    rc = rc ? rc : move_all(t->fd[connection], false, came, sizeof came, t->deadline_ns);
    if (rc)
        return rc;
    seal(t, connection, from_root, data, len, want);
    return mr_mac_same(came, want) ? 0 : -EPROTO;
}

static int send_sealed(struct mr_wire_tcp *t, uint32_t connection, bool from_root, void *data, size_t len)
{
    uint8_t mac[MR_MAC_BYTES];
    seal(t, connection, from_root, data, len, mac);
    int rc = move_all(t->fd[connection], true, data, len, t->deadline_ns);
    return rc ? rc : move_all(t->fd[connection], true, mac, sizeof mac, t->deadline_ns);
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
            rc = receive_sealed(t, r, false, all + r * len, len);
    }
    for (uint32_t r = 1; r < t->world && !rc; r++) {
        *who = r;
        rc = send_sealed(t, r, true, all, len * t->world);
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
            rc = send_sealed(t, 0, false, copy, len);
        }
        if (!rc)
            rc = receive_sealed(t, 0, true, all, len * t->world);
        free(copy);
    }
    t->round++;
    return rc ? mr_error_set(err, rc, "rank %u cannot exchange addresses with rank %u", t->rank, who) : 0;
}

void mr_wire_tcp_close(struct mr_wire_tcp *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; t->fd && i < t->world; i++)
        if (t->fd[i] >= 0)
            close(t->fd[i]);
    explicit_bzero(t->key, sizeof t->key);
    free(t->session);
    free(t->fd);
    free(t);
}
