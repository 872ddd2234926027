/* Counter-based random numbers: a value is a pure function of (seed, stream, counter), so any thread can compute any
 * draw in any order and a resumed run sees the same numbers. Not cryptographic. The mapping is versioned by
 * MR_RNG_VERSION and must never change within a version: data sets on disk depend on it.
 *
 * Distributions use one stream per purpose (see enum mr_rng_stream), so adding a draw somewhere moves nothing else. */
#ifndef MR_BASE_RNG_H
#define MR_BASE_RNG_H

#include <stdint.h>

#define MR_RNG_VERSION 1

enum mr_rng_stream {
    MR_RNG_ORDER = 1,      /* access order */
    MR_RNG_CONTENT = 2,    /* sample content */
    MR_RNG_SIZE = 3,       /* sample sizes */
    MR_RNG_LABEL = 4,      /* labels */
    MR_RNG_COMPUTE = 5,    /* emulated compute times */
    MR_RNG_PREPROCESS = 6, /* emulated preprocessing */
    MR_RNG_FAULT = 7,      /* injected faults */
    MR_RNG_AUGMENT = 8,    /* crops, flips */
    MR_RNG_MIXTURE = 9,    /* sources of a mixture that are equally due */
    MR_RNG_TEST = 100,
};

/* Strong 64-bit mixer (bijective). */
static inline uint64_t mr_mix64(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    return x;
}

/* 64 uniform bits for (seed, stream, counter). */
static inline uint64_t mr_rng_at(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint64_t k = mr_mix64(seed + 0x9e3779b97f4a7c15ull * (stream + 1));
    return mr_mix64(mr_mix64(counter + k) ^ (k >> 1) ^ 0x2545f4914f6cdd1dull);
}

/* Uniform in [0, 1) with 53 bits, and uniform in [0, n) without bias worth measuring (multiply-shift). */
static inline double mr_rng_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}
static inline uint64_t mr_rng_below(uint64_t bits, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)bits * n) >> 64);
}

/* Standard normal for a counter (Box-Muller on two draws of the same stream: counters 2c and 2c+1). */
double mr_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter);

#endif
