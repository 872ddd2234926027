/* How checkpoints move to storage beside a training: every byte that is written behind its back, and every byte of a
 * drain, goes through here. Three things hold it back, together in this one place:
 *
 *   reads    of the training on the same device: the device's arbiter (store/traffic.h), piece by piece
 *   steps    that take longer, where the trainer tells of them: useful where the reads are elsewhere, or CPU is short
 *   a limit  that the caller gave
 *
 *   rate by steps   128 MiB/s ── 8 steps not slower ──> x 1.5 ... ── 8 steps slower by 2 % ──> / 2, at least 8 MiB/s
 *
 * Who does not tell of steps gets no limit by them; who waits for the checkpoint (a full tier or ring, wait, the end)
 * lifts everything but the caller's limit. Saves that come regularly are moved fast enough to be over before the next.
 *
 * Thread safety: all calls, from any thread. */
#ifndef MR_CHECKPOINT_STATE_PACE_H
#define MR_CHECKPOINT_STATE_PACE_H

#include <millrace/error.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_PACE_WINDOW 8 /* steps with a drain that are judged together */
#define MR_PACE_QUIET 32 /* steps without one that they are compared with, the latest */
#define MR_PACE_SLOWER 1.02

struct mr_object;
struct mr_traffic;
struct mr_pace;
/* most: bytes per second that it never exceeds; 0: none. cautious: it begins slowly; otherwise steps limit it only once
 * they were seen to take longer. NULL without memory. */
struct mr_pace *mr_pace_create(uint64_t most, bool cautious);
void mr_pace_free(struct mr_pace *p); /* accepts NULL */
/* A step of the training has ended at that time. */
void mr_pace_step(struct mr_pace *p, uint64_t now_ns);
/* The drain wants to move so many bytes: when it may. */
uint64_t mr_pace_take(struct mr_pace *p, uint64_t bytes, uint64_t now_ns);
/* Waits until then, or until somebody is in a hurry. */
void mr_pace_wait(struct mr_pace *p, uint64_t until_ns);
/* Somebody waits for the drain, or no longer. Counted. */
void mr_pace_hurry(struct mr_pace *p, bool begins);
/* A checkpoint of so many bytes is to be moved; the next one is expected after as long as since the one before. */
void mr_pace_save(struct mr_pace *p, uint64_t bytes, uint64_t now_ns);

/* Where bytes go or come from, and what ends the holding back (not the transfer). */
struct mr_pace_way {
    struct mr_pace *pace;      /* NULL: at once */
    struct mr_traffic *device; /* or NULL */
    bool by_steps;             /* the last leg: steps and the caller's limit hold it back, and the need counts down */
    bool flush; /* written through the page cache: make it durable as it goes, else all of it goes at once */
    const atomic_bool *stop; /* or NULL */
};
/* Writes `from` there, or reads from there `into` memory; the other one is NULL. */
int mr_pace_move(const struct mr_pace_way *way, struct mr_object *o, const void *from, void *into, size_t n,
                 uint64_t at, struct mr_error *err);

/* Bytes per second at the moment; 0: no limit. */
uint64_t mr_pace_rate(struct mr_pace *p);

#endif
