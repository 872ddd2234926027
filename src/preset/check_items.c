/* Did an access pattern read its files or records in the order of the workload? Both sides are independent of the code
 * that is checked: what has to be read is made here from the workload's keys, what was read comes from the calls.
 *
 *   workload ──> places 0 1 2 3 ... of one rank, all epochs     an item is a pass over a file, or a record
 *   calls ─────> items as they were begun, each by a reader     a pass begins with the read at offset 0, a record with
 *                                                               the read that has its first byte
 *
 * Readers take places in ascending order, but one that is preempted between taking a place and its first read may begin
 * long after the others went on: on a busy machine no distance between place and time of begin is too far. So the order
 * is demanded of each reader alone, where it is exact: it never begins a place before the one it began last. Together
 * they must begin everything that the steps need. With one reader, or none, that is the order to the item; with several
 * it leaves open which of them reads what. */
#include "base/common.h"
#include "base/vec.h"
#include "preset/check_internal.h"

#include <millrace/order.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define NO_PLACE UINT64_MAX

/* ---- counting ---- */

struct reader {
    uint32_t tid;
    uint64_t next; /* it may begin this place and those behind it */
};

struct places {
    uint64_t *first; /* of each item; NO_PLACE: it has none */
    uint64_t *next;  /* of each place: where the same item comes again */
    bool *begun;     /* each place */
    MR_VEC(struct reader) readers;
};

static int places_init(struct places *p, const struct mr_check_items *want)
{
    *p = (struct places){.first = malloc((want->kinds + 1) * sizeof(*p->first)),
                         .next = malloc((want->n + 1) * sizeof(*p->next)),
                         .begun = calloc(want->n + 1, sizeof(*p->begun))};
    if (!p->first || !p->next || !p->begun)
        return -ENOMEM;
    for (uint64_t i = 0; i < want->kinds; i++)
        p->first[i] = NO_PLACE;
    for (size_t k = want->n; k-- > 0;) {
        p->next[k] = p->first[want->item[k]];
        p->first[want->item[k]] = k;
    }
    return 0;
}

static void places_done(struct places *p)
{
    free(p->first);
    free(p->next);
    free(p->begun);
    free(p->readers.item);
}

static struct reader *reader_of(struct places *p, uint32_t tid)
{
    for (size_t i = 0; i < p->readers.n; i++)
        if (p->readers.item[i].tid == tid)
            return &p->readers.item[i];
    struct reader *r = MR_VEC_ADD(&p->readers);
    if (r)
        *r = (struct reader){.tid = tid};
    return r;
}

/* The first place of the item from `from` on that nobody began. */
static uint64_t free_place(const struct places *p, uint64_t item, uint64_t from)
{
    uint64_t k = p->first[item];
    while (k != NO_PLACE && (p->begun[k] || k < from))
        k = p->next[k];
    return k;
}

/* 1 when the reader is past the item's place, or the item has none left. */
static int begin(struct places *p, struct reader *r, uint64_t item)
{
    uint64_t k = free_place(p, item, r->next);
    bool late = k == NO_PLACE;
    if (late)
        k = free_place(p, item, 0); /* begun all the same: not to be counted again as missing */
    else
        r->next = k + 1;
    if (k != NO_PLACE)
        p->begun[k] = true;
    return late;
}

int mr_check_count_displaced(const struct mr_check_items *want, const struct mr_check_begin *begun, size_t n,
                             double *out)
{
    struct places p;
    double count = 0;
    int rc = places_init(&p, want);
    for (size_t i = 0; i < n && !rc; i++) {
        struct reader *r = reader_of(&p, begun[i].tid);
        if (r)
            count += begin(&p, r, begun[i].item);
        else
            rc = -ENOMEM;
    }
    for (size_t k = 0; k < want->least && !rc; k++)
        count += !p.begun[k];
    places_done(&p);
    if (!rc)
        *out = count;
    return rc;
}

/* ---- what has to be read ---- */

static bool has_slices(const struct mr_workload *w)
{
    int access = w->reader.file_access;
    return w->origins[0] && mr_workload_is_set(w, "reader", "file_access") && w->reader.order == MR_CO_AUTO &&
           (access == MR_FA_SHARED || access == MR_FA_MULTI);
}

/* Files: in shuffled order or in sequence. Records: as through the loader, unless file_access gives each rank a
 * contiguous slice of its own. */
static int set_mode(const struct mr_workload *w, struct mr_order_params *p, struct mr_error *err)
{
    const struct mr_conf_reader *r = &w->reader;
    bool shuffled = r->sample_shuffle != MR_SHUFFLE_OFF || r->file_shuffle != MR_SHUFFLE_OFF;
    p->window = (uint64_t)MR_MAX(r->shuffle_size, 1);
    if (w->pattern.unit == MR_CONF_UNIT_FILE) {
        p->mode = r->order == MR_CO_SHARD ? MR_ORDER_SHARD : shuffled ? MR_ORDER_AUTO : MR_ORDER_SEQUENTIAL;
        return 0;
    }
    int rc = mr_order_mode_parse(mr_workload_order_name(w), &p->mode, &p->window, err);
    p->window = MR_MAX(p->window, 1u);
    if (!rc && has_slices(w) && !(r->file_access == MR_FA_MULTI && p->mode == MR_ORDER_FILE)) {
        p->mode = shuffled ? MR_ORDER_SHARD : MR_ORDER_BUFFER;
        p->window = 1; /* a shuffle buffer of one: in sequence */
    }
    return rc;
}

/* Samples between two jumps. */
static uint64_t run_of(const struct mr_workload *w)
{
    return w->pattern.unit == MR_CONF_UNIT_FILE ? 1 : (uint64_t)MR_MAX(w->pattern.sequential_samples, 1);
}

static int make_order(const struct check_job *j, uint32_t rank, struct mr_order **out, struct mr_error *err)
{
    const struct mr_workload *w = &j->w;
    const struct mr_check_data *d = j->data;
    bool files = w->pattern.unit == MR_CONF_UNIT_FILE, same = w->pattern.same_offsets;
    uint64_t run = run_of(w);
    /* Nothing is left out: a check reads whole epochs. */
    struct mr_order_params p = {.samples = files ? d->n_files : (d->n_samples + run - 1) / run,
                                .seed = (uint64_t)w->train.seed,
                                .rank = same ? 0 : rank,
                                .world = same ? 1 : j->world,
                                .shuffle_each_epoch = w->train.seed_change_epoch,
                                .samples_per_file = MR_MAX(d->samples_per_file / run, 1u)};
    int rc = set_mode(w, &p, err);
    return rc ? rc : mr_order_create(&p, out, err);
}

/* Of n records those that the steps ask for; readers may have begun more. Files are read to the end of the list. */
static uint64_t least_of(const struct check_job *j, uint64_t n, uint64_t per_epoch)
{
    uint64_t batch = (uint64_t)j->w.reader.batch_size, steps = j->shape->steps;
    if (j->w.pattern.unit == MR_CONF_UNIT_FILE || j->w.reader.read_type == MR_CONF_READ_MEMORY || !steps || !per_epoch)
        return n;
    uint64_t batches = (per_epoch + batch - 1) / batch;
    return MR_MIN(n, steps / batches * per_epoch + MR_MIN(steps % batches * batch, per_epoch));
}

/* With file_passes the list goes on from epoch to epoch until there are enough; a set in memory is read once. */
static int expect_items(const struct check_job *j, uint32_t rank, struct mr_check_items *out, struct mr_error *err)
{
    struct mr_order *o = NULL;
    int rc = make_order(j, rank, &o, err);
    if (rc)
        return rc;
    const struct mr_workload *w = &j->w;
    bool files = w->pattern.unit == MR_CONF_UNIT_FILE;
    uint64_t run = run_of(w), per_epoch = mr_order_rank_len(o) * run, unit;
    uint64_t n = per_epoch * (w->reader.read_type == MR_CONF_READ_MEMORY ? 1 : (uint64_t)w->train.epochs);
    if (w->pattern.file_passes)
        n = ((uint64_t)w->pattern.file_passes + rank) / j->world;
    struct mr_check_items list = {.kinds = files ? j->data->n_files : j->data->n_samples,
                                  .item = malloc((n + 1) * sizeof(*list.item))};
    if (!list.item)
        rc = mr_error_set(err, -ENOMEM, "cannot check the order of the reads");
    for (; list.n < n && !rc; list.n++) {
        uint64_t k = list.n % per_epoch;
        if (k == 0)
            rc = mr_order_set_epoch(o, list.n / per_epoch, err);
        if (!rc && mr_order_get(o, k / run, &unit, 1) != 1)
            rc = mr_error_plain(err, MR_E_INTERNAL, "the order of the reads ended at %zu", list.n);
        if (!rc)
            list.item[list.n] = files ? unit : (unit * run + k % run) % list.kinds;
    }
    mr_order_free(o);
    list.least = least_of(j, n, per_epoch);
    if (rc)
        free(list.item);
    else
        *out = list;
    return rc;
}

/* ---- what was read ---- */

static int by_start(const void *a, const void *b)
{
    const struct mr_event *x = *(const struct mr_event *const *)a, *y = *(const struct mr_event *const *)b;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Reads of the data by a rank, in time; without those of the header, which come before all others. */
static int reads_of(const struct check_job *j, const struct mr_io_calls *calls, uint32_t rank,
                    const struct mr_event ***out, size_t *n)
{
    const struct mr_event **v = malloc((calls->n + 1) * sizeof(*v));
    size_t header = j->w.pattern.header_file ? 0 : (size_t)j->w.pattern.header_reads, m = 0;
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < calls->n; i++) {
        const struct mr_event *e = &calls->events[i];
        if (e->kind == MR_EV_READ && e->result > 0 && e->path_id <= j->data->n_files && e->rank == rank)
            v[m++] = e;
    }
    qsort(v, m, sizeof(*v), by_start);
    header = MR_MIN(header, m);
    *n = m - header;
    for (size_t i = 0; i < *n; i++)
        v[i] = v[i + header];
    *out = v;
    return 0;
}

/* The record whose first byte the call read, or n_samples. Records lie in the order of their numbers. */
static uint64_t record_begun(const struct mr_check_data *d, const struct mr_event *e)
{
    uint64_t low = 0, high = d->n_samples, file = e->path_id - 1;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        const struct mr_check_extent *x = &d->sample[mid];
        if (x->file < file || (x->file == file && x->offset < e->offset))
            low = mid + 1;
        else
            high = mid;
    }
    bool here =
        low < d->n_samples && d->sample[low].file == file && d->sample[low].offset < e->offset + (uint64_t)e->result;
    return here ? low : d->n_samples;
}

static int find_begun(const struct check_job *j, const struct mr_io_calls *calls, uint32_t rank,
                      struct mr_check_begin **out, size_t *n)
{
    const struct mr_event **v = NULL;
    size_t m = 0;
    int rc = reads_of(j, calls, rank, &v, &m);
    struct mr_check_begin *list = rc ? NULL : malloc((m + 1) * sizeof(*list));
    bool files = j->w.pattern.unit == MR_CONF_UNIT_FILE;
    *n = 0;
    for (size_t i = 0; list && i < m; i++) {
        uint64_t item = files ? v[i]->path_id - 1 : record_begun(j->data, v[i]);
        if (files ? v[i]->offset == 0 : item < j->data->n_samples)
            list[(*n)++] = (struct mr_check_begin){.tid = v[i]->tid, .item = item};
    }
    free(v);
    *out = list;
    return list ? 0 : -ENOMEM;
}

/* ---- all of it ---- */

/* Not where a rank reads for others, where records share what is read, nor where direct reads of records take the neighbours' bytes with them. */
static bool order_is_known(const struct check_job *j)
{
    const struct mr_conf_reader *r = &j->w.reader;
    bool files = j->w.pattern.unit == MR_CONF_UNIT_FILE, records = j->w.pattern.unit == MR_CONF_UNIT_RECORD;
    return j->data && j->data->n_samples && !j->data->shares_units && (files || (records && !r->odirect)) &&
           r->file_access != MR_FA_COLLECTIVE && r->file_access != MR_FA_MPIO;
}

int mr_check_items_out_of_order(const struct check_job *j, const struct mr_io_calls *calls, double *out,
                                struct mr_error *err)
{
    double count = 0;
    int rc = 0;
    if (!order_is_known(j)) {
        *out = NAN;
        return 0;
    }
    for (uint32_t r = 0; r < j->world && !rc; r++) {
        struct mr_check_items want = {0};
        struct mr_check_begin *begun = NULL;
        size_t n = 0;
        double displaced = 0;
        rc = expect_items(j, r, &want, err);
        if (!rc && ((rc = find_begun(j, calls, r, &begun, &n)) ||
                    (rc = mr_check_count_displaced(&want, begun, n, &displaced))))
            mr_error_set(err, rc, "cannot check the order of the reads");
        count += displaced;
        free(want.item);
        free(begun);
    }
    if (!rc)
        *out = count;
    return rc;
}
