/* Batches that few ranks read and all get: see group_share.h. */
#include "loader/group_share.h"
#include "base/common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATUS_GOOD, STATUS_STOPPED, STATUS_FAILED };

/* What goes ahead of a row. */
struct row_head {
    uint64_t bytes, id;
    int64_t label;
    struct mr_shape shape;
};

/* Of one rank's batch; batch_size rows follow. */
struct head {
    uint64_t n;
    struct row_head row[];
};

struct mr_group_share {
    struct mr_loader_group g;
    uint32_t n_feeds, batch_size;
    const struct mr_share_feed_ops *ops;
    struct mr_share_around around;
    void **feed;
    struct mr_share_rows *held; /* theirs; rows == NULL: not read yet (G2) */
    uint8_t *heads;             /* of all ranks of one reader */
    size_t head_bytes;          /* of one rank */
    uint8_t *pack, *mine;       /* all rows of a reader; this rank's */
    size_t pack_cap, mine_cap;
    const void **rows;
    uint64_t *bytes, *ids;
    int64_t *labels;
    struct mr_shape *shapes;
};

static struct head *head_of(const struct mr_group_share *s, uint32_t place)
{
    return (struct head *)(s->heads + place * s->head_bytes);
}

static uint32_t ranks_of(const struct mr_loader_group *g, uint32_t reader)
{
    return (g->world - reader + g->readers - 1) / g->readers;
}

uint32_t mr_group_feeds(const struct mr_loader_group *g)
{
    return g->rank < g->readers ? ranks_of(g, g->rank) : 0;
}

static int alloc_all(struct mr_group_share *s)
{
    uint32_t most = ranks_of(&s->g, 0), n = s->batch_size;
    s->head_bytes = sizeof(struct head) + n * sizeof(struct row_head);
    s->feed = calloc(s->n_feeds + 1, sizeof(void *));
    s->held = calloc(s->n_feeds + 1, sizeof(*s->held));
    s->heads = calloc(most, s->head_bytes);
    s->rows = calloc(n, sizeof(*s->rows));
    s->bytes = calloc(n, sizeof(*s->bytes));
    s->ids = calloc(n, sizeof(*s->ids));
    s->labels = calloc(n, sizeof(*s->labels));
    s->shapes = calloc(n, sizeof(*s->shapes));
    return s->feed && s->held && s->heads && s->rows && s->bytes && s->ids && s->labels && s->shapes ? 0 : -ENOMEM;
}

int mr_group_share_create(const struct mr_loader_group *g, uint32_t batch_size, const struct mr_share_feed_ops *ops,
                          void *const *feed, const struct mr_share_around *around, struct mr_group_share **out,
                          struct mr_error *err)
{
    struct mr_group_share *s = calloc(1, sizeof(*s));
    if (s) {
        s->g = *g;
        s->batch_size = batch_size;
        s->n_feeds = mr_group_feeds(g);
        s->ops = ops;
        s->around = around ? *around : (struct mr_share_around){0};
    }
    if (!s || alloc_all(s)) {
        mr_group_share_free(s);
        return mr_error_set(err, -ENOMEM, "cannot share batches among the ranks");
    }
    for (uint32_t i = 0; i < s->n_feeds; i++)
        s->feed[i] = feed[i];
    *out = s;
    return 0;
}

static void release_all(struct mr_group_share *s)
{
    for (uint32_t i = 0; s->held && i < s->n_feeds; i++) {
        if (s->held[i].rows)
            s->ops->release(s->feed[i]);
        s->held[i] = (struct mr_share_rows){0};
    }
}

void mr_group_share_free(struct mr_group_share *s)
{
    if (!s)
        return;
    release_all(s);
    free(s->feed);
    free(s->held);
    free(s->heads);
    free(s->pack);
    free(s->mine);
    free(s->rows);
    free(s->bytes);
    free(s->ids);
    free(s->labels);
    free(s->shapes);
    free(s);
}

int mr_group_share_start_epoch(struct mr_group_share *s, uint64_t epoch, struct mr_error *err)
{
    int rc = 0;
    release_all(s);
    for (uint32_t i = 0; i < s->n_feeds && !rc; i++)
        rc = s->ops->start_epoch(s->feed[i], epoch, err);
    return rc;
}

void mr_group_share_stop(struct mr_group_share *s)
{
    for (uint32_t i = 0; i < s->n_feeds; i++)
        s->ops->stop(s->feed[i]);
}

/* ---- a batch ---- */

static int read_all(struct mr_group_share *s, struct mr_error *err)
{
    static const void *const nothing[1];
    int rc = 0;
    for (uint32_t i = 0; i < s->n_feeds && !rc; i++) {
        if (s->held[i].rows)
            continue;
        rc = s->ops->next(s->feed[i], &s->held[i], err);
        if (rc > 0 && !s->held[i].rows)
            s->held[i].rows = nothing;
        if (rc <= 0)
            s->held[i] = (struct mr_share_rows){0};
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

/* What this reader's rows are. */
static void fill_heads(struct mr_group_share *s)
{
    for (uint32_t i = 0; i < s->n_feeds; i++) {
        struct head *h = head_of(s, i);
        const struct mr_share_rows *b = &s->held[i];
        h->n = b->n;
        for (uint32_t k = 0; k < b->n; k++) {
            const struct mr_shape flat = {.dtype = "u1", .n_dims = 1, .dims = {b->bytes[k]}};
            h->row[k] = (struct row_head){.bytes = b->bytes[k],
                                          .id = b->ids ? b->ids[k] : UINT64_MAX,
                                          .label = b->labels ? b->labels[k] : MR_SAMPLE_NO_LABEL,
                                          .shape = b->shapes  ? b->shapes[k]
                                                   : b->shape ? *b->shape
                                                              : flat};
        }
    }
}

static void fill_pack(struct mr_group_share *s)
{
    uint8_t *to = s->pack;
    for (uint32_t i = 0; i < s->n_feeds; i++)
        for (uint32_t k = 0; k < s->held[i].n; k++) {
            memcpy(to, s->held[i].rows[k], s->held[i].bytes[k]);
            to += s->held[i].bytes[k];
        }
}

static size_t bytes_of(const struct head *h)
{
    size_t sum = 0;
    for (uint64_t k = 0; k < h->n; k++)
        sum += h->row[k].bytes;
    return sum;
}

/* This rank's rows out of what its reader sent, each 64-byte aligned. */
static int keep_own(struct mr_group_share *s, uint32_t place, struct mr_share_rows *out)
{
    const struct head *h = head_of(s, place);
    const uint8_t *from = s->pack;
    size_t room = 64;
    for (uint32_t i = 0; i < place; i++)
        from += bytes_of(head_of(s, i));
    for (uint64_t k = 0; k < h->n; k++)
        room += MR_ALIGN_UP(h->row[k].bytes, (uint64_t)64);
    if (reserve(&s->mine, &s->mine_cap, room))
        return -ENOMEM;
    uint8_t *at = s->mine + (64 - (uintptr_t)s->mine % 64) % 64;
    for (uint64_t k = 0; k < h->n; k++) {
        memcpy(at, from, h->row[k].bytes);
        s->rows[k] = at;
        s->bytes[k] = h->row[k].bytes;
        s->ids[k] = h->row[k].id;
        s->labels[k] = h->row[k].label;
        s->shapes[k] = h->row[k].shape;
        from += h->row[k].bytes;
        at += MR_ALIGN_UP(h->row[k].bytes, (uint64_t)64);
    }
    *out = (struct mr_share_rows){.n = (uint32_t)h->n,
                                  .rows = s->rows,
                                  .bytes = s->bytes,
                                  .ids = s->ids,
                                  .labels = s->labels,
                                  .shapes = s->shapes};
    return 0;
}

/* Memory that one rank lacks is a failure of the job: it cannot leave the others in the broadcast. */
static int no_memory(struct mr_group_share *s, struct mr_error *err)
{
    struct mr_error why;
    int rc = mr_error_set(&why, -ENOMEM, "no memory for the batches of %u ranks", s->g.world);
    s->g.fail(s->g.user, &why);
    if (err)
        *err = why;
    return rc;
}

/* Reader r sends; everybody takes part. */
static int send_from(struct mr_group_share *s, uint32_t r, struct mr_share_rows *out, struct mr_error *err)
{
    uint32_t ranks = ranks_of(&s->g, r);
    size_t sum = 0;
    if (s->g.rank == r)
        fill_heads(s);
    int rc = s->g.bcast(s->g.user, s->heads, ranks * s->head_bytes, r, err);
    for (uint32_t i = 0; !rc && i < ranks; i++)
        sum += bytes_of(head_of(s, i));
    if (!rc && reserve(&s->pack, &s->pack_cap, MR_MAX(sum, 1u)))
        rc = no_memory(s, err);
    if (!rc && s->g.rank == r)
        fill_pack(s);
    if (!rc && sum)
        rc = s->g.bcast(s->g.user, s->pack, sum, r, err);
    if (!rc && s->g.rank % s->g.readers == r && keep_own(s, s->g.rank / s->g.readers, out))
        rc = no_memory(s, err);
    return rc;
}

/* Reads for its ranks; the code is this rank's own. */
static int read_mine(struct mr_group_share *s, bool stopped, struct mr_error *err)
{
    struct mr_error why;
    int mine = stopped ? mr_error_plain(err, MR_E_INTERRUPTED, "the loader was stopped") : read_all(s, err);
    int made = s->around.after ? s->around.after(s->around.user, &why) : 0;
    if (made && !mine) {
        mine = made;
        if (err)
            *err = why;
    }
    return mine;
}

int mr_group_share_next(struct mr_group_share *s, bool stopped, struct mr_share_rows *out, struct mr_error *err)
{
    struct mr_share_rows own = {0};
    struct mr_error why;
    int rc = s->around.before ? s->around.before(s->around.user, err) : 0;
    if (rc)
        return rc;
    int mine = read_mine(s, stopped, err);
    uint64_t read = 0, status = !mine ? STATUS_GOOD : mine == MR_E_INTERRUPTED ? STATUS_STOPPED : STATUS_FAILED;
    rc = s->g.max_u64(s->g.user, &status, 1, mine ? &why : err); /* G1 */
    for (uint32_t i = 0; i < s->n_feeds; i++)
        read += s->held[i].read_bytes;
    for (uint32_t r = 0; !rc && status == STATUS_GOOD && r < s->g.readers; r++)
        rc = send_from(s, r, &own, err);
    if (mine || rc)
        return mine ? mine : rc;
    if (status != STATUS_GOOD)
        return mr_error_plain(err, MR_E_INTERRUPTED, "a rank that reads for others stopped");
    release_all(s); /* G2 */
    own.read_bytes = read;
    *out = own;
    return 1;
}

char *mr_group_store_spec(const char *spec, uint32_t rank, uint32_t reads_for)
{
    const char *at = spec ? strstr(spec, "{rank}") : NULL;
    char *out = NULL, name[32];
    if (!spec || !at)
        return spec ? strdup(spec) : NULL;
    char *head = strndup(spec, (size_t)(at - spec)), *tail = mr_group_store_spec(at + 6, rank, reads_for);
    snprintf(name, sizeof name, rank == reads_for ? "%u" : "%u-for-%u", rank, reads_for);
    if (!head || !tail || asprintf(&out, "%s%s%s", head, name, tail) < 0)
        out = NULL;
    free(head);
    free(tail);
    return out;
}
