/* The tiers as a source of an engine thread: lends the bytes of a delivery from the segment. tier.h has the contract.
 *
 *   at(n, id) ─> borrow: take delivery n, waiting for it ─> decode or copy ─> done(n)
 *
 * A delivery that was taken belongs to this thread until done, also if it had failed or was not what was asked for. One
 * that was not taken because the wait was ended (a stop, a dead leader) stays the leader's. */
#include "dataset/fetch.h"
#include "tier/tier_internal.h"

#include <errno.h>
#include <stdlib.h>

#define LOOK_EVERY 512u

struct tier_source {
    struct mr_fetch_source base;
    struct mr_tier *tier;
    struct mr_segment *segment;
    uint32_t rank; /* in the node */
    uint64_t n, id;
    uint64_t found;    /* by the directory */
    bool asked, taken; /* delivery n */
    const void *bytes; /* NULL: err says why */
    struct mr_delivery d;
    struct mr_error err;
};

static struct tier_source *of(struct mr_fetch_source *base)
{
    return MR_CONTAINER_OF(base, struct tier_source, base);
}

/* By the directory: nothing to wait for and nothing to give back. Now and then a look whether the leader lives. */
static bool find(struct tier_source *s)
{
    s->bytes = mr_segment_find(s->segment, s->id, &s->d);
    if (!s->bytes)
        return false;
    if (MR_UNLIKELY(++s->found % LOOK_EVERY == 0) && mr_segment_check(s->segment, &s->err)) {
        s->bytes = NULL;
        s->d = (struct mr_delivery){.from = MR_TIER_FROMS};
        return true;
    }
    mr_tier_count_found(s->tier, s->d.bytes);
    return true;
}

static void take(struct tier_source *s)
{
    s->asked = true;
    s->taken = false;
    while (mr_segment_has_come(s->segment, s->rank, s->n) || !find(s)) {
        s->d = (struct mr_delivery){.from = MR_TIER_FROMS};
        s->bytes = mr_segment_take(s->segment, s->rank, s->n, &s->d, mr_tier_stopped, s->tier, &s->err);
        s->taken = s->bytes || s->d.code != 0;
        if (s->taken || s->err.code != -EAGAIN)
            return;
    }
}

static const void *tier_borrow(struct mr_fetch_source *base, const struct mr_fetch *f)
{
    struct tier_source *s = of(base);
    if (!s->asked)
        take(s);
    if (MR_UNLIKELY(s->bytes && (s->d.id != f->id || s->id != f->id || s->d.bytes != f->length))) {
        s->bytes = NULL;
        mr_error_plain(&s->err, MR_E_INTERNAL,
                       "delivery %llu has sample %llu with %llu bytes, and sample %llu with %llu bytes was asked for "
                       "(announced: %llu)",
                       (unsigned long long)s->n, (unsigned long long)s->d.id, (unsigned long long)s->d.bytes,
                       (unsigned long long)f->id, (unsigned long long)f->length, (unsigned long long)s->id);
    }
    return s->bytes;
}

/* What cannot be borrowed failed: here is where the reader hears why. */
static int tier_read(struct mr_fetch_source *base, const struct mr_fetch *f, void *place, struct mr_error *err)
{
    struct tier_source *s = of(base);
    (void)f, (void)place;
    if (!s->asked || s->bytes)
        return mr_error_plain(err, MR_E_INTERNAL, "sample %llu is lent, not read", (unsigned long long)s->id);
    if (err)
        *err = s->err;
    return s->err.code;
}

static int tier_read_file(struct mr_fetch_source *base, uint64_t file, void *to, uint64_t bytes, struct mr_error *err)
{
    (void)file, (void)bytes;
    return tier_read(base, NULL, to, err);
}

static void tier_free(struct mr_fetch_source *base)
{
    free(of(base));
}

static const struct mr_fetch_source_ops tier_ops = {.name = "tiers",
                                                    .kind = MR_FETCH_RAM,
                                                    .borrow = tier_borrow,
                                                    .read = tier_read,
                                                    .read_file = tier_read_file,
                                                    MR_FETCH_NO_QUEUE,
                                                    .free = tier_free};

struct mr_fetch_source *mr_tier_source(struct mr_tier *t, struct mr_error *err)
{
    struct tier_source *s = calloc(1, sizeof(*s));
    if (!s) {
        mr_error_set(err, -ENOMEM, "cannot read from tiers");
        return NULL;
    }
    s->base.ops = &tier_ops;
    s->tier = t;
    s->segment = mr_tier_segment(t);
    s->rank = mr_tier_local_rank(t);
    return &s->base;
}

void mr_tier_source_at(struct mr_fetch_source *base, uint64_t n, uint64_t id)
{
    struct tier_source *s = of(base);
    s->n = n;
    s->id = id;
    s->asked = s->taken = false;
    s->bytes = NULL;
}

void mr_tier_source_done(struct mr_fetch_source *base, struct mr_delivery *d)
{
    struct tier_source *s = of(base);
    if (!s->asked)
        take(s); /* the read ended before it came to the bytes; the ring goes on only if they are given back */
    if (s->taken)
        mr_segment_done(s->segment, s->rank, s->n);
    s->taken = false;
    s->bytes = NULL;
    if (d)
        *d = s->d;
}
