/* See peers.h. */
#include "tier/peers.h"
#include "tier/executor_internal.h"
#include "wire/wire.h"
#include "wire/wire_fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_NS (2 * MR_NS_PER_S) /* a peer that takes longer is silent */
/* `not yet`: ask again after AGAIN_NS, later after longer, and at once when somebody waits for it. From then on it must
 * come within WANTED_NS: the source is what everybody waits for, so bytes that a peer is about to have are cheaper. */
#define AGAIN_NS (2 * MR_NS_PER_MS)
#define AGAIN_MAX_NS (50 * MR_NS_PER_MS)
#define WANTED_NS (250 * MR_NS_PER_MS)
#define MEET_NS (3 * MR_NS_PER_S)
#define PATIENCE_NS (10 * MR_NS_PER_S)

/* Who needs the source for what: a node tells the first access for which it reads from there, as the bytes of a sample
 * whose number is that of none. Fills of the others wait behind it. A node asks a few others, not all of a large job.
 */
#define NEED_NS (10 * MR_NS_PER_MS)
#define NEED_OLD_NS (200 * MR_NS_PER_MS)
#define NEED_PEERS 8u

#define LENGTH_MAX 65536u /* of what a node gives in an exchange of the wire */

struct neighbour {
    struct mr_peers *p;
    uint64_t told;           /* to it; the wire's thread only */
    uint64_t answer;         /* the wire's while `asked` */
    uint64_t need, heard_ns; /* executor's lock, as all below */
    bool asked;
};

struct mr_peers {
    struct mr_executor *x;
    struct mr_wire *wire;
    uint32_t nodes;
    struct mr_fetching *later;   /* executor's lock: to be asked again */
    bool closing;                /* executor's lock */
    struct neighbour *neighbour; /* [node] */
    struct mr_wire_fault fault;  /* of a test */
};

/* ---- asking ---- */

static void came_or_not(void *ctx, enum mr_wire_status status, size_t len);

static void next_peer(struct mr_fetching *f)
{
    f->peer[0] = f->peer[1];
    f->n_peers--;
}

static void ask_later(struct mr_peers *p, struct mr_fetching *f, uint64_t after_ns)
{
    f->retry_ns = mr_now_ns() + after_ns;
    f->next = p->later;
    p->later = f;
}

bool mr_peers_ask(struct mr_peers *p, struct mr_fetching *f)
{
    for (; f->n_peers; next_peer(f)) {
        if (p->closing || !mr_wire_peer_is_up(p->wire, f->peer[0]))
            continue;
        f->began_ns = mr_now_ns();
        int rc = mr_wire_request(p->wire, f->peer[0], f->e->id, mr_segment_data(p->x->segment, f->e->at), f->e->bytes,
                                 mr_now_ns() + ANSWER_NS, came_or_not, f);
        if (rc == -EAGAIN)
            ask_later(p, f, AGAIN_NS);
        if (!rc || rc == -EAGAIN)
            return true;
    }
    return false;
}

/* Does a rank wait for it at this moment? */
static bool is_wanted(const struct mr_executor *x, const struct mr_fetching *f)
{
    for (uint32_t s = f->first_waiter; s != MR_HOLDING_NONE; s = x->slot_next[s]) {
        uint32_t rank = s / x->depth;
        uint64_t wanted = mr_segment_wanted(x->segment, rank);
        if (wanted != UINT64_MAX && slot_of_delivery(x, rank, wanted) == s)
            return true;
    }
    return false;
}

/* `not yet`: is it worth waiting? Under the lock. */
static bool worth_waiting(const struct mr_executor *x, struct mr_fetching *f)
{
    uint64_t now = mr_now_ns();
    if (!f->wanted_ns && is_wanted(x, f))
        f->wanted_ns = now;
    return f->wanted_ns ? now - f->wanted_ns < WANTED_NS : now - f->asked_ns < PATIENCE_NS;
}

static void came_or_not(void *ctx, enum mr_wire_status status, size_t len)
{
    struct mr_fetching *f = ctx;
    struct mr_executor *x = f->x;
    struct mr_peers *p = x->peers;
    if (status == MR_WIRE_OK && len == f->e->bytes) {
        mr_fetch_completed(x, f, len, MR_TIER_PEER);
        return;
    }
    pthread_mutex_lock(&x->lock);
    if (status == MR_WIRE_NOT_YET && !p->closing && worth_waiting(x, f)) {
        uint64_t waited = mr_now_ns() - f->asked_ns;
        ask_later(p, f, f->wanted_ns ? AGAIN_NS : MR_MIN(AGAIN_NS + waited / 4, AGAIN_MAX_NS));
    } else {
        next_peer(f);
        board_add(x->board->refetched, 1);
        mr_fetching_go(x, f);
    }
    pthread_mutex_unlock(&x->lock);
}

uint64_t mr_peers_tick(struct mr_peers *p)
{
    struct mr_fetching *due = NULL, **at = &p->later;
    uint64_t now = mr_now_ns();
    while (*at) {
        struct mr_fetching *f = *at;
        bool early = f->retry_ns > now + AGAIN_NS && is_wanted(p->x, f);
        if (f->retry_ns > now && !early && !p->closing) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        f->next = due;
        due = f;
    }
    while (due) {
        struct mr_fetching *f = due;
        due = f->next;
        mr_fetching_go(p->x, f);
    }
    return p->later ? AGAIN_NS : 0;
}

static void heard_need(void *ctx, enum mr_wire_status status, size_t len)
{
    struct neighbour *b = ctx;
    struct mr_executor *x = b->p->x;
    pthread_mutex_lock(&x->lock);
    b->asked = false;
    b->heard_ns = mr_now_ns();
    b->need =
        status == MR_WIRE_OK && len == sizeof b->answer ? b->answer : MR_NO_ACCESS; /* who is gone needs nothing */
    pthread_mutex_unlock(&x->lock);
    mr_segment_kick(x->segment);
}

uint64_t mr_peers_need(struct mr_peers *p)
{
    uint64_t least = MR_NO_ACCESS, now = mr_now_ns();
    for (uint32_t k = 1; k < p->nodes && k <= NEED_PEERS && !p->closing; k++) {
        uint32_t peer = (p->x->node + k) % p->nodes;
        struct neighbour *b = &p->neighbour[peer];
        if (!mr_wire_peer_is_up(p->wire, peer))
            continue;
        if (!b->asked && now - b->heard_ns >= NEED_NS)
            b->asked = !mr_wire_request(p->wire, peer, p->x->info.samples, &b->answer, sizeof b->answer,
                                        now + ANSWER_NS, heard_need, b);
        least = MR_MIN(least, now - b->heard_ns < NEED_OLD_NS ? b->need : 0);
    }
    return least;
}

uint32_t mr_peers_lost(const struct mr_peers *p)
{
    uint32_t lost = 0;
    for (uint32_t n = 0; n < p->nodes; n++)
        lost += n != p->x->node && !mr_wire_peer_is_up(p->wire, n);
    return lost;
}

/* ---- answering ---- */

/* It is on an SSD of this node, or will be here by the rule. Under the lock. */
static enum mr_wire_answer answer_without_bytes(struct mr_executor *x, struct mr_holding *e, uint64_t id, uint32_t peer)
{
    uint8_t ssd = mr_executor_find_ssd(x, id);
    if (ssd != EXECUTOR_NO_SSD)
        return mr_executor_load_for_peer(x, e, id, ssd) ? MR_WIRE_HAVE_LATER : MR_WIRE_HAVE_NOT;
    return mr_executor_will_hold(x, id, peer) ? MR_WIRE_HAVE_LATER : MR_WIRE_HAVE_NOT;
}

static enum mr_wire_answer tell_need(struct mr_executor *x, uint32_t peer, struct mr_wire_bytes *out)
{
    pthread_mutex_lock(&x->lock);
    struct mr_peers *p = x->peers; /* not yet: this node is about to begin */
    if (p)
        p->neighbour[peer].told = x->sought ? mr_executor_need(x) : 0;
    pthread_mutex_unlock(&x->lock);
    if (!p)
        return MR_WIRE_HAVE_LATER;
    *out = (struct mr_wire_bytes){.data = &p->neighbour[peer].told, .len = sizeof p->neighbour[peer].told};
    return MR_WIRE_HAVE;
}

static enum mr_wire_answer serve(void *ctx, uint32_t peer, uint64_t id, uint64_t deadline_ns, struct mr_wire_bytes *out)
{
    (void)deadline_ns;
    struct mr_executor *x = ctx;
    enum mr_wire_answer answer = MR_WIRE_HAVE_NOT;
    if (id >= x->info.samples)
        return id == x->info.samples ? tell_need(x, peer, out) : answer;
    pthread_mutex_lock(&x->lock);
    struct mr_holding *e = mr_holdings_find(&x->h, id);
    if (e && e->state == MR_HOLDING_READY) {
        mr_holdings_claim(&x->h, e);
        *out = (struct mr_wire_bytes){.data = mr_segment_data(x->segment, e->at), .len = e->bytes, .pin = e};
        board_add(x->board->served, 1);
        board_add(x->board->served_bytes, e->bytes);
        x->pins++;
        answer = MR_WIRE_HAVE;
    } else if (e && e->state == MR_HOLDING_COMING) {
        answer = mr_executor_comes_first(x, e->fetch, peer) ? MR_WIRE_HAVE_LATER : MR_WIRE_HAVE_NOT;
    } else if (!x->failed) { /* before this node has begun nothing is known, and it begins soon */
        answer = x->sought ? answer_without_bytes(x, e, id, peer) : MR_WIRE_HAVE_LATER;
    }
    pthread_mutex_unlock(&x->lock);
    return answer;
}

static void release(void *ctx, void *pin)
{
    struct mr_executor *x = ctx;
    if (!pin)
        return;
    pthread_mutex_lock(&x->lock);
    x->pins--;
    mr_holdings_unclaim(&x->h, pin);
    bool kick = x->waits_for_room;
    pthread_mutex_unlock(&x->lock);
    if (kick)
        mr_segment_kick(x->segment);
}

/* ---- opening: an exchange among leaders, in which all ranks take part ---- */

/* Every exchange of the wire is announced by its length, so that ranks that do not lead can follow; a length that is
 * not the same for all leaders (0: one is through, or failed) ends it for all. */
struct meeting {
    const struct mr_tier_params *p;
    const struct mr_tier_node *node;
    uint64_t *lengths; /* of all ranks */
    uint8_t *bytes;
    bool ended;
};

/* The length of all leaders; 0: it has ended. */
static int announce(struct meeting *m, uint64_t mine, uint64_t *len, struct mr_error *err)
{
    int rc = m->p->exchange(m->p->exchange_ctx, &mine, sizeof mine, m->lengths, err);
    *len = m->lengths[m->node->first_rank[0]];
    for (uint32_t n = 0; !rc && n < m->node->nodes; n++)
        if (m->lengths[m->node->first_rank[n]] != *len || *len > LENGTH_MAX)
            *len = 0;
    m->ended = rc || !*len;
    return rc;
}

static int exchange_bytes(struct meeting *m, const void *mine, uint64_t len, struct mr_error *err)
{
    free(m->bytes);
    m->bytes = calloc(m->node->world, len);
    void *dummy = mine ? NULL : calloc(1, len);
    int rc =
        m->bytes && (mine || dummy) ? 0 : mr_error_set(err, -ENOMEM, "no memory for the exchange with the other nodes");
    if (!rc)
        rc = m->p->exchange(m->p->exchange_ctx, mine ? mine : dummy, len, m->bytes, err);
    free(dummy);
    m->ended |= rc != 0;
    return rc;
}

static int exchange_leaders(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err)
{
    struct meeting *m = ctx;
    uint64_t agreed;
    int rc = m->ended ? MR_E_PEER : announce(m, len, &agreed, err);
    if (!rc && agreed != len)
        rc = mr_error_plain(err, MR_E_PEER, "another node could not open the wire; its message says why");
    if (!rc)
        rc = exchange_bytes(m, mine, len, err);
    for (uint32_t n = 0; !rc && n < m->node->nodes; n++)
        memcpy((uint8_t *)all + n * len, m->bytes + (size_t)m->node->first_rank[n] * len, len);
    return rc;
}

static int follow(struct meeting *m, struct mr_error *err)
{
    uint64_t len;
    int rc = 0;
    while (!rc && !m->ended && !(rc = announce(m, 0, &len, err)) && len)
        rc = exchange_bytes(m, NULL, len, err);
    return rc;
}

/* Tests of whole jobs have no other way to the wire's shim. */
static int choose_fault(struct mr_peers *p, uint32_t node, struct mr_wire_params *w, struct mr_error *err)
{
    const char *text = getenv("MILLRACE_WIRE_FAULT");
    uint32_t whom;
    if (!text)
        return 0;
    if (!mr_wire_fault_parse(text, &whom, &p->fault))
        return mr_error_plain(err, MR_E_CONFIG, "MILLRACE_WIRE_FAULT='%s' is not NODE:KIND:MESSAGE[:MILLISECONDS]",
                              text);
    if (whom == node)
        w->fault = &p->fault;
    return 0;
}

static int open_wire(struct mr_peers *p, struct meeting *m, struct mr_error *err)
{
    struct mr_wire_params w = {.rank = m->node->node,
                               .world = m->node->nodes,
                               .exchange = exchange_leaders,
                               .exchange_ctx = m,
                               .serve = serve,
                               .release = release,
                               .serve_ctx = p->x};
    uint8_t secret[MR_WIRE_SECRET_BYTES];
    mr_mac_derive(m->node->secret, "millrace wire", NULL, 0, secret);
    w.secret = secret;
    mr_manifest_hash(mr_dataset_manifest(m->p->dataset), p->x->read_flags, w.data_set);
    int rc = choose_fault(p, w.rank, &w, err);
    if (rc)
        return rc;
    return mr_wire_open(&w, &p->wire, err);
}

/* Until every node is heard of: what is asked before that is read from the source, by several. A node that is not heard
 * of in time is one that is silent. */
static void wait_for_all(const struct mr_peers *p)
{
    uint64_t until = mr_now_ns() + MEET_NS;
    for (uint32_t n = 0; n < p->nodes; n++)
        while (n != p->x->node && !mr_wire_peer_is_up(p->wire, n) && mr_now_ns() < until)
            mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + MR_NS_PER_MS, NULL);
}

static void free_peers(struct mr_peers *p)
{
    if (p)
        free(p->neighbour);
    free(p);
}

int mr_peers_open(const struct mr_tier_params *p, const struct mr_tier_node *node, struct mr_executor *x,
                  struct mr_peers **out, struct mr_error *err)
{
    struct meeting m = {.p = p, .node = node};
    struct mr_peers *made = x ? calloc(1, sizeof(*made)) : NULL;
    *out = NULL;
    m.lengths = calloc(node->world, sizeof(*m.lengths));
    if (made)
        made->neighbour = calloc(node->nodes, sizeof(*made->neighbour));
    if (!m.lengths || (x && (!made || !made->neighbour))) {
        free(m.lengths);
        free_peers(made);
        return mr_error_set(err, -ENOMEM, "no memory for the exchange among %u ranks", node->world);
    }
    int rc = 0;
    uint64_t len;
    if (x) {
        made->x = x;
        made->nodes = node->nodes;
        for (uint32_t n = 0; n < node->nodes; n++)
            made->neighbour[n].p = made;
        rc = open_wire(made, &m, err);
        struct mr_error why;
        if (!m.ended && announce(&m, 0, &len, rc ? &why : err) && !rc)
            rc = MR_E_PEER;
    } else {
        rc = follow(&m, err);
    }
    free(m.lengths);
    free(m.bytes);
    if (rc) {
        free_peers(made);
        return rc;
    }
    if (made)
        wait_for_all(made);
    *out = made;
    return 0;
}

void mr_peers_close(struct mr_peers *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->x->lock);
    p->closing = true;
    mr_peers_tick(p);
    pthread_mutex_unlock(&p->x->lock);
    mr_wire_close(p->wire); /* answers what is open; those fetches go to the source */
    free_peers(p);
}
