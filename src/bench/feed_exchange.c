/* The exchange of batches among ranks: see feed_exchange.h. */
#include "bench/feed_exchange.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STATUS_GOOD, STATUS_STOPPED, STATUS_FAILED };

/* Sent ahead of the rows of one rank; there is room for batch_size of them. */
struct head {
    uint64_t n;
    uint64_t bytes[];
};

struct held {
    bool is_read; /* G2: and not released */
    struct feed_batch batch;
};

struct feed_exchange {
    struct mr_comm *comm;
    uint32_t readers, n_feeds, batch_size;
    struct feed_around around;
    struct feed **feed;
    struct held *held;    /* of each feed */
    uint8_t *heads;       /* of all ranks of one reader */
    size_t head_bytes;    /* of one rank */
    uint8_t *pack, *mine; /* all rows of a reader; this rank's */
    size_t pack_cap, mine_cap;
    const void **rows;
    uint64_t *bytes;
};

static struct head *head_of(const struct feed_exchange *x, uint32_t place)
{
    return (struct head *)(x->heads + place * x->head_bytes);
}

static uint32_t ranks_of(const struct mr_comm *c, uint32_t readers, uint32_t reader)
{
    return (c->world - reader + readers - 1) / readers;
}

uint32_t mr_feed_exchange_feeds(const struct mr_comm *c, uint32_t readers)
{
    return c->rank < readers ? ranks_of(c, readers, c->rank) : 0;
}

static int alloc_all(struct feed_exchange *x)
{
    uint32_t most = ranks_of(x->comm, x->readers, 0), n = x->batch_size;
    x->head_bytes = sizeof(struct head) + n * sizeof(uint64_t);
    x->feed = calloc(x->n_feeds + 1, sizeof(struct feed *));
    x->held = calloc(x->n_feeds + 1, sizeof(*x->held));
    x->heads = calloc(most, x->head_bytes);
    x->rows = calloc(n, sizeof(*x->rows));
    x->bytes = calloc(n, sizeof(*x->bytes));
    return x->feed && x->held && x->heads && x->rows && x->bytes ? 0 : -ENOMEM;
}

int mr_feed_exchange_create(struct mr_comm *c, uint32_t readers, uint32_t batch_size, struct feed *const *feed,
                            const struct feed_around *around, struct feed_exchange **out, struct mr_error *err)
{
    struct feed_exchange *x = calloc(1, sizeof(*x));
    assert(readers >= 1 && readers <= c->world);
    if (x) {
        x->comm = c;
        x->readers = readers;
        x->batch_size = batch_size;
        x->n_feeds = mr_feed_exchange_feeds(c, readers);
        x->around = around ? *around : (struct feed_around){0};
    }
    if (!x || alloc_all(x)) {
        mr_feed_exchange_free(x);
        return mr_error_set(err, -ENOMEM, "cannot share batches among the ranks");
    }
    for (uint32_t i = 0; i < x->n_feeds; i++)
        x->feed[i] = feed[i];
    *out = x;
    return 0;
}

static void release_all(struct feed_exchange *x)
{
    for (uint32_t i = 0; x->held && i < x->n_feeds; i++) {
        if (x->held[i].is_read)
            mr_feed_release(x->feed[i], &x->held[i].batch);
        x->held[i] = (struct held){0};
    }
}

void mr_feed_exchange_free(struct feed_exchange *x)
{
    if (!x)
        return;
    release_all(x);
    free(x->feed);
    free(x->held);
    free(x->heads);
    free(x->pack);
    free(x->mine);
    free(x->rows);
    free(x->bytes);
    free(x);
}

int mr_feed_exchange_start_epoch(struct feed_exchange *x, uint64_t epoch, struct mr_error *err)
{
    int rc = 0;
    release_all(x);
    for (uint32_t i = 0; i < x->n_feeds && !rc; i++)
        rc = mr_feed_start_epoch(x->feed[i], epoch, err);
    return rc;
}

/* ---- a batch ---- */

static int read_all(struct feed_exchange *x, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < x->n_feeds && !rc; i++) {
        if (x->held[i].is_read)
            continue;
        rc = mr_feed_next(x->feed[i], &x->held[i].batch, err);
        x->held[i].is_read = rc > 0;
        rc = rc > 0 ? 0 : rc < 0 ? rc : mr_error_plain(err, MR_E_INTERNAL, "the loader ended its epoch early");
    }
    return rc;
}

static int reserve(uint8_t **buf, size_t *cap, size_t want)
{
    if (*cap >= want)
        return 0;
    uint8_t *grown = realloc(*buf, want);
    if (!grown)
        return -ENOMEM;
    *buf = grown;
    *cap = want;
    return 0;
}

static void fill_heads(struct feed_exchange *x)
{
    for (uint32_t i = 0; i < x->n_feeds; i++) {
        struct head *h = head_of(x, i);
        const struct feed_batch *b = &x->held[i].batch;
        assert(x->held[i].is_read && b->n <= x->batch_size); /* G1: the status was good */
        h->n = b->n;
        for (uint32_t k = 0; k < b->n; k++)
            h->bytes[k] = b->bytes[k];
    }
}

static void fill_pack(struct feed_exchange *x)
{
    uint8_t *to = x->pack;
    for (uint32_t i = 0; i < x->n_feeds; i++) {
        const struct feed_batch *b = &x->held[i].batch;
        for (uint32_t k = 0; k < b->n; k++) {
            memcpy(to, b->rows[k], b->bytes[k]);
            to += b->bytes[k];
        }
    }
}

static size_t bytes_of(const struct head *h)
{
    size_t sum = 0;
    for (uint64_t k = 0; k < h->n; k++)
        sum += h->bytes[k];
    return sum;
}

/* This rank's rows out of the pack of its reader, each 64-byte aligned. */
static int keep_own(struct feed_exchange *x, uint32_t place, struct feed_batch *out)
{
    const struct head *h = head_of(x, place);
    const uint8_t *from = x->pack;
    size_t room = 64;
    for (uint32_t i = 0; i < place; i++)
        from += bytes_of(head_of(x, i));
    for (uint64_t k = 0; k < h->n; k++)
        room += MR_ALIGN_UP(h->bytes[k], (uint64_t)64);
    if (reserve(&x->mine, &x->mine_cap, room))
        return -ENOMEM;
    uint8_t *at = x->mine + (64 - (uintptr_t)x->mine % 64) % 64;
    *out = (struct feed_batch){.n = (uint32_t)h->n, .rows = x->rows, .bytes = x->bytes};
    for (uint64_t k = 0; k < h->n; k++) {
        memcpy(at, from, h->bytes[k]);
        x->rows[k] = at;
        x->bytes[k] = h->bytes[k];
        out->sample_bytes += h->bytes[k];
        from += h->bytes[k];
        at += MR_ALIGN_UP(h->bytes[k], (uint64_t)64);
    }
    return 0;
}

/* A rank without memory fails the job: it cannot leave the others in the broadcast. */
static int no_memory(struct feed_exchange *x, struct mr_error *err)
{
    struct mr_error why;
    int rc = mr_error_set(&why, -ENOMEM, "no memory for the batches of %u ranks", x->comm->world);
    mr_comm_fail(x->comm, &why);
    if (err)
        *err = why;
    return rc;
}

/* Reader r sends; all ranks take part. */
static int send_from(struct feed_exchange *x, uint32_t r, struct feed_batch *out, struct mr_error *err)
{
    uint32_t ranks = ranks_of(x->comm, x->readers, r), me = x->comm->rank;
    size_t sum = 0;
    if (me == r)
        fill_heads(x);
    int rc = mr_comm_bcast(x->comm, x->heads, ranks * x->head_bytes, r, err);
    for (uint32_t i = 0; !rc && i < ranks; i++)
        sum += bytes_of(head_of(x, i));
    if (!rc && reserve(&x->pack, &x->pack_cap, MR_MAX(sum, 1u)))
        rc = no_memory(x, err);
    if (!rc && me == r)
        fill_pack(x);
    if (!rc && sum)
        rc = mr_comm_bcast(x->comm, x->pack, sum, r, err);
    if (!rc && me % x->readers == r && keep_own(x, me / x->readers, out))
        rc = no_memory(x, err);
    return rc;
}

/* Reads for its ranks; the code is this rank's own. */
static int read_mine(struct feed_exchange *x, bool stopped, struct mr_error *err)
{
    struct mr_error why;
    int mine = stopped ? mr_error_plain(err, MR_E_INTERRUPTED, "the loader was stopped") : read_all(x, err);
    int made = x->around.after ? x->around.after(x->around.user, &why) : 0;
    if (made && !mine) {
        mine = made;
        if (err)
            *err = why;
    }
    return mine;
}

int mr_feed_exchange_next(struct feed_exchange *x, bool stopped, struct feed_batch *out, struct mr_error *err)
{
    struct feed_batch own = {0};
    struct mr_error why;
    int rc = x->around.before ? x->around.before(x->around.user, err) : 0;
    if (rc)
        return rc;
    int mine = read_mine(x, stopped, err);
    uint64_t read = 0, status = !mine ? STATUS_GOOD : mine == MR_E_INTERRUPTED ? STATUS_STOPPED : STATUS_FAILED;
    rc = mr_comm_allreduce_u64(x->comm, &status, 1, MR_COMM_MAX, mine ? &why : err); /* G1 */
    for (uint32_t i = 0; i < x->n_feeds; i++)
        read += x->held[i].batch.read_bytes;
    for (uint32_t r = 0; !rc && status == STATUS_GOOD && r < x->readers; r++)
        rc = send_from(x, r, &own, err);
    if (mine || rc)
        return mine ? mine : rc;
    if (status != STATUS_GOOD)
        return mr_error_plain(err, MR_E_INTERRUPTED, "a rank that reads for others stopped");
    release_all(x); /* G2 */
    own.read_bytes = read;
    *out = own;
    return 1;
}
