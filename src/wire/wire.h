/* Wire: bytes of samples between the nodes of a job while training runs. Each node opens one wire; then any node may
 * ask any other for a sample by its id, and answers the others' requests from what it holds. Bytes go straight into the
 * asker's buffer and are checked there (XXH3-64). Between the ranks of one node there is no wire: they share memory.
 *
 *   loader thread                 progress thread (one per wire)                       peer's progress thread
 *   mr_wire_request ──ring──>  window of the peer ──> request (id, time left) ─────>  serve(id) ─> bytes pinned
 *                              checks length, lands in dst, checks hash  <──────────  reply (length, hash, bytes)
 *                    done  <── exactly once                                           release(pin)
 *
 * Who calls what. mr_wire_request, mr_wire_wait_room, mr_wire_peer_is_up and mr_wire_stats: any thread. `done`, `serve`
 * and `release` are called by the progress thread and must not block; they may call mr_wire_request. mr_wire_open and
 * mr_wire_close: one thread, and not from a callback. In a forked child nothing works and nothing is touched: requests
 * return MR_E_UNSUPPORTED, close returns at once.
 *
 * Memory. All of it is allocated at open: `slots` requests, and at most `serve_max` entries for those of others, shared
 * out evenly over the peers. Nothing is allocated for a request by us; the transport below keeps pools that grow to
 * what was in flight at most.
 *
 * What a failure costs. Every request ends, with a status. A peer that does not answer costs one deadline, once: from
 * then on it counts as silent, everything else that waits for it ends at once and new requests are refused at once. If
 * it is heard of again within `gone_after_ns` it is used again, else it is gone for good. No status but MR_WIRE_OK says
 * anything about the bytes in dst.
 *
 * doc/internals/wire.md has the messages byte by byte, README.md the invariants and whom this keeps out. */
#ifndef MR_WIRE_WIRE_H
#define MR_WIRE_WIRE_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_comm;
struct mr_wire_transport;
struct mr_wire_transport_params;
struct mr_wire;
struct mr_wire_fault;
struct mr_wire_tcp;

#define MR_WIRE_SECRET_BYTES 32
#define MR_WIRE_HASH_BYTES 16

/* How a request ended. */
enum mr_wire_status {
    MR_WIRE_OK,       /* `len` bytes are in dst, and their hash is right */
    MR_WIRE_NOT_YET,  /* the peer will have it later: ask again, or read it from the source */
    MR_WIRE_NO,       /* the peer does not have it and will not */
    MR_WIRE_LATE,     /* the deadline passed without a reply */
    MR_WIRE_GONE,     /* the peer is silent, died, or refused us */
    MR_WIRE_CORRUPT,  /* bytes came, but are not those the peer sent */
    MR_WIRE_TOO_LONG, /* the sample has more than `cap` bytes */
    MR_WIRE_CLOSED,   /* this wire was closed, or its transport failed as a whole */
    MR_WIRE_STATUSES
};
const char *mr_wire_status_name(enum mr_wire_status status);

/* `dst` is the caller's again from here on. */
typedef void mr_wire_done_fn(void *ctx, enum mr_wire_status status, size_t len);

/* What serve answers with: bytes that stay as they are until release(pin). hash is XXH3-64 of them where the caller
 * keeps it (has_hash), which saves a pass over the bytes and also finds what went wrong in memory before. */
struct mr_wire_bytes {
    const void *data;
    size_t len;
    bool has_hash;
    uint64_t hash;
    void *pin;
};
enum mr_wire_answer { MR_WIRE_HAVE, MR_WIRE_HAVE_LATER, MR_WIRE_HAVE_NOT };
typedef enum mr_wire_answer mr_wire_serve_fn(void *ctx, uint32_t peer, uint64_t id, uint64_t deadline_ns,
                                             struct mr_wire_bytes *out);
typedef void mr_wire_release_fn(void *ctx, void *pin);

/* All-gather among the nodes: every node gives `len` bytes (the same len everywhere) and gets world * len in the order
 * of the ranks. Used twice by mr_wire_open and never again. Any callable will do: mr_comm_exchange over
 * the job's collectives (fork, MPI), or the one below. */
typedef int mr_wire_exchange_fn(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err);
/* Over TCP, for torchrun and whatever else tells each process an address, a port, its rank and how many there are: ctx
 * is a struct mr_wire_tcp. Rank 0 listens on `host` only, on the first free of the 16 ports after `port` (the port
 * itself is torchrun's), until all have come. `key` must be the same everywhere; each connection proves in both
 * directions that its end has it (wire_greet.h), and a stranger's is dropped. Errors: MR_E_TIMEOUT, MR_E_USAGE, -errno. */
struct mr_wire_tcp_params {
    const char *host;
    uint16_t port;
    uint32_t rank, world;
    const uint8_t *key; /* MR_WIRE_SECRET_BYTES; copied */
    uint64_t timeout_ns;
};
int mr_wire_tcp_open(const struct mr_wire_tcp_params *p, struct mr_wire_tcp **out, struct mr_error *err);
int mr_wire_exchange_tcp(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err);
void mr_wire_tcp_close(struct mr_wire_tcp *t); /* accepts NULL; may be closed as soon as the wire is open */
/* Fills p from MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE (host points into the environment); false if one is
 * missing or no number. For one wire per rank: with several ranks per node the caller maps them to nodes first. */
bool mr_wire_tcp_from_torchrun(struct mr_wire_tcp_params *p);

/* A key that a user names: a file of MR_WIRE_SECRET_BYTES bytes, a regular one (no link) of this user that nobody else
 * may read or write. Errors: MR_E_USAGE (another length, owner or mode, no regular file), -errno. */
int mr_wire_key_read(const char *path, uint8_t key[MR_WIRE_SECRET_BYTES], struct mr_error *err);

struct mr_wire_params {
    uint32_t rank, world; /* of nodes */
    mr_wire_exchange_fn *exchange;
    void *exchange_ctx;
    const uint8_t *secret;                /* MR_WIRE_SECRET_BYTES; NULL: rank 0 draws one and the exchange carries it */
    uint8_t data_set[MR_WIRE_HASH_BYTES]; /* must be the same everywhere */
    mr_wire_serve_fn *serve;              /* NULL: has nothing, ever */
    mr_wire_release_fn *release;          /* may be NULL */
    void *serve_ctx;
    /* Limits; 0 takes the default in brackets. */
    uint32_t slots;              /* requests of this node that have not ended (1024) */
    uint32_t window;             /* of them on their way to one peer; the peer may grant less (64) */
    uint32_t serve_max;          /* entries for requests of others (16384, and at least one for each peer) */
    uint32_t sends;              /* replies that are being sent, so samples pinned at a time (64) */
    uint64_t stall_ns;           /* no byte moves for so long in the middle of a transfer: the peer is gone (5 s) */
    uint64_t gone_after_ns;      /* silent for so long: gone (30 s) */
    const char *devices;         /* network interfaces, "eth0,ib0"; NULL: all the transport finds */
    const char *transports;      /* as UCX_TLS: "tcp", "rc,tcp"; NULL: what UCX_TLS says, else all */
    struct mr_wire_fault *fault; /* tests: injects a fault; see wire_fault.h */
    /* Tests: instead of the module. */
    int (*transport)(uint32_t abi, const struct mr_wire_transport_params *p, struct mr_wire_transport **out,
                     struct mr_error *err);
};

/* Collective: all nodes call it. Loads the transport module (millrace_wire_ucx.so), exchanges addresses and secret,
 * starts the progress thread, which connects to the nodes of higher rank; those of lower rank connect to this one.
 * Errors: MR_E_UNSUPPORTED (no module), MR_E_USAGE, MR_E_CONFIG (another version or data set elsewhere), what exchange
 * returned, -errno. */
int mr_wire_open(const struct mr_wire_params *p, struct mr_wire **out, struct mr_error *err);
/* Ends what has not ended (MR_WIRE_CLOSED), disconnects, joins the thread. Peers see this node as gone: have a barrier
 * first if they may still ask. Accepts NULL. */
void mr_wire_close(struct mr_wire *w);

/* Asks `peer` for sample `id`. On 0, `done` will be called once, and dst[0 .. cap) belongs to the wire until then. It
 * comes by `deadline_ns` (mr_now_ns clock), or, where bytes are arriving just then, at most 3 * stall_ns later.
 * Hot path: one lock, no allocation; one write to an eventfd if the progress thread sleeps.
 * Errors (done is not called): -EAGAIN all slots are taken (see mr_wire_wait_room), MR_E_PEER the peer is silent or
 * gone, MR_E_TIMEOUT the deadline has passed, MR_E_USAGE, MR_E_UNSUPPORTED in a forked child, -ESHUTDOWN closed. */
int mr_wire_request(struct mr_wire *w, uint32_t peer, uint64_t id, void *dst, size_t cap, uint64_t deadline_ns,
                    mr_wire_done_fn *done, void *ctx);
/* Waits until a slot is free: 0; MR_E_TIMEOUT at the deadline; -ESHUTDOWN. Not from a callback. */
int mr_wire_wait_room(struct mr_wire *w, uint64_t deadline_ns);
/* Is it worth asking this peer? A hint; a request says for sure. */
bool mr_wire_peer_is_up(const struct mr_wire *w, uint32_t peer);

struct mr_wire_stats {
    uint64_t requests, ended[MR_WIRE_STATUSES], bytes_in; /* asked by this node */
    uint64_t served, bytes_out;                           /* asked of this node */
    uint64_t strangers;                                   /* messages of nobody's: no proof, no token; dropped */
    uint64_t timeouts;                                    /* times a peer was found silent */
    uint64_t wakeups;                                     /* of the progress thread */
};
void mr_wire_stats(struct mr_wire *w, struct mr_wire_stats *out);
/* The progress thread's id, to measure its CPU time. */
int mr_wire_thread_id(const struct mr_wire *w);

#endif
