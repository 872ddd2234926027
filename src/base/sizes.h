/* Sample sizes with a requested mean and standard deviation that come out right over the set, per sample, as a pure
 * function of (seed, n, sample). The n quantiles of the distribution are dealt to the samples by a keyed permutation,
 * so the set's moments are those of the quantiles, which are solved for, not hoped for. See "Sizes" in
 * doc/reference/manifest.md.
 */
#ifndef MR_BASE_SIZES_H
#define MR_BASE_SIZES_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>

enum mr_size_kind { MR_SIZE_CONSTANT, MR_SIZE_NORMAL, MR_SIZE_LOGNORMAL };

struct mr_sizes {
    enum mr_size_kind kind;
    uint64_t samples, seed;
    double mean, spread, cut, scale; /* NORMAL: inner deviation, half width; LOGNORMAL: sigma, factor */
    double tail;                     /* NORMAL: share of the uncut normal below -cut */
    unsigned half_bits;              /* of the permutation */
    double got_mean, got_stdev;      /* over the set, before rounding to bytes */
};

/* MR_E_USAGE when no distribution on sizes >= 1 has these moments for n samples. */
int mr_sizes_init(struct mr_sizes *s, uint64_t samples, uint64_t seed, double mean, double stdev, struct mr_error *err);
/* Bytes of sample i < samples, at least 1. Thread-safe. */
uint64_t mr_sizes_at(const struct mr_sizes *s, uint64_t i);

/* A keyed permutation of 0..n-1: position i holds the returned number. */
uint64_t mr_sizes_permute(uint64_t seed, uint64_t n, unsigned half_bits, uint64_t i);
/* Inverse of the standard normal distribution function, relative error about 1e-9; 0 < p < 1. */
double mr_normal_quantile(double p);

#endif
