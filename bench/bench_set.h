/* A data set made ready for measuring: a shuffled order, and for the floors where every sample lies. */
#ifndef MR_BENCH_SET_H
#define MR_BENCH_SET_H

#include "bench.h"
#include "bench_case.h"
#include "floors.h"

#include <millrace/dataset.h>

struct bench_set {
    const struct bench_case *c;
    char folder[4096];
    struct mr_dataset *ds;
    uint64_t n, *order;           /* a permutation of 0 .. n-1 */
    uint64_t payload_bytes;       /* of the largest sample, decoded */
    uint64_t raw_bytes;           /* of the largest sample, as it lies in the file */
    struct floor_sample *samples; /* files of several samples are open */
};

/* Generates the set under o->dir, reads it once with its checksums, locates every sample. False, with a row that says
 * why, when it does not work. */
bool bench_set_make(const struct bench_options *o, const struct bench_case *c, struct bench_set *out);
/* Opens the files of several samples again with these flags (O_DIRECT). */
void bench_set_reopen(struct bench_set *s, int flags);
/* Writes back and drops the files' pages from the page cache, as far as the kernel lets go of them. */
void bench_set_drop_cache(const struct bench_set *s);
void bench_set_remove(struct bench_set *s);

#endif
