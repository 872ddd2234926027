/* The wire over UCX, as a module of its own: the only includer of UCX's headers, loaded when a wire is opened.
 *
 * Requests and headers are active messages. Bytes go by rendezvous from RNDV_MIN on: the receiver first sees header and
 * length, names the buffer, and UCX moves the bytes there (RDMA where there is one, else in pieces over TCP). Of fewer
 * bytes UCX itself knows best whether they travel with the header and are copied once: over TCP that was a third faster
 * at 128 KiB, over RDMA rendezvous begins at some KiB.
 *
 * We live in other people's processes: UCX's hooks and signal handlers are kept out by wire_load.c, which has the list
 * of settings; memory is declared host memory, so that nobody looks up what kind it is.
 *
 * Invariants (T1-T3 are in wire_transport.h):
 *   1. No call into UCX from UCX's callbacks except receiving the bytes of a message: failures and strangers are noted
 *      there and handled at the end of progress().
 *   2. `busy` counts the operations whose callback has not come; close() leaves only when it is zero or a second is
 * over.
 *   3. A link is of nobody until its greeting was accepted; it is of one peer then, and a peer has one link for good.
 * Nodes connect through listeners (sockaddr), not by worker addresses: connections of that kind are full duplex from
 * the start, while those by worker address are matched with each other afterwards, and UCX 1.13 ends the process by an
 * assertion (tcp_cm.c:408) when one is cut in the middle of that. */
#include "wire/wire_transport.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

#define AM_ID 7u
#define RNDV_MIN (256u << 10) /* below UCX chooses */
#define ROUNDS 64u            /* of progress before the caller looks at its own work again */
#define LISTENERS_MAX 8u
#define KNOCKS_MAX 64u
#define UNKNOWN_MAX 256u /* connections that have not greeted; where there are more the oldest goes */
#define GREET_BY_NS (5 * MR_NS_PER_S)

struct ucx;
struct link { /* a connection, of a peer or of somebody who has not greeted yet */
    struct ucx *owner;
    struct link *next;
    ucp_ep_h h;
    uint32_t peer; /* MR_WIRE_NOBODY until it has greeted */
    bool failed, told;
    ucs_status_t why;
    uint64_t until_ns; /* MR_WIRE_NOBODY: greet by then; closed: the struct may be used again then */
    struct mr_greet greet;
    uint8_t answer[MR_WIRE_HEADER_MAX]; /* to a greeting; sent by progress() */
    size_t answer_len;
    bool answer_lent; /* to UCX */
};
struct ucx {
    struct mr_wire_transport base;
    struct mr_wire_events events;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_listener_h listener[LISTENERS_MAX];
    struct sockaddr_storage where[LISTENERS_MAX];
    unsigned listeners;
    uint32_t world;
    uint32_t failures; /* links with failed && !told */
    uint32_t unknown;  /* links of nobody */
    uint32_t answers;  /* that wait to be sent */
    uint64_t busy;
    struct link *links;
    ucp_conn_request_h knock[KNOCKS_MAX];
    unsigned knocks;
    struct link *of_peer[];
};

/* Whose progress() or send() runs in this thread: UCX's callbacks carry one pointer, and that is the tag. */
static _Thread_local struct ucx *running;

/* Modules are loaded into programs that need not export our functions. */
static int say(struct mr_error *err, const char *what, ucs_status_t s)
{
    if (err) {
        memset(err, 0, sizeof(*err));
        err->code = MR_E_UNSUPPORTED;
        snprintf(err->message, sizeof(err->message), "cannot %s: UCX says '%s'", what, ucs_status_string(s));
        snprintf(err->hint, sizeof(err->hint), "'ucx_info -d' lists what UCX finds here; UCX_LOG_LEVEL=info says more");
    }
    return MR_E_UNSUPPORTED;
}

static struct ucx *of(struct mr_wire_transport *t)
{
    return MR_CONTAINER_OF(t, struct ucx, base);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * MR_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- events ---- */

static void on_sent(void *request, ucs_status_t status, void *user)
{
    struct ucx *u = running;
    assert(u && u->busy > 0);
    u->busy--;
    ucp_request_free(request);
    u->events.sent(u->events.ctx, (uint64_t)(uintptr_t)user, status == UCS_OK);
}

static void on_received(void *request, ucs_status_t status, size_t length, void *user)
{
    struct ucx *u = running;
    (void)length;
    assert(u && u->busy > 0);
    u->busy--;
    ucp_request_free(request);
    u->events.received(u->events.ctx, (uint64_t)(uintptr_t)user, status == UCS_OK);
}

static void on_closed(void *request, ucs_status_t status, void *user)
{
    struct ucx *u = user;
    (void)status;
    assert(u->busy > 0);
    u->busy--;
    ucp_request_free(request);
}

/* Invariant 1: noted here, told by progress(). */
static void on_ep_error(void *arg, ucp_ep_h h, ucs_status_t status)
{
    struct link *l = arg;
    (void)h;
    if (l->failed)
        return;
    l->failed = true;
    l->why = status;
    l->owner->failures++;
}

static void on_knock(ucp_conn_request_h request, void *arg)
{
    struct ucx *u = arg;
    if (u->knocks < KNOCKS_MAX)
        u->knock[u->knocks++] = request;
    else
        ucp_listener_reject(u->listener[0], request);
}

static struct link *link_of(struct ucx *u, const ucp_am_recv_param_t *param)
{
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP))
        return NULL;
    for (struct link *l = u->links; l; l = l->next)
        if (l->h == param->reply_ep)
            return l;
    return NULL;
}

static void bind_peer(struct ucx *u, struct link *l, uint32_t peer)
{
    if (!l || l->peer != MR_WIRE_NOBODY || u->of_peer[peer])
        return;
    l->peer = peer;
    u->of_peer[peer] = l;
    u->unknown--;
}

/* One that never greeted is disconnected by progress(); a peer that merely sent nonsense is the caller's business. */
static void note_stranger(struct link *l)
{
    if (l && l->peer == MR_WIRE_NOBODY && !l->failed) {
        l->failed = true;
        l->why = UCS_ERR_REJECTED;
        l->owner->failures++;
    }
}

static ucs_status_t take(struct ucx *u, void *data, size_t length, bool rendezvous, void *dst, uint64_t tag)
{
    if (!rendezvous) {
        memcpy(dst, data, length);
        u->events.received(u->events.ctx, tag, true);
        return UCS_OK;
    }
    ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = on_received,
        .user_data = (void *)(uintptr_t)tag,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    u->busy++;
    ucs_status_ptr_t r = ucp_am_recv_data_nbx(u->worker, data, dst, length, &how);
    if (r == NULL || UCS_PTR_IS_ERR(r)) {
        u->busy--;
        u->events.received(u->events.ctx, tag, r == NULL);
    }
    return UCS_OK;
}

static void note_answer(struct link *l, const uint8_t *bytes, size_t len)
{
    if (l->answer_lent || l->answer_len) /* the same is on its way */
        return;
    memcpy(l->answer, bytes, len);
    l->answer_len = len;
    l->owner->answers++;
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    struct ucx *u = arg;
    void *dst = NULL;
    uint64_t tag = 0;
    struct link *l = link_of(u, param);
    uint8_t answer[MR_WIRE_HEADER_MAX];
    bool open = l && l->peer == MR_WIRE_NOBODY && !l->failed;
    struct mr_wire_from from = {
        .peer = l ? l->peer : MR_WIRE_NOBODY, .greet = open ? &l->greet : NULL, .answer = answer};
    assert(running == u);
    if (header_length > MR_WIRE_HEADER_MAX || (l && l->failed))
        return UCS_OK;
    switch (u->events.arrived(u->events.ctx, &from, header, header_length, length, &dst, &tag)) {
    case MR_WIRE_ANSWER:
        if (open)
            note_answer(l, answer, from.answer_len);
        return UCS_OK;
    case MR_WIRE_TAKE: return take(u, data, length, param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV, dst, tag);
    case MR_WIRE_PEER: bind_peer(u, l, (uint32_t)tag); return UCS_OK;
    case MR_WIRE_STRANGER: note_stranger(l); return UCS_OK;
    case MR_WIRE_DROP: break;
    }
    return UCS_OK;
}

/* ---- operations ---- */

/* The listeners' socket addresses, one after the other; all nodes have the same kind of machine. */
static int ucx_address(struct mr_wire_transport *t, uint8_t *buf, size_t cap, size_t *len, struct mr_error *err)
{
    struct ucx *u = of(t);
    size_t n = u->listeners * sizeof(u->where[0]);
    if (n == 0 || n > cap)
        return say(err, "name this node's address", UCS_ERR_NO_DEVICE);
    memcpy(buf, u->where, n);
    *len = n;
    return 0;
}

static void close_link(struct link *l);

static struct link *new_link(struct ucx *u, uint32_t peer)
{
    uint64_t now = now_ns();
    struct link *l = u->links;
    while (l && (l->h || l->answer_lent || now < l->until_ns))
        l = l->next;
    if (!l) {
        l = calloc(1, sizeof(*l));
        if (!l)
            return NULL;
        l->next = u->links;
        u->links = l;
    }
    *l = (struct link){.owner = u, .next = l->next, .peer = peer, .until_ns = now + GREET_BY_NS};
    return l;
}

static int create_ep(struct link *l, ucp_ep_params_t *p)
{
    p->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    p->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    p->err_handler.cb = on_ep_error;
    p->err_handler.arg = l;
    running = l->owner;
    if (ucp_ep_create(l->owner->worker, p, &l->h) == UCS_OK)
        return 0;
    l->h = NULL;
    return -ECONNREFUSED;
}

/* Of a peer's addresses the one in a network of ours, else the first. They are the peer's word: only families that are
 * known, and bytes that may lie anywhere. */
static bool nearest(const struct ucx *u, const uint8_t *address, size_t len, struct sockaddr_storage *out)
{
    unsigned most = 0;
    bool found = false;
    for (size_t at = 0; at + sizeof(*out) <= len; at += sizeof(*out)) {
        struct sockaddr_storage one;
        memcpy(&one, address + at, sizeof one);
        if (one.ss_family != AF_INET && one.ss_family != AF_INET6)
            continue;
        unsigned same = 0;
        for (unsigned k = 0; k < u->listeners && one.ss_family == AF_INET; k++) {
            uint32_t a = ntohl(((const struct sockaddr_in *)&one)->sin_addr.s_addr);
            uint32_t b = ntohl(((const struct sockaddr_in *)&u->where[k])->sin_addr.s_addr);
            same = MR_MAX(same, u->where[k].ss_family != AF_INET ? 0 : a == b ? 32 : (unsigned)__builtin_clz(a ^ b));
        }
        if (found && same <= most)
            continue;
        *out = one;
        most = same;
        found = true;
    }
    return found;
}

static int ucx_connect(struct mr_wire_transport *t, uint32_t peer, const uint8_t *address, size_t len)
{
    struct ucx *u = of(t);
    if (u->of_peer[peer])
        return 0;
    struct sockaddr_storage to;
    struct link *l = nearest(u, address, len, &to) ? new_link(u, peer) : NULL;
    if (!l)
        return -EADDRNOTAVAIL;
    ucp_ep_params_t p = {
        .field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr = {.addr = (const struct sockaddr *)&to,
                     .addrlen = to.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)},
    };
    int rc = create_ep(l, &p);
    if (rc == 0)
        u->of_peer[peer] = l;
    return rc;
}

/* Of those of nobody. */
static void close_oldest(struct ucx *u)
{
    struct link *oldest = NULL;
    for (struct link *l = u->links; l; l = l->next)
        if (l->h && l->peer == MR_WIRE_NOBODY && (!oldest || l->until_ns < oldest->until_ns))
            oldest = l;
    if (oldest)
        close_link(oldest);
}

static void answer_knocks(struct ucx *u)
{
    for (unsigned i = 0; i < u->knocks; i++) { /* in the order of arrival */
        ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST, .conn_request = u->knock[i]};
        if (u->unknown >= UNKNOWN_MAX)
            close_oldest(u);
        struct link *l = new_link(u, MR_WIRE_NOBODY);
        if (!l)
            ucp_listener_reject(u->listener[0], p.conn_request);
        else if (create_ep(l, &p) == 0)
            u->unknown++;
    }
    u->knocks = 0;
}

static void on_answered(void *request, ucs_status_t status, void *user)
{
    struct link *l = user;
    (void)status; /* a broken connection is noted by on_ep_error */
    assert(l->owner->busy > 0);
    l->owner->busy--;
    l->answer_lent = false;
    ucp_request_free(request);
}

static void send_answer(struct link *l)
{
    struct ucx *u = l->owner;
    ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = on_answered,
        .user_data = l,
        .flags = UCP_AM_SEND_FLAG_REPLY,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    u->busy++;
    ucs_status_ptr_t r = ucp_am_send_nbx(l->h, AM_ID, l->answer, l->answer_len, NULL, 0, &how);
    l->answer_lent = UCS_PTR_IS_PTR(r);
    if (!l->answer_lent)
        u->busy--;
}

static void send_answers(struct ucx *u)
{
    for (struct link *l = u->links; l && u->answers; l = l->next) {
        if (!l->answer_len)
            continue;
        if (l->h && !l->failed)
            send_answer(l);
        l->answer_len = 0;
        u->answers--;
    }
}

static int ucx_send(struct mr_wire_transport *t, uint32_t peer, const void *header, size_t header_len, const void *data,
                    size_t len, uint64_t tag)
{
    struct ucx *u = of(t);
    struct link *l = u->of_peer[peer];
    if (!l || !l->h || l->failed)
        return -ENOTCONN;
    ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = on_sent,
        .user_data = (void *)(uintptr_t)tag,
        /* A message without bytes names its sender, so that a stranger can be disconnected. */
        .flags = len == 0         ? UCP_AM_SEND_FLAG_REPLY
                 : len < RNDV_MIN ? UCP_AM_SEND_FLAG_EAGER
                                  : UCP_AM_SEND_FLAG_RNDV,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    running = u;
    u->busy++;
    ucs_status_ptr_t r = ucp_am_send_nbx(l->h, AM_ID, header, header_len, data, len, &how);
    if (UCS_PTR_IS_PTR(r))
        return 0;
    u->busy--;
    if (UCS_PTR_IS_ERR(r))
        return -EIO;
    u->events.sent(u->events.ctx, tag, true);
    return 0;
}

/* Without waiting for what is under way: it ends with an error (T2). */
static void close_now(struct ucx *u, ucp_ep_h h)
{
    ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .cb.send = on_closed,
        .user_data = u,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
    };
    running = u;
    u->busy++;
    ucs_status_ptr_t r = ucp_ep_close_nbx(h, &how);
    if (!UCS_PTR_IS_PTR(r))
        u->busy--;
}

static void close_link(struct link *l)
{
    struct ucx *u = l->owner;
    if (!l->h)
        return;
    if (l->failed && !l->told)
        u->failures--;
    if (l->peer == MR_WIRE_NOBODY)
        u->unknown--;
    ucp_ep_h h = l->h;
    l->h = NULL;
    l->failed = l->told = true;
    l->until_ns = now_ns() + GREET_BY_NS;
    close_now(u, h);
}

static void ucx_disconnect(struct mr_wire_transport *t, uint32_t peer)
{
    if (of(t)->of_peer[peer])
        close_link(of(t)->of_peer[peer]);
}

static void tell_failures(struct ucx *u)
{
    for (struct link *l = u->links; l && u->failures; l = l->next) {
        if (!l->h || !l->failed || l->told)
            continue;
        if (l->peer == MR_WIRE_NOBODY) {
            close_link(l);
            continue;
        }
        l->told = true;
        u->failures--;
        u->events.failed(u->events.ctx, l->peer, ucs_status_string(l->why));
    }
}

static void close_the_silent(struct ucx *u)
{
    uint64_t now = now_ns();
    for (struct link *l = u->links; l; l = l->next)
        if (l->h && l->peer == MR_WIRE_NOBODY && now >= l->until_ns)
            close_link(l);
}

static unsigned ucx_progress(struct mr_wire_transport *t)
{
    struct ucx *u = of(t);
    unsigned done = 0;
    running = u;
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned n = ucp_worker_progress(u->worker);
        done += n;
        if (n == 0)
            break;
    }
    done += u->knocks;
    if (u->knocks)
        answer_knocks(u);
    done += u->answers;
    if (u->answers)
        send_answers(u);
    if (u->failures)
        tell_failures(u);
    if (u->unknown)
        close_the_silent(u);
    return done;
}

static int ucx_fd(struct mr_wire_transport *t)
{
    int fd = -1;
    return ucp_worker_get_efd(of(t)->worker, &fd) == UCS_OK ? fd : -1;
}

static bool ucx_arm(struct mr_wire_transport *t)
{
    return ucp_worker_arm(of(t)->worker) == UCS_OK;
}

static uint64_t ucx_wake_ns(struct mr_wire_transport *t)
{
    return of(t)->unknown ? now_ns() + MR_NS_PER_S : UINT64_MAX; /* to see whether they have greeted */
}

static void ucx_close(struct mr_wire_transport *t)
{
    struct ucx *u = of(t);
    uint64_t until = now_ns() + MR_NS_PER_S;
    for (unsigned i = 0; i < u->listeners; i++)
        ucp_listener_destroy(u->listener[i]);
    for (struct link *l = u->links; l; l = l->next)
        close_link(l);
    running = u;
    while (u->busy && now_ns() < until) /* invariant 2 */
        if (ucp_worker_progress(u->worker) == 0)
            sched_yield();
    ucp_worker_destroy(u->worker);
    ucp_cleanup(u->context);
    running = NULL;
    while (u->links) {
        struct link *l = u->links;
        u->links = l->next;
        free(l);
    }
    free(u);
}

static const struct mr_wire_transport_ops ops = {
    .abi = MR_WIRE_TRANSPORT_ABI,
    .name = "ucx",
    .address = ucx_address,
    .connect = ucx_connect,
    .send = ucx_send,
    .disconnect = ucx_disconnect,
    .progress = ucx_progress,
    .fd = ucx_fd,
    .arm = ucx_arm,
    .wake_ns = ucx_wake_ns,
    .close = ucx_close,
};

/* ---- opening ---- */

static ucs_status_t configure(ucp_config_t *config, const struct mr_wire_transport_params *p)
{
    ucs_status_t s = UCS_OK;
    if (p->devices)
        s = ucp_config_modify(config, "NET_DEVICES", p->devices);
    if (s == UCS_OK && p->transports)
        s = ucp_config_modify(config, "TLS", p->transports);
    return s;
}

static ucs_status_t open_context(struct ucx *u, const struct mr_wire_transport_params *p)
{
    ucp_config_t *config;
    ucs_status_t s = ucp_config_read(NULL, NULL, &config);
    if (s != UCS_OK)
        return s;
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
    };
    s = configure(config, p);
    if (s == UCS_OK)
        s = ucp_init(&params, config, &u->context);
    ucp_config_release(config);
    return s;
}

static ucs_status_t open_worker(struct ucx *u)
{
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .events = UCP_WAKEUP_RX | UCP_WAKEUP_TX,
    };
    ucs_status_t s = ucp_worker_create(u->context, &params, &u->worker);
    if (s != UCS_OK)
        return s;
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = AM_ID,
        .cb = on_message,
        .arg = u,
    };
    s = ucp_worker_set_am_recv_handler(u->worker, &handler);
    if (s != UCS_OK)
        ucp_worker_destroy(u->worker);
    return s;
}

/* "eth0" in "eth0,ib0"? A UCX device may be "mlx5_0:1": that has no address, its network interface must be named too.
 */
static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

static ucs_status_t open_listener(struct ucx *u, const struct sockaddr *a)
{
    ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {.addr = a,
                     .addrlen = a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)},
        .conn_handler = {.cb = on_knock, .arg = u},
    };
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucs_status_t s = ucp_listener_create(u->worker, &params, &u->listener[u->listeners]);
    if (s != UCS_OK)
        return s;
    s = ucp_listener_query(u->listener[u->listeners], &attr);
    if (s != UCS_OK) {
        ucp_listener_destroy(u->listener[u->listeners]);
        return s;
    }
    u->where[u->listeners++] = attr.sockaddr;
    return UCS_OK;
}

/* On each of the interfaces that were named; else on all that are up, and on loopback only if there is no other. */
static ucs_status_t open_listeners(struct ucx *u, const char *devices)
{
    struct ifaddrs *list, *i;
    ucs_status_t s = UCS_ERR_NO_DEVICE;
    if (getifaddrs(&list) != 0)
        return UCS_ERR_IO_ERROR;
    for (unsigned loopback = 0; loopback < 2 && u->listeners == 0; loopback++)
        for (i = list; i; i = i->ifa_next) {
            bool wanted = devices ? is_listed(devices, i->ifa_name) : !!(i->ifa_flags & IFF_LOOPBACK) == !!loopback;
            if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) || !wanted ||
                u->listeners == LISTENERS_MAX)
                continue;
            s = open_listener(u, i->ifa_addr);
        }
    freeifaddrs(list);
    return u->listeners ? UCS_OK : s;
}

/* The one symbol of the module. */
__attribute__((visibility("default"))) mr_wire_module_open_fn mr_wire_module_open;

int mr_wire_module_open(uint32_t abi, const struct mr_wire_transport_params *p, struct mr_wire_transport **out,
                        struct mr_error *err)
{
    if (abi != MR_WIRE_TRANSPORT_ABI)
        return say(err, "load this module, which is of another version of Millrace", UCS_ERR_UNSUPPORTED);
    struct ucx *u = calloc(1, sizeof(*u) + p->world * sizeof(u->of_peer[0]));
    if (!u)
        return -ENOMEM;
    u->base.ops = &ops;
    u->events = p->events;
    u->world = p->world;
    ucs_status_t s = open_context(u, p);
    if (s != UCS_OK) {
        free(u);
        return say(err, "start the wire", s);
    }
    s = open_worker(u);
    if (s != UCS_OK) {
        ucp_cleanup(u->context);
        free(u);
        return say(err, "start the wire", s);
    }
    s = open_listeners(u, p->devices);
    if (s != UCS_OK) {
        ucx_close(&u->base);
        return say(err, "listen for other nodes", s);
    }
    *out = &u->base;
    return 0;
}
