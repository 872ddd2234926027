/* Nodes of a job and the hand-over of segments; see tier_node.h.
 *
 *   leader                                          other ranks of the node
 *   socket, bind to a random name, listen
 *   ------------------ exchange: the name of every leader's socket ------------------
 *   accept: same user? the secret?           <----- connect: same user? send the secret and the rank
 *   send the descriptor                      -----> map it
 *   ------------------ exchange: did it work everywhere? ------------------
 *
 * Names of abstract sockets can be seen by everybody on the machine, so a name lets nobody in; the secret
 * and the user do. Waits look every 100 ms whether the other process lives. */
#include "tier/tier_node.h"
#include "base/clock.h"
#include "base/common.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME_BYTES 16u
#define TIMEOUT_NS (30 * MR_NS_PER_S)
#define LOOK_MS 100

/* ---- exchange ---- */

static int exchange(const struct mr_tier_node *n, const void *mine, size_t len, void *all, struct mr_error *err)
{
    if (n->world == 1) {
        memcpy(all, mine, len);
        return 0;
    }
    return n->exchange(n->exchange_ctx, mine, len, all, err);
}

static uint32_t first_cause(const struct mr_tier_node *n, const int32_t *codes)
{
    uint32_t own = 0, any = 0;
    while (own < n->world && (codes[own] == 0 || codes[own] == MR_E_PEER))
        own++;
    while (any < n->world - 1 && codes[any] == 0)
        any++;
    return own < n->world ? own : any;
}

/* Texts travel only if somebody failed: codes are the same on all ranks, so all of them know. The cause is that of the
 * first one that failed by itself; failures because of another rank are told with it. */
static int tell_failures(const struct mr_tier_node *n, int code, const int32_t *codes, struct mr_error *err)
{
    struct mr_error mine = {0}, why, *all = calloc(n->world, sizeof(*all));
    int rc = all ? 0 : -ENOMEM;
    uint32_t first = first_cause(n, codes);
    if (code != 0 && err)
        mine = *err;
    if (rc == 0)
        rc = exchange(n, &mine, sizeof mine, all, &why);
    bool theirs = first != n->rank && (code == 0 || (code == MR_E_PEER && rc == 0));
    if (theirs && err) {
        *err = rc == 0 ? all[first] : (struct mr_error){.message = "it failed"};
        err->message[sizeof err->message - 1] = err->context[sizeof err->context - 1] = '\0';
        err->hint[sizeof err->hint - 1] = '\0';
        if (!*err->message)
            snprintf(err->message, sizeof err->message, "it failed without a reason");
        err->code = codes[first];
        mr_error_context(err, "rank %u", first);
    }
    free(all);
    return theirs ? codes[first] : code;
}

int mr_tier_node_agree(const struct mr_tier_node *n, int code, struct mr_error *err)
{
    struct mr_error why;
    int32_t mine = code > 0 ? MR_E_INTERNAL : code, *codes = calloc(n->world, sizeof(*codes));
    if (!codes)
        return mr_error_set(err, -ENOMEM, "cannot ask the other ranks");
    int rc = exchange(n, &mine, sizeof mine, codes, code == 0 ? err : &why);
    bool failed = false;
    for (uint32_t r = 0; rc == 0 && r < n->world; r++) {
        codes[r] = codes[r] > 0 ? MR_E_INTERNAL : codes[r]; /* another's word: a code is negative */
        failed = failed || codes[r] != 0;
    }
    if (failed)
        rc = tell_failures(n, mine, codes, err);
    else if (rc == 0 || code != 0) /* an exchange that failed says so, unless there is a failure of our own */
        rc = mine;
    free(codes);
    return rc;
}

int mr_tier_node_gather(const struct mr_tier_node *n, const void *mine, size_t len, void *all, struct mr_error *err)
{
    uint8_t *each = malloc(len * n->world + 1);
    if (!each)
        return mr_error_set(err, -ENOMEM, "cannot ask the other ranks");
    int rc = exchange(n, mine, len, each, err);
    for (uint32_t k = 0; rc == 0 && k < n->nodes; k++)
        memcpy((uint8_t *)all + k * len, each + n->first_rank[k] * len, len);
    free(each);
    return rc;
}

/* ---- who is where ---- */

/* Equal on the ranks of a node only. */
struct where {
    char boot[40], host[64];
    uint64_t network, processes, user, forced;
};
struct about {
    struct where where;
    struct mr_process_id process;
    uint8_t nonce[MR_MAC_BYTES]; /* rank 0's counts */
};

static uint64_t name_space(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static struct about about_this(const struct mr_tier_params *p)
{
    struct about a;
    memset(&a, 0, sizeof a); /* compared as bytes */
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (!fgets(a.where.boot, sizeof a.where.boot, f))
            a.where.boot[0] = '\0';
        fclose(f);
    }
    gethostname(a.where.host, sizeof a.where.host - 1);
    a.where.network = name_space("/proc/self/ns/net");
    a.where.processes = name_space("/proc/self/ns/pid");
    a.where.user = geteuid();
    a.where.forced = p->ranks_per_node ? 1 + p->order.rank / p->ranks_per_node : 0;
    a.process = mr_process_self();
    return a;
}

/* Without a key what rank 0 drew is the secret, as secret as the exchange. With one it never travels: the nonce only
 * makes it this opening's. */
static void make_secret(struct mr_tier_node *n, const uint8_t *key, const uint8_t nonce[MR_MAC_BYTES])
{
    if (key)
        mr_mac_derive(key, "millrace tiers", nonce, MR_MAC_BYTES, n->secret);
    else
        memcpy(n->secret, nonce, MR_MAC_BYTES);
}

static int not_in_a_row(uint32_t a, uint32_t between, uint32_t b, struct mr_error *err)
{
    mr_error_plain(err, MR_E_CONFIG, "ranks %u and %u share a machine, and rank %u between them runs on another one", a,
                   b, between);
    mr_error_hint(err, "tiers need the ranks of a machine in a row: 'mpirun --map-by slot' or 'srun -m block'");
    return MR_E_CONFIG;
}

static int number_nodes(struct mr_tier_node *n, const struct about *all, struct mr_error *err)
{
    for (uint32_t r = 0; r < n->world; r++) {
        n->process[r] = all[r].process;
        if (r > 0 && memcmp(&all[r].where, &all[r - 1].where, sizeof all[r].where) == 0)
            continue;
        for (uint32_t k = 0; k < n->nodes; k++)
            if (memcmp(&all[r].where, &all[n->first_rank[k]].where, sizeof all[r].where) == 0)
                return not_in_a_row(n->first_rank[k], r - 1, r, err);
        n->first_rank[n->nodes++] = r;
    }
    n->first_rank[n->nodes] = n->world;
    for (uint32_t k = 0; k < n->nodes; k++)
        if (n->first_rank[k] <= n->rank && n->rank < n->first_rank[k + 1]) {
            n->node = k;
            n->local_rank = n->rank - n->first_rank[k];
            n->local_ranks = n->first_rank[k + 1] - n->first_rank[k];
        }
    return 0;
}

int mr_tier_node_find(const struct mr_tier_params *p, struct mr_tier_node *out, struct mr_error *err)
{
    struct mr_tier_node n = {
        .rank = p->order.rank, .world = p->order.world, .exchange = p->exchange, .exchange_ctx = p->exchange_ctx};
    if (n.world == 0 || n.rank >= n.world || (n.world > 1 && !n.exchange))
        return mr_error_plain(err, MR_E_USAGE, "rank %u of %u cannot find its node", n.rank, n.world);
    struct about mine = about_this(p), *all = calloc(n.world, sizeof(*all));
    n.first_rank = calloc((size_t)n.world + 1, sizeof(*n.first_rank));
    n.process = calloc(n.world, sizeof(*n.process));
    int rc = 0;
    if (!all || !n.first_rank || !n.process)
        rc = mr_error_set(err, -ENOMEM, "cannot find the nodes of %u ranks", n.world);
    if (rc == 0 && getrandom(mine.nonce, sizeof mine.nonce, 0) != sizeof mine.nonce)
        rc = mr_error_set(err, -errno, "cannot draw a secret");
    if (rc == 0)
        rc = exchange(&n, &mine, sizeof mine, all, err);
    if (rc == 0)
        rc = number_nodes(&n, all, err);
    if (rc == 0)
        make_secret(&n, p->key, all[0].nonce);
    free(all);
    if (rc != 0) {
        mr_tier_node_done(&n);
        return rc;
    }
    *out = n;
    return 0;
}

void mr_tier_node_done(struct mr_tier_node *n)
{
    free(n->first_rank);
    free(n->process);
    n->first_rank = NULL;
    n->process = NULL;
}

/* ---- handing the segment over ---- */

struct door {
    int32_t code; /* the leader could not make its segment or its socket */
    uint8_t name[NAME_BYTES];
};
struct knock {
    uint8_t secret[MR_MAC_BYTES];
    uint32_t local_rank;
};

/* What opens this door: the name and the job's secret, hashed. */
static void secret_of(const struct mr_tier_node *n, const struct door *d, uint8_t out[MR_MAC_BYTES])
{
    mr_mac_derive(n->secret, "millrace door", d->name, sizeof d->name, out);
}

static struct sockaddr_un address_of(const struct door *d, socklen_t *len)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    static const char before[] = "millrace-tier-", hex[] = "0123456789abcdef";
    char *at = a.sun_path + 1; /* begins with a zero: abstract, so nothing is left behind in a file system */
    memcpy(at, before, sizeof before - 1);
    at += sizeof before - 1;
    for (unsigned k = 0; k < NAME_BYTES; k++) {
        *at++ = hex[d->name[k] >> 4];
        *at++ = hex[d->name[k] & 15];
    }
    *len = (socklen_t)(at - (char *)&a);
    return a;
}

static int open_door(const struct mr_tier_node *n, struct door *d, int *out, struct mr_error *err)
{
    if (getrandom(d->name, sizeof d->name, 0) != sizeof d->name)
        return mr_error_set(err, -errno, "cannot draw a name for a socket");
    if (n->local_ranks == 1)
        return 0;
    socklen_t len;
    struct sockaddr_un a = address_of(d, &len);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) != 0 || listen(fd, (int)MR_MIN(n->local_ranks, 4096u)) != 0) {
        int code = mr_error_set(err, -errno, "cannot make the socket that hands over the node's memory");
        if (fd >= 0)
            close(fd);
        return code;
    }
    *out = fd;
    return 0;
}

static bool same_user(int fd)
{
    struct ucred who;
    socklen_t len = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.uid == geteuid();
}

static int send_descriptor(int to, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    char byte = 'S';
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    control.head =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    return sendmsg(to, &m, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

/* The descriptor, or -errno; -ECONNRESET: the leader closed without sending one. */
static int receive_descriptor(int from)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    ssize_t got = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
    if (got < 0)
        return -errno;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (got != 1 || !c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(sizeof(int)))
        return -ECONNRESET;
    int fd;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

/* Waits until fd can be read. 0, -ETIMEDOUT, or -ESRCH when one of the processes has ended (then *who is which). */
static int wait_readable(int fd, uint64_t end, const struct mr_process_id *p, const bool *served, uint32_t count,
                         uint32_t *who)
{
    for (;;) {
        struct pollfd w = {.fd = fd, .events = POLLIN};
        if (poll(&w, 1, LOOK_MS) > 0)
            return 0;
        for (*who = 0; *who < count; ++*who)
            if ((!served || !served[*who]) && !mr_process_lives(&p[*who]))
                return -ESRCH;
        if (mr_now_ns() > end)
            return -ETIMEDOUT;
    }
}

/* One that has come: gives it the descriptor if it may have it. True: it is a rank of ours that had none. */
static bool serve(int fd, const uint8_t secret[MR_MAC_BYTES], int segment, bool *served, uint32_t local_ranks)
{
    struct knock k;
    struct pollfd w = {.fd = fd, .events = POLLIN};
    if (!same_user(fd) || poll(&w, 1, 1000) != 1 || recv(fd, &k, sizeof k, MSG_DONTWAIT) != sizeof k ||
        !mr_mac_same(k.secret, secret) || k.local_rank >= local_ranks || served[k.local_rank])
        return false;
    if (send_descriptor(fd, segment) != 0)
        return false;
    served[k.local_rank] = true;
    return true;
}

/* `all`: doors of all ranks; those that come with a failure of their own do not knock. */
static int serve_all(const struct mr_tier_node *n, int door, const struct door *all, int segment, struct mr_error *err)
{
    bool *served = calloc(n->local_ranks, sizeof(*served));
    uint64_t end = mr_now_ns() + TIMEOUT_NS;
    uint32_t left = 0, who = 0;
    uint8_t secret[MR_MAC_BYTES];
    secret_of(n, &all[n->rank], secret);
    int rc = served ? 0 : mr_error_set(err, -ENOMEM, "cannot hand over the node's memory");
    for (uint32_t k = 0; served && k < n->local_ranks; k++) {
        served[k] = k == 0 || all[n->rank + k].code != 0;
        left += !served[k];
    }
    while (rc == 0 && left > 0) {
        rc = wait_readable(door, end, n->process + n->rank, served, n->local_ranks, &who);
        if (rc == -ESRCH)
            rc = mr_error_plain(err, MR_E_PEER, "rank %u (process %ld) has ended while the tiers were opened",
                                n->rank + who, (long)n->process[n->rank + who].pid);
        else if (rc != 0)
            rc = mr_error_plain(err, MR_E_TIMEOUT, "%u of %u ranks of this node did not come for its memory", left,
                                n->local_ranks);
        int fd = rc == 0 ? accept4(door, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd >= 0) {
            left -= serve(fd, secret, segment, served, n->local_ranks);
            close(fd);
        }
    }
    free(served);
    return rc;
}

static int ask(const struct mr_tier_node *n, const struct door *d, struct mr_segment **s, struct mr_error *err)
{
    const char *what = "cannot get the node's memory from rank %u";
    uint32_t leader = n->rank - n->local_rank, who;
    struct knock k = {.local_rank = n->local_rank};
    socklen_t len;
    struct sockaddr_un a = address_of(d, &len);
    secret_of(n, d, k.secret);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), got;
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, len) != 0) {
        got = -errno;
    } else if (!same_user(fd)) {
        got = -EPERM;
    } else if (send(fd, &k, sizeof k, MSG_NOSIGNAL) != sizeof k) {
        got = -errno;
    } else {
        got = wait_readable(fd, mr_now_ns() + TIMEOUT_NS, &n->process[leader], NULL, 1, &who);
        if (got == 0)
            got = receive_descriptor(fd);
    }
    if (fd >= 0)
        close(fd);
    if (got < 0 && !mr_process_lives(&n->process[leader]))
        return mr_error_plain(err, MR_E_PEER, "rank %u (process %ld) has ended while the tiers were opened", leader,
                              (long)n->process[leader].pid);
    if (got == -ECONNRESET || got == -ECONNREFUSED || got == -EPIPE) /* it says why when all are asked */
        return mr_error_plain(err, MR_E_PEER, "rank %u gave up handing over the node's memory", leader);
    if (got < 0)
        return mr_error_set(err, got, what, leader);
    int rc = mr_segment_map(got, s, err);
    close(got);
    return rc;
}

int mr_tier_node_share(const struct mr_tier_node *n, int code, struct mr_segment **s, struct mr_error *err)
{
    bool leads = n->local_rank == 0;
    struct mr_error why;
    struct door mine = {.code = code}, *all = calloc(n->world, sizeof(*all));
    int door = -1, rc = code;
    if (!all)
        return mr_error_set(err, -ENOMEM, "cannot hand over the node's memory");
    if (leads && rc == 0)
        rc = mine.code = open_door(n, &mine, &door, err);
    int went = exchange(n, &mine, sizeof mine, all, rc == 0 ? err : &why);
    const struct door *theirs = &all[n->rank - n->local_rank];
    if (!leads)
        *s = NULL;
    if (rc == 0)
        rc = went;
    if (rc == 0 && theirs->code == 0)
        rc = leads ? serve_all(n, door, all, mr_segment_fd(*s), err) : ask(n, theirs, s, err);
    if (door >= 0)
        close(door); /* who still waits to connect is refused */
    free(all);
    if (went == 0)
        rc = mr_tier_node_agree(n, rc, err);
    if (rc != 0 && !leads) {
        mr_segment_close(*s);
        *s = NULL;
    }
    return rc;
}
