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
 *   3. ep[p].h is NULL before connect and after disconnect. */
#include "wire/wire_transport.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

#define AM_ID 7u
#define RNDV_MIN (256u << 10) /* below UCX chooses */
#define ROUNDS 64u            /* of progress before the caller looks at its own work again */
#define STRANGERS_MAX 16u

struct ucx;
struct endpoint {
    struct ucx *owner;
    ucp_ep_h h;
    bool failed, told;
    ucs_status_t why;
};
struct ucx {
    struct mr_wire_transport base;
    struct mr_wire_events events;
    ucp_context_h context;
    ucp_worker_h worker;
    uint32_t world;
    uint32_t failures; /* endpoints with failed && !told */
    uint64_t busy;
    ucp_ep_h stranger[STRANGERS_MAX];
    unsigned strangers;
    struct endpoint ep[];
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
    struct endpoint *e = arg;
    (void)h;
    if (e->failed)
        return;
    e->failed = true;
    e->why = status;
    e->owner->failures++;
}

static void note_stranger(struct ucx *u, const ucp_am_recv_param_t *param)
{
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) || u->strangers == STRANGERS_MAX)
        return;
    for (unsigned i = 0; i < u->strangers; i++)
        if (u->stranger[i] == param->reply_ep)
            return;
    for (uint32_t p = 0; p < u->world; p++) /* a peer that merely sent nonsense is the caller's business */
        if (u->ep[p].h == param->reply_ep)
            return;
    u->stranger[u->strangers++] = param->reply_ep;
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

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    struct ucx *u = arg;
    void *dst = NULL;
    uint64_t tag = 0;
    assert(running == u);
    if (header_length > MR_WIRE_HEADER_MAX)
        return UCS_OK;
    switch (u->events.arrived(u->events.ctx, header, header_length, length, &dst, &tag)) {
    case MR_WIRE_TAKE: return take(u, data, length, param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV, dst, tag);
    case MR_WIRE_STRANGER: note_stranger(u, param); return UCS_OK;
    case MR_WIRE_DROP: break;
    }
    return UCS_OK;
}

/* ---- operations ---- */

static int ucx_address(struct mr_wire_transport *t, uint8_t *buf, size_t cap, size_t *len, struct mr_error *err)
{
    ucp_address_t *a;
    size_t n;
    ucs_status_t s = ucp_worker_get_address(of(t)->worker, &a, &n);
    if (s != UCS_OK)
        return say(err, "name this node's address", s);
    if (n <= cap) {
        memcpy(buf, a, n);
        *len = n;
    }
    ucp_worker_release_address(of(t)->worker, a);
    return n <= cap ? 0 : say(err, "name this node's address", UCS_ERR_BUFFER_TOO_SMALL);
}

static int ucx_connect(struct mr_wire_transport *t, uint32_t peer, const uint8_t *address, size_t len)
{
    struct ucx *u = of(t);
    struct endpoint *e = &u->ep[peer];
    (void)len;                        /* a UCX address knows its length */
    assert(peer < u->world && !e->h); /* invariant 3 */
    ucp_ep_params_t p = {
        .field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)(const void *)address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_ep_error, .arg = e},
    };
    running = u;
    ucs_status_t s = ucp_ep_create(u->worker, &p, &e->h);
    if (s != UCS_OK)
        e->h = NULL;
    return s == UCS_OK ? 0 : -ECONNREFUSED;
}

static int ucx_send(struct mr_wire_transport *t, uint32_t peer, const void *header, size_t header_len, const void *data,
                    size_t len, uint64_t tag)
{
    struct ucx *u = of(t);
    struct endpoint *e = &u->ep[peer];
    if (!e->h || e->failed)
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
    ucs_status_ptr_t r = ucp_am_send_nbx(e->h, AM_ID, header, header_len, data, len, &how);
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

static void ucx_disconnect(struct mr_wire_transport *t, uint32_t peer)
{
    struct ucx *u = of(t);
    struct endpoint *e = &u->ep[peer];
    if (!e->h)
        return;
    if (e->failed && !e->told)
        u->failures--;
    ucp_ep_h h = e->h;
    e->h = NULL;
    e->failed = e->told = true;
    close_now(u, h);
}

static void tell_failures(struct ucx *u)
{
    for (uint32_t p = 0; p < u->world && u->failures; p++) {
        struct endpoint *e = &u->ep[p];
        if (!e->failed || e->told)
            continue;
        e->told = true;
        u->failures--;
        u->events.failed(u->events.ctx, p, ucs_status_string(e->why));
    }
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
    if (u->failures)
        tell_failures(u);
    while (u->strangers)
        close_now(u, u->stranger[--u->strangers]);
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
    (void)t;
    return UINT64_MAX;
}

static void ucx_close(struct mr_wire_transport *t)
{
    struct ucx *u = of(t);
    uint64_t until = now_ns() + MR_NS_PER_S;
    for (uint32_t p = 0; p < u->world; p++)
        ucx_disconnect(t, p);
    running = u;
    while (u->busy && now_ns() < until) /* invariant 2 */
        if (ucp_worker_progress(u->worker) == 0)
            sched_yield();
    ucp_worker_destroy(u->worker);
    ucp_cleanup(u->context);
    running = NULL;
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

/* The one symbol of the module. */
__attribute__((visibility("default"))) mr_wire_module_open_fn mr_wire_module_open;

int mr_wire_module_open(uint32_t abi, const struct mr_wire_transport_params *p, struct mr_wire_transport **out,
                        struct mr_error *err)
{
    if (abi != MR_WIRE_TRANSPORT_ABI)
        return say(err, "load this module, which is of another version of Millrace", UCS_ERR_UNSUPPORTED);
    struct ucx *u = calloc(1, sizeof(*u) + p->world * sizeof(u->ep[0]));
    if (!u)
        return -ENOMEM;
    u->base.ops = &ops;
    u->events = p->events;
    u->world = p->world;
    for (uint32_t i = 0; i < p->world; i++)
        u->ep[i].owner = u;
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
    *out = &u->base;
    return 0;
}
