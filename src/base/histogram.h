/* A mergeable histogram of 64-bit values (ns, bytes): log-linear buckets, 32 per power of two, so any quantile is
 * within 1/32 = 3.2 % of the exact one; count, min and max are exact. Recording is two shifts and an add: no lock,
 * no allocation. One writer at a time; merge is associative and commutative. About 15 KiB. */
#ifndef MR_BASE_HISTOGRAM_H
#define MR_BASE_HISTOGRAM_H

#include <stdint.h>

#define MR_HIST_SUB_BITS 5
#define MR_HIST_BUCKETS ((64 - MR_HIST_SUB_BITS + 1) << MR_HIST_SUB_BITS)

struct mr_histogram {
    uint64_t count, min, max;
    uint64_t bucket[MR_HIST_BUCKETS];
};

void mr_histogram_init(struct mr_histogram *h);
void mr_histogram_add(struct mr_histogram *h, uint64_t value);
void mr_histogram_add_n(struct mr_histogram *h, uint64_t value, uint64_t n);
void mr_histogram_merge(struct mr_histogram *into, const struct mr_histogram *from);
/* q in [0,1]; 0 for an empty histogram; q=0 and q=1 give the exact minimum and maximum. */
uint64_t mr_histogram_quantile(const struct mr_histogram *h, double q);
/* The same between the two values that q lies between, as NumPy and pandas do it: of few values that differ much the
 * nearest is far off. */
double mr_histogram_between(const struct mr_histogram *h, double q);

#endif
