/* A data set to be made by the product's generator: shared by the generation rows, the reading rows and the children.
 */
#ifndef MR_BENCH_CASE_H
#define MR_BENCH_CASE_H

#include "bench.h"
#include "dataset/generate.h"

#include <stdint.h>

struct bench_case {
    const char *name, *format;
    int64_t files, samples_per_file;
    uint64_t size_bytes;
    const char *extra[3][2]; /* further options of `millrace gen`: key, value */
    double budget;           /* of generation; 0 = reported only */
};

/* False, with a row that says so, when this build lacks the case's format. */
bool bench_case_possible(const struct bench_case *c);

/* Makes the set in `folder` (which must not exist) the way `millrace gen` does, with the manifest; returns its time. */
struct bench_time bench_case_generate(const struct bench_case *c, const char *folder, unsigned threads);
/* The same, but an error is returned. */
int bench_case_try(const struct bench_case *c, const char *folder, unsigned threads, struct bench_time *time,
                   struct mr_error *err);

#endif
