/* The one way from files to an explanation with findings. `run`, `report`, `check`, `compare` and the pages all use it, so
 * they cannot disagree about a trace:
 *
 *     paths ──read, align clocks──> struct mr_trace ──explain, results folder, rules──> struct mr_explanation
 *
 * `report` looks at the trace between the two halves; everything else calls mr_explain_open. */
#ifndef MR_ADVISE_EXPLAIN_OPEN_H
#define MR_ADVISE_EXPLAIN_OPEN_H

#include "explain/explain.h"

#include <jansson.h>

struct mr_explain_how {
    struct mr_explain_options explain; /* .source NULL: the first path */
    /* What a results folder adds (the command, the storage probe, why it ended): `summary` while the run still holds
     * it, else summary.json in `folder`, which need not be one. */
    const json_t *summary;
    const char *folder;                /* NULL: the first path */
    uint64_t counted_from, counted_to; /* of the explanation; 0: predictions are for the whole run */
    /* What only this machine can tell, before the rules are applied; NULL: nothing, and a report of one trace is always
     * the same. */
    int (*measure)(struct mr_explanation *x, const atomic_bool *stop, struct mr_error *err);
};

/* Reads traces and puts the clocks of their hosts onto that of the first. 0 threads: all CPUs; `stop` may be NULL. */
int mr_explain_read(const char *const *paths, size_t n, unsigned threads, const atomic_bool *stop,
                    struct mr_trace **out, struct mr_error *err);
/* Explains a trace of mr_explain_read and applies the rules. */
int mr_explain_trace(const struct mr_trace *t, const struct mr_explain_how *how, struct mr_explanation **out,
                     struct mr_error *err);
/* Both. The explanation stands without the trace. */
int mr_explain_open(const char *const *paths, size_t n, const struct mr_explain_how *how, struct mr_explanation **out,
                    struct mr_error *err);

#endif
