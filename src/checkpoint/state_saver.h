/* A saver of states from the inside, and what the emulated training's engine asks of it beyond <millrace/state.h>. */
#ifndef MR_CHECKPOINT_STATE_SAVER_H
#define MR_CHECKPOINT_STATE_SAVER_H

#include "base/vec.h"
#include "checkpoint/state_image.h"
#include "checkpoint/state_pace.h"
#include "checkpoint/state_ring.h"
#include "checkpoint/state_save.h"
#include "checkpoint/state_tier.h"

int mr_saver_open_with(const struct mr_saver_params *p, const struct mr_saver_hooks *hooks, struct mr_saver **out,
                       struct mr_error *err);
/* As mr_saver_wait; MR_E_INTERRUPTED. Other errors stay for those who ask for them. */
int mr_saver_settle(struct mr_saver *s, uint64_t step, struct mr_error *err);
/* Waits for what is written behind, not for drains: those are cut short. */
void mr_saver_cut(struct mr_saver *s);
/* What a synchronous save did: in the first tier (else it is in the folder), and inside the store. */
struct mr_saver_did {
    bool in_tier;
    uint64_t wait_ns, write_ns, fsync_ns;
};

#define MR_SAVER_THREADS_MAX 64

struct chunk {
    struct chunk *next;
    uint8_t *slot;
    size_t index, bytes;
    struct mr_save_file *file;
    uint64_t at; /* in the file */
};

enum opening { CLOSED, OPENING, OPEN, COMMITTING };

struct job {
    struct job *next;
    struct mr_save save;
    struct chunk *chunk;        /* [chunks] */
    struct chunk *full, **tail; /* copied, not taken by a writer */
    struct chunk *unsummed;     /* written while the caller waited: their checksums come later */
    bool fits;                  /* the ring holds all of it: nobody waits for a slot */
    size_t queued, written;
    unsigned writing; /* chunks that are being written */
    bool copied;
    bool told; /* its failure needs no telling: the caller knows */
    enum opening file;
    struct mr_failure failure;
};

/* A copy, which goes on while the caller does after mr_saver_begin. */
struct behind {
    struct mr_saver *s;
    struct job *j;
    struct mr_state_image image;
    struct mr_save_result result;
    uint64_t blocked_ns;      /* the caller, before the fence */
    _Atomic uint64_t room_ns; /* waiting for room in the ring */
    pthread_t thread;
    bool running;
    struct mr_failure failure;
};

struct mr_saver {
    struct behind behind; /* the caller's thread and, while it runs, the copier's */
    struct mr_save_place place;
    struct mr_state_tiers *tiers; /* before that place; NULL: none */
    struct mr_saver_params p; /* without its texts and tiers; sync: nothing is in the ring and there are no writers */
    struct mr_pace *pace;
    struct mr_state_ring ring;
    uint64_t chunk_bytes;
    pid_t pid;
    uint64_t last_step; /* and how often it was saved in a row: parts of a save's id, the same on all ranks */
    unsigned again;
    atomic_bool stop;
    pthread_t thread[MR_SAVER_THREADS_MAX];
    unsigned running;

    pthread_mutex_t lock;
    pthread_cond_t changed;    /* anything below */
    struct job *first, **last; /* oldest save that is not over; where the next one is appended */
    bool closing, ending;
    uint64_t end_ns; /* of `ender`: mr_saver_end_within */
    pthread_t ender;
    uint64_t next_write_ns; /* bytes_per_s: when the next may begin */
    MR_VEC(struct mr_saved) over;
    struct mr_failure untold;
    struct mr_saver_did did; /* the last synchronous save */
};

/* ---- of the writers (state_writer.c) ---- */

void *mr_saver_writer(void *saver);
/* Fails it: the time of mr_saver_end_within is over. The lock is held. */
void mr_saver_fail_late(struct job *j);
void mr_saver_free_job(struct job *j);
/* A save of a synchronous saver: writes from the caller's memory and waits for the name; all ranks together where they
 * agree. */
int mr_saver_save_now(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_save_result *out,
                      struct mr_error *err);
/* Of state_saver.c: everything before the first byte, into an empty image. On success it and *j are the caller's; else other ranks learn
 * of a state that cannot be saved. `err` is not NULL. */
int mr_saver_prepare(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_state_image *image,
                     struct job **j, struct mr_error *err);

#endif
