/* Synthetic data, and workloads that read nothing: batches have a size and no rows. */
#include "bench/bench_feed.h"

#include <errno.h>
#include <stdlib.h>

struct synthetic_feed {
    struct feed base;
    uint32_t batch_size;
    uint64_t delivered, batch_bytes;
    atomic_bool stopped;
};

static int synthetic_start(struct feed *base, uint64_t epoch, struct mr_error *err)
{
    (void)epoch, (void)err;
    ((struct synthetic_feed *)base)->delivered = 0;
    return 0;
}

static int synthetic_next(struct feed *base, struct feed_batch *out, struct mr_error *err)
{
    struct synthetic_feed *f = (struct synthetic_feed *)base;
    if (atomic_load(&f->stopped))
        return mr_error_plain(err, MR_E_INTERRUPTED, "the loader was stopped");
    if (f->delivered == base->n_batches)
        return 0;
    f->delivered++;
    out->n = f->batch_size;
    out->sample_bytes = f->batch_bytes;
    return 1;
}

static void synthetic_stop(struct feed *base)
{
    atomic_store(&((struct synthetic_feed *)base)->stopped, true);
}

static const struct feed_ops synthetic_ops = {
    .start_epoch = synthetic_start, .next = synthetic_next, .stop = synthetic_stop};

int mr_feed_synthetic_open(const struct feed_request *q, struct feed **out, struct mr_error *err)
{
    const struct mr_bench_params *p = q->p;
    const struct mr_conf_reader *r = &p->workload->reader;
    struct synthetic_feed *f = calloc(1, sizeof(*f));
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot make a feed");
    f->batch_size = (uint32_t)(q->eval ? r->batch_size_eval : r->batch_size);
    f->batch_bytes = (uint64_t)(p->plan->read_bytes * f->batch_size);
    f->base.n_batches = q->eval ? p->plan->eval_steps : p->plan->steps_per_epoch;
    return mr_feed_finish_open(&f->base, mr_feed_init(&f->base, &synthetic_ops, q, false, err), out);
}
