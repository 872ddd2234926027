/* What the files of the summary share. A trace goes through them in this order:
 *
 *   summary_names.c    names are made global: functions, files
 *   summary_filter.c   what is looked at: files, ranks, times, steps; in which order
 *   summary_scan.c     chunks are counted and their intervals united, a few million events at a time
 *   summary_tally.c    the counters of a function, in one worker
 *   summary_finish.c   the workers' counters are added up
 *
 * Each worker has its own counters, which are added up at the end; what is shared while workers run is read-only, or
 * under `lock`. */
#ifndef MR_ANALYZE_SUMMARY_INTERNAL_H
#define MR_ANALYZE_SUMMARY_INTERNAL_H

#include "analyze/summary.h"
#include "base/map.h"
#include "base/vec.h"

#include <pthread.h>

#define SUMMARY_FEW                                                                                                    \
    6 /* durations listed by bucket before there is a histogram: a program may have a name for every step */

enum { MR_CLASS_NONE = 0, MR_CLASS_P = 1 << MR_SET_P, MR_CLASS_A = 1 << MR_SET_A, MR_CLASS_C = 1 << MR_SET_C };

struct bucket_count {
    uint64_t count;
    uint32_t bucket;
};

/* Counters of one function in one worker. A histogram is large: there is one only where it is needed. */
struct summary_tally {
    uint64_t count, errors, bytes, dur_ns, dur_min, dur_max;
    struct bucket_count few[SUMMARY_FEW]; /* durations; the used ones are the first */
    struct mr_histogram *dur;  /* all durations, once they fall into more buckets; only its buckets are counted here */
    struct mr_histogram *size; /* sizes that are not counted one by one; NULL: there are none */
    uint64_t bin[MR_TALLY_BINS];
    struct mr_map sizes; /* how often each size came */
    size_t last;         /* the slot of the size that came last */
    bool spilled;        /* some sizes are in the histogram only */
    bool failed;         /* no memory */
};

struct summary_worker {
    struct mr_event_batch batch;
    struct summary_tally *tally; /* by function */
    struct mr_file_row *file;
    struct mr_timeline timeline;
    struct mr_time_split all, *group;
    uint64_t *group_events, *group_first, *group_last;
    uint8_t *did_io, *did_compute, *present; /* by lane; present: has something in what filters leave */
    /* The block being visited. */
    struct summary_tally *now;
    uint32_t process;
    uint8_t classes, mixed; /* sets its functions belong to; some events belong to none */
    bool odd, failed;       /* has events of no function; no memory */
};

struct summary_job {
    const struct mr_trace *t;
    const struct mr_summary_options *opt;
    MR_VEC(struct mr_function) function;
    MR_VEC(uint8_t) function_class;
    uint32_t *owner;    /* by process: whose tables it uses */
    uint32_t **site_of; /* by process, string id: function of a site */
    uint32_t **file_of; /* by process, string id: global file + 1 */
    MR_VEC(struct mr_file_row) file;
    MR_VEC(uint8_t) file_apart; /* by file: no storage, so that calls on it are no I/O */
    uint8_t *file_wanted;
    struct mr_map names; /* hash of a site or a path: its index + 1 */
    struct summary_worker *worker;
    unsigned workers;
    uint32_t *lane_of; /* by chunk: number of its thread */
    uint32_t lanes;
    uint32_t *group_of; /* by process */
    int32_t *group_rank;
    uint32_t groups;
    uint32_t *order; /* wanted chunks by time */
    size_t ordered;
    MR_VEC(struct mr_run) run; /* of the chunks at hand */
    size_t first_run, first_chunk;
    uint64_t slice_from, slice_to;
    unsigned slices;
    pthread_mutex_t lock;
    struct mr_intervals spare[64]; /* memory of lists to be used again; under lock */
    unsigned spares;
    struct mr_histogram dur, size; /* of the function that is being finished */
    struct mr_intervals
        *steps; /* by group: when its wanted steps are; behind the last group those of all, for groups without steps */
    uint64_t from_ns, to_ns;
    struct mr_arena *arena;
    uint8_t call_kind[MR_CALL_COUNT];
    bool call_on_file[MR_CALL_COUNT];
};

static inline bool mr_summary_rank_wanted(const struct summary_job *j, const struct mr_trace_process *p)
{
    return j->opt->rank < 0 || p->rank == j->opt->rank;
}

/* ---- summary_names.c; 0 or -ENOMEM ---- */

int mr_summary_gather_names(struct summary_job *j);

/* ---- summary_filter.c; 0 or -ENOMEM ---- */

int mr_summary_choose_files(struct summary_job *j);
int mr_summary_make_groups(struct summary_job *j);
int mr_summary_order_chunks(struct summary_job *j);
int mr_summary_gather_steps(struct summary_job *j, struct mr_error *err);

/* ---- summary_tally.c: without memory they set `failed` ---- */

void mr_summary_put_buckets(struct mr_histogram *h, const struct summary_tally *f);
void mr_summary_count_new_bucket(struct summary_tally *f, unsigned bucket, uint64_t n);
struct mr_histogram *mr_summary_size_histogram(struct summary_tally *f);
void mr_summary_count_size(struct summary_tally *f, uint64_t size, uint64_t n);

/* ---- summary_scan.c ---- */

int mr_summary_work_all(struct summary_job *j, const atomic_bool *stop, struct mr_error *err);
/* Gives back the lists of runs that end before this time. */
void mr_summary_drop_runs(struct summary_job *j, uint64_t before);

/* ---- summary_finish.c; 0 or -ENOMEM ---- */

int mr_summary_finish(struct summary_job *j, struct mr_summary *s);

#endif
