/* How fast a drain may go beside a training: it starts slowly, goes faster while the training's steps take no longer
 * than those without a drain, and halves its speed when they do, within a few steps. Who does not tell of steps gets
 * no limit; who waits for the drain (a full tier, the end) lifts it.
 *
 *   rate   128 MiB/s ── 8 steps not slower ──> x 1.5 ... ── 8 steps slower by 2 % ──> / 2, at least 8 MiB/s
 *
 * Thread safety: all calls, from any thread. */
#ifndef MR_CHECKPOINT_STATE_PACE_H
#define MR_CHECKPOINT_STATE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define MR_PACE_WINDOW 8 /* steps with a drain that are judged together */
#define MR_PACE_QUIET 32 /* steps without one that they are compared with, the latest */
#define MR_PACE_SLOWER 1.02

struct mr_pace;
/* most: bytes per second that it never exceeds; 0: none. NULL without memory. */
struct mr_pace *mr_pace_create(uint64_t most);
void mr_pace_free(struct mr_pace *p); /* accepts NULL */
/* A step of the training has ended at that time. */
void mr_pace_step(struct mr_pace *p, uint64_t now_ns);
/* The drain wants to move so many bytes: when it may. */
uint64_t mr_pace_take(struct mr_pace *p, uint64_t bytes, uint64_t now_ns);
/* Waits until then, or until somebody is in a hurry. */
void mr_pace_wait(struct mr_pace *p, uint64_t until_ns);
/* Somebody waits for the drain, or no longer. Counted. */
void mr_pace_hurry(struct mr_pace *p, bool begins);
/* Bytes per second at the moment; 0: no limit. */
uint64_t mr_pace_rate(struct mr_pace *p);

#endif
