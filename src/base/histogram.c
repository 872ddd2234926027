/* The log-linear histogram. Values below 32 have a bucket each; above, a value with highest bit e falls into one of 32
 * equal parts of [2^e, 2^(e+1)). A zeroed struct is an empty histogram. */
#include "base/histogram.h"
#include "base/common.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define SUB ((uint64_t)1 << MR_HIST_SUB_BITS)

static unsigned bucket_of(uint64_t v)
{
    if (v < SUB)
        return (unsigned)v;
    unsigned shift = 63u - (unsigned)__builtin_clzll(v) - MR_HIST_SUB_BITS;
    return ((shift + 1) << MR_HIST_SUB_BITS) + (unsigned)(v >> shift & (SUB - 1));
}

/* The middle of a bucket. */
static uint64_t bucket_value(unsigned b)
{
    if (b < SUB)
        return b;
    unsigned shift = (b >> MR_HIST_SUB_BITS) - 1;
    return ((SUB + (b & (SUB - 1))) << shift) + (((uint64_t)1 << shift) >> 1);
}

void mr_histogram_init(struct mr_histogram *h)
{
    memset(h, 0, sizeof(*h));
}

void mr_histogram_add_n(struct mr_histogram *h, uint64_t value, uint64_t n)
{
    if (!n)
        return;
    if (!h->count || value < h->min)
        h->min = value;
    if (value > h->max)
        h->max = value;
    h->count += n;
    assert(bucket_of(value) < MR_HIST_BUCKETS && h->min <= h->max);
    h->bucket[bucket_of(value)] += n;
}

void mr_histogram_add(struct mr_histogram *h, uint64_t value)
{
    mr_histogram_add_n(h, value, 1);
}

void mr_histogram_merge(struct mr_histogram *into, const struct mr_histogram *from)
{
    if (!from->count)
        return;
    if (!into->count || from->min < into->min)
        into->min = from->min;
    into->max = MR_MAX(into->max, from->max);
    into->count += from->count;
    for (unsigned b = 0; b < MR_HIST_BUCKETS; b++)
        into->bucket[b] += from->bucket[b];
}

/* The value at a place counted from 0 in the order of values. */
static uint64_t value_at(const struct mr_histogram *h, uint64_t place)
{
    uint64_t seen = 0;
    if (!place)
        return h->min;
    for (unsigned b = 0; b < MR_HIST_BUCKETS && place + 1 < h->count; b++) {
        seen += h->bucket[b];
        if (seen > place)
            return MR_MAX(h->min, MR_MIN(h->max, bucket_value(b)));
    }
    return h->max;
}

uint64_t mr_histogram_quantile(const struct mr_histogram *h, double q)
{
    if (!h->count)
        return 0;
    if (!(q > 0))
        return h->min;
    if (q >= 1)
        return h->max;
    uint64_t rank = (uint64_t)ceil(q * (double)h->count); /* nearest-rank definition */
    return value_at(h, rank ? rank - 1 : 0);
}

double mr_histogram_between(const struct mr_histogram *h, double q)
{
    if (!h->count)
        return 0;
    double place = q * (double)(h->count - 1);
    uint64_t below = (uint64_t)place;
    double low = (double)value_at(h, below), high = (double)value_at(h, below + 1);
    return low + (high - low) * (place - (double)below);
}
