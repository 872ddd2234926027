/* Did the trainer do what it promises? Two counts that are 0 when it does, from the trace alone: steps that began
 * before every rank had finished computing the one before (the barrier), and samples that are not in the batch where
 * the order of the workload puts them. The order is made here from the workload, not by the code that is checked. For
 * access patterns the second count is made in check_items.c. */
#include "analyze/run_trace.h"
#include "base/common.h"
#include "preset/check_internal.h"

#include <millrace/order.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t computed_at(const struct mr_run_rank *r, size_t k)
{
    const struct mr_step *s = &r->steps.item[k];
    return r->origin_ns + s->start_ns + s->load_ns + s->copy_ns + s->compute_wall_ns;
}

double mr_check_barrier_violations(const struct mr_run_trace *t)
{
    double count = 0;
    for (size_t k = 0;; k++) {
        uint64_t all_computed = 0;
        for (uint32_t r = 0; r < t->world; r++) {
            if (k + 1 >= t->rank[r].steps.n)
                return count;
            all_computed = MR_MAX(all_computed, computed_at(&t->rank[r], k));
        }
        for (uint32_t r = 0; r < t->world; r++)
            count += t->rank[r].origin_ns + t->rank[r].steps.item[k + 1].start_ns < all_computed;
    }
}

/* ---- the order ---- */

static int by_place(const void *a, const void *b)
{
    const struct mr_run_row *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    if (x->batch != y->batch)
        return x->batch < y->batch ? -1 : 1;
    return (x->sample > y->sample) - (x->sample < y->sample);
}

static int make_order(const struct check_job *j, uint32_t rank, struct mr_order **out, struct mr_error *err)
{
    const struct mr_workload *w = &j->w;
    struct mr_order_params p = {.samples = j->data->n_samples,
                                .seed = (uint64_t)w->train.seed,
                                .rank = rank,
                                .world = j->world,
                                .drop_last = w->reader.drop_last,
                                .shuffle_each_epoch = w->train.seed_change_epoch,
                                .window = (uint64_t)MR_MAX(w->reader.shuffle_size, 1),
                                .samples_per_file = MR_MAX(j->data->samples_per_file, 1u)};
    int rc = mr_order_mode_parse(mr_workload_order_name(w), &p.mode, &p.window, err);
    p.window = MR_MAX(p.window, 1u);
    return rc ? rc : mr_order_create(&p, out, err);
}

/* What the rank has to read, in the order of by_place when sorted. */
static int expected_rows(const struct check_job *j, struct mr_order *o, struct mr_run_row **out, size_t *n,
                         struct mr_error *err)
{
    uint64_t batch = (uint64_t)j->w.reader.batch_size, epochs = (uint64_t)j->w.train.epochs;
    uint64_t len = mr_order_rank_len(o), id;
    len = j->w.reader.drop_last ? len / batch * batch : len;
    struct mr_run_row *rows = malloc((len * epochs + 1) * sizeof(*rows));
    if (!rows)
        return mr_error_set(err, -ENOMEM, "cannot check the order of the samples");
    *n = 0;
    for (uint64_t e = 0; e < epochs; e++) {
        int rc = mr_order_set_epoch(o, e, err);
        if (rc) {
            free(rows);
            return rc;
        }
        for (uint64_t k = 0; k < len && mr_order_get(o, k, &id, 1) == 1; k++)
            rows[(*n)++] = (struct mr_run_row){.epoch = e, .batch = k / batch, .sample = id};
    }
    *out = rows;
    return 0;
}

/* Rows of one sorted list that the other does not have. */
static double count_missing(const struct mr_run_row *want, size_t n, const struct mr_run_row *have, size_t m)
{
    double missing = 0;
    for (size_t i = 0, k = 0; i < n; i++) {
        while (k < m && by_place(&have[k], &want[i]) < 0)
            k++;
        if (k < m && by_place(&have[k], &want[i]) == 0)
            k++;
        else
            missing++;
    }
    return missing;
}

int mr_check_out_of_order(const struct check_job *j, struct mr_run_trace *t, double *out, struct mr_error *err)
{
    double count = 0;
    int rc = 0;
    for (uint32_t r = 0; r < t->world && !rc; r++) {
        struct mr_order *o = NULL;
        struct mr_run_row *want = NULL;
        size_t n = 0;
        rc = make_order(j, r, &o, err);
        if (!rc)
            rc = expected_rows(j, o, &want, &n, err);
        if (!rc) {
            qsort(want, n, sizeof(*want), by_place);
            qsort(t->rank[r].rows.item, t->rank[r].rows.n, sizeof(*want), by_place);
            count += count_missing(want, n, t->rank[r].rows.item, t->rank[r].rows.n);
        }
        free(want);
        mr_order_free(o);
    }
    if (!rc)
        *out = count;
    return rc;
}
