/* Epochs in the caller's own order: a list of sample numbers for the running epoch and, once announced, one for the
 * next. The stream has no end then: threads work on batches that have a slot, and a batch of an epoch whose list is not
 * there yet gets none (mr_loader_list_get). The lists belong to the consumer, who asks for the ids of a batch before
 * the batch gets its slot (L5). */
#include "loader/loader_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int mr_loader_list_get(struct mr_loader *l, uint64_t epoch, uint64_t k, uint64_t *ids, uint32_t n)
{
    const struct id_list *list = epoch == l->list.epoch ? &l->list : &l->next_list;
    if (!list->ids || list->epoch != epoch || k + n > list->n)
        return -EAGAIN;
    memcpy(ids, list->ids + k, n * sizeof(*ids));
    return 0;
}

static void forget(struct id_list *list)
{
    free(list->ids);
    *list = (struct id_list){0};
}

void mr_loader_forget_lists(struct mr_loader *l)
{
    forget(&l->list);
    forget(&l->next_list);
}

static int copy_list(const struct mr_loader *l, uint64_t epoch, const uint64_t *ids, uint64_t n, struct id_list *out,
                     struct mr_error *err)
{
    if (!n)
        return mr_error_plain(err, MR_E_USAGE, "an epoch of no samples");
    for (uint64_t i = 0; i < n; i++)
        if (ids[i] >= l->info.samples)
            return mr_error_plain(err, MR_E_USAGE, "sample %llu of the order is number %llu; the data set has %llu",
                                  (unsigned long long)i, (unsigned long long)ids[i],
                                  (unsigned long long)l->info.samples);
    struct id_list made = {.epoch = epoch, .n = n, .ids = malloc(n * sizeof(*ids))};
    if (!made.ids)
        return mr_error_set(err, -ENOMEM, "cannot keep an order of %llu samples", (unsigned long long)n);
    memcpy(made.ids, ids, n * sizeof(*ids));
    *out = made;
    return 0;
}

static uint64_t batches_of(const struct mr_loader *l, uint64_t *samples)
{
    if (l->p.drop_last_batch)
        *samples = *samples / l->p.batch_size * l->p.batch_size;
    return (*samples + l->p.batch_size - 1) / l->p.batch_size;
}

/* The engine reads this epoch already. */
static bool continues(const struct mr_loader *l, uint64_t epoch, const uint64_t *ids, uint64_t n, uint64_t skip)
{
    const struct id_list *next = &l->next_list;
    return l->in_epoch && !l->failed && !skip && next->ids && next->epoch == epoch && next->n == n &&
           l->delivered - l->base == l->n_batches && memcmp(next->ids, ids, n * sizeof(*ids)) == 0;
}

static void start(struct mr_loader *l, uint64_t epoch, uint64_t n, uint64_t skip)
{
    struct stream *s = &l->stream;
    uint64_t all = n, left = n - skip;
    *s = (struct stream){.epoch = epoch};
    s->epoch_batches = batches_of(l, &all);
    s->epoch_samples = all;
    s->head_batches = batches_of(l, &left);
    s->head_samples = left;
    bool endless = l->read_ahead && s->epoch_batches;
    s->batches = endless ? UINT64_MAX / 2 : s->head_batches;
    s->samples = endless ? UINT64_MAX / 2 : s->head_samples;
    l->epoch = epoch;
    l->resume_position = 0;
    l->first_position = skip;
    l->first_batch = skip / l->p.batch_size;
    l->n_samples = s->head_samples;
    l->n_batches = s->head_batches;
    l->failed = false;
    l->in_epoch = true;
    mr_loader_start_stream(l);
}

int mr_loader_start_list(struct mr_loader *l, uint64_t epoch, const uint64_t *ids, uint64_t n, uint64_t skip,
                         struct mr_error *err)
{
    if (l->tiered || l->is_perfect) {
        mr_error_plain(err, MR_E_UNSUPPORTED,
                       "policy '%s' cannot read in an order of the caller's: it plans with the order in the parameters",
                       l->p.policy);
        return mr_error_hint(err, "read with policy 'staging', or let seed and epoch say the order"), MR_E_UNSUPPORTED;
    }
    if (l->delivered != l->released)
        return mr_error_plain(err, MR_E_USAGE, "%llu batches of the last epoch have not been released",
                              (unsigned long long)(l->delivered - l->released));
    if (skip > n || skip % l->p.batch_size)
        return mr_error_plain(err, MR_E_USAGE, "an epoch of %llu samples cannot go on behind sample %llu",
                              (unsigned long long)n, (unsigned long long)skip);
    if (continues(l, epoch, ids, n, skip)) {
        forget(&l->list);
        l->list = l->next_list;
        l->next_list = (struct id_list){0};
        l->base = l->delivered;
        l->epoch = epoch;
        l->first_batch = l->first_position = 0;
        l->n_samples = l->stream.epoch_samples;
        l->n_batches = l->stream.epoch_batches;
        return 0;
    }
    struct id_list made;
    int rc = copy_list(l, epoch, ids, n, &made, err);
    if (rc)
        return rc;
    mr_loader_end_stream(l);
    mr_loader_forget_lists(l);
    l->list = made;
    if ((rc = mr_loader_load(l, MR_LOADER_FOREVER, err)))
        return rc;
    start(l, epoch, n, skip);
    return 0;
}

int mr_loader_announce(struct mr_loader *l, const uint64_t *ids, uint64_t n, struct mr_error *err)
{
    if (!l->in_epoch || !l->list.ids || l->failed || n != l->list.n || !l->read_ahead || l->next_list.ids)
        return 0;
    int rc = copy_list(l, l->epoch + 1, ids, n, &l->next_list, err);
    if (!rc)
        mr_loader_raise_limit(l);
    return rc;
}
