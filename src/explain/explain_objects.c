/* Requests to object storage. Our own runs told the sums over theirs. Of other programs the calls on sockets are
 * known: a request begins with the first thing that is sent on a connection, its answer with what is received next, and
 * it ends with the last of that before something is sent again. Whose connection it is says its other end ("socket:[inet
 * ADDRESS:PORT]"); that the other end is object storage, a client library that the program has loaded.
 *
 * TLS shows in the port, or in reads of five bytes, the header of a record, which libraries read first. Its handshake
 * looks like a request: one per connection is taken away.
 *
 * State is kept per thread and descriptor (X4): a connection that threads share one after the other counts in each. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TALKS 256u /* connections of a thread that are followed; a power of two */
#define RECORD_HEADER 5
#define LEAST_BYTES 65536u /* of all answers: less is no data */

/* A connection as one thread sees it, and the request on it. */
struct explain_talk {
    uint32_t file; /* + 1; 0 free */
    uint16_t fd;
    uint64_t asked, sent, first, last, bytes; /* first 0: no answer yet */
};

/* The most special first: each brings others with it. */
static const struct {
    const char *part, *name; /* of a path that the program opened */
} clients[] = {
    {"/s3torchconnectorclient/", "s3torchconnector"},
    {"/s3dlio", "s3dlio"},
    {"/obstore/", "obstore"},
    {"/gcsfs/", "gcsfs"},
    {"/adlfs/", "adlfs"},
    {"/s3fs/", "s3fs"},
    {"/aiobotocore/", "aiobotocore"},
    {"/minio/", "minio"},
    {"/boto3/", "boto3"},
    {"/botocore/", "botocore"},
    {"/awscrt/", "AWS CRT"},
    {"libaws-cpp-sdk-s3", "AWS SDK for C++"},
    {"/requests/", "requests"},
};

/* ---- the second pass ---- */

static void end_request(struct explain_worker *w, struct explain_peer *p, struct explain_talk *t)
{
    if (t->asked && t->first) {
        p->requests++;
        p->bytes += t->bytes;
        p->first_byte_ns += explain_span_ns(t->sent, t->first);
        p->answer_ns += explain_span_ns(t->asked, t->last);
        mr_explain_flight_add(&w->requests, t->asked, t->last, t->bytes);
    }
    t->asked = t->first = t->bytes = 0;
}

static struct explain_peer *peer_of(struct explain_worker *w, uint32_t file)
{
    uint64_t *at = mr_map_put(&w->peer_of, file + 1ull);
    if (!at)
        return NULL;
    if (!*at) {
        struct explain_peer *p = MR_VEC_ADD(&w->peer);
        if (!p)
            return NULL;
        *p = (struct explain_peer){.file = file};
        *at = w->peer.n;
    }
    return &w->peer.item[*at - 1];
}

static void take_answer(struct explain_peer *p, struct explain_talk *t, uint64_t end, int64_t result)
{
    p->reads++;
    p->headers += result == RECORD_HEADER;
    t->first = t->first ? t->first : end;
    t->last = end;
    t->bytes += (uint64_t)result;
}

int mr_explain_object_call(const struct explain_job *j, struct explain_worker *w, struct explain_lane *l,
                           const struct mr_event_batch *b, uint32_t i, uint32_t file)
{
    unsigned kind = j->call_kind[b->c.call[i]];
    int64_t result = b->c.result[i];
    bool is_connect = b->c.call[i] == MR_CALL_connect, sends = kind == MR_EV_WRITE && result > 0,
         receives = kind == MR_EV_READ && result > 0;
    bool serves = l->serves_all && j->make.n; /* it may be the server of those that make batches */
    if (serves || result == MR_NO_RESULT || !(is_connect || sends || receives))
        return 0;
    if (!l->talk && !(l->talk = calloc(TALKS, sizeof(*l->talk))))
        return -ENOMEM;
    struct explain_peer *p = peer_of(w, file);
    struct explain_talk *t = &l->talk[b->c.fd[i] & (TALKS - 1)];
    if (!p)
        return -ENOMEM;
    if (t->file != file + 1 || t->fd != b->c.fd[i] || is_connect) {
        if (t->file) {
            struct explain_peer *before = peer_of(w, t->file - 1);
            if (before)
                end_request(w, before, t);
            p = peer_of(w, file); /* the list may have moved */
        }
        *t = (struct explain_talk){.file = file + 1, .fd = b->c.fd[i]};
    }
    p->connects += is_connect;
    p->connect_ns += is_connect ? b->c.end_ns[i] - b->c.start_ns[i] : 0;
    if (sends && t->first)
        end_request(w, p, t);
    if (sends) {
        t->asked = t->asked ? t->asked : b->c.start_ns[i];
        t->sent = b->c.end_ns[i];
    } else if (receives && t->asked) {
        take_answer(p, t, b->c.end_ns[i], result);
    }
    return 0;
}

/* ---- afterwards ---- */

/* Requests that nothing followed. Whichever worker ends them: the sums are the same. */
static int end_all(struct explain_job *j)
{
    for (uint32_t k = 0; k < j->lanes; k++)
        for (unsigned i = 0; j->lane[k].talk && i < TALKS; i++) {
            struct explain_talk *t = &j->lane[k].talk[i];
            struct explain_peer *p = t->file ? peer_of(&j->worker[0], t->file - 1) : NULL;
            if (t->file && !p)
                return -ENOMEM;
            if (p)
                end_request(&j->worker[0], p, t);
        }
    return 0;
}

static int join_peers(struct explain_job *j)
{
    struct explain_worker *all = &j->worker[0];
    for (unsigned w = 1; w < j->workers; w++)
        for (size_t i = 0; i < j->worker[w].peer.n; i++) {
            const struct explain_peer *from = &j->worker[w].peer.item[i];
            struct explain_peer *to = peer_of(all, from->file);
            if (!to)
                return -ENOMEM;
            to->requests += from->requests;
            to->bytes += from->bytes;
            to->first_byte_ns += from->first_byte_ns;
            to->answer_ns += from->answer_ns;
            to->connects += from->connects;
            to->connect_ns += from->connect_ns;
            to->reads += from->reads;
            to->headers += from->headers;
        }
    return 0;
}

static bool has_part(const struct explain_file *f, const char *part)
{
    return f->path && memmem(f->path, f->len, part, strlen(part)) != NULL;
}

static const char *client_of(const struct explain_job *j)
{
    for (size_t c = 0; c < MR_ARRAY_LEN(clients); c++)
        for (size_t i = 0; i < j->file.n; i++)
            if (has_part(&j->file.item[i], clients[c].part))
                return clients[c].name;
    return NULL;
}

/* HOST:PORT; NULL: no name of a socket over the network. */
static const char *end_of(struct explain_job *j, uint32_t file)
{
    static const char stem[] = "socket:[inet ";
    const struct explain_file *f = &j->file.item[file];
    size_t skip = sizeof stem - 1;
    if (f->len <= skip + 1 || memcmp(f->path, stem, skip) != 0)
        return NULL;
    return mr_explain_clean_name(&j->x->arena, f->path + skip, f->len - skip - 1);
}

static bool is_tls(const struct explain_peer *p, const char *end)
{
    static const char *const ports[] = {":443", ":8443", ":9443"};
    const char *port = strrchr(end, ':');
    for (size_t i = 0; port && i < MR_ARRAY_LEN(ports); i++)
        if (!strcmp(port, ports[i]))
            return true;
    return p->headers * 4 > p->reads;
}

static int of_sockets(struct explain_job *j)
{
    struct mr_explain_objects *o = &j->x->facts.objects;
    struct explain_worker *all = &j->worker[0];
    const struct explain_peer *most = NULL;
    int rc = end_all(j);
    rc = rc ? rc : join_peers(j);
    for (size_t i = 0; !rc && i < all->peer.n; i++) {
        const struct explain_peer *p = &all->peer.item[i];
        if (p->bytes >= LEAST_BYTES &&
            (!most || p->bytes > most->bytes || (p->bytes == most->bytes && p->file < most->file)))
            most = p;
    }
    const char *client = most ? client_of(j) : NULL, *end = client ? end_of(j, most->file) : NULL;
    if (rc || !end)
        return rc;
    struct explain_flight **f = malloc(j->workers * sizeof(*f));
    if (!f)
        return -ENOMEM;
    for (unsigned w = 0; w < j->workers; w++)
        f[w] = &j->worker[w].requests;
    *o = (struct mr_explain_objects){.client = client,
                                     .peer = end,
                                     .tls = is_tls(most, end),
                                     .bytes = (double)most->bytes,
                                     .connections = (double)most->connects,
                                     .connect_s = NAN,
                                     .in_flight = NAN,
                                     .retries = NAN,
                                     .slowdowns = NAN};
    uint64_t handshakes = o->tls ? MR_MIN(most->connects, most->requests) : 0;
    o->requests = (double)(most->requests - handshakes);
    o->first_byte_s = (double)most->first_byte_ns / 1e9;
    o->answer_s = (double)most->answer_ns / 1e9;
    rc = mr_explain_flight_mean(f, j->workers, &o->in_flight);
    free(f);
    return rc;
}

static double sum_of(const struct mr_run_trace *run, const char *name)
{
    double sum = 0;
    for (uint32_t r = 0; r < run->world; r++)
        for (size_t i = 0; i < run->rank[r].figures.n; i++)
            if (!strcmp(run->rank[r].figures.item[i].name, name))
                sum += (double)run->rank[r].figures.item[i].value;
    return sum;
}

/* All stores of all ranks. In flight: over the time that is trained. */
static void of_own_run(struct explain_job *j)
{
    struct mr_explain_objects *o = &j->x->facts.objects;
    double requests = sum_of(j->run, "objects_requests"), wall = 0;
    if (!(requests > 0))
        return;
    for (uint32_t r = 0; r < j->ranks; r++) {
        const struct mr_explain_rank *k = &j->x->rank[r];
        wall = fmax(wall, (double)(k->train_ns ? k->train_ns : k->end_ns - k->start_ns) / 1e9);
    }
    *o = (struct mr_explain_objects){.client = "millrace",
                                     .requests = requests,
                                     .bytes = sum_of(j->run, "objects_bytes_in"),
                                     .connections = sum_of(j->run, "objects_connects"),
                                     .connect_s = sum_of(j->run, "objects_connect_ns") / 1e9,
                                     .first_byte_s = sum_of(j->run, "objects_first_byte_ns") / 1e9,
                                     .answer_s = sum_of(j->run, "objects_answer_ns") / 1e9,
                                     .retries = sum_of(j->run, "objects_retries"),
                                     .slowdowns = sum_of(j->run, "objects_slowdowns")};
    o->in_flight = wall > 0 ? o->answer_s / wall : NAN;
}

int mr_explain_find_objects(struct explain_job *j)
{
    if (j->run) {
        of_own_run(j);
        return 0;
    }
    return of_sockets(j);
}
