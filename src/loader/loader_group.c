/* A loader in a group: few ranks read, all get their batches (group_share.h). The loader that the caller has opens
 * one loader for each rank it reads for, or none, and hands out what the exchange gives it, one batch at a time.
 *
 * Counters (epoch, delivered, n_batches ...) are those of struct mr_loader, so position and state are as ever. */
#include "loader/loader_internal.h"
#include "event/emit.h"
#include "loader/group_share.h"
#include "loader/policy_choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- loaders as feeds ---- */

/* Who reads for one rank. */
struct feed {
    struct mr_loader *loader;
    struct mr_batch *batch;
};

struct group {
    struct mr_loader_group g;
    struct feed *feed; /* of the ranks this one reads for */
    void **feeds;      /* the same, for the exchange */
    uint32_t n;
    struct mr_group_share *share;
    struct mr_batch batch; /* this rank's */
};

static int feed_start(void *f, uint64_t epoch, struct mr_error *err)
{
    return mr_loader_start_epoch(((struct feed *)f)->loader, epoch, err);
}

static int feed_next(void *user, struct mr_share_rows *out, struct mr_error *err)
{
    struct feed *f = user;
    int rc = mr_loader_next(f->loader, &f->batch, err);
    const struct mr_batch *b = f->batch;
    if (rc > 0)
        *out = (struct mr_share_rows){.n = b->n,
                                      .rows = b->rows,
                                      .bytes = b->bytes,
                                      .ids = b->ids,
                                      .labels = b->labels,
                                      .shapes = b->shapes,
                                      .shape = &b->shape,
                                      .read_bytes = b->read_bytes};
    return rc;
}

static void feed_release(void *user)
{
    struct feed *f = user;
    mr_loader_release(f->loader, f->batch);
}

static void feed_stop(void *f)
{
    mr_loader_stop(((struct feed *)f)->loader);
}

static const struct mr_share_feed_ops feed_ops = {
    .start_epoch = feed_start, .next = feed_next, .release = feed_release, .stop = feed_stop};

/* ---- opening and closing ---- */

int mr_group_check(const struct mr_loader_params *p, struct mr_error *err)
{
    const struct mr_loader_group *g = p->group;
    if (!g)
        return 0;
    if (!g->world || g->rank >= g->world || !g->readers || g->readers > g->world || g->rank != p->order.rank ||
        g->world != p->order.world)
        return mr_error_plain(err, MR_E_USAGE,
                              "the group is rank %u of %u with %u readers, the order says rank %u of %u", g->rank,
                              g->world, g->readers, p->order.rank, p->order.world);
    if (!g->max_u64 || !g->bcast || !g->agree || !g->fail)
        return mr_error_plain(err, MR_E_USAGE, "a function of the group is missing");
    if (p->flags & MR_LOADER_IN_MEMORY)
        return mr_error_plain(err, MR_E_USAGE, "a group that reads for others cannot hold the set in memory");
    struct mr_policy_choice c;
    int rc = mr_policy_choose(p->policy, p->tiers, p->allow_reorder, &c, err);
    if (!rc && (c.tiers || c.is_perfect)) {
        rc = mr_error_plain(err, MR_E_USAGE, "policy '%s' and ranks that read for others do not go together", c.policy);
        mr_error_hint(err, "leave out the group (reader.file_access collective): tiers read every byte once per node");
    }
    return rc;
}

static int open_inner(struct group *x, const struct mr_loader_params *p, struct mr_error *err)
{
    struct mr_loader_params one = *p;
    int rc = 0;
    one.group = NULL;
    for (uint32_t i = 0; !rc && i < mr_group_feeds(&x->g); i++) {
        one.order.rank = x->g.rank + i * x->g.readers;
        char *store = mr_group_store_spec(p->store, x->g.rank, one.order.rank);
        one.store = store;
        rc = mr_loader_open(&one, &x->feed[i].loader, err);
        free(store);
        if (rc)
            break;
        x->feed[i].loader->tells_steps = false; /* nobody trains on them here */
        x->feeds[i] = &x->feed[i];
        x->n++;
    }
    return rc;
}

/* What only readers know, all learn. */
static int learn_counts(struct mr_loader *l, struct mr_error *err)
{
    const struct group *x = l->group;
    const struct mr_loader *one = x->n ? x->feed[0].loader : NULL;
    uint64_t v[3] = {one ? one->info.samples : 0, one ? one->n_samples : 0, one ? one->n_batches : 0};
    int rc = x->g.max_u64(x->g.user, v, 3, err);
    if (rc)
        return rc;
    l->info.samples = v[0];
    l->n_samples = v[1];
    l->n_batches = v[2];
    return 0;
}

static int make(struct mr_loader *l, const struct mr_loader_params *p, struct mr_error *err)
{
    uint32_t n = mr_group_feeds(p->group);
    struct group *x = l->group = calloc(1, sizeof(*x));
    if (!x)
        return mr_error_set(err, -ENOMEM, "cannot make a loader");
    x->g = *p->group;
    x->feed = calloc(n + 1, sizeof(*x->feed));
    x->feeds = calloc(n + 1, sizeof(void *));
    if (!x->feed || !x->feeds)
        return mr_error_set(err, -ENOMEM, "cannot make a loader");
    int rc = open_inner(x, p, err);
    return rc ? rc : mr_group_share_create(&x->g, p->batch_size, &feed_ops, x->feeds, NULL, &x->share, err);
}

int mr_group_open(struct mr_loader *l, const struct mr_loader_params *p, struct mr_error *err)
{
    l->tells_steps = mr_events_want(p->events, MR_LEVEL_STEP);
    int rc = make(l, p, err);
    rc = p->group->agree(p->group->user, rc, err);
    return rc ? rc : learn_counts(l, err);
}

void mr_group_close(struct mr_loader *l)
{
    struct group *x = l->group;
    if (!x)
        return;
    mr_group_share_free(x->share);
    for (uint32_t i = 0; i < x->n; i++)
        mr_loader_close(x->feed[i].loader);
    free(x->feed);
    free(x->feeds);
    free(x);
    l->group = NULL;
}

/* ---- epochs and batches ---- */

int mr_group_start_epoch(struct mr_loader *l, uint64_t epoch, struct mr_error *err)
{
    struct group *x = l->group;
    struct mr_loader_state at;
    int rc = 0;
    bool resumes = l->resume_position && l->resume_epoch == epoch;
    mr_loader_get_state(l, &at);
    at.epoch = epoch;
    at.position = resumes ? l->resume_position : 0;
    for (uint32_t i = 0; !rc && resumes && i < x->n; i++)
        rc = mr_loader_resume(x->feed[i].loader, &at, err);
    if (!rc)
        rc = mr_group_share_start_epoch(x->share, epoch, err);
    if ((rc = x->g.agree(x->g.user, rc, err)) || (rc = learn_counts(l, err)))
        return rc;
    l->epoch = epoch;
    l->first_position = at.position;
    l->first_batch = at.position / ((uint64_t)l->p.batch_size * l->p.order.world);
    l->resume_position = 0;
    l->delivered = l->released = l->base = 0;
    l->failed = false;
    l->in_epoch = true;
    return 0;
}

static void hand_out(struct mr_loader *l, const struct mr_share_rows *own, uint64_t wait_ns)
{
    struct group *x = l->group;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < own->n; i++)
        bytes += own->bytes[i];
    x->batch = (struct mr_batch){.epoch = l->epoch,
                                 .index = l->first_batch + l->delivered,
                                 .n = own->n,
                                 .rows = own->rows,
                                 .ids = own->ids,
                                 .labels = own->labels,
                                 .bytes = own->bytes,
                                 .wait_ns = wait_ns,
                                 .read_bytes = own->read_bytes,
                                 .shapes = own->shapes};
    mr_loader_describe(&x->batch);
    l->delivered++;
    l->batches++;
    l->samples += own->n;
    l->sample_bytes += bytes;
    l->read_bytes += own->read_bytes;
}

/* Collective: a rank that was stopped takes part and says so. */
int mr_group_next(struct mr_loader *l, struct mr_batch **out, struct mr_error *err)
{
    struct group *x = l->group;
    struct mr_share_rows own;
    if (l->delivered == l->n_batches)
        return 0;
    if (l->delivered != l->released)
        return mr_error_plain(err, MR_E_USAGE, "a group's loader has one batch at a time; release it first");
    uint64_t start = mr_now_ns();
    int rc = mr_group_share_next(x->share, atomic_load(&l->stop), &own, err);
    uint64_t end = mr_now_ns();
    l->wait_ns += end - start;
    l->failed = rc < 0 && rc != MR_E_INTERRUPTED;
    if (rc > 0) {
        hand_out(l, &own, end - start);
        *out = &x->batch;
    }
    if (l->tells_steps)
        mr_loader_tell_group(l, rc > 0 ? &x->batch : NULL, start, end);
    return rc;
}

void mr_group_stop(struct mr_loader *l)
{
    mr_group_share_stop(l->group->share);
}

void mr_group_restart(struct mr_loader *l)
{
    for (uint32_t i = 0; i < l->group->n; i++)
        mr_loader_restart(l->group->feed[i].loader);
}

/* What this rank's readers do, for whichever rank; what it was given is its own. */
void mr_group_stats(struct mr_loader *l, struct mr_loader_stats *out)
{
    struct group *x = l->group;
    struct mr_loader_stats sum = {.batches = l->batches,
                                  .samples = l->samples,
                                  .sample_bytes = l->sample_bytes,
                                  .read_bytes = l->read_bytes,
                                  .wait_ns = l->wait_ns,
                                  .limiter = "",
                                  .lifetime_limiter = ""};
    for (uint32_t i = 0; i < x->n; i++) {
        struct mr_loader_stats one;
        mr_loader_get_stats(x->feed[i].loader, &one);
        sum.read_ns += one.read_ns;
        sum.decode_ns += one.decode_ns;
        sum.transform_ns += one.transform_ns;
        sum.idle_ns += one.idle_ns;
        sum.cpu_ns += one.cpu_ns;
        sum.slab_bytes += one.slab_bytes;
        sum.threads += one.threads;
        sum.ready_mean = MR_MAX(sum.ready_mean, one.ready_mean);
        sum.empty_ratio = MR_MAX(sum.empty_ratio, one.empty_ratio);
        sum.recent_ns = MR_MAX(sum.recent_ns, one.recent_ns);
        sum.recent_samples_per_s += one.recent_samples_per_s;
        sum.recent_bytes_per_s += one.recent_bytes_per_s;
        sum.recent_read_bytes_per_s += one.recent_read_bytes_per_s;
        sum.recent_wait_ratio = MR_MAX(sum.recent_wait_ratio, one.recent_wait_ratio);
        sum.limiter = one.limiter;
        sum.lifetime_limiter = one.lifetime_limiter;
    }
    *out = sum;
}
