/* Counters of one function in one worker: durations in buckets, sizes exactly while they are few. */
#include "analyze/summary_internal.h"
#include "base/common.h"

#include <stdlib.h>
#include <string.h>

#define DISTINCT 4096u /* different sizes counted exactly per function */

void mr_summary_put_buckets(struct mr_histogram *h, const struct summary_tally *f)
{
    for (unsigned i = 0; f->dur && i < MR_HIST_BUCKETS; i++)
        h->bucket[i] += f->dur->bucket[i];
    for (unsigned i = 0; i < SUMMARY_FEW && f->few[i].count; i++)
        h->bucket[f->few[i].bucket] += f->few[i].count;
}

/* A bucket that is not listed yet, while there is no histogram. */
void mr_summary_count_new_bucket(struct summary_tally *f, unsigned bucket, uint64_t n)
{
    unsigned i = 0;
    while (i < SUMMARY_FEW && f->few[i].count && f->few[i].bucket != bucket)
        i++;
    if (i < SUMMARY_FEW) {
        f->few[i].bucket = bucket;
        f->few[i].count += n;
        return;
    }
    struct mr_histogram *h = calloc(1, sizeof(*h));
    if (!h) {
        f->failed = true;
        return;
    }
    mr_summary_put_buckets(h, f);
    memset(f->few, 0, sizeof(f->few));
    h->bucket[bucket] += n;
    f->dur = h;
}

struct mr_histogram *mr_summary_size_histogram(struct summary_tally *f)
{
    if (!f->size)
        f->size = calloc(1, sizeof(*f->size));
    f->failed |= !f->size;
    f->spilled = true;
    return f->size;
}

static void count_in_histogram(struct summary_tally *f, uint64_t size, uint64_t n)
{
    struct mr_histogram *h = mr_summary_size_histogram(f);
    if (h)
        mr_histogram_add_n(h, size, n);
    f->bin[mr_tally_bin(size)] += n;
}

/* Counts a size exactly while there are few different ones, in the histogram beyond. */
void mr_summary_count_size(struct summary_tally *f, uint64_t size, uint64_t n)
{
    bool full = f->sizes.used >= DISTINCT && !mr_map_get(&f->sizes, size);
    uint64_t *count = full ? NULL : mr_map_put(&f->sizes, size);
    if (!count) {
        count_in_histogram(f, size, n);
        return;
    }
    *count += n;
    f->last = (size_t)(MR_CONTAINER_OF(count, struct mr_map_slot, value) - f->sizes.slot);
}
