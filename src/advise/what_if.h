/* What a traced run would have taken with other settings: the replay of its own batches and checkpoints, for whoever
 * searches among settings.
 *
 *     explanation ──mr_what_if_open──> struct mr_what_if ──mr_what_if_run(settings)──> seconds, thousands of times
 *
 * Opening gathers the batches of at most 4,000 steps (of up to four ranks) and fits the replay to the trace; a run is
 * one replay of them, scaled to all steps: some milliseconds, no I/O, no clock, the same seconds for the same
 * settings. Settings that are SAME stay as the trace had them, so that one setting can be changed at a time.
 *
 * What it cannot tell: the storage's limits beyond what the trace or a probe showed (storage_bytes_per_s SAME means the
 * limit that was seen, or none), what a changed decode costs, and other ranks' waits at barriers.
 *
 * A handle is used by one thread at a time; the explanation outlives it and is not changed by it. */
#ifndef MR_ADVISE_WHAT_IF_H
#define MR_ADVISE_WHAT_IF_H

#include "explain/explain.h"

/* How checkpoints are saved. */
enum mr_what_if_saves {
    MR_WHAT_IF_SAVES_SAME,     /* as the trace had it */
    MR_WHAT_IF_SAVES_ASYNC,    /* a copy in memory, the rest beside training */
    MR_WHAT_IF_SAVES_BUFFERED, /* to a local tier, the rest beside training */
};

struct mr_what_if_settings {
    /* NAN: as it was. */
    double workers;             /* of a rank; 0: the loop loads its batches itself */
    double ahead;               /* batches of a rank, those of all its workers together; 0: none */
    double persistent;          /* not 0: workers live on from epoch to epoch */
    double storage_bytes_per_s; /* of all readers of a rank together; INFINITY: no limit */
    double stream_bytes_per_s;  /* of one reader, behind the latency; INFINITY: none but the latency */
    double read_latency_s;      /* of one read; given without a stream's rate: reads are nothing but that */
    double read_bytes;          /* of one read */
    double cached_share;        /* of the bytes: from memory, or a local disk */
    double cached_bytes_per_s;  /* of one reader of it; NAN: memory */
    double cached_from;         /* epochs from this one on, counted from 0; NAN: 0 */
    double save_bytes_per_s;    /* of one rank, to where it is blocked; NAN: memory or a local disk, by `saves` */
    enum mr_what_if_saves saves;
};
/* Everything as it was. */
struct mr_what_if_settings mr_what_if_same(void);

struct mr_what_if_result {
    double saves_s;      /* of the waits, less than 0 where they are longer; of counted steps see mr_explanation */
    double wall_s;       /* of training, as `time.train_s` of the report */
    double stall_s;      /* of it: waits for data, as the report counts them */
    double checkpoint_s; /* of it: blocked by saves, the end of the last one included */
};

struct mr_what_if;

/* MR_E_UNSUPPORTED: the trace has no steps, or no time that loading a batch takes; -ENOMEM. */
int mr_what_if_open(struct mr_explanation *x, struct mr_what_if **out, struct mr_error *err);
void mr_what_if_close(struct mr_what_if *w);
/* Changes as settings: num_workers, prefetch_factor, persistent_workers of a DataLoader, data=memory and data=disk,
 * saver; reader.read_threads, reader.prefetch_size, reader.read_type=memory, checkpoint.engine=async of our own runs;
 * others change nothing. */
void mr_what_if_of_changes(struct mr_what_if_settings *s, const struct mr_change *change, size_t n);
/* -ENOMEM, -EINVAL (a setting that is negative). */
int mr_what_if_run(struct mr_what_if *w, const struct mr_what_if_settings *s, struct mr_what_if_result *out,
                   struct mr_error *err);
/* The settings that the trace had. */
void mr_what_if_now(const struct mr_what_if *w, struct mr_what_if_settings *out);

#endif
