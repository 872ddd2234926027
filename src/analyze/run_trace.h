/* A run of our own trainer, put together again from its trace: steps, checkpoints and drains of every rank as
 * src/metrics wants them, and the sums each rank told at its end. What is computed from these is what the run computed
 * from its board while it ran (doc/internals/events.md, rule 4).
 *
 * Also the calls of the storage stacks, as metrics/io_pattern.h wants them. */
#ifndef MR_ANALYZE_RUN_TRACE_H
#define MR_ANALYZE_RUN_TRACE_H

#include "base/vec.h"
#include "import/trace_read.h"
#include "metrics/io_pattern.h"
#include "metrics/metrics.h"

/* One sum of a rank, as it was told. */
struct mr_run_figure {
    const char *name; /* NUL-terminated, of the run_trace */
    int64_t value;    /* of a real number: its bits */
    bool is_real;
};

struct mr_run_figures {
    struct mr_run_figure *item;
    size_t n, cap;
};

/* A sample that the loader made ready. */
struct mr_run_row {
    uint64_t epoch, batch, sample;
};

struct mr_run_rank {
    bool known; /* the trace has events of this rank's trainer */
    bool ended; /* the rank told its sums: it was not cut off */
    uint64_t open_ns, origin_ns,
        end_ns;                   /* began to open its data, was ready to train, was done; real time, 0 unknown */
    uint64_t first_compute_ns;    /* real time; UINT64_MAX: it never computed */
    MR_VEC(struct mr_step) steps; /* times since origin_ns */
    MR_VEC(struct mr_checkpoint_event) checkpoints;
    MR_VEC(struct mr_drain_event) drains;
    MR_VEC(struct mr_run_row) rows; /* as they became ready; only where the trace has samples */
    struct mr_run_figures figures;
    struct mr_run_figures settings; /* how it loads and what its machine is (bench_events.c: emit_open) */
};

struct mr_run_trace {
    uint32_t world;
    struct mr_run_rank *rank; /* [world] */
    struct mr_arena names;
};

/* MR_E_FORMAT when there is no trainer's event in the trace, or one is not as the trainer writes it; -ENOMEM. */
int mr_run_trace_read(const struct mr_trace *t, struct mr_run_trace **out, struct mr_error *err);
void mr_run_trace_free(struct mr_run_trace *r);
/* One series per rank; `out` has room for r->world. Borrows from r. */
void mr_run_trace_series(const struct mr_run_trace *r, struct mr_rank_series *out);
/* The figure of that name, or NULL. */
const struct mr_run_figure *mr_run_rank_figure(const struct mr_run_rank *r, const char *name);
/* A setting as a number; NAN where the trace does not have it. */
double mr_run_rank_setting(const struct mr_run_rank *r, const char *name);

/* Every call of a storage stack (kinds OPEN to RENAME, as far as io_pattern looks at them), in no order. `number` gives
 * a path its id, from 1 on; 0 leaves the call out. *events is malloc'ed; times are real. */
typedef uint32_t mr_path_number_fn(void *user, const char *path, uint32_t len);
int mr_run_trace_calls(const struct mr_trace *t, mr_path_number_fn *number, void *user, struct mr_event **events,
                       size_t *n, struct mr_error *err);

#endif
