/* What a span of a program is, by its category and name. The rules are data (region_rules.c): to teach the analysis a
 * new framework, add a row there; doc/guides/explain.md lists the conventions.
 *
 * A span has a set (how the summary unites it) and a role (what the explanation makes of it). */
#ifndef MR_ANALYZE_REGION_RULES_H
#define MR_ANALYZE_REGION_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mr_region_set { MR_REGION_NONE, MR_REGION_APP_IO, MR_REGION_COMPUTE };

enum mr_region_role {
    MR_ROLE_NONE,
    /* ---- of the consumer: the loop that trains ---- */
    MR_ROLE_WAIT,         /* waits for the next batch */
    MR_ROLE_ITER,         /* makes the iterator: begins an epoch of a loader */
    MR_ROLE_HANDOVER,     /* takes something from another thread: the next batch, where that thread waits for them */
    MR_ROLE_END,          /* finds the iterator at its end: no wait for data */
    MR_ROLE_SHUTDOWN,     /* the iterator is thrown away, and its workers end */
    MR_ROLE_STEP,         /* a whole step, named by the program */
    MR_ROLE_OWN_STEP,     /* of our own trainer: with all of struct mr_step as arguments */
    MR_ROLE_COMPUTE,      /* compute of a step */
    MR_ROLE_COMPUTE_LOOP, /* the same in a loop that does nothing but wait between two of them */
    MR_ROLE_OPTIMIZER,    /* of the training loop, never of an evaluation */
    MR_ROLE_BACKWARD,     /* as that */
    MR_ROLE_FORWARD,      /* a whole model is called: argument evaluates, 1 without gradients or in eval mode */
    MR_ROLE_JIT,          /* a compiled function of JAX's is called: explain_jit.c */
    MR_ROLE_DEVICE,       /* waits for results of the device: compute */
    MR_ROLE_COPY,         /* to the device */
    MR_ROLE_BARRIER,      /* waits for other ranks */
    MR_ROLE_SAVE,         /* blocked by a checkpoint */
    MR_ROLE_RESTORE,
    MR_ROLE_SAVE_WRITE, /* parts of a checkpoint */
    MR_ROLE_SAVE_FSYNC,
    MR_ROLE_DRAIN,      /* burst buffer to its place, beside training */
    MR_ROLE_DRAIN_WAIT, /* waits for that */
    MR_ROLE_EVALUATION,
    MR_ROLE_EPOCH,
    MR_ROLE_STARTUP,
    MR_ROLE_MACHINE,                /* arguments cpus, memory_bytes, memory_free_bytes, local_free_bytes */
    MR_ROLE_PLACE,                  /* the program calls what the span is named after: arguments file, line, by */
    MR_ROLE_RANK,                   /* the process learns which rank it is: arguments rank, world */
    MR_ROLE_ACCELERATOR_IDLE,       /* the accelerator was idle during a wait; argument batch */
    MR_ROLE_ACCELERATOR_COLLECTIVE, /* it waited for other ranks */
    MR_ROLE_FIGURES,                /* sums that our own trainer or loader emitted */
    MR_ROLE_FIELD, /* what a field of the samples cost so far, from our loader: arguments NAME:MEASURE */
    MR_ROLE_OPEN,  /* our own trainer opens its data */
    /* ---- of whoever makes batches ---- */
    MR_ROLE_FETCH,       /* one batch, by one worker */
    MR_ROLE_ITEM,        /* one sample, by a worker that does not tell of batches */
    MR_ROLE_FAR_TASK,    /* the same of a cluster: threads of the program only hand over what is made there */
    MR_ROLE_TASK,        /* what a worker of a pool was given to do: perhaps that */
    MR_ROLE_ROW,         /* our own loader's work for one sample; bears a cause */
    MR_ROLE_ROW_READY,   /* instant */
    MR_ROLE_BATCH_READY, /* instant */
    MR_ROLE_INSIDE,      /* inside a fetch: what it does is told by the calls and spans inside it */
    MR_ROLE_PART,        /* inside a fetch, bears a cause */
    MR_ROLES
};

/* What the time of a span went to, where nothing inside it tells more. */
enum mr_region_cause {
    MR_REGION_NO_CAUSE,
    MR_REGION_STORAGE,
    MR_REGION_MEMORY, /* at memory speed */
    MR_REGION_NETWORK,
    MR_REGION_DECODE,
    MR_REGION_TRANSFORM,
    MR_REGION_QUEUE,
    MR_REGION_COPY,
};

struct mr_region_class {
    uint8_t set, role, cause;
};

/* Neither text need be NUL-terminated. */
struct mr_region_class mr_region_classify(const char *category, size_t category_len, const char *name, size_t name_len);

/* Roles whose spans say which batch or step is at hand; the others only say what time inside went to. */
static inline bool mr_role_places(unsigned role)
{
    return role != MR_ROLE_NONE && role < MR_ROLE_INSIDE;
}

#endif
