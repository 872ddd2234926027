/* Distributions on top of the counter-based generator. */
#include "base/rng.h"

#include <math.h>

double mr_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    double u = mr_rng_unit(mr_rng_at(seed, stream, 2 * counter)) + 0x1p-54;
    double v = mr_rng_unit(mr_rng_at(seed, stream, 2 * counter + 1));
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v);
}
