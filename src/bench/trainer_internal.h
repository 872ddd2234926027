/* Inside the trainer: trainer.c is the loop, trainer_open.c opens and closes what it needs. Invariants T1 to T6 are in
 * README.md. */
#ifndef MR_BENCH_TRAINER_INTERNAL_H
#define MR_BENCH_TRAINER_INTERNAL_H

#include "base/clock.h"
#include "bench/bench_feed.h"
#include "bench/trainer.h"

#include <pthread.h>

struct trainer {
    const struct mr_bench_params *p;
    struct mr_comm *comm;
    struct mr_bench_board *board;
    struct mr_bench_rank *me;
    struct feed *train, *eval;
    struct mr_checkpointer *saver;
    struct mr_checkpoint_file *files;
    uint64_t n_files;
    void *device; /* where batches are copied to, and how much room there is */
    uint64_t device_bytes;
    double *gradients; /* train.allreduce_bytes of them, or NULL */
    uint64_t n_gradients;
    uint64_t origin_ns, last_save_ns;
    uint64_t total_steps, trained; /* to do, done */
    uint64_t epoch_steps;          /* per epoch; the same on all ranks (T1) */
    uint64_t told, told_trained;   /* steps on the board, training steps among them, that the events have */
    bool ended;                    /* by a stop, a time limit or the number of steps */

    pthread_t watcher;
    bool watching;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool quit;           /* lock */
    struct feed *active; /* lock: the one to stop */
};

static inline void enter(struct trainer *t, enum mr_bench_state s)
{
    atomic_store_explicit(&t->me->since_ns, mr_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&t->me->state, s, memory_order_relaxed);
}

static inline uint64_t since_start(const struct trainer *t)
{
    return mr_now_ns() - t->origin_ns;
}

/* trainer_open.c. Collective: open gives the same result on all ranks. */
int mr_trainer_open(struct trainer *t, struct mr_error *err);
/* `broken`: after a failure or a stop. What does not close soon is left behind. */
void mr_trainer_close(struct trainer *t, bool broken);

/* trainer.c */
int mr_trainer_prepare_cache(struct trainer *t, bool eval, struct mr_error *err); /* collective */
void mr_trainer_note_drains(struct trainer *t);
void mr_trainer_emit_steps(struct trainer *t, uint64_t n);

#endif
